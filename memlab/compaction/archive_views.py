"""Looking into an archive: list, search, export what is in it, and hold it against its store."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from itertools import chain, groupby
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memlab import columns as col
from memlab.compaction.applier import is_superseded, plan_in, receipt_of
from memlab.compaction.plans import Plan, Receipt
from memlab.errors import ArchiveError
from memlab.files import limit_like, whole_file
from memlab.items import tags_as_text
from memlab.sources.archived import open_archived
from memlab.sources.base import Key, Reader, Source, archive_at
from memlab.sources.opening import SourceLike
from memlab.sources.tables import SCHEMA, TEXT
from memlab.store.archive.archive import Archive
from memlab.store.archive.content_copies import last_copied
from memlab.store.archive.hashed_names import key_of
from memlab.store.archive.location import has_archive
from memlab.store.archive.opening import check_not_renamed, read_archive
from memlab.store.archive.retired import retired_in
from memlab.store.archive.schema import Dropped, Entry
from memlab.store.archive.tombstones import facts_in
from memlab.text import DisplayMixin, Table, TextPage, command, counted

Result = TypeVar("Result")

EXPORTS: Final = (".jsonl", ".parquet")
MOST_LISTED: Final = 5
"""A runtime's deletions one after the other that are listed one by one."""

_HEAD: Final = ("digest", "archived_at", "restored_at", "reason")
_LISTED: Final = (
    *_HEAD,
    col.POSITION,
    col.MEMORY_ID,
    col.KIND,
    col.TITLE,
    col.CREATED_AT,
    col.NAMESPACE,
)
_RECORD: Final = "record"
_KEY: Final = "archived_key"
_PARQUET: Final = pa.schema(
    [
        *((name, TEXT) for name in (*_HEAD, col.KEY)),
        *((f.name, TEXT if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA),
        (_RECORD, TEXT),
    ]
)


def archived_plans(store: SourceLike) -> list[Entry]:
    """Return every plan that was applied to a store, oldest first.

    ArchiveError when it has no archive, or one that cannot be read, as for all that reads one.
    """
    return look_into(open_archived(store), lambda archive: archive.entries())


def dropped_plans(store: SourceLike) -> list[Dropped]:
    """Return every deletion whose words were erased and whose facts are kept, oldest first."""
    return look_into(open_archived(store), Archive.dropped)


@dataclass(frozen=True, repr=False)
class ArchiveListing(DisplayMixin):
    """What was taken out of a store, plan by plan, oldest first, and how to take the last back."""

    store: str
    entries: tuple[Entry, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    copied: datetime | None = None

    def to_json(self) -> str:
        """Return a JSON object for each."""
        each = [*(e._asdict() for e in self.entries), *(d._asdict() for d in self.dropped)]
        return json.dumps(each, indent=2, default=datetime.isoformat)

    def sheet(self) -> TextPage:
        """Return what is printed; many deletions of a runtime's own in a row are one line."""
        rows: list[tuple[str, ...]] = []

        def is_runtimes(entry: Entry) -> bool:
            return not (entry.planned or entry.recovers) and entry.finished_at is not None

        for is_own, group in groupby(self.entries, is_runtimes):
            some = list(group)
            if is_own and len(some) > MOST_LISTED:
                rows.append(_summed(some))
            else:
                rows += map(self._line, some)
        facts_kept = "of which only the facts are kept"
        rows += [
            (*_when(e.digest, e.deleted_at), "dropped", f"{counted(e.memories)}, {facts_kept}")
            for e in self.dropped
        ]
        title = "" if rows else f"no plan has taken anything out of {self.store} yet"
        if self.copied is not None:
            at = f"{self.copied:%Y-%m-%d %H:%M} UTC"
            title = f"copies of what was in {self.store}, last made {at}"
        return TextPage(title, [], [Table("", (), rows, whole=True)] * bool(rows))

    def next_steps(self) -> list[str]:
        """Say how one that was cut short is finished, and how the last one is taken back."""
        return [*self.steps]

    def _line(self, entry: Entry) -> tuple[str, ...]:
        state = "applied" if entry.finished_at else "CUT SHORT"
        what = self.moved.get(entry.digest)
        if entry.recovers:
            what = f"restored {counted(entry.memories)} that somebody else had deleted"
        what = what or f"{counted(entry.memories)}, {entry.restored:,} restored"
        return (*_when(entry.digest, entry.archived_at), state, what)


def undo_line(store: str, digest: str) -> str:
    """Say how what a plan took out is put back."""
    back = "puts back what this one took out; with --id ID, one of them"
    return f"undo: {command('restore', store, digest[:12])}    {back}"


def _when(digest: str, at: datetime) -> tuple[str, str]:
    return digest[:12], f"{at:%Y-%m-%d %H:%M}"


def _summed(entries: list[Entry]) -> tuple[str, ...]:
    first = entries[0].archived_at
    last = entries[-1].archived_at
    memories = sum(e.memories for e in entries)
    back = sum(e.restored for e in entries)
    until = f"to {last:%Y-%m-%d %H:%M}"
    what = f"{counted(memories)}, {back:,} restored; --rows lists them"
    which = f"{len(entries):,} deletions of a runtime's own"
    return which, f"{first:%Y-%m-%d %H:%M}", until, what


def archive_listing(store: SourceLike) -> ArchiveListing:
    """Return what was taken out of a store, as ``memlab archive`` lists it."""
    source = open_archived(store)
    name = str(store) if isinstance(store, str | PathLike) else source.name
    place = archive_at(source)
    if (
        source.permissions_template is None or source.permissions_template.exists()
    ) and not has_archive(place):
        with source.reading():
            pass  # what is no store at all never had anything taken out of it
        check_not_renamed(place)
        return ArchiveListing(name)

    def read(archive: Archive) -> ArchiveListing:
        entries = archive.entries()
        retired = retired_in(archive)
        moved = {}
        undo = unfinished = ""
        for entry in entries:
            back = entry.left > entry.restored
            if entry.planned and not entry.memories and not entry.recovers:
                plan = plan_in(archive, entry)
                each_done = receipt_of(plan, source, plan.made_at).done
                done = [f"{did} {counted(count)}" for did, count in each_done if count]
                moved[entry.digest] = ", ".join(done)
                back = not plan.moves or any(each.key in retired for each in plan.moves)
            if back and entry.finished_at and not entry.recovers:
                undo = undo_line(name, entry.digest)
            elif entry.planned and not (entry.finished_at or entry.recovers):
                unfinished = f"next: {command('apply', name, entry.digest[:12])}    finishes it"
        dropped = tuple(archive.dropped())
        copied = last_copied(archive)
        steps = tuple(filter(None, (unfinished, undo)))
        return ArchiveListing(name, tuple(entries), dropped, moved, steps, copied)

    return look_into(source, read)


def last_applied(store: SourceLike) -> tuple[Plan, Receipt] | None:
    """Return the last plan that deleted from a store, with its receipt; None without one."""
    source = open_archived(store)

    def read(archive: Archive) -> tuple[Plan, Receipt] | None:
        plans = (e for e in archive.entries() if e.planned and not e.recovers)
        finished = [e for e in plans if e.finished_at and e.memories]
        if not finished:
            return None
        try:
            plan = plan_in(archive, finished[-1])
        except ArchiveError as error:
            archive.faults[f"plan {finished[-1].digest[:12]}"] = str(error)
            return None
        moment = finished[-1].finished_at or finished[-1].archived_at
        expired = len(plan.memories) - finished[-1].memories
        done = receipt_of(plan, source, moment)
        return plan, replace(done, deleted=finished[-1].memories, expired=expired)

    place = archive_at(source)
    return read_archive(place, read) if has_archive(place) else None


def archived_rows(
    store: SourceLike, *, digest: str | None = None, search: str | None = None
) -> pd.DataFrame:
    """Return what was taken out of a store, oldest first.

    Parameters
    ----------
    store : str, Path or Source
        The store.
    digest : str, optional
        Only what this plan took out; the beginning of its digest will do.
    search : str, optional
        Only memories that have this text in id, title, body or tags, whatever the case.

    Returns
    -------
    DataFrame
        ``digest``, ``archived_at``, ``restored_at``, ``reason``, ``position``, ``memory_id``,
        ``kind``, ``title``, ``created_at``, ``namespace``. What cannot be read is missing, and so
        is a namespace where a memory has none.
    """
    source = open_archived(store, digest or "")

    def read(archive: Archive) -> pd.DataFrame:
        tables = _found(source, archive, digest, search)
        rows = [[row.get(name) for name in _LISTED] for t in tables for row in t.to_pylist()]
        return pd.DataFrame(rows, columns=list(_LISTED))

    return look_into(source, read)


def export_archived(
    store: SourceLike, path: str | Path, *, digest: str | None = None, search: str | None = None
) -> int:
    """Write archived memories with every column into a file, whole or not at all; return how many.

    Parameters
    ----------
    path : str or Path
        ``.jsonl`` keeps everything, one memory a line: when and why it was deleted, and the fields
        of its record, without those that are NULL. ``.parquet`` has the columns that every store
        has, and the record as text. ValueError where it ends otherwise.
    store, digest, search
        As for :func:`archived_rows`.
    """
    target = Path(path)
    if target.suffix not in EXPORTS:
        raise ValueError(f"path must end in {' or '.join(EXPORTS)}, not {str(target)!r}")
    write = _write_jsonl if target.suffix == ".jsonl" else _write_parquet
    source = open_archived(store, digest or "")

    def read(archive: Archive) -> int:
        with whole_file(target, limit=limit_like(archive.path)) as draft:
            return write(draft, _found(source, archive, digest, search))

    return look_into(source, read)


def look_into(source: Source, read: Callable[[Archive], Result]) -> Result:
    """Look into a source's archive."""
    place = archive_at(source)
    check_not_renamed(place)
    return read_archive(place, read)


def _found(
    source: Source, archive: Archive, digest: str | None, search: str | None
) -> Iterator[Any]:
    """Read the chosen memories as tables, some at a time, in the order of their deletion."""
    for entry in archive.entries() if digest is None else [archive.entry(digest)]:
        if entry.recovers:  # which put something back and took nothing out
            continue
        for copies in archive.batches(entry):
            rows = source.rows_of([(copy.key, record) for copy, record in copies], with_body=True)
            table = pa.concat_tables([each.table for each in rows], promote_options="default")
            at = entry.archived_at.isoformat()
            said = [
                (entry.digest, at, c.restored_at, c.reason, json.dumps(c.key), record.decode())
                for c, record in copies
            ]
            for name, values in zip((*_HEAD, _KEY, _RECORD), zip(*said, strict=True), strict=True):
                table = table.append_column(name, pa.array(values, TEXT))
            yield table if search is None else table.filter(_matching(table, search))


def _matching(table: Any, search: str) -> Any:
    texts = [table[name].cast(TEXT) for name in (col.MEMORY_ID, col.TITLE, col.BODY)]
    tags = [tags_as_text(each) for each in table["tags_json"].cast(TEXT).to_pylist()]
    hits = (
        pc.match_substring(pc.utf8_lower(text), search.lower())
        for text in (*texts, pa.array(tags, TEXT))
    )
    return reduce(pc.or_kleene, hits)


def _write_jsonl(draft: Path, found: Iterator[Any]) -> int:
    count = 0
    with draft.open("w", encoding="utf-8") as file:
        for row in chain.from_iterable(table.to_pylist() for table in found):
            named = {name: row[name] for name in _HEAD} | {"key": json.loads(row[_KEY])}
            named |= {"position": row[col.POSITION], **json.loads(row[_RECORD])}
            file.write(json.dumps(named) + "\n")
            count += 1
    return count


def _write_parquet(draft: Path, found: Iterator[Any]) -> int:
    count = 0
    with pq.ParquetWriter(draft, _PARQUET) as writer:
        for table in found:
            rows = table.to_pylist()
            for row in rows:
                row[col.KEY] = str(json.loads(row[_KEY]))
                if isinstance(row[col.CREATED_AT], datetime):  # where the source has no text
                    row[col.CREATED_AT] = row[col.CREATED_AT].isoformat()
            writer.write_table(pa.Table.from_pylist(rows, _PARQUET))
            count += len(table)
    return count


Fault = tuple[str, str]
"""What does not fit, and what to do about it."""


class Comparison(NamedTuple):
    """What an archive and its store say of each other."""

    plans: int
    memories: int
    unfinished: int
    faults: tuple[Fault, ...]


def compared(reader: Reader, source: Source, archive: Archive) -> Comparison:
    """Hold an archive against its store, at one moment of both. Reads only."""
    entries = archive.entries()
    deletions = [entry for entry in entries if not entry.recovers]
    last = {copy.key: entry.apply for entry in deletions for copy in archive.copies(entry)}
    for entry in entries:  # what is damaged is found by reading it
        for _ in archive.batches(entry):
            pass
    for dropped in archive.dropped():
        facts_in(archive, dropped)
    key_of(archive)
    faults = list[Fault]()
    unfinished = 0
    if archive.faults:
        advice = "restore a backup of the archive; the rest can be restored"
        faults.append((archive.told(), advice))
    for entry in deletions:
        cut_short = _cut_short(reader, source, archive, entry)
        unfinished += cut_short is not None
        faults += [cut_short] if cut_short else _standing(reader, archive, entry, last)
    archive.faults.clear()  # they are said here
    memories = sum(entry.left for entry in entries)
    return Comparison(len(entries), memories, unfinished, tuple(faults))


def _cut_short(reader: Reader, source: Source, archive: Archive, entry: Entry) -> Fault | None:
    """Say what is unfinished about an apply, and the ways out; None where nothing is."""
    if entry.finished_at is not None:
        return None
    name = source.name
    digest = entry.digest[:12]
    drop = command("archive", name, "--drop", digest, "--apply")
    finish = command("apply", name, digest)
    state = archive.state_of(reader.records, entry)
    if state.is_gone if entry.memories else is_superseded(reader, source, archive, entry):
        return None
    if not entry.memories:
        fault = f"plan {digest} was cut short before it changed anything"
        return fault, f"finish it with {finish}, or forget it with {drop}"
    there = len(state.same) + len(state.changed)
    archived = f"{entry.left:,} memories archived, {there:,} of them not deleted"
    fault = f"plan {digest} was cut short: {archived}"
    if len(state.same) < entry.left:
        restore = command("restore", name, digest)
        return fault, f"some went or changed meanwhile: bring them back with {restore}, or {drop}"
    if not entry.planned:
        return fault, f"the runtime's next compaction drops the copies, or {drop}"
    return fault, f"finish it with {finish}, or drop the copies with {drop}"


def _standing(
    reader: Reader, archive: Archive, entry: Entry, last: dict[Key, int]
) -> Iterator[Fault]:
    """Say where a deletion that is done and its store do not agree on what was restored."""
    copies = archive.copies(entry)
    state = archive.state_of(reader.records, entry, copies)
    gone = {key for key in state.absent | state.taken if last[key] == entry.apply}
    back = sum(copy.restored_at is None and copy.key in state.same for copy in copies)
    lost = sum(copy.restored_at is not None and copy.key in gone for copy in copies)
    restore = command("restore", archive.location.store, entry.digest[:12])
    deleted = f"memories that plan {entry.digest[:12]} deleted are"
    if back:
        advice = f"if restored, {restore} records it; else the store is an older copy: compact it"
        yield f"{back:,} {deleted} in the store again", advice
    if lost:
        advice = f"{restore} brings them back, unless something else deleted them since"
        yield f"{lost:,} {deleted} called restored and are not in the store", advice
