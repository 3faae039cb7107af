"""One review of many stores, then the change: plan, apply, and what each needs at times."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import pyarrow as pa

from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction import wire
from memlab.compaction.applier import apply as apply_to_store
from memlab.compaction.applier import receipt_of
from memlab.compaction.planner import plan as plan_store
from memlab.compaction.plans import Plan
from memlab.errors import AlreadyAppliedError, PlanError, PolicyError
from memlab.files import OWNER_ONLY, read_whole, write_whole
from memlab.fleet.names import Member, Members, Sources
from memlab.fleet.sweep import bytes_of, column_of, outcomes_of, table_of
from memlab.fleet.workers import FleetTask, Given, Progress, Runner
from memlab.policies import Policy
from memlab.policies.base import runner_for
from memlab.sizing.in_force import remembered_policy
from memlab.sources.opening import open_source, settings_of
from memlab.text import DisplayMixin, Table, TextPage, command, counted
from memlab.upkeep.maintenance import StepOutcome
from memlab.upkeep.maintenance import maintain as maintain_store

if TYPE_CHECKING:
    import pandas as pd

LARGEST: Final = 10
"""Stores that are listed by what goes from them."""
MARKER: Final = "memlab_fleet_plan"

_CODEC: Final = "zstd"
_ROOM: Final = 2**24
_PACKED: Final = 64
"""A plan has at most :data:`_ROOM` bytes, or so many times those that it is packed in."""


@dataclass(frozen=True)
class PlannedStore:
    """What a plan does to one store.

    `digest` is that of the store's own plan, which says which memories go. `deleted_bytes` is
    about what a vacuum would give back: their share of the file; None for a server. ``boot_*`` and
    `floor` are tokens that an agent loads at start, and those of the load-bearing part of it.
    """

    store: str
    digest: str
    memories: int
    deleted: int
    deleted_tokens: int
    deleted_bytes: int | None
    boot_before: int
    boot_after: int
    floor: int


@dataclass(frozen=True)
class DecidedStore(PlannedStore):
    """A store's line, and the whole of its plan, packed into a seventh of the room of its text."""

    plan: bytes

    stored_names: ClassVar[Mapping[str, str]] = {
        "store": "store",
        "digest": "digest",
        "memories": "memories",
        "deleted": "deleted",
        "deleted_tokens": "deleted_tokens",
        "deleted_bytes": "deleted_bytes",
        "boot_before": "boot_before",
        "boot_after": "boot_after",
        "floor": "floor",
        "plan": "plan",
    }


@dataclass(frozen=True)
class Refused:
    """A store that has no plan: its name, the error's class, and the error in words."""

    store: str
    kind: str
    error: str


