"""Make plans: decide which memories a policy deletes, retires or supersedes, and record them."""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from itertools import chain
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from memlab import columns as col
from memlab.arguments import expect, texts
from memlab.clock import moment_or_now
from memlab.compaction import plans
from memlab.compaction.applier import entries_of
from memlab.compaction.merging import open_other, outcomes_of, read_other, start_with_copies
from memlab.compaction.plans import KeptMemory, LeftMemory, Plan, PlannedLink, PlannedMemory
from memlab.compaction.wire import as_data, some_of
from memlab.errors import ChangedWhileReadError, PlanError
from memlab.evidence.past import deletions_of, past_of
from memlab.evidence.reads import Log, reads_in, remembered_reads
from memlab.evidence.references import find_references
from memlab.frame.fields import Flags, as_instant, retired_rows, rows_in_state
from memlab.frame.loading import frame_of
from memlab.policies import CappedPolicy, KeepAll, Policy
from memlab.policies.base import PINNED, Decision, decision_of
from memlab.policies.rules import ByIds
from memlab.policies.supersession import supersedable
from memlab.sources.base import Source, read_consistent
from memlab.sources.capabilities import require
from memlab.sources.opening import SourceLike, open_source, settings_of
from memlab.sources.readers import Key, Reader, StepCallback, no_progress
from memlab.store.records import fingerprint_of
from memlab.text import command

Places = npt.NDArray[np.intp]
"""Row numbers in a frame, from 0."""

Columns = Mapping[str, Any]
"""Columns of a frame as arrays, by name.

They are taken out of the frame once, because that is slow."""

_LABELS: Final = (
    plans.PRUNABLE,
    plans.LOAD_BEARING,
    plans.SUPERSEDED,
    plans.RETIRED,
    plans.RETIRES,
    plans.RETURNS,
    col.REACHED,
    col.UNLISTED,
)

_BATCH_ROWS: Final = 4_000
"""Rows converted to Python objects at a time. The objects take five times the memory of the
columns."""


def plan(  # noqa: PLR0913 - what is asked of a store
    source: SourceLike,
    policy: Policy | None = None,
    *,
    ids: Collection[str] | None = None,
    retire: bool = False,
    into: SourceLike | None = None,
    log: Log = None,
    now: datetime | None = None,
    watch: StepCallback = no_progress,
) -> Plan:
    """Plan which memories of a store a policy deletes or retires. The store is only read.

    The decision and the recorded fingerprints come from one snapshot of the store. A policy that
    learns uses the archive of the store and the access log as well. While the policy decides,
    other processes can write to a store in WAL mode that is open; with a rollback journal they
    wait.

    Parameters
    ----------
    source : str, Path, SqliteMemoryStore or Source
        A store's file, its URL, or an open store.
    policy : Policy
        The retention policy. Leave it out if `ids` or `into` is given.
    ids : collection of str, optional
        The ids of the memories to delete or retire, instead of a policy. All others stay as they
        are.
    retire : bool
        Retire the memories that the policy does not keep, instead of deleting them. A retired
        memory stays in the store and is not loaded. The plan decides again about all memories that
        are retired already: those that the policy keeps now are returned. Under a policy that does
        not consider use, memories that were read or referred to since they were retired are
        returned as well, the latest first, as far as the capacity of the policy allows.
    into : str, Path or Source, optional
        Instead of a policy, another folder of the same project. Memories that it lacks are copied
        there, byte for byte and with their index lines. Then all memories of which it has an equal
        one are archived here, load-bearing ones too. A memory whose name has another content there
        stays here. Only folders of Claude Code's memory can be merged.
    log : DataFrame, str or Path, optional
        An access log. The logs in ``memlab.toml`` by default.
    now : datetime, optional
        The time of the decision, with a time zone. The current time by default.
    watch : callable, optional
        Progress callback. It is called with the name of each finished step: "read", "decided".

    Returns
    -------
    Plan
        The plan. :func:`memlab.apply` applies it.

    Raises
    ------
    PlanError
        If `retire` is true and the agent of the store loads no memories at start, or if one of
        `ids` is not the id of an active prunable memory, or if `into` or the store is no folder
        that can be merged.
    ValueError
        If not just one of a policy, ids and `into` is given.
    UnsafeDeletionError
        If the store is in memory, or if other tables of its file would lose rows.

    Examples
    --------
    >>> import memlab
    >>> plan = memlab.plan(memlab.store_path("looked_up"), memlab.KeepRecent(50))
    >>> plan.policy
    {'policy': 'recent', 'keep': 50, 'by': 'position'}
    """
    if into is not None:
        if policy is not None or ids is not None or retire:
            raise ValueError(
                "memlab.plan takes either a policy, ids or into, and no retire with it"
            )
        return _plan_merge(source, into, moment_or_now(now, call="memlab.plan"), watch)
    if ids is not None:
        if policy is not None:
            raise ValueError("memlab.plan takes either a policy or ids, not both")
        policy = ByIds(tuple(dict.fromkeys(texts(ids, call="memlab.plan", name="ids"))))
    expect(policy, Policy, call="memlab.plan", name="policy")
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.plan")
    expect(retire, bool, call="memlab.plan", name="retire")
    if retire:
        require(opened, "retirement")
    _ = opened.archive  # raises an error if the store can have no archive
    # Logs of the settings are read later, and only for a policy that uses them. A missing log
    # must not stop a cap.
    reads = None
    if log is not None:
        reads, _ = reads_in(log, settings_of(opened), call="memlab.plan", source=opened)
    request = _Request(cast("Policy", policy), retire, reads, moment)
    return read_consistent(opened, lambda reader: _plan_of(reader, opened, request, watch))


