"""Putting archived memories back, byte for byte."""

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from os import PathLike
from os.path import lexists
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from memlab.arguments import expect, texts
from memlab.clock import moment_or_now
from memlab.compaction import applier
from memlab.compaction.plans import Plan, PlannedLink, PlannedMemory, Receipt
from memlab.compaction.wire import entries_left_in_words, some_of
from memlab.errors import ArchiveError
from memlab.files import limit_like, whole_file
from memlab.sources.archived import open_to_restore
from memlab.sources.base import (
    Key,
    KeyedRecords,
    Source,
    StepCallback,
    Writer,
    archive_at,
    no_progress,
)
from memlab.sources.opening import SourceLike
from memlab.store.archive.archive import Archive
from memlab.store.archive.entries import Copy, Entry, check_size
from memlab.store.archive.facts import forget_retired
from memlab.store.archive.opening import check_archive_of, open_archive
from memlab.store.database import SIDE_FILES
from memlab.store.records import fingerprint_of
from memlab.store.snapshot import read_snapshot
from memlab.text import command, counted


class Restored(int):
    """How many memories were put back; it knows what it leaves out or does not take out again."""

    left_out: int = 0
    rows_left_out: Mapping[str, int] = MappingProxyType({})
    stay: int | None = None
    entries_left: Sequence[Key] = ()

    @property
    def index_note(self) -> str:
        """What was not put into an index, and why; empty where all was."""
        return entries_left_in_words(self.entries_left)


def restore(
    receipt: Receipt | str,
    *,
    store: SourceLike | None = None,
    ids: Collection[str] | None = None,
    into: str | Path | None = None,
    now: datetime | None = None,
    watch: StepCallback = no_progress,
) -> "Restored":
    """Put archived memories back: the same bytes, at the same place.

    What a plan superseded or retired is loaded again then, and what it returned is retired again;
    these were never away. Memories that are in the store as they were archived are left alone, so
    restoring twice restores 0. What the store kept beside a memory comes back with it. Where
    an error is raised nothing was changed, or it says what was and what to do.

    Parameters
    ----------
    receipt : Receipt or str
        What :func:`apply` returned, or a plan's digest or the beginning of one.
    store : str, Path or Source, optional
        The store, where `receipt` is a digest or the store has moved.
    ids : collection of str, optional
        Restore only these.
    into : str or Path, optional
        A new file to put the memories into, beside nothing else, instead of the store.
    now : datetime, optional
        The moment written into the archive; the current one by default.
    watch : callable, optional
        Called with the name of each step that is done, as :func:`apply` does: "locked", "checked",
        "inserted", "verified", "committed", "recorded".

    Returns
    -------
    Restored
        How many memories were put back, an ``int``; its ``left_out`` says how many were not,
        because their own time to live has passed since, its ``rows_left_out`` how many rows of
        other tables, its ``entries_left`` of which memories an index had an entry already, which
        was left as it is. Of what :func:`memlab.compaction.recover` had put back, how many were
        taken out again; its ``stay`` says how many were not, because they are load-bearing.
        Of a receipt of a plan that changed nothing, 0.

    Raises
    ------
    ArchiveError
        When there is no such plan in the archive, an id is not among its memories, a place or an id
        has been taken since, or what was superseded or retired is gone or superseded by another.
    CompactionError
        When more than what the plan superseded or retired would change.
    UnsafeDeletionError
        When changing such a store is not safe.
    """
    expect(receipt, Receipt, str, call="memlab.restore", name="receipt")
    expect(into, str, PathLike, call="memlab.restore", name="into", optional=True)
    wanted = None if ids is None else frozenset(texts(ids, call="memlab.restore", name="ids"))
    moment = moment_or_now(now, call="memlab.restore")
    if isinstance(receipt, Receipt):
        changed = receipt.deleted + receipt.superseded + receipt.retired + receipt.returned
        if receipt.archive is None and not changed and wanted is None and into is None:
            return Restored(0)
        store = receipt.store if store is None else store
        receipt = receipt.digest
    if store is None:
        raise ValueError(f"store must be given with a digest such as {receipt!r}")
    source = open_to_restore(store, receipt)
    if into is None:
        check_archive_of(archive_at(source))
    with open_archive(archive_at(source)) as archive:
        asked = _Asked(source, archive, receipt, wanted)
        entry = archive.entry(receipt)
        if not entry.memories:
            return _take_back(asked, into, watch)
        if entry.recovers and into is None:
            return _take_out(asked, entry, watch)
        if into is not None:
            return Restored(_restore_into(asked, Path(into)))
        return _put_back(asked, moment, watch)


