"""The Arrow columns in which every source hands out its memories."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memlab import columns as col

TEXT: Final = pa.large_string()
MOMENT: Final = pa.timestamp("us", "UTC")
_LISTS: Final = ("tags_json", "supersedes_json", "evidence_refs_json")
REPEATING: Final = ("kind", *_LISTS)
"""Columns in which few texts come often: Arrow keeps each text once."""
TEXTS: Final = (
    "memory_id",
    "title",
    "body",
    "authored_by",
    "created_at",
    *REPEATING,
    "source_task_ref",
    "superseded_by",
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
"""A further column, the source's own addresses, in all but ``memory_items``: see
:data:`memlab.columns.KEY`."""

AT_START: Final = "at_start"
"""A further column, of sources whose memories are not loaded whole: the text that an agent loads at
start because of a memory. What a memory costs is counted on it."""

RETIRED: Final = pa.field(col.RETIRED_AT, MOMENT)
"""A further column, of sources whose memories plans retire; null where one is not retired."""

STATES: Final = (pa.field(col.INDEX_STATE, TEXT), pa.field(col.DOUBT, TEXT))
"""Further columns, of folders that have an index: see :data:`memlab.columns.INDEX_STATE` and
:data:`memlab.columns.DOUBT`."""

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

_ABSENT: Final = {"active": True, **dict.fromkeys(_LISTS, "[]")}
_FILLED: Final = [name for name in SCHEMA.names if name not in ("body", "chars")]


def table_of(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return Python columns as a table, with what a source has no column for filled in."""
    count = len(columns["position"])
    given = {**{name: [_ABSENT.get(name)] * count for name in _FILLED}, **columns}
    fields = (*SCHEMA, pa.field(AT_START, TEXT), RETIRED, *STATES, *SIGNALS)
    arrays = {each.name: _typed(given[each.name], each) for each in fields if each.name in given}
    lengths = (pc.fill_null(pc.utf8_length(arrays[name]), 0) for name in ("title", "body"))
    arrays["chars"] = pc.add(*lengths).cast(pa.int64())
    if KEY in given:
        arrays[KEY] = pa.array(given[KEY])
    return pa.table(arrays)


def _typed(values: Sequence[Any], field: Any) -> Any:
    encoded = pa.types.is_dictionary(field.type)
    kind = field.type.value_type if encoded else field.type
    if field.name == col.CREATED_AT and any(not isinstance(v, str | None) for v in values):
        kind = MOMENT
    array = pa.array(values, kind)
    return array.dictionary_encode() if encoded else array


def of_numbers(values: npt.NDArray[Any]) -> Any:
    """Return numbers as an Arrow array of the same type, not copied.

    >>> of_numbers(np.array([1, 2])).to_pylist()
    [1, 2]
    """
    whole = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(whole.dtype)
    return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(whole)])


def of_text(text: bytes, kind: Any) -> Any:
    """Return one text as an Arrow array of ``large_string`` or ``large_binary``."""
    ends = np.array([0, len(text)], dtype=np.int64)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])


def as_numbers(column: Any, missing: Any = None) -> npt.NDArray[Any]:
    """Return an Arrow column of numbers, flags or moments as an array of one's own.

    >>> as_numbers(pa.array([2.5, None]), np.float64("nan"))
    array([2.5, nan])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    moments = pa.types.is_timestamp(array.type)
    flags = pa.types.is_boolean(array.type)
    if moments:
        array = array.view(pa.int64())
    if array.null_count:
        array = array.fill_null(of_numbers(np.array([missing]))[0].cast(array.type))
    numbers = np.from_dlpack(array.cast(pa.uint8()) if flags else array).copy()
    return numbers.view("datetime64[us]" if moments else bool if flags else numbers.dtype)
