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
from memlab.views.findings import examine
from memlab.views.page import sections_of
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
from tests.support.shell import output_of
from tests.support.stores import files_in


class ClaudeCodeLab(FilesLab):
    """A project folder with transcripts, in which the index names every memory."""

    where = ".claude/projects/-home-u-work/memory"
    in_one_step = False

    def fill(self, count: int) -> None:
        styles = ("origin", "modified", "type", "none", "node origin", "broken")
        bodies = ("text", "né 北京 🦀 [[topic_1]] [[topic_3]]\r\n", "", "<b>" + "long " * 3000)
        for number in range(count):
            kind, style = ("project", styles[number % 6]) if number else ("feedback", "type")
            session = f"s{number % 3}"
            title = f"topic {number}"
            body = bodies[number % 4]
            text = memory(title, kind, style=style, session=session, modified=at(number), body=body)
            path = write_memory(self.path, f"topic_{number}.md", text, at(number))
            path.chmod(MODES[number % 5])
            write_transcript(path.parents[1], session, call("Write", path, at(number), "s", number))
        lines = ["# Memory", "", *(f"- [T{n}](topic_{n}.md) — hook {n}" for n in range(count))]
        write_index(self.path, lines, end="")

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
        write_index(self.path, [*index_lines(self.path), *(f"- [P]({name})" for name in names)])

    def files(self) -> set[Path]:
        return {*self.path.glob("*.md")} - {self.path / "MEMORY.md"}

    def exactly(self) -> dict[Key, Any]:
        lines = [line for line in index_lines(self.path) if "by hand" not in line]
        files = super().exactly()
        return {k: (*file, [line for line in lines if str(k) in line]) for k, file in files.items()}


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
    write_memories(folder, *(f"f{number}" for number in range(210)))
    write_index(folder, index_lines(folder)[:205])
    frame = memlab.load(folder)
    assert frame["active"].tolist() == [True] * 205 + [False] * 5
    assert frame["loaded_at_start"].tolist() == [True] * 200 + [False] * 10
    costs = frame["tokens"]
    assert costs[204] == costs[199] > costs[205] == 0  # the cost of its line if it is loaded


def test_user_and_feedback_memories_are_load_bearing(folder: Path) -> None:
    for number, kind in enumerate(("user", "feedback", "project", "reference", "", "Feedback")):
        write_memory(folder, f"{number}.md", memory("m", kind), at(number))
    for number, style in enumerate(STYLES, 6):
        write_memory(folder, f"{number:02}.md", memory("m", "user", style=style), at(number))
    write_memory(folder, "8.md", memory("8", body="not m"), at(90))
    frame = memlab.load(folder, with_body=True)
    judged = [True, True, False, False, True, True, *(style != "none" for style in STYLES), False]
    assert frame["load_bearing"].tolist() == judged
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
        ("c", 0, 50),
        ("d", 0, 7),
        ("e", 0, 8),
    ):
        text = memory(name, style="modified" if modified else "origin", modified=at(modified))
        write_memory(folder, f"{name}.md", text, at(written))
    calls = [("Write", "b.md", 2), ("Edit", "b.md", 3), ("Write", "c.md", 1), ("Write", "a.md", 9)]
    calls += [("Read", "d.md", 0), ("Write", "../elsewhere/d.md", 0)]
    calls += [("Edit", "e.md", 60)]  # the first transcript kept for 30 days
    for number, (tool, name, hour) in enumerate(calls):
        path = Path(os.path.normpath(folder / name))
        write_transcript(folder.parent, "s", call(tool, path, at(hour), "s", number))
    nonsense = '{"type":"assistant","timestamp":"no time","message":{"content":"x"}}'
    write_transcript(folder.parent, "s", [nonsense, '{"broken "name":"Write" memory'])
    since = memlab.load(folder).set_index("memory_id")["created_at"]
    records = dict(records_of(folder, list(since.index)))
    assert {key: (json.loads(records[key])["place"]["dated"], since[key]) for key in records} == {
        "c.md": ("transcripts", at(1)),
        "b.md": ("transcripts", at(2)),
        "a.md": ("front matter", at(5)),
        "d.md": ("file time", at(7)),
        "e.md": ("file time", at(8)),
    }


