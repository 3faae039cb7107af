"""MemForge's tables that a deletion in ``warm_tier`` changes, with the columns that it needs."""

from collections.abc import Iterable
from typing import Any

from memlab.testing.labs import TEXTS, Lab
from tests.support.servers import PostgresServer

MEMORY = "BIGINT NOT NULL REFERENCES warm_tier (id) ON DELETE CASCADE"
AGENT = "agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE"
NAMESPACE = "namespace TEXT NOT NULL DEFAULT 'default'"
JSON = "JSONB NOT NULL DEFAULT '{}'"
NOW = "TIMESTAMPTZ NOT NULL DEFAULT now()"

SCHEMA = f"""
CREATE EXTENSION vector;
CREATE TABLE agents (id TEXT PRIMARY KEY, created_at {NOW}, metadata {JSON});
CREATE TABLE warm_tier (
    id BIGSERIAL PRIMARY KEY, {AGENT}, content TEXT NOT NULL,
    content_tsv TSVECTOR GENERATED ALWAYS AS (to_tsvector('english', content)) STORED,
    embedding halfvec, source_hot_ids BIGINT[] NOT NULL DEFAULT '{{}}', metadata {JSON},
    consolidated_at {NOW}, access_count INT NOT NULL DEFAULT 0, last_accessed TIMESTAMPTZ,
    importance REAL NOT NULL DEFAULT 0.5, confidence REAL NOT NULL DEFAULT 0.5,
    outcome_type TEXT NOT NULL DEFAULT 'neutral'
        CHECK (outcome_type IN ('error', 'success', 'decision', 'observation', 'neutral')),
    graduated BOOLEAN NOT NULL DEFAULT false, retrieval_success_count INT NOT NULL DEFAULT 0,
    first_successful_retrieval TIMESTAMPTZ, summary TEXT,
    staleness_score REAL NOT NULL DEFAULT 0, {NAMESPACE}, valid_until TIMESTAMPTZ, session_id TEXT
);
CREATE TABLE cold_tier (
    id BIGSERIAL PRIMARY KEY, {AGENT},
    source_table TEXT NOT NULL CHECK (source_table IN ('hot_tier', 'warm_tier')),
    source_id BIGINT NOT NULL, content TEXT NOT NULL, metadata {JSON}, archived_at {NOW},
    original_created_at TIMESTAMPTZ NOT NULL, {NAMESPACE}
);
CREATE TABLE entities (
    id BIGSERIAL PRIMARY KEY, {AGENT}, name TEXT NOT NULL, UNIQUE (agent_id, name)
);
CREATE TABLE warm_tier_entities (
    warm_tier_id {MEMORY}, entity_id BIGINT NOT NULL REFERENCES entities (id) ON DELETE CASCADE,
    PRIMARY KEY (warm_tier_id, entity_id)
);
CREATE TABLE retrieval_log (
    id BIGSERIAL PRIMARY KEY, {AGENT}, warm_tier_id {MEMORY}, query_text TEXT NOT NULL,
    metadata {JSON}, created_at {NOW}, outcome TEXT, {NAMESPACE}
);
CREATE TABLE memory_revisions (
    id BIGSERIAL PRIMARY KEY, {AGENT}, warm_tier_id {MEMORY}, previous_content TEXT NOT NULL,
    new_content TEXT NOT NULL, confidence REAL NOT NULL DEFAULT 0.5, created_at {NOW}
);
CREATE TABLE memory_conflicts (
    id BIGSERIAL PRIMARY KEY, {AGENT}, warm_tier_id_a {MEMORY}, warm_tier_id_b {MEMORY},
    winner_id BIGINT REFERENCES warm_tier (id), detected_at {NOW}
);
CREATE TABLE memory_sequences (
    id BIGSERIAL PRIMARY KEY, {AGENT}, predecessor_id {MEMORY}, successor_id {MEMORY},
    gap_seconds REAL, UNIQUE (agent_id, predecessor_id, successor_id)
);
CREATE TABLE causal_edges (
    id BIGSERIAL PRIMARY KEY, {AGENT}, cause_id {MEMORY}, effect_id {MEMORY},
    observation_count INTEGER NOT NULL DEFAULT 1, UNIQUE (agent_id, cause_id, effect_id)
);
CREATE TABLE shared_pools (id TEXT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE shared_memories (
    id BIGSERIAL PRIMARY KEY,
    pool_id TEXT NOT NULL REFERENCES shared_pools (id) ON DELETE CASCADE,
    source_agent_id TEXT NOT NULL REFERENCES agents (id),
    source_warm_tier_id BIGINT REFERENCES warm_tier (id) ON DELETE SET NULL,
    content TEXT NOT NULL, embedding halfvec, published_at {NOW}
);
CREATE FUNCTION prevent_audit_delete() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'the audit chain is kept'; END$$;
"""

