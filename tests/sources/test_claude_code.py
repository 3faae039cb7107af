"""Claude Code's memory: what is loaded, what is cut, since when it is there; compacted and back."""

import json
import os
import signal
import tempfile
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from claude_store import (
    as_found,
    at,
    call,
    index_lines,
    memory,
    project_folder,
    write_index,
    write_memory,
    write_transcript,
)
from crashing import crash_everywhere
from permissions import as_nobody
from programs import run_program

import memlab
from memlab.errors import AlreadyAppliedError, ArchiveError, StalePlanError, StoreError
from memlab.evidence.references import find_references
from memlab.growth import boot_context
from memlab.sources import transcript_times
from memlab.sources.base import Key, Reader, at_one_moment
from memlab.sources.claude_code import ClaudeCode
from memlab.sources.folder_change import Step
from memlab.sources.load_rule import LoadRule
from memlab.sources.memory_index import MemoryIndex
from memlab.store.records import fingerprint_of
from sources.conformance import Compacted, Lab, titles, together


class ClaudeCodeLab:
    """A folder of a project with transcripts; every memory named by the index."""

    deletes: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.path = project_folder(folder)
        self.name = str(self.path)

    def fill(self, count: int) -> None:
        styles = ("origin", "modified", "type", "none", "node origin", "broken")
        bodies = ("text", "né 北京 🦀 [[topic_1]] [[topic_3]]\r\n", "", "<b>" + "long " * 3000)
        for number in range(count):
            kind = "feedback" if number == 0 else "project"
            text = memory(
                f"topic {number}",
                kind,
                style="type" if number == 0 else styles[number % 6],
                session=f"s{number % 3}",
                modified=at(number),
                body=bodies[number % 4],
            )
            write_memory(self.path, f"topic_{number}.md", text, at(number))
            (self.path / f"topic_{number}.md").chmod(0o640 if number % 2 else 0o600)
            write_transcript(
                self.path.parent,
                f"s{number % 3}",
                call("Write", self.path / f"topic_{number}.md", at(number), "s", number),
            )
        lines = ["# Memory", "", *(f"- [T{n}](topic_{n}.md) — hook {n}" for n in range(count))]
        write_index(self.path, lines, end="")

    def add_pair(self, number: int) -> None:
        names = [f"pair_{number}{side}.md" for side in "ab"]
        for name in names:
            text = f"---\nname: pair {number}\ntype: project\n---\n"
            write_memory(self.path, name, text, at(10_000 + number))
        write_index(self.path, [*index_lines(self.path), *(f"- [P]({name})" for name in names)])

    def change(self, key: Key) -> None:
        with (self.path / str(key)).open("a") as file:
            file.write("changed\n")

    def exactly(self) -> dict[Key, Any]:
        lines = index_lines(self.path)
        found: dict[Key, Any] = {}
        for path in self.path.glob("*.md"):
            if path.name != "MEMORY.md":
                there = path.stat()
                named = [line for line in lines if path.name in line]
                found[path.name] = (
                    path.read_bytes(),
                    there.st_mode,
                    there.st_mtime_ns,
                    there.st_uid,
                    named,
                )
        return found


class TestClaudeCode(Compacted):
    lab_type = ClaudeCodeLab

    def test_a_reader_sees_one_moment_while_a_writer_writes(self, lab: Lab) -> None:
        """Nobody can write two files in one step: what is of one moment is a file and its line."""
        stop = threading.Event()

        def write() -> None:
            number = 1
            while not stop.wait(0.005):
                lab.add_pair(number)
                number += 1

        def look(reader: Reader) -> list[tuple[str, bool]]:
            table = together(list(reader.batches(with_body=False)))
            keys = table["key"].to_pylist()
            assert set(dict(reader.records(keys))) == set(keys)
            return list(zip(titles(table), table["active"].to_pylist(), strict=True))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(8):
                seen = at_one_moment(ClaudeCode(lab.name), look)
                pairs = Counter(title for title, active in seen if active and "pair" in title)
                assert set(pairs.values()) <= {2}
        finally:
            stop.set()
            writer.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project_folder(tmp_path)


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


