"""Front matter as it is found: two generations of it, broken, endless, none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.systems.claude_code.markdown import LONGEST, read_front_matter

BROKEN = "---\nname: Tests: run them all\n  type: user\nsays: aha\nabout: 'it''s [\n---\n"
VALUES = ("yes", "123", "2026-08-01", "null", "0x1F", "1e3")


@pytest.mark.parametrize(
    ("text", "fields", "is_broken"),
    [
        ("---\nmetadata: {type: project, x: y}\ntype: user\n---\n", {"type": "user"}, False),
        ("\ufeff---\r\nname: a\r\ntype: user\r\n---\r\n", {"name": "a", "type": "user"}, False),
        *((f"---\nname: {value}\n---\n", {"name": value}, False) for value in VALUES),
        (BROKEN, {"name": "Tests: run them all", "type": "user", "says": "aha"}, True),
    ],
)
def test_fields_are_texts(text: str, fields: dict[str, str], *, is_broken: bool) -> None:
    found = read_front_matter(f"{text}body")
    assert found.fields.items() >= fields.items()
    assert bool(found.problem) == is_broken
    assert found.text_at == len(text)


@pytest.mark.parametrize(
    "text", ["", "--- \n", "# heading\n---\nname: a\n---\n", "---\nname without a colon\n"]
)
def test_what_has_none_has_none(text: str) -> None:
    assert read_front_matter(text) == ({}, 0, "")


@pytest.mark.parametrize("text", ["\nThe text begins here.\n", "x: y\n" * LONGEST + "---\nbody"])
def test_front_matter_that_does_not_end_in_time_keeps_the_type_and_the_text(text: str) -> None:
    found = read_front_matter(f"---\nname: a\ntype: feedback\n{text}")
    assert found.fields["type"] == "feedback"
    assert (found.text_at, found.problem) == (0, "it does not end")


@pytest.mark.parametrize(
    "block",
    ["[" * 60_000, "a: " + "{" * 60_000, "&a [*a, *a]", "? [x]\n: y", "a: &b [&c x, *b, *c]"],
    ids=["nested", "nested mappings", "itself", "a list for a name", "anchors"],
)
def test_hostile_yaml_is_an_ordinary_file(block: str) -> None:
    found = read_front_matter(f"---\ntype: user\n{block}\n---\nbody")
    assert found.fields.get("type") == "user"


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    for each in (text, f"---\n{text}\n---\nbody", f"---\ntype: user\n{text}"):
        found = read_front_matter(each)
        assert 0 <= found.text_at <= len(each)
        assert all(isinstance(value, str) for value in found.fields.values())
