"""The survey: one row a store, resumable from results on disk."""

import os
from collections.abc import Callable
from dataclasses import fields, make_dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock, call

import pandas as pd
import pytest

import memlab
from memlab.errors import MemlabError
from memlab.fleet import Serial, StoreLine, maintain, survey
from memlab.fleet.sweep import ParquetShards, start_over, survey_task
from memlab.frame.fields import Arrays
from memlab.growth.summary import past_arrays
from memlab.sources.opening import open_source
from tests.support.claude_store import project_folder, realistic_folder
from tests.support.fleets import NOW, agent_store, mixed_fleet
from tests.support.shell import output_of, run
from tests.support.stores import episodes, files_in, row, run_sql, write_rows


def test_survey_row_matches_its_store_and_changes_nothing(tmp_path: Path) -> None:
    path = agent_store(tmp_path / "memory.db", 12)
    before = files_in(tmp_path)
    surveyed = survey(path, now=NOW)
    assert files_in(tmp_path) == before
    summary = memlab.growth.summarize(memlab.load(path), now=NOW)
    assert list(surveyed) == ["store", *(field.name for field in fields(StoreLine)), "error"]
    (line,) = surveyed.to_dict("records")
    assert line["store"] == str(path)
    assert line["memories"] == 13
    assert line["prunable"] == 12
    assert line["boot_tokens"] == summary.boot.tokens
    assert line["floor_tokens"] == summary.boot.load_bearing.tokens
    assert pd.isna(line["error"])


def test_survey_includes_folders_and_unreadable_memories(tmp_path: Path) -> None:
    folder = realistic_folder(project_folder(tmp_path), files=5)
    store = write_rows(tmp_path / "odd.db", [row("odd", "hearsay"), *episodes(3)])
    surveyed = survey([folder, store], now=NOW)
    assert surveyed["scheme"].tolist() == ["claude", "file"]
    assert surveyed["memories"].tolist() == [5, 4]
    assert surveyed[["unreadable", "prunable"]].iloc[1].tolist() == [1, 3]
    assert surveyed["error"].isna().all()


