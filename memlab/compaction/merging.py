"""Merge a folder of memories into another: compare them, copy, and take the copies out again.

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
    """The two folders of a merge, and what each can do as one of them.

    Attributes
    ----------
    source, other : Source
        The folder that memories leave, and the one that takes them.
    gives, takes : Intake
        The ability of each to exchange memories.
    """

    source: Source
    other: Source
    gives: Intake
    takes: Intake


def merged_folders(source: Source, into: SourceLike) -> MergedFolders:
    """Open the folder that the memories of a source are merged into; return both folders.

    Raise PlanError if one of them cannot take files of another folder, or if they are one folder.
    """
    gives = require(source, "intake")
    other = open_source(into)
    takes = require(other, "intake")
    if realpath(str(source.permissions_template)) == realpath(str(other.permissions_template)):
        raise errors.PlanError(f"{other.name} is the same folder; name another one with --into")
    return MergedFolders(source=source, other=other, gives=gives, takes=takes)


def content_digest(source: Source, record: bytes) -> str:
    """Return the digest of the content of a memory: of the bytes of its file."""
    return digest_of(source.content_for_digest(record)).hex()


def copy_into_other(change: PlannedChange, keys: Collection[Key]) -> None:
    """Copy the memories with some keys, which the caller deletes then.

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
    read_consistent(other, lambda reader: _check_standing(plan.digest, other, reader, copies))


@contextmanager
def copies_removed_on_error(plan: Plan, source: Source) -> Iterator[None]:
    """Take the copies of a merge out of the other folder again if the block raises."""
    try:
        yield
    except BaseException:
        if plan.merges:
            with suppress(errors.MemlabError):
                take_out_copies(plan.into, plan.digest, contents=contents_of(source))
        raise


def _copy(change: PlannedChange, folders: MergedFolders, copies: Sequence[PlannedCopy]) -> None:
    """Copy what the other folder lacks, with its index lines, and note it in the archive there."""
    digest = change.plan.digest
    other = folders.other
    location = other.archive.location
    narrowest = location._replace(
        narrowest=lambda: change.source.narrowest_mode() & other.narrowest_mode()
    )
    with Archive(narrowest).changing(other.changing()) as opened:
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
        missing = _records_to_copy(change, other_change, copies, folders.gives)
        earlier = _earlier_copies(change, other_change, {copy.other_key for copy in copies})
        inserted = other_change.writer.missing_parts_of(missing)
        records_to_note = {**earlier.records, **dict(inserted)}
        _check_not_private(other_change, records_to_note)
        relies_on = frozenset(str(copy.other_key) for copy in copies)
        text = Merge(origin=change.source.name, relies_on=relies_on).to_json()
        merge = NewEntry(
            digest=digest,
            policy=RECOVERY_POLICY,
            made_at=change.plan.made_at,
            memories=len(records_to_note),
            plan=PlanText(lambda: [text]),
        )
        archived = (NewCopy(key, record, COPIED) for key, record in records_to_note.items())
        with other_change.archive.adding(merge, archived, at=change.now):
            other_change.archive.mark_applied(digest, change.now)
            change.on_step("noted there")
            if inserted:
                other_change.writer.insert(inserted)
            versions = _joined(earlier.version, other_change.writer.index_versions())
            note_index_versions(other_change.archive, digest, versions)
            for earlier_digest in earlier.digests:
                other_change.archive.discard_pending(earlier_digest)
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
    keys_lacking = {copy.key for copy in lacking}
    standing = [copy for copy in copies if copy.key not in keys_lacking]
    _check_standing(change.plan.digest, other_change.source, other_change.writer, standing)
    conflicts = other_change.writer.conflicts(missing)
    if conflicts:
        raise errors.StalePlanError(
            f"{other_change.source.name} is not as plan {change.plan.digest[:12]} saw it: "
            f"{some_of(conflicts)} was written there; nothing was changed: make a new plan"
        )
    return missing


def _check_standing(
    digest: str, other: Source, reader: Reader, copies: Sequence[PlannedCopy]
) -> None:
    """Raise StalePlanError unless the other folder has the content of each memory."""
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


class _Earlier(NamedTuple):
    """The copies that interrupted merges of the same folder made, and that are still there."""

    records: dict[Key, bytes]
    digests: list[str]
    version: IndexVersion | None


