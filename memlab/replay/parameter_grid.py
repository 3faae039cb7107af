"""The parameter grid of a comparison: sizes and settings of policies named on a command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from memlab.policies import Policy
from memlab.policies.named import Named, policy_in
from memlab.policies.typed import REQUIRED, Setting
from memlab.sizing.in_force import policy_in_force
from memlab.sources.base import Source
from memlab.sources.opening import settings_of

SIZES: Final[Mapping[str, Sequence[str]]] = {
    "count": ("50", "100", "200", "500", "1000"),
    "age": ("7d", "30d", "90d", "180d", "365d"),
    "tokens": ("2000", "5000", "10000", "25000", "50000"),
}
"""Sizes that are tried of a policy without one, by the unit of its size."""


def with_remembered(policies: list[Policy], source: Source) -> list[Policy]:
    """Return policies and the one in a store's settings, even if that has expired."""
    settings = settings_of(source)
    remembered = policy_in_force(source).policy if settings.is_auto else policy_in(settings)
    if remembered is None or remembered in policies:
        return policies
    return [*policies, remembered]


def variants(
    tried: Iterable[Named],
    sizes: Mapping[str, Sequence[Any]],
    texts: Mapping[str, list[str]],
    *,
    both: bool,
) -> Iterator[tuple[Named, dict[str, str]]]:
    """Yield each policy with the settings to try, as texts.

    Parameters
    ----------
    tried : iterable of Named
        The policies.
    sizes : mapping of str to sequence
        Sizes to try by unit; `SIZES` for the others.
    texts : mapping of str to list of str
        Settings that were given, each with one or more values.
    both : bool
        Whether to vary both sizes of a policy that has a number and a number of tokens.
    """
    for named in tried:
        values_given = {name: values for name, values in texts.items() if name in named.settings}
        given_sizes = {
            name for name in values_given if named.settings[name].size not in {"", "age"}
        }
        varied = _varied_sizes(named, both=both and not given_sizes)
        if not varied:
            varied = [None]
        for size in varied:
            values_of = dict(values_given)
            if size is not None and _is_varied(size, given_sizes):
                tried_sizes = sizes.get(size.size) or SIZES[size.size]
                values_of.setdefault(size.name, [str(value) for value in tried_sizes])
            for values in product(*values_of.values()):
                yield named, dict(zip(values_of, values, strict=True))


def _is_varied(size: Setting, given_sizes: set[str]) -> bool:
    """Return whether a size is tried at several values: not if only another size was given."""
    return not given_sizes or size.name in given_sizes or size.size == "age"


def _varied_sizes(named: Named, *, both: bool) -> Sequence[Setting | None]:
    """Return the size settings of a policy to vary: the first, and with `both` all but ages.

    A required size comes before an optional one, and an age last.
    """
    sizes = [setting for setting in named.settings.values() if setting.size]
    sizes.sort(key=lambda setting: (setting.default is not REQUIRED, setting.size == "age"))
    varied: list[Setting | None] = [*sizes[:1]]
    if both:
        varied += [setting for setting in sizes[1:] if setting.size != "age"]
    return varied
