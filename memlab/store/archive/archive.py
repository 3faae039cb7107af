"""The archive of a store: finding it, checking it, and opening it to read or to change.

Other packages use an archive by :class:`Archive` alone. The location of its file, its opening and
its format are details of this package.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from memlab.errors import ArchiveError
from memlab.store.archive import identity
from memlab.store.archive.location import (
    ArchiveLocation,
    has_archive,
    location_beside,
    missing_archive,
)
from memlab.store.archive.open_archive import OpenArchive
from memlab.store.archive.opening import (
    ArchivedChange,
    archived_change,
    open_archive,
    read_archive,
)

Result = TypeVar("Result")
AnyWriter = TypeVar("AnyWriter")


class Archive:
    """The archive of a store, which need not exist.

    A source returns it as ``source.archive``. For a ``memory_items`` file without a source,
    :meth:`beside` returns it.

    Parameters
    ----------
    location : ArchiveLocation
        Where the archive is, and how the records of its store are read.

    Examples
    --------
    >>> archive = Archive.beside("/srv/memory.db")
    >>> archive.path.name, archive.exists
    ('memory.db.archive.db', False)
    """

    def __init__(self, location: ArchiveLocation) -> None:
        self.location: Final = location

    @classmethod
    def beside(cls, store: Path | str) -> "Archive":
        """Return the archive of a ``memory_items`` file."""
        return cls(location_beside(store))

    @property
    def path(self) -> Path:
        """File of the archive."""
        return self.location.path

    @property
    def exists(self) -> bool:
        """Whether the store has an archive.

        Raise ArchiveError if the file at its path cannot be an archive of this store.
        """
        return has_archive(self.location)

    def check(self) -> None:
        """Raise ArchiveError if the archive is not this store's.

        An archive records a sample of the memories that stayed. It belongs to the store if the
        store still has some of them. The error is also raised if there is no archive, but the store
        was renamed and left its archive under the former name.
        """
        if not self.exists:
            self._check_not_renamed()
        elif self.location.has_identity_sample:
            read_archive(self.location, identity.check_is_of_store)

    def read(self, read: Callable[[OpenArchive], Result]) -> Result:
        """Call a function on the archive, opened for reading, and return its result.

        Everything is read from one state of the archive. No file is created beside it. Warn about
        damaged parts, which are left out.

        Parameters
        ----------
        read : callable
            Takes the open archive.

        Raises
        ------
        ArchiveError
            If there is no archive, or one that cannot be read.
        """
        self._require()
        return read_archive(self.location, read)

    @contextmanager
    def writing(self) -> Iterator[OpenArchive]:
        """Open an existing archive for reading and writing.

        Raises
        ------
        ArchiveError
            If there is no archive, or one that cannot be opened.
        """
        self._require()
        with open_archive(self.location) as archive:
            yield archive

    @contextmanager
    def changing(
        self, change: AbstractContextManager[AnyWriter]
    ) -> Iterator[ArchivedChange[AnyWriter]]:
        """Check the archive, then open the store for a change together with it.

        The archive is created if there is none. It stays open until the store has committed, so
        that the commit can be recorded in it.

        Parameters
        ----------
        change : context manager
            Locks the store and opens it for the change.

        Raises
        ------
        ArchiveError
            If the archive is not this store's, or cannot be opened or created.
        """
        self.check()
        with archived_change(self.location, change) as opened:
            yield opened

    def former_archive(self) -> Path | None:
        """Find the archive that a renamed store left under its former name; None if none."""
        return identity.archive_of_other_name(self.location)

    def archives_of_missing_folders(self) -> list[Path]:
        """Return the archives of missing folders that had the same name as this store.

        This store may be one of these folders, moved to another place.
        """
        return identity.archives_of_missing_folders(self.location)

    def _require(self) -> None:
        """Raise ArchiveError if there is no archive."""
        if not self.exists:
            self._check_not_renamed()
            raise missing_archive(self.location)

    def _check_not_renamed(self) -> None:
        """Raise ArchiveError if a store without an archive left it under a former name."""
        former_archive = self.former_archive()
        if former_archive is not None:
            raise ArchiveError(
                f"{former_archive} is the archive of this store, which had another name; nothing "
                f"was changed: rename it to {self.path}"
            )
