"""Who needed which memory later: the evidence that a cap is sized by."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from os import PathLike
from os.path import relpath
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.clock import aware, moment_or_now, now_utc
from memlab.evidence.past import (
    Memories,
    fill_missing_rows,
    names_a_store,
    resolve_history,
    rows_of_gaps,
)
from memlab.evidence.reads import Log, log_option, reads_in
from memlab.frame.fields import Flags, Ints, Objects, Times
from memlab.frame.labelling import called
from memlab.frame.loading import expect_log, expect_references
from memlab.settings import NOTHING, Settings
from memlab.sources.base import Source
from memlab.sources.opening import open_source, settings_of

FOUND: Final = {
    "evidence": ("named as evidence", "a later memory says that it built on an earlier one"),
    "supersedes": ("replaced", "a later memory says which earlier one it replaces"),
    "superseded": ("marked as replaced", "an earlier memory says which later one replaced it"),
    "task": ("task taken up again", "a task was taken up again after another one"),
    "log": ("read", "the access log says that the agent read it"),
}
"""A kind of reference, short and in a sentence."""

REFERENCE_KINDS: Final = tuple(FOUND)
"""Where a reference was found, in the order in which one found twice is attributed."""

COUNTED: Final = "counted"

REASONS: Final = {
    "forward": "of a memory that was written later",
    "self": "of a memory by itself",
    "dangling": "of something that was never in the store",
    "duplicate": "found a second time",
    "continued": "in the same stretch of work on a task",
    "undated": "without a time",
    "future": "with a time after now",
    "repeated": "read again in the same session",
}
"""Why a mention is no later need, to be said after a number."""

_NOWHERE: Final = -1
_INSTANT: Final = "datetime64[us]"
_KIND: Final = pd.CategoricalDtype(list(REFERENCE_KINDS))
_EVER: Final = datetime.max.replace(tzinfo=UTC)


class _Mentions:
    """Pairs of row numbers (who mentions, whom) with their kind, and what was left out."""

    def __init__(self) -> None:
        self._found = [np.empty((3, 0), np.int64)]
        self.left_out = Counter[tuple[str, str]]()

    def add(self, kind: str, at: Ints, target: Ints) -> None:
        """Keep the mentions of an earlier row; count the others by reason."""
        self.leave_out(kind, "dangling", target == _NOWHERE)
        self.leave_out(kind, "self", target == at)
        self.leave_out(kind, "forward", target > at)
        found = np.stack([at, target, np.full(len(at), REFERENCE_KINDS.index(kind))])
        self._found.append(found[:, (target != _NOWHERE) & (target < at)])

    def leave_out(self, kind: str, reason: str, rows: Flags) -> None:
        self.left_out[kind, reason] = int(rows.sum())

    def without_duplicates(self) -> tuple[Ints, Ints, Ints]:
        """One mention for each (at, target), the first kind winning, sorted by `at`."""
        found = np.concatenate(self._found, axis=1)
        at, target, kind = found[:, np.lexsort(found[::-1])]
        again = np.zeros(len(at), bool)
        again[1:] = (at[1:] == at[:-1]) & (target[1:] == target[:-1])
        for code, name in enumerate(REFERENCE_KINDS):
            self.leave_out(name, "duplicate", again & (kind == code))
        return at[~again], target[~again], kind[~again]


def find_references(
    frame: Memories,
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
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load_past`` or ``memlab.load`` returns, or the store itself, for all its past.
    log : DataFrame, optional
        An access log: one row per read, with columns ``memory_id`` and ``at`` (times with a zone).
        Where a store itself is named, the logs that ``memlab.toml`` remembers by default.
        A read falls after as many rows as had been created by then. Where it has a column
        ``session``, further reads of one memory in one session are the same reference.
    only_log : bool
        Leave what the store itself says aside, for a log that is the whole truth.
    now : datetime, optional
        Reads after this moment, with a time zone, are left out: by default none, and where a store
        itself is named, those after the present.

    Returns
    -------
    DataFrame
        One row per reference in order of ``at_position``: ``target_id``, ``target_position``,
        ``at_position`` (the row about to be written; one past the last position for a read after
        the last write), ``at``, ``kind``. ``memlab.evidence.count_references`` says what was left
        out.
    """
    return references_and_counts(frame, log, only_log=only_log, now=now)[0]


