"""Renames in git: one memory continues, and notes of one template stay distinct."""

import shutil
import subprocess
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.evidence import follow_names
from memlab.evidence.losses import losses_of
from memlab.sources.folder.renames import CommitContents, File, find_renames
from memlab.sources.opening import open_source
from tests.support.claude_store import write_index
from tests.support.openclaw_store import recall, write_events
from tests.support.properties import examples
from tests.support.repositories import NO_CONFIG, Repository, day

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

TEMPLATE = "# Log\n\n" + "".join(
    f"## Section {number}\n\nWrite here what section number {number} of this log is about.\n\n"
    for number in range(12)
)


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NO_CONFIG.items():
        monkeypatch.setenv(name, value)


def prose(seed: str, words: int = 60) -> str:
    """Return text that shares no run of words with the text of another seed."""
    return " ".join(f"{seed}{number}" for number in range(words)) + "\n"


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


def move(folder: Path, *pairs: tuple[str, str]) -> None:
    for name, other in pairs:
        (folder / other).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).rename(folder / other)


def workspace(tmp_path: Path, notes: Mapping[str, str]) -> Repository:
    """Make an OpenClaw workspace, committed on the first day."""
    repository = Repository(tmp_path / "workspace")
    write(repository.folder, {"MEMORY.md": "# Index\n", "AGENTS.md": "Search first.\n", **notes})
    repository.commit(0)
    return repository


def serena(tmp_path: Path, memories: Mapping[str, str]) -> Repository:
    """Make a project with Serena memories, committed on the first day."""
    repository = Repository(
        tmp_path / "project" / ".serena" / "memories", root=tmp_path / "project"
    )
    write(repository.folder, memories)
    repository.commit(0)
    return repository


def claude(tmp_path: Path, memories: Mapping[str, str], lines: list[str]) -> Repository:
    """Make a Claude Code folder, committed on the first day."""
    repository = Repository(tmp_path / "memory")
    write(repository.folder, memories)
    write_index(repository.folder, lines)
    repository.commit(0)
    return repository


def lost(folder: Path | str) -> dict[str, str]:
    """Return the lost memories and their possible names now."""
    losses = memlab.lost(folder)
    return dict(zip(losses[c.MEMORY_ID], losses["perhaps"], strict=True))


def deleted(folder: Path | str) -> set[str]:
    past = memlab.load_past(folder)
    return {*past.loc[past[c.DELETED_AT].notna(), c.MEMORY_ID]}


def git_renames(repo: Repository, *options: str) -> set[tuple[str, str]]:
    """Return the renames that git itself detects in the newest commit."""
    arguments = ("diff-tree", "-r", "-M70%", "--name-status", *options, "HEAD^", "HEAD")
    lines = [line.split("\t") for line in repo.git(*arguments).splitlines()]
    return {(line[1], line[2]) for line in lines if line[0].startswith("R")}


# A renamed memory continues


def test_renamed_memory_keeps_its_creation_time(tmp_path: Path) -> None:
    repo = serena(tmp_path, {f"{name}.md": prose(name) for name in "abc"})
    move(repo.folder, ("a.md", "topics/alpha.md"))
    with (repo.folder / "topics" / "alpha.md").open("a") as file:
        file.write("One more line.\n")
    repo.commit(1)
    past = memlab.load_past(repo.folder).set_index(c.MEMORY_ID)
    assert past.loc["topics/alpha.md", c.CREATED_AT] == day(0)
    assert lost(repo.folder) == {}


def test_reads_follow_a_rename(tmp_path: Path) -> None:
    repo = serena(tmp_path, {f"{name}.md": prose(name) for name in "abc"})
    move(repo.folder, ("a.md", "b1.md"))
    repo.commit(1)
    move(repo.folder, ("b1.md", "b2.md"))
    repo.commit(2)
    names = ["a.md", "b1.md", "b2.md", "a.md", "c.md"]
    log = pd.DataFrame({"memory_id": names, "at": [day(n) for n in (0.5, 1.5, 2.5, 3, 3)]})
    log["at"] = pd.to_datetime(log["at"], utc=True)
    followed = follow_names(log, repo.folder)
    assert followed[c.MEMORY_ID].tolist() == ["b2.md"] * 4 + ["c.md"]
    assert log[c.MEMORY_ID].tolist() == names


