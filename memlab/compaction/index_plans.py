"""Plans and receipts of a change of an index as data. This module opens no store."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Self

from memlab.compaction import wire
from memlab.compaction.plans import ALL_ARE_SAVED
from memlab.sources.capabilities import (
    ADDS,
    CLEARS,
    MOVES,
    REMOVES,
    RESTORES,
    STAYS,
    IndexLine,
    IndexLoad,
)
from memlab.store.archive.index_versions import digest_of
from memlab.text import Cell, DisplayMixin, Table, TextPage, command, counted

MARKER: Final = "memlab_index_plan"
_RECEIPT_MARKER: Final = "memlab_index_receipt"
_MAX_LISTED: Final = 20
"""Maximum number of lines that a printed plan lists for each action."""

_HEADINGS: Final = {
    RESTORES: "lines that come back",
    REMOVES: "lines whose file is gone, which go",
    ADDS: "lines for files that nothing names",
    CLEARS: "empty headings, which go",
    MOVES: "lines that change places",
    STAYS: "left as they are",
}
"""Heading of the table of each action, in the order of the page."""


@dataclass(frozen=True, repr=False)
class IndexPlan(DisplayMixin):
    r"""A change of the index that a start loads; print it for a dry run.

    Parameters
    ----------
    store : str
        The store that the plan was made from.
    made_at : datetime
        The time of the decision, with a time zone.
    index : str
        File name of the index.
    digest_before : str
        SHA-256 of the index that the plan was made from; empty if there was none. The plan is
        refused if the index has changed since.
    text : str
        The whole index after the change.
    lines : tuple of IndexLine
        The lines that change, each with the reason, and those that stay although something is wrong
        with them.
    loads : tuple of IndexLoad
        The numbers of files that a start loads before the change and after it. Always two.
    added_fields : dict
        The fields of a newer format, by key. The digest covers them.
    order_note : str
        Why the lines were not moved although a start does not load all of them, and what to do;
        empty if a start loads all lines or the plan moves lines. It is not stored with the plan.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> load = IndexLoad(files=1, named=1, loaded=1, tokens=4)
    >>> plan = IndexPlan(
    ...     store="claude:memory",
    ...     made_at=datetime(2026, 3, 1, tzinfo=UTC),
    ...     index="MEMORY.md",
    ...     digest_before="",
    ...     text="- [a](a.md)\n",
    ...     lines=(IndexLine(ADDS, 1, "- [a](a.md)", "a.md", "no line named it"),),
    ...     loads=(load._replace(named=0, loaded=0), load),
    ... )
    >>> plan.effect, IndexPlan.from_json(plan.to_json()) == plan
    ('Changes MEMORY.md: adds 1 line.', True)
    """

    store: str
    made_at: datetime
    index: str
    digest_before: str
    text: str
    lines: tuple[IndexLine, ...]
    loads: tuple[IndexLoad, ...]
    added_fields: Mapping[str, Any] = field(default_factory=dict)
    order_note: str = field(default="", compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether the plan changes nothing."""
        has_no_index = not self.digest_before and not self.text
        return has_no_index or self.digest_after == self.digest_before

    @cached_property
    def digest_after(self) -> str:
        """SHA-256 of the index after the change."""
        return digest_of(self.text.encode())

    @cached_property
    def digest(self) -> str:
        """SHA-256 digest of the plan, by which the archive names it."""
        content = dict(sorted(self._json_fields().items()))
        hashed = hashlib.sha256()
        for piece in wire.iter_json(content, KEYS, in_lines=False):
            hashed.update(piece.encode())
        return hashed.hexdigest()

    @property
    def counts(self) -> dict[str, int]:
        """The number of lines by action."""
        counts = dict.fromkeys(_HEADINGS, 0)
        for line in self.lines:
            # The file of a plan may name unknown actions.
            counts[line.action] = counts.get(line.action, 0) + 1
        return counts

    @property
    def load_before(self) -> IndexLoad:
        """Numbers of memories that a start loads before the change, and their tokens."""
        return self.loads[0]

    @property
    def load_after(self) -> IndexLoad:
        """Numbers of memories that a start loads after the change, and their tokens."""
        return self.loads[1]

    def with_action(self, action: str) -> list[IndexLine]:
        """Return the lines with an action, from top to bottom."""
        return [line for line in self.lines if line.action == action]

    def to_json(self) -> str:
        """Return the plan as one JSON object, with one line of the index on each line."""
        content = {**wire.header(MARKER), "digest": self.digest, **self._json_fields()}
        return "".join(wire.iter_json(content, KEYS, in_lines=True))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Load a plan from the text of :meth:`to_json`.

        Raise PlanError if the text is no such plan, has an unsupported format, or was edited.
        """
        content = wire.parsed(text, MARKER)
        with wire.fields_checked("index plan"):
            known_fields = wire.fields_in(content, cls, KEYS)
            added = wire.added_fields(content, MARKER, KEYS[cls].values())
            plan = cls(**known_fields, added_fields=added)
            if len(plan.loads) != 2:
                raise ValueError(f"loads has {len(plan.loads):,} entries")
        wire.check_digest(content, plan.digest)
        return plan

    @property
    def effect(self) -> str:
        """Effect of the plan, in a sentence."""
        if self.is_empty:
            return f"{self.index} needs no change."
        return f"Changes {self.index}: {actions_in_words(self.counts)}."

    def sheet(self, name: str = "", *, with_digest: bool = True) -> TextPage:
        """Return the printed page.

        Parameters
        ----------
        name : str
            The store as a person named it; by default as the plan names it.
        with_digest : bool
            Name the plan by its digest; see :meth:`Plan.sheet`.
        """
        plan = f"index plan {self.digest[:12]}" if with_digest else "index plan"
        title = f"{plan} for {name or self.store}"
        facts = [("made", wire.minute_in_words(self.made_at)), ("index", self.effect)]
        facts += _load_facts(self.loads)
        if self.order_note:
            facts.append(("order", self.order_note))
        tables = []
        for action, heading in _HEADINGS.items():
            lines = self.with_action(action)
            if lines:
                tables.append(_line_table(heading, lines))
        return TextPage(title, facts, tables)

    def _json_fields(self) -> dict[str, Any]:
        """Return the fields of the plan as JSON values by key."""
        return {**wire.to_json_fields(self, KEYS), **self.added_fields}


@dataclass(frozen=True, repr=False)
class IndexReceipt(DisplayMixin):
    """The record of a change of an index.

    Parameters
    ----------
    digest : str
        The digest of the plan.
    store, archive : str
        The store, and the archive that has the index as it was. The archive is None if there was
        nothing to do.
    index : str
        File name of the index.
    made_at, applied_at : datetime
        When the plan was made and applied, with a time zone.
    adds, removes, restores, moves, clears : int
        The numbers of lines by action, as in the plan.
    loads : tuple of IndexLoad
        The numbers of files that a start loads before the change and after it.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> load = IndexLoad(files=1, named=1, loaded=1, tokens=4)
    >>> moment = datetime(2026, 3, 1, tzinfo=UTC)
    >>> receipt = IndexReceipt(
    ...     digest="0123456789abcdef",
    ...     store="claude:memory",
    ...     archive="memory.archive.db",
    ...     index="MEMORY.md",
    ...     made_at=moment,
    ...     applied_at=moment,
    ...     adds=1,
    ...     removes=0,
    ...     restores=0,
    ...     moves=0,
    ...     clears=0,
    ...     loads=(load._replace(named=0, loaded=0), load),
    ... )
    >>> receipt.undo
    'memlab restore claude:memory 0123456789ab'
    """

    digest: str
    store: str
    archive: str | None
    index: str
    made_at: datetime
    applied_at: datetime
    adds: int
    removes: int
    restores: int
    moves: int
    clears: int
    loads: tuple[IndexLoad, ...]

    @property
    def undo(self) -> str:
        """Command that undoes the plan."""
        return command("restore", self.store, self.digest[:12])

    @property
    def changed_nothing(self) -> bool:
        """Whether the index was right already, so that the archive need not exist."""
        return self.archive is None

    @property
    def counts(self) -> dict[str, int]:
        """The number of lines by action."""
        return {
            RESTORES: self.restores,
            REMOVES: self.removes,
            ADDS: self.adds,
            CLEARS: self.clears,
            MOVES: self.moves,
        }

    def to_json(self) -> str:
        """Return the receipt as one JSON object."""
        content = {**wire.header(_RECEIPT_MARKER), **wire.to_json_fields(self, KEYS)}
        return "".join(wire.iter_json(content, KEYS, in_lines=True))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Load a receipt from the text of :meth:`to_json`.

        Raise PlanError if the text is not such a receipt, or is one of an unsupported format.
        """
        content = wire.parsed(text, _RECEIPT_MARKER)
        with wire.fields_checked("index receipt"):
            return cls(**wire.fields_in(content, cls, KEYS))

    def sheet(self) -> TextPage:
        """Return the printed page."""
        facts = [
            ("applied", wire.minute_in_words(self.applied_at)),
            ("index", f"{self.index}: {actions_in_words(self.counts)}"),
            *_load_facts(self.loads),
            ("archive", self.archive or "none: there was nothing to change"),
        ]
        if self.archive:
            facts.append(("undo", self.undo))
        return TextPage(f"index plan {self.digest[:12]} applied to {self.store}", facts)


