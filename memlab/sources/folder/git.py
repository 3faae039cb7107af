"""What git knows of a folder, by commands that run no hook, filter or fetch and write nothing."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import new as new_hash
from io import BufferedReader
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Event, Timer
from typing import IO, Final, NamedTuple

from memlab.errors import StoreError
from memlab.sources.folder.files import LARGEST, FileCopy, Listing, Stamp, is_file_path
from memlab.sources.folder.journal import FolderMoment, Index, Place
from memlab.sources.folder.renames import Contents as Compared
from memlab.sources.folder.renames import File, Renames, find_renames
from memlab.text import in_shell

Contents = Callable[[str], bytes | None]
"""Returns the content of a file by git's name of it; None where that cannot be read."""

_OPTIONS: Final = (
    "--no-pager",
    "--no-optional-locks",
    "--no-replace-objects",
    "--literal-pathspecs",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "core.commitGraph=false",
    "-c",
    "core.quotePath=off",
    "-c",
    "protocol.allow=never",
    "-c",
    "safe.bareRepository=explicit",
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
    "diff-tree",
    "--stdin",
    "--always",
    "--root",
    "-r",
    "-z",
    "--raw",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--diff-merges=first-parent",
    "--relative",
    "--format=@%ct %H",
)
_SUFFIX: Final = ".md"
_MOST_UNTRACKED: Final = 1_000
"""Files that are not committed yet and are read, at most, to find what was moved."""
_NEIGHBOURS: Final = 200
"""Files of a folder that are read, at most, to tell a template from a memory's own text."""
_LATEST: Final = 253_402_300_799
_FILE: Final = b"100"
"""How the mode of an ordinary file begins: no link, no submodule."""


ANSWER_WITHIN: Final = 10.0
"""Seconds that git has to say which commit is the newest: a pipe in its folder never ends."""
READ_WITHIN: Final = 120.0
"""Seconds that each command has which reads a history."""
_NOT_AGAIN_FOR: Final = 60.0
"""Seconds for which a repository that did not answer is not asked again."""


class LateError(ValueError):
    """Git did not answer in time."""


class Change(NamedTuple):
    """What a commit did to a file.

    Attributes
    ----------
    before, after : str
        Its path; empty where nothing was there before, or is after.
    mode : int
        Its permissions before.
    old, new : str
        Git's names of its content.
    """

    before: str
    after: str
    mode: int
    old: str
    new: str


class Commit(NamedTuple):
    """When a commit was made, git's name of it, and what it did."""

    at: datetime
    name: str
    changes: list[Change]


@dataclass
class FileLifetime:
    """A file that was committed, under the last name that it had in the folder."""

    name: str
    """A path in the folder; of what was moved out of the store, the last that it had there."""
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
    moved_to: str = ""
    """Where it is now, if it was moved out of the store and is still below the folder."""
    perhaps: str = ""
    """The file that the same commit added and that it is much like; empty for none."""
    former: list[tuple[str, datetime]] = field(default_factory=list)
    """The names that it had before, each with the time of the commit that changed it."""
    versions: list[tuple[datetime, str, str]] = field(default_factory=list)
    """Its contents, the newest first: when committed, by which commit, and git's name of it."""


@dataclass(frozen=True)
class History:
    """What the commits that lead to the newest one say of a folder."""

    lives: Sequence[FileLifetime] = ()
    index: str = ""
    """Git's name of the index in the newest commit."""
    missing: str = ""
    """What it does not say, and what to do; empty for nothing."""
    there: Mapping[str, FileLifetime] = field(default_factory=dict)
    """By name, the files of the newest commit."""
    is_read: bool = True
    """Whether git answered in time; nothing is said of the past where it did not."""


_LATE: Final[dict[Path, tuple[float, str]]] = {}
"""By folder, until when a repository that did not answer is not asked again, and why."""


