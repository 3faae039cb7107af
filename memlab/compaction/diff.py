"""What changed between two plans, as data."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

from memlab.compaction.plans import (
    Listing,
    Plan,
    PlannedLink,
    PlannedMemory,
    first_of,
    links_listing_of,
    listing_of,
)
from memlab.compaction.wire import in_words, minute, sized
from memlab.text import Sheet, Shown

_FACTS: Final[dict[str, Callable[[Plan], str]]] = {
    "store": attrgetter("store"),
    "policy": lambda plan: in_words(plan.policy),
    "made": lambda plan: minute(plan.made_at),
    "tokens": attrgetter("token_rule"),
    "memories": lambda plan: sized(plan.total),
    "deletes": lambda plan: sized(plan.deletes),
    "supersedes": lambda plan: sized(plan.superseded),
    "keeps": lambda plan: sized(plan.keeps),
}
"""What is told of two plans where it is not the same."""


class Changes(NamedTuple):
    """Memories, or links, that only one of two plans has, and what each says of those in both."""

    added: tuple[Any, ...]
    removed: tuple[Any, ...]
    rewritten: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """What the second of two plans does otherwise."""

    before: Plan
    after: Plan
    memories: Changes
    links: Changes

    @property
    def differs(self) -> bool:
        """Whether the two delete or supersede other memories, or those of another store."""
        return any((*self.memories, *self.links)) or self.before.store != self.after.store

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        memories, links = self.memories, self.links
        return {
            "before": self.before.digest,
            "after": self.after.digest,
            "differs": self.differs,
            "added": _dicts(memories.added),
            "removed": _dicts(memories.removed),
            "rewritten": _dicts(after for _, after in memories.rewritten),
            "supersedes": {
                "added": _dicts(links.added),
                "removed": _dicts(links.removed),
                "rewritten": [
                    {"before": before._asdict(), "after": after._asdict()}
                    for before, after in links.rewritten
                ],
            },
        }

    def sheet(self) -> Sheet:
        """Return what is printed."""
        title = f"plan {self.before.digest[:12]} -> plan {self.after.digest[:12]}"
        said = ((name, of(self.before), of(self.after)) for name, of in _FACTS.items())
        facts = [(name, f"{first} -> {then}") for name, first, then in said if first != then]
        if not self.differs:
            done = "superseded" if self.after.supersedes else "deleted"
            facts.append((done, "the same memories, for the same reasons"))
        memories, links = self.memories, self.links
        rewritten = [after for _, after in memories.rewritten]
        told: list[tuple[str, Sequence[Any], Callable[[Sequence[Any]], Listing]]] = [
            ("only the second deletes", memories.added, listing_of),
            ("only the first deletes", memories.removed, listing_of),
            ("both delete, changed or for another reason", rewritten, listing_of),
            ("only the second supersedes", links.added, links_listing_of),
            ("only the first supersedes", links.removed, links_listing_of),
            ("both supersede, changed or for another reason", links.rewritten, _relinked),
        ]
        tables = [
            first_of(rows, listing, f"{heading}: {len(rows):,}")
            for heading, rows, listing in told
            if rows
        ]
        return Sheet(title, facts, tables)


def difference_of(before: Plan, after: Plan) -> Difference:
    """Return what the second of two plans does otherwise than the first.

    Memories are the same when they have the same key and id.
    """
    says = ("fingerprint", "reason")
    memories = _changes(before.memories, after.memories, *says)
    by = ("by_key", "by_memory_id", "by_fingerprint")
    links = _changes(before.supersedes, after.supersedes, *says, *by)
    return Difference(before, after, memories, links)


def _changes(
    first: Sequence[PlannedMemory | PlannedLink],
    second: Sequence[PlannedMemory | PlannedLink],
    *says: str,
) -> Changes:
    """Compare what two plans list, and of what both do, some fields."""
    before = {(each.key, each.memory_id): each for each in first}
    after = {(each.key, each.memory_id): each for each in second}
    both = [(before[name], each) for name, each in after.items() if name in before]
    said = attrgetter(*says)
    return Changes(
        tuple(each for name, each in after.items() if name not in before),
        tuple(each for name, each in before.items() if name not in after),
        tuple(pair for pair in both if said(pair[0]) != said(pair[1])),
    )


def _dicts(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [each._asdict() for each in rows]


def _relinked(pairs: Sequence[tuple[PlannedLink, PlannedLink]]) -> Listing:
    """Return links of two plans as columns and rows for people."""
    header = ("tokens", "reason", "id", "first by", "then by", "title")
    return header, [
        (now.tokens, now.reason, now.memory_id, then.by_memory_id, now.by_memory_id, now.title)
        for then, now in pairs
    ]