def _earlier_copies(
    change: PlannedChange, other_change: StoreChange, keys: Collection[Key]
) -> _Earlier:
    """Return the copies of interrupted merges, which this merge takes over.

    A merge was interrupted if the archive of the first folder does not have it as applied.
    """
    applied = {entry.digest for entry in change.archive.entries() if entry.finished_at is not None}
    found: dict[Key, bytes] = {}
    digests: list[str] = []
    version: IndexVersion | None = None
    for recorded in recorded_changes(other_change.archive):
        merge = recorded.merge
        if merge is None or merge.origin != change.source.name or recorded.digest in applied:
            continue
        records = dict(other_change.archive.records(recorded.entry))
        current = dict(other_change.writer.records([key for key in records if key in keys]))
        for key, record in current.items():
            if other_change.writer.has_inserted_parts(record, records[key]):
                found[key] = records[key]
        if recorded.digest != change.plan.digest:
            digests.append(recorded.digest)
        if found:
            version = next(iter(recorded.index_before.values()), version)
    return _Earlier(found, digests, version)


def _joined(earlier: IndexVersion | None, made: Sequence[IndexVersion]) -> Sequence[IndexVersion]:
    """Return the index from before an interrupted merge and this one, if nobody edited it between.

    Without that version, an undo removes the lines of the copies from the index.
    """
    if earlier is None:
        return made
    if not made:
        return [earlier]
    (new,) = made
    if earlier.digest_after != digest_of_index(new.data):
        return []
    return [earlier._replace(digest_after=new.digest_after)]


def _check_not_private(other_change: StoreChange, records: Mapping[Key, bytes]) -> None:
    """Raise ArchiveError if more people may read the other archive than a memory."""
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
    return read_consistent(
        source,
        lambda reader: {
            key: content_digest(source, record) for key, record in reader.records(keys_in(reader))
        },
    )


@dataclass(frozen=True)
class TakenOut:
    """Result of :func:`take_out_copies`: the number of copies, and the keys of those that stay."""

    memories: int = 0
    stay: tuple[Key, ...] = ()


def take_out_copies(
    into: str,
    digest: str,
    *,
    contents: Mapping[Key, str],
    keys: Collection[Key] | None = None,
    on_step: StepCallback = no_progress,
) -> TakenOut:
    """Take the copies that a merge made out of the other folder.

    A copy stays if it or its index line was changed since, if the first folder has no equal
    memory, or if another merge relies on it.

    Parameters
    ----------
    into, digest : str
        The path of the other folder, and the whole digest of the plan.
    contents : mapping of Key to str
        The digests of the contents that the first folder has, as :func:`contents_of` returns them.
    keys : collection of Key, optional
        Only these; by default all.
    on_step : callable, optional
        Progress callback. The steps are "taken out there", "committed there", "forgotten there".
    """
    other = open_to_restore(into, digest)
    if not other.archive.exists:
        return TakenOut()
    with other.archive.writing() as archive:
        merges = {
            recorded.digest: recorded
            for recorded in recorded_changes(archive)
            if recorded.merge is not None
        }
        recorded = merges.pop(digest, None)
        if recorded is None:
            return TakenOut()
        copies = dict(archive.records(recorded.entry))
        wanted = {key: copies[key] for key in copies if keys is None or key in keys}
        relied_on = _relied_on(merges.values())
        with other.changing() as writer:
            current = dict(writer.records(wanted))
            writer.index_before = recorded.index_before
            is_as_before = (
                writer.is_back if writer.is_index_as_left() else writer.has_inserted_parts
            )
            leaving = {}
            for key, record in current.items():
                is_unchanged = is_as_before(record, wanted[key])
                is_equal = contents.get(key) == content_digest(other, record)
                if is_unchanged and is_equal and str(key) not in relied_on:
                    leaving[key] = wanted[key]
            if leaving:
                if len(leaving) < len(copies):
                    writer.index_before = {}
                expected = {
                    key: fingerprint_of(writer.comparable_record(current[key])) for key in leaving
                }
                writer.delete_inserted_parts(expected, leaving.items())
            on_step("taken out there")
        on_step("committed there")
        stay = tuple(key for key in current if key not in leaving)
        if keys is None and not stay:
            archive.discard_pending(digest)
        on_step("forgotten there")
    return TakenOut(len(leaving), stay)


def _relied_on(merges: Iterable[RecordedChange]) -> set[str]:
    """Return the keys of the memories that some merges into a folder rely on."""
    keys = set[str]()
    for recorded in merges:
        if recorded.merge is not None:
            keys.update(recorded.merge.relies_on)
    return keys
