"""Claude Code memories in sub-folders: recognition, index, plans and restore."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.compaction import keep_copies, recover
from memlab.errors import MemlabError
from memlab.evidence import harvest, read_access_log
from memlab.sources.kinship import kinships_of
from memlab.sources.opening import find_below, open_source
from memlab.sources.readers import Key
from memlab.systems.claude_code.index import MemoryIndex
from memlab.systems.claude_code.markdown import FileNames
from memlab.systems.claude_code.source import ClaudeCode
from memlab.testing.conformance import MODES, DeletingSuite
from memlab.upkeep.health import Check, doctor
from tests.sources.test_claude_code import ClaudeCodeLab
from tests.support.claude_store import (
    at,
    call,
    index_lines,
    memory,
    project_folder,
    with_subfolders,
    write_index,
    write_memory,
    write_transcript,
)
from tests.support.repositories import Repository
from tests.support.shell import output_of
from tests.support.stores import FileState
from tests.support.transcripts import Session, World


class ClaudeCodeBelowLab(ClaudeCodeLab):
    """A Claude Code folder with memories in sub-folders, a nested store and a document."""

    def fill(self, count: int) -> None:
        bodies = ("text", "né 北京 🦀 [[topic_1]] [[topic_3]]\r\n", "", "<b>" + "long " * 3000)
        for number in range(count):
            kind = "feedback" if number == 0 else "project"
            style = "type" if number == 0 else "modified"
            text = memory(
                f"topic {number}",
                kind,
                style=style,
                session=f"s{number % 3}",
                modified=at(number),
                body=bodies[number % 4],
            )
            path = write_memory(self.path, self.name_of(number), text, at(number))
            path.chmod(MODES[number % 5])
            lines = call("Write", path, at(number), "s", number)
            write_transcript(self.path.parent, f"s{number % 3}", lines)
        entries = [
            f"- [T{number}](<{self.name_of(number)}>) — hook {number}" for number in range(count)
        ]
        write_index(self.path, ["# Memory", "", *entries], end="")

    @staticmethod
    def name_of(number: int) -> str:
        folder = ("", "deploy/", "on call/eu/")[number % 3]
        return f"{folder}topic_{number}.md"

    def edit_index(self) -> bytes:
        path = self.path / "MEMORY.md"
        hand = (
            b"\n- [T11](<on call/eu/topic_11.md>) by hand, replaces [T1](deploy/topic_1.md) and "
            b"[[topic_2]]\n"
        )
        path.write_bytes(path.read_bytes().replace(b"# Memory\n", b"# By hand\n") + hand)
        return hand

    def others(self) -> dict[str, str]:
        text = memory("other")
        return {
            **super().others(),
            "other/MEMORY.md": text,
            "other/a.md": text,
            "archive/a.md": text,
            ".x/a.md": text,
            "deploy/README.md": text,
            "deploy/notes.md": "x\n",
        }

    def add_pair(self, number: int) -> None:
        names = [f"pairs/pair_{number}{side}.md" for side in "ab"]
        for name in names:
            text = f"---\nname: pair {number}\ntype: project\n---\n"
            write_memory(self.path, name, text, at(10_000 + number))
        entries = [f"- [P]({name})" for name in names]
        write_index(self.path, index_lines(self.path) + entries)

    def files(self) -> set[Path]:
        return {self.path / str(name) for name in self.memories(self.path)}

    @staticmethod
    def memories(folder: Path) -> list[str]:
        """Return the files that are memories by the documented rule."""
        document_names = {"README.md", "notes.md", "MEMORY.md", "RETIRED.md"}
        names = []
        for path in folder.rglob("*.md"):
            name = path.relative_to(folder).as_posix()
            is_document = path.name in document_names
            is_hidden = path.name.startswith(".")
            is_in_unread_folder = name.startswith(("other/", "archive/", ".", "sub/"))
            if not (is_document or is_hidden or is_in_unread_folder):
                names.append(name)
        return names

    def exactly(self) -> dict[Key, Any]:
        lines = [line for line in index_lines(self.path) if "by hand" not in line]
        exact = {}
        for name, file in super(ClaudeCodeLab, self).exactly().items():
            naming_lines = [line for line in lines if str(name) in line]
            exact[name] = (*file, naming_lines)
        return exact


class TestClaudeCodeBelow(DeletingSuite):
    lab_type = ClaudeCodeBelowLab


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return tmp_path


@pytest.fixture
def folder(home: Path) -> Path:
    return with_subfolders(project_folder(home))


def state(folder: Path) -> dict[str, FileState]:
    """Return the state of every file and sub-folder."""
    paths = sorted(folder.rglob("*"))
    return {path.relative_to(folder).as_posix(): FileState.of(path) for path in paths}


def ids(folder: Path | str) -> set[str]:
    return set(memlab.load(folder)[c.MEMORY_ID])


# Which files are memories

TYPED = memory("x", style="metadata")
FILES = {
    "deploy/a.md": (TYPED, True),
    "deploy/eu/west/a.md": (TYPED, True),
    "deploy/feedback_tests.md": (memory("x", "feedback", style="type"), True),
    "deploy/no type.md": ("# Notes\n", False),
    "deploy/skill.md": ("---\nname: x\ndescription: does it\n---\n", False),
    "deploy/api.md": ("---\ntitle: API\ntype: reference\n---\n", False),
    "deploy/own type.md": ("---\ntype: runbook\n---\n", False),
    "deploy/README.md": (TYPED, False),
    "deploy/CLAUDE.md": (TYPED, False),
    "deploy/RETIRED.md": (TYPED, False),
    "deploy/.draft.md": (TYPED, False),
    "deploy/a.txt": (TYPED, False),
    ".hidden/a.md": (TYPED, False),
    "deploy/.git/a.md": (TYPED, False),
    "node_modules/x/a.md": (TYPED, False),
    "archive/a.md": (TYPED, False),
    "deploy/_Archive/a.md": (TYPED, False),
    "retired/a.md": (TYPED, False),
    "x.md/a.md": (TYPED, False),
    "a/b/c/d/e/f/g/h/a.md": (TYPED, True),
    "a/b/c/d/e/f/g/h/i/a.md": (TYPED, False),
}
"""Files below a memory location, and whether they are memories."""


@pytest.mark.parametrize("name", FILES)
def test_typed_file_of_a_sub_folder_is_a_memory(home: Path, name: str) -> None:
    folder = project_folder(home)
    text, is_memory = FILES[name]
    write_memory(folder, name, text, at(0))
    write_memory(folder, "top.md", "No type.\n", at(1))
    write_index(folder, [f"- [A](<{name}>)", "- [Top](top.md)"])
    expected = {name, "top.md"} if is_memory else {"top.md"}
    assert ids(folder) == expected


def test_folder_outside_claude_code_reads_no_sub_folders(tmp_path: Path) -> None:
    folder = with_subfolders(tmp_path / "notes")
    assert ids(folder) == {f"topic_{number}.md" for number in range(6)}
    (check,) = [check for check in doctor(folder).checks if check.name == "sub_folders"]
    assert "not read, not counted" in check.summary


def test_linked_sub_folder_is_not_entered(home: Path, folder: Path) -> None:
    elsewhere = home / "elsewhere"
    write_memory(elsewhere, "a.md", TYPED)
    (folder / "link").symlink_to(elsewhere)
    assert not any(name.startswith("link/") for name in ids(folder))


def test_sub_folder_with_an_index_is_a_separate_store(folder: Path) -> None:
    assert not any(name.startswith("other/") for name in ids(folder))
    assert ids(folder / "other") == {"n0.md", "n1.md"}
    assert [store.path for store in find_below([folder]).stores] == [folder, folder / "other"]
    assert "1 sub-folder has MEMORY.md" in output_of("show", folder)


def test_doubtful_type_by_folder_name_is_load_bearing(home: Path) -> None:
    folder = project_folder(home)
    write_memory(folder, "feedback/a.md", memory("a"), at(0))
    write_memory(folder, "deploy/a.md", memory("a"), at(1))
    write_index(folder, ["- [A](feedback/a.md)", "- [B](deploy/a.md)"])
    frame = memlab.load(folder).set_index(c.MEMORY_ID)
    assert frame[c.LOAD_BEARING].to_dict() == {"feedback/a.md": True, "deploy/a.md": False}


# Links

NAMES = FileNames(
    Path("/m/memory"),
    {"a.md", "deploy/a.md", "deploy/b.md", "deploy/c d.md", "x/deep/e.md", "x/é.md"},
    {"an alias": "deploy/b.md"},
)
LINKS = {
    ("", "a.md"): "a.md",
    ("", "a"): "a.md",
    ("", "deploy/a.md"): "deploy/a.md",
    ("", "./deploy/b.md#part"): "deploy/b.md",
    ("", "deploy/c%20d.md"): "deploy/c d.md",
    ("", "<deploy/c d.md>"): "deploy/c d.md",
    ("", "DEPLOY/B.md"): "deploy/b.md",
    ("", "x/e\u0301.md"): "x/é.md",
    ("", "an alias"): "deploy/b.md",
    ("", "memory/deploy/b.md"): "deploy/b.md",
    ("", "/m/memory/deploy/b.md"): "deploy/b.md",
    ("", "e"): "x/deep/e.md",  # the only file of that name
    ("", "e.md"): None,
    ("", "b.md"): None,
    ("", "/deploy/b.md"): None,
    ("", "../deploy/b.md"): None,
    ("", "docs/b.md"): None,
    ("", "https://host/deploy/b.md"): None,
    ("deploy", "a.md"): "deploy/a.md",
    ("deploy", "b"): "deploy/b.md",
    ("deploy", "../a.md"): "a.md",
    ("deploy", "../x/deep/e.md"): "x/deep/e.md",
    ("deploy", "x/deep/e.md"): "x/deep/e.md",  # relative to the memory folder, as agents write it
    ("deploy", "../../a.md"): None,
    ("x/deep", "e.md"): "x/deep/e.md",
}
"""File of each link target, by the sub-folder in which the link stands."""


@pytest.mark.parametrize(("base", "target"), LINKS)
def test_link_is_resolved_from_its_folder(base: str, target: str) -> None:
    linking_file = f"{base}/x.md" if base else "x.md"
    assert NAMES.for_links_in(linking_file).file_of(target) == LINKS[base, target]


@given(st.lists(st.sampled_from(["a.md", "deploy/a.md", "docs/x.md", "../y.md", "z"]), max_size=6))
def test_sub_folders_change_neither_prose_nor_dead_links(targets: list[str]) -> None:
    lines = [f"- [T]({target}) ".ljust(30, ".") for target in targets]
    index = MemoryIndex("\n".join(lines).encode())
    local = [target for target in targets if "/" not in target]
    dangling = [target for _, target in index.dangling(FileNames(Path("/m"), set()))]
    assert dangling == local
    most_links_leave_the_folder = len(targets) > 2 * len(local)
    assert index.is_prose == most_links_leave_the_folder


def links_check(folder: Path) -> Check:
    """Return the doctor's check of the index links."""
    checks = {check.name: check for check in doctor(folder).checks}
    return checks["index_links"]


