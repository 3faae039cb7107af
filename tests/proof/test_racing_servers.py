"""Processes write on a server while plans are made, applied and taken back: nothing is lost."""

import os
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from betterdb_store import NAME, START_MS, exact
from click.testing import CliRunner
from memforge_store import add_memory, create_tables
from owners import SEARCHING_SERVER
from programs import Children
from servers import REDIS, postgres_server, redis_server

import memlab
from memlab.cli import main
from memlab.compaction import archived_rows
from memlab.errors import ArchiveError, StalePlanError, StoreError

WRITERS = 4
STEPS = int(os.environ.get("MEMLAB_PUTS", "150"))
"""Writes and reads of each, at least."""
AGENT = "a"
_READ = (
    "UPDATE warm_tier SET access_count = access_count + 1, last_accessed = now() "
    "WHERE id = %(memory)s"
)
_LOG = (
    "INSERT INTO retrieval_log (agent_id, warm_tier_id, query_text) "
    "VALUES (%(agent)s, %(memory)s, 'why')"
)
_RELATE = (
    "INSERT INTO causal_edges (agent_id, cause_id, effect_id) "
    "VALUES (%(agent)s, %(memory)s, %(other)s) ON CONFLICT DO NOTHING"
)


@dataclass
class Written:
    """What one writer did, in its own words."""

    contents: dict[Any, str] = field(default_factory=dict)
    """By memory, as it wrote it last and was not told that it is gone."""
    uses: dict[Any, int] = field(default_factory=dict)
    """By memory, how many of its reads were taken down."""
    links: list[tuple[Any, Any]] = field(default_factory=list)
    """Pairs of memories between which it wrote something."""

    def some(self, rng: random.Random, count: int) -> list[Any]:
        """Of its memories, whatever became of them; of the newest more often than of the others."""
        known = list(self.contents)
        return [known[-1 - int(len(known) * rng.random() ** 2)] for _ in range(count)]


def write_betterdb(socket: str, writer: int, steps: int) -> Written:
    """Remember, recall, revise and forget, by the commands that the package sends."""
    import valkey
    from betterdb_agent_memory.build_memory_record import build_memory_record

    rng, written = random.Random(writer), Written()
    client = valkey.Valkey(unix_socket_path=socket)
    # What a recall leaves of a memory that went meanwhile is no memory of the writer's.
    there = "if redis.call('HEXISTS', KEYS[1], 'content') == 0 then return 0 end "
    revise = client.register_script(
        f"{there} redis.call('HSET', KEYS[1], 'content', ARGV[1]) return 1"
    )
    forget = client.register_script(f"{there} return redis.call('DEL', KEYS[1])")
    for step in range(steps):
        time.sleep(rng.uniform(0, 0.01))
        content = f"writer {writer}, step {step}"
        match rng.choices(["remember", "recall", "revise", "forget"], [30, 60, 5, 5])[0]:
            case "remember":
                made = build_memory_record(
                    NAME, f"w{writer}-{step}", content, [0.5] * 8, now=START_MS + step
                )
                client.hset(made.key, items=made.fields)
                written.contents[made.key] = content
            case "recall" if written.contents:
                for key in written.some(rng, 8):
                    if client.exists(key):
                        client.hset(key, "last_accessed_at", str(START_MS + step))
                        client.hincrby(key, "access_count", 1)
            case "revise" if written.contents:
                (key,) = written.some(rng, 1)
                if revise([key], [content]):
                    written.contents[key] = content
            case "forget" if written.contents:
                (key,) = written.some(rng, 1)
                if forget([key]):
                    del written.contents[key]
    return written


