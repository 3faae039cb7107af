"""Maintenance by the settings of a store: health, compaction, archive, vacuum."""

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import memlab
from memlab.errors import MemlabError, SettingsError, StoreError
from memlab.settings import FILE
from memlab.upkeep import maintenance
from memlab.upkeep.maintenance import Maintenance, maintain
from tests.support.shell import output_of
from tests.support.stores import Row, episodes, files_in, row, run_sql, write_rows

NOW = datetime(2026, 6, 1, 3, 17, tzinfo=UTC)
ALL = 'policy = { name = "recent", keep = 20 }\narchive_for = "30d"\nvacuum_free = 0.3\n'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    long_episodes = [episode | {"body": "x" * 4_000} for episode in episodes(100)]
    (tmp_path / FILE).write_text(ALL)
    return write_rows(tmp_path / "memory.db", [row("d", "semantic"), *long_episodes])


def outcomes(result: Maintenance) -> dict[str, str]:
    return {step.name: str(step.outcome) for step in result.steps}


def in_a_line(result: Maintenance) -> str:
    return ", ".join(f"{name} {outcome}" for name, outcome in outcomes(result).items())


def words_of_step(result: Maintenance, name: str) -> str:
    """Return the message of the step with this name."""
    (message,) = [step.message for step in result.steps if step.name == name]
    return message


def test_dry_run_changes_nothing_and_reports_the_work(store: Path) -> None:
    before = files_in(store.parent)
    result = maintain(store, now=NOW)
    assert files_in(store.parent) == before
    assert in_a_line(result) == "doctor done, compact would, drop nothing, vacuum nothing"
    assert "80 memories" in words_of_step(result, "compact")
    assert result.applied is False
    assert result.has_work is True
    assert result.failed is False


def test_maintenance_compacts_and_vacuums(store: Path) -> None:
    warned = row("a", "episodic", "Rejected-Path")  # a warning does not stop maintenance
    write_rows(store, [warned])
    size = store.stat().st_size
    result = maintain(store, apply=True, now=NOW)
    assert in_a_line(result) == "doctor done, compact done, drop nothing, vacuum done"
    assert "Rejected-Path" in words_of_step(result, "doctor")
    assert memlab.load(store)["prunable"].sum() == 20
    assert store.stat().st_size < size / 2
    unpickled = pickle.loads(pickle.dumps(result))
    assert unpickled.to_dict() == result.to_dict()
    assert str(unpickled) == str(result)
    assert result.to_dict()["deleted"] == 81
    before = files_in(store.parent)
    second_run = maintain(store, apply=True, now=NOW)
    assert set(outcomes(second_run).values()) == {"done", "nothing"}
    assert second_run.has_work is False
    assert second_run.failed is False
    assert second_run.receipt is None
    assert files_in(store.parent) == before
    assert result.receipt is not None
    assert memlab.restore(result.receipt, now=NOW).memories == 81


def test_first_line_tells_time_and_outcome(store: Path) -> None:
    would = str(maintain(store, now=NOW))
    assert would.startswith(f"2026-06-01 03:17 UTC maintenance would do: {store}\n")
    (store.parent / FILE).write_text(ALL + "max_per_run = 1\n")
    failed = maintain(store, apply=True, now=NOW)
    assert str(failed).startswith(f"2026-06-01 03:17 UTC maintenance FAILED at compact: {store}\n")
    assert failed.to_dict()["run_at"] == "2026-06-01T03:17:00+00:00"
    (store.parent / FILE).write_text(ALL)
    done = str(maintain(store, apply=True, now=NOW))
    assert done.startswith(f"2026-06-01 03:17 UTC maintained: {store}\n")


def test_drop_erases_only_expired_archive_entries(store: Path) -> None:
    maintain(store, apply=True, now=NOW)
    write_rows(store, episodes(30, start=200))
    maintain(store, apply=True, now=NOW + timedelta(days=20))
    assert [entry.copies for entry in memlab.compaction.archived_plans(store)] == [80, 30]
    later = NOW + timedelta(days=31)
    assert "80 memories, 80 never restored" in words_of_step(maintain(store, now=later), "drop")
    assert len(memlab.compaction.archived_plans(store)) == 2
    assert outcomes(maintain(store, apply=True, now=later))["drop"] == "done"
    assert [entry.copies for entry in memlab.compaction.archived_plans(store)] == [30]


