"""A store that archives what its own routine deletes."""

from pathlib import Path

import pytest
from archives import archive_check
from archives import compact_at_runtime as compact
from invariants import rows_of
from programs import run_program
from stores import episodes, row, write_rows

from memlab.compaction import archived_plans, restore
from memlab.compaction.contents import last_applied
from memlab.errors import UnsafeDeletionError
from memlab.store import SqliteMemoryStore
from memlab.upkeep.health import Status


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(6)])


def test_what_it_deletes_comes_back_byte_for_byte_by_the_command_that_it_says(path: Path) -> None:
    before = rows_of(path)
    assert compact(path, 6) == 0
    assert not path.with_name("memory.db.archive.db").exists()
    deleted = compact(path, 2)
    assert deleted == 4
    assert len(rows_of(path)) == 3
    (entry,) = archived_plans(path)
    assert deleted.undo == f"memlab restore {path} {entry.digest[:12]}"
    assert archive_check(path).status is Status.OK
    assert (entry.planned, last_applied(path)) == (False, None)  # it is no plan
    assert restore(entry.digest, store=path) == 4
    assert rows_of(path) == before


def test_without_an_archive_nothing_takes_it_back_and_a_store_in_memory_has_none(
    path: Path,
) -> None:
    assert compact(path, 2, archive=False).undo is None
    assert not path.with_name("memory.db.archive.db").exists()
    with pytest.raises(UnsafeDeletionError, match="name a file"):
        SqliteMemoryStore(":memory:", archive=True)


ENDED_AT = """
import os, sys
from memlab.store import sqlite_store
setattr(sqlite_store, sys.argv[2], lambda *_, **__: os._exit(9))
with sqlite_store.SqliteMemoryStore(sys.argv[1], archive=True) as store:
    store.compact_episodic(2)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["delete_rows", "note_deleted"])
def test_killed_at_any_moment_no_row_is_lost_and_the_next_call_settles_it(
    path: Path, name: str
) -> None:
    before = rows_of(path)
    assert run_program(ENDED_AT, path, name).returncode == 9
    assert len(rows_of(path)) == (7 if name == "delete_rows" else 3)
    assert [entry.finished_at for entry in archived_plans(path)] == [None]
    compact(path, 1)
    ended = archived_plans(path)
    assert all(entry.finished_at for entry in ended)
    assert sum(restore(entry.digest, store=path) for entry in ended) == 5
    assert rows_of(path) == before
