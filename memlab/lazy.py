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
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package.

    The stub beside the file lists the module of each public name (Scientific Python's SPEC 1).

    Parameters
    ----------
    package : str
        The name of the package.
    file : str
        The path of its ``__init__.py``.

    Examples
    --------
    >>> import memlab.frame
    >>> get, names, public = lazy_names("memlab.frame", memlab.frame.__file__)
    >>> get("load").__module__, names() == public, public
    ('memlab.frame.loading', True, ['frame_of', 'load'])
    """
    modules = _modules_in_stub(Path(file).with_suffix(".pyi"))
    public_names = sorted(modules)

    def get_attribute(name: str) -> Any:
        if name in modules:
            value = getattr(import_module(modules[name]), name)
            # Python calls __getattr__ only for a name that the package does not have yet.
            setattr(sys.modules[package], name, value)
            return value
        is_module = not name.startswith("_") and find_spec(f"{package}.{name}") is not None
        if is_module:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get_attribute, lambda: list(public_names), public_names


def _modules_in_stub(stub: Path) -> dict[str, str]:
    """Return the module of each name that a stub imports."""
    modules = {}
    for statement in ast.parse(stub.read_bytes()).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                modules[alias.name] = str(statement.module)
    return modules


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
    requirements_of_extra = []
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None or match["extra"] != extra:
            continue
        marker = ""
        if match["marker"]:
            # Double quotes need no escape within the single quotes of a shell.
            marker = f"; {match['marker']}".replace("'", '"')
        requirements_of_extra.append(match["package"] + marker)
    if not requirements_of_extra:
        return f"pip install '.[{extra}]' in a checkout of memlab"
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements_of_extra])
