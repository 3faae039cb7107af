"""The cap curve: what every cap, and every budget in tokens, serves and costs."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import arguments
from memlab import columns as c
from memlab.evidence.past import Gaps, Memories, fill_missing_rows, gaps_of, in_reach
from memlab.evidence.prior import (
    DEFAULT_CONFIDENCE,
    DEFAULT_UNTIL,
    Posterior,
    PosteriorSettings,
    ReachPrior,
    mixture_prior,
)
from memlab.evidence.store_history import with_references
from memlab.frame.fields import Ints
from memlab.sizing import record
from memlab.sizing.history import SHORT, History, Present, Ranked

Columns = dict[str, npt.NDArray[Any]]

KEEP_RECENT: Final = "keep_recent"
"""Name of the curve's index."""

MAX_TOKENS: Final = "max_tokens"
"""Name of the index of a curve of budgets."""

EXACT_AT: Final = "boot_history_exact_at"
"""Key of ``curve.attrs``: caps at which the statistics over the history are exact."""

EVERY_CAP: Final = 4096
"""Largest number of prunable rows for which the curve has a row for every cap."""

ROUND_CAPS: Final = np.array([step * 10**zeros for zeros in range(9) for step in (1, 2, 5)])
"""Round caps, which have a row in every curve that reaches them."""

AROUND: Final = (0, *ROUND_CAPS[3:15].tolist())
"""Round caps that a table shows beside a recommendation."""

MOMENTS: Final = 30_000_000
"""Largest number of caps times rows for exact statistics over the history: about one second."""

FEWEST_EXACT: Final = 24
"""Smallest number of caps at which those statistics are exact: four per decade."""


