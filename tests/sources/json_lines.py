"""A store of one JSON object a line: id, at, kind, tags, title and body.

Whoever writes one holds its lock and appends whole lines; a deletion makes the file anew.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_SH, flock
from pathlib import Path
from typing import Any

from memlab.clock import moment_of
from memlab.errors import StoreError
from memlab.files import limit_like, ordinary_file, write_whole
from memlab.sources.base import FileSource, Key, Reader, WholeReader, WholeWriter, Writer, place_of
from memlab.store.records import encoded
from memlab.store.shapes import fields, listed, stored, text

TEXTS = ("id", "at", "kind", "title", "body")
MEMORY = fields({**dict.fromkeys(TEXTS, text), "tags": listed(text)}, others=stored)


class JsonLines(FileSource):
    """The memories of one file."""

    scheme = "lines"

    @classmethod
    def may_be(cls, path: Path, inside: Collection[str] | None) -> bool:
        """Whether a file has such a name."""
        return inside is None and path.suffix == ".jsonl"

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:
        """Return a file of such a name whose first line is a memory."""
        if cls.may_be(path, None):
            with suppress(OSError, ValueError, RecursionError), ordinary_file(path) as file:
                record_of(file.readline(2**20).decode())
                return path
        return None

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Read all of it under its lock."""
        with locked(self.path, LOCK_SH) as memories:
            yield WholeReader(self, memories)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Hold its lock, and put a new file in its place when the block ends."""
        with locked(self.path, LOCK_EX) as memories:
            yield WholeWriter(self, memories)
            in_order = sorted(memories.values(), key=lambda each: self.row_of(each)["position"])
            lines = [json.loads(record)["line"] + "\n" for record in in_order]
            write_whole(self.path, "".join(lines), limit=limit_like(self.path))

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return a memory as a row."""
        memory = json.loads(record)
        at = moment_of(memory["at"])
        return {
            "position": place_of(int(at.timestamp() * 1_000), memory["id"]),
            "key": memory["id"],
            "memory_id": memory["id"],
            "tags_json": json.dumps(memory["tags"]),
            "authored_by": "lines",
            "created_at": memory["at"],
            "confidence": 1.0,
            **{name: memory[name] for name in ("kind", "title", "body")},
        }

    def check_record(self, key: Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that one line can say so."""
        line = said.get("line")
        if not isinstance(line, str) or "\n" in line or record_of(line) != record:
            raise ValueError("it is not what its line says")
        if said["id"] != key:
            raise ValueError(f"its id is {said['id']!r:.80}")


def record_of(line: str) -> bytes:
    """Return what a line says, and the line itself; ValueError where it is no memory."""
    memory = json.loads(line)
    MEMORY(memory)
    moment_of(memory["at"])
    return encoded({**memory, "line": line})


@contextmanager
def locked(path: Path, how: int) -> Iterator[dict[Key, bytes]]:
    """Hold a file's lock and hand out its records; one replaced meanwhile is opened again."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); check the path") from error
    with file:
        flock(file, how)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            try:
                records = [record_of(line) for line in file.read().decode().splitlines()]
            except (ValueError, RecursionError) as error:
                raise StoreError(f"{path} holds what is no memory ({error}); mend it") from error
            yield {json.loads(record)["id"]: record for record in records}
            return
    with locked(path, how) as again:
        yield again