def test_reads_of_a_reused_name_belong_to_the_earlier_memory(tmp_path: Path) -> None:
    repo = serena(tmp_path, {"a.md": prose("a"), "b.md": prose("b")})
    move(repo.folder, ("a.md", "old.md"))
    repo.commit(1)
    write(repo.folder, {"a.md": prose("another")})
    repo.commit(2)
    log = pd.DataFrame({"memory_id": ["a.md", "a.md"], "at": [day(0.5), day(3)]})
    log["at"] = pd.to_datetime(log["at"], utc=True)
    assert follow_names(log, repo.folder)[c.MEMORY_ID].tolist() == ["old.md", "a.md"]


def test_reads_under_a_former_name_count_in_size_and_rows(tmp_path: Path) -> None:
    notes = {f"memory/2026-01-0{number}.md": prose(f"d{number}") for number in range(1, 5)}
    repo = workspace(tmp_path, notes)
    events = [recall(day(5 + hour / 24), name) for hour, name in enumerate([*notes][:2])]
    write_events(repo.folder / "memory/.dreams/events.jsonl", *events)
    move(repo.folder, *((name, name.replace("memory/", "memory/daily/")) for name in notes))
    repo.commit(9)
    log = tmp_path / "reads.jsonl"
    assert memlab.harvest(repo.folder, log).chances.startswith("5 memories: 2 read")
    rows = memlab.rows(repo.folder, log=log)
    read = rows.loc[rows["reads"] > 0, c.MEMORY_ID]
    assert {*read} == {"memory/daily/2026-01-01.md", "memory/daily/2026-01-02.md"}
    assert len(memlab.size(repo.folder, log=log).evidence.references) == 2


def test_moved_folders_with_equal_names_stay_distinct(tmp_path: Path) -> None:
    """Their notes have equal names and mostly the text of a template."""
    notes = {
        f"memory/{folder}/{name}.md": TEMPLATE + prose(f"{folder}{name}", 12)
        for folder in ("one", "two")
        for name in ("2026-01-01", "2026-01-02", "2026-01-03")
    }
    repo = workspace(tmp_path, notes)
    move(repo.folder, *((name, name.replace("memory/", "memory/projects/")) for name in notes))
    for name in notes:
        with (repo.folder / name.replace("memory/", "memory/projects/")).open("a") as file:
            file.write("moved\n")
    repo.commit(1)
    store = f"openclaw:{repo.folder}"  # the top folder holds no dated note
    assert lost(store) == {}
    assert deleted(store) == set()
    names = {
        rename.name: rename.memory_id
        for rename in open_source(store).external_history.former_names()
    }
    assert names == {name: name.replace("memory/", "memory/projects/") for name in notes}


@pytest.mark.parametrize("count", [3, 1_200])
def test_renames_are_found_in_commits_of_any_size(tmp_path: Path, count: int) -> None:
    notes = {f"memory/2026-01-0{n}.md": prose(f"day{n}x") for n in range(1, 4)}
    other_files = {f"site/a{number}.txt": f"a {number} {'x' * number}" for number in range(count)}
    repo = workspace(tmp_path, notes | other_files)
    shutil.rmtree(repo.folder / "site")
    write(repo.folder, {f"site2/b{n}.txt": f"b {n} {'y' * n}" for n in range(count)})
    for name in notes:
        move(repo.folder, (name, name.replace(".md", "-topic.md")))
        with (repo.folder / name.replace(".md", "-topic.md")).open("a") as file:
            file.write("one more line\n")
    repo.commit(1)
    assert lost(repo.folder) == {}
    assert deleted(repo.folder) == set()


# Templates, days and titles


def test_templated_notes_of_a_rolling_window_are_lost(tmp_path: Path) -> None:
    """Four notes are deleted and four written in one commit; git detects renames."""
    old = {f"session_{n}.md": TEMPLATE + prose(f"own{n}x", 14) for n in range(4)}
    repo = serena(tmp_path, {**old, "plan.md": prose("plan")})
    remove(repo.folder, *old)
    new = {f"session_{n + 4}.md": TEMPLATE + prose(f"own{n + 4}x", 14) for n in range(4)}
    write(repo.folder, new)
    repo.commit(1)
    assert len(git_renames(repo)) == 4
    assert lost(repo.folder).keys() == old.keys()
    assert {*lost(repo.folder).values()} <= new.keys()
    past = memlab.load_past(repo.folder).set_index(c.MEMORY_ID)
    assert all(past.loc[name, c.CREATED_AT] == day(1) for name in new)
    page = str(losses_of(repo.folder).sheet())
    assert "perhaps renamed to" in page


