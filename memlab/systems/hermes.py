"""The memory files of Hermes: entries of text with a section sign between them. Read-only.

``MEMORY.md`` has the agent's notes, and ``USER.md`` what it knows of its user. A start loads all of
both. Each file has a limit in characters, beyond which Hermes refuses to add an entry. Entries have
no ids and no times: the key of a memory is its file and a digest of its text.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, Final

from memlab.errors import ChangedWhileReadError, StoreError
from memlab.files import ordinary_file
from memlab.items import CHARS_PER_TOKEN
from memlab.sources.base import About, Diagnostic, FileSource, WholeReader
from memlab.sources.capabilities import StartLimit
from memlab.sources.readers import Key, Reader
from memlab.sources.reads import text as readable
from memlab.sources.recognition import Evidence, Strength, spellings, strongest
from memlab.store.records import check_canonical, encoded, with_place
from memlab.store.shapes import fields, integer, text
from memlab.text import TextPage, failure_message

NOTES: Final = "MEMORY.md"
USER: Final = "USER.md"
FILES: Final = (NOTES, USER)
DELIMITER: Final = "\n§\n"
LIMITS: Final = {NOTES: 2_200, USER: 1_375}
"""Default limit of each file in characters, in Hermes."""

_SETTINGS: Final = {NOTES: "memory_char_limit", USER: "user_char_limit"}
_CONFIGURATION: Final = "config.yaml"
_HOME: Final = ".hermes"
_MEMORIES: Final = "memories"
_MAX_FILE_BYTES: Final = 2**24
"""Maximum size in bytes of a file that is read."""
_RECORD: Final = fields({"key": text, "file": text, "text": text, "place": integer(0)})


def _is_of_home(folder: Path) -> bool:
    """Return whether a folder is ``memories`` in Hermes' home or in a profile of it."""
    configured_home = os.environ.get("HERMES_HOME", "")
    homes = spellings(Path(configured_home).expanduser()) if configured_home else []
    for path in spellings(folder):
        is_in_home = any(parent.name == _HOME or parent in homes for parent in path.parents)
        if path.name == _MEMORIES and is_in_home:
            return True
    return False


def _has_entries(folder: Path) -> bool:
    """Return whether one of the files has a line with a section sign alone."""
    return any(DELIMITER in _content(folder / name) for name in FILES)


EVIDENCE: Final = (
    Evidence(
        Strength.PLACE,
        "is the memories folder in .hermes or in a profile of it, or in the folder that "
        "HERMES_HOME names",
        _is_of_home,
    ),
    Evidence(
        Strength.CONTENT,
        "has a MEMORY.md or USER.md with a line § between entries",
        _has_entries,
    ),
)


