"""Gather what an agent read into an access log, whatever system the agent writes it down in."""

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
    System,
    could_be,
    harvestable,
    is_named_by_scheme,
    open_source,
    recognise,
    schemes,
)
from memlab.sources.postgres import is_server
from memlab.sources.reads import APART, READ, Asked, Progress, Read, unheard
from memlab.text import DisplayMixin, Table, TextPage, command, counted, in_bytes, without_passwords


@dataclass(frozen=True, repr=False)
class Harvest(DisplayMixin):
    """What one harvest found and what of it is new.

    Attributes
    ----------
    source, way : str
        Where it looked, a server without its password, and the kind of source in words.
    log : Path
        The access log; :func:`memlab.read_access_log` reads it.
    reads, new, kept : int
        Reads that the source shows and that are later needs; those of them that the log did not
        have; reads of the log that its source no longer shows.
    apart, new_apart : dict
        Kind -> how many reads are no later need, and how many of them are new.
    by : dict
        How memories were read -> how many of `reads`.
    memories, first, last : int, datetime or None
        How many memories `reads` are of, and from when to when.
    left_out : dict
        Reason -> how many calls, results or lines are no read.
    store : str or None
        What ``memlab.load`` takes to show the memories, where the source is such a thing.
    chances : str
        Which of these memories the log has reads of, and which could not have been read.
    unknown : str
        How many lines of the log name no memory that the store has held, with examples.
    notes : tuple of str
        What to know about such a source.
    files, bytes : int
        How much was read.
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
        """Say what to run on the log."""
        if not self.reads and not self.kept:
            return ["next: nothing to size by yet; harvest again after some sessions"]
        if self.store is None:
            frame = f"memlab.read_access_log({str(self.log)!r}) returns the reads as a frame"
            return [f"next: memlab sizes no store of this kind yet; {frame}"]
        return [f"next: {command('size', self.store, '--log', self.log)}    sizes a cap by these"]

    def sheet(self) -> TextPage:
        """Return what is shown of it."""
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
    """Append the reads that an agent's system wrote down to an access log.

    The source is only read. What the log has already is not added again, and what it has stays,
    whether the source still shows it or not: run it as often as the source forgets.

    Parameters
    ----------
    source : str or Path
        A Claude Code memory folder, a claude-mem, mcp-memory-service or LangGraph database, Codex's
        folder, an OpenClaw workspace, a project with Serena's memories, or the URL of a PostgreSQL
        database of MemForge or LangGraph; MemlabError of anything else.
    log : Path or str, optional
        The log; :func:`default_log` by default. Reads that are no later need are kept in a file
        beside it whose name ends in ``.apart``.
    transcripts : Path or str, optional
        The folder that Claude Code's transcripts or Codex's sessions lie in, if not the usual one.
    progress : callable
        Is told how many bytes were read, and how many there are.
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
            AccessLog(existing).close()  # refused now rather than after minutes of reading
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
    chances, unknown = _said_of_store(found.store, path)
    zone = f"{counted(found.without_zone, 'times')} without a zone, taken as UTC"
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
        notes=(*[zone] * bool(found.without_zone), *found.notes),
        files=found.files,
        bytes=found.bytes,
    )


def _system_of(asked: Asked) -> System:
    named = without_passwords(asked.source)
    chosen = schemes().get(asked.scheme)
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
    """Return where a harvest of a source goes: beside it, ``<name>.reads.log``."""
    if is_server(source):
        raise MemlabError(
            f"{without_passwords(source)} is a server; name a file for the reads with -o LOG"
        )
    path = Path(source).expanduser().resolve()
    return path.with_name(f"{path.name}.reads.log")


def _known(path: Path) -> dict[str, Read]:
    """Return every use that a log names, by its id; the last line of an id stands."""
    lines = reads.LogLines()
    for part in log_parts(path):
        lines.read(part)
    return {
        name: Read(memory_id, at, name, "", session, kind or READ)
        for memory_id, at, session, kind, name in lines.rows
        if name
    }


def _entry(read: Read) -> dict[str, str]:
    entry = {MEMORY_ID: read.memory_id, AT: read.at.isoformat(), "how": read.how, "id": read.id}
    session = {} if read.session is None else {SESSION: read.session}
    return entry | session | ({} if read.kind == READ else {"kind": read.kind})


def _counts(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())


def _said_of_store(store: str | None, log: Path) -> tuple[str, str]:
    """Say which memories of a store a log could show read, and which of its lines name none."""
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
