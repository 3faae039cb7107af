"""Mentions of memories in texts: which names are found and how they are dated."""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab import columns as c
from memlab.evidence import find_mentions, find_references
from memlab.evidence.mentions import mentions_in_words
from tests.support.claude_store import memory, write_index, write_memory
from tests.support.properties import examples
from tests.support.repositories import NO_CONFIG, Repository, day
from tests.support.shell import output_of
from tests.support.stores import item, row, write_rows

WAYS = {
    "a link": ("See [that]({name}.md).", "link"),
    "a link with a heading": ("See [that](./{name}.md#top).", "link"),
    "a wiki link": ("See [[{stem}]].", "wiki link"),
    "a wiki link with words": ("See [[{stem}|that one]].", "wiki link"),
    "a file name": ("See {name}.md.", "file name"),
    "a file name in backticks": ("See `{name}.md`.", "file name"),
    "a name in backticks": ("See `{stem}`.", "backticks"),
    "a bare word": ("As {stem} says.", "word"),
    "a longer name": ("As {stem}4 and x-{stem} say.", ""),
    "the name in an address": ("See [it](https://example.org/{name}.md#x).", ""),
    "nothing": ("As it says.", ""),
}


def pairs(mentions: pd.DataFrame) -> set[tuple[str, str]]:
    return set(mentions[[c.TARGET_ID, "form"]].astype(str).itertuples(index=False, name=None))


def write_folder_stores(tmp_path: Path, name: str, words: str) -> dict[str, str]:
    """Write stores in which a later memory has these words; return the earlier id by store."""
    claude = tmp_path / "claude"
    claude.mkdir(parents=True)
    (claude / f"{name}.md").write_text(memory(name))
    (claude / "later.md").write_text(memory("later", body=words))
    write_index(claude, [f"- [{target}]({target}.md)" for target in (name, "later")])
    serena = tmp_path / "project" / ".serena" / "memories"
    serena.mkdir(parents=True)
    (serena / f"{name}.md").write_text("# Earlier\n\nThe first.\n")
    (serena / "later.md").write_text(f"# Later\n\n{words}\n")
    notes = tmp_path / "claw" / "memory"
    notes.mkdir(parents=True)
    (tmp_path / "claw" / "MEMORY.md").write_text("# Index\n")
    (tmp_path / "claw" / "AGENTS.md").write_text("Search first.\n")
    (notes / f"{name}.md").write_text("# Earlier\n\nThe first.\n")
    (notes / "later.md").write_text(f"# Later\n\n{words}\n")
    return {
        f"claude:{claude}": f"{name}.md",
        f"serena:{tmp_path / 'project'}": f"{name}.md",
        f"openclaw:{tmp_path / 'claw'}": f"memory/{name}.md",
    }


@pytest.mark.parametrize("way", WAYS)
def test_each_form_of_mention_is_found_in_every_folder_store(tmp_path: Path, way: str) -> None:
    words, form = WAYS[way]
    name = "deploy_notes_3"
    text = words.format(name=name, stem=name)
    for store, earlier in write_folder_stores(tmp_path, name, text).items():
        expected = {(earlier, form)} if form else set()
        assert pairs(find_mentions(store)) == expected, store


@pytest.mark.parametrize(
    ("words", "forms"),
    [
        ("On 2026-01-05 it rained.", set()),
        ("See `2026-01-05`.", {"backticks"}),
        ("2026-01-05.md", {"file name"}),
    ],
)
def test_date_is_a_mention_only_with_suffix_or_backticks(
    tmp_path: Path, words: str, forms: set[str]
) -> None:
    write_folder_stores(tmp_path, "2026-01-05", words)
    mentions = find_mentions(f"openclaw:{tmp_path / 'claw'}")
    assert set(mentions["form"].astype(str)) == forms


def test_ids_in_later_memory_items_are_mentions(tmp_path: Path) -> None:
    texts = {
        "ep-1": "names ep-3 before it is there",
        "ep-2": "alone",
        "ep-12": "nothing",
        "ep-3": "see ep-12, not ep-123",
        "plan": "the plan",
        "ep-4": "as in `ep-1`; the plan",
    }
    items = [row(name, body=text) for name, text in texts.items()]
    path = write_rows(tmp_path / "memory.db", items)
    mentions = find_mentions(path)
    named = set(mentions[["by_id", c.TARGET_ID]].itertuples(index=False, name=None))
    assert named == {("ep-3", "ep-12"), ("ep-4", "ep-1")}
    assert set(mentions["dated"]) == {"written"}


def test_word_in_many_texts_is_no_mention(tmp_path: Path) -> None:
    naming = [row(f"m{number}", body="in v-2 too") for number in range(39)]
    path = write_rows(tmp_path / "memory.db", [row("v-2"), *naming])
    assert find_mentions(path).empty