def history_of(folder: Path, kind: type[Index]) -> History:
    """Return what git knows of a folder; nothing where it is in no repository."""
    above = (folder, *folder.parents)
    root = next((each for each in above if os.path.lexists(each / ".git")), None)
    if root is None:
        return History()
    if not os.path.lexists(folder):
        back = in_shell("git", "-C", str(root), "checkout", "HEAD", "--", str(folder))
        return History(missing=f"the folder is not there: {back} brings back what was committed")
    until, why = _LATE.get(folder, (0.0, ""))
    if time.monotonic() < until:
        return _not_read(why)
    try:
        head, is_shallow = _newest(folder, root)
        return _read(folder, head, kind, is_shallow=is_shallow) if head else History()
    except LateError as error:
        return note_late(folder, error)
    except ValueError as error:
        return History(missing=f"git's history of it is left out: {error}")


def note_late(folder: Path, error: LateError) -> History:
    """Note that git does not answer for a folder, and return what is then known of its past."""
    _LATE[folder] = time.monotonic() + _NOT_AGAIN_FOR, str(error)
    return _not_read(str(error))


def _not_read(why: str) -> History:
    return History(missing=f"git's history of it was not read: {why}", is_read=False)


def _newest(folder: Path, root: Path) -> tuple[str, bool]:
    """Return the newest commit, empty for none, and whether the clone is shallow."""
    if shutil.which("git") is None:
        raise ValueError("git is not installed; install it")
    asked = ("rev-parse", "--is-inside-work-tree", "--is-shallow-repository", "HEAD")
    with _git(folder, *asked, within=ANSWER_WITHIN, stderr=PIPE) as process:
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
def _read(folder: Path, head: str, kind: type[Index], *, is_shallow: bool) -> History:
    faults = []
    if is_shallow:
        faults.append("its clone is shallow: git fetch --unshallow brings what was before")
    entries = _entries(folder, head, faults)
    index = entries.pop(kind.index_name, FileLifetime("")).blob
    empty = frozenset({"", *(blob_name(data, head) for data in (b"", b"\n"))})
    with blobs(folder) as content:
        walk = _Walk(folder, kind, entries, index, empty, content)
        for commit in _commits(folder, head, faults):
            walk.take(commit)
        lives = walk.of_store()
        gone = {each.blob for each in lives if each.taken}
        lost = sum(content(blob) is None for blob in gone)
    if not walk.is_complete:
        faults.append("contents are missing, so some renames may be taken for deletions")
    if lost:
        faults.append(f"the words of {lost:,} that are gone cannot be read")
    missing = f"git does not have all of its history: {'; '.join(faults)}" if faults else ""
    there = {name: each for name, each in entries.items() if _is_inside(name, kind)}
    return History(lives, index, missing, there)


