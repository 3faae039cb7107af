"""Write down which memory was read, and when. Standard library only, for a runtime."""

import fcntl
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from itertools import islice, starmap
from os import PathLike
from os.path import lexists
from pathlib import Path
from stat import S_ISREG
from typing import Final

from memlab.arguments import expect, refusal, whole_number
from memlab.clock import aware, moment_of, now_utc
from memlab.errors import MemlabError
from memlab.files import make_like
from memlab.text import refused

_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A pipe or a device at the log's name must not make the runtime wait."""
_BEGINNING: Final = b'{"memory_id"'
_LONGEST_FIRST_LINE: Final = 2**16
_TIME: Final = "2026-06-30T18:00:00+00:00"
_AT_ONCE: Final = 5_000
"""Lines that are written together."""


class AccessLog(AbstractContextManager["AccessLog"]):
    """A log of reads that many processes may write at the same time.

    A line is written by one call that appends it, under the file's lock. A line that a kill cut
    short is closed by the next writer, so it costs that line and no other. A line that was written
    survives the process; it is not synced, so a power cut may cost the last ones.

    Parameters
    ----------
    path : Path or str
        The log, made with its folders where there is none. MemlabError where it cannot be made or
        written, is a link, or holds something else.
    like : Path or str, optional
        The file whose owner and permissions a new log gets, such as the store. By default a new log
        is its owner's alone. The permissions of a log that exists are never changed.
    max_bytes : int
        A part is closed, and the next begun, before it grows beyond this. Parts are kept.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with AccessLog(Path(folder) / "reads.log") as log:
    ...         log.add("m1", datetime(2026, 6, 30, 18, tzinfo=UTC), "session-7")
    ...     print((Path(folder) / "reads.log").read_text(), end="")
    {"memory_id":"m1","at":"2026-06-30T18:00:00+00:00","session":"session-7"}
    """

    def __init__(
        self, path: Path | str, *, like: Path | str | None = None, max_bytes: int = 64 * 2**20
    ) -> None:
        expect(path, str, PathLike, call="AccessLog", name="path")
        expect(like, str, PathLike, call="AccessLog", name="like", optional=True)
        whole_number("max_bytes", max_bytes, least=1)
        self.path: Final = Path(path)
        self._like = None if like is None else Path(like)
        self._max_bytes = max_bytes
        self._turns = threading.Lock()
        self._opened: tuple[int, int] | None = None
        """The process that opened the file, and its descriptor there."""
        with self._errors_in_words():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. The log can be written again; it is opened anew then."""
        with self._turns:
            self._close()

    def add(self, memory_id: str, at: datetime | None = None, session: str | None = None) -> None:
        """Write one read.

        Parameters
        ----------
        memory_id : str
            The memory that was read.
        at : datetime, optional
            When, with a time zone; now, by default.
        session : str, optional
            Where it was read: several reads of one memory in one session are one reference.

        Raises
        ------
        MemlabError
            When the line cannot be written; then the log is as it was.
        """
        expect(session, str, call="AccessLog.add", name="session", optional=True)
        moment = now_utc() if at is None else aware(at, call="AccessLog.add", name="at")
        entry = {"memory_id": memory_id, "at": moment.astimezone(UTC).isoformat()}
        self.extend([entry if session is None else {**entry, "session": session}])

    def extend(self, entries: Iterable[Mapping[str, str]]) -> int:
        """Write many reads at once, and return how many.

        Parameters
        ----------
        entries : iterable of mapping of str to str
            `memory_id`, `at`, a time with a zone in ISO 8601, and more fields.

        Raises
        ------
        ValueError
            When an entry has no ``memory_id`` or no such ``at``, or something in it is no JSON;
            those before it may be written.
        MemlabError
            When a line cannot be written; those before it are.
        """
        if not isinstance(entries, Iterable):
            raise refusal(entries, "entries", call="AccessLog.extend", name="entries")
        written = 0
        lines = starmap(_line_of, enumerate(entries, 1))
        while together := list(islice(lines, _AT_ONCE)):
            with self._turns, self._errors_in_words():
                self._append(b"".join(together))
            written += len(together)
        return written

    def _append(self, data: bytes) -> None:
        """Append whole lines under the lock of the part that is being written."""
        while True:
            descriptor = self._descriptor()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                size = os.fstat(descriptor).st_size
                if not self._is_current(descriptor):
                    pass  # somebody else began the next part
                elif size and size + len(data) > self._max_bytes:
                    self.path.rename(self._next_part())
                else:
                    _write_all(descriptor, data, size)
                    return
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._close()

    def _descriptor(self) -> int:
        """Return the open file. A forked child opens its own: it shares its parent's locks."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), self._open()
        return self._opened[1]

    def _open(self) -> int:
        try:
            descriptor = os.open(self.path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return self._open_existing()
        if self._like is not None:
            like = self._like.stat()
            make_like(descriptor, (like.st_uid, like.st_gid), like.st_mode & 0o666)
        return descriptor

    def _open_existing(self) -> int:
        if self.path.is_symlink():
            raise MemlabError(f"{self.path} is a link; name the log itself, or another file")
        try:
            descriptor = os.open(self.path, _FLAGS)
        except FileNotFoundError:  # it was rotated meanwhile
            return self._open()
        found = os.fstat(descriptor)
        regular = S_ISREG(found.st_mode)
        # what is empty, or begins with a read, whole or cut short
        first = os.pread(descriptor, _LONGEST_FIRST_LINE, 0).lstrip(b"\n") if regular else b""
        fault = (
            "is not an ordinary file"
            if not regular
            else "has another name too (a hard link)"
            if found.st_nlink > 1
            else "is no access log that memlab wrote"
            if not (first.startswith(_BEGINNING) or _BEGINNING.startswith(first))
            else None
        )
        if fault:
            os.close(descriptor)
            raise MemlabError(f"{self.path} {fault}; name another file for the log")
        return descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _next_part(self) -> Path:
        numbers = [int(part.suffix[1:]) for part in log_parts(self.path) if part != self.path]
        return self.path.with_name(f"{self.path.name}.{max(numbers, default=0) + 1}")

    def _close(self) -> None:
        if self._opened is not None and self._opened[0] == os.getpid():
            os.close(self._opened[1])
        self._opened = None

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"the access log {self.path} cannot be written"
            raise MemlabError(refused(what, error)) from error


def log_parts(path: Path) -> list[Path]:
    """Return the files of a log, oldest first; the one being written may be missing."""
    name = re.compile(re.escape(path.name) + r"\.([1-9][0-9]*)")
    try:
        matched = [(name.fullmatch(each.name), each) for each in path.parent.iterdir()]
    except OSError:  # a folder that can be passed through and not listed
        matched = []
    closed = sorted((int(match[1]), each) for match, each in matched if match)
    return [*(part for _, part in closed), *([path] if lexists(path) else [])]


def _line_of(number: int, entry: Mapping[str, str]) -> bytes:
    expect(entry, Mapping, call="AccessLog.extend", name="one of entries")
    where = f"(entry {number}); write its fields as texts, the time as {_TIME}"
    for name in ("memory_id", "at"):
        if not isinstance(value := entry.get(name), str) or not value:
            shown = "missing" if value is None else repr(value)
            raise ValueError(f"{name} must be a text that is not empty, not {shown} {where}")
    try:
        moment_of(entry["at"])
        first = {"memory_id": entry["memory_id"], **entry}
        return json.dumps(first, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error} {where}") from error


def _write_all(descriptor: int, data: bytes, size: int) -> None:
    """Append all of `data` or nothing; first close a line that a kill cut short."""
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        data = b"\n" + data
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        os.ftruncate(descriptor, size)
        raise
