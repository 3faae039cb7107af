"""Long lists held as columns are the lists that they were made of."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.compaction import long_lists as columns
from memlab.compaction.long_lists import Listed, in_chunks
from memlab.compaction.planned import KeptMemory

VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.text("aé😀", max_size=3),
    st.sampled_from(["the same", "another"]),
    st.none(),
    st.booleans(),
)


@st.composite
def rows(draw: st.DrawFn) -> list[KeptMemory]:
    """Rows of which a column may be of one type or of several."""
    count = draw(st.integers(0, 12))
    kinds: list[Any] = [draw(st.sampled_from([VALUES, st.integers(), st.text()])) for _ in range(3)]
    drawn = [draw(st.lists(kind, min_size=count, max_size=count)) for kind in kinds]
    return list(map(KeptMemory, *drawn))


@given(rows=rows(), at_once=st.integers(1, 5), few=st.sampled_from([2, 256]))
def test_what_is_held_as_columns_is_what_was_given(
    rows: list[KeptMemory], at_once: int, few: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "AT_ONCE", at_once)
        patch.setattr(columns, "_FEW", few)
        held = Listed(KeptMemory, in_chunks(iter(rows)))
        assert bool(held) == bool(rows)
        assert list(held) == rows
        assert len(held) == len(rows)
        assert [held[place] for place in range(-len(rows), len(rows))] == rows + rows
        assert list(map(type, held[0] if rows else ())) == list(map(type, rows[0] if rows else ()))
        assert held[1:-1] == tuple(rows[1:-1])
        assert held[:2] + held[-2:] == tuple(rows[:2] + rows[-2:])
        assert held == Listed(KeptMemory, in_chunks(held)) == pickle.loads(pickle.dumps(held))
        assert held == tuple(rows)
        assert hash(held) == hash(tuple(rows))
        assert held != tuple(rows[:-1]) or not rows


def test_no_row_is_there_beyond_the_last() -> None:
    rows = [KeptMemory(number, f"m{number}", "") for number in range(5000)]
    held = Listed(KeptMemory, in_chunks(rows))
    assert repr(held) == "<5,000 of KeptMemory>"
    for place in (5000, -5001):
        with pytest.raises(IndexError):
            held[place]
    assert len({held, tuple(rows)}) == 1
