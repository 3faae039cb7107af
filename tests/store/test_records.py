"""Rows as canonical bytes, and back."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import ANY_VALUE, RawText, Row, row, row_lists, run_sql, write_rows, write_signals

from memlab.errors import ArchiveError, StoreError
from memlab.store import records
from memlab.store.database import CREATE_TABLE, exact
from memlab.store.records import (
    fingerprint_of,
    insert_records,
    is_as_archived,
    layout_of,
    quoted,
    records_at,
)


def records_of(path: Path) -> list[tuple[int, bytes]]:
    with closing(sqlite3.connect(path)) as connection:
        positions = [p for (p,) in connection.execute("SELECT rowid FROM memory_items")]
        return list(records_at(connection, layout_of(connection), positions))


def copied(path: Path, other: Path) -> None:
    """Put every row of a store into another by its record alone."""
    with closing(sqlite3.connect(other)) as connection, connection:
        insert_records(connection, layout_of(connection), records_of(path))


def dumped(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as connection, exact(connection):
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT rowid, * FROM memory_items ORDER BY rowid").fetchall()
        return [{name: (type(v), repr(v)) for name, v in dict(each).items()} for each in rows]


@given(rows=row_lists(), further=st.lists(ANY_VALUE, max_size=3))
def test_rows_come_back_from_their_records_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], further: list[object]
) -> None:
    folder = tmp_path_factory.mktemp("random")
    names = [f'column "{number}"' for number in range(len(further))]
    for name, added in (("one.db", names), ("other.db", names[::-1])):
        more = "".join(f", {quoted(name)}" for name in added)
        run_sql(
            folder / name, CREATE_TABLE.replace("superseded_by TEXT", f"superseded_by TEXT{more}")
        )
    extended = [each | {quoted(n): v for n, v in zip(names, further, strict=True)} for each in rows]
    write_rows(folder / "one.db", extended)
    copied(folder / "one.db", folder / "other.db")
    assert dumped(folder / "other.db") == dumped(folder / "one.db")
    assert records_of(folder / "other.db") == records_of(folder / "one.db")


def test_what_looks_alike_has_different_records(tmp_path: Path) -> None:
    values = [None, 1, 1.0, "1", b"1", "", b"", 0, 0.0, -0.0, "1.0", RawText(b"\xff"), b"\xff",
              {"blob": "31"}, float("inf"), "inf"]  # fmt: skip
    run_sql(tmp_path / "m.db", CREATE_TABLE.replace("superseded_by TEXT", "superseded_by TEXT, x"))
    texts = [json.dumps(value) if isinstance(value, dict) else value for value in values]
    write_rows(tmp_path / "m.db", [row("m") | {"memory_id": None, "x": each} for each in texts])
    found = {fingerprint_of(record) for _, record in records_of(tmp_path / "m.db")}
    assert len(found) == len(values)


def test_a_column_added_later_changes_no_record(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "m.db", [row("m1")])
    before = records_of(path)
    run_sql(path, "ALTER TABLE memory_items ADD COLUMN mood TEXT")
    assert records_of(path) == before
    run_sql(path, "ALTER TABLE memory_items ADD COLUMN at TEXT DEFAULT 'now'")
    with closing(sqlite3.connect(path)) as connection:
        layout = layout_of(connection)
    ((_, now),) = records_of(path)
    assert json.loads(now)["at"] == "now"
    assert is_as_archived(now, before[0][1], layout)
    assert not is_as_archived(now, before[0][1].replace(b"title of m1", b"another"), layout)


def test_a_column_that_is_gone_is_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "one.db", [])
    run_sql(path, "ALTER TABLE memory_items ADD COLUMN mood")
    write_rows(path, [row("m1", mood="calm")])
    with pytest.raises(ArchiveError, match="no column mood any more; nothing was restored"):
        copied(path, write_rows(tmp_path / "other.db", []))


def test_a_column_with_the_name_of_the_side_table_is_refused(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "one.db", [])
    run_sql(path, "ALTER TABLE memory_items ADD COLUMN memory_signals")
    with pytest.raises(StoreError, match="rename that column"):
        records_of(path)


@given(rows=row_lists(max_size=9), data=st.data(), signals=st.booleans())
def test_rows_with_large_values_are_read_fewer_at_a_time_and_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], data: st.DataObject, signals: bool
) -> None:
    path = tmp_path_factory.mktemp("random") / "memory.db"
    run_sql(path, CREATE_TABLE.replace("NOT NULL", ""))
    write_rows(path, [each | {"body": data.draw(ANY_VALUE)} for each in rows])
    for each in rows[:2] if signals else []:
        write_signals(path, str(each["memory_id"]), importance=0.5, namespace="é" * 60)
    whole = records_of(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_LARGE", 50)
        assert records_of(path) == whole
