"""The access log: which memory was read, and when. Standard library only, for a runtime."""

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
from typing import Final, NamedTuple

from memlab.arguments import expect, whole_number, wrong_argument_error
from memlab.clock import aware, moment_of, now_utc
from memlab.errors import MemlabError
from memlab.files import make_like
from memlab.sources.reads import FIRST_BYTES_OF_LOG
from memlab.text import failure_message

_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags of `os.open`. With O_NONBLOCK, a pipe in place of the log does not block the runtime."""
_MAX_FIRST_LINE: Final = 2**16
_EXAMPLE_TIME: Final = "2026-06-30T18:00:00+00:00"
_LINES_AT_ONCE: Final = 5_000
"""Number of lines that are written together."""


class _OpenedFile(NamedTuple):
    """An open file, and the process that opened it."""

    process_id: int
    descriptor: int


class AccessLog(AbstractContextManager["AccessLog"]):
    """A log of reads that several processes may write at the same time.

    Each line is appended by one call, under the file's lock. A line that a kill cut short is
    terminated by the next writer, so only that line is lost. A written line survives the process;
    it is not synced, so a power cut may lose the last ones.

    Parameters
    ----------
    path : Path or str
        The log, created with its folders if missing. MemlabError if it cannot be created or
        written, is a link, or holds something else.
    like : Path or str, optional
        The file whose owner and permissions a new log gets, such as the store. By default only its
        owner can read it. Permissions of an existing log are never changed.
    max_bytes : int
        Size beyond which the log is continued in a new part. Parts are kept.

    Examples
    --------
    >>> with AccessLog("reads.jsonl") as log:
    ...     log.add("m1", datetime(2026, 6, 30, 18, tzinfo=UTC), "session-7")
    >>> print(Path("reads.jsonl").read_text(), end="")
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
        self._lock = threading.Lock()
        self._opened: _OpenedFile | None = None
        with self._as_memlab_error():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A later write opens it again."""
        with self._lock:
            self._close()

    def add(self, memory_id: str, at: datetime | None = None, session: str | None = None) -> None:
        """Write one read.

        Parameters
        ----------
        memory_id : str
            The memory that was read.
        at : datetime, optional
            Time of the read, with a time zone; now by default.
        session : str, optional
            Session of the read: several reads of one memory in one session are one reference.

        Raises
        ------
        MemlabError
            If the line cannot be written; the log is then unchanged.
        """
        expect(session, str, call="AccessLog.add", name="session", optional=True)
        moment = now_utc() if at is None else aware(at, call="AccessLog.add", name="at")
        entry = {"memory_id": memory_id, "at": moment.astimezone(UTC).isoformat()}
        if session is not None:
            entry["session"] = session
        self.extend([entry])

    def extend(self, entries: Iterable[Mapping[str, str]]) -> int:
        """Write several reads at once, and return their number.

        Parameters
        ----------
        entries : iterable of mapping of str to str
            `memory_id`, `at`, a time with a zone in ISO 8601, and further fields.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If an entry has no ``memory_id``, no ``at`` of this form, or a value that JSON does not
            know. Earlier entries may have been written.
        MemlabError
            If a line cannot be written; earlier ones have been.
        """
        if not isinstance(entries, Iterable):
            raise wrong_argument_error(entries, "entries", call="AccessLog.extend", name="entries")
        written = 0
        lines = starmap(_line_of, enumerate(entries, 1))
        while chunk := list(islice(lines, _LINES_AT_ONCE)):
            with self._lock, self._as_memlab_error():
                self._append(b"".join(chunk))
            written += len(chunk)
        return written

    def _append(self, data: bytes) -> None:
        """Append whole lines under the lock of the current part."""
        while True:
            descriptor = self._descriptor()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                size = os.fstat(descriptor).st_size
                is_current = self._is_current(descriptor)
                is_full = size > 0 and size + len(data) > self._max_bytes
                if is_current and not is_full:
                    _write_all(descriptor, data, size)
                    return
                if is_current:
                    self.path.rename(self._next_part())
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._close()

    def _descriptor(self) -> int:
        """Return the descriptor of the open file.

        A forked child opens the file itself: with its parent's descriptor it would share the locks.
        """
        if self._opened is None or self._opened.process_id != os.getpid():
            self._opened = _OpenedFile(os.getpid(), self._open())
        return self._opened.descriptor

    def _open(self) -> int:
        """Create the log, or open the existing one."""
        try:
            descriptor = os.open(self.path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return self._open_existing()
        if self._like is not None:
            status = self._like.stat()
            make_like(descriptor, (status.st_uid, status.st_gid), status.st_mode & 0o666)
        return descriptor

    def _open_existing(self) -> int:
        """Open an existing log, after checking that memlab wrote it."""
        if self.path.is_symlink():
            raise MemlabError(f"{self.path} is a link; name the log itself, or another file")
        try:
            descriptor = os.open(self.path, _FLAGS)
        except FileNotFoundError:  # it was rotated meanwhile
            return self._open()
        fault = _fault_of(descriptor)
        if fault:
            os.close(descriptor)
            raise MemlabError(f"{self.path} {fault}; name another file for the log")
        return descriptor

    def _is_current(self, descriptor: int) -> bool:
        """Return whether an open file is still the current part."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _next_part(self) -> Path:
        """Return the path of the next part."""
        rotated = [part for part in log_parts(self.path) if part != self.path]
        numbers = [int(part.suffix.removeprefix(".")) for part in rotated]
        next_number = max(numbers, default=0) + 1
        return self.path.with_name(f"{self.path.name}.{next_number}")

    def _close(self) -> None:
        """Close the file if this process opened it."""
        if self._opened is not None and self._opened.process_id == os.getpid():
            os.close(self._opened.descriptor)
        self._opened = None

    @contextmanager
    def _as_memlab_error(self) -> Iterator[None]:
        """Raise MemlabError for an error of the file system."""
        try:
            yield
        except OSError as error:
            summary = f"the access log {self.path} cannot be written"
            raise MemlabError(failure_message(summary, error)) from error


