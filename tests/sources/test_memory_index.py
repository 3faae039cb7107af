"""Lines of an index: which files they name, and taking a file's lines out byte for byte."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.sources.index_links import FileNames, is_local, mentions_in, wikilinks_in
from memlab.sources.load_rule import State
from memlab.sources.memory_index import MemoryIndex

FOLDER = Path("/home/u/.claude/projects/-w/memory")


def names(*files: str, **aliases: str) -> FileNames:
    return FileNames(FOLDER, files, aliases)


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("- [Title](a.md) — hook", "a.md"),
        ("* **[Title](a.md)** hook", "a.md"),
        ("- ★ [Title](./a.md)", "a.md"),
        ("Before a deploy read [the rules](a.md#windows), always.", "a.md"),
        ("[Title](<my notes.md>)", "my notes.md"),
        ("[Title](my notes.md)", "my notes.md"),
        ("[Title](my%20notes.md)", "my notes.md"),
        ('[Title](a.md "a tooltip")', "a.md"),
        ("[Title](memory/a.md)", "a.md"),
        (f"[Title]({FOLDER}/a.md)", "a.md"),
        ("[T](a (old).md)", "a (old).md"),
        ("- [[a]] and more", "a.md"),
        ("- [[a|what it is]]", "a.md"),
        ("see [[deploy-window]]", "project_deploy.md"),
        ("- a.md: hook", "a.md"),
        ("- `a.md` — hook", "a.md"),
        ("| a.md | hook |", "a.md"),
        ("1. **a.md** hook", "a.md"),
        ("- [T](A.MD)", "a.md"),
        ("- [T](überblick.md)", "u\u0308berblick.md"),
        ("- [T](v1.2.notes.md)", "v1.2.notes.md"),
        ("- [ ] [T](a.md)", "a.md"),
    ],
)
def test_a_line_names_a_file_however_it_writes_it(line: str, file: str) -> None:
    files = ["a.md", "my notes.md", "a (old).md", "u\u0308berblick.md", "project_deploy.md"]
    found = names(*files, "v1.2.notes.md", **{"deploy-window": "project_deploy.md"})
    assert [block.files(found) for block in MemoryIndex(line.encode()).blocks] == [[file]]


@pytest.mark.parametrize(
    "line",
    [
        "- [T](https://example.org/a.md)",
        "- [T](../a.md)",
        "- [T](sub/a.md)",
        "running text that mentions a.md",
        "- text, then a.md",
        "# a.md",
        "- [T](other.md)",
        "- ",
        "<!-- [T](a.md) -->",
        "- see docs/a.md",
        "- a.md-old",
    ],
)
def test_what_is_no_link_to_a_file_here_names_none(line: str) -> None:
    (block,) = MemoryIndex(line.encode()).blocks
    assert block.files(names("a.md")) == []


def test_two_files_that_differ_in_case_alone_are_told_apart_by_the_name_as_written() -> None:
    both = names("Notes.md", "notes.md")
    assert both.file_of("notes.md") == "notes.md"
    assert both.file_of("Notes.md") == "Notes.md"
    assert both.file_of("NOTES.md") is None


def test_links_to_files_that_are_gone_are_told_with_their_lines() -> None:
    index = MemoryIndex(b"# x\n- [A](a.md)\n- [B](b.md), [web](https://x.y/z.md)\n")
    assert index.dangling(names("a.md")) == [(3, "b.md")]
    assert not is_local("https://x.y/z.md")


def test_several_links_a_line_are_all_found() -> None:
    index = MemoryIndex(b"- [A](a.md), [B](b.md) and [[c]]\n- [A](a.md)\n")
    named = index.named(names("a.md", "b.md", "c.md", "d.md"))
    assert {name: [b.number for b in blocks] for name, blocks in named.items()} == {
        "a.md": [1, 2],
        "b.md": [1],
        "c.md": [1],
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- [A](a.md) - hook\n- [B](b.md)\n", "- [B](b.md)\n"),
        ("- [A](a.md)\n  goes on here\n- [B](b.md)\n", "- [B](b.md)\n"),
        ("- [A](a.md)\n  - [B](b.md)\n", "- A\n  - [B](b.md)\n"),
        ("- [A](a.md), [B](b.md) - hook\n", "- A, [B](b.md) - hook\n"),
        ("- [a.md](a.md), [B](b.md)\n", "- a, [B](b.md)\n"),
        ("Read [A](a.md) before you deploy.\n", "Read A before you deploy.\n"),
        ("| [A](a.md) | hook |\n|---|\n", "|---|\n"),
        ("- a.md: hook, then [B](b.md)\n", "- a: hook, then [B](b.md)\n"),
        ("- [[a|what it is]]\n\ntext\n", "\ntext\n"),
        ("## [A](a.md)\n", "## A\n"),
        ("- [A](a.md)\r\n- [B](b.md)\r\n", "- [B](b.md)\r\n"),
        ("- [B](b.md)\n- [A](a.md)", "- [B](b.md)\n"),
        ("[[a]] of [x](http://y)\n", " of [x](http://y)\n"),
    ],
)
def test_a_file_that_goes_takes_its_entry_along_and_nothing_else(before: str, after: str) -> None:
    found = names("a.md", "b.md")
    gone = MemoryIndex(before.encode()).without({"a.md"}, found)
    if "[[a]] of" in before:
        after = ""  # the line is there for the file it begins with
    assert gone.decode() == after


def test_an_entry_below_front_matter_and_comments_is_taken_out_of_their_midst() -> None:
    head, tail = b"---\ntitle: x\n---\n# Memory\n<!-- - [A](a.md) -->\n", b"\n<!-- end -->\nlast"
    raw = head + b"- [A](a.md)\n" + tail
    assert MemoryIndex(raw).without({"a.md"}, names("a.md")) == head + tail


def test_bytes_that_are_not_utf8_stay_as_they_are() -> None:
    raw = b"caf\xe9\n- [A](a.md) \xff\n- [B](b.md) \xfe\n"
    assert (
        MemoryIndex(raw).without({"a.md"}, names("a.md", "b.md")) == b"caf\xe9\n- [B](b.md) \xfe\n"
    )


def test_wikilinks_of_a_memory_are_found_once_each() -> None:
    assert wikilinks_in("[[a]] [[b|x]] [[a#part]] [[ c ]] [[]] [d](d.md)") == ["a", "b", "c"]


LINES = st.lists(
    st.sampled_from(
        [
            "- [A](a.md) - hook",
            "- [A](a.md), [B](b.md)",
            "  - [C](c.md)",
            "  goes on",
            "text [B](b.md) text",
            "- c.md: hook",
            "[[a]] [[b]]",
            "- [a.md](a.md) [c.md](c.md)",
            "- [A](a.md) and [gone](gone.md)",
            "",
            "# heading",
            "<!-- [A](a.md)",
            "-->",
            "```",
            "\udcff [A](a.md)\r",
            "---",
        ]
    ),
    max_size=12,
)


@given(LINES, st.sets(st.sampled_from(["a.md", "b.md", "c.md"])), st.booleans())
def test_taken_out_a_file_is_named_no_more_and_the_others_are_named_as_often(
    lines: list[str], gone: set[str], ends: bool
) -> None:
    found = names("a.md", "b.md", "c.md")
    raw = ("\n".join(lines) + "\n" * ends).encode("utf-8", "surrogateescape")
    index = MemoryIndex(raw)
    assert "".join(block.text for block in index.blocks).encode("utf-8", "surrogateescape") == raw
    left = MemoryIndex(index.without(gone, found))
    stayed = {name: len(blocks) for name, blocks in index.named(found).items() if name not in gone}
    assert {name: len(blocks) for name, blocks in left.named(found).items()} == stayed
    if not gone & set(index.named(found)):
        assert left.raw == raw


def test_links_inside_links_are_taken_out_too() -> None:
    found = names("a.md", "b.md")
    for raw in (b"- [[[x](a.md)](a.md)](b.md)", b"[a [b](a.md) c](a.md)", b"[[a]](a.md)"):
        assert "a.md" not in MemoryIndex(MemoryIndex(raw).without({"a.md"}, found)).named(found)


def steps(work: Callable[[], object]) -> int:
    """Return how many steps of Python's own `work` takes: the same in every run."""
    taken = 0

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal taken
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        taken += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return taken


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (lambda n: "[[a]]" * n + "[x](b.md)" * n, 2),
        (lambda n: "[x](b.md)" * n + "[[a]]" * n, 2),
        (lambda n: "[[a]] [x](b.md) " * n, 2),
        (lambda n: "[[a]](b.md)" * n, 1),
    ],
)
def test_what_a_line_names_is_found_in_work_that_grows_with_its_length(
    text: Callable[[int], str], named: int
) -> None:
    mentions_in(text(1))
    assert len(mentions_in(text(400))) == 400 * named
    assert 0 < steps(lambda: mentions_in(text(400))) < 2.2 * steps(lambda: mentions_in(text(200)))


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "[a](" * 20_000, "[[a|" * 20_000, "[a](b" + "(" * 50_000]
)
def test_brackets_that_never_close_name_nothing(text: str) -> None:
    assert mentions_in(text) == ()


def test_a_name_may_have_very_many_spaces_in_it() -> None:
    line = f"- [T](a{' ' * 20_000}b.md) and [T](c.md{' ' * 20_000}'a title')"
    (block,) = MemoryIndex(line.encode()).blocks
    assert block.files(names("a.md", "b.md", "c.md")) == ["c.md"]


def test_a_line_is_loaded_or_cut_with_the_files_it_names() -> None:
    raw = "".join(f"- [T{n}](f{n}.md)\n" for n in range(210)).encode()
    index = MemoryIndex(raw)
    found = index.named(names(*(f"f{n}.md" for n in range(210))))
    cut = [name for name, blocks in found.items() if blocks[0].state is State.CUT]
    assert cut == [f"f{n}.md" for n in range(200, 210)]
