"""Hermes memory files: read, sized, never changed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.errors import UnsafeDeletionError
from memlab.sources.opening import open_source, recognise
from memlab.sources.readers import Key
from memlab.systems.hermes import DELIMITER, NOTES, USER, Hermes, entries_in
from memlab.testing.conformance import ReadingSuite
from memlab.testing.labs import TEXTS, Lab
from tests.support.owners import write_hermes
from tests.support.shell import output_of


def write(path: Path, entries: list[str]) -> None:
    """Write a file as Hermes does: into a temporary file that replaces it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(DELIMITER.join(entries))
    draft.replace(path)


class HermesLab(Lab):
    """A folder with both files."""

    where = ".hermes/memories"

    def fill(self, count: int) -> None:
        write(self.path / USER, ["née 🦀 likes tea"])
        notes = [f"note {number}\n{TEXTS[number % 5].strip()}" for number in range(count - 1)]
        write(self.path / NOTES, [note.strip() for note in notes])

    def add_pair(self, number: int) -> None:
        pair = [f"pair {number}\n{side}" for side in "ab"]
        write(self.path / NOTES, [*self._entries(NOTES), *pair])

    def change(self, key: Key) -> None:
        (self.path / USER).unlink()

    def exactly(self) -> dict[Key, Any]:
        notes = {(NOTES, text): text for text in self._entries(NOTES)}
        about_user = {(USER, text): text for text in self._entries(USER)}
        return {**notes, **about_user}

    def _entries(self, name: str) -> list[str]:
        path = self.path / name
        return path.read_text().split(DELIMITER) if path.exists() else []


class TestHermesSource(ReadingSuite):
    lab_type = HermesLab

    def test_change_affects_only_its_own_record(self, lab: Lab) -> None:
        pytest.skip("an entry has no id beside its text: a changed one is another memory")

    def test_deletion_is_rejected_naming_the_tool(self, lab: HermesLab) -> None:
        before = lab.exactly()
        plan = memlab.plan(lab.name, memlab.KeepRecent(3))
        with pytest.raises(UnsafeDeletionError, match=re.escape("memory tool")):
            memlab.apply(plan)
        assert lab.exactly() == before
        assert [path.name for path in lab.path.parent.iterdir()] == ["memories"]


def test_entries_are_memories_and_user_entries_load_bearing(tmp_path: Path) -> None:
    folder = tmp_path / ".hermes" / "memories"
    write(folder / NOTES, ["uses uv", "runs Debian\nat home"])
    write(folder / USER, ["likes tea"])
    frame = memlab.load(folder, with_body=True)
    assert frame["title"].tolist() == ["uses uv", "likes tea", "runs Debian"]
    assert frame["body"].tolist() == ["", "", "at home"]
    assert frame["load_bearing"].tolist() == [False, True, False]
    assert frame["loaded_at_start"].all()


def test_commands_work_and_show_the_limits(tmp_path: Path) -> None:
    folder = tmp_path / ".hermes" / "memories"
    write(folder / NOTES, [f"note {number} " + "x" * 50 for number in range(40)])
    write(folder / USER, ["likes tea"])
    output = output_of("show", str(folder))
    assert "2,427 of at most 2,200 characters" in output
    assert "9 of at most 1,375 characters" in output
    (folder.parent / "config.yaml").write_text("memory:\n  memory_char_limit: 5000  # more\n")
    assert "2,427 of at most 5,000 characters" in output_of("show", str(folder.parent / "memories"))
    assert len(json.loads(output_of("rows", "--json", str(folder)))) == 41
    assert json.loads(output_of("size", "--json", str(folder)))["verdict"]
    stores = json.loads(output_of("find", "--json", str(tmp_path)))["stores"]
    assert [store["system"] for store in stores] == ["Hermes memories"]
    refused = output_of("compact", "--keep-recent", "9", "--apply", str(folder), code=2)
    assert "memory tool" in refused


def test_file_near_its_limit_is_a_diagnostic(tmp_path: Path) -> None:
    folder = tmp_path / "memories"
    write(folder / NOTES, ["a" * 2_000])
    source = Hermes(folder)
    assert [diagnostic.occurrences for diagnostic in source.diagnostics()] == [0]
    write(folder / NOTES, ["a" * 2_000, "b" * 197])
    assert [diagnostic.occurrences for diagnostic in source.diagnostics()] == [1]


def test_home_folder_is_opened_by_scheme(tmp_path: Path) -> None:
    write(tmp_path / "home" / "memories" / USER, ["likes tea"])
    source = open_source(f"hermes:{tmp_path / 'home'}")
    assert source.name == f"hermes:{tmp_path / 'home' / 'memories'}"


def test_memory_file_without_entries_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / NOTES).write_text("# Notes\n\nSee section § 5 of the contract.\n")
    assert recognise(tmp_path) is None


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=9), max_size=9))
def test_entries_round_trip_through_the_delimiter(texts: list[str]) -> None:
    entries = [text.strip() for text in texts if "§" not in text and text.strip()]
    distinct_entries = list(dict.fromkeys(entries))
    assert entries_in(DELIMITER.join(entries)) == distinct_entries


ENTRIES = [
    ("memory", "The project builds with uv.\nRun uv sync first."),
    ("memory", "Deploys go out on Fridays § by CI."),
    ("memory", "née 🦀"),
    ("user", "Prefers short answers."),
]


def test_files_written_by_hermes_are_read(tmp_path: Path) -> None:
    folder = write_hermes(tmp_path / ".hermes", ENTRIES)
    frame = memlab.load(folder, with_body=True)
    targets = [tags[0] for tags in frame["tags"]]
    texts = (frame["title"] + "\n" + frame["body"]).str.strip()
    assert set(zip(targets, texts, strict=True)) == set(ENTRIES)
    sizes = Hermes(folder).sizes()
    files = {name: (folder / name).read_text() for name in (NOTES, USER)}
    assert sizes == {name: len(text) for name, text in files.items()}
    assert "Hermes memories" in output_of("find", tmp_path)


def test_limit_of_the_notes_is_the_token_budget(tmp_path: Path) -> None:
    folder = tmp_path / ".hermes" / "memories"
    write(folder / NOTES, [f"note {number} " + "x" * 50 for number in range(60)])
    write(folder / USER, ["likes tea" + " very much" * 9])
    sized = memlab.size(folder)
    assert sized.advice.token_budget == (2_200 + 99) // 4
    assert sized.advice.budget_cap is not None
    assert sized.advice.budget_cap < 40, "sixty notes are more than the limit has room for"
    output = output_of("size", folder)
    assert "2,200 characters of MEMORY.md, Hermes' memory_char_limit" in output
    (folder.parent / "config.yaml").write_text("memory:\n  memory_char_limit: 9000\n")
    assert memlab.size(folder).advice.token_budget == (9_000 + 99) // 4
    assert memlab.size(folder, token_budget=100).advice.token_budget == 100
