"""Putting archived memories back, byte for byte."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from os import PathLike
from os.path import lexists
from pathlib import Path
from typing import Self

from memlab.arguments import expect, texts
from memlab.clock import moment_or_now
from memlab.compaction import superseding
from memlab.compaction.applying import plan_in, record_finished, said_to_be_done
from memlab.compaction.locating import locate, some_of
from memlab.compaction.receipts import Receipt
from memlab.errors import ArchiveError
from memlab.files import limit_like, whole_file
from memlab.sources.abilities import LeavesRows
from memlab.sources.base import Key, Source, Watch, Writer, archive_at, unwatched
from memlab.sources.opening import SourceLike, open_source
from memlab.store.archive import Archive
from memlab.store.archive_entries import Copy, Entry
from memlab.store.archive_file import open_archive
from memlab.store.database import connect_reading
from memlab.store.identity import check_archive_of
from memlab.store.looking import SIDE_FILES, read_store
from memlab.store.records import fingerprint_of


class Restored(int):
    """How many memories were put back.

    Attributes
    ----------
    left_out : int
        How many stay in the archive, because their own time to live has passed since.
    rows_left_out : mapping of str to int
        How many rows of other tables stay there, by table: they went with a memory, and something
        else that they refer to is not there.
    """

    left_out: int
    rows_left_out: Mapping[str, int]

    def __new__(
        cls, count: int, left_out: int = 0, rows_left_out: Mapping[str, int] | None = None
    ) -> Self:
        """Return a number that knows what it leaves out."""
        made = super().__new__(cls, count)
        made.left_out, made.rows_left_out = left_out, rows_left_out or {}
        return made


class RestoreStep(StrEnum):
    """What :func:`restore` has just done."""

    LOCKED = "locked"
    """No other process can write to the store."""
    CHECKED = "checked"
    """Every place and every id is free."""
    INSERTED = "inserted"
    """The memories are back, not yet committed."""
    VERIFIED = "verified"
    """They are byte for byte what was archived, and nothing else changed."""
    COMMITTED = "committed"
    """They are on the disk."""
    RECORDED = "recorded"
    """The archive says so."""


def restore(
    receipt: Receipt | str,
    *,
    store: SourceLike | None = None,
    ids: Collection[str] | None = None,
    into: str | Path | None = None,
    now: datetime | None = None,
    watch: Watch = unwatched,
) -> "Restored":
    """Put archived memories back: the same bytes, at the same place.

    What a plan superseded is loaded again then; it was never away. Memories that are in the store
    as they were archived are left alone, so restoring twice restores 0. What the store kept beside
    a memory comes back with it.

    Parameters
    ----------
    receipt : Receipt or str
        What :func:`apply` returned, or a plan's digest or the beginning of one.
    store : str, Path or Source, optional
        The store, where `receipt` is a digest or the store has moved.
    ids : collection of str, optional
        Restore only these.
    into : str or Path, optional
        A new file to put the memories into, beside nothing else, instead of the store.
    now : datetime, optional
        The moment written into the archive; the current one by default.
    watch : callable, optional
        Called with each :class:`RestoreStep` that there is, when it is done: where a plan
        superseded nothing is inserted and nothing recorded, and a new file is made without.

    Returns
    -------
    Restored
        How many memories were put back, an ``int``; its ``left_out`` says how many were not,
        because their own time to live has passed since, and its ``rows_left_out`` how many rows of
        other tables.

    Raises
    ------
    ValueError
        When `receipt` is a digest and no `store` is given, or `now` has no time zone.
    ArchiveError
        When there is no such plan in the archive, an id is not among its memories, a place or an id
        has been taken since, or what was superseded is gone or superseded by another. Nothing is
        changed.
    CompactionError
        When more than what the plan superseded would change. Nothing is changed.
    UnsafeDeletionError
        When changing such a store is not safe; it says what to do instead.
    StoreError
        When the store cannot be written.
    MemlabError
        When `into` exists or cannot be written.
    """
    expect(receipt, Receipt, str, call="memlab.restore", name="receipt")
    expect(into, str, PathLike, call="memlab.restore", name="into", optional=True)
    if ids is not None:
        ids = texts(ids, call="memlab.restore", name="ids")
    moment = moment_or_now(now, call="memlab.restore")
    digest, source = _meant(receipt, store)
    if into is None:
        check_archive_of(archive_at(source))
    with open_archive(archive_at(source)) as archive:
        if not archive.entry(digest).memories:
            return Restored(_take_back(source, archive, digest, ids, into, watch))
        if into is not None:
            return Restored(_restore_into(source, archive, digest, ids, Path(into)))
        back = _Back()
        with _said_once_committed(back, source), ExitStack() as noting:
            with source.changing() as writer:
                record_finished(writer, source, archive, moment)
                watch(RestoreStep.LOCKED)
                entry = archive.entry(digest)
                copies = _chosen(source, archive, entry, ids)
                missing = _missing(writer, source, archive, entry, copies)
                watch(RestoreStep.CHECKED)
                left_out: set[Key] = set()
                if missing:
                    records = _Records(archive, entry, missing)
                    inserted = writer.insert(records, watch=lambda _: watch(RestoreStep.INSERTED))
                    watch(RestoreStep.VERIFIED)
                    left_out = _left_out(writer, missing, inserted)
                    back.memories = inserted
                unmarked = [
                    c.key for c in copies if c.restored_at is None and c.key not in left_out
                ]
                noting.enter_context(archive.marking_restored(entry.digest, unmarked, moment))
            back.committed = True
            watch(RestoreStep.COMMITTED)
    watch(RestoreStep.RECORDED)
    rows = writer.rows_left_out if isinstance(writer, LeavesRows) else {}
    return Restored(back.memories, len(left_out), rows)


@dataclass
class _Back:
    """How far a restore has come."""

    memories: int = 0
    committed: bool = False


@contextmanager
def _said_once_committed(back: _Back, source: Source) -> Iterator[None]:
    """Say that memories were restored, where only the archive's note of it fails."""
    try:
        yield
    except ArchiveError as error:
        if not back.committed:
            raise
        with said_to_be_done(f"{back.memories:,} memories were restored into {source.name}"):
            raise error from error.__cause__


