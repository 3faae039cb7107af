"""A PostgreSQL server, read in transactions that cannot change anything."""

from collections.abc import Iterator
from typing import Any, Final

from memlab.sources.address import address_of
from memlab.sources.memforge import OPTIONS
from memlab.sources.postgres_server import SCHEMES, one_transaction

_AT_ONCE: Final = 10_000
_COLUMNS: Final = """
SELECT table_name::text, column_name::text FROM information_schema.columns
WHERE table_schema = ANY (current_schemas(false))
"""


def is_server(source: str) -> bool:
    """Whether a source is the URL of a PostgreSQL database."""
    return source.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


def shown(url: str) -> str:
    """Return a URL without its password."""
    return address_of(url).without_password()


def agent_of(url: str) -> str | None:
    """Return the agent whose memories a URL names alone; None for all of them."""
    return address_of(url).options.get("agent") or None


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


def read_server(url: str, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query, some thousand at a time.

    Raises
    ------
    StoreError
        When the server does not answer, refuses, or goes away meanwhile.
    MissingExtraError
        When the driver is not installed.
    """
    agent = agent_of(url)
    settings = {} if agent is None else {"app.current_agent_id": agent}
    with (
        one_transaction(address_of(url), OPTIONS, settings, write=False) as connection,
        connection.cursor(name="memlab") as rows,
    ):
        rows.itersize = _AT_ONCE
        rows.execute(query, values or None)
        yield from rows
