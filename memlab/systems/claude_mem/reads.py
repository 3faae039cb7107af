"""claude-mem: observations in SQLite, fetched by a tool whose calls Claude's transcripts record.

A read is an id among those that a call of ``get_observations`` asked for. What a start loads is no
read, nor is a search that lists titles. The database tells in which session an observation was
written; a fetch in that session is no later need.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final

from memlab.sources.reads import OWN_SESSION, READ, Asked, Found, Read, mapping, sequence, text
from memlab.sources.sqlite_rows import read_database, tables_of
from memlab.sources.transcripts import Touch, blocks_of, seen_in

NAME: Final = "a claude-mem database"

_FILE: Final = "claude-mem.db"
_TOOL: Final = "get_observations"
_LONGEST: Final = 19
"""Digits of SQLite's largest number."""
_SESSIONS: Final = """
SELECT CAST(observations.id AS TEXT), content_session_id FROM observations
JOIN sdk_sessions USING (memory_session_id) WHERE content_session_id IS NOT NULL
"""


def recognises(asked: Asked) -> bool:
    """Whether the source is claude-mem's database or the folder that it lies in."""
    return {"observations", "sdk_sessions"} <= set(tables_of(_database(asked.path)))


def find(asked: Asked) -> Found:
    """Return the observations that were fetched."""
    database = _database(asked.path).resolve()
    beside = database.parent.parent / ".claude" / "projects"
    found = Found()
    written = read_database(database, _sessions)
    for one in seen_in(asked, _Look(), found, beside=beside):
        memory_id = one.touch.memory_id
        own = written.get(memory_id) == one.session
        (found.apart if own else found.reads).append(
            Read(
                memory_id,
                one.at,
                f"claude-mem:{one.touch.call}:{memory_id}",
                one.touch.how,
                one.session,
                OWN_SESSION if own else READ,
            )
        )
    found.store = str(database)
    return found


class _Look:
    """Finds calls that fetch observations."""

    def concerns(self, line: bytes) -> bool:
        return b"get_observations" in line and b'"tool_use"' in line

    def touches(self, line: dict[str, Any]) -> Iterator[Touch]:
        for block in blocks_of(line, "tool_use"):
            tool = text(block.get("name"))
            if tool == _TOOL or tool.endswith(f"__{_TOOL}"):
                call = text(block.get("id")) or text(line.get("uuid"))
                for number in _ids(mapping(block.get("input")).get("ids")):
                    yield Touch(call, number, _TOOL)


def _ids(given: object) -> Iterator[str]:
    """Yield the ids of a list, or of a text that claude-mem takes for one: JSON, or commas."""
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            listed = json.loads(given)
            given = listed if isinstance(listed, list) else given
    for each in given.split(",") if isinstance(given, str) else sequence(given):
        number = str(each).strip() if isinstance(each, int | str) else ""
        if number.isdecimal() and len(number) <= _LONGEST:
            yield str(int(number))


def _database(path: Path) -> Path:
    return path / _FILE if path.is_dir() else path


def _sessions(connection: Connection) -> dict[str, str]:
    """Return the session that wrote each observation."""
    return dict(connection.execute(_SESSIONS))
