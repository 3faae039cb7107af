"""MemForge's ``warm_tier``: memories in PostgreSQL, of one agent or of all.

A deletion copies a memory into ``cold_tier``, as MemForge's eviction does. PostgreSQL deletes the
rows that refer to it, and an undo restores all of them. MemForge's audit chain is keyed by a secret
of the server, so memlab writes no entries there. docs/servers.md lists the rights the role needs.
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
from memlab.sources import base, postgres, readers
from memlab.sources.address import ServerSource
from memlab.sources.capabilities import ExternalHistory, NativeCap
from memlab.sources.postgres import CASCADE, SET_NULL, Catalogue, Row, Table, quoted, selected
from memlab.sources.reads import HarvestRequest, HarvestResult, Read
from memlab.store.records import batched
from memlab.store.shapes import check_integer, fields, integer, list_of, mapping_of, optional, text

TABLE: Final = "warm_tier"
COLD: Final = "cold_tier"
"""The table to which MemForge moves deleted memories."""
ROWS: Final = "$rows"
"""Key in a record: the rows of other tables that are deleted with the memory, by table."""
LINKS: Final = "$links"
"""Key in a record: the rows of other tables that lose their link to the memory, by table."""

_NO_TIME: Final = "consolidated_at is no moment"
_FAR_YEAR: Final = re.compile(r"\d{5,}-")
"""Beginning of a date after the year 9999."""
_COLUMNS_OF_ROW: Final = (
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
_COLUMNS_OF_MOVED: Final = ("id", "agent_id", "content", "consolidated_at", "namespace", DELETED_AT)
_SELECT_MOVED: Final = f"""(
SELECT source_id AS id, agent_id, content, original_created_at AS consolidated_at, namespace,
    archived_at AS {DELETED_AT} FROM {COLD} WHERE source_table = '{TABLE}')"""
# Bits of pg_trigger.tgtype: the events that set off a trigger.
_INSERT: Final = 4
_DELETE: Final = 8
_UPDATE: Final = 16
_COLD_COLUMN: Final = {
    "content": "content",
    "metadata": "metadata",
    "namespace": "namespace",
    "consolidated_at": "original_created_at",
}
"""Column of ``cold_tier`` into which each column of a memory is copied."""

_OTHER_ROWS: Final = mapping_of(list_of(mapping_of(optional(text))))
_MEMORY: Final = fields(
    {"id": text, "agent_id": text, "content": text, ROWS: _OTHER_ROWS, LINKS: _OTHER_ROWS},
    may_be_absent={ROWS, LINKS},
    others=optional(text),
)

_NEEDED: Final = ("id", "agent_id", "content", "consolidated_at", "importance")
"""Columns that every version of MemForge has."""


class Memforge(ServerSource):
    """The memories in ``warm_tier`` of one database."""

    native_cap = NativeCap("WARM_TIER_MAX_PER_AGENT=%d")
    """The environment variable by which a MemForge server caps every agent."""
    overwritten_signals = frozenset({IMPORTANCE, GRADUATED})
    usage_fields = (
        "access_count",
        "last_accessed",
        "retrieval_success_count",
        "first_successful_retrieval",
        "staleness_score",
        ROWS,
        LINKS,
    )

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.agent: str | None = None
        if self.address.options.get("agent"):
            self.agent = self.address.options["agent"]
        self.agent_condition = "" if self.agent is None else "WHERE agent_id = %(agent)s"

    def canonical_name(self) -> str:
        """Return the URL of the store, completed from the environment variables of PostgreSQL."""
        address = self.address

        def first_given(in_url: str | None, option: str, variable: str, default: str) -> str:
            return in_url or address.options.get(option) or environ.get(variable) or default

        user = address.user or environ.get("PGUSER") or ""
        host = first_given(address.hosts, "host", "PGHOST", "localhost")
        database = first_given(address.path.strip("/"), "dbname", "PGDATABASE", user)
        if ":" not in host:
            host += f":{first_given(None, 'port', 'PGPORT', '5432')}"
        agent = f"?agent={self.agent}" if self.agent else ""
        return f"postgresql://{host}/{database}{agent}"

    @contextmanager
    def reading(self) -> Iterator[readers.Reader]:
        """Open a read-only transaction on one snapshot of the database."""
        with self.transaction(write=False) as connection:
            yield MemoryReader(connection, self)

    @contextmanager
    def changing(self) -> Iterator[readers.Writer]:
        """Open a transaction that is committed at the end of the block."""
        with self.transaction(write=True) as connection:
            writer = MemforgeWriter(connection, self)
            writer.check_safe()
            yield writer

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """Return a memory as a row, from the PostgreSQL text of its columns."""
        title, _, body = parsed["content"].partition("\n")
        position = int(parsed["id"])
        created_at = _moment(parsed.get("consolidated_at"))
        count = parsed.get("access_count")
        outcome = parsed.get("outcome_type")
        faults = []
        if created_at is None:
            faults.append(readers.Fault(position, "consolidated_at", _NO_TIME))
        return {
            "position": position,
            # Ids come from one sequence for all agents, with gaps after rollbacks. So the id of a
            # memory is its key, and a gap is no sign of a deletion.
            "key": position,
            "memory_id": parsed["id"],
            # A memory has no type. The outcome of its task (``outcome_type``) becomes a tag.
            "kind": "episodic",
            "title": title,
            "body": body,
            "created_at": created_at,
            "tags_json": json.dumps([] if outcome is None else [outcome], ensure_ascii=False),
            "source_task_ref": parsed.get("session_id"),
            "confidence": _number(parsed.get("confidence")),
            "importance": _number(parsed.get("importance")),
            "last_accessed_at": _moment(parsed.get("last_accessed")),
            "access_count": None if count is None else int(count),
            "expires_at": _moment(parsed.get("valid_until")),
            "agent_id": parsed["agent_id"],
            "namespace": parsed.get("namespace"),
            "graduated": parsed.get("graduated") == "true",
            "loaded_at_start": False,
            "faults": faults,
        }

    @property
    def external_history(self) -> "ColdTier":
        """The memories in ``cold_tier``."""
        return ColdTier(self)

    def check_record(self, key: readers.Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Raise ValueError if a record cannot be a memory of this store and its agent."""
        if base.canonical(parsed) != record:
            raise ValueError("its record is not in canonical form")
        _MEMORY(parsed)
        row = self.row_in(parsed)
        check_integer(row["position"])
        optional(integer())(row["access_count"])
        if str(key) != parsed["id"]:
            raise ValueError(f"its id is {parsed['id']!r:.40}")
        if self.agent is not None and parsed["agent_id"] != self.agent:
            raise ValueError(f"it is a memory of agent {parsed['agent_id']!r:.80}")

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Any]:
        """Open a transaction after checking that the database is one of MemForge."""
        with postgres.one_transaction(self.address, write=write) as connection:
            columns = Catalogue(connection).table(TABLE).types
            base.check_table(self.name, "MemForge", TABLE, _NEEDED, columns)
            if self.agent is None and postgres.hides_rows(connection, TABLE):
                user = postgres.single_value(connection, "SELECT current_user::text", (), str)
                raise StoreError(
                    f"row-level security shows {user} the memories of one agent at a time: name it "
                    "by ?agent=NAME, or connect as the owner of the tables"
                )
            yield connection


