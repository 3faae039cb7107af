"""Codex's raw memories, one per thread, in a SQLite file. The source is read-only.

Codex consolidates raw memories into ``memory_summary.md``, which a start loads. It deletes raw
memories itself. Reads are citations, in which the model names the threads whose memory it used.

Codex has two versions of its memories, each with a database of the same tables. The second version
stores no raw memory beside the summary of a thread.
"""

import json
import re
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from memlab.errors import MemlabError
from memlab.files import ordinary_file
from memlab.sources import reads
from memlab.sources.base import About, position_from_timestamp
from memlab.sources.capabilities import NativeCap
from memlab.sources.readers import Fault, Key
from memlab.sources.reads import (
    OWN_SESSION,
    READ,
    HarvestRequest,
    HarvestResult,
    LineReader,
    Read,
    mapping,
)
from memlab.sources.sqlite_rows import TableReader, TableSource, rows_in, tables_of, text_of
from memlab.store.records import encoded
from memlab.store.shapes import fields, sqlite_value, text
from memlab.text import TextPage, counted

_TABLE: Final = "stage1_outputs"
_DATABASES: Final = {"v1": "memories_[0-9]*.sqlite", "v2": "memories_v2_[0-9]*.sqlite"}
"""File names of the databases, by the version of Codex's memories in the configuration."""
SETTING: Final = "max_raw_memories_for_consolidation"
_CONFIGURATION: Final = "config.toml"
_MAX_CONFIGURATION_BYTES: Final = 2**20
"""Maximum size in bytes of a configuration file that is read."""
_DEFAULT_CAP: Final = 256
"""Default of the setting in Codex."""

_SESSION_FOLDERS: Final = ("sessions", "archived_sessions")
"""Folders of Codex's home that hold the sessions."""
_CITATION: Final = re.compile(r"<oai-mem-citation>(.*?)</oai-mem-citation>", re.DOTALL)
_CITED_IDS: Final = re.compile(r"<(rollout|thread)_ids>(.*?)</\1_ids>", re.DOTALL)

WITHOUT_THREAD: Final = "citations that name no thread"
WITHOUT_TIME: Final = "citations without a time"
COPIES: Final = "copies of a citation that is counted"


class Codex(TableSource):
    """The raw memories of a Codex home."""

    scheme = "codex"
    default_locations = ("CODEX_HOME", ".codex")
    key_column = "thread_id"
    shape = staticmethod(fields({"thread_id": text}, others=sqlite_value))
    tables: ClassVar = {_TABLE: ("thread_id", "raw_memory", "source_updated_at")}

    def __init__(self, location: str | PathLike[str]) -> None:
        super().__init__(location)
        self.path = _database(self.path)
        self.native_cap = ConsolidationCap(self)

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:
        """Return the database at a path, or the one in use in a Codex home; None for none."""
        if path.is_dir():
            database = _database(path)
            if database == path or _TABLE not in tables_of(database):
                return None
            return database
        return super().recognise(path, tables)

    def reader(self, connection: sqlite3.Connection) -> "RawMemoryReader":
        """Return a reader of the raw memories."""
        return RawMemoryReader(connection, self)

    @property
    def read_only_reason(self) -> str:
        """The reason, with the settings to use instead."""
        return (
            f"memlab deletes nothing from {self.name}: Codex consolidates these memories in files "
            "and deletes them itself; nothing was changed: keep fewer by "
            f"{SETTING} or max_unused_days below [memories] in "
            f"{self.path.parent / _CONFIGURATION}, or forget a thread with Codex itself"
        )

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a raw memory as a row."""
        thread = parsed["thread_id"]
        summary = text_of(parsed.get("rollout_summary")).strip()
        first_line, _, rest = summary.partition("\n")
        slug = text_of(parsed.get("rollout_slug"))
        title = slug or first_line
        body = text_of(parsed.get("raw_memory"))
        if not body:  # the second version stores the summary alone
            body = summary if slug else rest.strip()
        updated = parsed.get("source_updated_at")
        position = _position(updated, thread)
        at = reads.moment_of_seconds(updated if isinstance(updated, int) else None)
        faults: list[Fault] = []
        if at is None:
            reason = f"source_updated_at {updated!r:.80} is not a time"
            faults.append(Fault(position, "created_at", reason))
        use_count = parsed.get("usage_count")
        last_use = parsed.get("last_usage")
        is_selected = bool(parsed.get("selected_for_phase2"))
        return {
            "position": position,
            "key": thread,
            "memory_id": thread,
            "kind": "episodic",
            "title": title,
            "body": body,
            "tags_json": json.dumps(["consolidated"] if is_selected else []),
            "authored_by": "codex",
            "created_at": at,
            "confidence": 1.0,
            "access_count": use_count if isinstance(use_count, int) else None,
            "last_accessed_at": reads.moment_of_seconds(
                last_use if isinstance(last_use, int) else None
            ),
            "loaded_at_start": False,
            "faults": faults,
        }


class ConsolidationCap(NativeCap):
    """The setting for the maximum number of raw memories that Codex consolidates."""

    def __init__(self, source: Codex) -> None:
        super().__init__(f"{SETTING} = %d")
        self.file = source.path.parent / _CONFIGURATION

    def current(self) -> int:
        """Return the maximum number of raw memories in the configuration, or Codex's default."""
        number = _memory_settings(self.file).get(SETTING)
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return number
        return _DEFAULT_CAP

    def instructions(self, keep: int) -> list[str]:
        """Return the lines that explain how to set a cap."""
        setting = self.setting_for(keep)
        today = f"today {self.current()}; Codex consolidates the most used and newest memories"
        return [f"next: write {setting} below [memories] into {self.file} ({today})"]