def test_dead_link_into_a_sub_folder_is_reported_and_removed(folder: Path) -> None:
    lines = index_lines(folder)
    dead_line = "- [gone two](deploy/gone_two.md) — hook"
    write_index(folder, [*lines, dead_line])
    assert links_check(folder).counts == {"found": 1}
    assert f"line {len(lines) + 1}: deploy/gone_two.md" in links_check(folder).summary
    assert "deploy/gone_two.md" in output_of("show", folder)
    memlab.apply(memlab.plan_index(folder))
    assert dead_line not in index_lines(folder)
    assert links_check(folder).counts == {"found": 0}


def test_link_to_a_missing_sub_folder_is_named_and_stays(folder: Path) -> None:
    line = "- [A document](docs/gone.md) — hook"
    write_index(folder, [*index_lines(folder), line])
    check = links_check(folder)
    assert check.status == "OK"
    assert "1 link not found below the folder" in check.summary
    assert "docs/gone.md" in check.summary
    assert "docs/gone.md" in output_of("show", folder)
    memlab.apply(memlab.plan_index(folder))
    assert line in index_lines(folder)


@pytest.mark.parametrize(
    "target",
    [
        "../deploy/x.md",
        "/deploy/x.md",
        "~/deploy/x.md",
        "https://host/deploy/x.md",
        "other/x.md",  # in a nested store
        "archive/x.md",  # in a folder that is not read
        "deploy/x.py",
        "deploy/deploy_0.md",
    ],
)
def test_link_out_of_the_folder_is_not_dead(folder: Path, target: str) -> None:
    write_index(folder, [*index_lines(folder), f"- [T]({target}) — hook"])
    check = links_check(folder)
    assert check.summary == "no link of MEMORY.md leads to a missing file of the folder"


