"""Fixtures for lifecycle stores with a clock that is set by the test."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memlab.lifecycle import LifecycleStore
from tests.lifecycle.memories import START, Open


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now=START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def open_store(path: Path, clock: SimpleNamespace) -> Iterator[Open]:
    with ExitStack() as stores:

        def open_one(**settings: Any) -> LifecycleStore:
            store = LifecycleStore(path, clock=lambda: clock.now, **settings)
            return stores.enter_context(store)

        yield open_one
