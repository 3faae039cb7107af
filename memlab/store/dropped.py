"""What an archive keeps of memories whose words were erased from it: facts, so that they count on.

A later reference to such a memory is still one, and the past of a store still has it in its place.
Names (ids, task references) are kept as keyed hashes: whoever has a name can tell that it was
there, nobody can read a name out of the archive. The key lies in the archive. Standard library
only.
"""

import hashlib
import secrets
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from memlab.store.archive import Archive
from memlab.store.archive_entries import Entry
from memlab.store.archive_place import archive_errors
from memlab.store.database import transaction

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS dropped (
    apply INTEGER NOT NULL, digest TEXT NOT NULL, deleted_at TEXT NOT NULL,
    dropped_at TEXT NOT NULL, facts TEXT NOT NULL
)"""
_KEY: Final = "facts_key"


class Dropped(NamedTuple):
    """A deletion whose words were erased from the archive.

    Attributes
    ----------
    apply : int
        Its number among all deletions of the archive.
    digest : str
        By which it was named.
    memories : int
        Of how many the facts are kept.
    deleted_at, dropped_at : datetime
        When they were deleted from the store, and erased from the archive.
    """

    apply: int
    digest: str
    memories: int
    deleted_at: datetime
    dropped_at: datetime


def dropped_in(archive: Archive) -> list[Dropped]:
    """Return every deletion of which facts alone are kept, oldest first."""
    if not _has_facts(archive.connection):
        return []
    with archive_errors(archive.path):
        found = archive.connection.execute(
            "SELECT apply, digest, count(*), deleted_at, max(dropped_at) FROM dropped "
            "GROUP BY apply ORDER BY apply"
        ).fetchall()
    return [
        Dropped(number, digest, count, _moment(deleted), _moment(at))
        for number, digest, count, deleted, at in found
    ]


def facts_in(archive: Archive, dropped: Dropped) -> list[str]:
    """Return the facts of a deletion, one JSON object a memory."""
    with archive_errors(archive.path):
        found = archive.connection.execute(
            "SELECT facts FROM dropped WHERE apply = ? ORDER BY rowid", (dropped.apply,)
        )
        return [facts for (facts,) in found]


def key_of(archive: Archive) -> bytes | None:
    """Return the key that an archive's names are hashed with; None where nothing was dropped."""
    with archive_errors(archive.path):
        found = archive.connection.execute(
            "SELECT value FROM about WHERE name = ?", (_KEY,)
        ).fetchone()
    return bytes.fromhex(found[0]) if found else None


def make_key(archive: Archive) -> bytes:
    """Return that key, made now where there is none."""
    with archive_errors(archive.path), transaction(archive.connection):
        archive.connection.execute(
            "INSERT OR IGNORE INTO about VALUES (?, ?)", (_KEY, secrets.token_hex(32))
        )
    return key_of(archive) or b""


def hashed(name: str, key: bytes) -> str:
    """Return what is kept of a name.

    Examples
    --------
    >>> hashed("issue:#9", b"one key") == hashed("issue:#9", b"another")
    False
    """
    return hashlib.blake2b(name.encode(errors="surrogatepass"), key=key, digest_size=16).hexdigest()


def drop(archive: Archive, entry: Entry, facts: Iterable[str], *, at: datetime) -> None:
    """Erase an entry's copies and its plan, and keep these facts instead; all of it or nothing."""
    deleted_at = (entry.finished_at or entry.archived_at).astimezone(UTC).isoformat()
    with archive_errors(archive.path), transaction(archive.connection):
        archive.connection.execute(_CREATE)
        archive.connection.executemany(
            "INSERT INTO dropped VALUES (?, ?, ?, ?, ?)",
            (
                (entry.apply, entry.digest, deleted_at, at.astimezone(UTC).isoformat(), each)
                for each in facts
            ),
        )
        staying = archive.witnesses()  # without those that are erased
        archive.erase(entry.digest)
        archive.note_witnesses(staying)


def drop_facts(archive: Archive, dropped: Iterable[Dropped]) -> None:
    """Erase the facts of deletions too: nothing tells any more that they were there."""
    with archive_errors(archive.path), transaction(archive.connection):
        archive.connection.executemany(
            "DELETE FROM dropped WHERE apply = ?", ((each.apply,) for each in dropped)
        )


def _has_facts(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'dropped'").fetchone()
    return found is not None


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
