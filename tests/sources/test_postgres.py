"""What PostgreSQL lets whom read and change, and what a deletion there would set off."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from memforge_store import TOUCHED, add_history, add_links, add_memory, everything
from servers import PostgresServer

import memlab
from memlab.errors import (
    ChangedWhileReadError,
    CompactionError,
    MemlabError,
    StalePlanError,
    StoreError,
    UnsafeDeletionError,
)
from memlab.sources import postgres
from memlab.sources.opening import open_source
from memlab.systems.memforge.changes import MemforgeWriter
from sources.conformance import delete_all, prints, put_back, records_of
from sources.test_memforge import MemforgeLab

LEAST = """
CREATE ROLE {role} LOGIN {security};
GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};
GRANT INSERT, DELETE, UPDATE ON warm_tier TO {role};
GRANT INSERT, DELETE ON cold_tier TO {role};
GRANT USAGE ON SEQUENCE cold_tier_id_seq TO {role};
GRANT INSERT ON warm_tier_entities, retrieval_log, memory_revisions, memory_conflicts,
    memory_sequences, causal_edges TO {role};
GRANT UPDATE ON shared_memories TO {role};
"""
"""What the documentation asks for."""


class TwoAgents(MemforgeLab):
    """A database of its own with some memories of two agents."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        super().__init__(server, database)
        self.mine = [add_memory(self.connection, content=f"note {n}") for n in range(4)]
        self.others = [add_memory(self.connection, "b", content=f"of b {n}") for n in range(2)]
        add_history(self.connection, self.mine)
        add_links(self.connection, zip(self.mine, self.mine[1:], strict=False))
        self.roles: list[str] = []

    def delete_mine(self) -> int:
        return delete_all(self, records_of(self, self.mine))

    def become(self, role: str, security: str) -> None:
        """Go on as a role that has the least privileges."""
        self.connection.execute(LEAST.format(role=role, security=security))
        self.roles.append(role)
        self.name = self.name.replace("postgres:@", f"{role}@")


@pytest.fixture
def own(one_postgres: PostgresServer, own_memforge: str) -> Iterator[TwoAgents]:
    made = TwoAgents(one_postgres, own_memforge)
    yield made
    for role in made.roles:
        made.connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    made.connection.close()


def test_another_database_is_known_for_what_it_is(own: TwoAgents) -> None:
    with pytest.raises(StoreError, match=r"does not answer .*nobody_made_this"):
        memlab.load(own.name.replace("/d", "/nobody_made_this", 1))
    own.connection.execute("ALTER TABLE warm_tier DROP agent_id CASCADE")
    with pytest.raises(StoreError, match="lacks the column agent_id: another version"):
        memlab.load(own.name)
    own.connection.execute("DROP TABLE warm_tier CASCADE")
    with pytest.raises(StoreError, match="has no table warm_tier"):
        memlab.load(own.name)


def test_a_role_under_row_level_security_reads_one_agent_and_changes_nothing(
    own: TwoAgents,
) -> None:
    before = everything(own.connection)
    own.become("tenant", "NOBYPASSRLS")
    with pytest.raises(StoreError, match=r"shows tenant the memories of one agent.*\?agent=NAME"):
        memlab.load(own.name)
    own.name += "&agent=b"
    assert memlab.load(own.name)["position"].tolist() == own.others
    with pytest.raises(UnsafeDeletionError, match="row-level security may hide rows") as caught:
        delete_all(own, records_of(own, own.others))
    assert "BYPASSRLS" in caught.value.instead
    assert everything(own.connection) == before


def test_the_least_privileges_of_the_documentation_are_enough(own: TwoAgents) -> None:
    before = everything(own.connection)
    own.become("worker", "BYPASSRLS")
    records = records_of(own, own.mine)
    assert delete_all(own, records) == put_back(own, records) == 4
    assert everything(own.connection) == before


def test_an_agent_that_is_named_has_its_own_memories_alone(own: TwoAgents) -> None:
    assert memlab.load(own.name)["position"].tolist() == own.mine + own.others
    records, whole = records_of(own, own.others), own.name
    own.name = f"{whole}&agent=nobody"
    assert memlab.load(own.name).empty
    own.name = f"{whole}&agent=a"
    assert memlab.load(own.name)["position"].tolist() == own.mine
    with pytest.raises(StalePlanError):
        delete_all(own, records)
    assert len(memlab.load(whole)) == 6