def records_of(folder: Path, *names: str) -> list[tuple[Key, bytes]]:
    with ClaudeCode(folder).reading() as reader:
        return list(reader.records(names))


def delete(folder: Path, *names: str, **options: Any) -> list[tuple[Key, bytes]]:
    records = records_of(folder, *names)
    with ClaudeCode(folder, **options).changing() as writer:
        writer.delete({key: fingerprint_of(record) for key, record in records})
    return records


def put_back(folder: Path, records: list[tuple[Key, bytes]]) -> int:
    with ClaudeCode(folder).changing() as writer:
        return writer.insert(records)


# What is loaded


def test_a_memory_costs_its_lines_at_start_and_not_its_text(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a", body="x" * 40_000), at(0))
    write_memory(folder, "b.md", memory("b"), at(1))
    write_index(folder, ["# Memory", "- [A](a.md) — hook", "- [B](b.md) — another"])
    frame = memlab.load(folder)
    assert frame["tokens"].tolist() == [5, 6]
    assert frame["chars"][0] > 40_000
    assert memlab.load(folder, count_tokens=len)["tokens"].tolist() == [19, 22]


def test_what_is_named_is_active_and_what_stands_below_the_cut_is_not_loaded(folder: Path) -> None:
    for number in range(210):
        write_memory(folder, f"f{number}.md", memory(f"m{number}"), at(number))
    write_index(folder, [f"- [T](f{number}.md)" for number in range(205)])
    frame = memlab.load(folder).set_index("memory_id")
    assert frame["active"].sum() == 205
    assert frame["loaded_at_start"].sum() == 200
    assert not frame.loc[[f"f{n}.md" for n in range(200, 210)], "loaded_at_start"].any()
    costs = frame["tokens"]
    assert costs["f204.md"] == costs["f199.md"] > 0  # what its line costs where it is loaded
    assert costs["f205.md"] == 0
    assert boot_context(frame.reset_index())["memories"].sum() == 200
    few = memlab.load(ClaudeCode(folder, rule=LoadRule(lines=10)))
    assert few["loaded_at_start"].sum() == 10


def test_user_and_feedback_are_load_bearing_and_the_rest_is_prunable(folder: Path) -> None:
    for number, kind in enumerate(("user", "feedback", "project", "reference", "", "Feedback")):
        write_memory(folder, f"{number}.md", memory("m", kind), at(number))
    write_memory(folder, "6.md", memory("m", "user", style="broken"), at(6))
    write_memory(folder, "7.md", "no front matter", at(7))
    write_index(folder, [f"- [T]({number}.md)" for number in range(8)])
    frame = memlab.load(folder, with_body=True)
    assert frame["load_bearing"].tolist() == [True, True, False, False, False, True, True, False]
    assert frame["tags"].tolist()[:3] == [("user",), ("feedback",), ("project",)]
    assert frame["title"].tolist()[-2:] == ["m: of all: [m", "7"]
    assert frame["body"].tolist()[-1] == "no front matter"


def test_links_between_memories_are_references_and_cycles_do_no_harm(folder: Path) -> None:
    texts = {"a": "[[b]] [[a]]", "b": "[[a]] [[a]]", "c": "[[B]] [[gone]] [[name of a]]"}
    for number, (name, body) in enumerate(texts.items()):
        text = memory(f"name of {name}", body=body)
        write_memory(folder, f"{name}.md", text, at(number))
    frame = memlab.load(folder)
    assert frame["evidence_refs"].tolist() == [("b.md",), ("a.md",), ("b.md", "a.md")]
    references = find_references(frame)
    assert sorted(references["target_id"]) == ["a.md", "a.md", "b.md"]


# Since when


def test_the_earliest_moment_known_is_taken_and_how_it_is_known_is_said(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a", style="modified", modified=at(5)), at(50))
    write_memory(folder, "b.md", memory("b", style="modified", modified=at(6)), at(50))
    write_memory(folder, "c.md", memory("c"), at(50))
    write_memory(folder, "d.md", memory("d"), at(7))
    lines = [
        *call("Write", folder / "b.md", at(2), "s", 1),
        *call("Edit", folder / "b.md", at(3), "s", 2),
        *call("Write", folder / "c.md", at(1), "s", 3),
        *call("Write", folder / "a.md", at(9), "s", 4),
        *call("Read", folder / "d.md", at(0), "s", 5, failed=True),
        *call("Write", folder.parent / "elsewhere" / "d.md", at(0), "s", 6),
        '{"type":"assistant","timestamp":"no time","message":{"content":"x"}}',
        '{"broken "name":"Write" memory',
    ]
    write_transcript(folder.parent, "s", lines)
    frame = memlab.load(folder).set_index("memory_id")
    assert frame["created_at"].to_dict() == {
        "a.md": at(5),
        "b.md": at(2),
        "c.md": at(1),
        "d.md": at(7),
    }
    places = {
        str(key): json.loads(record)["place"] for key, record in records_of(folder, *frame.index)
    }
    assert {key: place["dated"] for key, place in places.items()} == {
        "a.md": "front matter",
        "b.md": "transcripts",
        "c.md": "transcripts",
        "d.md": "file time",
    }


def test_subagents_tell_of_files_too_and_so_do_other_paths_to_the_project(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a"), at(50))
    agents = folder.parent / "s1" / "subagents" / "x"
    elsewhere = "/home/other/.claude/projects/-home-u-work/memory/a.md"
    write_transcript(agents, "agent-1", call("Read", elsewhere, at(4), "s1", 1))
    assert memlab.load(folder)["created_at"].tolist() == [at(4)]


def test_transcripts_of_a_worktree_tell_of_the_memory_of_the_main_checkout(folder: Path) -> None:
    for name in ("a", "b", "c"):
        write_memory(folder, f"{name}.md", memory(name), at(500))
    write_index(folder, [f"- [{name}]({name}.md)" for name in ("a", "b", "c")])
    worktree = folder.parent.with_name(f"{folder.parent.name}--worktrees-fix")
    write_transcript(worktree, "s1", call("Write", folder / "a.md", at(1), "s1", 1))
    agents = worktree / "s1" / "subagents"
    write_transcript(agents, "agent-1", call("Write", folder / "b.md", at(2), "s1", 2))
    namesake = folder.parent.with_name("-home-u-other")
    write_transcript(namesake, "s2", call("Write", namesake / "memory" / "c.md", at(3), "s2", 3))
    (folder.parent.parent / "linked").symlink_to(namesake)
    frame = memlab.load(folder).set_index("memory_id")
    assert frame["created_at"].tolist() == [at(1), at(2), at(500)]
    assert dict(ClaudeCode(folder).about().dated) == {"transcripts": 2, "file time": 1}


def test_a_transcript_is_read_once_for_the_memories_of_all_projects(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    lines = transcript_times._lines

    def counted(file: Any) -> Iterator[bytes]:
        opened.append(Path(file.name))
        return lines(file)

    monkeypatch.setattr(transcript_times, "_lines", counted)
    other = project_folder(folder.parents[3], "-home-u-other")
    for number, each in enumerate((folder, other)):
        write_memory(each, "a.md", memory("a"), at(500))
        session = f"s{number}"
        call_of_it = call("Write", each / "a.md", at(number + 1), session, number)
        write_transcript(each.parent, session, call_of_it)
    dates = [memlab.load(each)["created_at"].tolist() for each in (folder, other, folder)]
    assert dates == [[at(1)], [at(2)], [at(1)]]
    assert sorted(path.name for path in opened) == ["s0.jsonl", "s1.jsonl"]
    write_transcript(folder.parent, "s0", call("Read", folder / "a.md", at(0), "s0", 9))
    assert memlab.load(folder)["created_at"].tolist() == [at(0)]


def test_a_folder_of_no_project_goes_by_front_matter_and_file_times(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "memory"
    write_memory(folder, "a.md", memory("a"), at(3))
    write_index(folder, ["- [A](a.md)"])
    write_transcript(folder.parent, "s", call("Write", folder / "a.md", at(1), "s", 1))
    assert memlab.load(folder)["created_at"].tolist() == [at(3)]


# Files as they are


def test_odd_names_are_memories_like_others(folder: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "überblick.md")
    names = ["my notes.md", "v1.2.md", decomposed, "北京.md", "Notes.md", "notes.md", "a\nb.md"]
    for number, name in enumerate(names):
        write_memory(folder, name, memory(f"m{number}"), at(number))
    lines = ["- [1](my%20notes.md)", "- [2](v1.2.md)", "- [3](überblick.md)", "- [4](<北京.md>)"]
    write_index(folder, [*lines, "- [5](Notes.md)", "- [6](notes.md)"])
    frame = memlab.load(folder)
    assert frame["memory_id"].tolist() == names
    assert frame["active"].tolist() == [True] * 6 + [False]
    before = files_of(folder)
    for name in names:
        records = delete(folder, name)
        assert name not in files_of(folder)
        assert put_back(folder, records) == 1
        assert files_of(folder) == before


def test_links_pipes_folders_and_names_that_are_no_text_are_left_alone(
    folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("not of this folder")
    write_memory(folder, "a.md", memory("a"), at(0))
    (folder / "link.md").symlink_to(secret)
    (folder / "dangling.md").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe.md")
    (folder / "folder.md").mkdir()
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff.md"))).write_text("x")
    write_index(folder, ["- [A](a.md)", "- [L](link.md)", "- [P](pipe.md)"])
    assert memlab.load(folder)["memory_id"].tolist() == ["a.md"]


def test_a_link_to_the_folder_is_followed_and_an_index_that_is_a_link_is_not(
    folder: Path, tmp_path: Path
) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    write_index(folder, ["- [A](a.md)"])
    (tmp_path / "short").symlink_to(folder)
    assert memlab.load(ClaudeCode(tmp_path / "short"))["active"].tolist() == [True]
    (folder / "MEMORY.md").rename(tmp_path / "MEMORY.md")
    (folder / "MEMORY.md").symlink_to(tmp_path / "MEMORY.md")
    assert memlab.load(ClaudeCode(folder))["active"].tolist() == [False]


def test_five_megabytes_in_one_file_are_read(folder: Path) -> None:
    write_memory(folder, "big.md", memory("big", body="line\n" * 2**20), at(0))
    write_index(folder, ["- [B](big.md)", "x" * 5 * 2**20])
    frame = memlab.load(folder)
    assert frame["chars"][0] > 5 * 2**20
    assert frame["loaded_at_start"].tolist() == [True]
    before = files_of(folder)
    put_back(folder, delete(folder, "big.md"))
    assert files_of(folder) == before


@pytest.mark.parametrize(
    "data", [b"", b"---\n", b"---\nname: [\n---\n", b"\xff\xfe\x00bytes", b"\0" * 9, b"---" * 99]
)
def test_whatever_is_in_a_file_it_is_a_memory(folder: Path, data: bytes) -> None:
    (folder / "a.md").write_bytes(data)
    (folder / "MEMORY.md").write_bytes(data + b"\n- [A](a.md)\n")
    frame = memlab.load(folder, with_body=True)
    assert frame["memory_id"].tolist() == ["a.md"]
    before = files_of(folder)
    put_back(folder, delete(folder, "a.md"))
    assert files_of(folder) == before


def test_what_is_no_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in (tmp_path / "nowhere", tmp_path / "file", "a\0b"):
        with pytest.raises(StoreError, match=r"folder|opened"):
            memlab.load(ClaudeCode(name))


# Changing


@pytest.mark.parametrize("seed", range(12))
def test_a_folder_as_found_is_compacted_and_comes_back_byte_for_byte(
    folder: Path, seed: int
) -> None:
    as_found(folder, seed)
    before = files_of(folder)
    frame = memlab.load(folder)
    names = frame["memory_id"].tolist()
    gone = names[:: 1 + seed % 3]
    records = delete(folder, *gone)
    left = files_of(folder)
    assert set(left) == set(before) - set(gone)
    assert all(left[name] == before[name] for name in left if name != "MEMORY.md")
    after = memlab.load(folder)
    stayed = frame[~frame["memory_id"].isin(gone)]
    assert after["active"].tolist() == stayed["active"].tolist()
    assert put_back(folder, records) == len(gone)
    assert files_of(folder) == before


def test_a_line_changed_since_is_refused_and_a_new_memory_is_no_hindrance(folder: Path) -> None:
    for number in range(4):
        write_memory(folder, f"f{number}.md", memory("m"), at(number))
    lines = [f"- [T](f{number}.md) hook" for number in range(4)]
    write_index(folder, lines)
    records = dict(records_of(folder, "f0.md", "f1.md"))
    write_memory(folder, "f9.md", memory("m"), at(9))
    edited = "- [T](f1.md) edited"
    write_index(folder, ["# New heading", "- [N](f9.md)", lines[0], lines[2], edited, lines[3]])
    before = files_of(folder)
    with (
        pytest.raises(StalePlanError, match=r"f1\.md"),
        ClaudeCode(folder).changing() as writer,
    ):
        writer.delete({key: fingerprint_of(record) for key, record in records.items()})
    assert files_of(folder) == before
    with ClaudeCode(folder).changing() as writer:
        writer.delete({"f0.md": fingerprint_of(records["f0.md"])})
    assert index_lines(folder) == ["# New heading", "- [N](f9.md)", lines[2], edited, lines[3]]
    put_back(folder, [("f0.md", records["f0.md"])])
    assert files_of(folder) == before


def test_a_file_touched_since_is_refused(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    write_index(folder, ["- [A](a.md)"])
    records = records_of(folder, "a.md")
    os.utime(folder / "a.md")
    with pytest.raises(StalePlanError), ClaudeCode(folder).changing() as writer:
        writer.delete({key: fingerprint_of(record) for key, record in records})


def test_a_file_that_is_there_again_is_not_overwritten(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    write_index(folder, ["- [A](a.md)"])
    records = delete(folder, "a.md")
    write_memory(folder, "a.md", memory("another"), at(1))
    before = files_of(folder)
    with ClaudeCode(folder).changing() as writer:
        assert writer.conflicts(records) == ["file 'a.md'"]
    with pytest.raises(ArchiveError, match="there again"):
        put_back(folder, records)
    assert files_of(folder) == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: row["file"].update(name="../a.md"),
        lambda row: row["file"].update(name="b.md"),
        lambda row: row.pop("place"),
        lambda row: row["file"].update(mode="x"),
        lambda row: row["file"].update(data={"text": "zz"}),
    ],
)
def test_an_archive_that_was_changed_is_refused(
    folder: Path, spoil: Callable[[dict[str, Any]], Any]
) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    ((key, record),) = delete(folder, "a.md")
    row = json.loads(record)
    spoil(row)
    before = files_of(folder)
    with pytest.raises(ArchiveError, match="archive"):
        put_back(folder, [(key, json.dumps(row).encode())])
    assert files_of(folder) == before


def test_crashed_anywhere_no_line_names_a_file_that_has_gone(folder: Path) -> None:
    for number in range(4):
        write_memory(folder, f"f{number}.md", memory("m"), at(number))
    write_index(folder, [f"- [T](f{number}.md)" for number in range(4)])
    before, records = files_of(folder), records_of(folder, "f0.md", "f2.md")
    prints = {key: fingerprint_of(record) for key, record in records}

    def compact() -> None:
        with ClaudeCode(folder).changing() as writer:
            writer.delete(prints)

    for _ in crash_everywhere(compact):
        named = MemoryIndex((folder / "MEMORY.md").read_bytes()).blocks
        assert all((folder / block.mentions[0].target).exists() for block in named)
        frame = memlab.load(folder)
        assert frame["memory_id"].tolist() in (
            ["f0.md", "f1.md", "f2.md", "f3.md"],
            ["f1.md", "f3.md"],
        )
        assert frame["active"].all()
        with ClaudeCode(folder).changing():
            pass
        if len(frame) == 2:
            put_back(folder, records)
        assert files_of(folder) == before


def test_a_folder_that_cannot_be_written_is_read_and_not_changed() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_memory(folder, "a.md", memory("a"), at(0))
        write_index(folder, ["- [A](a.md)"])
        before = files_of(folder)
        assert len(memlab.load(folder)) == 1  # imports what only root may read
        folder.chmod(0o555)
        with as_nobody():
            records = records_of(folder, "a.md")
            with pytest.raises(StoreError, match=r"cannot be changed \(Permission denied\)"):
                delete(folder, "a.md")
        assert len(records) == 1
        assert files_of(folder) == before
        (folder / "a.md").chmod(0o000)
        with as_nobody(), pytest.raises(StoreError, match=r"a\.md cannot be read"):
            memlab.load(folder)
        folder.chmod(0o755)


def test_what_is_deleted_and_put_back_keeps_owner_mode_and_time(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a"), at(0))
    write_index(folder, ["- [A](a.md)"])
    (folder / "a.md").chmod(0o604)
    (folder / "MEMORY.md").chmod(0o640)
    if os.geteuid() == 0:
        os.chown(folder / "a.md", 1234, 2345)
        os.chown(folder / "MEMORY.md", 1234, 2345)
    before = (folder / "a.md").stat()
    put_back(folder, delete(folder, "a.md"))
    after = (folder / "a.md").stat()
    for name in ("st_mode", "st_uid", "st_gid", "st_mtime_ns", "st_size"):
        assert getattr(after, name) == getattr(before, name)
    index = (folder / "MEMORY.md").stat()
    assert (index.st_mode & 0o777, index.st_uid) == (0o640, before.st_uid)


def test_five_hundred_memories_of_two_hundred_sessions_are_kept_by_when_they_were_written(
    folder: Path,
) -> None:
    order = [(number * 7) % 500 for number in range(500)]
    for place, number in enumerate(order):
        kind = "feedback" if number % 50 == 0 else "project"
        session = f"s{place * 2 // 5}"
        write_memory(folder, f"f{number}.md", memory("m", kind, session=session), at(9_000))
        lines = call("Write", folder / f"f{number}.md", at(place), session, place)
        write_transcript(folder.parent, session, lines)
    write_index(folder, [f"- [T](f{number}.md)" for number in range(500)])
    assert len(list(folder.parent.glob("*.jsonl"))) == 200
    frame = memlab.load(folder)
    assert frame["memory_id"].tolist() == [f"f{number}.md" for number in order]
    assert frame["loaded_at_start"].sum() == 200
    before = files_of(folder)
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(100)))
    prunable = [number for number in order if number % 50]
    left = set(prunable[-100:]) | {number for number in order if number % 50 == 0}
    assert index_lines(folder) == [f"- [T](f{number}.md)" for number in sorted(left)]
    assert {name for name in files_of(folder) if name != "MEMORY.md"} == {f"f{n}.md" for n in left}
    assert memlab.restore(receipt) == 390
    assert files_of(folder) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from memlab.compaction.applying import apply
from memlab.compaction.plans import Plan
from memlab.compaction.restoring import restore
from memlab.sources.claude_code import ClaudeCode
from memlab.sources.folder_change import Step

folder, doing, plan, step, times = sys.argv[1:]
left = int(times)

def watch(done):
    global left
    left -= done == step
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

source, made = ClaudeCode(folder, watch=watch), Plan.from_json(Path(plan).read_text())
apply(made, store=source) if doing == "apply" else restore(made.digest, store=source)
"""


@pytest.mark.parametrize("doing", ["apply", "restore"])
@pytest.mark.parametrize(("step", "times"), [*((step, 1) for step in Step), (Step.MOVED, 3)])
def test_a_process_killed_after_any_step_leaves_all_or_nothing_and_is_finished(
    folder: Path, tmp_path: Path, doing: str, step: Step, times: int
) -> None:
    for number in range(8):
        write_memory(folder, f"f{number}.md", memory(f"m{number}"), at(number))
    write_index(folder, ["# Index", *[f"- [T](f{number}.md)" for number in range(8)]])
    before = files_of(folder)
    made = memlab.plan(folder, memlab.KeepRecent(3))
    (tmp_path / "plan.json").write_text(made.to_json())
    if doing == "restore":
        memlab.apply(made)
    words = [str(folder), doing, str(tmp_path / "plan.json"), step, str(times)]
    run = run_program(KILLED, *words)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert len(memlab.load(folder)) in {8, 3}
    assert ClaudeCode(folder).about().dangling == ()
    if doing == "apply":
        with suppress(AlreadyAppliedError):
            memlab.apply(made)
        assert memlab.load(folder)["memory_id"].tolist() == ["f5.md", "f6.md", "f7.md"]
    memlab.restore(made.digest, store=folder)
    assert files_of(folder) == before
