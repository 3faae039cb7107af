"""Make plans that merge a folder of memories into another one; both are only read."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np

from memlab.compaction.merging import COPIED, MergedFolders, content_digest, merged_folders
from memlab.compaction.planning_snapshot import PlanningSnapshot, frame_at, lost_memories
from memlab.compaction.plans import MERGES, Plan, PlannedCopy, UnmergedMemory
from memlab.frame.fields import Flags
from memlab.policies.base import Decision
from memlab.sources.base import read_consistent
from memlab.sources.capabilities import MergedStart
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import Key, Reader, StepCallback, keys_in

EQUAL: Final = "equal there"
"""Reason of a memory whose content is in the other folder already, under any name."""
NAME_IN_USE: Final = "stays: its name has another content there"
"""Reason of a memory that stays, because it would overwrite another file."""


class Outcome(NamedTuple):
    """The outcome of a merge for one memory.

    Attributes
    ----------
    copy : PlannedCopy or None
        The equal memory in the other folder; None if the memory stays where it is.
    reason : str
        Why the memory leaves or stays.
    """

    copy: PlannedCopy | None
    reason: str


class OtherFolder(NamedTuple):
    """The folder that memories are merged into, as it was when it was read.

    Attributes
    ----------
    keys_by_content : mapping of str to Key
        The key of a memory, by the digest of its content.
    names_in_use : collection of str
        The names of files in it.
    reason_to_refuse : callable
        Function that returns why the folder cannot take a memory with a key; empty if it can.
    """

    keys_by_content: Mapping[str, Key]
    names_in_use: Collection[str]
    reason_to_refuse: Callable[[Key], str]


def plan_merge(store: SourceLike, into: SourceLike, now: datetime, on_step: StepCallback) -> Plan:
    """Plan to merge the folder `store` into the folder `into`. Both are only read."""
    source = open_source(store)
    folders = merged_folders(source, into)
    _ = source.archive  # raises an error if the store can have no archive
    other_folder = _read_other(folders)

    def plan_of(reader: Reader) -> Plan:
        frame = frame_at(reader, source, with_body=False)
        on_step("read")
        snapshot = PlanningSnapshot(reader, source, frame)
        keys = snapshot.keys
        outcomes = list(_outcomes_of(folders, reader.records(keys), other_folder))
        if len(outcomes) < len(keys):
            raise lost_memories(source)
        is_deleted = np.array([outcome.copy is not None for outcome in outcomes], dtype=bool)
        decision = _decision_of(outcomes, is_deleted)
        not_merged = tuple(
            UnmergedMemory(key, outcome.reason)
            for key, outcome in zip(keys, outcomes, strict=True)
            if outcome.copy is None
        )
        on_step("decided")
        return Plan(
            store=source.name,
            made_at=now,
            policy={"policy": MERGES, "into": folders.other.name},
            token_rule=snapshot.token_rule,
            groups=snapshot.groups(decision, deleted=is_deleted),
            memories=snapshot.memories(decision, is_deleted),
            kept=snapshot.kept(~is_deleted & snapshot.is_prunable),
            copies=tuple(outcome.copy for outcome in outcomes if outcome.copy is not None),
            not_merged=not_merged,
            start_there=_start_with_copies(folders, reader, outcomes),
        )

    return read_consistent(source, plan_of)


def _decision_of(outcomes: Sequence[Outcome], is_deleted: Flags) -> Decision:
    """Return the outcomes of a merge in the form of a policy's decision."""
    reasons = sorted({outcome.reason for outcome in outcomes})
    reason_codes = [reasons.index(outcome.reason) for outcome in outcomes]
    return Decision(~is_deleted, np.array(reason_codes, dtype=np.intp), reasons)


def _read_other(folders: MergedFolders) -> OtherFolder:
    """Read the contents and the names of the folder that memories are merged into."""
    other = folders.other

    def other_folder_of(reader: Reader) -> OtherFolder:
        keys_by_content: dict[str, Key] = {}
        for key, record in reader.records(keys_in(reader)):
            keys_by_content.setdefault(content_digest(other, record), key)
        return OtherFolder(
            keys_by_content=keys_by_content,
            names_in_use=folders.receiving.names_in_use(),
            reason_to_refuse=folders.receiving.reason_to_refuse,
        )

    return read_consistent(other, other_folder_of)


def _outcomes_of(
    folders: MergedFolders, records: Iterable[tuple[Key, bytes]], other: OtherFolder
) -> Iterator[Outcome]:
    """Yield the outcome of a merge for each memory, in order."""
    for key, record in records:
        yield _outcome_of(folders, key, record, other)


def _outcome_of(folders: MergedFolders, key: Key, record: bytes, other: OtherFolder) -> Outcome:
    """Return the outcome of a merge for one memory."""
    reason_to_stay = folders.giving.reason_to_stay(record)
    if reason_to_stay:
        return Outcome(None, reason_to_stay)
    content = content_digest(folders.source, record)
    if content in other.keys_by_content:
        other_key = other.keys_by_content[content]
        copy = PlannedCopy(key=key, other_key=other_key, content=content, is_copied=False)
        return Outcome(copy, EQUAL)
    if str(key) in other.names_in_use:
        return Outcome(None, NAME_IN_USE)
    reason_to_refuse = other.reason_to_refuse(key)
    if reason_to_refuse:
        return Outcome(None, reason_to_refuse)
    copy = PlannedCopy(key=key, other_key=key, content=content, is_copied=True)
    return Outcome(copy, COPIED)


def _start_with_copies(
    folders: MergedFolders, reader: Reader, outcomes: Iterable[Outcome]
) -> MergedStart | None:
    """Return the size of a start of the other folder after the memories are copied there."""
    copies = [outcome.copy for outcome in outcomes if outcome.copy is not None]
    copied_keys = [copy.key for copy in copies if copy.is_copied]
    records = [folders.giving.record_for(record) for _, record in reader.records(copied_keys)]
    return folders.receiving.start_with(records)
