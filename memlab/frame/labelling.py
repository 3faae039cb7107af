"""Read a source's rows and what they mean, as arrays: everything that a frame needs but pandas."""

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
from memlab.items import REJECTED_PATH_TAG
from memlab.sources.base import Fault, Reader, Rows, read_consistent
from memlab.sources.opening import SourceLike, is_named_by_scheme, open_source
from memlab.sources.tables import AT_START, SCHEMA, as_numbers
from memlab.store.database import COLUMNS

OnBadRow = Literal["raise", "keep"]


class LoadOptions(TypedDict, total=False):
    """How memories are read; see :func:`memlab.load`."""

    with_body: bool
    on_bad_row: OnBadRow
    count_tokens: fields.CountTokens | str | None


_LISTS: Final = (c.TAGS, c.SUPERSEDES, c.EVIDENCE_REFS)
_NUMBERS: Final = (c.POSITION, c.CHARS, c.CONFIDENCE, c.ACTIVE)


@dataclass(frozen=True)
class Labelled:
    """The memories of a source in order of insertion, labelled."""

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
        """What headline numbers are made of."""
        unreadable = np.isin(self.columns[c.POSITION], list(self.problems or ()))
        return fields.Arrays(
            **{
                name: self.columns[name]
                for name in (c.KIND, c.TOKENS, c.CREATED_AT, *fields.LABELS)
            },
            unreadable=unreadable,
            memory_id=self.rows[c.MEMORY_ID],
            superseded_by=self.rows[c.SUPERSEDED_BY],
            at_start=self._signal(c.LOADED_AT_START, np.bool_(True)),  # noqa: FBT003 - unless it says so
            namespace=self._texts(c.NAMESPACE),
            without_zone=self.without_zone,
            retired_at=self._signal(c.RETIRED_AT, fields.NAT),
            position=self.columns[c.POSITION],
            index_state=self._texts(c.INDEX_STATE),
            doubt=self._texts(c.DOUBT),
            rejected=self._rejected(),
        )

    def _rejected(self) -> fields.Flags:
        """Return which memories are tagged as rejected paths; equal lists of tags are read once."""
        tags = self.lists[c.TAGS]
        means = [f'"{REJECTED_PATH_TAG}"' in text for text in tags.texts()]
        return np.array([*means, False])[tags.codes]

    def _texts(self, name: str) -> Any | None:
        """Return a column of texts that only some sources have; None where this has none."""
        return self.rows[name] if name in self.rows.column_names else None

    def _signal(self, name: str, missing: np.generic) -> npt.NDArray[Any] | None:
        """Return what the source says of each memory; None where it says nothing of any."""
        return as_numbers(self.rows[name], missing) if name in self.rows.column_names else None


def read_memories(
    source: SourceLike, *, columns: Sequence[str] = (), **how: Unpack[LoadOptions]
) -> Labelled:
    """Read a store of any kind at one moment."""
    columns = texts(columns, call="memlab.load", name="columns")
    on_bad_row = how.get("on_bad_row", "raise")
    count_tokens = how.get("count_tokens")
    expect(on_bad_row, str, call="memlab.load", name="on_bad_row")
    if on_bad_row not in ("raise", "keep"):
        raise ValueError(f"on_bad_row must be 'raise' or 'keep', not {on_bad_row!r}")
    opened = open_source(source)

    def look(reader: Reader) -> Labelled:
        with_body = bool(how.get("with_body")) or count_tokens is not None
        batches = reader.batches(with_body=with_body, columns=tuple(columns))
        return memories_of(batches, name=opened.name, protected=opened.protected, **how)

    return read_consistent(opened, look)


