"""Front matter as it is found: two generations of it, broken, endless, none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.systems.claude_code.markdown import LONGEST, read_front_matter

OLDER = """---
name: Prefers small commits
description: The user wants one idea a commit
type: feedback
originSessionId: 8c1f0c7e-6a51-4f0e-9c3a-1b2c3d4e5f60
---
Commit early.
"""
NEWER = """---
name: deploy-window
description: "Deploys: only before noon"
metadata:\x20
  node_type: memory
  type: project
  originSessionId: 8c1f0c7e-6a51-4f0e-9c3a-1b2c3d4e5f60
  modified: 2026-08-01T09:00:00.000Z
---

Deploys happen in the morning.
"""


def test_both_generations_have_their_fields() -> None:
    older, newer = read_front_matter(OLDER), read_front_matter(NEWER)
    assert older.fields["type"] == "feedback"
    assert older.fields["originSessionId"].startswith("8c1f")
    assert OLDER[older.text_at :] == "Commit early.\n"
    assert newer.fields["type"] == "project"
    assert newer.fields["description"] == "Deploys: only before noon"
    assert newer.fields["modified"] == "2026-08-01T09:00:00.000Z"
    assert not older.problem + newer.problem


def test_the_top_level_wins_over_a_nested_field_of_the_same_name() -> None:
    found = read_front_matter("---\nmetadata: {type: project, modified: x}\ntype: user\n---\n")
    assert dict(found.fields) == {"type": "user", "modified": "x"}


@pytest.mark.parametrize(
    "value", ["yes", "123", "2026-08-01", "null", "0x1F", "1e3"], ids=lambda value: value
)
def test_a_value_is_the_text_that_stands_there(value: str) -> None:
    assert read_front_matter(f"---\nname: {value}\n---\n").fields["name"] == value


@pytest.mark.parametrize(
    "text",
    ["", "plain text", "--- \n", "# heading\n---\nname: a\n---\n", "---\nname without a colon\n"],
)
def test_what_has_none_has_none(text: str) -> None:
    assert read_front_matter(text) == ({}, 0, "")


def test_what_is_no_yaml_is_read_line_by_line_and_said() -> None:
    text = "---\nname: Tests: run them all\n  type: user\ndescription: 'it''s [broken\n---\nbody"
    found = read_front_matter(text)
    assert found.fields["name"] == "Tests: run them all"
    assert found.fields["type"] == "user"
    assert found.problem
    assert text[found.text_at :] == "body"


@pytest.mark.parametrize("text", ["\nThe text begins here.\n", "x: y\n" * LONGEST + "---\nbody"])
def test_front_matter_that_does_not_end_in_time_keeps_the_type_and_the_text(text: str) -> None:
    found = read_front_matter(f"---\nname: a\ntype: feedback\n{text}")
    assert found.fields["type"] == "feedback"
    assert (found.text_at, found.problem) == (0, "it does not end")


def test_a_byte_order_mark_and_windows_lines_are_no_hindrance() -> None:
    text = "\ufeff---\r\nname: a\r\ntype: user\r\n---\r\nbody"
    found = read_front_matter(text)
    assert dict(found.fields) == {"name": "a", "type": "user"}
    assert text[found.text_at :] == "body"


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
