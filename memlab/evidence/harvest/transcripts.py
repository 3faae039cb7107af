"""Claude Code's transcripts: calls of tools that concern memories, each once, with its session.

Resumed, branched, compacted and backgrounded sessions repeat lines of the session they come from,
in other files and sometimes under another session's id. A call is therefore known by its own id,
and belongs to the session that made it first.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from re import IGNORECASE, MULTILINE
from re import compile as pattern
from typing import Any, Final, NamedTuple, Protocol

from memlab.errors import MemlabError
from memlab.evidence.harvest.found import Asked, Found, Progress, moment, unheard
from memlab.evidence.harvest.lines import LineReader, mapping, sequence, text

FAILED: Final = "calls that failed"
UNCHANGED: Final = "calls answered by a note that the file is unchanged"
INTERRUPTED: Final = "calls that were interrupted"
NOTHING_FOUND: Final = "searches that found nothing"
WITHOUT_RESULT: Final = "calls without a result"
WITHOUT_TIME: Final = "calls without a time"
COPIES: Final = "copies of a read that is counted"

_SUCCESS: Final = ""
_SHELL: Final = "Bash"
_RESULT_OF: Final = pattern(rb'"tool_use_id"\s*:\s*"([^"\\]+)"')
_UNCHANGED: Final = pattern(r"(wasted call\W+)?file unchanged since", IGNORECASE)
_NOT_THERE: Final = pattern(
    r"""^\w+: (?:[^\n]*[/ '"])?([^/\n'"]+?)['"]?: No such file""", MULTILINE
)
_A_DAY: Final = 86_400.0
_DEEPEST: Final = 12


class Touch(NamedTuple):
    """What one call does with one memory.

    Attributes
    ----------
    call : str
        The call's own id, the same in every copy.
    memory_id : str
        The memory.
    how : str
        The tool.
    writes : bool
        Whether it changes the memory.
    place : str
        What else tells memories apart: the folder as the transcript names it.
    needs_result : bool
        Whether the call counts only when its result is a success.
    """

    call: str
    memory_id: str
    how: str
    writes: bool = False
    place: str = ""
    needs_result: bool = True


class Seen(NamedTuple):
    """A touch that happened."""

    touch: Touch
    at: datetime
    session: str


class Look(Protocol):
    """What a harvest looks for in transcripts."""

    def concerns(self, line: bytes) -> bool:
        """Whether a line may hold a call that matters; cheap, for every line is asked about."""

    def touches(self, line: dict[str, Any]) -> Iterator[Touch]:
        """Yield what a line's calls do with memories."""


class _Sighting(NamedTuple):
    """One copy of a call: the file, the session the line names, the one it was copied from."""

    file: Path
    session: str
    forked_from: str


@dataclass
class _Call:
    touch: Touch
    at: datetime | None
    sightings: list[_Sighting] = field(default_factory=list)


def projects_folder(asked: Asked, *, beside: Path | None = None) -> Path:
    """Return the folder in which to look for transcripts.

    Parameters
    ----------
    asked : Asked
        May name it.
    beside : Path, optional
        Where it lies by the layout of the source, if it is there.

    Raises
    ------
    MemlabError
        When there is none.
    """
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    candidates = [beside, home] if asked.transcripts is None else [asked.transcripts]
    for folder in candidates:
        if folder is not None and folder.is_dir():
            return folder
    raise MemlabError(
        f"there are no transcripts in {asked.transcripts or home}; name the folder they lie in "
        "with --transcripts, such as ~/.claude/projects"
    )


def transcript_files(root: Path) -> list[Path]:
    """Return every transcript below a folder of projects, or below one project's.

    Sessions lie in a project's folder, those of their agents in ``<session>/subagents``.
    """
    found: list[Path] = []
    seen = set()
    for folder, inner, names in os.walk(root, followlinks=True):
        where = Path(folder)
        parts = where.relative_to(root).parts
        known = where.stat()
        if (known.st_dev, known.st_ino) in seen or len(parts) > _DEEPEST:
            inner.clear()
            continue
        seen.add((known.st_dev, known.st_ino))
        of_agents = "subagents" in parts
        for name in names:
            wanted = name.startswith("agent-") if of_agents else len(parts) < 2
            if wanted and name.endswith(".jsonl") and name != "journal.jsonl":
                found.append(where / name)
    return found


def seen_in(root: Path, look: Look, found: Found, progress: Progress) -> list[Seen]:
    """Read all transcripts below a folder and return what happened, in order of time.

    Parameters
    ----------
    root : Path
        A folder of projects.
    look : Look
        What to look for.
    found : Found
        Where to count files, bytes and what is left out.
    progress : callable
        Is told how many bytes were read.
    """
    lines = LineReader(transcript_files(root), progress, found.left_out)
    scan = _Scan(look, found)
    for file in lines.files:
        for line in lines.objects(file, scan.wants):
            scan.take(file, line)
    if scan.waits:  # a copy may begin in between: with a result whose call stands in a later file
        again = LineReader(lines.files, unheard, Counter())
        for file in again.files:
            for line in again.objects(file, scan.answers):
                scan.take_results(line)
    found.files, found.bytes = len(lines.files), lines.total
    return sorted(scan.happened(), key=lambda one: one.at)


class _Scan:
    """Goes through transcripts line by line."""

    def __init__(self, look: Look, found: Found) -> None:
        self._look = look
        self._found = found
        self._calls: dict[tuple[str, str, bool, str], _Call] = {}
        self._outcomes: dict[str, str] = {}
        self._missing: dict[str, set[str]] = {}
        """By call: the files that a shell did not find, by their names."""
        self._open: set[bytes] = set()
        """Calls whose result has not been seen yet."""

    @property
    def waits(self) -> bool:
        """Whether there are calls whose result has not been seen."""
        return bool(self._open)

    def wants(self, line: bytes) -> bool:
        """Whether a line holds a call that matters, or the result of one."""
        return self.answers(line) or self._look.concerns(line)

    def answers(self, line: bytes) -> bool:
        """Whether a line holds the result of a call that waits for one."""
        if self._open and b"tool_use_id" in line:
            for match in _RESULT_OF.finditer(line):
                if match[1] in self._open:
                    return True
        return False

    def take_results(self, line: dict[str, Any]) -> None:
        """Take in the results of a line."""
        results = [
            block
            for block in map(mapping, sequence(mapping(line.get("message")).get("content")))
            if block.get("type") == "tool_result"
        ]
        for block in results:
            call = text(block.get("tool_use_id"))
            if call.encode() in self._open:
                details = line if len(results) == 1 else {}
                self._outcomes[call] = _outcome(block, details)
                self._missing[call] = _missing(block, details)
                self._open.discard(call.encode())

    def take(self, file: Path, line: dict[str, Any]) -> None:
        """Take in the calls and the results of a line."""
        self.take_results(line)
        for touch in self._look.touches(line):
            key = (touch.call, touch.memory_id, touch.writes, touch.place)
            if key not in self._calls:
                self._calls[key] = _Call(touch, moment(line.get("timestamp"), self._found))
            self._calls[key].sightings.append(_sighting(file, line))
            if touch.needs_result and touch.call not in self._outcomes:
                self._open.add(touch.call.encode())

    def happened(self) -> Iterator[Seen]:
        """Yield the touches that succeeded; count the others by reason."""
        ages, left_out = _Ages(), self._found.left_out
        for call in self._calls.values():
            outcome = _SUCCESS
            if call.touch.needs_result:
                outcome = self._outcomes.get(call.touch.call, WITHOUT_RESULT)
            if outcome == _SUCCESS and self._was_not_there(call.touch):
                outcome = FAILED
            if outcome == _SUCCESS and call.at is None:
                outcome = WITHOUT_TIME
            if outcome == _SUCCESS and call.at is not None:
                yield Seen(call.touch, call.at, _session(call.sightings, ages))
                if not call.touch.writes:
                    left_out[COPIES] += len(call.sightings) - 1
            elif not call.touch.writes:
                left_out[outcome] += 1

    def _was_not_there(self, touch: Touch) -> bool:
        """Whether a shell went on without a file that it did not find."""
        return touch.how == _SHELL and touch.memory_id in self._missing.get(touch.call, ())


def _outcome(block: dict[str, Any], line: dict[str, Any]) -> str:
    """Return why a result is no success; the empty text where it is one."""
    said = _said(block.get("content"))
    details = line.get("toolUseResult")
    if block.get("is_error") is True or said.startswith("<tool_use_error>"):
        return FAILED
    if isinstance(details, str) and details.startswith("Error"):
        return FAILED
    kind = mapping(details)
    if kind.get("interrupted") is True:
        return INTERRUPTED
    if kind.get("type") == "file_unchanged" or _UNCHANGED.match(said):
        return UNCHANGED
    if text(kind.get("returnCodeInterpretation")).lower().startswith("no matches"):
        return NOTHING_FOUND
    return _SUCCESS


def _missing(block: dict[str, Any], line: dict[str, Any]) -> set[str]:
    """Return the names of files that a shell's commands said were not there."""
    told = mapping(line.get("toolUseResult")).get("stderr")
    content = block.get("content")
    texts = [mapping(each).get("text") for each in sequence(content)]
    return {
        match[1] for each in (told, content, *texts) for match in _NOT_THERE.finditer(text(each))
    }


def _said(content: Any) -> str:
    """Return the beginning of what a tool answered."""
    if isinstance(content, str):
        return content[:200]
    for block in map(mapping, sequence(content)):
        if block.get("type") == "text":
            return text(block.get("text"))[:200]
    return ""


def _sighting(file: Path, line: dict[str, Any]) -> _Sighting:
    session = text(line.get("sessionId"))
    if not session:
        parts = file.parts
        session = parts[parts.index("subagents") - 1] if "subagents" in parts else file.stem
    return _Sighting(file, session, text(mapping(line.get("forkedFrom")).get("sessionId")))


def _session(sightings: list[_Sighting], ages: "_Ages") -> str:
    """Return the session that a call was made in, whatever copies say."""
    originals = [each for each in sightings if not each.forked_from]
    if not originals:
        oldest = ages.oldest(frozenset(each.file for each in sightings))
        return next(each.forked_from for each in sightings if each.file == oldest)
    sessions = {each.session for each in originals}
    if len(sessions) == 1:
        return sessions.pop()
    oldest = ages.oldest(frozenset(each.file for each in originals))
    return next(each.session for each in originals if each.file == oldest)


class _Ages:
    """Tells which of several files that repeat each other's lines is the oldest."""

    def __init__(self) -> None:
        self._known: dict[frozenset[Path], Path] = {}
        self._lines: dict[Path, dict[int, float]] = {}

    def oldest(self, files: frozenset[Path]) -> Path:
        """Return the file that the others were copied from.

        Where the times of the files are those of their last lines, that is one without lines of its
        own, which the others go on from; else the one whose own lines begin first. Files that were
        moved about, or written by a program, are as old as the file system says.
        """
        if files not in self._known:
            self._known[files] = self._found_out(sorted(files))
        return self._known[files]

    def _found_out(self, files: list[Path]) -> Path:
        if len(files) == 1:
            return files[0]
        changed = {file: file.stat().st_mtime for file in files}
        lines = {file: self._times_by_line(file) for file in files}
        as_written = all(
            lines[file] and abs(changed[file] - max(lines[file].values())) < _A_DAY
            for file in files
        )
        begun = dict.fromkeys(files, 0.0)
        for file in files if as_written else ():
            others = set().union(*(lines[other] for other in files if other != file))
            own = (at for line, at in lines[file].items() if line not in others)
            begun[file] = min(own, default=0.0)
        return min(files, key=lambda file: (begun[file], changed[file]))

    def _times_by_line(self, file: Path) -> dict[int, float]:
        """Return a file's lines by their ids, with the seconds at which they were written."""
        if file not in self._lines:
            times = self._lines[file] = {}
            reader = LineReader([file], unheard, Counter())
            for line in reader.objects(file, lambda _: True):
                with suppress(ValueError, OverflowError):
                    at = datetime.fromisoformat(text(line.get("timestamp"))).timestamp()
                    times[hash(text(line.get("uuid")))] = at
        return self._lines[file]
