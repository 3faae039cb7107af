"""Harvest of reads from SQLite files and PostgreSQL.

The tables are made after the systems' own statements; LangGraph's own code writes its store where
it is installed. Databases that claude-mem and mcp-memory-service wrote are read in
``tests/sources``.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from memlab import columns as c
from memlab.errors import MemlabError
from memlab.evidence import Harvest, harvest, read_access_log
from memlab.sources.transcripts import FAILED
from memlab.systems import langgraph, mcp_memory
from tests.support.memforge_store import add_memory, create_tables
from tests.support.servers import PostgresServer, postgres_server
from tests.support.stores import files_in, run_sql
from tests.support.transcripts import SLUG, Session, World

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


def logged(log: Path) -> list[tuple[str, datetime]]:
    return [*read_access_log(log)[[c.MEMORY_ID, c.AT]].itertuples(index=False, name=None)]


def ids_of(harvested: Harvest) -> list[str]:
    return [memory for memory, _ in logged(harvested.log)]


class TestClaudeMem:
    TOOL = "mcp__plugin_claude-mem_mcp-search__get_observations"

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        path = tmp_path / ".claude-mem" / "claude-mem.db"
        path.parent.mkdir()
        run_sql(
            path,
            "PRAGMA journal_mode = WAL",
            "CREATE TABLE sdk_sessions (content_session_id TEXT, memory_session_id TEXT UNIQUE)",
            "CREATE TABLE observations (id INTEGER PRIMARY KEY, memory_session_id TEXT)",
            "CREATE VIRTUAL TABLE observations_fts USING fts5(title)",
            "INSERT INTO sdk_sessions VALUES ('content-1', 'memory-1'), (NULL, 'memory-2')",
            "INSERT INTO observations VALUES (1, 'memory-1'), (5, 'memory-2'), (6, 'memory-2')",
        )
        return path

    def harvested(self, source: Path, *calls: tuple[str, Any], tool: str = TOOL) -> Harvest:
        """Harvest sessions that call a tool with ids; a call with None fails."""
        world = World(source.parents[1], 0)
        sessions = {name: Session(world, name, SLUG) for name, _ in calls}
        for name, ids in calls:
            if ids is None:
                sessions[name].call(tool, {"ids": [5]}, error=True)
            else:
                sessions[name].call(tool, {"ids": ids})
        for session in sessions.values():
            world._save(session)
        return harvest(source, source.parents[1] / "reads.log")

    def test_fetch_reads_all_requested_ids_except_own_session(self, source: Path) -> None:
        """claude-mem also accepts ids as one text."""
        before = files_in(source.parent)
        five_and_six = ([5, "6", 5], "[5,6]", "5,6", " 5 , 6 ", '["5", 6]')
        calls: list[tuple[str, Any]] = [("s1", ids) for ids in five_and_six]
        calls.append(("s1", "7"))
        calls.append(("content-1", [1, 5]))  # this session wrote 1
        harvested = self.harvested(source, *calls, tool="get_observations")
        assert harvested.system == "claude-mem"
        assert ids_of(harvested) == [*["5", "6"] * len(five_and_six), "7", "5"]
        assert harvested.excluded == {"own session": 1}
        assert files_in(source.parent) == before
        assert harvest(source.parent, harvested.log).new == 0

    @pytest.mark.parametrize("tool", [TOOL, "mcp__x__timeline", "my_get_observations"])
    def test_malformed_ids_and_other_tools_give_no_reads(self, source: Path, tool: str) -> None:
        malformed = [None, {}, "x", -1, 2.5, "9" * 5_000]
        asked: tuple[Any, ...] = (None, "five,-5,,5.5", malformed, "[" * 9_000)
        calls = [("s1", ids) for ids in asked]
        harvested = self.harvested(source, *calls, tool=tool)
        assert harvested.reads == 0
        assert harvested.left_out == ({FAILED: 1} if tool == self.TOOL else {})


class TestMcpMemory:
    CREATE = """
    CREATE TABLE memories (
        id INTEGER PRIMARY KEY AUTOINCREMENT, content_hash TEXT UNIQUE, content TEXT, tags TEXT,
        memory_type TEXT, metadata TEXT, created_at REAL, updated_at REAL, deleted_at REAL,
        store TEXT DEFAULT 'default', superseded_by TEXT
    )"""

    def make(self, folder: Path, **metadata: Any) -> Path:
        path = folder / "sqlite_vec.db"
        insert = "INSERT INTO memories (content_hash, metadata)"
        statements = [self.CREATE]
        for name, value in metadata.items():
            text = value if isinstance(value, str) else json.dumps(value)
            statements.append(f"{insert} VALUES ('{name}', '{text}')")
        run_sql(path, *statements)
        return path

    def queries(self, *hours: float) -> dict[str, Any]:
        seconds = [(NOON + timedelta(hours=hour)).timestamp() for hour in hours]
        asked = [{"query": "q", "timestamp": second} for second in seconds]
        return {"access_count": 99, "access_queries": asked}

    def test_stored_access_queries_are_reads(self, tmp_path: Path) -> None:
        source = self.make(tmp_path, a=self.queries(0, 2), b=self.queries(1), c={"x": 1})
        harvested = harvest(f"mcp-memory:{source}")
        assert harvested.system == "mcp-memory-service"
        assert harvested.source == str(source)
        assert logged(harvested.log) == [
            ("a", NOON),
            ("b", NOON + timedelta(hours=1)),
            ("a", NOON + timedelta(hours=2)),
        ]
        assert not any("last 10" in note for note in harvested.notes)
        ten = json.dumps(self.queries(*range(7, 17)))
        run_sql(source, f"UPDATE memories SET metadata = '{ten}' WHERE content_hash = 'a'")
        second_harvest = harvest(source)
        assert second_harvest.notes[0].startswith("of 1 memory the last 10 queries are shown")
        assert second_harvest.new == 10
        assert second_harvest.kept == 2

    def test_unreadable_access_queries_are_counted(self, tmp_path: Path) -> None:
        without_time = [{"query": "q"}, {"timestamp": "noon"}, {"timestamp": 1e300}, 7]
        source = self.make(
            tmp_path,
            broken='{"access_queries": [',
            without_time={"access_queries": without_time},
            no_list={"access_queries": {"timestamp": 1.0}},
            no_object='["access_queries"]',
        )
        harvested = harvest(source)
        assert harvested.reads == 0
        assert harvested.left_out == {
            mcp_memory.WITHOUT_TIME: len(without_time),
            mcp_memory.BROKEN: 1,
        }


class TestLangGraph:
    CREATE = """
    CREATE TABLE store (
        prefix text NOT NULL, key text NOT NULL, value text NOT NULL,
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, expires_at TIMESTAMP, ttl_minutes REAL,
        PRIMARY KEY (prefix, key)
    )"""
    INSERT = (
        "INSERT INTO store (prefix, updated_at, key, value, expires_at, ttl_minutes) "
        "VALUES ('users.1', '2026-08-01 12:00:00', {})"
    )
    ROWS = (
        "'read', '{}', '2026-08-01 15:00:00', 60",
        "'written', '{}', '2026-08-01 13:00:00.463562+00:00', 60",
        "'for good', '{}', NULL, NULL",
    )

    def test_each_extended_expiry_is_one_read(self, tmp_path: Path) -> None:
        source = tmp_path / "store.db"
        run_sql(source, self.CREATE)
        for values in (*self.ROWS, "'odd', '{}', 'soon', 60"):
            run_sql(source, self.INSERT.format(values))
        harvested = harvest(source)
        assert harvested.system == "LangGraph"
        read_at = NOON + timedelta(hours=3) - timedelta(minutes=60)  # its expiry less its TTL
        assert logged(harvested.log) == [("users.1/read", read_at)]
        not_read = (langgraph.NOT_READ, langgraph.WITHOUT_EXPIRY, langgraph.WITHOUT_TIME)
        assert harvested.left_out == dict.fromkeys(not_read, 1)
        run_sql(source, "UPDATE store SET expires_at = '2026-08-01 17:00:00' WHERE key = 'read'")
        second_harvest = harvest(source)
        assert second_harvest.new == 1
        assert second_harvest.kept == 1
        assert len(logged(harvested.log)) == 2
        assert harvest(source).new == 0

    def test_store_written_by_langgraph_is_harvested(self, tmp_path: Path) -> None:
        sqlite = pytest.importorskip("langgraph.store.sqlite")
        path = tmp_path / "store.db"
        with closing(connect(path, check_same_thread=False, isolation_level=None)) as connection:
            ttl = {"refresh_on_read": True, "default_ttl": 60}
            store = sqlite.SqliteStore(connection, ttl=ttl)
            store.setup()
            store.put(("users", "1"), "a", {"text": "a"}, ttl=60)
            store.put(("users", "1"), "b", {"text": "b"}, ttl=60)
            store.put(("users", "1"), "c", {"text": "c"}, ttl=None)
            one_hour_earlier = (
                "UPDATE store SET updated_at = datetime(updated_at, '-1 hour'), "
                "expires_at = datetime(expires_at, '-1 hour')"
            )
            connection.execute(one_hour_earlier)
            store.get(("users", "1"), "a")
        assert ids_of(harvest(path)) == ["users.1/a"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


def test_memforge_retrievals_are_reads_filtered_by_agent(
    server: PostgresServer, tmp_path: Path
) -> None:
    name = server.new_database()
    with server.connect(name) as connection:
        create_tables(connection)
        first = add_memory(connection, "a")
        other = add_memory(connection, "b")
        retrieved = [("a", first), ("b", other), ("a", first)]
        for day, (agent, memory) in enumerate(retrieved, 1):
            connection.execute(
                "INSERT INTO retrieval_log (agent_id, warm_tier_id, query_text, created_at) "
                "VALUES (%s, %s, 'q', %s)",
                (agent, memory, f"2026-08-0{day}T00:00:00+02:00"),
            )
    harvested = harvest(server.url(name), tmp_path / "reads.log")
    assert harvested.system == "MemForge"
    assert ids_of(harvested) == ["1", "2", "1"]
    assert harvest(server.url(name), harvested.log).new == 0
    harvested = harvest(f"{server.url(name)}&agent=b", tmp_path / "b.log")
    assert ids_of(harvested) == ["2"]
    assert harvested.chances.startswith("1 memory: 1 read")


def test_langgraph_store_on_postgresql_is_harvested(server: PostgresServer, tmp_path: Path) -> None:
    name = server.new_database()
    with server.connect(name) as connection:
        with pytest.raises(MemlabError, match="neither MemForge's retrieval_log nor LangGraph's"):
            harvest(server.url(name), tmp_path / "reads.log")
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute(TestLangGraph.CREATE.replace("_at TIMESTAMP", "_at TIMESTAMPTZ"))
        for values in TestLangGraph.ROWS:
            connection.execute(TestLangGraph.INSERT.format(values))
    harvested = harvest(server.url(name), tmp_path / "reads.log")
    assert harvested.system == "LangGraph"
    assert ids_of(harvested) == ["users.1/read"]
    assert harvested.left_out == {langgraph.NOT_READ: 1, langgraph.WITHOUT_EXPIRY: 1}
