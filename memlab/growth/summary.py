"""The headline numbers of a store."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from memlab import columns as c
from memlab.arguments import whole_number
from memlab.clock import moment_or_now
from memlab.errors import ArchiveError
from memlab.frame.fields import (
    CHARS_PER_TOKEN,
    ESTIMATE_RULE,
    Arrays,
    arrays_of,
    as_instant,
    as_moment,
)
from memlab.growth import context
from memlab.growth.context import Boot
from memlab.items import Size
from memlab.text import DisplayMixin, Table, TextPage, counted

if TYPE_CHECKING:
    from memlab.evidence.past import Memories
    from memlab.frame.labelling import OnBadRow
    from memlab.sources.base import Source

Rates = NDArray[np.float64]

PACE_WINDOWS: Final = 8
PACE_WINDOW: Final = timedelta(days=7)
"""The pace is looked at in up to eight weeks before now: recent, and enough of them for a range."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How many prunable rows a day come in.

    `median`, `low` and `high` are of as many `windows` of `window_days` back from now, `mean` of
    all of them. `while_active` is :attr:`per_day` of windows back from `last_at`, when the last row
    was written, whatever came in since.
    """

    median: float
    low: float
    high: float
    windows: int
    window_days: float
    last_at: datetime
    while_active: float
    mean: float

    @property
    def per_day(self) -> float:
        """Rows a day: the median, or the mean where bursts leave most windows empty."""
        return self.median or self.mean


@dataclass(frozen=True, slots=True)
class Forecast:
    """When the backlog of prunable active rows is more than a threshold.

    `passed_at` says since when it has been; None when it is not now. `expected`, `earliest` and
    `latest` say when it will be, at the usual, highest and lowest pace; None when it already is, or
    at that pace never will be.
    """

    threshold: int
    passed_at: datetime | None = None
    expected: datetime | None = None
    earliest: datetime | None = None
    latest: datetime | None = None


@dataclass(frozen=True, slots=True, repr=False)
class StoreSummary(DisplayMixin):
    """The headline numbers of a store.

    Attributes
    ----------
    rows, superseded : Size
        Every row, and those that another has replaced, which no compaction reclaims.
    boot, parts : Boot, dict of str to Size
        What an agent loads at start, and those of :data:`PARTS` that are not empty.
    below, inactive, retired : Size
        Not loaded at start: active ones, of a source that loads some; those that nothing has
        replaced and that are not active; those that plans took out of what is loaded.
    reached, unlisted : Size
        Of a folder with an index, what that does not name: files that a hub names, and those that
        nothing does. ``columns.INDEX_STATE`` says which they are.
    doubtful : Size
        What counts as load-bearing until a person says otherwise; ``columns.DOUBT`` says why.
    apart : int
        Tokens that a start loads and that belong to no memory: headings and prose of an index.
    pace, forecast : Pace, Forecast or None
        None when no prunable row was written by now; when no threshold was given.
    first_at, last_at : datetime or None
        The earliest and latest creation time.
    out_of_order, undated, without_zone : int
        Rows created before a row that was inserted earlier, without a usable creation time, and
        with one that has no time zone, and was taken as UTC.
    dangling : int
        Rows whose ``superseded_by`` names no row of the store, nor of its past where that is known.
    starts : tuple of Size
        What each start loads, where different ones load different memories: one a project.
    loads_any : bool
        Whether an agent loads any at start by itself; else ``boot`` is what it recalls from.
    """

    rows: Size
    boot: Boot
    superseded: Size
    below: Size
    inactive: Size
    retired: Size
    reached: Size
    unlisted: Size
    doubtful: Size
    parts: dict[str, Size]
    pace: Pace | None
    forecast: Forecast | None
    first_at: datetime | None
    last_at: datetime | None
    out_of_order: int
    dangling: int
    undated: int
    without_zone: int
    starts: tuple[Size, ...]
    loads_any: bool
    token_rule: str
    apart: int = 0

    def sheet(self) -> TextPage:
        """Return what is printed."""
        boot = self.boot
        span = ""
        if self.first_at and self.last_at:
            span = f", {self.first_at:%Y-%m-%d} to {self.last_at:%Y-%m-%d}"
        loaded = (
            "loaded at every start" if self.loads_any else "none loaded at start, recalled from"
        )
        if (starts := len(self.starts)) > 1:
            most = max(each.memories for each in self.starts)
            loaded = f"loaded by the starts of {starts:,} projects, one loads {most:,} at most"
        rows = [(loaded, boot.memories, boot.tokens + self.apart)]
        rows += [(f"  {name}", *part) for name, part in self.parts.items()]
        if self.apart:
            rows.append(("  text of the index, no memory's", 0, self.apart))
        if self.below.memories:
            rows.append(("active, not loaded at start", *self.below))
        rows.append(("superseded, loaded never", *self.superseded))
        if self.retired.memories:
            rows.append(("retired, loaded again when needed", *self.retired))
        if self.reached.memories:
            rows.append(("reached by a hub, opened on demand", *self.reached))
        if self.unlisted.memories:
            rows.append(("unlisted: no index names it", *self.unlisted))
        if self.inactive.memories:
            rows.append(("not active, loaded never", *self.inactive))
        if self.doubtful.memories:
            rows.append(("of all: doubtful, so load-bearing", *self.doubtful))
        title = f"{counted(self.rows.memories, 'memories')}{span}"
        return TextPage(title, list(_facts(self)), [Table("", ("", "memories", "tokens"), rows)])


def summarize(
    frame: "Memories", *, now: datetime | None = None, threshold: int | None = None
) -> StoreSummary:
    """Return the headline numbers of a store.

    The pace is taken in windows of seven days back from `now`, up to eight of them and none that
    reaches beyond the oldest prunable row: windows that a frame of what is left says nothing of say
    nothing about pace. Less than a week of rows is one window of that length, at least a day. The
    forecast divides the room left, ``threshold + 1 - backlog``, by the pace.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        As :func:`memlab.load_past` or :func:`memlab.load` returns it, or the store itself. What was
        deleted is not counted as there; it counts in the pace, and as what may have replaced
        others.
    now : datetime, optional
        The moment, with a time zone; the current one by default.
    threshold : int, optional
        The backlog that is still all right, such as a cap; more is what the forecast looks for.
    """
    from memlab.evidence.past import resolve_history  # pandas, which ``memlab show`` does without

    frame = resolve_history(frame, call="memlab.growth.summarize")
    return summary_of(
        arrays_of(frame),
        now=moment_or_now(now, call="memlab.growth.summarize"),
        threshold=None if threshold is None else whole_number("threshold", threshold),
        token_rule=str(frame.attrs.get(c.TOKEN_RULE, "")),
    )


def past_arrays(source: "Source", *, on_bad_row: "OnBadRow" = "raise") -> tuple[Arrays, str]:
    """Return the arrays of a store's whole past, and what is wrong with an archive left out."""
    from memlab.frame.labelling import read_memories
    from memlab.sources.base import has_past

    problem = ""
    try:
        if has_past(source):
            from memlab.evidence.past import load_past

            return arrays_of(load_past(source, on_bad_row=on_bad_row)), problem
    except ArchiveError as error:
        problem = str(error)
    return read_memories(source, on_bad_row=on_bad_row).arrays, problem


