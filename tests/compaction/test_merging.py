"""Merging two folders of one project: nothing lost, undone as one change."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab.compaction import plans
from memlab.errors import (
    AlreadyAppliedError,
    ArchiveError,
    ArchivePermissionsWarning,
    CompactionError,
    MemlabError,
    PlanError,
    StalePlanError,
)
from memlab.sources.opening import open_source
from memlab.systems.claude_code.projects import project_name
from tests.support.claude_store import (
    at,
    index_lines,
    memory,
    project_folder,
    realistic_folder,
    write_index,
    write_memory,
    write_transcript,
)
from tests.support.crashing import crash_everywhere
from tests.support.programs import run_program
from tests.support.properties import crossed, examples, one_in
from tests.support.repositories import Repository
from tests.support.shell import output_of
from tests.support.stores import FileState, episodes, write_rows

FROM = "-srv-app-one"
INTO = "-srv-app"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return tmp_path


@pytest.fixture
def folders(home: Path) -> tuple[Path, Path]:
    """Make two folders: one equal preference, two memories of the first only, one name in both."""
    source = write_folder(home, FROM, {"how": "feedback", "a": "project", "b": "user"})
    write_memory(source, "same.md", memory("same", body="In the first."), at(7))
    write_index(source, [*index_lines(source), "- [Same](same.md) — the first"])
    other = write_folder(home, INTO, {"how": "feedback", "x": "project"})
    write_memory(other, "same.md", memory("same", body="In the other."), at(7))
    write_index(other, ["# Index", "", *index_lines(other), "- [Same](same.md) — the other"])
    return source, other


def write_folder(home: Path, name: str, memories: dict[str, str]) -> Path:
    """Write a folder of memories, given their types by stem."""
    folder = project_folder(home, name)
    for number, (stem, kind) in enumerate(memories.items()):
        write_memory(folder, f"{stem}.md", memory(stem, kind, body=f"On {stem}."), at(number))
    write_index(folder, [f"- [{stem}]({stem}.md) — on {stem}" for stem in memories])
    return folder


State = dict[str, FileState]


def state(*folders: Path) -> State:
    """Return the state of each file and sub-folder of folders."""
    states = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if ".memlab" in path.parts:  # an interrupted change, which the next one rolls back
                continue
            states[str(path)] = FileState.of(path)
    return states


def texts(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the memories of a folder by name."""
    names = {path.name for path in folder.glob("*.md")} - {"MEMORY.md", "RETIRED.md"}
    return {name: (folder / name).read_bytes() for name in names}


def merged(source: Path, other: Path) -> memlab.Receipt:
    return memlab.apply(memlab.plan(source, into=other))


def test_merge_copies_missing_and_archives_equal_memories(
    folders: tuple[Path, Path],
) -> None:
    source, other = folders
    before = texts(source)
    contents = texts(other)
    receipt = merged(source, other)
    assert receipt.copied == 2
    assert receipt.deleted == 3
    assert receipt.into == str(other)
    assert texts(source) == {"same.md": before["same.md"]}
    assert texts(other) == {**contents, "a.md": before["a.md"], "b.md": before["b.md"]}
    assert index_lines(source) == ["- [Same](same.md) — the first"]
    assert index_lines(other) == [
        "# Index",
        "",
        "- [how](how.md) — on how",
        "- [x](x.md) — on x",
        "- [Same](same.md) — the other",
        "- [a](a.md) — on a",
        "- [b](b.md) — on b",
    ]


def test_copy_keeps_time_and_permissions(folders: tuple[Path, Path]) -> None:
    source, other = folders
    (source / "a.md").chmod(0o640)
    before = (source / "a.md").stat()
    merged(source, other)
    after = (other / "a.md").stat()
    assert after.st_mtime_ns == before.st_mtime_ns
    assert after.st_mode == before.st_mode


