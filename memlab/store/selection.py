"""Selection and deletion of rows of ``memory_items``, with checks of the effects on other tables.

An effect that no restoration would undo is refused before anything is changed.
"""

import re
import sqlite3
from functools import cache
from typing import Final, NamedTuple

from memlab.errors import BadRowError, CompactionError, UnsafeDeletionError
from memlab.items import is_load_bearing_stored
from memlab.store.database import text_read_as
from memlab.store.records import fingerprint_under_triggers, quoted
from memlab.store.signals import HAS_SIGNALS, SIGNALS, signal_columns

INSERTS: Final = "inserts into"
DELETES: Final = "deletes from"
_VERBS: Final = {
    sqlite3.SQLITE_INSERT: INSERTS,
    sqlite3.SQLITE_UPDATE: "updates",
    sqlite3.SQLITE_DELETE: DELETES,
}
_REPLACE_STATEMENT: Final = re.compile(r"\bREPLACE\s+INTO\b|\bOR\s+REPLACE\b", re.IGNORECASE)

_DELETION = "goes"
_INSERTION = "comes back"
_STATEMENT_FOR: Final = {
    _DELETION: "DELETE FROM main.{} WHERE memory_id = 0",
    _INSERTION: "INSERT INTO main.{} (memory_id) VALUES (0)",
}
"""Statement for each change of a memory. The keys are the verbs that messages use.

A statement names no row, because it is only prepared."""


class TriggerEffect(NamedTuple):
    """A table of other programs that a trigger or a foreign key writes to with a change.

    Attributes
    ----------
    trigger : str
        The trigger; empty for a foreign key.
    verb : str
        What is done to the table, as a verb.
    table : str
        The table.
    """

    trigger: str
    verb: str
    table: str


def check_deletion(connection: sqlite3.Connection, condition: str) -> tuple[TriggerEffect, ...]:
    """Check that deleting rows has no permanent effect on other tables; change nothing.

    Parameters
    ----------
    connection : sqlite3.Connection
        The store.
    condition : str
        The SQL condition of the rows.

    Returns
    -------
    tuple of TriggerEffect
        The effects on other tables, which restoration undoes.

    Raises
    ------
    UnsafeDeletionError
        If a foreign key or a trigger ties other tables to the rows.
    """
    for table, join_conditions in foreign_keys_on_memories(connection):
        (rows,) = connection.execute(
            f"SELECT count(*) FROM main.{quoted(table)} AS other WHERE EXISTS (SELECT 1 FROM "
            f"main.memory_items AS item WHERE {' AND '.join(join_conditions)} AND ({condition}))"
        ).fetchone()
        if rows:
            plural = "" if rows == 1 else "s"
            raise UnsafeDeletionError(
                f"{rows:,} row{plural} of the table {table} would refer to nothing, "
                "because a foreign key ties them to memories that would be deleted; nothing was "
                "deleted: remove these rows with the program that wrote them"
            )
    return _check_reversible(connection, _DELETION, _INSERTION)


def check_insertion(connection: sqlite3.Connection) -> None:
    """Check that inserting rows again has no permanent effect on other tables; change nothing."""
    _check_reversible(connection, _INSERTION, _DELETION)


def _check_reversible(
    connection: sqlite3.Connection, change: str, opposite: str
) -> tuple[TriggerEffect, ...]:
    """Return the effects of a change on other tables, if the opposite change undoes them.

    Insertions into other tables, such as into a log of changes, need not be undone. Another effect
    counts as undone if the opposite change writes to the same table. Raise UnsafeDeletionError if
    one is not undone.
    """
    written = _effects_of(connection, _STATEMENT_FOR[change])
    rewritten_tables = {
        effect.table for effect in _effects_of(connection, _STATEMENT_FOR[opposite])
    }
    permanent = [
        effect
        for effect in written
        if effect.verb != INSERTS and effect.table not in rewritten_tables
    ]
    _refuse_permanent(permanent, change)
    return written


def check_supersession(connection: sqlite3.Connection) -> None:
    """Check that superseding a row has no permanent effect on other tables; change nothing."""
    update = "UPDATE main.memory_items SET superseded_by = 0 WHERE rowid = 0"
    written = _effects_of(connection, update)
    # A trigger that deletes rows and writes new ones to the same table replaces them.
    rewritten_tables = {effect.table for effect in written if effect.verb != DELETES}
    permanent = [
        effect
        for effect in written
        if effect.verb == DELETES and effect.table not in rewritten_tables
    ]
    _refuse_permanent(permanent, "is superseded")


