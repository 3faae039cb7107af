"""What every cap, and every budget in tokens, serves and costs."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
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
from memlab.evidence.references import with_references
from memlab.frame.fields import Ints
from memlab.sizing import record
from memlab.sizing.history import SHORT, History, Present, Ranked

Columns = dict[str, npt.NDArray[Any]]

KEEP_RECENT: Final = "keep_recent"
"""Name of the curve's index."""

MAX_TOKENS: Final = "max_tokens"
"""Name of the index of a curve of budgets."""

EXACT_AT: Final = "boot_history_exact_at"
"""Key of ``curve.attrs``: the caps at which the statistics over history were computed."""

EVERY_CAP: Final = 4096
"""Up to this many prunable rows, the curve has a line for every cap."""

ROUND_CAPS: Final = np.array([step * 10**zeros for zeros in range(9) for step in (1, 2, 5)])
"""Caps that people ask for: they have a line of their own in every curve that reaches them."""

AROUND: Final = (0, *ROUND_CAPS[3:15].tolist())
"""Those of them that a table shows beside an answer."""

MOMENTS: Final = 30_000_000
"""Moments that the statistics over history walk in one curve, about a second: caps times rows."""

FEWEST_EXACT: Final = 24
"""Caps at which those statistics are computed however long the history is: four per decade."""


