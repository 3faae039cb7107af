"""The room a store takes on the disk, and giving back what deleted rows left behind."""

import os
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memlab.errors import StoreError
from memlab.sources.base import Source, StepCallback, no_progress
from memlab.sources.opening import open_source
from memlab.store.archive.location import archive_path
from memlab.store.database import check_table, opened_for_change, store_file
from memlab.store.records import quoted
from memlab.store.snapshot import read_snapshot
from memlab.text import DisplayMixin, TextPage, in_bytes

_TEMPORARY: Final = "/var/tmp"  # noqa: S108 - it is only looked at
"""Where SQLite makes its copy when no variable says so (sqlite.org/tempfiles.html, 5)."""


@dataclass(frozen=True, repr=False)
class Space(DisplayMixin):
    """Bytes on the disk that belong to a store.

    `file` is the store's own, `wal` the write-ahead log beside it, `archive` what plans took out.
    `live` pages are in use; `free` ones were left by deleted rows: SQLite fills them again before
    the file grows. ``after_vacuum`` is the file's size after :func:`vacuum`, at most.
    """

    store: str
    file: int
    wal: int
    live: int
    free: int
    archive: int
    after_vacuum: int

    def sheet(self) -> TextPage:
        """Return what is printed."""
        sizes = {name: size for name, size in self.to_dict().items() if name != "store"}
        facts = [(name.replace("_", " "), in_bytes(size)) for name, size in sizes.items()]
        return TextPage(f"disk space of {self.store}", facts)


@dataclass(frozen=True, repr=False)
class Vacuumed(DisplayMixin):
    """What :func:`vacuum` did: the sizes before and after."""

    before: Space
    after: Space

    @property
    def freed(self) -> int:
        """Bytes given back to the disk by the store's file and its log."""
        return self.before.file + self.before.wal - self.after.file - self.after.wal

    def to_dict(self) -> dict[str, Any]:
        """Return both sizes, and what that gives back."""
        return {"freed": self.freed, **super().to_dict()}

    def sheet(self) -> TextPage:
        """Return what is printed."""
        sizes = {"file": "file", "write-ahead log": "wal", "free pages": "free"}
        facts = [
            (name, f"{in_bytes(getattr(self.before, of))} -> {in_bytes(getattr(self.after, of))}")
            for name, of in sizes.items()
        ]
        return TextPage(f"{in_bytes(self.freed)} given back by {self.after.store}", facts)


def space(path: str | Path | Source) -> Space:
    """Return how many bytes a store takes on the disk, and how many it needs. Reads only.

    StoreError when it is on a server.
    """
    source = open_source(path)
    place = _on_this_disk(source)
    if place.is_dir() or not source.tables:
        size = sum(map(_size, source.files()))  # what goes leaves no room behind
        return Space(str(place), size, 0, size, 0, _size(source.archive), size)
    file = store_file(place).resolve()
    check = check_table if source.is_native_format else lambda *_: None
    page, pages, free = read_snapshot(file, _pages_of, check=check)
    return Space(
        store=str(file),
        file=file.stat().st_size,
        wal=_size(file.with_name(f"{file.name}-wal")),
        live=page * (pages - free),
        free=page * free,
        archive=_size(archive_path(file)),
        after_vacuum=page * (pages - free),
    )


def vacuum(path: str | Path, *, watch: StepCallback = no_progress) -> Vacuumed:
    """Rewrite a store without the room that deleted rows left, and shrink its file.

    Every row stays at its position. Stopped at any moment, the store is as before or as after.

    Parameters
    ----------
    path : str or Path
        The store.
    watch : callable, optional
        Called with the name of each step that is done: "checked", "rewritten", "shrunk".

    Raises
    ------
    StoreError
        When the disk has no room for the copies it takes, the store is in use, or this build of
        SQLite would move rows. Nothing is changed.
    """
    before = checked_for_vacuum(path)
    file = Path(before.store)
    watch("checked")
    with opened_for_change(file) as connection:
        connection.execute("VACUUM")
        watch("rewritten")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    watch("shrunk")
    return Vacuumed(before, space(file))


