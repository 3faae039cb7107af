"""The same writes through BetterDB's own package and through a lifecycle store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from betterdb_store import START_MS, Betterdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import RedisServer

from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.lifecycle import LifecycleStore
from memlab.policies import ValueCap

pytest.importorskip("betterdb_agent_memory")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

writes = st.lists(
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
        st.integers(0, 20),
    ),
    max_size=25,
)


def moment(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writes, st.integers(0, 4))
def test_any_writes_leave_what_betterdbs_own_code_leaves(
    one_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], cap: int
) -> None:
    client = one_redis.client()
    client.flushall()
    betterdb = Betterdb(client, max_items=cap)
    path = tmp_path_factory.mktemp("betterdb") / "memory.db"
    now = START_MS
    store = LifecycleStore(
        path, capacity=ValueCap(cap), archive=False, clock=lambda: moment(betterdb.store.now)
    )
    store.connection.execute("PRAGMA synchronous = OFF")
    names: dict[str, str] = {}
    for number, (action, belongs, tags, importance, later, which) in enumerate(drawn):
        betterdb.store.now += later + 1000
        now = betterdb.store.now
        if action == "recall":
            live = sorted(names.items(), key=lambda pair: pair[1])
            if live:
                theirs, ours = live[which % len(live)]
                key = f"{betterdb.name}:mem:{theirs}"
                client.hset(key, "last_accessed_at", str(now))
                client.hincrby(key, "access_count", 1)
                assert store.touch([ours], now=moment(now)) == 1
            continue
        theirs = betterdb.remember(f"text {number}", tags=tags, importance=importance, **belongs)
        names[theirs] = f"m{number}"
        provenance = MemoryProvenance(
            None, "betterdb", source_task_ref="-", created_at=moment(betterdb.store.now)
        )
        written = MemoryItem(
            f"m{number}", MemoryKind.EPISODIC, f"text {number}", "", provenance, tuple(tags)
        )
        store.put(written, importance=importance, **belongs)
        left = {key.rpartition(b":")[2].decode() for key in client.scan_iter(match="*:mem:*")}
        names = {theirs: ours for theirs, ours in names.items() if theirs in left}
        assert {each.memory_id for each in store.list_active()} == set(names.values())
    assert store.stats().enforcement_failures == 0
    evicted = client.hget(f"{betterdb.name}:__mem_stats", "evictions")
    assert store.stats().evicted.get("lowest-value", 0) == int(evicted or 0)
    store.close()
