"""BetterDB's agent memory: hashes on a Valkey or Redis server, with or without vector search.

Memories are compared and deleted in atomic batches (WATCH, MULTI, EXEC) of up to 500. If a later
batch finds a changed memory, the batches already deleted are restored from a temporary file.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from tempfile import TemporaryFile
from typing import IO, Any, ClassVar, Final, NamedTuple
from urllib.parse import quote

from memlab import errors
from memlab.sources import base, readers
from memlab.sources.address import Address, ServerSource
from memlab.sources.capabilities import NativeCap
from memlab.sources.valkey import Changes, ServerConnection, connected, host_and_port
from memlab.store import shapes
from memlab.store.records import batched, fingerprint_of

FOREVER: Final = -1
"""Expiry time of a hash without a time to live."""

_UNCHANGED_BY_RECALL: Final = (
    b"content",
    b"created_at",
    b"tags",
    b"importance",
    b"threadId",
    b"agentId",
    b"namespace",
)
"""Hash fields that make up a row and do not change on a recall."""
_CHANGED_BY_RECALL: Final = frozenset({b"access_count", b"last_accessed_at"})
"""Hash fields that a recall writes."""
_REQUESTABLE: Final = ("source", "subject", "date", "vector")
"""Further fields of BetterDB, returned only on request."""

ID: Final = "$memory_id"
"""Key in a record: the id of the memory."""
EXPIRES_AT: Final = "$expires_at_ms"
"""Key in a record: the expiry time, in milliseconds since 1970."""
_HEX_NAME: Final = "$x"
"""Prefix in a record of a field whose name is not UTF-8, before its hexadecimal digits."""

_KEYS_PER_SCAN: Final = 1000
_ROWS_PER_BATCH: Final = 2000
_FIRST_TIME: Final = -62_135_596_800_000
"""The first millisecond of the year 1, counted from 1970."""
_LAST_TIME: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, counted from 1970."""
_ATTEMPTS: Final = 20
"""Number of attempts of a batch while other clients write to its memories."""

_LEAST_REMAINING_TIME: Final = 1000
"""Minimum remaining time to live of a memory that is restored, in milliseconds."""

DEFAULT_NAME: Final = "betterdb_ac"
"""BetterDB's default store name."""

_SHAPE: Final = shapes.fields(
    {ID: shapes.text, EXPIRES_AT: shapes.integer(0)},
    may_be_absent={EXPIRES_AT},
    others=shapes.text_or(shapes.text, shapes.fields({"blob": shapes.digits})),
)


class Betterdb(ServerSource):
    """The memories of one BetterDB store on a server."""

    usage_fields = (*(name.decode() for name in _CHANGED_BY_RECALL), EXPIRES_AT)
    native_cap = NativeCap("max_items_per_scope=%d")
    """The constructor argument that sets BetterDB's cap. The settings on the server are read only
    by stores created with ``config_refresh``."""

    def __init__(self, url: str) -> None:
        super().__init__(url, ("name", "archive", "db"))
        self.store = self.address.options.get("name") or DEFAULT_NAME
        self.prefix = f"{self.store}:mem:"
        self._database = _database_of(self.address)

    def canonical_name(self) -> str:
        """Return the URL of the store with the host and port of its server."""
        if self.scheme == "unix":
            server = quote(self.address.path)
        else:
            host, port = host_and_port(self.address)
            server = f"{host}:{port}"
        return f"valkey://{server}/{self._database}?name={self.store}"

    @contextmanager
    def reading(self) -> Iterator[readers.Reader]:
        """Open the server for reading; memories that change meanwhile are read again."""
        with (
            connected(self.address, self._database) as connection,
            connected(self.address, self._database) as subscriber,
        ):
            changes = Changes(connection, subscriber, self.prefix.encode())
            yield HashReader(connection, self, changes)

    @contextmanager
    def changing(self) -> Iterator[readers.Writer]:
        """Open the server for a change, made in atomic batches."""
        with connected(self.address, self._database) as connection:
            yield BetterdbWriter(connection, self)

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return an archived memory as a row."""
        memory_id, stored = hash_of(record)
        return row_of(f"{self.prefix}{memory_id}", memory_id, stored)

    def check_record(self, key: readers.Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Raise ValueError if a record cannot be a memory of this store."""
        _SHAPE(parsed)
        memory_id, stored = hash_of(record)
        if record_of(memory_id, stored) != record:
            raise ValueError("its record is not in canonical form")
        if key != f"{self.prefix}{memory_id}":
            raise ValueError(f"its key is not that of {memory_id!r:.80} in {self.store}")


