"""Deciding what would go: a policy's verdict on a store, with the evidence that it is still so."""

import tempfile
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final

import pandas as pd

from memlab import columns as col
from memlab.arguments import expect
from memlab.clock import moment_or_now
from memlab.compaction.plans import (
    LOAD_BEARING,
    PRUNABLE,
    SUPERSEDED,
    Group,
    KeptRow,
    Plan,
    PlannedRow,
)
from memlab.compaction.wire import as_data
from memlab.errors import StoreError
from memlab.evidence.past import past_of
from memlab.frame.loading import load
from memlab.policies import Policy, decide
from memlab.store import SqliteMemoryStore
from memlab.store.database import connect_reading, copy_store, read_store, store_file
from memlab.store.rows import fill_positions, fingerprints, signal_fingerprints

TITLE: Final = 80
"""Characters of a title that a plan keeps for its reader."""


def plan(
    source: str | Path | SqliteMemoryStore, policy: Policy, *, now: datetime | None = None
) -> Plan:
    """Say what a policy would delete from a store. Reads only.

    A policy that learns does so from the rows that the store's archive keeps, too.

    Parameters
    ----------
    source : str, Path or SqliteMemoryStore
        A store's file, a ``file:`` URI, or an open store.
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
        When the store cannot be read, or lives in memory.
    BadRowError
        When a row cannot be interpreted.
    ArchiveError
        When the policy learns and the store has an archive that cannot be read.
    """
    expect(policy, Policy, call="memlab.plan", name="policy")
    path = store_file(_file_of(source))
    moment = moment_or_now(now, call="memlab.plan")
    made = read_store(path, lambda uri: _plan_at(uri, path, policy, moment))
    return _plan_of_busy(path, policy, moment) if made is None else made


def _file_of(source: str | Path | SqliteMemoryStore) -> str | Path:
    if isinstance(source, SqliteMemoryStore):
        if source.path is not None:
            return source.path
    elif str(source) != ":memory:":
        return source
    raise StoreError(
        "a store in memory has no file to keep an archive beside: make it with "
        "SqliteMemoryStore(path), then plan"
    )


def _plan_of_busy(path: Path, policy: Policy, now: datetime) -> Plan:
    """Plan for a store that is written while it is looked at, from a copy of one moment of it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_store(path, Path(folder) / "store.db")
        made = read_store(copy, lambda uri: _plan_at(uri, path, policy, now))
    if made is None:
        raise StoreError(f"somebody writes to {copy}, a temporary copy of {path}; try again")
    return made


def _plan_at(uri: str, path: Path, policy: Policy, now: datetime) -> Plan | None:
    """Return the plan, or None when somebody wrote between two looks at the store."""
    with closing(connect_reading(uri)) as connection:
        before = connection.execute("PRAGMA data_version").fetchone()
        frame = load(uri, with_body=any(step.reads_bodies for step in policy.steps))
        if any(step.learns for step in policy.steps):
            policy = policy.after(past_of(path, frame))
        decided = decide(frame, policy, now=now)
        goes = frame[~decided[col.KEEP]]
        kept = frame[decided[col.KEEP] & frame[col.PRUNABLE]]
        fill_positions(connection, "goes", goes[col.POSITION].tolist())
        fill_positions(connection, "kept", kept[col.POSITION].tolist())
        prints = dict(fingerprints(connection, "temp.goes"))
        kept_prints = dict(fingerprints(connection, "temp.kept"))
        signals = dict(signal_fingerprints(connection, "temp.goes"))
        if before != connection.execute("PRAGMA data_version").fetchone():
            return None
    return Plan(
        store=str(path.resolve()),
        made_at=now,
        policy=as_data(policy),
        token_rule=str(frame.attrs[col.TOKEN_RULE]),
        groups=_groups(frame, decided),
        rows=_planned(goes, decided, prints, signals),
        kept=tuple(
            KeptRow(position, memory_id, kept_prints[position])
            for position, memory_id in zip(kept[col.POSITION], kept[col.MEMORY_ID], strict=True)
        ),
    )


def _planned(
    goes: pd.DataFrame,
    decided: pd.DataFrame,
    prints: dict[int, str],
    signals: dict[int, str],
) -> tuple[PlannedRow, ...]:
    positions = goes[col.POSITION].tolist()
    columns = (
        positions,
        goes[col.MEMORY_ID].tolist(),
        goes[col.KIND].astype(str).tolist(),
        [title[:TITLE] for title in goes[col.TITLE]],
        decided.loc[goes.index, col.REASON].astype(str).tolist(),
        goes[col.TOKENS].tolist(),
        [moment.isoformat() for moment in goes[col.CREATED_AT]],
        [prints[position] for position in positions],
        [signals.get(position, "") for position in positions],
    )
    return tuple(PlannedRow(*row) for row in zip(*columns, strict=True))


def _groups(frame: pd.DataFrame, decided: pd.DataFrame) -> tuple[Group, ...]:
    label = (
        pd.Series(PRUNABLE, index=frame.index)
        .mask(frame[col.LOAD_BEARING], LOAD_BEARING)
        .mask(~frame[col.ACTIVE], SUPERSEDED)
    )
    keys = [~decided[col.KEEP], label, frame[col.KIND].astype(str), decided[col.REASON].astype(str)]
    sizes = frame[col.TOKENS].groupby(keys).agg(["size", "sum"])
    return tuple(
        Group(bool(goes), label, kind, reason, int(items), int(tokens))
        for (goes, label, kind, reason), items, tokens in sizes.itertuples(name=None)
    )
