"""Restore archived memories byte for byte: into their store, or into a new file."""

from collections.abc import Sequence
from os.path import lexists
from pathlib import Path
from typing import Final, NamedTuple

from memlab.compaction.archive_check import all_elsewhere
from memlab.compaction.store_change import StoreChange, explain_unrecorded
from memlab.compaction.undo import Restored, Undo
from memlab.compaction.wire import some_of
from memlab.errors import ArchiveError
from memlab.files import permissions_like, whole_file
from memlab.sources.base import Source
from memlab.sources.capabilities import require
from memlab.sources.readers import Key
from memlab.store.archive.copied_records import CopiedRecords
from memlab.store.archive.schema import Entry
from memlab.store.database import SIDE_FILES
from memlab.store.snapshot import read_snapshot
from memlab.text import command, counted

_MAX_IDS_SHOWN: Final = 50
"""Number of ids up to which a message has the whole command that restores them."""


class InsertedMemories(NamedTuple):
    """The memories that an undo inserted into the store, before the archive records it.

    Attributes
    ----------
    result : Restored
        The numbers of memories and rows.
    requested_keys : set of Key
        The keys of the requested memories.
    unmarked_keys : list of Key
        The keys of the memories that the archive does not record as restored yet.
    """

    result: Restored
    requested_keys: set[Key]
    unmarked_keys: list[Key]


def restore_deleted(undo: Undo) -> Restored:
    """Insert again the memories that a plan deleted, and record it."""
    restored = insert_deleted(undo)
    mark_restored(undo, restored)
    return restored.result


def insert_deleted(undo: Undo) -> InsertedMemories:
    """Insert again the memories that a plan deleted.

    The caller records it with :func:`mark_restored`.
    """
    source = undo.source
    inserted = 0
    with source.recreated_folder(), source.changing() as writer:
        change = StoreChange(
            source=source,
            writer=writer,
            archive=undo.archive,
            now=undo.now,
            on_step=undo.on_step,
        )
        change.reconcile()
        undo.on_step("locked")
        with undo.archive.read_transaction():
            copied = undo.requested_copies()
            missing = _missing(change, copied)
            undo.on_step("checked")
            if missing.copied_keys:
                if len(missing.copied_keys) == copied.entry.memories:
                    # All memories of the plan are inserted, so its former index can be restored.
                    writer.index_before = undo.recorded.index_before
                inserted = writer.insert(missing, on_step=undo.on_step)
                undo.on_step("verified")
        expired_keys = set[Key]()
        if inserted < len(missing.copied_keys):
            # The writer skips memories that have expired since.
            present_keys = (key for key, _ in writer.records(missing.copied_keys))
            expired_keys = set(missing.copied_keys).difference(present_keys)
    undo.on_step("committed")
    requested_keys = set(copied.copied_keys)
    deleted_keys = requested_keys
    if copied.entry.finished_at is None:
        # A plan that was interrupted may not have deleted all memories whose copies the archive
        # has. Only those that were missing from the store were certainly deleted.
        deleted_keys = set(missing.copied_keys)
    restored_keys = deleted_keys - expired_keys
    unmarked_keys = [
        copy.key for copy in copied.copies if copy.restored_at is None and copy.key in restored_keys
    ]
    result = Restored(
        memories=inserted,
        left_out=len(expired_keys),
        rows_left_out=dict(writer.rows_left_out),
        entries_left=tuple(writer.entries_left),
    )
    return InsertedMemories(
        result=result, requested_keys=requested_keys, unmarked_keys=unmarked_keys
    )


def mark_restored(undo: Undo, restored: InsertedMemories) -> None:
    """Record in the archive which memories are restored."""
    done = f"{restored.result.memories:,} memories were restored into {undo.source.name}"
    with explain_unrecorded(done):
        undo.archive.mark_restored(undo.recorded.digest, restored.unmarked_keys, undo.now)
    undo.on_step("recorded")


