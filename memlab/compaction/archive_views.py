"""Views of an archive: list, search and export of deleted memories."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from itertools import chain, groupby
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memlab import columns as col
from memlab.compaction.index_plans import actions_in_words
from memlab.compaction.plans import Plan, Receipt
from memlab.compaction.recorded_change import RecordedChange, nothing_to_undo, recorded_changes
from memlab.compaction.store_change import receipt_of
from memlab.compaction.wire import minute_in_words
from memlab.errors import ArchiveError
from memlab.files import permissions_like, whole_file
from memlab.items import tags_as_text
from memlab.sources.archived import open_archived
from memlab.sources.base import Source
from memlab.sources.opening import SourceLike
from memlab.sources.tables import SCHEMA, TEXT
from memlab.store.archive.content_copies import last_copied
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.retired import RetiredMemories, retired_in
from memlab.store.archive.schema import Copy, Dropped, Entry
from memlab.text import DisplayMixin, Table, TextPage, command, counted

Result = TypeVar("Result")

EXPORT_SUFFIXES: Final = (".jsonl", ".parquet")
MAX_RUNTIME_DELETIONS_LISTED: Final = 5
"""Maximum number of consecutive deletions by a runtime that are listed one by one."""

_COPY_COLUMNS: Final = ("digest", "archived_at", "restored_at", "reason")
"""Columns that the archive has about each copy."""
_LISTED_COLUMNS: Final = (
    *_COPY_COLUMNS,
    col.POSITION,
    col.MEMORY_ID,
    col.KIND,
    col.TITLE,
    col.CREATED_AT,
    col.NAMESPACE,
)
"""Columns of :func:`archived_rows`."""
_RECORD: Final = "record"
"""Column with the archived record as text."""
_KEY: Final = "archived_key"
"""Column with the key of the copy as JSON."""


def _parquet_schema() -> pa.Schema:
    """Return the schema of an exported Parquet file. Categories are written as text."""
    columns = [(name, TEXT) for name in (*_COPY_COLUMNS, col.KEY)]
    for column in SCHEMA:
        is_category = pa.types.is_dictionary(column.type)
        columns.append((column.name, TEXT if is_category else column.type))
    columns.append((_RECORD, TEXT))
    return pa.schema(columns)


_PARQUET_SCHEMA: Final = _parquet_schema()


def archived_plans(store: SourceLike) -> list[Entry]:
    """Return every plan that was applied to a store, oldest first.

    Raises
    ------
    ArchiveError
        If the store has no archive, or one that cannot be read.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> [entry.digest == receipt.digest for entry in archived_plans(store)]
    [True]
    """
    return read_archive_of(open_archived(store), lambda archive: archive.entries())


def dropped_plans(store: SourceLike) -> list[Dropped]:
    """Return every deletion whose content was erased, oldest first; their tombstones are kept.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> _ = memlab.compaction.drop_archived(store, digest=receipt.digest)
    >>> len(dropped_plans(store))
    1
    """
    return read_archive_of(open_archived(store), OpenArchive.dropped)


@dataclass(frozen=True, repr=False)
class ArchiveListing(DisplayMixin):
    """List of the deletions of a store, oldest first.

    Attributes
    ----------
    store : str
        The store.
    entries : tuple of Entry
        The deletions with copies.
    dropped : tuple of Dropped
        The deletions with tombstones alone.
    other_changes : mapping of str to str
        By digest, the changes that a plan made besides deleting memories, in words: the memories
        that it superseded, retired, returned or merged, or the lines of an index.
    steps : tuple of str
        The commands that finish an interrupted plan and undo the last one.
    copied_at : datetime or None
        The time of the last copy of the store's contents.
    undoable : tuple of Entry
        The plans that are not undone yet, oldest first.
    """

    store: str
    entries: tuple[Entry, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    other_changes: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    copied_at: datetime | None = None
    undoable: tuple[Entry, ...] = ()

    def last_undoable(self) -> Entry:
        """Return the last plan that is not undone yet; raise ArchiveError if there is none."""
        if not self.undoable:
            raise nothing_to_undo(self.store)
        return self.undoable[-1]

    def to_json(self) -> str:
        """Return the deletions as a JSON list of objects."""
        deletions = [entry.to_dict() for entry in self.entries]
        deletions += [dropped.to_dict() for dropped in self.dropped]
        return json.dumps(deletions, indent=2, default=datetime.isoformat)

    def sheet(self) -> TextPage:
        """Return the printed page; many consecutive deletions by a runtime share a line."""
        rows: list[tuple[str, ...]] = []
        for is_by_runtime, group in groupby(self.entries, _is_by_runtime):
            entries = list(group)
            if is_by_runtime and len(entries) > MAX_RUNTIME_DELETIONS_LISTED:
                rows.append(_summary_line(entries))
            else:
                rows += [self._line(entry) for entry in entries]
        for dropped in self.dropped:
            numbers = f"{counted(dropped.memories)}; only the facts about them are kept"
            rows.append((dropped.digest[:12], _minute_of(dropped.deleted_at), "dropped", numbers))
        title = ""
        if self.copied_at is not None:
            at = minute_in_words(self.copied_at)
            title = f"copies of memories in {self.store}, last made {at}"
        elif not rows:
            title = f"nothing to undo in {self.store}: memlab deleted nothing, or it was undone"
        tables = [Table("", (), rows, whole=True)] if rows else []
        return TextPage(title, [], tables)

    def next_steps(self) -> list[str]:
        """Return the commands that finish an interrupted plan and undo the last one."""
        return list(self.steps)

    def _line(self, entry: Entry) -> tuple[str, ...]:
        """Return the line of a deletion: its digest, its time, its state and its numbers."""
        state = "applied" if entry.finished_at else "CUT SHORT"
        numbers = f"{counted(entry.memories)}, {entry.restored:,} restored"
        if self.other_changes.get(entry.digest):
            numbers = self.other_changes[entry.digest]
        elif entry.is_recovery:
            numbers = f"restored {counted(entry.memories)} that somebody else had deleted"
        return entry.digest[:12], _minute_of(entry.archived_at), state, numbers


def undo_line(store: str, digest: str, *, of_index: bool = False) -> str:
    """Return the line with the command that undoes a plan of memories or of an index."""
    effect = "restores what this plan deleted; with --id ID, one memory"
    if of_index:
        effect = "restores the index as it was"
    return f"undo: {command('restore', store, digest[:12])}    {effect}"


def _is_by_runtime(entry: Entry) -> bool:
    """Return whether a runtime made and finished a deletion by itself, without a plan."""
    is_of_memlab = entry.has_plan or entry.is_recovery
    return not is_of_memlab and entry.finished_at is not None


def _minute_of(moment: datetime) -> str:
    """Return a time as text to the minute, without its time zone."""
    return f"{moment:%Y-%m-%d %H:%M}"


def _summary_line(entries: list[Entry]) -> tuple[str, ...]:
    """Return one line for consecutive deletions by a runtime."""
    count = f"{len(entries):,} deletions of a runtime's own"
    first = _minute_of(entries[0].archived_at)
    last = f"to {_minute_of(entries[-1].archived_at)}"
    memories = sum(entry.memories for entry in entries)
    restored = sum(entry.restored for entry in entries)
    numbers = f"{counted(memories)}, {restored:,} restored; --rows lists them"
    return count, first, last, numbers


def archive_listing(store: SourceLike) -> ArchiveListing:
    """Return the list of a store's deletions, as ``memlab archive`` prints it."""
    source = open_archived(store)
    name = str(store) if isinstance(store, str | PathLike) else source.name
    is_lost = source.local_path is not None and not source.local_path.exists()
    if not is_lost and not source.archive.exists:
        with source.reading():
            pass  # raises an error if this is not a store
        source.archive.check()
        return ArchiveListing(name)
    return read_archive_of(source, lambda archive: _listing_of(source, archive, name))


