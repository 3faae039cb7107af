"""Reading of a source's rows as labelled arrays, without pandas."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, Literal, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memlab import columns as c
from memlab.arguments import expect, texts
from memlab.errors import BadRowError
from memlab.frame import fields
from memlab.items import CHARS_PER_TOKEN, REJECTED_PATH_TAG
from memlab.sources.base import read_consistent
from memlab.sources.opening import SourceLike, is_named_by_scheme, open_source
from memlab.sources.readers import Fault, Reader, Rows
from memlab.sources.tables import AT_START, SCHEMA, as_numbers
from memlab.store.database import COLUMNS

OnBadRow = Literal["raise", "keep"]


class LoadOptions(TypedDict, total=False):
    """Options of reading memories; see :func:`memlab.load`."""

    with_body: bool
    on_bad_row: OnBadRow
    count_tokens: fields.CountTokens | str | None


_LISTS: Final = (c.TAGS, c.SUPERSEDES, c.EVIDENCE_REFS)
_NUMBERS: Final = (c.POSITION, c.CHARS, c.CONFIDENCE, c.ACTIVE)


@dataclass(frozen=True)
class Labelled:
    """The memories of a source in order of insertion, labelled.

    Attributes
    ----------
    rows : Arrow table
        The columns that stay as they were read.
    columns : dict
        The numeric columns and the labels, as arrays by column.
    lists : dict
        The columns of JSON lists, such as tags, by column.
    others : dict
        The columns that an agent added, by column.
    problems : dict or None
        By position, the faults of rows that were kept; None if a fault raises an error.
    token_rule, source : str
        How tokens were counted, and the name of the store.
    without_zone : int
        Number of creation times without a time zone.
    """

    rows: Any
    columns: dict[str, npt.NDArray[Any]]
    lists: dict[str, fields.Coded]
    others: dict[str, list[object]] = field(default_factory=dict)
    problems: dict[int, str] | None = None
    token_rule: str = fields.ESTIMATE_RULE
    source: str = ""
    without_zone: int = 0

    @property
    def arrays(self) -> fields.Arrays:
        """The memories as arrays, without texts."""
        is_loaded = np.bool_(True)  # noqa: FBT003 - the default of a source that does not say
        return fields.Arrays(
            kind=self.columns[c.KIND],
            tokens=self.columns[c.TOKENS],
            created_at=self.columns[c.CREATED_AT],
            active=self.columns[c.ACTIVE],
            load_bearing=self.columns[c.LOAD_BEARING],
            prunable=self.columns[c.PRUNABLE],
            unreadable=np.isin(self.columns[c.POSITION], list(self.problems or ())),
            memory_id=self.rows[c.MEMORY_ID],
            superseded_by=self.rows[c.SUPERSEDED_BY],
            at_start=self._optional_numbers(c.LOADED_AT_START, is_loaded),
            namespace=self._optional_texts(c.NAMESPACE),
            without_zone=self.without_zone,
            retired_at=self._optional_numbers(c.RETIRED_AT, fields.NAT),
            position=self.columns[c.POSITION],
            index_state=self._optional_texts(c.INDEX_STATE),
            doubt=self._optional_texts(c.DOUBT),
            rejected=self._rejected(),
        )

    def _rejected(self) -> fields.Flags:
        """Flag the memories that are tagged as rejected paths; equal tags are read once."""
        tags = self.lists[c.TAGS]
        is_rejected = [f'"{REJECTED_PATH_TAG}"' in text for text in tags.texts()]
        return np.array([*is_rejected, False])[tags.codes]  # code -1 is a missing text

    def _optional_texts(self, name: str) -> Any | None:
        """Return a column of texts; None if this source has none."""
        return self.rows[name] if name in self.rows.column_names else None

    def _optional_numbers(self, name: str, missing: np.generic) -> npt.NDArray[Any] | None:
        """Return a numeric column; None if this source has none.

        `missing` is the number of a row without a value.
        """
        return as_numbers(self.rows[name], missing) if name in self.rows.column_names else None


def read_memories(
    source: SourceLike, *, columns: Sequence[str] = (), **options: Unpack[LoadOptions]
) -> Labelled:
    """Load the memories of a store of any kind, in one consistent read."""
    columns = texts(columns, call="memlab.load", name="columns")
    on_bad_row = options.get("on_bad_row", "raise")
    count_tokens = options.get("count_tokens")
    expect(on_bad_row, str, call="memlab.load", name="on_bad_row")
    if on_bad_row not in ("raise", "keep"):
        raise ValueError(f"on_bad_row must be 'raise' or 'keep', not {on_bad_row!r}")
    opened = open_source(source)

    def read(reader: Reader) -> Labelled:
        with_body = bool(options.get("with_body")) or count_tokens is not None
        batches = reader.batches(with_body=with_body, columns=tuple(columns))
        return memories_of(batches, name=opened.name, protected=opened.protected, **options)

    return read_consistent(opened, read)


def memories_of(
    batches: Iterable[Rows],
    *,
    name: str,
    with_body: bool = False,
    on_bad_row: OnBadRow = "raise",
    count_tokens: fields.CountTokens | str | None = None,
    protected: frozenset[str] = frozenset(),
) -> Labelled:
    """Label rows, from an open source or from records in an archive."""
    counter: fields.CountTokens | None = None
    token_rule = fields.ESTIMATE_RULE
    if count_tokens is not None:
        counter, token_rule = fields.token_counter(count_tokens)
    tables: list[Any] = []
    faults: list[Fault] = []
    values_of_batches: list[dict[str, npt.NDArray[Any]]] = []
    others: dict[str, list[object]] = {}
    without_zone = 0
    for batch in batches:
        faults += batch.faults
        batch_values, batch_without_zone = _read(batch.table, counter, faults)
        values_of_batches.append(batch_values)
        without_zone += batch_without_zone
        tables.append(_other_columns(batch.table, with_body=with_body))
        for column, added in batch.others.items():
            others.setdefault(column, []).extend(added)
    if not values_of_batches:
        empty = SCHEMA.empty_table()
        empty_values, _ = _read(empty, None, faults)
        values_of_batches.append(empty_values)
        tables.append(_other_columns(empty, with_body=with_body))
    table = tables[0]
    if len(tables) > 1:
        table = pa.concat_tables(tables, promote_options="default")
    values = _concatenated(values_of_batches)
    kinds = fields.Coded.of(table[c.KIND])
    collected = fields.Faults(values[c.POSITION], faults)
    values[c.KIND] = fields.kinds_of(kinds, collected)
    lists = {column: fields.Coded.of(table[f"{column}_json"]) for column in _LISTS}
    for column, coded in lists.items():
        fields.check_lists(f"{column}_json", coded, collected)
    values[c.LOAD_BEARING] = fields.load_bearing_of(kinds, lists[c.TAGS], protected)
    values[c.PRUNABLE] = values[c.ACTIVE] & ~values[c.LOAD_BEARING]
    if faults and on_bad_row == "raise":
        raise _bad_row(table, values[c.POSITION], faults, name)
    problems = _problems(values, faults) if on_bad_row == "keep" else None
    converted = [c.KIND]
    converted += [f"{column}_json" for column in _LISTS]
    table = table.drop_columns(converted)
    return Labelled(
        rows=table,
        columns=values,
        lists=lists,
        others=others,
        problems=problems,
        token_rule=token_rule,
        source=name_for_charts(name),
        without_zone=without_zone,
    )


def _concatenated(
    values_of_batches: list[dict[str, npt.NDArray[Any]]],
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of all batches, and empty the batches."""
    values = {}
    for column in list(values_of_batches[0]):
        # `pop` frees the column of each batch, so that it is not in memory twice
        values[column] = np.concatenate(
            [batch_values.pop(column) for batch_values in values_of_batches]
        )
    return values


