"""Deciding what would go, or be superseded, with the evidence that it is still so.

A plan that supersedes brings the floor down: it names load-bearing memories for which a newer one
stands, and deletes nothing.
"""

import gc
from collections.abc import Collection, Iterator, Mapping
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
    PlannedLink,
    PlannedMemory,
)
from memlab.compaction.wire import as_data, some_of
from memlab.errors import ChangedWhileReadError, PlanError
from memlab.evidence.past import deletions_of, past_of
from memlab.evidence.reads import remembered_reads
from memlab.evidence.references import find_references
from memlab.frame.fields import as_instant
from memlab.frame.loading import frame_of
from memlab.policies import KeepAll, Policy
from memlab.policies.base import Decision, decision_of
from memlab.policies.successors import supersedable
from memlab.sources.base import Key, Reader, Source, Watch, archive_at, at_one_moment, unwatched
from memlab.sources.opening import SourceLike, open_source, settings_of
from memlab.store.records import fingerprint_of

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
    store's archive keeps, too, and from the logs that ``memlab.toml`` remembers. While the policy
    decides, a store in WAL mode that somebody has open goes on being written to; writers of one
    with a rollback journal wait (``.ci/bench``).

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
    frame = _frame_of(reader, source, with_body=with_body)
    watch(PlanStep.READ)
    rule = str(frame.attrs[col.TOKEN_RULE])
    frame.attrs = {}  # pandas copies them, deeply, with every column that is taken
    if any(step.learns for step in policy.steps):
        log = remembered_reads(settings_of(source))
        names = () if log is None else log[col.MEMORY_ID].dropna()
        past = past_of(frame, deletions_of(source), names=names)
        policy = policy.after(past, find_references(past, log, now=None if log is None else now))
    decision = decision_of(frame, policy, now=now)
    watch(PlanStep.DECIDED)
    columns = _columns_of(frame)
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
        groups=_groups_of(columns, decision),
        memories=memories,
        kept=_kept(reader, source, columns, kept),
        written=reader.side_effects([memory.key for memory in memories]) if memories else (),
        expires=_expiring(frame, columns[col.KEY], np.union1d(deleted, kept), now),
        last_goes=source.agents_own and len(frame) - 1 in deleted[-1:],
    )


def _frame_of(reader: Reader, source: Source, *, with_body: bool) -> pd.DataFrame:
    return frame_of(
        reader.batches(with_body=with_body),
        name=source.name,
        with_body=with_body,
        protected=source.protected,
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


def _groups_of(columns: Columns, decision: Decision) -> tuple[Group, ...]:
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
    source : str, Path, SqliteMemoryStore or Source
        The store.
    links : mapping of str to str, optional
        The id of the memory that is to stand for each; what
        :func:`memlab.policies.successors.supersedable` finds when not given.
    only : collection of str, optional
        Of what is found, these ids alone.
    now : datetime, optional
        The moment of the decision, with a time zone; the current one by default.

    Returns
    -------
    Plan
        Print it to see what it would do.

    Raises
    ------
    PlanError
        When an id is not an active load-bearing memory, one stands for itself, or the store knows
        of no memories that stand for others.
    UnsafeDeletionError
        When the store is in memory, where there is no place for an archive.
    MissingExtraError
        When scikit-learn, which finds near-duplicates, is not installed and `links` is not given.
    StoreError, BadRowError
        When the store cannot be read.
    """
    opened = open_source(source)
    moment = moment_or_now(now, call="memlab.compaction.plan_supersession")
    if not opened.supersedes:
        opened.superseding()  # which says why it cannot
    archive_at(opened)  # refused here where there is no place for one
    return at_one_moment(
        opened, lambda reader: _supersession_of(reader, opened, links, only, moment)
    )


def _supersession_of(
    reader: Reader,
    source: Source,
    links: Mapping[str, str] | None,
    only: Collection[str] | None,
    now: datetime,
) -> Plan:
    frame = _frame_of(reader, source, with_body=True)
    chosen = _supersedable(frame, only) if links is None else _by_hand(frame, links)
    policy = {"policy": "supersede", **({"only": sorted(only)} if only is not None else {})}
    return Plan(
        store=source.name,
        made_at=now,
        policy=policy,
        token_rule=str(frame.attrs[col.TOKEN_RULE]),
        groups=_groups_of(_columns_of(frame), decision_of(frame, KeepAll(), now=now)),
        memories=(),
        kept=(),
        supersedes=_links(reader, frame, chosen),
    )


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
    """Check the pairs that a person named."""
    floor = frame[frame[col.ACTIVE] & frame[col.LOAD_BEARING]]
    active, known = set(frame[col.MEMORY_ID][frame[col.ACTIVE]]), set(floor[col.MEMORY_ID])
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
    reader: Reader, frame: pd.DataFrame, chosen: Mapping[str, tuple[str, str]]
) -> tuple[PlannedLink, ...]:
    address = col.KEY if col.KEY in frame else col.POSITION
    columns = list({address, col.POSITION, col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS})
    ends = {*chosen, *(newer for newer, _ in chosen.values())}
    named = frame.loc[frame[col.MEMORY_ID].isin(ends), columns].to_dict(orient="records")
    row_of = {str(row[col.MEMORY_ID]): row for row in named}
    keys = [row[address] for row in named]
    prints = {key: fingerprint_of(record) for key, record in reader.records(keys)}
    planned = []
    for older, (newer, reason) in chosen.items():
        row, by = row_of[older], row_of[newer][address]
        planned.append(
            PlannedLink(
                key=row[address],
                position=row[col.POSITION],
                memory_id=older,
                kind=str(row[col.KIND]),
                title=row[col.TITLE][:TITLE],
                reason=reason,
                tokens=row[col.TOKENS],
                fingerprint=prints[row[address]],
                by_key=by,
                by_memory_id=newer,
                by_fingerprint=prints[by],
            )
        )
    return tuple(sorted(planned, key=lambda link: link.position))
