"""Load the whole history of a store as one frame: present and deleted memories, in order."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from os import PathLike
from typing import Any, Final, NamedTuple, TypeGuard, Unpack

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import wrong_argument_error
from memlab.frame.fields import CountTokens, Flags, Ints, labels_of, rows_in_state
from memlab.frame.labelling import LoadOptions, OnBadRow
from memlab.frame.loading import FLAG_DEFAULTS, expect_log, expect_memories, frame_of, load
from memlab.sources.base import Source
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import Rows
from memlab.store import SqliteMemoryStore
from memlab.store.archive.hashed_names import hashed, key_of
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import Entry, Key
from memlab.store.archive.tombstones import tombstones_in

DELETION: Final = "_deletion"
"""Column with the number of the deletion that removed a memory, in the order of the deletions."""
_NOT_DELETED: Final = 2**63 - 1
"""Deletion number of a memory that is still present."""
BY_OTHERS: Final = _NOT_DELETED - 1
"""Deletion number of a memory that another program deleted: it comes after all of memlab's."""
_IDENTITY: Final = (c.MEMORY_ID, c.POSITION, c.CREATED_AT)
"""Columns that identify a memory: two rows with equal values are copies of one memory."""


class LoadedHistory(ABC):
    """A history of a store that has been loaded; see :class:`memlab.StoreHistory`."""

    @property
    @abstractmethod
    def past(self) -> pd.DataFrame:
        """Present and deleted memories in the order of writing."""

    @property
    @abstractmethod
    def source(self) -> Source | None:
        """The store; None for the history of a frame."""

    @property
    @abstractmethod
    def log(self) -> pd.DataFrame | None:
        """The reads of an access log; None without one."""

    @abstractmethod
    def with_body(self) -> "LoadedHistory":
        """Return the history with texts."""


HistoryLike = pd.DataFrame | SourceLike | LoadedHistory
"""Input of a function about a store: its name, its history, or a frame."""


class DeletedMemories(NamedTuple):
    """Memories that were deleted, in one deletion or in several.

    Attributes
    ----------
    at : datetime or Series
        Time of the deletion, or of the deletion of each memory.
    memories : DataFrame
        The memories.
    number : int or Series
        Number of the deletion, or that of each memory; see :data:`DELETION`.
    hash_key : bytes or None
        Key of the hashes that erased memories have in place of names; None for memories with names.
    """

    at: "datetime | pd.Series[pd.Timestamp]"
    memories: pd.DataFrame
    number: "int | pd.Series[int]"
    hash_key: bytes | None = None


