"""Measure the time and memory of loading memories from servers, and of reading their records.

    python .ci/bench/bench_servers.py [--memories 100000] [--dimensions 384]

BetterDB's hashes are on a temporary redis-server, MemForge's rows on a temporary PostgreSQL, both
on this machine. Every step runs in a process of its own. Memory is the peak of that process,
imports included; the first step only imports.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import memlab
from memlab.sources.base import read_consistent
from memlab.sources.opening import open_source
from tests.support.betterdb_store import NAME, START_MS
from tests.support.memforge_store import create_tables
from tests.support.servers import postgres_server, redis_server

TEXT: Final = (
    "the parser fails on tabs because a retry timed out when building docs; see the merge " * 4
)
PROMISED_SECONDS: Final = {"betterdb": 15.0, "memforge": 5.0}
"""Maximum time to load a hundred thousand memories."""
BATCH: Final = 500


def fill_betterdb(client: Any, count: int, dimensions: int) -> None:
    """Write hashes as BetterDB does, vectors included."""
    client.config_set("appendfsync", "no")
    rng = np.random.default_rng(7)
    for start in range(0, count, BATCH):
        with client.pipeline(transaction=False) as pipeline:
            for number in range(start, min(start + BATCH, count)):
                created_at = str(START_MS + number)
                fields = {
                    "content": TEXT[: 100 + number % 200],
                    "vector": rng.random(dimensions, dtype=np.float32).tobytes(),
                    "importance": "0.5",
                    "created_at": created_at,
                    "last_accessed_at": created_at,
                    "access_count": "0",
                    "tags": f"merged,area{number % 30}",
                    "agentId": "a",
                }
                key = f"{NAME}:mem:{UUID(bytes=rng.bytes(16))}"
                pipeline.hset(key, mapping=fields)
            pipeline.execute()


def fill_memforge(connection: Any, count: int, dimensions: int) -> None:
    """Write rows as MemForge does, with embeddings and a read of every fourth memory."""
    create_tables(connection)
    connection.execute("INSERT INTO agents (id) VALUES ('a')")
    connection.execute(
        "INSERT INTO warm_tier (agent_id, content, embedding, importance, consolidated_at) "
        "SELECT 'a', left(%(text)s, 100 + n %% 200), "
        "(SELECT array_agg(random()) FROM generate_series(1, %(dimensions)s) WHERE n > 0)"
        "::real[]::halfvec, random(), '2026-03-01'::timestamptz + n * interval '1 minute' "
        "FROM generate_series(1, %(count)s) AS n",
        {"text": TEXT, "dimensions": dimensions, "count": count},
    )
    connection.execute(
        "INSERT INTO retrieval_log (agent_id, warm_tier_id, query_text) "
        "SELECT 'a', id, 'q' FROM warm_tier WHERE id % 4 = 0"
    )
    connection.execute("ANALYZE")


def only_import(url: str) -> int:
    """Do nothing."""
    return 0


def load(url: str) -> int:
    """Load all columns but the body; return the number of memories."""
    return len(memlab.load(url))


def load_with_body(url: str) -> int:
    """Load all columns; return the number of memories."""
    return len(memlab.load(url, with_body=True))


def read_records(url: str) -> int:
    """Read the records of all memories, as an archive does; return their number."""

    def read(reader: Any) -> int:
        keys: list[Any] = []
        for rows in reader.batches(with_body=False):
            column = "key" if "key" in rows.table.column_names else "position"
            keys += rows.table[column].to_pylist()
        return sum(1 for _ in reader.records(keys))

    return read_consistent(open_source(url), read)


STEPS: Final[dict[str, Callable[[str], int]]] = {
    "import": only_import,
    "load": load,
    "load with body": load_with_body,
    "records": read_records,
}


def measure(step: str, url: str) -> None:
    """Print the seconds of a step, its number of memories and the peak memory as JSON."""
    started = time.perf_counter()
    count = STEPS[step](url)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([seconds, count, peak]))


def print_steps(system: str, url: str) -> None:
    """Measure each step in a process of its own, and print the costs."""
    for step in STEPS:
        command = [sys.executable, __file__, "--step", step, "--url", url]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, count, peak = json.loads(run.stdout)
        promise = f"  (promised {PROMISED_SECONDS[system]:.0f} s)" if step == "load" else ""
        print(
            f"{system:<9} {step:<15} {seconds:7.2f} s  {peak:6,.0f} MB  {count:,}{promise}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        measure(options.step, options.url)
        return
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as redis:
        with redis.client() as client:
            fill_betterdb(client, options.memories, options.dimensions)
        print_steps("betterdb", redis.url)
    with postgres_server() as postgres:
        database = postgres.new_database()
        with postgres.connect(database) as connection:
            fill_memforge(connection, options.memories, options.dimensions)
        print_steps("memforge", postgres.url(database))


if __name__ == "__main__":
    main()
