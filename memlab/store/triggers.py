"""What changing rows would do to an agent's own tables: what no restore would undo is refused."""

import re
import sqlite3
from typing import Final, NamedTuple

from memlab.errors import UnsafeDeletionError
from memlab.store.records import quoted
from memlab.store.signals import SIGNALS, signal_columns

INSERTS: Final = "inserts into"
DELETES: Final = "deletes from"
_DOES: Final = {
    sqlite3.SQLITE_INSERT: INSERTS,
    sqlite3.SQLITE_UPDATE: "updates",
    sqlite3.SQLITE_DELETE: DELETES,
}
_REPLACING: Final = re.compile(r"\bREPLACE\s+INTO\b|\bOR\s+REPLACE\b", re.IGNORECASE)

_GOES, _COMES_BACK = "goes", "comes back"
_STATEMENTS: Final = {
    _GOES: "DELETE FROM main.{} WHERE memory_id = 0",
    _COMES_BACK: "INSERT INTO main.{} (memory_id) VALUES (0)",
}
"""What is done to the tables of a row and of what belongs to it."""


class TriggerEffect(NamedTuple):
    """A table of others that a trigger writes to when memories go."""

    trigger: str
    does: str
    table: str


def check_deletion(connection: sqlite3.Connection, chosen: str) -> tuple[TriggerEffect, ...]:
    """Check that deleting the `chosen` rows costs no other table anything; changes nothing."""
    for table, columns in _ties(connection):
        (rows,) = connection.execute(
            f"SELECT count(*) FROM main.{quoted(table)} AS other WHERE EXISTS (SELECT 1 FROM "
            f"main.memory_items AS item WHERE {' AND '.join(columns)} AND ({chosen}))"
        ).fetchone()
        if rows:
            instead = "take them out with the program that wrote them"
            raise UnsafeDeletionError(
                f"{rows:,} row{'s' * (rows != 1)} of the table {table} would refer to nothing, for "
                "a foreign key ties them to memories that would go; nothing was deleted: "
                f"{instead}"
            )
    return _undone(connection, _GOES, _COMES_BACK)


def is_tied(connection: sqlite3.Connection) -> bool:
    """Whether another table has a foreign key on memories."""
    return bool(_ties(connection))


def check_insertion(connection: sqlite3.Connection) -> None:
    """Check that putting rows back costs no other table anything; changes nothing."""
    _undone(connection, _COMES_BACK, _GOES)


def _undone(connection: sqlite3.Connection, when: str, back: str) -> tuple[TriggerEffect, ...]:
    """Return what a change does to other tables, once it is known that another undoes it."""
    written, again = (_written(connection, _STATEMENTS[each]) for each in (when, back))
    undone = {each.table for each in again}
    _refuse([each for each in written if each.does != INSERTS and each.table not in undone], when)
    return written


def check_supersession(connection: sqlite3.Connection) -> None:
    """Check that letting a row stand for another costs no other table anything; changes nothing."""
    update = "UPDATE main.memory_items SET superseded_by = 0 WHERE rowid = 0"
    written = _written(connection, update)
    again = {each.table for each in written if each.does != DELETES}
    lost = [each for each in written if each.does == DELETES and each.table not in again]
    _refuse(lost, "is superseded")


def _refuse(lost: list[TriggerEffect], when: str) -> None:
    for trigger, does, table in lost:
        who = f"the trigger {trigger}" if trigger else "a foreign key"
        instead = "drop it while memlab works, or do without memlab here"
        raise UnsafeDeletionError(
            f"{who} {does} the table {table} when a memory {when}, and nothing brings that back; "
            f"nothing was changed: {instead}"
        )


def _written(connection: sqlite3.Connection, statement: str) -> tuple[TriggerEffect, ...]:
    """Return what a statement would write to other tables, by SQLite's authorizer; none is run."""
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' UNION ALL "
        "SELECT name, sql FROM sqlite_temp_schema WHERE type = 'trigger'"
    ).fetchall()
    if not (triggers or connection.execute("PRAGMA foreign_keys").fetchone()[0]):
        return ()
    asked: set[tuple[str, str, str]] = set()
    own = ["memory_items", *([SIGNALS] if signal_columns(connection) else [])]

    def note(action: int, table: str | None, _: object, __: object, trigger: str | None) -> int:
        if action in _DOES and table is not None and table.lower() not in own:
            asked.add((trigger or "", _DOES[action], table))
        return sqlite3.SQLITE_OK

    connection.set_authorizer(note)
    try:
        for table in own:
            connection.execute("EXPLAIN " + statement.format(table)).close()
    finally:
        connection.set_authorizer(None)
    replacing = {name for name, sql in triggers if _REPLACING.search(sql)}
    found = (
        (trigger, "replaces in" if does == INSERTS and trigger in replacing else does, table)
        for trigger, does, table in asked
    )
    return tuple(TriggerEffect(*each) for each in sorted(found))


def _ties(connection: sqlite3.Connection) -> list[tuple[str, list[str]]]:
    """Return, for each foreign key of another table on memories, which columns must be the same."""
    keys = connection.execute(
        'SELECT item.name, key.id, key."from", coalesce(key."to", \'memory_id\') '
        "FROM main.sqlite_schema AS item, pragma_foreign_key_list(item.name) AS key WHERE "
        "item.type = 'table' AND lower(key.\"table\") = 'memory_items' "
        "AND lower(item.name) <> 'memory_items'"
    )
    ties: dict[tuple[str, int], list[str]] = {}
    for table, key, own, theirs in keys:
        same = f"item.{quoted(theirs)} = other.{quoted(own)}"
        ties.setdefault((table, key), []).append(same)
    return [(table, columns) for (table, _), columns in ties.items()]
