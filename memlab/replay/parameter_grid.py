"""The parameter grid of a comparison: sizes and settings of policies named on a command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from memlab.policies import Policy
from memlab.policies.named import PolicyEntry, policy_in
from memlab.policies.typed import REQUIRED, Setting
from memlab.sizing.in_force import policy_in_force
from memlab.sources.base import Source
from memlab.sources.opening import settings_of

SIZES: Final[Mapping[str, Sequence[str]]] = {
    "count": ("50", "100", "200", "500", "1000"),
    "age": ("7d", "30d", "90d", "180d", "365d"),
    "tokens": ("2000", "5000", "10000", "25000", "50000"),
}
"""Sizes to try if none was given, by the unit of the size."""


def with_policy_in_settings(policies: list[Policy], source: Source) -> list[Policy]:
    """Return the policies, followed by the one in a store's settings, even if it has expired."""
    policy_in_settings = _policy_in_settings(source)
    if policy_in_settings is None or policy_in_settings in policies:
        return policies
    return [*policies, policy_in_settings]


def _policy_in_settings(source: Source) -> Policy | None:
    """Return the policy in a store's settings, even if it has expired; None for none."""
    settings = settings_of(source)
    if settings.is_auto:
        # Its size is recommended now, so it cannot have expired.
        return policy_in_force(source).policy
    return policy_in(settings)


def variants(
    policies: Iterable[PolicyEntry],
    sizes: Mapping[str, Sequence[Any]],
    settings: Mapping[str, list[str]],
    *,
    both: bool,
) -> Iterator[tuple[PolicyEntry, dict[str, str]]]:
    """Yield each policy with each combination of settings to try, as texts.

    Parameters
    ----------
    policies : iterable of PolicyEntry
        The policies.
    sizes : mapping of str to sequence
        Sizes to try by unit; `SIZES` for a unit that is missing.
    settings : mapping of str to list of str
        Settings that were given, each with one or more values.
    both : bool
        Whether to vary both sizes of a policy that limits memories and tokens.
    """
    for policy in policies:
        own_settings = {
            name: values for name, values in settings.items() if name in policy.settings
        }
        given_sizes = {
            name for name in own_settings if policy.settings[name].size_unit in {"count", "tokens"}
        }
        varied_sizes = _varied_sizes(policy, both=both and not given_sizes)
        if not varied_sizes:
            varied_sizes = [None]  # a policy without sizes has one variant
        for size in varied_sizes:
            values_of = dict(own_settings)
            if size is not None and _has_values_to_try(size, given_sizes):
                tried_sizes = sizes.get(size.size_unit) or SIZES[size.size_unit]
                values_of.setdefault(size.name, [str(value) for value in tried_sizes])
            for combination in product(*values_of.values()):
                yield policy, dict(zip(values_of, combination, strict=True))


def _has_values_to_try(size: Setting, given_sizes: set[str]) -> bool:
    """Return whether a varied size gets values, instead of staying at its default.

    A number of memories or of tokens stays at its default if only the other one was given.
    """
    is_age = size.size_unit == "age"
    is_given = size.name in given_sizes
    return is_age or is_given or not given_sizes


def _varied_sizes(policy: PolicyEntry, *, both: bool) -> Sequence[Setting | None]:
    """Return the size settings of a policy that are varied.

    Only the first one is varied; with `both`, all others that are not an age are varied too. A
    required size comes before an optional one, and an age comes last.
    """
    sizes = [setting for setting in policy.settings.values() if setting.size_unit]
    sizes.sort(key=lambda setting: (setting.default is not REQUIRED, setting.size_unit == "age"))
    varied: list[Setting | None] = [*sizes[:1]]
    if both:
        varied += [setting for setting in sizes[1:] if setting.size_unit != "age"]
    return varied
