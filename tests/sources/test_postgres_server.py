"""What a PostgreSQL server does to those who read it, and who may read and change what."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from memforge_store import (
    TOUCHED,
    add_history,
    add_links,
    add_memory,
    empty_tables,
    everything,
)
from servers import PostgresServer

import memlab
from memlab.errors import (
    CompactionError,
    MissingExtraError,
    StalePlanError,
    StoreError,
    UnsafeDeletionError,
)
from memlab.sources import postgres_server
from memlab.sources.opening import open_source
from sources.conformance import prints, records_of

LEAST = """
CREATE ROLE {role} LOGIN {security};
GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};
"""
FOR_CHANGES = """
GRANT INSERT, DELETE, UPDATE ON warm_tier TO {role};
GRANT INSERT, DELETE ON cold_tier TO {role};
GRANT USAGE ON SEQUENCE cold_tier_id_seq TO {role};
GRANT INSERT ON warm_tier_entities, retrieval_log, memory_revisions, memory_conflicts,
    memory_sequences, causal_edges TO {role};
GRANT UPDATE ON shared_memories TO {role};
"""


class Database:
    """A database with some memories of two agents."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.url = server.url(name)
        self.server, self.name = server, name
        self.connection = server.connect(name)
        self.mine = [add_memory(self.connection, content=f"note {n}") for n in range(4)]
        self.others = [add_memory(self.connection, "b", content=f"of b {n}") for n in range(2)]
        add_history(self.connection, self.mine)
        add_links(self.connection, zip(self.mine, self.mine[1:], strict=False))

    def as_role(self, role: str) -> str:
        return self.url.replace("postgres:@", f"{role}@")


@pytest.fixture
def own(one_postgres: PostgresServer, own_memforge: str) -> Iterator[Database]:
    made = Database(one_postgres, own_memforge)
    yield made
    made.connection.close()
    with one_postgres.connect() as connection:
        for role in ("looker", "worker", "tenant"):
            connection.execute(f"DROP OWNED BY {role}" if _role(connection, role) else "SELECT 1")


@pytest.fixture
def role(own: Database) -> Iterator[Any]:
    """Make roles for this database, and drop them at the end."""
    made: list[str] = []

    def make(name: str, *statements: str, security: str = "BYPASSRLS") -> str:
        made.append(name)
        for statement in (LEAST, *statements):
            own.connection.execute(statement.format(role=name, security=security))
        return own.as_role(name)

    yield make
    for name in made:
        own.connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def _role(connection: Any, name: str) -> bool:
    found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,))
    return found.fetchone() is not None


def delete(name: str, keys: list[Any]) -> int:
    records = records_of(Named(name), keys)  # type: ignore[arg-type]
    with open_source(name).changing() as writer:
        return writer.delete(prints(records))


