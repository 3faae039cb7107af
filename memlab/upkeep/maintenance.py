"""Maintain a store by the settings in ``memlab.toml``: check, copy, harvest, compact, vacuum."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.arguments import expect
from memlab.clock import age_text, moment_or_now
from memlab.compaction.applier import apply
from memlab.compaction.copying import keep_copies
from memlab.compaction.drops import drop_archived, plan_erasure
from memlab.compaction.planner import plan
from memlab.compaction.plans import RETIRES, RETURNS, Plan, Receipt
from memlab.compaction.reclaim import checked_for_vacuum, space, vacuum
from memlab.compaction.wire import minute_in_words, size_in_words, some_of
from memlab.errors import MemlabError, PlanError, SettingsError, StalePlanError, StoreError
from memlab.evidence.ingestion import harvest
from memlab.policies import Policy
from memlab.policies.named import policy_in, replaced_in
from memlab.policies.rules import LongRetired
from memlab.settings import REPLACED
from memlab.settings_file import write_settings
from memlab.sizing.in_force import policy_in_force
from memlab.sources.base import Source
from memlab.sources.opening import SourceLike, is_named_by_scheme, open_source, settings_of
from memlab.text import (
    DisplayMixin,
    TextPage,
    command,
    counted,
    in_bytes,
    percent_as_given,
    without_passwords,
)
from memlab.upkeep.health import Diagnosis, Status, doctor

MAX_PLANS: Final = 3
"""Maximum number of plans that a step makes if the store changes before each is applied."""
_SHORTEST_ARCHIVE_FOR: Final = timedelta(days=1)
"""Value of ``archive_for`` below which a run must be confirmed by ``yes``."""
_LONGEST_IDLE: Final = timedelta(days=3 * 365)
"""If nothing was written to the store for a longer time, the clock is assumed to be wrong."""


class StepOutcome(StrEnum):
    """How a step ended."""

    DONE = "done"
    WOULD = "would"
    """A dry run: the step has work to do."""
    NOTHING = "nothing"
    """There was nothing to do."""
    OFF = "off"
    """No setting turns the step on."""
    FAILED = "FAILED"


class Step(NamedTuple):
    """A step of maintenance with its outcome and a message."""

    name: str
    outcome: StepOutcome
    message: str


@dataclass(frozen=True, repr=False)
class Maintenance(DisplayMixin):
    """The result of maintaining a store, or of a dry run.

    Attributes
    ----------
    store : str
        The store's name.
    run_at : datetime
        When the maintenance ran, with a time zone.
    applied : bool
        Whether the store was changed; False for a dry run.
    steps : tuple of Step
        The steps in the order in which they ran. Steps after a failed one are missing.
    diagnosis : Diagnosis
        The result of :func:`memlab.doctor`.
    plan, receipt : Plan, Receipt or None
        The compaction by the policy of the settings: its plan, and the receipt if it was applied.
    deletion : Receipt or None
        The receipt of the deletion of memories that were retired long ago.
    """

    store: str
    run_at: datetime
    applied: bool
    steps: tuple[Step, ...]
    diagnosis: Diagnosis
    plan: Plan | None = None
    receipt: Receipt | None = None
    deletion: Receipt | None = None

    @property
    def failed(self) -> bool:
        """Whether a step failed."""
        return any(step.outcome is StepOutcome.FAILED for step in self.steps)

    @property
    def deleted(self) -> int:
        """Number of deleted memories."""
        receipts = [receipt for receipt in (self.receipt, self.deletion) if receipt is not None]
        return sum(receipt.deleted for receipt in receipts)

    @property
    def undo(self) -> str | None:
        """The command that undoes the compaction; None if nothing was archived."""
        if self.receipt is None or not self.receipt.archive:
            return None
        return self.receipt.undo

    @property
    def has_work(self) -> bool:
        """Whether a dry run found work to do."""
        return any(step.outcome is StepOutcome.WOULD for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, by key."""
        steps = [
            {"step": step.name, "outcome": str(step.outcome), "message": step.message}
            for step in self.steps
        ]
        return {
            "store": self.store,
            "run_at": self.run_at.isoformat(),
            "applied": self.applied,
            "failed": self.failed,
            "steps": steps,
            "deleted": self.deleted,
            "retired": self.receipt.retired if self.receipt else 0,
            "returned": self.receipt.returned if self.receipt else 0,
            "undo": self.undo,
            "diagnosis": self.diagnosis.to_dict(),
        }

    def next_steps(self) -> list[str]:
        """Return the line with the command that applies a dry run; empty if there is no work."""
        if not self.has_work:
            return []
        return ["nothing was changed; add --apply to do it"]

    def sheet(self) -> TextPage:
        """Return the result as a page."""
        facts = [(f"{step.outcome:<7} {step.name}", step.message) for step in self.steps]
        if self.undo:
            facts.append(("        undo", self.undo))
        if self.failed:
            outcome = f"maintenance FAILED at {self.steps[-1].name}"  # a failed step is the last
        elif self.applied:
            outcome = "maintained"
        else:
            outcome = "maintenance would do"
        return TextPage(f"{minute_in_words(self.run_at)} {outcome}: {self.store}", facts)