@dataclass(frozen=True)
class CurvePoint:
    """What one cap serves and costs.

    `boot_tokens` is the boot context if the store were compacted to this cap now.
    `boot_tokens_p95` is the 95th percentile over the history if the cap is held after every row.
    `days` is the age of the oldest prunable memory that it keeps now.
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
class BudgetEnd(CurvePoint):
    """What one budget in tokens serves and costs; `keep_recent` is what it keeps now."""

    max_tokens: int

    @property
    def number(self) -> int:
        """The budget."""
        return self.max_tokens


@dataclass(frozen=True)
class Sizing:
    """A store prepared for sizing, so that a look-up at any cap or target is cheap.

    Attributes
    ----------
    history, present, references
        The store as arrays.
    unmatched_references : int
        References whose target is not in the frame, or was written later.
    terms : PosteriorSettings
        Settings of the posterior: ``confidence``, ``until`` and ``law``.
    source : str
        Name of the store.
    gaps, lacks_past : Gaps, bool
        Memories deleted without an archive; whether the frame lacks what the archive keeps.
    reads : float
        Share of reads among the references, from 0 to 1. Without references it is 1 if the
        source tells what is loaded at start, else 0.
    mean : float
        What a memory of mean length adds to the number: 1 to a cap, its tokens to a budget.
    """

    history: History
    present: Present
    references: Ranked
    unmatched_references: int = 0
    terms: PosteriorSettings = field(default_factory=PosteriorSettings)
    source: str = ""
    gaps: Gaps = field(default_factory=Gaps)
    lacks_past: bool = False
    reads: float = 0.0
    mean: float = 1.0

    WORD: ClassVar = "cap"
    """Name of the number in a sentence."""

    @property
    def lost(self) -> int:
        """Number of references to memories that were deleted without an archive."""
        return int(self.references.lost.sum())

    @cached_property
    def cuts(self) -> list[record.BacktestSplit]:
        """Splits of the history for the backtest."""
        return record.backtest_splits(self.history, self.references, self.terms, record.CUTS)

    @cached_property
    def ahead(self) -> Posterior:
        """Posterior of the caps for the next stretch, with intervals inflated by the backtest."""
        plain = record.posterior_of(self.history, self.references, self.terms)
        return replace(plain, interval_inflation=record.widening(self.cuts))

    def choose(self, target: float) -> record.Choice:
        """Return the recommended cap and its verdict.

        It is not below the cap that may have deleted memories without an archive. Otherwise the
        references to those memories would be missing, and the cap would shrink at every run.
        """
        choice = record.choose_cap(
            self.ahead,
            target=target,
            prunable=int(np.ceil((self.most - self.floor) / self.mean)),
            far_share=self.references.far_share,
        )
        spare = 1 - target
        verdict = record.Verdict.HISTORY_INCOMPLETE
        least = self.gaps.cap
        if least is not None:
            cap = max(choice.keep_recent, least)
            likely = max(choice.likely, least)
            return record.Choice(verdict, cap, (choice.interval[0], cap), likely)
        lost = self.lost / max(len(self.references), 1)
        if 2 * lost > spare or self.gaps.memories > spare * len(self.history):
            return replace(choice, verdict=verdict)
        return choice

    @property
    def missing(self) -> int:
        """Number of references or reads until the weight of the store's own is one half."""
        return max(0, round(self.terms.law.worth) - self.references.cluster_count)

    def number_for(self, cap: int) -> int:
        """Return the number that keeps `cap` memories: the cap itself, or a budget."""
        return self.floor + int(np.ceil(cap * self.mean))

    def around(self, *numbers: int | None) -> list[int]:
        """Return the numbers, those that keep round numbers of memories, and `most`, sorted."""
        shown = {self.most}
        for cap in AROUND:
            number = self.number_for(cap)
            if number < self.most:
                shown.add(number)
        shown.update(number for number in numbers if number is not None)
        return sorted(shown)

    @property
    def floor(self) -> int:
        """Part of the number that the load-bearing memories use: 0 for a cap."""
        return 0

    @property
    def most(self) -> int:
        """Smallest number that keeps all present memories."""
        return self.present.prunable

    def end(self, number: int) -> CurvePoint:
        """Return what a number serves and costs. A budget has no ``boot_tokens_p95``."""
        row = {name: values[0].item() for name, values in self._columns(np.array([number])).items()}
        point = CurvePoint(
            keep_recent=row.get("kept", number),
            served=row["served"],
            served_limits=(row["low"], row["high"]),
            boot_tokens=row["boot_tokens"],
            boot_tokens_p95=row.get("boot_tokens_p95"),
            days=row["days"],
        )
        if "kept" in row:
            return BudgetEnd(**vars(point), max_tokens=number)
        return point

    def _served(self, caps: Ints) -> Columns:
        """Return the estimated share that each cap serves, and its limits."""
        low, high = self.ahead.limits_at(caps)
        return {"served": self.ahead.share_at(caps), "low": low, "high": high}

    @cached_property
    def curve(self) -> pd.DataFrame:
        """The cap curve, as `cap_curve` returns it."""
        every = np.arange(self.history.prunable + 1)
        exact = every
        if len(every) > EVERY_CAP or len(every) * len(self.history) > MOMENTS:
            exact = _spread(every[-1], max(MOMENTS // len(self.history), FEWEST_EXACT))
        caps = every
        if len(every) > EVERY_CAP:
            # The caps at which the observed share changes, and others evenly spaced by ratio.
            changes = np.flatnonzero(np.bincount(self.references.rank, minlength=1))
            wanted = [_spread(every[-1], EVERY_CAP // 8), ROUND_CAPS, changes, exact]
            caps = np.unique(np.concatenate(wanted))
            caps = caps[caps <= every[-1]]
        over_history = self.history.boot_at(exact)
        between = {name: np.interp(caps, exact, known) for name, known in over_history.items()}
        curve = pd.DataFrame(self._columns(caps, between), index=pd.Index(caps, name=KEEP_RECENT))
        # Use a range if possible: pandas copies attrs at every step.
        exact_at = range(len(every)) if exact is every else exact.tolist()
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
        wanted = np.array([arguments.whole_number("cap", cap) for cap in caps], dtype=np.int64)
        return pd.DataFrame(self._columns(wanted), index=pd.Index(wanted, name=KEEP_RECENT))

    def largest_within(self, token_budget: int) -> int | None:
        """Return the largest cap whose boot context stays within a budget, or None.

        The boot context counts now, and at its 95th percentile over the history. If memories have
        grown longer, a cap may keep more tokens now than ever before.
        """
        present = self.present
        fits = -1
        fails = self.history.prunable + 1
        at_once = 64 if len(self.history) <= SHORT else 2  # a short history takes more at no cost
        while fails - fits > 1:
            caps = np.unique(np.linspace(fits + 1, fails - 1, at_once + 2)[1:-1].astype(np.int64))
            now = present.floor.tokens + present.tokens_newest[np.minimum(caps, present.prunable)]
            most = np.maximum(now, self.history.boot_at(caps)["boot_tokens_p95"])
            fits = int(caps[most <= token_budget].max(initial=fits))
            fails = int(caps[most > token_budget].min(initial=fails))
        return None if fits < 0 else fits

    def _columns(self, caps: Ints, over_history: Columns | None = None) -> Columns:
        """Return the shares served, and the sizes of the store under each cap, by column name."""
        present = self.present
        kept = np.minimum(caps, present.prunable)
        memories = present.floor.memories + kept
        tokens = present.floor.tokens + present.tokens_newest[kept]
        return {
            **self._served(caps),
            "served_own": self.ahead.own_share_at(caps),
            "served_elsewhere": self.ahead.law_share_at(caps),
            "served_observed": self.references.share_at(caps),
            "boot_memories": memories,
            "boot_tokens": tokens,
            **(over_history or self.history.boot_at(caps)),
            "prunable_share": kept / np.maximum(memories, 1),
            "prunable_share_tokens": present.tokens_newest[kept] / np.maximum(tokens, 1),
            "pruned": present.prunable - kept,
            "days": present.days_newest[kept],
        }


@dataclass(frozen=True)
class BudgetSizing(Sizing):
    """A store prepared for sizing a budget in tokens.

    Under `TokenBudget` a memory stays while it, all newer memories and the floor fit. So its age
    rank in tokens is the sum of these. Budgets keep nested sets, as caps do (stack property,
    Mattson et al. 1970), and one pass over the history gives every budget. The reach of later
    references is estimated in memories, and a memory counts as the mean number of tokens.

    Attributes
    ----------
    history, present, references, unmatched_references, terms, source, gaps, lacks_past, reads, mean
        As in `Sizing`, with age ranks and the cap of the gaps in memories of mean length.
    took : array of int64
        Budget that each reference needed, with the floor; 0 if its target is load-bearing. For a
        target that was deleted without an archive it is the budget expected under the prior.
    """

    took: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    WORD: ClassVar = "budget"

    @property
    def floor(self) -> int:
        """Tokens of the load-bearing memories now."""
        return self.present.floor.tokens

    @property
    def most(self) -> int:
        """Tokens of all memories that are loaded now."""
        return self.present.tokens

    def at(self, budgets: Iterable[int]) -> pd.DataFrame:
        """Return the curve at some budgets."""
        numbers = [arguments.whole_number(MAX_TOKENS, budget) for budget in budgets]
        wanted = np.array(numbers, np.int64)
        return pd.DataFrame(self._columns(wanted), index=pd.Index(wanted, name=MAX_TOKENS))

    def _columns(self, budgets: Ints, _: Columns | None = None) -> Columns:
        present = self.present
        room = np.maximum(budgets - self.floor, 0)
        kept = np.searchsorted(present.tokens_newest, room, side="right") - 1
        observed = np.searchsorted(np.sort(self.took), budgets, side="right")
        return {
            **self._served(np.floor(room / self.mean + 1e-9).astype(np.int64)),
            "served_observed": observed / (len(self.took) or np.nan),
            "kept": kept,
            "boot_tokens": self.floor + present.tokens_newest[kept],
            "pruned": present.prunable - kept,
            "days": present.days_newest[kept],
        }

    def largest_within(self, token_budget: int) -> int | None:
        """Return the budget itself, or None if the load-bearing memories use more."""
        return token_budget if token_budget >= self.floor else None


def prepare_sizing(
    frame: Memories,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
    law: ReachPrior | None = None,
) -> Sizing:
    """Prepare a frame for look-ups at many caps and targets.

    The result has ``curve``, ``at(caps)``, ``largest_within(token_budget)`` and ``ahead``.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load_past`` returns, or the store itself, for its whole past. In a frame with
        a column ``deleted_at``, memories with a time in it are those that were deleted since: they
        count as in the past, and not as in the store.
    references, confidence, until
        As for :func:`memlab.recommend_cap`.
    law : ReachPrior, optional
        What was needed elsewhere; the one that was fitted on evidence of the same kind when not
        given, both kinds by how many of each the store has.
    """
    call = "memlab.sizing.prepare_sizing"
    arguments.expect(law, ReachPrior, call=call, name="law", optional=True)
    return prepared(frame, references, confidence, until, law, call=call)


def in_tokens(sizing: Sizing) -> BudgetSizing:
    """Return the sizing for budgets in tokens from the sizing for caps."""
    history = sizing.history
    in_memories = sizing.references
    target = in_memories.target
    at = in_memories.at
    alone = history.largest_ranks(target, at, in_tokens=True)
    took = history.largest_ranks(target, at, in_tokens=True, with_floor=True)
    lengths = history.tokens[history.ever_prunable]
    mean = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
    ranks = np.ceil(alone / mean).astype(np.int64)
    in_means = replace(in_memories, rank=ranks).beyond_gaps(sizing.terms.law)
    further = np.ceil((in_means.rank - ranks) * mean).astype(np.int64)
    gaps = sizing.gaps
    if gaps.cap is not None:
        # The budget that deleted those memories had room for all later ones, but not for one more.
        since = lengths[len(lengths) - gaps.cap :].sum() + lengths.max(initial=0)
        gaps = gaps._replace(cap=int(np.ceil(since / mean)))
    return BudgetSizing(
        history=history,
        present=sizing.present,
        references=in_means,
        unmatched_references=sizing.unmatched_references,
        terms=sizing.terms,
        source=sizing.source,
        gaps=gaps,
        lacks_past=sizing.lacks_past,
        reads=sizing.reads,
        mean=mean,
        took=took + further,
    )


def prepared(
    frame: Memories,
    references: pd.DataFrame | None,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
    law: ReachPrior | None = None,
    *,
    call: str,
) -> Sizing:
    """Prepare a frame on behalf of a public call."""
    frame, references = in_reach(*with_references(frame, references, call=call))
    is_read = references[c.KIND] == "log"
    # Without references, use the kind of evidence that suits the store's system.
    reads = float(is_read.mean() if len(is_read) else c.LOADED_AT_START in frame)
    law = mixture_prior(reads) if law is None else law
    gaps = gaps_of(frame) if c.DELETED_AT in frame else Gaps()
    lacks_past = c.DELETED_AT not in frame and bool(frame.attrs.get(c.HAS_PAST))
    frame = fill_missing_rows(frame)
    history = History.of(frame)
    fitting = Ranked.of(frame, history, references)
    return Sizing(
        history=history,
        present=Present.of(frame),
        references=fitting.beyond_gaps(law),
        unmatched_references=len(references) - len(fitting),
        terms=PosteriorSettings(confidence=confidence, until=until, law=law),
        source=str(frame.attrs.get(c.SOURCE, "")),
        gaps=gaps,
        lacks_past=lacks_past,
        reads=reads,
    )


def cap_curve(
    frame: Memories,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
) -> pd.DataFrame:
    """Compute what every cap serves, and what it costs.

    What a cap would have served in the past is exact, under supersession too: a reference counts as
    served iff its target would still be in a store that was compacted to that cap after every row
    written and whatever it replaced. What it will serve from now on is estimated from those
    references and from other projects', weighed by how many there are. The arguments are those of
    :func:`memlab.recommend_cap`.

    Returns
    -------
    DataFrame
        Indexed by ``keep_recent`` from 0 to the prunable rows there would be now, had none been
        deleted; every cap up to `EVERY_CAP` rows, beyond that those where the share seen changes
        and a spread of others.

        ==========================  ==========================================================
        ``served``                  estimated share of references served in the next stretch
        ``low``, ``high``           its limits
        ``served_own``              the same by the store's own references alone
        ``served_elsewhere``        the same by other projects' references alone
        ``served_observed``         plain share of the store's references so far
        ``boot_memories``,          the active rows if the store were compacted to this cap now,
        ``boot_tokens``             and their tokens
        ``boot_*_mean, _p95, _max`` the same over the history under continuous compaction, one
                                    value for each row written; caps at which they were computed
                                    are in ``attrs``, between those they are interpolated
        ``prunable_share``,         prunable share of the boot context now, by number and by tokens
        ``prunable_share_tokens``
        ``pruned``                  rows that would go now
        ``days``                    from the newest row back to the oldest prunable one kept
        ==========================  ==========================================================

        ``served_own`` and ``served_observed`` are NaN without a reference.
    """
    call = "memlab.sizing.cap_curve"
    return prepared(frame, references, confidence, until, call=call).curve


def _spread(most: int, count: int) -> Ints:
    """Return about `count` whole numbers from 0 to `most`, evenly spaced by ratio."""
    return np.unique(np.append(np.geomspace(1, most + 1, count).astype(np.int64) - 1, most))
