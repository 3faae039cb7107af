"""The lifecycle store agrees with BetterDB and odek on the same writes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memlab
from memlab.lifecycle import LifecycleStore
from memlab.policies import NearDuplicate, ValueCap, value_score
from memlab.policies.text_index import IndexedText, TextIndex
from tests.lifecycle.memories import HOUR, START, item
from tests.support.betterdb_store import Betterdb
from tests.support.owners import SEARCHING_SERVER, needs_search
from tests.support.properties import examples
from tests.support.servers import RedisServer, redis_server
from tests.support.stores import run_sql

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
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


class Both:
    """BetterDB on a server and a lifecycle store on a file, with the same calls."""

    def __init__(self, client: Any, path: Any, cap: int) -> None:
        self.client = client
        self.theirs = Betterdb(client, max_items_per_scope=cap)
        self.path = path
        self.ours = LifecycleStore(
            path, capacity=ValueCap(cap), archive=False, clock=lambda: moment(self.theirs.store.now)
        )
        self.ours.connection.execute("PRAGMA synchronous = OFF")
        self.names: dict[str, str] = {}
        """Id in the lifecycle store by id in BetterDB, of each memory present."""
        self.written = 0

    def write(self, tags: list[str], importance: float, scope: dict[str, Any]) -> None:
        name = f"m{self.written}"
        self.written += 1
        memory_id = self.theirs.remember(f"of {name}", tags=tags, importance=importance, **scope)
        self.names[memory_id] = name
        mine = item(name, f"of {name}", tags=tuple(tags), at=moment(self.theirs.store.now))
        self.ours.put(mine, importance=importance, **scope)
        remaining = set(self.theirs.ids())
        self.names = {theirs: ours for theirs, ours in self.names.items() if theirs in remaining}
        assert {memory.memory_id for memory in self.ours.list_active()} == set(self.names.values())

    def recall(self, query: str, tags: list[str], scope: dict[str, Any]) -> None:
        """Recall the best match, which counts as an access."""
        from betterdb_agent_memory.composite_score import similarity_from_distance

        now = moment(self.theirs.store.now)
        rows = memlab.load(self.path).set_index("memory_id")
        recalled = self.theirs.store.recall(query, k=1, threshold=2, tags=tags, **scope)
        for hit in self.theirs.run(recalled):
            name = self.names[hit.item.id]
            last_used = max(rows.loc[name, ["created_at", "last_accessed_at"]])
            similarity = similarity_from_distance(hit.similarity)
            value = value_score(now - last_used, rows.loc[name, "importance"])
            score = 0.6 * similarity + 0.4 * value
            assert score == pytest.approx(hit.score)
            assert self.ours.touch([name], now=now) == 1


@pytest.fixture(scope="module")
def searching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    pytest.importorskip("betterdb_agent_memory")
    assert SEARCHING_SERVER
    with redis_server(tmp_path_factory.mktemp("redis"), program=SEARCHING_SERVER) as server:
        yield server


@needs_search
@pytest.mark.long
@settings(
    max_examples=examples(50),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps, st.integers(0, 4))
def test_lifecycle_ranks_and_evicts_like_betterdb(
    searching: RedisServer, tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], cap: int
) -> None:
    with searching.client() as client:
        client.flushall()
        both = Both(client, tmp_path_factory.mktemp("betterdb") / "memory.db", cap)
        for number, (action, scope, tags, importance, later) in enumerate(drawn):
            both.theirs.store.now += later + 1000
            if action == "recall":
                both.recall(f"of m{number}", tags[:1], scope)
            else:
                both.write(tags, importance, scope)
        stats = both.ours.stats()
        both.ours.close()
        assert stats.enforcement_failures == 0
        evictions = client.hget(f"{both.theirs.name}:__mem_stats", "evictions")
        expected = 0 if evictions is None else int(evictions)
        assert stats.evicted.get("lowest-value", 0) == expected


# odek deletes repeats first, then expired episodes, then the oldest above the cap

TTL = 5 * HOUR
CAP = 4
ALIKE = NearDuplicate(0.8)
TEXTS = ("port taken", "port taken again", "port port taken", "tea in shade", "tea", "")
NEWEST = ValueCap(CAP, recency=1.0, importance=0.0, scope=())
"""Cap on the newest memories, if none is touched."""


class Episode(NamedTuple):
    text: str
    written: datetime
    trusted: bool


class Odek:
    """A model of odek's episodes after its documentation and tests."""

    def __init__(self) -> None:
        self.episodes: dict[str, Episode] = {}

    def write(self, name: str, text: str, now: datetime, *, trusted: bool) -> None:
        before = self.episodes.pop(name, None)
        rows = [
            IndexedText(other, episode.text, "", (episode.written, 0))
            for other, episode in self.episodes.items()
        ]
        alike = TextIndex(ALIKE, lambda: rows).most_similar(name, text, "")
        if alike and not trusted and self.episodes[alike].trusted:
            if before is not None:
                self.episodes[name] = before
            self.expire(now)
            return
        if alike:
            del self.episodes[alike]
        self.episodes[name] = Episode(text, now, trusted)
        self.expire(now)
        newest = sorted(self.episodes.items(), key=lambda pair: pair[1].written, reverse=True)
        self.episodes = dict(newest[:CAP])

    def expire(self, now: datetime) -> None:
        fresh = {
            title: episode
            for title, episode in self.episodes.items()
            if episode.written >= now - TTL
        }
        self.episodes = fresh


def opened(path: Any, clock: list[datetime]) -> LifecycleStore:
    store = LifecycleStore(
        path, capacity=NEWEST, duplicates=ALIKE, archive=False, clock=lambda: clock[0]
    )
    store.connection.execute("PRAGMA synchronous = OFF")
    return store


written = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "reopen", "other", "delete"]),
        st.integers(0, 5),
        st.sampled_from(TEXTS),
        st.booleans(),
        st.sampled_from([timedelta(microseconds=1), HOUR, HOUR, 3 * HOUR, TTL]),
    ),
    max_size=20,
)


@settings(max_examples=examples(50))
@given(written)
def test_lifecycle_expires_and_replaces_like_odek(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("odek") / "memory.db"
    clock = [START]
    model = Odek()
    store = opened(path, clock)
    other = opened(path, clock)
    for action, number, text, trusted, later in drawn:
        clock[0] += later
        name = f"s{number}"
        if action == "delete":
            model.episodes.pop(name, None)
            run_sql(path, f"DELETE FROM memory_items WHERE memory_id = '{name}'")
            continue
        if action == "reopen":
            store.close()
            store = opened(path, clock)
        writer = other if action == "other" else store
        trust = "trusted" if trusted else "untrusted"
        writer.put(item(name, text, at=clock[0]), ttl=TTL, trust=trust)
        writer.expire(clock[0])
        model.write(name, text, clock[0], trusted=trusted)
        titles = {memory.memory_id: memory.title for memory in store.list_active()}
        assert titles == {title: episode.text for title, episode in model.episodes.items()}
    assert store.stats().enforcement_failures == 0
    store.close()
    other.close()
