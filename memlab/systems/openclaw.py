"""OpenClaw's workspace: ``MEMORY.md``, which is load-bearing, and daily notes.

Reads are the search hits that OpenClaw logs.
"""

import os
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memlab.clock import today
from memlab.errors import StoreError
from memlab.files import read_end
from memlab.sources import reads
from memlab.sources.base import Diagnostic
from memlab.sources.capabilities import RecordedSearch, SearchLog
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import FolderMemory, NotesSource, creation_time_of, note_of
from memlab.sources.reads import HarvestRequest, HarvestResult, LineReader, Read
from memlab.sources.recognition import Evidence, Strength, files_below, spellings
from memlab.text import counted

INDEX: Final = "MEMORY.md"
NOTES: Final = "memory"
SKIPPED: Final = "memory.recall.skipped"
"""Event for hits on notes without a date in their name, since June 2026."""
_READ_KIND: Final = {"memory.recall.recorded": "recall", SKIPPED: "skipped recall"}
"""The kind of a read by the type of its event."""

# Reasons for which a harvest leaves events and hits out; keys of HarvestResult.left_out.
SWEEPS: Final = "recalls by background sweeps"
AGAIN: Final = "further hits on a note on the same day"
OTHER_EVENTS: Final = "events of recalls of another kind"
WITHOUT_TIME: Final = "recalls without a time"
NO_NOTE: Final = "hits on MEMORY.md, which every start loads, and on files that are not notes"
_SWEEP: Final = "__dreaming"
"""Prefix of the queries of background sweeps."""

_MAX_LOADED_CHARS: Final = 20_000
"""Maximum number of characters of a file that a start loads by default; 12,000 in some versions."""
_LONG_TERM: Final = (INDEX, "SOUL.md")
"""A folder with daily notes is recognised as a workspace only if it has one of these files."""
_AGENTS_FILES: Final = (
    "AGENTS.md",
    "SOUL.md",
    "TOOLS.md",
    "USER.md",
    "IDENTITY.md",
    "HEARTBEAT.md",
)
"""Files that OpenClaw creates in a new workspace."""
_NOT_NOTES: Final = ("dreaming", "events")
"""Subfolders of the notes' folder that hold reports of sweeps and logs."""
_LEAST_AGENTS_FILES: Final = 2
"""Minimum number of `_AGENTS_FILES` that are evidence, together with ``MEMORY.md``."""
_STATE: Final = ".openclaw"
_WORKSPACE: Final = "workspace"
_DREAMS: Final = ".dreams"
_LOGS: Final = (f"{NOTES}/{_DREAMS}/events.jsonl", f"{NOTES}/events/*/memory-host-events.jsonl")
_DATED: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(-.*)?\.md", re.DOTALL)
"""File name of a dated note, such as ``2026-03-01.md`` or ``2026-03-01-slug.md``."""
_DAY: Final = timedelta(days=1)
_SEARCHED_BYTES: Final = 2**22
"""Number of bytes at the end of a log that are searched for a type of event."""


def logs_of(workspace: Path) -> list[Path]:
    """Return the logs of recall events of a workspace."""
    logs: list[Path] = []
    for pattern in _LOGS:
        logs += workspace.glob(pattern)
    return sorted(logs)


def _day_of(name: str) -> date | None:
    """Return the date in the name of a note; None for an undated note."""
    dated = _DATED.fullmatch(name.rpartition("/")[2])
    if dated is None:
        return None
    try:
        return date.fromisoformat(dated[1])
    except ValueError:
        return None


def _is_workspace_of_state(folder: Path) -> bool:
    """Return whether a folder is a workspace in ``.openclaw`` or in ``OPENCLAW_STATE_DIR``."""
    state = os.environ.get("OPENCLAW_STATE_DIR", "")
    states = spellings(Path(state).expanduser()) if state else []
    for path in spellings(folder):
        is_workspace = path.name.partition("-")[0] == _WORKSPACE
        is_in_state = any(parent.name == _STATE or parent in states for parent in path.parents)
        if is_workspace and is_in_state:
            return True
    return False


def _has_recall_state(folder: Path) -> bool:
    """Return whether a folder has the state or the logs of searches."""
    return (folder / NOTES / _DREAMS).is_dir() or bool(logs_of(folder))


