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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from memlab.errors import ArchiveError, CompactionError, UnsafeDeletionError
from memlab.sources.base import Key, Writer, canonical, portions
from memlab.sources.postgres import (
    SET_NULL,
    Row,
    Table,
    hides_rows,
    insert_rows,
    only,
    quoted,
    selected,
    triggers_on,
)
from memlab.systems.memforge.reader import COLD, LINKS, ROWS, TABLE, MemoryReader, lasting_of

_INSERT: Final = 4
_DELETE: Final = 8
_UPDATE: Final = 16
_COPIED: Final = {
    "content": "content",
    "metadata": "metadata",
    "consolidated_at": "original_created_at",
    "namespace": "namespace",
}
"""What ``cold_tier`` keeps of a memory, and how it calls it."""


class MemforgeWriter(MemoryReader, Writer):
    """Changes memories in one transaction."""

    suspect = f"a rule on {TABLE}"

    def check_safe(self, name: str) -> None:
        """Check that a deletion would do no more than what is known of it."""
        linked = self.catalogue.that_go_with(TABLE)
        touched = {each.table: _DELETE | _INSERT for each in linked}
        touched |= {each.table: _UPDATE for each in linked if each.on_delete == SET_NULL}
        touched |= {TABLE: _DELETE | _INSERT, COLD: _DELETE | _INSERT}
        if hidden := [table for table in touched if hides_rows(self.connection, table)]:
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

    def conflicts(self, records: Iterable[tuple[Key, bytes]]) -> list[str]:
        """Name agents that are gone, and memories that MemForge has brought back itself."""
        taken = []
        for some in portions(records):
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
                    *(object, object),
                )
            ]
        return taken

    def compared(self, record: bytes) -> bytes:
        """Return what of a record a retrieval does not change."""
        return lasting_of(record)

    def _stale(self, expected: Mapping[Key, str]) -> list[Key]:
        """Lock the memories, so that nobody changes them or what refers to them, and compare.

        They are locked in order, so that of two who lock them one waits for the other.
        """
        for ids in portions(sorted(map(int, expected))):
            self.connection.execute(
                f"SELECT 1 FROM {TABLE} WHERE id = ANY (%s) ORDER BY id FOR UPDATE", (ids,)
            )
        return super()._stale(expected)

    def _count(self) -> int:
        return int(only(self.connection, f"SELECT count(*) FROM {TABLE}", (), int))

    def _delete(self, expected: Mapping[Key, str]) -> None:
        """Copy memories into ``cold_tier`` and delete them."""
        from psycopg.errors import IntegrityError

        warm, cold = self.catalogue.table(TABLE).types, self.catalogue.table(COLD).types
        copied = {old: new for old, new in _COPIED.items() if old in warm and new in cold}
        try:
            for ids in portions(sorted(map(int, expected))):
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

    def _insert(self, records: Iterable[tuple[Key, bytes]]) -> int:
        """Put memories back at their ids, with the rows that went with them.

        A row between two memories comes back with the second of them. One that needs what is gone
        otherwise, such as an entity that MemForge has merged, stays in the archive.
        """
        count = 0
        for some in portions(records):
            rows = [_own(json.loads(record)) for _, record in some]
            count += insert_rows(self.connection, self.catalogue.table(TABLE), rows)
            self.connection.execute(
                f"DELETE FROM {COLD} AS c USING {TABLE} AS w WHERE c.source_table = %s "
                "AND c.source_id = w.id AND w.id = ANY (%s) AND c.agent_id = w.agent_id "
                "AND c.content = w.content AND c.original_created_at = w.consolidated_at",
                (TABLE, [int(key) for key, _ in some]),
            )
        for some in portions(records):
            self._put_others_back([json.loads(record) for _, record in some])
        return count

    def _put_others_back(self, memories: list[dict[str, Any]]) -> None:
        """Insert rows whose other ends are there, from the memories outwards, and link others."""
        for name in dict.fromkeys(each.table for each in self.catalogue.that_go_with(TABLE)):
            table = self.catalogue.table(name)
            nothing: Row = {each.column: None for each in self.catalogue.referred_to_by(name)}
            found = [row for m in memories for row in m.get(ROWS, {}).get(name, ())]
            rows = {table.key_of(row): nothing | row for row in found}
            insert_rows(self.connection, table, rows.values(), self._can_go_in(table))
            self._link(table, [row for m in memories for row in m.get(LINKS, {}).get(name, ())])

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

    def _check_inserted(self, records: Iterable[tuple[Key, bytes]], wanted: int) -> None:
        """Count the rows that did not come back."""
        self._left = set[tuple[str, bytes]]()
        super()._check_inserted(records, wanted)
        self.rows_left_out = dict(Counter(table for table, _ in sorted(self._left)))

    def _is_back(self, there: bytes, record: bytes) -> bool:
        """Whether a memory is as it was, and no other rows came with it."""
        now, then = json.loads(there), json.loads(record)
        back, archived = _others(now), _others(then)
        self._left |= archived - back
        return _own(now) == _own(then) and back <= archived


def _own(memory: dict[str, Any]) -> Row:
    return {name: value for name, value in memory.items() if name not in (ROWS, LINKS)}


def _others(memory: dict[str, Any]) -> set[tuple[str, bytes]]:
    """Return the rows of other tables in a record, each as something that can be compared."""
    return {(table, canonical(row)) for table, rows in memory.get(ROWS, {}).items() for row in rows}
