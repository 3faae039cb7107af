"""What a deletion would do, and what it did, as data. Nothing here opens a store or has a clock."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from memlab.clock import moment_of
from memlab.columns import REACHED, UNLISTED
from memlab.compaction import wire
from memlab.errors import PlanError
from memlab.items import Size
from memlab.sources.base import LEAST_PLACE_OF_TIME
from memlab.sources.opening import start_words
from memlab.store.archive.entries import PLANNED_TITLE, SHORTENED, PlanText
from memlab.store.archive.worktree import git_words
from memlab.store.selection import TriggerEffect
from memlab.text import DisplayMixin, Table, TextPage, command, counted

TITLE: Final = PLANNED_TITLE
"""Characters of a title that a plan keeps for its reader."""

LOAD_BEARING: Final = "load-bearing"
PRUNABLE: Final = "prunable"
SUPERSEDED: Final = "superseded"
RETIRED: Final = "retired"
DELETES: Final = "deletes"
SUPERSEDES: Final = "supersedes"
RETIRES: Final = "retires"
RETURNS: Final = "returns"
_NOT_LOADED: Final = {SUPERSEDED, RETIRED, RETURNS, REACHED, UNLISTED}

NEEDED: Final = "needed"
"""Why a retired memory returns that was read or referred to since."""


class PlannedMemory(NamedTuple):
    """A memory that a plan deletes, retires or returns."""

    key: int | str
    position: int
    memory_id: str
    kind: str
    title: str
    reason: str
    tokens: int
    created_at: str
    fingerprint: str


class KeptMemory(NamedTuple):
    """A prunable memory that a plan keeps, and on which it rests."""

    key: int | str
    memory_id: str
    fingerprint: str


class Expiring(NamedTuple):
    """When the own time of a memory that a plan decided on will have passed."""

    key: int | str
    expires_at: str


class PlannedLink(NamedTuple):
    """A load-bearing memory for which a plan lets another stand; it stays in the store."""

    key: int | str
    position: int
    memory_id: str
    kind: str
    title: str
    reason: str
    tokens: int
    fingerprint: str
    by_key: int | str
    by_memory_id: str
    by_fingerprint: str


class PlannedEntries(NamedTuple):
    """What an index says of a memory that a plan retires or returns, as its source writes it."""

    key: int | str
    said: str


class Group(NamedTuple):
    """Memories that share what happens to them and why; the label says so where they stay."""

    deleted: bool
    label: str
    kind: str
    reason: str
    memories: int
    tokens: int

    @property
    def fate(self) -> str:
        """What happens to them."""
        if self.deleted:
            return DELETES
        return self.label if self.label in (RETIRES, RETURNS) else "keeps"


RowsOf = Callable[[Mapping[str, Any]], list[dict[str, Any]] | None]
"""Takes a plan's text, read as JSON; returns the memories that it deletes where others say them."""


def _no_rows(text: Mapping[str, Any]) -> None:
    """Return None: the text of a plan says all of it."""


LISTED: Final = 10
"""How many memories a printed plan lists; the others are counted."""

_COLUMNS: Final = {
    "position": "position",
    "created_at": "created",
    "tokens": "tokens",
    "reason": "reason",
    "memory_id": "id",
    "by_memory_id": "superseded by",
    "title": "title",
}

_LAST_GOES: Final = (
    "whole until something is written: that takes the place of the newest, which goes"
)


