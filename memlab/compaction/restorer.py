"""Restore archived memories byte for byte, and undo plans that superseded or retired memories."""

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from os import PathLike
from os.path import lexists
from pathlib import Path
from typing import Final, NamedTuple

from memlab.arguments import expect, texts
from memlab.clock import moment_or_now
from memlab.compaction.archive_check import all_elsewhere
from memlab.compaction.index_change import IndexRestored, restore_index
from memlab.compaction.index_plans import IndexReceipt
from memlab.compaction.merging import (
    Merge,
    TakenOut,
    finish_words,
    merge_in,
    take_out_copies,
    target_of,
)
from memlab.compaction.plans import Plan, PlannedLink, PlannedMemory, Receipt
from memlab.compaction.store_change import (
    LinkingChange,
    StoreChange,
    explain_unrecorded,
    opened_to_supersede,
    plan_in,
)
from memlab.compaction.wire import entries_left_in_words, some_of
from memlab.errors import ArchiveError, MemlabError
from memlab.files import limit_like, whole_file
from memlab.sources.archived import open_to_restore
from memlab.sources.base import Source
from memlab.sources.capabilities import check_deletable, require
from memlab.sources.opening import SourceLike
from memlab.sources.readers import (
    Key,
    KeyedRecords,
    LinkChange,
    StepCallback,
    SupersedingWriter,
    Writer,
    no_progress,
)
from memlab.store.archive.index_versions import index_versions_in
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.retired import forget_retired
from memlab.store.archive.schema import LATEST, Copy, Entry, check_size
from memlab.store.database import SIDE_FILES
from memlab.store.records import fingerprint_of
from memlab.store.snapshot import read_snapshot
from memlab.text import DisplayMixin, TextPage, command, counted

_MAX_IDS_SHOWN: Final = 50
"""Number of ids up to which a message has the whole command that restores them."""


@dataclass(frozen=True, repr=False)
class Restored(DisplayMixin):
    """Result of :func:`restore`.

    Attributes
    ----------
    memories : int
        Number of memories that were restored. For the undo of a recovery, number of memories that
        were removed again.
    left_out : int
        Number of memories that were not restored because they have expired.
    rows_left_out : mapping of str to int
        Number of rows of other tables that were not restored, by table.
    stay : int or None
        For the undo of a recovery: number of memories that stay because they are load-bearing.
    entries_left : sequence of int or str
        Keys of memories that already had an entry in the index. The entry was left unchanged.
    index : IndexRestored or None
        For the undo of a plan of :func:`memlab.plan_index`: what became of the index.
    origin : str
        For the undo of a merge that the other folder was asked for: the folder that the memories
        were restored into.
    other : str
        For the undo of a merge: the folder that the memories were merged into.
    taken_out : int
        For the undo of a merge: number of copies that were taken out of that folder.
    stay_there : sequence of int or str
        For the undo of a merge: keys of the copies that stay there, because they were changed
        since or another merge relies on them.
    """

    memories: int = 0
    left_out: int = 0
    rows_left_out: Mapping[str, int] = field(default_factory=dict)
    stay: int | None = None
    entries_left: Sequence[Key] = ()
    index: IndexRestored | None = None
    origin: str = ""
    other: str = ""
    taken_out: int = 0
    stay_there: Sequence[Key] = ()

    def __int__(self) -> int:
        """Return the number of memories."""
        return self.memories

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        if self.index is not None:
            return self.index.sheet()
        title, *others = self.in_words(self.origin)
        return TextPage(title, [("", line) for line in others])

    def in_words(self, target: str = "") -> list[str]:
        """Return the lines that say what was undone; `target` names the store, if it is given."""
        restored = counted(self.memories)
        if self.stay is None:
            lines = [f"{restored} restored into {target}" if target else f"{restored} restored"]
            if not (self.memories or self.left_out or self.taken_out):
                lines.append("that plan is undone already: every memory is at its place")
        else:
            place = f" of {target}" if target else ""
            lines = [f"{restored} taken out{place} again, which memlab lost had put back"]
            if self.stay:
                verb = "stays" if self.stay == 1 else "stay"
                lines.append(f"{counted(self.stay)} {verb}: memlab deletes nothing load-bearing")
        if self.other:
            lines.append(f"{counted(self.taken_out)} taken out of {self.other} again")
            if self.stay_there:
                lines.append(self.stay_in_words())
        if self.index_note:
            lines.append(f"index: {self.index_note}")
        if self.left_out:
            left_out = counted(self.left_out)
            lines.append(f"{left_out} left in the archive, whose own time has passed since")
        for table, rows in self.rows_left_out.items():
            lines.append(
                f"{counted(rows, 'rows')} of {table} left in the archive, since something else "
                "referred to is not there"
            )
        return lines

    def stay_in_words(self) -> str:
        """Return a sentence about copies that stay in the other folder; empty for none."""
        if not self.stay_there:
            return ""
        count = len(self.stay_there)
        verb = "stays" if count == 1 else "stay"
        return (
            f"{counted(count)} {verb} in {self.other}, changed since or needed by another merge: "
            f"{some_of(self.stay_there)}"
        )

    @property
    def index_note(self) -> str:
        """Sentence about index entries that were left unchanged; empty if there are none."""
        return entries_left_in_words(self.entries_left)


