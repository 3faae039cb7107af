"""MemForge's ``warm_tier``: memories in PostgreSQL, of one agent or of all.

A deletion copies a memory into ``cold_tier`` as MemForge's eviction does, and PostgreSQL deletes
what refers to it; an undo puts all back. MemForge's audit chain is keyed by a secret of the
server's, so nothing is written there. docs/servers.md says what the role needs.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from os import environ
from typing import Any, Final

from memlab.clock import EARLIEST, LATEST, moment_and_zone
from memlab.columns import DELETED_AT, GRADUATED, IMPORTANCE
from memlab.errors import ArchiveError, CompactionError, StoreError, UnsafeDeletionError
from memlab.sources import base, postgres
from memlab.sources.address import ServerSource
from memlab.sources.postgres import CASCADE, SET_NULL, Catalogue, Row, Table, quoted, selected
from memlab.sources.reads import Asked, Found, Read
from memlab.store.records import batched
from memlab.store.shapes import fields, integer, list_of, mapping_of, optional, text

TABLE: Final = "warm_tier"
COLD: Final = "cold_tier"
"""Where MemForge moves what it deletes."""
ROWS: Final = "$rows"
"""In a record: the rows of other tables that go with the memory, by table."""
LINKS: Final = "$links"
"""In a record: the rows of other tables that lose their link to it, by table."""

_UNDATED: Final = "consolidated_at is no moment"
_FAR_YEAR: Final = re.compile(r"\d{5,}-")
"""How a moment after the year 9999 begins."""
_READ: Final = (
    "id",
    "agent_id",
    "content",
    "consolidated_at",
    "outcome_type",
    "confidence",
    "valid_until",
    "importance",
    "last_accessed",
    "access_count",
    "namespace",
    "session_id",
    "graduated",
)
_OF_MOVED: Final = ("id", "agent_id", "content", "consolidated_at", "namespace", DELETED_AT)
_MOVED: Final = f"""(
SELECT source_id AS id, agent_id, content, original_created_at AS consolidated_at, namespace,
    archived_at AS {DELETED_AT} FROM {COLD} WHERE source_table = '{TABLE}')"""
_INSERT: Final = 4
_DELETE: Final = 8
_UPDATE: Final = 16
_COPIED: Final = {
    **{name: name for name in ("content", "metadata", "namespace")},
    "consolidated_at": "original_created_at",
}
"""What ``cold_tier`` keeps of a memory, and how it calls it."""

_OTHER_ROWS: Final = mapping_of(list_of(mapping_of(optional(text))))
_MEMORY: Final = fields(
    {"id": text, "agent_id": text, "content": text, ROWS: _OTHER_ROWS, LINKS: _OTHER_ROWS},
    absent={ROWS, LINKS},
    others=optional(text),
)

_NEEDED: Final = ("id", "agent_id", "content", "consolidated_at", "importance")
"""Columns that every version of MemForge has."""


class Memforge(ServerSource):
    """The memories in ``warm_tier`` of one database."""

    setting = "WARM_TIER_MAX_PER_AGENT=%d"
    """The environment variable by which a MemForge server caps every agent."""
    revised = frozenset({IMPORTANCE, GRADUATED})
    usage_fields = (
        "access_count",
        "last_accessed",
        "retrieval_success_count",
        "first_successful_retrieval",
        "staleness_score",
        ROWS,
        LINKS,
    )

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.agent = self.address.options.get("agent") or None
        self.whose = "" if self.agent is None else "WHERE agent_id = %(agent)s"

    def known_as(self) -> str:
        """Return the store's name with what the URL leaves to the environment."""
        address = self.address

        def known(given: str | None, option: str, variable: str, otherwise: str) -> str:
            return given or address.options.get(option) or environ.get(variable) or otherwise

        user = address.user or environ.get("PGUSER") or ""
        host = known(address.where, "host", "PGHOST", "localhost")
        database = known(address.path.strip("/"), "dbname", "PGDATABASE", user)
        if ":" not in host:
            host += f":{known(None, 'port', 'PGPORT', '5432')}"
        agent = f"?agent={self.agent}" if self.agent else ""
        return f"postgresql://{host}/{database}{agent}"

    @contextmanager
    def reading(self) -> Iterator[base.Reader]:
        """Open a read-only transaction that sees one moment, however long it takes."""
        with self.transaction(write=False) as connection:
            yield MemoryReader(connection, self)

    @contextmanager
    def changing(self) -> Iterator[base.Writer]:
        """Open a transaction that is committed when the block ends."""
        with self.transaction(write=True) as connection:
            writer = MemforgeWriter(connection, self)
            writer.check_safe()
            yield writer

    def row_in(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return a memory as a row, from the texts that PostgreSQL writes for its columns."""
        title, _, body = said["content"].partition("\n")
        position = int(said["id"])
        written = _moment(said.get("consolidated_at"))
        count = said.get("access_count")
        outcome = said.get("outcome_type")
        return {
            "position": position,
            "key": position,  # of one sequence for all agents, which rollbacks skip
            "memory_id": said["id"],
            "kind": "episodic",  # its outcome is its tag
            "title": title,
            "body": body,
            "created_at": written,
            "tags_json": json.dumps([] if outcome is None else [outcome], ensure_ascii=False),
            "source_task_ref": said.get("session_id"),
            "confidence": _number(said.get("confidence")),
            "importance": _number(said.get("importance")),
            "last_accessed_at": _moment(said.get("last_accessed")),
            "access_count": None if count is None else int(count),
            "expires_at": _moment(said.get("valid_until")),
            "agent_id": said["agent_id"],
            "namespace": said.get("namespace"),
            "graduated": said.get("graduated") == "true",
            "loaded_at_start": False,
            "faults": () if written else ((position, "consolidated_at", _UNDATED),),
        }

    def iter_deleted_elsewhere(self, *, with_body: bool) -> Iterator[base.Rows]:
        """Yield what MemForge itself moved to ``cold_tier``."""
        with self.transaction(write=False) as connection:
            reader = MemoryReader(connection, self)
            if reader.catalogue.table(COLD).types:
                at = (DELETED_AT,)
                yield from reader.read(_MOVED, _OF_MOVED, with_body=with_body, columns=at)

    def check_record(self, key: base.Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that a memory of this store can have a record, and of the agent that is named."""
        if base.canonical(said) != record:
            raise ValueError("its record is not written as records are")
        _MEMORY(said)
        row = self.row_in(said)
        integer()(row["position"])
        optional(integer())(row["access_count"])
        if str(key) != said["id"]:
            raise ValueError(f"its id is {said['id']!r:.40}")
        if self.agent is not None and said["agent_id"] != self.agent:
            raise ValueError(f"it is a memory of agent {said['agent_id']!r:.80}")

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Any]:
        """Hand out a connection in a transaction, to a database that is known."""
        with postgres.one_transaction(self.address, write=write) as connection:
            found = Catalogue(connection).table(TABLE).types
            base.check_table(self.name, "MemForge", TABLE, _NEEDED, found)
            if self.agent is None and postgres.hides_rows(connection, TABLE):
                user = postgres.only(connection, "SELECT current_user::text", (), str)
                raise StoreError(
                    f"row-level security shows {user} the memories of one agent at a time: name it "
                    "by ?agent=NAME, or connect as the owner of the tables"
                )
            yield connection


