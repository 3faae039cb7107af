"""Rows as canonical bytes with their signals, and their restoration."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.compaction import apply, restore
from memlab.errors import ArchiveError, StoreError
from memlab.lifecycle import LifecycleStore
from memlab.policies import KeepRecent, TimeToLive
from memlab.store import SqliteMemoryStore, records
from memlab.store.database import CREATE_TABLE, text_read_as
from memlab.store.records import (
    fingerprint_of,
    insert_records,
    is_as_archived,
    layout_of,
    quoted,
    records_at,
)
from memlab.store.signals import SIGNAL_COLUMNS
from memlab.upkeep.health import Status, doctor
from tests.support.archives import planned
from tests.support.invariants import rows_of
from tests.support.stores import (
    ANY_VALUE,
    RawText,
    Row,
    item,
    row,
    row_lists,
    run_sql,
    signals_of,
    write_rows,
    write_signals,
)


def records_of(path: Path) -> list[tuple[int, bytes]]:
    with closing(sqlite3.connect(path)) as connection:
        positions = [
            position for (position,) in connection.execute("SELECT rowid FROM memory_items")
        ]
        return list(records_at(connection, layout_of(connection), positions))


def copied(path: Path, other: Path) -> None:
    """Copy every row of a store into another by its record."""
    with closing(sqlite3.connect(other)) as connection, connection:
        insert_records(connection, layout_of(connection), records_of(path))


def dumped(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as connection, text_read_as(connection):
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT rowid, * FROM memory_items ORDER BY rowid").fetchall()
        return [
            {name: (type(value), repr(value)) for name, value in dict(fetched).items()}
            for fetched in rows
        ]


@given(rows=row_lists(), further=st.lists(ANY_VALUE, max_size=3))
def test_rows_round_trip_through_records(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], further: list[object]
) -> None:
    folder = tmp_path_factory.mktemp("random")
    names = [f'column "{number}"' for number in range(len(further))]
    for name, added in (("one.db", names), ("other.db", names[::-1])):
        more = "".join(f", {quoted(name)}" for name in added)
        run_sql(
            folder / name, CREATE_TABLE.replace("superseded_by TEXT", f"superseded_by TEXT{more}")
        )
    extended = [
        memory | {quoted(name): value for name, value in zip(names, further, strict=True)}
        for memory in rows
    ]
    write_rows(folder / "one.db", extended)
    copied(folder / "one.db", folder / "other.db")
    assert dumped(folder / "other.db") == dumped(folder / "one.db")
    assert records_of(folder / "other.db") == records_of(folder / "one.db")


def test_similar_values_have_different_records(tmp_path: Path) -> None:
    values = [None, 1, 1.0, "1", b"1", "", b"", 0, 0.0, -0.0, "1.0", RawText(b"\xff"), b"\xff",
              {"blob": "31"}, float("inf"), "inf"]  # fmt: skip
    run_sql(tmp_path / "m.db", CREATE_TABLE.replace("superseded_by TEXT", "superseded_by TEXT, x"))
    texts = [json.dumps(value) if isinstance(value, dict) else value for value in values]
    write_rows(tmp_path / "m.db", [row("m") | {"memory_id": None, "x": value} for value in texts])
    fingerprints = {fingerprint_of(record) for _, record in records_of(tmp_path / "m.db")}
    assert len(fingerprints) == len(values)


def test_added_column_changes_no_record(tmp_path: Path) -> None:
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


def test_row_without_a_dropped_column_differs_from_its_record(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "m.db", [])
    run_sql(path, "ALTER TABLE memory_items ADD COLUMN mood")
    write_rows(path, [row("m1", mood="calm")])
    ((_, archived),) = records_of(path)
    run_sql(path, "ALTER TABLE memory_items DROP COLUMN mood")
    with closing(sqlite3.connect(path)) as connection:
        layout = layout_of(connection)
    ((_, current),) = records_of(path)
    assert not is_as_archived(current, archived, layout)


def test_dropped_column_is_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "one.db", [])
    run_sql(path, "ALTER TABLE memory_items ADD COLUMN mood")
    write_rows(path, [row("m1", mood="calm")])
    with pytest.raises(ArchiveError, match="no column mood any more; nothing was restored"):
        copied(path, write_rows(tmp_path / "other.db", []))


def test_column_named_like_the_signals_table_is_rejected(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "one.db", [])
    run_sql(path, "ALTER TABLE memory_items ADD COLUMN memory_signals")
    with pytest.raises(StoreError, match="rename that column"):
        records_of(path)


@given(rows=row_lists(max_size=9), data=st.data(), signals=st.booleans())
def test_large_rows_are_read_in_smaller_batches(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], data: st.DataObject, signals: bool
) -> None:
    path = tmp_path_factory.mktemp("random") / "memory.db"
    run_sql(path, CREATE_TABLE.replace("NOT NULL", ""))
    write_rows(path, [memory | {"body": data.draw(ANY_VALUE)} for memory in rows])
    for memory in rows[:2] if signals else []:
        write_signals(path, str(memory["memory_id"]), importance=0.5, namespace="é" * 60)
    all_records = records_of(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_LARGE_VALUE", 50)
        assert records_of(path) == all_records


# Signals belong to a row by id and position

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def write_reused_name(path: Path, *, by_sql: bool) -> None:
    """Delete a memory with an expiry, and write another of its name without one."""
    with LifecycleStore(path, clock=lambda: START) as lifecycle:
        lifecycle.put(item("m0"))
        lifecycle.put(item("m1", title="short-lived"), ttl=HOUR)
    if by_sql:  # a runtime without signals
        run_sql(path, "DELETE FROM memory_items WHERE memory_id = 'm1'")
        write_rows(path, [row("m2")])
    with SqliteMemoryStore(path) as plain:
        if not by_sql:
            assert plain.compact_episodic(0) == 2
        plain.put(item("m1", title="for good"))


def assert_not_expired(path: Path) -> None:
    assert memlab.plan(path, TimeToLive(), now=START + 2 * DAY).memories == ()
    frame = memlab.load(path).set_index("memory_id")
    assert pd.isna(frame["expires_at"]["m1"])
    with LifecycleStore(path, clock=lambda: START + 2 * DAY) as lifecycle:
        assert lifecycle.get("m1") is not None


@pytest.mark.parametrize("by_sql", [False, True])
def test_signals_of_a_reused_name_belong_to_the_earlier_row(tmp_path: Path, by_sql: bool) -> None:
    path = tmp_path / "memory.db"
    write_reused_name(path, by_sql=by_sql)
    assert_not_expired(path)
    frame = memlab.load(path).set_index("memory_id")
    assert "memory_signals" not in json.loads(dict(records_of(path))[frame["position"]["m1"]])
    before = {line for line in signals_of(path) if line[0] == "m1"}
    memlab.apply(memlab.plan(path, KeepRecent(0), now=START))
    assert {line for line in signals_of(path) if line[0] == "m1"} == before


@pytest.mark.parametrize("by_sql", [False, True])
def test_first_use_of_a_reused_name_starts_new_signals(tmp_path: Path, by_sql: bool) -> None:
    """The later memory of a name inherits nothing from the earlier one."""
    path = tmp_path / "memory.db"
    write_reused_name(path, by_sql=by_sql)
    with LifecycleStore(path, clock=lambda: START + 2 * DAY) as lifecycle:
        assert lifecycle.touch(["m1"], now=START) == 1
        assert lifecycle.touch(["m1"], now=START + DAY) == 1
    assert_not_expired(path)
    frame = memlab.load(path).set_index("memory_id")
    assert frame["access_count"]["m1"] == 2
    memlab.apply(memlab.plan(path, KeepRecent(0), now=START))
    assert [line for line in signals_of(path) if line[0] == "m1"] == []


OTHERS = {
    "few columns": (
        "CREATE TABLE memory_signals (memory_id TEXT COLLATE NOCASE, importance REAL)",
        "INSERT INTO memory_signals VALUES ('e1', 0.25), ('e1', 0.5), ('E2', 1)",
    ),
    "no key": (
        f"CREATE TABLE memory_signals ({', '.join(SIGNAL_COLUMNS)})",
        "INSERT INTO memory_signals (memory_id, position) VALUES ('e1', 2), ('e1', 2)",
    ),
    "a key of two columns": (
        (
            f"CREATE TABLE memory_signals ({', '.join(SIGNAL_COLUMNS)}, "
            "PRIMARY KEY (memory_id, agent_id))"
        ),
        (
            "INSERT INTO memory_signals (memory_id, position, agent_id, importance) "
            "VALUES ('e1', 2, 'a', 0.5), ('e1', 2, 'b', 0.25)"
        ),
    ),
    "a view": (
        "CREATE TABLE scores (id TEXT, score REAL)",
        "INSERT INTO scores VALUES ('e1', 0.25), ('e9', 1)",
        "CREATE VIEW memory_signals AS SELECT id AS memory_id, score AS importance FROM scores",
    ),
}


@pytest.mark.parametrize("statement", OTHERS)
def test_foreign_signals_table_is_not_read_or_changed(store: Path, statement: str) -> None:
    run_sql(store, *OTHERS[statement])
    rows = rows_of(store)
    signals = signals_of(store)
    assert "importance" not in memlab.load(store)
    receipt = apply(planned(store))
    assert doctor(store).status == Status.OK
    assert signals_of(store) == signals
    assert restore(receipt).memories == 6
    assert rows_of(store) == rows
    assert signals_of(store) == signals
    with pytest.raises(StoreError, match="another program made; nothing was changed"):
        LifecycleStore(store)
    assert rows_of(store) == rows
    assert signals_of(store) == signals


def test_restored_signals_replace_later_ones(store: Path) -> None:
    write_signals(store, "e1", importance=0.25, graduated=1)
    run_sql(store, "ALTER TABLE memory_signals ADD COLUMN mood BLOB")
    run_sql(store, "UPDATE memory_signals SET mood = x'00ff'")
    signals = signals_of(store)
    receipt = apply(planned(store))
    assert signals_of(store) == []
    run_sql(store, "INSERT INTO memory_signals (memory_id, position) VALUES ('e1', 99)")
    assert restore(receipt).memories == 6
    assert signals_of(store) == signals
    rows = rows_of(store)
    receipt = apply(planned(store, 3))
    run_sql(store, "DROP TABLE memory_signals")
    assert restore(receipt).memories == 7
    assert rows_of(store) == rows
