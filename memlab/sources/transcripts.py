"""Claude Code's transcripts: calls of tools on memories, each once, by the session that made it."""

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
from memlab.sources.reads import READ, WRITE, Asked, Found, LineReader, mapping, sequence, text

FAILED: Final = "calls that failed"
WITHOUT_RESULT: Final = "calls without a result"
NOTHING_FOUND: Final = "searches that found nothing"
COPIES: Final = "copies of a read that is counted"

_SUCCESS: Final = ""
_RESULT_OF: Final = pattern(rb'"tool_use_id"\s*:\s*"([^"\\]+)"')
_UNCHANGED: Final = pattern(r"(wasted call\W+)?file unchanged since", IGNORECASE)
_NO_MATCH: Final = pattern(r"no (?:matches|files) found\b", IGNORECASE)
_NOT_THERE: Final = pattern(
    r"""^\w+: (?:[^\n]*[/ '"])?([^/\n'"]+?)['"]?: No such file""", MULTILINE
)


class Touch(NamedTuple):
    """What one call does with one memory."""

    call: str
    memory_id: str
    how: str
    writes: bool = False
    place: str = ""
    outcome: str | None = None
    """What became of it, where no result says so: nothing went wrong, or why it is no read."""


class Seen(NamedTuple):
    """A touch that happened."""

    touch: Touch
    at: datetime
    session: str


class Look(NamedTuple):
    """What a harvest looks for in transcripts."""

    concerns: reads.Wanted
    """Whether a line may hold a call that matters; cheap, for every line is asked about."""
    touches: Callable[[dict[str, Any]], Iterator[Touch]]
    """Yields what a line's calls do with memories."""
    ours: Callable[[list[Seen], Found], list[Seen]] = lambda seen, _: seen
    """Returns what of all that happened is about the store."""


class _Sighting(NamedTuple):
    """One copy of a call: the file, the session the line names, the one it was copied from."""

    file: Path
    session: str
    forked_from: str


class _Call(NamedTuple):
    touch: Touch
    at: datetime | None
    sightings: list[_Sighting]


def _projects_folder(asked: Asked, beside: Path | None) -> Path:
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    candidates = [beside, home] if asked.transcripts is None else [asked.transcripts]
    for folder in candidates:
        if folder is not None and folder.is_dir():
            return folder
    where = asked.transcripts or home
    raise MemlabError(f"there are no transcripts in {where}; name their folder with --transcripts")


def transcript_files(root: Path, *, follow_links: bool = True) -> list[Path]:
    """Return every transcript below a folder of projects, or one project's, agents' included."""
    found: list[Path] = []
    seen = set[str]()
    for folder, inner, names in os.walk(root, followlinks=follow_links):
        where = Path(folder)
        real = os.path.realpath(folder)
        parts = where.relative_to(root).parts
        if real in seen:  # links may lead round
            inner.clear()
            continue
        seen.add(real)
        for name in names:
            wanted = name.startswith("agent-") if "subagents" in parts else len(parts) < 2
            if wanted and name.endswith(".jsonl") and name != "journal.jsonl":
                found.append(where / name)
    return found


