"""Find references: evidence that an earlier memory was needed later, which sizing uses."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.clock import aware, now_utc
from memlab.evidence.past import (
    HistoryLike,
    LoadedHistory,
    fill_missing_rows,
    names_a_store,
    resolve_history,
    rows_of_gaps,
)
from memlab.evidence.reads import reads_in
from memlab.frame.fields import Flags, Ints, Objects, Times
from memlab.frame.loading import expect_log, expect_references
from memlab.sources.opening import open_source, settings_of

KIND_DESCRIPTIONS: Final = {
    "evidence": ("named as evidence", "a later memory says that it built on an earlier one"),
    "supersedes": ("replaced", "a later memory says which earlier one it replaces"),
    "superseded": ("marked as replaced", "an earlier memory says which later one replaced it"),
    "task": ("task taken up again", "a task was taken up again after another one"),
    "log": ("read", "the access log says that the agent read it"),
}
"""Short name of each kind of reference, and a sentence that explains it."""

REFERENCE_KINDS: Final = tuple(KIND_DESCRIPTIONS)
"""Kinds of references. A reference that is found twice counts under the first of its kinds."""

COUNTED: Final = "counted"

REASONS: Final = {
    "forward": "of a memory that was written later",
    "self": "of a memory by itself",
    "dangling": "of something that was never in the store",
    "duplicate": "repeats of a reference that is counted already",
    "continued": "in the same stretch of work on a task",
    "undated": "without a time",
    "future": "with a time after now",
    "repeated": "read again in the same session",
    "unlisted": "of a memory that no index names",
}
"""Reasons why a mention is not a reference, each with its words after a number."""

_NOWHERE: Final = -1
"""The row number of a name that no row has."""
_INSTANT: Final = "datetime64[us]"
_KIND: Final = pd.CategoricalDtype(list(REFERENCE_KINDS))
_LATEST_TIME: Final = datetime.max.replace(tzinfo=UTC)


class _Mentions:
    """Collects mentions as row numbers with a kind.

    `at` is the row that mentions, and `target` is the row that it mentions. `left_out` counts the
    mentions that are not references, by kind and reason.
    """

    def __init__(self) -> None:
        self._references = [np.empty((3, 0), np.int64)]
        """Arrays with three rows: the row of the mention, that of its target, and the kind."""
        self.left_out = Counter[tuple[str, str]]()

    def add(self, kind: str, at: Ints, target: Ints) -> None:
        """Keep the mentions of an earlier row, and count the others by reason."""
        self.leave_out(kind, "dangling", target == _NOWHERE)
        self.leave_out(kind, "self", target == at)
        self.leave_out(kind, "forward", target > at)
        mentions = np.stack([at, target, np.full(len(at), REFERENCE_KINDS.index(kind))])
        is_reference = (target != _NOWHERE) & (target < at)
        self._references.append(mentions[:, is_reference])

    def leave_out(self, kind: str, reason: str, rows: Flags) -> None:
        """Count the flagged mentions as left out for a reason."""
        self.left_out[kind, reason] = int(rows.sum())

    def without_duplicates(self) -> tuple[Ints, Ints, Ints]:
        """Return each (at, target) once, with its first kind, sorted by `at`."""
        mentions = np.concatenate(self._references, axis=1)
        by_at_target_and_kind = np.lexsort(mentions[::-1])  # the last key is the primary one
        at, target, kind = mentions[:, by_at_target_and_kind]
        is_repeated = np.zeros(len(at), bool)
        is_repeated[1:] = (at[1:] == at[:-1]) & (target[1:] == target[:-1])
        for code, name in enumerate(REFERENCE_KINDS):
            self.leave_out(name, "duplicate", is_repeated & (kind == code))
        return at[~is_repeated], target[~is_repeated], kind[~is_repeated]


def find_references(
    frame: HistoryLike,
    log: pd.DataFrame | None = None,
    *,
    only_log: bool = False,
    now: datetime | None = None,
) -> pd.DataFrame:
    """Find every reference: evidence that an earlier memory was needed later.

    The store itself shows a reference in four ways: an id or a task reference in
    ``evidence_refs``; an id in ``supersedes``; a ``superseded_by`` that names a later row,
    because the writer of the later row needed the older one; and a ``source_task_ref`` that
    occurs again after items of another task. A task reference points to the newest earlier item
    with that task. Consecutive items of one task are one piece of work, so they are not references
    to each other. A reference that is found in two ways counts once, under the first of its kinds
    in `REFERENCE_KINDS`.

    In a history with gaps, a name that no memory has may belong to a memory that was deleted
    without an archive. It then counts as a reference to the newest gap before it.

    A reference arises just before the row that shows it is written. The newest row at that moment
    is the row before.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        A frame from ``memlab.load_past`` or ``memlab.load``, or a store, whose history is loaded.
    log : DataFrame, optional
        An access log: one row per read, with columns ``memory_id`` and ``at`` (times with a zone).
        If a store is named, the default is the logs in its ``memlab.toml``. A read is placed
        after all rows that had been created by its time. If there is a column ``session``, further
        reads of one memory in one session are the same reference.
    only_log : bool
        Use the log alone, and ignore the references in the store itself.
    now : datetime, optional
        Leave out reads after this moment, which has a time zone. The default is no limit for a
        frame, and the present for a store.

    Returns
    -------
    DataFrame
        One row per reference in order of ``at_position``: ``target_id``, ``target_position``,
        ``at_position`` (the row about to be written; one past the last position for a read after
        the last write), ``at``, ``kind``. ``memlab.evidence.count_references`` counts the mentions
        that were left out.

    Raises
    ------
    ValueError
        If the times of `log`, or `now`, have no time zone.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.store_path("looked_up")
    >>> log = memlab.read_access_log(store.with_suffix(".reads.jsonl"))
    >>> references = memlab.find_references(memlab.load_past(store), log)
    >>> bool((references["target_position"] < references["at_position"]).all())
    True
    """
    references, _ = references_and_counts(frame, log, only_log=only_log, now=now)
    return references


def count_references(
    frame: HistoryLike,
    log: pd.DataFrame | None = None,
    *,
    only_log: bool = False,
    now: datetime | None = None,
) -> pd.DataFrame:
    """Count the references by kind, and the mentions that are not references by reason.

    The arguments are those of :func:`find_references`.

    Returns
    -------
    DataFrame
        One row per kind of reference: ``counted``, then one column per reason of `REASONS`. The
        column ``unlisted`` is always 0 here, because references to memories that no index names
        are references too. Only a cap is sized without them: ``memlab.StoreHistory(store).counts``
        has their number.

    Raises
    ------
    ValueError
        If the times of `log`, or `now`, have no time zone.

    Examples
    --------
    >>> import memlab
    >>> counts = memlab.evidence.count_references(memlab.store_path("looked_up"))
    >>> int(counts["counted"].sum()) == len(memlab.find_references(memlab.store_path("looked_up")))
    True
    """
    _, counts = references_and_counts(frame, log, only_log=only_log, now=now)
    return counts


def references_and_counts(
    frame: HistoryLike,
    log: pd.DataFrame | None = None,
    *,
    only_log: bool = False,
    now: datetime | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the results of `find_references` and `count_references` from one search."""
    expect_log(log, call="memlab.find_references")
    if isinstance(frame, LoadedHistory) and log is None:
        log = frame.log
    if names_a_store(frame):
        source = open_source(frame)
        frame = source
        if log is None and now is None:
            now = now_utc()
        settings = settings_of(source)
        log, _ = reads_in(log, settings, call="memlab.find_references", source=source)
    history = resolve_history(frame, call="memlab.find_references", log=log)
    frame = fill_missing_rows(history)
    mentions = _Mentions()
    if not only_log:
        _add_named(mentions, frame)
        _add_returns(mentions, frame)
    at, target, kind = mentions.without_duplicates()
    times = frame[c.CREATED_AT].to_numpy(_INSTANT)[at]
    if log is not None:
        read_at, read_target, read_times = _reads(mentions, frame, log, now)
        read_kind = np.full(len(read_at), REFERENCE_KINDS.index("log"))
        order = np.argsort(np.concatenate([at, read_at]), kind="stable")
        at = np.concatenate([at, read_at])[order]
        target = np.concatenate([target, read_target])[order]
        kind = np.concatenate([kind, read_kind])[order]
        times = np.concatenate([times, read_times])[order]
    positions = positions_and_next(frame)
    ids = frame[c.MEMORY_ID].array.take(target)
    references = pd.DataFrame(
        {
            c.TARGET_ID: ids.astype(c.REFERENCE_DTYPES[c.TARGET_ID]),
            c.TARGET_POSITION: positions[target],
            c.AT_POSITION: positions[at],
            c.AT: pd.DatetimeIndex(times).tz_localize("UTC"),
            c.KIND: pd.Categorical.from_codes(kind, dtype=_KIND),
        }
    )
    counts = pd.DataFrame(index=pd.Index(REFERENCE_KINDS, name=c.KIND))
    for reason in REASONS:
        counts[reason] = [mentions.left_out[name, reason] for name in REFERENCE_KINDS]
    counts.insert(0, COUNTED, np.bincount(kind, minlength=len(REFERENCE_KINDS)))
    return references, counts