OF_AN_AGENT = "agent_id = current_setting('app.current_agent_id', true)"
OWN_ROWS = {
    "warm_tier": OF_AN_AGENT,
    "cold_tier": OF_AN_AGENT,
    "entities": OF_AN_AGENT,
    "retrieval_log": OF_AN_AGENT,
    "memory_revisions": OF_AN_AGENT,
    "causal_edges": OF_AN_AGENT,
    "warm_tier_entities": f"warm_tier_id IN (SELECT id FROM warm_tier WHERE {OF_AN_AGENT})",
}
"""Condition for the rows of an agent, by table."""

TOUCHED = (
    "warm_tier",
    "cold_tier",
    "warm_tier_entities",
    "retrieval_log",
    "memory_revisions",
    "memory_conflicts",
    "memory_sequences",
    "causal_edges",
    "shared_memories",
)
TO_MEMORIES = (
    "warm_tier_id",
    "warm_tier_id_a",
    "warm_tier_id_b",
    "winner_id",
    "predecessor_id",
    "successor_id",
    "cause_id",
    "effect_id",
    "source_warm_tier_id",
)
"""Columns that refer to a memory."""


def create_tables(connection: Any) -> None:
    """Create the tables in an empty database, with MemForge's row-level security."""
    connection.execute(SCHEMA)
    for table, rule in OWN_ROWS.items():
        connection.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        connection.execute(
            f"CREATE POLICY {table}_agent_isolation ON {table} FOR ALL "
            f"USING ({rule}) WITH CHECK ({rule})"
        )


def empty_tables(connection: Any) -> None:
    """Delete everything, and count ids from 1 again."""
    connection.execute("TRUNCATE agents, shared_pools RESTART IDENTITY CASCADE")


OWNER = "a"
"""The default agent."""


def add_memory(connection: Any, agent: str = OWNER, **columns: Any) -> int:
    """Write one memory and return its id."""
    connection.execute("INSERT INTO agents (id) VALUES (%s) ON CONFLICT DO NOTHING", (agent,))
    row = {"agent_id": agent, "content": "what the agent noted", **columns}
    names = ", ".join(row)
    marks = ", ".join(["%s"] * len(row))
    (memory_id,) = connection.execute(
        f"INSERT INTO warm_tier ({names}) VALUES ({marks}) RETURNING id", list(row.values())
    ).fetchone()
    return int(memory_id)


def add_history(connection: Any, memory_ids: list[int]) -> None:
    """Give memories a row in every table that belongs to them or has a link to them."""
    connection.execute(
        "INSERT INTO entities (agent_id, name) VALUES (%s, 'the parser') ON CONFLICT DO NOTHING",
        (OWNER,),
    )
    connection.execute("INSERT INTO shared_pools VALUES ('team', 'team') ON CONFLICT DO NOTHING")
    for memory_id in memory_ids:
        for into, values in HISTORY.items():
            parameters = {"agent": OWNER, "memory": memory_id}
            connection.execute(f"INSERT INTO {into} {values}", parameters)


HISTORY = {
    "warm_tier_entities SELECT": "%(memory)s, id FROM entities WHERE agent_id = %(agent)s",
    "retrieval_log (agent_id, warm_tier_id, query_text, outcome) VALUES": (
        "(%(agent)s, %(memory)s, 'where is it', 'positive')"
    ),
    "memory_revisions (agent_id, warm_tier_id, previous_content, new_content) VALUES": (
        "(%(agent)s, %(memory)s, 'old', 'new')"
    ),
    "shared_memories (pool_id, source_agent_id, source_warm_tier_id, content, embedding) VALUES": (
        "('team', %(agent)s, %(memory)s, 'shared', '[1, 0.5]')"
    ),
}


def add_links(connection: Any, pairs: Iterable[tuple[int, int]]) -> None:
    """Write rows that link two memories, which may be the same."""
    for first, second in pairs:
        connection.execute(
            "INSERT INTO memory_conflicts (agent_id, warm_tier_id_a, warm_tier_id_b, winner_id) "
            "VALUES (%s, %s, %s, %s)",
            (OWNER, first, second, first),
        )
        connection.execute(
            "INSERT INTO memory_sequences (agent_id, predecessor_id, successor_id) "
            "VALUES (%s, %s, %s)",
            (OWNER, first, second),
        )
        connection.execute(
            "INSERT INTO causal_edges (agent_id, cause_id, effect_id) VALUES (%s, %s, %s)",
            (OWNER, first, second),
        )


