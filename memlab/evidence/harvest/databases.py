"""Other systems' SQLite files, looked at without leaving a trace."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from memlab.store.database import connect_reading
from memlab.store.looking import read_store

Result = TypeVar("Result")


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
