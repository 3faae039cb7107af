"""The projects that folders of memories belong to, and their git checkouts.

The files of git are read directly; git is not run. Only regular files of a limited size are opened,
so that a named pipe or a device cannot block.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memlab.files import ordinary_file

_MAX_FILE_SIZE: Final = 2**20
"""Maximum size in bytes of a file of git that is read."""
_MAX_WORKTREES: Final = 1_000
"""Maximum number of worktrees of a repository that are looked at."""

_SECTION: Final = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_URL: Final = re.compile(r"\s*url\s*=\s*(?P<value>.*)", re.IGNORECASE)
_COMMENT: Final = re.compile(r"\s+[#;].*$")
_WITH_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?P<rest>.*)", re.IGNORECASE)
_SCP_ADDRESS: Final = re.compile(r"(?:[^@/\s]+@)?(?P<host>\[[^\]]+\]|[^:/\s]+):(?!/$)(?P<path>.+)")
"""The scp-like form of an address, such as ``git@example.org:team/app.git``.

A slash alone is no path.
"""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder in a working tree of git.

    Attributes
    ----------
    root, repository : Path
        The root of the working tree, and the folder of the repository, which all worktrees share.
    subfolder : str
        The path of the folder below the root; empty for the root itself.
    remote : str
        The address of the remote ``origin``, or of the only one, without user, password and
        scheme; empty for none.
    """

    root: Path
    repository: Path
    subfolder: str
    remote: str

    @property
    def is_main(self) -> bool:
        """Whether the repository lies in this working tree, so that others are its worktrees."""
        return self.repository == self.root / ".git"


@dataclass(frozen=True, slots=True)
class Project:
    """The project of a folder of memories.

    Attributes
    ----------
    path : str
        The path of the project, which need not exist; empty if it is not known.
    is_missing : bool
        Whether the path does not exist.
    real_path : str
        The path with its symbolic links resolved; empty if the project is missing or unknown.
    checkout : Checkout or None
        The git checkout that contains the path; None if there is none.
    """

    path: str
    is_missing: bool
    real_path: str = ""
    checkout: Checkout | None = None

    @classmethod
    def at(cls, path: Path) -> "Project":
        """Return the project at a path."""
        if not os.path.lexists(path):
            return cls(path=str(path), is_missing=True)
        real = Path(os.path.realpath(path))
        return cls(
            path=str(path), is_missing=False, real_path=str(real), checkout=checkout_of(real)
        )


def checkout_of(place: Path) -> Checkout | None:
    """Return the git checkout that a folder lies in; None if none is readable."""
    for root in (place, *place.parents):
        if not os.path.lexists(root / ".git"):
            continue
        repository = _repository_of(root / ".git")
        if repository is None:
            return None
        subfolder = place.relative_to(root).as_posix()
        return Checkout(
            root=root,
            repository=repository,
            subfolder="" if subfolder == "." else subfolder,
            remote=_remote_in(_text_in(repository / "config"), root),
        )
    return None


def worktrees_of(repository: Path) -> Iterator[Path]:
    """Yield the roots of the worktrees that a repository records; they need not exist any more."""
    try:
        names = sorted(os.listdir(repository / "worktrees"))[:_MAX_WORKTREES]  # noqa: PTH208 - names alone
    except OSError:
        return
    for name in names:
        link = _text_in(repository / "worktrees" / name / "gitdir").strip()
        if link.startswith("/") and link.endswith("/.git"):
            yield Path(link).parent


def _repository_of(git: Path) -> Path | None:
    """Return the folder of a checkout's repository; None if it cannot be found.

    `git` is the path ``.git`` in the checkout. It is a folder, or a file that names the folder.
    """
    folder = git
    if not git.is_dir():
        prefix, _, path = _text_in(git).strip().partition(": ")
        if prefix != "gitdir" or not path or "\0" in path:
            return None
        folder = git.parent / path
    common = _text_in(folder / "commondir").strip()
    if common and "\0" not in common:
        folder = folder / common
    real = Path(os.path.realpath(folder))
    return real if real.is_dir() else None


def _text_in(path: Path) -> str:
    """Return the text of a regular file; empty if it cannot be read or is too large."""
    with suppress(OSError, ValueError), ordinary_file(path, max_bytes=_MAX_FILE_SIZE) as file:
        return file.read(_MAX_FILE_SIZE).decode(errors="replace")
    return ""


def _remote_in(config: str, root: Path) -> str:
    """Return the address of ``origin``, or of the only remote, in a configuration of git."""
    addresses: dict[str, str] = {}
    remote = None
    for line in config.splitlines():
        rest = line
        section = _SECTION.match(line)
        if section is not None:
            remote = section[2] if section[1].lower() == "remote" else None
            rest = line[section.end() :]  # the line may also have a key
        url = _URL.match(rest)
        if remote is not None and url is not None:
            addresses.setdefault(remote, _unquoted(url["value"]))
    address = addresses.get("origin", "")
    if not address and len(addresses) == 1:
        (address,) = addresses.values()
    return normal_address(address, root) if address else ""


def _unquoted(value: str) -> str:
    """Return a value of a configuration without its comment and its quotation marks.

    >>> _unquoted('"https://example.org/app"  # the server')
    'https://example.org/app'
    """
    return _COMMENT.sub("", value).strip().replace('"', "")


def normal_address(address: str, root: Path) -> str:
    """Return the address of a remote in one form, without user, password, scheme and ``.git``.

    Parameters
    ----------
    address : str
        The address.
    root : Path
        The working tree, which a relative path starts from.

    Examples
    --------
    >>> root = Path("/srv/app")
    >>> normal_address("git@Example.org:team/app.git", root)
    'example.org/team/app'
    >>> normal_address("https://me:secret@example.org/team/app/", root)
    'example.org/team/app'
    >>> normal_address("../app.git", root)
    '/srv/app'
    """
    match = _WITH_SCHEME.fullmatch(address)
    if match is not None:
        host, slash, path = match["rest"].partition("/")
        return f"{host.rpartition('@')[2].lower()}{slash}{_without_ending(path)}"
    scp_address = _SCP_ADDRESS.fullmatch(address)
    if scp_address is not None:
        return f"{scp_address['host'].lower()}/{_without_ending(scp_address['path'].lstrip('/'))}"
    return _without_ending(os.path.normpath(root / address))


def _without_ending(path: str) -> str:
    """Return a path without the slashes and the ``.git`` at its end."""
    return path.rstrip("/").removesuffix(".git").rstrip("/")
