"""The base class of a store that is one text file with a memory a line, which its agent locks."""

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_SH, flock
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Final

from memlab.errors import StoreError
from memlab.files import ordinary_file, permissions_like, write_whole
from memlab.sources.base import FileSource, WholeReader, WholeWriter
from memlab.sources.readers import Key, Reader, Writer
from memlab.store.archive.location import archive_path
from memlab.store.records import encoded, with_place, without_place
from memlab.store.shapes import anything, fields, integer, text

_MAX_FIRST_LINE: Final = 2**24
"""Maximum number of bytes that are read of a first line."""


class LockedLines(FileSource):
    r"""A text file that is read whole, and replaced whole, while it is locked (``flock``).

    The agent must lock the file for each write too, and open it again if it was replaced. A record
    has the fields of its memory, the ``line`` and its ``place`` among the lines.

    Attributes
    ----------
    key_field : str
        The field that is the key of a memory.

    Examples
    --------
    >>> class Notes(LockedLines):
    ...     scheme = "notes"
    ...     endings = (".jsonl",)
    ...
    ...     @classmethod
    ...     def fields_in(cls, line):
    ...         memory = json.loads(line)
    ...         fields({"id": text, "title": text})(memory)
    ...         return memory
    >>> path = Path("notes.jsonl")
    >>> _ = path.write_text('{"id": "m1", "title": "Use make"}\n')
    >>> Notes.recognise(path, {}) == path
    True
    """

    key_field: ClassVar[str] = "id"

    @classmethod
    @abstractmethod
    def fields_in(cls, line: str) -> dict[str, Any]:
        """Return the fields of the memory in a line; raise ValueError if it has none."""

    @classmethod
    def recognise(cls, path: Path, tables: Mapping[str, frozenset[str]]) -> Path | None:  # noqa: ARG003
        """Return a file whose first line is a memory, or an empty one with an archive."""
        if path.suffix not in cls.endings:
            return None
        with suppress(OSError, ValueError), ordinary_file(path) as file:
            first_line = file.readline(_MAX_FIRST_LINE).decode().removesuffix("\n")
            is_emptied = not first_line and archive_path(path).exists()
            if not is_emptied:
                cls._record_of(first_line)  # raises ValueError if it is no memory
            return path
        return None

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Read the whole file under its lock."""
        with self._locked(LOCK_SH) as content:
            yield WholeReader(self, self._records_in(content))

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Rewrite the file when the block ends. Restored lines return to their former place."""
        with self._locked(LOCK_EX) as content:
            before = self._records_in(content)
            after = before.copy()
            yield WholeWriter(self, after)
            lines = []
            restored = []
            for key, record in after.items():
                memory = json.loads(record)
                if key in before:
                    lines.append(memory["line"])
                else:
                    restored.append(memory)
            for memory in sorted(restored, key=itemgetter("place")):
                lines.insert(memory["place"], memory["line"])
            new_content = _joined(lines, content)
            write_whole(self.path.resolve(), new_content, permissions=permissions_like(self.path))

    def check_record(self, key: Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Check that an archived record is that of its line, and of this key."""
        super().check_record(key, record, parsed)
        fields({"place": integer(0), "line": text}, others=anything)(parsed)
        line = parsed["line"]
        is_of_line = "\n" not in line and self._record_of(line) == without_place(record)
        if not is_of_line or parsed[self.key_field] != key:
            raise ValueError("it does not agree with its line, or its key is another one")

    @contextmanager
    def _locked(self, lock: int) -> Iterator[str]:
        """Lock the file and yield its content; open it again if it was replaced meanwhile."""
        with ExitStack() as opened:
            try:
                while True:
                    file = opened.enter_context(ordinary_file(self.path))
                    flock(file, lock)
                    if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                        break
            except (OSError, ValueError) as error:
                raise StoreError(f"{self.path} cannot be read ({error}); check the file") from error
            yield file.read().decode(errors="surrogateescape")

    def _records_in(self, content: str) -> dict[Key, bytes]:
        """Return the records of a file by key, each with its place."""
        records: dict[Key, bytes] = {}
        lines = content.removesuffix("\n").split("\n") if content else []
        for place, line in enumerate(lines):
            try:
                record = self._record_of(line)
            except ValueError as error:
                raise StoreError(f"{self.path}, line {place + 1}: {error}; mend it") from error
            key = json.loads(record)[self.key_field]
            if key in records:
                raise StoreError(f"{self.path} has two memories {key!r:.80}; rename or remove one")
            records[key] = with_place(record, place)
        return records

    @classmethod
    def _record_of(cls, line: str) -> bytes:
        """Return the record of a line without its place; raise ValueError if it is no memory."""
        try:
            memory = cls.fields_in(line)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error
        return encoded(memory | {"line": line})


def _joined(lines: Sequence[str], before: str) -> str:
    """Return the content of a file with these lines, with a final newline if it had one before."""
    if not lines:
        return ""
    content = "\n".join(lines)
    had_final_newline = not before or before.endswith("\n")
    return f"{content}\n" if had_final_newline else content
