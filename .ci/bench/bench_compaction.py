"""Measure the time and memory of ``compact_episodic`` on a large store, beside two other routines.

    python .ci/bench/bench_compaction.py [--rows 1000000] [--rounds 3]

Each routine runs in a process of its own on a copy of the same generated store. Seconds are of the
compaction alone, on the clock and on the processor (user and system), the best of the rounds.
Memory is the peak of the process.
"""

import argparse
import json
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from commands import measure_apart
from rows import Row, write_store

from memlab.items import is_load_bearing_memory
from memlab.store import SqliteMemoryStore

KEEP_RECENT: Final = 50
TAG_SETS: Final = (
    "[]",
    '["failed"]',
    '["merged"]',
    '["merged","area:docs"]',
    '["failed","area:core"]',
)
SENTENCE: Final = "the agent looked at a failing check and kept what it learned for the next issue "


def generate_rows(rows: int, *, random_ids: bool) -> Iterator[Row]:
    """Yield rows of which about 87 % are prunable and active."""
    rng = random.Random(7)
    text = SENTENCE * 6
    for number in range(rows):
        draw = rng.random()
        kind = "episodic"
        superseded_by = None
        if draw < 0.02:
            kind = "semantic"
        elif draw < 0.04:
            kind = "procedural"
        elif 0.05 <= draw < 0.13 and number + 1 < rows:
            superseded_by = f"m{number + 1}"
        is_rejected_path = 0.04 <= draw < 0.05
        tags = '["failed","rejected-path"]' if is_rejected_path else rng.choice(TAG_SETS)
        memory_id = f"m{number}"
        if random_ids:
            memory_id = f"{rng.getrandbits(128):032x}"
        yield Row(
            memory_id=memory_id,
            kind=kind,
            title=f"shipped #{number}",
            body=text[: rng.randrange(200, 480)],
            tags_json=tags,
            source_task_ref=f"issue:#{number}",
            superseded_by=superseded_by,
        )


def by_the_package(store: SqliteMemoryStore) -> int:
    """Call memlab."""
    return store.compact_episodic(KEEP_RECENT)


def item_by_item(store: SqliteMemoryStore) -> int:
    """List the active items as objects, filter them by the predicate, and delete one by one."""
    prunable = [item for item in store.list_active() if not is_load_bearing_memory(item)]
    surplus = prunable[: max(0, len(prunable) - KEEP_RECENT)]
    store.connection.execute("BEGIN IMMEDIATE")
    for item in surplus:
        store.connection.execute("DELETE FROM memory_items WHERE memory_id = ?", (item.memory_id,))
    store.connection.execute("COMMIT")
    return len(surplus)


def hand_inlined(store: SqliteMemoryStore) -> int:
    """Repeat the rule in SQL, which memlab never does."""
    prunable = (
        "superseded_by IS NULL AND kind = 'episodic' AND NOT EXISTS "
        "(SELECT 1 FROM json_each(tags_json) WHERE value = 'rejected-path')"
    )
    store.connection.execute("BEGIN IMMEDIATE")
    deleted = store.connection.execute(
        f"DELETE FROM memory_items WHERE {prunable} AND rowid <= "
        f"(SELECT rowid FROM memory_items WHERE {prunable} ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
        (KEEP_RECENT,),
    ).rowcount
    store.connection.execute("COMMIT")
    return deleted


ROUTINES: Final[dict[str, Callable[[SqliteMemoryStore], int]]] = {
    "by_the_package": by_the_package,
    "item_by_item": item_by_item,
    "hand_inlined": hand_inlined,
}


def measure(routine: str, path: Path) -> None:
    """Print the costs of a routine on a store as JSON."""
    with SqliteMemoryStore(path) as store:
        started = time.perf_counter()
        started_cpu = time.process_time()
        deleted = ROUTINES[routine](store)
        costs = {
            "deleted": deleted,
            "seconds": time.perf_counter() - started,
            "cpu": time.process_time() - started_cpu,
        }
    costs["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(costs))


def measure_on_a_copy(routine: str, original: Path) -> dict[str, Any]:
    """Measure a routine in a process of its own, on a copy of a store."""
    copy = original.with_name(f"{routine}.db")
    shutil.copyfile(original, copy)
    costs = measure_apart(__file__, routine, copy)
    copy.unlink()
    return costs


def best_of(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the least of each cost."""
    return {name: min(costs[name] for costs in rounds) for name in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--random-ids", action="store_true", help="ids in no order, as agents have")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        routine, path = options.measure
        measure(routine, Path(path))
        return
    rounds: dict[str, list[dict[str, Any]]] = {routine: [] for routine in ROUTINES}
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original.db"
        write_store(original, generate_rows(options.rows, random_ids=options.random_ids))
        print(f"{options.rows:,} rows, {original.stat().st_size / 1e6:,.0f} MB")
        for _ in range(options.rounds):
            for routine in ROUTINES:
                rounds[routine].append(measure_on_a_copy(routine, original))
    package = best_of(rounds[by_the_package.__name__])
    for routine in ROUTINES:
        costs = best_of(rounds[routine])
        print(
            f"{routine:15} {costs['deleted']:>9,} deleted {costs['seconds']:7.2f} s "
            f"({costs['cpu']:6.2f} s of CPU) {costs['megabytes']:5.0f} MB   package is "
            f"{costs['seconds'] / package['seconds']:4.1f}x as fast, "
            f"{costs['cpu'] / package['cpu']:4.1f}x by CPU"
        )


if __name__ == "__main__":
    main()
