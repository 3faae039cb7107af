"""Plans that retire or supersede: nothing deleted, exact undo."""

import json
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import KeepRecent, Plan
from memlab.compaction import archived_plans, cost_of, drop_archived, finish, plan_supersession
from memlab.compaction.archive_views import archive_listing
from memlab.compaction.diff import difference_of
from memlab.compaction.plans import NEEDED
from memlab.errors import AlreadyAppliedError, ArchiveError, DamagedArchiveWarning, PlanError
from memlab.policies import Activation, Policy, PurgeSuperseded, TokenBudget
from memlab.store import SqliteMemoryStore
from tests.compaction.operations import StoppedError, stop_at
from tests.support.archives import check
from tests.support.invariants import archive_of, rows_of
from tests.support.stores import Row, item, row, row_lists, run_sql, write_rows

DAY = timedelta(days=1)
START = datetime(2026, 4, 1, tzinfo=UTC)


def note_reads(store: Path, reads: Iterable[tuple[str, datetime]]) -> None:
    store.with_name("memlab.toml").write_text('log = "reads.jsonl"\n')
    with store.with_name("reads.jsonl").open("a") as log:
        for name, at in reads:
            log.write(json.dumps({"memory_id": name, "at": at.isoformat()}) + "\n")


def retiring(store: Path, keep: int = 4, *, at: datetime = START) -> Plan:
    return memlab.plan(store, KeepRecent(keep), retire=True, now=at)


def night(store: Path, keep: int = 4, *, at: datetime) -> Plan:
    new_plan = retiring(store, keep, at=at)
    memlab.apply(new_plan, now=at)
    return new_plan


def ids(memories: Iterable[object]) -> list[str]:
    return [memory.memory_id for memory in memories]  # type: ignore[attr-defined]


def retired(store: Path) -> list[str]:
    frame = memlab.load(store)
    return list(frame.memory_id[frame.retired_at.notna()]) if "retired_at" in frame else []


def superseded(store: Path) -> dict[str, str]:
    away = memlab.load(store)[lambda frame: frame.superseded_by.notna()]
    return dict(zip(away.memory_id, away.superseded_by, strict=True))


def test_retired_memories_stay_stored_and_are_not_loaded(store: Path) -> None:
    plan = retiring(store)
    assert ids(plan.retires) == [f"e{n}" for n in range(1, 7)]
    assert plan.returns == ()
    assert plan.memories == ()
    assert plan.deletes.memories == 0
    assert "retires  6 of 12 memories" in str(plan)
    receipt = memlab.apply(plan)
    assert memlab.Receipt.from_json(receipt.to_json()) == receipt
    assert receipt.retired == 6
    assert receipt.returned == 0
    assert receipt.deleted == 0
    assert retired(store) == ids(plan.retires)
    with SqliteMemoryStore(store) as agent:
        active = [item.memory_id for item in agent.list_active()]
        assert active == ["d1", "s1", "e7", "e8", "e9", "e10"]
        assert agent.get("e1") is not None
        assert agent.compact_episodic(4) == 0
    assert plan.boot_after.memories == len(active)
    assert memlab.load(store).superseded_by.dropna().tolist() == ["e1"]  # of the memory "old"
    with pytest.raises(AlreadyAppliedError, match="6 memories are retired in"):
        memlab.apply(plan)


def test_memories_needed_since_retirement_return(store: Path) -> None:
    night(store, at=START)
    after_first = rows_of(store)
    assert retiring(store, at=START + DAY).is_empty
    note_reads(store, [("e2", START + DAY), ("e3", START - DAY)])
    write_rows(
        store, [row("e11", created_at=f"{START + DAY:%Y-%m-%d}", evidence_refs_json='["e4"]')]
    )
    plan = retiring(store, 8, at=START + 2 * DAY)
    reasons = {memory.memory_id: memory.reason for memory in plan.returns}
    assert reasons == {"e2": NEEDED, "e4": NEEDED, "e6": "kept"}
    assert plan.retires == ()
    store.with_name("memlab.toml").unlink()
    log = memlab.read_access_log(store.with_name("reads.jsonl"))
    by_log = memlab.plan(store, KeepRecent(8), retire=True, log=log, now=START + 2 * DAY)
    assert by_log.returns == plan.returns
    assert cost_of(by_log, log=log).references == 2 + cost_of(by_log).references
    receipt = memlab.apply(plan)
    assert receipt.retired == 0
    assert receipt.returned == 3
    assert retired(store) == ["e1", "e3", "e5"]
    assert memlab.restore(receipt, ids=["e4"]).memories == 1
    assert memlab.restore(receipt).memories == 2
    now = rows_of(store)
    now.popitem()
    assert now == after_first
    assert len(retired(store)) == 6