def _database_of(address: Address) -> int:
    """Return the database number of an address; raise MemlabError if it is not a number."""
    # The path of a unix address is that of the socket.
    text = address.options.get("db") if address.scheme == "unix" else address.path.strip("/")
    if text and not text.isdigit():
        raise errors.MemlabError(
            f"{address.without_password()}: {text!r} is not the number of a database; write "
            f"{address.scheme}://HOST:PORT/0?name={DEFAULT_NAME}"
        )
    return int(text or 0)


class Hash(NamedTuple):
    """The fields of a hash, all or some, and its expiry time in milliseconds or :data:`FOREVER`."""

    fields: dict[bytes, bytes]
    expires_at: int


class HashReader(readers.Reader):
    """Reads memories on a server.

    Each memory is read consistently. With `changes`, all memories are of one moment, except for
    their usage fields.
    """

    hashes_per_transaction: ClassVar[int] = 500
    """Largest number of hashes in one transaction; it blocks the server for a few milliseconds."""

    def __init__(
        self, connection: ServerConnection, source: Betterdb, changes: Changes | None = None
    ) -> None:
        self.connection = connection
        self.source = source
        self.store = source.store
        self.prefix = source.prefix
        self._changes = changes
        # The checksum of the lasting fields of each memory whose row was returned.
        self._lasting_checksums: dict[bytes, int | None] | None = None

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[readers.Rows]:
        """Yield all memories in batches, ordered by creation time."""
        readers.check_requested(columns, _REQUESTABLE, "a memory of BetterDB's")
        names = (*_UNCHANGED_BY_RECALL, *_CHANGED_BY_RECALL, *(name.encode() for name in columns))
        hashes = dict(self.hashes(self._keys(), names))
        if self._changes is not None:
            self._read_changed_again(hashes, names, self._changes)
        if not hashes:
            self._check_store_exists()
        by_time = sorted((_position(self._id(key), stored), key) for key, stored in hashes.items())
        position = -1
        positions = []
        for position_by_time, key in by_time:
            position = max(position_by_time, position + 1)  # positions are unique
            positions.append((position, key))
        for batch in batched(positions, _ROWS_PER_BATCH):
            rows = [
                row_of(shown_key(key), self._id(key), hashes[key], position)
                for position, key in batch
            ]
            requested = {
                name: [_requested_value(name, hashes[key]) for _, key in batch] for name in columns
            }
            yield readers.rows_from_dicts(rows, with_body=with_body, others=requested)

    def records(self, keys: Iterable[readers.Key]) -> Iterator[tuple[readers.Key, bytes]]:
        """Yield the records of the existing memories, in the order of `keys`."""
        prefix = self.prefix.encode()
        keys_of_store = (key for key in map(raw_key, keys) if key.startswith(prefix))
        for batch in batched(keys_of_store, self.hashes_per_transaction):
            hashes = dict(self.hashes(batch))
            self._on_hashes_read(batch, hashes)
            for key, stored in hashes.items():
                yield key.decode(errors="surrogateescape"), self.record(key, stored)

    def hashes(
        self, keys: Iterable[bytes], names: Sequence[bytes] = ()
    ) -> Iterator[tuple[bytes, Hash]]:
        """Yield the existing hashes, or the fields in `names`; each batch is of one moment."""
        for batch in batched(keys, self.hashes_per_transaction):
            answers = self.connection.in_transaction(_commands_to_read(batch, names)) or []
            yield from _hashes_in_answers(batch, answers, names)

    def record(self, key: bytes, stored: Hash) -> bytes:
        """Return the record of a hash."""
        return record_of(self._id(key), stored)

    def _id(self, key: bytes) -> str:
        return shown_key(key).removeprefix(self.prefix)

    def _keys(self) -> Iterator[bytes]:
        """Yield the keys of the store's hashes; a key may occur twice."""
        # A backslash before each character that has a meaning in a pattern of SCAN.
        escaped_prefix = re.sub(r"[*?\[\]\\^-]", r"\\\g<0>", self.prefix)
        options = ("MATCH", f"{escaped_prefix}*", "COUNT", _KEYS_PER_SCAN, "TYPE", "hash")
        cursor = b"0"
        while True:
            cursor, keys = self.connection.ask("SCAN", cursor, *options)
            yield from keys
            if cursor == b"0":
                return

    def _on_hashes_read(self, keys: Iterable[bytes], hashes: Mapping[bytes, Hash]) -> None:
        """Raise ChangedWhileReadError if a memory in `hashes` has changed since it became a row."""
        if self._lasting_checksums is None:
            return
        for key in keys:
            if _lasting_checksum(hashes.get(key)) != self._lasting_checksums.get(key):
                raise self._changed_error()

    def _changed_error(self) -> errors.ChangedWhileReadError:
        """Return the error for memories that were written while they were read."""
        return errors.ChangedWhileReadError(
            f"memories of {self.store} were written while they were read; try again when fewer "
            "agents are at work"
        )

    def _read_changed_again(
        self, hashes: dict[bytes, Hash], names: Sequence[bytes], changes: Changes
    ) -> None:
        """Read changed memories again, until only recalls change memories meanwhile.

        At the end, `hashes` has the memories as they were at the moment of the last request, except
        for their usage fields.
        """
        for _ in range(_ATTEMPTS):
            before = {}
            for key in changes.changed_keys():
                before[key] = _lasting_checksum(hashes.pop(key, None))
            hashes.update(self.hashes(before, names))
            after = {key: _lasting_checksum(hashes.get(key)) for key in before}
            if after == before:
                break
        else:
            raise self._changed_error()
        lasting_checksums = {key: _lasting_checksum(stored) for key, stored in hashes.items()}
        was_read_before = self._lasting_checksums is not None
        if was_read_before and self._lasting_checksums != lasting_checksums:
            raise self._changed_error()
        self._lasting_checksums = lasting_checksums

    def _check_store_exists(self) -> None:
        """Raise StoreError if the server does not know the store."""
        keys_of_store = (f"{self.store}:__mem_stats", f"{self.store}:__mem_config")
        registered_keys = self.connection.ask("HKEYS", "__betterdb:caches")
        names = sorted(key.decode(errors="replace").removesuffix(":mem") for key in registered_keys)
        if self.store in names or self.connection.ask("EXISTS", *keys_of_store):
            return
        others = f"; there are {', '.join(names)}" if names else ""
        raise errors.StoreError(
            f"there is no BetterDB memory called {self.store!r} in this database{others}: name one "
            "by ?name=, and the database by its number after the slash"
        )


