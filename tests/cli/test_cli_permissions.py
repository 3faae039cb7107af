"""Nothing that a command writes may be read by more people than the store."""

from pathlib import Path

import pytest
from shell import run
from stores import episodes, write_rows

import memlab


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that its owner alone may read, with something in its archive."""
    path = write_rows(tmp_path / "memory.db", episodes(30))
    path.chmod(0o600)
    memlab.apply(memlab.plan(path, memlab.KeepRecent(20)))
    return path


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_plan_a_record_a_report_and_an_export_are_for_whoever_may_read_the_store(
    store: Path, tmp_path: Path
) -> None:
    plan, report, record = (tmp_path / name for name in ("p.json", "r.html", "record.md"))
    assert run("compact", store, "--keep-recent", 5, "--save-plan", plan).exit_code == 0
    assert run("report", store, "-o", report, "--record", record, "--cap", 7).exit_code == 0
    assert run("archive", store, "--export", tmp_path / "rows.jsonl").exit_code == 0
    assert run("compare", store, "--cap", 3, "--chart", tmp_path / "c.png").exit_code == 0
    assert run("chart", "backlog", store, "-o", tmp_path / "b.svg").exit_code == 0
    written = [plan, report, record, tmp_path / "record.plan.json", tmp_path / "rows.jsonl"]
    written += [tmp_path / "c.png", tmp_path / "b.svg"]
    assert {mode_of(path) for path in written} == {0o600}


def test_a_copy_and_what_is_restored_aside_are_too(store: Path, tmp_path: Path) -> None:
    copy = memlab.copy_store(store, tmp_path / "copy.db")
    (entry,) = memlab.compaction.archived_plans(store)
    memlab.restore(entry.digest, store=store, into=tmp_path / "aside.db")
    assert {mode_of(copy), mode_of(tmp_path / "aside.db")} == {0o600}
    assert len(memlab.load(copy)) == 20


def test_an_archive_that_was_made_private_stays_so(store: Path, tmp_path: Path) -> None:
    store.chmod(0o644)
    archive = tmp_path / "memory.db.archive.db"
    archive.chmod(0o600)
    memlab.apply(memlab.plan(store, memlab.KeepRecent(5)))
    assert mode_of(archive) == 0o600
    (first, _) = memlab.compaction.archived_plans(store)
    memlab.restore(first.digest, store=store)
    assert mode_of(archive) == 0o600


def test_a_file_that_cannot_be_written_stops_a_command_before_it_reads(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr("memlab.evidence.past.load_past", lambda *_, **__: pytest.fail("it read"))
    for words in (
        ("report", store, "-o", tmp_path / "folder"),
        ("report", store, "-o", tmp_path / "nowhere" / "r.html"),
        ("compare", store, "--chart", tmp_path / "folder"),
    ):
        assert run(*words).exit_code == 2