def log_parts(path: Path) -> list[Path]:
    """Return the files of a log, oldest first; the current one may be missing."""
    name = re.compile(re.escape(path.name) + r"\.([1-9][0-9]*)")
    try:
        files = list(path.parent.iterdir())
    except OSError:  # a folder that can be entered but not listed
        files = []
    numbered = []
    for file in files:
        match = name.fullmatch(file.name)
        if match:
            numbered.append((int(match[1]), file))
    parts = [file for _, file in sorted(numbered)]
    if lexists(path):
        parts.append(path)
    return parts


def _fault_of(descriptor: int) -> str:
    """Return the reason why an open file is no access log; empty if it is one.

    A log is empty or begins with a read, which may be cut short.
    """
    status = os.fstat(descriptor)
    if not S_ISREG(status.st_mode):
        return "is not an ordinary file"
    if status.st_nlink > 1:
        return "has another name too (a hard link)"
    beginning = os.pread(descriptor, _MAX_FIRST_LINE, 0).lstrip(b"\n")
    # An empty log, and one whose first line was cut short, have only some of the first bytes.
    expected = FIRST_BYTES_OF_LOG[: len(beginning)]
    if not beginning.startswith(expected):
        return "is not an access log that memlab wrote"
    return ""


def _line_of(number: int, entry: Mapping[str, str]) -> bytes:
    """Return the line of an entry, after checking it."""
    expect(entry, Mapping, call="AccessLog.extend", name="one of entries")
    advice = f"(entry {number}); write its fields as texts, the time as {_EXAMPLE_TIME}"
    for name in ("memory_id", "at"):
        value = entry.get(name)
        if not isinstance(value, str) or not value:
            shown_value = "missing" if value is None else repr(value)
            raise ValueError(f"{name} must be a text that is not empty, not {shown_value} {advice}")
    try:
        moment_of(entry["at"])
        # A log is recognised by its first field.
        entry_id_first = {"memory_id": entry["memory_id"], **entry}
        return json.dumps(entry_id_first, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error} {advice}") from error


def _write_all(descriptor: int, data: bytes, size: int) -> None:
    """Append all of `data` or nothing; first terminate a line that a kill cut short."""
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        data = b"\n" + data
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        os.ftruncate(descriptor, size)
        raise
