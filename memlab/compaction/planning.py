"""Deciding what would go: a policy's verdict on a store, with the evidence that it is still so."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.locating import prints_of
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
from memlab.sources.base import Key, Reader, Source, archive_at, at_one_moment
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.tables import FINGERPRINT
from memlab.store.other_tables import Written

Places = npt.NDArray[np.intp]
"""Numbers of rows in a frame, counted from 0."""

Prints = npt.NDArray[np.object_]
"""A fingerprint for each row of a frame, or None."""


def plan(source: SourceLike, policy: Policy, *, now: datetime | None = None) -> Plan:
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
    return at_one_moment(opened, lambda reader: _plan_of(reader, opened, policy, moment))


def _plan_of(reader: Reader, source: Source, policy: Policy, now: datetime) -> Plan:
    """Decide, and take the evidence that it is still so, from one moment of the store."""
    with_body = any(step.reads_bodies for step in policy.steps)
    frame, told = _read(reader, source, with_body=with_body)
    if any(step.learns for step in policy.steps):
        policy = policy.after(past_of(frame, deletions_of(source)))
    decided = decide(frame, policy, now=now)
    keep = decided[col.KEEP].to_numpy(dtype=bool)
    deleted = np.flatnonzero(~keep)
    kept = np.flatnonzero(keep & frame[col.PRUNABLE].to_numpy(dtype=bool))

    def prints(places: Places, *, lasting: bool = False) -> list[str]:
        known = zip(_keys(frame, places), told[places].tolist(), strict=True)
        return _prints(reader, source, dict(known), lasting=lasting)

    return Plan(
        store=source.name,
        made_at=now,
        policy=as_data(policy),
        token_rule=str(frame.attrs[col.TOKEN_RULE]),
        groups=groups_of(frame, decided),
        memories=tuple(_planned(frame, deleted, decided[col.REASON], prints(deleted))),
        kept=tuple(
            map(
                KeptMemory,
                _keys(frame, kept),
                _texts(frame[col.MEMORY_ID], kept),
                prints(kept, lasting=True),
            )
        ),
        written=_written_with(reader, _keys(frame, deleted)),
        last_goes=source.scheme == "file" and len(frame) - 1 in deleted[-1:],
    )


def _read(reader: Reader, source: Source, *, with_body: bool) -> tuple[pd.DataFrame, Prints]:
    """Return every memory, and the fingerprints that reading tells; None where it does not."""
    memories = memories_of(
        reader.printed(with_body=with_body)
        if isinstance(reader, Printing)
        else reader.batches(with_body=with_body),
        name=source.name,
        with_body=with_body,
        protected=source.protected,
    )
    told = np.full(len(memories.rows), None, dtype=object)
    if FINGERPRINT in memories.rows.column_names:
        told[:] = memories.rows[FINGERPRINT].to_pylist()
    return frame_from(memories), told


def _prints(
    reader: Reader, source: Source, told: dict[Key, str | None], *, lasting: bool
) -> list[str]:
    """Return the fingerprints of memories, those too that reading did not tell."""
    others = [key for key, each in told.items() if each is None]
    known = told | dict(prints_of(reader, source, others, lasting=lasting))
    return [each for each in known.values() if each is not None]


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


def _planned(
    frame: pd.DataFrame, deleted: Places, reasons: "pd.Series[Any]", prints: list[str]
) -> Iterator[PlannedMemory]:
    """Yield the memories at some places with their fingerprints, and why they go."""
    moments = frame[col.CREATED_AT].to_numpy("datetime64[us]")[deleted].tolist()
    return map(
        PlannedMemory,
        _keys(frame, deleted),
        frame[col.POSITION].to_numpy()[deleted].tolist(),
        _texts(frame[col.MEMORY_ID], deleted),
        _texts(frame[col.KIND], deleted),
        [title[:TITLE] for title in _texts(frame[col.TITLE], deleted)],
        _texts(reasons, deleted),
        frame[col.TOKENS].to_numpy()[deleted].tolist(),
        [f"{moment.isoformat()}+00:00" if moment else "" for moment in moments],
        prints,
    )


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
