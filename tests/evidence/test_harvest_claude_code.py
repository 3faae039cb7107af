"""Harvest of reads from Claude Code transcripts."""

import os
import tracemalloc
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab import columns as c
from memlab.errors import MemlabError
from memlab.evidence import Harvest, harvest, read_access_log
from memlab.sources import transcripts
from memlab.sources.reads import ANOTHER_FORMAT, MAX_LINE_BYTES, UNREADABLE
from memlab.sources.transcripts import (
    COPIES,
    FAILED,
    NOTHING_FOUND,
    WITHOUT_RESULT,
    transcript_files,
)
from memlab.systems.claude_code.reads import (
    NO_FILE_NAMED,
    NO_MEMORY,
    NOT_FOLLOWED,
    OTHER_TOOLS,
    SEARCHES,
)
from tests.support.claude_store import project_folder, write_memories
from tests.support.properties import examples
from tests.support.stores import files_in
from tests.support.transcripts import OF_PROJECT, READ, SLUG, WRITE, Session, World, shell

Reads = set[tuple[str, datetime]]


def logged(log: Path, *, maintenance: bool = False) -> Reads:
    frame = read_access_log(log, maintenance=maintenance)[[c.MEMORY_ID, c.AT]]
    assert not frame.duplicated().any()
    return set(frame.itertuples(index=False, name=None))


def harvest_world(world: World) -> Harvest:
    return harvest(world.folder, world.home / "reads.log")


@given(st.integers(0, 2**32), st.sampled_from([None, f"/home/x/.claude/projects/{SLUG}/memory"]))
@settings(max_examples=examples(30))
def test_harvest_finds_exactly_the_simulated_reads(
    seed: int, folder_in_transcripts: str | None
) -> None:
    """Transcripts of another machine use another path of the folder."""
    with TemporaryDirectory() as home:
        world = World(Path(home), seed, folder_in_transcripts=folder_in_transcripts)
        world.run(8)
        before = files_in(world.projects)
        harvested = harvest_world(world)
        assert files_in(world.projects) == before
        assert logged(harvested.log) == world.counted()
        maintenance = world.reads_of_kind("maintenance")
        assert logged(harvested.log, maintenance=True) == world.counted() | maintenance
        assert harvested.reads == len(world.counted())
        assert harvested.new == len(world.counted())
        assert harvested.excluded.get("maintenance", 0) == len(maintenance)
        assert harvested.excluded.get("own session", 0) == len(world.reads_of_kind("own session"))
        before = files_in(world.home)
        assert harvest_world(world).new == 0
        assert files_in(world.home) == before


@given(st.integers(0, 2**32))
@settings(max_examples=10)
def test_reads_of_deleted_transcripts_stay_in_the_log(seed: int) -> None:
    with TemporaryDirectory() as home:
        world = World(Path(home), seed)
        for _ in range(4):
            world.run(3)
            harvest_world(world)
            for file in world.projects.glob("*/*.jsonl"):
                if world.chance.random() < 0.7:
                    file.unlink()
        assert logged(world.home / "reads.log") == world.counted()


def never() -> float:
    """A chance at which nothing happens."""
    return 0.99


class Desk:
    """A memory folder with a few files, and transcripts written line by line."""

    def __init__(self, home: Path, folder_in_transcripts: str | None = None) -> None:
        self.world = World(home, 0, memories=4, folder_in_transcripts=folder_in_transcripts)
        self.world.chance.random = never  # type: ignore[method-assign]

    def session(self, name: str = "s1", *reads: str) -> Session:
        session = Session(self.world, name, SLUG)
        for memory_id in reads:
            READ(session, memory_id)
        return session

    def save(self, *sessions: Session) -> Harvest:
        for session in sessions:
            self.world._save(session)
        return harvest_world(self.world)

    @property
    def logged(self) -> list[str]:
        return read_access_log(self.world.home / "reads.log")[c.MEMORY_ID].tolist()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_later_edit_turns_read_of_session_into_maintenance(desk: Desk) -> None:
    session = desk.session("s1", "m1.md", "m2.md")
    desk.save(session)
    assert desk.logged == ["m1.md", "m2.md"]
    WRITE(session, "m1.md")
    harvested = desk.save(session)
    assert harvested.new == 0
    assert harvested.new_excluded == {"maintenance": 1}
    assert desk.logged == ["m2.md"]
    assert desk.save(session).new_excluded == {}
    log = read_access_log(desk.world.home / "reads.log", maintenance=True)
    assert sorted(log[c.MEMORY_ID]) == ["m1.md", "m2.md"]


def test_read_counts_only_once_its_result_is_recorded(desk: Desk) -> None:
    session = desk.session("s1", "m1.md")
    answer = session.lines.pop()
    harvested = desk.save(session)
    assert harvested.reads == 0
    assert harvested.left_out == {WITHOUT_RESULT: 1}
    session.lines.append(answer)
    assert desk.save(session).new == 1


