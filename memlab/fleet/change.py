"""Plan a change to many stores, apply the reviewed plan, and maintain each store."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, cast

import pyarrow as pa

from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction import wire
from memlab.compaction.applier import apply as apply_to_store
from memlab.compaction.planner import plan as plan_store
from memlab.compaction.plans import Plan
from memlab.compaction.store_change import receipt_of
from memlab.errors import AlreadyAppliedError, PlanError, PolicyError
from memlab.files import OWNER_ONLY, read_whole, write_whole
from memlab.fleet.names import Member, Members, Sources
from memlab.fleet.sweep import bytes_of, outcomes_of, table_of, value_lookup
from memlab.fleet.workers import ArgumentOf, FleetTask, Progress, Runner
from memlab.policies import Policy
from memlab.policies.base import runner_name_of
from memlab.sizing.in_force import require_policy
from memlab.sources.opening import open_source, settings_of
from memlab.text import DisplayMixin, Table, TextPage, command, counted
from memlab.upkeep.maintenance import Maintenance, StepOutcome
from memlab.upkeep.maintenance import maintain as maintain_store

if TYPE_CHECKING:
    import pandas as pd

MAX_LISTED: Final = 10
"""Maximum number of stores on a page; the store with the most deleted tokens comes first."""
MARKER: Final = "memlab_fleet_plan"
"""Key that marks a file as a fleet plan; its value is the format number."""

_SAVED_POLICIES: Final = "remembered"
"""Stored name of a plan's policy that stands for the saved policy of each store."""
_CODEC: Final = "zstd"
"""Compression of a store's plan."""
_MAX_PLAN_BYTES: Final = 2**24
"""Decompressed size, in bytes, up to which a store's plan is accepted."""
_MAX_RATIO: Final = 64
"""Compression ratio up to which a larger plan is accepted, because valid plans can be so large."""


@dataclass(frozen=True)
class PlannedStore:
    """The totals of one store's plan.

    Attributes
    ----------
    store : str
        The store's name: an absolute path, or a URL without a password.
    digest : str
        SHA-256 of the store's own plan, which lists the memories to delete.
    memories : int
        Memories in the store.
    deleted : int
        Memories that the plan deletes.
    deleted_tokens : int
        Tokens of the deleted memories.
    deleted_bytes : int or None
        Estimated bytes that a vacuum gives back: the file size times the share of deleted tokens.
        None for a server.
    boot_before, boot_after : int
        Tokens that an agent loads at start, before and after the deletion.
    floor : int
        Tokens of the load-bearing memories that an agent loads at start.

    Examples
    --------
    >>> import memlab.fleet
    >>> plan = memlab.fleet.plan(memlab.store_path("looked_up"), memlab.KeepRecent(50))
    >>> [(store.memories, store.deleted) for store in plan.stores]
    [(480, 384)]
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
class PlanRow(PlannedStore):
    """The totals of one store's plan, and the plan itself: a row in the folder of a fleet plan."""

    plan: bytes
    """The store's plan as JSON, compressed to about a seventh of its size."""

    # The names in Parquet files, which stay if a field is renamed; see `stored_names_of`.
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
    """A store that could not be planned.

    Attributes
    ----------
    store : str
        The store's name.
    kind : str
        Name of the error's class.
    error : str
        The error's message.

    Examples
    --------
    >>> Refused("/srv/a.db", "StoreError", "there is no such file").kind
    'StoreError'
    """

    store: str
    kind: str
    error: str


