"""Reads and changes of memories in Claude Code's transcripts, each counted once, by session."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from re import IGNORECASE, MULTILINE
from re import compile as pattern
from typing import Any, Final, NamedTuple

from memlab.errors import MemlabError
from memlab.sources import reads
from memlab.sources.reads import (
    READ,
    WRITE,
    HarvestRequest,
    HarvestResult,
    LineReader,
    mapping,
    sequence,
    text,
)

FAILED: Final = "calls that failed"
WITHOUT_RESULT: Final = "calls without a result"
NOTHING_FOUND: Final = "searches that found nothing"
COPIES: Final = "copies of a read that is counted"

_MEMORY: Final = "memory"
"""Name of the folder of memories in the folder of a project."""
_SUCCEEDED: Final = ""
_RESULT_OF: Final = pattern(rb'"tool_use_id"\s*:\s*"([^"\\]+)"')
_UNCHANGED: Final = pattern(r"(wasted call\W+)?file unchanged since", IGNORECASE)
_NO_MATCH: Final = pattern(r"no (?:matches|files) found\b", IGNORECASE)
_NOT_THERE: Final = pattern(
    r"""^\w+: (?:[^\n]*[/ '"])?([^/\n'"]+?)['"]?: No such file""", MULTILINE
)


class Touch(NamedTuple):
    """A read or a change of one memory by one tool call.

    Attributes
    ----------
    call : str
        The id of the call.
    memory_id : str
        The id of the memory.
    how : str
        The tool, for a person.
    writes : bool
        Whether it changes the memory.
    place : str
        The path by which the call names the store, to tell stores of one name apart.
    outcome : str or None
        Why it does not count; empty if it counts. None if the result of the call decides.
    """

    call: str
    memory_id: str
    how: str
    writes: bool = False
    place: str = ""
    outcome: str | None = None


class Seen(NamedTuple):
    """A successful touch, with its time and session."""

    touch: Touch
    at: datetime
    session: str


class Look(NamedTuple):
    """The rules by which a harvest finds the touches of a store in transcripts."""

    may_concern: reads.Wanted
    """Returns whether a line may have a relevant call. It is called for each line."""
    touches: Callable[[dict[str, Any]], Iterator[Touch]]
    """Yields the touches of a line."""
    select: Callable[[list[Seen], HarvestResult], list[Seen]] = lambda seen, _: seen
    """Returns the touches that belong to the store."""


class _Sighting(NamedTuple):
    """A copy of a call: its file, the session of its line, and the session it was copied from."""

    file: Path
    session: str
    forked_from: str


class _Call(NamedTuple):
    """A call with its time and all its copies."""

    touch: Touch
    at: datetime | None
    sightings: list[_Sighting]


def _projects_folder(request: HarvestRequest, default: Path | None) -> Path:
    """Return the folder of transcripts; raise MemlabError if there is none."""
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    candidates = [default, home] if request.transcripts is None else [request.transcripts]
    for folder in candidates:
        if folder is not None and folder.is_dir():
            return folder
    where = request.transcripts or home
    raise MemlabError(f"there are no transcripts in {where}; name their folder with --transcripts")


def transcript_files(root: Path, *, follow_links: bool = True) -> list[Path]:
    """Return the transcripts below the folder of all projects or of one, subagents included."""
    files: list[Path] = []
    seen = set[str]()
    for folder, inner, names in os.walk(root, followlinks=follow_links):
        where = Path(folder)
        parts = where.relative_to(root).parts
        if follow_links:  # links may form a cycle
            real = os.path.realpath(folder)
            if real in seen:
                inner.clear()
                continue
            seen.add(real)
        if len(parts) == 1 and _MEMORY in inner:  # a project's memories, which are no transcripts
            inner.remove(_MEMORY)
        for name in names:
            is_transcript = len(parts) < 2
            if "subagents" in parts:
                is_transcript = name.startswith("agent-")
            if is_transcript and name.endswith(".jsonl") and name != "journal.jsonl":
                files.append(where / name)
    return files


def blocks_of(line: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the blocks of a line's message that have a type, such as ``tool_use``."""
    blocks = map(mapping, sequence(mapping(line.get("message")).get("content")))
    return [block for block in blocks if block.get("type") == kind]


def calls_in(line: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the tool calls of a line: id, name of the tool and input."""
    for block in blocks_of(line, "tool_use"):
        call = text(block.get("id")) or named(line)
        yield call, text(block.get("name")), mapping(block.get("input"))


def named(line: dict[str, Any]) -> str:
    """Return the identity of a line, which its copies share."""
    return text(line.get("uuid")) or f"at {text(line.get('timestamp'))}"


def uses_in(
    request: HarvestRequest, look: Look, system: str, store: str, *, beside: Path | None = None
) -> HarvestResult:
    """Read all transcripts, those in `beside` if it exists, and return the uses of a store."""
    root = _projects_folder(request, beside)
    result = HarvestResult(store=store)
    lines = LineReader(transcript_files(root), request.progress, result)
    scan = _Scan(look, result)
    for file in lines.files:
        for line in lines.objects(file, scan.may_have_call):
            scan.take(file, line)
    if scan.waiting:  # a copied transcript may begin with the result of a call in a later file
        second_pass = LineReader(lines.files)
        for file in second_pass.files:
            for line in second_pass.objects(file, scan.has_awaited_result):
                scan.take_results(line)
    if not result.files:
        result.notes.append(f"there are no transcripts in {root}; name their folder: --transcripts")
    result.notes.append(
        "Claude Code deletes transcripts after 30 days (cleanupPeriodDays): harvest more often, "
        "and the log keeps what they said"
    )
    seen = sorted(scan.succeeded(), key=lambda touch: touch.at)
    _take_uses(look.select(seen, result), system, request, result)
    return result


def _take_uses(
    seen: Iterable[Seen], system: str, request: HarvestRequest, result: HarvestResult
) -> None:
    """Add reads and changes to the result of a harvest, classified by kind."""
    uses = []
    for touch, at, session in seen:
        name = f"{system}:{touch.call}:{touch.memory_id}"
        known = request.before.get(name)
        session_of_read = session
        if known is not None and known.session:
            session_of_read = known.session  # the session of an earlier harvest is kept
        use = reads.Read(
            memory_id=touch.memory_id,
            at=at,
            id=name,
            how=touch.how,
            session=session_of_read,
            kind=WRITE if touch.writes else READ,
        )
        uses.append(use)
    result.writes = [use for use in uses if use.kind == WRITE]
    before = (use for use in request.before.values() if use.kind == WRITE)
    # The time of the first change of each memory by each session.
    written: dict[tuple[str, str], datetime] = {}
    for write in [*before, *result.writes]:
        key = write.memory_id, write.session or ""
        written[key] = min(write.at, written.get(key, write.at))
    for use in uses:
        if use.kind == WRITE:
            continue
        first_write = written.get((use.memory_id, use.session or ""))
        if first_write is None:
            result.reads.append(use)
        elif use.at >= first_write:
            result.apart.append(use._replace(kind=reads.OWN_SESSION))
        else:
            result.apart.append(use._replace(kind=reads.MAINTENANCE))


class _Scan:
    """Collects calls and their results from the lines of transcripts."""

    def __init__(self, look: Look, result: HarvestResult) -> None:
        self._look = look
        self._found = result
        self._calls: dict[tuple[str, str, bool, str], _Call] = {}
        # By the id of a call: its outcome, and the names of the files that a shell did not find.
        self._results: dict[str, tuple[str, set[str]]] = {}
        # The ids of the calls whose result was not found yet.
        self.waiting: set[bytes] = set()

    def may_have_call(self, line: bytes) -> bool:
        """Return whether a line may have a relevant call or its result."""
        has_use = b'"tool_use"' in line or b'"attachment"' in line
        return self.has_awaited_result(line) or (has_use and self._look.may_concern(line))

    def has_awaited_result(self, line: bytes) -> bool:
        """Return whether a line has a result that was not found yet."""
        if not self.waiting or b"tool_use_id" not in line:
            return False
        return not self.waiting.isdisjoint(_RESULT_OF.findall(line))

    def take_results(self, line: dict[str, Any]) -> None:
        """Record the results of a line."""
        results = blocks_of(line, "tool_result")
        for block in results:
            call = text(block.get("tool_use_id"))
            if call.encode() in self.waiting:
                details = line if len(results) == 1 else {}
                self._results[call] = _outcome(block, details), _missing(block, details)
                self.waiting.discard(call.encode())

    def take(self, file: Path, line: dict[str, Any]) -> None:
        """Record the calls and the results of a line."""
        self.take_results(line)
        for touch in self._look.touches(line):
            key = (touch.call, touch.memory_id, touch.writes, touch.place)
            if key not in self._calls:
                counted = None if touch.outcome else self._found
                at = reads.moment(line.get("timestamp"), counted)
                self._calls[key] = _Call(touch, at, [])
            self._calls[key].sightings.append(_sighting(file, line))
            if touch.outcome is None and touch.call not in self._results:
                self.waiting.add(touch.call.encode())

    def succeeded(self) -> Iterator[Seen]:
        """Yield the touches that succeeded; count the others by reason."""
        left_out = self._found.left_out
        oldest = cache(partial(_oldest, times_of=cache(_times_by_line)))
        for touch, at, sightings in self._calls.values():
            outcome, missing = self._results.get(touch.call, (WITHOUT_RESULT, set[str]()))
            if touch.outcome is not None:
                outcome = touch.outcome
            if outcome == _SUCCEEDED and touch.how == "Bash" and touch.memory_id in missing:
                outcome = FAILED  # the shell continued without the file
            reason = outcome or "calls without a time"
            count = 1
            if outcome == _SUCCEEDED and at is not None:
                yield Seen(touch, at, _session(sightings, oldest))
                reason = COPIES
                count = len(sightings) - 1
            if not touch.writes:
                left_out[reason] += count


def _outcome(block: dict[str, Any], line: dict[str, Any]) -> str:
    """Return why a call failed; the empty string for success."""
    answer = next(iter(_texts(block)), "")[:200]
    details = line.get("toolUseResult")
    failed = block.get("is_error") is True or answer.startswith("<tool_use_error>")
    if failed or text(details).startswith("Error"):
        return FAILED
    kind = mapping(details)
    if kind.get("interrupted") is True:
        return "calls that were interrupted"
    if kind.get("type") == "file_unchanged" or _UNCHANGED.match(answer):
        return "calls answered by a note that the file is unchanged"
    exit_note = text(kind.get("returnCodeInterpretation"))
    if _NO_MATCH.match(exit_note) or _NO_MATCH.match(answer):
        return NOTHING_FOUND
    return _SUCCEEDED


def _missing(block: dict[str, Any], line: dict[str, Any]) -> set[str]:
    """Return the names of the files that shell commands reported as missing."""
    errors = text(mapping(line.get("toolUseResult")).get("stderr"))
    names: set[str] = set()
    for output in (errors, *_texts(block)):
        names.update(match[1] for match in _NOT_THERE.finditer(output))
    return names


def _texts(block: dict[str, Any]) -> list[str]:
    """Return the texts of a result."""
    content = block.get("content")
    if isinstance(content, str):
        return [content]
    parts = map(mapping, sequence(content))
    return [text(part.get("text")) for part in parts if part.get("type") == "text"]


def _sighting(file: Path, line: dict[str, Any]) -> _Sighting:
    """Return the copy of a call on a line of a file."""
    session = text(line.get("sessionId"))
    if not session:
        parts = file.parts
        session = parts[parts.index("subagents") - 1] if "subagents" in parts else file.stem
    return _Sighting(file, session, text(mapping(line.get("forkedFrom")).get("sessionId")))


def _session(sightings: list[_Sighting], oldest: Callable[[frozenset[Path]], Path]) -> str:
    """Return the session in which a call was made, from its original among the copies."""
    candidates = [sighting for sighting in sightings if not sighting.forked_from] or sightings
    file = oldest(frozenset(sighting.file for sighting in candidates))
    original = next(sighting for sighting in candidates if sighting.file == file)
    return original.forked_from or original.session


def _oldest(files: frozenset[Path], times_of: Callable[[Path], dict[int, float]]) -> Path:
    """Return the original of files that copy each other: the one whose own lines begin first."""
    if len(files) == 1:
        return next(iter(files))
    lines = {file: times_of(file) for file in files}

    def first_own_time(file: Path) -> float:
        others = set().union(*(lines[other] for other in files if other != file))
        return min((at for line, at in lines[file].items() if line not in others), default=0)

    return min(sorted(files), key=lambda file: (first_own_time(file), file.stat().st_mtime))


def _times_by_line(file: Path) -> dict[int, float]:
    """Return the time of each line of a file in seconds since 1970, by the hash of its id."""
    times = {}
    for line in LineReader([file]).objects(file, lambda _: True):
        with suppress(ValueError, OverflowError):
            at = datetime.fromisoformat(text(line.get("timestamp"))).timestamp()
            times[hash(text(line.get("uuid")))] = at
    return times