class Named:
    """As much of a lab as reading needs."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_a_server_that_is_not_there_is_said_in_a_sentence(own: Database) -> None:
    for url in ("postgresql://me@127.0.0.1:1/db", "postgresql:///db?host=/nowhere"):
        with pytest.raises(StoreError, match=r"does not answer .*check the address"):
            memlab.load(url)
    with pytest.raises(StoreError, match=r"does not answer .*nobody_made_this"):
        memlab.load(own.url.replace(own.name, "nobody_made_this"))


def test_a_session_that_is_cut_while_it_reads_is_said_and_another_reads(own: Database) -> None:
    def read_twice() -> None:
        with open_source(own.url).reading() as reader:
            list(reader.records(own.mine))
            own.server.end_sessions(own.name)
            list(reader.records(own.mine))

    with pytest.raises(StoreError, match=r"does not answer|refuses"):
        read_twice()
    assert len(memlab.load(own.url)) == 6


def test_a_session_that_is_cut_while_it_changes_changes_nothing(own: Database) -> None:
    before = everything(own.connection)
    records = records_of(Named(own.url), own.mine)  # type: ignore[arg-type]

    def cut() -> None:
        with open_source(own.url).changing() as writer:
            writer.delete(prints(records), watch=lambda _: own.server.end_sessions(own.name))

    with pytest.raises(StoreError, match=r"does not answer|refuses"):
        cut()
    with own.server.connect(own.name) as connection:
        assert everything(connection) == before


def test_another_database_is_known_for_what_it_is(one_postgres: PostgresServer) -> None:
    name = one_postgres.new_database()
    try:
        with pytest.raises(StoreError, match="has no table warm_tier"):
            memlab.load(one_postgres.url(name))
        with one_postgres.connect(name) as connection:
            connection.execute("CREATE TABLE warm_tier (id int, content text)")
        with pytest.raises(StoreError, match="lacks the column agent_id, consolidated_at"):
            memlab.load(one_postgres.url(name))
    finally:
        one_postgres.drop(name)


def test_the_missing_client_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'memlab\[postgresql\]'"):
        memlab.load("postgresql://localhost/db")


def test_a_role_under_row_level_security_reads_one_agent_and_changes_nothing(
    own: Database, role: Any
) -> None:
    name = role("tenant", FOR_CHANGES, security="NOBYPASSRLS")
    with pytest.raises(StoreError, match=r"shows tenant the memories of one agent.*\?agent=NAME"):
        memlab.load(name)
    frame = memlab.load(f"{name}&agent=b")
    assert frame["position"].tolist() == own.others
    before = everything(own.connection)
    with pytest.raises(UnsafeDeletionError, match="row-level security may hide rows") as caught:
        delete(f"{name}&agent=b", own.others)
    assert "BYPASSRLS" in caught.value.instead
    assert everything(own.connection) == before


def test_the_owner_reads_all_agents_or_one(own: Database) -> None:
    assert memlab.load(own.url)["position"].tolist() == own.mine + own.others
    assert memlab.load(f"{own.url}&agent=a")["position"].tolist() == own.mine
    assert memlab.load(f"{own.url}&agent=nobody").empty


def test_a_memory_of_another_agent_is_not_deleted_by_its_id(own: Database) -> None:
    records = records_of(Named(own.url), own.others)  # type: ignore[arg-type]

    def over_the_fence() -> None:
        with open_source(f"{own.url}&agent=a").changing() as writer:
            writer.delete(prints(records))

    with pytest.raises(StalePlanError):
        over_the_fence()
    assert len(memlab.load(own.url)) == 6


def test_a_role_that_may_only_select_reads_and_is_told_what_it_lacks(
    own: Database, role: Any
) -> None:
    name = role("looker")
    assert len(memlab.load(name)) == 6
    assert len(records_of(Named(name), own.mine)) == 4  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=r"permission denied.*grant it"):
        delete(name, own.mine)


def test_the_least_privileges_of_the_documentation_are_enough(own: Database, role: Any) -> None:
    name = role("worker", FOR_CHANGES)
    before = everything(own.connection)
    records = records_of(Named(name), own.mine)  # type: ignore[arg-type]
    assert delete(name, own.mine) == 4
    with open_source(name).changing() as writer:
        assert writer.conflicts(records) == []
        assert writer.insert(records) == 4
    assert everything(own.connection) == before


@pytest.mark.parametrize(
    ("table", "event"),
    [
        ("warm_tier", "DELETE"),
        ("warm_tier", "INSERT"),
        ("cold_tier", "INSERT"),
        ("retrieval_log", "DELETE"),
        ("shared_memories", "UPDATE"),
    ],
)
def test_a_trigger_that_a_deletion_or_its_undo_would_set_off_is_named(
    own: Database, table: str, event: str
) -> None:
    own.connection.execute(
        f"CREATE TRIGGER tell BEFORE {event} ON {table} FOR EACH ROW "
        "EXECUTE FUNCTION prevent_audit_delete()"
    )
    with pytest.raises(UnsafeDeletionError, match=f"set off tell on {table}"):
        delete(own.url, own.mine)
    own.connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER tell")
    assert delete(own.url, own.mine) == 4


def test_a_rule_on_a_table_that_is_touched_is_named(own: Database) -> None:
    own.connection.execute("CREATE RULE keep AS ON DELETE TO retrieval_log DO INSTEAD NOTHING")
    with pytest.raises(UnsafeDeletionError, match="set off keep on retrieval_log"):
        delete(own.url, own.mine)


NO_KEY = """
CREATE TABLE tags (memory BIGINT REFERENCES warm_tier (id) ON DELETE CASCADE);
INSERT INTO tags VALUES (1)
"""
DEFAULTED = """
CREATE TABLE tags (
    id INT PRIMARY KEY, memory BIGINT DEFAULT 1 REFERENCES warm_tier (id) ON DELETE SET DEFAULT
)
"""
BY_TWO = """
CREATE UNIQUE INDEX both_ids ON warm_tier (id, agent_id);
CREATE TABLE tags (
    id INT PRIMARY KEY, memory BIGINT, agent TEXT,
    FOREIGN KEY (memory, agent) REFERENCES warm_tier (id, agent_id) ON DELETE CASCADE
)
"""


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (NO_KEY, "the table tags has no primary key"),
        (DEFAULTED, "the table tags refers to warm_tier with ON DELETE SET DEFAULT"),
        (BY_TWO, "the table tags refers to warm_tier by several columns"),
    ],
)
def test_a_table_that_could_not_be_put_back_is_named_and_nothing_is_deleted(
    own: Database, statement: str, said: str
) -> None:
    own.connection.execute(statement)
    before = everything(own.connection)
    with pytest.raises(UnsafeDeletionError, match=said) as caught:
        delete(own.url, own.mine)
    assert caught.value.instead
    assert everything(own.connection) == before


def test_a_table_that_forbids_the_deletion_is_named_and_nothing_is_deleted(own: Database) -> None:
    own.connection.execute(
        "CREATE TABLE pinned (id INT PRIMARY KEY, memory BIGINT REFERENCES warm_tier (id));"
        "INSERT INTO pinned VALUES (1, 2)"
    )
    before = everything(own.connection)
    with pytest.raises(CompactionError, match='on table "pinned"'):
        delete(own.url, own.mine)
    assert everything(own.connection) == before


def test_what_depends_on_what_goes_is_kept_and_put_back_too(own: Database) -> None:
    own.connection.execute(
        "CREATE TABLE notes (id INT PRIMARY KEY, "
        "revision BIGINT REFERENCES memory_revisions (id) ON DELETE CASCADE, "
        "log BIGINT REFERENCES retrieval_log (id) ON DELETE SET NULL);"
        "INSERT INTO notes VALUES (1, 2, NULL), (2, NULL, 3)"
    )
    tables = (*TOUCHED, "notes")
    before = everything(own.connection, *tables)
    records = records_of(Named(own.url), own.mine)  # type: ignore[arg-type]
    delete(own.url, own.mine)
    assert everything(own.connection, "notes") == {"notes": ["(2,,)"]}
    with open_source(own.url).changing() as writer:
        writer.insert(records)
    assert everything(own.connection, *tables) == before


def test_who_changes_a_memory_at_the_same_time_wins(
    own: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of(Named(own.url), own.mine)  # type: ignore[arg-type]
    monkeypatch.setitem(postgres_server._SETTINGS, "lock_timeout", "100ms")
    with own.server.connect(own.name) as other, other.transaction():
        other.execute("UPDATE warm_tier SET importance = 1 WHERE id = %s", (own.mine[1],))
        with pytest.raises(StoreError, match="locked for long; try again"):
            _delete(own.url, records)

    def change_after_the_look(_step: str = "") -> None:
        own.connection.execute("UPDATE warm_tier SET importance = 0.9 WHERE id = 1")

    def delete_what_changes() -> None:
        with open_source(own.url).changing() as writer:
            list(writer.records(own.mine))
            change_after_the_look()
            writer.delete(prints(records))

    with pytest.raises(StalePlanError, match="at the same time; nothing was changed"):
        delete_what_changes()
    assert len(memlab.load(own.url)) == 6


def test_a_passing_error_holds_no_password(own: Database, role: Any) -> None:
    role("looker", "ALTER ROLE {role} PASSWORD 's3cret'")
    url = own.as_role("looker:s3cret").replace(own.name, "nobody_made_this")
    with pytest.raises(StoreError) as caught:
        memlab.load(url)
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"


def _delete(name: str, records: list[Any]) -> None:
    with open_source(name).changing() as writer:
        writer.delete(prints(records))


def test_an_empty_table_is_an_empty_store(one_postgres: PostgresServer, memforge: str) -> None:
    with one_postgres.connect(memforge) as connection:
        empty_tables(connection)
    assert memlab.load(one_postgres.url(memforge), with_body=True).empty
