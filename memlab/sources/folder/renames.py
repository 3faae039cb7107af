"""Find the renames of a commit by the similarity of deleted and added files.

Git's similarity index counts the text of a template as a match, and is not computed for large
commits. Here files are compared by their own text, without the text that most files of a folder
share.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Final, NamedTuple

MIN_KEPT_SHARE: Final = 0.7
"""Minimum share of its own text that a renamed file keeps."""
_SHARED_ABOVE: Final = 0.5
"""Share of a folder's files above which a text in them is shared text, such as a template's."""
_RUN_LENGTH: Final = 3
"""Number of words in a run. Runs of consecutive words are compared, so that their order counts."""
_MIN_OWN_RUNS: Final = 3
"""Minimum number of own runs that distinguish a file from others of its template."""
_MAX_PAIRS: Final = 40_000
"""Maximum number of pairs of files whose whole texts are compared to find doubtful deletions."""
_MAX_COPIES: Final = 2_500
"""Maximum number of pairs of files with equal content whose paths are compared."""

_CHARACTER: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD: Final = re.compile(rf"[{_CHARACTER}]|[^\W_{_CHARACTER}]+")
"""A word; in scripts without spaces, a character."""
_DAY: Final = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?!\d)")

Runs = Counter[int]
"""Number of occurrences of each run of words in a text."""


class File(NamedTuple):
    """The path of a file in a commit, and the hash of its content."""

    path: str
    blob: str

    @property
    def folder(self) -> str:
        """Path of its folder; empty for the root."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Its name without folders."""
        return self.path.rpartition("/")[2]


@dataclass
class Renames:
    """The renames of a commit.

    Attributes
    ----------
    sure : dict of str to str
        The new path by the old one; no file occurs twice.
    doubtful : dict of str to str
        The path of a similar file, which may be another memory, by the path of a deleted one.
    is_complete : bool
        Whether all texts could be read that had to be compared.
    """

    sure: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True


@dataclass(frozen=True)
class CommitContents:
    """Functions that return contents of a commit.

    Attributes
    ----------
    text_of : callable
        Returns the content of a blob by its hash; None if it cannot be read.
    neighbours : callable
        Returns the hashes of the files in a folder, before the commit and after it.
    titles : callable
        Returns the titles of files in the index, before the commit and after it.
    """

    text_of: Callable[[str], bytes | None]
    neighbours: Callable[[str], tuple[Sequence[str], Sequence[str]]]
    titles: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]]


def find_renames(
    deleted: Sequence[File],
    added: Sequence[File],
    contents: CommitContents,
    *,
    empty: Iterable[str] = (),
) -> Renames:
    """Return the renames of a commit.

    A file was renamed if at least `MIN_KEPT_SHARE` of its own text is in the added file, and vice
    versa. Text in most files of the folder is not its own. Each file is used once: pairs with a
    larger share come first, then pairs with the same file name. In doubt a file is a deletion, and
    `Renames.doubtful` has the similar file:

    - only the text of a template is similar,
    - both names have different dates, and the text was changed,
    - their titles in the index differ, and the text was changed.

    Parameters
    ----------
    deleted, added : sequence of File
        The files of one commit.
    contents : CommitContents
        Functions that return texts and indexes; texts that cannot be renamed are not read.
    empty : iterable of str
        Hashes of contents without words, which are not compared.
    """
    renames = Renames()
    comparison = _Comparison(contents, renames)
    for old, new in _pairs_of_same_content(deleted, added, frozenset(empty)):
        if old.name == new.name or comparison.has_own_text(old, new):
            renames.sure[old.path] = new.path
        else:
            renames.doubtful[old.path] = new.path

    matched = {*renames.sure.values()}
    old_files = [file for file in deleted if file.path not in renames.sure]
    new_files = [file for file in added if file.path not in matched]
    if not old_files or not new_files:
        return renames
    scored = list(comparison.alike_by_own_text(old_files, new_files))
    before, after = contents.titles() if scored else ({}, {})
    certain = []
    for score, old, new in scored:
        if _are_of_other_days(old, new) or _have_other_titles(before, after, old, new):
            renames.doubtful.setdefault(old.path, new.path)
        else:
            certain.append((score, old, new))
    for old, new in _one_to_one(certain):
        renames.sure[old.path] = new.path
        renames.doubtful.pop(old.path, None)

    matched = {*renames.sure.values()}
    old_files = [file for file in old_files if file.path not in renames.sure]
    new_files = [file for file in new_files if file.path not in matched]
    for old, new in comparison.alike_by_whole_text(old_files, new_files):
        renames.doubtful.setdefault(old.path, new.path)
    return renames


