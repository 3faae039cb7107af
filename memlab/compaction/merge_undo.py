"""Undo a merge: restore the memories into their folder, and remove the copies from the other."""

from dataclasses import replace

from memlab.compaction.deletion_undo import insert_deleted, mark_restored
from memlab.compaction.merging import RemovedCopies, contents_of, remove_copies
from memlab.compaction.recorded_change import Merge, RecordedChange
from memlab.compaction.undo import Restored, Undo
from memlab.errors import ArchiveError, MemlabError
from memlab.sources.archived import open_to_restore
from memlab.text import command, counted


def undo_merge(undo: Undo, other: str) -> Restored:
    """Undo a merge of the folder whose archive is open.

    The archive records the undo after the copies were removed from the other folder. If their
    removal fails, the same command can be run again.

    Parameters
    ----------
    undo : Undo
        The undo, of the folder that the memories left.
    other : str
        The path of the folder that they were merged into.
    """
    restored = insert_deleted(undo)
    try:
        removed = remove_copies(
            other,
            undo.recorded.digest,
            contents=contents_of(undo.source),
            keys=None if undo.ids is None else restored.requested_keys,
            on_step=undo.on_step,
        )
    except MemlabError as error:
        again = command("restore", undo.source.name, undo.recorded.digest[:12])
        raise ArchiveError(
            f"{counted(restored.result.memories)} restored into {undo.source.name}, and the copies "
            f"are not taken out yet ({error}); then run {again}"
        ) from error
    mark_restored(undo, restored)
    return _with_removed(restored.result, removed, other)


def undo_merge_from_other(undo: Undo, merge: Merge) -> Restored:
    """Undo a merge of which the caller named the other folder.

    That folder may have moved since the merge, so it is opened at its present path. If the archive
    of the first folder does not have the plan any more, only remove copies of memories that the
    first folder has.

    Parameters
    ----------
    undo : Undo
        The undo, of the folder that the memories were merged into.
    merge : Merge
        The merge, as the archive of that folder records it.
    """
    digest = undo.recorded.digest
    other = undo.source.name
    origin = open_to_restore(merge.origin, digest)
    has_plan = origin.archive.exists and origin.archive.read(
        lambda archive: archive.find_entry(digest) is not None
    )
    if has_plan:
        origin.archive.check()
        with origin.archive.writing() as archive:
            recorded = RecordedChange.named(archive, digest)
            restored = undo_merge(replace(undo, source=origin, recorded=recorded), other)
    else:
        removed = remove_copies(
            other, digest, contents=contents_of(origin), keys=undo.ids, on_step=undo.on_step
        )
        restored = _with_removed(Restored(), removed, other)
    return replace(restored, origin=merge.origin)


def _with_removed(restored: Restored, removed: RemovedCopies, other: str) -> Restored:
    """Add the number of removed copies and the keys of the remaining ones to the result."""
    return replace(
        restored, other=other, copies_removed=removed.count, copies_left=removed.remaining_keys
    )