@pytest.mark.parametrize("asked", [0, 1], ids=["first", "other"])
def test_merge_is_undone_byte_for_byte_on_both_sides(
    folders: tuple[Path, Path], asked: int
) -> None:
    before = state(*folders)
    receipt = merged(*folders)
    assert state(*folders) != before
    output = output_of("restore", folders[asked], receipt.digest[:12])
    assert state(*folders) == before
    assert f"3 memories restored into {folders[0]}" in output
    assert f"2 memories taken out of {folders[1]} again" in output
    second_receipt = memlab.restore(receipt)
    assert second_receipt.memories == 0
    assert second_receipt.copies_removed == 0
    assert state(*folders) == before


@pytest.mark.parametrize("asked", [0, 1], ids=["first", "other"])
def test_restore_latest_works_from_either_folder(folders: tuple[Path, Path], asked: int) -> None:
    before = state(*folders)
    merged(*folders)
    output_of("restore", folders[asked], "latest")
    assert state(*folders) == before


INDEXES = {
    "none": None,
    "empty": b"",
    "without an end": b"# Index\n\n- [x](x.md) - on x",
    "carriage returns": b"# Index\r\n\r\n- [x](x.md) - on x\r\n",
    "prose": b"Read [x](x.md) first.\n\nMore of it.\n\n\n",
    "a dangling line": b"- [a](a.md) - was here once\n- [x](x.md)\n",
    "no text": b"\xff\xfe- [x](x.md)\n",
    "an open fence": b"- [x](x.md)\n```\nsome code\n",
    "an open comment": b"- [x](x.md)\n<!-- hidden\n",
    "front matter": b"---\ntitle: t\n---\n",
}


@pytest.mark.parametrize("form", INDEXES)
def test_merge_restores_any_form_of_index(home: Path, form: str) -> None:
    source = write_folder(home, FROM, {"a": "project", "b": "feedback"})
    other = write_folder(home, INTO, {"x": "project"})
    raw = INDEXES[form]
    (other / "MEMORY.md").unlink()
    if raw is not None:
        (other / "MEMORY.md").write_bytes(raw)
    before = state(source, other)
    receipt = merged(source, other)
    frame = memlab.load(other)
    assert set(frame["memory_id"]) == {"a.md", "b.md", "x.md"}
    assert frame.set_index("memory_id")["active"][["a.md", "b.md"]].all()
    memlab.restore(receipt)
    assert state(source, other) == before


def test_undo_keeps_edits_of_the_index(folders: tuple[Path, Path]) -> None:
    source, other = folders
    lines = index_lines(other)
    receipt = merged(source, other)
    write_index(other, ["# New heading", *index_lines(other)])
    memlab.restore(receipt)
    assert index_lines(other) == ["# New heading", *lines]


def test_equal_content_under_another_name_is_not_copied(home: Path) -> None:
    source = write_folder(home, FROM, {"a": "project"})
    other = write_folder(home, INTO, {"x": "project"})
    (other / "z.md").write_bytes((source / "a.md").read_bytes())
    before = state(other)
    receipt = merged(source, other)
    assert receipt.copied == 0
    assert receipt.deleted == 1
    assert state(other) == before
    memlab.restore(receipt)
    assert (source / "a.md").exists()


@pytest.mark.parametrize("name", ["same.md", "README.md", "hub"])
def test_existing_file_is_never_overwritten(home: Path, name: str) -> None:
    source = write_folder(home, FROM, {"a": "project", "same": "user"})
    other = write_folder(home, INTO, {"x": "project"})
    existing = other / "same.md"
    if name == "hub":
        existing.write_text("# Hub\n\n- [x](x.md)\n- [x](x.md)\n")
    elif name == "README.md":
        existing.symlink_to(other / "x.md")
    else:
        existing.write_text("other words\n")
    content = existing.read_bytes()
    plan = memlab.plan(source, into=other)
    assert [memory.key for memory in plan.not_merged] == ["same.md"]
    memlab.apply(plan)
    assert existing.read_bytes() == content
    assert (source / "same.md").exists()
    assert index_lines(source) == ["- [same](same.md) — on same"]
    assert "its name has another content there" in str(plan)


