"""What git knows of a folder, by commands that run no hook, filter or fetch and write nothing."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import new as new_hash
from io import BufferedReader
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, Final, NamedTuple

from memlab.sources.folder.files import LARGEST, FileCopy, Listing, Stamp, is_file_path
from memlab.sources.folder.journal import FolderMoment, Place
from memlab.text import in_shell

Contents = Callable[[str], bytes | None]
"""Returns the content of a file by git's name of it; None where that cannot be read."""

_OPTIONS: Final = (
    *("--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs"),
    *("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.commitGraph=false", "-c", "core.quotePath=off", "-c", "protocol.allow=never"),
    *("-c", "safe.bareRepository=explicit"),
)
_ENVIRONMENT: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
"""Git before 2.44 would fetch what a partial clone lacks: no protocol is allowed for it."""
_PERSONS_OWN: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Where a person has said which repositories of others to trust."""
_CHANGES: Final = (
    *("diff-tree", "--stdin", "--always", "--root", "-r", "-z", "--raw", "--no-ext-diff"),
    *("--no-textconv", "-l1000", "--diff-merges=first-parent", "--relative"),
    "--format=@%ct %H",
)
_ALIKE: Final = "-M70%"
_SAME: Final = "-M100%"
"""What counts as renamed, and what does where the contents are not there to be compared."""
_LATEST: Final = 253_402_300_799
_FILE: Final = b"100"
"""How the mode of an ordinary file begins: no link, no submodule."""


class Change(NamedTuple):
    """What a commit did to a path; a path is empty where nothing was there before, or is after."""

    before: str
    after: str
    mode: int
    old: str


class Commit(NamedTuple):
    """When a commit was made, git's name of it, and what it did."""

    at: datetime
    name: str
    changes: list[Change]


@dataclass
class Life:
    """A file that was committed, under the last name that it had in the folder."""

    name: str
    is_there: bool = False
    """Whether the newest commit has it."""
    mode: int = 0o644
    blob: str = ""
    """Git's name of its content; of what is gone, of the last that was not empty."""
    index: str = ""
    """Git's name of the index that was there when it was taken away; empty for none."""
    born: datetime | None = None
    written: datetime | None = None
    """When it was first committed, and when last, as far as commits can be read."""
    taken: datetime | None = None
    """When it was deleted or, where it is there, emptied."""
    commit: str = ""
    """Which commit did that."""


@dataclass(frozen=True)
class History:
    """What the commits that lead to the newest one say of a folder."""

    lives: Sequence[Life] = ()
    index: str = ""
    """Git's name of the index in the newest commit."""
    missing: str = ""
    """What it does not say, and what to do; empty for nothing."""
    there: Mapping[str, Life] = field(default_factory=dict)
    """By name, the files of the newest commit."""


def history_of(folder: Path, index_name: str) -> History:
    """Return what git knows of a folder; nothing where it is in no repository."""
    above = (folder, *folder.parents)
    root = next((each for each in above if os.path.lexists(each / ".git")), None)
    if root is None:
        return History()
    try:
        head, is_shallow = _newest(folder, root)
    except ValueError as error:
        return History(missing=f"git's history of it is left out: {error}")
    return _read(folder, head, index_name, is_shallow=is_shallow) if head else History()


def _newest(folder: Path, root: Path) -> tuple[str, bool]:
    """Return the newest commit, empty for none, and whether the clone is shallow."""
    if shutil.which("git") is None:
        raise ValueError("git is not installed; install it")
    asked = ("rev-parse", "--is-inside-work-tree", "--is-shallow-repository", "HEAD")
    with _git(folder, *asked, stderr=PIPE) as process:
        answer, complaint = process.communicate()
    inside, shallow, head = (*answer.decode().split(), "", "", "")[:3]
    said = complaint.decode(errors="replace").strip()
    if "dubious ownership" in said or "unsafe repository" in said:
        trust = in_shell("git", "config", "--global", "--add", "safe.directory", str(root))
        raise ValueError(f"{root} belongs to somebody else; if you trust it: {trust}")
    no_work = inside == "false" or "bare repository" in said  # it is a repository, or in .git
    if no_work or "unknown revision" in said:  # or nothing is committed yet
        return "", False
    if process.returncode:
        raise ValueError(f"it says {said.splitlines()[:1]!r:.200}; look at {root}")
    return head, shallow == "true"


