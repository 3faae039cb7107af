"""The observations of a claude-mem database, of one project or of all. The source is read-only.

A start loads the newest observations of a project, of any type, up to the number
``CLAUDE_MEM_CONTEXT_OBSERVATIONS``. Therefore all observations are episodic. A deletion by SQL
would bypass claude-mem's replication. A read is an id that a later session requested with
``get_observations``.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qsl, quote

from memlab.errors import MemlabError
from memlab.files import ordinary_file
from memlab.sources import reads, sqlite_rows
from memlab.sources.base import About, position_from_timestamp
from memlab.sources.capabilities import NativeCap
from memlab.sources.readers import Fault, Key
from memlab.sources.reads import WRITE, HarvestRequest, HarvestResult, Read, mapping, sequence
from memlab.sources.sqlite_rows import TableReader, TableSource, text_of, text_or_none
from memlab.sources.transcripts import Touch, TouchRules, calls_in, harvest_transcripts
from memlab.store.records import encoded, with_place
from memlab.store.shapes import boolean, fields, integer, sqlite_value
from memlab.text import Table, TextPage, in_shell

SETTING: Final = "CLAUDE_MEM_CONTEXT_OBSERVATIONS"
_FILE: Final = "settings.json"

_MAX_SETTINGS_BYTES: Final = 2**20
"""Maximum size in bytes of a settings file."""
_CODE_MODE: Final[dict[str, tuple[str, ...]]] = {
    "types": (
        "bugfix",
        "feature",
        "refactor",
        "change",
        "discovery",
        "decision",
        "security_alert",
        "security_note",
        "sensitive",
    ),
    "concepts": (
        "how-it-works",
        "why-it-exists",
        "what-changed",
        "problem-solution",
        "gotcha",
        "pattern",
        "trade-off",
    ),
}
"""The types and concepts of claude-mem 13 in the mode ``code`` and its translations."""

DATABASE: Final = "claude-mem.db"
_DEFAULT_NEWEST: Final = 50
"""Default of the setting in claude-mem."""
KNOWN_SCHEMA: Final = 52
"""The newest version in ``schema_versions`` that this adapter was tested with."""
MAX_LISTED_PROJECTS: Final = 10
"""Number of projects on the page."""

_TABLE: Final = "observations"
_SHAPE: Final = fields({"id": integer(), "place": fields({"loaded": boolean})}, others=sqlite_value)

_MODE_CONDITION: Final = """type IN (SELECT value FROM json_each(:types)) AND EXISTS (
SELECT 1 FROM json_each(CASE WHEN json_valid(concepts) THEN concepts ELSE '[]' END)
WHERE value IN (SELECT value FROM json_each(:concepts)))"""
"""SQL condition of the observations that a mode loads, by their type and concepts."""

_TOOL: Final = "get_observations"
_MAX_ID_DIGITS: Final = 19
"""Number of digits of the largest integer of SQLite."""
_BEFORE_ALL_READS: Final = datetime.min.replace(tzinfo=UTC)
"""Time that stands for the time of each write, so that a write precedes the session's reads."""
_SESSIONS: Final = """
SELECT CAST(observations.id AS TEXT), content_session_id FROM observations
JOIN sdk_sessions USING (memory_session_id) WHERE content_session_id IS NOT NULL
"""


class StartSettings(NamedTuple):
    """The settings that determine which observations a start loads.

    Attributes
    ----------
    newest : int
        Maximum number of observations of a project.
    origin : str
        Where that number was read, in words.
    file : Path
        The settings file.
    mode : str
        The mode.
    lists : mapping of str to str
        The loaded types and concepts as lists in JSON, by ``types`` and ``concepts``; empty for an
        unknown mode.
    """

    newest: int
    origin: str
    file: Path
    mode: str
    lists: Mapping[str, str]


