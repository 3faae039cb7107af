"""Puts per second into a full scope, and near-duplicates among many rows.

Run by name: ``pytest .ci/bench/bench_lifecycle.py -s``. Prints rates and their ratios; nothing
here fails on a slow machine.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.lifecycle import LifecycleStore
from memlab.policies import NearDuplicate, ValueCap, decide

START = datetime(2026, 1, 1, tzinfo=UTC)
SPREAD = timedelta(days=30)
PROVENANCE = MemoryProvenance(None, "agent", source_task_ref="issue:#1", created_at=START)
PUTS = 500
SCOPE = ("agent_id",)

Importance = Callable[[random.Random, float], float]
IMPORTANCES: dict[str, Importance] = {
    "all the same": lambda _, __: 0.5,
    "eleven levels": lambda rng, _: rng.randrange(11) / 10,
    "all different": lambda rng, _: rng.random(),
    # Every row is worth about the same: the stalest are the most important.
    "against recency": lambda _, age: min(1.0, 0.25 / 0.15 * (1 - 2 ** (-(1 - age) * 30 / 7))),
}


def item(name: str) -> MemoryItem:
    return MemoryItem(name, MemoryKind.EPISODIC, "shipped", "b" * 300, PROVENANCE, ("merged",))


def filled(path: Path, rows: int, importance: Importance) -> None:
    """Write a store with one full scope, past the store so that it takes seconds."""
    rng = random.Random(0)
    LifecycleStore(path, capacity=ValueCap(rows, scope=SCOPE)).close()
    provenance = ("agent", 1.0, START.isoformat(), "[]", "[]", "issue:#1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO memory_items (memory_id, kind, title, body, tags_json, authored_by, "
            "confidence, created_at, supersedes_json, evidence_refs_json, source_task_ref) "
            "VALUES (?, 'episodic', 'shipped', ?, '[\"merged\"]', ?, ?, ?, ?, ?, ?)",
            ((f"m{i}", "b" * 300, *provenance) for i in range(rows)),
        )
        connection.executemany(
            "INSERT INTO memory_signals (memory_id, importance, last_accessed_at, access_count, "
            "agent_id, graduated, trusted, position, scope) "
            "VALUES (?, ?, ?, 0, 'a', 0, 1, ?, '{\"agent_id\": \"a\"}')",
            (
                (
                    f"m{i}",
                    importance(rng, i / rows),
                    (START + SPREAD * i / rows).isoformat(timespec="microseconds"),
                    i + 1,
                )
                for i in range(rows)
            ),
        )


def rate(
    path: Path, rows: int, importance: Importance, synchronous: str, *, archive: bool = False
) -> tuple[float, float]:
    """Puts per second into the full scope, each of which reads it, and seconds for the first."""
    rng = random.Random(1)
    times = (START + SPREAD + SPREAD / rows * i for i in range(10 * PUTS))
    rule = ValueCap(rows, scope=SCOPE)
    with LifecycleStore(path, capacity=rule, archive=archive, clock=lambda: next(times)) as store:
        store.connection.execute(f"PRAGMA synchronous = {synchronous}")
        begin = time.perf_counter()
        store.put(item("first"), agent_id="a", importance=importance(rng, 1.0))
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        for number in range(PUTS):
            store.put(item(f"n{number}"), agent_id="a", importance=importance(rng, 1.0))
        elapsed = time.perf_counter() - begin
        assert store.stats().sizes == {'{"agent_id": "a"}': rows}
        assert store.stats().evicted == {"lowest-value": PUTS + 1}
    return PUTS / elapsed, first


@pytest.mark.parametrize("synchronous", ["FULL", "OFF"])
@pytest.mark.parametrize("name", IMPORTANCES)
def test_puts_into_a_full_scope(tmp_path: Path, name: str, synchronous: str) -> None:
    rates = {}
    for rows in (1_000, 10_000):
        path = tmp_path / f"{rows}.db"
        filled(path, rows, IMPORTANCES[name])
        rates[rows], first = rate(path, rows, IMPORTANCES[name], synchronous)
        print(
            f"\n{name}, {rows} rows, synchronous={synchronous}: {rates[rows]:.0f} puts/s, ", end=""
        )
        print(f"first {first * 1e3:.0f} ms", end="")
    print(f"\nratio {rates[1_000] / rates[10_000]:.2f}")


def test_what_an_archive_costs_a_put_that_evicts(tmp_path: Path) -> None:
    rates = {}
    for archive in (False, True):
        path = tmp_path / f"{archive}.db"
        filled(path, 1_000, IMPORTANCES["all different"])
        chosen = IMPORTANCES["all different"]
        rates[archive], _ = rate(path, 1_000, chosen, "FULL", archive=archive)
    print(f"\n{rates[False]:.0f} puts/s without an archive, {rates[True]:.0f} with one, ", end="")
    print(f"ratio {rates[False] / rates[True]:.1f}")


def test_a_put_with_tags_among_many_scopes(tmp_path: Path) -> None:
    rng = random.Random(2)
    path = tmp_path / "tags.db"
    with LifecycleStore(path, capacity=ValueCap(50), archive=False) as store:
        store.connection.execute("PRAGMA synchronous = OFF")
        for part in ("first", "second", "third"):
            begin = time.perf_counter()
            for number in range(PUTS):
                tags = tuple(f"t{rng.randrange(200)}" for _ in range(rng.randrange(4)))
                written = replace(item(f"{part}{number}"), tags=tags)
                store.put(written, agent_id=f"a{rng.randrange(20)}", thread_id=f"h{number % 97}")
            print(f"\n{part} {PUTS}: {PUTS / (time.perf_counter() - begin):.0f} puts/s", end="")
        print(f", {len(store.stats().sizes)} scopes")


@pytest.mark.parametrize(("rows", "words"), [(10_000, 100), (100_000, 100), (100_000, 300)])
def test_near_duplicates_of_many_rows(rows: int, words: int) -> None:
    rng = np.random.default_rng(0)
    vocabulary = np.char.add("w", np.arange(50_000).astype(str))
    frequency = 1 / np.arange(1, len(vocabulary) + 1)
    texts: list[str] = []
    for number in range(rows):
        if number and rng.random() < 0.05:
            texts.append(texts[rng.integers(max(0, number - 1000), number)] + " again")
        else:
            length = rng.integers(words // 2, words * 3 // 2)
            texts.append(" ".join(rng.choice(vocabulary, length, p=frequency / frequency.sum())))
    frame = pd.DataFrame(
        {
            "position": np.arange(rows),
            "memory_id": [f"m{i}" for i in range(rows)],
            "title": texts,
            "active": True,
            "load_bearing": False,
        }
    )
    decide(frame.head(100), NearDuplicate(), now=START)  # compiles
    begin = time.perf_counter()
    gone = (~decide(frame, NearDuplicate(), now=START)["keep"]).sum()
    print(f"\n{rows} rows of {words} words: {gone} go, {time.perf_counter() - begin:.1f} s")