def _take_back(
    source: Source,
    archive: Archive,
    digest: str,
    ids: Collection[str] | None,
    into: str | Path | None,
    watch: Watch,
) -> int:
    """Take back a plan that superseded memories and deleted none."""
    plan = plan_in(archive, archive.entry(digest))
    if into is not None:
        raise ArchiveError(
            f"plan {plan.digest[:12]} deleted nothing that a new file could be made of; restore "
            "without one"
        )
    with superseding.opened_for_links(source) as writer:
        watch(RestoreStep.LOCKED)
        count = superseding.take_back(writer, source, plan, ids)
        watch(RestoreStep.VERIFIED)
    watch(RestoreStep.COMMITTED)
    return count


class _Records:
    """The records of some copies, read from the archive each time they are gone through."""

    def __init__(self, archive: Archive, entry: Entry, copies: list[Copy]) -> None:
        self._archive, self._entry = archive, entry
        self._prints = {copy.key: copy.fingerprint for copy in copies}

    def __iter__(self) -> Iterator[tuple[Key, bytes]]:
        for key, record in self._archive.records(self._entry, self._prints):
            if fingerprint_of(record) != self._prints[key]:
                raise ArchiveError(
                    f"the copy of {key!r} in {self._archive.path} is not what was archived; "
                    "nothing was restored: restore the others by id, or a backup of the archive"
                )
            yield key, record


def _meant(receipt: Receipt | str, store: SourceLike | None) -> tuple[str, Source]:
    """Return the digest and the store that a caller of :func:`restore` means."""
    if isinstance(receipt, Receipt):
        return receipt.digest, open_source(receipt.store if store is None else store)
    if store is None:
        raise ValueError(f"store must be given with a digest such as {receipt!r}")
    return receipt, open_source(store)


def _chosen(
    source: Source, archive: Archive, entry: Entry, ids: Collection[str] | None
) -> list[Copy]:
    """Return the copies to put back, in the order in which they were made."""
    copies = archive.copies(entry)
    if ids is None:
        return copies
    named = {key: source.facts_of(record).memory_id for key, record in archive.records(entry)}
    if unknown := sorted(set(ids) - set(named.values())):
        raise ArchiveError(
            f"plan {entry.digest[:12]} deleted no memory {some_of(unknown)}; nothing was restored: "
            f"memlab archive {archive.place.store} lists what it deleted"
        )
    wanted = set(ids)
    return [copy for copy in copies if named[copy.key] in wanted]


def _missing(
    writer: Writer, source: Source, archive: Archive, entry: Entry, copies: list[Copy]
) -> list[Copy]:
    """Return the copies that are not in the store, after checking that there is room for them.

    A memory that was restored and changed afterwards is the store's own again, not in the way.
    """
    located = locate(writer, source, archive, entry, copies)
    taken = [
        f"position {copy.key}" if isinstance(copy.key, int) else f"key {copy.key}"
        for copy in copies
        if copy.key in located.taken or (copy.key in located.changed and copy.restored_at is None)
    ]
    missing = [copy for copy in copies if copy.key in located.absent]
    taken += writer.conflicts(_Records(archive, entry, missing))
    if taken:
        raise ArchiveError(
            f"{len(taken):,} places of plan {entry.digest[:12]} have been taken since "
            f"({some_of(taken)}); nothing was restored: restore the other "
            f"{max(len(copies) - len(taken), 0):,} by id, or all into a new file"
        )
    return missing


def _left_out(writer: Writer, missing: list[Copy], back: int) -> set[Key]:
    """Return the keys of memories whose time has passed, so that they were not put back."""
    if back == len(missing):
        return set()
    keys = [copy.key for copy in missing]
    return set(keys) - {key for key, _ in writer.records(keys)}


def _restore_into(
    source: Source, archive: Archive, digest: str, ids: Collection[str] | None, into: Path
) -> int:
    """Make a new store of archived memories alone; it appears whole or not at all."""
    if beside := [name for name in map(f"{into}{{}}".format, SIDE_FILES) if lexists(name)]:
        raise ArchiveError(
            f"{', '.join(beside)} would be taken for a part of {into}; nothing was restored: move "
            "it away, or name another file"
        )
    with archive.one_moment():
        entry = archive.entry(digest)
        copies = _chosen(source, archive, entry, ids)
        with whole_file(into, limit=limit_like(archive.path), replace=False) as draft:
            count = source.make(draft, _Records(archive, entry, copies))
    _check_made(into, count)
    return count


def _check_made(into: Path, count: int) -> None:
    """Open a file that was made under its final name, and count what is in it."""

    def counted(uri: str) -> int:
        with closing(connect_reading(uri)) as connection:
            (found,) = connection.execute("SELECT count(*) FROM memory_items").fetchone()
        return int(found)

    found = read_store(into, counted)
    if found != count:
        raise ArchiveError(
            f"{into} was made of {count:,} memories and {found:,} are in it; the archive has them "
            "still: check the disk"
        )
