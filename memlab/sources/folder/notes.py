"""Notes: a folder of Markdown files, and of folders of these, with no index that names them."""

from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

from memlab.sources.base import About, place_of
from memlab.sources.folder.files import FileCopy
from memlab.sources.folder.journal import FolderMoment
from memlab.sources.folder.source import FolderSource, Found
from memlab.sources.reads import moment_of_seconds
from memlab.sources.reads import text as readable
from memlab.store.shapes import anything, fields, listed, text, truth, whole
from memlab.text import Sheet, counted

NOTE: Final = ".md"
"""How the names of notes end."""
_MARKS: Final = "#-*_=> \t\r"
"""What Markdown puts around a title."""
_PLACE: Final = fields(
    {
        "position": whole(),
        "said": listed(anything, most=0),
        "created_at": text,
        "loaded": truth,
        "judged": truth,
    }
)


class NotesSource(FolderSource):
    """A folder of notes."""

    place = staticmethod(_PLACE)

    @classmethod
    def is_note(cls, name: str) -> bool:
        """Whether a file, by its path in the folder, is a note, and one that may be deleted."""
        above, _, last = name.rpartition("/")
        return last.endswith(NOTE) and not last.startswith(".") and cls.enters(above)

    @abstractmethod
    def at_start(self, name: str, text: str) -> str | None:
        """Return what a start loads because of a note; None for all of it."""

    def facts(self, moment: FolderMoment) -> dict[str, str]:
        """Return what there is to say of the notes, by name."""
        others = [each for each in moment.listing.others if self.enters(each) or self.is_note(each)]
        found = {}
        if others:
            names = counted(len(others), "names")
            found["not read"] = f"{names} of links or of what is no file, {others[0]} first"
        if moment.is_pending:
            found["pending"] = "a change was cut short; the next one takes it back first"
        return found

    def about(self) -> About | None:
        """Return what there is to say of the notes."""
        found = self.seen(self.facts)
        page = Sheet(f"notes in {self.name}", list(found.items()))
        return About(page, found) if found else None

    def row(self, found: Found, file: FileCopy | None) -> dict[str, Any]:
        """Return a note as a row: its first line is the title, else its name is."""
        whole = readable("" if file is None else file.data.decode(errors="replace"))
        line, _, rest = whole.strip().partition("\n")
        title, body = line.strip(_MARKS), rest.strip()
        if not title:
            title, body = PurePosixPath(found.key).stem, whole.strip()
        return {
            "kind": "episodic" if found.place["judged"] else "semantic",
            "title": title,
            "body": body,
            "tags_json": "[]",
            "authored_by": self.scheme,
            "created_at": found.place["created_at"],
            "at_start": self.at_start(found.key, whole),
            "loaded_at_start": found.place["loaded"],
        }

    def file_of(self, key: str) -> str:
        """Return the key where it is a note's; no other file ever comes out of an archive."""
        return key if self.is_note(key) else ""


def known_since(moment: FolderMoment, name: str, born: Mapping[str, datetime]) -> datetime:
    """Return when a file was first committed or last written, whichever is earlier."""
    written = moment_of_seconds(moment.rely_on(name).written // 1_000 / 1e6)
    at = written or datetime.fromtimestamp(0, UTC)  # of a time beyond the years that there are
    return min(at, born.get(name, at))


def note_of(name: str, born: datetime, *, loaded: bool, judged: bool) -> Found:
    """Return a note that was first there at `born`; one that is not judged is load-bearing."""
    milliseconds = int(born.timestamp() * 1_000)
    place = {
        "position": place_of(milliseconds, name),
        "created_at": datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(),
        "loaded": loaded,
        "judged": judged,
    }
    return Found(name, name, (), place)
