"""Everything that a report shows of a store, computed once from one look at it."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memlab.columns import ACTIVE, LOADED_AT_START
from memlab.compaction.effects import CapEffect, cap_effect, survivors
from memlab.evidence.past import Memories, present_rows
from memlab.evidence.reads import CutLosses, Log, reads_missed_by_index_cut
from memlab.evidence.references import collect_evidence
from memlab.evidence.usage import AgeOrUse, age_or_use
from memlab.frame.fields import arrays_of
from memlab.growth import StoreSummary, summarize
from memlab.growth.alerts import Alert, Look, alerts_of
from memlab.growth.context import boot_of
from memlab.sizing.advice import share_in_words
from memlab.sizing.goal import SizingGoal, recommend
from memlab.sources.base import TODAY
from memlab.text import TextPage, command, counted
from memlab.views.recommendation import Recommendation


@dataclass(frozen=True, repr=False)
class Findings(Recommendation):
    """A store, looked at once: a cap for it, and what else there is to show."""

    summary: StoreSummary = field(kw_only=True)

    def sheet(self) -> TextPage:
        """Return the answer that a report begins with, and the figures that people choose on."""
        page = super().sheet()
        effect = self.effect
        record = self.advice.track_record
        facts = [fact for fact in page.facts if fact[0] != "store"]
        if self.other_cap is not None:
            (row,) = self.sizing.at([self.other_cap]).to_dict("records")
            served = share_in_words(row["served"], (row["low"], row["high"]))
            looked_at = f"keep_recent = {self.other_cap:,}, which serves {served}"
            facts.insert(0, ("figures below", looked_at))
        if record:
            facts.append(("track record", f"{record}, at earlier cuts of its history"))
        if effect is None or self.by_use is not None:
            facts.append((self.tokens, f"{self.summary.boot.tokens:,} now"))
        else:
            before = effect.before
            after = effect.after
            memories = f"{before.memories:,} → {counted(after.memories, 'memories')}"
            facts.append((self.tokens, f"{before.tokens:,} → {after.tokens:,}; {memories}"))
            share = effect.deleted.memories / max(1, self.summary.rows.memories)
            back = f"{share:.1%} of what is there; archived first, and can be put back"
            facts.append(("would be deleted", f"{effect.deleted.memories:,}, {back}"))
        return page._replace(facts=facts)

    def next_steps(self) -> list[str]:
        """Say what to run next; first what carries out the cap that is looked at."""
        name = self.evidence.name
        source = self.evidence.source
        cap = self.other_cap
        if source is not None and not source.deletes:
            return [f"next: {command('size', name)}    where the cap belongs in its own settings"]
        if cap is None or cap >= self.advice.prunable:
            return super().next_steps()
        dry_run = command("compact", name, "--keep-recent", cap)
        return [f"next: {dry_run}    shows what would go, and deletes nothing"]

    @property
    def log_name(self) -> str:
        """What the log is called, which a frame is not."""
        file = self.evidence.log_file
        return "a frame" if file is None else file.name

    @cached_property
    def alerts(self) -> list[Alert]:
        """What costs much, or is at risk, the costliest first."""
        found = self.evidence
        if found.source is None:
            return []
        seen = arrays_of(found.past), self.summary, found.name, found.log, found.log_option
        return alerts_of(Look(found.source, *seen))

    @cached_property
    def present(self) -> pd.DataFrame:
        """What is in the store now."""
        return present_rows(self.evidence.past)

    @cached_property
    def cut(self) -> CutLosses | None:
        """What the cut of an index loses, where the store has one."""
        source = self.evidence.source
        if source is None or not source.cuts_index:
            return None
        return reads_missed_by_index_cut(source, self.evidence.log)

    @property
    def cap(self) -> int | None:
        """The cap that is looked at: the one asked for, recommended, or within the budget."""
        if self.asked.keep_recent is not None:
            return self.asked.keep_recent
        recommended = self.advice.keep_recent
        return self.advice.budget_cap if recommended is None else recommended

    def by_start(self, loaded: str, recalled: str) -> str:
        """Return the words for what an agent loads, or those for what it looks things up in."""
        return loaded if self.summary.loads_any else recalled

    @property
    def tokens(self) -> str:
        """The words for those that a cap holds down."""
        return self.by_start("tokens at start", "tokens to recall from")

    @property
    def other_cap(self) -> int | None:
        """The cap that is looked at, where that is not the recommended one."""
        return None if self.cap == self.advice.keep_recent else self.cap

    @cached_property
    def usage(self) -> AgeOrUse:
        """Whether age or use says what is read next; without a log, for charts of no reads."""
        found = self.evidence
        return age_or_use(found.past, found.references, confidence=self.asked.confidence)

    @cached_property
    def effect(self) -> CapEffect | None:
        """What the cap would do today; None where there is none to look at."""
        if self.cap is None:
            return None
        effect = cap_effect(self.present, self.cap)
        left = arrays_of(self.left)
        return replace(effect, after=boot_of(left, np.ones(len(self.left), dtype=bool)))

    @cached_property
    def left(self) -> pd.DataFrame:
        """What is left under the cap; lines of a cut index that come up are loaded."""
        left = self.present if self.cap is None else survivors(self.present, self.cap)
        if self.cut is None or LOADED_AT_START not in left:
            return left
        loaded = (left[ACTIVE] & left[LOADED_AT_START]).to_numpy(copy=True)
        waiting = np.flatnonzero(left[ACTIVE].to_numpy() & ~loaded)
        loaded[waiting[: max(self.cut.files[TODAY] - int(loaded.sum()), 0)]] = True
        return left.assign(**{LOADED_AT_START: loaded})


def examine(
    memories: Memories, *, log: Log = None, now: datetime | None = None, **asked: Any
) -> Findings:
    """Read a store and its reads once; `asked` is what :meth:`SizingGoal.of` takes."""
    found = collect_evidence(memories, log, call="memlab.views.examine", now=now)
    question = SizingGoal.of(found.settings, **asked)
    sizing, advice = recommend(found.past, found.references, question, tokens=False)
    summary = summarize(found.past, now=found.now)
    return Findings(found, question, sizing, advice, summary=summary)
