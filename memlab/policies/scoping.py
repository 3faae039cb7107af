"""Which rows share a cap: one scope for all, one for each agent, or scopes that overlap."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col

Ints = npt.NDArray[np.int64]


class Scope(NamedTuple):
    """Rows that share room.

    Attributes
    ----------
    members : array of int64
        Row numbers of those that are counted, ascending.
    owners : array of int64
        Those among them that were written with just this scope. It is looked at while one of them
        is there.
    """

    members: Ints
    owners: Ints


def one_scope(rows: pd.DataFrame) -> list[Scope]:
    """Return one scope that holds all rows."""
    every = np.arange(len(rows))
    return [Scope(every, every)]


def scopes_apart(rows: pd.DataFrame, fields: Sequence[str]) -> list[Scope]:
    """Return a scope for each combination of values in the fields that the frame has.

    Rows without a value share one; where the frame has none of the fields, all do.
    """
    present = [name for name in fields if name in rows]
    if not present:
        return one_scope(rows)
    labels = pd.DataFrame({name: _label(rows[name]) for name in present})
    places = labels.groupby(present, dropna=False, sort=False).indices
    return [Scope(np.asarray(one), np.asarray(one)) for one in places.values()]


def scopes_given(rows: pd.DataFrame, fields: Sequence[str]) -> list[Scope]:
    """Return the scopes that rows were written with: all that match what each was given.

    A row with an agent and no thread stands for a scope that holds every thread of that agent. Tags
    match where all of its own are there, case aside. A row that was given none of the fields makes
    no scope. Where the frame has no column for an agent, thread or namespace and `fields` name one,
    all rows are one scope.

    Source: BetterDB agent-memory, which filters by each field and tag given with a write.
    """
    named = [name for name in fields if name != col.TAGS]
    present = [name for name in named if name in rows]
    if (named and not present) or not fields:
        return one_scope(rows)
    values = pd.DataFrame({name: _folded(rows[name]) for name in present}, index=rows.index)
    tags = [frozenset[str]()] * len(rows)
    if col.TAGS in fields:
        tags = [frozenset(tag.strip().lower() for tag in each) for each in rows[col.TAGS]]
    return list(_matching(values, tags))


def _matching(values: pd.DataFrame, tags: list[frozenset[str]]) -> Iterator[Scope]:
    """Return a scope for every distinct set of given values and tags, with what matches it."""
    given = values.notna().to_numpy(dtype=bool)
    carrying = _carrying(tags)
    nowhere = np.empty(0, dtype=np.int64)
    for said in sorted(set(map(tuple, given.tolist()))):
        shape = np.array(said, dtype=bool)
        names = values.columns[shape].tolist()
        fitting = np.flatnonzero(given[:, shape].all(axis=1))
        groups = {(): fitting}
        if names:
            found = values.iloc[fitting].groupby(names, sort=False).indices
            groups = {_as_tuple(key): fitting[places] for key, places in found.items()}
        exactly = (given == shape).all(axis=1)
        for members in groups.values():
            owners: dict[frozenset[str], list[int]] = {}
            for row in members[exactly[members]].tolist():
                owners.setdefault(tags[row], []).append(row)
            for wanted, own in owners.items():
                if not names and not wanted:
                    continue
                matching = members
                for tag in wanted:
                    matching = matching[np.isin(matching, carrying.get(tag, nowhere))]
                yield Scope(matching, np.array(own))


def _carrying(tags: list[frozenset[str]]) -> dict[str, Ints]:
    """Return by tag the rows that carry it."""
    rows: dict[str, list[int]] = {}
    for row, each in enumerate(tags):
        for tag in each:
            rows.setdefault(tag, []).append(row)
    return {tag: np.array(places) for tag, places in rows.items()}


def _folded(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return what a field is compared by: its text, case aside."""
    return values.astype("str").str.lower()


def _as_tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _label(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return what a field of its own scope is compared by: tags as a set, none as missing."""
    if values.name != col.TAGS:
        return values
    return values.map(lambda tags: ",".join(sorted(set(tags))) or None).astype("str")
