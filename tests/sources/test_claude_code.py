"""Claude Code memory: loaded and cut index lines, dates, compaction and restore."""

import json
import os
import random
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import memlab
from memlab.charts import plot_growth
from memlab.compaction.reclaim import space
from memlab.errors import CompactionError, MemlabError, StalePlanError, StoreError
from memlab.evidence import count_references, reads_missed_by_index_cut
from memlab.sources.readers import Key
from memlab.store.records import encoded, with_place, without_place
from memlab.systems.claude_code import index as indexes
from memlab.systems.claude_code.source import ClaudeCode
from memlab.testing.conformance import DeletingSuite, delete_all, put_back, records_of
from memlab.testing.labs import MODES, FilesLab
from memlab.upkeep.health import Status, doctor
from memlab.views.findings import Findings, examine
from memlab.views.page import sections_of
from tests.charts.reading import note
from tests.support.claude_store import (
    STYLES,
    at,
    call,
    index_lines,
    memory,
    project_folder,
    write_index,
    write_memories,
    write_memory,
    write_transcript,
)
from tests.support.paths import link_to_a_device
from tests.support.shell import output_of, undo_in
from tests.support.stores import files_in


class ClaudeCodeLab(FilesLab):
    """A project folder with transcripts, in which the index names every memory."""

    where = ".claude/projects/-home-u-work/memory"
    in_one_step = False

    def fill(self, count: int) -> None:
        styles = ("origin", "modified", "type", "none", "node origin", "broken")
        bodies = ("text", "né 北京 🦀 [[topic_1]] [[topic_3]]\r\n", "", "<b>" + "long " * 3000)
        for number in range(count):
            kind = "feedback" if number == 0 else "project"
            style = "type" if number == 0 else styles[number % 6]
            session = f"s{number % 3}"
            title = f"topic {number}"
            body = bodies[number % 4]
            text = memory(title, kind, style=style, session=session, modified=at(number), body=body)
            path = write_memory(self.path, f"topic_{number}.md", text, at(number))
            path.chmod(MODES[number % 5])
            write_transcript(path.parents[1], session, call("Write", path, at(number), "s", number))
        entries = [f"- [T{number}](topic_{number}.md) — hook {number}" for number in range(count)]
        write_index(self.path, ["# Memory", "", *entries], end="")

    def edit_index(self) -> bytes:
        path = self.path / "MEMORY.md"
        hand = b"\n- [T11](topic_11.md) by hand, replaces [T1](topic_1.md) and [[topic_2]]\n"
        path.write_bytes(path.read_bytes().replace(b"# Memory\n", b"# By hand\n") + hand)
        return hand

    def index(self) -> bytes:
        return (self.path / "MEMORY.md").read_bytes()

    def others(self) -> dict[str, str]:
        beside = {"README.md": "of the folder\n", "sub/a.md": "deeper\n", "RETIRED.txt": "x\n"}
        return {**super().others(), **beside}

    def add_pair(self, number: int) -> None:
        names = [f"pair_{number}{side}.md" for side in "ab"]
        for name in names:
            text = f"---\nname: pair {number}\ntype: project\n---\n"
            write_memory(self.path, name, text, at(10_000 + number))
        entries = [f"- [P]({name})" for name in names]
        write_index(self.path, index_lines(self.path) + entries)

    def files(self) -> set[Path]:
        return {*self.path.glob("*.md")} - {self.path / "MEMORY.md"}

    def exactly(self) -> dict[Key, Any]:
        lines = [line for line in index_lines(self.path) if "by hand" not in line]
        exact = {}
        for name, file in super().exactly().items():
            naming_lines = [line for line in lines if str(name) in line]
            exact[name] = (*file, naming_lines)
        return exact


class TestClaudeCode(DeletingSuite):
    lab_type = ClaudeCodeLab


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project_folder(tmp_path)


# Loaded memories


