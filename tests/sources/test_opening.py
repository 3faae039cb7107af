"""Opening stores: recognition of paths, search below a folder, server URLs."""

import os
import pickle
import sqlite3
import traceback
from datetime import date
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.errors import ChangedWhileReadError, MemlabError, StoreError, UndecidedKindError
from memlab.sources.address import address_of
from memlab.sources.base import archive_elsewhere, position_from_timestamp
from memlab.sources.opening import find_below, open_source, recognise, start_label, usual_places
from memlab.systems.betterdb import Betterdb
from memlab.systems.memforge import Memforge
from tests.support.claude_store import memory, realistic_folder, write_memory
from tests.support.odek_store import write_odek
from tests.support.openclaw_store import days_before, write_workspace
from tests.support.paths import Make, files, make_nothing, write_recall_events
from tests.support.stores import episodes, files_in, run_sql, write_rows


def database(*tables: str) -> Make:
    statements = [f"CREATE TABLE {table}" for table in tables]
    return lambda path: run_sql(path, *statements)


def folder_with(name: str, text: str) -> Make:
    def make(path: Path) -> None:
        path.mkdir()
        (path / name).write_text(text)

    return make


def agent_table(count: int) -> Make:
    return lambda path: write_rows(path, episodes(count))


def odek_folder(*summaries: str) -> Make:
    return lambda path: write_odek(path, list(summaries))


def text_file(text: str) -> Make:
    return lambda path: path.write_text(text)


def make_folder_above_episodes(path: Path) -> None:
    path.mkdir()
    write_odek(path / "episodes", [])


def write_typed_memory_without_index(path: Path) -> None:
    write_memory(path, "a.md", memory("a"))


OBSERVATIONS = "observations (id, memory_session_id, project, type, created_at_epoch)"
MEMORIES = "memories (id, content_hash, content, memory_type, metadata, created_at)"
CLAUDE_MEM = database(
    OBSERVATIONS, "sdk_sessions (id, memory_session_id)", "memory_items (id, kind)"
)
STORE_PATHS: dict[str, tuple[Make, str]] = {
    "the table of an agent": (agent_table(1), "file"),
    "claude-mem, which has another memory_items": (CLAUDE_MEM, "claude-mem"),
    "mcp": (database(MEMORIES), "mcp-memory"),
    "an index": (realistic_folder, "claude"),
    "episodes": (odek_folder("one"), "odek"),
    "episodes below": (make_folder_above_episodes, "odek"),
}
OTHER_PATHS: dict[str, Make] = {
    "another memory_items": database("memory_items (id, text)"),
    "another database": database("notes (note)"),
    "text": text_file("no database" * 99),
    "empty": Path.touch,
    "nothing": make_nothing,
    "front matter and no index": write_typed_memory_without_index,
    "another index": folder_with("index.json", '[{"name": "somebody else\'s"}]'),
    "a broken index": folder_with("index.json", "{"),
}


@pytest.mark.parametrize(("make", "scheme"), STORE_PATHS.values(), ids=STORE_PATHS)
def test_path_is_recognised_by_tables_index_or_files(
    tmp_path: Path, make: Make, scheme: str
) -> None:
    make(tmp_path / "store")
    system = recognise(tmp_path / "store")
    assert system is not None
    assert system.scheme == scheme
    assert open_source(tmp_path / "store").scheme == scheme


@pytest.mark.parametrize("make", OTHER_PATHS.values(), ids=OTHER_PATHS)
def test_other_path_is_opened_as_a_file_which_explains(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "store")
    assert recognise(tmp_path / "store") is None
    assert open_source(tmp_path / "store").scheme == "file"


@pytest.mark.parametrize(
    ("make", "column"),
    [(CLAUDE_MEM, "title"), (database(MEMORIES), "tags")],
    ids=["claude-mem", "mcp"],
)
def test_column_missing_in_another_version_is_named(
    tmp_path: Path, make: Make, column: str
) -> None:
    make(tmp_path / "store")
    with pytest.raises(StoreError, match=f"lacks the column {column}: another version of"):
        memlab.load(tmp_path / "store")


def test_file_of_hermes_is_refused_with_the_folder_to_name(tmp_path: Path) -> None:
    folder = tmp_path / ".hermes/memories"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("a note")
    with pytest.raises(StoreError, match=f"is a file of a store, .* name {folder}"):
        open_source(folder / "MEMORY.md")


