"""Store files made row by row, also with rows that no agent would write."""

import json
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

from hypothesis import strategies as st

from memlab.items import MemoryItem
from memlab.store.database import COLUMNS, CREATE_TABLE
from memlab.store.signals import CREATE_SIGNALS
from memlab.store.sqlite_store import item_of

Row = dict[str, Any]


def row(memory_id: str, kind: str = "episodic", *tags: str, **columns: Any) -> Row:
    """Return one row, by default an episode; keywords are columns or ``rowid``."""
    return {
        "memory_id": memory_id,
        "kind": kind,
        "title": f"title of {memory_id}",
        "body": f"body of {memory_id}",
        "tags_json": json.dumps(tags),
        "source_task_ref": f"issue:{memory_id}",
        "authored_by": "agent",
        "confidence": 0.5,
        "created_at": "2026-03-01T12:00:00+00:00",
        "supersedes_json": "[]",
        "evidence_refs_json": "[]",
        **columns,
    }


def episodes(count: int, start: int = 1) -> list[Row]:
    """Return prunable rows ``e1``, ``e2``, ..."""
    return [row(f"e{number}", "episodic", "merged") for number in range(start, start + count)]


def item(memory_id: str, kind: str = "episodic", *tags: str, **columns: Any) -> MemoryItem:
    """Return the memory item of the row that :func:`row` returns."""
    fields = row(memory_id, kind, *tags, **columns)
    return item_of(tuple(fields.get(name) for name in COLUMNS))


def write_rows(path: Path, rows: Iterable[Row], *, journal_mode: str = "WAL") -> Path:
    """Add rows to a store; create the store if it is missing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        connection.execute(CREATE_TABLE)
        connection.execute("BEGIN")
        for columns in rows:
            names = ", ".join(columns)
            marks = ", ".join(map(_mark, columns.values()))
            values = [
                value.data if isinstance(value, RawText) else value for value in columns.values()
            ]
            connection.execute(f"INSERT INTO memory_items ({names}) VALUES ({marks})", values)
        connection.execute("COMMIT")
    return path


def write_signals(path: Path, memory_id: str, **signals: Any) -> None:
    """Write signals of a row; create the signals table if it is missing."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(CREATE_SIGNALS)
        names = ", ".join(["memory_id", "position", *signals])
        position = "(SELECT rowid FROM memory_items WHERE memory_id = ?1)"
        values = ", ".join(["?1", position, *["?"] * len(signals)])
        connection.execute(
            f"INSERT OR REPLACE INTO memory_signals ({names}) VALUES ({values})",
            [memory_id, *signals.values()],
        )


def signals_of(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM memory_signals ORDER BY memory_id").fetchall()


def files_in(folder: Path) -> dict[str, bytes | None]:
    """Return the bytes of every path in a folder, by name; None if it is not a file."""
    contents = {}
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else None
        contents[str(path.relative_to(folder))] = content
    return contents


class FileState(NamedTuple):
    """Bytes, permissions and time of a file or a link; a folder has no bytes and no time."""

    content: bytes
    """Bytes of a file, or the target of a link."""
    mode: int
    modified: int
    """Time of the last change, in nanoseconds; 0 if it is not compared."""

    @classmethod
    def of(cls, path: Path, *, with_time: bool = True) -> Self:
        """Read the state of a file, folder or link, by default with its time."""
        status = path.lstat()
        modified = status.st_mtime_ns if with_time else 0
        if path.is_symlink():
            return cls(os.fsencode(path.readlink()), status.st_mode, modified)
        if path.is_dir():
            return cls(b"", status.st_mode, 0)
        return cls(path.read_bytes(), status.st_mode, modified)


def run_sql(path: Path, *statements: str) -> None:
    """Run SQL statements on a store, as with the sqlite3 shell."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.executescript(statement)


class RawText:
    """Bytes that are stored as SQLite text, valid UTF-8 or not."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"RawText({self.data!r})"


def _mark(value: object) -> str:
    return "CAST(? AS TEXT)" if isinstance(value, RawText) else "?"


ANY_VALUE = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=6),
    st.binary(max_size=6),
    st.binary(max_size=6).map(RawText),
)
TAGS = st.lists(
    st.sampled_from(["merged", "failed", "rejected-path", "rejected-paths", "ü", '"', "a,b"]),
    max_size=3,
)


@st.composite
def row_lists(draw: st.DrawFn, *, max_size: int = 25) -> list[Row]:
    """Draw loadable rows with gaps between positions, and odd values in the columns
    that no reader interprets.
    """
    kinds = ["episodic", "episodic", "episodic", "semantic", "procedural"]
    positions = draw(st.lists(st.integers(-3, 60), unique=True, max_size=max_size))
    return [
        row(
            f"m{number}",
            draw(st.sampled_from(kinds)),
            *draw(TAGS),
            rowid=position,
            title=draw(st.text(max_size=6)),
            body=draw(st.one_of(st.text(max_size=6), st.just("a\0b"))),
            source_event_id=draw(ANY_VALUE),
            source_sequence=draw(ANY_VALUE),
            confidence=draw(st.floats(0, 1)),
            created_at=draw(st.sampled_from(["2026-03-01T12:00:00Z", "2025-07-01T00:00:00+02:00"])),
            superseded_by=draw(st.sampled_from([None, None, None, "m0", "nobody"])),
        )
        for number, position in enumerate(sorted(positions))
    ]