TRIGGER = "CREATE TRIGGER tell BEFORE {} FOR EACH ROW EXECUTE FUNCTION prevent_audit_delete()"
TAGS = "CREATE TABLE tags (id INT PRIMARY KEY, memory BIGINT"
DANGERS = {
    "set off tell on warm_tier": TRIGGER.format("DELETE ON warm_tier"),
    "would set off tell on warm_tier": TRIGGER.format("INSERT ON warm_tier"),
    "set off tell on cold_tier": TRIGGER.format("INSERT ON cold_tier"),
    "set off tell on retrieval_log": TRIGGER.format("DELETE ON retrieval_log"),
    "set off tell on shared_memories": TRIGGER.format("UPDATE ON shared_memories"),
    "set off keep on retrieval_log": (
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
}


@pytest.mark.parametrize("said", DANGERS)
def test_what_a_deletion_would_set_off_or_could_not_put_back_is_named_and_nothing_is_deleted(
    own: TwoAgents, said: str
) -> None:
    own.connection.execute(DANGERS[said])
    before = everything(own.connection)
    with pytest.raises(UnsafeDeletionError, match=said) as caught:
        own.delete_mine()
    assert caught.value.instead
    assert everything(own.connection) == before


def test_a_table_that_forbids_the_deletion_is_named_and_nothing_is_deleted(own: TwoAgents) -> None:
    own.connection.execute(f"{TAGS} REFERENCES warm_tier (id)); INSERT INTO tags VALUES (1, 2)")
    before = everything(own.connection)
    with pytest.raises(CompactionError, match='on table "tags"'):
        own.delete_mine()
    assert everything(own.connection) == before


def test_what_depends_on_what_goes_is_kept_and_put_back_too(own: TwoAgents) -> None:
    own.connection.execute(TRIGGER.format("DELETE ON warm_tier"))
    own.connection.execute(
        "ALTER TABLE warm_tier DISABLE TRIGGER tell;"  # which stops nothing
        "CREATE TABLE notes (id INT PRIMARY KEY, "
        "revision BIGINT REFERENCES memory_revisions (id) ON DELETE CASCADE, "
        "log BIGINT REFERENCES retrieval_log (id) ON DELETE SET NULL);"
        "INSERT INTO notes VALUES (1, 2, NULL), (2, NULL, 3)"
    )
    before = everything(own.connection, *TOUCHED, "notes")
    records = records_of(own, own.mine)
    delete_all(own, records)
    assert everything(own.connection, "notes") == {"notes": ["(2,,)"]}
    put_back(own, records)
    assert everything(own.connection, *TOUCHED, "notes") == before


def test_who_changes_a_memory_at_the_same_time_wins(
    own: TwoAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres._SETTINGS, "lock_timeout", "100ms")
    records = records_of(own, own.mine)
    change = "UPDATE warm_tier SET importance = 1 WHERE id = 2"
    with own.connection.transaction():
        own.connection.execute(change)
        with pytest.raises(StoreError, match="locked for long; try again"):
            delete_all(own, records)
    raced = pytest.raises(ChangedWhileReadError, match="at the same time; nothing was changed")
    with raced, open_source(own.name).changing() as writer:
        list(writer.records(own.mine))
        own.connection.execute(change)
        writer.delete(prints(records, own))
    assert len(memlab.load(own.name)) == 6


def test_a_retrieval_at_the_same_time_lets_a_plan_be_tried_again(
    own: TwoAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = memlab.plan(own.name, memlab.KeepRecent(0))
    locked, tries = MemforgeWriter._stale, iter(range(3))

    def retrieved_before(self: MemforgeWriter, expected: Any) -> Any:
        if next(tries) < 2:
            own.connection.execute("UPDATE warm_tier SET access_count = access_count + 1")
        return locked(self, expected)

    monkeypatch.setattr(MemforgeWriter, "_stale", retrieved_before)
    receipt = memlab.apply(made)
    assert receipt.deleted == 6
    assert memlab.load(own.name).empty
    assert memlab.restore(receipt) == 6


@pytest.mark.parametrize(
    "change",
    [
        "importance TYPE text USING 'high'",
        "access_count TYPE text USING 'often'",
        "consolidated_at TYPE text USING 'once'",
        "graduated TYPE text USING 'perhaps'",
    ],
)
def test_columns_of_other_types_are_said_to_be_that_or_read(own: TwoAgents, change: str) -> None:
    column, _, _ = change.partition(" ")
    own.connection.execute(f"ALTER TABLE warm_tier ALTER {column} DROP DEFAULT")
    own.connection.execute(f"ALTER TABLE warm_tier ALTER {change}")
    with suppress(MemlabError):
        memlab.load(own.name, with_body=True)
    with suppress(MemlabError):
        memlab.apply(memlab.plan(own.name, memlab.KeepRecent(1)))
