"""Recover memories that others deleted or emptied."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import pandas as pd

from memlab import columns as c
from memlab.arguments import texts
from memlab.clock import moment_or_now
from memlab.compaction.store_change import StoreChange
from memlab.compaction.wire import entries_left_in_words, some_of
from memlab.errors import ArchiveError, StalePlanError
from memlab.evidence.losses import losses_of
from memlab.sources.archived import open_to_restore
from memlab.sources.base import Source, read_consistent
from memlab.sources.capabilities import Loss, check_deletable
from memlab.sources.opening import SourceLike
from memlab.sources.readers import Key, StepCallback, no_progress
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import RECOVERY_POLICY, NewCopy, NewEntry, PlanText
from memlab.store.records import fingerprint_of
from memlab.text import Cell, DisplayMixin, Table, TextPage, command, counted

_MAX_LISTED: Final = 20
"""Maximum number of memories that a printed recovery lists."""
_REASON: Final = "deleted by somebody else"
"""Reason of the copies of recovered memories in the archive."""


@dataclass(frozen=True, repr=False)
class Recovery(DisplayMixin):
    """Memories that others deleted or emptied: planned to be recovered, or recovered.

    Attributes
    ----------
    store : str
        The store.
    frame : DataFrame
        The memories, with the columns of :func:`memlab.lost`.
    losses : mapping of str to Loss
        The losses of these memories with the kept copies, by id.
    applied : bool
        Whether the memories are in the store again.
    entries_left : sequence of int or str
        Keys of memories that already had an index entry, which was left unchanged.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> recovery = plan_recovery(store)
    >>> recovery.applied, recovery.next_steps()
    (False, ['nothing is lost'])
    """

    store: str
    frame: pd.DataFrame
    losses: Mapping[str, Loss] = field(default_factory=dict)
    applied: bool = False
    entries_left: Sequence[Key] = ()

    @property
    def digest(self) -> str:
        """SHA-256 digest of the keys and the records, by which the archive names the recovery."""
        hashed = sha256()
        for key, record in self.records:
            hashed.update(f"{json.dumps(key)} {fingerprint_of(record)}\n".encode())
        return hashed.hexdigest()

    @property
    def records(self) -> list[tuple[Key, bytes]]:
        """Keys and records of the memories."""
        return [(loss.key, loss.record) for loss in self.losses.values()]

    @property
    def undo(self) -> str:
        """Command that undoes the recovery."""
        return command("restore", self.store, self.digest[:12])

    def to_dict(self) -> dict[str, Any]:
        """Return the recovery as JSON values."""
        fields: dict[str, Any] = {
            "store": self.store,
            "applied": self.applied,
            "memories": list(self.losses),
        }
        if self.applied and self.losses:
            fields["undo"] = self.undo
            fields["entries_left"] = list(self.entries_left)
        return fields

    def next_steps(self) -> list[str]:
        """Return the advice on what to do next."""
        if self.applied:
            return []
        if self.losses:
            return ["nothing was changed; add --apply to do it"]
        return ["nothing is lost"]

    def sheet(self) -> TextPage:
        """Return the printed page."""
        count = counted(len(self.losses))
        title = f"{count} restored into {self.store}" if self.applied else f"restore {count}"
        facts = []
        if self.applied and self.losses:
            facts.append(("undo", self.undo))
        if self.entries_left:
            facts.append(("index", entries_left_in_words(self.entries_left)))
        columns = self.frame[[c.TOKENS, c.MEMORY_ID, c.TITLE]]
        rows: list[tuple[Cell, ...]] = list(columns.itertuples(index=False))
        table = Table("", ("tokens", "id", "title"), rows)
        return TextPage(title, facts, [table.first(_MAX_LISTED)])


def plan_recovery(
    store: SourceLike, ids: Collection[str] | None = None, *, now: datetime | None = None
) -> Recovery:
    """Return the memories that :func:`recover` would restore. The store is only read.

    The parameters and the errors are those of :func:`recover`.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> _ = memlab.compaction.keep_copies(store)
    >>> plan_recovery(store).frame.empty  # no other program has deleted a memory
    True
    """
    source = open_to_restore(store)
    source.read_missing_as_empty()
    losses = losses_of(store, now=now)
    requested_ids = set(losses.restorable)
    if ids is not None:
        requested_ids = set(texts(ids, call="recover", name="ids"))
    unknown_ids = sorted(requested_ids - losses.restorable.keys())
    if unknown_ids:
        raise ArchiveError(
            f"{some_of(unknown_ids)} is not lost; nothing was changed: "
            f"{command('lost', source.name)} lists what is, "
            f"{command('archive', source.name, '--rows')} what memlab deleted"
        )
    requested = {
        memory_id: loss
        for memory_id, loss in losses.restorable.items()
        if memory_id in requested_ids
    }
    absent_keys = [loss.key for loss in requested.values() if not _is_present(loss)]
    taken_keys = read_consistent(
        source, lambda reader: [key for key, _ in reader.records(absent_keys)]
    )
    key_counts = Counter(loss.key for loss in requested.values())
    duplicate_keys = [key for key, count in key_counts.items() if count > 1]
    _check_free(source, taken_keys + duplicate_keys)
    is_requested = losses.frame[c.MEMORY_ID].isin(requested_ids)
    frame = losses.frame[is_requested].reset_index(drop=True)
    return Recovery(store=source.name, frame=frame, losses=requested)


def recover(
    store: SourceLike,
    ids: Collection[str] | None = None,
    *,
    now: datetime | None = None,
    on_step: StepCallback = no_progress,
) -> Recovery:
    """Restore memories that others deleted or emptied, byte for byte and with their index entries.

    The archive records the recovery before the store changes. ``memlab restore STORE DIGEST``, or
    :func:`memlab.restore` with the ``digest`` of the result, undoes it.

    Parameters
    ----------
    store : str, Path or Source
        The store.
    ids : collection of str, optional
        Restore only the memories with these ids. By default all that are lost.
    now : datetime, optional
        The time that the archive records, with a time zone. The current time by default.
    on_step : callable, optional
        Progress callback. It is called with the name of each finished step: "locked", "archived",
        "inserted" and "committed".

    Returns
    -------
    Recovery
        The restored memories.

    Raises
    ------
    ArchiveError
        If no memory with a given id is lost, or if its position is in use. Nothing is changed.
    StalePlanError
        If an emptied or unlisted memory was changed meanwhile. Nothing is changed.
    UnsafeDeletionError
        If it is unsafe to change a store of this kind.

    Examples
    --------
    >>> import memlab, sqlite3
    >>> from contextlib import closing
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> _ = memlab.compaction.keep_copies(store)
    >>> with closing(sqlite3.connect(store)) as database, database:
    ...     _ = database.execute("DELETE FROM memory_items WHERE rowid = 3")
    >>> len(recover(store).frame)
    1
    """
    source = open_to_restore(store)
    source.read_missing_as_empty()
    moment = moment_or_now(now, call="memlab.compaction.recover")
    recovery = plan_recovery(store, ids, now=moment)
    if not recovery.losses:
        return Recovery(store=source.name, frame=recovery.frame, applied=True)
    check_deletable(source)
    with source.recreated_folder(), source.archive.changing(source.changing()) as opened:
        change = StoreChange(
            source=source, writer=opened.writer, archive=opened.archive, now=moment, on_step=on_step
        )
        entries_left = _recover_locked(change, recovery)
    on_step("committed")
    return replace(recovery, applied=True, entries_left=entries_left)


def _recover_locked(change: StoreChange, recovery: Recovery) -> tuple[Key, ...]:
    """Recover memories while the write lock of their store is held.

    Return the keys of memories whose index entries were left unchanged.
    """
    archive = change.archive
    archive.check_entries()
    change.reconcile()
    change.on_step("locked")
    records_to_replace = _records_to_replace(change, recovery)
    new_entry = NewEntry(
        digest=recovery.digest,
        policy=RECOVERY_POLICY,
        made_at=change.now,
        memories=len(recovery.losses),
        plan=_text_of_replaced(archive, records_to_replace),
    )
    records = change.writer.missing_parts_of(recovery.records)
    entries_left = tuple(change.writer.entries_left)
    copies = (NewCopy(key, record, _REASON) for key, record in records)
    with archive.adding_entry(new_entry, copies, at=change.now):
        archive.mark_applied(recovery.digest, change.now)
        change.on_step("archived")
        _write(change, records, records_to_replace)
        change.on_step("inserted")
    return entries_left


def _records_to_replace(change: StoreChange, recovery: Recovery) -> dict[Key, bytes]:
    """Return by key the current records of memories that are in the store, emptied or unlisted.

    Raise StalePlanError if one of them was changed or deleted since the recovery was planned.
    """
    losses = {loss.key: loss for loss in recovery.losses.values() if _is_present(loss)}
    current = dict(change.writer.records(losses))
    for key, loss in losses.items():
        if key not in current or not _is_still_lost(loss, current[key], change.source):
            raise StalePlanError(
                "a memory that was empty or unlisted was written or deleted meanwhile; nothing was "
                "changed: try again"
            )
    return current


def _text_of_replaced(
    archive: OpenArchive, records_to_replace: Mapping[Key, bytes]
) -> PlanText | None:
    """Return the text by which the archive keeps replaced records, so that an undo restores them.

    Return None if there are none.
    """
    if not records_to_replace:
        return None
    rows = [
        [key, archive.storable_record(record).decode()]
        for key, record in records_to_replace.items()
    ]
    text = json.dumps(rows)
    return PlanText(lambda: [text])


def _write(
    change: StoreChange,
    records: Sequence[tuple[Key, bytes]],
    records_to_replace: Mapping[Key, bytes],
) -> None:
    """Write recovered records: replace the memories in `records_to_replace`, insert the others.

    Raise ArchiveError if a position or an id is in use.
    """
    writer = change.writer
    to_insert = []
    replacements = []
    for key, record in records:
        if key in records_to_replace:
            replacements.append((key, record))
        else:
            to_insert.append((key, record))
    keys_to_insert = [key for key, _ in to_insert]
    taken_places: list[object] = [key for key, _ in writer.records(keys_to_insert)]
    _check_free(change.source, taken_places + writer.conflicts(to_insert))
    if records_to_replace:
        expected = {
            key: fingerprint_of(writer.comparable_record(record))
            for key, record in records_to_replace.items()
        }
        writer.replace(expected, replacements)
    if to_insert:
        writer.insert(to_insert)


def _is_present(loss: Loss) -> bool:
    """Return whether a lost memory is in the store, but empty or not listed in the index."""
    return loss.is_emptied or loss.is_unlisted


def _is_still_lost(loss: Loss, record: bytes, source: Source) -> bool:
    """Return whether a memory in the store is still empty or unlisted, so it can be replaced."""
    if loss.is_emptied:
        return source.is_empty(record)
    content = source.content_for_digest(record)
    is_unlisted = source.index is not None and source.index.is_unlisted(record)
    return is_unlisted and content == source.content_for_digest(loss.record)


def _check_free(source: Source, taken_places: Sequence[object]) -> None:
    """Raise ArchiveError if a key or an id of a memory to recover is in use."""
    if taken_places:
        raise ArchiveError(
            f"{counted(len(taken_places), 'places')} in {source.name} taken since "
            f"({some_of(taken_places)}); nothing was restored: restore the others by id"
        )
