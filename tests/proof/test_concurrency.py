"""Many processes write to one store and nothing is lost."""

import os
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import pytest

import memlab
from memlab.compaction import Receipt, apply, plan, restore
from memlab.errors import AlreadyAppliedError, ArchiveError, StalePlanError
from memlab.items import REJECTED_PATH_TAG, MemoryItem, MemoryKind, MemoryProvenance
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore
from tests.proof.scenes import row_scene
from tests.support.invariants import assert_sound, rows_of
from tests.support.programs import Children

WRITERS = 8
PUTS = int(os.environ.get("MEMLAB_PUTS", "150"))
KEEP = 60
REST = 0.02
"""Seconds between two puts, at most."""


@dataclass
class Written:
    """The report of one writer."""

    items: dict[str, MemoryItem] = field(default_factory=dict)
    """The items that it put, by id."""
    superseded: set[str] = field(default_factory=set)
    """Ids of the items that it superseded."""
    deleted: int = 0
    """Number of memories that its compactions deleted."""


def random_item(rng: random.Random, writer: int, number: int) -> MemoryItem:
    return MemoryItem(
        memory_id=f"w{writer}-{number}",
        kind=rng.choices(list(MemoryKind), weights=[1, 12, 1])[0],
        title=f"writer {writer}, number {number}",
        body="body " * rng.randrange(200),
        provenance=MemoryProvenance(None, f"writer {writer}", source_task_ref=f"issue:#{number}"),
        tags=(REJECTED_PATH_TAG,) if rng.random() < 0.05 else (),
    )


def write(store: Path, writer: int, puts: int) -> Written:
    """Put items, and sometimes supersede one or compact the store."""
    rng = random.Random(writer)
    written = Written()
    with SqliteMemoryStore(store) as opened:
        for number in range(puts):
            item = random_item(rng, writer, number)
            opened.put(item)
            written.items[item.memory_id] = item
            time.sleep(rng.uniform(0, REST))
            if number % 24 == 23:
                old = f"w{writer}-{number - rng.randrange(1, 24)}"
                with suppress(KeyError):  # compacted meanwhile
                    opened.supersede(old, by_memory_id=item.memory_id)
                    written.superseded.add(old)
            if number % 75 == 74:
                written.deleted += opened.compact_episodic(KEEP)
    return written


@pytest.mark.parametrize("retire", [False, True])
def test_concurrent_writers_and_plans_lose_nothing(
    scratch: Path, children: Children, retire: bool
) -> None:
    store = scratch / "memory.db"
    tally = Counter[str]()
    unplanned_ids: set[str] = set()  # named by an error, and not in its plan

    def plan_and_apply() -> None:
        new_plan = plan(store, KeepRecent(KEEP // 3), retire=retire)
        if new_plan.is_empty:
            return
        try:
            receipt = apply(new_plan)
        except StalePlanError as error:
            memories = chain(new_plan.kept, *new_plan.memories_by_action.values())
            planned_ids = {memory.memory_id for memory in memories}
            unplanned_ids.update(set(error.memory_ids) - planned_ids)
            return
        tally["applied"] += 1
        tally["deleted"] += receipt.deleted
        if tally["applied"] % 3 == 0:
            with suppress(ArchiveError):  # a writer reused a position, compacted or superseded rows
                restored = restore(receipt)
                if not retire:  # a retired memory was never out of the store
                    tally["restored"] += restored.memories

    SqliteMemoryStore(store).close()
    pids = [
        children.start(write, store=store, writer=writer, puts=PUTS) for writer in range(WRITERS)
    ]
    writing_still = True
    while writing_still:
        writing_still = children.any_running(pids)  # so that the last plan is made without writers
        plan_and_apply()
    ended = [children.wait(pid) for pid in pids]
    assert [child.error for child in ended] == [None] * WRITERS
    assert_sound(store)
    deleted = sum(child.result.deleted for child in ended) + tally["deleted"]
    assert WRITERS * PUTS + tally["restored"] == len(rows_of(store)) + deleted
    with SqliteMemoryStore(store) as opened:
        for child in ended:
            for memory_id, item in child.result.items.items():
                stored = opened.get(memory_id)
                if memory_id in child.result.superseded:
                    assert stored is not None
                    assert stored.superseded_by not in (None, memory_id)
                elif memlab.is_load_bearing_memory(item):
                    assert stored == item
                elif stored is not None:
                    assert stored.is_active or retire
                    assert replace(stored, superseded_by=None) == item
    assert tally["applied"] > 0
    assert unplanned_ids == set()


@pytest.mark.parametrize("operation", ["apply", "restore"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_concurrent_equal_operations_run_once(
    operation: str, journal: str, scratch: Path, children: Children
) -> None:
    for round_ in range(4):
        scene = row_scene(scratch / f"round {round_}", operation, journal)
        arguments = {"store": scene.store, "argument": scene.argument}
        pids = [children.start(scene.operation, **arguments) for _ in range(WRITERS)]
        ended = [children.wait(pid) for pid in pids]
        if operation == "restore":
            restored = len(scene.after) - len(scene.before)
            assert sorted(child.result for child in ended) == [0] * (WRITERS - 1) + [restored]
        else:
            # A process that finds the deletion of another unrecorded records it, and returns a
            # receipt, too.
            receipts = [child for child in ended if isinstance(child.result, Receipt)]
            assert receipts
            refused = [child for child in ended if isinstance(child.error, AlreadyAppliedError)]
            assert len(receipts) + len(refused) == WRITERS
        scene.check_done(scene.store)
