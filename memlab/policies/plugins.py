"""Policies of installed packages, by the entry points of the group ``memlab.policies``.

The entry points are read only when a name is not one of memlab's own.
"""

import inspect
from typing import Any

from memlab.errors import PolicyError
from memlab.plugins import POLICIES, load_offer, offer_named, offers, package_of
from memlab.policies.base import Policy


def is_policy_class(value: Any, module: str | None = None) -> bool:
    """Return whether a value is a policy class that can be used, and is defined in `module`.

    Without `module`, it may be defined anywhere.
    """
    if not isinstance(value, type) or not issubclass(value, Policy):
        return False
    is_dataclass = "__dataclass_params__" in vars(value)  # not only its base
    if not is_dataclass or inspect.isabstract(value):
        return False
    return module is None or value.__module__ == module


def plugin_names() -> dict[str, str]:
    """Return the names of the policies that installed packages offer, each with its package."""
    return {entry_point.name: package_of(entry_point) for entry_point in offers(POLICIES)}


def plugin_policy(name: str) -> type[Policy] | None:
    """Import and return the policy class that an installed package offers under a name.

    Return None if no package offers one.

    Raises
    ------
    PolicyError
        If the class cannot be imported or is not a policy, or if two packages offer the name.
    """
    entry_point = offer_named(POLICIES, name, "policy", PolicyError)
    if entry_point is None:
        return None
    value = load_offer(entry_point, "policy", PolicyError)
    if not is_policy_class(value):
        raise PolicyError(
            f"{entry_point.value}, which the package {package_of(entry_point)} offers as the "
            f"policy {name!r}, is not a policy: a policy is a class with memlab.Policy as its "
            "base, @dataclass(frozen=True) above it and an evict"
        )
    kind: type[Policy] = value
    return kind


def plugin_name_of(address: str) -> str:
    """Return the name under which a package offers a class; empty if none does.

    The class is given as ``package.module:Class``.
    """
    for entry_point in offers(POLICIES):
        if entry_point.value == address:
            return entry_point.name
    return ""
