"""mcp-memory-service databases: written by its own code, changed here, read back by it."""

from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

import memlab
from memlab import errors
from memlab.sources.readers import Key
from memlab.systems.mcp_memory import driver, load_extension
from memlab.testing.conformance import DeletingSuite
from memlab.testing.labs import COUNT, TEXTS, Lab
from memlab.upkeep.health import doctor
from tests.support.databases import copy_recorded, record, recording_of
from tests.support.owners import has_mcp_memory, mcp_memory, needs_mcp_memory
from tests.support.shell import output_of
from tests.support.stores import run_sql

START = 1_780_000_000.25


def stored(number: int, content: str, **fields: Any) -> list[Any]:
    """Return a call that stores a memory, one a minute."""
    arguments = {
        "created_at": START + 60 * number,
        "tags": ["b", "né"],
        "memory_type": "note",
        "metadata": {"x": 1.5},
        **fields,
    }
    return ["store", f"{content} {number}", arguments]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "sqlite_vec.db"


class McpMemoryLab(Lab):
    """A database that the service wrote, with vectors, edges, tombstones and used memories."""

    made: ClassVar[list[bytes]] = []
    """The database, written once, because the service takes a second."""
    where = "mcp/sqlite_vec.db"

    def fill(self, count: int) -> None:
        recording = recording_of("mcp-memory", str(count))
        if not has_mcp_memory:
            copy_recorded(recording, self.path)
            return
        if not self.made:
            self._write(count)
            record(recording, self.path)
            self.made.append(self.path.read_bytes())
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(self.made[0])

    def _write(self, count: int) -> None:
        calls = [stored(0, TEXTS[0] * 9, tags=["critical"])]
        for number in range(1, count):
            tags = [] if number % 2 == 0 else ["c"]
            calls.append(stored(number, TEXTS[number % 5] * 9, tags=tags))
        hashes = mcp_memory(self.path, *calls, stored(99, "deleted by the service"))
        edges = []
        for start, end in [(1, 2), (2, 3), (3, 5), (5, 5), (0, 7), (9, 8)]:
            weight = 0.1 + start / 7
            edges.append(["edge", hashes[start], hashes[end], weight, ["semantic"]])
        mcp_memory(self.path, *edges, ["delete", hashes[-1]], ["retrieve", "quoted", 3])
        with vector_connection(self.path) as connection:
            connection.execute("UPDATE memories SET content = CAST(x'ff41' AS TEXT) WHERE id = 10")
            connection.execute("DELETE FROM memory_embeddings WHERE rowid = 11")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def add_pair(self, number: int) -> None:
        into = "INSERT INTO memories (content_hash, content, tags, metadata, created_at) VALUES"
        values = f"'pair {number}', '', '{{}}', {START * 1.1 + number}"
        run_sql(self.path, f"{into} ('{number}a', {values}), ('{number}b', {values})")

    def change(self, key: Key) -> None:
        run_sql(self.path, f"UPDATE memories SET tags = 'changed' WHERE id = {key}")

    def exactly(self) -> dict[Key, Any]:
        with vector_connection(self.path) as connection:
            connection.text_factory = bytes
            execute = connection.execute
            vectors = {row[0]: row for row in execute("SELECT rowid, * FROM memory_embeddings")}
            rows = execute("SELECT id, typeof(content), * FROM memories WHERE deleted_at IS NULL")
            return {row[0]: (row, vectors.get(row[0])) for row in rows}

    def edges(self) -> list[Any]:
        """Return the edges between memories."""
        with vector_connection(self.path) as connection:
            return list(connection.execute("SELECT * FROM memory_graph ORDER BY 1, 2"))


@pytest.fixture
def lab(tmp_path: Path) -> McpMemoryLab:
    mcp_lab = McpMemoryLab(tmp_path)
    mcp_lab.fill(COUNT)
    return mcp_lab


def vector_connection(path: Path) -> Any:
    """Open a connection that supports the table type of vectors."""
    connection = driver().connect(str(path), isolation_level=None)
    load_extension(connection)
    return closing(connection)


class TestMcpMemorySource(DeletingSuite):
    lab_type = McpMemoryLab

    def test_edges_are_deleted_with_either_end_and_restored(self, lab: McpMemoryLab) -> None:
        before = lab.edges()
        assert len(before) >= 6
        first = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(8)))
        second = memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(2)))
        live = set(memlab.load(lab.name)["memory_id"])
        assert lab.edges() == [edge for edge in before if {edge[0], edge[1]} <= live]
        output = output_of("show", lab.name)
        assert "2 vectors, 0 edges" in output  # one of the three remaining memories has no vector
        assert f"{COUNT - 2}, which the service has not purged yet" in output
        memlab.restore(first)
        memlab.restore(second)
        assert lab.edges() == before


