"""Carrying out a plan: archive what it deletes, delete it, verify, so that it can be taken back.

What is deleted was decided by :func:`memlab.plan`; :func:`memlab.restore` puts it back.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction import superseding
from memlab.compaction.checking import check_against_store, check_readable
from memlab.compaction.locating import Located, beside, locate
from memlab.compaction.plans import Plan
from memlab.compaction.receipts import Receipt
from memlab.compaction.words import counted
from memlab.errors import (
    AlreadyAppliedError,
    ArchiveError,
    CompactionError,
    MemlabError,
)
from memlab.sources.abilities import Identified
from memlab.sources.base import Key, Reader, Source, Watch, Writer, archive_at, unwatched
from memlab.sources.opening import SourceLike, open_source
from memlab.store.archive import Archive
from memlab.store.archive_entries import Apply, Archived, Entry, Witness, packed
from memlab.store.archive_file import create_archive, is_begun, open_archive
from memlab.store.identity import check_archive_of


class ApplyStep(StrEnum):
    """What :func:`apply` has just done."""

    LOCKED = "locked"
    """No other process can write to the store."""
    CHECKED = "checked"
    """Every memory is as the plan saw it."""
    COPIED = "copied"
    """The copies are written and compared, not yet committed."""
    ARCHIVED = "archived"
    """The copies are on the disk."""
    DELETED = "deleted"
    """The memories are gone, not yet committed."""
    VERIFIED = "verified"
    """Exactly they are gone, and every load-bearing memory is there."""
    COMMITTED = "committed"
    """The deletion is on the disk."""
    RECORDED = "recorded"
    """The archive says so."""


def apply(
    plan: Plan,
    *,
    store: SourceLike | None = None,
    now: datetime | None = None,
    watch: Watch = unwatched,
) -> Receipt:
    """Carry out a plan: archive what it deletes, delete it, verify.

    A plan that supersedes deletes nothing: the archive keeps the plan, which says how to take it
    back. The copies are committed and synced before the deletion commits, so that being stopped at
    any moment leaves a memory too many, never one too few. Applying the same plan again then
    finishes it.

    Parameters
    ----------
    plan : Plan
        What to do.
    store : str, Path or Source, optional
        Another store than the one that the plan was made from, with the same memories.
    now : datetime, optional
        The moment written into the archive; the current one by default.
    watch : callable, optional
        Called with each :class:`ApplyStep` that there is, when it is done: a plan that supersedes
        deletes nothing.

    Returns
    -------
    Receipt
        What was done and how to take it back.

    Raises
    ------
    StalePlanError
        When a memory that the plan decided on has changed or gone. Nothing is deleted.
    AlreadyAppliedError
        When the plan was applied before.
    CompactionError
        When the plan deletes a load-bearing memory or calls one by what it is not, or others than
        the plan's would have been touched. Nothing is deleted.
    PlanError
        When memlab 0.1.0 wrote the plan, it both deletes and supersedes, names a memory twice or
        has groups that do not add up to its memories, or it supersedes and the store knows of no
        memories that stand for others. Nothing is deleted.
    ArchiveError
        When the memories cannot be archived. Nothing is deleted.
    UnsafeDeletionError
        When deleting from such a store is not safe; it says what to do instead.
    StoreError
        When the store cannot be written.
    """
    expect(plan, Plan, call="memlab.apply", name="plan")
    check_readable(plan)
    source = open_source(plan.store if store is None else store)
    moment = moment_or_now(now, call="memlab.apply")
    if plan.is_empty:
        with source.changing() as writer:
            finished = _noted_now(writer, source, moment)
        return replace(receipt_of(plan, source, moment, archived=False), finished=finished)
    check_archive_of(archive_at(source))
    if plan.supersedes:
        finished = _supersede(source, plan, moment, watch)
    else:
        with source.changing() as writer:
            watch(ApplyStep.LOCKED)
            finished = _archive_and_delete(writer, source, plan, moment, watch)
    watch(ApplyStep.COMMITTED)
    with (
        said_to_be_done(f"{_done_to(plan)} in {source.name}"),
        open_archive(archive_at(source)) as archive,
    ):
        archive.finish(plan.digest, moment)
    watch(ApplyStep.RECORDED)
    return replace(receipt_of(plan, source, moment, archived=True), finished=finished)


def finish(
    store: SourceLike, digest: str, *, now: datetime | None = None, watch: Watch = unwatched
) -> Receipt:
    """Apply a plan that was cut short, as it stands in the archive.

    Parameters
    ----------
    store : str, Path or Source
        The store.
    digest : str
        The plan's, or its beginning.
    now, watch
        As for :func:`apply`, which says what is raised.
    """
    source = open_source(store)
    check_archive_of(archive_at(source))
    with open_archive(archive_at(source)) as archive:
        found = plan_in(archive, archive.entry(digest))
    return apply(found, store=source, now=now, watch=watch)


def plan_in(archive: Archive, entry: Entry) -> Plan:
    """Return the plan that an entry of an archive carried out."""
    return Plan.from_json(archive.plan_text(entry))


def record_finished(
    reader: Reader, source: Source, archive: Archive, now: datetime
) -> tuple[str, ...]:
    """Record plans as done whose memories are gone: only the record was cut short.

    Whoever holds the store's write lock knows that no apply is under way. Returns their digests.
    """
    finished = []
    for entry in archive.entries():
        if entry.finished_at is None and is_carried_out(reader, source, archive, entry):
            archive.finish(entry.digest, now)
            finished.append(entry.digest)
    return tuple(finished)


def _noted_now(writer: Writer, source: Source, now: datetime) -> tuple[str, ...]:
    """Record what earlier plans did and could not note, where this one has nothing to do."""
    place = archive_at(source)
    if not is_begun(place):
        return ()
    with open_archive(place) as archive:
        return record_finished(writer, source, archive, now)


def is_carried_out(reader: Reader, source: Source, archive: Archive, entry: Entry) -> bool:
    """Whether what an entry stands for was done, noted or not."""
    if entry.memories:
        return _located(reader, source, archive, entry).gone
    return superseding.is_carried_out(reader, source, plan_in(archive, entry))


@contextmanager
def said_to_be_done(done: str) -> Iterator[None]:
    """Say what is done where only the archive's note of it fails."""
    try:
        yield
    except ArchiveError as error:
        raise ArchiveError(
            f"{done}; only the archive could not note it ({error.__cause__ or error}): run the "
            "same command again, it notes it"
        ) from error


