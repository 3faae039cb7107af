"""Which kind of store a name means; what a path is, found out by looking; stores below a folder."""

import os
import sqlite3
from collections.abc import Callable
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from claude_store import as_found, memory, project_folder, write_memory
from odek_store import write_odek
from openclaw_store import days_before, noon, write_workspace
from stores import episodes, files_in, run_sql, write_rows

import memlab
from memlab.errors import ChangedWhileReadError, MemlabError, StoreError
from memlab.sources.opening import find_below, open_source, recognise, start_words, usual_places


def what(path: Path) -> tuple[str, str] | None:
    found = recognise(path)
    return None if found is None else (found.scheme, found.what)


def database(*statements: str) -> Callable[[Path], object]:
    return lambda path: run_sql(path, *statements)


def folder(name: str, text: str) -> Callable[[Path], object]:
    return lambda path: (path.mkdir(), (path / name).write_text(text))


PATHS: dict[str, tuple[Callable[[Path], object], tuple[str, str] | None]] = {
    "an agent's own": (lambda path: write_rows(path, episodes(1)), ("file", "memory_items")),
    "claude-mem, which has another memory_items": (
        database(
            "CREATE TABLE observations (id, memory_session_id, project, type, created_at_epoch)",
            "CREATE TABLE sdk_sessions (id, memory_session_id)",
            "CREATE TABLE memory_items (id, project_id, kind, title)",
        ),
        ("claude-mem", "claude-mem"),
    ),
    "mcp": (
        database(
            "CREATE TABLE memories (id, content_hash, content, memory_type, metadata, created_at)"
        ),
        ("mcp-memory", "mcp-memory-service"),
    ),
    "another memory_items": (
        database("CREATE TABLE memory_items (id, text)"),
        None,
    ),
    "another database": (database("CREATE TABLE notes (note)"), None),
    "text": (lambda path: path.write_text("no database" * 99), None),
    "empty": (Path.touch, None),
    "nothing": (Path.exists, None),
    "an index": (as_found, ("claude", "Claude Code memory")),
    "episodes": (lambda path: write_odek(path, ["one"]), ("odek", "odek episodes")),
    "episodes below": (
        lambda path: (path.mkdir(), write_odek(path / "episodes", [])),
        ("odek", "odek episodes"),
    ),
    "front matter and no index": (lambda path: write_memory(path, "a.md", memory("a")), None),
    "another index": (folder("index.json", '[{"name": "somebody else\'s"}]'), None),
    "a broken index": (folder("index.json", "{"), None),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_what_its_tables_its_index_or_its_files_say(tmp_path: Path, path: str) -> None:
    make, expected = PATHS[path]
    make(tmp_path / "store")
    assert what(tmp_path / "store") == expected
    scheme = (expected and expected[0]) or "file"  # which says what is wrong with it
    assert open_source(tmp_path / "store").scheme == scheme


@pytest.mark.parametrize(
    ("path", "lacks"),
    [("claude-mem, which has another memory_items", "title"), ("mcp", "tags")],
)
def test_another_version_is_recognised_and_said_to_lack_a_column(
    tmp_path: Path, path: str, lacks: str
) -> None:
    make, _ = PATHS[path]
    make(tmp_path / "store")
    with pytest.raises(StoreError, match=f"lacks the column {lacks}: another version of"):
        memlab.load(tmp_path / "store")


def test_a_folder_in_its_place_is_a_project_whatever_is_in_it(tmp_path: Path) -> None:
    assert what(project_folder(tmp_path)) == ("claude", "Claude Code memory")


@pytest.mark.parametrize("kind", ["agent-memory", "agent-memory-local"])
def test_what_a_subagent_remembers_is_found_of_a_person_and_of_a_project(
    tmp_path: Path, kind: str
) -> None:
    of_agents = [tmp_path / place / ".claude" / kind / "reviewer" for place in ("home", "project")]
    for path in of_agents:
        write_memory(path, "a.md", "no front matter, and no index yet")
    (tmp_path / "packages" / kind / "src").mkdir(parents=True)
    assert [each.path for each in find_below([tmp_path]).stores] == of_agents
    assert start_words(str(of_agents[0])) == "in the index"


def test_an_unknown_scheme_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        MemlabError, match=r"no kind of store called 'gopher'; it knows file, claude-mem"
    ):
        open_source("gopher://memory")