@needs_mcp_memory
def test_memory_has_tags_type_quality_usage_and_successor(file: Path) -> None:
    first, second, _ = mcp_memory(
        file,
        stored(0, "one\ntwo", metadata={"quality_score": 0.8}),
        stored(1, "three", memory_type="mistake", metadata={"failure_count": 3}),
        stored(2, "four", tags=["x", "Critical"]),
    )
    mcp_memory(file, ["retrieve", "one two", 1])
    run_sql(file, f"UPDATE memories SET superseded_by = '{second}' WHERE id = 1")
    frame = memlab.load(file, with_body=True)
    assert frame["memory_id"].tolist()[:2] == [first, second]
    assert frame[["title", "body"]].iloc[0].tolist() == ["one", "two 0"]
    assert frame["tags"][0] == ("b", "né", "note")
    assert frame["kind"].tolist() == ["episodic", "semantic", "semantic"]
    assert frame["active"].tolist() == [False, True, True]
    assert frame["superseded_by"][0] == second
    assert frame["importance"][0] == 0.8
    assert frame["access_count"].max() == 1
    assert frame["last_accessed_at"].notna().sum() == 1
    assert frame["created_at"].astype("int64").tolist()[0] == START * 1e6
    assert frame["namespace"].tolist() == ["default"] * 3


class ServiceView(NamedTuple):
    """Answers of the service about its memories."""

    best_match: str
    matches: int
    tagged: int
    neighbours: list[Any]
    content: str | None
    is_deleted: bool
    health: str


def service_view(file: Path, hashes: list[Any], *further_calls: list[Any]) -> ServiceView:
    """Ask the service about the first two memories; run further calls after the questions."""
    matches, neighbours, memory, is_deleted, tagged, health, *_ = mcp_memory(
        file,
        ["retrieve", "memory about 1 cats 1", 10],
        ["neighbours", hashes[0]],
        ["get", hashes[1]],
        ["is_deleted", hashes[1]],
        ["search", ["b"]],
        ["health"],
        *further_calls,
    )
    content = memory["content"] if memory else None
    return ServiceView(
        best_match=matches[0][0],
        matches=len(matches),
        tagged=len(tagged),
        neighbours=neighbours,
        content=content,
        is_deleted=is_deleted,
        health=health,
    )


@needs_mcp_memory
@pytest.mark.long
def test_service_sees_deletions_and_restored_memories(file: Path) -> None:
    """This holds with and without a purge by the service; contents stored again are kept."""
    calls = [stored(number, f"memory about {number} cats") for number in range(6)]
    hashes = mcp_memory(file, *calls)
    mcp_memory(file, ["edge", hashes[0], hashes[1], 0.9, ["semantic"]])
    before = service_view(file, hashes)
    assert before.best_match == "memory about 1 cats 1"
    assert before.matches == 6
    assert before.tagged == 6
    for further_calls in ([], [["purge_deleted", 0]]):
        receipt = memlab.apply(memlab.plan(file, memlab.KeepRecent(4)))
        after = service_view(file, hashes, *further_calls)
        assert after.matches == 4
        assert after.tagged == 4
        assert after.neighbours == []
        assert after.content is None
        assert after.is_deleted
        assert after.health == "ok"
        assert memlab.restore(receipt).memories == 2
        assert memlab.load(file)["memory_id"].tolist() == hashes
        assert service_view(file, hashes) == before
    receipt = memlab.apply(memlab.plan(file, memlab.KeepRecent(4)))
    mcp_memory(file, calls[0])
    remaining = memlab.load(file)
    with pytest.raises(errors.ArchiveError, match="the same content, stored again as 7"):
        memlab.restore(receipt)
    assert memlab.load(file).equals(remaining)


@needs_mcp_memory
@pytest.mark.long
def test_search_after_planning_makes_its_memories_stale(file: Path) -> None:
    mcp_memory(file, stored(0, "used 0"), stored(1, "used 1"), stored(2, "used 2"))
    plan = memlab.plan(file, memlab.KeepRecent(1))
    mcp_memory(file, ["retrieve", "used 2 2", 1])
    assert memlab.apply(plan).deleted == 2
    mcp_memory(file, stored(3, "used 3"), stored(4, "used 4"))
    plan = memlab.plan(file, memlab.KeepRecent(1))
    mcp_memory(file, ["retrieve", "used 3 3", 5])
    with pytest.raises(errors.StalePlanError):
        memlab.apply(plan)


