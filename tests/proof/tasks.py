"""Operations that child processes run on stores, with the standard library only."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memlab.compaction import IndexPlan, Plan, apply, restore, vacuum
from memlab.errors import MemlabError
from memlab.store import SqliteMemoryStore

Operation = Callable[[Path, Any], Any]
PATIENCE = 20.0
"""Seconds that a process waits for another one."""


def apply_plan(store: Path, argument: str) -> Any:
    return apply(Plan.from_json(argument), store=store)


def apply_index_plan(store: Path, argument: str) -> Any:
    return apply(IndexPlan.from_json(argument), store=store)


def restore_rows(store: Path, argument: str) -> int:
    return restore(argument, store=store).memories


def vacuum_store(store: Path, argument: None) -> Any:
    return vacuum(store)


def compact(store: Path, argument: int) -> int:
    with SqliteMemoryStore(store) as opened:
        return opened.compact_episodic(argument)


def without_privileges(do: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run a task as a user who owns nothing."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    return do(*arguments)


def apply_in_steps(
    url: str, text: str, stop_at: str, reached: Path, go_on: Path, delay: float = 0.0
) -> str:
    """Apply a plan; at one step create a file and wait for another file.

    Return the digest of the plan, or the error of a refused plan.
    """

    def on_step(step: str) -> None:
        if step == stop_at:
            reached.touch()
            wait_for(go_on, PATIENCE)

    time.sleep(delay)
    try:
        return apply(Plan.from_json(text), store=url, on_step=on_step).digest
    except MemlabError as error:
        return f"refused: {error}"


def wait_for(file: Path, seconds: float) -> bool:
    """Wait until a file exists; return whether it does."""
    until = time.monotonic() + seconds
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.002)
    return file.exists()
