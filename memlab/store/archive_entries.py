"""What an archive holds, as it is handed about. Standard library only."""

import zlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

Key = int | str
"""A source's own address of a memory."""

Witness = tuple[int, str]
"""A memory that stayed in a store: its position, and a digest of it."""


class Apply(NamedTuple):
    """A deletion that is about to be archived.

    Attributes
    ----------
    digest : str
        Its name.
    policy : mapping
        Why, as JSON values.
    made_at : datetime
        When it was decided.
    memories : int
        How many go.
    plan : bytes or None
        The plan's text as :func:`packed` returns it, for those who want to see it again.
    """

    digest: str
    policy: Mapping[str, Any]
    made_at: datetime
    memories: int
    plan: bytes | None = None


def packed(pieces: Iterable[str]) -> bytes:
    """Return a text in as little room as an archive keeps it in."""
    packing = zlib.compressobj()
    parts = [packing.compress(piece.encode()) for piece in pieces]
    return b"".join([*parts, packing.flush()])


class Archived(NamedTuple):
    """A memory that goes: its record, the fingerprint that was planned, and why."""

    key: Key
    fingerprint: str
    record: bytes
    reason: str


class Entry(NamedTuple):
    """A deletion in an archive.

    Attributes
    ----------
    apply : int
        Its key in the archive's tables.
    digest : str
        The plan's.
    memories : int
        How many were archived.
    archived_at : datetime
        When the copies were made.
    finished_at : datetime or None
        When the deletion was recorded as done; None when it was cut short.
    left : int
        How many of the copies are still in the archive.
    restored : int
        How many of these have been put back.
    planned : bool
        Whether a plan was carried out; False where a runtime compacted by itself.
    """

    apply: int
    digest: str
    memories: int
    archived_at: datetime
    finished_at: datetime | None
    left: int
    restored: int
    planned: bool = True


class Copy(NamedTuple):
    """An archived memory, without its record."""

    key: Key
    fingerprint: str
    reason: str
    restored_at: str | None