def test_tool_result_in_earlier_file_is_matched_to_its_call(desk: Desk) -> None:
    session = desk.session("s2", "m1.md")
    other = desk.session("s1")
    other.lines = [session.lines.pop()]
    missing = "x\ncat: gone.md: No such file or directory"
    shell("cat {path} {folder}/gone.md; true", content=missing)(session, "m2.md")
    harvested = desk.save(other, session)
    assert sorted(desk.logged) == ["m1.md", "m2.md"]
    assert harvested.left_out == {FAILED: 1}


def test_copied_lines_belong_to_the_original_session(desk: Desk) -> None:
    """One session wrote m1; a session branched off it, which ended earlier, read m1."""
    first = desk.session("s2")
    second = desk.session("s1")
    WRITE(first, "m1.md")
    READ(first, "m4.md")
    second.lines = [{**line, "sessionId": "s1"} for line in first.lines]
    READ(first, "m2.md")
    READ(second, "m1.md")
    READ(first, "m3.md")
    harvested = desk.save(second, first)
    assert harvested.excluded == {}
    assert harvested.left_out[COPIES] == 1


def test_own_session_is_known_from_log_without_transcript(desk: Desk) -> None:
    session = desk.session("s1")
    WRITE(session, "m1.md")
    desk.save(session)
    session.lines.clear()
    READ(session, "m1.md")
    assert desk.save(session).excluded == {"own session": 1}


@pytest.mark.parametrize("by_agent", [False, True])
def test_line_without_session_id_takes_session_of_its_file(desk: Desk, by_agent: bool) -> None:
    session = desk.session()
    WRITE(session, "m1.md")
    sent = desk.session("s1", "m1.md", "m2.md")
    for line in session.lines + sent.lines:
        del line["sessionId"]
    if by_agent:
        session.agents = {"agent-a": sent.lines}
    else:
        session.lines += sent.lines
    assert desk.save(session).excluded == {"own session": 1}
    assert desk.logged == ["m2.md"]


def test_several_results_in_one_line_are_matched_separately(desk: Desk) -> None:
    session = desk.session("s1", "m1.md", "m2.md")
    calls = session.lines[::2]
    answers = session.lines[1::2]
    answers[1]["message"]["content"][0]["is_error"] = True
    answers[0]["message"]["content"] += answers[1]["message"]["content"]
    answers[0]["toolUseResult"] = {"type": "file_unchanged"}  # which of the two is unknown
    session.lines = [*calls, answers[0]]
    harvested = desk.save(session)
    assert desk.logged == ["m1.md"]
    assert harvested.left_out == {FAILED: 1}


def test_calls_without_time_or_id_are_counted_as_left_out(desk: Desk) -> None:
    session = desk.session("s1", "m1.md", "m2.md", "m3.md")
    session.lines[0]["timestamp"] = "yesterday"
    shell("cat {path} /srv/" + OF_PROJECT)(session, "RETIRED.md")
    for line in session.lines[2::4]:
        line["timestamp"] = line["timestamp"].removesuffix("Z")
    del session.lines[4]["message"]["content"][0]["id"]
    harvested = desk.save(session)
    assert desk.logged == ["m2.md"]
    assert harvested.left_out == {"calls without a time": 1, WITHOUT_RESULT: 1, NO_MEMORY: 2}
    assert harvested.notes[0] == "1 date has no time zone; read as UTC"


def test_log_in_the_folder_of_a_project_is_no_transcript(desk: Desk) -> None:
    desk.save(desk.session("s1", "m1.md"))
    first = harvest(desk.world.folder)
    second = harvest(desk.world.folder)
    assert first.log.parent == desk.world.projects / SLUG
    assert second.files == first.files
    assert second.left_out == {}