def _listing_of(source: Source, archive: OpenArchive, name: str) -> ArchiveListing:
    """Return the list of a store's deletions, with the store under `name`."""
    changes = recorded_changes(archive)
    retired = retired_in(archive)
    other_changes = {}
    undo_step = ""
    finish_step = ""
    undoable = []
    for change in changes:
        entry = change.entry
        words = _other_change_in_words(change, source)
        if _is_undone_retirement(change, retired):
            words += ", undone"
        if words:
            other_changes[entry.digest] = words
        if change.can_be_undone(retired):
            undo_step = undo_line(name, entry.digest, of_index=entry.is_index_change)
            undoable.append(entry)
        elif entry.has_plan and not (entry.finished_at or entry.is_recovery):
            finish_step = f"next: {command('apply', name, entry.digest[:12])}    finishes it"
    return ArchiveListing(
        store=name,
        entries=tuple(change.entry for change in changes),
        dropped=tuple(archive.dropped()),
        other_changes=other_changes,
        steps=tuple(step for step in (finish_step, undo_step) if step),
        copied_at=last_copied(archive),
        undoable=tuple(undoable),
    )


def _is_undone_retirement(change: RecordedChange, retired: RetiredMemories) -> bool:
    """Return whether a plan retired memories and was undone."""
    if not change.is_of_links or not change.entry.finished_at:
        return False
    return bool(change.plan.retires) and not change.can_be_undone(retired)


