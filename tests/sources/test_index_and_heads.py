"""Parsing of MEMORY.md (links, load limits, removal and insertion) and front matter."""

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlab.systems.claude_code.index import (
    LoadRule,
    MemoryIndex,
    State,
    encoded,
    entries_of,
    insert_entries,
    names_of,
    remove_entries,
)
from memlab.systems.claude_code.markdown import (
    MAX_FRONT_MATTER,
    FileNames,
    FrontMatter,
    mentions_in,
    read_front_matter,
)

FOLDER = Path("/home/u/.claude/projects/-w/memory")
FILES = ("a.md", "b.md", "c.md", "d.md")
HEAD = "---\nname: index\n---\n"
COMMENTED = f"{HEAD}# M\n<!-- - [A](a.md) -->\n"


def names(*files: str, **aliases: str) -> FileNames:
    return FileNames(FOLDER, files, aliases)


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("- [Title](a.md) — hook", "a.md"),
        ("* **[Title](a.md)** hook", "a.md"),
        ("- ★ [Title](./a.md)", "a.md"),
        ("Before a deploy read [the rules](a.md#windows), always.", "a.md"),
        ("- [ ] [T](a.md)", "a.md"),
        ('[Title](a.md "a tooltip")', "a.md"),
        ("[Title](memory/a.md)", "a.md"),
        (f"[Title]({FOLDER}/a.md)", "a.md"),
        ("- [[a]] and more", "a.md"),
        ("- [[a|what it is]]", "a.md"),
        ("- a.md: hook", "a.md"),
        ("- `a.md` — hook", "a.md"),
        ("| a.md | hook |", "a.md"),
        ("1. **a.md** hook", "a.md"),
        ("- [T](A.MD)", "a.md"),
        ("[Title](<my notes.md>)", "my notes.md"),
        ("[Title](my notes.md)", "my notes.md"),
        ("[Title](my%20notes.md)", "my notes.md"),
        ("[T](a (old).md)", "a (old).md"),
        ("see [[deploy-window]]", "project_deploy.md"),
        ("- [T](überblick.md)", "u\u0308berblick.md"),
        ("- [T](v1.2.notes.md)", "v1.2.notes.md"),
    ],
)
def test_every_link_style_names_its_file(line: str, file: str) -> None:
    files = ["a.md", "my notes.md", "a (old).md", "u\u0308berblick.md", "project_deploy.md"]
    present = names(*files, "v1.2.notes.md", **{"deploy-window": "project_deploy.md"})
    assert [block.files(present) for block in MemoryIndex(line.encode()).blocks] == [[file]]


@pytest.mark.parametrize(
    "line",
    [
        "- [T](https://example.org/a.md)",
        "- [T](../a.md)",
        "- [T](sub/a.md)",
        "# a.md",
        "- ",
        "running text that mentions a.md",
        "- text, then a.md",
        "- [T](other.md)",
        "- a.md-old",
        "<!-- [T](a.md) -->",
        "- see docs/a.md",
    ],
)
def test_other_links_name_no_file(line: str) -> None:
    (block,) = MemoryIndex(line.encode()).blocks
    assert block.files(names("a.md")) == []


