"""The Arrow columns of the batches that every source yields."""

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
"""Columns with few different texts. They are dictionary encoded."""
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

_ENCODED_TEXT: Final = pa.dictionary(pa.int32(), TEXT)
_TEXT_FIELDS: Final = [(name, _ENCODED_TEXT if name in REPEATING else TEXT) for name in TEXTS]

SCHEMA: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("confidence", pa.float64()),
        *_TEXT_FIELDS,
        ("active", pa.bool_()),
        ("chars", pa.int64()),
    ]
)
"""The columns of every source; ``body`` only if it was requested.

``position`` increases in the order of insertion and never changes for a memory. Lists are JSON
texts, as in ``memory_items``. ``created_at`` is ISO 8601 with a time zone, or a :data:`MOMENT`.
``active`` is whether no other memory supersedes it. ``chars`` is the number of characters of title
and body.
"""

KEY: Final = col.KEY
"""Optional column: the primary key in the source, for all sources but ``memory_items``. See
:data:`memlab.columns.KEY`."""

AT_START: Final = "at_start"
"""Optional column of sources that do not load whole memories: the text that a start loads for a
memory. Tokens are counted on it."""

RETIRED: Final = pa.field(col.RETIRED_AT, MOMENT)
"""Optional column of sources that can retire memories; null for a memory that is not retired."""

STATES: Final = (pa.field(col.INDEX_STATE, TEXT), pa.field(col.DOUBT, TEXT))
"""Optional columns of folders with an index: see :data:`memlab.columns.INDEX_STATE` and
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
"""Optional columns of sources that keep such signals; null for a memory without one."""

_DEFAULTS: Final = {"active": True, **dict.fromkeys(_LISTS, "[]")}
"""Values for columns that a source lacks; null for the others."""
_COMPLETED: Final = [name for name in SCHEMA.names if name not in ("body", "chars")]
"""Columns that are filled with a default if a source lacks them."""
_ALL_FIELDS: Final = (*SCHEMA, pa.field(AT_START, TEXT), RETIRED, *STATES, *SIGNALS)
"""All columns but :data:`KEY`, whose type differs between sources."""


def table_of(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return Python columns as an Arrow table; fill columns that the source lacks."""
    count = len(columns["position"])
    defaults = {name: [_DEFAULTS.get(name)] * count for name in _COMPLETED}
    complete = {**defaults, **columns}
    arrays = {}
    for field in _ALL_FIELDS:
        if field.name in complete:
            arrays[field.name] = _typed(complete[field.name], field)
    title_chars = pc.fill_null(pc.utf8_length(arrays["title"]), 0)
    body_chars = pc.fill_null(pc.utf8_length(arrays["body"]), 0)
    arrays["chars"] = pc.add(title_chars, body_chars).cast(pa.int64())
    if KEY in complete:
        arrays[KEY] = pa.array(complete[KEY])
    return pa.table(arrays)


def _typed(values: Sequence[Any], field: Any) -> Any:
    """Return values as an array of the type of a field; ``created_at`` may hold datetimes."""
    is_encoded = pa.types.is_dictionary(field.type)
    value_type = field.type.value_type if is_encoded else field.type
    if field.name == col.CREATED_AT:
        are_texts = all(isinstance(value, str | None) for value in values)
        value_type = TEXT if are_texts else MOMENT
    array = pa.array(values, value_type)
    return array.dictionary_encode() if is_encoded else array


def of_numbers(values: npt.NDArray[Any]) -> Any:
    """Return numbers as an Arrow array of the same type, without a copy.

    >>> of_numbers(np.array([1, 2])).to_pylist()
    [1, 2]
    """
    contiguous = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(contiguous.dtype)
    return pa.Array.from_buffers(kind, len(contiguous), [None, pa.py_buffer(contiguous)])


def of_text(text: bytes, kind: Any) -> Any:
    """Return a text as an Arrow array of length 1, of ``large_string`` or ``large_binary``."""
    offsets = np.array([0, len(text)], dtype=np.int64)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def as_numbers(column: Any, missing: Any = None) -> npt.NDArray[Any]:
    """Return an Arrow column of numbers, booleans or timestamps as a NumPy array that is a copy.

    >>> as_numbers(pa.array([2.5, None]), np.float64("nan"))
    array([2.5, nan])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    is_timestamp = pa.types.is_timestamp(array.type)
    is_boolean = pa.types.is_boolean(array.type)
    if is_timestamp:
        array = array.view(pa.int64())
    if array.null_count:
        (missing_value,) = of_numbers(np.array([missing]))
        array = array.fill_null(missing_value.cast(array.type))
    if is_boolean:
        array = array.cast(pa.uint8())
    numbers = np.from_dlpack(array).copy()
    if is_timestamp:
        return numbers.view("datetime64[us]")
    if is_boolean:
        return numbers.view(bool)
    return numbers