def receipt_of_index(plan: IndexPlan, archive: str | None, now: datetime) -> IndexReceipt:
    """Return the receipt of a plan of an index that was applied at the time `now`.

    `archive` is the path of the archive that has the earlier index; None if nothing was changed.
    """
    counts = plan.counts
    return IndexReceipt(
        digest=plan.digest,
        store=plan.store,
        archive=archive,
        index=plan.index,
        made_at=plan.made_at,
        applied_at=now,
        adds=counts[ADDS],
        removes=counts[REMOVES],
        restores=counts[RESTORES],
        moves=counts[MOVES],
        clears=counts[CLEARS],
        loads=plan.loads,
    )


def actions_in_words(counts: Mapping[str, int]) -> str:
    """Return the numbers of changed lines by action as a phrase.

    >>> actions_in_words({"adds": 2, "removes": 1, "moves": 0})
    'adds 2 lines, removes 1 line'
    """
    phrases = []
    for action, count in counts.items():
        if count and action != STAYS:
            noun = "headings" if action == CLEARS else "lines"
            phrases.append(f"{action} {counted(count, noun)}")
    return ", ".join(phrases) or "nothing to change"


def _load_facts(loads: Sequence[IndexLoad]) -> list[tuple[str, str]]:
    """Return as facts the numbers of files that are named and loaded, before and after."""
    before, after = loads
    named = f"{before.named:,} of {counted(before.files)}"
    loaded = f"{before.loaded:,} of them, {counted(before.tokens, 'tokens')}"
    if after != before:
        named += f" -> {after.named:,} of {after.files:,}"
        loaded += f" -> {after.loaded:,}, {counted(after.tokens, 'tokens')}"
    return [("named", named), ("loaded", f"{loaded} as one text")]


