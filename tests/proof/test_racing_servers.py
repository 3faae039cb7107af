"""Plans on a server while other processes write: nothing is lost.

Two memlab may do so at once, too, on a store that memlab has deleted nothing of yet.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import memlab
from memlab.cli import main
from memlab.compaction import archived_plans, archived_rows
from memlab.errors import ArchiveError, StalePlanError, StoreError
from tests.proof.tasks import apply_in_steps, wait_for
from tests.support.betterdb_store import NAME, START_MS, exact
from tests.support.memforge_store import add_memory, create_tables
from tests.support.owners import SEARCHING_SERVER
from tests.support.programs import Children
from tests.support.servers import REDIS, postgres_server, redis_server

WRITERS = 4
STEPS = int(os.environ.get("MEMLAB_PUTS", "150"))
"""Least number of writes and reads of each process."""
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
    """The report of one writer."""

    contents: dict[Any, str] = field(default_factory=dict)
    """Last written content of each memory that still exists for the writer."""
    uses: dict[Any, int] = field(default_factory=dict)
    """Number of recorded reads of each memory."""
    links: list[tuple[Any, Any]] = field(default_factory=list)
    """Linked pairs of memories."""

    def random_memories(self, rng: random.Random, count: int) -> list[Any]:
        """Return random memories of this writer, the newest more often."""
        newest_first = list(reversed(self.contents))
        places = [int(len(newest_first) * rng.random() ** 2) for _ in range(count)]
        return [newest_first[place] for place in places]


def write_betterdb(socket: str, writer: int, steps: int) -> Written:
    """Remember, recall, revise and forget memories by the commands of the package."""
    import valkey
    from betterdb_agent_memory.build_memory_record import build_memory_record

    rng = random.Random(writer)
    written = Written()
    client = valkey.Valkey(unix_socket_path=socket)
    # The usage that a recall leaves of a deleted memory is not a memory.
    unless_present = "if redis.call('HEXISTS', KEYS[1], 'content') == 0 then return 0 end "
    revise = client.register_script(
        f"{unless_present} redis.call('HSET', KEYS[1], 'content', ARGV[1]) return 1"
    )
    forget = client.register_script(f"{unless_present} return redis.call('DEL', KEYS[1])")
    for step in range(steps):
        time.sleep(rng.uniform(0, 0.01))
        content = f"writer {writer}, step {step}"
        match rng.choices(["remember", "recall", "revise", "forget"], [30, 60, 5, 5])[0]:
            case "remember":
                record = build_memory_record(
                    NAME, f"w{writer}-{step}", content, [0.5] * 8, now=START_MS + step
                )
                client.hset(record.key, items=record.fields)
                written.contents[record.key] = content
            case "recall" if written.contents:
                for key in written.random_memories(rng, 8):
                    if client.exists(key):
                        client.hset(key, "last_accessed_at", str(START_MS + step))
                        client.hincrby(key, "access_count", 1)
            case "revise" if written.contents:
                (key,) = written.random_memories(rng, 1)
                if revise([key], [content]):
                    written.contents[key] = content
            case "forget" if written.contents:
                (key,) = written.random_memories(rng, 1)
                if forget([key]):
                    del written.contents[key]
    return written


def write_memforge(url: str, writer: int, steps: int) -> Written:
    """Consolidate, retrieve and relate, by statements like MemForge's."""
    import psycopg

    rng = random.Random(writer)
    written = Written()
    with psycopg.connect(url, autocommit=True) as connection:

        def rows_written(*statements: str, **values: Any) -> int:
            """Count the rows that the last statement wrote; none for a lost or locked memory."""
            try:
                with connection.transaction():
                    for statement in statements:
                        cursor = connection.execute(statement, values)
                    return cursor.rowcount
            except (psycopg.IntegrityError, psycopg.errors.DeadlockDetected):
                return 0

        for step in range(steps):
            time.sleep(rng.uniform(0, 0.06))
            if rng.random() < 0.4 or not written.contents:
                content = f"writer {writer}, step {step}"
                memory = add_memory(connection, AGENT, content=content, importance=rng.random())
                written.contents[memory] = content
                written.uses[memory] = 0
                continue
            memory, other = written.random_memories(rng, 2)
            if rng.random() < 0.7:
                written.uses[memory] += rows_written(_READ, _LOG, memory=memory, agent=AGENT)
            elif rows_written(_RELATE, agent=AGENT, memory=memory, other=other):
                written.links.append((memory, other))
    return written


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_racing_betterdb_memories_are_stored_or_archived(scratch: Path, children: Children) -> None:
    pytest.importorskip("betterdb_agent_memory")
    with redis_server(scratch, program=SEARCHING_SERVER or REDIS) as server:
        arguments = {"socket": str(server.socket), "steps": 4 * STEPS}
        race = run_race(server.url, children, write_betterdb, arguments)
        with server.client() as client:
            hashes = {key.decode(): memory.fields for key, memory in exact(client).items()}
            evictions = int(client.hget(f"{NAME}:__mem_stats", "evictions") or 0)
    memories = {key: fields for key, fields in hashes.items() if b"content" in fields}
    contents = {key: fields[b"content"].decode() for key, fields in memories.items()}
    assert contents == race.contents
    for fields in memories.values():
        assert len(fields) == 6
        assert len(fields[b"vector"]) == 32
    usage_fields = {b"access_count", b"last_accessed_at"}
    for key in hashes.keys() - memories.keys():
        assert hashes[key].keys() <= usage_fields
    assert evictions == race.deleted


