"""Putting archived rows back, byte for byte."""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from enum import StrEnum
from os import PathLike
from pathlib import Path

from memlab.arguments import expect, texts
from memlab.clock import moment_or_now
from memlab.compaction.applying import (
    Watch,
    count_rows,
    locate,
    opened_for_change,
    record_finished,
    some_of,
    unwatched,
)
from memlab.compaction.plans import Receipt
from memlab.errors import ArchiveError
from memlab.files import whole_file
from memlab.store.archive import Archive, Copy, Entry, open_archive
from memlab.store.database import (
    COLUMNS,
    CREATE_TABLE,
    connect,
    exact,
    path_named,
    sqlite_errors_in_words,
    store_file,
    transaction,
)
from memlab.store.rows import (
    SIGNALS,
    as_bytes,
    fill_positions,
    fingerprints,
    fingerprints_under_triggers,
    from_json,
    quoted,
    signal_columns,
)


class RestoreStep(StrEnum):
    """What :func:`restore` has just done."""

    LOCKED = "locked"
    """No other process can write to the store or its archive."""
    CHECKED = "checked"
    """Every place and every id is free."""
    INSERTED = "inserted"
    """The rows are back, not yet committed."""
    VERIFIED = "verified"
    """They are byte for byte what was archived, and nothing else changed."""
    COMMITTED = "committed"
    """They are on the disk."""
    RECORDED = "recorded"
    """The archive says so."""


def restore(
    receipt: Receipt | str,
    *,
    store: str | Path | None = None,
    ids: Collection[str] | None = None,
    into: str | Path | None = None,
    now: datetime | None = None,
    watch: Watch = unwatched,
) -> int:
    """Put archived rows back: the same bytes in every column, at the same position.

    Rows that are in the store as they were archived are left alone, so restoring twice restores 0.
    What the store's side table said of a row comes back with it.

    Parameters
    ----------
    receipt : Receipt or str
        What :func:`apply` returned, or a plan's digest or the beginning of one.
    store : str or Path, optional
        The store, where `receipt` is a digest or the store has moved.
    ids : collection of str, optional
        Restore only these.
    into : str or Path, optional
        A new file to put the rows into, beside nothing else, instead of the store.
    now : datetime, optional
        The moment written into the archive; the current one by default.
    watch : callable, optional
        Called with each :class:`RestoreStep` when it is done.

    Returns
    -------
    int
        How many rows were put back.

    Raises
    ------
    ArchiveError
        When there is no such plan in the archive, an id is not among its rows, or a position or an
        id has been taken since. Nothing is changed.
    MemlabError
        When `into` exists or cannot be written.
    """
    expect(receipt, Receipt, str, call="memlab.restore", name="receipt")
    expect(into, str, PathLike, call="memlab.restore", name="into", optional=True)
    if ids is not None:
        ids = texts(ids, call="memlab.restore", name="ids")
    moment = moment_or_now(now, call="memlab.restore")
    digest, path = _meant(receipt, store)
    if into is not None:
        return _restore_into(path, digest, ids, Path(into))
    path = store_file(path).resolve()
    with open_archive(path) as archive:
        entry = archive.entry(digest)
        copies = _chosen(archive, entry, ids)
        with opened_for_change(path) as connection:
            with transaction(connection):
                record_finished(connection, archive, moment)
            connection.execute("ATTACH ? AS archive", (str(archive.path),))
            with sqlite_errors_in_words(path), transaction(connection):
                watch(RestoreStep.LOCKED)
                missing = _missing(connection, entry, copies)
                watch(RestoreStep.CHECKED)
                if missing:
                    _put_back(connection, entry, missing, watch)
            watch(RestoreStep.COMMITTED)
        unmarked = [copy.position for copy in copies if copy.restored_at is None]
        archive.mark_restored(entry, unmarked, moment)
    watch(RestoreStep.RECORDED)
    return len(missing)


def _meant(receipt: Receipt | str, store: str | Path | None) -> tuple[str, Path]:
    """Return the digest and the store that a caller of :func:`restore` means."""
    if isinstance(receipt, Receipt):
        return receipt.digest, path_named(receipt.store if store is None else store)
    if store is None:
        raise ValueError(f"store must be given with a digest such as {receipt!r}")
    return receipt, path_named(store)


