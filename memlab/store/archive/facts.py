"""What an archive knows of memories without their words, names as keyed hashes.

Of those that it dropped, facts that count on; of those that plans retired, when and how often they
came back: which are retired, the store says.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from memlab import columns as c
from memlab.clock import moment_of
from memlab.errors import ArchiveError
from memlab.items import MemoryKind
from memlab.store.archive import entries
from memlab.store.archive.archive import Archive
from memlab.store.archive.entries import Dropped, Entry, Key, moment_text, text_in
from memlab.store.shapes import boolean, fields, integer, list_of, optional, shown, text

_KEY: Final = "facts_key"
_KEY_BYTES: Final = 32

_HASHED: Final = re.compile("[0-9a-f]{32}")
_MOST: Final = 2**45
"""Characters or tokens: all memories of a store together must be a number of 64 bits."""


def facts_in(archive: Archive, dropped: Dropped) -> list[dict[str, Any]]:
    """Return the facts of a deletion, those of each memory."""
    facts = []
    find = "SELECT rowid, facts FROM dropped WHERE apply = ? ORDER BY rowid"
    for rowid, written in archive.rows(find, dropped.apply):
        with archive.leaving_out(f"facts {rowid} of plan {dropped.digest[:12]}"):
            facts.append(_read(written))
    return facts


def key_of(archive: Archive) -> bytes | None:
    """Return the key of an archive's names: None where nothing was dropped, empty if unreadable."""
    written = archive.metadata(_KEY)
    if written is None:
        return None
    with archive.leaving_out("the key of the names of what was dropped"):
        key = bytes.fromhex(text_in(written, _KEY))
        if len(key) != _KEY_BYTES:
            raise ValueError(f"it has {len(key)} bytes")
        return key
    return b""


def make_key(archive: Archive) -> bytes:
    """Return that key, made now where there is none."""
    with archive.changing() as connection:
        connection.execute(
            "INSERT OR IGNORE INTO about VALUES (?, ?)", (_KEY, secrets.token_hex(_KEY_BYTES))
        )
    key = key_of(archive)
    if not key:
        raise ArchiveError(f"{archive.told()}; nothing was dropped: restore a backup of it")
    return key


def hashed(name: str, key: bytes) -> str:
    """Return what is kept of a name.

    >>> hashed("issue:#9", b"one key") == hashed("issue:#9", b"another")
    False
    """
    return hashlib.blake2b(name.encode(errors="surrogatepass"), key=key, digest_size=16).hexdigest()


def drop(archive: Archive, entry: Entry, facts: Iterable[str], *, at: datetime) -> None:
    """Erase an entry's copies and its plan, and keep these facts instead; all of it or nothing."""
    moments = moment_text(entry.finished_at or entry.archived_at), moment_text(at)
    with archive.changing() as connection:
        archive.format.make_table("dropped")
        connection.executemany(
            "INSERT INTO dropped VALUES (?, ?, ?, ?, ?)",
            ((entry.apply, entry.digest, *moments, each) for each in facts),
        )
        staying = archive.identity_sample()  # without those that are erased
        archive.erase(entry.digest)
        archive.note_identity_sample(staying)


def drop_facts(archive: Archive, dropped: Iterable[Dropped]) -> None:
    """Erase the facts of deletions too: nothing tells any more that they were there."""
    with archive.changing() as connection:
        connection.executemany(
            "DELETE FROM dropped WHERE apply = ?", ((each.apply,) for each in dropped)
        )


def _read(written: object) -> dict[str, Any]:
    try:
        found = json.loads(text_in(written, "it", most=2**24))
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    _FACTS(found)
    created = found[c.CREATED_AT]
    return {**found, c.CREATED_AT: created and moment_of(created).isoformat()}


def _hash(value: Any) -> None:
    text(value)
    if not _HASHED.fullmatch(value):
        raise ValueError(f"{shown(value)} is no name's hash")


def _kind(value: Any) -> None:
    text(value)
    MemoryKind(value)