@dataclass(frozen=True, repr=False)
class Plan(DisplayMixin):
    """What a policy would delete from a store, retire or supersede. Printing it is the dry run.

    A plan deletes, supersedes, or retires and returns, and does one of these alone. Memories are in
    order of position.

    Parameters
    ----------
    store : str
        The store it was made from: an absolute path, or a URL.
    made_at : datetime
        The moment of the decision, with a time zone.
    policy : dict
        The policy's name under ``"policy"`` and its settings, as JSON values.
    token_rule : str
        How tokens were counted.
    groups : tuple of Group
        Every memory of the store is counted in exactly one of them.
    memories : tuple of PlannedMemory
        What it deletes.
    kept : tuple of KeptMemory
        The prunable memories that it keeps.
    supersedes : tuple of PlannedLink
        The load-bearing memories for which it lets others stand.
    retires : tuple of PlannedMemory
        What it takes out of the boot context and leaves in the store.
    returns : tuple of PlannedMemory
        The retired memories that it lets be loaded again.
    entries : tuple of PlannedEntries
        Where memories are lines of an index: what it says of these, to take the plan back exactly.
    written : tuple of TriggerEffect
        What triggers do to other tables of the store's file when the memories are deleted.
    expires : tuple of Expiring
        When memories end by themselves that it deletes or keeps: one that has is no reason to stop.
    last_goes : bool
        Whether the memory at the highest position goes, whose place the next one written takes.
    added : dict
        What a plan of a newer format says beside this, by key; the digest covers it.
    """

    store: str
    made_at: datetime
    policy: Mapping[str, Any]
    token_rule: str
    groups: tuple[Group, ...]
    memories: tuple[PlannedMemory, ...]
    kept: tuple[KeptMemory, ...]
    supersedes: tuple[PlannedLink, ...] = ()
    retires: tuple[PlannedMemory, ...] = ()
    returns: tuple[PlannedMemory, ...] = ()
    entries: tuple[PlannedEntries, ...] = ()
    written: tuple[TriggerEffect, ...] = ()
    expires: tuple[Expiring, ...] = ()
    last_goes: bool = False
    added: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything in the plan, 64 hexadecimal digits: the plan's name."""
        hashed = hashlib.sha256()
        for piece in self._canonical():
            hashed.update(piece.encode())
        return hashed.hexdigest()

    @property
    def total(self) -> Size:
        """All memories of the store."""
        return _total(self.groups)

    @property
    def in_reach(self) -> Size:
        """All memories of the store but those that no index names, which no plan takes."""
        return _total(group for group in self.groups if group.label != UNLISTED)

    @property
    def deletes(self) -> Size:
        """What it deletes."""
        return _total(group for group in self.groups if group.deleted)

    @property
    def keeps(self) -> Size:
        """What it keeps."""
        return _total(group for group in self.groups if not group.deleted)

    @property
    def boot_before(self) -> Size:
        """What an agent loads at start now, or recalls from: the active memories."""
        return _total(group for group in self.groups if group.label not in _NOT_LOADED)

    @property
    def boot_after(self) -> Size:
        """What that would be afterwards."""
        away = {SUPERSEDED, RETIRED, RETIRES, REACHED, UNLISTED}
        left = _total(g for g in self.groups if g.label not in away and not g.deleted)
        return Size(*(size - less for size, less in zip(left, self.superseded, strict=True)))

    @property
    def superseded(self) -> Size:
        """What it takes out of the boot context and leaves in the store."""
        return Size(len(self.supersedes), sum(link.tokens for link in self.supersedes))

    @property
    def moves(self) -> tuple[PlannedMemory, ...]:
        """What it retires, and what it returns."""
        return self.retires + self.returns

    @property
    def memories_by_action(self) -> dict[str, tuple[PlannedMemory | PlannedLink, ...]]:
        """What it changes, by what it does to them."""
        return {
            DELETES: self.memories,
            SUPERSEDES: self.supersedes,
            RETIRES: self.retires,
            RETURNS: self.returns,
        }

    @property
    def links(self) -> dict[int | str, str | None]:
        """By key, the id of what stands for a memory afterwards: a retired one for itself."""
        links: dict[int | str, str | None] = {m.key: m.by_memory_id for m in self.supersedes}
        links |= {m.key: m.memory_id for m in self.retires}
        return links | {m.key: None for m in self.returns}

    def labelled(self, label: str) -> Size:
        """Return the memories that its groups label so."""
        return _total(group for group in self.groups if group.label == label)

    def expired(self, now: datetime) -> frozenset[int | str]:
        """Return the keys of memories that it decided on whose own time has passed."""
        return frozenset(e.key for e in self.expires if moment_of(e.expires_at) <= now)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it to carry out."""
        return not any(self.memories_by_action.values())

    @property
    def removes_all_prunable(self) -> bool:
        """Whether it deletes or retires prunable memories and leaves none of them loaded."""
        prunable = [group for group in self.groups if group.label == PRUNABLE]
        takes = bool(self.retires) or any(group.deleted for group in prunable)
        return takes and not self.returns and all(group.deleted for group in prunable)

    @property
    def asks_for_none(self) -> bool:
        """Whether its policy is a cap of none, which asks for just that."""
        return any(0 in (s.get("keep"), s.get("max_tokens")) for s in _steps_of(self.policy))

    @property
    def floor(self) -> Size:
        """The active load-bearing memories: no plan goes below them."""
        return self.labelled(LOAD_BEARING)

    def to_json(self, *, compact: bool = False) -> str:
        """Return the plan as text that diffs well: one line a memory, in order of position.

        Characters outside ASCII are escaped, so that a memory's id or title cannot steer the
        terminal of whoever reviews the file. `compact` gives the one line that is digested.
        """
        if compact:
            text = "".join(self._canonical())
            vars(self).setdefault("digest", hashlib.sha256(text.encode()).hexdigest())
            begin = {"digest": self.digest, **wire.header(MARKER)}
            return f"{wire.canonical(begin)[:-1]},{text[1:]}"
        return "".join(self.json_pieces())

    def json_pieces(self) -> Iterator[str]:
        """Yield what :meth:`to_json` returns, some memories at a time."""
        said = {**wire.header(MARKER), "digest": self.digest, **self._said()}
        ordered = dict(sorted(said.items(), key=lambda item: isinstance(item[1], tuple)))
        return wire.iter_json(ordered, KEYS, in_lines=True)

    def pieces_without_memories(self) -> Iterator[str]:
        """Yield the text of its JSON object without the memories that it deletes."""
        said = {**wire.header(MARKER), "digest": self.digest, **self._said()}
        del said[_MEMORIES]
        return wire.iter_json(dict(sorted(said.items())), KEYS, in_lines=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, rows_of: RowsOf = _no_rows) -> Self:
        """Return the plan that :meth:`to_json` wrote.

        PlanError when the text is not a plan, is one of another format, or was edited.

        Parameters
        ----------
        text : str or bytes
            The text of the plan.
        rows_of : callable
            Takes that text, read as JSON, and returns the memories that the plan deletes where an
            archive has shortened it; None where it is whole.
        """
        content = wire.parsed(text, MARKER)
        with wire.fields_checked("plan"):
            rows = rows_of(content)
            if rows is not None:
                del content[SHORTENED]
                content[_MEMORIES] = rows
            known = wire.fields_in(content, cls, KEYS)
            added = wire.added_fields(content, MARKER, KEYS[cls].values())
            plan = cls(**known, added=added)
            wire.field_of(plan.total._asdict(), "tokens", int)  # a receipt says sums, too
            plan.expired(plan.made_at)
        if plan.digest != content.get("digest"):
            raise PlanError(
                "the plan was edited after it was made: its digest does not fit; make a new plan"
            )
        return plan

    def sheet(self) -> TextPage:
        """Return what is printed."""
        title = f"plan {self.digest[:12]} for {self.store}"
        floor = self.floor
        does = [("deletes", wire.share(self.deletes, self.in_reach))]
        if self.supersedes:
            does = [("supersedes", f"{wire.share(self.superseded, floor)}; it deletes nothing")]
        if self.moves:
            retires = wire.share(self.labelled(RETIRES), self.boot_before)
            returns = f"{wire.sized(self.labelled(RETURNS))}; it deletes nothing"
            does = [(RETIRES, retires), (RETURNS, returns)]
        facts = [
            ("policy", wire.in_words(self.policy)),
            ("made", wire.minute(self.made_at)),
            *does,
            ("floor", wire.sized(floor, "load-bearing memories")),
            (start_words(self.store), wire.change(self.boot_before, self.boot_after)),
            ("tokens", self.token_rule),
        ]
        facts += _out_of_reach(self)
        if self.last_goes:
            facts.append(("restore", _LAST_GOES))
        if self.supersedes:
            costliest = sorted(self.supersedes, key=lambda link: -link.tokens)
            heading = "what it supersedes, the costliest first"
            where = ", all in the plan's supersedes"
            return TextPage(title, facts, [table_of(heading, costliest).first(LISTED, where)])
        tables = []
        for fate in (RETIRES, RETURNS, "keeps") if self.moves else (DELETES, "keeps"):
            rows = [group[1:] for group in self.groups if group.fate == fate]
            tables.append(Table(fate, Group._fields[1:], rows, "" if rows else "nothing"))
        listed = {DELETES: self.memories, RETIRES: self.retires, RETURNS: self.returns}
        tables += [_listing(fate, memories) for fate, memories in listed.items() if memories]
        if self.written:
            tables.append(Table("other tables", ("trigger", "does", "table"), list(self.written)))
        return TextPage(title, facts, tables)

    def warnings(self) -> list[str]:
        """Say so when all goes."""
        if not self.removes_all_prunable or self.asks_for_none:
            return []
        goes = "be retired" if self.retires else "go"
        lines = [f"every prunable memory would {goes}; --apply asks for --all"]
        if any(step.get("max_items") or step.get("max_tokens") for step in _steps_of(self.policy)):
            stay = "load-bearing ones take up room under this policy and stay"
            lines.append(f"{self.floor.memories:,} {stay}; a larger number keeps more")
        return lines

    def _canonical(self) -> Iterator[str]:
        return wire.iter_json(dict(sorted(self._said().items())), KEYS, in_lines=False)

    def _said(self) -> dict[str, Any]:
        """Return what a plan's file says of it: nothing of what is at its default."""
        keys = KEYS[type(self)]
        default = {keys[each.name]: each.default for each in fields(self) if each.name in keys}
        said = wire.to_json_fields(self, KEYS)
        changed = {key: value for key, value in said.items() if value != default[key]}
        return {**changed, **self.added}