def _other_change_in_words(change: RecordedChange, source: Source) -> str:
    """Return the change that a plan made besides deleting memories; empty if there is none."""
    entry = change.entry
    if change.merge is not None:
        return f"copied {counted(entry.memories)} from {change.merge.origin}"
    if entry.is_index_change:
        index_plan = change.index_plan
        words = f"{index_plan.index}: {actions_in_words(index_plan.counts)}"
        return f"{words}, undone" if change.is_index_undone else words
    if change.is_of_links:
        receipt = receipt_of(change.plan, source, change.plan.made_at)
        actions = [f"{participle} {counted(count)}" for participle, count in receipt.done if count]
        return ", ".join(actions)
    if change.merged_into:
        merged = f"{counted(entry.memories)} merged into {change.merged_into}"
        return f"{merged}, {entry.restored:,} restored"
    return ""


def last_applied(store: SourceLike) -> tuple[Plan, Receipt] | None:
    """Return the last plan that deleted from a store, and its receipt; None if there is none."""
    source = open_archived(store)
    if not source.archive.exists:
        return None
    return read_archive_of(source, lambda archive: _last_applied_in(source, archive))


def _last_applied_in(source: Source, archive: OpenArchive) -> tuple[Plan, Receipt] | None:
    """Return the last plan in an archive that deleted memories, and its receipt.

    Return None if there is none. An unreadable plan becomes a fault of the archive.
    """
    deletions = [
        entry
        for entry in archive.entries()
        if entry.has_plan and not entry.is_recovery and entry.finished_at and entry.memories
    ]
    if not deletions:
        return None
    last = deletions[-1]
    try:
        plan = RecordedChange(archive, last).plan
    except ArchiveError as error:
        archive.faults[f"plan {last.digest[:12]}"] = str(error)
        return None
    receipt = receipt_of(plan, source, last.finished_at or last.archived_at)
    # The other memories of the plan had expired by themselves, and were not archived.
    expired = len(plan.memories) - last.memories
    return plan, replace(receipt, deleted=last.memories, expired=expired)


def archived_rows(
    store: SourceLike, *, digest: str | None = None, search: str | None = None
) -> pd.DataFrame:
    """Return the archived memories of a store, oldest deletion first.

    Parameters
    ----------
    store : str, Path or Source
        The store.
    digest : str, optional
        Only the memories of this plan: its digest, or the first characters.
    search : str, optional
        Only memories with this text in id, title, body or tags; case is ignored.

    Returns
    -------
    DataFrame
        ``digest``, ``archived_at``, ``restored_at``, ``reason``, ``position``, ``memory_id``,
        ``kind``, ``title``, ``created_at``, ``namespace``. Unreadable memories are left out. The
        namespace is missing for a memory without one.

    Raises
    ------
    ArchiveError
        If the store has no archive, or one that cannot be read.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> len(archived_rows(store, digest=receipt.digest)) == receipt.deleted
    True
    """
    source = open_archived(store, digest or "")

    def read(archive: OpenArchive) -> pd.DataFrame:
        rows = []
        for table in _tables_of(source, archive, digest, search):
            rows += [[row.get(name) for name in _LISTED_COLUMNS] for row in table.to_pylist()]
        return pd.DataFrame(rows, columns=list(_LISTED_COLUMNS))

    return read_archive_of(source, read)