class MemoryReader(base.Reader):
    """Memories in a transaction."""

    def __init__(self, connection: Any, source: Memforge) -> None:
        self.connection = connection
        self.source = source
        self.catalogue = Catalogue(connection)

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[base.Rows]:
        """Yield every memory, some at a time, in order of id."""
        known = self.catalogue.table(TABLE).types
        base.check_asked(columns, known, TABLE)
        return self.read(TABLE, known, with_body=with_body, columns=columns)

    def records(self, keys: Iterable[base.Key]) -> Iterator[tuple[base.Key, bytes]]:
        """Yield the records of those that are there, in the order of `keys`."""
        table = self.catalogue.table(TABLE)
        for some in batched(keys):
            numbers = [str(key) for key in some if str(key).isdigit()]
            found: dict[str, dict[str, Any]] = {
                memory_id: dict(row)
                for memory_id, row in postgres.rows_where(self.connection, table, "id", numbers)
                if self.source.agent in (None, row.get("agent_id"))
            }
            self._add_others(found)
            yield from ((key, base.canonical(found[str(key)])) for key in some if str(key) in found)

    def read(
        self, table: str, known: Collection[str], *, with_body: bool, columns: Sequence[str]
    ) -> Iterator[base.Rows]:
        """Yield the rows of a table, or of what is told like one, in order of id."""
        chosen = {name: f"t.{name}::text" for name in _READ if name in known}
        texts = ", ".join([*chosen.values(), *(f"t.{quoted(name)}" for name in columns)])
        query = f"SELECT {texts} FROM {table} AS t {self.source.whose} ORDER BY t.id"
        for found in postgres.streamed(self.connection, query, {"agent": self.source.agent}):
            with postgres.understood():
                told = [self.source.row_in(dict(zip(chosen, row, strict=False))) for row in found]
                others = {
                    n: [row[at] for row in found] for at, n in enumerate(columns, len(chosen))
                }
                rows = base.rows_of_each(told, with_body=with_body, others=others)
            yield rows

    def _add_others(self, memories: Mapping[str, dict[str, Any]]) -> None:
        """Add the rows that would go with memories, or lose their link to them."""
        owners: dict[str, dict[str, set[str]]] = {TABLE: {each: {each} for each in memories}}
        seen: set[tuple[Any, ...]] = set()
        for reference in self.catalogue.that_go_with(TABLE):
            table = self.catalogue.table(reference.table)
            column = reference.column
            if not table.key:
                raise UnsafeDeletionError(
                    f"the table {table.name} has no primary key to restore its rows by; give it one"
                )
            goes = reference.on_delete == CASCADE
            further = {each.to_column for each in self.catalogue.referring_to(table.name) if goes}
            above = owners.get(reference.to_table, {})
            for value, row in postgres.rows_where(self.connection, table, column, list(above)):
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
                others.sort(key=base.canonical)