@dataclass(frozen=True, repr=False)
class FleetPlan(DisplayMixin):
    """What a policy would delete from many stores. Printing it is the dry run.

    `stores` and `refused`, those that could not be planned, are in the order in which they were
    named. The stores' own plans lie in `folder`, or where that is None in `texts`, by store.
    `added` is what a plan of a newer format says beside this, by key; the digest covers it.
    """

    made_at: datetime
    policy: Mapping[str, Any]
    stores: tuple[PlannedStore, ...]
    refused: tuple[Refused, ...]
    folder: Path | None = None
    texts: Mapping[str, bytes] = field(default_factory=dict)
    added: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that the file says, 64 hexadecimal digits."""
        text = json.dumps(self._content(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def changed(self) -> tuple[PlannedStore, ...]:
        """The stores from which something goes."""
        return tuple(store for store in self.stores if store.deleted)

    @property
    def totals(self) -> dict[str, int]:
        """What goes from all of them together."""
        counts = {
            "stores": len(self.stores),
            "changed": len(self.changed),
            "refused": len(self.refused),
        }
        sums = {
            key: sum(getattr(each, name) or 0 for each in self.stores)
            for name, key in KEYS[PlannedStore].items()
            if name not in ("store", "digest")
        }
        return counts | sums

    @property
    def _ranked(self) -> list[PlannedStore]:
        return sorted(self.changed, key=lambda s: (-s.deleted_tokens, s.store))

    @property
    def largest(self) -> list[PlannedStore]:
        """The ten stores that most goes from."""
        return self._ranked[:LARGEST]

    def to_json(self) -> str:
        """Return the plan as text that diffs well: totals, the largest, and one line a store."""
        content = self._content()
        said = {**wire.header(MARKER), "digest": self.digest}
        said |= {key: content.pop(key) for key in ("made_at", "policy", *self.added)}
        said["totals"] = self.totals
        largest = [wire.to_json_fields(each, KEYS) for each in self.largest]
        lists = {"largest": largest, **content}
        parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in said.items()]
        for name, rows in lists.items():  # one row on each line
            inside = ",\n ".join(map(json.dumps, rows))
            parts.append(f'"{name}": [\n {inside}\n]' if rows else f'"{name}": []')
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the plan that :meth:`to_json` wrote, without the stores' own plans.

        PlanError where the text is no plan of many stores, or was edited.
        """
        content = wire.parsed(text, MARKER)
        with wire.fields_checked("plan of a fleet"):
            made_at = wire.when(content, "made_at")
            policy = wire.field_of(content, "policy", dict)
            stores = wire.tuples_of(content, "stores", PlannedStore, KEYS)  # type: ignore[type-var]
            refused = wire.tuples_of(content, "refused", Refused, KEYS)  # type: ignore[type-var]
            added = wire.added_fields(content, MARKER, _CONTENT)
            plan = cls(made_at, policy, stores, refused, added=added)
        if plan.digest != content.get("digest"):
            raise PlanError(
                "the plan was edited after it was made: its digest does not fit; make a new plan, "
                "of the stores that you want changed"
            )
        return plan

    @classmethod
    def read(cls, file: str | PathLike[str]) -> Self:
        """Return the plan in a file, whose stores' own plans lie in the folder beside it.

        PlanError where it is no plan of many stores, was edited, or the folder is missing.
        """
        plan = cls.from_json(read_whole(Path(file)))
        folder = saved_beside(Path(file))
        if plan.changed and not folder.is_dir():
            raise PlanError(
                f"the plans of the stores are missing: {folder} lay beside {file}; keep them "
                "together, or make a new plan"
            )
        return replace(plan, folder=folder)

    def sheet(self) -> TextPage:
        """Return what is printed."""
        totals = self.totals
        facts = [
            ("policy", wire.in_words(self.policy)),
            ("decided", wire.minute(self.made_at)),
            ("deletes", f"{totals['deleted']:,} of {counted(totals['memories'], 'memories')}"),
            ("tokens", f"{totals['deleted_tokens']:,}"),
            ("on the disk", f"about {totals['deleted_bytes'] / 1e6:,.1f} MB after a vacuum"),
            ("at start", f"{totals['boot_before']:,} -> {counted(totals['boot_after'], 'tokens')}"),
            ("floor", f"{counted(totals['floor'], 'tokens')}; no policy goes below it"),
        ]
        changed = f"{totals['changed']:,} of {counted(totals['stores'], 'stores')} change"
        title = f"plan {self.digest[:12]}: {changed}"
        shown = attrgetter("deleted", "deleted_tokens", "boot_before", "boot_after", "store")
        rows = list(map(shown, self._ranked))
        header = ("memories go", "tokens", "at start", "after", "store")
        refused = [(each.store, each.error) for each in self.refused]
        tables = [Table("where most goes", header, rows, whole=True)] if rows else []
        tables += [Table("refused", (), refused, whole=True)] if refused else []
        tables = [each.first(LARGEST) for each in tables]
        return TextPage(title, facts, tables)

    def next_steps(self) -> list[str]:
        """Return lines that say what to run next."""
        if not self.changed:
            stays = self.stores or not self.refused
            return ["nothing to do: under this policy every memory stays"] if stays else []
        if self.folder is None:
            return ["nothing was deleted; add --save-plan FILE to have it reviewed and applied"]
        file = self.folder.with_suffix("")
        return [
            f"nothing was deleted; the plan is in {file}. After review:",
            f"  {command('fleet apply', file)}",
        ]

    def _content(self) -> dict[str, Any]:
        return {
            "made_at": self.made_at.isoformat(),
            "policy": dict(self.policy),
            "refused": [wire.to_json_fields(each, KEYS) for each in self.refused],
            "stores": [wire.to_json_fields(each, KEYS) for each in self.stores],
            **self.added,
        }


