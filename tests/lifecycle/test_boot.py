"""``boot_items``: what a start loads by activation; a start changes nothing."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab import Activation, LifecycleStore
from memlab.errors import FloorExceedsBudgetWarning
from memlab.lifecycle.boot import estimated_tokens
from tests.support.stores import item as stored_item
from tests.support.stores import row, run_sql, signals_of, write_rows

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Clock:
    """A clock that a test sets."""

    now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[LifecycleStore]:
    with LifecycleStore(tmp_path / "memory.db", clock=clock) as opened:
        yield opened


def item(memory_id: str, body: str, *, at: datetime, kind: str = "episodic") -> memlab.MemoryItem:
    """Return a memory without a title."""
    return stored_item(memory_id, kind, title="", body=body, created_at=at.isoformat())


def fill(store: LifecycleStore, clock: Clock, count: int) -> None:
    """Write a memory a day, of ten tokens each."""
    for number in range(count):
        clock.now = START + number * DAY
        store.put(item(f"m{number}", "x" * 40, at=clock.now))


def ids(items: tuple[memlab.MemoryItem, ...]) -> list[str]:
    return [memory.memory_id for memory in items]


def test_most_active_items_that_fit_are_loaded_in_rowid_order(
    store: LifecycleStore, clock: Clock
) -> None:
    fill(store, clock, 10)
    assert ids(store.boot_items(max_tokens=30)) == ["m7", "m8", "m9"]
    store.touch(["m2"])
    assert ids(store.boot_items(max_tokens=30)) == ["m2", "m8", "m9"]
    clock.now += 300 * DAY
    store.touch(["m0"])
    assert ids(store.boot_items(max_tokens=30)) == ["m0", "m2", "m9"]


def test_starts_change_no_rank_and_write_nothing(store: LifecycleStore, clock: Clock) -> None:
    fill(store, clock, 10)
    store.touch(["m2"])
    signals = signals_of(store.path)
    changes = store.connection.total_changes
    first = store.boot_items(max_tokens=30)
    for _ in range(100):
        assert store.boot_items(max_tokens=30) == first
        store.list_active()
    assert signals_of(store.path) == signals
    assert store.connection.total_changes == changes


def test_load_bearing_items_are_all_loaded_with_a_warning(
    store: LifecycleStore, clock: Clock
) -> None:
    fill(store, clock, 3)
    store.put(item("d1", "y" * 400, kind="semantic", at=clock.now))
    with pytest.warns(FloorExceedsBudgetWarning, match="alone take 100 tokens, more than the 50"):
        assert ids(store.boot_items(max_tokens=50)) == ["d1"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids(store.boot_items(max_tokens=120)) == ["m1", "m2", "d1"]


def test_expired_and_superseded_items_are_not_loaded(store: LifecycleStore, clock: Clock) -> None:
    fill(store, clock, 4)
    store.put(item("brief", "z" * 40, at=clock.now), ttl="1d")
    store.supersede("m3", by_memory_id="m2")
    clock.now += 2 * DAY
    assert ids(store.boot_items(max_tokens=1000)) == ["m0", "m1", "m2"]


def test_retired_items_can_be_loaded_but_withdrawn_ones_not(
    store: LifecycleStore, clock: Clock
) -> None:
    fill(store, clock, 8)
    path = store.path
    assert path is not None
    plan = memlab.plan(path, memlab.KeepRecent(2), retire=True, now=clock.now)
    memlab.apply(plan, now=clock.now)
    store.supersede("m6", by_memory_id="m6")  # withdrawn by the agent
    assert ids(store.list_active()) == ["m7"]
    store.touch(["m1"])
    assert ids(store.boot_items(max_tokens=30)) == ["m1", "m5", "m7"]
    assert "m6" not in ids(store.boot_items(max_tokens=1000))


def test_item_that_does_not_fit_is_skipped(store: LifecycleStore, clock: Clock) -> None:
    fill(store, clock, 3)
    store.put(item("long", "x" * 400, at=clock.now))
    assert ids(store.boot_items(max_tokens=99)) == ["m0", "m1", "m2"]


def test_token_counter_can_be_given(store: LifecycleStore, clock: Clock) -> None:
    fill(store, clock, 5)
    assert ids(store.boot_items(max_tokens=2, count_tokens=lambda _: 1)) == ["m3", "m4"]


def test_row_of_a_plain_store_counts_from_its_first_use(tmp_path: Path, clock: Clock) -> None:
    rows = [row(f"e{number}", created_at=(START + number * DAY).isoformat()) for number in range(6)]
    path = write_rows(tmp_path / "plain.db", rows)
    clock.now = START + 100 * DAY
    with LifecycleStore(path, clock=clock) as store:
        size = estimated_tokens(rows[0]["title"] + rows[0]["body"])
        assert ids(store.boot_items(max_tokens=2 * size)) == ["e4", "e5"]
        assert store.touch(["e0", "gone"]) == 1
        assert ids(store.boot_items(max_tokens=2 * size)) == ["e0", "e5"]
        assert store.stats().sizes == {}


def test_second_use_in_a_utc_day_does_not_change_the_count(
    store: LifecycleStore, clock: Clock
) -> None:
    fill(store, clock, 1)
    for hours, count in ((1, 1), (2, 1), (30, 2)):
        clock.now = START + timedelta(hours=hours)
        store.touch(["m0"])
        frame = memlab.load(store.path)
        assert frame["access_count"].tolist() == [count]
        assert frame["last_accessed_at"].iloc[0] == clock.now


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 400)), max_size=20),
    st.integers(0, 200),
)
def test_boot_items_equals_the_activation_policy(uses: list[tuple[int, int]], budget: int) -> None:
    clock = Clock()
    with LifecycleStore(":memory:", clock=clock) as store:
        for number in range(12):
            clock.now = START + number * DAY
            store.put(item(f"m{number}", "x" * (8 + 7 * number), at=clock.now))
        for number, day in sorted(uses, key=lambda use: use[1]):
            clock.now = START + (12 + day) * DAY
            store.touch([f"m{number}"])
        clock.now = START + 420 * DAY
        frame = memlab.load(store)
        is_kept = memlab.decide(frame, Activation(max_tokens=budget), now=clock.now)["keep"]
        loaded = ids(store.boot_items(max_tokens=budget))
    assert loaded == frame["memory_id"][is_kept].tolist()


def test_boot_items_needs_only_the_standard_library(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from memlab import LifecycleStore\n"
        f"with LifecycleStore({str(tmp_path / 'memory.db')!r}) as store:\n"
        "    store.boot_items(max_tokens=100)\n"
        "print({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)\n"
    )
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    for package in ("numpy", "pandas", "pyarrow"):
        assert f"'{package}'" not in imported.stdout


def test_withdrawn_row_needs_no_archive(store: LifecycleStore, clock: Clock) -> None:
    fill(store, clock, 2)
    run_sql(store.path, "UPDATE memory_items SET superseded_by = memory_id WHERE rowid = 1")
    assert ids(store.boot_items(max_tokens=100)) == ["m1"]
