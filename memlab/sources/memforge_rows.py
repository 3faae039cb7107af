"""MemForge's ``warm_tier`` as rows of the frame, from the table or from records."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from memlab.clock import now_utc
from memlab.sources.base import Fault, Rows
from memlab.sources.postgres_rows import quoted

TABLE: Final = "warm_tier"
KIND: Final = "episodic"
"""Of every memory; MemForge's outcome is its tag."""

NEEDED: Final = ("id", "agent_id", "content", "consolidated_at", "importance")
"""Columns that every version of MemForge has."""

_BATCH: Final = 5000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_AFTER_THE_FIRST_LINE: Final = (
    "CASE WHEN strpos(content, E'\\n') = 0 THEN '' "
    "ELSE substr(content, strpos(content, E'\\n') + 1) END"
)
_NAMES: Final = (
    *("id", "agent_id", "title", "chars", "consolidated_at", "tag", "confidence", "active"),
    *("importance", "last_accessed", "access_count", "namespace", "session_id", "graduated"),
)


def read_rows(
    connection: Any,
    known: Collection[str],
    agent: str | None,
    *,
    with_body: bool,
    columns: Sequence[str] = (),
) -> Iterator[Rows]:
    """Yield every memory in order of id, some thousand at a time.

    Parameters
    ----------
    connection : psycopg.Connection
        In a transaction.
    known : collection of str
        Columns that the table has.
    agent : str or None
        Whose memories.
    with_body : bool
        Whether the texts are wanted.
    columns : sequence of str
        Further columns, as Python values.
    """

    def one(name: str, otherwise: str = "NULL") -> str:
        return name if name in known else otherwise

    chosen = [
        *("id", "agent_id", "split_part(content, E'\\n', 1)"),
        "char_length(content) - (strpos(content, E'\\n') > 0)::int",
        *(_micros("consolidated_at"), one("outcome_type"), one("confidence")),
        "valid_until IS NULL OR valid_until > now()" if "valid_until" in known else "true",
        *("importance", _micros(one("last_accessed")), one("access_count")),
        *(one("namespace"), one("session_id"), one("graduated", "false")),
        *((_AFTER_THE_FIRST_LINE,) if with_body else ()),
        *map(quoted, columns),
    ]
    whose = "" if agent is None else "WHERE agent_id = %(agent)s"
    with connection.cursor(name="memories") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(
            f"SELECT {', '.join(chosen)} FROM {TABLE} {whose} ORDER BY id", {"agent": agent}
        )
        found = cursor.fetchmany(_BATCH)
        while True:
            yield _rows(found, with_body=with_body, columns=columns)
            if not (found := cursor.fetchmany(_BATCH)):
                return


def rows_of_records(memories: Iterable[Mapping[str, Any]], *, with_body: bool) -> Iterator[Rows]:
    """Yield archived memories as rows, in the order given."""
    remaining = iter(memories)
    while some := list(islice(remaining, _BATCH)):
        yield _rows([_values(memory, with_body=with_body) for memory in some], with_body=with_body)


def tags_json_of(outcome: str | None) -> str:
    """Return MemForge's outcome as a JSON list of tags."""
    return "[]" if outcome is None else json.dumps([outcome], ensure_ascii=False)


def _values(memory: Mapping[str, Any], *, with_body: bool) -> list[Any]:
    """Return what :func:`read_rows` selects, from the texts in a record."""
    title, _, rest = memory["content"].partition("\n")
    until = _micros_of(memory.get("valid_until"))
    whole, count = memory["id"], memory.get("access_count")
    return [
        *(int(whole), memory["agent_id"], title, len(title) + len(rest)),
        *(_micros_of(memory.get("consolidated_at")), memory.get("outcome_type")),
        _float(memory.get("confidence")),
        until is None or until > int(now_utc().timestamp() * 1e6),
        *(_float(memory.get("importance")), _micros_of(memory.get("last_accessed"))),
        *(None if count is None else int(count), memory.get("namespace")),
        *(memory.get("session_id"), memory.get("graduated") == "true"),
        *((rest,) if with_body else ()),
    ]


def _rows(found: Sequence[Sequence[Any]], *, with_body: bool, columns: Sequence[str] = ()) -> Rows:
    import pyarrow as pa

    from memlab.sources.tables import MOMENT, rows_from

    names = (*_NAMES, "body", *columns) if with_body else (*_NAMES, *columns)
    by_name = dict(zip(names, zip(*found, strict=True), strict=False)) if found else {}
    values = {name: by_name.get(name, ()) for name in names}
    ids, sessions = values["id"], values["session_id"]
    rows: dict[str, Any] = {
        "position": ids,
        "memory_id": [str(each) for each in ids],
        "kind": [KIND] * len(ids),
        "title": values["title"],
        "created_at": pa.array(values["consolidated_at"], MOMENT),
        "tags_json": [tags_json_of(tag) for tag in values["tag"]],
        "source_task_ref": sessions,
        "confidence": values["confidence"],
        "active": values["active"],
        "chars": values["chars"],
        "importance": values["importance"],
        "last_accessed_at": pa.array(values["last_accessed"], MOMENT),
        "access_count": values["access_count"],
        "agent_id": values["agent_id"],
        "namespace": values["namespace"],
        "graduated": values["graduated"],
        "loaded_at_start": [False] * len(ids),
    }
    if with_body:
        rows["body"] = values["body"]
    undated: list[Fault] = [
        (position, "consolidated_at", "consolidated_at is not in the years 1 to 9999")
        for position, moment in zip(ids, values["consolidated_at"], strict=True)
        if moment is None
    ]
    return rows_from(rows, undated, {name: list(values[name]) for name in columns})


def _micros(column: str) -> str:
    """Return the SQL for a moment in microseconds since 1970; NULL where it is out of range."""
    if column == "NULL":
        return column
    micros = f"(extract(epoch FROM {column}) * 1000000)::bigint"
    within = f"{column} >= '0001-01-01 00:00:00+00' AND {column} < '10000-01-01 00:00:00+00'"
    return f"CASE WHEN isfinite({column}) AND {within} THEN {micros} END"


def _micros_of(text: str | None) -> int | None:
    """Return a moment as PostgreSQL writes it, in microseconds since 1970; None out of range."""
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)
