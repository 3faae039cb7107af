"""What changed between two plans, as data."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

from memlab.compaction.plans import (
    RETIRES,
    RETURNS,
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
    "retires": lambda plan: sized(plan.labelled(RETIRES)),
    "returns": lambda plan: sized(plan.labelled(RETURNS)),
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
    retires: Changes
    returns: Changes

    @property
    def differs(self) -> bool:
        """Whether the two change other memories, or otherwise, or those of another store."""
        changes = (*self.memories, *self.links, *self.retires, *self.returns)
        return any(changes) or self.before.store != self.after.store

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        links = self.links
        return {
            "before": self.before.digest,
            "after": self.after.digest,
            "differs": self.differs,
            **_changes_dict(self.memories),
            "retires": _changes_dict(self.retires),
            "returns": _changes_dict(self.returns),
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
            done = "retired or returned" if self.after.moves else done
            facts.append((done, "the same memories, for the same reasons"))
        links = self.links
        told: list[tuple[str, Sequence[Any], Callable[[Sequence[Any]], Listing]]] = []
        changes = (("delete", self.memories), ("retire", self.retires), ("return", self.returns))
        for does, (added, removed, rewritten) in changes:
            told += [
                (f"only the second {does}s", added, listing_of),
                (f"only the first {does}s", removed, listing_of),
                (
                    f"both {does}, changed or for another reason",
                    [after for _, after in rewritten],
                    listing_of,
                ),
            ]
        told += [
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
    fates = [_changes(each, after.fates[does], *says) for does, each in before.fates.items()]
    by = ("by_key", "by_memory_id", "by_fingerprint")
    links = _changes(before.supersedes, after.supersedes, *says, *by)
    return Difference(before, after, fates[0], links, *fates[1:])


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


def _changes_dict(changes: Changes) -> dict[str, list[dict[str, Any]]]:
    rewritten = (after for _, after in changes.rewritten)
    rows = zip(Changes._fields, (changes.added, changes.removed, rewritten), strict=True)
    return {name: _dicts(each) for name, each in rows}


def _dicts(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [each._asdict() for each in rows]


def _relinked(pairs: Sequence[tuple[PlannedLink, PlannedLink]]) -> Listing:
    """Return links of two plans as columns and rows for people."""
    header = ("tokens", "reason", "id", "first by", "then by", "title")
    return header, [
        (now.tokens, now.reason, now.memory_id, then.by_memory_id, now.by_memory_id, now.title)
        for then, now in pairs
    ]
