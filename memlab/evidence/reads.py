"""Read an access log: which memory an agent read, when, and whether its line was loaded then."""

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
from memlab.evidence.past import Memories, present_rows, resolve_history
from memlab.files import ordinary_file
from memlab.frame.loading import expect_log
from memlab.settings import Settings
from memlab.sources.base import MOST_READ, TODAY, FormerName, IndexOrderings, Source
from memlab.sources.opening import SourceLike, is_searched, open_source
from memlab.sources.reads import APART, MAINTENANCE, WRITE, parsed, text
from memlab.text import DisplayMixin, Table, TextPage, counted, refused

PASSED_OVER: Final = "passed_over"
"""Key of a log's ``attrs``: reason -> how many of its lines are no read."""

_WANTED: Final = "a log has a memory_id and an at, such as 2026-06-30T18:00:00+00:00, on every line"
_ID: Final = "id"
_FIELDS: Final = (c.MEMORY_ID, c.AT, c.SESSION, c.KIND, _ID)
_DTYPES: Final = dict.fromkeys(_FIELDS, "str") | {c.AT: c.TIME}
_LINES_AT_ONCE: Final = 2**24
"""Bytes; no line of a log is longer."""
_EXAMPLES: Final = 3
"""Names that a sentence ends with."""
_NO_FILE: Final = "part that is no ordinary file"


def read_access_log(path: str | PathLike[str], *, maintenance: bool = False) -> pd.DataFrame:
    """Read a file of memories read: CSV with a header, or one JSON object a line.

    Each line names a memory in ``memory_id`` and the moment it was read in ``at``, in ISO 8601. A
    time without a zone is taken as UTC. ``session`` may say in which session it was read; other
    fields are ignored, and so are empty lines; an empty ``session`` or ``id`` is none. A file with
    JSON in it may have been rotated: the parts ``path.1``, ``path.2`` and so on are read as well.
    Of several lines with one ``id`` the last stands.

    In a file with JSON, a line that is no read is passed over and counted, since a process that was
    killed may have left half of one. In CSV it is an error. A file with lines of which none is a
    read is refused.

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
        :func:`memlab.evidence.describe_log` says both in words.
    """
    expect(path, str, PathLike, call="memlab.read_access_log", name="path")
    return _reads_of([Path(path)], maintenance=maintenance)


def _reads_of(files: Iterable[Path], *, maintenance: bool = False) -> pd.DataFrame:
    log = LogLines()
    for file in files:
        known = len(log.rows)
        log.first_fault = None
        parts = [] if _is_csv(file) else log_parts(file)  # CSV is never rotated
        for part in parts or [file]:
            log.read(part, needed=part == file)
        for part in log_parts(apart_of(file)) if maintenance else ():
            log.read(part)
        if log.first_fault and len(log.rows) == known:
            raise MemlabError(f"{log.first_fault}; {_WANTED}")
    return log.frame(maintenance=maintenance)


Log = pd.DataFrame | str | PathLike[str] | None
"""A log that a call is given: a frame of reads, or the file of one."""


def reads_in(
    log: Log, settings: Settings, *, call: str, source: Source | None = None
) -> tuple[pd.DataFrame | None, Path | None]:
    """Return the reads of a log that was given, else of those remembered; and the log's file.

    Reads under a former name of a memory of `source` are given its present one.
    """
    if isinstance(log, str | PathLike):
        return _followed(read_access_log(log), source), Path(log)
    expect_log(log, call=call)
    if log is not None:
        return _followed(log, source), None
    return remembered_reads(settings, source), next(iter(settings.log), None)


def follow_names(log: pd.DataFrame, store: SourceLike) -> pd.DataFrame:
    """Return a log in which each memory is called by the id that it has in a store now.

    A read belongs to the memory that had the name at the moment of the read. Renames are known
    where the store is a folder that git tracks; elsewhere the log is returned as it is. Functions
    that are given a store and a log do this themselves.

    Parameters
    ----------
    log : DataFrame
        What :func:`memlab.read_access_log` returns.
    store : str, Path or Source
        The store whose memories were read.
    """
    expect_log(log, call="memlab.evidence.follow_names")
    return _followed(log, open_source(store))


def _followed(log: pd.DataFrame, source: Source | None) -> pd.DataFrame:
    formers = () if source is None else source.former_names()
    if not formers:
        return log
    by_name: dict[str, list[FormerName]] = {}
    for former in sorted(formers, key=lambda each: each.until):
        by_name.setdefault(former.name, []).append(former)
    renamed = log[c.MEMORY_ID].isin(by_name.keys()) & log[c.AT].notna()
    if not renamed.any():
        return log
    rows = zip(log.loc[renamed, c.MEMORY_ID], log.loc[renamed, c.AT], strict=True)
    names = [_name_now(name, at, by_name[name]) for name, at in rows]
    followed = log.copy()
    followed.loc[renamed, c.MEMORY_ID] = names
    return followed