def test_list_of_transcripts_opens_no_file(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise AssertionError(f"{path} was opened")

    desk.save(desk.session("s1", "m1.md"))
    monkeypatch.setattr(transcripts, "ordinary_file", refuse)
    assert len(transcript_files(desk.world.projects)) == 1


def test_log_of_another_name_is_no_transcript(desk: Desk) -> None:
    desk.save(desk.session("s1", "m1.md"))
    log = desk.world.projects / SLUG / "other.jsonl"
    first = harvest(desk.world.folder, log)
    second = harvest(desk.world.folder, log)
    assert (first.reads, second.reads) == (1, 1)
    assert second.files == first.files
    assert second.left_out == {}


def test_harvest_of_a_folder_without_sessions_says_so(desk: Desk) -> None:
    desk.save(desk.session("s1", "m1.md"))
    note = "the transcripts are of other projects"
    assert note not in str(harvest(desk.world.folder))
    other = project_folder(desk.world.home, "-home-u-other")
    write_memories(other, "a")
    assert f"-home-u-other has no sessions: {note}" in str(harvest(other))


def test_harvest_names_the_file_beside_the_log(desk: Desk) -> None:
    session = desk.session("s1", "m1.md")
    assert ".apart" not in str(desk.save(session))
    WRITE(session, "m1.md")
    harvested = desk.save(session)
    assert harvested.apart == desk.world.home / "reads.log.apart"
    assert f"apart     {harvested.apart}: the reads that do not count as later needs" in str(
        harvested
    )


def test_foreign_files_do_not_affect_other_transcripts(desk: Desk) -> None:
    session = desk.session("s1", "m1.md")
    folder = desk.world.projects / SLUG
    (folder / "noise.jsonl").write_bytes(os.urandom(2**20))
    (folder / "empty.jsonl").touch()
    (folder / "words.jsonl").write_text("dear diary\n" * 20_000)
    (folder / "other.jsonl").write_text('{"event": "memory"}\n' * 3)
    (folder / "folder.jsonl").mkdir()
    (folder / "gone.jsonl").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.jsonl")
    harvested = desk.save(session)
    assert desk.logged == ["m1.md"]
    assert harvested.left_out == {ANOTHER_FORMAT: 3, UNREADABLE: 2}


@pytest.mark.long
def test_overlong_line_is_skipped_with_bounded_memory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = MAX_LINE_BYTES // 16
    monkeypatch.setattr("memlab.sources.reads.MAX_LINE_BYTES", longest)
    session = desk.session("s1", "m1.md")
    with (desk.world.projects / SLUG / "huge.jsonl").open("wb") as out:
        out.write(b'{"type":"user","x":"')
        out.truncate(7 * longest)  # a sparse file
        out.seek(7 * longest)
        out.write(b'"}\n{"type":"user"}\n')
    tracemalloc.start()
    try:
        harvested = desk.save(session)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert desk.logged == ["m1.md"]
    assert harvested.left_out == {"lines of over 64 MiB": 1}
    assert most < 5 * longest


def test_project_or_root_folder_resolves_to_its_memory_folder(desk: Desk) -> None:
    desk.world._save(desk.session("s1", "m1.md"))
    log = desk.world.home / "other.log"
    assert harvest(desk.world.projects / SLUG, log).new == 1
    with pytest.raises(MemlabError, match="has several memory folders; name one"):
        harvest(desk.world.projects, log)
    (desk.world.projects / "-other" / "memory").rename(desk.world.home / "away")
    assert harvest(desk.world.projects, desk.world.home / "third.log").new == 1
    assert harvest(desk.world.home / ".claude", log).new == 0


def test_memory_folder_elsewhere_uses_named_transcripts(tmp_path: Path) -> None:
    world = World(tmp_path / "home", 3, folder_in_transcripts=str(tmp_path / "notes"))
    world.run(6)
    world.folder.rename(tmp_path / "notes")
    harvested = harvest(f"claude:{tmp_path / 'notes'}", transcripts=world.projects)
    assert harvested.log == tmp_path / "notes.reads.jsonl"
    by_path = logged(harvested.log)
    all_reads = world.counted()
    assert by_path.issubset(all_reads)
    assert len(all_reads - by_path) < len(by_path)  # without the reads by way of ~


def test_memory_folder_elsewhere_uses_transcripts_in_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path / "made", "~/notes")
    desk.world._save(desk.session("s1", "m1.md"))
    (tmp_path / ".claude").symlink_to(desk.world.home / ".claude")
    write_memories(tmp_path / "notes", "m1")
    harvested = harvest("./notes")
    assert harvested.reads == 1
    assert harvested.log == tmp_path / "notes.reads.jsonl"


