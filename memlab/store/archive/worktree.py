"""Functions that keep an archive in a git work tree out of commits."""

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from memlab.files import make_like, ordinary_file
from memlab.store.archive.location import SUFFIX
from memlab.text import in_shell

IGNORE: Final = ".gitignore"
_IGNORE_HEADER: Final = (
    "# Made by memlab, for archives of what was deleted from the stores beside it.\n"
)
_IGNORE_TEXT: Final = f"{_IGNORE_HEADER}/*{SUFFIX}\n/*{SUFFIX}-*\n/{IGNORE}\n"
"""Content of a ``.gitignore`` made by memlab.

It names archives, their SQLite journals, and the file itself."""
_GIT_TIMEOUT: Final = 10.0
"""Seconds to wait for git, which does not end if one of the files that it reads is a pipe."""
_RETRY_AFTER: Final = 60.0
"""Seconds for which git is not run again in a folder where it timed out."""
_TIMED_OUT_AT: Final[dict[Path, float]] = {}
"""Time of the last timeout of git, by folder."""
_GIT_OPTIONS: Final = (
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "safe.bareRepository=explicit",
)
"""Options with which git writes nothing and runs no program that the work tree names."""
_KEPT_VARIABLES: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Environment variables of git that stay set. All others that begin with ``GIT_`` are removed."""


def keep_out_of_git(archive: Path, store: Path | None) -> Path | None:
    """Create a ``.gitignore`` beside an archive that git would commit.

    An existing ``.gitignore`` is not changed. :func:`git_status_of` then names the line to add.

    Parameters
    ----------
    archive : Path
        The archive.
    store : Path or None
        The file or folder of the store, whose owner the file gets; None for a server.

    Returns
    -------
    Path or None
        The created file; None if none was created.
    """
    ignore = archive.with_name(IGNORE)
    if _root_of(archive) is None or os.path.lexists(ignore) or _is_ignored(archive):
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(ignore, flags, 0o600)
    except OSError:  # git_status_of reports that git does not ignore the archive
        return None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_IGNORE_TEXT)
        owner_status = archive.parent.stat() if store is None else store.stat()
        make_like(file.fileno(), (owner_status.st_uid, owner_status.st_gid), 0o644)
    return ignore


class GitStatus(NamedTuple):
    """How git treats an archive.

    Attributes
    ----------
    message : str
        A description; empty if the archive is in no work tree.
    stays_out : bool
        Whether git leaves the archive out of commits.
    """

    message: str
    stays_out: bool


def git_status_of(archive: Path) -> GitStatus:
    """Ask git whether it tracks or ignores an archive."""
    root = _root_of(archive)
    if root is None:
        return GitStatus("", stays_out=True)
    if _is_tracked(archive):
        untrack = in_shell("git", "-C", str(root), "rm", "--cached", str(archive))
        message = (
            f"git tracks it in {root}, so that the next commit includes the deleted memories: "
            f"{untrack} ends that, and what is committed stays in the history"
        )
        return GitStatus(message, stays_out=False)
    if _is_ignored(archive):
        message = f"git ignores it in {root}, and git clean -x deletes it there"
        return GitStatus(message, stays_out=True)
    line = f"/{archive.name}*"
    message = (
        f"git does not ignore it in {root}, so that git add -A includes the deleted memories: add "
        f"the line {line} to {archive.with_name(IGNORE)}"
    )
    return GitStatus(message, stays_out=False)


def _root_of(archive: Path) -> Path | None:
    """Return the top folder of the work tree around an archive; None if there is none."""
    if ".git" in archive.parts:
        return None
    for folder in archive.parents:
        if os.path.lexists(folder / ".git"):
            return folder
    return None


def _is_ignored(archive: Path) -> bool:
    """Return whether git ignores an archive; False if git fails or times out."""
    with suppress(OSError), ordinary_file(archive.with_name(IGNORE), follow_links=False) as file:
        if file.read() == _IGNORE_TEXT.encode():
            return True
    return _git_succeeds(archive, "check-ignore", "--quiet", "--no-index", "--", str(archive))


def _is_tracked(archive: Path) -> bool:
    """Return whether git has an archive in its index; False if git fails or times out.

    An archive that was committed before it was ignored is in the index, and git still commits it.
    """
    name = f":(literal){archive.name}"
    return _git_succeeds(archive, "ls-files", "--error-unmatch", "--", name)


def _git_succeeds(archive: Path, *arguments: str) -> bool:
    """Run git in the folder of an archive; return False if it fails or times out."""
    folder = archive.parent
    timed_out_at = _TIMED_OUT_AT.get(folder)
    if timed_out_at is not None and time.monotonic() < timed_out_at + _RETRY_AFTER:
        return False
    git = shutil.which("git")
    if git is None:
        return False
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES
    }
    command = [git, "-C", str(folder), *_GIT_OPTIONS, *arguments]
    try:
        result = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            timeout=_GIT_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        _TIMED_OUT_AT[folder] = time.monotonic()
        return False
    except OSError:
        return False
    return result.returncode == 0