def load_past(
    source: SourceLike,
    *,
    with_body: bool = False,
    on_bad_row: OnBadRow = "raise",
    count_tokens: CountTokens | str | None = None,
    log: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return the present memories of a store and the deleted ones that its archive keeps.

    The frame has the columns of :func:`memlab.load` and `deleted_at`, the time of deletion.
    Deleted memories stand at their former positions. A memory that was erased from the archive
    keeps its facts only: position, time, kind, label and size. The store and the archive are
    not written.

    Parameters
    ----------
    source, with_body
        As for :func:`memlab.load`.
    on_bad_row : {"raise", "keep"}
        What to do about a row of the store that cannot be interpreted, as for :func:`memlab.load`.
        Rows of the archive that cannot be interpreted are left out.
    count_tokens : callable or str, optional
        As for :func:`memlab.load`. Erased memories keep the count of the default rule.
    log : DataFrame, optional
        An access log. Erased memories that it names get their names back, so that its reads
        match them.

    Returns
    -------
    DataFrame
        One row a memory, in the order of writing.

    Examples
    --------
    >>> import memlab
    >>> past = memlab.load_past(memlab.store_path("looked_up"))
    >>> bool(past["deleted_at"].isna().all())  # nothing was deleted from this store
    True
    """
    expect_log(log, call="memlab.load_past")
    opened = open_source(source)
    options = LoadOptions(with_body=with_body, on_bad_row=on_bad_row, count_tokens=count_tokens)
    # The archive is read last: a memory deleted in between is then in both, and counts as present.
    present = load(opened, **options)
    deletions = deletions_of(opened, **options)
    past = past_of(present, deletions, log)
    past[c.LABEL] = labels_of(past)  # deleted memories get the label "deleted"
    return past


def names_a_store(memories: object) -> TypeGuard[SourceLike]:
    """Return whether the argument names a store, as :func:`memlab.load` takes it."""
    return isinstance(memories, str | PathLike | SqliteMemoryStore | Source)


def source_of(memories: HistoryLike) -> Source | None:
    """Return the store of a name or of a history; None for a frame."""
    if isinstance(memories, LoadedHistory):
        return memories.source
    if names_a_store(memories):
        return open_source(memories)
    return None


def resolve_history(
    memories: HistoryLike, *, call: str, with_body: bool = False, log: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the history of a store as a frame; return a frame unchanged.

    Parameters
    ----------
    memories : DataFrame, path, URL, SqliteMemoryStore, Source or LoadedHistory
        The store, its history or a frame.
    call : str
        Name of the public function, for messages.
    with_body : bool
        Whether to load texts.
    log : DataFrame, optional
        An access log, see :func:`load_past`.
    """
    if isinstance(memories, LoadedHistory):
        history = memories.with_body() if with_body else memories
        return history.past
    if names_a_store(memories):
        return load_past(memories, with_body=with_body, log=log)
    if not isinstance(memories, pd.DataFrame):
        raise wrong_argument_error(memories, "DataFrame", "store", call=call, name="frame")
    expect_memories(memories, call=call)
    return memories


def deletions_of(source: Source, **options: Unpack[LoadOptions]) -> list[DeletedMemories]:
    """Return the known deletions: those of memlab's archive, then those of other programs."""
    deleted_by_others, deletions = load_deleted(source, **options)
    if deleted_by_others.empty:
        return deletions
    # If their times of writing are unknown, they count as deleted before memlab's deletions.
    number = BY_OTHERS if c.WRITTEN_AT in deleted_by_others else 0
    others = DeletedMemories(deleted_by_others[c.DELETED_AT], deleted_by_others, number)
    return [*deletions, others]


def load_deleted(
    source: Source, **options: Unpack[LoadOptions]
) -> tuple[pd.DataFrame, list[DeletedMemories]]:
    """Return the memories that other programs deleted, and the deletions of memlab."""
    if source.name == ":memory:":
        return pd.DataFrame(), []
    source.archive.check()
    options["on_bad_row"] = "keep"
    needs_bodies = bool(options.get("with_body")) or options.get("count_tokens") is not None

    def frame_of_batches(batches: Iterable[Rows], name: str) -> pd.DataFrame:
        return frame_of(batches, name=name, protected=source.protected, **options)

    batches = list(source.external_history.iter_deleted(with_body=needs_bodies))
    missing = pd.DataFrame()
    if batches:  # most stores have none, and building an empty frame of memories is slow
        missing = interpretable_rows(frame_of_batches(batches, source.name))
    for name in (c.DELETED_AT, c.WRITTEN_AT):
        if name in missing:
            missing[name] = pd.to_datetime(missing[name], utc=True).astype(c.TIME)
    if not source.archive.exists:
        return missing, []

    def read_deletions(archive: OpenArchive) -> tuple[pd.DataFrame, list[DeletedMemories]]:
        deleted_by_others = missing
        keys_of_others = set[Key]()
        if c.WRITTEN_AT in missing:
            deleted_by_others = exclude_archived(missing, archive)
            keys_of_others = set(deleted_by_others[c.KEY])
        # The entry of each record, in the order of the records. Reading the records fills it.
        entries = list[Entry]()

        def records() -> Iterator[tuple[Key, bytes]]:
            for entry, key, record in _archived_records(archive, keys_of_others):
                entries.append(entry)
                yield key, record

        # One frame for all entries: a runtime may delete one memory at a time, and a frame for
        # each of them would take minutes.
        rows = source.rows_of(records(), with_body=needs_bodies)
        frame = frame_of_batches(rows, str(archive.path))
        moments = [entry.finished_at or entry.archived_at for entry in entries]
        frame[c.DELETED_AT] = pd.Series(moments, frame.index, c.TIME)
        frame[DELETION] = np.array([entry.number for entry in entries], np.int64)
        frame = interpretable_rows(frame)
        deletions = list[DeletedMemories]()
        if len(frame):
            deletions.append(DeletedMemories(frame[c.DELETED_AT], frame, frame[DELETION]))
        hash_key = key_of(archive)
        for erasure in archive.dropped():
            facts = frame_of_facts(tombstones_in(archive, erasure))
            erased = DeletedMemories(erasure.deleted_at, facts, erasure.number, hash_key)
            deletions.append(erased)
        return deleted_by_others, deletions

    return source.archive.read(read_deletions)


def _archived_records(
    archive: OpenArchive, keys_of_others: set[Key]
) -> Iterator[tuple[Entry, Key, bytes]]:
    """Yield the records of every deletion in an archive, with the entry of each.

    A memory that was restored and that another program deleted later is left out: that later
    deletion removed it.
    """
    for entry in archive.entries():
        is_deletion = entry.memories and not entry.is_recovery
        if not is_deletion:
            continue
        restored = set[Key]()
        if keys_of_others:
            copies = archive.copies(entry)
            restored = {copy.key for copy in copies if copy.restored_at is not None}
        deleted_again = restored & keys_of_others
        for key, record in archive.records(entry):
            if key not in deleted_again:
                yield entry, key, record


def interpretable_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a frame that could be interpreted."""
    return frame[frame[c.PROBLEM].isna()].drop(columns=c.PROBLEM).reset_index(drop=True)


def exclude_archived(missing: pd.DataFrame, archive: OpenArchive) -> pd.DataFrame:
    """Return the missing memories that memlab did not delete.

    A memory was deleted by memlab if the archive has or had a copy of it, and if it was not written
    again after that deletion.

    Parameters
    ----------
    missing : DataFrame
        Memories that are no longer in the store.
    archive : OpenArchive
        The archive of the store.
    """
    key_column = c.KEY if c.KEY in missing else c.POSITION
    missing_keys = set(missing[key_column])
    archived_at = dict[str, datetime]()
    for entry in archive.entries():
        keys = list[Key]()
        if not entry.is_recovery:
            not_restored = [copy for copy in archive.copies(entry) if copy.restored_at is None]
            keys = [copy.key for copy in not_restored if copy.key in missing_keys]
        for _, record in archive.records(entry, keys):
            # match by id, because the key may belong to another memory by now
            memory_id = archive.location.id_of(record)
            archived_at[memory_id] = entry.finished_at or entry.archived_at
    deleted_at = missing[c.MEMORY_ID].map(archived_at).astype(c.TIME)
    hash_key = key_of(archive) or b""
    hashes = missing[c.MEMORY_ID].map(lambda memory_id: hashed(memory_id, hash_key))
    for erasure in archive.dropped():
        erased = {facts[c.MEMORY_ID] for facts in tombstones_in(archive, erasure)}
        deleted_at = deleted_at.mask(hashes.isin(erased), pd.Timestamp(erasure.deleted_at))
    is_by_memlab = deleted_at >= missing[c.WRITTEN_AT]
    return missing[~is_by_memlab].reset_index(drop=True)


def past_of(
    present: pd.DataFrame, deletions: Sequence[DeletedMemories], log: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return present and deleted memories as one frame, in the order in which they were written."""
    return with_deletions(present, deletions, log).drop(columns=DELETION)


def with_deletions(
    present: pd.DataFrame, deletions: Sequence[DeletedMemories], log: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the frame of :func:`past_of` with the column `DELETION`."""
    in_store = present.assign(**{c.DELETED_AT: pd.Series(pd.NaT, present.index, c.TIME)})
    in_store[DELETION] = _NOT_DELETED
    if not deletions:
        return in_store
    deleted_frames = []
    for deletion in _with_names(present, deletions, log):
        rows = deletion.memories.assign(**{c.ACTIVE: False, c.PRUNABLE: False})
        # a retired memory names itself as its successor; no other memory superseded it
        is_retired = rows[c.SUPERSEDED_BY] == rows[c.MEMORY_ID]
        rows[c.SUPERSEDED_BY] = rows[c.SUPERSEDED_BY].mask(is_retired)
        rows[c.DELETED_AT] = pd.Series(deletion.at, rows.index, c.TIME)
        rows[DELETION] = deletion.number
        deleted_frames.append(rows[[name for name in in_store if name in rows]])
    deleted = pd.concat(deleted_frames).sort_values(DELETION, kind="stable")
    history = pd.concat([deleted, in_store], ignore_index=True)
    # The facts of erased memories lack flags.
    for flag in history.columns.intersection(list(FLAG_DEFAULTS)):
        history[flag] = history[flag].where(history[flag].notna(), FLAG_DEFAULTS[flag])
    history = history.drop_duplicates(list(_IDENTITY), keep="last", ignore_index=True)
    history = history.iloc[_in_order_of_writing(history)].reset_index(drop=True)
    history[c.POSITION] = _increasing(history[c.POSITION].to_numpy(np.int64))
    history.attrs = dict(present.attrs)
    dtypes = {name: dtype for name, dtype in present.dtypes.items() if name in history}
    if c.KEY in dtypes and history[c.KEY].isna().any():
        del dtypes[c.KEY]  # erased memories have no key, and a type of integers has no null
    return history.astype(dtypes)


def _increasing(positions: Ints) -> Ints:
    """Return positions in which each one is greater than the one before.

    The differences of the positions are kept if they are above 0, and are 1 otherwise.
    """
    steps = np.diff(positions)
    steps = np.where(steps > 0, steps, 1)
    increasing: Ints = np.cumsum(np.append(positions[:1], steps))
    return increasing


def rows_in_reach(past: pd.DataFrame) -> pd.DataFrame:
    """Return the memories of a history that sizing counts.

    A memory in state :data:`memlab.columns.UNLISTED` is left out, because no cap can delete it. A
    memory in state :data:`memlab.columns.REACHED` counts as load-bearing: no plan deletes it, so
    every cap serves its reads. The frame itself is returned if the index names every memory, or if
    the store has no index.
    """
    is_reached = rows_in_state(past, c.REACHED) & ~past[c.LOAD_BEARING].to_numpy(bool)
    if is_reached.any():
        load_bearing = past[c.LOAD_BEARING] | is_reached
        prunable = past[c.PRUNABLE] & ~is_reached
        past = past.assign(**{c.LOAD_BEARING: load_bearing, c.PRUNABLE: prunable})
    is_unlisted = rows_in_state(past, c.UNLISTED)
    if is_unlisted.any():
        return past[~is_unlisted].reset_index(drop=True)
    return past


def in_reach(past: pd.DataFrame, references: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the memories of :func:`rows_in_reach`, and the references to those memories."""
    is_counted = ~refers_to_unlisted(past, references)
    if not is_counted.all():
        references = references[is_counted].reset_index(drop=True)
    return rows_in_reach(past), references


def refers_to_unlisted(past: pd.DataFrame, references: pd.DataFrame) -> "pd.Series[bool]":
    """Return a flag for each reference: true if it is to a memory that no index names."""
    unlisted_positions = past.loc[rows_in_state(past, c.UNLISTED), c.POSITION]
    return references[c.TARGET_POSITION].isin(unlisted_positions)


def present_rows(past: pd.DataFrame) -> pd.DataFrame:
    """Return the memories of a history that are still in the store."""
    if c.DELETED_AT not in past:
        return past
    return past[past[c.DELETED_AT].isna()]


def _with_names(
    present: pd.DataFrame, deletions: Sequence[DeletedMemories], log: pd.DataFrame | None
) -> Sequence[DeletedMemories]:
    """Return deletions in which the names of erased memories replace their hashes, if known.

    The facts of an erased memory hold hashes of names. A name is known if the log, a present
    memory or an archived one contains it. Other hashes get the prefix `_UNKNOWN_NAME`.
    """
    hash_keys = [deletion.hash_key for deletion in deletions if deletion.hash_key is not None]
    if not hash_keys:
        return deletions
    hash_key = hash_keys[0]  # an archive has one
    known_names = _names_in(present)
    if log is not None:
        known_names.update(log[c.MEMORY_ID].dropna())
    for deletion in deletions:
        if deletion.hash_key is None:
            known_names.update(_names_in(deletion.memories))
    name_by_hash = {hashed(name, hash_key): name for name in known_names}

    def name_of(name_hash: str) -> str:
        return name_by_hash.get(name_hash, _UNKNOWN_NAME + name_hash)

    named = []
    for deletion in deletions:
        if deletion.hash_key is None:
            named.append(deletion)
        else:
            named.append(deletion._replace(memories=_renamed(deletion.memories, name_of)))
    return named


def _names_in(frame: pd.DataFrame) -> set[str]:
    """Return every name in a frame of memories: ids, task references and lists of names."""
    names = set[str]()
    for column in _NAME_COLUMNS:
        names.update(frame[column].dropna())
    for column in _LIST_COLUMNS:
        names.update(chain.from_iterable(frame[column]))
    return names


def _renamed(memories: pd.DataFrame, rename: Callable[[str], str]) -> pd.DataFrame:
    """Return a copy of memories in which every name that a reference may use is renamed."""
    renamed = memories.copy(deep=False)
    for column in _NAME_COLUMNS:
        names = memories[column].map(rename, na_action="ignore")
        renamed[column] = names.astype(memories[column].dtype)
    for column in _LIST_COLUMNS:
        renamed[column] = [tuple(map(rename, names)) for names in memories[column]]
    return renamed


def _in_order_of_writing(history: pd.DataFrame) -> Ints:
    """Return row numbers in the order of writing.

    Rows are ordered by position. But SQLite may give the position of a deleted row to a new one.
    So from the first position that occurs twice, rows are ordered by creation time. Rows with one
    position stay in the order of their deletions.
    """
    position = history[c.POSITION].to_numpy(np.int64)
    deletion = history[DELETION].to_numpy(np.int64)
    by_position: Ints = np.lexsort((deletion, position))
    ordered = history.iloc[by_position]
    is_reused = ordered[c.POSITION].duplicated(keep=False).to_numpy()
    if not is_reused.any():
        return by_position
    first_reused = int(np.argmax(is_reused))
    from_first_reused = ordered.iloc[first_reused:]
    creation_times = from_first_reused[c.CREATED_AT].ffill().bfill().to_numpy("datetime64[us]")
    microseconds = pd.Series(creation_times.astype(np.int64))
    # A row was written after the earlier rows with its position, whatever its creation time says.
    latest_time = microseconds.groupby(from_first_reused[c.POSITION].to_numpy()).cummax()
    by_time = np.argsort(latest_time.to_numpy(), kind="stable")
    return np.concatenate([by_position[:first_reused], by_position[first_reused:][by_time]])


_UNKNOWN_NAME: Final = "dropped:"
"""Prefix of the name of an erased memory whose real name is not known."""

_NAME_COLUMNS: Final = (c.MEMORY_ID, c.SOURCE_TASK_REF, c.SUPERSEDED_BY)
_LIST_COLUMNS: Final = (c.SUPERSEDES, c.EVIDENCE_REFS)
_PLAIN_COLUMNS: Final = (c.POSITION, c.KIND, c.CHARS, c.TOKENS, c.LOAD_BEARING)
_FACT_COLUMNS: Final = (*_PLAIN_COLUMNS, c.CREATED_AT, *_NAME_COLUMNS, *_LIST_COLUMNS)
"""Columns that are kept of an erased memory."""


def facts_of(frame: pd.DataFrame, key: bytes) -> list[str]:
    """Return the facts that are kept of memories after an erasure, one JSON object each.

    Names that references use are hashed with the key. Titles, texts, tags, authors and signals
    are left out.
    """
    facts = frame[list(_FACT_COLUMNS)].astype({c.KIND: "str"})
    facts[c.CREATED_AT] = facts[c.CREATED_AT].map(pd.Timestamp.isoformat, na_action="ignore")
    facts = _renamed(facts, partial(hashed, key=key))
    # If no memory has a time, the column is still of a date type, which needs `date_format`.
    lines = facts.to_json(orient="records", lines=True, date_format="iso")
    return lines.split()  # no value contains a space


def frame_of_facts(facts: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> pd.DataFrame:
    """Return facts as a frame of memories without texts, whose names are hashes.

    `facts` has a mapping for each memory, or is one mapping of columns.
    """
    frame = pd.DataFrame(facts, columns=list(_FACT_COLUMNS))
    for name in _LIST_COLUMNS:
        frame[name] = [tuple(names) for names in frame[name]]
    frame[c.CREATED_AT] = pd.to_datetime(frame[c.CREATED_AT], format="ISO8601", utc=True)
    frame[[c.TITLE, c.BODY, c.AUTHORED_BY]] = ""
    frame[c.CONFIDENCE] = np.nan
    frame[c.TAGS] = [()] * len(frame)
    frame[c.ACTIVE] = frame[c.SUPERSEDED_BY].isna()
    frame[c.PRUNABLE] = frame[c.ACTIVE] & ~frame[c.LOAD_BEARING].astype(bool)
    dtypes = {name: dtype for name, dtype in c.DTYPES.items() if name in frame and name != c.KIND}
    return frame.astype(dtypes)


_GAP: Final = "gap"
"""Column that marks rows for memories that were deleted without an archive."""
_MAX_GAP_RATIO: Final = 1_000
"""Ratio of unused to used positions from which positions are not nearly consecutive."""
_BEFORE_ALL: Final = np.iinfo(np.int64).min
"""A time in microseconds that is before all others."""
_AFTER_ALL: Final = np.iinfo(np.int64).max
"""A time in microseconds that is after all others."""


class Gaps(NamedTuple):
    """Memories that were deleted without an archive.

    Attributes
    ----------
    memories : int
        Number of these memories.
    newest : int
        Position of the newest of them; 0 if there are none.
    cap : int or None
        Largest cap that may have deleted them; None if no cap can explain them.
    """

    memories: int = 0
    newest: int = 0
    cap: int | None = None


def gaps_of(past: pd.DataFrame) -> Gaps:
    """Find the memories that were deleted without an archive, by the unused positions."""
    free = _free_positions(past)
    if not len(free):
        return Gaps()
    possibly_capped = free[_may_be_capped(past, free)]
    cap = None
    if len(possibly_capped):
        # The cap kept every newer prunable memory, whether it was deleted later or not.
        newest_capped = possibly_capped[-1]
        is_newer = past[c.POSITION].to_numpy(np.int64) > newest_capped
        is_prunable = ~past[c.LOAD_BEARING].to_numpy(bool)
        newer_free_count = (free > newest_capped).sum()
        cap = int((is_newer & is_prunable).sum() + newer_free_count)
    return Gaps(memories=len(free), newest=int(free[-1]), cap=cap)


def fill_missing_rows(past: pd.DataFrame) -> pd.DataFrame:
    """Return a history in which every unused position has a deleted, prunable row of mean size."""
    if c.DELETED_AT not in past or _GAP in past:
        return past
    free = _free_positions(past)
    if not len(free):
        return past
    filled = pd.concat([past, _rows_at(past, free)], ignore_index=True)
    filled = filled.sort_values(c.POSITION, kind="stable", ignore_index=True)
    filled[_GAP] = filled[_GAP].eq(other=True)  # a missing value, in the rows of `past`, is False
    filled[c.CREATED_AT] = filled[c.CREATED_AT].where(~filled[_GAP]).ffill().bfill()
    filled.attrs = dict(past.attrs)
    return filled.astype(dict(past.dtypes))


def rows_of_gaps(frame: pd.DataFrame) -> Flags:
    """Return a flag for each row: true if :func:`fill_missing_rows` added it."""
    if _GAP not in frame:
        return np.zeros(len(frame), bool)
    return frame[_GAP].to_numpy(bool)


def _free_positions(past: pd.DataFrame) -> Ints:
    """Return the positions from 1 to the last that no memory of a history has.

    A store with keys of its own, or with positions far apart, has none.
    """
    positions = np.unique(past[c.POSITION].to_numpy(np.int64))
    positions = positions[positions > 0]
    if not len(positions) or c.KEY in past:
        return np.empty(0, np.int64)
    free_count = int(positions[-1]) - len(positions)
    is_nearly_consecutive = free_count < _MAX_GAP_RATIO * len(positions)
    if free_count == 0 or not is_nearly_consecutive:
        return np.empty(0, np.int64)
    return np.setdiff1d(np.arange(1, positions[-1] + 1), positions, assume_unique=True)


def _may_be_capped(past: pd.DataFrame, free: Ints) -> Flags:
    """Return a flag for each free position: true if a cap may have deleted its memory.

    A cap deletes the oldest memories first. So no older prunable memory may be present, and
    every known deletion of an older memory must precede every known deletion of a newer one.
    """
    position = past[c.POSITION].to_numpy(np.int64)
    order = np.argsort(position, kind="stable")
    deleted_at = np.zeros(len(past), np.int64)  # 0 for a present memory
    if c.DELETED_AT in past:
        moments = past[c.DELETED_AT].to_numpy("datetime64[us]")
        deleted_at = np.where(np.isnat(moments), 0, moments.astype(np.int64))
    is_prunable_and_present = past[c.PRUNABLE].to_numpy(bool)
    is_deleted = (deleted_at != 0) & ~past[c.LOAD_BEARING].to_numpy(bool)
    # A present memory is treated as deleted after all others. Memories that no cap deletes do not
    # count: their times lie outside of all others.
    latest = np.select([is_prunable_and_present, is_deleted], [_AFTER_ALL, deleted_at], _BEFORE_ALL)
    earliest = np.where(is_deleted, deleted_at, _AFTER_ALL)
    latest_among_older = np.concatenate([[_BEFORE_ALL], np.maximum.accumulate(latest[order])])
    earliest_from_newest = np.minimum.accumulate(earliest[order][::-1])
    earliest_among_newer = np.concatenate([earliest_from_newest[::-1], [_AFTER_ALL]])
    older_count = np.searchsorted(position[order], free)
    may_be_capped: Flags = latest_among_older[older_count] < earliest_among_newer[older_count]
    return may_be_capped


def _rows_at(past: pd.DataFrame, free: Ints) -> pd.DataFrame:
    """Return a deleted, prunable row of mean size for each free position."""
    prunable = ~past[c.LOAD_BEARING].to_numpy(bool)
    tokens = past[c.TOKENS].to_numpy(np.int64)[prunable]
    columns = {
        c.POSITION: free,
        c.MEMORY_ID: [f"gap:{position}" for position in free.tolist()],
        c.KIND: "episodic",
        c.TOKENS: int(tokens.mean()) if len(tokens) else 0,
        c.CHARS: 0,
        c.LOAD_BEARING: False,
        **dict.fromkeys(_LIST_COLUMNS, [()] * len(free)),
    }
    frame = frame_of_facts(columns)
    frame[[c.GRADUATED, c.TRUSTED, c.LOADED_AT_START, c.ACTIVE, c.PRUNABLE]] = False
    frame[c.DELETED_AT] = pd.Timestamp(0, tz="UTC")  # the time is not known, any will do
    frame[_GAP] = True
    return frame[[name for name in (*past, _GAP) if name in frame]]