def maintain(
    source: SourceLike,
    *,
    apply: bool = False,
    yes: bool = False,
    all_prunable: bool = False,
    now: datetime | None = None,
) -> Maintenance:
    """Maintain a store by its settings in ``memlab.toml``, or show what this would do.

    The steps run in this order. A step runs only if a setting turns it on. A step that fails ends
    the run; the result still has the steps before it.

    1. ``doctor``: check the store's health and the clock.
    2. ``copy`` (``keep_copies = true``): copy new and changed memories into the archive, so that
       :func:`memlab.lost` finds what other programs delete.
    3. ``harvest`` (``harvest``): add reads to the access log.
    4. ``compact`` (``policy``): apply the policy. The step fails if the policy's number has
       expired; the number ``"auto"`` is computed on each run. With ``retire = true`` memories are
       retired instead of deleted, and retired memories that were needed since then return.
    5. ``delete`` (``delete_retired_after``): delete memories that have been retired for so long.
    6. ``drop`` (``archive_for``): erase memories that were in the archive for so long.
    7. ``vacuum`` (``vacuum_free``): rewrite the file if this share of it is free.

    A run that would delete or retire more than ``max_per_run`` memories, or all prunable ones, does
    neither, and stops there.

    Parameters
    ----------
    source : str, Path or Source
        The store.
    apply : bool
        Whether to change the store. By default it is only read.
    yes : bool
        Whether to allow an ``archive_for`` of less than a day, which erases deleted memories before
        anybody can look at them.
    all_prunable : bool
        Whether to allow a plan that keeps no prunable memory loaded, as for :func:`memlab.apply`.
    now : datetime, optional
        The current time, with a time zone; by default the time of the clock.

    Returns
    -------
    Maintenance
        The steps with their outcomes.

    Raises
    ------
    SettingsError
        If the store has no settings, a setting is invalid, or the file belongs to another user.
        Nothing is changed.
    StoreError
        If there is no store.

    Examples
    --------
    >>> import memlab
    >>> from pathlib import Path
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> settings = 'policy = { name = "recent", keep = 50 }'
    >>> _ = Path("memlab.toml").write_text(settings)
    >>> [step.name for step in memlab.maintain(store).steps]
    ['doctor', 'compact', 'drop', 'vacuum']
    """
    for name, flag in (("apply", apply), ("yes", yes), ("all_prunable", all_prunable)):
        expect(flag, bool, call="memlab.maintain", name=name)
    moment = moment_or_now(now, call="memlab.maintain")
    run = _Run(open_source(source), moment, applies=apply, yes=yes, all_prunable=all_prunable)
    return run.result()


