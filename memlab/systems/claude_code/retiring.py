"""``RETIRED.md`` beside the index: the lines of retired memories, which a hand may edit too."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from memlab.clock import file_clock
from memlab.errors import ArchiveError, CompactionError, StoreError
from memlab.sources.base import Key
from memlab.sources.folder.change import FolderChange, Parts
from memlab.sources.folder.files import FileCopy
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import FolderSource, FolderWriter
from memlab.store.shapes import fields, listed
from memlab.systems.claude_code import index as indexes
from memlab.systems.claude_code.index import INDEX, RETIRED, IndexEntry, MemoryIndex
from memlab.systems.claude_code.markdown import FileNames
from memlab.systems.claude_code.view import FolderView, retired_bytes, with_retired

HEAD: Final = b"# Retired\n\nNot loaded at start. Look here when something is missing.\n\n"
POINTER: Final = f"- [Retired memories]({RETIRED}): not loaded at start\n"
KEPT: Final = fields({name: listed(indexes.ENTRY) for name in ("said", "retired", "pointer")})
"""What the index and ``RETIRED.md`` said of a memory, and the index of that file, in a plan."""


class RetiringWriter(FolderWriter):
    """A folder that is locked and whose memories are retired, and returned."""

    def __init__(
        self,
        source: FolderSource,
        change: FolderChange,
        view_of: Callable[[FolderMoment], FolderView],
    ) -> None:
        super().__init__(source, change)
        self.view_of = view_of

    def supersede(
        self, links: Mapping[Key, str | None], kept: Mapping[Key, str] | None = None
    ) -> int:
        """Let the lines of some memories change sides, to where they were where that is `kept`."""
        moment, names, index = self._seen()
        if RETIRED in moment.listing.others:
            raise StoreError(
                f"{self._change.folder.path / RETIRED} is a link or no ordinary file; nothing was "
                "changed: put a file there, or take it away"
            )
        said, known = indexes.entries_of(index, names), _checked(kept or {})
        leave = [str(key) for key, by in links.items() if by is not None]
        back = [str(key) for key, by in links.items() if by is None]

        raw = retired_bytes(moment) or HEAD
        aside = indexes.entries_of(MemoryIndex(raw), names)
        returning = {name: list(aside.get(name, ())) for name in back}
        text = indexes.remove_entries(raw, returning, names.names, names.folder)
        exact = {
            name: known[name]["retired"] for name in leave if known.get(name, {}).get("retired")
        }
        if exact:
            text = indexes.insert_entries(text, exact, names.names, names.folder)
        text += b"" if text.endswith(b"\n") else b"\n"
        lines = [_line_of(name, said.get(name, ())) for name in leave if name not in exact]
        text += indexes.encoded("".join(lines))

        going = {name: Parts(None, list(said.get(name, ()))) for name in leave}
        coming = {}
        for name, entries in returning.items():
            top = _at_the_top(index, name, _line_of(name, entries), skip=leave, names=names)
            coming[name] = Parts(None, known.get(name, {}).get("said") or [top])
        is_empty = text.strip() == HEAD.strip()
        if RETIRED in moment.names:
            pointer = list(said.get(RETIRED, ())) if is_empty else None
            going[RETIRED] = Parts(moment.read(RETIRED), pointer)
        if not is_empty:
            around = os.fstat(self._change.folder.handle)
            like = moment.index or FileCopy(RETIRED, b"", 0o600, 0, (around.st_uid, around.st_gid))
            file = like._replace(name=RETIRED, data=text, written=file_clock())
            before = next((each["pointer"] for each in known.values() if each["pointer"]), None)
            entry = before or [_at_the_top(index, RETIRED, POINTER, skip=leave, names=names)]
            coming[RETIRED] = Parts(file, None if RETIRED in said else entry)
        self._change.take_out(going)
        self._change.put_back(coming)
        self._check_moved(leave, back)
        return len(links)

    def _seen(self) -> tuple[FolderMoment, FileNames, MemoryIndex]:
        """Return the folder as it is now, what its files are called, and its index."""
        view = self.view_of(moment := self._now())
        return moment, with_retired(view.names), view.index

    def _check_moved(self, leave: Iterable[str], back: Iterable[str]) -> None:
        """Check that the index names just those of the memories that it should."""
        moment, names, index = self._seen()
        named, retired = index.named(names), MemoryIndex(retired_bytes(moment)).named(names)
        wrong = [each for each in leave if each in named or each not in retired]
        if wrong := [*wrong, *(each for each in back if each not in named)]:
            raise CompactionError(
                f"the lines of {wrong[0]} and {len(wrong) - 1:,} more could not be moved between "
                f"{INDEX} and {RETIRED} in {self._change.folder.path}; all was taken back"
            )


def _line_of(name: str, entries: Sequence[IndexEntry]) -> str:
    """Return the line that stands for a file alone: its own entry, or a plain link."""
    for each in entries:
        if each["entry"] and list(each["files"]) == [name]:
            text = str(each["text"])
            return text if text.endswith("\n") else f"{text}\n"
    return f"- [{name}](<{name}>)\n"


def _at_the_top(
    index: MemoryIndex, name: str, line: str, *, skip: Iterable[str], names: FileNames
) -> IndexEntry:
    """Return an entry that goes above the first of the index that stays, so that it is loaded."""
    gone = {RETIRED, *skip}
    stays = [block for block in index.blocks if not gone & {*block.files(names)}]
    first = next((b for b in stays if b.is_entry), next((b for b in stays if b.text.strip()), None))
    below = [indexes.digest_of(indexes.encoded(indexes.lines_of(first.text)[0]))] if first else []
    said = {"line": 0, "text": line, "entry": True, "whole": "", "files": [name]}
    return said | {"above": [], "below": below}


def _checked(kept: Mapping[Key, str]) -> dict[str, Any]:
    """Return what a plan kept of lines; an archive may be anybody's."""
    found = {}
    for key, text in kept.items():
        try:
            found[str(key)] = json.loads(text)
            KEPT(found[str(key)])
        except (ValueError, TypeError, RecursionError) as error:
            raise ArchiveError(
                f"the plan does not say where the lines of {key!r:.80} stood ({error}); nothing "
                "was restored: move them by hand"
            ) from error
    return found
