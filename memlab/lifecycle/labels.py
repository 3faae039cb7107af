"""What a row is labelled with, and which scopes it is in by that.

A scope is a set of labels: the agent, thread, namespace and tags that a row was written with. It
holds every row that has all of them, so scopes overlap.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

Label = tuple[str, str]
Labels = frozenset[Label]

TAGS: Final = "tags"


def scope_key(
    fields: Iterable[str], values: Mapping[str, str | None], tags: Iterable[str]
) -> str | None:
    """Return the labels of a row as JSON, or None when none of the scope's fields is set.

    Case makes no difference, as in BetterDB's index, nor does white space around a tag.

    Examples
    --------
    >>> scope_key(("agent_id", "tags"), {"agent_id": "A"}, ("y", "X"))
    '{"agent_id": "a", "tags": ["x", "y"]}'
    """
    fields = tuple(fields)
    known: dict[str, Any] = {
        name: value.lower() for name in fields if (value := values.get(name)) is not None
    }
    if TAGS in fields and (wanted := sorted({tag.strip().lower() for tag in tags})):
        known[TAGS] = wanted
    return json.dumps(known, sort_keys=True) if known or not fields else None


@lru_cache(maxsize=100_000)
def labels_in(key: str) -> Labels:
    """Return the labels that :func:`scope_key` has written down."""
    known = json.loads(key)
    tags = known.pop(TAGS, ())
    return frozenset([*known.items(), *((TAGS, tag) for tag in tags)])


class Shelves:
    """Scopes, found by the labels of a row that is in them.

    Each stands on the shelf of one of its labels, of which few others have it.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._shelves: dict[Label | None, dict[str, Labels]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        """Take in a scope that is not here."""
        labels = labels_in(key)
        least = min(
            labels, key=lambda label: (len(self._shelves.get(label, ())), label), default=None
        )
        self._shelves.setdefault(least, {})[key] = labels

    def holding(self, key: str) -> Iterator[str]:
        """Yield the scopes that a row with these labels is in."""
        labels = labels_in(key)
        for label in (None, *labels):
            for scope, wanted in self._shelves.get(label, {}).items():
                if wanted <= labels:
                    yield scope