class _Run:
    """One run of maintenance. The constructor raises an error for unusable settings."""

    def __init__(
        self, source: Source, now: datetime, *, applies: bool, yes: bool, all_prunable: bool
    ) -> None:
        self._source = source
        self._now = now
        self._applies = applies
        self._all_prunable = all_prunable
        self._settings = settings_of(source)
        self._replaced = replaced_in(self._settings)
        """Name of the policy in the settings if a newer policy has replaced it; else empty."""
        self._plans: dict[str, Plan] = {}
        """The plan of each step that makes one, by the name of the step."""
        self._receipts: dict[str, Receipt] = {}
        """The receipt of each plan that was applied, by the name of the step."""
        archive_for = self._settings.archive_for
        self._erases_early = archive_for is not None and archive_for < _SHORTEST_ARCHIVE_FOR
        self._check_store()
        self._check_settings(yes=yes)

    def _check_store(self) -> None:
        """Raise an error if the settings belong to another user, or there is no store."""
        source = self._source
        settings = self._settings
        if settings.ignored_reason:
            message = f"{settings.ignored_reason}; nothing was done to {source.name}"
            raise SettingsError(f"{message}: move it away, or take it over with chown")
        if source.local_path is not None and not source.local_path.exists():
            raise StoreError(f"there is no store {source.name}; check the path")

    def _check_settings(self, *, yes: bool) -> None:
        """Raise SettingsError if no setting turns a step on, or if settings are in conflict."""
        settings = self._settings
        archive_for = settings.archive_for
        turns_a_step_on = (
            settings.policy is not None
            or archive_for is not None
            or settings.vacuum_free
            or settings.keep_copies
            or settings.harvest
        )
        if not turns_a_step_on:
            name = self._source.name
            raise SettingsError(
                f"no settings for {name} turn a step on: save a cap with "
                f"{command('size', name, '--save')}, or write a policy into memlab.toml"
            )
        if self._applies and not yes and archive_for is not None and self._erases_early:
            raise settings.error(
                "archive_for",
                f"archive_for={age_text(archive_for)!r} erases what was deleted within a day, for "
                "good; nothing was done: keep it longer, or allow it with --yes (yes=True)",
            )
        if settings.delete_retired_after is not None and not (settings.retire and settings.policy):
            message = "delete_retired_after needs a policy and retire = true; add them"
            raise settings.error("delete_retired_after", message)
        if settings.harvest is not None and not settings.log:
            message = 'harvest needs a log, such as log = "reads.jsonl"; add one'
            raise settings.error("harvest", message)
        policy_in(settings, number=0)  # raises an error for an invalid policy

    def result(self) -> Maintenance:
        """Run the steps that settings turn on, until one fails, and return the result."""
        settings = self._settings
        diagnosis = doctor(self._source)
        steps = [self._health(diagnosis)]
        deletes_retired = settings.delete_retired_after is not None and not self._replaced
        for name, is_on, run_step in (
            ("copy", settings.keep_copies, self._copy),
            ("harvest", settings.harvest, self._harvest),
            ("compact", True, self._compact),
            ("delete", deletes_retired, self._delete_retired),
            ("drop", True, self._drop),
            ("vacuum", True, self._vacuum),
        ):
            if not is_on or steps[-1].outcome is StepOutcome.FAILED:
                continue
            try:
                outcome, message = run_step()
            except MemlabError as error:
                outcome = StepOutcome.FAILED
                message = str(error)
            steps.append(Step(name, outcome, message))
        return Maintenance(
            store=self._source.name,
            run_at=self._now,
            applied=self._applies,
            steps=tuple(steps),
            diagnosis=diagnosis,
            plan=self._plans.get("compact"),
            receipt=self._receipts.get("compact"),
            deletion=self._receipts.get("delete"),
        )

    def _health(self, diagnosis: Diagnosis) -> Step:
        """Return the step of the health check, which fails if a check or the clock fails."""
        fault = self._clock_fault()
        if fault:
            return Step("clock", StepOutcome.FAILED, fault)
        worst = _worst_checks_in_words(diagnosis)
        if diagnosis.status is Status.FAIL:
            message = f"{worst}; nothing was changed: memlab doctor says what to do"
            return Step("doctor", StepOutcome.FAILED, message)
        message = f"warns of {worst}"
        if diagnosis.status is Status.OK:
            message = "all is well"
        return Step("doctor", StepOutcome.DONE, message)

    def _clock_fault(self) -> str:
        """Return a message if the clock is far ahead of the last write; empty if it is plausible.

        Ages are computed from the clock, so with a wrong clock too much would be deleted.
        """
        now = self._now
        paths = (self._source.local_path, self._source.archive_path)
        files = [path for path in paths if path is not None and path.exists()]
        last_written = max((path.stat().st_mtime for path in files), default=None)
        if last_written is None or now.timestamp() - last_written < _LONGEST_IDLE.total_seconds():
            return ""
        last_written_at = datetime.fromtimestamp(last_written, now.tzinfo)
        return (
            f"the clock says {now:%Y-%m-%d} and nothing was written since "
            f"{last_written_at:%Y-%m-%d}; nothing was changed: set the clock, or remove a store "
            "that is no longer used from the schedule"
        )

    def _compact(self) -> tuple[StepOutcome, str]:
        """Apply the policy of the settings."""
        self._check_history()
        effective = policy_in_force(self._source)
        policy = effective.policy
        if policy is None:
            return StepOutcome.OFF, "memlab.toml sets no policy"
        if self._replaced:
            return self._compare_replacement(policy, effective.note)
        retires = self._settings.retire
        outcome, plan_made = self._plan_and_apply("compact", policy, retire=retires)
        if outcome is StepOutcome.NOTHING and retires:
            message = "nothing to retire and nothing to return"
        elif outcome is StepOutcome.NOTHING:
            message = "the saved policy keeps every memory"
        elif plan_made.moves:
            message = _moves_in_words(outcome, plan_made)
        elif outcome is StepOutcome.WOULD:
            message = f"delete {_deletion_in_words(outcome, plan_made)}"
        else:
            message = _deletion_in_words(outcome, plan_made)
        if self._settings.is_auto:
            message = f"{message}; {effective.note}"
        return outcome, message

    def _check_history(self) -> None:
        """Raise StoreError if the policy's number needs a history that could not be read."""
        needs_history = self._settings.is_auto or self._settings.sized is not None
        history = self._source.external_history
        if needs_history and not history.was_read_in_time():
            raise StoreError(
                f"{history.note()}; nothing was changed, because the number in force "
                "depends on every memory that was ever written"
            )

    def _compare_replacement(self, policy: Policy, note: str) -> tuple[StepOutcome, str]:
        """Compare with the policy that replaced the one in the settings; change no memory.

        A run that is applied writes the new policy into the settings, for the next run.
        """
        plan_made = plan(self._source, policy, retire=self._settings.retire, now=self._now)
        self._plans["compact"] = plan_made
        groups = {
            "delete": plan_made.memories,
            "retire": plan_made.retires,
            "return": plan_made.returns,
        }
        changes_in_words = [
            f"{action} {some_of([memory.memory_id for memory in memories])}"
            for action, memories in groups.items()
            if memories
        ]
        changes = ", ".join(changes_in_words) or "change nothing"
        new_name = REPLACED[self._replaced]
        message = f"{note}: this night changes no memory; by {new_name} it would {changes}"
        if not self._applies:
            from_now_on = f"with --apply memlab.toml names {new_name} from then on"
            return StepOutcome.WOULD, f"{message}; {from_now_on}"
        file = self._settings.file
        if file is None or self._settings.policy is None:
            return StepOutcome.NOTHING, message
        setting = {**self._settings.policy, "name": new_name}
        write_settings(
            file.parent, self._settings.name, self._source.local_path, {"policy": setting}
        )
        return (
            StepOutcome.DONE,
            f"{message}; {file} names {new_name} now, so the next night does it",
        )

    def _plan_and_apply(
        self, step: str, policy: Policy, *, retire: bool = False
    ) -> tuple[StepOutcome, Plan]:
        """Make the plan of a step, apply it unless this is a dry run, and store its receipt.

        Return the outcome and the plan. Raise StalePlanError if the store changed before each of
        `MAX_PLANS` plans could be applied.
        """
        for attempt in range(1, MAX_PLANS + 1):
            plan_made = plan(self._source, policy, retire=retire, now=self._now)
            self._plans[step] = plan_made
            self._check_limits(plan_made)
            if plan_made.is_empty:
                return StepOutcome.NOTHING, plan_made
            if not self._applies:
                return StepOutcome.WOULD, plan_made
            try:
                self._receipts[step] = apply(
                    plan_made, store=self._source, now=self._now, all_prunable=self._all_prunable
                )
            except StalePlanError:
                if attempt == MAX_PLANS:
                    raise
            else:
                return StepOutcome.DONE, plan_made
        raise AssertionError("the last attempt returns or raises")

    def _check_limits(self, plan_made: Plan) -> None:
        """Raise an error if the run exceeds ``max_per_run``, or removes all prunable memories."""
        limit = self._settings.max_per_run
        age = self._settings.delete_retired_after
        name = self._source.name
        if limit is not None and age is not None and "delete" not in self._plans:
            # the deletion that follows counts too
            self._plans["delete"] = plan(self._source, LongRetired(age), now=self._now)
        plans = self._plans.values()
        removed = sum(len(planned.memories) + len(planned.retires) for planned in plans)
        if limit is not None and removed > limit:
            show_command = command("compact", name)
            raise self._settings.error(
                "max_per_run",
                f"{counted(removed)} would go, more than max_per_run = {limit:,}, so none does: "
                f"{show_command} shows them, and does it once with --apply; or raise the number",
            )
        is_intended = plan_made.policy_keeps_none or self._all_prunable
        if plan_made.removes_all_prunable and not is_intended:
            raise PlanError(
                "it would leave no prunable memory loaded, so nothing was done; to allow it: "
                f"{command('maintain', name, '--apply', '--all')}"
            )

    def _delete_retired(self) -> tuple[StepOutcome, str]:
        """Delete memories that were retired long ago.

        The step runs after `_compact`, which returns retired memories that were needed meanwhile.
        """
        age = self._settings.delete_retired_after or timedelta()
        outcome, plan_made = self._plan_and_apply("delete", LongRetired(age))
        deletion = _deletion_in_words(outcome, plan_made)
        message = f"what was retired and not needed for {age_text(age)}: {deletion}"
        if outcome is StepOutcome.DONE:
            message = f"{message}; undo: {self._receipts['delete'].undo}"
        return outcome, message

    def _harvest(self) -> tuple[StepOutcome, str]:
        """Add reads to the access log. The step runs before the policy uses these reads."""
        location = str(self._settings.harvest)
        log = self._settings.log[0]  # reads are added to the first log
        is_path = "://" not in location and not is_named_by_scheme(location)
        if is_path:
            location = str((self._settings.file or log).parent / Path(location).expanduser())
        if not self._applies:
            return StepOutcome.WOULD, f"reads of {without_passwords(location)} into {log}"
        harvested = harvest(location, log)
        outcome = StepOutcome.DONE if harvested.new else StepOutcome.NOTHING
        return outcome, f"{counted(harvested.new, 'new reads')} of {harvested.source} into {log}"

    def _copy(self) -> tuple[StepOutcome, str]:
        """Copy new and changed memories into the archive, before another step deletes any."""
        if not self._applies:
            return StepOutcome.WOULD, "what is new or changed into the archive"
        copied = keep_copies(self._source, now=self._now).counts.copied
        outcome = StepOutcome.DONE if copied else StepOutcome.NOTHING
        return outcome, f"{counted(copied)}, new or changed, into the archive"

    def _drop(self) -> tuple[StepOutcome, str]:
        """Erase memories that were in the archive for longer than ``archive_for``."""
        age = self._settings.archive_for
        if age is None:
            return StepOutcome.OFF, "archive_for is not set: the archive keeps everything"
        if not self._source.archive.exists:
            return StepOutcome.NOTHING, "there is no archive"
        before = self._now - age
        if self._applies:
            erasure = drop_archived(self._source, before=before)
        else:
            erasure = plan_erasure(self._source, before=before)
        skipped = "".join(f"; passed over: {reason}" for reason in erasure.passed_over)
        message = f"what the archive has kept longer than {age_text(age)}"
        if erasure.is_empty:
            return StepOutcome.NOTHING, f"{message}: none{skipped}"
        message += f": {counted(erasure.memories)}, {erasure.never_restored:,} never restored"
        if erasure.copies:
            message += f", {counted(erasure.copies, 'copies')}"
        message += skipped
        if self._applies:
            return StepOutcome.DONE, message
        if self._erases_early:
            message += "; --apply asks for --yes"
        return StepOutcome.WOULD, message

    def _vacuum(self) -> tuple[StepOutcome, str]:
        """Rewrite the store's file if the share ``vacuum_free`` of it is free."""
        share = self._settings.vacuum_free
        if share is None:
            return StepOutcome.OFF, "vacuum_free is not set: the file is not rewritten"
        if not self._source.is_native_format:
            return StepOutcome.NOTHING, "there is no file that memlab may rewrite"
        sizes = space(self._source.name)
        free = f"{in_bytes(sizes.free)} of {in_bytes(sizes.file)} are free"
        if not sizes.free or sizes.free < share * sizes.file:
            if not self._applies:
                free = f"{free} before compacting"
            return StepOutcome.NOTHING, f"{free}, less than {percent_as_given(share)}"
        if not self._applies:
            checked_for_vacuum(self._source.name)
            return StepOutcome.WOULD, f"rewrite the file: {free}"
        freed = vacuum(self._source.name).freed
        return StepOutcome.DONE, f"{in_bytes(freed)} given back to the disk"


