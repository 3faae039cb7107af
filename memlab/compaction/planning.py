"""Deciding what would go: a policy's verdict on a store, with the evidence that it is still so."""

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.locating import prints_of
from memlab.compaction.long_lists import listed
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
from memlab.evidence.past import deletions_of, past_of
from memlab.frame.labelling import memories_of
from memlab.frame.loading import frame_from
from memlab.policies import Policy, decide
from memlab.sources.abilities import AmongOthers, Printing
from memlab.sources.base import Key, Reader, Source, Watch, archive_at, at_one_moment, unwatched
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.tables import FINGERPRINT
from memlab.store.other_tables import Written

Places = npt.NDArray[np.intp]
"""Numbers of rows in a frame, counted from 0."""

Prints = Callable[..., list[str]]
"""Returns the fingerprints of rows at some places in a part of a frame."""

_AT_ONCE: Final = 4096


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
    decided = decide(frame, policy, now=now)
    watch(PlanStep.DECIDED)
    keep = decided[col.KEEP].to_numpy(dtype=bool)
    deleted = np.flatnonzero(~keep)
    kept = np.flatnonzero(keep & frame[col.PRUNABLE].to_numpy(dtype=bool))

    def prints(part: slice, places: Places, *, lasting: bool = False) -> list[str]:
        said = None if told is None else told[part].to_pylist()
        known = {
            key: None if said is None else said[place]
            for key, place in zip(_keys(frame[part], places), places.tolist(), strict=True)
        }
        return _prints(reader, source, known, lasting=lasting)

    return Plan(
        store=source.name,
        made_at=now,
        policy=as_data(policy),
        token_rule=rule,
        groups=groups_of(frame, decided),
        memories=listed(_planned(frame, deleted, decided[col.REASON], prints)),
        kept=listed(_kept(frame, kept, prints)),
        written=_written_with(reader, _keys(frame, deleted)),
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


def _prints(
    reader: Reader, source: Source, told: dict[Key, str | None], *, lasting: bool
) -> list[str]:
    """Return the fingerprints of memories, those too that reading did not tell."""
    if others := [key for key, each in told.items() if each is None]:
        told |= prints_of(reader, source, others, lasting=lasting)
    return [each for each in told.values() if each is not None]


def _written_with(reader: Reader, keys: list[Key]) -> tuple[Written, ...]:
    """Return what triggers of the store's file do to other tables when memories are deleted."""
    return reader.written_with(keys) if keys and isinstance(reader, AmongOthers) else ()


def _keys(frame: pd.DataFrame, places: Places) -> list[Key]:
    """Return the store's own addresses of the memories at some places."""
    column = frame[col.KEY if col.KEY in frame else col.POSITION]
    keys: list[Key] = column.to_numpy()[places].tolist()
    return keys


def _texts(column: "pd.Series[Any]", places: Places) -> list[str]:
    """Return texts at some places; each distinct one of a categorical column is made once."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        named = np.array([*map(str, column.cat.categories), "nan"], dtype=object)
        texts: list[str] = named[column.cat.codes.to_numpy()[places]].tolist()
    else:
        texts = column.to_numpy(dtype=object)[places].tolist()
    return texts


def _in_parts(places: Places) -> Iterator[tuple[slice, Places]]:
    """Yield parts of a frame with some thousand of the rows each, and these rows' places there.

    As Python's own objects a row takes five times as much room as in a frame.
    """
    for first in range(0, len(places), _AT_ONCE):
        some = places[first : first + _AT_ONCE]
        yield slice(int(some[0]), int(some[-1]) + 1), some - some[0]


def _kept(frame: pd.DataFrame, kept: Places, prints: Prints) -> Iterator[KeptMemory]:
    """Yield the memories at some places with their fingerprints."""
    for part, places in _in_parts(kept):
        some = frame[part]
        yield from map(
            KeptMemory,
            _keys(some, places),
            _texts(some[col.MEMORY_ID], places),
            prints(part, places, lasting=True),
        )


def _planned(
    frame: pd.DataFrame, deleted: Places, reasons: "pd.Series[Any]", prints: Prints
) -> Iterator[PlannedMemory]:
    """Yield the memories at some places with their fingerprints, and why they go."""
    for part, places in _in_parts(deleted):
        some = frame[part]
        yield from map(
            PlannedMemory,
            _keys(some, places),
            some[col.POSITION].to_numpy()[places].tolist(),
            _texts(some[col.MEMORY_ID], places),
            _texts(some[col.KIND], places),
            [title[:TITLE] for title in _texts(some[col.TITLE], places)],
            _texts(reasons[part], places),
            some[col.TOKENS].to_numpy()[places].tolist(),
            _when(some[col.CREATED_AT].to_numpy("datetime64[us]")[places]),
            prints(part, places),
        )


def _when(moments: npt.NDArray[np.datetime64]) -> list[str]:
    """Return moments in UTC as ISO 8601; empty where one is not known."""
    if (moments == moments.astype("datetime64[s]")).all():  # which numpy writes all at once
        return [f"{moment}+00:00" for moment in np.datetime_as_string(moments, "s").tolist()]
    return [f"{moment.isoformat()}+00:00" if moment else "" for moment in moments.tolist()]


def groups_of(frame: pd.DataFrame, decided: pd.DataFrame) -> tuple[Group, ...]:
    """Count every memory in one group; a grouping of pandas takes ten times as long."""
    superseded, load_bearing = ~frame[col.ACTIVE], frame[col.LOAD_BEARING]
    labels = (PRUNABLE, LOAD_BEARING, SUPERSEDED)
    label = np.where(superseded, 2, np.where(load_bearing, 1, 0))
    kinds, reasons = frame[col.KIND].cat, decided[col.REASON].cat
    shape = (2, len(labels), len(kinds.categories) + 1, len(reasons.categories) + 1)
    codes = (~decided[col.KEEP], label, kinds.codes, reasons.codes)
    places = np.ravel_multi_index([np.asarray(each, dtype=np.int64) for each in codes], shape)
    distinct, group = np.unique(places, return_inverse=True)
    memories, tokens = (
        np.bincount(group, minlength=len(distinct)),
        np.zeros(len(distinct), np.int64),
    )
    np.add.at(tokens, group, frame[col.TOKENS].to_numpy())
    named = [
        (bool(gone), labels[at], str(kinds.categories[kind]), str(reasons.categories[reason]))
        for gone, at, kind, reason in zip(*np.unravel_index(distinct, shape), strict=True)
    ]
    sizes = zip(memories.tolist(), tokens.tolist(), strict=True)
    return tuple(sorted(Group(*name, *size) for name, size in zip(named, sizes, strict=True)))
