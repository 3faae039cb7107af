"""Load a store as one labelled frame."""

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from memlab import columns as c
from memlab.arguments import expect, texts
from memlab.errors import BadRowError
from memlab.frame.fields import (
    STR,
    Coded,
    Faults,
    kinds_of,
    lists_of,
    moments_of,
    signal_of,
    texts_of,
    verdicts_of,
)
from memlab.frame.tokens import CHARS_PER_TOKEN, ESTIMATE_RULE, CountTokens, token_counter
from memlab.sources.base import Fault, Reader, Rows, at_one_moment
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.tables import AT_START, KEY, SCHEMA, SIGNALS
from memlab.store.database import COLUMNS

_STRINGS: Final = (c.MEMORY_ID, c.TITLE, c.SOURCE_TASK_REF, c.AUTHORED_BY, c.SUPERSEDED_BY)

OnBadRow = Literal["raise", "keep"]


def load(
    source: SourceLike,
    *,
    with_body: bool = False,
    columns: Sequence[str] = (),
    on_bad_row: OnBadRow = "raise",
    count_tokens: CountTokens | str | None = None,
) -> pd.DataFrame:
    """Return a store's memories as a frame: one labelled row each, in order of insertion.

    Nothing is written: the store's bytes are the same after, and no file is left beside it.

    Parameters
    ----------
    source : path, URL, SqliteMemoryStore or Source
        The store. What an open transaction has not committed yet is not seen.
    with_body : bool
        Whether to add the texts themselves as ``body``, most of a store's memory.
    columns : sequence of str
        Columns that an agent's own version has added to its store, to be added as they are.
    on_bad_row : {"raise", "keep"}
        What to do about a row that cannot be interpreted. ``"keep"`` adds a column ``problem``,
        missing where there is none; such a row counts as load-bearing, and the fields that cannot
        be read are missing, 0 or ().
    count_tokens : callable or str, optional
        A function from a text to its number of tokens, or the name of a tokenizer of the ``tokens``
        extra such as ``"o200k_base"``; title and body are counted apart and added. By default
        tokens are estimated as a quarter of the characters. ``frame.attrs["token_rule"]`` says
        which it was. Where an agent does not load a memory whole, what it loads because of it is
        counted: the lines of an index, say.

    Returns
    -------
    pandas.DataFrame
        With the columns and dtypes of :data:`memlab.columns.DTYPES`, and those of
        :data:`memlab.columns.SIGNAL_DTYPES` that the store keeps; ``key``, the source's own
        address, where that is not the position.

    Raises
    ------
    StoreError
        When `source` is not a store, cannot be read, or has no such column.
    BadRowError
        When a row cannot be interpreted; it names the first.
    MissingExtraError
        When a tokenizer is named and the ``tokens`` extra is not installed.
    ValueError
        When an argument is none of the above.
    """
    columns = texts(columns, call="memlab.load", name="columns")
    expect(on_bad_row, str, call="memlab.load", name="on_bad_row")
    if on_bad_row not in ("raise", "keep"):
        raise ValueError(f"on_bad_row must be 'raise' or 'keep', not {on_bad_row!r}")
    if count_tokens is not None:
        token_counter(count_tokens)  # what is wrong with it is said before anything is read
    opened = open_source(source)

    def look(reader: Reader) -> pd.DataFrame:
        batches = reader.batches(
            with_body=with_body or count_tokens is not None, columns=tuple(columns)
        )
        return frame_of(
            batches,
            name=opened.name,
            with_body=with_body,
            on_bad_row=on_bad_row,
            count_tokens=count_tokens,
        )

    return at_one_moment(opened, look)


def frame_of(
    batches: Iterable[Rows],
    *,
    name: str,
    with_body: bool = False,
    on_bad_row: OnBadRow = "raise",
    count_tokens: CountTokens | str | None = None,
) -> pd.DataFrame:
    """Return rows as a frame, from a source that is open or from records in an archive.

    Parameters
    ----------
    batches : iterable of Rows
        With bodies where these are wanted or their tokens counted.
    name : str
        Of the source, for messages.
    with_body, on_bad_row, count_tokens
        As for :func:`load`, which says what is raised.
    """
    counter, rule = (None, ESTIMATE_RULE) if count_tokens is None else token_counter(count_tokens)
    tables: list[Any] = []
    faults: list[Fault] = []
    counts: list[int] = []
    others: dict[str, list[object]] = {}
    for rows in batches:
        faults += rows.faults
        if counter is not None:
            counts += _counted(rows.table, counter)
        tables.append(rows.table if with_body else _without_body(rows.table))
        for name_, values in rows.others.items():
            others.setdefault(name_, []).extend(values)
    tokens = None if counter is None else np.array(counts, dtype=np.int64)
    frame = _labelled(_together(tables, with_body=with_body), tokens, faults)
    for name_, values in others.items():
        frame[name_] = pd.Series(values, dtype=object)
    if faults and on_bad_row == "raise":
        raise _bad_row(frame, faults, name)
    if on_bad_row == "keep":
        frame = _with_problems(frame, faults)
    frame.attrs[c.TOKEN_RULE] = rule
    frame.attrs[c.SOURCE] = name if "://" in name else PurePath(name).name
    return frame