_CONTENT: Final = ("made_at", "policy", "totals", "largest", "refused", "stores")
KEYS: Final[wire.StoredKeys] = {
    PlannedStore: {
        "store": "store",
        "digest": "digest",
        "memories": "memories",
        "deleted": "deleted",
        "deleted_tokens": "deleted_tokens",
        "deleted_bytes": "deleted_bytes",
        "boot_before": "boot_before",
        "boot_after": "boot_after",
        "floor": "floor",
    },
    Refused: {"store": "store", "kind": "kind", "error": "error"},
}
"""The keys of fleet plans: those of format 2, which are never changed."""


def saved_beside(file: Path) -> Path:
    """Return where the plans of the stores are kept that belong to a fleet plan's file."""
    return file.with_name(f"{file.name}.plans")


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
    sources, runner, now, progress
        As for :func:`memlab.fleet.survey`.
    policy : Policy, optional
        The same for every store; by default that which each store's ``memlab.toml`` remembers.
    save : str or Path, optional
        A file to write for review. The plans of the stores are kept in a folder beside it,
        ``FILE.plans``, as they are made: the same call again goes on where it was.
    """
    expect(policy, Policy, call="memlab.fleet.plan", name="policy", optional=True)
    moment = moment_or_now(now, call="memlab.fleet.plan")
    task = plan_task(policy, moment)
    folder = None if save is None else saved_beside(Path(save))
    how: Any = {"runner": runner, "progress": progress, "out": folder}
    found = outcomes_of(task, sources, given=lambda member: member.name, **how)
    decided = [each.value for each in found if each.value is not None]
    line = attrgetter(*KEYS[PlannedStore])
    stores = tuple(PlannedStore(*line(each)) for each in decided)
    refused = tuple(Refused(each.name, each.kind, each.error) for each in found if each.error)
    texts = {each.store: each.plan for each in decided} if folder is None else {}
    made = FleetPlan(moment, _said(policy), stores, refused, folder, texts)
    if save is not None:
        write_whole(Path(save), made.to_json(), limit=OWNER_ONLY)
    return made


def plan_task(policy: Policy | None, now: datetime) -> FleetTask[DecidedStore]:
    """Return the task of planning; a policy that asks for no time decides the same at any."""
    timeless = policy is not None and all(runner_for(step) == "ranked" for step in policy.steps)
    asked = {"policy": _said(policy)}
    rests_on = "" if timeless else now.isoformat()
    work = partial(decide_store, policy=policy, now=now)
    return FleetTask("plan", work, DecidedStore, asked=asked, rests_on=rests_on)


def decide_store(where: str, name: str, *, policy: Policy | None, now: datetime) -> DecidedStore:
    """Return the plan of one store; its bytes are the deleted tokens' share of the file."""
    source = open_source(where)
    if policy is None and settings_of(source).retire:
        raise PolicyError(
            "memlab.toml beside the store says retire = true, and a fleet plan deletes: name a "
            "policy to delete by, or run: memlab fleet maintain"
        )
    policy = remembered_policy(source)[0] if policy is None else policy
    plan = plan_store(source, policy, now=now)
    text = plan.to_json(compact=True)  # before the digest is asked for, which comes with it
    total = plan.total
    gone = plan.deletes
    size = bytes_of(source)
    share = gone.tokens / total.tokens if total.tokens else 0.0
    return DecidedStore(
        store=name,
        digest=plan.digest,
        memories=total.memories,
        deleted=gone.memories,
        deleted_tokens=gone.tokens,
        deleted_bytes=None if size is None else round(size * share),
        **{each: getattr(plan, each).tokens for each in ("boot_before", "boot_after", "floor")},
        plan=pa.Codec(_CODEC).compress(text.encode(), asbytes=True),
    )


