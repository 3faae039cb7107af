"""Restore archived memories byte for byte: into their store, or into a new file."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from os.path import lexists
from pathlib import Path
from typing import Final

from memlab.compaction.archive_check import all_elsewhere
from memlab.compaction.merging import TakenOut, finish_words, take_out_copies
from memlab.compaction.store_change import StoreChange, explain_unrecorded
from memlab.compaction.undo import Restored, Undo, damaged
from memlab.compaction.wire import some_of
from memlab.errors import ArchiveError, MemlabError
from memlab.files import limit_like, whole_file
from memlab.sources.base import Source
from memlab.sources.capabilities import require
from memlab.sources.readers import Key, KeyedRecords
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import Copy, Entry
from memlab.store.database import SIDE_FILES
from memlab.store.snapshot import read_snapshot
from memlab.text import command, counted

_MAX_IDS_SHOWN: Final = 50
"""Number of ids up to which a message has the whole command that restores them."""


def restore_deleted(undo: Undo) -> Restored:
    """Insert the memories that a plan deleted into the store again."""
    source = undo.source
    archive = undo.archive
    on_step = undo.on_step
    inserted = 0
    with source.recreated_folder(), source.changing() as writer:
        change = undo.change(writer)
        change.reconcile()
        on_step("locked")
        undo = undo.reread()
        entry = undo.recorded.entry
        copies = undo.requested_copies()
        with archive.one_moment():
            missing = _missing(change, entry, copies)
            on_step("checked")
            if missing.known_keys:
                if len(missing.known_keys) == entry.memories:
                    writer.index_before = undo.recorded.index_before
                inserted = writer.insert(missing, on_step=on_step)
                on_step("verified")
        expired = set[Key]()
        if inserted < len(missing.known_keys):
            present = (key for key, _ in writer.records(missing.known_keys))
            expired = set(missing.known_keys).difference(present)
    on_step("committed")
    other = undo.other or undo.recorded.merged_into
    taken = TakenOut()
    if other:
        keys = None if undo.ids is None else {copy.key for copy in copies}
        try:
            taken = take_out_copies(source, other, entry.digest, keys=keys, on_step=on_step)
        except MemlabError as error:
            words = finish_words(source, entry.digest, inserted, error)
            raise ArchiveError(words) from error
    # A plan that was interrupted may not have deleted all memories whose copies the archive has.
    # Only those that were missing from the store were certainly deleted.
    is_interrupted = entry.finished_at is None
    deleted = set(missing.known_keys) if is_interrupted else {copy.key for copy in copies}
    restored_keys = deleted - expired
    unmarked = [
        copy.key for copy in copies if copy.restored_at is None and copy.key in restored_keys
    ]
    with explain_unrecorded(f"{inserted:,} memories were restored into {source.name}"):
        archive.mark_restored(entry.digest, unmarked, undo.now)
    on_step("recorded")
    return Restored(
        memories=inserted,
        left_out=len(expired),
        rows_left_out=dict(writer.rows_left_out),
        entries_left=tuple(writer.entries_left),
        other=other,
        taken_out=taken.memories,
        stay_there=taken.stay,
    )


class _Records(KeyedRecords):
    """Records of copies; each iteration reads them from the archive again."""

    def __init__(self, archive: OpenArchive, entry: Entry, copies: list[Copy]) -> None:
        self.known_keys = [copy.key for copy in copies]
        self._archive = archive
        self._entry = entry

    def __iter__(self) -> Iterator[tuple[Key, bytes]]:
        return self._archive.records(self._entry, self.known_keys, seen=True)

    def checked(self) -> Iterator[tuple[Key, bytes]]:
        """Yield the undamaged records. Raise ArchiveError at the end if one was damaged."""
        count = 0
        for keyed_record in self._archive.records(self._entry, self.known_keys):
            yield keyed_record
            count += 1
        if count != len(self.known_keys):
            raise damaged(self._archive)

    def check(self, rest: Iterable[object] | None = None) -> None:
        """Check the records that `rest`, an iterator of :meth:`checked`, has not yielded yet.

        Check all records by default.
        """
        unchecked = self.checked() if rest is None else rest
        deque(unchecked, maxlen=0)


def _missing(change: StoreChange, entry: Entry, copies: list[Copy]) -> _Records:
    """Return the records that are not in the store, after checking that they can be inserted.

    Raise ArchiveError if a position or an id is in use again, or if a record is damaged.
    """
    archive = change.archive
    writer = change.writer
    state = archive.state_of(writer.records, entry, copies)
    changed = {copy.key for copy in copies if copy.key in state.changed and not copy.restored_at}
    current = dict(writer.records(state.changed))
    fileless = set[Key]()
    for key, record in archive.records(entry, current):
        if writer.is_back(current[key], record):
            # Only its index entry was edited.
            changed.discard(key)
        elif writer.lacks_file(current[key], record):
            changed.discard(key)
            fileless.add(key)
    taken_places = [
        f"position {copy.key}" if isinstance(copy.key, int) else f"key {copy.key}"
        for copy in copies
        if copy.key in state.taken or copy.key in changed
    ]
    absent = state.absent | fileless
    missing = _Records(archive, entry, [copy for copy in copies if copy.key in absent])
    checked = missing.checked()
    taken_places += writer.conflicts(checked)
    missing.check(checked)
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
    """Return the commands that restore a plan although some of its places are taken."""
    digest = entry.digest[:12]
    elsewhere = all_elsewhere(source, digest)
    if not free_ids:
        return elsewhere
    others = f"restore the other {len(free_ids):,} with"
    if len(free_ids) > _MAX_IDS_SHOWN:
        listed = command("archive", source.name, "--rows", "--digest", digest)
        first = command("restore", source.name, digest, "--id", free_ids[0])
        return f"{others} {first} and so on ({listed} lists the ids), or {elsewhere}"
    options = [word for memory_id in free_ids for word in ("--id", memory_id)]
    return f"{others} {command('restore', source.name, digest, *options)}, or {elsewhere}"


def restore_into(undo: Undo, into: Path) -> Restored:
    """Create a new store that holds only archived memories.

    The file appears when it is complete, or not at all.
    """
    archive = undo.archive
    making = require(undo.source, "store_making")
    side_files = [f"{into}{suffix}" for suffix in SIDE_FILES]
    existing = [path for path in side_files if lexists(path)]
    if existing:
        raise ArchiveError(
            f"{', '.join(existing)} would be taken for a part of {into}; nothing was restored: "
            "move it away, or name another file"
        )
    with archive.one_moment():
        undo = undo.reread()
        copies = undo.requested_copies()
        with whole_file(into, limit=limit_like(archive.path), replace=False) as draft:
            records = _Records(archive, undo.recorded.entry, copies)
            records.check()
            count = making.make(draft, records)
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
