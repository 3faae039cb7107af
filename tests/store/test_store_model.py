"""The store does what a list of items in plain Python would do, whatever the order of calls."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from invariants import assert_compacted, rows_of

from memlab.items import (
    EventId,
    EventRef,
    MemoryItem,
    MemoryKind,
    MemoryProvenance,
    is_load_bearing_memory,
)
from memlab.store import SqliteMemoryStore

IDS = st.integers(0, 11).map("m{}".format)
TAGGED = ["rejected-path", "research"]
TAGS = st.lists(
    st.sampled_from([*TAGGED, "failed", "merged", "rejected-paths", "researched", "ü", '"', ""]),
    max_size=3,
)
TEXT = st.text(max_size=8)
PROVENANCES = st.builds(
    MemoryProvenance,
    st.none() | st.builds(EventRef, st.just(EventId("v1")), st.integers(0, 9)),
    st.just("agent"),
    source_task_ref=st.sampled_from(["issue:#1", "issue:#2"]),
    confidence=st.floats(0, 1),
    created_at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds carry no zone by contract
    supersedes=st.lists(IDS, max_size=2).map(tuple),
    evidence_refs=st.lists(IDS, max_size=2).map(tuple),
)
ITEMS = st.builds(
    MemoryItem,
    IDS,
    st.sampled_from(MemoryKind),
    TEXT,
    TEXT,
    PROVENANCES,
    TAGS.map(tuple),
    st.none() | IDS,
)


class StoreAgainstList(RuleBasedStateMachine):
    """Runs the same calls on a store and on a dict, which keeps the order of insertion."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SqliteMemoryStore(":memory:")
        self.model: dict[str, MemoryItem] = {}

    def teardown(self) -> None:
        self.store.close()

    @rule(item=ITEMS)
    def put(self, item: MemoryItem) -> None:
        assert self.store.put(item) is item
        self.model[item.memory_id] = item

    @rule(old=IDS, new=IDS)
    def supersede(self, old: str, new: str) -> None:
        if {old, new} <= self.model.keys():
            self.model[old] = replace(self.model[old], superseded_by=new)
            assert self.store.supersede(old, by_memory_id=new) == self.model[old]
        else:
            with pytest.raises(KeyError, match=old if new in self.model else new):
                self.store.supersede(old, by_memory_id=new)

    @rule(keep_recent=st.integers(0, 8) | st.just(10**30))
    def compact_episodic(self, keep_recent: int) -> None:
        prunable = [
            item.memory_id
            for item in self.model.values()
            if item.is_active and not is_load_bearing_memory(item)
        ]
        surplus = prunable[: max(0, len(prunable) - keep_recent)]
        before = rows_of(self.store.connection)
        assert self.store.compact_episodic(keep_recent) == len(surplus)
        assert_compacted(before, rows_of(self.store.connection), keep_recent)
        for memory_id in surplus:
            del self.model[memory_id]

    @rule(memory_id=IDS)
    def get(self, memory_id: str) -> None:
        assert self.store.get(memory_id) == self.model.get(memory_id)

    @invariant()
    def lists_agree(self) -> None:
        active = tuple(item for item in self.model.values() if item.is_active)
        assert self.store.list_active() == active
        for kind in MemoryKind:
            assert self.store.list_active(kind=kind) == tuple(i for i in active if i.kind is kind)
        tagged = {tag: tuple(i for i in active if tag in i.tags) for tag in TAGGED}
        assert self.store.list_rejected_paths() == tagged["rejected-path"]
        assert self.store.list_research_notes() == tagged["research"][::-1]


TestStoreAgainstList = StoreAgainstList.TestCase
TestStoreAgainstList.settings = settings(stateful_step_count=30)
