"""Vectors of sqlite-vec: read in the tables that they are kept in, written by the extension.

A virtual table ``vec0`` keeps its vectors some hundred a row: ``_rowids`` says in which chunk and
at which place one is, ``_vector_chunks00`` holds the bytes, ``_chunks`` the size and the partition.
"""

import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from memlab.errors import StoreError, UnsafeDeletionError
from memlab.sources.sqlite_rows import columns_of

TABLE: Final = "memory_embeddings"

_PARTS: Final = frozenset(f"{TABLE}_{part}" for part in ("rowids", "chunks", "vector_chunks00"))
_FLOATS: Final = re.compile(r"content_embedding\s+float\[\d+\]", re.IGNORECASE)
_PARTITION: Final = re.compile(r"\bstore\s+text\s+partition\s+key", re.IGNORECASE)
_EXTRA: Final = "pip install 'memlab[mcp-memory]'"


def vectors_of(
    connection: sqlite3.Connection, tables: Collection[str], keys: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Return the vectors of memories that have one: bytes as hexadecimal digits, and a partition.

    Parameters
    ----------
    connection : sqlite3.Connection
        Needs no extension.
    tables : collection of str
        Those of the database.
    keys : sequence of int
        At most :data:`memlab.sources.sqlite_rows.AT_ONCE`.
    """
    if not set(tables) >= _PARTS or not keys:
        return {}
    of = columns_of(connection, f"{TABLE}_chunks")
    partition = "c.partition00" if "partition00" in of else "NULL"
    places = connection.execute(
        f"SELECT r.rowid, r.chunk_id, r.chunk_offset, c.size, {partition} FROM {TABLE}_rowids AS r "
        f"JOIN {TABLE}_chunks AS c ON c.chunk_id = r.chunk_id "
        f"WHERE r.rowid IN ({', '.join('?' * len(keys))}) ORDER BY r.chunk_id",
        list(keys),
    ).fetchall()
    found: dict[int, dict[str, Any]] = {}
    chunk, data = None, b""
    for key, chunk_id, offset, size, store in places:
        if chunk_id != chunk:  # a chunk is read once, for it holds a thousand vectors
            chunk, data = chunk_id, _chunk(connection, chunk_id)
        length = len(data) // size
        vector = data[offset * length : (offset + 1) * length]
        found[key] = {"data": vector.hex()} | ({} if store is None else {"store": store})
    return found


def _chunk(connection: sqlite3.Connection, chunk_id: int) -> bytes:
    """Return the vectors of a chunk, one after another."""
    found = connection.execute(
        f"SELECT vectors FROM {TABLE}_vector_chunks00 WHERE rowid = ?", (chunk_id,)
    ).fetchone()
    return bytes(found[0]) if found else b""


def driver() -> Any:
    """Return the module whose connections can load extensions: the standard one, or pysqlite3.

    Raises
    ------
    UnsafeDeletionError
        When neither can, or sqlite-vec is not installed.
    """
    if find_spec("sqlite_vec") is None:
        raise UnsafeDeletionError(
            "deleting here takes a vector along, which only sqlite-vec can; nothing was changed: "
            f"{_EXTRA}, then run the same command",
            instead=_EXTRA,
        )
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    if find_spec("pysqlite3") is not None:
        return import_module("pysqlite3")
    raise UnsafeDeletionError(
        "the sqlite3 of this Python cannot load extensions, and deleting here takes sqlite-vec; "
        f"nothing was changed: {_EXTRA}, or run memlab with the Python that the service runs with",
        instead=_EXTRA,
    )


def load_extension(connection: Any) -> None:
    """Give a connection of :func:`driver` the table type ``vec0``."""
    connection.enable_load_extension(True)  # noqa: FBT003 - SQLite's own signature
    try:
        import_module("sqlite_vec").load(connection)
    finally:
        connection.enable_load_extension(False)  # noqa: FBT003 - SQLite's own signature


def has_partition(connection: sqlite3.Connection) -> bool | None:
    """Return whether vectors are kept by store; None where the database keeps none.

    Raises
    ------
    StoreError
        When they are of a type that memlab could not put back.
    """
    found = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (TABLE,)).fetchone()
    if found is None:
        return None
    if not _FLOATS.search(found[0]):
        raise StoreError(f"{TABLE} keeps other vectors than memlab knows; nothing was changed")
    return bool(_PARTITION.search(found[0]))


def insert_vector(
    connection: sqlite3.Connection, key: int, vector: Mapping[str, Any], *, partition: bool
) -> None:
    """Put a vector back where a search finds it."""
    data = bytes.fromhex(vector["data"])
    if partition:
        connection.execute(
            f"INSERT INTO {TABLE} (rowid, content_embedding, store) VALUES (?, ?, ?)",
            (key, data, vector.get("store", "default")),
        )
    else:
        connection.execute(
            f"INSERT INTO {TABLE} (rowid, content_embedding) VALUES (?, ?)", (key, data)
        )
