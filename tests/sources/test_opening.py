"""Opening stores: recognition of paths, search below a folder, server URLs."""

import os
import pickle
import sqlite3
import traceback
from collections.abc import Callable
from datetime import date
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.errors import ChangedWhileReadError, MemlabError, StoreError
from memlab.sources.address import address_of
from memlab.sources.base import archive_elsewhere, position_from_timestamp
from memlab.sources.opening import find_below, open_source, recognise, start_label, usual_places
from memlab.systems.betterdb import Betterdb
from memlab.systems.memforge import Memforge
from tests.support.claude_store import memory, realistic_folder, write_memory
from tests.support.odek_store import write_odek
from tests.support.openclaw_store import days_before, noon, write_events, write_workspace
from tests.support.stores import episodes, files_in, run_sql, write_rows


def database(*tables: str) -> Callable[[Path], object]:
    return lambda path: run_sql(path, *(f"CREATE TABLE {table}" for table in tables))


def folder(name: str, text: str) -> Callable[[Path], object]:
    return lambda path: (path.mkdir(), (path / name).write_text(text))


OBSERVATIONS = "observations (id, memory_session_id, project, type, created_at_epoch)"
MEMORIES = "memories (id, content_hash, content, memory_type, metadata, created_at)"
PATHS: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "the table of an agent": (lambda path: write_rows(path, episodes(1)), "file"),
    "claude-mem, which has another memory_items": (
        database(OBSERVATIONS, "sdk_sessions (id, memory_session_id)", "memory_items (id, kind)"),
        "claude-mem",
    ),
    "mcp": (database(MEMORIES), "mcp-memory"),
    "another memory_items": (database("memory_items (id, text)"), None),
    "another database": (database("notes (note)"), None),
    "text": (lambda path: path.write_text("no database" * 99), None),
    "empty": (Path.touch, None),
    "nothing": (Path.exists, None),
    "an index": (realistic_folder, "claude"),
    "episodes": (lambda path: write_odek(path, ["one"]), "odek"),
    "episodes below": (lambda path: (path.mkdir(), write_odek(path / "episodes", [])), "odek"),
    "front matter and no index": (lambda path: write_memory(path, "a.md", memory("a")), None),
    "another index": (folder("index.json", '[{"name": "somebody else\'s"}]'), None),
    "a broken index": (folder("index.json", "{"), None),
}
LACKS = {"claude-mem, which has another memory_items": "title", "mcp": "tags"}
"""A column that is missing in a store of another version."""


@pytest.mark.parametrize("path", PATHS)
def test_path_is_recognised_by_tables_index_or_files(tmp_path: Path, path: str) -> None:
    make, expected = PATHS[path]
    make(tmp_path / "store")
    system = recognise(tmp_path / "store")
    assert (system and system.scheme) == expected
    scheme = expected or "file"  # whose error explains the problem
    assert open_source(tmp_path / "store").scheme == scheme
    if lacks := LACKS.get(path):
        with pytest.raises(StoreError, match=f"lacks the column {lacks}: another version of"):
            memlab.load(tmp_path / "store")


def test_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(MemlabError, match="store called 'gopher'; it knows file, claude-mem"):
        open_source("gopher://memory")


def test_recognition_keeps_a_journal_beside_an_empty_store(tmp_path: Path) -> None:
    """SQLite would remove it as stale on opening the empty file, even for reading."""
    store = tmp_path / "memory.db"
    journal = tmp_path / "memory.db-journal"
    store.touch()
    journal.write_bytes(b"what could be rolled back" * 30)
    assert recognise(store) is None
    assert journal.read_bytes() == b"what could be rolled back" * 30


DAY = date(2026, 6, 30)


def of_an_agent(path: Path) -> object:
    return write_memory(path, "a.md", "no front matter, and no index yet")


