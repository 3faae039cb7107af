"""Who needed which memory later: the evidence that a cap is sized by.

A reference is a later need for an earlier memory. A store holds them in what later items say about
earlier ones; an access log adds what an agent read without writing it down.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab.arguments import expect_frame
from memlab.clock import aware
from memlab.columns import (
    AT,
    AT_POSITION,
    CREATED_AT,
    EVIDENCE_REFS,
    KIND,
    MEMORY_ID,
    REFERENCE_DTYPES,
    SESSION,
    SOURCE_TASK_REF,
    SUPERSEDED_BY,
    SUPERSEDES,
    TARGET_ID,
    TARGET_POSITION,
    TIME,
)
from memlab.evidence.gaps import named_in_gaps, rows_of_gaps, with_gaps
from memlab.evidence.places import positions_and_next
from memlab.frame.needed import expect_memories

REFERENCE_KINDS: Final = ("evidence", "supersedes", "superseded", "task", "log")
"""Where a reference was found, in the order in which one found twice is attributed."""

COUNTED: Final = "counted"

REASONS: Final = {
    "forward": "the target was written later than the mention",
    "self": "an item names itself",
    "dangling": "nothing in the store has that id or task reference",
    "duplicate": "the same reference was found already",
    "continued": "the task's next item in a row: still the same sitting, not a later need",
    "undated": "the log entry has no time",
    "future": "the log entry is later than now: somebody's clock was ahead",
    "repeated": "the same session read the same memory before",
}

Ordinals = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NOWHERE: Final = -1
_KIND: Final = pd.CategoricalDtype(list(REFERENCE_KINDS))
_EVER: Final = datetime.max.replace(tzinfo=UTC)


class _Mentions:
    """Pairs of row numbers (who mentions, whom), gathered kind by kind, and what was left out."""

    def __init__(self) -> None:
        self.at: list[Ordinals] = []
        self.target: list[Ordinals] = []
        self.kind: list[Ordinals] = []
        self.left_out: dict[str, dict[str, int]] = {}

    def add(self, kind: str, at: Ordinals, target: Ordinals) -> None:
        """Keep the mentions of an earlier row; count the others by reason."""
        reasons = {
            "dangling": target == _NOWHERE,
            "self": target == at,
            "forward": target > at,
        }
        for reason, found in reasons.items():
            self.leave_out(kind, reason, int(found.sum()))
        earlier = (target >= 0) & (target < at)
        self.at.append(at[earlier])
        self.target.append(target[earlier])
        self.kind.append(np.full(int(earlier.sum()), REFERENCE_KINDS.index(kind), np.int64))

    def leave_out(self, kind: str, reason: str, count: int) -> None:
        if count:
            self.left_out.setdefault(kind, {})[reason] = count

    def without_duplicates(self) -> tuple[Ordinals, Ordinals, Ordinals]:
        """One mention for each (at, target), the first kind winning, sorted by `at`."""
        at, target, kind = (
            np.concatenate([np.empty(0, np.int64), *part])
            for part in (self.at, self.target, self.kind)
        )
        order = np.lexsort((kind, target, at))
        at, target, kind = at[order], target[order], kind[order]
        again = np.zeros(len(at), bool)
        again[1:] = (at[1:] == at[:-1]) & (target[1:] == target[:-1])
        for code in np.unique(kind[again]):
            self.leave_out(REFERENCE_KINDS[code], "duplicate", int((kind[again] == code).sum()))
        return at[~again], target[~again], kind[~again]


def find_references(
    frame: pd.DataFrame,
    log: pd.DataFrame | None = None,
    *,
    only_log: bool = False,
    now: datetime | None = None,
) -> pd.DataFrame:
    """Find every reference: every later need for an earlier memory.

    In the store itself it is: an id or a task reference among ``evidence_refs``; an id among
    ``supersedes``; a row named by ``superseded_by``, which replaced the target knowing it; and the
    same ``source_task_ref`` again after items of another task. A task reference points at the
    newest earlier item that carries it. Items of one task in a row were written in one sitting, so
    the next one is none. One found in two ways counts once, under the first kind of
    `REFERENCE_KINDS`.

    In a whole past with gaps, a name that nothing has may be that of a memory that was deleted
    without an archive: it is then a reference to the newest gap before it.

    It arises just before the row that shows it is written: of the rows present then, the row
    before it is the newest.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    log : DataFrame, optional
        An access log: one row per read, with columns ``memory_id`` and ``at`` (times with a zone).
        A read falls after as many rows as had been created by then. Where it has a column
        ``session``, further reads of one memory in one session are the same reference.
    only_log : bool
        Leave what the store itself says aside, for a log that is the whole truth.
    now : datetime, optional
        Reads after this moment, with a time zone, are left out. By default none is.

    Returns
    -------
    DataFrame
        One row per reference in order of ``at_position``: ``target_id``, ``target_position``,
        ``at_position`` (the row about to be written; one past the last position for a read after
        the last write), ``at``, ``kind``. `count_references` says what was left out, and why.

    Raises
    ------
    ValueError
        When the log lacks a column or its times have no zone, or `now` has none.
    """
    return _found(frame, log, only_log=only_log, now=now)[0]


def count_references(
    frame: pd.DataFrame,
    log: pd.DataFrame | None = None,
    *,
    only_log: bool = False,
    now: datetime | None = None,
) -> pd.DataFrame:
    """Count references by kind, beside the mentions that are none and why.

    Parameters
    ----------
    frame, log, only_log, now
        As for `find_references`.

    Returns
    -------
    DataFrame
        One row per kind of reference; ``counted``, then one column per reason of `REASONS`.

    Raises
    ------
    ValueError
        When the log lacks a column or its times have no zone, or `now` has none.
    """
    return references_and_counts(frame, log, only_log=only_log, now=now)[1]


def references_and_counts(
    frame: pd.DataFrame,
    log: pd.DataFrame | None = None,
    *,
    only_log: bool = False,
    now: datetime | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what `find_references` and `count_references` return, from one look."""
    references, kind, left_out = _found(frame, log, only_log=only_log, now=now)
    return references, _counts(kind, left_out)