def _name_now(name: str, at: datetime, formers: Sequence[FormerName]) -> str:
    """Return the present id of the memory that had a name at a moment."""
    for former in formers:
        if at < former.until:
            return former.memory_id
    return formers[-1].memory_id if formers[-1].is_free else name


def log_option(
    reads: pd.DataFrame | None, file: Path | None, settings: Settings
) -> tuple[str, ...]:
    """Return how a command is given a log; nothing without one, or where the settings name it."""
    if reads is None or file in settings.log:
        return ()
    return ("--log", str(file or "LOG"))


def remembered_reads(settings: Settings, source: Source | None = None) -> pd.DataFrame | None:
    """Return the reads of every access log that is remembered of a store; None without one.

    Reads under a former name of a memory of `source` are given its present one.
    """
    if not settings.log:
        return None
    try:
        return _followed(_reads_of(settings.log), source)
    except MemlabError as error:
        raise settings.error("log", f"{error}; or take the log out of the settings") from error


def apart_of(log: Path) -> Path:
    """Return where a harvest into `log` keeps the reads that are no later need."""
    return log.with_name(f"{log.name}.apart")


def describe_log(log: pd.DataFrame, past: pd.DataFrame | None = None) -> list[str]:
    """Say what lines of a log from `read_access_log` are left out; nothing where all is well.

    Where it holds none at all, that is said. With the past of a store, so are the lines that name
    no memory of it, with the names that stand there most often.
    """
    passed_over: dict[str, int] = log.attrs.get(PASSED_OVER, {})
    said = [] if len(log) else ["the log: it holds no read"]
    if passed_over:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in passed_over.items())
        said.append(f"the log: lines passed over: {reasons}")
    if past is not None and not is_other_stores_log(log, past):
        unknown = describe_unknown(log, past)
        said += [f"the log: {unknown}"] if unknown else []
    if without := log.attrs.get(c.WITHOUT_ZONE, 0):
        said.append(f"the log: {counted(without, 'times')} without a zone, taken as UTC")
    if len(log):
        most = log[c.MEMORY_ID].value_counts()
        if len(most) > 1 and most.iloc[0] > len(log) / 2 and most.iloc[0] >= 100:
            said.append(
                f"the log: {most.iloc[0]:,} of {len(log):,} reads are of one memory, "
                f"{most.index[0]}; is something polling it?"
            )
    return said


def describe_unknown(log: pd.DataFrame, past: pd.DataFrame) -> str:
    """Say how many lines of a log name no memory that a store has held; empty where all do."""
    unknown = log.loc[~log[c.MEMORY_ID].isin(past[c.MEMORY_ID]), c.MEMORY_ID].value_counts()
    if unknown.empty:
        return ""
    names = ", ".join(map(str, unknown.index[:_EXAMPLES]))
    more = len(unknown) - _EXAMPLES
    rest = f" and {more:,} more" if more > 0 else ""
    lines = f"{unknown.sum():,} of {len(log):,} lines name no memory of this store"
    return f"{lines}: {names}{rest}"


class LogLines:
    """Gathers the lines of a log's parts, and what is to be said about them."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.passed_over: Counter[str] = Counter()
        self.without_zone = 0
        self.first_fault: str | None = None

    def read(self, path: Path, *, needed: bool = False) -> None:
        """Take in one file; what is no file is left out, unless it was asked for by its name."""
        if not needed and not path.is_file():
            self.passed_over[_NO_FILE] += 1
        elif _is_csv(path):
            self._read_csv(path)
        else:
            self._read_lines(path)

    def frame(self, *, maintenance: bool) -> pd.DataFrame:
        """Return the reads, in the order of the lines."""
        frame = pd.DataFrame(self.rows, columns=_FIELDS).astype(_DTYPES)
        again = frame[_ID].notna() & frame[_ID].duplicated(keep="last")
        left_out = {WRITE, *APART} - ({MAINTENANCE} if maintenance else set())
        reads = frame.loc[~again & ~frame[c.KIND].isin(left_out), [c.MEMORY_ID, c.AT, c.SESSION]]
        reads = reads.reset_index(drop=True)
        reads.attrs[PASSED_OVER] = dict(self.passed_over)
        reads.attrs[c.WITHOUT_ZONE] = self.without_zone
        return reads

    def _read_lines(self, path: Path) -> None:
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
        """Take in CSV; a row that is no read is an error."""
        rows = csv.DictReader(map(_decoded, _lines_of(path)), strict=True)
        try:
            missing = {c.MEMORY_ID, c.AT} - set(rows.fieldnames or ())
            if missing:
                names = " and no column ".join(sorted(missing))
                raise MemlabError(f"{path}, line 1: no column {names}; {_WANTED}")
            self.rows += [self._row(fields) for fields in rows]
        except csv.Error as error:
            raise MemlabError(f"{path}, near line {rows.line_num}: {error}; {_WANTED}") from error
        except ValueError as error:
            fault, _ = error.args
            raise MemlabError(f"{path}, line {rows.line_num}: {fault}; {_WANTED}") from error

    def _row(self, fields: Any) -> tuple[Any, ...]:
        """Return a line's fields; raises ValueError with what is wrong and what to count it as."""
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
        self.without_zone += not has_zone
        others = (text(fields.get(name)) or None for name in (c.SESSION, c.KIND, _ID))
        return text(memory_id), moment, *others


