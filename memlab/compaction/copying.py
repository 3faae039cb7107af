"""Copy the memories of a store into its archive, so that lost ones can be recovered."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memlab.clock import moment_or_now
from memlab.compaction.wire import minute_in_words
from memlab.errors import StoreError
from memlab.evidence.losses import contents_of
from memlab.sources.base import Source
from memlab.sources.opening import SourceLike, open_source
from memlab.sources.readers import StepCallback, no_progress
from memlab.store.archive.content_copies import Counts, copy_contents, keeps_copies
from memlab.store.snapshot import retry_if_changed
from memlab.text import DisplayMixin, TextPage, counted


@dataclass(frozen=True, repr=False)
class Copies(DisplayMixin):
    """Result of :func:`keep_copies`.

    Attributes
    ----------
    store, archive : str
        The store, and the file of its archive.
    at : datetime
        The time of the copy, with a time zone.
    counts : Counts
        The numbers of memories in the store, of new or changed ones, and of copies of memories that
        have changed since or are missing now.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> copies = Copies(
    ...     "notes.db", "notes.db.archive", datetime(2026, 1, 1, tzinfo=UTC), Counts(40, 3, 1)
    ... )
    >>> copies.to_dict()["copied"]
    3
    """

    store: str
    archive: str
    at: datetime
    counts: Counts

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "store": self.store,
            "archive": self.archive,
            "at": self.at.isoformat(),
            **self.counts._asdict(),
        }

    def sheet(self) -> TextPage:
        """Return the printed page."""
        memories, copied, outdated = self.counts
        outdated_copies = counted(outdated, "copies")
        facts = [
            ("copied", f"{counted(copied)}, new or changed, of {memories:,} in the store"),
            ("of before", f"{outdated_copies} of memories that have changed or gone since"),
            ("archive", self.archive),
        ]
        return TextPage(f"copies of {self.store}, {minute_in_words(self.at)}", facts)


def keep_copies(
    store: SourceLike, *, now: datetime | None = None, on_step: StepCallback = no_progress
) -> Copies:
    """Copy new and changed memories of a store into its archive. The store is only read.

    With these copies, :func:`memlab.lost` lists the memories that others delete or empty later, and
    :func:`memlab.compaction.recover` restores them. Equal contents are stored once and compressed.
    Dropping a memory from the archive erases its copies as well.

    Parameters
    ----------
    store : str, Path or Source
        A folder of memories, or a file with ``memory_items``.
    now : datetime, optional
        The time of the copy that the archive records, with a time zone. The current time by
        default.
    on_step : callable, optional
        Progress callback. It is called with the name of each finished step: "begun", "copied",
        "committed".

    Returns
    -------
    Copies
        The numbers of memories and of copies.

    Raises
    ------
    StoreError
        If no copies are kept of stores of this kind.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> [keep_copies(store).counts.copied for _ in range(2)]  # the second time nothing is new
    [480, 0]
    """
    source = open_source(store)
    moment = moment_or_now(now, call="memlab.compaction.keep_copies")
    if not source.is_copied:
        raise StoreError(
            f"copies are kept of folders and of memory_items alone, not of {source.name}; back it "
            "up with the tools of its system"
        )
    archive = source.archive
    archive.check()
    if not keeps_copies(archive):
        _begin_copies(source)
        on_step("begun")

    def copy() -> Counts:
        # The store is not locked, because it is only read.
        with (
            archive.writing() as open_archive,
            open_archive.transaction(),
            source.reading() as reader,
        ):
            counts = copy_contents(open_archive, contents_of(source, reader), moment)
            on_step("copied")
        return counts

    counts = retry_if_changed(copy)
    on_step("committed")
    return Copies(source.name, str(archive.path), moment, counts)


def _begin_copies(source: Source) -> None:
    """Create the archive of a store if there is none, and the table of copies in it.

    The store is locked meanwhile, as for every change that may create an archive.
    """
    store_lock = source.changing()
    with source.archive.changing(store_lock) as opened, opened.archive.transaction():
        opened.archive.format.make_table("copies")
