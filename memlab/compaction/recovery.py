"""Copies of what is in a store; what comes back is first an entry of the archive, to be undone."""

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
from memlab.compaction.applier import settle
from memlab.compaction.wire import entries_left_in_words, minute, some_of
from memlab.errors import ArchiveError, StalePlanError, StoreError
from memlab.evidence.losses import contents_of, losses_of
from memlab.sources.archived import open_to_restore
from memlab.sources.base import (
    Key,
    Loss,
    Source,
    StepCallback,
    archive_at,
    no_progress,
    read_consistent,
)
from memlab.sources.opening import SourceLike, open_source
from memlab.store.archive.copies import Counts, copy_contents, keeps_copies
from memlab.store.archive.entries import RECOVERS, Apply, Archived, PlanText
from memlab.store.archive.opening import archived_change, check_archive_of, open_archive
from memlab.store.records import fingerprint_of
from memlab.store.snapshot import retry_if_changed
from memlab.text import Cell, DisplayMixin, Table, TextPage, command, counted

_LISTED: Final = 20
_REASON: Final = "deleted by somebody else"


@dataclass(frozen=True, repr=False)
class Copies(DisplayMixin):
    """What :func:`keep_copies` has copied.

    `counts` says how many memories there are, how many were new or changed, and how many copies
    are not as the store is any more.
    """

    store: str
    archive: str
    at: datetime
    counts: Counts

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        said = {"store": self.store, "archive": self.archive, "at": self.at.isoformat()}
        return said | self.counts._asdict()

    def sheet(self) -> TextPage:
        """Return what is printed."""
        memories, copied, gone = self.counts
        facts = [
            ("copied", f"{counted(copied)}, new or changed, of {memories:,} in the store"),
            ("of before", f"{counted(gone, 'copies')} of what was changed or has gone since"),
            ("archive", self.archive),
        ]
        return TextPage(f"copies of {self.store}, {minute(self.at)}", facts)


@dataclass(frozen=True, repr=False)
class Recovery(DisplayMixin):
    """What comes back, or came back, of what somebody else deleted or emptied.

    `frame` has the rows of :func:`memlab.lost`, `kept` by id what is kept of each, `entries_left`
    those of which an index had an entry already, which was left as it is.
    """

    store: str
    frame: pd.DataFrame
    kept: Mapping[str, Loss] = field(default_factory=dict)
    applied: bool = False
    entries_left: Sequence[Key] = ()

    @property
    def digest(self) -> str:
        """Its name in the archive."""
        named = sha256()
        for key, record in self.records:
            named.update(f"{json.dumps(key)} {fingerprint_of(record)}\n".encode())
        return named.hexdigest()

    @property
    def records(self) -> list[tuple[Key, bytes]]:
        """The records of what comes back, by key."""
        return [(loss.key, loss.record) for loss in self.kept.values()]

    @property
    def undo(self) -> str:
        """The command that takes it back."""
        return command("restore", self.store, self.digest[:12])

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        said = {"store": self.store, "applied": self.applied, "memories": [*self.kept]}
        if self.applied and self.kept:
            said |= {"undo": self.undo, "entries_left": list(self.entries_left)}
        return said

    def next_steps(self) -> list[str]:
        """Say how it is done."""
        if self.applied:
            return []
        return ["nothing was changed; add --apply to do it" if self.kept else "nothing is lost"]

    def sheet(self) -> TextPage:
        """Return what is printed."""
        count = counted(len(self.kept))
        title = f"{count} restored into {self.store}" if self.applied else f"restore {count}"
        facts = [("undo", self.undo)] if self.applied and self.kept else []
        if self.entries_left:
            facts.append(("index", entries_left_in_words(self.entries_left)))
        columns = [c.TOKENS, c.MEMORY_ID, c.TITLE]
        rows: list[tuple[Cell, ...]] = [*self.frame[columns].itertuples(index=False)]
        return TextPage(title, facts, [Table("", ("tokens", "id", "title"), rows).first(_LISTED)])


def keep_copies(
    store: SourceLike, *, now: datetime | None = None, watch: StepCallback = no_progress
) -> Copies:
    """Copy what is new or changed in a store into its archive, so that losses can be seen.

    A content is kept once, packed. What somebody else deletes or empties from now on is listed by
    :func:`memlab.lost` and brought back by :func:`recover`. The store is only read. Dropping a
    memory from the archive erases its copies too.

    Parameters
    ----------
    store : str, Path or Source
        A folder of memories, or a file with ``memory_items``.
    now : datetime, optional
        The moment written into the archive; the current one by default.
    watch : callable, optional
        Called with the name of each step that is done: "begun", "copied", "committed".
    """
    source = open_source(store)
    moment = moment_or_now(now, call="memlab.compaction.keep_copies")
    if not source.is_copied:
        raise StoreError(
            f"copies are kept of folders and of memory_items alone, not of {source.name}; back it "
            "up with the tools of its system"
        )
    location = archive_at(source)
    check_archive_of(location)
    if not keeps_copies(location):
        with (
            archived_change(location, source.changing()) as both,  # made under the store's lock
            both.archive.changing(),
        ):
            both.archive.format.make_table("copies")
        watch("begun")

    def copy() -> Counts:
        with open_archive(location) as archive, archive.changing(), source.reading() as reader:
            counts = copy_contents(archive, contents_of(source, reader), moment)
            watch("copied")
        return counts

    counts = retry_if_changed(copy)
    watch("committed")
    return Copies(source.name, str(location.path), moment, counts)