def test_document_named_like_an_index_is_not_called_one(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("# How this program uses memory\n")
    with pytest.raises(UndecidedKindError, match=f"{tmp_path} may be Claude Code memory, or a"):
        open_source(tmp_path / "MEMORY.md")


def test_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(MemlabError, match="store called 'gopher'; it knows file, claude-mem"):
        open_source("gopher://memory")


def test_recognition_keeps_a_journal_beside_an_empty_store(tmp_path: Path) -> None:
    """SQLite would remove the journal as stale if it opened the empty store, even for reading."""
    store = tmp_path / "memory.db"
    journal = tmp_path / "memory.db-journal"
    store.touch()
    journal.write_bytes(b"what could be rolled back" * 30)
    assert recognise(store) is None
    assert journal.read_bytes() == b"what could be rolled back" * 30


DAY = date(2026, 6, 30)


def workspace(days: int) -> Make:
    return lambda path: write_workspace(path, days_before(DAY, days))


def write_nine_memories(path: Path) -> None:
    realistic_folder(path, files=9)


def link_to_memory_db(path: Path) -> None:
    path.symlink_to("memory.db")


def link_to_the_folder_above(path: Path) -> None:
    path.symlink_to(path.parent.parent)


STORES: dict[str, tuple[Make, int | None]] = {
    ".claude/agent-memory/reviewer": (files("a.md"), 1),
    ".claude/projects/-p0/memory": (write_nine_memories, 9),
    ".claude/projects/-p1/memory": (Path.mkdir, 0),  # a known place, whatever its content
    ".odek/memory/episodes": (odek_folder("one", "two"), 2),
    ".openclaw/workspace": (workspace(days=4), 5),
    "agents/memory.db": (agent_table(3), 3),
    "agents/notes.db": (text_file("no database"), None),
    "agents/old.sqlite": (database("memory_items (memory_id)"), None),
    "agents/pipe.db": (os.mkfifo, None),
    "anna/bob": (workspace(days=3), 4),
    "anna/new": (write_recall_events, 0),
    "app/.claude/agent-memory-local/reviewer": (files("a.md"), 1),
    "app/.serena/memories": (files("a.md"), 1),
}
"""Stores below a home folder, with their numbers of memories (None if it cannot be read)."""
NO_STORES: dict[str, Make] = {
    "../outside/memory.db": agent_table(1),
    "a diary": files("memory/2026-04-05.md"),
    "a project": files("AGENTS.md", "memory/a.md"),
    "agents/link.db": link_to_memory_db,
    "agents/memory.db.archive.db": agent_table(1),
    "link": link_to_the_folder_above,
    "node_modules/memory.db": agent_table(1),
    "packages/agent-memory/src": Path.mkdir,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    stores = {name: make for name, (make, _) in STORES.items()}
    for name, make in {**stores, **NO_STORES}.items():
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
    return tmp_path / "home"


def test_find_searches_below_a_folder_without_following_links(home: Path) -> None:
    inventory = memlab.find(home)
    stores = {
        Path(store.location).relative_to(home).as_posix(): store for store in inventory.stores
    }
    counts = {name: store.memories for name, store in stores.items()}
    assert counts == {name: count for name, (_, count) in STORES.items()}
    total = sum(count for count in counts.values() if count is not None)
    assert inventory.to_frame()["memories"].sum() == total
    assert stores["agents/memory.db"].tokens_at_start == 18
    assert "lacks the column kind" in stores["agents/old.sqlite"].problem
    assert "notes.db is not a SQLite database" in stores["agents/notes.db"].problem
    assert "pipe.db is not a file" in stores["agents/pipe.db"].problem
    newest = memlab.load(home / "agents" / "memory.db")["created_at"].max()
    assert stores["agents/memory.db"].last_written == newest
    assert start_label(str(home / ".claude" / "agent-memory" / "reviewer")) == "in the index"


def test_find_opens_only_stores_and_changes_nothing(home: Path) -> None:
    before = files_in(home)
    with patch.object(sqlite3, "connect", wraps=sqlite3.connect) as connect:
        find_below([home])
    opened = " ".join(str(call.args[0]) for call in connect.call_args_list)
    assert opened
    assert "notes.db" not in opened
    assert "archive" not in opened
    assert files_in(home) == before


def test_default_locations_follow_environment_variables() -> None:
    environment = {
        "HOME": "/home/u",
        "CLAUDE_MEM_DATA_DIR": "/data/cm",
        "OPENCLAW_STATE_DIR": "/srv/oc",
    }
    places = usual_places(environment)
    for expected in (
        "/home/u/.claude/projects",
        "/home/u/.claude/agent-memory-local",
        "/home/u/.odek/memory",
        "/home/u/.local/share/mcp-memory",
        "/data/cm",
        "/srv/oc",
    ):
        assert Path(expected) in places
    assert Path("/home/u/.openclaw") in usual_places({"HOME": "/home/u"})


def test_busy_store_is_not_misrecognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sqlite_vec.db"
    state_numbers = count()
    database(MEMORIES)(path)
    monkeypatch.setattr("memlab.store.snapshot.states_of", lambda *_: next(state_numbers))
    with pytest.raises(ChangedWhileReadError, match="sqlite_vec"):
        open_source(str(path))
    ((store,), *_) = find_below([tmp_path])
    assert store.path == path
    assert store.system == "named like a store"


TIMES = st.integers(0, 2**43 - 1)
TIES = st.integers(0, 2**20 - 1) | st.text()


@given(st.integers(), TIES)
def test_position_fits_64_bits(time: int, tie: int | str) -> None:
    assert 0 <= position_from_timestamp(time, tie) < 2**63


@given(TIMES, TIES, TIMES, TIES)
def test_position_increases_with_time(
    time: int, tie: int | str, other_time: int, other_tie: int | str
) -> None:
    position = position_from_timestamp(time, tie)
    other_position = position_from_timestamp(other_time, other_tie)
    if time < other_time:
        assert position < other_position


@given(TIMES, st.integers(0, 2**20 - 2))
def test_position_increases_with_the_number_at_one_time(time: int, number: int) -> None:
    position = position_from_timestamp(time, number)
    assert position_from_timestamp(time, number + 1) == position + 1


# URLs of servers, and the passwords in them

SECRET = "p@ss word/%:#?&="
WRITTEN = "p%40ss%20word%2F%25%3A%23%3F%26%3D"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{WRITTEN}@localhost:6379/0?name=n",
        f"redis://user:{WRITTEN}@localhost:6379/0?name=n",
        f"unix://user:{WRITTEN}@/run/r.sock?db=1&name=n",
        f"postgresql://user:{WRITTEN}@localhost/db?agent=a",
        f"postgresql://user@localhost/db?agent=a&password={WRITTEN}",
    ],
)
def test_password_is_used_but_never_shown(url: str) -> None:
    address = address_of(url)
    assert address.secrets["password"] == SECRET
    source = Memforge(url) if url.startswith("postgresql") else Betterdb(url)
    for text in (repr(address), address.without_password(), repr(source), source.name):
        assert SECRET not in text
        assert WRITTEN not in text
    assert WRITTEN not in str(source.archive_path)
    assert address.masked(f"it said {SECRET} and {WRITTEN}") == "it said *** and ***"
    assert address_of(address.without_password()).secrets == {}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://:secret@[::1/0", "is not a URL that memlab understands"),
        ("redis://:secret@h/0?name", "is not a URL that memlab understands"),
        ("redis:/me:secret@h/0", "is not a URL that memlab understands"),
        ("redis://:secret/@h/0", "is not a URL that memlab understands"),
        ("redis://:secret@h/zero", "'zero' is not the number of a database"),
        ("redis://:secret@h/0?agent=a", "no option 'agent'; there are archive, db, name"),
    ],
)
def test_wrong_url_is_explained_without_its_password(url: str, message: str) -> None:
    with pytest.raises(MemlabError, match=message) as caught:
        Betterdb(url)
    assert "secret" not in str(caught.value)
    assert "secret" not in "".join(traceback.format_exception(caught.value)).replace(url, "")


