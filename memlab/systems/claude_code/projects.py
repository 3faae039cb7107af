"""Find the project of a memory folder: by its transcripts, or by the name of its folder.

Claude Code keeps the memory of a project in ``projects/NAME/memory``. NAME is the path of the
project with each character that is no letter or digit replaced by ``-``, so it may stand for
several paths. Transcripts beside the memory have the path itself.
"""

import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from memlab.files import ordinary_file
from memlab.sources.checkouts import Project
from memlab.systems.claude_code.view import is_of_project

_MAX_TRANSCRIPTS: Final = 5
"""Maximum number of transcripts of a project that are looked at, the newest first."""
_BEGINNING: Final = 2**18
"""Number of bytes at the beginning of a transcript that are looked at."""
_MAX_ENTRIES: Final = 20_000
"""Maximum number of folder entries that are compared with a name."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9]")


def project_of(folder: Path, root: Path = Path("/")) -> Project | None:
    """Return the project of a memory folder.

    Parameters
    ----------
    folder : Path
        The memory folder.
    root : Path
        The folder below which paths are looked for.

    Returns
    -------
    Project or None
        The project; one without a path if no path fits the name of its folder. None if the
        folder is not that of a project, or if several paths fit.
    """
    if not is_of_project(folder):
        return None
    name = folder.parent.name
    for path in _paths_in_transcripts(folder.parent):
        if project_name(path) == name:
            return Project.at(Path(path))
    if not name.startswith("-"):
        return None  # a path of another system
    try:
        paths = list(_paths_named(name, root, itertools.count(1)))
    except OSError:
        return None
    if not paths:
        return Project(path="", is_missing=True)
    return Project.at(paths[0]) if len(paths) == 1 else None


def project_name(path: str) -> str:
    """Return the name of the folder in which Claude Code keeps the data of a project.

    >>> project_name("/srv/my.app")
    '-srv-my-app'
    """
    return _NOT_IN_NAMES.sub("-", path)


def _paths_in_transcripts(project: Path) -> Iterator[str]:
    """Yield the working directories at the beginning of the newest transcripts of a project."""
    transcripts: list[tuple[int, str]] = []
    with suppress(OSError), os.scandir(project) as entries:
        transcripts = [
            (entry.stat(follow_symlinks=False).st_mtime_ns, entry.path)
            for entry in entries
            if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)
        ]
    for _, path in sorted(transcripts, reverse=True)[:_MAX_TRANSCRIPTS]:
        for line in _beginning_of(path).split(b"\n"):
            directory = _directory_in(line)
            if directory:
                yield directory


def _beginning_of(path: str) -> bytes:
    """Return the beginning of a regular file; empty if it cannot be read."""
    with suppress(OSError), ordinary_file(path, max_bytes=sys.maxsize, follow_links=False) as file:
        return file.read(_BEGINNING)
    return b""


def _directory_in(line: bytes) -> str:
    """Return the working directory in a line of a transcript; empty for none."""
    if b'"cwd"' not in line:
        return ""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):  # the last line is cut
        return ""
    directory = fields.get("cwd") if isinstance(fields, dict) else None
    is_path = isinstance(directory, str) and directory.startswith("/") and "\0" not in directory
    return str(directory) if is_path else ""


def _paths_named(name: str, folder: Path, entry_numbers: Iterator[int]) -> Iterator[Path]:
    """Yield the folders whose path below a folder, encoded as :func:`project_name` does, is `name`.

    `entry_numbers` counts the entries that one search reads. Raise OSError if a folder on the way
    cannot be read, or if there are too many entries.
    """
    with os.scandir(folder) as entries:
        candidates = []
        for entry in entries:
            if next(entry_numbers) > _MAX_ENTRIES:
                raise OSError(f"{folder} has too many entries")
            encoded_name = f"-{project_name(entry.name)}"
            if name == encoded_name or name.startswith(f"{encoded_name}-"):
                candidates.append((entry.name, name[len(encoded_name) :], entry.is_dir()))
    for entry_name, remaining_name, is_folder in sorted(candidates):
        if not remaining_name and is_folder:
            yield folder / entry_name
        elif is_folder:
            yield from _paths_named(remaining_name, folder / entry_name, entry_numbers)
