"""Packages that import a name when it is first used (PEP 562): importing them costs nothing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of str to str
        Modules below it, and the names that come from each, separated by spaces. Its modules are
        found by their own names as well.

    Examples
    --------
    >>> get, names = lazy_names("memlab", {"items": "MemoryItem MemoryKind"})
    >>> get("MemoryKind").__module__, names()
    ('memlab.items', ['MemoryItem', 'MemoryKind'])
    """
    home = {
        name: f"{package}.{module}" for module, names in homes.items() for name in names.split()
    }

    def get(name: str) -> Any:
        if name in home:
            value = getattr(import_module(home[name]), name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home)
