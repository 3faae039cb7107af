"""Read the SQLite tables of other systems, at one moment and with exact values."""

import sqlite3
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from memlab.errors import ChangedWhileReadError, MemlabError, StoreError
from memlab.files import ordinary_file
from memlab.sources import base, readers
from memlab.store.database import check_encoding, store_file, text_read_as
from memlab.store.records import batched, bound_value, check_canonical, jsonable, quoted, selecting
from memlab.store.snapshot import open_snapshot, retry_if_changed

_COLUMNS_OF_TABLES: Final = """
SELECT tables.name, columns.name
FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
WHERE tables.type = 'table' AND tables.sql NOT LIKE 'CREATE VIRTUAL%'
"""
"""Selects the columns of tables, without virtual tables, whose module may be missing."""
_MAGIC: Final = b"SQLite format 3\0"
"""The first bytes of a SQLite file."""


@contextmanager
def one_moment(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database at one moment without writing anything. Invalid UTF-8 is replaced."""
    with open_snapshot(store_file(path)) as connection:
        connection.text_factory = lambda data: data.decode(errors="replace")
        check_encoding(connection, path)
        connection.execute("BEGIN")
        yield connection


def rows_in(path: Path, query: str) -> list[Any]:
    """Return the rows of a query; retry if the database is written meanwhile."""

    def query_once() -> list[Any]:
        with one_moment(path) as connection:
            return connection.execute(query).fetchall()

    return retry_if_changed(query_once)


def tables_of(path: Path) -> dict[str, frozenset[str]]:
    """Return the columns of each table of a SQLite file; empty for another or unreadable file."""
    tables: dict[str, set[str]] = {}
    try:
        for table, column in rows_in(path, _COLUMNS_OF_TABLES):
            tables.setdefault(table, set()).add(column)
    except ChangedWhileReadError:
        raise
    except (MemlabError, OSError):
        return {}
    return {table: frozenset(columns) for table, columns in tables.items()}


def begins_as_sqlite(path: Path) -> bool:
    """Return whether a path is a regular file that begins like a SQLite file.

    The file must not be open in this process: closing it here would release its locks.
    """
    with suppress(OSError), ordinary_file(path, max_bytes=sys.maxsize) as file:
        return file.read(len(_MAGIC)) == _MAGIC
    return False


def columns_of(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return the columns of a table in order; none if there is no such table."""
    rows = connection.execute(
        "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", (table,)
    )
    return tuple(name for (name,) in rows)


def exact_rows(
    connection: sqlite3.Connection, table: str, column: str, values: Iterable[readers.Key]
) -> Iterator[dict[str, Any]]:
    """Yield the rows whose column has one of `values`, as JSON values that keep type and bytes.

    NULLs are left out.
    """
    columns = columns_of(connection, table)
    selected = selecting(columns, "row")
    for batch in batched(values):
        with text_read_as(connection):
            rows = connection.execute(
                f"SELECT {selected} FROM main.{quoted(table)} AS row "
                f"WHERE row.{quoted(column)} IN ({', '.join('?' * len(batch))})",
                batch,
            ).fetchall()
        for row in rows:
            pairs = zip(columns, map(jsonable, row), strict=True)
            yield {name: value for name, value in pairs if value is not None}


def note_on_newer_schema(schema: object, newest_known: int) -> str:
    """Return the note for a schema that is newer than the known ones; empty for another."""
    if not isinstance(schema, int) or schema <= newest_known:
        return ""
    return f"{schema}, newer than {newest_known}, the newest that memlab knows"


class TableReader(readers.Reader):
    """Reader of memories that are rows of one table.

    Attributes
    ----------
    system : str
        Name of the system, for messages.
    table : str
        Name of the table.
    needed : sequence of str
        Columns that the table must have.
    """

    system: ClassVar[str]
    table: ClassVar[str]
    needed: ClassVar[Sequence[str]]

    def __init__(self, connection: sqlite3.Connection, source: "TableSource") -> None:
        needed_by_table = {**source.tables, self.table: self.needed}
        for table, needed in needed_by_table.items():
            existing = columns_of(connection, table)
            base.check_table(source.path, self.system, table, needed, existing)
        self.connection = connection
        self.source = source
        self.columns = columns_of(connection, self.table)
        names = connection.execute("SELECT name FROM sqlite_schema")
        self.table_names = {name for (name,) in names}

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[readers.Rows]:
        """Yield the memories in batches, in order of position."""
        readers.check_requested(columns, self.columns, self.table)
        keys_in_order = [key for _, key in sorted(self._places())]
        for keys in batched(keys_in_order):
            rows_by_key = self._exact(keys)
            missing = [key for key in keys if key not in rows_by_key]
            if missing:
                raise StoreError(
                    f"row {missing[0]} of {self.table} is listed and not there: the file is "
                    "damaged; restore a backup, or copy what can be read with the sqlite3 shell's "
                    ".recover"
                )
            rows = [self._row(rows_by_key[key]) for key in keys]
            others = {name: [rows_by_key[key].get(name) for key in keys] for name in columns}
            yield readers.rows_from_dicts(rows, with_body=with_body, others=others)

    def records(self, keys: Iterable[readers.Key]) -> Iterator[tuple[readers.Key, bytes]]:
        """Yield the keys and the records of the existing memories."""
        for batch in batched(keys):
            records = self._records(self._exact(batch))
            for key in batch:
                if key in records:
                    yield key, records[key]

    @abstractmethod
    def about(self) -> base.About:
        """Return the report on what is not in the frame."""

    @abstractmethod
    def _places(self) -> Iterable[tuple[int, Any]]:
        """Return the position and the key of each memory."""

    def _row(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored memory as a row of the frame."""
        return self.source.row_in(stored)

    @abstractmethod
    def _records(self, rows: Mapping[readers.Key, dict[str, Any]]) -> Mapping[readers.Key, bytes]:
        """Return the records of exact rows, without rows that are not memories of the source."""

    def _exact(self, keys: Iterable[readers.Key]) -> dict[readers.Key, dict[str, Any]]:
        """Return the exact rows of existing memories by key."""
        column = self.source.key_column
        rows = exact_rows(self.connection, self.table, column, keys)
        return {row[column]: row for row in rows}

    def _single_value(self, statement: str) -> Any:
        """Return the first value of the first row of a query."""
        return self.connection.execute(statement).fetchone()[0]


class TableSource(base.FileSource):
    """A SQLite file of another system, with a :class:`TableReader` that reads it."""

    shape: ClassVar["staticmethod[[Any], None]"]
    """Shape of a record; see :mod:`memlab.store.shapes`."""
    key_column: ClassVar[str] = "id"
    """Column with the key of a memory."""

    @contextmanager
    def reading(self) -> Iterator[readers.Reader]:
        """Open the database at one moment without writing anything."""
        with one_moment(self.path) as connection:
            yield self.reader(connection)

    @abstractmethod
    def reader(self, connection: sqlite3.Connection) -> TableReader:
        """Return a reader of the memories over a connection."""

    def extra_report(self) -> base.About:
        """Return the report on what is not in the frame."""
        return base.read_consistent(self, lambda reader: cast("TableReader", reader).about())

    def check_record(self, key: readers.Key, record: bytes, parsed: dict[str, Any]) -> None:
        """Check that an archived record is valid for this system and has this key."""
        check_canonical(record, parsed)
        self.shape(parsed)
        if parsed[self.key_column] != key:
            raise ValueError(f"its id is {parsed[self.key_column]}")


def text_of(value: object) -> str:
    """Return a value of an exact row as text; empty for NULL. Invalid UTF-8 is replaced."""
    _, bound = bound_value(value)
    if isinstance(bound, bytes):
        return bound.decode(errors="replace")
    return "" if bound is None else str(bound)


def text_or_none(value: object) -> str | None:
    """Return a value of an exact row as text; None for NULL and for an empty text."""
    text = text_of(value)
    return text or None
