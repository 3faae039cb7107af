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
from typing import Any, Final

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
from memlab.sources.capabilities import MOST_READ, TODAY, FormerName, IndexOrderings, require
from memlab.sources.opening import SourceLike, is_searched, open_source
from memlab.sources.reads import APART, MAINTENANCE, WRITE, parsed, text
from memlab.text import (
    DisplayMixin,
    Table,
    TextPage,
    counted,
    percent,
    refused,
    verb_for,
    zoneless_in_words,
)

PASSED_OVER: Final = "passed_over"
"""Key of a log's ``attrs``: reason -> number of lines that are not reads."""

_LINE_RULE: Final = (
    "a log has a memory_id and an at, such as 2026-06-30T18:00:00+00:00, on every line"
)
_ID: Final = "id"
_FIELDS: Final = (c.MEMORY_ID, c.AT, c.SESSION, c.KIND, _ID)
_DTYPES: Final = dict.fromkeys(_FIELDS, "str") | {c.AT: c.TIME}
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
        Include the reads that ``memlab harvest`` keeps apart as maintenance: reads that ended in an
        edit of the memory.

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
        parts = [] if _is_csv(file) else log_parts(file)  # a CSV file is never rotated
        for part in parts or [file]:
            log.read(part, required=part == file)
        if maintenance:
            for part in log_parts(apart_of(file)):
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
    """Return the reads of the given log, else of the logs in the settings; and the log's file.

    Reads of a memory of `source` under a former name get its present name, or the name that it had
    at a `moment`.
    """
    if isinstance(log, str | PathLike):
        return _with_names_at(read_access_log(log), source, moment), Path(log)
    expect_log(log, call=call)
    if log is not None:
        return _with_names_at(log, source, moment), None
    first_file = next(iter(settings.log), None)
    return remembered_reads(settings, source, moment), first_file


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
    formers = () if source is None else source.external_history.former_names()
    if moment is not None:
        formers = [former for former in formers if former.until <= moment]
    if not formers:
        return log
    by_name: dict[str, list[FormerName]] = {}
    for former in sorted(formers, key=lambda former: former.until):
        by_name.setdefault(former.name, []).append(former)
    renamed = log[c.MEMORY_ID].isin(by_name.keys()) & log[c.AT].notna()
    if not renamed.any():
        return log
    rows = zip(log.loc[renamed, c.MEMORY_ID], log.loc[renamed, c.AT], strict=True)
    names = [_present_name(name, at, by_name[name]) for name, at in rows]
    followed = log.copy()
    followed.loc[renamed, c.MEMORY_ID] = names
    return followed


def _present_name(name: str, at: datetime, formers: Sequence[FormerName]) -> str:
    """Return the present id of the memory that had a name at a moment.

    `formers` are the memories that had the name, in the order in which they gave it up.
    """
    for former in formers:
        if at < former.until:
            return former.memory_id
    # A later read of a name that no memory has now is a read of the last memory that had it.
    last_owner = formers[-1]
    return last_owner.memory_id if last_owner.is_free else name


def log_option(
    reads: pd.DataFrame | None, file: Path | None, settings: Settings
) -> tuple[str, ...]:
    """Return the command-line arguments for a log; none without one, or if the settings name it."""
    if reads is None or file in settings.log:
        return ()
    return ("--log", str(file or "LOG"))


def remembered_reads(
    settings: Settings, source: Source | None = None, moment: datetime | None = None
) -> pd.DataFrame | None:
    """Return the reads of every access log in a store's settings; None without one.

    Reads of a memory of `source` under a former name get its present name, or the name that it had
    at a `moment`.
    """
    if not settings.log:
        return None
    try:
        return _with_names_at(_reads_of(settings.log), source, moment)
    except MemlabError as error:
        raise settings.error("log", f"{error}; or take the log out of the settings") from error


