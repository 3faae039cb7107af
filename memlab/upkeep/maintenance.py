"""What a store needs from time to time, by what is remembered: look, compact, drop, vacuum."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.arguments import expect
from memlab.clock import age_text, moment_or_now
from memlab.compaction.applier import apply
from memlab.compaction.copying import keep_copies
from memlab.compaction.drops import drop_archived, what_drops
from memlab.compaction.planner import plan
from memlab.compaction.plans import RETIRES, RETURNS, Plan, Receipt
from memlab.compaction.reclaim import checked_for_vacuum, space, vacuum
from memlab.compaction.wire import sized, some_of
from memlab.errors import MemlabError, PlanError, SettingsError, StalePlanError, StoreError
from memlab.evidence.ingestion import harvest
from memlab.policies import Policy
from memlab.policies.named import policy_in, replaced_in
from memlab.policies.rules import LongRetired
from memlab.remembering import write_settings
from memlab.settings import REPLACED
from memlab.sizing.in_force import policy_in_force
from memlab.sources.base import Source
from memlab.sources.opening import SourceLike, is_named_by_scheme, open_source, settings_of
from memlab.text import DisplayMixin, TextPage, command, counted, in_bytes, without_passwords
from memlab.upkeep.health import Diagnosis, Status, doctor

PLANNED_AT_MOST: Final = 3
"""So many times is a plan made anew when the store has changed before it was applied."""


_SHORTEST: Final = timedelta(days=1)
"""What is kept for less is erased before anybody has looked: that is asked for twice."""
_DORMANT: Final = timedelta(days=3 * 365)
"""After so long without a write it is likelier that the clock is wrong."""


class StepOutcome(StrEnum):
    """How a step ended."""

    DONE = "done"
    WOULD = "would"
    """It is not done yet."""
    NOTHING = "nothing"
    """There was nothing to do."""
    OFF = "off"
    """Nothing is remembered that asks for it."""
    FAILED = "FAILED"


class Step(NamedTuple):
    """One thing that maintenance does, how it ended, and what there is to say of it."""

    name: str
    outcome: StepOutcome
    words: str


@dataclass(frozen=True, repr=False)
class Maintenance(DisplayMixin):
    """What maintenance of a store would do, or has done."""

    store: str
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
        """How many memories were deleted."""
        return sum(each.deleted for each in (self.receipt, self.deletion) if each)

    @property
    def undo(self) -> str | None:
        """The command that takes back what was done by the policy."""
        return self.receipt.undo if self.receipt and self.receipt.archive else None

    @property
    def has_work(self) -> bool:
        """Whether there is something left to do."""
        return any(step.outcome is StepOutcome.WOULD for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return all that is said of it as JSON values."""
        return {
            "store": self.store,
            "applied": self.applied,
            "failed": self.failed,
            "steps": [{"step": n, "outcome": str(end), "words": w} for n, end, w in self.steps],
            "deleted": self.deleted,
            "retired": self.receipt.retired if self.receipt else 0,
            "returned": self.receipt.returned if self.receipt else 0,
            "undo": self.undo,
            "diagnosis": self.diagnosis.to_dict(),
        }

    def next_steps(self) -> list[str]:
        """Say how what is left to do is done."""
        return ["nothing was changed; add --apply to do it"] if self.has_work else []

    def sheet(self) -> TextPage:
        """Return what is printed."""
        facts = [(f"{step.outcome:<7} {step.name}", step.words) for step in self.steps]
        if self.undo:
            facts.append(("        undo", self.undo))
        title = "maintained" if self.applied else "maintenance would do"
        return TextPage(f"{title}: {self.store}", facts)


