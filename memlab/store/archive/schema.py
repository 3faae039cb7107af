"""Records of an archive, and checks of their stored values.

Anybody may have written an archive, so each value is checked when it is read. ValueError says what
is wrong with it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from memlab.clock import moment_of
from memlab.store.records import fingerprint_of
from memlab.store.shapes import check_integer, check_type, shown

Key = int | str
"""Primary key of a memory in its source."""

SampleRow = tuple[int, str]
"""A memory that stayed in a store: its position, and a digest of it."""

SHORTENED: Final = "archived_memories"
"""Key in a shortened plan. It stands for the list of deleted memories, whose copies have it."""
LATEST: Final = "latest"
"""Name of the last plan that can be undone, in place of its digest."""

RECOVERS: Final = {"policy": "lost"}
"""Policy of an entry that inserted memories and deleted none: a recovery, or a merge.

A recovery brings back what others had deleted. A merge took the memories of another folder, which
its text names; a memlab that knows no merges can undo it as a recovery.
"""
MENDS: Final = {"policy": "index"}
"""Policy of an entry that changed an index, and no memory."""


class Apply(NamedTuple):
    """A deletion that is about to be archived.

    Attributes
    ----------
    digest : str
        The digest of the plan.
    policy : mapping
        The policy as JSON values.
    made_at : datetime
        When the plan was made.
    memories : int
        The number of memories that are deleted.
    plan : PlanText or None
        The text of the plan; None if a runtime deletes without one.
    """

    digest: str
    policy: Mapping[str, Any]
    made_at: datetime
    memories: int
    plan: "PlanText | None" = None


class PlanText(NamedTuple):
    """The text of a plan, in pieces: whole, and without the memories that it deletes.

    Attributes
    ----------
    whole : callable
        Returns the whole text.
    head : callable or None
        Returns the text of the plan without the list of deleted memories; None if the plan cannot
        be shortened.
    not_archived : mapping of int to mapping
        The rows of the plan for memories that are deleted and not archived, by their index in that
        list.
    """

    whole: Callable[[], Iterable[str]]
    head: Callable[[], Iterable[str]] | None = None
    not_archived: Mapping[int, Mapping[str, Any]] = MappingProxyType({})

    def shortened(self, differing: Iterable[str]) -> Iterator[str]:
        """Yield the text without the fields that the copies of its memories hold already.

        Parameters
        ----------
        differing : iterable of str
            For each memory whose row in the plan differs from its copy, a JSON list: the index of
            the memory in the plan, and the fields that differ.
        """
        if self.head is None:
            yield from self.whole()
            return
        yield f'{{"{SHORTENED}":{{"differing":['
        for number, fields in enumerate(differing):
            yield f",{fields}" if number else fields
        yield "]},"
        is_first = True
        for piece in self.head():
            # The first piece begins with the brace that is written already.
            yield piece[1:] if is_first else piece
            is_first = False


class Archived(NamedTuple):
    """A memory that is about to be archived."""

    key: Key
    record: bytes
    reason: str
    planned: Mapping[str, Any] | None = None
    """The row of the plan for it, by the keys of a plan; None without a plan."""


class Entry(NamedTuple):
    """A deletion in an archive.

    Attributes
    ----------
    apply : int
        The number of the deletion.
    digest : str
        The digest of its plan.
    memories : int
        The number of memories that it deleted.
    archived_at, finished_at : datetime
        When the copies were written, and when the deletion was recorded as done; the latter is None
        if it was interrupted.
    left, restored : int
        The number of copies in the archive, and of those that were restored.
    planned : bool
        Whether it has a plan; a runtime compacts without one.
    recovers : bool
        Whether it inserted memories and deleted none: a recovery or a merge, see :data:`RECOVERS`.
    mends : bool
        Whether it changed the index, and no memory.
    """

    apply: int
    digest: str
    memories: int
    archived_at: datetime
    finished_at: datetime | None
    left: int
    restored: int
    planned: bool = True
    recovers: bool = False
    mends: bool = False


class Dropped(NamedTuple):
    """A deletion whose content was erased from the archive, so that only tombstones are left."""

    apply: int
    digest: str
    memories: int
    deleted_at: datetime
    dropped_at: datetime


class Copy(NamedTuple):
    """An archived memory without its record."""

    key: Key
    fingerprint: str
    reason: str
    restored_at: str | None


LARGEST: Final = 2**29
"""Maximum size of a record, and of a packed plan, in bytes."""
_MOST_VALUES: Final = 2**23
"""Maximum number of values in a record: each may take thirty times its text in memory."""
_DEEPEST: Final = 16
"""Maximum nesting of a record."""

FINGERPRINT_DIGITS: Final = 32
PLANNED_TITLE: Final = 80
"""Maximum length of a title in a plan, in characters."""
_FINGERPRINT: Final = re.compile("[0-9a-f]{32}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")

Check = Callable[[Key, bytes, dict[str, Any]], None]
"""Checks a key, a record and its parsed content; see :func:`memlab.store.records.check_row`."""


def text_in(value: object, what: str, *, most: int = 2**16) -> str:
    """Return a stored text.

    Parameters
    ----------
    value : object
        The value, with text as a bytearray (see :func:`memlab.store.database.text_as_bytearray`).
    what : str
        The name of the value for an error message.
    most : int
        The maximum size in bytes.
    """
    raw = raw_text_in(value, what)
    if len(raw) > most:
        raise ValueError(f"{what} has {len(raw):,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8") from None


def raw_text_in(value: object, what: str) -> bytearray:
    """Return a stored text as bytes; raise ValueError if the value is not a text."""
    if not isinstance(value, bytearray):
        raise ValueError(f"{what} is {shown(value)}, no text")  # noqa: TRY004 - the file is wrong, not the call
    return value


def moment_in(value: object, what: str) -> datetime:
    """Return a stored time."""
    return moment_of(text_in(value, what))


def moment_text(moment: datetime) -> str:
    """Return the stored form of a time; these texts sort in the order of time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def key_in(value: object) -> Key:
    """Return the stored key of a memory."""
    if type(value) is int:
        return value
    return text_in(value, "its key")


