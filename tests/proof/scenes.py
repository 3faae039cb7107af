"""Stores before an operation, and invariants that hold at any point of it."""

import random
import re
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from memlab import KeepRecent, SqliteMemoryStore, apply, load, plan
from memlab.errors import AlreadyAppliedError, ArchiveError
from memlab.store.signals import CREATE_SIGNALS
from memlab.systems.claude_code.view import PROJECTS
from memlab.systems.odek import LOCK
from tests.proof import tasks
from tests.support import claude_store
from tests.support.invariants import (
    archive_of,
    assert_compacted,
    assert_nothing_lost,
    assert_sound,
    records_in_archive_of,
    rows_of,
    stored,
)
from tests.support.odek_store import DERIVED, write_odek
from tests.support.openclaw_store import days_before, write_workspace
from tests.support.programs import Children
from tests.support.stores import FileState, Row, row, run_sql, signals_of, write_rows

START = datetime(2025, 3, 1, tzinfo=UTC)
NOW = datetime(2025, 6, 1, tzinfo=UTC)
KEEP = 20
ROWS = 120
_TEXTS = ("shipped, well", "né à Zürich — 北京 🦀", "NUL \0 inside", "", "tab\tand\nline")
_TAGS: Final[list[tuple[str, ...]]] = [(), ("outcome",), ("rejected-path",), ("größe", "b")]


