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
    """Return the lost memories with their possible present names."""
    losses = memlab.lost(folder)
    return dict(zip(losses[c.MEMORY_ID], losses["perhaps"], strict=True))


def deleted(folder: Path | str) -> set[str]:
    past = memlab.load_past(folder)
    return set(past.loc[past[c.DELETED_AT].notna(), c.MEMORY_ID])


def git_renames(repo: Repository, *options: str) -> set[tuple[str, str]]:
    """Return the renames that git itself detects in the newest commit."""
    arguments = ("diff-tree", "-r", "-M70%", "--name-status", *options, "HEAD^", "HEAD")
    renames = set()
    for line in repo.git(*arguments).splitlines():
        status, *names = line.split("\t")
        if status.startswith("R"):
            before, after = names
            renames.add((before, after))
    return renames


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
    times = [day(0.5), day(1.5), day(2.5), day(3), day(3)]
    log = pd.DataFrame({"memory_id": names, "at": times})
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
    events = [
        recall(day(5), "memory/2026-01-01.md"),
        recall(day(5 + 1 / 24), "memory/2026-01-02.md"),
    ]
    write_events(repo.folder / "memory/.dreams/events.jsonl", *events)
    for name in notes:
        move(repo.folder, (name, name.replace("memory/", "memory/daily/")))
    repo.commit(9)
    log = tmp_path / "reads.jsonl"
    assert memlab.harvest(repo.folder, log).chances.startswith("5 memories: 2 read")
    rows = memlab.rows(repo.folder, log=log)
    read = rows.loc[rows["reads"] > 0, c.MEMORY_ID]
    assert set(read) == {"memory/daily/2026-01-01.md", "memory/daily/2026-01-02.md"}
    assert len(memlab.size(repo.folder, log=log).evidence.references) == 2


def test_moved_folders_with_equal_names_stay_distinct(tmp_path: Path) -> None:
    """Their notes have equal names and mostly the text of a template."""
    notes = {}
    for folder in ("one", "two"):
        for date in ("2026-01-01", "2026-01-02", "2026-01-03"):
            notes[f"memory/{folder}/{date}.md"] = TEMPLATE + prose(f"{folder}{date}", 12)
    repo = workspace(tmp_path, notes)
    new_names = {name: name.replace("memory/", "memory/projects/") for name in notes}
    for name, new_name in new_names.items():
        move(repo.folder, (name, new_name))
        with (repo.folder / new_name).open("a") as file:
            file.write("moved\n")
    repo.commit(1)
    store = f"openclaw:{repo.folder}"  # the top folder holds no dated note
    assert lost(store) == {}
    assert deleted(store) == set()
    former_names = open_source(store).external_history.former_names()
    assert {former.name: former.memory_id for former in former_names} == new_names


@pytest.mark.parametrize("count", [3, 1_200])
def test_renames_are_found_in_commits_of_any_size(tmp_path: Path, count: int) -> None:
    notes = {f"memory/2026-01-0{number}.md": prose(f"day{number}x") for number in range(1, 4)}
    other_files = {f"site/a{number}.txt": f"a {number} {'x' * number}" for number in range(count)}
    repo = workspace(tmp_path, {**notes, **other_files})
    shutil.rmtree(repo.folder / "site")
    new_files = {f"site2/b{number}.txt": f"b {number} {'y' * number}" for number in range(count)}
    write(repo.folder, new_files)
    for name in notes:
        new_name = name.replace(".md", "-topic.md")
        move(repo.folder, (name, new_name))
        with (repo.folder / new_name).open("a") as file:
            file.write("one more line\n")
    repo.commit(1)
    assert lost(repo.folder) == {}
    assert deleted(repo.folder) == set()


# Templates, days and titles


def session_notes(*numbers: int) -> dict[str, str]:
    """Return notes of one template, each with a few words of its own."""
    return {f"session_{number}.md": TEMPLATE + prose(f"own{number}x", 14) for number in numbers}


