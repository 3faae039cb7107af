"""Claude Code's auto memory: a folder of Markdown files, read by tools that transcripts record.

A read is a call of ``Read`` for a file in the folder, a shell command that shows one by name, or an
attachment of relevant memories. It counts as a later need when it succeeded, and its session did
not write the file. The index, which every start loads, is no memory.
"""

import json
import os.path
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.errors import MemlabError
from memlab.evidence.harvest.found import Asked, Found, Read
from memlab.evidence.harvest.lines import mapping, sequence, text
from memlab.evidence.harvest.shell import file_uses
from memlab.evidence.harvest.transcripts import (
    Seen,
    Touch,
    projects_folder,
    seen_in,
)
from memlab.evidence.reads import MAINTENANCE, OWN_SESSION, READ, WRITE
from memlab.sources.recognising import MEMORY_INDEX

NAME: Final = "a Claude Code memory folder"

_PROJECTS: Final = "projects"
_WRITERS: Final = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_SEARCHERS: Final = frozenset({"Grep", "Glob"})
_RELEVANT: Final = "relevant_memories"
_HOME: Final = "~"

IS_INDEX: Final = f"uses of {MEMORY_INDEX}, which every start loads"
ELSEWHERE: Final = "reads of a folder of the same name in another place"
NO_MEMORY: Final = "files that are no memories"
SEARCHES: Final = "searches over several files"
LOADED: Final = "attachments that were loaded without being asked for"


def recognises(asked: Asked) -> bool:
    """Whether the source is a memory folder, or a folder with one such in it."""
    return bool(_memory_folders(asked.path))


def find(asked: Asked) -> Found:
    """Return the reads of the files in a memory folder."""
    folder = _the_one(asked.path)
    beside = folder.parent.parent if folder.parent.parent.name == _PROJECTS else None
    root = projects_folder(asked, beside=beside)
    found = Found()
    look = _Look(_Folder(folder))
    seen = seen_in(root, look, found, asked.progress)
    found.left_out.update(look.left_out.values())
    uses = [_use(one, asked.before) for one in _of_one_folder(seen, found)]
    found.writes = [use for use in uses if use.kind == WRITE]
    before = [use for use in asked.before.values() if use.kind == WRITE]
    written = _first_writes([*before, *found.writes])
    for use in uses:
        if use.kind != WRITE:
            read = _judged(use, written)
            (found.reads if read.kind == READ else found.apart).append(read)
    if not found.files:
        found.notes.append(f"there are no transcripts in {root}; name their folder: --transcripts")
    found.notes.append(
        "Claude Code deletes transcripts after 30 days (cleanupPeriodDays): harvest more often, "
        "and the log keeps what they said"
    )
    found.store = str(folder)
    return found


class _Place(NamedTuple):
    """Where a path lies: in the folder as it is named there, and by what name."""

    folder: str
    name: str


class _Folder:
    """Says which paths lie in a memory folder, whatever a transcript calls it.

    A transcript from another machine, or from inside a container, names the folder by another path.
    """

    def __init__(self, folder: Path) -> None:
        self.called = {str(folder), str(folder.resolve())}
        self._tail = (
            f"/{_PROJECTS}/{folder.parent.name}/{folder.name}"
            if folder.parent.parent.name == _PROJECTS
            else None
        )
        home = str(Path.home())
        self._at_home = {
            _HOME + each.removeprefix(home) for each in self.called if each.startswith(home + "/")
        }
        if self._tail is not None:
            self._at_home.add(f"{_HOME}/.claude{self._tail}")

    def place(self, path: str) -> _Place | None:
        """Return where a path lies in the folder; None where it does not."""
        if re.match(r"[A-Za-z]:\\", path):
            path = path.replace("\\", "/")
        path = re.sub(r"^/{2,}", "/", os.path.normpath(path))
        above = path
        while "/" in above:
            above, _, _ = above.rpartition("/")
            name = path[len(above) + 1 :]
            if above in self.called:
                return _Place("", name)
            if above in self._at_home:
                return _Place(_HOME, name)
            if self._tail is not None and above.endswith(self._tail):
                return _Place(above, name)
        return None

    def holds(self, path: str) -> bool:
        """Whether a path is the folder itself or lies in it."""
        return self.place(f"{path}/x") is not None


