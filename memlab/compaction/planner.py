"""Deciding what would go, retire or be superseded, with the evidence that it is still so."""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from memlab import columns as col
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction import plans
from memlab.compaction.applier import entries_of
from memlab.compaction.plans import KeptMemory, Plan, PlannedLink, PlannedMemory
from memlab.compaction.wire import as_data, some_of
from memlab.errors import ChangedWhileReadError, PlanError
from memlab.evidence.past import deletions_of, past_of
from memlab.evidence.reads import Log, reads_in, remembered_reads
from memlab.evidence.references import find_references
from memlab.frame.fields import Flags, as_instant, retired_rows, rows_in_state
from memlab.frame.loading import frame_of
from memlab.policies import CappedPolicy, KeepAll, Policy
from memlab.policies.base import PINNED, Decision, decision_of
from memlab.policies.duplicates import supersedable
from memlab.sources.base import (
    Key,
    Reader,
    Source,
    StepCallback,
    archive_at,
    no_progress,
    read_consistent,
)
from memlab.sources.opening import SourceLike, open_source, settings_of
from memlab.store.records import fingerprint_of

Places = npt.NDArray[np.intp]
"""Numbers of rows in a frame, counted from 0."""

Columns = Mapping[str, Any]
"""The columns of a frame as arrays, by name: each of them takes pandas as long as some hundred rows
of it."""

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

_AT_ONCE: Final = 4_000
"""Rows taken out of columns at once: Python's objects take five times their room."""


def plan(
    source: SourceLike,
    policy: Policy,
    *,
    retire: bool = False,
    log: Log = None,
    now: datetime | None = None,
    watch: StepCallback = no_progress,
) -> Plan:
    """Say what a policy would delete from a store, or retire in it. Reads only.

    Decision and evidence are of one moment of the store. A policy that learns does so from what the
    store's archive keeps, too, and from what was read. While the policy decides, a store in WAL
    mode that somebody has open goes on being written to; with a rollback journal writers wait.

    Parameters
    ----------
    source : str, Path, SqliteMemoryStore or Source
        A store's file, its URL, or an open store.
    policy : Policy
        The rule.
    retire : bool
        Whether to retire what the policy does not keep, so that it stays in the store and is not
        loaded, instead of deleting it. All that is retired is decided about anew: what the policy
        keeps now returns. Under a policy that does not go by use, what was read or referred to
        since it was retired returns as well, into the policy's room, what was needed latest first.
    log : DataFrame, str or Path, optional
        An access log; the logs that ``memlab.toml`` remembers by default.
    now : datetime, optional
        The moment of the decision, with a time zone; the current one by default.
    watch : callable, optional
        Called with the name of each step that is done: "read", "decided".

    Raises
    ------
    PlanError
        When memories are to be retired in a store whose agent loads none at start.
    UnsafeDeletionError
        When it lives in memory, or other tables of its file would lose rows.
    """
    expect(policy, Policy, call="memlab.plan", name="policy")
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.plan")
    expect(retire, bool, call="memlab.plan", name="retire")
    if retire and not opened.retires:
        opened.retiring()  # which says why it cannot
    archive_at(opened)  # refused here where there is no place for one
    # Remembered logs are read where the policy asks for them: one that is gone stops no cap.
    reads = None
    if log is not None:
        reads, _ = reads_in(log, settings_of(opened), call="memlab.plan", source=opened)
    request = _Request(policy, retire, reads, moment)
    return read_consistent(opened, lambda reader: _plan_of(reader, opened, request, watch))


class _Request(NamedTuple):
    policy: Policy
    retire: bool
    log: pd.DataFrame | None
    now: datetime


