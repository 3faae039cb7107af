"""Converting the archive of a store into the newest format, once somebody asks for it."""

import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from memlab.compaction.archive_views import look_into
from memlab.errors import ArchiveError
from memlab.sources.base import Source, archive_at
from memlab.sources.opening import SourceLike, open_source
from memlab.store.archive import formats
from memlab.store.archive.archive import Archive
from memlab.store.archive.conversion import room_for, upgrade
from memlab.store.archive.opening import check_not_renamed, open_archive
from memlab.text import DisplayMixin, TextPage, counted, in_bytes

_OLDER: Final = (
    "one that knows format {} alone will not read it, nor delete from this store: update every "
    "runtime that writes here first"
)


@dataclass(frozen=True, repr=False)
class ArchiveUpgrade(DisplayMixin):
    """What converting an archive does, or has done.

    Parameters
    ----------
    store, archive : str
        The store, and the file of its archive.
    format, newest : int
        The format that the archive is written in, and the newest one.
    memories : int
        How many copies it has.
    size, size_after : int
        Bytes of the file before, and after; 0 where nothing was converted.
    meanwhile, free : int
        Up to how many bytes it takes beside the file while it converts, and how many are free.
    """

    store: str
    archive: str
    format: int
    newest: int
    memories: int
    size: int
    meanwhile: int
    free: int
    size_after: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the archive is in the newest format already."""
        return self.format >= self.newest

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "store": self.store,
            "archive": self.archive,
            "format": self.format,
            "newest": self.newest,
            "memories": self.memories,
            "bytes": self.size,
            "bytes_meanwhile": self.meanwhile,
            "bytes_free": self.free,
            "bytes_after": self.size_after or None,
        }

    def sheet(self) -> TextPage:
        """Return what is printed."""
        facts = [
            ("format", f"{self.format}; the newest is {self.newest}"),
            ("holds", counted(self.memories)),
            ("size", in_bytes(self.size)),
        ]
        if self.size_after:
            facts.append(("size now", in_bytes(self.size_after)))
        elif not self.is_empty:
            room = f"up to {in_bytes(self.meanwhile)} beside it, {in_bytes(self.free)} are free"
            facts.append(("room meanwhile", room))
            facts.append(("older memlab", _OLDER.format(self.format)))
        return TextPage(f"upgrade {self.archive}", facts)


def what_upgrades(store: SourceLike) -> ArchiveUpgrade:
    """Say what :func:`upgrade_archive` would do. Reads only.

    Parameters
    ----------
    store : str, Path or Source
        The store.

    Raises
    ------
    ArchiveError
        When it has no archive, or one that cannot be read.
    """
    source = open_source(store)
    return look_into(source, lambda archive: _upgrade_of(source, archive))


def upgrade_archive(store: SourceLike) -> ArchiveUpgrade:
    """Convert the archive of a store into the newest format, whole or not at all.

    Without it an archive is read and added to in the format that it has. A memlab that knows only
    older formats refuses to read the archive afterwards, and deletes nothing from its store.

    Parameters
    ----------
    store : str, Path or Source
        The store. Its memories are not touched.

    Raises
    ------
    ArchiveError
        When it has no archive, or one in which a copy is damaged. Nothing is changed.
    """
    source = open_source(store)
    location = archive_at(source)
    check_not_renamed(location)
    is_lost = source.permissions_template is not None and not source.permissions_template.exists()
    # Under the store's lock nobody's apply is between its copies and its deletion.
    with open_archive(location) as archive, nullcontext() if is_lost else source.changing():
        found = _upgrade_of(source, archive)
        if found.is_empty:
            return found
        if found.free < found.meanwhile:
            raise ArchiveError(
                f"{found.archive} takes up to {in_bytes(found.meanwhile)} while it is converted, "
                f"and {in_bytes(found.free)} are free; nothing was changed: free some and try again"
            )
        upgrade(archive)
    with open_archive(location) as archive:
        return ArchiveUpgrade(
            store=found.store,
            archive=found.archive,
            format=found.format,
            newest=found.newest,
            memories=found.memories,
            size=found.size,
            meanwhile=found.meanwhile,
            free=found.free,
            size_after=room_for(archive).now,
        )


def _upgrade_of(source: Source, archive: Archive) -> ArchiveUpgrade:
    room = room_for(archive)
    return ArchiveUpgrade(
        store=source.name,
        archive=str(archive.path),
        format=archive.format.number,
        newest=formats.FORMAT.number,
        memories=sum(entry.left for entry in archive.entries()),
        size=room.now,
        meanwhile=room.meanwhile,
        free=shutil.disk_usage(archive.path.parent).free,
    )
