"""Small stores with something of everything that agents write."""

import random
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stores import Row, row, run_sql, write_rows

from memlab.store.signals import CREATE_SIGNALS

START = datetime(2025, 3, 1, tzinfo=UTC)
NOW = datetime(2025, 6, 1, tzinfo=UTC)

_TEXTS = (
    "shipped, without trouble",
    "né à Zürich — 北京 🦀",
    "NUL \0 inside",
    "",
    "tab\tand\nline",
)


def make_store(path: Path, *, rows: int, journal: str = "wal", page_size: int = 4096) -> Path:
    """Write a closed store: three kinds, rejected paths, superseded rows, signals, odd text."""
    rng = random.Random(0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("VACUUM")
    write_rows(path, [_row(number, rng) for number in range(rows)], journal_mode=journal)
    run_sql(
        path,
        "UPDATE memory_items SET superseded_by = 'm' || rowid WHERE rowid % 11 = 4",
        CREATE_SIGNALS,
        "INSERT INTO memory_signals (memory_id, position, importance, access_count) "
        "SELECT memory_id, rowid, rowid / 7.0, rowid FROM memory_items WHERE rowid % 3 = 0",
    )
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


def _row(number: int, rng: random.Random) -> Row:
    sequence = {"source_event_id": f"event-{number}", "source_sequence": number}
    return row(
        f"m{number}",
        rng.choices(["semantic", "episodic", "procedural"], weights=[1, 10, 1])[0],
        *rng.choice([(), ("outcome",), ("rejected-path",), ("größe", "b")]),
        title=f"{rng.choice(_TEXTS)} {number}",
        body=rng.choice(_TEXTS) * rng.choice((1, 20, 100)),
        confidence=rng.random(),
        created_at=(START + timedelta(hours=number)).isoformat(),
        evidence_refs_json=f'["m{number - 1}"]' if number % 4 == 1 else "[]",
        **(sequence if number % 5 == 0 else {}),
    )