def test_templated_notes_of_a_rolling_window_are_lost(tmp_path: Path) -> None:
    """Four notes are deleted and four written in one commit; git detects renames."""
    old = session_notes(0, 1, 2, 3)
    repo = serena(tmp_path, {**old, "plan.md": prose("plan")})
    remove(repo.folder, *old)
    new = session_notes(4, 5, 6, 7)
    write(repo.folder, new)
    repo.commit(1)
    assert len(git_renames(repo)) == 4
    assert lost(repo.folder).keys() == old.keys()
    assert set(lost(repo.folder).values()) <= new.keys()
    past = memlab.load_past(repo.folder).set_index(c.MEMORY_ID)
    for name in new:
        assert past.loc[name, c.CREATED_AT] == day(1)
    page = str(losses_of(repo.folder).sheet())
    assert "perhaps renamed to" in page


def test_real_rename_among_templated_notes_is_found(tmp_path: Path) -> None:
    repo = serena(tmp_path, session_notes(0, 1, 2, 3, 4))
    remove(repo.folder, "session_0.md", "session_1.md")
    write(repo.folder, session_notes(7, 8))
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


def rename_with_edit(tmp_path: Path, line_before: str, line_after: str) -> Repository:
    """Replace a memory by a longer one of another name, and its index line by another."""
    texts = {"a.md": prose("a"), "c.md": prose("c")}
    repo = claude(tmp_path, texts, ["# Memory", line_before])
    remove(repo.folder, "a.md")
    write(repo.folder, {"b.md": prose("a") + "and more\n"})
    write_index(repo.folder, ["# Memory", line_after])
    repo.commit(1)
    return repo


RENAMES = {
    "the same title": ("- [Deploys](a.md) — how", "- [Deploys](b.md) — now shorter"),
    "titles that are file names": ("- [a.md](a.md)", "- [b](b.md)"),
    "no line before": ("- [Else](c.md)", "- [Incidents](b.md)"),
    "no line after": ("- [Deploys](a.md)", "- [Else](c.md)"),
}
"""Index line before and after."""


@pytest.mark.parametrize(("before", "after"), RENAMES.values(), ids=RENAMES)
def test_renamed_memory_keeps_its_index_title(tmp_path: Path, before: str, after: str) -> None:
    repo = rename_with_edit(tmp_path, before, after)
    assert lost(f"claude:{repo.folder}") == {}


def test_similar_text_with_another_title_is_a_new_memory(tmp_path: Path) -> None:
    before = "- [Deploys](a.md) — how"
    after = "- [Incidents](b.md) — what"
    repo = rename_with_edit(tmp_path, before, after)
    assert lost(f"claude:{repo.folder}") == {"a.md": "b.md"}


def test_unchanged_text_is_a_rename_with_any_title(tmp_path: Path) -> None:
    repo = claude(tmp_path, {"a.md": prose("a")}, ["- [Deploys](a.md)"])
    move(repo.folder, ("a.md", "b.md"))
    write_index(repo.folder, ["- [Releases](b.md)"])
    repo.commit(1)
    assert lost(f"claude:{repo.folder}") == {}


def test_copies_of_an_empty_template_are_not_renames(tmp_path: Path) -> None:
    names = [f"memory/2026-01-0{number}.md" for number in range(1, 4)]
    repo = workspace(tmp_path, dict.fromkeys(names, TEMPLATE))
    remove(repo.folder, names[0])
    write(repo.folder, {"memory/2026-01-04.md": TEMPLATE})
    repo.commit(1)
    assert lost(repo.folder) == {names[0]: "memory/2026-01-04.md"}


# Out of the store, and back


MOVED_OUT = {
    "memory/2026-01-02.md": "archive/2026-01-02.md",
    "memory/2026-01-03.md": "archive/2026-01-03.md",
}


def workspace_with_archive(tmp_path: Path) -> Repository:
    """Make a workspace of six notes; two are moved out and one is deleted."""
    notes = {f"memory/2026-01-0{number}.md": prose(f"day{number}x") for number in range(1, 7)}
    repo = workspace(tmp_path, notes)
    move(repo.folder, *MOVED_OUT.items())
    remove(repo.folder, "memory/2026-01-04.md")
    return repo


