"""A change of a store as its archive records it: its kind, its plan, and whether it is undone.

Applying again, restoring, listing and merging use this one class instead of an archive and an
entry. Its parts are read from the archive when they are first needed.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, TypeVar

from memlab.compaction.index_plans import IndexPlan
from memlab.compaction.plans import MERGES, Plan
from memlab.errors import ArchiveError, PlanError
from memlab.store.archive.index_versions import IndexVersion, index_versions_in, is_index_undone
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.retired import RetiredMemories, retired_in
from memlab.store.archive.schema import Entry
from memlab.text import command

AnyPlan = TypeVar("AnyPlan", Plan, IndexPlan)

_MARKER: Final = "memlab_merge"
"""Stored key by which the text of a merge is recognized. Its value is the format, 1."""
_ORIGIN: Final = "from"
"""Stored key of :attr:`Merge.origin`."""
_RELIES_ON: Final = "relies_on"
"""Stored key of :attr:`Merge.relies_on`."""


class Merge(NamedTuple):
    """A merge in the archive of the folder that the memories were merged into.

    Attributes
    ----------
    origin : str
        The name of the folder that the memories came from.
    relies_on : frozenset of str
        The keys of the equal memories in this folder, copied or present before. They must not be
        removed as long as the merge is not undone.
    """

    origin: str
    relies_on: frozenset[str]

    @classmethod
    def from_json(cls, text: str | bytes) -> "Merge | None":
        """Return the merge that a text in an archive describes; None for another text."""
        fields: Any = None
        with suppress(ValueError, RecursionError):
            fields = json.loads(text)
        if not isinstance(fields, dict) or fields.get(_MARKER) != 1:
            return None
        origin = fields.get(_ORIGIN)
        relies_on = fields.get(_RELIES_ON)
        if not isinstance(origin, str) or not isinstance(relies_on, list):
            return None
        return cls(origin=origin, relies_on=frozenset(map(str, relies_on)))

    def to_json(self) -> str:
        """Return the merge as the text that the archive keeps."""
        return json.dumps({_MARKER: 1, _ORIGIN: self.origin, _RELIES_ON: sorted(self.relies_on)})


class RecordedChange:
    """A change of a store as its archive records it.

    Parameters
    ----------
    archive : OpenArchive
        The open archive.
    entry : Entry
        The change in the archive.
    """

    def __init__(self, archive: OpenArchive, entry: Entry) -> None:
        self.archive: Final = archive
        self.entry: Final = entry

    @classmethod
    def named(cls, archive: OpenArchive, digest: str) -> "RecordedChange":
        """Return the change whose digest begins with `digest`.

        Raise ArchiveError if there is none, or more than one.
        """
        return cls(archive, archive.entry(digest))

    @property
    def digest(self) -> str:
        """Digest of the change."""
        return self.entry.digest

    @property
    def is_of_links(self) -> bool:
        """Whether it superseded, retired or returned memories, and deleted none."""
        entry = self.entry
        if entry.is_index_change or entry.is_recovery:
            return False
        return entry.has_plan and not entry.memories

    @cached_property
    def plan(self) -> Plan:
        """The plan of memories. Raise ArchiveError if it cannot be read or is another one."""
        rows_of = partial(self.archive.plan_rows, self.entry)
        return self._parsed(partial(Plan.from_json, rows_of=rows_of))

    @cached_property
    def index_plan(self) -> IndexPlan:
        """The plan of an index. Raise ArchiveError if it cannot be read or is another one."""
        return self._parsed(IndexPlan.from_json)

    @cached_property
    def merge(self) -> Merge | None:
        """The merge of another folder into this store; None for another change."""
        if not (self.entry.is_recovery and self.entry.has_plan):
            return None
        with suppress(ArchiveError):
            return Merge.from_json(self.archive.plan_text(self.entry))
        return None

    @cached_property
    def merged_into(self) -> str:
        """The folder that its memories were merged into; empty for another change."""
        query = "SELECT policy FROM applies WHERE apply = ?"
        ((policy_json,),) = self.archive.rows(query, self.entry.number)
        policy: Any = None
        with suppress(TypeError, ValueError, RecursionError):
            policy = json.loads(policy_json)
        if not isinstance(policy, dict) or policy.get("policy") != MERGES:
            return ""
        return str(policy.get("into", ""))

    @property
    def index_before(self) -> Mapping[str, IndexVersion]:
        """The index files from before the change, by name; empty if they are unreadable."""
        return index_versions_in(self.archive, self.digest)

    @property
    def is_index_undone(self) -> bool:
        """Whether the change of an index was undone."""
        return is_index_undone(self.archive, self.digest)

    def can_be_undone(self, retired: RetiredMemories) -> bool:
        """Return whether undoing it as the last change changes the store.

        Of the recoveries only merges are undone as the last change.

        Parameters
        ----------
        retired : RetiredMemories
            The memories that the plans of this archive retired.
        """
        if self.entry.is_recovery:
            return self.merge is not None
        if not self.entry.finished_at:
            return False
        if self.entry.is_index_change:
            return not self.is_index_undone
        if self.is_of_links:
            moves = self.plan.moves
            return not moves or any(memory.key in retired for memory in moves)
        return self.entry.copies > self.entry.restored

    def _parsed(self, parse: Callable[[str | bytes], AnyPlan]) -> AnyPlan:
        """Return the parsed plan; raise ArchiveError if it is unreadable or another one."""
        description = f"plan {self.digest[:12]} in {self.archive.path}"
        try:
            plan = parse(self.archive.plan_text(self.entry))
        except PlanError as error:
            raise ArchiveError(f"{description} cannot be read: {error}") from error
        if plan.digest != self.digest:
            raise ArchiveError(
                f"{description} is another one, {plan.digest[:12]}; restore a backup of it"
            )
        return plan


def recorded_changes(archive: OpenArchive) -> list[RecordedChange]:
    """Return every change that an archive records, oldest first."""
    return [RecordedChange(archive, entry) for entry in archive.entries()]


def last_undoable(archive: OpenArchive) -> RecordedChange:
    """Return the last change that is not undone yet; raise ArchiveError if there is none."""
    retired = retired_in(archive)
    for change in reversed(recorded_changes(archive)):
        if change.can_be_undone(retired):
            return change
    raise nothing_to_undo(archive.location.store)


def nothing_to_undo(store: object) -> ArchiveError:
    """Return the error to raise if every plan of a store is undone."""
    listing = command("archive", str(store))
    return ArchiveError(f"no plan is left to undo; {listing} lists all plans")