def test_documents_and_retired_files_stay(home: Path) -> None:
    source = write_folder(home, FROM, {"a": "project", "b": "project"})
    other = write_folder(home, INTO, {"x": "project"})
    (source / "README.md").write_text("About the project.\n")
    memlab.apply(memlab.plan(source, ids=["b.md"], retire=True))
    before = state(source, other)
    receipt = merged(source, other)
    assert (source / "README.md").exists()
    assert not (other / "README.md").exists()
    assert (other / "b.md").exists()
    assert "b.md" not in (other / "MEMORY.md").read_text(), "a retired memory stays not loaded"
    memlab.restore(receipt)
    assert state(source, other) == before


def test_memories_listed_in_a_hub_stay_with_it(home: Path) -> None:
    source = write_folder(home, FROM, {"a": "project", "b": "project", "c": "project"})
    (source / "all.md").write_text("# All\n\n- [b](b.md)\n- [c](c.md)\n")
    write_index(source, ["- [a](a.md)", "- [All](all.md)"])
    other = write_folder(home, INTO, {"x": "project"})
    plan = memlab.plan(source, into=other)
    assert {memory.key for memory in plan.not_merged} == {"b.md", "c.md"}
    assert [memory.key for memory in plan.memories] == ["a.md"]


def test_merge_dry_run_changes_nothing(folders: tuple[Path, Path]) -> None:
    before = state(*(folder.parent for folder in folders))
    output = output_of("compact", folders[0], "--into", folders[1])
    assert "Copies 2 memories into" in output
    assert "add --apply to do it" in output
    assert state(*(folder.parent for folder in folders)) == before


def about_index(folder: Path) -> dict[str, object]:
    """Return the index part of ``show`` for a folder."""
    about: dict[str, object] = json.loads(output_of("show", "--json", folder))["about"]
    return about


def test_merge_output_says_archived_instead_of_deleted(folders: tuple[Path, Path]) -> None:
    source, other = folders
    output = output_of("compact", source, "--into", other)
    assert "that it archives" in output or "what it archives" in output
    assert "nothing was changed" in output
    assert "delete" not in output
    receipt = output_of("compact", source, "--into", other, "--apply")
    assert "  archived  " in receipt
    assert "deleted" not in receipt


def test_merge_receipt_says_what_a_start_loads(folders: tuple[Path, Path]) -> None:
    source, other = folders
    receipt = merged(source, other)
    after = memlab.show(source).summary
    assert receipt.start_before is not None
    assert receipt.start_after is not None
    assert receipt.start_before.memories > receipt.start_after.memories
    assert receipt.start_after.tokens == after.boot.tokens + after.index_overhead
    facts = dict(receipt.sheet().facts)
    assert facts["a start"].startswith(f"{receipt.start_before.memories} memories, ")


def test_merge_effect_names_the_index(folders: tuple[Path, Path]) -> None:
    effect = memlab.plan(folders[0], into=folders[1]).effect
    assert ": the memories in the index go from " in effect
    assert "the store" not in effect


@pytest.mark.parametrize(
    ("there", "here", "cut"),
    [
        pytest.param(5, 5, 0, marks=pytest.mark.long),
        (150, 60, 10),
        pytest.param(200, 10, 10, marks=pytest.mark.long),
        pytest.param(230, 3, 33, marks=pytest.mark.long),
    ],
    ids=["below the limit", "across the limit", "at the limit", "already cut"],
)
def test_plan_predicts_what_a_start_will_load(home: Path, there: int, here: int, cut: int) -> None:
    source = write_folder(home, FROM, {f"b{number}": "project" for number in range(here)})
    other = write_folder(home, INTO, {f"a{number}": "project" for number in range(there)})
    plan = memlab.plan(source, into=other)
    start = plan.start_there
    assert start is not None
    assert start.cut_now == max(there - 200, 0)
    assert start.cut == cut
    assert any("start there" in fact for fact in plan.sheet().facts)
    assert bool(plan.warnings()) == (start.cut > start.cut_now)
    answer = json.loads(output_of("compact", source, "--into", other, "--json"))["start_there"]
    assert answer == start._asdict()
    memlab.apply(plan)
    about = about_index(other)
    assert about["loaded_lines"] == start.loaded_lines
    assert about["lines"] == start.lines
    cut_files = about["cut_files"]
    assert isinstance(cut_files, list)
    assert len(cut_files) == start.cut