def test_erasing_a_fresh_deletion_needs_yes(store: Path) -> None:
    (store.parent / FILE).write_text(ALL.replace("30d", "0d"))
    before = files_in(store.parent)
    later = NOW + timedelta(seconds=1)
    with pytest.raises(SettingsError, match=r"line 2: archive_for=.0d. erases .* with --yes"):
        maintain(store, apply=True, now=NOW)
    assert files_in(store.parent) == before
    assert outcomes(maintain(store, apply=True, now=NOW, yes=True))["compact"] == "done"
    assert "--apply asks for --yes" in words_of_step(maintain(store, now=later), "drop")
    assert outcomes(maintain(store, apply=True, now=later, yes=True))["drop"] == "done"
    assert not memlab.compaction.archived_plans(store)


def test_steps_without_settings_are_off(store: Path) -> None:
    (store.parent / FILE).write_text('[store."memory.db"]\narchive_for = "1d"\n')
    result = maintain(store, apply=True, now=NOW)
    assert in_a_line(result) == "doctor done, compact off, drop nothing, vacuum off"
    assert len(memlab.load(store)) == 101


@pytest.mark.parametrize(
    ("settings", "fault", "message"),
    [
        ("", SettingsError, "no settings for"),
        ('[store."absent.db"]\narchive_for = "9d"\n', StoreError, "there is no store"),
        ('policy = { name = "newest" }\n', SettingsError, "'newest' is not a policy"),
        (
            'archive_for = "9d"\ndelete_retired_after = "9d"\n',
            SettingsError,
            "2: .* needs a policy",
        ),
        ('archive_for = "9d"\nharvest = "x"\n', SettingsError, "line 2: harvest needs a log"),
    ],
)
def test_missing_settings_stop_maintenance_before_any_change(
    store: Path, settings: str, fault: type[MemlabError], message: str
) -> None:
    (store.parent / FILE).write_text(settings)
    before = files_in(store.parent)
    name = "absent.db" if "absent" in settings else "memory.db"
    with pytest.raises(fault, match=message):
        maintain(store.with_name(name), apply=True, now=NOW)
    assert files_in(store.parent) == before


@pytest.fixture
def young(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(40))


def test_saved_number_is_used_until_its_horizon(young: Path) -> None:
    size = ("size", young, "--unit", "tokens", "--save")
    output_of(*size)
    write_rows(young, episodes(7, start=41))
    assert outcomes(maintain(young, apply=True, now=NOW))["compact"] in {"done", "nothing"}
    write_rows(young, episodes(433, start=48))
    memlab.apply(memlab.plan(young, memlab.KeepRecent(10), now=NOW), now=NOW)
    before = files_in(young.parent)
    for result in (maintain(young, now=NOW), maintain(young, apply=True, now=NOW)):
        assert outcomes(result) == {"doctor": "done", "compact": "FAILED"}
        message = words_of_step(result, "compact")
        assert "valid until 48 episodes were written, and 480 were" in message
        assert f"memlab size {young} --unit tokens --save" in message
        assert "number: " in words_of_step(result, "doctor")
    assert files_in(young.parent) == before
    output_of(*size)
    assert not maintain(young, apply=True, now=NOW).failed