def test_racing_memforge_memories_are_stored_or_archived(children: Children) -> None:
    with postgres_server() as server, server.connect() as connection:
        create_tables(connection)
        connection.execute("INSERT INTO agents (id) VALUES (%s)", (AGENT,))
        url = server.url("postgres")
        race = run_race(url, children, write_memforge, {"url": url, "steps": STEPS})

        def rows(query: str) -> list[tuple[Any, ...]]:
            fetched: list[tuple[Any, ...]] = connection.execute(query).fetchall()
            return fetched

        contents = dict(rows("SELECT id, content FROM warm_tier"))
        log = dict(rows("SELECT warm_tier_id, count(*) FROM retrieval_log GROUP BY 1"))
        counts = dict(rows("SELECT id, access_count FROM warm_tier WHERE access_count > 0"))
        links = set(rows("SELECT cause_id, effect_id FROM causal_edges"))
        cold = rows("SELECT id FROM cold_tier")
    assert contents == race.contents
    uses = {memory: count for memory, count in race.uses.items() if count}
    assert log == uses
    assert counts == uses
    assert links == race.links
    assert cold == []


@dataclass
class Race:
    """The reports of all writers, and what memlab deleted meanwhile."""

    reports: list[Written]
    deleted: int
    """Number of memories that were deleted, also those that were restored."""

    @property
    def contents(self) -> dict[Any, str]:
        """Last written content of each memory."""
        contents: dict[Any, str] = {}
        for report in self.reports:
            contents |= report.contents
        return contents

    @property
    def uses(self) -> dict[Any, int]:
        """Number of recorded reads of each memory."""
        uses: dict[Any, int] = {}
        for report in self.reports:
            uses |= report.uses
        return uses

    @property
    def links(self) -> set[tuple[Any, Any]]:
        """Linked pairs of memories."""
        links: set[tuple[Any, Any]] = set()
        for report in self.reports:
            links |= set(report.links)
        return links


def run_race(url: str, children: Children, write: Any, arguments: dict[str, Any]) -> Race:
    """Plan, apply and restore until every writer has ended, then restore everything."""
    pids = [children.start(write, writer=writer, **arguments) for writer in range(WRITERS)]
    deleted = 0
    plans = 0
    applied: list[memlab.Receipt] = []
    disturbed: list[memlab.Receipt] = []
    writing_still = True
    while writing_still:
        writing_still = children.any_running(pids)  # so that the last plan is made without writers
        try:
            receipt = memlab.apply(memlab.plan(url, memlab.KeepRecent(9)))
        except (StalePlanError, StoreError):
            continue
        plans += 1
        deleted += receipt.deleted
        if receipt.deleted:
            applied.append(receipt)
        if applied and plans % 3 == 0:
            with suppress(StalePlanError, StoreError):
                try:
                    memlab.restore(applied[-1])
                except ArchiveError:  # a writer revised or forgot a memory just after its restore
                    disturbed.append(applied[-1])
                applied.pop()
    ended = [children.wait(pid) for pid in pids]
    assert [child.error for child in ended] == [None] * WRITERS
    for receipt in reversed(applied):  # links were deleted with their first memory
        memlab.restore(receipt)
    race = Race([child.result for child in ended], deleted)
    keys_of_writers = tuple(str(key) for key in race.contents)
    for receipt in disturbed:
        frame = archived_rows(url)
        archived_ids = set(frame.memory_id[frame.digest == receipt.digest])
        missing_ids = archived_ids - set(memlab.load(url).memory_id)
        wanted_ids = [
            memory_id
            for memory_id in missing_ids
            if any(key.endswith(memory_id) for key in keys_of_writers)
        ]
        memlab.restore(receipt, ids=wanted_ids)
    checked = CliRunner().invoke(main, ["doctor", url])
    assert "cut short" not in checked.output
    assert deleted > 0
    return race


MEMORIES = 30
RACES = int(os.environ.get("MEMLAB_RACES", "8"))


