"""Open a store as the kind that its archive records, to read the archive or to restore.

A folder that is no longer recognised as a store can still be restored: its archive names its kind.
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
    archive = archive_of_location(location, digest)
    if archive is None:
        return open_source(location)
    return _source_of_archive(archive, location)


def open_to_restore(location: SourceLike, digest: str = "") -> Source:
    """Return a store like :func:`open_archived`, opened to restore every file of its archive."""
    archive = archive_of_location(location, digest)
    if archive is None:
        return open_source(location).for_restore()
    source = _source_of_archive(archive, location)
    return source.for_restore(archive.folder, archive.path)


def _source_of_archive(archive: FolderArchive, location: SourceLike) -> Source:
    """Return the source of an archive's store; `location` itself if it is that source."""
    if isinstance(location, Source):
        is_same_kind = location.scheme == archive.scheme
        if is_same_kind and location.local_path == archive.folder:
            return location
    text = location.name if isinstance(location, Source) else str(location)
    has_scheme = text.startswith(f"{archive.scheme}:")
    name = f"{archive.scheme}:{archive.folder}" if has_scheme else str(archive.folder)
    source = open_kind(archive.scheme, name)
    # Earlier versions archived a project folder instead of the memory folder inside it.
    is_elsewhere = source.local_path != archive.folder
    if is_elsewhere:
        return source.for_restore(archive.folder, archive.path)
    return source


def archive_of_location(location: SourceLike, digest: str = "") -> FolderArchive | None:
    """Return the archive of the folder that `location` names; None if there is none."""
    named = _named_folder(location)
    if named is None:
        return None
    path, scheme = named
    archives = archives_of(path, scheme)
    if not archives:
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
    source_classes = kinds() if scheme in schemes() else all_kinds()
    folder_classes = {
        name: source_class
        for name, source_class in source_classes.items()
        if issubclass(source_class, FolderSource)
    }
    store_paths = {
        name: Path(source_class(str(path)).path)
        for name, source_class in folder_classes.items()
        if scheme in ("", name)
    }
    archives: list[FolderArchive] = []
    real_paths = [realpath(store_path) for store_path in (path, *store_paths.values())]
    for real_path in dict.fromkeys(real_paths):
        for archive, scheme_of_archive in archives_beside(Path(real_path), list(folder_classes)):
            folder = Path(real_path)
            # The kind may use another path for the same folder, such as a link to it.
            path_of_kind = store_paths.get(scheme_of_archive, path)
            if realpath(path_of_kind) == real_path:
                folder = path_of_kind
            archives.append(FolderArchive(archive, scheme_of_archive, folder))
    return archives


class _NamedFolder(NamedTuple):
    """The path of a folder, and the scheme in its name; the scheme is empty for none."""

    path: Path
    scheme: str


def _named_folder(location: SourceLike) -> _NamedFolder | None:
    """Return the folder that `location` may name; None if it names another kind of store."""
    if isinstance(location, FolderSource):
        text = location.name
    elif isinstance(location, str | PathLike):
        text = fspath(location)
    else:
        return None
    if "://" in text:
        return None
    scheme, colon, path_text = text.partition(":")
    system = system_named(scheme) if colon else None
    if system is None:
        scheme = ""
        path_text = text
    elif not system.kind.is_folder:
        return None
    path = Path(path_text).expanduser()
    try:
        is_file = path.is_file()
    except (OSError, ValueError):
        return None
    return None if is_file else _NamedFolder(path, scheme)