def test_file_names_are_case_sensitive() -> None:
    present = names("Notes.md", "notes.md")
    assert present.file_of("notes.md") == "notes.md"
    assert present.file_of("Notes.md") == "Notes.md"
    assert present.file_of("NOTES.md") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- [A](a.md)\n  goes on here\n- [B](b.md)\n", "- [B](b.md)\n"),
        ("- [A](a.md)\n  - [B](b.md)\n", "- A\n  - [B](b.md)\n"),
        ("- [A](a.md), [B](b.md) - hook\n", "- A, [B](b.md) - hook\n"),
        ("- [a.md](a.md), [B](b.md)\n", "- a, [B](b.md)\n"),
        ("Read [A](a.md) before you deploy.\n", "Read A before you deploy.\n"),
        ("| [A](a.md) | hook |\n|---|\n", "|---|\n"),
        ("- a.md: hook, then [B](b.md)\n", "- a: hook, then [B](b.md)\n"),
        ("- [[a|what it is]]\n\ntext\n", "\ntext\n"),
        ("## [A](a.md)\n", "## A\n"),
        ("- [B](b.md)\r\n- [A](a.md)", "- [B](b.md)\r\n"),
        ("[[a]] of [x](http://y)\n", ""),  # a line belongs to its first file
        (f"{COMMENTED}- [A](a.md)\n\nlast", f"{COMMENTED}\nlast"),
        ("caf\udce9\n- [A](a.md) \udcff\n- [B](b.md) \udcfe\n", "caf\udce9\n- [B](b.md) \udcfe\n"),
        ("[a [b](a.md) c](a.md)", ""),
        ("read " + "[" * 9_000 + "a" + "](a.md)" * 9_000 + "\n- [B](b.md)", "- [B](b.md)"),
    ],
)
def test_removal_deletes_only_the_entry_of_the_file(before: str, after: str) -> None:
    remaining = MemoryIndex(encoded(before)).without({"a.md"}, names("a.md", "b.md"))
    assert remaining == encoded(after)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[a]]" * 50_000 + "[x](b.md)" * 50_000, 100_000),
        ("[[a]] [x](b.md) " * 50_000, 100_000),
        ("[[a]](b.md)" * 50_000, 50_000),
        ("[" * 50_000, 0),
        ("[a](" * 20_000, 0),
        ("[[a|" * 20_000, 0),
        ("\\[" * 500_000, 0),
        ("[a\\](" * 160_000, 0),
        ("[a](b" + "(" * 50_000, 0),
        ("\\[" * 300_000 + "](" + "x" * 300_000, 0),
    ],
    ids=range(10),
)
def test_links_in_very_long_lines_are_found(text: str, named: int) -> None:
    assert len(mentions_in(text)) == named


LINK = re.compile(
    r"\[(?P<label>(?:[^\[\]\\\n]|\\.|\[[^\[\]\n]*\])*)\]"
    r"\((?P<target><[^<>\n]*>|[^()\n]*(?:\([^()\n]*\)[^()\n]*)*)\)"
)
"""The grammar of a link; a plain search with it takes quadratic time in the line length."""


@given(st.text("[]()\\<>a\n", max_size=30))
def test_fast_link_scan_equals_the_grammar(text: str) -> None:
    text = re.sub(r"\[(?=\[)", "[-", text)  # otherwise it would be a bracketed name
    links = [
        (link["target"], link.start(), link.end(), link["label"]) for link in LINK.finditer(text)
    ]
    assert list(mentions_in(text)) == links


def test_link_with_many_spaces_is_parsed_quickly() -> None:
    line = f"- [T](a{' ' * 20_000}b.md) and [T](c.md{' ' * 20_000}'a title')"
    (block,) = MemoryIndex(line.encode()).blocks
    assert block.files(names("a.md", "b.md", "c.md")) == ["c.md"]


# Load limits


def entries(count: int) -> str:
    return "".join(f"- [T{number}](f{number}.md) \n" for number in range(1, count + 1))


LOADED, CUT, UNSEEN = State
NOTES = "<!-- notes\nfor people\n-->\n"
WIDTH = 25_000 // 100
FULL = "".join(f"{number:0{WIDTH - 1}d}\n" for number in range(100))
"""25,000 characters with the last newline."""


@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ("\n\n" + entries(200), LoadRule(), {LOADED: 202}),
        (f"\n\n{entries(201)}\n\n  \n", LoadRule(), {LOADED: 202, CUT: 4}),
        (HEAD + entries(100) + NOTES + entries(100), LoadRule(), {LOADED: 200, UNSEEN: 6}),
        ("a\n<!-- b\nc\n", LoadRule(), {LOADED: 1, UNSEEN: 2}),
        ("<!-- a\n" + "--><!--" * 150_000, LoadRule(), {UNSEEN: 2}),
        (FULL, LoadRule(), {LOADED: 100}),
        (FULL[:-1] + "x\n", LoadRule(), {LOADED: 100}),
        (FULL[:-1] + "xy\n", LoadRule(), {LOADED: 99, CUT: 1}),
        ("😀\n😀\n", LoadRule(units=4), {LOADED: 1, CUT: 1}),
        ("é\né\n", LoadRule(units=4), {LOADED: 2}),
        ("x" * 30_000 + "\nmore\n", LoadRule(), {CUT: 2}),
    ],
    ids=range(11),
)
def test_load_limit_counts_lines_and_characters(
    text: str, rule: LoadRule, expected: dict[State, int]
) -> None:
    index = MemoryIndex(text.encode(), rule)
    assert Counter(index.states) == expected
    if CUT in index.states:
        assert index.loaded != index.text
    else:
        assert index.loaded == index.text


