"""What a lifecycle store keeps beside its items: one row of signals each, and counters."""

import json
import math
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Final

from memlab.clock import Age, as_age, aware
from memlab.columns import AGENT_SCOPE
from memlab.items import MemoryItem, is_load_bearing_stored, strings_of
from memlab.lifecycle.scopes import scope_key
from memlab.store.signals import HAS_SIGNALS, SIGNAL_COLUMNS

SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS memory_signals ("
    + ", ".join(f"{name} {kind}" for name, kind in SIGNAL_COLUMNS.items())
    + ")",
    "CREATE INDEX IF NOT EXISTS memory_signals_scope ON memory_signals (scope)",
    (
        "CREATE INDEX IF NOT EXISTS memory_signals_expiry ON memory_signals (expires_at) "
        "WHERE expires_at IS NOT NULL"
    ),
    "CREATE TABLE IF NOT EXISTS memory_lifecycle (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
)


class Trust(StrEnum):
    """Who stands behind a memory."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    USER_APPROVED = "user-approved"
    AUTO_APPROVED = "auto-approved"

    @classmethod
    def _missing_(cls, value: object) -> "Trust":
        raise ValueError(f"trust={value!r:.80} is not one of {', '.join(cls)}")

    @property
    def rank(self) -> int:
        """0 for what nobody stands behind, 1 for anything else."""
        return int(self is not Trust.UNTRUSTED)


@cache
def load_bearing(kind: object, tags_json: object) -> bool:
    """Return the predicate's verdict; what cannot be classified is load-bearing."""
    if not isinstance(kind, str) or not isinstance(tags_json, str):
        return True
    try:
        return is_load_bearing_stored(kind, tags_json)
    except ValueError:
        return True


def as_text(moment: datetime) -> str:
    """Return a time so that text sorts as time does."""
    aware(moment, call="LifecycleStore")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def expiry_of(ttl: Age | float | None, now: datetime) -> str | None:
    """Return when a row written now expires; None for one that does not."""
    if ttl is None:
        return None
    if not isinstance(ttl, Age) and not _is_finite(ttl):
        raise ValueError(f"ttl={ttl!r} is not an age or a finite number of seconds")
    try:
        life = as_age(ttl) if isinstance(ttl, Age) else timedelta(seconds=ttl)
        return as_text(now + life) if life > timedelta(0) else None
    except OverflowError as error:
        words = f"ttl={ttl!r} ends beyond the calendar: leave it out to keep it"
        raise ValueError(words) from error


def checked_importance(importance: float, *, bounded: bool) -> float:
    """Return importance as a float."""
    if not _is_finite(importance) or (bounded and not 0 <= importance <= 1):
        wanted = "in [0, 1], where a capacity goes by it" if bounded else "that is finite"
        raise ValueError(f"importance={importance!r} is not a number {wanted}")
    return float(importance)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def scope_fields(connection: sqlite3.Connection) -> tuple[str, ...] | None:
    """Return what scopes are made of in a store that has side tables, None in any other."""
    (tables,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' "
        "AND name IN ('memory_signals', 'memory_lifecycle')"
    ).fetchone()
    if tables < 2:
        return None
    row = connection.execute("SELECT value FROM memory_lifecycle WHERE name = 'scopes'").fetchone()
    return tuple(json.loads(row[0])) if row else None


def prepare(connection: sqlite3.Connection, fields: tuple[str, ...]) -> None:
    """Make the side tables, and give every row the scope that `fields` say.

    Call it in a transaction.
    """
    connection.execute(SCHEMA[0])
    columns = connection.execute("SELECT name FROM pragma_table_info('memory_signals')")
    for name in set(SIGNAL_COLUMNS) - {name for (name,) in columns}:
        connection.execute(f"ALTER TABLE memory_signals ADD COLUMN {name} {SIGNAL_COLUMNS[name]}")
    for statement in SCHEMA[1:]:
        connection.execute(statement)
    # signals that name no position belong to the row with their id
    connection.execute(
        "UPDATE memory_signals SET position = (SELECT item.rowid FROM memory_items AS item "
        "WHERE item.memory_id = memory_signals.memory_id) WHERE position IS NULL"
    )
    rows = connection.execute(
        "SELECT signal.memory_id, signal.agent_id, signal.thread_id, signal.namespace, "
        f"item.tags_json FROM memory_signals AS signal JOIN memory_items AS item ON {HAS_SIGNALS}"
    ).fetchall()
    scopes = (
        (scope_key(fields, dict(zip(AGENT_SCOPE, known, strict=True)), _tags(tags)), memory_id)
        for memory_id, *known, tags in rows
    )
    connection.executemany("UPDATE memory_signals SET scope = ? WHERE memory_id = ?", scopes)
    connection.execute(
        "INSERT OR REPLACE INTO memory_lifecycle VALUES ('scopes', ?)", (json.dumps(fields),)
    )


def _tags(tags_json: str) -> tuple[str, ...]:
    """Return stored tags; none where they cannot be read."""
    try:
        return strings_of(tags_json)
    except (ValueError, TypeError):
        return ()


def write_signals(
    connection: sqlite3.Connection, item: MemoryItem, signals: Mapping[str, Any], position: int
) -> None:
    """Write what is known of a memory beside its row."""
    row = {"memory_id": item.memory_id, "access_count": 0, "graduated": 0, "position": position}
    row |= signals
    marks = ", ".join("?" * len(SIGNAL_COLUMNS))
    connection.execute(
        f"INSERT INTO memory_signals ({', '.join(SIGNAL_COLUMNS)}) VALUES ({marks})",
        [row[name] for name in SIGNAL_COLUMNS],
    )


def is_counted(connection: sqlite3.Connection, memory_id: str) -> bool:
    """Whether a memory has signals and no other has replaced it: it takes up room in its scope."""
    found = connection.execute(
        "SELECT 1 FROM memory_signals AS signal JOIN memory_items AS item "
        f"ON {HAS_SIGNALS} WHERE signal.memory_id = ? AND item.superseded_by IS NULL",
        (memory_id,),
    )
    return found.fetchone() is not None


def reinforce(
    connection: sqlite3.Connection, memory_id: str, at: str, *, graduated: bool | None
) -> int:
    """Count an access of one row that is there and has not expired; return how many were."""
    return connection.execute(
        "UPDATE memory_signals AS signal SET access_count = coalesce(access_count, 0) + 1, "
        "last_accessed_at = :at, graduated = coalesce(:graduated, graduated) "
        "WHERE memory_id = :memory_id "
        f"AND EXISTS (SELECT 1 FROM memory_items AS item WHERE {HAS_SIGNALS} "
        "AND (signal.expires_at IS NULL OR signal.expires_at >= :at "
        "OR load_bearing(item.kind, item.tags_json)))",
        {"at": at, "memory_id": memory_id, "graduated": graduated},
    ).rowcount


def expired_ids(connection: sqlite3.Connection, at: str, also: str = "", *values: str) -> list[str]:
    """Return the ids of rows that have expired and are still in the file."""
    expired = connection.execute(
        "SELECT signal.memory_id FROM memory_signals AS signal "
        f"JOIN memory_items AS item ON {HAS_SIGNALS} WHERE signal.expires_at < ?{also}",
        (at, *values),
    )
    return [memory_id for (memory_id,) in expired]
