"""A store whose write-ahead log or pages are damaged: nothing is deleted, the rest goes on."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from archives import check, compacted, planned
from hypothesis import given
from hypothesis import strategies as st
from shell import run, said
from stores import episodes, row, write_rows

import memlab
from memlab.compaction import apply, vacuum
from memlab.errors import StoreError
from memlab.store.database import wal_fault
from memlab.upkeep.health import Status


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
    """Write a store of eleven memories, and thirty more that are in its log alone."""
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
def test_nothing_is_deleted_where_the_log_is_damaged(
    tmp_path: Path, damage: Callable[[bytearray], None]
) -> None:
    store = with_log(tmp_path / "memory.db", damage=damage)
    before = {path: path.read_bytes() for path in (store, log_of(store))}
    made = planned(store)
    with pytest.raises(StoreError, match=r"memory\.db-wal is damaged.*nothing was changed.*move"):
        apply(made)
    with pytest.raises(StoreError, match=r"memory\.db-wal is damaged"):
        vacuum(store)
    found = check(store, "sqlite_integrity")
    assert found.status is Status.FAIL
    for words in ("show", "size", "rows", "doctor", "archive"):
        run(words, store)
    assert {path: path.read_bytes() for path in before} == before


def test_sound_log_is_no_fault(tmp_path: Path) -> None:
    store = with_log(tmp_path / "memory.db")
    assert wal_fault(store) == ""
    assert apply(planned(store)).deleted == 16


def test_going_on_as_the_message_says_works(tmp_path: Path) -> None:
    store = with_log(tmp_path / "memory.db", damage=damage_header)
    log_of(store).rename(tmp_path / "kept-wal")
    assert apply(planned(store)).deleted == 6


def test_restore_export_and_copies_go_on_with_a_damaged_log(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    digest = compacted(store, 4).digest
    log_of(store).write_bytes(b"\x01" * 4096)
    said("archive", store, "--export", tmp_path / "memories.jsonl")
    said("archive", store, "--copy")
    log_of(store).write_bytes(b"\x01" * 4096)
    assert memlab.restore(digest, store=store) == 6


@given(st.integers(0, 31), st.integers(1, 255))
def test_any_wrong_byte_of_the_header_is_seen(
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


def test_nothing_is_deleted_where_the_table_is_damaged(tmp_path: Path) -> None:
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
    made = planned(store)
    with store.open("r+b") as file:  # an index without the entries of its table
        file.seek((page - 1) * size)
        file.write(b"\x0a\x00\x00\x00\x00" + size.to_bytes(2, "big") + b"\x00")
    before = store.read_bytes()
    with pytest.raises(StoreError, match=r"is damaged .*nothing was changed.*\.recover"):
        apply(made)
    assert store.read_bytes() == before
    said("archive", store, "--export", tmp_path / "memories.jsonl")
    assert memlab.restore(digest, store=store) == 2


def test_value_that_breaks_a_constraint_is_no_damage(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE memory_items ADD COLUMN rank CHECK (rank > 0)")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE memory_items SET rank = -1")
    assert apply(planned(store)).deleted == 6