def test_link_to_a_file_moved_out_of_a_sub_folder_stays(folder: Path) -> None:
    line = "- [moved](deploy/topic_1.md) — hook"
    write_index(folder, [*index_lines(folder), line])
    plan = memlab.plan_index(folder)
    assert any("a file of that name is topic_1.md" in row.reason for row in plan.lines)
    assert line in plan.text.splitlines()


def test_links_of_a_hub_are_resolved_from_its_folder(folder: Path) -> None:
    frame = memlab.load(folder).set_index(c.MEMORY_ID)
    assert "deploy/INDEX.md" not in frame.index
    reached = frame.index[frame["index_state"] == "reached"]
    assert set(reached) == {"deploy/deploy_0.md", "deploy/deploy_1.md"}


def test_list_of_links_into_sub_folders_is_a_hub(folder: Path) -> None:
    text = "# All\n- [0](deploy/deploy_0.md)\n- [3](billing/eu/billing_0.md)\n"
    write_memory(folder, "all.md", text, at(50))
    write_index(folder, [*index_lines(folder), "- [All](all.md)"])
    assert "all.md" not in ids(folder)
    write_memory(folder, "docs.md", "# Docs\n- [0](docs/0.md)\n- [1](docs/1.md)\n", at(51))
    assert "docs.md" in ids(folder)


