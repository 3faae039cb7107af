"""The ``memory_items`` table of an agent."""

import re
import shlex
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.errors import BadRowError
from memlab.items import EventId, EventRef, MemoryItem, MemoryKind, MemoryProvenance
from memlab.sources.readers import Fault, Rows
from memlab.sources.tables import SCHEMA, TEXTS
from memlab.store import SqliteMemoryStore
from memlab.store.database import CREATE_TABLE
from memlab.store.signals import CREATE_SIGNALS
from memlab.systems.memory_items.scan import rows_of_records
from memlab.systems.memory_items.source import MemoryItems
from memlab.testing.conformance import DeletingSuite
from memlab.testing.labs import Lab
from tests.support.invariants import rows_of
from tests.support.shell import output_of
from tests.support.stores import ANY_VALUE, RawText, row, row_lists, run_sql, write_rows


class MemoryItemsLab(Lab):
    """A store in one file, with additional columns and signals."""

    where = "memory.db"

    def fill(self, count: int) -> None:
        texts = ("né à Zürich — 北京 🦀", "NUL \0 inside", "", 'quoted "text"\nof two lines')
        event_ids = (None, "e", RawText(b"\xffno text"), b"\0blob")
        sequences = (None, -(2**63), 2**63 - 1)
        confidences = (0.5, 0.1 + 0.2, 1e-300, float("inf"))
        rows = []
        for number in range(count):
            kind = "semantic" if number == 0 else "episodic"
            tags = [] if number % 3 == 0 else ["ü", "a,b"]
            memory = row(
                f"m{number}",
                kind,
                *tags,
                title=texts[number % 4],
                body=texts[(number + 1) % 4] * 9,
                rowid=number * 3 + 1,
                source_event_id=event_ids[number % 4],
                source_sequence=sequences[number % 3],
                confidence=confidences[number % 4],
            )
            rows.append(memory)
        write_rows(self.path, rows)
        run_sql(
            self.path,
            "ALTER TABLE memory_items ADD COLUMN mood TEXT DEFAULT 'calm'",
            "ALTER TABLE memory_items ADD COLUMN shout TEXT AS (upper(title))",
            'ALTER TABLE memory_items ADD COLUMN "odd ""name""" BLOB',
            "UPDATE memory_items SET mood = NULL WHERE rowid % 2",
            'UPDATE memory_items SET "odd ""name""" = randomblob(9) WHERE rowid % 4 = 1',
            CREATE_SIGNALS,
            "INSERT INTO memory_signals (memory_id, position, importance, access_count, trusted, "
            "last_accessed_at, namespace) SELECT memory_id, rowid, rowid / 7.0, rowid, 0, "
            "'2026-03-01T12:00:00+02:00', 'ü' FROM memory_items WHERE rowid % 2",
        )

    def add_pair(self, number: int) -> None:
        pair = [row(f"p{number}{side}", title=f"pair {number}") for side in "ab"]
        write_rows(self.path, pair)

    def change(self, key: Any) -> None:
        run_sql(self.path, f"UPDATE memory_items SET body = body || '!' WHERE rowid = {key}")

    def exactly(self) -> dict[Any, Any]:
        """Return every value undecoded, with text and blobs distinguished."""
        query = (
            "SELECT item.rowid, item.*, signal.* FROM memory_items AS item "
            "LEFT JOIN memory_signals AS signal USING (memory_id) ORDER BY item.rowid"
        )
        with closing(sqlite3.connect(self.path)) as connection:
            connection.text_factory = lambda text: ("text", text)
            return {values[0]: values for values in connection.execute(query)}


PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "table.md").read_text(encoding="utf-8")


class DocumentedColumn(NamedTuple):
    """A column in the table of the docs page."""

    name: str
    type: str
    is_required: bool
    default: str


def documented_columns() -> list[DocumentedColumn]:
    """Read the table of the docs page."""
    columns = []
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip(" `") for cell in line.split("|")[1:-1]]
            name, type_name, required, _, default, _ = cells
            columns.append(DocumentedColumn(name, type_name, required == "yes", default))
    return columns


