"""Between Arrow, numpy and Python by way of buffers.

Where pyarrow converts by itself, it imports pandas first, to see whether it was handed one of its
own objects. A command that needs no frame starts in half the time without.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def of_numbers(values: npt.NDArray[Any]) -> Any:
    """Return numbers as an Arrow array of the same type, not copied.

    Examples
    --------
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

    Parameters
    ----------
    column : pyarrow.Array or ChunkedArray
        Moments are in microseconds.
    missing : scalar of numpy, optional
        Stands for a null: a value of the column's own type, of int64 for moments. By default there
        is none.

    Examples
    --------
    >>> import pyarrow as pa
    >>> as_numbers(pa.array([2.5, None]), np.float64("nan"))
    array([2.5, nan])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    moments, flags = pa.types.is_timestamp(array.type), pa.types.is_boolean(array.type)
    if moments:
        array = array.view(pa.int64())
    if array.null_count:
        array = array.fill_null(of_numbers(np.array([missing]))[0].cast(array.type))
    numbers = np.from_dlpack(array.cast(pa.uint8()) if flags else array).copy()
    return numbers.view("datetime64[us]" if moments else bool if flags else numbers.dtype)