def _has_daily_notes(folder: Path) -> bool:
    """Return whether a folder has a long-term file and dated notes."""
    if not any((folder / name).is_file() for name in _LONG_TERM):
        return False
    try:
        with os.scandir(folder / NOTES):  # raises an error if the folder cannot be read
            pass
    except PermissionError:  # the error is reported when the folder is read
        return True
    except OSError:
        return False
    return any(_day_of(name) is not None for name in files_below(folder / NOTES, _NOT_NOTES))


def _has_agents_files(folder: Path) -> bool:
    """Return whether a folder has ``MEMORY.md`` and enough of the files of a new workspace."""
    if not (folder / INDEX).is_file():
        return False
    return sum((folder / name).is_file() for name in _AGENTS_FILES) >= _LEAST_AGENTS_FILES


EVIDENCE: Final = (
    Evidence(
        Strength.PLACE,
        "is workspace or workspace-NAME in a folder .openclaw, or in that of OPENCLAW_STATE_DIR",
        _is_workspace_of_state,
    ),
    Evidence(
        Strength.TRACE,
        "has memory/.dreams, or logs of recalls in memory/events",
        _has_recall_state,
    ),
    Evidence(
        Strength.CONTENT,
        "has MEMORY.md or SOUL.md, and notes in memory or below whose names begin with a day",
        _has_daily_notes,
    ),
    Evidence(
        Strength.CONTENT,
        f"has MEMORY.md and two of {', '.join(_AGENTS_FILES)}",
        _has_agents_files,
    ),
)


class OpenClaw(NotesSource):
    """The notes and ``MEMORY.md`` of a workspace."""

    scheme = "openclaw"
    default_locations = ("OPENCLAW_STATE_DIR", _STATE)
    evidence = EVIDENCE

    @staticmethod
    def may_include(name: str) -> bool:
        """Return whether a subfolder may hold notes."""
        first, *subfolders = name.split("/")
        if first != NOTES or any(part.startswith(".") for part in subfolders):
            return False
        return not subfolders or subfolders[0] not in _NOT_NOTES

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the workspace of a path, which may be its folder of notes."""
        if path.name == NOTES and not (path / NOTES).exists():
            return path.parent
        return path

    def memories(self, moment: FolderMoment) -> list[FolderMemory]:
        """Return the notes and ``MEMORY.md``.

        The time of ``MEMORY.md`` is that of the oldest note, because its own is that of its last
        edit.
        """
        if NOTES in moment.listing.others:
            raise StoreError(
                f"{self.path / NOTES} is not a folder, and memlab follows no link in a workspace: "
                "name the workspace that the notes lie in"
            )
        now = today()
        logs_all_hits = self._logs_all_hits()
        first_commits = self.first_commits(moment)
        creation_times = []
        notes = []
        for name in filter(self.is_note, moment.names):
            day = _day_of(name)
            created_at = creation_time_of(moment, name, first_commits)
            if day is not None:
                # The date in the name counts, unless the file is more than a day older.
                midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
                if midnight - created_at <= _DAY:
                    created_at = midnight
            creation_times.append(created_at)
            loaded = day is not None and now - _DAY <= day <= now
            prunable = day is not None or logs_all_hits  # else it would seem unused
            notes.append(note_of(name, created_at, loaded=loaded, prunable=prunable))
        if INDEX in moment.names:
            oldest = min([creation_time_of(moment, INDEX, first_commits), *creation_times])
            notes.append(note_of(INDEX, oldest, loaded=True, prunable=False))
        return notes

    def at_start(self, name: str, text: str) -> str | None:
        """Return the loaded part of ``MEMORY.md``; None for a note, which is loaded whole."""
        return text[:_MAX_LOADED_CHARS] if name == INDEX else None

    def facts(self, moment: FolderMoment) -> dict[str, str]:
        """Return facts for the page: the loaded part, and the treatment of undated notes."""
        now = today()
        facts = {}
        notes = [note for note in self.memories(moment) if note.name != INDEX]
        if INDEX in moment.listing.others:
            facts[INDEX] = "not read, because it is a link or not a file"
        if INDEX in moment.names:
            length = _length_of_index(moment)
            facts[INDEX] = (
                f"{min(length, _MAX_LOADED_CHARS):,} of its {length:,} characters are loaded"
            )
        loaded = counted(sum(note.place["loaded"] for note in notes), "notes")
        facts["loaded"] = f"{loaded} of {now - _DAY} and {now}, today by this machine's clock"
        undated = sum(_day_of(note.name) is None for note in notes)
        if undated:
            treatment = "judged like the others, because OpenClaw records hits on them"
            if not self._logs_all_hits():
                treatment = f"kept, because no hit on them is recorded: there is no {SKIPPED}"
            undated_notes = counted(undated, "notes")
            facts["undated"] = f"{undated_notes} without a date in the name, {treatment}"
        return facts | super().facts(moment)

    def diagnostics(self) -> list[Diagnostic]:
        """Return the diagnostic of the part of ``MEMORY.md`` that a start does not load."""
        length = self.read_moment(_length_of_index)
        cut = max(length - _MAX_LOADED_CHARS, 0)
        summary = f"{INDEX} is shorter than the {_MAX_LOADED_CHARS:,} characters that a start loads"
        if cut:
            summary = f"{cut:,} characters of {INDEX} are below the part that is loaded"
        advice = f"shorten {INDEX}, or move what is below into notes, which are searched"
        return [
            Diagnostic(
                name="index_cut",
                occurrences=int(cut > 0),
                summary=summary,
                advice=advice,
                chars_cut=cut,
            )
        ]

    def no_reads_message(self) -> str:
        """Return the message for a workspace without a log of searches."""
        return f"{self.path / _LOGS[0]} is not there: OpenClaw has recorded no search here yet"

    @property
    def search_log(self) -> "EventLog":
        """The logged searches."""
        return EventLog(self.path)

    def _logs_all_hits(self) -> bool:
        """Return whether the end of a log has events for hits on undated notes."""
        return any(SKIPPED.encode() in read_end(log, _SEARCHED_BYTES) for log in logs_of(self.path))


class EventLog(SearchLog):
    """The searches in the logs of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace

    def searches(self) -> Iterator[RecordedSearch]:
        """Yield the searches of agents, without those of background sweeps."""
        for event in _events(LineReader(logs_of(self.workspace))):
            at = reads.moment(event.get("timestamp"))
            query = reads.text(event.get("query"))
            if query and at is not None and not query.startswith(_SWEEP):
                yield RecordedSearch(at, query)


