"""Values in an archive, taken for data that anybody may have written: ValueError if wrong."""

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from memlab.clock import moment_of
from memlab.store.records import fingerprint_of
from memlab.store.shapes import check_type, integer, shown

Key = int | str
"""A source's own address of a memory."""

SampleRow = tuple[int, str]
"""A memory that stayed in a store: its position, and a digest of it."""


class Apply(NamedTuple):
    """A deletion that is about to be archived."""

    digest: str
    policy: Mapping[str, Any]
    made_at: datetime
    memories: int
    plan: "PlanText | None" = None
    """The text of the plan, where it was one."""


class PlanText(NamedTuple):
    """The text of a plan, some memories at a time: whole, and as an archive may shorten it."""

    whole: Callable[[], Iterable[str]]
    """Yields all of it."""
    head: Callable[[], Iterable[str]] | None = None
    """Yields its JSON object without the memories that it deletes; None where it is none."""
    not_archived: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
    """The rows of memories that it deletes and that are not archived, by their place in it."""

    def shortened(self, differing: Iterable[str]) -> Iterator[str]:
        """Yield the text without what the copies of its memories say.

        Parameters
        ----------
        differing : iterable of str
            What copies do not say, as JSON: the place of a memory in the plan, some of its fields.
        """
        if self.head is None:
            yield from self.whole()
            return
        yield f'{{"{SHORTENED}":{{"differing":['
        for number, each in enumerate(differing):
            yield f",{each}" if number else each
        yield "]},"
        is_first = True
        for piece in self.head():
            yield piece[1:] if is_first else piece  # without the brace that begins it
            is_first = False


SHORTENED: Final = "archived_memories"
"""The key in a plan that stands in the place of the memories that it deletes."""


class Archived(NamedTuple):
    """A memory that goes: its record, and why."""

    key: Key
    record: bytes
    reason: str
    planned: Mapping[str, Any] | None = None
    """What the plan says of it, by the keys of a plan, where it was one."""


class Entry(NamedTuple):
    """A deletion in an archive."""

    apply: int
    digest: str
    memories: int
    archived_at: datetime
    finished_at: datetime | None
    left: int
    restored: int
    planned: bool = True
    recovers: bool = False
    """Whether it put back what somebody else had deleted, and deleted nothing."""


class Dropped(NamedTuple):
    """A deletion whose words were erased from the archive."""

    apply: int
    digest: str
    memories: int
    deleted_at: datetime
    dropped_at: datetime


class Copy(NamedTuple):
    """An archived memory, without its record."""

    key: Key
    fingerprint: str
    reason: str
    restored_at: str | None


LARGEST: Final = 2**29
"""Bytes of a record, and of a plan as it is packed."""
_ROOM: Final = 2**22
_PACKED: Final = 16
"""A plan has at most :data:`_ROOM` bytes, or so many times those that it is packed in."""
_PARTS: Final = 2**23
"""Values of a record: each may take thirty times its text in memory."""
_DEEPEST: Final = 16

FINGERPRINT_DIGITS: Final = 32
PLANNED_TITLE: Final = 80
"""Characters of a title that a plan keeps for its reader."""
_FINGERPRINT: Final = re.compile("[0-9a-f]{32}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")

Check = Callable[[Key, bytes, dict[str, Any]], None]
"""Takes a key, a record and what it says; see :func:`memlab.store.records.check_row`."""


def text_in(value: object, what: str, *, most: int = 2**16) -> str:
    """Return a text that was read as :func:`memlab.store.database.exact` reads it."""
    raw = raw_text_in(value, what)
    if len(raw) > most:
        raise ValueError(f"{what} has {len(raw):,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is no UTF-8") from None


def moment_in(value: object, what: str) -> datetime:
    """Return a moment."""
    return moment_of(text_in(value, what))


