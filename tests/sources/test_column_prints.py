"""Fingerprints that reading tells, against those of records."""

import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import ANY_VALUE, Row, row, row_lists, run_sql, write_rows, write_signals

import memlab
from memlab.sources.abilities import Printing
from memlab.sources.memory_items import MemoryItems
from memlab.sources.tables import FINGERPRINT
from memlab.store.database import CREATE_TABLE
from memlab.store.records import fingerprint_of, quoted


def told(path: Path) -> dict[int, str | None]:
    """What reading tells by position."""
    with MemoryItems(path).reading() as reader:
        assert isinstance(reader, Printing)
        tables = [rows.table for rows in reader.printed(with_body=False)]
    return {
        each["position"]: each.get(FINGERPRINT) for table in tables for each in table.to_pylist()
    }


def of_records(path: Path, positions: Iterable[int]) -> dict[int, str]:
    """What the records of rows have, row by row."""
    with MemoryItems(path).reading() as reader:
        return {key: fingerprint_of(record) for key, record in reader.records(positions)}


NOW = datetime(2026, 7, 1, tzinfo=UTC)
ODD = st.one_of(
    st.text(max_size=6),
    st.text(alphabet='"\\\n\r\t\b\f\x1d\x1e\x7fü%{}u01f', max_size=8),
    st.sampled_from(["\\u001f", "\\u001e", "\x1e", "\0", "%s", "{0}", "\u2028", "👩‍🚀"]),
)
MARKS = ("\x1e", "\x1f")
LINKS = ("source_event_id", "source_sequence", "source_task_ref", "superseded_by")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_reading_tells_is_the_fingerprint_of_the_record(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(["a", "b%s", 'c"d', "\\"]), unique=True))
    rows = [
        row(f"m{number}{data.draw(ODD)}")
        | {name: data.draw(ODD) for name in ("title", "body", "authored_by", "source_task_ref")}
        | {name: data.draw(ODD) for name in data.draw(st.sets(st.sampled_from(LINKS)))}
        | {"confidence": data.draw(st.sampled_from([0.5, 1.0, -0.0, 0.1 + 0.2, 1e300, 7.0]))}
        | {quoted(name): data.draw(ANY_VALUE) for name in names}
        for number in range(data.draw(st.integers(1, 6)))
    ]
    default = data.draw(st.sampled_from(["", " DEFAULT 'x'"]))
    more = "".join(f", {quoted(name)}{default}" for name in names)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        run_sql(path, CREATE_TABLE.replace("superseded_by TEXT", f"superseded_by TEXT{more}"))
        write_rows(path, rows)
        found = told(path)
        known = {position: each for position, each in found.items() if each is not None}
        assert known == of_records(path, known)
        marked = any(
            mark in str(value) for each in rows for value in each.values() for mark in MARKS
        )
        assert marked or known == found


@settings(max_examples=60, deadline=None)
@given(rows=row_lists(max_size=6))
def test_of_odd_rows_it_tells_nothing_or_the_same(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        run_sql(path, CREATE_TABLE.replace("NOT NULL", ""))
        found = told(write_rows(path, rows))
        known = {position: each for position, each in found.items() if each is not None}
        assert known == of_records(path, known)


def test_the_same_is_told_of_rows_that_are_not_in_the_order_of_their_ids(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1"), row("m2"), row("m3")])
    run_sql(path, "UPDATE memory_items SET rowid = rowid + 10 WHERE memory_id = 'm1'")
    found = told(path)
    assert list(found) == [2, 3, 11]
    assert found == of_records(path, found)


def test_the_same_is_told_on_both_sides_of_a_long_gap(tmp_path: Path) -> None:
    large = [row(f"m{n}", body="x" * 40_000, rowid=n) for n in (1, *range(900, 1_300))]
    path = write_rows(tmp_path / "memory.db", large)  # so large that a gap is a whole part of it
    found = told(path)
    assert list(found) == [1, *range(900, 1_300)]
    assert found == of_records(path, found)


@pytest.mark.parametrize("moods", [(-0.0, 0.0, 1.0), (0.0, -0.0, 1.0)])
def test_a_zero_below_zero_is_told_from_zero(tmp_path: Path, moods: tuple[float, ...]) -> None:
    path = tmp_path / "memory.db"
    run_sql(path, CREATE_TABLE.replace("superseded_by TEXT", "superseded_by TEXT, mood"))
    write_rows(path, [row(f"m{number}", mood=mood) for number, mood in enumerate(moods)])
    found = told(path)
    assert found == of_records(path, found)


def test_nothing_is_told_where_signals_belong_to_records(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    write_signals(write_rows(path, [row("m1")]), "m1", importance=0.5)
    assert set(told(path).values()) == {None}


def test_nothing_is_told_of_text_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    run_sql(path, "PRAGMA encoding = 'UTF-16le'", CREATE_TABLE)
    write_rows(path, [row("m1")])
    assert set(told(path).values()) == {None}


def test_a_plan_is_the_same_whether_reading_tells_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows(tmp_path / "memory.db", [row(f"m{n}", title=f'"{n}"\n') for n in range(30)])
    made = [memlab.plan(path, memlab.KeepRecent(5), now=NOW)]
    monkeypatch.setattr("memlab.sources.column_prints.can_be_printed", lambda layout: False)
    made.append(memlab.plan(path, memlab.KeepRecent(5), now=NOW))
    assert made[0] == made[1]
    assert len({each.fingerprint for each in made[0].memories}) == 25
