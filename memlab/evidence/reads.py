"""Read an access log into a frame: which memory an agent read, and when.

A runtime writes such a log with :class:`memlab.AccessLog`, ``memlab harvest`` fills one from what
agents write anyway, and a person may write one by hand.
"""

import csv
import json
from collections import Counter
from datetime import UTC, datetime
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from memlab.arguments import expect
from memlab.columns import AT, KIND, MEMORY_ID, SESSION
from memlab.errors import MemlabError
from memlab.evidence.access_log import log_parts
from memlab.files import read_whole
from memlab.moments import moment_of
from memlab.settings import Settings

PASSED_OVER: Final = "passed_over"
"""Key of a log's ``attrs``: reason -> how many of its lines are no read."""
WITHOUT_ZONE: Final = "without_zone"
"""Key of a log's ``attrs``: how many of its times have no zone and were taken as UTC."""

READ: Final = "read"
MAINTENANCE: Final = "maintenance"
"""A read that ended in an edit of what was read."""
OWN_SESSION: Final = "own session"
"""A read in the session that had written the memory."""
WRITE: Final = "write"
"""Not a read: a change of a memory, which a harvest remembers to judge later reads by."""
APART: Final = {MAINTENANCE: "ended in an edit", OWN_SESSION: "in the session that wrote it"}
"""Kinds of read that are no later need."""

_WANTED: Final = "a log has a memory_id and an at, such as 2026-06-30T18:00:00+00:00, on every line"
_ID: Final = "id"
_FIELDS: Final = (MEMORY_ID, AT, SESSION, KIND, _ID)
_TEXTS: Final = (MEMORY_ID, SESSION, KIND, _ID)
_SCHEMA: Final = pa.schema([(name, pa.string()) for name in _FIELDS])
_MICROSECONDS: Final = pa.timestamp("us", "UTC")
_TABLE: Final = _SCHEMA.set(1, pa.field(AT, _MICROSECONDS))
_LINES_AT_ONCE: Final = 2**24
"""Bytes; no line of a log is longer."""


def read_access_log(path: Path | str, *, maintenance: bool = False) -> pd.DataFrame:
    """Read a file of memories read: CSV with a header, or one JSON object a line.

    Each line names a memory in ``memory_id`` and the moment it was read in ``at``, in ISO 8601. A
    time without a zone is taken as UTC. ``session`` may say in which session it was read; other
    fields are ignored, and so are empty lines; an empty ``session`` or ``id`` is none. A file with
    JSON in it may have been rotated: the parts ``path.1``, ``path.2`` and so on are read as well.
    Of several lines with one ``id`` the last stands.

    In a file with JSON, a line that is no read is passed over and counted, since a process that was
    killed may have left half of one. In CSV it is an error.

    Parameters
    ----------
    path : Path or str
        The file, in UTF-8.
    maintenance : bool
        Whether to read what ``memlab harvest`` keeps apart as maintenance, too: reads that ended in
        an edit of what was read.

    Returns
    -------
    pandas.DataFrame
        ``memory_id``, ``at`` (UTC) and ``session`` in the order of the file: what
        :func:`memlab.find_references` takes as ``log``. ``attrs["passed_over"]`` counts by reason
        the lines that are no read, ``attrs["without_zone"]`` the times taken as UTC;
        :func:`describe_log` says both in words.

    Raises
    ------
    MemlabError
        When the file cannot be read, or not one line of it can be understood; the message names the
        first.
    """
    expect(path, str, PathLike, call="memlab.read_access_log", name="path")
    log = _Log()
    file = Path(path)
    for part in _parts(file):
        log.read(part)
    for part in log_parts(apart_of(file)) if maintenance else ():
        log.read(part)
    if log.first_fault and not sum(table.num_rows for table in log.tables):
        raise MemlabError(f"{log.first_fault}; {_WANTED}")
    return log.frame(maintenance=maintenance)


