"""Policies of installed packages, by the entry points of the group ``memlab.policies``.

The entry points are read only when a name is not one of memlab's own, because reading them takes
tens of milliseconds.
"""

import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from memlab.errors import PolicyError
from memlab.policies.base import Policy

GROUP: Final = "memlab.policies"
"""The group of entry points: a name, and a policy class as ``package.module:Class``."""


def is_policy_class(value: Any, module: str | None = None) -> bool:
    """Return whether a value is a concrete policy class, defined in `module` if one is given."""
    if not isinstance(value, type) or not issubclass(value, Policy):
        return False
    if "__dataclass_params__" not in vars(value) or inspect.isabstract(value):
        return False
    return module is None or value.__module__ == module


def plugin_names() -> dict[str, str]:
    """Return the package of each policy that an installed package offers, by name."""
    return {point.name: package_of(point) for point in entry_points(group=GROUP)}


def plugin_policy(name: str) -> type[Policy] | None:
    """Import and return the policy class that an installed package offers under a name.

    Return None if no package offers one.

    Raises
    ------
    PolicyError
        If the class cannot be imported or is no policy, or if two packages offer the name.
    """
    points = list(entry_points(group=GROUP, name=name))
    if not points:
        return None
    packages = sorted({package_of(point) for point in points})
    if len(packages) > 1:
        raise PolicyError(
            f"the packages {' and '.join(packages)} both offer a policy {name!r}: uninstall one, "
            "or name the class as package.module:Class"
        )
    (package,) = packages
    try:
        value = points[0].load()
    except Exception as error:
        raise PolicyError(
            f"the policy {name!r} of the package {package} cannot be imported: "
            f"{type(error).__name__}: {error}; update or uninstall the package"
        ) from error
    if not is_policy_class(value):
        raise PolicyError(
            f"{points[0].value}, which the package {package} offers as the policy {name!r}, is no "
            "policy: a policy is a class with memlab.Policy as its base, @dataclass(frozen=True) "
            "above it and an evict"
        )
    kind: type[Policy] = value
    return kind


def plugin_name_of(address: str) -> str:
    """Return the name under which a package offers a class; empty if none does.

    The class is given as ``package.module:Class``.
    """
    for point in entry_points(group=GROUP):
        if point.value == address:
            return point.name
    return ""


def package_of(point: EntryPoint) -> str:
    """Return the name of the package that has an entry point."""
    return point.dist.name if point.dist is not None else point.module.partition(".")[0]
