"""Processes write on a server while plans are made, applied and taken back: nothing is lost."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from betterdb_store import exact
from click.testing import CliRunner
from memforge_store import create_tables
from owners import SEARCHING_SERVER
from programs import Children
from servers import REDIS, PostgresServer, RedisServer, postgres_server, redis_server

import memlab
from memlab.cli import main
from memlab.compaction import archived_rows
from memlab.errors import ArchiveError, StalePlanError, StoreError
from proof import server_writing
from proof.server_writing import AGENT, Written

WRITERS = 4
STEPS = int(os.environ.get("MEMLAB_PUTS", "150"))
"""Writes and reads of each, at least."""


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def redis(scratch: Path) -> Iterator[RedisServer]:
    pytest.importorskip("betterdb_agent_memory")
    with redis_server(scratch, program=SEARCHING_SERVER or REDIS) as server:
        yield server


@pytest.fixture
def memforge() -> Iterator[tuple[PostgresServer, str]]:
    with postgres_server() as server:
        name = server.new_database()
        with server.connect(name) as connection:
            create_tables(connection)
            connection.execute("INSERT INTO agents (id) VALUES (%s)", (AGENT,))
        yield server, name


def test_betterdbs_memories_are_there_whole_or_in_the_archive(
    redis: RedisServer, children: Children
) -> None:
    told = {"socket": str(redis.socket), "steps": 4 * STEPS}
    written, deleted = raced(redis.url, children, server_writing.write_betterdb, told)
    with redis.client() as client:
        there = {key.decode(): fields for key, (fields, _) in exact(client).items()}
        evictions = int(client.hget(f"{server_writing.NAME}:__mem_stats", "evictions") or 0)
    memories = {key: fields for key, fields in there.items() if b"content" in fields}
    contents = {key: fields[b"content"].decode() for key, fields in memories.items()}
    assert contents == {k: v for each in written for k, v in each.contents.items()}
    assert {len(fields[b"vector"]) for fields in memories.values()} == {32}
    assert {len(fields) for fields in memories.values()} == {6}
    of_recalls = {b"access_count", b"last_accessed_at"}
    assert all(fields.keys() <= of_recalls for key, fields in there.items() if key not in memories)
    assert evictions == deleted


def test_memforges_memories_are_there_whole_or_in_the_archive(
    memforge: tuple[PostgresServer, str], children: Children
) -> None:
    server, name = memforge
    url = server.url(name)
    told = {"url": url, "steps": STEPS}
    written, _ = raced(url, children, server_writing.write_memforge, told)
    with server.connect(name) as connection:
        contents = dict(connection.execute("SELECT id, content FROM warm_tier").fetchall())
        log = connection.execute("SELECT warm_tier_id, count(*) FROM retrieval_log GROUP BY 1")
        uses = Counter(dict(log.fetchall()))
        counts = dict(connection.execute("SELECT id, access_count FROM warm_tier").fetchall())
        links = set(connection.execute("SELECT cause_id, effect_id FROM causal_edges").fetchall())
        cold = connection.execute("SELECT count(*) FROM cold_tier").fetchone()
    assert contents == {k: v for each in written for k, v in each.contents.items()}
    assert uses == Counter({k: used for each in written for k, used in each.uses.items()})
    assert counts == dict(uses) | {key: 0 for key in contents if key not in uses}
    assert links == {pair for each in written for pair in each.links}
    assert cold == (0,)


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