class ColdTier(ExternalHistory):
    """The memories that MemForge itself moved to the table ``cold_tier``."""

    def __init__(self, source: Memforge) -> None:
        self.source = source

    def iter_deleted(self, *, with_body: bool) -> Iterator[readers.Rows]:
        """Yield the memories of the table."""
        with self.source.transaction(write=False) as connection:
            reader = MemoryReader(connection, self.source)
            if reader.catalogue.table(COLD).types:
                requested = (DELETED_AT,)
                yield from reader.read(
                    _SELECT_MOVED, _COLUMNS_OF_MOVED, with_body=with_body, columns=requested
                )


class MemoryReader(readers.Reader):
    """Reads memories in a transaction."""

    def __init__(self, connection: Any, source: Memforge) -> None:
        self.connection = connection
        self.source = source
        self.catalogue = Catalogue(connection)

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[readers.Rows]:
        """Yield all memories in batches, ordered by id."""
        existing = self.catalogue.table(TABLE).types
        readers.check_requested(columns, existing, TABLE)
        return self.read(TABLE, existing, with_body=with_body, columns=columns)

    def records(self, keys: Iterable[readers.Key]) -> Iterator[tuple[readers.Key, bytes]]:
        """Yield the records of the existing memories, in the order of `keys`."""
        table = self.catalogue.table(TABLE)
        for batch in batched(keys):
            ids = [str(key) for key in batch if str(key).isdigit()]
            memories: dict[str, dict[str, Any]] = {}
            for memory_id, row in postgres.rows_where(self.connection, table, "id", ids):
                if self.source.agent is None or row.get("agent_id") == self.source.agent:
                    memories[memory_id] = dict(row)
            self._add_other_rows(memories)
            for key in batch:
                if str(key) in memories:
                    yield key, base.canonical(memories[str(key)])

    def read(
        self, table: str, existing: Collection[str], *, with_body: bool, columns: Sequence[str]
    ) -> Iterator[readers.Rows]:
        """Yield the rows of a table or subquery in batches, ordered by id."""
        text_of_column = {name: f"t.{name}::text" for name in _COLUMNS_OF_ROW if name in existing}
        requested_columns = [f"t.{quoted(name)}" for name in columns]
        selected_columns = ", ".join([*text_of_column.values(), *requested_columns])
        query = (
            f"SELECT {selected_columns} FROM {table} AS t"
            f" {self.source.agent_condition} ORDER BY t.id"
        )
        for batch in postgres.streamed(self.connection, query, {"agent": self.source.agent}):
            with postgres.translated_value_errors():
                # The columns of a memory come first, then the requested ones.
                column_count = len(text_of_column)
                memories = []
                for row in batch:
                    parsed = dict(zip(text_of_column, row[:column_count], strict=True))
                    memories.append(self.source.row_in(parsed))
                requested = {
                    name: [row[number] for row in batch]
                    for number, name in enumerate(columns, column_count)
                }
                rows = readers.rows_from_dicts(memories, with_body=with_body, others=requested)
            yield rows

    def _add_other_rows(self, memories: Mapping[str, dict[str, Any]]) -> None:
        """Add the rows of other tables that a deletion would delete or unlink.

        A row may depend on a memory through rows of other tables. The memories on which a row
        depends are its owners. A row inherits the owners of each row that it refers to.
        """
        # For each table, the owners of its rows, by each value that rows of other tables refer to.
        owners: dict[str, dict[str, set[str]]] = {
            TABLE: {memory_id: {memory_id} for memory_id in memories}
        }
        added: set[tuple[Any, ...]] = set()
        for reference in self.catalogue.foreign_keys_that_change_rows(TABLE):
            table = self._restorable_table(reference.table)
            column = reference.column
            is_deleted = reference.on_delete == CASCADE
            referenced_columns = self._referenced_columns(table) if is_deleted else set()
            parents = owners.get(reference.to_table, {})
            for parent_value, row in postgres.rows_where(
                self.connection, table, column, list(parents)
            ):
                memory_ids = parents.get(parent_value, set())
                for name in referenced_columns:
                    value = row.get(name)
                    if value:
                        owners_by_value = owners.setdefault(table.name, {})
                        owners_by_value.setdefault(value, set()).update(memory_ids)
                identity: tuple[Any, ...]
                if is_deleted:  # all columns of the row are kept, once
                    section = ROWS
                    kept = row
                    identity = (table.name, table.key_of(row))
                else:  # each link of the row is kept
                    section = LINKS
                    kept = {name: row.get(name) for name in (*table.key, column)}
                    identity = (table.name, table.key_of(row), column)
                for memory_id in memory_ids:
                    if (memory_id, identity) not in added:
                        added.add((memory_id, identity))
                        rows_by_table = memories[memory_id].setdefault(section, {})
                        rows_by_table.setdefault(table.name, []).append(kept)
        for memory in memories.values():
            for section in (ROWS, LINKS):
                for rows in memory.get(section, {}).values():
                    rows.sort(key=base.canonical)

    def _restorable_table(self, name: str) -> Table:
        """Return a table; raise UnsafeDeletionError if it has no primary key."""
        table = self.catalogue.table(name)
        if not table.key:
            raise UnsafeDeletionError(
                f"the table {table.name} has no primary key to restore its rows by; give it one"
            )
        return table

    def _referenced_columns(self, table: Table) -> set[str]:
        """Return the columns of a table that foreign keys of other tables refer to."""
        return {reference.to_column for reference in self.catalogue.referring_to(table.name)}