def memories_of(
    batches: Iterable[Rows],
    *,
    name: str,
    with_body: bool = False,
    on_bad_row: OnBadRow = "raise",
    count_tokens: fields.CountTokens | str | None = None,
    protected: frozenset[str] = frozenset(),
) -> Labelled:
    """Label rows, from a source that is open or from records in an archive."""
    counter, rule = (
        (None, fields.ESTIMATE_RULE) if count_tokens is None else fields.token_counter(count_tokens)
    )
    tables: list[Any] = []
    faults: list[Fault] = []
    parts: list[dict[str, npt.NDArray[Any]]] = []
    others: dict[str, list[object]] = {}
    without_zone = 0
    for rows in batches:
        faults += rows.faults
        values, zoneless = _read(rows.table, counter, faults)
        parts.append(values)
        without_zone += zoneless
        tables.append(_unread(rows.table, with_body=with_body))
        for column, added in rows.others.items():
            others.setdefault(column, []).extend(added)
    if not parts:
        parts.append(_read(SCHEMA.empty_table(), None, faults)[0])
        tables.append(_unread(SCHEMA.empty_table(), with_body=with_body))
    several = len(tables) > 1
    table = pa.concat_tables(tables, promote_options="default") if several else tables[0]
    values = {each: np.concatenate([part.pop(each) for part in parts]) for each in list(parts[0])}
    kinds = fields.Coded.of(table[c.KIND])
    found = fields.Faults(values[c.POSITION], faults)
    values[c.KIND] = fields.kinds_of(kinds, found)
    lists = {each: fields.Coded.of(table[f"{each}_json"]) for each in _LISTS}
    for each, coded in lists.items():
        fields.check_lists(f"{each}_json", coded, found)
    values[c.LOAD_BEARING] = fields.verdicts_of(kinds, lists[c.TAGS], protected)
    values[c.PRUNABLE] = values[c.ACTIVE] & ~values[c.LOAD_BEARING]
    if faults and on_bad_row == "raise":
        raise _bad_row(table, values[c.POSITION], faults, name)
    problems = _problems(values, faults) if on_bad_row == "keep" else None
    table = table.drop_columns([c.KIND, *(f"{each}_json" for each in _LISTS)])
    return Labelled(table, values, lists, others, problems, rule, called(name), without_zone)


def called(name: str) -> str:
    """Return what charts and pages, which are passed on, call a store: nothing of where it lies."""
    if "://" in name:
        return name
    if not is_named_by_scheme(name):
        return PurePath(name).name
    scheme, _, rest = name.partition(":")
    path, mark, options = rest.partition("?")
    return f"{scheme}:{PurePath(path).name}{mark}{options}"


def _unread(table: Any, *, with_body: bool) -> Any:
    """Return the columns of a batch that :func:`_read` leaves to be read."""
    dropped = [*_NUMBERS, c.CREATED_AT, AT_START, *([] if with_body else [c.BODY])]
    return table.drop_columns([name for name in dropped if name in table.column_names])


def _read(
    table: Any, counter: fields.CountTokens | None, found: list[Fault]
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Return the numbers and moments of a batch, and how many of the latter have no zone."""
    values = {name: as_numbers(table[name], np.float64("nan")) for name in _NUMBERS}
    faults = fields.Faults(values[c.POSITION], found)
    values[c.CREATED_AT], without_zone = fields.moments_of(
        "created_at", table["created_at"], faults
    )
    if counter is None:
        values[c.TOKENS] = -(-_chars_at_start(table) // fields.CHARS_PER_TOKEN)
    else:
        values[c.TOKENS] = np.array(_counted(table, counter), dtype=np.int64)
    return values, without_zone


def _chars_at_start(rows: Any) -> Any:
    """Return the characters that each memory costs at start: all, where a source says nothing."""
    if AT_START not in rows.column_names:
        return as_numbers(rows[c.CHARS])
    lengths = pc.utf8_length(rows[AT_START]).cast(pa.int64())
    return as_numbers(pc.coalesce(lengths, rows[c.CHARS]))


def _counted(table: Any, counter: fields.CountTokens) -> list[int]:
    texts = zip(table["title"].to_pylist(), table["body"].to_pylist(), strict=True)
    whole = [counter(title or "") + counter(body or "") for title, body in texts]
    if AT_START not in table.column_names:
        return whole
    at_start = table[AT_START].to_pylist()
    return [n if t is None else counter(t) for n, t in zip(whole, at_start, strict=True)]


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


def _bad_row(rows: Any, positions: fields.Ints, faults: list[Fault], where: str) -> BadRowError:
    position, column, text = _first_to_last(faults)[0]
    place = int(np.searchsorted(positions, position))
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
