"""Empty or half-made archives count as none and are completed."""

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import pytest

import memlab
from memlab.compaction import apply
from memlab.compaction.archive_views import archived_plans, archived_rows
from memlab.errors import ArchiveError
from memlab.store.archive import formats
from memlab.store.archive.archive import Archive
from memlab.store.archive.location import archive_path, location_beside
from memlab.store.archive.open_archive import FileIdentity
from memlab.upkeep.health import Status
from tests.support.archives import NOON, apply_until_statement, check, compacted, planned
from tests.support.claude_store import write_index, write_memory
from tests.support.invariants import archive_of, rows_of
from tests.support.programs import Children, forked
from tests.support.shell import LOOKING, output_of, run, typed, undo_in
from tests.support.stores import run_sql

CHANGING = {
    "archive --copy": "archive {} --copy",
    "lost --restore": "lost {} --restore all --apply",
    "compact --apply": "compact {} --keep-recent 3 --apply",
    "compact --retire": "compact {} --keep-recent 3 --retire --apply",
    "maintain --apply": "maintain {} --apply",
    "restore": "restore {} 0123456789ab",
    "drop": "archive {} --drop-before 2020-01-01 --apply",
    "export": "archive {} --export {out}/memories.jsonl",
    "archive --rows": "archive {} --rows",
    "fleet show": "fleet show {}",
}

