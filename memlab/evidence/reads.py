"""Read access logs, and compare their reads with the memories and the index of a store."""

import csv
import sys
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import expect
from memlab.clock import moment_and_zone
from memlab.errors import MemlabError
from memlab.evidence.access_log import log_parts
from memlab.evidence.past import HistoryLike, present_rows, resolve_history
from memlab.files import ordinary_file
from memlab.frame.loading import expect_log
from memlab.settings import Settings
from memlab.sources.base import Source
from memlab.sources.capabilities import (
    CURRENT_ORDER,
    MOST_READ,
    FormerName,
    IndexOrderings,
    require,
)
from memlab.sources.opening import SourceLike, is_searched, open_source
from memlab.sources.reads import EXCLUDED_KINDS, MAINTENANCE, WRITE, parsed, text
from memlab.text import (
    DisplayMixin,
    Table,
    TextPage,
    counted,
    failure_message,
    percent,
    verb_for,
    zoneless_in_words,
)

PASSED_OVER: Final = "passed_over"
"""Key of a log's ``attrs``: reason -> number of lines that are not reads."""

_LINE_RULE: Final = (
    "a log has a memory_id and an at, such as 2026-06-30T18:00:00+00:00, on every line"
)
_ID: Final = "id"
_DTYPES: Final = {
    c.MEMORY_ID: "str",
    c.AT: c.TIME,
    c.SESSION: "str",
    c.KIND: "str",
    _ID: "str",
}
"""Columns of the fields of :class:`LogRow`, in their order, with their types."""
_MAX_LINE_BYTES: Final = 2**24
"""Longest line of a log, in bytes."""
_MAX_NAMES: Final = 3
"""Maximum number of names in a message."""
_MIN_POLLED_READS: Final = 100
"""Smallest number of reads of one memory at which polling is suspected."""
_NO_FILE: Final = "part that is not an ordinary file"
"""The reason under which a part of a log that cannot be read is counted."""


def read_access_log(path: str | PathLike[str], *, maintenance: bool = False) -> pd.DataFrame:
    """Read an access log: a CSV file with a header, or a file with one JSON object a line.

    Each line holds the id of the memory in ``memory_id`` and the time of the read in ``at``, in
    ISO 8601. A time without a zone is taken as UTC. ``session`` is optional. Other fields and empty
    lines are ignored; an empty ``session`` or ``id`` counts as missing. If several lines have the
    same ``id``, the last one counts. A JSON log may have been rotated: the parts ``path.1``,
    ``path.2`` and so on are read too.

    In a JSON log, a line that is not a read is skipped and counted, because a killed process may
    have written half a line. In a CSV file it is an error. A file is an error if it has lines and
    none of them is a read.

    Parameters
    ----------
    path : Path or str
        The file, in UTF-8.
    maintenance : bool
        Include the reads that ``memlab harvest`` excludes as maintenance: reads that were followed
        by an edit of the memory.

    Returns
    -------
    pandas.DataFrame
        ``memory_id``, ``at`` (UTC) and ``session`` in the order of the file, as
        :func:`memlab.find_references` takes them. ``attrs["passed_over"]`` counts the lines that
        are not reads by reason, and ``attrs["without_zone"]`` the times that were taken as UTC.
        :func:`memlab.evidence.describe_log` puts both into words.

    Raises
    ------
    MemlabError
        If the file cannot be read, or has lines and none of them is a read.

    Examples
    --------
    >>> import memlab
    >>> log = memlab.read_access_log(memlab.store_path("looked_up").with_suffix(".reads.jsonl"))
    >>> list(log)
    ['memory_id', 'at', 'session']
    """
    expect(path, str, PathLike, call="memlab.read_access_log", name="path")
    return _reads_of([Path(path)], maintenance=maintenance)


def _reads_of(files: Iterable[Path], *, maintenance: bool = False) -> pd.DataFrame:
    """Return the reads of several logs, each with its rotated parts."""
    log = LogLines()
    for file in files:
        # A file without a single read is an error, which names its first fault.
        rows_before = len(log.rows)
        log.first_fault = None
        parts = [file]
        if not _is_csv(file):  # a CSV file is never rotated
            parts = log_parts(file) or [file]  # a missing file is an error
        for part in parts:
            log.read(part, required=part == file)
        if maintenance:
            for part in log_parts(excluded_log_of(file)):
                log.read(part)
        if log.first_fault and len(log.rows) == rows_before:
            raise MemlabError(f"{log.first_fault}; {_LINE_RULE}")
    return log.frame(maintenance=maintenance)


