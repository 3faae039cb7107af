"""Which rows of ``memory_items`` may go, and the one statement that deletes them.

What a change would do to an agent's own tables is looked at before, and refused where no restore
would undo it.
"""

import re
import sqlite3
from functools import cache
from typing import Final, NamedTuple

from memlab.errors import BadRowError, CompactionError, UnsafeDeletionError
from memlab.items import is_load_bearing_stored
from memlab.store.database import text_as_bytearray
from memlab.store.records import fingerprint_under_triggers, quoted
from memlab.store.signals import HAS_SIGNALS, SIGNALS, signal_columns

INSERTS: Final = "inserts into"
DELETES: Final = "deletes from"
_DOES: Final = {
    sqlite3.SQLITE_INSERT: INSERTS,
    sqlite3.SQLITE_UPDATE: "updates",
    sqlite3.SQLITE_DELETE: DELETES,
}
_REPLACING: Final = re.compile(r"\bREPLACE\s+INTO\b|\bOR\s+REPLACE\b", re.IGNORECASE)

_GOES = "goes"
_COMES_BACK = "comes back"
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
    for table, columns in ties(connection):
        (rows,) = connection.execute(
            f"SELECT count(*) FROM main.{quoted(table)} AS other WHERE EXISTS (SELECT 1 FROM "
            f"main.memory_items AS item WHERE {' AND '.join(columns)} AND ({chosen}))"
        ).fetchone()
        if rows:
            raise UnsafeDeletionError(
                f"{rows:,} row{'s' * (rows != 1)} of the table {table} would refer to nothing, for "
                "a foreign key ties them to memories that would go; nothing was deleted: take them "
                "out with the program that wrote them"
            )
    return _undone(connection, _GOES, _COMES_BACK)


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
        raise UnsafeDeletionError(
            f"{who} {does} the table {table} when a memory {when}, and nothing brings that back; "
            "nothing was changed: drop it while memlab works, or do without memlab here"
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


def ties(connection: sqlite3.Connection) -> list[tuple[str, list[str]]]:
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


# BINARY: a table may declare its columns NOCASE. IN, not EXISTS: a subquery that looks at the row
# would keep SQLite from deleting while it scans.
_PRUNABLE_PAIR: Final = (
    "(kind COLLATE BINARY, tags_json COLLATE BINARY) "
    "IN (SELECT kind, tags_json FROM temp.prunable_pairs)"
)
_NOT_PRUNABLE: Final = f"{_PRUNABLE_PAIR} IS NOT TRUE"
_ACTIVE_PRUNABLE: Final = f"superseded_by IS NULL AND {_PRUNABLE_PAIR}"
_HIGHEST_ROWID: Final = 2**63 - 1


def classify_rows(connection: sqlite3.Connection, protected: frozenset[str] = frozenset()) -> int:
    """Ask the predicate once per distinct kind and tags, and keep the prunable pairs.

    In a transaction; the pairs stay in ``temp.prunable_pairs`` until :func:`forget_verdicts`.
    Superseded rows that cannot be classified count as load-bearing.
    """
    forget_verdicts(connection)
    connection.execute(
        "CREATE TEMP TABLE prunable_pairs "
        "(kind, tags_json, PRIMARY KEY (kind, tags_json)) WITHOUT ROWID"
    )
    verdict = cache(is_load_bearing_stored)
    load_bearing = 0
    with text_as_bytearray(connection):
        # Once a pair is known to be prunable, its rows are passed over in SQL.
        for position, kind, tags_json, active in connection.execute(
            f"SELECT rowid, kind, tags_json, superseded_by IS NULL FROM memory_items "
            f"WHERE {_NOT_PRUNABLE} ORDER BY rowid"
        ):
            try:
                pair = _decoded(kind), _decoded(tags_json)
                is_load_bearing = verdict(*pair, protected)
            except ValueError as error:
                if active:
                    raise _unclassifiable(connection, position, error) from error
                is_load_bearing = True
            if is_load_bearing:
                load_bearing += 1
            else:
                connection.execute("INSERT OR IGNORE INTO temp.prunable_pairs VALUES (?, ?)", pair)
    return load_bearing


def surplus_condition(connection: sqlite3.Connection, keep_recent: int) -> str | None:
    """Return, as SQL, which classified rows a cap leaves no room for; None where there are none."""
    cut = connection.execute(
        f"SELECT rowid FROM memory_items WHERE {_ACTIVE_PRUNABLE} "
        "ORDER BY rowid DESC LIMIT 1 OFFSET ?",
        (min(keep_recent, _HIGHEST_ROWID),),
    ).fetchone()
    return None if cut is None else f"rowid <= {cut[0]} AND {_ACTIVE_PRUNABLE}"


def delete_rows(connection: sqlite3.Connection, chosen: str, load_bearing: int) -> int:
    """Delete the `chosen` rows and check that every load-bearing one is there, unchanged."""
    check_deletion(connection, chosen)
    staying = fingerprint_under_triggers(connection, f"({chosen}) IS NOT TRUE")
    before = connection.total_changes
    beside = 0
    if signal_columns(connection):
        beside = connection.execute(
            f"DELETE FROM main.{SIGNALS} AS signal WHERE EXISTS (SELECT 1 FROM main.memory_items "
            f"AS item WHERE {HAS_SIGNALS} AND ({chosen}))"
        ).rowcount
    deleted = connection.execute(f"DELETE FROM memory_items WHERE {chosen}").rowcount
    changed = connection.total_changes - before - deleted - beside
    left = count_load_bearing(connection, "TRUE")
    wrong = ""
    look_for = "a trigger"
    if changed and staying is None:
        wrong = f"changed {changed} others"
        look_for = "foreign keys"
    elif left != load_bearing:
        wrong = f"left {left} of {load_bearing} load-bearing rows"
    elif staying != fingerprint_under_triggers(connection, "TRUE"):
        wrong = "changed or kept others than were chosen"
    if wrong:
        raise CompactionError(
            f"deleting {deleted} rows would have {wrong}; all was rolled back: look for {look_for} "
            "on memory_items in the store"
        )
    return deleted


def count_load_bearing(connection: sqlite3.Connection, chosen: str) -> int:
    """Return how many of the `chosen` rows nothing deletes; call :func:`classify_rows` before."""
    where = f"({chosen}) AND {_NOT_PRUNABLE}"
    (count,) = connection.execute(f"SELECT count(*) FROM memory_items WHERE {where}").fetchone()
    return int(count)


def forget_verdicts(connection: sqlite3.Connection) -> None:
    """Drop what :func:`classify_rows` found."""
    connection.execute("DROP TABLE IF EXISTS temp.prunable_pairs")


def _decoded(value: object) -> str:
    if not isinstance(value, bytearray):
        raise ValueError("kind or tags_json is not text")  # noqa: TRY004 - a row at fault, no caller
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError("kind or tags_json is not UTF-8") from error


def _unclassifiable(
    connection: sqlite3.Connection, position: int, error: ValueError
) -> BadRowError:
    """Name the row at `position`, whatever type its id has."""
    found = connection.execute(
        "SELECT CAST(memory_id AS BLOB) FROM memory_items WHERE rowid = ?", (position,)
    ).fetchone()
    # Of a damaged file SQLite may find a row in one way and not in another.
    name = None if found is None or found[0] is None else found[0].decode(errors="replace")
    return BadRowError(
        f"row {position} (memory_id {name!r}) cannot be classified: {error}; nothing was deleted: "
        "mend that row, then compact",
        position=position,
        memory_id=name,
    )
