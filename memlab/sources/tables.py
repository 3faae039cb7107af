"""The Arrow columns in which every source hands out its memories."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from memlab import columns as col
from memlab.sources.base import Fault, Rows

TEXT: Final = pa.large_string()
MOMENT: Final = pa.timestamp("us", "UTC")
REPEATING: Final = ("kind", "tags_json", "supersedes_json", "evidence_refs_json")
"""Columns in which few texts come often: Arrow keeps each text once."""
TEXTS: Final = (
    *("memory_id", "title", "body", "authored_by", "created_at"),
    *REPEATING,
    *("source_task_ref", "superseded_by"),
)

SCHEMA: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("confidence", pa.float64()),
        *((name, pa.dictionary(pa.int32(), TEXT) if name in REPEATING else TEXT) for name in TEXTS),
        ("active", pa.bool_()),
        ("chars", pa.int64()),
    ]
)
"""The columns that every source has; ``body`` only where it was asked for.

``position`` rises in the order of insertion and is a memory's for ever. Lists are JSON texts, as in
``memory_items``. ``created_at`` is ISO 8601 with a zone, or a :data:`MOMENT`. ``active`` is whether
no other memory has replaced it, ``chars`` how many characters title and body have together.
"""

KEY: Final = col.KEY
"""A further column, the source's own addresses, where these are not the positions."""

AT_START: Final = "at_start"
"""A further column, of sources whose memories are not loaded whole: the text that an agent loads at
start because of a memory. What a memory costs is counted on it."""

FINGERPRINT: Final = "fingerprint"
"""A further column, where :class:`memlab.sources.abilities.Printing` was asked: that of each
memory's record, null where only the record itself tells it."""

SIGNALS: Final = pa.schema(
    [
        (col.IMPORTANCE, pa.float64()),
        (col.LAST_ACCESSED_AT, MOMENT),
        (col.ACCESS_COUNT, pa.int64()),
        (col.EXPIRES_AT, MOMENT),
        (col.AGENT_ID, TEXT),
        (col.NAMESPACE, TEXT),
        (col.THREAD_ID, TEXT),
        (col.GRADUATED, pa.bool_()),
        (col.TRUSTED, pa.bool_()),
        (col.LOADED_AT_START, pa.bool_()),
    ]
)
"""Further columns, of sources that keep such signals; null where a memory has none."""

_ABSENT: Final[dict[str, Any]] = {
    "body": "",
    "tags_json": "[]",
    "supersedes_json": "[]",
    "evidence_refs_json": "[]",
    "active": True,
}


def rows_from(
    columns: Mapping[str, Sequence[Any]],
    faults: Iterable[Fault] = (),
    others: Mapping[str, Sequence[object]] | None = None,
) -> Rows:
    """Return rows of Python or Arrow columns, with what a source has no column for filled in.

    Parameters
    ----------
    columns : mapping of str to sequence
        ``position``, ``memory_id``, ``kind``, ``title`` and ``created_at`` at least; any other of
        :data:`SCHEMA`, ``key`` and :data:`SIGNALS`. Leave ``body`` out where it is not wanted, and
        then give ``chars``.
    faults : iterable of (position, column, text)
        What cannot be read, and why; its value is None.
    others : mapping of str to sequence, optional
        Columns of the source's own that were asked for.

    Examples
    --------
    >>> rows = rows_from(
    ...     {"position": [1], "memory_id": ["m1"], "kind": ["episodic"], "title": ["shipped"],
    ...      "body": ["it"], "created_at": ["2026-03-01T12:00:00Z"]}
    ... )
    >>> rows.table["chars"].to_pylist(), rows.table["tags_json"].to_pylist()
    ([9], ['[]'])
    """
    count = len(columns["position"])
    arrays: dict[str, Any] = {}
    for field in SCHEMA:
        if field.name in columns:
            arrays[field.name] = _typed(columns[field.name], field.type, field.name)
        elif field.name not in ("body", "chars"):
            filled = [_ABSENT.get(field.name)] * count
            arrays[field.name] = _typed(filled, field.type, field.name)
    if "body" in columns or "chars" not in columns:
        texts = [arrays[name] for name in ("title", "body") if name in arrays]
        lengths = [pc.fill_null(pc.utf8_length(text), 0) for text in texts]
        arrays["chars"] = pc.add(*lengths) if len(lengths) == 2 else lengths[0]
        arrays["chars"] = arrays["chars"].cast(pa.int64())
    if KEY in columns:
        arrays[KEY] = pa.array(columns[KEY])
    if AT_START in columns:
        arrays[AT_START] = _typed(columns[AT_START], TEXT, AT_START)
    arrays |= {
        field.name: _typed(columns[field.name], field.type, field.name)
        for field in SIGNALS
        if field.name in columns
    }
    return Rows(pa.table(arrays), list(faults), others or {})


def rows_of_each(
    rows: Sequence[dict[str, Any]],
    *,
    with_body: bool,
    others: Mapping[str, Sequence[object]] | None = None,
) -> Rows:
    """Return rows of which each was read by itself; what cannot be read of one is its ``faults``.

    Parameters
    ----------
    rows : sequence of dict
        At least one, all with the same fields: those of :func:`rows_from`, and any ``faults``.
    with_body : bool
        Whether ``body`` is wanted; its length counts in any case.
    others : mapping of str to sequence, optional
        Columns of the source's own that were asked for.
    """
    faults = [fault for row in rows for fault in row.get("faults", ())]
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "faults"}
    made = rows_from(columns, faults, others)
    return made if with_body else Rows(made.table.drop_columns("body"), made.faults, made.others)


def _typed(values: Sequence[Any], kind: Any, name: str) -> Any:
    """Return values as an Arrow array of a type; moments may stay moments."""
    encoded = pa.types.is_dictionary(kind)
    plain = kind.value_type if encoded else kind
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        if values.type == kind or (name == col.CREATED_AT and values.type == MOMENT):
            return values
        array = values.cast(plain)
    else:
        if name == col.CREATED_AT and any(not isinstance(v, str | None) for v in values):
            plain = MOMENT
        array = pa.array(values, plain)
    return array.dictionary_encode() if encoded else array
