"""Lines of an index come back where they stood: byte for byte, or beside what stood there."""

from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.sources.index_links import FileNames
from memlab.sources.index_places import said_of, with_said, without_said
from memlab.sources.memory_index import MemoryIndex

FOLDER = Path("/home/u/memory")
FILES = ("a.md", "b.md", "c.md", "d.md")

INDEX = b"""# Memory
- [A](a.md) - first
- [B](b.md) - second
  goes on

Read [C](c.md) and [A](a.md) first.
- [C](c.md), [D](d.md)
- [D](d.md)"""


def said(raw: bytes, back: Collection[str]) -> dict[str, list[dict[str, object]]]:
    every = said_of(MemoryIndex(raw), FileNames(FOLDER, FILES))
    return {file: every.get(file, []) for file in back}


def without(raw: bytes, *gone: str, there: Collection[str] = FILES) -> bytes:
    return without_said(raw, dict.fromkeys(gone, ()), there, FOLDER)


@pytest.mark.parametrize(
    "gone", [["a.md"], ["b.md", "c.md"], ["d.md"], ["a.md", "b.md", "c.md", "d.md"]], ids="-".join
)
def test_nothing_edited_it_is_byte_for_byte_what_it_was(gone: list[str]) -> None:
    left = without(INDEX, *gone)
    assert left != INDEX
    assert with_said(left, said(INDEX, gone), FILES, FOLDER) == INDEX


def test_one_of_several_comes_back_between_the_lines_it_stood_between() -> None:
    raw = b"# Memory\n" + b"".join(b"- [%c](%c.md)\n" % (c, c) for c in b"abcd")
    left = without(raw, "a.md", "b.md", "c.md")
    there = ["b.md", "d.md"]
    one = with_said(left, said(raw, ["b.md"]), there, FOLDER)
    assert one == b"# Memory\n- [b](b.md)\n- [d](d.md)\n"
    two = with_said(one, said(raw, ["a.md"]), ["a.md", *there], FOLDER)
    assert two == b"# Memory\n- [a](a.md)\n- [b](b.md)\n- [d](d.md)\n"
    assert with_said(two, said(raw, ["c.md"]), FILES, FOLDER) == raw


def test_a_line_shared_with_a_file_that_stays_away_comes_back_without_its_link() -> None:
    left = without(INDEX, "c.md", "d.md")
    back = with_said(left, said(INDEX, ["c.md"]), ["a.md", "b.md", "c.md"], FOLDER)
    assert b"- [C](c.md), D\n" in back
    assert b"d.md" not in back
    assert b"Read [C](c.md) and [A](a.md) first." in back


def test_edited_meanwhile_the_edit_stays_and_the_line_comes_back_near_its_place() -> None:
    raw = b"# Memory\n- [A](a.md)\n- [B](b.md)\n- [C](c.md)\n"
    left = without(raw, "b.md").replace(b"# Memory", b"# My memory") + b"- [D](d.md) new"
    back = with_said(left, said(raw, ["b.md"]), FILES, FOLDER)
    assert back == b"# My memory\n- [A](a.md)\n- [B](b.md)\n- [C](c.md)\n- [D](d.md) new"


def test_what_somebody_wrote_of_a_file_meanwhile_is_left_as_it_is() -> None:
    left = without(INDEX, "b.md") + b"\n- [B again](b.md)\n"
    assert with_said(left, said(INDEX, ["b.md"]), FILES, FOLDER) == left


def test_a_last_line_without_an_end_gets_one_where_others_follow_now() -> None:
    raw = b"- [A](a.md)\n- [B](b.md)"
    left = without(raw, "b.md") + b"- [C](c.md)\n"
    back = with_said(left, said(raw, ["b.md"]), FILES, FOLDER)
    assert back == b"- [A](a.md)\n- [B](b.md)\n- [C](c.md)\n"


def test_a_line_that_calls_a_file_by_another_name_goes_and_comes_back_with_it() -> None:
    raw = b"- [B](b.md)\n- [[deploy window]] hook\n"
    names = FileNames(FOLDER, FILES, {"deploy window": "a.md"})
    gone = {"a.md": said_of(MemoryIndex(raw), names)["a.md"]}
    left = without_said(raw, gone, FILES, FOLDER)
    assert left == b"- [B](b.md)\n"
    assert with_said(left, gone, FILES, FOLDER) == raw


def test_a_rule_that_comes_to_stand_first_begins_no_front_matter() -> None:
    raw = b"- [A](a.md)\n---\n- [B](b.md)\n---\n- [C](c.md)\n"
    left = without(raw, "a.md")
    assert left == b"\n---\n- [B](b.md)\n---\n- [C](c.md)\n"
    assert MemoryIndex(left).loaded == left.decode().strip()
    assert with_said(left, said(raw, ["a.md"]), FILES, FOLDER) == raw
    assert without(raw, "a.md", "b.md", "c.md") == b"\n---\n---\n"


def test_an_index_that_was_emptied_gets_its_lines_in_order() -> None:
    raw = b"- [A](a.md)\n- [B](b.md)\n"
    assert with_said(b"", said(raw, ["a.md", "b.md"]), FILES, FOLDER) == raw
    assert with_said(b"none", said(raw, ["b.md"]), FILES, FOLDER) == b"none\n- [B](b.md)\n"
    below = b"- [D](d.md)\n- [A](a.md)\n- [B](b.md)\n"
    left = without(below, "a.md", "d.md") + b"end"
    back = with_said(left, said(below, ["a.md"]), ["a.md", "b.md"], FOLDER)
    assert back == b"- [A](a.md)\n- [B](b.md)\nend"


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
            "",
            "# heading",
            "<!-- [A](a.md)",
            "-->",
            "```",
            "\udcff [D](d.md)\r",
            "---",
            "- [D](d.md)",
            "- [D](d.md)",
        ]
    ),
    max_size=14,
)
SOME = st.lists(st.sampled_from(FILES), unique=True)


@given(LINES, SOME, st.booleans())
def test_whatever_the_index_all_that_goes_comes_back_byte_for_byte(
    lines: list[str], gone: list[str], ends: bool
) -> None:
    raw = ("\n".join(lines) + "\n" * ends).encode("utf-8", "surrogateescape")
    left = without(raw, *gone)
    assert with_said(left, said(raw, gone), FILES, FOLDER) == raw


PLAIN = LINES.map(
    lambda lines: [x for x in lines if not x.startswith(("<!--", "-->", "-" * 3, "`"))]
)


@given(PLAIN, SOME, SOME, PLAIN)
def test_whatever_was_edited_meanwhile_is_all_there_after_some_come_back(
    lines: list[str], gone: list[str], some: list[str], edits: list[str]
) -> None:
    raw = "\n".join(lines).encode("utf-8", "surrogateescape")
    back = [file for file in some if file in gone]
    there = [file for file in FILES if file not in gone or file in back]
    added = [line for line in edits if ".md" not in line]
    left = without(raw, *gone) + b"\n" + "\n".join(added).encode("utf-8", "surrogateescape")
    result = with_said(left, said(raw, back), there, FOLDER)
    was, names = MemoryIndex(raw), FileNames(FOLDER, FILES)
    for file in back:
        assert (file in MemoryIndex(result).named(names)) >= (file in was.named(names))
    for line in added:
        assert line.encode("utf-8", "surrogateescape") in result
