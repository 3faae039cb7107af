import sqlite3
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from invariants import assert_compacted, rows_of
from stores import files_in, item

from memlab import AccessLog, read_access_log
from memlab.errors import BadRowError, StoreError
from memlab.items import EventId, EventRef, MemoryItem, MemoryProvenance
from memlab.store import SqliteMemoryStore
from memlab.store.database import CREATE_TABLE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteMemoryStore]:
    with SqliteMemoryStore(path) as opened:
        yield opened


def put_all(store: SqliteMemoryStore, *items: MemoryItem) -> None:
    for one in items:
        store.put(one)


def episodes(count: int, start: int = 1) -> list[MemoryItem]:
    return [item(f"e{n}", "episodic", "merged") for n in range(start, start + count)]


class TestSearching:
    def test_the_best_comes_first_whatever_its_state(self, store: SqliteMemoryStore) -> None:
        put_all(
            store,
            item("one", title="Retry the upload"),
            item("both", title="A flaky UPLOAD", superseded_by="both"),
            item("body", title="body of it", superseded_by="gone"),
            item("tagged", "semantic", "flaky", "größe"),
            item("newer", "semantic", "flaky"),
        )
        found = [each.memory_id for each in store.search("flaky upload")]
        assert found == ["both", "newer", "tagged", "one"]
        assert [each.memory_id for each in store.search("flaky upload", limit=2)] == found[:2]
        assert [each.memory_id for each in store.search("GRÖSSE")] == ["tagged"]
        assert store.search("body", limit=1)[0].memory_id == "body"  # the word is in its title
        assert store.search("  ") == store.search("nowhere") == ()
        with pytest.raises(ValueError, match="limit"):
            store.search("upload", limit=0)

    def test_a_search_is_no_read_and_what_is_then_got_is(self, tmp_path: Path) -> None:
        log = AccessLog(tmp_path / "reads.log")
        with SqliteMemoryStore(tmp_path / "memory.db", access_log=log) as store:
            put_all(store, *episodes(3))
            (found, *_) = store.search("title of e2")
            store.get(found.memory_id)
        assert read_access_log(tmp_path / "reads.log").memory_id.tolist() == ["e2"]


class TestReadingAndWriting:
    @pytest.mark.parametrize("missing", ["source_event_id", "source_sequence"])
    def test_an_event_needs_its_id_and_its_sequence(
        self, store: SqliteMemoryStore, missing: str
    ) -> None:
        provenance = MemoryProvenance(EventRef(EventId("v1"), 7), "agent", "issue:#9")
        store.put(replace(item("e1"), provenance=provenance))
        store.connection.execute(f"UPDATE memory_items SET {missing} = NULL")
        assert store.list_active()[0].provenance == replace(provenance, source_event=None)

    @pytest.mark.parametrize(
        "given", ["2026-03-01T12:00:00", "2026-03-01T14:00:00+02:00", "2026-03-01T12:00:00+00:00"]
    )
    def test_times_and_tags_are_written_as_they_were_given(
        self, store: SqliteMemoryStore, given: str
    ) -> None:
        one = item("e1", "episodic", "ü", "a")
        moment = datetime.fromisoformat(given)
        one = replace(one, provenance=replace(one.provenance, created_at=moment))
        store.put(one)
        again = store.get("e1")
        assert again == one
        store.put(replace(deepcopy(again), title="mended"))
        stored = store.connection.execute("SELECT created_at, tags_json FROM memory_items")
        assert stored.fetchone() == (given, '["\\u00fc","a"]')
        assert again.provenance.created_at == datetime(2026, 3, 1, 12, tzinfo=UTC)

    def test_a_column_more_than_fourteen_is_left_as_it_is(self, store: SqliteMemoryStore) -> None:
        store.connection.execute("ALTER TABLE memory_items ADD COLUMN mood TEXT DEFAULT 'calm'")
        put_all(store, *episodes(2))
        store.connection.execute("UPDATE memory_items SET mood = 'good' WHERE memory_id = 'e1'")
        put_all(store, *episodes(2))
        store.supersede("e1", by_memory_id="e2")
        found = store.connection.execute("SELECT mood FROM memory_items ORDER BY rowid").fetchall()
        assert found == [("good",), ("calm",)]

    def test_a_row_that_is_no_item_is_named(self, store: SqliteMemoryStore) -> None:
        put_all(store, *episodes(1))
        store.connection.execute("UPDATE memory_items SET created_at = 'yesterday'")
        with pytest.raises(BadRowError, match=r"'e1' cannot be read.*yesterday") as refused:
            store.list_active()
        assert refused.value.memory_id == "e1"