@dataclass(frozen=True)
class CurvePoint:
    """What one cap serves and costs.

    `boot_tokens` are those of now, were the store compacted to this cap, `boot_tokens_p95` those
    over the history under continuous compaction; `days` of memory are what it buys now.
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
    """What one budget in tokens serves and costs: it keeps `keep_recent` memories now."""

    max_tokens: int

    @property
    def number(self) -> int:
        """The budget."""
        return self.max_tokens


@dataclass(frozen=True)
class Sizing:
    """A store prepared for sizing: after this, a look-up at any cap or target is cheap.

    Attributes
    ----------
    history, present, references
        The store as arrays.
    unmatched_references : int
        References that did not fit the frame: no such target, or one written later.
    terms : PosteriorSettings
        What limits go by: ``confidence``, ``until`` and ``law``.
    source : str
        What the store is called.
    gaps, lacks_past : Gaps, bool
        Memories deleted without an archive; whether the frame lacks what the archive keeps.
    reads : float
        How much of its evidence are reads, from 0 to 1, the rest references by name; of a store
        without any, what suits its system.
    mean : float
        What a memory of mean length adds to the number: one to a cap, its tokens to a budget.
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
    """What the number is called in a sentence."""

    @property
    def lost(self) -> int:
        """References to memories that were deleted without an archive."""
        return int(self.references.lost.sum())

    @cached_property
    def cuts(self) -> list[record.BacktestSplit]:
        """The store as it was at earlier moments, and what was referred to afterwards."""
        return record.backtest_splits(self.history, self.references, self.terms, record.CUTS)

    @cached_property
    def ahead(self) -> Posterior:
        """The cap for each share in the next stretch, with limits that its record widens."""
        plain = record.posterior_of(self.history, self.references, self.terms)
        return replace(plain, interval_inflation=record.widening(self.cuts))

    def choose(self, target: float) -> record.Choice:
        """Choose by all evidence, not below the cap that removed its own: it would shrink on."""
        choice = record.choose_cap(
            self.ahead,
            target=target,
            prunable=int(np.ceil((self.most - self.floor) / self.mean)),
            far_share=self.references.far_share,
        )
        spare = 1 - target
        verdict = record.Verdict.HISTORY_INCOMPLETE
        if (least := self.gaps.cap) is not None:
            cap = max(choice.keep_recent, least)
            likely = max(choice.likely, least)
            return record.Choice(verdict, cap, (choice.interval[0], cap), likely)
        lost = self.lost / max(len(self.references), 1)
        if 2 * lost > spare or self.gaps.memories > spare * len(self.history):
            return replace(choice, verdict=verdict)
        return choice

    @property
    def missing(self) -> int:
        """References or reads until the store's own weigh half."""
        return max(0, round(self.terms.law.worth) - self.references.cluster_count)

    def number_for(self, cap: int) -> int:
        """Return the number that keeps so many memories: the cap, or a budget."""
        return self.floor + int(np.ceil(cap * self.mean))

    def around(self, *numbers: int | None) -> list[int]:
        """Return the numbers given, those that keep round numbers of memories, and all there is."""
        round_ones = {self.number_for(cap) for cap in AROUND}
        wanted = {each for each in round_ones if each < self.most} | {self.most}
        return sorted(wanted | {each for each in numbers if each is not None})

    @property
    def floor(self) -> int:
        """What the load-bearing memories take of the number: nothing of a cap."""
        return 0

    @property
    def most(self) -> int:
        """The number that keeps all that is there now."""
        return self.present.prunable

    def end(self, number: int) -> CurvePoint:
        """Return what a number serves and costs; of past starts under a budget nothing."""
        row = {name: values[0].item() for name, values in self._columns(np.array([number])).items()}
        p95 = row.get("boot_tokens_p95")
        limits = (row["low"], row["high"])
        costs = row["served"], limits, row["boot_tokens"], p95, row["days"]
        if "kept" in row:
            return BudgetEnd(row["kept"], *costs, max_tokens=number)
        return CurvePoint(number, *costs)

    def _served(self, caps: Ints) -> Columns:
        """Return the share that each cap serves, estimated, and its limits."""
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
        if len(every) > EVERY_CAP:  # those at which the share seen changes, and a spread of others
            changes = np.flatnonzero(np.bincount(self.references.rank, minlength=1))
            wanted = [_spread(every[-1], EVERY_CAP // 8), ROUND_CAPS, changes, exact]
            caps = np.unique(np.concatenate(wanted))
            caps = caps[caps <= every[-1]]
        over_history = self.history.boot_at(exact)
        between = {name: np.interp(caps, exact, known) for name, known in over_history.items()}
        curve = pd.DataFrame(self._columns(caps, between), index=pd.Index(caps, name=KEEP_RECENT))
        # a range where it can be: pandas copies attrs at every step
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
        """Return the curve at these caps, each computed exactly."""
        wanted = np.array([arguments.whole_number("cap", cap) for cap in caps], dtype=np.int64)
        return pd.DataFrame(self._columns(wanted), index=pd.Index(wanted, name=KEEP_RECENT))

    def largest_within(self, token_budget: int) -> int | None:
        """Return the largest cap whose boot context stays within a budget; None where none does.

        It does now, and in 95% of starts over the history: where memories have grown longer, what a
        cap keeps now may be more than it ever kept.
        """
        present = self.present
        fits = -1
        fails = self.history.prunable + 1
        at_once = 64 if len(self.history) <= SHORT else 2  # of a short one more cost no more
        while fails - fits > 1:
            caps = np.unique(np.linspace(fits + 1, fails - 1, at_once + 2)[1:-1].astype(np.int64))
            now = present.floor.tokens + present.tokens_newest[np.minimum(caps, present.prunable)]
            most = np.maximum(now, self.history.boot_at(caps)["boot_tokens_p95"])
            fits = int(caps[most <= token_budget].max(initial=fits))
            fails = int(caps[most > token_budget].min(initial=fails))
        return None if fits < 0 else fits

    def _columns(self, caps: Ints, over_history: Columns | None = None) -> Columns:
        """Return the shares served, and what the caps would leave of the store."""
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

    Under `TokenBudget` a memory stays as long as it, all that is newer and the floor fit. So its
    age rank in tokens is how many these take, budgets keep nested sets as caps do, and one pass
    over the history gives every budget. How far back the next references will reach is known in
    memories; one of mean length stands for so many tokens.

    Attributes
    ----------
    history, present, references, unmatched_references, terms, source, gaps, lacks_past, reads, mean
        As of a `Sizing`, age ranks and the gaps' cap in memories of mean length.
    took : array of int64
        The budget that each reference took, floor included; 0 for one to a load-bearing memory. Of
        one to what was deleted without an archive, what the law expects.
    """

    took: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    WORD: ClassVar = "budget"

    @property
    def floor(self) -> int:
        """What the load-bearing memories take now."""
        return self.present.floor.tokens

    @property
    def most(self) -> int:
        """What all that is loaded now takes."""
        return self.present.tokens

    def at(self, budgets: Iterable[int]) -> pd.DataFrame:
        """Return the curve at these budgets."""
        wanted = np.array([arguments.whole_number(MAX_TOKENS, each) for each in budgets], np.int64)
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
        """Return the budget itself; None where the load-bearing memories take more."""
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
    """Return a store that is prepared for caps prepared for budgets in tokens."""
    history = sizing.history
    found = sizing.references
    alone = history.largest_ranks(found.target, found.at, in_tokens=True)
    took = history.largest_ranks(found.target, found.at, in_tokens=True, with_floor=True)
    lengths = history.tokens[history.ever_prunable]
    mean = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
    ranks = np.ceil(alone / mean).astype(np.int64)
    in_means = replace(found, rank=ranks).beyond_gaps(sizing.terms.law)
    further = np.ceil((in_means.rank - ranks) * mean).astype(np.int64)
    gaps = sizing.gaps
    if gaps.cap is not None:
        # The budget that deleted what is gone had room for all since, and not for one more.
        since = lengths[len(lengths) - gaps.cap :].sum() + lengths.max(initial=0)
        gaps = gaps._replace(cap=int(np.ceil(since / mean)))
    seen = {each.name: getattr(sizing, each.name) for each in fields(sizing)}
    seen |= {"references": in_means, "gaps": gaps, "mean": mean}
    return BudgetSizing(**seen, took=took + further)


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
    logged = references[c.KIND] == "log"  # without any, what suits its system
    reads = float(logged.mean() if len(logged) else c.LOADED_AT_START in frame)
    law = mixture_prior(reads) if law is None else law
    gaps = gaps_of(frame) if c.DELETED_AT in frame else Gaps()
    lacks_past = c.DELETED_AT not in frame and bool(frame.attrs.get(c.HAS_PAST))
    frame = fill_missing_rows(frame)
    history = History.of(frame)
    fitting = Ranked.of(frame, history, references)
    return Sizing(
        history,
        Present.of(frame),
        fitting.beyond_gaps(law),
        len(references) - len(fitting),
        PosteriorSettings(confidence, until, law),
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
    """Return about `count` caps from 0 to `most`, evenly spaced by ratio."""
    return np.unique(np.append(np.geomspace(1, most + 1, count).astype(np.int64) - 1, most))
