"""The records of copies of a deletion, read again on each iteration. Standard library only."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from memlab.errors import ArchiveError
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.schema import Copy, Entry, Key


class CopiedRecords:
    """Records of some copies of a deletion; each iteration reads them from the archive again.

    Parameters
    ----------
    archive : OpenArchive
        The open archive.
    entry : Entry
        The deletion.
    copies : sequence of Copy
        The copies, in the order in which they were made.
    """

    def __init__(self, archive: OpenArchive, entry: Entry, copies: Sequence[Copy]) -> None:
        self.entry: Final = entry
        self.copies: Final = copies
        # The name is not `keys`, because `dict` treats an object with `keys` as a mapping.
        self.copied_keys: Final = [copy.key for copy in copies]
        self._archive: Final = archive

    def __iter__(self) -> Iterator[tuple[Key, bytes]]:
        """Yield pairs of a key and a record, in order, without checking the records.

        Exhaust :meth:`iter_checked` or call :meth:`check` first.
        """
        return self._archive.records(self.entry, self.copied_keys, are_checked=True)

    def with_keys(self, keys: Collection[Key]) -> "CopiedRecords":
        """Return the records of the copies with these keys."""
        copies = [copy for copy in self.copies if copy.key in keys]
        return CopiedRecords(self._archive, self.entry, copies)

    def iter_checked(self) -> Iterator[tuple[Key, bytes]]:
        """Yield the undamaged records. Raise ArchiveError at the end if one was damaged."""
        count = 0
        for keyed_record in self._archive.records(self.entry, self.copied_keys):
            yield keyed_record
            count += 1
        if count != len(self.copied_keys):
            raise damaged(self._archive)

    def check(self, rest: Iterable[object] | None = None) -> None:
        """Check the records that `rest`, an iterator of :meth:`iter_checked`, has not yielded yet.

        Check all records by default.
        """
        unchecked = self.iter_checked() if rest is None else rest
        deque(unchecked, maxlen=0)


def damaged(archive: OpenArchive) -> ArchiveError:
    """Return the error to raise if copies that are to be restored are damaged."""
    return ArchiveError(
        f"{archive.describe_faults()}; nothing was restored: restore the others by id, or a backup "
        "of the archive"
    )
