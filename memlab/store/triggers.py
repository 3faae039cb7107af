"""What changing rows of ``memory_items`` would do to other tables of the same file.

An agent keeps tables of its own beside its memories. Triggers write to them, and foreign keys tie
their rows to memories that may go. An archive holds memories alone, so that both are looked at
before anything changes: what no restore would bring back is refused. Standard library only.
"""

import re
import sqlite3
from typing import Final, NamedTuple

from memlab.errors import UnsafeDeletionError
from memlab.store.records import quoted
from memlab.store.signals import SIGNALS, signal_columns

INSERTS: Final = "inserts into"
UPDATES: Final = "updates"
REPLACES: Final = "replaces in"
DELETES: Final = "deletes from"

_DOES: Final = {
    sqlite3.SQLITE_INSERT: INSERTS,
    sqlite3.SQLITE_UPDATE: UPDATES,
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
    for table, rows in _referring(connection, chosen):
        instead = "take them out with the program that wrote them"
        raise UnsafeDeletionError(
            f"{rows:,} row{'s' * (rows != 1)} of the table {table} would refer to nothing, for a "
            f"foreign key ties them to memories that would go; nothing was deleted: {instead}",
            instead=instead,
        )
    return _undone(connection, _GOES, _COMES_BACK)


def is_tied(connection: sqlite3.Connection) -> bool:
    """Whether another table has a foreign key on memories."""
    return bool(_tables_tied(connection))


def check_insertion(connection: sqlite3.Connection) -> None:
    """Check that putting rows back costs no other table anything; changes nothing."""
    _undone(connection, _COMES_BACK, _GOES)


def _undone(connection: sqlite3.Connection, when: str, back: str) -> tuple[TriggerEffect, ...]:
    """Return what a change does to other tables, once it is known that another undoes it."""
    if not _has_triggers(connection):
        return ()
    written, again = (
        _written(connection, [_STATEMENTS[each].format(table) for table in _own_tables(connection)])
        for each in (when, back)
    )
    undone = {each.table for each in again}
    _refuse([each for each in written if each.does != INSERTS and each.table not in undone], when)
    return written


def check_supersession(connection: sqlite3.Connection) -> None:
    """Check that letting a row stand for another costs no other table anything; changes nothing."""
    if _has_triggers(connection):
        update = "UPDATE main.memory_items SET superseded_by = 0 WHERE rowid = 0"
        written = _written(connection, [update])
        again = {each.table for each in written if each.does != DELETES}
        _refuse(
            [each for each in written if each.does == DELETES and each.table not in again],
            "is superseded",
        )


def _refuse(lost: list[TriggerEffect], when: str) -> None:
    for trigger, does, table in lost:
        who = f"the trigger {trigger}" if trigger else "a foreign key"
        instead = "drop it while memlab works, or do without memlab here"
        raise UnsafeDeletionError(
            f"{who} {does} the table {table} when a memory {when}, and nothing brings that back; "
            f"nothing was changed: {instead}",
            instead=instead,
        )


def _has_triggers(connection: sqlite3.Connection) -> bool:
    (enforced,) = connection.execute("PRAGMA foreign_keys").fetchone()
    found = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' UNION ALL "
        "SELECT 1 FROM sqlite_temp_schema WHERE type = 'trigger' LIMIT 1"
    ).fetchone()
    return bool(enforced or found)


def _written(connection: sqlite3.Connection, statements: list[str]) -> tuple[TriggerEffect, ...]:
    """Return what statements would write besides what they name, without carrying them out.

    SQLite asks an authorizer about each table that a statement, its triggers and the triggers of
    these would write to, when it compiles the statement.
    """
    asked: set[tuple[str, str, str]] = set()
    own = _own_tables(connection)

    def note(action: int, table: str | None, _: object, __: object, trigger: str | None) -> int:
        if action in _DOES and table is not None and table.lower() not in own:
            asked.add((trigger or "", _DOES[action], table))
        return sqlite3.SQLITE_OK

    connection.set_authorizer(note)
    try:
        for statement in statements:
            connection.execute(f"EXPLAIN {statement}").close()
    finally:
        connection.set_authorizer(None)
    replacing = {
        name
        for name, sql in connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' UNION ALL "
            "SELECT name, sql FROM sqlite_temp_schema WHERE type = 'trigger'"
        )
        if _REPLACING.search(sql)
    }
    return tuple(
        sorted(
            TriggerEffect(
                trigger, REPLACES if does == INSERTS and trigger in replacing else does, table
            )
            for trigger, does, table in asked
        )
    )


def _tables_tied(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table' "
        "AND sql LIKE '%references%memory_items%'"
    )
    return [table for (table,) in found if table.lower() != "memory_items"]


def _own_tables(connection: sqlite3.Connection) -> list[str]:
    return ["memory_items", *([SIGNALS] if signal_columns(connection) else [])]


def _referring(connection: sqlite3.Connection, chosen: str) -> list[tuple[str, int]]:
    """Return the other tables whose rows refer to the chosen ones by a foreign key."""
    found = []
    for table in _tables_tied(connection):
        ties: dict[int, list[str]] = {}
        for tie, parent, own, theirs in connection.execute(
            'SELECT id, "table", "from", coalesce("to", \'memory_id\') '
            "FROM pragma_foreign_key_list(?)",
            (table,),
        ):
            if parent.lower() == "memory_items":
                ties.setdefault(tie, []).append(f"item.{quoted(theirs)} = other.{quoted(own)}")
        for columns in ties.values():
            (rows,) = connection.execute(
                f"SELECT count(*) FROM main.{quoted(table)} AS other WHERE EXISTS (SELECT 1 FROM "
                f"main.memory_items AS item WHERE {' AND '.join(columns)} AND ({chosen}))"
            ).fetchone()
            if rows:
                found.append((table, rows))
    return found