@pytest.mark.parametrize("files", [8, pytest.param(150, marks=pytest.mark.long)])
def test_plan_predicts_the_start_of_a_real_folder(home: Path, files: int) -> None:
    source = realistic_folder(project_folder(home, FROM), files=files)
    other = realistic_folder(project_folder(home, INTO), files=40)
    write_memory(other, "only.md", memory("only"), at(1))
    plan = memlab.plan(source, into=other)
    memlab.apply(plan)
    start = plan.start_there
    assert start is not None
    about = about_index(other)
    cut_files = about["cut_files"]
    assert isinstance(cut_files, list)
    assert about["loaded_lines"] == start.loaded_lines
    assert len(cut_files) == start.cut


def test_cut_index_gives_a_warning_with_remedies(home: Path) -> None:
    source = write_folder(home, FROM, {"b": "project", "c": "project"})
    other = write_folder(home, INTO, {f"a{number}": "project" for number in range(199)})
    printed = " ".join(output_of("compact", source, "--into", other).split())
    assert "200 of 201 lines of the index" in printed
    assert "1 memory is cut (now 0)" in printed
    assert "would not load the lines of 1 more memory" in printed
    assert "--log LOG puts first what is read most" in printed
    assert "--keep-recent N makes the index shorter" in printed


def test_saved_plan_does_not_store_the_predicted_start(folders: tuple[Path, Path]) -> None:
    source, other = folders
    plan = memlab.plan(source, into=other)
    read = memlab.Plan.from_json(plan.to_json())
    assert read == plan
    assert read.start_there is None
    assert all(name != "start there" for name, _ in read.sheet().facts)


def test_merge_without_copies_does_not_mention_them(home: Path) -> None:
    source = write_folder(home, FROM, {"a": "project"})
    other = write_folder(home, INTO, {"a": "project"})
    output = output_of("compact", source, "--into", other, "--apply")
    assert "1 memory" in output
    assert "has the copies" not in output


def test_undone_merge_leaves_nothing_to_undo(folders: tuple[Path, Path]) -> None:
    source, other = folders
    receipt = merged(source, other)
    assert receipt.digest[:12] in output_of("archive", other)
    memlab.restore(receipt)
    assert f"nothing to undo in {other}: memlab deleted nothing, or it was undone" in " ".join(
        output_of("archive", other).split()
    )


def test_saved_merge_plan_is_applied_once(folders: tuple[Path, Path], tmp_path: Path) -> None:
    source, other = folders
    file = tmp_path / "plan.json"
    output_of("compact", source, "--into", other, "--save-plan", file)
    plan = memlab.Plan.from_json(file.read_text())
    assert plan.into == str(other)
    assert plan.copied.memories == 2
    output_of("apply", file)
    assert (other / "a.md").exists()
    with pytest.raises(AlreadyAppliedError):
        memlab.apply(plan)


def test_merge_receipt_round_trips_through_json(folders: tuple[Path, Path]) -> None:
    output = output_of("compact", folders[0], "--into", folders[1], "--apply", "--json")
    receipt = memlab.Receipt.from_json(output)
    assert receipt.into == str(folders[1])
    assert receipt.copied == 2
    fields = json.loads(output_of("restore", "--json", folders[0], "latest"))
    assert fields["taken_out"] == {"folder": str(folders[1]), "memories": 2, "stay": []}


