"""Deleting BetterDB's memories as BetterDB does, and putting them back.

A server has no transaction over many steps that could be rolled back. Some hundred memories are
compared and deleted in one atomic step (WATCH, MULTI, EXEC); where a later step finds one that has
changed, what the earlier ones deleted is put back from a file that nobody else can open.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any, Final

from memlab.errors import ArchiveError, CompactionError, StalePlanError
from memlab.sources.base import DELETED, INSERTED, Key, Watch, unwatched
from memlab.sources.betterdb_reader import HashReader
from memlab.sources.hashes import (
    FOREVER,
    Hash,
    asking_for,
    found_in,
    hash_of,
    portions,
    read_hashes,
)
from memlab.store.records import fingerprint_of

_TRIES: Final = 20
"""So many times a step is tried again when somebody writes to one of its memories meanwhile."""

_ENDING: Final = 1000
"""Milliseconds that a time to live must have left for a memory to be put back."""


class BetterdbWriter(HashReader):
    """Changes memories on a server, each in one atomic step with its neighbours."""

    def delete(self, expected: Mapping[Key, str], *, watch: Watch = unwatched) -> int:
        """Delete memories that are as expected, and count them as BetterDB counts evictions."""
        wanted = {_raw(key): fingerprint for key, fingerprint in expected.items()}
        self._check_all(wanted)
        with TemporaryFile() as undo:
            for some in portions(wanted):
                if not self._delete(some, wanted, undo):
                    self._put_back(undo)
                    raise _stale(1, "while they were deleted; those that were gone are back")
        watch(DELETED)
        if left := sum(self.line.ask("EXISTS", *some) for some in portions(wanted)):
            raise CompactionError(
                f"{left:,} of {len(wanted):,} memories are there again: somebody writes them while "
                "they are deleted; stop that, then restore the plan and make a new one"
            )
        return len(wanted)

    def conflicts(
        self,
        records: Iterable[tuple[Key, bytes]],  # noqa: ARG002 - as other sources do
    ) -> list[str]:
        """Name nothing: a memory has one name, its key."""
        return []

    def insert(self, records: Iterable[tuple[Key, bytes]], *, watch: Watch = unwatched) -> int:
        """Write memories at their keys: every field, and the moment at which they end.

        Those whose time has passed since they were archived would be gone at once: they are left
        out.
        """
        written: dict[bytes, str] = {}
        try:
            self._insert_all(records, written)
            watch(INSERTED)
            self._check_back(written)
        except BaseException:
            with suppress(Exception):  # the error that is on its way says more
                self._take_out(written)
            raise
        return len(written)

    def _insert_all(self, records: Iterable[tuple[Key, bytes]], written: dict[bytes, str]) -> None:
        seconds, micros = map(int, self.line.ask("TIME"))
        soon = seconds * 1000 + micros // 1000 + _ENDING
        for some in portions(records):
            hashes = {_raw(key): hash_of(record)[1] for key, record in some}
            living = {
                k: each for k, each in hashes.items() if each.ends == FOREVER or each.ends > soon
            }
            if not self._insert(living):
                raise ArchiveError(
                    f"a memory of {self.store} is there already; nothing was restored: restore the "
                    "others by --id"
                )
            prints = ((_raw(key), fingerprint_of(record)) for key, record in some)
            written.update((key, fingerprint) for key, fingerprint in prints if key in living)

    def _check_back(self, written: Mapping[bytes, str]) -> None:
        if wrong := self._others_than(written):
            raise ArchiveError(
                f"{len(wrong):,} memories did not come back as they were, {_shown(wrong[0])} "
                "first; the others were taken out again: see who writes them"
            )

    def _check_all(self, wanted: Mapping[bytes, str]) -> None:
        if stale := self._others_than(wanted):
            raise _stale(len(stale), f"since they were looked at, {_shown(stale[0])} first")

    def _others_than(self, wanted: Mapping[bytes, str]) -> list[bytes]:
        """Return the keys whose memories are not there with these fingerprints."""
        same = {
            key
            for some in read_hashes(self.line, wanted)
            for key, stored in some
            if fingerprint_of(self.record(key, stored)) == wanted[key]
        }
        return [key for key in wanted if key not in same]

    def _delete(self, keys: list[bytes], wanted: Mapping[bytes, str], undo: IO[bytes]) -> bool:
        """Delete some memories in one step; False where one is not as expected."""
        counted = ("HINCRBY", f"{self.store}:__mem_stats", "evictions", len(keys))
        for _ in range(_TRIES):
            records = {key: self.record(key, stored) for key, stored in self._watch(keys)}
            if any(key not in records for key in keys) or any(
                fingerprint_of(record) != wanted[key] for key, record in records.items()
            ):
                self.line.ask("UNWATCH")
                return False
            if self.line.at_once([("DEL", *keys), counted]) is not None:
                undo.writelines(record + b"\n" for record in records.values())
                return True
        return False

    def _insert(self, hashes: Mapping[bytes, Hash]) -> bool:
        """Write some memories in one step; False where one of the keys is taken."""
        if not hashes:
            return True
        commands: list[tuple[Any, ...]] = []
        for key, stored in hashes.items():
            commands.append(
                ("HSET", key, *(part for pair in stored.fields.items() for part in pair))
            )
            if stored.ends != FOREVER:
                commands.append(("PEXPIREAT", key, stored.ends))
        for _ in range(_TRIES):
            _, there = self.line.ask_all([("WATCH", *hashes), ("EXISTS", *hashes)])
            if there:
                self.line.ask("UNWATCH")
                return False
            if self.line.at_once(commands) is not None:
                return True
        return False

    def _watch(self, keys: list[bytes]) -> Iterator[tuple[bytes, Hash]]:
        """Read hashes that are being watched from now on."""
        return found_in(keys, self.line.ask_all([("WATCH", *keys), *asking_for(keys)])[1:])

    def _put_back(self, undo: IO[bytes]) -> None:
        """Undo what :meth:`delete` has done."""
        undo.seek(0)
        for some in portions(hash_of(line) for line in undo):
            self._insert({f"{self.prefix}{memory_id}".encode(): each for memory_id, each in some})
            self.line.ask("HINCRBY", f"{self.store}:__mem_stats", "evictions", -len(some))

    def _take_out(self, written: Mapping[bytes, str]) -> None:
        """Undo what :meth:`insert` has done, where nobody has changed it since."""
        for key, fingerprint in written.items():
            found = dict(self._watch([key]))
            if key in found and fingerprint_of(self.record(key, found[key])) == fingerprint:
                self.line.at_once([("DEL", key)])
            else:
                self.line.ask("UNWATCH")


def _stale(count: int, when: str) -> StalePlanError:
    return StalePlanError(
        f"{count:,} memories are gone or changed {when}; nothing was deleted: make a new plan"
    )


def _raw(key: Key) -> bytes:
    return str(key).encode(errors="surrogateescape")


def _shown(key: bytes) -> str:
    return key.decode(errors="backslashreplace")
