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


@pytest.fixture
def store(tmp_path: Path) -> Path:
    decisions = [row(f"d{number}", "semantic") for number in range(1, 5)]
    return write_rows(tmp_path / "memory.db", [*decisions, *episodes(3)])


def between(store: Path, before: Mapping[str, str], after: Mapping[str, str]) -> Difference:
    first, second = (plan_supersession(store, links, now=NOON) for links in (before, after))
    return difference_of(first, second)


def tables_of(difference: Difference) -> dict[str, list[dict[str, object]]]:
    return {
        table.heading: [dict(zip(table.header, cells, strict=True)) for cells in table.rows]
        for table in difference.sheet().tables
    }


def test_what_only_one_of_two_plans_supersedes_is_told(store: Path) -> None:
    same = between(store, {"d1": "d2"}, {"d1": "d2"})
    assert not same.differs
    assert ("superseded", "the same memories, for the same reasons") in same.sheet().facts
    found = between(store, {"d1": "d4", "d2": "d4"}, {"d2": "d4", "d3": "d4"})
    assert found.differs
    told = found.to_dict()["supersedes"]
    assert [each["by_memory_id"] for each in told["added"]] == ["d4"]
    shown = {heading: [row["id"] for row in rows] for heading, rows in tables_of(found).items()}
    assert shown == {
        "only the second supersedes: 1": ["d3"],
        "only the first supersedes: 1": ["d1"],
    }


def test_another_memory_that_stands_for_one_is_told_beside_the_first(store: Path) -> None:
    first = plan_supersession(store, {"d1": "d2"}, now=NOON)
    found = between(store, {"d1": "d2"}, {"d1": "d3"})
    assert found.differs
    (told,) = found.to_dict()["supersedes"]["rewritten"]
    assert (told["before"]["by_memory_id"], told["after"]["by_memory_id"]) == ("d2", "d3")
    ((shown,),) = tables_of(found).values()
    assert (shown["id"], shown["superseded by"]) == ("d1", "d2 -> d3")
    run_sql(store, "UPDATE memory_items SET title = 'another' WHERE memory_id = 'd2'")
    found = difference_of(first, plan_supersession(store, {"d1": "d2"}, now=NOON))
    assert [after.memory_id for _, after in found.changes["supersedes"].rewritten] == ["d1"]
    assert found.differs


def test_more_links_than_are_listed_are_counted(tmp_path: Path) -> None:
    names = [f"d{number:02}" for number in range(15)]
    store = write_rows(tmp_path / "memory.db", [row(name, "semantic") for name in names])
    (table,) = between(store, {}, dict.fromkeys(names[:-1], "d14")).sheet().tables
    assert (table.heading, table.remark) == ("only the second supersedes: 14", "and 4 more")
    assert len(table.rows) == 10


def test_a_plan_that_deletes_and_one_that_supersedes_differ_in_both(store: Path) -> None:
    deletes = plan(store, KeepRecent(1), now=NOON)
    found = difference_of(deletes, plan_supersession(store, {"d1": "d2"}, now=NOON))
    assert found.differs
    assert [each.memory_id for each in found.changes["deletes"].removed] == ["e1", "e2"]
    assert [each.memory_id for each in found.changes["supersedes"].added] == ["d1"]
    assert set(tables_of(found)) == {"only the first deletes: 2", "only the second supersedes: 1"}