def test_missing_transcripts_are_an_error_naming_the_option(tmp_path: Path) -> None:
    write_memories(tmp_path / "notes", "m1")
    with pytest.raises(MemlabError, match="name their folder with --transcripts"):
        harvest(tmp_path / "notes", transcripts=tmp_path / "nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize("name", ["wörk ❤", 'q"uote'])
@pytest.mark.parametrize("as_ascii", [True, False])
def test_unusual_file_names_are_found_in_any_json_escaping(
    tmp_path: Path, name: str, as_ascii: bool
) -> None:
    desk = Desk(tmp_path / "home", str(tmp_path / name))
    desk.world._as_ascii = as_ascii
    desk.world._save(desk.session("s1", "ä b.md"))
    write_memories(tmp_path / name, "m1")
    assert harvest(tmp_path / name, transcripts=desk.world.projects).reads == 1


class ToolCall(NamedTuple):
    """A call in a transcript, the memories it reads and the reasons that leave others out."""

    tool: str
    arguments: dict[str, Any]
    reads: list[str]
    left_out: dict[str, int]


def shell_call(command: str, reads: list[str], left_out: dict[str, int]) -> ToolCall:
    return ToolCall("Bash", {"command": command}, reads, left_out)


GREP = {"pattern": "x", "path": "{m1}", "output_mode": "content"}
MCP = "mcp__filesystem__"
CALLS = [
    ToolCall("Grep", GREP, ["m1.md"], {}),
    ToolCall("Grep", {"pattern": "x", "path": "{m1}"}, [], {SEARCHES: 1}),
    ToolCall("Grep", {"pattern": "x", "path": "{folder}", "glob": "m1.md"}, [], {SEARCHES: 1}),
    ToolCall("View", {"file_path": "{m1}"}, ["m1.md"], {}),
    ToolCall("NotebookRead", {"notebook_path": "{m1}"}, ["m1.md"], {}),
    ToolCall(f"{MCP}read_text_file", {"path": "{m1}"}, ["m1.md"], {}),
    ToolCall(f"{MCP}read_multiple_files", {"paths": ["{m1}", "{m2}"]}, ["m1.md", "m2.md"], {}),
    ToolCall(f"{MCP}read_file", {"uri": "file://{m1}"}, ["m1.md"], {}),
    ToolCall(f"{MCP}get_file_info", {"path": "{m1}"}, [], {OTHER_TOOLS: 1}),
    ToolCall(f"{MCP}list_directory", {"path": "{folder}"}, [], {OTHER_TOOLS: 1}),
    shell_call("less {m1}; tac {m2}", ["m1.md", "m2.md"], {}),
    shell_call("grep x {m1} {m2}", [], {SEARCHES: 1}),
    shell_call("x=$(cat {m1})", [], {NOT_FOLLOWED: 1}),
    shell_call("diff <(cat {m1}) <(cat {m2})", [], {NOT_FOLLOWED: 2}),
    shell_call("ls {m1} | xargs cat", [], {NOT_FOLLOWED: 1}),
    shell_call("cat {m1}; echo $(cat {m2})", ["m1.md"], {NOT_FOLLOWED: 1}),
    shell_call("find {folder} -name m1.md -exec cat {{}} +", [], {NO_FILE_NAMED: 1}),
    shell_call("D={folder}; cat $D/m1.md", [], {NO_FILE_NAMED: 1}),
    shell_call("cat /elsewhere/m1.md; ls", [], {}),
    ToolCall("PowerShell", {"command": "Get-Content {m1}"}, [], {NOT_FOLLOWED: 1}),
]
REASONS = (SEARCHES, NOT_FOLLOWED, NO_FILE_NAMED, OTHER_TOOLS, NO_MEMORY)


def name_of(call: ToolCall) -> str:
    return f"{call.tool} {list(call.arguments.values())[-1]}"


@pytest.mark.parametrize("call", CALLS, ids=name_of)
def test_each_tool_call_is_a_read_or_counted_as_left_out(desk: Desk, call: ToolCall) -> None:
    folder = desk.world.folder
    names = {"folder": folder, "m1": folder / "m1.md", "m2": folder / "m2.md"}
    filled: dict[str, Any] = {}
    for key, value in call.arguments.items():
        if isinstance(value, list):
            filled[key] = [text.format(**names) for text in value]
        else:
            filled[key] = value.format(**names)
    session = desk.session()
    session.call(call.tool, filled)
    harvested = desk.save(session)
    assert sorted(desk.logged) == call.reads
    left_out = {reason: count for reason, count in harvested.left_out.items() if reason in REASONS}
    assert left_out == call.left_out


def test_path_with_backslashes_names_the_same_file(tmp_path: Path) -> None:
    folder = f"C:/Users/x/.claude/projects/{SLUG}/memory"
    desk = Desk(tmp_path, folder_in_transcripts=folder)
    session = desk.session()
    session.call("Read", {"file_path": f"{folder}/m1.md".replace("/", "\\")})
    desk.save(session)
    assert desk.logged == ["m1.md"]


def test_search_of_one_file_without_match_is_no_read(desk: Desk) -> None:
    session = desk.session()
    given = {"pattern": "x", "path": str(desk.world.folder / "m1.md"), "output_mode": "content"}
    session.call("Grep", given, content="No matches found")
    assert desk.save(session).left_out[NOTHING_FOUND] == 1
    assert desk.logged == []


def test_reads_of_unknown_files_are_named(desk: Desk) -> None:
    session = desk.session("s1", "m1.md")
    session.call("Read", {"file_path": str(desk.world.folder / "nowhere.md")})
    harvested = desk.save(session)
    assert harvested.unknown == "1 of 2 lines names no memory of this store: nowhere.md"
    assert harvested.unknown in str(harvested)
