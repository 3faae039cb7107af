"""MemForge's ``warm_tier``: memories in PostgreSQL, of one agent or of all.

Needs the ``postgresql`` extra. What the URL leaves open, libpq takes from the environment
(``PGPASSWORD``, ``~/.pgpass``, ``PGHOST``). Reading needs SELECT on the tables, changing what
:mod:`memlab.sources.memforge_changes` says.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from os import environ
from pathlib import Path
from typing import Any, Final

from memlab.errors import StoreError, UnsafeDeletionError
from memlab.sources.address import address_of
from memlab.sources.base import Facts, Key, Reader, Rows, Writer, archive_elsewhere
from memlab.sources.memforge_rows import (
    KIND,
    NEEDED,
    TABLE,
    read_rows,
    rows_of_records,
    tags_json_of,
)
from memlab.sources.postgres_rows import (
    AT_ONCE,
    CASCADE,
    Catalogue,
    Row,
    encoded,
    rows_where,
)
from memlab.sources.postgres_server import one_transaction

ROWS: Final = "$rows"
"""In a record: the rows of other tables that go with the memory, by table."""
LINKS: Final = "$links"
"""In a record: the rows of other tables that lose their link to it, by table."""

OPTIONS: Final = ("agent", "archive")
"""Options of a URL that are memlab's own and none of libpq's."""
_OF_USE: Final = (
    *("access_count", "last_accessed", "retrieval_success_count", "first_successful_retrieval"),
    *("staleness_score", ROWS, LINKS),
)


class Memforge:
    """The memories in ``warm_tier`` of one database.

    Parameters
    ----------
    where : str
        ``postgresql://USER@HOST:PORT/DATABASE?agent=NAME``, with any option of libpq's. Without
        ``agent`` the memories of all agents are one store. ``archive=PATH`` keeps deleted memories
        elsewhere than in the user's data folder.
    """

    atomic: Final = True
    like: Final = None
    protected: frozenset[str] = frozenset()
    recall_log: Final = "the table retrieval_log of the same database"

    def __init__(self, where: str) -> None:
        self._address = address_of(where)
        self._agent = self._address.options.get("agent") or None
        self.scheme = self._address.scheme
        self.name = self._address.without_password()
        given = self._address.options.get("archive")
        self.archive = Path(given) if given else archive_elsewhere(self._known_as())

    def __repr__(self) -> str:
        return f"Memforge({self.name!r})"

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open a read-only transaction that sees one moment, however long it takes."""
        with self._transaction(write=False) as connection:
            yield MemoryReader(connection, self._agent)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open a transaction that is committed when the block ends."""
        from memlab.sources.memforge_changes import MemforgeWriter

        with self._transaction(write=True) as connection:
            writer = MemforgeWriter(connection, self._agent)
            writer.check_safe(self.name)
            yield writer

    def rows_of(
        self, records: Iterable[tuple[Key, bytes]], *, with_body: bool = False
    ) -> Iterator[Rows]:
        """Yield archived memories as they were read while they were in the table."""
        return rows_of_records((json.loads(record) for _, record in records), with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return a record's id, kind and tags."""
        row = json.loads(record)
        return Facts(row["id"], KIND, tags_json_of(row.get("outcome_type")))

    def lasting(self, record: bytes) -> bytes:
        """Return what of a record a retrieval does not change."""
        return encoded({name: v for name, v in json.loads(record).items() if name not in _OF_USE})

    def make(
        self,
        path: Path,
        records: Iterable[tuple[Key, bytes]],  # noqa: ARG002 - as other sources do
    ) -> int:
        """Refuse: a file is no server."""
        raise UnsafeDeletionError(
            f"memories of {self.name} live on a server, and {path} would be a file",
            instead="memlab archive --export FILE.jsonl, or restore them into the server",
        )

    def cap_setting(self, keep: int) -> str:
        """Return the environment variable by which a MemForge server caps every agent."""
        return f"WARM_TIER_MAX_PER_AGENT={keep}"

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Any]:
        settings = {} if self._agent is None else {"app.current_agent_id": self._agent}
        with one_transaction(self._address, OPTIONS, settings, write=write) as connection:
            self._check_tables(Catalogue(connection))
            self._check_sees_all(connection)
            yield connection

    def _check_tables(self, catalogue: Catalogue) -> None:
        if not catalogue.exists(TABLE):
            raise StoreError(
                f"{self.name} has no table {TABLE}, so it is no database of MemForge's; check its "
                "name and its search_path"
            )
        found = {column.name for column in catalogue.table(TABLE).columns}
        if missing := [name for name in NEEDED if name not in found]:
            raise StoreError(
                f"{TABLE} in {self.name} lacks the column {', '.join(missing)}: another version of "
                "MemForge, or another system"
            )
        if taken := {ROWS, LINKS} & found:
            raise StoreError(f"{TABLE} in {self.name} has a column {taken.pop()}; rename it")

    def _check_sees_all(self, connection: Any) -> None:
        """Refuse to take what row-level security lets through for everything there is."""
        (filtered, user) = connection.execute(
            "SELECT row_security_active(to_regclass(%s)), current_user", (TABLE,)
        ).fetchone()
        if filtered and self._agent is None:
            raise StoreError(
                f"row-level security shows {user} the memories of one agent at a time: name it by "
                "?agent=NAME, or connect as the owner of the tables"
            )

    def _known_as(self) -> str:
        """Return the store's name with what the URL leaves to the environment."""
        address = self._address
        user = address.user or environ.get("PGUSER") or ""
        host = address.where or address.options.get("host") or environ.get("PGHOST") or "localhost"
        database = (
            address.path.strip("/")
            or address.options.get("dbname")
            or environ.get("PGDATABASE")
            or user
        )
        port = "" if ":" in host else address.options.get("port") or environ.get("PGPORT") or "5432"
        agent = f"?agent={self._agent}" if self._agent else ""
        return f"postgresql://{host}{':' if port else ''}{port}/{database}{agent}"


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
