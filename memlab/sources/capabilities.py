"""The optional capabilities of a source, and the errors for a source without one.

A source has a capability if its attribute of that name is not None. :func:`require` returns the
capability, or raises the error that names the alternative. Only ``external_history`` always exists:
that of most sources is empty.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, overload

from memlab import errors
from memlab.items import CHARS_PER_TOKEN
from memlab.sources.readers import IndexWriter, Key, Records, Rows, SupersedingWriter
from memlab.text import counted

CURRENT_ORDER: Final = "as it stands"
"""Name of the order in which the entries of the index are now."""
MOST_READ: Final = "most read first"
"""Name of the order by number of reads, highest first."""


class IndexOrderings(NamedTuple):
    """The entries of an index in several orders, and how many of them a start loads.

    Attributes
    ----------
    written : mapping of str to datetime
        When each memory was written, by memory id.
    lines : mapping of str to tuple of str
        The memory ids from the top down, by name of the order.
    loaded_counts : mapping of str to int
        The number of entries that a start loads, by name of the order.
    """

    written: Mapping[str, datetime]
    lines: Mapping[str, tuple[str, ...]]
    loaded_counts: Mapping[str, int]


ADDS: Final = "adds"
REMOVES: Final = "removes"
RESTORES: Final = "restores"
MOVES: Final = "moves"
CLEARS: Final = "clears"
STAYS: Final = "stays"


class IndexLine(NamedTuple):
    """A line of an index that a plan changes, or leaves although something is wrong with it.

    Attributes
    ----------
    action : str
        "adds", "removes", "restores", "moves", "clears" for an empty heading, or "stays".
    number : int
        The line number. It is counted before the change if the line is removed, otherwise after
        the change. It is 0 if the line has no number.
    text : str
        The line, which may be cut.
    file : str
        The file that it is about; empty for a heading.
    reason : str
        Why it changes, or why it stays.
    """

    action: str
    number: int
    text: str
    file: str
    reason: str


class IndexLoad(NamedTuple):
    """The part of an index that a start loads.

    Attributes
    ----------
    files : int
        Number of memories in the folder.
    named : int
        How many of them the index names.
    loaded : int
        How many of these have a line in the part that a start loads.
    tokens : int
        Estimated number of tokens of that part.
    """

    files: int
    named: int
    loaded: int
    tokens: int


class IndexMend(NamedTuple):
    """A change of an index that is planned.

    Attributes
    ----------
    name : str
        File name of the index.
    before, after : bytes or None
        Its content before and after the change; None for no file.
    lines : tuple of IndexLine
        The lines that change, and those that stay although something is wrong with them.
    load_before, load_after : IndexLoad
        The part that a start loads before and after.
    """

    name: str
    before: bytes | None
    after: bytes | None
    lines: tuple[IndexLine, ...]
    load_before: IndexLoad
    load_after: IndexLoad


class IndexUndone(NamedTuple):
    """An index from which a change was taken back.

    Attributes
    ----------
    data : bytes or None
        Its content; None for no file.
    stays : tuple of str
        The lines of the change that stay, because somebody edited them since.
    """

    data: bytes | None
    stays: tuple[str, ...]


class Loss(NamedTuple):
    """A memory that another program or a person deleted, emptied or moved out of the store.

    Attributes
    ----------
    key, record : Key, bytes
        The key and the record that the memory had.
    lost_at, written_at, seen_at : datetime or None
        When it was lost, when it was last written, and when it was last copied.
    commit : str
        The hash of the git commit that removed it; empty if git does not know it.
    is_emptied : bool
        Whether its file exists and is empty.
    moved_to : str
        The current path of its file outside of the store; empty if it was not moved.
    similar_file : str
        A similar file that the same commit added, so that this may be a rename; empty for none.
    is_unlisted : bool
        Whether the memory exists and its index entry was removed; the record has the entry.
    """

    key: Key
    record: bytes
    lost_at: datetime | None
    written_at: datetime | None
    commit: str = ""
    seen_at: datetime | None = None
    is_emptied: bool = False
    moved_to: str = ""
    similar_file: str = ""
    is_unlisted: bool = False


class TextVersion(NamedTuple):
    """The text of a memory as of a commit."""

    at: datetime
    commit: str
    text: str


class FormerName(NamedTuple):
    """A former id of a renamed memory.

    Attributes
    ----------
    name, memory_id : str
        The former id and the current one.
    until : datetime
        When it was renamed.
    is_free : bool
        Whether no other memory has used the former id since.
    """

    name: str
    memory_id: str
    until: datetime
    is_free: bool


def is_index_lost(lost: int, named: int) -> bool:
    """Return whether an index was lost or overwritten, as opposed to edited line by line.

    Parameters
    ----------
    lost : int
        Number of memories that exist and that the index no longer names.
    named : int
        Number of memories that the index still names.

    Examples
    --------
    >>> is_index_lost(7, 1), is_index_lost(1, 0), is_index_lost(1, 1), is_index_lost(5, 300)
    (True, True, False, False)
    """
    if lost == named:
        return lost >= 2
    return lost > named


class NativeCap:
    """A setting of the store's own system that limits the number of memories.

    Parameters
    ----------
    assignment : str
        The assignment in the settings, with ``%d`` for the number.

    Examples
    --------
    >>> NativeCap("max_items=%d").setting_for(50)
    'max_items=50'
    """

    def __init__(self, assignment: str) -> None:
        self._assignment = assignment

    def setting_for(self, keep: int) -> str:
        """Return the assignment of a cap in the system's settings."""
        return self._assignment % keep

    def current(self) -> int | None:
        """Return the cap in force; None if it is not known."""
        return None

    def instructions(self, keep: int) -> list[str]:  # noqa: ARG002
        """Return lines that explain how to set a cap in a store that memlab never changes."""
        return []