def _add_named(mentions: _Mentions, frame: pd.DataFrame) -> None:
    """Add the mentions by name: as evidence, in `supersedes`, and in `superseded_by`."""
    ids = pd.Index(frame[c.MEMORY_ID])
    gap = rows_of_gaps(frame)
    at, names = _unrolled(frame[c.EVIDENCE_REFS])
    target = row_named(ids, names, at)
    by_task = target == _NOWHERE
    target[by_task] = _newest_before(frame[c.SOURCE_TASK_REF], names[by_task], at[by_task])
    mentions.add("evidence", at, _gap_if_unknown(gap, target, names, at))
    at, names = _unrolled(frame[c.SUPERSEDES])
    target = row_named(ids, names, at)
    mentions.add("supersedes", at, _gap_if_unknown(gap, target, names, at))
    superseded, successor = successors(frame, ids)
    is_known = successor != _NOWHERE
    mentions.add("superseded", successor[is_known], superseded[is_known])
    mentions.leave_out("superseded", "dangling", ~is_known)


def _gap_if_unknown(gap: Flags, target: Ints, names: Objects, at: Ints) -> Ints:
    """Return the targets, with the newest gap before a mention in place of an unknown target."""
    unknown = np.flatnonzero(target == _NOWHERE)
    gap_rows = np.flatnonzero(gap)
    if len(gap_rows):
        # Each gap is one deleted memory with one name. So with n gaps, only the first n different
        # unknown names can be names of deleted memories.
        name_numbers, _ = pd.factorize(names[unknown])
        may_name_gap = name_numbers < len(gap_rows)
        gaps_before = np.searchsorted(gap_rows, at[unknown])
        newest_gap = gap_rows[np.maximum(gaps_before - 1, 0)]
        target[unknown] = np.where((gaps_before > 0) & may_name_gap, newest_gap, _NOWHERE)
    return target


