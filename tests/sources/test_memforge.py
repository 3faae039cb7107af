"""MemForge memories on a real PostgreSQL, with rows in every dependent table."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memlab
from memlab import errors
from memlab.policies import ImportanceBudget
from memlab.sources import postgres
from memlab.sources.opening import open_source
from memlab.sources.readers import Key
from memlab.systems.memforge import MemforgeWriter
from memlab.testing.conformance import ServerSuite, delete_all, fingerprints, put_back, records_of
from memlab.testing.labs import COUNT
from tests.support import memforge_store
from tests.support.memforge_store import TOUCHED, MemforgeLab
from tests.support.servers import PostgresServer
from tests.support.shell import output_of

TEXT = st.text().filter(lambda text: "\0" not in text)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture
def empty(one_postgres: PostgresServer, memforge: str) -> Iterator[MemforgeLab]:
    lab = MemforgeLab(one_postgres, memforge)
    yield lab
    lab.connection.close()


class TestMemforge(ServerSuite):
    @pytest.fixture
    def lab(self, empty: MemforgeLab) -> MemforgeLab:  # type: ignore[override]
        empty.fill(COUNT)
        return empty


def delete(lab: MemforgeLab, *keys: int) -> list[tuple[Key, bytes]]:
    records = records_of(lab, list(keys))
    delete_all(lab, records)
    return records


def is_restored_exactly(lab: MemforgeLab, *keys: int) -> bool:
    """Delete and restore memories; true if the database is as before."""
    before = lab.everything("warm_tier", "cold_tier")
    put_back(lab, delete(lab, *keys))
    return lab.everything("warm_tier", "cold_tier") == before


def test_links_are_restored_with_their_second_memory(empty: MemforgeLab) -> None:
    ids = [empty.add(content=f"note {number}") for number in range(5)]
    memforge_store.add_history(empty.connection, ids)
    memforge_store.add_links(empty.connection, pairwise(ids))
    memforge_store.add_links(empty.connection, [(ids[3], ids[1])])
    before = empty.everything()
    records = delete(empty, *ids[1:4])
    assert empty.rows("memory_sequences") == []
    put_back(empty, records[:1])
    assert empty.rows("causal_edges", "cause_id, effect_id") == [(ids[0], ids[1])]
    put_back(empty, records[1:])
    assert empty.everything() == before


def test_cold_tier_row_equals_that_of_memforge(empty: MemforgeLab) -> None:
    columns_of_both = {
        "metadata": '{"b": 1.0, "a": "ü"}',
        "namespace": "n",
        "consolidated_at": "2026-03-01 00:00:00.5+00",
    }
    empty.add(importance=0, **columns_of_both)
    memory = empty.add(importance=1, **columns_of_both)
    memforge_store.evict_as_memforge(empty.connection, "a", 1)
    records = delete(empty, memory)
    columns = "source_id, agent_id, source_table, content, metadata, original_created_at, namespace"
    theirs, ours = empty.rows("cold_tier", columns)
    assert ours == (memory, *theirs[1:])
    put_back(empty, records)
    assert empty.rows("cold_tier", columns) == [theirs]


def test_cold_tier_memories_are_part_of_the_past(empty: MemforgeLab) -> None:
    written = "2026-03-01 12:00:00.5+00"
    for number in range(6):
        for agent in "ab":
            text = f"note {number}\nof {agent}"
            empty.add(agent, content=text, consolidated_at=written, importance=number)
    url = f"{empty.name}&agent=a"
    before = memlab.load(url, with_body=True).set_index("memory_id")
    memforge_store.evict_as_memforge(empty.connection, "a", 2)
    memforge_store.evict_as_memforge(empty.connection, "b", 1)
    memlab.apply(memlab.plan(url, memlab.KeepRecent(3)))
    past = memlab.load_past(url, with_body=True).set_index("memory_id")
    kept_columns = [
        "position",
        "title",
        "body",
        "chars",
        "tokens",
        "created_at",
        "agent_id",
        "namespace",
    ]
    assert past[kept_columns].equals(before[kept_columns])
    # Ids are missing because they belong to another agent.
    assert "history-incomplete" not in output_of("size", url)
    assert (past["deleted_at"] > past["created_at"]).tolist() == [True] * 3 + [False] * 3
    assert past["prunable"].tolist() == [False] * 3 + [True] * 3
    assert memlab.load_past(empty.name)["deleted_at"].notna().sum() == 4


def test_conflicts_of_an_undo_are_named(empty: MemforgeLab) -> None:
    """Conflicts are a deleted agent and a memory restored by MemForge itself."""
    memory = empty.add()
    records = delete(empty, memory)
    cold = str(empty.rows("cold_tier")[0][0])
    twin = empty.add(metadata=json.dumps({"_restored_from_cold_id": cold}))
    deletion = delete(empty, empty.add("old"))
    empty.connection.execute("DELETE FROM agents WHERE id = 'old'")
    with open_source(empty.name).changing() as writer:
        assert writer.conflicts(deletion) == ["agent 'old', who is gone"]
        assert writer.conflicts(records) == [f"memory {memory}, which MemForge restored as {twin}"]


def test_undo_names_rows_left_in_the_archive(empty: MemforgeLab) -> None:
    memory = empty.add()
    memforge_store.add_history(empty.connection, [memory])
    full_undo = memlab.restore(memlab.apply(memlab.plan(empty.name, memlab.KeepRecent(0))))
    assert full_undo.memories == 1
    assert full_undo.rows_left_out == {}
    receipt = memlab.apply(memlab.plan(empty.name, memlab.KeepRecent(0)))
    empty.connection.execute("DELETE FROM entities")
    first, second = output_of("restore", empty.name, receipt.digest).splitlines()
    assert first == f"1 memory restored into {open_source(empty.name).name}"
    assert second.startswith("1 row of warm_tier_entities left in the archive, because")
    assert empty.rows("warm_tier_entities") == []
    assert len(empty.rows("retrieval_log")) == 1
    second_receipt = memlab.restore(receipt)
    assert second_receipt.memories == 0
    assert second_receipt.rows_left_out == {}


def test_shared_memory_that_now_points_elsewhere_is_kept(empty: MemforgeLab) -> None:
    memory = empty.add()
    other = empty.add()
    memforge_store.add_history(empty.connection, [memory])
    records = delete(empty, memory)
    assert empty.rows("shared_memories", "id, source_warm_tier_id") == [(1, None)]
    empty.connection.execute("UPDATE shared_memories SET source_warm_tier_id = %s", (other,))
    put_back(empty, records)
    assert empty.rows("shared_memories", "id, source_warm_tier_id") == [(1, other)]


def test_expired_memory_counts_and_can_be_deleted(empty: MemforgeLab) -> None:
    for number in range(50):
        until = [None, "2026-03-02+00", "2099-01-01+00"][number % 3]
        for agent in ("theirs", "ours"):
            importance = (number * 7 % 50) / 50
            empty.add(agent, content=str(number), importance=importance, valid_until=until)
    memforge_store.evict_as_memforge(empty.connection, "theirs", 10)
    url = f"{empty.name}&agent=ours"
    memlab.apply(memlab.plan(url, ImportanceBudget(40)))
    remaining = empty.rows("warm_tier", "agent_id, content")
    ours = {text for agent, text in remaining if agent == "ours"}
    theirs = {text for agent, text in remaining if agent == "theirs"}
    assert len(ours) == 40
    assert ours == theirs
    frame = memlab.load(url)
    assert frame["active"].all()
    assert set(frame["expires_at"].dropna().dt.year) == {2026, 2099}


def test_importance_is_float4_and_times_are_clamped(empty: MemforgeLab) -> None:
    for importance in (0.7, 0.1, float("nan")):
        empty.add(importance=importance)
    assert memlab.load(empty.name)["importance"].fillna(9).tolist() == [0.7, 0.1, 9]
    for moment in ("infinity", "-infinity", "4713-01-01 BC", "20000-01-01"):
        empty.add(consolidated_at=moment)
    loaded = memlab.load(empty.name)
    assert not loaded["load_bearing"].any()
    assert loaded["created_at"].dt.year.tolist()[3:] == [9999, 1, 1, 9999]
    ids = [memory_id for memory_id, _ in empty.rows("warm_tier", "id, content")]
    assert len(ids) == 7
    assert is_restored_exactly(empty, *ids)


def test_rows_of_other_schema_versions_are_restored(
    one_postgres: PostgresServer, own_memforge: str
) -> None:
    lab = MemforgeLab(one_postgres, own_memforge)
    lab.connection.execute(
        "ALTER TABLE warm_tier DROP COLUMN valid_until, DROP COLUMN session_id, "
        "DROP COLUMN graduated, DROP COLUMN namespace, DROP COLUMN outcome_type, "
        "DROP COLUMN access_count, ADD COLUMN mood TEXT DEFAULT 'calm', "
        'ADD COLUMN "odd ""na%me" INT[]; DROP TABLE causal_edges'
    )
    ids = [lab.add(content="x", mood=mood) for mood in ("wild", None, "calm")]
    lab.connection.execute('UPDATE warm_tier SET "odd ""na%me" = \'{1,NULL}\' WHERE id = 2')
    lab.connection.execute("ALTER TABLE cold_tier RENAME TO away")
    assert len(memlab.load_past(lab.name)) == 3
    lab.connection.execute("ALTER TABLE away RENAME TO cold_tier")
    frame = memlab.load(lab.name, columns=("mood", 'odd "na%me'))
    assert frame["mood"].tolist() == ["wild", None, "calm"]
    assert frame['odd "na%me'].tolist() == [None, [1, None], None]
    assert frame["active"].all()
    with pytest.raises(errors.StoreError, match="has no column colour; it has id, agent_id"):
        memlab.load(lab.name, columns=("colour",))
    assert is_restored_exactly(lab, *ids)
    records = delete(lab, *ids)
    lab.connection.execute("ALTER TABLE warm_tier DROP COLUMN mood")
    with pytest.raises(errors.StoreError, match="no longer has the column mood"):
        put_back(lab, records)
    assert lab.rows("warm_tier") == []
    lab.connection.close()


@given(contents=st.lists(st.tuples(TEXT, JSON_VALUES), min_size=10, max_size=10))
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_text_and_json_are_restored(
    empty: MemforgeLab, contents: list[tuple[str, Any]]
) -> None:
    ids = [
        empty.add(content=text, summary=text, metadata=json.dumps(metadata))
        for text, metadata in contents
    ]
    assert is_restored_exactly(empty, *ids)


# Privileges, row-level security, triggers and foreign keys

PAGE = (Path(__file__).parents[2] / "docs" / "servers.md").read_text(encoding="utf-8")
(LEAST,) = re.findall(r"```postgresql\n(CREATE ROLE worker.*?)```", PAGE, re.DOTALL)


class TwoAgents(MemforgeLab):
    """A separate database with memories of two agents."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        super().__init__(server, database)
        self.mine = [self.add(content=f"note {number}") for number in range(4)]
        self.others = [self.add("b", content=f"of b {number}") for number in range(2)]
        memforge_store.add_history(self.connection, self.mine)
        memforge_store.add_links(self.connection, pairwise(self.mine))
        self.roles: list[str] = []

    def become(self, role: str, *, bypass: bool) -> None:
        """Continue as a role with the documented minimal privileges."""
        statements = LEAST.replace("worker", role)
        if not bypass:
            statements = statements.replace("BYPASSRLS", "")
        self.connection.execute(statements)
        self.roles.append(role)
        self.name = self.name.replace("postgres:@", f"{role}@")


