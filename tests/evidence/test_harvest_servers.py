"""Reads that other systems keep on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from memforge_store import add_memory, create_tables
from servers import PostgresServer, postgres_server

from memlab import columns as c
from memlab.errors import StoreError
from memlab.evidence.harvest.gather import harvest_reads
from memlab.evidence.harvest.langgraph import NOT_READ, WITHOUT_EXPIRY
from memlab.evidence.reads import read_access_log

LOGGED = (
    "INSERT INTO retrieval_log (agent_id, warm_tier_id, query_text, created_at) "
    "VALUES (%s, %s, 'q', %s)"
)
STORE = """
CREATE TABLE store (
    prefix text NOT NULL, key text NOT NULL, value jsonb NOT NULL,
    created_at TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP, expires_at TIMESTAMPTZ, ttl_minutes INT,
    PRIMARY KEY (prefix, key)
)"""
"""As LangGraph's migrations make it."""
PUT = (
    "INSERT INTO store (prefix, key, value, expires_at, ttl_minutes) "
    "VALUES ('users.1', %s, '{}', NOW() + %s * interval '1 minute', %s)"
)
READ = (
    "UPDATE store SET expires_at = NOW() + (ttl_minutes || ' minutes')::interval "
    "+ interval '1 hour' WHERE key = %s"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    name = server.new_database()
    yield name
    server.drop(name)


@pytest.fixture
def memforge(server: PostgresServer, database: str) -> Iterator[Any]:
    with server.connect(database) as connection:
        create_tables(connection)
        yield connection


def ids(log: Path) -> list[str]:
    return read_access_log(log)[c.MEMORY_ID].tolist()


def test_every_retrieval_is_a_read(
    server: PostgresServer, database: str, memforge: Any, tmp_path: Path
) -> None:
    memories = [add_memory(memforge, agent) for agent in ("a", "b")]
    for hour, memory in enumerate([*memories, memories[0]]):
        agent = "a" if memory == memories[0] else "b"
        memforge.execute(LOGGED, (agent, memory, f"2026-08-01T{hour:02}:00:00+02:00"))
    url, log = server.url(database), tmp_path / "reads.log"
    found = harvest_reads(url, log)
    assert found.way == "a MemForge database"
    assert ids(log) == [str(memory) for memory in (*memories, memories[0])]
    memforge.execute("DELETE FROM warm_tier WHERE id = %s", (memories[0],))
    memforge.execute(LOGGED, ("b", memories[1], "2026-08-02T00:00:00+00:00"))
    again = harvest_reads(url, log)
    assert (again.reads, again.new, again.kept) == (2, 1, 2)
    assert harvest_reads(url, log).new == 0


def test_a_url_may_name_one_agent(
    server: PostgresServer, database: str, memforge: Any, tmp_path: Path
) -> None:
    for agent in ("a", "b"):
        memforge.execute(LOGGED, (agent, add_memory(memforge, agent), "2026-08-01T00:00:00Z"))
    url = server.url(database)
    one = harvest_reads(f"{url}{'&' if '?' in url else '?'}agent=b", tmp_path / "b.log")
    assert (one.reads, ids(one.log)) == (1, ["2"])
    assert one.chances.startswith("1 memory: 1 read")
    assert harvest_reads(url, tmp_path / "all.log").reads == 2


def test_rows_that_a_role_may_not_see_are_said(
    server: PostgresServer, database: str, memforge: Any, tmp_path: Path
) -> None:
    memforge.execute(LOGGED, ("a", add_memory(memforge), "2026-08-01T00:00:00Z"))
    role = f"reader_{database}"
    memforge.execute(f"CREATE ROLE {role} LOGIN")
    memforge.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        url = server.url(database).replace("postgres:@", f"{role}:@")
        found = harvest_reads(url, tmp_path / "reads.log")
        assert found.reads == 0
        assert "row level security hides other agents' rows" in found.notes[0]
    finally:
        memforge.execute(f"DROP OWNED BY {role}")
        memforge.execute(f"DROP ROLE {role}")


def test_langgraphs_put_off_expiry_is_a_read(
    server: PostgresServer, database: str, tmp_path: Path
) -> None:
    with server.connect(database) as connection:
        connection.execute(STORE)
        for key, minutes in (("a", 60), ("b", 60), ("c", None)):
            connection.execute(PUT, (key, minutes, minutes))
        connection.execute(READ, ("a",))
    found = harvest_reads(server.url(database), tmp_path / "reads.log")
    assert found.way == "a LangGraph store"
    assert ids(found.log) == ["users.1/a"]
    assert found.left_out == {NOT_READ: 1, WITHOUT_EXPIRY: 1}


def test_a_database_of_something_else_is_said(
    server: PostgresServer, database: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="has neither MemForge's retrieval_log nor LangGraph's"):
        harvest_reads(server.url(database), tmp_path / "reads.log")


def test_a_server_that_is_not_there_is_said_without_its_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    url = "postgresql://me:secret@127.0.0.1:1/memories"
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/memories does not answer") as caught:
        harvest_reads(url, tmp_path / "reads.log")
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())
