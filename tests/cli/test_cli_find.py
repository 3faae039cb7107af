"""``memlab find`` and ``memlab harvest``; ``show`` and ``size`` on found stores; odd folders."""

import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import memlab
from tests.support.claude_store import (
    at,
    call,
    memory,
    project_folder,
    realistic_folder,
    write_index,
    write_memory,
)
from tests.support.claude_store import write_transcript as transcript
from tests.support.odek_store import write_odek
from tests.support.shell import LOOKING, output_of, run, typed
from tests.support.stores import episodes, files_in, row, write_rows
from tests.support.transcripts import World


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_MEM_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_find_prints_a_line_per_store_and_next_command(home: Path) -> None:
    assert "0 stores" in output_of("find")
    assert "next: memlab find FOLDER" in output_of("find")
    folder = realistic_folder(project_folder(home), files=12)
    write_odek(home / "elsewhere", ["one"])
    output = output_of("find")
    assert "1 store" in output
    assert "Claude Code memory        12" in output
    assert output.rstrip().endswith(f"next: memlab show {folder}    shows what it holds")
    assert len(json.loads(output_of("find", "--json"))["stores"]) == 1


def test_only_folders_that_can_be_merged_are_suggested(home: Path) -> None:
    for name in ("one", "two"):
        write_odek(home / name, ["a", "b", "c"])
    inventory = json.loads(output_of("find", "--json", home))
    assert [store["memories"] for store in inventory["stores"]] == [3, 3]
    assert inventory["kinships"] == []
    output = output_of("find", home)
    assert "may be one project" not in output
    assert "--into" not in output
    for name in ("-p1", "-p2"):
        realistic_folder(project_folder(home, name), files=8)
    kinships = json.loads(output_of("find", "--json", home))["kinships"]
    assert len(kinships) == 1
    assert "/projects/" in kinships[0]["merge_into"]
    assert "/projects/" in kinships[0]["merge_from"]


def test_find_suggests_the_store_with_most_memories(tmp_path: Path) -> None:
    write_odek(tmp_path / "a", ["one"])
    write_odek(tmp_path / "b", ["one", "two"])
    step = f"next: memlab show {tmp_path}/b    shows the store with the most memories"
    assert output_of("find", tmp_path).rstrip().endswith(step)


def test_show_lists_the_stores_of_a_folder(home: Path) -> None:
    for number in range(2):
        realistic_folder(project_folder(home, f"-p{number}"), files=5)
    assert "2 stores" in output_of("show", home / ".claude")
    (home / "empty").mkdir()
    refusal = output_of("show", home / "empty", code=2)
    assert "a folder without a store in it; name a store" in refusal
    (home / "empty" / "note.md").write_text("---\nname: note\n---\n")
    notes = f"name its notes with their system: claude:{home}/empty"
    assert notes in output_of("show", home / "empty", code=2)


def test_show_describes_loaded_and_cut_index_lines(home: Path) -> None:
    folder = project_folder(home)
    for number in range(205):
        write_memory(folder, f"f{number}.md", memory(f"m{number}"), at(number))
    write_memory(folder, "alone.md", memory("nobody names me", style="broken"), at(300))
    lines = [f"- [T](f{number}.md)" for number in range(204)]
    write_index(folder, [*lines, "- [X](gone.md)"])
    output = output_of("show", folder)
    assert re.search(r"loaded at every start +200 ", output)
    for phrase in (
        "200 of 205 lines are loaded",
        "204 of 206 files are named by a line",
        "4 named files are below the loaded part of the index",
        "lines that are cut: 4",
        "- [T](f200.md)",
        "files that no line names: 2",
        "alone.md",
        "lines whose file is not there: 1",
        "gone.md",
        "front matter that is not YAML: 1",
        "206 by file time",
    ):
        assert phrase in output, phrase
    about = json.loads(output_of("show", folder, "--json"))["about"]
    assert about["cut_files"] == ["f200.md", "f201.md", "f202.md", "f203.md"]


ODD_NAMES = (
    "with space.md",
    "v1.2.3.md",
    "é.md",
    "e\u0301.md",
    "北京 🦀.md",
    "-rf.md",
    "a\nb.md",
    "Case.md",
    "case.md",
    "x\x1b[31m.md",
    "$(id).md",
)
BROKEN_HEADS = (
    "",
    "---\n",
    "---\nname: [\n---\n",
    "---\nname: a: b\ntype: user\n---\n",
    "no head\n",
)