COLUMNS = documented_columns()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Write a store by the statements of the docs page."""
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as connection:
        for statements in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL):
            connection.executescript(statements.replace("'now'", "'2026-03-01 12:00:00'"))
    return path


def test_table_page_of_the_docs_describes_the_table(written: Path) -> None:
    with closing(sqlite3.connect(written)) as connection:
        query = "SELECT name, type, [notnull] OR pk FROM pragma_table_info('memory_items')"
        existing_columns = set(connection.execute(query))
    assert {
        (column.name, column.type, column.is_required) for column in COLUMNS
    } == existing_columns
    defaults = {
        column.name: column.default for column in COLUMNS if column.default not in ("", "now")
    }
    origins = (
        MemoryProvenance(EventRef(EventId("e1"), 1), "agent"),
        MemoryProvenance(None, "agent", source_task_ref="issue:#1"),
    )
    with SqliteMemoryStore(written) as store:
        for number, origin in enumerate(origins):
            store.put(MemoryItem(f"new-{number}", MemoryKind.EPISODIC, "title", "body", origin))
        for name, default in defaults.items():
            stored = store.connection.execute(
                f"SELECT quote({name}) FROM memory_items WHERE memory_id LIKE 'new-%'"
            )
            assert default in {value.strip("'") for (value,) in stored}, name


@pytest.mark.parametrize("name", [column.name for column in COLUMNS if column.is_required])
def test_row_without_a_required_column_is_named(written: Path, name: str) -> None:
    lax = CREATE_TABLE.replace(" NOT NULL", "").replace("memory_items", "lax")
    run_sql(
        written,
        lax,
        "INSERT INTO lax SELECT * FROM memory_items",
        f"UPDATE lax SET {name} = NULL WHERE memory_id = 'episode-1'",
        "DROP TABLE memory_items",
        "ALTER TABLE lax RENAME TO memory_items",
    )
    with pytest.raises(BadRowError, match=f"row 2 .*{name} is NULL"):
        memlab.plan(written, memlab.KeepRecent(0))
    assert f"{name} is NULL" in str(memlab.doctor(written))


def test_store_written_by_plain_sql_works_in_every_command(written: Path) -> None:
    """Its times are in SQLite's format, without a zone."""
    before = rows_of(written)
    note = "5 dates have no time zone; read as UTC"
    assert "5 memories, all of 2026-03-01" in output_of("show", written)
    assert note in output_of("doctor", "--strict", written)
    assert note in output_of("size", written)
    output = output_of("compact", written, "--keep-recent=1", "--apply")
    remaining = {
        position: values for position, values in before.items() if values[1] != b"episode-1"
    }
    assert rows_of(written) == remaining
    (undo,) = re.findall(r"memlab (restore .*)", output)
    output_of(*shlex.split(undo))
    assert rows_of(written) == before


def rows_in(batches: Iterable[Rows]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in batches:
        rows += batch.table.select(SCHEMA.names).to_pylist()
    return rows


def faults_in(batches: Iterable[Rows]) -> list[Fault]:
    faults: list[Fault] = []
    for batch in batches:
        faults += batch.faults
    return sorted(faults)


@given(data=st.data())
def test_archived_rows_equal_scanned_rows(data: st.DataObject) -> None:
    rows = data.draw(row_lists(max_size=5))
    for values in rows:
        for name in data.draw(st.lists(st.sampled_from(TEXTS[1:]), max_size=1)):
            values[name] = data.draw(ANY_VALUE | st.sampled_from(["\0", '"', "\\", "\x1e\n", "é"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        run_sql(path, CREATE_TABLE.replace("NOT NULL", ""))
        write_rows(path, rows)
        with MemoryItems(path).reading() as reader:
            scanned = list(reader.batches(with_body=True))
            positions = [memory["position"] for memory in rows_in(scanned)]
            records = list(reader.records(positions))
    archived = list(rows_of_records(records, with_body=True))
    assert rows_in(archived) == rows_in(scanned)
    assert faults_in(archived) == faults_in(scanned)


class TestMemoryItems(DeletingSuite):
    lab_type = MemoryItemsLab
