"""Deciding what would go: a policy's verdict on a store, with the evidence that it is still so."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.plans import (
    LOAD_BEARING,
    PRUNABLE,
    SUPERSEDED,
    TITLE,
    Expiring,
    Group,
    KeptMemory,
    Plan,
    PlannedMemory,
)
from memlab.compaction.wire import as_data
from memlab.errors import ChangedWhileReadError
from memlab.evidence.past import deletions_of, past_of
from memlab.frame.fields import as_instant
from memlab.frame.loading import frame_of
from memlab.policies import Policy
from memlab.policies.base import Decision, decision_of
from memlab.sources.base import Key, Reader, Source, Watch, archive_at, at_one_moment, unwatched
from memlab.sources.opening import SourceLike, open_source

Places = npt.NDArray[np.intp]
"""Numbers of rows in a frame, counted from 0."""

Columns = Mapping[str, Any]
"""The columns of a frame as arrays, by name: each of them takes pandas as long as some hundred rows
of it."""

_AT_ONCE: Final = 4_000
"""Rows taken out of columns at once: Python's objects take five times their room."""


class PlanStep(StrEnum):
    """What :func:`plan` has just done."""

    READ = "read"
    """The store is a frame."""
    DECIDED = "decided"
    """The policy has said what stays."""


def plan(
    source: SourceLike,
    policy: Policy,
    *,
    now: datetime | None = None,
    watch: Watch = unwatched,
) -> Plan:
    """Say what a policy would delete from a store. Reads only.

    Decision and evidence are of one moment of the store. A policy that learns does so from what the
    store's archive keeps, too. While the policy decides, a store in WAL mode that somebody has open
    goes on being written to; writers of one with a rollback journal wait (``.ci/bench``).

    Parameters
    ----------
    source : str, Path, SqliteMemoryStore or Source
        A store's file, its URL, or an open store.
    policy : Policy
        The rule.
    now : datetime, optional
        The moment of the decision, with a time zone; the current one by default.
    watch : callable, optional
        Called with each :class:`PlanStep` when it is done.

    Returns
    -------
    Plan
        Print it to see what it would do.

    Raises
    ------
    StoreError
        When the store cannot be read.
    UnsafeDeletionError
        When it lives in memory, or other tables of its file would lose rows.
    BadRowError
        When a row cannot be interpreted.
    ArchiveError
        When the policy learns and the store has an archive that cannot be read.
    """
    expect(policy, Policy, call="memlab.plan", name="policy")
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.plan")
    archive_at(opened)  # refused here where there is no place for one
    return at_one_moment(opened, lambda reader: _plan_of(reader, opened, policy, moment, watch))


def _plan_of(reader: Reader, source: Source, policy: Policy, now: datetime, watch: Watch) -> Plan:
    """Decide, and take the evidence that it is still so, from one moment of the store."""
    with_body = any(step.reads_bodies for step in policy.steps)
    frame = frame_of(
        reader.batches(with_body=with_body),
        name=source.name,
        with_body=with_body,
        protected=source.protected,
    )
    watch(PlanStep.READ)
    rule = str(frame.attrs[col.TOKEN_RULE])
    frame.attrs = {}  # pandas copies them, deeply, with every column that is taken
    if any(step.learns for step in policy.steps):
        policy = policy.after(past_of(frame, deletions_of(source)))
    decision = decision_of(frame, policy, now=now)
    watch(PlanStep.DECIDED)
    columns = columns_of(frame)
    deleted = np.flatnonzero(~decision.keep)
    kept = np.flatnonzero(decision.keep & columns[col.PRUNABLE])

    with _without_collections():
        parts = np.split(deleted, range(_AT_ONCE, len(deleted), _AT_ONCE))
        planned = (_planned(reader, source, columns, part, decision) for part in parts)
        memories = tuple(chain.from_iterable(planned))
    return Plan(
        store=source.name,
        made_at=now,
        policy=as_data(policy),
        token_rule=rule,
        groups=groups_of(columns, decision),
        memories=memories,
        kept=_kept(reader, source, columns, kept),
        written=reader.side_effects([memory.key for memory in memories]) if memories else (),
        expires=_expiring(frame, columns[col.KEY], np.union1d(deleted, kept), now),
        last_goes=source.agents_own and len(frame) - 1 in deleted[-1:],
    )