class _Walk:
    """Goes from commit to commit, the newest first, and tells the lives of files apart."""

    def __init__(
        self,
        folder: Path,
        kind: type[Index],
        there: Mapping[str, FileLifetime],
        index: str,
        empty: frozenset[str],
        content: Contents,
    ) -> None:
        self.is_complete = True
        self._folder = folder
        self._kind = kind
        self._content = content
        self._index = index
        self._empty = empty
        self._lives = [*there.values()]
        self._of = {**there}
        """Each life by the path that it has in the commits that come next."""
        self._in_store = {id(life) for name, life in there.items() if self._has(name)}
        """The lives that had a path in the store so far."""

    def of_store(self) -> list[FileLifetime]:
        """Return the files that are, or were, in the store."""
        known = [life for life in self._lives if id(life) in self._in_store]
        return [life for life in known if life.is_there or life.taken]

    def take(self, commit: Commit) -> None:
        """Take in what a commit did."""
        index_before = self._index
        files = []
        for change in commit.changes:
            name = change.before or change.after
            if name and name == self._kind.index_name:
                index_before = change.old if change.before else ""
            elif name:
                files.append(change)
        changes, perhaps = self._with_renames(commit, files, index_before)
        self._index = index_before
        changed = []
        for change in changes:
            path = change.after or change.before
            if path not in self._of:
                self._of[path] = FileLifetime(path)
                self._lives.append(self._of[path])
            changed.append((change, self._of[path]))
        for change, life in changed:
            self._change(commit, change, life)
            if not change.after and life.commit == commit.name:
                life.perhaps = perhaps.get(change.before, "")

    def _change(self, commit: Commit, change: Change, life: FileLifetime) -> None:
        had_words = change.before and change.old not in self._empty
        is_emptied = life.is_there and life.blob in self._empty and had_words
        if life.taken is None and (is_emptied or not (life.is_there or change.after)):
            life.taken = commit.at
            life.commit = commit.name
            life.index = self._index
        if change.after and life.written is None:
            life.written = commit.at
        if change.after:
            life.versions.append((commit.at, commit.name, change.new))
        if not change.before:
            life.born = min(life.born or commit.at, commit.at)
            return
        self._of[change.before] = life
        if life.blob in self._empty and life.taken:
            life.blob = change.old
            life.mode = change.mode
        if self._has(change.before):
            self._was_in_store(commit, change, life)

    def _was_in_store(self, commit: Commit, change: Change, life: FileLifetime) -> None:
        """Note that a life had a path in the store before a commit."""
        is_renamed = change.after not in ("", change.before)
        if id(life) not in self._in_store:
            self._in_store.add(id(life))
            if is_renamed:  # out of the store
                life.moved_to = life.name if life.is_there else ""
                life.is_there = False
                life.taken = commit.at
                life.commit = commit.name
                life.index = self._index
                life.blob = change.old
                life.mode = change.mode
                life.written = None
            life.name = change.before
        elif is_renamed:
            life.former.append((change.before, commit.at))

    def _with_renames(
        self, commit: Commit, changes: Sequence[Change], index_before: str
    ) -> tuple[list[Change], Mapping[str, str]]:
        """Join deletions and additions that are one file; return also which may be one."""
        deleted = {each.before: each for each in changes if each.before and not each.after}
        added = {each.after: each for each in changes if each.after and not each.before}
        old = [File(name, each.old) for name, each in deleted.items() if name.endswith(_SUFFIX)]
        new = [File(name, each.new) for name, each in added.items() if name.endswith(_SUFFIX)]
        if not old or not new:
            return list(changes), {}
        found = self._renames(commit, old, new, index_before)
        joined = [each for each in changes if each.before not in found.sure or each.after]
        goals = {new_name: old_name for old_name, new_name in found.sure.items()}
        for place, each in enumerate(joined):
            if not each.before and each.after in goals:
                joined[place] = deleted[goals[each.after]]._replace(after=each.after, new=each.new)
        return joined, found.doubtful

    def _renames(
        self, commit: Commit, old: Sequence[File], new: Sequence[File], index_before: str
    ) -> Renames:
        """Compare texts where one of both files is the store's; others by their whole content."""

        def neighbours(path: str) -> tuple[Sequence[str], Sequence[str]]:
            names = (f"{commit.name}^", commit.name)
            before, after = (_blobs_in(self._folder, each, path, self._kind) for each in names)
            return before, after

        def titles() -> tuple[Mapping[str, str], Mapping[str, str]]:
            before, after = (
                self._kind.titles(self._content(blob) or b"") if blob else {}
                for blob in (index_before, self._index)
            )
            return before, after

        contents = Compared(self._content, neighbours, titles)
        inside = [file for file in old if self._has(file.path)]
        found = find_renames(inside, new, contents, empty=self._empty)
        taken = {*found.sure.values()}
        outside = [file for file in old if not self._has(file.path)]
        rest = [file for file in new if file.path not in taken]
        back = find_renames(
            outside, [f for f in rest if self._has(f.path)], contents, empty=self._empty
        )
        self.is_complete = self.is_complete and found.is_complete and back.is_complete
        goals = {*back.sure.values()}
        elsewhere = {f.blob: f.path for f in rest if f.path not in goals and not self._has(f.path)}
        for file in outside:
            if file.path not in back.sure and file.blob in elsewhere:
                back.sure[file.path] = elsewhere.pop(file.blob)
        return Renames({**back.sure, **found.sure}, found.doubtful)

    def _has(self, name: str) -> bool:
        return _is_inside(name, self._kind)


def _is_inside(name: str, kind: type[Index]) -> bool:
    """Return whether a file, by its path, is one of the store's folders."""
    above = name.split("/")[:-1]
    return all(kind.enters("/".join(above[: depth + 1])) for depth in range(len(above)))


