"""BetterDB's hashes as rows of the frame."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memlab.errors import StoreError
from memlab.sources.base import Fault, Rows, place_of
from memlab.sources.hashes import FOREVER, Hash, portions
from memlab.sources.tables import KEY, MOMENT, rows_from
from memlab.sources.valkey_server import Line

Value = TypeVar("Value")
Stored = tuple[bytes, Sequence[bytes | None], int]
"""A key, its values in the order of the fields asked for, and when it ends."""

KIND: Final = "episodic"
"""Of every memory; what may never be pruned has the tag ``rejected-path``."""

FIELDS: Final = (
    *("content", "created_at", "tags", "importance", "last_accessed_at", "access_count"),
    *("threadId", "agentId", "namespace"),
)
"""What the frame is made of."""

OTHERS: Final = ("source", "subject", "date", "vector")
"""What BetterDB writes besides; handed out where it is asked for by name."""

_BATCH: Final = 8192
_LAST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def read_fields(line: Line, keys: Iterable[bytes], fields: Sequence[str]) -> Iterator[list[Stored]]:
    """Yield some fields of the hashes that are there, some hundred at a time."""
    for some in portions(keys):
        asked = [c for key in some for c in (("HMGET", key, *fields), ("PEXPIRETIME", key))]
        answers = line.at_once(asked) or []
        found = zip(some, answers[::2], answers[1::2], strict=True)
        yield [(key, values, ends) for key, values, ends in found if ends >= FOREVER]


class Columns:
    """Memories as they are read, put in order at the end.

    Parameters
    ----------
    prefix : str
        What the keys begin with; the rest is the id.
    with_body : bool
        Whether the texts are wanted.
    others : sequence of str
        Some of :data:`OTHERS`.

    Raises
    ------
    StoreError
        When `others` names something else.
    """

    def __init__(self, prefix: str, *, with_body: bool, others: Sequence[str] = ()) -> None:
        if unknown := [name for name in others if name not in OTHERS]:
            raise StoreError(
                f"BetterDB's memories have no field {', '.join(unknown)} that the frame has not; "
                f"they have {', '.join(OTHERS)}"
            )
        self.fields: Final = (*FIELDS, *others)
        self._prefix = prefix
        self._with_body = with_body
        self._others = tuple(others)
        self._tables: list[Any] = []
        self._faults: dict[str, list[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return sum(len(table) for table in self._tables)

    def add(self, some: Iterable[Stored]) -> None:
        """Add memories that were just read."""
        rows = self.rows_of(list(some))
        table = rows.table
        for name in self._others:
            table = table.append_column(name, pa.array(rows.others[name], pa.binary()))
        keys = dict(zip(table["position"].to_pylist(), table[KEY].to_pylist(), strict=True))
        for position, column, text in rows.faults:
            self._faults.setdefault(keys[position], []).append((column, text))
        self._tables.append(table)

    def drop(self, keys: Collection[bytes]) -> None:
        """Take out memories that were read too early."""
        shown = [_shown(key) for key in keys]
        for key in shown:
            self._faults.pop(key, None)
        names = pa.array(shown, pa.large_string())
        self._tables = [t.filter(pc.invert(pc.is_in(t[KEY], names))) for t in self._tables]

    def in_order(self) -> Iterator[Rows]:
        """Yield all of them in order of time."""
        if not self._tables:
            self.add([])
        table = pa.concat_tables(self._tables).combine_chunks()
        table = table.sort_by([("position", "ascending"), (KEY, "ascending")])
        positions = _all_different(table["position"].to_numpy())
        at = table.schema.get_field_index("position")
        table = table.set_column(at, "position", pa.array(positions))
        for start in range(0, max(len(table), 1), _BATCH):
            part = table.slice(start, _BATCH)
            others = {name: _plain(name, part[name]) for name in self._others}
            yield Rows(part.drop_columns(list(self._others)), self._faults_of(part), others)

    def rows_of(self, some: Sequence[Stored]) -> Rows:
        """Return memories as rows, in the order given."""
        return _rows(some, self._prefix, with_body=self._with_body, others=self._others)

    def _faults_of(self, part: Any) -> list[Fault]:
        if not self._faults:
            return []
        places = zip(part["position"].to_pylist(), part[KEY].to_pylist(), strict=True)
        return [
            (position, column, text)
            for position, key in places
            for column, text in self._faults.get(key, ())
        ]


def rows_of_hashes(hashes: Iterable[tuple[str, Hash]], *, with_body: bool) -> Iterator[Rows]:
    """Yield archived memories as rows, in the order given."""
    remaining = iter(hashes)
    while some := list(islice(remaining, _BATCH)):
        stored = [
            (key.encode(), [each.fields.get(name.encode()) for name in FIELDS], each.ends)
            for key, each in some
        ]
        yield _rows(stored, None, with_body=with_body)


def tags_json_of(raw: bytes | None) -> str | None:
    """Return tags, stored with commas between them, as a JSON list; None where it is no text."""
    try:
        return _tags_json(raw or b"")
    except UnicodeDecodeError:
        return None


def _rows(
    some: Sequence[Stored], prefix: str | None, *, with_body: bool, others: Sequence[str] = ()
) -> Rows:
    wrong: dict[str, dict[int, str]] = {}
    by_field = list(zip(*(values for _, values, _ in some), strict=True)) or [()] * 99
    raw = dict(zip((*FIELDS, *others), by_field, strict=False))

    def read(name: str, meaning: Callable[[bytes], Value]) -> list[Value | None]:
        said = wrong.setdefault(name, {})
        return [
            None if v is None else _read(meaning, v, at, said) for at, v in enumerate(raw[name])
        ]

    keys = [_shown(key) for key, _, _ in some]
    written = read("created_at", _moment)
    content = read("content", bytes.decode)
    for name, values in (("created_at", written), ("content", content)):
        said = wrong[name]
        said |= {at: "is missing" for at, v in enumerate(values) if v is None and at not in said}
    ids = [key.removeprefix(prefix) if prefix else key.rpartition(":mem:")[2] for key in keys]
    positions = [place_of(ms or 0, one) for ms, one in zip(written, ids, strict=True)]
    parts = [(text or "").partition("\n") for text in content]
    missing = wrong["content"]
    columns: dict[str, Any] = {
        "position": positions,
        KEY: keys,
        "memory_id": ids,
        "kind": [KIND] * len(some),
        "title": [None if at in missing else title for at, (title, _, _) in enumerate(parts)],
        "created_at": _moments(written),
        "tags_json": [tags or "[]" for tags in read("tags", _tags_json)],
        "source_task_ref": read("threadId", bytes.decode),
        "chars": [len(title) + len(rest) for title, _, rest in parts],
        "importance": read("importance", _number),
        "last_accessed_at": _moments(read("last_accessed_at", _moment)),
        "access_count": read("access_count", _whole),
        "expires_at": _moments([None if ends == FOREVER else ends for _, _, ends in some]),
        "agent_id": read("agentId", bytes.decode),
        "namespace": read("namespace", bytes.decode),
        "thread_id": read("threadId", bytes.decode),
        "loaded_at_start": [False] * len(some),
    }
    if with_body:
        columns["body"] = [None if at in missing else r for at, (_, _, r) in enumerate(parts)]
    return rows_from(columns, _faults(wrong, positions), {name: raw[name] for name in others})


def _faults(wrong: Mapping[str, Mapping[int, str]], positions: Sequence[int]) -> list[Fault]:
    return [
        (positions[at], name, f"{name} {text}")
        for name, said in wrong.items()
        for at, text in said.items()
    ]


def _read(meaning: Callable[[bytes], Value], raw: bytes, at: int, wrong: dict[int, str]) -> Any:
    try:
        return meaning(raw)
    except UnicodeDecodeError:
        wrong[at] = "is not UTF-8"
    except ValueError as error:
        wrong[at] = str(error)
    return None


def _moment(raw: bytes) -> int:
    milliseconds = _whole(raw)
    if not -62_135_596_800_000 <= milliseconds <= _LAST:
        raise ValueError(f"{milliseconds} is not in the years 1 to 9999")
    return milliseconds


def _whole(raw: bytes) -> int:
    try:
        value = int(raw)
    except ValueError:
        raise ValueError(f"{raw[:20]!r} is not a whole number") from None
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{raw[:20]!r} is too large")
    return value


def _number(raw: bytes) -> float:
    try:
        return float(raw)
    except ValueError:
        raise ValueError(f"{raw[:20]!r} is not a number") from None


@lru_cache(maxsize=4096)
def _tags_json(raw: bytes) -> str:
    text = raw.decode()
    return json.dumps(text.split(",") if text else [], ensure_ascii=False)


def _moments(milliseconds: Sequence[int | None]) -> Any:
    return pa.array(milliseconds, pa.timestamp("ms", "UTC")).cast(MOMENT)


def _plain(name: str, values: Any) -> list[Any]:
    """Return values asked for by name: text where the field is one."""
    raw = values.to_pylist()
    if name == "vector":
        return list(raw)
    return [None if value is None else value.decode(errors="replace") for value in raw]


def _shown(key: bytes) -> str:
    """Return a key as text; one that is none is shown, and nothing can be done with it."""
    return key.decode(errors="backslashreplace")


def _all_different(positions: Any) -> Any:
    """Move memories of one place apart; they are in order."""
    rising = np.arange(len(positions), dtype=np.int64)
    return np.maximum.accumulate(positions - rising) + rising
