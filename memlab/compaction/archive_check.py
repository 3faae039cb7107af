"""Check an archive against its store: interrupted deletions, restored and missing memories."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from memlab.compaction.store_change import is_in_effect
from memlab.sources.base import Source
from memlab.sources.readers import Key, Reader
from memlab.store.archive.hashed_names import key_of
from memlab.store.archive.open_archive import EntryState, OpenArchive
from memlab.store.archive.schema import Copy, Entry
from memlab.store.archive.tombstones import tombstones_in
from memlab.text import command, counted, verb_for


class ArchiveFault(NamedTuple):
    """A fault of an archive or a difference from its store, and the advice on what to do."""

    fault: str
    advice: str


class ArchiveCheck(NamedTuple):
    """Result of checking an archive against its store.

    Attributes
    ----------
    plans, memories : int
        The number of deletions, and of copies.
    unfinished : int
        The number of interrupted deletions.
    faults : tuple of ArchiveFault
        The faults and the differences.
    """

    plans: int
    memories: int
    unfinished: int
    faults: tuple[ArchiveFault, ...]


def check_against_store(reader: Reader, source: Source, archive: OpenArchive) -> ArchiveCheck:
    """Check an archive against its store at one moment of both. Both are only read."""
    entries = archive.entries()
    deletions = [entry for entry in entries if not entry.is_recovery]
    last_deletion = {}
    for entry in deletions:
        for copy in archive.copies(entry):
            last_deletion[copy.key] = entry.number
    _read_everything(archive, entries)
    faults = list[ArchiveFault]()
    unfinished = 0
    ids_in_use = _ids_in_use(reader, source)
    if archive.faults:
        advice = "restore a backup of the archive; the rest can be restored"
        faults.append(ArchiveFault(archive.describe_faults(), advice))
    for entry in deletions:
        interruption = _interruption_of(reader, source, archive, entry)
        if interruption is not None:
            unfinished += 1
            faults.append(interruption)
        else:
            copies = archive.copies(entry)
            state = archive.state_of(reader.records, entry, copies)
            deletion = _FinishedDeletion(entry, copies, state)
            faults += _faults_of_restored(archive, deletion, last_deletion)
            faults += _faults_of_taken_ids(source, archive, deletion, ids_in_use)
    archive.faults.clear()  # they are among the faults of the result
    return ArchiveCheck(
        plans=len(entries),
        memories=sum(entry.copies for entry in entries),
        unfinished=unfinished,
        faults=tuple(faults),
    )


def _read_everything(archive: OpenArchive, entries: Iterable[Entry]) -> None:
    """Read all parts of an archive, so that it notes the damaged ones among its faults."""
    for entry in entries:
        deque(archive.batches(entry), maxlen=0)
    for dropped in archive.dropped():
        tombstones_in(archive, dropped)
    key_of(archive)


def _interruption_of(
    reader: Reader, source: Source, archive: OpenArchive, entry: Entry
) -> ArchiveFault | None:
    """Return the fault of an interrupted deletion, with advice; None if it was not interrupted."""
    if entry.finished_at is not None:
        return None
    if entry.memories:
        state = archive.state_of(reader.records, entry)
        if state.is_gone:
            return None
        return _interrupted_deletion(source.name, entry, state)
    if is_in_effect(reader, source, archive, entry):
        return None
    digest = entry.digest[:12]
    drop = command("archive", source.name, "--drop", digest, "--apply")
    finish = command("apply", source.name, digest)
    fault = f"plan {digest} was cut short before it changed anything"
    return ArchiveFault(fault, f"finish it with {finish}, or forget it with {drop}")


def _interrupted_deletion(name: str, entry: Entry, state: EntryState) -> ArchiveFault:
    """Return the fault of a deletion that was interrupted, with advice."""
    digest = entry.digest[:12]
    drop = command("archive", name, "--drop", digest, "--apply")
    not_deleted = len(state.same) + len(state.changed)
    archived = f"{entry.copies:,} memories archived, {not_deleted:,} of them not deleted"
    if len(state.same) < entry.copies:
        restore = command("restore", name, digest)
        advice = f"some were deleted or changed meanwhile: restore them with {restore}, or {drop}"
    elif entry.has_plan:
        finish = command("apply", name, digest)
        advice = f"finish it with {finish}, or drop the copies with {drop}"
    else:
        advice = f"the runtime's next compaction drops the copies, or {drop}"
    return ArchiveFault(f"plan {digest} was cut short: {archived}", advice)


class _FinishedDeletion(NamedTuple):
    """A finished deletion, its copies, and the state of these memories in the store."""

    entry: Entry
    copies: Sequence[Copy]
    state: EntryState


def _faults_of_restored(
    archive: OpenArchive, deletion: _FinishedDeletion, last_deletion: Mapping[Key, int]
) -> Iterator[ArchiveFault]:
    """Yield the faults of a finished deletion that concern restored memories.

    There is a fault if the store has a memory that the archive does not record as restored, or if
    it lacks a memory that the archive records as restored.

    Parameters
    ----------
    archive : OpenArchive
        The archive.
    deletion : _FinishedDeletion
        The deletion.
    last_deletion : mapping of Key to int
        The number of the last deletion of each memory. A missing memory counts for that deletion
        alone.
    """
    entry, copies, state = deletion
    missing_keys = {key for key in state.absent | state.taken if last_deletion[key] == entry.number}
    unrecorded = 0
    missing = 0
    for copy in copies:
        if copy.restored_at is None and copy.key in state.same:
            unrecorded += 1
        elif copy.restored_at is not None and copy.key in missing_keys:
            missing += 1
    restore = command("restore", archive.location.store, entry.digest[:12])
    by_plan = f"that plan {entry.digest[:12]} deleted"
    if unrecorded:
        advice = f"if restored, {restore} records it; else the store is an older copy: compact it"
        verb = verb_for(unrecorded, "are")
        fault = f"{counted(unrecorded)} {by_plan} {verb} in the store again"
        yield ArchiveFault(fault, advice)
    if missing:
        advice = f"{restore} brings them back, unless something else deleted them since"
        verb = verb_for(missing, "are")
        fault = (
            f"{counted(missing)} {by_plan} {verb} recorded as restored and {verb} not in the store"
        )
        yield ArchiveFault(fault, advice)


def _ids_in_use(reader: Reader, source: Source) -> set[str]:
    """Return the ids of a store in which ids are unique as well as keys.

    Return none for other stores.
    """
    ids = set[str]()
    if source.is_native_format:
        for rows in reader.batches(with_body=False):
            ids.update(rows.table["memory_id"].to_pylist())
    return ids


def _faults_of_taken_ids(
    source: Source, archive: OpenArchive, deletion: _FinishedDeletion, ids_in_use: Collection[str]
) -> Iterator[ArchiveFault]:
    """Yield the fault of a finished deletion whose ids other memories took since.

    Positions that were taken are no fault: a store that evicts on write uses them again and again.
    """
    entry, copies, state = deletion
    not_restored_keys = {copy.key for copy in copies if copy.restored_at is None}
    if source.is_native_format:
        deleted_keys = (state.absent | state.taken) & not_restored_keys
        taken_keys = {
            key
            for key, record in archive.records(entry, deleted_keys)
            if source.facts_of(record).memory_id in ids_in_use
        }
    else:
        taken_keys = state.taken & not_restored_keys
    if not taken_keys:
        return
    digest = entry.digest[:12]
    restore_one = command("restore", source.name, digest, "--id", "ID")
    taken = counted(len(taken_keys), "ids")
    fault = (
        f"other memories took {taken} of the {len(not_restored_keys):,} that plan {digest} "
        "deleted, so it cannot be restored as a whole"
    )
    advice = f"{restore_one} restores one of the others; {all_elsewhere(source, digest)}"
    yield ArchiveFault(fault, advice)


def all_elsewhere(source: Source, digest: str) -> str:
    """Return the advice for restoring a whole plan somewhere else than into its store."""
    if source.is_native_format:
        restore = command("restore", source.name, digest, "--into", "NEW.db")
        return f"restore all into a new file with {restore}"
    export = command("archive", source.name, "--export", "memories.jsonl")
    return f"write all to a file: {export}"