def apart_of(log: Path) -> Path:
    """Return the path of the file for reads of a harvest into `log` that are not references."""
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
    if past is not None and not is_other_stores_log(log, past):
        unknown = describe_unknown(log, past)
        if unknown:
            messages.append(f"the log: {unknown}")
    without_zone = log.attrs.get(c.WITHOUT_ZONE, 0)
    if without_zone:
        messages.append(f"the log: {zoneless_in_words(without_zone)}")
    if len(log):
        counts = log[c.MEMORY_ID].value_counts()
        most_reads = counts.iloc[0]
        is_polled = (
            len(counts) > 1 and most_reads > len(log) / 2 and most_reads >= _MIN_POLLED_READS
        )
        if is_polled:
            messages.append(
                f"the log: {most_reads:,} of {len(log):,} reads are of one memory, "
                f"{counts.index[0]}; is something polling it?"
            )
    return messages


def describe_unknown(log: pd.DataFrame, past: pd.DataFrame) -> str:
    """Return the number of lines of a log that name no memory of a history, in words.

    The text is empty if there is no such line.
    """
    unknown = log.loc[~log[c.MEMORY_ID].isin(past[c.MEMORY_ID]), c.MEMORY_ID].value_counts()
    if unknown.empty:
        return ""
    names = ", ".join(map(str, unknown.index[:_MAX_NAMES]))
    unlisted = len(unknown) - _MAX_NAMES
    more = f" and {unlisted:,} more" if unlisted > 0 else ""
    verb = verb_for(int(unknown.sum()), "name")
    lines = f"{unknown.sum():,} of {counted(len(log), 'lines')} {verb} no memory of this store"
    return f"{lines}: {names}{more}"


class LogLines:
    """Collects the lines of a log's parts, and counts those that are not reads by reason."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
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
        lines = pd.DataFrame(self.rows, columns=_FIELDS).astype(_DTYPES)
        is_replaced = lines[_ID].notna() & lines[_ID].duplicated(keep="last")
        kinds_left_out = {WRITE, *APART}
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
                self.first_fault = self.first_fault or f"{path}, line {number}: {fault}"

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

    def _row(self, fields: Any) -> tuple[Any, ...]:
        """Return the fields of a line in the order of `_FIELDS`.

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
        session = text(fields.get(c.SESSION)) or None
        kind = text(fields.get(c.KIND)) or None
        read_id = text(fields.get(_ID)) or None
        return text(memory_id), moment, session, kind, read_id


def _lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a log. A line that is too long comes in pieces, which are not reads."""
    try:
        with ordinary_file(path) as file:
            while line := file.readline(_MAX_LINE_BYTES):
                yield line
    except OSError as error:
        message = refused(f"{path} cannot be read", error, "the path and its permissions")
        raise MemlabError(message) from error


def _is_csv(path: Path) -> bool:
    """Return whether a file has lines and none of its first lines begins like a JSON object."""
    try:
        with ordinary_file(path, max_bytes=sys.maxsize) as file:
            beginning = file.read(2**16)
    except (OSError, ValueError):
        return False  # reading it later raises the error
    lines = beginning.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return bool(beginning) and not any(line.lstrip().startswith(b"{") for line in lines)


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
"""The words after a number of memories, for each category of a memory's chance to be read."""


def reading_chances(frame: HistoryLike, log: pd.DataFrame) -> pd.Series:
    """Return whether each memory was read, and if not, whether it could have been.

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
        frame = present_rows(
            resolve_history(frame, call="memlab.evidence.reading_chances", log=log)
        )
    is_read = frame[c.MEMORY_ID].isin(log[c.MEMORY_ID]).to_numpy()
    # If the log is empty, the start is missing, so that the comparison is false for every memory.
    existed_then = frame[c.CREATED_AT] <= _last_session_start(log)
    is_too_new = ~existed_then.to_numpy()
    is_not_loaded = np.zeros(len(frame), bool)
    is_searched_store = is_searched(str(frame.attrs.get(c.SOURCE, "")))
    if not is_searched_store and c.LOADED_AT_START in frame and frame[c.LOADED_AT_START].any():
        is_not_loaded = ~frame[c.LOADED_AT_START].to_numpy(bool)
    chance = np.select(
        [is_read, is_too_new, is_not_loaded], ["read", "too new", "not loaded"], "unread"
    )
    return pd.Series(
        pd.Categorical(chance, categories=list(CHANCES)), index=frame.index, name=CHANCE
    )


NO_READ_OF_STORE: Final = "not one line names a memory of this store; is it another store's log?"


def reads_of_store(log: pd.DataFrame, past: pd.DataFrame, now: datetime) -> pd.DataFrame:
    """Return the reads of memories in a store's history, up to `now`."""
    return log[log[c.MEMORY_ID].isin(past[c.MEMORY_ID]) & (log[c.AT] <= now)]


