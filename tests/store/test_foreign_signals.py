"""A table ``memory_signals`` of somebody else's making: put back as it was, or refused in words."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from archives import planned
from invariants import rows_of
from stores import episodes, row, run_sql, write_rows

import memlab
from memlab.compaction import apply, restore
from memlab.doctor import Status, diagnose
from memlab.errors import ArchiveError
from memlab.store import SqliteMemoryStore

MADE = {
    "two rows an id": (
        "CREATE TABLE memory_signals (memory_id TEXT, importance REAL)",
        "INSERT INTO memory_signals VALUES ('e1', 0.25), ('e1', 0.5), ('e1', 0.5), ('e9', 1)",
    ),
    "case does not count": (
        "CREATE TABLE memory_signals (memory_id TEXT COLLATE NOCASE PRIMARY KEY, importance REAL)",
        "INSERT INTO memory_signals VALUES ('e1', 0.25), ('E2', 0.5), ('e9', 1)",
    ),
    "a computed column": (
        (
            "CREATE TABLE memory_signals (memory_id TEXT PRIMARY KEY, importance REAL, "
            "twice REAL GENERATED ALWAYS AS (importance * 2) STORED)"
        ),
        "INSERT INTO memory_signals (memory_id, importance) VALUES ('e1', 0.25), ('e9', 1)",
    ),
    "a computed position": (
        (
            "CREATE TABLE memory_signals (memory_id TEXT PRIMARY KEY, importance REAL, "
            "position INTEGER GENERATED ALWAYS AS (1) VIRTUAL)"
        ),
        "INSERT INTO memory_signals (memory_id, importance) VALUES ('e1', 0.25), ('e9', 1)",
    ),
    "a default beside NULL": (
        "CREATE TABLE memory_signals (memory_id TEXT PRIMARY KEY, importance REAL DEFAULT 7)",
        "INSERT INTO memory_signals VALUES ('e1', NULL), ('e2', 0.5), ('e9', NULL)",
    ),
    "no rowids": (
        (
            "CREATE TABLE memory_signals (memory_id TEXT, turn INTEGER, importance REAL, "
            "PRIMARY KEY (memory_id, turn)) WITHOUT ROWID"
        ),
        "INSERT INTO memory_signals VALUES ('e1', 1, 0.25), ('e1', 2, 0.5), ('e9', 1, 1)",
    ),
    "ids that are no text": (
        "CREATE TABLE memory_signals (memory_id, importance REAL)",
        "INSERT INTO memory_signals VALUES (x'6531', 0.25), (1, 0.5), (NULL, 0.5), ('e1', 1)",
    ),
    "a view": (
        "CREATE TABLE scores (id TEXT, score REAL)",
        "INSERT INTO scores VALUES ('e1', 0.25), ('e9', 1)",
        "CREATE VIEW memory_signals AS SELECT id AS memory_id, score AS importance FROM scores",
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])


def signals(store: Path) -> list[Any]:
    with closing(sqlite3.connect(store)) as connection:
        return sorted(map(repr, connection.execute("SELECT * FROM memory_signals")))


@pytest.mark.parametrize("made", MADE)
def test_it_goes_with_its_memories_and_comes_back_whole(store: Path, made: str) -> None:
    run_sql(store, *MADE[made])
    rows, said = rows_of(store), signals(store)
    assert len(memlab.load(store)) == 11
    receipt = apply(planned(store))
    assert diagnose(store).status is Status.OK
    assert restore(receipt) == 6
    assert (rows_of(store), signals(store)) == (rows, said)


@pytest.mark.parametrize("made", MADE)
def test_a_runtimes_own_compaction_leaves_it_alone_and_archives_it(store: Path, made: str) -> None:
    run_sql(store, *MADE[made])
    rows, said = rows_of(store), signals(store)
    with SqliteMemoryStore(store, archive=True) as opened:
        gone = opened.compact_episodic(4)
    assert gone == 6
    assert gone.digest is not None
    assert signals(store) == said
    assert restore(gone.digest, store=store) == 6
    assert (rows_of(store), signals(store)) == (rows, said)


def test_what_is_said_of_another_memory_is_not_written_over(store: Path) -> None:
    run_sql(store, *MADE["case does not count"])
    receipt = apply(planned(store))
    write_rows(store, [row("E1")])
    run_sql(store, "INSERT INTO memory_signals VALUES ('E1', 9)")
    rows, said = rows_of(store), signals(store)
    with pytest.raises(ArchiveError, match=r"memory_signals .* nothing was restored"):
        restore(receipt)
    assert (rows_of(store), signals(store)) == (rows, said)
    assert restore(receipt, ids=["e2", "e3"]) == 2
