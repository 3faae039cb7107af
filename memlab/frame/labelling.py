"""Read a source's rows and what they mean, as arrays: everything that a frame needs but pandas."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memlab import columns as c
from memlab.arguments import expect, texts
from memlab.errors import BadRowError
from memlab.frame.arrays import Arrays
from memlab.frame.fields import Coded, Faults, kinds_of, lists_of, moments_of, verdicts_of
from memlab.frame.tokens import CHARS_PER_TOKEN, ESTIMATE_RULE, CountTokens, token_counter
from memlab.sources.arrow import as_numbers
from memlab.sources.base import Fault, Reader, Rows, at_one_moment
from memlab.sources.opening import ADAPTERS, SourceLike, open_source
from memlab.sources.tables import AT_START, SCHEMA
from memlab.store.database import COLUMNS

OnBadRow = Literal["raise", "keep"]

_LISTS: Final = (c.TAGS, c.SUPERSEDES, c.EVIDENCE_REFS)


@dataclass(frozen=True)
class Memories:
    """The memories of a source in order of insertion, labelled.

    Attributes
    ----------
    rows : pyarrow.Table
        As the source gave them, bodies only where they were asked for.
    columns : dict of str to array
        What was made of them, by the names of :mod:`memlab.columns`: a kind is its place among
        :data:`memlab.frame.fields.KINDS`, -1 where it is none; a moment is in UTC.
    others : dict of str to list
        Columns that an agent's own version has added, as they are.
    problems : dict of int to str, optional
        By position, why a row cannot be interpreted; None where none was looked for.
    token_rule : str
        How tokens were counted, in words.
    source : str
        What the source is called, without the folders it lies in.
    """

    rows: Any
    columns: dict[str, npt.NDArray[Any]]
    others: dict[str, list[object]] = field(default_factory=dict)
    problems: dict[int, str] | None = None
    token_rule: str = ESTIMATE_RULE
    source: str = ""

    @property
    def arrays(self) -> Arrays:
        """What headline numbers are made of."""
        unreadable = np.isin(self.columns[c.POSITION], list(self.problems or ()))
        return Arrays(
            kind=self.columns[c.KIND],
            tokens=self.columns[c.TOKENS],
            created_at=self.columns[c.CREATED_AT],
            active=self.columns[c.ACTIVE],
            load_bearing=self.columns[c.LOAD_BEARING],
            prunable=self.columns[c.PRUNABLE],
            unreadable=unreadable,
            memory_id=self.rows[c.MEMORY_ID],
            superseded_by=self.rows[c.SUPERSEDED_BY],
            at_start=_at_start(self.rows),
        )


def read_memories(
    source: SourceLike,
    *,
    with_body: bool = False,
    columns: Sequence[str] = (),
    on_bad_row: OnBadRow = "raise",
    count_tokens: CountTokens | str | None = None,
) -> Memories:
    """Read a store of any kind at one moment.

    Parameters
    ----------
    source, with_body, columns, on_bad_row, count_tokens
        As for :func:`memlab.load`, which says what is raised.
    """
    columns = texts(columns, call="memlab.load", name="columns")
    expect(on_bad_row, str, call="memlab.load", name="on_bad_row")
    if on_bad_row not in ("raise", "keep"):
        raise ValueError(f"on_bad_row must be 'raise' or 'keep', not {on_bad_row!r}")
    if count_tokens is not None:
        token_counter(count_tokens)  # what is wrong with it is said before anything is read
    opened = open_source(source)

    def look(reader: Reader) -> Memories:
        batches = reader.batches(
            with_body=with_body or count_tokens is not None, columns=tuple(columns)
        )
        return memories_of(
            batches,
            name=opened.name,
            with_body=with_body,
            on_bad_row=on_bad_row,
            count_tokens=count_tokens,
            protected=opened.protected,
        )

    return at_one_moment(opened, look)


def memories_of(
    batches: Iterable[Rows],
    *,
    name: str,
    with_body: bool = False,
    on_bad_row: OnBadRow = "raise",
    count_tokens: CountTokens | str | None = None,
    protected: frozenset[str] = frozenset(),
) -> Memories:
    """Label rows, from a source that is open or from records in an archive.

    Parameters
    ----------
    batches : iterable of Rows
        With bodies where these are wanted or their tokens counted.
    name : str
        Of the source, for messages.
    with_body, on_bad_row, count_tokens
        As for :func:`memlab.load`, which says what is raised.
    protected : frozenset of str
        Tags that make a memory load-bearing, as the source has them.
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
        for column, added in rows.others.items():
            others.setdefault(column, []).extend(added)
    tokens = None if counter is None else np.array(counts, dtype=np.int64)
    table = _together(tables, with_body=with_body)
    values = _labelled(table, tokens, faults, protected)
    if faults and on_bad_row == "raise":
        raise _bad_row(table, faults, name)
    problems = _problems(values, faults) if on_bad_row == "keep" else None
    return Memories(table, values, others, problems, rule, _called(name))