def test_plan_can_retire_and_return_and_be_compared(store: Path) -> None:
    night(store, at=START)
    note_reads(store, [("e2", START + DAY)])
    plan = retiring(store, 3, at=START + 2 * DAY)
    assert ids(plan.retires) == ["e7", "e8"]
    assert ids(plan.returns) == ["e2"]
    other = retiring(store, 4, at=START + 2 * DAY)
    difference = difference_of(other, plan).to_dict()
    assert [memory["memory_id"] for memory in difference["retires"]["added"]] == ["e8"]
    assert difference["returns"] == {"added": [], "removed": [], "rewritten": []}
    assert "only the second retires: 1" in str(difference_of(other, plan))


@pytest.mark.parametrize("policy", [KeepRecent(4), TokenBudget(60), Activation(max_tokens=60)])
def test_needed_memories_return_latest_first_within_the_cap(store: Path, policy: Policy) -> None:
    memlab.apply(memlab.plan(store, policy, retire=True, now=START), now=START)
    was_retired = retired(store)
    note_reads(store, [(name, START + n * DAY) for n, name in enumerate(was_retired, start=1)])
    plan = memlab.plan(store, policy, retire=True, now=START + 20 * DAY)
    returned = [memory.memory_id for memory in plan.returns if memory.reason == NEEDED]
    assert returned
    assert returned == was_retired[-len(returned) :]
    memlab.apply(plan, now=START + 20 * DAY)
    frame = memlab.load(store)
    loaded = frame[frame.active & ~frame.load_bearing]
    assert len(loaded) <= 4 if isinstance(policy, KeepRecent) else plan.boot_after.tokens <= 60


def test_returned_memories_stay_under_a_policy_by_use(store: Path) -> None:
    note_reads(store, [("e2", START + DAY)])
    for policy, stays in ((memlab.Activation(4), True), (KeepRecent(4), False)):
        memlab.apply(memlab.plan(store, policy, retire=True, now=START), now=START)
        plan = memlab.plan(store, policy, retire=True, now=START + 2 * DAY)
        assert [(memory.memory_id, memory.reason) for memory in plan.returns] == [("e2", NEEDED)]
        memlab.apply(plan, now=START + 2 * DAY)
        later = memlab.plan(store, policy, retire=True, now=START + 3 * DAY)
        assert ("e2" in ids(later.retires)) != stays
        memlab.restore(plan.digest, store=store)


def test_retired_memories_are_counted_separately_everywhere(store: Path) -> None:
    with pytest.raises(StoppedError):  # an interrupted plan, which the next one discards
        memlab.apply(retiring(store), now=START - DAY, on_step=stop_at("archived"))
    assert retired(store) == []
    result = night(store, at=START)
    assert [entry.digest for entry in archived_plans(store)] == [result.digest]
    long_after = START + 1000 * DAY
    assert ids(memlab.plan(store, PurgeSuperseded(DAY), now=long_after).memories) == ["old"]
    assert memlab.plan(store, KeepRecent(4), now=long_after).is_empty
    checks = {check.name: check for check in memlab.doctor(store).checks}
    assert checks["supersession"].status == checks["archive"].status == "OK"
    assert checks["memory_integrity"].counts["retired"] == 6
    summary = memlab.growth.summarize(store, now=START)
    frame = memlab.load(store)
    assert summary.retired.memories == 6
    assert summary.superseded.memories == 1
    assert summary.boot.tokens == frame.tokens[frame.active].sum()
    assert ids(memlab.rows(store, where="retired").itertuples()) == retired(store)
    counts = memlab.growth_curve(store)[["prunable", "retired", "superseded"]]
    assert counts.iloc[[-3, -1]].to_numpy().tolist() == [[10, 0, 1], [4, 6, 1]]


def test_retiring_does_not_change_the_recommendation(tmp_path: Path) -> None:
    rows = [row(f"e{n}", evidence_refs_json=json.dumps([f"e{n - n % 7}"])) for n in range(120)]
    store = write_rows(tmp_path / "memory.db", rows)
    before = memlab.recommend_cap(store)
    night(store, 10, at=START)
    after = memlab.recommend_cap(store)
    assert after.keep_recent == before.keep_recent
    assert after.likely == before.likely