def maintain(
    source: SourceLike,
    *,
    apply: bool = False,
    yes: bool = False,
    all_prunable: bool = False,
    now: datetime | None = None,
) -> Maintenance:
    """Look after a store by what ``memlab.toml`` remembers of it: say what to do, or do it.

    In this order: look at its health, and stop where something fails, or where the clock cannot be
    right; with ``keep_copies = true`` copy what is new or changed into its archive, so that
    :func:`memlab.lost` knows what somebody else deletes; harvest reads into its log; compact it by
    the remembered policy, and stop where its number was found for a store that has grown past what
    it speaks for (``"auto"`` in its place is found each time); drop from its archive what was kept
    for ``archive_for``; rewrite its file where a share ``vacuum_free`` of it is free. With
    ``retire = true`` what the policy does not keep is retired instead, what was needed since
    returns, and what has been retired for ``delete_retired_after`` is deleted. What is not
    remembered is not done. A run that would delete or retire more than ``max_per_run``, or all that
    is prunable, stops before. A step that fails ends it, and what was done before is in the result.

    Parameters
    ----------
    source : str, Path or Source
        The store.
    apply : bool
        Whether to do it. Without it the store is only read.
    yes : bool
        Whether an ``archive_for`` of less than a day is meant: what was deleted is then erased for
        good before anybody has looked.
    all_prunable : bool
        Whether it is meant that no prunable memory stays loaded, as for :func:`memlab.apply`.
    now : datetime, optional
        The moment; the current one by default.

    Raises
    ------
    SettingsError
        When nothing is remembered of the store, or what is cannot be used, as the settings of
        somebody else cannot. Nothing is changed.
    """
    for name, flag in (("apply", apply), ("yes", yes), ("all_prunable", all_prunable)):
        expect(flag, bool, call="memlab.maintain", name=name)
    moment = moment_or_now(now, call="memlab.maintain")
    work = _Work(open_source(source), moment, do_it=apply, yes=yes, all_prunable=all_prunable)
    return work.result()