def everything(connection: Any, *tables: str) -> dict[str, list[str]]:
    """Return every row of the tables in PostgreSQL's text format."""
    connection.execute("SET TIME ZONE 'UTC'")
    return {
        table: sorted(row for (row,) in connection.execute(f"SELECT t::text FROM {table} AS t"))
        for table in tables or TOUCHED
    }


def evict_as_memforge(connection: Any, agent: str, count: int) -> None:
    """Evict the least important memories of an agent with the statement of its sleep cycle."""
    connection.execute(
        "WITH lowest AS (SELECT id, content, metadata, consolidated_at, namespace FROM warm_tier "
        "WHERE agent_id = %(agent)s ORDER BY importance LIMIT %(count)s FOR UPDATE), "
        "moved AS (INSERT INTO cold_tier (agent_id, source_table, source_id, content, metadata, "
        "original_created_at, namespace) SELECT %(agent)s, 'warm_tier', id, content, metadata, "
        "consolidated_at, namespace FROM lowest) "
        "DELETE FROM warm_tier WHERE agent_id = %(agent)s AND id IN (SELECT id FROM lowest)",
        {"agent": agent, "count": count},
    )


class MemforgeLab(Lab):
    """A database, by default of one agent."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.connection = server.connect(database)
        self.connection.execute("SET TIME ZONE 'UTC'")
        self.name = server.url(database)

    def fill(self, count: int) -> None:
        memory_ids = [
            self.add(
                content=f"{TEXTS[number % len(TEXTS)]}{number}",
                embedding=[None, "[0.1, 65504, -1e-7]"][number % 2],
                metadata='{"n": 1e-300, "text": "ü\\"", "list": [1, null]}',
                source_hot_ids=[1, 2**40],
                consolidated_at=f"2026-03-01 12:00:{number:02}.123456+02",
                importance=[0.7, 3.0, 0.1 + 0.2, float("inf"), 1e-38][number % 5],
                confidence=[0.5, 0.1][number % 2],
                outcome_type=["error", "neutral", "decision"][number % 3],
                graduated=bool(number % 2),
                access_count=number,
                last_accessed=[None, "2026-04-01 00:00:00.000001+00"][number % 2],
                valid_until=["2026-03-02+00", None, "2099-01-01+00", "infinity"][min(number, 3)],
                session_id=[None, "s1"][number % 2],
                namespace=["default", "n"][number % 2],
            )
            for number in range(count)
        ]
        add_history(self.connection, memory_ids)
        add_links(self.connection, [(memory_id, memory_id) for memory_id in memory_ids])

    def add(self, agent: str = OWNER, **columns: Any) -> int:
        return add_memory(self.connection, agent, **columns)

    def everything(self, *tables: str) -> dict[str, list[str]]:
        return everything(self.connection, *tables)

    def rows(self, table: str, columns: str = "*") -> list[Any]:
        query = f"SELECT {columns} FROM {table} ORDER BY 1, 2"
        return [*self.connection.execute(query)]

    def add_pair(self, number: int) -> None:
        with self.connection.transaction():
            self.add(content=f"pair {number}")
            self.add(content=f"pair {number}")

    def change(self, key: Any) -> None:
        self.connection.execute("UPDATE warm_tier SET importance = 0.25 WHERE id = %s", (key,))

    def use(self, key: Any) -> None:
        log = "INSERT INTO retrieval_log (agent_id, warm_tier_id, query_text) VALUES ('a', %s, '')"
        self.connection.execute(log, (key,))
        used = "access_count = access_count + 1, last_accessed = now()"
        self.connection.execute(f"UPDATE warm_tier SET {used} WHERE id = %s", (key,))

    def exactly(self) -> dict[Any, Any]:
        rows = self.connection.execute("SELECT id, t::text FROM warm_tier AS t ORDER BY id")
        memories = {memory_id: [row] for memory_id, row in rows}
        for table in TOUCHED:
            query = f"SELECT t::text, to_jsonb(t) FROM {table} AS t ORDER BY 1"
            for row, values in self.connection.execute(query):
                for column in TO_MEMORIES:
                    memory_id = values.get(column)
                    if memory_id in memories:
                        memories[memory_id].append((table, column, row))
        return memories
