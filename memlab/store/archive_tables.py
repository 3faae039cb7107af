"""The tables of an archive: made anew, or brought over from those of memlab 0.1.0."""

import sqlite3
from pathlib import Path
from typing import Final

from memlab.errors import ArchiveError
from memlab.store.archive_1 import copies_of_1
from memlab.store.archive_place import ArchivePlace, archive_errors
from memlab.store.database import COLUMNS, transaction
from memlab.store.signals import SIGNALS

FORMAT: Final = 2
"""``PRAGMA user_version`` of an archive."""
FIRST_FORMAT: Final = 1
TABLES: Final = {
    FIRST_FORMAT: {"applies", "archived"},
    FORMAT: {"about", "applies", "archived"},
}
"""What an archive of each format has at least."""

_SHOWN: Final = ", ".join(
    f"json_extract(record, '$.{name}') AS {name}" for name in (*COLUMNS, SIGNALS)
)
_CREATE: Final = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # A number that was dropped is not given out again.
    """
    CREATE TABLE applies (
        apply INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, policy TEXT NOT NULL,
        made_at TEXT NOT NULL, memories INTEGER NOT NULL, archived_at TEXT NOT NULL,
        finished_at TEXT, plan_json_zlib BLOB
    )""",
    """
    CREATE TABLE archived (
        apply INTEGER NOT NULL REFERENCES applies (apply), key NOT NULL, fingerprint TEXT NOT NULL,
        record TEXT NOT NULL, reason TEXT NOT NULL, restored_at TEXT, PRIMARY KEY (apply, key)
    )""",
    f"""
    CREATE VIEW archived_memories AS
    SELECT digest, archived_at, finished_at, restored_at, reason, key, {_SHOWN}, record
    FROM archived JOIN applies USING (apply) ORDER BY archived.rowid""",
    f"PRAGMA user_version = {FORMAT}",
)


def create_tables(connection: sqlite3.Connection, place: ArchivePlace) -> None:
    """Make the tables of an archive, in the caller's transaction."""
    for statement in _CREATE:
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES ('scheme', ?)", (place.scheme,))


def bring_up_to_date(connection: sqlite3.Connection, place: ArchivePlace) -> None:
    """Put an archive of format 1 into today's tables, all of it or none.

    Raises
    ------
    ArchiveError
        When a copy would not come over.
    """
    with archive_errors(place.path):
        if connection.execute("PRAGMA user_version").fetchone() == (FORMAT,):
            return
        with transaction(connection):
            _bring_over(connection, place)


def _bring_over(connection: sqlite3.Connection, place: ArchivePlace) -> None:
    connection.execute("DROP VIEW IF EXISTS archived_rows")
    for table in TABLES[FIRST_FORMAT]:
        connection.execute(f"ALTER TABLE {table} RENAME TO {table}_1")
    create_tables(connection, place)
    connection.execute("INSERT INTO applies SELECT * FROM applies_1 ORDER BY apply")
    connection.executemany(
        "INSERT INTO archived (apply, key, fingerprint, record, reason, restored_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            (each.apply, each.key, each.fingerprint, each.record.decode(), each.reason,
             each.restored_at)
            for each in copies_of_1(connection, table="archived_1")
        ),
    )  # fmt: skip
    _check_all_came(connection, place.path)
    for table in ("archived", "applies"):
        connection.execute(f"DROP TABLE {table}_1")


def _check_all_came(connection: sqlite3.Connection, path: Path) -> None:
    (missing,) = connection.execute(
        "SELECT (SELECT count(*) FROM archived_1) - (SELECT count(*) FROM archived)"
    ).fetchone()
    if missing:
        raise ArchiveError(
            f"{missing:,} copies of {path}, of format 1, would not come over into format {FORMAT}; "
            "nothing was changed: use memlab 0.1 for it"
        )