def receipt_of(plan: Plan, source: Source, now: datetime, *, archived: bool) -> Receipt:
    """Return the receipt of a plan that was carried out on a store."""
    return Receipt(
        digest=plan.digest,
        store=source.name,
        archive=str(source.archive) if archived else None,
        policy=plan.policy,
        made_at=plan.made_at,
        applied_at=now,
        deleted=len(plan.memories),
        boot_before=plan.boot_before,
        boot_after=plan.boot_after,
        token_rule=plan.token_rule,
        superseded=len(plan.supersedes),
    )


def _done_to(plan: Plan) -> str:
    done = "superseded" if plan.supersedes else "deleted and archived"
    count = len(plan.supersedes or plan.memories)
    return f"{counted(count)} {'is' if count == 1 else 'are'} {done}"


def _archive_and_delete(
    writer: Writer, source: Source, plan: Plan, now: datetime, watch: Watch
) -> tuple[str, ...]:
    """Do all of :func:`apply` that happens under the store's write lock.

    Returns the digests of plans that were noted as done now.
    """
    place = archive_at(source)
    finished: tuple[str, ...] = ()
    if is_begun(place):
        with create_archive(place) as archive:
            if _went_on(writer, source, archive, plan, watch):
                return ()
            finished = record_finished(writer, source, archive, now)
            _forget_needless(writer, source, archive, plan)
    check_against_store(writer, source, plan)
    watch(ApplyStep.CHECKED)
    with create_archive(place) as archive:
        text = packed(plan.json_pieces())
        named = Apply(plan.digest, plan.policy, plan.made_at, len(plan.memories), text)
        staying = _witnesses(writer, plan)
        with archive.copying(named, _copies(writer, plan), at=now, staying=staying):
            watch(ApplyStep.COPIED)
        watch(ApplyStep.ARCHIVED)
        try:
            _delete(writer, {m.key: m.fingerprint for m in plan.memories}, watch)
        except BaseException:
            # Nothing is deleted, so each copy is one too many; where this fails, doctor says so.
            if source.atomic:
                with suppress(MemlabError):
                    archive.forget(plan.digest)
            raise
    return finished