Log = pd.DataFrame | str | PathLike[str] | None
"""An access log as an argument: a frame of reads, or the path of a log file."""


def reads_in(
    log: Log,
    settings: Settings,
    *,
    call: str,
    source: Source | None = None,
    moment: datetime | None = None,
) -> tuple[pd.DataFrame | None, Path | None]:
    """Return the reads of a log, by default of the logs in the settings, and the log's file.

    Reads of a memory of `source` under a former name get its present name, or the name that it had
    at a `moment`.
    """
    if isinstance(log, str | PathLike):
        return _with_names_at(read_access_log(log), source, moment), Path(log)
    expect_log(log, call=call)
    if log is not None:
        return _with_names_at(log, source, moment), None
    first_file = settings.log[0] if settings.log else None
    return reads_by_settings(settings, source, moment), first_file


def follow_names(log: pd.DataFrame, store: SourceLike) -> pd.DataFrame:
    """Return a log in which former names of memories are replaced by their present ids.

    A read belongs to the memory that had the name at the time of the read. Renames are known if
    the store is a folder that git tracks; otherwise the log is returned unchanged. Functions that
    take a store and a log do this themselves.

    Parameters
    ----------
    log : DataFrame
        A log from :func:`memlab.read_access_log`.
    store : str, Path or Source
        The store whose memories were read.

    Returns
    -------
    DataFrame
        A copy of the log, or the log itself if no name changes.

    Raises
    ------
    MemlabError
        If the store cannot be opened.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.store_path("looked_up")
    >>> log = memlab.read_access_log(store.with_suffix(".reads.jsonl"))
    >>> follow_names(log, store) is log  # a SQLite file has no former names
    True
    """
    expect_log(log, call="memlab.evidence.follow_names")
    return _with_names_at(log, open_source(store))


def _with_names_at(
    log: pd.DataFrame, source: Source | None, moment: datetime | None = None
) -> pd.DataFrame:
    """Return a log with the names that a source's memories have now, or had at a moment."""
    former_names = () if source is None else source.external_history.former_names()
    if moment is not None:
        former_names = [former for former in former_names if former.until <= moment]
    if not former_names:
        return log
    by_name: dict[str, list[FormerName]] = {}
    for former in sorted(former_names, key=lambda former: former.until):
        by_name.setdefault(former.name, []).append(former)
    has_former_name = log[c.MEMORY_ID].isin(by_name.keys()) & log[c.AT].notna()
    if not has_former_name.any():
        return log
    names = log.loc[has_former_name, c.MEMORY_ID]
    times = log.loc[has_former_name, c.AT]
    renamed = log.copy()
    renamed.loc[has_former_name, c.MEMORY_ID] = [
        _present_name(name, at, by_name[name]) for name, at in zip(names, times, strict=True)
    ]
    return renamed


def _present_name(name: str, at: datetime, owners: Sequence[FormerName]) -> str:
    """Return the present id of the memory that had a name at a moment.

    `owners` are the memories that had the name, in the order in which they gave it up.
    """
    for owner in owners:
        if at < owner.until:
            return owner.memory_id
    # A later read of a name that no memory has now is a read of the last memory that had it.
    last_owner = owners[-1]
    return last_owner.memory_id if last_owner.is_free else name


def log_option(
    reads: pd.DataFrame | None, file: Path | None, settings: Settings
) -> tuple[str, ...]:
    """Return the command-line arguments for a log; none without one, or if the settings name it."""
    if reads is None or file in settings.log:
        return ()
    return ("--log", "LOG" if file is None else str(file))


def reads_by_settings(
    settings: Settings, source: Source | None = None, moment: datetime | None = None
) -> pd.DataFrame | None:
    """Return the reads of all access logs in a store's settings; None without one.

    Reads of a memory of `source` under a former name get its present name, or the name that it had
    at a `moment`.
    """
    if not settings.log:
        return None
    try:
        return _with_names_at(_reads_of(settings.log), source, moment)
    except MemlabError as error:
        raise settings.error("log", f"{error}; or take the log out of the settings") from error


def excluded_log_of(log: Path) -> Path:
    """Return the path of the file beside a log for harvested reads that do not count."""
    return log.with_name(f"{log.name}.apart")