def _plan_of(reader: Reader, source: Source, request: _Request, watch: StepCallback) -> Plan:
    """Decide, and take the evidence that it is still so, from one moment of the store."""
    policy, retire, _, now = request
    with_body = any(step.reads_bodies for step in policy.steps)
    frame = _frame_of(reader, source, with_body=with_body)
    watch("read")
    rule = str(frame.attrs[col.TOKEN_RULE])
    frame.attrs = {}  # pandas copies them, deeply, with every column that is taken
    columns = _columns_of(frame)
    label = _labels_of(frame)
    if retire:
        decision = _retiring(frame, source, request)
        active = columns[col.ACTIVE]
        label[active & ~decision.keep] = _LABELS.index(plans.RETIRES)
        label[~active & decision.keep & retired_rows(frame)] = _LABELS.index(plans.RETURNS)
        leaves = label == _LABELS.index(plans.RETIRES)
    else:
        if any(step.learns for step in policy.steps):
            policy = policy.after(*_evidence_of(frame, source, request))
        decision = decision_of(frame, policy, now=now)
        leaves = ~decision.keep
    watch("decided")
    kept = np.flatnonzero(~leaves & columns[col.PRUNABLE])
    decided = np.flatnonzero(leaves | columns[col.PRUNABLE])
    expires = _expiring(frame, columns[col.KEY], decided, now)
    del frame  # and what Arrow keeps of it: what is made of some columns is larger than all of them
    if len(label) > _AT_ONCE:
        pa.default_memory_pool().release_unused()

    def planned(which: Flags) -> tuple[PlannedMemory, ...]:
        places = np.flatnonzero(which)
        parts = np.split(places, range(_AT_ONCE, len(places), _AT_ONCE))
        some = (_planned(reader, source, columns, part, decision) for part in parts)
        return tuple(chain.from_iterable(some))

    with _without_collections():
        leaving = planned(leaves)
        returns = planned(label == _LABELS.index(plans.RETURNS)) if retire else ()
    memories = () if retire else leaving
    keys = _taken(columns[col.KEY], kept)
    prints = _fingerprints(reader, source, keys, source.without_usage)
    return Plan(
        store=source.name,
        made_at=now,
        policy=as_data(policy),
        token_rule=rule,
        groups=_groups_of(columns, decision, label, deleted=leaves & (not retire)),
        memories=memories,
        kept=tuple(map(KeptMemory, keys, _taken(columns[col.MEMORY_ID], kept), prints)),
        retires=leaving if retire else (),
        returns=returns,
        entries=entries_of(reader, source, (*leaving, *returns)) if retire else (),
        written=reader.side_effects([memory.key for memory in memories]) if memories else (),
        expires=expires,
        last_goes=source.is_native_format and bool((leaves & (not retire))[-1:].any()),
    )


