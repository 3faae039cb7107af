"""``memlab find`` and ``memlab harvest``, and ``show`` and ``size`` on what they found."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from claude_store import as_found, at, memory, project_folder, write_index, write_memory
from odek_store import write_odek
from shell import run, said
from stores import episodes, row, write_rows
from transcripts import World

import memlab


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_MEM_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_find_prints_a_line_a_store_and_what_to_run_next_and_says_when_there_is_none(
    home: Path,
) -> None:
    assert "0 stores" in said("find")
    assert "next: memlab find FOLDER" in said("find")
    folder = as_found(project_folder(home), files=12)
    write_odek(home / "elsewhere", ["one"])
    shown = said("find")
    assert "1 store" in shown
    assert "Claude Code memory        12" in shown
    assert shown.rstrip().endswith(f"next: memlab show {folder}")
    assert len(json.loads(said("find", "--json"))["stores"]) == 1


def test_show_lists_the_stores_of_a_folder_that_holds_several(home: Path) -> None:
    for number in range(2):
        as_found(project_folder(home, f"-p{number}"), files=5)
    assert "2 stores" in said("show", home / ".claude")
    (home / "empty").mkdir()
    assert "a folder without a store in it; name a store" in said("show", home / "empty", code=2)
    (home / "empty" / "note.md").write_text("---\nname: note\n---\n")
    notes = said("show", home / "empty", code=2)
    assert f"name notes by their system, as claude:{home}/empty" in notes


def test_show_says_what_of_an_index_is_loaded_and_what_is_cut(home: Path) -> None:
    folder = project_folder(home)
    for number in range(205):
        write_memory(folder, f"f{number}.md", memory(f"m{number}"), at(number))
    write_memory(folder, "alone.md", memory("nobody names me", style="broken"), at(300))
    write_index(folder, [*(f"- [T](f{number}.md)" for number in range(204)), "- [X](gone.md)"])
    shown = said("show", folder)
    assert re.search(r"loaded at every start +200 ", shown)
    for words in (
        "200 of 205 lines are loaded",
        "204 of 206 files are named by a line",
        "4 named files stand below what is loaded",
        "lines that are cut: 4",
        "- [T](f200.md)",
        "files that no line names: 2",
        "alone.md",
        "lines whose file is not there: 1",
        "gone.md",
        "front matter that is no YAML: 1",
        "206 by file time",
    ):
        assert words in shown, words
    about = json.loads(said("show", folder, "--json"))["about"]
    assert about["cut_files"] == ["f200.md", "f201.md", "f202.md", "f203.md"]


# Harvest


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("home"), 11, memories=30)
    made.run(40)
    return made


def test_it_says_what_it_found_left_out_and_wrote(world: World, tmp_path: Path) -> None:
    log = tmp_path / "reads.log"
    done = said("harvest", world.folder, "-o", log)
    counted, apart = len(world.counted()), len(world.apart("maintenance"))
    for words in (
        f"{world.folder}: Claude Code memory, ",
        f"reads       {counted}, of ",
        f"kept apart  {apart} ended in an edit",
        f"log         {log}: {counted} new",
        "Claude Code deletes transcripts after 30 days",
        "lines that are broken or cut short",
        f"next: memlab size {world.folder} --log {log}",
    ):
        assert words in done
    again = run("harvest", world.folder, "-o", log)
    assert f"log         {log}: nothing new" in again.output


def test_of_a_store_that_memlab_does_not_load_it_says_what_works(tmp_path: Path) -> None:
    said = "<oai-mem-citation><thread_ids>\na\n</thread_ids></oai-mem-citation>"
    message = {"type": "message", "role": "assistant", "content": [{"text": said}]}
    line = {"type": "response_item", "timestamp": "2026-05-01T00:00:00Z", "payload": message}
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "rollout-1.jsonl").write_text(json.dumps(line))  # of Codex
    done = run("harvest", tmp_path, "-o", tmp_path / "reads.log").output.splitlines()[-1]
    assert "memlab size " not in done
    (call,) = re.findall(r"memlab\.read_access_log\(.*\)", done)
    assert eval(call, {"memlab": memlab})["memory_id"].tolist() == ["a"]


def test_a_harvest_is_named_where_there_is_something_to_harvest_and_the_log_beside_the_store(
    world: World, tmp_path: Path
) -> None:
    own = write_rows(tmp_path / "own.db", episodes(300))
    write_odek(tmp_path / "d", ["one", "two"])
    of_odek = f"odek:{tmp_path}/d"
    for source, named in ((world.folder, True), (own, False), (of_odek, False)):
        done = said("size", source, "--explain")
        assert "memlab.AccessLog" in done
        for words in (done, run("size", source).output):
            assert ("memlab harvest" in words) == named
    assert f"memlab size {of_odek} --log {tmp_path}/d.reads.jsonl" in done


def test_what_a_log_held_who_had_a_chance_and_what_is_no_read_is_said(tmp_path: Path) -> None:
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in range(1, 6)]
    rows = [row(f"e{day.day}", created_at=day.isoformat()) for day in days]
    rows[4] |= {"evidence_refs_json": '["e3"]'}
    store = write_rows(tmp_path / "own.db", rows)
    late = datetime.now(UTC) + timedelta(days=9)
    log = tmp_path / "reads.log"
    log.write_text('{"memory_id": "zz", "at": "2026-06-01T00:00:00"}\n')
    assert "is it another store's log?" in said("size", store, "--log", log)
    with memlab.AccessLog(log) as reads:
        for memory_id, at in (("e1", days[2]), ("another store's", days[4]), ("e2", late)):
            reads.add(memory_id, at)
    log.write_text(f'{log.read_text()}{{"memory_id": "a"\n')
    sized = run("size", store, "--log", log, "--explain").output
    needed = "1 read, 2 never read, though they could have been"
    for words in (
        f"  5 memories: {needed}, 2 written after the last read in the log\n",
        "1 cut short, or no JSON object",
        "1 time without a zone, taken as UTC",
        "1 with a time after now",
        "2 of something that was never in the store",
    ):
        assert words in sized
    told = json.loads(said("size", store, "--log", log, "--json"))
    assert told["chances"] == {"read": 1, "unread": 2, "too new": 2, "not loaded": 0}
    alone = json.loads(said("size", store, "--log", log, "--only-log", "--json"))
    assert (told["references"], alone["references"]) == (2, 1)
