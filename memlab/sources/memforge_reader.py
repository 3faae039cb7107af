"""MemForge's memories in a transaction, with the rows of other tables that belong to them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from memlab.errors import StoreError, UnsafeDeletionError
from memlab.sources.base import Key, Rows
from memlab.sources.memforge_rows import TABLE, read_rows
from memlab.sources.postgres_rows import AT_ONCE, CASCADE, Catalogue, Row, encoded, rows_where

ROWS: Final = "$rows"
"""In a record: the rows of other tables that go with the memory, by table."""
LINKS: Final = "$links"
"""In a record: the rows of other tables that lose their link to it, by table."""


class MemoryReader:
    """Memories in a transaction.

    Parameters
    ----------
    connection : psycopg.Connection
        In a transaction.
    agent : str, optional
        Whose memories; by default everybody's.
    """

    def __init__(self, connection: Any, agent: str | None) -> None:
        self.connection = connection
        self.agent = agent
        self.catalogue = Catalogue(connection)

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield every memory, some at a time, in order of id."""
        known = [column.name for column in self.catalogue.table(TABLE).columns]
        if unknown := [name for name in columns if name not in known]:
            raise StoreError(
                f"{TABLE} has no column {', '.join(unknown)}; it has {', '.join(known)}"
            )
        return read_rows(
            self.connection, set(known), self.agent, with_body=with_body, columns=columns
        )

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of those that are there, in the order of `keys`."""
        remaining = iter(keys)
        while some := list(islice(remaining, AT_ONCE)):
            wanted = [str(key) for key in some]
            found = self._rows(wanted)
            self._add_others(found)
            yield from (
                (key, encoded(found[name]))
                for key, name in zip(some, wanted, strict=True)
                if name in found
            )

    def _rows(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        table = self.catalogue.table(TABLE)
        numbers = [each for each in ids if each.isdigit()]
        found = rows_where(self.connection, table, "id", numbers)
        return {
            memory_id: dict(row)
            for memory_id, row in found
            if self.agent is None or row["agent_id"] == self.agent
        }

    def _add_others(self, memories: dict[str, dict[str, Any]]) -> None:
        """Add the rows that would go with memories, or lose their link to them."""
        owners: dict[str, dict[str, set[str]]] = {TABLE: {each: {each} for each in memories}}
        seen: set[tuple[str, str, tuple[str | None, ...]]] = set()
        for reference in self.catalogue.that_go_with(TABLE):
            table = self.catalogue.table(reference.table)
            if not table.key:
                raise UnsafeDeletionError(
                    f"the table {table.name} has no primary key, by which its rows could be put "
                    "back",
                    instead=f"give {table.name} a primary key",
                )
            above = owners.get(reference.to_table, {})
            rows = rows_where(self.connection, table, reference.column, list(above))
            for value, row in rows:
                for memory_id in above[value]:
                    place = (memory_id, table.name, table.key_of(row))
                    if reference.on_delete != CASCADE:
                        link = {name: row.get(name) for name in (*table.key, reference.column)}
                        _put(memories[memory_id], LINKS, table.name, link)
                    elif place not in seen:
                        seen.add(place)
                        _put(memories[memory_id], ROWS, table.name, row)
                if reference.on_delete == CASCADE:
                    self._remember(owners, table.name, row, above[value])
        for memory in memories.values():
            for kind in (ROWS, LINKS):
                for rows_ in memory.get(kind, {}).values():
                    rows_.sort(key=encoded)

    def _remember(
        self,
        owners: dict[str, dict[str, set[str]]],
        table: str,
        row: Row,
        memory_ids: set[str],
    ) -> None:
        """Note whose row it is, for tables that refer to this one."""
        for reference in self.catalogue.referring_to(table):
            value = row.get(reference.to_column)
            if value is not None:
                owners.setdefault(table, {}).setdefault(value, set()).update(memory_ids)


def _put(memory: dict[str, Any], kind: str, table: str, row: Row) -> None:
    memory.setdefault(kind, {}).setdefault(table, []).append(row)