def test_hub_leads_to_hubs_in_sub_folders(home: Path) -> None:
    folder = project_folder(home)
    for area in ("deploy", "billing"):
        for number in range(2):
            text = memory(f"{area} {number}", style="type")
            write_memory(folder, f"{area}/{number}.md", text, at(number))
        write_memory(folder, f"{area}/INDEX.md", "- [0](0.md)\n- [1](1.md)\n", at(3))
    areas = "# Areas\n- [Deploying](deploy/INDEX.md)\n- [Billing](billing/INDEX.md)\n"
    write_memory(folder, "areas.md", areas, at(4))
    write_index(folder, ["- [Areas](areas.md)"])
    frame = memlab.load(folder).set_index(c.MEMORY_ID)
    assert sorted(frame.index) == ["billing/0.md", "billing/1.md", "deploy/0.md", "deploy/1.md"]
    assert set(frame["index_state"]) == {"reached"}


def test_wiki_link_to_a_sub_folder_is_a_reference(folder: Path) -> None:
    frame = memlab.load(folder).set_index(c.MEMORY_ID)
    assert list(frame["evidence_refs"]["topic_1.md"]) == ["deploy/deploy_1.md"]
    assert list(frame["evidence_refs"]["deploy/deploy_0.md"]) == ["topic_0.md"]


def test_index_of_sub_folders_alone_is_not_prose(home: Path) -> None:
    folder = project_folder(home)
    for number in range(3):
        write_memory(folder, f"deploy/{number}.md", memory(str(number)), at(number))
    write_index(folder, [f"- [{number}](deploy/{number}.md) — hook" for number in range(3)])
    assert "sections" not in output_of("show", folder)


