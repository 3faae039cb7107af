"""Values too large to be read whole: found by a limit, and read in pieces.

SQLite looks at how long a value is before it reads it, so that a connection with a low limit stops
at a large one without having read it.
"""

import sqlite3
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

UTF_8: Final = "UTF-8"
CODECS: Final = {UTF_8: "utf-8", "UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}
"""Python's names of the encodings that SQLite has for a file's text."""

_PIECE: Final = 2**20


@contextmanager
def values_up_to(connection: sqlite3.Connection, size: int) -> Iterator[None]:
    """Let a value of more than `size` bytes, stored or made, raise :class:`sqlite3.DataError`."""
    before = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
    try:
        yield
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)


def size_of_text(connection: sqlite3.Connection, column: str, position: int) -> int:
    """Return how many bytes a text of ``memory_items`` has in the file, without reading it."""
    with connection.blobopen("memory_items", column, position, readonly=True) as text:
        return len(text)


def pieces_of_text(
    connection: sqlite3.Connection, column: str, position: int, encoding: str
) -> Iterator[str]:
    """Yield a text of ``memory_items`` in pieces.

    Parameters
    ----------
    connection : sqlite3.Connection
        To a checked store.
    column : str
        Whose value at `position` is text.
    position : int
        The rowid.
    encoding : str
        Of the file's text, as SQLite calls it.

    Raises
    ------
    UnicodeDecodeError
        When the text is not what its encoding allows.
    """
    decoder = getincrementaldecoder(CODECS[encoding])()
    with connection.blobopen("memory_items", column, position, readonly=True) as text:
        while piece := text.read(_PIECE):
            yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)