def _evidence_of(
    frame: pd.DataFrame, source: Source, request: _Request
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the past of a frame that was just read, and the references in it and in its logs."""
    log = request.log
    if log is None:
        log = remembered_reads(settings_of(source), source)
    past = past_of(frame, deletions_of(source), log)
    return past, find_references(past, log, now=request.now)


def _retiring(frame: pd.DataFrame, source: Source, request: _Request) -> Decision:
    """Decide on retired memories as if they were loaded.

    A policy that goes by use weighs what was needed since by itself; under any other it is kept.
    """
    policy, _, _, now = request
    past, references = _evidence_of(frame, source, request)
    last = references.groupby(col.TARGET_ID)[col.AT].max().reindex(frame[col.MEMORY_ID])
    needed_at = last.to_numpy("datetime64[us]")
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
    held = needed & ~load_bearing
    if any(step.goes_by == "use" for step in policy.steps):
        held = np.zeros_like(needed)
    latest = np.argsort(needed_at.astype(np.int64))[::-1]
    for step in policy.steps:
        if isinstance(step, CappedPolicy) and (room := step.capacity) is not None:
            _leave_out(held, latest, step, room, candidates)
    decision = decision_of(candidates.assign(**{PINNED: held}), policy, now=now)
    keep = decision.keep.copy()
    reason = decision.reason.copy()
    reason[needed & keep & ~load_bearing] = len(decision.reasons)
    keep[~active & ~retired] = True  # what is superseded is not loaded
    return Decision(keep, reason, [*decision.reasons, plans.NEEDED])


def _leave_out(
    held: Flags, latest: Places, policy: CappedPolicy, slots: int, rows: pd.DataFrame
) -> None:
    """Leave to the policy what there is no room to hold: what was needed latest is held first."""
    size = policy.sizes(rows)
    floor = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
    for scope in policy.scopes(rows):
        among = np.zeros_like(held)
        among[scope.members] = True
        room = slots - int(size[among & floor].sum()) * policy.counts_load_bearing
        for place in latest[(held & among)[latest]].tolist():
            held[place] = size[place] <= room
            if held[place]:
                room -= int(size[place])


def _labels_of(frame: pd.DataFrame) -> npt.NDArray[np.intp]:
    label = np.where(frame[col.LOAD_BEARING], 1, 0)
    label[~frame[col.ACTIVE].to_numpy(dtype=bool)] = 2
    label[retired_rows(frame)] = 3
    for state in (col.REACHED, col.UNLISTED):
        label[rows_in_state(frame, state)] = _LABELS.index(state)
    return label


def _frame_of(reader: Reader, source: Source, *, with_body: bool) -> pd.DataFrame:
    return frame_of(
        reader.batches(with_body=with_body),
        name=source.name,
        with_body=with_body,
        protected=source.protected,
    )


@contextmanager
def _without_collections() -> Iterator[None]:
    """Spare Python looking for cycles among tuples that all stay: a fifth of a large plan."""
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
    """Return when memories that a plan decides on will end by themselves."""
    if col.EXPIRES_AT not in frame:
        return ()
    ends = np.asarray(frame[col.EXPIRES_AT].array, dtype="datetime64[us]")
    some = decided[ends[decided] > as_instant(now)]  # what has passed is there all the same
    return tuple(map(plans.Expiring, _taken(keys, some), _when(ends[some])))


def _columns_of(frame: pd.DataFrame) -> Columns:
    """Return the columns that a plan is made of, the store's own addresses as its keys."""
    names = (
        col.POSITION, col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS, col.CREATED_AT, col.ACTIVE,
        col.LOAD_BEARING, col.PRUNABLE,
    )  # fmt: skip
    columns = {name: _array(frame[name]) for name in names}
    return {
        col.KEY: _array(frame[col.KEY]) if col.KEY in frame else columns[col.POSITION]
    } | columns


def _array(column: "pd.Series[Any]") -> Any:
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


def _taken(values: Any, places: Places) -> list[Any]:
    """Return values at some places; each distinct text of a categorical is made once."""
    if isinstance(values, pd.Categorical):
        return list(np.array(values.categories, dtype=object)[values.codes[places]])
    return list(_part_of(values, places).tolist())


def _part_of(values: Any, places: Places, dtype: str | None = None) -> npt.NDArray[Any]:
    """Return the values at rising places; Arrow would go through all chunks of a whole column."""
    first, end = (places[0], places[-1] + 1) if len(places) else (0, 0)
    return np.asarray(values[first:end], dtype)[places - first]


def _fingerprints(
    reader: Reader, source: Source, keys: list[Key], compared: Callable[[bytes], bytes]
) -> list[str]:
    records: Iterator[bytes] = map(itemgetter(1), reader.records(keys))
    fingerprints = [*map(fingerprint_of, map(compared, records))]
    if len(fingerprints) < len(keys):
        raise ChangedWhileReadError(f"{source.name} lost memories while it was read")
    return fingerprints


def _planned(
    reader: Reader, source: Source, columns: Columns, deleted: Places, decision: Decision
) -> Iterator[PlannedMemory]:
    keys, memory_id, kind, title, tokens = (
        _taken(columns[name], deleted)
        for name in (col.KEY, col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS)
    )
    is_position = columns[col.KEY] is columns[col.POSITION]
    position = keys if is_position else _taken(columns[col.POSITION], deleted)
    created = _part_of(columns[col.CREATED_AT], deleted, "datetime64[us]")
    said = zip(
        keys,
        position,
        memory_id,
        kind,
        (each[: plans.TITLE] for each in title),
        np.array(decision.reasons, dtype=object)[decision.reason[deleted]].tolist(),
        _once(tokens),
        _once(_when(created)),
        _fingerprints(reader, source, keys, archive_at(source).compared),
        strict=True,
    )
    return map(partial(tuple.__new__, PlannedMemory), said)  # its own __new__ is Python's, and slow


def _once(values: list[Any]) -> Iterator[Any]:
    """Let equal values be one object: a million rows have a hundred counts of tokens."""
    first: dict[Any, Any] = {}
    return map(first.setdefault, values, values)


def _when(moments: npt.NDArray[np.datetime64]) -> list[str]:
    seconds = moments.astype("datetime64[s]")
    if (moments == seconds).all():  # which Arrow writes all at once
        written = pa.array(seconds).cast(pa.string()).to_numpy(zero_copy_only=False)
        return [f"{each[:10]}T{each[11:]}+00:00" for each in written.tolist()]
    return [f"{moment.isoformat()}+00:00" if moment else "" for moment in moments.tolist()]


def _groups_of(
    columns: Columns, decision: Decision, label: npt.NDArray[np.intp], *, deleted: Flags
) -> tuple[plans.Group, ...]:
    """Count every memory in one group; a grouping of pandas takes ten times as long."""
    kinds = columns[col.KIND].categories.tolist()
    codes = (deleted, label, columns[col.KIND].codes, decision.reason)
    shape = (2, len(_LABELS), len(kinds), len(decision.reasons))
    places = np.ravel_multi_index([each.astype(np.int64) for each in codes], shape)
    distinct, group = np.unique(places, return_inverse=True)
    memories = np.bincount(group, minlength=len(distinct))
    tokens = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(tokens, group, columns[col.TOKENS])
    named = [
        (bool(gone), _LABELS[at], kinds[kind], decision.reasons[reason])
        for gone, at, kind, reason in zip(*np.unravel_index(distinct, shape), strict=True)
    ]
    sizes = zip(memories.tolist(), tokens.tolist(), strict=True)
    return tuple(sorted(plans.Group(*name, *size) for name, size in zip(named, sizes, strict=True)))


def plan_supersession(
    source: SourceLike,
    links: Mapping[str, str] | None = None,
    *,
    only: Collection[str] | None = None,
    now: datetime | None = None,
) -> Plan:
    """Plan to let newer memories stand for load-bearing ones. Reads only.

    Parameters
    ----------
    source, now
        As for :func:`plan`.
    links : mapping of str to str, optional
        The id of the memory that is to stand for each; what
        :func:`memlab.policies.duplicates.supersedable` finds when not given, which needs the extra
        for near-duplicates.
    only : collection of str, optional
        Of what is found, these ids alone.

    Raises
    ------
    PlanError
        When an id is not an active load-bearing memory, one stands for itself, or the store knows
        of no memories that stand for others.
    """
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.compaction.plan_supersession")
    if not opened.supersedes:
        opened.superseding()  # which says why it cannot
    archive_at(opened)  # refused here where there is no place for one

    def planned(reader: Reader) -> Plan:
        frame = _frame_of(reader, opened, with_body=True)
        decision = decision_of(frame, KeepAll(), now=moment)
        label = _labels_of(frame)
        chosen = _supersedable(frame, only) if links is None else _by_hand(frame, links)
        columns = _columns_of(frame)
        ends = {*chosen, *(newer for newer, _ in chosen.values())}
        places = np.flatnonzero(frame[col.MEMORY_ID].isin(ends))
        return Plan(
            store=opened.name,
            made_at=moment,
            policy={"policy": "supersede"} | ({} if only is None else {"only": sorted(only)}),
            token_rule=str(frame.attrs[col.TOKEN_RULE]),
            groups=_groups_of(columns, decision, label, deleted=~decision.keep),
            memories=(),
            kept=(),
            supersedes=tuple(_links(_planned(reader, opened, columns, places, decision), chosen)),
        )

    return read_consistent(opened, planned)


def _supersedable(frame: pd.DataFrame, only: Collection[str] | None) -> dict[str, tuple[str, str]]:
    """Return what is found to be superseded: by what, and the reason."""
    found = supersedable(frame)
    columns = (found[name] for name in (col.MEMORY_ID, col.SUPERSEDED_BY, col.REASON))
    chosen = {older: (newer, reason) for older, newer, reason in zip(*columns, strict=True)}
    if only is None:
        return chosen
    if unknown := sorted(set(only) - chosen.keys()):
        raise PlanError(
            f"nothing is found to stand for {some_of(unknown)}; memlab floor lists for what there "
            "is, and --supersede OLDER=NEWER names a pair by hand"
        )
    return {older: chosen[older] for older in chosen if older in set(only)}


def _by_hand(frame: pd.DataFrame, links: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    floor = frame[frame[col.ACTIVE] & frame[col.LOAD_BEARING]]
    active = set(frame[col.MEMORY_ID][frame[col.ACTIVE]])
    known = set(floor[col.MEMORY_ID])
    for older, newer in links.items():
        if older not in known:
            raise PlanError(
                f"{older!r} is no active load-bearing memory of this store: memlab compact deletes "
                "prunable ones, and one that is superseded is not loaded"
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
    """Yield what is chosen to be superseded; both ends of each are among the `planned`."""
    found = {memory.memory_id: memory for memory in planned}
    for name, older in found.items():
        if name in chosen:
            by, reason = chosen[name]
            newer = found[by]
            said = (*older[:5], reason, older.tokens, older.fingerprint)
            yield PlannedLink(*said, newer.key, by, newer.fingerprint)
