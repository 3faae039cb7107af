"""The cap curve: the share of references that every cap or token budget serves, and its cost."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import arguments
from memlab import columns as c
from memlab.clock import moment_or_now
from memlab.evidence.defaults import DEFAULT_CONFIDENCE, DEFAULT_UNTIL
from memlab.evidence.past import Gaps, HistoryLike, fill_missing_rows, gaps_of, in_reach
from memlab.evidence.store_history import StoreHistory, with_references
from memlab.frame.fields import Ints
from memlab.sizing import backtest
from memlab.sizing.lifetimes import MAX_ROWS_WITHOUT_NUMBA, Lifetimes, Present, Ranked
from memlab.sizing.number_kinds import BUDGET, CAP, NumberKind
from memlab.sizing.prior import Posterior, PosteriorSettings, ReachPrior, mixture_prior

Columns = dict[str, npt.NDArray[Any]]

KEEP_RECENT: Final = CAP.field
"""Name of the curve's index."""

MAX_TOKENS: Final = BUDGET.field
"""Name of the index of a curve of budgets."""

EXACT_AT: Final = "boot_history_exact_at"
"""Key of ``curve.attrs``: caps at which the statistics over the history are exact."""

MAX_FULL_CURVE_ROWS: Final = 4096
"""Largest number of prunable rows for which the curve has a row for every cap."""

ROUND_CAPS: Final = np.array([step * 10**zeros for zeros in range(9) for step in (1, 2, 5)])
"""Round caps, which have a row in every curve that reaches them."""

TABLE_CAPS: Final = (0, *ROUND_CAPS[(ROUND_CAPS >= 10) & (ROUND_CAPS <= 50_000)].tolist())
"""Round caps that a table shows beside a recommendation."""

MAX_EXACT_CELLS: Final = 30_000_000
"""Largest product of caps and rows for exact statistics over the history: about one second."""

MIN_EXACT_CAPS: Final = 24
"""Smallest number of caps at which statistics over the history are exact.

Of a million memories, these are four caps between each power of ten and the next."""


@dataclass(frozen=True)
class CurvePoint:
    """One cap: the share of references that it serves, and its cost.

    Attributes
    ----------
    keep_recent : int
        The cap.
    served : float
        Estimated share of references that the cap serves, from 0 to 1.
    served_limits : tuple of float
        Limits of this share.
    boot_tokens : int
        A start if the store were compacted to this cap now.
    boot_tokens_p95 : int or None
        95th percentile of a start over the history if the cap is held after every row.
        None for a budget.
    days : float
        Age in days of the oldest prunable memory that the cap keeps now.

    Examples
    --------
    >>> import memlab
    >>> sizing = memlab.sizing.prepare_sizing(memlab.store_path("two_years"))
    >>> point = sizing.point_at(100)
    >>> point.number, 0 <= point.served <= 1
    (100, True)
    """

    keep_recent: int
    served: float
    served_limits: tuple[float, float]
    boot_tokens: int
    boot_tokens_p95: int | None
    days: float

    @property
    def number(self) -> int:
        """The cap."""
        return self.keep_recent


@dataclass(frozen=True)
class BudgetPoint(CurvePoint):
    """One token budget; `keep_recent` is the number of prunable memories that it keeps now."""

    max_tokens: int

    @property
    def number(self) -> int:
        """The budget."""
        return self.max_tokens


