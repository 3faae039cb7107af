"""Undo a merge: restore the memories into their folder, and take the copies out of the other."""

from dataclasses import replace

from memlab.compaction.deletion_undo import mark_restored, put_back
from memlab.compaction.merging import TakenOut, contents_of, take_out_copies
from memlab.compaction.recorded_change import Merge, RecordedChange
from memlab.compaction.undo import Restored, Undo
from memlab.errors import ArchiveError, MemlabError
from memlab.sources.archived import open_to_restore
from memlab.text import command, counted


def undo_merge(undo: Undo, other: str) -> Restored:
    """Undo a merge; the archive of the folder that the memories left is open.

    The plan counts as undone only when the copies are out of the other folder, so that the same
    command can be run again until they are.

    Parameters
    ----------
    undo : Undo
        The undo, of the folder that the memories left.
    other : str
        The path of the folder that they were merged into.
    """
    restored = put_back(undo)
    try:
        taken = take_out_copies(
            other,
            undo.recorded.digest,
            contents=contents_of(undo.source),
            keys=None if undo.ids is None else restored.requested,
            on_step=undo.on_step,
        )
    except MemlabError as error:
        again = command("restore", undo.source.name, undo.recorded.digest[:12])
        raise ArchiveError(
            f"{counted(restored.result.memories)} restored into {undo.source.name}, and the copies "
            f"are not taken out yet ({error}); then run {again}"
        ) from error
    mark_restored(undo, restored)
    return _with_taken(restored.result, taken, other)


def undo_merge_from_other(undo: Undo, merge: Merge) -> Restored:
    """Undo a merge that the other folder was asked for; it may have moved since.

    If the archive of the first folder does not have the plan any more, only take out copies of
    memories that the first folder has.
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
        taken = take_out_copies(
            other, digest, contents=contents_of(origin), keys=undo.ids, on_step=undo.on_step
        )
        restored = _with_taken(Restored(), taken, other)
    return replace(restored, origin=merge.origin)


def _with_taken(restored: Restored, taken: TakenOut, other: str) -> Restored:
    """Return the result of an undo with the copies that were taken out of the other folder."""
    return replace(restored, other=other, taken_out=taken.memories, stay_there=taken.stay)
