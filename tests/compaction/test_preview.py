"""A preview is what the store would do."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from frames import ROWS_OF_ANY_KIND, frame_of, make_frame, mixed_frame, row
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from memlab import columns as c
from memlab.compaction.effects import cap_effect, survivors
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance, Size
from memlab.store import SqliteMemoryStore

NOW = datetime(2025, 3, 1, tzinfo=UTC)


def test_a_cap_deletes_the_oldest_and_says_where_it_cuts() -> None:
    frame = make_frame("a", row("d", **{c.KIND: "semantic"}), "b", "c", "e")
    effect = cap_effect(frame, 2)
    created = list(frame[c.CREATED_AT])
    assert effect.deleted == Size(2, 20)
    assert (effect.before.memories, effect.after.memories) == (5, 3)
    assert effect.after.load_bearing == Size(1, 10)
    assert effect.after.prunable_by_memories == 2 / 3
    assert effect.newest_deleted == created[2]
    assert (effect.oldest_kept, effect.newest_kept) == (created[3], created[4])


@pytest.mark.parametrize(("cap", "prunable"), [(0, 0), (10, None)])
def test_a_cap_of_zero_leaves_none_and_one_above_the_backlog_changes_nothing(
    cap: int, prunable: float | None
) -> None:
    frame, same = mixed_frame(), mixed_frame()
    effect = cap_effect(frame, cap)
    assert pickle.loads(pickle.dumps(effect)) == effect
    assert_frame_equal(frame, same)
    if prunable is None:
        assert (effect.deleted, effect.before) == (Size(0, 0), effect.after)
        assert effect.newest_deleted is None
    else:
        assert effect.after.prunable_by_memories == prunable
        assert (effect.oldest_kept, effect.newest_kept) == (None, None)
    assert "before" in str(effect)


def store_of(frame: pd.DataFrame) -> SqliteMemoryStore:
    """A store that holds the frame's rows in the same order."""
    store = SqliteMemoryStore(":memory:")
    provenance = MemoryProvenance(None, "agent", source_task_ref="issue:#1")
    for one in frame.to_dict("records"):
        by = one[c.SUPERSEDED_BY] if isinstance(one[c.SUPERSEDED_BY], str) else None
        kind = MemoryKind(one[c.KIND])
        store.put(MemoryItem(one[c.MEMORY_ID], kind, "t", "b", provenance, one[c.TAGS], by))
    return store


@given(rows=ROWS_OF_ANY_KIND, keep_recent=st.integers(0, 12))
def test_the_preview_is_what_the_store_would_do(
    rows: list[dict[str, Any]], keep_recent: int
) -> None:
    frame = frame_of(rows)
    with store_of(frame) as store:
        removed = store.compact_episodic(keep_recent)
        left = {item.memory_id for item in store.list_active()}
    kept = survivors(frame, keep_recent)
    assert set(kept.loc[kept[c.ACTIVE], c.MEMORY_ID]) == left
    assert cap_effect(frame, keep_recent).deleted.memories == removed == len(frame) - len(kept)


def test_newest_is_by_position_whatever_the_order_of_the_frame_and_its_index() -> None:
    frame = make_frame("a", "b", "c").iloc[[2, 0, 1]]
    assert set(survivors(frame, 1)[c.MEMORY_ID]) == {"c"}
    assert list(survivors(mixed_frame().iloc[[1, 3, 4]], 0).index) == [1, 4]
