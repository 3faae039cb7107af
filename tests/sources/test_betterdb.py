"""BetterDB memories written by its own package on a real server."""

from datetime import timedelta
from typing import Any

import pytest

import memlab
from memlab import errors
from memlab.sources.opening import open_source
from memlab.sources.valkey import ServerConnection
from memlab.systems import betterdb
from memlab.systems.betterdb import BetterdbWriter, HashReader
from memlab.testing.conformance import ServerSuite, delete_all, keys_of, put_back, records_of
from memlab.testing.labs import COUNT
from tests.support.betterdb_store import NAME, Betterdb, BetterdbLab
from tests.support.owners import needs_search
from tests.support.servers import RedisServer
from tests.support.shell import run

pytest.importorskip("betterdb_agent_memory")

KEEP_3 = memlab.KeepRecent(3)


@pytest.fixture
def lab(redis: RedisServer) -> BetterdbLab:
    betterdb_lab = BetterdbLab(redis)
    betterdb_lab.fill(COUNT)
    return betterdb_lab


class TestBetterdb(ServerSuite):
    @pytest.fixture
    def lab(self, lab: BetterdbLab) -> BetterdbLab:  # type: ignore[override]
        return lab


def test_load_reads_one_consistent_state(lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = list(lab.exactly())[:2]
    for key in pair:
        lab.client.hset(key, "importance", "0")
    hashes = HashReader.hashes
    moves = 0

    def moved_after_each(self: HashReader, keys: Any, names: Any = ()) -> Any:
        nonlocal moves
        for key, stored in hashes(self, keys, names):
            yield key, stored
            if key.decode() in pair and moves < 6:
                moves += 1
                with lab.client.pipeline(transaction=True) as pipe:
                    pipe.hincrbyfloat(pair[0], "importance", -1)
                    pipe.hincrbyfloat(pair[1], "importance", 1)
                    pipe.execute()

    monkeypatch.setattr(HashReader, "hashes_per_transaction", 1)
    monkeypatch.setattr(HashReader, "hashes", moved_after_each)
    frame = memlab.load(lab.name).set_index("key")
    assert frame["importance"][pair].tolist() == [-6, 6]


def test_record_changed_since_the_rows_is_an_error(lab: BetterdbLab) -> None:
    key = next(iter(lab.exactly()))
    with pytest.raises(errors.ChangedWhileReadError), open_source(lab.name).reading() as reader:  # noqa: PT012
        list(reader.batches(with_body=False))
        lab.change(key)
        list(reader.records([key]))


@needs_search
def test_restored_vector_can_be_recalled(lab: BetterdbLab) -> None:
    content = "the parser fails on tabs"
    lab.betterdb.remember(content, tags=["parser"])
    records = records_of(lab, keys_of(lab)[-1:])
    delete_all(lab, records)
    recall = lab.betterdb.store.recall
    assert lab.betterdb.run(recall(content, tags=["parser"], reinforce=False)) == []
    put_back(lab, records)
    (hit,) = lab.betterdb.run(recall(content, tags=["parser"], reinforce=False))
    assert hit.item.content == content
    assert hit.similarity == pytest.approx(0, abs=1e-6)


def delete_by_client(lab: BetterdbLab, key: str) -> None:
    lab.client.delete(key)


@pytest.mark.parametrize("is_watched", [False, True], ids=["before the check", "within the step"])
@pytest.mark.parametrize(
    "meanwhile", [BetterdbLab.change, delete_by_client], ids=["change", "deletion"]
)
def test_concurrent_change_rolls_back_the_deletion(
    lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch, meanwhile: Any, *, is_watched: bool
) -> None:
    monkeypatch.setattr(HashReader, "hashes_per_transaction", 3)
    before = lab.exactly()
    plan = memlab.plan(lab.name, memlab.KeepRecent(0))
    keys = [memory.key for memory in plan.memories]
    watch = BetterdbWriter._watch

    def changed_then_watched(self: BetterdbWriter, batch: list[bytes]) -> Any:
        if keys[7].encode() in batch:
            meanwhile(lab, keys[7])
        return watch(self, batch)

    def watched_then_changed(self: BetterdbWriter, batch: list[bytes]) -> Any:
        watched_keys = list(watch(self, batch))
        if keys[7].encode() in batch:
            meanwhile(lab, keys[7])
        return iter(watched_keys)

    replacement = watched_then_changed if is_watched else changed_then_watched
    monkeypatch.setattr(BetterdbWriter, "_watch", replacement)
    with pytest.raises(errors.StalePlanError, match="those that memlab had deleted are back"):
        memlab.apply(plan)
    after = lab.exactly()
    assert {key for key in before if before[key] != after.get(key)} == {keys[7]}
    assert lab.client.hget(f"{NAME}:__mem_stats", "evictions") in (None, b"0")
    assert "cut short" not in run("doctor", lab.name).output


def test_usage_left_by_a_recall_is_not_a_memory(lab: BetterdbLab) -> None:
    before = lab.exactly()
    keys = keys_of(lab)
    receipt = memlab.apply(memlab.plan(lab.name, KEEP_3))
    lab.use(keys[3])
    assert keys_of(lab) == [keys[0], *keys[-3:]]
    assert memlab.restore(receipt).memories == receipt.deleted
    assert lab.exactly() == before


def test_recalls_do_not_stop_a_plan(lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """All memories are recalled after every answer, unless it is about deleting one by itself."""
    ask = ServerConnection.ask_all

    def answered_and_recalled(self: ServerConnection, commands: Any) -> Any:
        answers = ask(self, commands)
        word, *keys = commands[0]
        if word != "WATCH" or len(keys) > 1:
            for key in lab.exactly():
                lab.use(key)
        return answers

    with monkeypatch.context() as recalling:
        recalling.setattr(ServerConnection, "ask_all", answered_and_recalled)
        receipt = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(0)))
    assert receipt.deleted == COUNT - 1
    assert len(lab.exactly()) == 1
    assert memlab.restore(receipt).memories == receipt.deleted