def count_references(
    frame: Memories,
    log: pd.DataFrame | None = None,
    *,
    only_log: bool = False,
    now: datetime | None = None,
) -> pd.DataFrame:
    """Count references by kind, beside the mentions that are none and why.

    The arguments are those of :func:`find_references`. One row per kind of reference; ``counted``,
    then one column per reason of `REASONS`.
    """
    return references_and_counts(frame, log, only_log=only_log, now=now)[1]


class Evidence(NamedTuple):
    """What a store has held, what was needed of it, and where that is known from."""

    name: str
    source: Source | None
    settings: Settings
    past: pd.DataFrame
    log: pd.DataFrame | None
    log_file: Path | None
    references: pd.DataFrame
    counts: pd.DataFrame
    now: datetime
    log_option: tuple[str, ...] = ()
    """How a command is given the log; nothing where there is none or the settings name it."""

    def by_folder(self) -> "Evidence":
        """Return it with store and log called as in the folder that the store lies in."""
        log = self.log_option
        if (
            log
            and self.log_file is not None
            and self.source is not None
            and self.source.permissions_template
        ):
            folder = Path(self.name.rpartition(":")[2]).parent
            log = ("--log", relpath(self.log_file, folder))
        return self._replace(name=called(self.name), log_option=log)


def collect_evidence(
    memories: Memories,
    log: Log = None,
    *,
    call: str,
    with_body: bool = False,
    only_log: bool = False,
    now: datetime | None = None,
) -> Evidence:
    """Return the evidence of a frame, or of a store, whose settings name its logs."""
    now = moment_or_now(now, call=call)
    source = None
    settings = NOTHING
    name = ""
    if names_a_store(memories):
        memories = source = open_source(opened := memories)
        settings = settings_of(source)
        name = str(opened) if isinstance(opened, str | PathLike) else source.name
    reads, file = reads_in(log, settings, call=call, source=source)
    past = resolve_history(memories, call=call, with_body=with_body, log=reads)
    found = references_and_counts(past, reads, only_log=only_log, now=now)
    name = name or str(past.attrs.get(c.SOURCE, ""))
    option = log_option(reads, file, settings)
    return Evidence(name, source, settings, past, reads, file, *found, now, option)