def test_inline_comments_and_code_are_loaded_unchanged() -> None:
    index = MemoryIndex(b"- a <!-- b -->\n```\n<!-- c -->\n```\n<!-- d --> e\n")
    assert index.loaded == "- a <!-- b -->\n```\n<!-- c -->\n```\n e"


# Restored lines


def entries_of_files(raw: bytes, files: Collection[str]) -> dict[str, list[dict[str, object]]]:
    entries_by_file = entries_of(MemoryIndex(raw), names(*FILES))
    return {file: entries_by_file.get(file, []) for file in files}


class RestoredEntries(NamedTuple):
    """An index, a shortened one, and the latter with the entries of some files restored."""

    original: str
    shortened: str
    files: list[str]
    expected: str


ENTRY_A = "- [A](a.md)\n"
ENTRY_B = "- [B](b.md)\n"
ENTRY_C = "- [C](c.md)\n"
ENTRY_B_AND_C = "- [B](b.md), [C](c.md)\n"

RESTORED = {
    "between its neighbours": RestoredEntries(
        original="# M\n" + ENTRY_A + ENTRY_B + ENTRY_C,
        shortened="# My M\n" + ENTRY_A + ENTRY_C + "new",
        files=["b.md"],
        expected="# My M\n" + ENTRY_A + ENTRY_B + ENTRY_C + "new",
    ),
    "written again by hand": RestoredEntries(
        original=ENTRY_A + ENTRY_B,
        shortened=ENTRY_A + "- [B again](b.md)\n",
        files=["b.md"],
        expected=ENTRY_A + "- [B again](b.md)\n",
    ),
    "without a line end": RestoredEntries(
        original=ENTRY_A + ENTRY_B.removesuffix("\n"),
        shortened=ENTRY_A + ENTRY_C,
        files=["b.md"],
        expected=ENTRY_A + ENTRY_B + ENTRY_C,
    ),
    "into an empty index": RestoredEntries(
        original=ENTRY_A + ENTRY_B,
        shortened="",
        files=["a.md", "b.md"],
        expected=ENTRY_A + ENTRY_B,
    ),
    "above its lower neighbour": RestoredEntries(
        original=ENTRY_C + ENTRY_A + ENTRY_B,
        shortened=ENTRY_B + "end",
        files=["a.md"],
        expected=ENTRY_A + ENTRY_B + "end",
    ),
    "below a line without an end": RestoredEntries(
        original=ENTRY_B + ENTRY_A,
        shortened=ENTRY_B.removesuffix("\n"),
        files=["a.md"],
        expected=ENTRY_B + ENTRY_A,
    ),
    "a link in a shared entry": RestoredEntries(
        original=ENTRY_A + ENTRY_B_AND_C,
        shortened="# M\n- B, [C](c.md)\n",
        files=["b.md"],
        expected="# M\n" + ENTRY_B_AND_C,
    ),
    "at the top": RestoredEntries(
        original=ENTRY_A + ENTRY_B + ENTRY_C,
        shortened=ENTRY_B,
        files=["a.md"],
        expected=ENTRY_A + ENTRY_B,
    ),
    "beside a missing file": RestoredEntries(
        original=ENTRY_A + "- [C](c.md), [D](d.md)\n",
        shortened=ENTRY_A,
        files=["c.md"],
        expected=ENTRY_A + "- [C](c.md), D\n",
    ),
}


@pytest.mark.parametrize("case", RESTORED.values(), ids=RESTORED.keys())
def test_restored_entry_is_inserted_at_its_place(case: RestoredEntries) -> None:
    present = {"a.md", "b.md", "c.md", *case.files}
    entries = entries_of_files(case.original.encode(), case.files)
    file_names = names_of(entries, present, FOLDER)
    after = insert_entries(case.shortened.encode(), entries, file_names)
    assert after == case.expected.encode()