def blocks_of(line: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the parts of a line's message that are of a kind, such as calls of tools."""
    blocks = map(mapping, sequence(mapping(line.get("message")).get("content")))
    return [block for block in blocks if block.get("type") == kind]


def calls_in(line: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the calls of a line: the id of each, its tool's name, and what that was given."""
    for block in blocks_of(line, "tool_use"):
        call = text(block.get("id")) or named(line)
        yield call, text(block.get("name")), mapping(block.get("input"))


def named(line: dict[str, Any]) -> str:
    """Return what tells a line from others; a copy has the same."""
    return text(line.get("uuid")) or f"at {text(line.get('timestamp'))}"


def uses_in(
    asked: Asked, look: Look, system: str, store: str, *, beside: Path | None = None
) -> Found:
    """Read all transcripts, those of `beside` where it is there; return the uses of a store."""
    root = _projects_folder(asked, beside)
    found = Found(store=store)
    lines = LineReader(transcript_files(root), asked.progress, found)
    scan = _Scan(look, found)
    for file in lines.files:
        for line in lines.objects(file, scan.wants):
            scan.take(file, line)
    if scan.waiting:  # a copy may begin in between: with a result whose call stands in a later file
        again = LineReader(lines.files)
        for file in again.files:
            for line in again.objects(file, scan.answers):
                scan.take_results(line)
    if not found.files:
        found.notes.append(f"there are no transcripts in {root}; name their folder: --transcripts")
    found.notes.append(
        "Claude Code deletes transcripts after 30 days (cleanupPeriodDays): harvest more often, "
        "and the log keeps what they said"
    )
    seen = sorted(scan.happened(), key=lambda one: one.at)
    _take_uses(look.ours(seen, found), system, asked, found)
    return found


def _take_uses(seen: Iterable[Seen], system: str, asked: Asked, found: Found) -> None:
    """Add what was read and changed to what was found, what is no later need apart."""
    uses = []
    for touch, at, session in seen:
        name = f"{system}:{touch.call}:{touch.memory_id}"
        known = asked.before.get(name)  # the session that was found first stands
        owner = (known and known.session) or session
        kind = WRITE if touch.writes else READ
        uses.append(reads.Read(touch.memory_id, at, name, touch.how, owner, kind))
    found.writes = [use for use in uses if use.kind == WRITE]
    before = (use for use in asked.before.values() if use.kind == WRITE)
    written: dict[tuple[str, str], datetime] = {}
    """When each session first changed each memory."""
    for write in [*before, *found.writes]:
        key = write.memory_id, write.session or ""
        written[key] = min(write.at, written.get(key, write.at))
    for use in uses:
        if use.kind != WRITE:
            first = written.get((use.memory_id, use.session or ""))
            kind = READ
            if first is not None:
                kind = reads.OWN_SESSION if use.at >= first else reads.MAINTENANCE
            (found.reads if kind == READ else found.apart).append(use._replace(kind=kind))


class _Scan:
    def __init__(self, look: Look, found: Found) -> None:
        self._look = look
        self._found = found
        self._calls: dict[tuple[str, str, bool, str], _Call] = {}
        self._results: dict[str, tuple[str, set[str]]] = {}
        """By call: its outcome, and the files that a shell did not find, by their names."""
        self.waiting: set[bytes] = set()
        """Calls whose result has not been seen yet."""

    def wants(self, line: bytes) -> bool:
        """Return whether a line holds a call that matters, or the result of one."""
        has_use = b'"tool_use"' in line or b'"attachment"' in line
        return self.answers(line) or (has_use and self._look.concerns(line))

    def answers(self, line: bytes) -> bool:
        """Return whether a line holds the result of a call that waits for one."""
        if not self.waiting or b"tool_use_id" not in line:
            return False
        return not self.waiting.isdisjoint(_RESULT_OF.findall(line))

    def take_results(self, line: dict[str, Any]) -> None:
        """Take in the results of a line."""
        results = blocks_of(line, "tool_result")
        for block in results:
            call = text(block.get("tool_use_id"))
            if call.encode() in self.waiting:
                details = line if len(results) == 1 else {}
                self._results[call] = _outcome(block, details), _missing(block, details)
                self.waiting.discard(call.encode())

    def take(self, file: Path, line: dict[str, Any]) -> None:
        """Take in the calls and the results of a line."""
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

    def happened(self) -> Iterator[Seen]:
        """Yield the touches that succeeded; count the others by reason."""
        left_out = self._found.left_out
        oldest = cache(partial(_oldest, times_of=cache(_times_by_line)))
        for touch, at, sightings in self._calls.values():
            outcome, missing = self._results.get(touch.call, (WITHOUT_RESULT, set[str]()))
            outcome = outcome if touch.outcome is None else touch.outcome
            if outcome == _SUCCESS and touch.how == "Bash" and touch.memory_id in missing:
                outcome = FAILED  # the shell went on without it
            why = outcome or "calls without a time"
            more = 1
            if outcome == _SUCCESS and at is not None:
                yield Seen(touch, at, _session(sightings, oldest))
                why = COPIES
                more = len(sightings) - 1
            if not touch.writes:
                left_out[why] += more


def _outcome(block: dict[str, Any], line: dict[str, Any]) -> str:
    """Return why a result is no success; the empty text where it is one."""
    said = next(iter(_texts(block)), "")[:200]
    details = line.get("toolUseResult")
    failed = block.get("is_error") is True or said.startswith("<tool_use_error>")
    if failed or text(details).startswith("Error"):
        return FAILED
    kind = mapping(details)
    if kind.get("interrupted") is True:
        return "calls that were interrupted"
    if kind.get("type") == "file_unchanged" or _UNCHANGED.match(said):
        return "calls answered by a note that the file is unchanged"
    told = text(kind.get("returnCodeInterpretation"))
    if any(_NO_MATCH.match(each) for each in (told, said)):
        return NOTHING_FOUND
    return _SUCCESS


def _missing(block: dict[str, Any], line: dict[str, Any]) -> set[str]:
    """Return the names of files that a shell's commands said were not there."""
    told = text(mapping(line.get("toolUseResult")).get("stderr"))
    return {match[1] for each in (told, *_texts(block)) for match in _NOT_THERE.finditer(each)}


def _texts(block: dict[str, Any]) -> list[str]:
    content = block.get("content")
    if isinstance(content, str):
        return [content]
    parts = map(mapping, sequence(content))
    return [text(part.get("text")) for part in parts if part.get("type") == "text"]


def _sighting(file: Path, line: dict[str, Any]) -> _Sighting:
    session = text(line.get("sessionId"))
    if not session:
        parts = file.parts
        session = parts[parts.index("subagents") - 1] if "subagents" in parts else file.stem
    return _Sighting(file, session, text(mapping(line.get("forkedFrom")).get("sessionId")))


def _session(sightings: list[_Sighting], oldest: Callable[[frozenset[Path]], Path]) -> str:
    """Return the session that a call was made in, whatever copies say."""
    among = [each for each in sightings if not each.forked_from] or sightings
    file = oldest(frozenset(each.file for each in among))
    first = next(each for each in among if each.file == file)
    return first.forked_from or first.session


def _oldest(files: frozenset[Path], times_of: Callable[[Path], dict[int, float]]) -> Path:
    """Return which of files that repeat each other the others were copied from: it begins first."""
    if len(files) == 1:
        return next(iter(files))
    lines = {file: times_of(file) for file in files}

    def begun(file: Path) -> float:
        others = set().union(*(lines[other] for other in files if other != file))
        return min((at for line, at in lines[file].items() if line not in others), default=0)

    return min(sorted(files), key=lambda file: (begun(file), file.stat().st_mtime))


def _times_by_line(file: Path) -> dict[int, float]:
    """Return a file's lines by their ids, with the seconds at which they were written."""
    times = {}
    for line in LineReader([file]).objects(file, lambda _: True):
        with suppress(ValueError, OverflowError):
            at = datetime.fromisoformat(text(line.get("timestamp"))).timestamp()
            times[hash(text(line.get("uuid")))] = at
    return times