def moment_text(moment: datetime) -> str:
    """Return a moment as an archive has it: texts sort as moments do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def key_in(value: object) -> Key:
    """Return the key of a memory."""
    return value if type(value) is int else text_in(value, "its key")


def digest_in(value: object) -> str:
    """Return the digest of a plan."""
    return _matching(_DIGEST, value, "its digest")


def entry_of(row: tuple[Any, ...]) -> Entry:
    """Return a deletion: its number, its values, and what is known of its copies and its plan."""
    number, digest, memories, archived_at, finished_at, left, restored, planned, recovers = row
    integer(1)(number)
    integer(0, 2**53)(memories)
    if left and not memories:
        raise ValueError(f"it says that it deleted nothing, and has {left:,} copies")
    return Entry(
        number,
        digest_in(digest),
        memories,
        moment_in(archived_at, "archived_at"),
        None if finished_at is None else moment_in(finished_at, "finished_at"),
        left,
        restored,
        bool(planned),
        bool(recovers),
    )


def fingerprint_in(value: object) -> str:
    """Return a fingerprint that was written in hexadecimal digits."""
    return _matching(_FINGERPRINT, value, "its fingerprint")


def copy_of(key: object, fingerprint: str, reason: object, restored_at: object) -> Copy:
    """Return a copy of the values that an archive has of it."""
    return Copy(
        key_in(key),
        fingerprint,
        text_in(reason, "its reason"),
        None if restored_at is None else moment_in(restored_at, "restored_at").isoformat(),
    )


def record_of(value: bytes | bytearray, copy: Copy, check: Check) -> bytes:
    """Return the record of a copy, as it was archived."""
    record = bytes(value)
    if fingerprint_of(record) != copy.fingerprint:
        raise ValueError("its record is not what was archived")
    check_size(record)
    try:
        said = json.loads(record)
    except (ValueError, RecursionError):
        raise ValueError("its record is no JSON") from None
    check_type(said, dict, "a JSON object")
    check_depth(said, _DEEPEST)
    try:
        check(copy.key, record, said)
    except RecursionError:
        raise ValueError("what its record holds is nested too deep") from None
    return record


def check_size(record: bytes) -> None:
    """Check that a record is of a size that is read again."""
    if len(record) <= _PARTS:
        return
    parts = sum(map(record.count, (b",", b"[", b"{")))
    if len(record) > LARGEST or parts > _PARTS:
        raise ValueError(f"its record has {len(record):,} bytes in up to {parts:,} values")


def check_depth(value: Any, deepest: int) -> None:
    """Check that JSON is not nested so deep that whoever compares or shows it would fail."""
    level = [value]
    for _ in range(deepest):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {deepest}")


def packed(pieces: Callable[[], Iterable[str]], words: bytes = b"") -> bytes:
    """Return a text in as little room as :func:`unpacked` takes it out of again."""
    for level in (-1, 0):
        size = 0
        packing = zlib.compressobj(level, zdict=words)
        parts = list[bytes]()
        for piece in pieces():
            raw = piece.encode()
            size += len(raw)
            parts.append(packing.compress(raw))
        made = b"".join([*parts, packing.flush()])
        if size <= _most(made):
            break
    return made


def unpacked(blob: Any, words: bytes = b"") -> bytes:
    """Return a text that was packed; one that nobody packed here may unpack to anything."""
    check_type(blob, bytes, "a blob")
    unpacking = zlib.decompressobj(zdict=words)
    try:
        found = unpacking.decompress(blob, _most(blob) + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof or len(found) > _most(blob):
        raise ValueError(f"it does not end within {_most(blob):,} bytes")
    return found


def _most(blob: bytes) -> int:
    return max(_ROOM, _PACKED * len(blob))


def raw_text_in(value: object, what: str) -> bytearray:
    """Return the bytes of a text."""
    if not isinstance(value, bytearray):  # as texts come, see Archive
        raise ValueError(f"{what} is {shown(value)}, no text")  # noqa: TRY004 - of a file, no call
    return value


def _matching(pattern: re.Pattern[str], value: object, what: str) -> str:
    found = text_in(value, what)
    if not pattern.fullmatch(found):
        raise ValueError(f"{what} is {shown(found)}")
    return found


RECOVERS: Final = {"policy": "lost"}
"""Stands for a policy where memlab put back what somebody else had deleted."""