LINES = st.lists(
    st.sampled_from(
        [
            "- [A](a.md) - hook",
            "- [A](a.md), [B](b.md)",
            "  - [C](c.md)",
            "  goes on",
            "",
            "text [B](b.md) text",
            "- c.md: hook",
            "[[a]] [[b]]",
            "# heading",
            "```",
            "---",
            "<!-- [A](a.md)",
            "-->",
            "\udcff [D](d.md)\r",
            "- [D](d.md)",
            "- [D](d.md)",
            "- [a.md](a.md) [c.md](c.md)",
            "- [A](a.md) and [gone](gone.md)",
        ]
    ),
    max_size=14,
)


@example(["- [A](a.md)", "---", "- [D](d.md)", "---"], ["a.md"], "\n")
@given(LINES, st.lists(st.sampled_from(FILES), unique=True), st.sampled_from(["", "\n"]))
def test_removed_entries_are_restored_exactly(
    lines: list[str], removed: list[str], end: str
) -> None:
    raw = ("\n".join(lines) + end).encode("utf-8", "surrogateescape")
    index = MemoryIndex(raw)
    present = names(*FILES)
    assert encoded("".join(block.text for block in index.blocks)) == raw
    shortened = remove_entries(raw, removed, present)
    assert insert_entries(shortened, entries_of_files(raw, removed), present) == raw
    blocks_before = index.blocks_by_file(present)
    blocks_after = MemoryIndex(shortened).blocks_by_file(present)
    assert blocks_after.keys() == blocks_before.keys() - set(removed)
    for name, blocks in blocks_after.items():
        assert len(blocks) == len(blocks_before[name])


# Front matter: two styles, broken, unclosed, none


BROKEN = "---\nname: Tests: run them all\n  type: user\nsays: aha\nabout: 'it''s [\n---\n"


@pytest.mark.parametrize(
    ("text", "fields", "is_broken"),
    [
        ("---\nmetadata: {type: project, x: y}\ntype: user\n---\n", {"type": "user"}, False),
        ("\ufeff---\r\nname: a\r\ntype: user\r\n---\r\n", {"name": "a", "type": "user"}, False),
        ("---\nname: yes\n---\n", {"name": "yes"}, False),
        ("---\nname: 123\n---\n", {"name": "123"}, False),
        ("---\nname: 2026-08-01\n---\n", {"name": "2026-08-01"}, False),
        ("---\nname: null\n---\n", {"name": "null"}, False),
        ("---\nname: 0x1F\n---\n", {"name": "0x1F"}, False),
        ("---\nname: 1e3\n---\n", {"name": "1e3"}, False),
        (BROKEN, {"name": "Tests: run them all", "type": "user", "says": "aha"}, True),
    ],
)
def test_front_matter_fields_are_texts(
    text: str, fields: dict[str, str], *, is_broken: bool
) -> None:
    head = read_front_matter(f"{text}body")
    assert head.fields.items() >= fields.items()
    assert bool(head.problem) == is_broken
    assert head.text_at == len(text)


@pytest.mark.parametrize("text", ["", "--- \n", "# A\n---\nname: a\n---\n", "---\nno colon\n"])
def test_text_without_front_matter_has_no_fields(text: str) -> None:
    head = read_front_matter(text)
    assert head == FrontMatter(fields={}, text_at=0, problem="", tree=None)


@pytest.mark.parametrize(
    "text", ["\nThe text begins here.\n", "x: y\n" * MAX_FRONT_MATTER + "---\nbody"]
)
def test_front_matter_without_an_end_keeps_type_and_text(text: str) -> None:
    head = read_front_matter(f"---\nname: a\ntype: feedback\n{text}")
    assert head.fields["type"] == "feedback"
    assert head.text_at == 0
    assert head.problem == "it does not end"


@pytest.mark.parametrize(
    "block",
    ["[" * 60_000, "a: " + "{" * 60_000, "&a [*a, *a]", "? [x]\n: y", "a: &b [&c x, *b, *c]"],
    ids=["nested", "nested mappings", "itself", "a list for a name", "anchors"],
)
def test_hostile_yaml_keeps_the_type(block: str) -> None:
    head = read_front_matter(f"---\ntype: user\n{block}\n---\nbody")
    assert head.fields.get("type") == "user"


@given(st.text(max_size=300))
def test_arbitrary_front_matter_is_read_without_error(text: str) -> None:
    for content in (text, f"---\n{text}\n---\nbody", f"---\ntype: user\n{text}"):
        head = read_front_matter(content)
        assert 0 <= head.text_at <= len(content)
        assert all(isinstance(value, str) for value in head.fields.values())
