"""Copies of the memories in a store, each content once, from which lost memories are recovered."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from memlab.store.archive import formats, packing, schema
from memlab.store.archive.archive import Archive
from memlab.store.archive.open_archive import OpenArchive, archive_errors, check_fits
from memlab.store.archive.schema import Copy, Key
from memlab.store.records import fingerprint_of
from memlab.store.shapes import check_type, integer

_LAST: Final = "copied_at"
_THERE: Final = "CREATE TEMP TABLE IF NOT EXISTS there (memory_id TEXT PRIMARY KEY, digest BLOB)"
_IS_THERE: Final = "SELECT 1 FROM temp.there WHERE memory_id = ?"
_MISSED: Final = (
    "missed_at IS NULL AND NOT EXISTS (SELECT 1 FROM temp.there WHERE there.memory_id = "
    "copies.memory_id AND there.digest = copies.digest)"
)


class Content(NamedTuple):
    """A memory as it is in the store.

    Attributes
    ----------
    memory_id : str
        Its id.
    key : key
        Its primary key in the source.
    record : bytes
        Its record.
    digest : bytes
        The digest of its content, which changes when somebody edits the memory.
    is_empty : bool
        Whether it has no content.
    is_unlisted : bool
        Whether no index names it. An older copy then keeps the index lines.
    """

    memory_id: str
    key: Key
    record: bytes
    digest: bytes
    is_empty: bool
    is_unlisted: bool = False


class KeptCopy(NamedTuple):
    """A copy without its record.

    Attributes
    ----------
    memory_id : str
        The id of the memory.
    digest : bytes
        The digest of its content.
    is_empty : bool
        Whether it has no content.
    seen_at : datetime
        When the store had this content last.
    missed_at : datetime or None
        When the store was first seen without it; None if it had it at the last copying.
    """

    memory_id: str
    digest: bytes
    is_empty: bool
    seen_at: datetime
    missed_at: datetime | None


class Counts(NamedTuple):
    """Numbers of memories in the store, of new or changed ones, and of copies that went missing."""

    memories: int
    copied: int
    gone: int


def digest_of(content: bytes) -> bytes:
    """Return the digest of a content."""
    return blake2b(content, digest_size=16).digest()


def keeps_copies(archive: Archive) -> bool:
    """Return whether an archive exists and has the table of copies."""
    return archive.exists and archive.read(lambda opened: opened.has_table("copies"))


def last_copied(archive: OpenArchive) -> datetime | None:
    """Return when the store was copied last; None if it never was."""
    if not archive.has_table("copies"):
        return None
    stored = archive.metadata(_LAST)
    if stored is not None:
        with archive.leaving_out("when it copied the store last"):
            return schema.moment_in(stored, _LAST)
    return None


def copy_contents(archive: OpenArchive, memories: Iterable[Content], at: datetime) -> Counts:
    """Copy the new and changed memories of a store, in the transaction of the caller."""
    run = archive.connection.execute
    moment = schema.moment_text(at)
    last = last_copied(archive)
    run(_THERE)
    run("DELETE FROM temp.there")
    copied = 0
    new_names = dict[bytes, str]()
    for memory in memories:
        name = memory.memory_id
        run("INSERT OR REPLACE INTO temp.there VALUES (?, ?)", (name, memory.digest))
        known = run(
            "SELECT digest, fingerprint, missed_at FROM copies WHERE memory_id = ?", (name,)
        ).fetchall()
        if _is_copied(memory, known):
            continue
        if not known and last:
            new_names[memory.digest] = name
        if memory.digest not in [digest for digest, _, _ in known]:
            copied += 1
        _insert_copy(archive, memory)
    copied -= _rename_moved(archive, new_names)
    seen_at = moment if last is None else schema.moment_text(last)
    missing = run(
        f"UPDATE copies SET seen_at = ?, missed_at = ? WHERE {_MISSED}", (seen_at, moment)
    ).rowcount
    run("INSERT OR REPLACE INTO about VALUES (?, ?)", (_LAST, moment))
    ((count,),) = run("SELECT count(*) FROM temp.there").fetchall()
    return Counts(memories=count, copied=copied, gone=missing)


def _is_copied(memory: Content, known: Iterable[tuple[Any, ...]]) -> bool:
    """Return whether one of the known copies of a memory is up to date.

    For a memory that no index names, its content alone decides.
    """
    fingerprint = bytes.fromhex(fingerprint_of(memory.record))
    for digest, copied_fingerprint, missed_at in known:
        if digest != memory.digest or missed_at is not None:
            continue
        if memory.is_unlisted or copied_fingerprint == fingerprint:
            return True
    return False


def _insert_copy(archive: OpenArchive, memory: Content) -> None:
    """Insert a packed copy of a memory."""
    check_fits(memory.memory_id, memory.record, "nothing was copied: shorten it")
    fingerprint = bytes.fromhex(fingerprint_of(memory.record))
    packed = _packed(archive.as_kept(memory.record))
    archive.format.insert_packed(
        (memory.memory_id, memory.digest, memory.key, fingerprint, packed, memory.is_empty)
    )


def _rename_moved(archive: OpenArchive, new_names: Mapping[bytes, str]) -> int:
    """Move the copies of memories that have another id now; return the number of such memories.

    A memory was moved if its content is under a new id and its old id is no longer in the store.

    Parameters
    ----------
    archive : OpenArchive
        The archive, in the transaction of the caller.
    new_names : mapping of bytes to str
        The ids of new memories, by the digest of their content.
    """
    run = archive.connection.execute
    moved = 0
    for name, digest in run(f"SELECT memory_id, digest FROM copies WHERE {_MISSED}").fetchall():
        old_name = name.decode()
        if digest in new_names and not run(_IS_THERE, (old_name,)).fetchone():
            run(
                "UPDATE OR IGNORE copies SET memory_id = ? WHERE memory_id = ?",
                (new_names[digest], old_name),
            )
            run("DELETE FROM copies WHERE memory_id = ?", (old_name,))
            moved += 1
    return moved


def copies_in(archive: OpenArchive) -> Iterator[KeptCopy]:
    """Yield the copies, oldest first for each memory."""
    last = last_copied(archive)
    if last is None:
        return
    for name, digest, is_empty, seen, missed in archive.rows(
        "SELECT memory_id, digest, is_empty, seen_at, missed_at FROM copies "
        "ORDER BY memory_id, missed_at IS NULL, missed_at"
    ):
        with archive.leaving_out(f"a copy of {bytes(name).decode(errors='replace')!r:.80}"):
            check_type(digest, bytes, "a blob")
            integer(0, 1)(is_empty)
            at = None if missed is None else schema.moment_in(missed, "missed_at")
            seen_at = last if at is None else schema.moment_in(seen, "seen_at")
            yield KeptCopy(
                memory_id=schema.text_in(name, "its id"),
                digest=digest,
                is_empty=bool(is_empty),
                seen_at=seen_at,
                missed_at=at,
            )


def copied_record(archive: OpenArchive, copy: KeptCopy) -> tuple[Key, bytes] | None:
    """Return the key and the record of a copy; None if it cannot be read."""
    with archive_errors(archive.path):
        packed_copies = archive.format.packed_copies(copy.memory_id, copy.digest)
    for key, fingerprint, blob, dictionary in packed_copies:
        with archive.leaving_out(f"a copy of {copy.memory_id!r:.80}"):
            check_type(fingerprint, bytes, "a blob")
            place = schema.key_in(key)
            whole_copy = Copy(place, fingerprint.hex(), "", None)
            if dictionary not in formats.DICTIONARIES:
                raise ValueError(f"it was packed by dictionary {dictionary!r:.20}, which is newer")
            raw = bytearray(packing.unpacked(blob, formats.DICTIONARIES[dictionary]))
            record = schema.record_of(raw, whole_copy, archive.location.check_copy)
            if archive.location.id_of(record) != copy.memory_id:
                raise ValueError("it is one of another memory")
            return place, record
    return None


def count_copies(archive: OpenArchive, names: Iterable[str], before: datetime) -> int:
    """Return the number of copies of some memories and of those that went missing before a time."""
    rowids = set[tuple[Any, ...]]()
    if archive.has_table("copies"):
        for where, value in _going(names, before):
            rowids.update(archive.rows(f"SELECT rowid FROM copies WHERE {where}", value))
    return len(rowids)


def erase_copies(archive: OpenArchive, names: Iterable[str], before: datetime) -> None:
    """Erase the copies that :func:`count_copies` counts."""
    if archive.has_table("copies"):
        with archive.changing() as connection:
            for where, value in _going(names, before):
                connection.execute(f"DELETE FROM copies WHERE {where}", (value,))


def _going(names: Iterable[str], before: datetime) -> Iterator[tuple[str, str]]:
    """Yield SQL conditions for the copies to erase, each with its value."""
    yield "missed_at < ?", schema.moment_text(before)
    for name in names:
        yield "memory_id = ?", name


def _packed(record: bytes) -> bytes:
    """Compress a record with the current dictionary."""
    words = formats.DICTIONARIES[formats.DICTIONARY]
    return packing.packed(lambda: [record.decode()], words)