class Hermes(FileSource):
    """The entries of the memory files of a Hermes home or profile."""

    scheme = "hermes"
    endings = ()
    default_locations = ("HERMES_HOME", _HOME, _MEMORIES)

    def __init__(self, location: str | PathLike[str]) -> None:
        super().__init__(location)
        if not _has_file(self.path) and _has_file(self.path / _MEMORIES):
            self.path = self.path / _MEMORIES

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:
        """Return a folder with Hermes' files; None for another path."""
        match = cls.evidence_for(path, tables)
        if match is None:
            return None
        store, _ = match
        return store

    @classmethod
    def evidence_for(
        cls, path: Path, tables: Mapping[str, frozenset[str]]
    ) -> tuple[Path, Evidence] | None:
        """Return the folder and the strongest evidence that it is Hermes'; None for none."""
        if tables or not path.is_dir() or not _has_file(path):
            return None
        evidence = strongest(EVIDENCE, path)
        return None if evidence is None else (path, evidence)

    def files(self) -> list[Path]:
        """Return the paths of both files, which need not exist."""
        return [self.path / name for name in FILES]

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Read both files at one moment."""
        records: dict[Key, bytes] = {}
        for number, (name, entries) in enumerate(self.entries().items()):
            for place, entry in enumerate(entries):
                key = f"{name}#{_digest(entry)}"
                fields_of_entry = {"key": key, "file": name, "text": entry}
                # The entries of both files take turns, so that no two have one position.
                position = len(FILES) * place + number
                records[key] = with_place(encoded(fields_of_entry), position)
        yield WholeReader(self, records)

    def entries(self) -> dict[str, list[str]]:
        """Return the entries of each existing file without duplicates, as Hermes loads them."""
        if not self.path.is_dir():
            raise StoreError(f"there is no folder {self.path}; check the path")
        before = self._stamps()
        entries = {}
        for name in FILES:
            try:
                content = _read(self.path / name)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                problem = f"{self.path / name} cannot be read"
                raise StoreError(failure_message(problem, error, "its permissions")) from error
            entries[name] = entries_in(content)
        if not entries:
            raise StoreError(f"{self.path} has nothing of Hermes': neither {NOTES} nor {USER}")
        if self._stamps() != before:
            raise ChangedWhileReadError(f"{self.path} is written while it is read; try again")
        return entries

    def _stamps(self) -> list[tuple[int, int] | None]:
        """Return inode and time of change of each file; None for a missing one."""
        stamps: list[tuple[int, int] | None] = []
        for path in self.files():
            try:
                status = path.stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((status.st_ino, status.st_mtime_ns))
        return stamps

    @property
    def read_only_reason(self) -> str:
        """The reason, with the tool to use instead."""
        return (
            f"memlab deletes nothing from {self.name}: a running Hermes keeps its entries in "
            "memory and writes them back; nothing was changed: keep fewer by its memory tool, "
            f"action remove, or edit the files while it is stopped, or raise {_SETTINGS[NOTES]} in "
            f"{self.path.parent / _CONFIGURATION}"
        )

    def row_in(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of an entry as a row. What is known of the user is load-bearing."""
        title, _, body = parsed["text"].partition("\n")
        return {
            "position": parsed["place"],
            "key": parsed["key"],
            "memory_id": parsed["key"],
            "kind": "semantic" if parsed["file"] == USER else "episodic",
            "title": title,
            "body": body,
            "tags_json": json.dumps([parsed["file"].removesuffix(".md").lower()]),
            "authored_by": "hermes",
            "created_at": None,
            "confidence": 1.0,
            "at_start": parsed["text"] + DELIMITER,
            "loaded_at_start": True,
        }

    def check_record(self, key: Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Check that an archived record is that of an entry with this key."""
        check_canonical(record, parsed)
        _RECORD(parsed)
        if parsed["key"] != key or key != f"{parsed['file']}#{_digest(parsed['text'])}":
            raise ValueError(f"it is a record of {parsed['key']!r:.80}")

    def limit_of(self, name: str) -> int:
        """Return the limit of a file in characters, by ``config.yaml`` or by default."""
        # A line NAME: NUMBER with spaces and a comment, such as "memory_char_limit: 2200  # more".
        pattern = rf"(?m)^[ \t]*{_SETTINGS[name]}[ \t]*:[ \t]*([0-9]{{1,9}})[ \t]*(?:#.*)?$"
        match = re.search(pattern, _content(self.path.parent / _CONFIGURATION))
        return LIMITS[name] if match is None else int(match[1])

    def start_limit(self) -> StartLimit:
        """Return the limit of a start: that of the notes, and the size of the user's file.

        The limits of the two files are separate, and only notes are prunable.
        """
        notes = self.limit_of(NOTES)
        user = self.sizes().get(USER, 0)
        explanation = (
            f"{notes:,} characters of {NOTES}, Hermes' {_SETTINGS[NOTES]}, and the {user:,} of "
            f"{USER}"
        )
        return StartLimit((notes + user) // CHARS_PER_TOKEN, explanation)

    def sizes(self) -> dict[str, int]:
        """Return the number of characters of each existing file, as Hermes counts them."""
        return {name: len(DELIMITER.join(entries)) for name, entries in self.entries().items()}

    def extra_report(self) -> About:
        """Return a report on the limits."""
        facts = []
        counts = {}
        for name, size in self.sizes().items():
            limit = self.limit_of(name)
            facts.append((name, f"{size:,} of at most {limit:,} characters, all loaded"))
            counts[name] = {"characters": size, "limit": limit}
        facts.append(("times", "none: Hermes writes down neither when it stores nor when it reads"))
        facts.append(("deletion", "none by memlab: a running Hermes writes its entries back"))
        return About(TextPage("Hermes", facts, []), {"store": self.name, "files": counts})

    def diagnostics(self) -> Sequence[Diagnostic]:
        """Return a finding that counts the files at their limit, to which Hermes adds no entry."""
        full_files = []
        for name, size in self.sizes().items():
            limit = self.limit_of(name)
            if size >= limit:
                full_files.append(f"{name} has {size:,} of at most {limit:,} characters")
        summary = "every file is below its limit of characters"
        if full_files:
            summary = "; ".join(full_files)
        return [
            Diagnostic(
                name="limit",
                occurrences=len(full_files),
                summary=summary,
                advice="Hermes adds no entry there: remove or shorten some with its memory tool",
            )
        ]


def entries_in(content: str) -> list[str]:
    r"""Return the entries of a file without duplicates, as Hermes reads them.

    >>> entries_in("uses uv\n§\nruns Debian\nat home\n§\nuses uv\n")
    ['uses uv', 'runs Debian\nat home']
    """
    entries = [entry.strip() for entry in content.split(DELIMITER)]
    return list(dict.fromkeys(entry for entry in entries if entry))


def _has_file(folder: Path) -> bool:
    """Return whether a folder has one of the files."""
    with suppress(OSError, ValueError):
        return any((folder / name).is_file() for name in FILES)
    return False


def _read(path: Path) -> str:
    """Return the text of a regular file. Invalid UTF-8 is replaced."""
    with ordinary_file(path, max_bytes=_MAX_FILE_BYTES) as file:
        return file.read().decode(errors="replace")


def _content(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return _read(path)
    except (OSError, ValueError):
        return ""


def _digest(entry: str) -> str:
    """Return a short digest that identifies an entry in its file.

    Lone surrogates, which cannot be encoded, are replaced as in a record.
    """
    return blake2b(readable(entry).encode(), digest_size=5).hexdigest()
