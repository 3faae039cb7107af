"""A plan that supersedes: nothing is deleted, both ends are checked, every byte comes back."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from archives import archive_check
from compaction.operations import StoppedError, stop_at
from hypothesis import given
from hypothesis import strategies as st
from invariants import rows_of
from stores import Row, episodes, row, row_lists, run_sql, write_rows

import memlab
from memlab.compaction import drop_archived, finish, plan_supersession
from memlab.errors import ArchiveError, PlanError
from memlab.evidence.past import load_past


def superseded(path: Path) -> dict[str, str]:
    frame = memlab.load(path)
    away = frame[frame.superseded_by.notna()]
    return dict(zip(away.memory_id, away.superseded_by, strict=True))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rows = [row("d1", "semantic"), row("d2", "semantic"), row("s1", "procedural"), *episodes(3)]
    return write_rows(tmp_path / "memory.db", rows)


@given(rows=row_lists(max_size=8), data=st.data())
def test_any_store_comes_back_byte_for_byte(rows: list[Row], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = write_rows(Path(folder) / "memory.db", rows)
        frame = memlab.load(path)
        floor = frame.memory_id[frame.active & frame.load_bearing].tolist()
        older = data.draw(st.sets(st.sampled_from(floor))) if floor else set()
        ends = sorted(set(frame.memory_id[frame.active]) - older)
        if not older or not ends:
            return
        links = {each: data.draw(st.sampled_from(ends)) for each in sorted(older)}
        before = rows_of(path)
        plan = plan_supersession(path, links)
        assert rows_of(path) == before
        receipt = memlab.apply(memlab.Plan.from_json(plan.to_json()))
        assert superseded(path).items() >= links.items()
        frame = memlab.load(path)
        assert int(frame.tokens[frame.active].sum()) == plan.boot_after.tokens
        assert (memlab.restore(receipt), memlab.restore(receipt)) == (len(links), 0)
        assert rows_of(path) == before


@pytest.mark.parametrize(
    ("links", "fault"),
    [
        ({"e1": "d2"}, "'e1' is no active load-bearing memory"),
        ({"zz": "d2"}, "'zz' is no active load-bearing memory"),
        ({"d1": "d1"}, "'d1' cannot stand for 'd1'"),
        ({"d1": "zz"}, "'zz' cannot stand for 'd1'"),
        ({"d1": "d2", "d2": "d1"}, "cannot stand for"),
    ],
)
def test_a_pair_that_cannot_be_is_refused(store: Path, links: dict[str, str], fault: str) -> None:
    with pytest.raises(PlanError, match=fault):
        plan_supersession(store, links)


def test_what_was_superseded_otherwise_since_is_not_taken_back(store: Path) -> None:
    receipt = memlab.apply(plan_supersession(store, {"d1": "d2", "s1": "d2"}))
    run_sql(store, "UPDATE memory_items SET superseded_by = 'e1' WHERE memory_id = 'd1'")
    before = rows_of(store)
    with pytest.raises(ArchiveError, match=r"by others since \(d1\)"):
        memlab.restore(receipt)
    with pytest.raises(ArchiveError, match="superseded no memory zz"):
        memlab.restore(receipt, ids=["zz"])
    with pytest.raises(ArchiveError, match="deleted nothing"):
        memlab.restore(receipt, into=store.with_name("new.db"))
    assert rows_of(store) == before
    assert memlab.restore(receipt, ids=["s1"]) == 1
    assert superseded(store) == {"d1": "e1"}


def unfinished(store: Path) -> memlab.Plan:
    plan = plan_supersession(store, {"d1": "d2"})
    with pytest.raises(StoppedError):
        memlab.apply(plan, watch=stop_at("archived"))
    return plan


def test_a_compaction_after_one_that_was_cut_short_leaves_it_to_be_done(store: Path) -> None:
    plan = unfinished(store)
    memlab.apply(memlab.plan(store, memlab.KeepRecent(1)))
    assert superseded(store) == {}
    assert memlab.apply(plan).superseded == 1


@pytest.mark.parametrize("end", [finish, lambda store, name: drop_archived(store, digest=name)])
def test_one_that_was_cut_short_can_be_finished_or_forgotten(
    store: Path, end: Callable[[Path, str], object]
) -> None:
    plan = unfinished(store)
    found = archive_check(store)
    assert found.status == "WARN"
    assert "was cut short before it changed anything" in found.summary
    assert f"memlab apply {store} {plan.digest[:12]}" in found.advice
    end(store, plan.digest)
    assert memlab.doctor(store).status == "OK"


def test_superseding_is_no_deletion_to_the_past(store: Path) -> None:
    memlab.apply(plan_supersession(store, {"d1": "d2"}))
    past = load_past(store)
    assert past.deleted_at.isna().all()
    assert len(past) == 6
    memlab.apply(memlab.plan(store, memlab.KeepRecent(1)))
    assert load_past(store).deleted_at.notna().sum() == 2
    assert memlab.doctor(store).status == "OK"
