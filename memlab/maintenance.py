"""What a store needs from time to time, by what is remembered of it: look, compact, drop, vacuum.

:func:`plan_maintenance` says what would be done and changes nothing; :func:`maintain` does it.
Neither prints, and what either returns pickles: a fleet does this to thousands of stores.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.applying import apply
from memlab.compaction.dropping import Drop, drop_archived, what_drops
from memlab.compaction.planning import plan
from memlab.compaction.plans import Plan
from memlab.compaction.receipts import Receipt
from memlab.compaction.reclaim import Vacuumed, checked_for_vacuum, in_bytes, space, vacuum
from memlab.compaction.words import counted
from memlab.diagnosis import Diagnosis, Status
from memlab.doctor import diagnose
from memlab.errors import MemlabError, SettingsError, StalePlanError, StoreError
from memlab.moments import age_text
from memlab.policies.remembered import policy_in
from memlab.settings import Settings
from memlab.sources.base import Source, archive_at
from memlab.sources.opening import SourceLike, open_source, settings_of
from memlab.store.archive_file import is_begun
from memlab.text import Sheet, Shown

PLANNED_AT_MOST: Final = 3
"""So many times is a plan made anew when the store has changed before it was applied."""


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
class Maintenance(Shown):
    """What maintenance of a store would do, or has done.

    Parameters
    ----------
    store : str
        The store's name.
    applied : bool
        Whether it was done; else nothing was changed.
    steps : tuple of Step
        ``doctor``, ``compact``, ``drop`` and ``vacuum``, as far as it came.
    diagnosis : Diagnosis
        The store's health before anything was done.
    plan : Plan, optional
        What compacting deletes; None where no policy is remembered.
    receipt : Receipt, optional
        What compacting did.
    drop : Drop, optional
        What is erased from the archive.
    vacuumed : Vacuumed, optional
        What rewriting the store gave back.
    """

    store: str
    applied: bool
    steps: tuple[Step, ...]
    diagnosis: Diagnosis
    plan: Plan | None = None
    receipt: Receipt | None = None
    drop: Drop | None = None
    vacuumed: Vacuumed | None = None

    @property
    def failed(self) -> bool:
        """Whether a step failed."""
        return any(step.outcome is StepOutcome.FAILED for step in self.steps)

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
            "steps": [
                {"step": step.name, "outcome": str(step.outcome), "words": step.words}
                for step in self.steps
            ],
            "deleted": self.receipt.deleted if self.receipt else 0,
            "undo": self.receipt.undo if self.receipt and self.receipt.archive else None,
            "diagnosis": self.diagnosis.to_dict(),
        }

    def to_json(self) -> str:
        """Return the same as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def sheet(self) -> Sheet:
        """Return what is printed."""
        facts = [(f"{step.outcome:<7} {step.name}", step.words) for step in self.steps]
        if self.receipt is not None and self.receipt.archive:
            facts.append(("        undo", self.receipt.undo))
        title = "maintained" if self.applied else "maintenance would do"
        return Sheet(f"{title}: {self.store}", facts)


def plan_maintenance(source: SourceLike, *, now: datetime | None = None) -> Maintenance:
    """Say what :func:`maintain` would do to a store. Reads only.

    Parameters
    ----------
    source, now
        As for :func:`maintain`, which says what is raised.
    """
    return _Work.on(source, now, "memlab.maintenance.plan_maintenance", do_it=False).result()


def maintain(source: SourceLike, *, now: datetime | None = None) -> Maintenance:
    """Do what a store needs, by what ``memlab.toml`` remembers of it.

    In this order: look at its health, and stop where something fails, or where the clock cannot be
    right; compact it by the remembered policy; drop from its archive what was kept for
    ``archive_for``; rewrite its file where a share ``vacuum_free`` of it is free. What is not
    remembered is not done. A step that fails ends it, and what was done before is in the result.

    Parameters
    ----------
    source : str, Path or Source
        The store.
    now : datetime, optional
        The moment; the current one by default.

    Returns
    -------
    Maintenance
        What was done, step by step.

    Raises
    ------
    SettingsError
        When nothing is remembered of the store, or what is cannot be used. Nothing is changed.
    StoreError
        When there is no such store.
    ValueError
        When `now` has no time zone.
    """
    return _Work.on(source, now, "memlab.maintain", do_it=True).result()


def _clock_doubt(source: Source, now: datetime) -> str:
    """Say why a clock cannot be right that age is reckoned by; nothing where it can."""
    files = [path for path in (source.like, source.archive) if path is not None and path.exists()]
    written = max((path.stat().st_mtime for path in files), default=None)
    if written is None or now.timestamp() - written < _DORMANT.total_seconds():
        return ""
    last = datetime.fromtimestamp(written, now.tzinfo)
    return (
        f"the clock says {now:%Y-%m-%d} and nothing was written since {last:%Y-%m-%d}; nothing was "
        "changed: set the clock, or take a store that is used no more out of the schedule"
    )


