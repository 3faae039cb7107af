"""What children do to stores. Standard library only, like all of memlab that is used here."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memlab.compaction.applier import apply, unwatched
from memlab.compaction.plans import Plan
from memlab.compaction.reclaim import vacuum
from memlab.compaction.restorer import restore
from memlab.files import write_whole
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.store import SqliteMemoryStore

Watch = Callable[[str], None]
Operation = Callable[[Path, Any, Watch], Any]
"""Takes a store, what to do there and a watch."""


def apply_plan(store: Path, what: str, watch: Watch = unwatched) -> Any:
    return apply(Plan.from_json(what), store=store, watch=watch)


def restore_rows(store: Path, what: str, watch: Watch = unwatched) -> int:
    return restore(what, store=store, watch=watch)


def vacuum_store(store: Path, what: None, watch: Watch = unwatched) -> Any:
    return vacuum(store, watch=watch)


def compact(store: Path, what: int, watch: Watch = unwatched) -> int:
    """Compact; the steps are the statements, each named before it runs."""
    with SqliteMemoryStore(store) as opened:
        if watch is not unwatched:
            opened.connection.set_trace_callback(lambda sql: watch(sql.strip()))
        return opened.compact_episodic(what)


def stopping(operation: Operation, store: Path, what: Any, step: str, nth: int = 1) -> Any:
    """Carry out an operation, and stop this process at the nth step of a name."""
    seen = 0

    def watch(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == nth:
            os.kill(os.getpid(), signal.SIGSTOP)

    return operation(store, what, watch)


def steps_of(operation: Operation, store: Path, what: Any) -> list[str]:
    """Carry out an operation, and return the names of its steps in order."""
    steps: list[str] = []
    operation(store, what, lambda name: steps.append(str(name)))
    return steps


def put_one(store: Path, body: str) -> None:
    """Put one more item."""
    with SqliteMemoryStore(store) as opened:
        provenance = MemoryProvenance(None, "agent", source_task_ref="issue:#1")
        opened.put(MemoryItem("one more", MemoryKind.EPISODIC, "one more", body, provenance))


def write_text(path: Path, text: str) -> None:
    """Write a file for a user."""
    write_whole(path, text)


def with_files_limited(limit: int, arguments: tuple[Any, ...]) -> Any:
    """Let no file grow beyond so many bytes; writing more fails instead of ending the process."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    task, *rest = arguments
    try:
        return task(*rest)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def without_privileges(arguments: tuple[Any, ...]) -> Any:
    """Do a task as a user whom permissions bind."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    task, *rest = arguments
    return task(*rest)
