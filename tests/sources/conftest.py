"""Servers that this folder's tests share: one of each a worker, an empty store a test."""

from collections.abc import Iterator
from typing import Any

import pytest
from memforge_store import create_tables
from servers import PostgresServer, RedisServer, postgres_server, redis_server


@pytest.fixture(scope="session")
def one_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(one_redis: RedisServer) -> Iterator[RedisServer]:
    """A running server with nothing in it."""
    with one_redis.client() as client:
        client.flushall()
    yield one_redis
    with one_redis.client() as client:
        client.flushall()


@pytest.fixture
def client(redis: RedisServer) -> Iterator[Any]:
    """A connection to it that answers in bytes."""
    with redis.client() as client:
        yield client


@pytest.fixture(scope="session")
def one_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with postgres_server(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def memforge_template(one_postgres: PostgresServer) -> str:
    name = one_postgres.new_database()
    with one_postgres.connect(name) as connection:
        create_tables(connection)
    return name


@pytest.fixture
def memforge(one_postgres: PostgresServer, memforge_template: str) -> Iterator[str]:
    """The name of a database with MemForge's tables and nothing in them."""
    name = one_postgres.new_database(memforge_template)
    yield name
    one_postgres.drop(name)
