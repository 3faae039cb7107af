"""Table of the operations that change a store or its archive, with their steps."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from memlab.compaction import finish, keep_copies, plan_supersession, recover, vacuum
from memlab.compaction.applier import apply
from memlab.compaction.planner import plan
from memlab.compaction.plans import Plan
from memlab.compaction.restorer import restore
from memlab.policies import KeepRecent
from memlab.sources.readers import StepCallback
from memlab.testing.steps import APPLY_STEPS, RESTORE_STEPS
from tests.support.archives import NOON, compacted, leave_unfinished, planned
from tests.support.stores import run_sql

LINK_STEPS = ("locked", "checked", "copied", "archived", "verified", "committed", "recorded")
UNLINK_STEPS = ("locked", "verified", "committed")


class StoppedError(Exception):
    """Raised at a step to simulate a process that stops there."""


def stop_at(step: str | None) -> StepCallback:
    def on_step(finished_step: str) -> None:
        if finished_step == step:
            raise StoppedError(step)

    return on_step


class Operation(NamedTuple):
    """An operation: its preparation, its call, and the step at which it is on disk."""

    prepare: Callable[[Path], str]
    run: Callable[[Path, str, StepCallback], Any]
    steps: tuple[str, ...]
    done: str = "committed"


def supersession(store: Path) -> Plan:
    return plan_supersession(store, {"d1": "s1"}, now=NOON)


def retirement(store: Path) -> Plan:
    """Return a plan that retires one memory and returns an earlier retired one."""
    apply(plan(store, KeepRecent(9), retire=True, now=NOON), now=NOON)
    store.with_name("memlab.toml").write_text('log = "reads.jsonl"\n')
    read = {"memory_id": "e1", "at": (NOON + timedelta(days=1)).isoformat()}
    store.with_name("reads.jsonl").write_text(json.dumps(read))
    return plan(store, KeepRecent(9), retire=True, now=NOON + timedelta(days=2))


def interrupted_plan(store: Path) -> str:
    plan = planned(store)
    leave_unfinished(store, plan)
    return plan.digest


def carry_out(store: Path, plan: str, on_step: StepCallback) -> Any:
    return apply(Plan.from_json(plan), store=store, now=NOON, on_step=on_step)


def put_back(store: Path, digest: str, on_step: StepCallback) -> Any:
    return restore(digest, store=store, now=NOON, on_step=on_step)


def store_with_losses(store: Path) -> str:
    """Copy a store, then delete four of its memories and empty one outside memlab."""
    keep_copies(store, now=NOON)
    run_sql(store, "DELETE FROM memory_items WHERE memory_id IN ('d1', 's1', 'e1', 'e2')")
    run_sql(store, "UPDATE memory_items SET body = '' WHERE memory_id = 'e3'")
    return ""


def recovered(store: Path) -> str:
    store_with_losses(store)
    return recover(store, now=NOON).digest


def finish_plan(store: Path, digest: str, on_step: StepCallback) -> Any:
    return finish(store, digest, now=NOON, on_step=on_step)


def make_copies(store: Path, _: str, on_step: StepCallback) -> Any:
    return keep_copies(store, now=NOON, on_step=on_step)


def recover_all(store: Path, _: str, on_step: StepCallback) -> Any:
    return recover(store, now=NOON, on_step=on_step)


def vacuum_store(store: Path, _: str, on_step: StepCallback) -> Any:
    return vacuum(store, on_step=on_step)


def no_argument(_: Path) -> str:
    return ""


def deletion_plan(store: Path) -> str:
    return planned(store).to_json()


def applied_deletion(store: Path) -> str:
    return compacted(store).digest


def supersession_plan(store: Path) -> str:
    return supersession(store).to_json()


def applied_supersession(store: Path) -> str:
    return apply(supersession(store)).digest


def retirement_plan(store: Path) -> str:
    return retirement(store).to_json()


def applied_retirement(store: Path) -> str:
    return apply(retirement(store)).digest


OPERATIONS = {
    "apply": Operation(deletion_plan, carry_out, APPLY_STEPS),
    "finish": Operation(interrupted_plan, finish_plan, APPLY_STEPS),
    "restore": Operation(applied_deletion, put_back, RESTORE_STEPS),
    "supersede": Operation(supersession_plan, carry_out, LINK_STEPS),
    "take back": Operation(applied_supersession, put_back, UNLINK_STEPS),
    "retire": Operation(retirement_plan, carry_out, LINK_STEPS),
    "take retirement back": Operation(applied_retirement, put_back, UNLINK_STEPS),
    "copy": Operation(no_argument, make_copies, ("begun", "copied", "committed")),
    "recover": Operation(
        store_with_losses, recover_all, ("locked", "archived", "inserted", "committed")
    ),
    "take recovery back": Operation(
        recovered, put_back, ("locked", "deleted", "verified", "committed")
    ),
    "vacuum": Operation(
        applied_deletion, vacuum_store, ("checked", "rewritten", "shrunk"), done="rewritten"
    ),
}
