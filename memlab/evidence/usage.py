"""Compare recency and past use as predictors of the memories that agents read next.

Each read is predicted from the state at the beginning of its day. Use is base-level activation, the
formula of `memlab.Activation`, computed from the reads known by then.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from memlab import arguments
from memlab import columns as c
from memlab.evidence.defaults import DEFAULT_CONFIDENCE
from memlab.evidence.past import HistoryLike, in_reach
from memlab.evidence.references import references_on_rows, successors
from memlab.evidence.store_history import with_references
from memlab.evidence.use_times import Uses, days_since_1970, per_length, ranks_above
from memlab.frame.fields import Flags, Floats, Ints, inherited_attrs
from memlab.text import DisplayMixin, Table, TextPage, counted, percent, signed_percent

UsageVerdict = Literal["use", "age", "too-few-reads"]

SIZES: Final = (0.1, 0.25, 0.5)
"""Shares of a store at which age and use are compared."""
PERIOD_VARIANCE: Final = 0.12
"""Variance of the served share between two periods of a store beyond sampling noise, in units of
the variance of one read. ``bench_activation.py --between`` measures .03 to .07 on public stores.
The rest is a margin: if only best hits count, 82 % of cuts reached a limit that promises 90 %."""
MAX_EQUAL_GAIN: Final = 0.05
"""Largest gain of use over age at which age is enough."""
MIN_READS: Final = 20
"""Smallest number of reads for a verdict."""
MIN_DAYS: Final = 10
"""Smallest number of days with reads for a verdict."""

USE_GROUPS: Final = ("never", "once", "twice", "three or four times", "five times or more")
"""Groups of memories by the number of days on which they had been read."""
QUARTERS: Final = ("newest quarter", "second quarter", "third quarter", "oldest quarter")
GROUPS: Final = (*USE_GROUPS, *QUARTERS)
MEASURES: Final = (c.MEMORIES, c.TOKENS)
"""Units in which the loaded part of a store is measured."""
_DAYS_IN_WORDS: Final = {1: "one day or more", 2: "two days or more", 3: "three or more"}
_GROUP_STARTS: Final = (1, 2, 3, 5)
"""The smallest number of days of each group of `USE_GROUPS` but the first."""
_LEFT_OUT_WORDS: Final = (
    "again on that day, on the day the memory was written, or of a load-bearing or superseded one"
)
_ROUNDING: Final = 1e-9
"""Tolerance for comparisons of shares."""
_NEVER: Final = np.iinfo(np.int64).max
"""The day of an event that never happens or has no time. It is later than every other day."""
ORDERS: Final = ("newest", "most active")
"""Orders of the memories: by age and by activation, each with the first to load first."""
_DECIDING_SIZE: Final = 0.25
"""Share of a store at which the verdict compares age and use."""


class PredictedReads(NamedTuple):
    """Reads in order of time, each predicted from the beginning of its day.

    Attributes
    ----------
    day : array of int64, shape (reads,)
        Day of each read.
    reach : array of float64, shape (reads, 4)
        Share of the store to load so that the read finds its memory: of memories by age and by
        activation, then of tokens by age and by activation.
    observed, expected : array of float64, shape (reads, groups)
        Membership of the memory in each of `GROUPS` (0 or 1), and the share of all memories in it.
    times : array of int64, shape (memories,)
        Number of days with reads of each memory that was present on a day with reads.
    """

    day: Ints
    reach: Floats
    observed: Floats
    expected: Floats
    times: Ints


def score_recency_vs_use(
    created: Floats, removed_on: Ints, tokens: Ints, at: Floats, target: Ints
) -> PredictedReads:
    """Score each read by age and by activation, from the state at the beginning of its day.

    A memory counts once a day. Reads of memories that were not present when the day began are left
    out. The activation is computed from all reads before the day, as `memlab.Activation` does.

    Parameters
    ----------
    created : array of float, shape (memories,)
        Days since 1970 at which each memory was written, in order of position; NaN if unknown.
    removed_on : array of int, shape (memories,)
        Day on which each memory was replaced or deleted.
    tokens : array of int, shape (memories,)
        Length of each memory.
    at : array of float, shape (reads,)
        Days since 1970 at which each read arose.
    target : array of int, shape (reads,)
        The memory of each read.
    """
    written = _whole_days(created)
    is_use = at >= created[target]
    order = np.argsort(at[is_use], kind="stable")
    uses = Uses(created, target[is_use][order], at[is_use][order])
    # One column for each pair of a day and a memory, in order of the day.
    day, target = np.unique(np.stack([_whole_days(at), target]), axis=1)
    is_present = (written[target] < day) & (day <= removed_on[target])
    day = day[is_present]
    target = target[is_present]
    days, start = np.unique(day, return_index=True)
    reach = np.empty((len(day), len(MEASURES) * len(ORDERS)))
    observed = np.zeros((len(day), len(GROUPS)))
    expected = np.zeros((len(day), len(GROUPS)))
    times = np.zeros(len(written), np.int64)
    # `start` begins with 0, so that the first part of the split is empty.
    reads_by_day = np.split(np.arange(len(day)), start)[1:]
    for today, reads in zip(days, reads_by_day, strict=True):
        present = np.flatnonzero((written < today) & (today <= removed_on))
        targets = target[reads]
        place_among_present = np.searchsorted(present, targets)
        count = len(present)
        newer_count = count - 1 - place_among_present
        observed[reads, use_group(times[targets])] = 1
        quarter = len(QUARTERS) * newer_count // count  # 0 is the newest
        observed[reads, len(USE_GROUPS) + quarter] = 1
        group_sizes = np.bincount(use_group(times[present]), minlength=len(USE_GROUPS))
        expected[reads, : len(USE_GROUPS)] = group_sizes / count
        quarter_of_place = len(QUARTERS) * np.arange(count) // count
        quarter_sizes = np.bincount(quarter_of_place, minlength=len(QUARTERS))
        expected[reads, len(USE_GROUPS) :] = quarter_sizes / count
        levels = uses.levels(float(today), uses.when < today, present)
        reach[reads] = _reach_of(levels, np.maximum(tokens[present], 1), place_among_present)
        times[targets] += 1
    # The first day with reads after the day on which each memory was written, or never.
    next_day_number = np.searchsorted(days, written, side="right")
    first_chance = np.append(days, _NEVER)[next_day_number]
    could_be_read = (first_chance <= removed_on) & (first_chance < _NEVER)
    return PredictedReads(
        day=day, reach=reach, observed=observed, expected=expected, times=times[could_be_read]
    )


def _reach_of(levels: Floats, tokens: Ints, place: Ints) -> Floats:
    """Return the share to load so that each read finds its memory, see `PredictedReads.reach`.

    Parameters
    ----------
    levels, tokens : array, shape (memories,)
        Activation and length of the memories that are present, in order of position.
    place : array of int, shape (reads,)
        The place of the memory of each read among them.
    """
    reach = np.empty((len(place), len(MEASURES) * len(ORDERS)))
    tokens_by_age = np.cumsum(tokens[::-1])[::-1]  # tokens of each memory and all newer ones
    all_tokens = tokens_by_age[0]
    by_length = per_length(levels, tokens)
    for row, target in enumerate(place.tolist()):
        is_before: Flags = ranks_above(levels, target)
        is_before_by_length = ranks_above(by_length, target)
        memories_by_age = len(levels) - target
        memories_by_activation = np.count_nonzero(is_before) + 1
        tokens_by_activation = tokens[is_before_by_length].sum() + tokens[target]
        reach[row] = (
            memories_by_age / len(levels),
            memories_by_activation / len(levels),
            tokens_by_age[target] / all_tokens,
            tokens_by_activation / all_tokens,
        )
    return reach


def use_group(times: Ints) -> Ints:
    """Return the number of the group in `USE_GROUPS` for each number of days with reads."""
    return np.searchsorted(_GROUP_STARTS, times, side="right")


def chances_of(reads: PredictedReads, confidence: float) -> pd.DataFrame:
    """Return the chance of each of `GROUPS` to be read next, relative to the mean, with limits.

    The limits are Byar's approximation for a Poisson count (Breslow and Day 1987). The count is
    divided by the design effect of reads of one day, which are alike (Kish 1965).
    """
    observed = reads.observed.sum(axis=0)
    expected = reads.expected.sum(axis=0)
    quantile = NormalDist().inv_cdf(confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = observed / expected
        deviations = reads.observed - chance * reads.expected
        design_effect = np.fmax(1, _cluster_squares(reads.day, deviations) / observed)
        effective_count = observed / design_effect
        low = _byar_limit(effective_count, -quantile) * design_effect / expected
        high = _byar_limit(effective_count + 1, quantile) * design_effect / expected
    table = {
        "reads": observed.astype(np.int64),
        "expected": expected,
        "chance": chance,
        "low": low,
        "high": high,
        "other_stores": other_stores()["chance"],
    }
    return pd.DataFrame(table, index=pd.Index(GROUPS, name="group"))


def _byar_limit(count: Floats, quantile: float) -> Floats:
    """Return Byar's limit of a Poisson count at a normal quantile (Breslow and Day 1987)."""
    cube_root = 1 - 1 / (9 * count) + quantile / (3 * np.sqrt(count))
    limit: Floats = np.fmax(count * cube_root**3, 0)
    return limit


