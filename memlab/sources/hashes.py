"""Hashes of a Valkey or Redis server, exactly: every field's bytes, and the moment it ends."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from memlab.sources.valkey_server import Line

FOREVER: Final = -1
"""When a hash ends that has no time to live."""
AT_ONCE: Final = 500
"""Hashes that one transaction reads, deletes or writes: it holds the server up for some ms."""

_ID: Final = "$memory_id"
_ENDS: Final = "$expires_at_ms"
_BYTES: Final = "$x"
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


class Hash(NamedTuple):
    """One hash.

    Attributes
    ----------
    fields : dict of bytes to bytes
        All of it.
    ends : int
        When it is gone by itself, in milliseconds since 1970, or :data:`FOREVER`.
    """

    fields: dict[bytes, bytes]
    ends: int


def record_of(memory_id: str, stored: Hash) -> bytes:
    """Return a hash as canonical JSON: a field's text, or its bytes where it is no UTF-8.

    Examples
    --------
    >>> record_of("m1", Hash({b"content": b"note", b"vector": bytes([255])}, FOREVER)).decode()
    '{"$memory_id":"m1","content":"note","vector":{"blob":"ff"}}'
    """
    row: dict[str, Any] = {_name(name): _value(value) for name, value in stored.fields.items()}
    row[_ID] = memory_id
    if stored.ends != FOREVER:
        row[_ENDS] = stored.ends
    return _JSON.encode(row).encode()


def hash_of(record: bytes) -> tuple[str, Hash]:
    """Return the id and the hash that :func:`record_of` made a record of."""
    row = json.loads(record)
    memory_id, ends = row.pop(_ID), row.pop(_ENDS, FOREVER)
    fields = {
        _name_in(name): bytes.fromhex(value["blob"]) if isinstance(value, dict) else value.encode()
        for name, value in row.items()
    }
    return memory_id, Hash(fields, ends)


def read_hashes(line: Line, keys: Iterable[bytes]) -> Iterator[list[tuple[bytes, Hash]]]:
    """Yield the hashes that are there, some hundred at a time, each lot at one moment."""
    for some in portions(keys):
        yield list(found_in(some, line.at_once(asking_for(some)) or []))


def asking_for(keys: Iterable[bytes]) -> list[tuple[Any, ...]]:
    """Return the commands that :func:`found_in` understands the answers to."""
    return [command for key in keys for command in (("HGETALL", key), ("PEXPIRETIME", key))]


def found_in(keys: Iterable[bytes], answers: Sequence[Any]) -> Iterator[tuple[bytes, Hash]]:
    """Yield those of `keys` that are there as hashes."""
    for key, flat, ends in zip(keys, answers[::2], answers[1::2], strict=True):
        if isinstance(flat, list) and flat:
            yield key, Hash(dict(zip(flat[::2], flat[1::2], strict=True)), int(ends))


def portions(keys: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield some hundred at a time."""
    remaining = iter(keys)
    while some := list(islice(remaining, AT_ONCE)):
        yield some


@lru_cache(maxsize=1024)
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
