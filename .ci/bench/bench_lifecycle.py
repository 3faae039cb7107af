"""Measure puts per second into full scopes, and the time to find near-duplicates.

    pytest .ci/bench/bench_lifecycle.py -s

Prints rates and their ratios. No test here fails because a machine is slow.
"""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import pytest

from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.lifecycle import LifecycleStore
from memlab.policies import NearDuplicate, ValueCap, decide

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
SPREAD: Final = timedelta(days=30)
"""Time between the oldest and the newest memory of a store."""
PROVENANCE: Final = MemoryProvenance(None, "agent", source_task_ref="issue:#1", created_at=START)
PUTS: Final = 500

ImportanceOf = Callable[[random.Random, float], float]
"""Returns the importance of a memory by its place in the spread, from 0 (oldest) to 1."""


def importance_against_recency(_: random.Random, place: float) -> float:
    """Make all memories worth about the same: the stalest are the most important."""
    half_lives = (1 - place) * 30 / 7
    return min(1.0, 0.25 / 0.15 * (1 - 2**-half_lives))


IMPORTANCES: Final[dict[str, ImportanceOf]] = {
    "all the same": lambda _rng, _place: 0.5,
    "eleven levels": lambda rng, _place: rng.randrange(11) / 10,
    "all different": lambda rng, _place: rng.random(),
    "against recency": importance_against_recency,
}


class PutTimes(NamedTuple):
    """Puts per second, and seconds of the first put, which reads the whole scope."""

    rate: float
    first: float


def make_item(memory_id: str) -> MemoryItem:
    return MemoryItem(memory_id, MemoryKind.EPISODIC, "shipped", "b" * 300, PROVENANCE, ("merged",))


def cap_of(rows: int) -> ValueCap:
    return ValueCap(rows, scope=("agent_id",))


def generate(path: Path, rows: int, importance_of: ImportanceOf) -> None:
    """Write a store with one full scope, by SQL so that it takes seconds."""
    LifecycleStore(path, capacity=cap_of(rows)).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO memory_items (memory_id, kind, title, body, tags_json, authored_by, "
            "confidence, created_at, supersedes_json, evidence_refs_json, source_task_ref) "
            "VALUES (?, 'episodic', 'shipped', ?, '[\"merged\"]', 'agent', 1.0, ?, '[]', '[]', "
            "'issue:#1')",
            ((f"m{number}", "b" * 300, START.isoformat()) for number in range(rows)),
        )
        connection.executemany(
            "INSERT INTO memory_signals (memory_id, importance, last_accessed_at, access_count, "
            "agent_id, graduated, trusted, position, scope) "
            "VALUES (?, ?, ?, 0, 'a', 0, 1, ?, '{\"agent_id\": \"a\"}')",
            generate_signals(rows, importance_of),
        )


def generate_signals(
    rows: int, importance_of: ImportanceOf
) -> Iterator[tuple[str, float, str, int]]:
    """Yield the id, the importance, the last access and the position of each memory."""
    rng = random.Random(0)
    for number in range(rows):
        last_access = START + SPREAD * number / rows
        yield (
            f"m{number}",
            importance_of(rng, number / rows),
            last_access.isoformat(timespec="microseconds"),
            number + 1,
        )


def measure_puts(
    path: Path, rows: int, importance_of: ImportanceOf, synchronous: str, *, archive: bool = False
) -> PutTimes:
    """Measure puts into the full scope; each one evicts a memory."""
    rng = random.Random(1)
    times = (START + SPREAD + SPREAD / rows * number for number in range(10 * PUTS))
    with LifecycleStore(
        path, capacity=cap_of(rows), archive=archive, clock=lambda: next(times)
    ) as store:
        store.connection.execute(f"PRAGMA synchronous = {synchronous}")
        started = time.perf_counter()
        store.put(make_item("first"), agent_id="a", importance=importance_of(rng, 1.0))
        first = time.perf_counter() - started
        started = time.perf_counter()
        for number in range(PUTS):
            store.put(make_item(f"n{number}"), agent_id="a", importance=importance_of(rng, 1.0))
        elapsed = time.perf_counter() - started
        assert store.stats().sizes == {'{"agent_id": "a"}': rows}
        assert store.stats().evicted == {"lowest-value": PUTS + 1}
    return PutTimes(PUTS / elapsed, first)


