"""Disk space of a store, and how the space of deleted rows is returned to the disk."""

import os
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.errors import StoreError
from memlab.sources.base import Source
from memlab.sources.opening import open_source
from memlab.sources.readers import StepCallback, no_progress
from memlab.store.archive.location import archive_path
from memlab.store.database import check_table, opened_for_change, store_file
from memlab.store.records import quoted
from memlab.store.snapshot import read_snapshot
from memlab.text import DisplayMixin, TextPage, in_bytes

_DEFAULT_TEMPORARY_FOLDER: Final = "/var/tmp"  # noqa: S108 - nothing is written there
"""Folder of SQLite's temporary copy if no variable names one (sqlite.org/tempfiles.html, 5)."""


@dataclass(frozen=True, repr=False)
class Space(DisplayMixin):
    """Disk space of a store, in bytes.

    Attributes
    ----------
    store : str
        The store.
    file, wal, archive : int
        The sizes of its file, of the write-ahead log, and of the archive.
    live, free : int
        The sizes of the pages in use, and of the pages that deleted rows left. SQLite fills free
        pages before the file grows.
    after_vacuum : int
        The maximum size of the file after :func:`vacuum`.

    Examples
    --------
    >>> import memlab
    >>> sizes = space(memlab.store_path("two_years"))
    >>> sizes.file >= sizes.live
    True
    """

    store: str
    file: int
    wal: int
    live: int
    free: int
    archive: int
    after_vacuum: int

    def sheet(self) -> TextPage:
        """Return the printed page."""
        sizes = {name: size for name, size in self.to_dict().items() if name != "store"}
        facts = [(name.replace("_", " "), in_bytes(size)) for name, size in sizes.items()]
        return TextPage(f"disk space of {self.store}", facts)


@dataclass(frozen=True, repr=False)
class Vacuumed(DisplayMixin):
    """Result of :func:`vacuum`: the disk space before and after.

    Examples
    --------
    >>> unchanged = {"wal": 0, "live": 6000, "archive": 0, "after_vacuum": 6000}
    >>> before = Space("notes.db", file=9000, free=3000, **unchanged)
    >>> after = Space("notes.db", file=6000, free=0, **unchanged)
    >>> Vacuumed(before, after).freed
    3000
    """

    before: Space
    after: Space

    @property
    def freed(self) -> int:
        """Number of bytes that the file and its log returned to the disk."""
        return self.before.file + self.before.wal - self.after.file - self.after.wal

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"freed": self.freed, **super().to_dict()}

    def sheet(self) -> TextPage:
        """Return the printed page."""
        before = self.before
        after = self.after
        facts = [
            ("file", f"{in_bytes(before.file)} -> {in_bytes(after.file)}"),
            ("write-ahead log", f"{in_bytes(before.wal)} -> {in_bytes(after.wal)}"),
            ("free pages", f"{in_bytes(before.free)} -> {in_bytes(after.free)}"),
        ]
        return TextPage(f"{in_bytes(self.freed)} given back by {after.store}", facts)


def space(path: str | Path | Source) -> Space:
    """Return the disk space of a store. The store is only read.

    Raises
    ------
    StoreError
        If the store is on a server.

    Examples
    --------
    >>> import memlab
    >>> sizes = space(memlab.store_path("two_years"))
    >>> 0 <= sizes.free < sizes.file
    True
    """
    source = open_source(path)
    path_of_store = _on_this_disk(source)
    if path_of_store.is_dir() or not source.tables:
        # A deleted file leaves no free pages.
        size = sum(map(_size, source.files()))
        return Space(
            store=str(path_of_store),
            file=size,
            wal=0,
            live=size,
            free=0,
            archive=_size(source.archive_path),
            after_vacuum=size,
        )
    file = store_file(path_of_store).resolve()
    if source.is_native_format:
        pages = read_snapshot(file, _pages_of, check=check_table)
    else:
        pages = read_snapshot(file, _pages_of, check=lambda *_: None)
    live = pages.page_size * (pages.page_count - pages.free_count)
    return Space(
        store=str(file),
        file=file.stat().st_size,
        wal=_size(file.with_name(f"{file.name}-wal")),
        live=live,
        free=pages.page_size * pages.free_count,
        archive=_size(archive_path(file)),
        after_vacuum=live,
    )


def vacuum(path: str | Path, *, on_step: StepCallback = no_progress) -> Vacuumed:
    """Rewrite a store without the free pages, so that its file shrinks.

    Every row keeps its position. If it is interrupted, the store is as before or as after.

    Parameters
    ----------
    path : str or Path
        The store.
    on_step : callable, optional
        Progress callback. It is called with the name of each finished step: "checked", "rewritten",
        "shrunk".

    Returns
    -------
    Vacuumed
        The disk space before and after.

    Raises
    ------
    StoreError
        If the disk has no room for the copies, if the store is in use, or if this build of SQLite
        would move rows. Nothing is changed.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> _ = memlab.apply(memlab.plan(store, memlab.KeepRecent(50)))
    >>> result = vacuum(store)
    >>> result.freed > 0, result.after.free
    (True, 0)
    """
    before = checked_for_vacuum(path)
    file = Path(before.store)
    on_step("checked")
    with opened_for_change(file) as connection:
        connection.execute("VACUUM")
        on_step("rewritten")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    on_step("shrunk")
    return Vacuumed(before, space(file))


