"""What children do to stores. Standard library only, like all of memlab that is used here."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memlab.compaction import Plan, apply, restore, vacuum
from memlab.store import SqliteMemoryStore

Operation = Callable[[Path, Any], Any]


def apply_plan(store: Path, what: str) -> Any:
    return apply(Plan.from_json(what), store=store)


def restore_rows(store: Path, what: str) -> int:
    return restore(what, store=store)


def vacuum_store(store: Path, what: None) -> Any:
    return vacuum(store)


def compact(store: Path, what: int) -> int:
    with SqliteMemoryStore(store) as opened:
        return opened.compact_episodic(what)


def without_privileges(arguments: tuple[Any, ...]) -> Any:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    task, *rest = arguments
    return task(*rest)
