"""Plans and receipts as data. This module opens no store and reads no clock."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from memlab.clock import moment_of
from memlab.columns import REACHED, UNLISTED
from memlab.compaction import wire
from memlab.items import Size
from memlab.sources.base import MIN_TIME_POSITION
from memlab.sources.capabilities import MergedStart
from memlab.sources.opening import start_label
from memlab.store.archive.schema import PLANNED_TITLE, SHORTENED, PlanText
from memlab.store.archive.worktree import git_status_of
from memlab.store.selection import TriggerEffect
from memlab.text import DisplayMixin, Table, TextPage, command, counted

MAX_TITLE_CHARS: Final = PLANNED_TITLE
"""Maximum number of characters of a title in a plan."""

LOAD_BEARING: Final = "load-bearing"
PRUNABLE: Final = "prunable"
SUPERSEDED: Final = "superseded"
RETIRED: Final = "retired"
DELETES: Final = "deletes"
SUPERSEDES: Final = "supersedes"
RETIRES: Final = "retires"
RETURNS: Final = "returns"
KEEPS: Final = "keeps"
_LABELS_NOT_LOADED_BEFORE: Final = {SUPERSEDED, RETIRED, RETURNS, REACHED, UNLISTED}
"""Labels of the memories that are not active before the plan."""
_LABELS_NOT_LOADED_AFTER: Final = {SUPERSEDED, RETIRED, RETIRES, REACHED, UNLISTED}
"""Labels of the memories that are not active after the plan."""

MERGES: Final = "merge"
"""Name of the policy of a plan that merges a folder into another one."""
NEEDED: Final = "needed"
"""Reason for returning a retired memory that was read or referred to since it was retired."""


class PlannedMemory(NamedTuple):
    """A memory that a plan deletes, retires or returns.

    Attributes
    ----------
    key : int or str
        The key in the source.
    position : int
        The position in the order of insertion.
    memory_id, kind, title : str
        As in the store; the title is cut to :data:`MAX_TITLE_CHARS`.
    reason : str
        Why the policy decided so.
    tokens : int
        The number of tokens in title and body.
    created_at : str
        The creation time in ISO 8601 format; empty if it is not known.
    fingerprint : str
        The digest of the part of the record that must be unchanged when the plan is applied.
    """

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
    """A prunable memory that a plan keeps. It must be unchanged when the plan is applied."""

    key: int | str
    memory_id: str
    fingerprint: str


class ExpiryTime(NamedTuple):
    """Expiry time of a memory that a plan decided on."""

    key: int | str
    expires_at: str


class PlannedLink(NamedTuple):
    """A load-bearing memory that a plan supersedes by another one. It stays in the store.

    Attributes
    ----------
    key, position, memory_id, kind, title, reason, tokens, fingerprint
        As in :class:`PlannedMemory`.
    by_key, by_memory_id, by_fingerprint
        The key, the id and the fingerprint of the memory that supersedes it.
    """

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


class PlannedIndexEntries(NamedTuple):
    """Index entries of a memory that a plan retires or returns, in the form of its source."""

    key: int | str
    index_entries: str


class PlannedCopy(NamedTuple):
    """A memory that leaves its folder, and the equal one in the folder that it is merged into.

    Attributes
    ----------
    key, other_key : int or str
        The keys of both.
    content : str
        The digest of their content.
    is_copied : bool
        Whether it is copied; otherwise the other folder has it already.
    """

    key: int | str
    other_key: int | str
    content: str
    is_copied: bool


class UnmergedMemory(NamedTuple):
    """A memory that stays in its folder although it is merged, and the reason."""

    key: int | str
    reason: str


class Group(NamedTuple):
    """Size of the memories with the same action, label, kind and reason.

    Attributes
    ----------
    deleted : bool
        Whether the plan deletes them.
    label : str
        Their label before the plan; "retires" or "returns" for those that it retires or returns.
    kind, reason : str
        As in :class:`PlannedMemory`.
    memories, tokens : int
        The numbers of memories and of their tokens.
    """

    deleted: bool
    label: str
    kind: str
    reason: str
    memories: int
    tokens: int

    @property
    def action(self) -> str:
        """Action of the plan on these memories: "deletes", "retires", "returns" or "keeps"."""
        if self.deleted:
            return DELETES
        if self.label in (RETIRES, RETURNS):
            return self.label
        return KEEPS


class StartChange(NamedTuple):
    """Sizes of a start before and after a plan, for a store with an index.

    The tokens include the text of the index that belongs to no memory.

    Attributes
    ----------
    before, after : Size
        The memories that a start loads before and after the plan.
    floor : Size
        The load-bearing memories that a start loads before the plan.

    Examples
    --------
    >>> StartChange(Size(196, 4_913), Size(118, 3_003)).after.tokens
    3003
    """

    before: Size
    after: Size
    floor: Size = Size(0, 0)


RowsOf = Callable[[Mapping[str, Any]], list[dict[str, Any]] | None]
"""Function that returns the memories that a plan deletes if an archive keeps them apart from it.

