"""claude-mem's observations: one SQLite file, of one project or of all. Read, and never changed.

At a start claude-mem loads the newest observations of a project whose type and concepts belong to
its mode, as many as ``CLAUDE_MEM_CONTEXT_OBSERVATIONS`` says: a cap already. All of them count for
it, decisions too, so that all are episodic here, and their type is a tag. A deletion by SQL would
go past its replication and leave its vectors, so memlab makes none.
"""

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qsl, quote

from memlab.errors import MemlabError, UnsafeDeletionError
from memlab.files import ordinary_file
from memlab.sources.base import FileSource, Key, Reader, Rows, Writer, place_of, portions
from memlab.sources.reads import moment_of_seconds
from memlab.sources.sqlite_rows import (
    TableReader,
    check_columns,
    exact_rows,
    one_moment,
    read_database,
    text_of,
)
from memlab.store.records import check_canonical, encoded, with_place
from memlab.store.shapes import fields, stored, truth, whole
from memlab.text import Sheet, Shown, Table, in_shell

SETTING: Final = "CLAUDE_MEM_CONTEXT_OBSERVATIONS"
_FILE: Final = "settings.json"
_NEWEST: Final = 50

_LARGEST: Final = 2**20
"""Bytes of a file of settings."""
_MODE: Final = "CLAUDE_MEM_MODE"
_TYPES: Final = "CLAUDE_MEM_CONTEXT_OBSERVATION_TYPES"
_CONCEPTS: Final = "CLAUDE_MEM_CONTEXT_OBSERVATION_CONCEPTS"
_OF_CODE: Final[dict[str, tuple[str, ...]]] = {
    _TYPES: (
        *("bugfix", "feature", "refactor", "change", "discovery", "decision"),
        *("security_alert", "security_note", "sensitive"),
    ),
    _CONCEPTS: (
        *("how-it-works", "why-it-exists", "what-changed", "problem-solution"),
        *("gotcha", "pattern", "trade-off"),
    ),
}
"""Types and concepts of the mode ``code`` and its translations, in claude-mem 13."""

DATABASE: Final = "claude-mem.db"
KNOWN_SCHEMA: Final = 52
"""The newest ``schema_versions`` that this adapter was tried on."""
LISTED: Final = 10

_TABLE: Final = "observations"
_NEEDED: Final = {
    _TABLE: ("id", "memory_session_id", "project", "type", "title", "created_at_epoch"),
    "sdk_sessions": ("memory_session_id",),
}
_FIELDS: Final = fields({"id": whole(), "place": fields({"loaded": truth})}, others=stored)


class Start(NamedTuple):
    """What a start loads."""

    newest: int
    said: str
    file: Path
    mode: str
    types: Collection[str] | None
    concepts: Collection[str] | None

    def condition(self, columns: Collection[str]) -> tuple[str, dict[str, str]]:
        """Return the condition in SQL that an observation meets which may be loaded."""
        if self.types is None or self.concepts is None or "concepts" not in columns:
            return "1", {}
        rule = (
            "type IN (SELECT value FROM json_each(:types)) AND EXISTS (SELECT 1 FROM "
            "json_each(CASE WHEN json_valid(concepts) THEN concepts ELSE '[]' END) "
            "WHERE value IN (SELECT value FROM json_each(:concepts)))"
        )
        lists = {"types": list(self.types), "concepts": list(self.concepts)}
        return rule, {name: json.dumps(values) for name, values in lists.items()}


class Project(NamedTuple):
    """A project's observations, and how many of them its start loads at most."""

    name: str
    observations: int
    loaded: int


