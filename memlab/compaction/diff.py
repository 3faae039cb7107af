"""What changed between two plans, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

from memlab.compaction import plans
from memlab.compaction.plans import Plan, PlannedLink
from memlab.compaction.wire import in_words, minute, sized
from memlab.text import DisplayMixin, TextPage

_FACTS: Final[dict[str, Callable[[Plan], str]]] = {
    "store": attrgetter("store"),
    "policy": lambda plan: in_words(plan.policy),
    "made": lambda plan: minute(plan.made_at),
    "tokens": attrgetter("token_rule"),
    "memories": lambda plan: sized(plan.total),
    plans.DELETES: lambda plan: sized(plan.deletes),
    plans.SUPERSEDES: lambda plan: sized(plan.superseded),
    plans.RETIRES: lambda plan: sized(plan.labelled(plans.RETIRES)),
    plans.RETURNS: lambda plan: sized(plan.labelled(plans.RETURNS)),
    "keeps": lambda plan: sized(plan.keeps),
}
"""What is told of two plans where it is not the same."""
_OF_A_LINK: Final = ("by_key", "by_memory_id", "by_fingerprint")


class Changes(NamedTuple):
    """Memories that only one of two plans has, and what each says of those in both."""

    added: list[Any]
    removed: list[Any]
    rewritten: list[tuple[Any, Any]]

    def to_dict(self) -> dict[str, list[Any]]:
        """Return all of it as JSON values; of a link what it was, too."""
        return {
            "added": [each._asdict() for each in self.added],
            "removed": [each._asdict() for each in self.removed],
            "rewritten": [
                {"before": before._asdict(), "after": after._asdict()}
                if isinstance(after, PlannedLink)
                else after._asdict()
                for before, after in self.rewritten
            ],
        }


@dataclass(frozen=True, repr=False)
class Difference(DisplayMixin):
    """What the second of two plans does otherwise, by what it does to memories."""

    before: Plan
    after: Plan
    changes: Mapping[str, Changes]

    @property
    def differs(self) -> bool:
        """Whether the two change other memories, or otherwise, or those of another store."""
        changed = any(any(each) for each in self.changes.values())
        return changed or self.before.store != self.after.store

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values; what a plan deletes stands at the top."""
        found = {fate: changes.to_dict() for fate, changes in self.changes.items()}
        return {
            "before": self.before.digest,
            "after": self.after.digest,
            "differs": self.differs,
            **found.pop(plans.DELETES),
            **found,
        }

    def sheet(self) -> TextPage:
        """Return what is printed."""
        title = f"plan {self.before.digest[:12]} -> plan {self.after.digest[:12]}"
        said = ((name, of(self.before), of(self.after)) for name, of in _FACTS.items())
        facts = [(name, f"{first} -> {then}") for name, first, then in said if first != then]
        if not self.differs:
            done = "superseded" if self.after.supersedes else "deleted"
            done = "retired or returned" if self.after.moves else done
            facts.append((done, "the same memories, for the same reasons"))
        tables = []
        for fate, (added, removed, rewritten) in self.changes.items():
            told = {
                f"only the second {fate}": added,
                f"only the first {fate}": removed,
                f"both {fate[:-1]}, changed or for another reason": [
                    after._replace(by_memory_id=f"{before.by_memory_id} -> {after.by_memory_id}")
                    if isinstance(after, PlannedLink)
                    else after
                    for before, after in rewritten
                ],
            }
            listed = ((f"{words}: {len(m):,}", m) for words, m in told.items() if m)
            tables += [plans.table_of(*each).first(plans.LISTED) for each in listed]
        return TextPage(title, facts, tables)


def difference_of(before: Plan, after: Plan) -> Difference:
    """Return what the second of two plans does otherwise; memories are the same by key and id."""
    changes = {}
    for fate, first in before.memories_by_action.items():
        more = _OF_A_LINK if fate == plans.SUPERSEDES else ()
        said = attrgetter("fingerprint", "reason", *more)
        was = {(each.key, each.memory_id): each for each in first}
        now = {(each.key, each.memory_id): each for each in after.memories_by_action[fate]}
        both = [(was[name], each) for name, each in now.items() if name in was]
        changes[fate] = Changes(
            [each for name, each in now.items() if name not in was],
            [each for name, each in was.items() if name not in now],
            [pair for pair in both if said(pair[0]) != said(pair[1])],
        )
    return Difference(before, after, changes)
