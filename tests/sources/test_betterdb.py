"""BetterDB's memories, written by its own package on a real server."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.compute as pc
import pytest
from betterdb_store import NAME, Betterdb, exact
from servers import RedisServer

from memlab.errors import ChangedWhileReadError
from memlab.sources.base import Reader, at_one_moment
from memlab.sources.opening import open_source
from sources.conformance import COUNT, Conformance, together

pytest.importorskip("betterdb_agent_memory")

TEXTS = (
    "né à Zürich — 北京 🦀",
    "NUL \0 inside",
    "one\nand\nmore lines",
    "  ",
    "\nan empty first line",
)


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives of servers go."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


class BetterdbLab:
    """A store on a server, with vectors, times to live, scopes, and fields that nobody knows."""

    deletes: ClassVar[bool] = True

    def __init__(self, redis: RedisServer) -> None:
        self.name = f"{redis.url}?name={NAME}"
        self.client = redis.client()
        self.betterdb = Betterdb(redis.client())

    def fill(self, count: int) -> None:
        for number in range(count):
            memory_id = self.betterdb.remember(
                TEXTS[number % len(TEXTS)] + str(number),
                tags=["rejected-path", "x"]
                if number == 0
                else [["ü", "A b"], [], None][number % 3],
                importance=[None, 0.1, 1.0, 1e-17][number % 4],
                ttl=[None, None, 86_400][number % 3],
                agent_id=[None, "a", "ä"][number % 3],
                thread_id=[None, "t1"][number % 2],
                namespace=[None, "n"][number % 2],
                source=[None, "summary"][number % 2],
            )
            if number % 4 == 1:
                odd = {b"\xff no text": b"\xfe", b"$memory_id": b"5", b"empty": b""}
                self.client.hset(f"{NAME}:mem:{memory_id}", mapping=odd)

    def add_pair(self, number: int) -> None:
        self.betterdb.remember_pair(f"pair {number}")

    def change(self, key: Any) -> None:
        self.client.hincrby(key, "access_count", 1)

    def exactly(self) -> dict[Any, Any]:
        return {key.decode(): stored for key, stored in exact(self.client).items()}


class TestBetterdb(Conformance):
    @pytest.fixture
    def lab(self, redis: RedisServer) -> BetterdbLab:
        made = BetterdbLab(redis)
        made.fill(COUNT)
        return made


def test_a_reader_sees_one_moment_while_memories_change_in_place(redis: RedisServer) -> None:
    lab = BetterdbLab(redis)
    lab.fill(COUNT)
    one, other = list(lab.exactly())[:2]
    stop = threading.Event()

    def move() -> None:
        while not stop.wait(0.002):
            with lab.client.pipeline(transaction=True) as pipe:
                pipe.hincrby(one, "access_count", -1)
                pipe.hincrby(other, "access_count", 1)
                pipe.execute()

    def counted(reader: Reader) -> int:
        table = together(list(reader.batches(with_body=False)))
        return int(pc.sum(table["access_count"]).as_py())

    writer = threading.Thread(target=move)
    writer.start()
    sums = []
    for _ in range(20):
        with suppress(ChangedWhileReadError):
            sums.append(at_one_moment(open_source(lab.name), counted))
    stop.set()
    writer.join()
    assert set(sums) == {0}


def test_a_record_of_another_moment_than_the_rows_is_said(redis: RedisServer) -> None:
    lab = BetterdbLab(redis)
    lab.fill(COUNT)
    key = next(iter(lab.exactly()))

    def changed_between() -> None:
        with open_source(lab.name).reading() as reader:
            list(reader.batches(with_body=False))
            lab.change(key)
            list(reader.records([key]))

    with pytest.raises(ChangedWhileReadError):
        changed_between()
