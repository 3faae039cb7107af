"""Age or use: which of the two says what a store's agents read next.

Reads are judged by what was known when their day began. Use is the days on which a memory was
read, each fading to half in `HALF_LIFE` days.
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
from memlab.evidence.past import Memories, in_reach
from memlab.evidence.prior import DEFAULT_CONFIDENCE
from memlab.evidence.references import references_on_rows, successors, with_references
from memlab.frame.fields import Floats, Ints, passed_on
from memlab.text import DisplayMixin, Table, TextPage, counted

UsageVerdict = Literal["use", "age", "too-few-reads"]

HALF_LIFE: Final = 14.0
"""Days in which what a read says fades by half."""
SIZES: Final = (0.1, 0.25, 0.5)
"""Shares of a store at which age and use are compared; of memories, a quarter decides."""
BETWEEN: Final = 0.12
"""By how much what is served varies from one stretch of a store to the next beyond the noise of
both, in times the variance of one read; ``bench_activation.py --between`` measures it."""
AS_GOOD: Final = 0.05
"""Age is enough where use serves at most so much more."""
FEWEST: Final = (20, 10)
"""Reads, and days on which they were made, with less of which nothing is said."""

TIMES: Final = ("never", "once", "twice", "three or four times", "five times or more")
"""On how many days a memory had been read."""
QUARTERS: Final = ("newest quarter", "second quarter", "third quarter", "oldest quarter")
GROUPS: Final = (*TIMES, *QUARTERS)
MEASURES: Final = (c.MEMORIES, c.TOKENS)
"""What is loaded of a store: so many memories, or tokens."""
_AGAIN: Final = {1: "one day or more", 2: "two days or more", 3: "three or more"}
_TIMES_FROM: Final = (1, 2, 3, 5)
_LEFT_OUT: Final = (
    "again on that day, on the day the memory was written, or of a load-bearing or superseded one"
)
_BLUR: Final = 1e-9
_NEVER: Final = np.iinfo(np.int64).max
ORDERS: Final = ("newest", "most used")


class LookBack(NamedTuple):
    """Reads in order of time, each seen from the beginning of its day.

    `reach` is the share of the store to load to have it, by age and by use; of `GROUPS`, `seen` is
    its own, `expected` the share of memories in each. `times` counts days of reads.
    """

    day: Ints
    reach: Floats
    seen: Floats
    expected: Floats
    times: Ints


def score_recency_vs_use(
    written: Ints, left: Ints, tokens: Ints, day: Ints, target: Ints
) -> LookBack:
    """Look at reads in whole days, once a day, of what was there when the day began."""
    day, target = np.unique(np.stack([day, target]), axis=1)
    there = (written[target] < day) & (day <= left[target])
    day = day[there]
    target = target[there]
    days, start = np.unique(day, return_index=True)
    reach = np.empty((len(day), len(MEASURES) * len(ORDERS)))
    seen, expected = np.zeros((2, len(day), len(GROUPS)))
    weights = np.ones(len(written)), np.maximum(tokens, 1).astype(np.float64)
    times = np.zeros(len(written), np.int64)
    use, upto = np.zeros((2, len(written)))
    fades = 0.5 ** (np.diff(days, prepend=days[:1]) / HALF_LIFE)
    for today, fade, reads in zip(
        days, fades, np.split(np.arange(len(day)), start)[1:], strict=True
    ):
        here = np.flatnonzero((written < today) & (today <= left))
        read = target[reads]
        used = here[times[here] > 0]
        count = len(here)
        newer = count - 1 - np.searchsorted(here, read)
        seen[reads, _group(times[read])] = 1
        seen[reads, len(TIMES) + len(QUARTERS) * newer // count] = 1
        expected[reads, : len(TIMES)] = (
            np.bincount(_group(times[used]), minlength=len(TIMES)) / count
        )
        expected[reads, 0] += 1 - len(used) / count
        quarters = np.bincount(len(QUARTERS) * np.arange(count) // count, minlength=len(QUARTERS))
        expected[reads, len(TIMES) :] = quarters / count
        use *= fade
        for place, weight in enumerate(weights):
            newest = np.cumsum(weight[here[::-1]])
            by_use = used[::-1][np.argsort(-(use[used] / weight[used])[::-1], kind="stable")]
            upto[by_use] = np.cumsum(weight[by_use])
            older = np.append(0, np.cumsum(weight[used]))[np.searchsorted(used, read)]
            most_used = np.where(times[read] > 0, upto[read], newest[newer] + older)
            reach[reads, 2 * place : 2 * place + 2] = (
                np.stack([newest[newer], most_used], 1) / newest[-1]
            )
        times[read] += 1
        use[read] += 1
    first = np.append(days, _NEVER)[np.searchsorted(days, written, side="right")]
    return LookBack(day, reach, seen, expected, times[(first <= left) & (first < _NEVER)])


def _group(times: Ints) -> Ints:
    return np.searchsorted(_TIMES_FROM, times, side="right")


def chances_of(reads: LookBack, confidence: float) -> pd.DataFrame:
    """Return for each of `GROUPS` its chance to be read next, in times the mean, with limits.

    Byar's limits of a Poisson count (Breslow and Day 1987), reads of a day being alike (Kish 1965).
    """
    found = reads.seen.sum(axis=0)
    expected = reads.expected.sum(axis=0)
    wide = NormalDist().inv_cdf(confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = found / expected
        alike = np.fmax(1, _squares(reads.day, reads.seen - chance * reads.expected) / found)
        low, high = (
            np.fmax(count * (1 - 1 / (9 * count) + z / (3 * np.sqrt(count))) ** 3, 0)
            for z, count in ((-wide, found / alike), (wide, found / alike + 1))
        )
        limits = {"low": low * alike / expected, "high": high * alike / expected}
    table = {"reads": found.astype(np.int64), "expected": expected, "chance": chance, **limits}
    others = other_stores()["chance"]
    return pd.DataFrame({**table, "other_stores": others}, index=pd.Index(GROUPS, name="group"))


def gain_of(reads: LookBack, confidence: float) -> tuple[float, float, float]:
    """Return what the most used quarter serves more than the newest, with limits by days."""
    newest, used = (reads.reach[:, : len(ORDERS)].T <= 0.25 + _BLUR).astype(np.float64)
    count = max(len(reads.day), 1)
    days = len(np.unique(reads.day))
    gain = float((used - newest).sum()) / count
    square = float(_squares(reads.day, used - newest - gain)) * days / max(days - 1, 1)
    half = NormalDist().inv_cdf(confidence) * float(np.sqrt(square)) / count
    return gain, gain - half, gain + half


def share_with_limits(day: Any, found: Floats, confidence: float) -> tuple[float, float, float]:
    """Return the share of reads that found their memory, with limits of as many reads to come.

    Wilson's (1927), of half the reads, fewer as a day's are alike and by `BETWEEN`.
    """
    share = float(found.mean())
    z = NormalDist().inv_cdf(confidence)
    spread = share * (1 - share)
    alike = max(1.0, float(_squares(day, found - share)) / (len(found) * spread)) if spread else 1.0
    part = z * z * (2 * alike / len(found) + BETWEEN)
    half = np.sqrt(part * (spread + part / 4))
    low, high = ((share + part / 2 + side * half) / (1 + part) for side in (-1, 1))
    return share, float(low), float(high)


def served_by(reads: LookBack) -> pd.DataFrame:
    """Return what share of reads found their memory by the share of the store that was loaded."""
    shares = np.arange(101) / 100
    found = (reads.reach <= shares[:, None, None] + _BLUR).sum(axis=1) / max(len(reads.day), 1)
    names = pd.MultiIndex.from_product([MEASURES, ORDERS])
    return pd.DataFrame(found, index=pd.Index(shares, name="loaded"), columns=names)


@dataclass(frozen=True, repr=False)
class AgeOrUse(DisplayMixin):
    """Whether age or use says what is read next.

    Attributes
    ----------
    verdict : {"use", "age", "too-few-reads"}
        ``use`` where the quarter of the memories that was used most serves more reads than the
        newest quarter, ``age`` where it serves five points more at most, both at the limits of
        `gain`; ``too-few-reads`` where the reads leave that open, or there are fewer than 20 on 10
        days.
    reads, days : int
        The reads it rests on, a memory once a day, and the days on which they were made.
    left_out : int
        Other reads of the log: of one memory again on that day, on the day on which it was written,
        or when it was load-bearing or replaced.
    memories : int
        Memories that could be read.
    again : tuple of float
        What share of them was read on one day or more, on two, and on three.
    chances : DataFrame
        A row for each number of days on which a memory had been read, and for each quarter by age:
        its ``reads``; as many as were ``expected``, had all memories been as likely; ``chance``,
        one over the other, with its limits ``low`` and ``high``; that of ``other_stores``.
    served : DataFrame
        What share of the reads found their memory by the share of the store that was loaded: of the
        ``memories`` and of the ``tokens``, each the ``newest`` and the ``most used`` first.
    gain : tuple of float
        What the most used quarter serves more than the newest, and its limits.
    """

    reads: int
    days: int
    left_out: int
    memories: int
    again: tuple[float, ...]
    chances: pd.DataFrame
    served: pd.DataFrame
    gain: tuple[float, float, float]

    @property
    def verdict(self) -> UsageVerdict:
        """What the limits of the gain leave open, or do not."""
        _, low, high = self.gain
        if self.reads < FEWEST[0] or self.days < FEWEST[1]:
            return "too-few-reads"
        return "age" if high <= AS_GOOD else "use" if low > 0 else "too-few-reads"

    @property
    def decided(self) -> bool:
        """Whether the reads are enough to tell age from use."""
        return self.verdict != "too-few-reads"

    @property
    def figures(self) -> dict[str, Any]:
        """All of it but the whole course of ``served``, for a script."""
        names = ("verdict", "reads", "days", "left_out", "memories", "again", "gain")
        return {name: getattr(self, name) for name in names} | {
            "chances": json.loads(self.chances.reset_index().to_json(orient="records")),
            "served": [
                {"of": measure, "loaded": size, **self.served[measure].loc[size].to_dict()}
                for measure in MEASURES
                for size in SIZES
            ],
        }

    @property
    def answer(self) -> str:
        """The verdict in a line, with what it rests on."""
        says = {"use": "use says more than age", "age": "age is enough"}.get(
            self.verdict, "too few reads to tell age from use"
        )
        on = f"{counted(self.reads, 'reads')} on {counted(self.days, 'days')}"
        if not self.reads:
            return f"{says}: {on}"
        newest, used = self.served[c.MEMORIES].loc[0.25]
        return (
            f"{says}: the most used quarter of the memories serves {used:.0%} of {on}, the newest "
            f"{newest:.0%}"
        )

    def sheet(self) -> TextPage:
        """Return the answer and what it rests on, beside other stores."""
        others = other_stores()
        facts = [
            (f"read on {on}", f"{own:.0%} of {counted(self.memories)}; {other:.0%} in other stores")
            for on, own, other in zip(_AGAIN.values(), self.again, others["again"], strict=True)
        ]
        gain, low, high = (f"{100 * each:+.0f}" for each in self.gain)
        facts.append(("use over age", f"{gain} points, limits {low} to {high}"))
        facts.append(("not looked at", f"{counted(self.left_out, 'reads')}: {_LEFT_OUT}"))
        chances = [
            (str(group), f"{reads:,}", *map(_shown, figures))
            for group, reads, _, *figures in self.chances.itertuples()
        ]
        elsewhere = [*others["served"][c.MEMORIES], *others["served"][c.TOKENS]]
        served = [
            (
                f"{row['loaded']:.0%} of {row['of']}",
                *map("{:.0%}".format, (*[row[each] for each in ORDERS], *other)),
            )
            for row, other in zip(self.figures["served"], elsewhere, strict=True)
        ]
        header = ("read before, or age", "reads", "chance", "low", "high", "other stores")
        loaded = ("loaded", "newest", "most used", "newest elsewhere", "most used elsewhere")
        tables = [
            Table("Chance to be read next, in times the mean", header, chances),
            Table("Reads that found their memory", loaded, served),
        ]
        return TextPage(self.answer, facts, tables if self.reads else ())


@cache
def other_stores() -> dict[str, Any]:
    """Return the same figures of public stores, which ``data/fit_law.py`` writes."""
    text = files("memlab.evidence").joinpath("laws", "usage.json").read_text("utf-8")
    figures: dict[str, Any] = json.loads(text)
    return figures


def age_or_use(
    frame: Memories,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
) -> AgeOrUse:
    """Say whether age or use tells what is read next, from what was read so far.

    Every read is judged by what was known when its day began. A memory counts once a day, and not
    on the day on which it was written; load-bearing memories, which are loaded anyway, and those
    that were replaced or deleted by then are left out.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load_past`` returns, or the store itself, for its whole past and its logs.
    references : DataFrame, optional
        What ``find_references`` returns of an access log, of which the reads count.
    confidence : float
        Of each limit.

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
    past, references = in_reach(*with_references(frame, references, call=call))
    prunable = ~past[c.LOAD_BEARING].to_numpy(bool)
    log = references[(references[c.KIND] == "log").to_numpy()]
    on = references_on_rows(past[prunable], log)
    written = _days(past[c.CREATED_AT])
    reads = score_recency_vs_use(
        written[prunable],
        _left(past, written)[prunable],
        past[c.TOKENS].to_numpy(np.int64)[prunable],
        _days(log[c.AT])[on.place],
        on.target,
    )
    chances = chances_of(reads, confidence)
    served = served_by(reads)
    chances.attrs = served.attrs = passed_on(past)
    return AgeOrUse(
        reads=len(reads.day),
        days=len(np.unique(reads.day)),
        left_out=len(log) - len(reads.day),
        memories=len(reads.times),
        again=tuple(
            float((reads.times >= days).sum()) / max(len(reads.times), 1) for days in _AGAIN
        ),
        chances=chances,
        served=served,
        gain=gain_of(reads, confidence),
    )


def _days(times: pd.Series) -> Ints:
    days = times.to_numpy("datetime64[D]")
    return np.where(np.isnat(days), _NEVER, days.astype(np.int64))


def _left(past: pd.DataFrame, written: Ints) -> Ints:
    """Return on which day each memory was replaced or deleted."""
    left = _days(past[c.DELETED_AT]) if c.DELETED_AT in past else np.full(len(past), _NEVER)
    rows, by = successors(past)
    left[rows] = np.minimum(left[rows], np.where(by > rows, written[by], _NEVER))
    return left


def _squares(day: Ints, beside: Floats) -> Floats:
    """Return the sum of the squares of what reads differ by, summed over each day before."""
    sums = np.zeros((len(day), *beside.shape[1:]))
    np.add.at(sums, np.unique(day, return_inverse=True)[1], beside)
    squares: Floats = (sums**2).sum(axis=0)
    return squares


def _shown(chance: float) -> str:
    return f"{chance:.2f}" if np.isfinite(chance) else "–"