class _Look:
    """Finds what calls do with the files of one memory folder."""

    def __init__(self, folder: _Folder) -> None:
        self._folder = folder
        self._needles = [
            [forms_in_json(name) for name in (path.parent.name, path.name)]
            if path.parent != Path.home()  # which may stand as ~
            else [forms_in_json(path.name)]
            for path in map(Path, folder.called)
        ]
        """No path leads into the folder without these names, from a working folder or by itself."""
        self.left_out: dict[str, str] = {}
        """By call: why it is no read."""

    def concerns(self, line: bytes) -> bool:
        return (b'"tool_use"' in line or b'"attachment"' in line) and any(
            all(any(form in line for form in forms) for forms in names) for names in self._needles
        )

    def touches(self, line: dict[str, Any]) -> Iterator[Touch]:
        cwd = text(line.get("cwd")) or None
        for block in map(mapping, sequence(mapping(line.get("message")).get("content"))):
            if block.get("type") == "tool_use":
                call = text(block.get("id")) or _named(line)
                yield from self._of_call(call, text(block.get("name")), block, cwd)
        attachment = mapping(line.get("attachment"))
        if attachment:
            yield from self._of_attachment(attachment, line)

    def _of_call(
        self, call: str, tool: str, block: dict[str, Any], cwd: str | None
    ) -> Iterator[Touch]:
        given = mapping(block.get("input"))
        if tool == "Read" or tool in _WRITERS:
            path = _absolute(text(given.get("file_path")) or text(given.get("path")), cwd)
            yield from self._of_file(call, tool, path, writes=tool in _WRITERS)
        elif tool == "Bash":
            for use in file_uses(text(given.get("command")), cwd):
                if use.verb != "search":
                    yield from self._of_file(call, tool, use.path, writes=use.verb == "write")
                elif self._folder.holds(use.path):
                    self.left_out[call] = SEARCHES
        elif tool in _SEARCHERS and self._folder.holds(_absolute(text(given.get("path")), cwd)):
            self.left_out[call] = SEARCHES

    def _of_attachment(self, attachment: dict[str, Any], line: dict[str, Any]) -> Iterator[Touch]:
        call = _named(line)
        if attachment.get("type") != _RELEVANT:
            self.left_out[call] = LOADED
            return
        for memory in map(mapping, sequence(attachment.get("memories"))):
            for touch in self._of_file(call, _RELEVANT, text(memory.get("path")), writes=False):
                yield touch._replace(needs_result=False)

    def _of_file(self, call: str, tool: str, path: str, *, writes: bool) -> Iterator[Touch]:
        place = self._folder.place(path) if path else None
        if place is None:
            return
        if place.name != MEMORY_INDEX and "/" not in place.name and place.name.endswith(".md"):
            yield Touch(call, place.name, tool, writes, place.folder)
        elif not writes:
            self.left_out[f"{call} {path}"] = IS_INDEX if place.name == MEMORY_INDEX else NO_MEMORY


def forms_in_json(name: str) -> set[bytes]:
    """Return a name as JSON has it, written in ASCII or not."""
    forms = (json.dumps(name, ensure_ascii=ascii_only) for ascii_only in (True, False))
    return {form[1:-1].encode(errors="surrogateescape") for form in forms}


def _named(line: dict[str, Any]) -> str:
    """Return what tells a line from others; a copy has the same."""
    return text(line.get("uuid")) or f"at {text(line.get('timestamp'))}"


def _absolute(path: str, cwd: str | None) -> str:
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:\\", path) or cwd is None:
        return path
    return f"{cwd}/{path}" if path else cwd


def _of_one_folder(seen: list[Seen], found: Found) -> list[Seen]:
    """Keep the touches of the folder itself; where there is none, of its namesake elsewhere."""
    places = Counter(one.touch.place for one in seen if one.touch.place != _HOME)
    kept = "" if "" in places or not places else min(places, key=lambda p: (-places[p], p))
    if kept:
        found.notes.append(f"the transcripts call this folder {kept}")
    ours = [one for one in seen if one.touch.place in {kept, _HOME}]
    others = sum(not one.touch.writes for one in seen) - sum(not o.touch.writes for o in ours)
    if others:
        found.left_out[ELSEWHERE] += others
    return ours


def _use(one: Seen, before: Mapping[str, Read]) -> Read:
    """Return what happened as a log has it; the session that was found first stands."""
    touch = one.touch
    name = f"claude-code:{touch.call}:{touch.memory_id}"
    known = before.get(name)
    session = one.session if known is None or known.session is None else known.session
    kind = WRITE if touch.writes else READ
    return Read(touch.memory_id, one.at, name, touch.how, session, kind)


def _first_writes(writes: Iterable[Read]) -> dict[str, dict[str, datetime]]:
    """Return when each session first changed each memory: memory -> session -> time."""
    written: dict[str, dict[str, datetime]] = defaultdict(dict)
    for write in writes:
        session = write.session or ""
        known = written[write.memory_id].get(session, write.at)
        written[write.memory_id][session] = min(write.at, known)
    return written


def _judged(read: Read, written: dict[str, dict[str, datetime]]) -> Read:
    """Return a read with what kind of read it is."""
    first = written.get(read.memory_id, {}).get(read.session or "")
    kind = READ if first is None else OWN_SESSION if read.at >= first else MAINTENANCE
    return read._replace(kind=kind)


def _memory_folders(path: Path) -> list[Path]:
    """Return the memory folders that a path may mean: itself, its project's, its projects'."""
    if not path.is_dir():
        return []
    in_a_project = path.parent.parent.name == _PROJECTS and path.name == "memory"
    if (path / MEMORY_INDEX).is_file() or in_a_project:
        return [path]
    below = [path] if path.name == _PROJECTS else [path / _PROJECTS]
    if path.parent.name == _PROJECTS:
        return [path / "memory"] if (path / "memory").is_dir() else []
    return sorted(each for root in below for each in root.glob("*/memory") if each.is_dir())


def _the_one(path: Path) -> Path:
    folders = _memory_folders(path)
    if len(folders) == 1:
        return folders[0]
    names = ", ".join(str(each) for each in folders[:5])
    more = f" and {len(folders) - 5:,} more" if len(folders) > 5 else ""
    raise MemlabError(f"{path} has several memory folders; name one: {names}{more}")
