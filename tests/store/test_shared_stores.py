"""Stores that several people may write: whoever deletes, the store's owner can restore."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import run_program
from stores import episodes, row, write_rows

from memlab.store.archive_place import archive_path

OWNER = GROUP = 1
"""``daemon``, which is on every machine, and its group."""
MEMBER, STRANGER = 4102, 4103
AS = """
import os, sys
from pathlib import Path
import memlab
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore
import memlab.compaction.contents, memlab.compaction.planning, memlab.compaction.restoring
store, user, *groups = sys.argv[1], *map(int, sys.argv[3:])
warm = memlab.plan(store, KeepRecent(4))  # imports what only root may read
os.setgroups(groups)
os.setgid(groups[0])
os.setuid(user)
os.umask(0o077)
try:
    exec(sys.argv[2])
except memlab.MemlabError as error:
    print(type(error).__name__, error)
"""
APPLY = "print(memlab.apply(memlab.plan(store, KeepRecent(4))).digest)"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as somebody else")


@pytest.fixture
def store() -> Iterator[Path]:
    """A store that its owner's group may write, in a folder of that group."""
    folder = Path(tempfile.mkdtemp())
    path = write_rows(
        folder / "memory.db", [row("d1", "semantic"), *episodes(10)], journal_mode="DELETE"
    )
    folder.chmod(0o770)
    path.chmod(0o660)
    for each in (folder, path):
        os.chown(each, OWNER, GROUP)
    yield path
    shutil.rmtree(folder)


def done_as(user: int, *groups: int, store: Path, what: str = APPLY) -> str:
    ran = run_program(AS, store, what, user, *groups, cwd=store.parent)
    assert not ran.stderr, ran.stderr
    return ran.stdout.strip()


def count(store: Path) -> int:
    return int(done_as(0, 0, store=store, what="print(len(memlab.load(store)))"))


RESTORE = "print(memlab.restore(memlab.compaction.archived_plans(store)[-1].digest, store=store))"
RUNTIME = """
with SqliteMemoryStore(store, archive=True) as opened:
    print(opened.compact_episodic(4))
"""


@pytest.mark.parametrize("what", [APPLY, RUNTIME], ids=["plan", "runtime"])
def test_what_a_member_of_the_group_deletes_the_owner_restores(store: Path, what: str) -> None:
    assert "Error" not in done_as(MEMBER, MEMBER, GROUP, store=store, what=what)
    assert count(store) == 5
    found = archive_path(store).stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (MEMBER, GROUP, 0o660)
    assert done_as(OWNER, GROUP, store=store, what=RESTORE) == "6"
    assert count(store) == 11


@pytest.mark.parametrize("what", [APPLY, RUNTIME], ids=["plan", "runtime"])
def test_nothing_goes_into_an_archive_that_the_owner_could_not_read(store: Path, what: str) -> None:
    done_as(MEMBER, MEMBER, GROUP, store=store)
    os.chown(archive_path(store), MEMBER, MEMBER)
    archive_path(store).chmod(0o600)
    before = archive_path(store).read_bytes()
    write_rows(store, episodes(9, start=30))
    said = done_as(MEMBER, MEMBER, GROUP, store=store, what=what)
    assert "the owner of the store could not read and write the archive" in said
    assert count(store) == 14
    assert archive_path(store).read_bytes() == before


@pytest.mark.parametrize("what", [APPLY, RUNTIME], ids=["plan", "runtime"])
def test_who_may_only_read_leaves_nothing_that_stops_the_owner(store: Path, what: str) -> None:
    store.parent.chmod(0o777)
    store.chmod(0o664)
    said = done_as(STRANGER, STRANGER, store=store, what=what)
    assert said.startswith("StoreError")
    assert not archive_path(store).exists()
    assert count(store) == 11
    assert "Error" not in done_as(OWNER, GROUP, store=store)
    assert count(store) == 5


def test_where_everybody_may_write_the_owner_reads_what_anybody_archived(store: Path) -> None:
    store.parent.chmod(0o777)
    store.chmod(0o666)
    assert "Error" not in done_as(STRANGER, STRANGER, store=store)
    assert done_as(OWNER, GROUP, store=store, what=RESTORE) == "6"