class _Request(NamedTuple):
    """The arguments of one call of :func:`plan`."""

    policy: Policy
    retire: bool
    log: pd.DataFrame | None
    now: datetime


def _plan_of(reader: Reader, source: Source, request: _Request, watch: StepCallback) -> Plan:
    """Make a plan from one snapshot of a store."""
    policy = request.policy
    retire = request.retire
    now = request.now
    with_body = any(step.reads_bodies for step in policy.steps)
    frame = _frame_of(reader, source, with_body=with_body)
    watch("read")
    rule = str(frame.attrs[col.TOKEN_RULE])
    frame.attrs = {}  # pandas would copy them deeply with every column
    columns = _columns_of(frame)
    label = _labels_of(frame)
    if isinstance(policy, ByIds):
        _check_ids(frame, source, policy.ids)
    if retire:
        decision = _decide_retirement(frame, source, request)
        active = columns[col.ACTIVE]
        label[active & ~decision.keep] = _LABELS.index(plans.RETIRES)
        if not isinstance(policy, ByIds) and require(source, "retirement").returns_memories():
            label[~active & decision.keep & retired_rows(frame)] = _LABELS.index(plans.RETURNS)
        leaves = label == _LABELS.index(plans.RETIRES)
    else:
        if any(step.learns for step in policy.steps):
            past, references = _evidence_of(frame, source, request)
            policy = policy.after(past, references)
        decision = decision_of(frame, policy, now=now)
        leaves = ~decision.keep
    watch("decided")
    kept = np.flatnonzero(~leaves & columns[col.PRUNABLE])
    decided = np.flatnonzero(leaves | columns[col.PRUNABLE])
    expires = _expiring(frame, columns[col.KEY], decided, now)
    # Free the memory of the frame. The Python objects of some columns take more than all of it.
    del frame
    if len(label) > _BATCH_ROWS:
        pa.default_memory_pool().release_unused()

    def planned(is_planned: Flags) -> tuple[PlannedMemory, ...]:
        places = np.flatnonzero(is_planned)
        parts = np.split(places, range(_BATCH_ROWS, len(places), _BATCH_ROWS))
        batches = (_planned(reader, source, columns, part, decision) for part in parts)
        return tuple(chain.from_iterable(batches))

    with _garbage_collection_off():
        leaving = planned(leaves)
        returns = planned(label == _LABELS.index(plans.RETURNS)) if retire else ()
    memories = () if retire else leaving
    is_deleted = leaves & (not retire)
    keys = _values_at(columns[col.KEY], kept)
    ids = _values_at(columns[col.MEMORY_ID], kept)
    fingerprints = _fingerprints(reader, source, keys, source.without_usage)
    return Plan(
        store=source.name,
        made_at=now,
        policy=as_data(policy),
        token_rule=rule,
        groups=_groups_of(columns, decision, label, deleted=is_deleted),
        memories=memories,
        kept=tuple(map(KeptMemory, keys, ids, fingerprints)),
        retires=leaving if retire else (),
        is_retirement=retire,
        returns=returns,
        entries=entries_of(reader, source, (*leaving, *returns)) if retire else (),
        written=reader.side_effects([memory.key for memory in memories]) if memories else (),
        expires=expires,
        last_goes=source.is_native_format and bool(is_deleted[-1:].any()),
    )


