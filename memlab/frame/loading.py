"""Loading of a store as one labelled frame."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Unpack

import numpy as np
import pandas as pd
import pyarrow as pa

from memlab import columns as c
from memlab.arguments import expect_frame
from memlab.errors import MemlabError
from memlab.frame.fields import KINDS, LABELS, CountTokens, labels_of, tuples_of
from memlab.frame.labelling import Labelled, LoadOptions, OnBadRow, memories_of, read_memories
from memlab.sources.base import has_past
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import Rows
from memlab.sources.tables import KEY, MOMENT, RETIRED, SIGNALS, STATES, TEXT

STR: Final = pd.StringDtype("pyarrow", na_value=np.nan)

_KIND: Final = pd.CategoricalDtype(list(KINDS))
_STRINGS: Final = (c.MEMORY_ID, c.TITLE, c.SOURCE_TASK_REF, c.AUTHORED_BY, c.SUPERSEDED_BY)
_COLUMN_ORDER: Final = [*c.DTYPES, *c.SIGNAL_DTYPES, c.LOADED_AT_START, c.RETIRED_AT]
_COLUMN_ORDER.extend(field.name for field in STATES)
_COLUMN_ORDER.insert(1, KEY)
_COLUMN_ORDER.insert(_COLUMN_ORDER.index(c.TITLE) + 1, c.BODY)
FLAG_DEFAULTS: Final = {c.GRADUATED: False, c.TRUSTED: True, c.LOADED_AT_START: True}
"""Default values of flags. A signal without a default stays missing if it was not set."""


def load(
    source: SourceLike,
    *,
    with_body: bool = False,
    columns: Sequence[str] = (),
    on_bad_row: OnBadRow = "raise",
    count_tokens: CountTokens | str | None = None,
) -> pd.DataFrame:
    """Return the memories of a store as a frame with a labelled row each, in order of insertion.

    Nothing is written: the store's bytes are unchanged, and no file is left beside it.

    Parameters
    ----------
    source : path, URL, SqliteMemoryStore or Source
        The store. Changes that an open transaction has not committed are not seen.
    with_body : bool
        Whether to add the text of each memory as ``body``, which takes most of the space.
    columns : sequence of str
        Names of columns that an agent added to its store; they are added to the frame unchanged.
    on_bad_row : {"raise", "keep"}
        Whether a row that cannot be interpreted raises an error or is kept. ``"keep"`` adds a
        column ``problem``, which is missing for a valid row. An invalid row counts as load-bearing,
        and its invalid fields are missing, 0 or ().
    count_tokens : callable or str, optional
        A function from a text to its number of tokens, or the name of a tokenizer of the ``tokens``
        extra such as ``"o200k_base"``; title and body are counted separately and added. By default
        tokens are estimated as a quarter of the characters. ``frame.attrs["token_rule"]`` has the
        rule. If an agent loads only a part of a memory, such as its line in an index, only this
        part is counted.

    Returns
    -------
    pandas.DataFrame
        Columns and dtypes are those of :data:`memlab.columns.DTYPES`, and those of
        :data:`memlab.columns.SIGNAL_DTYPES` that the store has. There are also ``key``, the primary
        key in the source (not for ``memory_items``), ``retired_at`` if memories are retired, and
        ``index_state`` and ``doubt`` for a folder with an index. The last column is ``label``, one
        of :data:`memlab.columns.LABELS`.

    Raises
    ------
    StoreError
        If `source` is not a store, cannot be read, or has no such column.
    BadRowError
        If a row cannot be interpreted; the message names the first one.

    Examples
    --------
    >>> import memlab
    >>> frame = memlab.load(memlab.store_path("looked_up"))
    >>> frame["position"].is_monotonic_increasing
    True
    """
    opened = open_source(source)
    options = LoadOptions(with_body=with_body, on_bad_row=on_bad_row, count_tokens=count_tokens)
    frame = frame_from(read_memories(opened, columns=columns, **options))
    frame[c.LABEL] = labels_of(frame)
    frame.attrs[c.REVISED] = sorted(opened.overwritten_signals)
    if opened.index is not None:
        with suppress(MemlabError):  # a folder that is gone can be loaded without its index
            frame.attrs[c.INDEX_TOKENS] = opened.index.overhead_tokens()
    with suppress(MemlabError):  # a broken archive is reported by functions that read it
        if has_past(opened):
            frame.attrs[c.HAS_PAST] = True
    return frame


def frame_of(
    batches: Iterable[Rows],
    *,
    name: str,
    protected: frozenset[str] = frozenset(),
    **options: Unpack[LoadOptions],
) -> pd.DataFrame:
    """Return rows as a frame, from an open source or from records in an archive.

    Parameters
    ----------
    batches : iterable of Rows
        The rows, as a reader of a source yields them.
    name : str
        Name of the source, for messages.
    protected : frozenset of str
        Tags that make a memory load-bearing.
    **options
        As for :func:`memlab.load`.

    Returns
    -------
    DataFrame
        One row for each memory, without the column ``label``.

    Examples
    --------
    >>> frame = frame_of([], name="memory.db")
    >>> len(frame), frame.attrs["source"]
    (0, 'memory.db')
    """
    return frame_from(memories_of(batches, name=name, protected=protected, **options))


def frame_from(memories: Labelled) -> pd.DataFrame:
    """Return labelled memories as a frame."""
    rows = memories.rows
    names = [name for name in (*_STRINGS, c.BODY) if name in rows.column_names]
    # The columns are arrays. Series would be aligned by their indexes, which is slow.
    values: dict[str, Any] = dict(memories.columns)
    for name in names:
        values.setdefault(name, _texts(rows[name]))
    for name, coded in memories.lists.items():
        values[name] = tuples_of(coded)
    values[c.CREATED_AT] = _in_utc(memories.columns[c.CREATED_AT])
    values[c.KIND] = pd.Categorical.from_codes(memories.columns[c.KIND], dtype=_KIND)
    if KEY in rows.column_names:
        values[KEY] = rows[KEY].to_pandas()
    state_names = [field.name for field in STATES]
    for name in (*SIGNALS.names, RETIRED.name, *state_names):
        if name in rows.column_names:
            values[name] = _signal(name, rows[name])
    ordered = {name: values[name] for name in _COLUMN_ORDER if name in values}
    for name, added in memories.others.items():
        ordered[name] = pd.Series(added, dtype=object)
    if memories.problems is not None:
        ordered[c.PROBLEM] = pd.Series(values[c.POSITION]).map(memories.problems).astype(STR)
    frame = pd.DataFrame(ordered, copy=False)
    frame.attrs[c.TOKEN_RULE] = memories.token_rule
    frame.attrs[c.SOURCE] = memories.source
    frame.attrs[c.RECALLED] = _is_recalled(frame)
    frame.attrs[c.WITHOUT_ZONE] = memories.without_zone
    return frame


def _is_recalled(frame: pd.DataFrame) -> bool:
    """Return whether a start loads no prunable memory, so that agents search for memories.

    Without prunable memories, the active memories decide.
    """
    if c.LOADED_AT_START not in frame or frame.empty:
        return False
    concerned = frame[c.PRUNABLE] if frame[c.PRUNABLE].any() else frame[c.ACTIVE]
    return not frame.loc[concerned, c.LOADED_AT_START].any()


def _texts(column: Any) -> Any:
    """Return an Arrow column of texts for a frame."""
    dtype: Any = STR
    return dtype.__from_arrow__(column)


def _signal(name: str, column: Any) -> Any:
    """Return an Arrow column of a signal for a frame."""
    if name in FLAG_DEFAULTS:
        return np.array(column.fill_null(FLAG_DEFAULTS[name]).to_numpy())
    if column.type == MOMENT:
        return _in_utc(column.cast(pa.timestamp("us")).to_numpy())
    if column.type == TEXT:
        return _texts(column)
    if column.type == pa.int64():
        return pd.Series(column.to_pandas(integer_object_nulls=True), dtype="Int64")
    return np.array(column.to_numpy())


def _in_utc(moments: Any) -> pd.DatetimeIndex:
    """Return moments with the time zone UTC."""
    return pd.DatetimeIndex(moments).tz_localize("UTC")


REQUIRED_COLUMNS: Final = (
    c.POSITION,
    c.MEMORY_ID,
    c.KIND,
    c.TOKENS,
    c.CREATED_AT,
    c.SOURCE_TASK_REF,
    c.SUPERSEDES,
    c.EVIDENCE_REFS,
    c.SUPERSEDED_BY,
    *LABELS,
)
"""Columns of a frame of memories that an analysis needs."""


def expect_memories(frame: object, *, call: str) -> None:
    """Raise unless a value is a frame of memories."""
    expect_frame(frame, *REQUIRED_COLUMNS, call=call)


def expect_log(log: object, *, call: str) -> None:
    """Raise unless a value is a frame of reads."""
    expect_frame(log, c.MEMORY_ID, c.AT, call=call, name="log", optional=True)


def expect_references(references: object, *, call: str, optional: bool = False) -> None:
    """Raise unless a value is a frame of references."""
    expect_frame(references, *c.REFERENCE_DTYPES, call=call, name="references", optional=optional)
