"""``memlab.doctor`` finds faults, gives advice and changes nothing."""

import json
import pickle
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.compaction import apply, drop_archived, finish, restore
from memlab.errors import BadRowError
from memlab.settings import FILE
from memlab.upkeep.health import Status, doctor
from tests.compaction.operations import StoppedError, stop_at
from tests.support.archives import check, compacted, leave_unfinished, planned
from tests.support.invariants import archive_of, rows_of
from tests.support.stores import RawText, episodes, row, run_sql, write_rows


@pytest.fixture
def store(tmp_path: Path) -> Path:
    load_bearing = [
        row("d1", "semantic"),
        row("s1", "procedural"),
        row("r1", "episodic", "rejected-path"),
    ]
    return write_rows(tmp_path / "memory.db", load_bearing + episodes(10))


def test_sound_store_passes_every_check(store: Path) -> None:
    write_rows(store, [row("old", superseded_by="e1")])
    diagnosis = doctor(store)
    names = "memory_integrity sqlite_integrity rows tags supersession insertion_order space archive"
    assert [check.name for check in diagnosis.checks] == names.split()
    assert {check.status for check in diagnosis.checks} == {Status.OK}
    assert diagnosis.checks[0].counts == {
        "decisions": 1,
        "skills": 1,
        "rejected_paths": 1,
        "episodes": 11,
        "prunable": 10,
        "superseded": 1,
    }


@pytest.mark.parametrize("is_saved", [False, True], ids=["given", "saved"])
@pytest.mark.parametrize(("cap", "status"), [(10, Status.OK), (9, Status.WARN)])
def test_backlog_is_a_warning_with_its_command(
    store: Path, cap: int, status: Status, is_saved: bool
) -> None:
    if is_saved:
        (store.parent / FILE).write_text(f'policy = {{ name = "recent", keep = {cap} }}\n')
        integrity = doctor(store).checks[0]
    else:
        integrity = doctor(store, backlog=cap).checks[0]
    assert integrity.status is status
    advises_compacting = f"memlab compact {store} --keep-recent {cap}" in integrity.advice
    assert advises_compacting is (status is Status.WARN)


def test_expired_number_still_defines_the_backlog(store: Path) -> None:
    sized = "{ at = 2026-03-01T12:00:00Z, memories = 5, until = 6 }"
    policy = f'policy = {{ name = "recent", keep = 9, sized = {sized} }}'
    (store.parent / FILE).write_text(policy + "\n")
    assert check(store, "number").status is Status.WARN
    assert check(store, "memory_integrity").status is Status.WARN
    assert "more than 9 prunable memories since" in str(memlab.show(store))


def test_backlog_without_a_cap_names_the_forge_loop_limit(store: Path) -> None:
    write_rows(store, episodes(40, start=100))
    assert check(store, "memory_integrity").advice == ""
    write_rows(store, episodes(1, start=200))
    integrity = check(store, "memory_integrity")
    assert integrity.status is Status.OK
    assert "no cap is set" in integrity.advice
    limit = "--backlog 50 warns above 50, as the doctor of the agent system forge-loop does"
    assert f"memlab doctor {store} {limit}" in integrity.advice
    assert doctor(store, backlog=60).checks[0].advice == ""
    (store.parent / FILE).write_text('policy = { name = "activation", max_tokens = 9000 }\n')
    assert check(store, "memory_integrity").advice == ""


@pytest.mark.parametrize("tag", ["rejected-path ", "rejected\u2011path"])
def test_tag_similar_to_a_protected_tag_is_a_warning(store: Path, tag: str) -> None:
    write_rows(store, [row("a", "episodic", tag), row("b", "episodic", tag, "failed")])
    tags = check(store, "tags")
    assert tags.status == Status.WARN
    assert tags.counts == {"alike": 2}
    assert f"2 tagged {tag!r}, which is not 'rejected-path'" in tags.summary
    (store.parent / FILE).write_text(f"protected_tags = [{json.dumps(tag)}]\n")
    assert check(store, "tags").status is Status.OK
    write_rows(store, [row("c", "episodic", tag.upper())])
    assert f"1 tagged {tag.upper()!r}, which is not " in check(store, "tags").summary


def test_corrupt_sqlite_index_is_a_failure(store: Path) -> None:
    run_sql(
        store,
        "CREATE TABLE twin (memory_id TEXT PRIMARY KEY)",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = "
        "'sqlite_autoindex_twin_1') WHERE name = 'sqlite_autoindex_memory_items_1'",
    )
    integrity = check(store, "sqlite_integrity")
    assert integrity.status is Status.FAIL
    assert "missing from index" in integrity.summary


