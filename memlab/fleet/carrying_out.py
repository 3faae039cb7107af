"""Carry out the saved plans of a fleet, each store for itself."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.applying import apply as apply_plan
from memlab.compaction.plans import Plan
from memlab.errors import AlreadyAppliedError, PlanError
from memlab.fleet.fleet_plan import FleetPlan, PlannedStore
from memlab.fleet.names import Member, Members
from memlab.fleet.outcomes import Outcome
from memlab.fleet.packing import unpacked
from memlab.fleet.running import Progress, Runner, outcomes_of

if TYPE_CHECKING:
    import pandas as pd

APPLIED: Final = "applied"
BEFORE: Final = "applied before"

APPLY_DTYPES: Final = {
    "digest": "str",
    "status": "str",
    "deleted": "Int64",
    "boot_before": "Int64",
    "boot_after": "Int64",
    "archive": "str",
    "undo": "str",
}


class Applied(NamedTuple):
    """What applying its plan did to a store.

    Attributes
    ----------
    digest : str
        The plan's.
    status : {"applied", "applied before"}
        Whether it was done now, or found done by an earlier run.
    deleted : int
        How many memories.
    boot_before, boot_after : int
        Tokens that an agent loads at start, as the plan saw it.
    archive : str or None
        Where the memories are now.
    undo : str or None
        The command that takes it back.
    """

    digest: str
    status: str
    deleted: int
    boot_before: int
    boot_after: int
    archive: str | None
    undo: str | None


@dataclass(frozen=True)
class CarryingOut:
    """The work of applying.

    Attributes
    ----------
    now : datetime
        When it is done.
    """

    now: datetime

    def __call__(self, where: str, given: Any) -> Applied:
        """Apply the plan of one store, which is handed over with its digest."""
        digest, text = given
        if text is None:
            raise PlanError("its plan is not among those saved; make a new plan")
        plan = unpacked(text)
        if plan.digest != digest:
            raise PlanError("its saved plan is not the one that was reviewed; make a new plan")
        status = APPLIED
        try:
            self.apply(plan, where)
        except AlreadyAppliedError:
            status = BEFORE
        return _applied(plan, where, status)

    def apply(self, plan: Plan, where: str) -> None:
        """Apply a plan to the store."""
        apply_plan(plan, store=where, now=self.now)


def _applied(plan: Plan, where: str, status: str) -> Applied:
    from memlab.compaction.applying import receipt_of
    from memlab.sources.opening import open_source

    receipt = receipt_of(plan, open_source(where), plan.made_at, archived=True)
    return Applied(
        plan.digest,
        status,
        receipt.deleted,
        receipt.boot_before.tokens,
        receipt.boot_after.tokens,
        receipt.archive,
        receipt.undo,
    )


def apply(
    plan: FleetPlan | str | PathLike[str],
    *,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Carry out a reviewed plan, each store for itself, and say what became of each.

    What is deleted goes to the store's own archive first. A store that is not as its plan saw it is
    refused, alone. The same call again finishes what was stopped; nothing is applied twice.

    Parameters
    ----------
    plan : FleetPlan, str or Path
        What :func:`memlab.fleet.plan` returned, or the file that it saved.
    now : datetime, optional
        When it is done, with a time zone.
    runner, progress
        As for :func:`memlab.fleet.survey`.

    Returns
    -------
    DataFrame
        A row for each store from which something goes: ``store``, the fields of :class:`Applied`,
        and ``error``, missing where there is none.

    Raises
    ------
    PlanError
        When the file is no plan of many stores.
    """
    from memlab.fleet.tables import table_of

    return table_of(carried_out(plan, now=now, runner=runner, progress=progress), APPLY_DTYPES)


def carried_out(
    plan: FleetPlan | str | PathLike[str],
    *,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    work: Callable[[datetime], CarryingOut] = CarryingOut,
) -> list[Outcome[Applied]]:
    """Return the same as outcomes."""
    expect(plan, FleetPlan, str, PathLike, call="memlab.fleet.apply", name="plan")
    opened = plan if isinstance(plan, FleetPlan) else FleetPlan.read(plan)
    moment = moment_or_now(now, call="memlab.fleet.apply")
    stores = {each.store: each for each in opened.changed}
    members = Members(tuple(_member(name) for name in stores))
    saved = _Saved(opened, stores)
    return outcomes_of(work(moment), members, runner=runner, progress=progress, given=saved.given)


class _Saved:
    """The saved plans of the stores, read from one part at a time."""

    def __init__(self, plan: FleetPlan, stores: dict[str, PlannedStore]) -> None:
        self._plan, self._stores = plan, stores
        self._at: dict[str, Path] = {}
        self._read: tuple[Path | None, dict[str, bytes]] = (None, {})
        if plan.folder is not None and stores:
            from memlab.fleet.parts import index_of

            self._at = index_of(plan.folder)

    def given(self, member: Member) -> tuple[str, bytes | None]:
        """Return the digest that was reviewed, and the plan."""
        digest = self._stores[member.name].digest
        if self._plan.folder is None:
            return digest, self._plan.texts.get(member.name)
        part = self._at.get(member.name)
        if part is not None and part != self._read[0]:
            from memlab.fleet.parts import column_of

            self._read = (part, column_of(part, "plan"))
        return digest, self._read[1].get(member.name) if part is not None else None


def _member(name: str) -> Member:
    try:
        return Member(name, name, Path(name).stat().st_size)
    except (OSError, ValueError):
        return Member(name, name)
