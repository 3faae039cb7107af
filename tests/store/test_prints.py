"""Fingerprints that are reckoned in pieces are those of the whole records."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import ANY_VALUE, Row, row, row_lists, run_sql, write_rows, write_signals

from memlab.store import large, prints
from memlab.store.database import CREATE_TABLE
from memlab.store.prints import prints_at
from memlab.store.records import fingerprint_of, layout_of, quoted, records_at, without_signals

TEXTS = st.text(st.sampled_from('aé€😀"\\\x00\n\x1f '), max_size=60)


@given(
    rows=row_lists(max_size=6),
    data=st.data(),
    encoding=st.sampled_from(["UTF-8", "UTF-16le", "UTF-16be"]),
    signals=st.booleans(),
)
def test_rows_read_in_pieces_have_the_fingerprints_of_their_records(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Row],
    data: st.DataObject,
    encoding: str,
    signals: bool,
) -> None:
    path = tmp_path_factory.mktemp("random") / "memory.db"
    extended = [
        each | {"body": data.draw(TEXTS), quoted('a "mood"'): data.draw(ANY_VALUE)} for each in rows
    ]
    table = CREATE_TABLE.replace("superseded_by TEXT", "superseded_by TEXT, 'a \"mood\"'")
    run_sql(path, f"PRAGMA encoding = '{encoding}'", table)
    write_rows(path, extended)
    for each in rows[:2] if signals else []:
        write_signals(path, str(each["memory_id"]), importance=0.5, namespace="é" * 60)
    with closing(sqlite3.connect(path)) as connection, pytest.MonkeyPatch.context() as patch:
        patch.setattr(prints, "_LARGE", 50)
        patch.setattr(large, "_PIECE", 7)
        layout = layout_of(connection)
        positions = [p for (p,) in connection.execute("SELECT rowid FROM memory_items")]
        records = list(records_at(connection, layout, positions))
        whole = [(position, fingerprint_of(record)) for position, record in records]
        assert list(prints_at(connection, layout, positions)) == whole
        lasting = [(p, fingerprint_of(without_signals(record))) for p, record in records]
        assert list(prints_at(connection, layout._replace(signals=()), positions)) == lasting


def test_a_large_text_that_is_not_utf_8_has_the_fingerprint_of_its_record(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", [row("m1")])
    run_sql(path, "UPDATE memory_items SET body = CAST(zeroblob(300000) || x'ff' AS TEXT)")
    with closing(sqlite3.connect(path)) as connection:
        layout = layout_of(connection)
        ((_, record),) = records_at(connection, layout, [1])
        assert b'{"text":"' in record
        assert list(prints_at(connection, layout, [1, 2])) == [(1, fingerprint_of(record))]
