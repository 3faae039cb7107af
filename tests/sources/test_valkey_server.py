"""What a server does to those who read it: it is not there, refuses, stops, or is one of many."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from betterdb_store import NAME, Betterdb, exact
from servers import RedisServer, free_port, redis_server

import memlab
from memlab.errors import MemlabError, MissingExtraError, StoreError, UnsafeDeletionError
from memlab.sources import betterdb_reader, valkey_server
from memlab.sources.base import Reader
from memlab.sources.opening import open_source
from memlab.store.records import fingerprint_of

pytest.importorskip("betterdb_agent_memory")


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that asks for a password."""
    with redis_server(tmp_path, password="se/cret") as server:
        yield server


def filled(redis: RedisServer, count: int = 3) -> Betterdb:
    made = Betterdb(redis.client())
    for number in range(count):
        made.remember(f"note {number}", agent_id="a")
    return made


def test_a_server_that_is_not_there_is_said_in_a_sentence(
    redis: RedisServer, tmp_path: Path
) -> None:
    for url in ("redis://127.0.0.1:1/0", f"unix://{tmp_path}/no.sock?db=0"):
        with pytest.raises(StoreError, match=r"does not answer .*check the address"):
            memlab.load(url)


def test_a_socket_is_read_like_a_port(redis: RedisServer) -> None:
    filled(redis)
    there = memlab.load(redis.url)
    assert memlab.load(f"unix://{redis.socket}?db=0").equals(there)
    assert memlab.load(redis.url.replace("redis:", "valkey:")).equals(there)


def test_a_password_is_asked_for_and_taken_from_the_environment(
    locked: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(locked)
    with pytest.raises(StoreError, match=r"refuses the login.*VALKEYCLI_AUTH"):
        memlab.load(locked.url)
    with pytest.raises(StoreError, match="refuses the login") as caught:
        memlab.load(locked.url.replace("//", "//:wr0ng@"))
    assert "wr0ng" not in str(caught.value)
    for name in ("REDISCLI_AUTH", "VALKEYCLI_AUTH"):
        monkeypatch.setenv(name, "se/cret")
        assert len(memlab.load(locked.url)) == 3
        monkeypatch.delenv(name)
    frame = memlab.load(locked.url.replace("//", "//default:se%2Fcret@"))
    assert len(frame) == 3
    assert "se/cret" not in str(frame.attrs)


def test_a_user_who_may_only_read_can_read_and_nothing_else(redis: RedisServer) -> None:
    filled(redis)
    admin = redis.client()
    admin.execute_command(
        *("ACL", "SETUSER", "looker", "on", "nopass", f"~{NAME}:*", "~__betterdb:*"),
        *("&__redis__:invalidate", "+scan", "+hmget", "+hgetall", "+pexpiretime", "+info"),
        *("+multi", "+exec", "+ping", "+client|id", "+client|tracking", "+subscribe", "+hkeys"),
        *("+exists", "+select"),
    )
    try:
        name = redis.url.replace("//", "//looker:any@")
        keys = memlab.load(name)["key"].tolist()
        source, before = open_source(name), exact(admin)
        with source.reading() as reader:
            prints = {key: fingerprint_of(record) for key, record in reader.records(keys)}
        assert list(prints) == keys

        def delete() -> None:
            with source.changing() as writer:
                writer.delete(prints)

        with pytest.raises(StoreError, match="does not allow this user"):
            delete()
        assert exact(admin) == before
    finally:
        admin.execute_command("ACL", "DELUSER", "looker")


def test_a_server_that_goes_away_while_it_is_read_is_said_and_comes_back(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        filled(server)
        source = open_source(server.url)

        def read_twice() -> None:
            with source.reading() as reader:
                keys = keys_of(reader)
                server.stop(signal.SIGKILL)
                list(reader.records(keys))

        with pytest.raises(StoreError, match="does not answer"):
            read_twice()
        server.start()
        assert len(memlab.load(server.url)) == 3


def test_a_server_that_goes_away_while_it_is_changed_loses_nothing(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        filled(server, 5)
        before, source = exact(server.client()), open_source(server.url)
        prints = prints_of(server.url)

        def delete() -> None:
            with source.changing() as writer:
                writer.delete(prints, watch=lambda _: server.stop(signal.SIGKILL))

        with pytest.raises(StoreError, match="does not answer"):
            delete()
        server.start()
        assert not exact(server.client())
        assert len(before) == 5  # gone, and the archive of whoever asked has them


def test_a_server_that_answers_nothing_is_not_waited_for_for_ever(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(redis)
    with monkeypatch.context() as hurried:
        hurried.setattr(valkey_server, "_ANSWER_WITHIN", 0.2)
        with redis.stopped_dead(), pytest.raises(StoreError, match="does not answer"):
            memlab.load(redis.url)
    assert len(memlab.load(redis.url)) == 3


def test_a_node_of_a_cluster_is_refused(tmp_path: Path) -> None:
    bus = str(free_port())  # its own choice, 10,000 above the other, may be no port at all
    options = ("--cluster-enabled", "yes", "--cluster-port", bus, "--appendonly", "no")
    with redis_server(tmp_path, options=options) as node:
        with pytest.raises(UnsafeDeletionError, match="one node of a cluster") as caught:
            memlab.load(node.url)
        assert caught.value.instead


def test_a_replica_is_read_and_refuses_a_change(redis: RedisServer, tmp_path: Path) -> None:
    filled(redis)
    redis.client().config_set("repl-diskless-sync-delay", "0")
    with redis_server(tmp_path, options=("--appendonly", "no")) as replica:
        replica.client().execute_command("REPLICAOF", "127.0.0.1", str(redis.port))
        for _ in range(500):
            if len(exact(replica.client())) == 3:
                break
            time.sleep(0.02)
        assert len(memlab.load(replica.url)) == 3
        source, prints = open_source(replica.url), prints_of(replica.url)

        def delete() -> None:
            with source.changing() as writer:
                writer.delete(prints)

        with pytest.raises(StoreError, match=r"is a replica.*name its primary"):
            delete()
        assert len(exact(redis.client())) == 3


def test_an_emptied_server_is_no_moment(redis: RedisServer) -> None:
    filled(redis)

    def emptied() -> None:
        with open_source(redis.url).reading() as reader:
            redis.client().flushall()
            keys_of(reader)

    with pytest.raises(StoreError, match="was emptied while it was read"):
        emptied()


def test_a_store_that_nobody_wrote_is_named_with_those_that_are_there(client: Any) -> None:
    made = Betterdb(client, name="notes")
    made.run(made.store.remember("one"))
    client.hset("__betterdb:caches", "notes:mem", "{}")
    url = f"unix://{client.get_connection_kwargs()['path']}?db=0"
    with pytest.raises(StoreError, match=rf"no BetterDB memory called {NAME!r}.*there are notes"):
        memlab.load(url)
    assert len(memlab.load(f"{url}&name=notes")) == 1
    client.hset(f"{NAME}:__mem_stats", "evictions", "3")
    assert len(memlab.load(url)) == 0


def test_the_missing_client_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkey", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'memlab\[valkey\]'"):
        memlab.load("redis://localhost/0")


def test_naming_a_server_loads_no_client() -> None:
    program = "import sys; from memlab.sources.opening import open_source as o; "
    program += "o('redis://localhost/0'); o('postgresql://localhost/db'); print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, env=os.environ
    )
    assert not {"valkey", "psycopg", "pyarrow", "pandas"} & set(run.stdout.split())


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("content", b"\xff", "content is not UTF-8"),
        ("created_at", b"soon", "created_at b'soon' is not a whole number"),
        ("created_at", b"99999999999999999", "is not in the years 1 to 9999"),
        ("importance", b"high", "importance b'high' is not a number"),
        ("access_count", b"9" * 30, "is too large"),
        ("tags", b"\xff", "tags is not UTF-8"),
    ],
)
def test_a_field_that_cannot_be_read_is_named_and_its_memory_never_pruned(
    redis: RedisServer, field: str, value: bytes, said: str
) -> None:
    made = filled(redis)
    key = next(iter(exact(made.client)))
    made.client.hset(key, field, value)
    with pytest.raises(MemlabError, match=said.replace("'", ".")):
        memlab.load(redis.url)
    frame = memlab.load(redis.url, on_bad_row="keep")
    bad = frame[frame["problem"].notna()]
    assert bad["key"].tolist() == [key.decode()]
    assert bad["load_bearing"].all()
    assert len(frame) == 3


