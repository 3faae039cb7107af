"""A source for JSON lines: one memory per line, oldest first. The agent locks the file (flock)."""

import json
from collections.abc import Mapping
from typing import Any

from memlab.clock import moment_of
from memlab.sources.base import position_from_timestamp
from memlab.sources.locked_lines import LockedLines
from memlab.sources.system import System
from memlab.store.shapes import anything, fields, list_of, text

LINES = System("JSON lines", ("lines",), f"{__name__}:JsonLines", start="a start")
MEMORY = {
    "id": text,
    "at": text,
    "kind": text,
    "title": text,
    "body": text,
    "tags": list_of(text),
}
"""Checks of the fields of a memory."""


class JsonLines(LockedLines):
    """A file of JSON lines."""

    scheme = "lines"
    endings = (".jsonl",)

    @classmethod
    def fields_in(cls, line: str) -> dict[str, Any]:
        """Return the fields of the memory in a line; raise ValueError if it has none."""
        memory = json.loads(line)
        fields(MEMORY, others=anything)(memory)
        moment_of(memory["at"])
        return {name: memory[name] for name in MEMORY}

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """Return a parsed record as a row."""
        milliseconds = int(moment_of(parsed["at"]).timestamp() * 1_000)
        return {
            "position": position_from_timestamp(milliseconds, parsed["id"]),
            "key": parsed["id"],
            "memory_id": parsed["id"],
            "kind": parsed["kind"],
            "title": parsed["title"],
            "body": parsed["body"],
            "tags_json": json.dumps(parsed["tags"]),
            "authored_by": "agent",
            "created_at": parsed["at"],
        }
