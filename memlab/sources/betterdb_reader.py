"""The memories of a BetterDB on a server, each read at one moment by itself."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from memlab.errors import ChangedWhileReadError, StoreError
from memlab.sources.base import Key, Rows
from memlab.sources.hashes import Hash, read_hashes, record_of
from memlab.sources.valkey_server import Changes, Line

if TYPE_CHECKING:
    from memlab.sources.betterdb_rows import Columns

_REGISTRY: Final = "__betterdb:caches"
_SCAN_AT_ONCE: Final = 1000
_LOOKS: Final = 20


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


class SettlingReader(HashReader):
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


def _literally(text: str) -> str:
    """Return `text` as a pattern that matches it alone."""
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in text)