def make_store(path: Path, *, rows: int, journal: str = "wal", page_size: int = 4096) -> Path:
    """Write a closed store of all kinds, rejected paths, superseded rows, signals, odd text."""
    rng = random.Random(0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("VACUUM")
    write_rows(path, [_row(number, rng) for number in range(rows)], journal_mode=journal)
    run_sql(
        path,
        "UPDATE memory_items SET superseded_by = 'm' || rowid WHERE rowid % 11 = 4",
        CREATE_SIGNALS,
        "INSERT INTO memory_signals (memory_id, position, importance, access_count) "
        "SELECT memory_id, rowid, rowid / 7.0, rowid FROM memory_items WHERE rowid % 3 = 0",
    )
    return path


def _row(number: int, rng: random.Random) -> Row:
    kind = rng.choices(["semantic", "episodic", "procedural"], weights=[1, 10, 1])[0]
    tags = rng.choice(_TAGS)
    columns: dict[str, Any] = {}
    if number % 4 == 1:
        columns["evidence_refs_json"] = f'["m{number - 1}"]'
    if number % 5 == 0:
        columns["source_event_id"] = f"event-{number}"
        columns["source_sequence"] = number
    return row(
        f"m{number}",
        kind,
        *tags,
        title=f"{rng.choice(_TEXTS)} {number}",
        body=rng.choice(_TEXTS) * rng.choice((1, 20, 100)),
        confidence=rng.random(),
        created_at=(START + timedelta(hours=number)).isoformat(),
        **columns,
    )


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file by name, without shared-memory files."""
    return {
        path.name: b"" if path.name.endswith("-shm") else path.read_bytes()
        for path in folder.iterdir()
        if path.is_file()
    }


def copy_aside(store: Path, folder: Path) -> Path:
    """Copy a store with everything beside it, and return the path of the copy.

    A copy of a project's memory is in a place of the same form, by which it is known.
    """
    shutil.rmtree(folder, ignore_errors=True)
    copy = folder
    if store.parent.parent.name == PROJECTS:
        copy = folder / PROJECTS / store.parent.name
    shutil.copytree(store.parent, copy)
    return copy / store.name


@dataclass
class Scene(ABC):
    """A store before an operation, with its contents before and after it."""

    operation: tasks.Operation
    argument: Any
    store: Path
    """The store, in a folder of its own."""
    whole: dict[Any, Any]
    """Contents that must be in the store or its archive at any time."""
    before: dict[Any, Any]
    after: dict[Any, Any]
    """Contents after the operation; no other state is allowed."""

    @abstractmethod
    def state(self, store: Path) -> dict[Any, Any]:
        """Return the contents of a store."""

    @abstractmethod
    def check(self, store: Path) -> None:
        """Assert that nothing is lost and the operation is done completely or not at all."""

    def check_done(self, store: Path) -> None:
        """Assert that nothing is lost and the operation is done."""
        self.check(store)
        assert self.state(store) == self.after

    def finish(self, children: Children, store: Path) -> None:
        """Repeat the operation; only a finished one may be rejected."""
        ended = children.run(self.operation, store=store, argument=self.argument)
        if ended.error is not None:
            assert isinstance(ended.error, AlreadyAppliedError), repr(ended)
        self.check_done(store)


@dataclass
class RowScene(Scene):
    """A scene of a table, whose rows are compared by position."""

    signals: list[tuple[Any, ...]]
    """Expected signals at any time; empty if nothing is promised."""

    def state(self, store: Path) -> dict[Any, Any]:
        return rows_of(store)

    def check(self, store: Path) -> None:
        assert_nothing_lost(self.whole, store)
        rows = rows_of(store)
        assert rows in (self.before, self.after)
        if self.signals:
            present = {row[1].decode() for row in rows.values()}
            assert signals_of(store) == [row for row in self.signals if row[0] in present]


def row_scene(folder: Path, operation: str, journal: str) -> RowScene:
    """Make a store and the scene of an operation on it."""
    folder.mkdir()
    store = make_store(folder / "memory.db", rows=ROWS, journal=journal)
    contents = rows_of(store)
    signals = signals_of(store)
    new_plan = plan(store, KeepRecent(KEEP), now=NOW)
    deleted = {memory.position for memory in new_plan.memories}
    remaining = {position: row for position, row in contents.items() if position not in deleted}
    assert_compacted(contents, remaining, KEEP)
    if operation == "apply":
        return RowScene(
            operation=tasks.apply_plan,
            argument=new_plan.to_json(),
            store=store,
            whole=contents,
            before=contents,
            after=remaining,
            signals=signals,
        )
    if operation == "restore":
        apply(new_plan, now=NOW)
        return RowScene(
            operation=tasks.restore_rows,
            argument=new_plan.digest,
            store=store,
            whole=contents,
            before=remaining,
            after=contents,
            signals=signals,
        )
    if operation == "compact_episodic":
        return RowScene(
            operation=tasks.compact,
            argument=KEEP,
            store=store,
            whole=remaining,
            before=contents,
            after=remaining,
            signals=[],
        )
    with SqliteMemoryStore(store) as opened:
        opened.compact_episodic(KEEP)
        opened.connection.execute(f"PRAGMA journal_mode = {journal}")
    return RowScene(
        operation=tasks.vacuum_store,
        argument=None,
        store=store,
        whole=remaining,
        before=remaining,
        after=remaining,
        signals=[],
    )


ROW_SCENES: Final[dict[str, Callable[[Path], RowScene]]] = {
    f"{name} {journal}": partial(row_scene, operation=name, journal=journal)
    for name, journal in product(
        ("apply", "restore", "compact_episodic", "vacuum"), ("wal", "delete")
    )
}
"""Each operation with each journal mode."""

VIEW = "the loaded frame"
"""Key of the loaded frame, beside the names of files."""
INDEXES = ("MEMORY.md", "index.json")
LEFTOVERS = (".memlab-", LOCK)
"""Prefixes of files that a change may leave behind."""
_LINK = re.compile(r"\]\(([^)]+\.md)\)", re.IGNORECASE)


@dataclass
class FolderScene(Scene):
    """A scene of a folder of memories."""

    digest: str

    def state(self, store: Path) -> dict[Any, Any]:
        """Return the state of every file, without the time of an index."""
        contents: dict[str, Any] = {VIEW: str(load(store, with_body=True).to_csv())}
        for path in store.rglob("*"):
            name = str(path.relative_to(store))
            if path.is_file() and not name.startswith(LEFTOVERS):
                contents[name] = FileState.of(path, with_time=name not in INDEXES)
        return contents

    def check(self, store: Path) -> None:
        if archive_of(store).exists():
            assert_sound(archive_of(store))
        archived_files = [record.get("file") for _, record in records_in_archive_of(store)]
        present = {stored(file["data"]).value for file in archived_files if file}
        contents = self.state(store)
        present |= {file.content for name, file in contents.items() if name != VIEW}
        names = set(self.whole) - {*INDEXES, VIEW}
        lost = {name for name in names if self.whole[name].content not in present}
        assert lost == set()
        assert _names_without_a_file(contents) <= _names_without_a_file(self.whole)
        assert contents[VIEW] in (self.before[VIEW], self.after[VIEW])

    def take_back(self, children: Children, store: Path) -> None:
        """Assert that a restore returns the original state."""
        ended = children.run(tasks.restore_rows, store=store, argument=self.digest)
        # Otherwise nothing was archived and nothing deleted.
        assert ended.error is None or isinstance(ended.error, ArchiveError)
        self.check(store)
        assert self.state(store)[VIEW] == self.whole[VIEW]


def _names_without_a_file(files: dict[str, Any]) -> set[str]:
    """Return the targets of index links that do not exist."""
    if "MEMORY.md" not in files:
        return set()
    targets = _LINK.findall(files["MEMORY.md"].content.decode())
    return {target.replace("%20", " ") for target in targets} - set(files)


def _claude(folder: Path) -> Path:
    return claude_store.realistic_folder(folder / "memory", files=16)


def _claude_below(folder: Path) -> Path:
    """Write memories in sub-folders of a project's memory, and a nested store."""
    return claude_store.with_subfolders(folder / PROJECTS / "-w" / "memory")


def _odek(folder: Path) -> Path:
    return write_odek(folder / "episodes", ["shipped", "né 北京 🦀 " * 200, "x"] * 3)


def _openclaw(folder: Path) -> Path:
    """Write notes in nested folders, some of which are deleted completely."""
    days = days_before(claude_store.START.date(), 9)
    workspace = write_workspace(folder / "workspace", days)
    (workspace / "memory" / "old").mkdir()
    for day in days[1:5]:
        (workspace / f"memory/{day}.md").rename(workspace / f"memory/old/{day}.md")
    return workspace


def _folder_scene(folder: Path, system: Callable[[Path], Path], operation: str) -> FolderScene:
    """Make a folder and a plan that deletes some of it; the operation applies or restores it.

    The state after the operation comes from a run on a copy.
    """
    folder.mkdir()
    store = system(folder)
    new_plan = plan(store, KeepRecent(2), now=claude_store.START)
    assert len(new_plan.memories) > 2
    scene = FolderScene(
        operation=tasks.apply_plan,
        argument=new_plan.to_json(),
        store=store,
        whole={},
        before={},
        after={},
        digest=new_plan.digest,
    )
    scene.before = scene.state(store)
    scene.whole = {name: file for name, file in scene.before.items() if name not in DERIVED}
    copy = copy_aside(store, folder.with_name(f"{folder.name} aside"))
    apply(new_plan, store=copy, now=claude_store.START)
    scene.after = scene.state(copy)
    if operation == "restore":
        apply(new_plan, now=claude_store.START)
        scene.operation = tasks.restore_rows
        scene.argument = new_plan.digest
        scene.before = scene.after
        scene.after = scene.whole
    return scene


_SYSTEMS: Final = {
    "claude": _claude,
    "claude_below": _claude_below,
    "odek": _odek,
    "openclaw": _openclaw,
}
FOLDER_SCENES: Final[dict[str, Callable[[Path], FolderScene]]] = {
    f"{operation} {name}": partial(_folder_scene, system=_SYSTEMS[name], operation=operation)
    for operation, name in product(("apply", "restore"), _SYSTEMS)
}
