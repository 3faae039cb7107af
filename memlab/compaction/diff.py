"""What changed between two plans, as data."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from memlab.compaction.plans import Plan, PlannedLink, PlannedMemory, links_listing_of, listing_of
from memlab.compaction.wire import in_words, minute, sized
from memlab.items import Size
from memlab.text import Cell, Sheet, Shown, Table

LISTED: Final = 10
"""Memories of a list that are shown."""

Planned = TypeVar("Planned", PlannedMemory, PlannedLink)
Row = TypeVar("Row")


class LinkChanges(NamedTuple):
    """What the second of two plans supersedes otherwise."""

    added: tuple[PlannedLink, ...]
    removed: tuple[PlannedLink, ...]
    rewritten: tuple[tuple[PlannedLink, PlannedLink], ...]


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """What the second of two plans does otherwise."""

    before: Plan
    after: Plan
    added: tuple[PlannedMemory, ...]
    removed: tuple[PlannedMemory, ...]
    rewritten: tuple[PlannedMemory, ...]
    links: LinkChanges

    @property
    def differs(self) -> bool:
        """Whether the two delete or supersede other memories, or those of another store."""
        otherwise = (self.added, self.removed, self.rewritten, *self.links)
        return any(otherwise) or self.before.store != self.after.store

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        listed = {"added": self.added, "removed": self.removed, "rewritten": self.rewritten}
        return {
            "before": self.before.digest,
            "after": self.after.digest,
            "differs": self.differs,
            **{name: [each._asdict() for each in memories] for name, memories in listed.items()},
            "supersedes": {
                "added": [each._asdict() for each in self.links.added],
                "removed": [each._asdict() for each in self.links.removed],
                "rewritten": [
                    {"before": first._asdict(), "after": second._asdict()}
                    for first, second in self.links.rewritten
                ],
            },
        }

    def sheet(self) -> Sheet:
        """Return what is printed."""
        title = f"plan {self.before.digest[:12]} -> plan {self.after.digest[:12]}"
        facts = list(_changed("store", self.before.store, self.after.store))
        facts += _changed("policy", in_words(self.before.policy), in_words(self.after.policy))
        facts += _changed("made", minute(self.before.made_at), minute(self.after.made_at))
        facts += _changed("tokens", self.before.token_rule, self.after.token_rule)
        facts += _changed("memories", _size(self.before.total), _size(self.after.total))
        facts += _changed("deletes", _size(self.before.deletes), _size(self.after.deletes))
        facts += _changed("supersedes", _size(self.before.superseded), _size(self.after.superseded))
        facts += _changed("keeps", _size(self.before.keeps), _size(self.after.keeps))
        if not self.differs:
            done = "superseded" if self.after.supersedes else "deleted"
            facts.append((done, "the same memories, for the same reasons"))
        links = self.links
        tables = [
            _table("only the second deletes", self.added, listing_of),
            _table("only the first deletes", self.removed, listing_of),
            _table("both delete, changed or for another reason", self.rewritten, listing_of),
            _table("only the second supersedes", links.added, links_listing_of),
            _table("only the first supersedes", links.removed, links_listing_of),
            _table("both supersede, changed or for another reason", links.rewritten, _relinked),
        ]
        return Sheet(title, facts, [table for table in tables if table.rows])


def difference_of(before: Plan, after: Plan) -> Difference:
    """Return what the second of two plans does otherwise than the first.

    Memories are the same when they have the same key and id.
    """
    added, removed, both = _compared(before.memories, after.memories)
    links_added, links_removed, linked = _compared(before.supersedes, after.supersedes)
    return Difference(
        before,
        after,
        added,
        removed,
        tuple(
            second
            for first, second in both
            if (first.fingerprint, first.reason) != (second.fingerprint, second.reason)
        ),
        LinkChanges(
            links_added,
            links_removed,
            tuple(pair for pair in linked if _link(pair[0]) != _link(pair[1])),
        ),
    )


def _compared(
    first: Iterable[Planned], second: Iterable[Planned]
) -> tuple[tuple[Planned, ...], tuple[Planned, ...], Iterator[tuple[Planned, Planned]]]:
    """Return what only the second has, what only the first has, and what both have."""
    before = {(each.key, each.memory_id): each for each in first}
    after = {(each.key, each.memory_id): each for each in second}
    return (
        tuple(each for name, each in after.items() if name not in before),
        tuple(each for name, each in before.items() if name not in after),
        ((before[name], each) for name, each in after.items() if name in before),
    )


def _link(link: PlannedLink) -> tuple[object, ...]:
    """Return what makes a link of one memory another."""
    return (link.fingerprint, link.reason, link.by_key, link.by_memory_id, link.by_fingerprint)


def _changed(name: str, before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield a fact where it is not the same before and after."""
    if before != after:
        yield name, f"{before} -> {after}"


def _size(size: Size) -> str:
    return sized(size)


def _table(
    heading: str,
    listed: Sequence[Row],
    listing: Callable[[Sequence[Row]], tuple[tuple[str, ...], list[tuple[Cell, ...]]]],
) -> Table:
    hidden = len(listed) - LISTED
    return Table(
        f"{heading}: {len(listed):,}",
        *listing(listed[:LISTED]),
        f"and {hidden:,} more" if hidden > 0 else "",
    )


def _relinked(
    pairs: Sequence[tuple[PlannedLink, PlannedLink]],
) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    """Return links of two plans as columns and rows for people."""
    header = ("tokens", "reason", "id", "first by", "then by", "title")
    return header, [
        (now.tokens, now.reason, now.memory_id, then.by_memory_id, now.by_memory_id, now.title)
        for then, now in pairs
    ]