def _missing(change: StoreChange, copied: CopiedRecords) -> CopiedRecords:
    """Return the records that are not in the store, after checking that they can be inserted.

    Raise ArchiveError if a position or an id is in use again, or if a record is damaged.
    """
    archive = change.archive
    writer = change.writer
    entry = copied.entry
    copies = copied.copies
    state = archive.state_of(writer.records, entry, copies)
    # A changed memory that was restored before is in its place, and was edited since.
    changed_keys = {
        copy.key for copy in copies if copy.key in state.changed and not copy.restored_at
    }
    current = dict(writer.records(state.changed))
    keys_without_file = set[Key]()
    for key, record in archive.records(entry, current):
        if writer.is_back(current[key], record):
            # Only its index entry was edited.
            changed_keys.discard(key)
        elif writer.lacks_file(current[key], record):
            changed_keys.discard(key)
            keys_without_file.add(key)
    taken_keys = state.taken | changed_keys
    taken_places = [
        f"position {copy.key}" if isinstance(copy.key, int) else f"key {copy.key}"
        for copy in copies
        if copy.key in taken_keys
    ]
    missing = copied.with_keys(state.absent | keys_without_file)
    checked_records = missing.iter_checked()
    taken_places += writer.conflicts(checked_records)
    # Check the records that the search for conflicts has not read, too.
    missing.check(checked_records)
    if taken_places:
        free_ids = []
        for key, record in missing:
            memory_id = change.source.facts_of(record).memory_id
            if memory_id is not None and not writer.conflicts([(key, record)]):
                free_ids.append(memory_id)
        raise ArchiveError(
            f"{counted(len(taken_places), 'places')} of plan {entry.digest[:12]} taken since "
            f"({some_of(taken_places)}); nothing was restored: "
            f"{_ways_around(change.source, entry, free_ids)}"
        )
    return missing


def _ways_around(source: Source, entry: Entry, free_ids: Sequence[str]) -> str:
    """Return the advice for restoring a plan if some of its places are taken."""
    digest = entry.digest[:12]
    elsewhere = all_elsewhere(source, digest)
    if not free_ids:
        return elsewhere
    start = f"restore the other {len(free_ids):,} with"
    if len(free_ids) > _MAX_IDS_SHOWN:
        listing = command("archive", source.name, "--rows", "--digest", digest)
        first = command("restore", source.name, digest, "--id", free_ids[0])
        return f"{start} {first} and so on ({listing} lists the ids), or {elsewhere}"
    options = list[str]()
    for memory_id in free_ids:
        options += ["--id", memory_id]
    return f"{start} {command('restore', source.name, digest, *options)}, or {elsewhere}"


def restore_into(undo: Undo, into: Path) -> Restored:
    """Create a new store that holds only archived memories.

    The file appears when it is complete, or not at all.
    """
    archive = undo.archive
    store_making = require(undo.source, "store_making")
    # SQLite would read such a file as part of the new database.
    side_files = [f"{into}{suffix}" for suffix in SIDE_FILES]
    existing = [path for path in side_files if lexists(path)]
    if existing:
        raise ArchiveError(
            f"{', '.join(existing)} would be taken for a part of {into}; nothing was restored: "
            "move it away, or name another file"
        )
    with archive.read_transaction():
        copied = undo.requested_copies()
        with whole_file(into, permissions=permissions_like(archive.path), replace=False) as draft:
            copied.check()
            count = store_making.make(draft, copied)
    _check_made(into, count)
    return Restored(memories=count)


def _check_made(into: Path, count: int) -> None:
    """Raise ArchiveError if a new file does not contain `count` memories."""
    query = "SELECT count(*) FROM memory_items"
    ((stored,),) = read_snapshot(into, lambda database: database.execute(query).fetchall())
    if stored != count:
        raise ArchiveError(
            f"{into} was made of {count:,} memories and {stored:,} are in it; the archive has them "
            "still: check the disk"
        )
