"""MemForge's memories on a real PostgreSQL, with rows in every table that goes with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from memforge_store import TO_MEMORIES, TOUCHED, add_history, add_links, add_memory
from servers import PostgresServer

from sources.conformance import COUNT, Conformance


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives of servers go."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


TEXTS = (
    "né à Zürich — 北京 🦀",
    "one\nand\nmore lines",
    "",
    "%s %% \\ \"'",
    "\nan empty first line",
)


class MemforgeLab:
    """A database of one agent, and of another whose memories stand between."""

    deletes: ClassVar[bool] = True

    def __init__(self, server: PostgresServer, database: str, agent: str | None = None) -> None:
        self.connection = server.connect(database)
        self.connection.execute("SET TIME ZONE 'UTC'")
        self.agent = agent
        self.name = server.url(database) + ("" if agent is None else f"&agent={agent}")

    def fill(self, count: int) -> None:
        mine = []
        for number in range(count):
            if self.agent is not None:
                add_memory(self.connection, "another", content=f"not mine {number}")
            mine.append(
                add_memory(
                    self.connection,
                    self.agent or "a",
                    content=TEXTS[number % len(TEXTS)] + str(number),
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
                    valid_until=["2026-03-02+00", None, "2099-01-01+00", "infinity"][
                        min(number, 3)
                    ],
                    session_id=[None, "s1"][number % 2],
                    namespace=["default", "n"][number % 2],
                )
            )
        add_history(self.connection, mine, self.agent or "a")
        add_links(self.connection, zip(mine, mine, strict=True), self.agent or "a")

    def add_pair(self, number: int) -> None:
        with self.connection.transaction():
            for _ in "ab":
                add_memory(self.connection, self.agent or "a", content=f"pair {number}")

    def change(self, key: Any) -> None:
        self.connection.execute("UPDATE warm_tier SET importance = 0.25 WHERE id = %s", (key,))

    def exactly(self) -> dict[Any, Any]:
        memories = {
            memory_id: [row]
            for memory_id, agent, row in self.connection.execute(
                "SELECT id, agent_id, t::text FROM warm_tier AS t ORDER BY id"
            )
            if self.agent in (None, agent)
        }
        for table in TOUCHED:
            for row, values in self.connection.execute(
                f"SELECT t::text, to_jsonb(t) FROM {table} AS t ORDER BY 1"
            ):
                for column, value in values.items():
                    if column in TO_MEMORIES and value in memories:
                        memories[value].append((table, column, row))
        return memories


def lab_of(
    server: PostgresServer, database: str, agent: str | None = None
) -> Iterator[MemforgeLab]:
    made = MemforgeLab(server, database, agent)
    made.fill(COUNT)
    yield made
    made.connection.close()


class TestMemforge(Conformance):
    @pytest.fixture
    def lab(self, one_postgres: PostgresServer, memforge: str) -> Iterator[MemforgeLab]:
        yield from lab_of(one_postgres, memforge)


class TestMemforgeOfOneAgent(Conformance):
    @pytest.fixture
    def lab(self, one_postgres: PostgresServer, memforge: str) -> Iterator[MemforgeLab]:
        yield from lab_of(one_postgres, memforge, "a")
