"""What would be deleted from many stores, as data: one file to review, one line a store."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from memlab.compaction.wire import (
    FORMAT,
    field_of,
    fields_checked,
    json_lines,
    parsed,
    tuples_of,
    when,
)
from memlab.compaction.words import in_words, minute
from memlab.errors import PlanError
from memlab.files import ALONE, read_whole, write_whole
from memlab.text import Sheet, Shown, Table

LARGEST: Final = 10
"""Stores that are listed by what goes from them."""
MARKER: Final = "memlab_fleet_plan"


class PlannedStore(NamedTuple):
    """What a plan does to one store.

    Attributes
    ----------
    store : str
        Its name.
    digest : str
        Of its own plan, which says which memories go.
    memories : int
        All that it holds.
    deleted, deleted_tokens : int
        How many go, and how large they are.
    deleted_bytes : int or None
        About what a vacuum would give back: their share of the file. None for a server.
    boot_before, boot_after : int
        Tokens that an agent loads at start.
    floor : int
        Tokens of the load-bearing part of it.
    """

    store: str
    digest: str
    memories: int
    deleted: int
    deleted_tokens: int
    deleted_bytes: int | None
    boot_before: int
    boot_after: int
    floor: int


class Refused(NamedTuple):
    """A store that has no plan.

    Attributes
    ----------
    store, kind, error : str
        Its name, the error's class, and the error in words.
    """

    store: str
    kind: str
    error: str


@dataclass(frozen=True, repr=False)
class FleetPlan(Shown):
    """What a policy would delete from many stores. Printing it is the dry run.

    Parameters
    ----------
    made_at : datetime
        The moment of the decision, with a time zone.
    policy : dict
        As in :class:`memlab.Plan`.
    stores : tuple of PlannedStore
        In the order in which they were named.
    refused : tuple of Refused
        Stores that could not be planned.
    folder : Path or None
        Where the plans of the stores are kept; None where they are in memory.
    texts : mapping of str to bytes
        Those in memory, by store.
    """

    made_at: datetime
    policy: Mapping[str, Any]
    stores: tuple[PlannedStore, ...]
    refused: tuple[Refused, ...]
    folder: Path | None = None
    texts: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that the file says, 64 hexadecimal digits."""
        text = json.dumps(self._content(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def changed(self) -> tuple[PlannedStore, ...]:
        """The stores from which something goes."""
        return tuple(store for store in self.stores if store.deleted)

    @property
    def totals(self) -> dict[str, int]:
        """What goes from all of them together."""
        return {
            "stores": len(self.stores),
            "changed": len(self.changed),
            "refused": len(self.refused),
            **{
                name: sum(getattr(store, name) or 0 for store in self.stores)
                for name in PlannedStore._fields[2:]
            },
        }

    @property
    def largest(self) -> list[PlannedStore]:
        """The ten stores that most goes from."""
        return sorted(self.changed, key=lambda s: (-s.deleted_tokens, s.store))[:LARGEST]

    def to_json(self) -> str:
        """Return the plan as text that diffs well: totals, the largest, and one line a store."""
        content = self._content()
        parts = [f'"{MARKER}": {FORMAT}', f'"digest": {json.dumps(self.digest)}']
        parts += [f"{json.dumps(name)}: {json.dumps(content[name])}" for name in _HEAD]
        parts.append(f'"totals": {json.dumps(self.totals)}')
        for name in ("largest", *_LISTS):
            parts.append(f'"{name}": {"".join(json_lines(getattr(self, name)))}')
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the plan that :meth:`to_json` wrote, without the stores' own plans.

        Raises
        ------
        PlanError
            When the text is no plan of many stores, or was edited.
        """
        content = parsed(text, MARKER)
        with fields_checked("plan of a fleet"):
            plan = cls(
                made_at=when(content, "made_at"),
                policy=field_of(content, "policy", dict),
                stores=tuples_of(content, "stores", PlannedStore),
                refused=tuples_of(content, "refused", Refused),
            )
        if plan.digest != content.get("digest"):
            raise PlanError(
                "the plan was edited after it was made: its digest does not fit; make a new plan, "
                "of the stores that you want changed"
            )
        return plan

    def write(self, file: str | PathLike[str]) -> Path:
        """Write the plan for review, for you alone; where an old one is, it is replaced."""
        return write_whole(Path(file), self.to_json(), limit=ALONE)

    @classmethod
    def read(cls, file: str | PathLike[str]) -> Self:
        """Return the plan in a file, whose stores' own plans lie in the folder beside it.

        Raises
        ------
        PlanError
            When it is no plan of many stores, was edited, or the folder is missing.
        """
        plan = cls.from_json(read_whole(Path(file)))
        folder = saved_beside(Path(file))
        if plan.changed and not folder.is_dir():
            raise PlanError(
                f"the plans of the stores are missing: {folder} lay beside {file}; keep them "
                "together, or make a new plan"
            )
        return replace(plan, folder=folder)

    def sheet(self) -> Sheet:
        """Return what is printed."""
        totals = self.totals
        facts = [
            ("policy", in_words(self.policy)),
            ("decided", minute(self.made_at)),
            ("deletes", f"{totals['deleted']:,} of {totals['memories']:,} memories"),
            ("tokens", f"{totals['deleted_tokens']:,}"),
            ("on the disk", f"about {totals['deleted_bytes'] / 1e6:,.1f} MB after a vacuum"),
            ("at start", f"{totals['boot_before']:,} -> {totals['boot_after']:,} tokens"),
            ("floor", f"{totals['floor']:,} tokens; no policy goes below it"),
        ]
        title = (
            f"plan {self.digest[:12]}: {totals['changed']:,} of {totals['stores']:,} stores change"
        )
        return Sheet(title, facts, list(self._tables()))

    def _tables(self) -> Iterator[Table]:
        if self.largest:
            rows = [
                (each.deleted, each.deleted_tokens, each.boot_before, each.boot_after, each.store)
                for each in self.largest
            ]
            more = len(self.changed) - len(rows)
            header = ("memories go", "tokens", "at start", "after", "store")
            remark = f"{more:,} more change" if more else ""
            yield Table("where most goes", header, rows, remark, whole=True)
        if self.refused:
            listed = [(each.store, each.error) for each in self.refused[:LARGEST]]
            more = len(self.refused) - len(listed)
            yield Table("refused", (), listed, f"{more:,} more" if more else "", whole=True)

    def _content(self) -> dict[str, Any]:
        return {
            "made_at": self.made_at.isoformat(),
            "policy": dict(self.policy),
            "refused": [each._asdict() for each in self.refused],
            "stores": [each._asdict() for each in self.stores],
        }


_HEAD: Final = ("made_at", "policy")
_LISTS: Final = ("refused", "stores")


def saved_beside(file: Path) -> Path:
    """Return where the plans of the stores are kept that belong to a fleet plan's file."""
    return file.with_name(f"{file.name}.plans")
