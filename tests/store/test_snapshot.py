"""Reading the last commit of a store in any file state, without a trace."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

import memlab
from memlab import SqliteMemoryStore
from memlab.errors import StoreError
from memlab.store import database, snapshot
from memlab.store.database import connect_reading
from memlab.store.snapshot import read_snapshot
from tests.support.programs import run_program
from tests.support.stores import episodes, files_in, item, write_rows

CRASH = """
import os, signal, sqlite3, sys
path, journal_mode = sys.argv[1:]
connection = sqlite3.connect(path, isolation_level=None)
connection.execute(f"PRAGMA journal_mode = {journal_mode}")
connection.execute("PRAGMA cache_size = 1")
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute("UPDATE memory_items SET title = 'committed' WHERE memory_id = 'e1'")
connection.execute("BEGIN")
connection.execute("UPDATE memory_items SET title = hex(zeroblob(300))")
os.kill(os.getpid(), signal.SIGKILL)
"""
TRY_TO_WRITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0.05, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.close()
"""
HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("UPDATE memory_items SET title = 'held'")
connection.execute("BEGIN")
connection.execute("UPDATE memory_items SET title = 'not yet'")
print("held", flush=True)
sys.stdin.read()
"""


def put(path: Path, memory_id: str) -> None:
    with SqliteMemoryStore(path) as store:
        store.put(item(memory_id))


@pytest.mark.parametrize(
    ("journal_mode", "remaining", "removed"),
    [
        ("DELETE", "-journal", None),
        ("TRUNCATE", "-journal", None),
        ("PERSIST", "-journal", None),
        ("WAL", "-wal", None),
        ("WAL", "-wal", "-shm"),
    ],
)
def test_only_committed_rows_of_a_killed_writer_are_read(
    tmp_path: Path, journal_mode: str, remaining: str, removed: str | None
) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(200), journal_mode="DELETE")
    assert run_program(CRASH, path, journal_mode).returncode == -signal.SIGKILL
    if removed:
        (tmp_path / f"memory.db{removed}").unlink()
    before = files_in(tmp_path)
    assert before[f"memory.db{remaining}"]
    if journal_mode == "DELETE":  # otherwise the test would prove nothing
        assert b"000000" * 100 in before["memory.db"]
    frame = memlab.load(path)
    assert list(frame["title"]) == ["committed"] + [
        f"title of e{number}" for number in range(2, 201)
    ]
    after = files_in(tmp_path)
    assert set(after) == set(before)
    assert all(after[name] == before[name] for name in after if not name.endswith("-shm"))
    (tmp_path / "links").mkdir()
    (link := tmp_path / "links" / "store.db").symlink_to(path)
    assert memlab.load(link)["title"][0] == "committed"
    assert [*(tmp_path / "links").iterdir()] == [link]


@pytest.mark.parametrize("leftover", ["-wal", "-shm"])
def test_single_empty_side_file_is_tolerated(tmp_path: Path, leftover: str) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(2))
    (tmp_path / f"memory.db{leftover}").touch()
    before = files_in(tmp_path)
    assert len(memlab.load(path)) == 2
    assert files_in(tmp_path) == before


def test_exclusively_locked_store_is_read(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1))
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        before = files_in(tmp_path)
        assert {*before} == {"memory.db", "memory.db-wal"}
        assert list(memlab.load(path)["title"]) == ["held"]
        assert files_in(tmp_path) == before
        holder.communicate()
    assert list(memlab.load(path)["title"]) == ["held"]


def test_journal_lock_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1))
    waits = []

    def noting(uri: str, *, busy_timeout: float = 5.0) -> sqlite3.Connection:
        if "nolock" not in uri:
            waits.append(busy_timeout)
        return connect_reading(uri, busy_timeout=0)

    monkeypatch.setattr(database, "connect_reading", noting)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("UPDATE memory_items SET title = 'held'")
        assert path.with_name("memory.db-journal").exists()
        with pytest.raises(StoreError, match="is locked by another process"):
            read_snapshot(path, lambda _: None)
    assert sum(waits) == 5.0


@pytest.mark.parametrize("fails", [False, True])
def test_store_written_during_the_read_is_read_again(tmp_path: Path, fails: bool) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1))
    readings: list[list[str]] = []

    def read(connection: sqlite3.Connection) -> list[str]:
        ids = connection.execute("SELECT memory_id FROM memory_items")
        readings.append([name for (name,) in ids])
        if len(readings) == 1:
            put(path, "e2")
            if fails:
                raise IndexError("a page that is half there")
        return readings[-1]

    assert read_snapshot(path, read) == ["e1", "e2"]
    assert readings == [["e1"], ["e1", "e2"]]
    assert set(files_in(tmp_path)) == {"memory.db"}
    with pytest.raises(AttributeError):  # an unrelated error
        read_snapshot(path, lambda connection: connection.nothing)  # type: ignore[attr-defined]


@pytest.mark.parametrize("writes", [True, False])
def test_constantly_changing_store_is_an_error(tmp_path: Path, writes: bool) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1))
    readings: list[sqlite3.Connection] = []

    def read(connection: sqlite3.Connection) -> None:
        readings.append(connection)
        put(path, f"m{len(readings)}") if writes else SqliteMemoryStore(path).close()

    message = f"{path} is rewritten faster than it can be read; try again when it is quiet"
    with pytest.raises(StoreError, match=message) if writes else nullcontext():
        read_snapshot(path, read)
    assert len(readings) == (5 if writes else 1)


def test_reading_keeps_locks_of_this_process(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1), journal_mode="DELETE")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert len(memlab.load(path)) == 1
        assert "database is locked" in run_program(TRY_TO_WRITE, path).stderr
        connection.execute("ROLLBACK")
    assert run_program(TRY_TO_WRITE, path).stderr == ""


def test_reading_keeps_the_log_of_an_open_store(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1))
    with SqliteMemoryStore(path) as store:
        assert len(store.list_active()) == len(memlab.load(path)) == 1
        assert run_program(TRY_TO_WRITE, path).returncode == 0
        assert (tmp_path / "memory.db-wal").exists()


@pytest.mark.parametrize(("look", "count"), [(4, 1), (5, 1), (9, 3)])
def test_connections_with_different_rows_are_not_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int, count: int
) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1))
    version = snapshot._begin_and_read_version
    looks = iter(range(1, 9))

    def version_and_write(connection: sqlite3.Connection) -> int:
        if next(looks) == look:
            put(path, "later")
        return version(connection)

    monkeypatch.setattr(snapshot, "_begin_and_read_version", version_and_write)
    with SqliteMemoryStore(path), snapshot.open_snapshots(path, 3) as connections:
        assert len(connections) == count
