"""What a policy would delete from each store of a fleet. Reads only."""

from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.planning import plan as plan_store
from memlab.compaction.plans import Plan
from memlab.compaction.wire import as_data
from memlab.errors import PolicyError
from memlab.fleet.fleet_plan import FleetPlan, PlannedStore, Refused, saved_beside
from memlab.fleet.names import Sources, members_of
from memlab.fleet.outcomes import Outcome
from memlab.fleet.packing import packed
from memlab.fleet.parts import Parts
from memlab.fleet.running import Progress, Runner, outcomes_of
from memlab.fleet.surveying import bytes_of
from memlab.policies import Policy
from memlab.policies.base import runner_for
from memlab.policies.remembered import policy_in
from memlab.sources.base import Source
from memlab.sources.opening import open_source, settings_of

PLAN_DTYPES: Final = {
    "digest": "str",
    "memories": "Int64",
    "deleted": "Int64",
    "deleted_tokens": "Int64",
    "deleted_bytes": "Int64",
    "boot_before": "Int64",
    "boot_after": "Int64",
    "floor": "Int64",
    "plan": "bytes",
}


class Decided(NamedTuple):
    """A store's plan: its numbers, and the whole of it.

    Attributes
    ----------
    digest, memories, deleted, deleted_tokens, deleted_bytes, boot_before, boot_after, floor
        As in :class:`memlab.fleet.PlannedStore`.
    plan : bytes
        What :meth:`memlab.Plan.to_json` returns where it is compact, packed.
    """

    digest: str
    memories: int
    deleted: int
    deleted_tokens: int
    deleted_bytes: int | None
    boot_before: int
    boot_after: int
    floor: int
    plan: bytes


@dataclass(frozen=True)
class Deciding:
    """The work of planning.

    Attributes
    ----------
    policy : Policy or None
        The rule, the same for every store; None for that which each store's settings remember.
    now : datetime
        The moment of the decision.
    """

    policy: Policy | None
    now: datetime

    def __call__(self, where: str, given: Any = None) -> Decided:  # noqa: ARG002 - needs none
        """Return the plan of one store."""
        if self.policy is not None:
            plan = plan_store(where, self.policy, now=self.now)
        else:
            source = open_source(where)
            plan = plan_store(source, remembered_by(source), now=self.now)
        return decided(plan, bytes_of(where))


def remembered_by(source: Source) -> Policy:
    """Return the policy that a store's settings remember.

    Raises
    ------
    PolicyError
        When they remember none.
    """
    policy = policy_in(settings_of(source))
    if policy is None:
        raise PolicyError(
            "no policy was named, and memlab.toml beside the store remembers none; name one, "
            "or run: memlab size STORE --save"
        )
    return policy


def decided(plan: Plan, size: int | None) -> Decided:
    """Return a plan as a row; the bytes are the deleted tokens' share of the store's file."""
    whole = packed(plan)  # before the digest is asked for, which comes with it
    total, gone = plan.total, plan.deletes
    share = gone.tokens / total.tokens if total.tokens else 0.0
    return Decided(
        digest=plan.digest,
        memories=total.memories,
        deleted=gone.memories,
        deleted_tokens=gone.tokens,
        deleted_bytes=None if size is None else round(size * share),
        boot_before=plan.boot_before.tokens,
        boot_after=plan.boot_after.tokens,
        floor=plan.floor.tokens,
        plan=whole,
    )


def plan(
    sources: Sources,
    policy: Policy | None = None,
    *,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    save: str | PathLike[str] | None = None,
) -> FleetPlan:
    """Say what a policy would delete from every store. Reads the stores only.

    Parameters
    ----------
    sources, runner, progress
        As for :func:`memlab.fleet.survey`.
    policy : Policy, optional
        The rule, the same for every store; by default that which each store's ``memlab.toml``
        remembers.
    now : datetime, optional
        The moment of the decision, with a time zone.
    save : str or Path, optional
        A file to write for review. The plans of the stores are kept in a folder beside it,
        ``FILE.plans``, as they are made: the same call again goes on where it was.

    Returns
    -------
    FleetPlan
        Print it to see what it would do. A store that cannot be planned is in ``refused``.

    Raises
    ------
    MemlabError
        When no store was named, or the file cannot be written.
    WrongArgumentError
        When `policy` is none.
    """
    expect(policy, Policy, call="memlab.fleet.plan", name="policy", optional=True)
    moment = moment_or_now(now, call="memlab.fleet.plan")
    members = members_of(sources)
    parts = None if save is None else plan_parts(Path(save), policy, moment)
    work = Deciding(policy, moment)
    found = outcomes_of(work, members, runner=runner, progress=progress, parts=parts)
    made = _fleet_plan(found, policy, moment, parts)
    if save is not None:
        made.write(save)
    return made


def plan_parts(file: Path, policy: Policy | None, now: datetime) -> Parts:
    """Return the folder of plans that belongs to a fleet plan's file."""
    return Parts(
        saved_beside(file),
        Decided,
        PLAN_DTYPES,
        question={"asked": "plan", "policy": _said(policy)},
        rests_on="" if policy is not None and _is_timeless(policy) else now.isoformat(),
    )


def _is_timeless(policy: Policy) -> bool:
    """Whether a policy decides the same of a store that has not changed, at whatever moment."""
    return all(runner_for(step) == "ranked" for step in policy.steps)


def _fleet_plan(
    outcomes: list[Outcome[Decided]], policy: Policy | None, now: datetime, parts: Parts | None
) -> FleetPlan:
    texts = {each.name: each.value.plan for each in outcomes if each.value is not None}
    return FleetPlan(
        made_at=now,
        policy=_said(policy),
        stores=tuple(
            PlannedStore(each.name, *each.value[:-1]) for each in outcomes if each.value is not None
        ),
        refused=tuple(Refused(each.name, each.kind, each.error) for each in outcomes if each.error),
        folder=None if parts is None else parts.folder,
        texts=texts if parts is None else {},
    )


def _said(policy: Policy | None) -> dict[str, Any]:
    return {"policy": "remembered"} if policy is None else as_data(policy)
