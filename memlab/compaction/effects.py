"""What a compaction would do: to a boot context, and to later references and reads."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import expect, whole_number
from memlab.compaction.plans import Plan
from memlab.evidence.past import Memories, past_in, present_rows
from memlab.evidence.reads import Log
from memlab.evidence.references import evidence_of
from memlab.frame.fields import Flags, arrays_of
from memlab.growth.context import Boot, boot_of, size_of
from memlab.items import Size
from memlab.policies import KeepRecent, decide
from memlab.settings import NUMBERS
from memlab.sizing import Verdict
from memlab.sizing.goal import Question, prepared_for
from memlab.sources.opening import SourceLike
from memlab.text import Cell, Sheet, Shown, Table, counted, or_dash

_AT_ANY_TIME: Final = datetime.fromtimestamp(0, UTC)
"""The newest stay whatever the clock says."""


@dataclass(frozen=True, slots=True, repr=False)
class CapEffect(Shown):
    """What one compaction to `keep_recent` prunable memories would do to a boot context.

    `oldest_kept`, `newest_kept` and `newest_deleted` say when the first and the last prunable
    memory to stay, and the last to be deleted, were created, in order of position; else None.
    """

    keep_recent: int
    before: Boot
    after: Boot
    deleted: Size
    oldest_kept: datetime | None
    newest_kept: datetime | None
    newest_deleted: datetime | None

    def sheet(self) -> Sheet:
        """Return what is printed."""
        ends = {
            "last episode to be deleted": self.newest_deleted,
            "first episode to stay": self.oldest_kept,
            "last episode to stay": self.newest_kept,
        }
        facts = [(name, f"{moment:%Y-%m-%d}") for name, moment in ends.items() if moment]
        rows: list[tuple[Cell, ...]] = []
        for name, boot in (("before", self.before), ("after", self.after)):
            prunable = or_dash(boot.prunable_by_memories)
            rows.append((name, boot.memories, boot.tokens, prunable))
        rows.append(("deleted", *self.deleted, ""))
        table = Table("", ("boot context", "memories", "tokens", "prunable"), rows)
        return Sheet(f"keep_recent = {self.keep_recent:,}", facts, [table])


def cap_effect(frame: Memories, keep_recent: int) -> CapEffect:
    """Return what one compaction would do, without doing it.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load`` returns, or the store itself. Of a past, what was deleted is left out.
    keep_recent : int
        How many of the newest prunable memories stay, newest by position.
    """
    keep_recent = whole_number("keep_recent", keep_recent)
    frame = present_rows(past_in(frame, call="memlab.compaction.cap_effect"))
    stays = _stays(frame, keep_recent)
    memories = arrays_of(frame)
    kept = frame[c.POSITION].where(frame[c.PRUNABLE].to_numpy(bool) & stays)
    return CapEffect(
        keep_recent=keep_recent,
        before=boot_of(memories, np.ones(len(frame), dtype=bool)),
        after=boot_of(memories, stays),
        deleted=size_of(memories, ~stays),
        oldest_kept=_created(frame, kept.min()),
        newest_kept=_created(frame, kept.max()),
        newest_deleted=_created(frame, frame[c.POSITION].mask(stays).max()),
    )


def survivors(frame: Memories, keep_recent: int) -> pd.DataFrame:
    """Return the memories that the compaction of :func:`cap_effect` would leave, as they stand."""
    frame = present_rows(past_in(frame, call="memlab.compaction.survivors"))
    return frame[_stays(frame, whole_number("keep_recent", keep_recent))]


def _stays(frame: pd.DataFrame, keep_recent: int) -> Flags:
    decided = decide(frame, KeepRecent(keep_recent), now=_AT_ANY_TIME)
    return decided[c.KEEP].to_numpy(bool)


def _created(frame: pd.DataFrame, position: float) -> datetime | None:
    created = frame.loc[frame[c.POSITION] == position, c.CREATED_AT]
    found = None if created.empty else created.iloc[0]
    return None if pd.isna(found) else pd.Timestamp(found).to_pydatetime()


@dataclass(frozen=True, repr=False)
class Cost(Shown):
    """What a plan costs in later references and reads.

    Attributes
    ----------
    lost, lost_limits : float, tuple of float or None
        Share of later references that would find their memory gone, were its cap or budget held
        until the horizon of its store's settings; estimated. None for a rule that is neither.
    safe, likely : int or None
        The cap or budget that serves `target`: safe, and with even odds.
    references, to_deleted : int
        References so far, and those of them that led to what the plan deletes.
    """

    lost: float | None
    lost_limits: tuple[float, float] | None
    safe: int | None
    likely: int | None
    target: float
    references: int
    to_deleted: int

    def sheet(self) -> Sheet:
        """Return what is printed."""
        facts = []
        if self.lost is not None and self.lost_limits is not None:
            low, high = self.lost_limits
            lost = f"about {self.lost:.1%} would find their memory gone"
            facts.append(("later references", f"{lost}, limits {low:.1%} to {high:.1%}"))
        if self.safe is not None:
            numbers = f"{self.safe:,} is safe, {self.likely:,} is likely"
            facts.append((f"to serve {self.target:.0%}", numbers))
        found = counted(self.references, "references")
        led = f"{self.to_deleted:,} of {found} led to what it deletes"
        facts.append(("so far", led if self.references else "no reference or read is known"))
        return Sheet("what that costs", facts)


def cost_of(plan: Plan, *, store: SourceLike | None = None, log: Log = None) -> Cost:
    """Say what a plan costs in later references and reads, by the whole past of its store.

    Parameters
    ----------
    plan : Plan
        As :func:`memlab.plan` returns it.
    store : str, Path, SqliteMemoryStore or Source, optional
        The store, where it is not to be found by the name in the plan.
    log : DataFrame, str or Path, optional
        An access log; the logs that ``memlab.toml`` remembers by default.
    """
    call = "memlab.compaction.cost_of"
    expect(plan, Plan, call=call, name="plan")
    found = evidence_of(plan.store if store is None else store, log, call=call)
    settings, past, references = found.settings, found.past, found.references
    gone = {memory.memory_id for memory in plan.memories}
    to_deleted = int(references[c.TARGET_ID].isin(gone).sum())
    asked = Question.of(settings)
    lost, limits, safe, likely = None, None, None, None
    name = str(plan.policy.get("policy"))
    if name in NUMBERS:
        sizing = prepared_for(past, references, asked, tokens=name == "tokens")
        (row,) = sizing.at([plan.policy[NUMBERS[name]]]).to_dict("records")
        lost, low, high = (round(1 - row[share], 6) for share in ("served", "high", "low"))
        limits = (low, high)
        choice = sizing.choose(asked.target)
        if choice.verdict is not Verdict.NOTHING_PRUNABLE:
            safe, likely = map(sizing.number_for, (choice.keep_recent, choice.likely))
    return Cost(lost, limits, safe, likely, asked.target, len(references), to_deleted)
