"""Difference between two plans."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

from memlab.compaction import plans
from memlab.compaction.plans import Plan, PlannedLink
from memlab.compaction.wire import minute_in_words, policy_in_words, size_in_words
from memlab.sources.readers import Key
from memlab.text import DisplayMixin, Table, TextPage

_FACT_FUNCTIONS: Final[dict[str, Callable[[Plan], str]]] = {
    "store": attrgetter("store"),
    "policy": lambda plan: policy_in_words(plan.policy),
    "made": lambda plan: minute_in_words(plan.made_at),
    "tokens": attrgetter("token_rule"),
    "memories": lambda plan: size_in_words(plan.total),
    plans.DELETES: lambda plan: size_in_words(plan.deletes),
    plans.SUPERSEDES: lambda plan: size_in_words(plan.superseded),
    plans.RETIRES: lambda plan: size_in_words(plan.labelled(plans.RETIRES)),
    plans.RETURNS: lambda plan: size_in_words(plan.labelled(plans.RETURNS)),
    "keeps": lambda plan: size_in_words(plan.keeps),
}
"""Function for each fact of a plan. A fact is printed if it differs."""
_LINK_FIELDS: Final = ("by_key", "by_memory_id", "by_fingerprint")
"""Fields of a link that are compared, besides those of every memory."""


class Changes(NamedTuple):
    """Difference of two plans for one action.

    Attributes
    ----------
    added, removed : list
        The memories that only the second plan names, and those that only the first plan names.
    rewritten : list of tuple
        Memories in both plans whose reason or fingerprint differs: before and after.
    """

    added: list[Any]
    removed: list[Any]
    rewritten: list[tuple[Any, Any]]

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the changes as JSON values. A rewritten link has the fields before and after."""
        rewritten = []
        for before, after in self.rewritten:
            fields = after._asdict()
            if isinstance(after, PlannedLink):
                fields = {"before": before._asdict(), "after": fields}
            rewritten.append(fields)
        return {
            "added": [memory._asdict() for memory in self.added],
            "removed": [memory._asdict() for memory in self.removed],
            "rewritten": rewritten,
        }


@dataclass(frozen=True, repr=False)
class Difference(DisplayMixin):
    """Difference of a second plan from a first one.

    Attributes
    ----------
    before, after : Plan
        The plans.
    changes : mapping of str to Changes
        The changes by action.
    """

    before: Plan
    after: Plan
    changes: Mapping[str, Changes]

    @property
    def differs(self) -> bool:
        """Whether the plans change different stores or memories, or change them differently."""
        if self.before.store != self.after.store:
            return True
        return any(
            changes.added or changes.removed or changes.rewritten
            for changes in self.changes.values()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as JSON values, with the changes of deletions at the top level."""
        changes_by_action = {action: changes.to_dict() for action, changes in self.changes.items()}
        changes_of_deletions = changes_by_action.pop(plans.DELETES)
        return {
            "before": self.before.digest,
            "after": self.after.digest,
            "differs": self.differs,
            **changes_of_deletions,
            **changes_by_action,
        }

    def sheet(self) -> TextPage:
        """Return the printed page."""
        title = f"plan {self.before.digest[:12]} -> plan {self.after.digest[:12]}"
        facts = []
        for name, fact_of in _FACT_FUNCTIONS.items():
            before = fact_of(self.before)
            after = fact_of(self.after)
            if before != after:
                facts.append((name, f"{before} -> {after}"))
        if not self.differs:
            participle = "deleted"
            if self.after.moves:
                participle = "retired or returned"
            elif self.after.supersedes:
                participle = "superseded"
            facts.append((participle, "the same memories, for the same reasons"))
        tables = []
        for action, changes in self.changes.items():
            tables += _tables_of(action, changes)
        return TextPage(title, facts, tables)


def _tables_of(action: str, changes: Changes) -> list[Table]:
    """Return the tables of the changes for one action, without empty ones."""
    rewritten = [_rewritten_row(before, after) for before, after in changes.rewritten]
    plural_verb = action.removesuffix("s")
    memories_by_heading = {
        f"only the second {action}": changes.added,
        f"only the first {action}": changes.removed,
        f"both {plural_verb}, changed or for another reason": rewritten,
    }
    tables = []
    for heading, memories in memories_by_heading.items():
        if memories:
            table = plans.table_of(f"{heading}: {len(memories):,}", memories)
            tables.append(table.first(plans.MAX_LISTED))
    return tables


def _rewritten_row(before: Any, after: Any) -> Any:
    """Return a memory that differs as a table shows it. A link has both superseding memories."""
    if isinstance(after, PlannedLink):
        return after._replace(by_memory_id=f"{before.by_memory_id} -> {after.by_memory_id}")
    return after


def difference_of(before: Plan, after: Plan) -> Difference:
    """Return the difference of a second plan from a first one.

    A memory is the same in both plans if its key and its id are equal.
    """
    changes = {}
    for action, memories in before.memories_by_action.items():
        link_fields = _LINK_FIELDS if action == plans.SUPERSEDES else ()
        compared_fields = attrgetter("fingerprint", "reason", *link_fields)
        first = _by_key_and_id(memories)
        second = _by_key_and_id(after.memories_by_action[action])
        in_both = [(first[name], second[name]) for name in second if name in first]
        rewritten = [
            (earlier, later)
            for earlier, later in in_both
            if compared_fields(earlier) != compared_fields(later)
        ]
        changes[action] = Changes(
            added=[memory for name, memory in second.items() if name not in first],
            removed=[memory for name, memory in first.items() if name not in second],
            rewritten=rewritten,
        )
    return Difference(before=before, after=after, changes=changes)


def _by_key_and_id(memories: Iterable[Any]) -> dict[tuple[Key, str], Any]:
    """Return memories of a plan by their key and id."""
    return {(memory.key, memory.memory_id): memory for memory in memories}