LISTED_ROWS = 10
"""How many unreadable rows a check lists."""


def test_unreadable_rows_are_named(store: Path) -> None:
    unreadable = [
        row("odd", "dream"),
        row("worse", tags_json="[1]"),
        row("worst", title=RawText(b"\xff")),
        row("late", created_at="yesterday"),
    ]
    write_rows(store, unreadable)
    rows = check(store, "rows")
    assert rows.status == Status.FAIL
    assert rows.counts == {"unreadable": 4}
    assert rows.details[0].startswith("row 14 ('odd'): ")
    for name in ("worse", "worst", "late"):
        assert name in str(rows.details)
    run_sql(store, "UPDATE memory_items SET kind = 'other'")
    assert check(store, "rows").status is Status.FAIL
    unlisted = len(rows_of(store)) - LISTED_ROWS
    assert check(store, "rows").details[-1] == f"and {unlisted} more rows; mend these first"


def test_advised_updates_repair_unreadable_rows(store: Path) -> None:
    write_rows(
        store,
        [
            row("three", "dream", tags_json="x", created_at="soon", confidence="high"),
            row("raw", title=RawText(b"\xff"), body=b"bytes"),
            row("none", supersedes_json="{}", evidence_refs_json="[1]", superseded_by=b"x"),
        ],
    )
    with pytest.raises(BadRowError):
        memlab.load(store)
    rows_check = check(store, "rows")
    assert rows_check.status is Status.FAIL
    for column in ("kind", "tags_json", "created_at", "confidence"):
        assert f"{column} " in rows_check.details[0]
    commands = [shlex.split(line) for line in rows_check.details if line.startswith("sqlite3 ")]
    for _, file, update in commands:
        assert file == str(store)
        run_sql(store, update)
    assert check(store, "rows").status is Status.OK
    frame = memlab.load(store).set_index("memory_id")
    assert not frame.loc[["three"], "prunable"].any()
    assert frame.loc["raw", "title"] == "FF"


def test_successors_are_present_archived_or_dangling(store: Path) -> None:
    write_rows(store, [row("a", superseded_by="e1"), row("b", superseded_by="nobody")])
    assert check(store, "supersession").counts["dangling"] == 1
    compacted(store)
    write_rows(store, [row("c", superseded_by="c")])
    links = check(store, "supersession")
    assert links.counts == {"dangling": 1, "archived": 1, "cyclic": 1}
    assert links.status is Status.WARN
    assert "a memory that is not there (b); 1 supersede each other in a circle (c)" in links.summary


@given(links=st.dictionaries(st.integers(0, 7), st.integers(0, 7)))
def test_supersession_cycles_are_counted(
    tmp_path_factory: pytest.TempPathFactory, links: dict[int, int]
) -> None:
    def leads_back(start: int) -> bool:
        current = start
        for _ in links:
            current = links.get(current, -1)
            if current == start:
                return True
        return False

    rows = [row(f"m{number}") for number in range(8)]
    for older, newer in links.items():
        rows[older]["superseded_by"] = f"m{newer}"
    store = write_rows(tmp_path_factory.mktemp("links") / "m.db", rows)
    counts = check(store, "supersession").counts
    cyclic = [older for older in links if leads_back(older)]
    assert counts["cyclic"] == len(cyclic)
    assert counts["dangling"] == 0


def test_rows_out_of_order_are_counted(store: Path) -> None:
    # The rows of the store are of 2026-03-01: the first and the third row come too late.
    days = ("2026-02-01", "2026-04-01", "2026-03-15")
    write_rows(store, [row(day, created_at=f"{day}T00:00:00Z") for day in days])
    order = check(store, "insertion_order")
    assert order.status == Status.WARN
    assert order.counts == {"out_of_order": 2}
    assert "2 of 16 memories are older than a memory inserted before them" in order.summary


def test_free_space_is_a_warning_with_its_command(store: Path) -> None:
    write_rows(store, [row(f"big{number}", body="x" * 100_000) for number in range(30)])
    assert check(store, "space").status is Status.OK
    run_sql(store, "DELETE FROM memory_items WHERE memory_id LIKE 'big%'")
    space = check(store, "space")
    assert space.status is Status.WARN
    assert f"memlab vacuum {store}" in space.advice
    assert space.counts["free"] > 2_900_000


# The archive


def interrupt_apply(store: Path) -> str:
    plan = planned(store)
    leave_unfinished(store, plan)
    return plan.digest[:12]


