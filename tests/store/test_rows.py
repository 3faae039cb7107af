"""Rows exactly as SQLite stores them."""

import sqlite3
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st
from stores import ANY_VALUE, RawText

from memlab.store.database import exact
from memlab.store.rows import as_bytes, as_json, fingerprint_of, from_json, quoted


def stored(value: object) -> object:
    """The value as `exact` reads it back."""
    with closing(sqlite3.connect(":memory:")) as connection, exact(connection):
        if isinstance(value, RawText):
            query, bound = "SELECT CAST(? AS TEXT)", value.data
        else:
            query, bound = "SELECT ?", value
        return connection.execute(query, (bound,)).fetchone()[0]


@given(values=st.lists(ANY_VALUE, min_size=1, max_size=4))
def test_signals_come_back_from_json_with_their_types(values: list[object]) -> None:
    names = [f"column {number}" for number in range(len(values))]
    exactly = [stored(value) for value in values]
    with closing(sqlite3.connect(":memory:")) as connection, exact(connection):
        for (expression, bound), value in zip(
            from_json(as_json(names, exactly)).values(), exactly, strict=True
        ):
            (back,) = connection.execute(f"SELECT {expression}", (bound,)).fetchone()
            assert (type(back), back) == (type(value), value)


@given(one=st.lists(ANY_VALUE, max_size=3), other=st.lists(ANY_VALUE, max_size=3))
def test_rows_share_a_fingerprint_when_bytes_and_types_agree(
    one: list[object], other: list[object]
) -> None:
    def described(values: list[object]) -> list[tuple[type, bytes]]:
        return [(type(value), repr(value).encode()) for value in map(stored, values)]

    same = described(one) == described(other)
    assert same is (fingerprint_of(map(stored, one)) == fingerprint_of(map(stored, other)))


def test_what_looks_alike_has_different_fingerprints() -> None:
    values = [None, 1, 1.0, "1", b"1", "", b"", 0, 0.0, "1.0"]
    prints = {fingerprint_of([stored(value)]) for value in values}
    assert len(prints) == len(values)
    assert fingerprint_of(map(stored, ["ab", "c"])) != fingerprint_of(map(stored, ["a", "bc"]))


def test_a_value_of_any_type_can_be_looked_up() -> None:
    assert [as_bytes(each) for each in (None, 7, b"b", bytearray(b"t"))] == [None, b"7", b"b", b"t"]


def test_a_column_may_have_any_name() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        name = 'a "b"; --'
        connection.execute(f"CREATE TABLE t ({quoted(name)})")
        assert connection.execute("SELECT name FROM pragma_table_info('t')").fetchone() == (name,)
