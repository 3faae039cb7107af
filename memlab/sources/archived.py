"""Opening a store by the kind that its archive noted, to look into it or to put memories back.

Recognition limits what may be taken out of a folder, never what may be put back into it.
"""

from os import PathLike, fspath
from os.path import realpath
from pathlib import Path
from typing import NamedTuple

from memlab.sources.base import Source
from memlab.sources.folder.source import FolderSource
from memlab.sources.opening import SourceLike, kinds, open_kind, open_source, recognise, schemes
from memlab.store.archive.kind import archives_beside, has_deletion


class FolderArchive(NamedTuple):
    """An archive of a folder, and the kind of store that it was begun for."""

    path: Path
    scheme: str
    folder: Path


def open_archived(where: SourceLike, digest: str = "") -> Source:
    """Return a store as the kind that its archive noted, whatever it is recognised as today.

    Parameters
    ----------
    where : str, Path, SqliteMemoryStore or Source
        The store.
    digest : str, optional
        The beginning of the digest of a deletion, where a folder has several archives.
    """
    found = archive_meant(where, digest)
    return open_source(where) if found is None else _opened(found, where)


def open_to_restore(where: SourceLike, digest: str = "") -> Source:
    """Return a store as :func:`open_archived` does, to put back every file in its archive."""
    found = archive_meant(where, digest)
    if found is None:
        return open_source(where).putting_back()
    return _opened(found, where).putting_back(found.folder, found.path)


def _opened(found: FolderArchive, where: SourceLike) -> Source:
    if (
        isinstance(where, Source)
        and where.scheme == found.scheme
        and where.permissions_template == found.folder
    ):
        return where
    text = where.name if isinstance(where, Source) else str(where)
    is_named = text.startswith(f"{found.scheme}:")
    name = f"{found.scheme}:{found.folder}" if is_named else str(found.folder)
    source = open_kind(found.scheme, name)
    # A project was once taken for its own memories: its archive lies beside the project.
    is_elsewhere = source.permissions_template != found.folder
    return source.putting_back(found.folder, found.path) if is_elsewhere else source


def archive_meant(where: SourceLike, digest: str = "") -> FolderArchive | None:
    """Return the archive of a folder that a name means; None where there is none."""
    path, named = _folder_named(where)
    found = [] if path is None else archives_of(path, named)
    if path is None or not found:
        return None
    for archive in found:
        if has_deletion(archive.path, digest):
            return archive
    if not named and len({archive.scheme for archive in found}) > 1:
        seen = recognise(path)
        named = "" if seen is None else seen.scheme
    return next((archive for archive in found if archive.scheme == named), found[0])


def archives_of(path: Path, scheme: str = "") -> list[FolderArchive]:
    """Return the archives of a folder, and of the folders that a kind of store finds in it."""
    classes = {name: kind for name, kind in kinds().items() if issubclass(kind, FolderSource)}
    meant = {
        name: Path(kind(str(path)).path) for name, kind in classes.items() if scheme in ("", name)
    }
    found: list[FolderArchive] = []
    for folder in dict.fromkeys(map(realpath, (path, *meant.values()))):
        for archive, kind in archives_beside(Path(folder), list(classes)):
            # The same folder by the name that its kind has for it, such as a link.
            named = meant.get(kind, path)
            is_same = realpath(named) == folder
            found.append(FolderArchive(archive, kind, named if is_same else Path(folder)))
    return found


def _folder_named(where: SourceLike) -> tuple[Path | None, str]:
    """Return the path of what may be a folder, and the scheme that it was named by."""
    if isinstance(where, Source):
        where = where.name if isinstance(where, FolderSource) else "://"
    if not isinstance(where, str | PathLike) or "://" in fspath(where):
        return None, ""
    text = fspath(where)
    scheme, colon, rest = text.partition(":")
    known = schemes() if colon else {}
    if scheme in known and not known[scheme].kind.is_folder:
        return None, ""
    path = Path(rest if scheme in known else text).expanduser()
    try:
        return (None if path.is_file() else path), (scheme if scheme in known else "")
    except (OSError, ValueError):
        return None, ""