def plan_recovery(
    store: SourceLike, ids: Collection[str] | None = None, *, now: datetime | None = None
) -> Recovery:
    """Say what :func:`recover` would put back, of the same arguments. Reads only."""
    source = open_to_restore(store)
    source.read_missing_as_empty()
    found = losses_of(store, now=now)
    wanted = set(found.kept) if ids is None else set(texts(ids, call="recover", name="ids"))
    if unknown := sorted(wanted - found.kept.keys()):
        raise ArchiveError(
            f"{some_of(unknown)} is not lost; nothing was changed: {command('lost', source.name)} "
            f"lists what is, {command('archive', source.name, '--rows')} what memlab deleted"
        )
    kept = {name: loss for name, loss in found.kept.items() if name in wanted}
    places = Counter(loss.key for loss in kept.values())
    others = [loss.key for loss in kept.values() if not _is_there(loss)]
    there = read_consistent(source, lambda reader: [key for key, _ in reader.records(others)])
    _check_free(source, there + [key for key, count in places.items() if count > 1])
    chosen = found.frame[c.MEMORY_ID].isin(wanted)
    return Recovery(source.name, found.frame[chosen].reset_index(drop=True), kept)


def recover(
    store: SourceLike,
    ids: Collection[str] | None = None,
    *,
    now: datetime | None = None,
    watch: StepCallback = no_progress,
) -> Recovery:
    """Put back what somebody else deleted or emptied: the same bytes, with its line of an index.

    The archive gets what comes back first: ``memlab restore STORE DIGEST``, or
    :func:`memlab.restore` of its ``digest``, takes it out again.

    Parameters
    ----------
    store : str, Path or Source
        The store.
    ids : collection of str, optional
        Only these; by default all that is lost.
    now, watch
        As for :func:`keep_copies`; the steps are "locked", "archived", "inserted", "committed".

    Raises
    ------
    ArchiveError
        When an id is not lost, or something else stands in its place. Nothing is changed.
    UnsafeDeletionError
        When changing such a store is not safe.
    """
    source = open_to_restore(store)
    source.read_missing_as_empty()
    moment = moment_or_now(now, call="memlab.compaction.recover")
    found = plan_recovery(store, ids, now=moment)
    if not found.kept:
        return Recovery(source.name, found.frame, applied=True)
    location = archive_at(source)
    check_archive_of(location)
    with source.made_again(), archived_change(location, source.changing()) as both:
        writer = both.writer
        archive = both.archive
        archive.check_entries()
        settle(archive, writer, source, moment)
        watch("locked")
        there = {loss.key: loss for loss in found.kept.values() if _is_there(loss)}
        replaced = dict(writer.records(there))
        if not all(
            key in replaced and _is_as_seen(there[key], replaced[key], source) for key in there
        ):
            raise StalePlanError(
                "what was empty or not listed was written or deleted meanwhile; nothing was "
                "changed: try again"
            )
        said = json.dumps(
            [[key, archive.as_kept(record).decode()] for key, record in replaced.items()]
        )
        text = PlanText(lambda: [said]) if replaced else None
        named = Apply(found.digest, RECOVERS, moment, len(found.kept), text)
        records = writer.as_put_back(found.records)
        entries_left = tuple(writer.entries_left)
        copies = (Archived(key, record, _REASON) for key, record in records)
        with archive.deleting(named, copies, at=moment):
            archive.mark_applied(found.digest, moment)
            watch("archived")
            new = [each for each in records if each[0] not in replaced]
            taken: list[object] = [key for key, _ in writer.records([key for key, _ in new])]
            _check_free(source, taken + writer.conflicts(new))
            if replaced:
                prints = {
                    k: fingerprint_of(writer.comparable_record(r)) for k, r in replaced.items()
                }
                writer.replace(prints, [each for each in records if each[0] in replaced])
            if new:
                writer.insert(new)
            watch("inserted")
    watch("committed")
    return replace(found, applied=True, entries_left=entries_left)


def _is_there(loss: Loss) -> bool:
    """Whether a lost memory is there without words, or without a line of the index."""
    return loss.is_emptied or loss.is_unlisted


def _is_as_seen(loss: Loss, record: bytes, source: Source) -> bool:
    """Whether a memory is still lost as it was, so that it may be replaced."""
    if loss.is_emptied:
        return source.is_empty(record)
    return source.is_unlisted(record) and source.content_for_digest(
        record
    ) == source.content_for_digest(loss.record)


def _check_free(source: Source, taken: Sequence[object]) -> None:
    if taken:
        raise ArchiveError(
            f"{counted(len(taken), 'places')} in {source.name} taken since ({some_of(taken)}); "
            "nothing was restored: restore the others by id"
        )
