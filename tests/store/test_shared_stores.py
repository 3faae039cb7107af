"""Stores written by several users: the owner can restore every deletion."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlab.settings import FILE
from memlab.store.archive.location import archive_path
from tests.support.invariants import rows_of
from tests.support.programs import run_program
from tests.support.stores import episodes, row, write_rows

OWNER = GROUP = 1
"""The user ``daemon``, which exists on every machine, and its group."""
MEMBER = 4102
STRANGER = 4103
AS = """
import os, sys, click.testing
from pathlib import Path
import memlab
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore
import memlab.compaction.archive_views, memlab.compaction.planner, memlab.compaction.restorer
import memlab.cli, memlab.upkeep.health, memlab.fleet.change, memlab.upkeep.maintenance
store, user, *groups = sys.argv[1], *map(int, sys.argv[3:])
# Imports what only root may read, where an interpreter lies in root's own folder.
example = memlab.store_path("three_hundred_issues")
memlab.compaction.cost_of(memlab.plan(example, KeepRecent(4)), store=example)
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

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as somebody else"),
    pytest.mark.long,
]


@pytest.fixture
def store() -> Iterator[Path]:
    """Make a store that the owner's group may write."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "memory.db")
        rows = [row("d1", "semantic"), *episodes(10)]
        write_rows(path, rows, journal_mode="DELETE")
        for place, mode in ((path.parent, 0o770), (path, 0o660)):
            place.chmod(mode)
            os.chown(place, OWNER, GROUP)
        yield path


def output_as_user(user: int, *groups: int, store: Path, what: str = APPLY) -> str:
    result = run_program(AS, store, what, user, *groups, cwd=store.parent)
    assert not result.stderr, result.stderr
    return result.stdout.strip()


RESTORE = """
digest = memlab.compaction.archived_plans(store)[-1].digest
print(memlab.restore(digest, store=store).memories)
"""
RUNTIME = """
with SqliteMemoryStore(store, archive=True) as opened:
    print(opened.compact_episodic(4))
"""


@pytest.mark.parametrize(
    ("who", "what"),
    [(MEMBER, APPLY), (MEMBER, RUNTIME), (STRANGER, APPLY)],
    ids=["plan", "runtime", "everybody"],
)
def test_owner_can_restore_deletions_of_any_writer(store: Path, who: int, what: str) -> None:
    groups = (MEMBER, GROUP)
    of_archive = (MEMBER, GROUP, 0o100660)
    if who == STRANGER:
        groups = (STRANGER,)
        of_archive = (STRANGER, STRANGER, 0o100666)
        store.parent.chmod(0o777)
        store.chmod(0o666)
    assert "Error" not in output_as_user(who, *groups, store=store, what=what)
    assert len(rows_of(store)) == 5
    status = archive_path(store).stat()
    assert (status.st_uid, status.st_gid, status.st_mode) == of_archive
    assert output_as_user(OWNER, GROUP, store=store, what=RESTORE) == "6"
    assert len(rows_of(store)) == 11


@pytest.mark.parametrize("what", [APPLY, RUNTIME], ids=["plan", "runtime"])
def test_archive_unreadable_for_the_owner_is_not_used(store: Path, what: str) -> None:
    output_as_user(MEMBER, MEMBER, GROUP, store=store)
    os.chown(archive_path(store), MEMBER, MEMBER)
    archive_path(store).chmod(0o600)
    before = archive_path(store).read_bytes()
    write_rows(store, episodes(9, start=30))
    message = output_as_user(MEMBER, MEMBER, GROUP, store=store, what=what)
    assert "the owner of the store could not read and write the archive" in message
    assert len(rows_of(store)) == 14
    assert archive_path(store).read_bytes() == before


def test_archive_of_a_user_without_write_access_is_rejected(store: Path) -> None:
    output_as_user(OWNER, GROUP, store=store)
    write_rows(store, episodes(9, start=30))
    before = {path: path.read_bytes() for path in (store, archive_path(store))}
    store.parent.chmod(0o1777)
    store.chmod(0o664)
    archive_path(store).chmod(0o664)
    os.chown(archive_path(store), STRANGER, STRANGER)
    look = "memlab.load_past(store)"
    for user, what in ((OWNER, APPLY), (OWNER, RESTORE), (0, APPLY), (0, look)):
        message = output_as_user(user, GROUP, store=store, what=what)
        assert f"belongs to user {STRANGER}, who may not write to the store" in message
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("what", [APPLY, RUNTIME], ids=["plan", "runtime"])
def test_read_only_user_leaves_no_archive(store: Path, what: str) -> None:
    store.parent.chmod(0o777)
    store.chmod(0o664)
    message = output_as_user(STRANGER, STRANGER, store=store, what=what)
    assert message.startswith("StoreError")
    assert not archive_path(store).exists()
    assert len(rows_of(store)) == 11
    assert "Error" not in output_as_user(OWNER, GROUP, store=store)
    assert len(rows_of(store)) == 5


EMPTYING = 'policy = { name = "recent", keep = 0 }\narchive_for = "0d"\n'
SAVE = "'compact', '--keep-recent', '8', '--save'"
RUN = """
from click.testing import CliRunner
from memlab.cli import main
done = CliRunner().invoke(main, [{}, store], catch_exceptions=False)
print(done.exit_code, " ".join(done.output.split()))
"""


@pytest.fixture
def planted(store: Path) -> Path:
    """Make a store in a folder like ``/tmp``, with settings written by another user."""
    store.parent.chmod(0o1777)
    file = store.parent / FILE
    file.write_text(EMPTYING)
    os.chown(file, STRANGER, STRANGER)
    return store


@pytest.mark.parametrize("user", [OWNER, 0])
def test_settings_of_other_users_are_ignored(planted: Path, user: int) -> None:
    def done(what: str) -> str:
        return output_as_user(user, GROUP, store=planted, what=what)

    named = f"{planted.parent / FILE} belongs to user {STRANGER} and is ignored"
    for what in (
        "memlab.maintain(store, apply=True)",
        "print(memlab.fleet.maintain([store], apply=True)['error'][0])",
        "print(memlab.fleet.plan([store]).refused)",
        "print(memlab.doctor(store))",
        RUN.format("'compact', '--keep-recent', '8'"),
    ):
        assert named in done(what)
    for code, words in (("0", "'show'"), ("2", "'compact'"), ("2", SAVE)):
        outcome = done(RUN.format(words))
        assert outcome[0] == code
        assert named in outcome
    assert len(rows_of(planted)) == 11
    assert (planted.parent / FILE).read_text() == EMPTYING


def test_settings_of_trusted_users_or_oneself_apply(planted: Path) -> None:
    keep = "print(not memlab.fleet.plan([store]).refused)"
    planted.chmod(0o664)
    assert output_as_user(STRANGER, STRANGER, store=planted, what=keep) == "True"
    for user in (OWNER, 0):
        os.chown(planted.parent / FILE, user, user)
        for who in (OWNER, 0, STRANGER):
            assert output_as_user(who, GROUP, store=planted, what=keep) == "True"
    for user in (MEMBER, STRANGER):
        os.chown(planted.parent / FILE, user, GROUP)
        assert output_as_user(OWNER, GROUP, store=planted, what=keep) == "False"
