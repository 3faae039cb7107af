"""Harvest: append the reads that an agent's system recorded to an access log."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Final

from memlab.arguments import expect
from memlab.columns import AT, MEMORY_ID, SESSION
from memlab.errors import MemlabError
from memlab.evidence import reads
from memlab.evidence.access_log import AccessLog, log_parts
from memlab.evidence.past import load_past, present_rows
from memlab.sources.opening import (
    harvestable,
    is_named_by_scheme,
    open_source,
    possible_kinds,
    recognise,
    system_named,
)
from memlab.sources.postgres import is_server
from memlab.sources.reads import (
    EXCLUDED_KINDS,
    LOG_SUFFIX,
    READ,
    BytesCallback,
    HarvestRequest,
    Read,
    no_bytes_progress,
)
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

_EXCLUDED_IN_WORDS: Final = (
    "the reads that do not count as later needs, and the changes of memories; later harvests use it"
)
"""The content of the file beside a log."""


@dataclass(frozen=True, repr=False)
class Harvest(DisplayMixin):
    """The result of one harvest.

    Attributes
    ----------
    source, system : str
        The name of the source, without a password, and the name of its kind.
    log : Path
        The access log; :func:`memlab.read_access_log` reads it.
    reads, new, kept : int
        Number of reads in the source that are evidence of a need, number of these that were new to
        the log, and number of reads in the log that the source no longer has.
    excluded, new_excluded : dict
        Number of reads that are no evidence of a need, by kind, and of those that were new.
    by_way : dict
        Number of `reads` by tool, such as "Read" or "Bash".
    memories, first, last : int, datetime or None
        Number of memories in `reads`, and the first and the last time.
    left_out : dict
        Number of calls, results or lines that are no read, by reason.
    store : str or None
        The name of the store for ``memlab.load``, if the source is one.
    chances : str
        Sentence on the memories with reads in the log, and on those that it could not show.
    unknown : str
        Sentence on the lines of the log that name a memory unknown to the store; empty for none.
    notes : tuple of str
        Remarks on such a source.
    files, bytes : int
        Number of files and bytes that were read.
    apart : Path or None
        The file of the excluded reads and of the changes; None if there is none.

    Examples
    --------
    >>> harvest = Harvest(
    ...     source="memory", system="Claude Code", log=Path("memory.reads.jsonl"), reads=0, new=0,
    ...     kept=0, excluded={}, new_excluded={}, by_way={}, memories=0, first=None, last=None,
    ...     left_out={},
    ... )
    >>> harvest.next_steps()
    ['next: nothing to size by yet; harvest again after some sessions']
    """

    source: str
    system: str
    log: Path
    reads: int
    new: int
    kept: int
    excluded: dict[str, int]
    new_excluded: dict[str, int]
    by_way: dict[str, int]
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
    apart: Path | None = None

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
        reads_in_words = "none"
        if self.first is not None and self.last is not None:
            span = f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d}"
            reads_in_words = f"{self.reads:,}, of {counted(self.memories, 'memories')}, {span}"
        facts = [("reads", reads_in_words)]
        if self.by_way:
            counts_by_tool = [f"{name} {count:,}" for name, count in self.by_way.items()]
            facts.append(("read by", ", ".join(counts_by_tool)))
        for kind, meaning in EXCLUDED_KINDS.items():
            if self.excluded.get(kind):
                facts.append(("excluded", f"{self.excluded[kind]:,} {meaning}"))
        if self.chances:
            facts.append(("memories", self.chances))
        if self.unknown:
            facts.append(("the log", self.unknown))
        new = f"{self.new:,} new" if self.new else "nothing new"
        kept = f", {self.kept:,} kept that the source does not have any more" if self.kept else ""
        facts.append(("log", f"{self.log}: {new}{kept}"))
        if self.apart is not None:
            facts.append(("apart", f"{self.apart}: {_EXCLUDED_IN_WORDS}"))
        title = f"{self.source}: {self.system}"
        if self.files:
            title += f", {counted(self.files, 'files')}, {in_bytes(self.bytes)}"
        for number, note in enumerate(self.notes):
            label = "to know" if number == 0 else ""
            facts.append((label, note))
        rows = list(self.left_out.items())
        tables = [Table("not counted", (), rows)] if rows else []
        return TextPage(title, facts, tables)


def harvest(
    source: str | Path,
    log: Path | str | None = None,
    *,
    transcripts: Path | str | None = None,
    progress: BytesCallback = no_bytes_progress,
) -> Harvest:
    """Append the reads that an agent's system recorded to an access log.

    The source is only read. Reads that the log already has are not added again, and no line is
    removed, even if the source no longer shows it. Run it before the source deletes its records.

    Parameters
    ----------
    source : str or Path
        A Claude Code memory folder, a claude-mem, mcp-memory-service or LangGraph database, Codex's
        folder, an OpenClaw workspace, a project with Serena's memories, or the URL of a PostgreSQL
        database of MemForge or LangGraph.
    log : Path or str, optional
        The log; by default a file beside the source, ``<name>.reads.jsonl``. Reads that are no
        evidence of a need are written to a file beside it whose name ends in ``.apart``.
    transcripts : Path or str, optional
        The folder of Claude Code's transcripts or Codex's sessions, if not the usual one.
    progress : callable
        Called with the number of bytes read and the total.

    Returns
    -------
    Harvest
        The numbers of reads, and of what was left out.

    Raises
    ------
    MemlabError
        If the source is none of these, cannot be read, or the log cannot be written.

    Examples
    --------
    >>> import memlab
    >>> Path("memory").mkdir()
    >>> _ = Path("memory", "MEMORY.md").write_text("- [Build](build.md): how")
    >>> _ = Path("memory", "build.md").write_text("make")
    >>> harvest = memlab.harvest("claude:memory", transcripts=".")
    >>> harvest.system, harvest.reads
    ('Claude Code memory', 0)
    """
    call = "memlab.harvest"
    expect(source, str, PathLike, call=call, name="source")
    expect(log, str, PathLike, call=call, name="log", optional=True)
    expect(transcripts, str, PathLike, call=call, name="transcripts", optional=True)
    source_name = str(source)
    scheme = ""
    if is_named_by_scheme(source_name):  # as mcp-memory:FILE
        scheme = source_name.partition(":")[0]
        source_name = str(open_source(source_name).local_path)
    request = HarvestRequest(
        source=source_name,
        transcripts=None if transcripts is None else Path(transcripts),
        progress=progress,
        scheme=scheme,
    )
    system = _system_of(request)
    path = default_log(request.source) if log is None else Path(log)
    excluded_path = reads.excluded_log_of(path)
    for file in (path, excluded_path):
        if os.path.lexists(file):
            AccessLog(file).close()  # raise an error before minutes of reading
    logged_uses = _uses_in(path)
    excluded_uses = _uses_in(excluded_path)
    harvested = system.reads_module.find(
        replace(request, recorded={**logged_uses, **excluded_uses})
    )
    harvested.reads.sort(key=lambda read: read.at)
    logged_ids = {read.id for read in logged_uses.values() if read.kind == READ}
    recorded_ids = logged_uses.keys() | excluded_uses.keys()
    new = [read for read in harvested.reads if read.id not in recorded_ids]
    # These reads are in the log although they turned out to be no evidence of a need. Each gets a
    # second line with its kind, and the last line of an id counts.
    reclassified = [read for read in harvested.excluded if read.id in logged_ids]
    new_excluded = [read for read in harvested.excluded if read.id not in excluded_uses]
    new_writes = [write for write in harvested.writes if write.id not in excluded_uses]
    if new_excluded or new_writes:
        with AccessLog(excluded_path) as excluded_log:
            excluded_log.extend(map(_entry, [*new_excluded, *new_writes]))
    with AccessLog(path) as opened:
        opened.extend(map(_entry, [*reclassified, *new]))
    chances, unknown = _log_in_words(harvested.store, path)
    notes = list(harvested.notes)
    if harvested.without_zone:
        notes.insert(0, zoneless_in_words(harvested.without_zone))
    moments = [read.at for read in harvested.reads]
    harvested_ids = {read.id for read in (*harvested.reads, *harvested.excluded)}
    return Harvest(
        source=without_passwords(request.source),
        system=system.name,
        log=path,
        reads=len(harvested.reads),
        new=len(new),
        kept=len(logged_ids - harvested_ids),
        excluded=_counts(read.kind for read in harvested.excluded),
        new_excluded=_counts(read.kind for read in new_excluded),
        by_way=_counts(read.tool for read in harvested.reads),
        memories=len({read.memory_id for read in harvested.reads}),
        first=min(moments, default=None),
        last=max(moments, default=None),
        left_out={reason: count for reason, count in harvested.left_out.most_common() if count},
        store=None if harvested.store is None else without_passwords(harvested.store),
        chances=chances,
        unknown=unknown,
        notes=tuple(notes),
        files=harvested.files,
        bytes=harvested.bytes,
        apart=excluded_path if excluded_path.exists() else None,
    )


def _system_of(request: HarvestRequest) -> System:
    """Return the system whose reads a source holds."""
    shown_name = without_passwords(request.source)
    if request.scheme:
        named_system = system_named(request.scheme)
        if named_system is not None and named_system.reads and request.path.exists():
            return named_system
    try:
        for system in harvestable():
            if request.source and system.reads_module.recognises(request):
                return system
        exists = bool(request.source) and request.path.exists()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise MemlabError(f"{shown_name} cannot be looked at ({error}); check it") from error
    if is_server(request.source):
        raise MemlabError(
            f"{shown_name} has neither MemForge's retrieval_log nor LangGraph's store; "
            "check the database and the role"
        )
    if "://" in request.source:
        raise MemlabError(open_source(request.source).no_reads_message())
    if not exists:
        raise MemlabError(f"there is no {shown_name}; check the path")
    if recognise(request.path) is not None:
        raise MemlabError(open_source(request.path).no_reads_message())
    if possible_kinds(request.path):
        open_source(request.path)  # raises the error that names the possible schemes
    kinds = ", ".join(system.name for system in harvestable())
    raise MemlabError(f"{shown_name} cannot be harvested; these can: {kinds}")


def default_log(source: str) -> Path:
    """Return the log of a source: beside it, ``<name>.reads.jsonl``.

    A log with the name of earlier versions, ``<name>.reads.log``, is appended to if it is there.
    """
    if is_server(source):
        raise MemlabError(
            f"{without_passwords(source)} is a server; name a file for the reads with -o LOG"
        )
    path = Path(source).expanduser().resolve()
    old_log = path.with_name(f"{path.name}.reads.log")
    if old_log.exists():
        return old_log
    return path.with_name(f"{path.name}{LOG_SUFFIX}")


def _uses_in(path: Path) -> dict[str, Read]:
    """Return every read or change in a log by its id; the last line of an id counts."""
    lines = reads.LogLines()
    for part in log_parts(path):
        lines.read(part)
    uses = {}
    for row in lines.rows:
        if row.id:
            uses[row.id] = Read(
                memory_id=row.memory_id,
                at=row.at,
                id=row.id,
                tool="",
                session=row.session,
                kind=READ if row.kind is None else row.kind,
            )
    return uses


def _entry(read: Read) -> dict[str, str]:
    """Return the entry of a read for the log."""
    entry = {MEMORY_ID: read.memory_id, AT: read.at.isoformat(), "how": read.tool, "id": read.id}
    if read.session is not None:
        entry[SESSION] = read.session
    if read.kind != READ:
        entry["kind"] = read.kind
    return entry


def _counts(names: Iterable[str]) -> dict[str, int]:
    """Return the number of occurrences of each name, the most frequent first."""
    return dict(Counter(names).most_common())


def _log_in_words(store: str | None, log: Path) -> tuple[str, str]:
    """Return a sentence on the memories with reads, and one on lines with an unknown memory.

    Both are empty if the store cannot be loaded or the log has no reads.
    """
    if store is None:
        return "", ""
    try:
        past = load_past(store, on_bad_row="keep")
    except MemlabError:
        return "", ""
    logged = reads.follow_names(reads.read_access_log(log), store)
    if logged.empty:
        return "", ""
    chances = reads.reading_chances(present_rows(past), logged)
    return reads.describe_chances(chances), reads.describe_unknown(logged, past)