@dataclass(frozen=True, repr=False)
class ObservationFacts(Shown):
    """What a start loads of a claude-mem database."""

    store: str
    setting: str
    newest: int
    mode: str
    is_known_mode: bool
    schema: int | None
    known_schema: int
    projects: tuple[Project, ...]

    def sheet(self) -> Sheet:
        """Return the facts as a page."""
        facts = [
            ("loaded", f"the newest observations of one project, at most {self.newest:,}; fewer"),
            ("", "where their lines come to more than 10,000 characters"),
            ("setting", self.setting),
            ("deletion", "none by memlab: claude-mem replicates them and keeps vectors"),
        ]
        if not self.is_known_mode:
            facts.append(("mode", f"{self.mode}: its types are not known, all are counted"))
        if self.schema is not None and self.schema > self.known_schema:
            newer = f"{self.schema}, newer than {self.known_schema}, the newest that memlab knows"
            facts.append(("schema", f"{newer}; what it knows is read"))
        rows = [(each.name, each.observations, each.loaded) for each in self.projects[:LISTED]]
        hidden = len(self.projects) - len(rows)
        remark = f"and {hidden:,} more" if hidden else ""
        header = ("project", "observations", "loaded at start")
        return Sheet("claude-mem", facts, [Table("", header, rows, remark)])