class MemforgeWriter(MemoryReader, readers.Writer):
    """Changes memories in one transaction."""

    likely_cause = f"a rule on {TABLE}"

    def check_safe(self) -> None:
        """Raise UnsafeDeletionError if row-level security or triggers interfere with a deletion."""
        name = self.source.name
        references = self.catalogue.foreign_keys_that_change_rows(TABLE)
        # The events that a deletion or its undo causes, by table. If a link is set to NULL, rows
        # are only updated.
        events_by_table = {reference.table: _DELETE | _INSERT for reference in references}
        for reference in references:
            if reference.on_delete == SET_NULL:
                events_by_table[reference.table] = _UPDATE
        events_by_table |= dict.fromkeys((TABLE, COLD), _DELETE | _INSERT)
        hidden = [table for table in events_by_table if postgres.hides_rows(self.connection, table)]
        if hidden:
            raise UnsafeDeletionError(
                f"row-level security may hide rows of {', '.join(hidden)} from the user of {name}; "
                "connect as the owner of the tables, or as a role with BYPASSRLS"
            )
        triggers = postgres.triggers_on(self.connection, events_by_table)
        if triggers:
            raise UnsafeDeletionError(
                f"a deletion in {name} would fire {', '.join(triggers)}; run ALTER TABLE ... "
                "DISABLE TRIGGER while memlab works, or use MemForge's own cap"
            )

    def conflicts(self, records: readers.Records) -> list[str]:
        """Return the agents that are gone, and the memories that MemForge has restored itself."""
        conflicts = []
        for batch in batched(records):
            agents = {json.loads(record)["agent_id"] for _, record in batch}
            query = "SELECT id::text FROM agents WHERE id = ANY (%s)"
            existing = {
                agent for (agent,) in selected(self.connection, query, (list(agents),), str)
            }
            conflicts += [f"agent {agent!r}, who is gone" for agent in sorted(agents - existing)]
            conflicts += [
                f"memory {old}, which MemForge restored as {new}"
                for old, new in selected(
                    self.connection,
                    f"SELECT c.source_id, w.id FROM {COLD} AS c JOIN {TABLE} AS w "
                    "ON w.metadata ->> '_restored_from_cold_id' = c.id::text "
                    "WHERE c.source_table = %s AND c.source_id = ANY (%s) ORDER BY 1, 2",
                    (TABLE, [key for key, _ in batch]),
                    object,
                    object,
                )
            ]
        return conflicts

    def comparable_record(self, record: bytes) -> bytes:
        """Return a record without the fields that a retrieval changes."""
        return self.source.without_usage(record)

    def _stale(self, expected: Mapping[readers.Key, str]) -> list[readers.Key]:
        """Lock the memories in order of id, then return those that have changed.

        The lock also keeps others from inserting rows that refer to a memory.
        """
        for ids in batched(sorted(map(int, expected))):
            self.connection.execute(
                f"SELECT 1 FROM {TABLE} WHERE id = ANY (%s) ORDER BY id FOR UPDATE", (ids,)
            )
        return super()._stale(expected)

    def _count(self) -> int:
        return int(postgres.single_value(self.connection, f"SELECT count(*) FROM {TABLE}", (), int))

    def _delete(self, expected: Mapping[readers.Key, str]) -> None:
        """Copy memories into ``cold_tier`` and delete them."""
        from psycopg.errors import IntegrityError

        warm_columns = self.catalogue.table(TABLE).types
        cold_columns = self.catalogue.table(COLD).types
        copied = {
            old: new
            for old, new in _COLD_COLUMN.items()
            if old in warm_columns and new in cold_columns
        }
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

    def _insert(self, records: readers.Records) -> int:
        """Restore memories with their other rows; a row whose parent is gone stays archived."""
        count = 0
        for batch in batched(records):
            rows = [_own_columns(json.loads(record)) for _, record in batch]
            count += postgres.insert_rows(self.connection, self.catalogue.table(TABLE), rows)
            self.connection.execute(
                f"DELETE FROM {COLD} AS c USING {TABLE} AS w WHERE c.source_table = %s "
                "AND c.source_id = w.id AND w.id = ANY (%s) AND c.agent_id = w.agent_id "
                "AND c.content = w.content AND c.original_created_at = w.consolidated_at",
                (TABLE, [int(key) for key, _ in batch]),
            )
        for batch in batched(records):
            self._restore_other_rows([json.loads(record) for _, record in batch])
        return count

    def _restore_other_rows(self, memories: list[dict[str, Any]]) -> None:
        """Restore the rows and links of other tables, parents before their children."""
        references = self.catalogue.foreign_keys_that_change_rows(TABLE)
        for name in dict.fromkeys(reference.table for reference in references):
            table = self.catalogue.table(name)
            rows: dict[Any, Row] = {}
            links: list[Row] = []
            for memory in memories:
                for row in memory.get(ROWS, {}).get(name, ()):
                    rows[table.key_of(row)] = row
                links.extend(memory.get(LINKS, {}).get(name, ()))
            self._insert_with_parents(table, list(rows.values()))
            self._link(table, links)

    def _insert_with_parents(self, table: Table, rows: list[Row]) -> None:
        """Insert missing rows whose parents exist: all at once, else in halves."""
        from psycopg.errors import ForeignKeyViolation

        try:
            with self.connection.transaction():
                postgres.insert_rows(self.connection, table, rows, "ON CONFLICT DO NOTHING")
        except ForeignKeyViolation:
            half = len(rows) // 2
            if half:
                self._insert_with_parents(table, rows[:half])
                self._insert_with_parents(table, rows[half:])

    def _link(self, table: Table, links: Sequence[Row]) -> None:
        """Restore the links of rows to their memory, except for rows that link another one now."""
        for row in links:
            other_columns = row.keys() - set(table.key)
            if len(other_columns) != 1 or not row.keys() <= table.types.keys():
                raise ArchiveError(
                    f"what the archive has of {table.name} is not a link to a memory there; "
                    "nothing was restored: restore the others by their ids"
                )
            (column,) = other_columns
            value = row[column]
            same_key_sql = " AND ".join(
                f"{quoted(name)} = %s::text::{table.types[name]}" for name in table.key
            )
            self.connection.execute(
                f"UPDATE {table.name} SET {quoted(column)} = %s::text::{table.types[column]} "
                f"WHERE {same_key_sql} AND {quoted(column)} IS NULL",
                [value, *table.key_of(row)],
            )

    def _check_inserted(self, records: readers.Records, expected_count: int) -> None:
        self._unrestored = set[tuple[str, bytes]]()
        super()._check_inserted(records, expected_count)
        self.rows_left_out = dict(Counter(table for table, _ in sorted(self._unrestored)))

    def is_back(self, current_record: bytes, record: bytes) -> bool:
        """Return whether a memory has its archived columns, and no other rows than archived ones.

        Archived rows that it lacks are noted: they could not be restored.
        """
        current = json.loads(current_record)
        archived = json.loads(record)
        restored_rows = _other_rows(current)
        archived_rows = _other_rows(archived)
        self._unrestored |= archived_rows - restored_rows
        return _own_columns(current) == _own_columns(archived) and restored_rows <= archived_rows


