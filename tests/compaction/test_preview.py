"""A preview is what the store would do."""

from datetime import UTC, datetime
from typing import Any

import pandas as pd
from frames import ROWS_OF_ANY_KIND, frame_of, make_frame, row
from hypothesis import given
from hypothesis import strategies as st

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
    none, every = cap_effect(frame, 0), cap_effect(frame, 10)
    assert (none.after.prunable_by_memories, none.oldest_kept, none.newest_kept) == (0, None, None)
    assert (every.deleted, every.newest_deleted) == (Size(0, 0), None)


def store_of(frame: pd.DataFrame) -> SqliteMemoryStore:
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