def remembered_reads(settings: Settings) -> pd.DataFrame | None:
    """Return the reads of every access log that is remembered of a store; None without one.

    Raises
    ------
    SettingsError
        When one of them is not there or cannot be read; the message names the line.
    """
    if not settings.log:
        return None
    try:
        logs = [read_access_log(path) for path in settings.log]
    except MemlabError as error:
        raise settings.error("log", f"{error}; or take the log out of the settings") from error
    passed_over: Counter[str] = Counter()
    for log in logs:
        passed_over.update(log.attrs.get(PASSED_OVER, {}))
    together = pd.concat(logs, ignore_index=True)
    without_zone = sum(log.attrs.get(WITHOUT_ZONE, 0) for log in logs)
    together.attrs = {PASSED_OVER: dict(passed_over), WITHOUT_ZONE: without_zone}
    return together


def apart_of(log: Path) -> Path:
    """Return where a harvest into `log` keeps the reads that are no later need."""
    return log.with_name(f"{log.name}.apart")


def describe_log(log: pd.DataFrame) -> list[str]:
    """Say what a log's lines were that are no read, in words; nothing where all is well.

    Parameters
    ----------
    log : DataFrame
        What `read_access_log` returns.
    """
    passed_over: dict[str, int] = log.attrs.get(PASSED_OVER, {})
    said = []
    if passed_over:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in passed_over.items())
        said.append(f"the log: lines passed over: {reasons}")
    if without := log.attrs.get(WITHOUT_ZONE, 0):
        said.append(f"the log: {without:,} times without a zone, taken as UTC")
    if len(log):
        most = log[MEMORY_ID].value_counts()
        if len(most) > 1 and most.iloc[0] > len(log) / 2 and most.iloc[0] >= 100:
            said.append(
                f"the log: {most.iloc[0]:,} of {len(log):,} reads are of one memory, "
                f"{most.index[0]}; is something polling it?"
            )
    return said


class _Log:
    """Gathers the lines of a log's parts, and what is to be said about them."""

    def __init__(self) -> None:
        self.tables: list[Any] = []
        self.passed_over: Counter[str] = Counter()
        self.without_zone = 0
        self.first_fault: str | None = None

    def read(self, path: Path) -> None:
        """Take in one file."""
        if _is_json(path):
            table = _sound_lines(path)
            self.tables.append(self._lines(path) if table is None else table)
        elif data := read_whole(path):
            self.tables.append(self._rows(path, _decoded(path, data)))

    def frame(self, *, maintenance: bool) -> pd.DataFrame:
        """Return the reads, in the order of the lines."""
        every = pa.concat_tables([_TABLE.empty_table(), *self.tables])
        frame = pd.DataFrame(
            {
                **{name: pd.array(every[name].to_pandas(), dtype="str") for name in _TEXTS},
                AT: pd.array(every[AT].to_numpy(), dtype="datetime64[us]"),
            }
        )
        frame[AT] = frame[AT].dt.tz_localize("UTC")
        again = frame[_ID].notna() & frame[_ID].duplicated(keep="last")
        left_out = {WRITE, *APART} - ({MAINTENANCE} if maintenance else set())
        reads = frame.loc[~again & ~frame[KIND].isin(left_out), [MEMORY_ID, AT, SESSION]]
        reads = reads.reset_index(drop=True)
        reads.attrs[PASSED_OVER] = dict(self.passed_over)
        reads.attrs[WITHOUT_ZONE] = self.without_zone
        return reads

    def _lines(self, path: Path) -> Any:
        """Take in the lines one by one; count those that are no read."""
        rows = []
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                try:
                    rows.append(self._row(_object(line)))
                except ValueError as error:
                    fault, reason = error.args
                    self.passed_over[reason] += 1
                    self.first_fault = self.first_fault or f"{path}, line {number}: {fault}"
        return _table(rows)

    def _rows(self, path: Path, text: str) -> Any:
        """Take in CSV; a row that is no read is an error."""
        rows = csv.DictReader(StringIO(text, newline=""), strict=True)
        try:
            missing = {MEMORY_ID, AT} - set(rows.fieldnames or ())
            if missing:
                names = " and no column ".join(sorted(missing))
                raise MemlabError(f"{path}, line 1: no column {names}; {_WANTED}")
            return _table([self._row(fields) for fields in rows])
        except csv.Error as error:
            raise MemlabError(f"{path}, near line {rows.line_num}: {error}; {_WANTED}") from error
        except ValueError as error:
            fault, _ = error.args
            raise MemlabError(f"{path}, line {rows.line_num}: {fault}; {_WANTED}") from error

    def _row(self, fields: dict[str, Any]) -> tuple[Any, ...]:
        """Return a line's fields; raises ValueError with what is wrong and what to count it as."""
        memory_id, at = fields.get(MEMORY_ID), fields.get(AT)
        if not isinstance(memory_id, str) or not memory_id:
            raise ValueError(f"memory_id must be a text, not {_shown(memory_id)}", "no memory_id")
        if not isinstance(at, str):
            raise ValueError(f"at must be a text, not {_shown(at)}", "no time")  # noqa: TRY004 - one kind of fault
        others = (fields.get(name) for name in (SESSION, KIND, _ID))
        texts = (each if isinstance(each, str) and each else None for each in others)
        return _encodable(memory_id), self._moment(at), *map(_encodable, texts)

    def _moment(self, at: str) -> datetime:
        try:
            return moment_of(at)
        except ValueError as error:
            in_utc = _in_utc(at)
            if in_utc is None:
                raise ValueError(f"at {error}", "no time") from error
        self.without_zone += 1
        return in_utc