@dataclass(frozen=True)
class Sizing:
    """A store prepared for sizing, so that a look-up at any cap or target is cheap.

    The *number* is the quantity that is sized: a cap, or in :class:`BudgetSizing` a token budget.

    Attributes
    ----------
    lifetimes : Lifetimes
        The rows ever written, as arrays.
    present : Present
        The sizes of the present rows.
    references : Ranked
        The references, as arrays.
    unmatched_references : int
        References whose target is not in the frame, or was written later.
    settings : PosteriorSettings
        Settings of the posterior: ``confidence``, ``until`` and ``law``.
    source : str
        Name of the store, for charts.
    store : str
        Name of the store as it was given, for commands.
    gaps : Gaps
        Memories deleted without an archive.
    lacks_past : bool
        Whether the frame lacks memories of the archive.
    reads : float
        Share of reads among the references, from 0 to 1. Without references it is 1 if the
        source lists the memories that are loaded at start, else 0.
    mean : float
        By how much the number grows for one more memory of mean length: by 1 for a cap, by the
        tokens of the memory for a budget.

    Examples
    --------
    >>> import memlab
    >>> sizing = memlab.sizing.prepare_sizing(memlab.store_path("two_years"))
    >>> sizing.largest_within(100) is None
    True
    """

    lifetimes: Lifetimes
    present: Present
    references: Ranked
    unmatched_references: int = 0
    settings: PosteriorSettings = field(default_factory=PosteriorSettings)
    source: str = ""
    gaps: Gaps = field(default_factory=Gaps)
    lacks_past: bool = False
    reads: float = 0.0
    mean: float = 1.0
    store: str = ""

    number_kind: ClassVar[NumberKind] = CAP
    """The kind of the number, with its names."""

    @property
    def lost(self) -> int:
        """Number of references to memories that were deleted without an archive."""
        return int(self.references.lost.sum())

    @cached_property
    def splits(self) -> list[backtest.BacktestSplit]:
        """Splits of the history for the backtest."""
        return backtest.backtest_splits(
            self.lifetimes, self.references, self.settings, backtest.DEFAULT_SPLITS
        )

    @cached_property
    def posterior(self) -> Posterior:
        """Posterior of the caps for the next stretch, with intervals inflated by the backtest."""
        posterior = backtest.posterior_of(self.lifetimes, self.references, self.settings)
        return replace(posterior, interval_inflation=backtest.interval_inflation_of(self.splits))

    def choose(self, target: float) -> backtest.Choice:
        """Return the recommended cap and its verdict.

        If a cap may have deleted memories without an archive, the recommendation is not below it:
        references to those memories are missing, so the cap would shrink at every run.
        """
        # for a budget: the number of memories of mean length
        prunable = (self.number_to_keep_all - self.floor) / self.mean
        choice = backtest.choose_cap(
            self.posterior,
            target=target,
            prunable=int(np.ceil(prunable)),
            far_share=self.references.far_share,
        )
        incomplete = backtest.Verdict.HISTORY_INCOMPLETE
        earlier_cap = self.gaps.cap
        if earlier_cap is not None:
            cap = max(choice.keep_recent, earlier_cap)
            return backtest.Choice(
                verdict=incomplete,
                keep_recent=cap,
                interval=(choice.interval[0], cap),
                likely=max(choice.likely, earlier_cap),
            )
        allowed_misses = 1 - target
        share_lost = self.lost / max(len(self.references), 1)
        # The lost references alone use up half of the misses that the target allows.
        has_many_lost = share_lost > allowed_misses / 2
        has_many_gaps = self.gaps.memories > allowed_misses * len(self.lifetimes)
        if has_many_lost or has_many_gaps:
            return replace(choice, verdict=incomplete)
        return choice

    @property
    def references_needed(self) -> int:
        """Number of references or reads until the weight of the store's own is one half."""
        return max(0, round(self.settings.law.worth) - self.references.cluster_count)

    def number_for(self, cap: int) -> int:
        """Return the number that keeps `cap` memories of mean length: the cap, or a budget."""
        return self.floor + int(np.ceil(cap * self.mean))

    def around(self, *numbers: int | None) -> list[int]:
        """Return the numbers of a table around a recommendation, sorted.

        They are `numbers` without None, `number_to_keep_all`, and the numbers for `TABLE_CAPS` that
        are below it.
        """
        listed = {self.number_to_keep_all}
        for cap in TABLE_CAPS:
            number = self.number_for(cap)
            if number < self.number_to_keep_all:
                listed.add(number)
        listed.update(number for number in numbers if number is not None)
        return sorted(listed)

    @property
    def floor(self) -> int:
        """Part of the number that load-bearing memories use: 0 for a cap, tokens for a budget."""
        return 0

    @property
    def number_to_keep_all(self) -> int:
        """Smallest number that keeps all present memories."""
        return self.present.prunable

    def point_at(self, number: int) -> CurvePoint:
        """Return the point of the curve for one number."""
        row = self._row_at(number)
        return CurvePoint(
            keep_recent=number,
            served=row["served"],
            served_limits=(row["low"], row["high"]),
            boot_tokens=row["boot_tokens"],
            boot_tokens_p95=row["boot_tokens_p95"],
            days=row["days"],
        )

    def tokens_at(self, number: int) -> int:
        """Return the tokens of a start now under one number."""
        kept = min(number, self.present.prunable)
        return int(self.present.loaded.tokens[kept])

    def _row_at(self, number: int) -> dict[str, Any]:
        """Return the values of the curve's columns for one number."""
        columns = self._columns(np.array([number]))
        return {name: values[0].item() for name, values in columns.items()}

    def _served(self, caps: Ints) -> Columns:
        """Return the estimated share that each cap serves, and its limits."""
        low, high = self.posterior.limits_at(caps)
        return {"served": self.posterior.share_at(caps), "low": low, "high": high}

    @cached_property
    def curve(self) -> pd.DataFrame:
        """The cap curve, as `cap_curve` returns it."""
        all_caps = np.arange(self.lifetimes.prunable + 1)
        largest_cap = all_caps[-1]
        is_full = len(all_caps) <= MAX_FULL_CURVE_ROWS
        exact_caps = all_caps  # at which the statistics over the history are computed
        if not is_full or len(all_caps) * len(self.lifetimes) > MAX_EXACT_CELLS:
            count = max(MAX_EXACT_CELLS // len(self.lifetimes), MIN_EXACT_CAPS)
            exact_caps = _geometric_caps(largest_cap, count)
        caps = all_caps
        if not is_full:
            # the observed share changes at the ranks of references
            changes = np.flatnonzero(np.bincount(self.references.rank, minlength=1))
            spaced = _geometric_caps(largest_cap, MAX_FULL_CURVE_ROWS // 8)
            caps = np.unique(np.concatenate([spaced, ROUND_CAPS, changes, exact_caps]))
            caps = caps[caps <= largest_cap]
        over_history = self.lifetimes.boot_at(exact_caps)
        interpolated = {
            name: np.interp(caps, exact_caps, exact_values)
            for name, exact_values in over_history.items()
        }
        curve = pd.DataFrame(
            self._columns(caps, interpolated), index=pd.Index(caps, name=KEEP_RECENT)
        )
        # pandas copies `attrs` with every frame, so a range is stored where it is possible
        exact_at = range(len(all_caps)) if exact_caps is all_caps else exact_caps.tolist()
        curve.attrs = {
            EXACT_AT: exact_at,
            c.TOKEN_RULE: self.present.token_rule,
            c.SOURCE: self.source,
            c.RECALLED: self.present.recalled,
            c.REFERENCES: len(self.references),
        }
        return curve

    def at(self, caps: Iterable[int]) -> pd.DataFrame:
        """Return the curve at some caps, each computed exactly."""
        numbers = np.array([arguments.whole_number("cap", cap) for cap in caps], dtype=np.int64)
        return pd.DataFrame(self._columns(numbers), index=pd.Index(numbers, name=KEEP_RECENT))

    def largest_within(self, token_budget: int) -> int | None:
        """Return the largest cap under which a start stays within a budget; None if no cap does.

        Both a start now and the 95th percentile over the history must fit: if memories
        have grown longer, a cap may keep more tokens now than before. The cap is found by dividing
        the range between a cap that fits and one that does not.
        """
        present = self.present
        largest_fitting = -1
        smallest_failing = self.lifetimes.prunable + 1
        # without numba, many caps take hardly longer than one
        divisions = 64 if len(self.lifetimes) <= MAX_ROWS_WITHOUT_NUMBA else 2
        while smallest_failing - largest_fitting > 1:
            spaced = np.linspace(largest_fitting + 1, smallest_failing - 1, divisions + 2)[1:-1]
            caps = np.unique(spaced.astype(np.int64))
            tokens_now = (
                present.floor.tokens + present.tokens_newest[np.minimum(caps, present.prunable)]
            )
            peak_tokens = np.maximum(tokens_now, self.lifetimes.boot_at(caps)["boot_tokens_p95"])
            largest_fitting = int(caps[peak_tokens <= token_budget].max(initial=largest_fitting))
            smallest_failing = int(caps[peak_tokens > token_budget].min(initial=smallest_failing))
        return None if largest_fitting < 0 else largest_fitting

    def _columns(self, caps: Ints, over_history: Columns | None = None) -> Columns:
        """Return the shares served, and the sizes of the store under each cap, by column name.

        `over_history` has the columns of `Lifetimes.boot_at` for these caps, if they are known.
        """
        present = self.present
        kept = np.minimum(caps, present.prunable)
        loaded = present.loaded.at(kept)
        if over_history is None:
            over_history = self.lifetimes.boot_at(caps)
        return {
            **self._served(caps),
            "served_own": self.posterior.own_share_at(caps),
            "served_elsewhere": self.posterior.law_share_at(caps),
            "served_observed": self.references.share_at(caps),
            "boot_memories": loaded.memories,
            "boot_tokens": loaded.tokens,
            **over_history,
            "prunable_share": loaded.prunable_memories / np.maximum(loaded.memories, 1),
            "prunable_share_tokens": loaded.prunable_tokens / np.maximum(loaded.tokens, 1),
            "pruned": present.prunable - kept,
            "days": present.days_newest[kept],
        }


@dataclass(frozen=True)
class BudgetSizing(Sizing):
    """A store prepared for sizing a budget in tokens.

    The age rank of a memory in tokens is the sum of its own tokens, those of all newer memories and
    those of the load-bearing ones. `TokenBudget` keeps the memory while that sum is within the
    budget. Budgets keep nested sets, as caps do (stack property, Mattson et al. 1970), so one pass
    over the history gives the result for every budget. The reach of later references is estimated
    in memories of mean length.

    Attributes
    ----------
    lifetimes, present, references, unmatched_references, settings, source, store
        As in `Sizing`. Age ranks are in memories of mean length.
    gaps, lacks_past, reads, mean
        As in `Sizing`. The cap of the gaps is in memories of mean length.
    needed_budgets : array of int64
        Budget that each reference needed, with the floor; 0 if its target is load-bearing. For a
        target that was deleted without an archive it is the budget expected under the prior.
    """

    needed_budgets: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    number_kind: ClassVar[NumberKind] = BUDGET

    @property
    def floor(self) -> int:
        """Tokens of the load-bearing memories now."""
        return self.present.floor.tokens

    @property
    def number_to_keep_all(self) -> int:
        """Tokens of all active memories."""
        return self.present.tokens

    def at(self, budgets: Iterable[int]) -> pd.DataFrame:
        """Return the curve at some budgets."""
        numbers = [arguments.whole_number(MAX_TOKENS, budget) for budget in budgets]
        budget_array = np.array(numbers, np.int64)
        return pd.DataFrame(
            self._columns(budget_array), index=pd.Index(budget_array, name=MAX_TOKENS)
        )

    def point_at(self, number: int) -> BudgetPoint:
        """Return the point of the curve for one budget."""
        row = self._row_at(number)
        return BudgetPoint(
            max_tokens=number,
            keep_recent=row["kept"],
            served=row["served"],
            served_limits=(row["low"], row["high"]),
            boot_tokens=row["boot_tokens"],
            boot_tokens_p95=None,
            days=row["days"],
        )

    def _columns(self, budgets: Ints, over_history: Columns | None = None) -> Columns:  # noqa: ARG002 - a budget has no statistics over the history
        present = self.present
        room = np.maximum(budgets - self.floor, 0)
        kept = self._kept_in(room)
        observed = np.full(len(budgets), np.nan)
        if len(self.needed_budgets):
            met_count = np.searchsorted(np.sort(self.needed_budgets), budgets, side="right")
            observed = met_count / len(self.needed_budgets)
        caps = np.floor(room / self.mean + 1e-9).astype(np.int64)  # in memories of mean length
        return {
            **self._served(caps),
            "served_observed": observed,
            "kept": kept,
            "boot_tokens": present.loaded.tokens[kept],
            "pruned": present.prunable - kept,
            "days": present.days_newest[kept],
        }

    def tokens_at(self, number: int) -> int:
        """Return the tokens of a start now under one budget."""
        room = max(number - self.floor, 0)
        return int(self.present.loaded.tokens[self._kept_in(np.array([room]))[0]])

    def _kept_in(self, room: Ints) -> Ints:
        """Return the number of newest prunable memories that fit into each number of tokens."""
        kept: Ints = np.searchsorted(self.present.tokens_newest, room, side="right") - 1
        return kept

    def largest_within(self, token_budget: int) -> int | None:
        """Return the budget itself, or None if the load-bearing memories use more."""
        return token_budget if token_budget >= self.floor else None


def prepare_sizing(
    frame: HistoryLike,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
    law: ReachPrior | None = None,
) -> Sizing:
    """Prepare a store for look-ups at many caps and targets.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        A frame from ``memlab.load_past``, or a store, whose history is loaded. Memories with a time
        in the column ``deleted_at`` are part of the history, and not of the present store.
    references, confidence, until
        As for :func:`memlab.recommend_cap`.
    law : ReachPrior, optional
        The prior from other projects. By default it is the mixture of the fitted priors that has
        the store's share of reads among its references.

    Returns
    -------
    Sizing
        It has ``curve``, ``at(caps)``, ``largest_within(token_budget)`` and ``posterior``.

    Raises
    ------
    ValueError
        If `confidence` or `until` is out of range.

    Examples
    --------
    >>> import memlab
    >>> sizing = memlab.sizing.prepare_sizing(memlab.store_path("two_years"))
    >>> bool(sizing.at([10])["served"].iloc[0] <= sizing.at([100])["served"].iloc[0])
    True
    """
    call = "memlab.sizing.prepare_sizing"
    arguments.expect(law, ReachPrior, call=call, name="law", optional=True)
    return prepared(frame, references, confidence, until, law, call=call)


def in_tokens(sizing: Sizing) -> BudgetSizing:
    """Return the sizing for budgets in tokens from the sizing for caps."""
    lifetimes = sizing.lifetimes
    references = sizing.references
    tokens = lifetimes.largest_ranks(references.target, references.at, in_tokens=True)
    tokens_with_floor = lifetimes.largest_ranks(
        references.target, references.at, in_tokens=True, with_floor=True
    )
    lengths = lifetimes.tokens[lifetimes.ever_prunable]
    mean = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
    ranks = np.ceil(tokens / mean).astype(np.int64)
    in_mean_lengths = replace(references, rank=ranks).with_expected_ranks(sizing.settings.law)
    added_by_gaps = np.ceil((in_mean_lengths.rank - ranks) * mean).astype(np.int64)
    gaps = sizing.gaps
    if gaps.cap is not None:
        # The budget that deleted those memories kept all later ones, but had no room for one more,
        # which was at most as long as the longest memory.
        later_lengths = lengths[len(lengths) - gaps.cap :]
        least_budget = later_lengths.sum() + lengths.max(initial=0)
        gaps = gaps._replace(cap=int(np.ceil(least_budget / mean)))
    return BudgetSizing(
        lifetimes=lifetimes,
        present=sizing.present,
        references=in_mean_lengths,
        unmatched_references=sizing.unmatched_references,
        settings=sizing.settings,
        source=sizing.source,
        gaps=gaps,
        lacks_past=sizing.lacks_past,
        reads=sizing.reads,
        mean=mean,
        store=sizing.store,
        needed_budgets=tokens_with_floor + added_by_gaps,
    )


def prepared(  # noqa: PLR0913 - those of prepare_sizing, the call and the moment
    frame: HistoryLike,
    references: pd.DataFrame | None,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
    law: ReachPrior | None = None,
    *,
    call: str,
    now: datetime | None = None,
) -> Sizing:
    """Prepare a store as :func:`prepare_sizing` does; errors name the public function `call`.

    The ages of memories leave out rows that are dated after `now`, by default the current time.
    """
    history = StoreHistory.of(frame, call=call)
    past, past_references = with_references(history, references, call=call)
    frame, references = in_reach(past, past_references)
    is_read = references[c.KIND] == "log"
    # Without references, assume the kind of references that a store of this kind will have.
    expected_reads = 1.0 if c.LOADED_AT_START in frame else 0.0
    reads = float(is_read.mean()) if len(is_read) else expected_reads
    if law is None:
        law = mixture_prior(reads)
    gaps = gaps_of(frame) if c.DELETED_AT in frame else Gaps()
    lacks_past = c.DELETED_AT not in frame and bool(frame.attrs.get(c.HAS_PAST))
    frame = fill_missing_rows(frame)
    lifetimes = Lifetimes.of(frame)
    matched = Ranked.of(frame, lifetimes, references)
    return Sizing(
        lifetimes=lifetimes,
        present=Present.of(frame, moment_or_now(now, call=call)),
        references=matched.with_expected_ranks(law),
        unmatched_references=len(references) - len(matched),
        settings=PosteriorSettings(confidence=confidence, until=until, law=law),
        source=str(frame.attrs.get(c.SOURCE, "")),
        gaps=gaps,
        lacks_past=lacks_past,
        reads=reads,
        store=history.name,
    )


def cap_curve(
    frame: HistoryLike,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
) -> pd.DataFrame:
    """Compute the share of references that every cap serves, and its cost.

    The share that a cap would have served so far is exact: a reference counts as served if and only
    if its target would still be in a store that was compacted to that cap after every row written.
    The share in the next stretch is estimated from these references and from the prior of other
    projects (empirical Bayes; see :func:`memlab.recommend_cap`, which has the same arguments).

    Returns
    -------
    DataFrame
        Indexed by ``keep_recent``, from 0 to the number of prunable rows, deleted ones included. Up
        to `MAX_FULL_CURVE_ROWS` rows there is a row for every cap; beyond that for caps at which
        the observed share changes, round caps, and caps evenly spaced by ratio.

        ==========================  ==========================================================
        ``served``                  estimated share of references served in the next stretch
        ``low``, ``high``           its limits
        ``served_own``              the same from the store's own references alone
        ``served_elsewhere``        the same from other projects' references alone
        ``served_observed``         share of the store's references so far that were served
        ``boot_memories``,          the rows that a start would load after a compaction to this
        ``boot_tokens``             cap now, and their tokens; all active rows if none is loaded
        ``boot_*_mean, _p95, _max`` the same over the history under continuous compaction, one
                                    value for each row written; they are exact at the caps in
                                    ``attrs``, and interpolated between these
        ``prunable_share``,         prunable share of a start now, by number and by tokens
        ``prunable_share_tokens``
        ``pruned``                  rows that a compaction would delete now
        ``days``                    days from the newest row back to the oldest prunable row kept
        ==========================  ==========================================================

        ``served_own`` and ``served_observed`` are NaN without a reference.

    Raises
    ------
    ValueError
        If `confidence` or `until` is out of range.

    Examples
    --------
    >>> import memlab
    >>> curve = memlab.sizing.cap_curve(memlab.store_path("two_years"))
    >>> curve.index.name, bool(curve["served"].is_monotonic_increasing)
    ('keep_recent', True)
    """
    call = "memlab.sizing.cap_curve"
    return prepared(frame, references, confidence, until, call=call).curve


def _geometric_caps(largest: int, count: int) -> Ints:
    """Return about `count` whole numbers from 0 to `largest`, evenly spaced by ratio."""
    return np.unique(np.append(np.geomspace(1, largest + 1, count).astype(np.int64) - 1, largest))