def test_real_rename_among_templated_notes_is_found(tmp_path: Path) -> None:
    old = {f"session_{n}.md": TEMPLATE + prose(f"own{n}x", 14) for n in range(5)}
    repo = serena(tmp_path, old)
    remove(repo.folder, "session_0.md", "session_1.md")
    write(repo.folder, {f"session_{n}.md": TEMPLATE + prose(f"own{n}x", 14) for n in (7, 8)})
    text = (repo.folder / "session_2.md").read_text()
    remove(repo.folder, "session_2.md")
    write(repo.folder, {"kept_for_later.md": text + "one more line\n"})
    repo.commit(1)
    assert lost(repo.folder).keys() == {"session_0.md", "session_1.md"}
    past = memlab.load_past(repo.folder).set_index(c.MEMORY_ID)
    assert past.loc["kept_for_later.md", c.CREATED_AT] == day(0)


def test_notes_of_different_days_are_not_renames(tmp_path: Path) -> None:
    text = prose("same", 80)
    repo = workspace(tmp_path, {"memory/2026-01-01.md": text + "first\n", "memory/x.md": "x y z\n"})
    remove(repo.folder, "memory/2026-01-01.md")
    write(repo.folder, {"memory/2026-01-02.md": text + "second\n"})
    repo.commit(1)
    assert lost(repo.folder) == {"memory/2026-01-01.md": "memory/2026-01-02.md"}


TITLES = {
    "another title": ("- [Deploys](a.md) — how", "- [Incidents](b.md) — what", False),
    "the same title": ("- [Deploys](a.md) — how", "- [Deploys](b.md) — now shorter", True),
    "titles that are file names": ("- [a.md](a.md)", "- [b](b.md)", True),
    "no line before": ("- [Else](c.md)", "- [Incidents](b.md)", True),
    "no line after": ("- [Deploys](a.md)", "- [Else](c.md)", True),
}


@pytest.mark.parametrize("case", TITLES)
def test_index_title_distinguishes_rename_from_new_memory(tmp_path: Path, case: str) -> None:
    before, after, is_rename = TITLES[case]
    texts = {"a.md": prose("a"), "c.md": prose("c")}
    repo = claude(tmp_path, texts, ["# Memory", before])
    remove(repo.folder, "a.md")
    write(repo.folder, {"b.md": prose("a") + "and more\n"})
    write_index(repo.folder, ["# Memory", after])
    repo.commit(1)
    assert lost(f"claude:{repo.folder}") == ({} if is_rename else {"a.md": "b.md"})


def test_unchanged_text_is_a_rename_with_any_title(tmp_path: Path) -> None:
    repo = claude(tmp_path, {"a.md": prose("a")}, ["- [Deploys](a.md)"])
    move(repo.folder, ("a.md", "b.md"))
    write_index(repo.folder, ["- [Releases](b.md)"])
    repo.commit(1)
    assert lost(f"claude:{repo.folder}") == {}


def test_copies_of_an_empty_template_are_not_renames(tmp_path: Path) -> None:
    names = [f"memory/2026-01-0{n}.md" for n in range(1, 4)]
    repo = workspace(tmp_path, dict.fromkeys(names, TEMPLATE))
    remove(repo.folder, names[0])
    write(repo.folder, {"memory/2026-01-04.md": TEMPLATE})
    repo.commit(1)
    assert lost(repo.folder) == {names[0]: "memory/2026-01-04.md"}


# Out of the store, and back


def archived(tmp_path: Path) -> Repository:
    """Make a workspace of six notes; two are moved out and one is deleted."""
    notes = {f"memory/2026-01-0{n}.md": prose(f"day{n}x") for n in range(1, 7)}
    repo = workspace(tmp_path, notes)
    move(repo.folder, *((f"memory/2026-01-0{n}.md", f"archive/2026-01-0{n}.md") for n in (2, 3)))
    remove(repo.folder, "memory/2026-01-04.md")
    return repo


@pytest.mark.parametrize("is_committed", [True, False])
def test_notes_moved_out_of_the_store_are_not_lost(tmp_path: Path, *, is_committed: bool) -> None:
    repo = archived(tmp_path)
    if is_committed:
        repo.commit(1)
    moved = {f"memory/2026-01-0{n}.md": f"archive/2026-01-0{n}.md" for n in (2, 3)}
    losses = losses_of(repo.folder)
    assert set(losses.frame[c.MEMORY_ID]) == {"memory/2026-01-04.md"}
    assert losses.to_dict()["moved"] == moved
    assert "2 memories out of the store" in str(losses)
    assert deleted(repo.folder) == {*moved, "memory/2026-01-04.md"}


