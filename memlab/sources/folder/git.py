"""History of a folder in git: lifetimes of its files, renames and deleted content.

The git commands run no hooks, filters or fetches, and they write nothing.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import new as new_hash
from io import BufferedReader
from math import ceil
from pathlib import Path, PurePosixPath
from subprocess import DEVNULL, PIPE, Popen
from threading import Event, Timer
from typing import IO, Final, NamedTuple

from memlab.errors import StoreError
from memlab.sources.folder.files import MAX_FILE_BYTES, FileCopy, Listing, Stamp, is_file_path
from memlab.sources.folder.journal import FileLocation, FolderMoment, FolderRules
from memlab.sources.folder.renames import CommitContents, File, Renames, find_renames
from memlab.text import in_shell

BlobReader = Callable[[str], bytes | None]
"""Function that returns the content of a blob by its hash; None if it cannot be read."""

_GIT_OPTIONS: Final = (
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
"""Options of each command: they turn off pagers, locks, hooks, file watchers and fetches."""
_ENVIRONMENT: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
"""Git before 2.44 fetches missing objects of a partial clone; allowing no protocol prevents it."""
_PASSED_ON: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Variables that are passed on: they select the configuration with a person's safe directories."""
_DIFF_TREE: Final = (
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
"""Arguments that list the changes of commits: a line ``@TIME HASH`` for each, then its files."""
_SUFFIX: Final = ".md"
_MAX_UNTRACKED: Final = 1_000
"""Maximum number of untracked files that are read to find moved files."""
_MAX_NEIGHBOURS: Final = 200
"""Maximum number of files of a folder that are read to separate a template from own text."""
_LATEST_SECOND: Final = 253_402_300_799
"""Last second of the year 9999, in seconds since 1970."""
_REGULAR_FILE: Final = b"100"
"""Prefix of the mode of a regular file; links and submodules have others."""


ANSWER_TIMEOUT: Final = 10.0
"""Timeout in seconds for finding the newest commit; a named pipe in the folder blocks git."""
READ_TIMEOUT: Final = 120.0
"""Timeout in seconds of each command that reads the history."""
_RETRY_AFTER: Final = 60.0
"""Seconds to wait after a timeout before the repository is read again."""


class GitTimeoutError(ValueError):
    """Git did not answer in time."""


class Change(NamedTuple):
    """The change of a file in a commit.

    Attributes
    ----------
    before, after : str
        Its path before and after the commit; empty if there is no file.
    mode : int
        Its permissions before the commit.
    old, new : str
        The hashes of its content before and after the commit.
    """

    before: str
    after: str
    mode: int
    old: str
    new: str


class Commit(NamedTuple):
    """The time, the hash and the changes of a commit."""

    at: datetime
    hash: str
    changes: list[Change]


class FileVersion(NamedTuple):
    """A version of a file: the time and the hash of its commit, and the hash of its content."""

    at: datetime
    commit: str
    blob: str


@dataclass
class FileLifetime:
    """A committed file from its first to its last commit, across renames."""

    name: str
    """Its last path in the folder; if it was moved out of the store, its last path in the store."""
    is_in_head: bool = False
    """Whether the newest commit has it."""
    mode: int = 0o644
    """Its permissions."""
    blob: str = ""
    """Hash of its content; for a deleted file, of its last content that was not empty."""
    index: str = ""
    """Hash of the index at the time of the deletion; empty for none."""
    first_commit_at: datetime | None = None
    """Time of its first commit, as far as commits can be read."""
    written: datetime | None = None
    """Time of its last commit, as far as commits can be read."""
    deleted_at: datetime | None = None
    """Time at which it was deleted or, if it still exists, emptied."""
    commit: str = ""
    """Hash of the commit that deleted or emptied it."""
    moved_to: str = ""
    """Its current path, if it was moved out of the store to another place below the folder."""
    similar_file: str = ""
    """A similar file that the same commit added; empty for none."""
    former_paths: list[tuple[str, datetime]] = field(default_factory=list)
    """Its former paths, each with the time of the commit that renamed it."""
    versions: list[FileVersion] = field(default_factory=list)
    """Its versions, newest first."""


@dataclass(frozen=True)
class GitHistory:
    """History of a folder, read from the ancestors of the newest commit."""

    lifetimes: Sequence[FileLifetime] = ()
    """The files that are or were in the store."""
    index: str = ""
    """Hash of the index in the newest commit."""
    missing_note: str = ""
    """The part of the history that is missing, and how to get it, in words; empty for nothing."""
    present: Mapping[str, FileLifetime] = field(default_factory=dict)
    """The files of the newest commit, by name."""
    was_read_in_time: bool = True
    """Whether git answered in time; if not, the history is empty."""


class _Timeout(NamedTuple):
    """A timeout: when to try again, in seconds of the monotonic clock, and the message."""

    retry_at: float
    message: str


_TIMEOUTS: Final[dict[Path, _Timeout]] = {}
"""The last timeout of git by folder."""


def history_of(folder: Path, kind: type[FolderRules]) -> GitHistory:
    """Return the history of a folder in git; an empty one if it is in no repository."""
    root = _repository_of(folder)
    if root is None:
        return GitHistory()
    if not os.path.lexists(folder):
        checkout = in_shell("git", "-C", str(root), "checkout", "HEAD", "--", str(folder))
        return GitHistory(
            missing_note=f"the folder is not there: {checkout} brings back what was committed"
        )
    timeout = _TIMEOUTS.get(folder)
    if timeout is not None and time.monotonic() < timeout.retry_at:
        return GitHistory(missing_note=timeout.message, was_read_in_time=False)
    try:
        return _read_newest(folder, root, kind)
    except GitTimeoutError as error:
        record_timeout(folder, error)
        return GitHistory(missing_note=timeout_note(error), was_read_in_time=False)
    except ValueError as error:
        return GitHistory(missing_note=f"git's history of it is left out: {error}")


def _read_newest(folder: Path, root: Path, kind: type[FolderRules]) -> GitHistory:
    """Return the history that leads to the newest commit; an empty one without a commit."""
    head, is_shallow = _newest(folder, root)
    if not head:
        return GitHistory()
    return _read(folder, head, kind, is_shallow=is_shallow)


def _repository_of(folder: Path) -> Path | None:
    """Return the root of the repository that a folder lies in; None for no repository."""
    for candidate in (folder, *folder.parents):
        if os.path.lexists(candidate / ".git"):
            return candidate
    return None


def record_timeout(folder: Path, error: GitTimeoutError) -> None:
    """Record that git timed out for a folder, so that it is not run again at once."""
    _TIMEOUTS[folder] = _Timeout(time.monotonic() + _RETRY_AFTER, timeout_note(error))


def timeout_note(error: GitTimeoutError) -> str:
    """Return the note for a history that was not read because git timed out."""
    return f"git's history of it was not read: {error}"


def _newest(folder: Path, root: Path) -> tuple[str, bool]:
    """Return the hash of the newest commit, empty for none, and whether the clone is shallow."""
    if shutil.which("git") is None:
        raise ValueError("git is not installed; install it")
    arguments = ("rev-parse", "--is-inside-work-tree", "--is-shallow-repository", "HEAD")
    with _git(folder, *arguments, timeout=ANSWER_TIMEOUT, stderr=PIPE) as process:
        output, error_output = process.communicate()
    answers = output.decode().split()
    message = error_output.decode(errors="replace").strip()
    if "dubious ownership" in message or "unsafe repository" in message:
        trust = in_shell("git", "config", "--global", "--add", "safe.directory", str(root))
        raise ValueError(f"{root} belongs to somebody else; if you trust it: {trust}")
    # The first answer is for --is-inside-work-tree. After an error there may be no answer.
    has_no_work_tree = answers[:1] == ["false"] or "bare repository" in message
    has_no_commit = "unknown revision" in message
    if has_no_work_tree or has_no_commit:
        return "", False
    if process.returncode:
        raise ValueError(f"it says {message.splitlines()[:1]!r:.200}; look at {root}")
    _, is_shallow, head = answers
    return head, is_shallow == "true"


@lru_cache(maxsize=16)
def _read(folder: Path, head: str, kind: type[FolderRules], *, is_shallow: bool) -> GitHistory:
    """Return the history of a folder that leads to a commit."""
    faults = []
    if is_shallow:
        faults.append("its clone is shallow: git fetch --unshallow fetches the earlier history")
    entries = _entries(folder, head, faults)
    index = entries.pop(kind.index_name, FileLifetime("")).blob
    empty_blobs = frozenset({"", blob_hash(b"", head), blob_hash(b"\n", head)})
    with blobs(folder) as read_blob:
        walk = _Walk(folder, kind, entries, index, empty_blobs, read_blob)
        for commit in _commits(folder, head, faults):
            walk.apply(commit)
        lifetimes = walk.lifetimes_in_store()
        deleted_blobs = {lifetime.blob for lifetime in lifetimes if lifetime.deleted_at}
        unreadable_count = sum(read_blob(blob) is None for blob in deleted_blobs)
    if not walk.is_complete:
        faults.append("contents are missing, so some renames may be taken for deletions")
    if unreadable_count:
        faults.append(f"the texts of {unreadable_count:,} that are gone cannot be read")
    note = ""
    if faults:
        note = f"git does not have all of its history: {'; '.join(faults)}"
    present = {name: lifetime for name, lifetime in entries.items() if walk.is_in_store(name)}
    return GitHistory(lifetimes=lifetimes, index=index, missing_note=note, present=present)


class _Walk:
    """Builds the lifetimes of files by walking over the commits, newest first."""

    def __init__(
        self,
        folder: Path,
        kind: type[FolderRules],
        present: Mapping[str, FileLifetime],
        index: str,
        empty_blobs: frozenset[str],
        read_blob: BlobReader,
    ) -> None:
        self.is_complete = True
        """Whether all contents that were compared to find renames could be read."""
        self._folder = folder
        self._kind = kind
        self._read_blob = read_blob
        self._index = index
        self._empty_blobs = empty_blobs
        self._lifetimes = [*present.values()]
        self._by_path = {**present}
        """Lifetimes by their path in the commits that are still to be walked."""
        self._other_stores = _other_stores(present, kind)
        """The subfolders that are stores of their own in the commits that were walked."""
        self._in_store = {
            id(lifetime) for path, lifetime in present.items() if self.is_in_store(path)
        }
        """Identities of the lifetimes that had a path in the store so far."""

    def lifetimes_in_store(self) -> list[FileLifetime]:
        """Return the lifetimes of the files that are or were in the store."""
        in_store = [lifetime for lifetime in self._lifetimes if id(lifetime) in self._in_store]
        return [lifetime for lifetime in in_store if lifetime.is_in_head or lifetime.deleted_at]

    def apply(self, commit: Commit) -> None:
        """Apply the changes of a commit to the lifetimes."""
        index_before = self._index
        paths_before = [change.before for change in commit.changes]
        self._other_stores |= _other_stores(paths_before, self._kind)
        file_changes = []
        for change in commit.changes:
            name = change.before or change.after
            if name and name == self._kind.index_name:
                index_before = change.old if change.before else ""
            elif name:
                file_changes.append(change)
        changes, similar_files = self._with_renames(commit, file_changes, index_before)
        self._index = index_before
        # All lifetimes are looked up first, because applying a change moves its lifetime.
        lifetimes = [self._lifetime_at(change.after or change.before) for change in changes]
        for change, lifetime in zip(changes, lifetimes, strict=True):
            self._apply_change(commit, change, lifetime)
            if not change.after and lifetime.commit == commit.hash:
                lifetime.similar_file = similar_files.get(change.before, "")

    def _lifetime_at(self, path: str) -> FileLifetime:
        """Return the lifetime of the file at a path, a new one if there is none yet."""
        if path not in self._by_path:
            lifetime = FileLifetime(path)
            self._by_path[path] = lifetime
            self._lifetimes.append(lifetime)
        return self._by_path[path]

    def _apply_change(self, commit: Commit, change: Change, lifetime: FileLifetime) -> None:
        """Apply one change of a commit to the lifetime of its file."""
        had_text = change.before != "" and change.old not in self._empty_blobs
        is_empty_now = lifetime.is_in_head and lifetime.blob in self._empty_blobs
        is_emptied = is_empty_now and had_text
        is_deleted = not lifetime.is_in_head and not change.after
        if lifetime.deleted_at is None and (is_emptied or is_deleted):
            lifetime.deleted_at = commit.at
            lifetime.commit = commit.hash
            lifetime.index = self._index
        if change.after:
            lifetime.written = lifetime.written or commit.at
            lifetime.versions.append(FileVersion(commit.at, commit.hash, change.new))
        if not change.before:
            lifetime.first_commit_at = min(lifetime.first_commit_at or commit.at, commit.at)
            return
        self._by_path[change.before] = lifetime
        if lifetime.blob in self._empty_blobs and lifetime.deleted_at:
            lifetime.blob = change.old
            lifetime.mode = change.mode
        if self.is_in_store(change.before):
            self._record_path_in_store(commit, change, lifetime)

    def _record_path_in_store(self, commit: Commit, change: Change, lifetime: FileLifetime) -> None:
        """Record that a file had a path in the store before a commit."""
        is_renamed = change.after not in ("", change.before)
        was_in_store = id(lifetime) in self._in_store
        if was_in_store and is_renamed:
            lifetime.former_paths.append((change.before, commit.at))
        elif is_renamed:  # the commit moved it out of the store
            lifetime.moved_to = lifetime.name if lifetime.is_in_head else ""
            lifetime.is_in_head = False
            lifetime.deleted_at = commit.at
            lifetime.commit = commit.hash
            lifetime.index = self._index
            lifetime.blob = change.old
            lifetime.mode = change.mode
            lifetime.written = None
        if not was_in_store:
            self._in_store.add(id(lifetime))
            lifetime.name = change.before

    def _with_renames(
        self, commit: Commit, changes: Sequence[Change], index_before: str
    ) -> tuple[list[Change], Mapping[str, str]]:
        """Merge the deletion and the addition of each renamed file into one change.

        Return also, by path, the added file that is similar to a deleted one.
        """
        deleted = {change.before: change for change in changes if not change.after}
        added = {change.after: change for change in changes if not change.before}
        old = [File(path, change.old) for path, change in deleted.items() if _is_markdown(path)]
        new = [File(path, change.new) for path, change in added.items() if _is_markdown(path)]
        if not old or not new:
            return list(changes), {}
        renames = self._renames(commit, old, new, index_before)
        old_paths = {new_path: old_path for old_path, new_path in renames.sure.items()}
        merged = []
        for change in changes:
            is_addition = not change.before
            is_deletion = not change.after
            if is_addition and change.after in old_paths:
                deletion = deleted[old_paths[change.after]]
                merged.append(deletion._replace(after=change.after, new=change.new))
            elif is_deletion and change.before in renames.sure:
                continue  # it is part of the merged change
            else:
                merged.append(change)
        return merged, renames.doubtful

    def _renames(
        self, commit: Commit, old: Sequence[File], new: Sequence[File], index_before: str
    ) -> Renames:
        """Return the renames of a commit.

        Texts are compared if one of both files is in the store; other files are compared by the
        hash of their content.
        """

        def neighbours(path: str) -> tuple[Sequence[str], Sequence[str]]:
            before = _blobs_in(self._folder, f"{commit.hash}^", path, self._kind)
            after = _blobs_in(self._folder, commit.hash, path, self._kind)
            return before, after

        def titles() -> tuple[Mapping[str, str], Mapping[str, str]]:
            return self._titles_in(index_before), self._titles_in(self._index)

        contents = CommitContents(text_of=self._read_blob, neighbours=neighbours, titles=titles)
        old_inside = [file for file in old if self.is_in_store(file.path)]
        old_outside = [file for file in old if not self.is_in_store(file.path)]
        from_store = find_renames(old_inside, new, contents, empty=self._empty_blobs)

        matched = {*from_store.sure.values()}
        unmatched = [file for file in new if file.path not in matched]
        new_inside = [file for file in unmatched if self.is_in_store(file.path)]
        new_outside = [file for file in unmatched if not self.is_in_store(file.path)]
        into_store = find_renames(old_outside, new_inside, contents, empty=self._empty_blobs)
        self.is_complete = self.is_complete and from_store.is_complete and into_store.is_complete

        moved_outside = {file.blob: file.path for file in new_outside}
        for file in old_outside:
            if file.path not in into_store.sure and file.blob in moved_outside:
                into_store.sure[file.path] = moved_outside.pop(file.blob)
        return Renames({**into_store.sure, **from_store.sure}, from_store.doubtful)

    def _titles_in(self, blob: str) -> Mapping[str, str]:
        """Return the title of each file in a version of the index; empty for no index."""
        if not blob:
            return {}
        return self._kind.titles(self._read_blob(blob) or b"")

    def is_in_store(self, path: str) -> bool:
        """Return whether a file at a path belongs to the store."""
        return _is_inside(path, self._kind) and not _is_below(path, self._other_stores)


def _is_markdown(path: str) -> bool:
    return path.endswith(_SUFFIX)


def _other_stores(names: Iterable[str], kind: type[FolderRules]) -> set[str]:
    """Return the subfolders that have an index, so that they are stores of their own."""
    suffix = f"/{kind.index_name}"
    if not kind.index_name:
        return set()
    return {name.removesuffix(suffix) for name in names if name.endswith(suffix)}


def _is_below(path: str, folders: Collection[str]) -> bool:
    """Return whether a file is in or below one of some folders."""
    return any(str(parent) in folders for parent in PurePosixPath(path).parents)


def _is_inside(path: str, kind: type[FolderRules]) -> bool:
    """Return whether all folders above a file belong to the store."""
    parents = PurePosixPath(path).parents[:-1]
    return all(kind.may_include(str(parent)) for parent in parents)


def _blobs_in(folder: Path, commit: str, path: str, kind: type[FolderRules]) -> list[str]:
    """Return the hashes of the Markdown files in a folder at a commit, an even sample if many."""
    blobs = []
    arguments = ["--", f"{path}/"] if path else []
    with _git(folder, "ls-tree", "-z", commit, *arguments) as process:
        for token in _tokens(process.stdout):
            fields, _, raw_name = token.partition(b"\t")
            mode, _, blob = fields.split()
            name = os.fsdecode(raw_name)
            if mode.startswith(_REGULAR_FILE) and _is_markdown(name) and name != kind.index_name:
                blobs.append(blob.decode())
    step = max(ceil(len(blobs) / _MAX_NEIGHBOURS), 1)
    return blobs[::step]


def _commits(folder: Path, head: str, faults: list[str]) -> Iterator[Commit]:
    """Yield a commit and its ancestors, newest first; append unreadable parts to `faults`."""
    with (
        _git(folder, "rev-list", head) as listing,
        _git(folder, *_DIFF_TREE, "--", ".", stdin=listing.stdout) as process,
    ):
        yield from _parse_commits(process.stdout)
        has_failed = process.wait() != 0 or listing.wait() != 0
    if has_failed:
        faults.append("what was before cannot be read")


def _parse_commits(stream: BufferedReader) -> Iterator[Commit]:
    """Yield the commits in the output of ``git diff-tree``; only regular files have a path."""
    commit = None
    tokens = _tokens(stream)
    for token in tokens:
        fields = token.split()  # a line break may precede the token
        if fields[0].startswith(b"@"):
            if commit:
                yield commit
            seconds, commit_hash = fields
            at = _moment(seconds.removeprefix(b"@"))
            commit = Commit(at=at, hash=commit_hash.decode(), changes=[])
        elif commit:
            path = os.fsdecode(next(tokens, b""))
            mode_before, mode_after, old, new, _status = fields
            mode_before = mode_before.removeprefix(b":")
            change = Change(
                before=path if mode_before.startswith(_REGULAR_FILE) else "",
                after=path if mode_after.startswith(_REGULAR_FILE) else "",
                mode=_permissions(mode_before),
                old=old.decode(),
                new=new.decode(),
            )
            commit.changes.append(change)
    if commit:
        yield commit


def _permissions(mode: bytes) -> int:
    """Return the permissions in a mode of git: its last three octal digits."""
    return int(mode[-3:], 8)


def _moment(seconds: bytes | str) -> datetime:
    """Return the time of a commit from its seconds since 1970, clipped to the year 9999."""
    clipped = min(max(int(seconds or 0), 0), _LATEST_SECOND)
    return datetime.fromtimestamp(clipped, UTC)


def _entries(folder: Path, head: str, faults: list[str]) -> dict[str, FileLifetime]:
    """Return the regular files of a commit by path; append to `faults` if it is unreadable."""
    files = {}
    with _git(folder, "ls-tree", "-r", "-z", head) as process:
        for token in _tokens(process.stdout):
            fields, _, path = token.partition(b"\t")
            mode, _, blob = fields.split()
            if mode.startswith(_REGULAR_FILE):
                name = os.fsdecode(path)
                files[name] = FileLifetime(
                    name, is_in_head=True, mode=_permissions(mode), blob=blob.decode()
                )
        if process.wait():
            faults.append(f"commit {head[:12]} cannot be read")
    return files


def _tokens(stream: BufferedReader) -> Iterator[bytes]:
    """Yield the tokens of a stream, which end in a NUL byte."""
    incomplete = b""
    while piece := stream.read1(2**16):
        *tokens, incomplete = (incomplete + piece).split(b"\0")
        yield from tokens


@dataclass(frozen=True, kw_only=True)
class PastMoment(FolderMoment):
    """Deleted files as they were before their deletion, with the index of that time."""

    lifetimes: Mapping[str, FileLifetime]
    read_blob: BlobReader

    def read(self, name: str) -> FileCopy:
        """Return a deleted file."""
        lifetime = self.lifetimes[name]
        status = os.fstat(self.folder.handle)
        return FileCopy(
            name=name,
            data=self.read_blob(lifetime.blob) or b"",
            mode=lifetime.mode & status.st_mode,  # git stores the executable bit alone
            written=self.stamp_of(name).written,
            owner=(status.st_uid, status.st_gid),
        )


def past_moments(
    moment: FolderMoment, history: GitHistory, read_blob: BlobReader, *, with_emptied: bool
) -> Iterator[PastMoment]:
    """Yield the deleted files, grouped by the index at the time of their deletion.

    `with_emptied` includes the files whose text was deleted.
    """
    deleted = _deleted_files(moment, history)
    if with_emptied:
        deleted += _emptied_files(moment, history)
    deleted = [lifetime for lifetime in deleted if is_file_path(lifetime.name)]
    names_ever = frozenset({*moment.names, *(lifetime.name for lifetime in deleted)})
    by_index: dict[str, dict[str, FileLifetime]] = {}
    for lifetime in deleted:
        by_index.setdefault(lifetime.index, {})[lifetime.name] = lifetime
    for blob, lifetimes in by_index.items():
        raw = read_blob(blob) if blob else None
        index = None
        if raw is not None:
            # Only the content of a past index is read; git has no owner and no time of it.
            index = FileCopy(name="", data=raw, mode=0, written=0, owner=(0, 0))
        stamps = {name: _past_stamp(lifetime) for name, lifetime in lifetimes.items()}
        yield PastMoment(
            folder=moment.folder,
            listing=Listing(files=stamps, others=()),
            index=index,
            _locations={name: FileLocation(name, stamp) for name, stamp in stamps.items()},
            names_ever=names_ever,
            lifetimes=lifetimes,
            read_blob=read_blob,
        )


def _past_stamp(lifetime: FileLifetime) -> Stamp:
    """Return a stamp for a deleted file: its content in place of the inode, and its last commit."""
    at = lifetime.written or lifetime.deleted_at
    written = 0 if at is None else int(at.timestamp()) * 10**9
    return Stamp(inode=int(lifetime.blob, 16), size=0, written=written, changed=0)


def _deleted_files(moment: FolderMoment, history: GitHistory) -> list[FileLifetime]:
    """Return the committed files that no longer exist, uncommitted deletions at the end."""
    existing_names = {*moment.names, *moment.listing.others}
    left_out = _folders_left_out(moment)

    def is_missing(path: str) -> bool:
        return path not in existing_names and not _is_below(path, left_out)

    deleted = [
        lifetime
        for lifetime in history.lifetimes
        if not lifetime.is_in_head and is_missing(lifetime.name)
    ]
    uncommitted = [lifetime for name, lifetime in history.present.items() if is_missing(name)]
    if not uncommitted:
        return deleted
    sample_hash = uncommitted[0].blob
    new_names = [name for name in moment.names if name not in history.present]
    renamed_blobs = set(_names_by_blob(moment, new_names, sample_hash))
    uncommitted = [lifetime for lifetime in uncommitted if lifetime.blob not in renamed_blobs]
    moved_names = {}
    if uncommitted:
        moved_names = _names_by_blob(moment, _untracked(moment.folder.path), sample_hash)
    at = datetime.fromtimestamp(os.fstat(moment.folder.handle).st_mtime, UTC)
    for lifetime in uncommitted:
        deleted_file = replace(lifetime, is_in_head=False, deleted_at=at, index=history.index)
        deleted_file.moved_to = moved_names.get(lifetime.blob, "")
        deleted.append(deleted_file)
    return deleted


def _folders_left_out(moment: FolderMoment) -> set[str]:
    """Return the subfolders that exist and whose files do not belong to the folder."""
    left_out = set()
    for name in moment.listing.others:
        status = moment.folder.status_of(name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            left_out.add(name)
    return left_out


def _names_by_blob(moment: FolderMoment, names: Iterable[str], sample_hash: str) -> dict[str, str]:
    """Return the names of readable files by the hash of their content.

    Parameters
    ----------
    moment : FolderMoment
        The folder.
    names : iterable of str
        The names.
    sample_hash : str
        Any hash of the repository, which shows the algorithm of its hashes.
    """
    names_by_blob = {}
    for name in names:
        with suppress(StoreError, OSError):  # a link, or a file that is being written
            file = moment.folder.read_if_there(name)
            if file is not None:
                names_by_blob[blob_hash(file.data, sample_hash)] = name
    return names_by_blob


def _untracked(folder: Path) -> list[str]:
    """Return the untracked Markdown files below a folder, up to a maximum number."""
    names = []
    with _git(folder, "ls-files", "--others", "--exclude-standard", "-z") as process:
        for token in _tokens(process.stdout):
            name = os.fsdecode(token)
            if _is_markdown(name) and is_file_path(name):
                names.append(name)
            if len(names) == _MAX_UNTRACKED:
                break
    return names


def _emptied_files(moment: FolderMoment, history: GitHistory) -> list[FileLifetime]:
    """Return the files that were emptied, whether that is committed or not."""
    emptied = []
    for name in moment.names:
        lifetime = history.present.get(name)
        stamp = moment.stamp_of(name)
        # A file that was emptied may still have a line break.
        if lifetime is None or stamp.size > 1 or moment.read(name).data.strip():
            continue
        if lifetime.deleted_at is None:
            at = datetime.fromtimestamp(stamp.written / 1e9, UTC)
            lifetime = replace(lifetime, deleted_at=at, index=history.index)
        emptied.append(lifetime)
    return emptied


@contextmanager
def blobs(folder: Path) -> Iterator[BlobReader]:
    """Yield a function that returns the content of a blob by its hash; None if unreadable.

    The function raises GitTimeoutError if git does not answer in time.
    """
    with ExitStack() as stack:
        process: _Process | None = None

        def read(name: str) -> bytes | None:
            nonlocal process
            if process is None:
                process = stack.enter_context(_git(folder, "cat-file", "--batch"))
            with suppress(BrokenPipeError):  # the process has ended, so its output is empty
                os.write(process.stdin.fileno(), f"{name}\n".encode())
            header = process.stdout.readline().split()  # HASH TYPE SIZE, or NAME missing
            if len(header) == 2:  # the object is missing
                return None
            if len(header) == 3 and header[1] == b"blob" and int(header[2]) <= MAX_FILE_BYTES:
                size = int(header[2])
                data: bytes = process.stdout.read(size + 1)  # the content and a line break
                if len(data) == size + 1:
                    return data[:-1]
            # The rest of the output would be read as the next answer, so start a new process then.
            stack.close()
            process = None
            return None

        yield read


class CommittedFile(NamedTuple):
    """A committed version of a file: its content, and the time and hash of the commit."""

    data: bytes
    at: datetime
    commit: str


def versions_of(folder: Path, name: str, max_count: int = 5) -> list[CommittedFile]:
    """Return the last committed versions of a file, newest first, up to a maximum number."""
    arguments = ("--timestamp", f"--max-count={max_count}", "HEAD", "--", name)
    with _git(folder, "rev-list", *arguments) as process:
        lines = process.stdout.read().decode().splitlines()
    versions = []
    with blobs(folder) as read_blob:
        for line in lines:
            seconds, commit = line.split()
            data = read_blob(f"{commit}:./{name}")
            if data is not None:  # a commit that deleted the file has no content
                versions.append(CommittedFile(data=data, at=_moment(seconds), commit=commit))
    return versions


def blob_hash(data: bytes, sample_hash: str) -> str:
    """Return git's hash of a content, by the algorithm of a hash of the same repository.

    >>> blob_hash(b"", "0" * 40)
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    algorithm = "sha1" if len(sample_hash) == 40 else "sha256"
    content = b"blob %d\0%b" % (len(data), data)
    return new_hash(algorithm, content, usedforsecurity=False).hexdigest()


class _Process(Popen[bytes]):
    stdin: IO[bytes]
    stdout: BufferedReader


@contextmanager
def _git(
    folder: Path,
    *arguments: str,
    stdin: IO[bytes] | int = PIPE,
    stderr: int = DEVNULL,
    timeout: float | None = None,
) -> Iterator[_Process]:
    """Run a git command, and kill it when the block ends.

    After `timeout` seconds the command is killed, so that reading its output ends. Then
    GitTimeoutError is raised, because the output is incomplete.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _PASSED_ON
    }
    environment.update(_ENVIRONMENT)
    command = [shutil.which("git") or "git", "-C", str(folder), *_GIT_OPTIONS, *arguments]
    seconds = READ_TIMEOUT if timeout is None else timeout
    timeout_error = GitTimeoutError(
        f"git did not answer within {seconds:g} seconds; run git status in {folder} to see why"
    )
    has_timed_out = Event()

    def stop() -> None:
        has_timed_out.set()
        process.kill()

    with _Process(command, stdin=stdin, stdout=PIPE, stderr=stderr, env=environment) as process:
        watchdog = Timer(seconds, stop)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield process
        except Exception as error:
            if has_timed_out.is_set():
                raise timeout_error from error
            raise
        finally:
            watchdog.cancel()
            process.kill()
        if has_timed_out.is_set():
            raise timeout_error