@dataclass(frozen=True, repr=False)
class FleetPlan(DisplayMixin):
    """A plan to delete memories from many stores. Printing it shows the dry run.

    Attributes
    ----------
    made_at : datetime
        When the plan was made, with a time zone.
    policy : Mapping
        The policy's name and settings; ``{"policy": "remembered"}`` stands for the saved policy of
        each store.
    stores : tuple of PlannedStore
        The planned stores, in the order in which they were named.
    refused : tuple of Refused
        The stores that could not be planned, in the same order.
    folder : Path or None
        The folder that holds the stores' own plans. None if they are in `packed_plans`.
    packed_plans : Mapping
        The stores' own plans by store name, compressed; empty if they are in `folder`.
    added : Mapping
        Fields of a newer format that this version does not know, by key. The digest includes them.

    Examples
    --------
    >>> import memlab.fleet
    >>> plan = memlab.fleet.plan(memlab.store_path("looked_up"), memlab.KeepRecent(50))
    >>> FleetPlan.from_json(plan.to_json()).digest == plan.digest
    True
    """

    made_at: datetime
    policy: Mapping[str, Any]
    stores: tuple[PlannedStore, ...]
    refused: tuple[Refused, ...]
    folder: Path | None = None
    packed_plans: Mapping[str, bytes] = field(default_factory=dict)
    added: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the plan's content, 64 hexadecimal digits."""
        text = json.dumps(self._content(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def changed(self) -> tuple[PlannedStore, ...]:
        """The stores from which the plan deletes at least one memory."""
        return tuple(store for store in self.stores if store.deleted)

    @property
    def totals(self) -> dict[str, int]:
        """The numbers of stores, and the sum of each numeric field over all stores, by JSON key."""
        totals = {
            "stores": len(self.stores),
            "changed": len(self.changed),
            "refused": len(self.refused),
        }
        for name, key in KEYS[PlannedStore].items():
            if name not in ("store", "digest"):
                totals[key] = sum(getattr(store, name) or 0 for store in self.stores)
        return totals

    @property
    def _ranked(self) -> list[PlannedStore]:
        """The changed stores, most deleted tokens first."""
        return sorted(self.changed, key=lambda store: (-store.deleted_tokens, store.store))

    @property
    def largest(self) -> list[PlannedStore]:
        """The ten stores with the most deleted tokens."""
        return self._ranked[:MAX_LISTED]

    def to_json(self) -> str:
        """Return the plan as JSON that diffs well, with one line for each store.

        Returns
        -------
        str
            The header, the totals, the largest deletions, the refused stores and all stores.
        """
        content = self._content()
        fields: dict[str, Any] = {**wire.header(MARKER), "digest": self.digest}
        for key in ("made_at", "policy", *self.added):
            fields[key] = content[key]
        fields["totals"] = self.totals
        lists = {
            "largest": [wire.to_json_fields(store, KEYS) for store in self.largest],
            "refused": content["refused"],
            "stores": content["stores"],
        }
        parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
        parts += [_json_list(name, rows) for name, rows in lists.items()]
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse the JSON of :meth:`to_json`. The stores' own plans are not in it.

        Parameters
        ----------
        text : str or bytes
            The JSON text.

        Returns
        -------
        FleetPlan
            The plan. Its `folder` is None, and its `packed_plans` are empty.

        Raises
        ------
        PlanError
            If the text is not a fleet plan, or was edited.
        """
        content = wire.parsed(text, MARKER)
        with wire.fields_checked("plan of a fleet"):
            made_at = wire.time_of(content, "made_at")
            policy = wire.field_of(content, "policy", dict)
            stores = wire.tuples_of(content, "stores", PlannedStore, KEYS)  # type: ignore[type-var]
            refused = wire.tuples_of(content, "refused", Refused, KEYS)  # type: ignore[type-var]
            added = wire.added_fields(content, MARKER, _KNOWN_KEYS)
            plan = cls(made_at=made_at, policy=policy, stores=stores, refused=refused, added=added)
        wire.check_digest(content, plan.digest, ", of the stores that you want changed")
        return plan

    @classmethod
    def read(cls, file: str | PathLike[str]) -> Self:
        """Load a plan from a file, and find the stores' own plans in the folder beside it.

        Parameters
        ----------
        file : str or Path
            The file that :func:`plan` wrote.

        Returns
        -------
        FleetPlan
            The plan, with its folder.

        Raises
        ------
        PlanError
            If the file is not a fleet plan, was edited, or the folder is missing.
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
        """Return the plan as a page."""
        totals = self.totals
        policy = wire.policy_in_words(self.policy)
        if self.policy.get("policy") == _SAVED_POLICIES:
            policy = "the policy saved for each store"
        facts = [
            ("policy", policy),
            ("decided", wire.minute_in_words(self.made_at)),
            ("deletes", f"{totals['deleted']:,} of {counted(totals['memories'], 'memories')}"),
            ("tokens", f"{totals['deleted_tokens']:,}"),
            ("on the disk", f"about {totals['deleted_bytes'] / 1e6:,.1f} MB after a vacuum"),
            ("at start", f"{totals['boot_before']:,} -> {counted(totals['boot_after'], 'tokens')}"),
            ("floor", f"{counted(totals['floor'], 'tokens')}; no policy goes below it"),
        ]
        changed = f"{totals['changed']:,} of {counted(totals['stores'], 'stores')} change"
        title = f"plan {self.digest[:12]}: {changed}"
        rows = [
            (store.deleted, store.deleted_tokens, store.boot_before, store.boot_after, store.store)
            for store in self._ranked
        ]
        header = ("memories go", "tokens", "at start", "after", "store")
        refused = [(store.store, store.error) for store in self.refused]
        tables: list[Table] = []
        if rows:
            tables.append(Table("where most goes", header, rows, whole=True).first(MAX_LISTED))
        if refused:
            tables.append(Table("refused", (), refused, whole=True).first(MAX_LISTED))
        return TextPage(title, facts, tables)

    def next_steps(self) -> list[str]:
        """Return the lines with the command to run next."""
        if not self.changed:
            if self.stores or not self.refused:
                return ["nothing to do: this policy keeps every memory"]
            return []
        if self.folder is None:
            return ["nothing was deleted; add --save-plan FILE to have it reviewed and applied"]
        file = self.folder.with_suffix("")  # without ".plans"; see saved_beside
        return [
            f"nothing was deleted; the plan is in {file}. After review:",
            f"  {command('fleet apply', file)}",
        ]

    def _content(self) -> dict[str, Any]:
        """Return the fields that the digest covers, by JSON key."""
        return {
            "made_at": self.made_at.isoformat(),
            "policy": dict(self.policy),
            "refused": [wire.to_json_fields(store, KEYS) for store in self.refused],
            "stores": [wire.to_json_fields(store, KEYS) for store in self.stores],
            **self.added,
        }


def _json_list(name: str, rows: list[Any]) -> str:
    """Return a JSON field with a list as text, with a line for each row."""
    if not rows:
        return f'"{name}": []'
    lines = ",\n ".join(map(json.dumps, rows))
    return f'"{name}": [\n {lines}\n]'


_KNOWN_KEYS: Final = ("made_at", "policy", "totals", "largest", "refused", "stores")
"""Keys of a fleet plan, except those of its header."""
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
"""JSON keys of a fleet plan's rows, by class and field. Format 2 fixes them: never change one."""


def saved_beside(file: Path) -> Path:
    """Return the folder beside a fleet plan's file that holds the stores' own plans.

    >>> saved_beside(Path("fleet-plan.json")).name
    'fleet-plan.json.plans'
    """
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
    """Plan what a policy would delete from every store. The stores are only read.

    Parameters
    ----------
    sources, runner, now, progress
        As for :func:`memlab.fleet.survey`.
    policy : Policy, optional
        The policy for every store. By default each store uses the policy in its ``memlab.toml``.
    save : str or Path, optional
        A file to write for review. The stores' own plans are saved in the folder ``FILE.plans``
        beside it as they are made, so that the same call resumes an interrupted one.

    Returns
    -------
    FleetPlan
        The totals of each store's plan, and the stores that could not be planned.

    Raises
    ------
    MemlabError
        If no store was named, or the folder beside `save` holds other files.

    Examples
    --------
    >>> import memlab.fleet
    >>> plan = memlab.fleet.plan(memlab.store_path("looked_up"), memlab.KeepRecent(50))
    >>> [store.memories for store in plan.stores], plan.refused
    ([480], ())
    """
    expect(policy, Policy, call="memlab.fleet.plan", name="policy", optional=True)
    moment = moment_or_now(now, call="memlab.fleet.plan")
    task = plan_task(policy, moment)
    folder = None if save is None else saved_beside(Path(save))
    outcomes = outcomes_of(
        task,
        sources,
        runner=runner,
        progress=progress,
        out=folder,
        argument_of=lambda member: member.name,  # plan_one_store takes it as `name`
    )
    rows = [outcome.value for outcome in outcomes if outcome.value is not None]
    packed_plans: dict[str, bytes] = {}
    if folder is None:
        packed_plans = {row.store: row.plan for row in rows}
    fleet_plan = FleetPlan(
        made_at=moment,
        policy=_policy_fields(policy),
        stores=tuple(_without_plan(row) for row in rows),
        refused=tuple(
            Refused(store=outcome.name, kind=outcome.kind, error=outcome.error)
            for outcome in outcomes
            if outcome.error
        ),
        folder=folder,
        packed_plans=packed_plans,
    )
    if save is not None:
        write_whole(Path(save), fleet_plan.to_json(), permissions=OWNER_ONLY)
    return fleet_plan


def _without_plan(row: PlanRow) -> PlannedStore:
    """Return the totals of a store's plan without the plan itself."""
    return PlannedStore(
        store=row.store,
        digest=row.digest,
        memories=row.memories,
        deleted=row.deleted,
        deleted_tokens=row.deleted_tokens,
        deleted_bytes=row.deleted_bytes,
        boot_before=row.boot_before,
        boot_after=row.boot_after,
        floor=row.floor,
    )


def plan_task(policy: Policy | None, now: datetime) -> FleetTask[PlanRow]:
    """Return the task that plans a store.

    The result of a policy that only ranks memories does not depend on `now`, and is reused later.
    """
    only_ranks = policy is not None and all(
        runner_name_of(step) == "ranked" for step in policy.steps
    )
    depends_on = "" if only_ranks else now.isoformat()
    return FleetTask(
        name="plan",
        work=partial(plan_one_store, policy=policy, now=now),
        row=PlanRow,
        settings={"policy": _policy_fields(policy)},
        depends_on=depends_on,
    )


def plan_one_store(location: str, name: str, *, policy: Policy | None, now: datetime) -> PlanRow:
    """Plan one store, and return the plan with its totals.

    Raise a PolicyError if `policy` is None and the store's settings retire memories instead of
    deleting them.
    """
    source = open_source(location)
    if policy is None and settings_of(source).retire:
        raise PolicyError(
            "memlab.toml beside the store says retire = true, and a fleet plan deletes: name a "
            "policy to delete by, or run: memlab fleet maintain"
        )
    if policy is None:
        policy, _ = require_policy(source)
    plan = plan_store(source, policy, now=now)
    text = plan.to_json(compact=True)  # comes first, because it also computes the digest
    total = plan.total
    deleted = plan.deletes
    return PlanRow(
        store=name,
        digest=plan.digest,
        memories=total.memories,
        deleted=deleted.memories,
        deleted_tokens=deleted.tokens,
        deleted_bytes=_share_of_bytes(bytes_of(source), deleted.tokens, total.tokens),
        boot_before=plan.boot_before.tokens,
        boot_after=plan.boot_after.tokens,
        floor=plan.floor.tokens,
        plan=pa.Codec(_CODEC).compress(text.encode(), asbytes=True),
    )


def _share_of_bytes(size: int | None, deleted_tokens: int, tokens: int) -> int | None:
    """Estimate the bytes of deleted tokens as a share of the file size; None for a server."""
    if size is None:
        return None
    share = deleted_tokens / tokens if tokens else 0.0
    return round(size * share)


def _policy_fields(policy: Policy | None) -> dict[str, Any]:
    """Return a policy as the fields of a plan; None stands for the saved policy of each store."""
    if policy is None:
        return {"policy": _SAVED_POLICIES}
    fields: dict[str, Any] = wire.as_data(policy)
    return fields


def unpacked(packed: bytes) -> Plan:
    """Decompress a store's plan, and return it.

    Raise a PlanError if the bytes are damaged, or decompress to more than the maximum size.

    >>> unpacked(b"not packed")
    Traceback (most recent call last):
    memlab.errors.PlanError: its saved plan is damaged; make a new plan
    """
    max_bytes = max(_MAX_PLAN_BYTES, _MAX_RATIO * len(packed))
    try:
        content = pa.CompressedInputStream(pa.BufferReader(packed), _CODEC).read(max_bytes + 1)
    except OSError:
        content = b""
    if not content or len(content) > max_bytes:
        raise PlanError("its saved plan is damaged; make a new plan")
    return Plan.from_json(content)


class AppliedStatus(StrEnum):
    """Whether a call applied a store's plan, or an earlier one did. The values are stored.

    Examples
    --------
    >>> AppliedStatus("applied before").name
    'APPLIED_BEFORE'
    """

    APPLIED = "applied"
    APPLIED_BEFORE = "applied before"


@dataclass(frozen=True)
class Applied:
    """The result of applying one store's plan.

    Attributes
    ----------
    digest : str
        SHA-256 of the store's plan.
    status : str
        ``"applied"``, or ``"applied before"`` if an earlier run applied it; see
        :class:`AppliedStatus`.
    applied_at : datetime
        When the plan was applied.
    deleted : int
        Memories that were deleted.
    boot_before, boot_after : int
        Tokens that an agent loads at start, as counted when the plan was made.
    archive : str or None
        The archive that holds the deleted memories.
    undo : str or None
        The command that undoes the deletion.

    Examples
    --------
    >>> import memlab.fleet
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> table = memlab.fleet.apply(memlab.fleet.plan(store, memlab.KeepRecent(50)))
    >>> table[["status", "deleted"]].to_dict("records")  # each row has these fields
    [{'status': 'applied', 'deleted': 384}]
    """

    digest: str
    status: str
    applied_at: datetime
    deleted: int
    boot_before: int
    boot_after: int
    archive: str | None
    undo: str | None

    # The names in Parquet files, which stay if a field is renamed; see `stored_names_of`.
    stored_names: ClassVar[Mapping[str, str]] = {
        "digest": "digest",
        "status": "status",
        "applied_at": "applied_at",
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
    """Apply a reviewed plan to each of its stores.

    Deleted memories are first archived in the store's own archive. The plan of a store that has
    changed since, or to which memories of its plan were restored, is refused; the other plans are
    applied. If a call is interrupted, the same call resumes it. No plan is applied twice.

    Parameters
    ----------
    plan : FleetPlan, str or Path
        The plan that :func:`memlab.fleet.plan` returned, or the file that it saved.
    now, runner, progress
        As for :func:`memlab.fleet.survey`.
    all_prunable : bool
        Whether to allow a plan that keeps no prunable memory of a store loaded. By default such a
        store is refused.

    Returns
    -------
    DataFrame
        A row for each store that the plan changes: ``store``, the fields of :class:`Applied`, and
        ``error``, missing if there is none.

    Raises
    ------
    PlanError
        If the file is not a fleet plan, was edited, or the folder of plans beside it is missing.

    Examples
    --------
    >>> import memlab.fleet
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> plan = memlab.fleet.plan(store, memlab.KeepRecent(50))
    >>> table = memlab.fleet.apply(plan)
    >>> table["status"].tolist()
    ['applied']
    """
    expect(plan, FleetPlan, str, PathLike, call="memlab.fleet.apply", name="plan")
    reviewed = plan if isinstance(plan, FleetPlan) else FleetPlan.read(plan)
    members, saved_plan_of = saved_plans(reviewed)
    moment = moment_or_now(now, call="memlab.fleet.apply")
    work = partial(apply_saved, now=moment, all_prunable=all_prunable)
    task = FleetTask("apply", work, Applied, changes=True)
    return table_of(task, members, runner=runner, progress=progress, argument_of=saved_plan_of)


class SavedPlan(NamedTuple):
    """The plan of one store in a fleet plan.

    Attributes
    ----------
    digest : str
        The digest that was reviewed.
    packed : bytes or None
        The plan, compressed; None if none was saved.
    """

    digest: str
    packed: bytes | None


def apply_saved(location: str, saved: SavedPlan, **options: Any) -> Applied:
    """Apply the plan of one store, and return the result.

    Parameters
    ----------
    location : str
        The path or URL that opens the store.
    saved : SavedPlan
        The plan.
    **options
        As for :func:`memlab.apply`.

    Raises
    ------
    PlanError
        If no plan was saved, it is damaged, or it has another digest.
    AlreadyAppliedError
        If the plan was applied before, and memories were restored since.
    """
    if saved.packed is None:
        raise PlanError("its plan is not among those saved; make a new plan")
    plan = unpacked(saved.packed)
    if plan.digest != saved.digest:
        raise PlanError("its saved plan is not the one that was reviewed; make a new plan")
    status = AppliedStatus.APPLIED
    try:
        receipt = apply_to_store(plan, store=location, **options)
    except AlreadyAppliedError as error:
        if error.restored:
            raise  # the store is no longer as the plan left it
        status = AppliedStatus.APPLIED_BEFORE
        applied_at = cast("datetime", error.applied_at)
        receipt = receipt_of(plan, open_source(location), applied_at)
    return Applied(
        digest=plan.digest,
        status=str(status),
        applied_at=receipt.applied_at,
        deleted=receipt.deleted,
        boot_before=receipt.boot_before.tokens,
        boot_after=receipt.boot_after.tokens,
        archive=receipt.archive,
        undo=receipt.undo,
    )


def saved_plans(plan: FleetPlan) -> tuple[Members, ArgumentOf]:
    """Return the stores that a plan changes, and a function that returns the plan of a store.

    The function takes a member, and returns a :class:`SavedPlan`.
    """
    digests = {store.store: store.digest for store in plan.changed}
    packed_of: Callable[[str], bytes | None] = plan.packed_plans.get
    if plan.folder is not None:
        packed_of = value_lookup(plan.folder, "plan")

    def saved_plan_of(member: Member) -> SavedPlan:
        return SavedPlan(digests[member.name], packed_of(member.name))

    return Members(tuple(Member.at(name) for name in digests)), saved_plan_of


@dataclass(frozen=True)
class MaintainedStore:
    """The result of maintaining one store, or of a dry run.

    Attributes
    ----------
    status : str
        ``"done"``, ``"would"`` (a dry run would change the store), ``"nothing"`` or ``"FAILED"``.
    deleted : int
        Memories that were deleted, or that a dry run would delete.
    doctor, compact, drop, vacuum : str or None
        The message of each step; None if the step was not reached.
    failed : str or None
        The message of the step that failed.
    undo : str or None
        The command that undoes the deletion.

    Examples
    --------
    >>> maintained = MaintainedStore(
    ...     status="nothing",
    ...     deleted=0,
    ...     doctor="all memories can be read",
    ...     compact=None,
    ...     drop=None,
    ...     vacuum=None,
    ...     failed=None,
    ...     undo=None,
    ... )
    >>> maintained.status
    'nothing'
    """

    status: str
    deleted: int
    doctor: str | None
    compact: str | None
    drop: str | None
    vacuum: str | None
    failed: str | None
    undo: str | None

    # The names in Parquet files, which stay if a field is renamed; see `stored_names_of`.
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


def maintain(  # noqa: PLR0913 - each parameter is a separate option
    sources: Sources,
    *,
    apply: bool = False,
    yes: bool = False,
    now: datetime | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
) -> "pd.DataFrame":
    """Maintain every store by the settings in its ``memlab.toml``; see :func:`memlab.maintain`.

    Parameters
    ----------
    sources, now, runner, progress
        As for :func:`memlab.fleet.survey`.
    apply : bool
        Whether to change the stores. By default they are only read.
    yes : bool
        Whether to allow an ``archive_for`` of less than a day in a store's settings.
    out : str or Path, optional
        A folder that stores results as they arrive, so that the same call resumes an interrupted
        one. A call after a finished run starts again.

    Returns
    -------
    DataFrame
        A row for each store: ``store``, the fields of :class:`MaintainedStore`, and ``error``,
        missing if there is none. A store without settings has an error.

    Examples
    --------
    >>> import memlab.fleet
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> settings = 'policy = { name = "recent", keep = 50 }'
    >>> _ = Path("memlab.toml").write_text(settings)
    >>> table = memlab.fleet.maintain(store)
    >>> table["status"].tolist()
    ['would']
    """
    moment = moment_or_now(now, call="memlab.fleet.maintain")
    task = FleetTask(
        name="maintain",
        work=partial(_maintain_store, apply=apply, yes=yes, now=moment),
        row=MaintainedStore,
        changes=apply,
        settings={"applied": apply},
        depends_on=None,  # a later run maintains every store again
    )
    return table_of(task, sources, runner=runner, progress=progress, out=out)


def _maintain_store(location: str, **options: Any) -> MaintainedStore:
    """Maintain one store, and return its row."""
    result = maintain_store(location, **options)
    messages = {step.name: step.message for step in result.steps}
    failures = [step.message for step in result.steps if step.outcome == StepOutcome.FAILED]
    deleted = result.deleted
    has_planned_work = result.has_work and not result.failed
    if not deleted and has_planned_work and result.plan is not None:
        deleted = len(result.plan.memories)  # a dry run would delete them
    return MaintainedStore(
        status=str(_status_of(result)),
        deleted=deleted,
        # A clock that is wrong ends the maintenance before the doctor.
        doctor=messages.get("doctor", messages.get("clock")),
        compact=messages.get("compact"),
        drop=messages.get("drop"),
        vacuum=messages.get("vacuum"),
        failed=failures[0] if failures else None,
        undo=result.undo,
    )


def _status_of(result: Maintenance) -> StepOutcome:
    """Return the most important outcome among the steps that may change the store."""
    if result.failed:
        return StepOutcome.FAILED
    outcomes = {step.outcome for step in result.steps if step.name != "doctor"}
    if StepOutcome.WOULD in outcomes:
        return StepOutcome.WOULD
    if StepOutcome.DONE in outcomes:
        return StepOutcome.DONE
    return StepOutcome.NOTHING
