"""Load a store as one labelled frame."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from memlab import columns as c
from memlab.errors import BadRowError
from memlab.frame.fields import (
    Coded,
    Faults,
    interpreted,
    kinds_of,
    lists_of,
    moment_of,
    moments_of,
    verdicts_of,
)
from memlab.frame.tokens import CHARS_PER_TOKEN, ESTIMATE_RULE, CountTokens, token_counter
from memlab.items import shortened
from memlab.sources.scan import SCHEMA, TEXT, Fault, scan_rows, snapshot
from memlab.store import SqliteMemoryStore
from memlab.store.database import COLUMNS, connect, read_store, store_file

Source = str | PathLike[str] | SqliteMemoryStore
Integers = npt.NDArray[np.int64]

_STR: Final = pd.StringDtype("pyarrow", na_value=np.nan)
_STRINGS: Final = (c.MEMORY_ID, c.TITLE, c.SOURCE_TASK_REF, c.AUTHORED_BY, c.SUPERSEDED_BY)


def load(
    source: Source,
    *,
    with_body: bool = False,
    on_bad_row: Literal["raise", "keep"] = "raise",
    count_tokens: CountTokens | str | None = None,
) -> pd.DataFrame:
    """Return a store's items as a frame: one labelled row per item, in rowid order.

    Nothing is written: the file's bytes are the same after, and no file is left beside it.

    Parameters
    ----------
    source : path, ``file:`` URI or SqliteMemoryStore
        The store. What an open transaction has not committed yet is not seen.
    with_body : bool
        Whether to add the texts themselves as ``body``, most of a store's memory.
    on_bad_row : {"raise", "keep"}
        What to do about a row that cannot be interpreted. ``"keep"`` adds a column ``problem``,
        missing where there is none; such a row counts as load-bearing, and the fields that cannot
        be read are missing, 0 or ().
    count_tokens : callable or str, optional
        A function from a text to its number of tokens, or the name of a tokenizer of the ``tokens``
        extra such as ``"o200k_base"``; title and body are counted apart and added. By default
        tokens are estimated as a quarter of the characters. ``frame.attrs["token_rule"]`` says
        which it was.

    Returns
    -------
    pandas.DataFrame
        With the columns and dtypes of :data:`memlab.columns.DTYPES`, and those of
        :data:`memlab.columns.SIGNAL_DTYPES` that the store keeps.

    Raises
    ------
    StoreError
        When `source` is not a store or cannot be read.
    BadRowError
        When a row cannot be interpreted; it names the first.
    MissingExtraError
        When a tokenizer is named and the ``tokens`` extra is not installed.
    ValueError
        When an argument is none of the above.
    """
    if on_bad_row not in ("raise", "keep"):
        raise ValueError(f"on_bad_row must be 'raise' or 'keep', not {on_bad_row!r}")
    counter, rule = (None, ESTIMATE_RULE) if count_tokens is None else token_counter(count_tokens)

    stored, name = _read(source, with_body=with_body, counter=counter)
    frame = _labelled(stored)
    if stored.faults and on_bad_row == "raise":
        raise _bad_row(frame, stored.faults, name)
    if on_bad_row == "keep":
        frame = _with_problems(frame, stored.faults)
    frame.attrs[c.TOKEN_RULE] = rule
    return frame


@dataclass(frozen=True, slots=True)
class _Stored:
    """The rows of a store, their tokens if counted, its signals if it keeps any, and the faults."""

    rows: Any
    tokens: Integers | None
    signals: pd.DataFrame | None
    faults: list[Fault]


def _read(source: Source, *, with_body: bool, counter: CountTokens | None) -> tuple[_Stored, str]:
    """Return what `source` holds, and its name for a message."""
    if isinstance(source, SqliteMemoryStore):
        if source.path is None:
            with closing(connect(":memory:")) as copy:
                source.connection.backup(copy)
                return _stored([copy], with_body=with_body, counter=counter), ":memory:"
        source = source.path
    path = store_file(fspath(source))

    def read(uri: str) -> _Stored:
        with snapshot(uri) as connections:
            return _stored(connections, with_body=with_body, counter=counter)

    return read_store(path, read), str(path)


def _stored(
    connections: Sequence[sqlite3.Connection], *, with_body: bool, counter: CountTokens | None
) -> _Stored:
    names = [name for name in SCHEMA.names if with_body or name != c.BODY]
    tables, counts, faults = [SCHEMA.empty_table().select(names)], [], []
    for rows in scan_rows(connections):
        faults += rows.faults
        if counter is not None:
            counts += _counted(rows.table, counter)
        tables.append(rows.table.select(names))
    tokens = None if counter is None else np.array(counts, dtype=np.int64)
    return _Stored(pa.concat_tables(tables), tokens, _signals(connections[0]), faults)


def _counted(table: Any, counter: CountTokens) -> list[int]:
    texts = zip(table["title"].to_pylist(), table["body"].to_pylist(), strict=True)
    return [counter(title or "") + counter(body or "") for title, body in texts]


def _labelled(stored: _Stored) -> pd.DataFrame:
    """Return the frame, and add what is wrong with its rows to ``stored.faults``."""
    rows = stored.rows
    faults = Faults(rows["position"].to_numpy(), stored.faults)
    names = [name for name in (*_STRINGS, c.BODY) if name in rows.column_names]
    values: dict[str, Any] = dict(rows.select(names).to_pandas(types_mapper={TEXT: _STR}.get))
    for name in (c.POSITION, c.CHARS, c.CONFIDENCE, c.ACTIVE):
        values[name] = np.array(rows[name])  # one's own to write to, which Arrow's is not
    estimate = -(-values[c.CHARS] // CHARS_PER_TOKEN)
    values[c.TOKENS] = estimate if stored.tokens is None else stored.tokens
    values[c.CREATED_AT] = moments_of("created_at", rows["created_at"], faults)
    kinds, tags = Coded.of(rows["kind"]), Coded.of(rows["tags_json"])
    values[c.KIND] = kinds_of(kinds, faults)
    values[c.TAGS] = lists_of("tags_json", tags, faults)
    for name in (c.SUPERSEDES, c.EVIDENCE_REFS):
        values[name] = lists_of(f"{name}_json", Coded.of(rows[f"{name}_json"]), faults)
    values[c.LOAD_BEARING] = verdicts_of(kinds, tags)
    values[c.PRUNABLE] = values[c.ACTIVE] & ~values[c.LOAD_BEARING]
    if stored.signals is not None:
        values |= _aligned(stored.signals, values[c.MEMORY_ID], faults)
    return pd.DataFrame({name: values[name] for name in _order(values)}, copy=False)


def _order(values: Iterable[str]) -> list[str]:
    names = [*c.DTYPES, *c.SIGNAL_DTYPES]
    names.insert(names.index(c.TITLE) + 1, c.BODY)
    return [name for name in names if name in values]


def _signals(connection: sqlite3.Connection) -> pd.DataFrame | None:
    """Return the signals a store keeps beside its items, by memory id, as stored."""
    connection.text_factory = str
    found = connection.execute("SELECT name FROM pragma_table_info('memory_signals')")
    kept = {name for (name,) in found}
    names = [name for name in c.SIGNAL_DTYPES if name in kept]
    if c.MEMORY_ID not in kept or not names:
        return None
    rows = connection.execute(
        f"SELECT memory_id, {', '.join(names)} FROM memory_signals WHERE memory_id IS NOT NULL"
    )
    frame = pd.DataFrame(rows.fetchall(), columns=[c.MEMORY_ID, *names], dtype=object)
    return frame.drop_duplicates(c.MEMORY_ID, keep="last").set_index(c.MEMORY_ID)


def _aligned(signals: pd.DataFrame, memory_ids: pd.Series, faults: Faults) -> dict[str, pd.Series]:
    """Return one typed column per signal, a value for every id."""
    rows = signals.reindex(memory_ids)
    aligned = {}
    for name in rows.columns:
        codes, distinct = pd.factorize(rows[name])
        absent = _ABSENT.get(name)
        meanings, wrong = interpreted(_PARSERS[c.SIGNAL_DTYPES[name]], list(distinct), absent)
        faults.add(name, codes, {code: f"{name} {text}" for code, text in wrong.items()})
        typed = pd.Series([*meanings, absent], dtype=c.SIGNAL_DTYPES[name])
        aligned[name] = typed.take(codes % len(typed)).reset_index(drop=True)
    return aligned


def _shown(value: object) -> str:
    return shortened(value) if isinstance(value, str) else repr(value)


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise ValueError(f"{_shown(value)} is not a number")


def _count(value: object) -> int:
    if isinstance(value, int):
        return value
    raise ValueError(f"{_shown(value)} is not a whole number")


def _flag(value: object) -> bool:
    if value in (0, 1):
        return bool(value)
    raise ValueError(f"{_shown(value)} is neither 0 nor 1")


def _words(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{_shown(value)} is not text")


def _when(value: object) -> datetime:
    return moment_of(_words(value))


_PARSERS: Final[dict[str, Callable[[Any], Any]]] = {
    "float64": _number,
    "Int64": _count,
    "bool": _flag,
    "str": _words,
    c.TIME: _when,
}
_ABSENT: Final = {c.GRADUATED: False, c.TRUSTED: True}
"""What a flag is where nobody has set it; any other signal is missing."""


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
    problem = problem.astype(_STR)
    bad = problem.notna()
    load_bearing, prunable = frame[c.LOAD_BEARING] | bad, frame[c.PRUNABLE] & ~bad
    flagged = {c.LOAD_BEARING: load_bearing, c.PRUNABLE: prunable, c.PROBLEM: problem}
    return pd.DataFrame({**frame, **flagged})
