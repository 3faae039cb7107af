"""A survey: a row a store, whatever a store is."""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from stores import episodes, row, run_sql, write_rows

import memlab
from memlab.compaction.reclaim import space, vacuum
from memlab.errors import MemlabError
from memlab.fleet import Serial, survey
from memlab.fleet.surveying import SURVEY_DTYPES
from memlab.frame.labelling import Memories, read_memories
from memlab.store.database import connect_reading

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def store(path: Path, count: int) -> Path:
    return write_rows(path, [row("decision", "semantic"), *episodes(count)])


def test_a_row_says_what_the_store_says_of_itself(tmp_path: Path) -> None:
    path = store(tmp_path / "memory.db", 12)
    found = survey(path, now=NOW)
    summary = memlab.summarize(memlab.load(path), now=NOW)
    assert list(found) == ["store", *SURVEY_DTYPES, "error"]
    (line,) = found.to_dict("records")
    assert line["store"] == str(path)
    assert (line["memories"], line["prunable"]) == (13, 12)
    assert line["boot_tokens"] == summary.boot.tokens
    assert line["floor_tokens"] == summary.boot.load_bearing.tokens
    assert pd.isna(line["error"])


def test_free_pages_are_counted_until_a_vacuum(tmp_path: Path) -> None:
    path = store(tmp_path / "memory.db", 400)
    assert survey(path, now=NOW)["free_bytes"].tolist() == [0]
    memlab.apply(memlab.plan(path, memlab.KeepRecent(3), now=NOW))
    (free,) = survey(path, now=NOW)["free_bytes"]
    assert free == space(path).free > 50_000
    vacuum(path)
    assert survey(path, now=NOW)["free_bytes"].tolist() == [0]


def test_a_store_that_cannot_be_read_is_a_row_with_its_error(tmp_path: Path) -> None:
    good = store(tmp_path / "good.db", 2)
    (tmp_path / "text.db").write_text("this is no database, by its first bytes")
    (tmp_path / "empty.db").touch()
    torn = store(tmp_path / "torn.db", 400)
    torn.write_bytes(torn.read_bytes()[:6000])
    foreign = tmp_path / "foreign.db"
    sqlite3.connect(foreign).executescript("CREATE TABLE notes (body TEXT)").close()
    names = [tmp_path / "gone.db", tmp_path / "text.db", good, tmp_path / "empty.db", torn, foreign]
    found = survey(names, now=NOW)
    assert found["store"].tolist() == list(map(str, names))
    assert found["error"].isna().tolist() == [False, False, True, False, False, False]
    assert found.loc[found["error"].notna(), "memories"].isna().all()
    assert {type(error) for error in found["error"].dropna()} == {str}


def test_a_locked_store_is_a_row_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect_reading.__kwdefaults__, "busy_timeout", 0.1)
    paths = [store(tmp_path / f"{n}.db", 2) for n in range(2)]
    run_sql(paths[0], "PRAGMA journal_mode = DELETE")
    with sqlite3.connect(paths[0], isolation_level=None) as held:
        held.execute("BEGIN EXCLUSIVE")
        found = survey(paths, now=NOW)
        held.execute("ROLLBACK")
    held.close()
    assert "locked" in found["error"][0]
    assert found["memories"][1] == 3


def test_a_memory_that_cannot_be_interpreted_is_counted_and_the_store_is_read(
    tmp_path: Path,
) -> None:
    path = write_rows(tmp_path / "odd.db", [row("odd", "hearsay"), *episodes(3)])
    found = survey(path, now=NOW)
    assert found[["memories", "unreadable", "prunable"]].iloc[0].tolist() == [4, 1, 3]
    assert found["error"].isna().all()


def test_a_fault_of_memlab_in_one_store_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [store(tmp_path / f"{n}.db", n) for n in (1, 2)]
    real = read_memories

    def load(source: object, **options: object) -> Memories:
        if "1.db" in source.name:  # type: ignore[attr-defined]
            raise ZeroDivisionError("by accident")
        return real(source, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("memlab.fleet.surveying.read_memories", load)
    found = survey(paths, now=NOW, runner=Serial())
    assert found["error"][0] == "memlab failed on it: ZeroDivisionError: by accident"
    assert found["memories"][1] == 3


def test_progress_counts_stores(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    paths = [store(tmp_path / f"{n}.db", n) for n in range(3)]
    survey(paths, now=NOW, progress=lambda *each: seen.append(each))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match="no store was named"):
        survey([], now=NOW)
    with pytest.raises(ValueError, match="no time zone"):
        survey(tmp_path, now=datetime(2026, 7, 1))  # noqa: DTZ001 - the point


def test_a_survey_leaves_no_trace(tmp_path: Path) -> None:
    path = store(tmp_path / "memory.db", 5)
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    survey(path, now=NOW)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before
