"""Time and memory of ``compact_episodic`` on a large store beside the routines it replaces.

    python .ci/bench/bench_compaction.py [--rows 1000000] [--rounds 3]

Each routine runs in a process of its own on a copy of the same generated store. Seconds are of the
compaction alone, the best of the rounds on the clock and on the processor, the system's share
included; memory is the process's peak.
"""

import argparse
import json
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from memlab.items import is_load_bearing_memory
from memlab.store import SqliteMemoryStore
from memlab.store.database import CREATE_TABLE

KEEP_RECENT = 50
TAG_SETS = ["[]", '["failed"]', '["merged"]', '["merged","area:docs"]', '["failed","area:core"]']


def generate(path: Path, rows: int, *, random_ids: bool) -> None:
    """Write a store in which about 87 % of the rows are prunable and active."""
    chance = random.Random(7)
    body = "the agent looked at a failing check and kept what it learned for the next issue " * 6

    def row(n: int) -> tuple[object, ...]:
        roll = chance.random()
        kind = "semantic" if roll < 0.02 else "procedural" if roll < 0.04 else "episodic"
        tags = '["failed","rejected-path"]' if 0.04 <= roll < 0.05 else chance.choice(TAG_SETS)
        superseded_by = f"m{n + 1}" if 0.05 <= roll < 0.13 and n + 1 < rows else None
        return (
            f"{chance.getrandbits(128):032x}" if random_ids else f"m{n}",
            kind,
            f"shipped #{n}",
            body[: chance.randrange(200, 480)],
            tags,
            None,
            None,
            f"issue:#{n}",
            "agent",
            1.0,
            "2026-01-01T00:00:00+00:00",
            "[]",
            "[]",
            superseded_by,
        )

    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(CREATE_TABLE)
    with connection:
        connection.executemany(
            f"INSERT INTO memory_items VALUES ({','.join('?' * 14)})", (row(n) for n in range(rows))
        )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def by_the_package(store: SqliteMemoryStore) -> int:
    return store.compact_episodic(KEEP_RECENT)


def item_by_item(store: SqliteMemoryStore) -> int:
    """List the active items as objects, filter them by the predicate, delete one by one."""
    prunable = [item for item in store.list_active() if not is_load_bearing_memory(item)]
    surplus = prunable[: max(0, len(prunable) - KEEP_RECENT)]
    store.connection.execute("BEGIN IMMEDIATE")
    for item in surplus:
        store.connection.execute("DELETE FROM memory_items WHERE memory_id = ?", (item.memory_id,))
    store.connection.execute("COMMIT")
    return len(surplus)


def hand_inlined(store: SqliteMemoryStore) -> int:
    """Repeat the rule in SQL, which is what the package never does."""
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


ROUTINES: dict[str, Callable[[SqliteMemoryStore], int]] = {
    "by_the_package": by_the_package,
    "item_by_item": item_by_item,
    "hand_inlined": hand_inlined,
}


def run_one(name: str, path: Path) -> None:
    with SqliteMemoryStore(path) as store:
        started = time.perf_counter()
        used = time.process_time()
        deleted = ROUTINES[name](store)
        found = {
            "deleted": deleted,
            "seconds": time.perf_counter() - started,
            "cpu": time.process_time() - used,
        }
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found))


def measured_apart(name: str, original: Path) -> dict[str, float]:
    copy = original.with_name(f"{name}.db")
    shutil.copyfile(original, copy)
    command = [sys.executable, __file__, "--one", name, str(copy)]
    run = subprocess.run(command, check=True, capture_output=True)
    copy.unlink()
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--random-ids", action="store_true", help="ids in no order, as agents have")
    parser.add_argument("--one", nargs=2, metavar=("ROUTINE", "STORE"))
    arguments = parser.parse_args()
    if arguments.one:
        run_one(arguments.one[0], Path(arguments.one[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original.db"
        generate(original, arguments.rows, random_ids=arguments.random_ids)
        print(f"{arguments.rows:,} rows, {original.stat().st_size / 1e6:,.0f} MB")
        rounds = [
            {name: measured_apart(name, original) for name in ROUTINES}
            for _ in range(arguments.rounds)
        ]
    best = {
        name: {key: min(found[name][key] for found in rounds) for key in rounds[0][name]}
        for name in ROUTINES
    }
    package = best[by_the_package.__name__]
    for name, found in best.items():
        print(
            f"{name:15} {found['deleted']:>9,} deleted {found['seconds']:7.2f} s "
            f"({found['cpu']:6.2f} s of CPU) {found['megabytes']:5.0f} MB   package is "
            f"{found['seconds'] / package['seconds']:4.1f}x as fast, "
            f"{found['cpu'] / package['cpu']:4.1f}x by CPU"
        )


if __name__ == "__main__":
    main()