def _found(
    frame: pd.DataFrame, log: pd.DataFrame | None, *, only_log: bool, now: datetime | None
) -> tuple[pd.DataFrame, Ordinals, dict[str, dict[str, int]]]:
    """Return the references, the number of each one's kind, and what was left out and why."""
    expect_memories(frame, call="memlab.find_references")
    expect_frame(log, call="memlab.find_references", name="log", what="log", optional=True)
    frame = with_gaps(frame)
    mentions = _Mentions()
    if not only_log:
        _add_named(mentions, frame)
        _add_returns(mentions, frame)
    at, target, kind = mentions.without_duplicates()
    when = _utc(frame[CREATED_AT])[at]
    if log is not None:
        read_at, read_target, read_when = _reads(mentions, frame, log, now)
        order = np.argsort(np.concatenate([at, read_at]), kind="stable")
        kind = np.concatenate([kind, np.full(len(read_at), REFERENCE_KINDS.index("log"))])[order]
        at = np.concatenate([at, read_at])[order]
        target = np.concatenate([target, read_target])[order]
        when = np.concatenate([when, read_when])[order]
    positions = positions_and_next(frame)
    references = pd.DataFrame(
        {
            TARGET_ID: frame[MEMORY_ID].array.take(target).astype(REFERENCE_DTYPES[TARGET_ID]),
            TARGET_POSITION: positions[target],
            AT_POSITION: positions[at],
            AT: pd.DatetimeIndex(when).tz_localize("UTC"),
            KIND: pd.Categorical.from_codes(kind, dtype=_KIND),
        }
    )
    return references, kind, mentions.left_out


def _counts(kind: Ordinals, left_out: dict[str, dict[str, int]]) -> pd.DataFrame:
    """Return the table of `count_references`."""
    table = pd.DataFrame(left_out).T.reindex(index=REFERENCE_KINDS, columns=[COUNTED, *REASONS])
    table[COUNTED] = np.bincount(kind, minlength=len(REFERENCE_KINDS))
    return table.fillna(0).astype("int64").rename_axis(index=KIND)


def _add_named(mentions: _Mentions, frame: pd.DataFrame) -> None:
    """Mentions by id or task reference: evidence, supersedes, superseded_by."""
    ids, gap = pd.Index(frame[MEMORY_ID]), rows_of_gaps(frame)
    at, names = _unrolled(frame[EVIDENCE_REFS])
    target = _row_named(ids, names, at)
    by_task = target == _NOWHERE
    target[by_task] = _newest_before(frame[SOURCE_TASK_REF], names[by_task], at[by_task])
    mentions.add("evidence", at, _or_gap(gap, target, names, at))
    at, names = _unrolled(frame[SUPERSEDES])
    mentions.add("supersedes", at, _or_gap(gap, _row_named(ids, names, at), names, at))
    superseded = np.flatnonzero(frame[SUPERSEDED_BY].notna().to_numpy())
    names = frame[SUPERSEDED_BY].iloc[superseded].to_numpy(dtype=object)
    by = _row_named(ids, names, np.full(len(names), len(frame), np.int64))
    known = by != _NOWHERE
    mentions.add("superseded", by[known], superseded[known])
    mentions.leave_out("superseded", "dangling", int((~known).sum()))


def _or_gap(gap: Flags, target: Ordinals, names: npt.NDArray[np.object_], at: Ordinals) -> Ordinals:
    """Return targets, and the gap that it may have been for a name that nothing there has."""
    lost = target == _NOWHERE
    target[lost] = named_in_gaps(gap, names[lost], at[lost])
    return target


