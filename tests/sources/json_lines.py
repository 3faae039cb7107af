"""An agent's JSON lines, a memory each, oldest first; who appends holds the file's lock (flock)."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_SH, flock
from operator import itemgetter
from pathlib import Path
from typing import Any

from memlab.clock import moment_of
from memlab.errors import StoreError
from memlab.files import limit_like, ordinary_file, write_whole
from memlab.sources.base import FileSource, WholeReader, WholeWriter, position_from_timestamp
from memlab.sources.readers import Key, Reader, Writer
from memlab.store.archive.location import archive_path
from memlab.store.records import encoded, with_place, without_place
from memlab.store.shapes import anything, fields, integer, list_of, text

MEMORY = dict.fromkeys(("id", "at", "kind", "title", "body"), text) | {"tags": list_of(text)}


class JsonLines(FileSource):
    """The memories of one file."""

    scheme = "lines"
    endings = (".jsonl",)

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:
        """Return a file of such a name whose first line is a memory, or of which all were taken."""
        with suppress(OSError, ValueError), ordinary_file(path) as file:
            first = file.readline(2**24).decode()
            taken = not first and archive_path(path).exists()
            if path.suffix == ".jsonl" and (taken or record_of(first)):
                return path
        return None

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Read all of it under its lock."""
        with self.locked(LOCK_SH) as said:
            yield WholeReader(self, self.memories_of(said))

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Make the file anew when the block ends: kept lines as they are, others in their place."""
        with self.locked(LOCK_EX) as said:
            before = self.memories_of(said)
            yield WholeWriter(self, after := before.copy())
            lines = [json.loads(record)["line"] for key, record in after.items() if key in before]
            back = [json.loads(record) for key, record in after.items() if key not in before]
            for each in sorted(back, key=itemgetter("place")):
                lines.insert(each["place"], each["line"])
            end = "\n" if lines and (not said or said.endswith("\n")) else ""
            write_whole(self.path.resolve(), "\n".join(lines) + end, limit=limit_like(self.path))

    @contextmanager
    def locked(self, how: int) -> Iterator[str]:
        """Hold its lock and hand out its text; a file replaced meanwhile is opened again."""
        with ExitStack() as held:
            try:
                while True:
                    flock(file := held.enter_context(ordinary_file(self.path)), how)
                    if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                        break
            except (OSError, ValueError) as error:
                raise StoreError(f"{self.path} cannot be read ({error}); check the file") from error
            yield file.read().decode(errors="surrogateescape")

    def memories_of(self, said: str) -> dict[Key, bytes]:
        """Return the records of a text by id, each with its line number."""
        found: dict[Key, bytes] = {}
        for at, line in enumerate(said.removesuffix("\n").split("\n") if said else ()):
            try:
                record = record_of(line)
            except ValueError as error:
                raise StoreError(f"{self.path}, line {at + 1}: {error}; mend it") from error
            if (key := json.loads(record)["id"]) in found:
                raise StoreError(f"{self.path} has two memories {key!r:.80}; rename or remove one")
            found[key] = with_place(record, at)
        return found

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return a memory as a row."""
        said = json.loads(record)
        key = said["id"]
        at = said["at"]
        tags = json.dumps(said["tags"])
        place = position_from_timestamp(int(moment_of(at).timestamp() * 1_000), key)
        row = {"position": place, "key": key, "memory_id": key, "created_at": at, "tags_json": tags}
        return {**row, "authored_by": "agent", **{n: said[n] for n in ("kind", "title", "body")}}

    def check_record(self, key: Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that one line can say so."""
        super().check_record(key, record, said)
        fields({"place": integer(0), "line": text}, others=anything)(said)
        same = "\n" not in said["line"] and record_of(said["line"]) == without_place(record)
        if not same or said["id"] != key:
            raise ValueError("it is not what its line says, or of another key")


def record_of(line: str) -> bytes:
    """Return what a line says, and the line itself; ValueError where it is no memory."""
    try:
        memory = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON, or nested too deep") from error
    fields(MEMORY, others=anything)(memory)
    moment_of(memory["at"])
    return encoded({name: memory[name] for name in MEMORY} | {"line": line})
