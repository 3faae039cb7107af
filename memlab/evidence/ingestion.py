"""Harvest: the reads that an agent's system recorded, gathered into an access log."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path

from memlab.arguments import expect
from memlab.columns import AT, MEMORY_ID, SESSION
from memlab.errors import MemlabError
from memlab.evidence import reads
from memlab.evidence.access_log import AccessLog, log_parts
from memlab.evidence.past import load_past, present_rows
from memlab.sources.opening import (
    could_be,
    harvestable,
    is_named_by_scheme,
    open_source,
    recognise,
    system_named,
)
from memlab.sources.postgres import is_server
from memlab.sources.reads import APART, READ, Asked, Progress, Read, unheard
from memlab.sources.system import System
from memlab.text import (
    DisplayMixin,
    Table,
    TextPage,
    command,
    counted,
    in_bytes,
    without_passwords,
    zoneless_in_words,
)


@dataclass(frozen=True, repr=False)
class Harvest(DisplayMixin):
    """The result of one harvest.

    Attributes
    ----------
    source, way : str
        The source, a server without its password, and its kind in words.
    log : Path
        The access log; :func:`memlab.read_access_log` reads it.
    reads, new, kept : int
        Reads in the source that are later needs; of these, reads that the log did not have; and
        reads of the log that its source no longer shows.
    apart, new_apart : dict
        Kind -> number of reads that are no later need, and of new ones among them.
    by : dict
        How memories were read -> number of `reads`.
    memories, first, last : int, datetime or None
        Number of memories in `reads`, and the first and the last time.
    left_out : dict
        Reason -> number of calls, results or lines that are no read.
    store : str or None
        The name of the store for ``memlab.load``, if the source is one.
    chances : str
        Which memories of the store have reads in the log, and which could not have been read.
    unknown : str
        Number of lines of the log that name no memory the store has held, with examples.
    notes : tuple of str
        Remarks on such a source.
    files, bytes : int
        Number of files and bytes that were read.
    """

    source: str
    way: str
    log: Path
    reads: int
    new: int
    kept: int
    apart: dict[str, int]
    new_apart: dict[str, int]
    by: dict[str, int]
    memories: int
    first: datetime | None
    last: datetime | None
    left_out: dict[str, int]
    store: str | None = None
    chances: str = ""
    unknown: str = ""
    notes: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0

    def next_steps(self) -> list[str]:
        """Return the command to run on the log."""
        if not self.reads and not self.kept:
            return ["next: nothing to size by yet; harvest again after some sessions"]
        if self.store is None:
            frame = f"memlab.read_access_log({str(self.log)!r}) returns the reads as a frame"
            return [f"next: memlab sizes no store of this kind yet; {frame}"]
        return [f"next: {command('size', self.store, '--log', self.log)}    sizes a cap by these"]

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        found = "none"
        if self.first is not None and self.last is not None:
            span = f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d}"
            found = f"{self.reads:,}, of {counted(self.memories, 'memories')}, {span}"
        facts = [("reads", found)]
        if self.by:
            facts.append(("by", ", ".join(f"{name} {count:,}" for name, count in self.by.items())))
        for kind, words in APART.items():
            if self.apart.get(kind):
                facts.append(("kept apart", f"{self.apart[kind]:,} {words}"))
        if self.chances:
            facts.append(("memories", self.chances))
        if self.unknown:
            facts.append(("the log", self.unknown))
        new = f"{self.new:,} new" if self.new else "nothing new"
        kept = f", {self.kept:,} kept that the source no longer shows" if self.kept else ""
        facts.append(("log", f"{self.log}: {new}{kept}"))
        looked = f", {counted(self.files, 'files')}, {in_bytes(self.bytes)}"
        facts += [("" if place else "to know", note) for place, note in enumerate(self.notes)]
        rows = [(count, why) for why, count in self.left_out.items()]
        tables = [Table("not counted", (), rows)] if rows else []
        return TextPage(f"{self.source}: {self.way}{looked if self.files else ''}", facts, tables)


def harvest(
    source: str | Path,
    log: Path | str | None = None,
    *,
    transcripts: Path | str | None = None,
    progress: Progress = unheard,
) -> Harvest:
    """Append the reads that an agent's system recorded to an access log.

    The source is only read. Reads that the log already has are not added again, and no line is
    removed, whether the source still shows it or not: run it as often as the source forgets.

    Parameters
    ----------
    source : str or Path
        A Claude Code memory folder, a claude-mem, mcp-memory-service or LangGraph database, Codex's
        folder, an OpenClaw workspace, a project with Serena's memories, or the URL of a PostgreSQL
        database of MemForge or LangGraph; MemlabError for anything else.
    log : Path or str, optional
        The log; :func:`default_log` by default. Reads that are no later need are kept in a file
        beside it whose name ends in ``.apart``.
    transcripts : Path or str, optional
        The folder of Claude Code's transcripts or Codex's sessions, if not the usual one.
    progress : callable
        Called with the number of bytes read and the total.

    Returns
    -------
    Harvest
    """
    call = "memlab.harvest"
    expect(source, str, PathLike, call=call, name="source")
    expect(log, str, PathLike, call=call, name="log", optional=True)
    expect(transcripts, str, PathLike, call=call, name="transcripts", optional=True)
    named = str(source)
    scheme = ""
    if is_named_by_scheme(named):  # as mcp-memory:FILE
        scheme = named.partition(":")[0]
        named = str(open_source(named).permissions_template)
    asked = Asked(
        named, None if transcripts is None else Path(transcripts), progress, scheme=scheme
    )
    system = _system_of(asked)
    path = default_log(asked.source) if log is None else Path(log)
    for existing in (path, reads.apart_of(path)):
        if os.path.lexists(existing):
            AccessLog(existing).close()  # raises now rather than after minutes of reading
    known = _known(path)
    known_apart = _known(reads.apart_of(path))
    found = system.way.find(replace(asked, before={**known, **known_apart}))
    found.reads.sort(key=lambda read: read.at)
    logged = {read.id for read in known.values() if read.kind == READ}
    new = [read for read in found.reads if read.id not in known and read.id not in known_apart]
    no_longer = [read for read in found.apart if read.id in logged]  # the log says so, too
    new_apart = [read for read in found.apart if read.id not in known_apart]
    writes = [write for write in found.writes if write.id not in known_apart]
    if new_apart or writes:
        with AccessLog(reads.apart_of(path)) as apart:
            apart.extend(map(_entry, [*new_apart, *writes]))
    with AccessLog(path) as opened:
        opened.extend(map(_entry, [*no_longer, *new]))
    chances, unknown = _log_in_words(found.store, path)
    notes = list(found.notes)
    if found.without_zone:
        notes.insert(0, zoneless_in_words(found.without_zone))
    moments = [read.at for read in found.reads]
    return Harvest(
        source=without_passwords(asked.source),
        way=system.what,
        log=path,
        reads=len(found.reads),
        new=len(new),
        kept=len(logged - {read.id for read in (*found.reads, *found.apart)}),
        apart=_counts(read.kind for read in found.apart),
        new_apart=_counts(read.kind for read in new_apart),
        by=_counts(read.how for read in found.reads),
        memories=len({read.memory_id for read in found.reads}),
        first=min(moments, default=None),
        last=max(moments, default=None),
        left_out={why: n for why, n in found.left_out.most_common() if n},
        store=None if found.store is None else without_passwords(found.store),
        chances=chances,
        unknown=unknown,
        notes=tuple(notes),
        files=found.files,
        bytes=found.bytes,
    )


def _system_of(asked: Asked) -> System:
    """Return the system whose reads a source holds."""
    named = without_passwords(asked.source)
    chosen = system_named(asked.scheme) if asked.scheme else None
    if chosen is not None and chosen.reads and asked.path.exists():
        return chosen
    try:
        for system in harvestable():
            if asked.source and system.way.recognises(asked):
                return system
        there = bool(asked.source) and asked.path.exists()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise MemlabError(f"{named} cannot be looked at ({error}); check it") from error
    if is_server(asked.source):
        raise MemlabError(
            f"{named} has neither MemForge's retrieval_log nor LangGraph's store; "
            "check the database and the role"
        )
    if "://" in asked.source:
        raise MemlabError(open_source(asked.source).without_reads())
    if not there:
        raise MemlabError(f"there is no {named}; check the path")
    if recognise(asked.path) is not None:
        raise MemlabError(open_source(asked.path).without_reads())
    if could_be(asked.path):
        open_source(asked.path)  # says by which schemes it may be named
    kinds = ", ".join(system.what for system in harvestable())
    raise MemlabError(f"{named} is none of what can be harvested: {kinds}")


def default_log(source: str) -> Path:
    """Return the log of a source: beside it, ``<name>.reads.jsonl``.

    A log with the name of earlier versions, ``<name>.reads.log``, is appended to if it is there.
    """
    if is_server(source):
        raise MemlabError(
            f"{without_passwords(source)} is a server; name a file for the reads with -o LOG"
        )
    path = Path(source).expanduser().resolve()
    earlier = path.with_name(f"{path.name}.reads.log")
    return earlier if earlier.exists() else path.with_name(f"{path.name}.reads.jsonl")


def _known(path: Path) -> dict[str, Read]:
    """Return every use in a log by its id; the last line of an id counts."""
    lines = reads.LogLines()
    for part in log_parts(path):
        lines.read(part)
    known = {}
    for memory_id, at, session, kind, read_id in lines.rows:
        if read_id:
            known[read_id] = Read(memory_id, at, read_id, "", session, kind or READ)
    return known


def _entry(read: Read) -> dict[str, str]:
    """Return the entry of a read for the log."""
    entry = {MEMORY_ID: read.memory_id, AT: read.at.isoformat(), "how": read.how, "id": read.id}
    if read.session is not None:
        entry[SESSION] = read.session
    if read.kind != READ:
        entry["kind"] = read.kind
    return entry


def _counts(words: Iterable[str]) -> dict[str, int]:
    """Return the number of each word, the most frequent first."""
    return dict(Counter(words).most_common())


def _log_in_words(store: str | None, log: Path) -> tuple[str, str]:
    """Return which memories have reads, and which lines name none; both empty if unknown."""
    if store is None:
        return "", ""
    try:
        past = load_past(store, on_bad_row="keep")
    except MemlabError:
        return "", ""
    found = reads.follow_names(reads.read_access_log(log), store)
    if found.empty:
        return "", ""
    chances = reads.reading_chances(present_rows(past), found)
    return reads.describe_chances(chances), reads.describe_unknown(found, past)