@pytest.mark.parametrize("synchronous", ["FULL", "OFF"])
@pytest.mark.parametrize("name", IMPORTANCES)
def test_puts_into_a_full_scope(tmp_path: Path, name: str, synchronous: str) -> None:
    rates = {}
    for rows in (1_000, 10_000):
        path = tmp_path / f"{rows}.db"
        generate(path, rows, IMPORTANCES[name])
        times = measure_puts(path, rows, IMPORTANCES[name], synchronous)
        rates[rows] = times.rate
        print(
            f"\n{name}, {rows} rows, synchronous={synchronous}: {times.rate:.0f} puts/s, "
            f"first {times.first * 1e3:.0f} ms",
            end="",
        )
    print(f"\nratio {rates[1_000] / rates[10_000]:.2f}")


def test_puts_that_evict_into_an_archive(tmp_path: Path) -> None:
    importance_of = IMPORTANCES["all different"]
    rates = {}
    for archive in (False, True):
        path = tmp_path / f"{archive}.db"
        generate(path, 1_000, importance_of)
        rates[archive] = measure_puts(path, 1_000, importance_of, "FULL", archive=archive).rate
    print(
        f"\n{rates[False]:.0f} puts/s without an archive, {rates[True]:.0f} with one, "
        f"ratio {rates[False] / rates[True]:.1f}"
    )


def test_puts_with_tags_into_many_scopes(tmp_path: Path) -> None:
    rng = random.Random(2)
    path = tmp_path / "tags.db"
    with LifecycleStore(path, capacity=ValueCap(50), archive=False) as store:
        store.connection.execute("PRAGMA synchronous = OFF")
        for part in ("first", "second", "third"):
            started = time.perf_counter()
            for number in range(PUTS):
                tags = tuple(f"t{rng.randrange(200)}" for _ in range(rng.randrange(4)))
                item = replace(make_item(f"{part}{number}"), tags=tags)
                store.put(item, agent_id=f"a{rng.randrange(20)}", thread_id=f"h{number % 97}")
            rate = PUTS / (time.perf_counter() - started)
            print(f"\n{part} {PUTS}: {rate:.0f} puts/s", end="")
        print(f", {len(store.stats().sizes)} scopes")


@pytest.mark.parametrize(("rows", "words"), [(10_000, 100), (100_000, 100), (100_000, 300)])
def test_near_duplicates_of_many_rows(rows: int, words: int) -> None:
    frame = pd.DataFrame(
        {
            "position": np.arange(rows),
            "memory_id": [f"m{number}" for number in range(rows)],
            "title": generate_texts(rows, words),
            "active": True,
            "load_bearing": False,
        }
    )
    decide(frame.head(100), NearDuplicate(), now=START)  # compiles
    started = time.perf_counter()
    duplicates = (~decide(frame, NearDuplicate(), now=START)["keep"]).sum()
    seconds = time.perf_counter() - started
    print(f"\n{rows} rows of {words} words: {duplicates} go, {seconds:.1f} s")


def generate_texts(rows: int, words: int) -> list[str]:
    """Make texts of about so many words, with their frequencies in a language; 5 % are repeated."""
    rng = np.random.default_rng(0)
    vocabulary = np.char.add("w", np.arange(50_000).astype(str))
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    frequency = weights / weights.sum()
    texts: list[str] = []
    for number in range(rows):
        if number and rng.random() < 0.05:
            earlier = texts[rng.integers(max(0, number - 1000), number)]
            texts.append(earlier + " again")
        else:
            length = rng.integers(words // 2, words * 3 // 2)
            texts.append(" ".join(rng.choice(vocabulary, length, p=frequency)))
    return texts
