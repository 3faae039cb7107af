"""Room and time of compacting a large store into its archive, and of restoring it.

    python .ci/bench/bench_archive.py [--rows 1000000] [--bytes 437] [--beside TREE]

The store has rows of about so many bytes each, its index included. All but fifty are deleted by a
plan, and put back. Each memlab works on a copy of the same store in a process of its own; with the
tree of another memlab both do, one after the other. Every row must come back byte for byte.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import memlab

HERE = Path(memlab.__file__).parents[1]
NOW = datetime(2026, 7, 1, tzinfo=UTC)
OVERHEAD = 150
"""Bytes that a row takes beside its body."""


def generate(path: Path, rows: int, size: int) -> None:
    """Write a store of episodes whose bodies differ in length."""
    words = "the agent looked at a failing check and kept what it learned for the next issue " * 20
    body = max(size - OVERHEAD, 10)
    with closing(sqlite3.connect(path)) as connection, connection:
        memlab.SqliteMemoryStore(path).close()
        connection.executemany(
            f"INSERT INTO memory_items VALUES ({','.join('?' * 14)})",
            (
                (
                    f"m{number}", "episodic", f"shipped #{number}",
                    words[number % 60 : number % 60 + body - 40 + number % 81], '["merged"]',
                    None, None, f"issue:#{number}", "agent", 1.0,
                    (NOW - timedelta(seconds=rows - number)).isoformat(), "[]", "[]", None,
                )
                for number in range(rows)
            ),
        )  # fmt: skip
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def digest_of(path: Path) -> str:
    """Return a digest of every row of a store."""
    found = sha256()
    with closing(sqlite3.connect(path)) as connection:
        for row in connection.execute("SELECT rowid, * FROM memory_items ORDER BY rowid"):
            found.update(repr(row).encode())
    return found.hexdigest()


def measure(path: Path) -> dict[str, Any]:
    """Compact a store and restore it."""
    size = path.stat().st_size
    before = digest_of(path)
    started = time.perf_counter()
    used = time.process_time()
    receipt = memlab.apply(memlab.plan(path, memlab.KeepRecent(50), now=NOW), now=NOW)
    compacted = time.perf_counter()
    then = time.process_time()
    archive = path.with_name(f"{path.name}.archive.db").stat().st_size
    restored = memlab.restore(receipt, now=NOW)
    return {
        "deleted": receipt.deleted,
        "compact": compacted - started,
        "compact_cpu": then - used,
        "restore": time.perf_counter() - compacted,
        "restore_cpu": time.process_time() - then,
        "store": size,
        "archive": archive,
        "exact": int(restored) == receipt.deleted and digest_of(path) == before,
    }


def measured_by(tree: Path, original: Path) -> dict[str, Any]:
    """Do so in a process of its own, with the memlab of a tree."""
    with tempfile.TemporaryDirectory(dir=original.parent) as folder:
        copy = Path(shutil.copyfile(original, Path(folder) / "memory.db"))
        command = [sys.executable, __file__, "--one", str(copy)]
        environment = os.environ | {"PYTHONPATH": str(tree)}
        run = subprocess.run(command, env=environment, check=True, capture_output=True)
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=437)
    parser.add_argument("--beside", type=Path, help="the tree of another memlab")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    trees = {"here": HERE} | ({"beside": options.beside} if options.beside else {})
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original.db"
        generate(original, options.rows, options.bytes)
        size = original.stat().st_size
        print(f"{options.rows:,} rows of {size / options.rows:,.0f} bytes", flush=True)
        for name, tree in trees.items():
            found = measured_by(tree, original)
            print(
                f"{name:7} compact {found['compact']:6.1f} s ({found['compact_cpu']:.1f} of CPU), "
                f"restore {found['restore']:6.1f} s ({found['restore_cpu']:.1f} of CPU), "
                f"archive {found['archive'] / 1e6:7.1f} MB, {found['archive'] / size:.2f} times "
                f"the store; exact: {found['exact']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
