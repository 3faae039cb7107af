"""Lazy import of a package's public names (PEP 562), and import of optional dependencies."""

import ast
import re
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from memlab.errors import MissingExtraError

_REQUIREMENT: Final = re.compile(
    r"(?P<package>[^;]+?)\s*;\s*(?:\((?P<marker>.+)\) and )?extra == ['\"](?P<extra>[^'\"]+)['\"]"
)
"""A requirement of an extra in the metadata of a package.

For example ``numba>=0.60; (python_version < "3.14") and extra == "fast"``: the package with its
version, an optional marker in parentheses, and the name of the extra.
"""


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package with this `file`.

    The stub beside the file lists the module of each name (Scientific Python's SPEC 1).

    >>> import memlab.frame
    >>> get, names, public = lazy_names("memlab.frame", memlab.frame.__file__)
    >>> get("load").__module__, names() == public, public
    ('memlab.frame.loading', True, ['frame_of', 'load'])
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_bytes())
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    module_of = {alias.name: str(line.module) for line in imports for alias in line.names}

    def get(name: str) -> Any:
        if name in module_of:
            value = getattr(import_module(module_of[name]), name)
            setattr(sys.modules[package], name, value)  # so that this function is called once
            return value
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")  # a module of the package
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted(module_of), sorted(module_of)


def import_extra(module: str, *, extra: str) -> Any:
    """Return an optional `module`; raise MissingExtraError if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), extra) from error


def missing_extra(module: str, extra: str) -> MissingExtraError:
    """Return the error for a module of an extra that is not installed."""
    return MissingExtraError(
        f"this needs {module}, which is not installed; run: {install_command(extra)}"
    )


def install_command(extra: str) -> str:
    """Return the command that installs the requirements of an extra.

    It does not install memlab by name, because a package index may have another memlab.
    """
    from importlib.metadata import PackageNotFoundError, requires  # slow, needed for errors only

    try:
        requirements = requires("memlab") or []
    except PackageNotFoundError:
        requirements = []
    needed_requirements = []
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None or match["extra"] != extra:
            continue
        marker = ""
        if match["marker"]:
            marker = f"; {match['marker']}".replace("'", '"')
        needed_requirements.append(match["package"] + marker)
    if not needed_requirements:
        return f"pip install '.[{extra}]' in a checkout of memlab"
    return shlex.join([sys.executable, "-m", "pip", "install", *needed_requirements])