class ClaudeMem(FileSource):
    """The observations of a claude-mem database."""

    scheme = "claude-mem"
    deletes = False
    tables: ClassVar = {
        _TABLE: frozenset({"memory_session_id", "created_at_epoch"}),
        "sdk_sessions": frozenset({"memory_session_id"}),
    }

    def __init__(self, where: str | PathLike[str]) -> None:
        name, given = fspath(where), {}
        if name.startswith(f"{self.scheme}:"):
            name, _, query = name.partition("?")
            given = dict(parse_qsl(query, keep_blank_values=True))
        super().__init__(name)
        if unknown := given.keys() - {"project"}:
            raise MemlabError(f"{name}: there is no option {min(unknown)!r}; there are project")
        self.path = self.path / DATABASE if self.path.is_dir() else self.path
        self._project = given.get("project") or None

    @property
    def name(self) -> str:
        """The path with its scheme, which says that a start loads no more than some of it."""
        return self._name_of(self._project)

    @classmethod
    def usual_places(cls, home: Path, known: Mapping[str, str]) -> list[Path]:
        """Return claude-mem's folder."""
        return [Path(known.get("CLAUDE_MEM_DATA_DIR") or home / ".claude-mem")]

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open the database at one moment, leaving no trace."""
        with one_moment(self.path) as connection:
            yield self._reader(connection)

    def changing(self) -> AbstractContextManager[Writer]:
        """Refuse, with the reason and the setting."""
        instead = (
            f"{SETTING}=n in {self.path.parent / 'settings.json'}, or delete one by one with "
            "DELETE /api/observation/ID of claude-mem's own worker"
        )
        raise UnsafeDeletionError(
            f"memlab deletes nothing from {self.name}: claude-mem notes each deletion for its "
            "other devices and keeps vectors of its own, and SQL would go past both; nothing was "
            f"changed: load fewer by {instead}",
            instead=instead,
        )

    def row_of(self, record: bytes) -> dict[str, Any]:
        """Return a record's observation as the row that it was read as."""
        said = json.loads(record)
        return _row(said, loaded=said["place"]["loaded"])

    def check_record(self, key: Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that an observation can have a record."""
        check_canonical(record, said)
        _FIELDS(said)
        if said["id"] != key:
            raise ValueError(f"its id is {said['id']}")

    def cap_setting(self, keep: int) -> str:
        """Return claude-mem's own cap."""
        return f"{SETTING}={keep}"

    def cap_now(self) -> int:
        """Return how many observations a start loads at most today."""
        return start_of(self.path.parent).newest

    def instead(self, keep: int) -> list[str]:
        """Say what to do with a cap: where the setting is, or which project to ask about."""
        if self._project is None and len(projects := self.about().projects) > 1:
            counts = (
                f"{SETTING} counts the observations of one project, and these are of "
                f"{len(projects):,}: over all together the number is too large for each"
            )
            first = in_shell(self._name_of(projects[0].name))
            return [f"next: memlab size {first}", f"      {counts}"]
        start = start_of(self.path.parent)
        today = f"today {start.newest}, {start.said}; it counts at the next start"
        return [
            f'next: write "{SETTING}": "{keep}" into {start.file} ({today})',
            f"      {self.cap_setting(keep)}",
        ]

    def about(self) -> ObservationFacts:
        """Return what a start loads of each project, and what is not known of the file."""
        return read_database(
            self.path, lambda connection: self._reader(connection).facts(self.name)
        )

    def _reader(self, connection: sqlite3.Connection) -> "ObservationReader":
        check_columns(connection, _NEEDED, self.path, "claude-mem")
        return ObservationReader(connection, self._project, start_of(self.path.parent))

    def _name_of(self, project: str | None) -> str:
        options = f"?project={quote(project, safe='')}" if project else ""
        return f"{self.scheme}:{self.path}{options}"


class ObservationReader(TableReader):
    """Observations at one moment."""

    table = _TABLE
    read = (
        *("id", "project", "merged_into_project", "memory_session_id", "type", "title", "subtitle"),
        *("narrative", "facts", "text", "concepts", "created_at_epoch", "agent_id"),
        "generated_by_model",
    )

    def __init__(self, connection: sqlite3.Connection, project: str | None, start: Start) -> None:
        super().__init__(connection)
        self._project = project
        self._start = start
        merged = " OR merged_into_project = :project"
        self._of = f"(project = :project{merged if 'merged_into_project' in self.columns else ''})"
        self._loaded: dict[int, str] = {}

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield the observations in order of time, some at a time."""
        self._loaded = self._loaded_at_start()
        return super().batches(with_body=with_body, columns=columns)

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield whole rows of the observations that are there."""
        loaded = self._loaded_at_start()
        for some in portions(keys):
            found = {row["id"]: row for row in exact_rows(self.connection, _TABLE, "id", some)}
            for key in some:
                row = found.get(key, {})
                projects = (row.get("project"), row.get("merged_into_project"))
                if row and (self._project is None or self._project in projects):
                    yield key, with_place(encoded(row), {"loaded": key in loaded})

    def facts(self, name: str) -> ObservationFacts:
        """Return what is said of the database beside its frame."""
        loaded = list(self._loaded_at_start().values())
        counts = self._asked(
            f"SELECT project, count(*) FROM {_TABLE} WHERE :project IS NULL OR {self._of} "
            "GROUP BY project ORDER BY count(*) DESC, project"
        )
        version = None
        if "schema_versions" in self.tables:
            version = self._one("SELECT max(version) FROM schema_versions")
        return ObservationFacts(
            store=name,
            setting=f"{SETTING}={self._start.newest}, {self._start.said}",
            newest=self._start.newest,
            mode=self._start.mode,
            is_known_mode=self._start.types is not None,
            schema=version if isinstance(version, int) else None,
            known_schema=KNOWN_SCHEMA,
            projects=tuple(
                Project(str(project), count, loaded.count(str(project)))
                for project, count in counts
            ),
        )

    def _in_order(self) -> list[int]:
        """Return the ids in order of time; those of a millisecond in order of id."""
        found = self._asked(
            f"SELECT id, created_at_epoch FROM {_TABLE} WHERE :project IS NULL OR {self._of}"
        )
        return [key for _, key in sorted((_place(key, epoch), key) for key, epoch in found)]

    def _row(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        return _row(stored, loaded=stored["id"] in self._loaded)

    def _loaded_at_start(self) -> dict[int, str]:
        """Return the observations that a start of each project loads, and of which it is."""
        rule, values = self._start.condition(self.columns)
        query = (
            f"SELECT id FROM {_TABLE} WHERE {self._of} AND {rule} "
            "ORDER BY created_at_epoch DESC, id LIMIT :newest"
        )
        projects = [(self._project,)]
        if self._project is None:
            projects = self._asked(f"SELECT DISTINCT project FROM {_TABLE}")
        newest = {"newest": self._start.newest, **values}
        return {
            key: str(project)
            for (project,) in projects
            for (key,) in self._asked(query, project=project, **newest)
        }

    def _asked(self, query: str, **values: Any) -> list[Any]:
        return self.connection.execute(query, {"project": self._project, **values}).fetchall()


def _row(fields: Mapping[str, Any], *, loaded: bool) -> dict[str, Any]:
    """Return an observation as a row."""
    key, epoch = fields["id"], fields.get("created_at_epoch")
    title = text_of(fields.get("title"))
    told = [text_of(fields.get("subtitle")), text_of(fields.get("narrative"))]
    told += _strings(fields.get("facts"))
    body = "\n".join(part for part in told if part) or text_of(fields.get("text"))
    position = _place(key, epoch)
    at = moment_of_seconds(epoch / 1_000 if isinstance(epoch, int) else None)
    undated = (position, "created_at", f"created_at_epoch {epoch!r:.80} is no time")
    return {
        "position": position,
        "key": key,
        "memory_id": str(key),
        "kind": "episodic",
        "title": title,
        "body": body,
        "tags_json": _tags_json(text_of(fields.get("type")), text_of(fields.get("concepts"))),
        "authored_by": text_of(fields.get("generated_by_model")) or "claude-mem",
        "created_at": at,
        "confidence": 1.0,
        "namespace": text_of(fields.get("merged_into_project") or fields.get("project")) or None,
        "thread_id": text_of(fields.get("memory_session_id")) or None,
        "agent_id": text_of(fields.get("agent_id")) or None,
        "at_start": _line(key, at, title),
        "loaded_at_start": loaded,
        "faults": [undated] if at is None else [],
    }


def _line(key: int, at: datetime | None, title: str) -> str:
    """Return the line by which a start shows an observation: id, time, a sign for its type, title.

    The time is of the zone that it is shown in, which costs as much as any.
    """
    half = "am" if at is None or at.hour < 12 else "pm"
    shown = "" if at is None else f"{at.hour % 12 or 12}:{at.minute:02}{half}"
    return f"{key} {shown} * {title or 'Untitled'}\n"


@lru_cache(maxsize=4096)
def _tags_json(kind: str, concepts: str) -> str:
    """Return type and concepts as a JSON list; the same few come again and again."""
    tags = dict.fromkeys(filter(None, [kind, *_strings(concepts)]))
    return json.dumps(list(tags), ensure_ascii=False)


def _place(key: int, epoch: object) -> int:
    return place_of(epoch if isinstance(epoch, int) else 0, key)


def _strings(value: object) -> list[str]:
    """Return the texts of a JSON list; what is none is left out."""
    try:
        found = json.loads(text_of(value) or "[]")
    except (ValueError, RecursionError):
        return []
    texts = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return [each.encode("utf-8", "surrogatepass").decode(errors="replace") for each in texts]


def start_of(folder: Path, environment: Mapping[str, str] | None = None) -> Start:
    """Return what a start loads by the settings in a folder; the environment comes first."""
    variables = os.environ if environment is None else environment
    file = folder / _FILE
    written = _written(file)
    newest, said = _NEWEST, "its default"
    for values, where in ((written, f"in {_FILE}"), (variables, "in the environment")):
        number = str(values.get(SETTING, "")).strip()
        if number.isdecimal():
            newest, said = int(number), where
    mode = str(variables.get(_MODE) or written.get(_MODE) or "code")
    is_code = mode.partition("--")[0] == "code"
    lists = [
        _listed(str(variables.get(name) or written.get(name) or ""), known) if is_code else None
        for name, known in _OF_CODE.items()
    ]
    return Start(newest, said, file, mode, *lists)


def _written(file: Path) -> dict[str, Any]:
    """Return the settings of a file; those of older versions lie under ``env``."""
    try:
        with ordinary_file(file, most=_LARGEST) as opened:
            found = json.loads(opened.read(_LARGEST).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    older = found.get("env")
    return {**(older if isinstance(older, dict) else {}), **found}


def _listed(text: str, known: Collection[str]) -> Collection[str]:
    """Return those of a list that the mode knows; all of the mode's where it names none of them."""
    return [each for each in map(str.strip, text.split(",")) if each in known] or known