def _plan_merge(store: SourceLike, into: SourceLike, now: datetime, watch: StepCallback) -> Plan:
    """Plan to merge a folder into another one. Both are only read."""
    source = open_source(store)
    other = open_other(source, into)
    _ = source.archive
    other_content = read_other(other)

    def planned(reader: Reader) -> Plan:
        frame = _frame_of(reader, source, with_body=False)
        watch("read")
        columns = _columns_of(frame)
        keys = _values_at(columns[col.KEY], np.arange(len(frame)))
        outcomes = list(outcomes_of(source, reader.records(keys), other_content))
        if len(outcomes) < len(keys):
            raise ChangedWhileReadError(f"{source.name} lost memories while it was read")
        leaves = np.array([outcome.copy is not None for outcome in outcomes], dtype=bool)
        reasons = sorted({outcome.reason for outcome in outcomes})
        codes = np.array([reasons.index(outcome.reason) for outcome in outcomes], dtype=np.intp)
        decision = Decision(~leaves, codes, reasons)
        watch("decided")
        kept = np.flatnonzero(~leaves & columns[col.PRUNABLE])
        kept_keys = _values_at(columns[col.KEY], kept)
        fingerprints = _fingerprints(reader, source, kept_keys, source.without_usage)
        kept_ids = _values_at(columns[col.MEMORY_ID], kept)
        return Plan(
            store=source.name,
            made_at=now,
            policy={"policy": plans.MERGES, "into": other.name},
            token_rule=str(frame.attrs[col.TOKEN_RULE]),
            groups=_groups_of(columns, decision, _labels_of(frame), deleted=leaves),
            memories=tuple(_planned(reader, source, columns, np.flatnonzero(leaves), decision)),
            kept=tuple(map(KeptMemory, kept_keys, kept_ids, fingerprints)),
            copies=tuple(outcome.copy for outcome in outcomes if outcome.copy is not None),
            left=tuple(
                LeftMemory(key, outcome.reason)
                for key, outcome in zip(keys, outcomes, strict=True)
                if outcome.copy is None
            ),
            start_there=start_with_copies(source, other, reader, outcomes),
        )

    return read_consistent(source, planned)


def _check_ids(frame: pd.DataFrame, source: Source, ids: Collection[str]) -> None:
    """Raise PlanError unless each id is that of an active prunable memory."""
    known = frame.drop_duplicates(col.MEMORY_ID).set_index(col.MEMORY_ID)
    for memory_id in ids:
        if memory_id not in known.index:
            listing = command("rows", source.name, "--json")
            similar = get_close_matches(memory_id, map(str, known.index), n=1)
            suggestion = f"; {similar[0]!r} is one" if similar else ""
            raise PlanError(
                f"{memory_id!r} is not a memory of this store{suggestion}; "
                f"{listing} lists their ids"
            )
        memory = known.loc[memory_id]
        if not memory[col.PRUNABLE]:
            is_load_bearing = bool(memory[col.LOAD_BEARING])
            raise PlanError(
                reason_to_keep(memory_id, source=source, is_load_bearing=is_load_bearing)
            )


