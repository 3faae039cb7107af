"""All that a store has held, as one frame: what is there, and what was deleted from it, in place.

What was deleted stays part of the history that sizing, growth and comparison look at, so that
compacting a store never changes what its past says.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as c
from memlab.arguments import expect_frame
from memlab.evidence.dropped import frame_of_facts, names_by_hash, with_names
from memlab.frame.labelling import OnBadRow
from memlab.frame.loading import UNSET, frame_of, load
from memlab.frame.tokens import CountTokens
from memlab.sources.base import Source, archive_at
from memlab.sources.opening import SourceLike, open_source
from memlab.store.archive import Archive
from memlab.store.archive_entries import Entry, Key
from memlab.store.archive_file import is_begun, read_archive
from memlab.store.dropped import dropped_in, facts_in, key_of
from memlab.store.identity import check_archive_of

Ordinals = npt.NDArray[np.int64]

_WHERE: Final = "_where_from"
"""Which deletion took a memory out, by its number."""
_THERE: Final = 2**63 - 1
"""The number of none: what is still there."""
_SAME: Final = (c.MEMORY_ID, c.POSITION, c.CREATED_AT)
"""What two copies of one memory have in common."""


class Deletion(NamedTuple):
    """Memories that were deleted together.

    Attributes
    ----------
    at : datetime, or Series of datetime64
        When, with a time zone; one moment for each memory where they went one after the other.
    memories : DataFrame
        As ``memlab.load`` showed them while they were there.
    key : bytes or None
        Where their words were erased: what their names are hashed with.
    apply : int, or Series of int64, or None
        The deletion's number in the archive; one for each memory where several deletions are
        looked at together. None for one that is in no archive.
    """

    at: "datetime | pd.Series[pd.Timestamp]"
    memories: pd.DataFrame
    key: bytes | None = None
    apply: "int | pd.Series[int] | None" = None


def load_past(
    source: SourceLike,
    *,
    with_body: bool = False,
    on_bad_row: OnBadRow = "raise",
    count_tokens: CountTokens | str | None = None,
    log: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return all that a store has held: its memories, and those that its archive keeps.

    Of memories that were dropped from the archive there are the facts: position, time, kind, label
    and size, in their places. Nothing is written to either.

    Parameters
    ----------
    source : path, URL, SqliteMemoryStore or Source
        The store.
    with_body : bool
        Whether to add the texts themselves as ``body``.
    on_bad_row : {"raise", "keep"}
        What to do about a row of the store that cannot be interpreted, as for :func:`memlab.load`.
        What cannot be interpreted in the archive is left out.
    count_tokens : callable or str, optional
        As for :func:`memlab.load`. What was dropped was counted by the default rule.
    log : DataFrame, optional
        An access log whose reads are to find dropped memories too: those go by the names that the
        log has for them.

    Returns
    -------
    DataFrame
        What :func:`memlab.load` returns, with the deleted memories in their places: see
        :func:`past_of`.

    Raises
    ------
    StoreError, BadRowError, MissingExtraError, ValueError
        As :func:`memlab.load` does.
    ArchiveError
        When there is an archive that cannot be read.
    """
    expect_frame(
        log, c.MEMORY_ID, c.AT, call="memlab.load_past", name="log", what="log", optional=True
    )
    opened = open_source(source)
    # The archive last: what is deleted meanwhile is then in both, and counts as present.
    present = load(opened, with_body=with_body, on_bad_row=on_bad_row, count_tokens=count_tokens)
    gone = deletions_of(opened, with_body=with_body, count_tokens=count_tokens)
    return past_of(present, gone, names=() if log is None else log[c.MEMORY_ID].dropna())


