"""The records of an archive as classes, and checks of their stored values.

Anybody may have written an archive, so each value is checked when it is read. A wrong value raises
ValueError.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from memlab.clock import moment_of
from memlab.store.records import fingerprint_of
from memlab.store.shapes import abbreviated, check_integer, check_type

Key = int | str
"""Primary key of a memory in its source."""

SampleRow = tuple[int, str]
"""The position and a digest of a memory that stayed in a store."""

SHORTENED: Final = "archived_memories"
"""First key of a shortened plan.

Such a plan has no list of the deleted memories. Their rows are made from their copies."""
LATEST: Final = "latest"
"""Name for the last plan that can be undone. It is given instead of a digest."""

RECOVERY_POLICY: Final = {"policy": "lost"}
"""Policy of an entry that inserted memories and deleted none: a recovery, or a merge.

A recovery inserted memories that other programs had deleted. A merge inserted the memories of
another folder, which its text names. A version of memlab without merges can undo one as a recovery.
"""
INDEX_POLICY: Final = {"policy": "index"}
"""Policy of an entry that changed an index and no memory."""


class NewEntry(NamedTuple):
    """An entry that is about to be written into an archive.

    Attributes
    ----------
    digest : str
        The digest of the plan.
    policy : mapping
        The policy as JSON values.
    made_at : datetime
        When the plan was made.
    memories : int
        The number of memories that are deleted or inserted.
    plan : PlanText or None
        The text of the plan; None if a runtime deletes without one.
    """

    digest: str
    policy: Mapping[str, Any]
    made_at: datetime
    memories: int
    plan: "PlanText | None" = None


class PlanText(NamedTuple):
    """The text of a plan in two forms: whole, and without the memories that it deletes.

    Attributes
    ----------
    whole : callable
        Returns the pieces of the whole text.
    without_memories : callable or None
        Returns the pieces of the text without the list of deleted memories; None if the plan cannot
        be shortened.
    not_archived : mapping of int to mapping
        The rows of the plan for deleted memories that are not archived, by their index in that
        list.
    """

    whole: Callable[[], Iterable[str]]
    without_memories: Callable[[], Iterable[str]] | None = None
    not_archived: Mapping[int, Mapping[str, Any]] = MappingProxyType({})

    def shortened(self, differing: Iterable[str]) -> Iterator[str]:
        """Yield the text without the fields that are also in the copies of its memories.

        The first key of the JSON object is :data:`SHORTENED`. Its value has the list `differing`.

        Parameters
        ----------
        differing : iterable of str
            For each memory whose row in the plan differs from its copy, a JSON list: the index of
            the memory in the plan, and the fields that differ.
        """
        if self.without_memories is None:
            yield from self.whole()
            return
        yield f'{{"{SHORTENED}":{{"differing":['
        separator = ""
        for index_and_fields in differing:
            yield f"{separator}{index_and_fields}"
            separator = ","
        yield "]},"
        pieces = iter(self.without_memories())
        first_piece = next(pieces, "")
        yield first_piece[1:]  # its brace is written already
        yield from pieces


class NewCopy(NamedTuple):
    """A copy of a memory that is about to be written into an archive.

    Attributes
    ----------
    key : key
        The key of the memory.
    record : bytes
        Its record.
    reason : str
        The reason of its deletion.
    planned : mapping or None
        Its row in the plan, by the keys of a plan; None without a plan.
    """

    key: Key
    record: bytes
    reason: str
    planned: Mapping[str, Any] | None = None


class Entry(NamedTuple):
    """An entry of an archive: a deletion, unless `is_recovery` or `is_index_change` is set.

    Attributes
    ----------
    number : int
        The number of the entry.
    digest : str
        The digest of its plan.
    memories : int
        The number of memories that it deleted, or inserted.
    archived_at : datetime
        When the copies were written.
    finished_at : datetime or None
        When the change was recorded as done; None if it was interrupted.
    copies : int
        The number of its copies that the archive still has.
    restored : int
        The number of those copies that were restored.
    has_plan : bool
        Whether it has a plan. A runtime compacts without one.
    is_recovery : bool
        Whether it inserted memories and deleted none, as a recovery or a merge; see
        :data:`RECOVERY_POLICY`.
    is_index_change : bool
        Whether it changed an index and no memory.
    """

    number: int
    digest: str
    memories: int
    archived_at: datetime
    finished_at: datetime | None
    copies: int
    restored: int
    has_plan: bool = True
    is_recovery: bool = False
    is_index_change: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by JSON key."""
        return _by_json_key(self)


