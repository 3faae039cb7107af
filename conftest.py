"""How pytest reads notebooks, and in how many processes it runs."""

import sys
from pathlib import Path
from typing import Any

import pytest

SANITIZE = Path(__file__).parent / "notebooks" / "sanitize.cfg"
NBVAL_OPTIONS = {
    "nbval": True,
    "nbval_lax": False,
    "nbval_sanitize_with": str(SANITIZE),
    "nbval_current_env": False,
    "nbval_kernel_name": None,
    "nbval_cell_timeout": 2000,
    "nbval_kernel_startup_timeout": 60,
    "nbdime": False,
}
"""The options that nbval's plugin adds, which is not loaded."""
WORKERS = 2

# If PYTHONDONTWRITEBYTECODE is set, every process would compile memlab again and rewrite the
# assertions of every test. Git ignores the written files.
sys.dont_write_bytecode = False

# jsonschema, which nbformat imports, builds a grammar of addresses for 1.6 seconds if it finds this
# module. No notebook has an address that it checks.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Compare what a notebook prints with what is stored in it.

    nbval is imported only here, because that takes longer than to start pytest.
    """
    if file_path.suffix != ".ipynb":
        return None
    from jupyter_client.provisioning import local_provisioner
    from nbval.plugin import IPyNbFile

    from tests.support.kernels import launch_kernel

    vars(local_provisioner)["launch_kernel"] = launch_kernel
    for name, value in NBVAL_OPTIONS.items():
        if not hasattr(parent.config.option, name):
            setattr(parent.config.option, name, value)
    collector: pytest.Collector = IPyNbFile.from_parent(parent, path=file_path)
    return collector


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: Any) -> int:
    """Run a single file in pytest's own process: a worker takes longer to start than most files."""
    names = {name.partition("::")[0] for name in config.args}
    is_single_file = len(names) == 1 and Path(names.pop()).is_file()
    return 0 if is_single_file else WORKERS
