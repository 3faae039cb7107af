"""Copies of the memories in a store, each content once, from which lost memories are recovered."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from memlab.store.archive import formats, packing, schema
from memlab.store.archive.archive import Archive
from memlab.store.archive.open_archive import OpenArchive, archive_errors, check_storable
from memlab.store.archive.schema import Copy, Key
from memlab.store.records import fingerprint_of
from memlab.store.shapes import check_integer, check_type

_LAST_COPIED_AT: Final = "copied_at"
"""Name of the time of the last copying in the table ``about``."""
_CREATE_PRESENT_TABLE: Final = (
    "CREATE TEMP TABLE IF NOT EXISTS present (memory_id TEXT PRIMARY KEY, digest BLOB)"
)
"""Creates a table of the memories that are in the store now."""
_SELECT_PRESENT: Final = "SELECT 1 FROM temp.present WHERE memory_id = ?"
_IS_NEWLY_MISSING: Final = (
    "missed_at IS NULL AND NOT EXISTS (SELECT 1 FROM temp.present WHERE present.memory_id = "
    "copies.memory_id AND present.digest = copies.digest)"
)
"""SQL condition of the copies whose content was in the store at the last copying and is not now."""


class Content(NamedTuple):
    """A memory of the store with its content.

    Attributes
    ----------
    memory_id : str
        Its id.
    key : key
        Its primary key in the source.
    record : bytes
        Its record.
    digest : bytes
        The :func:`digest_of` its content.
    is_empty : bool
        Whether it has no content.
    is_unlisted : bool
        Whether no index names it. An older copy with the same content, which has its former index
        lines, is then not replaced.
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
        The last copying at which the store had this content.
    missed_at : datetime or None
        The first copying at which the content was missing; None if it was present at the last one.
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
        The number of copies whose content was in the store at the last copying and is not now.
    """

    memories: int
    copied: int
    gone: int


def digest_of(content: bytes) -> bytes:
    """Return the BLAKE2b digest of a content, with 16 bytes."""
    return blake2b(content, digest_size=16).digest()


def keeps_copies(archive: Archive) -> bool:
    """Return whether an archive exists and has the table of copies."""
    return archive.exists and archive.read(lambda opened: opened.has_table("copies"))


def last_copied(archive: OpenArchive) -> datetime | None:
    """Return the time of the last copying; None if the store was never copied."""
    if not archive.has_table("copies"):
        return None
    stored = archive.metadata(_LAST_COPIED_AT)
    if stored is not None:
        with archive.skipping_damaged("when it copied the store last"):
            return schema.moment_in(stored, _LAST_COPIED_AT)
    return None


def copy_contents(archive: OpenArchive, memories: Iterable[Content], at: datetime) -> Counts:
    """Copy the new and changed memories of a store, in the transaction of the caller.

    Parameters
    ----------
    archive : OpenArchive
        The archive, open for writing.
    memories : iterable of Content
        All memories of the store.
    at : datetime
        The time of the copying.
    """
    execute = archive.connection.execute
    now = schema.moment_text(at)
    last_copied_at = last_copied(archive)
    execute(_CREATE_PRESENT_TABLE)
    execute("DELETE FROM temp.present")
    copied = 0
    new_ids = dict[bytes, str]()
    for memory in memories:
        memory_id = memory.memory_id
        execute("INSERT OR REPLACE INTO temp.present VALUES (?, ?)", (memory_id, memory.digest))
        older_copies = _copies_of(archive, memory_id)
        if _is_up_to_date(memory, older_copies):
            continue
        if not older_copies and last_copied_at is not None:
            new_ids[memory.digest] = memory_id
        if memory.digest not in [copy.digest for copy in older_copies]:
            copied += 1
        _insert_copy(archive, memory)
    # A renamed memory was counted as copied above, but its content had been copied before.
    copied -= _rename_moved(archive, new_ids)
    seen_at = now
    if last_copied_at is not None:
        seen_at = schema.moment_text(last_copied_at)
    missing = execute(
        f"UPDATE copies SET seen_at = ?, missed_at = ? WHERE {_IS_NEWLY_MISSING}", (seen_at, now)
    ).rowcount
    execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (_LAST_COPIED_AT, now))
    ((count,),) = execute("SELECT count(*) FROM temp.present").fetchall()
    return Counts(memories=count, copied=copied, gone=missing)


class _OlderCopy(NamedTuple):
    """The columns of a copy by which :func:`copy_contents` decides whether it is up to date."""

    digest: bytes
    fingerprint: bytes
    missed_at: Any


def _copies_of(archive: OpenArchive, memory_id: str) -> list[_OlderCopy]:
    """Return the copies of a memory."""
    rows = archive.connection.execute(
        "SELECT digest, fingerprint, missed_at FROM copies WHERE memory_id = ?", (memory_id,)
    )
    return [_OlderCopy(*row) for row in rows.fetchall()]


def _is_up_to_date(memory: Content, older_copies: Iterable[_OlderCopy]) -> bool:
    """Return whether one of the copies of a memory is up to date.

    If no index names the memory, only its content is compared, and not its index lines.
    """
    fingerprint = bytes.fromhex(fingerprint_of(memory.record))
    for copy in older_copies:
        if copy.digest != memory.digest or copy.missed_at is not None:
            continue
        if memory.is_unlisted or copy.fingerprint == fingerprint:
            return True
    return False


def _insert_copy(archive: OpenArchive, memory: Content) -> None:
    """Insert a packed copy of a memory."""
    check_storable(memory.memory_id, memory.record, "nothing was copied: shorten it")
    fingerprint = bytes.fromhex(fingerprint_of(memory.record))
    packed = _packed(archive.storable_record(memory.record))
    copy = formats.NewPackedCopy(
        memory_id=memory.memory_id,
        digest=memory.digest,
        key=memory.key,
        fingerprint=fingerprint,
        packed=packed,
        is_empty=memory.is_empty,
    )
    archive.format.insert_packed(copy)


def _rename_moved(archive: OpenArchive, new_ids: Mapping[bytes, str]) -> int:
    """Give copies the new id of their memory if it changed; return the number of changed ids.

    The id of a memory changed if its content is under a new id, and its old id is no longer in the
    store.

    Parameters
    ----------
    archive : OpenArchive
        The archive, in the transaction of the caller.
    new_ids : mapping of bytes to str
        The ids of new memories, by the digest of their content.
    """
    execute = archive.connection.execute
    moved = 0
    newly_missing = execute(f"SELECT memory_id, digest FROM copies WHERE {_IS_NEWLY_MISSING}")
    for name, digest in newly_missing.fetchall():
        old_id = name.decode()
        is_old_id_present = execute(_SELECT_PRESENT, (old_id,)).fetchone() is not None
        if digest in new_ids and not is_old_id_present:
            execute(
                "UPDATE OR IGNORE copies SET memory_id = ? WHERE memory_id = ?",
                (new_ids[digest], old_id),
            )
            execute("DELETE FROM copies WHERE memory_id = ?", (old_id,))
            moved += 1
    return moved


def copies_in(archive: OpenArchive) -> Iterator[KeptCopy]:
    """Yield the copies, oldest first for each memory."""
    last = last_copied(archive)
    if last is None:
        return
    for name, digest, is_empty, seen_text, missed_text in archive.rows(
        "SELECT memory_id, digest, is_empty, seen_at, missed_at FROM copies "
        "ORDER BY memory_id, missed_at IS NULL, missed_at"
    ):
        with archive.skipping_damaged(f"a copy of {bytes(name).decode(errors='replace')!r:.80}"):
            check_type(digest, bytes, "a blob")
            check_integer(is_empty, 0, 1)
            missed_at = None
            seen_at = last
            if missed_text is not None:
                missed_at = schema.moment_in(missed_text, "missed_at")
                seen_at = schema.moment_in(seen_text, "seen_at")
            yield KeptCopy(
                memory_id=schema.text_in(name, "its id"),
                digest=digest,
                is_empty=bool(is_empty),
                seen_at=seen_at,
                missed_at=missed_at,
            )


def copied_record(archive: OpenArchive, copy: KeptCopy) -> tuple[Key, bytes] | None:
    """Return the key and the record of a copy; None if it cannot be read."""
    with archive_errors(archive.path):
        packed_copies = archive.format.packed_copies(copy.memory_id, copy.digest)
    for packed_copy in packed_copies:
        with archive.skipping_damaged(f"a copy of {copy.memory_id!r:.80}"):
            key = schema.key_in(packed_copy.key)
            record = _checked_record(archive, packed_copy)
            if archive.location.id_of(record) != copy.memory_id:
                raise ValueError("it is a copy of another memory")
            return key, record
    return None


def _checked_record(archive: OpenArchive, packed_copy: formats.PackedCopy) -> bytes:
    """Return the record of a packed copy; raise ValueError if it is damaged."""
    check_type(packed_copy.fingerprint, bytes, "a blob")
    if packed_copy.dictionary not in formats.DICTIONARIES:
        raise ValueError(
            f"it was packed by dictionary {packed_copy.dictionary!r:.20}, which is newer"
        )
    dictionary = formats.DICTIONARIES[packed_copy.dictionary]
    record = packing.unpacked(packed_copy.packed, dictionary)
    copy = Copy(
        key=schema.key_in(packed_copy.key),
        fingerprint=packed_copy.fingerprint.hex(),
        reason="",
        restored_at=None,
    )
    return schema.record_of(record, copy, archive.location.check_copy)


def count_copies(archive: OpenArchive, names: Iterable[str], before: datetime) -> int:
    """Return the number of copies to erase.

    These are all copies of some memories, and every copy whose content was missed before a time.

    Parameters
    ----------
    archive : OpenArchive
        The archive.
    names : iterable of str
        The ids of the memories.
    before : datetime
        The time. It is compared with :attr:`KeptCopy.missed_at`.
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
    """Yield the SQL conditions of the copies to erase, each with its parameter."""
    yield "missed_at < ?", schema.moment_text(before)
    for name in names:
        yield "memory_id = ?", name


def _packed(record: bytes) -> bytes:
    """Compress a record with the current dictionary."""
    dictionary = formats.DICTIONARIES[formats.DICTIONARY]
    return packing.packed(lambda: [record.decode()], dictionary)
