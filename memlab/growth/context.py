"""Starts: the memories that an agent loads at start, now and over a store's history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from memlab import columns as c
from memlab.arguments import expect
from memlab.frame.fields import KINDS, Arrays, Flags, Ints, Times, arrays_of, inherited_attrs
from memlab.items import Size
from memlab.sources.tables import as_numbers, of_numbers
from memlab.text import counted, verb_for

if TYPE_CHECKING:
    import pandas as pd

    from memlab.evidence.past import HistoryLike

PARTS: Final = ("decisions", "skills", "rejected paths", "protected", "unreadable", "episodes")
"""The parts of a start.

All parts except ``"episodes"`` are load-bearing. The part ``"protected"`` has the episodes with a
protected tag.
"""
INDEX_TEXT: Final = "text of the index"
"""Part of a start that belongs to no memory: the headings and prose of a loaded index."""
_IF_ANY: Final = frozenset({"protected", "unreadable"})
"""Parts that are shown only if they are not empty."""
CONTEXT_WINDOW: Final = 200_000
"""Tokens of a context window; the default of ``context_window`` in ``memlab.toml``."""
NO_ALERT_BELOW: Final = CONTEXT_WINDOW // 100
"""Tokens per start below which there is no alert."""


@dataclass(frozen=True, slots=True)
class Boot:
    """The size of a start, and its prunable shares.

    Attributes
    ----------
    memories, tokens : int
        Number of memories that a start loads, and their tokens.
    load_bearing, prunable : Size
        The load-bearing and the prunable ones among these memories.
    prunable_by_memories, prunable_by_tokens : float or None
        The prunable share of the memories and of the tokens, from 0 to 1; None for an empty start.

    Examples
    --------
    >>> import memlab
    >>> boot = memlab.show(memlab.store_path("looked_up")).summary.boot
    >>> boot.load_bearing.tokens + boot.prunable.tokens == boot.tokens
    True
    """

    memories: int
    tokens: int
    load_bearing: Size
    prunable: Size
    prunable_by_memories: float | None
    prunable_by_tokens: float | None

    @property
    def is_mostly_floor(self) -> bool:
        """Whether at least half of the tokens, and 2,000 tokens, are load-bearing.

        No cap can then make the start much smaller.
        """
        return self.load_bearing.tokens >= max(NO_ALERT_BELOW, self.tokens / 2)


def boot_context(frame: "HistoryLike") -> "pd.DataFrame":
    """Return the memories and tokens of each part of what an agent loads at start.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        As :func:`memlab.load` returns it, or the store itself.

    Returns
    -------
    pandas.DataFrame
        One row for each part. The index ``part`` has the names in the order of :data:`PARTS`. The
        columns are the loaded ``memories`` and ``tokens`` (int64), and ``load_bearing``, which is
        true for a load-bearing part. ``attrs`` holds the token rule.

        The first part is called ``decisions`` in the store of an agent that uses memlab, and
        ``facts`` in others. Three parts are listed only if they are not empty: ``protected``
        (episodes with a tag that a person protects), ``unreadable`` (rows that are kept because
        they could not be interpreted) and ``text of the index`` (headings and prose of an index,
        which belong to no memory).

    Examples
    --------
    >>> import memlab
    >>> context = memlab.growth.boot_context(memlab.store_path("looked_up"))
    >>> context.index.tolist()
    ['decisions', 'skills', 'rejected paths', 'episodes']
    """
    import pandas as pd

    from memlab.evidence.past import resolve_history

    frame = resolve_history(frame, call="memlab.growth.boot_context")
    sizes = part_sizes(arrays_of(frame))
    parts_to_list = [part for part in PARTS if part not in _IF_ANY or sizes[part].memories]
    names = dict(zip(PARTS, part_names(frame), strict=True))
    rows = {names[part]: sizes[part] for part in parts_to_list}
    index_tokens = frame.attrs.get(c.INDEX_TOKENS, 0)
    if index_tokens:
        rows[INDEX_TEXT] = Size(0, index_tokens)
    index = pd.Index([*rows], dtype="str", name=c.PART)
    result = pd.DataFrame([*rows.values()], index, [c.MEMORIES, c.TOKENS])
    result[c.LOAD_BEARING] = index != "episodes"
    result.attrs = inherited_attrs(frame)
    return result


def part_names(frame: "pd.DataFrame") -> tuple[str, ...]:
    """Return the names of :data:`PARTS` for the memories of a frame.

    Semantic memories are called decisions only in a store of memlab's own format. Those of other
    systems, such as the feedback that Claude Code keeps, are called facts.
    """
    return ("facts", *PARTS[1:]) if c.LOADED_AT_START in frame else PARTS


def part_sizes(memories: Arrays) -> dict[str, Size]:
    """Return the size of each of :data:`PARTS`."""
    part_numbers, loaded = parts_of(memories)
    return {
        name: size_of(memories, loaded & (part_numbers == number))
        for number, name in enumerate(PARTS)
    }


def parts_of(memories: Arrays) -> tuple[Ints, Flags]:
    """Return the number of each memory's part in :data:`PARTS`, and whether a start loads it."""
    # First, every episode counts as protected; the prunable ones get another number below.
    by_kind = {"semantic": "decisions", "procedural": "skills", "episodic": "protected"}
    number_of_kind = [PARTS.index(by_kind[kind]) for kind in KINDS]
    part_numbers = np.array([*number_of_kind, PARTS.index("unreadable")])[memories.kind]
    if memories.rejected is not None:
        part_numbers[(part_numbers == PARTS.index("protected")) & memories.rejected] = PARTS.index(
            "rejected paths"
        )
    part_numbers[~memories.load_bearing] = PARTS.index("episodes")
    part_numbers[memories.unreadable] = PARTS.index("unreadable")
    return part_numbers, loaded_at_start(memories)


