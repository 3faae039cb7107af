"""Merge a folder of memories into another: compare them, copy, and remove the copies again.

The archive of the first folder has the plan and its memories, as for a deletion. The archive of the
other folder has the copies, under the digest of the same plan. Both are written before the folders
change. The copies are durable in the other folder before a memory leaves the first one, so that a
process that is stopped at any moment leaves a memory too many, never one too few. Running the same
command again continues: a new plan takes over the copies that an interrupted one made.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os.path import realpath
from typing import Final, NamedTuple

from memlab import errors
from memlab.compaction.plans import Plan, PlannedCopy
from memlab.compaction.recorded_change import Merge, RecordedChange, recorded_changes
from memlab.compaction.store_change import PlannedChange, StoreChange
from memlab.compaction.wire import some_of
from memlab.sources.archived import open_to_restore
from memlab.sources.base import Source, read_consistent
from memlab.sources.capabilities import Intake, require
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import Key, Reader, StepCallback, keys_in, no_progress
from memlab.store.archive.archive import Archive
from memlab.store.archive.content_copies import digest_of
from memlab.store.archive.index_versions import IndexVersion, note_index_versions
from memlab.store.archive.index_versions import digest_of as digest_of_index
from memlab.store.archive.schema import RECOVERY_POLICY, NewCopy, NewEntry, PlanText
from memlab.store.records import fingerprint_of

COPIED: Final = "copied"
"""Reason of a memory that the other folder lacks."""


class MergedFolders(NamedTuple):
    """The two folders of a merge, and the ability of each to exchange memories.

    Attributes
    ----------
    source, other : Source
        The folder that memories leave, and the one that receives them.
    giving, receiving : Intake
        The ability of `source` to give memories, and that of `other` to receive them.
    """

    source: Source
    other: Source
    giving: Intake
    receiving: Intake


def merged_folders(source: Source, into: SourceLike) -> MergedFolders:
    """Open the folder that the memories of a source are merged into; return both folders.

    Raise PlanError if one of them cannot take files of another folder, or if they are one folder.
    """
    giving = require(source, "intake")
    other = open_source(into)
    receiving = require(other, "intake")
    if realpath(str(source.local_path)) == realpath(str(other.local_path)):
        raise errors.PlanError(f"{other.name} is the same folder; name another one with --into")
    return MergedFolders(source=source, other=other, giving=giving, receiving=receiving)


def content_digest(source: Source, record: bytes) -> str:
    """Return the digest of the content of a memory, which is the content of its file."""
    return digest_of(source.content_for_digest(record)).hex()


def copy_into_other(change: PlannedChange, keys: Collection[Key]) -> None:
    """Copy the memories with these keys into the other folder. The caller deletes them afterwards.

    Raises
    ------
    StalePlanError
        If the other folder is not as the plan saw it. Nothing is changed.
    """
    plan = change.plan
    folders = merged_folders(change.source, plan.into)
    other = folders.other
    copies = [copy for copy in plan.copies if copy.key in keys]
    _copy(change, folders, copies)
    change.on_step("copied there")
    read_consistent(other, lambda reader: _check_equal(plan.digest, other, reader, copies))


@contextmanager
def copies_removed_on_error(plan: Plan, source: Source) -> Iterator[None]:
    """Remove the copies of a merge from the other folder again if the block raises."""
    try:
        yield
    except BaseException:
        if plan.merges:
            with suppress(errors.MemlabError):
                remove_copies(plan.into, plan.digest, contents=contents_of(source))
        raise


def _copy(change: PlannedChange, folders: MergedFolders, copies: Sequence[PlannedCopy]) -> None:
    """Copy the memories that the other folder lacks, with their index lines.

    The archive of the other folder records the merge before anything is inserted.
    """
    digest = change.plan.digest
    other = folders.other
    # Nobody may read the copies in that archive who may not read a memory in one of the folders.
    location = other.archive.location._replace(
        common_permissions=lambda: change.source.narrowest_mode() & other.narrowest_mode()
    )
    with Archive(location).changing(other.changing()) as opened:
        other_change = StoreChange(
            source=other,
            writer=opened.writer,
            archive=opened.archive,
            now=change.now,
            on_step=change.on_step,
        )
        other_change.archive.check_entries()
        other_change.reconcile()
        change.on_step("locked there")
        missing = _records_to_copy(change, other_change, copies, folders.giving)
        interrupted = _interrupted_copies(change, other_change, {copy.other_key for copy in copies})
        to_insert = other_change.writer.missing_parts_of(missing)
        archived_records = {**interrupted.records, **dict(to_insert)}
        _check_not_private(other_change, archived_records)
        relies_on = frozenset(str(copy.other_key) for copy in copies)
        text = Merge(origin=change.source.name, relies_on=relies_on).to_json()
        merge = NewEntry(
            digest=digest,
            policy=RECOVERY_POLICY,
            made_at=change.plan.made_at,
            memories=len(archived_records),
            plan=PlanText(lambda: [text]),
        )
        new_copies = (NewCopy(key, record, COPIED) for key, record in archived_records.items())
        with other_change.archive.adding_entry(merge, new_copies, at=change.now):
            other_change.archive.mark_applied(digest, change.now)
            change.on_step("noted there")
            if to_insert:
                other_change.writer.insert(to_insert)
            versions = _joined(interrupted.version, other_change.writer.index_versions())
            note_index_versions(other_change.archive, digest, versions)
            for interrupted_digest in interrupted.digests:
                other_change.archive.discard_pending(interrupted_digest)
            change.on_step("inserted there")


def _records_to_copy(
    change: PlannedChange,
    other_change: StoreChange,
    copies: Sequence[PlannedCopy],
    intake: Intake,
) -> list[tuple[Key, bytes]]:
    """Return the records of the memories to insert into the other folder.

    Raise StalePlanError if that folder is not as the plan saw it.
    """
    current = dict(other_change.writer.records([copy.other_key for copy in copies]))
    lacking = [copy for copy in copies if copy.is_copied and copy.other_key not in current]
    records = dict(change.writer.records([copy.key for copy in lacking]))
    missing = [(copy.other_key, intake.record_for(records[copy.key])) for copy in lacking]
    lacking_keys = {copy.key for copy in lacking}
    present = [copy for copy in copies if copy.key not in lacking_keys]
    _check_equal(change.plan.digest, other_change.source, other_change.writer, present)
    conflicts = other_change.writer.conflicts(missing)
    if conflicts:
        raise errors.StalePlanError(
            f"{other_change.source.name} is not as plan {change.plan.digest[:12]} saw it: "
            f"{some_of(conflicts)} was written there; nothing was changed: make a new plan"
        )
    return missing


def _check_equal(digest: str, other: Source, reader: Reader, copies: Sequence[PlannedCopy]) -> None:
    """Raise StalePlanError unless the other folder has a memory of equal content for each copy."""
    contents = {
        key: content_digest(other, record)
        for key, record in reader.records([copy.other_key for copy in copies])
    }
    wrong = [copy.key for copy in copies if contents.get(copy.other_key) != copy.content]
    if wrong:
        raise errors.StalePlanError(
            f"{other.name} has no equal memory of {some_of(wrong)} any more, which plan "
            f"{digest[:12]} relies on; nothing was deleted: make a new plan",
            memory_ids=tuple(map(str, wrong)),
        )


class _InterruptedCopies(NamedTuple):
    """The copies that interrupted merges of the same folder made, and that are still there.

    Attributes
    ----------
    records : dict of Key to bytes
        The archived records of the copies by key in the other folder.
    digests : list of str
        The digests of these merges, without that of the present one.
    version : IndexVersion or None
        The index from before the last of these merges; None if the index was not changed.
    """

    records: dict[Key, bytes]
    digests: list[str]
    version: IndexVersion | None


def _interrupted_copies(
    change: PlannedChange, other_change: StoreChange, keys: Collection[Key]
) -> _InterruptedCopies:
    """Return the copies with these keys that interrupted merges made. This merge takes them over.

    A merge was interrupted if the archive of the first folder has not marked it as applied.
    """
    applied = {entry.digest for entry in change.archive.entries() if entry.finished_at is not None}
    present: dict[Key, bytes] = {}
    digests: list[str] = []
    version: IndexVersion | None = None
    for recorded in recorded_changes(other_change.archive):
        merge = recorded.merge
        if merge is None or merge.origin != change.source.name or recorded.digest in applied:
            continue
        archived = dict(other_change.archive.records(recorded.entry))
        current = dict(other_change.writer.records([key for key in archived if key in keys]))
        for key, record in current.items():
            if other_change.writer.has_inserted_parts(record, archived[key]):
                present[key] = archived[key]
        if recorded.digest != change.plan.digest:
            digests.append(recorded.digest)
        if present:
            # A folder has one index, so this loop runs once at most.
            for index_before in recorded.index_before.values():
                version = index_before
    return _InterruptedCopies(records=present, digests=digests, version=version)


def _joined(
    interrupted: IndexVersion | None, versions: Sequence[IndexVersion]
) -> Sequence[IndexVersion]:
    """Return the index versions to archive, so that one undo covers the interrupted merges as well.

    Return the index from before the interrupted merge. Return no version if somebody edited the
    index between that merge and this one: an undo then removes the lines of the copies instead.

    Parameters
    ----------
    interrupted : IndexVersion or None
        The index from before an interrupted merge; None if there was none.
    versions : sequence of IndexVersion
        The index from before this merge; empty if this merge did not change it.
    """
    if interrupted is None:
        return versions
    if not versions:
        return [interrupted]
    (version,) = versions
    if interrupted.digest_after != digest_of_index(version.data):
        return []
    return [interrupted._replace(digest_after=version.digest_after)]


def _check_not_private(other_change: StoreChange, records: Mapping[Key, bytes]) -> None:
    """Raise ArchiveError if more people may read the archive of the other folder than a memory."""
    mode = other_change.archive.path.stat().st_mode
    private = [
        key for key, record in records.items() if other_change.source.is_private(record, mode)
    ]
    if private:
        raise errors.ArchiveError(
            f"fewer people may read {some_of(private)} than {other_change.archive.path}, which "
            "keeps a copy; nothing was changed: make the archive narrower first, as with chmod 600"
        )


def contents_of(source: Source) -> dict[Key, str]:
    """Return by key the digest of the content of each memory of a folder."""

    def digests_of(reader: Reader) -> dict[Key, str]:
        records = reader.records(keys_in(reader))
        return {key: content_digest(source, record) for key, record in records}

    return read_consistent(source, digests_of)


@dataclass(frozen=True)
class RemovedCopies:
    """Result of :func:`remove_copies`.

    Attributes
    ----------
    count : int
        The number of copies that were removed.
    remaining_keys : tuple of Key
        The keys of the copies that were left in the other folder.
    """

    count: int = 0
    remaining_keys: tuple[Key, ...] = ()


def remove_copies(
    into: str,
    digest: str,
    *,
    contents: Mapping[Key, str],
    keys: Collection[Key] | None = None,
    on_step: StepCallback = no_progress,
) -> RemovedCopies:
    """Remove the copies that a merge made from the other folder.

    A copy is left there if it or its index line was changed since, if the first folder has no equal
    memory, or if another merge relies on it.

    Parameters
    ----------
    into, digest : str
        The path of the other folder, and the whole digest of the plan.
    contents : mapping of Key to str
        The digests of the contents that the first folder has, as :func:`contents_of` returns them.
    keys : collection of Key, optional
        Remove only the copies with these keys. By default all copies of the merge.
    on_step : callable, optional
        Progress callback. The steps are "taken out there", "committed there", "forgotten there".
    """
    other = open_to_restore(into, digest)
    if not other.archive.exists:
        return RemovedCopies()
    with other.archive.writing() as archive:
        merges = {
            recorded.digest: recorded
            for recorded in recorded_changes(archive)
            if recorded.merge is not None
        }
        recorded = merges.pop(digest, None)
        if recorded is None:
            return RemovedCopies()
        copies = dict(archive.records(recorded.entry))
        requested = {key: copies[key] for key in copies if keys is None or key in keys}
        relied_on = _relied_on(merges.values())
        with other.changing() as writer:
            current = dict(writer.records(requested))
            writer.index_before = recorded.index_before
            is_unchanged = writer.has_inserted_parts
            if writer.is_index_as_left():
                is_unchanged = writer.is_back
            removable = {}
            for key, record in current.items():
                has_equal = contents.get(key) == content_digest(other, record)
                is_needed = str(key) in relied_on
                if is_unchanged(record, requested[key]) and has_equal and not is_needed:
                    removable[key] = requested[key]
            if removable:
                if len(removable) < len(copies):
                    # Some copies are left, so the former index must not replace the present one.
                    writer.index_before = {}
                expected = {
                    key: fingerprint_of(writer.comparable_record(current[key])) for key in removable
                }
                writer.delete_inserted_parts(expected, removable.items())
            on_step("taken out there")
        on_step("committed there")
        remaining_keys = tuple(key for key in current if key not in removable)
        if keys is None and not remaining_keys:
            archive.discard_pending(digest)
        on_step("forgotten there")
    return RemovedCopies(count=len(removable), remaining_keys=remaining_keys)


def _relied_on(merges: Iterable[RecordedChange]) -> set[str]:
    """Return the keys of the memories that some merges into a folder rely on."""
    keys = set[str]()
    for recorded in merges:
        if recorded.merge is not None:
            keys.update(recorded.merge.relies_on)
    return keys
