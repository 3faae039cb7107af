"""Index plans: shown, saved, applied and undone."""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings

import memlab
from memlab.compaction import archived_plans, drop_archived, finish
from memlab.compaction.archive_views import archive_listing
from memlab.errors import AlreadyAppliedError, ArchiveError, MemlabError, PlanError, StalePlanError
from memlab.sources.folder.files import Folder
from tests.support.claude_store import (
    at,
    memory,
    project_folder,
    realistic_folder,
    write_index,
    write_memory,
)
from tests.support.crashing import crash_everywhere
from tests.support.index_edits import EDITS, Edit, by_hand, edited
from tests.support.properties import examples, one_in
from tests.support.shell import output_of, run
from tests.support.stores import FileState

NOW = datetime(2026, 4, 1, tzinfo=UTC)
WRITTEN = 1_700_000_000_123_456_789


@pytest.fixture(autouse=True)
def _no_clock_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for the file clock; these tests write no file twice within a tick."""
    monkeypatch.setattr("memlab.clock._STEP", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return neglected_folder(tmp_path)


def neglected_folder(home: Path) -> Path:
    """Make a folder whose index lacks two files and has one dead line."""
    folder = realistic_folder(project_folder(home))
    write_memory(folder, "new.md", memory("new"), at(50))
    index = folder / "MEMORY.md"
    index.chmod(0o640)
    os.utime(index, ns=(WRITTEN, WRITTEN))
    return folder


def state_of(folder: Path) -> dict[str, FileState]:
    """Return the state of each file."""
    return {path.name: FileState.of(path) for path in folder.iterdir()}


def index_of(folder: Path) -> bytes:
    return (folder / "MEMORY.md").read_bytes()


def test_index_plan_is_undone_byte_for_byte(folder: Path) -> None:
    before = state_of(folder)
    plan = memlab.plan_index(folder, now=NOW)
    assert state_of(folder) == before
    receipt = memlab.apply(plan, now=NOW)
    after = state_of(folder)
    assert after["MEMORY.md"].content.decode() == plan.text
    assert after["MEMORY.md"].mode == before["MEMORY.md"].mode
    changed = {name for name, file in after.items() if file != before[name]}
    assert changed == {"MEMORY.md"}
    restored = memlab.restore(receipt)
    assert restored.index is not None
    assert restored.index.is_exact
    assert state_of(folder) == before
    second_receipt = memlab.restore(receipt)
    assert second_receipt.index == restored.index
    assert state_of(folder) == before


def test_index_receipt_counts_lines_and_names_the_undo(folder: Path) -> None:
    receipt = memlab.apply(memlab.plan_index(folder))
    assert receipt.counts == {"restores": 0, "removes": 1, "adds": 2, "clears": 0, "moves": 0}
    assert receipt.undo == f"memlab restore {folder} {receipt.digest[:12]}"
    before, after = receipt.loads
    assert before.named == 7
    assert after.named == 9
    loaded = memlab.IndexReceipt.from_json(receipt.to_json())
    assert loaded == receipt


def test_index_plan_round_trips_through_json(folder: Path) -> None:
    plan = memlab.plan_index(folder, now=NOW)
    loaded = memlab.IndexPlan.from_json(plan.to_json())
    assert loaded == plan
    assert loaded.digest == plan.digest
    content = json.loads(plan.to_json())
    assert content["lines"][0] == {
        "action": "removes",
        "number": 21,
        "text": "- [Gone](gone_7.md) — removed",
        "file": "gone_7.md",
        "reason": "its file is gone",
    }


def test_edited_index_plan_is_rejected(folder: Path) -> None:
    text = memlab.plan_index(folder).to_json()
    with pytest.raises(PlanError, match="was edited after it was made"):
        memlab.IndexPlan.from_json(text.replace("Gone", "Gine"))
    with pytest.raises(PlanError, match="not a whole index plan"):
        memlab.IndexPlan.from_json(text.replace('"loads"', '"leads"'))
    with pytest.raises(PlanError, match="memlab apply carries it out"):
        memlab.Plan.from_json(text)


def test_plan_of_a_changed_index_is_rejected(folder: Path) -> None:
    plan = memlab.plan_index(folder)
    write_index(folder, ["- [New](new.md)"])
    before = state_of(folder)
    with pytest.raises(StalePlanError, match="was changed since"):
        memlab.apply(plan)
    assert state_of(folder) == before
    assert not Path(f"{folder}.archive.db").exists()


def test_index_plan_is_applied_once(folder: Path) -> None:
    plan = memlab.plan_index(folder)
    receipt = memlab.apply(plan)
    with pytest.raises(AlreadyAppliedError):
        memlab.apply(plan)
    memlab.restore(receipt)
    with pytest.raises(AlreadyAppliedError):
        memlab.apply(plan)


def test_empty_index_plan_changes_nothing(folder: Path) -> None:
    memlab.apply(memlab.plan_index(folder))
    before = state_of(folder)
    plan = memlab.plan_index(folder)
    assert plan.is_empty
    receipt = memlab.apply(plan)
    assert receipt.archive is None
    assert memlab.restore(receipt).index is None
    assert state_of(folder) == before


def test_edit_during_the_exchange_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = memlab.plan_index(folder)
    exchange = Folder.exchange

    def edit_first(self: Folder, first: str, second: str) -> None:
        if "by hand" not in (folder / "MEMORY.md").read_text():
            with (folder / "MEMORY.md").open("a") as file:
                file.write("\n- by hand\n")
        exchange(self, first, second)

    monkeypatch.setattr(Folder, "exchange", edit_first)
    with pytest.raises(StalePlanError):
        memlab.apply(plan)
    assert index_of(folder).endswith(b"\n- by hand\n")
    assert b"gone_7" in index_of(folder)
    assert archived_plans_of(folder) == []


def archived_plans_of(folder: Path) -> list[str]:
    if not Path(f"{folder}.archive.db").exists():
        return []
    return [entry.digest for entry in archived_plans(folder)]


# Edits by hand after the plan was applied


def test_undo_keeps_an_edited_line(folder: Path) -> None:
    before = index_of(folder)
    receipt = memlab.apply(memlab.plan_index(folder))
    text = index_of(folder).decode().replace("about new", "about new, by hand")
    (folder / "MEMORY.md").write_text(text + "\n- added by hand")
    restored = memlab.restore(receipt).index
    assert restored is not None
    assert not restored.is_exact
    lines = index_of(folder).decode().splitlines()
    handwritten = [line for line in lines if "by hand" in line]
    other_lines = [line for line in lines if "by hand" not in line]
    assert handwritten == ["- [new](new.md) — about new, by hand", "- added by hand"]
    assert other_lines == before.decode().splitlines()
    assert restored.stays == ("- [new](new.md) — about new, by hand",)


def test_undo_restores_a_deleted_index(folder: Path) -> None:
    before = state_of(folder)
    receipt = memlab.apply(memlab.plan_index(folder))
    (folder / "MEMORY.md").unlink()
    memlab.restore(receipt)
    assert index_of(folder) == before["MEMORY.md"].content


def test_undo_adds_no_second_line_for_a_file(folder: Path) -> None:
    receipt = memlab.apply(memlab.plan_index(folder))
    write_memory(folder, "gone_7.md", memory("gone 7"))
    with (folder / "MEMORY.md").open("a") as file:
        file.write("\n- [There again](gone_7.md)\n")
    memlab.restore(receipt)
    assert index_of(folder).count(b"gone_7.md") == 1


def test_undo_does_not_restore_a_line_removed_by_hand(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    for number in range(210):
        write_memory(folder, f"m{number}.md", memory(f"m {number}"), at(number))
    write_index(folder, [f"- [M {number}](m{number}.md)" for number in range(210)])
    log = tmp_path / "reads.csv"
    log.write_text("memory_id,at\n" + "m205.md,2026-03-20T10:00:00Z\n" * 3)
    receipt = memlab.apply(memlab.plan_index(folder, log=log))
    assert receipt.moves == 2
    text = index_of(folder).decode().replace("- [M 205](m205.md)\n", "")
    (folder / "MEMORY.md").write_text(text)
    memlab.restore(receipt)
    lines = index_of(folder).decode().splitlines()
    assert lines == [f"- [M {number}](m{number}.md)" for number in range(210) if number != 205]


@settings(max_examples=examples(60), deadline=None)
@given(EDITS)
def test_undo_keeps_every_handwritten_line(
    tmp_path_factory: pytest.TempPathFactory, edits: list[Edit]
) -> None:
    folder = neglected_folder(tmp_path_factory.mktemp("home"))
    before = state_of(folder)
    receipt = memlab.apply(memlab.plan_index(folder))
    index = index_of(folder)
    edited_index = edited(index, edits)
    if edited_index != index:
        (folder / "MEMORY.md").write_bytes(edited_index)
    memlab.restore(receipt)
    if edited_index == index:
        assert state_of(folder) == before
    else:
        assert set(by_hand(edited_index)) <= set(by_hand(index_of(folder)))


# Together with other plans


@pytest.mark.parametrize("undone_first", ["deletion", "index plan"])
def test_deletion_and_index_plan_are_undone_in_either_order(
    folder: Path, undone_first: str
) -> None:
    before = index_of(folder)
    deletion = memlab.apply(memlab.plan(folder, memlab.KeepRecent(1)))
    assert deletion.deleted > 0
    mend = memlab.apply(memlab.plan_index(folder))
    if undone_first == "deletion":
        memlab.restore(deletion)
        memlab.restore(mend)
    else:
        memlab.restore(mend)
        memlab.restore(deletion)
    names = {path.name for path in folder.iterdir()}
    assert {"topic_0.md", "new.md", "MEMORY.md"} <= names
    assert sorted(index_of(folder).splitlines()) == sorted(before.splitlines())


def test_retirement_after_an_index_plan_is_undone(folder: Path) -> None:
    mend = memlab.apply(memlab.plan_index(folder))
    mended = state_of(folder)
    retirement = memlab.apply(memlab.plan(folder, memlab.KeepRecent(1), retire=True))
    assert retirement.retired > 0
    memlab.restore(retirement)
    assert state_of(folder) == mended
    assert memlab.restore(mend).index is not None


def test_archive_lists_index_plan_and_its_undo(folder: Path) -> None:
    receipt = memlab.apply(memlab.plan_index(folder))
    listing = archive_listing(folder)
    assert [entry.digest for entry in listing.undoable] == [receipt.digest]
    assert "MEMORY.md: removes 1 line, adds 2 lines" in str(listing)
    assert memlab.doctor(folder).checks[-1].status == "OK"
    memlab.restore(receipt)
    assert archive_listing(folder).undoable == ()
    assert "undone" in str(archive_listing(folder))


def test_drop_erases_earlier_index_versions(folder: Path) -> None:
    deletion = memlab.apply(memlab.plan(folder, memlab.KeepRecent(1)))
    mend = memlab.apply(memlab.plan_index(folder))
    archive = Path(f"{folder}.archive.db")
    assert archived_plans_of(folder) == [deletion.digest, mend.digest]
    drop_archived(folder, digest=deletion.digest)
    assert archived_plans_of(folder) == []
    assert b"gone_7" not in archive.read_bytes()
    with pytest.raises(ArchiveError):
        memlab.restore(mend)


def test_undo_of_an_index_plan_rejects_ids_and_into(folder: Path, tmp_path: Path) -> None:
    receipt = memlab.apply(memlab.plan_index(folder))
    with pytest.raises(ArchiveError, match="changed the index and no memory"):
        memlab.restore(receipt, ids=["new.md"])
    with pytest.raises(ArchiveError, match="changed the index and no memory"):
        memlab.restore(receipt, into=tmp_path / "new.db")


# Crashes


def ids(folder: Path) -> list[str]:
    return list(memlab.load(folder)["memory_id"])


def copy_of(folder: Path, to: Path) -> Path:
    """Copy a folder with its archive and its file times."""
    copy = to / folder.relative_to(folder.parents[3])
    shutil.copytree(folder.parents[2], copy.parents[2])
    return copy


def test_crash_in_apply_leaves_the_old_or_the_new_index(folder: Path, tmp_path: Path) -> None:
    before = index_of(folder)
    plan = memlab.plan_index(folder)
    number = 0
    copies = tmp_path / "copies"
    original = copy_of(folder, copies / "original")
    crashed_folder = copy_of(original, copies / "0")

    def apply_to_copy() -> None:
        memlab.apply(replace_store(plan, crashed_folder), store=crashed_folder)

    for number in crash_everywhere(apply_to_copy, every=one_in(5)):
        assert index_of(crashed_folder) in (before, plan.text.encode())
        assert ids(crashed_folder) == ids(folder)
        plan_of_copy = replace_store(plan, crashed_folder)
        with suppress(AlreadyAppliedError):
            memlab.apply(plan_of_copy, store=crashed_folder)
        assert index_of(crashed_folder).decode() == plan.text
        memlab.restore(plan_of_copy.digest, store=crashed_folder)
        assert state_of(crashed_folder)["MEMORY.md"] == state_of(folder)["MEMORY.md"]
        assert memlab.doctor(crashed_folder).checks[-1].status == "OK"
        crashed_folder = copy_of(original, copies / str(number))
    assert number > 10


def replace_store(plan: memlab.IndexPlan, folder: Path) -> memlab.IndexPlan:
    return replace(plan, store=str(folder))


@pytest.mark.parametrize("had_index", [True, False])
def test_crash_in_undo_leaves_the_new_or_the_old_index(
    folder: Path, tmp_path: Path, *, had_index: bool
) -> None:
    if not had_index:
        (folder / "MEMORY.md").unlink()
    before = state_of(folder)
    old_index = index_of(folder) if had_index else None
    plan = memlab.plan_index(folder)
    receipt = memlab.apply(plan)
    copies = tmp_path / "copies"
    crashed_folder = copy_of(folder, copies / "0")
    number = 0

    def restore_copy() -> None:
        memlab.restore(receipt.digest, store=crashed_folder)

    for number in crash_everywhere(restore_copy, every=one_in(5)):
        index = crashed_folder / "MEMORY.md"
        content = index.read_bytes() if index.exists() else None
        assert content in (old_index, plan.text.encode())
        assert ids(crashed_folder) == ids(folder)
        memlab.restore(receipt.digest, store=crashed_folder)
        assert state_of(crashed_folder) == before
        crashed_folder = copy_of(folder, copies / str(number))
    assert number > 5


def test_interrupted_index_plan_is_finished_by_digest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = memlab.plan_index(folder)

    def stop(step: str) -> None:
        if step == "archived":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memlab.apply(plan, on_step=stop)
    assert "CUT SHORT" in str(archive_listing(folder))
    assert finish(folder, plan.digest[:12]).digest == plan.digest
    assert index_of(folder).decode() == plan.text


# The command


def test_index_command_shows_applies_and_undoes(folder: Path) -> None:
    before = state_of(folder)
    output = output_of("index", folder)
    assert "removes 1 line, adds 2 lines" in output
    assert "nothing was changed; add --apply" in output
    assert state_of(folder) == before
    applied = output_of("index", folder, "--apply")
    (undo,) = [line for line in applied.splitlines() if line.strip().startswith("undo ")]
    assert "needs no change" in output_of("index", folder)
    _, _, *arguments = undo.split()  # after "undo" and "memlab"
    assert "is again as it was" in output_of(*arguments)
    assert state_of(folder) == before
    assert "no plan is left to undo" in run("restore", folder, "latest").output


@pytest.fixture
def long_folder(tmp_path: Path) -> Path:
    """Make a folder with 210 index lines, of which a start loads 200."""
    folder = project_folder(tmp_path, "-long")
    for number in range(210):
        write_memory(folder, f"m{number}.md", memory(f"m {number}"), at(number))
    write_index(folder, [f"- [M {number}](m{number}.md)" for number in range(210)])
    return folder


def test_plan_without_a_log_explains_the_unchanged_order(long_folder: Path) -> None:
    printed = " ".join(output_of("index", long_folder).split())
    assert "order not changed, because no log says what is read most" in printed
    assert "a start does not load the lines of 10 memories" in printed
    assert f"memlab harvest {long_folder} -o LOG" in printed
    assert f"memlab index {long_folder} --log LOG puts first what is read most" in printed
    printed = " ".join(output_of("index", long_folder, "--keep-order").split())
    assert "order not changed, as asked" in printed


def test_order_note_says_that_only_load_bearing_lines_move(long_folder: Path) -> None:
    write_index(long_folder, [f"- [M {number}](m{number}.md)" for number in reversed(range(210))])
    write_memory(long_folder, "m10.md", memory("m 10", "feedback"), at(10))
    write_memory(long_folder, "new.md", memory("new"), at(300))
    plan = memlab.plan_index(long_folder)
    assert plan.order_note.startswith("changed only for load-bearing memories, because no log")


def test_order_note_is_absent_if_lines_move_or_all_are_loaded(
    long_folder: Path, folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "reads.csv"
    log.write_text("memory_id,at\nm205.md,2026-03-20T10:00:00Z\n")
    plan = memlab.plan_index(long_folder, log=log)
    assert plan.order_note == ""
    assert plan.counts["moves"] == 2
    unordered = memlab.plan_index(long_folder, log=log, reorder=False)
    assert unordered.order_note.startswith("not changed, as asked")
    assert memlab.plan_index(folder).order_note == ""
    plan = memlab.plan_index(long_folder)
    assert plan.order_note
    parsed = memlab.IndexPlan.from_json(plan.to_json())
    assert parsed == plan
    assert parsed.order_note == ""


def plan_for_index(tmp_path: Path, lines: list[str]) -> memlab.IndexPlan:
    """Plan for a folder of one memory with an index of these lines."""
    folder = project_folder(tmp_path)
    write_memory(folder, "m0.md", memory("m 0"), at(0))
    write_index(folder, lines)
    return memlab.plan_index(folder)


@pytest.mark.parametrize(
    ("lines", "unclosed"),
    [
        (["# Index", "<!-- for people", "- [M 0](m0.md)"], "<!-- for people"),
        (["<!-- a --> <!-- b", "- [M 0](m0.md)"], "<!-- a --> <!-- b"),
    ],
)
def test_unclosed_comment_is_named(tmp_path: Path, lines: list[str], unclosed: str) -> None:
    plan = plan_for_index(tmp_path, lines)
    (line,) = plan.with_action("stays")
    assert plan.text.splitlines()[line.number - 1] == unclosed
    assert "never ends: add -->" in line.reason


@pytest.mark.parametrize(
    "lines",
    [
        ["<!-- a -->", "- [M 0](m0.md)"],
        ["```", "<!-- code", "```", "- [M 0](m0.md)"],
    ],
    ids=["closed", "in code"],
)
def test_closed_comment_is_not_named(tmp_path: Path, lines: list[str]) -> None:
    assert plan_for_index(tmp_path, lines).with_action("stays") == []


def test_saved_index_plan_is_applied_by_command(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.json"
    assert f"memlab apply {file}" in output_of("index", folder, "--save-plan", file)
    assert json.loads(output_of("apply", file, "--json"))["adds"] == 2
    assert json.loads(output_of("restore", folder, "latest", "--json")) == {
        "index": "MEMORY.md",
        "is_exact": True,
        "stays": [],
    }
    assert run("apply", file).exit_code == 1


def test_index_command_prints_json(folder: Path) -> None:
    answer = json.loads(output_of("index", folder, "--json"))
    assert len(answer["lines"]) == 3
    assert json.loads(output_of("index", folder, "--apply", "--json"))["removes"] == 1


def test_restore_command_names_lines_that_stay(folder: Path) -> None:
    output_of("index", folder, "--apply")
    text = index_of(folder).decode().replace("about new", "about new, by hand")
    (folder / "MEMORY.md").write_text(text)
    output = output_of("restore", folder)
    assert "was edited since" in output
    assert "stays: - [new](new.md) — about new, by hand" in output


@pytest.mark.parametrize("kind", ["serena", "openclaw", "odek"])
def test_store_without_an_index_is_rejected(tmp_path: Path, kind: str) -> None:
    (tmp_path / ".serena" / "memories").mkdir(parents=True)
    (tmp_path / ".serena" / "memories" / "project_overview.md").write_text("words")
    (tmp_path / "index.json").write_text("[]")
    result = run("index", f"{kind}:{tmp_path}")
    assert result.exit_code == 2
    assert "has no index" in result.output


def test_wrong_index_plan_arguments_are_named(folder: Path) -> None:
    with pytest.raises(TypeError, match="empty_headings"):
        memlab.plan_index(folder, empty_headings=1)  # type: ignore[arg-type]
    with pytest.raises(MemlabError):
        memlab.plan_index(folder / "nowhere")


# Files written by an earlier version


GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "index_mend"
"""A recorded folder whose index was mended by an earlier version."""


def test_index_plan_and_receipt_of_earlier_version_are_read() -> None:
    plan_text = (GOLDEN / "plan.json").read_text()
    plan = memlab.IndexPlan.from_json(plan_text)
    assert plan.to_json() == plan_text
    receipt_text = (GOLDEN / "receipt.json").read_text()
    receipt = memlab.IndexReceipt.from_json(receipt_text)
    assert receipt.to_json() == receipt_text
    assert receipt.digest == plan.digest


def test_index_plan_of_earlier_version_is_undone(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / ".claude", tmp_path / ".claude")
    folder = project_folder(tmp_path)
    plan = memlab.IndexPlan.from_json((GOLDEN / "plan.json").read_text())
    receipt = memlab.IndexReceipt.from_json((GOLDEN / "receipt.json").read_text())
    assert index_of(folder).decode() == plan.text
    memlab.restore(receipt, store=folder)
    assert index_of(folder) == (GOLDEN / "before.md").read_bytes()
