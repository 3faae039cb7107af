"""What changed between two plans, as data."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from memlab.compaction.planned import PlannedMemory
from memlab.compaction.plans import Plan, listing_of
from memlab.compaction.words import counted, in_words, minute
from memlab.items import Size
from memlab.text import Sheet, Shown, Table

LISTED: Final = 10
"""Memories of a list that are shown."""


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """What the second of two plans does otherwise.

    Parameters
    ----------
    before, after : Plan
        The plans.
    added, removed : tuple of PlannedMemory
        What only the second deletes, and what only the first does.
    rewritten : tuple of PlannedMemory
        What both delete, and what has another content or another reason in the second.
    """

    before: Plan
    after: Plan
    added: tuple[PlannedMemory, ...]
    removed: tuple[PlannedMemory, ...]
    rewritten: tuple[PlannedMemory, ...]

    @property
    def differs(self) -> bool:
        """Whether the two delete or supersede other memories, or those of another store."""
        others = (self.before.store, self.before.supersedes) != (
            self.after.store,
            self.after.supersedes,
        )
        return bool(self.added or self.removed or self.rewritten or others)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        listed = {"added": self.added, "removed": self.removed, "rewritten": self.rewritten}
        return {
            "before": self.before.digest,
            "after": self.after.digest,
            "differs": self.differs,
            **{name: [each._asdict() for each in memories] for name, memories in listed.items()},
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
            facts.append(("deleted", "the same memories, for the same reasons"))
        tables = [
            _table("only the second deletes", self.added),
            _table("only the first deletes", self.removed),
            _table("both delete, changed or for another reason", self.rewritten),
        ]
        return Sheet(title, facts, [table for table in tables if table.rows])


def difference_of(before: Plan, after: Plan) -> Difference:
    """Return what the second of two plans does otherwise than the first.

    Memories are the same when they have the same key and id.

    Parameters
    ----------
    before, after : Plan
        As :func:`memlab.plan` makes them, of one store or of two.
    """
    first, second = _by_name(before.memories), _by_name(after.memories)
    return Difference(
        before,
        after,
        added=tuple(memory for name, memory in second.items() if name not in first),
        removed=tuple(memory for name, memory in first.items() if name not in second),
        rewritten=tuple(
            memory
            for name, memory in second.items()
            if name in first
            and (first[name].fingerprint, first[name].reason) != (memory.fingerprint, memory.reason)
        ),
    )


def _by_name(memories: Iterable[PlannedMemory]) -> dict[tuple[object, str], PlannedMemory]:
    return {(memory.key, memory.memory_id): memory for memory in memories}


def _changed(name: str, before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield a fact where it is not the same before and after."""
    if before != after:
        yield name, f"{before} -> {after}"


def _size(size: Size) -> str:
    return f"{counted(size.memories)}, {size.tokens:,} tokens"


def _table(heading: str, memories: tuple[PlannedMemory, ...]) -> Table:
    hidden = len(memories) - LISTED
    return Table(
        f"{heading}: {len(memories):,}",
        *listing_of(memories[:LISTED]),
        f"and {hidden:,} more" if hidden > 0 else "",
    )
