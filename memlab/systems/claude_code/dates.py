"""When a memory's file was first there, by front matter, times, git and calls that write it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any, Final, NamedTuple

from memlab.clock import moment_and_zone
from memlab.sources.base import Key
from memlab.sources.reads import Found, LineReader, moment
from memlab.sources.transcripts import calls_in, transcript_files
from memlab.systems.claude_code.markdown import FrontMatter

FROM_FRONT_MATTER: Final = "front matter"
FROM_TRANSCRIPTS: Final = "transcripts"
FROM_GIT: Final = "git"
FROM_FILE: Final = "file time"
FROM_LINES: Final = "line of MEMORY.md"
PROJECTS: Final = "projects"
"""The folder in which Claude Code keeps what belongs to projects."""

_TOOLS: Final = frozenset({"Write", "Edit", "MultiEdit"})
_CALL: Final = re.compile(rb'"name"\s*:\s*"(?:Write|Edit|MultiEdit)"')

Call = tuple[tuple[str, ...], str, datetime]
"""The last three folders of a path, the file's name, and when the call was."""


class Dated(NamedTuple):
    """When a file was first there, how that is known, and what tells it from others of then."""

    at: datetime
    how: str
    tie: Key


def earliest(
    name: str, head: FrontMatter, heard: Mapping[str, datetime | None], written: int
) -> Dated:
    """Return the earliest that is heard of a file: of itself, of others by how, its own time."""
    known = []
    for field in ("created", "modified"):
        with suppress(ValueError):
            at, _ = moment_and_zone(head.fields.get(field, "").strip())
            known.append((at, FROM_FRONT_MATTER))
    known += [(at, how) for how, at in heard.items() if at is not None]
    changed = datetime.fromtimestamp(written // 1_000 / 1e6, UTC)
    if not known or changed.year > 1980:  # as which archives write that keep none
        known.append((changed, FROM_FILE))
    return Dated(*min(known, key=lambda pair: pair[0]), name)


def dated_by_lines(found: Mapping[str, Dated], lines: Iterable[str]) -> dict[str, Dated]:
    """Return when each file was first there, the order of an index taken into account.

    A copy gives files new times. Those that are known by these alone, and were written at once, are
    older than the next of `lines` whose time is known.
    """
    dates = dict(found)
    named = [name for name in lines if name in dates]
    copied = _copied([name for name in named if dates[name].how == FROM_FILE], dates)
    known: datetime | None = None
    # Counted from the newest, so that those that stay are told apart as before when others go.
    newer: Counter[datetime] = Counter()
    for name in named if _is_newest_first(named, copied, dates) else reversed(named):
        if name not in copied:
            known = dates[name].at - timedelta(milliseconds=1)
            continue
        at = copied[name] if known is None else min(copied[name], known)
        dates[name] = Dated(at, FROM_LINES, -1 - newer[at])
        newer[at] += 1
    return dates


def _copied(names: Sequence[str], dates: Mapping[str, Dated]) -> dict[str, datetime]:
    """Return which files were written at once, and the minute in which that began."""
    found: dict[str, datetime] = {}
    for one, other in pairwise(sorted(names, key=dates.__getitem__)):
        if dates[other].at - dates[one].at <= timedelta(seconds=2):
            begun = found.setdefault(one, dates[one].at.replace(second=0, microsecond=0))
            found[other] = begun
    return found


def _is_newest_first(
    named: Sequence[str], copied: Mapping[str, datetime], dates: Mapping[str, Dated]
) -> bool:
    """Whether newer lines stand above older ones, by the files whose times are known."""
    own = [(place, dates[name].at) for place, name in enumerate(named) if name not in copied]
    falls = [later < earlier for (_, earlier), (_, later) in pairwise(own)]
    if copied:  # what was written since stands at the newer end, too
        places = [place for place, name in enumerate(named) if name in copied]
        since = max(copied.values())
        falls += [place < places[len(places) // 2] for place, at in own if at > since]
    return 2 * sum(falls) > len(falls)


def is_of_project(folder: Path) -> bool:
    """Whether a folder lies where Claude Code keeps the memory of a project."""
    return folder.parent.parent.name == PROJECTS


def first_calls(folder: Path) -> dict[str, datetime]:
    """Return when any project's transcripts (worktrees have their own) first tell of each file."""
    first: dict[str, datetime] = {}
    if not is_of_project(folder):
        return first
    for path in transcript_files(folder.parent.parent, follow_links=False):
        with suppress(OSError):
            found = path.lstat()
            calls = _calls(path, found.st_size, found.st_mtime_ns) if S_ISREG(found.st_mode) else ()
            for around, name, at in calls:
                if around == folder.parts[-3:]:
                    first[name] = min(at, first.get(name, at))
    return first


@lru_cache(maxsize=2**16)
def _calls(path: Path, size: int, written: int) -> tuple[Call, ...]:  # noqa: ARG001 - another is another file
    """Return what calls in a transcript wrote."""

    def matters(line: bytes) -> bool:
        return PROJECTS.encode() in line and _CALL.search(line) is not None

    lines = LineReader([path]).objects(path, matters)
    return tuple(call for line in lines for call in _calls_in(line))


def _calls_in(line: dict[str, Any]) -> Iterator[Call]:
    at = moment(line.get("timestamp"), Found())
    for _, tool, given in calls_in(line):
        path = PurePosixPath(str(given.get("file_path")).replace("\\", "/"))
        *_, projects, project, folder, name = ("", "", "", "", *path.parts)
        if at is not None and tool in _TOOLS and projects == PROJECTS:
            yield (projects, project, folder), name, at
