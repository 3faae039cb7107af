"""Load-bearing memories that a newer memory may replace, with the evidence for each."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.evidence.references import find_references
from memlab.policies.duplicates import NearDuplicate, near_duplicates
from memlab.text import counted

WHY: Final = "why"
"""Name of the column with the evidence as a sentence."""

REPEATED: Final = "repeated"
REPLACED: Final = "said to be replaced"
PASSED_ON: Final = "passed on"
OVERTAKEN: Final = "overtaken"
REASONS: Final = {
    REPEATED: "a newer one of its kind says nearly the same",
    REPLACED: "a newer one says that it replaces this one, which is still loaded",
    PASSED_ON: "all that it refers to is newer than itself",
    OVERTAKEN: "a newer one of its kind refers to it, and every reference since is to that one",
}
"""Reasons for which a newer memory may replace an older one, with their descriptions.

If several apply to a memory, the first of them counts.
"""


class Successor(NamedTuple):
    """A newer memory that may replace an older one.

    Attributes
    ----------
    older, newer : int
        Row numbers of the two memories.
    reason : str
        One of `REASONS`.
    why : str
        The evidence.
    """

    older: int
    newer: int
    reason: str
    why: str


def supersedable(
    frame: pd.DataFrame,
    *,
    policy: NearDuplicate | None = None,
    by_likeness: bool = True,
) -> pd.DataFrame:
    """Return the active load-bearing memories that a newer one may replace, the longest first.

    The result is a list of candidates: a person confirms each of them.

    Parameters
    ----------
    frame : DataFrame
        A frame as :func:`memlab.load` returns it, with bodies for near-duplicates.
    policy : NearDuplicate, optional
        The rule for near-duplicates; odek's by default.
    by_likeness : bool
        Whether to search near-duplicates, which needs the ``models`` extra.

    Returns
    -------
    DataFrame
        ``memory_id``, ``kind``, ``title`` and ``tokens``; ``superseded_by``, the newest memory of
        the chain of successors; ``reason``, one of `REASONS`; and ``why``, the evidence.
    """
    rows = frame.reset_index(drop=True)
    is_floor = rows[col.ACTIVE] & rows[col.LOAD_BEARING]
    load_bearing: list[int] = np.flatnonzero(is_floor).tolist()
    successors = list[Successor]()
    if by_likeness:
        successors += _repeated(rows.iloc[load_bearing], policy or NearDuplicate())
    successors += _by_references(rows, load_bearing, find_references(rows))
    successor_of: dict[int, Successor] = {}
    for successor in successors:
        successor_of.setdefault(successor.older, successor)
    result = rows.loc[list(successor_of), [col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS]]
    chains = [_chain(successor_of, row) for row in successor_of]
    ends = [chain[-1] for chain in chains]
    result[col.SUPERSEDED_BY] = rows[col.MEMORY_ID].to_numpy()[ends]
    result[col.REASON] = [successor.reason for successor in successor_of.values()]
    evidence = []
    for successor, chain in zip(successor_of.values(), chains, strict=True):
        chain_note = f", one of {len(chain) + 1} in a chain" if len(chain) > 1 else ""
        evidence.append(successor.why + chain_note)
    result[WHY] = evidence
    result = result.sort_values(col.TOKENS, ascending=False, kind="stable")
    text_columns = dict.fromkeys((col.SUPERSEDED_BY, col.REASON, WHY), "str")
    return result.astype(text_columns).reset_index(drop=True)


def _repeated(load_bearing: pd.DataFrame, policy: NearDuplicate) -> Iterator[Successor]:
    """Yield the memories that a newer near-duplicate of the same kind repeats."""
    row_of = dict(zip(load_bearing[col.MEMORY_ID], load_bearing.index, strict=True))
    for _, rows_of_kind in load_bearing.groupby(load_bearing[col.KIND].astype("str")):
        # `near_duplicates` compares prunable memories only.
        as_prunable = rows_of_kind.assign(**{col.LOAD_BEARING: False})
        pairs = near_duplicates(as_prunable, policy)
        for older, newer, similarity in zip(
            pairs.index, pairs["replaced_by"], pairs["similarity"], strict=True
        ):
            evidence = f"similarity {similarity:.2f}"
            yield Successor(int(older), int(row_of[newer]), REPEATED, evidence)


def _by_references(
    rows: pd.DataFrame, load_bearing: list[int], references: pd.DataFrame
) -> Iterator[Successor]:
    """Yield the successors that follow from the references of memories, one reason after another.

    `load_bearing` has the row numbers of the active load-bearing memories.
    """
    ids: list[str] = rows[col.MEMORY_ID].tolist()
    named_ids: list[tuple[str, ...]] = rows[col.EVIDENCE_REFS].tolist()
    row_of_load_bearing = {ids[row]: row for row in load_bearing}
    refers_to: dict[int, list[int]] = {row: [] for row in load_bearing}
    for row in load_bearing:
        for memory_id in named_ids[row]:
            if memory_id in row_of_load_bearing:
                refers_to[row].append(row_of_load_bearing[memory_id])
    yield from _superseded(rows, load_bearing, row_of_load_bearing)
    yield from _passed_on(rows, refers_to)
    yield from _overtaken(rows, refers_to, references)


def _superseded(
    rows: pd.DataFrame, load_bearing: list[int], row_of_load_bearing: dict[str, int]
) -> Iterator[Successor]:
    """Yield the memories that a newer one lists under ``supersedes`` and that are still active."""
    ids: list[str] = rows[col.MEMORY_ID].tolist()
    superseded_ids: list[tuple[str, ...]] = rows[col.SUPERSEDES].tolist()
    for newer in load_bearing:
        for memory_id in superseded_ids[newer]:
            older = row_of_load_bearing.get(memory_id)
            if older is not None and older < newer:
                yield Successor(older, newer, REPLACED, f"{ids[newer]} says so")


def _passed_on(rows: pd.DataFrame, refers_to: dict[int, list[int]]) -> Iterator[Successor]:
    """Yield the memories that refer only to newer memories, among them a load-bearing one."""
    named_ids: list[tuple[str, ...]] = rows[col.EVIDENCE_REFS].tolist()
    row_of_id = {memory_id: row for row, memory_id in enumerate(rows[col.MEMORY_ID])}
    for row, load_bearing_targets in refers_to.items():
        targets = [row_of_id.get(memory_id) for memory_id in named_ids[row]]
        are_all_newer = all(target is not None and target > row for target in targets)
        if load_bearing_targets and are_all_newer:
            evidence = f"{counted(len(targets), 'references')}, each to a newer one"
            yield Successor(row, max(load_bearing_targets), PASSED_ON, evidence)


def _overtaken(
    rows: pd.DataFrame, refers_to: dict[int, list[int]], references: pd.DataFrame
) -> Iterator[Successor]:
    """Yield the memories that a newer one of their kind refers to and that nothing refers to since.

    The newer one has references since it was written.
    """
    kinds = rows[col.KIND].astype("str").to_numpy()
    positions = rows[col.POSITION].to_numpy(np.int64)
    at_position = references[col.AT_POSITION].to_numpy(np.int64)
    target_position = references[col.TARGET_POSITION].to_numpy(np.int64)
    for newer in sorted(refers_to, reverse=True):
        targets_since = target_position[at_position > positions[newer]]
        count = int((targets_since == positions[newer]).sum())
        if not count:
            continue
        evidence = f"{counted(count, 'references')} since, to the newer one alone"
        for older in refers_to[newer]:
            is_of_kind = kinds[older] == kinds[newer]
            if older < newer and is_of_kind and positions[older] not in targets_since:
                yield Successor(older, newer, OVERTAKEN, evidence)


def _chain(successor_of: dict[int, Successor], row: int) -> list[int]:
    """Return the successor of a row, the successor of that, and so on.

    Each is newer than the previous one, so the chain ends.
    """
    chain = []
    while row in successor_of:
        row = successor_of[row].newer
        chain.append(row)
    return chain