def test_index_of_hubs_in_sub_folders_is_not_prose(home: Path) -> None:
    folder = project_folder(home)
    for number in range(2):
        write_memory(folder, f"deploy/{number}.md", memory(str(number)), at(number))
    write_memory(folder, "deploy/INDEX.md", "- [0](0.md)\n- [1](1.md)\n", at(2))
    write_index(folder, ["- [Deploying](deploy/INDEX.md) — all of it"])
    assert "sections" not in output_of("show", folder)


# Deletion and restore


@pytest.mark.parametrize("retire", [False, True])
@pytest.mark.parametrize("keep", [0, 3])
def test_undo_restores_every_byte_and_permission(folder: Path, keep: int, retire: bool) -> None:
    (folder / "deploy").chmod(0o750)
    (folder / "deploy/deploy_2.md").chmod(0o640)
    before = state(folder)
    plan = memlab.plan(folder, memlab.KeepRecent(keep), retire=retire)
    changed = plan.retires if retire else plan.memories
    assert any("/" in memory_to_change.memory_id for memory_to_change in changed)
    receipt = memlab.apply(plan, all_prunable=True)
    assert state(folder).keys() >= {name for name in before if not name.endswith(".md")}
    memlab.restore(receipt)
    assert state(folder) == before


def test_only_indexed_memories_are_deleted(folder: Path) -> None:
    before = state(folder)
    memlab.apply(memlab.plan(folder, memlab.KeepRecent(0)), all_prunable=True)
    deleted = before.keys() - state(folder).keys()
    assert deleted == {
        "topic_0.md",
        "topic_1.md",
        "topic_2.md",
        "topic_4.md",
        "topic_5.md",
        "deploy/deploy_2.md",
        "deploy/deploy_3.md",
        "billing/eu/billing_0.md",
        "billing/eu/billing_1.md",
        "billing/eu/billing_2.md",
    }
    file_names = FileNames(folder, {name for name in before if name.endswith(".md")})
    index = MemoryIndex((folder / "MEMORY.md").read_bytes())
    assert index.blocks_by_file(file_names).keys() == {"topic_3.md", "deploy/INDEX.md"}


def test_restore_recreates_a_missing_sub_folder(folder: Path) -> None:
    before = state(folder)
    receipt = memlab.apply(memlab.plan(folder, ids=["billing/eu/billing_0.md"]))
    shutil.rmtree(folder / "billing")
    memlab.restore(receipt)
    name = "billing/eu/billing_0.md"
    assert state(folder)[name] == before[name]


def test_restore_works_if_the_sub_folder_became_a_store(folder: Path) -> None:
    before = state(folder)
    receipt = memlab.apply(memlab.plan(folder, ids=["deploy/deploy_2.md"]))
    (folder / "deploy/MEMORY.md").write_text("- [0](deploy_0.md)\n")
    memlab.restore(receipt)
    assert state(folder)["deploy/deploy_2.md"] == before["deploy/deploy_2.md"]


def test_restore_works_in_a_copied_folder_elsewhere(folder: Path, tmp_path: Path) -> None:
    before = state(folder)
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(0)), all_prunable=True)
    moved = tmp_path / "elsewhere" / "memory"
    shutil.copytree(folder.parent, moved.parent)
    memlab.restore(receipt.digest, store=moved)
    after = state(moved)
    assert after.keys() == before.keys()
    for name, file in after.items():
        assert file.content == before[name].content