@dataclass(frozen=True, repr=False)
class Receipt(DisplayMixin):
    """What applying a plan did.

    Parameters
    ----------
    digest : str
        The plan's.
    store, archive : str
        Where the memories were, and where they are now. The archive is None when there was nothing
        to delete.
    policy, made_at, token_rule
        As in the plan.
    applied_at : datetime
        When it was done.
    deleted, superseded : int
        How many memories went, or are superseded: the plan did one of these alone.
    retired, returned : int
        How many are not loaded any more and stay in the store, or are loaded again.
    boot_before, boot_after : Size
        The boot context as the plan saw it.
    expired : int
        How many the plan would have deleted whose own time had passed before.
    finished : tuple of str
        Digests of earlier plans that had been carried out and were noted as done now: each was
        stopped before its note.
    """

    digest: str
    store: str
    archive: str | None
    policy: Mapping[str, Any]
    made_at: datetime
    applied_at: datetime
    deleted: int
    boot_before: Size
    boot_after: Size
    token_rule: str
    superseded: int = 0
    retired: int = 0
    returned: int = 0
    expired: int = 0
    finished: tuple[str, ...] = ()

    @property
    def undo(self) -> str:
        """The command that takes it back."""
        return command("restore", self.store, self.digest[:12])

    @property
    def done(self) -> list[tuple[str, int]]:
        """What was done to how many memories, in words."""
        if self.retired or self.returned:
            return [("retired", self.retired), ("returned", self.returned)]
        if self.superseded:
            return [("superseded", self.superseded)]
        return [("deleted", self.deleted)]

    def to_json(self) -> str:
        """Return the receipt as one JSON object."""
        said = {**wire.header(_RECEIPT_MARKER), **wire.to_json_fields(self, KEYS)}
        return json.dumps(said, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the receipt that :meth:`to_json` wrote.

        PlanError when the text is not a receipt, or is one of another format.
        """
        content = wire.parsed(text, _RECEIPT_MARKER)
        with wire.fields_checked("receipt"):
            return cls(**wire.fields_in(content, cls, KEYS))

    def sheet(self) -> TextPage:
        """Return what is printed."""
        facts = [("policy", wire.in_words(self.policy)), ("applied", wire.minute(self.applied_at))]
        facts += [(done, counted(count)) for done, count in self.done]
        if self.expired:
            facts.append(("expired", f"{counted(self.expired)} since the plan was made"))
        facts.append((start_words(self.store), wire.change(self.boot_before, self.boot_after)))
        facts.append(("archive", self.archive or "none: there was nothing to delete"))
        if self.archive:
            words, _ = git_words(Path(self.archive))
            if words:
                facts.append(("", words))
            facts.append(("undo", self.undo))
        for digest in self.finished:
            undo = command("restore", self.store, digest[:12])
            what = f"plan {digest[:12]} was carried out earlier and stopped before it was noted"
            facts.append(("finished", f"{what}; undo: {undo}"))
        return TextPage(f"plan {self.digest[:12]} applied to {self.store}", facts)


def _out_of_reach(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield as facts how many memories no plan takes because the index does not name them."""
    if reached := plan.labelled(REACHED).memories:
        yield (
            REACHED,
            f"{counted(reached)} named by a hub alone: kept, with the links to them",
        )
    if unlisted := plan.labelled(UNLISTED).memories:
        yield UNLISTED, f"{counted(unlisted)} that no index names: no cap takes or counts them"


MARKER: Final = "memlab_plan"
_MEMORIES: Final = "memories"
_RECEIPT_MARKER: Final = "memlab_receipt"
PLANNED_MEMORY_KEYS: Final = {
    "key": "key",
    "position": "position",
    "memory_id": "memory_id",
    "kind": "kind",
    "title": "title",
    "reason": "reason",
    "tokens": "tokens",
    "created_at": "created_at",
    "fingerprint": "fingerprint",
}
KEYS: Final[wire.StoredKeys] = {
    Plan: {
        "store": "store",
        "made_at": "made_at",
        "policy": "policy",
        "token_rule": "token_rule",
        "groups": "groups",
        "memories": "memories",
        "kept": "kept",
        "supersedes": "supersedes",
        "retires": "retires",
        "returns": "returns",
        "entries": "entries",
        "written": "written",
        "expires": "expires",
        "last_goes": "last_goes",
    },
    Receipt: {
        "digest": "digest",
        "store": "store",
        "archive": "archive",
        "policy": "policy",
        "made_at": "made_at",
        "applied_at": "applied_at",
        "deleted": "deleted",
        "boot_before": "boot_before",
        "boot_after": "boot_after",
        "token_rule": "token_rule",
        "superseded": "superseded",
        "retired": "retired",
        "returned": "returned",
        "expired": "expired",
        "finished": "finished",
    },
    PlannedMemory: PLANNED_MEMORY_KEYS,
    KeptMemory: {"key": "key", "memory_id": "memory_id", "fingerprint": "fingerprint"},
    Expiring: {"key": "key", "expires_at": "expires_at"},
    PlannedLink: {
        "key": "key",
        "position": "position",
        "memory_id": "memory_id",
        "kind": "kind",
        "title": "title",
        "reason": "reason",
        "tokens": "tokens",
        "fingerprint": "fingerprint",
        "by_key": "by_key",
        "by_memory_id": "by_memory_id",
        "by_fingerprint": "by_fingerprint",
    },
    PlannedEntries: {"key": "key", "said": "said"},
    Group: {
        "deleted": "deleted",
        "label": "label",
        "kind": "kind",
        "reason": "reason",
        "memories": "memories",
        "tokens": "tokens",
    },
    TriggerEffect: {"trigger": "trigger", "does": "does", "table": "table"},
}
"""The keys of plans and receipts: those of format 2, which are never changed."""
_PLANNED: Final = tuple(PLANNED_MEMORY_KEYS[name] for name in PlannedMemory._fields)


def planned_row(memory: PlannedMemory) -> dict[str, Any]:
    """Return what a plan says of a memory that it deletes, by key."""
    return dict(zip(_PLANNED, memory, strict=True))


def text_for_archive(plan: Plan, expired: Collection[int | str]) -> PlanText:
    """Return the text of a plan whose memories are archived, but for those that had expired."""
    absent = {
        place: planned_row(memory)
        for place, memory in enumerate(plan.memories)
        if memory.key in expired
    }
    return PlanText(plan.json_pieces, plan.pieces_without_memories, absent)


def _steps_of(policy: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a policy and those of a pipeline one by one; a file may say anything of them."""
    if isinstance(policy, Mapping):
        yield policy
        inner = policy.get("policies")
        yield from chain.from_iterable(map(_steps_of, inner if isinstance(inner, list) else ()))


def _total(groups: Iterable[Group]) -> Size:
    sizes = [(group.memories, group.tokens) for group in groups]
    return Size(sum(memories for memories, _ in sizes), sum(tokens for _, tokens in sizes))


def _listing(fate: str, memories: Sequence[PlannedMemory]) -> Table:
    """List the oldest and the newest of some memories, and say how many lie between."""
    half = LISTED // 2
    hidden = len(memories) - 2 * half
    if hidden <= 0:
        return table_of(f"what it {fate}, oldest first", memories)
    where = "memories" if fate == DELETES else fate
    listed = table_of(f"oldest and newest that it {fate}", [*memories[:half], *memories[-half:]])
    return listed._replace(remark=f"and {hidden:,} more between them, all in the plan's {where}")


def table_of(heading: str, memories: Sequence[PlannedMemory | PlannedLink]) -> Table:
    """Return memories as a table for people; a position made of a time is left out."""
    names = [name for name in _COLUMNS if name in memories[0]._fields]
    if any(m.position >= LEAST_PLACE_OF_TIME for m in memories):
        names.remove("position")
    day = slice(len("2026-03-01"))
    rows = [
        tuple(getattr(m, n)[day] if n == "created_at" else getattr(m, n) for n in names)
        for m in memories
    ]
    return Table(heading, tuple(_COLUMNS[name] for name in names), rows)
