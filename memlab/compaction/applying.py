"""Carrying out a plan: archive what goes, delete it, verify, so that it can be taken back.

What goes was decided by :func:`memlab.plan`; :func:`memlab.restore` puts it back.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.plans import KeptRow, Plan, PlannedRow, Receipt
from memlab.errors import (
    AlreadyAppliedError,
    CompactionError,
    MemlabError,
    StalePlanError,
)
from memlab.store.archive import Archive, Copy, archive_path, create_archive, open_archive, pack
from memlab.store.database import (
    check_table,
    connect,
    exact,
    roomy_cache,
    sqlite_errors_in_words,
    store_file,
    transaction,
)
from memlab.store.rows import (
    fill_positions,
    fingerprints,
    signal_columns,
    signal_fingerprints,
)
from memlab.store.selection import classify_rows, delete_rows


class ApplyStep(StrEnum):
    """What :func:`apply` has just done."""

    LOCKED = "locked"
    """No other process can write to the store."""
    CHECKED = "checked"
    """Every row is as the plan saw it."""
    COPIED = "copied"
    """The copies are written and compared, not yet committed."""
    ARCHIVED = "archived"
    """The copies are on the disk."""
    DELETED = "deleted"
    """The rows are gone, not yet committed."""
    VERIFIED = "verified"
    """Exactly they are gone, and every load-bearing row is there."""
    COMMITTED = "committed"
    """The deletion is on the disk."""
    RECORDED = "recorded"
    """The archive says so."""


Watch = Callable[[str], None]
"""Called with the name of each step when it is done; what it raises stops the operation there."""


def unwatched(step: str) -> None:
    """Take no notice."""


def apply(
    plan: Plan,
    *,
    store: str | Path | None = None,
    now: datetime | None = None,
    watch: Watch = unwatched,
) -> Receipt:
    """Carry out a plan: archive what goes, delete it, verify.

    The copies are committed and synced before the deletion commits, so that being stopped at any
    moment leaves a row too many, never one too few. Applying the same plan again then finishes it.

    Parameters
    ----------
    plan : Plan
        What to do.
    store : str or Path, optional
        Another file than the one that the plan was made from, with the same rows.
    now : datetime, optional
        The moment written into the archive; the current one by default.
    watch : callable, optional
        Called with each :class:`ApplyStep` when it is done.

    Returns
    -------
    Receipt
        What was done and how to take it back.

    Raises
    ------
    StalePlanError
        When a row that the plan decided on has changed or gone. Nothing is deleted.
    AlreadyAppliedError
        When the plan was applied before.
    CompactionError
        When the deletion would have touched other rows than the plan's. Nothing is deleted.
    ArchiveError
        When the rows cannot be archived. Nothing is deleted.
    StoreError
        When the store cannot be written.
    """
    expect(plan, Plan, call="memlab.apply", name="plan")
    path = store_file(plan.store if store is None else store).resolve()
    moment = moment_or_now(now, call="memlab.apply")
    with opened_for_change(path) as connection:
        if not plan.rows:
            return receipt_of(plan, path, moment, archived=False)
        packed = pack(plan)
        with sqlite_errors_in_words(path), transaction(connection):
            watch(ApplyStep.LOCKED)
            _archive_and_delete(connection, path, plan, packed, moment, watch)
        watch(ApplyStep.COMMITTED)
    with open_archive(path) as archive:
        archive.finish(plan.digest, moment)
    watch(ApplyStep.RECORDED)
    return receipt_of(plan, path, moment, archived=True)


def finish(
    store: str | Path, digest: str, *, now: datetime | None = None, watch: Watch = unwatched
) -> Receipt:
    """Apply a plan that was cut short, as it stands in the archive.

    Parameters
    ----------
    store : str or Path
        The store.
    digest : str
        The plan's, or its beginning.
    now, watch
        As for :func:`apply`, which says what is raised.
    """
    path = store_file(store)
    with open_archive(path) as archive:
        found = archive.plan_of(archive.entry(digest))
    return apply(found, store=path, now=now, watch=watch)


@contextmanager
def opened_for_change(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store whose every commit reaches the disk."""
    with closing(connect(path)) as connection, sqlite_errors_in_words(path):
        check_table(connection, path)
        # FULL leaves the removal of a rollback journal to chance on a power cut, EXTRA does not.
        connection.execute("PRAGMA synchronous = EXTRA")
        with roomy_cache(connection):
            yield connection


def count_rows(connection: sqlite3.Connection) -> int:
    """Return how many rows ``memory_items`` has."""
    (count,) = connection.execute("SELECT count(*) FROM main.memory_items").fetchone()
    return int(count)


class Located(NamedTuple):
    """Positions of archived rows, by what the store has there."""

    same: set[int]
    """The row, byte for byte."""
    changed: set[int]
    """A row with its id."""
    taken: set[int]
    """Another row."""
    absent: set[int]
    """Nothing."""

    @property
    def gone(self) -> bool:
        """Whether not one of the rows is where it was."""
        return not self.same and not self.changed


def locate(connection: sqlite3.Connection, copies: Collection[Copy]) -> Located:
    """Say which copies are in the store, byte for byte or changed, and which are not."""
    fill_positions(connection, "located", (copy.position for copy in copies))
    there = dict(fingerprints(connection, "temp.located"))
    same = {copy.position for copy in copies if there.get(copy.position) == copy.fingerprint}
    other = there.keys() - same
    fill_positions(connection, "located", other)
    with exact(connection):
        ids = dict(
            connection.execute(
                "SELECT rowid, memory_id FROM main.memory_items "
                "WHERE rowid IN (SELECT position FROM temp.located)"
            )
        )
    connection.execute("DROP TABLE temp.located")
    changed = {c.position for c in copies if c.position in other and c.is_id(ids[c.position])}
    absent = {copy.position for copy in copies} - there.keys()
    return Located(same, changed, other - changed, absent)


