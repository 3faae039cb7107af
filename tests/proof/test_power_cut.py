"""A power cut at any time loses nothing that was reported as done."""

import math
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.power import Disk, Event, Image, put_on_disk, record_events
from tests.proof.scenes import FOLDER_SCENES, ROW_SCENES, FolderScene, Scene
from tests.support.programs import Children

CUTS = int(os.environ.get("MEMLAB_POWER_CUTS", "840"))
"""Number of disk images that are checked over all operations."""
CASES = len(ROW_SCENES) + len(FOLDER_SCENES) + 2


def images_of(disk: Disk, events: list[Event], *, seed: str) -> Iterator[Image]:
    """Yield the distinct images after a cut at any event, the last event last."""
    rng = random.Random(seed)
    seen_images = set()
    for event in events:
        disk.see(event)
        for image in disk.images_after_a_cut(rng):
            key = hash(frozenset(image.items()))
            if key not in seen_images:
                seen_images.add(key)
                yield image


def test_power_cut_at_any_time_loses_nothing(
    scene: Scene, scratch: Path, children: Children, recorder: Path
) -> None:
    disk = Disk(scene.store.parent)
    events = record_events(recorder, scene.operation, scene.store, scene.argument)
    _check_images(scene, list(images_of(disk, events, seed="any moment")), children)
    for image in disk.images_after_a_cut(random.Random(0)):  # a finished operation stays finished
        put_on_disk(image, scene.store.parent)
        scene.check_done(scene.store)


@pytest.mark.parametrize("name", [name for name in FOLDER_SCENES if name.startswith("apply")])
def test_second_power_cut_during_recovery_loses_nothing(
    name: str, scratch: Path, children: Children, recorder: Path
) -> None:
    scene = FOLDER_SCENES[name](scratch / "whole")
    disk = Disk(scene.store.parent)
    events = record_events(recorder, scene.operation, scene.store, scene.argument)
    moves = [number for number, event in enumerate(events) if event.what == "rename"]
    half_way = moves[len(moves) // 2]
    for event in events[:half_way]:
        disk.see(event)
    image_after_cut = next(disk.images_after_a_cut(random.Random(0)))
    put_on_disk(image_after_cut, scene.store.parent)
    disk = Disk(scene.store.parent)
    events = record_events(recorder, scene.operation, scene.store, scene.argument)
    _check_images(scene, list(images_of(disk, events, seed="again")), children, every=True)


def _check_images(
    scene: Scene, images: list[Image], children: Children, *, every: bool = False
) -> None:
    """Check a sample of the images of a disk, or all, and finish or undo it from the sample."""
    sample_size = min(math.ceil(CUTS / CASES), len(images))
    sample = set(random.Random(0).sample(range(len(images)), sample_size))
    checked = range(len(images)) if every else sorted(sample)
    for number in checked:
        put_on_disk(images[number], scene.store.parent)
        scene.check(scene.store)
        if number not in sample:
            continue
        put_on_disk(images[number], scene.store.parent)  # reading recovers the table
        if number % 2 and isinstance(scene, FolderScene):
            scene.take_back(children, scene.store)
        else:
            scene.finish(children, scene.store)


def rename_and_remove(store: Path, name: str) -> None:
    draft = store.with_name("draft")
    draft.write_text("new")
    draft.rename(store)
    store.with_name(name).unlink()


def contents_of(image: Image) -> dict[str, bytes | None]:
    return {name: copy.content for name, copy in image.items()}


def test_simulated_disk_can_lose_an_earlier_rename(scratch: Path, recorder: Path) -> None:
    folder = scratch / "careless"
    folder.mkdir()
    for name in ("index", "old.md"):
        (folder / name).write_text("old")
    disks = [Disk(folder) for _ in range(20)]
    events = record_events(recorder, rename_and_remove, folder / "index", "old.md")
    contents: list[dict[str, bytes | None]] = []
    for seed, disk in enumerate(disks):
        contents += map(contents_of, images_of(disk, events, seed=str(seed)))
    assert {"index": b"old"} in contents
    assert {"index": b"", "old.md": b"old"} in contents
    assert {"index": b"new"} in contents
