"""What the other tests of BetterDB stand on: its own package writes, evicts and recalls here."""

from typing import Any

import pytest
from betterdb_store import START_MS, Betterdb, exact

pytest.importorskip("betterdb_agent_memory")


def test_its_own_capacity_check_evicts_and_counts(client: Any) -> None:
    betterdb = Betterdb(client, max_items=1)
    stays = betterdb.remember("worth more", importance=0.9, agent_id="a", thread_id="t1")
    betterdb.remember("worth less", importance=0.1, agent_id="a", thread_id="t1")
    betterdb.remember("a write without a scope is never capped")
    everything = betterdb.everything()
    assert stays in everything["get"]
    assert [item.content for item in everything["list"].items] == [
        "a write without a scope is never capped",
        "worth more",
    ]
    assert betterdb.run(betterdb.store.stats()).evictions == 1


def test_a_scope_counts_what_has_the_fields_given(client: Any) -> None:
    betterdb = Betterdb(client, max_items=1)
    first = betterdb.remember("first", importance=0.9, agent_id="a", thread_id="t1")
    betterdb.remember("second", importance=0.8, agent_id="a", thread_id="t2")
    betterdb.remember("third", importance=0.1, agent_id="a")
    assert list(betterdb.everything()["get"]) == [first]


def test_it_writes_vectors_and_times_to_live(client: Any) -> None:
    betterdb = Betterdb(client)
    memory_id = betterdb.remember("short-lived", ttl=3600, tags=["x", "Y"])
    ((fields, ends),) = exact(client).values()
    assert len(fields[b"vector"]) == 32
    assert fields[b"tags"] == b"x,Y"
    assert fields[b"created_at"] == str(START_MS + 1000).encode()
    assert ends > 0
    (hit,) = betterdb.run(betterdb.store.recall("short-lived", tags=["y"]))
    assert hit.item.id == memory_id