class BetterdbWriter(HashReader, readers.Writer):
    """Changes memories on a server in atomic batches."""

    atomic = False

    def __init__(self, connection: ServerConnection, source: Betterdb) -> None:
        super().__init__(connection, source)
        self._expiry_times: dict[bytes, int] = {}
        self._written: dict[bytes, str] = {}
        """The fingerprint of each memory that was restored."""

    def insert(
        self, records: readers.Records, *, on_step: readers.StepCallback = readers.no_progress
    ) -> int:
        """Write memories at their keys; remove them again on any error."""
        try:
            return super().insert(records, on_step=on_step)
        except BaseException:
            with suppress(Exception):  # the original error is more useful
                self._delete_written()
            raise

    def comparable_record(self, record: bytes) -> bytes:
        """Return a record without the fields that a recall changes."""
        return self.source.without_usage(record)

    def _count(self) -> int:
        """Return 0: other clients write meanwhile, so that a count would not check anything."""
        return 0

    def _stale(self, expected: Mapping[readers.Key, str]) -> list[readers.Key]:
        """Return the memories that have changed; an empty list if all of them have just expired."""
        stale = super()._stale(expected)
        if self._have_expired(map(raw_key, stale)):
            return []
        return stale

    def _delete(self, expected: Mapping[readers.Key, str]) -> None:
        """Delete memories that are as expected, and count them as evictions of BetterDB."""
        fingerprints = {raw_key(key): fingerprint for key, fingerprint in expected.items()}
        with TemporaryFile() as undo:
            for batch in batched(fingerprints, self.hashes_per_transaction):
                if self._delete_some(batch, fingerprints, undo):
                    continue
                self._restore_deleted(undo)
                raise errors.StalePlanError(
                    "a memory was deleted or changed by another program meanwhile; those that "
                    "memlab had deleted are back; nothing was deleted: make a new plan"
                )

    def _check_deleted(self, expected: Mapping[readers.Key, str], before: int) -> None:  # noqa: ARG002
        remaining = sum(1 for _ in self.hashes(map(raw_key, expected)))
        if remaining:
            raise errors.CompactionError(
                f"{remaining:,} of {len(expected):,} memories are there again: somebody writes "
                "them while they are deleted; stop that, then restore the plan and make a new one"
            )

    def _insert(self, records: readers.Records) -> int:
        """Write all fields and the expiry time of memories; leave out those that have expired."""
        earliest_expiry = self._now() + _LEAST_REMAINING_TIME
        self._written = {}
        for batch in batched(records, self.hashes_per_transaction):
            unexpired = {}
            for key, record in batch:
                _, stored = hash_of(record)
                if stored.expires_at == FOREVER or stored.expires_at > earliest_expiry:
                    unexpired[raw_key(key)] = stored
            if not self._write(unexpired):
                raise errors.ArchiveError(
                    f"a memory of {self.store} is there already; nothing was restored: restore the "
                    "others by --id"
                )
            for raw, stored in unexpired.items():
                self._written[raw] = self._restored_fingerprint(raw, stored)
        return len(self._written)

    def _check_inserted(self, records: readers.Records, expected_count: int) -> None:  # noqa: ARG002
        restored = set()
        for key, stored in self.hashes(self._written):
            if self._restored_fingerprint(key, stored) == self._written[key]:
                restored.add(key)
        wrong = [key for key in self._written if key not in restored]
        if wrong:
            raise errors.ArchiveError(
                f"{len(wrong):,} memories did not come back as they were, {shown_key(wrong[0])} "
                "first; the others were taken out again: see who writes them"
            )

    def _on_hashes_read(self, keys: Iterable[bytes], hashes: Mapping[bytes, Hash]) -> None:  # noqa: ARG002
        """Remember the expiry times of memories; a writer returns no rows that could change."""
        for key, stored in hashes.items():
            if stored.expires_at != FOREVER:
                self._expiry_times[key] = stored.expires_at

    def _restored_fingerprint(self, key: bytes, stored: Hash) -> str:
        """Return the fingerprint of a restored memory: with expiry time, without usage fields."""
        fields = {
            name: value for name, value in stored.fields.items() if name not in _CHANGED_BY_RECALL
        }
        return fingerprint_of(self.record(key, Hash(fields, stored.expires_at)))

    def _delete_some(
        self, keys: list[bytes], fingerprints: Mapping[bytes, str], undo: IO[bytes]
    ) -> bool:
        """Delete memories in one transaction, or in halves if other clients write to them.

        Return False if a memory is not as expected.
        """
        # A single memory cannot be halved, so it is tried again.
        attempts = _ATTEMPTS if len(keys) == 1 else 1
        for _ in range(attempts):
            hashes = dict(self._watch(keys))
            missing = [key for key in keys if key not in hashes]
            if missing and not self._have_expired(missing):
                return False
            if not self._are_as_expected(hashes, fingerprints):
                return False
            commands: list[tuple[Any, ...]] = []
            if hashes:
                counter = f"{self.store}:__mem_stats"
                commands.append(("DEL", *hashes))
                commands.append(("HINCRBY", counter, "evictions", len(hashes)))
            if self.connection.in_transaction(commands) is not None:
                for key, stored in hashes.items():
                    undo.write(self.record(key, stored) + b"\n")
                return True
        half = len(keys) // 2
        if half == 0:
            return False
        if not self._delete_some(keys[:half], fingerprints, undo):
            return False
        return self._delete_some(keys[half:], fingerprints, undo)

    def _are_as_expected(
        self, hashes: Mapping[bytes, Hash], fingerprints: Mapping[bytes, str]
    ) -> bool:
        """Return whether memories have their planned fingerprints."""
        for key, stored in hashes.items():
            record = self.comparable_record(self.record(key, stored))
            if fingerprint_of(record) != fingerprints[key]:
                return False
        return True

    def _have_expired(self, keys: Iterable[bytes]) -> bool:
        """Return whether all these memories have expired since they were read."""
        now = self._now()
        return all(key in self._expiry_times and self._expiry_times[key] <= now for key in keys)

    def _write(self, hashes: Mapping[bytes, Hash]) -> bool:
        """Write memories in one transaction; return False if one of the keys exists."""
        if not hashes:
            return True
        # A late recall may have left usage fields at the keys. They are deleted first.
        commands: list[tuple[Any, ...]] = [("DEL", *hashes)]
        for key, stored in hashes.items():
            names_and_values: list[bytes] = []
            for name, value in stored.fields.items():
                names_and_values += [name, value]
            commands.append(("HSET", key, *names_and_values))
            if stored.expires_at != FOREVER:
                commands.append(("PEXPIREAT", key, stored.expires_at))
        return self._run_if_unchanged(list(hashes), {}, commands)

    def _run_if_unchanged(
        self, keys: list[bytes], expected: Mapping[bytes, str], commands: list[tuple[Any, ...]]
    ) -> bool:
        """Send commands in one transaction, if the memories at `keys` are as expected.

        Return whether they are.

        Parameters
        ----------
        keys : list of bytes
            The keys.
        expected : mapping of bytes to str
            The expected fingerprint of each memory; a key without one must be free.
        commands : list of tuple
            The commands.
        """
        for _ in range(_ATTEMPTS):
            current = {
                key: self._restored_fingerprint(key, stored) for key, stored in self._watch(keys)
            }
            if current != expected:
                return False
            if self.connection.in_transaction(commands) is not None:
                return True
        return False

    def _watch(self, keys: list[bytes]) -> Iterator[tuple[bytes, Hash]]:
        """Watch keys for changes and yield their hashes."""
        commands = [("WATCH", *keys), *_commands_to_read(keys)]
        _, *answers = self.connection.ask_all(commands)
        return _hashes_in_answers(keys, answers)

    def _now(self) -> int:
        """Return the server's clock in milliseconds since 1970."""
        seconds, micros = map(int, self.connection.ask("TIME"))
        return seconds * 1000 + micros // 1000

    def _restore_deleted(self, undo: IO[bytes]) -> None:
        """Restore the memories that :meth:`delete` has deleted so far."""
        undo.seek(0)
        for batch in batched(map(hash_of, undo), self.hashes_per_transaction):
            deleted = {f"{self.prefix}{memory_id}".encode(): stored for memory_id, stored in batch}
            if not self._write(deleted):
                raise errors.CompactionError(
                    f"memories of {self.store} changed while they were deleted, and not all that "
                    "were gone could be put back: restore the plan"
                )
            self.connection.ask("HINCRBY", f"{self.store}:__mem_stats", "evictions", -len(batch))

    def _delete_written(self) -> None:
        """Delete the memories that :meth:`insert` has written, unless they have changed since."""
        for key, fingerprint in self._written.items():
            self._run_if_unchanged([key], {key: fingerprint}, [("DEL", key)])


