"""What each store of a fleet needs from time to time, by what is remembered of it."""

from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memlab.clock import moment_or_now
from memlab.fleet.names import Sources
from memlab.fleet.running import Progress, Runner, outcomes_of
from memlab.maintenance import Maintenance, StepOutcome
from memlab.maintenance import maintain as maintain_one
from memlab.maintenance import plan_maintenance as plan_one

if TYPE_CHECKING:
    import pandas as pd

    from memlab.fleet.parts import Parts

MAINTAIN_DTYPES: Final = {
    "status": "str",
    "deleted": "Int64",
    "doctor": "str",
    "compact": "str",
    "drop": "str",
    "vacuum": "str",
    "undo": "str",
}


class MaintainedStore(NamedTuple):
    """What maintenance did to a store, or would do.

    Attributes
    ----------
    status : {"done", "would", "nothing", "FAILED"}
        How it ended.
    deleted : int
        Memories that were deleted, or would be.
    doctor, compact, drop, vacuum : str or None
        What there is to say of each step; None for one that it did not come to.
    undo : str or None
        The command that takes the deletion back.
    """

    status: str
    deleted: int
    doctor: str | None
    compact: str | None
    drop: str | None
    vacuum: str | None
    undo: str | None


@dataclass(frozen=True)
class Maintaining:
    """The work of maintenance.

    Attributes
    ----------
    now : datetime
        The moment.
    do_it : bool
        Whether it is done, or only said.
    """

    now: datetime
    do_it: bool

    @property
    def changes(self) -> bool:
        """Whether a store is another one afterwards."""
        return self.do_it

    def __call__(self, where: str, given: Any = None) -> MaintainedStore:  # noqa: ARG002 - needs none
        """Return what became of one store."""
        return _row((maintain_one if self.do_it else plan_one)(where, now=self.now))


def maintain(
    sources: Sources,
    *,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
) -> "pd.DataFrame":
    """Do what every store needs, by what its ``memlab.toml`` remembers; see `memlab.maintenance`.

    Parameters
    ----------
    sources, now, runner, progress
        As for :func:`memlab.fleet.survey`.
    out : str or Path, optional
        A folder in which results are kept as they come: the same call again goes on where it was.
        Once every store was looked after, it begins anew.

    Returns
    -------
    DataFrame
        A row for each store: ``store``, the fields of :class:`MaintainedStore`, and ``error``,
        missing where there is none. Of a store of which nothing is remembered that is the error.

    Raises
    ------
    MemlabError
        When no store was named, `out` holds something else, or nobody is left to do the work.
    ValueError
        When `now` has no time zone.
    """
    work = Maintaining(moment_or_now(now, call="memlab.fleet.maintain"), do_it=True)
    return _maintained(work, sources, runner, progress, out)


def plan_maintenance(
    sources: Sources,
    *,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
) -> "pd.DataFrame":
    """Say what :func:`maintain` would do. Reads only.

    Parameters
    ----------
    sources, now, runner, progress, out
        As for :func:`maintain`, which says what is returned.
    """
    work = Maintaining(moment_or_now(now, call="memlab.fleet.plan_maintenance"), do_it=False)
    return _maintained(work, sources, runner, progress, out)


def _maintained(
    work: Maintaining,
    sources: Sources,
    runner: Runner | None,
    progress: Progress | None,
    out: str | PathLike[str] | None,
) -> "pd.DataFrame":
    from memlab.fleet.tables import table_of

    parts = None if out is None else _parts(Path(out), do_it=work.do_it)
    found = outcomes_of(work, sources, runner=runner, progress=progress, parts=parts)
    return table_of(found, MAINTAIN_DTYPES)


def _parts(folder: Path, *, do_it: bool) -> "Parts":
    """Return the results of a run that was stopped; those of one that finished say nothing now."""
    from memlab.fleet.parts import Parts

    question = {"asked": "maintain", "applied": do_it}
    return Parts(folder, MaintainedStore, MAINTAIN_DTYPES, question=question, rests_on=None)


def _row(found: Maintenance) -> MaintainedStore:
    said = {step.name: step.words for step in found.steps}
    outcomes = {step.outcome for step in found.steps if step.name != "doctor"}
    status = StepOutcome.FAILED if found.failed else StepOutcome.NOTHING
    if not found.failed:
        ends = (StepOutcome.WOULD, StepOutcome.DONE)
        status = next((each for each in ends if each in outcomes), status)
    receipt, made = found.receipt, found.plan
    deleted = (
        receipt.deleted if receipt else len(made.memories) if made and not found.applied else 0
    )
    return MaintainedStore(
        str(status),
        deleted,
        said.get("doctor"),
        said.get("compact"),
        said.get("drop"),
        said.get("vacuum"),
        receipt.undo if receipt and receipt.archive else None,
    )
