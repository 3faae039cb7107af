"""The headline numbers of a store."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from memlab import columns as c
from memlab.arguments import whole_number
from memlab.clock import aware
from memlab.frame.arrays import Arrays, arrays_of, as_moment
from memlab.frame.needed import expect_memories
from memlab.growth.context import (
    Boot,
    boot_of,
    loaded_at_start,
    part_sizes,
    size_of,
)
from memlab.growth.lives import NEVER, lifetimes, successors
from memlab.items import Size
from memlab.text import Sheet, Shown, Table, counted

if TYPE_CHECKING:
    import pandas as pd

Rates = NDArray[np.float64]

PACE_WINDOWS: Final = 8
PACE_WINDOW: Final = timedelta(days=7)
"""The pace is looked at in up to eight weeks before now: recent, and enough of them for a range."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How many prunable rows a day come in.

    Attributes
    ----------
    median, low, high : float
        Rows a day: median, least and most of the windows.
    windows : int
        How many windows were looked at, back from now.
    window_days : float
        Length of one window.
    last_at : datetime
        When the last of them was written.
    while_active : float
        Rows a day: the median of windows back from then, whatever came in since.
    """

    median: float
    low: float
    high: float
    windows: int
    window_days: float
    last_at: datetime
    while_active: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """When the backlog of prunable active rows is more than a threshold.

    Attributes
    ----------
    threshold : int
        The most rows that are still all right.
    passed_at : datetime or None
        When the backlog first was more, as the surviving rows show it; None when it is not now.
    expected, earliest, latest : datetime or None
        When it will be, at the median, highest and lowest pace; None when it already is, or when at
        that pace it never will be.
    """

    threshold: int
    passed_at: datetime | None = None
    expected: datetime | None = None
    earliest: datetime | None = None
    latest: datetime | None = None


@dataclass(frozen=True, slots=True, repr=False)
class StoreSummary(Shown):
    """The headline numbers of a store.

    Attributes
    ----------
    rows : Size
        Every row, superseded ones too.
    boot : Boot
        What an agent loads at start.
    superseded : Size
        Rows another row has replaced; no compaction reclaims them.
    below : Size
        Active memories that are not loaded at start, of a source that loads some.
    inactive : Size
        Memories that nothing has replaced and that are not active either, such as files that no
        index names.
    parts : dict of str to Size
        The boot context by :data:`PARTS`, those that are not empty.
    pace : Pace or None
        None when no prunable row was written by now.
    forecast : Forecast or None
        When the backlog passes the threshold; None where there is none.
    first_at, last_at : datetime or None
        The earliest and latest creation time.
    out_of_order : int
        Rows created before a row that was inserted earlier.
    dangling : int
        Rows whose ``superseded_by`` names no row of the store.
    undated : int
        Rows without a usable creation time.
    loads_any : bool
        Whether an agent loads any at start by itself; else ``boot`` is what it recalls from.
    token_rule : str
        How tokens were counted.
    """

    rows: Size
    boot: Boot
    superseded: Size
    below: Size
    inactive: Size
    parts: dict[str, Size]
    pace: Pace | None
    forecast: Forecast | None
    first_at: datetime | None
    last_at: datetime | None
    out_of_order: int
    dangling: int
    undated: int
    loads_any: bool
    token_rule: str

    def sheet(self) -> Sheet:
        """Return what is printed."""
        return summary_sheet(self)


def summarize(
    frame: "pd.DataFrame", *, now: datetime, threshold: int | None = None
) -> StoreSummary:
    """Return the headline numbers of a store.

    The pace is taken in windows of seven days back from `now`, up to eight of them and none that
    reaches beyond the oldest surviving prunable row: windows emptied by an earlier compaction say
    nothing about pace. Less than a week of rows is one window of that length, at least a day. The
    forecast divides the room left, ``threshold + 1 - backlog``, by the pace.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` returns it. Of a whole past what was deleted is left out.
    now : datetime
        The present, with a time zone.
    threshold : int, optional
        The backlog that is still all right, such as a cap; more is what the forecast looks for.

    Raises
    ------
    ValueError
        When `now` has no time zone, or `threshold` is not a whole number of 0 or more.
    """
    from memlab.evidence.past import present_rows  # pandas, which ``memlab show`` does without

    expect_memories(frame, call="memlab.summarize")
    return summary_of(
        arrays_of(present_rows(frame)),
        now=aware(now, call="memlab.summarize"),
        threshold=None if threshold is None else whole_number("threshold", threshold),
        token_rule=str(frame.attrs.get(c.TOKEN_RULE, "")),
    )


def summary_of(
    memories: Arrays, *, now: datetime, threshold: int | None, token_rule: str
) -> StoreSummary:
    """Return the headline numbers of memories that are no frame; see :func:`summarize`."""
    everything = np.ones(len(memories.tokens), dtype=bool)
    active, replaced = memories.active, memories.replaced
    created = memories.created_at
    dated = created[~np.isnat(created)]
    pace = _pace(created[memories.prunable], _instant(now))
    return StoreSummary(
        rows=size_of(memories, everything),
        boot=boot_of(memories, everything),
        superseded=size_of(memories, ~active & replaced),
        below=size_of(memories, active & ~loaded_at_start(memories)),
        inactive=size_of(memories, ~active & ~replaced),
        parts={part: size for part, size in part_sizes(memories).items() if size.memories},
        pace=pace,
        forecast=(
            None if threshold is None else _forecast(memories, pace, now=now, threshold=threshold)
        ),
        first_at=as_moment(dated.min()) if len(dated) else None,
        last_at=memories.last_at,
        out_of_order=int((dated < np.maximum.accumulate(dated)).sum()),
        dangling=int((successors(memories)[1] < 0).sum() - (~active & ~replaced).sum()),
        undated=len(created) - len(dated),
        loads_any=memories.at_start is None or bool(memories.at_start.any()),
        token_rule=token_rule,
    )


def _instant(moment: datetime) -> np.datetime64:
    """Return a moment as the clock of a frame's columns has it."""
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "us")


def _pace(created: NDArray[np.datetime64], now: np.datetime64) -> Pace | None:
    """Count rows in windows back from `now`, none reaching beyond the oldest row."""
    written = created[created <= now]
    if not len(written):
        return None
    last = written.max()
    rates, days = _rates(written, now)
    return Pace(
        median=_middle(rates),
        low=float(rates[0]),
        high=float(rates[-1]),
        windows=len(rates),
        window_days=days,
        last_at=as_moment(last),
        while_active=_middle(rates if rates[-1] else _rates(written, last)[0]),
    )


def _rates(written: NDArray[np.datetime64], until: np.datetime64) -> tuple[Rates, float]:
    """Return rows a day in each window back from a moment, in order of size, and their length."""
    ages = (until - written) / np.timedelta64(1, "D")
    days = PACE_WINDOW / timedelta(days=1)
    windows = min(PACE_WINDOWS, int(ages.max() // days))
    if not windows:
        windows, days = 1, max(1.0, float(ages.max()))
    counts, _ = np.histogram(ages, bins=np.arange(windows + 1) * days)
    return np.sort(counts / days), days


def _middle(rates: Rates) -> float:
    """Return the median of sorted rates; np.median would load numpy.ma."""
    return float(rates[[(len(rates) - 1) // 2, len(rates) // 2]].mean())


def _forecast(memories: Arrays, pace: Pace | None, *, now: datetime, threshold: int) -> Forecast:
    room = threshold + 1 - int(memories.prunable.sum())
    if room <= 0:
        return Forecast(threshold, passed_at=_passed_at(memories, threshold))
    if pace is None:
        return Forecast(threshold)
    expected, earliest, latest = (
        _after(now, room / rate if rate else np.inf) for rate in (pace.median, pace.high, pace.low)
    )
    return Forecast(threshold, expected=expected, earliest=earliest, latest=latest)


def _passed_at(memories: Arrays, threshold: int) -> datetime:
    """Return when the backlog first was more than `threshold`, which it is at the end."""
    episodes = ~memories.load_bearing
    born, ended, _ = (times[episodes] for times in lifetimes(memories))
    times = np.concatenate([ended[ended < NEVER], born])
    steps = np.repeat([-1, 1], [len(times) - len(born), len(born)])
    order = np.argsort(times, kind="stable")
    first = int(np.argmax(np.cumsum(steps[order]) > threshold))
    return as_moment(times[order][first].astype("datetime64[us]"))


def summary_sheet(summary: StoreSummary) -> Sheet:
    """Lay the headline numbers out for a reader."""
    boot = summary.boot
    span = ""
    if summary.first_at and summary.last_at:
        span = f", {summary.first_at:%Y-%m-%d} to {summary.last_at:%Y-%m-%d}"
    loaded = "loaded at every start" if summary.loads_any else "none loaded at start, recalled from"
    rows = [(loaded, boot.memories, boot.tokens)]
    rows += [(f"  {name}", *part) for name, part in summary.parts.items()]
    if summary.below.memories:
        rows.append(("active, not loaded at start", *summary.below))
    rows.append(("superseded, loaded never", *summary.superseded))
    if summary.inactive.memories:
        rows.append(("not active, loaded never", *summary.inactive))
    facts = [
        ("noise share", f"{_shares(boot.prunable, boot)}: what a cap could take away"),
        ("floor", f"{_shares(boot.load_bearing, boot)}: load-bearing, no cap goes below"),
        *_floor_facts(boot),
        *_pace_facts(summary),
        *_oddities(summary),
        ("tokens", summary.token_rule),
    ]
    title = f"{counted(summary.rows.memories, 'memories')}{span}"
    return Sheet(title, facts, [Table("", ("", "memories", "tokens"), rows)])


def _shares(part: Size, boot: Boot) -> str:
    """Return a part's share of a boot context, by items and by tokens."""
    if not boot.memories:
        return "nothing is loaded"
    tokens = f"{part.tokens / boot.tokens:.1%}" if boot.tokens else "none"
    return f"{part.memories / boot.memories:.1%} of memories, {tokens} of tokens"


def _floor_facts(boot: Boot) -> list[tuple[str, str]]:
    """Say so when a cap on episodes cannot change much."""
    if not boot.tokens or boot.load_bearing.tokens < boot.tokens / 2:
        return []
    words = (
        f"no cap on episodes can help much: {boot.load_bearing.tokens:,} of {boot.tokens:,} "
        "tokens are load-bearing; shorten or supersede the largest of those"
    )
    return [("", words)]


def _pace_facts(summary: StoreSummary) -> list[tuple[str, str]]:
    facts = []
    if (pace := summary.pace) and not pace.high:
        words = (
            f"{pace.while_active:.1f} episodes a day while it was active, the last on "
            f"{pace.last_at:%Y-%m-%d}; none in the last {pace.windows * pace.window_days:.0f} days"
        )
        facts.append(("pace", words))
    elif pace:
        weeks = counted(pace.windows, "windows")
        windows = f"{weeks} of {pace.window_days:.0f} days"
        rate = f"{pace.median:.1f} episodes a day ({pace.low:.1f} to {pace.high:.1f}"
        last = f"the last on {pace.last_at:%Y-%m-%d}"
        facts.append(("pace", f"{rate} in the last {windows}), {last}"))
    forecast = summary.forecast
    if forecast is None:
        return facts
    if forecast.passed_at:
        words = f"passed {forecast.threshold:,} on {forecast.passed_at:%Y-%m-%d}"
        facts.append(("backlog", words))
    elif forecast.expected:
        words = f"passes {forecast.threshold:,} about {forecast.expected:%Y-%m-%d}"
        facts.append(("backlog", words))
    return facts


def _oddities(summary: StoreSummary) -> list[tuple[str, str]]:
    counts = {
        "created before a memory that was inserted earlier": summary.out_of_order,
        "superseded by a memory that is not there": summary.dangling,
        "without a usable time": summary.undated,
    }
    return [("odd", f"{count:,} {what}") for what, count in counts.items() if count]


def _after(now: datetime, days: float) -> datetime | None:
    """Return `now` and so many days; None when that is beyond the calendar."""
    try:
        return now + timedelta(days=days)
    except OverflowError:
        return None