class Estimate(NamedTuple):
    """A share, or a difference of shares, with its lower and upper limit."""

    value: float
    low: float
    high: float


def gain_of(reads: PredictedReads, confidence: float) -> Estimate:
    """Return the gain of the most active quarter over the newest in served share, with its limits.

    The variance is that of sums by day (cluster sampling, Kish 1965).
    """
    reach_in_memories = reads.reach[:, : len(ORDERS)]  # shape (reads, 2): by age, by activation
    is_served = (reach_in_memories <= _DECIDING_SIZE + _ROUNDING).astype(np.float64)
    gain_per_read = is_served[:, 1] - is_served[:, 0]
    count = max(len(reads.day), 1)
    days = len(np.unique(reads.day))
    gain = float(gain_per_read.sum()) / count
    cluster_squares = float(_cluster_squares(reads.day, gain_per_read - gain))
    variance_of_sum = cluster_squares * days / max(days - 1, 1)
    half_width = NormalDist().inv_cdf(confidence) * float(np.sqrt(variance_of_sum)) / count
    return Estimate(value=gain, low=gain - half_width, high=gain + half_width)


def verdict_of(reads: int, days: int, gain: Estimate) -> UsageVerdict:
    """Return the verdict from the number of reads, of days with reads, and `gain_of`."""
    if reads < MIN_READS or days < MIN_DAYS:
        return "too-few-reads"
    if gain.high <= MAX_EQUAL_GAIN:
        return "age"
    if gain.low > 0:
        return "use"
    return "too-few-reads"