class _Asked(NamedTuple):
    """What is to be put back: of which deletion of which archive, and which ids where not all."""

    source: Source
    archive: Archive
    digest: str
    ids: frozenset[str] | None

    def check_known(self, ids: Iterable[str | None], does: str) -> None:
        """Refuse ids that are not among those of the deletion."""
        if unknown := sorted(set(self.ids or ()).difference(ids)):
            raise ArchiveError(
                f"plan {self.digest[:12]} {does} no memory {some_of(unknown)}; nothing was "
                f"restored: memlab archive {self.archive.location.store} lists what it did"
            )


def _put_back(asked: _Asked, now: datetime, watch: StepCallback) -> Restored:
    source = asked.source
    archive = asked.archive
    back = 0
    with source.changing() as writer:
        applier.settle(archive, writer, source, now)
        watch("locked")
        entry = archive.entry(asked.digest)
        copies = _chosen(asked, entry)
        with archive.one_moment():
            missing = _missing(writer, source, archive, entry, copies)
            watch("checked")
            if missing.keys:
                back = writer.insert(missing, watch=watch)
                watch("verified")
        left_out = set[Key]()  # their time has passed
        if back < len(missing.keys):
            there = (key for key, _ in writer.records(missing.keys))
            left_out = set(missing.keys).difference(there)
    watch("committed")
    # Of a plan that was cut short others may never have gone.
    gone = missing.keys if entry.finished_at is None else [copy.key for copy in copies]
    marked = set(gone) - left_out
    unmarked = [copy.key for copy in copies if copy.restored_at is None and copy.key in marked]
    with applier.explain_unrecorded(f"{back:,} memories were restored into {source.name}"):
        archive.mark_restored(entry.digest, unmarked, now)
    watch("recorded")
    restored = Restored(back)
    restored.left_out = len(left_out)
    restored.rows_left_out = dict(writer.rows_left_out)
    restored.entries_left = tuple(writer.entries_left)
    return restored


def _take_back(asked: _Asked, into: str | Path | None, watch: StepCallback) -> Restored:
    plan = applier.plan_in(asked.archive, asked.archive.entry(asked.digest))
    if into is not None:
        raise ArchiveError(
            f"plan {plan.digest[:12]} deleted nothing that a new file could be made of; restore "
            "without one"
        )
    with applier.opened_for(plan, asked.source) as writer:
        watch("locked")
        back = _links_back(writer, asked, plan)
        kept = {each.key: each.said for each in plan.entries if each.key in back}
        count = writer.supersede(back, kept) if back else 0
        watch("verified")
    if plan.moves:  # after the store, for what it has at its memory is retired by no plan then
        retired = {key: by for key, by in back.items() if by is not None}
        forget_retired(asked.archive, plan.digest, back.keys() - retired, retired)
    watch("committed")
    restored = Restored(count)
    restored.entries_left = tuple(writer.entries_left)
    return restored