def restore(
    receipt: Receipt | IndexReceipt | str,
    *,
    store: SourceLike | None = None,
    ids: Collection[str] | None = None,
    into: str | Path | None = None,
    now: datetime | None = None,
    watch: StepCallback = no_progress,
) -> Restored:
    """Restore archived memories: the same bytes at the same position.

    For a plan that superseded or retired memories, load them again and retire again those that it
    returned; such memories never left the store. For a plan of :func:`memlab.plan_index`, restore
    the index and keep what somebody else wrote since. For a merge, also take the copies out of the
    other folder. A memory that is in the store as it was archived is skipped, so a second call
    restores 0. Rows of other tables that belonged to a memory are restored with it. An error means
    that nothing was changed, unless its message says what was changed and what to do next.

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
        Restore into a new file at this path, which holds nothing else, instead of the store.
    now : datetime, optional
        The time of restoration that the archive records, with a time zone. The current time by
        default.
    watch : callable, optional
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
    requested_ids = (
        None if ids is None else frozenset(texts(ids, call="memlab.restore", name="ids"))
    )
    moment = moment_or_now(now, call="memlab.restore")
    if not isinstance(receipt, str):
        if _did_nothing(receipt) and requested_ids is None and into is None:
            return Restored()
        store = receipt.store if store is None else store
        receipt = receipt.digest
    if store is None:
        raise ValueError(f"store must be given with a digest such as {receipt!r}")
    if receipt == LATEST:
        # Imported here, because only this name needs the views of an archive.
        from memlab.compaction.archive_views import archive_listing

        receipt = archive_listing(store).last_undoable().digest
    source = open_to_restore(store, receipt)
    if into is None:
        source.archive.check()
    with source.archive.writing() as archive:
        request = _Request(
            source=source,
            archive=archive,
            digest=receipt,
            ids=requested_ids,
            now=moment,
            watch=watch,
        )
        entry = archive.entry(receipt)
        merge = merge_in(archive, entry)
        if merge is None:
            return _undo(request, entry, into)
    return _undo_merge_from_other(request, entry.digest, merge)


def _undo(request: "_Request", entry: Entry, into: str | Path | None) -> Restored:
    """Undo a plan, or a recovery, of the store whose archive is open."""
    if entry.mends:
        return _undo_mend(request, entry, into)
    if not entry.memories:
        return _undo_links(request, entry, into)
    if into is not None:
        return Restored(memories=_restore_into(request, Path(into)))
    if entry.recovers:
        return _undo_recovery(request, entry)
    return _restore_deleted(request)


def _undo_merge_from_other(request: "_Request", digest: str, merge: Merge) -> Restored:
    """Undo a merge that the other folder was asked for; it may have moved since.

    If the archive of the first folder does not have the plan any more, only take out copies of
    memories that the first folder has.
    """
    other = request.source.name
    origin = open_to_restore(merge.origin, digest)
    has_plan = origin.archive.exists and origin.archive.read(
        lambda archive: archive.find_entry(digest) is not None
    )
    if has_plan:
        origin.archive.check()
        with origin.archive.writing() as archive:
            own_request = request._replace(
                source=origin, archive=archive, digest=digest, other=other
            )
            restored = _restore_deleted(own_request)
        return replace(restored, origin=merge.origin)
    taken = take_out_copies(origin, other, digest, keys=request.ids, watch=request.watch)
    return Restored(
        origin=merge.origin, other=other, taken_out=taken.memories, stay_there=taken.stay
    )


def _did_nothing(receipt: Receipt | IndexReceipt) -> bool:
    """Return whether a plan changed nothing, so that its archive need not exist."""
    if isinstance(receipt, IndexReceipt):
        return receipt.archive is None
    changed = receipt.deleted + receipt.superseded + receipt.retired + receipt.returned
    return receipt.archive is None and not changed


class _Request(NamedTuple):
    """One call of :func:`restore`: the archived plan, and the ids to restore or None for all.

    `other` is the path of the folder that a merge copied into; by default the path in the plan.
    """

    source: Source
    archive: OpenArchive
    digest: str
    ids: frozenset[str] | None
    now: datetime
    watch: StepCallback
    other: str = ""

    def change(self, writer: Writer) -> StoreChange:
        """Return the context of the change of the open store."""
        return StoreChange(
            source=self.source, writer=writer, archive=self.archive, now=self.now, watch=self.watch
        )

    def linking_change(self, writer: SupersedingWriter, plan: Plan) -> LinkingChange:
        """Return the context of undoing a plan that superseded, retired or returned memories."""
        return LinkingChange(
            source=self.source,
            writer=writer,
            archive=self.archive,
            now=self.now,
            watch=self.watch,
            plan=plan,
        )

    def check_known(self, ids: Iterable[str | None], action_words: str) -> None:
        """Raise ArchiveError if a requested id is not among the ids of the plan."""
        unknown = sorted(set(self.ids or ()).difference(ids))
        if unknown:
            raise ArchiveError(
                f"plan {self.digest[:12]} {action_words} no memory {some_of(unknown)}; nothing was "
                f"restored: memlab archive {self.archive.location.store} lists what it did"
            )


def _restore_deleted(request: _Request) -> Restored:
    """Insert the memories that a plan deleted into the store again."""
    source = request.source
    archive = request.archive
    watch = request.watch
    inserted = 0
    with source.made_again(), source.changing() as writer:
        change = request.change(writer)
        change.reconcile()
        watch("locked")
        entry = archive.entry(request.digest)
        copies = _chosen(request, entry)
        with archive.one_moment():
            missing = _missing(change, entry, copies)
            watch("checked")
            if missing.known_keys:
                if len(missing.known_keys) == entry.memories:
                    writer.index_before = index_versions_in(archive, entry.digest)
                inserted = writer.insert(missing, watch=watch)
                watch("verified")
        expired = set[Key]()
        if inserted < len(missing.known_keys):
            present = (key for key, _ in writer.records(missing.known_keys))
            expired = set(missing.known_keys).difference(present)
    watch("committed")
    other = request.other or target_of(archive, entry)
    taken = TakenOut()
    if other:
        keys = None if request.ids is None else {copy.key for copy in copies}
        try:
            taken = take_out_copies(source, other, entry.digest, keys=keys, watch=watch)
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
        archive.mark_restored(entry.digest, unmarked, request.now)
    watch("recorded")
    return Restored(
        memories=inserted,
        left_out=len(expired),
        rows_left_out=dict(writer.rows_left_out),
        entries_left=tuple(writer.entries_left),
        other=other,
        taken_out=taken.memories,
        stay_there=taken.stay,
    )


def _undo_mend(request: _Request, entry: Entry, into: str | Path | None) -> Restored:
    """Undo a plan that changed an index."""
    if into is not None or request.ids is not None:
        raise ArchiveError(
            f"plan {entry.digest[:12]} changed the index and no memory; nothing was restored: "
            "restore it without ids and without another file"
        )
    restored = restore_index(
        request.source, request.archive, entry, now=request.now, watch=request.watch
    )
    return Restored(index=restored)


def _undo_links(request: _Request, entry: Entry, into: str | Path | None) -> Restored:
    """Undo a plan that superseded, retired or returned memories."""
    plan = plan_in(request.archive, entry)
    if into is not None:
        raise ArchiveError(
            f"plan {plan.digest[:12]} deleted nothing that a new file could be made of; restore "
            "without one"
        )
    watch = request.watch
    with opened_to_supersede(plan, request.source) as writer:
        watch("locked")
        links = _links_before(request, request.linking_change(writer, plan))
        entries = {
            planned.key: planned.index_entries for planned in plan.entries if planned.key in links
        }
        if len(links) == len(plan.links):
            writer.index_before = index_versions_in(request.archive, plan.digest)
        count = writer.supersede(LinkChange(links, before=entries)) if links else 0
        watch("verified")
    if plan.moves:
        # The store changes first: from then on no memory in it is retired by this plan.
        retired = {key: by for key, by in links.items() if by is not None}
        forget_retired(request.archive, plan.digest, links.keys() - retired, retired)
    watch("committed")
    return Restored(memories=count, entries_left=tuple(writer.entries_left))


def _undo_recovery(request: _Request, entry: Entry) -> Restored:
    """Remove the memories that a recovery had put back; load-bearing ones stay in the store."""
    source = request.source
    archive = request.archive
    watch = request.watch
    keys = [copy.key for copy in _chosen(request, entry)]
    replaced = _replaced(request, entry)
    check_deletable(source)
    with source.changing() as writer:
        watch("locked")
        load_bearing = set[Key]()
        current = dict[Key, bytes]()
        for key, record in writer.records(keys):
            if source.is_load_bearing(source.facts_of(record), if_invalid=True):
                load_bearing.add(key)
            else:
                current[key] = record
        for key in current.keys() & replaced.keys():
            # Such a memory is as it was before the recovery: that is undone already.
            if writer.is_unchanged(current[key], replaced[key]):
                del current[key]
        restored = {
            key: record
            for key, record in archive.records(entry, current)
            if writer.is_as_put_back(current[key], record)
        }
        expected = {key: fingerprint_of(writer.comparable_record(current[key])) for key in restored}
        changed_keys = sorted(current.keys() - expected.keys(), key=str)
        if changed_keys:
            raise ArchiveError(
                f"{counted(len(changed_keys))} written since ({some_of(changed_keys)}); nothing "
                "was changed: take others out by id"
            )
        if expected:
            writer.take_out_again(expected, restored.items())
            watch("deleted")
            earlier_records = [(key, replaced[key]) for key in expected if key in replaced]
            if earlier_records:
                writer.insert(earlier_records)
        watch("verified")
    watch("committed")
    return Restored(memories=len(expected), stay=len(load_bearing))


def _replaced(request: _Request, entry: Entry) -> dict[Key, bytes]:
    """Return by key the records that a recovery replaced: memories that were empty or unlisted."""
    replaced = dict[Key, bytes]()
    if not entry.planned:
        return replaced
    try:
        for key, text in json.loads(request.archive.plan_text(entry)):
            record = text.encode()
            check_size(record)
            request.source.check_copy(key, record, json.loads(record))
            replaced[key] = record
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArchiveError(
            f"what {entry.digest[:12]} replaced cannot be read ({error}); nothing was changed"
        ) from error
    return replaced


def _links_before(request: _Request, change: LinkingChange) -> dict[Key, str | None]:
    """Return by key the links to set so that a plan is undone, for the requested ids.

    A link is the id of the memory that supersedes, or None for a memory that is loaded. Memories
    that have the link already are left out.
    """
    plan = change.plan
    action_words = "retired or returned" if plan.moves else "superseded"
    memories: Iterator[PlannedLink | PlannedMemory] = chain(plan.supersedes, plan.moves)
    keys = {memory.memory_id: memory.key for memory in memories}
    request.check_known(keys, action_words)
    requested = keys
    if request.ids is not None:
        requested = {name: key for name, key in keys.items() if name in request.ids}
    requested_keys = set(requested.values())
    planned = plan.links
    current = change.links(requested.values())
    before = _retired_before(change)
    conflicting = [
        name
        for name, key in requested.items()
        if key not in current or current[key] not in (planned[key], before.get(key))
    ]
    if conflicting:
        raise ArchiveError(
            f"{len(conflicting):,} memories that plan {plan.digest[:12]} {action_words} are gone "
            f"or superseded by others since ({some_of(conflicting)}); nothing was restored: "
            "restore some ids"
        )
    links = {key: before.get(key) for key in requested.values() if current[key] != before.get(key)}
    retired = {memory.key for memory in plan.retires if memory.key in requested_keys}
    loaded = retired - links.keys()
    entries = {entry.key: entry.index_entries for entry in plan.entries if entry.key in loaded}
    for key in change.writer.unlisted(entries):
        links[key] = None
    return links


def _retired_before(change: LinkingChange) -> dict[Key, str]:
    """Return by key the ids of memories that a plan returned and that may be retired again.

    A memory that is load-bearing by now stays loaded and is left out.
    """
    source = change.source
    retired = {memory.key: memory.memory_id for memory in change.plan.returns}
    for key, record in change.writer.records(list(retired)):
        if source.is_load_bearing(source.facts_of(record), if_invalid=True):
            del retired[key]
    return retired


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
            raise _damaged(self._archive)

    def check(self, rest: Iterable[object] | None = None) -> None:
        """Check the records that `rest`, an iterator of :meth:`checked`, has not yielded yet.

        Check all records by default.
        """
        unchecked = self.checked() if rest is None else rest
        deque(unchecked, maxlen=0)


def _damaged(archive: OpenArchive) -> ArchiveError:
    """Return the error to raise if the archive is damaged."""
    return ArchiveError(
        f"{archive.faults_in_words()}; nothing was restored: restore the others by id, or a backup "
        "of the archive"
    )


def _chosen(request: _Request, entry: Entry) -> list[Copy]:
    """Return the requested copies, in the order in which they were made."""
    archive = request.archive
    ids = request.ids
    copies = archive.copies(entry)
    if ids is None:
        if len(copies) != entry.memories:
            raise _damaged(archive)
        return copies
    records = archive.records(entry)
    ids_by_key = {key: request.source.facts_of(record).memory_id for key, record in records}
    request.check_known(ids_by_key.values(), "deleted")
    return [copy for copy in copies if ids_by_key.get(copy.key) in ids]


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


def _restore_into(request: _Request, into: Path) -> int:
    """Create a new store that holds only archived memories; return their number.

    The file appears when it is complete, or not at all.
    """
    archive = request.archive
    making = require(request.source, "store_making")
    side_files = [f"{into}{suffix}" for suffix in SIDE_FILES]
    existing = [path for path in side_files if lexists(path)]
    if existing:
        raise ArchiveError(
            f"{', '.join(existing)} would be taken for a part of {into}; nothing was restored: "
            "move it away, or name another file"
        )
    with archive.one_moment():
        entry = archive.entry(request.digest)
        copies = _chosen(request, entry)
        with whole_file(into, limit=limit_like(archive.path), replace=False) as draft:
            records = _Records(archive, entry, copies)
            records.check()
            count = making.make(draft, records)
    _check_made(into, count)
    return count


def _check_made(into: Path, count: int) -> None:
    """Raise ArchiveError if a new file does not contain `count` memories."""
    query = "SELECT count(*) FROM memory_items"
    ((stored,),) = read_snapshot(into, lambda database: database.execute(query).fetchall())
    if stored != count:
        raise ArchiveError(
            f"{into} was made of {count:,} memories and {stored:,} are in it; the archive has them "
            "still: check the disk"
        )
