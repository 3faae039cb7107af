"""Failing writes and full disks give an error and lose nothing."""

import ctypes
import errno
import json
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
EVERY = 2**31 - 1
NEEDED = ("pandas", "numba", "matplotlib.backends.backend_svg", "memlab.views", "memlab.fleet")
"""Modules that the parent of the children imports once."""
CASES = len(ROW_SCENES) + len(FOLDER_SCENES)


class Fault(NamedTuple):
    """The numbers of the failing changes, from 1, and their error; by default none fails."""

    folder: Path
    first: int = 0
    last: int = 0
    error: int = 0


def under(fault: Fault, do: Task, arguments: tuple[Any, ...]) -> tuple[Any, int]:
    """Run a task under a fault; return its result and the number of changes that could fail."""
    library = ctypes.CDLL(None)
    library.fail_changes(os.fsencode(fault.folder), fault.first, fault.last, fault.error)
    return do(*arguments), int(library.changes_tried())


def command(*arguments: str) -> tuple[int, str]:
    result = run(*arguments)
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def faulty(recorder: Path) -> Iterator[Children]:
    """Return children in which changes of files can fail."""
    with forked(
        "tests.proof.test_write_errors", *SOURCES, *NEEDED, LD_PRELOAD=str(recorder)
    ) as processes:
        yield processes


def faults(folder: Path, changes: int, wanted: int) -> Iterator[Fault]:
    """Yield faults: each change fails with each error, alone or with all later ones."""
    every = list(product(range(1, changes + 1), ERRORS, (True, False)))
    rng = random.Random(changes)
    for number, error, alone in rng.sample(every, min(wanted, len(every))):
        yield Fault(folder, number, number if alone else EVERY, error)


def test_failed_write_of_an_operation_loses_nothing(
    scene: Scene, scratch: Path, faulty: Children
) -> None:
    case = scratch / "case"
    arguments = {
        "do": scene.operation,
        "arguments": (copy_aside(scene.store, case), scene.argument),
    }
    counted = faulty.run(under, fault=Fault(case), **arguments)
    assert counted.error is None
    for fault in faults(case, counted.result[1], FAULTS // CASES):
        store = copy_aside(scene.store, case)
        ended = faulty.run(under, fault=fault, **arguments)
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
WRITERS = {
    "size": ("size {store} --save", "memlab.toml"),
    "compact": ("compact {store} --keep-recent 9 --save", "memlab.toml"),
    "plan": ("compact {store} --keep-recent 9 --save-plan {file}", "plan.json"),
    "maintain": ("maintain {store} --apply", STORE),
    "drop": ("archive {store} --drop-before 2030-01-01 --apply", f"{STORE}.archive.db"),
    "export": ("archive {store} --export {file}", "rows.jsonl"),
    "table": ("archive {store} --export {file}", "rows.parquet"),
    "new store": ("restore {store} {digest} --into {file}", "new.db"),
    "harvest": ("harvest {memory} -o {file}", HARVESTED),
    "chart": ("report {store} --chart growth -o {file}", "chart.svg"),
    "report": ("report {store} -o {file}", "page.html"),
    "fleet plan": ("fleet plan {store} --keep-recent 9 --save-plan {file}", "fleet.json"),
    "fleet report": ("fleet report {store} -o {file}", "fleet.html"),
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Make a store with archive, settings, access log and files of an earlier run.

    Return it with the digest of the applied plan.
    """
    folder = tmp_path_factory.mktemp("made") / "case"
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
    return folder, receipt.digest


@pytest.mark.parametrize("name", WRITERS)
def test_failed_write_of_a_command_is_reported(
    name: str, made: tuple[Path, str], scratch: Path, faulty: Children
) -> None:
    typed, written = WRITERS[name]
    case = scratch / "case"
    original_folder, digest = made
    store = case / STORE
    file = case / written
    places = {"store": store, "file": file, "memory": case / MEMORY, "digest": digest[:12]}
    arguments = tuple(word.format_map(places) for word in typed.split())
    original_rows = rows_of(original_folder / STORE)

    def ran(fault: Fault) -> Any:
        ended = faulty.run(under, fault=fault, do=command, arguments=arguments)
        assert ended.error is None, (fault, ended.error)
        return ended.result

    copy_aside(original_folder / STORE, case)
    before = files_of(case)
    (code, output), changes = ran(Fault(case))
    assert code == 0, output
    names = files_of(case).keys()
    for fault in faults(case, changes, -(-FAULTS // (3 * len(WRITERS)))):
        copy_aside(original_folder / STORE, case)
        (code, output), _ = ran(fault)
        assert_nothing_lost(original_rows, store)
        remaining_files = files_of(case)
        if written in remaining_files and remaining_files[written] != before.get(written):
            assert_whole(file)
        if not code or f"{file} was written" in output:
            assert_whole(file)
            continue
        assert str(case) in output, (fault, output)
        assert "[Errno" not in output
        if remaining_files == before:
            continue  # as before the operation
        (code, second_output), _ = ran(Fault(case))
        assert code == 0, (fault, output, second_output)
        assert_whole(file)
        assert_nothing_lost(original_rows, store)
        more = files_of(case).keys() - names
        assert more <= {f"{written}-journal"}, fault  # an empty journal left by SQLite


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_store_without_write_permission_is_unchanged(
    row_scene: RowScene, kind: str, scratch: Path, children: Children
) -> None:
    scene = row_scene
    folder = scene.store.parent
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777 if path.is_dir() else 0o666)
    for path in [folder] if kind == "folder" else folder.iterdir():
        path.chmod(path.stat().st_mode & ~0o222)
    before = files_of(folder)
    copies = copies_of(scene.store)

    read = children.run(tasks.without_privileges, arguments=(space, scene.store))
    assert read.error is None
    arguments = (scene.operation, scene.store, scene.argument)
    ended = children.run(tasks.without_privileges, arguments=arguments)
    assert isinstance(ended.error, MemlabError), repr(ended.error)
    assert str(scene.store) in str(ended.error)
    assert {name: files_of(folder)[name] for name in before} == before
    assert copies_of(scene.store) == copies
    if kind == "folder":
        assert files_of(folder) == before
