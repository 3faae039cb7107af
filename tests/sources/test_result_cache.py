"""Data shared by several stores is computed once within a block."""

from functools import partial
from pathlib import Path

import pytest

import memlab
from memlab.sources.result_cache import computed_once, shared_results
from memlab.systems.claude_code import view
from tests.support.claude_store import (
    at,
    call,
    memory,
    project_folder,
    write_index,
    write_memory,
    write_transcript,
)


def test_each_key_is_computed_once_in_a_block() -> None:
    calls: list[str] = []

    def compute(key: str) -> str:
        calls.append(key)
        return key

    with shared_results():
        for key in ("a", "b", "a"):
            assert computed_once(key, partial(compute, key)) == key
    assert calls == ["a", "b"]


def test_results_end_with_the_block_or_an_error() -> None:
    with pytest.raises(ZeroDivisionError), shared_results():
        computed_once("key", lambda: 1 // 0)
    assert computed_once("key", lambda: 2) == 2
    with shared_results():
        assert computed_once("key", lambda: 3) == 3


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make three projects with transcripts that write the memories of the first."""
    for number in range(3):
        folder = project_folder(tmp_path, f"-home-u-work{number}")
        write_memory(folder, "a.md", memory("a", style="none"), at(900))
        write_index(folder, ["- [A](a.md)"])
        first = project_folder(tmp_path, "-home-u-work0") / "a.md"
        lines = call("Write", first, at(number), f"s{number}", 1)
        write_transcript(folder.parent, f"s{number}", lines)
    return tmp_path


def test_find_walks_the_transcripts_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Path] = []
    walk = view.transcript_files

    def recorded_walk(root: Path, **options: bool) -> list[Path]:
        walked.append(root)
        return walk(root, **options)

    monkeypatch.setattr(view, "transcript_files", recorded_walk)
    inventory = memlab.find(home)
    assert [store.memories for store in inventory.stores] == [1, 1, 1]
    assert walked == [home / ".claude" / "projects"]


def test_shared_data_does_not_mix_the_dates_of_folders(home: Path) -> None:
    folders = [project_folder(home, f"-home-u-work{number}") for number in range(3)]
    alone = [memlab.load(folder)["created_at"].tolist() for folder in folders]
    with shared_results():
        together = [memlab.load(folder)["created_at"].tolist() for folder in folders]
    assert together == alone
    assert alone[0] == [at(0)]
