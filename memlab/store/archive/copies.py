"""Copies of what is in a store, each content once, so that somebody else's deletion is seen."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from memlab.store.archive import entries, formats
from memlab.store.archive.archive import Archive, archive_errors, check_fits
from memlab.store.archive.entries import Copy, Key
from memlab.store.archive.location import ArchiveLocation, is_begun
from memlab.store.archive.opening import read_archive
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
    """A memory as it is; the digest is that of what differs once somebody has written it."""

    memory_id: str
    key: Key
    record: bytes
    digest: bytes
    is_empty: bool
    is_unlisted: bool = False
    """Whether no index names it: a copy from when one did keeps its lines."""


class KeptCopy(NamedTuple):
    """A copy, its record unread; `missed_at` is None where the store was so the last time."""

    memory_id: str
    digest: bytes
    is_empty: bool
    seen_at: datetime
    missed_at: datetime | None


class Counts(NamedTuple):
    """How many memories a store has, how many were new or changed, and how many had gone."""

    memories: int
    copied: int
    gone: int


def digest_of(content: bytes) -> bytes:
    """Return the name of a content."""
    return blake2b(content, digest_size=16).digest()


def keeps_copies(location: ArchiveLocation) -> bool:
    """Whether there is an archive that has room for copies."""
    return is_begun(location) and read_archive(location, lambda each: each.has_table("copies"))


def last_copied(archive: Archive) -> datetime | None:
    """Return when the store was copied last; None where it never was."""
    found = archive.metadata(_LAST) if archive.has_table("copies") else None
    if found is not None:
        with archive.leaving_out("when it copied the store last"):
            return entries.moment_in(found, _LAST)
    return None


def copy_contents(archive: Archive, memories: Iterable[Content], at: datetime) -> Counts:
    """Copy what is new or changed of a store, in the caller's transaction."""
    run = archive.connection.execute
    moment = entries.moment_text(at)
    last = last_copied(archive)
    run(_THERE)
    run("DELETE FROM temp.there")
    copied = 0
    new = dict[bytes, str]()
    for memory in memories:
        name = memory.memory_id
        digest = memory.digest
        fingerprint = bytes.fromhex(fingerprint_of(memory.record))
        run("INSERT OR REPLACE INTO temp.there VALUES (?, ?)", (name, digest))
        known = run(
            "SELECT digest, fingerprint, missed_at FROM copies WHERE memory_id = ?", (name,)
        ).fetchall()
        if (digest, fingerprint, None) in known:
            continue
        if memory.is_unlisted and any(same == (digest, None) for same in _contents(known)):
            continue
        if not known and last:
            new[digest] = name
        copied += digest not in [other for other, *_ in known]
        check_fits(name, memory.record, "nothing was copied: shorten it")
        packed = _packed(archive.as_kept(memory.record))
        archive.format.insert_packed(
            (name, digest, memory.key, fingerprint, packed, memory.is_empty)
        )
    for name, digest in run(f"SELECT memory_id, digest FROM copies WHERE {_MISSED}").fetchall():
        old = name.decode()
        if digest in new and not run(_IS_THERE, (old,)).fetchone():
            run("UPDATE OR IGNORE copies SET memory_id = ? WHERE memory_id = ?", (new[digest], old))
            run("DELETE FROM copies WHERE memory_id = ?", (old,))
            copied -= 1
    seen = (moment if last is None else entries.moment_text(last), moment)
    gone = run(f"UPDATE copies SET seen_at = ?, missed_at = ? WHERE {_MISSED}", seen).rowcount
    run("INSERT OR REPLACE INTO about VALUES (?, ?)", (_LAST, moment))
    ((count,),) = run("SELECT count(*) FROM temp.there").fetchall()
    return Counts(count, copied, gone)


def _contents(known: Iterable[tuple[Any, ...]]) -> Iterator[tuple[bytes, str | None]]:
    """Yield the content of each copy of a memory, and when it was missed."""
    for digest, _, missed_at in known:
        yield digest, missed_at


def copies_in(archive: Archive) -> Iterator[KeptCopy]:
    """Yield the copies, of each memory the oldest first."""
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
            at = None if missed is None else entries.moment_in(missed, "missed_at")
            since = last if at is None else entries.moment_in(seen, "seen_at")
            yield KeptCopy(entries.text_in(name, "its id"), digest, bool(is_empty), since, at)


def copied_record(archive: Archive, copy: KeptCopy) -> tuple[Key, bytes] | None:
    """Return the key and the record of a copy; None where it cannot be read."""
    with archive_errors(archive.path):
        found = archive.format.packed_copies(copy.memory_id, copy.digest)
    for key, fingerprint, blob, dictionary in found:
        with archive.leaving_out(f"a copy of {copy.memory_id!r:.80}"):
            check_type(fingerprint, bytes, "a blob")
            place = entries.key_in(key)
            whole_copy = Copy(place, fingerprint.hex(), "", None)
            if dictionary not in formats.DICTIONARIES:
                raise ValueError(f"it was packed by dictionary {dictionary!r:.20}, which is newer")
            raw = bytearray(entries.unpacked(blob, formats.DICTIONARIES[dictionary]))
            record = entries.record_of(raw, whole_copy, archive.location.check_copy)
            if archive.location.id_of(record) != copy.memory_id:
                raise ValueError("it is one of another memory")
            return place, record
    return None


def count_copies(archive: Archive, names: Iterable[str], before: datetime) -> int:
    """Return how many copies there are of memories, and of others that were missed long ago."""
    found = set[tuple[Any, ...]]()
    if archive.has_table("copies"):
        for where, value in _going(names, before):
            found |= {*archive.rows(f"SELECT rowid FROM copies WHERE {where}", value)}
    return len(found)


def erase_copies(archive: Archive, names: Iterable[str], before: datetime) -> None:
    """Erase what :func:`count_copies` counts."""
    if archive.has_table("copies"):
        with archive.changing() as connection:
            for where, value in _going(names, before):
                connection.execute(f"DELETE FROM copies WHERE {where}", (value,))


def _going(names: Iterable[str], before: datetime) -> Iterator[tuple[str, str]]:
    """Yield in SQL which copies go, each with a value."""
    yield "missed_at < ?", entries.moment_text(before)
    for name in names:
        yield "memory_id = ?", name


def _packed(record: bytes) -> bytes:
    words = formats.DICTIONARIES[formats.DICTIONARY]
    return entries.packed(lambda: [record.decode()], words)