def _sound_lines(path: Path) -> Any | None:
    """Return all lines at once; None where one of them has to be looked at by itself."""
    try:
        texts = pj.read_json(
            path,
            pj.ReadOptions(block_size=_LINES_AT_ONCE),
            pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore"),
        )
        texts.validate(full=True)
        if texts.num_rows != _lines_in(path):  # an object over several lines, or two in one
            return None
        if texts[AT].null_count or pc.any(pc.equal(pc.fill_null(texts[MEMORY_ID], ""), "")).as_py():
            return None
        moments = pc.cast(texts[AT], _MICROSECONDS)
        others = [_unless_empty(texts[name]) for name in (SESSION, KIND, _ID)]
        return pa.table([texts[MEMORY_ID], moments, *others], schema=_TABLE)
    except pa.ArrowInvalid:
        return None


def _lines_in(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(not line.isspace() for line in lines)


def _unless_empty(texts: Any) -> Any:
    """Return texts with none where one is empty: it names nothing."""
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _object(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object", "cut short, or no JSON object")  # noqa: TRY004 - one kind of fault
    return fields


def _table(rows: list[tuple[Any, ...]]) -> Any:
    columns = zip(*rows, strict=True) if rows else ((),) * len(_FIELDS)
    return pa.table(dict(zip(_FIELDS, map(list, columns), strict=True)), schema=_TABLE)


def _parts(path: Path) -> list[Path]:
    """Return the files to read: CSV is never rotated."""
    parts = log_parts(path)
    is_csv = path in parts and path.is_file() and path.stat().st_size and not _is_json(path)
    return [path] if is_csv or not parts else parts


def _is_json(path: Path) -> bool:
    """Whether one of the first lines begins as an object does."""
    try:
        with path.open("rb") as file:
            beginning = file.read(2**16)
    except OSError:
        return False  # what is wrong is said when it is read
    lines = beginning.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return any(line.lstrip().startswith(b"{") for line in lines)


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MemlabError(
            f"{path} is not text in UTF-8 (byte {error.start}); write the log as CSV or JSON lines"
        ) from error


def _in_utc(text: str) -> datetime | None:
    """Return a moment without a zone as one in UTC; None for what is no moment."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


def _encodable(text: str | None) -> str | None:
    """Return a text without lone surrogates, which JSON can hold and no store."""
    return text and text.encode(errors="replace").decode()


def _shown(value: Any) -> str:
    return "missing" if value is None else f"{value!r:.60}"
