"""Folders of memories before an operation, and what must be true of them at any moment of it."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

from claude_store import START as FIRST
from claude_store import as_found
from invariants import archive_of, assert_sound
from odek_store import DERIVED, write_odek
from openclaw_store import days_before, write_workspace
from programs import Children

from memlab import KeepRecent, apply, load, plan
from memlab.errors import ArchiveError
from proof import tasks
from proof.scenes import Scene
from proof.stores import copy_aside

Files = dict[str, tuple[bytes, int, int]]
"""Bytes, mode and time of every file below a folder; an index gets a new time when it changes."""
KEEP = 2
INDEXES = ("MEMORY.md", "index.json")
LEFT = ".memlab-"
"""How a name begins that a change may leave to the next one to sweep."""
_LINK = re.compile(r"\]\(([^)]+\.md)\)", re.IGNORECASE)


def files_below(folder: Path) -> Files:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            looked_at = path.stat()
            when = 0 if path.name in INDEXES else looked_at.st_mtime_ns
            found[str(path.relative_to(folder))] = (path.read_bytes(), looked_at.st_mode, when)
    return found


def view(folder: Path) -> str:
    return str(load(folder, with_body=True).to_csv())


@dataclass
class FolderScene(Scene):
    """The same of a folder: its files, their bytes, modes and times."""

    digest: str
    views: tuple[str, ...]

    def check(self, store: Path) -> None:
        there = {data for data, _, _ in files_below(store).values()} | _archived(store)
        names = set(self.whole) - set(INDEXES)
        assert {name for name in names if self.whole[name][0] not in there} == set()
        assert _names_without_a_file(files_below(store)) <= _names_without_a_file(self.whole)
        assert view(store) in self.views

    def check_done(self, store: Path) -> None:
        assert _but_what_is_swept(store) == self.after
        assert view(store) == self.views[self.after != self.whole]

    def check_undone(self, store: Path) -> None:
        assert _but_what_is_swept(store) == self.before

    def take_back(self, children: Children, store: Path) -> None:
        """Whatever has happened, a restore leaves all as it was before anything was deleted."""
        ended = children.run(tasks.restore_rows, store=store, what=self.digest)
        # Else nothing was archived, so that nothing was deleted.
        assert ended.error is None or isinstance(ended.error, ArchiveError)
        self.check(store)
        assert view(store) == self.views[0]


def _but_what_is_swept(store: Path) -> Files:
    files = files_below(store).items()
    return {name: file for name, file in files if not name.startswith(LEFT)}


def _archived(store: Path) -> set[bytes]:
    """The bytes of files that the archive holds."""
    archive = archive_of(store)
    if not archive.exists():
        return set()
    assert_sound(archive)
    with closing(sqlite3.connect(archive)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            return set()
        records = connection.execute("SELECT record FROM archived").fetchall()
    files = [json.loads(record).get("file") for (record,) in records]
    data = [each["data"] for each in files if each]
    return {
        each.encode() if isinstance(each, str) else bytes.fromhex(each["text"]) for each in data
    }


def _names_without_a_file(files: Files) -> set[str]:
    """What the index of Claude Code's memory leads to that is not there."""
    if "MEMORY.md" not in files:
        return set()
    named = _LINK.findall(files["MEMORY.md"][0].decode())
    return {name.replace("%20", " ") for name in named} - set(files)


def _claude(folder: Path) -> Path:
    return as_found(folder / "memory", files=16)


def _odek(folder: Path) -> Path:
    return write_odek(folder / "episodes", ["shipped", "né 北京 🦀 " * 200, "x"] * 3)


def _openclaw(folder: Path) -> Path:
    """Notes in folders below each other, of which some go whole."""
    workspace = write_workspace(folder / "workspace", days_before(FIRST.date(), 9))
    for day in days_before(FIRST.date(), 9)[1:5]:
        (workspace / "memory" / "old").mkdir(exist_ok=True)
        (workspace / f"memory/{day}.md").rename(workspace / f"memory/old/{day}.md")
    return workspace


def _scene(folder: Path, system: Callable[[Path], Path], operation: str) -> FolderScene:
    """A folder, and a plan that deletes some of it: to be applied, or applied and to be taken back.

    What is to be true afterwards is found out on a copy.
    """
    folder.mkdir()
    store = system(folder)
    found = files_below(store)
    whole = {name: file for name, file in found.items() if name not in DERIVED}
    made = plan(store, KeepRecent(KEEP), now=FIRST)
    assert len(made.memories) > 2
    copy = copy_aside(store, folder.with_name(f"{folder.name} aside"))
    apply(made, store=copy, now=FIRST)
    left, views = files_below(copy), (view(store), view(copy))
    if operation == "apply":
        do = tasks.apply_plan, made.to_json(), store
        return FolderScene(*do, whole, found, left, made.digest, views)
    apply(made, now=FIRST)
    do = tasks.restore_rows, made.digest, store
    return FolderScene(*do, whole, left, whole, made.digest, views)


FOLDER_SCENES: Final[dict[str, Callable[[Path], FolderScene]]] = {
    f"{operation} {system.__name__[1:]}": partial(_scene, system=system, operation=operation)
    for operation, system in product(("apply", "restore"), (_claude, _odek, _openclaw))
}
