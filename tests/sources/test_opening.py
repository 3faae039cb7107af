"""Which kind of store a name means."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from claude_store import as_found
from odek_store import write_odek
from stores import episodes, run_sql, write_rows

from memlab import SqliteMemoryStore
from memlab.errors import MemlabError
from memlab.sources.base import FileSource, Reader
from memlab.sources.opening import SYSTEMS, System, open_source
from memlab.systems.claude_code.source import ClaudeCode
from memlab.systems.claude_mem.source import ClaudeMem
from memlab.systems.mcp_memory.source import McpMemory
from memlab.systems.memory_items.source import MemoryItems
from memlab.systems.odek import Odek


class Diary(FileSource):
    """A kind of store of its own."""

    scheme = "diary"

    def reading(self) -> AbstractContextManager[Reader]:
        raise NotImplementedError


@pytest.fixture
def diaries(monkeypatch: pytest.MonkeyPatch) -> None:
    diary = System("diaries", ("diary",), f"{__name__}:Diary")
    monkeypatch.setattr("memlab.sources.opening.SYSTEMS", (*SYSTEMS, diary))


def test_a_path_is_the_store_of_an_agent(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", episodes(1))
    for name in (path, str(path), path.as_uri()):
        source = open_source(name)
        assert isinstance(source, MemoryItems)
        assert source.path == path
        assert source.name == str(path)
        assert source.archive == tmp_path / "memory.db.archive.db"


def test_an_open_store_and_a_source_are_taken_as_they_are(tmp_path: Path) -> None:
    with SqliteMemoryStore(tmp_path / "memory.db") as store:
        source = open_source(store)
        assert isinstance(source, MemoryItems)
        assert open_source(source) is source


@pytest.mark.usefixtures("diaries")
def test_a_scheme_names_its_adapter() -> None:
    assert isinstance(open_source("diary://somewhere"), Diary)


def test_a_bare_path_is_looked_at(tmp_path: Path) -> None:
    assert isinstance(open_source(tmp_path), MemoryItems)  # which says that it is a folder
    assert isinstance(open_source(as_found(tmp_path / "memory", 1)), ClaudeCode)
    assert isinstance(open_source(write_odek(tmp_path / "odek", ["one"])), Odek)


def test_a_database_with_another_memory_items_is_known_for_what_it_is(tmp_path: Path) -> None:
    run_sql(
        tmp_path / "claude-mem.db",
        "CREATE TABLE observations (id, memory_session_id, created_at_epoch)",
        "CREATE TABLE sdk_sessions (id, memory_session_id)",
        "CREATE TABLE memory_items (id, project_id)",
    )
    assert isinstance(open_source(tmp_path / "claude-mem.db"), ClaudeMem)
    run_sql(tmp_path / "vec.db", "CREATE TABLE memories (content_hash, content, memory_type)")
    assert isinstance(open_source(tmp_path / "vec.db"), McpMemory)


@pytest.mark.parametrize("content", [b"", b"no database, but long enough to be one" * 30])
def test_a_file_that_is_no_database_is_for_the_adapter_to_refuse(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "notes.txt").write_bytes(content)
    assert isinstance(open_source(tmp_path / "notes.txt"), MemoryItems)


def test_an_unknown_scheme_is_refused_with_those_there_are() -> None:
    with pytest.raises(MemlabError, match=r"no kind of store called 'gopher'; it knows file"):
        open_source("gopher://memory")