def is_other_stores_log(log: pd.DataFrame, past: pd.DataFrame) -> bool:
    """Return whether a log holds reads, and none of them is of a memory in a store's history."""
    return len(log) > 0 and not log[c.MEMORY_ID].isin(past[c.MEMORY_ID]).any()


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


HOW_JUDGED: Final = (
    "each read is judged by the files that were there then, and by the reads before it; as many "
    "lines fit as fit today"
)


@dataclass(frozen=True, repr=False)
class CutLosses(DisplayMixin):
    """Reads that miss their line because the index is cut, under several orders of its entries.

    A read is served by an order if the line of its memory was loaded. Each read is judged by the
    files that existed at its time, with as many lines loaded as fit today.

    Attributes
    ----------
    reads : int
        Reads of files that exist today.
    unnamed : int
        Those of them whose file no line of the index names.
    named : int
        Files that the index names.
    loaded : mapping of str to int
        Order of the entries -> number of reads that it serves.
    files : mapping of str to int
        Order of the entries -> number of files that its loaded lines name today.

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
        return self.reads - self.unnamed - self.loaded[TODAY]

    @property
    def below(self) -> int:
        """Number of files whose line is cut today."""
        return self.named - self.files[TODAY]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per order: loaded files, served reads, and their share of all reads."""
        served = list(self.loaded.values())
        columns = {
            "files": list(self.files.values()),
            "reads": served,
            "share": [count / self.reads if self.reads else 0.0 for count in served],
        }
        return pd.DataFrame(columns, index=pd.Index(self.loaded, name="order of the entries"))

    def table(self) -> Table:
        """Return the printed table: one row per order; without reads, today's files alone."""
        header = ("order of the entries", "files loaded", "reads with their line loaded", "share")
        if not self.reads:
            todays_row = (TODAY, self.files[TODAY])
            return Table("", header[:2], [todays_row])
        shares = self.to_frame().itertuples(name=None)
        rows = [(*counts, percent(share)) for *counts, share in shares]
        return Table("", header, rows, HOW_JUDGED)

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        named = counted(self.named, "named files")
        has_line = "has its line" if self.below == 1 else "have their line"
        below = f"{self.below:,} of {named} {has_line} below the cut"
        facts = [
            ("below", below),
            ("reads", f"{self.reads:,} of files that are there"),
            ("lost", f"{self.lost:,} of memories whose line was cut"),
            ("unnamed", f"{self.unnamed:,} of files that no line names"),
        ]
        return TextPage("reads that the cut of the index loses", facts, [self.table()])


def reads_missed_by_index_cut(source: SourceLike, log: pd.DataFrame | None = None) -> CutLosses:
    """Return the number of reads that found their line loaded, under several orders of the index.

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
    of_files = log.loc[is_of_file].sort_values(c.AT, kind="stable")
    names = of_files[c.MEMORY_ID].tolist()
    reads = list(zip(of_files[c.AT].dt.to_pydatetime(), names, strict=True))
    named = frozenset(index.lines[TODAY])
    return CutLosses(
        reads=len(reads),
        unnamed=sum(name not in named for name in names),
        named=len(named),
        loaded={order: _served(index, order, reads) for order in index.lines},
        files=index.fits,
    )


def _served(index: IndexOrderings, order: str, reads: Sequence[tuple[datetime, str]]) -> int:
    """Return the number of reads that found their line loaded in an order of the index.

    `reads` are in order of time. A line counts as present from the time its file was written, or
    from its first read if that is earlier. In the order `MOST_READ`, lines are ranked by the reads
    so far, and lines with equal counts by today's order.
    """
    lines = index.lines[TODAY if order == MOST_READ else order]
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
        if lines_above < index.fits[order]:
            served += 1
        if order == MOST_READ:
            del present[lines_above]
            negative_reads, number = rank[name]
            rank[name] = (negative_reads - 1, number)
            insort(present, rank[name])
    return served
