"""BetterDB's agent memory: hashes on a Valkey or Redis server, with or without vector search.

Some hundred memories are compared and deleted in one atomic step (WATCH, MULTI, EXEC); where a
later step finds one that has changed, what the earlier ones deleted is put back from a private
file.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from tempfile import TemporaryFile
from typing import IO, Any, ClassVar, Final, NamedTuple
from urllib.parse import quote

from memlab import errors
from memlab.sources import base
from memlab.sources.address import Address, ServerSource
from memlab.sources.valkey import Changes, Line, connected, host_and_port
from memlab.store import shapes
from memlab.store.records import batched, fingerprint_of

FOREVER: Final = -1
"""When a hash ends that has no time to live."""

_LASTING: Final = (
    b"content",
    b"created_at",
    b"tags",
    b"importance",
    b"threadId",
    b"agentId",
    b"namespace",
)
"""Fields that a frame is made of."""
_OF_USE: Final = frozenset({b"access_count", b"last_accessed_at"})
"""Those that a recall writes."""
_OTHERS: Final = ("source", "subject", "date", "vector")
"""What BetterDB writes besides; handed out where it is asked for by name."""

ID: Final = "$memory_id"
ENDS: Final = "$expires_at_ms"
_BYTES: Final = "$x"

_SCAN_AT_ONCE: Final = 1000
_ROWS_AT_ONCE: Final = 2000
_LAST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_TRIES: Final = 20
"""So many times a step is tried, or memories looked at, while somebody writes to them."""

_ENDING: Final = 1000
"""Milliseconds that a time to live must have left for a memory to be put back."""

DEFAULT_NAME: Final = "betterdb_ac"
"""What BetterDB calls a store that nobody named."""

_SHAPE: Final = shapes.fields(
    {ID: shapes.text, ENDS: shapes.integer(0)},
    absent={ENDS},
    others=shapes.text_or(shapes.text, shapes.fields({"blob": shapes.digits})),
)


class Betterdb(ServerSource):
    """The memories of one BetterDB store on a server."""

    atomic = False
    usage_fields = (*(name.decode() for name in _OF_USE), ENDS)
    setting = "max_items_per_scope=%d"
    """The argument with which a BetterDB is made that caps; what a server's hash of settings holds
    is read by those made with ``config_refresh`` alone."""

    def __init__(self, where: str) -> None:
        super().__init__(where, ("name", "archive", "db"))
        self.store = self.address.options.get("name") or DEFAULT_NAME
        self.prefix = f"{self.store}:mem:"
        self._database = _database_of(self.address)

    def known_as(self) -> str:
        """Return the store's name with its server's host and port."""
        where = "{}:{}".format(*host_and_port(self.address))
        if self.scheme == "unix":
            where = quote(self.address.path)
        return f"valkey://{where}/{self._database}?name={self.store}"

    @contextmanager
    def reading(self) -> Iterator[base.Reader]:
        """Look at the server; what it says was written since it was read is read again."""
        with (
            connected(self.address, self._database) as line,
            connected(self.address, self._database) as listening,
        ):
            yield HashReader(line, self, Changes(line, listening, self.prefix.encode()))

    @contextmanager
    def changing(self) -> Iterator[base.Writer]:
        """Open the server for a change, made some hundred memories at a time."""
        with connected(self.address, self._database) as line:
            yield BetterdbWriter(line, self)

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row."""
        memory_id, stored = hash_of(record)
        return row_of(f"{self.prefix}{memory_id}", memory_id, stored)

    def check_record(self, key: base.Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that a memory of this store can have a record: no other key is written to."""
        _SHAPE(said)
        memory_id, stored = hash_of(record)
        if record_of(memory_id, stored) != record:
            raise ValueError("its record is not written as records are")
        if key != f"{self.prefix}{memory_id}":
            raise ValueError(f"its key is not that of {memory_id!r:.80} in {self.store}")


def _database_of(address: Address) -> int:
    text = address.options.get("db") if address.scheme == "unix" else address.path.strip("/")
    if text and not text.isdigit():
        raise errors.MemlabError(
            f"{address.without_password()}: {text!r} is no number of a database; write "
            f"{address.scheme}://HOST:PORT/0?name={DEFAULT_NAME}"
        )
    return int(text or 0)


class Hash(NamedTuple):
    """One hash, or some of its fields."""

    fields: dict[bytes, bytes]
    ends: int


class HashReader(base.Reader):
    """Memories on a server, each of one moment, or all where `changes` tell; accesses of any."""

    lot: ClassVar[int] = 500
    """Hashes that one transaction reads, deletes or writes: it holds the server up for some ms."""

    def __init__(self, line: Line, source: Betterdb, changes: Changes | None = None) -> None:
        self.line = line
        self.source = source
        self.store = source.store
        self.prefix = source.prefix
        self._changes = changes
        self._marks: dict[bytes, int | None] | None = None
        """By the :func:`_mark` of each key: the memories whose rows were handed out."""

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[base.Rows]:
        """Yield every memory in order of time."""
        base.check_asked(columns, _OTHERS, "a memory of BetterDB's")
        asked = (*_LASTING, *_OF_USE, *(name.encode() for name in columns))
        found = dict(self.hashes(self._keys(), asked))
        if self._changes is not None:
            self._settle(found, asked, self._changes)
        if not found:
            self._check_there()
        last = -1
        places = []
        for place, key in sorted((_place(self._id(key), each), key) for key, each in found.items()):
            last = max(place, last + 1)  # no two have one
            places.append((last, key))
        for some in batched(places, _ROWS_AT_ONCE):
            rows = [row_of(shown_key(k), self._id(k), found[k], place) for place, k in some]
            others = {name: [_plain(name, found[key]) for _, key in some] for name in columns}
            yield base.rows_of_each(rows, with_body=with_body, others=others)

    def records(self, keys: Iterable[base.Key]) -> Iterator[tuple[base.Key, bytes]]:
        """Yield the records of those that are there, in the order of `keys`."""
        own = (key for key in map(raw_key, keys) if key.startswith(self.prefix.encode()))
        for asked in batched(own, self.lot):
            found = dict(self.hashes(asked))
            self._looked_at(asked, found)
            for key, stored in found.items():
                yield key.decode(errors="surrogateescape"), self.record(key, stored)

    def hashes(
        self, keys: Iterable[bytes], names: Sequence[bytes] = ()
    ) -> Iterator[tuple[bytes, Hash]]:
        """Yield the hashes that are there, or some fields, some hundred of one moment at a time."""
        for some in batched(keys, self.lot):
            yield from _found_in(some, self.line.at_once(_asking_for(some, names)) or [], names)

    def record(self, key: bytes, stored: Hash) -> bytes:
        """Return the record of a hash."""
        return record_of(self._id(key), stored)

    def _id(self, key: bytes) -> str:
        return shown_key(key).removeprefix(self.prefix)

    def _keys(self) -> Iterator[bytes]:
        literally = re.sub(r"[*?\[\]\\^-]", r"\\\g<0>", self.prefix)
        options = ("MATCH", f"{literally}*", "COUNT", _SCAN_AT_ONCE, "TYPE", "hash")
        cursor = b"0"
        while True:
            cursor, keys = self.line.ask("SCAN", cursor, *options)
            yield from keys  # one of them twice, perhaps
            if cursor == b"0":
                return

    def _looked_at(self, asked: Iterable[bytes], found: Mapping[bytes, Hash]) -> None:
        """Check that records are of the moment of the rows."""
        if self._marks is not None and any(
            _mark(found.get(key)) != self._marks.get(key) for key in asked
        ):
            raise self._moved()

    def _moved(self) -> errors.ChangedWhileReadError:
        return errors.ChangedWhileReadError(
            f"memories of {self.store} were written while they were read; try again when fewer "
            "agents are at work"
        )

    def _settle(self, found: dict[bytes, Hash], asked: Sequence[bytes], changes: Changes) -> None:
        """Read again what the server says was written, until that was no more than recalls.

        Then all is as it was when the server was last asked.
        """
        for _ in range(_TRIES):
            before = {key: _mark(found.pop(key, None)) for key in changes.so_far()}
            found.update(self.hashes(before, asked))
            if all(_mark(found.get(key)) == mark for key, mark in before.items()):
                break
        else:
            raise self._moved()
        marks = {key: _mark(each) for key, each in found.items()}
        if self._marks not in (None, marks):
            raise self._moved()
        self._marks = marks

    def _check_there(self) -> None:
        own = (f"{self.store}:__mem_stats", f"{self.store}:__mem_config")
        known = self.line.ask("HKEYS", "__betterdb:caches")
        names = sorted(key.decode(errors="replace").removesuffix(":mem") for key in known)
        if self.store in names or self.line.ask("EXISTS", *own):
            return
        others = f"; there are {', '.join(names)}" if names else ""
        raise errors.StoreError(
            f"there is no BetterDB memory called {self.store!r} in this database{others}: name one "
            "by ?name=, and the database by its number after the slash"
        )


class BetterdbWriter(HashReader, base.Writer):
    """Changes memories on a server, each in one atomic step with its neighbours."""

    def __init__(self, line: Line, source: Betterdb) -> None:
        super().__init__(line, source)
        self._ends: dict[bytes, int] = {}
        self._written: dict[bytes, str] = {}
        """The fingerprints of what was put back."""

    def insert(self, records: base.Records, *, watch: base.StepCallback = base.no_progress) -> int:
        """Write memories at their keys; take them out again where anything goes wrong."""
        try:
            return super().insert(records, watch=watch)
        except BaseException:
            with suppress(Exception):  # the error that is on its way says more
                self._take_out()
            raise

    def comparable_record(self, record: bytes) -> bytes:
        """Return what of a record a recall does not change."""
        return self.source.without_usage(record)

    def _count(self) -> int:
        return 0  # others write all the while

    def _stale(self, expected: Mapping[base.Key, str]) -> list[base.Key]:
        """Return what is not as planned, unless its own time has passed meanwhile."""
        stale = super()._stale(expected)
        return [] if self._have_ended(map(raw_key, stale)) else stale

    def _delete(self, expected: Mapping[base.Key, str]) -> None:
        """Delete memories that are as expected, and count them as BetterDB counts evictions."""
        wanted = {raw_key(key): fingerprint for key, fingerprint in expected.items()}
        with TemporaryFile() as undo:
            for some in batched(wanted, self.lot):
                if self._delete_some(some, wanted, undo):
                    continue
                self._put_back(undo)
                raise errors.StalePlanError(
                    "1 memories are gone or changed while they were deleted; those that were "
                    "gone are back; nothing was deleted: make a new plan"
                )

    def _check_deleted(self, expected: Mapping[base.Key, str], before: int) -> None:  # noqa: ARG002
        if left := sum(1 for _ in self.hashes(map(raw_key, expected))):
            raise errors.CompactionError(
                f"{left:,} of {len(expected):,} memories are there again: somebody writes them "
                "while they are deleted; stop that, then restore the plan and make a new one"
            )

    def _insert(self, records: base.Records) -> int:
        """Write every field of memories, and the moment at which they end, unless it has passed."""
        soon = self._now() + _ENDING
        self._written = {}
        for some in batched(records, self.lot):
            hashes = {raw_key(key): hash_of(record)[1] for key, record in some}
            living = {
                k: each for k, each in hashes.items() if each.ends == FOREVER or each.ends > soon
            }
            if not self._write(living):
                raise errors.ArchiveError(
                    f"a memory of {self.store} is there already; nothing was restored: restore the "
                    "others by --id"
                )
            self._written.update((k, self._print_back(k, each)) for k, each in living.items())
        return len(self._written)

    def _check_inserted(self, records: base.Records, wanted: int) -> None:  # noqa: ARG002
        found = self.hashes(self._written)
        same = {key for key, each in found if self._print_back(key, each) == self._written[key]}
        if wrong := [key for key in self._written if key not in same]:
            raise errors.ArchiveError(
                f"{len(wrong):,} memories did not come back as they were, {shown_key(wrong[0])} "
                "first; the others were taken out again: see who writes them"
            )

    def _looked_at(self, asked: Iterable[bytes], found: Mapping[bytes, Hash]) -> None:  # noqa: ARG002
        self._ends.update((key, each.ends) for key, each in found.items() if each.ends != FOREVER)

    def _print_back(self, key: bytes, stored: Hash) -> str:
        """Return one that tells when it ends, too; it may be recalled as soon as it is back."""
        fields = {name: value for name, value in stored.fields.items() if name not in _OF_USE}
        return fingerprint_of(self.record(key, Hash(fields, stored.ends)))

    def _delete_some(self, keys: list[bytes], wanted: Mapping[bytes, str], undo: IO[bytes]) -> bool:
        """Delete some memories in one step, or by halves; False where one is not as expected."""
        for _ in range(_TRIES if len(keys) == 1 else 1):
            found = dict(self._watch(keys))
            gone = [key for key in keys if key not in found]
            if (gone and not self._have_ended(gone)) or any(
                fingerprint_of(self.comparable_record(self.record(key, each))) != wanted[key]
                for key, each in found.items()
            ):
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
            commands.append(("HSET", key, *chain(*stored.fields.items())))
            if stored.ends != FOREVER:
                commands.append(("PEXPIREAT", key, stored.ends))
        return self._exchange(list(hashes), {}, commands)

    def _exchange(
        self, keys: list[bytes], there: Mapping[bytes, str], commands: list[tuple[Any, ...]]
    ) -> bool:
        """Send commands in one step if what is at some keys is what should be; whether it was."""
        for _ in range(_TRIES):
            if {key: self._print_back(key, each) for key, each in self._watch(keys)} != there:
                return False
            if self.line.at_once(commands) is not None:
                return True
        return False

    def _watch(self, keys: list[bytes]) -> Iterator[tuple[bytes, Hash]]:
        return _found_in(keys, self.line.ask_all([("WATCH", *keys), *_asking_for(keys)])[1:])

    def _now(self) -> int:
        seconds, micros = map(int, self.line.ask("TIME"))
        return seconds * 1000 + micros // 1000

    def _put_back(self, undo: IO[bytes]) -> None:
        """Undo what :meth:`delete` has done."""
        undo.seek(0)
        for some in batched(map(hash_of, undo), self.lot):
            gone = {f"{self.prefix}{memory_id}".encode(): each for memory_id, each in some}
            if not self._write(gone):
                raise errors.CompactionError(
                    f"memories of {self.store} changed while they were deleted, and not all that "
                    "were gone could be put back: restore the plan"
                )
            self.line.ask("HINCRBY", f"{self.store}:__mem_stats", "evictions", -len(some))

    def _take_out(self) -> None:
        """Undo what :meth:`insert` has done, where nobody has changed it since."""
        for key, fingerprint in self._written.items():
            self._exchange([key], {key: fingerprint}, [("DEL", key)])


def _asking_for(keys: Iterable[bytes], names: Sequence[bytes] = ()) -> list[tuple[Any, ...]]:
    """Return the commands that :func:`_found_in` understands the answers to."""
    word, *rest = ("HMGET", *names) if names else ("HGETALL",)
    return [asked for key in keys for asked in ((word, key, *rest), ("PEXPIRETIME", key))]


def _found_in(
    keys: Iterable[bytes], answers: Sequence[Any], names: Sequence[bytes] = ()
) -> Iterator[tuple[bytes, Hash]]:
    """Yield those of `keys` that are memories: a late recall leaves only fields of its own."""
    for key, said, ends in zip(keys, answers[::2], answers[1::2], strict=True):
        if isinstance(said, list) and isinstance(ends, int) and ends >= FOREVER:
            pairs = zip(names or said[::2], said if names else said[1::2], strict=True)
            fields = {name: value for name, value in pairs if value is not None}
            if not fields or fields.keys() - _OF_USE:
                yield key, Hash(fields, ends)


def record_of(memory_id: str, stored: Hash) -> bytes:
    """Return a hash as canonical JSON: a field's text, or its bytes where it is no UTF-8.

    >>> record_of("m1", Hash({b"content": b"note", b"vector": bytes([255])}, FOREVER)).decode()
    '{"$memory_id":"m1","content":"note","vector":{"blob":"ff"}}'
    """
    row: dict[str, Any] = {_name(name): _value(value) for name, value in stored.fields.items()}
    row[ID] = memory_id
    if stored.ends != FOREVER:
        row[ENDS] = stored.ends
    return base.canonical(row)


def hash_of(record: bytes) -> tuple[str, Hash]:
    """Return the id and the hash that :func:`record_of` made a record of."""
    row = json.loads(record)
    memory_id = row.pop(ID)
    ends = row.pop(ENDS, FOREVER)
    fields = {
        _name_in(name): bytes.fromhex(value["blob"]) if isinstance(value, dict) else value.encode()
        for name, value in row.items()
    }
    return memory_id, Hash(fields, ends)


def row_of(key: str, memory_id: str, stored: Hash, place: int | None = None) -> dict[str, Any]:
    """Return a memory as a row, with what is wrong with its fields among its faults."""
    wrong: dict[str, str] = {}

    def read(name: str, meaning: Callable[[bytes], Any] = bytes.decode, what: str = "UTF-8") -> Any:
        raw = stored.fields.get(name.encode())
        if raw is None:
            return None
        try:
            return meaning(raw)
        except ValueError:
            wrong[name] = f"{raw[:20]!r} is no {what}"
            return None

    content = read("content")
    written = read("created_at", _moment, "time")
    wrong |= {n: "is missing" for n in ("content", "created_at") if n.encode() not in stored.fields}
    title, _, body = (None, "", None) if content is None else content.partition("\n")
    position = _place(memory_id, stored) if place is None else place
    thread = read("threadId")
    return {
        "position": position,
        "key": key,
        "memory_id": memory_id,
        "kind": "episodic",
        "title": title,
        "body": body,
        "created_at": written,
        "tags_json": read("tags", _tags_json) or "[]",
        "source_task_ref": thread,
        "importance": read("importance", float, "number"),
        "last_accessed_at": read("last_accessed_at", _moment, "time"),
        "access_count": read("access_count", _whole, "whole number"),
        "expires_at": stored.ends * 1000 if 0 <= stored.ends <= _LAST else None,
        "agent_id": read("agentId"),
        "namespace": read("namespace"),
        "thread_id": thread,
        "loaded_at_start": False,
        "faults": [(position, name, f"{name} {words}") for name, words in wrong.items()],
    }


def _place(memory_id: str, stored: Hash) -> int:
    try:
        return base.position_from_timestamp(
            _moment(stored.fields.get(b"created_at", b"")) // 1000, memory_id
        )
    except ValueError:
        return base.position_from_timestamp(0, memory_id)


def _mark(stored: Hash | None) -> int | None:
    """Return what tells a memory from what it was, whatever was recalled."""
    return None if stored is None else hash(tuple(map(stored.fields.get, _LASTING)))


def _moment(raw: bytes) -> int:
    return _whole(raw, -62_135_596_800_000, _LAST) * 1000


def _whole(raw: bytes, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    if not least <= int(raw) <= most:
        raise ValueError
    return int(raw)


@lru_cache(maxsize=4096)
def _tags_json(raw: bytes) -> str:
    """Return tags, stored with commas between them, as a JSON list."""
    text = raw.decode()
    return json.dumps(text.split(",") if text else [], ensure_ascii=False)


def _plain(name: str, stored: Hash) -> Any:
    """Return a field asked for by name: text where it is one."""
    raw = stored.fields.get(name.encode())
    return raw if raw is None or name == "vector" else raw.decode(errors="replace")


def raw_key(key: base.Key) -> bytes:
    """Return a key as the server has it."""
    return str(key).encode(errors="surrogateescape")


def shown_key(key: bytes) -> str:
    """Return a key as text; one that is none is shown, and nothing can be done with it."""
    return key.decode(errors="backslashreplace")


def _name(raw: bytes) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return _BYTES + raw.hex()
    return f"${name}" if name.startswith("$") else name


def _name_in(name: str) -> bytes:
    if name.startswith("$$"):
        return name[1:].encode()
    return bytes.fromhex(name[2:]) if name.startswith(_BYTES) else name.encode()


def _value(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"blob": raw.hex()}
