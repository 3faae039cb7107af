"""Open a store as the kind that its archive records, to read the archive or to restore.

Recognition limits what may be deleted from a folder, and never what may be restored.
"""

from os import PathLike, fspath
from os.path import realpath
from pathlib import Path
from typing import NamedTuple

from memlab.sources.base import Source
from memlab.sources.folder.source import FolderSource
from memlab.sources.opening import (
    SourceLike,
    all_kinds,
    kinds,
    open_kind,
    open_source,
    recognise,
    schemes,
    system_named,
)
from memlab.store.archive.kind import archives_beside, has_deletion


class FolderArchive(NamedTuple):
    """The path of an archive, and the scheme and the folder of its store."""

    path: Path
    scheme: str
    folder: Path


def open_archived(location: SourceLike, digest: str = "") -> Source:
    """Return a store as the kind that its archive records, which may differ from today's.

    Parameters
    ----------
    location : str, Path, SqliteMemoryStore or Source
        The store.
    digest : str, optional
        The beginning of the digest of a deletion, to select one of several archives.
    """
    archive = archive_meant(location, digest)
    if archive is None:
        return open_source(location)
    return _opened(archive, location)


def open_to_restore(location: SourceLike, digest: str = "") -> Source:
    """Return a store like :func:`open_archived`, opened to restore every file of its archive."""
    archive = archive_meant(location, digest)
    if archive is None:
        return open_source(location).for_restore()
    return _opened(archive, location).for_restore(archive.folder, archive.path)


def _opened(archive: FolderArchive, location: SourceLike) -> Source:
    """Return the source of an archive's store; `location` itself if it is that source."""
    if (
        isinstance(location, Source)
        and location.scheme == archive.scheme
        and location.permissions_template == archive.folder
    ):
        return location
    text = location.name if isinstance(location, Source) else str(location)
    has_scheme = text.startswith(f"{archive.scheme}:")
    name = f"{archive.scheme}:{archive.folder}" if has_scheme else str(archive.folder)
    source = open_kind(archive.scheme, name)
    # Earlier versions took a project for its memories: that archive is beside the project.
    is_elsewhere = source.permissions_template != archive.folder
    if is_elsewhere:
        return source.for_restore(archive.folder, archive.path)
    return source


def archive_meant(location: SourceLike, digest: str = "") -> FolderArchive | None:
    """Return the archive of the folder that `location` names; None if there is none."""
    path, scheme = _folder_named(location)
    archives = [] if path is None else archives_of(path, scheme)
    if path is None or not archives:
        return None
    for archive in archives:
        if has_deletion(archive.path, digest):
            return archive
    if not scheme and len({archive.scheme for archive in archives}) > 1:
        recognised = recognise(path)
        scheme = "" if recognised is None else recognised.scheme
    for archive in archives:
        if archive.scheme == scheme:
            return archive
    return archives[0]


def archives_of(path: Path, scheme: str = "") -> list[FolderArchive]:
    """Return the archives of a folder, and of the stores of any kind that are in it."""
    known = kinds() if scheme in schemes() else all_kinds()
    folder_classes = {
        name: source_class
        for name, source_class in known.items()
        if issubclass(source_class, FolderSource)
    }
    store_paths = {
        name: Path(source_class(str(path)).path)
        for name, source_class in folder_classes.items()
        if scheme in ("", name)
    }
    archives: list[FolderArchive] = []
    for folder in dict.fromkeys(map(realpath, (path, *store_paths.values()))):
        for archive, scheme_of_archive in archives_beside(Path(folder), list(folder_classes)):
            # The path that the kind uses for the same folder, such as a link to it.
            path_of_kind = store_paths.get(scheme_of_archive, path)
            is_same = realpath(path_of_kind) == folder
            archives.append(
                FolderArchive(archive, scheme_of_archive, path_of_kind if is_same else Path(folder))
            )
    return archives


def _folder_named(location: SourceLike) -> tuple[Path | None, str]:
    """Return the path if it may be a folder, else None, and the scheme in the name."""
    if isinstance(location, Source):
        location = location.name if isinstance(location, FolderSource) else "://"
    if not isinstance(location, str | PathLike) or "://" in fspath(location):
        return None, ""
    text = fspath(location)
    scheme, colon, path_text = text.partition(":")
    system = system_named(scheme) if colon else None
    if system is None:
        scheme = ""
        path_text = text
    elif not system.kind.is_folder:
        return None, ""
    path = Path(path_text).expanduser()
    try:
        return (None if path.is_file() else path), scheme
    except (OSError, ValueError):
        return None, ""