def test_a_journal_beside_an_emptied_store_stays(tmp_path: Path) -> None:
    """SQLite removes it as stale when it opens the empty file, even for reading alone."""
    store, journal = tmp_path / "memory.db", tmp_path / "memory.db-journal"
    store.touch()
    journal.write_bytes(b"what could be rolled back" * 30)
    assert recognise(store) is None
    assert journal.read_bytes() == b"what could be rolled back" * 30


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with a store of each kind, and much that is none."""
    made = tmp_path / "home"
    for number in range(2):
        as_found(project_folder(made, f"-p{number}"), files=9)
    (made / ".odek" / "memory").mkdir(parents=True)
    write_odek(made / ".odek" / "memory" / "episodes", ["one", "two"])
    write_memory(made / ".claude" / "agent-memory" / "reviewer", "a.md", memory("a"))
    write_workspace(made / ".openclaw" / "workspace", days_before(date(2026, 6, 30), 4))
    write_memory(
        made / "app" / ".serena" / "memories", "style.md", "Short.", noon(date(2026, 6, 30))
    )
    (made / "agents").mkdir()
    write_rows(made / "agents" / "memory.db", episodes(3))
    run_sql(made / "agents" / "old.sqlite", "CREATE TABLE memory_items (memory_id)")
    (made / "agents" / "notes.db").write_text("no database")
    write_rows(made / "agents" / "memory.db.archive.db", episodes(1))
    os.mkfifo(made / "agents" / "pipe.db")
    (made / "link").symlink_to(tmp_path)
    (made / "agents" / "link.db").symlink_to(made / "agents" / "memory.db")
    (made / "node_modules").mkdir()
    write_rows(made / "node_modules" / "memory.db", episodes(1))
    (tmp_path / "outside").mkdir()
    write_rows(tmp_path / "outside" / "memory.db", episodes(1))
    return made


def test_stores_are_found_below_a_folder_and_links_are_not_followed(home: Path) -> None:
    found = memlab.find(home)
    where = {Path(each.where).relative_to(home).as_posix(): each for each in found.stores}
    assert sorted(where) == [
        ".claude/agent-memory/reviewer",
        ".claude/projects/-p0/memory",
        ".claude/projects/-p1/memory",
        ".odek/memory/episodes",
        ".openclaw/workspace",
        "agents/memory.db",
        "agents/notes.db",
        "agents/old.sqlite",
        "agents/pipe.db",
        "app/.serena/memories",
    ]
    assert where["agents/memory.db"].memories == 3
    assert where["agents/memory.db"].tokens_at_start == 18
    assert "lacks the column kind" in where["agents/old.sqlite"].problem
    assert "notes.db is not a SQLite database" in where["agents/notes.db"].problem
    assert "pipe.db is not a file" in where["agents/pipe.db"].problem
    assert where[".odek/memory/episodes"].memories == 2
    newest = memlab.load(home / "agents" / "memory.db")["created_at"].max()
    assert where["agents/memory.db"].last_written == newest
    assert found.to_frame()["memories"].sum() == 9 + 9 + 2 + 3 + 1 + 5 + 1


def test_finding_opens_nothing_that_is_no_store_and_leaves_every_byte_and_name_as_it_was(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, connect = [], sqlite3.connect

    def watching(name: object, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened.append(str(name))
        return connect(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(sqlite3, "connect", watching)
    before = files_in(home)
    find_below([home])
    assert opened
    assert not [name for name in opened if "notes.db" in name or "archive" in name]
    assert files_in(home) == before


def test_the_usual_places_are_those_of_the_systems_and_move_with_their_variables() -> None:
    moved = {"CLAUDE_MEM_DATA_DIR": "/data/cm", "OPENCLAW_STATE_DIR": "/srv/oc"}
    home = (".claude/projects", ".claude/agent-memory-local", ".odek/memory")
    expected = {Path("/home/u") / name for name in (*home, ".local/share/mcp-memory")}
    assert expected | {Path("/data/cm"), Path("/srv/oc")} <= {
        *usual_places({"HOME": "/home/u", **moved})
    }
    assert Path("/home/u/.openclaw") in usual_places({"HOME": "/home/u"})


def test_a_store_that_is_written_all_the_while_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, moments = tmp_path / "sqlite_vec.db", count()
    run_sql(path, "CREATE TABLE memories (id, content_hash, content, memory_type)")
    monkeypatch.setattr("memlab.store.snapshot._state", lambda *asked: next(moments))
    with pytest.raises(ChangedWhileReadError, match="sqlite_vec"):
        open_source(str(path))
    ((found,), *_) = find_below([tmp_path])
    assert (found.path, found.what) == (path, "named like a store")