def describe_log(log: pd.DataFrame, past: pd.DataFrame | None = None) -> list[str]:
    """Return messages about unusual lines of a log from `read_access_log`; empty if there are none.

    With the history of a store, one of them counts the lines that name no memory of the store and
    lists the most frequent names.

    Examples
    --------
    >>> import memlab
    >>> log = memlab.read_access_log(memlab.store_path("looked_up").with_suffix(".reads.jsonl"))
    >>> describe_log(log)
    []
    >>> describe_log(log.head(0))
    ['the log: it holds no read']
    """
    messages = []
    if log.empty:
        messages.append("the log: it holds no read")
    passed_over: dict[str, int] = log.attrs.get(PASSED_OVER, {})
    if passed_over:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in passed_over.items())
        messages.append(f"the log: lines passed over: {reasons}")
    if past is not None and not is_other_stores_log(log, past[c.MEMORY_ID]):
        unknown = describe_unknown(log, past)
        if unknown:
            messages.append(f"the log: {unknown}")
    without_zone = log.attrs.get(c.WITHOUT_ZONE, 0)
    if without_zone:
        messages.append(f"the log: {zoneless_in_words(without_zone)}")
    if len(log):
        counts = log[c.MEMORY_ID].value_counts()
        most_reads = counts.iloc[0]
        has_others = len(counts) > 1
        is_dominant = most_reads > len(log) / 2 and most_reads >= _MIN_POLLED_READS
        if has_others and is_dominant:
            messages.append(
                f"the log: {most_reads:,} of {len(log):,} reads are of one memory, "
                f"{counts.index[0]}; is something polling it?"
            )
    return messages


def describe_unknown(log: pd.DataFrame, past: pd.DataFrame) -> str:
    """Return the number of lines of a log that name no memory of a history, in words.

    The text is empty if there is no such line.
    """
    is_unknown = ~log[c.MEMORY_ID].isin(past[c.MEMORY_ID])
    counts_by_name = log.loc[is_unknown, c.MEMORY_ID].value_counts()
    if counts_by_name.empty:
        return ""
    names = ", ".join(map(str, counts_by_name.index[:_MAX_NAMES]))
    hidden_count = len(counts_by_name) - _MAX_NAMES
    more = f" and {hidden_count:,} more" if hidden_count > 0 else ""
    count = int(is_unknown.sum())
    verb = verb_for(count, "name")
    lines = f"{count:,} of {counted(len(log), 'lines')} {verb} no memory of this store"
    return f"{lines}: {names}{more}"


class LogRow(NamedTuple):
    """The fields of a line of a log; None for a missing field.

    Attributes
    ----------
    memory_id : str
        The id of the memory.
    at : datetime
        The time of the read.
    session, kind, id : str or None
        The session, the kind of read or change, and the id of the read.
    """

    memory_id: str
    at: datetime
    session: str | None
    kind: str | None
    id: str | None


