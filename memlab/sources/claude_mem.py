"""claude-mem's observations: one SQLite file, of one project or of all. Read, and never changed.

At a start claude-mem loads the newest observations of a project whose type and concepts belong to
its mode, as many as ``CLAUDE_MEM_CONTEXT_OBSERVATIONS`` says: a cap already. All of them count for
it, decisions too, so that all are episodic here, and their type is a tag. A deletion by SQL would
go past its replication and leave its vectors, so memlab makes none.
"""

import json
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from memlab.errors import StoreError, UnsafeDeletionError
from memlab.sources.base import Facts, Key, Reader, Rows, Writer, place_of
from memlab.sources.claude_mem_facts import ObservationFacts, Project
from memlab.sources.claude_mem_settings import SETTING, Start, start_of
from memlab.sources.sqlite_rows import (
    AT_ONCE,
    check_columns,
    columns_of,
    exact_rows,
    name_of,
    named,
    one_moment,
    tables_in,
)
from memlab.store.archive_place import archive_path
from memlab.store.looking import again_if_changed
from memlab.store.records import encoded, with_place, without_place

TABLE: Final = "observations"
DATABASE: Final = "claude-mem.db"
KNOWN_SCHEMA: Final = 52
"""The newest ``schema_versions`` that this adapter was tried on."""

_NEEDED: Final = {
    TABLE: ("id", "memory_session_id", "project", "type", "title", "created_at_epoch"),
    "sdk_sessions": ("memory_session_id",),
}
_READ: Final = (
    *("id", "project", "merged_into_project", "memory_session_id", "type", "title", "subtitle"),
    *("narrative", "facts", "text", "concepts", "created_at_epoch", "agent_id"),
    "generated_by_model",
)


