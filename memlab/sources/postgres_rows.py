"""Rows of PostgreSQL, exactly, and the rows of other tables that go with them.

A value is the text that PostgreSQL writes for it and reads again: a number with as many digits as
it needs, a vector, JSON. What a table is, and what refers to it, is read from the catalogue.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from memlab.errors import StoreError, UnsafeDeletionError

Row = dict[str, str | None]

AT_ONCE: Final = 500
"""Rows that one statement reads or writes."""

CASCADE: Final = "c"
SET_NULL: Final = "n"
_SET_DEFAULT: Final = "d"

_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


class Column(NamedTuple):
    """A column that is stored, not generated.

    Attributes
    ----------
    name : str
        Its name.
    type : str
        As SQL declares it.
    has_default : bool
        Whether it is something else than NULL by itself.
    """

    name: str
    type: str
    has_default: bool


class Reference(NamedTuple):
    """A foreign key of one column.

    Attributes
    ----------
    table, column : str
        What refers; the table as SQL writes it.
    to_table, to_column : str
        What is referred to.
    on_delete : str
        :data:`CASCADE`, :data:`SET_NULL`, or another letter of PostgreSQL's.
    """

    table: str
    column: str
    to_table: str
    to_column: str
    on_delete: str


class Table(NamedTuple):
    """A table.

    Attributes
    ----------
    name : str
        As SQL writes it.
    columns : tuple of Column
        In order.
    key : tuple of str
        The primary key.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def text_of(self, alias: str) -> str:
        """Return the SQL that selects every column as text."""
        return ", ".join(f"{alias}.{quoted(column.name)}::text" for column in self.columns)

    def row(self, values: Sequence[str | None]) -> Row:
        """Return a row as a record has it: NULL left out where a row has it by itself."""
        pairs = zip(self.columns, values, strict=True)
        return {c.name: v for c, v in pairs if v is not None or c.has_default}

    def key_of(self, row: Row) -> tuple[str | None, ...]:
        """Return the primary key of a row."""
        return tuple(row.get(name) for name in self.key)


class Catalogue:
    """What a database says of its tables, asked once.

    Parameters
    ----------
    connection : psycopg.Connection
        In a transaction.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._tables: dict[str, Table] = {}
        self._references: dict[str, list[Reference]] = {}

    def table(self, name: str) -> Table:
        """Return a table that is there."""
        if name not in self._tables:
            columns = self._connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod), atthasdef FROM pg_attribute "
                "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
                "AND attgenerated = '' ORDER BY attnum",
                (name,),
            ).fetchall()
            key = self._connection.execute(
                "SELECT a.attname FROM pg_index AS i JOIN pg_attribute AS a "
                "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
                "WHERE i.indrelid = to_regclass(%s) AND i.indisprimary ORDER BY a.attnum",
                (name,),
            ).fetchall()
            self._tables[name] = Table(
                name, tuple(Column(*row) for row in columns), tuple(each for (each,) in key)
            )
        return self._tables[name]

    def exists(self, name: str) -> bool:
        """Whether there is a table of this name that this user can see."""
        (found,) = self._connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()
        return found is not None

    def referring_to(self, name: str) -> list[Reference]:
        """Return what refers to a table, by table and column.

        Raises
        ------
        UnsafeDeletionError
            When something refers to it by several columns, or would be set to a default.
        """
        if name not in self._references:
            self._references[name] = [
                _reference(*row)
                for row in self._connection.execute(_REFERENCES.format("confrelid"), (name,))
            ]
        return self._references[name]

    def referred_to_by(self, name: str) -> list[Reference]:
        """Return what a table refers to by one column each."""
        found = self._connection.execute(_REFERENCES.format("conrelid"), (name,))
        return [_reference(*row) for row in found if len(row[1]) == 1]

    def that_go_with(self, name: str) -> list[Reference]:
        """Return what a deletion in a table reaches, from the table outwards."""
        found: list[Reference] = []
        reached, pending = {name}, [name]
        while pending:
            for reference in self.referring_to(pending.pop(0)):
                if reference.on_delete in (CASCADE, SET_NULL):
                    found.append(reference)
                if reference.on_delete == CASCADE and reference.table not in reached:
                    reached.add(reference.table)
                    pending.append(reference.table)
        return found


_REFERENCES: Final = """
SELECT c.conrelid::regclass::text,
    ARRAY (SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k (n, at)
        JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.n ORDER BY k.at),
    c.confrelid::regclass::text,
    ARRAY (SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY AS k (n, at)
        JOIN pg_attribute AS a ON a.attrelid = c.confrelid AND a.attnum = k.n ORDER BY k.at),
    c.confdeltype::text
