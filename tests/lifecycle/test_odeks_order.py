"""Writing as odek does: a repeat goes, then what has expired, then the oldest above the cap."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifecycle.memories import HOUR, START, item

from memlab.lifecycle import LifecycleStore
from memlab.policies import NearDuplicate, ValueCap
from memlab.policies.duplicates import TextIndex

TTL = 5 * HOUR
CAP = 4
ALIKE = NearDuplicate(0.8)
TEXTS = ("port taken", "port taken again", "port port taken", "tea in shade", "tea", "")
NEWEST = ValueCap(CAP, recency=1.0, importance=0.0, scope=())
"""The cap of the newest written, as long as nothing is touched."""


class Episode(NamedTuple):
    text: str
    written: datetime
    trusted: bool


class Odek:
    """A model of odek's episodes, written after what it documents and its tests state."""

    def __init__(self) -> None:
        self.episodes: dict[str, Episode] = {}

    def write(self, name: str, text: str, now: datetime, *, trusted: bool) -> None:
        self.episodes.pop(name, None)
        rows = [(other, each.text, "", (each.written, 0)) for other, each in self.episodes.items()]
        alike = TextIndex(ALIKE, rows).most_similar(text, "")
        if alike and (trusted or not self.episodes[alike].trusted):
            del self.episodes[alike]
        self.episodes[name] = Episode(text, now, trusted)
        self.expire(now)
        newest = sorted(self.episodes.items(), key=lambda pair: pair[1].written, reverse=True)
        self.episodes = dict(newest[:CAP])

    def expire(self, now: datetime) -> None:
        fresh = {n: e for n, e in self.episodes.items() if not e.written < now - TTL}
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


@settings(max_examples=50)
@given(written)
def test_any_sequence_of_writes_leaves_what_odek_leaves(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("odek") / "memory.db"
    clock, model = [START], Odek()
    store, other = opened(path, clock), opened(path, clock)
    for action, number, text, trusted, later in drawn:
        clock[0] += later
        name = f"s{number}"
        if action == "delete":
            model.episodes.pop(name, None)
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("DELETE FROM memory_items WHERE memory_id = ?", (name,))
            continue
        if action == "reopen":
            store.close()
            store = opened(path, clock)
        writer = other if action == "other" else store
        trust = "trusted" if trusted else "untrusted"
        writer.put(item(name, text, at=clock[0]), ttl=TTL, trust=trust)
        writer.expire(clock[0])
        model.write(name, text, clock[0], trusted=trusted)
        left = {each.memory_id: each.title for each in store.list_active()}
        assert left == {n: e.text for n, e in model.episodes.items()}
    assert store.stats().enforcement_failures == 0
    store.close()
    other.close()