def odd_files(folder: Path) -> None:
    """Write files that are too large, broken, oddly named, or no files at all."""
    write_memory(folder, "big.md", memory("big", body="a line of it\n" * 40_000), at(0))
    outside = folder.parent / "outside.md"
    outside.write_text("a secret")
    (folder / "link.md").symlink_to(outside)
    (folder / "round.md").symlink_to(folder)
    os.mkfifo(folder / "pipe.md")
    for number, name in enumerate(ODD_NAMES):
        (folder / name).write_text(memory(f"n{number}"))
    for number, head in enumerate(BROKEN_HEADS):
        (folder / f"h{number}.md").write_text(head)
    (folder / "bytes.md").write_bytes(b"\xff\xfe\0---")
    targets = ["link.md", "round.md", "pipe.md", "h0.md", *ODD_NAMES]
    lines = ["- [Big](big.md)", "# " + "x" * 500_000, "- [a](a.md)", "- [[a]]", "- [C](CASE.md)"]
    lines += [f"- [T](<{target}>)" for target in targets]
    write_index(folder, lines)
    with (folder / "MEMORY.md").open("ab") as index:
        index.write(b"\xff- [h](h1.md)\r\n- [a](a.md)\0\n---\n")
    calls = [*call("Read", folder / "a.md", at(2), "s1", 1), "{", '{"type":7}', "\0" * 20, "[]"]
    transcript(folder.parent, "s1", calls)
    (folder.parent / "s2.jsonl").write_bytes(b"\xff" * 100)
    (folder.parent / "s3.jsonl").symlink_to("/dev/zero")


def huge_file(folder: Path) -> None:
    write_memory(folder, "endless.md", memory("endless"), at(0))
    os.truncate(folder / "endless.md", 2**26 + 1)
    write_index(folder, ["- [E](endless.md)", "- [a](a.md)"])


def no_index(folder: Path) -> None:
    (folder / "MEMORY.md").unlink()


def no_file(folder: Path) -> None:
    (folder / "a.md").unlink()


@pytest.mark.parametrize(
    "make_odd",
    [pytest.param(odd_files, marks=pytest.mark.long), huge_file, no_index, no_file],
)
def test_deletions_in_odd_folders_are_undone_exactly(
    make_odd: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = project_folder(tmp_path / "home")
    write_memory(folder, "a.md", memory("a"), at(0))
    write_index(folder, ["- [a](a.md)"])
    make_odd(folder)
    before = files_in(folder)
    contents = files_in(tmp_path / "home")
    for name, arguments in ({"find": "find {}"} | LOOKING).items():
        result = run(*typed(arguments, folder, tmp_path))
        exit_codes = {2} if name == "maintain" else {0, 1}
        assert result.exit_code in exit_codes, (name, result.output)
        assert result.output.strip(), name
        assert "\x1b" not in result.output, name
    assert files_in(tmp_path / "home") == contents
    plan = memlab.plan(folder, memlab.KeepRecent(0), now=at(5_000))
    receipt = memlab.apply(plan, now=at(5_000))
    remaining = memlab.load(folder)
    assert not remaining["prunable"].any()
    assert len(remaining) == plan.keeps.memories
    if plan.memories:
        assert memlab.restore(receipt).memories == len(plan.memories)
    assert files_in(folder) == before


# Harvest


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    new_world = World(tmp_path_factory.mktemp("home"), 11, memories=30)
    new_world.run(40)
    return new_world


def test_harvest_prints_counts_and_log(world: World, tmp_path: Path) -> None:
    log = tmp_path / "reads.log"
    output = output_of("harvest", world.folder, "-o", log)
    counted = len(world.counted())
    before_edits = len(world.reads_of_kind("maintenance"))
    for phrase in (
        f"{world.folder}: Claude Code memory, ",
        f"reads     {counted}, of ",
        f"excluded  {before_edits} before an edit of the same memory",
        f"log       {log}: {counted} new",
        "Claude Code deletes transcripts after 30 days",
        "lines that are broken or cut short",
        f"next: memlab size {world.folder} --log {log}",
    ):
        assert phrase in output
    result = run("harvest", world.folder, "-o", log)
    assert f"log       {log}: nothing new" in result.output


def test_harvest_of_an_unsupported_store_suggests_code_that_runs(tmp_path: Path) -> None:
    citation = "<oai-mem-citation><thread_ids>\na\n</thread_ids></oai-mem-citation>"
    message = {"type": "message", "role": "assistant", "content": [{"text": citation}]}
    line = {"type": "response_item", "timestamp": "2026-05-01T00:00:00Z", "payload": message}
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "rollout-1.jsonl").write_text(json.dumps(line))  # of Codex
    last_line = run("harvest", tmp_path, "-o", tmp_path / "reads.log").output.splitlines()[-1]
    assert "memlab size " not in last_line
    (call,) = re.findall(r"memlab\.read_access_log\(.*\)", last_line)
    assert eval(call, {"memlab": memlab})["memory_id"].tolist() == ["a"]


