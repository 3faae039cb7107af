"""BetterDB's agent memory: hashes on a Valkey or Redis server, with or without vector search.

Needs a server that knows PEXPIRETIME (Valkey, Redis 7) and the ``valkey`` extra. A password is
given in the URL or in the environment (``VALKEYCLI_AUTH`` or ``REDISCLI_AUTH``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from memlab.errors import MemlabError
from memlab.sources.address import Address, ServerSource
from memlab.sources.base import Key, Reader, Writer
from memlab.sources.valkey import Changes, connected, host_and_port
from memlab.store.shapes import digits, either, fields, text, whole
from memlab.systems.betterdb.memories import (
    ENDS,
    ID,
    BetterdbWriter,
    SettlingReader,
    hash_of,
    lasting_of,
    record_of,
    row_of,
)

DEFAULT_NAME: Final = "betterdb_ac"
"""What BetterDB calls a store that nobody named."""

_OPTIONS: Final = ("name", "archive", "db")
_FIELDS: Final = fields(
    {ID: text, ENDS: whole(0)}, absent={ENDS}, others=either(text, fields({"blob": digits}))
)


class Betterdb(ServerSource):
    """The memories of one BetterDB store on a server."""

    atomic = False

    def __init__(self, where: str) -> None:
        super().__init__(where, _OPTIONS)
        self._store = self.address.options.get("name") or DEFAULT_NAME
        self._database = _database_of(self.address)

    def known_as(self) -> str:
        """Return the store's name with its server's host and port."""
        where = "{}:{}".format(*host_and_port(self.address))
        if self.scheme == "unix":
            where = quote(self.address.path)
        return f"valkey://{where}/{self._database}?name={self._store}"

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Look at the server, listening to what others change meanwhile.

        A server cannot be held still. Every memory is read at one moment by itself, and the server
        tells which were written since; these are read again. So all that its batches yield was
        there at one moment. A record read after it must not have changed since.
        """
        prefix = f"{self._store}:mem:".encode()
        with (
            connected(self.address, self._database) as line,
            connected(self.address, self._database) as listening,
        ):
            reader = SettlingReader(line, self._store, Changes(line, listening, prefix))
            yield reader
            reader.check_still()

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the server for a change, made some hundred memories at a time."""
        with connected(self.address, self._database) as line:
            yield BetterdbWriter(line, self._store)

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row."""
        memory_id, stored = hash_of(record)
        return row_of(f"{self._store}:mem:{memory_id}", memory_id, stored)

    def check_record(self, key: Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that a memory of this store can have a record: no other key is written to."""
        _FIELDS(said)
        memory_id, stored = hash_of(record)
        if record_of(memory_id, stored) != record:
            raise ValueError("its record is not written as records are")
        if key != f"{self._store}:mem:{memory_id}":
            raise ValueError(f"its key is not that of {memory_id!r:.80} in {self._store}")

    def lasting(self, record: bytes) -> bytes:
        """Return what of a record a recall does not change."""
        return lasting_of(*hash_of(record))

    def cap_setting(self, keep: int) -> str:
        """Return the argument with which a BetterDB is made that caps.

        What a server's hash of settings holds is read by those made with ``config_refresh`` alone.
        """
        return f"max_items_per_scope={keep}"


def _database_of(address: Address) -> int:
    text = address.options.get("db") if address.scheme == "unix" else address.path.strip("/")
    if text and not text.isdigit():
        raise MemlabError(
            f"{address.without_password()}: {text!r} is no number of a database; write "
            f"{address.scheme}://HOST:PORT/0?name={DEFAULT_NAME}"
        )
    return int(text or 0)
