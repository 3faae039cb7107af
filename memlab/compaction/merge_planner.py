"""Make plans that merge a folder of memories into another one; both are only read."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np

from memlab.compaction.merging import COPIED, MergedFolders, content_digest, merged_folders
from memlab.compaction.planning_snapshot import PlanningSnapshot, frame_at, lost_memories
from memlab.compaction.plans import MERGES, LeftMemory, Plan, PlannedCopy
from memlab.policies.base import Decision
from memlab.sources.base import read_consistent
from memlab.sources.capabilities import MergedStart
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import Key, Reader, StepCallback, keys_in

EQUAL: Final = "equal there"
"""Reason of a memory of which the other folder has the same bytes, under any name."""
NAME_IN_USE: Final = "stays: its name has another content there"
"""Reason of a memory that stays, because it would overwrite another file."""


class Outcome(NamedTuple):
    """What a merge does with a memory: its copy in the other folder, or the reason to stay."""

    copy: PlannedCopy | None
    reason: str


class OtherFolder(NamedTuple):
    """The folder that memories are merged into, as it was when it was read.

    Attributes
    ----------
    keys : mapping of str to Key
        The key of a memory, by the digest of its content.
    names : collection of str
        The names that are in use.
    reason_to_refuse : callable
        Function that returns why it cannot take a memory with a key; empty if it can.
    """

    keys: Mapping[str, Key]
    names: Collection[str]
    reason_to_refuse: Callable[[Key], str]


def plan_merge(store: SourceLike, into: SourceLike, now: datetime, on_step: StepCallback) -> Plan:
    """Plan to merge a folder into another one."""
    source = open_source(store)
    folders = merged_folders(source, into)
    _ = source.archive  # raises an error if the store can have no archive
    other_folder = _read_other(folders)

    def planned(reader: Reader) -> Plan:
        frame = frame_at(reader, source, with_body=False)
        on_step("read")
        snapshot = PlanningSnapshot(reader, source, frame)
        keys = snapshot.keys
        outcomes = list(_outcomes_of(folders, reader.records(keys), other_folder))
        if len(outcomes) < len(keys):
            raise lost_memories(source)
        leaves = np.array([outcome.copy is not None for outcome in outcomes], dtype=bool)
        reasons = sorted({outcome.reason for outcome in outcomes})
        codes = np.array([reasons.index(outcome.reason) for outcome in outcomes], dtype=np.intp)
        decision = Decision(~leaves, codes, reasons)
        on_step("decided")
        return Plan(
            store=source.name,
            made_at=now,
            policy={"policy": MERGES, "into": folders.other.name},
            token_rule=snapshot.token_rule,
            groups=snapshot.groups(decision, deleted=leaves),
            memories=snapshot.memories(leaves, decision),
            kept=snapshot.kept(~leaves & snapshot.is_prunable),
            copies=tuple(outcome.copy for outcome in outcomes if outcome.copy is not None),
            not_merged=tuple(
                LeftMemory(key, outcome.reason)
                for key, outcome in zip(keys, outcomes, strict=True)
                if outcome.copy is None
            ),
            start_there=_start_with_copies(folders, reader, outcomes),
        )

    return read_consistent(source, planned)


def _read_other(folders: MergedFolders) -> OtherFolder:
    """Return the contents and the names of the folder that memories are merged into."""
    other = folders.other
    takes = folders.takes

    def look(reader: Reader) -> OtherFolder:
        keys: dict[str, Key] = {}
        for key, record in reader.records(keys_in(reader)):
            keys.setdefault(content_digest(other, record), key)
        return OtherFolder(keys, takes.names_in_use(), takes.reason_to_refuse)

    return read_consistent(other, look)


def _outcomes_of(
    folders: MergedFolders, records: Iterable[tuple[Key, bytes]], other: OtherFolder
) -> Iterator[Outcome]:
    """Yield what a merge does with each memory, in order."""
    for key, record in records:
        stays = folders.gives.reason_to_stay(record)
        digest = content_digest(folders.source, record)
        if stays:
            yield Outcome(None, stays)
        elif digest in other.keys:
            copy = PlannedCopy(
                key=key, other_key=other.keys[digest], content=digest, is_copied=False
            )
            yield Outcome(copy, EQUAL)
        elif str(key) in other.names:
            yield Outcome(None, NAME_IN_USE)
        elif refused := other.reason_to_refuse(key):
            yield Outcome(None, refused)
        else:
            copy = PlannedCopy(key=key, other_key=key, content=digest, is_copied=True)
            yield Outcome(copy, COPIED)


def _start_with_copies(
    folders: MergedFolders, reader: Reader, outcomes: Iterable[Outcome]
) -> MergedStart | None:
    """Return what a start of the other folder would load once the memories are copied there."""
    keys = [
        outcome.copy.key
        for outcome in outcomes
        if outcome.copy is not None and outcome.copy.is_copied
    ]
    records = [folders.gives.record_for(record) for _, record in reader.records(keys)]
    return folders.takes.start_with(records)