# A load-bearing memory leaves its folder only if its equal bytes stand in the other one.


@pytest.mark.parametrize("name", ["how.md", "a.md"])
def test_changed_target_file_stops_the_merge(folders: tuple[Path, Path], name: str) -> None:
    source, other = folders
    plan = memlab.plan(source, into=other)
    (other / name).write_text("---\ntype: feedback\n---\nOther words.\n")
    before = state(*folders)
    with pytest.raises(StalePlanError):
        memlab.apply(plan)
    assert state(*folders) == before


def test_missing_target_file_stops_the_merge(folders: tuple[Path, Path]) -> None:
    source, other = folders
    plan = memlab.plan(source, into=other)
    (other / "how.md").unlink()
    before = state(*folders)
    with pytest.raises(StalePlanError, match="no equal memory"):
        memlab.apply(plan)
    assert state(*folders) == before


def test_changed_source_folder_stops_the_merge(folders: tuple[Path, Path]) -> None:
    source, other = folders
    plan = memlab.plan(source, into=other)
    (source / "b.md").write_text("---\ntype: user\n---\nOther words.\n")
    before = state(*folders)
    with pytest.raises(StalePlanError):
        memlab.apply(plan)
    assert state(*folders) == before


def forged(plan: memlab.Plan, copies: tuple[plans.PlannedCopy, ...]) -> memlab.Plan:
    """Return a plan with other claims, whose digest fits."""
    fields = {name: getattr(plan, name) for name in plan.__dataclass_fields__}
    return memlab.Plan(**{**fields, "copies": copies})


def test_forged_copies_delete_nothing(folders: tuple[Path, Path]) -> None:
    source, other = folders
    plan = memlab.plan(source, into=other)
    before = state(*folders)
    wrong = tuple(
        copy._replace(other_key="x.md", is_copied=False) if copy.key == "b.md" else copy
        for copy in plan.copies
    )
    with pytest.raises(StalePlanError, match="no equal memory"):
        memlab.apply(forged(plan, wrong))
    with pytest.raises(PlanError, match="what stands for it"):
        memlab.apply(forged(plan, plan.copies[1:]))
    with pytest.raises(PlanError, match="what stands for it"):
        memlab.apply(forged(plan, ()))
    assert state(*folders) == before


def test_plan_with_forged_policy_deletes_nothing_load_bearing(
    folders: tuple[Path, Path],
) -> None:
    source, other = folders
    plan = memlab.plan(source, into=other)
    fields = {name: getattr(plan, name) for name in plan.__dataclass_fields__}
    fields["policy"] = {"policy": "recent", "keep": 0}
    with pytest.raises(PlanError, match="what stands for it"):
        memlab.apply(memlab.Plan(**fields))
    fields["copies"] = ()
    with pytest.raises(CompactionError, match="load-bearing"):
        memlab.apply(memlab.Plan(**fields))


def test_only_claude_code_folders_can_be_merged(folders: tuple[Path, Path], tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(3))
    for source, other in ((folders[0], store), (store, folders[0])):
        with pytest.raises(PlanError, match="folders of Claude Code's memory alone"):
            memlab.plan(source, into=other)
    with pytest.raises(PlanError, match="same folder"):
        memlab.plan(folders[0], into=folders[0])
    with pytest.raises(MemlabError):
        memlab.plan(folders[0], into=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="either a policy"):
        memlab.plan(folders[0], memlab.KeepRecent(1), into=folders[1])


@pytest.mark.parametrize("more", [["--keep-recent", "3"], ["--id", "a.md"], ["--retire"]])
def test_into_excludes_other_selections(folders: tuple[Path, Path], more: list[str]) -> None:
    output = output_of("compact", folders[0], "--into", folders[1], *more, code=2)
    assert "--into merges all memories" in output


