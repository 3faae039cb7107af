"""What counts as a later need in a folder of Claude Code's memory, where the answer is known."""

import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from claude_store import at, memory, project_folder, write_index, write_memory
from shell import said

import memlab
from memlab.compaction.reclaim import space
from memlab.errors import MemlabError
from memlab.evidence.cut import cut_losses
from memlab.evidence.references import count_references
from memlab.upkeep.health import Status, doctor
from memlab.views.bundled import store_path
from memlab.views.findings import examine
from memlab.views.page import sections_of


def test_sessions_that_ran_side_by_side_are_no_later_needs(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    for number in range(33):
        write_memory(folder, f"{number}.md", memory("m", session=f"s{number % 3}"), at(number))
    frame = memlab.load(folder)
    assert frame["thread_id"].nunique() == 3
    assert count_references(frame)["counted"].sum() == 0


def test_doctor_names_front_matter_links_and_lines_that_could_be_mended(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    for name, style in (("a", "broken"), ("b", "origin"), ("c", "origin")):
        write_memory(folder, f"{name}.md", memory(name, style=style))
    web = "[web](https://x.y/z.md)"
    write_index(folder, ["- [a](a.md)", f"- [gone](gone.md), {web}", *["filler"] * 200, "- b.md"])
    found = {each.name: each for each in doctor(folder).checks if each.status is Status.WARN}
    assert {*found} == {"front_matter", "index_links", "index_cut"}
    assert all(check.advice for check in found.values())
    assert found["front_matter"].summary.startswith("1 of 3 files have front matter that is no")
    assert "a.md" in found["front_matter"].summary
    assert found["index_links"].summary.endswith("line 2: gone.md")
    assert found["index_cut"].counts == {"found": 1}
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, ["- [a](a.md)"])
    assert doctor(folder).status is Status.OK


def test_the_room_of_a_folder_is_its_files(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    write_memory(folder, "a.md", "x" * 1000)
    write_index(folder, ["- [a](a.md)"])
    found = space(folder)
    assert found.file == found.after_vacuum == 1000 + len("- [a](a.md)\n")
    assert (found.wal, found.free, found.archive) == (0, 0, 0)


def long_index(home: Path) -> Path:
    """A folder of 300 files whose index, oldest first, is cut after 200 lines; one has no line."""
    folder = project_folder(home)
    for number in range(300):
        text = memory(f"m{number:03}", style="modified", modified=at(number))
        write_memory(folder, f"m{number:03}.md", text)
    write_index(folder, ["# Memory", *[f"- [m{n:03}](m{n:03}.md)" for n in range(299)]])
    return folder


def written_log(folder: Path, reads: list[tuple[int, datetime]]) -> Path:
    log = folder / "reads.jsonl"
    lines = [{"memory_id": f"m{n:03}.md", "at": when.isoformat()} for n, when in reads]
    log.write_text("\n".join(map(json.dumps, lines)))
    return log


def test_what_the_cut_loses_is_what_was_read_of_lines_below_it(tmp_path: Path) -> None:
    folder = long_index(tmp_path)
    reads = [0] * 4 + [150] * 2 + [250] * 3 + [298] * 5 + [299] * 6 + [999]
    log = written_log(tmp_path, [(n, at(4_000 + s / 3_600)) for s, n in enumerate(reads)])
    losses = cut_losses(folder, memlab.read_access_log(log))
    assert (losses.reads, losses.unnamed, losses.lost) == (20, 6, 8)
    assert losses.loaded == {
        "as it stands": 6,
        "newest first": 10,
        "oldest first": 6,
        "most read first": 12,  # not the first read of a line below the cut
    }
    assert losses.below == 100
    assert set(losses.files.values()) == {199}
    assert losses.to_frame()["share"].tolist() == [0.3, 0.5, 0.3, 0.6]
    lines = said("show", folder, "--log", log).splitlines()
    assert ["newest", "first", "199", "10", "50.0%"] in [line.split() for line in lines]
    with pytest.raises(MemlabError, match="has no index that is cut"):
        cut_losses(memlab.store_path("two_years"), memlab.read_access_log(log))


def test_a_read_is_judged_by_the_lines_that_there_were_at_its_moment(tmp_path: Path) -> None:
    folder = long_index(tmp_path)
    soon = [(n, at(n + 0.5)) for n in range(299)]  # each when it was the newest
    late = [(n, at(298 + n)) for n in (0, 99, 100)]  # of 299: ranks 299, 200 and 199
    log = written_log(tmp_path, soon + late)
    losses = cut_losses(folder, memlab.read_access_log(log))
    assert losses.loaded["oldest first"] == losses.loaded["as it stands"] == 199 + 3
    assert losses.loaded["newest first"] == 299 + 1
    assert losses.loaded["most read first"] == 199 + 2 + 1


def test_the_report_says_what_the_cut_loses_and_what_a_cap_brings_back(tmp_path: Path) -> None:
    projects = shutil.copytree(
        store_path("two_years").parent / "claude" / "projects", tmp_path / "projects"
    )
    folder, now = next(projects.glob("*/memory")), at(5_000)
    log = memlab.read_access_log(memlab.harvest(folder, tmp_path / "reads.jsonl").log)
    losses, words = cut_losses(folder, log), []
    for reads in (None, log):
        found = examine(folder, now=now, keep_recent=146, log=reads)
        (section,) = [each for each in sections_of(found) if each.anchor == "cut"]
        words.append("\n".join([*section.words, *map(str, section.tables[0].rows)]))
    assert "Which memories are read, transcripts say: memlab harvest" in words[0]
    assert f"{losses.lost} of memories whose line was cut" in words[1]
    assert "79 of 275 named files have their line below the cut" in words[1]
    assert "keep_recent = 146 leaves 176 of them; all fit." in words[1]
    memlab.apply(memlab.plan(folder, memlab.KeepRecent(146), now=now))
    boot = memlab.growth.summarize(memlab.load(folder), now=now).boot
    assert found.effect is not None
    assert boot.memories == found.effect.after.memories == 176
    assert boot.tokens == found.effect.after.tokens


def test_size_says_how_many_files_a_cut_index_loads_at_most(tmp_path: Path) -> None:
    loads = "a start loads 199 of the 299 files that it names; a cap that leaves more than 199"
    folder = long_index(tmp_path)
    assert loads in said("size", folder)
    write_index(folder, [f"- [m{n:03}](m{n:03}.md)" for n in range(100)])
    assert "by the index" not in said("size", folder)
