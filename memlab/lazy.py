"""Imports that wait: a package's public names (PEP 562), and dependencies that are optional."""

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

_STATED: Final = re.compile(
    r"(?P<what>[^;]+?)\s*;\s*(?:\((?P<where>.+)\) and )?extra == ['\"](?P<extra>[^'\"]+)['\"]"
)
"""A requirement of an extra, as the metadata of a package states it."""


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose `file` this is.

    The stub beside it says once from which module each name comes (Scientific Python's SPEC 1).

    >>> import memlab.frame
    >>> get, names, public = lazy_names("memlab.frame", memlab.frame.__file__)
    >>> get("load").__module__, names() == public, public
    ('memlab.frame.loading', True, ['frame_of', 'load'])
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_bytes())
    lines = (each for each in stub.body if isinstance(each, ast.ImportFrom))
    home = {alias.name: str(line.module) for line in lines for alias in line.names}

    def get(name: str) -> Any:
        if name in home:
            value = getattr(import_module(home[name]), name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home), sorted(home)


def import_extra(module: str, *, extra: str) -> Any:
    """Return an optional `module`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), extra) from error


def missing_extra(module: str, extra: str) -> MissingExtraError:
    """Return the error to raise for a module that an extra brings and that is not installed."""
    return MissingExtraError(
        f"this needs {module}, which is not installed; run: {install_command(extra)}"
    )


def install_command(extra: str) -> str:
    """Return the command that adds an extra; never by name: an index may have another memlab."""
    from importlib.metadata import PackageNotFoundError, requires  # heavy, for a mistake alone

    try:
        stated = [_STATED.fullmatch(each) for each in requires("memlab") or ()]
    except PackageNotFoundError:
        stated = []
    needed = [
        each["what"] + (f"; {each['where']}".replace("'", '"') if each["where"] else "")
        for each in stated
        if each is not None and each["extra"] == extra
    ]
    if not needed:
        return f"pip install '.[{extra}]' in a checkout of memlab"
    return shlex.join([sys.executable, "-m", "pip", "install", *needed])