class ClaudeMem:
    """The observations of a claude-mem database.

    Parameters
    ----------
    where : str or Path
        ``~/.claude-mem/claude-mem.db`` or its folder; ``claude-mem:PATH?project=NAME`` for those of
        one project, which is what a start loads from and what the setting counts.
    """

    scheme: ClassVar[str] = "claude-mem"
    atomic: ClassVar[bool] = True
    recall_log: ClassVar[str | None] = "get_observations in Claude Code's transcripts"
    protected: frozenset[str] = frozenset()

    def __init__(self, where: str | PathLike[str]) -> None:
        given, options = named(where, self.scheme, ("project",))
        path = given / DATABASE if given.is_dir() else given
        self.path: Path = path.absolute()
        self._project = options.get("project")
        self.name: str = name_of(self.path, self.scheme, options)

    def __str__(self) -> str:
        return self.name

    @property
    def like(self) -> Path:
        """The file."""
        return self.path

    @property
    def archive(self) -> Path:
        """Where deleted memories would be kept; none are deleted."""
        return archive_path(self.path)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open the database at one moment, leaving no trace."""
        with one_moment(self.path) as connection:
            check_columns(connection, _NEEDED, str(self.path), "claude-mem")
            yield _Reader(connection, self._project, start_of(self.path.parent))

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Refuse, with the reason and the setting.

        Raises
        ------
        UnsafeDeletionError
            Always.
        """
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
        yield

    def rows_of(
        self, records: Iterable[tuple[Key, bytes]], *, with_body: bool = False
    ) -> Iterator[Rows]:
        """Yield records as the rows that they were read as."""
        from memlab.sources.tables import rows_of_each

        remaining = iter(records)
        while some := list(islice(remaining, AT_ONCE)):
            rows = [_kept(record) for _, record in some]
            yield rows_of_each(rows, with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return a record's id, kind and tags."""
        row = _kept(record)
        return Facts(row["memory_id"], row["kind"], row["tags_json"])

    def lasting(self, record: bytes) -> bytes:
        """Return a record as it is: use changes nothing of it."""
        return without_place(record)

    def make(
        self,
        path: Path,
        records: Iterable[tuple[Key, bytes]],  # noqa: ARG002 - as other sources do
    ) -> int:
        """Refuse: claude-mem's own migrations make its databases."""
        raise UnsafeDeletionError(
            f"memlab makes no database of claude-mem's, so nothing was written to {path}",
            instead="memlab.load(source).to_parquet(path)",
        )

    def cap_setting(self, keep: int) -> str:
        """Return claude-mem's own cap."""
        return f"{SETTING}={keep}"

    def cap_now(self) -> int:
        """Return how many observations a start loads at most today."""
        return start_of(self.path.parent).newest

    def instead(self, keep: int) -> list[str]:
        """Say what to do with a cap: where the setting is, or which project to ask about."""
        if self._project is None and len(projects := self._projects()) > 1:
            first = name_of(self.path, self.scheme, {"project": projects[0]})
            counts = (
                f"{SETTING} counts the observations of one project, and these are of "
                f"{len(projects):,}: over all together the number is too large for each"
            )
            return [f"next: memlab size {shlex.quote(first)}", f"      {counts}"]
        start = start_of(self.path.parent)
        today = f"today {start.newest}, {start.said}; it counts at the next start"
        return [
            f'next: write "{SETTING}": "{keep}" into {start.file} ({today})',
            f"      {self.cap_setting(keep)}",
        ]

    def about(self) -> ObservationFacts:
        """Return what a start loads of each project, and what is not known of the file."""

        def look() -> ObservationFacts:
            with one_moment(self.path) as connection:
                check_columns(connection, _NEEDED, str(self.path), "claude-mem")
                reader = _Reader(connection, self._project, start_of(self.path.parent))
                return reader.facts(self.name)

        return again_if_changed(look)

    def _projects(self) -> list[str]:
        return [project.name for project in self.about().projects]


class _Reader:
    """Observations at one moment."""

    def __init__(self, connection: sqlite3.Connection, project: str | None, start: Start) -> None:
        self._connection = connection
        self._project = project
        self._start = start
        self._columns = columns_of(connection, TABLE)
        self._of = (
            "(project = :project OR merged_into_project = :project)"
            if "merged_into_project" in self._columns
            else "project = :project"
        )

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield the observations in order of time, some at a time."""
        from memlab.sources.tables import rows_of_each

        if unknown := [name for name in columns if name not in self._columns]:
            raise StoreError(
                f"{TABLE} has no column {', '.join(unknown)}; it has {', '.join(self._columns)}"
            )
        known = [name for name in _READ if name in self._columns]
        asked = [*known, *(name for name in columns if name not in known)]
        loaded = self._loaded()
        remaining = iter(self._in_order())
        while some := list(islice(remaining, AT_ONCE)):
            found = {row["id"]: row for row in self._rows_at(some, asked)}
            rows = [_row(found[key], loaded=key in loaded) for key in some]
            others = {name: [found[key][name] for key in some] for name in columns}
            yield rows_of_each(rows, with_body=with_body, others=others)

    def records(self, keys: Iterable[Key]) -> Iterator[tuple[Key, bytes]]:
        """Yield whole rows of the observations that are there."""
        loaded = self._loaded()
        remaining = iter(keys)
        while some := list(islice(remaining, AT_ONCE)):
            found = {row["id"]: row for row in exact_rows(self._connection, TABLE, "id", some)}
            for key in some:
                if self._is_asked(found, key):
                    yield key, with_place(encoded(found[key]), {"loaded": key in loaded})

    def facts(self, name: str) -> ObservationFacts:
        """Return what is said of the database beside its frame."""
        loaded = self._loaded()
        counts = self._connection.execute(
            f"SELECT project, count(*) FROM {TABLE} WHERE :project IS NULL OR {self._of} "
            "GROUP BY project ORDER BY count(*) DESC, project",
            {"project": self._project},
        ).fetchall()
        projects = {str(project): count for project, count in counts}
        shown = [
            Project(project, count, sum(1 for of in loaded.values() if of == project))
            for project, count in projects.items()
        ]
        return ObservationFacts(
            store=name,
            setting=f"{SETTING}={self._start.newest}, {self._start.said}",
            newest=self._start.newest,
            mode=self._start.mode,
            is_known_mode=self._start.types is not None,
            schema=self._schema(),
            known_schema=KNOWN_SCHEMA,
            projects=tuple(shown),
        )

    def _schema(self) -> int | None:
        if "schema_versions" not in tables_in(self._connection):
            return None
        (version,) = self._connection.execute("SELECT max(version) FROM schema_versions").fetchone()
        return version if isinstance(version, int) else None

    def _is_asked(self, found: Mapping[Key, Any], key: Key) -> bool:
        if key not in found:
            return False
        row = found[key]
        return self._project is None or self._project in (
            row["project"],
            row.get("merged_into_project"),
        )

    def _in_order(self) -> list[int]:
        """Return the ids in order of time; those of a millisecond in order of id."""
        found = self._connection.execute(
            f"SELECT id, created_at_epoch FROM {TABLE} WHERE :project IS NULL OR {self._of}",
            {"project": self._project},
        )
        places = [(_position(key, epoch), key) for key, epoch in found]
        return [key for _, key in sorted(places)]

    def _rows_at(self, keys: Sequence[int], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        chosen = ", ".join(f'"{name}"' for name in columns)
        found = self._connection.execute(
            f"SELECT {chosen} FROM {TABLE} WHERE id IN ({', '.join('?' * len(keys))})", keys
        )
        return (dict(zip(columns, row, strict=True)) for row in found)

    def _loaded(self) -> dict[int, str]:
        """Return the observations that a start of each project loads, and of which it is."""
        if self._project is not None:
            projects = [self._project]
        else:
            found = self._connection.execute(f"SELECT DISTINCT project FROM {TABLE}")
            projects = [project for (project,) in found.fetchall()]
        return {key: project for project in projects for key in self._newest(project)}

    def _newest(self, project: str) -> list[int]:
        rule, values = self._start.condition(self._columns)
        found = self._connection.execute(
            f"SELECT id FROM {TABLE} WHERE {self._of} AND {rule} "
            "ORDER BY created_at_epoch DESC, id LIMIT :newest",
            {"project": project, "newest": self._start.newest, **values},
        )
        return [key for (key,) in found]


def _kept(record: bytes) -> dict[str, Any]:
    """Return a record's observation as the row that it was read as."""
    fields = json.loads(record)
    return _row(fields, loaded=fields["place"]["loaded"])


def _row(fields: Mapping[str, Any], *, loaded: bool) -> dict[str, Any]:
    """Return an observation as a row."""
    key, epoch = fields["id"], fields.get("created_at_epoch")
    title = _text(fields.get("title"))
    told = [_text(fields.get("subtitle")), _text(fields.get("narrative"))]
    told += _strings(fields.get("facts"))
    body = "\n".join(part for part in told if part) or _text(fields.get("text"))
    position, at = _position(key, epoch), _moment(epoch)
    return {
        "position": position,
        "key": key,
        "memory_id": str(key),
        "kind": "episodic",
        "title": title,
        "body": body,
        "tags_json": _tags_json(_text(fields.get("type")), _text(fields.get("concepts"))),
        "authored_by": _text(fields.get("generated_by_model")) or "claude-mem",
        "created_at": at,
        "confidence": 1.0,
        "namespace": _text(fields.get("merged_into_project") or fields.get("project")) or None,
        "thread_id": _text(fields.get("memory_session_id")) or None,
        "agent_id": _text(fields.get("agent_id")) or None,
        "at_start": _line(key, at, title),
        "loaded_at_start": loaded,
        "faults": ()
        if at is not None
        else ((position, "created_at", f"created_at_epoch {epoch!r:.80} is no time"),),
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


def _position(key: int, epoch: object) -> int:
    return place_of(epoch if isinstance(epoch, int) else 0, key)


def _moment(epoch: object) -> datetime | None:
    if not isinstance(epoch, int):
        return None
    try:
        return datetime.fromtimestamp(epoch / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _text(value: object) -> str:
    """Return what a column of text holds, whatever is in it."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bytes() | bytearray():
            return value.decode(errors="replace")
        case {"text": str(digits)} | {"blob": str(digits)}:
            return bytes.fromhex(digits).decode(errors="replace")
    return str(value)


def _strings(value: object) -> list[str]:
    """Return the texts of a JSON list; what is none is left out."""
    try:
        found = json.loads(_text(value) or "[]")
    except (ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
