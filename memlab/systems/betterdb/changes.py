"""Deleting BetterDB's memories as BetterDB does, and putting them back.

A server has no transaction over many steps that could be rolled back. Some hundred memories are
compared and deleted in one atomic step (WATCH, MULTI, EXEC); where a later step finds one that has
changed, what the earlier ones deleted is put back from a file that nobody else can open.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any, Final

from memlab.errors import ArchiveError, CompactionError, StalePlanError
from memlab.sources.base import Key, Watch, Writer, portions, unwatched
from memlab.sources.valkey import Line
from memlab.store.records import fingerprint_of
from memlab.systems.betterdb.reader import (
    FOREVER,
    Hash,
    HashReader,
    asking_for,
    found_in,
    hash_of,
    lasting_of,
    raw_key,
    shown_key,
    without_use,
)

_TRIES: Final = 20
"""So many times a step is tried again when somebody writes to one of its memories meanwhile."""

_ENDING: Final = 1000
"""Milliseconds that a time to live must have left for a memory to be put back."""


class BetterdbWriter(HashReader, Writer):
    """Changes memories on a server, each in one atomic step with its neighbours."""

    def __init__(self, line: Line, store: str) -> None:
        super().__init__(line, store)
        self._ends: dict[bytes, int] = {}
        self._written: dict[bytes, str] = {}
        """The fingerprints of what was put back."""

    def insert(self, records: Iterable[tuple[Key, bytes]], *, watch: Watch = unwatched) -> int:
        """Write memories at their keys; take them out again where anything goes wrong."""
        try:
            return super().insert(records, watch=watch)
        except BaseException:
            with suppress(Exception):  # the error that is on its way says more
                self._take_out()
            raise

    def _count(self) -> int:
        return 0  # others write all the while

    def _stale(self, expected: Mapping[Key, str]) -> list[Key]:
        """Return what is not as planned, unless its own time has passed meanwhile."""
        wanted = {raw_key(key): fingerprint for key, fingerprint in expected.items()}
        stale = self._others_than(wanted, self._print)
        return [] if self._have_ended(stale) else [shown_key(key) for key in stale]

    def _delete(self, expected: Mapping[Key, str]) -> None:
        """Delete memories that are as expected, and count them as BetterDB counts evictions.

        One whose own time passes meanwhile is as good as deleted.
        """
        wanted = {raw_key(key): fingerprint for key, fingerprint in expected.items()}
        with TemporaryFile() as undo:
            for some in portions(wanted, self.lot):
                if self._delete_some(some, wanted, undo):
                    continue
                if not self._put_back(undo):
                    raise CompactionError(
                        f"memories of {self.store} changed while they were deleted, and not "
                        "all that were gone could be put back: restore the plan"
                    )
                raise StalePlanError(
                    "1 memories are gone or changed while they were deleted; those that were "
                    "gone are back; nothing was deleted: make a new plan"
                )

    def _check_deleted(self, expected: Mapping[Key, str], before: int) -> None:  # noqa: ARG002
        if left := sum(1 for _ in self.hashes(map(raw_key, expected))):
            raise CompactionError(
                f"{left:,} of {len(expected):,} memories are there again: somebody writes them "
                "while they are deleted; stop that, then restore the plan and make a new one"
            )

    def _insert(self, records: Iterable[tuple[Key, bytes]]) -> int:
        """Write every field of memories, and the moment at which they end.

        Those whose time has passed since they were archived would be gone at once: they are left
        out.
        """
        soon = self._now() + _ENDING
        self._written = {}
        for some in portions(records, self.lot):
            hashes = {raw_key(key): hash_of(record)[1] for key, record in some}
            living = {
                k: each for k, each in hashes.items() if each.ends == FOREVER or each.ends > soon
            }
            if not self._write(living):
                raise ArchiveError(
                    f"a memory of {self.store} is there already; nothing was restored: restore the "
                    "others by --id"
                )
            self._written.update((k, self._print_back(k, each)) for k, each in living.items())
        return len(self._written)

    def _check_inserted(self, records: Iterable[tuple[Key, bytes]], wanted: int) -> None:  # noqa: ARG002
        if wrong := self._others_than(self._written, self._print_back):
            raise ArchiveError(
                f"{len(wrong):,} memories did not come back as they were, {shown_key(wrong[0])} "
                "first; the others were taken out again: see who writes them"
            )

    def _looked_at(self, asked: Iterable[bytes], found: Mapping[bytes, Hash]) -> None:  # noqa: ARG002
        self._ends.update((key, each.ends) for key, each in found.items() if each.ends != FOREVER)

    def _others_than(
        self, wanted: Mapping[bytes, str], told: Callable[[bytes, Hash], str]
    ) -> list[bytes]:
        """Return the keys whose memories are not there with these fingerprints."""
        found = self.hashes(wanted)
        same = {key for key, stored in found if told(key, stored) == wanted[key]}
        return [key for key in wanted if key not in same]

    def _print(self, key: bytes, stored: Hash) -> str:
        """Return the fingerprint that a plan holds a memory to."""
        return fingerprint_of(lasting_of(self._id(key), stored))

    def _print_back(self, key: bytes, stored: Hash) -> str:
        """Return one that tells when it ends, too; it may be recalled as soon as it is back."""
        return fingerprint_of(self.record(key, without_use(stored)))

    def _delete_some(self, keys: list[bytes], wanted: Mapping[bytes, str], undo: IO[bytes]) -> bool:
        """Delete some memories in one step; False where one is not as expected.

        Where one was recalled within the step, it is done by halves: of few, none is.
        """
        for _ in range(_TRIES if len(keys) == 1 else 1):
            found = dict(self._watch(keys))
            gone = [key for key in keys if key not in found]
            if (gone and not self._have_ended(gone)) or any(
                self._print(key, stored) != wanted[key] for key, stored in found.items()
            ):
                self.line.ask("UNWATCH")
                return False
            counted = ("HINCRBY", f"{self.store}:__mem_stats", "evictions", len(found))
            done = [("DEL", *found), counted] if found else []
            if self.line.at_once(done) is not None:
                undo.writelines(self.record(k, each) + b"\n" for k, each in found.items())
                return True
        half = len(keys) // 2
        return half > 0 and all(
            self._delete_some(some, wanted, undo) for some in (keys[:half], keys[half:])
        )

    def _have_ended(self, keys: Iterable[bytes]) -> bool:
        """Whether the time of all these memories has passed that were looked at."""
        now = self._now()
        return all(key in self._ends and self._ends[key] <= now for key in keys)

    def _write(self, hashes: Mapping[bytes, Hash]) -> bool:
        """Write some memories in one step; False where one of the keys is taken."""
        if not hashes:
            return True
        commands: list[tuple[Any, ...]] = [("DEL", *hashes)]  # what a late recall left there
        for key, stored in hashes.items():
            commands.append(
                ("HSET", key, *(part for pair in stored.fields.items() for part in pair))
            )
            if stored.ends != FOREVER:
                commands.append(("PEXPIREAT", key, stored.ends))
        for _ in range(_TRIES):
            if dict(self._watch(list(hashes))):
                self.line.ask("UNWATCH")
                return False
            if self.line.at_once(commands) is not None:
                return True
        return False

    def _watch(self, keys: list[bytes]) -> Iterator[tuple[bytes, Hash]]:
        """Read hashes that are being watched from now on."""
        return found_in(keys, self.line.ask_all([("WATCH", *keys), *asking_for(keys)])[1:])

    def _now(self) -> int:
        """Return the server's time, in milliseconds."""
        seconds, micros = map(int, self.line.ask("TIME"))
        return seconds * 1000 + micros // 1000

    def _put_back(self, undo: IO[bytes]) -> bool:
        """Undo what :meth:`delete` has done; whether all of it was."""
        undo.seek(0)
        whole = True
        for some in portions(map(hash_of, undo), self.lot):
            gone = {f"{self.prefix}{memory_id}".encode(): each for memory_id, each in some}
            if self._write(gone):
                self.line.ask("HINCRBY", f"{self.store}:__mem_stats", "evictions", -len(some))
            else:
                whole = False
        return whole

    def _take_out(self) -> None:
        """Undo what :meth:`insert` has done, where nobody has changed it since."""
        for key, fingerprint in self._written.items():
            found = dict(self._watch([key]))
            if key in found and self._print_back(key, found[key]) == fingerprint:
                self.line.at_once([("DEL", key)])
            else:
                self.line.ask("UNWATCH")
