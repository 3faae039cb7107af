"""What an archive keeps of retired memories, ids as keyed hashes; the store says which are."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from memlab.store.archive.archive import Archive
from memlab.store.archive.dropped import hashed, key_of, make_key
from memlab.store.archive.entries import Key, key_in, make_table, moment_in, moment_text, text_in
from memlab.store.shapes import whole


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
            at = moment_in(retired_at, "retired_at")
            since = None if is_cut_short else at
            if returned_at is not None:
                since = moment_in(returned_at, "returned_at")
            whole(0, 2**31)(times)
            found[key_in(key)] = Retired(text_in(name, "its name"), at, since, times)
    return found


def note_retired(
    archive: Archive,
    digest: str,
    *,
    retired: Mapping[Key, str],
    returned: Mapping[Key, bool],
    at: datetime,
) -> None:
    """Note the ids of memories that a plan is about to retire, and which return, by key."""
    hash_key, moment = make_key(archive), moment_text(at)
    with archive.changing() as connection:
        make_table(connection, "retired")
        connection.executemany(
            "INSERT INTO retired (key, name, apply, retired_at) "
            "SELECT ?, ?, apply, ? FROM applies WHERE digest = ? "
            "ON CONFLICT (key) DO UPDATE SET times_needed = times_needed * (name = excluded.name), "
            "name = excluded.name, apply = excluded.apply, retired_at = excluded.retired_at, "
            "returned_at = NULL",
            ((key, hashed(name, hash_key), moment, digest) for key, name in retired.items()),
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
        make_table(connection, "retired")
        connection.executemany("DELETE FROM retired WHERE key = ?", ((key,) for key in active))
        connection.executemany(
            "INSERT INTO retired (key, name, apply, retired_at) "
            "SELECT ?, ?, apply, archived_at FROM applies WHERE digest = ? "
            "ON CONFLICT (key) DO UPDATE SET returned_at = NULL",
            ((key, hashed(name, hash_key), digest) for key, name in retired.items()),
        )
