"""What some sources can do besides: supersede, tell more of themselves, be adjusted, be examined.

Each is a protocol of its own that a source has or has not; whoever needs one asks with
``isinstance``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from memlab.settings import Settings
from memlab.sources.base import Key, Rows, Writer
from memlab.store.archive_entries import Witness
from memlab.store.other_tables import Written


class Superseder(Writer, Protocol):
    """A source in which what stands for a memory is being changed."""

    def supersede(self, links: Mapping[Key, str | None]) -> int:
        """Let other memories stand for some, or none for them again, and verify it.

        Parameters
        ----------
        links : mapping of Key to str or None
            The id of the memory that stands for each; None for none.

        Returns
        -------
        int
            How many were changed: all of `links`.

        Raises
        ------
        CompactionError
            When anything else would have changed. Nothing is.
        """
        ...


@runtime_checkable
class Superseding(Protocol):
    """A source in which one memory can stand for another, which stays and is not loaded."""

    def superseding(self) -> AbstractContextManager[Superseder]:
        """Open the source as :meth:`Source.changing` does."""
        ...

    def superseded_by(self, record: bytes) -> str | None:
        """Return the id of the memory that stands for this one."""
        ...


@runtime_checkable
class LeavesRows(Protocol):
    """A writer that puts back with a memory what else it can of what went with it.

    Attributes
    ----------
    rows_left_out : mapping of str to int
        By table, how many rows the last :meth:`Writer.insert` could not put back.
    """

    rows_left_out: Mapping[str, int]


@runtime_checkable
class Printing(Protocol):
    """A reader that tells fingerprints without a record for each."""

    def printed(self, *, with_body: bool) -> Iterator[Rows]:
        """Yield every memory as :meth:`Reader.batches` does, with fingerprints where it can.

        Tables have the column :data:`memlab.sources.tables.FINGERPRINT`, or none where no memory's
        is told. Whose is told has no part in its record that mere use changes.
        """
        ...

    def prints(self, keys: Iterable[Key], *, lasting: bool = False) -> Iterator[tuple[Key, str]]:
        """Yield the fingerprints of the records of those of `keys` that are there, in order.

        Parameters
        ----------
        keys : iterable of Key
            Addresses of memories.
        lasting : bool
            Of what of a record mere use does not change, as :meth:`Source.lasting` returns it.
        """
        ...


@runtime_checkable
class AmongOthers(Protocol):
    """A reader of a file in which an agent keeps tables of its own."""

    def written_with(self, keys: Iterable[Key]) -> tuple[Written, ...]:
        """Return what triggers do to other tables when these memories are deleted.

        Raises
        ------
        UnsafeDeletionError
            When that costs them rows that nothing brings back.
        """
        ...


@runtime_checkable
class Identified(Protocol):
    """A writer that can tell its store from another of the same name."""

    def witnesses(self, leaving: Iterable[Key]) -> list[Witness]:
        """Return a few memories that stay when those at some keys are deleted."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A source that has more to say of itself than its frame holds."""

    def about(self) -> Any:
        """Return a page that shows itself, a dataclass of facts."""
        ...


class Trouble(NamedTuple):
    """Something about a store that its owner could mend.

    Attributes
    ----------
    name : str
        What was looked at, in a word.
    found : int
        How many memories or lines it is about; 0 when all is well.
    summary, advice : str
        What was found, and what to do.
    """

    name: str
    found: int
    summary: str
    advice: str


@runtime_checkable
class Examined(Protocol):
    """A source that knows what can be wrong with a store of its kind."""

    def troubles(self) -> Sequence[Trouble]:
        """Return what was looked at, found or not."""
        ...


@runtime_checkable
class Adjustable(Protocol):
    """A source of which a person can choose more than its protected tags."""

    def adjust(self, settings: Settings) -> None:
        """Take what was chosen, and leave the rest as it is."""
        ...


@runtime_checkable
class SettingOnly(Protocol):
    """A source that memlab never deletes from: its cap is a setting of its own."""

    name: str
    like: Path | None

    def cap_now(self) -> int:
        """Return the cap that the setting has today."""
        ...

    def instead(self, keep: int) -> list[str]:
        """Return the lines that say what to do with a cap."""
        ...
