"""What a row of mcp-memory-service's means: kind, tags and signals by the service's own rules."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from memlab.sources.base import Fault, place_of

VECTOR: Final = "$vector"
"""In a record: the memory's vector, and the partition that it is found in."""
EDGES: Final = "$edges"
"""In a record: the edges of the graph on both of its sides."""

PROTECTED: Final = frozenset({"critical", "important", "reference", "permanent"})
"""Tags of what the service itself never forgets."""

_MISTAKE: Final = "mistake"
_FAILURES: Final = 3
"""A mistake made so often is protected as well."""
_OF_USE: Final = ("access_count", "last_accessed_at", "access_queries", "avg_ranking")
"""Fields of the metadata that a search changes."""


def row_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a memory as a row, from its columns or from its record."""
    told = metadata_of(fields.get("metadata"))
    tags = [tag for each in text_of(fields.get("tags")).split(",") if (tag := each.strip())]
    memory_type = text_of(fields.get("memory_type")).strip()
    title, _, body = text_of(fields.get("content")).partition("\n")
    created = number_of(fields.get("created_at"))
    position, at = position_of(fields["id"], created), _moment(created)
    replaced = text_of(fields.get("superseded_by")) or None
    faults: list[Fault] = []
    if at is None:
        shown = f"created_at {fields.get('created_at')!r:.80} is no time"
        faults.append((position, "created_at", shown))
    return {
        "position": position,
        "key": fields["id"],
        "memory_id": text_of(fields["content_hash"]),
        "kind": "semantic" if is_protected(tags, memory_type, told) else "episodic",
        "title": title,
        "body": body,
        "tags_json": json.dumps([*tags, *filter(None, [memory_type])], ensure_ascii=False),
        "authored_by": "mcp-memory-service",
        "created_at": at,
        "confidence": _or(number_of(fields.get("confidence")), 1.0),
        "active": replaced is None,
        "superseded_by": replaced,
        "importance": _first(told, "importance_score", "quality_score"),
        "access_count": _count(told.get("access_count")),
        "last_accessed_at": _moment(
            _or(number_of(told.get("last_accessed_at")), number_of(fields.get("last_accessed")))
        ),
        "namespace": text_of(fields.get("store")) or None,
        "loaded_at_start": False,
        "faults": faults,
    }


def is_protected(tags: Sequence[str], memory_type: str, told: Mapping[str, Any]) -> bool:
    """Whether the service itself never forgets a memory.

    Examples
    --------
    >>> is_protected(["Critical"], "note", {}), is_protected([], "mistake", {"failure_count": 3})
    (True, True)
    """
    if PROTECTED & {tag.lower() for tag in tags}:
        return True
    failures = number_of(told.get("failure_count"))
    return memory_type == _MISTAKE and failures is not None and failures >= _FAILURES


def lasting_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a record a search does not change, nor a neighbour that goes."""
    left_out = (EDGES, "last_accessed", "metadata")
    kept = {name: value for name, value in record.items() if name not in left_out}
    told = metadata_of(record.get("metadata"))
    kept["metadata"] = (
        {name: told[name] for name in sorted(told) if name not in _OF_USE}
        if told
        else record.get("metadata")
    )
    return kept


def metadata_of(value: object) -> dict[str, Any]:
    """Return the fields of a memory's metadata; none of what is no JSON object."""
    try:
        found = json.loads(text_of(value) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text_of(value: object) -> str:
    """Return what a column of text holds, whatever is in it."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bytes() | bytearray():
            return value.decode(errors="replace")
        case {"text": str(digits)} | {"blob": str(digits)}:
            return bytes.fromhex(digits).decode(errors="replace")
    return str(value)


def number_of(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < float("inf") else None


def _or(value: float | None, other: float | None) -> float | None:
    return other if value is None else value


def _first(told: Mapping[str, Any], *names: str) -> float | None:
    found = (number_of(told.get(name)) for name in names)
    return next((number for number in found if number is not None), None)


def _count(value: object) -> int | None:
    number = number_of(value)
    return None if number is None or not 0 <= number < 2**62 else int(number)


def _moment(seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def position_of(key: int, created_at: object) -> int:
    """Return where a memory stands by the time it was stored."""
    if not isinstance(created_at, int | float) or created_at != created_at:  # noqa: PLR0124 - NaN
        return place_of(0, key)
    return place_of(int(min(max(created_at, 0.0), 1e12) * 1_000), key)
