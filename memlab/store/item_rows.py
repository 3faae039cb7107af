"""An agent's item as a row of ``memory_items``, and back."""

import json
from datetime import UTC, datetime
from typing import Any

from memlab.errors import BadRowError
from memlab.items import EventId, EventRef, MemoryItem, MemoryKind, MemoryProvenance, strings_of
from memlab.store.database import COLUMNS


def row_of(item: MemoryItem) -> tuple[Any, ...]:
    """Return an item's values in the order of :data:`memlab.store.database.COLUMNS`."""
    provenance = item.provenance
    event = provenance.source_event
    return (
        item.memory_id,
        item.kind.value,
        item.title,
        item.body,
        _json(item.tags),
        event.event_id if event else None,
        event.sequence if event else None,
        provenance.source_task_ref,
        provenance.authored_by,
        provenance.confidence,
        provenance.created_at.astimezone(UTC).isoformat(),
        _json(provenance.supersedes),
        _json(provenance.evidence_refs),
        item.superseded_by,
    )


def item_of(row: tuple[Any, ...]) -> MemoryItem:
    """Return the item that a row of these values is.

    Raises
    ------
    BadRowError
        When it is none.
    """
    values = dict(zip(COLUMNS, row, strict=True))
    try:
        return MemoryItem(
            values["memory_id"],
            MemoryKind(values["kind"]),
            values["title"],
            values["body"],
            _provenance_of(values),
            strings_of(values["tags_json"]),
            values["superseded_by"],
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRowError(
            f"memory {values['memory_id']!r} cannot be read: {error}; mend its row",
            memory_id=str(values["memory_id"]),
        ) from error


def _provenance_of(values: dict[str, Any]) -> MemoryProvenance:
    event_id, sequence = values["source_event_id"], values["source_sequence"]
    no_event = event_id is None or sequence is None
    return MemoryProvenance(
        source_event=None if no_event else EventRef(EventId(event_id), sequence),
        authored_by=values["authored_by"],
        source_task_ref=values["source_task_ref"],
        confidence=values["confidence"],
        created_at=datetime.fromisoformat(values["created_at"]),
        supersedes=strings_of(values["supersedes_json"]),
        evidence_refs=strings_of(values["evidence_refs_json"]),
    )


def _json(values: tuple[str, ...]) -> str:
    return json.dumps(values, separators=(",", ":"))
