"""Measure the time and the disk space of compacting a large store with an archive, and restoring.

    python .ci/bench/bench_archive.py [--rows 1000000] [--bytes 437] [--beside TREE]

The store has rows of about `--bytes` bytes, its index included. A plan deletes all but fifty rows,
and a restore puts them back; every row must come back byte for byte. Each run works on a copy of
the same store in a process of its own. With the tree of another memlab, both are measured, one
after the other.
"""

import argparse
import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from commands import measure_apart
from rows import Row, write_store

import memlab

THIS_TREE: Final = Path(memlab.__file__).parents[1]
NOW: Final = datetime(2026, 7, 1, tzinfo=UTC)
OVERHEAD: Final = 150
"""Bytes of a row besides its body."""
SENTENCE: Final = "the agent looked at a failing check and kept what it learned for the next issue "


def generate_rows(rows: int, row_bytes: int) -> Iterator[Row]:
    """Yield episodes whose bodies differ in length."""
    text = SENTENCE * 20
    body_bytes = max(row_bytes - OVERHEAD, 10)
    for number in range(rows):
        start = number % 60
        length = body_bytes - 40 + number % 81
        yield Row(
            memory_id=f"m{number}",
            kind="episodic",
            title=f"shipped #{number}",
            body=text[start : start + length],
            source_task_ref=f"issue:#{number}",
            created_at=(NOW - timedelta(seconds=rows - number)).isoformat(),
        )


def digest_of(path: Path) -> str:
    """Digest every row of a store."""
    digest = sha256()
    with closing(sqlite3.connect(path)) as connection:
        for row in connection.execute("SELECT rowid, * FROM memory_items ORDER BY rowid"):
            digest.update(repr(row).encode())
    return digest.hexdigest()


def measure(path: Path) -> dict[str, Any]:
    """Compact a store and restore it; return the seconds and the bytes that this took."""
    digest = digest_of(path)
    started = time.perf_counter()
    started_cpu = time.process_time()
    receipt = memlab.apply(memlab.plan(path, memlab.KeepRecent(50), now=NOW), now=NOW)
    compacted = time.perf_counter()
    compacted_cpu = time.process_time()
    archive_bytes = path.with_name(f"{path.name}.archive.db").stat().st_size
    restored = memlab.restore(receipt, now=NOW)
    return {
        "compact": compacted - started,
        "compact_cpu": compacted_cpu - started_cpu,
        "restore": time.perf_counter() - compacted,
        "restore_cpu": time.process_time() - compacted_cpu,
        "archive": archive_bytes,
        "exact": int(restored) == receipt.deleted and digest_of(path) == digest,
    }


def measure_tree(tree: Path, original: Path) -> dict[str, Any]:
    """Measure the memlab of a tree on a copy of a store."""
    with tempfile.TemporaryDirectory(dir=original.parent) as folder:
        copy = shutil.copyfile(original, Path(folder) / "memory.db")
        return measure_apart(__file__, copy, tree=tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=437)
    parser.add_argument("--beside", type=Path, help="the tree of another memlab")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    trees = {"here": THIS_TREE}
    if options.beside:
        trees["beside"] = options.beside
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original.db"
        rows = generate_rows(options.rows, options.bytes)
        write_store(original, rows, journal_mode="DELETE")
        size = original.stat().st_size
        print(f"{options.rows:,} rows of {size / options.rows:,.0f} bytes", flush=True)
        for name, tree in trees.items():
            costs = measure_tree(tree, original)
            print(
                f"{name:7} compact {costs['compact']:6.1f} s ({costs['compact_cpu']:.1f} of CPU), "
                f"restore {costs['restore']:6.1f} s ({costs['restore_cpu']:.1f} of CPU), "
                f"archive {costs['archive'] / 1e6:7.1f} MB, {costs['archive'] / size:.2f} times "
                f"the store; exact: {costs['exact']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
