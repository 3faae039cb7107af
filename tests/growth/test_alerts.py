"""Alerts: their costs, their commands, and none for a healthy store."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.growth.alerts import ALERTS, Alert
from memlab.growth.context import NO_ALERT_BELOW
from memlab.settings import FILE
from memlab.views.findings import examine
from tests.support.claude_store import memory, write_index, write_memories, write_memory
from tests.support.openclaw_store import days_before, write_workspace
from tests.support.repositories import Repository
from tests.support.shell import output_of
from tests.support.stores import Row, episodes, row, run_sql, write_rows

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def alerts(store: Path, log: Path | None = None) -> dict[str, Alert]:
    """Return the alerts of a store by name, in order; its path is replaced by STORE."""
    overview = memlab.show(store, log=log, now=NOW).alerts
    return {
        alert.name: replace(alert, command=alert.command.replace(str(store), "STORE"))
        for alert in overview
    }


def with_bodies(rows: list[Row], characters: int) -> list[Row]:
    return [{**columns, "body": "x" * characters} for columns in rows]


def small_store(folder: Path) -> Path:
    return write_rows(folder / "memory.db", episodes(20))


def grown_store(folder: Path) -> Path:
    return write_rows(folder / "memory.db", with_bodies(episodes(60), 393))


def capped_store(folder: Path) -> Path:
    (folder / FILE).write_text('policy = { name = "recent", keep = 100 }\n')
    return grown_store(folder)


def compacted_store(folder: Path) -> Path:
    store = grown_store(folder)
    memlab.apply(memlab.plan(store, memlab.KeepRecent(59)))
    return store


def store_pruned_by_hand(folder: Path) -> Path:
    store = grown_store(folder)
    run_sql(store, "DELETE FROM memory_items WHERE rowid <= 10")
    return store


def store_with_a_large_memory(folder: Path) -> Path:
    return write_rows(capped_store(folder), with_bodies([row("big", "semantic")], 12_000))


def store_with_ten_large_memories(folder: Path) -> Path:
    return write_rows(capped_store(folder), with_bodies(episodes(10, start=100), 2_500))


def folder_with_a_cut_index(folder: Path) -> Path:
    names = [f"m{number}" for number in range(250)]
    write_memories(folder / "memory", *names)
    return folder / "memory"


def workspace_with_a_cut_document(folder: Path) -> Path:
    write_workspace(folder / "memory", days_before(date(2026, 5, 1), 3))
    return folder / "memory"


LARGE = "memlab rows STORE --where load-bearing"


@pytest.mark.parametrize(
    ("make_store", "expected"),
    [
        (small_store, []),
        (grown_store, [("never compacted", 6_111, "memlab size STORE")]),
        (capped_store, []),
        (compacted_store, []),
        (store_pruned_by_hand, []),
        (store_with_a_large_memory, [("one large memory", 3_003, LARGE)]),
        (
            store_with_ten_large_memories,
            [("the ten largest", 6_290, "memlab rows STORE --limit 10")],
        ),
        (folder_with_a_cut_index, [("cut", 200, "memlab doctor STORE")]),
        (
            workspace_with_a_cut_document,
            [("one large memory", 5_000, LARGE), ("cut", 1_250, "memlab doctor STORE")],
        ),
    ],
)
def test_each_alert_has_its_cost_and_command(
    make_store: Callable[[Path], Path], expected: list[tuple[str, int, str]], tmp_path: Path
) -> None:
    store = make_store(tmp_path)
    raised = [(alert.name, alert.tokens, alert.command) for alert in alerts(store).values()]
    assert raised == expected


def folder_with_long_lines_and_index_prose(folder: Path) -> Path:
    """Write an index with 45 entries, ten of which are long, and with prose of its own."""
    names = [f"m{number}" for number in range(45)]
    write_memories(folder / "memory", *names)
    prose = [f"Rule {number}: {'text of the index ' * 12}" for number in range(15)]
    hooks = ["x" * 1_000] * 10 + ["short"] * 35
    entries = [f"- [{name}]({name}.md) {hook}" for name, hook in zip(names, hooks, strict=True)]
    write_index(folder / "memory", [*prose, *entries])
    return folder / "memory"


def test_shares_are_of_the_start_that_is_listed(tmp_path: Path) -> None:
    store = folder_with_long_lines_and_index_prose(tmp_path)
    overview = memlab.show(store, now=NOW)
    start = overview.summary.boot.tokens + overview.summary.index_overhead
    (alert,) = [alert for alert in overview.alerts if alert.name == "the ten largest"]
    assert alert.message == f"10 of 45 memories are {alert.tokens / start:.0%} of a start"
    assert f"{alert.tokens:,} of {start:,} tokens a start" in str(overview)
    assert examine(store, now=NOW).alerts == overview.alerts


SIZES = st.tuples(st.sampled_from(["episodic", "semantic"]), st.integers(0, 9_000))


@given(st.lists(SIZES, max_size=60))
def test_alert_costs_lie_between_threshold_and_start(sizes: Any) -> None:
    with TemporaryDirectory() as folder:
        rows = [
            row(f"m{number}", kind, body="x" * size) for number, (kind, size) in enumerate(sizes)
        ]
        store = write_rows(Path(folder, "memory.db"), rows)
        costs = [alert.tokens for alert in alerts(store).values()]
        start = memlab.load(store)["tokens"].sum()
    assert costs == sorted(costs, reverse=True)
    for cost in costs:
        assert cost >= NO_ALERT_BELOW
        assert cost <= start


def write_reads(log: Path, *, days: int) -> None:
    """Write a log of twenty reads, each of another memory, on some days."""
    lines = []
    for number in range(1, 21):
        day = 1 + number % days
        read = {"memory_id": f"e{number}", "at": f"2026-05-{day:02}T12:00Z"}
        lines.append(json.dumps(read) + "\n")
    log.write_text("".join(lines))


def add_log_to_settings(folder: Path) -> None:
    with (folder / FILE).open("a") as settings:
        settings.write('log = "reads.jsonl"\n')


def test_never_read_memories_are_an_alert(tmp_path: Path) -> None:
    log = tmp_path / "reads.jsonl"
    write_reads(log, days=10)
    store = capped_store(tmp_path)
    assert alerts(store, log).keys() == {"never read"}
    add_log_to_settings(tmp_path)
    message = "40 memories, by 20 reads of what is loaded"
    command = "memlab rows STORE --where unread"
    expected = Alert("never read", message, 4_080, "a start", command)
    assert alerts(store) == {"never read": expected}
    log.unlink()
    assert alerts(store) == {}, "memlab size reports problems of a log"


def test_never_read_alert_needs_reads_on_ten_days(tmp_path: Path) -> None:
    log = tmp_path / "reads.jsonl"
    write_reads(log, days=9)
    store = capped_store(tmp_path)
    assert alerts(store, log) == {}
    add_log_to_settings(tmp_path)
    assert alerts(store) == {}


def test_load_bearing_memory_deleted_elsewhere_is_an_alert(tmp_path: Path) -> None:
    folder = Repository(tmp_path / "memory")
    write_memories(folder.folder, "a", "b")
    write_memory(folder.folder, "told.md", memory("told", kind="feedback"))
    folder.commit(1)
    (folder.folder / "a.md").unlink()
    folder.commit(2)
    assert alerts(folder.folder) == {}
    (folder.folder / "told.md").unlink()
    folder.commit(3)
    message = "1 memory, load-bearing or asked for since, that other programs deleted or emptied"
    assert alerts(folder.folder)["lost"] == Alert("lost", message, 8, "lost", "memlab lost STORE")


def test_cost_of_an_alert_stands_beside_the_tokens_of_the_start(tmp_path: Path) -> None:
    store = write_rows(grown_store(tmp_path), [row("decision", "semantic", body="x" * 393)])
    boot = memlab.show(store, now=NOW).summary.boot
    assert boot.prunable.tokens < boot.tokens
    output = output_of("show", store)
    assert f"{boot.prunable.tokens:,} of {boot.tokens:,} tokens a start  never" in output


@pytest.mark.usefixtures("no_charts")
def test_alerts_come_first_in_show_and_report(tmp_path: Path) -> None:
    store = write_rows(grown_store(tmp_path), [row("b", body="x" * 12_000)])
    page = tmp_path / "r.html"
    output = output_of("show", store)
    headings = ("never compacted: 61", "one large", "61 memories,")
    places = [output.index(heading) for heading in headings]
    assert places == sorted(places)
    names = [alert["name"] for alert in json.loads(output_of("show", store, "--json"))["alerts"]]
    assert names == ["never compacted", "one large memory"]
    assert set(names) < set(ALERTS)
    output_of("report", store, "-o", page)
    assert "never compacted: 61" in page.read_text().split("<section id=")[1]


def test_alert_command_names_a_log_not_in_settings(tmp_path: Path) -> None:
    bundled = memlab.store_path("looked_up")
    store = memlab.copy_store(bundled, tmp_path / "m.db")
    log = bundled.with_suffix(".searches.jsonl")
    (tmp_path / FILE).write_text(f"log = {json.dumps([str(log), str(log)])}\n")

    steps = {f"memlab size {store}", f"memlab rows {store} --where unread"}
    assert {alert.command for alert in examine(store, now=NOW).alerts} == steps
    (tmp_path / FILE).unlink()
    commands = {alert.command for alert in examine(store, now=NOW, log=log).alerts}
    assert commands == {f"{step} --log {log}" for step in steps}