def checked_for_vacuum(path: str | Path) -> Space:
    """Check that :func:`vacuum` is safe, and return the disk space of the store.

    The store is only read.
    """
    source = open_source(path)
    _check_is_native(source)
    source.check_sound()
    before = space(path)
    _check_room(before)
    _check_positions_stay()
    _check_other_tables(Path(before.store))
    return before


class _Pages(NamedTuple):
    """Size of a page of an SQLite file in bytes, the count of pages, and that of free pages."""

    page_size: int
    page_count: int
    free_count: int


def _pages_of(connection: sqlite3.Connection) -> _Pages:
    """Return the size and the counts of the pages of an SQLite file."""
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    (page_count,) = connection.execute("PRAGMA page_count").fetchone()
    (free_count,) = connection.execute("PRAGMA freelist_count").fetchone()
    return _Pages(page_size=page_size, page_count=page_count, free_count=free_count)


def _on_this_disk(source: Source) -> Path:
    """Return the file or folder of a store; raise StoreError for a server."""
    if source.local_path is None:
        raise StoreError(
            f"{source.name} is on a server, and memlab cannot see its files: measure and free "
            "its space with the tools of the server"
        )
    if source.is_native_format:
        store_file(source.local_path)
    return source.local_path


def _check_is_native(source: Source) -> None:
    """Raise StoreError unless a store is an agent's own SQLite file."""
    path_of_store = _on_this_disk(source)
    if path_of_store.is_dir():
        raise StoreError(
            f"{source.name} is a folder of files: a deleted file frees its room on the disk at "
            "once, so there is nothing to vacuum"
        )
    if not source.tables:
        raise StoreError(
            f"{source.name} is not a database: a deleted line frees its room on the disk at once, "
            "so there is nothing to vacuum"
        )
    if not source.is_native_format:
        raise StoreError(
            f"{source.name} is another system's database, which memlab does not rewrite: "
            f"stop that system, then run sqlite3 {source.local_path} VACUUM"
        )


def _size(path: Path) -> int:
    """Return the size of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def _check_room(before: Space) -> None:
    """Raise StoreError if the disk has no room for SQLite's temporary copy and the log."""
    store_folder = Path(before.store).parent
    temporary_folder = _temporary_folder(store_folder)
    if temporary_folder.stat().st_dev == store_folder.stat().st_dev:
        # Both files need room on one disk, so their sizes are added up.
        temporary_folder = store_folder
    # The write-ahead log may come to hold the whole file. The file is smaller than after the vacuum
    # if many of its pages are still in the log.
    bytes_needed = Counter({store_folder: max(before.file, before.after_vacuum)})
    bytes_needed[temporary_folder] += before.after_vacuum
    for folder, size in bytes_needed.items():
        room = shutil.disk_usage(folder).free
        if room < size:
            raise StoreError(
                f"rewriting {before.store} takes {in_bytes(size)} in {folder} and there is "
                f"{in_bytes(room)}; nothing was changed: free some, or set SQLITE_TMPDIR to a "
                "folder on another disk"
            )


def _temporary_folder(store_folder: Path) -> Path:
    """Return the folder of SQLite's temporary copy: the first that exists, or `store_folder`."""
    candidates = (
        os.environ.get("SQLITE_TMPDIR"),
        os.environ.get("TMPDIR"),
        _DEFAULT_TEMPORARY_FOLDER,
    )
    for candidate in candidates:
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return store_folder


def _check_positions_stay() -> None:
    """Check in memory that this build of SQLite keeps rowids, which it does not guarantee."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE keyed (id TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO keyed (rowid, id) VALUES (3, 'b'), (7, 'a')")
        connection.execute("VACUUM")
        rows = connection.execute("SELECT rowid FROM keyed ORDER BY rowid").fetchall()
    if rows != [(3,), (7,)]:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} would give rows new positions; nothing was changed: "
            "use a build that keeps them"
        )


def _check_other_tables(file: Path) -> None:
    """Raise StoreError if SQLite would renumber rows of other tables, whose rowids may be used."""

    def renumbered_tables(connection: sqlite3.Connection) -> list[str]:
        # VACUUM renumbers tables without an index and without an INTEGER PRIMARY KEY.
        tables = connection.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
            "AND NOT wr AND name NOT LIKE 'sqlite~_%' ESCAPE '~' "
            "AND NOT EXISTS (SELECT 1 FROM pragma_index_list(pragma_table_list.name)) "
            "AND NOT EXISTS (SELECT 1 FROM pragma_table_info(pragma_table_list.name) "
            "WHERE pk AND upper(type) = 'INTEGER')"
        ).fetchall()
        return [name for (name,) in tables if not _counts_from_1(connection, name)]

    tables = read_snapshot(file, renumbered_tables)
    if tables:
        raise StoreError(
            f"vacuum would number the rows of {', '.join(tables)} anew, because they have no key; "
            "nothing was changed: where nobody keeps these rowids, give each table an index or an "
            "INTEGER PRIMARY KEY, then vacuum"
        )


def _counts_from_1(connection: sqlite3.Connection, table: str) -> bool:
    """Return whether the rowids of a table are 1 to n, so that renumbering changes nothing."""
    count, first, last = connection.execute(
        f"SELECT count(*), min(rowid), max(rowid) FROM {quoted(table)}"
    ).fetchone()
    return count == 0 or (first, last) == (1, count)