def loaded_at_start(memories: Arrays) -> Flags:
    """Return flags of the memories that a start loads.

    A start loads the active memories, or only those that the source marks as loaded at start.
    """
    if memories.at_start is None or not memories.at_start.any():
        return memories.active
    return memories.active & memories.at_start


def entries_loaded(is_kept: Flags, *, is_loaded: Flags, is_active: Flags) -> Flags:
    """Return flags of the memories that a start loads after entries of an index were removed.

    A start loads as many entries of a cut index as before, so entries below the cut move up. The
    entries are assumed to be in the order of writing.

    Parameters
    ----------
    is_kept : array of bool
        Whether the entry of each memory is kept, in the order of writing.
    is_loaded : array of bool
        Whether each memory is loaded now.
    is_active : array of bool
        Whether each memory is active.

    Examples
    --------
    >>> now = np.array([True, True, False, False])
    >>> everything = np.ones(4, dtype=bool)
    >>> kept = np.array([False, True, True, True])
    >>> entries_loaded(kept, is_loaded=now, is_active=everything).tolist()
    [False, True, True, False]
    """
    still_loaded = is_kept & is_loaded
    below_cut = np.flatnonzero(is_kept & is_active & ~is_loaded)
    free_lines = int(is_loaded.sum()) - int(still_loaded.sum())
    still_loaded[below_cut[:free_lines]] = True
    return still_loaded


def loaded_after(frame: "pd.DataFrame", is_kept: Flags, *, is_active: Flags | None = None) -> Flags:
    """Return flags of the memories that a start loads after memories of a frame were deleted.

    Parameters
    ----------
    frame : DataFrame
        The memories of a store, in the order of writing.
    is_kept : array of bool
        Whether each memory is kept.
    is_active : array of bool, optional
        Whether each memory is active after the deletion if it is kept; by default as before.
    """
    memories = arrays_of(frame)
    is_loaded = loaded_at_start(memories)
    if c.INDEX_TOKENS not in frame.attrs:
        return is_kept & is_loaded
    if is_active is None:
        is_active = memories.active
    return entries_loaded(is_kept, is_loaded=is_loaded, is_active=is_active)


