"""A server for the tests that hold the store to BetterDB's own code."""

from collections.abc import Iterator

import pytest
from servers import RedisServer, redis_server


@pytest.fixture(scope="session")
def one_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server