def share_with_limits(day: Any, is_served: Floats, confidence: float) -> Estimate:
    """Return the share of reads that found their memory, and its limits for as many later reads.

    The limits are Wilson's score interval (Wilson 1927) for half the reads, because the later share
    has sampling noise too. The variance grows by the design effect of reads of one day (Kish 1965)
    and by `PERIOD_VARIANCE`.
    """
    share = float(is_served.mean())
    quantile = NormalDist().inv_cdf(confidence)
    variance = share * (1 - share)
    design_effect = 1.0
    if variance:
        cluster_squares = float(_cluster_squares(day, is_served - share))
        design_effect = max(1.0, cluster_squares / (len(is_served) * variance))
    relative_variance = quantile * quantile * (2 * design_effect / len(is_served) + PERIOD_VARIANCE)
    half_width = np.sqrt(relative_variance * (variance + relative_variance / 4))
    low = (share + relative_variance / 2 - half_width) / (1 + relative_variance)
    high = (share + relative_variance / 2 + half_width) / (1 + relative_variance)
    return Estimate(value=share, low=float(low), high=float(high))


def served_by(reads: PredictedReads) -> pd.DataFrame:
    """Return the share of reads that found their memory, by the loaded share of the store."""
    shares = np.arange(101) / 100
    # The shape is (shares, reads, 4), and that of the sum over the reads is (shares, 4).
    is_served = reads.reach <= shares[:, np.newaxis, np.newaxis] + _ROUNDING
    served = is_served.sum(axis=1) / max(len(reads.day), 1)
    names = pd.MultiIndex.from_product([MEASURES, ORDERS])
    return pd.DataFrame(served, index=pd.Index(shares, name="loaded"), columns=names)


