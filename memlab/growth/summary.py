"""The main numbers of a store: its size, the pace at which it grows, and a forecast."""

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
    ESTIMATE_RULE,
    Arrays,
    arrays_of,
    as_instant,
    as_moment,
)
from memlab.growth import context
from memlab.growth.context import Boot
from memlab.items import Size
from memlab.text import DisplayMixin, Table, TextPage, counted, percent, zoneless_in_words

if TYPE_CHECKING:
    from memlab.evidence.past import HistoryLike
    from memlab.frame.labelling import OnBadRow
    from memlab.sources.base import Source

Rates = NDArray[np.float64]

PACE_WINDOWS: Final = 8
"""Maximum number of windows in which the pace is measured."""
PACE_WINDOW: Final = timedelta(days=7)
"""Length of a window in which the pace is measured."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate at which prunable rows are written, in rows a day.

    Attributes
    ----------
    median, low, high : float
        Median, minimum and maximum of the rates in windows counted back from now.
    windows : int
        Number of windows.
    window_days : float
        Length of each window in days.
    last_at : datetime
        When the last row was written.
    while_active : float
        Rows a day in the last eight weeks before `last_at`, or in all time before it if that is
        less.
    mean : float
        Mean of the rates.

    Examples
    --------
    >>> import memlab
    >>> pace = memlab.show(memlab.store_path("looked_up")).summary.pace
    >>> pace.low <= pace.median <= pace.high
    True
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
        """Rows a day: the median, or the mean if most windows are empty."""
        return self.median or self.mean


@dataclass(frozen=True, slots=True)
class Forecast:
    """When the backlog of prunable active rows exceeds a threshold.

    Attributes
    ----------
    threshold : int
        The threshold in rows.
    passed_at : datetime or None
        The time since which the threshold is exceeded; None if it is not exceeded.
    expected, earliest, latest : datetime or None
        When the threshold will be exceeded at the usual, the highest and the lowest pace. None if
        it is exceeded already, or if it will never be exceeded at that pace.

    Examples
    --------
    >>> Forecast(threshold=500).expected is None
    True
    """

    threshold: int
    passed_at: datetime | None = None
    expected: datetime | None = None
    earliest: datetime | None = None
    latest: datetime | None = None


@dataclass(frozen=True, slots=True, repr=False)
class StoreSummary(DisplayMixin):
    """The main numbers of a store.

    Attributes
    ----------
    rows, superseded : Size
        All rows, and the superseded rows, which no compaction deletes.
    boot, parts : Boot, dict of str to Size
        What a start loads, and the size of each part of a start that is not empty; see
        :data:`memlab.growth.context.PARTS`.
    not_loaded, inactive, retired : Size
        Rows that a start does not load: active rows of a source that loads only some of them;
        rows that are inactive and not superseded; and rows that plans retired.
    reached, unlisted : Size
        Files that the index of a folder does not name: those that a hub names, and those that
        nothing names. ``columns.INDEX_STATE`` has the state of each file.
    doubtful : Size
        Rows that count as load-bearing until a person decides; ``columns.DOUBT`` has the reason.
    index_overhead : int
        Tokens that a start loads and that belong to no memory: headings and prose of an index.
    pace, forecast : Pace, Forecast or None
        The pace is None if no prunable row was written. The forecast is None if no threshold was
        given.
    first_at, last_at : datetime or None
        The earliest and the latest creation time.
    out_of_order, undated, without_zone : int
        Rows created before a row that was inserted earlier; rows without a usable creation time;
        and rows whose creation time has no time zone and was read as UTC.
    dangling : int
        Rows whose ``superseded_by`` names a row that is neither in the store nor in its known past.
    starts : tuple of Size
        Size of each start. There is one for each project if their starts load different memories.
    loads_any : bool
        Whether a start loads any memories. If not, ``boot`` is the size of the memories that an
        agent searches.
    floor_not_loaded : Size
        Active load-bearing rows that a start does not load, such as those below the cut of an
        index. ``not_loaded`` includes them.

    Examples
    --------
    >>> import memlab
    >>> summary = memlab.growth.summarize(memlab.store_path("looked_up"))
    >>> summary.rows.memories, summary.retired.memories
    (480, 0)
    """

    rows: Size
    boot: Boot
    superseded: Size
    not_loaded: Size
    floor_not_loaded: Size
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
    index_overhead: int = 0

    @property
    def start_tokens(self) -> int:
        """Tokens of the largest start, with the text of the index that belongs to no memory."""
        largest = max((start.tokens for start in self.starts), default=0)
        return self.index_overhead + (largest if self.loads_any else 0)

    @property
    def prunable_not_loaded(self) -> int:
        """Number of active prunable rows that a start does not load."""
        return self.not_loaded.memories - self.floor_not_loaded.memories

    def prunable_in_words(self) -> str:
        """Return the number of prunable rows, with that of the loaded ones if it is another."""
        loaded = self.boot.prunable.memories
        total = counted(loaded + self.prunable_not_loaded, "prunable memories")
        if not self.prunable_not_loaded:
            return total
        return f"{total}, {loaded:,} of them loaded now"

    def sheet(self) -> TextPage:
        """Return the summary as a page."""
        boot = self.boot
        span = ""
        if self.first_at and self.last_at:
            first = f"{self.first_at:%Y-%m-%d}"
            last = f"{self.last_at:%Y-%m-%d}"
            span = f", {first} to {last}" if first != last else f", all of {first}"
        loaded = (
            "loaded at every start" if self.loads_any else "none loaded at start, recalled from"
        )
        starts = len(self.starts)
        if starts > 1:
            largest = max(start.memories for start in self.starts)
            loaded = f"loaded by the starts of {starts:,} projects, one loads {largest:,} at most"
        rows = [(loaded, boot.memories, boot.tokens + self.index_overhead)]
        rows += [(f"  {name}", *part) for name, part in self.parts.items()]
        if self.index_overhead:
            rows.append(("  other text of the index", 0, self.index_overhead))
        if self.not_loaded.memories:
            rows.append(("active, not loaded at start", *self.not_loaded))
        rows.append(("superseded (not loaded)", *self.superseded))
        if self.retired.memories:
            rows.append(("retired, loaded again when needed", *self.retired))
        if self.reached.memories:
            rows.append(("reached by a hub, opened on demand", *self.reached))
        if self.unlisted.memories:
            rows.append(("unlisted: no index names it", *self.unlisted))
        if self.inactive.memories:
            rows.append(("not active (not loaded)", *self.inactive))
        if self.doubtful.memories:
            rows.append(("of all: doubtful, so load-bearing", *self.doubtful))
        title = f"{counted(self.rows.memories, 'memories')}{span}"
        return TextPage(title, list(_facts(self)), [Table("", ("", "memories", "tokens"), rows)])


def summarize(
    frame: "HistoryLike", *, now: datetime | None = None, threshold: int | None = None
) -> StoreSummary:
    """Return the main numbers of a store.

    The pace is measured in at most eight windows of seven days, counted back from `now`. No window
    reaches before the oldest prunable row, because deleted rows are unknown. If all rows are less
    than a week old, there is one window: it reaches back to the oldest row, and at least a day.

    The forecast divides ``threshold + 1 - backlog``, the number of rows until the threshold is
    exceeded, by the pace.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        A frame from :func:`memlab.load_past` or :func:`memlab.load`, or the store itself. Deleted
        memories are not counted as present, but they count in the pace and as successors.
    now : datetime, optional
        The present moment, with a time zone; the current time by default.
    threshold : int, optional
        The largest acceptable backlog, such as a cap; the forecast is about exceeding it.

    Returns
    -------
    StoreSummary

    Examples
    --------
    >>> import memlab
    >>> memlab.growth.summarize(memlab.store_path("looked_up")).rows.memories > 0
    True
    """
    from memlab.evidence.past import resolve_history  # imports pandas; ``memlab show`` does not

    frame = resolve_history(frame, call="memlab.growth.summarize")
    if threshold is not None:
        threshold = whole_number("threshold", threshold)
    return summary_of(
        arrays_of(frame),
        now=moment_or_now(now, call="memlab.growth.summarize"),
        threshold=threshold,
        token_rule=str(frame.attrs.get(c.TOKEN_RULE, "")),
        index_overhead=frame.attrs.get(c.INDEX_TOKENS, 0),
    )


def past_arrays(source: "Source", *, on_bad_row: "OnBadRow" = "raise") -> tuple[Arrays, str]:
    """Return the arrays of a store's whole past, and an error message.

    The message is empty unless the archive cannot be read. The arrays then have only the present
    memories.
    """
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
    index_overhead: int = 0,
) -> StoreSummary:
    """Return the main numbers of memories that are given as arrays; see :func:`summarize`.

    `index_overhead` is the number of tokens of the loaded index that belong to no memory.
    """
    is_present = np.ones(len(memories.tokens), dtype=bool)
    if memories.deleted_at is not None:
        is_present = np.isnat(memories.deleted_at)
    is_replaced = memories.replaced
    is_reached = is_present & memories.in_state(c.REACHED) & ~memories.active
    is_unlisted = is_present & memories.in_state(c.UNLISTED)
    is_inactive = is_present & ~memories.active & ~is_reached & ~is_unlisted
    is_superseded = is_inactive & is_replaced
    created = memories.created_at[is_present]
    dated = created[~np.isnat(created)]
    deleted_or_retired = (~is_present | memories.retired) & ~is_replaced
    ever_prunable = memories.prunable | (deleted_or_retired & ~memories.load_bearing)
    pace = _pace(memories.created_at[ever_prunable], as_instant(now))
    rows_of_superseded, successor = context.successors(memories)
    is_dangling = is_superseded[rows_of_superseded] & (successor < 0)
    is_not_loaded = memories.active & ~context.loaded_at_start(memories)
    sizes = context.part_sizes(memories)
    parts = {part: size for part, size in sizes.items() if size.memories}
    first_at = None
    last_at = None
    if len(dated):
        first_at = as_moment(dated.min())
        last_at = as_moment(dated.max())
    return StoreSummary(
        rows=context.size_of(memories, is_present),
        boot=context.boot_of(memories, is_present),
        superseded=context.size_of(memories, is_superseded),
        not_loaded=context.size_of(memories, is_not_loaded),
        inactive=context.size_of(memories, is_inactive & ~is_replaced & ~memories.retired),
        retired=context.size_of(memories, memories.retired),
        reached=context.size_of(memories, is_reached),
        unlisted=context.size_of(memories, is_unlisted),
        doubtful=context.size_of(memories, is_present & memories.doubtful),
        parts=parts,
        pace=pace,
        forecast=_forecast(memories, pace, now=now, threshold=threshold),
        first_at=first_at,
        last_at=last_at,
        out_of_order=int((dated < np.maximum.accumulate(dated)).sum()),
        dangling=int(is_dangling.sum()),
        undated=len(created) - len(dated),
        without_zone=memories.without_zone,
        starts=tuple(context.starts_of(memories)),
        loads_any=memories.at_start is None or bool(memories.at_start[is_present].any()),
        token_rule=token_rule,
        index_overhead=index_overhead,
        floor_not_loaded=context.size_of(memories, is_not_loaded & memories.load_bearing),
    )


def _pace(created: NDArray[np.datetime64], now: np.datetime64) -> Pace | None:
    """Measure the pace in windows counted back from `now`; None if no row was written before it."""
    written = created[created <= now]
    if not len(written):
        return None
    last_written = written.max()
    rates, days = _rates(written, now)
    return Pace(
        median=_median(rates),
        low=float(rates[0]),
        high=float(rates[-1]),
        windows=len(rates),
        window_days=days,
        last_at=as_moment(last_written),
        while_active=_rate_before(last_written, written),
        mean=float(rates.mean()),
    )


def _rates(written: NDArray[np.datetime64], until: np.datetime64) -> tuple[Rates, float]:
    """Return the sorted rates in windows before a moment, and the length of a window.

    Rates are in rows a day, and the length is in days. No window reaches before the oldest row,
    unless that row is less than a day old: then there is one window of a day.
    """
    ages = (until - written) / np.timedelta64(1, "D")
    days = PACE_WINDOW / timedelta(days=1)
    windows = min(PACE_WINDOWS, int(ages.max() // days))
    if not windows:
        windows = 1
        days = max(1.0, float(ages.max()))
    counts, _ = np.histogram(ages, bins=np.arange(windows + 1) * days)
    return np.sort(counts / days), days


def _rate_before(last_written: np.datetime64, written: NDArray[np.datetime64]) -> float:
    """Return the rows a day in the eight weeks before the last row, or since the first row."""
    ages = (last_written - written) / np.timedelta64(1, "D")
    longest = PACE_WINDOWS * (PACE_WINDOW / timedelta(days=1))
    days = min(max(float(ages.max()), 1.0), longest)
    return float((ages <= days).sum() / days)


def _median(rates: Rates) -> float:
    """Return the median of sorted rates; np.median would import numpy.ma."""
    return float(rates[[(len(rates) - 1) // 2, len(rates) // 2]].mean())


def _forecast(
    memories: Arrays, pace: Pace | None, *, now: datetime, threshold: int | None
) -> Forecast | None:
    """Return the forecast for a threshold; None without a threshold."""
    if threshold is None:
        return None
    remaining = threshold + 1 - int(memories.prunable.sum())
    if remaining <= 0:
        return Forecast(threshold, passed_at=_passed_at(memories, threshold))
    if pace is None:
        return Forecast(threshold)
    return Forecast(
        threshold,
        expected=_exceeded_at(now, remaining, pace.per_day),
        earliest=_exceeded_at(now, remaining, pace.high),
        latest=_exceeded_at(now, remaining, pace.low),
    )


def _passed_at(memories: Arrays, threshold: int) -> datetime:
    """Return the time since which the backlog exceeds a threshold; it must exceed it now."""
    is_prunable = ~memories.load_bearing
    created_at, superseded_at, deleted_at = context.lifetimes(memories)
    # Each memory adds 1 to the backlog when it is created, and subtracts 1 when it leaves.
    starts = created_at[is_prunable]
    ends = np.minimum(superseded_at, deleted_at)[is_prunable]
    ends = ends[ends < context.NEVER]
    times = np.concatenate([ends, starts])
    changes = np.repeat([-1, 1], [len(ends), len(starts)])
    moments, moment_numbers = np.unique(times, return_inverse=True)
    backlog = np.cumsum(np.bincount(moment_numbers, weights=changes))
    not_exceeded = np.flatnonzero(backlog <= threshold)
    first_exceeded = not_exceeded[-1] + 1 if len(not_exceeded) else 0
    return as_moment(moments[first_exceeded].astype("datetime64[us]"))


def _shares(part: Size, summary: StoreSummary) -> str:
    """Describe the share of a part in the memories and tokens that a start loads."""
    boot = summary.boot
    memories = f"{percent(part.memories / boot.memories)} of {counted(boot.memories, 'memories')}"
    tokens = percent(part.tokens / boot.tokens) if boot.tokens else "none"
    # A start also loads the text of the index, so its tokens are more than those of the memories.
    their = "their " if summary.index_overhead else ""
    return f"{memories}, {tokens} of {their}{counted(boot.tokens, 'tokens')}"


def _floor_in_words(summary: StoreSummary) -> str:
    """Describe the number of load-bearing memories, and of those that a start loads."""
    loaded = summary.boot.load_bearing
    not_loaded = summary.floor_not_loaded.memories
    if not loaded.memories and not not_loaded:
        return "no load-bearing memories"
    if not not_loaded:
        return f"{_shares(loaded, summary)}: load-bearing, no cap goes below"
    total = counted(loaded.memories + not_loaded, "load-bearing memories")
    if not loaded.memories:
        return f"{total}, none of them loaded now"
    shares = _shares(loaded, summary)
    return f"{total}, {loaded.memories:,} of them loaded now: {shares}; no cap goes below"


def _facts(summary: StoreSummary) -> Iterator[tuple[str, str]]:
    """Yield the facts of the page."""
    boot = summary.boot
    prunable = "no memory is loaded, so no cap can delete anything"
    if boot.memories:
        shares = _shares(boot.prunable, summary)
        if summary.prunable_not_loaded:
            prunable = f"{summary.prunable_in_words()}: {shares}; a cap could delete them all"
        else:
            prunable = f"{shares}: what a cap could delete"
    yield "prunable share", prunable
    yield "floor", _floor_in_words(summary)
    if boot.is_mostly_floor:
        share = f"{boot.load_bearing.tokens:,} of {counted(boot.tokens, 'tokens')}"
        sentence = f"no cap on episodes can help much: {share} are load-bearing"
        yield "", f"{sentence}; shorten or supersede the largest"
    if summary.pace:
        yield "pace", _pace_in_words(summary.pace)
    forecast = summary.forecast
    if forecast and forecast.passed_at:
        exceeded = _backlog_in_words("more than", forecast.threshold, "since", forecast.passed_at)
        yield "backlog", exceeded
    elif forecast and forecast.expected:
        expected = forecast.expected
        yield "backlog", _backlog_in_words("will exceed", forecast.threshold, "about", expected)
    counts = {
        "created before a memory that was inserted earlier": summary.out_of_order,
        "superseded by a memory that is not there": summary.dangling,
        "without a usable time": summary.undated,
    }
    for kind, count in counts.items():
        if count:
            yield "odd", f"{count:,} {kind}"
    if summary.without_zone:
        yield "dates", zoneless_in_words(summary.without_zone)
    yield "tokens", summary.token_rule


def _backlog_in_words(relation: str, threshold: int, preposition: str, day: datetime) -> str:
    """Describe when the number of prunable memories exceeds the threshold."""
    memories = counted(threshold, "prunable memories")
    return f"{relation} {memories} {preposition} {day:%Y-%m-%d}"


def _pace_in_words(pace: Pace) -> str:
    """Return the pace in words."""
    last_day = f"the last on {pace.last_at:%Y-%m-%d}"
    days = counted(pace.windows * pace.window_days, "days").removeprefix("1 ")
    span = f"the last {days}"
    if pace.windows > 1:
        span += f", {_periods_in_words(pace)}"
    if not pace.high:
        rate = f"{_rate_text(pace.while_active)} episodes a day"
        return f"{rate} shortly before the last one, on {pace.last_at:%Y-%m-%d}; none since"
    if not pace.median:
        written = counted(round(pace.mean * pace.windows * pace.window_days), "episodes")
        periods = "weeks" if pace.window_days == 7 else counted(pace.windows, "periods")
        return f"{written} in the last {days}, none in most {periods}, {last_day}"
    spread = f"{_rate_text(pace.low)} to {_rate_text(pace.high)}"
    return f"{_rate_text(pace.median)} episodes a day ({spread} in {span}), {last_day}"


def _periods_in_words(pace: Pace) -> str:
    """Return the windows of a pace as text, such as "week by week"."""
    if pace.window_days == 7:
        return "week by week"
    return f"each of {counted(pace.windows, 'periods')}"


def _rate_text(per_day: float) -> str:
    """Return a rate as text; a small rate does not become 0."""
    return f"{per_day:.1f}" if per_day >= 0.05 or not per_day else f"{per_day:.2g}"


def _exceeded_at(now: datetime, rows: int, rate: float) -> datetime | None:
    """Return the time at which `rows` more rows are written at a daily rate; None for never."""
    if not rate:
        return None
    try:
        return now + timedelta(days=rows / rate)
    except OverflowError:
        return None