@pytest.mark.parametrize("newest_first", [False, True])
def test_copied_files_are_dated_by_their_index_lines(folder: Path, newest_first: bool) -> None:
    """The files of known time show which end of the index is the newer one."""
    names = [f"{name:02}.md" for name in random.Random(7).sample(range(40), 40)]
    known = names[3:39:7]
    since = names[-1]
    for age, name in enumerate(names):
        style = "modified" if name in known else "origin"
        text = memory(name, style=style, modified=at(age))
        copied = at(900) + timedelta(milliseconds=7 * int(name[:2]))
        write_memory(folder, name, text, at(901) if name == since else copied)
    write_index(folder, [f"- [T]({n})" for n in (reversed(names) if newest_first else names)])
    before = memlab.load(folder)
    assert before["memory_id"].tolist() == names
    assert before["created_at"][3:39:7].tolist() == [at(age) for age in range(3, 39, 7)]
    assert dict(ClaudeCode(folder).extra_report().fields["dated"]) == {
        "front matter": len(known),
        "file time": 1,
        "line of MEMORY.md": 39 - len(known),
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
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff.md"))).write_text("x")
    write_index(folder, ["- [A](a.md)", "- [L](link.md)"])
    (tmp_path / "short").symlink_to(folder)
    for name in (folder, tmp_path / "short"):
        assert memlab.load(name)["memory_id"].tolist() == ["a.md"]


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.symlink_to(path.with_name("a.md")),
        lambda path: path.symlink_to("/dev/zero"),
        Path.mkdir,
        os.mkfifo,
        lambda path: path.touch() or os.truncate(path, 2**40),
    ],
)
def test_index_that_is_no_regular_file_is_rejected(
    folder: Path, put: Callable[[Path], Any]
) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    put(folder / "MEMORY.md")
    with pytest.raises(
        StoreError, match=r"MEMORY\.md is not an ordinary file .* put the file itself"
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
        *((name, {"name": name}) for name in ("memlab.toml", "MEMORY.md", ".a.md", "notes.sh")),
        *(("a.md", {"name": name}) for name in ("../a.md", "b.md")),
        *(("a.md", metadata) for metadata in ({"mode": "x"}, {"data": {"text": "zz"}})),
    ):
        row = json.loads(without_place(record))
        forged = with_place(encoded(row | {"memory_id": key, "file": row["file"] | changed}), place)
        with pytest.raises(ValueError, match=r"."):
            ClaudeCode(folder).check_record(key, forged, json.loads(forged))


def test_restored_file_gets_only_its_own_permission_bits(folder: Path) -> None:
    """A different group gets the permissions of others; set-id bits are not restored."""
    write_memory(folder, "a.md", memory("a"), at(0))
    ((key, record),) = records = records_of(folder, ["a.md"])
    delete_all(folder, records)
    me = (os.geteuid(), os.getegid())
    row = json.loads(record)
    modes = {0o4755: 0o755, 0o2775: 0o755, 0o1664: 0o644, 0o640: 0o600, 0o4777: 0o777, 0o400: 0o400}
    owners = (me, (1234, me[1]), (1234, 2345), (me[0], 2345))
    for around, mode, owner in product((0o700, 0o755, 0o2777), modes, owners):
        folder.chmod(around)
        row["file"] |= {"mode": mode, "owner": owner}
        put_back(folder, [(key, json.dumps(row).encode())])
        status = (folder / "a.md").stat()
        is_same_group = owner[1] == me[1]
        assert stat.S_IMODE(status.st_mode) == (mode & 0o777 if is_same_group else modes[mode])
        assert (status.st_uid, status.st_gid) == me
        (folder / "a.md").unlink()


