"""The record that an adapter passed the conformance suite, without which memlab deletes nothing.

``python -m memlab.testing`` writes the record beside the module of an adapter, and the package of
the adapter ships it. The record holds for the code that was tested and for one version of the
suite. It protects against mistakes: whoever writes an adapter could also forge a record.
"""

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

SUITE: Final = 1
"""Version of the conformance suite: raised with each new test that an adapter could fail."""
SUFFIX: Final = ".conformance.json"

TESTED: Final = "memlab adapter"
"""Name of the property in which a test of the suite records the class that it tests."""

_is_suite_running = False


@contextmanager
def conformance_suite_running() -> Iterator[None]:
    """Let adapters without a record delete in the block, because the suite tests deleting."""
    global _is_suite_running  # noqa: PLW0603
    before = _is_suite_running
    _is_suite_running = True
    try:
        yield
    finally:
        _is_suite_running = before


def is_suite_running() -> bool:
    """Return whether the conformance suite is running."""
    return _is_suite_running


def record_path(adapter: type) -> Path:
    """Return the path of an adapter's record, beside its module."""
    return _module_file(adapter).with_suffix(SUFFIX)


def digest_of(adapter: type) -> str:
    """Return the digest of an adapter's code: of all modules of its package, or of its module."""
    module = _module_file(adapter)
    is_in_package = "." in adapter.__module__ or module.stem == "__init__"
    files = sorted(module.parent.rglob("*.py")) if is_in_package else [module]
    digest = sha256()
    for file in files:
        content = file.read_bytes()
        name = file.relative_to(module.parent).as_posix()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def write_record(adapter: type, *, passed: int, version: str) -> Path:
    """Write the record of an adapter that passed the suite, and return its path.

    Parameters
    ----------
    adapter : type
        The class of the source.
    passed : int
        The number of passed tests.
    version : str
        The version of memlab.
    """
    path = record_path(adapter)
    record = {
        "adapter": f"{adapter.__module__}:{adapter.__qualname__}",
        "suite": SUITE,
        "memlab": version,
        "passed": passed,
        "code": digest_of(adapter),
    }
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def fault_of_record(adapter: type) -> str:
    """Return the reason why the record of an adapter is not valid; empty if it is."""
    try:
        path = record_path(adapter)
        record: Any = json.loads(path.read_text())
        code = digest_of(adapter)
    except FileNotFoundError:
        return f"there is no {_module_file(adapter).stem}{SUFFIX} beside its module"
    except (OSError, ValueError, TypeError) as error:
        return f"its record cannot be read ({error})"
    if not isinstance(record, dict) or record.get("code") != code:
        return f"{path.name} was made for another version of the code"
    if record.get("adapter") != f"{adapter.__module__}:{adapter.__qualname__}":
        return f"{path.name} was made for another class"
    if record.get("suite") != SUITE:
        return f"{path.name} is of suite {record.get('suite')}, and this memlab has suite {SUITE}"
    return ""


def _module_file(adapter: type) -> Path:
    """Return the path of the module that defines an adapter."""
    return Path(inspect.getfile(adapter))