FROM pg_constraint AS c WHERE c.contype = 'f' AND c.{} = to_regclass(%s) ORDER BY 1, 2
"""


def _reference(
    table: str, columns: list[str], to_table: str, to_columns: list[str], on_delete: str
) -> Reference:
    if len(columns) != 1 or on_delete == _SET_DEFAULT:
        how = "by several columns" if len(columns) != 1 else "with ON DELETE SET DEFAULT"
        raise UnsafeDeletionError(
            f"the table {table} refers to {to_table} {how}, which could not be put back",
            instead=f"take that foreign key off {table}",
        )
    return Reference(table, columns[0], to_table, to_columns[0], on_delete)


def quoted(name: str) -> str:
    """Return a column's name as SQL, whatever is in it."""
    escaped = name.replace('"', '""').replace("%", "%%")
    return f'"{escaped}"'


def encoded(value: Any) -> bytes:
    """Return a JSON value as canonical bytes."""
    return _JSON.encode(value).encode()


def rows_where(
    connection: Any, table: Table, column: str, values: Sequence[str]
) -> Iterator[tuple[str, Row]]:
    """Yield the rows whose column has one of some values, each with that value."""
    name = quoted(column)
    kind = next(each.type for each in table.columns if each.name == column)
    found = connection.execute(
        f"SELECT t.{name}::text, {table.text_of('t')} FROM {table.name} AS t "
        f"WHERE t.{name} = ANY (%s::text[]::{kind}[])",
        (list(values),),
    )
    for value, *row in found:
        yield value, table.row(row)


def insert_rows(connection: Any, table: Table, rows: Iterable[Row], where: str = "") -> int:
    """Insert rows as they were, every value of its type; return how many went in.

    Parameters
    ----------
    connection : psycopg.Connection
        In a transaction.
    table : Table
        Where they go.
    rows : iterable of dict
        As :meth:`Table.row` returns them.
    where : str
        SQL that says of a row, called ``new``, whether it can go in; by default every one.

    Raises
    ------
    StoreError
        When a row has a value for a column that the table no longer has.
    """
    names = [column.name for column in table.columns]
    alike: dict[tuple[str, ...], list[list[str | None]]] = {}
    for row in rows:
        if lost := [name for name in row if name not in names]:
            raise StoreError(
                f"the table {table.name} no longer has the column {', '.join(lost)}, which an "
                "archived row has a value for; add it again, then restore"
            )
        given = tuple(name for name in names if name in row)
        alike.setdefault(given, []).append([row[name] for name in given])
    types = {column.name: column.type for column in table.columns}
    count = 0
    for given, values in alike.items():
        columns = ", ".join(map(quoted, given))
        typed = ", ".join(f"%s::text::{types[name]} AS {quoted(name)}" for name in given)
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table.name} ({columns}) OVERRIDING SYSTEM VALUE "
                f"SELECT * FROM (SELECT {typed}) AS new {where}",
                values,
            )
            count += cursor.rowcount
    return count


def triggers_on(connection: Any, tables: Mapping[str, int]) -> list[str]:
    """Return the triggers and rules that a change of some tables would set off, by name.

    Parameters
    ----------
    connection : psycopg.Connection
        In a transaction.
    tables : mapping of str to int
        For each table, the events of ``pg_trigger.tgtype`` that are meant.
    """
    found = []
    for table, events in tables.items():
        found += connection.execute(
            "SELECT tgname || ' on ' || tgrelid::regclass FROM pg_trigger "
            "WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal AND tgenabled <> 'D' "
            "AND tgtype & %s <> 0 UNION ALL SELECT rulename || ' on ' || ev_class::regclass "
            "FROM pg_rewrite WHERE ev_class = to_regclass(%s) AND rulename <> '_RETURN'",
            (table, events, table),
        ).fetchall()
    return [name for (name,) in found]