class LogLines:
    """Collects the lines of a log's parts, and counts those that are not reads by reason."""

    def __init__(self) -> None:
        self.rows: list[LogRow] = []
        self.passed_over: Counter[str] = Counter()
        self.without_zone = 0
        self.first_fault: str | None = None

    def read(self, path: Path, *, required: bool = False) -> None:
        """Read one file. Other paths are counted and skipped, or an error if `required`."""
        if not required and not path.is_file():
            self.passed_over[_NO_FILE] += 1
        elif _is_csv(path):
            self._read_csv(path)
        else:
            self._read_lines(path)

    def frame(self, *, maintenance: bool) -> pd.DataFrame:
        """Return the reads in the order of their lines, the last of each id."""
        lines = pd.DataFrame(self.rows, columns=list(_DTYPES)).astype(_DTYPES)
        is_replaced = lines[_ID].notna() & lines[_ID].duplicated(keep="last")
        kinds_left_out = {WRITE, *EXCLUDED_KINDS}
        if maintenance:
            kinds_left_out.discard(MAINTENANCE)
        is_read = ~is_replaced & ~lines[c.KIND].isin(kinds_left_out)
        reads = lines.loc[is_read, [c.MEMORY_ID, c.AT, c.SESSION]].reset_index(drop=True)
        reads.attrs[PASSED_OVER] = dict(self.passed_over)
        reads.attrs[c.WITHOUT_ZONE] = self.without_zone
        return reads

    def _read_lines(self, path: Path) -> None:
        """Read JSON lines. A line that is not a read is counted by its reason."""
        for number, line in enumerate(_lines_of(path), 1):
            if line.isspace():
                continue
            try:
                self.rows.append(self._row(parsed(line)))
            except ValueError as error:
                fault, reason = error.args
                self.passed_over[reason] += 1
                if self.first_fault is None:
                    self.first_fault = f"{path}, line {number}: {fault}"

    def _read_csv(self, path: Path) -> None:
        """Read CSV. A row that is not a read is an error."""
        rows = csv.DictReader(map(_decoded, _lines_of(path)), strict=True)
        try:
            missing = {c.MEMORY_ID, c.AT} - set(rows.fieldnames or ())
            if missing:
                names = " and no column ".join(sorted(missing))
                raise MemlabError(f"{path}, line 1: no column {names}; {_LINE_RULE}")
            self.rows += [self._row(fields) for fields in rows]
        except csv.Error as error:
            raise MemlabError(
                f"{path}, near line {rows.line_num}: {error}; {_LINE_RULE}"
            ) from error
        except ValueError as error:
            fault, _ = error.args
            raise MemlabError(f"{path}, line {rows.line_num}: {fault}; {_LINE_RULE}") from error

    def _row(self, fields: Any) -> LogRow:
        """Return the fields of a line.

        Raises
        ------
        ValueError
            If the line is not a read. Its arguments are the fault and the reason to count.
        """
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object", "cut short, or no JSON object")  # noqa: TRY004 - one kind of fault
        memory_id = fields.get(c.MEMORY_ID)
        at = fields.get(c.AT)
        if not isinstance(memory_id, str) or not memory_id:
            raise ValueError(f"memory_id must be a text, not {_shown(memory_id)}", "no memory_id")
        if not isinstance(at, str):
            raise ValueError(f"at must be a text, not {_shown(at)}", "no time")  # noqa: TRY004 - one kind of fault
        try:
            moment, has_zone = moment_and_zone(at)
        except ValueError as error:
            raise ValueError(f"at {error}", "no time") from error
        if not has_zone:
            self.without_zone += 1
        return LogRow(
            memory_id=text(memory_id),
            at=moment,
            session=_text_or_none(fields.get(c.SESSION)),
            kind=_text_or_none(fields.get(c.KIND)),
            id=_text_or_none(fields.get(_ID)),
        )


def _text_or_none(value: object) -> str | None:
    """Return a value if it is a text that is not empty, else None."""
    value_text = text(value)
    return value_text or None


def _lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a log. A line that is too long comes in pieces, which are not reads."""
    try:
        with ordinary_file(path) as file:
            while line := file.readline(_MAX_LINE_BYTES):
                yield line
    except OSError as error:
        message = failure_message(f"{path} cannot be read", error, "the path and its permissions")
        raise MemlabError(message) from error


def _is_csv(path: Path) -> bool:
    """Return whether a file has lines and none of its first lines begins like a JSON object."""
    try:
        with ordinary_file(path, max_bytes=sys.maxsize) as file:
            beginning = file.read(2**16)
    except (OSError, ValueError):
        return False  # reading it later raises the error
    if not beginning:
        return False
    lines = beginning.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return not any(line.lstrip().startswith(b"{") for line in lines)


def _decoded(line: bytes) -> str:
    """Return a line of a CSV file as text."""
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise csv.Error("not text in UTF-8") from None


def _shown(value: Any) -> str:
    """Return a wrong value as a message shows it: its first 60 characters."""
    return "missing" if value is None else f"{value!r:.60}"


CHANCE: Final = "chance"
CHANCES: Final = {
    "read": "read",
    "unread": "never read, though they could have been",
    "too new": "written after the last read in the log",
    "not loaded": "not loaded at start, and never read",
}
"""Categories of a memory's chance to be read, each with its words after a number of memories."""


