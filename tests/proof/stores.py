"""Small stores with something of everything that agents write."""

import random
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memlab import MemoryItem, MemoryKind, MemoryProvenance, SqliteMemoryStore
from memlab.items import EventId, EventRef

START = datetime(2025, 3, 1, tzinfo=UTC)
NOW = datetime(2025, 6, 1, tzinfo=UTC)

_TEXTS = (
    "shipped, without trouble",
    "né à Zürich — 北京 🦀",
    "NUL \0 inside",
    "",
    "tab\tand\nline",
)


def make_store(
    path: Path, *, rows: int, seed: int = 0, journal: str = "wal", page_size: int = 4096
) -> Path:
    """Write a closed store: three kinds, rejected paths, superseded rows, signals, odd text."""
    rng = random.Random(seed)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("VACUUM")
    with SqliteMemoryStore(path) as store:
        store.connection.execute("BEGIN")
        for number in range(rows):
            store.put(_item(number, rng))
        for number in range(3, rows, 11):
            store.connection.execute(
                "UPDATE memory_items SET superseded_by = ? WHERE memory_id = ?",
                (f"m{number + 1}", f"m{number}"),
            )
        store.connection.execute("COMMIT")
        store.connection.execute(
            "CREATE TABLE memory_signals "
            "(memory_id TEXT PRIMARY KEY, importance REAL, access_count INTEGER)"
        )
        store.connection.execute(
            "INSERT INTO memory_signals SELECT memory_id, rowid / 7.0, rowid FROM memory_items "
            "WHERE rowid % 3 = 0"
        )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file by name, byte for byte; but what readers note in shared memory is not content."""
    return {
        path.name: b"" if path.name.endswith("-shm") else path.read_bytes()
        for path in folder.iterdir()
        if path.is_file()
    }


def copy_aside(store: Path, folder: Path) -> Path:
    """Copy a store with all that lies beside it, as it is, and return the copy's path."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(store.parent, folder)
    return folder / store.name


def _item(number: int, rng: random.Random) -> MemoryItem:
    kind = rng.choices(list(MemoryKind), weights=[1, 10, 1])[0]
    source = EventRef(EventId(f"event-{number}"), number) if number % 5 == 0 else None
    return MemoryItem(
        f"m{number}",
        kind,
        f"{rng.choice(_TEXTS)} {number}",
        rng.choice(_TEXTS) * rng.choice((1, 20, 100)),
        MemoryProvenance(
            source,
            "agent",
            source_task_ref=f"issue:#{number}",
            confidence=rng.random(),
            created_at=START + timedelta(hours=number),
            evidence_refs=(f"m{number - 1}",) if number % 4 == 1 else (),
        ),
        tags=rng.choice([(), ("outcome",), ("rejected-path",), ("größe", "b")]),
    )