def _refuse_permanent(permanent: list[TriggerEffect], change: str) -> None:
    """Raise UnsafeDeletionError if there is an effect that nothing undoes."""
    for trigger, verb, table in permanent:
        who = f"the trigger {trigger}" if trigger else "a foreign key"
        raise UnsafeDeletionError(
            f"{who} {verb} the table {table} when a memory {change}, and nothing brings that back; "
            "nothing was changed: drop it while memlab works, or do without memlab here"
        )


def _effects_of(connection: sqlite3.Connection, statement: str) -> tuple[TriggerEffect, ...]:
    """Return the writes of a statement to other tables, as SQLite's authorizer reports them.

    The statement is only prepared, not run.
    """
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' UNION ALL "
        "SELECT name, sql FROM sqlite_temp_schema WHERE type = 'trigger'"
    ).fetchall()
    (enforces_foreign_keys,) = connection.execute("PRAGMA foreign_keys").fetchone()
    if not triggers and not enforces_foreign_keys:
        return ()
    writes: set[tuple[str, str, str]] = set()
    own_tables = ["memory_items"]
    if signal_columns(connection):
        own_tables.append(SIGNALS)

    def record_write(
        action: int, table: str | None, _: object, __: object, trigger: str | None
    ) -> int:
        if action in _VERBS and table is not None and table.lower() not in own_tables:
            writes.add((trigger or "", _VERBS[action], table))
        return sqlite3.SQLITE_OK

    connection.set_authorizer(record_write)
    try:
        for table in own_tables:
            connection.execute("EXPLAIN " + statement.format(table)).close()
    finally:
        connection.set_authorizer(None)
    replacing_triggers = {name for name, sql in triggers if _REPLACE_STATEMENT.search(sql)}
    effects = []
    for trigger, verb, table in writes:
        if verb == INSERTS and trigger in replacing_triggers:
            effects.append(TriggerEffect(trigger, "replaces in", table))
        else:
            effects.append(TriggerEffect(trigger, verb, table))
    return tuple(sorted(effects))


def foreign_keys_on_memories(connection: sqlite3.Connection) -> list[tuple[str, list[str]]]:
    """Return each foreign key of another table on memories: the table, and its join conditions."""
    rows = connection.execute(
        'SELECT item.name, key.id, key."from", coalesce(key."to", \'memory_id\') '
        "FROM main.sqlite_schema AS item, pragma_foreign_key_list(item.name) AS key WHERE "
        "item.type = 'table' AND lower(key.\"table\") = 'memory_items' "
        "AND lower(item.name) <> 'memory_items'"
    )
    conditions_by_key: dict[tuple[str, int], list[str]] = {}
    for table, key, column, memory_column in rows:
        condition = f"item.{quoted(memory_column)} = other.{quoted(column)}"
        conditions_by_key.setdefault((table, key), []).append(condition)
    return [(table, conditions) for (table, _), conditions in conditions_by_key.items()]


# Texts are compared as BINARY, because a table may declare its columns as NOCASE. The condition
# uses IN. With EXISTS and a subquery on the row, SQLite would first collect the rows and then
# delete them, instead of deleting during its scan.
_PRUNABLE_PAIR: Final = (
    "(kind COLLATE BINARY, tags_json COLLATE BINARY) "
    "IN (SELECT kind, tags_json FROM temp.prunable_pairs)"
)
_NOT_PRUNABLE: Final = f"{_PRUNABLE_PAIR} IS NOT TRUE"
_ACTIVE_PRUNABLE: Final = f"superseded_by IS NULL AND {_PRUNABLE_PAIR}"
_HIGHEST_ROWID: Final = 2**63 - 1