class _Work:
    """The steps on one store, one after the other."""

    def __init__(
        self, source: Source, settings: Settings, moment: datetime, *, do_it: bool
    ) -> None:
        self._source, self._settings, self._now = source, settings, moment
        self._do_it = do_it
        self._policy = policy_in(settings)
        self._steps: list[Step] = []
        self._found: dict[str, Any] = {}

    @classmethod
    def on(cls, where: SourceLike, now: datetime | None, call: str, *, do_it: bool) -> "_Work":
        expect(do_it, bool, call=call, name="do_it")
        moment = moment_or_now(now, call=call)
        source = open_source(where)
        settings = settings_of(source)
        if settings.policy is None and settings.archive_for is None and not settings.vacuum_free:
            raise SettingsError(
                f"nothing is remembered of {source.name}, so there is nothing to do by: write it "
                "with memlab size STORE --save, or into memlab.toml"
            )
        if source.like is not None and not source.like.exists():
            raise StoreError(f"there is no store {source.name}; check the path")
        return cls(source, settings, moment, do_it=do_it)

    def result(self) -> Maintenance:
        """Go through the steps until one fails."""
        diagnosis = diagnose(self._source)
        if self._healthy(diagnosis):
            for name, step in (
                ("compact", self._compact),
                ("drop", self._drop),
                ("vacuum", self._vacuum),
            ):
                try:
                    outcome, words = step()
                except MemlabError as error:
                    self._steps.append(Step(name, StepOutcome.FAILED, str(error)))
                    break
                self._steps.append(Step(name, outcome, words))
        steps = tuple(self._steps)
        return Maintenance(self._source.name, self._do_it, steps, diagnosis, **self._found)

    def _healthy(self, diagnosis: Diagnosis) -> bool:
        """Note how the store is; whether anything may be done to it."""
        if doubt := _clock_doubt(self._source, self._now):
            self._steps.append(Step("clock", StepOutcome.FAILED, doubt))
            return False
        worst = [check for check in diagnosis.checks if check.status is diagnosis.status]
        said = "; ".join(f"{check.name}: {check.summary}" for check in worst)
        if diagnosis.status is Status.FAIL:
            words = f"{said}; nothing was changed: memlab doctor says what to do"
            self._steps.append(Step("doctor", StepOutcome.FAILED, words))
            return False
        words = "all is well" if diagnosis.status is Status.OK else f"warns of {said}"
        self._steps.append(Step("doctor", StepOutcome.DONE, words))
        return True

    def _compact(self) -> tuple[StepOutcome, str]:
        if self._policy is None:
            return StepOutcome.OFF, "no policy is remembered"
        for attempt in range(1, PLANNED_AT_MOST + 1):
            made = plan(self._source, self._policy, now=self._now)
            self._found["plan"] = made
            if not made.memories:
                return StepOutcome.NOTHING, "under the remembered policy every memory stays"
            size = f"{counted(made.deletes.memories)}, {made.deletes.tokens:,} tokens"
            if not self._do_it:
                return StepOutcome.WOULD, f"delete {size}; they are archived first"
            try:
                self._found["receipt"] = apply(made, store=self._source, now=self._now)
            except StalePlanError:
                if attempt == PLANNED_AT_MOST:
                    raise
            else:
                return StepOutcome.DONE, f"deleted and archived {size}"
        raise AssertionError("the last attempt returns or raises")

    def _drop(self) -> tuple[StepOutcome, str]:
        age = self._settings.archive_for
        if age is None:
            return StepOutcome.OFF, "the archive keeps what was deleted for ever"
        if not is_begun(archive_at(self._source)):
            return StepOutcome.NOTHING, "there is no archive"
        act = drop_archived if self._do_it else what_drops
        found = act(self._source, before=self._now - age)
        self._found["drop"] = found
        doubts = "".join(f"; passed over: {doubt}" for doubt in found.passed_over)
        kept = f"what the archive has kept longer than {age_text(age)}"
        if not found.entries:
            return StepOutcome.NOTHING, f"{kept}: none{doubts}"
        words = f"{kept}: {counted(found.memories)}, {found.never_restored:,} never restored"
        return (StepOutcome.DONE if self._do_it else StepOutcome.WOULD), f"{words}{doubts}"

    def _vacuum(self) -> tuple[StepOutcome, str]:
        share = self._settings.vacuum_free
        if share is None:
            return StepOutcome.OFF, "no share is remembered at which the file is rewritten"
        if self._source.scheme != "file":
            return StepOutcome.NOTHING, "there is no file of memlab's to rewrite"
        found = space(self._source.name)
        free = f"{in_bytes(found.free)} of {in_bytes(found.file)} are free"
        if not found.free or found.free < share * found.file:
            after = "" if self._do_it else " before compacting"
            return StepOutcome.NOTHING, f"{free}{after}, less than {share:.0%}"
        if not self._do_it:
            checked_for_vacuum(self._source.name)
            return StepOutcome.WOULD, f"rewrite the file: {free}"
        done = vacuum(self._source.name)
        self._found["vacuumed"] = done
        return StepOutcome.DONE, f"{in_bytes(done.freed)} given back to the disk"
