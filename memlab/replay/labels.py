"""What policies are called beside each other: by their names and what sets them apart."""

from datetime import timedelta
from typing import Any

from memlab.policies import Policy
from memlab.policies.base import runner_for
from memlab.policies.typed import REQUIRED, Setting, settings_of


def family_of(policy: Policy) -> str:
    """Name a policy with those of its settings, its size aside, that are not the defaults.

    Examples
    --------
    >>> from memlab.policies import KeepRecent, ValueCap
    >>> family_of(KeepRecent(50)), family_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent', 'value, half_life')
    """
    if runner_for(policy) == "steps":
        return " > ".join(family_of(step) for step in policy.steps)
    size = _size_of(policy)
    return ", ".join([policy.name, *(n.name for n in _set_apart(policy) if n.name != size)])


def label_of(policy: Policy) -> str:
    """Name a policy with the settings that are not its defaults.

    Examples
    --------
    >>> from memlab.policies import KeepRecent, ValueCap
    >>> label_of(KeepRecent(50)), label_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent 50', 'value 200, half_life=1 d')
    """
    if runner_for(policy) == "steps":
        return " > ".join(label_of(step) for step in policy.steps)
    words = []
    for one in _set_apart(policy):
        value = _short(getattr(policy, one.name))
        bare = one.default is REQUIRED or one.name == _size_of(policy)
        words.append(value if bare else f"{one.name}={value}")
    return f"{policy.name} {', '.join(words)}".strip()


def _size_of(policy: Policy) -> str | None:
    """Return the setting that needs no name beside the policy's: its first size."""
    return next((one.name for one in settings_of(type(policy)).values() if one.size), None)


def _set_apart(policy: Policy) -> list[Setting]:
    """Return the settings of a policy that are not at their defaults."""
    known = settings_of(type(policy)).values()
    return [
        one for one in known if one.default is REQUIRED or getattr(policy, one.name) != one.default
    ]


def _short(value: Any) -> str:
    if isinstance(value, timedelta):
        days = value / timedelta(days=1)
        return f"{days:.3g} d" if days >= 1 else f"{24 * days:.3g} h"
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return getattr(value, "__name__", str(value))
