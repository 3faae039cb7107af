"""Other systems' SQLite files, looked at without leaving a trace."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection
from typing import Final, TypeVar

from memlab.errors import StoreError
from memlab.store.database import connect_reading, read_store

Result = TypeVar("Result")

_TABLES: Final = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
)
"""A virtual table whose module is not there cannot be asked."""


def tables_of(path: Path) -> dict[str, set[str]]:
    """Return the columns of a database's tables; nothing for what is no database.

    Raises
    ------
    StoreError
        When it is one, and cannot be read.
    """
    if not path.is_file() or path.stat().st_size == 0:
        return {}
    try:
        return read_database(path, _columns)
    except StoreError as error:
        if getattr(error.__cause__, "sqlite_errorname", "") == "SQLITE_NOTADB":
            return {}
        raise


def read_database(path: Path, read: Callable[[Connection], Result]) -> Result:
    """Return ``read(connection)`` of a database that somebody may be writing to.

    Raises
    ------
    StoreError
        When it cannot be read.
    """

    def read_at(uri: str) -> Result:
        with closing(connect_reading(uri)) as connection:
            connection.text_factory = lambda data: data.decode(errors="replace")
            return read(connection)

    return read_store(path, read_at, check=lambda _, __: None)


def _columns(connection: Connection) -> dict[str, set[str]]:
    return {
        table: {
            column
            for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        }
        for (table,) in connection.execute(_TABLES).fetchall()
    }