def _moment(value: Any) -> None:
    text(value)
    moment_of(value)


_FACTS: Final = fields(
    {
        c.POSITION: integer(),
        c.KIND: _kind,
        c.CHARS: integer(0, _MOST),
        c.TOKENS: integer(0, _MOST),
        c.LOAD_BEARING: boolean,
        c.KEY: _hash,
        c.CREATED_AT: optional(_moment),
        **dict.fromkeys((c.MEMORY_ID, c.SOURCE_TASK_REF, c.SUPERSEDED_BY), optional(_hash)),
        **dict.fromkeys((c.SUPERSEDES, c.EVIDENCE_REFS), list_of(_hash)),
    },
    absent={c.KEY},
)
"""What :func:`memlab.evidence.past.facts_of` keeps of a memory."""


class Retired(NamedTuple):
    """A memory that a plan retired, and how often it came back because it was needed."""

    name: str
    retired_at: datetime
    returned_at: datetime | None
    times_needed: int


class RetiredMemories(dict[Key, Retired]):
    """Every memory that plans retired, by key, whether it is retired still or not."""

    hash_key: bytes = b""

    def at(self, key: Key, memory_id: str | None) -> Retired | None:
        """Return what is known of a memory by key and id; None where it was never retired."""
        found = self.get(key)
        if found is None or memory_id is None or hashed(memory_id, self.hash_key) != found.name:
            return None
        return found


def retired_in(archive: Archive) -> RetiredMemories:
    """Return what plans retired; one that others brought back returned when it was retired."""
    found = RetiredMemories()
    if not archive.has_table("retired"):
        return found
    found.hash_key = key_of(archive) or b""
    for rowid, key, name, retired_at, returned_at, times, is_cut_short in archive.rows(
        "SELECT retired.rowid, key, name, retired_at, returned_at, times_needed, "
        "digest IS NOT NULL AND finished_at IS NULL FROM retired LEFT JOIN applies USING (apply)"
    ):
        with archive.leaving_out(f"retired memory {rowid}"):
            at = entries.moment_in(retired_at, "retired_at")
            since = None if is_cut_short else at
            if returned_at is not None:
                since = entries.moment_in(returned_at, "returned_at")
            integer(0, 2**31)(times)
            found[entries.key_in(key)] = Retired(text_in(name, "its name"), at, since, times)
    return found


_RETIRE: Final = (
    "INSERT INTO retired (key, name, apply, retired_at) SELECT ?, ?, apply, archived_at "
    "FROM applies WHERE digest = ? ON CONFLICT (key) DO UPDATE SET returned_at = NULL"
)


def note_retired(
    archive: Archive,
    digest: str,
    *,
    retired: Mapping[Key, str],
    returned: Mapping[Key, bool],
    at: datetime,
) -> None:
    """Note the ids of memories that a plan is about to retire, and which return, by key."""
    hash_key = make_key(archive)
    moment = moment_text(at)
    with archive.changing() as connection:
        archive.format.make_table("retired")
        connection.executemany(
            f"{_RETIRE}, times_needed = times_needed * (name = excluded.name), "
            "name = excluded.name, apply = excluded.apply, retired_at = excluded.retired_at",
            ((key, hashed(name, hash_key), digest) for key, name in retired.items()),
        )
        connection.executemany(
            "UPDATE retired SET returned_at = ?, times_needed = times_needed + ? WHERE key = ?",
            ((moment, needed, key) for key, needed in returned.items()),
        )


def forget_retired(
    archive: Archive, digest: str, active: Iterable[Key], retired: Mapping[Key, str]
) -> None:
    """Note that a plan was taken back: what it retired is active, what returned is retired."""
    hash_key = make_key(archive)
    with archive.changing() as connection:
        archive.format.make_table("retired")
        connection.executemany("DELETE FROM retired WHERE key = ?", ((key,) for key in active))
        connection.executemany(
            _RETIRE, ((key, hashed(name, hash_key), digest) for key, name in retired.items())
        )