def _add_returns(mentions: _Mentions, frame: pd.DataFrame) -> None:
    """Add mentions between successive items of a task that other tasks' items separate."""
    rows = np.flatnonzero(frame[c.SOURCE_TASK_REF].notna().to_numpy())
    task, _ = pd.factorize(frame[c.SOURCE_TASK_REF].iloc[rows])
    order = np.argsort(task, kind="stable")  # by task, and by row within a task
    first_of_pair = np.flatnonzero(task[order][1:] == task[order][:-1])
    earlier = order[first_of_pair]
    later = order[first_of_pair + 1]
    is_continued = later == earlier + 1
    mentions.leave_out("task", "continued", is_continued)
    mentions.add("task", rows[later[~is_continued]], rows[earlier[~is_continued]])


def _reads(
    mentions: _Mentions, frame: pd.DataFrame, log: pd.DataFrame, now: datetime | None
) -> tuple[Ints, Ints, Times]:
    """Return the row about to be written, the row of the target and the time of each read."""
    distinct = _distinct_reads(mentions, log, now)
    times = distinct[c.AT].to_numpy(_INSTANT)
    creation_times = np.sort(frame[c.CREATED_AT].to_numpy(_INSTANT))
    at = np.searchsorted(creation_times, times, side="right")
    names = distinct[c.MEMORY_ID].to_numpy(dtype=object)
    target = row_named(pd.Index(frame[c.MEMORY_ID]), names, at)
    mentions.leave_out("log", "dangling", target == _NOWHERE)
    mentions.leave_out("log", "forward", target >= at)
    is_reference = (target != _NOWHERE) & (target < at)
    return at[is_reference], target[is_reference], times[is_reference]


