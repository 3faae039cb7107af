"""What an agent loads at start, now and at each instant of a store's history."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memlab import columns as c
from memlab.arguments import expect
from memlab.frame.fields import KINDS, Arrays, Flags, Ints, arrays_of, passed_on
from memlab.items import Size
from memlab.sources.tables import as_numbers, of_numbers

if TYPE_CHECKING:
    import pandas as pd

    from memlab.evidence.past import Memories

PARTS: Final = ("decisions", "skills", "rejected paths", "protected", "unreadable", "episodes")
"""The parts of a boot context. All but the episodes are load-bearing; protected are episodes with a
tag that a person protects."""
_IF_ANY: Final = frozenset({"protected", "unreadable"})
"""Parts that are shown where there are some."""
LEAST: Final = 2_000
"""Tokens a start below which nothing is worth a word: a hundredth of a context of 200,000."""


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot context and its prunable share, in [0, 1]; None where there is nothing to divide."""

    memories: int
    tokens: int
    load_bearing: Size
    prunable: Size
    prunable_by_memories: float | None
    prunable_by_tokens: float | None

    @property
    def is_mostly_floor(self) -> bool:
        """Whether no cap can help much: half of it, and enough to matter, is load-bearing."""
        return self.load_bearing.tokens >= max(LEAST, self.tokens / 2)


def boot_context(frame: "Memories") -> "pd.DataFrame":
    """Return what an agent loads at start, part by part.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        As :func:`memlab.load` returns it, or the store itself.

    Returns
    -------
    pandas.DataFrame
        Indexed by ``part``, in the order of :data:`PARTS`; ``memories`` and ``tokens`` (int64)
        that are loaded, and whether the part is ``load_bearing``. ``protected`` (episodes with a
        protected tag of a person's own) and ``unreadable`` (rows kept because they could not be
        interpreted) are there only when they are not empty. ``attrs`` carries the token rule.
    """
    import pandas as pd

    from memlab.evidence.past import resolve_history

    frame = resolve_history(frame, call="memlab.growth.boot_context")
    sizes = part_sizes(arrays_of(frame))
    listed = [part for part in PARTS if part not in _IF_ANY or sizes[part].memories]
    index = pd.Index(listed, dtype="str", name=c.PART)
    result = pd.DataFrame([sizes[part] for part in listed], index, [c.MEMORIES, c.TOKENS])
    result[c.LOAD_BEARING] = index != "episodes"
    result.attrs = passed_on(frame)
    return result


def part_sizes(memories: Arrays) -> dict[str, Size]:
    """Return how large each of :data:`PARTS` is."""
    by_kind = {"semantic": "decisions", "procedural": "skills", "episodic": "protected"}
    places = [PARTS.index(by_kind[kind]) for kind in KINDS]
    part = np.array([*places, PARTS.index("unreadable")])[memories.kind]
    if memories.rejected is not None:
        part[(part == PARTS.index("protected")) & memories.rejected] = PARTS.index("rejected paths")
    part[~memories.load_bearing] = PARTS.index("episodes")
    part[memories.unreadable] = PARTS.index("unreadable")
    loaded = loaded_at_start(memories)
    return {name: size_of(memories, loaded & (part == place)) for place, name in enumerate(PARTS)}


def loaded_at_start(memories: Arrays) -> Flags:
    """Return what is loaded at start: all that is active where a source loads none by itself."""
    if memories.at_start is None or not memories.at_start.any():
        return memories.active
    return memories.active & memories.at_start


def starts_of(memories: Arrays) -> list[Size]:
    """Return what each of the starts loads: one a namespace, or all that is loaded."""
    loaded = loaded_at_start(memories)
    if memories.namespace is None or memories.at_start is None or not memories.at_start.any():
        return [size_of(memories, loaded)]
    names = memories.namespace.fill_null("").to_numpy(zero_copy_only=False).astype(str)
    return [size_of(memories, loaded & (names == each)) for each in np.unique(names[loaded])]


def largest_start(memories: Arrays) -> int:
    """Return the tokens of the largest start; 0 where none loads anything by itself."""
    if memories.at_start is not None and not memories.at_start.any():
        return 0
    return max((each.tokens for each in starts_of(memories)), default=0)


