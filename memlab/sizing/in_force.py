"""The policy in force for a store: that of its settings, with a stored or a new number."""

from typing import NamedTuple

from memlab.columns import LOAD_BEARING
from memlab.errors import MemlabError, PolicyError, SettingsError, StoreError
from memlab.evidence.past import fill_missing_rows, load_past, rows_in_reach
from memlab.evidence.store_history import StoreHistory
from memlab.policies import KeepAll, KeepRecent, Policy
from memlab.policies.named import policy_in, replaced_in
from memlab.settings import NUMBERS, REPLACED, Settings
from memlab.sizing.backtest import Verdict
from memlab.sizing.goal import SizingGoal, recommend
from memlab.sizing.number_kinds import BUDGET, CAP, NumberKind
from memlab.sources.base import Source
from memlab.sources.opening import settings_of
from memlab.text import command


class EffectivePolicy(NamedTuple):
    """The policy in force, and a note on its number.

    Attributes
    ----------
    policy : Policy or None
        The policy; None if the settings have none, or if its number has expired.
    note : str
        A sentence on when the number was found and how long it is valid, or the error message. It
        is empty for a number that a person set.
    expired : NumberKind or None
        The kind of the policy's number if it has expired.
    """

    policy: Policy | None
    note: str = ""
    expired: NumberKind | None = None

    def cap_or_saved(self, settings: Settings) -> int | None:
        """Return the cap of a policy by recency; None for another policy.

        Without a policy, such as one whose number has expired, it is the cap of the settings.
        """
        if self.policy is None:
            return settings.keep_recent
        return self.policy.keep if isinstance(self.policy, KeepRecent) else None


def effective_policy(source: Source) -> EffectivePolicy:
    """Return the policy in force for display; in case of an error, its message is the note."""
    try:
        return _policy_of_settings(source)
    except MemlabError as error:
        return EffectivePolicy(None, str(error))


def policy_in_force(source: Source) -> EffectivePolicy:
    """Return the policy in force; its `policy` is None if the settings have none.

    Raises
    ------
    MemlabError
        If the policy's number has expired, or if no number can be recommended.
    """
    effective = _policy_of_settings(source)
    if effective.expired is not None:
        raise SettingsError(effective.note)
    return effective


def _policy_of_settings(source: Source) -> EffectivePolicy:
    """Return the policy in force. If its number has expired, the note is the error message."""
    settings = settings_of(source)
    if settings.is_auto:
        return _recommended_now(source)
    policy = policy_in(settings)
    sized = settings.sized
    replaced = replaced_in(settings)
    if replaced:
        note = f"memlab.toml names {replaced}, which {REPLACED[replaced]} has replaced"
        return EffectivePolicy(policy, note)
    if policy is None or sized is None:
        return EffectivePolicy(policy)
    past = rows_in_reach(fill_missing_rows(load_past(source)))
    written = int((~past[LOAD_BEARING]).sum())
    line = _setting_line(settings)
    origin = f"found at {sized.memories:,} episodes on {sized.at:%Y-%m-%d}"
    if written < sized.until:
        validity = f"valid until {sized.until:,} episodes are written; {written:,} were so far"
        return EffectivePolicy(policy, f"{line} was {origin}, and is {validity}")
    error = settings.error(
        "policy",
        f"{line} was {origin} and has expired: it was valid until {sized.until:,} "
        f"episodes were written, and {written:,} were; "
        f"{_size_command(source, settings)} --save sizes it again, and "
        '"auto" in its place sizes it each time',
    )
    return EffectivePolicy(None, str(error), expired=_number_kind(settings))


def require_policy(source: Source) -> tuple[Policy, str]:
    """Return the policy in force and a note on its number; raise an error if none is set.

    Raises
    ------
    MemlabError
        If no policy is set, if its number has expired, or if no number can be recommended.
    """
    effective = policy_in_force(source)
    if effective.policy is None:
        if source.local_path is not None and not source.local_path.exists():
            raise StoreError(f"there is no store {source.name}; check the path")
        ignored_reason = settings_of(source).ignored_reason
        reason = f" ({ignored_reason})" if ignored_reason else ""
        raise PolicyError(
            f"no policy is set for {source.name}{reason}: give a cap with --keep-recent N, or "
            f"let {command('size', source.name)} --save find one"
        )
    return effective.policy, effective.note


def _recommended_now(source: Source) -> EffectivePolicy:
    """Return the policy of the settings with the number that is recommended now."""
    history = StoreHistory.of(source, call="memlab.sizing").with_references()
    settings = history.settings
    is_budget = _number_kind(settings) is BUDGET
    goal = SizingGoal.of(settings)
    _, advice = recommend(history, history.references, goal, tokens=is_budget, now=history.now)
    if advice.verdict is Verdict.NOTHING_PRUNABLE:
        return EffectivePolicy(KeepAll(), f"{_setting_line(settings)}: {advice.verdict.meaning}")
    if advice.policy is None:
        raise settings.error(
            "policy",
            f"{_setting_line(settings)} finds no number, for {advice.verdict.meaning}; "
            f"{_size_command(source, settings)} shows why",
        )
    note = f"{_setting_line(settings)}: {advice.numbers}"
    return EffectivePolicy(policy_in(settings, advice.number), note)


def _policy_name(settings: Settings) -> str:
    """Return the name of the policy in the settings; empty if they have none."""
    if settings.policy is None:
        return ""
    name: str = settings.policy["name"]
    return name


def _setting_line(settings: Settings) -> str:
    """Return the policy's number as it is written in the settings, such as ``keep = 200``."""
    name = NUMBERS.get(_policy_name(settings), "")
    policy = settings.policy or {}
    number = policy.get(name)
    if isinstance(number, str):
        return f'{name} = "{number}"'
    return f"{name} = {number:,}"


def _size_command(source: Source, settings: Settings) -> str:
    """Return the command that recommends a number of the policy's kind."""
    return command("size", source.name, *_number_kind(settings).size_options)


def _number_kind(settings: Settings) -> NumberKind:
    """Return the kind of the number of the policy in the settings."""
    return BUDGET if _policy_name(settings) == BUDGET.policy else CAP