def starts_of(memories: Arrays) -> list[Size]:
    """Return the size of each start: one for each namespace, or one for all loaded memories."""
    loaded = loaded_at_start(memories)
    if memories.namespace is None or memories.at_start is None or not memories.at_start.any():
        return [size_of(memories, loaded)]
    names = memories.namespace.fill_null("").to_numpy(zero_copy_only=False).astype(str)
    return [size_of(memories, loaded & (names == name)) for name in np.unique(names[loaded])]


def largest_start(memories: Arrays) -> int:
    """Return the tokens of the largest start; 0 if no start loads anything."""
    if memories.at_start is not None and not memories.at_start.any():
        return 0
    return max((start.tokens for start in starts_of(memories)), default=0)


def boot_of(memories: Arrays, rows: Flags) -> Boot:
    """Return the size of a start; `rows` flags the memories that count."""
    loaded = rows & loaded_at_start(memories)
    total = size_of(memories, loaded)
    prunable = size_of(memories, loaded & memories.prunable)
    prunable_by_memories = prunable.memories / total.memories if total.memories else None
    prunable_by_tokens = prunable.tokens / total.tokens if total.tokens else None
    return Boot(
        memories=total.memories,
        tokens=total.tokens,
        load_bearing=size_of(memories, loaded & ~memories.prunable),
        prunable=prunable,
        prunable_by_memories=prunable_by_memories,
        prunable_by_tokens=prunable_by_tokens,
    )


def size_of(memories: Arrays, rows: Flags) -> Size:
    """Count the memories that `rows` flags, and their tokens."""
    return Size(int(rows.sum()), int(memories.tokens[rows].sum()))


def count_below_cut(present: "pd.DataFrame") -> int:
    """Return the number of active memories that a start does not load.

    In a store with an index, the index names them below the part that a start loads.
    """
    if c.LOADED_AT_START not in present:
        return 0
    return int((present[c.ACTIVE] & ~present[c.LOADED_AT_START]).sum())


def cut_in_words(present: "pd.DataFrame") -> str:
    """Return the end of a sentence about a cut index, with the part that a start loads.

    The text is empty if the index is not cut.
    """
    if c.LOADED_AT_START not in present:
        return ""
    active = present[present[c.ACTIVE]]
    loaded = active[active[c.LOADED_AT_START]]
    if len(loaded) == len(active):
        return ""
    tokens = f"{int(loaded[c.TOKENS].sum()):,} of their {int(active[c.TOKENS].sum()):,} tokens"
    return (
        f"is cut: a start loads {len(loaded):,} of the {len(active):,} memories that it names, "
        f"{tokens}; lines below the cut move up as others go, and starts of the past are counted "
        "without a cut"
    )


NEVER: Final = np.iinfo(np.int64).max
"""Time of supersession or deletion of a memory that was not superseded or deleted."""


def lifetimes(memories: Arrays) -> tuple[Ints, Ints, Ints]:
    """Return the times at which each memory was created, superseded and deleted.

    Times are in microseconds since 1970; `NEVER` stands for a memory that was not superseded or
    deleted. A retired memory counts as superseded. A memory without a creation time gets the time
    of the memory before it.
    """
    created_at = _filled_times(memories.created_at)
    count = len(created_at)
    superseded_at = np.full(count, NEVER, dtype=np.int64)
    superseded, successor = successors(memories)
    superseded_at[superseded] = created_at[superseded]  # if the successor is unknown
    is_known = successor >= 0
    with_successor = superseded[is_known]
    superseded_at[with_successor] = np.maximum(
        created_at[with_successor], created_at[successor[is_known]]
    )
    if memories.retired_at is not None:
        retired_at = memories.retired_at.astype("datetime64[us]").astype(np.int64)
        retired_at = np.maximum(created_at, retired_at)
        superseded_at = np.where(memories.retired, retired_at, superseded_at)
    deleted_at = np.full(count, NEVER, dtype=np.int64)
    if memories.deleted_at is not None:
        is_deleted = ~np.isnat(memories.deleted_at)
        times = memories.deleted_at[is_deleted].astype("datetime64[us]")
        deleted_at[is_deleted] = times.astype(np.int64)
    return created_at, superseded_at, np.maximum(created_at, deleted_at)