def with_references(
    frame: Memories, references: pd.DataFrame | None, *, call: str, with_body: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what a public call is about: memories, and the references to them, given or found."""
    expect_references(references, call=call, optional=True)
    if references is not None:
        return resolve_history(frame, call=call, with_body=with_body), references
    found = collect_evidence(frame, call=call, with_body=with_body)
    return found.past, found.references


def references_and_counts(
    frame: Memories,
    log: pd.DataFrame | None = None,
    *,
    only_log: bool = False,
    now: datetime | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what `find_references` and `count_references` return, from one look."""
    expect_log(log, call="memlab.find_references")
    if names_a_store(frame):
        frame = source = open_source(frame)
        if log is None:
            now = now or now_utc()
        settings = settings_of(source)
        log, _ = reads_in(log, settings, call="memlab.find_references", source=source)
    frame = fill_missing_rows(resolve_history(frame, call="memlab.find_references", log=log))
    mentions = _Mentions()
    if not only_log:
        _add_named(mentions, frame)
        _add_returns(mentions, frame)
    at, target, kind = mentions.without_duplicates()
    when = frame[c.CREATED_AT].to_numpy(_INSTANT)[at]
    if log is not None:
        read_at, read_target, read_when = _reads(mentions, frame, log, now)
        read_kind = np.full(len(read_at), REFERENCE_KINDS.index("log"))
        order = np.argsort(np.concatenate([at, read_at]), kind="stable")
        pairs = ((at, read_at), (target, read_target), (kind, read_kind))
        at, target, kind = (np.concatenate(pair)[order] for pair in pairs)
        when = np.concatenate([when, read_when])[order]
    positions = positions_and_next(frame)
    ids = frame[c.MEMORY_ID].array.take(target)
    references = pd.DataFrame(
        {
            c.TARGET_ID: ids.astype(c.REFERENCE_DTYPES[c.TARGET_ID]),
            c.TARGET_POSITION: positions[target],
            c.AT_POSITION: positions[at],
            c.AT: pd.DatetimeIndex(when).tz_localize("UTC"),
            c.KIND: pd.Categorical.from_codes(kind, dtype=_KIND),
        }
    )
    left_out = [[mentions.left_out[name, why] for why in REASONS] for name in REFERENCE_KINDS]
    counts = pd.DataFrame(left_out, pd.Index(REFERENCE_KINDS, name=c.KIND), [*REASONS])
    counts.insert(0, COUNTED, np.bincount(kind, minlength=len(REFERENCE_KINDS)))
    return references, counts


def _add_named(mentions: _Mentions, frame: pd.DataFrame) -> None:
    ids = pd.Index(frame[c.MEMORY_ID])
    gap = rows_of_gaps(frame)
    at, names = _unrolled(frame[c.EVIDENCE_REFS])
    target = row_named(ids, names, at)
    by_task = target == _NOWHERE
    target[by_task] = _newest_before(frame[c.SOURCE_TASK_REF], names[by_task], at[by_task])
    mentions.add("evidence", at, _or_gap(gap, target, names, at))
    at, names = _unrolled(frame[c.SUPERSEDES])
    mentions.add("supersedes", at, _or_gap(gap, row_named(ids, names, at), names, at))
    superseded, by = successors(frame, ids)
    known = by != _NOWHERE
    mentions.add("superseded", by[known], superseded[known])
    mentions.leave_out("superseded", "dangling", ~known)


def _or_gap(gap: Flags, target: Ints, names: Objects, at: Ints) -> Ints:
    """Return targets, and for a name that nothing there has the newest gap before it, if any."""
    lost = np.flatnonzero(target == _NOWHERE)
    rows = np.flatnonzero(gap)
    if len(rows):
        names_of_gaps = pd.factorize(names[lost])[0] < len(rows)  # there are no more of them
        before = np.searchsorted(rows, at[lost])
        newest = rows[np.maximum(before - 1, 0)]
        target[lost] = np.where((before > 0) & names_of_gaps, newest, _NOWHERE)
    return target


def _add_returns(mentions: _Mentions, frame: pd.DataFrame) -> None:
    """Add the newest item of a task taken up again after other tasks' items."""
    rows = np.flatnonzero(frame[c.SOURCE_TASK_REF].notna().to_numpy())
    task = pd.factorize(frame[c.SOURCE_TASK_REF].iloc[rows])[0]
    place = np.arange(len(rows))
    order = np.lexsort((place, task))
    again = np.flatnonzero(task[order][1:] == task[order][:-1])
    before = order[again]
    after = order[again + 1]
    continued = after == before + 1
    mentions.leave_out("task", "continued", continued)
    mentions.add("task", rows[after[~continued]], rows[before[~continued]])


def _reads(
    mentions: _Mentions, frame: pd.DataFrame, log: pd.DataFrame, now: datetime | None
) -> tuple[Ints, Ints, Times]:
    """Row numbers about to be written at each read, its target, and its time."""
    once = _distinct_reads(mentions, log, now)
    when = once[c.AT].to_numpy(_INSTANT)
    at = np.searchsorted(np.sort(frame[c.CREATED_AT].to_numpy(_INSTANT)), when, side="right")
    target = row_named(pd.Index(frame[c.MEMORY_ID]), once[c.MEMORY_ID].to_numpy(dtype=object), at)
    mentions.leave_out("log", "dangling", target == _NOWHERE)
    mentions.leave_out("log", "forward", target >= at)
    served = (target != _NOWHERE) & (target < at)
    return at[served], target[served], when[served]


def _distinct_reads(mentions: _Mentions, log: pd.DataFrame, now: datetime | None) -> pd.DataFrame:
    """Return a log's reads in order of time, each reference once; count the others by reason."""
    if getattr(log[c.AT].dtype, "tz", None) is None:
        raise ValueError(f"log[{c.AT!r}] must hold times with a zone, not {log[c.AT].dtype}")
    names = [name for name in (c.MEMORY_ID, c.AT, c.SESSION) if name in log]
    undated = log[c.AT].isna()
    future = log[c.AT] > (_EVER if now is None else aware(now, call="find_references"))
    dated = log.loc[~undated & ~future, names].sort_values(c.AT, kind="stable")
    again = dated.duplicated([c.MEMORY_ID, c.AT])
    repeated = again & False
    if c.SESSION in names:
        repeated = dated.duplicated([c.MEMORY_ID, c.SESSION]) & dated[c.SESSION].notna() & ~again
    left_out = {"undated": undated, "future": future, "duplicate": again, "repeated": repeated}
    for reason, rows in left_out.items():
        mentions.leave_out("log", reason, rows.to_numpy())
    return dated[~again & ~repeated]


def _unrolled(cells: pd.Series) -> tuple[Ints, Objects]:
    """Row number and content of every string in a column of tuples."""
    counts = np.fromiter(map(len, cells), np.int64, len(cells))
    names = np.fromiter(chain.from_iterable(cells), object, int(counts.sum()))
    return np.repeat(np.arange(len(cells)), counts), names


def row_named(ids: "pd.Index[Any]", names: Objects, at: Ints) -> Ints:
    """Row that has an id, else nowhere; of several, as a deleted id may come again, as a task's."""
    if not len(names):
        return np.empty(0, np.int64)
    if ids.is_unique:
        return ids.get_indexer(pd.Index(names))
    return _newest_before(ids.to_series(), names, at)


def successors(frame: pd.DataFrame, ids: "pd.Index[Any] | None" = None) -> tuple[Ints, Ints]:
    """Return the rows that were superseded, and for each the one in its place, or nowhere."""
    rows = np.flatnonzero(frame[c.SUPERSEDED_BY].notna().to_numpy())
    names = frame[c.SUPERSEDED_BY].iloc[rows].to_numpy(dtype=object)
    last = np.full(len(rows), len(frame), np.int64)
    return rows, row_named(pd.Index(frame[c.MEMORY_ID]) if ids is None else ids, names, last)


def _newest_before(carried: pd.Series, names: Objects, at: Ints) -> Ints:
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


class OnRows(NamedTuple):
    """References that fit a frame, as row numbers, in the order in which they arose."""

    target: Ints
    at: Ints
    place: Ints


def references_on_rows(frame: pd.DataFrame, references: pd.DataFrame) -> OnRows:
    """Return the references to a row of the frame that was written before they arose."""
    expect_references(references, call="memlab.policies.Activation")  # others asked before
    positions = frame[c.POSITION].to_numpy(dtype=np.int64)
    target, exact = _row_numbers(positions, references[c.TARGET_POSITION].to_numpy(dtype=np.int64))
    at, _ = _row_numbers(positions, references[c.AT_POSITION].to_numpy(dtype=np.int64))
    place = np.flatnonzero(exact & (target < at))
    place = place[np.argsort(at[place], kind="stable")]
    return OnRows(target[place], at[place], place)


def positions_and_next(frame: pd.DataFrame) -> Ints:
    """Return every row's position, and the one that the next row will get at the earliest."""
    positions = frame[c.POSITION].to_numpy(dtype=np.int64)
    last = int(positions[-1]) if len(positions) else 0
    return np.append(positions, min(last + 1, np.iinfo(np.int64).max))


def _row_numbers(positions: Ints, wanted: Ints) -> tuple[Ints, Flags]:
    """Return how many rows stand before each position, and whether it is a row's."""
    row = np.searchsorted(positions, wanted)
    return row, (row < len(positions)) & (np.append(positions, -1)[row] == wanted)


def counted_in_words(counts: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Return each kind of reference there is, what it means, and how many there are."""
    return [
        (*FOUND[str(kind)], int(count)) for kind, count in counts[COUNTED].items() if int(count)
    ]


def not_counted_in_words(counts: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Yield why mentions are no later needs, each with how many they are, the most first."""
    totals = counts.drop(columns=COUNTED).sum().sort_values(ascending=False, kind="stable")
    for reason, count in totals.items():
        if count:
            yield REASONS[str(reason)], int(count)