@pytest.fixture
def own(one_postgres: PostgresServer, own_memforge: str) -> Iterator[TwoAgents]:
    lab = TwoAgents(one_postgres, own_memforge)
    yield lab
    for role in lab.roles:
        lab.connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    lab.connection.close()


def test_unsuitable_database_is_an_error(own: TwoAgents) -> None:
    with pytest.raises(errors.StoreError, match=r"does not answer .*nobody_made_this"):
        memlab.load(own.name.replace("/d", "/nobody_made_this", 1))

    def change_to_text(column: str, value: str) -> None:
        own.connection.execute(
            f"ALTER TABLE warm_tier ALTER {column} DROP DEFAULT, "
            f"ALTER {column} TYPE text USING '{value}'"
        )

    change_to_text("graduated", "perhaps")
    assert len(memlab.load(own.name)) == 6
    for column, value, message in (
        ("consolidated_at", "once", "consolidated_at is no moment"),
        ("access_count", "often", "other values than it was asked for .*'often'"),
        ("importance", "high", "other values than it was asked for .*'high'"),
    ):
        change_to_text(column, value)
        with pytest.raises(errors.MemlabError, match=message):
            memlab.load(own.name)
    own.connection.execute("ALTER TABLE warm_tier DROP agent_id CASCADE")
    with pytest.raises(errors.StoreError, match="lacks the column agent_id: another version"):
        memlab.load(own.name)
    own.connection.execute("DROP TABLE warm_tier CASCADE")
    with pytest.raises(errors.StoreError, match="has no table warm_tier"):
        memlab.load(own.name)