class RawMemoryReader(TableReader):
    """Reader of the raw memories at one moment."""

    system = "Codex"
    table = _TABLE
    needed = ("thread_id", "raw_memory", "rollout_summary", "source_updated_at")

    def _places(self) -> Iterator[tuple[int, Key]]:
        rows = self.connection.execute(f"SELECT source_updated_at, thread_id FROM {_TABLE}")
        return ((_position(updated, thread), thread) for updated, thread in rows)

    def _records(self, rows: Mapping[Key, dict[str, Any]]) -> dict[Key, bytes]:
        return {key: encoded(row) for key, row in rows.items()}

    def about(self) -> About:
        """Return a report on consolidation and on deletion."""
        selected = 0
        if "selected_for_phase2" in self.columns:
            selected = self._single_value(
                f"SELECT count(*) FROM {_TABLE} WHERE selected_for_phase2"
            )
        facts = [
            ("consolidated", f"{counted(selected, 'memories')} in what a start loads"),
            ("deletion", "none by memlab: Codex deletes what is unused for long itself"),
        ]
        others = _others_with_memories(self.source.path)
        for other, memories in others.items():
            description = f"{counted(memories, 'memories')} in {other.name}, a store of its own"
            facts.append(("other version", description))
        return About(
            TextPage("Codex", facts, []),
            {
                "store": self.source.name,
                "consolidated": selected,
                "other_databases": {str(other): memories for other, memories in others.items()},
            },
        )


def _memory_settings(configuration: Path) -> Mapping[str, Any]:
    """Return the settings of memories in a configuration file; none if it cannot be read."""
    with suppress(OSError, ValueError):
        with ordinary_file(configuration, max_bytes=_MAX_CONFIGURATION_BYTES) as opened:
            content = tomllib.loads(opened.read(_MAX_CONFIGURATION_BYTES).decode())
        return mapping(content.get("memories"))
    return {}


def _database(path: Path) -> Path:
    """Return the database that Codex uses in a home; the path itself if it is no home.

    Codex uses the database of the version in the configuration. If no version is configured, the
    database with the newest memory is returned.
    """
    databases = _databases(path)
    if not databases:
        return path
    version = _memory_settings(path / _CONFIGURATION).get("version")
    configured = [file for file, file_version in databases.items() if file_version == version]
    return max(configured or databases, key=_newest_memory)


def _databases(folder: Path) -> dict[Path, str]:
    """Return the version of each database in a Codex home, by its path."""
    databases: dict[Path, str] = {}
    if not folder.is_dir():
        return databases
    for version, pattern in _DATABASES.items():
        for file in sorted(folder.glob(pattern)):
            if file.is_file():
                databases[file] = version
    return databases


def _others_with_memories(database: Path) -> dict[Path, int]:
    """Return the number of memories of the other databases in a Codex home, if they have any."""
    memories: dict[Path, int] = {}
    for other in _databases(database.parent):
        if other == database:
            continue
        with suppress(MemlabError, OSError, sqlite3.Error):
            ((number,),) = rows_in(other, f"SELECT count(*) FROM {_TABLE}")
            if number:
                memories[other] = number
    return memories


def _newest_memory(database: Path) -> tuple[int, str]:
    """Return the time of the newest memory of a database, -1 for none, and the database's name."""
    newest: object = None
    with suppress(MemlabError, OSError, sqlite3.Error):
        ((newest,),) = rows_in(database, f"SELECT max(generated_at) FROM {_TABLE}")
    if not isinstance(newest, int):
        newest = -1
    return newest, database.name


def _position(updated: object, thread: str) -> int:
    """Return the position of a raw memory by the time of its thread's last change, in seconds."""
    return position_from_timestamp(updated * 1_000 if isinstance(updated, int) else 0, thread)


class _Session(NamedTuple):
    """The session of a rollout file.

    Attributes
    ----------
    id : str
        Id of the session, or the name of the file if it has none.
    forked_from : str
        Id of the session that this one was forked from; empty if it was not.
    citations : list of Read
        Its citations. Their ids lack the session.
    """

    id: str
    forked_from: str
    citations: list[Read]


