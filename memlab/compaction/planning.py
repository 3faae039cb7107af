"""Deciding what would go: a policy's verdict on a store, with the evidence that it is still so."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.locating import prints_of
from memlab.compaction.long_lists import AT_ONCE, Chunk, Listed
from memlab.compaction.planned import (
    LOAD_BEARING,
    PRUNABLE,
    SUPERSEDED,
    TITLE,
    Group,
    KeptMemory,
    PlannedMemory,
)
from memlab.compaction.plans import Plan
from memlab.compaction.wire import as_data
from memlab.errors import ChangedWhileReadError
from memlab.evidence.past import deletions_of, past_of
from memlab.frame.labelling import memories_of
from memlab.frame.loading import frame_from
from memlab.policies import Policy
from memlab.policies.base import Decision, decision_of
from memlab.sources.abilities import AmongOthers, Printing
from memlab.sources.base import Key, Reader, Source, Watch, archive_at, at_one_moment, unwatched
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.tables import FINGERPRINT
from memlab.store.other_tables import Written

Places = npt.NDArray[np.intp]
"""Numbers of rows in a frame, counted from 0."""

Columns = Mapping[str, Any]
"""The columns of a frame as arrays, by name: each of them takes pandas as long as some hundred rows
of it."""

Prints = Callable[..., list[str]]
"""Returns the fingerprints of rows at some places in a part of a frame."""


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
    goes on being written to; writers of one with a rollback journal wait (``tests/bench``).

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
    frame, told = _read(reader, source, with_body=with_body)
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

    def prints(part: slice, places: Places, *, lasting: bool = False) -> list[str]:
        said = np.full(len(places), None) if told is None else told[part].to_numpy()[places]
        if len(unsaid := np.flatnonzero(said == None)):  # noqa: E711 - of each
            keys = _taken(columns[col.KEY][part], places[unsaid])
            found = dict(prints_of(reader, source, keys, lasting=lasting))
            if len(found) < len(keys):
                raise ChangedWhileReadError(f"{source.name} lost memories while it was read")
            said[unsaid] = [found[key] for key in keys]
        return said.tolist()

    return Plan(
        store=source.name,
        made_at=now,
        policy=as_data(policy),
        token_rule=rule,
        groups=groups_of(columns, decision),
        memories=Listed(PlannedMemory, _planned(columns, deleted, decision, prints)),
        kept=Listed(KeptMemory, _kept(columns, kept, prints)),
        written=_written_with(reader, _taken(columns[col.KEY], deleted)),
        last_goes=source.scheme == "file" and len(frame) - 1 in deleted[-1:],
    )


def _read(reader: Reader, source: Source, *, with_body: bool) -> tuple[pd.DataFrame, Any | None]:
    """Return every memory, and an Arrow column of the fingerprints that reading tells, if any."""
    memories = memories_of(
        reader.printed(with_body=with_body)
        if isinstance(reader, Printing)
        else reader.batches(with_body=with_body),
        name=source.name,
        with_body=with_body,
        protected=source.protected,
    )
    is_told = FINGERPRINT in memories.rows.column_names
    return frame_from(memories), memories.rows[FINGERPRINT] if is_told else None


def _written_with(reader: Reader, keys: list[Key]) -> tuple[Written, ...]:
    """Return what triggers of the store's file do to other tables when memories are deleted."""
    return reader.written_with(keys) if keys and isinstance(reader, AmongOthers) else ()


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
        taken = np.array(values.categories, dtype=object)[values.codes[places]]
    else:
        taken = np.asarray(values)[places]
    found: list[Any] = taken.tolist()
    return found


def _in_parts(places: Places) -> Iterator[tuple[slice, Places]]:
    """Yield parts of a frame with some thousand of the rows each, and these rows' places there.

    As Python's own objects a row takes five times as much room as in a frame.
    """
    for first in range(0, len(places), AT_ONCE):
        some = places[first : first + AT_ONCE]
        yield slice(int(some[0]), int(some[-1]) + 1), some - some[0]


def _kept(columns: Columns, kept: Places, prints: Prints) -> Iterator[Chunk]:
    """Yield the fields of :class:`KeptMemory` for the memories at some places."""
    for part, places in _in_parts(kept):
        said = (_taken(columns[name][part], places) for name in (col.KEY, col.MEMORY_ID))
        yield [*said, prints(part, places, lasting=True)]


def _planned(
    columns: Columns, deleted: Places, decision: Decision, prints: Prints
) -> Iterator[Chunk]:
    """Yield the fields of :class:`PlannedMemory` for the memories at some places."""
    reasons = np.array(decision.reasons, dtype=object)
    for part, places in _in_parts(deleted):
        key, position, memory_id, kind, title, tokens = (
            _taken(columns[name][part], places)
            for name in (col.KEY, col.POSITION, col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS)
        )
        title = [each[:TITLE] for each in title]
        reason = reasons[decision.reason[part][places]].tolist()
        created = np.asarray(columns[col.CREATED_AT][part], dtype="datetime64[us]")[places]
        said = prints(part, places)
        yield [key, position, memory_id, kind, title, reason, tokens, _when(created), said]


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
