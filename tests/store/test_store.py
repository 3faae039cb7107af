"""``SqliteMemoryStore`` against a plain Python model; table, file and rows."""

import sqlite3
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memlab import AccessLog, read_access_log
from memlab.errors import BadRowError, StoreError
from memlab.items import (
    EventId,
    EventRef,
    MemoryItem,
    MemoryKind,
    MemoryProvenance,
    is_load_bearing_memory,
)
from memlab.store import SqliteMemoryStore
from memlab.store.database import CREATE_TABLE
from tests.support.invariants import assert_compacted, rows_of
from tests.support.stores import episodes, files_in, item, write_rows

IDS = st.integers(0, 11).map("m{}".format)
TAGGED = ["rejected-path", "research"]
TAGS = st.lists(
    st.sampled_from([*TAGGED, "failed", "merged", "rejected-paths", "researched", "ü", '"', ""]),
    max_size=3,
)
TEXT = st.text(max_size=8)
PROVENANCES = st.builds(
    MemoryProvenance,
    st.none() | st.builds(EventRef, st.just(EventId("v1")), st.integers(0, 9)),
    st.just("agent"),
    source_task_ref=st.sampled_from(["issue:#1", "issue:#2"]),
    confidence=st.floats(0, 1),
    created_at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds carry no zone by contract
    supersedes=st.lists(IDS, max_size=2).map(tuple),
    evidence_refs=st.lists(IDS, max_size=2).map(tuple),
)
ITEMS = st.builds(
    MemoryItem,
    IDS,
    st.sampled_from(MemoryKind),
    TEXT,
    TEXT,
    PROVENANCES,
    TAGS.map(tuple),
    st.none() | IDS,
)