def apply_unrecorded(store: Path) -> None:
    plan = planned(store)
    with pytest.raises(StoppedError):
        apply(plan, on_step=stop_at("committed"))


def restore_unrecorded(store: Path) -> None:
    receipt = compacted(store)
    with pytest.raises(StoppedError):
        restore(receipt, on_step=stop_at("committed"))


def apply_and_restore(store: Path) -> None:
    restore(compacted(store))


def write_empty_archive(store: Path) -> None:
    archive_of(store).touch()


def write_text_as_archive(store: Path) -> None:
    archive_of(store).write_bytes(b"somebody's notes, not an archive")


def restore_and_delete_outside(store: Path) -> None:
    restore(compacted(store))
    run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('e2', 'e3')")


def restore_and_apply_again(store: Path) -> None:
    restore(compacted(store))
    compacted(store, 2)


def delete_one_outside_memlab(store: Path) -> None:
    interrupt_apply(store)
    run_sql(store, "DELETE FROM memory_items WHERE memory_id = 'e1'")


def replace_by_older_store(store: Path) -> None:
    older = store.read_bytes()
    compacted(store)
    store.write_bytes(older)


def reuse_an_id(store: Path) -> None:
    compacted(store)
    write_rows(store, [row("e2", rowid=77)])


def reuse_a_position(store: Path) -> None:
    compacted(store)
    write_rows(store, [row("new", rowid=4)])


class ArchiveCase(NamedTuple):
    """A change of a store and its archive, and the status and words of their check."""

    arrange: Callable[[Path], object]
    status: Status
    phrases: tuple[str, ...] = ()
    absent_phrases: tuple[str, ...] = ()
    """Phrases that the check must not contain."""


ARCHIVES = {
    "matching": ArchiveCase(compacted, Status.OK, ("6 memories of 1 plan, matching the store",)),
    "restored": ArchiveCase(apply_and_restore, Status.OK),
    "without a record": ArchiveCase(apply_unrecorded, Status.OK),
    "of rows deleted again by a later plan": ArchiveCase(restore_and_apply_again, Status.OK),
    "empty": ArchiveCase(write_empty_archive, Status.OK),
    "of an interrupted apply": ArchiveCase(
        interrupt_apply,
        Status.WARN,
        ("6 memories archived, 6 of them not deleted", "memlab apply {} ", "{} --drop "),
    ),
    "of rows deleted by others": ArchiveCase(
        delete_one_outside_memlab,
        Status.WARN,
        ("memlab restore {} ",),
        absent_phrases=("memlab apply",),  # the plan no longer fits the store
    ),
    "of an unrecorded restore": ArchiveCase(
        restore_unrecorded, Status.WARN, ("6 memories that plan",)
    ),
    "of rows recorded as restored but missing": ArchiveCase(
        restore_and_delete_outside,
        Status.WARN,
        ("2 memories", "are recorded as restored and are not in the store", "memlab restore {} "),
    ),
    "whose id was reused": ArchiveCase(
        reuse_an_id,
        Status.WARN,
        (
            "other memories took 1 id of the 6 that plan",
            "cannot be restored as a whole",
            "memlab restore {} ",
            "--id ID",
            "--into NEW.db",
        ),
    ),
    "whose position was reused": ArchiveCase(reuse_a_position, Status.OK),
    "beside an older store": ArchiveCase(
        replace_by_older_store, Status.WARN, ("the store is an older copy",)
    ),
    "that is not an archive": ArchiveCase(write_text_as_archive, Status.FAIL),
}


@pytest.mark.parametrize("case", ARCHIVES.values(), ids=ARCHIVES)
def test_archive_is_checked_against_its_store(store: Path, case: ArchiveCase) -> None:
    case.arrange(store)
    archive_check = check(store, "archive")
    assert archive_check.status is case.status
    words = f"{archive_check.summary} {archive_check.advice}"
    for phrase in case.phrases:
        assert phrase.format(store) in words
    for phrase in case.absent_phrases:
        assert phrase not in words


def test_finishing_or_dropping_an_interrupted_apply_ends_warning(store: Path) -> None:
    before = rows_of(store)
    drop_archived(store, digest=interrupt_apply(store))
    assert doctor(store).status is Status.OK
    assert rows_of(store) == before
    finish(store, interrupt_apply(store))
    assert doctor(store).status is Status.OK
    assert len(rows_of(store)) == 7