def _filled_times(times: Any) -> Ints:
    """Return times in microseconds since 1970, without missing values.

    A missing time gets the value of the time before it. Missing times at the beginning get the
    first known time, or 0 if no time is known.
    """
    count = len(times)
    dated = np.flatnonzero(~np.isnat(times))
    if not len(dated):
        return np.zeros(count, dtype=np.int64)
    latest_dated_before = np.searchsorted(dated, np.arange(count), side="right") - 1
    filled: Ints = times[dated[np.maximum(latest_dated_before, 0)]].astype(np.int64)
    return filled


def successors(memories: Arrays) -> tuple[Ints, Ints]:
    """Return the row numbers of superseded memories and of their successors.

    The row number of an unknown successor is -1.
    """
    is_superseded = ~memories.active
    if memories.deleted_at is not None:  # a deleted memory is inactive, but need not be superseded
        is_superseded &= np.isnat(memories.deleted_at) | memories.replaced
    superseded = np.flatnonzero(is_superseded)
    if not len(superseded):
        return superseded, superseded
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = memories.memory_id.cast(pa.large_string())
    successor_ids = memories.superseded_by.take(of_numbers(superseded)).cast(pa.large_string())
    rows = pc.index_in(successor_ids, value_set=ids, skip_nulls=True).cast(pa.int64())
    return superseded, as_numbers(rows, np.int64(-1))


_MAX_INSTANTS: Final = 100_000
"""Maximum number of instants of a growth curve if the caller chose the frequency."""
_MAX_DEFAULT_INSTANTS: Final = 1_000
"""Maximum number of instants of a growth curve if the caller chose no frequency."""
_LAST_YEAR: Final = 9999
"""The last year of Python's calendar, which the axes of charts share."""
_DEFAULT_FREQUENCIES: Final = ("s", "min", "h", "D", "W", "MS", "YS")
"""Frequencies to choose from; a growth curve has the finest that gives few enough instants."""