class Dropped(NamedTuple):
    """A deletion whose copies were erased from the archive, so that only tombstones are left.

    Attributes
    ----------
    number : int
        The number that its entry had.
    digest : str
        The digest of its plan.
    memories : int
        The number of its tombstones.
    deleted_at, dropped_at : datetime
        When its memories were deleted, and when its copies were erased.
    """

    number: int
    digest: str
    memories: int
    deleted_at: datetime
    dropped_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by JSON key."""
        return _by_json_key(self)


_JSON_KEYS: Final = {
    "number": "apply",
    "copies": "left",
    "has_plan": "planned",
    "is_recovery": "recovers",
    "is_index_change": "mends",
}
"""JSON keys of fields of `Entry` and `Dropped`. Any other field has its name as the key."""


def _by_json_key(record: Entry | Dropped) -> dict[str, Any]:
    """Return the fields of an entry by JSON key."""
    return {_JSON_KEYS.get(name, name): value for name, value in record._asdict().items()}


class Copy(NamedTuple):
    """An archived memory without its record.

    Attributes
    ----------
    key : key
        The key of the memory.
    fingerprint : str
        The fingerprint of its record.
    reason : str
        The reason of its deletion.
    restored_at : str or None
        When it was restored last, in ISO format; None if it never was.
    """

    key: Key
    fingerprint: str
    reason: str
    restored_at: str | None


MAX_RECORD_BYTES: Final = 2**29
"""Maximum size of a record, and of a packed plan, in bytes."""
_MAX_VALUES: Final = 2**23
"""Maximum number of values in a record. A value may take thirty times the size of its text."""
_MAX_LEVELS: Final = 16
"""Maximum number of levels of nested lists and objects in a record."""

FINGERPRINT_DIGITS: Final = 32
PLANNED_TITLE: Final = 80
"""Maximum length of a title in a plan, in characters."""
_FINGERPRINT: Final = re.compile("[0-9a-f]{32}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")

Check = Callable[[Key, bytes, dict[str, Any]], None]
"""Function that checks a key, a record, and the record parsed as JSON.

:func:`memlab.store.records.check_row` is one."""


def text_in(value: object, name: str, *, max_bytes: int = 2**16) -> str:
    """Return a stored text.

    Parameters
    ----------
    value : object
        The value, with text as a bytearray (see :func:`memlab.store.database.text_read_as`).
    name : str
        The name of the value for an error message.
    max_bytes : int
        The maximum size.
    """
    raw = raw_text_in(value, name)
    if len(raw) > max_bytes:
        raise ValueError(f"{name} has {len(raw):,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not UTF-8") from None


def raw_text_in(value: object, name: str) -> bytearray:
    """Return a stored text as bytes; raise ValueError if the value is not a text."""
    if not isinstance(value, bytearray):
        raise ValueError(f"{name} is {abbreviated(value)}, no text")  # noqa: TRY004 - the file is wrong, not the call
    return value


def moment_in(value: object, name: str) -> datetime:
    """Return a stored time."""
    return moment_of(text_in(value, name))


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


def _matching(pattern: re.Pattern[str], value: object, name: str) -> str:
    """Return a stored text that matches a pattern."""
    text = text_in(value, name)
    if not pattern.fullmatch(text):
        raise ValueError(f"{name} is {abbreviated(text)}")
    return text


def entry_of(row: tuple[Any, ...]) -> Entry:
    """Return the entry of a row, after checking its values.

    The values are those of the fields of :class:`Entry`, in order.
    """
    (
        number,
        digest,
        memories,
        archived_at,
        finished_at,
        copies,
        restored,
        has_plan,
        is_recovery,
        is_index_change,
    ) = row
    check_integer(number, 1)
    check_integer(memories, 0, 2**53)
    if copies and not memories:
        raise ValueError(f"its number of deleted memories is 0, but it has {copies:,} copies")
    return Entry(
        number=number,
        digest=digest_in(digest),
        memories=memories,
        archived_at=moment_in(archived_at, "archived_at"),
        finished_at=None if finished_at is None else moment_in(finished_at, "finished_at"),
        copies=copies,
        restored=restored,
        has_plan=bool(has_plan),
        is_recovery=bool(is_recovery),
        is_index_change=bool(is_index_change),
    )


def copy_of(key: object, fingerprint: str, reason: object, restored_at: object) -> Copy:
    """Return a copy from its stored values, after checking them.

    The caller has checked the fingerprint.
    """
    checked_key = key_in(key)
    checked_reason = text_in(reason, "its reason")
    restoration = None
    if restored_at is not None:
        restoration = moment_in(restored_at, "restored_at").isoformat()
    return Copy(
        key=checked_key,
        fingerprint=fingerprint,
        reason=checked_reason,
        restored_at=restoration,
    )


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
    check_depth(fields, _MAX_LEVELS)
    try:
        check(copy.key, record, fields)
    except RecursionError:
        raise ValueError("what its record holds is nested too deep") from None
    return record


def check_size(record: bytes) -> None:
    """Raise ValueError if a record is too large, or has too many values, to be read again."""
    if len(record) <= _MAX_VALUES:  # each value has at least one byte
        return
    value_count = record.count(b",") + record.count(b"[") + record.count(b"{")
    if len(record) > MAX_RECORD_BYTES or value_count > _MAX_VALUES:
        raise ValueError(f"its record has {len(record):,} bytes in up to {value_count:,} values")


def check_depth(value: Any, max_levels: int) -> None:
    """Raise ValueError if a JSON value has more than `max_levels` levels of lists and objects.

    A deeply nested value would exceed the recursion limit when it is compared or printed.
    """
    containers = [value]
    for _ in range(max_levels):
        containers = [inner for outer in containers for inner in _containers_in(outer)]
        if not containers:
            return
    raise ValueError(f"it is nested deeper than {max_levels}")


def _containers_in(outer: Any) -> list[Any]:
    """Return the objects and lists directly inside a JSON object or list."""
    values = outer.values() if isinstance(outer, dict) else outer
    return [value for value in values if isinstance(value, (dict, list))]
