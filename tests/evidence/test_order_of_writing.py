"""What a store has held, deleted memories among them, as one frame in the order of writing."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes
from hypothesis import given
from hypothesis import strategies as st

from memlab import columns as c
from memlab.evidence.past import Deletion, gaps_of, past_of, present_rows
from memlab.evidence.references import find_references
from memlab.growth import growth_curve

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Life:
    """A store that numbers its memories as SQLite does, and remembers the order of writing."""

    def __init__(self) -> None:
        self.written = make_episodes(0)
        self.there: list[int] = []
        self.deleted: list[list[int]] = []
        self.positions: list[int] = []

    def write(self, count: int) -> None:
        for _ in range(count):
            highest = max((self.positions[each] for each in self.there), default=0)
            self.there.append(len(self.positions))
            self.positions.append(highest + 1)

    def delete(self, chosen: list[int]) -> None:
        self.deleted.append(chosen)
        self.there = [each for each in self.there if each not in chosen]

    def frame(self, chosen: list[int]) -> pd.DataFrame:
        every = make_episodes(len(self.positions))
        every[c.POSITION] = np.array(self.positions, dtype=np.int64)
        part = every.iloc[chosen]
        return part.sort_values(c.POSITION).reset_index(drop=True)

    def past(self) -> pd.DataFrame:
        deletions = [
            Deletion(NOON + timedelta(days=day), self.frame(chosen))
            for day, chosen in enumerate(self.deleted)
        ]
        return past_of(self.frame(self.there), deletions)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 6)),
        st.tuples(st.just("delete"), st.sets(st.integers(0, 30), max_size=8)),
        st.tuples(st.just("newest"), st.integers(1, 4)),
    ),
    max_size=12,
)


@given(steps)
def test_a_past_is_in_the_order_of_writing_whatever_was_deleted(
    steps: list[tuple[str, object]],
) -> None:
    life = Life()
    for what, how in steps:
        if what == "write":
            life.write(how)
        elif what == "newest":
            life.delete(life.there[-how:])
        else:
            life.delete([each for each in life.there if each in how])
    past = life.past()
    whole = make_episodes(len(life.positions))
    assert past[c.MEMORY_ID].tolist() == whole[c.MEMORY_ID].tolist()
    assert past[c.POSITION].is_monotonic_increasing
    assert past[c.POSITION].is_unique
    still = present_rows(past)
    assert sorted(still[c.MEMORY_ID]) == sorted(life.frame(life.there)[c.MEMORY_ID])
    gone = past[past[c.DELETED_AT].notna()]
    assert not gone[c.ACTIVE].any()
    assert not gone[c.PRUNABLE].any()


def test_what_was_never_compacted_is_its_own_past() -> None:
    frame = make_episodes(4)
    past = past_of(frame, [])
    pd.testing.assert_frame_equal(past.drop(columns=c.DELETED_AT), frame)
    assert past[c.DELETED_AT].isna().all()


def test_what_was_put_back_is_there_once_and_as_present() -> None:
    frame = make_episodes(4)
    past = past_of(frame, [Deletion(NOON, frame.iloc[:2])])
    assert past[c.MEMORY_ID].tolist() == frame[c.MEMORY_ID].tolist()
    assert past[c.DELETED_AT].isna().all()


def test_what_was_deleted_twice_is_there_once_with_the_later_moment() -> None:
    frame = make_episodes(3)
    later = NOON + timedelta(days=1)
    past = past_of(
        frame.iloc[1:], [Deletion(NOON, frame.iloc[:1]), Deletion(later, frame.iloc[:1])]
    )
    assert past[c.DELETED_AT].tolist()[0] == later
    assert len(past) == 3


def test_of_two_with_one_position_the_one_that_was_deleted_came_first_whatever_the_clock() -> None:
    frame = make_episodes(3)
    late, early = frame.iloc[2:].copy(), frame.iloc[:1].copy()
    late[c.POSITION], early[c.POSITION] = 1, 1
    past = past_of(early, [Deletion(NOON, late)])
    assert past[c.MEMORY_ID].tolist() == [late[c.MEMORY_ID].iloc[0], early[c.MEMORY_ID].iloc[0]]
    assert past[c.POSITION].tolist() == [1, 2]


def test_an_id_that_comes_again_is_the_newest_before_the_reference() -> None:
    frame = make_episodes(4)
    frame[c.MEMORY_ID] = pd.Series(["a", "b", "a", "d"], dtype=frame[c.MEMORY_ID].dtype)
    cells = np.empty(4, dtype=object)
    cells[:] = [(), ("a",), (), ("a",)]
    frame[c.EVIDENCE_REFS] = cells
    found = find_references(frame)
    assert found[[c.TARGET_POSITION, c.AT_POSITION]].to_numpy().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("kept", "gaps"), [([0, 1, 2, 3], (0, 0, None)), ([1, 3], (2, 3, 3)), ([], (0, 0, None))]
)
def test_positions_that_are_free_were_deleted(
    kept: list[int], gaps: tuple[int, int, int | None]
) -> None:
    assert gaps_of(make_episodes(4).iloc[kept]) == gaps


def test_a_store_that_does_not_number_one_by_one_shows_no_gaps() -> None:
    frame = make_episodes(2)
    frame[c.POSITION] = [5, 10**15]
    assert gaps_of(frame) == (0, 0, None)


def test_growth_shows_what_was_deleted_as_a_step_down() -> None:
    frame = make_episodes(10)
    first, last = frame[c.CREATED_AT].iloc[[0, -1]]
    moment = (last + pd.Timedelta(hours=30)).to_pydatetime()
    curve = growth_curve(past_of(frame.iloc[6:], [Deletion(moment, frame.iloc[:6])]), freq="h")
    assert curve[c.PRUNABLE].max() == 10
    assert curve[c.PRUNABLE].iloc[-1] == 4
    assert curve.loc[curve.index < moment, c.PRUNABLE].iloc[-1] == 10
    assert curve.attrs[c.CAVEAT] == ""
    assert first < moment
