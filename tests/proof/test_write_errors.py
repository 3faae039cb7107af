"""Failing writes and full disks give an error and lose nothing."""

import ctypes
import errno
import json
import math
import os
import random
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from memlab import AccessLog, KeepRecent, apply, plan
from memlab.compaction.reclaim import space
from memlab.errors import MemlabError
from tests.proof import tasks
from tests.proof.conftest import SOURCES
from tests.proof.scenes import (
    FOLDER_SCENES,
    NOW,
    ROW_SCENES,
    RowScene,
    Scene,
    copy_aside,
    files_of,
    make_store,
)
from tests.support.claude_store import (
    at,
    call,
    memory,
    project_folder,
    write_memory,
    write_transcript,
)
from tests.support.invariants import assert_nothing_lost, assert_sound, copies_of, rows_of
from tests.support.programs import Children, Task, forked
from tests.support.shell import run

FAULTS = int(os.environ.get("MEMLAB_WRITE_ERRORS", "240"))
"""How many changes of files fail, over all operations."""
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES)
NO_END = 2**31 - 1
MODULES = ("pandas", "numba", "matplotlib.backends.backend_svg", "memlab.views", "memlab.fleet")
"""Modules that the parent of the children imports once."""
CASES = len(ROW_SCENES) + len(FOLDER_SCENES)


class Fault(NamedTuple):
    """The numbers of the failing changes, from 1, and their error; by default none fails."""

    folder: Path
    first: int = 0
    last: int = 0
    error: int = 0


class Outcome(NamedTuple):
    """The result of a task under a fault, and the number of changes that could fail."""

    result: Any
    changes: int


def run_with_fault(fault: Fault, do: Task, arguments: tuple[Any, ...]) -> Outcome:
    library = ctypes.CDLL(None)
    library.fail_changes(os.fsencode(fault.folder), fault.first, fault.last, fault.error)
    result = do(*arguments)
    return Outcome(result, int(library.changes_tried()))


class CommandResult(NamedTuple):
    """An ended command."""

    exit_code: int
    output: str


def run_command(*arguments: str) -> CommandResult:
    result = run(*arguments)
    return CommandResult(result.exit_code, result.output)


@pytest.fixture(scope="module")
def faulty(recorder: Path) -> Iterator[Children]:
    """Return children in which changes of files can fail."""
    with forked(
        "tests.proof.test_write_errors", *SOURCES, *MODULES, LD_PRELOAD=str(recorder)
    ) as processes:
        yield processes


def faults(folder: Path, changes: int, wanted: int) -> Iterator[Fault]:
    """Yield faults: each change fails with each error, alone or with all later ones."""
    cases = list(product(range(1, changes + 1), ERRORS, (True, False)))
    rng = random.Random(changes)
    for first, error, alone in rng.sample(cases, min(wanted, len(cases))):
        last = first if alone else NO_END
        yield Fault(folder, first, last, error)