def test_row_level_security_allows_only_reading_one_agent(own: TwoAgents) -> None:
    before = own.everything()
    own.become("tenant", bypass=False)
    with pytest.raises(errors.StoreError, match=r"shows tenant .* of one agent.*\?agent=NAME"):
        memlab.load(own.name)
    own.name += "&agent=b"
    assert memlab.load(own.name)["position"].tolist() == own.others
    with pytest.raises(errors.UnsafeDeletionError, match=r"security may hide rows .*BYPASSRLS"):
        delete_all(own, records_of(own, own.others))
    assert own.everything() == before


def test_documented_minimal_privileges_are_sufficient(own: TwoAgents) -> None:
    before = own.everything()
    own.become("worker", bypass=True)
    assert put_back(own, delete(own, *own.mine)) == 4
    assert own.everything() == before


def test_agent_parameter_limits_access_to_that_agent(own: TwoAgents) -> None:
    before = own.everything()
    records = records_of(own, own.others)
    own.name += "&agent=a"
    assert memlab.load(own.name)["position"].tolist() == own.mine
    with pytest.raises(errors.StalePlanError):
        delete_all(own, records)
    for key, record in records:
        with pytest.raises(ValueError, match="it is a memory of agent 'b'"):
            open_source(own.name).check_record(key, record, json.loads(record))
    assert put_back(own, delete(own, *own.mine)) == 4
    assert own.everything() == before