class _Comparison:
    """Compares the files of a commit. Each text is read and split once."""

    def __init__(self, contents: CommitContents, renames: Renames) -> None:
        self._contents = contents
        self._renames = renames
        self._runs: dict[str, Runs] = {}
        self._shared_in: dict[str, frozenset[int]] = {}

    def has_own_text(self, old: File, new: File) -> bool:
        """Return whether a file has enough own text to distinguish it from others of its folder."""
        shared = self._shared_by(old) | self._shared_by(new)
        runs = self._runs_of(old.blob)
        # A file with fewer runs than the minimum needs all of them.
        needed = min(_MIN_OWN_RUNS, max(runs.total(), 1))
        return _total(runs, shared) >= needed

    def alike_by_own_text(
        self, old_files: Sequence[File], new_files: Sequence[File]
    ) -> Iterator[tuple[float, File, File]]:
        """Yield the pairs that share enough of their own text, each with the share."""
        shared = set[int]()
        for file in (*old_files, *new_files):
            shared.update(self._shared_by(file))
        files_with_run = defaultdict(list)
        for number, file in enumerate(new_files):
            for run, times in self._runs_of(file.blob).items():
                if run not in shared:
                    files_with_run[run].append((number, times))
        sizes = [_total(self._runs_of(file.blob), shared) for file in new_files]
        for old in old_files:
            runs = self._runs_of(old.blob)
            size = _total(runs, shared)
            common = Counter[int]()
            for run, times in runs.items():
                for number, times_in_new in files_with_run.get(run, ()):
                    common[number] += min(times, times_in_new)
            for number, count in common.items():
                share = count / max(size, sizes[number], _MIN_OWN_RUNS)
                if share >= MIN_KEPT_SHARE:
                    yield share, old, new_files[number]

    def alike_by_whole_text(
        self, old_files: Sequence[File], new_files: Sequence[File]
    ) -> Iterator[tuple[File, File]]:
        """Yield each file with the most similar added one; text of a template counts too."""
        if len(old_files) * len(new_files) > _MAX_PAIRS:
            return
        for old in old_files:
            runs = self._runs_of(old.blob)
            best = 0.0
            match = None
            for new in new_files:
                new_runs = self._runs_of(new.blob)
                common = (runs & new_runs).total()
                share = common / max(runs.total(), new_runs.total(), 1)
                if share > best:
                    best = share
                    match = new
            if match is not None and best >= MIN_KEPT_SHARE:
                yield old, match

    def _shared_by(self, file: File) -> frozenset[int]:
        """Return the runs in most files of a folder, before the commit or after it."""
        if file.folder not in self._shared_in:
            shared = set[int]()
            for blobs in self._contents.neighbours(file.folder):
                file_counts = Counter[int]()
                for blob in blobs:
                    file_counts.update(self._runs_of(blob).keys())
                limit = _SHARED_ABOVE * len(blobs)
                if len(blobs) > 1:
                    shared.update(run for run, count in file_counts.items() if count > limit)
            self._shared_in[file.folder] = frozenset(shared)
        return self._shared_in[file.folder]

    def _runs_of(self, blob: str) -> Runs:
        """Return the runs of a text; record if it cannot be read."""
        if blob not in self._runs:
            data = self._contents.text_of(blob)
            if data is None:
                self._renames.is_complete = False
            self._runs[blob] = runs_in(data or b"")
        return self._runs[blob]


