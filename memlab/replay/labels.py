"""What policies are called beside each other: by their names and what sets them apart."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from memlab.policies import NAMED, Policy
from memlab.policies.base import runner_for
from memlab.policies.named import Named
from memlab.policies.typed import REQUIRED, Setting, settings_of

ORDERS: Final = ("odek", "memforge", "betterdb")
"""Names of several policies in a row."""


def family_of(policy: Policy) -> str:
    """Name a policy with those of its settings, its size aside, that are not the defaults.

    Examples
    --------
    >>> from memlab.policies import KeepRecent, ValueCap
    >>> family_of(KeepRecent(50)), family_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent', 'value, half_life')
    """
    if runner_for(policy) == "steps":
        if (known := _known_order(policy)) is not None:
            name, values = known
            size = _first_size(NAMED[name].settings)
            return ", ".join([name, *(one.name for one, _ in values if one.name != size)])
        return " > ".join(family_of(step) for step in policy.steps)
    size = _first_size(settings_of(type(policy)))
    return ", ".join([policy.name, *(n.name for n in _set_apart(policy) if n.name != size)])


def label_of(policy: Policy) -> str:
    """Name a policy with the settings that are not its defaults.

    Examples
    --------
    >>> from memlab.policies import KeepRecent, Pipeline, ValueCap
    >>> label_of(KeepRecent(50)), label_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent 50', 'value 200, half_life=1 d')
    >>> label_of(Pipeline.odek(keep=200))
    'odek 200'
    """
    if runner_for(policy) == "steps":
        if (known := _known_order(policy)) is not None:
            name, values = known
            return f"{name} {_in_words(values, _first_size(NAMED[name].settings))}".strip()
        return " > ".join(label_of(step) for step in policy.steps)
    size = _first_size(settings_of(type(policy)))
    values = [(one, getattr(policy, one.name)) for one in _set_apart(policy)]
    return f"{policy.name} {_in_words(values, size)}".strip()


def _first_size(settings: Mapping[str, Setting]) -> str | None:
    """Return the setting that needs no name beside the policy's: its first size, an age last."""
    sizes = sorted(
        (one for one in settings.values() if one.size), key=lambda one: one.size == "age"
    )
    return sizes[0].name if sizes else None


def _in_words(values: Iterable[tuple[Setting, Any]], size: str | None) -> str:
    """Return settings in a label: the size and what has no default alone, others by name."""
    return ", ".join(
        _short(value)
        if one.name == size or one.default is REQUIRED
        else f"{one.name}={_short(value)}"
        for one, value in values
    )


def _set_apart(policy: Policy) -> list[Setting]:
    """Return the settings of a policy that are not at their defaults."""
    known = settings_of(type(policy)).values()
    return [one for one in known if _is_set(one, getattr(policy, one.name))]


def _is_set(setting: Setting, value: Any) -> bool:
    """Whether a setting has to be said: it has no default, or is not at it."""
    return setting.default is REQUIRED or value != setting.default


def _known_order(policy: Policy) -> tuple[str, list[tuple[Setting, Any]]] | None:
    """Return the name by which policies in a row are asked for, and what is set; None for others.

    What was asked for as ``odek`` is called so wherever it is shown.
    """
    for named in (NAMED[name] for name in ORDERS):
        values = {
            name: getattr(step, name)
            for name in named.settings
            for step in reversed(policy.steps)
            if hasattr(step, name)
        }
        for more in ({}, {"tags": True}) if "tags" in named.settings else ({},):
            given = values | more
            if given.keys() >= _required(named) and _made(named, given) == policy:
                settings = [(named.settings[name], value) for name, value in given.items()]
                return named.name, [each for each in settings if _is_set(*each)]
    return None


def _made(named: Named, given: Mapping[str, Any]) -> Policy | None:
    """Return the policies in a row with these settings; None where they mean nothing to them."""
    try:
        return named.make(**given)
    except (TypeError, ValueError):
        return None


def _required(named: Named) -> set[str]:
    return {name for name, one in named.settings.items() if one.default is REQUIRED}


def _short(value: Any) -> str:
    if isinstance(value, timedelta):
        days = value / timedelta(days=1)
        return f"{days:.3g} d" if days >= 1 else f"{24 * days:.3g} h"
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return getattr(value, "__name__", str(value))
