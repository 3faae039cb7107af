"""Keep an archive inside a git work tree out of commits."""

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from memlab.files import make_like, ordinary_file
from memlab.store.archive.location import SUFFIX
from memlab.text import in_shell

IGNORE: Final = ".gitignore"
_MADE_BY: Final = "# Made by memlab, for archives of what was deleted from the stores beside it.\n"
_LINES: Final = f"{_MADE_BY}/*{SUFFIX}\n/*{SUFFIX}-*\n/{IGNORE}\n"
"""Content of a ``.gitignore`` made by memlab: archives, their SQLite journals, the file itself."""
_WITHIN: Final = 10.0
"""Seconds to wait for git, which would never return for a pipe in its folder."""
_PAUSE: Final = 60.0
"""Seconds for which git is not asked again in a folder where it gave no answer."""
_UNANSWERED: Final[dict[Path, float]] = {}
"""Time of the last question without an answer, by folder."""
_OPTIONS: Final = (
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "safe.bareRepository=explicit",
)
_USER_CONFIG: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Variables of git that stay set."""


def keep_out_of_git(archive: Path, like: Path | None) -> Path | None:
    """Create a ``.gitignore`` beside an archive that git would commit; return it if it is new.

    An existing ``.gitignore`` is left alone. :func:`git_words` then names the line to add.
    """
    ignore = archive.with_name(IGNORE)
    if _root_of(archive) is None or os.path.lexists(ignore) or _is_ignored(archive):
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(ignore, flags, 0o600)
    except OSError:  # git_words reports that git does not ignore the archive
        return None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_LINES)
        owner = archive.parent.stat() if like is None else like.stat()
        make_like(file.fileno(), (owner.st_uid, owner.st_gid), 0o644)
    return ignore


def git_words(archive: Path) -> tuple[str, bool]:
    """Describe how git treats an archive, and return whether it leaves it out of commits.

    The text is empty if the archive is in no work tree.
    """
    root = _root_of(archive)
    if root is None:
        return "", True
    if _is_tracked(archive):
        untrack = in_shell("git", "-C", str(root), "rm", "--cached", str(archive))
        words = (
            f"git tracks it in {root}, so that the next commit takes in what was deleted: "
            f"{untrack} ends that, and what is committed stays in the history"
        )
        return words, False
    if _is_ignored(archive):
        return f"git ignores it in {root}, and git clean -x deletes it there", True
    line = f"/{archive.name}*"
    words = (
        f"git does not ignore it in {root}, so that git add -A takes in what was deleted: add the "
        f"line {line} to {archive.with_name(IGNORE)}"
    )
    return words, False


def _root_of(archive: Path) -> Path | None:
    """Return the top folder of the work tree around an archive; None if there is none."""
    if ".git" in archive.parts:
        return None
    for folder in archive.parents:
        if os.path.lexists(folder / ".git"):
            return folder
    return None


def _is_ignored(archive: Path) -> bool:
    """Return whether git ignores an archive; False if git gives no answer."""
    with suppress(OSError), ordinary_file(archive.with_name(IGNORE), follow_links=False) as file:
        if file.read() == _LINES.encode():
            return True
    return _git_succeeds(archive, "check-ignore", "--quiet", "--no-index", "--", str(archive))


def _is_tracked(archive: Path) -> bool:
    """Return whether git has an archive in its index; False if git gives no answer.

    It has one that was committed before it was ignored, and goes on to commit it.
    """
    name = f":(literal){archive.name}"
    return _git_succeeds(archive, "ls-files", "--error-unmatch", "--", name)


def _git_succeeds(archive: Path, *arguments: str) -> bool:
    """Run git in the folder of an archive; return whether it ends without an error in time."""
    folder = archive.parent
    is_silent = time.monotonic() < _UNANSWERED.get(folder, -_PAUSE) + _PAUSE
    git = shutil.which("git")
    if git is None or is_silent:
        return False
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _USER_CONFIG
    }
    command = [git, "-C", str(folder), *_OPTIONS, *arguments]
    try:
        result = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            timeout=_WITHIN,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        _UNANSWERED[folder] = time.monotonic()
        return False
    except OSError:
        return False
    return result.returncode == 0
