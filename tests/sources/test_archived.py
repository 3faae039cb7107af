"""Archived records as rows, many at once or one by one."""

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from stores import ANY_VALUE, RawText, episodes, row, row_lists, run_sql, write_rows, write_signals

import memlab
from memlab.sources.tables import SCHEMA, TEXTS
from memlab.store.database import CREATE_TABLE
from memlab.store.records import Record, layout_of, records_at
from memlab.systems.memory_items import rows as archived


def records_of(path: Path) -> list[Record]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT rowid FROM memory_items ORDER BY rowid")
        positions = [position for (position,) in found]
        return list(records_at(connection, layout_of(connection), positions))


def positions_and_rows(path: Path) -> tuple[list[int], list[Any]]:
    positions, records = zip(*records_of(path), strict=True)
    return list(positions), list(map(json.loads, records))


def test_records_that_agents_write_are_read_many_at_once(tmp_path: Path) -> None:
    texts = ['a "quoted"\nline', "\0\x1f", "é 🦀 \u2028", ""]
    rows = [row(f"m{n}", title=text, body=text * 3) for n, text in enumerate(texts)]
    rows += [row("replaced", superseded_by="m1", source_task_ref=None, confidence=1.0)]
    path = write_rows(tmp_path / "memory.db", rows)
    assert archived._ordinary(*positions_and_rows(path)) is not None


@given(data=st.data())
def test_many_at_once_and_one_by_one_give_the_rows_that_a_scan_gives(data: st.DataObject) -> None:
    rows = data.draw(row_lists(max_size=5))
    for each in rows:
        for name in data.draw(st.lists(st.sampled_from(TEXTS[1:]), max_size=1)):
            each[name] = data.draw(ANY_VALUE | st.sampled_from(["\0", '"', "\\", "\x1e\n", "é"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        run_sql(path, CREATE_TABLE.replace("NOT NULL", ""))
        write_rows(path, rows)
        if not records_of(path):
            return
        known = positions_and_rows(path)
        scanned = memlab.load(path, on_bad_row="keep", with_body=True)
    by_one, at_once = archived._whatever(*known), archived._ordinary(*known)
    if at_once is None:
        assert by_one.faults or any(stored_oddly(each) for each in rows)
    else:
        assert not by_one.faults
        assert at_once.table.select(SCHEMA.names).to_pylist() == by_one.table.to_pylist()
    assert by_one.table["chars"].to_pylist() == scanned["chars"].tolist()
    assert by_one.table["active"].to_pylist() == scanned["active"].tolist()
    wrong = {position for position, _, _ in by_one.faults}
    assert wrong <= set(scanned.loc[scanned["problem"].notna(), "position"])


def stored_oddly(each: dict[str, Any]) -> bool:
    """Whether Arrow cannot read a row at once, though each of its values can be read."""
    return isinstance(each["confidence"], int) or any(
        isinstance(value, (bytes, RawText, int, float)) or value is None for value in each.values()
    )


def test_signals_come_with_their_rows(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(3))
    write_signals(path, "e2", importance=0.5, trusted=0, namespace="ü", access_count="many")
    (rows,) = archived.rows_of_records(records_of(path))
    assert rows.table["importance"].to_pylist() == [None, 0.5, None]
    assert rows.table["namespace"].to_pylist() == [None, "ü", None]
    assert rows.faults == [(2, "access_count", "access_count 'many' is not a whole number")]
    assert "body" not in rows.table.column_names
    assert "expires_at" not in rows.table.column_names


def test_more_records_than_are_read_at_once_come_in_order(tmp_path: Path) -> None:
    records = records_of(write_rows(tmp_path / "memory.db", episodes(9)))
    many = [(number, records[number % 9][1]) for number in range(4101)]
    first, second = archived.rows_of_records(many, with_body=True)
    assert (len(first.table), len(second.table)) == (4096, 5)
    assert second.table["position"].to_pylist() == [n for n, _ in many[4096:]]