def test_load_bearing_memories_are_not_retired(store: Path) -> None:
    night(store, 0, at=START)
    run_sql(store, """UPDATE memory_items SET tags_json = '["rejected-path"]' WHERE rowid = 4""")
    plan = night(store, 0, at=START + DAY)
    assert [(memory.memory_id, memory.reason) for memory in plan.returns] == [
        ("e1", "load-bearing")
    ]
    assert (
        memlab.restore(plan.digest, store=store).memories == 0
    )  # it is load-bearing now and stays
    assert "e1" not in retired(store)


def test_changes_by_the_agent_to_retired_memories_are_kept(store: Path) -> None:
    plan = night(store, at=START)
    with SqliteMemoryStore(store) as agent:
        agent.supersede("e1", by_memory_id="e9")
        agent.put(item("e2", title="new"))
        agent.supersede("e10", by_memory_id="e10")  # withdrawn by the agent itself
    run_sql(store, "DELETE FROM memory_items WHERE memory_id = 'e3'")
    before = rows_of(store)
    assert retired(store) == ["e4", "e5", "e6"]
    circle = next(check for check in memlab.doctor(store).checks if check.name == "supersession")
    assert circle.counts["cyclic"] == 1
    at = START + DAY
    note_reads(store, [(f"e{n}", at) for n in (1, 2, 3, 10)])
    second_plan = retiring(store, 10, at=at + DAY)
    assert ids(second_plan.retires) == []
    assert ids(second_plan.returns) == ["e4", "e5", "e6"]
    with pytest.raises(ArchiveError, match=r"gone or superseded by others since \(e1, e3\)"):
        memlab.restore(plan.digest, store=store)
    with pytest.raises(ArchiveError, match="retired or returned no memory zz"):
        memlab.restore(plan.digest, store=store, ids=["zz"])
    with pytest.raises(ArchiveError, match="deleted no memory that a new file could hold"):
        memlab.restore(plan.digest, store=store, into=store.with_name("new.db"))
    assert rows_of(store) == before
    assert memlab.restore(plan.digest, store=store, ids=["e2", "e4"]).memories == 1


@pytest.mark.parametrize(
    "fault",
    ["retired_at = 'soon'", "retired_at = x'00'", "times_needed = 'x'", "key = x'00'", "name = 7"],
)
def test_invalid_retirement_note_is_left_out(store: Path, fault: str) -> None:
    night(store, at=START)
    with closing(sqlite3.connect(archive_of(store))) as archive, archive:
        archive.execute(f"UPDATE retired SET {fault} WHERE key = 4")
    with pytest.warns(DamagedArchiveWarning) if fault != "name = 7" else nullcontext():
        assert retired(store) == ["e2", "e3", "e4", "e5", "e6"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedArchiveWarning)
        plan = retiring(store, 10, at=START + DAY)
        assert ids(plan.returns) == ["e2", "e3", "e4", "e5", "e6"]
        assert memlab.apply(plan).returned == 5


def test_dropping_a_plan_leaves_its_memories_retired(store: Path) -> None:
    plan = night(store, at=START)
    drop_archived(store, digest=plan.digest)
    assert retired(store) == ids(plan.retires)
    note_reads(store, [("e1", START + DAY)])
    assert ids(night(store, at=START + 2 * DAY).returns) == ["e1"]


