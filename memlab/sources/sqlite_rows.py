"""Rows of another system's SQLite tables: one moment of them, and their values to the byte."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote

from memlab.errors import MemlabError, StoreError
from memlab.sources.base import Key
from memlab.store.database import connect_reading, sqlite_errors_in_words, store_file
from memlab.store.looking import one_look
from memlab.store.records import quoted, selecting

AT_ONCE: Final = 500
"""Rows that are asked for at once."""


class Named(NamedTuple):
    """What a name such as ``claude-mem:PATH?project=web`` says."""

    path: Path
    options: Mapping[str, str]


def named(where: str | PathLike[str], scheme: str, options: Sequence[str]) -> Named:
    """Take a name apart: a path, with a scheme before it and options after it or without.

    Raises
    ------
    MemlabError
        When there is no such option.

    Examples
    --------
    >>> named("claude-mem:/a/b.db?project=my%20web", "claude-mem", ["project"]).options
    {'project': 'my web'}
    """
    text = fspath(where)
    given: dict[str, str] = {}
    if text.startswith(f"{scheme}:"):
        text, _, query = text.removeprefix(f"{scheme}:").partition("?")
        given = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := given.keys() - set(options):
        raise MemlabError(
            f"{scheme}:{text}: there is no option {min(unknown)!r}; there are {', '.join(options)}"
        )
    return Named(Path(text).expanduser(), {name: value for name, value in given.items() if value})


def name_of(path: Path, scheme: str, options: Mapping[str, str]) -> str:
    """Return the name that says a path and options; the path alone where there are none."""
    if not options:
        return str(path)
    return f"{scheme}:{path}?" + "&".join(f"{n}={quote(v, safe='')}" for n, v in options.items())


@contextmanager
def one_moment(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database at one moment, leaving no trace; text that is no UTF-8 is read as it can be.

    Raises
    ------
    StoreError
        When it cannot be read.
    ChangedWhileReadError
        At the end, when somebody wrote meanwhile.
    """
    with one_look(store_file(path)) as uri, closing(connect_reading(uri)) as connection:
        connection.text_factory = lambda data: data.decode(errors="replace")
        with sqlite_errors_in_words(path):
            connection.execute("BEGIN")
            yield connection


def columns_of(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return a table's columns, none of one that is not there."""
    found = connection.execute(
        "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", (table,)
    )
    return tuple(name for (name,) in found)


def tables_in(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the tables of a database."""
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}


def check_columns(
    connection: sqlite3.Connection, needed: Mapping[str, Iterable[str]], where: str, system: str
) -> None:
    """Check that tables are there with columns that are needed.

    Raises
    ------
    StoreError
        When one is not.
    """
    for table, columns in needed.items():
        found = columns_of(connection, table)
        if not found:
            raise StoreError(f"{where} has no table {table}, so it is no database of {system}'s")
        if missing := [name for name in columns if name not in found]:
            raise StoreError(
                f"{table} in {where} lacks the column {', '.join(missing)}: a version of {system} "
                "that memlab does not know"
            )


def exact_rows(
    connection: sqlite3.Connection, table: str, column: str, values: Iterable[Key]
) -> Iterator[dict[str, Any]]:
    """Yield the rows whose column has one of some values, as JSON values that keep type and bytes.

    NULL is left out. The rows come in no order.
    """
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    columns = columns_of(connection, table)
    readable, chosen = selecting(columns, encoding, "row")
    remaining = iter(values)
    while some := list(islice(remaining, AT_ONCE)):
        factory, connection.text_factory = connection.text_factory, bytearray
        try:
            rows = connection.execute(
                f"SELECT {chosen} FROM main.{quoted(table)} AS row "
                f"WHERE row.{quoted(column)} IN ({', '.join('?' * len(some))})",
                some,
            ).fetchall()
        finally:
            connection.text_factory = factory
        for row in rows:
            pairs = zip(columns, readable(row), strict=True)
            yield {name: value for name, value in pairs if value is not None}
