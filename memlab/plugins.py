"""Find and load the policies and systems that installed packages offer by entry points.

Entry points are read only if no policy or system of memlab itself has a name or recognizes a store,
because reading them takes tens of milliseconds.
"""

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from memlab.errors import MemlabError

POLICIES: Final = "memlab.policies"
"""The group of policies: a name, and a policy class as ``package.module:Class``."""
SYSTEMS: Final = "memlab.systems"
"""The group of systems: a scheme, and a ``System`` as ``package.module:NAME``."""


def offers(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, sorted by name and package.

    They are cached as long as ``sys.path`` stays the same.

    Parameters
    ----------
    group : str
        The group, such as :data:`POLICIES` or :data:`SYSTEMS`.

    Examples
    --------
    >>> [point.value for point in offers("console_scripts") if point.name == "memlab"]
    ['memlab.cli:main']
    """
    return _offers_on(group, tuple(sys.path))


@lru_cache(8)
def _offers_on(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group; the path is only a key of the cache."""
    points = entry_points(group=group)
    return tuple(sorted(points, key=lambda point: (point.name, package_of(point))))


def offer_named(
    group: str, name: str, noun: str, error: type[MemlabError] = MemlabError
) -> EntryPoint | None:
    """Return the entry point of a name; None if no package offers it.

    Parameters
    ----------
    group, name : str
        The group and the name.
    noun : str
        The noun for the message: "policy" or "system".
    error : type of MemlabError
        The class of the error.

    Raises
    ------
    MemlabError
        If two packages offer the name.

    Examples
    --------
    >>> offer_named(POLICIES, "a policy that no package has", "policy") is None
    True
    """
    points = [point for point in offers(group) if point.name == name]
    if not points:
        return None
    packages = sorted({package_of(point) for point in points})
    if len(packages) > 1:
        alternative = ""
        if group == POLICIES:
            alternative = ", or name the class as package.module:Class"
        raise error(
            f"the packages {' and '.join(packages)} both offer a {noun} {name!r}: uninstall "
            f"one{alternative}"
        )
    return points[0]


def load_offer(point: EntryPoint, noun: str, error: type[MemlabError] = MemlabError) -> Any:
    """Import and return the object of an entry point.

    Parameters
    ----------
    point : EntryPoint
        The entry point.
    noun : str
        The noun for the message: "policy" or "system".
    error : type of MemlabError
        The class of the error.

    Raises
    ------
    MemlabError
        If the object cannot be imported.
    """
    try:
        return point.load()
    except Exception as cause:
        raise error(
            f"the {noun} {point.name!r} of the package {package_of(point)} cannot be imported: "
            f"{type(cause).__name__}: {cause}; update or uninstall the package"
        ) from cause


def package_of(point: EntryPoint) -> str:
    """Return the name of the package that has an entry point.

    If the metadata of the package is missing, return the first part of the name of the module.
    """
    if point.dist is None:
        top_module, _, _ = point.module.partition(".")
        return top_module
    return point.dist.name
