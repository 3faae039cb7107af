"""Helpers that make memories for lifecycle stores and list their ids."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from memlab.items import MemoryItem
from memlab.lifecycle import LifecycleStore
from memlab.store import SqliteMemoryStore
from tests.support import stores

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SAME = "the deploy failed because the port was taken"
Open = Callable[..., LifecycleStore]


def item(
    memory_id: str,
    text: str | None = None,
    *,
    kind: str = "episodic",
    tags: tuple[str, ...] = (),
    at: datetime = START,
) -> MemoryItem:
    title = memory_id if text is None else text
    return stores.item(memory_id, kind, *tags, title=title, body="", created_at=at.isoformat())


def ids(store: SqliteMemoryStore) -> list[str]:
    return [memory.memory_id for memory in store.list_active()]