def recognises(request: HarvestRequest) -> bool:
    """Return whether the source is Codex's folder, its sessions, or its database of memories."""
    path = request.path
    if path.is_dir():
        return bool(_session_folders(path)) and any(_rollouts(path))
    return "stage1_outputs" in tables_of(path)


def find(request: HarvestRequest) -> HarvestResult:
    """Return the citations of threads as reads."""
    result = HarvestResult()
    home = request.path if request.path.is_dir() else request.path.resolve().parent
    database = _database(request.path)
    if _TABLE in tables_of(database):
        result.store = str(database)
    files = list(_rollouts(request.transcripts or home))
    if not files:
        raise MemlabError(
            f"there are no sessions in {request.transcripts or home}; name the folder they lie in "
            "with --transcripts, such as ~/.codex/sessions"
        )
    lines = LineReader(files, request.progress, result)
    sessions = [_session(file, lines, result) for file in lines.files]
    _add_each_citation_once(sessions, result)
    result.notes.append("a citation is the model's own word that a memory was of use")
    return result


def _session(file: Path, lines: LineReader, result: HarvestResult) -> _Session:
    """Return the session of a rollout file."""
    session_id = file.stem
    forked_from = ""
    occurrences: Counter[str] = Counter()
    citations: list[Read] = []
    for line in lines.objects(file, _is_of_interest):
        payload = mapping(line.get("payload"))
        if line.get("type") == "session_meta" and session_id == file.stem:
            session_id = reads.text(payload.get("id")) or file.stem
            forked_from = reads.text(payload.get("forked_from_id"))
            continue
        message = _message(line, payload)
        if not message:
            continue
        threads = _threads(message, result)
        digest = sha256(message.encode()).hexdigest()[:16]
        occurrences[digest] += 1
        at = reads.moment(line.get("timestamp"), result)
        if at is None:
            result.left_out[WITHOUT_TIME] += len(threads)
            continue
        for thread in threads:
            read_id = f"{digest}:{occurrences[digest]}:{thread}"
            citations.append(Read(memory_id=thread, at=at, id=read_id, tool="citation"))
    return _Session(session_id, forked_from, citations)


def _is_of_interest(line: bytes) -> bool:
    """Return whether a line may hold a citation or the metadata of a session."""
    return b"-citation" in line or b'"session_meta"' in line


def _add_each_citation_once(sessions: list[_Session], result: HarvestResult) -> None:
    """Add each citation once, with the session that made it; a fork repeats its parent's."""
    parents = {session.id: session.forked_from for session in sessions}
    citation_by_id: dict[str, Read] = {}
    for session in sessions:
        root = _root(session.id, parents)
        for citation in session.citations:
            read_id = f"codex:{root}:{citation.id}"
            kind = OWN_SESSION if citation.memory_id == session.id else READ
            copy = citation_by_id.get(read_id)
            if copy is not None:
                result.left_out[COPIES] += 1
            if copy is None or citation.at < copy.at:
                citation_by_id[read_id] = citation._replace(
                    id=read_id, session=session.id, kind=kind
                )
    for read in sorted(citation_by_id.values(), key=lambda read: read.at):
        if read.kind == READ:
            result.reads.append(read)
        else:
            result.excluded.append(read)


def _root(session: str, parents: dict[str, str]) -> str:
    """Return the session from which a session was forked first, or itself."""
    visited = {session}
    parent = parents.get(session)
    while parent and parent not in visited:
        session = parent
        visited.add(parent)
        parent = parents.get(session)
    return session


def _message(line: dict[str, Any], payload: dict[str, Any]) -> str:
    """Return the assistant's message of a line; empty for another line.

    Codex itself resumes a session from these lines.
    """
    is_message = line.get("type") == "response_item" and payload.get("type") == "message"
    if not is_message or payload.get("role") != "assistant":
        return ""
    parts = map(mapping, reads.sequence(payload.get("content")))
    return "".join(reads.text(part.get("text")) for part in parts)


def _threads(message: str, result: HarvestResult) -> list[str]:
    """Return the threads that a message cites, without duplicates."""
    threads: dict[str, None] = {}
    for citation in _CITATION.finditer(message):
        ids: list[str] = []
        for match in _CITED_IDS.finditer(citation[1]):
            lines = [line.strip() for line in match[2].split("\n")]
            ids += [line for line in lines if line]
        if not ids:
            result.left_out[WITHOUT_THREAD] += 1
        threads.update(dict.fromkeys(ids))
    return list(threads)


def _session_folders(path: Path) -> list[Path]:
    """Return the folders of sessions in Codex's home, or the path if it is such a folder."""
    folders = [path / name for name in _SESSION_FOLDERS if (path / name).is_dir()]
    if folders:
        return folders
    return [path] if path.name in _SESSION_FOLDERS else []


def _rollouts(path: Path) -> Iterator[Path]:
    """Yield the rollout files in Codex's home, in its sessions, or in another folder."""
    for folder in _session_folders(path) or [path]:
        yield from folder.rglob("rollout-*.jsonl")