def _together(tables: list[Any], *, with_body: bool) -> Any:
    """Return one table; a signal that only some of them have is missing in the others."""
    if not tables:
        return SCHEMA.empty_table() if with_body else _without_body(SCHEMA.empty_table())
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")


def _without_body(table: Any) -> Any:
    return table.drop_columns(c.BODY) if c.BODY in table.column_names else table


def _chars_at_start(rows: Any) -> Any:
    """Return the characters that each memory costs at start: all, where a source says nothing."""
    if AT_START not in rows.column_names:
        return rows[c.CHARS].to_numpy()
    lengths = pc.utf8_length(rows[AT_START]).cast(pa.int64())
    return pc.coalesce(lengths, rows[c.CHARS]).to_numpy()


def _counted(table: Any, counter: CountTokens) -> list[int]:
    """Return the tokens that each memory costs at start."""
    texts = zip(table["title"].to_pylist(), table["body"].to_pylist(), strict=True)
    whole = [counter(title or "") + counter(body or "") for title, body in texts]
    if AT_START not in table.column_names:
        return whole
    at_start = table[AT_START].to_pylist()
    return [n if t is None else counter(t) for n, t in zip(whole, at_start, strict=True)]


def _labelled(rows: Any, tokens: Any | None, found: list[Fault]) -> pd.DataFrame:
    """Return the frame, and add what is wrong with its rows to `found`."""
    faults = Faults(rows["position"].to_numpy(), found)
    names = [name for name in (*_STRINGS, c.BODY) if name in rows.column_names]
    # Arrays, not series: these would be aligned by their indexes, which takes longer than the rest.
    values: dict[str, Any] = {name: texts_of(rows[name]) for name in names}
    for name in (c.POSITION, c.CHARS, c.CONFIDENCE, c.ACTIVE):
        values[name] = np.array(rows[name].to_numpy())  # to be written to, which Arrow's is not
    if KEY in rows.column_names:
        values[KEY] = rows[KEY].to_pandas()
    values[c.TOKENS] = -(-_chars_at_start(rows) // CHARS_PER_TOKEN) if tokens is None else tokens
    values[c.CREATED_AT] = moments_of("created_at", rows["created_at"], faults)
    kinds, tags = Coded.of(rows["kind"]), Coded.of(rows["tags_json"])
    values[c.KIND] = kinds_of(kinds, faults)
    values[c.TAGS] = lists_of("tags_json", tags, faults)
    for name in (c.SUPERSEDES, c.EVIDENCE_REFS):
        values[name] = lists_of(f"{name}_json", Coded.of(rows[f"{name}_json"]), faults)
    values[c.LOAD_BEARING] = verdicts_of(kinds, tags)
    values[c.PRUNABLE] = values[c.ACTIVE] & ~values[c.LOAD_BEARING]
    for name in SIGNALS.names:
        if name in rows.column_names:
            values[name] = signal_of(name, rows[name])
    return pd.DataFrame({name: values[name] for name in _order(values)}, copy=False)


def _order(values: Iterable[str]) -> list[str]:
    names = [*c.DTYPES, *c.SIGNAL_DTYPES, c.LOADED_AT_START]
    names.insert(names.index(c.TITLE) + 1, c.BODY)
    names.insert(1, KEY)
    return [name for name in names if name in values]


def _first_to_last(problems: list[Fault]) -> list[Fault]:
    """Sort faults by row, and by column as the table declares them."""
    columns = {name: place for place, name in enumerate(COLUMNS)}
    return sorted(problems, key=lambda fault: (fault[0], columns.get(fault[1], len(columns))))


def _bad_row(frame: pd.DataFrame, faults: list[Fault], where: str) -> BadRowError:
    position, column, text = _first_to_last(faults)[0]
    memory_id = frame[c.MEMORY_ID].array[int(frame[c.POSITION].searchsorted(position))]
    name = None if pd.isna(memory_id) else str(memory_id)
    others = len({fault[0] for fault in faults}) - 1
    more = f" and {others} more row{'s' * (others > 1)}" if others else ""
    return BadRowError(
        f"row {position} (memory_id {name!r}) in {where} cannot be read: {text}; mend it{more}, or "
        "load with on_bad_row='keep'",
        position=position,
        memory_id=name,
        column=column,
    )


def _with_problems(frame: pd.DataFrame, faults: list[Fault]) -> pd.DataFrame:
    """Say in a column what is wrong with a row, and let no policy near it."""
    texts: dict[int, list[str]] = {}
    for position, _, text in _first_to_last(faults):
        texts.setdefault(position, []).append(text)
    problem = frame[c.POSITION].map({at: "; ".join(said) for at, said in texts.items()})
    problem = problem.astype(STR)
    bad = problem.notna()
    load_bearing, prunable = frame[c.LOAD_BEARING] | bad, frame[c.PRUNABLE] & ~bad
    flagged = {c.LOAD_BEARING: load_bearing, c.PRUNABLE: prunable, c.PROBLEM: problem}
    return pd.DataFrame({**frame, **flagged})
