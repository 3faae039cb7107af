"""A source for JSON lines: one memory per line, oldest first. The agent locks the file (flock)."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from memlab.clock import moment_of
from memlab.errors import StoreError
from memlab.files import ordinary_file
from memlab.sources.base import position_from_timestamp
from memlab.sources.locked_file import LockedFile
from memlab.sources.readers import Key
from memlab.sources.system import System
from memlab.store.archive.location import archive_path
from memlab.store.records import encoded, with_place, without_place
from memlab.store.shapes import anything, fields, integer, list_of, text

LINES = System("JSON lines", ("lines",), f"{__name__}:JsonLines", start="boot context")
MEMORY = dict.fromkeys(("id", "at", "kind", "title", "body"), text) | {"tags": list_of(text)}


class JsonLines(LockedFile):
    """A file of JSON lines."""

    scheme = "lines"
    endings = (".jsonl",)

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:
        """Return a .jsonl file whose first line is a memory, or an empty one with an archive."""
        with suppress(OSError, ValueError), ordinary_file(path) as file:
            first = file.readline(2**24).decode()
            is_emptied = not first and archive_path(path).exists()
            if path.suffix == ".jsonl" and (is_emptied or record_of(first)):
                return path
        return None

    def records_in(self, content: str) -> dict[Key, bytes]:
        """Return the records of a file by id, each with its line number."""
        records: dict[Key, bytes] = {}
        lines = content.removesuffix("\n").split("\n") if content else []
        for place, line in enumerate(lines):
            try:
                record = record_of(line)
            except ValueError as error:
                raise StoreError(f"{self.path}, line {place + 1}: {error}; mend it") from error
            key = json.loads(record)["id"]
            if key in records:
                raise StoreError(f"{self.path} has two memories {key!r:.80}; rename or remove one")
            records[key] = with_place(record, place)
        return records

    def content_of(self, records: Sequence[bytes], before: str) -> str:
        """Return the lines of records; the last one ends as the file's last line ended before."""
        lines = [json.loads(record)["line"] for record in records]
        has_end = not before or before.endswith("\n")
        return "\n".join(lines) + ("\n" if lines and has_end else "")

    def row_in(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return a parsed record as a row."""
        milliseconds = int(moment_of(said["at"]).timestamp() * 1_000)
        return {
            "position": position_from_timestamp(milliseconds, said["id"]),
            "key": said["id"],
            "memory_id": said["id"],
            "kind": said["kind"],
            "title": said["title"],
            "body": said["body"],
            "tags_json": json.dumps(said["tags"]),
            "authored_by": "agent",
            "created_at": said["at"],
        }

    def check_record(self, key: Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that an archived record is that of its line, and of this key."""
        super().check_record(key, record, said)
        fields({"place": integer(0), "line": text}, others=anything)(said)
        is_of_line = "\n" not in said["line"] and record_of(said["line"]) == without_place(record)
        if not is_of_line or said["id"] != key:
            raise ValueError("it is not what its line says, or of another key")


def record_of(line: str) -> bytes:
    """Return the fields of a line and the line itself; raise ValueError if it is no memory."""
    try:
        memory = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON, or nested too deep") from error
    fields(MEMORY, others=anything)(memory)
    moment_of(memory["at"])
    return encoded({name: memory[name] for name in MEMORY} | {"line": line})