def boot_of(memories: Arrays, rows: Flags) -> Boot:
    """Return the boot context that some of the memories make up."""
    loaded = rows & loaded_at_start(memories)
    everything, prunable, load_bearing = (
        size_of(memories, loaded & part) for part in (loaded, memories.prunable, ~memories.prunable)
    )
    by_memories, by_tokens = (
        part / whole if whole else None for part, whole in zip(prunable, everything, strict=True)
    )
    return Boot(*everything, load_bearing, prunable, by_memories, by_tokens)


def size_of(memories: Arrays, rows: Flags) -> Size:
    """Return how many `rows` there are and what they hold."""
    return Size(int(rows.sum()), int(memories.tokens[rows].sum()))


NEVER: Final = np.iinfo(np.int64).max
"""When a memory was replaced or deleted that never was."""


def lifetimes(memories: Arrays) -> tuple[Ints, Ints, Ints]:
    """Return when each memory was created (else as the one before), replaced and deleted, in μs."""
    created = memories.created_at
    dated = np.flatnonzero(~np.isnat(created))
    born = np.zeros(len(created), dtype=np.int64)
    if len(dated):
        place = np.searchsorted(dated, np.arange(len(created)), side="right") - 1
        born = created[dated[np.maximum(place, 0)]].astype(np.int64)
    replaced, successor = successors(memories)
    known = successor >= 0
    ended = np.full(len(created), NEVER, dtype=np.int64)
    ended[replaced] = born[replaced]
    ended[replaced[known]] = np.maximum(born[replaced[known]], born[successor[known]])
    if memories.retired_at is not None:  # for which no other stands
        since = memories.retired_at.astype("datetime64[us]").astype(np.int64)
        ended = np.where(memories.retired, np.maximum(born, since), ended)
    gone = np.full(len(created), NEVER, dtype=np.int64)
    if memories.deleted_at is not None:
        deleted = ~np.isnat(memories.deleted_at)
        gone[deleted] = memories.deleted_at[deleted].astype("datetime64[us]").astype(np.int64)
    return born, ended, np.maximum(born, gone)


def successors(memories: Arrays) -> tuple[Ints, Ints]:
    """Return the places of superseded memories, and of what replaced them; -1 if not there."""
    is_replaced = ~memories.active
    if memories.deleted_at is not None:  # a deleted memory is not active either
        is_replaced &= np.isnat(memories.deleted_at) | memories.replaced
    replaced = np.flatnonzero(is_replaced)
    if not len(replaced):
        return replaced, replaced
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = memories.memory_id.cast(pa.large_string())
    wanted = memories.superseded_by.take(of_numbers(replaced)).cast(pa.large_string())
    found = pc.index_in(wanted, value_set=ids, skip_nulls=True).cast(pa.int64())
    return replaced, as_numbers(found, np.int64(-1))


_MOST_INSTANTS: Final = 100_000
_LAST_YEAR: Final = 9999  # of Python's calendar, and of every axis
_STEPS: Final = ("s", "min", "h", "D", "W", "MS", "YS")