def _take_out(asked: _Asked, entry: Entry, watch: StepCallback) -> Restored:
    """Take out again what somebody else had deleted and memlab put back; load-bearing ones stay."""
    source = asked.source
    archive = asked.archive
    keys = [copy.key for copy in _chosen(asked, entry)]
    before = _replaced(asked, entry)
    with source.changing() as writer:
        watch("locked")
        found = dict(writer.records(keys))
        facts = {key: source.facts_of(record) for key, record in found.items()}
        stay = {key for key, each in facts.items() if source.is_load_bearing(each, unsure=True)}
        there = {key: record for key, record in found.items() if key not in stay}
        for key in there.keys() & before.keys():
            if writer.is_unchanged(there[key], before[key]):  # it is taken out already
                del there[key]
        put_back = {
            key: record
            for key, record in archive.records(entry, there)
            if writer.is_as_put_back(there[key], record)
        }
        expected = {key: fingerprint_of(writer.comparable_record(there[key])) for key in put_back}
        if written := sorted(there.keys() - expected.keys(), key=str):
            raise ArchiveError(
                f"{counted(len(written))} written since ({some_of(written)}); nothing was changed: "
                "take others out by id"
            )
        if expected:
            writer.take_out_again(expected, put_back.items())
            watch("deleted")
            if back := [(key, before[key]) for key in expected if key in before]:
                writer.insert(back)
        watch("verified")
    watch("committed")
    restored = Restored(len(expected))
    restored.stay = len(stay)
    return restored


def _replaced(asked: _Asked, entry: Entry) -> dict[Key, bytes]:
    """Return the records of what had no words and was replaced by a recovery."""
    found = dict[Key, bytes]()
    if not entry.planned:
        return found
    try:
        for key, text in json.loads(asked.archive.plan_text(entry)):
            record = text.encode()
            check_size(record)
            asked.source.check_copy(key, record, json.loads(record))
            found[key] = record
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArchiveError(
            f"what {entry.digest[:12]} replaced cannot be read ({error}); nothing was changed"
        ) from error
    return found


def _links_back(writer: Writer, asked: _Asked, plan: Plan) -> dict[Key, str | None]:
    """Return what stood before for the memories of a plan, or for those with these ids."""
    does = "retired or returned" if plan.moves else "superseded"
    named: Iterator[PlannedLink | PlannedMemory] = chain(plan.supersedes, plan.moves)
    names = {each.memory_id: each.key for each in named}
    asked.check_known(names, does)
    wanted = {name: key for name, key in names.items() if asked.ids is None or name in asked.ids}
    links = plan.links
    found = applier.links_now(writer, asked.source, wanted.values())
    before = {each.key: each.memory_id for each in plan.returns}
    for key, record in writer.records(list(before)):
        if asked.source.is_load_bearing(asked.source.facts_of(record), unsure=True):
            del before[key]  # it is by now, and stays loaded
    others = [
        name
        for name, key in wanted.items()
        if key not in found or found[key] not in (links[key], before.get(key))
    ]
    if others:
        raise ArchiveError(
            f"{len(others):,} memories that plan {plan.digest[:12]} {does} are gone or superseded "
            f"by others since ({some_of(others)}); nothing was restored: restore some ids"
        )
    back = {key: before.get(key) for key in wanted.values() if found[key] != before.get(key)}
    retired = {memory.key for memory in plan.retires if memory.key in wanted.values()}
    kept = {each.key: each.said for each in plan.entries if each.key in retired - back.keys()}
    return back | dict.fromkeys(writer.unlisted(kept))


class _Records(KeyedRecords):
    """The records of some copies, read from the archive each time they are gone through."""

    def __init__(self, archive: Archive, entry: Entry, copies: list[Copy]) -> None:
        self.keys = [copy.key for copy in copies]
        self._archive = archive
        self._entry = entry

    def __iter__(self) -> Iterator[tuple[Key, bytes]]:
        return self._archive.records(self._entry, self.keys, seen=True)

    def checked(self) -> Iterator[tuple[Key, bytes]]:
        """Yield the records as they are found sound; ArchiveError at the end where one is not."""
        count = 0
        for found in self._archive.records(self._entry, self.keys):
            yield found
            count += 1
        if count != len(self.keys):
            raise _damaged(self._archive)

    def check(self, rest: Iterable[object] | None = None) -> None:
        """Check what is left of :meth:`checked`, by default all of it."""
        deque(self.checked() if rest is None else rest, maxlen=0)