def reason_to_keep(memory_id: str, *, source: Source, is_load_bearing: bool) -> str:
    """Return why a memory that is not prunable is not deleted by its id, and what to do instead."""
    if not is_load_bearing:
        return (
            f"{memory_id!r} is not loaded any more: it is superseded, retired, or named by no index"
        )
    words = f"{memory_id!r} is load-bearing, and is never deleted or retired"
    if source.supersession is not None:
        replacing = command("floor", source.name, "--supersede", f"{memory_id}=NEWER")
        words += f"; {replacing} supersedes it by a newer memory, so that it is not loaded"
    else:
        words += "; only a person changes or deletes it, by hand"
    return words


def _evidence_of(
    frame: pd.DataFrame, source: Source, request: _Request
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the history of a frame, with deleted memories, and its references and logged reads."""
    log = request.log
    if log is None:
        log = remembered_reads(settings_of(source), source)
    past = past_of(frame, deletions_of(source), log)
    return past, find_references(past, log, now=request.now)


def _decide_retirement(frame: pd.DataFrame, source: Source, request: _Request) -> Decision:
    """Decide which memories are loaded, as if the retired ones were loaded too.

    A policy that considers use decides about memories that were needed since they were retired.
    Under any other policy such memories are kept, as far as its capacity allows.
    """
    policy = request.policy
    past, references = _evidence_of(frame, source, request)
    last_reference = references.groupby(col.TARGET_ID)[col.AT].max()
    needed_at = last_reference.reindex(frame[col.MEMORY_ID]).to_numpy("datetime64[us]")
    if any(step.learns for step in policy.steps):
        policy = policy.after(past, references)

    retired = retired_rows(frame)
    load_bearing = frame[col.LOAD_BEARING].to_numpy(dtype=bool)
    active = frame[col.ACTIVE].to_numpy(dtype=bool)
    needed = np.zeros_like(retired)
    if retired.any():
        needed = retired & (needed_at > frame[col.RETIRED_AT].to_numpy("datetime64[us]"))
    candidates = frame.drop(columns=col.RETIRED_AT, errors="ignore").assign(
        **{col.ACTIVE: active | retired, col.PRUNABLE: (active | retired) & ~load_bearing}
    )
    is_held = needed & ~load_bearing
    if any(step.goes_by == "use" for step in policy.steps):
        is_held = np.zeros_like(needed)
    latest_first = np.argsort(needed_at.astype(np.int64))[::-1]
    for step in policy.steps:
        if isinstance(step, CappedPolicy) and step.capacity is not None:
            _release_beyond_capacity(is_held, latest_first, step, step.capacity, candidates)
    pinned = candidates.assign(**{PINNED: is_held})
    decision = decision_of(pinned, policy, now=request.now)
    keep = decision.keep.copy()
    reason = decision.reason.copy()
    reason[needed & keep & ~load_bearing] = len(decision.reasons)
    keep[~active & ~retired] = True  # superseded memories are not loaded and do not change
    return Decision(keep, reason, [*decision.reasons, plans.NEEDED])


def _release_beyond_capacity(
    is_held: Flags, latest_first: Places, policy: CappedPolicy, capacity: int, rows: pd.DataFrame
) -> None:
    """Clear the flag `is_held` of memories that do not fit into the capacity of a policy.

    The memories that were needed latest are held first. The policy decides about the others.

    Parameters
    ----------
    is_held : array of bool, one for each row
        Whether a memory is held. It is changed in place.
    latest_first : array of int
        The row numbers, from the latest use to the earliest.
    policy : CappedPolicy
        The policy, which gives the size of each row and the scopes with a capacity of their own.
    capacity : int
        The capacity of each scope, in the policy's unit.
    rows : DataFrame
        The memories.
    """
    size = policy.sizes(rows)
    load_bearing = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
    for scope in policy.scopes(rows):
        in_scope = np.zeros_like(is_held)
        in_scope[scope.members] = True
        left = capacity
        if policy.counts_load_bearing:
            left -= int(size[in_scope & load_bearing].sum())
        is_candidate = is_held & in_scope
        for place in latest_first[is_candidate[latest_first]].tolist():
            is_held[place] = size[place] <= left
            if is_held[place]:
                left -= int(size[place])


def _labels_of(frame: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Return for each memory the index of its label in :data:`_LABELS`."""
    load_bearing = _LABELS.index(plans.LOAD_BEARING)
    label = np.where(frame[col.LOAD_BEARING], load_bearing, _LABELS.index(plans.PRUNABLE))
    label[~frame[col.ACTIVE].to_numpy(dtype=bool)] = _LABELS.index(plans.SUPERSEDED)
    label[retired_rows(frame)] = _LABELS.index(plans.RETIRED)
    for state in (col.REACHED, col.UNLISTED):
        label[rows_in_state(frame, state)] = _LABELS.index(state)
    return label


def _frame_of(reader: Reader, source: Source, *, with_body: bool) -> pd.DataFrame:
    """Load the memories of a store as a frame."""
    return frame_of(
        reader.batches(with_body=with_body),
        name=source.name,
        with_body=with_body,
        protected=source.protected,
    )


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Switch off cyclic garbage collection, which takes a fifth of the time of a large plan.

    The collector would look for cycles in tuples that all stay alive.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _expiring(
    frame: pd.DataFrame, keys: Any, decided: Places, now: datetime
) -> tuple[plans.Expiring, ...]:
    """Return the expiry times, after now, of the memories that a plan decides on."""
    if col.EXPIRES_AT not in frame:
        return ()
    ends = np.asarray(frame[col.EXPIRES_AT].array, dtype="datetime64[us]")
    # A memory that has expired already and is still stored must stay stored until the plan is
    # applied.
    expiring_later = decided[ends[decided] > as_instant(now)]
    return tuple(
        map(plans.Expiring, _values_at(keys, expiring_later), _iso_texts(ends[expiring_later]))
    )


def _columns_of(frame: pd.DataFrame) -> Columns:
    """Return the columns that a plan needs. The key of a memory is its position by default."""
    names = (
        col.POSITION, col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS, col.CREATED_AT, col.ACTIVE,
        col.LOAD_BEARING, col.PRUNABLE,
    )  # fmt: skip
    columns = {name: _array(frame[name]) for name in names}
    columns[col.KEY] = _array(frame[col.KEY]) if col.KEY in frame else columns[col.POSITION]
    return columns


def _array(column: "pd.Series[Any]") -> Any:
    """Return the values of a column as a NumPy array, or as the pandas array of its type."""
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


def _values_at(values: Any, places: Places) -> list[Any]:
    """Return the values at some row numbers as Python objects, in rising order.

    Equal texts of a categorical column share one object.
    """
    if isinstance(values, pd.Categorical):
        return list(np.array(values.categories, dtype=object)[values.codes[places]])
    return list(_array_at(values, places).tolist())


def _array_at(values: Any, places: Places, dtype: str | None = None) -> npt.NDArray[Any]:
    """Return the values at rising row numbers.

    Slice the column first, because Arrow would search all chunks of a whole column.
    """
    first = places[0] if len(places) else 0
    end = places[-1] + 1 if len(places) else 0
    return np.asarray(values[first:end], dtype)[places - first]


def _fingerprints(
    reader: Reader, source: Source, keys: list[Key], compared: Callable[[bytes], bytes]
) -> list[str]:
    """Return the fingerprints of memories, computed from the part of a record that is compared.

    Raise ChangedWhileReadError if a memory is missing.
    """
    fingerprints = [fingerprint_of(compared(record)) for _, record in reader.records(keys)]
    if len(fingerprints) < len(keys):
        raise ChangedWhileReadError(f"{source.name} lost memories while it was read")
    return fingerprints


def _planned(
    reader: Reader, source: Source, columns: Columns, places: Places, decision: Decision
) -> Iterator[PlannedMemory]:
    """Yield the memories at some row numbers as a plan lists them."""
    keys = _values_at(columns[col.KEY], places)
    positions = keys
    if columns[col.KEY] is not columns[col.POSITION]:
        positions = _values_at(columns[col.POSITION], places)
    titles = _values_at(columns[col.TITLE], places)
    reasons = np.array(decision.reasons, dtype=object)[decision.reason[places]]
    created = _array_at(columns[col.CREATED_AT], places, "datetime64[us]")
    # The columns are in the order of the fields of PlannedMemory.
    rows = zip(
        keys,
        positions,
        _values_at(columns[col.MEMORY_ID], places),
        _values_at(columns[col.KIND], places),
        [title[: plans.TITLE] for title in titles],
        reasons.tolist(),
        _deduplicated(_values_at(columns[col.TOKENS], places)),
        _deduplicated(_iso_texts(created)),
        _fingerprints(reader, source, keys, source.archive.location.compared),
        strict=True,
    )
    return map(PlannedMemory._make, rows)


def _deduplicated(values: list[Any]) -> Iterator[Any]:
    """Yield values such that equal ones are one object.

    This saves memory: a million rows have about a hundred different numbers of tokens.
    """
    objects: dict[Any, Any] = {}
    return map(objects.setdefault, values, values)


def _iso_texts(times: npt.NDArray[np.datetime64]) -> list[str]:
    """Return times in UTC in ISO 8601 format; an empty text for a missing time."""
    seconds = times.astype("datetime64[s]")
    if (times == seconds).all():
        # Arrow converts whole seconds in one step.
        texts = pa.array(seconds).cast(pa.string()).to_numpy(zero_copy_only=False)
        return [f"{text[:10]}T{text[11:]}+00:00" for text in texts.tolist()]
    return [f"{time.isoformat()}+00:00" if time else "" for time in times.tolist()]


def _groups_of(
    columns: Columns, decision: Decision, label: npt.NDArray[np.intp], *, deleted: Flags
) -> tuple[plans.Group, ...]:
    """Return the sorted groups of a plan; each memory is counted in one of them.

    NumPy groups the rows, which takes a tenth of the time of a pandas groupby.
    """
    kinds = columns[col.KIND].categories.tolist()
    codes = (deleted, label, columns[col.KIND].codes, decision.reason)
    shape = (2, len(_LABELS), len(kinds), len(decision.reasons))
    group_codes = np.ravel_multi_index([code.astype(np.int64) for code in codes], shape)
    distinct, group = np.unique(group_codes, return_inverse=True)
    memories = np.bincount(group, minlength=len(distinct))
    tokens = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(tokens, group, columns[col.TOKENS])
    deleted_codes, label_codes, kind_codes, reason_codes = np.unravel_index(distinct, shape)
    groups = [
        plans.Group(
            deleted=bool(deleted_codes[index]),
            label=_LABELS[label_codes[index]],
            kind=kinds[kind_codes[index]],
            reason=decision.reasons[reason_codes[index]],
            memories=int(memories[index]),
            tokens=int(tokens[index]),
        )
        for index in range(len(distinct))
    ]
    return tuple(sorted(groups))


def plan_supersession(
    source: SourceLike,
    links: Mapping[str, str] | None = None,
    *,
    only: Collection[str] | None = None,
    now: datetime | None = None,
) -> Plan:
    """Plan to supersede load-bearing memories by newer ones. The store is only read.

    Parameters
    ----------
    source, now
        As for :func:`plan`.
    links : mapping of str to str, optional
        The id of the superseding memory, by the id of the superseded one. By default the pairs that
        :func:`memlab.policies.supersession.supersedable` finds, which needs the extra for
        near-duplicates.
    only : collection of str, optional
        Supersede only these of the memories that were found.

    Returns
    -------
    Plan
        The plan. It deletes nothing.

    Raises
    ------
    PlanError
        If an id is not the id of an active load-bearing memory, if a memory would supersede itself,
        or if the store has no field for superseding memories.

    Examples
    --------
    >>> import memlab
    >>> plan = plan_supersession(memlab.store_path("two_years"))
    >>> len(plan.memories)  # it deletes nothing
    0
    """
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.compaction.plan_supersession")
    require(opened, "supersession")
    _ = opened.archive  # raises an error if the store can have no archive
    settings: dict[str, Any] = {"policy": "supersede"}
    if only is not None:
        settings["only"] = sorted(only)

    def planned(reader: Reader) -> Plan:
        frame = _frame_of(reader, opened, with_body=True)
        decision = decision_of(frame, KeepAll(), now=moment)
        label = _labels_of(frame)
        chosen = _supersedable(frame, only) if links is None else _by_hand(frame, links)
        columns = _columns_of(frame)
        linked_ids = set(chosen) | {newer for newer, _ in chosen.values()}
        places = np.flatnonzero(frame[col.MEMORY_ID].isin(linked_ids))
        memories = _planned(reader, opened, columns, places, decision)
        return Plan(
            store=opened.name,
            made_at=moment,
            policy=settings,
            token_rule=str(frame.attrs[col.TOKEN_RULE]),
            groups=_groups_of(columns, decision, label, deleted=~decision.keep),
            memories=(),
            kept=(),
            supersedes=tuple(_links(memories, chosen)),
        )

    return read_consistent(opened, planned)


def _supersedable(frame: pd.DataFrame, only: Collection[str] | None) -> dict[str, tuple[str, str]]:
    """Return by id the memories that can be superseded: the superseding id, and the reason.

    Raise PlanError if one of the ids in `only` is not among them.
    """
    pairs = supersedable(frame)
    chosen = {}
    for older, newer, reason in zip(
        pairs[col.MEMORY_ID], pairs[col.SUPERSEDED_BY], pairs[col.REASON], strict=True
    ):
        chosen[older] = (newer, reason)
    if only is None:
        return chosen
    unknown = sorted(set(only) - chosen.keys())
    if unknown:
        raise PlanError(
            f"no newer memory repeats {some_of(unknown)}; memlab floor lists for what there "
            "is, and --supersede OLDER=NEWER names a pair by hand"
        )
    return {older: chosen[older] for older in chosen if older in set(only)}


def _by_hand(frame: pd.DataFrame, links: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return by id the memories that a caller supersedes: the superseding id, and the reason.

    Raise PlanError if a link is not allowed.
    """
    floor = frame[frame[col.ACTIVE] & frame[col.LOAD_BEARING]]
    active = set(frame[col.MEMORY_ID][frame[col.ACTIVE]])
    known = set(floor[col.MEMORY_ID])
    for older, newer in links.items():
        if older not in known:
            raise PlanError(
                f"{older!r} is not an active load-bearing memory of this store: memlab compact "
                "deletes prunable ones, and one that is superseded is not loaded"
            )
        if newer not in active or newer == older or newer in links:
            raise PlanError(
                f"{newer!r} cannot stand for {older!r}: name another active memory of this store, "
                "one that is not superseded in the same plan"
            )
    return {older: (newer, "by hand") for older, newer in links.items()}


def _links(
    planned: Iterable[PlannedMemory], chosen: Mapping[str, tuple[str, str]]
) -> Iterator[PlannedLink]:
    """Yield the links of a plan. `planned` has both memories of each link."""
    memories = {memory.memory_id: memory for memory in planned}
    for memory_id, older in memories.items():
        if memory_id not in chosen:
            continue
        newer_id, reason = chosen[memory_id]
        newer = memories[newer_id]
        yield PlannedLink(
            key=older.key,
            position=older.position,
            memory_id=older.memory_id,
            kind=older.kind,
            title=older.title,
            reason=reason,
            tokens=older.tokens,
            fingerprint=older.fingerprint,
            by_key=newer.key,
            by_memory_id=newer_id,
            by_fingerprint=newer.fingerprint,
        )