def checked_for_vacuum(path: str | Path) -> Space:
    """Return the room that a store takes, once :func:`vacuum` is known to be safe. Reads only."""
    source = open_source(path)
    _check_is_ours(source)
    source.check_sound()
    found = space(path)
    _check_room(found)
    _check_positions_stay()
    _check_other_tables(Path(found.store))
    return found


def _pages_of(connection: sqlite3.Connection) -> tuple[int, int, int]:
    page, pages, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_size", "page_count", "freelist_count")
    )
    return page, pages, free


def _on_this_disk(source: Source) -> Path:
    if source.permissions_template is None:
        raise StoreError(
            f"{source.name} is on a server, and memlab sees none of its files: ask the server what "
            "room it takes, and have it give back what it does not need"
        )
    if source.is_native_format:
        store_file(source.permissions_template)
    return source.permissions_template


def _check_is_ours(source: Source) -> None:
    """Refuse what is no store of an agent's in a file of its own."""
    place = _on_this_disk(source)
    if place.is_dir() or not source.tables:
        what = "a folder of files, and a file" if place.is_dir() else "no database, and a line"
        raise StoreError(
            f"{source.name} is {what} that goes gives its room back at once: there is nothing to "
            "vacuum"
        )
    if not source.is_native_format:
        raise StoreError(
            f"{source.name} is another system's database, and memlab rewrites none: end that "
            f"system, then sqlite3 {source.permissions_template} VACUUM"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check_room(before: Space) -> None:
    """Refuse where the copy SQLite makes aside, and the log of writing it back, will not fit."""
    beside = Path(before.store).parent
    named = (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), _TEMPORARY)
    aside = next((Path(each) for each in named if each and Path(each).is_dir()), beside)
    needed = Counter({beside: max(before.file, before.after_vacuum)})
    on_one_disk = aside.stat().st_dev == beside.stat().st_dev
    needed[beside if on_one_disk else aside] += before.after_vacuum
    for folder, size in needed.items():
        room = shutil.disk_usage(folder).free
        if room < size:
            raise StoreError(
                f"rewriting {before.store} takes {in_bytes(size)} in {folder} and there is "
                f"{in_bytes(room)}; nothing was changed: free some, or set SQLITE_TMPDIR to a "
                "folder on another disk"
            )


def _check_positions_stay() -> None:
    """Try on a table in memory that this build of SQLite keeps rowids; it need not, by the book."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE keyed (id TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO keyed (rowid, id) VALUES (3, 'b'), (7, 'a')")
        connection.execute("VACUUM")
        found = connection.execute("SELECT rowid FROM keyed ORDER BY rowid").fetchall()
    if found != [(3,), (7,)]:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} would give rows new positions; nothing was changed: "
            "use a build that keeps them"
        )


def _check_other_tables(file: Path) -> None:
    """Refuse where SQLite would renumber rows of other tables: somebody may know their rowids."""

    def renumbered(connection: sqlite3.Connection) -> list[str]:
        tables = connection.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
            "AND NOT wr AND name NOT LIKE 'sqlite~_%' ESCAPE '~' "
            "AND NOT EXISTS (SELECT 1 FROM pragma_index_list(pragma_table_list.name)) "
            "AND NOT EXISTS (SELECT 1 FROM pragma_table_info(pragma_table_list.name) "
            "WHERE pk AND upper(type) = 'INTEGER')"
        ).fetchall()
        return [name for (name,) in tables if not _counts_from_1(connection, name)]

    if names := read_snapshot(file, renumbered):
        raise StoreError(
            f"vacuum would number the rows of {', '.join(names)} anew, for they have no key; "
            "nothing was changed: where nobody keeps these rowids, give each table an index or an "
            "INTEGER PRIMARY KEY, then vacuum"
        )


def _counts_from_1(connection: sqlite3.Connection, table: str) -> bool:
    count, first, last = connection.execute(
        f"SELECT count(*), min(rowid), max(rowid) FROM {quoted(table)}"
    ).fetchone()
    return count == 0 or (first, last) == (1, count)
