"""Undo a change that the archive records, each kind of change in its own way."""

from collections.abc import Collection
from datetime import datetime
from os import PathLike
from pathlib import Path

from memlab.arguments import expect, texts
from memlab.clock import moment_or_now
from memlab.compaction.deletion_undo import restore_deleted, restore_into
from memlab.compaction.index_change import restore_index
from memlab.compaction.index_plans import IndexReceipt
from memlab.compaction.links_undo import undo_links
from memlab.compaction.merge_undo import undo_merge, undo_merge_from_other
from memlab.compaction.plans import Receipt
from memlab.compaction.recorded_change import RecordedChange, last_undoable
from memlab.compaction.recovery_undo import undo_recovery
from memlab.compaction.undo import Restored, Undo
from memlab.errors import ArchiveError
from memlab.sources.archived import open_to_restore
from memlab.sources.opening import SourceLike
from memlab.sources.readers import StepCallback, no_progress
from memlab.store.archive.schema import LATEST


def restore(
    receipt: Receipt | IndexReceipt | str,
    *,
    store: SourceLike | None = None,
    ids: Collection[str] | None = None,
    into: str | Path | None = None,
    now: datetime | None = None,
    on_step: StepCallback = no_progress,
) -> Restored:
    """Restore archived memories: the same bytes at the same position.

    If the plan superseded or retired memories, they are loaded again; memories that the plan
    returned are retired again. Such memories never left the store. For a plan of
    :func:`memlab.plan_index`, restore the index and keep what somebody else wrote since. For a
    merge, also remove the copies from the other folder. A memory that is in the store as it was
    archived is skipped, so a second call restores 0. Rows of other tables that belonged to a memory
    are restored with it. An error means that nothing was changed, unless its message says what was
    changed and what to do next.

    Parameters
    ----------
    receipt : Receipt, IndexReceipt or str
        The result of :func:`apply`, or the digest of a plan, or its first characters, or
        ``"latest"`` for the last plan that is not undone yet.
    store : str, Path or Source, optional
        The store. It is needed if `receipt` is a text or if the store has moved.
    ids : collection of str, optional
        Restore only the memories with these ids.
    into : str or Path, optional
        Path of a new file. The memories are restored into this file instead of the store, and the
        file has no other memories.
    now : datetime, optional
        The time of restoration that the archive records, with a time zone. The current time by
        default.
    on_step : callable, optional
        Progress callback, as in :func:`apply`. The steps are "locked", "checked", "inserted",
        "verified", "committed" and "recorded"; for a merge also "taken out there", "committed
        there" and "forgotten there".

    Returns
    -------
    Restored
        The number of restored ``memories``, and what was left out. For a receipt of a plan that
        changed nothing, the number is 0.

    Raises
    ------
    ArchiveError
        If the archive has no such plan or nothing to undo, if the plan has no memory with a given
        id, if a position or an id is in use again, or if a superseded or retired memory is missing
        or superseded by another one.
    CompactionError
        If more would change than the memories that the plan superseded or retired.
    UnsafeDeletionError
        If it is unsafe to change a store of this kind.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> restored = memlab.restore(receipt)
    >>> restored.memories == receipt.deleted
    True
    """
    expect(receipt, Receipt, IndexReceipt, str, call="memlab.restore", name="receipt")
    expect(into, str, PathLike, call="memlab.restore", name="into", optional=True)
    requested_ids: frozenset[str] | None = None
    if ids is not None:
        requested_ids = frozenset(texts(ids, call="memlab.restore", name="ids"))
    moment = moment_or_now(now, call="memlab.restore")
    if isinstance(receipt, str):
        digest = receipt
        location = store
    else:
        if receipt.changed_nothing and requested_ids is None and into is None:
            return Restored()
        digest = receipt.digest
        location = receipt.store if store is None else store
    if location is None:
        raise ValueError(f"store must be given with a digest such as {digest!r}")
    is_latest = digest == LATEST
    source = open_to_restore(location, "" if is_latest else digest)
    if into is None:
        source.archive.check()
    with source.archive.writing() as archive:
        recorded = last_undoable(archive) if is_latest else RecordedChange.named(archive, digest)
        undo = Undo(
            source=source,
            recorded=recorded,
            ids=requested_ids,
            into=None if into is None else Path(into),
            now=moment,
            on_step=on_step,
        )
        # `recorded.merge` is set if this store is the folder that memories were merged into.
        if recorded.merge is None:
            return _undo(undo)
    # The archive is closed, because the undo opens the archives of both folders.
    return undo_merge_from_other(undo, recorded.merge)


def _undo(undo: Undo) -> Restored:
    """Undo a change of the store whose archive is open."""
    entry = undo.recorded.entry
    if entry.is_index_change:
        return _undo_index_change(undo)
    if not entry.memories:  # the plan superseded, retired or returned memories
        return undo_links(undo)
    if undo.into is not None:
        return restore_into(undo, undo.into)
    if entry.is_recovery:
        return undo_recovery(undo)
    if undo.recorded.merged_into:
        return undo_merge(undo, undo.recorded.merged_into)
    return restore_deleted(undo)


def _undo_index_change(undo: Undo) -> Restored:
    """Undo a plan that changed an index."""
    recorded = undo.recorded
    if undo.into is not None or undo.ids is not None:
        raise ArchiveError(
            f"plan {recorded.digest[:12]} changed the index and no memory; nothing was restored: "
            "restore it without ids and without another file"
        )
    return Restored(index=restore_index(undo.source, recorded, now=undo.now, on_step=undo.on_step))