def digest_in(value: object) -> str:
    """Return the stored digest of a plan: 64 hexadecimal digits."""
    return _matching(_DIGEST, value, "its digest")


def fingerprint_in(value: object) -> str:
    """Return a stored fingerprint of 32 hexadecimal digits."""
    return _matching(_FINGERPRINT, value, "its fingerprint")


def _matching(pattern: re.Pattern[str], value: object, what: str) -> str:
    """Return a stored text that matches a pattern."""
    text = text_in(value, what)
    if not pattern.fullmatch(text):
        raise ValueError(f"{what} is {shown(text)}")
    return text


def entry_of(row: tuple[Any, ...]) -> Entry:
    """Return the deletion of a row: the fields of :class:`Entry` in order, unchecked."""
    (
        number,
        digest,
        memories,
        archived_at,
        finished_at,
        left,
        restored,
        planned,
        recovers,
        mends,
    ) = row
    check_integer(number, 1)
    check_integer(memories, 0, 2**53)
    if left and not memories:
        raise ValueError(f"it says that it deleted nothing, and has {left:,} copies")
    return Entry(
        apply=number,
        digest=digest_in(digest),
        memories=memories,
        archived_at=moment_in(archived_at, "archived_at"),
        finished_at=None if finished_at is None else moment_in(finished_at, "finished_at"),
        left=left,
        restored=restored,
        planned=bool(planned),
        recovers=bool(recovers),
        mends=bool(mends),
    )


def copy_of(key: object, fingerprint: str, reason: object, restored_at: object) -> Copy:
    """Return the copy of these stored values."""
    restored = None
    copy_key = key_in(key)
    copy_reason = text_in(reason, "its reason")
    if restored_at is not None:
        restored = moment_in(restored_at, "restored_at").isoformat()
    return Copy(key=copy_key, fingerprint=fingerprint, reason=copy_reason, restored_at=restored)


def record_of(value: bytes | bytearray, copy: Copy, check: Check) -> bytes:
    """Return the record of a copy, after checking its fingerprint, size, nesting and content."""
    record = bytes(value)
    if fingerprint_of(record) != copy.fingerprint:
        raise ValueError("its record is not what was archived")
    check_size(record)
    try:
        fields = json.loads(record)
    except (ValueError, RecursionError):
        raise ValueError("its record is no JSON") from None
    check_type(fields, dict, "a JSON object")
    check_depth(fields, _DEEPEST)
    try:
        check(copy.key, record, fields)
    except RecursionError:
        raise ValueError("what its record holds is nested too deep") from None
    return record


def check_size(record: bytes) -> None:
    """Raise ValueError if a record is too large, or has too many values, to be read again."""
    if len(record) <= _MOST_VALUES:
        return
    values = sum(map(record.count, (b",", b"[", b"{")))
    if len(record) > LARGEST or values > _MOST_VALUES:
        raise ValueError(f"its record has {len(record):,} bytes in up to {values:,} values")


def check_depth(value: Any, deepest: int) -> None:
    """Raise ValueError if a JSON value is nested deeper than `deepest` levels.

    A deeper value would exceed the recursion limit wherever it is compared or printed.
    """
    level = [value]
    for _ in range(deepest):
        level = [inner for outer in level for inner in _containers_in(outer)]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {deepest}")


def _containers_in(outer: Any) -> list[Any]:
    """Return the objects and lists directly inside a JSON object or list."""
    values = outer.values() if isinstance(outer, dict) else outer
    return [value for value in values if isinstance(value, (dict, list))]