def _damaged(archive: Archive) -> ArchiveError:
    return ArchiveError(
        f"{archive.told()}; nothing was restored: restore the others by id, or a backup of the "
        "archive"
    )


def _chosen(asked: _Asked, entry: Entry) -> list[Copy]:
    """Return the copies to put back, in the order in which they were made."""
    archive = asked.archive
    ids = asked.ids
    copies = archive.copies(entry)
    if ids is None:
        if len(copies) != entry.memories:
            raise _damaged(archive)
        return copies
    records = archive.records(entry)
    named = {key: asked.source.facts_of(record).memory_id for key, record in records}
    asked.check_known(named.values(), "deleted")
    return [copy for copy in copies if named.get(copy.key) in ids]


def _missing(
    writer: Writer, source: Source, archive: Archive, entry: Entry, copies: list[Copy]
) -> _Records:
    """Return what is not in the store, after checking that there is room for it."""
    state = archive.state_of(writer.records, entry, copies)
    changed = {copy.key for copy in copies if copy.key in state.changed and not copy.restored_at}
    there = dict(writer.records(state.changed))
    fileless = set[Key]()
    for key, record in archive.records(entry, there):
        if writer.is_back(there[key], record):  # what an index says of it was edited
            changed.discard(key)
        elif writer.lacks_file(there[key], record):
            changed.discard(key)
            fileless.add(key)
    taken = [
        f"position {copy.key}" if isinstance(copy.key, int) else f"key {copy.key}"
        for copy in copies
        if copy.key in state.taken or copy.key in changed
    ]
    absent = state.absent | fileless
    missing = _Records(archive, entry, [copy for copy in copies if copy.key in absent])
    checked = missing.checked()
    taken += writer.conflicts(checked)
    missing.check(checked)
    if taken:
        raise ArchiveError(
            f"{counted(len(taken), 'places')} of plan {entry.digest[:12]} taken since "
            f"({some_of(taken)}); nothing was restored: restore the other "
            f"{max(len(copies) - len(taken), 0):,} by id, or {_all_elsewhere(source)}"
        )
    return missing


def _all_elsewhere(source: Source) -> str:
    """Return how to have all of a deletion beside a store, whose places are taken."""
    if source.is_native_format:
        return "all into a new file"
    return f"write all to a file: {command('archive', source.name, '--export', 'memories.jsonl')}"


def _restore_into(asked: _Asked, into: Path) -> int:
    """Make a new store of archived memories alone; it appears whole or not at all."""
    archive = asked.archive
    if beside := [name for name in map(f"{into}{{}}".format, SIDE_FILES) if lexists(name)]:
        raise ArchiveError(
            f"{', '.join(beside)} would be taken for a part of {into}; nothing was restored: move "
            "it away, or name another file"
        )
    with archive.one_moment():
        entry = archive.entry(asked.digest)
        copies = _chosen(asked, entry)
        with whole_file(into, limit=limit_like(archive.path), replace=False) as draft:
            records = _Records(archive, entry, copies)
            records.check()
            count = asked.source.make(draft, records)
    _check_made(into, count)
    return count


def _check_made(into: Path, count: int) -> None:
    """Open a file that was made under its final name, and count what is in it."""
    all_of_it = "SELECT count(*) FROM memory_items"
    ((found,),) = read_snapshot(into, lambda made: made.execute(all_of_it).fetchall())
    if found != count:
        raise ArchiveError(
            f"{into} was made of {count:,} memories and {found:,} are in it; the archive has them "
            "still: check the disk"
        )