TRIGGER = "CREATE TRIGGER tell BEFORE {} FOR EACH ROW EXECUTE FUNCTION prevent_audit_delete()"
TAGS = "CREATE TABLE tags (id INT PRIMARY KEY, memory BIGINT"
DANGERS = {
    "would fire tell on warm_tier": TRIGGER.format("DELETE ON warm_tier"),
    "would fire tell on cold_tier": TRIGGER.format("INSERT ON cold_tier"),
    "would fire tell on shared_memories": TRIGGER.format("UPDATE ON shared_memories"),
    "would fire keep on retrieval_log": (
        "CREATE RULE keep AS ON DELETE TO retrieval_log DO INSTEAD NOTHING"
    ),
    "the table tags has no primary key": (
        "CREATE TABLE tags (memory BIGINT REFERENCES warm_tier (id) ON DELETE CASCADE);"
        "INSERT INTO tags VALUES (1)"
    ),
    "the table tags refers to warm_tier with ON DELETE SET DEFAULT": (
        f"{TAGS} DEFAULT 1 REFERENCES warm_tier (id) ON DELETE SET DEFAULT)"
    ),
    "the table tags refers to warm_tier by several columns": (
        f"CREATE UNIQUE INDEX both_ids ON warm_tier (id, agent_id); {TAGS}, agent TEXT, "
        "FOREIGN KEY (memory, agent) REFERENCES warm_tier (id, agent_id) ON DELETE CASCADE)"
    ),
    'on table "tags"': f"{TAGS} REFERENCES warm_tier (id)); INSERT INTO tags VALUES (1, 2)",
}


@pytest.mark.parametrize("danger", DANGERS)
def test_deletion_with_side_effects_is_rejected_by_name(own: TwoAgents, danger: str) -> None:
    own.connection.execute(DANGERS[danger])
    before = own.everything()
    with pytest.raises((errors.UnsafeDeletionError, errors.CompactionError), match=danger):
        delete(own, *own.mine)
    assert own.everything() == before


def test_dependent_rows_are_archived_and_restored(own: TwoAgents) -> None:
    own.connection.execute(TRIGGER.format("DELETE ON warm_tier"))
    own.connection.execute(
        "ALTER TABLE warm_tier DISABLE TRIGGER tell;"  # a disabled trigger does not matter
        "CREATE TABLE notes (id INT PRIMARY KEY, "
        "revision BIGINT REFERENCES memory_revisions (id) ON DELETE CASCADE, "
        "log BIGINT REFERENCES retrieval_log (id) ON DELETE SET NULL);"
        "INSERT INTO notes VALUES (1, 2, NULL), (2, NULL, 3)"
    )
    before = own.everything(*TOUCHED, "notes")
    records = delete(own, *own.mine)
    assert own.everything("notes") == {"notes": ["(2,,)"]}
    put_back(own, records)
    assert own.everything(*TOUCHED, "notes") == before


def test_concurrent_change_of_a_memory_wins(
    own: TwoAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres._SETTINGS, "lock_timeout", "100ms")
    records = records_of(own, own.mine)
    change = "UPDATE warm_tier SET importance = 1 WHERE id = 2"
    with own.connection.transaction():
        own.connection.execute(change)
        with pytest.raises(errors.StoreError, match="memory locked; try again"):
            delete_all(own, records)

    def delete_during_a_change() -> None:
        with open_source(own.name).changing() as writer:
            list(writer.records(own.mine))
            own.connection.execute(change)
            writer.delete(fingerprints(records, own))

    with pytest.raises(errors.ChangedWhileReadError, match="same time; nothing was changed"):
        delete_during_a_change()
    assert len(memlab.load(own.name)) == 6


def test_plan_is_retried_after_a_memory_access(
    own: TwoAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = memlab.plan(own.name, memlab.KeepRecent(0))
    stale = MemforgeWriter._stale
    tries = 0

    def stale_after_an_access(self: MemforgeWriter, expected: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries <= 2:
            own.connection.execute("UPDATE warm_tier SET access_count = access_count + 1")
        return stale(self, expected)

    monkeypatch.setattr(MemforgeWriter, "_stale", stale_after_an_access)
    receipt = memlab.apply(plan)
    assert tries == 3
    assert receipt.deleted == 6
    assert memlab.load(own.name).empty
    assert memlab.restore(receipt).memories == 6