It takes the parsed JSON of the plan. It returns None if the JSON itself has the memories."""


def _no_archived_rows(text: Mapping[str, Any]) -> None:
    """Return None: the text of the plan is complete."""


_A_START: Final = "a start"
"""Name of the fact with the sizes of a start before and after a plan."""
_IN_THE_INDEX: Final = "in the index"
"""Name of the fact with the sizes of all memories that an index names before and after a plan."""
_EFFECT_SUBJECTS: Final = {
    _A_START: "a start goes",
    _IN_THE_INDEX: "the memories in the index go",
}
"""Subject and verb of the clause on the tokens before and after, by the name of the fact.

:func:`memlab.sources.opening.start_label` returns that name for a store."""

MAX_LISTED: Final = 10
"""Maximum number of memories that a printed plan lists. The others are counted."""

_COLUMNS: Final = {
    "position": "position",
    "created_at": "created",
    "tokens": "tokens",
    "reason": "reason",
    "memory_id": "id",
    "by_memory_id": "superseded by",
    "title": "title",
}
"""Heading of each column of a printed table, by the field of a memory."""
_DATE_CHARS: Final = len("2026-03-01")

_NEWEST_IS_DELETED: Final = (
    "exact until the agent writes again: the newest memory goes, and the next one written takes "
    "its position"
)
ALL_ARE_SAVED: Final = "; --save-plan FILE, or plan.to_json(), lists them all"
"""End of the remark below a table that does not list all memories."""


@dataclass(frozen=True, repr=False)
class Plan(DisplayMixin):
    """The memories of a store that a policy deletes, retires or supersedes; print it for a dry run.

    A plan either deletes, or supersedes, or retires and returns memories. Memories are in order of
    position.

    Parameters
    ----------
    store : str
        The store that the plan was made from: an absolute path or a URL.
    made_at : datetime
        The time of the decision, with a time zone.
    policy : dict
        The name of the policy under ``"policy"``, and its settings, as JSON values.
    token_rule : str
        The rule by which tokens were counted.
    groups : tuple of Group
        The counts of all memories of the store. Each memory is counted in exactly one group.
    memories : tuple of PlannedMemory
        The memories to delete.
    kept : tuple of KeptMemory
        The prunable memories to keep.
    supersedes : tuple of PlannedLink
        The load-bearing memories to supersede, each with the memory that supersedes it.
    retires : tuple of PlannedMemory
        The memories to retire: they stay in the store, and no start loads them.
    returns : tuple of PlannedMemory
        The retired memories to load again.
    entries : tuple of PlannedIndexEntries
        The index entries of the memories to retire or return, if the store has an index. They are
        needed to undo the plan exactly.
    trigger_effects : tuple of TriggerEffect
        The effects of triggers on other tables of the store's file when the memories are deleted.
    expires : tuple of ExpiryTime
        The expiry times of memories that the plan deletes or keeps. A memory that is missing
        because it has expired does not make the plan stale.
    deletes_newest : bool
        Whether the memory at the highest position is deleted. The next memory that is written
        takes its position.
    copies : tuple of PlannedCopy
        If the folder is merged into another one, the equal memory there of each memory to delete.
    not_merged : tuple of UnmergedMemory
        If the folder is merged into another one, the memories that stay.
    added : dict
        The fields of a newer format, by key. The digest covers them.
    start_there : MergedStart or None
        If the folder is merged into another one, what a start there would load afterwards. It was
        read when the plan was made and is not stored with it.
    start : StartChange or None
        What a start loads before and after the plan, for a store with an index. It was read when
        the plan was made and is not stored with it.
    is_retirement : bool
        Whether the plan was made to retire memories, even if it retires none. It is not stored with
        the plan.

    Examples
    --------
    >>> import memlab
    >>> plan = memlab.plan(memlab.store_path("looked_up"), memlab.KeepRecent(50))
    >>> len(plan.memories) == plan.deletes.memories
    True
    >>> memlab.Plan.from_json(plan.to_json()).digest == plan.digest
    True
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
    entries: tuple[PlannedIndexEntries, ...] = ()
    trigger_effects: tuple[TriggerEffect, ...] = ()
    expires: tuple[ExpiryTime, ...] = ()
    deletes_newest: bool = False
    copies: tuple[PlannedCopy, ...] = ()
    not_merged: tuple[UnmergedMemory, ...] = ()
    added: Mapping[str, Any] = field(default_factory=dict)
    start_there: MergedStart | None = field(default=None, compare=False)
    start: StartChange | None = field(default=None, compare=False)
    is_retirement: bool = field(default=False, compare=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 digest of the whole plan, 64 hexadecimal digits, by which it is named."""
        hashed = hashlib.sha256()
        for piece in self._canonical_pieces():
            hashed.update(piece.encode())
        return hashed.hexdigest()

    @property
    def merges(self) -> bool:
        """Whether the plan merges its folder into another one."""
        return self.policy.get("policy") == MERGES

    @property
    def into(self) -> str:
        """The folder that the memories are merged into; empty for a plan that merges nothing."""
        if not self.merges:
            return ""
        return str(self.policy.get("into", ""))

    @property
    def copied(self) -> Size:
        """Size of the memories that are copied into another folder."""
        keys = {copy.key for copy in self.copies if copy.is_copied}
        tokens = sum(memory.tokens for memory in self.memories if memory.key in keys)
        return Size(memories=len(keys), tokens=tokens)

    @property
    def total(self) -> Size:
        """Size of all memories of the store."""
        return _total(self.groups)

    @property
    def total_without_unlisted(self) -> Size:
        """Size of all memories of the store except unlisted ones, which no policy deletes."""
        return _total(group for group in self.groups if group.label != UNLISTED)

    @property
    def deletes(self) -> Size:
        """Size of the memories to delete."""
        return _total(group for group in self.groups if group.deleted)

    @property
    def keeps(self) -> Size:
        """Size of the memories to keep."""
        return _total(group for group in self.groups if not group.deleted)

    @property
    def boot_before(self) -> Size:
        """Size of the active memories before the plan: those loaded at start, or recalled from."""
        return _total(
            group for group in self.groups if group.label not in _LABELS_NOT_LOADED_BEFORE
        )

    @property
    def boot_after(self) -> Size:
        """Size of the active memories after the plan."""
        loaded = _total(
            group
            for group in self.groups
            if group.label not in _LABELS_NOT_LOADED_AFTER and not group.deleted
        )
        # The groups count a memory that the plan supersedes as load-bearing, as it was before.
        return Size(
            memories=loaded.memories - self.superseded.memories,
            tokens=loaded.tokens - self.superseded.tokens,
        )

    @property
    def superseded(self) -> Size:
        """Size of the memories to supersede: they stay in the store, and no start loads them."""
        return Size(
            memories=len(self.supersedes), tokens=sum(link.tokens for link in self.supersedes)
        )

    @property
    def moves(self) -> tuple[PlannedMemory, ...]:
        """Memories to retire, followed by memories to return."""
        return self.retires + self.returns

    @property
    def memories_by_action(self) -> dict[str, tuple[PlannedMemory | PlannedLink, ...]]:
        """Memories to change, by action: deletes, supersedes, retires and returns."""
        return {
            DELETES: self.memories,
            SUPERSEDES: self.supersedes,
            RETIRES: self.retires,
            RETURNS: self.returns,
        }

    @property
    def links(self) -> dict[int | str, str | None]:
        """Id of the superseding memory after the plan, by key of the superseded one.

        A retired memory is superseded by itself. A returned memory is superseded by none.
        """
        links: dict[int | str, str | None] = {}
        for link in self.supersedes:
            links[link.key] = link.by_memory_id
        for memory in self.retires:
            links[memory.key] = memory.memory_id
        for memory in self.returns:
            links[memory.key] = None
        return links

    def labelled(self, label: str) -> Size:
        """Return the size of the memories with a label."""
        return _total(group for group in self.groups if group.label == label)

    def expired_keys(self, now: datetime) -> frozenset[int | str]:
        """Return the keys of the memories of this plan that have expired by a given time."""
        return frozenset(
            expiring.key for expiring in self.expires if moment_of(expiring.expires_at) <= now
        )

    @property
    def is_empty(self) -> bool:
        """Whether the plan changes nothing."""
        return not any(self.memories_by_action.values())

    @property
    def removes_all_prunable(self) -> bool:
        """Whether the plan removes prunable memories and leaves none of them loaded."""
        prunable = [group for group in self.groups if group.label == PRUNABLE]
        removes_some = bool(self.retires) or any(group.deleted for group in prunable)
        keeps_some = bool(self.returns) or not all(group.deleted for group in prunable)
        return removes_some and not keeps_some

    @property
    def policy_keeps_none(self) -> bool:
        """Whether keeping no prunable memory was asked for: by a cap of 0, or by a merge."""
        if self.merges:
            return True
        return any(
            step.get("keep") == 0 or step.get("max_tokens") == 0 for step in _steps_of(self.policy)
        )

    @property
    def floor(self) -> Size:
        """Size of the active load-bearing memories, the minimum that every plan leaves."""
        return self.labelled(LOAD_BEARING)

    @property
    def floor_in_words(self) -> str:
        """Size of the floor in words; if a start does not load all of it, how much it loads."""
        floor = wire.size_in_words(self.floor, "load-bearing memories")
        if self.start is None or self.start.floor.memories == self.floor.memories:
            return floor
        return f"{floor}; {self.start.floor.memories:,} of them loaded now"

    def to_json(self, *, compact: bool = False) -> str:
        """Return the plan as JSON that diffs well, one memory on each line, in order of position.

        Characters outside ASCII are escaped, so that an id or a title cannot send control
        sequences to the terminal of a reviewer.

        Parameters
        ----------
        compact : bool
            Return the canonical form instead, on one line, from which the digest is computed.
        """
        if not compact:
            return "".join(self.json_pieces())
        first_fields = {"digest": self.digest, **wire.header(MARKER)}
        # Both texts are JSON objects in braces, which become one object.
        first_text = wire.canonical(first_fields).removesuffix("}")
        text = "".join(self._canonical_pieces()).removeprefix("{")
        return f"{first_text},{text}"

    def json_pieces(self) -> Iterator[str]:
        """Yield the text of :meth:`to_json` in pieces, some memories at a time."""
        values = {}
        lists_of_rows = {}
        for key, value in self._content().items():
            if isinstance(value, tuple):
                lists_of_rows[key] = value
            else:
                values[key] = value
        return wire.iter_json({**values, **lists_of_rows}, KEYS, in_lines=True)

    def pieces_without_memories(self) -> Iterator[str]:
        """Yield the canonical JSON of the plan in pieces, without the memories to delete."""
        content = self._content()
        del content[_MEMORIES]
        return wire.iter_json(dict(sorted(content.items())), KEYS, in_lines=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, rows_of: RowsOf = _no_archived_rows) -> Self:
        """Load a plan from the text of :meth:`to_json`.

        Parameters
        ----------
        text : str or bytes
            The text of the plan.
        rows_of : callable
            Takes the parsed JSON and returns the memories to delete, if an archive keeps them apart
            from the plan. Returns None if the text is complete, as the default does.

        Raises
        ------
        PlanError
            If the text is not a plan, is a plan of an unsupported format, or was edited.
        """
        content = wire.parsed(text, MARKER)
        with wire.fields_checked("plan"):
            rows = rows_of(content)
            if rows is not None:
                del content[SHORTENED]
                content[_MEMORIES] = rows
            known_fields = wire.fields_in(content, cls, KEYS)
            added = wire.added_fields(content, MARKER, KEYS[cls].values())
            plan = cls(**known_fields, added=added)
            # A receipt stores the sum of tokens, so it must have 64 bits at most.
            wire.field_of(plan.total._asdict(), "tokens", int)
            # This raises ValueError if an expiry time is not a time.
            plan.expired_keys(plan.made_at)
        wire.check_digest(content, plan.digest)
        return plan

    @property
    def effect(self) -> str:
        """Effect of the plan, in a sentence."""
        return f"{self._action_in_words()}: {self._token_change_in_words()}."

    def _action_in_words(self) -> str:
        """Return the action of the plan with the numbers of memories, as a clause."""
        if self.moves:
            retired = counted(len(self.retires))
            return f"Retires {retired} and loads {counted(len(self.returns))} again"
        if self.supersedes:
            return f"Supersedes {counted(len(self.supersedes))}"
        deleted = f"{self.deletes.memories:,}"
        if self.merges:
            copied = counted(self.copied.memories)
            total = counted(self.total.memories)
            return f"Copies {copied} into {self.into}, and archives {deleted} of {total} here"
        return f"Deletes {deleted} of {counted(self.total_without_unlisted.memories)}"

    def _token_change_in_words(self) -> str:
        """Return the tokens before and after the plan, as a clause."""
        if self.start is not None:
            change = self.start
            subject = _EFFECT_SUBJECTS[_A_START]
        else:
            change = StartChange(self.boot_before, self.boot_after)
            subject = _EFFECT_SUBJECTS.get(start_label(self.store), "the active memories go")
        tokens_after = counted(change.after.tokens, "tokens")
        return f"{subject} from {change.before.tokens:,} to {tokens_after}"

    def sheet(
        self, name: str = "", *, below_effect: bool = False, with_digest: bool = True
    ) -> TextPage:
        """Return the printed page.

        Parameters
        ----------
        name : str
            The store as a person named it; by default as the plan names it.
        below_effect : bool
            Leave out the sums that :attr:`effect` states, because it is printed above the page.
        with_digest : bool
            Name the plan by its digest, which is another one for each plan that is made. A page of
            a plan that is neither saved nor applied leaves it out.
        """
        plan = f"plan {self.digest[:12]}" if with_digest else "plan"
        title = f"{plan} for {name or self.store}"
        facts = [
            ("policy", wire.policy_in_words(self.policy)),
            ("made", wire.minute_in_words(self.made_at)),
        ]
        if below_effect:
            facts.extend(self._size_facts_below_effect())
        else:
            facts.extend(self._size_facts())
        facts.append(("tokens", self.token_rule))
        if not self.merges:
            facts += _unlisted_facts(self)
        if self.deletes_newest:
            facts.append(("restore", _NEWEST_IS_DELETED))
        if self.supersedes:
            costliest = sorted(self.supersedes, key=lambda link: -link.tokens)
            table = table_of("what it supersedes, the costliest first", costliest)
            return TextPage(title, facts, [table.first(MAX_LISTED, ALL_ARE_SAVED)])
        return TextPage(title, facts, self._tables())

    def _tables(self) -> list[Table]:
        """Return the tables of the page of a plan that deletes, merges, retires or returns."""
        if self.merges:
            tables = [
                _group_table(DELETES, self.groups)._replace(heading="archives here"),
                _group_table(KEEPS, self.groups)._replace(heading="stays here"),
            ]
        elif self.moves or self.is_retirement:
            tables = [_group_table(action, self.groups) for action in (RETIRES, RETURNS, KEEPS)]
        else:
            tables = [_group_table(action, self.groups) for action in (DELETES, KEEPS)]
        listed = {
            "archives" if self.merges else DELETES: self.memories,
            RETIRES: self.retires,
            RETURNS: self.returns,
        }
        for verb, memories in listed.items():
            if memories:
                tables.append(_memory_table(verb, memories))
        if self.not_merged:
            table = Table("what stays here, and why", ("id", "reason"), list(self.not_merged))
            tables.append(table.first(MAX_LISTED, ALL_ARE_SAVED))
        if self.trigger_effects:
            tables.append(
                Table("other tables", ("trigger", "does", "table"), list(self.trigger_effects))
            )
        return tables

    def warnings(self) -> list[str]:
        """Return warnings: every prunable memory is removed, or an index is cut."""
        if self.merges:
            return self._warnings_of_merge()
        if not self.removes_all_prunable:
            return []
        verb = "be retired" if self.retires else "go"
        if self.policy_keeps_none:
            return [f"every prunable memory would {verb}: a cap of 0 asks for it, without --all"]
        lines = [f"every prunable memory would {verb}; --apply needs --all, too"]
        counts_load_bearing = any(
            step.get("max_items") or step.get("max_tokens") for step in _steps_of(self.policy)
        )
        if counts_load_bearing:
            lines.append(
                f"{self.floor.memories:,} load-bearing memories count against the number of this "
                "policy and always stay; a larger number keeps more"
            )
        return lines

    def _warnings_of_merge(self) -> list[str]:
        """Return a warning if a start of the other folder would load less of its index."""
        start = self.start_there
        if start is None or start.cut <= start.cut_now:
            return []
        more = counted(start.cut - start.cut_now, "more memories")
        shorten = command("compact", self.into, "--keep-recent", "N")
        reorder = command("index", self.into, "--log", "LOG")
        problem = f"a start of {self.into} would not load the lines of {more}"
        remedy = f"{reorder} puts first what is read most, and {shorten} makes the index shorter"
        return [f"{problem}; after the merge, {remedy}"]

    def _size_facts(self) -> Iterator[tuple[str, str]]:
        """Yield as facts the sizes of the changed memories, of the floor, and of a start."""
        yield from self._action_facts()
        if not self.merges:
            yield "floor", self.floor_in_words
        all_memories = wire.size_change_in_words(self.boot_before, self.boot_after)
        if self.start is None:
            yield start_label(self.store), all_memories
        else:
            yield _IN_THE_INDEX, all_memories
            yield _A_START, wire.size_change_in_words(self.start.before, self.start.after)

    def _size_facts_below_effect(self) -> Iterator[tuple[str, str]]:
        """Yield the facts of :meth:`_size_facts` that neither :attr:`effect` nor a table states."""
        if self.moves or self.is_retirement or self.supersedes or self.merges:
            yield from self._action_facts()
        if self.start is None:
            return
        if self.start.floor.memories != self.floor.memories:
            yield "floor", self.floor_in_words
        if (self.boot_before, self.boot_after) != (self.start.before, self.start.after):
            change = wire.size_change_in_words(self.boot_before, self.boot_after)
            yield start_label(self.store), change

    def _action_facts(self) -> list[tuple[str, str]]:
        """Return as facts the sizes of the memories of each action of the plan."""
        if self.moves or self.is_retirement:
            retires = wire.share_in_words(self.labelled(RETIRES), self.boot_before)
            returns = wire.size_in_words(self.labelled(RETURNS))
            return [(RETIRES, retires), (RETURNS, f"{returns}; it deletes nothing")]
        if self.supersedes:
            superseded = wire.share_in_words(self.superseded, self.floor)
            return [("supersedes", f"{superseded}; it deletes nothing")]
        if self.merges:
            return self._facts_of_merge()
        return [("deletes", wire.share_in_words(self.deletes, self.total_without_unlisted))]

    def _facts_of_merge(self) -> list[tuple[str, str]]:
        """Return as facts the sizes of the memories that are copied, archived and left."""
        copied = wire.size_in_words(self.copied)
        equal_count = len(self.copies) - self.copied.memories
        facts = [
            ("copies", f"{copied}, with their lines, into {self.into}"),
            ("equal there", counted(equal_count)),
            ("archives", wire.share_in_words(self.deletes, self.total)),
            ("stays", counted(len(self.not_merged))),
        ]
        if self.start_there is not None:
            facts.append(("start there", self.start_there.words))
        return facts

    def _canonical_pieces(self) -> Iterator[str]:
        """Yield the canonical JSON of the plan in pieces, from which the digest is computed."""
        return wire.iter_json(dict(sorted(self._json_fields().items())), KEYS, in_lines=False)

    def _content(self) -> dict[str, Any]:
        """Return the content of the plan's file by key, with its header and its digest."""
        return {**wire.header(MARKER), "digest": self.digest, **self._json_fields()}

    def _json_fields(self) -> dict[str, Any]:
        """Return the fields of the plan as JSON values by key; leave out those at their default."""
        keys = KEYS[type(self)]
        defaults = {
            keys[plan_field.name]: plan_field.default
            for plan_field in fields(self)
            if plan_field.name in keys
        }
        values = wire.to_json_fields(self, KEYS)
        stored = {key: value for key, value in values.items() if value != defaults[key]}
        return {**stored, **self.added}


@dataclass(frozen=True, repr=False)
class Receipt(DisplayMixin):
    """The record of the changes that applying a plan made.

    Parameters
    ----------
    digest : str
        The digest of the plan.
    store, archive : str
        The store, and the archive that has the deleted memories. The archive is None if there was
        nothing to delete.
    policy, made_at, token_rule
        As in the plan.
    applied_at : datetime
        The time of application, with a time zone.
    deleted, superseded : int
        The numbers of memories that were deleted or superseded. One of them is 0.
    retired, returned : int
        The numbers of memories that stay in the store and are no longer loaded, or are loaded
        again.
    boot_before, boot_after : Size
        The size of a start before and after, as the plan states it.
    expired : int
        The number of memories that the plan would have deleted and that had expired before.
    finished : tuple of str
        The digests of earlier plans that were interrupted after their changes and are marked as
        applied now.
    into : str
        The folder that the memories were merged into; empty for another plan.
    copied : int
        The number of memories that were copied there.
    start_before, start_after : Size or None
        For a store with an index, what a start loads before and after, as the plan states it. None
        for another store, for a merge, and if it is not known because the plan was interrupted.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> plan = memlab.plan(store, memlab.KeepRecent(50))
    >>> receipt = memlab.apply(plan)
    >>> receipt.deleted == len(plan.memories), receipt.digest == plan.digest
    (True, True)
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
    into: str = ""
    copied: int = 0
    start_before: Size | None = None
    start_after: Size | None = None

    @property
    def undo(self) -> str:
        """Command that undoes the plan."""
        return command("restore", self.store, self.digest[:12])

    @property
    def changed_nothing(self) -> bool:
        """Whether the plan changed no memory, so that the archive need not exist."""
        changed = self.deleted + self.superseded + self.retired + self.returned
        return self.archive is None and not changed

    @property
    def done(self) -> list[tuple[str, int]]:
        """Past participle and number of memories of each action, such as ("deleted", 3)."""
        if self.retired or self.returned:
            return [("retired", self.retired), ("returned", self.returned)]
        if self.superseded:
            return [("superseded", self.superseded)]
        if self.into:
            return [("copied", self.copied), ("archived", self.deleted)]
        return [("deleted", self.deleted)]

    def to_json(self) -> str:
        """Return the receipt as one JSON object."""
        content = {**wire.header(_RECEIPT_MARKER), **wire.to_json_fields(self, KEYS)}
        keys = KEYS[type(self)]
        # The fields of a merge are left out of other receipts.
        if not self.into:
            del content[keys["into"]]
        if not self.copied:
            del content[keys["copied"]]
        # Only stores with an index have these fields.
        if self.start_before is None:
            del content[keys["start_before"]]
        if self.start_after is None:
            del content[keys["start_after"]]
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Load a receipt from the text of :meth:`to_json`.

        Raise PlanError if the text is not a receipt, or is one of an unsupported format.
        """
        content = wire.parsed(text, _RECEIPT_MARKER)
        with wire.fields_checked("receipt"):
            return cls(**wire.fields_in(content, cls, KEYS))

    def sheet(self) -> TextPage:
        """Return the printed page."""
        facts = [
            ("policy", wire.policy_in_words(self.policy)),
            ("applied", wire.minute_in_words(self.applied_at)),
        ]
        facts += [(participle, counted(count)) for participle, count in self.done]
        if self.expired:
            facts.append(("expired", f"{counted(self.expired)} since the plan was made"))
        all_memories = wire.size_change_in_words(self.boot_before, self.boot_after)
        if self.start_before is not None and self.start_after is not None:
            start = wire.size_change_in_words(self.start_before, self.start_after)
            facts += [(_IN_THE_INDEX, all_memories), (_A_START, start)]
        else:
            facts.append((start_label(self.store), all_memories))
        if self.into:
            copies = "; the archive beside it has the copies" if self.copied else ""
            facts.append(("into", f"{self.into}{copies}"))
        facts.append(("archive", self.archive or "none: there was nothing to delete"))
        if self.archive:
            git_note = git_status_of(Path(self.archive)).message
            if git_note:
                facts.append(("", git_note))
            facts.append(("undo", self.undo))
        for digest in self.finished:
            undo = command("restore", self.store, digest[:12])
            event = (
                f"plan {digest[:12]} was applied earlier, and interrupted before the archive "
                "recorded it"
            )
            facts.append(("finished", f"{event}; undo: {undo}"))
        return TextPage(f"plan {self.digest[:12]} applied to {self.store}", facts)


def _unlisted_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield as facts the numbers of memories that no policy changes, as no index line names them.

    A hub, which is a file of links, may name such a memory.
    """
    reached = plan.labelled(REACHED).memories
    if reached:
        yield REACHED, f"{counted(reached)} named by a hub alone: kept, with the links to them"
    unlisted = plan.labelled(UNLISTED).memories
    if unlisted:
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
        "trigger_effects": "written",
        "expires": "expires",
        "deletes_newest": "last_goes",
        "copies": "copies",
        "not_merged": "left",
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
        "into": "into",
        "copied": "copied",
        "start_before": "start_before",
        "start_after": "start_after",
    },
    PlannedMemory: PLANNED_MEMORY_KEYS,
    KeptMemory: {"key": "key", "memory_id": "memory_id", "fingerprint": "fingerprint"},
    PlannedCopy: {
        "key": "key",
        "other_key": "other_key",
        "content": "content",
        "is_copied": "is_copied",
    },
    UnmergedMemory: {"key": "key", "reason": "reason"},
    ExpiryTime: {"key": "key", "expires_at": "expires_at"},
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
    PlannedIndexEntries: {"key": "key", "index_entries": "said"},
    Group: {
        "deleted": "deleted",
        "label": "label",
        "kind": "kind",
        "reason": "reason",
        "memories": "memories",
        "tokens": "tokens",
    },
    TriggerEffect: {"trigger": "trigger", "verb": "does", "table": "table"},
}
"""Stored keys of plans and receipts. Those of format 2 must never be changed."""
_PLANNED_ROW_KEYS: Final = tuple(PLANNED_MEMORY_KEYS[name] for name in PlannedMemory._fields)
"""Stored keys of a memory to delete, in the order of the fields of :class:`PlannedMemory`."""


def planned_row(memory: PlannedMemory) -> dict[str, Any]:
    """Return the fields of a memory to delete as JSON values by stored key."""
    return dict(zip(_PLANNED_ROW_KEYS, memory, strict=True))


def text_for_archive(plan: Plan, expired: Collection[int | str]) -> PlanText:
    """Return the text of a plan for an archive, which keeps the deleted memories apart from it.

    The text lists the memories with the keys `expired`, because they are not archived.
    """
    not_archived = {
        index: planned_row(memory)
        for index, memory in enumerate(plan.memories)
        if memory.key in expired
    }
    return PlanText(
        whole=plan.json_pieces,
        without_memories=plan.pieces_without_memories,
        not_archived=not_archived,
    )


def _steps_of(policy: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of a policy and, for a pipeline, those of its policies.

    The data may come from a file, so values that are not policies are skipped.
    """
    if not isinstance(policy, Mapping):
        return
    yield policy
    steps = policy.get("policies")
    if isinstance(steps, list):
        for step in steps:
            yield from _steps_of(step)


def _total(groups: Iterable[Group]) -> Size:
    """Return the total size of some groups."""
    memories = 0
    tokens = 0
    for group in groups:
        memories += group.memories
        tokens += group.tokens
    return Size(memories=memories, tokens=tokens)


def _group_table(action: str, groups: Iterable[Group]) -> Table:
    """Return the groups with an action as a table."""
    rows = [
        (group.label, group.kind, group.reason, group.memories, group.tokens)
        for group in groups
        if group.action == action
    ]
    header = ("label", "kind", "reason", "memories", "tokens")
    return Table(action, header, rows, remark="" if rows else "nothing")


def _memory_table(verb: str, memories: Sequence[PlannedMemory]) -> Table:
    """Return a table of the oldest and the newest memories, with the number of those between."""
    half = MAX_LISTED // 2
    hidden = len(memories) - 2 * half
    if hidden <= 0:
        return table_of(f"what it {verb}, oldest first", memories)
    table = table_of(f"oldest and newest that it {verb}", [*memories[:half], *memories[-half:]])
    return table._replace(remark=f"and {hidden:,} more between them{ALL_ARE_SAVED}")


def table_of(heading: str, memories: Sequence[PlannedMemory | PlannedLink]) -> Table:
    """Return a table of memories to print.

    The column of positions is left out if they were computed from times. The column of reasons is
    left out if all memories have the same reason, because the table of groups names it.
    """
    names = [name for name in _COLUMNS if name in memories[0]._fields]
    reasons = {memory.reason for memory in memories}
    if len(reasons) == 1 and isinstance(memories[0], PlannedMemory):
        names.remove("reason")
    if any(memory.position >= MIN_TIME_POSITION for memory in memories):
        names.remove("position")
    rows = [tuple(_cell(memory, name) for name in names) for memory in memories]
    return Table(heading, tuple(_COLUMNS[name] for name in names), rows)


def _cell(memory: PlannedMemory | PlannedLink, name: str) -> Any:
    """Return a field of a memory as a table shows it. Of a creation time it shows the date."""
    value = getattr(memory, name)
    if name == "created_at":
        return value[:_DATE_CHARS]
    return value