@lru_cache(maxsize=16)
def _read(folder: Path, head: str, index_name: str, *, is_shallow: bool) -> History:
    faults = ["its clone is shallow: git fetch --unshallow brings what was before"] * is_shallow
    entries = _entries(folder, head, faults)
    index = entries.pop(index_name, Life("")).blob
    lives = _lives(_commits(folder, head, faults), entries, index_name, index, head)
    lives = [each for each in lives if each.is_there or each.taken]
    with blobs(folder) as content:
        lost = sum(content(blob) is None for blob in {each.blob for each in lives if each.taken})
    if lost:
        faults.append(f"the words of {lost:,} that are gone cannot be read")
    missing = f"git does not have all of its history: {'; '.join(faults)}" if faults else ""
    return History(lives, index, missing, entries)


def _lives(
    commits: Iterable[Commit], there: Mapping[str, Life], index_name: str, index: str, head: str
) -> list[Life]:
    """Go from commit to commit, the newest first, and tell the lives of files apart."""
    lives, of = [*there.values()], {**there}  # by the path in the commits that come now
    empty = ("", *(blob_name(data, head) for data in (b"", b"\n")))
    for commit in commits:
        changed = []
        for each in commit.changes:
            if index_name and index_name in each[:2]:
                index = each.old if each.before == index_name else ""
            before, after = ("" if name == index_name else name for name in each[:2])
            if path := after or before:
                if path not in of:
                    of[path] = Life(path)
                    lives.append(of[path])
                changed.append((each._replace(before=before, after=after), of[path]))
        for each, life in changed:
            had_words = each.before and each.old not in empty
            is_emptied = life.is_there and life.blob in empty and had_words
            if life.taken is None and (is_emptied or not (life.is_there or each.after)):
                life.taken, life.commit, life.index = commit.at, commit.name, index
            if each.after and life.written is None:
                life.written = commit.at
            if not each.before:
                life.born = min(life.born or commit.at, commit.at)
                continue
            of[each.before] = life
            if life.blob in empty and life.taken:
                life.blob, life.mode = each.old, each.mode
    return lives


def _commits(folder: Path, head: str, faults: list[str]) -> Iterator[Commit]:
    """Yield the commits that lead to one, the newest first; in `faults`, what cannot be read."""
    count = alike = 0
    for renames in (_ALIKE, _SAME):
        with (
            _git(folder, "rev-list", f"--skip={count}", head) as listing,
            _git(folder, *_CHANGES, renames, "--", ".", stdin=listing.stdout) as process,
        ):
            for commit in _told(process.stdout):
                yield commit
                count += 1
            stopped = process.wait() or listing.wait()
        if not stopped:
            break
        if renames == _ALIKE:
            alike = count
    if renames == _SAME and count > alike:
        faults.append("contents are missing, so some renames may be taken for deletions")
    if stopped:
        faults.append("what was before cannot be read")


def _told(stream: BufferedReader) -> Iterator[Commit]:
    """Yield the commits that git tells of; a rename has two paths, links have none."""
    commit, tokens = None, _tokens(stream)
    for token in tokens:
        what = token.split()  # a line break may stand before it
        if what[0].startswith(b"@"):
            if commit:
                yield commit
            seconds = min(max(int(what[0][1:] or 0), 0), _LATEST)  # which may be any number
            at = datetime.fromtimestamp(seconds, UTC)
            commit = Commit(at, what[1].decode(), [])
        elif commit:
            names = 2 if what[4][:1] == b"R" else 1
            paths = [os.fsdecode(next(tokens, b"")) for _ in range(names)]
            was, is_now = (mode.removeprefix(b":").startswith(_FILE) for mode in what[:2])
            mode, old = int(what[0][-3:], 8), what[2].decode()
            commit.changes.append(Change(paths[0] * was, paths[-1] * is_now, mode, old))
    if commit:
        yield commit


def _entries(folder: Path, head: str, faults: list[str]) -> dict[str, Life]:
    found = {}
    with _git(folder, "ls-tree", "-r", "-z", head) as process:
        for token in _tokens(process.stdout):
            words, _, path = token.partition(b"\t")
            mode, _, blob = words.split()
            if mode.startswith(_FILE):
                name = os.fsdecode(path)
                found[name] = Life(name, is_there=True, mode=int(mode[-3:], 8), blob=blob.decode())
        if process.wait():
            faults.append(f"commit {head[:12]} cannot be read")
    return found


def _tokens(stream: BufferedReader) -> Iterator[bytes]:
    """Yield what ends in a NUL."""
    rest = b""
    while more := stream.read1(2**16):
        *tokens, rest = (rest + more).split(b"\0")
        yield from tokens