def test_a_field_that_is_missing_is_a_fault_where_nothing_works_without_it(
    redis: RedisServer,
) -> None:
    made = filled(redis)
    one, other = list(exact(made.client))[:2]
    made.client.hdel(one, "created_at")
    made.client.hdel(other, "importance", "access_count", "last_accessed_at")
    frame = memlab.load(redis.url, on_bad_row="keep").set_index("key")
    assert frame.loc[one.decode(), "problem"] == "created_at is missing"
    assert frame.loc[other.decode()].isna()[["problem", "importance", "access_count"]].all()


def test_fields_of_its_own_can_be_asked_for(redis: RedisServer) -> None:
    made = Betterdb(redis.client())
    made.remember("one", source="summary")
    made.remember("two")
    frame = memlab.load(redis.url, columns=("source", "vector"))
    assert frame["source"].tolist() == ["summary", None]
    assert [len(vector) for vector in frame["vector"]] == [32, 32]
    with pytest.raises(StoreError, match="no field colour"):
        memlab.load(redis.url, columns=("colour",))


def test_a_name_is_no_pattern(redis: RedisServer) -> None:
    for name in ("a*b", "axb", "a[x]b", "a?b", "a\\b"):
        Betterdb(redis.client(), name=name).remember(f"of {name}")
    for name, written in (("a*b", "a%2Ab"), ("a[x]b", "a%5Bx%5Db"), ("a\\b", "a%5Cb")):
        frame = memlab.load(f"{redis.url}?name={written}")
        assert frame["title"].tolist() == [f"of {name}"]


def test_many_memories_of_one_moment_have_places_of_their_own(client: Any) -> None:
    count = 3000
    with client.pipeline(transaction=False) as pipe:
        for number in range(count):
            fields = {"content": str(number), "created_at": "1772366400000"}
            pipe.hset(f"{NAME}:mem:{number:06}", mapping=fields)
        pipe.execute()
    url = f"unix://{client.get_connection_kwargs()['path']}?db=0"
    frame = memlab.load(url)
    assert frame["position"].is_unique
    assert frame["position"].is_monotonic_increasing
    assert len(frame) == count > betterdb_reader._SCAN_AT_ONCE


def keys_of(reader: Reader) -> list[Any]:
    return [
        key for rows in reader.batches(with_body=False) for key in rows.table["key"].to_pylist()
    ]


def prints_of(url: str) -> dict[Any, str]:
    with open_source(url).reading() as reader:
        return {key: fingerprint_of(record) for key, record in reader.records(keys_of(reader))}