def test_file_in_place_of_a_sub_folder_stops_the_restore(folder: Path) -> None:
    receipt = memlab.apply(memlab.plan(folder, ids=["billing/eu/billing_0.md"]))
    shutil.rmtree(folder / "billing")
    (folder / "billing").write_text("a file\n")
    before = state(folder)
    with pytest.raises(MemlabError):
        memlab.restore(receipt)
    assert state(folder) == before


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a/", "a/b/", "c d/"]), st.booleans()),
        min_size=2,
        max_size=9,
    ),
    st.integers(0, 5),
    st.booleans(),
)
def test_random_folders_are_restored_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory,
    places: list[tuple[str, bool]],
    keep: int,
    retire: bool,
) -> None:
    folder = project_folder(tmp_path_factory.mktemp("home"))
    lines = ["# Memory"]
    for number, (place, is_named) in enumerate(places):
        name = f"{place}m{number}.md"
        text = memory(name, style="type", body=f"See [[m{number // 2}]]")
        write_memory(folder, name, text, at(number))
        if is_named:
            lines.append(f"- [M](<{name}>), see [[m{number // 2}]]")
        else:
            lines.append("Words.")
    write_index(folder, lines, end="")
    before = state(folder)
    plan = memlab.plan(folder, memlab.KeepRecent(keep), retire=retire)
    if plan.memories or plan.retires:
        memlab.restore(memlab.apply(plan, all_prunable=True))
    assert state(folder) == before


def test_line_is_added_for_an_unlisted_file(folder: Path) -> None:
    before = state(folder)
    write_memory(folder, "deploy/new one.md", memory("new one", style="type"), at(60))
    receipt = memlab.apply(memlab.plan_index(folder))
    added = index_lines(folder)[-1]
    assert added == "- [new one](<deploy/new one.md>) — about new one"
    memlab.restore(receipt)
    assert state(folder)["MEMORY.md"] == before["MEMORY.md"]


def test_dead_link_to_a_file_moved_into_a_sub_folder_stays(folder: Path) -> None:
    (folder / "topic_0.md").rename(folder / "deploy/topic_0.md")
    mend = memlab.plan_index(folder)
    (line,) = [line for line in mend.lines if line.file == "topic_0.md"]
    assert line.reason == "a file of that name is deploy/topic_0.md: link that, or move it up"


# Merging folders


def test_merge_keeps_paths_of_sub_folders(home: Path, folder: Path) -> None:
    other = project_folder(home, "-home-u-other")
    write_memory(other, "x.md", memory("x", style="type"), at(0))
    write_index(other, ["- [X](x.md)"])
    before = state(folder)
    other_before = state(other)
    receipt = memlab.apply(memlab.plan(folder, into=other))
    copied = "billing/eu/billing_1.md"
    assert (other / copied).read_bytes() == before[copied].content
    assert "- [billing 1](billing/eu/billing_1.md) — hook" in index_lines(other)
    memlab.restore(receipt)
    assert state(folder) == before
    other_files = {name: file for name, file in state(other).items() if name.endswith(".md")}
    assert other_files == other_before


@pytest.mark.parametrize("is_link", [False, True])
def test_merge_leaves_files_that_do_not_fit_the_target(
    home: Path, folder: Path, is_link: bool
) -> None:
    other = project_folder(home, "-home-u-other")
    write_memory(other, "x.md", memory("x", style="type"), at(0))
    write_index(other, ["- [X](x.md)"])
    if is_link:
        (other / "billing").symlink_to(home)
    else:
        write_index(other / "billing", ["- nothing"])
    memlab.apply(memlab.plan(folder, into=other))
    assert (folder / "billing/eu/billing_1.md").exists()
    assert not (other / "billing/eu").exists()
    assert (other / "deploy/deploy_2.md").exists()


def test_equal_memories_in_sub_folders_count_for_kinship(home: Path, folder: Path) -> None:
    other = project_folder(home, "-home-u-other")
    for number in range(3):
        name = f"billing/eu/billing_{number}.md"
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, other / name)
    write_index(other, [f"- [B](billing/eu/billing_{number}.md)" for number in range(3)])
    (kinship,) = kinships_of(open_source(other))
    assert kinship.equal == 3


# The past in git, and copies


def committed(folder: Path) -> Repository:
    repository = Repository(folder)
    repository.commit(0)
    return repository