def test_auto_cap_is_sized_on_each_run(young: Path) -> None:
    (young.parent / FILE).write_text('policy = { name = "tokens", max_tokens = "auto" }\n')
    numbers = []
    for start, count in ((41, 1), (441, 400), (1_241, 1_200)):
        write_rows(young, episodes(count, start=start))
        safe = memlab.size(young, unit="tokens").advice.number
        numbers.append(safe)
        result = maintain(young, apply=True, now=NOW)
        assert result.plan is not None
        assert result.plan.policy["max_tokens"] == safe
        assert f'"auto": max_tokens = {safe:,} is safe' in words_of_step(result, "compact")
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("rows", "outcome", "message"),
    [
        (episodes(40), "FAILED", "memlab size {}"),
        ([row("d", "semantic")], "nothing", "no memory that a cap could delete"),
    ],
)
def test_auto_cap_without_a_number_deletes_nothing(
    tmp_path: Path, rows: list[Row], outcome: str, message: str
) -> None:
    store = write_rows(tmp_path / "memory.db", rows)
    settings = 'policy = { name = "tokens", max_tokens = "auto" }\ntoken_budget = 100\n'
    (tmp_path / FILE).write_text(settings)
    result = maintain(store, apply=True, now=NOW)
    assert outcomes(result)["compact"] == outcome
    assert message.format(store) in words_of_step(result, "compact")
    assert len(memlab.load(store)) == len(rows)


def test_failed_health_check_stops_maintenance(store: Path) -> None:
    run_sql(store, "CREATE TABLE twin (memory_id TEXT PRIMARY KEY)")
    data = bytearray(store.read_bytes())
    data[8192:12288] = bytes(4096)
    store.write_bytes(data)
    before = files_in(store.parent)
    result = maintain(store, apply=True, now=NOW)
    assert outcomes(result) == {"doctor": "FAILED"}
    assert result.failed is True
    assert files_in(store.parent) == before