def test_failed_write_of_an_operation_loses_nothing(
    scene: Scene, scratch: Path, faulty: Children
) -> None:
    case = scratch / "case"
    arguments = {
        "do": scene.operation,
        "arguments": (copy_aside(scene.store, case), scene.argument),
    }
    without_fault = faulty.run(run_with_fault, fault=Fault(case), **arguments)
    assert without_fault.error is None
    for fault in faults(case, without_fault.result.changes, FAULTS // CASES):
        store = copy_aside(scene.store, case)
        ended = faulty.run(run_with_fault, fault=fault, **arguments)
        scene.check(store)
        if ended.error is None:
            scene.check_done(store)
            continue
        assert isinstance(ended.error, MemlabError), repr(ended.error)
        assert str(store) in str(ended.error)
        if "nothing was" in str(ended.error):
            assert scene.state(store) == scene.before
        scene.finish(faulty, store)


STORE = "memory.db"
MEMORY = "home/.claude/projects/-home-u-work/memory"
HARVESTED = "harvested.log"
SETTINGS = f'[store."{STORE}"]\npolicy = {{ name = "recent", keep = 20 }}\narchive_for = "1000d"\n'


class WritingCommand(NamedTuple):
    """A command, and the name of the file that it writes."""

    words: str
    file: str


COMMANDS = {
    "size": WritingCommand("size {store} --save", "memlab.toml"),
    "compact": WritingCommand("compact {store} --keep-recent 9 --save", "memlab.toml"),
    "plan": WritingCommand("compact {store} --keep-recent 9 --save-plan {file}", "plan.json"),
    "maintain": WritingCommand("maintain {store} --apply", STORE),
    "drop": WritingCommand(
        "archive {store} --drop-before 2030-01-01 --apply", f"{STORE}.archive.db"
    ),
    "export": WritingCommand("archive {store} --export {file}", "rows.jsonl"),
    "table": WritingCommand("archive {store} --export {file}", "rows.parquet"),
    "new store": WritingCommand("restore {store} {digest} --into {file}", "new.db"),
    "harvest": WritingCommand("harvest {memory} -o {file}", HARVESTED),
    "chart": WritingCommand("report {store} --chart growth -o {file}", "chart.svg"),
    "report": WritingCommand("report {store} -o {file}", "page.html"),
    "fleet plan": WritingCommand(
        "fleet plan {store} --keep-recent 9 --save-plan {file}", "fleet.json"
    ),
    "fleet report": WritingCommand("fleet report {store} -o {file}", "fleet.html"),
}


def assert_whole(path: Path) -> None:
    """Assert that a written file is complete, by its suffix."""
    match path.suffix:
        case ".html":
            assert path.read_text().rstrip().endswith("</html>")
        case ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
        case ".log" | ".jsonl":
            assert [json.loads(line) for line in path.read_text().splitlines()]
        case ".json":
            assert json.loads(path.read_text())
        case ".toml":
            assert tomllib.loads(path.read_text())["store"][STORE]["archive_for"] == "1000d"
        case ".parquet":
            assert pq.read_table(path).num_rows
        case _:
            assert_sound(path)


class Original(NamedTuple):
    """A folder with a store, and the digest of a plan that was applied to it."""

    folder: Path
    digest: str

    @property
    def store(self) -> Path:
        return self.folder / STORE


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """Make a store with archive, settings, access log and files of an earlier run."""
    folder = tmp_path_factory.mktemp("original") / "case"
    folder.mkdir()
    store = make_store(folder / STORE, rows=60)
    receipt = apply(plan(store, KeepRecent(30), now=NOW), now=NOW)
    (folder / "memlab.toml").write_text(SETTINGS)
    notes = project_folder(folder / "home")
    write_memory(notes, "a.md", memory("a"))
    write_transcript(notes.parent, "s1", call("Read", notes / "a.md", at(1), "s1", 1))
    with AccessLog(folder / HARVESTED) as log:
        log.add("b", NOW)
    for name in ("chart.svg", "page.html", "fleet.html"):
        (folder / name).write_text("the old one")
    return Original(folder, receipt.digest)


@pytest.mark.parametrize("name", COMMANDS)
def test_failed_write_of_a_command_is_reported(
    name: str, original: Original, scratch: Path, faulty: Children
) -> None:
    command = COMMANDS[name]
    case = scratch / "case"
    store = case / STORE
    file = case / command.file
    places = {
        "store": store,
        "file": file,
        "memory": case / MEMORY,
        "digest": original.digest[:12],
    }
    arguments = tuple(word.format_map(places) for word in command.words.split())
    original_rows = rows_of(original.store)

    def run_case(fault: Fault) -> Any:
        ended = faulty.run(run_with_fault, fault=fault, do=run_command, arguments=arguments)
        assert ended.error is None, (fault, ended.error)
        return ended.result

    copy_aside(original.store, case)
    before = files_of(case)
    without_fault = run_case(Fault(case))
    assert without_fault.result.exit_code == 0, without_fault.result.output
    names = files_of(case).keys()
    wanted = math.ceil(FAULTS / (3 * len(COMMANDS)))
    for fault in faults(case, without_fault.changes, wanted):
        copy_aside(original.store, case)
        ended = run_case(fault).result
        assert_nothing_lost(original_rows, store)
        remaining_files = files_of(case)
        content = remaining_files.get(command.file)
        if content is not None and content != before.get(command.file):
            assert_whole(file)
        if ended.exit_code == 0 or f"{file} was written" in ended.output:
            assert_whole(file)
            continue
        assert str(case) in ended.output, (fault, ended.output)
        assert "[Errno" not in ended.output
        if remaining_files == before:
            continue  # as before the operation
        repeated = run_case(Fault(case)).result
        assert repeated.exit_code == 0, (fault, ended.output, repeated.output)
        assert_whole(file)
        assert_nothing_lost(original_rows, store)
        new_names = files_of(case).keys() - names
        assert new_names <= {f"{command.file}-journal"}, fault  # an empty journal left by SQLite


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_store_without_write_permission_is_unchanged(
    row_scene: RowScene, kind: str, scratch: Path, children: Children
) -> None:
    scene = row_scene
    folder = scene.store.parent
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777 if path.is_dir() else 0o666)
    protected = [folder] if kind == "folder" else list(folder.iterdir())
    for path in protected:
        path.chmod(path.stat().st_mode & ~0o222)
    before = files_of(folder)
    copies = copies_of(scene.store)

    read = children.run(tasks.without_privileges, do=space, arguments=(scene.store,))
    assert read.error is None
    ended = children.run(
        tasks.without_privileges,
        do=scene.operation,
        arguments=(scene.store, scene.argument),
    )
    assert isinstance(ended.error, MemlabError), repr(ended.error)
    assert str(scene.store) in str(ended.error)
    assert {name: files_of(folder)[name] for name in before} == before
    assert copies_of(scene.store) == copies
    if kind == "folder":
        assert files_of(folder) == before
