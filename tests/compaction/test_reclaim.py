"""Disk space of a store and ``vacuum``."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.compaction import reclaim, space, vacuum
from memlab.errors import StoreError
from memlab.store import SqliteMemoryStore
from tests.support.archives import compacted
from tests.support.invariants import archive_of, assert_sound, rows_of
from tests.support.shell import output_of
from tests.support.stores import Row, episodes, files_in, row, row_lists, run_sql, write_rows


@pytest.fixture(scope="module")
def shrunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store in which nine tenths of the pages are free."""
    big = [row(f"big{n}", "episodic", body="x" * 10_000) for n in range(200)]
    folder = tmp_path_factory.mktemp("shrunk")
    compacted(write_rows(folder / "memory.db", [*big, *episodes(10)]), 10)
    return folder


@pytest.fixture
def store(shrunk: Path, tmp_path: Path) -> Path:
    return shutil.copytree(shrunk, tmp_path, dirs_exist_ok=True) / "memory.db"


def test_space_accounts_for_every_byte_and_changes_nothing(store: Path) -> None:
    before = files_in(store.parent)
    measured = space(store)
    assert files_in(store.parent) == before
    assert measured.file == store.stat().st_size
    assert measured.live + measured.free == measured.file
    assert measured.free > 2_000_000
    assert measured.live < 50_000
    assert measured.after_vacuum == measured.live
    assert measured.wal == 0
    assert measured.archive == archive_of(store).stat().st_size


def test_space_includes_the_write_ahead_log(store: Path) -> None:
    with SqliteMemoryStore(store) as opened:
        opened.connection.execute("UPDATE memory_items SET body = hex(zeroblob(50000))")
        measured = space(store)
        assert measured.wal == store.with_name("memory.db-wal").stat().st_size > 0
        assert measured.live > 50_000


def test_vacuum_returns_the_space_of_deleted_rows(store: Path) -> None:
    before = store.stat().st_size
    rows = rows_of(store)
    write_rows(store, [row("again", body="x" * 1_000_000)])
    assert store.stat().st_size == before  # a free page is filled before the file grows
    run_sql(store, "DELETE FROM memory_items WHERE memory_id = 'again'")
    promised = json.loads(output_of("vacuum", store, "--json"))["after_vacuum"]
    result = vacuum(store)
    assert store.stat().st_size == result.after.file == promised
    assert result.freed == before - result.after.file > 2_000_000
    assert re.match(
        rf"2\.\d MB given back by {store}\n  file  +2\.\d MB -> [\d.]+ [kM]B", str(result)
    )
    assert rows_of(store) == rows
    assert_sound(store)


@given(rows=row_lists(), journal_mode=st.sampled_from(["delete", "wal"]))
def test_vacuum_keeps_positions_and_journal_mode(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], journal_mode: str
) -> None:
    path = tmp_path_factory.mktemp("random") / "memory.db"
    store = write_rows(path, rows, journal_mode=journal_mode)
    before = rows_of(store)
    vacuum(store)
    assert rows_of(store) == before
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (journal_mode,)


def test_vacuum_on_a_full_disk_is_rejected_before_writing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_in(store.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2_000_000))
    with pytest.raises(StoreError, match=r"takes 2\.\d MB in .* and there is 2\.0 MB; nothing was"):
        vacuum(store)
    assert files_in(store.parent) == before


@pytest.mark.parametrize("variable", ["SQLITE_TMPDIR", "TMPDIR"])
@pytest.mark.parametrize("full", ["beside", "aside"])
def test_vacuum_needs_space_in_the_temporary_folder_too(
    store: Path, monkeypatch: pytest.MonkeyPatch, variable: str, full: str
) -> None:
    disks = {path.stat().st_dev: path for path in map(Path, ("/tmp", "/dev/shm")) if path.is_dir()}
    disks.pop(store.stat().st_dev, None)
    if not disks:
        pytest.skip("no second disk")
    aside = disks.popitem()[1]
    folder = {"beside": store.parent, "aside": aside}[full]
    monkeypatch.delenv("SQLITE_TMPDIR", raising=False)
    monkeypatch.setenv(variable, str(aside))
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=0 if path == folder else 10**9)
    )
    with pytest.raises(StoreError, match=rf"in {folder} and there is 0 bytes; nothing was changed"):
        vacuum(store)


def test_vacuum_that_would_move_rows_is_rejected(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moving(sqlite3.Connection):
        def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
            sql = sql.replace("VACUUM", "UPDATE keyed SET rowid = rowid - 2")
            return super().execute(sql, *parameters)

    monkeypatch.setattr(reclaim.sqlite3, "connect", partial(sqlite3.connect, factory=Moving))
    before = store.read_bytes()
    with pytest.raises(StoreError, match="would give rows new positions"):
        vacuum(store)
    assert store.read_bytes() == before


def test_table_that_vacuum_would_renumber_is_named(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    run_sql(
        store,
        "CREATE TABLE notes (text TEXT)",
        "CREATE TABLE keyed (id INTEGER PRIMARY KEY, text TEXT)",
        "CREATE TABLE indexed (text TEXT)",
        "CREATE INDEX by_text ON indexed (text)",
        *(f"INSERT INTO {table} (text) VALUES ('a'), ('b')" for table in ("notes", "indexed")),
        "DELETE FROM notes WHERE text = 'a'",
        "DELETE FROM indexed WHERE text = 'a'",
    )
    before = store.read_bytes()
    with pytest.raises(StoreError, match="would number the rows of notes anew"):
        vacuum(store)
    assert "rows of notes anew" in json.loads(output_of("vacuum", store, "--json"))["refused"]
    assert store.read_bytes() == before
    run_sql(store, "UPDATE notes SET rowid = 1")
    vacuum(store)  # rows numbered from 1 keep their numbers
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT rowid, text FROM notes").fetchall() == [(1, "b")]
