"""Read and change tables on a PostgreSQL server: transactions, errors, and exact rows."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

from memlab.errors import ArchiveError, ChangedWhileReadError, StoreError, UnsafeDeletionError
from memlab.lazy import import_extra
from memlab.sources.address import Address, Messages, address_of, translated_errors

SCHEMES: Final = ("postgresql", "postgres")
OPTIONS: Final = ("agent", "archive")
"""Options of a URL that memlab uses itself and does not pass on to libpq."""

Row = dict[str, str | None]
"""The values of a row as text, by column."""
Selected = list[tuple[Any, ...]]
"""The rows of a query."""

_ROWS_PER_BATCH: Final = 5_000
"""Number of rows of a query that are read at once."""

# Values of pg_constraint.confdeltype: what a deletion does to the referring rows.
CASCADE: Final = "c"
SET_NULL: Final = "n"
_SET_DEFAULT: Final = "d"

_CONNECT_TIMEOUT: Final = 10
"""Timeout in seconds for connecting."""
_SETTINGS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "0",
    "statement_timeout": "0",
}
"""Settings that fix the text form of values and the timeouts of a transaction."""
_AGENT: Final = "app.current_agent_id"
"""The setting from which MemForge's row-level security takes the agent."""

_ADVICE_AFTER_REFUSAL: Final = {
    "InvalidPassword": "give the password in PGPASSWORD or in a file ~/.pgpass",
    "InsufficientPrivilege": "grant it, or connect as the owner of the tables",
    "LockNotAvailable": "another program keeps a memory locked; try again when it has finished",
    "DeadlockDetected": "somebody changes the same memories; try again",
    "ReadOnlySqlTransaction": "it is a standby or set read-only; name its primary",
    "QueryCanceled": "somebody or a setting of the server cancelled it; try again",
    "DiskFull": "make room on its disk",
    "UndefinedTable": "check the database's name and its search_path",
}
_MESSAGES: Final[Messages] = {
    **{name: "refuses ({answer}); " + advice for name, advice in _ADVICE_AFTER_REFUSAL.items()},
    "SerializationFailure": (
        ChangedWhileReadError,
        "was changed at the same time; nothing was changed: try again",
    ),
    "IntegrityError": (
        ArchiveError,
        "refuses: {answer}; nothing was changed: look at the table that it names",
    ),
    "OperationalError": "does not answer ({answer}); check the address, the login and that the "
    "server runs, then try again",
    "Error": "refuses: {answer}",
    "UnicodeDecodeError": "holds text that is not UTF-8; mend its encoding",
}


@contextmanager
def one_transaction(address: Address, *, write: bool) -> Iterator[Any]:
    """Yield a connection in a repeatable-read transaction, then commit it or roll it back."""
    psycopg = import_extra("psycopg", extra="postgresql")
    name = address.without_password(*OPTIONS)
    with translated_errors(name, address, (psycopg.Error, UnicodeDecodeError), _MESSAGES):
        connection = psycopg.connect(
            name,
            **address.secrets,
            connect_timeout=_CONNECT_TIMEOUT,
            client_encoding="utf8",
            application_name="memlab",
        )
        with connection:  # commits at the end, or rolls back; then closes
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = not write
            settings = dict(_SETTINGS)
            agent = address.options.get("agent")
            if agent:
                settings[_AGENT] = agent
            calls = ", ".join("set_config(%s, %s, true)" for _ in settings)
            names_and_values = list(chain.from_iterable(settings.items()))
            connection.execute(f"SELECT {calls}", names_and_values)
            yield connection


