"""Time and memory of reading, archiving and putting back memories on servers.

    python .ci/bench/bench_servers.py [--memories 100000] [--dimensions 384]

BetterDB's hashes on a redis-server of its own, MemForge's rows on a PostgreSQL of its own, both on
this machine. Every step runs in a process of its own; memory is that process's peak, imports
included, and beside it what importing alone takes.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import memlab
from memlab.sources.base import read_consistent
from memlab.sources.opening import open_source
from tests.support.betterdb_store import NAME, START_MS
from tests.support.memforge_store import create_tables
from tests.support.servers import postgres_server, redis_server

TEXT = "the parser fails on tabs because a retry timed out when building docs; see the merge " * 4
PROMISED = {"betterdb": 15.0, "memforge": 5.0}
"""Seconds within which a hundred thousand memories are to be loaded."""


def fill_betterdb(client: Any, count: int, dimensions: int) -> None:
    """Write hashes as BetterDB does, vectors included."""
    client.config_set("appendfsync", "no")
    chance = np.random.default_rng(7)
    for start in range(0, count, 500):
        with client.pipeline(transaction=False) as pipe:
            for number in range(start, min(start + 500, count)):
                moment = str(START_MS + number)
                fields = {
                    "content": TEXT[: 100 + number % 200],
                    "vector": chance.random(dimensions, dtype=np.float32).tobytes(),
                    "importance": "0.5",
                    "created_at": moment,
                    "last_accessed_at": moment,
                    "access_count": "0",
                    "tags": f"merged,area{number % 30}",
                    "agentId": "a",
                }
                pipe.hset(f"{NAME}:mem:{UUID(bytes=chance.bytes(16))}", mapping=fields)
            pipe.execute()


def fill_memforge(connection: Any, count: int, dimensions: int) -> None:
    """Write rows as MemForge does, embeddings and a retrieval of every fourth included."""
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


def load(name: str) -> int:
    return len(memlab.load(name))


def load_with_body(name: str) -> int:
    return len(memlab.load(name, with_body=True))


def read_records(name: str) -> int:
    def look(reader: Any) -> int:
        rows = [rows.table for rows in reader.batches(with_body=False)]
        keys = [
            key
            for table in rows
            for key in table["key" if "key" in table.column_names else "position"].to_pylist()
        ]
        return sum(1 for _ in reader.records(keys))

    return read_consistent(open_source(name), look)


def nothing(name: str) -> int:
    return 0


STEPS: dict[str, Callable[[str], int]] = {
    "import": nothing,
    "load": load,
    "load with body": load_with_body,
    "records": read_records,
}


def measure(kind: str, name: str) -> Iterator[str]:
    for step in STEPS:
        run = subprocess.run(
            [sys.executable, __file__, "--step", step, "--name", name],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds, count, peak = json.loads(run.stdout)
        promise = f"  (promised {PROMISED[kind]:.0f} s)" if step == "load" else ""
        yield f"{kind:<9} {step:<15} {seconds:7.2f} s  {peak:6,.0f} MB  {count:,}{promise}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--step")
    parser.add_argument("--name")
    given = parser.parse_args()
    if given.step:
        began = time.perf_counter()
        count = STEPS[given.step](given.name)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps([time.perf_counter() - began, count, peak]))
        return
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as redis:
        with redis.client() as client:
            fill_betterdb(client, given.memories, given.dimensions)
        for line in measure("betterdb", redis.url):
            print(line, flush=True)
    with postgres_server() as postgres:
        name = postgres.new_database()
        with postgres.connect(name) as connection:
            fill_memforge(connection, given.memories, given.dimensions)
        for line in measure("memforge", postgres.url(name)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