class ClaudeMem(TableSource):
    """The observations of a claude-mem database."""

    scheme = "claude-mem"
    default_locations = ("CLAUDE_MEM_DATA_DIR", ".claude-mem")

    shape = staticmethod(_SHAPE)
    tables: ClassVar = {
        _TABLE: ("memory_session_id", "created_at_epoch"),
        "sdk_sessions": ("memory_session_id",),
    }

    def __init__(self, location: str | PathLike[str]) -> None:
        name = fspath(location)
        options = {}
        if name.startswith(f"{self.scheme}:"):
            name, _, query = name.partition("?")
            options = dict(parse_qsl(query, keep_blank_values=True))
        super().__init__(name)
        unknown = options.keys() - {"project"}
        if unknown:
            raise MemlabError(f"{name}: there is no option {min(unknown)!r}; there are project")
        self.path = _database(self.path)
        self.project: str | None = None
        if options.get("project"):
            self.project = options["project"]
        self.native_cap = ObservationCap(self)

    @property
    def name(self) -> str:
        """Absolute path with the scheme, and the project if there is one."""
        return self.name_of(self.project)

    @property
    def start(self) -> StartSettings:
        """The current settings of a start."""
        return start_of(self.path.parent)

    def reader(self, connection: sqlite3.Connection) -> "ObservationReader":
        """Return a reader of the observations of the project, or of all projects."""
        return ObservationReader(connection, self)

    @property
    def read_only_reason(self) -> str:
        """The reason, with the setting to use instead."""
        return (
            f"memlab deletes nothing from {self.name}: deleting with SQL would bypass "
            "claude-mem's replication and its vectors; nothing was changed: load fewer by "
            f"{SETTING}=n in "
            f"{self.path.parent / _FILE}, or delete one by one with DELETE /api/observation/ID of "
            "claude-mem's own worker"
        )

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of an observation as a row."""
        key = parsed["id"]
        epoch = parsed.get("created_at_epoch")
        title = text_of(parsed.get("title"))
        tags = [text_of(parsed.get("type")), *_strings(parsed.get("concepts"))]
        distinct_tags = dict.fromkeys(tag for tag in tags if tag)
        parts = [text_of(parsed.get("subtitle")), text_of(parsed.get("narrative"))]
        parts += _strings(parsed.get("facts"))
        body = "\n".join(part for part in parts if part)
        if not body:
            body = text_of(parsed.get("text"))
        project = parsed.get("merged_into_project") or parsed.get("project")
        position = _position(key, epoch)
        seconds = epoch / 1_000 if isinstance(epoch, int) else None
        at = reads.moment_of_seconds(seconds)
        faults: list[Fault] = []
        if at is None:
            reason = f"created_at_epoch {epoch!r:.80} is not a time"
            faults.append(Fault(position, "created_at", reason))
        return {
            "position": position,
            "key": key,
            "memory_id": str(key),
            "kind": "episodic",
            "title": title,
            "body": body,
            "tags_json": json.dumps(list(distinct_tags), ensure_ascii=False),
            "authored_by": text_of(parsed.get("generated_by_model")) or "claude-mem",
            "created_at": at,
            "confidence": 1.0,
            "namespace": text_or_none(project),
            "thread_id": text_or_none(parsed.get("memory_session_id")),
            "agent_id": text_or_none(parsed.get("agent_id")),
            "at_start": f"{key} 12:00pm * {title or 'Untitled'}\n",  # 12:00pm stands for any time
            "loaded_at_start": parsed["place"]["loaded"],
            "faults": faults,
        }

    def name_of(self, project: str | None) -> str:
        """Return the name of the database, limited to a project if one is given."""
        options = f"?project={quote(project, safe='')}" if project else ""
        return f"{self.scheme}:{self.path}{options}"


class ObservationCap(NativeCap):
    """The setting for the maximum number of observations that a start loads."""

    def __init__(self, source: ClaudeMem) -> None:
        super().__init__(f"{SETTING}=%d")
        self.source = source

    def current(self) -> int:
        """Return the maximum number of observations that a start loads."""
        return self.source.start.newest

    def instructions(self, keep: int) -> list[str]:
        """Return the lines that explain how to set a cap, or to ask about one project."""
        source = self.source
        projects = []
        if source.project is None:
            projects = source.extra_report().fields["projects"]
        if len(projects) > 1:
            counts = (
                f"{SETTING} counts the observations of one project, and these are of "
                f"{len(projects):,}: over all together the number is too large for each"
            )
            first = in_shell(source.name_of(projects[0][0]))
            return [f"next: memlab size {first}", f"      {counts}"]
        start = source.start
        today = f"today {start.newest}, {start.origin}; it counts at the next start"
        return [
            f'next: write "{SETTING}": "{keep}" into {start.file} ({today})',
            f"      {self.setting_for(keep)}",
        ]


class ObservationReader(TableReader):
    """Reader of the observations at one moment."""

    system = "claude-mem"
    table = _TABLE
    needed = ("id", "memory_session_id", "project", "type", "title", "created_at_epoch")

    def __init__(self, connection: sqlite3.Connection, source: ClaudeMem) -> None:
        super().__init__(connection, source)
        self._name = source.name
        self._project = source.project
        self._start = source.start
        self._project_condition = "(project = :project)"
        if "merged_into_project" in self.columns:
            self._project_condition = "(project = :project OR merged_into_project = :project)"

    @cached_property
    def _loaded(self) -> dict[int, str]:
        """The project of each observation that a start of that project loads."""
        mode_condition = "1"  # true for every row
        if self._start.lists and "concepts" in self.columns:
            mode_condition = _MODE_CONDITION
        query = (
            f"SELECT id FROM {_TABLE} WHERE {self._project_condition} AND {mode_condition} "
            "ORDER BY created_at_epoch DESC, id LIMIT :newest"
        )
        projects = [(self._project,)]
        if self._project is None:
            projects = self._rows_of(f"SELECT DISTINCT project FROM {_TABLE}")
        loaded = {}
        for (project,) in projects:
            keys = self._rows_of(
                query, project=project, newest=self._start.newest, **self._start.lists
            )
            for (key,) in keys:
                loaded[key] = str(project)
        return loaded

    def _places(self) -> Iterator[tuple[int, int]]:
        rows = self._rows_of(
            f"SELECT id, created_at_epoch FROM {_TABLE} "
            f"WHERE :project IS NULL OR {self._project_condition}"
        )
        return ((_position(key, epoch), key) for key, epoch in rows)

    def _row(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        return super()._row({**stored, "place": {"loaded": stored["id"] in self._loaded}})

    def _records(self, rows: Mapping[Key, dict[str, Any]]) -> dict[Key, bytes]:
        records = {}
        for key, row in rows.items():
            projects = (row.get("project"), row.get("merged_into_project"))
            if self._project is None or self._project in projects:
                records[key] = with_place(encoded(row), {"loaded": key in self._loaded})
        return records

    def about(self) -> About:
        """Return a report on the settings and the projects."""
        start = self._start
        loaded = list(self._loaded.values())
        counts = self._rows_of(
            f"SELECT project, count(*) FROM {_TABLE} "
            f"WHERE :project IS NULL OR {self._project_condition} "
            "GROUP BY project ORDER BY count(*) DESC, project"
        )
        projects = [(str(name), count, loaded.count(str(name))) for name, count in counts]
        schema = None
        if "schema_versions" in self.table_names:
            schema = self._single_value("SELECT max(version) FROM schema_versions")
        setting = f"{SETTING}={start.newest}, {start.origin}"
        facts = [
            ("loaded", f"the newest observations of one project, at most {start.newest:,}; fewer"),
            ("", "where their lines come to more than 10,000 characters"),
            ("setting", setting),
            ("deletion", "none by memlab: claude-mem replicates them and keeps vectors"),
        ]
        if not start.lists:
            facts.append(("mode", f"{start.mode}: its types are not known, all are counted"))
        newer = sqlite_rows.note_on_newer_schema(schema, KNOWN_SCHEMA)
        if newer:
            facts.append(("schema", f"{newer}; what it knows is read"))
        header = ("project", "observations", "loaded at start")
        fields = {
            "store": self._name,
            "setting": setting,
            "newest": start.newest,
            "mode": start.mode,
            "is_known_mode": bool(start.lists),
            "schema": schema,
            "known_schema": KNOWN_SCHEMA,
            "projects": projects,
        }
        table = Table("", header, projects).first(MAX_LISTED_PROJECTS)
        return About(TextPage("claude-mem", facts, [table]), fields)

    def _rows_of(self, query: str, **values: Any) -> list[Any]:
        """Return the rows of a query, which may use ``:project``."""
        return self.connection.execute(query, {"project": self._project, **values}).fetchall()


def _position(key: int, epoch: object) -> int:
    """Return the position of an observation by its id and its time in milliseconds."""
    return position_from_timestamp(epoch if isinstance(epoch, int) else 0, key)


def _strings(value: object) -> list[str]:
    """Return the texts of a list in JSON, with lone surrogates replaced."""
    texts = [item for item in sequence(reads.parsed(text_of(value))) if isinstance(item, str)]
    return [text.encode("utf-8", "surrogatepass").decode(errors="replace") for text in texts]


def start_of(folder: Path) -> StartSettings:
    """Return the settings of a start.

    The environment takes precedence over the settings file in the folder.
    """
    file = folder / _FILE
    settings = _settings_in(file)
    settings.update({name: value for name, value in os.environ.items() if value})
    number = str(settings.get(SETTING, "")).strip()
    newest = _DEFAULT_NEWEST
    origin = "its default"
    if number.isdecimal():
        newest = int(number)
        origin = "in the environment" if os.environ.get(SETTING) else f"in {_FILE}"
    mode = str(settings.get("CLAUDE_MEM_MODE") or "code")
    lists = {}
    if mode.partition("--")[0] == "code":
        for name, names_in_mode in _CODE_MODE.items():
            value = str(settings.get(f"CLAUDE_MEM_CONTEXT_OBSERVATION_{name.upper()}", ""))
            configured = [item.strip() for item in value.split(",")]
            chosen = [item for item in configured if item in names_in_mode]
            lists[name] = json.dumps(chosen or names_in_mode)
    return StartSettings(newest=newest, origin=origin, file=file, mode=mode, lists=lists)


def _settings_in(file: Path) -> dict[str, Any]:
    """Return the settings of a file; older versions store them under ``env``."""
    try:
        with ordinary_file(file, max_bytes=_MAX_SETTINGS_BYTES) as opened:
            content = mapping(reads.parsed(opened.read(_MAX_SETTINGS_BYTES).decode("utf-8-sig")))
    except (OSError, ValueError):
        return {}
    return {**mapping(content.get("env")), **content}


def recognises(request: HarvestRequest) -> bool:
    """Return whether a path is a claude-mem database or the folder that has one."""
    return {"observations", "sdk_sessions"} <= set(sqlite_rows.tables_of(_database(request.path)))


def find(request: HarvestRequest) -> HarvestResult:
    """Return the reads of observations in transcripts."""
    database = _database(request.path).resolve()
    default_transcripts = database.parent.parent / ".claude" / "projects"
    recorded = dict(request.recorded)
    for key, session in sqlite_rows.rows_in(database, _SESSIONS):
        write = Read(
            memory_id=key,
            at=_BEFORE_ALL_READS,
            id=f"wrote {key}",
            tool="",
            session=session,
            kind=WRITE,
        )
        recorded[write.id] = write
    rules = TouchRules(lambda line: _TOOL.encode() in line, _fetches)
    return harvest_transcripts(
        replace(request, recorded=recorded),
        rules,
        "claude-mem",
        str(database),
        default_folder=default_transcripts,
    )


def _fetches(line: dict[str, Any]) -> Iterator[Touch]:
    """Yield the observations that the calls of a line request."""
    for call in calls_in(line):
        if call.tool == _TOOL or call.tool.endswith(f"__{_TOOL}"):
            for number in _ids(call.arguments.get("ids")):
                yield Touch(call.id, number, _TOOL)


def _ids(requested: object) -> Iterator[str]:
    """Yield the ids of a list, of a JSON list in a text, or of a text with commas."""
    if isinstance(requested, str):
        values = sequence(reads.parsed(requested)) or requested.split(",")
    else:
        values = sequence(requested)
    for value in values:
        number = str(value).strip() if isinstance(value, int | str) else ""
        if number.isdecimal() and len(number) <= _MAX_ID_DIGITS:
            yield str(int(number))


def _database(path: Path) -> Path:
    """Return the path of the database in a folder; a path that is no folder as it is."""
    return path / DATABASE if path.is_dir() else path
