"""Plans that mend MEMORY.md line by line: missing lines, dead lines, order."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import memlab
from memlab.compaction import keep_copies
from memlab.errors import MemlabError, PlanError
from memlab.sources.capabilities import IndexLine, IndexMend
from memlab.systems.claude_code.index import LoadRule, MemoryIndex
from memlab.systems.claude_code.markdown import FileNames
from memlab.systems.claude_code.mend_undo import without_mend
from memlab.systems.claude_code.source import ClaudeCode
from memlab.upkeep.health import Check
from tests.support.claude_store import (
    at,
    memory,
    project_folder,
    realistic_folder,
    write_index,
    write_memory,
)
from tests.support.index_edits import EDITS, FILES, LINES, Edit, edited
from tests.support.properties import examples
from tests.support.repositories import Repository


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project_folder(tmp_path)


def planned(folder: Path, **options: bool) -> list[str]:
    """Return the lines of the index after its mend."""
    return memlab.plan_index(folder, **options).text.splitlines()


def by_action(folder: Path, action: str, **options: bool) -> list[IndexLine]:
    return memlab.plan_index(folder, **options).with_action(action)


def check_of(folder: Path, name: str) -> Check:
    (check,) = [check for check in memlab.doctor(folder).checks if check.name == name]
    return check


# New lines for unlisted files


STYLES = {
    "dash": ("- [A](a.md) — hook", "- [new](new.md) — about new"),
    "star": ("* [A](a.md) — hook", "* [new](new.md) — about new"),
    "colon": ("- [A](a.md): hook", "- [new](new.md): about new"),
    "hyphen": ("- [A](a.md) - hook", "- [new](new.md) - about new"),
    "no hook": ("- [A](a.md)", "- [new](new.md)"),
    "bold": ("- **[A](a.md)** — hook", "- **[new](new.md)** — about new"),
    "wikilink": ("- [[a]] — hook", "- [[new]] — about new"),
    "file name": ("- a.md: hook", "- new.md: about new"),
    "number": ("7. [A](a.md) — hook", "8. [new](new.md) — about new"),
    "wide": ("-   [A](a.md) — hook", "-   [new](new.md) — about new"),
    "row": ("| [A](a.md) | hook |", "| [new](new.md) | about new |"),
    "row of three": ("| 1 | [A](a.md) | hook |", "| about new | [new](new.md) |  |"),
}
"""An index line of a memory, and the new line that follows its style."""


@pytest.mark.parametrize(("line", "expected"), STYLES.values(), ids=STYLES.keys())
def test_new_line_follows_the_style_of_the_others(folder: Path, line: str, expected: str) -> None:
    write_memory(folder, "new.md", memory("new"))
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, [line])
    assert planned(folder)[-1] == expected


def test_new_line_below_prose_follows_the_entries(folder: Path) -> None:
    write_memory(folder, "new.md", memory("new"))
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, ["Read this first.", "- [A](a.md) — hook"])
    assert planned(folder)[-1] == "- [new](new.md) — about new"


def test_new_line_has_the_line_end_of_the_others(folder: Path) -> None:
    for name in ("a.md", "b.md"):
        write_memory(folder, name, memory(name.removesuffix(".md")))
    write_memory(folder, "MEMORY.md", "- [A](a.md) - x\r\n")
    assert memlab.plan_index(folder).text == "- [A](a.md) - x\r\n- [b](b.md) - about b\r\n"


def test_index_without_final_newline_stays_without(folder: Path) -> None:
    for name in ("a.md", "b.md"):
        write_memory(folder, name, memory(name.removesuffix(".md")))
    write_memory(folder, "MEMORY.md", "- [A](a.md)")
    assert memlab.plan_index(folder).text == "- [A](a.md)\n- [b](b.md)"


TITLES = {
    "name": (
        "---\nname: How to deploy\ndescription: staging first\ntype: project\n---\n",
        "- [How to deploy](x.md) — staging first",
    ),
    "heading": ("---\nname: x\ntype: project\n---\n# The deploy\n", "- [The deploy](x.md)"),
    "no front matter": ("Words.\n\n## Deploy ##\n", "- [Deploy](x.md)"),
    "neither": ("Words.\n", "- [x](x.md)"),
    "brackets": ("---\nname: '[a](b) `c`'\ntype: project\n---\n", "- [(a)(b) c](x.md)"),
    "comment": ("---\nname: y\ndescription: <!-- no\ntype: project\n---\n", "- [y](x.md) — no"),
}


@pytest.mark.parametrize(("text", "wanted"), TITLES.values(), ids=TITLES.keys())
def test_title_is_the_name_or_the_first_heading(folder: Path, text: str, wanted: str) -> None:
    write_memory(folder, "x.md", text)
    write_index(folder, ["# Memory"])
    assert planned(folder) == ["# Memory", wanted]


def test_long_description_is_cut_at_a_word(folder: Path) -> None:
    text = f"---\nname: y\ndescription: {'word ' * 99}\ntype: project\n---\n"
    write_memory(folder, "x.md", text)
    (line,) = planned(folder)
    assert line.endswith("word…")
    assert len(line) < 200


@pytest.mark.parametrize("name", ["two words.md", "a(b).md", "50%.md", "überblick.md", "北京_1.md"])
def test_any_file_name_is_linked(folder: Path, name: str) -> None:
    write_memory(folder, name, memory("x"))
    memlab.apply(memlab.plan_index(folder))
    assert memlab.load(folder)["index_state"].tolist() == ["listed"]


def test_new_line_goes_to_the_section_of_its_type(folder: Path) -> None:
    for name, kind in (("a", "feedback"), ("b", "feedback"), ("c", "project"), ("d", "project")):
        write_memory(folder, f"{name}.md", memory(name, kind))
    write_memory(folder, "new.md", memory("new", "feedback"), at(9))
    index = ["## Feedback", "- [A](a.md)", "- [B](b.md)", "", "## Projects", "- [C](c.md)"]
    write_index(folder, [*index, "- [D](d.md)"])
    assert planned(folder)[2:4] == ["- [B](b.md)", "- [new](new.md)"]


def test_new_line_is_on_top_of_a_newest_first_index(folder: Path) -> None:
    for number, name in enumerate("abc"):
        write_memory(folder, f"{name}.md", memory(name, modified=at(number)), at(number))
    write_memory(folder, "new.md", memory("new", modified=at(9)), at(9))
    write_index(folder, ["# Memory", "- [C](c.md)", "- [B](b.md)", "- [A](a.md)"])
    assert planned(folder)[1] == "- [new](new.md)"


def test_text_below_the_last_entry_stays_with_it(folder: Path) -> None:
    for name in "ab":
        write_memory(folder, f"{name}.md", memory(name))
    write_index(folder, ["- [A](a.md)", "which goes on here", "", "The end."])
    assert planned(folder) == [
        "- [A](a.md)",
        "which goes on here",
        "- [b](b.md)",
        "",
        "The end.",
    ]


@pytest.mark.parametrize(
    "lines",
    [["<!-- a comment", "that is never closed"], ["```", "code"], ["---", "a: b", "---"]],
    ids=["comment", "code", "front matter"],
)
def test_new_line_is_visible(folder: Path, lines: list[str]) -> None:
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, lines)
    memlab.apply(memlab.plan_index(folder))
    assert memlab.load(folder)["loaded_at_start"].tolist() == [True]


def test_memory_listed_in_a_hub_gets_no_line(folder: Path) -> None:
    for name in "abc":
        write_memory(folder, f"{name}.md", memory(name))
    write_memory(folder, "hub.md", "# Hub\n- [A](a.md)\n- [B](b.md)\n")
    write_index(folder, ["- [Hub](hub.md)"])
    assert [line.file for line in by_action(folder, "adds")] == ["c.md"]


def test_retired_memory_gets_no_line(folder: Path) -> None:
    for number, name in enumerate("abc"):
        write_memory(folder, f"{name}.md", memory(name), at(number))
    write_index(folder, ["- [A](a.md)", "- [B](b.md)", "- [C](c.md)"])
    memlab.apply(memlab.plan(folder, memlab.KeepRecent(1), retire=True))
    assert memlab.plan_index(folder).is_empty


# Dead lines


KEPT = {
    "sentence": "Before a release read [Gone](gone.md) once more.",
    "heading": "## [Gone](gone.md)",
    "another file": "- [Gone](gone.md), [A](a.md)",
    "web": "- [Gone](gone.md), [site](https://x.y/z.md)",
    "a note of a file to write": "- [Gone](gone.md), [[later]]",
    "code": "- `[Gone](gone.md)`",
    "image": "- ![Gone](gone.md)",
    "comment": "<!-- [Gone](gone.md) -->",
    "outside": "- [Gone](../gone.md)",
    "a link": "- [Link](link.md)",
    "a folder": "- [Folder](sub.md)",
    "other file": "- [Script](run.sh)",
    "no file name": "- [call](me)",
    "wikilink": "- [[gone]]",
    "moved below": "- [Deep](deep.md)",
    "with children": "- [Gone](gone.md)\n  - [A](a.md)",
    "with words below": "- [Gone](gone.md)\n  - words",
    "head of a table": "| [Gone](gone.md) | x |\n| --- | --- |\n| [A](a.md) | y |",
}


@pytest.mark.parametrize("line", KEPT.values(), ids=KEPT.keys())
def test_line_is_kept_if_its_file_may_exist(folder: Path, line: str) -> None:
    write_memory(folder, "a.md", memory("a"))
    write_memory(folder, "sub/deep.md", "No type.\n")
    (folder / "sub.md").mkdir()
    (folder / "link.md").symlink_to(folder / "nowhere.md")
    write_index(folder, ["- [A](a.md)", line])
    plan = memlab.plan_index(folder)
    assert plan.is_empty
    assert plan.text == f"- [A](a.md)\n{line}\n"


DEAD = {
    "entry": "- [Gone](gone.md) — hook",
    "starred": "* **[Gone](<gone too.md>)** hook",
    "two": "- [Gone](gone.md), [Too](gone%20too.md)",
    "numbered": "1. [Gone](gone.md)",
    "row": "| [Gone](gone.md) | hook |",
    "no bullet": "[Gone](gone.md) — hook",
    "goes on": "- [Gone](gone.md) — hook\n  that goes on",
    "parent": "- [Gone](gone.md)\n  - [Too](gone_too.md)",
}


@pytest.mark.parametrize("line", DEAD.values(), ids=DEAD.keys())
def test_entry_of_a_missing_file_is_removed(folder: Path, line: str) -> None:
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, ["- [A](a.md)", "", line])
    assert planned(folder) == ["- [A](a.md)", ""]


def test_kept_line_has_a_reason(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a"))
    write_index(folder, ["- [A](a.md)", KEPT["sentence"], KEPT["another file"]])
    reasons = [line.reason for line in by_action(folder, "stays")]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "it is a sentence or a heading",
        "it names a.md too",
    ]


def test_dead_line_names_the_recovery_command(folder: Path) -> None:
    for name in "ab":
        write_memory(folder, f"{name}.md", memory(name))
    write_index(folder, ["- [A](a.md)", "- [B](b.md)"])
    keep_copies(folder)
    (folder / "b.md").unlink()
    (line,) = by_action(folder, "removes")
    assert line.reason.endswith(f"memlab lost {folder} --restore b.md would bring it back")


# Empty headings


def test_empty_headings_are_removed_only_on_request(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a"))
    index = ["# Memory", "", "## Empty", "", "### Empty too", "## Full", "### Inner", "- [A](a.md)"]
    write_index(folder, [*index, "", "## Last"])
    assert memlab.plan_index(folder).is_empty
    assert planned(folder, empty_headings=True) == ["# Memory", "", *index[5:], ""]
    assert check_of(folder, "empty_headings").counts == {"found": 3}


# Order


def long_folder(folder: Path, count: int = 12, *, loaded: int = 4) -> ClaudeCode:
    """Make a folder of which a start loads only the first lines."""
    for number in range(count):
        write_memory(folder, f"m{number}.md", memory(f"m {number}"), at(number))
    write_index(folder, [f"- [M {number}](m{number}.md)" for number in range(count)])
    source = ClaudeCode(folder)
    source._rule = LoadRule(lines=loaded)
    return source


def mend_of(source: ClaudeCode, reads: dict[str, int], *, reorder: bool = True) -> IndexMend:
    assert source.index is not None
    mending = source.index.mending
    assert mending is not None
    return mending.planned(reads, {}, empty_headings=False, reorder=reorder)


def lines_after(mend: IndexMend) -> list[str]:
    assert mend.after is not None
    return mend.after.decode().splitlines()


def mended_lines(source: ClaudeCode, reads: dict[str, int]) -> list[str]:
    return lines_after(mend_of(source, reads))


def test_most_read_lines_are_moved_into_the_loaded_part(folder: Path) -> None:
    source = long_folder(folder)
    lines = mended_lines(source, {"m9.md": 5, "m6.md": 2, "m0.md": 1, "gone.md": 9})
    names = [line.partition("](")[2].rstrip(")") for line in lines]
    assert names[:4] == ["m0.md", "m1.md", "m6.md", "m9.md"]
    assert names[4:] == [f"m{number}.md" for number in (2, 3, 4, 5, 7, 8, 10, 11)]


def test_order_is_unchanged_without_reads_or_within_limit(folder: Path) -> None:
    source = long_folder(folder)
    before = (folder / "MEMORY.md").read_text().splitlines()
    assert mended_lines(source, {}) == before
    source._rule = LoadRule()
    assert mended_lines(source, {"m9.md": 5}) == before


def test_lines_are_reordered_only_within_a_section(folder: Path) -> None:
    source = long_folder(folder, loaded=5)
    lines = (folder / "MEMORY.md").read_text().splitlines()
    write_index(folder, ["# One", *lines[:6], "# Two", "A sentence.", *lines[6:]])
    mended = mended_lines(source, {"m5.md": 3, "m11.md": 4})
    assert mended[0] == "# One"
    assert mended[7:9] == ["# Two", "A sentence."]
    assert "- [M 5](m5.md)" in mended[1:5]
    # A start loads no line of the second section, so the order within it makes no difference.
    assert mended[9:] == lines[6:]


def loaded_names(lines: list[str], rule: LoadRule) -> list[str]:
    """Return the files that the loaded lines of an index link."""
    index = MemoryIndex("".join(f"{line}\n" for line in lines).encode(), rule)
    return [line.partition("](")[2].partition(")")[0] for line in index.loaded.splitlines()]


def test_most_read_lines_push_no_load_bearing_line_out(folder: Path) -> None:
    source = long_folder(folder)
    write_memory(folder, "m2.md", memory("m 2", "feedback"), at(2))
    write_memory(folder, "m3.md", memory("m 3", "user"), at(3))
    lines = mended_lines(source, {f"m{number}.md": number for number in range(5, 12)})
    assert loaded_names(lines, source._rule) == ["m2.md", "m3.md", "m10.md", "m11.md"]


def test_longer_lines_push_no_fixed_load_bearing_line_out(folder: Path) -> None:
    source = long_folder(folder, 8)
    write_memory(folder, "m4.md", memory("m 4", "feedback"), at(4))
    loaded = [*(f"- [M {number}](m{number}.md)" for number in range(4)), "1. [M 4](m4.md)"]
    cut = [f"- [M {number}](m{number}.md) — a long hook" for number in range(5, 8)]
    write_index(folder, [*loaded, *cut])
    source._rule = LoadRule(units=len("\n".join(loaded)) + 1)
    lines = mended_lines(source, {"m6.md": 3})
    assert "m4.md" in loaded_names(lines, source._rule)


def folder_with_unlisted_file(folder: Path) -> ClaudeCode:
    """Make an index of which a start loads m8 to m5; m5 is load-bearing, and m9 has no line."""
    source = long_folder(folder, 10)
    write_memory(folder, "m5.md", memory("m 5", "feedback"), at(5))
    write_index(folder, [f"- [M {number}](m{number}.md)" for number in reversed(range(9))])
    return source


@pytest.mark.parametrize("reads", [{}, {"m0.md": 3}], ids=["no reads", "reads"])
def test_new_line_pushes_no_load_bearing_line_out(folder: Path, reads: dict[str, int]) -> None:
    source = folder_with_unlisted_file(folder)
    mend = mend_of(source, reads)
    names = loaded_names(lines_after(mend), source._rule)
    assert names[0] == "m9.md"
    assert "m5.md" in names
    reasons = {line.file: line.reason for line in mend.lines if line.action == "moves"}
    assert reasons["m5.md"] == "load-bearing: a start still loads it"


def test_line_that_makes_room_for_a_load_bearing_one_is_named(folder: Path) -> None:
    mend = mend_of(folder_with_unlisted_file(folder), {})
    reasons = {line.file: line.reason for line in mend.lines if line.action == "moves"}
    assert reasons["m6.md"] == "makes room: no start loads it now"


def test_plan_names_a_load_bearing_line_that_drops_out_of_a_kept_order(folder: Path) -> None:
    mend = mend_of(folder_with_unlisted_file(folder), {"m0.md": 3}, reorder=False)
    (line,) = [line for line in mend.lines if line.action == "stays"]
    assert (line.file, line.number) == ("m5.md", 5)
    assert "no start loads it any more" in line.reason


def test_plan_names_a_fixed_load_bearing_line_that_drops_out(folder: Path) -> None:
    source = folder_with_unlisted_file(folder)
    lines = (folder / "MEMORY.md").read_text().splitlines()
    write_index(folder, [*lines[:3], "1. [M 5](m5.md)", *lines[4:]])
    mend = mend_of(source, {})
    assert "m5.md" not in loaded_names(lines_after(mend), source._rule)
    assert [line.file for line in mend.lines if line.action == "stays"] == ["m5.md"]


def test_nested_and_numbered_entries_and_hubs_stay(folder: Path) -> None:
    source = long_folder(folder, loaded=2)
    write_memory(folder, "hub.md", "# Hub\n- [0](m0.md)\n- [1](m1.md)\n")
    index = ["- [Hub](hub.md)", "- Parent", "  - [0](m0.md)", "1. [1](m1.md)", "- [2](m2.md)"]
    rest = [f"- [{number}](m{number}.md)" for number in range(3, 12)]
    write_index(folder, [*index, *rest])
    mended = mended_lines(source, {"m0.md": 9, "m1.md": 8, "m11.md": 7})
    assert mended[:4] == index[:4]


def test_order_follows_the_given_log(folder: Path, tmp_path: Path) -> None:
    long_folder(folder, 210)
    log = tmp_path / "reads.csv"
    log.write_text("memory_id,at\n" + "m205.md,2026-03-20T10:00:00Z\n" * 3)
    assert memlab.plan_index(folder).with_action("moves") == []
    lines = memlab.plan_index(folder, log=log).with_action("moves")
    assert {line.file: line.reason for line in lines} == {
        "m205.md": "read 3 times: a start loads it now",
        "m199.md": "read 0 times: no start loads it now",
    }
    assert memlab.plan_index(folder, log=log, reorder=False).is_empty


# A lost index


@pytest.mark.parametrize("state", ["missing", "emptied", "cut to one entry"])
@pytest.mark.parametrize("known_by", ["git", "copies"])
def test_lost_index_is_restored_from_git_or_copies(folder: Path, state: str, known_by: str) -> None:
    realistic_folder(folder)
    memlab.apply(memlab.plan_index(folder))
    before = (folder / "MEMORY.md").read_text()
    if known_by == "git":
        Repository(folder).commit(100)
    else:
        keep_copies(folder)
    if state == "missing":
        (folder / "MEMORY.md").unlink()
    elif state == "emptied":
        (folder / "MEMORY.md").write_text("")
    else:
        write_index(folder, ["- [About topic_0.md](topic_0.md) — a hook, 0"])
    plan = memlab.plan_index(folder)
    entries = {line for line in before.splitlines() if "](" in line or "[[" in line}
    assert entries <= set(plan.text.splitlines())
    assert plan.load_after.named == plan.load_after.files
    entry_count = 8  # the files of a realistic folder, each with one entry
    remaining_count = 1 if state == "cut to one entry" else 0
    assert len(plan.with_action("restores")) == entry_count - remaining_count
    if known_by == "git":
        assert Counter(plan.text.split()) == Counter(before.split())


def test_later_lines_stay_when_git_restores_an_index(folder: Path) -> None:
    realistic_folder(folder)
    Repository(folder).commit(100)
    write_memory(folder, "new.md", memory("new"), at(101))
    write_index(folder, ["# Begun again", "- [New](new.md) — by hand", "- [T](topic_0.md) anew"])
    lines = planned(folder)
    assert {"# Begun again", "- [New](new.md) — by hand", "- [T](topic_0.md) anew"} <= {*lines}
    assert not any(line.startswith("- [About topic_0.md]") for line in lines)
    assert "## Section 5" in lines


def test_unknown_lost_index_is_written_anew(folder: Path) -> None:
    for name in "ab":
        write_memory(folder, f"{name}.md", memory(name))
    plan = memlab.plan_index(folder)
    assert plan.text == "- [a](a.md) — about a\n- [b](b.md) — about b\n"
    receipt = memlab.apply(plan)
    assert memlab.load(folder)["index_state"].eq("listed").all()
    memlab.restore(receipt)
    assert not (folder / "MEMORY.md").exists()


# Doctor, and rejected indexes


def test_doctor_counts_what_the_index_command_mends(folder: Path) -> None:
    for name in "abc":
        write_memory(folder, f"{name}.md", memory(name))
    write_index(folder, ["- [A](a.md)", "- [B](b.md)", "- [Gone](gone.md)", "## Empty"])
    for name, count in (("unlisted", 1), ("index_links", 1), ("empty_headings", 1)):
        check = check_of(folder, name)
        assert check.status == "WARN"
        assert check.counts == {"found": count}
        assert f"memlab index {folder}" in check.advice
    memlab.apply(memlab.plan_index(folder, empty_headings=True))
    assert memlab.doctor(folder).status == "OK"


def test_doctor_counts_hubs(folder: Path) -> None:
    for name in "ab":
        write_memory(folder, f"{name}.md", memory(name))
    write_memory(folder, "hub.md", "# Hub\n- [A](a.md)\n- [B](b.md)\n")
    write_index(folder, ["- [Hub](hub.md)"])
    assert check_of(folder, "hubs").summary.startswith("1 hub names 2 memories")


def test_store_without_an_index_is_rejected() -> None:
    with pytest.raises(MemlabError, match="has no index"):
        memlab.plan_index(memlab.store_path("three_hundred_issues"))


def test_index_that_is_not_utf8_is_rejected(folder: Path) -> None:
    write_memory(folder, "a.md", memory("a"))
    (folder / "MEMORY.md").write_bytes(b"\xff- [A](a.md)\n")
    with pytest.raises(PlanError, match=r"not UTF-8 \(byte 0\)"):
        memlab.plan_index(folder)


def test_index_without_room_for_a_line_is_rejected(folder: Path) -> None:
    """An indented line would continue a new entry above it; open code would hide one below."""
    for name in "ab":
        write_memory(folder, f"{name}.md", memory(name))
    write_index(folder, ["  goes on to [A](a.md)", "```"], end="")
    before = (folder / "MEMORY.md").read_bytes()
    with pytest.raises(PlanError, match=r"nothing was planned: write a line for b\.md by hand"):
        memlab.plan_index(folder)
    assert (folder / "MEMORY.md").read_bytes() == before


# Properties


OWN_LINES = (
    "- [Gone](gone.md) — hook",
    "* [G](<lost one.md>)",
    "  - [Nested](n.md)",
    "- Parent",
    "- [P](p.md)",
    "| [Gone](gone.md) | x |",
    "| --- | --- |",
    "## Empty",
    "### Deeper",
    "- [Gone](gone.md) and [d](https://x.y)",
    "See [Gone](gone.md).",
    "> - [Q](a.md)",
    "- [ ] [A](a.md) todo",
    "3) [B](b.md)",
)
"""Lines that are drawn beside those of :data:`index_edits.LINES`."""
PRINTABLE_LINES = [line for line in LINES if line.isprintable()]
"""Lines without surrogates, which stand for bytes that are not UTF-8; such an index is rejected."""


@st.composite
def indexes(draw: st.DrawFn) -> str:
    """Draw the text of an index, with or without a final line end."""
    lines = draw(st.lists(st.sampled_from([*PRINTABLE_LINES, *OWN_LINES]), max_size=14))
    line_end = draw(st.sampled_from(("\n", "\n", "\r\n")))
    has_final_line_end = draw(st.booleans())
    text = line_end.join(lines)
    if lines and has_final_line_end:
        text += line_end
    return text


def has_open_end(text: str) -> bool:
    """True if a comment or code block of an index is not closed."""
    has_open_comment = text.rfind("<!--") > text.rfind("-->")
    has_open_code = text.count("```") % 2 == 1 or text.count("~~~") % 2 == 1
    return has_open_comment or has_open_code


def line_numbers(first: int, text: str) -> set[int]:
    """Return the numbers of the lines of a text that begins on a line."""
    return set(range(first, first + len(text.splitlines())))


@settings(max_examples=examples(120), deadline=None)
@example(text="---\n- [Gone](gone.md)\n---\n", files={"a.md"}, reads={}, lines=1, headings=True)
@example(
    text="- [A](a.md) - hook\n- [A](a.md) - hook\n* [[a]] by name\n  goes on to [A](a.md)",
    files=set(),
    reads={},
    lines=3,
    headings=False,
)
@example(
    text="1. [C](c.md)\n- [T](b.md)\n  goes on to [A](a.md)",
    files={"a.md"},
    reads={},
    lines=1,
    headings=False,
)
@example(
    text="- [A](a.md) - hook\n- [B](b.md) `[[x]]`\n  goes on to [A](a.md)",
    files=set(),
    reads={},
    lines=1,
    headings=False,
)
@example(
    text="* [[a]] by name\n* [[a]] by name\n* [[a]] by name\n  goes on to [A](a.md)",
    files=set(),
    reads={},
    lines=1,
    headings=False,
)
@example(
    text="- [A](a.md)\n- [A](a.md)\n- [A](a.md), [B](b.md)\n- [B](b.md)",
    files={"a.md", "b.md"},
    reads={"b.md": 1},
    lines=2,
    headings=False,
)
@example(
    text="- [B](b.md) `[[x]]`\n  goes on to [A](a.md)",
    files={"a.md", "b.md", "c.md"},
    reads={},
    lines=1,
    headings=False,
)
@given(
    text=indexes(),
    files=st.sets(st.sampled_from(FILES)),
    reads=st.dictionaries(st.sampled_from(FILES), st.integers(0, 5)),
    lines=st.integers(1, 14),
    headings=st.booleans(),
)
def test_mended_index_names_every_memory_and_loses_no_line(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    files: set[str],
    reads: dict[str, int],
    lines: int,
    headings: bool,
) -> None:
    folder = project_folder(tmp_path_factory.mktemp("home"))
    for number, name in enumerate(sorted(files)):
        kind = "project" if number % 2 == 0 else "feedback"
        write_memory(folder, name, memory(name.removesuffix(".md"), kind), at(number))
    (folder / "MEMORY.md").write_bytes(text.encode())
    source = ClaudeCode(folder)
    source._rule = LoadRule(lines=lines)
    assert source.index is not None
    mending = source.index.mending
    assert mending is not None
    try:
        mend = mending.planned(reads, {}, empty_headings=headings, reorder=True)
    except PlanError:
        assert has_open_end(text)
        return
    after = MemoryIndex(mend.after or b"", source._rule)
    names = FileNames(folder, files)
    blocks_by_file = after.blocks_by_file(names)
    hubs_by_file = source.read_moment(lambda moment: source.view(moment).hubs_of)
    assert files <= blocks_by_file.keys() | hubs_by_file.keys()
    for line in mend.lines:
        if line.action == "adds":
            assert len(blocks_by_file[line.file]) == 1
    dead_numbers = {
        number for number, target in after.dangling(names) if target.strip("<>").endswith(".md")
    }
    kept_numbers: set[int] = set()
    for line in mend.lines:
        if line.action == "stays":
            kept_numbers |= line_numbers(line.number, line.text)
    for block in after.blocks:
        if block.number in dead_numbers:
            assert kept_numbers & line_numbers(block.number, block.text)
    removed_texts = {line.text for line in mend.lines if line.action in ("removes", "clears")}
    old = Counter(line.strip() for line in text.splitlines() if line.strip())
    new = Counter(line.strip() for line in after.raw.decode().splitlines() if line.strip())
    for line in old - new:
        assert any(line in removed for removed in removed_texts), line
    (folder / "MEMORY.md").write_bytes(after.raw)
    second_plan = mending.planned(reads, {}, empty_headings=headings, reorder=True)
    assert second_plan.after == after.raw


BEFORE = b"""\
# Memory
- [F0](f0.md)
- [F1](f1.md)
- [F2](f2.md)
- [F3](f3.md)
- [F4](f4.md)
- [F5](f5.md)
- [Gone](gone.md)
## Two
- [G](g.md)
- [Gone too](gone_too.md)
"""
MENDED = b"""\
# Memory
- [F4](f4.md)
- [F0](f0.md)
- [F1](f1.md)
- [F2](f2.md)
- [F3](f3.md)
- [F5](f5.md)
- [N](n.md)
## Two
- [G](g.md)
- [O](o.md)
"""
MENDED_NAMES = FileNames(
    Path("/memory"),
    {"f0.md", "f1.md", "f2.md", "f3.md", "f4.md", "f5.md", "g.md", "n.md", "o.md"},
)


def lines_in(raw: bytes) -> Counter[bytes]:
    return Counter(line.strip() for line in raw.splitlines() if line.strip())


@settings(max_examples=examples(300))
@given(EDITS)
def test_undo_of_a_mend_keeps_random_edits(edits: list[Edit]) -> None:
    edited_index = edited(MENDED, edits)
    undone = without_mend(BEFORE, MENDED, edited_index, MENDED_NAMES).data
    added = lines_in(MENDED) - lines_in(BEFORE)
    removed = lines_in(BEFORE) - lines_in(MENDED)
    not_added = lines_in(edited_index) - added
    remaining_added = lines_in(edited_index) & added
    assert not_added <= lines_in(undone)
    assert lines_in(undone) <= not_added + removed + remaining_added
    if not edits:
        assert undone == BEFORE


def test_undo_of_a_mend_keeps_an_adjacent_edit() -> None:
    edited_index = MENDED.replace(b"## Two\n", b"## Two\nBy hand.\n")
    expected = BEFORE.replace(b"## Two\n", b"## Two\nBy hand.\n")
    assert without_mend(BEFORE, MENDED, edited_index, MENDED_NAMES).data == expected


def test_entry_moved_by_hand_stays_in_its_place() -> None:
    heading, moved, *lines = MENDED.splitlines(keepends=True)
    edited_index = b"".join([heading, *lines[:5], moved, *lines[5:]])
    undone = without_mend(BEFORE, MENDED, edited_index, MENDED_NAMES).data
    entries = [line for line in undone.splitlines() if line.startswith(b"- [F")]
    assert entries == [f"- [F{number}](f{number}.md)".encode() for number in (0, 1, 2, 3, 5, 4)]