def test_failed_step_stops_and_earlier_work_is_reported(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise StoreError("no room left on the disk")

    monkeypatch.setattr("memlab.upkeep.maintenance.vacuum", full)
    result = maintain(store, apply=True, now=NOW)
    assert outcomes(result)["vacuum"] == "FAILED"
    assert "no room left" in words_of_step(result, "vacuum")
    assert result.failed
    assert result.receipt is not None
    assert result.receipt.undo in str(result)


@pytest.mark.parametrize(("stale", "outcome"), [(2, "done"), (3, "FAILED")])
def test_stale_plan_is_remade_a_limited_number_of_times(
    store: Path, monkeypatch: pytest.MonkeyPatch, stale: int, outcome: str
) -> None:
    real_apply = memlab.compaction.apply
    calls = []

    def change_store_and_apply(plan: Any, **options: Any) -> Any:
        calls.append(plan.digest)
        if len(calls) <= stale:
            run_sql(store, f"UPDATE memory_items SET title = 'new {len(calls)}'")
        return real_apply(plan, **options)

    monkeypatch.setattr("memlab.upkeep.maintenance.apply", change_store_and_apply)
    assert outcomes(maintain(store, apply=True, now=NOW))["compact"] == outcome
    assert len(set(calls)) == 3
    assert len(memlab.load(store)) == (21 if outcome == "done" else 101)


def test_implausible_clock_stops_maintenance(store: Path) -> None:
    maintain(store, apply=True, now=NOW)
    before = files_in(store.parent)
    result = maintain(store, apply=True, now=datetime(2199, 1, 1, tzinfo=UTC))
    assert outcomes(result) == {"clock": "FAILED"}
    message = words_of_step(result, "clock")
    assert "the clock says 2199-01-01 and nothing was written since 2" in message
    assert files_in(store.parent) == before


RETIRE = """policy = { name = "recent", keep = 20 }
log = "reads.log"
retire = true
delete_retired_after = "60d"
"""


def test_retired_memories_return_or_are_deleted_later(store: Path) -> None:
    settings = store.parent / FILE
    settings.write_text(RETIRE)
    (store.parent / "reads.log").touch()
    before = files_in(store.parent)
    assert "retire 80 memories" in words_of_step(maintain(store, now=NOW), "compact")
    assert files_in(store.parent) == before
    result = maintain(store, apply=True, now=NOW)
    assert result.to_dict()["retired"] == 80
    assert result.deleted == 0
    assert result.undo is not None
    second_run = maintain(store, apply=True, now=NOW)
    assert words_of_step(second_run, "compact") == "nothing to retire and nothing to return"
    memlab.AccessLog(store.parent / "reads.log").add("e3", NOW + timedelta(days=2))
    later = maintain(store, apply=True, now=NOW + timedelta(days=3))
    assert "returned 1 memory" in words_of_step(later, "compact")
    assert outcomes(later)["delete"] == "nothing"
    last = maintain(store, apply=True, now=NOW + timedelta(days=61))
    assert last.deleted == 79
    assert last.to_dict()["retired"] == 1  # e3 was read once
    assert memlab.load(store).retired_at.notna().sum() == 1
    assert last.deletion is not None
    assert words_of_step(last, "delete").endswith(f"undo: {last.deletion.undo}")
    assert memlab.restore(last.deletion).memories == 79
    assert memlab.load(store).retired_at.notna().sum() == 80


def test_maintenance_harvests_before_compacting(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.parent / FILE).write_text('log = "reads.log"\nharvest = "sessions"\n')
    assert outcomes(maintain(store, now=NOW))["harvest"] == "would"
    (store.parent / FILE).write_text(f'{RETIRE}harvest = "sessions"\n')
    (store.parent / "reads.log").touch()
    folder = store.parent / "sessions"
    assert f"reads of {folder} into" in words_of_step(maintain(store, now=NOW), "harvest")
    failed = maintain(store, apply=True, now=NOW)
    assert list(outcomes(failed).items())[-1] == ("harvest", "FAILED")
    assert "there is no" in words_of_step(failed, "harvest")
    memlab.apply(memlab.plan(store, memlab.KeepRecent(20), retire=True, now=NOW), now=NOW)

    def harvested(source: str, log: Path) -> SimpleNamespace:
        at = (NOW + timedelta(days=1)).isoformat()
        memlab.AccessLog(log).extend([{"memory_id": "e3", "at": at}])
        return SimpleNamespace(new=1, source=source)

    monkeypatch.setattr(maintenance, "harvest", harvested)
    result = maintain(store, apply=True, now=NOW + timedelta(days=2))
    assert words_of_step(result, "harvest").startswith(f"1 new read of {folder} into")
    assert "returned 1 memory" in words_of_step(result, "compact")


def test_copies_are_kept_and_old_ones_are_dropped(store: Path) -> None:
    (store.parent / FILE).write_text('keep_copies = true\narchive_for = "30d"\n')
    assert words_of_step(maintain(store, now=NOW), "copy").startswith("what is new")
    result = maintain(store, apply=True, now=NOW)
    assert outcomes(result)["copy"] == "done"
    assert words_of_step(result, "copy") == "101 memories, new or changed, into the archive"
    run_sql(store, "UPDATE memory_items SET body = 'y' WHERE memory_id = 'e1'")
    run_sql(store, "DELETE FROM memory_items WHERE memory_id = 'e2'")
    for days in (1, 20):
        result = maintain(store, apply=True, now=NOW + timedelta(days=days))
        assert "none" in words_of_step(result, "drop")
        assert len(memlab.lost(store)) == 1
    result = maintain(store, apply=True, now=NOW + timedelta(days=40))
    assert "2 copies" in words_of_step(result, "drop")
    assert len(memlab.lost(store)) == 0


@pytest.mark.parametrize("retire", [False, True])
def test_first_run_of_a_replaced_policy_is_a_dry_run(store: Path, retire: bool) -> None:
    settings = store.with_name(FILE)
    lines = ['policy = { name = "learned", max_items = 95 }\n']
    if retire:
        lines.append("retire = true\n")
    settings.write_text("".join(lines))
    before = files_in(store.parent)
    dry_run = maintain(store, now=NOW)
    assert files_in(store.parent) == before
    assert dry_run.has_work
    first = maintain(store, apply=True, now=NOW)
    verb = "retire" if retire else "delete"
    message = words_of_step(first, "compact")
    assert "memlab.toml names learned, which activation has replaced" in message
    assert f"it would {verb} e1, e2, e3, e4, e5" in message
    assert first.deleted == 0
    assert first.receipt is None
    assert memlab.load(store)["prunable"].sum() == 100
    assert 'name = "activation"' in settings.read_text()
    second = maintain(store, apply=True, now=NOW + timedelta(days=1))
    assert second.receipt is not None
    assert memlab.load(store)["prunable"].sum() == 95