def growth_curve(frame: "HistoryLike", *, freq: str | None = None) -> "pd.DataFrame":
    """Return the size of a store at evenly spaced instants, computed from the rows of a frame.

    A row counts from its ``created_at`` on. A superseded row counts as active until its successor
    was created, and then as superseded. If the successor is not in the frame, the row counts as
    superseded from the beginning. A retired row counts as active until it was last retired. A row
    without a usable time gets the time of the row inserted before it.

    With a frame of a whole past (:func:`memlab.load_past`), deletions reduce the curve. Memories
    that were deleted without an archive are unknown. The curve is then a lower bound, and its
    caveat says so.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The result of ``memlab.load`` or ``memlab.load_past``, or the store itself, for its whole
        past.
    freq : str, optional
        A pandas frequency such as ``"D"`` or ``"W"``. The default is the finest of seconds,
        minutes, hours, days, weeks, months and years that gives at most 1,000 instants.

    Returns
    -------
    pandas.DataFrame
        Columns as in :data:`memlab.columns.GROWTH_DTYPES`. The index ``at`` has instants in UTC:
        the first is before the first row was written, and the last is at or after the time of the
        last row.
        Prunable shares are NaN while no row is active. ``attrs`` has the token rule, the caveat as
        a sentence, the number of rows without a usable time, and the number of memories that an
        index names below its cut.

    Examples
    --------
    >>> import memlab
    >>> curve = memlab.growth_curve(memlab.store_path("looked_up"), freq="MS")
    >>> bool(curve["prunable"].is_monotonic_increasing)
    True
    """
    import pandas as pd

    from memlab.evidence.past import resolve_history

    frame = resolve_history(frame, call="memlab.growth_curve")
    expect(freq, str, call="memlab.growth_curve", name="freq", optional=True)
    memories = arrays_of(frame)
    created_at, superseded_at, deleted_at = lifetimes(memories)
    is_deleted = deleted_at < NEVER
    times = np.concatenate([created_at, superseded_at[memories.retired], deleted_at[is_deleted]])
    instants = _instants(times, freq)
    at = instants.as_unit("us").asi8
    curve = pd.DataFrame(index=instants.rename(c.AT))
    # A memory is active until it is superseded or deleted, and then inactive until it is deleted.
    active_until = np.minimum(superseded_at, deleted_at)
    inactive_until = np.maximum(superseded_at, deleted_at)
    out_of_reach = memories.in_state(c.REACHED) | memories.in_state(c.UNLISTED)
    is_superseded = ~memories.retired & ~out_of_reach
    for count_column, token_column, rows, since, until in (
        (c.LOAD_BEARING, c.LOAD_BEARING_TOKENS, memories.load_bearing, created_at, active_until),
        (c.PRUNABLE, c.PRUNABLE_TOKENS, ~memories.load_bearing, created_at, active_until),
        (c.SUPERSEDED, c.SUPERSEDED_TOKENS, is_superseded, superseded_at, inactive_until),
        (c.RETIRED, c.RETIRED_TOKENS, memories.retired, superseded_at, inactive_until),
    ):
        tokens = memories.tokens[rows]
        begun = _cumulative(since[rows], tokens, at)
        ended = _cumulative(until[rows], tokens, at)
        curve[count_column] = begun.memories - ended.memories
        curve[token_column] = begun.tokens - ended.tokens
    curve[c.PRUNABLE_SHARE] = curve[c.PRUNABLE] / (curve[c.PRUNABLE] + curve[c.LOAD_BEARING])
    curve[c.PRUNABLE_SHARE_TOKENS] = curve[c.PRUNABLE_TOKENS] / (
        curve[c.PRUNABLE_TOKENS] + curve[c.LOAD_BEARING_TOKENS]
    )
    curve = curve[list(c.GROWTH_DTYPES)].astype(c.GROWTH_DTYPES)
    curve.attrs = inherited_attrs(frame)
    curve.attrs[c.CAVEAT] = _caveat(frame)
    curve.attrs[c.UNDATED] = int(frame[c.CREATED_AT].isna().sum())
    curve.attrs[c.BELOW_CUT] = count_below_cut(frame[~is_deleted])
    return curve


def _caveat(frame: "pd.DataFrame") -> str:
    """Return a sentence about memories that the curve does not count; empty if there are none."""
    from memlab.evidence.past import gaps_of

    gaps = gaps_of(frame).memories
    if not gaps:
        return ""
    subject = f"{gaps:,} memories were" if gaps > 1 else "1 memory was"
    if c.DELETED_AT in frame:
        return f"{subject} deleted without an archive, and left no trace."
    return f"{subject} deleted earlier: the curve counts those that survive."


class _Cumulative(NamedTuple):
    """Cumulative numbers of memories and of their tokens, one for each instant."""

    memories: Ints
    tokens: Ints


def _cumulative(times: Ints, tokens: Ints, at: Ints) -> _Cumulative:
    """Count, for each instant in `at`, the memories whose time is not later, and their tokens.

    `times` and `tokens` have one value for each memory.
    """
    order = np.argsort(times, kind="stable")
    totals = np.concatenate([[0], np.cumsum(tokens[order])])
    memories = np.searchsorted(times[order], at, side="right")
    return _Cumulative(memories=memories, tokens=totals[memories])