def test_target_archive_is_no_more_readable_than_the_copies(folders: tuple[Path, Path]) -> None:
    source, other = folders
    memlab.apply(memlab.plan(other, ids=["x.md"]))
    archive = Path(f"{other}.archive.db")
    archive.chmod(0o644)
    (source / "a.md").chmod(0o600)
    with pytest.warns(ArchivePermissionsWarning):
        merged(source, other)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert (other / "a.md").stat().st_mode & 0o777 == 0o600


# Undoing after others wrote


def test_edited_copy_stays_and_is_named(folders: tuple[Path, Path]) -> None:
    source, other = folders
    before = texts(source)
    receipt = merged(source, other)
    with (other / "a.md").open("a") as file:
        file.write("A later word.\n")
    restored = memlab.restore(receipt)
    assert texts(source) == before
    assert restored.copies_removed == 1
    assert restored.copies_left == ("a.md",)
    assert (other / "a.md").read_text().endswith("A later word.\n")
    assert "1 memory stays" in restored.copies_left_in_words()


def test_copy_needed_by_another_merge_stays(home: Path) -> None:
    first = write_folder(home, FROM, {"a": "feedback"})
    second = write_folder(home, "-srv-app-two", {"a": "feedback"})
    other = write_folder(home, INTO, {"x": "project"})
    receipt = merged(first, other)
    later = merged(second, other)
    assert later.copied == 0
    assert later.deleted == 1
    restored = memlab.restore(receipt)
    assert restored.copies_left == ("a.md",)
    assert (other / "a.md").exists()
    assert "- [a](a.md)" in (other / "MEMORY.md").read_text()


def test_single_memory_of_a_merge_can_be_restored(folders: tuple[Path, Path]) -> None:
    source, other = folders
    before = state(*folders)
    receipt = merged(source, other)
    restored = memlab.restore(receipt, ids=["a.md"])
    assert restored.memories == 1
    assert restored.copies_removed == 1
    assert (source / "a.md").exists()
    assert not (other / "a.md").exists()
    assert (other / "b.md").exists()
    memlab.restore(receipt)
    assert texts(source).keys() == {"how.md", "a.md", "b.md", "same.md"}
    assert {path: file.content for path, file in state(*folders).items()} == {
        path: file.content for path, file in before.items()
    }


def test_undo_restores_the_source_if_the_target_is_gone(folders: tuple[Path, Path]) -> None:
    source, other = folders
    before = texts(source)
    receipt = merged(source, other)
    rmtree(other)
    with pytest.raises(ArchiveError, match="3 memories restored"):
        memlab.restore(receipt)
    assert texts(source) == before


def test_merge_is_undone_from_a_moved_target(folders: tuple[Path, Path]) -> None:
    source, other = folders
    before = texts(source), texts(other)
    merged(source, other)
    moved = other.parent.with_name("-srv-moved")
    other.parent.rename(moved)
    restored = memlab.restore(
        memlab.compaction.archived_plans(source)[-1].digest, store=moved / "memory"
    )
    assert restored.memories == 3
    assert restored.copies_removed == 2
    assert (texts(source), texts(moved / "memory")) == before


# Interrupted at any step


def everything(*folders: Path) -> set[bytes]:
    """Return the contents of all memories of folders, without their pending changes."""
    contents = set[bytes]()
    for folder in folders:
        frame = memlab.load(folder, with_body=True)
        contents.update(text.encode() for text in frame["body"])
    return contents


@pytest.fixture
def original(folders: tuple[Path, Path], tmp_path: Path) -> Callable[[], None]:
    """Put both folders back, without archives."""
    projects = folders[0].parent.parent
    copy = tmp_path / "kept"
    copytree(projects, copy)

    def again() -> None:
        rmtree(projects)
        copytree(copy, projects)

    return again


