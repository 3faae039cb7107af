"""A plan file is anybody's: what it says of a store is held against the store."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archives import planned
from invariants import archive_of, rows_of
from stores import run_sql

from memlab.compaction.applying import apply
from memlab.compaction.planned import Group
from memlab.compaction.plans import Plan
from memlab.errors import CompactionError, MemlabError, PlanError


def forged(store: Path, **fields: Any) -> Plan:
    """The plan of a store, with something else said of the first memory that it deletes."""
    made = planned(store)
    first, *others = made.memories
    return replace(made, memories=(first._replace(**fields), *others))


def refused(store: Path, plan: Plan, words: str, error: type[MemlabError] = PlanError) -> None:
    before = rows_of(store)
    with pytest.raises(error, match=words):
        apply(Plan.from_json(plan.to_json()))
    assert rows_of(store) == before
    assert not archive_of(store).exists()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("memory_id", "d1", "by the name of 'd1'"),
        ("title", "harmless", "'e1' is 'title of e1' .* calls it 'harmless'"),
        ("kind", "semantic", "by the name of 'e1', semantic"),
        ("position", 7, "position 7"),
    ],
)
def test_what_a_plan_says_of_a_memory_is_compared(
    store: Path, field: str, value: object, words: str
) -> None:
    error = CompactionError
    refused(store, adding_up(forged(store, **{field: value})), words, error)


def adding_up(plan: Plan) -> Plan:
    """The plan with groups that count what it deletes."""
    kinds = {memory.kind for memory in plan.memories}
    groups = [group for group in plan.groups if not group.deleted]
    for kind in sorted(kinds):
        of = [memory for memory in plan.memories if memory.kind == kind]
        tokens = sum(memory.tokens for memory in of)
        groups.append(Group(True, "prunable", kind, of[0].reason, len(of), tokens))
    return replace(plan, groups=tuple(groups))


def test_a_title_is_compared_as_far_as_a_plan_has_it(store: Path) -> None:
    run_sql(store, f"UPDATE memory_items SET title = '{'long ' * 40}' WHERE memory_id = 'e1'")
    assert apply(planned(store)).deleted == 6


@pytest.mark.parametrize("change", ["fewer", "tokens", "none", "load-bearing", "kept"])
def test_groups_that_do_not_add_up_are_refused(store: Path, change: str) -> None:
    made = planned(store)
    gone = next(group for group in made.groups if group.deleted)
    stays = [group for group in made.groups if not group.deleted]
    groups = {
        "fewer": (*stays, gone._replace(memories=1)),
        "tokens": (*stays, gone._replace(tokens=1)),
        "none": tuple(stays),
        "load-bearing": (*stays, gone._replace(label="load-bearing")),
        "kept": (*stays, gone, Group(False, "prunable", "episodic", "kept", 3, 3)),
    }
    refused(store, replace(made, groups=groups[change]), "do not add up")


def test_a_memory_named_twice_is_refused(store: Path) -> None:
    made = planned(store)
    twice = replace(made, memories=(*made.memories, made.memories[0]))
    refused(store, adding_up(twice), "names a memory twice")


def test_a_kept_memory_under_another_name_is_refused(store: Path) -> None:
    made = planned(store)
    first, *others = made.kept
    kept = (first._replace(memory_id="somebody"), *others)
    refused(store, replace(made, kept=kept), "by the name of 'somebody'", CompactionError)


def test_a_load_bearing_memory_is_refused_for_what_it_is(store: Path) -> None:
    """Even where the plan says that it is an episode, and its groups count it as one."""
    run_sql(store, "UPDATE memory_items SET kind = 'episodic' WHERE memory_id = 'd1'")
    made = planned(store, 0)
    run_sql(store, "UPDATE memory_items SET kind = 'semantic' WHERE memory_id = 'd1'")
    (decision,) = [memory for memory in made.memories if memory.memory_id == "d1"]
    now = planned(store)
    from test_applying import fingerprints_at

    (as_it_is,) = fingerprints_at(store, decision.position)
    named = (decision._replace(fingerprint=as_it_is), *now.memories)
    plan = adding_up(replace(now, memories=named))
    refused(store, plan, "'d1', which is load-bearing", CompactionError)
