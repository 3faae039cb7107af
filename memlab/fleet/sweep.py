"""A task done to every store of a fleet: its rows in one frame, errors among them.

Here is what is the same for all tasks: results come in the order of the names, those that are kept
are not asked for again, and what they look like in a frame is read from the row's annotations.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memlab import columns as col
from memlab.fleet.names import Member, Sources, members_of
from memlab.fleet.task import (
    STORE,
    FleetTask,
    Given,
    Outcome,
    Progress,
    Row,
    Runner,
    Serial,
    nothing,
)

if TYPE_CHECKING:
    import pandas as pd

DTYPES: Final[dict[type, Any]] = {str: "str", int: "Int64", float: "Float64", datetime: col.TIME}
"""The column of a frame that fields of a type become."""

FEW: Final = 20
"""Stores that are done before the first process has started."""
FEW_BYTES: Final = 20_000_000
"""The same of bytes."""


def outcomes_of(
    task: FleetTask[Row],
    sources: Sources,
    *,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
    given: Given = nothing,
) -> list[Outcome[Row]]:
    """Do a task to every store; return what became of each, in the order of their names."""
    members = members_of(sources).stores
    parts = None
    if out is not None:
        from memlab.fleet.parts import Parts

        parts = Parts(Path(out), task)
    found = {} if parts is None else parts.still_there(members)
    missing = [member for member in members if member.name not in found]
    if progress is not None and found:
        progress(len(found), len(members))
    try:
        for outcome in (runner or usual_runner(missing)).run(task, missing, given):
            found[outcome.name] = outcome
            if parts is not None:
                parts.add(outcome)
                found[outcome.name] = _without_large(outcome)
            if progress is not None:
                progress(len(found), len(members))
    finally:
        if parts is not None:
            parts.flush()
    if parts is not None:
        parts.finish()
    return [found[member.name] for member in members]


def table_of(task: FleetTask[Any], sources: Sources, **how: Any) -> "pd.DataFrame":
    """Do a task to every store, as :func:`outcomes_of` does; return a row for each."""
    import pandas as pd

    found = outcomes_of(task, sources, **how)
    columns = {STORE: pd.Series([each.name for each in found], dtype="str")}
    for name, kind in task.columns.items():
        values = [None if each.value is None else getattr(each.value, name) for each in found]
        if kind is datetime:
            moments = pd.Series(values, dtype="object")
            columns[name] = pd.to_datetime(moments, utc=True).astype(DTYPES[kind])
        else:
            columns[name] = pd.Series(values, dtype=DTYPES[kind])
    columns["error"] = pd.Series([each.error or None for each in found], dtype="str")
    return pd.DataFrame(columns)


def usual_runner(members: Sequence[Member]) -> Runner:
    """Return who works where nobody was named: processes, where these pay for their start."""
    if len(members) < FEW and sum(member.size for member in members) < FEW_BYTES:
        return Serial()
    from memlab.fleet.workers import Processes

    return Processes()


def _without_large(outcome: Outcome[Row]) -> Outcome[Row]:
    """Return an outcome without what is large in it, which is on the disk."""
    large = [name for name, value in vars(outcome.value or outcome).items() if type(value) is bytes]
    if not large:
        return outcome
    return replace(outcome, value=replace(outcome.value, **dict.fromkeys(large)))  # type: ignore[type-var]