@dataclass(frozen=True, repr=False)
class AgeOrUse(DisplayMixin):
    """Comparison of age and use as predictors of the next reads.

    Attributes
    ----------
    verdict : {"use", "age", "too-few-reads"}
        ``use`` if the lower limit of `gain` is above 0. ``age`` if its upper limit is at most five
        points. ``too-few-reads`` if neither holds, or if there are fewer than 20 reads or 10 days.
    reads, days : int
        Reads that count, at most one a day for each memory, and days with such reads.
    left_out : int
        Other reads of the log: further reads of a memory on one day, reads on the day it was
        written, and reads of load-bearing or replaced memories.
    memories : int
        Memories that could be read.
    again : tuple of float
        Share of them that was read on at least one, two and three days.
    chances : DataFrame
        One row for each number of days with reads, and for each quarter by age: ``reads``; the
        number ``expected`` if all memories were equally likely; ``chance``, the quotient of both,
        with its limits ``low`` and ``high``; and the chance in ``other_stores``.
    served : DataFrame
        Share of reads that found their memory, by the share of the store that was loaded: of the
        ``memories`` and of the ``tokens``, each the ``newest`` and the ``most active`` first.
    gain : Estimate
        Share of reads that the most active quarter serves minus that of the newest: ``value``, with
        its limits ``low`` and ``high``.

    Examples
    --------
    >>> import memlab
    >>> result = memlab.evidence.age_or_use(memlab.store_path("looked_up"))
    >>> result.reads, result.verdict  # without its access log
    (0, 'too-few-reads')
    """

    reads: int
    days: int
    left_out: int
    memories: int
    again: tuple[float, ...]
    chances: pd.DataFrame
    served: pd.DataFrame
    gain: Estimate

    @property
    def verdict(self) -> UsageVerdict:
        """The better predictor by the limits of the gain, or ``too-few-reads``."""
        return verdict_of(self.reads, self.days, self.gain)

    @property
    def decided(self) -> bool:
        """Whether the reads are enough to tell age from use."""
        return self.verdict != "too-few-reads"

    @property
    def figures(self) -> dict[str, Any]:
        """All fields as JSON values, with ``served`` at `SIZES` only."""
        served = []
        for measure in MEASURES:
            for size in SIZES:
                by_order = self.served[measure].loc[size].to_dict()
                served.append({"of": measure, "loaded": size, **by_order})
        return {
            "verdict": self.verdict,
            "reads": self.reads,
            "days": self.days,
            "left_out": self.left_out,
            "memories": self.memories,
            "again": self.again,
            "gain": self.gain,
            "chances": json.loads(self.chances.reset_index().to_json(orient="records")),
            "served": served,
        }

    @property
    def answer(self) -> str:
        """The verdict in one line, with the shares that both quarters serve."""
        conclusions = {
            "use": "use says more than age",
            "age": "age is enough",
            "too-few-reads": "too few reads to tell age from use",
        }
        conclusion = conclusions[self.verdict]
        reads_and_days = f"{counted(self.reads, 'reads')} on {counted(self.days, 'days')}"
        if not self.reads:
            return f"{conclusion}: {reads_and_days}"
        newest, most_active = self.served[c.MEMORIES].loc[_DECIDING_SIZE]
        return (
            f"{conclusion}: the most active quarter of the memories serves "
            f"{percent(most_active, 0)} of {reads_and_days}, the newest {percent(newest, 0)}"
        )

    def sheet(self) -> TextPage:
        """Return the printed page: the answer and its figures, beside those of other stores."""
        other_figures = other_stores()
        facts = []
        other_shares_read = other_figures["again"]
        shares_read = zip(_DAYS_IN_WORDS.values(), self.again, other_shares_read, strict=True)
        for days, own_share, other_share in shares_read:
            own_words = f"{percent(own_share, 0)} of {counted(self.memories)}"
            other_words = f"{percent(other_share, 0)} in other stores"
            facts.append((f"read on {days}", f"{own_words}; {other_words}"))
        gain, low, high = map(signed_percent, self.gain)
        facts.append(("use over age", f"{gain} points, limits {low} to {high}"))
        facts.append(("not looked at", f"{counted(self.left_out, 'reads')}: {_LEFT_OUT_WORDS}"))
        chances = []
        for group, row in self.chances.iterrows():
            figures = [_shown(row[name]) for name in ("chance", "low", "high", "other_stores")]
            chances.append((str(group), f"{int(row['reads']):,}", *figures))
        other_served = other_figures["served"]
        other_rows = [*other_served[c.MEMORIES], *other_served[c.TOKENS]]
        served = []
        for row, other_shares in zip(self.figures["served"], other_rows, strict=True):
            own_shares = [row[order] for order in ORDERS]
            loaded_part = f"{percent(row['loaded'], 0)} of {row['of']}"
            percentages = [percent(share, 0) for share in (*own_shares, *other_shares)]
            served.append((loaded_part, *percentages))
        header = ("read before, or age", "reads", "chance", "low", "high", "other stores")
        loaded = ("loaded", "newest", "most active", "newest elsewhere", "most active elsewhere")
        tables = [
            Table("Chance to be read next, in times the mean", header, chances),
            Table("Reads that found their memory", loaded, served),
        ]
        return TextPage(self.answer, facts, tables if self.reads else ())


@cache
def other_stores() -> dict[str, Any]:
    """Return the figures of public stores, which ``data/fit_law.py`` writes."""
    text = files("memlab.evidence").joinpath("laws", "usage.json").read_text("utf-8")
    figures: dict[str, Any] = json.loads(text)
    return figures


