"""A PostgreSQL server, read in transactions that cannot change anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from memlab.errors import StoreError
from memlab.extras import import_extra

_AT_ONCE: Final = 10_000
_COLUMNS: Final = """
SELECT table_name::text, column_name::text FROM information_schema.columns
WHERE table_schema = ANY (current_schemas(false))
"""
_SECONDS: Final = 10


def is_server(source: str) -> bool:
    """Whether a source is the URL of a PostgreSQL database."""
    return source.startswith(("postgresql://", "postgres://"))


def shown(url: str) -> str:
    """Return a URL without its password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def tables_on(url: str) -> dict[str, set[str]]:
    """Return the columns of a database's tables.

    Raises
    ------
    StoreError
        When the server does not answer or refuses.
    """
    tables: dict[str, set[str]] = {}
    for table, column in read_server(url, _COLUMNS):
        tables.setdefault(table, set()).add(column)
    return tables


def read_server(url: str, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query, some thousand at a time.

    Raises
    ------
    StoreError
        When the server does not answer, refuses, or goes away meanwhile.
    MissingExtraError
        When the driver is not installed.
    """
    psycopg = import_extra("psycopg", extra="postgresql")
    with _errors_in_words(psycopg, url), psycopg.connect(url, connect_timeout=_SECONDS) as server:
        server.read_only = True
        with server.cursor(name="memlab") as rows:
            rows.itersize = _AT_ONCE
            rows.execute(query)
            yield from rows


@contextmanager
def _errors_in_words(psycopg: Any, url: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        said = str(error).strip().partition("\n")[0]
        raise StoreError(
            f"{shown(url)} cannot be read ({said}); check the address, the database and the role"
        ) from error
