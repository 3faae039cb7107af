"""Any change of a file may fail, once or for good, or the disk be full: an error says so."""

import os
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from invariants import assert_nothing_lost, copies_of, rows_of
from programs import Children, forked

from memlab.compaction.reclaim import space
from memlab.errors import MemlabError
from proof import failing, tasks
from proof.conftest import SOURCES
from proof.failing import ERRORS, EVERY, Fault
from proof.folders import FOLDER_SCENES
from proof.scenes import ROW_SCENES, RowScene, Scene, assert_refused_or_done
from proof.stores import copy_aside, files_of
from proof.writers import MEMORY, STORE, WRITERS, assert_whole, made_folder

FAULTS = int(os.environ.get("MEMLAB_WRITE_ERRORS", "240"))
"""How many changes of files fail, over all operations."""
NEEDED = ("pandas", "numba", "matplotlib.backends.backend_svg", "memlab.views", "memlab.fleet")
"""What commands would import, each for itself."""
CASES = len(ROW_SCENES) + len(FOLDER_SCENES)


@pytest.fixture(scope="module")
def faulty(recorder: Path) -> Iterator[Children]:
    """Children in which changes of files can fail."""
    with forked("proof.failing", *SOURCES, *NEEDED, LD_PRELOAD=str(recorder)) as made:
        yield made


def faults(folder: Path, changes: int, wanted: int) -> Iterator[Fault]:
    """Let one change after the other fail: with every error, alone or with all that follow."""
    every = list(product(range(1, changes + 1), ERRORS, (True, False)))
    rng = random.Random(changes)
    for number, error, alone in rng.sample(every, min(wanted, len(every))):
        yield Fault(folder, number, number if alone else EVERY, error)


def test_a_change_of_a_file_fails(scene: Scene, scratch: Path, faulty: Children) -> None:
    case = scratch / "case"
    do = {"operation": scene.operation, "what": scene.what, "store": case / scene.store.name}
    copy_aside(scene.store, case)
    counted = faulty.run(failing.changes_of, **do)
    assert counted.error is None
    for fault in faults(case, counted.result, FAULTS // CASES):
        store = copy_aside(scene.store, case)
        ended = faulty.run(failing.operate, fault=fault, **do)
        assert_refused_or_done(scene, store, ended)
        if ended.error is not None:
            scene.finish(faulty, store)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("made") / "case"
    return folder, made_folder(folder)


@pytest.mark.parametrize("name", WRITERS)
def test_a_change_of_a_file_fails_that_a_command_writes(
    name: str, made: tuple[Path, str], scratch: Path, faulty: Children
) -> None:
    command, written = WRITERS[name]
    case, (whole, digest) = scratch / "case", made
    store, file = case / STORE, case / written
    places = {"store": store, "file": file, "memory": case / MEMORY, "digest": digest[:12]}
    words = [word.format_map(places) for word in command.split()]
    kept = rows_of(whole / STORE)

    def run(fault: Fault) -> Any:
        return faulty.run(failing.command, words=words, fault=fault)

    copy_aside(whole / STORE, case)
    before = files_of(case)
    unhindered = run(Fault(case, 0, 0, 0))
    assert unhindered.error is None
    assert unhindered.result.exit_code == 0, unhindered.result.output
    names = files_of(case).keys()
    for fault in faults(case, unhindered.result.changes, -(-FAULTS // (3 * len(WRITERS)))):
        copy_aside(whole / STORE, case)
        ended = run(fault)
        assert ended.error is None, (fault, ended.error)
        assert_nothing_lost(kept, store)
        left = files_of(case)
        if written in left and left[written] != before.get(written):
            assert_whole(file)
        if not ended.result.exit_code or f"{file} was written" in ended.result.output:
            assert_whole(file)
            continue
        assert str(case) in ended.result.output, (fault, ended.result.output)
        assert "[Errno" not in ended.result.output
        if left == before:
            continue  # as before the unhindered one
        again = run(Fault(case, 0, 0, 0))
        assert again.error is None
        assert again.result.exit_code == 0, (fault, ended.result.output, again.result.output)
        assert_whole(file)
        assert_nothing_lost(kept, store)
        more = files_of(case).keys() - names
        assert more <= {f"{written}-journal"}, fault  # an empty one: SQLite leaves it to a writer


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_may_not_be_written(
    row_scene: RowScene, what: str, scratch: Path, children: Children
) -> None:
    scene = row_scene
    folder = scene.store.parent
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777 if path.is_dir() else 0o666)
    for path in [folder] if what == "folder" else folder.iterdir():
        path.chmod(path.stat().st_mode & ~0o222)
    before, copies = files_of(folder), copies_of(scene.store)

    read = children.run(tasks.without_privileges, arguments=(space, scene.store))
    assert read.error is None
    arguments = (scene.operation, scene.store, scene.what)
    ended = children.run(tasks.without_privileges, arguments=arguments)
    assert isinstance(ended.error, MemlabError), repr(ended.error)
    assert str(scene.store) in str(ended.error)
    assert {name: files_of(folder)[name] for name in before} == before
    assert copies_of(scene.store) == copies
    if what == "folder":
        assert files_of(folder) == before