def growth_curve(frame: "Memories", *, freq: str | None = None) -> "pd.DataFrame":
    """Return what the store's surviving rows were at evenly spaced instants.

    A row counts from its ``created_at``. A superseded row counts as active until the row that
    replaced it was created, and as superseded from then on; if that row is not in the frame, as
    superseded from the start. A retired one counts as active until it was retired last. A row
    without a usable time is placed with the row inserted before it.

    A frame of a whole past (:func:`memlab.load_past`) shows deletions as steps. Of what was deleted
    without an archive nothing is known: there the curve is a lower bound, and its caveat says so.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load`` or ``memlab.load_past`` returns, or the store itself, for all its past.
    freq : str, optional
        A pandas frequency such as ``"D"`` or ``"W"``. By default the finest of seconds, minutes,
        hours, days, weeks, months and years that gives at most 1,000 instants.

    Returns
    -------
    pandas.DataFrame
        Columns as in :data:`memlab.columns.GROWTH_DTYPES`; the index ``at`` holds instants in UTC,
        the first before the first row's time, the last at or after the last one's. Prunable
        shares are NaN while nothing is active. ``attrs`` carries the token rule, what
        it cannot show in a sentence, and the number of rows without a usable time.
    """
    import pandas as pd

    from memlab.evidence.past import resolve_history

    frame = resolve_history(frame, call="memlab.growth_curve")
    expect(freq, str, call="memlab.growth_curve", name="freq", optional=True)
    memories = arrays_of(frame)
    born, ended, gone = lifetimes(memories)
    times = np.concatenate([born, ended[memories.retired], gone[gone < NEVER]])
    instants = _instants(times, freq)
    at = instants.as_unit("us").asi8
    curve = pd.DataFrame(index=instants.rename(c.AT))
    first = np.minimum(ended, gone)
    last = np.maximum(ended, gone)
    out_of_reach = memories.in_state(c.REACHED) | memories.in_state(c.UNLISTED)
    for items, tokens_of_items, rows, since, until in (
        (c.LOAD_BEARING, c.LOAD_BEARING_TOKENS, memories.load_bearing, born, first),
        (c.PRUNABLE, c.PRUNABLE_TOKENS, ~memories.load_bearing, born, first),
        (c.SUPERSEDED, c.SUPERSEDED_TOKENS, ~memories.retired & ~out_of_reach, ended, last),
        (c.RETIRED, c.RETIRED_TOKENS, memories.retired, ended, last),
    ):
        tokens = memories.tokens[rows]
        came, left = (_running(moments[rows], tokens, at) for moments in (since, until))
        curve[items], curve[tokens_of_items] = (came - left).T
    curve[c.PRUNABLE_SHARE] = curve[c.PRUNABLE] / (curve[c.PRUNABLE] + curve[c.LOAD_BEARING])
    curve[c.PRUNABLE_SHARE_TOKENS] = curve[c.PRUNABLE_TOKENS] / (
        curve[c.PRUNABLE_TOKENS] + curve[c.LOAD_BEARING_TOKENS]
    )
    curve = curve[list(c.GROWTH_DTYPES)].astype(c.GROWTH_DTYPES)
    undated = int(frame[c.CREATED_AT].isna().sum())
    curve.attrs = passed_on(frame) | {c.CAVEAT: _caveat(frame), c.UNDATED: undated}
    return curve


def _caveat(frame: "pd.DataFrame") -> str:
    """Say what the curve cannot show; nothing where it shows all."""
    from memlab.evidence.past import gaps_of

    gaps = gaps_of(frame).memories
    if not gaps:
        return ""
    what = f"{gaps:,} memories were" if gaps > 1 else "1 memory was"
    if c.DELETED_AT in frame:
        return f"{what} deleted without an archive, and left no trace."
    return f"{what} deleted earlier: the curve counts those that survive."


def _running(times: Ints, tokens: Ints, at: Ints) -> Ints:
    """Return how many of `times` are at or before each instant, and the tokens of those."""
    order = np.argsort(times, kind="stable")
    totals = np.concatenate([[0], np.cumsum(tokens[order])])
    items = np.searchsorted(times[order], at, side="right")
    return np.column_stack([items, totals[items]])


def _instants(born: Ints, freq: str | None) -> "pd.DatetimeIndex":
    import pandas as pd

    if not len(born):
        return pd.DatetimeIndex([], dtype=c.TIME)
    first, last = (pd.Timestamp(int(t), unit="us", tz="UTC") for t in (born.min(), born.max()))
    steps = {name: _step(name) for name in ([freq] if freq else _STEPS)}
    for name, step in steps.items():
        if first + step <= first:
            raise ValueError(f"freq must go forward in time, not {freq!r}")
        expected = (last - first) / ((first + step + step) - (first + step))
        if expected <= (_MOST_INSTANTS if freq else 1_000) or (not freq and name == _STEPS[-1]):
            start = first.normalize() - step
            instants = pd.date_range(start, last + step + step, freq=step, unit="us")
            instants = instants.where(instants.year >= 1, first)
            instants = instants.where(instants.year <= _LAST_YEAR, last)
            begin = max(0, int(instants.searchsorted(first, side="left")) - 1)
            return instants[begin : int(instants.searchsorted(last, side="left")) + 1]
    raise ValueError(
        f"freq {freq!r} gives more than {_MOST_INSTANTS:,} instants between {first} and {last}; "
        "choose a coarser one"
    )


def _step(freq: str) -> Any:
    from pandas.tseries.frequencies import to_offset

    try:
        return to_offset(freq)
    except ValueError as error:
        raise ValueError(f"freq={freq!r} is no pandas frequency, such as 'D' or 'W'") from error
