"""The store of an agent that writes ``memory_items``."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from stores import RawText, row, run_sql, write_rows

from memlab.store.signals import SIGNAL_COLUMNS
from sources.conformance import Compacted

_SIDE = ", ".join(f"{name} {kind}" for name, kind in SIGNAL_COLUMNS.items())


class MemoryItemsLab:
    """A store in one file, with columns of an agent's own and signals."""

    deletes: ClassVar[bool] = True
    holds_still: ClassVar[bool] = True
    journal_mode: ClassVar[str] = "WAL"
    encoding: ClassVar[str] = "UTF-8"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "memory.db"
        self.name = str(self.path)

    def fill(self, count: int) -> None:
        run_sql(self.path, f"PRAGMA encoding = '{self.encoding}'", "CREATE TABLE notes (note)")
        texts = ("né à Zürich — 北京 🦀", "NUL \0 inside", "", 'quoted "text"\nof two lines')
        rows = [
            row(
                f"m{number}",
                "episodic" if number else "semantic",
                *(["ü", "a,b"] if number % 3 else []),
                title=texts[number % 4],
                body=texts[(number + 1) % 4] * 9,
                rowid=number * 3 + 1,
                source_event_id=[None, "e", RawText(b"\xffno text"), b"\0blob"][number % 4],
                source_sequence=[None, -(2**63), 2**63 - 1][number % 3],
                confidence=[0.5, 0.1 + 0.2, 1e-300, float("inf")][number % 4],
            )
            for number in range(count)
        ]
        write_rows(self.path, rows, journal_mode=self.journal_mode)
        run_sql(
            self.path,
            "ALTER TABLE memory_items ADD COLUMN mood TEXT DEFAULT 'calm'",
            'ALTER TABLE memory_items ADD COLUMN "odd ""name""" BLOB',
            "UPDATE memory_items SET mood = NULL WHERE rowid % 2",
            'UPDATE memory_items SET "odd ""name""" = randomblob(9) WHERE rowid % 4 = 1',
            f"CREATE TABLE memory_signals ({_SIDE})",
            "CREATE TABLE raw (bytes)",
            "INSERT INTO raw VALUES (x'00d8ff78')",
            "UPDATE memory_items SET source_event_id = (SELECT CAST(bytes AS TEXT) FROM raw) "
            f"WHERE rowid = 7 AND '{self.encoding}' <> 'UTF-8'",
            "INSERT INTO memory_signals (memory_id, position, importance, access_count, trusted, "
            "last_accessed_at, namespace) SELECT memory_id, rowid, rowid / 7.0, rowid, 0, "
            "'2026-03-01T12:00:00+02:00', 'ü' FROM memory_items WHERE rowid % 2",
        )

    def add_pair(self, number: int) -> None:
        pair = [row(f"p{number}{side}", title=f"pair {number}") for side in "ab"]
        write_rows(self.path, pair, journal_mode=self.journal_mode)

    def change(self, key: Any) -> None:
        run_sql(self.path, f"UPDATE memory_items SET body = body || '!' WHERE rowid = {key}")

    def exactly(self) -> dict[Any, Any]:
        query = (
            "SELECT item.rowid, item.*, {types}, signal.* FROM memory_items AS item "
            "LEFT JOIN memory_signals AS signal USING (memory_id) ORDER BY item.rowid"
        )
        with closing(sqlite3.connect(self.path)) as connection:
            found = connection.execute("SELECT name FROM pragma_table_info('memory_items')")
            names = [name.replace('"', '""') for (name,) in found]
            types = ", ".join(f'typeof(item."{n}"), CAST(item."{n}" AS BLOB)' for n in names)
            connection.text_factory = bytes
            return {r[0]: r for r in connection.execute(query.format(types=types))}


class RollbackLab(MemoryItemsLab):
    journal_mode = "DELETE"


class Utf16Lab(MemoryItemsLab):
    encoding = "UTF-16le"


class TestMemoryItems(Compacted):
    lab_type = MemoryItemsLab


class TestMemoryItemsWithARollbackJournal(Compacted):
    lab_type = RollbackLab


class TestMemoryItemsInUtf16(Compacted):
    lab_type = Utf16Lab
