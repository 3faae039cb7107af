"""Results on the disk as they come: a run goes on where it was, and asks what has changed."""

from collections.abc import Callable
from dataclasses import make_dataclass, replace
from pathlib import Path

import pandas as pd
import pytest
from fleets import NOW, agent_store, mixed_fleet
from stores import episodes, write_rows

from memlab.errors import MemlabError
from memlab.fleet import Serial, survey
from memlab.fleet.overview import survey_task
from memlab.fleet.sweep import Parts, start_over
from memlab.sources.base import Source
from memlab.sources.opening import open_source


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that were really read, in order."""
    seen: list[str] = []

    def look(where: str) -> Source:
        seen.append(where)
        return open_source(where)

    monkeypatch.setattr("memlab.fleet.overview.open_source", look)
    return seen


def test_the_same_again_reads_no_store_and_returns_the_same(
    tmp_path: Path, asked: list[str]
) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    first = survey(names, now=NOW, runner=Serial(), out=tmp_path / "out")
    asked.clear()
    again = survey(names, now=NOW, runner=Serial(), out=tmp_path / "out")
    assert [Path(name).name for name in asked] == ["text.db", "gone.db"]  # errors are asked again
    pd.testing.assert_frame_equal(again, first)
    plain = survey(names, now=NOW, runner=Serial())
    pd.testing.assert_frame_equal(again, plain)


def test_what_changed_is_read_again_and_has_one_row(tmp_path: Path, asked: list[str]) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", n) for n in range(4)]
    survey(names[:3], now=NOW, runner=Serial(), out=tmp_path / "out")
    write_rows(names[1], episodes(1, start=50))
    asked.clear()
    found = survey(names, now=NOW, runner=Serial(), out=tmp_path / "out")
    assert asked == [str(names[1]), str(names[3])]
    assert found["memories"].tolist() == [1, 3, 3, 4]
    on_disk = pd.read_parquet(tmp_path / "out").set_index("store")["memories"]
    assert on_disk.loc[found["store"]].tolist() == [1, 3, 3, 4]
    assert len(on_disk) == 4


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(MemlabError, match="holds other files; name a new folder"):
        survey(store, now=NOW, out=tmp_path / "mine")
    with pytest.raises(MemlabError, match="cannot be made"):
        survey(store, now=NOW, out=store)
    start_over(tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_results_of_a_memlab_with_other_columns_are_refused_in_words(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 1)
    fewer = make_dataclass("Fewer", [("scheme", str), ("memories", int)])
    Parts(tmp_path / "out", replace(survey_task(NOW), row=fewer))
    with pytest.raises(MemlabError, match="or those of another memlab; name a new folder"):
        survey(store, now=NOW, out=tmp_path / "out")
    start_over(tmp_path / "out")
    assert survey(store, now=NOW, out=tmp_path / "out")["memories"].tolist() == [2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda part: part.write_bytes(b"torn"),
        lambda part: pd.read_parquet(part).drop(columns="error").to_parquet(part),
        lambda part: pd.read_parquet(part).assign(store=5).to_parquet(part),
    ],
    ids=["torn", "a column less", "another type"],
)
def test_a_damaged_part_is_named(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    store = agent_store(tmp_path / "memory.db", 1)
    survey(store, now=NOW, out=tmp_path / "out")
    damage(tmp_path / "out" / "part-000001.parquet")
    with pytest.raises(MemlabError, match=r"part-000001\.parquet cannot be read .*remove it"):
        survey(store, now=NOW, out=tmp_path / "out")
    start_over(tmp_path / "out")
    assert survey(store, now=NOW, out=tmp_path / "out")["memories"].tolist() == [2]
