"""Which policies are compared, and at which sizes, where nobody says."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from memlab.policies import Policy, policy_named
from memlab.policies.named import Named, policy_in, policy_of
from memlab.policies.typed import REQUIRED, Setting
from memlab.sizing.in_force import policy_in_force
from memlab.sources.base import Source
from memlab.sources.opening import settings_of

SIZES: Final[Mapping[str, Sequence[str]]] = {
    "count": ("50", "100", "200", "500", "1000"),
    "age": ("7d", "30d", "90d", "180d", "365d"),
    "tokens": ("2000", "5000", "10000", "25000", "50000"),
}
"""Settings that are tried where none are named: those people ask about."""

TRIED: Final = ("recent", "ttl", "value", "learned")
RETIRING: Final = (*TRIED, "tokens")
"""The same where retiring is tried, by which room in tokens is what is saved."""


def policies_tried(source: Source | None, *, retire: bool) -> list[Policy]:
    """Return the policies that are compared where none is named, the remembered one too."""
    tried = map(policy_named, RETIRING if retire else TRIED)
    policies = [policy_of(named, given) for named, given in variants(tried, {}, {}, both=retire)]
    return policies if source is None else with_remembered(policies, source)


def with_remembered(policies: list[Policy], source: Source) -> list[Policy]:
    """Return policies and the one that is remembered of a store; its horizon is no matter here."""
    settings = settings_of(source)
    remembered = policy_in_force(source).policy if settings.is_auto else policy_in(settings)
    return [*policies, *([remembered] if remembered and remembered not in policies else [])]


def variants(
    tried: Iterable[Named],
    sizes: Mapping[str, Sequence[Any]],
    texts: Mapping[str, list[str]],
    *,
    both: bool,
) -> Iterator[tuple[Named, dict[str, str]]]:
    """Yield each policy at its sizes and settings; where `both`, by number and by tokens."""
    for named in tried:
        said = {key: values for key, values in texts.items() if key in named.settings}
        rooms = {key for key in said if named.settings[key].size not in {"", "age"}}
        for size in _varied(named, both=both and not rooms) or [None]:
            own = dict(said)
            if size is not None and (not rooms or size.name in rooms or size.size == "age"):
                tried_at = sizes.get(size.size) or SIZES[size.size]
                own.setdefault(size.name, [*map(str, tried_at)])
            for each in product(*own.values()):
                yield named, dict(zip(own, each, strict=True))


def _varied(named: Named, *, both: bool) -> list[Setting | None]:
    """Return the setting by which a policy is tried at several sizes: one it needs, if any."""
    sizes = [one for one in named.settings.values() if one.size]
    sizes.sort(key=lambda one: (one.default is not REQUIRED, one.size == "age"))
    return [*sizes[:1], *(one for one in sizes[1:] if both and one.size != "age")]