def assert_deletion_is_rejected(file: Path, message: str) -> None:
    plan = memlab.plan(file, memlab.KeepRecent(0))
    before = memlab.load(file)
    with pytest.raises(errors.UnsafeDeletionError, match=f"{message}.*what to do instead: "):
        memlab.apply(plan)
    assert memlab.load(file).equals(before)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            (
                "INSERT INTO sync_events (event_id, op, content_hash, payload, created_at) "
                "VALUES ('e', 'store', 'h', '{}', 1)"
            ),
            "kept in step with other machines",
        ),
        (
            "UPDATE metadata SET value = '99' WHERE key = 'schema_version'",
            "of schema 99 and memlab knows 19",
        ),
        (
            (
                "UPDATE sqlite_schema SET sql = replace(sql, 'FLOAT', 'INT8') "
                "WHERE name = 'memory_embeddings'"
            ),
            "has vectors of a kind",
        ),
        (
            "CREATE TRIGGER own AFTER UPDATE ON memories BEGIN SELECT 1; END",
            "would fire own",
        ),
    ],
    ids=["synchronised", "another schema", "other vectors", "trigger"],
)
def test_deletion_with_unknown_effects_is_rejected(
    lab: McpMemoryLab, statement: str, message: str
) -> None:
    run_sql(lab.path, "PRAGMA writable_schema = ON", statement)
    assert_deletion_is_rejected(lab.path, message)


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("hybrid", "in step with Cloudflare"),
        ("Cloudflare", "MCP_MEMORY_STORAGE_BACKEND is cloudflare"),
    ],
)
def test_deletion_with_another_backend_is_rejected(
    lab: McpMemoryLab, backend: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_MEMORY_STORAGE_BACKEND", backend)
    assert_deletion_is_rejected(lab.path, message)


def test_store_is_only_read_without_sqlite_extensions(
    lab: McpMemoryLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = memlab.plan(lab.name, memlab.KeepRecent(0))
    monkeypatch.setattr("memlab.systems.mcp_memory.find_spec", {"sqlite_vec": True}.get)
    monkeypatch.setattr("memlab.systems.mcp_memory.sqlite3.Connection", object)
    assert len(memlab.load(lab.name)) == COUNT
    with pytest.raises(errors.UnsafeDeletionError, match=r"cannot load.*install .*sqlite-vec"):
        memlab.apply(plan)


def test_database_of_an_older_service_is_read(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    run_sql(
        file,
        "CREATE TABLE memories (id INTEGER PRIMARY KEY, content_hash TEXT UNIQUE, content TEXT, "
        "tags TEXT, memory_type TEXT, metadata TEXT, created_at REAL, confidence REAL)",
        "INSERT INTO memories VALUES (1, 'h', 'text', 'a, b ,', NULL, 'no json', 5.5, 1)",
    )
    with pytest.raises(errors.UnsafeDeletionError, match="of a version without deleted_at"):
        memlab.apply(memlab.plan(file, memlab.KeepRecent(0)))
    run_sql(
        file,
        "INSERT INTO memories VALUES (2, 'i', x'ff00', NULL, 'note', '[', 9, 9e999), "
        "(3, 'j', 'soon', '', '', '', 'soon', 1), (4, 'k', 'long ago', '', '', '', -5e300, 1)",
    )
    frame = memlab.load(file, on_bad_row="keep").set_index("key").sort_index()
    assert frame["problem"].notna().tolist() == [False, False, True, True]
    assert frame["tags"].tolist() == [("a", "b"), ("note",), (), ()]
    with pytest.raises(errors.BadRowError, match=r"created_at .* is not a time"):
        memlab.load(file)


def test_locked_database_is_reported(lab: McpMemoryLab) -> None:
    plan = memlab.plan(lab.name, memlab.KeepRecent(0))
    with vector_connection(lab.path) as owner, pytest.MonkeyPatch.context() as patch:
        owner.execute("BEGIN IMMEDIATE")
        patch.setattr("memlab.systems.mcp_memory._LOCK_TIMEOUT", 0.1)
        with pytest.raises(errors.StoreError, match="is locked by another process"):
            memlab.apply(plan)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memory_embeddings_chunks SET size = 0",
        "UPDATE memory_embeddings_chunks SET size = 'many'",
        "UPDATE memory_embeddings_vector_chunks00 SET vectors = 'text'",
        "UPDATE memory_embeddings_vector_chunks00 SET vectors = x'00'",
        "UPDATE memory_embeddings_rowids SET chunk_offset = 1000000",
        "UPDATE OR REPLACE memory_graph SET source_hash = x'ff'",
        "UPDATE memories SET content_hash = x'ff' WHERE id = 3",
    ],
)
def test_damaged_vectors_and_edges_lose_no_memory(lab: McpMemoryLab, change: str) -> None:
    run_sql(lab.path, change)
    memlab.load(lab.name, with_body=True, on_bad_row="keep")
    str(doctor(lab.name))
    before = lab.path.read_bytes()
    with suppress(errors.MemlabError):
        memlab.restore(memlab.apply(memlab.plan(lab.name, memlab.KeepRecent(3))))
    if lab.path.read_bytes() == before:  # it was rejected, so nothing was changed
        assert len(memlab.load(lab.name, on_bad_row="keep")) == COUNT