@contextmanager
def _without_collections() -> Iterator[None]:
    """Make tuples that all stay without Python looking for cycles among them, again and again.

    For 870,000 deletions that takes a fifth of the time.
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
) -> tuple[Expiring, ...]:
    """Return when memories that a plan decides on will end by themselves."""
    if col.EXPIRES_AT not in frame:
        return ()
    ends = np.asarray(frame[col.EXPIRES_AT].array, dtype="datetime64[us]")
    some = decided[ends[decided] > as_instant(now)]  # what has passed is there all the same
    return tuple(map(Expiring, _taken(keys, some), _when(ends[some])))


def columns_of(frame: pd.DataFrame) -> Columns:
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
    """Return a column without its index, and without a copy."""
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


def _fingerprints(reader: Reader, source: Source, keys: list[Key], *, lasting: bool) -> list[str]:
    """Return the fingerprints of memories that have just been read."""
    found = reader.fingerprints(keys, source.lasting if lasting else None)
    fingerprints = [fingerprint for _, fingerprint in found]
    if len(fingerprints) < len(keys):
        raise ChangedWhileReadError(f"{source.name} lost memories while it was read")
    return fingerprints


def _kept(reader: Reader, source: Source, columns: Columns, kept: Places) -> tuple[KeptMemory, ...]:
    """Return the memories on which a plan rests."""
    keys = _taken(columns[col.KEY], kept)
    fingerprints = _fingerprints(reader, source, keys, lasting=True)
    return tuple(map(KeptMemory, keys, _taken(columns[col.MEMORY_ID], kept), fingerprints))


def _planned(
    reader: Reader, source: Source, columns: Columns, deleted: Places, decision: Decision
) -> Iterator[PlannedMemory]:
    """Yield some of the memories that a plan deletes."""
    keys, memory_id, kind, title, tokens = (
        _taken(columns[name], deleted)
        for name in (col.KEY, col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS)
    )
    is_position = columns[col.KEY] is columns[col.POSITION]
    position = keys if is_position else _taken(columns[col.POSITION], deleted)
    created = _part_of(columns[col.CREATED_AT], deleted, "datetime64[us]")
    return map(
        PlannedMemory,
        keys,
        position,
        memory_id,
        kind,
        (each[:TITLE] for each in title),
        np.array(decision.reasons, dtype=object)[decision.reason[deleted]].tolist(),
        tokens,
        _when(created),
        _fingerprints(reader, source, keys, lasting=source.like is None),
    )


def _when(moments: npt.NDArray[np.datetime64]) -> list[str]:
    """Return moments in UTC as ISO 8601; empty where one is not known."""
    if (moments == moments.astype("datetime64[s]")).all():  # which numpy writes all at once
        return [f"{moment}+00:00" for moment in np.datetime_as_string(moments, "s").tolist()]
    return [f"{moment.isoformat()}+00:00" if moment else "" for moment in moments.tolist()]


def groups_of(columns: Columns, decision: Decision) -> tuple[Group, ...]:
    """Count every memory in one group; a grouping of pandas takes ten times as long."""
    labels = (PRUNABLE, LOAD_BEARING, SUPERSEDED)
    label = np.where(columns[col.ACTIVE], np.where(columns[col.LOAD_BEARING], 1, 0), 2)
    kinds = columns[col.KIND].categories.tolist()
    codes = (~decision.keep, label, columns[col.KIND].codes, decision.reason)
    shape = (2, len(labels), len(kinds), len(decision.reasons))
    places = np.ravel_multi_index([each.astype(np.int64) for each in codes], shape)
    distinct, group = np.unique(places, return_inverse=True)
    memories = np.bincount(group, minlength=len(distinct))
    tokens = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(tokens, group, columns[col.TOKENS])
    named = [
        (bool(gone), labels[at], kinds[kind], decision.reasons[reason])
        for gone, at, kind, reason in zip(*np.unravel_index(distinct, shape), strict=True)
    ]
    sizes = zip(memories.tolist(), tokens.tolist(), strict=True)
    return tuple(sorted(Group(*name, *size) for name, size in zip(named, sizes, strict=True)))
