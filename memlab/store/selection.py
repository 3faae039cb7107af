"""Which rows of ``memory_items`` may go, and the one statement that deletes them."""

import sqlite3
from functools import cache
from typing import Final

from memlab.errors import BadRowError, CompactionError
from memlab.items import is_load_bearing_stored
from memlab.store.database import exact
from memlab.store.records import fingerprint_under_triggers
from memlab.store.signals import deletion_of_signals, signal_columns
from memlab.store.triggers import check_deletion

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
    with exact(connection):
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
    before, beside = connection.total_changes, 0
    if signal_columns(connection):
        beside = connection.execute(deletion_of_signals(chosen)).rowcount
    deleted = connection.execute(f"DELETE FROM memory_items WHERE {chosen}").rowcount
    changed = connection.total_changes - before - deleted - beside
    left = count_load_bearing(connection, "TRUE")
    wrong, look_for = "", "a trigger"
    if changed and staying is None:
        wrong, look_for = f"changed {changed} others", "foreign keys"
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
