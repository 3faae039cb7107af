"""The history of a store: stages computed once, from one snapshot."""

import contextlib
import re
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import memlab
from memlab import KeepRecent, StoreHistory, compaction
from memlab import columns as c
from memlab.cli import main
from memlab.errors import ChangedWhileReadError, WrongArgumentError
from memlab.evidence import store_history
from memlab.lifecycle import LifecycleStore
from tests.support.repositories import Repository

LOOKED_UP = memlab.store_path("looked_up")
NOW = datetime(2026, 8, 1, tzinfo=UTC)
READS = LOOKED_UP.with_suffix(".reads.jsonl")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    path.write_bytes(LOOKED_UP.read_bytes())
    return path


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the stages in the order in which they are computed."""
    computed: list[str] = []

    def counted(name: str) -> None:
        original: Callable[..., Any] = getattr(store_history, name)

        def count(*arguments: Any, **keywords: Any) -> Any:
            computed.append(name)
            return original(*arguments, **keywords)

        monkeypatch.setattr(store_history, name, count)

    for name in ("load", "deletions_of", "references_and_counts"):
        counted(name)
    return computed


def test_stages_are_computed_on_demand(loads: list[str]) -> None:
    history = StoreHistory(LOOKED_UP)
    assert loads == []
    assert len(history.rows) == 480
    assert loads == ["load"]


def test_each_stage_is_computed_once(loads: list[str]) -> None:
    history = StoreHistory(LOOKED_UP).with_past().with_references()
    assert history.past is history.past
    assert history.references is history.references
    assert loads == ["load", "deletions_of", "references_and_counts"]


def test_several_results_share_one_load(loads: list[str]) -> None:
    history = StoreHistory(LOOKED_UP)
    memlab.size(history)
    memlab.rows(history)
    memlab.growth_curve(history)
    memlab.compare(history, policies=[KeepRecent(50)])
    assert loads == ["load", "deletions_of", "references_and_counts"]


@pytest.mark.usefixtures("no_rendering")
@pytest.mark.parametrize("command", ["size", "report"])
def test_command_computes_references_once(command: str, store: Path, loads: list[str]) -> None:
    options = ["-o", str(store.with_name("report.html"))] if command == "report" else []
    with contextlib.suppress(SystemExit):
        main([command, str(store), *options])
    assert loads == ["load", "deletions_of", "references_and_counts"]


def advice_of(memories: Any) -> str:
    return memlab.size(memories).advice.to_json()


def rows_of(memories: Any) -> str:
    return memlab.rows(memories, now=NOW).to_csv()


def growth_of(memories: Any) -> str:
    return memlab.growth_curve(memories).to_csv()


def references_of(memories: Any) -> str:
    return memlab.find_references(memories).to_csv()


def comparison_of(memories: Any) -> str:
    return memlab.compare(memories, policies=[KeepRecent(50)]).to_json()


def replay_of(memories: Any) -> str:
    return repr(memlab.replay.replay(memories, None, KeepRecent(50)))


@pytest.mark.parametrize(
    "question", [advice_of, rows_of, growth_of, references_of, comparison_of, replay_of]
)
def test_history_gives_the_same_result_as_its_store(question: Callable[[Any], str]) -> None:
    assert question(StoreHistory(LOOKED_UP)) == question(LOOKED_UP)


def test_with_reads_adds_references_of_the_log() -> None:
    history = StoreHistory(LOOKED_UP)
    with_reads = history.with_reads(READS)
    expected = memlab.find_references(LOOKED_UP, memlab.read_access_log(READS))
    pd.testing.assert_frame_equal(with_reads.references, expected)
    assert with_reads.rows is history.rows
    assert len(history.references) < len(with_reads.references)


def test_with_reads_raises_for_a_missing_log(tmp_path: Path) -> None:
    with pytest.raises(memlab.MemlabError):
        StoreHistory(LOOKED_UP).with_reads(tmp_path / "none.jsonl")


def test_deletion_after_the_snapshot_is_ignored(store: Path) -> None:
    history = StoreHistory(store)
    before = history.rows
    plan = memlab.plan(store, policy=KeepRecent(20))
    memlab.apply(plan)
    assert history.past[c.DELETED_AT].isna().all()
    assert history.past[c.MEMORY_ID].tolist() == before[c.MEMORY_ID].tolist()
    assert StoreHistory(store).past[c.DELETED_AT].notna().any()


def test_filtered_frame_reports_missing_positions() -> None:
    past = memlab.load_past(LOOKED_UP)
    history = StoreHistory.from_frame(past[past[c.POSITION] > 200])
    (sentence,) = history.lost_by_filter
    assert sentence.startswith("200 memories at lower positions")


def test_filtered_frame_with_source_reports_lost_references() -> None:
    past = memlab.load_past(LOOKED_UP)
    source = StoreHistory(LOOKED_UP).source
    history = StoreHistory.from_frame(past[past[c.POSITION] > 200], source)
    (sentence,) = history.lost_by_filter
    assert sentence.startswith("200 memories of 480 in the store")
    assert "references" in sentence


def test_complete_frame_reports_nothing_missing() -> None:
    assert StoreHistory.from_frame(memlab.load_past(LOOKED_UP)).lost_by_filter == ()


def test_bodies_are_loaded_on_request() -> None:
    history = StoreHistory(LOOKED_UP)
    assert c.BODY not in history.rows
    assert c.BODY in history.with_body().rows
    assert history.with_body().with_body() is not history


def test_lost_takes_a_history(store: Path) -> None:
    compaction.keep_copies(store)
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("DELETE FROM memory_items WHERE rowid <= 100")
        connection.commit()
    history = StoreHistory(store, READS)
    lost = memlab.lost(history)
    assert len(lost) == 100
    assert set(lost[c.DELETED_AT]) == {pd.Timestamp(history.now)}  # it was missed at this moment
    afresh = memlab.lost(store, log=READS)
    pd.testing.assert_frame_equal(lost, afresh.assign(**{c.DELETED_AT: lost[c.DELETED_AT]}))


def test_lost_rejects_the_history_of_a_frame() -> None:
    history = StoreHistory.from_frame(memlab.load(LOOKED_UP))
    with pytest.raises(WrongArgumentError, match=r"memlab\.lost takes as source a store"):
        memlab.lost(history)


# A store that changes after its rows were read


def write_now(store: Path, statement: str) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(statement)
        connection.commit()


CHANGES = {
    "deleted": "DELETE FROM memory_items WHERE rowid = 400",
    "edited": "UPDATE memory_items SET body = body || '!' WHERE rowid = 400",
    "superseded": "UPDATE memory_items SET superseded_by = 'x' WHERE rowid = 400",
}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES)
def test_bodies_of_a_changed_store_are_rejected(store: Path, statement: str) -> None:
    history = StoreHistory(store)
    before = history.rows
    write_now(store, statement)
    assert history.has_changed()
    with pytest.raises(ChangedWhileReadError, match="has changed since its memories were read"):
        history.with_body()
    assert history.rows is before


def test_bodies_are_loaded_if_only_unrelated_tables_changed(store: Path) -> None:
    history = StoreHistory(store)
    before = history.rows
    write_now(store, "CREATE TABLE another (x)")
    assert not history.has_changed()
    pd.testing.assert_frame_equal(history.with_body().rows.drop(columns=c.BODY), before)


def test_memory_access_is_not_a_change(store: Path) -> None:
    history = StoreHistory(store)
    assert len(history.rows) == 480
    with LifecycleStore(store) as agent:
        agent.touch(["episodic-merged-102"])
    assert StoreHistory(store).rows[c.ACCESS_COUNT].sum() == 1
    assert not history.has_changed()
    assert c.BODY in history.with_body().rows


def test_store_change_before_first_load_is_not_a_change(store: Path) -> None:
    history = StoreHistory(store)
    write_now(store, CHANGES["deleted"])
    assert not history.has_changed()
    assert len(history.with_body().rows) == 479


def test_history_with_bodies_shares_the_references(loads: list[str]) -> None:
    history = StoreHistory(LOOKED_UP, READS).with_references()
    with_texts = history.with_body()
    assert with_texts.references is history.references
    assert c.BODY in with_texts.past
    assert loads == ["load", "deletions_of", "references_and_counts", "load", "deletions_of"]


def test_memory_restored_after_the_snapshot_stays_deleted(store: Path) -> None:
    receipt = memlab.apply(memlab.plan(store, policy=KeepRecent(400)))
    history = StoreHistory(store)
    present = len(history.rows)
    memlab.restore(receipt)
    assert len(history.past) == 480
    assert history.past[c.DELETED_AT].isna().sum() == present
    assert StoreHistory(store).past[c.DELETED_AT].isna().all()


def test_memory_written_after_the_snapshot_is_left_out(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "project/.serena/memories", root=tmp_path / "project")
    (repository.folder / "a.md").write_text("One.\n")
    repository.commit(0)
    history = StoreHistory(repository.folder)
    assert len(history.rows) == 1
    (repository.folder / "b.md").write_text("Two.\n")
    assert history.has_changed()
    assert history.past[c.MEMORY_ID].tolist() == ["a.md"]


def test_file_restored_after_the_snapshot_is_an_error(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "project/.serena/memories", root=tmp_path / "project")
    for name in ("a.md", "b.md"):
        (repository.folder / name).write_text(f"{name}\n")
    repository.commit(0)
    (repository.folder / "a.md").unlink()
    repository.commit(1)
    history = StoreHistory(repository.folder)
    assert history.rows[c.MEMORY_ID].tolist() == ["b.md"]
    repository.git("checkout", "HEAD^", "--", ".serena/memories/a.md")
    with pytest.raises(ChangedWhileReadError, match=r"a\.md has come back"):
        history.with_past()
    assert StoreHistory(repository.folder).past[c.DELETED_AT].isna().all()


def test_file_renamed_after_the_snapshot_keeps_its_name(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "project/.serena/memories", root=tmp_path / "project")
    (repository.folder / "a.md").write_text("One.\n")
    repository.commit(0)
    log = tmp_path / "reads.jsonl"
    log.write_text('{"memory_id": "a.md", "at": "2026-01-02T00:00:00Z"}\n')
    history = StoreHistory(repository.folder, log)
    assert history.rows[c.MEMORY_ID].tolist() == ["a.md"]
    (repository.folder / "a.md").rename(repository.folder / "b.md")
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "c", at=datetime.now(UTC) + timedelta(seconds=2))
    assert history.references[c.TARGET_ID].tolist() == ["a.md"]
    afresh = StoreHistory(repository.folder, log).references
    assert afresh[c.TARGET_ID].tolist() == ["b.md"]


def test_repr_of_history_does_not_load_the_store(loads: list[str]) -> None:
    history = StoreHistory(LOOKED_UP, READS, now=NOW)
    assert "not read yet" in repr(history)
    assert str(READS) in repr(history)
    assert loads == []
    history.rows  # noqa: B018 - reads them
    assert "480 memories" in repr(history)


@pytest.mark.parametrize("log", [None, READS], ids=["no log", "log"])
def test_show_of_history_equals_show_of_store(store: Path, log: Path | None) -> None:
    overview = memlab.show(store, log=log, now=NOW)
    of_history = memlab.show(StoreHistory(store, log, now=NOW))
    assert of_history.to_json() == overview.to_json()
    assert of_history.next_steps() == overview.next_steps()


def test_show_takes_the_log_of_a_history(store: Path, loads: list[str]) -> None:
    overview = memlab.show(StoreHistory(store, READS, now=NOW))
    (never_read,) = [alert for alert in overview.alerts if alert.name == "never read"]
    assert never_read.command.endswith(f"--log {READS}")
    assert f"--log {READS}" in overview.next_steps()[0]
    assert loads.count("load") == 1


def test_show_takes_a_log_with_a_frame() -> None:
    overview = memlab.show(memlab.load(LOOKED_UP), log=READS, now=NOW)
    assert "never read" in {alert.name for alert in overview.alerts}


def sizes_with_log(memories: Any, log: Any) -> str:
    return str(memlab.size(memories, log=log, now=NOW))


def rows_with_log(memories: Any, log: Any) -> str:
    return memlab.rows(memories, log=log, now=NOW).to_csv()


def comparison_with_log(memories: Any, log: Any) -> str:
    return memlab.compare(memories, log=log, policies=[KeepRecent(50)]).to_json()


def report_with_log(memories: Any, log: Any) -> str:
    """Return the text of a report, without the name of its folder and the moment it was made."""
    with tempfile.TemporaryDirectory() as folder:
        report = memlab.report(memories, Path(folder) / "report.html", log=log, now=NOW)
        page = report.output.read_text(encoding="utf-8").replace(Path(folder).name, "FOLDER")
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC, by ", "", page)


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize(
    "question",
    [
        sizes_with_log,
        rows_with_log,
        comparison_with_log,
        pytest.param(report_with_log, marks=pytest.mark.long),
    ],
)
def test_log_of_history_is_used_like_the_log_argument(
    store: Path, question: Callable[[Any, Any], str]
) -> None:
    assert question(StoreHistory(store, READS, now=NOW), None) == question(store, READS)


def test_doctor_rejects_a_history(store: Path) -> None:
    with pytest.raises(WrongArgumentError, match="checks the store as it is now"):
        memlab.doctor(StoreHistory(store))  # type: ignore[arg-type]