@pytest.mark.long
def test_crash_at_any_call_loses_and_duplicates_nothing(
    folders: tuple[Path, Path], original: Callable[[], None]
) -> None:
    before = state(*folders)
    contents = everything(*folders)
    merged(*folders)
    expected = texts(folders[0]), texts(folders[1]), index_lines(folders[1])
    original()
    number = 0
    for number in crash_everywhere(lambda: merged(*folders), every=one_in(5)):
        assert everything(*folders) == contents
        if number % 2:
            output_of("compact", folders[0], "--into", folders[1], "--apply")
            assert (texts(folders[0]), texts(folders[1]), index_lines(folders[1])) == expected
        for folder in folders:
            if Path(f"{folder}.archive.db").exists():
                undo_all(folder)
        finish_pending(*folders)
        assert state(*folders) == before, f"after the crash at call {number}"
        original()
    assert number > 30


def finish_pending(*folders: Path) -> None:
    """Begin a change of each folder, which takes an interrupted one back."""
    for folder in folders:
        with open_source(folder).changing():
            pass


def undo_all(folder: Path) -> None:
    """Undo every plan that the archive of a folder has."""
    for entry in memlab.compaction.archived_plans(folder):
        memlab.restore(entry.digest, store=folder)


STEPS = (
    "locked",
    "checked",
    "copied",
    "archived",
    "locked there",
    "noted there",
    "inserted there",
    "copied there",
    "deleted",
    "verified",
    "committed",
    "recorded",
)
KILLED = """
import os, signal, sys
import memlab
source, other, step = sys.argv[1:]
def on_step(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)
memlab.apply(memlab.plan(source, into=other), on_step=on_step)
"""
KILLED_UNDO = """
import os, signal, sys
import memlab
source, digest, step = sys.argv[1:]
def on_step(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)
memlab.restore(digest, store=source, on_step=on_step)
"""


def killed(program: str, *arguments: object) -> None:
    """Run a program that kills itself."""
    result = run_program(program, *arguments)
    assert result.returncode == -signal.SIGKILL


QUICK_STEPS = ("inserted there", "deleted", "committed")
"""Steps of a merge at which a default run kills it, each with another end."""


@pytest.mark.parametrize(
    ("step", "then"),
    [
        case
        if case.values[0] in QUICK_STEPS
        else pytest.param(*case.values, marks=pytest.mark.long)
        for case in crossed(STEPS, ("again", "undone", "undone from the other"))
    ],
)
def test_merge_killed_at_any_step_is_finished_or_undone(
    folders: tuple[Path, Path], original: Callable[[], None], step: str, then: str
) -> None:
    source, other = folders
    before = state(*folders)
    contents = everything(*folders)
    merged(*folders)
    expected = texts(source), texts(other), index_lines(source), index_lines(other)
    original()
    killed(KILLED, source, other, step)
    assert everything(*folders) == contents
    if then == "again":
        output_of("compact", source, "--into", other, "--apply")
        assert (texts(source), texts(other), index_lines(source), index_lines(other)) == expected
        undo_all(source)
        assert state(*folders) == before
        return
    folder = source if then == "undone" else other
    if Path(f"{folder}.archive.db").exists():
        undo_all(folder)
    if then == "undone":
        assert state(*folders) == before
    assert everything(*folders) == contents


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("locked", marks=pytest.mark.long),
        pytest.param("verified", marks=pytest.mark.long),
        pytest.param("committed", marks=pytest.mark.long),
        "taken out there",
        pytest.param("committed there", marks=pytest.mark.long),
        pytest.param("recorded", marks=pytest.mark.long),
    ],
)
def test_killed_undo_is_finished_later(folders: tuple[Path, Path], step: str) -> None:
    before = state(*folders)
    contents = everything(*folders)
    receipt = merged(*folders)
    killed(KILLED_UNDO, folders[0], receipt.digest, step)
    assert everything(*folders) == contents
    memlab.restore(receipt)
    assert state(*folders) == before


def test_failed_merge_removes_its_copies(folders: tuple[Path, Path]) -> None:
    before = state(*folders)

    def stop(step: str) -> None:
        if step == "verified":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        memlab.apply(memlab.plan(folders[0], into=folders[1]), on_step=stop)
    assert state(*folders) == before
    assert merged(*folders).copied == 2