def test_plan_continues_if_a_memory_has_expired(lab: BetterdbLab) -> None:
    keys = keys_of(lab)
    for key in (keys[2], keys[3], keys[-1]):  # the last is kept
        lab.client.pexpire(key, 60_000)
    new_plan = memlab.Plan.from_json(memlab.plan(lab.name, KEEP_3).to_json())
    lab.client.delete(keys[3], keys[-1])  # deleted by others, because they have not expired
    with pytest.raises(errors.StalePlanError, match="2 gone"):
        memlab.apply(new_plan)
    later = new_plan.made_at + timedelta(minutes=2)
    receipt = memlab.apply(new_plan, now=later)
    assert receipt.deleted == len(new_plan.memories) - 1
    assert receipt.expired == 1
    assert "1 memory since the plan was made" in str(receipt)
    assert set(lab.exactly()) == {keys[0], *keys[-3:-1]}
    assert memlab.restore(receipt).memories == receipt.deleted
    assert set(lab.exactly()) == set(keys) - {keys[3], keys[-1]}
    lab.client.pexpire(keys[1], 60_000)
    new_plan = memlab.plan(lab.name, memlab.KeepRecent(COUNT - 4))  # a plan for this memory only
    lab.client.delete(keys[1])
    receipt = memlab.apply(new_plan, now=new_plan.made_at + timedelta(minutes=2))
    assert receipt.deleted == 0
    assert receipt.expired == 1
    assert receipt.archive is None