def lost_names(folder: Path) -> set[str]:
    return set(memlab.lost(folder)[c.MEMORY_ID])


def test_git_finds_deletions_in_a_sub_folder(folder: Path) -> None:
    repository = committed(folder)
    (folder / "deploy/deploy_2.md").unlink()
    assert lost_names(folder) == {"deploy/deploy_2.md"}
    repository.commit(1)
    assert lost_names(folder) == {"deploy/deploy_2.md"}


def test_move_into_a_sub_folder_is_a_rename(folder: Path) -> None:
    repository = committed(folder)
    (folder / "topic_0.md").rename(folder / "deploy/topic_0.md")
    repository.commit(1)
    assert lost_names(folder) == set()
    (former,) = ClaudeCode(folder).external_history.former_names()
    assert former.name == "topic_0.md"
    assert former.memory_id == "deploy/topic_0.md"


@pytest.mark.parametrize("is_tracked", [True, False])
def test_memories_of_a_nested_store_are_not_lost(folder: Path, is_tracked: bool) -> None:
    if not is_tracked:
        (folder / ".gitignore").write_text("other/MEMORY.md\n")
    repository = committed(folder)
    assert lost_names(folder) == set()
    (folder / "other/n0.md").unlink()
    assert lost_names(folder) == set()
    repository.commit(1)
    assert lost_names(folder) == set()
    shutil.rmtree(folder / "other")
    repository.commit(2)
    if is_tracked:
        assert lost_names(folder) == set()


def test_document_deleted_in_a_sub_folder_is_not_lost(folder: Path) -> None:
    committed(folder)
    (folder / "deploy/notes.md").unlink()
    assert lost_names(folder) == set()


def test_copy_of_a_memory_in_a_sub_folder_is_recovered(folder: Path) -> None:
    before = state(folder)
    keep_copies(folder)
    shutil.rmtree(folder / "billing")
    assert lost_names(folder) == {f"billing/eu/billing_{number}.md" for number in range(3)}
    recover(folder)
    name = "billing/eu/billing_1.md"
    assert state(folder)[name].content == before[name].content


# Reads


def test_reads_in_sub_folders_are_harvested(home: Path) -> None:
    world = World(home / "w", 0)
    with_subfolders(world.folder)
    session = Session(world, "reading", "-work-app")
    paths = (
        "deploy/deploy_0.md",
        "billing/eu/billing_1.md",
        "other/n0.md",  # of another store
        "archive/old.md",
        "deploy/MEMORY.txt",
    )
    for name in paths:
        session.call("Read", {"file_path": f"{world.folder}/{name}"})
    session.call("Bash", {"command": f"cat {world.folder}/deploy/deploy_1.md"})
    session.call("Bash", {"command": f"cd {world.folder}/deploy && head -3 deploy_2.md"})
    session.call("Bash", {"command": f"python x.py {world.folder}/deploy/deploy_3.md"})
    session.call("Grep", {"path": f"{world.folder}/deploy", "output_mode": "content"})
    world._save(session)
    harvested = harvest(world.folder, home / "reads.log")
    assert sorted(read_access_log(harvested.log)[c.MEMORY_ID]) == [
        "billing/eu/billing_1.md",
        "deploy/deploy_0.md",
        "deploy/deploy_1.md",
        "deploy/deploy_2.md",
    ]
    counts = {reason: count for reason, count in harvested.left_out.items() if count}
    assert counts == {
        "files that are no memories": 2,
        "shell commands that name a memory in a way that memlab cannot resolve": 1,
        "searches over several files, or that show names alone": 1,
    }


def test_tool_call_in_a_sub_folder_dates_the_file(home: Path) -> None:
    folder = project_folder(home)
    path = write_memory(folder, "deploy/a.md", memory("a", style="type"), at(9))
    write_transcript(folder.parent, "s", call("Write", path, at(3), "s", 1))
    write_index(folder, ["- [A](deploy/a.md)"])
    created = memlab.load(folder)[c.CREATED_AT][0]
    assert created == at(3)