def reading_chances(frame: HistoryLike, log: pd.DataFrame) -> pd.Series:
    """Classify each memory: it was read, it could have been read, or it could not.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        A frame from ``memlab.load``, or a store, whose present memories are loaded. If the source
        knows which memories are loaded at start, and loads any, the other memories had no chance,
        because no agent knew of them. In a store that agents search, they had one.
    log : DataFrame
        A log from `read_access_log`.

    Returns
    -------
    Series
        Named ``chance``, a category of `CHANCES` for each row of the frame. A memory is too new if
        no session began after it was written. A read without a session counts as a session.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.store_path("looked_up")
    >>> log = memlab.read_access_log(store.with_suffix(".reads.jsonl"))
    >>> chances = reading_chances(store, log)
    >>> int((chances == "read").sum()) == log["memory_id"].nunique()
    True
    """
    if not isinstance(frame, pd.DataFrame):
        history = resolve_history(frame, call="memlab.evidence.reading_chances", log=log)
        frame = present_rows(history)
    is_read = frame[c.MEMORY_ID].isin(log[c.MEMORY_ID]).to_numpy()
    # If the log is empty, the start is missing, so that the comparison is false for every memory.
    existed_at_last_session = frame[c.CREATED_AT] <= _last_session_start(log)
    is_too_new = ~existed_at_last_session.to_numpy()
    is_not_loaded = np.zeros(len(frame), bool)
    is_searched_store = is_searched(str(frame.attrs.get(c.SOURCE, "")))
    some_are_loaded = c.LOADED_AT_START in frame and frame[c.LOADED_AT_START].any()
    if some_are_loaded and not is_searched_store:
        is_not_loaded = ~frame[c.LOADED_AT_START].to_numpy(bool)
    chance = np.select(
        [is_read, is_too_new, is_not_loaded], ["read", "too new", "not loaded"], "unread"
    )
    categories = pd.Categorical(chance, categories=list(CHANCES))
    return pd.Series(categories, index=frame.index, name=CHANCE)


NO_READ_OF_STORE: Final = "not one line names a memory of this store; is it another store's log?"


def reads_of_store(log: pd.DataFrame, past: pd.DataFrame, now: datetime) -> pd.DataFrame:
    """Return the reads of memories in a store's history, up to `now`."""
    is_of_store = log[c.MEMORY_ID].isin(past[c.MEMORY_ID])
    return log[is_of_store & (log[c.AT] <= now)]


def is_other_stores_log(log: pd.DataFrame, memory_ids: "pd.Series[Any] | list[str]") -> bool:
    """Return whether a log holds reads, and none of them is of a memory with one of the ids."""
    return len(log) > 0 and not log[c.MEMORY_ID].isin(memory_ids).any()


def describe_chances(chances: pd.Series) -> str:
    """Return the number of memories that were read, and that could not have been, in words.

    `chances` is the result of `reading_chances`.

    Examples
    --------
    >>> chances = pd.Series(pd.Categorical(["read", "unread"], categories=list(CHANCES)))
    >>> describe_chances(chances)
    '2 memories: 1 read, 1 never read, though they could have been'
    """
    counts = chances.value_counts(sort=False)
    parts = [f"{counts[name]:,} {words}" for name, words in CHANCES.items() if counts.get(name)]
    if not parts:
        return "no memories"
    return f"{counted(len(chances), 'memories')}: {', '.join(parts)}"


def _last_session_start(log: pd.DataFrame) -> Any:
    """Return the time of the first read of the last session.

    A read without a session counts as a session.
    """
    if c.SESSION not in log:
        return log[c.AT].max()
    without_session = log.loc[log[c.SESSION].isna(), c.AT]
    session_starts = log.groupby(c.SESSION, observed=True)[c.AT].min()
    return pd.concat([without_session, session_starts]).max()


_CUT_RULE: Final = (
    "each read is compared with the files and the earlier reads of its time; as many lines are "
    "taken to be loaded as today"
)


@dataclass(frozen=True, repr=False)
class CutLosses(DisplayMixin):
    """Reads that miss their line because the index is cut, under several orders of its entries.

    An order serves a read if it loads the line of the memory. For each read, the index has the
    files that existed at its time, and a start loads as many lines as fit today.

    Attributes
    ----------
    reads : int
        Reads of files that exist today.
    unnamed : int
        Those of them whose file no line of the index names.
    named : int
        Files that the index names.
    loaded : mapping of str to int
        Number of reads that each order serves, by the name of the order.
    files : mapping of str to int
        Number of files that the loaded lines of each order name today, by the name of the order.

    Examples
    --------
    >>> losses = CutLosses(
    ...     reads=10, unnamed=1, named=5, loaded={"as it stands": 6}, files={"as it stands": 3}
    ... )
    >>> losses.lost, losses.below
    (3, 2)
    """

    reads: int
    unnamed: int
    named: int
    loaded: Mapping[str, int]
    files: Mapping[str, int]

    @property
    def lost(self) -> int:
        """Number of reads whose line was cut, in today's order of the entries."""
        return self.reads - self.unnamed - self.loaded[CURRENT_ORDER]

    @property
    def below(self) -> int:
        """Number of files whose line is cut today."""
        return self.named - self.files[CURRENT_ORDER]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per order: loaded files, served reads, and their share of all reads."""
        served = list(self.loaded.values())
        columns = {
            "files": list(self.files.values()),
            "reads": served,
            "share": [count / max(self.reads, 1) for count in served],
        }
        return pd.DataFrame(columns, index=pd.Index(self.loaded, name="order of the entries"))

    def table(self) -> Table:
        """Return the printed table: one row per order; without reads, today's files alone."""
        header = ("order of the entries", "files loaded", "reads with their line loaded", "share")
        if not self.reads:
            todays_row = (CURRENT_ORDER, self.files[CURRENT_ORDER])
            return Table("", header[:2], [todays_row])
        rows = [
            (order, files, served, percent(share))
            for order, files, served, share in self.to_frame().itertuples(name=None)
        ]
        return Table("", header, rows, _CUT_RULE)

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        named = counted(self.named, "named files")
        has_line = "has its line" if self.below == 1 else "have their line"
        below = f"{self.below:,} of {named} {has_line} below the cut"
        facts = [
            ("below", below),
            ("reads", f"{self.reads:,} of files that still exist"),
            ("lost", f"{self.lost:,} of memories whose line was cut"),
            ("unnamed", f"{self.unnamed:,} of files that no line names"),
        ]
        return TextPage("reads of memories that the cut index does not load", facts, [self.table()])