def _length_of_index(moment: FolderMoment) -> int:
    """Return the number of characters of ``MEMORY.md``; 0 without the file."""
    if INDEX not in moment.names:
        return 0
    return len(moment.read(INDEX).data.decode(errors="replace"))


def recognises(request: HarvestRequest) -> bool:
    """Return whether the source is a workspace, which need not have a log yet."""
    return OpenClaw.recognise(request.path, {}) is not None


def find(request: HarvestRequest) -> HarvestResult:
    """Return the logged search hits as reads."""
    workspace = OpenClaw(request.path)
    result = HarvestResult(store=workspace.name)
    lines = LineReader(logs_of(workspace.path), request.progress, result)
    read_by_id: dict[str, Read] = {}
    event_types = set()
    for event in _events(lines):
        event_types.add(reads.text(event.get("type")))
        for read in _reads(event, result):
            if read.id in read_by_id:
                result.left_out[AGAIN] += 1
            else:
                read_by_id[read.id] = read
    result.reads = list(read_by_id.values())
    result.notes.append(
        "OpenClaw 2026.4.24 did not record searches by agents, and no version records memory_get: "
        "there were more reads than these"
    )
    if SKIPPED not in event_types:
        result.notes.append(
            f"there is no {SKIPPED}, so hits on notes without a date in their name are not "
            "recorded: memlab keeps those notes"
        )
    return result


def _events(lines: LineReader) -> Iterator[dict[str, Any]]:
    """Yield the recall events in logs."""
    for file in lines.files:
        yield from lines.objects(file, lambda line: b"memory.recall." in line)


def _reads(event: dict[str, Any], result: HarvestResult) -> Iterator[Read]:
    """Yield the reads of an event; count the hits that are left out."""
    kind = _READ_KIND.get(reads.text(event.get("type")))
    if kind is None:
        result.left_out[OTHER_EVENTS] += 1
        return
    if reads.text(event.get("query")).startswith(_SWEEP):
        result.left_out[SWEEPS] += 1
        return
    at = reads.moment(event.get("timestamp"), result)
    if at is None:
        result.left_out[WITHOUT_TIME] += 1
        return
    hits = map(reads.mapping, reads.sequence(event.get("results")))
    paths = [reads.text(hit.get("path")) for hit in hits]
    normalized = [path.replace("\\", "/").removeprefix("./") for path in paths]
    for path in dict.fromkeys(normalized):
        if OpenClaw.is_note(path):
            read_id = f"openclaw:{at:%Y-%m-%d}:{path}"
            yield Read(memory_id=path, at=at, id=read_id, tool=kind)
        else:
            result.left_out[NO_NOTE] += 1