COMMANDS = {
    name: words
    for name, words in (LOOKING | CHANGING).items()
    if name not in ("size by tokens", "compare", "floor", "report --chart")
}
"""One command of each similar group."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / ".claude" / "projects" / "-w" / "memory")


def write_folder(folder: Path) -> Path:
    """Write a Claude Code folder with eight memories."""
    names = [f"note_{number}.md" for number in range(8)]
    for name in names:
        write_memory(folder, name, f"---\nname: {name}\nmetadata:\n  type: project\n---\n{name}\n")
    write_index(folder, [f"- [{name}]({name})" for name in names])
    return folder


def make_zero_bytes(path: Path) -> None:
    path.touch()


def make_empty_page(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM")


def make_tables_gone(path: Path) -> None:
    run_sql(path, "CREATE TABLE x (y)", "DROP TABLE x")


def statements() -> list[str]:
    """Return every statement that creates the tables of an archive."""
    executed: list[str] = []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.set_trace_callback(executed.append)
        formats.KNOWN[max(formats.KNOWN)](connection).create("file")
    return [statement for statement in executed if statement not in ("BEGIN ", "COMMIT")]


def make_first_statements(count: int) -> Callable[[Path], None]:
    return lambda path: run_sql(path, *statements()[:count])


HALF_MADE: dict[str, Callable[[Path], None]] = {
    "zero bytes": make_zero_bytes,
    "an empty page": make_empty_page,
    "no tables left": make_tables_gone,
    **{
        f"{count} statements": make_first_statements(count) for count in range(1, len(statements()))
    },
}


def outcome(arguments: str, store: Path, out: Path) -> tuple[int, str]:
    """Return the exit code and output of a command, without digests, times and sizes."""
    result = run(*typed(arguments, store, out))
    text = re.sub(r"[0-9a-f]{12,}|\d\d:\d\d(:\d\d)?|\d+(\.\d+)? (ms|s)\b", "#", result.output)
    text = re.sub(r"archive +[\d.]+ (bytes|kB)", "archive", text)  # the size of the file
    return result.exit_code, text.replace("empty: memlab has", "none: memlab has")


def assert_count_as_none(store: Path, *makes: Callable[[Path], None]) -> None:
    """Assert that every command gives the same outcome as without an archive."""
    beside = {*store.parent.iterdir()}
    with tempfile.TemporaryDirectory() as scratch:
        saved = Path(scratch, "kept")
        out = Path(scratch, "out")
        put_copy(store, saved)
        for name, command in COMMANDS.items():
            outcomes = []
            for make in (do_nothing, *makes):
                for path in {*store.parent.iterdir()} - beside:
                    path.unlink()
                put_copy(saved, store)
                make(archive_path(store))
                out.mkdir()
                outcomes.append(outcome(command, store, out))
                shutil.rmtree(out)
            assert outcomes == outcomes[:1] * len(outcomes), name


def do_nothing(_archive: Path) -> None:
    """Make no archive."""


def put_copy(of: Path, to: Path) -> None:
    if of.is_dir():
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(of, to)
    else:
        shutil.copy2(of, to)


STATES = [HALF_MADE[how] for how in ("zero bytes", "no tables left", "3 statements")]


@pytest.mark.long
def test_half_made_archive_counts_as_none(store: Path, tmp_path: Path) -> None:
    (tmp_path / "memlab.toml").write_text("keep_copies = true\n")
    assert_count_as_none(store, *STATES)


@pytest.mark.long
def test_half_made_archive_of_a_folder_counts_as_none(folder: Path) -> None:
    (folder.parent / "memlab.toml").write_text("keep_copies = true\n")
    assert_count_as_none(folder, *STATES)


@pytest.mark.parametrize("state", HALF_MADE)
def test_half_made_archive_is_filled_by_a_deletion(store: Path, state: str) -> None:
    HALF_MADE[state](archive_of(store))
    assert not Archive.beside(store).exists
    before = rows_of(store)
    digest = compacted(store, 4).digest
    assert [entry.memories for entry in archived_plans(store)] == [6]
    assert check(store).status is Status.OK
    assert memlab.restore(digest, store=store).memories == 6
    assert rows_of(store) == before


@pytest.mark.parametrize("state", HALF_MADE)
def test_half_made_archive_is_filled_by_copies(folder: Path, state: str) -> None:
    HALF_MADE[state](archive_path(folder))
    output_of("archive", folder, "--copy")
    lost = folder / "note_3.md"
    text = lost.read_bytes()
    lost.unlink()
    output_of("lost", folder, "--restore", "all", "--apply")
    assert lost.read_bytes() == text


@pytest.mark.parametrize("state", HALF_MADE)
def test_half_made_archive_is_filled_by_a_retirement(folder: Path, state: str) -> None:
    HALF_MADE[state](archive_path(folder))
    index = (folder / "MEMORY.md").read_bytes()
    receipt = output_of("compact", folder, "--keep-recent", 3, "--retire", "--apply")
    output_of("restore", folder, undo_in(receipt))
    assert (folder / "MEMORY.md").read_bytes() == index


@pytest.mark.parametrize("table", ["applies", "archived"])
def test_archive_with_rows_but_no_version_is_rejected(store: Path, table: str) -> None:
    """Rows in any table may be memories."""
    compacted(store, 4)
    run_sql(archive_of(store), "PRAGMA user_version = 0")
    before = archive_of(store).read_bytes()
    assert Archive.beside(store).exists
    with pytest.raises(ArchiveError, match="is not an archive that memlab made"):
        compacted(store, 2)
    assert archive_of(store).read_bytes() == before
    assert len(rows_of(store)) == 5
    assert any(
        statement.startswith(f"CREATE TABLE IF NOT EXISTS {table} ") for statement in statements()
    )


def test_foreign_database_is_not_used_as_archive(store: Path) -> None:
    run_sql(archive_of(store), "CREATE TABLE invoices (number)")
    with pytest.raises(ArchiveError, match="is not an archive that memlab made"):
        compacted(store, 4)
    assert len(rows_of(store)) == 11


FOREIGN = {
    **{
        f"{name} of another shape": f"CREATE TABLE {name} (number)"
        for name in sorted({name for version in formats.KNOWN.values() for name in version.tables})
    },
    "a column too many": statements()[0].replace("(name", "(colour TEXT, name", 1),
    "a view": f"{statements()[0]}; CREATE VIEW totals AS SELECT 1",
    "a trigger": (f"{statements()[0]}; CREATE TRIGGER t AFTER INSERT ON about BEGIN SELECT 1; END"),
}
"""Foreign databases in place of an archive, with the names of its tables."""


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_empty_table_is_not_used_as_archive(store: Path, kind: str) -> None:
    with closing(sqlite3.connect(archive_of(store))) as connection:
        connection.executescript(FOREIGN[kind])
    before = archive_of(store).read_bytes()
    with pytest.raises(ArchiveError, match="is not an archive that memlab made"):
        compacted(store, 4)
    assert archive_of(store).read_bytes() == before
    assert len(rows_of(store)) == 11


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with forked("tests.support.archives") as processes:
        yield processes


@pytest.mark.long
def test_kill_at_each_statement_leaves_a_usable_archive(store: Path, children: Children) -> None:
    original = store.read_bytes()
    states: dict[frozenset[tuple[str, bytes]], dict[str, bytes]] = {}
    number = 0
    was_killed = True
    while was_killed:
        number += 1
        for remaining_file in store.parent.glob(f"{store.name}*"):
            remaining_file.unlink()
        store.write_bytes(original)
        was_killed = children.run(apply_until_statement, store=store, number=number).code != 0
        files = {path.name: path.read_bytes() for path in store.parent.glob(f"{store.name}.*")}
        if was_killed and not Archive.beside(store).exists:
            states[frozenset(files.items())] = files
        if was_killed:
            compacted(store, 4)
            assert {len(rows_of(store)), len(archived_rows(store))} == {5, 6}
    assert number > len(statements())
    for path in store.parent.glob(f"{store.name}*"):
        path.unlink()
    store.write_bytes(original)
    assert_count_as_none(store, *(partial(write_files, files) for files in states.values()))


def write_files(files: dict[str, bytes], archive: Path) -> None:
    for name, content in files.items():
        archive.with_name(name).write_bytes(content)


def test_unused_archive_is_removed(store: Path) -> None:
    class RefusedError(Exception):
        pass

    location = location_beside(store)
    with pytest.raises(RefusedError), Archive(location).changing(nullcontext()):
        raise RefusedError
    assert not location.path.exists()


@pytest.mark.parametrize("state", ["reads", "writes"])
def test_unused_archive_open_elsewhere_is_kept(store: Path, state: str) -> None:
    location = location_beside(store)
    with Archive(location).changing(nullcontext()):
        other = sqlite3.connect(location.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE" if state == "writes" else "BEGIN")
        other.execute("SELECT * FROM applies")
    with closing(other):
        assert location.path.exists()
        if state == "writes":
            other.execute("INSERT INTO about VALUES ('x', 'y')")
            other.execute("COMMIT")


@pytest.mark.parametrize("replacement", ["gone", "another"])
def test_nothing_is_deleted_if_the_archive_was_replaced(store: Path, replacement: str) -> None:
    compacted(store, 8)
    before = rows_of(store)
    archive = archive_of(store)

    def replace(step: str) -> None:
        if step == "archived":
            archive.rename(archive.with_name("moved"))
            if replacement == "another":
                shutil.copy(archive.with_name("moved"), archive)

    with pytest.raises(ArchiveError, match="was moved, deleted or replaced"):
        apply(planned(store, 4), now=NOON, on_step=replace)
    assert rows_of(store) == before
    archive.with_name("moved").replace(archive)
    apply(planned(store, 4), now=NOON)
    assert len(archived_rows(store)) == 6


def test_archive_replaced_before_writing_is_rejected(store: Path) -> None:
    compacted(store, 8)
    location = location_beside(store)
    with Archive(location).writing() as archive:
        assert FileIdentity.of(location.path)
        location.path.rename(location.path.with_name("moved"))
        with pytest.raises(ArchiveError, match="was moved, deleted or replaced"):
            archive.discard_pending("0" * 64)
