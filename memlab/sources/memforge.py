"""MemForge's ``warm_tier``: memories in PostgreSQL, of one agent or of all.

Needs the ``postgresql`` extra. What the URL leaves open, libpq takes from the environment
(``PGPASSWORD``, ``~/.pgpass``, ``PGHOST``). Reading needs SELECT on the tables, changing what
:mod:`memlab.sources.memforge_changes` says.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any, Final

from memlab.errors import StoreError, UnsafeDeletionError
from memlab.sources.address import address_of
from memlab.sources.base import Facts, Key, Reader, Rows, Writer, archive_elsewhere
from memlab.sources.memforge_reader import LINKS, ROWS, MemoryReader
from memlab.sources.memforge_rows import (
    KIND,
    NEEDED,
    TABLE,
    rows_of_records,
    tags_json_of,
)
from memlab.sources.postgres_rows import (
    Catalogue,
    encoded,
)
from memlab.sources.postgres_server import one_transaction

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