def test_expired_memory_is_not_restored(lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = keys_of(lab)
    lab.client.pexpire(keys[3], 60_000)
    receipt = memlab.apply(memlab.plan(lab.name, KEEP_3))
    assert keys[3] not in lab.exactly()
    monkeypatch.setattr(betterdb, "_LEAST_REMAINING_TIME", 61_000)  # as if a minute had passed
    restored = memlab.restore(receipt)
    assert restored.memories == receipt.deleted - 1
    assert restored.left_out == 1
    assert set(lab.exactly()) == set(keys) - {keys[3]}
    second_receipt = memlab.restore(receipt)
    assert second_receipt.memories == 0
    assert second_receipt.left_out == 1


@pytest.mark.parametrize(
    "message", ["is there already; nothing was restored", "no memory left; raise its maxmemory"]
)
def test_restore_is_all_or_nothing(
    lab: BetterdbLab, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setattr(HashReader, "hashes_per_transaction", 2)
    records = records_of(lab, keys_of(lab))
    delete_all(lab, records)
    if "already" in message:
        lab.client.hset(records[5][0], "content", "written again")
    else:
        lab.client.config_set("maxmemory", "1")
    before = lab.exactly()
    try:
        with pytest.raises((errors.ArchiveError, errors.StoreError), match=message):
            put_back(lab, records)
        assert lab.exactly() == before
    finally:
        lab.client.config_set("maxmemory", "0")


def test_native_cap_setting_is_a_betterdb_argument(lab: BetterdbLab) -> None:
    name, _, cap = open_source(lab.name).native_cap.setting_for(7).partition("=")
    agent_memory = Betterdb(lab.client, **{name: int(cap)})
    assert agent_memory.store.current_config().max_items_per_scope == 7


def test_unknown_store_lists_the_known_ones(redis: RedisServer) -> None:
    client = redis.client()
    Betterdb(client, name="notes").remember("one")
    client.hset("__betterdb:caches", "notes:mem", "{}")
    with pytest.raises(errors.StoreError, match=rf"memory called {NAME!r}.*there are notes"):
        memlab.load(redis.url)
    assert len(memlab.load(f"{redis.url}?name=notes")) == 1
    client.hset(f"{NAME}:__mem_stats", "evictions", "3")
    assert len(memlab.load(redis.url)) == 0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("content", b"\xff", "content .* is not UTF-8"),
        ("content", None, "content is missing"),
        ("created_at", b"soon", "created_at b.soon. is not a time"),
        ("created_at", b"99999999999999999", "created_at .* is not a time"),
        ("importance", b"high", "importance b.high. is not a number"),
        ("access_count", b"9" * 30, "access_count .* is not a whole number"),
        ("tags", b"\xff", "tags .* is not UTF-8"),
    ],
)
def test_memory_with_an_unreadable_field_is_never_pruned(
    lab: BetterdbLab, field: str, value: bytes | None, message: str
) -> None:
    bad, other = keys_of(lab)[-2:]
    lab.client.hdel(bad, field)
    if value is not None:
        lab.client.hset(bad, field, value)
    lab.client.hdel(other, "importance", "access_count", "last_accessed_at")
    with pytest.raises(errors.BadRowError, match=message):
        memlab.load(lab.name)
    frame = memlab.load(lab.name, on_bad_row="keep").set_index("key")
    assert frame.index[frame["problem"].notna()].tolist() == [bad]
    assert frame.loc[bad, "load_bearing"]
    ((_, record),) = records_of(lab, [bad])
    assert open_source(lab.name).facts_of(record).tags_json == ""  # a plan must not name it
    assert frame.loc[other].isna()[["problem", "importance", "access_count"]].all()


def test_additional_columns_can_be_loaded(lab: BetterdbLab) -> None:
    frame = memlab.load(lab.name, columns=("source", "vector"))
    assert frame["source"].tolist() == [None, "summary"] * (COUNT // 2)
    assert {len(vector) for vector in frame["vector"]} == {32}


def test_store_name_is_not_a_pattern(redis: RedisServer) -> None:
    for name in ("a*b", "axb", "a[x]b", "a?b", "a\\b"):
        Betterdb(redis.client(), name=name).remember(f"of {name}")
    for name, written in (("a*b", "a%2Ab"), ("a[x]b", "a%5Bx%5Db"), ("a\\b", "a%5Cb")):
        frame = memlab.load(f"{redis.url}?name={written}")
        assert frame["title"].tolist() == [f"of {name}"]


def test_memories_of_one_time_have_distinct_positions(redis: RedisServer) -> None:
    count = 3000
    with redis.client().pipeline(transaction=False) as pipe:
        for number in range(count):
            fields = {"content": str(number), "created_at": "1772366400000"}
            pipe.hset(f"{NAME}:mem:{number:06}", mapping=fields)
        pipe.execute()
    positions = memlab.load(redis.url)["position"]
    assert positions.tolist() == sorted(set(positions))
    assert len(positions) == count
    assert count > betterdb._KEYS_PER_SCAN, "one scan would return them all"