def record_finished(connection: sqlite3.Connection, archive: Archive, now: datetime) -> None:
    """Record plans as done whose rows are gone: only the record was cut short.

    Whoever holds the store's write lock knows that no apply is under way.
    """
    for entry in archive.entries():
        if entry.finished_at is None and locate(connection, archive.copies(entry)).gone:
            archive.finish(entry.digest, now)


def _archive_and_delete(
    connection: sqlite3.Connection,
    path: Path,
    plan: Plan,
    packed: bytes,
    now: datetime,
    watch: Watch,
) -> None:
    """Do all of :func:`apply` that happens under the store's write lock."""
    load_bearing = classify_rows(connection)
    fill_positions(connection, "surplus", (row.position for row in plan.rows))
    if archive_path(path).exists():
        with create_archive(path, connection) as archive:
            if _was_deleted(connection, archive, plan):
                return
            record_finished(connection, archive, now)
            _forget_needless(connection, archive, plan)
    _check_fresh(connection, plan)
    watch(ApplyStep.CHECKED)
    with create_archive(path, connection) as archive:
        with archive.copying(plan, packed, now):
            watch(ApplyStep.COPIED)
        watch(ApplyStep.ARCHIVED)
        try:
            _delete(connection, plan, load_bearing, watch)
        except BaseException:
            # Nothing is deleted, so each copy is one too many; where this fails, doctor says so.
            with suppress(MemlabError):
                archive.forget(plan.digest)
            raise


def _was_deleted(connection: sqlite3.Connection, archive: Archive, plan: Plan) -> bool:
    """Whether only the record is missing; a plan that has one is refused."""
    entry = next((entry for entry in archive.entries() if entry.digest == plan.digest), None)
    if entry is None:
        return False
    if entry.finished_at is not None:
        restored = f", {entry.restored:,} of them restored since" if entry.restored else ""
        raise AlreadyAppliedError(
            f"plan {plan.digest[:12]} was applied on {entry.finished_at:%Y-%m-%d %H:%M} UTC: "
            f"{entry.rows:,} rows deleted and archived in {archive.path}{restored}; make a new plan"
        )
    return locate(connection, archive.copies(entry)).gone


def _forget_needless(connection: sqlite3.Connection, archive: Archive, plan: Plan) -> None:
    """Drop the copies of other plans that were cut short before any of their rows went."""
    for entry in archive.entries():
        if entry.finished_at is None and entry.digest != plan.digest:
            located = locate(connection, archive.copies(entry))
            if len(located.same) == entry.left:
                archive.forget(entry.digest)


def _check_fresh(connection: sqlite3.Connection, plan: Plan) -> None:
    fill_positions(connection, "kept", (row.position for row in plan.kept))
    there = dict(fingerprints(connection, "temp.surplus"))
    there |= fingerprints(connection, "temp.kept")
    signals = dict(signal_fingerprints(connection, "temp.surplus"))
    decided: list[PlannedRow | KeptRow] = [*plan.rows, *plan.kept]
    gone = [row.memory_id for row in decided if row.position not in there]
    changed = [
        row.memory_id
        for row in decided
        if row.position in there and row.fingerprint != there[row.position]
    ]
    changed += [
        row.memory_id
        for row in plan.rows
        if row.position in there and row.signals != signals.get(row.position, "")
    ]
    if gone or changed:
        parts = [f"{len(gone):,} gone ({some_of(gone)})"] if gone else []
        parts += [f"{len(changed):,} changed ({some_of(changed)})"] if changed else []
        raise StalePlanError(
            f"the store is not as plan {plan.digest[:12]} saw it: {' and '.join(parts)}; nothing "
            "was deleted: make a new plan",
            memory_ids=tuple(dict.fromkeys(gone + changed)),
        )


def _delete(connection: sqlite3.Connection, plan: Plan, load_bearing: int, watch: Watch) -> None:
    chosen = "rowid IN (SELECT position FROM temp.surplus)"
    rows = count_rows(connection)
    deleted = delete_rows(connection, chosen, load_bearing, signals=signal_columns(connection))
    watch(ApplyStep.DELETED)
    gone = rows - count_rows(connection)
    if not deleted == gone == len(plan.rows):
        raise CompactionError(
            f"{len(plan.rows):,} rows were to go and {gone:,} would have gone; all was rolled "
            "back: look for a trigger on memory_items in the store"
        )
    watch(ApplyStep.VERIFIED)


def receipt_of(plan: Plan, path: Path, now: datetime, *, archived: bool) -> Receipt:
    """Return the receipt of a plan that was carried out on the store at `path`."""
    return Receipt(
        digest=plan.digest,
        store=str(path),
        archive=str(archive_path(path)) if archived else None,
        policy=plan.policy,
        made_at=plan.made_at,
        applied_at=now,
        deleted=len(plan.rows),
        boot_before=plan.boot_before,
        boot_after=plan.boot_after,
        token_rule=plan.token_rule,
    )


def some_of(names: Sequence[object]) -> str:
    """Return the first five names, each cut when it is long, and how many more there are."""
    texts = [str(name) for name in names[:5]]
    shown = ", ".join(text if len(text) <= 80 else f"{text[:77]}..." for text in texts)
    return f"{shown} and {len(names) - 5:,} more" if len(names) > 5 else shown