class ExternalHistory:
    """The memories that git or the store's own system knows and that are no longer in the store.

    This class is an empty history.
    """

    def is_tracked(self) -> bool:
        """Return whether git tracks the store, so that :meth:`iter_lost` is complete."""
        return False

    def has_deleted(self) -> bool:
        """Return whether git knows of deleted memories."""
        return False

    def iter_deleted(self, *, with_body: bool) -> Iterator[Rows]:  # noqa: ARG002
        """Yield deleted memories.

        :attr:`Rows.others` has ``deleted_at``, and for git also ``written_at`` and ``commit``.
        """
        return iter(())

    def iter_lost(self) -> Iterator[Loss]:
        """Yield memories that another program or a person deleted or emptied."""
        return iter(())

    def text_versions(self, keys: Iterable[str]) -> Iterator[tuple[str, list[TextVersion]]]:  # noqa: ARG002
        """Yield the versions of each memory's text, oldest first."""
        return iter(())

    def births(self) -> Mapping[str, str]:
        """Return the commit that added each memory."""
        return {}

    def last_changed(self, key: str) -> datetime | None:  # noqa: ARG002
        """Return the time of last modification of a memory's file; None if there is no file."""
        return None

    def former_names(self) -> Sequence[FormerName]:
        """Return the known former ids of renamed memories."""
        return ()

    def note(self) -> str:
        """Return the note on the part of the history that is unknown; empty if all is known."""
        return ""

    def was_read_in_time(self) -> bool:
        """Return whether the history was read without a timeout; `note` names missing parts.

        Without it, an unattended run deletes nothing if its cap or budget depends on the history.
        """
        return True


NO_HISTORY: Final = ExternalHistory()
"""The history of a source that is not in git and whose system records no deletions."""


class Supersession(ABC):
    """The ability to set which memory supersedes another, or to retire memories.

    A memory that supersedes itself is retired: it is no longer loaded at start, and can be found.
    """

    @abstractmethod
    def changing(self) -> AbstractContextManager[SupersedingWriter]:
        """Open the source like :meth:`Source.changing`, for superseding and retiring."""

    @abstractmethod
    def superseded_by(self, record: bytes) -> str | None:
        """Return the id of the superseding memory; for a retired memory this is its own id."""

    def returns_memories(self) -> bool:
        """Return whether a plan may return retired memories at present."""
        return True

    def index_entries_of(self, record: bytes) -> str:  # noqa: ARG002
        """Return the index entries that a plan stores to undo a retirement exactly, as text."""
        return ""