def _commands_to_read(keys: Iterable[bytes], names: Sequence[bytes] = ()) -> list[tuple[Any, ...]]:
    """Return the commands that read hashes; :func:`_hashes_in_answers` parses their answers."""
    commands: list[tuple[Any, ...]] = []
    for key in keys:
        if names:
            commands.append(("HMGET", key, *names))
        else:
            commands.append(("HGETALL", key))
        commands.append(("PEXPIRETIME", key))
    return commands


def _hashes_in_answers(
    keys: Iterable[bytes], answers: Sequence[Any], names: Sequence[bytes] = ()
) -> Iterator[tuple[bytes, Hash]]:
    """Yield the hashes that are memories. Each has two answers: its fields, and its expiry time.

    A hash with usage fields alone is not a memory. Recalling a deleted memory leaves one.
    """
    field_answers = answers[::2]
    expiry_answers = answers[1::2]
    for key, answer, expires_at in zip(keys, field_answers, expiry_answers, strict=True):
        if not isinstance(answer, list) or not isinstance(expires_at, int):
            continue  # an error, such as for a key that is no hash
        if expires_at < FOREVER:
            continue  # the key does not exist
        if names:
            pairs = zip(names, answer, strict=True)
        else:  # HGETALL answers with name, value, name, value
            pairs = zip(answer[::2], answer[1::2], strict=True)
        fields = {name: value for name, value in pairs if value is not None}
        has_only_usage_fields = fields and fields.keys() <= _CHANGED_BY_RECALL
        if not has_only_usage_fields:
            yield key, Hash(fields, expires_at)