@pytest.mark.parametrize("is_committed", [True, False])
def test_notes_moved_out_of_the_store_are_not_lost(tmp_path: Path, *, is_committed: bool) -> None:
    repo = workspace_with_archive(tmp_path)
    if is_committed:
        repo.commit(1)
    losses = losses_of(repo.folder)
    assert set(losses.frame[c.MEMORY_ID]) == {"memory/2026-01-04.md"}
    assert losses.to_dict()["moved"] == MOVED_OUT
    assert "2 memories out of the store" in str(losses)
    assert deleted(repo.folder) == {*MOVED_OUT, "memory/2026-01-04.md"}


def test_note_moved_out_and_deleted_is_lost(tmp_path: Path) -> None:
    repo = workspace_with_archive(tmp_path)
    repo.commit(1)
    remove(repo.folder, "archive/2026-01-02.md")
    repo.commit(2)
    assert lost(repo.folder).keys() == {"memory/2026-01-02.md", "memory/2026-01-04.md"}


def test_note_moved_again_outside_stays_known(tmp_path: Path) -> None:
    repo = workspace_with_archive(tmp_path)
    repo.commit(1)
    move(repo.folder, ("archive/2026-01-02.md", "archive/2026/02.md"))
    repo.commit(2)
    moved = losses_of(repo.folder).moved
    assert moved["memory/2026-01-02.md"].moved_to == "archive/2026/02.md"


def test_note_moved_back_is_the_same_memory(tmp_path: Path) -> None:
    repo = workspace_with_archive(tmp_path)
    repo.commit(1)
    move(repo.folder, ("archive/2026-01-02.md", "memory/2026-01-02-again.md"))
    repo.commit(2)
    assert "memory/2026-01-02.md" not in lost(repo.folder)
    log = pd.DataFrame({"memory_id": ["memory/2026-01-02.md"], "at": [day(0.5)]})
    log["at"] = pd.to_datetime(log["at"], utc=True)
    now = follow_names(log, repo.folder)[c.MEMORY_ID].tolist()
    assert now == ["memory/2026-01-02-again.md"]


def test_symlinks_outside_the_store_are_skipped(tmp_path: Path) -> None:
    repo = workspace_with_archive(tmp_path)
    (repo.folder / "archive" / "link.md").symlink_to(tmp_path)
    (repo.folder / "loop").symlink_to(repo.folder)
    assert len(losses_of(repo.folder).moved) == 2


# The rule itself

WORDS = st.lists(st.sampled_from("abcdefghijklmnop"), min_size=0, max_size=40)
OLD_NAMES = [f"o{number}.md" for number in range(6)]
NEW_NAMES = [f"n{number}.md" for number in range(6)]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(st.sampled_from(OLD_NAMES), WORDS, max_size=5),
    st.dictionaries(st.sampled_from(NEW_NAMES), WORDS, max_size=5),
)
def test_each_file_takes_part_in_at_most_one_rename(
    before: dict[str, list[str]], after: dict[str, list[str]]
) -> None:
    texts: dict[str, bytes] = {}

    def file(name: str, words: list[str]) -> File:
        text = " ".join(words).encode()
        blob = text.hex()
        texts[blob] = text
        return File(name, blob)

    old = [file(name, words) for name, words in before.items()]
    new = [file(name, words) for name, words in after.items()]
    blobs = ([previous.blob for previous in old], [later.blob for later in new])
    contents = CommitContents(texts.get, lambda _: blobs, lambda: ({}, {}))
    renames = find_renames(old, new, contents, empty=[""])
    targets = list(renames.sure.values())
    assert renames.is_complete
    assert len(set(targets)) == len(targets)
    assert renames.sure.keys() <= before.keys()
    assert set(targets) <= after.keys()
    assert renames.sure.keys().isdisjoint(renames.doubtful)
    for name, new_name in renames.sure.items():
        assert set(before[name]) & set(after[new_name])


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