def test_note_moved_out_and_deleted_is_lost(tmp_path: Path) -> None:
    repo = archived(tmp_path)
    repo.commit(1)
    remove(repo.folder, "archive/2026-01-02.md")
    repo.commit(2)
    assert lost(repo.folder).keys() == {"memory/2026-01-02.md", "memory/2026-01-04.md"}


def test_note_moved_again_outside_stays_known(tmp_path: Path) -> None:
    repo = archived(tmp_path)
    repo.commit(1)
    move(repo.folder, ("archive/2026-01-02.md", "archive/2026/02.md"))
    repo.commit(2)
    moved = losses_of(repo.folder).moved
    assert moved["memory/2026-01-02.md"].moved_to == "archive/2026/02.md"


def test_note_moved_back_is_the_same_memory(tmp_path: Path) -> None:
    repo = archived(tmp_path)
    repo.commit(1)
    move(repo.folder, ("archive/2026-01-02.md", "memory/2026-01-02-again.md"))
    repo.commit(2)
    assert "memory/2026-01-02.md" not in lost(repo.folder)
    log = pd.DataFrame({"memory_id": ["memory/2026-01-02.md"], "at": [day(0.5)]})
    log["at"] = pd.to_datetime(log["at"], utc=True)
    now = follow_names(log, repo.folder)[c.MEMORY_ID].tolist()
    assert now == ["memory/2026-01-02-again.md"]


def test_symlinks_outside_the_store_are_skipped(tmp_path: Path) -> None:
    repo = archived(tmp_path)
    (repo.folder / "archive" / "link.md").symlink_to(tmp_path)
    (repo.folder / "loop").symlink_to(repo.folder)
    assert len(losses_of(repo.folder).moved) == 2


# The rule itself

WORDS = st.lists(st.sampled_from("abcdefghijklmnop"), min_size=0, max_size=40)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(st.sampled_from([f"o{n}.md" for n in range(6)]), WORDS, max_size=5),
    st.dictionaries(st.sampled_from([f"n{n}.md" for n in range(6)]), WORDS, max_size=5),
)
def test_each_file_takes_part_in_at_most_one_rename(
    before: dict[str, list[str]], after: dict[str, list[str]]
) -> None:
    texts: dict[str, bytes] = {}

    def file(name: str, arguments: list[str]) -> File:
        text = " ".join(arguments).encode()
        texts[text.hex()] = text
        return File(name, text.hex())

    old = [file(*item) for item in before.items()]
    new = [file(*item) for item in after.items()]
    every = [previous.blob for previous in old], [previous.blob for previous in new]
    contents = CommitContents(texts.get, lambda _: every, lambda: ({}, {}))
    renames = find_renames(old, new, contents, empty=[""])
    assert renames.is_complete
    assert len({*renames.sure.values()}) == len(renames.sure)
    assert renames.sure.keys() <= before.keys()
    assert {*renames.sure.values()} <= after.keys()
    assert renames.sure.keys().isdisjoint(renames.doubtful)
    for name, other in renames.sure.items():
        arguments = " ".join(before[name]).split()
        other_words = " ".join(after[other]).split()
        assert {*arguments} & {*other_words}


def test_unreadable_text_makes_a_comparison_incomplete() -> None:
    contents = CommitContents(lambda _: None, lambda _: ((), ()), lambda: ({}, {}))
    renames = find_renames([File("a.md", "1")], [File("b.md", "2")], contents)
    assert renames.sure == {}
    assert renames.is_complete is False


def test_rename_is_dated_by_its_commit(tmp_path: Path) -> None:
    repo = serena(tmp_path, {"a.md": prose("a"), "b.md": prose("b")})
    move(repo.folder, ("a.md", "c.md"))
    repo.commit(1)
    (former,) = open_source(repo.folder).external_history.former_names()
    assert former.until == day(0) + timedelta(days=1)
    assert former.is_free


def test_git_is_not_asked_to_detect_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its detection stops at a configurable limit."""
    repo = serena(tmp_path, {"a.md": prose("a"), "b.md": prose("b")})
    subprocess.run(
        ["git", "config", "diff.renames", "copies"], cwd=repo.root, check=True, capture_output=True
    )
    move(repo.folder, ("a.md", "c.md"))
    repo.commit(1)
    assert lost(repo.folder) == {}
