"""Lifecycle stores whose clock stands still, and a server for BetterDB's own code."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from owners import SEARCHING_SERVER
from servers import RedisServer, redis_server

from memlab.lifecycle import LifecycleStore


class Clock:
    """A time that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def open_store(path: Path, clock: Clock) -> Iterator[Callable[..., LifecycleStore]]:
    opened = []

    def open_one(**settings: Any) -> LifecycleStore:
        opened.append(LifecycleStore(path, clock=clock, **settings))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture(scope="session")
def searching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    assert SEARCHING_SERVER
    with redis_server(tmp_path_factory.mktemp("redis"), program=SEARCHING_SERVER) as server:
        yield server
