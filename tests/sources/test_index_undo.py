"""Removal and restoration of index entries around edits made by hand."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memlab.systems.claude_code.index import (
    MemoryIndex,
    are_entries_unchanged,
    entries_of,
    insert_entries,
    remove_entries,
    without_change,
)
from memlab.systems.claude_code.markdown import FileNames, unlinked
from tests.support.index_edits import EDITS, FILES, INDEXES, Edit, by_hand, edited
from tests.support.properties import examples

FOLDER = Path("/home/u/.claude/projects/-w/memory")
NAMES = FileNames(FOLDER, FILES)

OTHERS = {
    "wiki link in prose": "scoped [[upstreams]] auth",
    "wiki link in code": "write `[[servers]]` in toml",
    "bash test": "if [[ -f x ]]; then",
    "attribute": "[[nodiscard]] results",
    "array call": "use arr[i](cb) here",
    "image": "![plot](plot.png)",
    "dangling link": "see [gone](gone.md)",
    "source file": "see [main](src/main.py)",
    "web link": "see [site](https://example.org/a)",
    "reference-style link": "see [spec][1]",
    "anchor": 'see <a href="gone.md">this</a>',
}
"""Texts that look like a link and name no memory."""
ITEMS = {
    "bullet": "- [A](a.md) — {}",
    "number": "1. [A](a.md) — {}",
    "nested": "  * [A](a.md) — {}",
    "row of a table": "| [A](a.md) | {} |",
    "task": "- [ ] [A](a.md) — {}",
    "line that begins with a link": "[A](a.md) {}",
    "name": "- a.md: {}",
    "encoded name": "- [A](%61.md) {}",
    "continued": "- [A](a.md) hook\n  goes on with {}",
}


def entries_by_file(raw: bytes, names: FileNames = NAMES) -> dict[str, list[dict[str, object]]]:
    return {file: list(entries) for file, entries in entries_of(MemoryIndex(raw), names).items()}


def restored(raw: bytes, shortened: bytes, *files: str) -> bytes:
    """Return a shortened index with the entries that `raw` has for some files."""
    entries = entries_by_file(raw)
    return insert_entries(shortened, {file: entries.get(file, []) for file in files}, NAMES)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("item", ITEMS)
def test_entry_is_removed_whole_with_other_text(item: str, other: str) -> None:
    line = ITEMS[item].format(OTHERS[other])
    raw = f"# Memory\n\n{line}\n- [B](b.md)\n".encode()
    shortened = remove_entries(raw, {"a.md"}, NAMES)
    assert shortened == b"# Memory\n\n- [B](b.md)\n"
    assert restored(raw, shortened, "a.md") == raw


@pytest.mark.parametrize("other", ["[B](b.md)", "[[b]]", "[B](<b.md>)", "[N](my%20notes.md)"])
@pytest.mark.parametrize("item", [item_style for item_style in ITEMS if item_style != "continued"])
def test_shared_entry_loses_only_the_removed_link(item: str, other: str) -> None:
    line = ITEMS[item].format(other)
    raw = f"# Memory\n\n{line}\n".encode()
    shortened = remove_entries(raw, {"a.md"}, NAMES)
    assert other.encode() in shortened
    assert "a.md" not in MemoryIndex(shortened).blocks_by_file(NAMES)
    assert restored(raw, shortened, "a.md") == raw


def test_parent_entry_is_removed_with_its_last_child() -> None:
    raw = b"- [A](a.md)\n  - [B](b.md)\n  - [C](c.md)\n- [D](d.md)\n"
    assert remove_entries(raw, {"a.md"}, NAMES).startswith(b"- A\n  - [B](b.md)\n")
    assert remove_entries(raw, {"a.md", "b.md"}, NAMES).startswith(b"- A\n  - [C](c.md)\n")
    shortened = remove_entries(raw, {"a.md", "b.md", "c.md"}, NAMES)
    assert shortened == b"- [D](d.md)\n"
    assert restored(raw, shortened, "a.md", "b.md", "c.md") == raw


@pytest.mark.parametrize("other", ["wiki link in prose", "array call", "dangling link"])
@pytest.mark.parametrize("is_edited", [False, True])
def test_line_left_by_older_versions_gets_its_link_back(other: str, is_edited: bool) -> None:
    """Older versions kept a line with a second link and removed only the deleted link."""
    raw = f"# Memory\n- [A](a.md) {OTHERS[other]}\n- [B](b.md)\n".encode()
    shortened = raw.replace(b"[A](a.md)", b"A")
    more = b"by hand\n" if is_edited else b""
    assert restored(raw, shortened + more, "a.md") == raw + more


ORIGINAL = b"# Memory\n\n- [A](a.md) - hook\n- [B](b.md)\n- [C](c.md)\n"
LEFT = b"# Memory\n\n- [B](b.md)\n- [C](c.md)\n"
MENTIONS = {
    "link in another's line": b"- [B](b.md) - replaces [A](a.md)\n",
    "wiki link in another's line": b"- [B](b.md) - replaces [[a]]\n",
    "name in another's line": b"- [B](b.md) - see a.md\n",
    "prose": b"Read [A](a.md) before you deploy.\n",
    "wiki link alone": b"- [[a]]\n",
    "heading": b"## [A](a.md)\n",
    "comment": b"<!-- - [A](a.md) -->\n",
}


@pytest.mark.parametrize("mention", MENTIONS)
def test_mention_is_not_an_entry_and_the_line_is_restored(mention: str) -> None:
    edited = LEFT.replace(b"- [B](b.md)\n", MENTIONS[mention])
    after = restored(ORIGINAL, edited, "a.md")
    assert after.replace(b"- [A](a.md) - hook\n", b"", 1) == edited


ENTRIES = {
    "other words": b"- [A](a.md) - again\n",
    "number": b"3. [again](<a.md>)\n",
    "name": b"* `a.md`: again\n",
    "row": b"| 1 | [A](./a.md) | again |\n",
    "with another after it": b"- [A](a.md), [B](b.md)\n",
    "link alone": b"[A](a.md)\n",
    "parent": b"- [A](a.md)\n  - more\n  - [D](d.md)\n",
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_existing_entry_is_not_duplicated(entry: str) -> None:
    edited = LEFT + ENTRIES[entry]
    assert "a.md" in MemoryIndex(edited).files_with_entry(NAMES)
    assert restored(ORIGINAL, edited, "a.md") == edited


def test_line_is_restored_below_continuation_lines() -> None:
    raw = b"- [B](b.md)\n- [A](a.md)\n- [C](c.md)\n"
    edited = b"- [B](b.md)\n  by hand\n  - nested by hand\n- [C](c.md)\n"
    after = b"- [B](b.md)\n  by hand\n  - nested by hand\n- [A](a.md)\n- [C](c.md)\n"
    assert restored(raw, edited, "a.md") == after


@pytest.mark.parametrize("opened", [b"<!--\n%b", b"<!--\n%b-->\n"])
def test_line_is_not_restored_inside_a_comment(opened: bytes) -> None:
    after = restored(ORIGINAL, opened % LEFT, "a.md")
    assert "a.md" in MemoryIndex(after).blocks_by_file(NAMES)


def test_line_of_two_memories_is_restored_in_either_order() -> None:
    raw = b"- [A](a.md), [B](b.md) - both\n- [C](c.md)\n"
    without_a = remove_entries(raw, {"a.md"}, NAMES)
    without_both = remove_entries(without_a, {"b.md"}, NAMES)
    assert without_both == b"- [C](c.md)\n"
    files = {file for file in FILES if file != "b.md"}
    names = FileNames(FOLDER, files)
    with_a = insert_entries(without_both, {"a.md": entries_by_file(raw)["a.md"]}, names)
    assert with_a == b"- [A](a.md), B - both\n- [C](c.md)\n"
    assert insert_entries(with_a, {"b.md": entries_by_file(without_a)["b.md"]}, NAMES) == raw


def test_link_is_restored_with_changed_line_ends() -> None:
    raw = b"# M\nRead [A](a.md) first.\n- [B](b.md)\n"
    edited = b"# M\r\nRead A first.\r\n- [B](b.md)\r\n"
    assert restored(raw, edited, "a.md") == b"# M\r\nRead [A](a.md) first.\r\n- [B](b.md)\r\n"


# Random indexes and edits


SOME = st.sets(st.sampled_from(FILES), min_size=1)


def readable_names(raw: bytes) -> set[str]:
    return set(MemoryIndex(raw).blocks_by_file(NAMES))


@settings(max_examples=examples(400))
@example(b"- [B](b.md) x\n- [B](b.md) x\n  goes on to [A](a.md)", {"b.md"})
@given(INDEXES, SOME)
def test_random_index_is_restored_byte_for_byte(raw: bytes, removed: set[str]) -> None:
    shortened = remove_entries(raw, removed, NAMES)
    assert not removed & readable_names(shortened)
    assert restored(raw, shortened, *removed) == raw
    entries = entries_by_file(raw)
    removed_entries = {file: entries.get(file, []) for file in removed}
    assert are_entries_unchanged(raw, removed_entries, NAMES)


@settings(max_examples=examples(400))
@example(
    b"- [A](a.md), [B](b.md)\r\n| [A](a.md) | [[c]] |\r\n<!-- [A](a.md)\r\n- [A](a.md) - hook",
    {"a.md", "b.md"},
    [Edit("line ends", 0, 0, "")],
)
@given(INDEXES, SOME, EDITS)
def test_random_edits_are_kept_and_memories_named_again(
    raw: bytes, removed: set[str], edits: list[Edit]
) -> None:
    shortened = edited(remove_entries(raw, removed, NAMES), edits)
    after = restored(raw, shortened, *removed)
    assert by_hand(after) == by_hand(shortened)
    names_to_restore = removed & readable_names(raw)
    assert names_to_restore <= readable_names(after)
    assert readable_names(shortened) <= readable_names(after)
    edited_lines = [bare(line) for line in shortened.splitlines()]
    restored_lines = [bare(line) for line in after.splitlines()]
    for line in edited_lines:
        if line:
            assert restored_lines.count(line) >= edited_lines.count(line)


def bare(line: bytes) -> str:
    """Return a line without links to memories."""
    text = line.decode("utf-8", "surrogateescape").rstrip()
    return unlinked(text, set(FILES), NAMES) or text


@settings(max_examples=examples(400))
@given(INDEXES, SOME, EDITS)
def test_rolled_back_step_keeps_edits_by_hand(
    raw: bytes, removed: set[str], edits: list[Edit]
) -> None:
    before = remove_entries(raw, removed, NAMES)
    assert without_change(before, raw, raw) == before
    now = edited(raw, edits)
    after = without_change(before, raw, now)
    assert by_hand(after) == by_hand(now)
    repeated = without_change(before, raw, after)
    assert by_hand(repeated) == by_hand(now), "repeating it after an interruption has no effect"
