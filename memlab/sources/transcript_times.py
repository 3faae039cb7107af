"""When the files of a memory folder are first heard of in the transcripts of the agent's sessions.

A file that was written, edited or read then was there then. A call that failed says nothing.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any, Final

from memlab.moments import moment_of

TOOLS: Final = frozenset({"Write", "Edit", "MultiEdit", "Read"})

Stamps = tuple[int, int]
"""Size and time of a file."""
Call = tuple[tuple[str, ...], str, datetime]
"""The last three folders of a path, the file's name, and when the call was."""

_PROJECTS: Final = "projects"
_MARK: Final = _PROJECTS.encode()
_LONGEST: Final = 2**26
_FAILED: Final = re.compile(rb'"is_error"\s*:\s*true')
_CALL: Final = re.compile(rb'"name"\s*:\s*"(?:Write|Edit|MultiEdit|Read)"')


def transcripts_of(folder: Path) -> list[Path]:
    """Return the transcripts that may tell of a project's memory, none where it is of no project.

    They lie in the folders of all projects: a session in a git worktree has the memory of the main
    checkout and a project folder of its own. ``<project>/<session>.jsonl``, those of subagents in
    folders below; links are not followed.
    """
    if not is_of_project(folder):
        return []
    found: list[Path] = []
    for project in _folders_in(folder.parent.parent):
        found += [*project.glob("*.jsonl"), *project.glob("*/subagents/**/agent-*.jsonl")]
    return sorted(path for path in found if _is_ordinary(path))


def is_of_project(folder: Path) -> bool:
    """Whether a folder lies where Claude Code keeps the memory of a project."""
    return folder.parent.parent.name == _PROJECTS


def stamps_of(paths: Iterable[Path]) -> dict[Path, Stamps]:
    """Return size and time of each file that is there."""
    found = {}
    for path in paths:
        with suppress(OSError):
            looked_at = path.lstat()
            found[path] = (looked_at.st_size, looked_at.st_mtime_ns)
    return found


def first_heard_of(folder: Path, stamps: Mapping[Path, Stamps]) -> dict[str, datetime]:
    """Return when each file of a project's memory is first heard of, by name.

    Parameters
    ----------
    folder : Path
        The folder; in the transcripts it may go by another path to the same project.
    stamps : mapping of Path to tuple
        What :func:`stamps_of` returned of files of JSON lines. What cannot be read in them is
        passed over. A file is read once for the memories of all projects.
    """
    first: dict[str, datetime] = {}
    for path, stamp in stamps.items():
        for around, name, at in _calls(path, stamp):
            if around == folder.parts[-3:] and (name not in first or at < first[name]):
                first[name] = at
    return first


@lru_cache(maxsize=2**16)
def _calls(path: Path, stamp: Stamps) -> tuple[Call, ...]:  # noqa: ARG001 - another is another file
    """Return what calls in a transcript were about, unless the call failed."""
    calls: dict[str, Call] = {}
    failed: set[str] = set()
    with suppress(OSError), path.open("rb") as lines:
        for line in _lines(lines):
            if _MARK in line and _CALL.search(line):
                calls |= _calls_of(_parsed(line))
            elif calls and _FAILED.search(line):
                failed |= set(_failed(_parsed(line)))
    return tuple(call for number, call in calls.items() if number not in failed)


def _lines(opened: Any) -> Iterator[bytes]:
    """Yield the lines of a file that are not too long to be held."""
    while line := opened.readline(_LONGEST):
        if len(line) < _LONGEST or line.endswith(b"\n"):
            yield line
        else:
            while (rest := opened.readline(_LONGEST)) and not rest.endswith(b"\n"):
                pass


def _parsed(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return {}


def _content(parsed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    message = parsed.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for each in content if isinstance(content, list) else ():
        if isinstance(each, dict):
            yield each


def _calls_of(parsed: dict[str, Any]) -> dict[str, Call]:
    try:
        at = moment_of(str(parsed.get("timestamp")))
    except ValueError:
        return {}
    found: dict[str, Call] = {}
    for each in _content(parsed):
        wanted = each.get("type") == "tool_use" and each.get("name") in TOOLS
        arguments = each.get("input")
        if wanted and isinstance(arguments, dict):
            path = str(arguments.get("file_path")).replace("\\", "/")
            *_, projects, project, folder, name = ("", "", "", "", *PurePosixPath(path).parts)
            if projects == _PROJECTS:
                found[str(each.get("id"))] = ((projects, project, folder), name, at)
    return found


def _failed(parsed: dict[str, Any]) -> Iterator[str]:
    for each in _content(parsed):
        if each.get("type") == "tool_result" and each.get("is_error") is True:
            yield str(each.get("tool_use_id"))


def _folders_in(projects: Path) -> list[Path]:
    with suppress(OSError):
        return [each for each in projects.iterdir() if each.is_dir() and not each.is_symlink()]
    return []


def _is_ordinary(path: Path) -> bool:
    with suppress(OSError):
        return S_ISREG(path.lstat().st_mode)
    return False
