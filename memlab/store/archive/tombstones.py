"""Tombstones: the facts that an archive keeps about memories whose content was erased.

They are stored as JSON in the column ``facts`` of the table ``dropped``, with one row for each
memory. A tombstone has no text of the memory. Names in it are keyed hashes, so that references to
the memory can still be counted.
"""

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from memlab import columns as c
from memlab.clock import moment_of
from memlab.items import MemoryKind
from memlab.store.archive.index_versions import forget_index_versions
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import Dropped, Entry, moment_text, text_in
from memlab.store.shapes import abbreviated, boolean, fields, integer, list_of, optional, text

_HASH: Final = re.compile("[0-9a-f]{32}")
_MAX_SIZE: Final = 2**45
"""Maximum number of characters or tokens of a memory, so that a sum over a store fits 64 bits."""


def tombstones_in(archive: OpenArchive, dropped: Dropped) -> list[dict[str, Any]]:
    """Load the tombstones of a deletion whose content was erased, one for each memory."""
    tombstones = []
    query = "SELECT rowid, facts FROM dropped WHERE apply = ? ORDER BY rowid"
    for rowid, stored in archive.rows(query, dropped.number):
        with archive.skipping_damaged(f"facts {rowid} of plan {dropped.digest[:12]}"):
            tombstones.append(_checked_tombstone(stored))
    return tombstones


def drop(archive: OpenArchive, entry: Entry, facts: Iterable[str], *, at: datetime) -> None:
    """Erase the copies and the plan of a deletion, and keep tombstones, in one transaction.

    Parameters
    ----------
    archive : OpenArchive
        The archive, open for writing.
    entry : Entry
        The deletion.
    facts : iterable of str
        The tombstones as JSON, one for each memory.
    at : datetime
        The time of the erasure.
    """
    deleted_at = moment_text(entry.finished_at or entry.archived_at)
    dropped_at = moment_text(at)
    with archive.transaction() as connection:
        archive.format.make_table("dropped")
        connection.executemany(
            "INSERT INTO dropped VALUES (?, ?, ?, ?, ?)",
            ((entry.number, entry.digest, deleted_at, dropped_at, fact) for fact in facts),
        )
        # The sample is read before the copies are erased, because it leaves out their memories.
        sample = archive.identity_sample()
        archive.erase(entry.digest)
        forget_index_versions(archive)
        archive.note_identity_sample(sample)


def erase_tombstones(archive: OpenArchive, dropped: Iterable[Dropped]) -> None:
    """Erase the tombstones of deletions, after which nothing about their memories is left."""
    with archive.transaction() as connection:
        connection.executemany(
            "DELETE FROM dropped WHERE apply = ?", ((deletion.number,) for deletion in dropped)
        )


def _checked_tombstone(stored: object) -> dict[str, Any]:
    """Return a tombstone from its stored value; raise ValueError if the value is not one."""
    try:
        facts = json.loads(text_in(stored, "it", max_bytes=2**24))
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    _check_facts(facts)
    created_at = facts[c.CREATED_AT]
    if created_at:
        created_at = moment_of(created_at).isoformat()
    return {**facts, c.CREATED_AT: created_at}


def _hash(value: Any) -> None:
    """Check that a value is the keyed hash of a name."""
    text(value)
    if not _HASH.fullmatch(value):
        raise ValueError(f"{abbreviated(value)} is no name's hash")


def _kind(value: Any) -> None:
    """Check that a value is a kind of memory."""
    text(value)
    MemoryKind(value)


def _moment(value: Any) -> None:
    """Check that a value is a time."""
    text(value)
    moment_of(value)


_check_facts: Final = fields(
    {
        c.POSITION: integer(),
        c.KIND: _kind,
        c.CHARS: integer(0, _MAX_SIZE),
        c.TOKENS: integer(0, _MAX_SIZE),
        c.LOAD_BEARING: boolean,
        c.KEY: _hash,
        c.CREATED_AT: optional(_moment),
        **dict.fromkeys((c.MEMORY_ID, c.SOURCE_TASK_REF, c.SUPERSEDED_BY), optional(_hash)),
        **dict.fromkeys((c.SUPERSEDES, c.EVIDENCE_REFS), list_of(_hash)),
    },
    may_be_absent={c.KEY},
)
"""Checks a tombstone, which :func:`memlab.evidence.past.facts_of` makes."""
