"""Load-bearing memories that a newer one may replace, by what the memories say of each other."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.evidence.references import find_references
from memlab.policies.duplicates import NearDuplicate, near_duplicates
from memlab.text import counted

WHY: Final = "why"
"""Column of the evidence in words."""

# The reasons for which a newer memory may replace an older one.
REPEATED: Final = "repeated"
REPLACED: Final = "said to be replaced"
PASSED_ON: Final = "passed on"
OVERTAKEN: Final = "overtaken"
REASONS: Final = {
    REPEATED: "a newer one of its kind says nearly the same",
    REPLACED: "a newer one says that it supersedes it, and it is loaded all the same",
    PASSED_ON: "all that it refers to is newer than itself",
    OVERTAKEN: "a newer one of its kind refers to it, and every reference since is to that one",
}
"""Reasons with their descriptions; the first that applies to a memory counts."""


class Successor(NamedTuple):
    """A newer memory that may replace an older one, both as row numbers, and why."""

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

    Nothing is decided: a person confirms each of them.

    Parameters
    ----------
    frame : DataFrame
        A frame as :func:`memlab.load` returns it, with bodies for near-duplicates.
    policy : NearDuplicate, optional
        The rule for near-duplicates; odek's by default.
    by_likeness : bool
        Whether near-duplicates count, which need the ``models`` extra.

    Returns
    -------
    DataFrame
        ``memory_id``, ``kind``, ``title`` and ``tokens``; ``superseded_by``, the newest memory of
        the chain; ``reason``, one of `REASONS`; and ``why``, the evidence in words.
    """
    rows = frame.reset_index(drop=True)
    is_floor = rows[col.ACTIVE] & rows[col.LOAD_BEARING]
    load_bearing: list[int] = np.flatnonzero(is_floor).tolist()
    successors = list[Successor]()
    if by_likeness:
        successors += _repeated(rows.iloc[load_bearing], policy or NearDuplicate())
    successors += _stated(rows, load_bearing, find_references(rows))
    by_older: dict[int, Successor] = {}
    for successor in successors:
        by_older.setdefault(successor.older, successor)
    result = rows.loc[list(by_older), [col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS]]
    chains = [_chain(by_older, row) for row in by_older]
    ends = [chain[-1] for chain in chains]
    result[col.SUPERSEDED_BY] = rows[col.MEMORY_ID].to_numpy()[ends]
    result[col.REASON] = [successor.reason for successor in by_older.values()]
    why = []
    for successor, chain in zip(by_older.values(), chains, strict=True):
        length = f", one of {len(chain) + 1} in a chain" if len(chain) > 1 else ""
        why.append(successor.why + length)
    result[WHY] = why
    result = result.sort_values(col.TOKENS, ascending=False, kind="stable")
    text_columns = dict.fromkeys((col.SUPERSEDED_BY, col.REASON, WHY), "str")
    return result.astype(text_columns).reset_index(drop=True)


def _repeated(load_bearing: pd.DataFrame, policy: NearDuplicate) -> Iterator[Successor]:
    """Yield the near-duplicates of one kind, each with the newer memory that repeats it."""
    row_of = dict(zip(load_bearing[col.MEMORY_ID], load_bearing.index, strict=True))
    for _, rows_of_kind in load_bearing.groupby(load_bearing[col.KIND].astype("str")):
        pairs = near_duplicates(rows_of_kind.assign(**{col.LOAD_BEARING: False}), policy)
        for older, newer, similarity in zip(
            pairs.index, pairs["replaced_by"], pairs["similarity"], strict=True
        ):
            why = f"similarity {similarity:.2f}"
            yield Successor(int(older), int(row_of[newer]), REPEATED, why)


def _stated(
    rows: pd.DataFrame, load_bearing: list[int], references: pd.DataFrame
) -> Iterator[Successor]:
    """Yield the successors that memories name themselves, reason by reason."""
    ids: list[str] = rows[col.MEMORY_ID].tolist()
    names: list[tuple[str, ...]] = rows[col.EVIDENCE_REFS].tolist()
    load_bearing_row = {ids[row]: row for row in load_bearing}
    refers_to = {}
    for row in load_bearing:
        refers_to[row] = [load_bearing_row[name] for name in names[row] if name in load_bearing_row]
    yield from _superseding(rows, load_bearing, load_bearing_row)
    row_by_id = {memory_id: row for row, memory_id in enumerate(ids)}
    for row in load_bearing:
        named = [row_by_id.get(name, -1) for name in names[row]]
        if refers_to[row] and min(named) > row:
            why = f"{counted(len(named), 'references')}, each to a newer one"
            yield Successor(row, max(refers_to[row]), PASSED_ON, why)
    yield from _overtaken(rows, refers_to, references)


def _superseding(
    rows: pd.DataFrame, load_bearing: list[int], load_bearing_row: dict[str, int]
) -> Iterator[Successor]:
    """Yield the memories that a newer one lists under ``supersedes`` and that are still active."""
    ids: list[str] = rows[col.MEMORY_ID].tolist()
    supersedes: list[tuple[str, ...]] = rows[col.SUPERSEDES].tolist()
    for newer in load_bearing:
        for name in supersedes[newer]:
            older = load_bearing_row.get(name)
            if older is not None and older < newer:
                yield Successor(older, newer, REPLACED, f"{ids[newer]} says so")


def _overtaken(
    rows: pd.DataFrame, refers_to: dict[int, list[int]], references: pd.DataFrame
) -> Iterator[Successor]:
    """Yield memories that a newer one refers to, if all references since are to the newer one."""
    kinds = rows[col.KIND].astype("str").to_numpy()
    positions = rows[col.POSITION].to_numpy(np.int64)
    at_position = references[col.AT_POSITION].to_numpy(np.int64)
    target_position = references[col.TARGET_POSITION].to_numpy(np.int64)
    for newer in sorted(refers_to, reverse=True):
        targets_since = target_position[at_position > positions[newer]]
        count = int((targets_since == positions[newer]).sum())
        if not count:
            continue
        why = f"{counted(count, 'references')} since, to the newer one alone"
        for older in refers_to[newer]:
            is_of_kind = kinds[older] == kinds[newer]
            if older < newer and is_of_kind and positions[older] not in targets_since:
                yield Successor(older, newer, OVERTAKEN, why)


def _chain(by_older: dict[int, Successor], row: int) -> list[int]:
    """Return the successors of a row, one after another.

    Each is newer than the one before it, so the chain ends.
    """
    chain = []
    while row in by_older:
        row = by_older[row].newer
        chain.append(row)
    return chain