def _distinct_reads(mentions: _Mentions, log: pd.DataFrame, now: datetime | None) -> pd.DataFrame:
    """Return the reads of a log by time, each reference once, and count the others by reason."""
    time_zone = getattr(log[c.AT].dtype, "tz", None)
    if time_zone is None:
        raise ValueError(f"log[{c.AT!r}] must hold times with a zone, not {log[c.AT].dtype}")
    columns = [name for name in (c.MEMORY_ID, c.AT, c.SESSION) if name in log]
    limit = _LATEST_TIME if now is None else aware(now, call="find_references")
    is_undated = log[c.AT].isna()
    is_future = log[c.AT] > limit
    dated = log.loc[~is_undated & ~is_future, columns].sort_values(c.AT, kind="stable")
    is_duplicate = dated.duplicated([c.MEMORY_ID, c.AT])
    is_repeated = pd.Series(data=False, index=dated.index)
    if c.SESSION in columns:
        is_in_session = dated[c.SESSION].notna()
        is_again = dated.duplicated([c.MEMORY_ID, c.SESSION])
        is_repeated = is_again & is_in_session & ~is_duplicate
    left_out = {
        "undated": is_undated,
        "future": is_future,
        "duplicate": is_duplicate,
        "repeated": is_repeated,
    }
    for reason, rows in left_out.items():
        mentions.leave_out("log", reason, rows.to_numpy())
    return dated[~is_duplicate & ~is_repeated]


def _unrolled(cells: pd.Series) -> tuple[Ints, Objects]:
    """Return the row number and the text of every string in a column of tuples."""
    counts = np.fromiter(map(len, cells), np.int64, len(cells))
    names = np.fromiter(chain.from_iterable(cells), object, int(counts.sum()))
    return np.repeat(np.arange(len(cells)), counts), names


def row_named(ids: "pd.Index[Any]", names: Objects, at: Ints) -> Ints:
    """Return the row with each id, or `_NOWHERE`.

    If an id was used again after a deletion, it is the newest row before `at` with the id.
    """
    if not len(names):
        return np.empty(0, np.int64)
    if ids.is_unique:
        return ids.get_indexer(pd.Index(names))
    return _newest_before(ids.to_series(), names, at)


def successors(frame: pd.DataFrame, ids: "pd.Index[Any] | None" = None) -> tuple[Ints, Ints]:
    """Return the superseded rows, and for each the row that replaced it, or -1 if unknown."""
    rows = np.flatnonzero(frame[c.SUPERSEDED_BY].notna().to_numpy())
    names = frame[c.SUPERSEDED_BY].iloc[rows].to_numpy(dtype=object)
    if ids is None:
        ids = pd.Index(frame[c.MEMORY_ID])
    end = np.full(len(rows), len(frame), np.int64)
    return rows, row_named(ids, names, end)


