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
from memlab.store.shapes import check_integer, check_type

_LAST_COPIED_AT: Final = "copied_at"
_CREATE_SEEN_TABLE: Final = (
    "CREATE TEMP TABLE IF NOT EXISTS there (memory_id TEXT PRIMARY KEY, digest BLOB)"
)
_IS_SEEN: Final = "SELECT 1 FROM temp.there WHERE memory_id = ?"
_IS_MISSING: Final = (
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
    """The result of copying the contents of a store.

    Attributes
    ----------
    memories : int
        The number of memories in the store.
    copied : int
        The number of new or changed memories.
    gone : int
        The number of copies whose content is no longer in the store, and was at the last copying.
    """

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
    stored = archive.metadata(_LAST_COPIED_AT)
    if stored is not None:
        with archive.leaving_out("when it copied the store last"):
            return schema.moment_in(stored, _LAST_COPIED_AT)
    return None


def copy_contents(archive: OpenArchive, memories: Iterable[Content], at: datetime) -> Counts:
    """Copy the new and changed memories of a store, in the transaction of the caller."""
    run = archive.connection.execute
    moment = schema.moment_text(at)
    last = last_copied(archive)
    run(_CREATE_SEEN_TABLE)
    run("DELETE FROM temp.there")
    copied = 0
    new_ids = dict[bytes, str]()
    for memory in memories:
        memory_id = memory.memory_id
        run("INSERT OR REPLACE INTO temp.there VALUES (?, ?)", (memory_id, memory.digest))
        older_copies = run(
            "SELECT digest, fingerprint, missed_at FROM copies WHERE memory_id = ?", (memory_id,)
        ).fetchall()
        if _is_copied(memory, older_copies):
            continue
        if not older_copies and last:
            new_ids[memory.digest] = memory_id
        if memory.digest not in [digest for digest, _, _ in older_copies]:
            copied += 1
        _insert_copy(archive, memory)
    copied -= _rename_moved(archive, new_ids)
    # A content that is missing now was in the store at the last copying.
    seen_at = moment if last is None else schema.moment_text(last)
    missing = run(
        f"UPDATE copies SET seen_at = ?, missed_at = ? WHERE {_IS_MISSING}", (seen_at, moment)
    ).rowcount
    run("INSERT OR REPLACE INTO about VALUES (?, ?)", (_LAST_COPIED_AT, moment))
    ((count,),) = run("SELECT count(*) FROM temp.there").fetchall()
    return Counts(memories=count, copied=copied, gone=missing)


def _is_copied(memory: Content, older_copies: Iterable[tuple[Any, ...]]) -> bool:
    """Return whether one of the known copies of a memory is up to date.

    For a memory that no index names, its content alone decides.
    """
    fingerprint = bytes.fromhex(fingerprint_of(memory.record))
    for digest, copied_fingerprint, missed_at in older_copies:
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


def _rename_moved(archive: OpenArchive, new_ids: Mapping[bytes, str]) -> int:
    """Move the copies of memories that have another id now; return the number of such memories.

    A memory was moved if its content is under a new id and its old id is no longer in the store.

    Parameters
    ----------
    archive : OpenArchive
        The archive, in the transaction of the caller.
    new_ids : mapping of bytes to str
        The ids of new memories, by the digest of their content.
    """
    run = archive.connection.execute
    moved = 0
    for name, digest in run(f"SELECT memory_id, digest FROM copies WHERE {_IS_MISSING}").fetchall():
        old_id = name.decode()
        if digest in new_ids and not run(_IS_SEEN, (old_id,)).fetchone():
            run(
                "UPDATE OR IGNORE copies SET memory_id = ? WHERE memory_id = ?",
                (new_ids[digest], old_id),
            )
            run("DELETE FROM copies WHERE memory_id = ?", (old_id,))
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
            check_integer(is_empty, 0, 1)
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
            memory_key = schema.key_in(key)
            copy_to_check = Copy(memory_key, fingerprint.hex(), "", None)
            if dictionary not in formats.DICTIONARIES:
                raise ValueError(f"it was packed by dictionary {dictionary!r:.20}, which is newer")
            raw = bytearray(packing.unpacked(blob, formats.DICTIONARIES[dictionary]))
            record = schema.record_of(raw, copy_to_check, archive.location.check_copy)
            if archive.location.id_of(record) != copy.memory_id:
                raise ValueError("it is one of another memory")
            return memory_key, record
    return None


def count_copies(archive: OpenArchive, names: Iterable[str], before: datetime) -> int:
    """Return the number of copies to erase.

    These are the copies of the memories `names`, and all copies whose content was first seen to be
    missing `before` a time.
    """
    rowids = set[tuple[Any, ...]]()
    if archive.has_table("copies"):
        for where, value in _conditions_to_erase(names, before):
            rowids.update(archive.rows(f"SELECT rowid FROM copies WHERE {where}", value))
    return len(rowids)


def erase_copies(archive: OpenArchive, names: Iterable[str], before: datetime) -> None:
    """Erase the copies that :func:`count_copies` counts."""
    if archive.has_table("copies"):
        with archive.transaction() as connection:
            for where, value in _conditions_to_erase(names, before):
                connection.execute(f"DELETE FROM copies WHERE {where}", (value,))


def _conditions_to_erase(names: Iterable[str], before: datetime) -> Iterator[tuple[str, str]]:
    """Yield SQL conditions for the copies to erase, each with its value."""
    yield "missed_at < ?", schema.moment_text(before)
    for name in names:
        yield "memory_id = ?", name


def _packed(record: bytes) -> bytes:
    """Compress a record with the current dictionary."""
    dictionary = formats.DICTIONARIES[formats.DICTIONARY]
    return packing.packed(lambda: [record.decode()], dictionary)
