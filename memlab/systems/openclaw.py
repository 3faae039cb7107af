"""OpenClaw's workspace: ``MEMORY.md``, load-bearing, and daily notes; reads are logged hits."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memlab.clock import today
from memlab.errors import StoreError
from memlab.files import read_end
from memlab.sources import reads
from memlab.sources.base import Search, Trouble
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import Found as FoundNote
from memlab.sources.folder.source import NotesSource, known_since, note_of
from memlab.sources.reads import Asked, Found, LineReader, Read
from memlab.sources.recognition import Evidence, Strength, files_below, spellings
from memlab.text import counted

INDEX: Final = "MEMORY.md"
NOTES: Final = "memory"
SKIPPED: Final = "memory.recall.skipped"
"""The event of a search for hits on notes without a date in their name, since June 2026."""
_HOW: Final = {"memory.recall.recorded": "recall", SKIPPED: "skipped recall"}

SWEEPS: Final = "recalls by background sweeps"
AGAIN: Final = "further hits on a note on the same day"
OTHER_EVENTS: Final = "events of recalls of another kind"
WITHOUT_TIME: Final = "recalls without a time"
NO_NOTE: Final = "hits on MEMORY.md, which every start loads, and on what is no note"
_SWEEP: Final = "__dreaming"
"""How the searches of background sweeps begin."""

_MOST: Final = 20_000
"""Characters of a file that a start loads unless it is set otherwise; 12,000 in some versions."""
_LONG_TERM: Final = (INDEX, "SOUL.md")
"""Beside one of these, daily notes are an agent's."""
_AGENTS_FILES: Final = (
    "AGENTS.md",
    "SOUL.md",
    "TOOLS.md",
    "USER.md",
    "IDENTITY.md",
    "HEARTBEAT.md",
)
"""Files that a workspace begins with; beside MEMORY.md two of them are evidence."""
_NOT_NOTES: Final = ("dreaming", "events")
"""Folders of the notes' folder that hold reports of sweeps and logs."""
_ENOUGH: Final = 2
_STATE: Final = ".openclaw"
_WORKSPACE: Final = "workspace"
_DREAMS: Final = ".dreams"
_LOGS: Final = (f"{NOTES}/{_DREAMS}/events.jsonl", f"{NOTES}/events/*/memory-host-events.jsonl")
_DATED: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(-.*)?\.md", re.DOTALL)
_DAY: Final = timedelta(days=1)


def logs_of(workspace: Path) -> list[Path]:
    """Return the recall events of a workspace."""
    return sorted(log for name in _LOGS for log in workspace.glob(name))


def _day_of(name: str) -> date | None:
    dated = _DATED.fullmatch(name.rpartition("/")[2])
    with suppress(ValueError):
        return date.fromisoformat(dated[1]) if dated else None
    return None


def _is_workspace_of_state(folder: Path) -> bool:
    """Whether a folder is a workspace of ``.openclaw``, or of the folder in its stead."""
    named = os.environ.get("OPENCLAW_STATE_DIR", "")
    states = spellings(Path(named).expanduser()) if named else []
    return any(
        path.name.partition("-")[0] == _WORKSPACE
        and any(parent.name == _STATE or parent in states for parent in path.parents)
        for path in spellings(folder)
    )


def _has_recall_state(folder: Path) -> bool:
    return (folder / NOTES / _DREAMS).is_dir() or bool(logs_of(folder))


def _has_daily_notes(folder: Path) -> bool:
    if not any((folder / name).is_file() for name in _LONG_TERM):
        return False
    try:
        next((folder / NOTES).iterdir(), None)
    except PermissionError:  # reading it says what is wrong
        return True
    except OSError:
        return False
    return any(map(_day_of, files_below(folder / NOTES, _NOT_NOTES)))