def _line_table(heading: str, lines: Sequence[IndexLine]) -> Table:
    """Return lines of a plan as a table, with their number in the heading."""
    rows: list[tuple[Cell, ...]] = [(line.number, line.text, line.reason) for line in lines]
    table = Table(f"{heading}: {len(rows):,}", ("line", "text", "why"), rows)
    return table.first(_MAX_LISTED, ALL_ARE_SAVED)


KEYS: Final[wire.StoredKeys] = {
    IndexPlan: {
        "store": "store",
        "made_at": "made_at",
        "index": "index",
        "digest_before": "digest_before",
        "text": "text",
        "lines": "lines",
        "loads": "loads",
    },
    IndexReceipt: {
        "digest": "digest",
        "store": "store",
        "archive": "archive",
        "index": "index",
        "made_at": "made_at",
        "applied_at": "applied_at",
        "adds": "adds",
        "removes": "removes",
        "restores": "restores",
        "moves": "moves",
        "clears": "clears",
        "loads": "loads",
    },
    IndexLine: {
        "action": "action",
        "number": "number",
        "text": "text",
        "file": "file",
        "reason": "reason",
    },
    IndexLoad: {"files": "files", "named": "named", "loaded": "loaded", "tokens": "tokens"},
}
"""Stored keys of plans and receipts of an index. They must never be changed."""