STORES: dict[str, tuple[Callable[[Path], object], int | None]] = {
    ".claude/agent-memory/reviewer": (of_an_agent, 1),
    ".claude/projects/-p0/memory": (lambda path: realistic_folder(path, files=9), 9),
    ".claude/projects/-p1/memory": (Path.mkdir, 0),  # a known place, whatever its content
    ".odek/memory/episodes": (lambda path: write_odek(path, ["one", "two"]), 2),
    ".openclaw/workspace": (lambda path: write_workspace(path, days_before(DAY, 4)), 5),
    "agents/memory.db": (lambda path: write_rows(path, episodes(3)), 3),
    "agents/notes.db": (lambda path: path.write_text("no database"), None),
    "agents/old.sqlite": (database("memory_items (memory_id)"), None),
    "agents/pipe.db": (os.mkfifo, None),
    "anna/bob": (lambda path: write_workspace(path, days_before(DAY, 3)), 4),
    "anna/new": (lambda path: write_events(path / "memory/.dreams/events.jsonl"), 0),
    "app/.claude/agent-memory-local/reviewer": (of_an_agent, 1),
    "app/.serena/memories": (lambda path: write_memory(path, "a.md", "Short.", noon(DAY)), 1),
}
"""Stores below a home folder, with their numbers of memories."""
NO_STORES: dict[str, Callable[[Path], object]] = {
    "../outside/memory.db": lambda path: write_rows(path, episodes(1)),
    "a diary": lambda path: write_memory(path, "memory/2026-04-05.md", "mine", noon(DAY)),
    "a project": lambda path: [
        write_memory(path, name, "no agent's", noon(DAY)) for name in ("AGENTS.md", "memory/a.md")
    ],
    "agents/link.db": lambda path: path.symlink_to("memory.db"),
    "agents/memory.db.archive.db": lambda path: write_rows(path, episodes(1)),
    "link": lambda path: path.symlink_to(path.parent.parent),
    "node_modules/memory.db": lambda path: write_rows(path, episodes(1)),
    "packages/agent-memory/src": Path.mkdir,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    stores = {name: make for name, (make, _) in STORES.items()}
    for name, make in (stores | NO_STORES).items():
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
    assert inventory.to_frame()["memories"].sum() == sum(filter(None, counts.values()))
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
    assert (opened := " ".join(str(call.args[0]) for call in connect.call_args_list))
    assert "notes.db" not in opened
    assert "archive" not in opened
    assert files_in(home) == before


def test_default_locations_follow_environment_variables() -> None:
    moved = {"CLAUDE_MEM_DATA_DIR": "/data/cm", "OPENCLAW_STATE_DIR": "/srv/oc"}
    home = (".claude/projects", ".claude/agent-memory-local", ".odek/memory")
    expected = {Path("/home/u") / name for name in (*home, ".local/share/mcp-memory")}
    usual = {*usual_places({"HOME": "/home/u", **moved})}
    assert expected | {Path("/data/cm"), Path("/srv/oc")} <= usual
    assert Path("/home/u/.openclaw") in usual_places({"HOME": "/home/u"})


def test_busy_store_is_not_misrecognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sqlite_vec.db"
    moments = count()
    database(MEMORIES)(path)
    monkeypatch.setattr("memlab.store.snapshot.states_of", lambda *asked: next(moments))
    with pytest.raises(ChangedWhileReadError, match="sqlite_vec"):
        open_source(str(path))
    ((store,), *_) = find_below([tmp_path])
    assert store.path == path
    assert store.system == "named like a store"


TIMES = st.integers(0, 2**43 - 1)
TIES = st.integers(0, 2**20 - 1) | st.text()
Place = tuple[int, int | str]


@given(st.tuples(st.integers(), TIES), st.tuples(TIMES, TIES), st.integers(0, 2**20 - 2))
def test_positions_increase_with_time_and_fit_64_bits(
    place: Place, other: Place, first: int
) -> None:
    position = position_from_timestamp(*place)
    other_position = position_from_timestamp(*other)
    assert min(position, other_position) >= 0
    assert max(position, other_position) < 2**63
    if place[0] < other[0]:
        assert position < other_position or place[0] < 0
    assert position_from_timestamp(other[0], first) + 1 == position_from_timestamp(
        other[0], first + 1
    )


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
        ("redis://:secret@[::1/0", "cannot be taken apart"),
        ("redis://:secret@h/0?name", "cannot be taken apart"),
        ("redis:/me:secret@h/0", "cannot be taken apart"),
        ("redis://:secret/@h/0", "cannot be taken apart"),
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
