"""Many processes write to one file, and nobody loses anything."""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from invariants import assert_sound, rows_of
from programs import Children, Ended, Task

import memlab
from memlab.compaction.applier import apply
from memlab.compaction.planner import plan
from memlab.compaction.plans import Receipt
from memlab.compaction.restorer import restore
from memlab.errors import AlreadyAppliedError, ArchiveError, StalePlanError
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore
from proof import writing
from proof.scenes import row_scene
from proof.writing import Written

WRITERS = 8
PUTS = int(os.environ.get("MEMLAB_PUTS", "150"))


def written_while(store: Path, children: Children, act: Callable[[], None]) -> list[Written]:
    """Act again and again while writers write, the last time in peace; return what they wrote."""
    SqliteMemoryStore(store).close()
    pids = [
        children.start(writing.write, store=store, writer=writer, puts=PUTS)
        for writer in range(WRITERS)
    ]
    writing_still = True
    while writing_still:
        writing_still = children.any_running(pids)
        act()
    ended = [children.wait(pid) for pid in pids]
    assert [each.error for each in ended] == [None] * WRITERS
    assert_sound(store)
    return [each.result for each in ended]


@pytest.mark.parametrize("retire", [False, True])
def test_writers_and_plans_on_one_file(scratch: Path, children: Children, retire: bool) -> None:
    store, tally = scratch / "memory.db", Counter[str]()

    def plan_and_apply() -> None:
        made = plan(store, KeepRecent(writing.KEEP // 3), retire=retire)
        if made.is_empty:
            return
        tally["plans"] += 1
        try:
            receipt = apply(made)
        except StalePlanError as error:
            decided = {row.memory_id for row in chain(made.kept, *made.fates.values())}
            tally["stale"] += decided.issuperset(error.memory_ids)
            return
        tally["applied"] += 1
        tally["deleted"] += receipt.deleted
        if tally["applied"] % 3 == 0:
            with suppress(ArchiveError):  # a writer has taken a place, compacted or superseded some
                tally["restored"] += restore(receipt) * (not retire)

    written = written_while(store, children, plan_and_apply)
    deleted = sum(each.deleted for each in written) + tally["deleted"]
    assert WRITERS * PUTS + tally["restored"] == len(rows_of(store)) + deleted
    with SqliteMemoryStore(store) as opened:
        for each in written:
            for memory_id, item in each.items.items():
                found = opened.get(memory_id)
                if memory_id in each.superseded:
                    assert found is not None
                    assert found.superseded_by not in (None, memory_id)
                elif memlab.is_load_bearing_memory(item):
                    assert found == item
                elif found is not None:
                    assert found.is_active or retire
                    assert replace(found, superseded_by=None) == item
    assert tally["applied"] > 0
    assert tally["applied"] + tally["stale"] == tally["plans"]


def together(children: Children, task: Task, store: Path, *whats: Any) -> list[Ended]:
    pids = [children.start(task, store=store, what=what) for what in whats]
    return [children.wait(pid) for pid in pids]


@pytest.mark.parametrize("operation", ["apply", "restore"])
def test_of_several_who_do_the_same_one_does_it(
    operation: str, journal: str, scratch: Path, children: Children
) -> None:
    for round_ in range(4):
        scene = row_scene(scratch / f"round {round_}", operation, journal)
        ended = together(children, scene.operation, scene.store, *[scene.what] * WRITERS)
        if operation == "restore":
            back = len(scene.after) - len(scene.before)
            assert sorted(each.result for each in ended) == [0] * (WRITERS - 1) + [back]
        else:  # who comes between the deletion and its record sees to the record, and tells of it
            receipts = [each for each in ended if isinstance(each.result, Receipt)]
            assert receipts
            refused = [each for each in ended if isinstance(each.error, AlreadyAppliedError)]
            assert len(receipts) + len(refused) == WRITERS
        scene.check_done(scene.store)
