"""Damaged write-ahead logs or pages: nothing is deleted, the rest still works."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.compaction import apply, keep_copies, vacuum
from memlab.errors import DamagedLogWarning, StoreError
from memlab.store.database import wal_fault
from memlab.upkeep.health import Status
from tests.support.archives import check, compacted, planned
from tests.support.shell import output_of, run
from tests.support.stores import episodes, row, write_rows


def damage_header(log: bytearray) -> None:
    log[:32] = bytes(32)


def damage_magic(log: bytearray) -> None:
    log[0] ^= 0xFF


def damage_checksum(log: bytearray) -> None:
    log[31] ^= 1


def damage_salt(log: bytearray) -> None:
    log[17] ^= 1


DAMAGE: tuple[Callable[[bytearray], None], ...] = (
    damage_header,
    damage_magic,
    damage_checksum,
    damage_salt,
)


def with_log(path: Path, *, damage: Callable[[bytearray], None] | None = None) -> Path:
    """Write a store of eleven memories, and thirty more only in its write-ahead log."""
    live = write_rows(path.with_name("live.db"), [row("d1", "semantic"), *episodes(10)])
    with closing(sqlite3.connect(live, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        columns = ", ".join(
            name
            for _, name, *_ in connection.execute("PRAGMA table_info(memory_items)")
            if name != "memory_id"
        )
        connection.execute(
            f"INSERT INTO memory_items (memory_id, {columns}) "
            f"SELECT 'n' || memory_id, {columns} FROM memory_items WHERE memory_id <> 'd1'"
        )
        path.write_bytes(live.read_bytes())
        log = bytearray(live.with_name("live.db-wal").read_bytes())
    if damage is not None:
        damage(log)
    log_of(path).write_bytes(log)
    live.unlink()
    return path


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@pytest.mark.parametrize("damage", DAMAGE)
def test_nothing_is_deleted_with_a_damaged_log(
    tmp_path: Path, damage: Callable[[bytearray], None]
) -> None:
    store = with_log(tmp_path / "memory.db", damage=damage)
    before = {path: path.read_bytes() for path in (store, log_of(store))}
    plan = planned(store)
    with pytest.raises(StoreError, match=r"memory\.db-wal is damaged.*nothing was changed.*move"):
        apply(plan)
    with pytest.raises(StoreError, match=r"memory\.db-wal is damaged"):
        vacuum(store)
    integrity = check(store, "sqlite_integrity")
    assert integrity.status is Status.FAIL
    for arguments in ("show", "size", "rows", "doctor", "archive"):
        run(arguments, store)
    assert {path: path.read_bytes() for path in before} == before


def test_intact_log_is_not_a_fault(tmp_path: Path) -> None:
    store = with_log(tmp_path / "memory.db")
    assert wal_fault(store) == ""
    assert apply(planned(store)).deleted == 16


def test_advice_for_a_damaged_log_works(tmp_path: Path) -> None:
    store = with_log(tmp_path / "memory.db", damage=damage_header)
    log_of(store).rename(tmp_path / "kept-wal")
    assert apply(planned(store)).deleted == 6


def test_restore_export_and_copies_work_with_a_damaged_log(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    digest = compacted(store, 4).digest
    log_of(store).write_bytes(b"\x01" * 4096)
    output_of("archive", store, "--export", tmp_path / "memories.jsonl")
    output_of("archive", store, "--copy")
    log_of(store).write_bytes(b"\x01" * 4096)
    with pytest.warns(DamagedLogWarning):
        assert memlab.restore(digest, store=store).memories == 6


def restore_by_digest(store: Path, digest: str) -> None:
    memlab.restore(digest, store=store)


def keep_copies_of_memories(store: Path, _: str) -> None:
    keep_copies(store)


def open_at_runtime(store: Path, _: str) -> None:
    memlab.SqliteMemoryStore(store).close()


@pytest.mark.parametrize("use", [restore_by_digest, keep_copies_of_memories, open_at_runtime])
def test_damaged_log_is_saved_before_it_is_emptied(
    tmp_path: Path, use: Callable[[Path, str], None]
) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    store.chmod(0o640)
    digest = compacted(store, 4).digest
    damaged = b"\x01" * 4096
    log_of(store).write_bytes(damaged)
    saved_log = tmp_path / "memory.db-wal.damaged-1"
    with pytest.warns(DamagedLogWarning, match=r"memory\.db-wal\.damaged-1"):
        use(store, digest)
    assert saved_log.read_bytes() == damaged
    assert saved_log.stat().st_mode & 0o777 == 0o640
    log_of(store).write_bytes(damaged)  # the same damage again
    with pytest.warns(DamagedLogWarning):
        memlab.SqliteMemoryStore(store).close()
    assert [path.name for path in tmp_path.glob("*damaged*")] == [saved_log.name]
    log_of(store).write_bytes(b"\x02" * 4096)
    with pytest.warns(DamagedLogWarning, match="damaged-2"):
        memlab.SqliteMemoryStore(store).close()
    assert saved_log.read_bytes() == damaged


def test_command_names_the_saved_damaged_log(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    digest = compacted(store, 4).digest
    log_of(store).write_bytes(b"\x01" * 4096)
    output = output_of("restore", store, digest[:12])
    assert "memory.db-wal.damaged-1" in output.replace("\n", "")


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA wal_autocheckpoint = 1")
print("ready", flush=True)
number = 0
while True:  # each commit is copied back, so that the next one begins the log anew
    number += 1
    connection.execute("UPDATE memory_items SET body = ? WHERE memory_id = 'd1'", (str(number),))
"""


def test_log_of_an_active_writer_is_not_damaged(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    command = [sys.executable, "-c", WRITER, str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            heads = set[bytes]()
            for _ in range(2_000):
                assert wal_fault(store) == ""
                heads.add(log_of(store).read_bytes()[:32])
            assert len(heads) > 10
            assert apply(planned(store)).deleted == 6
        finally:
            writer.kill()
    assert list(tmp_path.glob("*damaged*")) == []


@given(st.integers(0, 31), st.integers(1, 255))
def test_any_changed_header_byte_is_detected(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int
) -> None:
    store = tmp_path_factory.getbasetemp() / "one-with-a-log.db"
    if not store.exists():
        with_log(store)
    log = bytearray(log_of(store).read_bytes())
    log[at] ^= flip
    other = store.with_name("another.db")
    log_of(other).write_bytes(log)
    assert wal_fault(other)


def test_nothing_is_deleted_with_a_damaged_table(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    digest = compacted(store, 8).digest
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("CREATE INDEX by_title ON memory_items (title)")
        connection.execute("UPDATE sqlite_schema SET sql = '' WHERE name = 'nothing'")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'by_title'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    plan = planned(store)
    with store.open("r+b") as file:  # an index page without entries
        file.seek((page - 1) * size)
        file.write(b"\x0a\x00\x00\x00\x00" + size.to_bytes(2, "big") + b"\x00")
    before = store.read_bytes()
    with pytest.raises(StoreError, match=r"is damaged .*nothing was changed.*\.recover"):
        apply(plan)
    assert store.read_bytes() == before
    output_of("archive", store, "--export", tmp_path / "memories.jsonl")
    assert memlab.restore(digest, store=store).memories == 2


def test_constraint_violation_is_not_damage(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE memory_items ADD COLUMN rank CHECK (rank > 0)")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE memory_items SET rank = -1")
    assert apply(planned(store)).deleted == 6