class TwoOnOneStore:
    """A server store of thirty memories without an archive, for two processes to compact."""

    def __init__(
        self,
        url: str,
        folder: Path,
        contents: Callable[[], dict[str, str]],
        revise: Callable[[], None],
    ) -> None:
        self.folder = folder
        self.archive = folder / "own" / "store.archive.db"
        separator = "&" if "?" in url else "?"
        self.url = f"{url}{separator}archive={self.archive}"
        self.contents = contents
        """Returns the content of every memory on the server by its id."""
        self.revise = revise
        """Writes the oldest memory anew, so that a plan that deletes it is refused."""

    def plan(self, keep: int) -> str:
        return memlab.plan(self.url, memlab.KeepRecent(keep)).to_json()

    def start(
        self, children: Children, name: str, plan: str, step: str, *, delay: float = 0.0
    ) -> int:
        """Start a process that applies a plan and waits at a step; return its id."""
        pid: int = children.start(
            apply_in_steps,
            url=self.url,
            text=plan,
            stop_at=step,
            reached=self.folder / f"{name}.reached",
            go_on=self.folder / f"{name}.go",
            delay=delay,
        )
        return pid

    def wait(self, name: str, seconds: float) -> bool:
        """Wait until a process is at its step; return whether it is."""
        return wait_for(self.folder / f"{name}.reached", seconds)

    def go_on(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def assert_nothing_lost(self, before: dict[str, str]) -> None:
        """Assert that every memory is on the server or can be restored from the archive."""
        contents = self.contents()
        deleted = before.keys() - contents.keys()
        if deleted:
            assert deleted <= set(archived_rows(self.url).memory_id)
            for entry in reversed(archived_plans(self.url)):
                with suppress(ArchiveError):  # everything is present
                    memlab.restore(entry.digest, store=self.url)
        assert self.contents().keys() == before.keys()

    def assert_tidy(self) -> None:
        remaining_files = {path.name for path in self.archive.parent.iterdir()}
        assert remaining_files <= {self.archive.name}


@pytest.fixture(params=["redis", "postgresql"])
def two(request: pytest.FixtureRequest, scratch: Path) -> Iterator[TwoOnOneStore]:
    if request.param == "redis":
        pytest.importorskip("betterdb_agent_memory")
        from betterdb_agent_memory.build_memory_record import build_memory_record

        with redis_server(scratch) as server, server.client() as client:
            for number in range(MEMORIES):
                content = f"memory {number}"
                record = build_memory_record(
                    NAME, f"m{number:02}", content, [0.5] * 8, now=START_MS + number
                )
                client.hset(record.key, items=record.fields)
            client.hset("__betterdb:caches", f"{NAME}:mem", "{}")

            def contents() -> dict[str, str]:
                keys = list(client.scan_iter(f"{NAME}:mem:*"))
                return {key.decode().split(":")[-1]: client.hget(key, "content") for key in keys}

            def revise() -> None:
                client.hset(f"{NAME}:mem:m00", "content", "revised")

            yield TwoOnOneStore(f"{server.url}?name={NAME}", scratch, contents, revise)
        return
    with postgres_server() as server, server.connect() as connection:
        create_tables(connection)
        connection.execute("INSERT INTO agents (id) VALUES (%s)", (AGENT,))
        for number in range(MEMORIES):
            add_memory(connection, AGENT, content=f"memory {number}")

        def rows() -> dict[str, str]:
            return dict(connection.execute("SELECT id::text, content FROM warm_tier").fetchall())

        def revise_row() -> None:
            connection.execute("UPDATE warm_tier SET content = 'revised' WHERE id = 1")

        yield TwoOnOneStore(server.url("postgres"), scratch, rows, revise_row)


@pytest.mark.parametrize("step", ["locked", "checked", "copied", "archived"])
def test_archive_is_kept_if_its_creator_is_rejected(
    two: TwoOnOneStore, children: Children, step: str
) -> None:
    """The first process creates the file and is rejected while the second fills it."""
    before = two.contents()
    first = two.start(children, "first", two.plan(3), "locked")
    assert two.wait("first", 20)
    two.revise()
    second = two.start(children, "second", two.plan(4), step)
    two.wait("second", 1)
    two.go_on("first")
    assert children.wait(first).result.startswith("refused")
    two.go_on("second")
    assert "refused" not in children.wait(second).result
    two.assert_nothing_lost(before)
    two.assert_tidy()


@pytest.mark.parametrize("step", ["locked", "checked", "copied", "archived", "deleted"])
@pytest.mark.parametrize("is_same", [False, True], ids=["two plans", "one plan"])
def test_copies_of_a_running_deletion_are_not_erased(
    two: TwoOnOneStore, children: Children, step: str, is_same: bool
) -> None:
    """The second process sees copies of present memories and must not erase them."""
    plan = two.plan(3)
    second_plan = plan if is_same else two.plan(20)
    before = two.contents()
    first = two.start(children, "first", plan, step)
    assert two.wait("first", 20)
    second = two.start(children, "second", second_plan, "none")
    time.sleep(0.5)
    two.go_on("first")
    first_ended = children.wait(first)
    second_ended = children.wait(second)
    assert first_ended.error is None
    assert second_ended.error is None
    assert "refused" not in first_ended.result
    two.assert_nothing_lost(before)
    two.assert_tidy()


def test_two_concurrent_plans_lose_nothing(two: TwoOnOneStore, children: Children) -> None:
    rng = random.Random(35)
    before = two.contents()
    for number in range(RACES):
        plans = [two.plan(3 + number % 2), two.plan(9)]
        pids = [
            two.start(children, f"{number}-{process}", plan, "none", delay=rng.uniform(0, 0.02))
            for process, plan in enumerate(plans)
        ]
        ended = [children.wait(pid) for pid in pids]
        assert [child.error for child in ended] == [None, None]
        two.assert_nothing_lost(before)
        two.archive.unlink(missing_ok=True)