def _lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a log; one that is too long comes in pieces, which are no reads."""
    try:
        with ordinary_file(path) as file:
            yield from iter(lambda: file.readline(_LINES_AT_ONCE), b"")
    except OSError as error:
        words = refused(f"{path} cannot be read", error, "the path and its permissions")
        raise MemlabError(words) from error


def _is_csv(path: Path) -> bool:
    """Whether there are lines, and none of the first begins as an object does."""
    try:
        with ordinary_file(path, most=sys.maxsize) as file:
            beginning = file.read(2**16)
    except (OSError, ValueError):
        return False  # what is wrong is said when it is read
    lines = beginning.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return bool(beginning) and not any(line.lstrip().startswith(b"{") for line in lines)


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise csv.Error("not text in UTF-8") from None


def _shown(value: Any) -> str:
    return "missing" if value is None else f"{value!r:.60}"


CHANCE: Final = "chance"
CHANCES: Final = {
    "read": "read",
    "unread": "never read, though they could have been",
    "too new": "written after the last read in the log",
    "not loaded": "not loaded at start, and never read",
}
"""What a memory's chance was, with the words for it."""


def reading_chances(frame: Memories, log: pd.DataFrame) -> pd.Series:
    """Say of every memory whether it was read, and if not, whether it could have been.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load`` returns, or the store itself, for what is in it now. Where its source
        says what is loaded at start, and loads anything, a memory that is not had no chance: no
        agent was told of it. Where agents search, they could have found it.
    log : DataFrame
        What `read_access_log` returns.

    Returns
    -------
    Series
        Named ``chance``, a category of `CHANCES` for each row of the frame. A memory is too new
        when no other session, or where sessions are not known no other read, came after it was
        written.
    """
    if not isinstance(frame, pd.DataFrame):
        frame = present_rows(
            resolve_history(frame, call="memlab.evidence.reading_chances", log=log)
        )
    last = _last_beginning(log)
    read = frame[c.MEMORY_ID].isin(log[c.MEMORY_ID]).to_numpy()
    too_new = ~(frame[c.CREATED_AT] <= last).to_numpy()  # all of them where the log is empty
    hidden = np.zeros(len(frame), bool)
    searched = is_searched(str(frame.attrs.get(c.SOURCE, "")))
    if not searched and c.LOADED_AT_START in frame and frame[c.LOADED_AT_START].any():
        hidden = ~frame[c.LOADED_AT_START].to_numpy(bool)
    chance = np.select([read, too_new, hidden], ["read", "too new", "not loaded"], "unread")
    return pd.Series(
        pd.Categorical(chance, categories=list(CHANCES)), index=frame.index, name=CHANCE
    )


ANOTHERS: Final = "not one line names a memory of this store; is it another store's log?"


def reads_of_store(log: pd.DataFrame, past: pd.DataFrame, now: datetime) -> pd.DataFrame:
    """Return the reads of what was ever in a store, until a moment."""
    return log[log[c.MEMORY_ID].isin(past[c.MEMORY_ID]) & (log[c.AT] <= now)]


def is_other_stores_log(log: pd.DataFrame, past: pd.DataFrame) -> bool:
    """Whether a log holds reads, and none of what was ever in a store."""
    return len(log) > 0 and not log[c.MEMORY_ID].isin(past[c.MEMORY_ID]).any()


def describe_chances(chances: pd.Series) -> str:
    """Say in a sentence how many memories were read, and how many could not have been.

    `chances` is what `reading_chances` returns.
    """
    counts = chances.value_counts(sort=False)
    parts = [f"{counts[name]:,} {words}" for name, words in CHANCES.items() if counts.get(name)]
    return f"{counted(len(chances), 'memories')}: {', '.join(parts)}" if parts else "no memories"


def _last_beginning(log: pd.DataFrame) -> Any:
    """Return when the last session's first read was made; one without a session is its own."""
    if c.SESSION not in log:
        return log[c.AT].max()
    alone = log.loc[log[c.SESSION].isna(), c.AT]
    first = log.groupby(c.SESSION, observed=True)[c.AT].min()
    return pd.concat([alone, first]).max()