def test_internal_error_on_one_store_does_not_end_the_survey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [agent_store(tmp_path / f"{count}.db", count) for count in (1, 2)]

    def load(source: object, **options: object) -> tuple[Arrays, str]:
        if "1.db" in source.name:  # type: ignore[attr-defined]
            raise ZeroDivisionError("by accident")
        return past_arrays(source, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("memlab.fleet.sweep.past_arrays", load)
    surveyed = survey(paths, now=NOW, runner=Serial())
    assert surveyed["error"][0] == "memlab failed on it: ZeroDivisionError: by accident"
    assert surveyed["memories"][1] == 3


def broken_stores(folder: Path) -> list[Path]:
    """Write a broken store of every kind under names that ``find`` searches for."""
    intact = agent_store(folder.parent / "real.db", 400).read_bytes()
    contents = {
        "torn.db": intact[:9000],
        "begun.db": intact[:10],
        "empty.db": b"",
        "nulls.sqlite": bytes(9000),
        "text.sqlite3": b"text " * 99,
        "no-header.db": b"\0" * 100 + intact[100:],
        "no-root.db": intact[:100] + b"\xff" * 3996 + intact[4096:],
        "another-end.mem": intact[:9000],
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    os.mkfifo(folder / "pipe.db")
    (folder / "to-nothing.db").symlink_to(folder / "nothing")
    (folder / "to-itself.db").symlink_to(folder / "to-itself.db")
    run_sql(folder / "other-tables.db", "CREATE TABLE notes (body TEXT)")
    (folder / "folder.db").mkdir()
    for name in ("lost.db", "another-end.mem", "other-tables.db", "folder.db"):
        (folder / f"{name}.archive.db").write_bytes(intact)
    special = [
        "pipe.db",
        "to-nothing.db",
        "to-itself.db",
        "other-tables.db",
        "folder.db",
        "lost.db",
    ]
    return [folder / name for name in [*contents, *special]]


def test_each_broken_store_is_a_row_with_its_error(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    good = agent_store(folder / "memory.db", 30)
    broken = broken_stores(folder)
    assert len(broken) == 14
    run_sql(folder / "cache.db", "CREATE TABLE notes (body TEXT)")
    (folder / "memlab.toml").write_text('policy = { name = "recent", keep = 4 }\n')
    for operation in (survey, maintain, partial(maintain, apply=True)):
        results = operation(folder, now=NOW).set_index("store")
        assert sorted(results.index) == sorted(map(str, [good, *broken]))
        is_bad = results["error"].notna()
        if "status" in results:
            is_bad |= results["status"] == "FAILED"
        assert results.index[~is_bad].tolist() == [str(good)]
        assert {type(error) for error in results["error"].dropna()} <= {str}
    by_folder = output_of("fleet", "maintain", folder, code=1)
    assert by_folder.count(f"memory_integrity: {folder}/torn.db is damaged") == 1
    assert [path.name for path in broken if path.name not in by_folder] == []
    by_pattern = output_of("fleet", "maintain", f"{folder}/*", code=1)
    assert by_pattern.count(f"memory_integrity: {folder}/torn.db is damaged") == 1
    existing = [path.name for path in broken if os.path.lexists(path)]
    assert [name for name in existing if name not in by_pattern] == []
    output = output_of("fleet", "show", folder, code=1)
    assert f"1 database of something else, such as {folder}/cache.db" in output
    page = run("show", folder).output
    assert [path.name for path in (good, *broken) if path.name not in page] == []
    assert "1 database of something else" in page


# Results on the disk


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Record the stores that are opened, in order."""
    recorder = Mock(wraps=open_source)
    monkeypatch.setattr("memlab.fleet.sweep.open_source", recorder)
    return recorder


def test_repeated_survey_rereads_only_failed_stores(tmp_path: Path, opening: Mock) -> None:
    names = mixed_fleet(tmp_path / "fleet")
    first = survey(names, now=NOW, runner=Serial(), out=tmp_path / "out")
    opening.reset_mock()
    second_survey = survey(names, now=NOW, runner=Serial(), out=tmp_path / "out")
    failed = [call(str(tmp_path / "fleet" / name)) for name in ("text.db", "gone.db")]
    assert opening.mock_calls == failed
    pd.testing.assert_frame_equal(second_survey, first)
    plain = survey(names, now=NOW, runner=Serial())
    pd.testing.assert_frame_equal(second_survey, plain)


def test_changed_store_is_reread_and_has_one_row(tmp_path: Path, opening: Mock) -> None:
    names = [agent_store(tmp_path / str(count) / "memory.db", count) for count in range(4)]
    survey(names[:3], now=NOW, runner=Serial(), out=tmp_path / "out")
    write_rows(names[1], episodes(1, start=50))
    opening.reset_mock()
    surveyed = survey(names, now=NOW, runner=Serial(), out=tmp_path / "out")
    assert opening.mock_calls == [call(str(names[1])), call(str(names[3]))]
    assert surveyed["memories"].tolist() == [1, 3, 3, 4]
    on_disk = pd.read_parquet(tmp_path / "out").set_index("store")["memories"]
    assert on_disk.loc[surveyed["store"]].tolist() == [1, 3, 3, 4]
    assert len(on_disk) == 4


def test_folder_with_foreign_files_or_columns_is_rejected(tmp_path: Path) -> None:
    store = agent_store(tmp_path / "memory.db", 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(MemlabError, match="holds other files; name a new folder"):
        survey(store, now=NOW, out=tmp_path / "mine")
    with pytest.raises(MemlabError, match="cannot be made"):
        survey(store, now=NOW, out=store)
    start_over(tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    fewer = make_dataclass("Fewer", [("scheme", str), ("memories", int)])
    ParquetShards(tmp_path / "out", replace(survey_task(NOW), row=fewer))
    with pytest.raises(MemlabError, match="or those of another memlab; name a new folder"):
        survey(store, now=NOW, out=tmp_path / "out")
    start_over(tmp_path / "out")
    assert survey(store, now=NOW, out=tmp_path / "out")["memories"].tolist() == [2]


def overwrite(part: Path) -> None:
    part.write_bytes(b"torn")


def drop_column(part: Path) -> None:
    pd.read_parquet(part).drop(columns="error").to_parquet(part)


def change_type_of_column(part: Path) -> None:
    pd.read_parquet(part).assign(store=5).to_parquet(part)


@pytest.mark.parametrize("damage", [overwrite, drop_column, change_type_of_column])
def test_damaged_results_file_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store = agent_store(tmp_path / "memory.db", 1)
    survey(store, now=NOW, out=tmp_path / "out")
    damage(tmp_path / "out" / "part-000001.parquet")
    with pytest.raises(MemlabError, match=r"part-000001\.parquet cannot be read .*remove it"):
        survey(store, now=NOW, out=tmp_path / "out")
    start_over(tmp_path / "out")
    assert survey(store, now=NOW, out=tmp_path / "out")["memories"].tolist() == [2]