def deletions_of(
    source: Source, *, with_body: bool = False, count_tokens: CountTokens | str | None = None
) -> list[Deletion]:
    """Return what a source's archive keeps, oldest deletion first; none where there is no archive.

    Raises
    ------
    ArchiveError
        When there is an archive that cannot be read, or is another store's, or this store's own
        lies beside it under another name.
    """
    if source.name == ":memory:":
        return []
    check_archive_of(archive_at(source))
    if not is_begun(archive_at(source)):
        return []

    def deleted(archive: Archive) -> list[Deletion]:
        found = {}
        for run in _runs(archive):
            records = chain.from_iterable(archive.records(entry) for entry in run)
            frame = frame_of(
                source.rows_of(records, with_body=with_body or count_tokens is not None),
                name=str(archive.path),
                with_body=with_body,
                on_bad_row="keep",
                count_tokens=count_tokens,
                protected=source.protected,
            )
            sound = frame[frame[c.PROBLEM].isna()].drop(columns=c.PROBLEM).reset_index(drop=True)
            at, number = _when(archive, run, sound)
            found[run[0].apply] = Deletion(at, sound, apply=number)
        for dropped in dropped_in(archive):
            facts = frame_of_facts(facts_in(archive, dropped))
            number, key = dropped.apply, key_of(archive)
            found[number] = Deletion(dropped.deleted_at, facts, key, number)
        return [found[number] for number in sorted(found)]

    return read_archive(archive_at(source), deleted)


def _runs(archive: Archive) -> Iterator[list[Entry]]:
    """Yield the deletions that are looked at together: a plan, or a runtime's one after the other.

    A runtime may delete one memory at a time, and a frame for each would take minutes. No two of a
    run deleted from the same place.
    """
    run: list[Entry] = []
    taken: set[Key] = set()
    for entry in archive.entries():
        if not entry.memories:  # a plan that superseded and deleted nothing
            continue
        places = set() if entry.planned else {copy.key for copy in archive.copies(entry)}
        follows = run and run[-1].apply + 1 == entry.apply
        if run and (not follows or not places or not taken or places & taken):
            yield run
            run, taken = [], set()
        run.append(entry)
        taken |= places
    if run:
        yield run


def _when(
    archive: Archive, run: Sequence[Entry], memories: pd.DataFrame
) -> "tuple[datetime, int] | tuple[pd.Series[pd.Timestamp], pd.Series[int]]":
    """Return when the memories of a run were deleted, and the numbers of the deletions."""
    if len(run) == 1:
        return run[0].finished_at or run[0].archived_at, run[0].apply
    entries = {copy.key: entry for entry in run for copy in archive.copies(entry)}
    places = memories[c.KEY] if c.KEY in memories else memories[c.POSITION]
    moments = {key: entry.finished_at or entry.archived_at for key, entry in entries.items()}
    numbers = {key: entry.apply for key, entry in entries.items()}
    return places.map(moments).astype(c.TIME), places.map(numbers).astype("int64")


def past_of(
    present: pd.DataFrame, deletions: Sequence[Deletion], *, names: Iterable[str] = ()
) -> pd.DataFrame:
    """Return present and deleted memories as one frame, in the order in which they were written.

    Parameters
    ----------
    present : DataFrame
        What ``memlab.load`` returns of the store.
    deletions : sequence of Deletion
        What was taken out of it and kept, oldest first.
    names : iterable of str
        Ids that are known from elsewhere: dropped memories of these ids are called by them.

    Returns
    -------
    DataFrame
        The columns of `present` and ``deleted_at``, which is missing for what is still there. What
        was deleted is neither active nor prunable now. A memory that was put back is there once,
        as present; one that was deleted twice is there once, with the later moment. Where a
        position was given out again, the memory deleted from it comes first, and positions after
        that are counted on.
    """
    return _merged(present, deletions, names).drop(columns=_WHERE)


def past_and_deletions(source: Source) -> tuple[pd.DataFrame, "pd.Series[int]"]:
    """Return a source's past, and for each memory of it the number of the deletion that took it.

    The number is the archive's; no deletion of the archive has that of what is still there. A row
    that cannot be interpreted is kept.
    """
    past = _merged(load(source, on_bad_row="keep"), deletions_of(source), ())
    return past.drop(columns=_WHERE), past[_WHERE]


