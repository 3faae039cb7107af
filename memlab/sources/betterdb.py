"""BetterDB's agent memory: hashes on a Valkey or Redis server, with or without vector search.

Needs a server that knows PEXPIRETIME (Valkey, Redis 7) and the ``valkey`` extra. A password is
given in the URL or in the environment (``VALKEYCLI_AUTH`` or ``REDISCLI_AUTH``).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from memlab.errors import (
    ChangedWhileReadError,
    MemlabError,
    StoreError,
    UnsafeDeletionError,
)
from memlab.sources.address import Address, address_of
from memlab.sources.base import Facts, Key, Reader, Rows, Writer, archive_elsewhere
from memlab.sources.hashes import FOREVER, Hash, hash_of, read_hashes, record_of
from memlab.sources.valkey_server import Changes, Line, connected, host_and_port

if TYPE_CHECKING:
    from memlab.sources.betterdb_rows import Columns

DEFAULT_NAME: Final = "betterdb_ac"
"""What BetterDB calls a store that nobody named."""

_OPTIONS: Final = ("name", "archive", "db")
_OF_USE: Final = (b"access_count", b"last_accessed_at")
_REGISTRY: Final = "__betterdb:caches"
_SCAN_AT_ONCE: Final = 1000
_LOOKS: Final = 20


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
        tells which were written since; these are read again. So all that
        :meth:`HashReader.batches` yields was there at one moment. A record read after it must not
        have changed since.
        """
        prefix = f"{self._store}:mem:".encode()
        with (
            connected(self._address, self._database) as line,
            connected(self._address, self._database) as listening,
        ):
            reader = _Reader(line, self._store, Changes(line, listening, prefix))
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


class HashReader:
    """Memories on a server, each read at one moment by itself.

    Parameters
    ----------
    line : Line
        To the server.
    store : str
        BetterDB's name of the store.
    """

    def __init__(self, line: Line, store: str) -> None:
        self.line = line
        self.store = store
        self.prefix = f"{store}:mem:"

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield every memory in order of time, as :class:`memlab.sources.base.Reader` says."""
        found = self._columns(with_body=with_body, columns=columns)
        self._read(self._keys(), found)
        self._settle(found)
        if not found:
            self._check_there()
        yield from found.in_order()

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield the records of those that are there, in the order of `keys`."""
        wanted = (str(key).encode(errors="surrogateescape") for key in keys)
        ours = (key for key in wanted if key.startswith(self.prefix.encode()))
        for some in read_hashes(self.line, ours):
            self._looked_at({key for key, _ in some})
            for key, stored in some:
                yield key.decode(errors="surrogateescape"), self.record(key, stored)

    def record(self, key: bytes, stored: Hash) -> bytes:
        """Return the record of a hash."""
        return record_of(key.decode(errors="replace").removeprefix(self.prefix), stored)

    def _columns(self, *, with_body: bool, columns: Sequence[str]) -> "Columns":
        from memlab.sources.betterdb_rows import Columns

        return Columns(self.prefix, with_body=with_body, others=columns)

    def _keys(self) -> Iterator[bytes]:
        seen: set[bytes] = set()  # a scan may tell of a key twice
        options = ("MATCH", f"{_literally(self.prefix)}*", "COUNT", _SCAN_AT_ONCE, "TYPE", "hash")
        cursor = b"0"
        while True:
            cursor, keys = self.line.ask("SCAN", cursor, *options)
            yield from (key for key in dict.fromkeys(keys) if key not in seen)
            seen.update(keys)
            if cursor == b"0":
                return

    def _read(self, keys: Iterable[bytes], into: "Columns") -> None:
        from memlab.sources.betterdb_rows import read_fields

        for some in read_fields(self.line, keys, into.fields):
            into.add(some)

    def _settle(self, found: "Columns") -> None:
        """Make up for what changed while it was read."""

    def _looked_at(self, keys: set[bytes]) -> None:
        """Remember which records were handed out."""

    def _check_there(self) -> None:
        """Tell a store without memories from one that is not there."""
        own = (f"{self.store}:__mem_stats", f"{self.store}:__mem_config")
        known = self.line.ask("HKEYS", _REGISTRY)
        names = sorted(key.decode(errors="replace").removesuffix(":mem") for key in known)
        if self.store in names or self.line.ask("EXISTS", *own):
            return
        others = f"; there are {', '.join(names)}" if names else ""
        raise StoreError(
            f"there is no BetterDB memory called {self.store!r} in this database{others}: name one "
            "by ?name=, and the database by its number after the slash"
        )


class _Reader(HashReader):
    """A reader that knows what others change."""

    def __init__(self, line: Line, store: str, changes: Changes) -> None:
        super().__init__(line, store)
        self._changes = changes
        self._changed: set[bytes] = set()
        self._handed_out: set[bytes] = set()
        self._looked = False

    def check_still(self) -> None:
        """Check that what was handed out is as it was.

        Raises
        ------
        ChangedWhileReadError
            When it is not.
        """
        self.line.ask("PING")
        self._changed |= self._changes.so_far()
        if touched := self._changed & self._handed_out:
            raise ChangedWhileReadError(
                f"{len(touched):,} memories of {self.store} were written while they were read; try "
                "again when fewer agents are at work"
            )

    def _settle(self, found: "Columns") -> None:
        """Make what was read that of one moment: the last at which the server told of changes.

        A memory changed before it is read again; one that changed after it is left as it was read.
        Only where one changed before and once more before it was read again, a later moment does.
        """
        since: set[bytes] = set()
        before = self._changes.so_far()
        for _ in range(_LOOKS):
            found.drop(before)
            self._read(before, found)
            since |= before
            after = self._changes.so_far()
            if not before & after:
                break
            before = after
        else:
            raise ChangedWhileReadError(
                f"the memories of {self.store} are written faster than they are read; try again "
                "when fewer agents are at work"
            )
        if self._looked:  # what was read before must agree with this moment, too
            self._handed_out |= since
            self._changed |= since
        self._changed |= after
        self._looked = True

    def _looked_at(self, keys: set[bytes]) -> None:
        self._looked = True
        self._handed_out |= keys


def _database_of(address: Address) -> int:
    text = address.options.get("db") if address.scheme == "unix" else address.path.strip("/")
    if text and not text.isdigit():
        raise MemlabError(
            f"{address.without_password()}: {text!r} is no number of a database; write "
            f"{address.scheme}://HOST:PORT/0?name={DEFAULT_NAME}"
        )
    return int(text or 0)


def _literally(text: str) -> str:
    """Return `text` as a pattern that matches it alone."""
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in text)