def _has_agents_files(folder: Path) -> bool:
    if not (folder / INDEX).is_file():
        return False
    return sum((folder / name).is_file() for name in _AGENTS_FILES) >= _ENOUGH


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
    """The notes of a workspace."""

    scheme = "openclaw"
    default_locations = ("OPENCLAW_STATE_DIR", _STATE)
    evidence = EVIDENCE

    @staticmethod
    def enters(name: str) -> bool:
        """Whether notes may lie in a folder."""
        first, *below = name.split("/")
        is_hidden = any(part.startswith(".") for part in below)
        return first == NOTES and not is_hidden and "".join(below[:1]) not in _NOT_NOTES

    @staticmethod
    def folder_in(path: Path) -> Path:
        """Return the workspace, where its folder of notes was named, too."""
        return path.parent if path.name == NOTES and not (path / NOTES).exists() else path

    def memories(self, moment: FolderMoment) -> list[FoundNote]:
        """Return the notes, and ``MEMORY.md`` as old as the oldest: its own time is the last's."""
        if NOTES in moment.listing.others:
            raise StoreError(
                f"{self.path / NOTES} is no folder, and memlab follows no link in a workspace: "
                "name the workspace that the notes lie in"
            )
        now = today()
        records_all = self._records_all()
        found = []
        born = []
        committed = self.born(moment)
        for name in filter(self.is_note, moment.names):
            day = _day_of(name)
            written = known_since(moment, name, committed)
            at = written if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
            born.append(written if at - written > _DAY else at)  # a day to come is no birth
            loaded = day is not None and now - _DAY <= day <= now
            judged = day is not None or records_all
            found.append(note_of(name, born[-1], loaded=loaded, judged=judged))
        if INDEX in moment.names:
            oldest = min([known_since(moment, INDEX, committed), *born])
            found.append(note_of(INDEX, oldest, loaded=True, judged=False))
        return found

    def at_start(self, name: str, text: str) -> str | None:
        """Return what a start loads because of a file: all of a note."""
        return text[:_MOST] if name == INDEX else None

    def facts(self, moment: FolderMoment) -> dict[str, str]:
        """Return what is loaded, and what of the notes cannot be judged."""
        now = today()
        found = {}
        notes = [each for each in self.memories(moment) if each.name != INDEX]
        if INDEX in moment.listing.others:
            found[INDEX] = "not read, for it is a link or no file"
        if INDEX in moment.names:
            length = _length_of_index(moment)
            found[INDEX] = f"{min(length, _MOST):,} of its {length:,} characters are loaded"
        loaded = counted(sum(each.place["loaded"] for each in notes), "notes")
        found["loaded"] = f"{loaded} of {now - _DAY} and {now}, today by this machine's clock"
        if undated := sum(_day_of(each.name) is None for each in notes):
            what = "judged like the others, for OpenClaw records hits on them"
            if not self._records_all():
                what = f"kept, for no hit on them is recorded: there is no {SKIPPED}"
            found["undated"] = f"{counted(undated, 'notes')} without a date in the name, {what}"
        return found | super().facts(moment)

    def diagnostics(self) -> list[Trouble]:
        """Return how much of ``MEMORY.md`` a start leaves out."""
        cut = max(self.seen(_length_of_index) - _MOST, 0)
        words = f"{cut:,} characters of {INDEX} stand below what is loaded" if cut else ""
        whole = f"{INDEX} is shorter than the {_MOST:,} characters that a start loads"
        advice = f"shorten {INDEX}, or move what is below into notes, which are searched"
        return [Trouble("index_cut", int(cut > 0), words or whole, advice, cut)]

    def without_reads(self) -> str:
        """Say where OpenClaw writes down what was read."""
        return f"{self.path / _LOGS[0]} is not there: OpenClaw has recorded no search here yet"

    def searches(self) -> Iterator[Search]:
        """Yield what agents searched for, without background sweeps."""
        for event in _events(LineReader(logs_of(self.path))):
            at = reads.moment(event.get("timestamp"))
            words = reads.text(event.get("query"))
            if words and at is not None and not words.startswith(_SWEEP):
                yield Search(at, words)

    def _records_all(self) -> bool:
        """Whether hits on notes without a date are recorded, by the end of the recall events."""
        return any(SKIPPED.encode() in read_end(log, 2**22) for log in logs_of(self.path))


def _length_of_index(moment: FolderMoment) -> int:
    return len(moment.read(INDEX).data.decode(errors="replace")) if INDEX in moment.names else 0


def recognises(asked: Asked) -> bool:
    """Whether the source is a workspace, even before its first log."""
    return OpenClaw.recognise(asked.path, {}) is not None


def find(asked: Asked) -> Found:
    """Return what was recalled."""
    workspace = OpenClaw(asked.path)
    found = Found(store=workspace.name)
    lines = LineReader(logs_of(workspace.path), asked.progress, found)
    kept: dict[str, Read] = {}
    kinds = set()
    for event in _events(lines):
        kinds.add(reads.text(event.get("type")))
        for read in _reads(event, found):
            found.left_out[AGAIN] += read.id in kept
            kept.setdefault(read.id, read)
    found.reads = list(kept.values())
    found.notes.append(
        "OpenClaw 2026.4.24 did not record searches by agents, and no version records memory_get: "
        "there were more reads than these"
    )
    if SKIPPED not in kinds:
        found.notes.append(
            f"there is no {SKIPPED}, so hits on notes without a date in their name are not "
            "recorded: memlab keeps those notes"
        )
    return found


def _events(lines: LineReader) -> Iterator[dict[str, Any]]:
    for file in lines.files:
        yield from lines.objects(file, lambda line: b"memory.recall." in line)


def _reads(event: dict[str, Any], found: Found) -> Iterator[Read]:
    how = _HOW.get(reads.text(event.get("type")))
    if how is None:
        found.left_out[OTHER_EVENTS] += 1
        return
    if reads.text(event.get("query")).startswith(_SWEEP):
        found.left_out[SWEEPS] += 1
        return
    at = reads.moment(event.get("timestamp"), found)
    if at is None:
        found.left_out[WITHOUT_TIME] += 1
        return
    results = map(reads.mapping, reads.sequence(event.get("results")))
    paths = [reads.text(result.get("path")) for result in results]
    for path in dict.fromkeys(each.replace("\\", "/").removeprefix("./") for each in paths):
        if OpenClaw.is_note(path):
            yield Read(path, at, f"openclaw:{at:%Y-%m-%d}:{path}", how)
        else:
            found.left_out[NO_NOTE] += 1