def write_memforge(url: str, writer: int, steps: int) -> Written:
    """Consolidate, retrieve and relate, by statements like MemForge's."""
    import psycopg

    rng, written = random.Random(writer), Written()
    with psycopg.connect(url, autocommit=True) as connection:

        def done(*statements: str, **values: Any) -> int:
            """How many rows the last one wrote; none where the memory is gone or held by others."""
            try:
                with connection.transaction():
                    return [connection.execute(each, values) for each in statements][-1].rowcount
            except (psycopg.IntegrityError, psycopg.errors.DeadlockDetected):
                return 0

        for step in range(steps):
            time.sleep(rng.uniform(0, 0.06))
            if rng.random() < 0.4 or not written.contents:
                content = f"writer {writer}, step {step}"
                memory = add_memory(connection, AGENT, content=content, importance=rng.random())
                written.contents[memory], written.uses[memory] = content, 0
                continue
            memory, other = written.some(rng, 2)
            if rng.random() < 0.7:
                written.uses[memory] += done(_READ, _LOG, memory=memory, agent=AGENT)
            elif done(_RELATE, agent=AGENT, memory=memory, other=other):
                written.links.append((memory, other))
    return written


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_betterdbs_memories_are_there_whole_or_in_the_archive(
    scratch: Path, children: Children
) -> None:
    pytest.importorskip("betterdb_agent_memory")
    with redis_server(scratch, program=SEARCHING_SERVER or REDIS) as server:
        told = {"socket": str(server.socket), "steps": 4 * STEPS}
        written, deleted = raced(server.url, children, write_betterdb, told)
        with server.client() as client:
            there = {key.decode(): fields for key, (fields, _) in exact(client).items()}
            evictions = int(client.hget(f"{NAME}:__mem_stats", "evictions") or 0)
    memories = {key: fields for key, fields in there.items() if b"content" in fields}
    contents = {key: fields[b"content"].decode() for key, fields in memories.items()}
    assert contents == {k: v for each in written for k, v in each.contents.items()}
    assert {(len(fields), len(fields[b"vector"])) for fields in memories.values()} == {(6, 32)}
    of_recalls = {b"access_count", b"last_accessed_at"}
    assert all(fields.keys() <= of_recalls for key, fields in there.items() if key not in memories)
    assert evictions == deleted


def test_memforges_memories_are_there_whole_or_in_the_archive(children: Children) -> None:
    with postgres_server() as server, server.connect() as connection:
        create_tables(connection)
        connection.execute("INSERT INTO agents (id) VALUES (%s)", (AGENT,))
        url = server.url("postgres")
        written, _ = raced(url, children, write_memforge, {"url": url, "steps": STEPS})

        def rows(query: str) -> list[tuple[Any, ...]]:
            found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
            return found

        contents = dict(rows("SELECT id, content FROM warm_tier"))
        log = rows("SELECT warm_tier_id, count(*) FROM retrieval_log GROUP BY 1")
        counts = rows("SELECT id, access_count FROM warm_tier WHERE access_count > 0")
        links = set(rows("SELECT cause_id, effect_id FROM causal_edges"))
        cold = rows("SELECT id FROM cold_tier")
    assert contents == {k: v for each in written for k, v in each.contents.items()}
    uses = {k: used for each in written for k, used in each.uses.items() if used}
    assert dict(log) == dict(counts) == uses
    assert links == {pair for each in written for pair in each.links}
    assert cold == []


def raced(
    url: str, children: Children, write: Any, told: dict[str, Any]
) -> tuple[list[Written], int]:
    """Plan, apply and restore until every writer has ended, and take back what is gone then.

    Returns what each wrote, and how many memories went.
    """
    pids = [children.start(write, writer=writer, **told) for writer in range(WRITERS)]
    deleted, plans = 0, 0
    gone: list[memlab.Receipt] = []
    disturbed: list[memlab.Receipt] = []
    writing_still = True
    while writing_still:
        writing_still = children.any_running(pids)  # so the last plan is made in peace
        try:
            receipt = memlab.apply(memlab.plan(url, memlab.KeepRecent(9)))
        except (StalePlanError, StoreError):
            continue
        plans += 1
        deleted += receipt.deleted
        if receipt.deleted:
            gone.append(receipt)
        if gone and plans % 3 == 0:
            with suppress(StalePlanError, StoreError):
                try:
                    memlab.restore(gone[-1])
                except ArchiveError:  # a writer revised or forgot one in the moment it was back
                    disturbed.append(gone[-1])
                gone.pop()
    ended = [children.wait(pid) for pid in pids]
    assert [each.error for each in ended] == [None] * WRITERS
    for receipt in reversed(gone):  # what is between two memories went with the first of them
        memlab.restore(receipt)
    wanted = {str(key) for each in ended for key in each.result.contents}
    for receipt in disturbed:
        frame = archived_rows(url)
        left = set(frame.memory_id[frame.digest == receipt.digest]) - set(
            memlab.load(url).memory_id
        )
        memlab.restore(receipt, ids=[i for i in left if any(key.endswith(i) for key in wanted)])
    checked = CliRunner().invoke(main, ["doctor", url])
    assert "cut short" not in checked.output
    assert deleted > 0
    return [each.result for each in ended], deleted