def test_tokens_of_a_memory_are_those_of_its_index_line(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a", body="x" * 40_000), at(0))
    write_memory(folder, "b.md", memory("b"), at(1))
    write_index(folder, ["<!-- [A](a.md) -->", "- [A](a.md) — hook", "- [B](b.md) — another"])
    frame = memlab.load(folder)
    assert frame["tokens"].tolist() == [5, 6]
    assert frame["chars"][0] > 40_000
    assert memlab.load(folder, count_tokens=len)["tokens"].tolist() == [19, 22]


def test_lines_below_the_index_cut_are_not_loaded(folder: Path) -> None:
    names = [f"f{number}" for number in range(210)]
    write_memories(folder, *names)
    write_index(folder, index_lines(folder)[:205])
    frame = memlab.load(folder)
    assert frame["active"].tolist() == [True] * 205 + [False] * 5
    assert frame["loaded_at_start"].tolist() == [True] * 200 + [False] * 10
    costs = frame["tokens"]
    assert costs[199] > 0
    assert costs[204] == costs[199], "the cost of its line if it were loaded"
    assert costs[205] == 0, "it has no line"


@pytest.fixture
def cut_folder(folder: Path) -> Path:
    """Make a folder of 235 memories, 4 of them load-bearing; the index is cut after 200 lines."""
    for number in range(235):
        kind = "feedback" if number in (0, 1, 230, 231) else "project"
        write_memory(folder, f"m{number}.md", memory(f"m {number}", kind), at(number))
    write_index(folder, [f"- [M {number}](m{number}.md)" for number in range(235)])
    return folder


def test_size_says_that_memories_below_the_cut_are_never_loaded(cut_folder: Path) -> None:
    answer = memlab.size(cut_folder).answer
    assert answer.startswith("Keep all for now: ")
    assert "But 35 memories are below the cut of the index and never loaded: " in answer
    assert f"memlab compact {cut_folder} --keep-recent 195 --retire" in answer
    assert str(memlab.size(cut_folder)).startswith("Keep all for now: ")


def test_recommended_retirement_makes_room_for_the_lines_below_the_cut(cut_folder: Path) -> None:
    memlab.apply(memlab.plan(cut_folder, memlab.KeepRecent(195), retire=True))
    frame = memlab.load(cut_folder)
    assert frame["loaded_at_start"].sum() == 199
    assert frame["active"].sum() == 199


def test_summary_counts_prunable_memories_below_the_cut(cut_folder: Path) -> None:
    page = str(memlab.show(cut_folder))
    assert "231 prunable memories, 198 of them loaded now" in page
    assert "a cap could delete them all" in page


def test_path_of_the_index_is_refused_with_the_folder_to_name(folder: Path) -> None:
    write_memories(folder, "a")
    with pytest.raises(StoreError, match=f"is a file of a store, .* name {folder}"):
        memlab.show(folder / "MEMORY.md")


def test_user_and_feedback_memories_are_load_bearing(folder: Path) -> None:
    for number, kind in enumerate(("user", "feedback", "project", "reference", "", "Feedback")):
        write_memory(folder, f"{number}.md", memory("m", kind), at(number))
    for number, style in enumerate(STYLES, 6):
        write_memory(folder, f"{number:02}.md", memory("m", "user", style=style), at(number))
    write_memory(folder, "8.md", memory("8", body="not m"), at(90))
    frame = memlab.load(folder, with_body=True)
    by_kind = [True, True, False, False, True, True]
    by_style = [style != "none" for style in STYLES]
    assert frame["load_bearing"].tolist() == [*by_kind, *by_style, False]
    assert frame["tags"].tolist()[:3] == [("user",), ("feedback",), ("project",)]
    assert frame["title"].tolist()[-4:] == ["m: about m", "12", "m: of all: [m", "about 8"]
    assert frame["body"].tolist()[-2:] == ["What was found out.", "not m"]


def test_links_between_memories_are_references(folder: Path) -> None:
    texts = {"a": "[[b]] [[a]]", "b": "[[a|x]] [[ a#p ]]", "c": "[[B]] [[gone]] [[name of a]]"}
    for number, (name, body) in enumerate(texts.items()):
        text = memory(f"name of {name}", body=body)
        write_memory(folder, f"{name}.md", text, at(number))
    references = memlab.load(folder)["evidence_refs"].tolist()
    assert references == [("b.md",), ("a.md",), ("b.md", "a.md")]


# Creation times


def test_created_at_is_the_earliest_known_time(folder: Path) -> None:
    for name, modified, written in (
        ("a", 5, 50),
        ("b", 6, 50),
        ("c", None, 50),
        ("d", None, 7),
        ("e", None, 8),
    ):
        text = memory(name, style="origin")
        if modified is not None:
            text = memory(name, style="modified", modified=at(modified))
        write_memory(folder, f"{name}.md", text, at(written))
    calls = [("Write", "b.md", 2), ("Edit", "b.md", 3), ("Write", "c.md", 1), ("Write", "a.md", 9)]
    calls += [("Read", "d.md", 0), ("Write", "../elsewhere/d.md", 0)]
    calls += [("Edit", "e.md", 60)]  # the first transcript kept for 30 days
    for number, (tool, name, hour) in enumerate(calls):
        path = Path(os.path.normpath(folder / name))
        write_transcript(folder.parent, "s", call(tool, path, at(hour), "s", number))
    nonsense = '{"type":"assistant","timestamp":"no time","message":{"content":"x"}}'
    write_transcript(folder.parent, "s", [nonsense, '{"broken "name":"Write" memory'])
    created = memlab.load(folder).set_index("memory_id")["created_at"]
    assert created.to_dict() == {
        "c.md": at(1),
        "b.md": at(2),
        "a.md": at(5),
        "d.md": at(7),
        "e.md": at(8),
    }
    records = dict(records_of(folder, list(created.index)))
    origins = {name: json.loads(record)["place"]["dated"] for name, record in records.items()}
    assert origins == {
        "c.md": "transcripts",
        "b.md": "transcripts",
        "a.md": "front matter",
        "d.md": "file time",
        "e.md": "file time",
    }


@pytest.mark.parametrize("newest_first", [False, True])
def test_copied_files_are_dated_by_their_index_lines(folder: Path, newest_first: bool) -> None:
    """Files of known time show which end of the index is the newer one."""
    names = [f"{name:02}.md" for name in random.Random(7).sample(range(40), 40)]
    names_of_known_time = names[3:39:7]
    name_written_after_the_copy = names[-1]
    for age, name in enumerate(names):
        style = "modified" if name in names_of_known_time else "origin"
        text = memory(name, style=style, modified=at(age))
        file_time = at(900) + timedelta(milliseconds=7 * int(name[:2]))
        if name == name_written_after_the_copy:
            file_time = at(901)
        write_memory(folder, name, text, file_time)
    order = names[::-1] if newest_first else names
    write_index(folder, [f"- [T]({name})" for name in order])
    before = memlab.load(folder)
    assert before["memory_id"].tolist() == names
    assert before["created_at"][3:39:7].tolist() == [at(age) for age in range(3, 39, 7)]
    assert dict(ClaudeCode(folder).extra_report().fields["dated"]) == {
        "front matter": len(names_of_known_time),
        "file time": 1,
        "line of MEMORY.md": 39 - len(names_of_known_time),
    }
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(10)))
    assert memlab.load(folder)["memory_id"].tolist() == names[-10:]
    assert memlab.load_past(folder)["memory_id"].tolist() == names
    memlab.restore(receipt)
    pd.testing.assert_frame_equal(memlab.load(folder), before)


