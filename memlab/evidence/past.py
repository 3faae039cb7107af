"""All that a store has held as one frame: what is there, and what was deleted from it, in place."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from os import PathLike
from typing import Any, Final, NamedTuple, TypeGuard, Unpack

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import refusal
from memlab.frame.fields import CountTokens, Flags, Ints, rows_in_state
from memlab.frame.labelling import LoadOptions, OnBadRow
from memlab.frame.loading import UNSET, expect_log, expect_memories, frame_of, load
from memlab.sources.base import Rows, Source, archive_at
from memlab.sources.opening import SourceLike, open_source
from memlab.store import SqliteMemoryStore
from memlab.store.archive.archive import Archive
from memlab.store.archive.entries import Entry, Key
from memlab.store.archive.facts import facts_in, hashed, key_of
from memlab.store.archive.location import is_begun
from memlab.store.archive.opening import check_archive_of, read_archive

DELETION: Final = "_where_from"
"""Which deletion took a memory out, by its number."""
_THERE: Final = 2**63 - 1
"""The number of none: what is still there."""
BY_OTHERS: Final = _THERE - 1
"""Of what somebody else deleted after memlab did, or after it put that back."""
_SAME: Final = (c.MEMORY_ID, c.POSITION, c.CREATED_AT)
"""What two copies of one memory have in common."""


Memories = pd.DataFrame | SourceLike
"""What a function about a store takes: a frame, or what names the store, for its whole past."""


class Deletion(NamedTuple):
    """Memories that were deleted, when, and in which of an archive's deletions."""

    at: "datetime | pd.Series[pd.Timestamp]"
    memories: pd.DataFrame
    apply: "int | pd.Series[int]"
    key: bytes | None = None


