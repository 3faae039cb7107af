"""Plans of a store, and archives as a process leaves them that was stopped."""

import os
import signal
import sqlite3
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memlab.compaction import Plan, Receipt, apply, plan
from memlab.compaction.plans import planned_row, text_for_archive
from memlab.policies import KeepRecent
from memlab.store import SqliteMemoryStore
from memlab.store.archive import opening
from memlab.store.archive.archive import Archive
from memlab.store.archive.schema import NewCopy, NewEntry
from memlab.store.records import layout_of, records_at
from memlab.upkeep.health import Check, doctor

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def planned(store: Path, keep: int = 4, *, at: datetime = NOON) -> Plan:
    return plan(store, KeepRecent(keep), now=at)


def compacted(store: Path, keep: int = 4, *, at: datetime = NOON) -> Receipt:
    return apply(planned(store, keep, at=at), now=at)


def compact_at_runtime(store: Path, keep: int = 4, *, archive: bool = True) -> int:
    with SqliteMemoryStore(store, archive=archive) as opened:
        return opened.compact_episodic(keep)


def check(store: Path, name: str = "archive") -> Check:
    """Run the doctor and return the check with this name."""
    (named_check,) = [check for check in doctor(store).checks if check.name == name]
    return named_check


def leave_unfinished(store: Path, new_plan: Plan) -> None:
    """Leave the archive as if the process died between copying and deleting."""
    memory_of_key = {memory.key: memory for memory in new_plan.memories}
    text = text_for_archive(new_plan, expired=())
    entry = NewEntry(new_plan.digest, new_plan.policy, NOON, len(new_plan.memories), text)
    with closing(sqlite3.connect(store)) as connection:
        positions = [int(key) for key in memory_of_key]
        copies = []
        for key, record in records_at(connection, layout_of(connection), positions):
            memory = memory_of_key[key]
            copies.append(NewCopy(key, record, memory.reason, planned_row(memory)))
    with (
        Archive.beside(store).changing(nullcontext()) as change,
        change.archive.adding_entry(entry, copies, at=NOON),
    ):
        pass


def apply_until_statement(store: Path, number: int) -> Receipt:
    """Apply a plan in a process that is killed before a statement on the archive."""
    plan = planned(store)
    count = 0

    def trace(_statement: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(trace)
        return connection

    opening.sqlite3.connect = traced  # type: ignore[attr-defined]
    return apply(plan, now=NOON)