def test_file_written_during_deletion_stays(tmp_path: Path) -> None:
    lab = ClaudeCodeLab(tmp_path)
    lab.fill(12)
    planned = lab.path / "topic_1.md"
    rewritten = lab.path / "topic_11.md"

    def apply(meddle: Callable[[], object]) -> memlab.Receipt:
        plan = memlab.plan(lab.path, memlab.KeepRecent(4))
        return memlab.apply(plan, on_step=lambda step: meddle() if step == "deleted" else None)

    def exchange() -> None:
        planned.write_text("written again")
        rewritten.rename(tmp_path / "away.md")

    with pytest.raises(CompactionError, match="try again when nobody writes"):
        apply(exchange)
    (tmp_path / "away.md").rename(rewritten)
    assert len(lab.files()) == 12
    receipt = apply(lambda: write_memory(lab.path, "new.md", memory("new", "project"), at(99)))
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
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, ["- [a](a.md)", "- b.md", "- c.md"])
    assert doctor(folder).status is Status.OK


def test_space_of_a_folder_is_the_size_of_its_files(folder: Path) -> None:
    write_memories(folder, "a")
    measured = space(folder)
    assert measured.file == measured.after_vacuum == sum(map(len, files_in(folder).values()))
    assert measured.wal == 0
    assert measured.free == 0
    assert measured.archive == 0


@pytest.fixture
def long_index(folder: Path) -> Path:
    """Make a folder of 300 files; the index, oldest first, is cut after 200 lines."""
    for number in range(300):
        text = memory(f"m{number:03}", style="modified", modified=at(number))
        write_memory(folder, f"m{number:03}.md", text)
    write_index(folder, ["# Memory", *[f"- [m{n:03}](m{n:03}.md)" for n in range(299)]])
    return folder


def written_log(folder: Path, reads: list[tuple[int, datetime]]) -> Path:
    log = folder.with_name("reads.jsonl")
    lines = [{"memory_id": f"m{n:03}.md", "at": when.isoformat()} for n, when in reads]
    log.write_text("\n".join(map(json.dumps, lines)))
    return log


def test_index_cut_loses_reads_of_lines_below_it(long_index: Path) -> None:
    reads = [0] * 4 + [150] * 2 + [250] * 3 + [298] * 5 + [299] * 6 + [999]
    log = written_log(long_index, [(n, at(4_000 + s / 3_600)) for s, n in enumerate(reads)])
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
    soon = [(n, at(n + 0.5)) for n in range(299)]  # each memory is read while it is the newest
    late = [(n, at(298 + n)) for n in (0, 99, 100)]  # of 299: ranks 299, 200 and 199
    losses = reads_missed_by_index_cut(
        long_index, memlab.read_access_log(written_log(long_index, soon + late))
    )
    assert losses.loaded["oldest first"] == losses.loaded["as it stands"] == 199 + 3
    assert losses.loaded["newest first"] == 299 + 1
    assert losses.loaded["most read first"] == 199 + 2 + 1


def test_report_shows_reads_lost_by_the_index_cut(long_index: Path) -> None:
    reads = [(n, at(4_000 + n)) for n in (0, 150, 250, 250, 298)]
    log = memlab.read_access_log(written_log(long_index, reads))
    now = at(5_000)
    sentences = []
    for given in (None, log):
        examined = examine(long_index, now=now, keep_recent=146, log=given)
        (section,) = [section for section in sections_of(examined) if section.anchor == "cut"]
        sentences.append("\n".join([*section.words, *map(str, section.tables[0].rows)]))
    assert "Transcripts record which memories are read. memlab harvest" in sentences[0]
    assert "3 of memories whose line was cut" in sentences[1]
    assert "100 of 299 named files have their line below the cut" in sentences[1]
    assert "keep_recent = 146 leaves 146 of them; all fit." in sentences[1]
    memlab.apply(memlab.plan(long_index, memlab.KeepRecent(146), now=now))
    boot = memlab.growth.summarize(memlab.load(long_index), now=now).boot
    assert examined.effect is not None
    assert boot.memories == examined.effect.after.memories == 146
    assert boot.tokens == examined.effect.after.tokens


def test_size_and_compact_report_a_cut_index(long_index: Path) -> None:
    loads = "is cut: a start loads 199 of the 299 memories that it names"
    assert loads in output_of("size", long_index)
    assert loads in output_of("compact", long_index, "--keep-recent", 146)
    write_index(long_index, [f"- [m{n:03}](m{n:03}.md)" for n in range(100)])
    assert "is cut" not in output_of("size", long_index)
    assert "is cut" not in output_of("compact", long_index, "--keep-recent", 146)


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