class MemforgeWriter(MemoryReader, base.Writer):
    """Changes memories in one transaction."""

    likely_cause = f"a rule on {TABLE}"

    def check_safe(self) -> None:
        """Check that a deletion would do no more than what is known of it."""
        name = self.source.name
        linked = self.catalogue.that_go_with(TABLE)
        touched = {each.table: _DELETE | _INSERT for each in linked}
        touched |= {each.table: _UPDATE for each in linked if each.on_delete == SET_NULL}
        touched |= {TABLE: _DELETE | _INSERT, COLD: _DELETE | _INSERT}
        if hidden := [table for table in touched if postgres.hides_rows(self.connection, table)]:
            raise UnsafeDeletionError(
                f"row-level security may hide rows of {', '.join(hidden)} from the user of {name}; "
                "connect as the owner of the tables, or as a role with BYPASSRLS"
            )
        if triggers := postgres.triggers_on(self.connection, touched):
            raise UnsafeDeletionError(
                f"a deletion in {name} would set off {', '.join(triggers)}; take ALTER TABLE ... "
                "DISABLE TRIGGER while memlab works, or MemForge's own cap"
            )

    def conflicts(self, records: base.Records) -> list[str]:
        """Name agents that are gone, and memories that MemForge has brought back itself."""
        taken = []
        for some in batched(records):
            agents = {json.loads(record)["agent_id"] for _, record in some}
            query = "SELECT id::text FROM agents WHERE id = ANY (%s)"
            there = {each for (each,) in selected(self.connection, query, (list(agents),), str)}
            taken += [f"agent {each!r}, who is gone" for each in sorted(agents - there)]
            taken += [
                f"memory {old}, which MemForge restored as {new}"
                for old, new in selected(
                    self.connection,
                    f"SELECT c.source_id, w.id FROM {COLD} AS c JOIN {TABLE} AS w "
                    "ON w.metadata ->> '_restored_from_cold_id' = c.id::text "
                    "WHERE c.source_table = %s AND c.source_id = ANY (%s) ORDER BY 1, 2",
                    (TABLE, [key for key, _ in some]),
                    object,
                    object,
                )
            ]
        return taken

    def comparable_record(self, record: bytes) -> bytes:
        """Return what of a record a retrieval does not change."""
        return self.source.without_usage(record)

    def _stale(self, expected: Mapping[base.Key, str]) -> list[base.Key]:
        """Lock the memories, in order, against changes of them and what refers to them; compare."""
        for ids in batched(sorted(map(int, expected))):
            self.connection.execute(
                f"SELECT 1 FROM {TABLE} WHERE id = ANY (%s) ORDER BY id FOR UPDATE", (ids,)
            )
        return super()._stale(expected)

    def _count(self) -> int:
        return int(postgres.only(self.connection, f"SELECT count(*) FROM {TABLE}", (), int))

    def _delete(self, expected: Mapping[base.Key, str]) -> None:
        from psycopg.errors import IntegrityError

        warm = self.catalogue.table(TABLE).types
        cold = self.catalogue.table(COLD).types
        copied = {old: new for old, new in _COPIED.items() if old in warm and new in cold}
        try:
            for ids in batched(sorted(map(int, expected))):
                self.connection.execute(
                    f"INSERT INTO {COLD} (agent_id, source_table, source_id, "
                    f"{', '.join(copied.values())}) SELECT agent_id, '{TABLE}', id, "
                    f"{', '.join(copied)} FROM {TABLE} WHERE id = ANY (%s) ORDER BY id",
                    (ids,),
                )
                self.connection.execute(f"DELETE FROM {TABLE} WHERE id = ANY (%s)", (ids,))
        except IntegrityError as error:
            raise CompactionError(
                f"another table needs a memory that was to go ({str(error).splitlines()[0]}); all "
                "was rolled back: see what that table is for"
            ) from error

    def _insert(self, records: base.Records) -> int:
        """Put memories back with their rows; one that needs what is gone stays in the archive."""
        count = 0
        for some in batched(records):
            rows = [_own(json.loads(record)) for _, record in some]
            count += postgres.insert_rows(self.connection, self.catalogue.table(TABLE), rows)
            self.connection.execute(
                f"DELETE FROM {COLD} AS c USING {TABLE} AS w WHERE c.source_table = %s "
                "AND c.source_id = w.id AND w.id = ANY (%s) AND c.agent_id = w.agent_id "
                "AND c.content = w.content AND c.original_created_at = w.consolidated_at",
                (TABLE, [int(key) for key, _ in some]),
            )
        for some in batched(records):
            self._put_others_back([json.loads(record) for _, record in some])
        return count

    def _put_others_back(self, memories: list[dict[str, Any]]) -> None:
        """Insert rows whose other ends are there, from the memories outwards, and link others."""
        for name in dict.fromkeys(each.table for each in self.catalogue.that_go_with(TABLE)):
            table = self.catalogue.table(name)
            found = [row for m in memories for row in m.get(ROWS, {}).get(name, ())]
            self._insert_fitting(table, [*{table.key_of(row): row for row in found}.values()])
            self._link(table, [row for m in memories for row in m.get(LINKS, {}).get(name, ())])

    def _insert_fitting(self, table: Table, rows: list[Row]) -> None:
        """Insert rows that are not there and whose other ends are: all at once, else by halves."""
        from psycopg.errors import ForeignKeyViolation

        try:
            with self.connection.transaction():
                postgres.insert_rows(self.connection, table, rows, "ON CONFLICT DO NOTHING")
        except ForeignKeyViolation:
            half = len(rows) // 2
            for some in (rows[:half], rows[half:]) if half else ():
                self._insert_fitting(table, some)

    def _link(self, table: Table, links: Sequence[Row]) -> None:
        """Point rows that lost their memory to it again, unless they point elsewhere by now."""
        for row in links:
            others = row.keys() - set(table.key)
            if len(others) != 1 or not row.keys() <= table.types.keys():
                raise ArchiveError(
                    f"what the archive has of {table.name} is no link to a memory there; nothing "
                    "was restored: restore the others by their ids"
                )
            (column,) = others
            value = row[column]
            same = " AND ".join(f"{quoted(n)} = %s::text::{table.types[n]}" for n in table.key)
            self.connection.execute(
                f"UPDATE {table.name} SET {quoted(column)} = %s::text::{table.types[column]} "
                f"WHERE {same} AND {quoted(column)} IS NULL",
                [value, *table.key_of(row)],
            )

    def _check_inserted(self, records: base.Records, wanted: int) -> None:
        self._left = set[tuple[str, bytes]]()
        super()._check_inserted(records, wanted)
        self.rows_left_out = dict(Counter(table for table, _ in sorted(self._left)))

    def is_back(self, there: bytes, record: bytes) -> bool:
        """Whether a memory is as it was, and no other rows came with it."""
        now = json.loads(there)
        then = json.loads(record)
        back = _others(now)
        archived = _others(then)
        self._left |= archived - back
        return _own(now) == _own(then) and back <= archived