@dataclass(frozen=True, kw_only=True)
class PastMoment(FolderMoment):
    """Files that are gone, as they were when they went, beside the index of then; else empty."""

    lives: Mapping[str, Life]
    content: Contents

    def read(self, name: str) -> FileCopy:
        """Return a file of it."""
        life, stamp = self.lives[name], self.stamp_of(name)
        found = os.fstat(self.folder.handle)
        data = self.content(life.blob) or b""
        return FileCopy(name, data, life.mode, stamp.written, (found.st_uid, found.st_gid))


def past_moments(
    moment: FolderMoment, history: History, content: Contents, *, emptied: bool
) -> Iterator[PastMoment]:
    """Yield the files that are gone, or `emptied` too, together what went beside the same index."""
    gone = _removed(moment, history) + (_emptied(moment, history) if emptied else [])
    gone = [each for each in gone if is_file_path(each.name)]
    known = frozenset({*moment.names, *(each.name for each in gone)})
    groups: dict[str, dict[str, Life]] = {}
    for each in gone:
        groups.setdefault(each.index, {})[each.name] = each
    for blob, lives in groups.items():
        raw = content(blob) if blob else None
        index = None if raw is None else FileCopy("", raw, 0, 0, (0, 0))
        stamps = {}
        for name, life in lives.items():
            at = life.written or life.taken
            written = int(at.timestamp()) * 10**9 if at else 0
            stamps[name] = Stamp(int(life.blob, 16), 0, written, 0)
        places = {name: Place(name, stamp) for name, stamp in stamps.items()}
        own = moment.folder, Listing(stamps, ()), index, places
        yield PastMoment(*own, known=known, lives=lives, content=content)


def _removed(moment: FolderMoment, history: History) -> list[Life]:
    """Return the files that were committed and are not there, what is not committed yet on top."""
    here = {*moment.names, *moment.listing.others}
    removed = [each for each in history.lives if not each.is_there and each.name not in here]
    missing = [each for name, each in history.there.items() if name not in here]
    if not missing:
        return removed
    others = [name for name in moment.names if name not in history.there]
    found = filter(None, map(moment.folder.read_if_there, others))
    contents = {blob_name(file.data, missing[0].blob) for file in found}
    at = datetime.fromtimestamp(os.fstat(moment.folder.handle).st_mtime, UTC)
    return removed + [
        replace(each, is_there=False, taken=at, index=history.index)
        for each in missing
        if each.blob not in contents
    ]


def _emptied(moment: FolderMoment, history: History) -> list[Life]:
    """Return the files that are there without words and had some, committed so or not yet."""
    found = []
    for name in moment.names:
        life, stamp = history.there.get(name), moment.stamp_of(name)
        if life is None or stamp.size > 1 or moment.read(name).data.strip():
            continue
        if life.taken is None:
            at = datetime.fromtimestamp(stamp.written / 1e9, UTC)
            life = replace(life, taken=at, index=history.index)
        found.append(life)
    return found


@contextmanager
def blobs(folder: Path) -> Iterator[Contents]:
    """Hand out what returns the content of a file by git's name of it; None where it cannot."""
    with ExitStack() as stack:
        running: list[_Process] = []

        def read(name: str) -> bytes | None:
            if not running:
                running.append(stack.enter_context(_git(folder, "cat-file", "--batch")))
            process = running[0]
            with suppress(BrokenPipeError):  # what has stopped gives no answer
                os.write(process.stdin.fileno(), f"{name}\n".encode())
            words = process.stdout.readline().split()
            if len(words) == 2:  # it is missing
                return None
            if len(words) == 3 and words[1] == b"blob" and int(words[2]) <= LARGEST:
                data: bytes = process.stdout.read(int(words[2]) + 1)
                if len(data) == int(words[2]) + 1:
                    return data[:-1]
            stack.close()
            running.clear()
            return None

        yield read


def blob_name(data: bytes, like: str) -> str:
    """Return git's name of a content, in a repository where names are like another."""
    kind = "sha1" if len(like) == 40 else "sha256"
    return new_hash(kind, b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()


class _Process(Popen[bytes]):
    stdin: IO[bytes]
    stdout: BufferedReader


@contextmanager
def _git(
    folder: Path, *words: str, stdin: IO[bytes] | int = PIPE, stderr: int = DEVNULL
) -> Iterator[_Process]:
    """Run a command of git's; what it has not done when the block ends is not wanted."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in _PERSONS_OWN}
    own |= _ENVIRONMENT
    command = [shutil.which("git") or "git", "-C", str(folder), *_OPTIONS, *words]
    with _Process(command, stdin=stdin, stdout=PIPE, stderr=stderr, env=own) as process:
        try:
            yield process
        finally:
            process.kill()