def summary_of(
    memories: Arrays,
    *,
    now: datetime,
    threshold: int | None,
    token_rule: str = ESTIMATE_RULE,
    chars_apart: int = 0,
) -> StoreSummary:
    """Return the headline numbers of memories that are no frame; see :func:`summarize`.

    `chars_apart` are characters that a start loads beside them.
    """
    there = np.ones(len(memories.tokens), dtype=bool)
    if memories.deleted_at is not None:
        there = np.isnat(memories.deleted_at)
    reached, unlisted = (there & memories.in_state(state) for state in (c.REACHED, c.UNLISTED))
    reached &= ~memories.active
    inactive = there & ~memories.active & ~reached & ~unlisted
    replaced = memories.replaced
    created = memories.created_at[there]
    dated = created[~np.isnat(created)]
    away = (~there | memories.retired) & ~replaced
    written = memories.prunable | (away & ~memories.load_bearing)
    pace = _pace(memories.created_at[written], as_instant(now))
    superseded, successor = context.successors(memories)
    return StoreSummary(
        rows=context.size_of(memories, there),
        boot=context.boot_of(memories, there),
        superseded=context.size_of(memories, inactive & replaced),
        below=context.size_of(memories, memories.active & ~context.loaded_at_start(memories)),
        inactive=context.size_of(memories, inactive & ~replaced & ~memories.retired),
        retired=context.size_of(memories, memories.retired),
        reached=context.size_of(memories, reached),
        unlisted=context.size_of(memories, unlisted),
        doubtful=context.size_of(memories, there & memories.doubtful),
        parts={part: size for part, size in context.part_sizes(memories).items() if size.memories},
        pace=pace,
        forecast=_forecast(memories, pace, now=now, threshold=threshold),
        first_at=as_moment(dated.min()) if len(dated) else None,
        last_at=as_moment(dated.max()) if len(dated) else None,
        out_of_order=int((dated < np.maximum.accumulate(dated)).sum()),
        dangling=int(((inactive & replaced)[superseded] & (successor < 0)).sum()),
        undated=len(created) - len(dated),
        without_zone=memories.without_zone,
        starts=tuple(context.starts_of(memories)),
        loads_any=memories.at_start is None or bool(memories.at_start[there].any()),
        token_rule=token_rule,
        apart=-(-chars_apart // CHARS_PER_TOKEN),
    )


def _pace(created: NDArray[np.datetime64], now: np.datetime64) -> Pace | None:
    """Count rows in windows back from `now`, none reaching beyond the oldest row."""
    written = created[created <= now]
    if not len(written):
        return None
    last = written.max()
    rates, days = _rates(written, now)
    back = rates if rates[-1] else _rates(written, last)[0]
    return Pace(
        median=_middle(rates),
        low=float(rates[0]),
        high=float(rates[-1]),
        windows=len(rates),
        window_days=days,
        last_at=as_moment(last),
        while_active=_middle(back) or float(back.mean()),
        mean=float(rates.mean()),
    )


def _rates(written: NDArray[np.datetime64], until: np.datetime64) -> tuple[Rates, float]:
    """Return rows a day in each window back from a moment, in order of size, and their length."""
    ages = (until - written) / np.timedelta64(1, "D")
    days = PACE_WINDOW / timedelta(days=1)
    windows = min(PACE_WINDOWS, int(ages.max() // days))
    if not windows:
        windows = 1
        days = max(1.0, float(ages.max()))
    counts, _ = np.histogram(ages, bins=np.arange(windows + 1) * days)
    return np.sort(counts / days), days


def _middle(rates: Rates) -> float:
    """Return the median of sorted rates; np.median would load numpy.ma."""
    return float(rates[[(len(rates) - 1) // 2, len(rates) // 2]].mean())


def _forecast(
    memories: Arrays, pace: Pace | None, *, now: datetime, threshold: int | None
) -> Forecast | None:
    if threshold is None:
        return None
    room = threshold + 1 - int(memories.prunable.sum())
    if room <= 0:
        return Forecast(threshold, passed_at=_passed_at(memories, threshold))
    if pace is None:
        return Forecast(threshold)
    expected, earliest, latest = (
        _after(now, room / rate if rate else np.inf) for rate in (pace.per_day, pace.high, pace.low)
    )
    return Forecast(threshold, expected=expected, earliest=earliest, latest=latest)


def _passed_at(memories: Arrays, threshold: int) -> datetime:
    """Return since when the backlog has been more than `threshold`, which it is at the end."""
    born, ended, gone = (times[~memories.load_bearing] for times in context.lifetimes(memories))
    ended = np.minimum(ended, gone)
    times = np.concatenate([ended[ended < context.NEVER], born])
    steps = np.repeat([-1, 1], [len(times) - len(born), len(born)])
    moments, place = np.unique(times, return_inverse=True)
    backlog = np.cumsum(np.bincount(place, weights=steps))
    below = np.flatnonzero(backlog <= threshold)
    return as_moment(moments[below[-1] + 1 if len(below) else 0].astype("datetime64[us]"))


def _shares(part: Size, boot: Boot) -> str:
    if not boot.memories:
        return "nothing is loaded"
    memories = f"{part.memories / boot.memories:.1%} of {counted(boot.memories, 'memories')}"
    tokens = f"{part.tokens / boot.tokens:.1%}" if boot.tokens else "none"
    return f"{memories}, {tokens} of {counted(boot.tokens, 'tokens')}"


def _facts(summary: StoreSummary) -> Iterator[tuple[str, str]]:
    boot = summary.boot
    yield "prunable share", f"{_shares(boot.prunable, boot)}: what a cap could take away"
    yield "floor", f"{_shares(boot.load_bearing, boot)}: load-bearing, no cap goes below"
    if boot.is_mostly_floor:
        share = f"{boot.load_bearing.tokens:,} of {counted(boot.tokens, 'tokens')}"
        helps = f"no cap on episodes can help much: {share} are load-bearing"
        yield "", f"{helps}; shorten or supersede the largest"
    if summary.pace:
        yield "pace", _pace_in_words(summary.pace)
    forecast = summary.forecast
    if forecast and forecast.passed_at:
        yield "backlog", f"passed {forecast.threshold:,} on {forecast.passed_at:%Y-%m-%d}"
    elif forecast and forecast.expected:
        yield "backlog", f"passes {forecast.threshold:,} about {forecast.expected:%Y-%m-%d}"
    counts = {
        "created before a memory that was inserted earlier": summary.out_of_order,
        "superseded by a memory that is not there": summary.dangling,
        "without a usable time": summary.undated,
    }
    for what, count in counts.items():
        if count:
            yield "odd", f"{count:,} {what}"
    if summary.without_zone:
        yield "times", f"{summary.without_zone:,} without a zone, taken as UTC"
    yield "tokens", summary.token_rule


def _pace_in_words(pace: Pace) -> str:
    last = f"the last on {pace.last_at:%Y-%m-%d}"
    windows = f"{counted(pace.windows, 'windows')} of {pace.window_days:.0f} days"
    if not pace.high:
        rate = f"{_rate(pace.while_active)} episodes a day while it was active"
        return f"{rate}, {last}; none since"
    if not pace.median:
        bursts = f"none in most, up to {_rate(pace.high)} a day"
        return f"{_rate(pace.mean)} episodes a day in the last {windows} ({bursts}), {last}"
    spread = f"{_rate(pace.low)} to {_rate(pace.high)}"
    return f"{_rate(pace.median)} episodes a day ({spread} in the last {windows}), {last}"


def _rate(a_day: float) -> str:
    """Write a rate so that none which is more than nothing reads as nothing."""
    return f"{a_day:.1f}" if a_day >= 0.05 or not a_day else f"{a_day:.2g}"


def _after(now: datetime, days: float) -> datetime | None:
    try:
        return now + timedelta(days=days)
    except OverflowError:
        return None