class _Work:
    def __init__(
        self, source: Source, now: datetime, *, do_it: bool, yes: bool, all_prunable: bool
    ) -> None:
        self._source = source
        self._now = now
        self._do_it = do_it
        self._all_prunable = all_prunable
        self._settings = settings = settings_of(source)
        self._replaced = replaced_in(settings)
        """The remembered policy, where another has replaced it."""
        self._found: dict[str, Any] = {}
        kept_for = settings.archive_for
        self._erases_at_once = kept_for is not None and kept_for < _SHORTEST
        if settings.not_obeyed:
            words = f"{settings.not_obeyed}; nothing was done to {source.name}"
            raise SettingsError(f"{words}: move it away, or take it over with chown")
        if source.permissions_template is not None and not source.permissions_template.exists():
            raise StoreError(f"there is no store {source.name}; check the path")
        has_work = settings.policy is not None or kept_for is not None
        if not (has_work or settings.vacuum_free or settings.keep_copies or settings.harvest):
            raise SettingsError(
                f"no settings for {source.name}: save a cap with "
                f"{command('size', source.name, '--save')}, or write memlab.toml by hand"
            )
        if do_it and not yes and kept_for is not None and self._erases_at_once:
            raise settings.error(
                "archive_for",
                f"archive_for={age_text(kept_for)!r} erases what was deleted within a day, for "
                "good; nothing was done: keep it longer, or say --yes (yes=True) if that is meant",
            )
        if settings.delete_retired_after is not None and not (settings.retire and settings.policy):
            words = "delete_retired_after goes with a policy and retire = true; add them"
            raise settings.error("delete_retired_after", words)
        if settings.harvest is not None and not settings.log:
            words = 'harvest goes with a log, such as log = "reads.log"; add one'
            raise settings.error("harvest", words)
        policy_in(settings, number=0)  # what cannot be used is told before anything is done

    def result(self) -> Maintenance:
        """Go through the steps that are remembered until one fails."""
        settings = self._settings
        diagnosis = doctor(self._source)
        steps = [self._health(diagnosis)]
        for name, is_on, do in (
            ("copy", settings.keep_copies, self._copy),
            ("harvest", settings.harvest, self._harvest),
            ("compact", True, self._compact),
            ("delete", settings.delete_retired_after and not self._replaced, self._delete),
            ("drop", True, self._drop),
            ("vacuum", True, self._vacuum),
        ):
            if is_on and steps[-1].outcome is not StepOutcome.FAILED:
                try:
                    steps.append(Step(name, *do()))
                except MemlabError as error:
                    steps.append(Step(name, StepOutcome.FAILED, str(error)))
        self._found.pop("last", None)
        return Maintenance(self._source.name, self._do_it, tuple(steps), diagnosis, **self._found)

    def _health(self, diagnosis: Diagnosis) -> Step:
        """Say how the store is: where that fails, nothing may be done to it."""
        if doubt := self._clock_doubt():
            return Step("clock", StepOutcome.FAILED, doubt)
        worst = [check for check in diagnosis.checks if check.status is diagnosis.status]
        once = {check.summary: check.name for check in reversed(worst)}
        said = "; ".join(f"{name}: {words}" for words, name in reversed(once.items()))
        if diagnosis.status is Status.FAIL:
            words = f"{said}; nothing was changed: memlab doctor says what to do"
            return Step("doctor", StepOutcome.FAILED, words)
        words = "all is well" if diagnosis.status is Status.OK else f"warns of {said}"
        return Step("doctor", StepOutcome.DONE, words)

    def _clock_doubt(self) -> str:
        """Say why a clock cannot be right that age is reckoned by; nothing where it can."""
        now = self._now
        near = (self._source.permissions_template, self._source.archive_path)
        files = [path for path in near if path is not None and path.exists()]
        written = max((path.stat().st_mtime for path in files), default=None)
        if written is None or now.timestamp() - written < _DORMANT.total_seconds():
            return ""
        last = datetime.fromtimestamp(written, now.tzinfo)
        return (
            f"the clock says {now:%Y-%m-%d} and nothing was written since {last:%Y-%m-%d}; nothing "
            "was changed: set the clock, or take a store that is used no more out of the schedule"
        )

    def _compact(self) -> tuple[StepOutcome, str]:
        self._check_past()
        policy, how = policy_in_force(self._source)
        if policy is None:
            return StepOutcome.OFF, "no policy is remembered"
        if self._replaced:
            return self._first_night(policy, how)
        retires = self._settings.retire
        outcome, made, words = self._carried_out(policy, "plan", "receipt", retire=retires)
        if outcome is StepOutcome.NOTHING:
            all_stay = "under the remembered policy every memory stays"
            words = "nothing to retire and nothing to return" if retires else all_stay
        elif made.moves:
            both = [sized(made.labelled(label)) for label in (RETIRES, RETURNS)]
            is_done = outcome is StepOutcome.DONE
            words = ("retired {}, returned {}" if is_done else "retire {}, return {}").format(*both)
        elif outcome is StepOutcome.WOULD:
            words = f"delete {words}"
        return outcome, f"{words}; {how}" if self._settings.is_auto else words

    def _check_past(self) -> None:
        """Stop where a number goes by how much was written and nobody could say how much was."""
        goes_by_past = self._settings.is_auto or self._settings.sized is not None
        history = self._source.external_history
        if goes_by_past and not history.is_read():
            raise StoreError(
                f"{history.note()}; nothing was changed, for the number in force goes by "
                "all that was ever written"
            )

    def _first_night(self, policy: Policy, how: str) -> tuple[StepOutcome, str]:
        """Change no memory under a policy that replaced the remembered one; say what it would do.

        With ``--apply`` the settings name it from then on, so that the next night does it.
        """
        made = plan(self._source, policy, retire=self._settings.retire, now=self._now)
        self._found["plan"] = made
        groups = {"delete": made.memories, "retire": made.retires, "return": made.returns}
        parts = [
            f"{does} {some_of([memory.memory_id for memory in memories])}"
            for does, memories in groups.items()
            if memories
        ]
        would = ", ".join(parts) or "change nothing"
        by = REPLACED[self._replaced]
        words = f"{how}: this night changes no memory; by {by} it would {would}"
        if not self._do_it:
            return StepOutcome.WOULD, f"{words}; with --apply memlab.toml names {by} from then on"
        file = self._settings.file
        if file is None or self._settings.policy is None:
            return StepOutcome.NOTHING, words
        chosen = {**self._settings.policy, "name": by}
        write_settings(
            file.parent, self._settings.name, self._source.permissions_template, {"policy": chosen}
        )
        return StepOutcome.DONE, f"{words}; {file} names {by} now, so the next night does it"

    def _carried_out(
        self, policy: Policy, name: str, receipt: str, *, retire: bool = False
    ) -> tuple[StepOutcome, Plan, str]:
        """Plan, and apply that; planned anew where it is stale. The words are of a deletion."""
        now = self._now
        meant = self._all_prunable
        tries = PLANNED_AT_MOST
        while True:
            self._found[name] = made = plan(self._source, policy, retire=retire, now=now)
            self._check_brakes(made)
            if made.is_empty:
                return StepOutcome.NOTHING, made, "none"
            if not self._do_it:
                return StepOutcome.WOULD, made, f"{sized(made.deletes)}; they are archived first"
            try:
                done = apply(made, store=self._source, now=now, all_prunable=meant)
            except StalePlanError:
                tries -= 1
                if not tries:
                    raise
                continue
            self._found[receipt] = done
            return StepOutcome.DONE, made, f"deleted and archived {sized(made.deletes)}"

    def _check_brakes(self, made: Plan) -> None:
        """Stop before anything where too much would go, or all, and nobody said it is meant."""
        most = self._settings.max_per_run
        age = self._settings.delete_retired_after
        name = self._source.name
        if most is not None and age is not None and "last" not in self._found:
            self._found["last"] = plan(self._source, LongRetired(age), now=self._now)
        plans = [self._found[each] for each in ("plan", "last") if each in self._found]
        takes = sum(len(each.memories) + len(each.retires) for each in plans)
        if most is not None and takes > most:
            shows = command("compact", name)
            raise self._settings.error(
                "max_per_run",
                f"{counted(takes)} would go, more than max_per_run = {most:,}, so none does: "
                f"{shows} shows them, and does it once with --apply; or raise the number",
            )
        if made.removes_all_prunable and not (made.asks_for_none or self._all_prunable):
            raise PlanError(
                "it would leave no prunable memory loaded, so nothing was done: where that is "
                f"meant, {command('maintain', name, '--apply', '--all')}"
            )

    def _delete(self) -> tuple[StepOutcome, str]:
        """Delete what is retired since long; what was needed meanwhile has just returned."""
        age = self._settings.delete_retired_after or timedelta()
        outcome, _, words = self._carried_out(LongRetired(age), "last", "deletion")
        undo = f"; undo: {self._found['deletion'].undo}" if outcome is StepOutcome.DONE else ""
        return outcome, f"what was retired and not needed for {age_text(age)}: {words}{undo}"

    def _harvest(self) -> tuple[StepOutcome, str]:
        """Write down what was read since, before anything is decided by it."""
        named = str(self._settings.harvest)
        log, *_ = self._settings.log
        if "://" not in named and not is_named_by_scheme(named):
            named = str((self._settings.file or log).parent / Path(named).expanduser())
        if not self._do_it:
            return StepOutcome.WOULD, f"reads of {without_passwords(named)} into {log}"
        found = harvest(named, log)
        outcome = StepOutcome.DONE if found.new else StepOutcome.NOTHING
        return outcome, f"{counted(found.new, 'new reads')} of {found.source} into {log}"

    def _copy(self) -> tuple[StepOutcome, str]:
        """Copy first: what another step or somebody else takes later was there once."""
        if not self._do_it:
            return StepOutcome.WOULD, "what is new or changed into the archive"
        counts = keep_copies(self._source, now=self._now).counts
        words = f"{counted(counts.copied)}, new or changed, into the archive"
        return (StepOutcome.DONE if counts.copied else StepOutcome.NOTHING), words

    def _drop(self) -> tuple[StepOutcome, str]:
        age = self._settings.archive_for
        if age is None:
            return StepOutcome.OFF, "the archive keeps what was deleted for ever"
        if not self._source.archive.exists:
            return StepOutcome.NOTHING, "there is no archive"
        act = drop_archived if self._do_it else what_drops
        found = act(self._source, before=self._now - age)
        doubts = "".join(f"; passed over: {doubt}" for doubt in found.passed_over)
        kept = f"what the archive has kept longer than {age_text(age)}"
        if found.is_empty:
            return StepOutcome.NOTHING, f"{kept}: none{doubts}"
        words = f"{kept}: {counted(found.memories)}, {found.never_restored:,} never restored"
        words += f", {counted(found.copies, 'copies')}" if found.copies else ""
        if self._do_it:
            return StepOutcome.DONE, f"{words}{doubts}"
        asks = "; --apply asks for --yes" if self._erases_at_once else ""
        return StepOutcome.WOULD, f"{words}{doubts}{asks}"

    def _vacuum(self) -> tuple[StepOutcome, str]:
        share = self._settings.vacuum_free
        if share is None:
            return StepOutcome.OFF, "no share is remembered at which the file is rewritten"
        if not self._source.is_native_format:
            return StepOutcome.NOTHING, "there is no file of memlab's to rewrite"
        found = space(self._source.name)
        free = f"{in_bytes(found.free)} of {in_bytes(found.file)} are free"
        if not found.free or found.free < share * found.file:
            after = "" if self._do_it else " before compacting"
            return StepOutcome.NOTHING, f"{free}{after}, less than {share:.0%}"
        if not self._do_it:
            checked_for_vacuum(self._source.name)
            return StepOutcome.WOULD, f"rewrite the file: {free}"
        freed = vacuum(self._source.name).freed
        return StepOutcome.DONE, f"{in_bytes(freed)} given back to the disk"
