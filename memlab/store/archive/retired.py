"""Memories that plans retired: when, and how often each returned because it was needed.

The archive has them in the table ``retired``, by key, with the id as a keyed hash. The store shows
which of them are retired now.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from memlab.store.archive.hashed_names import hashed, key_of, make_key
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import Key, key_in, moment_in, moment_text, text_in
from memlab.store.shapes import check_integer


class Retired(NamedTuple):
    """A memory that a plan retired.

    Attributes
    ----------
    name : str
        The keyed hash of its id.
    entry_number : int
        The number, in the archive, of the plan that retired it last.
    retired_at : datetime
        When it was retired last.
    returned_at : datetime or None
        When a plan returned it last. Two values have another meaning: the time `retired_at`, that
        no plan has returned it; None, that the plan which retired it was interrupted.
    times_needed : int
        How often it returned because it was needed.
    """

    name: str
    entry_number: int
    retired_at: datetime
    returned_at: datetime | None
    times_needed: int


class RetiredMemories(dict[Key, Retired]):
    """Every memory that a plan ever retired, by key, including those that returned."""

    hash_key: bytes = b""
    """The key of the hashes of ids."""

    def at(self, key: Key, memory_id: str | None) -> Retired | None:
        """Return the retirement of the memory with this key and id; None if there was none."""
        retired = self.get(key)
        if retired is None or memory_id is None:
            return None
        if hashed(memory_id, self.hash_key) != retired.name:
            return None
        return retired


def retired_in(archive: OpenArchive) -> RetiredMemories:
    """Load the memories that plans retired.

    The store determines which of them are retired now. If a memory is active there although no plan
    returned it, something else returned it at an unknown time; the time of retirement stands for
    that time.
    """
    memories = RetiredMemories()
    if not archive.has_table("retired"):
        return memories
    memories.hash_key = key_of(archive) or b""
    rows = archive.rows(
        "SELECT retired.rowid, key, name, apply AS entry_number, retired_at, returned_at, "
        "times_needed, digest IS NOT NULL AND finished_at IS NULL "
        "FROM retired LEFT JOIN applies USING (apply)"
    )
    for row in map(_StoredRetirement._make, rows):
        with archive.skipping_damaged(f"retired memory {row.rowid}"):
            memories[key_in(row.key)] = _retired_of(row)
    return memories


class _StoredRetirement(NamedTuple):
    """Stored values of a retired memory, which are not checked yet."""

    rowid: int
    key: Any
    name: Any
    entry_number: Any
    retired_at: Any
    returned_at: Any
    times_needed: Any
    is_interrupted: int
    """Whether the plan that retired the memory was interrupted."""


def _retired_of(stored: _StoredRetirement) -> Retired:
    """Return a retired memory from its stored values; raise ValueError if one of them is wrong."""
    retired_at = moment_in(stored.retired_at, "retired_at")
    returned_at = None if stored.is_interrupted else retired_at
    if stored.returned_at is not None:
        returned_at = moment_in(stored.returned_at, "returned_at")
    check_integer(stored.times_needed, 0, 2**31)
    check_integer(stored.entry_number, 1)
    return Retired(
        name=text_in(stored.name, "its name"),
        entry_number=stored.entry_number,
        retired_at=retired_at,
        returned_at=returned_at,
        times_needed=stored.times_needed,
    )


_INSERT_RETIRED: Final = (
    "INSERT INTO retired (key, name, apply, retired_at) SELECT ?, ?, apply, archived_at "
    "FROM applies WHERE digest = ? ON CONFLICT (key) DO UPDATE SET returned_at = NULL"
)
"""Inserts a memory that a plan retires. If the key has a row already, its other columns stay."""


def note_retired(
    archive: OpenArchive,
    digest: str,
    *,
    retired: Mapping[Key, str],
    returned: Mapping[Key, bool],
    at: datetime,
) -> None:
    """Record the memories that a plan is about to retire or return.

    Parameters
    ----------
    archive : OpenArchive
        The archive, open for writing.
    digest : str
        The digest of the plan.
    retired : mapping of key to str
        The ids of the memories to retire, by key.
    returned : mapping of key to bool
        For each memory that returns, whether it is needed.
    at : datetime
        The time of the return.
    """
    hash_key = make_key(archive)
    moment = moment_text(at)
    with archive.transaction() as connection:
        archive.format.make_table("retired")
        # The count of returns starts again if another memory has the key.
        connection.executemany(
            f"{_INSERT_RETIRED}, times_needed = times_needed * (name = excluded.name), "
            "name = excluded.name, apply = excluded.apply, retired_at = excluded.retired_at",
            ((key, hashed(name, hash_key), digest) for key, name in retired.items()),
        )
        connection.executemany(
            "UPDATE retired SET returned_at = ?, times_needed = times_needed + ? WHERE key = ?",
            ((moment, is_needed, key) for key, is_needed in returned.items()),
        )


def forget_retired(
    archive: OpenArchive, digest: str, active: Iterable[Key], retired: Mapping[Key, str]
) -> None:
    """Delete the records of memories that are active again, and add those retired again.

    Parameters
    ----------
    archive : OpenArchive
        The archive, open for writing.
    digest : str
        The digest of the plan.
    active : iterable of key
        Memories that the plan had retired and that are active again.
    retired : mapping of key to str
        The ids of memories that the plan had returned and that are retired again, by key.
    """
    hash_key = make_key(archive)
    with archive.transaction() as connection:
        archive.format.make_table("retired")
        connection.executemany("DELETE FROM retired WHERE key = ?", ((key,) for key in active))
        connection.executemany(
            _INSERT_RETIRED,
            ((key, hashed(name, hash_key), digest) for key, name in retired.items()),
        )
