"""Rows of another system's SQLite tables: one moment of them, and their values to the byte."""

import sqlite3
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from memlab.errors import ChangedWhileReadError, MemlabError, StoreError
from memlab.files import ordinary_file
from memlab.sources import base
from memlab.store.database import check_encoding, store_file, text_as_bytearray
from memlab.store.records import batched, bound_value, check_canonical, jsonable, quoted, selecting
from memlab.store.snapshot import open_snapshot, retry_if_changed

_COLUMNS_OF_TABLES: Final = """
SELECT tables.name, columns.name
FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
WHERE tables.type = 'table' AND tables.sql NOT LIKE 'CREATE VIRTUAL%'
"""
"""A virtual table whose module is not there cannot be asked for its columns."""
_MAGIC: Final = b"SQLite format 3\0"


@contextmanager
def one_moment(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database at one moment, leaving no trace; text not in UTF-8 is read as it can be."""
    with open_snapshot(store_file(path)) as connection:
        connection.text_factory = lambda data: data.decode(errors="replace")
        check_encoding(connection, path)
        connection.execute("BEGIN")
        yield connection


def rows_in(path: Path, query: str) -> list[Any]:
    """Return what a query finds in a database that somebody may be writing to."""

    def look() -> list[Any]:
        with one_moment(path) as connection:
            return connection.execute(query).fetchall()

    return retry_if_changed(look)


def tables_of(path: Path) -> dict[str, frozenset[str]]:
    """Return the tables of a SQLite file with their columns, none of what cannot be read."""
    found: dict[str, set[str]] = {}
    try:
        for table, column in rows_in(path, _COLUMNS_OF_TABLES):
            found.setdefault(table, set()).add(column)
    except ChangedWhileReadError:
        raise
    except (MemlabError, OSError):
        return {}
    return {table: frozenset(columns) for table, columns in found.items()}


def begins_as_sqlite(path: Path) -> bool:
    """Return whether a path is an ordinary file whose first bytes are those of a SQLite file.

    Not for a file that this process may have open: closing it here would drop its locks.
    """
    with suppress(OSError), ordinary_file(path, most=sys.maxsize) as file:
        return file.read(len(_MAGIC)) == _MAGIC
    return False


def columns_of(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return a table's columns, none of one that is not there."""
    found = connection.execute(
        "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", (table,)
    )
    return tuple(name for (name,) in found)


def exact_rows(
    connection: sqlite3.Connection, table: str, column: str, values: Iterable[base.Key]
) -> Iterator[dict[str, Any]]:
    """Yield the rows whose column has one of some values as JSON that keeps type and bytes."""
    columns = columns_of(connection, table)
    chosen = selecting(columns, "row")
    for some in batched(values):
        with text_as_bytearray(connection):
            rows = connection.execute(
                f"SELECT {chosen} FROM main.{quoted(table)} AS row "
                f"WHERE row.{quoted(column)} IN ({', '.join('?' * len(some))})",
                some,
            ).fetchall()
        for row in rows:
            pairs = zip(columns, map(jsonable, row), strict=True)
            yield {name: value for name, value in pairs if value is not None}


def newer(schema: object, known: int) -> str:
    """Say that a schema is newer than the newest that memlab knows; nothing where it is not."""
    if not isinstance(schema, int) or schema <= known:
        return ""
    return f"{schema}, newer than {known}, the newest that memlab knows"


class TableReader(base.Reader):
    """Memories that are rows of one table with a key ``id``, over a connection of one moment."""

    system: ClassVar[str]
    table: ClassVar[str]
    needed: ClassVar[Sequence[str]]
    """Columns of the table; a source names of them those that tell the system from others."""

    def __init__(self, connection: sqlite3.Connection, source: "TableSource") -> None:
        for table, columns in {**source.tables, self.table: self.needed}.items():
            base.check_table(
                source.path, self.system, table, columns, columns_of(connection, table)
            )
        self.connection = connection
        self.source = source
        self.columns = columns_of(connection, self.table)
        names = connection.execute("SELECT name FROM sqlite_schema")
        self.tables = {name for (name,) in names}

    def batches(self, *, with_body: bool, columns: Sequence[str] = ()) -> Iterator[base.Rows]:
        """Yield the memories in order of time, some at a time."""
        base.check_asked(columns, self.columns, self.table)
        for some in batched(key for _, key in sorted(self._places())):
            found = self._exact(some)
            if lost := [key for key in some if key not in found]:
                raise StoreError(
                    f"row {lost[0]} of {self.table} is listed and not there: the file is damaged; "
                    "restore a backup, or copy what can be read with the sqlite3 shell's .recover"
                )
            rows = [self._row(found[key]) for key in some]
            others = {name: [found[key].get(name) for key in some] for name in columns}
            yield base.rows_of_each(rows, with_body=with_body, others=others)

    def records(self, keys: Iterable[base.Key]) -> Iterator[tuple[base.Key, bytes]]:
        """Yield the records of the memories that are there."""
        for some in batched(keys):
            records = self._records(self._exact(some))
            yield from ((key, records[key]) for key in some if key in records)

    @abstractmethod
    def about(self) -> base.About:
        """Return what is said of the database beside its frame."""

    @abstractmethod
    def _places(self) -> Iterable[tuple[int, int]]:
        """Return where each memory stands by its time, and its key."""

    def _row(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is stored of a memory as a row of the frame."""
        return self.source.row_in(stored)

    @abstractmethod
    def _records(self, rows: Mapping[base.Key, dict[str, Any]]) -> Mapping[base.Key, bytes]:
        """Return the records of those of some exact rows that are memories."""

    def _exact(self, keys: Iterable[base.Key]) -> dict[base.Key, dict[str, Any]]:
        return {row["id"]: row for row in exact_rows(self.connection, self.table, "id", keys)}

    def _one(self, statement: str) -> Any:
        return self.connection.execute(statement).fetchone()[0]


class TableSource(base.FileSource):
    """One SQLite file of another system's, which a :class:`TableReader` reads."""

    shape: ClassVar["staticmethod[[Any], None]"]
    """The shape of a record."""

    @contextmanager
    def reading(self) -> Iterator[base.Reader]:
        """Open the database at one moment, leaving no trace."""
        with one_moment(self.path) as connection:
            yield self.reader(connection)

    @abstractmethod
    def reader(self, connection: sqlite3.Connection) -> TableReader:
        """Return what reads the memories over a connection."""

    def extra_report(self) -> base.About:
        """Return what there is to say of the database beside its frame."""
        return base.read_consistent(self, lambda reader: cast("TableReader", reader).about())

    def check_record(self, key: base.Key, record: bytes, said: dict[str, Any]) -> None:
        """Check that a memory of the system's can have a record."""
        check_canonical(record, said)
        self.shape(said)
        if said["id"] != key:
            raise ValueError(f"its id is {said['id']}")


def text_of(value: object) -> str:
    """Return what a column of text holds by its exact row, whatever is in it."""
    _, bound = bound_value(value)
    if isinstance(bound, bytes):
        return bound.decode(errors="replace")
    return "" if bound is None else str(bound)