def record_of(memory_id: str, stored: Hash) -> bytes:
    """Return a hash as canonical JSON: fields as text, or as bytes if they are not UTF-8.

    >>> record_of("m1", Hash({b"content": b"note", b"vector": bytes([255])}, FOREVER)).decode()
    '{"$memory_id":"m1","content":"note","vector":{"blob":"ff"}}'
    """
    row: dict[str, Any] = {
        _name_from_bytes(name): _value_from_bytes(value) for name, value in stored.fields.items()
    }
    row[ID] = memory_id
    if stored.expires_at != FOREVER:
        row[EXPIRES_AT] = stored.expires_at
    return base.canonical(row)


def hash_of(record: bytes) -> tuple[str, Hash]:
    """Return the id and hash of a record of :func:`record_of`."""
    row = json.loads(record)
    memory_id = row.pop(ID)
    expires_at = row.pop(EXPIRES_AT, FOREVER)
    fields = {_bytes_of_name(name): _bytes_of_value(value) for name, value in row.items()}
    return memory_id, Hash(fields, expires_at)


def row_of(key: str, memory_id: str, stored: Hash, position: int | None = None) -> dict[str, Any]:
    """Return a memory as a row; unreadable fields are listed in its faults.

    Without a `position`, the row has the position of its creation time.
    """
    faults: dict[str, str] = {}

    def read(
        name: str, parse: Callable[[bytes], Any] = bytes.decode, expected: str = "UTF-8"
    ) -> Any:
        raw = stored.fields.get(name.encode())
        if raw is None:
            return None
        try:
            return parse(raw)
        except ValueError:
            faults[name] = f"{raw[:20]!r} is not {expected}"
            return None

    content = read("content")
    written = read("created_at", _moment, "a time")
    for name in ("content", "created_at"):
        if name.encode() not in stored.fields:
            faults[name] = "is missing"
    title = None
    body = None
    if content is not None:
        title, _, body = content.partition("\n")
    if position is None:
        position = _position(memory_id, stored)
    thread = read("threadId")
    expires_at = None
    if 0 <= stored.expires_at <= _LAST_TIME:
        expires_at = stored.expires_at * 1000  # in microseconds
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
        "importance": read("importance", float, "a number"),
        "last_accessed_at": read("last_accessed_at", _moment, "a time"),
        "access_count": read("access_count", _integer, "a whole number"),
        "expires_at": expires_at,
        "agent_id": read("agentId"),
        "namespace": read("namespace"),
        "thread_id": thread,
        "loaded_at_start": False,
        "faults": [
            readers.Fault(position, name, f"{name} {reason}") for name, reason in faults.items()
        ],
    }


