"""What a deletion would do, and what one did: plans and receipts, as data.

Nothing here opens a store or reads a clock. A plan is made by :func:`memlab.plan`, reviewed,
kept beside the code in version control, and carried out by :func:`memlab.apply`.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from memlab.compaction.wire import (
    FORMAT,
    field_of,
    fields_checked,
    in_words,
    json_lines,
    moment_of,
    parsed,
    tuple_of,
    tuples_of,
)
from memlab.errors import PlanError
from memlab.text import Sheet, Shown, Table

LISTED: Final = 10
"""How many rows a printed plan lists; the others are counted."""

LOAD_BEARING: Final = "load-bearing"
PRUNABLE: Final = "prunable"
SUPERSEDED: Final = "superseded"


class PlannedRow(NamedTuple):
    """A row that goes.

    Attributes
    ----------
    position : int
        Its rowid.
    memory_id, kind, title : str
        As stored; the title is cut to its first 80 characters.
    reason : str
        Why the policy lets it go.
    tokens : int
        Of title and body.
    created_at : str
        ISO 8601 with zone.
    fingerprint : str
        Of every column's bytes and type.
    signals : str
        Fingerprint of what the store's side table says of the row; empty where it says nothing.
    """

    position: int
    memory_id: str
    kind: str
    title: str
    reason: str
    tokens: int
    created_at: str
    fingerprint: str
    signals: str


class KeptRow(NamedTuple):
    """A prunable row that stays, and whose staying the plan rests on.

    Attributes
    ----------
    position : int
        Its rowid.
    memory_id : str
        As stored.
    fingerprint : str
        Of every column's bytes and type.
    """

    position: int
    memory_id: str
    fingerprint: str


class Group(NamedTuple):
    """Rows that share what happens to them and why.

    Attributes
    ----------
    goes : bool
        Whether they would be deleted.
    label : {"load-bearing", "prunable", "superseded"}
        What they are. A superseded row is that, load-bearing or not: no agent loads it.
    kind, reason : str
        The kind of memory, and the policy's reason.
    items, tokens : int
        How many, and how large together.
    """

    goes: bool
    label: str
    kind: str
    reason: str
    items: int
    tokens: int


class Size(NamedTuple):
    """So many items, so many tokens."""

    items: int
    tokens: int


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """What a policy would delete from a store. Printing it is the dry run.

    Parameters
    ----------
    store : str
        Absolute path of the file it was made from.
    made_at : datetime
        The moment of the decision, with a time zone.
    policy : dict
        The policy's name under ``"policy"`` and its settings, as JSON values.
    token_rule : str
        How tokens were counted.
    groups : tuple of Group
        Every row of the store is counted in exactly one of them.
    rows : tuple of PlannedRow
        What goes, in order of position.
    kept : tuple of KeptRow
        The prunable rows that stay, in order of position.
    """

    store: str
    made_at: datetime
    policy: Mapping[str, Any]
    token_rule: str
    groups: tuple[Group, ...]
    rows: tuple[PlannedRow, ...]
    kept: tuple[KeptRow, ...]

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything in the plan, 64 hexadecimal digits: the plan's name."""
        text = json.dumps(self._content(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the rows decided on: those that go and the prunable ones that stay."""
        rows: list[PlannedRow | KeptRow] = [*self.rows, *self.kept]
        text = "\n".join(f"{row.position} {row.fingerprint}" for row in rows)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def history(self) -> Size:
        """All rows of the store."""
        return _total(self.groups)

    @property
    def goes(self) -> Size:
        """What would be deleted."""
        return _total(group for group in self.groups if group.goes)

    @property
    def boot_before(self) -> Size:
        """What an agent loads at start now: the active rows."""
        return _total(group for group in self.groups if group.label != SUPERSEDED)

    @property
    def boot_after(self) -> Size:
        """What an agent would load at start afterwards."""
        return _total(g for g in self.groups if g.label != SUPERSEDED and not g.goes)

    @property
    def floor(self) -> Size:
        """The active load-bearing rows: no plan goes below them."""
        return _total(group for group in self.groups if group.label == LOAD_BEARING)

    def to_json(self) -> str:
        """Return the plan as text that diffs well: one line a row, in order of position.

        Characters outside ASCII are escaped, so that a memory's id or title cannot steer the
        terminal of whoever reviews the file.
        """
        content = self._content()
        listed = ("groups", "rows", "kept")
        head = {"memlab_plan": FORMAT, "digest": self.digest}
        head |= {name: value for name, value in content.items() if name not in listed}
        parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        parts += [f"{json.dumps(name)}: {json_lines(content[name])}" for name in listed]
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the plan that :meth:`to_json` wrote.

        Raises
        ------
        PlanError
            When the text is not a plan, is one of another format, or was edited.
        """
        content = parsed(text, "memlab_plan")
        with fields_checked("plan"):
            plan = cls(
                store=field_of(content, "store", str),
                made_at=moment_of(content, "made_at"),
                policy=field_of(content, "policy", dict),
                token_rule=field_of(content, "token_rule", str),
                groups=tuples_of(content, "groups", Group),
                rows=tuples_of(content, "rows", PlannedRow),
                kept=tuples_of(content, "kept", KeptRow),
            )
        if plan.digest != content.get("digest"):
            raise PlanError(
                "the plan was edited after it was made: its digest does not fit; make a new plan"
            )
        return plan

    def sheet(self) -> Sheet:
        """Return what is printed."""
        facts = [
            ("policy", in_words(self.policy)),
            ("made", _minute(self.made_at)),
            ("goes", _share(self.goes, self.history)),
            ("floor", f"{self.floor.items:,} load-bearing items, {self.floor.tokens:,} tokens"),
            ("boot context", _change(self.boot_before, self.boot_after)),
            ("tokens", self.token_rule),
        ]
        tables = [_groups_table("goes", [group for group in self.groups if group.goes])]
        tables += [_groups_table("stays", [group for group in self.groups if not group.goes])]
        if self.rows:
            tables.append(self._listing())
        return Sheet(f"plan {self.digest[:12]} for {self.store}", facts, tables)

    def _listing(self) -> Table:
        """List the oldest and the newest rows that go, and say how many lie between."""
        half = LISTED // 2
        hidden = len(self.rows) - 2 * half
        listed = [*self.rows[:half], *self.rows[-half:]] if hidden > 0 else [*self.rows]
        return Table(
            "oldest and newest that go" if hidden > 0 else "what goes, oldest first",
            ("position", "created", "tokens", "reason", "id", "title"),
            [
                (r.position, r.created_at[:10], r.tokens, r.reason, r.memory_id, r.title)
                for r in listed
            ],
            f"and {hidden:,} more between them, all in the plan's rows" if hidden > 0 else "",
        )

    def _content(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "made_at": self.made_at.isoformat(),
            "policy": dict(self.policy),
            "token_rule": self.token_rule,
            "groups": [group._asdict() for group in self.groups],
            "rows": [row._asdict() for row in self.rows],
            "kept": [row._asdict() for row in self.kept],
        }


@dataclass(frozen=True, repr=False)
class Receipt(Shown):
    """What applying a plan did.

    Parameters
    ----------
    digest : str
        The plan's.
    store, archive : str
        Absolute paths: where the rows were, and where they are now. The archive is None when there
        was nothing to delete.
    policy : dict
        As in the plan.
    made_at, applied_at : datetime
        When it was decided and when it was done.
    deleted : int
        Rows.
    boot_before, boot_after : Size
        The boot context as the plan saw it.
    token_rule : str
        How tokens were counted.
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

    def __hash__(self) -> int:
        return hash((self.digest, self.applied_at))

    @property
    def undo(self) -> str:
        """The command that takes it back."""
        return shlex.join(["memlab", "restore", self.store, self.digest[:12]])

    def to_json(self) -> str:
        """Return the receipt as one JSON object."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {
            "policy": dict(self.policy),
            "made_at": self.made_at.isoformat(),
            "applied_at": self.applied_at.isoformat(),
            "boot_before": self.boot_before._asdict(),
            "boot_after": self.boot_after._asdict(),
        }
        return json.dumps({"memlab_receipt": FORMAT, **content}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the receipt that :meth:`to_json` wrote.

        Raises
        ------
        PlanError
            When the text is not a receipt, or is one of another format.
        """
        content = parsed(text, "memlab_receipt")
        with fields_checked("receipt"):
            return cls(
                digest=field_of(content, "digest", str),
                store=field_of(content, "store", str),
                archive=field_of(content, "archive", str, type(None)),
                policy=field_of(content, "policy", dict),
                made_at=moment_of(content, "made_at"),
                applied_at=moment_of(content, "applied_at"),
                deleted=field_of(content, "deleted", int),
                boot_before=tuple_of(field_of(content, "boot_before", dict), Size),
                boot_after=tuple_of(field_of(content, "boot_after", dict), Size),
                token_rule=field_of(content, "token_rule", str),
            )

    def sheet(self) -> Sheet:
        """Return what is printed."""
        facts = [
            ("policy", in_words(self.policy)),
            ("applied", _minute(self.applied_at)),
            ("deleted", f"{self.deleted:,} rows"),
            ("boot context", _change(self.boot_before, self.boot_after)),
            ("archive", self.archive or "none: there was nothing to delete"),
        ]
        if self.archive:
            facts.append(("undo", self.undo))
        return Sheet(f"plan {self.digest[:12]} applied to {self.store}", facts)


def _total(groups: Iterable[Group]) -> Size:
    sizes = [(group.items, group.tokens) for group in groups]
    return Size(sum(items for items, _ in sizes), sum(tokens for _, tokens in sizes))


def _groups_table(heading: str, groups: list[Group]) -> Table:
    return Table(
        heading,
        ("label", "kind", "reason", "items", "tokens"),
        [(g.label, g.kind, g.reason, g.items, g.tokens) for g in groups],
        "" if groups else "nothing",
    )


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _change(before: Size, after: Size) -> str:
    return (
        f"{before.items:,} items, {before.tokens:,} tokens -> "
        f"{after.items:,} items, {after.tokens:,} tokens"
    )


def _share(part: Size, whole: Size) -> str:
    items = part.items / whole.items if whole.items else 0.0
    tokens = part.tokens / whole.tokens if whole.tokens else 0.0
    return (
        f"{part.items:,} of {whole.items:,} items ({items:.1%}), "
        f"{part.tokens:,} of {whole.tokens:,} tokens ({tokens:.1%})"
    )
