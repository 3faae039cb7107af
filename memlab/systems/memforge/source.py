"""MemForge's ``warm_tier``: memories in PostgreSQL, of one agent or of all.

Needs the ``postgresql`` extra. What the URL leaves open, libpq takes from the environment
(``PGPASSWORD``, ``~/.pgpass``, ``PGHOST``). Reading needs SELECT on the tables, changing what
:mod:`memlab.systems.memforge.memories` says.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from os import environ
from typing import Any, Final

from memlab.errors import StoreError
from memlab.sources.address import ServerSource, address_of
from memlab.sources.base import Key, Reader, Rows, Writer, canonical, check_table
from memlab.sources.postgres import (
    Catalogue,
    hides_rows,
    is_server,
    one_transaction,
    only,
    read_server,
    tables_on,
    understood,
)
from memlab.sources.reads import Asked, Found, Read
from memlab.store.shapes import fields, listed, named, optional, text, whole
from memlab.systems.memforge.memories import (
    LINKS,
    ROWS,
    TABLE,
    MemforgeWriter,
    MemoryReader,
    lasting_of,
    row_of,
)

NAME: Final = "a MemForge database"

_OTHER_ROWS: Final = named(listed(named(optional(text))))
_MEMORY: Final = fields(
    {"id": text, "agent_id": text, "content": text, ROWS: _OTHER_ROWS, LINKS: _OTHER_ROWS},
    absent={ROWS, LINKS},
    others=optional(text),
)

_NEEDED: Final = ("id", "agent_id", "content", "consolidated_at", "importance")
"""Columns that every version of MemForge has."""


class Memforge(ServerSource):
    """The memories in ``warm_tier`` of one database."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._agent = self.address.options.get("agent") or None

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
        agent = f"?agent={self._agent}" if self._agent else ""
        return f"postgresql://{host}/{database}{agent}"

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open a read-only transaction that sees one moment, however long it takes."""
        with self._transaction(write=False) as connection:
            yield MemoryReader(connection, self._agent)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open a transaction that is committed when the block ends."""
        with self._transaction(write=True) as connection:
            writer = MemforgeWriter(connection, self._agent)
            writer.check_safe(self.name)
            yield writer

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row."""
        return row_of(json.loads(record))

    def moved_away(self, *, with_body: bool) -> Iterator[Rows]:
        """Yield what MemForge itself moved to ``cold_tier``."""
        with self._transaction(write=False) as connection:
            yield from MemoryReader(connection, self._agent).moved_away(with_body=with_body)

    def check_record(self, key: Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that a memory of this store can have a record, and of the agent that is named."""
        if canonical(said) != record:
            raise ValueError("its record is not written as records are")
        _MEMORY(said)
        row = row_of(said)
        whole()(row["position"])
        optional(whole())(row["access_count"])
        if str(key) != said["id"]:
            raise ValueError(f"its id is {said['id']!r:.40}")
        if self._agent is not None and said["agent_id"] != self._agent:
            raise ValueError(f"it is a memory of agent {said['agent_id']!r:.80}")

    def lasting(self, record: bytes) -> bytes:
        """Return what of a record a retrieval does not change."""
        return lasting_of(record)

    def cap_setting(self, keep: int) -> str:
        """Return the environment variable by which a MemForge server caps every agent."""
        return f"WARM_TIER_MAX_PER_AGENT={keep}"

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Any]:
        with one_transaction(self.address, write=write) as connection:
            found = Catalogue(connection).table(TABLE).types
            check_table(self.name, "MemForge", TABLE, _NEEDED, found)
            if taken := {ROWS, LINKS} & found.keys():
                raise StoreError(f"{TABLE} in {self.name} has a column {taken.pop()}; rename it")
            if self._agent is None and hides_rows(connection, TABLE):
                user = only(connection, "SELECT current_user::text", (), str)
                raise StoreError(
                    f"row-level security shows {user} the memories of one agent at a time: name it "
                    "by ?agent=NAME, or connect as the owner of the tables"
                )
            yield connection


def recognises(asked: Asked) -> bool:
    """Whether the source is such a database."""
    return is_server(asked.source) and {"retrieval_log", "warm_tier"} <= set(
        tables_on(asked.source)
    )


def find(asked: Asked) -> Found:
    """Return every memory that a query returned, which ``retrieval_log`` has a row for."""
    found = Found(store=asked.source)
    agent = address_of(asked.source).options.get("agent") or None
    query = "SELECT id, warm_tier_id, created_at FROM retrieval_log"
    whose = () if agent is None else (agent,)
    rows = read_server(
        asked.source, f"{query}{' WHERE agent_id = %s' if whose else ''} ORDER BY id", *whose
    )
    for number, memory, at in rows:
        with understood():
            if not isinstance(at, datetime):
                raise TypeError(f"{at!r:.40} is no moment")
        found.reads.append(Read(str(memory), at, f"memforge:{number}", "retrieval"))
    ((hidden,),) = read_server(asked.source, "SELECT row_security_active('retrieval_log')")
    if hidden and agent is None:
        found.notes.append(
            "row level security hides other agents' rows from this role: connect as the tables' "
            "owner to harvest them all, or name one agent"
        )
    found.notes.append(
        "MemForge drops a memory's retrievals together with the memory; the log keeps them"
    )
    return found
