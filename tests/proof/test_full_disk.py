"""Where nothing more can be written, an error says so and nothing is lost."""

from pathlib import Path

import pytest
from invariants import copies_of
from programs import Children

from memlab.compaction.reclaim import space
from memlab.errors import MemlabError
from proof import tasks
from proof.scenes import RowScene, assert_refused_or_done
from proof.stores import copy_aside, files_of

PAGE = 4096
LIMITS = (0, 1, 100, 512, *range(PAGE, 8 * PAGE, PAGE), *range(8 * PAGE, 48 * PAGE, 5 * PAGE - 24))
"""Bytes beyond which no file may grow: sooner, amid and after all that an operation writes."""


def test_files_that_may_not_grow(row_scene: RowScene, scratch: Path, children: Children) -> None:
    scene, refused = row_scene, []
    for limit in LIMITS:
        store = copy_aside(scene.store, scratch / "limited")
        arguments = (scene.operation, store, scene.what)
        ended = children.run(tasks.with_files_limited, limit=limit, arguments=arguments)
        refused.append(ended.error is not None)
        assert_refused_or_done(scene, store, ended)
        scene.finish(children, store)
    assert refused[0]
    assert not refused[-1]


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
