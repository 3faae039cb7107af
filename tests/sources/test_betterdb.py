"""BetterDB's memories, written by its own package on a real server."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.compute as pc
import pytest
from betterdb_store import NAME, Betterdb, exact
from servers import RedisServer

import memlab
from memlab.errors import (
    ArchiveError,
    ChangedWhileReadError,
    StalePlanError,
    StoreError,
    UnsafeDeletionError,
)
from memlab.sources import betterdb_changes, hashes
from memlab.sources.base import Key, Reader, at_one_moment
from memlab.sources.betterdb_changes import BetterdbWriter
from memlab.sources.opening import open_source
from sources.conformance import COUNT, Compacted, keys_of, prints, records_of, together

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


class TestBetterdb(Compacted):
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


@pytest.fixture
def lab(redis: RedisServer) -> BetterdbLab:
    made = BetterdbLab(redis)
    made.fill(COUNT)
    return made


def evictions(lab: BetterdbLab) -> int:
    return int(lab.betterdb.run(lab.betterdb.store.stats()).evictions)


def delete(lab: BetterdbLab, records: list[tuple[Key, bytes]]) -> int:
    with open_source(lab.name).changing() as writer:
        return writer.delete(prints(records))


def insert(lab: BetterdbLab, records: list[tuple[Key, bytes]]) -> int:
    with open_source(lab.name).changing() as writer:
        return writer.insert(records)


def test_deletions_are_counted_as_its_own_evictions_and_the_rest_is_read_as_before(
    lab: BetterdbLab,
) -> None:
    before, keys = lab.betterdb.everything(), keys_of(lab)
    records = records_of(lab, keys[:5])
    assert delete(lab, records) == 5
    assert evictions(lab) == 5
    assert lab.betterdb.everything()["list"].total == COUNT - 5
    assert insert(lab, records) == 5
    assert lab.betterdb.everything() == before


def test_a_vector_is_recalled_after_it_was_put_back(lab: BetterdbLab) -> None:
    content = "the parser fails on tabs"
    lab.betterdb.remember(content, tags=["parser"])
    records = records_of(lab, keys_of(lab)[-1:])
    delete(lab, records)
    recall = lab.betterdb.store.recall
    assert lab.betterdb.run(recall(content, tags=["parser"], reinforce=False)) == []
    insert(lab, records)
    (hit,) = lab.betterdb.run(recall(content, tags=["parser"], reinforce=False))
    assert (hit.item.content, hit.similarity) == (content, pytest.approx(0, abs=1e-6))


def test_a_memory_that_changes_while_others_are_deleted_stops_it_and_all_come_back(
    lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "AT_ONCE", 3)
    records = records_of(lab, keys_of(lab))
    one_step = BetterdbWriter._delete

    def changed_before_the_third(self: BetterdbWriter, some: list[bytes], *rest: Any) -> bool:
        if some[0].decode() == records[6][0]:
            lab.change(records[7][0])
        return one_step(self, some, *rest)

    before = lab.exactly()
    monkeypatch.setattr(BetterdbWriter, "_delete", changed_before_the_third)
    with pytest.raises(StalePlanError, match="are gone or changed while they were deleted"):
        delete(lab, records)
    after = lab.exactly()
    assert {key for key in before if before[key] != after[key]} == {records[7][0]}
    assert evictions(lab) == 0


def test_a_memory_written_within_the_step_that_deletes_it_stays(
    lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of(lab, keys_of(lab))
    watched = BetterdbWriter._watch

    def written_after_the_look(self: BetterdbWriter, some: list[bytes]) -> Any:
        found = list(watched(self, some))
        lab.change(records[0][0])
        return iter(found)

    monkeypatch.setattr(BetterdbWriter, "_watch", written_after_the_look)
    with pytest.raises(StalePlanError):
        delete(lab, records)
    assert len(lab.exactly()) == COUNT


def test_a_memory_whose_time_passed_is_not_put_back_and_the_others_are(
    lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of(lab)
    lab.client.pexpire(keys[3], 60_000)
    made = memlab.plan(lab.name, memlab.KeepRecent(3))
    receipt = memlab.apply(made)
    assert keys[3] not in lab.exactly()
    monkeypatch.setattr(betterdb_changes, "_ENDING", 61_000)  # as a minute later
    restored = memlab.restore(receipt)
    assert (restored, restored.left_out) == (receipt.deleted - 1, 1)
    assert set(lab.exactly()) == set(keys) - {keys[3]}
    again = memlab.restore(receipt)
    assert (again, again.left_out) == (0, 1)


def test_a_key_that_is_taken_again_is_left_as_it_is_and_nothing_is_put_back(
    lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "AT_ONCE", 2)
    records = records_of(lab, keys_of(lab))
    delete(lab, records)
    lab.client.hset(records[5][0], "content", "written again")
    before = lab.exactly()
    with pytest.raises(ArchiveError, match="is there already; nothing was restored"):
        insert(lab, records)
    assert lab.exactly() == before


def test_a_server_without_room_takes_nothing_back(lab: BetterdbLab) -> None:
    keys = keys_of(lab)
    records = records_of(lab, keys)
    delete(lab, records)
    lab.client.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreError, match="no memory left; raise its maxmemory"):
            insert(lab, records)
    finally:
        lab.client.config_set("maxmemory", "0")
    assert not lab.exactly()
    assert insert(lab, records) == len(keys)


def test_a_recall_changes_a_memory_but_not_what_lasts_of_it(lab: BetterdbLab) -> None:
    source, key = open_source(lab.name), keys_of(lab)[0]
    ((_, before),) = records_of(lab, [key])
    lab.client.hincrby(key, "access_count", 1)
    lab.client.hset(key, "last_accessed_at", "1772366999999")
    ((_, recalled),) = records_of(lab, [key])
    assert before != recalled
    assert source.lasting(before) == source.lasting(recalled)
    lab.client.hset(key, "content", "rewritten")
    ((_, rewritten),) = records_of(lab, [key])
    assert source.lasting(rewritten) != source.lasting(before)


def test_a_cap_is_written_as_its_own_setting(lab: BetterdbLab) -> None:
    setting = open_source(lab.name).cap_setting(7)
    assert setting is not None
    lab.client.execute_command(*setting.split())
    lab.betterdb.run(lab.betterdb.store.refresh_config())
    assert lab.betterdb.store.current_config().max_items_per_scope == 7


def test_no_file_can_be_made_of_it(lab: BetterdbLab, tmp_path: Path) -> None:
    with pytest.raises(UnsafeDeletionError, match="live on a server") as caught:
        open_source(lab.name).make(tmp_path / "new.db", [])
    assert "--export" in caught.value.instead