def _instants(times: Ints, freq: str | None) -> "pd.DatetimeIndex":
    """Return evenly spaced instants from before the first of the times to after the last."""
    import pandas as pd

    if not len(times):
        return pd.DatetimeIndex([], dtype=c.TIME)
    first = pd.Timestamp(int(times.min()), unit="us", tz="UTC")
    last = pd.Timestamp(int(times.max()), unit="us", tz="UTC")
    names = _DEFAULT_FREQUENCIES if freq is None else (freq,)
    max_instants = _MAX_DEFAULT_INSTANTS if freq is None else _MAX_INSTANTS
    offsets = {name: _offset(name) for name in names}
    for name, step in offsets.items():
        if first + step <= first:
            raise ValueError(f"freq must go forward in time, not {freq!r}")
        count = (last - first) / ((first + step + step) - (first + step))
        is_coarsest = freq is None and name == _DEFAULT_FREQUENCIES[-1]
        if count <= max_instants or is_coarsest:
            start = first.normalize() - step
            instants = pd.date_range(start, last + step + step, freq=step, unit="us")
            instants = instants.where(instants.year >= 1, first)
            instants = instants.where(instants.year <= _LAST_YEAR, last)
            start_row = max(0, int(instants.searchsorted(first, side="left")) - 1)
            end_row = int(instants.searchsorted(last, side="left")) + 1
            return instants[start_row:end_row]
    raise ValueError(
        f"freq {freq!r} gives more than {_MAX_INSTANTS:,} instants between {first} and {last}; "
        "choose a coarser one"
    )


def _offset(freq: str) -> Any:
    """Return the offset of a pandas frequency."""
    from pandas.tseries.frequencies import to_offset

    try:
        return to_offset(freq)
    except ValueError as error:
        raise ValueError(f"freq={freq!r} is not a pandas frequency, such as 'D' or 'W'") from error


_LISTED_FUTURE: Final = 5
"""Number of memories dated in the future that a message names."""


@dataclass(frozen=True, slots=True)
class FutureDates:
    """Creation times in the future, which means more than a day after the present moment.

    Attributes
    ----------
    ahead : array of bool
        Whether each row is dated in the future.
    latest : numpy.datetime64
        The latest creation time; NaT if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from datetime import UTC, datetime
    >>> created_at = np.array(["2026-01-01", "2099-01-01"], dtype="datetime64[us]")
    >>> dates = FutureDates.of(created_at, datetime(2026, 2, 1, tzinfo=UTC))
    >>> dates.left_out.tolist(), dates.in_words(["a", "b"])
    ([False, True], '1 row is dated in the future: b')
    """

    ahead: Flags
    latest: np.datetime64

    @classmethod
    def of(cls, created_at: Times, now: datetime) -> "FutureDates":
        """Return the future dates among creation times, as seen from a moment."""
        in_utc = now.astimezone(UTC).replace(tzinfo=None)
        limit = np.datetime64(in_utc, "us") + np.timedelta64(1, "D")
        latest = np.fmax.reduce(created_at, initial=np.datetime64("NaT"))
        return cls(created_at > limit, latest)

    @property
    def is_wrong_clock(self) -> bool:
        """Whether so many dates are in the future that a clock may be wrong.

        This is so for more than three dates and more than a tenth of all dates.
        """
        return int(self.ahead.sum()) > max(3, len(self.ahead) // 10)

    @property
    def left_out(self) -> Flags:
        """Flags of the rows whose dates are not used; no row if a clock may be wrong."""
        return np.zeros(len(self.ahead), dtype=bool) if self.is_wrong_clock else self.ahead

    def in_words(self, ids: Sequence[str]) -> str:
        """Return a sentence with the number and ids of the rows dated in the future.

        It is empty if there are none. `ids` has the ids of all rows.
        """
        count = int(self.ahead.sum())
        if not count:
            return ""
        if self.is_wrong_clock:
            return (
                f"{count:,} of {counted(len(self.ahead), 'rows')} are dated in the future, up to "
                f"{self.latest.astype('datetime64[D]')}, so many that a clock may be wrong: this "
                "machine's, or that of the program that wrote them"
            )
        named = [ids[row] for row in np.flatnonzero(self.ahead)[:_LISTED_FUTURE]]
        hidden = f" and {count - _LISTED_FUTURE:,} more" if count > _LISTED_FUTURE else ""
        subject = f"{counted(count, 'rows')} {verb_for(count, 'are')}"
        return f"{subject} dated in the future: {', '.join(named)}{hidden}"