def test_zero_file_times_are_not_replaced_by_index_order(folder: Path) -> None:
    nought = datetime.fromtimestamp(0, UTC)
    write_memory(folder, "a.md", memory("a", style="modified", modified=at(5)), nought)
    write_memory(folder, "b.md", memory("b"), nought)
    for number, name in enumerate(("d.md", "c.md", "e.md")):
        write_memory(folder, name, memory(name), at(6) + timedelta(seconds=number))
    write_index(folder, ["- [C](c.md)"])
    frame = memlab.load(folder)
    assert frame["memory_id"].tolist() == ["b.md", "a.md", "d.md", "c.md", "e.md"]
    assert frame["created_at"].tolist()[:2] == [nought, at(5)]


def test_transcripts_of_a_worktree_date_the_main_checkout(folder: Path) -> None:
    for name in ("a", "b", "c"):
        write_memory(folder, f"{name}.md", memory(name), at(500))
    worktree = folder.parent.with_name(f"{folder.parent.name}--worktrees-fix")
    write_transcript(worktree, "s1", call("Write", folder / "a.md", at(1), "s1", 1))
    agents = worktree / "s1" / "subagents"
    elsewhere = f"/home/other/.claude/projects/{folder.parent.name}/memory/b.md"
    write_transcript(agents, "agent-1", call("Write", elsewhere, at(2), "s1", 2))
    namesake = folder.parent.with_name("-home-u-other")
    write_transcript(namesake, "s2", call("Write", namesake / "memory" / "c.md", at(3), "s2", 3))
    (folder.parent.parent / "linked").symlink_to(namesake)
    frame = memlab.load(folder).set_index("memory_id")
    assert frame["created_at"].tolist() == [at(1), at(2), at(500)]
    assert dict(ClaudeCode(folder).extra_report().fields["dated"]) == {
        "transcripts": 2,
        "file time": 1,
    }
    write_transcript(worktree, "s1", call("Write", folder / "a.md", at(0), "s1", 9))
    assert memlab.load(folder)["created_at"][0] == at(0)  # read again, because it is another file