HOW_JUDGED: Final = (
    "each read is judged by the files that were there then, and by the reads before it; as many "
    "lines fit as fit today"
)


@dataclass(frozen=True, repr=False)
class CutLosses(DisplayMixin):
    """Reads by whether the memory's line was loaded, as the index stands and in other orders.

    Each read is judged by the files that were there at its moment, in the order in question, with
    as many lines loaded as fit today.

    `reads` are those of files that are there today, `unnamed` those of them that no line names;
    lines name `named` files. By order of the entries, ``loaded`` says how many reads found the
    memory's line loaded, and `files` how many files a loaded line names today.
    """

    reads: int
    unnamed: int
    named: int
    loaded: Mapping[str, int]
    files: Mapping[str, int]

    @property
    def lost(self) -> int:
        """Reads of memories whose line was cut, the entries as they stand today."""
        return self.reads - self.unnamed - self.loaded[TODAY]

    @property
    def below(self) -> int:
        """Files whose line is cut today."""
        return self.named - self.files[TODAY]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each order: files that are loaded, reads, and their share."""
        share = [count / self.reads if self.reads else 0.0 for count in self.loaded.values()]
        columns = {"files": list(self.files.values()), "reads": list(self.loaded.values())}
        return pd.DataFrame(
            {**columns, "share": share}, index=pd.Index(self.loaded, name="order of the entries")
        )

    def table(self) -> Table:
        """Return a row for each order, for people; without reads, how much of it is loaded."""
        header = ("order of the entries", "files loaded", "reads with their line loaded", "share")
        if not self.reads:
            return Table("", header[:2], [*self.files.items()][:1])
        shares = self.to_frame().itertuples(name=None)
        rows = [(*counts, f"{share:.1%}") for *counts, share in shares]
        return Table("", header, rows, HOW_JUDGED)

    def sheet(self) -> TextPage:
        """Return what is printed."""
        below = f"{self.below:,} of {self.named:,} named files have their line below the cut"
        facts = [
            ("below", below),
            ("reads", f"{self.reads:,} of files that are there"),
            ("lost", f"{self.lost:,} of memories whose line was cut"),
            ("unnamed", f"{self.unnamed:,} of files that no line names"),
        ]
        return TextPage("what the cut of the index loses", facts, [self.table()])


def reads_missed_by_index_cut(source: SourceLike, log: pd.DataFrame | None = None) -> CutLosses:
    """Say which reads found the memory's line loaded, and in which order more would have.

    That is for the index as it stands, and for its entries newest first, oldest first and most read
    first, under the same limits.

    Parameters
    ----------
    source : str, Path or Source
        A folder of Claude Code's memory; MemlabError of another kind of store.
    log : DataFrame, optional
        Later reads, as :func:`memlab.read_access_log` returns them; without them it is only known
        what is cut, and not what that loses.
    """
    if log is None:
        log = pd.DataFrame({c.MEMORY_ID: pd.Series(dtype="str"), c.AT: pd.Series(dtype=c.TIME)})
    expect_log(log, call="memlab.evidence.reads_missed_by_index_cut")
    found = open_source(source).orders(Counter(log[c.MEMORY_ID]))
    of_files = log.loc[log[c.MEMORY_ID].isin(found.written.keys())].sort_values(c.AT, kind="stable")
    names = of_files[c.MEMORY_ID].tolist()
    reads = list(zip(of_files[c.AT].dt.to_pydatetime(), names, strict=True))
    named = frozenset(found.lines[TODAY])
    return CutLosses(
        reads=len(reads),
        unnamed=sum(name not in named for name in names),
        named=len(named),
        loaded={order: _served(found, order, reads) for order in found.lines},
        files=found.fits,
    )


def _served(found: IndexOrderings, order: str, reads: Sequence[tuple[datetime, str]]) -> int:
    """Return how many reads found the memory's line loaded, in the order that was there then."""
    lines = found.lines[TODAY if order == MOST_READ else order]
    place = {name: (0, number) for number, name in enumerate(lines)}
    known = {name: at for at, name in reversed(reads)}  # what was read was there
    since = {name: min(found.written[name], known.get(name, found.written[name])) for name in lines}
    coming = deque(sorted(lines, key=since.__getitem__))
    there: list[tuple[int, int]] = []
    served = 0
    for at, name in reads:
        while coming and since[coming[0]] <= at:
            insort(there, place[coming.popleft()])
        if name in place:
            above = bisect_left(there, place[name])
            served += above < found.fits[order]
            if order == MOST_READ:
                del there[above]
                times, number = place[name]
                place[name] = times - 1, number
                insort(there, place[name])
    return served