def _chosen(archive: Archive, entry: Entry, ids: Collection[str] | None) -> list[Copy]:
    """Return the copies to put back, in order of position."""
    copies = archive.copies(entry)
    if ids is None:
        return copies
    wanted = {memory_id.encode(errors="replace"): memory_id for memory_id in ids}
    chosen = [copy for copy in copies if copy.memory_id in wanted]
    found = {copy.memory_id for copy in chosen}
    if unknown := sorted(name for raw, name in wanted.items() if raw not in found):
        raise ArchiveError(
            f"plan {entry.digest[:12]} took out no row {some_of(unknown)}; nothing was restored: "
            f"memlab archive {archive.store} lists its rows"
        )
    return chosen


def _missing(connection: sqlite3.Connection, entry: Entry, copies: list[Copy]) -> list[Copy]:
    """Return the copies that are not in the store, after checking that there is room for them.

    A row that was restored and changed afterwards is the store's own again, not in the way.
    """
    located = locate(connection, copies)
    taken = [
        f"position {copy.position}"
        for copy in copies
        if copy.position in located.taken
        or (copy.position in located.changed and copy.restored_at is None)
    ]
    fill_positions(connection, "wanted", located.absent)
    with exact(connection):
        found = connection.execute(
            "SELECT item.memory_id FROM temp.wanted JOIN archive.archived AS copy "
            "ON copy.position = wanted.position AND copy.apply = ? "
            "JOIN main.memory_items AS item ON item.memory_id = copy.memory_id",
            (entry.apply,),
        )
        taken += [f"id {(as_bytes(each) or b'').decode(errors='replace')!r}" for (each,) in found]
    if taken:
        raise ArchiveError(
            f"{len(taken):,} places of plan {entry.digest[:12]} have been taken since "
            f"({some_of(taken)}); nothing was restored: restore some ids, or into a new file"
        )
    return [copy for copy in copies if copy.position in located.absent]


def _put_back(
    connection: sqlite3.Connection, entry: Entry, copies: list[Copy], watch: Watch
) -> None:
    """Insert the copies named in ``temp.wanted``, and check that nothing else happened."""
    others = "rowid NOT IN (SELECT position FROM temp.wanted)"
    rows, unchanged = count_rows(connection), fingerprints_under_triggers(connection, others)
    names = ", ".join(COLUMNS)
    connection.execute(
        f"INSERT INTO main.memory_items (rowid, {names}) SELECT position, {names} "
        "FROM archive.archived WHERE apply = ? AND position IN (SELECT position FROM temp.wanted) "
        "ORDER BY position",
        (entry.apply,),
    )
    _put_signals_back(connection, entry)
    watch(RestoreStep.INSERTED)
    back = dict(fingerprints(connection, "temp.wanted"))
    if (
        back != {copy.position: copy.fingerprint for copy in copies}
        or count_rows(connection) != rows + len(copies)
        or unchanged != fingerprints_under_triggers(connection, others)
    ):
        raise ArchiveError(
            "the rows would not have come back as they were, or others would have changed; all was "
            "rolled back: look for a trigger on memory_items, or restore into a new file"
        )
    watch(RestoreStep.VERIFIED)


def _put_signals_back(connection: sqlite3.Connection, entry: Entry) -> None:
    known = set(signal_columns(connection))
    if not known:
        return
    kept = connection.execute(
        "SELECT signals FROM archive.archived WHERE apply = ? AND signals IS NOT NULL "
        "AND position IN (SELECT position FROM temp.wanted)",
        (entry.apply,),
    ).fetchall()
    for (text,) in kept:
        bound = {name: pair for name, pair in from_json(text).items() if name in known}
        columns = ", ".join(map(quoted, bound))
        values = ", ".join(expression for expression, _ in bound.values())
        connection.execute(
            f"INSERT OR REPLACE INTO main.{SIGNALS} ({columns}) VALUES ({values})",
            [value for _, value in bound.values()],
        )


def _restore_into(path: Path, digest: str, ids: Collection[str] | None, into: Path) -> int:
    """Make a new store of archived rows alone; it appears whole or not at all."""
    with open_archive(path) as archive:
        entry = archive.entry(digest)
        copies = _chosen(archive, entry, ids)
        mode = archive.path.stat().st_mode & 0o7777
        (encoding,) = archive.connection.execute("PRAGMA encoding").fetchone()
        with whole_file(into, mode=mode, replace=False) as draft, _opened_new(draft) as connection:
            connection.execute(f"PRAGMA encoding = '{encoding}'")
            connection.execute(CREATE_TABLE)
            connection.execute("ATTACH ? AS archive", (str(archive.path),))
            with transaction(connection):
                fill_positions(connection, "wanted", (copy.position for copy in copies))
                _put_back(connection, entry, copies, unwatched)
    return len(copies)


@contextmanager
def _opened_new(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as connection, sqlite_errors_in_words(path):
        yield connection
