"""Find folders of memories that may belong to one project, by memories that are equal.

A project that was moved, renamed or checked out twice has a folder for each of its paths. Only
prunable memories are compared: a person's preferences and instructions are copied to unrelated
projects too. Nothing is merged: a person decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from memlab.sources.base import Source, read_consistent
from memlab.sources.readers import Key, Reader
from memlab.store.archive.content_copies import digest_of

LEAST_EQUAL: Final = 2
"""Minimum number of equal memories."""
LEAST_SHARE: Final = 0.2
"""Minimum share of the smaller folder that is equal."""


@dataclass(frozen=True, slots=True)
class Kinship:
    """Two folders that may belong to one project.

    Attributes
    ----------
    where, other : str
        The names of the folders; `where` has at least as many memories as `other`.
    equal : int
        Number of memories with the same text in both.
    memories : int
        Number of memories of `other` that were compared.
    """

    where: str
    other: str
    equal: int
    memories: int


def contents_of(source: Source) -> frozenset[str]:
    """Return the digests of the prunable memories of a folder that have a text."""

    def look(reader: Reader) -> frozenset[str]:
        return frozenset(_digests(source, reader))

    return read_consistent(source, look)


def _digests(source: Source, reader: Reader) -> Iterator[str]:
    """Yield the digest of each prunable memory that has a text."""
    for _, record in reader.records(_keys(reader)):
        is_load_bearing = source.is_load_bearing(source.facts_of(record), unsure=True)
        if not is_load_bearing and not source.is_empty(record):
            yield digest_of(source.content_for_digest(record)).hex()


def _keys(reader: Reader) -> list[Key]:
    """Return the keys of all memories."""
    keys: list[Key] = []
    for rows in reader.batches(with_body=False):
        keys += rows.table["key"].to_pylist()
    return keys


def kinships_among(contents: Mapping[str, frozenset[str]]) -> Sequence[Kinship]:
    """Return the pairs of folders with enough equal memories, the most equal ones first.

    >>> contents = {"a": frozenset("123"), "b": frozenset("1234"), "c": frozenset("9")}
    >>> kinships_among(contents)
    [Kinship(where='b', other='a', equal=3, memories=3)]
    """
    kinships = []
    for pair in combinations(sorted(contents), 2):
        larger, smaller = sorted(pair, key=lambda name: (-len(contents[name]), name))
        equal = len(contents[larger] & contents[smaller])
        count = len(contents[smaller])
        if equal >= LEAST_EQUAL and equal >= LEAST_SHARE * count:
            kinships.append(Kinship(larger, smaller, equal, count))
    return sorted(kinships, key=lambda kinship: (-kinship.equal, kinship.where, kinship.other))
