"""Policies of installed packages, by the entry points of the group ``memlab.policies``.

The entry points are read only when a name is not one of memlab's own.
"""

import inspect
from typing import Any

from memlab.errors import PolicyError
from memlab.plugins import POLICIES, load_offer, offer_named, offers, package_of
from memlab.policies.base import Policy


def is_policy_class(value: Any, module: str | None = None) -> bool:
    """Return whether a value is a concrete policy class, defined in `module` if one is given."""
    if not isinstance(value, type) or not issubclass(value, Policy):
        return False
    if "__dataclass_params__" not in vars(value) or inspect.isabstract(value):
        return False
    return module is None or value.__module__ == module


def plugin_names() -> dict[str, str]:
    """Return the names of the policies that installed packages offer, each with its package."""
    return {point.name: package_of(point) for point in offers(POLICIES)}


def plugin_policy(name: str) -> type[Policy] | None:
    """Import and return the policy class that an installed package offers under a name.

    Return None if no package offers one.

    Raises
    ------
    PolicyError
        If the class cannot be imported or is not a policy, or if two packages offer the name.
    """
    point = offer_named(POLICIES, name, "policy", PolicyError)
    if point is None:
        return None
    value = load_offer(point, "policy", PolicyError)
    if not is_policy_class(value):
        raise PolicyError(
            f"{point.value}, which the package {package_of(point)} offers as the policy {name!r}, "
            "is not a policy: a policy is a class with memlab.Policy as its base, "
            "@dataclass(frozen=True) above it and an evict"
        )
    kind: type[Policy] = value
    return kind


def plugin_name_of(address: str) -> str:
    """Return the name under which a package offers a class; empty if none does.

    The class is given as ``package.module:Class``.
    """
    for point in offers(POLICIES):
        if point.value == address:
            return point.name
    return ""