def test_diagnosis_is_json_and_a_line_per_check(
    store: Path,
) -> None:
    diagnosis = doctor(store, backlog=3)
    read = json.loads(diagnosis.to_json())
    first = read["checks"][0]
    assert read["status"] == "WARN"
    assert first["name"] == "memory_integrity"
    assert first["counts"]["prunable"] == 10
    head, line, advice, *rest = str(diagnosis).splitlines()
    assert head == f"WARN: {store}"
    assert len(rest) == 7
    assert line.startswith("  WARN memory_integrity  1 decision, 1 skill")
    assert advice.strip().startswith("-> more than 3 prunable: memlab compact")
    assert pickle.loads(pickle.dumps(diagnosis)) == diagnosis


@pytest.mark.parametrize(
    "times", [("", "2026-02-01T00:00:00Z"), ("soon", "x", "2026-02-01T00:00:00Z")]
)
def test_advised_time_of_a_first_row_is_that_of_a_later_one(
    tmp_path: Path, times: tuple[str, ...]
) -> None:
    rows = [row(f"m{number}", created_at=time) for number, time in enumerate(times)]
    store = write_rows(tmp_path / "bad.db", rows)
    details = check(store, "rows").details
    for line in details:
        if line.startswith("sqlite3 "):
            _, _, update = shlex.split(line)
            run_sql(store, update)
    assert check(store, "rows").status is Status.OK
    assert memlab.load(store)["created_at"].nunique() == 1


def test_advice_without_any_valid_time_asks_for_a_date(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "bad.db", [row("only", created_at="")])
    (_, advice) = check(store, "rows").details
    assert advice.startswith("-> set created_at of row 1 to when it was written, such as '2026-")


def test_every_fault_of_a_row_is_mended_without_a_valid_time(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "bad.db", [row("only", created_at="", kind="odd", tags_json="x")])
    (_, update, advice) = check(store, "rows").details
    assert advice.startswith("-> set created_at of row 1 to when it was written, such as '2026-")
    run_sql(store, shlex.split(update)[2])
    run_sql(store, "UPDATE memory_items SET created_at = '2026-01-31T12:00:00+00:00'")
    assert check(store, "rows").status is Status.OK


def test_row_dated_in_the_future_is_named(store: Path) -> None:
    write_rows(store, [row("later", created_at="2099-01-01T00:00:00Z"), *episodes(9, start=50)])
    future = check(store, "future")
    assert future.status is Status.WARN
    assert future.summary == "1 row is dated in the future: later"
    assert "set created_at" in future.advice
    order = check(store, "insertion_order")
    assert order.status is Status.OK
    assert order.summary == "the memories are in the order in which they were written"
    overview = memlab.show(store)
    assert "1 row is dated in the future: later; memlab doctor" in str(overview)
    assert "future" in overview.to_dict()


def test_the_command_for_a_row_in_the_future_mends_it(store: Path) -> None:
    write_rows(store, [row("later", created_at="2099-01-01T00:00:00Z"), *episodes(9, start=50)])
    (update,) = check(store, "future").details
    run_sql(store, shlex.split(update)[2])
    assert "future" not in {check.name for check in doctor(store).checks}


def test_size_leaves_a_row_in_the_future_out_of_the_days_kept(store: Path) -> None:
    write_rows(store, episodes(30, start=50))
    days_before = memlab.size(store).curve["days"].max()
    write_rows(store, [row("later", created_at="2099-01-01T00:00:00Z")])
    size = memlab.size(store)
    assert size.curve["days"].max() == days_before
    note = "1 row is dated in the future: later; the days kept do not count them; memlab doctor"
    assert note in " ".join(str(size).split())


def test_many_future_rows_are_not_reported_as_future(store: Path) -> None:
    future_rows = [row(f"f{number}", created_at="2099-01-01T00:00:00Z") for number in range(9)]
    write_rows(store, future_rows)
    future = check(store, "future")
    assert "9 of 22 rows are dated in the future, up to 2099-01-01" in future.summary
    assert "a clock may be wrong" in future.summary
    assert not future.details
    for page in (memlab.show(store), memlab.size(store)):
        assert "9 of 22 rows are dated in the future" in " ".join(str(page).split())


def test_a_date_in_the_future_is_not_offered_for_another_row(store: Path) -> None:
    ahead = row("ahead", created_at="2099-01-01T00:00:00Z", rowid=50)
    write_rows(store, [ahead, row("faulty", created_at="soon", rowid=51), *episodes(9, start=60)])
    details = check(store, "rows").details
    (update,) = [line for line in details if line.startswith("sqlite3")]
    assert "rowid = 50)" not in update
    run_sql(store, shlex.split(update)[2])
    assert check(store, "rows").status is Status.OK