def age_or_use(
    frame: HistoryLike,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
) -> AgeOrUse:
    """Compare recency and past use as predictors of the next reads, by the reads so far.

    Each read is predicted from the state at the beginning of its day. A memory counts at most once
    a day, and not on the day it was written. Load-bearing memories are left out, because they are
    always loaded; so are memories that were replaced or deleted by then.

    Use is base-level activation (Anderson and Schooler 1991), the formula of
    :class:`memlab.Activation`: the sum of ``t ** -0.5`` over the days ``t`` since a memory was
    written and since each day on which it was read. For a part of the tokens it is divided by
    ``(tokens + 10) ** 0.4``.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        A frame from ``memlab.load_past``, or a store, whose history and logs are loaded.
    references : DataFrame, optional
        References from ``find_references`` with an access log. Only reads count.
    confidence : float
        One-sided confidence of each limit, above 0.5 and below 1.

    Returns
    -------
    AgeOrUse
        The verdict, with the shares of reads that age and use serve, and their limits.

    Raises
    ------
    ValueError
        If `confidence` is out of range.
    MemlabError
        If the store or a log cannot be read.

    Examples
    --------
    >>> import memlab
    >>> from memlab.evidence import age_or_use
    >>> past = memlab.load_past(memlab.store_path("looked_up"))
    >>> log = memlab.read_access_log(memlab.store_path("looked_up").with_suffix(".reads.jsonl"))
    >>> age_or_use(past, memlab.find_references(past, log)).verdict
    'use'
    """
    arguments.confidence("confidence", confidence)
    call = "memlab.evidence.age_or_use"
    past, references = with_references(frame, references, call=call)
    past, references = in_reach(past, references)
    prunable = ~past[c.LOAD_BEARING].to_numpy(bool)
    log = references[(references[c.KIND] == "log").to_numpy()]
    on_rows = references_on_rows(past[prunable], log)
    created = _moments(past[c.CREATED_AT])
    removed_on = _removal_days(past, _whole_days(created))
    tokens = past[c.TOKENS].to_numpy(np.int64)
    reads = score_recency_vs_use(
        created=created[prunable],
        removed_on=removed_on[prunable],
        tokens=tokens[prunable],
        at=_moments(log[c.AT])[on_rows.place],
        target=on_rows.target,
    )
    chances = chances_of(reads, confidence)
    served = served_by(reads)
    chances.attrs = inherited_attrs(past)
    served.attrs = inherited_attrs(past)
    return AgeOrUse(
        reads=len(reads.day),
        days=len(np.unique(reads.day)),
        left_out=len(log) - len(reads.day),
        memories=len(reads.times),
        again=tuple(_share_read_on(reads.times, days) for days in _DAYS_IN_WORDS),
        chances=chances,
        served=served,
        gain=gain_of(reads, confidence),
    )


def _share_read_on(times: Ints, days: int) -> float:
    """Return the share of memories that were read on at least so many days; 0 without memories."""
    return float((times >= days).sum()) / max(len(times), 1)


def _moments(times: pd.Series) -> Floats:
    """Return times in days since 1970, with NaN for a missing time."""
    return days_since_1970(times.to_numpy("datetime64[us]"))


def _whole_days(moments: Floats) -> Ints:
    """Return the UTC day of each moment, with `_NEVER` for a missing one."""
    is_known = ~np.isnan(moments)
    days = np.full(len(moments), _NEVER)
    days[is_known] = np.floor(moments[is_known]).astype(np.int64)
    return days


def _removal_days(past: pd.DataFrame, written: Ints) -> Ints:
    """Return the day on which each memory was replaced or deleted, or `_NEVER`."""
    removed_on = np.full(len(past), _NEVER)
    if c.DELETED_AT in past:
        removed_on = _whole_days(_moments(past[c.DELETED_AT]))
    rows, successor = successors(past)
    replaced_on = np.where(successor > rows, written[successor], _NEVER)
    removed_on[rows] = np.minimum(removed_on[rows], replaced_on)
    return removed_on


def _cluster_squares(day: Ints, deviations: Floats) -> Floats:
    """Return the sum over days of the squared sum of the deviations of each day.

    `deviations` has one row for each read. If it has columns, the result is one sum for each.
    """
    _, number_of_day = np.unique(day, return_inverse=True)
    # One row for each day. There are at most as many days as reads; the other rows stay 0.
    sums = np.zeros((len(day), *deviations.shape[1:]))
    np.add.at(sums, number_of_day, deviations)
    squares: Floats = (sums**2).sum(axis=0)
    return squares


def _shown(chance: float) -> str:
    """Return a chance or a limit as text; a dash if it is not a finite number."""
    return f"{chance:.2f}" if np.isfinite(chance) else "–"
