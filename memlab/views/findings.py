"""Everything that a report shows of a store, computed once from one look at it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np
import pandas as pd

from memlab.columns import ACTIVE, LOADED_AT_START
from memlab.compaction.effects import CapEffect, cap_effect, survivors
from memlab.evidence.cut import CutLosses, cut_losses
from memlab.evidence.past import Memories, present_rows
from memlab.evidence.reads import Log
from memlab.evidence.references import evidence_of
from memlab.evidence.usage import AgeOrUse, age_or_use
from memlab.frame.fields import arrays_of
from memlab.frame.labelling import called
from memlab.growth import StoreSummary, boot_context, growth_curve, summarize
from memlab.growth.alerts import Alert, Look, alerts_of
from memlab.growth.context import boot_of
from memlab.replay import BudgetByUse, budget_by_use
from memlab.sizing import (
    Advice,
    Sizing,
    advise,
    age_rank_quantiles,
    age_ranks,
    boot_over_time,
    prepare_sizing,
)
from memlab.sizing.goal import Question
from memlab.sizing.timeline import backtest_table
from memlab.sources.base import TODAY
from memlab.sources.opening import is_harvestable
from memlab.text import command


@dataclass(frozen=True)
class Findings:
    """A store, looked at once.

    Attributes
    ----------
    store : str
        What the store is called, as a command takes it.
    now : datetime
        When it was looked at.
    asked : Question
    past : pandas.DataFrame
        All that the store has held.
    log : pandas.DataFrame or None
        What was read, where there is a log of it; `log_name` is the file's.
    log_name : str
    log_option : tuple of str
        What names the log to a command, where ``memlab.toml`` does not.
    references, counts : pandas.DataFrame
        What was referred to again, and what was not counted.
    sizing : Sizing
    advice : Advice
    summary : StoreSummary
    cut : CutLosses or None
        What the cut of an index loses, where the store has one.
    harvest : str
        The command that harvests the store's reads; empty where there is none.
    alerts : sequence of Alert
        What costs much, or is at risk, the costliest first.
    is_setting : bool
        Whether the cap belongs into settings of the system's own, for memlab deletes nothing there.
    retires : bool
        Whether memories can be retired from the store.
    """

    store: str
    now: datetime
    asked: Question
    past: pd.DataFrame
    log: pd.DataFrame | None
    log_name: str
    log_option: tuple[str, ...]
    references: pd.DataFrame
    counts: pd.DataFrame
    sizing: Sizing
    advice: Advice
    summary: StoreSummary
    cut: CutLosses | None = None
    harvest: str = ""
    alerts: Sequence[Alert] = ()
    is_setting: bool = False
    retires: bool = False

    @cached_property
    def present(self) -> pd.DataFrame:
        """What is in the store now."""
        return present_rows(self.past)

    @property
    def cap(self) -> int | None:
        """The cap that is looked at: the one asked for, recommended, or within the budget."""
        if self.asked.cap is not None:
            return self.asked.cap
        recommended = self.advice.keep_recent
        return self.advice.budget_cap if recommended is None else recommended

    def by_start(self, loaded: str, recalled: str) -> str:
        """Return the words for what an agent loads, or those for what it looks things up in."""
        return loaded if self.summary.loads_any else recalled

    @property
    def other_cap(self) -> int | None:
        """The cap that is looked at, where that is not the recommended one."""
        return None if self.cap == self.advice.keep_recent else self.cap

    @cached_property
    def usage(self) -> AgeOrUse:
        """Whether age or use says what is read next."""
        return age_or_use(self.past, self.references, confidence=self.asked.confidence)

    @cached_property
    def by_use(self) -> BudgetByUse | None:
        """To how many tokens to retire by use; None where that is not the answer."""
        if self.usage.verdict != "use" or not self.retires:
            return None
        asked = self.asked
        found = budget_by_use(
            self.past,
            self.references,
            target=asked.target,
            confidence=asked.confidence,
            until=asked.until,
        )
        found = replace(found, store=self.store, log=self.log_option)
        return found if found.next_steps() else None

    @cached_property
    def effect(self) -> CapEffect | None:
        """What the cap would do today; None where there is none to look at."""
        if self.cap is None:
            return None
        effect = cap_effect(self.present, self.cap)
        left = arrays_of(self._left)
        return replace(effect, after=boot_of(left, np.ones(len(self._left), dtype=bool)))

    @cached_property
    def context(self) -> pd.DataFrame:
        """What is loaded at start, part by part."""
        return boot_context(self.present)

    @cached_property
    def context_after(self) -> pd.DataFrame:
        """The same under the cap, where there is one."""
        return boot_context(self._left)

    @cached_property
    def _left(self) -> pd.DataFrame:
        """What is left under the cap; lines of a cut index that come up are loaded."""
        left = self.present if self.cap is None else survivors(self.present, self.cap)
        if self.cut is None or LOADED_AT_START not in left:
            return left
        loaded = (left[ACTIVE] & left[LOADED_AT_START]).to_numpy(copy=True)
        waiting = np.flatnonzero(left[ACTIVE].to_numpy() & ~loaded)
        loaded[waiting[: max(self.cut.files[TODAY] - int(loaded.sum()), 0)]] = True
        return left.assign(**{LOADED_AT_START: loaded})

    @cached_property
    def growth(self) -> pd.DataFrame:
        """How the store grew."""
        return growth_curve(self.past)

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """How far back each reference reached."""
        return age_ranks(self.past, self.references)

    @cached_property
    def quantiles(self) -> pd.DataFrame:
        """The same by stretches of the history."""
        return age_rank_quantiles(self.past, self.references)

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """What would have been loaded at start under a few caps."""
        around = {self.advice.likely, self.advice.keep_recent, self.cap}
        return boot_over_time(self.past, sorted(cap for cap in around if cap is not None))

    @cached_property
    def backtest(self) -> pd.DataFrame:
        """How caps chosen earlier would have done afterwards."""
        table = backtest_table(self.sizing.cuts, self.asked.target)
        table.attrs = dict(self.ranks.attrs)
        return table


def examine(
    past: Memories,
    *,
    now: datetime | None = None,
    asked: Question | None = None,
    log: Log = None,
    log_name: str = "",
    store: str = "",
) -> Findings:
    """Look at a store once, and at what was read of it.

    Parameters
    ----------
    past : DataFrame, path, URL, SqliteMemoryStore or Source
        As :func:`memlab.load_past` returns it, or the store itself: all that it has held.
    now : datetime, optional
        The moment, with a time zone; the current one by default.
    asked : Question, optional
        What is asked of it; by default what ``memlab.toml`` remembers of the store.
    log : DataFrame, str or Path, optional
        An access log, or what :func:`memlab.read_access_log` returns.
    log_name : str, optional
        What its file is called, where a frame is given.
    store : str, optional
        How the page and its commands name the store; its own name by default.

    Raises
    ------
    ValueError
        When what is asked is out of its range.
    """
    found = evidence_of(past, log, call="memlab.views.examine", now=now)
    asked = asked or Question.of(found.settings)
    past, references, source = found.past, found.references, found.source
    sizing = prepare_sizing(past, references, confidence=asked.confidence, until=asked.until)
    summary = summarize(past, now=found.now)
    store, harvest, alerts = store or called(found.name), "", list[Alert]()
    log_name = log_name or (found.log_file.name if found.log_file else "")
    option = ("--log", log_name or "LOG") if found.log_option else ()
    if source is not None:
        alerts = alerts_of(Look(source, arrays_of(past), summary, store, found.log, option))
    if source is not None and found.log_file is None and is_harvestable(source.like or found.name):
        output = () if source.like else ("-o", "reads.jsonl")
        harvest = command("harvest", store, *output)
    return Findings(
        store=store,
        now=found.now,
        asked=asked,
        past=past,
        log=found.log,
        log_name=log_name,
        log_option=option,
        references=references,
        counts=found.counts,
        sizing=sizing,
        advice=advise(sizing, target=asked.target, token_budget=asked.token_budget),
        summary=summary,
        cut=cut_losses(source, found.log) if source is not None and source.cuts_index else None,
        harvest=harvest,
        alerts=alerts,
        is_setting=source is not None and not source.deletes,
        retires=source is not None and source.retires,
    )
