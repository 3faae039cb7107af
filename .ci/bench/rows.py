"""Write generated stores."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from memlab.store.database import CREATE_TABLE


class Row(NamedTuple):
    """A row of ``memory_items``, by default an episode; the fields are the columns in order."""

    memory_id: str
    kind: str
    title: str
    body: str
    tags_json: str = '["merged"]'
    source_event_id: str | None = None
    source_sequence: int | None = None
    source_task_ref: str | None = None
    authored_by: str = "agent"
    confidence: float = 1.0
    created_at: str = "2026-01-01T00:00:00+00:00"
    supersedes_json: str = "[]"
    evidence_refs_json: str = "[]"
    superseded_by: str | None = None


def write_store(
    path: Path, rows: Iterable[Row], *, journal_mode: str = "WAL", synchronous: str = "FULL"
) -> None:
    """Write a store of many rows.

    It takes about two thirds of the time of `tests.support.stores.write_rows`. `journal_mode` and
    `synchronous` are values of SQLite's pragmas; the file keeps only the journal mode.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        connection.execute(CREATE_TABLE)
        marks = ",".join("?" * len(Row._fields))
        with connection:
            connection.executemany(f"INSERT INTO memory_items VALUES ({marks})", rows)