def reads_missed_by_index_cut(source: SourceLike, log: pd.DataFrame | None = None) -> CutLosses:
    """Count the reads that found their line loaded, under several orders of the index.

    The orders are today's, newest first, oldest first and most read first, under the same limits.

    Parameters
    ----------
    source : str, Path or Source
        A folder of Claude Code's memory; MemlabError of another kind of store.
    log : DataFrame, optional
        Later reads, from :func:`memlab.read_access_log`. Without them the result has only the
        number of files whose line is cut.

    Returns
    -------
    CutLosses

    Raises
    ------
    MemlabError
        If the store is of another kind, or cannot be opened.

    Examples
    --------
    >>> _ = Path("MEMORY.md").write_text("- [Build](build.md): how")
    >>> _ = Path("build.md").write_text("make")
    >>> losses = reads_missed_by_index_cut("claude:.")
    >>> losses.named, losses.below
    (1, 0)
    """
    if log is None:
        log = pd.DataFrame({c.MEMORY_ID: pd.Series(dtype="str"), c.AT: pd.Series(dtype=c.TIME)})
    expect_log(log, call="memlab.evidence.reads_missed_by_index_cut")
    index = require(open_source(source), "index").orderings(Counter(log[c.MEMORY_ID]))
    is_of_file = log[c.MEMORY_ID].isin(index.written.keys())
    reads_of_files = log.loc[is_of_file].sort_values(c.AT, kind="stable")
    names = reads_of_files[c.MEMORY_ID].tolist()
    times = reads_of_files[c.AT].dt.to_pydatetime()
    reads = list(zip(times, names, strict=True))
    named = frozenset(index.lines[CURRENT_ORDER])
    return CutLosses(
        reads=len(reads),
        unnamed=sum(name not in named for name in names),
        named=len(named),
        loaded={order: _served(index, order, reads) for order in index.lines},
        files=index.loaded_counts,
    )


def _served(index: IndexOrderings, order: str, reads: Sequence[tuple[datetime, str]]) -> int:
    """Count the reads that found their line loaded in an order of the index.

    `reads` are in order of time. A line counts as present from the time its file was written, or
    from its first read if that is earlier. In the order `MOST_READ`, lines are ranked by the reads
    so far, and lines with equal counts by today's order.
    """
    initial_order = CURRENT_ORDER if order == MOST_READ else order
    lines = index.lines[initial_order]
    # A line's rank is (minus the reads so far, its number in the index); the lowest comes first.
    rank = {name: (0, number) for number, name in enumerate(lines)}
    first_read = {name: at for at, name in reversed(reads)}  # the earliest read is set last
    present_from = {}
    for name in lines:
        written = index.written[name]
        present_from[name] = min(written, first_read.get(name, written))
    waiting = deque(sorted(lines, key=present_from.__getitem__))
    present: list[tuple[int, int]] = []  # the ranks of the present lines, sorted
    served = 0
    for at, name in reads:
        while waiting and present_from[waiting[0]] <= at:
            insort(present, rank[waiting.popleft()])
        if name not in rank:
            continue
        lines_above = bisect_left(present, rank[name])
        if lines_above < index.loaded_counts[order]:
            served += 1
        if order == MOST_READ:
            del present[lines_above]
            minus_reads, number = rank[name]
            rank[name] = (minus_reads - 1, number)
            insort(present, rank[name])
    return served