def short_name(name: str) -> str:
    """Return the name of a store without its folder."""
    if "://" in name:
        return name
    if not is_named_by_scheme(name):
        return PurePath(name).name
    scheme, _, location = name.partition(":")
    path, separator, options = location.partition("?")
    return f"{scheme}:{PurePath(path).name}{separator}{options}"


def name_for_charts(name: str) -> str:
    """Return the name of a store for charts and pages.

    All memory folders of Claude Code are called ``memory``, so the name includes the project.

    >>> name_for_charts("/srv/memory.db")
    'memory.db'
    >>> name_for_charts("/home/u/.claude/projects/-work-app/memory")
    '-work-app/memory'
    """
    path = PurePath(name)
    is_of_project = path.name == "memory" and path.parent.parent.name == "projects"
    if is_of_project:
        return f"{path.parent.name}/{path.name}"
    return short_name(name)


def _other_columns(table: Any, *, with_body: bool) -> Any:
    """Return the columns of a batch that :func:`_read` does not convert."""
    dropped = {*_NUMBERS, c.CREATED_AT, AT_START}
    if not with_body:
        dropped.add(c.BODY)
    return table.drop_columns([name for name in table.column_names if name in dropped])


def _read(
    table: Any, counter: fields.CountTokens | None, fault_list: list[Fault]
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Return the numbers and moments of a batch, and the number of moments without a zone."""
    values = {name: as_numbers(table[name], np.float64("nan")) for name in _NUMBERS}
    faults = fields.Faults(values[c.POSITION], fault_list)
    values[c.CREATED_AT], without_zone = fields.moments_of(
        "created_at", table["created_at"], faults
    )
    if counter is None:
        # divided and rounded up
        values[c.TOKENS] = -(-_chars_at_start(table) // CHARS_PER_TOKEN)
    else:
        values[c.TOKENS] = np.array(_count_tokens(table, counter), dtype=np.int64)
    return values, without_zone


def _chars_at_start(rows: Any) -> Any:
    """Return, for each memory, the number of characters that a start loads; by default all."""
    if AT_START not in rows.column_names:
        return as_numbers(rows[c.CHARS])
    lengths = pc.utf8_length(rows[AT_START]).cast(pa.int64())
    return as_numbers(pc.coalesce(lengths, rows[c.CHARS]))


def _count_tokens(table: Any, counter: fields.CountTokens) -> list[int]:
    """Count, for each memory, the tokens that a start loads."""
    titles_and_bodies = zip(table["title"].to_pylist(), table["body"].to_pylist(), strict=True)
    tokens = [counter(title or "") + counter(body or "") for title, body in titles_and_bodies]
    if AT_START in table.column_names:
        for row, text in enumerate(table[AT_START].to_pylist()):
            if text is not None:
                tokens[row] = counter(text)
    return tokens


def _problems(values: dict[str, npt.NDArray[Any]], faults: list[Fault]) -> dict[int, str]:
    """Return the faults of each row by position, and make rows with faults load-bearing."""
    reasons_by_position: dict[int, list[str]] = {}
    for fault in _first_to_last(faults):
        reasons_by_position.setdefault(fault.position, []).append(fault.reason)
    is_bad = np.isin(values[c.POSITION], list(reasons_by_position))
    values[c.LOAD_BEARING] |= is_bad
    values[c.PRUNABLE] &= ~is_bad
    return {position: "; ".join(reasons) for position, reasons in reasons_by_position.items()}


def _first_to_last(faults: list[Fault]) -> list[Fault]:
    """Return faults sorted by row, and by column as the table declares them."""
    order = {name: number for number, name in enumerate(COLUMNS)}
    return sorted(faults, key=lambda fault: (fault.position, order.get(fault.column, len(order))))


def _bad_row(rows: Any, positions: fields.Ints, faults: list[Fault], name: str) -> BadRowError:
    """Return the error for the first row that cannot be interpreted."""
    position, column, text = _first_to_last(faults)[0]
    row = int(np.searchsorted(positions, position))
    memory_id = rows[c.MEMORY_ID][row].as_py()
    other_rows = len({fault.position for fault in faults}) - 1
    remark = ""
    if other_rows:
        remark = f" and {other_rows} more row{'s' if other_rows > 1 else ''}"
    return BadRowError(
        f"row {position} (memory_id {memory_id!r}) in {name} cannot be read: {text}; mend it"
        f"{remark}, or load with on_bad_row='keep' in Python; memlab doctor names all such rows",
        position=position,
        memory_id=memory_id,
        column=column,
    )
