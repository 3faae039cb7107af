"""What two plans do otherwise, of memories that go and of those for which others stand."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from archives import NOON
from stores import episodes, row, run_sql, write_rows

from memlab import KeepRecent
from memlab.compaction import plan_supersession
from memlab.compaction.diff import Difference, difference_of
from memlab.compaction.planner import plan
from memlab.text import Cell


@pytest.fixture
def store(tmp_path: Path) -> Path:
    decisions = [row(f"d{number}", "semantic") for number in range(1, 5)]
    return write_rows(tmp_path / "memory.db", [*decisions, *episodes(3)])


def between(store: Path, before: Mapping[str, str], after: Mapping[str, str]) -> Difference:
    first, second = (plan_supersession(store, links, now=NOON) for links in (before, after))
    return difference_of(first, second)


def shown(difference: Difference) -> dict[str, list[tuple[Cell, ...]]]:
    return {table.heading: list(table.rows) for table in difference.sheet().tables}


def test_what_only_one_of_two_plans_supersedes_is_told(store: Path) -> None:
    same = between(store, {"d1": "d2"}, {"d1": "d2"})
    assert not same.differs
    assert ("superseded", "the same memories, for the same reasons") in same.sheet().facts
    found = between(store, {"d1": "d4", "d2": "d4"}, {"d2": "d4", "d3": "d4"})
    assert found.differs
    assert [each["by_memory_id"] for each in found.to_dict()["supersedes"]["added"]] == ["d4"]
    (first, (added,)), (second, (removed,)) = shown(found).items()
    assert (first, "d3" in added) == ("only the second supersedes: 1", True)
    assert (second, "d1" in removed) == ("only the first supersedes: 1", True)
    deletes = plan(store, KeepRecent(1), now=NOON)
    found = difference_of(deletes, plan_supersession(store, {"d1": "d2"}, now=NOON))
    assert set(shown(found)) == {"only the first deletes: 2", "only the second supersedes: 1"}


def test_another_memory_that_stands_for_one_is_told_beside_the_first(store: Path) -> None:
    first = plan_supersession(store, {"d1": "d2"}, now=NOON)
    found = between(store, {"d1": "d2"}, {"d1": "d3"})
    (told,) = found.to_dict()["supersedes"]["rewritten"]
    assert (told["before"]["by_memory_id"], told["after"]["by_memory_id"]) == ("d2", "d3")
    (((cells,),),) = (shown(found).values(),)
    assert {"d1", "d2 -> d3"} <= set(cells)
    run_sql(store, "UPDATE memory_items SET title = 'another' WHERE memory_id = 'd2'")
    found = difference_of(first, plan_supersession(store, {"d1": "d2"}, now=NOON))
    assert [after.memory_id for _, after in found.changes["supersedes"].rewritten] == ["d1"]
    assert found.differs