def _called(name: str) -> str:
    """Return what a chart calls a store: a file or folder by its name alone, with its scheme."""
    scheme, _, path = name.partition(":")
    if "://" in name:
        return name
    if scheme not in ADAPTERS:
        return PurePath(name).name
    return f"{scheme}:{PurePath(path).name}"


def _at_start(rows: Any) -> npt.NDArray[np.bool_] | None:
    """Return which memories a source says it loads at start; None where it says nothing."""
    if c.LOADED_AT_START not in rows.column_names:
        return None
    return as_numbers(rows[c.LOADED_AT_START], np.bool_(True))  # noqa: FBT003 - unless it says so


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
        return as_numbers(rows[c.CHARS])
    lengths = pc.utf8_length(rows[AT_START]).cast(pa.int64())
    return as_numbers(pc.coalesce(lengths, rows[c.CHARS]))


def _counted(table: Any, counter: CountTokens) -> list[int]:
    """Return the tokens that each memory costs at start."""
    texts = zip(table["title"].to_pylist(), table["body"].to_pylist(), strict=True)
    whole = [counter(title or "") + counter(body or "") for title, body in texts]
    if AT_START not in table.column_names:
        return whole
    at_start = table[AT_START].to_pylist()
    return [n if t is None else counter(t) for n, t in zip(whole, at_start, strict=True)]


def _labelled(
    rows: Any,
    tokens: npt.NDArray[np.int64] | None,
    found: list[Fault],
    protected: frozenset[str],
) -> dict[str, npt.NDArray[Any]]:
    """Return what the rows mean, and add what is wrong with them to `found`."""
    faults = Faults(as_numbers(rows["position"]), found)
    values: dict[str, Any] = {}
    for name in (c.POSITION, c.CHARS, c.CONFIDENCE, c.ACTIVE):
        values[name] = as_numbers(rows[name], np.float64("nan"))
    values[c.TOKENS] = -(-_chars_at_start(rows) // CHARS_PER_TOKEN) if tokens is None else tokens
    values[c.CREATED_AT] = moments_of("created_at", rows["created_at"], faults)
    kinds = Coded.of(rows["kind"])
    values[c.KIND] = kinds_of(kinds, faults)
    lists = {name: Coded.of(rows[f"{name}_json"]) for name in _LISTS}
    for name, coded in lists.items():
        values[name] = lists_of(f"{name}_json", coded, faults)
    values[c.LOAD_BEARING] = verdicts_of(kinds, lists[c.TAGS], protected)
    values[c.PRUNABLE] = values[c.ACTIVE] & ~values[c.LOAD_BEARING]
    return values


def _problems(values: dict[str, npt.NDArray[Any]], faults: list[Fault]) -> dict[int, str]:
    """Say by position what is wrong with a row, and let no policy near it."""
    said: dict[int, list[str]] = {}
    for position, _, text in _first_to_last(faults):
        said.setdefault(position, []).append(text)
    bad = np.isin(values[c.POSITION], list(said))
    values[c.LOAD_BEARING] |= bad
    values[c.PRUNABLE] &= ~bad
    return {position: "; ".join(words) for position, words in said.items()}


def _first_to_last(problems: list[Fault]) -> list[Fault]:
    """Sort faults by row, and by column as the table declares them."""
    columns = {name: place for place, name in enumerate(COLUMNS)}
    return sorted(problems, key=lambda fault: (fault[0], columns.get(fault[1], len(columns))))


def _bad_row(rows: Any, faults: list[Fault], where: str) -> BadRowError:
    position, column, text = _first_to_last(faults)[0]
    place = int(np.searchsorted(as_numbers(rows[c.POSITION]), position))
    name = rows[c.MEMORY_ID][place].as_py()
    others = len({fault[0] for fault in faults}) - 1
    more = f" and {others} more row{'s' * (others > 1)}" if others else ""
    return BadRowError(
        f"row {position} (memory_id {name!r}) in {where} cannot be read: {text}; mend it{more}, or "
        "load with on_bad_row='keep' in Python; memlab doctor names all such rows",
        position=position,
        memory_id=name,
        column=column,
    )
