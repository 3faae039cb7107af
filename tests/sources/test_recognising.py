"""What a path is, found out by looking; and the stores below a folder."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from claude_store import as_found, at, memory, project_folder, write_index, write_memory
from odek_store import write_odek
from stores import episodes, run_sql, write_rows

import memlab
from memlab.sources.opening import find_below, recognise, usual_places

CLAUDE_MEM = (
    "CREATE TABLE observations (id INTEGER PRIMARY KEY, memory_session_id, created_at_epoch)",
    "CREATE TABLE sdk_sessions (id INTEGER PRIMARY KEY, memory_session_id)",
    "CREATE TABLE memory_items (id, project_id, kind, title)",
)
MCP = ("CREATE TABLE memories (id INTEGER PRIMARY KEY, content_hash, content, memory_type)",)


def what(path: Path) -> tuple[str | None, str] | None:
    found = recognise(path)
    return None if found is None else (found.scheme, found.what)


def test_a_file_is_known_by_its_tables(tmp_path: Path) -> None:
    assert what(write_rows(tmp_path / "a.db", episodes(1))) == ("file", "memory_items")
    run_sql(tmp_path / "b.db", *CLAUDE_MEM)
    assert what(tmp_path / "b.db") == ("claude-mem", "claude-mem")
    run_sql(tmp_path / "c.db", *MCP)
    assert what(tmp_path / "c.db") == ("mcp-memory", "mcp-memory-service")
    run_sql(tmp_path / "d.db", "CREATE TABLE memory_items (id, text)")
    assert what(tmp_path / "d.db") == (None, "another table called memory_items")
    run_sql(tmp_path / "e.db", "CREATE TABLE notes (note)")
    (tmp_path / "f.db").write_text("no database" * 99)
    (tmp_path / "g.db").touch()
    assert [what(tmp_path / name) for name in ("e.db", "f.db", "g.db", "h.db")] == [None] * 4


def test_a_folder_is_known_by_its_index_its_place_or_what_its_files_begin_with(
    tmp_path: Path,
) -> None:
    assert what(as_found(tmp_path / "a", 1)) == ("claude", "Claude Code memory")
    assert what(write_odek(tmp_path / "b", ["one"])) == ("odek", "odek episodes")
    write_odek(
        tmp_path / "odek" / "episodes" if (tmp_path / "odek").mkdir() is None else tmp_path, []
    )
    assert what(tmp_path / "odek") == ("odek", "odek episodes")
    assert what(project_folder(tmp_path)) == ("claude", "Claude Code memory")
    write_memory(tmp_path / "c", "a.md", memory("a", style="node"))
    assert what(tmp_path / "c") == ("claude", "Claude Code memory")
    write_memory(tmp_path / "d", "README.md", "---\ntitle: x\n---\n# A project\n")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "index.json").write_text(json.dumps([{"name": "somebody else's"}]))
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "index.json").write_text("{")
    assert [what(tmp_path / name) for name in "def"] == [None] * 3


def test_looking_leaves_no_trace_even_of_a_store_in_use(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        names = sorted(each.name for each in tmp_path.iterdir())
        assert what(path) == ("file", "memory_items")
        assert sorted(each.name for each in tmp_path.iterdir()) == names
        with (
            pytest.raises(sqlite3.OperationalError),
            closing(sqlite3.connect(path, timeout=0)) as c,
        ):
            c.execute("BEGIN IMMEDIATE")


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
        as_found(project_folder(made, f"-p{number}"), number, files=9)
    (made / ".odek" / "memory").mkdir(parents=True)
    write_odek(made / ".odek" / "memory" / "episodes", ["one", "two"])
    (made / "agents").mkdir()
    write_rows(made / "agents" / "memory.db", episodes(3))
    run_sql(made / "agents" / "old.sqlite", "CREATE TABLE memory_items (id)")
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
    found = memlab.growth.find_stores(home)
    where = {Path(each.where).relative_to(home).as_posix(): each for each in found.stores}
    assert sorted(where) == [
        ".claude/projects/-p0/memory",
        ".claude/projects/-p1/memory",
        ".odek/memory/episodes",
        "agents/memory.db",
        "agents/notes.db",
        "agents/old.sqlite",
        "agents/pipe.db",
    ]
    assert where["agents/memory.db"].memories == 3
    assert where["agents/memory.db"].tokens_at_start == 18
    assert where["agents/old.sqlite"].problem == "memlab does not read it"
    assert "notes.db is not a SQLite database" in where["agents/notes.db"].problem
    assert "pipe.db is not a file" in where["agents/pipe.db"].problem
    assert where[".odek/memory/episodes"].memories == 2
    newest = memlab.load(home / "agents" / "memory.db")["created_at"].max()
    assert where["agents/memory.db"].last_written == newest
    assert where["agents/notes.db"].last_written is None
    frame = found.to_frame()
    assert frame["memories"].sum() == 9 + 9 + 2 + 3
    assert frame["problem"].tolist().count("") == 4


def test_finding_opens_nothing_that_is_no_store(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    connect = sqlite3.connect

    def watching(name: object, *args: object, **kwargs: object) -> sqlite3.Connection:
        opened.append(str(name))
        return connect(name, *args, **kwargs)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sqlite3, "connect", watching)
    find_below([home])
    assert opened
    assert not [name for name in opened if "notes.db" in name or "archive" in name]


def test_finding_leaves_every_byte_and_name_as_it_was(home: Path) -> None:
    def everything() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in home.rglob("*")
        }

    before = everything()
    memlab.growth.find_stores(home)
    assert everything() == before


def test_the_usual_places_are_those_of_the_systems_and_move_with_their_variables() -> None:
    places = usual_places({"HOME": "/home/u", "CLAUDE_MEM_DATA_DIR": "/data/cm"})
    assert Path("/home/u/.claude/projects") in places
    assert Path("/data/cm") in places
    assert Path("/home/u/.local/share/mcp-memory") in places
    assert Path("/home/u/.odek/memory") in places


def test_a_store_that_cannot_be_read_is_a_line_with_the_reason(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    write_memory(folder, "a.md", memory("a"), at(0))
    write_index(folder, ["- [A](a.md)"])
    (folder / ".memlab").mkdir()
    (found,) = memlab.growth.find_stores(tmp_path).stores
    assert found.memories is None
    assert "not made by memlab" in found.problem