def test_pickled_source_keeps_its_password() -> None:
    url = f"redis://:{WRITTEN}@localhost/0"
    unpickled = pickle.loads(pickle.dumps(Betterdb(url)))
    assert unpickled.name == "redis://localhost/0"
    assert vars(unpickled) == vars(Betterdb(url))


def test_each_server_store_has_one_archive_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = Betterdb("redis://localhost").archive_path
    other_paths = {
        archive_elsewhere(name) for name in ("redis://h/0?a=b", "redis://h/0?a:b", "../../b")
    }
    assert {path.parent for path in (mine, *other_paths)} == {tmp_path / "data-home" / "memlab"}
    assert len({mine, *other_paths}) == 4
    for url in ("redis://localhost:6379/0?name=betterdb_ac", "valkey://user:pass@localhost/0"):
        assert Betterdb(url).archive_path == mine
    for url in ("redis://localhost/1", "redis://localhost?name=other"):
        assert Betterdb(url).archive_path != mine
    for name, value in (("USER", "me"), ("HOST", "db.example"), ("DATABASE", "memories")):
        monkeypatch.setenv(f"PG{name}", value)
    spelled = Memforge("postgresql://me@db.example:5432/memories").archive_path
    assert Memforge("postgres://").archive_path == spelled
    assert Memforge("postgresql://?agent=a").archive_path != spelled
    assert str(Betterdb("redis://localhost?archive=/srv/a.db").archive_path) == "/srv/a.db"
    assert str(Memforge("postgresql://h/db?archive=/srv/a.db").archive_path) == "/srv/a.db"