def _said(policy: Policy | None) -> dict[str, Any]:
    return {"policy": "remembered"} if policy is None else wire.as_data(policy)


def unpacked(text: bytes) -> Plan:
    """Return the plan that was packed.

    >>> unpacked(b"not packed")
    Traceback (most recent call last):
    memlab.errors.PlanError: its saved plan is damaged; make a new plan
    """
    most = max(_ROOM, _PACKED * len(text))
    try:
        whole = pa.CompressedInputStream(pa.BufferReader(text), _CODEC).read(most + 1)
    except OSError:
        whole = b""
    if not 0 < len(whole) <= most:
        raise PlanError("its saved plan is damaged; make a new plan")
    return Plan.from_json(whole)


@dataclass(frozen=True)
class Applied:
    """What applying its plan did to a store.

    `status` is ``"applied"``, or ``"applied before"`` where an earlier run did it. ``boot_*`` are
    the tokens loaded at start, as the plan saw it; `undo` is the command that takes it back.
    """

    digest: str
    status: str
    deleted: int
    boot_before: int
    boot_after: int
    archive: str | None
    undo: str | None

    stored_names: ClassVar[Mapping[str, str]] = {
        "digest": "digest",
        "status": "status",
        "deleted": "deleted",
        "boot_before": "boot_before",
        "boot_after": "boot_after",
        "archive": "archive",
        "undo": "undo",
    }


def apply(
    plan: FleetPlan | str | PathLike[str],
    *,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    all_prunable: bool = False,
) -> "pd.DataFrame":
    """Carry out a reviewed plan, each store for itself, and say what became of each.

    What is deleted goes to the store's own archive first. A store that is not as its plan saw it is
    refused, alone. The same call again finishes what was stopped; nothing is applied twice.

    Parameters
    ----------
    plan : FleetPlan, str or Path
        What :func:`memlab.fleet.plan` returned, or the file that it saved; PlanError of another.
    now, runner, progress
        As for :func:`memlab.fleet.survey`.
    all_prunable : bool
        Whether it is meant that no prunable memory stays loaded, of whichever store; else such a
        store is refused, alone.

    Returns
    -------
    DataFrame
        A row for each store from which something goes: ``store``, the fields of :class:`Applied`,
        and ``error``, missing where there is none.
    """
    expect(plan, FleetPlan, str, PathLike, call="memlab.fleet.apply", name="plan")
    reviewed = plan if isinstance(plan, FleetPlan) else FleetPlan.read(plan)
    members, given = saved_plans(reviewed)
    moment = moment_or_now(now, call="memlab.fleet.apply")
    work = partial(apply_saved, now=moment, all_prunable=all_prunable)
    task = FleetTask("apply", work, Applied, changes=True)
    return table_of(task, members, runner=runner, progress=progress, given=given)


def apply_saved(where: str, given: tuple[str, bytes | None], **how: Any) -> Applied:
    """Apply the plan of one store, which is handed over with the digest that was reviewed.

    The rest is as for :func:`memlab.apply`.
    """
    digest, text = given
    if text is None:
        raise PlanError("its plan is not among those saved; make a new plan")
    plan = unpacked(text)
    if plan.digest != digest:
        raise PlanError("its saved plan is not the one that was reviewed; make a new plan")
    status = "applied"
    try:
        done = apply_to_store(plan, store=where, **how)
    except AlreadyAppliedError:
        status = "applied before"
        done = receipt_of(plan, open_source(where), plan.made_at)
    starts = (done.boot_before.tokens, done.boot_after.tokens)
    return Applied(plan.digest, status, done.deleted, *starts, done.archive, done.undo)