def _supersede(source: Source, plan: Plan, now: datetime, watch: Watch) -> tuple[str, ...]:
    """Do all of :func:`apply` that happens under the store's write lock, where nothing goes."""
    with superseding.opened_for_links(source) as writer:
        watch(ApplyStep.LOCKED)
        place = archive_at(source)
        if not is_begun(place):  # what is refused leaves nothing behind
            superseding.check_fresh(writer, source, plan)
        with create_archive(place) as archive:
            if _went_on(writer, source, archive, plan, watch):
                return ()
            finished = record_finished(writer, source, archive, now)
            named = Apply(plan.digest, plan.policy, plan.made_at, 0, packed(plan.json_pieces()))
            with archive.copying(named, (), at=now, staying=_witnesses(writer, plan)):
                watch(ApplyStep.COPIED)
            watch(ApplyStep.ARCHIVED)
            try:
                superseding.supersede(writer, source, plan)
                watch(ApplyStep.VERIFIED)
            except BaseException:
                with suppress(MemlabError):
                    archive.forget(plan.digest)
                raise
    return finished


def _witnesses(writer: Writer, plan: Plan) -> list[Witness] | None:
    """Return memories that stay, by which the store is known again, where it can tell them."""
    if not isinstance(writer, Identified):
        return None
    return writer.witnesses(memory.key for memory in plan.memories)


def _copies(reader: Reader, plan: Plan) -> Iterator[Archived]:
    records = reader.records(memory.key for memory in plan.memories)
    for memory, record in beside(plan.memories, records):
        if record is not None:
            yield Archived(memory.key, memory.fingerprint, record, memory.reason)


def _delete(writer: Writer, expected: dict[Key, str], watch: Watch) -> None:
    deleted = writer.delete(expected, watch=lambda _: watch(ApplyStep.DELETED))
    if deleted != len(expected):
        raise CompactionError(
            f"{len(expected):,} memories were to be deleted and the store says {deleted:,}; look "
            "at it with memlab doctor"
        )
    watch(ApplyStep.VERIFIED)


def _went_on(writer: Writer, source: Source, archive: Archive, plan: Plan, watch: Watch) -> bool:
    """Finish a plan that was stopped after its deletion began; whether it was.

    Raises
    ------
    AlreadyAppliedError
        When the plan was applied to its end.
    """
    entry = next((entry for entry in archive.entries() if entry.digest == plan.digest), None)
    if entry is None:
        return False
    if entry.finished_at is not None:
        restored = f", {entry.restored:,} of them restored since" if entry.restored else ""
        raise AlreadyAppliedError(
            f"plan {plan.digest[:12]} was applied on {entry.finished_at:%Y-%m-%d %H:%M} UTC: "
            f"{_done_to(plan)} in {archive.path}{restored}; make a new plan"
        )
    if plan.supersedes:
        return superseding.is_carried_out(writer, source, plan)
    located = _located(writer, source, archive, entry)
    if located.gone:
        return True
    if source.atomic or not located.absent or located.changed:
        return False
    # Some of them went: only a source without transactions stops half way, and the rest follows.
    prints = {copy.key: copy.fingerprint for copy in archive.copies(entry)}
    _delete(writer, {key: prints[key] for key in prints if key in located.same}, watch)
    return True


def _located(reader: Reader, source: Source, archive: Archive, entry: Entry) -> Located:
    return locate(reader, source, archive, entry, archive.copies(entry))


def _forget_needless(writer: Writer, source: Source, archive: Archive, plan: Plan) -> None:
    """Drop the copies of other plans that were cut short before any of their memories went."""
    for entry in archive.entries():
        if entry.finished_at is not None or entry.digest == plan.digest:
            continue
        if len(_located(writer, source, archive, entry).same) == entry.left:
            archive.forget(entry.digest)