def _add_returns(mentions: _Mentions, frame: pd.DataFrame) -> None:
    """Add the newest item of a task taken up again after other tasks' items."""
    rows = np.flatnonzero(frame[SOURCE_TASK_REF].notna().to_numpy())
    task = pd.factorize(frame[SOURCE_TASK_REF].iloc[rows])[0]
    place = np.arange(len(rows))
    order = np.lexsort((place, task))
    again = np.flatnonzero(task[order][1:] == task[order][:-1])
    before, after = order[again], order[again + 1]
    continued = after == before + 1
    mentions.leave_out("task", "continued", int(continued.sum()))
    mentions.add("task", rows[after[~continued]], rows[before[~continued]])


def _reads(
    mentions: _Mentions, frame: pd.DataFrame, log: pd.DataFrame, now: datetime | None
) -> tuple[Ordinals, Ordinals, npt.NDArray[np.datetime64]]:
    """Row numbers about to be written at each read, its target, and its time."""
    once = _distinct_reads(mentions, log, now)
    when = _utc(once[AT])
    at = np.searchsorted(np.sort(_utc(frame[CREATED_AT])), when, side="right")
    target = _row_named(pd.Index(frame[MEMORY_ID]), once[MEMORY_ID].to_numpy(dtype=object), at)
    mentions.leave_out("log", "dangling", int((target == _NOWHERE).sum()))
    mentions.leave_out("log", "forward", int((target >= at).sum()))
    served = (target != _NOWHERE) & (target < at)
    return at[served], target[served], when[served]


def _distinct_reads(mentions: _Mentions, log: pd.DataFrame, now: datetime | None) -> pd.DataFrame:
    """Return a log's reads in order of time, each reference once; count the others by reason."""
    for name in (MEMORY_ID, AT):
        if name not in log:
            raise ValueError(f"log has no column {name!r}; it needs {MEMORY_ID!r} and {AT!r}")
    if getattr(log[AT].dtype, "tz", None) is None:
        raise ValueError(f"log[{AT!r}] must hold times with a zone, not {log[AT].dtype}")
    names = [name for name in (MEMORY_ID, AT, SESSION) if name in log]
    undated = log[AT].isna()
    future = log[AT] > (_EVER if now is None else aware(now, call="find_references"))
    dated = log.loc[~undated & ~future, names].sort_values(AT, kind="stable")
    again = dated.duplicated([MEMORY_ID, AT])
    if SESSION in names:
        repeated = dated.duplicated([MEMORY_ID, SESSION]) & dated[SESSION].notna() & ~again
    else:
        repeated = again & ~again
    for reason, left_out in {
        "undated": undated,
        "future": future,
        "duplicate": again,
        "repeated": repeated,
    }.items():
        mentions.leave_out("log", reason, int(left_out.sum()))
    return dated[~again & ~repeated]


def _utc(times: pd.Series) -> npt.NDArray[np.datetime64]:
    """Return times as UTC without a zone, which numpy can hold."""
    return times.astype(TIME).dt.tz_localize(None).to_numpy()


def _unrolled(cells: pd.Series) -> tuple[Ordinals, npt.NDArray[np.object_]]:
    """Row number and content of every string in a column of tuples."""
    counts = np.fromiter(map(len, cells), np.int64, len(cells))
    names = np.fromiter(_chain(cells), object, int(counts.sum()))
    return np.repeat(np.arange(len(cells)), counts), names


def _chain(cells: Iterable[tuple[str, ...]]) -> Iterable[str]:
    return (name for cell in cells if cell for name in cell)


def _row_named(ids: "pd.Index[Any]", names: npt.NDArray[np.object_], at: Ordinals) -> Ordinals:
    """Row that has an id, else nowhere; of several, as a deleted id may come again, as a task's."""
    if not len(names):
        return np.empty(0, np.int64)
    if ids.is_unique:
        return ids.get_indexer(pd.Index(names))
    return _newest_before(ids.to_series(), names, at)


def _newest_before(carried: pd.Series, names: npt.NDArray[np.object_], at: Ordinals) -> Ordinals:
    """Newest row before `at` that carries the name; else one that does, else nowhere."""
    rows = np.flatnonzero(carried.notna().to_numpy())
    codes, tasks = pd.factorize(carried.iloc[rows])
    wanted = pd.Index(tasks).get_indexer(names)
    span = len(carried) + 1
    order = np.argsort(codes, kind="stable")
    keys = codes[order] * span + rows[order]
    place = np.searchsorted(keys, wanted * span + at)
    found = np.full(len(names), _NOWHERE, np.int64)
    known = np.flatnonzero(wanted != _NOWHERE)
    before = known[(place[known] > 0)]
    before = before[codes[order][place[before] - 1] == wanted[before]]
    later = np.setdiff1d(known, before, assume_unique=True)
    found[before] = rows[order][place[before] - 1]
    found[later] = rows[order][place[later]]
    return found
