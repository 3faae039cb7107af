"""The findings of a report on a store. The store is read only once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import pandas as pd

from memlab.evidence.past import HistoryLike, present_rows
from memlab.evidence.reads import CutLosses, Log, reads_missed_by_index_cut
from memlab.evidence.store_history import StoreHistory
from memlab.evidence.usage import AgeOrUse, age_or_use
from memlab.frame.fields import arrays_of
from memlab.growth import StoreSummary, summarize
from memlab.growth.alerts import Alert, AlertData, alerts_of
from memlab.sizing.advice import served_in_words
from memlab.sizing.effect_of_cap import CapEffect, cap_effect, survivors
from memlab.sizing.goal import SizingGoal, recommend
from memlab.text import TextPage, command, counted, percent
from memlab.views.recommendation import Recommendation


@dataclass(frozen=True, repr=False)
class Findings(Recommendation):
    """The recommendation for a store, its summary, and the other figures of a report.

    Attributes
    ----------
    summary : StoreSummary
        The number and the size of the store's memories.
    lists : Mapping or None
        Links to the lists of memories on the report's page, by part of a start.
    """

    summary: StoreSummary = field(kw_only=True)
    lists: Mapping[str, str] | None = field(default=None, kw_only=True)

    def sheet(self) -> TextPage:
        """Return the top of a report: the recommendation and the effect of the cap."""
        page = super().sheet()
        facts = [(name, value) for name, value in page.facts if name != "store"]
        if self.other_cap is not None:
            (row,) = self.sizing.at([self.other_cap]).to_dict("records")
            served = served_in_words(row["served"], (row["low"], row["high"]))
            chosen_cap = f"keep_recent = {self.other_cap:,}, which serves {served}"
            facts.insert(0, ("figures below", chosen_cap))
        if self.effect is None or self.by_use is not None:
            tokens = self.summary.boot.tokens + self.summary.index_overhead
            facts.append((self.tokens, f"{tokens:,} now"))
        else:
            facts.append((self.tokens, self._start_in_words(self.effect)))
            facts.append(("would be deleted", self._deleted_in_words(self.effect)))
        return page._replace(facts=facts)

    def _start_in_words(self, effect: CapEffect) -> str:
        """Return the tokens and the memories that are loaded before and after a cap."""
        before = effect.before
        after = effect.after
        index_tokens = self.summary.index_overhead
        tokens = f"{before.tokens + index_tokens:,} → {after.tokens + index_tokens:,}"
        memories = f"{before.memories:,} → {counted(after.memories, 'memories')}"
        return f"{tokens}; {memories}"

    def _deleted_in_words(self, effect: CapEffect) -> str:
        """Return the number of memories that a cap deletes, and their share of the store."""
        deleted = effect.deleted.memories
        if not deleted:
            return "nothing"
        total = self.summary.rows.memories
        return (
            f"{counted(deleted)} of {total:,} ({percent(deleted / total)}), archived first; "
            "memlab restore puts them back"
        )

    def next_steps(self) -> list[str]:
        """Return the next steps; for a chosen cap, the command that shows what it deletes."""
        name = self.evidence.name
        source = self.evidence.source
        cap = self.other_cap
        if source is not None and source.read_only_reason:
            return [
                (
                    f"next: {command('size', name)}    says where to set the cap in the system's "
                    "own settings"
                )
            ]
        if cap is None or cap >= self.advice.prunable:
            return super().next_steps()
        dry_run = command("compact", name, "--keep-recent", cap)
        return [f"next: {dry_run}    shows what would go, and deletes nothing"]

    @property
    def log_name(self) -> str:
        """Name of the access log's file; ``"a frame"`` if the log was given as a frame."""
        file = self.evidence.log_file
        return "a frame" if file is None else file.name

    @cached_property
    def alerts(self) -> list[Alert]:
        """The alerts on cost and risk, the costliest first; none for a frame."""
        evidence = self.evidence
        if evidence.source is None:
            return []
        data = AlertData(
            source=evidence.source,
            memories=arrays_of(evidence.past),
            summary=self.summary,
            name=evidence.name,
            log=evidence.log,
            log_option=evidence.log_option,
        )
        return alerts_of(data)

    @cached_property
    def present(self) -> pd.DataFrame:
        """The memories that are in the store now."""
        return present_rows(self.evidence.past)

    @cached_property
    def cut(self) -> CutLosses | None:
        """The reads of memories whose index line is not loaded; None without such an index."""
        source = self.evidence.source
        if source is None or source.index is None:
            return None
        return reads_missed_by_index_cut(source, self.evidence.log)

    @property
    def cap(self) -> int | None:
        """The cap of the report.

        It is the requested cap, or else the recommended one, or else the largest in the budget.
        """
        if self.goal.keep_recent is not None:
            return self.goal.keep_recent
        if self.advice.keep_recent is not None:
            return self.advice.keep_recent
        return self.advice.budget_cap

    def loaded_or_recalled(self, loaded: str, recalled: str) -> str:
        """Return `loaded` if an agent loads memories at start, else `recalled`."""
        return loaded if self.summary.loads_any else recalled

    @property
    def tokens(self) -> str:
        """The name for the tokens that a cap limits."""
        return self.loaded_or_recalled("tokens at start", "tokens to recall from")

    @property
    def other_cap(self) -> int | None:
        """The cap of the report if it is not the recommended one; else None."""
        return None if self.cap == self.advice.keep_recent else self.cap

    @cached_property
    def usage(self) -> AgeOrUse:
        """The comparison of age and use as predictors of reads, even without an access log."""
        evidence = self.evidence
        return age_or_use(evidence.past, evidence.references, confidence=self.goal.confidence)

    @cached_property
    def effect(self) -> CapEffect | None:
        """The effect that the cap would have today; None without a cap."""
        if self.cap is None:
            return None
        return cap_effect(self.present, self.cap)

    @cached_property
    def kept_memories(self) -> pd.DataFrame:
        """The memories that the cap keeps.

        If lines of a cut index are deleted, lines below the cut move up, and a start loads their
        memories.
        """
        return self.present if self.cap is None else survivors(self.present, self.cap)


def examine(
    memories: HistoryLike, *, log: Log = None, now: datetime | None = None, **options: Any
) -> Findings:
    """Read a store and its access log once, and return the findings of a report.

    Parameters
    ----------
    memories : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, or the result of ``memlab.load_past``.
    log : DataFrame, str or Path, optional
        An access log.
    now : datetime, optional
        The current time, with a time zone; by default the time of the clock.
    **options
        ``keep_recent``, ``target``, ``token_budget``, ``confidence`` and ``until``; by default
        those of the store's settings.

    Returns
    -------
    Findings
        The findings.

    Examples
    --------
    >>> import memlab
    >>> findings = memlab.views.examine(memlab.store_path("two_years"), keep_recent=100)
    >>> findings.cap
    100
    """
    evidence = StoreHistory.of(
        memories, log, call="memlab.views.examine", now=now
    ).with_references()
    goal = SizingGoal.of(evidence.settings, **options)
    sizing, advice = recommend(evidence, evidence.references, goal, tokens=False, now=evidence.now)
    summary = summarize(evidence.past, now=evidence.now)
    return Findings(evidence, goal, sizing, advice, summary=summary)
