"""Deleting MemForge's memories as MemForge does, with all that goes with them, and undoing it.

A deletion copies a memory into ``cold_tier`` as MemForge's eviction does, and PostgreSQL deletes
what refers to it (entities, retrievals, revisions, conflicts, sequences, causes). All that is in
the archive first; an undo puts it back and takes the copy out of ``cold_tier``. MemForge's audit
chain is keyed by a secret of the server's, so nothing is written there.

The role needs, where it does not own the tables: BYPASSRLS; on ``warm_tier`` SELECT, INSERT, DELETE
and UPDATE (for locking); on ``cold_tier`` SELECT, INSERT and DELETE and USAGE of its sequence; on
the tables that refer to ``warm_tier`` SELECT and INSERT, and UPDATE of ``shared_memories``.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from memlab.errors import ArchiveError, CompactionError, StalePlanError, UnsafeDeletionError
from memlab.sources.base import DELETED, INSERTED, Key, Watch, unwatched
from memlab.sources.memforge_reader import LINKS, ROWS, MemoryReader
from memlab.sources.memforge_rows import TABLE
from memlab.sources.postgres_rows import (
    AT_ONCE,
    SET_NULL,
    Row,
    Table,
    insert_rows,
    quoted,
    triggers_on,
)
from memlab.store.records import fingerprint_of

COLD: Final = "cold_tier"

_INSERT: Final = 4
_DELETE: Final = 8
_UPDATE: Final = 16
_COPIED: Final = ("content", "metadata", "consolidated_at", "namespace")
_COPY: Final = {"consolidated_at": "original_created_at"}


class MemforgeWriter(MemoryReader):
    """Changes memories in one transaction."""

    rows_left_out: Mapping[str, int] = MappingProxyType({})

    def check_safe(self, name: str) -> None:
        """Check that a deletion would do no more than what is known of it.

        Raises
        ------
        UnsafeDeletionError
            When rows may be hidden, or triggers would be set off.
        """
        linked = self.catalogue.that_go_with(TABLE)
        touched = {each.table: _DELETE | _INSERT for each in linked}
        touched |= {each.table: _UPDATE for each in linked if each.on_delete == SET_NULL}
        touched |= {TABLE: _DELETE | _INSERT, COLD: _DELETE | _INSERT}
        hidden = [
            table
            for table in touched
            if self._one("SELECT row_security_active(to_regclass(%s))", table)
        ]
        if hidden:
            raise UnsafeDeletionError(
                f"row-level security may hide rows of {', '.join(hidden)} that a deletion takes "
                f"along from the user of {name}",
                instead="connect as the owner of the tables, or as a role with BYPASSRLS",
            )
        if triggers := triggers_on(self.connection, touched):
            raise UnsafeDeletionError(
                f"a deletion in {name} would set off {', '.join(triggers)}, and nobody knows what "
                "that does",
                instead="ALTER TABLE ... DISABLE TRIGGER while memlab works, or MemForge's own cap",
            )

    def delete(self, expected: Mapping[Key, str], *, watch: Watch = unwatched) -> int:
        """Delete memories that are as expected, copied into ``cold_tier``."""
        self._check_still(expected)
        from psycopg.errors import IntegrityError

        before = self._count()
        try:
            self._move(expected)
        except IntegrityError as error:
            raise CompactionError(
                f"another table needs a memory that was to go ({str(error).splitlines()[0]}); all "
                "was rolled back: see what that table is for"
            ) from error
        watch(DELETED)
        gone = before - self._count()
        if gone != len(expected):
            raise CompactionError(
                f"{len(expected):,} memories were to go and {gone:,} would have gone; all was "
                f"rolled back: look for a rule on {TABLE}"
            )
        return gone

    def _move(self, expected: Iterable[Key]) -> None:
        """Copy memories into ``cold_tier`` and delete them."""
        names = [n for n in _COPIED if self._has(TABLE, n) and self._has(COLD, _COPY.get(n, n))]
        columns = ", ".join(_COPY.get(name, name) for name in names)
        for ids in _portions(expected):
            self.connection.execute(
                f"INSERT INTO {COLD} (agent_id, source_table, source_id, {columns}) "
                f"SELECT agent_id, '{TABLE}', id, {', '.join(names)} FROM {TABLE} "
                "WHERE id = ANY (%s) ORDER BY id",
                (ids,),
            )
            self.connection.execute(f"DELETE FROM {TABLE} WHERE id = ANY (%s)", (ids,))

    def conflicts(self, records: Iterable[tuple[Key, bytes]]) -> list[str]:
        """Name agents that are gone, and memories that MemForge has brought back itself."""
        taken = []
        for some in _some(records):
            agents = {json.loads(record)["agent_id"] for _, record in some}
            there = self.connection.execute(
                "SELECT id FROM agents WHERE id = ANY (%s)", (list(agents),)
            ).fetchall()
            taken += [
                f"agent {each!r}, who is gone" for each in sorted(agents - {a for (a,) in there})
            ]
            taken += [
                f"memory {old}, which MemForge restored as {new}"
                for old, new in self.connection.execute(
                    f"SELECT c.source_id, w.id FROM {COLD} AS c JOIN {TABLE} AS w "
                    "ON w.metadata ->> '_restored_from_cold_id' = c.id::text "
                    "WHERE c.source_table = %s AND c.source_id = ANY (%s) ORDER BY 1, 2",
                    (TABLE, [key for key, _ in some]),
                )
            ]
        return taken

    def insert(self, records: Iterable[tuple[Key, bytes]], *, watch: Watch = unwatched) -> int:
        """Put memories back at their ids, with the rows that went with them.

        A row between two memories comes back with the second of them. One that needs what is gone
        otherwise, such as an entity that MemForge has merged, stays in the archive.
        """
        before, count = self._count(), 0
        for some in _some(records):
            rows = [_own(json.loads(record)) for _, record in some]
            count += insert_rows(self.connection, self.catalogue.table(TABLE), rows)
            self._take_out_of_cold([int(key) for key, _ in some])
        for some in _some(records):
            self._put_others_back([json.loads(record) for _, record in some])
        watch(INSERTED)
        self._check_back(records)
        if self._count() != before + count:
            raise ArchiveError(
                "other memories would have changed; all was rolled back: look for a rule on "
                f"{TABLE}"
            )
        return count

    def _check_still(self, expected: Mapping[Key, str]) -> None:
        """Lock the memories, so that nobody changes them or what refers to them, and compare."""
        for ids in _portions(expected):
            self.connection.execute(
                f"SELECT 1 FROM {TABLE} WHERE id = ANY (%s) ORDER BY id FOR UPDATE", (ids,)
            )
        found = {key: fingerprint_of(record) for key, record in self.records(expected)}
        if stale := [key for key, wanted in expected.items() if found.get(key) != wanted]:
            raise StalePlanError(
                f"{len(stale):,} memories are gone or changed since they were looked at, "
                f"{stale[0]} first; nothing was deleted: make a new plan"
            )

    def _take_out_of_cold(self, ids: list[int]) -> None:
        self.connection.execute(
            f"DELETE FROM {COLD} AS c USING {TABLE} AS w WHERE c.source_table = %s "
            "AND c.source_id = w.id AND w.id = ANY (%s) AND c.agent_id = w.agent_id "
            "AND c.content = w.content AND c.original_created_at = w.consolidated_at",
            (TABLE, ids),
        )

    def _put_others_back(self, memories: list[dict[str, Any]]) -> None:
        """Insert rows whose other ends are there, from the memories outwards, and link others."""
        for name in dict.fromkeys(each.table for each in self.catalogue.that_go_with(TABLE)):
            table = self.catalogue.table(name)
            nothing: Row = {each.column: None for each in self.catalogue.referred_to_by(name)}
            found = [row for m in memories for row in m.get(ROWS, {}).get(name, ())]
            rows = {table.key_of(row): nothing | row for row in found}
            insert_rows(self.connection, table, rows.values(), self._can_go_in(table))
            links = [row for m in memories for row in m.get(LINKS, {}).get(name, ())]
            self._link(table, links)

    def _can_go_in(self, table: Table) -> str:
        """Return SQL for: a row called ``new`` is not there, and all that it refers to is."""
        same = " AND ".join(f"t.{quoted(name)} = new.{quoted(name)}" for name in table.key)
        needs = [
            f"(new.{quoted(each.column)} IS NULL OR EXISTS (SELECT 1 FROM {each.to_table} AS t "
            f"WHERE t.{quoted(each.to_column)} = new.{quoted(each.column)}))"
            for each in self.catalogue.referred_to_by(table.name)
        ]
        missing = f"NOT EXISTS (SELECT 1 FROM {table.name} AS t WHERE {same})"
        return f"WHERE {' AND '.join([missing, *needs])}"

    def _link(self, table: Table, links: list[Row]) -> None:
        """Point rows that lost their memory to it again, unless they point elsewhere by now."""
        types = {column.name: column.type for column in table.columns}
        for row in links:
            ((column, value),) = ((n, v) for n, v in row.items() if n not in table.key)
            same = " AND ".join(f"{quoted(n)} = %s::text::{types[n]}" for n in table.key)
            self.connection.execute(
                f"UPDATE {table.name} SET {quoted(column)} = %s::text::{types[column]} "
                f"WHERE {same} AND {quoted(column)} IS NULL",
                [value, *(row[name] for name in table.key)],
            )

    def _check_back(self, records: Iterable[tuple[Key, bytes]]) -> None:
        """Check that memories are as they were, and that no other rows came with them.

        Rows that did not come back are counted.
        """
        left: set[tuple[str, str]] = set()
        for some in _some(records):
            there = dict(self.records(key for key, _ in some))
            for key, record in some:
                found, wanted = json.loads(there.get(key, b"{}")), json.loads(record)
                if _own(found) != _own(wanted) or not all(
                    row in wanted[ROWS].get(table, ())
                    for table, rows in found.get(ROWS, {}).items()
                    for row in rows
                ):
                    raise ArchiveError(
                        f"memory {key} would not have come back as it was; all was rolled back: "
                        f"look whether the columns of {TABLE} are still of the same types"
                    )
                left |= {
                    (table, json.dumps(row, sort_keys=True))
                    for table, rows in wanted.get(ROWS, {}).items()
                    for row in rows
                    if row not in found.get(ROWS, {}).get(table, ())
                }
        self.rows_left_out = dict(Counter(table for table, _ in sorted(left)))

    def _count(self) -> int:
        return int(self._one(f"SELECT count(*) FROM {TABLE}"))

    def _has(self, table: str, column: str) -> bool:
        return any(each.name == column for each in self.catalogue.table(table).columns)

    def _one(self, query: str, *parameters: Any) -> Any:
        return self.connection.execute(query, parameters).fetchone()[0]


def _own(memory: dict[str, Any]) -> Row:
    return {name: value for name, value in memory.items() if name not in (ROWS, LINKS)}


def _portions(keys: Iterable[Key]) -> Iterator[list[int]]:
    """Yield ids in order, so that two who lock them wait for each other and never both."""
    remaining = iter(sorted(int(key) for key in keys))
    while some := list(islice(remaining, AT_ONCE)):
        yield some


def _some(records: Iterable[tuple[Key, bytes]]) -> Iterator[list[tuple[Key, bytes]]]:
    remaining = iter(records)
    while some := list(islice(remaining, AT_ONCE)):
        yield some