@contextmanager
def translated_value_errors() -> Iterator[None]:
    """Raise StoreError for answers of the server that have unexpected types."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        check = "check that it is PostgreSQL, with the tables that MemForge makes"
        message = f"the server answers with other values than it was asked for ({error!s:.80})"
        raise StoreError(f"{message}; {check}") from error


@translated_value_errors()
def selected(
    connection: Any, query: str, parameters: Sequence[Any], *expected_types: Any
) -> Selected:
    """Return the rows of a query; raise StoreError if a value has another type."""
    rows: Selected = connection.execute(query, parameters).fetchall()
    for row in rows:
        for value, expected in zip(row, expected_types, strict=True):
            if not isinstance(value, expected):
                raise TypeError(f"{value!r:.40} is none of {expected}")
    return rows


@translated_value_errors()
def single_value(connection: Any, query: str, parameters: Sequence[Any], kind: Any) -> Any:
    """Return the value of a query whose result is one row of one column."""
    (row,) = selected(connection, query, parameters, kind)
    (value,) = row
    return value


def hides_rows(connection: Any, table: str) -> bool:
    """Return whether row-level security may hide rows of a table from the current user."""
    query = "SELECT row_security_active(to_regclass(%s))"
    return bool(single_value(connection, query, (table,), bool))


def is_server(source: str) -> bool:
    """Return whether a source is the URL of a PostgreSQL database."""
    return any(source.startswith(f"{scheme}://") for scheme in SCHEMES)


def streamed(connection: Any, query: str, values: Any) -> Iterator[Selected]:
    """Yield the rows of a query in batches."""
    with connection.cursor(name="memlab") as cursor:
        cursor.itersize = _ROWS_PER_BATCH
        cursor.execute(query, values)
        while True:
            with translated_value_errors():
                batch = cursor.fetchmany(_ROWS_PER_BATCH)
            if not batch:
                return
            yield batch


def read_server(url: str, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query."""
    with one_transaction(address_of(url), write=False) as connection:
        for batch in streamed(connection, query, values or None):
            yield from batch


def tables_on(url: str) -> dict[str, set[str]]:
    """Return the columns of each table of a database."""
    tables: dict[str, set[str]] = {}
    for table, column in read_server(
        url,
        "SELECT table_name::text, column_name::text FROM information_schema.columns "
        "WHERE table_schema = ANY (current_schemas(false))",
    ):
        tables.setdefault(table, set()).add(column)
    return tables


class Reference(NamedTuple):
    """A foreign key of one column.

    Attributes
    ----------
    table, column : str
        The column that refers to another.
    to_table, to_column : str
        The column that it refers to.
    on_delete : str
        The effect of a deletion there on the referring rows, such as :data:`CASCADE`.
    """

    table: str
    column: str
    to_table: str
    to_column: str
    on_delete: str


class Table(NamedTuple):
    """A table and its columns without generated ones.

    Attributes
    ----------
    name : str
        Its name.
    types : mapping of str to str
        The type of each column.
    defaulted : frozenset of str
        Columns with a default value.
    key : tuple of str
        Columns of the primary key.
    """

    name: str
    types: Mapping[str, str]
    defaulted: frozenset[str]
    key: tuple[str, ...]

    def key_of(self, row: Row) -> tuple[str | None, ...]:
        """Return the primary key of a row."""
        return tuple(row.get(name) for name in self.key)