def load_past(
    source: SourceLike,
    *,
    with_body: bool = False,
    on_bad_row: OnBadRow = "raise",
    count_tokens: CountTokens | str | None = None,
    log: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return all that a store has held: its memories, and those that its archive keeps.

    It is the frame of :func:`memlab.load` with the deleted memories in their places; `deleted_at`
    says when. Of memories that were dropped from the archive there are the facts: position, time,
    kind, label and size. Nothing is written to either.

    Parameters
    ----------
    source, with_body
        As for :func:`memlab.load`.
    on_bad_row : {"raise", "keep"}
        What to do about a row of the store that cannot be interpreted, as for :func:`memlab.load`.
        What cannot be interpreted in the archive is left out.
    count_tokens : callable or str, optional
        As for :func:`memlab.load`. What was dropped was counted by the default rule.
    log : DataFrame, optional
        An access log whose reads are to find dropped memories too, by the names in it.
    """
    expect_log(log, call="memlab.load_past")
    opened = open_source(source)
    # The archive last: what is deleted meanwhile is then in both, and counts as present.
    how = LoadOptions(with_body=with_body, on_bad_row=on_bad_row, count_tokens=count_tokens)
    return past_of(load(opened, **how), deletions_of(opened, **how), log)


def names_a_store(memories: object) -> TypeGuard[SourceLike]:
    """Whether something is no frame but what :func:`memlab.load` takes."""
    return isinstance(memories, str | PathLike | SqliteMemoryStore | Source)


def resolve_history(
    memories: Memories, *, call: str, with_body: bool = False, log: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return a frame as it is, and of a store its whole past, on behalf of a public call."""
    if names_a_store(memories):
        return load_past(memories, with_body=with_body, log=log)
    if not isinstance(memories, pd.DataFrame):
        raise refusal(memories, "DataFrame", "store", call=call, name="frame")
    expect_memories(memories, call=call)
    return memories


def deletions_of(source: Source, **how: Unpack[LoadOptions]) -> list[Deletion]:
    """Return what was deleted and kept: by the system, as the archive has it, and as git does."""
    gone, deletions = load_deleted(source, **how)
    number = BY_OTHERS if c.WRITTEN_AT in gone else 0
    return [*deletions, Deletion(gone[c.DELETED_AT], gone, number)] if len(gone) else deletions


def load_deleted(source: Source, **how: Unpack[LoadOptions]) -> tuple[pd.DataFrame, list[Deletion]]:
    """Return what somebody else deleted, as the source knows it, and what memlab did."""
    if source.name == ":memory:":
        return pd.DataFrame(), []
    check_archive_of(archive_at(source))
    how["on_bad_row"] = "keep"
    bodies = bool(how.get("with_body")) or how.get("count_tokens") is not None

    def read(batches: Iterable[Rows], name: str) -> pd.DataFrame:
        return frame_of(batches, name=name, protected=source.protected, **how)

    batches = [
        *source.iter_deleted_elsewhere(with_body=bodies)
    ]  # mostly none, and an empty frame takes its time
    gone = sound(read(batches, source.name)) if batches else pd.DataFrame()
    for name in (c.DELETED_AT, c.WRITTEN_AT):
        if name in gone:
            gone[name] = pd.to_datetime(gone[name], utc=True).astype(c.TIME)
    if not is_begun(archive_at(source)):
        return gone, []

    def deleted(archive: Archive) -> tuple[pd.DataFrame, list[Deletion]]:
        others = gone if c.WRITTEN_AT not in gone else exclude_archived(gone, archive)
        theirs = {*others[c.KEY]} if c.WRITTEN_AT in others else set()
        entries = list[Entry]()

        def records() -> Iterator[tuple[Key, bytes]]:
            for entry in archive.entries():
                if not entry.memories or entry.recovers:  # it deleted nothing
                    continue
                copies = archive.copies(entry) if theirs else ()
                back = {copy.key for copy in copies if copy.restored_at is not None} & theirs
                for key, record in archive.records(entry):
                    if key not in back:  # what was restored, and somebody else deleted, is theirs
                        entries.append(entry)
                        yield key, record

        # One frame: a runtime may delete one memory at a time, and one for each would take minutes.
        frame = read(source.rows_of(records(), with_body=bodies), str(archive.path))
        at = [entry.finished_at or entry.archived_at for entry in entries]
        frame[c.DELETED_AT] = pd.Series(at, frame.index, c.TIME)
        frame[DELETION] = np.array([entry.apply for entry in entries], np.int64)
        frame = sound(frame)
        found = [Deletion(frame[c.DELETED_AT], frame, frame[DELETION])] if len(frame) else []
        key = key_of(archive)
        for dropped in archive.dropped():
            facts = frame_of_facts(facts_in(archive, dropped))
            found.append(Deletion(dropped.deleted_at, facts, dropped.apply, key))
        return others, found

    return read_archive(archive_at(source), deleted)


def sound(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a frame that could be interpreted."""
    return frame[frame[c.PROBLEM].isna()].drop(columns=c.PROBLEM).reset_index(drop=True)


def exclude_archived(gone: pd.DataFrame, archive: Archive) -> pd.DataFrame:
    """Leave out what an archive holds as deleted, or did: nobody has written it since."""
    places = {*gone[c.KEY if c.KEY in gone else c.POSITION]}
    last = dict[str, datetime]()
    for entry in archive.entries():
        copies = [] if entry.recovers else archive.copies(entry)
        keys = [each.key for each in copies if each.restored_at is None and each.key in places]
        for _, record in archive.records(entry, keys):  # a number may be another memory's now
            last[archive.location.id_of(record)] = entry.finished_at or entry.archived_at
    at = gone[c.MEMORY_ID].map(last).astype(c.TIME)
    key = key_of(archive) or b""
    hashes = gone[c.MEMORY_ID].map(lambda name: hashed(name, key))
    for dropped in archive.dropped():
        names = {facts[c.MEMORY_ID] for facts in facts_in(archive, dropped)}
        at = at.mask(hashes.isin(names), pd.Timestamp(dropped.deleted_at))
    return gone[~(at >= gone[c.WRITTEN_AT])].reset_index(drop=True)


def past_of(
    present: pd.DataFrame, deletions: Sequence[Deletion], log: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return present and deleted memories as one frame, in the order in which they were written."""
    return with_deletions(present, deletions, log).drop(columns=DELETION)


def with_deletions(
    present: pd.DataFrame, deletions: Sequence[Deletion], log: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return what :func:`past_of` does, with a column that says which deletion took a memory."""
    own = present.assign(**{c.DELETED_AT: pd.Series(pd.NaT, present.index, c.TIME)})
    own[DELETION] = _THERE
    if not deletions:
        return own
    parts = []
    for deletion in _named(present, deletions, log):
        gone = deletion.memories.assign(**{c.ACTIVE: False, c.PRUNABLE: False})
        retired = gone[c.SUPERSEDED_BY] == gone[c.MEMORY_ID]  # no other stood for it
        gone[c.SUPERSEDED_BY] = gone[c.SUPERSEDED_BY].mask(retired)
        gone[c.DELETED_AT] = pd.Series(deletion.at, gone.index, c.TIME)
        gone[DELETION] = deletion.apply
        parts.append(gone[[name for name in own if name in gone]])
    went = pd.concat(parts).sort_values(DELETION, kind="stable")
    every = pd.concat([went, own], ignore_index=True)
    for flag in every.columns.intersection(list(UNSET)):
        every[flag] = every[flag].where(every[flag].notna(), UNSET[flag])
    every = every.drop_duplicates(list(_SAME), keep="last", ignore_index=True)
    every = every.iloc[_in_order_of_writing(every)].reset_index(drop=True)
    position = every[c.POSITION].to_numpy(np.int64)
    steps = np.diff(position)  # numbers that begin again go on where those before them ended
    every[c.POSITION] = np.cumsum(np.append(position[:1], np.where(steps > 0, steps, 1)))
    every.attrs = dict(present.attrs)
    kinds = {name: kind for name, kind in present.dtypes.items() if name in every}
    if c.KEY in kinds and every[c.KEY].isna().any():  # facts of what was dropped have no address
        del kinds[c.KEY]
    return every.astype(kinds)


def rows_in_reach(past: pd.DataFrame) -> pd.DataFrame:
    """Return the memories of a past that a law and a cap speak of.

    A memory that no start leads to, :data:`memlab.columns.UNLISTED`, is left out: no cap can take
    it. One that a hub alone leads to counts as load-bearing here: no plan takes it, so every cap
    serves its reads. Where every memory is listed, or its store has no index, the frame itself is
    returned.
    """
    reached = rows_in_state(past, c.REACHED) & ~past[c.LOAD_BEARING].to_numpy(bool)
    if reached.any():
        bears = past[c.LOAD_BEARING] | reached
        past = past.assign(**{c.LOAD_BEARING: bears, c.PRUNABLE: past[c.PRUNABLE] & ~reached})
    unlisted = rows_in_state(past, c.UNLISTED)
    return past[~unlisted].reset_index(drop=True) if unlisted.any() else past


def in_reach(past: pd.DataFrame, references: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return :func:`rows_in_reach`, and the references to no other memory."""
    unlisted = past.loc[rows_in_state(past, c.UNLISTED), c.POSITION]
    if len(unlisted):
        others = ~references[c.TARGET_POSITION].isin(unlisted)
        references = references[others].reset_index(drop=True)
    return rows_in_reach(past), references


def present_rows(past: pd.DataFrame) -> pd.DataFrame:
    """Return the memories of a past that are still in the store."""
    return past[past[c.DELETED_AT].isna()] if c.DELETED_AT in past else past


def _named(
    present: pd.DataFrame, deletions: Sequence[Deletion], log: pd.DataFrame | None
) -> Sequence[Deletion]:
    """Call dropped memories by the names that what is still there has for them, or by the hash."""
    key = next((each.key for each in deletions if each.key is not None), None)
    if key is None:
        return deletions
    known: set[str] = set() if log is None else {*log[c.MEMORY_ID].dropna()}
    for frame in (present, *(each.memories for each in deletions if each.key is None)):
        for column in _NAMES:
            known.update(frame[column].dropna())
        for column in _LISTS:
            known.update(chain.from_iterable(frame[column]))
    by_hash = {hashed(name, key): name for name in known}

    def name(kept: str) -> str:
        return by_hash.get(kept, _UNKNOWN + kept)

    return [
        each if each.key is None else each._replace(memories=_renamed(each.memories, name))
        for each in deletions
    ]


def _renamed(memories: pd.DataFrame, rename: Callable[[str], str]) -> pd.DataFrame:
    """Return memories with another name for each that references go by."""
    renamed = memories.copy(deep=False)
    for column in _NAMES:
        names = memories[column].map(rename, na_action="ignore")
        renamed[column] = names.astype(memories[column].dtype)
    for column in _LISTS:
        renamed[column] = [tuple(map(rename, each)) for each in memories[column]]
    return renamed


def _in_order_of_writing(every: pd.DataFrame) -> Ints:
    """Return places in the order of writing, by creation where SQLite gave numbers out again."""
    position = every[c.POSITION].to_numpy(np.int64)
    by_number: Ints = np.lexsort((every[DELETION].to_numpy(np.int64), position))
    ordered = every.iloc[by_number]
    twice = ordered[c.POSITION].duplicated(keep=False).to_numpy()
    if not twice.any():
        return by_number
    first = int(np.argmax(twice))
    again = ordered.iloc[first:]
    written = again[c.CREATED_AT].ffill().bfill().to_numpy("datetime64[us]").astype(np.int64)
    latest = pd.Series(written).groupby(again[c.POSITION].to_numpy()).cummax().to_numpy()
    return np.concatenate([by_number[:first], by_number[first:][np.argsort(latest, kind="stable")]])


_UNKNOWN: Final = "dropped:"
"""Begins the name of a dropped memory that nothing that is still there names."""

_NAMES: Final = (c.MEMORY_ID, c.SOURCE_TASK_REF, c.SUPERSEDED_BY)
_LISTS: Final = (c.SUPERSEDES, c.EVIDENCE_REFS)
_PLAIN: Final = (c.POSITION, c.KIND, c.CHARS, c.TOKENS, c.LOAD_BEARING)


def facts_of(frame: pd.DataFrame, key: bytes) -> list[str]:
    """Return what is kept of memories once their words are erased, one JSON object each.

    Names that references go by are hashed with a key. No title, text, tag, author or signal.
    """
    facts = frame[[*_PLAIN, c.CREATED_AT, *_NAMES, *_LISTS]].astype({c.KIND: "str"})
    facts[c.CREATED_AT] = facts[c.CREATED_AT].map(pd.Timestamp.isoformat, na_action="ignore")
    facts = _renamed(facts, partial(hashed, key=key))
    lines = facts.to_json(orient="records", lines=True, date_format="iso")  # where none has a time
    return lines.split()  # no value has a space


def frame_of_facts(facts: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> pd.DataFrame:
    """Return facts as a frame of memories without words, whose names are hashes."""
    frame = pd.DataFrame(facts, columns=[*_PLAIN, c.CREATED_AT, *_NAMES, *_LISTS])
    for name in _LISTS:
        frame[name] = [tuple(each) for each in frame[name]]
    frame[c.CREATED_AT] = pd.to_datetime(frame[c.CREATED_AT], format="ISO8601", utc=True)
    frame[c.TITLE] = frame[c.BODY] = frame[c.AUTHORED_BY] = ""
    frame[c.CONFIDENCE] = np.nan
    frame[c.TAGS] = [()] * len(frame)
    frame[c.ACTIVE] = frame[c.SUPERSEDED_BY].isna()
    frame[c.PRUNABLE] = frame[c.ACTIVE] & ~frame[c.LOAD_BEARING].astype(bool)
    return frame.astype({n: kind for n, kind in c.DTYPES.items() if n in frame and n != c.KIND})


_GAP: Final = "gap"
"""A column that says which rows of a frame stand for a memory of which nothing is known."""
_MOST_GAPS: Final = 1_000
"""So many times more numbers free than taken, and the store does not number one by one."""
_FIRST = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max


class Gaps(NamedTuple):
    """Memories that were deleted without an archive."""

    memories: int = 0
    newest: int = 0
    cap: int | None = None


def gaps_of(past: pd.DataFrame) -> Gaps:
    """Return how many memories were deleted unkept, by the numbers that a store left free."""
    free = _free_positions(past)
    if not len(free):
        return Gaps()
    capped = free[_may_be_capped(past, free)]
    cap = None
    if len(capped):
        later = past[c.POSITION].to_numpy(np.int64) > capped[-1]
        prunable = ~past[c.LOAD_BEARING].to_numpy(bool)
        cap = int((later & prunable).sum() + (free > capped[-1]).sum())
    return Gaps(len(free), int(free[-1]), cap)


def fill_missing_rows(past: pd.DataFrame) -> pd.DataFrame:
    """Return a past with a prunable, deleted row of mean size for every memory that is unknown."""
    if c.DELETED_AT not in past or _GAP in past:
        return past
    free = _free_positions(past)
    if not len(free):
        return past
    every = pd.concat([past, _unknown(past, free)], ignore_index=True)
    every = every.sort_values(c.POSITION, kind="stable", ignore_index=True)
    every[_GAP] = every[_GAP].eq(other=True)
    every[c.CREATED_AT] = every[c.CREATED_AT].where(~every[_GAP]).ffill().bfill()
    every.attrs = dict(past.attrs)
    return every.astype(dict(past.dtypes))


def rows_of_gaps(frame: pd.DataFrame) -> Flags:
    """Return which rows of a frame stand for a memory of which nothing is known."""
    return frame[_GAP].to_numpy(bool) if _GAP in frame else np.zeros(len(frame), bool)


def _free_positions(past: pd.DataFrame) -> Ints:
    positions = np.unique(past[c.POSITION].to_numpy(np.int64))
    positions = positions[positions > 0]
    if not len(positions) or c.KEY in past:
        return np.empty(0, np.int64)
    missing = int(positions[-1]) - len(positions)
    if not 0 < missing < _MOST_GAPS * len(positions):
        return np.empty(0, np.int64)
    return np.setdiff1d(np.arange(1, positions[-1] + 1), positions, assume_unique=True)


def _may_be_capped(past: pd.DataFrame, free: Ints) -> Flags:
    """Return which free positions a cap, which deletes the oldest, may have left.

    So no older prunable memory is there now, and what a plan deleted of the older ones went before
    anything that a plan deleted of the newer ones.
    """
    position = past[c.POSITION].to_numpy(np.int64)
    order = np.argsort(position, kind="stable")
    deleted = np.zeros(len(past), np.int64)
    if c.DELETED_AT in past:
        moments = past[c.DELETED_AT].to_numpy("datetime64[us]")
        deleted = np.where(np.isnat(moments), 0, moments.astype(np.int64))
    there = past[c.PRUNABLE].to_numpy(bool)
    gone = (deleted != 0) & ~past[c.LOAD_BEARING].to_numpy(bool)
    last = np.where(there, _LAST, np.where(gone, deleted, _FIRST))[order]
    first = np.where(gone, deleted, _LAST)[order]
    last_of_older = np.concatenate([[_FIRST], np.maximum.accumulate(last)])
    first_of_newer = np.concatenate([np.minimum.accumulate(first[::-1])[::-1], [_LAST]])
    place = np.searchsorted(position[order], free)
    capped: Flags = last_of_older[place] < first_of_newer[place]
    return capped


def _unknown(past: pd.DataFrame, free: Ints) -> pd.DataFrame:
    prunable = ~past[c.LOAD_BEARING].to_numpy(bool)
    tokens = past[c.TOKENS].to_numpy(np.int64)[prunable]
    known = {
        c.POSITION: free,
        c.MEMORY_ID: [f"gap:{position}" for position in free.tolist()],
        c.KIND: "episodic",
        c.TOKENS: int(tokens.mean()) if len(tokens) else 0,
        c.CHARS: 0,
        c.LOAD_BEARING: False,
        **dict.fromkeys(_LISTS, [()] * len(free)),
    }
    frame = frame_of_facts(known)
    frame[[c.GRADUATED, c.TRUSTED, c.LOADED_AT_START, c.ACTIVE, c.PRUNABLE]] = False
    frame[c.DELETED_AT] = pd.Timestamp(0, tz="UTC")
    frame[_GAP] = True
    return frame[[name for name in (*past, _GAP) if name in frame]]