def _own_columns(memory: dict[str, Any]) -> Row:
    """Return the columns of a memory without the rows of other tables."""
    return {name: value for name, value in memory.items() if name not in (ROWS, LINKS)}


def _other_rows(memory: dict[str, Any]) -> set[tuple[str, bytes]]:
    """Return the rows of other tables in a record, as table name and canonical JSON."""
    other_rows: set[tuple[str, bytes]] = set()
    for table, rows in memory.get(ROWS, {}).items():
        other_rows.update((table, base.canonical(row)) for row in rows)
    return other_rows


def _moment(text: str | None) -> datetime | None:
    """Return a time that PostgreSQL wrote, limited to the range of Python; None if unreadable."""
    if text is None:
        return None
    if text == "-infinity" or text.endswith(" BC"):
        return EARLIEST
    if text == "infinity" or _FAR_YEAR.match(text):
        return LATEST
    with suppress(ValueError):
        moment, _ = moment_and_zone(text)
        return moment
    return None


def _number(text: str | None) -> float | None:
    """Return a number that PostgreSQL wrote; None for NULL."""
    return None if text is None else float(text)


def recognises(request: HarvestRequest) -> bool:
    """Return whether the source is a MemForge database."""
    if not postgres.is_server(request.source):
        return False
    return {"retrieval_log", TABLE} <= set(postgres.tables_on(request.source))


def find(request: HarvestRequest) -> HarvestResult:
    """Return the reads in ``retrieval_log``, which has a row for each memory a query returned."""
    result = HarvestResult(store=request.source)
    source = Memforge(request.source)
    query = (
        f"SELECT id, warm_tier_id, created_at FROM retrieval_log {source.agent_condition} "
        "ORDER BY id"
    )
    with source.transaction(write=False) as connection:
        for batch in postgres.streamed(connection, query, {"agent": source.agent}):
            with postgres.translated_value_errors():
                for row_id, memory_id, created_at in batch:
                    at, _ = moment_and_zone(str(created_at))
                    read_id = f"memforge:{row_id}"
                    result.reads.append(
                        Read(memory_id=str(memory_id), at=at, id=read_id, tool="retrieval")
                    )
    result.notes.append(
        "MemForge drops a memory's retrievals together with the memory; the harvested log keeps "
        "them"
    )
    return result
