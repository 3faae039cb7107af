"""An archive inside a git work tree: ignored there, so that no commit takes in what was deleted."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from memlab.files import make_like
from memlab.store.archive.location import SUFFIX

IGNORE: Final = ".gitignore"
_MADE_BY: Final = "# Made by memlab, for archives of what was deleted from the stores beside it.\n"
_LINES: Final = f"{_MADE_BY}/*{SUFFIX}\n/*{SUFFIX}-*\n/{IGNORE}\n"
"""The whole of a file of memlab's own: archives there, SQLite's journals of them, and itself."""
_WITHIN: Final = 10.0
"""Seconds that git has to answer: a pipe in its folder never ends."""
_OPTIONS: Final = (
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "safe.bareRepository=explicit",
)
_PERSONS_OWN: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")


def keep_out_of_git(archive: Path, like: Path | None) -> Path | None:
    """Make a ``.gitignore`` beside an archive that git would take in; return it if it is new.

    One that is there already is somebody else's, and is left alone: :func:`git_words` says then
    which line to add to it.
    """
    ignore = archive.with_name(IGNORE)
    if _root_of(archive) is None or os.path.lexists(ignore) or _is_ignored(archive):
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(ignore, flags, 0o600)
    except OSError:  # git_words says that nothing ignores it
        return None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_LINES)
        owner = archive.parent.stat() if like is None else like.stat()
        make_like(file.fileno(), (owner.st_uid, owner.st_gid), 0o644)
    return ignore


def git_words(archive: Path) -> tuple[str, bool]:
    """Say what git makes of an archive, and whether it leaves it out of commits.

    The words are empty where no work tree is around it.
    """
    root = _root_of(archive)
    if root is None:
        return "", True
    if _is_ignored(archive):
        return f"git ignores it in {root}, and git clean -x deletes it there", True
    line = f"/{archive.name}*"
    words = (
        f"git does not ignore it in {root}, so that git add -A takes in what was deleted: add the "
        f"line {line} to {archive.with_name(IGNORE)}"
    )
    return words, False


def _root_of(archive: Path) -> Path | None:
    """Return the top of the work tree around an archive; None where there is none."""
    if ".git" in archive.parts:
        return None
    return next((each for each in archive.parents if os.path.lexists(each / ".git")), None)


def _is_ignored(archive: Path) -> bool:
    """Whether git leaves an archive out, as far as it answers."""
    with suppress(OSError), archive.with_name(IGNORE).open(encoding="utf-8") as file:
        if file.read(len(_LINES) + 1) == _LINES:
            return True
    git = shutil.which("git")
    if git is None:
        return False
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in _PERSONS_OWN}
    asked = ("check-ignore", "--quiet", "--no-index", "--", str(archive))
    command = [git, "-C", str(archive.parent), *_OPTIONS, *asked]
    with suppress(OSError, subprocess.TimeoutExpired):
        ended = subprocess.run(
            command,
            env=own,
            capture_output=True,
            timeout=_WITHIN,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return ended.returncode == 0
    return False
