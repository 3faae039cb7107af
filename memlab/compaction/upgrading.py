"""Convert the archive of a store to the newest format, on request."""

import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from memlab.compaction.archive_views import read_archive_of
from memlab.errors import ArchiveError
from memlab.sources.base import Source
from memlab.sources.opening import SourceLike, open_source
from memlab.store.archive import formats
from memlab.store.archive.conversion import space_for, upgrade
from memlab.store.archive.open_archive import OpenArchive
from memlab.text import DisplayMixin, TextPage, counted, in_bytes

_OLDER_VERSIONS: Final = (
    "a memlab that knows only format {} can neither read it nor delete from this store: update "
    "every runtime that writes here first"
)
"""Note on older versions of memlab, with the present format of the archive to insert."""


@dataclass(frozen=True, repr=False)
class ArchiveUpgrade(DisplayMixin):
    """Conversion of an archive, before or after it is done.

    Attributes
    ----------
    store, archive : str
        The store, and the file of its archive.
    format, newest_format : int
        The format of the archive, and the newest format.
    memories : int
        The number of copies.
    size, size_after : int
        The size of the file before and after, in bytes; 0 after if nothing was converted.
    bytes_needed, bytes_free : int
        The space that the conversion needs beside the file at most, and the free space, in bytes.

    Examples
    --------
    >>> upgrade = ArchiveUpgrade(
    ...     store="notes.db",
    ...     archive="notes.db.archive",
    ...     format=2,
    ...     newest_format=3,
    ...     memories=40,
    ...     size=9000,
    ...     bytes_needed=18000,
    ...     bytes_free=10**9,
    ... )
    >>> upgrade.is_empty
    False
    """

    store: str
    archive: str
    format: int
    newest_format: int
    memories: int
    size: int
    bytes_needed: int
    bytes_free: int
    size_after: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the archive has the newest format already."""
        return self.format >= self.newest_format

    def to_dict(self) -> dict[str, Any]:
        """Return the conversion as JSON values."""
        return {
            "store": self.store,
            "archive": self.archive,
            "format": self.format,
            "newest_format": self.newest_format,
            "memories": self.memories,
            "bytes": self.size,
            "bytes_needed": self.bytes_needed,
            "bytes_free": self.bytes_free,
            "bytes_after": self.size_after or None,
        }

    def sheet(self) -> TextPage:
        """Return the printed page."""
        facts = [
            ("format", f"{self.format}; the newest is {self.newest_format}"),
            ("holds", counted(self.memories)),
            ("size", in_bytes(self.size)),
        ]
        if self.size_after:
            facts.append(("size now", in_bytes(self.size_after)))
        elif not self.is_empty:
            needed = in_bytes(self.bytes_needed)
            free = in_bytes(self.bytes_free)
            facts.append(("space needed", f"up to {needed} beside it, {free} are free"))
            facts.append(("older memlab", _OLDER_VERSIONS.format(self.format)))
        return TextPage(f"upgrade {self.archive}", facts)


def plan_upgrade(store: SourceLike) -> ArchiveUpgrade:
    """Plan the conversion of :func:`upgrade_archive`. The archive is only read.

    Parameters
    ----------
    store : str, Path or Source
        The store.

    Returns
    -------
    ArchiveUpgrade
        The formats, the sizes and the space that is needed.

    Raises
    ------
    ArchiveError
        If there is no archive, or one that cannot be read.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> _ = memlab.compaction.keep_copies(store)
    >>> plan_upgrade(store).is_empty  # a new archive has the newest format
    True
    """
    source = open_source(store)
    return read_archive_of(source, lambda archive: _upgrade_of(source, archive))


def upgrade_archive(store: SourceLike) -> ArchiveUpgrade:
    """Convert the archive of a store to the newest format, in one transaction.

    An archive that is not converted is read and added to in its own format. After the conversion, a
    memlab that knows only older formats refuses to read the archive and deletes nothing from its
    store.

    Parameters
    ----------
    store : str, Path or Source
        The store. Its memories are not touched.

    Returns
    -------
    ArchiveUpgrade
        The conversion, with the size afterwards.

    Raises
    ------
    ArchiveError
        If there is no archive, or if a copy in it is damaged. Nothing is changed.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.copy_store(memlab.store_path("looked_up"), "memory.db")
    >>> _ = memlab.compaction.keep_copies(store)
    >>> upgrade_archive(store).size_after  # 0, as it has the newest format already
    0
    """
    source = open_source(store)
    is_lost = source.local_path is not None and not source.local_path.exists()
    with source.archive.writing() as archive:
        # While the store is locked, no plan is between its copies and its deletion.
        store_lock = nullcontext() if is_lost else source.changing()
        with store_lock:
            conversion = _upgrade_of(source, archive)
            if conversion.is_empty:
                return conversion
            _check_space(conversion)
            upgrade(archive)
    with source.archive.writing() as archive:
        return replace(conversion, size_after=space_for(archive).size)


def _check_space(conversion: ArchiveUpgrade) -> None:
    """Raise ArchiveError if the disk has no room for a conversion."""
    if conversion.bytes_free < conversion.bytes_needed:
        needed = in_bytes(conversion.bytes_needed)
        free = in_bytes(conversion.bytes_free)
        raise ArchiveError(
            f"{conversion.archive} takes up to {needed} while it is converted, and "
            f"{free} are free; nothing was changed: free some and try again"
        )


def _upgrade_of(source: Source, archive: OpenArchive) -> ArchiveUpgrade:
    """Return the conversion that an archive needs."""
    space = space_for(archive)
    return ArchiveUpgrade(
        store=source.name,
        archive=str(archive.path),
        format=archive.format.number,
        newest_format=formats.FORMAT.number,
        memories=sum(entry.copies for entry in archive.entries()),
        size=space.size,
        bytes_needed=space.extra,
        bytes_free=shutil.disk_usage(archive.path.parent).free,
    )
