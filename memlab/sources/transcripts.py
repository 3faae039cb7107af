"""Reads and changes of memories in Claude Code's transcripts, each counted once, by session."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from re import IGNORECASE, MULTILINE
from re import compile as pattern
from typing import Any, Final, NamedTuple

from memlab.errors import MemlabError
from memlab.files import ordinary_file
from memlab.sources import reads
from memlab.sources.reads import (
    FIRST_BYTES_OF_LOG,
    LOG_SUFFIX,
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
"""Outcome of a call that succeeded. Other outcomes say why the call failed."""
_RESULT_OF: Final = pattern(rb'"tool_use_id"\s*:\s*"([^"\\]+)"')
"""The id of a call in the unparsed line of its result, such as ``"tool_use_id": "toolu_1"``."""
_UNCHANGED: Final = pattern(r"(wasted call\W+)?file unchanged since", IGNORECASE)
"""Beginning of the answer to a repeated read of a file."""
_NO_MATCH: Final = pattern(r"no (?:matches|files) found\b", IGNORECASE)
"""Beginning of the answer to a search without a result."""
_NOT_THERE: Final = pattern(
    r"""^\w+: (?:[^\n]*[/ '"])?([^/\n'"]+?)['"]?: No such file""", MULTILINE
)
"""The file name in the error of a shell command, such as ``cat: notes/a.md: No such file``."""


class Touch(NamedTuple):
    """A read or a change of one memory by one tool call.

    Attributes
    ----------
    call_id : str
        The id of the call.
    memory_id : str
        The id of the memory.
    tool : str
        The name of the tool.
    is_write : bool
        Whether it changes the memory.
    store_path : str
        The path by which the call names the store, to tell stores of one name apart.
    outcome : str or None
        The reason for which the touch does not count; empty if it counts. None if the result of
        the call decides.
    """

    call_id: str
    memory_id: str
    tool: str
    is_write: bool = False
    store_path: str = ""
    outcome: str | None = None


class SuccessfulTouch(NamedTuple):
    """A successful touch, with its time and session."""

    touch: Touch
    at: datetime
    session: str


class TouchRules(NamedTuple):
    """The rules by which a harvest finds the touches of a store in transcripts."""

    may_have_touch: reads.LineTest
    """Returns whether a line may have a relevant call. It is called for each line."""
    touches_in: Callable[[dict[str, Any]], Iterator[Touch]]
    """Yields the touches of a line."""
    select: Callable[[list[SuccessfulTouch], HarvestResult], list[SuccessfulTouch]] = (
        lambda touches, _result: touches
    )
    """Returns the touches that belong to the store."""


class ToolCall(NamedTuple):
    """A tool call in a transcript: its id, the name of the tool, and the arguments."""

    id: str
    tool: str
    arguments: dict[str, Any]


class _Copy(NamedTuple):
    """A copy of a call: its file, the session of its line, and the session it was copied from."""

    file: Path
    session: str
    forked_from: str


class _RecordedTouch(NamedTuple):
    """A touch with its time and all copies of its call."""

    touch: Touch
    at: datetime | None
    copies: list[_Copy]


class _CallResult(NamedTuple):
    """The result of a call.

    Attributes
    ----------
    outcome : str
        The reason for which the call failed; empty for success.
    missing_files : set of str
        The names of the files that a shell command did not find.
    """

    outcome: str
    missing_files: set[str]


def _projects_folder(request: HarvestRequest, default: Path | None) -> Path:
    """Return the folder of transcripts; raise MemlabError if there is none."""
    configuration = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    default_projects = configuration / "projects"
    candidates = [default, default_projects]
    if request.transcripts is not None:
        candidates = [request.transcripts]
    for folder in candidates:
        if folder is not None and folder.is_dir():
            return folder
    raise MemlabError(
        f"there are no transcripts in {candidates[-1]}; name their folder with --transcripts"
    )


def transcript_files(root: Path, *, follow_links: bool = True) -> list[Path]:
    """Return the transcripts of sessions and subagents in a folder of one project or of all.

    No file is opened. Access logs with a suffix of their own may be among the files; see
    :func:`without_access_logs`.
    """
    files: list[Path] = []
    visited_folders = set[str]()
    for folder, subfolders, names in os.walk(root, followlinks=follow_links):
        path = Path(folder)
        parts = path.relative_to(root).parts
        if follow_links:  # links may form a cycle
            resolved = os.path.realpath(folder)
            if resolved in visited_folders:
                subfolders.clear()
                continue
            visited_folders.add(resolved)
        # The folder of a project's memories has no transcripts.
        if len(parts) == 1 and _MEMORY in subfolders:
            subfolders.remove(_MEMORY)
        files += [path / name for name in names if _is_transcript(parts, name)]
    return files


def without_access_logs(files: Iterable[Path]) -> list[Path]:
    """Return the files that do not begin like an access log, which may be among transcripts."""
    return [file for file in files if not _is_access_log(file)]


def _is_transcript(folders: tuple[str, ...], name: str) -> bool:
    """Return whether a file is a transcript, by the folders above it and its name."""
    if not name.endswith(".jsonl") or name == "journal.jsonl":
        return False
    if name.endswith(LOG_SUFFIX):  # a log of the default name needs no look at its content
        return False
    if "subagents" in folders:
        return name.startswith("agent-")
    return len(folders) < 2


def _is_access_log(path: Path) -> bool:
    """Return whether a file begins like an access log. No line of a transcript begins so."""
    with suppress(OSError), ordinary_file(path, max_bytes=sys.maxsize) as file:
        return file.read(len(FIRST_BYTES_OF_LOG)) == FIRST_BYTES_OF_LOG
    return False


def blocks_of_type(line: dict[str, Any], block_type: str) -> list[dict[str, Any]]:
    """Return the blocks of a line's message that have a type, such as ``tool_use``."""
    message = mapping(line.get("message"))
    blocks = [mapping(block) for block in sequence(message.get("content"))]
    return [block for block in blocks if block.get("type") == block_type]


def calls_in(line: dict[str, Any]) -> Iterator[ToolCall]:
    """Yield the tool calls of a line."""
    for block in blocks_of_type(line, "tool_use"):
        yield ToolCall(
            id=text(block.get("id")) or id_of_line(line),
            tool=text(block.get("name")),
            arguments=mapping(block.get("input")),
        )


def id_of_line(line: dict[str, Any]) -> str:
    """Return the id of a line, which its copies share."""
    return text(line.get("uuid")) or f"at {text(line.get('timestamp'))}"


def harvest_transcripts(
    request: HarvestRequest,
    rules: TouchRules,
    system: str,
    store: str,
    *,
    default_folder: Path | None = None,
) -> HarvestResult:
    """Return the uses of a store in transcripts.

    Parameters
    ----------
    request : HarvestRequest
        The request, which may name the folder of transcripts.
    rules : TouchRules
        The rules by which the uses are found.
    system : str
        The prefix of the ids of reads.
    store : str
        The name of the store.
    default_folder : Path, optional
        The folder to read if the request names none; else that of the current user.
    """
    root = _projects_folder(request, default_folder)
    result = HarvestResult(store=store)
    lines = LineReader(without_access_logs(transcript_files(root)), request.progress, result)
    scan = _Scan(rules, result)
    for file in lines.files:
        for line in lines.objects(file, scan.may_have_call):
            scan.record_line(file, line)
    # A copied transcript may begin with the result of a call in a later file.
    if scan.awaited_calls:
        second_pass = LineReader(lines.files)
        for file in second_pass.files:
            for line in second_pass.objects(file, scan.has_awaited_result):
                scan.record_results(line)
    if not result.files:
        result.notes.append(f"there are no transcripts in {root}; name their folder: --transcripts")
    result.notes.append(
        "Claude Code deletes transcripts after 30 days (cleanupPeriodDays): harvest more often, "
        "and the log keeps what they said"
    )
    touches = sorted(scan.successful_touches(), key=lambda touch: touch.at)
    selected = rules.select(touches, result)
    _add_uses([_use_of(touch, system, request) for touch in selected], request, result)
    return result


def _use_of(successful: SuccessfulTouch, system: str, request: HarvestRequest) -> reads.Read:
    """Return a touch as a read or a change, with the session that an earlier harvest recorded."""
    touch = successful.touch
    use_id = f"{system}:{touch.call_id}:{touch.memory_id}"
    session = successful.session
    recorded = request.recorded.get(use_id)
    if recorded is not None and recorded.session:
        session = recorded.session
    return reads.Read(
        memory_id=touch.memory_id,
        at=successful.at,
        id=use_id,
        tool=touch.tool,
        session=session,
        kind=WRITE if touch.is_write else READ,
    )


def _add_uses(uses: Sequence[reads.Read], request: HarvestRequest, result: HarvestResult) -> None:
    """Add reads and changes to the result of a harvest, classified by kind."""
    result.writes = [use for use in uses if use.kind == WRITE]
    recorded_writes = [use for use in request.recorded.values() if use.kind == WRITE]
    # The time of the first write, by memory and session.
    first_writes: dict[tuple[str, str], datetime] = {}
    for write in [*recorded_writes, *result.writes]:
        key = write.memory_id, write.session or ""
        first_writes[key] = min(write.at, first_writes.get(key, write.at))
    for use in uses:
        if use.kind == WRITE:
            continue
        first_write = first_writes.get((use.memory_id, use.session or ""))
        if first_write is None:
            result.reads.append(use)
        elif use.at >= first_write:
            result.excluded.append(use._replace(kind=reads.OWN_SESSION))
        else:
            result.excluded.append(use._replace(kind=reads.MAINTENANCE))


class _Scan:
    """Collects calls and their results from the lines of transcripts."""

    def __init__(self, rules: TouchRules, result: HarvestResult) -> None:
        self._rules = rules
        self._result = result
        self._touches: dict[tuple[str, str, bool, str], _RecordedTouch] = {}
        """By the id of the call, the id of the memory, whether it is a write, and the store."""
        self._call_results: dict[str, _CallResult] = {}
        """By the id of the call."""
        self.awaited_calls: set[bytes] = set()
        """The ids of the calls whose result was not found yet."""

    def may_have_call(self, line: bytes) -> bool:
        """Return whether a line may have a relevant call or its result."""
        if self.has_awaited_result(line):
            return True
        has_use = b'"tool_use"' in line or b'"attachment"' in line
        return has_use and self._rules.may_have_touch(line)

    def has_awaited_result(self, line: bytes) -> bool:
        """Return whether a line has a result that was not found yet."""
        if not self.awaited_calls or b"tool_use_id" not in line:
            return False
        return not self.awaited_calls.isdisjoint(_RESULT_OF.findall(line))

    def record_results(self, line: dict[str, Any]) -> None:
        """Record the results of a line."""
        blocks = blocks_of_type(line, "tool_result")
        # The line has the details of one result only.
        details = line.get("toolUseResult") if len(blocks) == 1 else None
        for block in blocks:
            call_id = text(block.get("tool_use_id"))
            if call_id.encode() in self.awaited_calls:
                self._call_results[call_id] = _CallResult(
                    outcome=_outcome(block, details),
                    missing_files=_missing_files(block, details),
                )
                self.awaited_calls.discard(call_id.encode())

    def record_line(self, file: Path, line: dict[str, Any]) -> None:
        """Record the calls and the results of a line."""
        self.record_results(line)
        for touch in self._rules.touches_in(line):
            key = (touch.call_id, touch.memory_id, touch.is_write, touch.store_path)
            if key not in self._touches:
                # The result counts times without a zone. A touch that failed has no part in it.
                result = None if touch.outcome else self._result
                at = reads.moment(line.get("timestamp"), result)
                self._touches[key] = _RecordedTouch(touch, at, [])
            self._touches[key].copies.append(_copy_on(line, file))
            if touch.outcome is None and touch.call_id not in self._call_results:
                self.awaited_calls.add(touch.call_id.encode())

    def successful_touches(self) -> Iterator[SuccessfulTouch]:
        """Yield the touches that succeeded; count the others by reason."""
        times_of = cache(_times_by_line)

        @cache
        def oldest_of(files: frozenset[Path]) -> Path:
            return _oldest(files, times_of)

        for touch, at, copies in self._touches.values():
            outcome = self._outcome_of(touch)
            count = 1
            if outcome != _SUCCEEDED:
                reason = outcome
            elif at is None:
                reason = "calls without a time"
            else:
                yield SuccessfulTouch(touch, at, _session(copies, oldest_of))
                reason = COPIES
                count = len(copies) - 1
            if not touch.is_write:
                self._result.left_out[reason] += count

    def _outcome_of(self, touch: Touch) -> str:
        """Return the reason for which a touch does not count; empty if it counts."""
        no_result = _CallResult(WITHOUT_RESULT, set())
        result = self._call_results.get(touch.call_id, no_result)
        outcome = result.outcome if touch.outcome is None else touch.outcome
        is_missing = touch.tool == "Bash" and touch.memory_id in result.missing_files
        if outcome == _SUCCEEDED and is_missing:
            return FAILED  # the shell continued without the file
        return outcome


def _outcome(block: dict[str, Any], details: object) -> str:
    """Return the reason for which a call failed; empty for success.

    Parameters
    ----------
    block : dict
        The block with the result of the call.
    details : object
        The details of the result that the line has, as a JSON value; None for none.
    """
    texts = _texts(block)
    answer = texts[0][:200] if texts else ""
    is_error = block.get("is_error") is True or answer.startswith("<tool_use_error>")
    if is_error or text(details).startswith("Error"):
        return FAILED
    fields = mapping(details)
    if fields.get("interrupted") is True:
        return "calls that were interrupted"
    if fields.get("type") == "file_unchanged" or _UNCHANGED.match(answer):
        return "calls answered by a note that the file is unchanged"
    exit_note = text(fields.get("returnCodeInterpretation"))
    if _NO_MATCH.match(exit_note) or _NO_MATCH.match(answer):
        return NOTHING_FOUND
    return _SUCCEEDED


def _missing_files(block: dict[str, Any], details: object) -> set[str]:
    """Return the names of the files that shell commands reported as missing."""
    errors = text(mapping(details).get("stderr"))
    names: set[str] = set()
    for output in (errors, *_texts(block)):
        names.update(match[1] for match in _NOT_THERE.finditer(output))
    return names


def _texts(block: dict[str, Any]) -> list[str]:
    """Return the texts of a result."""
    content = block.get("content")
    if isinstance(content, str):
        return [content]
    parts = [mapping(part) for part in sequence(content)]
    return [text(part.get("text")) for part in parts if part.get("type") == "text"]


def _copy_on(line: dict[str, Any], file: Path) -> _Copy:
    """Return the file and the sessions of a call, from its line."""
    session = text(line.get("sessionId"))
    if not session:
        parts = file.parts
        session = file.stem
        if "subagents" in parts:  # SESSION/subagents/agent-ID.jsonl
            session = parts[parts.index("subagents") - 1]
    forked_from = mapping(line.get("forkedFrom"))
    return _Copy(file, session, text(forked_from.get("sessionId")))


def _session(copies: list[_Copy], oldest_of: Callable[[frozenset[Path]], Path]) -> str:
    """Return the session in which a call was made, from its original among the copies."""
    not_forked = [copy for copy in copies if not copy.forked_from]
    candidates = not_forked or copies
    file = oldest_of(frozenset(copy.file for copy in candidates))
    original = next(copy for copy in candidates if copy.file == file)
    return original.forked_from or original.session


def _oldest(files: frozenset[Path], times_of: Callable[[Path], dict[int, float]]) -> Path:
    """Return the original of files that copy each other: the one whose own lines begin first."""
    if len(files) == 1:
        (file,) = files
        return file
    times_by_file = {file: times_of(file) for file in files}

    def first_own_time(file: Path) -> float:
        other_lines = set[int]()
        for other, times in times_by_file.items():
            if other != file:
                other_lines.update(times)
        own_times = [at for line, at in times_by_file[file].items() if line not in other_lines]
        return min(own_times, default=0)

    def age_key(file: Path) -> tuple[float, float]:
        return first_own_time(file), file.stat().st_mtime

    return min(sorted(files), key=age_key)


def _times_by_line(file: Path) -> dict[int, float]:
    """Return the time of each line of a file in seconds since 1970, by the hash of its id."""
    times = {}
    for line in LineReader([file]).objects(file, lambda _: True):
        with suppress(ValueError, OverflowError):
            at = datetime.fromisoformat(text(line.get("timestamp"))).timestamp()
            times[hash(text(line.get("uuid")))] = at
    return times