def _newest_before(name_of_row: pd.Series, names: Objects, at: Ints) -> Ints:
    """Return the newest row before `at` with each name, else a later one, else `_NOWHERE`.

    Parameters
    ----------
    name_of_row : Series
        The name of each row, such as its id or task.
    names : array of object
        The names to find.
    at : array of int
        The row number of each mention of a name.
    """
    rows = np.flatnonzero(name_of_row.notna().to_numpy())
    # The rows are sorted by name and number, so that one search finds the row for each name. A key
    # joins both in one number: `span` is larger than every row number.
    codes, distinct_names = pd.factorize(name_of_row.iloc[rows])
    codes_of_names = pd.Index(distinct_names).get_indexer(names)
    span = len(name_of_row) + 1
    order = np.argsort(codes, kind="stable")
    keys = codes[order] * span + rows[order]
    insertion = np.searchsorted(keys, codes_of_names * span + at)
    result = np.full(len(names), _NOWHERE, np.int64)
    sorted_codes = codes[order]
    sorted_rows = rows[order]
    known_names = np.flatnonzero(codes_of_names != _NOWHERE)
    # The row before the insertion point is earlier than `at`, if it has the same name.
    candidates = known_names[insertion[known_names] > 0]
    has_same_name = sorted_codes[insertion[candidates] - 1] == codes_of_names[candidates]
    with_earlier = candidates[has_same_name]
    without_earlier = np.setdiff1d(known_names, with_earlier, assume_unique=True)
    result[with_earlier] = sorted_rows[insertion[with_earlier] - 1]
    result[without_earlier] = sorted_rows[insertion[without_earlier]]
    return result


class OnRows(NamedTuple):
    """References of a frame as row numbers, in the order in which they arose.

    Attributes
    ----------
    target : array of int64, shape (references,)
        The row of the memory to which each reference leads.
    at : array of int64, shape (references,)
        The row that was about to be written when each reference arose.
    place : array of int64, shape (references,)
        The row of each reference in the frame of references.
    """

    target: Ints
    at: Ints
    place: Ints


def references_on_rows(frame: pd.DataFrame, references: pd.DataFrame) -> OnRows:
    """Return the references to a row of the frame that was written before they arose."""
    # memlab.policies.Activation is the only caller that has not checked its argument.
    expect_references(references, call="memlab.policies.Activation")
    positions = frame[c.POSITION].to_numpy(dtype=np.int64)
    target_positions = references[c.TARGET_POSITION].to_numpy(dtype=np.int64)
    at_positions = references[c.AT_POSITION].to_numpy(dtype=np.int64)
    target, has_row = _row_numbers(positions, target_positions)
    at, _ = _row_numbers(positions, at_positions)
    place = np.flatnonzero(has_row & (target < at))
    place = place[np.argsort(at[place], kind="stable")]
    return OnRows(target=target[place], at=at[place], place=place)


def positions_and_next(frame: pd.DataFrame) -> Ints:
    """Return the position of every row, and the lowest possible position of the next row."""
    positions = frame[c.POSITION].to_numpy(dtype=np.int64)
    last_position = int(positions[-1]) if len(positions) else 0
    return np.append(positions, min(last_position + 1, np.iinfo(np.int64).max))


def _row_numbers(positions: Ints, searched: Ints) -> tuple[Ints, Flags]:
    """Return the number of rows before each searched position, and whether a row has it."""
    row = np.searchsorted(positions, searched)
    is_in_frame = row < len(positions)
    position_of_row = np.append(positions, -1)[row]  # -1 is for a row past the last one
    return row, is_in_frame & (position_of_row == searched)


def counted_in_words(counts: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Return the name, the explanation and the count of each kind of reference that occurs."""
    rows = []
    for kind, count in counts[COUNTED].items():
        if int(count):
            name, explanation = KIND_DESCRIPTIONS[str(kind)]
            rows.append((name, explanation, int(count)))
    return rows


def not_counted_in_words(counts: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Yield the reasons why mentions are not references and their counts, the largest first."""
    totals = counts.drop(columns=COUNTED).sum().sort_values(ascending=False, kind="stable")
    for reason, count in totals.items():
        if count:
            yield REASONS[str(reason)], int(count)