# From find to one index


def test_three_worktrees_are_merged_into_one_index(home: Path) -> None:
    """Walk from ``find`` to one index as a person does, by the commands that are printed."""
    app = Repository(home / "work" / "app")
    app.commit(0)
    roots = [app.root]
    for name in ("one", "two"):
        app.git("worktree", "add", "-q", f"../{name}")
        roots.append(home / "work" / name)
    stems = (["how", "build", "deploy"], ["how", "queue"], ["how", "cache", "queue"])
    folders = []
    for root, names in zip(roots, stems, strict=True):
        kinds = {stem: "feedback" if stem == "how" else "project" for stem in names}
        folder = write_folder(home, project_name(str(root)), kinds)
        start = json.dumps({"type": "user", "cwd": str(root), "sessionId": "s"})
        write_transcript(folder.parent, "s", [start])
        folders.append(folder)
    before = state(*folders)
    contents = everything(*folders)
    merges = 0
    while True:
        steps = memlab.find(home).next_steps()
        commands = [step.strip().split("    ")[0].split() for step in steps if "--into" in step]
        if not commands:
            break
        assert commands[0][-1] == str(folders[0])
        output_of(*commands[0][1:], "--apply")
        merges += 1
    assert merges == 2
    assert everything(*folders) == contents
    main, *worktrees = folders
    assert texts(main).keys() == {f"{stem}.md" for names in stems for stem in names}
    assert [texts(other) for other in worktrees] == [{}, {}]
    assert sorted(index_lines(main)) == sorted(
        f"- [{stem}]({stem}.md) — on {stem}"
        for stem in ("how", "build", "deploy", "queue", "cache")
    )
    assert json.loads(output_of("find", "--json", home))["kinships"] == []
    for other in reversed(worktrees):
        undo_all(other)
    assert {path: file.content for path, file in state(*folders).items()} == {
        path: file.content for path, file in before.items()
    }


TEXTS = st.sampled_from(["one", "two", "three"])


@settings(max_examples=examples(25), deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcde"), TEXTS),
    st.dictionaries(st.sampled_from("abcde"), TEXTS),
    st.booleans(),
)
def test_merge_loses_and_overwrites_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    own: dict[str, str],
    theirs: dict[str, str],
    load_bearing: bool,
) -> None:
    home = tmp_path_factory.mktemp("home")
    kind = "feedback" if load_bearing else "project"
    folders = []
    for name, memories in ((FROM, own), (INTO, theirs)):
        folder = project_folder(home / ".claude", name)
        for stem, body in memories.items():
            write_memory(folder, f"{stem}.md", memory("n", kind, body=body), at(0))
        write_index(folder, [f"- [{stem}]({stem}.md) — hook" for stem in memories])
        folders.append(folder)
    before = state(*folders)
    own_texts, their_texts = map(texts, folders)
    receipt = merged(*folders)
    for name, text in their_texts.items():
        assert texts(folders[1])[name] == text
    for name, text in own_texts.items():
        is_there = text in texts(folders[1]).values()
        assert is_there or texts(folders[0])[name] == text
        if name not in their_texts:
            assert is_there
            assert name not in texts(folders[0])
    listed = set(memlab.load(folders[1]).query("active")["memory_id"])
    assert listed == texts(folders[1]).keys()
    memlab.restore(receipt)
    assert state(*folders) == before


@pytest.mark.parametrize("files", [8, 16])
def test_merge_of_real_folders_is_undone(home: Path, files: int) -> None:
    source = realistic_folder(project_folder(home, FROM), files=files)
    other = realistic_folder(project_folder(home, INTO), files=files // 2)
    before = state(source, other)
    contents = everything(source, other)
    receipt = merged(source, other)
    assert everything(source, other) == contents
    memlab.restore(receipt)
    assert state(source, other) == before