def _worst_checks_in_words(diagnosis: Diagnosis) -> str:
    """Return the checks with the worst status, each as its name and its summary.

    If several checks have the same summary, only one is listed: with the name of the first, at the
    place of the last.
    """
    name_of: dict[str, str] = {}
    for check in diagnosis.checks:
        if check.status is diagnosis.status:
            first_name = name_of.pop(check.summary, check.name)
            name_of[check.summary] = first_name
    return "; ".join(f"{name}: {summary}" for summary, name in name_of.items())


def _moves_in_words(outcome: StepOutcome, plan_made: Plan) -> str:
    """Return the message of a step that retires and returns memories by a plan."""
    retired = size_in_words(plan_made.labelled(RETIRES))
    returned = size_in_words(plan_made.labelled(RETURNS))
    if outcome is StepOutcome.DONE:
        return f"retired {retired}, returned {returned}"
    return f"retire {retired}, return {returned}"


def _deletion_in_words(outcome: StepOutcome, plan_made: Plan) -> str:
    """Return the message of a step that deletes memories by a plan."""
    if outcome is StepOutcome.NOTHING:
        return "none"
    if outcome is StepOutcome.WOULD:
        return f"{size_in_words(plan_made.deletes)}; they are archived first"
    return f"deleted and archived {size_in_words(plan_made.deletes)}"