def test_mentions_are_reported_but_not_counted_as_references(tmp_path: Path) -> None:
    items = [row("ep-1"), row("x"), row("ep-2", body="see ep-1")]
    path = write_rows(tmp_path / "memory.db", items)
    assert len(find_references(path)) == 0
    page = str(memlab.size(path, explain=True))
    assert "1 mention, not counted: 1 bare word" in page
    assert len(memlab.size(path).evidence.references) == 0


def test_frame_without_bodies_is_rejected(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", [row("a")])
    with pytest.raises(ValueError, match="with_body=True"):
        find_mentions(memlab.load(path))
    assert find_mentions(memlab.load(path, with_body=True)).empty


def test_file_mentions_are_dated_by_the_last_change(tmp_path: Path) -> None:
    write_folder_stores(tmp_path, "a_1", "See a_1.md.")
    file = tmp_path / "project" / ".serena" / "memories" / "later.md"
    changed = day(9).timestamp()
    os.utime(file, (changed, changed))
    mentions = find_mentions(f"serena:{tmp_path / 'project'}")
    assert mentions["dated"].tolist() == ["last changed"]
    assert mentions[c.AT].tolist() == [day(9)]
    assert "1 dated by the file's last change" in mentions_in_words(mentions)


# Dated by git, and marked


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name, value in NO_CONFIG.items():
        monkeypatch.setenv(name, value)
    repository = Repository(tmp_path / "p" / ".serena" / "memories", root=tmp_path / "p")
    (repository.folder / "a_1.md").write_text("# A\n\nfirst\n")
    (repository.folder / "b_2.md").write_text("# B\n\nsecond, as in a_1.md\n")
    (repository.folder / "c_3.md").write_text("# C\n\nthird\n")
    repository.commit(0)
    return repository


def test_mentions_are_dated_by_the_commit_that_added_them(repo: Repository) -> None:
    file = repo.folder / "c_3.md"
    file.write_text("# C\n\nthird, see a_1.md\n")
    repo.commit(3)
    file.write_text("# C\n\nthird and more, see a_1.md\n")
    repo.commit(5)
    mentions = find_mentions(repo.folder).set_index("by_id")
    assert mentions.loc["c_3.md", c.AT] == day(3)
    assert mentions.loc["c_3.md", "dated"] == "commit"
    assert mentions["mark"].to_dict() == {"c_3.md": "", "b_2.md": "same commit"}


def test_mutual_mentions_and_lists_are_marked(repo: Repository) -> None:
    (repo.folder / "a_1.md").write_text("# A\n\nsee c_3.md\n")
    (repo.folder / "c_3.md").write_text("# C\n\nsee a_1.md\n")
    repo.commit(2)
    for number in range(12):
        (repo.folder / f"n_{number}.md").write_text(f"# N\n\nnote {number}\n")
    repo.commit(3)
    links = "\n".join(f"- [n](n_{number}.md)" for number in range(12))
    (repo.folder / "list.md").write_text(f"# List\n\n{links}\n")
    repo.commit(4)
    marks = find_mentions(repo.folder).set_index("by_id")["mark"]
    assert marks["a_1.md"] == "mutual"
    assert marks["c_3.md"] == "mutual"
    assert set(marks["list.md"]) == {"hub"}


def test_size_lists_only_mentions_that_are_no_references(tmp_path: Path) -> None:
    times = [day(1), day(2), day(3)]
    bodies = ["The first.", "See [[first]].", "See [[second]] and `first.md`."]
    for name, body, written in zip(("first", "second", "third"), bodies, times, strict=True):
        write_memory(tmp_path, f"{name}.md", memory(name, body=body), written)
    write_index(tmp_path, [f"- [{name}]({name}.md)" for name in ("first", "second", "third")])
    output = output_of("size", f"claude:{tmp_path}", "--explain")
    assert "2 named as evidence" in output
    assert "1 mention, not counted: 1 file name" in output


IDS = st.lists(
    st.text("ab1-_", min_size=2, max_size=5).filter(lambda name: name[0].isalnum()),
    min_size=2,
    max_size=6,
    unique=True,
)


@settings(max_examples=examples(60), deadline=None)
@given(IDS, st.text("ab1-_ `.", max_size=30))
def test_mentions_are_never_of_self_or_absent_names(ids: list[str], text: str) -> None:
    with memlab.SqliteMemoryStore(":memory:") as store:
        for name in ids:
            store.put(item(name, title="t", body=text))
        mentions = find_mentions(store)
    assert not (mentions["by_id"] == mentions[c.TARGET_ID]).any()
    assert all(name in text for name in mentions[c.TARGET_ID])
