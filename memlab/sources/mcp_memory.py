"""mcp-memory-service: one SQLite file of memories, their vectors and a graph between them.

A memory is a row that its service has not deleted; the vector that finds it and the edges on both
of its sides belong to it. Reading needs the standard library alone: of the vectors the tables that
they are kept in are read, not the virtual one. How they are changed is in
:mod:`memlab.sources.mcp_memory_changes`.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import ClassVar

from memlab.errors import UnsafeDeletionError
from memlab.sources.base import Facts, Key, Reader, Rows, Writer
from memlab.sources.mcp_memory_facts import ServiceFacts
from memlab.sources.mcp_memory_reader import NEEDED, MemoryReader
from memlab.sources.mcp_memory_rows import lasting_fields, row_of
from memlab.sources.sqlite_rows import (
    AT_ONCE,
    check_columns,
    named,
    one_moment,
)
from memlab.store.archive_place import archive_path
from memlab.store.looking import again_if_changed
from memlab.store.records import encoded


class McpMemory:
    """The memories of one database of mcp-memory-service.

    Parameters
    ----------
    where : str or Path
        The file, ``~/.local/share/mcp-memory/sqlite_vec.db`` on Linux, with ``mcp-memory:`` before
        it or not.
    """

    scheme: ClassVar[str] = "mcp-memory"
    atomic: ClassVar[bool] = True
    recall_log: ClassVar[str | None] = "the last ten queries in each memory's own metadata"
    protected: frozenset[str] = frozenset()

    def __init__(self, where: str | PathLike[str]) -> None:
        self.path: Path = named(where, self.scheme, ()).path.absolute()

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The absolute path with its scheme, which says that nothing of it is loaded at start."""
        return f"{self.scheme}:{self.path}"

    @property
    def like(self) -> Path:
        """The file, whose owner and permissions the archive gets."""
        return self.path

    @property
    def archive(self) -> Path:
        """The archive beside the file, there or not."""
        return archive_path(self.path)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open the database at one moment, leaving no trace."""
        with one_moment(self.path) as connection:
            check_columns(connection, NEEDED, str(self.path), "mcp-memory-service")
            yield MemoryReader(connection)

    @contextmanager
    def changing(self) -> Iterator[Writer]:
        """Open the database for one transaction, whose commit reaches the disk."""
        from memlab.sources.mcp_memory_changes import opened_for_change

        with opened_for_change(self.path) as writer:
            yield writer

    def rows_of(
        self, records: Iterable[tuple[Key, bytes]], *, with_body: bool = False
    ) -> Iterator[Rows]:
        """Yield archived memories as they were read while they were there."""
        from memlab.sources.tables import rows_of_each

        remaining = iter(records)
        while some := list(islice(remaining, AT_ONCE)):
            rows = [row_of(json.loads(record)) for _, record in some]
            yield rows_of_each(rows, with_body=with_body)

    def facts_of(self, record: bytes) -> Facts:
        """Return a record's id, kind, tags and title."""
        row = row_of(json.loads(record))
        return Facts(row["memory_id"], row["kind"], row["tags_json"], row["title"])

    def lasting(self, record: bytes) -> bytes:
        """Return what of a record a search does not change, nor a neighbour that goes."""
        return encoded(lasting_fields(json.loads(record)))

    def make(
        self,
        path: Path,
        records: Iterable[tuple[Key, bytes]],  # noqa: ARG002 - as other sources do
    ) -> int:
        """Refuse: the service makes its databases itself."""
        raise UnsafeDeletionError(
            f"only mcp-memory-service makes its databases, so nothing was written to {path}: "
            "restore into the database that they came from, or memlab archive STORE --export",
            instead="memlab archive STORE --export memories.jsonl",
        )

    def cap_setting(self, keep: int) -> str | None:  # noqa: ARG002 - the protocol's
        """Return None: the service has no cap."""
        return None

    def about(self) -> ServiceFacts:
        """Return what there is to say of the database beside its frame."""

        def look() -> ServiceFacts:
            with one_moment(self.path) as connection:
                check_columns(connection, NEEDED, str(self.path), "mcp-memory-service")
                return MemoryReader(connection).facts()

        return again_if_changed(look)
