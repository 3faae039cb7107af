"""Server stores that are missing, stop, refuse, or answer wrongly."""

import os
import random
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import memlab
from memlab.errors import MemlabError, MissingExtraError, StoreError, UnsafeDeletionError
from memlab.sources import valkey
from memlab.sources.address import address_of
from memlab.sources.opening import open_source
from memlab.testing.conformance import delete_all, is_atomic, keys_of, records_of
from tests.support.betterdb_store import NAME, BetterdbLab, exact
from tests.support.memforge_store import MemforgeLab
from tests.support.servers import PostgresServer, RedisServer, answer_proxy, free_port, redis_server

COUNT = 5
PAGE = (Path(__file__).parents[2] / "docs" / "servers.md").read_text(encoding="utf-8")
WRONG_ANSWERS = int(os.environ.get("MEMLAB_HOSTILE_FILES", "80")) // 2
"""Number of wrong answers by each of two servers."""


class OnRedis(BetterdbLab):
    """Memories on a server that the test may stop."""

    refusal = "does not allow this user"

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.server = server
        self.upstream = str(server.socket)
        self.fill(COUNT)

    def cut(self) -> None:
        self.server.stop()

    def mend(self) -> None:
        self.server.start()

    def url_at(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0"

    def read_only_url(self) -> str:
        (rules,) = re.findall(r"```\n(ACL SETUSER looker .*)\n```", PAGE)
        arguments = rules.replace(">PASSWORD", "nopass").replace("NAME", NAME).split()
        self.client.execute_command(*arguments)
        return self.name.replace("//", "//looker:any@")

    def corrupting(self, rng: random.Random) -> Callable[[bytes], bytes]:
        """Return a proxy function that replaces, cuts or corrupts some answers."""

        def answer(data: bytes) -> bytes:
            if rng.random() < 0.8:
                return data
            lines = data.split(b"\r\n")
            number = rng.randrange(len(lines))
            another_answer = [rng.choice(ANSWERS).removesuffix(b"\r\n")]
            random_bytes = [rng.randbytes(len(lines[number]))]
            nothing: list[bytes] = []
            lines[number : number + 1] = rng.choice(
                (another_answer, another_answer, random_bytes, nothing)
            )
            return b"\r\n".join(lines)

        return answer


class OnPostgres(MemforgeLab):
    """Memories in a database whose tables and roles the test may change."""

    refusal = r"permission denied.*grant it"

    def __init__(self, server: PostgresServer, database: str) -> None:
        super().__init__(server, database)
        self.database = database
        (host,) = parse_qs(urlsplit(self.name).query)["host"]
        self.upstream = f"{host}/.s.PGSQL.5432"
        self.fill(COUNT)

    def cut(self) -> None:
        """End every other session, as a restart of the server does."""
        self.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    def mend(self) -> None:
        """Do nothing; the server is still running."""

    def url_at(self, port: int) -> str:
        return f"postgresql://postgres@127.0.0.1:{port}/{self.database}"

    def read_only_url(self) -> str:
        self.connection.execute(
            "CREATE ROLE looker LOGIN BYPASSRLS PASSWORD 's3cret';"
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker"
        )
        return self.name.replace("postgres:@", "looker:s3cret@")

    def corrupting(self, rng: random.Random) -> Callable[[bytes], bytes]:
        """Return a proxy function that changes some values of rows."""

        def answer(data: bytes) -> bytes:
            at = 0
            parts = []
            while at + 5 <= len(data):
                size = int.from_bytes(data[at + 1 : at + 5])
                message = data[at : at + 1 + size]
                at += 1 + size
                is_row = message[:1] == b"D"
                is_complete = len(message) == 1 + size
                if is_row and is_complete and rng.random() < 0.3:
                    message = other_row(message, rng)
                parts.append(message)
            return b"".join(parts) + data[at:]

        return answer


def other_row(message: bytes, rng: random.Random) -> bytes:
    """Return a PostgreSQL row with one changed value."""
    count = int.from_bytes(message[5:7])
    at = 7
    values: list[bytes | None] = []
    for _ in range(count):
        size = int.from_bytes(message[at : at + 4], signed=True)
        at += 4
        if size < 0:
            values.append(None)
        else:
            values.append(message[at : at + size])
            at += size
    if values:
        unusual_values = (
            None,
            b"",
            b"x",
            b"-1",
            b"9" * 30,
            b"\xff",
            b"NaN",
            b"2026-13-45",
            b"{",
            b"t\0",
        )
        values[rng.randrange(count)] = rng.choice(unusual_values)
    body = count.to_bytes(2)
    for value in values:
        if value is None:
            body += b"\xff" * 4
        else:
            body += len(value).to_bytes(4) + value
    return b"D" + (len(body) + 4).to_bytes(4) + body


@pytest.fixture(params=["redis", "postgres"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "redis":
        with redis_server(tmp_path) as server:
            yield OnRedis(server)
        return
    postgres = request.getfixturevalue("one_postgres")
    database = request.getfixturevalue("own_memforge")
    postgres_lab = OnPostgres(postgres, database)
    yield postgres_lab
    with suppress(Exception), postgres_lab.connection as connection:
        connection.execute("DROP OWNED BY looker; DROP ROLE looker")


def test_missing_client_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for client, url in (("valkey", "redis://h/0"), ("psycopg", "postgresql://h/db")):
        monkeypatch.setitem(sys.modules, client, None)
        with pytest.raises(MissingExtraError, match=rf"run: .* -m pip install '{client}"):
            memlab.load(url)


def test_server_that_stops_during_a_read_is_reported(lab: Any) -> None:
    keys = keys_of(lab)

    def read_around_a_stop() -> None:
        with open_source(lab.name).reading() as reader:
            list(reader.records(keys))
            lab.cut()
            list(reader.records(keys))

    with pytest.raises(StoreError, match=r"does not answer|refuses"):
        read_around_a_stop()
    lab.mend()
    assert len(memlab.load(lab.name)) == COUNT


def test_server_that_stops_during_a_change_loses_nothing(lab: Any) -> None:
    before = lab.exactly()
    records = records_of(lab, keys_of(lab))
    with pytest.raises(StoreError, match=r"does not answer|refuses"):
        delete_all(lab, records, on_step=lambda _: lab.cut())
    lab.mend()
    # Without a rollback they are deleted, and the caller's archive has them.
    expected = before if is_atomic(lab) else {}
    assert lab.exactly() == expected


def test_read_only_user_is_told_the_missing_privilege(lab: Any) -> None:
    before = lab.exactly()
    records = records_of(lab, keys_of(lab))
    admin = lab.name
    lab.name = lab.read_only_url()
    assert records_of(lab, keys_of(lab)) == records
    with pytest.raises(StoreError, match=lab.refusal) as caught:
        delete_all(lab, records)
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"
    lab.name = admin
    assert lab.exactly() == before


@pytest.mark.long
def test_wrong_server_answers_give_a_result_or_an_error(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey, "_ANSWER_TIMEOUT", 0.03)  # every fifth answer waits this long
    vector_column = "vector" if isinstance(lab, OnRedis) else "embedding"
    for seed in range(WRONG_ANSWERS):
        if len(keys_of(lab)) < 4:
            lab.fill(COUNT)
        before = set(keys_of(lab))
        with answer_proxy(lab.upstream, lab.corrupting(random.Random(seed))) as port:
            url = f"{lab.url_at(port)}?archive={tmp_path / 'archive.db'}"
            with suppress(MemlabError):
                memlab.load(url, with_body=True, on_bad_row="keep", columns=[vector_column])
            with suppress(MemlabError):
                memlab.apply(memlab.plan(url, memlab.KeepRecent(2)))
        deleted = before - set(keys_of(lab))
        if deleted:
            with closing(sqlite3.connect(tmp_path / "archive.db")) as connection:
                archived = {key for (key,) in connection.execute("SELECT key FROM archived")}
            assert deleted <= archived, seed


# Redis and Valkey

ANSWERS = (
    b"+OK\r\n",
    b":1\r\n",
    b":-9\r\n",
    b":99999999999999999999999\r\n",
    b":x\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n+a\r\n:5\r\n",
    b"*3\r\n*0\r\n$-1\r\n:1\r\n",
    b"$1\r\nx\r\n",
    b"-ERR no\r\n",
    b"-MOVED 1 a:1\r\n",
    b"$x\r\n",
    b"*99999999\r\n",
    b"\xff\xfe\r\n",
    b"",
    b"*1\r\n" * 3000,
    b"$5\r\n0\r\n",
    b"*2\r\n$1\r\n0\r\n*1\r\n:5\r\n",
    b"_\r\n",
)


@pytest.mark.parametrize(
    ("command", "wrong_answer"),
    [
        (("HGETALL", "key"), b"*3\r\n+name\r\n+value\r\n+odd\r\n"),
        (("HMGET", "key", "a", "b"), b"*1\r\n+value\r\n"),
        (("SCAN", "0"), b"*2\r\n+-1\r\n*0\r\n"),
        (("SCAN", "0"), b"*2\r\n+ 1_0 \r\n*0\r\n"),
        (("TIME",), b"*2\r\n+-5\r\n+0\r\n"),
        (("TIME",), b"*2\r\n+%d\r\n+0\r\n" % 10**20),
    ],
)
def test_invalid_answer_is_rejected(
    redis: RedisServer, command: tuple[str, ...], wrong_answer: bytes
) -> None:
    is_wrong = False

    def answer(data: bytes) -> bytes:
        return wrong_answer if is_wrong else data

    with answer_proxy(str(redis.socket), answer) as port:
        address = address_of(f"redis://127.0.0.1:{port}/0")

        def ask_twice() -> None:
            nonlocal is_wrong
            with valkey.connected(address, 0) as connection:
                connection.ask(*command)
                is_wrong = True
                connection.ask(*command)

        with pytest.raises(StoreError, match=f"to {command[0]} it says"):
            ask_twice()


def test_unix_socket_gives_the_same_frame_as_a_port(redis: RedisServer) -> None:
    by_port = memlab.load(OnRedis(redis).name)
    assert memlab.load(f"unix://{redis.socket}?db=0").equals(by_port)
    assert memlab.load(redis.url.replace("redis:", "valkey:")).equals(by_port)


def test_password_is_required_and_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(tmp_path, password="se/cret") as locked:
        OnRedis(locked)
        for url in (locked.url, locked.url.replace("//", "//:wr0ng@")):
            with pytest.raises(StoreError, match=r"refuses the login.*VALKEYCLI_AUTH") as caught:
                memlab.load(url)
            assert "wr0ng" not in str(caught.value)
        for name in ("REDISCLI_AUTH", "VALKEYCLI_AUTH"):
            with monkeypatch.context() as environment:
                environment.setenv(name, "se/cret")
                assert len(memlab.load(locked.url)) == COUNT
        frame = memlab.load(locked.url.replace("//", "//default:se%2Fcret@"))
        assert len(frame) == COUNT
        assert "se/cret" not in str(frame.attrs)


def test_unresponsive_server_times_out(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "_ANSWER_TIMEOUT", 0.2)
    OnRedis(redis)
    with redis.suspended(), pytest.raises(StoreError, match="does not answer"):
        memlab.load(redis.url)


def test_cluster_node_is_rejected(tmp_path: Path) -> None:
    bus = str(free_port())  # the default, 10,000 above the port, may exceed the largest port
    options = ("--cluster-enabled", "yes", "--cluster-port", bus, "--appendonly", "no")
    with (
        redis_server(tmp_path, options=options) as node,
        pytest.raises(UnsafeDeletionError, match="own setting for a cap"),
    ):
        memlab.load(node.url)


def test_replica_is_read_and_rejects_changes(redis: RedisServer, tmp_path: Path) -> None:
    lab = OnRedis(redis)
    redis.client().config_set("repl-diskless-sync-delay", "0")
    options = ("--appendonly", "no")
    with redis_server(tmp_path, options=options, program=redis.program) as replica:
        replica.client().execute_command("REPLICAOF", "127.0.0.1", str(redis.port))
        while len(exact(replica.client())) < COUNT:
            time.sleep(0.02)
        lab.name = replica.url
        with pytest.raises(StoreError, match=r"is a replica.*name its primary"):
            delete_all(lab, records_of(lab, keys_of(lab)))
    assert len(lab.exactly()) == COUNT


def test_server_emptied_during_the_read_is_an_error(redis: RedisServer) -> None:
    OnRedis(redis)

    def empty_and_read() -> None:
        with open_source(redis.url).reading() as reader:
            redis.client().flushall()
            list(reader.batches(with_body=False))

    with pytest.raises(StoreError, match="was emptied while it was read"):
        empty_and_read()
