"""The same writes and recalls through BetterDB's own package and through a lifecycle store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from betterdb_store import Betterdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from owners import needs_search
from servers import RedisServer

import memlab
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.lifecycle import LifecycleStore
from memlab.policies import ValueCap, value_score

pytest.importorskip("betterdb_agent_memory")
pytestmark = needs_search

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "recall"]),
        st.fixed_dictionaries(
            {
                "agent_id": st.sampled_from([None, "a", "A", "b"]),
                "thread_id": st.sampled_from([None, None, "t", "u"]),
                "namespace": st.sampled_from([None, None, "n"]),
            }
        ),
        st.lists(st.sampled_from(["x", "X", "y", "z"]), max_size=3),
        st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
        st.sampled_from([0, 3_600_000, 7 * 86_400_000, -40 * 86_400_000]),
    ),
    max_size=25,
)


def moment(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


class Both:
    """BetterDB on a server and a lifecycle store on a file, told the same."""

    def __init__(self, client: Any, path: Any, cap: int) -> None:
        self.client = client
        self.theirs = Betterdb(client, max_items_per_scope=cap)
        self.path = path
        self.ours = LifecycleStore(
            path, capacity=ValueCap(cap), archive=False, clock=lambda: moment(self.theirs.store.now)
        )
        self.ours.connection.execute("PRAGMA synchronous = OFF")
        self.names: dict[str, str] = {}
        """Of each memory that is there: our name by theirs."""
        self.written = 0

    def write(self, tags: list[str], importance: float, belongs: dict[str, Any]) -> None:
        name = f"m{self.written}"
        self.written += 1
        made = self.theirs.remember(f"of {name}", tags=tags, importance=importance, **belongs)
        self.names[made] = name
        written = MemoryProvenance(
            None, "betterdb", source_task_ref="-", created_at=moment(self.theirs.store.now)
        )
        item = MemoryItem(name, MemoryKind.EPISODIC, f"of {name}", "", written, tuple(tags))
        self.ours.put(item, importance=importance, **belongs)
        left = set(self.theirs.ids())
        self.names = {theirs: ours for theirs, ours in self.names.items() if theirs in left}
        assert {each.memory_id for each in self.ours.list_active()} == set(self.names.values())

    def recall(self, words: str, tags: list[str], belongs: dict[str, Any]) -> None:
        """Recall the best that matches, which is an access."""
        from betterdb_agent_memory.composite_score import similarity_from_distance

        now, rows = moment(self.theirs.store.now), memlab.load(self.path).set_index("memory_id")
        found = self.theirs.store.recall(words, k=1, threshold=2, tags=tags, **belongs)
        for hit in self.theirs.run(found):
            name = self.names[hit.item.id]
            used = max(rows.loc[name, ["created_at", "last_accessed_at"]])
            likeness = similarity_from_distance(hit.similarity)
            ours = 0.6 * likeness + 0.4 * value_score(now - used, rows.loc[name, "importance"])
            assert ours == pytest.approx(hit.score)
            assert self.ours.touch([name], now=now) == 1


@pytest.mark.long
@settings(
    max_examples=2 * settings().max_examples,  # 200 in CI
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps, st.integers(0, 4))
def test_any_writes_and_recalls_leave_and_rank_what_betterdbs_own_code_does(
    searching: RedisServer, tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], cap: int
) -> None:
    with searching.client() as client:
        client.flushall()
        both = Both(client, tmp_path_factory.mktemp("betterdb") / "memory.db", cap)
        for number, (action, belongs, tags, importance, later) in enumerate(drawn):
            both.theirs.store.now += later + 1000
            if action == "recall":
                both.recall(f"of m{number}", tags[:1], belongs)
            else:
                both.write(tags, importance, belongs)
        told = both.ours.stats()
        both.ours.close()
        assert told.enforcement_failures == 0
        evicted = client.hget(f"{both.theirs.name}:__mem_stats", "evictions")
        assert told.evicted.get("lowest-value", 0) == int(evicted or 0)