def saved_plans(plan: FleetPlan) -> tuple[Members, Given]:
    """Return the stores that a plan changes, and what hands each its digest and its own plan."""
    digests = {each.store: each.digest for each in plan.changed}
    text_of = plan.texts.get if plan.folder is None else column_of(plan.folder, "plan")
    members = Members(tuple(map(Member.at, digests)))
    return members, lambda member: (digests[member.name], text_of(member.name))


@dataclass(frozen=True)
class MaintainedStore:
    """What maintenance did to a store, or would do.

    `status` is ``"done"``, ``"would"``, ``"nothing"`` or ``"FAILED"``. `doctor`, `compact`,
    `drop` and `vacuum` say what there is to say of each step, None of one that it did not come
    to, `failed` what the step said that failed, whichever it was; `undo` is the command that takes
    the deletion back.
    """

    status: str
    deleted: int
    doctor: str | None
    compact: str | None
    drop: str | None
    vacuum: str | None
    failed: str | None
    undo: str | None

    stored_names: ClassVar[Mapping[str, str]] = {
        "status": "status",
        "deleted": "deleted",
        "doctor": "doctor",
        "compact": "compact",
        "drop": "drop",
        "vacuum": "vacuum",
        "failed": "failed",
        "undo": "undo",
    }


def maintain(  # noqa: PLR0913 - what is done, and how the work is shared out
    sources: Sources,
    *,
    apply: bool = False,
    yes: bool = False,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
) -> "pd.DataFrame":
    """Look after every store by what its ``memlab.toml`` remembers; see :func:`memlab.maintain`.

    Parameters
    ----------
    sources, now, runner, progress
        As for :func:`memlab.fleet.survey`.
    apply : bool
        Whether to do it. Without it the stores are only read.
    yes : bool
        Whether an ``archive_for`` of less than a day is meant, wherever it is remembered.
    out : str or Path, optional
        A folder in which results are kept as they come: the same call again goes on where it was.
        Once every store was looked after, it begins anew.

    Returns
    -------
    DataFrame
        A row for each store: ``store``, the fields of :class:`MaintainedStore`, and ``error``,
        missing where there is none. Of a store of which nothing is remembered that is the error.
    """
    moment = moment_or_now(now, call="memlab.fleet.maintain")
    work = partial(_maintained, apply=apply, yes=yes, now=moment)
    # the results of a run that finished say nothing now
    task = FleetTask(
        "maintain", work, MaintainedStore, changes=apply, asked={"applied": apply}, rests_on=None
    )
    return table_of(task, sources, runner=runner, progress=progress, out=out)


def _maintained(where: str, **how: Any) -> MaintainedStore:
    found = maintain_store(where, **how)
    said = {step.name: step.words for step in found.steps}
    outcomes = {step.outcome for step in found.steps if step.name != "doctor"}
    ends = (StepOutcome.WOULD, StepOutcome.DONE)
    status = next((each for each in ends if each in outcomes), StepOutcome.NOTHING)
    failed = (step.words for step in found.steps if step.outcome == StepOutcome.FAILED)
    ahead = found.plan if found.has_work and not found.failed else None
    planned = len(ahead.memories) if ahead else 0
    return MaintainedStore(
        status=str(StepOutcome.FAILED if found.failed else status),
        deleted=found.deleted or planned,
        doctor=said.get("doctor", said.get("clock")),
        **{name: said.get(name) for name in ("compact", "drop", "vacuum")},
        failed=next(failed, None),
        undo=found.undo,
    )
