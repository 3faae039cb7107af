"""BetterDB's agent memory: hashes on a Valkey or Redis server, with or without vector search.

Needs a server that knows PEXPIRETIME (Valkey, Redis 7) and the ``valkey`` extra. A password is
given in the URL or in the environment (``VALKEYCLI_AUTH`` or ``REDISCLI_AUTH``).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from memlab.errors import (
    MemlabError,
    UnsafeDeletionError,
)
from memlab.sources.address import Address, address_of
from memlab.sources.base import Facts, Key, Reader, Rows, Writer, archive_elsewhere
from memlab.sources.betterdb_reader import SettlingReader
from memlab.sources.hashes import FOREVER, Hash, hash_of, record_of
from memlab.sources.valkey_server import Changes, connected, host_and_port

DEFAULT_NAME: Final = "betterdb_ac"
"""What BetterDB calls a store that nobody named."""

_OPTIONS: Final = ("name", "archive", "db")
_OF_USE: Final = (b"access_count", b"last_accessed_at")


class Betterdb:
    """The memories of one BetterDB store on a server.

    Parameters
    ----------
    where : str
        ``redis://HOST:PORT/DB?name=NAME``; ``valkey``, with TLS ``rediss`` or ``valkeys``;
        ``unix:///PATH/OF/SOCKET?db=0&name=NAME``. `NAME` is :data:`DEFAULT_NAME` by default, and
        ``archive=PATH`` keeps deleted memories elsewhere than in the user's data folder.
    """

    atomic: Final = False
    like: Final = None
    protected: frozenset[str] = frozenset()
    recall_log: Final = (
        "BetterDB keeps no log of recalls, only how often and when last a memory was recalled"
    )

    def __init__(self, where: str) -> None:
        self._address = address_of(where, options=_OPTIONS)
        self._store = self._address.options.get("name") or DEFAULT_NAME
        self._database = _database_of(self._address)
        self.scheme = self._address.scheme
        self.name = self._address.without_password()
        given = self._address.options.get("archive")
        self.archive = Path(given) if given else archive_elsewhere(self._known_as())

    def __repr__(self) -> str:
        return f"Betterdb({self.name!r})"

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Look at the server, listening to what others change meanwhile.

        A server cannot be held still. Every memory is read at one moment by itself, and the server
        tells which were written since; these are read again. So all that its batches yield was
        there at one moment. A record read after it must not have changed since.
        """
        prefix = f"{self._store}:mem:".encode()
        with (
            connected(self._address, self._database) as line,
            connected(self._address, self._database) as listening,
        ):
            reader = SettlingReader(line, self._store, Changes(line, listening, prefix))
            yield reader
            reader.check_still()

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the server for a change, made some hundred memories at a time."""
        from memlab.sources.betterdb_changes import BetterdbWriter

        with connected(self._address, self._database) as line:
            yield BetterdbWriter(line, self._store)

    def rows_of(
        self, records: Iterable[tuple[Key, bytes]], *, with_body: bool = False
    ) -> Iterator[Rows]:
        """Yield archived memories as they were read while they were on the server."""
        from memlab.sources.betterdb_rows import rows_of_hashes

        return rows_of_hashes(
            ((str(key), hash_of(record)[1]) for key, record in records), with_body=with_body
        )

    def facts_of(self, record: bytes) -> Facts:
        """Return a record's id, kind and tags."""
        from memlab.sources.betterdb_rows import KIND, tags_json_of

        memory_id, stored = hash_of(record)
        return Facts(memory_id, KIND, tags_json_of(stored.fields.get(b"tags")) or "")

    def lasting(self, record: bytes) -> bytes:
        """Return what of a record a recall does not change."""
        memory_id, stored = hash_of(record)
        fields = {name: value for name, value in stored.fields.items() if name not in _OF_USE}
        return record_of(memory_id, Hash(fields, FOREVER))

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
        """Return the command by which every running BetterDB that refreshes its settings caps."""
        return f"HSET {self._store}:__mem_config maxItemsPerScope {keep}"

    def _known_as(self) -> str:
        """Return the store's name without what may be written in several ways."""
        if self.scheme == "unix":
            where = quote(self._address.path)
        else:
            host, port = host_and_port(self._address)
            where = f"{host}:{port}"
        return f"valkey://{where}/{self._database}?name={self._store}"


def _database_of(address: Address) -> int:
    text = address.options.get("db") if address.scheme == "unix" else address.path.strip("/")
    if text and not text.isdigit():
        raise MemlabError(
            f"{address.without_password()}: {text!r} is no number of a database; write "
            f"{address.scheme}://HOST:PORT/0?name={DEFAULT_NAME}"
        )
    return int(text or 0)
