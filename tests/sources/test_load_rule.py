"""What of an index is loaded at start: lines, units, what does not count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.sources.load_rule import LoadRule, State, units_of
from memlab.sources.memory_index import MemoryIndex

HEAD = "---\nname: index\n---\n"


def entries(count: int, width: int = 0) -> str:
    return "".join(f"- [T{n}](f{n}.md) {'x' * width}\n" for n in range(1, count + 1))


def states(text: str, rule: LoadRule | None = None) -> list[State]:
    return list(MemoryIndex(text.encode(), rule or LoadRule()).states)


@pytest.mark.parametrize("count", [0, 1, 199, 200])
def test_two_hundred_lines_are_loaded(count: int) -> None:
    assert states(entries(count)) == [State.LOADED] * count


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n  \n"])
def test_the_lines_after_them_are_cut_and_blank_ones_at_the_ends_do_not_count(end: str) -> None:
    text = "\n\n" + entries(201) + end
    found = states(text)
    assert found[:202] == [State.LOADED] * 202
    assert found[202] is State.CUT
    assert State.CUT not in states("\n\n" + entries(200) + end)


def test_front_matter_and_comments_do_not_count() -> None:
    comment = "<!-- notes\nfor people\n-->\n"
    found = states(HEAD + entries(100) + comment + entries(100))
    assert found.count(State.LOADED) == 200
    assert found.count(State.UNSEEN) == 6
    assert State.CUT not in found


def test_a_comment_inside_a_line_or_inside_code_is_loaded_as_it_stands() -> None:
    index = MemoryIndex(b"- a <!-- b -->\n```\n<!-- c -->\n```\n<!-- d --> e\n")
    assert index.loaded == "- a <!-- b -->\n```\n<!-- c -->\n```\n e"
    assert set(index.states) == {State.LOADED}


def test_a_comment_that_never_ends_hides_the_rest() -> None:
    assert states("a\n<!-- b\nc\n") == [State.LOADED, State.UNSEEN, State.UNSEEN]


def test_units_cut_back_to_the_end_of_a_line() -> None:
    width = 25_000 // 100
    text = "".join(f"{n:0{width - 1}d}\n" for n in range(100))  # 25,000 with the last newline
    assert State.CUT not in states(text)
    assert states(text + "x\n").count(State.CUT) == 1
    index = MemoryIndex((text[:-1] + "x\n").encode())
    assert index.states.count(State.CUT) == 0
    assert len(index.loaded) == 25_000
    assert MemoryIndex((text[:-1] + "xy\n").encode()).states.count(State.CUT) == 1


def test_a_character_outside_the_first_plane_counts_as_two_units() -> None:
    assert units_of("a😀") == 3
    rule = LoadRule(units=4)
    assert states("😀\n😀\n", rule) == [State.LOADED, State.CUT]
    assert states("é\né\n", rule) == [State.LOADED, State.LOADED]


def test_a_first_line_that_is_too_long_is_loaded_in_part_and_counts_as_cut() -> None:
    index = MemoryIndex(b"x" * 30_000 + b"\nmore\n")
    assert len(index.loaded) == 25_000
    assert list(index.states) == [State.CUT, State.CUT]


@given(
    st.lists(st.sampled_from(["", "- [a](a.md)", "x" * 9, "😀", "<!-- c -->", "```", "\r"])),
    st.integers(0, 12),
    st.integers(0, 40),
)
def test_what_is_loaded_is_a_part_within_the_limits(
    lines: list[str], most_lines: int, most_units: int
) -> None:
    rule = LoadRule(most_lines, most_units)
    index = MemoryIndex("\n".join(lines).encode(), rule)
    assert index.loaded.count("\n") < max(most_lines, 1)
    assert units_of(index.loaded) <= most_units
    if State.CUT not in index.states:
        assert index.loaded == MemoryIndex(index.raw, LoadRule(10**6, 10**6)).loaded