def _merged(
    present: pd.DataFrame, deletions: Sequence[Deletion], names: Iterable[str]
) -> pd.DataFrame:
    """Return what :func:`past_of` does, with a column that says which deletion took a memory."""
    own = _with_moments(present, None)
    own[_WHERE] = _THERE
    if not deletions:
        return own
    deletions = _named(present, deletions, names)
    parts = [_deleted(deletion, number) for number, deletion in enumerate(deletions)]
    every = pd.concat([part[_shared(part, own)] for part in [*parts, own]], ignore_index=True)
    for flag in every.columns.intersection(list(UNSET)):
        every[flag] = every[flag].where(every[flag].notna(), UNSET[flag])
    every = every.drop_duplicates(list(_SAME), keep="last", ignore_index=True)
    every = every.iloc[_in_order_of_writing(every)].reset_index(drop=True)
    every[c.POSITION] = _counted_on(every[c.POSITION].to_numpy(np.int64))
    every.attrs = dict(present.attrs)
    return every.astype({name: kind for name, kind in present.dtypes.items() if name in every})


def present_rows(past: pd.DataFrame) -> pd.DataFrame:
    """Return the memories of a past that are still in the store."""
    return past[past[c.DELETED_AT].isna()] if c.DELETED_AT in past else past


def _named(
    present: pd.DataFrame, deletions: Sequence[Deletion], names: Iterable[str]
) -> Sequence[Deletion]:
    """Call dropped memories by the names that what is still there has for them."""
    key = next((each.key for each in deletions if each.key is not None), None)
    if key is None:
        return deletions
    worded = [each.memories for each in deletions if each.key is None]
    known = names_by_hash([present, *worded], key, names)
    return [
        each if each.key is None else each._replace(memories=with_names(each.memories, known))
        for each in deletions
    ]


def _deleted(deletion: Deletion, place: int) -> pd.DataFrame:
    gone = _with_moments(deletion.memories, deletion.at)
    number = place if deletion.apply is None else deletion.apply
    gone[c.ACTIVE], gone[c.PRUNABLE], gone[_WHERE] = False, False, number
    return gone


def _with_moments(
    frame: pd.DataFrame, at: "datetime | pd.Series[pd.Timestamp] | None"
) -> pd.DataFrame:
    """Return memories with the moment at which they were deleted; None for what is there."""
    moments = at
    if not isinstance(at, pd.Series):
        moments = pd.Series(pd.NaT if at is None else at, index=frame.index, dtype=c.TIME)
    return frame.assign(**{c.DELETED_AT: moments})


def _shared(part: pd.DataFrame, own: pd.DataFrame) -> list[str]:
    return [name for name in own.columns if name in part]


def _in_order_of_writing(every: pd.DataFrame) -> Ordinals:
    """Return the places of memories in the order in which they were written.

    SQLite numbers a row one more than the highest there is, so after a deletion of the newest rows
    it gives their numbers out again. From the first number given out twice on, the times of
    creation say which memory came first, and of two with one number the deletion: the one that
    went first came first.
    """
    position = every[c.POSITION].to_numpy(np.int64)
    by_number: Ordinals = np.lexsort((every[_WHERE].to_numpy(np.int64), position))
    ordered = every.iloc[by_number]
    twice = ordered[c.POSITION].duplicated(keep=False).to_numpy()
    if not twice.any():
        return by_number
    first = int(np.argmax(twice))
    again = ordered.iloc[first:]
    written = again[c.CREATED_AT].ffill().bfill().to_numpy("datetime64[us]").astype(np.int64)
    latest = pd.Series(written).groupby(again[c.POSITION].to_numpy()).cummax().to_numpy()
    return np.concatenate([by_number[:first], by_number[first:][np.argsort(latest, kind="stable")]])


def _counted_on(position: Ordinals) -> Ordinals:
    """Let positions that begin again go on where those before them ended."""
    steps = np.diff(position)
    return np.cumsum(np.concatenate([position[:1], np.where(steps > 0, steps, 1)]))