class TestOpening:
    def test_it_opens_wal_and_makes_parent_folders(self, tmp_path: Path) -> None:
        with SqliteMemoryStore(tmp_path / "a" / "b" / "memory.db") as store:
            assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        with pytest.raises(StoreError, match=r"the folder of .* cannot be made"):
            SqliteMemoryStore(tmp_path / "a" / "b" / "memory.db" / "memory.db")

    def test_the_table_is_the_agents_own(self, store: SqliteMemoryStore) -> None:
        ((sql,), (index,)) = store.connection.execute("SELECT sql FROM sqlite_schema")
        assert index is None  # of the primary key
        assert " ".join(sql.split()) == (
            "CREATE TABLE memory_items ( memory_id TEXT PRIMARY KEY, kind TEXT NOT NULL, title "
            "TEXT NOT NULL, body TEXT NOT NULL, tags_json TEXT NOT NULL, source_event_id TEXT, "
            "source_sequence INTEGER, source_task_ref TEXT, authored_by TEXT NOT NULL, confidence "
            "REAL NOT NULL, created_at TEXT NOT NULL, supersedes_json TEXT NOT NULL, "
            "evidence_refs_json TEXT NOT NULL, superseded_by TEXT )"
        )


class TestCompaction:
    def test_under_the_cap_nothing_is_written(self, path: Path) -> None:
        with SqliteMemoryStore(path) as store:
            put_all(store, *episodes(3))
        before = path.read_bytes()
        with SqliteMemoryStore(path) as store:
            assert store.compact_episodic(10) == 0
            assert not files_in(path.parent).get("memory.db-wal")
        assert path.read_bytes() == before

    @pytest.mark.parametrize("tags", [("rejected-path", "REJECTED-path"), ("MERGED", "merged")])
    @pytest.mark.parametrize("order", [1, -1])
    def test_tags_differ_where_a_table_takes_no_notice_of_case(
        self, path: Path, tags: tuple[str, str], order: int
    ) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                CREATE_TABLE.replace("tags_json TEXT", "tags_json TEXT COLLATE NOCASE")
            )
        with SqliteMemoryStore(path) as store:
            put_all(store, *(item(tag, "episodic", tag) for tag in tags[::order]))
            before = rows_of(store.connection)
            store.compact_episodic(0)
            assert_compacted(before, rows_of(store.connection), 0)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ("kind = 'dream'", "kind 'dream' is not one of"),
            ("tags_json = '[1]'", "is not a JSON list of strings"),
            ("tags_json = 'rejected-path'", "is not JSON"),
            ("tags_json = x'5b5d'", "is not text"),
            ("tags_json = CAST(x'ff' AS TEXT)", "is not UTF-8"),
        ],
    )
    def test_an_unclassifiable_row_is_named_and_nothing_goes(
        self, store: SqliteMemoryStore, change: str, words: str
    ) -> None:
        put_all(store, *episodes(5))
        store.connection.execute(f"UPDATE memory_items SET {change} WHERE memory_id = 'e2'")
        before = rows_of(store.connection)
        with pytest.raises(BadRowError, match=words) as refused:
            store.compact_episodic(1)
        assert (refused.value.position, refused.value.memory_id) == (2, "e2")
        assert "nothing was deleted" in str(refused.value)
        assert rows_of(store.connection) == before
        store.connection.execute("UPDATE memory_items SET superseded_by = 'e1' WHERE rowid = 2")
        assert store.compact_episodic(1) == 3  # in nobody's way, and no selection is left behind
        assert [*rows_of(store.connection)] == [2, 5]