def _blobs_in(folder: Path, commit: str, path: str, kind: type[Index]) -> list[str]:
    """Return git's names of the Markdown files in a folder at a commit, evenly chosen of many."""
    found = []
    words = ["--", f"{path}/"] if path else []
    with _git(folder, "ls-tree", "-z", commit, *words) as process:
        for token in _tokens(process.stdout):
            facts, _, name = token.partition(b"\t")
            mode, _, blob = facts.split()
            last = os.fsdecode(name)
            if mode.startswith(_FILE) and last.endswith(_SUFFIX) and last != kind.index_name:
                found.append(blob.decode())
    step = -(-len(found) // _NEIGHBOURS) or 1
    return found[::step]


def _commits(folder: Path, head: str, faults: list[str]) -> Iterator[Commit]:
    """Yield the commits that lead to one, the newest first; in `faults`, what cannot be read."""
    with (
        _git(folder, "rev-list", head) as listing,
        _git(folder, *_CHANGES, "--", ".", stdin=listing.stdout) as process,
    ):
        yield from _told(process.stdout)
        stopped = process.wait() or listing.wait()
    if stopped:
        faults.append("what was before cannot be read")


def _told(stream: BufferedReader) -> Iterator[Commit]:
    """Yield the commits that git tells of; what is no ordinary file has no path."""
    commit = None
    tokens = _tokens(stream)
    for token in tokens:
        what = token.split()  # a line break may stand before it
        if what[0].startswith(b"@"):
            if commit:
                yield commit
            seconds = min(max(int(what[0][1:] or 0), 0), _LATEST)  # which may be any number
            at = datetime.fromtimestamp(seconds, UTC)
            commit = Commit(at, what[1].decode(), [])
        elif commit:
            path = os.fsdecode(next(tokens, b""))
            was, is_now = (mode.removeprefix(b":").startswith(_FILE) for mode in what[:2])
            change = Change(
                before=path if was else "",
                after=path if is_now else "",
                mode=int(what[0][-3:], 8),
                old=what[2].decode(),
                new=what[3].decode(),
            )
            commit.changes.append(change)
    if commit:
        yield commit


def _entries(folder: Path, head: str, faults: list[str]) -> dict[str, FileLifetime]:
    found = {}
    with _git(folder, "ls-tree", "-r", "-z", head) as process:
        for token in _tokens(process.stdout):
            words, _, path = token.partition(b"\t")
            mode, _, blob = words.split()
            if mode.startswith(_FILE):
                name = os.fsdecode(path)
                found[name] = FileLifetime(
                    name, is_there=True, mode=int(mode[-3:], 8), blob=blob.decode()
                )
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

    lives: Mapping[str, FileLifetime]
    content: Contents

    def read(self, name: str) -> FileCopy:
        """Return a file of it."""
        life = self.lives[name]
        stamp = self.stamp_of(name)
        found = os.fstat(self.folder.handle)
        data = self.content(life.blob) or b""
        mode = life.mode & found.st_mode  # git knows no more than whether it is executable
        return FileCopy(name, data, mode, stamp.written, (found.st_uid, found.st_gid))


def past_moments(
    moment: FolderMoment, history: History, content: Contents, *, emptied: bool
) -> Iterator[PastMoment]:
    """Yield the files that are gone, or `emptied` too, together what went beside the same index."""
    gone = _removed(moment, history) + (_emptied(moment, history) if emptied else [])
    gone = [each for each in gone if is_file_path(each.name)]
    known = frozenset({*moment.names, *(each.name for each in gone)})
    groups: dict[str, dict[str, FileLifetime]] = {}
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


def _removed(moment: FolderMoment, history: History) -> list[FileLifetime]:
    """Return the files that were committed and are not there, what is not committed yet on top."""
    here = {*moment.names, *moment.listing.others}
    removed = [each for each in history.lives if not each.is_there and each.name not in here]
    missing = [each for name, each in history.there.items() if name not in here]
    if not missing:
        return removed
    others = [name for name in moment.names if name not in history.there]
    like = missing[0].blob
    contents = set(_names_by_blob(moment, others, like))
    missing = [each for each in missing if each.blob not in contents]
    elsewhere = {}
    if missing:
        elsewhere = _names_by_blob(moment, _untracked(moment.folder.path), like)
    at = datetime.fromtimestamp(os.fstat(moment.folder.handle).st_mtime, UTC)
    for each in missing:
        went = replace(each, is_there=False, taken=at, index=history.index)
        went.moved_to = elsewhere.get(each.blob, "")
        removed.append(went)
    return removed


def _names_by_blob(moment: FolderMoment, names: Iterable[str], like: str) -> dict[str, str]:
    """Return names of files that can be read by git's name of their content."""
    found = {}
    for name in names:
        with suppress(StoreError, OSError):  # a link, or what somebody is writing
            file = moment.folder.read_if_there(name)
            if file is not None:
                found[blob_name(file.data, like)] = name
    return found


def _untracked(folder: Path) -> list[str]:
    """Return the Markdown files in a folder and below that are not committed, some at most."""
    found = []
    with _git(folder, "ls-files", "--others", "--exclude-standard", "-z") as process:
        for token in _tokens(process.stdout):
            name = os.fsdecode(token)
            if name.endswith(_SUFFIX) and is_file_path(name):
                found.append(name)
            if len(found) == _MOST_UNTRACKED:
                break
    return found


def _emptied(moment: FolderMoment, history: History) -> list[FileLifetime]:
    """Return the files that are there without words and had some, committed so or not yet."""
    found = []
    for name in moment.names:
        life = history.there.get(name)
        stamp = moment.stamp_of(name)
        if life is None or stamp.size > 1 or moment.read(name).data.strip():
            continue
        if life.taken is None:
            at = datetime.fromtimestamp(stamp.written / 1e9, UTC)
            life = replace(life, taken=at, index=history.index)
        found.append(life)
    return found


@contextmanager
def blobs(folder: Path) -> Iterator[Contents]:
    """Hand out what returns the content of a file by git's name of it; None where it cannot.

    LateError where git does not answer in time.
    """
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


class Version(NamedTuple):
    """What a committed file held, and since which commit."""

    data: bytes
    at: datetime
    commit: str


def versions_of(folder: Path, name: str, most: int = 5) -> list[Version]:
    """Return the last versions of a file of a folder that were committed, the newest first."""
    with _git(folder, "rev-list", "--timestamp", f"--max-count={most}", "HEAD", "--", name) as git:
        lines = git.stdout.read().decode().splitlines()
    found = []
    with blobs(folder) as content:
        for seconds, commit in map(str.split, lines):
            data = content(f"{commit}:./{name}")
            if data is not None:  # in a commit that took it away it is not
                at = datetime.fromtimestamp(min(max(int(seconds), 0), _LATEST), UTC)
                found.append(Version(data, at, commit))
    return found


def blob_name(data: bytes, like: str) -> str:
    """Return git's name of a content, in a repository where names are like another."""
    kind = "sha1" if len(like) == 40 else "sha256"
    return new_hash(kind, b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()


class _Process(Popen[bytes]):
    stdin: IO[bytes]
    stdout: BufferedReader


@contextmanager
def _git(
    folder: Path,
    *words: str,
    stdin: IO[bytes] | int = PIPE,
    stderr: int = DEVNULL,
    within: float | None = None,
) -> Iterator[_Process]:
    """Run a command of git's; what it has not done when the block ends is not wanted.

    After so many seconds it is killed, so that whoever reads from it comes to an end, and LateError
    says that what was read is a part.
    """
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in _PERSONS_OWN}
    own |= _ENVIRONMENT
    command = [shutil.which("git") or "git", "-C", str(folder), *_OPTIONS, *words]
    seconds = READ_WITHIN if within is None else within
    late = LateError(
        f"git did not answer within {seconds:g} seconds; run git status in {folder} to see why"
    )
    is_late = Event()

    def end() -> None:
        is_late.set()
        process.kill()

    with _Process(command, stdin=stdin, stdout=PIPE, stderr=stderr, env=own) as process:
        watchdog = Timer(seconds, end)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield process
        except Exception as error:
            if is_late.is_set():
                raise late from error
            raise
        finally:
            watchdog.cancel()
            process.kill()
        if is_late.is_set():
            raise late
