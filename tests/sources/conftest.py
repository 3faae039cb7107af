"""Servers that this folder's tests share: one of each a worker, an empty store a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from memlab.testing import ReadingSuite
from tests.support.memforge_store import create_tables, empty_tables
from tests.support.owners import SEARCHING_SERVER
from tests.support.programs import run_program
from tests.support.servers import REDIS, PostgresServer, RedisServer, postgres_server, redis_server

ReadingSuite.run_program = staticmethod(run_program)  # type: ignore[method-assign]
"""Killed processes are forked, which saves the start of an interpreter."""


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the folder for archives of servers."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))


@pytest.fixture(scope="session")
def one_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Start a server, with vector search if it is installed."""
    folder = tmp_path_factory.mktemp("redis")
    with redis_server(folder, program=SEARCHING_SERVER or REDIS) as server:
        yield server


@pytest.fixture
def redis(one_redis: RedisServer) -> RedisServer:
    """Return a running server without data."""
    with one_redis.client() as client:
        client.flushall()
    return one_redis


@pytest.fixture(scope="session")
def one_postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def memforge_template(one_postgres: PostgresServer) -> str:
    name = one_postgres.new_database()
    with one_postgres.connect(name) as connection:
        create_tables(connection)
    return name


@pytest.fixture
def memforge(one_postgres: PostgresServer, memforge_template: str) -> str:
    """Return a database with empty MemForge tables; tests must not alter the tables."""
    with one_postgres.connect(memforge_template) as connection:
        empty_tables(connection)
    return memforge_template


@pytest.fixture
def own_memforge(one_postgres: PostgresServer, memforge: str) -> Iterator[str]:
    """Return a database whose tables a test may alter."""
    name = one_postgres.new_database(memforge)
    yield name
    one_postgres.drop(name)