class StoreAgainstList(RuleBasedStateMachine):
    """Runs the same calls on a store and on an ordered dict."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SqliteMemoryStore(":memory:")
        self.model: dict[str, MemoryItem] = {}

    def teardown(self) -> None:
        self.store.close()

    @rule(item=ITEMS)
    def put(self, item: MemoryItem) -> None:
        assert self.store.put(item) is item
        self.model[item.memory_id] = item

    @rule(old=IDS, new=IDS)
    def supersede(self, old: str, new: str) -> None:
        if {old, new} <= self.model.keys():
            self.model[old] = replace(self.model[old], superseded_by=new)
            assert self.store.supersede(old, by_memory_id=new) == self.model[old]
        else:
            with pytest.raises(KeyError, match=old if new in self.model else new):
                self.store.supersede(old, by_memory_id=new)

    @rule(keep_recent=st.integers(0, 8) | st.just(10**30))
    def compact_episodic(self, keep_recent: int) -> None:
        prunable = [
            item.memory_id
            for item in self.model.values()
            if item.is_active and not is_load_bearing_memory(item)
        ]
        surplus = prunable[: max(0, len(prunable) - keep_recent)]
        before = rows_of(self.store.connection)
        assert self.store.compact_episodic(keep_recent) == len(surplus)
        assert_compacted(before, rows_of(self.store.connection), keep_recent)
        for memory_id in surplus:
            del self.model[memory_id]

    @rule(memory_id=IDS)
    def get(self, memory_id: str) -> None:
        assert self.store.get(memory_id) == self.model.get(memory_id)

    @invariant()
    def lists_agree(self) -> None:
        active = tuple(item for item in self.model.values() if item.is_active)
        assert self.store.list_active() == active
        for kind in MemoryKind:
            assert self.store.list_active(kind=kind) == tuple(
                memory for memory in active if memory.kind is kind
            )
        tagged = {tag: tuple(memory for memory in active if tag in memory.tags) for tag in TAGGED}
        assert self.store.list_rejected_paths() == tagged["rejected-path"]
        assert self.store.list_research_notes() == tagged["research"][::-1]


TestStoreAgainstList = StoreAgainstList.TestCase
TestStoreAgainstList.settings = settings(stateful_step_count=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "memory.db", episodes(5))


def test_search_ranks_the_best_match_first() -> None:
    with SqliteMemoryStore(":memory:") as store:
        for memory in (
            item("one", title="Retry the upload"),
            item("both", title="A flaky UPLOAD", superseded_by="both"),
            item("body", title="body of it", superseded_by="gone"),
            item("tagged", "semantic", "flaky", "größe"),
            item("newer", "semantic", "flaky"),
        ):
            store.put(memory)
        matching = [match.memory_id for match in store.search("flaky upload")]
        assert matching == ["both", "newer", "tagged", "one"]
        assert [match.memory_id for match in store.search("flaky upload", limit=2)] == matching[:2]
        assert [match.memory_id for match in store.search("GRÖSSE")] == ["tagged"]
        assert store.search("body", limit=1)[0].memory_id == "body"  # the word is in its title
        assert store.search("  ") == store.search("nowhere") == ()
        with pytest.raises(ValueError, match="limit"):
            store.search("upload", limit=0)


def test_search_is_not_logged_as_a_read(path: Path) -> None:
    log = path.with_name("reads.log")
    with SqliteMemoryStore(f"file:{path}", access_log=AccessLog(log)) as store:
        assert store.path == path
        (best, *_) = store.search("title of e2")
        store.get(best.memory_id)
    assert read_access_log(log).memory_id.tolist() == ["e2"]


@pytest.mark.parametrize("missing", ["source_event_id", "source_sequence"])
def test_event_without_id_or_sequence_is_none(missing: str) -> None:
    provenance = MemoryProvenance(EventRef(EventId("v1"), 7), "agent", "issue:#9")
    with SqliteMemoryStore(":memory:") as store:
        store.put(replace(item("e1"), provenance=provenance))
        store.connection.execute(f"UPDATE memory_items SET {missing} = NULL")
        assert store.list_active()[0].provenance == replace(provenance, source_event=None)


@pytest.mark.parametrize(
    "given", ["2026-03-01T12:00:00", "2026-03-01T14:00:00+02:00", "2026-03-01T12:00:00+00:00"]
)
def test_times_and_tags_are_stored_as_given(given: str) -> None:
    memory = item("e1", "episodic", "ü", "a")
    memory = replace(
        memory, provenance=replace(memory.provenance, created_at=datetime.fromisoformat(given))
    )
    with SqliteMemoryStore(":memory:") as store:
        store.put(memory)
        read_back = store.get("e1")
        assert read_back == memory
        store.put(replace(deepcopy(read_back), title="mended"))
        stored = store.connection.execute("SELECT created_at, tags_json FROM memory_items")
        assert stored.fetchone() == (given, '["\\u00fc","a"]')
    assert read_back.provenance.created_at == datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_additional_column_is_preserved(path: Path) -> None:
    with SqliteMemoryStore(path) as store:
        store.connection.execute("ALTER TABLE memory_items ADD COLUMN mood TEXT DEFAULT 'calm'")
        store.connection.execute("UPDATE memory_items SET mood = 'good' WHERE memory_id = 'e1'")
        store.put(item("e1", title="mended"))
        store.supersede("e1", by_memory_id="e2")
        moods = store.connection.execute("SELECT mood FROM memory_items WHERE rowid < 3").fetchall()
    assert moods == [("good",), ("calm",)]


def test_unreadable_row_is_named(path: Path) -> None:
    with SqliteMemoryStore(path) as store:
        store.connection.execute("UPDATE memory_items SET created_at = 'yesterday' WHERE rowid = 1")
        with pytest.raises(BadRowError, match=r"'e1' cannot be read.*yesterday") as refused:
            store.list_active()
    assert refused.value.memory_id == "e1"


def test_opening_makes_parent_folders_and_the_documented_table(tmp_path: Path) -> None:
    with SqliteMemoryStore(tmp_path / "a" / "b" / "memory.db") as store:
        assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        ((sql,),) = store.connection.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL")
    page = Path(__file__).parents[2] / "docs" / "guides" / "table.md"
    assert "".join(sql.split()).removeprefix("CREATETABLE") in "".join(page.read_text().split())
    with pytest.raises(StoreError, match=r"the folder of .* cannot be made"):
        SqliteMemoryStore(tmp_path / "a" / "b" / "memory.db" / "memory.db")


def test_compaction_below_the_cap_writes_nothing(path: Path) -> None:
    before = path.read_bytes()
    with SqliteMemoryStore(path) as store:
        assert store.compact_episodic(10) == 0
        assert not files_in(path.parent).get("memory.db-wal")
    assert path.read_bytes() == before


@pytest.mark.parametrize("tags", [("rejected-path", "REJECTED-path"), ("MERGED", "merged")])
@pytest.mark.parametrize("order", [1, -1])
def test_tags_are_case_sensitive_in_a_nocase_table(
    tmp_path: Path, tags: tuple[str, str], order: int
) -> None:
    with closing(sqlite3.connect(tmp_path / "memory.db")) as connection:
        connection.execute(CREATE_TABLE.replace("tags_json TEXT", "tags_json TEXT COLLATE NOCASE"))
    with SqliteMemoryStore(tmp_path / "memory.db") as store:
        for tag in tags[::order]:
            store.put(item(tag, "episodic", tag))
        before = rows_of(store.connection)
        store.compact_episodic(0)
        assert_compacted(before, rows_of(store.connection), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("kind = 'dream'", "kind 'dream' is not one of"),
        ("tags_json = '[1]'", "is not a JSON list of strings"),
        ("tags_json = 'rejected-path'", "is not JSON"),
        ("tags_json = x'5b5d'", "is not text"),
        ("tags_json = CAST(x'ff' AS TEXT)", "is not UTF-8"),
    ],
)
def test_unclassifiable_row_is_named_and_nothing_is_deleted(
    path: Path, change: str, message: str
) -> None:
    with SqliteMemoryStore(path) as store:
        store.connection.execute(f"UPDATE memory_items SET {change} WHERE memory_id = 'e2'")
        before = rows_of(store.connection)
        with pytest.raises(BadRowError, match=message) as refused:
            store.compact_episodic(1)
        assert refused.value.position == 2
        assert refused.value.memory_id == "e2"
        assert "nothing was deleted" in str(refused.value)
        assert rows_of(store.connection) == before
        store.connection.execute("UPDATE memory_items SET superseded_by = 'e1' WHERE rowid = 2")
        assert store.compact_episodic(1) == 3  # a superseded row does not block compaction
        assert [*rows_of(store.connection)] == [2, 5]