def export_archived(
    store: SourceLike, path: str | Path, *, digest: str | None = None, search: str | None = None
) -> int:
    """Write archived memories with every column to a file, atomically; return their number.

    Parameters
    ----------
    path : str or Path
        With the suffix ``.jsonl``, one memory on a line: when and why it was deleted, and the
        fields of its record, without those that are NULL. With ``.parquet``, the columns of every
        store, and the record as text.
    store, digest, search
        As for :func:`archived_rows`.

    Raises
    ------
    ValueError
        If `path` has another suffix.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> export_archived(store, "archived.jsonl") == receipt.deleted
    True
    """
    target = Path(path)
    if target.suffix not in EXPORT_SUFFIXES:
        raise ValueError(f"path must end in {' or '.join(EXPORT_SUFFIXES)}, not {str(target)!r}")
    write = _write_jsonl if target.suffix == ".jsonl" else _write_parquet
    source = open_archived(store, digest or "")

    def export(archive: OpenArchive) -> int:
        with whole_file(target, permissions=permissions_like(archive.path)) as draft:
            return write(draft, _tables_of(source, archive, digest, search))

    return read_archive_of(source, export)


def read_archive_of(source: Source, read: Callable[[OpenArchive], Result]) -> Result:
    """Return ``read(archive)`` for the archive of a source, which is opened for reading."""
    return source.archive.read(read)


def _tables_of(
    source: Source, archive: OpenArchive, digest: str | None, search: str | None
) -> Iterator[Any]:
    """Yield the archived memories as Arrow tables in batches, in the order of their deletion."""
    entries = archive.entries() if digest is None else [archive.entry(digest)]
    for entry in entries:
        if entry.is_recovery:  # a recovery deletes nothing
            continue
        for copies in archive.batches(entry):
            table = _table_of(source, entry, copies)
            if search is not None:
                table = table.filter(_contains(table, search))
            yield table


def _table_of(source: Source, entry: Entry, copies: list[tuple[Copy, bytes]]) -> Any:
    """Return copies with their records as an Arrow table."""
    keyed_records = [(copy.key, record) for copy, record in copies]
    batches = source.rows_of(keyed_records, with_body=True)
    table = pa.concat_tables([batch.table for batch in batches], promote_options="default")
    columns = {
        "digest": [entry.digest for _ in copies],
        "archived_at": [entry.archived_at.isoformat() for _ in copies],
        "restored_at": [copy.restored_at for copy, _ in copies],
        "reason": [copy.reason for copy, _ in copies],
        _KEY: [json.dumps(copy.key) for copy, _ in copies],
        _RECORD: [record.decode() for _, record in copies],
    }
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, TEXT))
    return table


def _contains(table: Any, search: str) -> Any:
    """Return for each row whether its id, title, body or tags contain a text; case is ignored."""
    columns = [table[name].cast(TEXT) for name in (col.MEMORY_ID, col.TITLE, col.BODY)]
    tags = [tags_as_text(tags_json) for tags_json in table["tags_json"].cast(TEXT).to_pylist()]
    columns.append(pa.array(tags, TEXT))
    matches = [pc.match_substring(pc.utf8_lower(column), search.lower()) for column in columns]
    return reduce(pc.or_kleene, matches)


def _write_jsonl(draft: Path, tables: Iterator[Any]) -> int:
    """Write tables of archived memories as JSON lines; return the number of memories."""
    count = 0
    with draft.open("w", encoding="utf-8") as file:
        for row in chain.from_iterable(table.to_pylist() for table in tables):
            fields = {name: row[name] for name in _COPY_COLUMNS}
            fields["key"] = json.loads(row[_KEY])
            fields["position"] = row[col.POSITION]
            fields.update(json.loads(row[_RECORD]))
            file.write(json.dumps(fields) + "\n")
            count += 1
    return count


def _write_parquet(draft: Path, tables: Iterator[Any]) -> int:
    """Write tables of archived memories as Parquet; return the number of memories."""
    count = 0
    with pq.ParquetWriter(draft, _PARQUET_SCHEMA) as writer:
        for table in tables:
            rows = table.to_pylist()
            for row in rows:
                key = json.loads(row[_KEY])
                row[col.KEY] = str(key)
                created_at = row[col.CREATED_AT]
                # Most sources return the stored text of a time. Others return a datetime.
                if isinstance(created_at, datetime):
                    row[col.CREATED_AT] = created_at.isoformat()
            writer.write_table(pa.Table.from_pylist(rows, _PARQUET_SCHEMA))
            count += len(table)
    return count