@pytest.mark.long
@given(rows=row_lists(max_size=8), data=st.data())
def test_random_retirements_are_undone_byte_for_byte(rows: list[Row], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        store = write_rows(Path(folder) / "memory.db", rows)
        retirements = []
        for moment in range(3):
            before = rows_of(store)
            at = START + moment * DAY
            frame = memlab.load(store)
            active = frame[frame.active]
            was_retired = retired(store)
            floor = active.memory_id[active.load_bearing].tolist()
            older = data.draw(st.sets(st.sampled_from(floor))) if floor else set()
            if ends := older and sorted({*active.memory_id} - older):
                links = {memory_id: data.draw(st.sampled_from(ends)) for memory_id in sorted(older)}
                plan = plan_supersession(store, links, now=at)
            else:
                links = {}
                plan = retiring(store, data.draw(st.integers(0, 4)), at=at)
            assert rows_of(store) == before
            receipt = memlab.apply(Plan.from_json(plan.to_json()), now=at)
            frame = memlab.load(store)
            assert superseded(store).items() >= links.items()
            assert not set(retired(store)) & set(floor)
            assert int(frame.tokens[frame.active].sum()) == plan.boot_after.tokens
            assert len(frame) == len(rows)
            retirements.append((before, was_retired, receipt))
            read = data.draw(st.sets(st.sampled_from(frame.memory_id.tolist()))) if rows else ()
            note_reads(store, [(memory_id, at + DAY / 2) for memory_id in sorted(read)])
        for before, was_retired, receipt in reversed(retirements):
            if receipt.archive:
                count = receipt.superseded + receipt.retired + receipt.returned
                assert memlab.restore(receipt).memories == count
                assert memlab.restore(receipt).memories == 0
            assert rows_of(store) == before
            assert retired(store) == was_retired


@pytest.mark.long
def test_year_of_activation_returns_needed_memories(tmp_path: Path) -> None:
    """Two memories are needed weekly and one once; loaded memories leave no reads."""
    policy = memlab.Activation(20)
    old = [row(f"e{n}", created_at="2025-01-01") for n in range(30)]
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *old])
    missed = Counter[str]()
    moves = Counter[str]()
    for week in range(52):
        at = START + 7 * week * DAY
        write_rows(store, [row(f"new{week}", created_at=at.isoformat())])
        wanted = {"e3", "e7", *(["e9"] if week == 5 else [])} & set(retired(store))
        note_reads(store, [(name, at - DAY / 2) for name in wanted])
        plan = memlab.plan(store, policy, retire=True, now=at)
        memlab.apply(plan, now=at)
        assert memlab.load(store).active.sum() <= 1 + 20
        missed.update(wanted)
        moves.update([*ids(plan.retires), *ids(plan.returns)])
    assert missed == {"e3": 2, "e7": 2, "e9": 1}
    assert max(moves.values()) == moves["e3"] == 4
    assert moves["e9"] == 3  # retired, returned, and retired again
    assert moves["new0"] == moves["new10"] == 1


# Plans that supersede


@pytest.mark.parametrize(
    ("links", "fault"),
    [
        ({"e1": "s1"}, "'e1' is not an active load-bearing memory"),
        ({"zz": "s1"}, "'zz' is not an active load-bearing memory"),
        ({"d1": "d1"}, "'d1' cannot stand for 'd1'"),
        ({"d1": "zz"}, "'zz' cannot stand for 'd1'"),
        ({"d1": "s1", "s1": "d1"}, "cannot stand for"),
    ],
)
def test_invalid_supersession_pair_is_rejected(
    store: Path, links: dict[str, str], fault: str
) -> None:
    with pytest.raises(PlanError, match=fault):
        plan_supersession(store, links)


@pytest.mark.parametrize("end", [finish, lambda store, name: drop_archived(store, digest=name)])
def test_interrupted_supersession_is_finished_or_dropped(
    store: Path, end: Callable[[Path, str], object]
) -> None:
    plan = plan_supersession(store, {"d1": "s1"})
    with pytest.raises(StoppedError):
        memlab.apply(plan, on_step=stop_at("archived"))
    assert f"apply {store} {plan.digest[:12]}    fini" in archive_listing(store).next_steps()[0]
    memlab.apply(memlab.plan(store, KeepRecent(1)))
    assert superseded(store) == {"old": "e1"}
    archive_check = check(store)
    assert archive_check.status == "WARN"
    assert "was cut short before it changed anything" in archive_check.summary
    assert f"memlab apply {store} {plan.digest[:12]}" in archive_check.advice
    end(store, plan.digest)
    assert superseded(store) == {"old": "e1"} | ({"d1": "s1"} if end is finish else {})
    assert memlab.doctor(store).status == "OK"


def test_supersession_is_not_a_deletion_in_the_past(store: Path) -> None:
    memlab.apply(plan_supersession(store, {"d1": "s1"}))
    past = memlab.load_past(store)
    assert past.deleted_at.isna().all()
    assert len(past) == 13
    memlab.apply(memlab.plan(store, KeepRecent(1)))
    assert memlab.load_past(store).deleted_at.notna().sum() == 9
    assert memlab.doctor(store).status == "OK"