def classify_rows(connection: sqlite3.Connection, protected: frozenset[str] = frozenset()) -> int:
    """Classify each distinct pair of kind and tags once; return the number of load-bearing rows.

    The prunable pairs stay in ``temp.prunable_pairs`` until :func:`drop_classification`. Superseded
    rows that cannot be classified count as load-bearing. The caller has begun a transaction.

    Raises
    ------
    BadRowError
        If an active row cannot be classified.
    """
    drop_classification(connection)
    connection.execute(
        "CREATE TEMP TABLE prunable_pairs "
        "(kind, tags_json, PRIMARY KEY (kind, tags_json)) WITHOUT ROWID"
    )
    is_load_bearing_pair = cache(is_load_bearing_stored)
    load_bearing = 0
    with text_read_as(connection):
        # Rows of a pair that is known to be prunable are skipped in SQL.
        for position, kind, tags_json, active in connection.execute(
            f"SELECT rowid, kind, tags_json, superseded_by IS NULL FROM memory_items "
            f"WHERE {_NOT_PRUNABLE} ORDER BY rowid"
        ):
            try:
                pair = _decoded(kind), _decoded(tags_json)
                is_load_bearing = is_load_bearing_pair(*pair, protected)
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
    """Return the SQL condition of the classified rows beyond a cap; None if there are none."""
    newest_surplus = connection.execute(
        f"SELECT rowid FROM memory_items WHERE {_ACTIVE_PRUNABLE} "
        "ORDER BY rowid DESC LIMIT 1 OFFSET ?",
        (min(keep_recent, _HIGHEST_ROWID),),
    ).fetchone()
    if newest_surplus is None:
        return None
    (rowid,) = newest_surplus
    return f"rowid <= {rowid} AND {_ACTIVE_PRUNABLE}"


def delete_rows(connection: sqlite3.Connection, condition: str, load_bearing: int) -> int:
    """Delete rows, and check that all load-bearing ones are still there, unchanged.

    Parameters
    ----------
    connection : sqlite3.Connection
        The store, after :func:`classify_rows` in the same transaction.
    condition : str
        The SQL condition of the rows.
    load_bearing : int
        The number of load-bearing rows.

    Returns
    -------
    int
        The number of deleted rows.
    """
    check_deletion(connection, condition)
    digest_before = fingerprint_under_triggers(connection, f"({condition}) IS NOT TRUE")
    changes_before = connection.total_changes
    deleted_signals = 0
    if signal_columns(connection):
        deleted_signals = connection.execute(
            f"DELETE FROM main.{SIGNALS} AS signal WHERE EXISTS (SELECT 1 FROM main.memory_items "
            f"AS item WHERE {HAS_SIGNALS} AND ({condition}))"
        ).rowcount
    deleted = connection.execute(f"DELETE FROM memory_items WHERE {condition}").rowcount
    changed = connection.total_changes - changes_before - deleted - deleted_signals
    load_bearing_left = count_load_bearing(connection, "TRUE")
    fault = ""
    likely_cause = "a trigger"
    has_triggers = digest_before is not None
    # Triggers may change other rows, so the fingerprint is compared if there are any.
    if changed and not has_triggers:
        fault = f"changed {changed} others"
        likely_cause = "foreign keys"
    elif load_bearing_left != load_bearing:
        fault = f"left {load_bearing_left} of {load_bearing} load-bearing rows"
    elif digest_before != fingerprint_under_triggers(connection, "TRUE"):
        fault = "changed other rows, or kept some of them"
    if fault:
        raise CompactionError(
            f"deleting {deleted} rows would have {fault}; all was rolled back: look for "
            f"{likely_cause} on memory_items in the store"
        )
    return deleted


def count_load_bearing(connection: sqlite3.Connection, condition: str) -> int:
    """Return the number of load-bearing rows that meet an SQL condition.

    The caller has called :func:`classify_rows` in the same transaction.
    """
    where = f"({condition}) AND {_NOT_PRUNABLE}"
    (count,) = connection.execute(f"SELECT count(*) FROM memory_items WHERE {where}").fetchone()
    return int(count)


def drop_classification(connection: sqlite3.Connection) -> None:
    """Drop the temporary table of :func:`classify_rows`."""
    connection.execute("DROP TABLE IF EXISTS temp.prunable_pairs")


def _decoded(value: object) -> str:
    """Return a stored text; raise ValueError if it is not UTF-8 text."""
    if not isinstance(value, bytearray):
        raise ValueError("kind or tags_json is not text")  # noqa: TRY004 - the row is wrong, not the call
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError("kind or tags_json is not UTF-8") from error


def _unclassifiable(
    connection: sqlite3.Connection, position: int, error: ValueError
) -> BadRowError:
    """Return the error to raise for the row at `position`, whose id may have any type."""
    row = connection.execute(
        "SELECT CAST(memory_id AS BLOB) FROM memory_items WHERE rowid = ?", (position,)
    ).fetchone()
    # In a damaged file, SQLite may find a row by a scan and not by its rowid.
    name = None
    if row is not None and row[0] is not None:
        name = row[0].decode(errors="replace")
    return BadRowError(
        f"row {position} (memory_id {name!r}) cannot be classified: {error}; nothing was deleted: "
        "mend that row, then compact",
        position=position,
        memory_id=name,
    )