def test_size_suggests_harvest_only_if_reads_are_recorded(world: World, tmp_path: Path) -> None:
    own_store = write_rows(tmp_path / "own.db", episodes(300))
    write_odek(tmp_path / "d", ["one", "two"])
    of_odek = f"odek:{tmp_path}/d"
    explained = output_of("size", world.folder, "--explain")
    assert "memlab.AccessLog" in explained
    assert "memlab harvest" in explained
    assert "memlab harvest" in run("size", world.folder).output
    for source in (own_store, of_odek):
        explained = output_of("size", source, "--explain")
        assert "memlab.AccessLog" in explained
        assert "memlab harvest" not in explained
        assert "memlab harvest" not in run("size", source).output
    assert f"memlab size {of_odek} --log {tmp_path}/d.reads.jsonl" in explained


def test_size_names_a_log_beside_the_store(world: World, tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "-work-app" / "memory"
    shutil.copytree(world.folder, folder)
    first = memlab.load(folder)["memory_id"][0]
    log = folder.with_name("memory.reads.jsonl")
    log.write_text('{"memory_id": "of another store", "at": "2026-06-01T00:00:00Z"}\n')
    assert "is beside the store" not in output_of("size", folder)
    with memlab.AccessLog(log) as reads:
        reads.add(first, datetime(2026, 6, 1, tzinfo=UTC))
    output = output_of("size", folder)
    step = f"memlab size {folder} --log {log}"
    assert f"reads     a log of 1 read is beside the store and is not used: {step}" in output
    assert f"{step}    sizes a cap by these reads" in output
    assert "memlab harvest" not in output
    listed = output_of("rows", folder)
    counts_reads = f"memlab rows {folder} --log {log}"
    assert f"the log beside the store has 1 read; {counts_reads}" in listed
    assert "memlab harvest" not in listed
    report = memlab.report(folder, tmp_path / "report.html").output.read_text()
    assert "a log of 1 read is beside the store" in report
    assert "is beside the store" not in output_of("size", folder, "--log", log)


@pytest.mark.parametrize("text", ["not a log", '{"memory_id": 1}', ""])
def test_size_ignores_a_file_beside_the_store_that_is_no_log(tmp_path: Path, text: str) -> None:
    store = write_rows(tmp_path / "own.db", episodes(300))
    (tmp_path / "own.db.reads.jsonl").write_text(text)
    assert "beside the store" not in output_of("size", store)


def test_size_counts_reads_and_chances_of_a_log(tmp_path: Path) -> None:
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in range(1, 6)]
    rows = [row(f"e{day.day}", created_at=day.isoformat()) for day in days]
    rows[4]["evidence_refs_json"] = '["e3"]'
    store = write_rows(tmp_path / "own.db", rows)
    after_now = datetime.now(UTC) + timedelta(days=9)
    log = tmp_path / "reads.log"
    log.write_text('{"memory_id": "zz", "at": "2026-06-01T00:00:00"}\n' * 2)
    for command in ("size", "rows", "show"):
        assert "is it another store's log?" in output_of(command, store, "--log", log)
    with memlab.AccessLog(log) as reads:
        reads.add("e1", days[2])
        reads.add("another store's", days[4])
        reads.add("e2", after_now)
    with log.open("a") as file:
        file.write('{"memory_id": "a"\n')
    sized = run("size", store, "--log", log, "--explain").output
    for phrase in (
        (
            "  5 memories: 1 read, 2 never read, though they could have been, "
            "2 written after the last read in the log\n"
        ),
        "1 cut short, or no JSON object",
        "2 dates have no time zone; read as UTC",
        "1 with a time after now",
        "2 of something that was never in the store",
    ):
        assert phrase in sized
    with_references = json.loads(output_of("size", store, "--log", log, "--json"))
    assert with_references["chances"] == {"read": 1, "unread": 2, "too new": 2, "not loaded": 0}
    assert with_references["references"] == 2
    only_log = json.loads(output_of("size", store, "--log", log, "--only-log", "--json"))
    assert only_log["references"] == 1
