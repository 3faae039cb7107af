"""Load-bearing memories that a newer one could stand for: the part of the floor that comes down."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.evidence.references import find_references
from memlab.policies.duplicates import NearDuplicate, near_duplicates
from memlab.text import counted

WHY: Final = "why"
"""In words: what speaks for it."""

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
"""In the order in which one memory is given a reason."""

Follows = tuple[int, int, str, str]
"""Rows of a memory and of the newer one, the reason, and what speaks for it."""


def supersedable(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    policy: NearDuplicate | None = None,
    by_likeness: bool = True,
) -> pd.DataFrame:
    """Return active load-bearing memories that a newer one could stand for: a person decides."""
    rows = frame.reset_index(drop=True)
    if references is None:
        references = find_references(rows)
    floor: list[int] = np.flatnonzero(rows[col.ACTIVE] & rows[col.LOAD_BEARING]).tolist()
    alike = _repeated(rows.iloc[floor], policy or NearDuplicate()) if by_likeness else ()
    said = *alike, *_said(rows, floor, references)
    follows: dict[int, tuple[int, str, str]] = {}
    for older, newer, reason, why in said:
        follows.setdefault(older, (newer, reason, why))
    found = rows.loc[list(follows), [col.MEMORY_ID, col.KIND, col.TITLE, col.TOKENS]]
    ends = [_end(follows, row) for row in follows]
    found[col.SUPERSEDED_BY] = rows[col.MEMORY_ID].to_numpy()[[end for end, _ in ends]]
    found[col.REASON] = [reason for _, reason, _ in follows.values()]
    found[WHY] = [
        f"{why}, in a chain of {links + 1}" if links > 1 else why
        for (_, _, why), (_, links) in zip(follows.values(), ends, strict=True)
    ]
    text = dict.fromkeys((col.SUPERSEDED_BY, col.REASON, WHY), "str")
    costliest = found.sort_values(col.TOKENS, ascending=False, kind="stable")
    return costliest.astype(text).reset_index(drop=True)


def _repeated(floor: pd.DataFrame, policy: NearDuplicate) -> Iterator[Follows]:
    """Yield the near-duplicates of one kind, each with the newer one that repeats it."""
    row_of = dict(zip(floor[col.MEMORY_ID], floor.index, strict=True))
    for _, alike in floor.groupby(floor[col.KIND].astype("str")):
        pairs = near_duplicates(alike.assign(**{col.LOAD_BEARING: False}), policy)
        for older, newer, similarity in zip(
            pairs.index, pairs["replaced_by"], pairs["similarity"], strict=True
        ):
            yield int(older), int(row_of[newer]), REPEATED, f"similarity {similarity:.2f}"


def _said(rows: pd.DataFrame, floor: list[int], references: pd.DataFrame) -> Iterator[Follows]:
    """Yield what memories say of each other, reason by reason."""
    ids: list[str] = rows[col.MEMORY_ID].tolist()
    supersedes: list[tuple[str, ...]] = rows[col.SUPERSEDES].tolist()
    names: list[tuple[str, ...]] = rows[col.EVIDENCE_REFS].tolist()
    every, row_of = {name: row for row, name in enumerate(ids)}, {ids[row]: row for row in floor}
    refers = {row: [row_of[each] for each in names[row] if each in row_of] for row in floor}
    for row in floor:
        older = (row_of[each] for each in supersedes[row] if each in row_of)
        yield from ((one, row, REPLACED, f"{ids[row]} says so") for one in older if one < row)
    for row in floor:
        named = [every.get(each, -1) for each in names[row]]
        if refers[row] and min(named) > row:
            count = counted(len(named), "references")
            yield row, max(refers[row]), PASSED_ON, f"{count}, each to a newer one"
    yield from _overtaken(rows, refers, references)


def _overtaken(
    rows: pd.DataFrame, refers: dict[int, list[int]], references: pd.DataFrame
) -> Iterator[Follows]:
    kinds = rows[col.KIND].astype("str").to_numpy()
    positions = rows[col.POSITION].to_numpy(np.int64)
    at = references[col.AT_POSITION].to_numpy(np.int64)
    to = references[col.TARGET_POSITION].to_numpy(np.int64)
    for newer in sorted(refers, reverse=True):
        since = to[at > positions[newer]]
        count = int((since == positions[newer]).sum())
        for older in refers[newer] if count else ():
            if older < newer and kinds[older] == kinds[newer] and positions[older] not in since:
                words = counted(count, "references")
                yield older, newer, OVERTAKEN, f"{words} since, to the newer one alone"


def _end(follows: dict[int, tuple[int, str, str]], row: int) -> tuple[int, int]:
    """Return the end of a chain and its links; each leads to a newer memory, so it has one."""
    links = 0
    while row in follows:
        row, links = follows[row][0], links + 1
    return row, links
