"""MemForge's memories in a transaction: as rows of the frame, and with all that belongs to them."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from memlab.columns import DELETED_AT
from memlab.errors import UnsafeDeletionError
from memlab.sources.base import (
    Key,
    Reader,
    Rows,
    canonical,
    check_asked,
    portions,
    rows_of_each,
)
from memlab.sources.postgres import CASCADE, Catalogue, quoted, rows_where, streamed, understood

TABLE: Final = "warm_tier"
COLD: Final = "cold_tier"
"""Where MemForge moves what it deletes."""
ROWS: Final = "$rows"
"""In a record: the rows of other tables that go with the memory, by table."""
LINKS: Final = "$links"
"""In a record: the rows of other tables that lose their link to it, by table."""
KIND: Final = "episodic"
"""Of every memory; MemForge's outcome is its tag."""

_CHARS: Final = "$chars"
"""Of title and body together, where the body was not asked for."""
_UNDATED: Final = "consolidated_at is not in the years 1 to 9999"
_READ: Final = (
    *("id", "agent_id", "content", "consolidated_at", "outcome_type", "confidence", "valid_until"),
    *("importance", "last_accessed", "access_count", "namespace", "session_id", "graduated"),
)
_OF_USE: Final = (
    *("access_count", "last_accessed", "retrieval_success_count", "first_successful_retrieval"),
    *("staleness_score", ROWS, LINKS),
)
_OF_MOVED: Final = ("id", "agent_id", "content", "consolidated_at", "namespace", DELETED_AT)
_MOVED: Final = f"""(
SELECT source_id AS id, agent_id, content, original_created_at AS consolidated_at, namespace,
    archived_at AS {DELETED_AT} FROM {COLD} WHERE source_table = '{TABLE}')"""


class MemoryReader(Reader):
    """Memories in a transaction."""

    def __init__(self, connection: Any, agent: str | None) -> None:
        self.connection = connection
        self.agent = agent
        self.catalogue = Catalogue(connection)

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield every memory, some at a time, in order of id."""
        known = self.catalogue.table(TABLE).types
        check_asked(columns, known, TABLE)
        return self._read(TABLE, known, with_body=with_body, columns=columns)

    def moved_away(self, *, with_body: bool) -> Iterator[Rows]:
        """Yield what ``cold_tier`` keeps of memories, with when they went there."""
        if not self.catalogue.exists(COLD):
            return iter(())
        return self._read(_MOVED, _OF_MOVED, with_body=with_body, columns=(DELETED_AT,))

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of those that are there, in the order of `keys`."""
        table = self.catalogue.table(TABLE)
        for some in portions(keys):
            numbers = [str(key) for key in some if str(key).isdigit()]
            found: dict[str, dict[str, Any]] = {
                memory_id: dict(row)
                for memory_id, row in rows_where(self.connection, table, "id", numbers)
                if self.agent is None or row.get("agent_id") == self.agent
            }
            self._add_others(found)
            yield from ((key, canonical(found[str(key)])) for key in some if str(key) in found)

    def _read(
        self, table: str, known: Collection[str], *, with_body: bool, columns: Sequence[str]
    ) -> Iterator[Rows]:
        names = [name for name in _READ if name in known]
        chosen = [f"t.{name}::text" for name in names]
        if not with_body:
            names.append(_CHARS)
            chosen[names.index("content")] = "split_part(t.content, E'\\n', 1)"
            chosen.append("(char_length(t.content) - (strpos(t.content, E'\\n') > 0)::int)::text")
        chosen += [f"t.{quoted(name)}" for name in columns]
        whose = "" if self.agent is None else "WHERE t.agent_id = %(agent)s"
        query = f"SELECT {', '.join(chosen)} FROM {table} AS t {whose} ORDER BY t.id"
        for found in streamed(self.connection, query, {"agent": self.agent}):
            yield _rows(found, names, columns)

    def _add_others(self, memories: Mapping[str, dict[str, Any]]) -> None:
        """Add the rows that would go with memories, or lose their link to them."""
        owners: dict[str, dict[str, set[str]]] = {TABLE: {each: {each} for each in memories}}
        seen: set[tuple[Any, ...]] = set()
        for reference in self.catalogue.that_go_with(TABLE):
            table, column = self.catalogue.table(reference.table), reference.column
            if not table.key:
                raise UnsafeDeletionError(
                    f"the table {table.name} has no primary key, by which its rows could be put "
                    "back",
                    instead=f"give {table.name} a primary key",
                )
            goes = reference.on_delete == CASCADE
            further = {each.to_column for each in self.catalogue.referring_to(table.name) if goes}
            above = owners.get(reference.to_table, {})
            for value, row in rows_where(self.connection, table, column, list(above)):
                whose = above.get(value, set())
                for end in filter(None, map(row.get, further)):
                    owners.setdefault(table.name, {}).setdefault(end, set()).update(whose)
                link = {name: row.get(name) for name in (*table.key, column)}
                for memory_id in whose:
                    place = (memory_id, table.name, table.key_of(row), None if goes else column)
                    if place not in seen:
                        seen.add(place)
                        kind = memories[memory_id].setdefault(ROWS if goes else LINKS, {})
                        kind.setdefault(table.name, []).append(row if goes else link)
        for memory in memories.values():
            for others in (*memory.get(ROWS, {}).values(), *memory.get(LINKS, {}).values()):
                others.sort(key=canonical)


@understood()
def _rows(found: list[Any], names: Sequence[str], columns: Sequence[str]) -> Rows:
    told = [row_of(dict(zip(names, row, strict=False))) for row in found]
    others = {name: [row[at] for row in found] for at, name in enumerate(columns, len(names))}
    return rows_of_each(told, with_body=True, others=others)


def lasting_of(record: bytes) -> bytes:
    """Return what of a record a retrieval does not change."""
    return canonical({name: v for name, v in json.loads(record).items() if name not in _OF_USE})


def row_of(memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return a memory as a row, from the texts that PostgreSQL writes for its columns."""
    title, _, body = memory["content"].partition("\n")
    position = int(memory["id"])
    written = _moment(memory.get("consolidated_at"))
    count = memory.get("access_count")
    length = {"chars": int(memory[_CHARS])} if _CHARS in memory else {"body": body}
    return {
        "position": position,
        "key": position,  # of one sequence for all agents, which rollbacks skip
        "memory_id": memory["id"],
        "kind": KIND,
        "title": title,
        **length,
        "created_at": written,
        "tags_json": _tags_json(memory.get("outcome_type")),
        "source_task_ref": memory.get("session_id"),
        "confidence": _number(memory.get("confidence")),
        "importance": _number(memory.get("importance")),
        "last_accessed_at": _moment(memory.get("last_accessed")),
        "access_count": None if count is None else int(count),
        "expires_at": _moment(memory.get("valid_until")),
        "agent_id": memory["agent_id"],
        "namespace": memory.get("namespace"),
        "graduated": memory.get("graduated") == "true",
        "loaded_at_start": False,
        "faults": () if written else ((position, "consolidated_at", _UNDATED),),
    }


@lru_cache(maxsize=64)
def _tags_json(outcome: str | None) -> str:
    return "[]" if outcome is None else json.dumps([outcome], ensure_ascii=False)


def _moment(text: str | None) -> datetime | None:
    """Return a moment that Python has; None of those before the year 1 and after 9999."""
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)