def test_folder_without_project_is_dated_by_files_alone(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "memory"
    write_memories(folder, "a")
    write_transcript(folder.parent, "s", call("Write", folder / "a.md", at(-1), "s", 1))
    assert memlab.load(folder)["created_at"].tolist() == [at(0)]


# Unusual files and folders


def test_symlink_to_the_folder_is_followed_but_none_inside(folder: Path, tmp_path: Path) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    (folder / "link.md").symlink_to(write_memory(tmp_path, "secret.md", "not of this folder"))
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.md")).write_text("x")
    write_index(folder, ["- [A](a.md)", "- [L](link.md)"])
    (tmp_path / "short").symlink_to(folder)
    for name in (folder, tmp_path / "short"):
        assert memlab.load(name)["memory_id"].tolist() == ["a.md"]


def link_to_a_memory(path: Path) -> None:
    path.symlink_to(path.with_name("a.md"))


def write_a_huge_file(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize(
    "make_index",
    [link_to_a_memory, link_to_a_device, Path.mkdir, os.mkfifo, write_a_huge_file],
)
def test_index_that_is_no_regular_file_is_rejected(
    folder: Path, make_index: Callable[[Path], Any]
) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    make_index(folder / "MEMORY.md")
    with pytest.raises(
        StoreError, match=r"MEMORY\.md is a link, not a file, .* put the file itself"
    ):
        memlab.load(ClaudeCode(folder))


def test_path_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in (tmp_path / "nowhere", tmp_path / "file", "a\0b"):
        with pytest.raises(StoreError, match=r"folder|opened"):
            memlab.load(ClaudeCode(name))


def test_parent_folder_names_the_folder_to_open(folder: Path) -> None:
    assert memlab.load(folder).empty
    write_memories(folder, "a")
    home = folder.parents[3]
    for above in (home, folder.parents[1], folder.parent):
        with pytest.raises(StoreError, match=f"no memories in {above}, but 1 store .* {folder}, "):
            memlab.load(f"claude:{above}")


# Changing


def test_only_a_changed_index_line_makes_a_plan_stale(folder: Path) -> None:
    write_memories(folder, "f0", "f1", "f2", "f3")
    lines = index_lines(folder)
    records = dict(records_of(folder, ["f0.md", "f1.md"]))
    write_memory(folder, "f9.md", memory("m"), at(9))
    edited = "- [T](f1.md) edited"
    write_index(folder, ["# New heading", "- [N](f9.md)", lines[0], lines[2], edited, lines[3]])
    before = files_in(folder)
    with pytest.raises(StalePlanError, match=r"f1\.md"):
        delete_all(folder, list(records.items()))
    assert files_in(folder) == before
    with ClaudeCode(folder).changing() as writer:
        assert writer.conflicts(records.items()) == ["file 'f0.md'", "file 'f1.md'"]
    delete_all(folder, [("f0.md", records["f0.md"])])
    assert index_lines(folder) == ["# New heading", "- [N](f9.md)", lines[2], edited, lines[3]]
    put_back(folder, [("f0.md", records["f0.md"])])
    assert files_in(folder) == before


def test_record_of_any_other_file_is_rejected(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    ((_, record),) = records_of(folder, ["a.md"])
    place = json.loads(record)["place"]
    for key, changed in (
        ("memlab.toml", {"name": "memlab.toml"}),
        ("MEMORY.md", {"name": "MEMORY.md"}),
        (".a.md", {"name": ".a.md"}),
        ("notes.sh", {"name": "notes.sh"}),
        ("a.md", {"name": "../a.md"}),
        ("a.md", {"name": "b.md"}),
        ("a.md", {"mode": "x"}),
        ("a.md", {"data": {"text": "zz"}}),
    ):
        row = json.loads(without_place(record))
        row["memory_id"] = key
        row["file"].update(changed)
        forged = with_place(encoded(row), place)
        with pytest.raises(ValueError, match=r"."):
            ClaudeCode(folder).check_record(key, forged, json.loads(forged))


def test_restored_file_gets_only_its_own_permission_bits(folder: Path) -> None:
    """A different group gets the permissions of others; set-id bits are not restored."""
    write_memory(folder, "a.md", memory("a"), at(0))
    records = records_of(folder, ["a.md"])
    ((key, record),) = records
    delete_all(folder, records)
    my_user = os.geteuid()
    my_group = os.getegid()
    row = json.loads(record)
    mode_in_another_group = {
        0o4755: 0o755,
        0o2775: 0o755,
        0o1664: 0o644,
        0o640: 0o600,
        0o4777: 0o777,
        0o400: 0o400,
    }
    users = (my_user, 1234)
    groups = (my_group, 2345)
    for folder_mode, mode, user, group in product(
        (0o700, 0o755, 0o2777), mode_in_another_group, users, groups
    ):
        folder.chmod(folder_mode)
        row["file"]["mode"] = mode
        row["file"]["owner"] = (user, group)
        put_back(folder, [(key, json.dumps(row).encode())])
        status = (folder / "a.md").stat()
        expected = mode & 0o777 if group == my_group else mode_in_another_group[mode]
        assert stat.S_IMODE(status.st_mode) == expected
        assert status.st_uid == my_user
        assert status.st_gid == my_group
        (folder / "a.md").unlink()


def test_file_written_during_deletion_stays(tmp_path: Path) -> None:
    lab = ClaudeCodeLab(tmp_path)
    lab.fill(12)
    planned = lab.path / "topic_1.md"
    rewritten = lab.path / "topic_11.md"

    def rewrite_and_move(step: str) -> None:
        if step == "deleted":
            planned.write_text("written again")
            rewritten.rename(tmp_path / "away.md")

    def write_another(step: str) -> None:
        if step == "deleted":
            write_memory(lab.path, "new.md", memory("new", "project"), at(99))

    plan = memlab.plan(lab.path, memlab.KeepRecent(4))
    with pytest.raises(CompactionError, match="try again when no program writes"):
        memlab.apply(plan, on_step=rewrite_and_move)
    (tmp_path / "away.md").rename(rewritten)
    assert len(lab.files()) == 12
    plan = memlab.plan(lab.path, memlab.KeepRecent(4))
    receipt = memlab.apply(plan, on_step=write_another)
    assert receipt.deleted == 7
    assert {path.name for path in lab.files()} >= {"new.md", rewritten.name}


# References, diagnostics, and losses of a cut index


def test_parallel_sessions_give_no_references(folder: Path) -> None:
    for number in range(33):
        write_memory(folder, f"{number}.md", memory("m", session=f"s{number % 3}"), at(number))
    frame = memlab.load(folder)
    assert frame["thread_id"].nunique() == 3
    assert count_references(frame)["counted"].sum() == 0


def test_doctor_uses_the_singular_for_one(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a", style="broken"))
    write_memory(folder, "b.md", memory("b", "no such type"))
    write_index(folder, ["- [a](a.md)", "- [gone](gone.md)", "## Empty"])
    summaries = {check.name: check.summary for check in doctor(folder).checks}
    assert summaries["front_matter"].startswith("1 of 2 files has front matter")
    assert summaries["types"].startswith("1 of 2 files has an unclear type, and counts as")
    assert summaries["index_links"].startswith("1 link of MEMORY.md leads to no file")
    assert summaries["unlisted"].startswith("1 of 2 files is named by nothing")
    assert summaries["empty_headings"].startswith("1 heading of MEMORY.md has nothing below")


def test_doctor_uses_the_plural_for_several(folder: Path) -> None:
    write_index(folder, ["- [one](one.md)", "- [two](two.md)", "## Empty", "## Empty too"])
    summaries = {check.name: check.summary for check in doctor(folder).checks}
    assert summaries["index_links"].startswith("2 links of MEMORY.md lead to no file")
    assert summaries["empty_headings"].startswith("2 headings of MEMORY.md have nothing below")


def test_doctor_names_broken_front_matter_links_and_lines(folder: Path) -> None:
    for name, style in (("a", "broken"), ("b", "origin"), ("c", "origin")):
        write_memory(folder, f"{name}.md", memory(name, style=style))
    web = "[web](https://x.y/z.md)"
    write_index(folder, ["- [a](a.md)", f"- [gone](gone.md), {web}", *["filler"] * 200, "- b.md"])
    warnings = {check.name: check for check in doctor(folder).checks if check.status is Status.WARN}
    assert {*warnings} == {"front_matter", "index_links", "index_cut", "unlisted"}
    assert all(check.advice for check in warnings.values())
    assert warnings["front_matter"].summary.startswith("1 of 3 files has front matter that is no")
    assert "a.md" in warnings["front_matter"].summary
    assert warnings["index_links"].summary.endswith("line 2: gone.md")
    assert warnings["index_cut"].counts == {"found": 1}
    assert f"memlab compact {folder} --keep-recent N --retire" in warnings["index_cut"].advice
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, ["- [a](a.md)", "- b.md", "- c.md"])
    assert doctor(folder).status is Status.OK


def test_space_of_a_folder_is_the_size_of_its_files(folder: Path) -> None:
    write_memories(folder, "a")
    measured = space(folder)
    assert measured.file == sum(map(len, files_in(folder).values()))
    assert measured.after_vacuum == measured.file
    assert measured.wal == 0
    assert measured.free == 0
    assert measured.archive == 0


@pytest.fixture
def long_index(folder: Path) -> Path:
    """Make a folder of 300 files; the index, oldest first, is cut after 200 lines."""
    for number in range(300):
        text = memory(f"m{number:03}", style="modified", modified=at(number))
        write_memory(folder, f"m{number:03}.md", text)
    entries = [f"- [m{number:03}](m{number:03}.md)" for number in range(299)]
    write_index(folder, ["# Memory", *entries])
    return folder


def write_log(folder: Path, reads: list[tuple[int, datetime]]) -> Path:
    """Write a log of reads beside a folder; a read is (number of the memory, time)."""
    log = folder.with_name("reads.jsonl")
    lines = [{"memory_id": f"m{number:03}.md", "at": when.isoformat()} for number, when in reads]
    log.write_text("\n".join(map(json.dumps, lines)))
    return log


def test_index_cut_loses_reads_of_lines_below_it(long_index: Path) -> None:
    numbers = [0] * 4 + [150] * 2 + [250] * 3 + [298] * 5 + [299] * 6 + [999]
    reads = [(number, at(4_000 + second / 3_600)) for second, number in enumerate(numbers)]
    log = write_log(long_index, reads)
    losses = reads_missed_by_index_cut(long_index, memlab.read_access_log(log))
    assert losses.reads == 20
    assert losses.unnamed == 6
    assert losses.lost == 8
    assert losses.loaded == {
        "as it stands": 6,
        "newest first": 10,
        "oldest first": 6,
        "most read first": 12,  # without the first read of a line below the cut
    }
    assert losses.below == 100
    assert set(losses.files.values()) == {199}
    assert losses.to_frame()["share"].tolist() == [0.3, 0.5, 0.3, 0.6]
    lines = output_of("show", long_index, "--log", log).splitlines()
    assert ["newest", "first", "199", "10", "50.0%"] in [line.split() for line in lines]
    with pytest.raises(MemlabError, match="has no index that a start loads"):
        reads_missed_by_index_cut(memlab.store_path("two_years"), memlab.read_access_log(log))


def test_read_is_compared_with_the_index_at_its_time(long_index: Path) -> None:
    read_while_newest = [(number, at(number + 0.5)) for number in range(299)]
    # Of 299 memories, these have the ranks 299, 200 and 199.
    read_late = [(number, at(298 + number)) for number in (0, 99, 100)]
    log = write_log(long_index, read_while_newest + read_late)
    losses = reads_missed_by_index_cut(long_index, memlab.read_access_log(log))
    assert losses.loaded["as it stands"] == 199 + 3
    assert losses.loaded["oldest first"] == 199 + 3
    assert losses.loaded["newest first"] == 299 + 1
    assert losses.loaded["most read first"] == 199 + 2 + 1


def test_report_shows_reads_lost_by_the_index_cut(long_index: Path) -> None:
    reads = [(number, at(4_000 + number)) for number in (0, 150, 250, 250, 298)]
    log = memlab.read_access_log(write_log(long_index, reads))
    now = at(5_000)

    def text_of_cut_section(examined: Findings) -> str:
        (section,) = [section for section in sections_of(examined) if section.anchor == "cut"]
        rows = [str(row) for row in section.tables[0].rows]
        return "\n".join([*section.paragraphs, *rows])

    without_log = text_of_cut_section(examine(long_index, now=now, keep_recent=146))
    assert "Transcripts record which memories are read. memlab harvest" in without_log
    examined = examine(long_index, now=now, keep_recent=146, log=log)
    with_log = text_of_cut_section(examined)
    assert "3 of memories whose line was cut" in with_log
    assert "100 of 299 named files have their line below the cut" in with_log
    assert "keep_recent = 146 leaves 146 of them; all fit." in with_log
    memlab.apply(memlab.plan(long_index, memlab.KeepRecent(146), now=now))
    boot = memlab.growth.summarize(memlab.load(long_index), now=now).boot
    assert examined.effect is not None
    assert boot.memories == 146
    assert examined.effect.after.memories == 146
    assert boot.tokens == examined.effect.after.tokens


def test_size_and_compact_report_a_cut_index(long_index: Path) -> None:
    loads = "is cut: a start loads 199 of the 299 memories that it names"
    assert loads in output_of("size", long_index)
    assert loads in output_of("compact", long_index, "--keep-recent", 146)
    write_index(long_index, [f"- [m{number:03}](m{number:03}.md)" for number in range(100)])
    assert "is cut" not in output_of("size", long_index)
    assert "is cut" not in output_of("compact", long_index, "--keep-recent", 146)


def test_chart_of_growth_does_not_say_that_memories_below_the_cut_are_loaded(
    long_index: Path,
) -> None:
    curve = memlab.growth_curve(long_index)
    assert curve.attrs["below_cut"] == 100
    assert "An agent loads all but 100 of them" in note(plot_growth(curve))


def test_receipt_tells_the_index_from_a_start_in_a_folder_of_any_name(
    long_index: Path, tmp_path: Path
) -> None:
    """Only the place of a folder, not its content, shows by its name that it has an index."""
    folder = long_index.rename(tmp_path / "notes")
    output = output_of("compact", folder, "--keep-recent", 146, "--retire", "--apply")
    _, receipt = output.split(" applied to ")
    assert "in the index  299 memories" in receipt
    assert "a start       199 memories" in receipt


def test_undo_of_a_retirement_says_what_is_active_again(long_index: Path) -> None:
    receipt = output_of("compact", long_index, "--keep-recent", 146, "--retire", "--apply")
    digest = undo_in(receipt)
    assert f"153 memories are active again in {long_index}" in output_of(
        "restore", long_index, digest
    )
    repeated = output_of("restore", long_index, digest)
    assert f"0 memories are active again in {long_index}" in repeated
    assert "that plan is undone already" in repeated


def test_show_names_the_limits_of_the_index(long_index: Path) -> None:
    limits = "a start loads at most 200 lines or 25,000 characters"
    assert limits in output_of("show", long_index)
    write_index(long_index, [f"- [m{number:03}](m{number:03}.md)" for number in range(10)])
    output = output_of("show", long_index)
    assert "10 of 10 lines are loaded" in output
    assert limits in output


def test_index_is_hashed_once_for_any_number_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing per line would take quadratic time in a large index."""
    hashed = 0
    digest_of = indexes.digest_of

    def counting(raw: bytes) -> str:
        nonlocal hashed
        hashed += len(raw)
        return digest_of(raw)

    monkeypatch.setattr(indexes, "digest_of", counting)
    raw = "".join(f"- [T](m{number % 9}.md) line {number}\n" for number in range(900)).encode()
    names = indexes.markdown.FileNames(tmp_path, {f"m{number}.md" for number in range(9)})
    entries = indexes.entries_of(indexes.MemoryIndex(raw), names)
    assert sum(map(len, entries.values())) == 900
    assert hashed <= 2 * len(raw)