def _own(memory: dict[str, Any]) -> Row:
    return {name: value for name, value in memory.items() if name not in (ROWS, LINKS)}


def _others(memory: dict[str, Any]) -> set[tuple[str, bytes]]:
    """Return the rows of other tables in a record, each as something that can be compared."""
    return {
        (table, base.canonical(row)) for table, rows in memory.get(ROWS, {}).items() for row in rows
    }


def _moment(text: str | None) -> datetime | None:
    """Return a moment that PostgreSQL wrote: the nearest that Python has, None of no moment."""
    if text is None:
        return None
    if text == "-infinity" or text.endswith(" BC"):
        return EARLIEST
    if text == "infinity" or _FAR_YEAR.match(text):
        return LATEST
    with suppress(ValueError):
        return moment_and_zone(text)[0]
    return None


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def recognises(asked: Asked) -> bool:
    """Whether the source is such a database."""
    return postgres.is_server(asked.source) and {"retrieval_log", "warm_tier"} <= set(
        postgres.tables_on(asked.source)
    )


def find(asked: Asked) -> Found:
    """Return every memory that a query returned, which ``retrieval_log`` has a row for."""
    found = Found(store=asked.source)
    source = Memforge(asked.source)
    query = f"SELECT id, warm_tier_id, created_at FROM retrieval_log {source.whose} ORDER BY id"
    with source.transaction(write=False) as connection:
        for some in postgres.streamed(connection, query, {"agent": source.agent}):
            with postgres.understood():
                found.reads += [
                    Read(str(memory), moment_and_zone(str(at))[0], f"memforge:{n}", "retrieval")
                    for n, memory, at in some
                ]
    found.notes.append(
        "MemForge drops a memory's retrievals together with the memory; the log keeps them"
    )
    return found