class Catalogue:
    """The tables and foreign keys of a database. Each is queried once."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.table = cache(self._table)
        self.referring_to = cache(self._referring_to)

    def foreign_keys_that_change_rows(self, name: str) -> list[Reference]:
        """Return the foreign keys through which a deletion in a table changes other rows."""
        references: list[Reference] = []
        to_visit = deque([name])
        visited = {name}
        while to_visit:
            for reference in self.referring_to(to_visit.popleft()):
                if reference.on_delete in (CASCADE, SET_NULL):
                    references.append(reference)
                if reference.on_delete == CASCADE and reference.table not in visited:
                    visited.add(reference.table)
                    to_visit.append(reference.table)
        return references

    def _table(self, name: str) -> Table:
        """Return a table. One that does not exist or is not visible has no columns."""
        columns = selected(
            self._connection,
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.atthasdef, "
            "coalesce(a.attnum = ANY (i.indkey), false) FROM pg_attribute AS a "
            "LEFT JOIN pg_index AS i ON i.indrelid = a.attrelid AND i.indisprimary "
            "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped "
            "AND a.attgenerated = '' ORDER BY a.attnum",
            (name,),
            str,
            str,
            bool,
            bool,
        )
        return Table(
            name=name,
            types={column: kind for column, kind, _, _ in columns},
            defaulted=frozenset(column for column, _, has_default, _ in columns if has_default),
            key=tuple(column for column, _, _, is_key in columns if is_key),
        )

    def _referring_to(self, name: str) -> list[Reference]:
        """Return the foreign keys that refer to a table, in order of table and column."""
        references = []
        for reference in selected(
            self._connection,
            "SELECT c.conrelid::regclass::text, a.attname::text, c.confrelid::regclass::text, "
            "b.attname::text, c.confdeltype::text, cardinality(c.conkey) FROM pg_constraint AS c "
            "JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1] "
            "JOIN pg_attribute AS b ON b.attrelid = c.confrelid AND b.attnum = c.confkey[1] "
            "WHERE c.contype = 'f' AND c.confrelid = to_regclass(%s) ORDER BY 1, 2",
            (name,),
            str,
            str,
            str,
            str,
            str,
            int,
        ):
            table, column, to_table, to_column, on_delete, column_count = reference
            if column_count > 1 or on_delete == _SET_DEFAULT:
                manner = "by several columns" if column_count > 1 else "with ON DELETE SET DEFAULT"
                raise UnsafeDeletionError(
                    f"the table {table} refers to {to_table} {manner}, which a restore could not "
                    f"undo; remove that foreign key from {table}"
                )
            references.append(Reference(table, column, to_table, to_column, on_delete))
        return references


def quoted(name: str) -> str:
    """Return the name of a column, quoted for SQL."""
    escaped = name.replace('"', '""').replace("%", "%%")
    return f'"{escaped}"'


@translated_value_errors()
def rows_where(
    connection: Any, table: Table, column: str, values: Sequence[str]
) -> list[tuple[str, Row]]:
    """Return the rows whose column has one of `values`, each with its value.

    A NULL is left out, unless the column has a default.
    """
    name = quoted(column)
    columns = ", ".join(f"t.{quoted(other)}::text" for other in table.types)
    types_of_columns = [str | None] * len(table.types)
    rows = []
    for value, *row in selected(
        connection,
        f"SELECT t.{name}::text, {columns} FROM {table.name} AS t "
        f"WHERE t.{name} = ANY (%s::text[]::{table.types[column]}[])",
        (list(values),),
        str,
        *types_of_columns,
    ):
        texts = dict(zip(table.types, row, strict=True))
        fields = {
            field: text
            for field, text in texts.items()
            if text is not None or field in table.defaulted
        }
        rows.append((value, fields))
    return rows


def insert_rows(connection: Any, table: Table, rows: Iterable[Row], on_conflict: str = "") -> int:
    """Insert rows with exact values, and return the number of inserted rows.

    `on_conflict` is the last clause of the statement, such as ``ON CONFLICT DO NOTHING``.
    """
    values_by_columns: dict[tuple[str, ...], list[list[str | None]]] = {}
    for row in rows:
        missing_columns = [name for name in row if name not in table.types]
        if missing_columns:
            raise StoreError(
                f"the table {table.name} no longer has the column {', '.join(missing_columns)}, "
                "which an archived row has a value for; add it again, then restore"
            )
        names = tuple(name for name in table.types if name in row)
        values_by_columns.setdefault(names, []).append([row[name] for name in names])
    count = 0
    for names, values in values_by_columns.items():
        columns = ", ".join(map(quoted, names))
        typed = ", ".join(f"%s::text::{table.types[name]}" for name in names)
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table.name} ({columns}) OVERRIDING SYSTEM VALUE "
                f"VALUES ({typed}) {on_conflict}",
                values,
            )
            count += cursor.rowcount
    return count


def triggers_on(connection: Any, tables: Mapping[str, int]) -> list[str]:
    """Return the names of the triggers and rules that a change of some tables would fire.

    `tables` has for each table the events of the change, as bits of ``pg_trigger.tgtype``.
    """
    names = []
    for table, events in tables.items():
        rows = selected(
            connection,
            "SELECT tgname || ' on ' || tgrelid::regclass FROM pg_trigger "
            "WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal AND tgenabled <> 'D' "
            "AND tgtype & %s <> 0 UNION ALL SELECT rulename || ' on ' || ev_class::regclass "
            "FROM pg_rewrite WHERE ev_class = to_regclass(%s) AND rulename <> '_RETURN'",
            (table, events, table),
            str,
        )
        names += [name for (name,) in rows]
    return names