def runs_in(data: bytes) -> Runs:
    """Return the number of occurrences of each run of words in a text."""
    words = _WORD.findall(data.decode(errors="replace").casefold())
    if not words:
        return Counter()
    if len(words) < _RUN_LENGTH:
        return Counter([hash(tuple(words))])
    return Counter(hash(run) for run in zip(words, words[1:], words[2:], strict=False))


def _total(runs: Runs, shared: Collection[int]) -> int:
    """Return the number of runs without the shared ones."""
    return sum(times for run, times in runs.items() if run not in shared)


def _one_to_one(scored: Iterable[tuple[float, File, File]]) -> Iterator[tuple[File, File]]:
    """Yield pairs in which no file occurs twice, the most similar first."""
    used_old = set[str]()
    used_new = set[str]()

    def closeness(pair: tuple[float, File, File]) -> tuple[float, int, float, str, str]:
        score, old, new = pair
        common_parts = _common_end(old.path, new.path)
        ratio = SequenceMatcher(None, old.path, new.path).ratio()
        return -score, -common_parts, -ratio, old.path, new.path

    for _, old, new in sorted(scored, key=closeness):
        if old.path not in used_old and new.path not in used_new:
            used_old.add(old.path)
            used_new.add(new.path)
            yield old, new


def _pairs_of_same_content(
    deleted: Sequence[File], added: Sequence[File], empty: frozenset[str]
) -> Iterator[tuple[File, File]]:
    """Yield pairs of files with equal content, those with the most similar paths first."""
    deleted_by_blob = defaultdict[str, list[File]](list)
    for old in deleted:
        deleted_by_blob[old.blob].append(old)
    added_by_blob = defaultdict[str, list[File]](list)
    for new in added:
        added_by_blob[new.blob].append(new)
    for blob, old_files in deleted_by_blob.items():
        new_files = added_by_blob.get(blob, [])
        if blob in empty or not new_files:
            continue
        if len(old_files) * len(new_files) <= _MAX_COPIES:
            yield from _one_to_one([(1.0, old, new) for old in old_files for new in new_files])
        else:
            sorted_old = sorted(old_files, key=_name_then_path)
            sorted_new = sorted(new_files, key=_name_then_path)
            yield from zip(sorted_old, sorted_new, strict=False)


def _name_then_path(file: File) -> tuple[str, str]:
    """Return the sort key of a file: its name, then its path."""
    return file.name, file.path


def _common_end(path: str, other: str) -> int:
    """Return the number of equal parts at the end of two paths."""
    count = 0
    parts = reversed(PurePosixPath(path).parts)
    other_parts = reversed(PurePosixPath(other).parts)
    for part, other_part in zip(parts, other_parts, strict=False):
        if part != other_part:
            break
        count += 1
    return count


def _are_of_other_days(old: File, new: File) -> bool:
    """Return whether both names have a date, and the dates differ."""
    old_day = _DAY.search(old.name)
    new_day = _DAY.search(new.name)
    return old_day is not None and new_day is not None and old_day.groups() != new_day.groups()


def _have_other_titles(
    before: Mapping[str, str], after: Mapping[str, str], old: File, new: File
) -> bool:
    """Return whether the index entry of a file was replaced by one with another title."""
    is_old_removed = old.path in before and old.path not in after
    is_new_added = new.path not in before and new.path in after
    if not (is_old_removed and is_new_added):
        return False
    old_title = _title(before[old.path], old)
    new_title = _title(after[new.path], new)
    return old_title is not None and new_title is not None and old_title != new_title


def _title(label: str, file: File) -> str | None:
    """Return a title in a form for comparison; None if it is the name of the file."""
    words = _WORD.findall(label.casefold())
    names = (file.name, PurePosixPath(file.name).stem)
    is_file_name = any(words == _WORD.findall(name.casefold()) for name in names)
    if not words or is_file_name:
        return None
    return " ".join(words)
