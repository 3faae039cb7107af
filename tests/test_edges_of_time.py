"""Dates at the ends of the calendar, such as zero times and infinity."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.clock import EARLIEST, LATEST, moment_and_zone, shifted
from memlab.systems.memforge import _moment
from tests.support.claude_store import write_index, write_memory
from tests.support.properties import all_but
from tests.support.shell import output_of, typed
from tests.support.stores import episodes, row, write_rows

EDGES = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+02:00",
    "0001-01-01T00:00:00-02:00",
    "0001-01-01",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59.9999999Z",
    "9999-12-31T23:59:59-14:00",
)
ON_A_PAGE = ("0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-14:00")
"""Extreme dates that a default run puts on a page; ``--all`` tries every date."""
COMMANDS = ("show {}", "find {out}", "rows {}", "size {}")


def assert_commands_print(store: Path, out: Path) -> None:
    for command in COMMANDS:
        assert output_of(*typed(command, store, out)) != ""


def date_rows(store: Path, edge: str, which: str) -> None:
    """Set the date of one row of a store to an edge, or of all rows."""
    condition = "WHERE memory_id = 'e5'" if which == "one" else ""
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(f"UPDATE memory_items SET created_at = ? {condition}", (edge,))


@pytest.mark.parametrize("edge", all_but(EDGES, set(EDGES) - set(ON_A_PAGE)))
@pytest.mark.parametrize("which", ["one", "all", "files"])
def test_report_with_extreme_dates_is_written(tmp_path: Path, edge: str, which: str) -> None:
    if which == "files":
        store = write_files(tmp_path, edge)
    else:
        store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
        date_rows(store, edge, which)
    assert output_of("report", store, "-o", tmp_path / "page.html")


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("which", ["one", "all"])
def test_rows_with_extreme_dates_are_read(tmp_path: Path, edge: str, which: str) -> None:
    store = write_rows(tmp_path / "memory.db", [row("d1", "semantic"), *episodes(10)])
    date_rows(store, edge, which)
    assert_commands_print(store, tmp_path)
    receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(3)))
    assert receipt.deleted == 7
    assert memlab.restore(receipt).memories == 7


def write_files(tmp_path: Path, edge: str) -> Path:
    """Write a folder of Claude Code whose files say that they were changed at an edge."""
    folder = tmp_path / ".claude" / "projects" / "-w" / "memory"
    names = [f"note_{number}.md" for number in range(6)]
    for name in names:
        head = f"---\nname: {name}\nmetadata:\n  type: project\n  modified: {edge}\n---\n"
        write_memory(folder, name, f"{head}{name}\n")
    write_index(folder, [f"- [{name}]({name})" for name in names])
    return folder


@pytest.mark.parametrize("edge", EDGES)
def test_files_with_extreme_dates_are_read(tmp_path: Path, edge: str) -> None:
    folder = write_files(tmp_path, edge)
    assert_commands_print(folder, tmp_path)
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(3)))
    assert memlab.restore(receipt).memories == 3


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("infinity", 9999),
        ("-infinity", 1),
        ("4713-01-01 00:00:00+00 BC", 1),
        ("294276-12-31 23:59:59.999999+00", 9999),
        ("2026-01-01 00:00:00+00", 2026),
    ],
)
def test_postgresql_time_out_of_range_becomes_the_nearest(text: str, year: int) -> None:
    moment = _moment(text)
    assert moment is not None
    assert moment.year == year


def test_invalid_postgresql_time_is_none() -> None:
    assert _moment("once") is None
    assert _moment(None) is None


@given(st.datetimes(), st.integers(-24 * 60 + 1, 24 * 60 - 1))
def test_times_with_an_offset_are_converted_to_utc(moment: datetime, minutes: int) -> None:
    sign = "-" if minutes < 0 else "+"
    hours, rest = divmod(abs(minutes), 60)
    parsed, has_zone = moment_and_zone(f"{moment.isoformat()}{sign}{hours:02}:{rest:02}")
    assert has_zone
    exact = shifted(moment.replace(tzinfo=UTC), timedelta(minutes=-minutes))
    assert parsed == exact
    assert EARLIEST <= parsed <= LATEST