class StartIndex(ABC):
    """An index of the memories, of which a start loads a part."""

    @abstractmethod
    def orderings(self, reads: Mapping[str, int]) -> IndexOrderings:
        """Return the part of the index that a start loads, in the current and in other orders.

        Parameters
        ----------
        reads : mapping of str to int
            The number of reads by memory id.
        """

    @abstractmethod
    def overhead_chars(self) -> int:
        """Return the number of loaded characters that belong to no memory, such as headings."""

    def overhead_tokens(self) -> int:
        """Return the estimated number of tokens of :meth:`overhead_chars`."""
        return ceil(self.overhead_chars() / CHARS_PER_TOKEN)

    @abstractmethod
    def is_unlisted(self, record: bytes) -> bool:
        """Return whether a record has no index entry."""

    @abstractmethod
    def relisted(self, record: bytes, older: bytes) -> bytes | None:
        """Return a record with the index entries of an older record; None if it has none."""

    @property
    def mending(self) -> "IndexMending | None":
        """The ability to mend the index; None if memlab never changes this index."""
        return None


class IndexMending(ABC):
    """The ability to plan a change of an index, and to take a change back."""

    @abstractmethod
    def planned(
        self,
        reads: Mapping[str, int],
        lost: Mapping[str, bytes],
        *,
        empty_headings: bool,
        reorder: bool,
    ) -> IndexMend:
        """Return the change that mends the index.

        Parameters
        ----------
        reads : mapping of str to int
            The number of reads by memory id.
        lost : mapping of str to bytes
            By memory id, the records of memories whose entries a lost or overwritten index had.
        empty_headings : bool
            Whether to remove headings with nothing below them.
        reorder : bool
            Whether to move lines so that what is read most is loaded.
        """

    @abstractmethod
    def changing(self) -> AbstractContextManager[IndexWriter]:
        """Open the source like :meth:`Source.changing`, for a change of its index."""

    @abstractmethod
    def content(self) -> bytes | None:
        """Return the content of the index; None if there is no file."""

    @abstractmethod
    def without_change(self, before: bytes | None, after: bytes, current: bytes) -> IndexUndone:
        """Return the current index without the change from `before` to `after`."""


class Intake(ABC):
    """The ability to take memories of another store of the same kind, byte for byte."""

    @abstractmethod
    def names_in_use(self) -> Collection[str]:
        """Return the names in the store that are taken, so that no other memory can have them."""

    def reason_to_refuse(self, key: Key) -> str:  # noqa: ARG002 - most stores take any name
        """Return the reason why the store cannot take a memory with a key; empty if it can."""
        return ""

    @abstractmethod
    def record_for(self, record: bytes) -> bytes:
        """Convert a record of this store into the form in which another store takes it."""

    @abstractmethod
    def reason_to_stay(self, record: bytes) -> str:
        """Return the reason why a memory cannot leave the store; empty if it can."""

    def start_with(self, records: Sequence[bytes]) -> "MergedStart | None":  # noqa: ARG002
        """Return the load of a start if the index also had the lines of more memories.

        Parameters
        ----------
        records : sequence of bytes
            The records of the memories, as :meth:`record_for` returns them.

        Returns
        -------
        MergedStart or None
            None for a store without an index.
        """
        return None


class MergedStart(NamedTuple):
    """The load of a start from an index to which the lines of other memories are added.

    Attributes
    ----------
    lines, loaded_lines : int
        Number of lines of the index, and of those that a start would load.
    tokens : int
        Tokens of the part that a start would load.
    cut_now, cut : int
        Number of memories whose lines a start does not load: before and after the merge.
    """

    lines: int
    loaded_lines: int
    tokens: int
    cut_now: int
    cut: int

    @property
    def words(self) -> str:
        """The lines and tokens of a start, and the number of memories that are cut, in words.

        >>> MergedStart(56, 56, 812, 0, 0).words
        'all 56 lines of the index, 812 tokens as one text'
        >>> MergedStart(230, 200, 6012, 0, 30).words
        '200 of 230 lines of the index, 6,012 tokens as one text: 30 memories are cut (now 0)'
        """
        tokens = f"{counted(self.tokens, 'tokens')} as one text"
        if self.loaded_lines == self.lines:
            return f"all {counted(self.lines, 'lines')} of the index, {tokens}"
        verb = "is" if self.cut == 1 else "are"
        return (
            f"{self.loaded_lines:,} of {counted(self.lines, 'lines')} of the index, {tokens}: "
            f"{counted(self.cut)} {verb} cut (now {self.cut_now:,})"
        )