def _position(memory_id: str, stored: Hash) -> int:
    """Return the position of a memory by its creation time; 0 milliseconds if it has none."""
    try:
        return base.position_from_timestamp(
            _moment(stored.fields.get(b"created_at", b"")) // 1000, memory_id
        )
    except ValueError:
        return base.position_from_timestamp(0, memory_id)


def _lasting_checksum(stored: Hash | None) -> int | None:
    """Return a checksum of the fields of a memory that recalls do not change."""
    if stored is None:
        return None
    return hash(tuple(stored.fields.get(name) for name in _UNCHANGED_BY_RECALL))


def _moment(raw: bytes) -> int:
    """Return a time in microseconds; raise ValueError outside the years 1 to 9999."""
    return _integer(raw, _FIRST_TIME, _LAST_TIME) * 1000


def _integer(raw: bytes, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """Return an integer; raise ValueError if it is out of range."""
    if not least <= int(raw) <= most:
        raise ValueError
    return int(raw)


@lru_cache(maxsize=4096)
def _tags_json(raw: bytes) -> str:
    """Return comma-separated tags as a JSON list."""
    text = raw.decode()
    return json.dumps(text.split(",") if text else [], ensure_ascii=False)


def _requested_value(name: str, stored: Hash) -> Any:
    """Return a requested field as text; the vector as bytes."""
    raw = stored.fields.get(name.encode())
    if raw is None or name == "vector":
        return raw
    return raw.decode(errors="replace")


def raw_key(key: readers.Key) -> bytes:
    """Return a key as bytes for the server."""
    return str(key).encode(errors="surrogateescape")


def shown_key(key: bytes) -> str:
    """Return a key as text; a key that is not UTF-8 is escaped and can only be shown."""
    return key.decode(errors="backslashreplace")


def _name_from_bytes(raw: bytes) -> str:
    """Return the name of a field as a key of a record.

    Keys that begin with one dollar sign have another meaning, so a leading one is doubled.
    """
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return _HEX_NAME + raw.hex()
    return f"${name}" if name.startswith("$") else name


def _bytes_of_name(name: str) -> bytes:
    """Return the name of a field from the key of a record."""
    if name.startswith("$$"):
        return name.removeprefix("$").encode()
    if name.startswith(_HEX_NAME):
        return bytes.fromhex(name.removeprefix(_HEX_NAME))
    return name.encode()


def _value_from_bytes(raw: bytes) -> Any:
    """Return the value of a field as a value of a record."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"blob": raw.hex()}


def _bytes_of_value(value: Any) -> bytes:
    """Return the value of a field from the value of a record."""
    return bytes.fromhex(value["blob"]) if isinstance(value, dict) else value.encode()