class StoreMaking(ABC):
    """The ability to write memories into a new store of the same kind."""

    @abstractmethod
    def make(self, path: Path, records: Records) -> int:
        """Write a new store with these memories to an empty file, and return their number."""


class StartLimit(NamedTuple):
    """A limit of the store's own system on what a start loads.

    Attributes
    ----------
    tokens : int
        The limit in tokens, load-bearing memories included.
    words : str
        The limit as the system has it, and where it is set.
    """

    tokens: int
    words: str


class RecordedSearch(NamedTuple):
    """A search that an agent made: its time and its query."""

    at: datetime
    query: str


class SearchLog(ABC):
    """The record of the searches that agents made in a store."""

    @abstractmethod
    def searches(self) -> Iterator[RecordedSearch]:
        """Yield the searches of agents, in the order of the record."""


class Capable(Protocol):
    """The part of a source that :func:`require` uses."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def index(self) -> StartIndex | None: ...  # noqa: D102
    @property
    def supersession(self) -> Supersession | None: ...  # noqa: D102
    @property
    def retirement(self) -> Supersession | None: ...  # noqa: D102
    @property
    def intake(self) -> Intake | None: ...  # noqa: D102
    @property
    def store_making(self) -> StoreMaking | None: ...  # noqa: D102
    @property
    def read_only_reason(self) -> str: ...  # noqa: D102


@overload
def require(source: Capable, capability: Literal["retirement", "supersession"]) -> Supersession: ...
@overload
def require(source: Capable, capability: Literal["index"]) -> StartIndex: ...
@overload
def require(source: Capable, capability: Literal["intake"]) -> Intake: ...
@overload
def require(source: Capable, capability: Literal["store_making"]) -> StoreMaking: ...
def require(
    source: Capable,
    capability: Literal["retirement", "supersession", "index", "intake", "store_making"],
) -> Supersession | StartIndex | Intake | StoreMaking:
    """Return a capability of a source.

    Parameters
    ----------
    source : Source
        The source.
    capability : {"retirement", "supersession", "index", "intake", "store_making"}
        Name of the attribute.

    Raises
    ------
    MemlabError
        If the source does not have the capability. The message names the alternative.
    """
    implementation: Supersession | StartIndex | Intake | StoreMaking | None = getattr(
        source, capability
    )
    if implementation is not None:
        return implementation
    if capability == "index":
        raise errors.MemlabError(
            f"{source.name} has no index that a start loads; name a folder of Claude Code's memory"
        )
    if capability == "intake":
        raise errors.PlanError(
            f"{source.name} cannot be merged: memories are copied between folders of Claude Code's "
            "memory alone, where each is a file of its own; nothing was changed"
        )
    if capability == "store_making":
        raise errors.UnsafeDeletionError(
            f"memlab cannot create a store of the kind of {source.name}; nothing was written: "
            "restore into the store that they came from, or export them with memlab archive STORE "
            "--export memories.jsonl"
        )
    if capability == "supersession":
        raise errors.PlanError(
            f"a memory of {source.name} cannot supersede another; "
            "shorten or delete load-bearing ones with its system's own tools"
        )
    check_deletable(source)
    raise errors.PlanError(
        f"there is nothing to retire in {source.name}: its agent looks up what it needs, or its "
        "system chooses what a start loads, so only deleting makes that smaller; memlab "
        "compact without --retire shows what that costs"
    )


def check_deletable(source: Capable) -> None:
    """Raise UnsafeDeletionError with the reason if memlab only reads a source."""
    reason = source.read_only_reason
    if reason:
        raise errors.UnsafeDeletionError(reason)


def superseding_id(source: Capable, record: bytes) -> str | None:
    """Return the id of the memory that supersedes the memory of a record.

    For a retired memory this is its own id. Return None for a memory that is not superseded, and in
    a source that can neither supersede nor retire.
    """
    capability = source.supersession or source.retirement
    if capability is None:
        return None
    return capability.superseded_by(record)
