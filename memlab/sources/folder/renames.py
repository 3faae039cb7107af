"""Which files that one commit deleted live on under the names of files that it added.

Git's own similarity counts the text of a template as a match, and gives up in large commits. Here a
file is compared by what is its own: the text beyond what most files of its folder share.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Final, NamedTuple

ALIKE: Final = 0.7
"""Share of its own text that a renamed file keeps at least."""
_MOST: Final = 0.5
"""Text in more than this share of a folder's files is shared: a template's, and nobody's own."""
_RUN: Final = 3
"""Words that are compared together, so that their order counts."""
_FEWEST: Final = 3
"""Runs of words of its own by which a file can be told from others of its template."""
_MOST_PAIRS: Final = 40_000
"""Pairs of files whose whole texts are compared to tell which deletions are in doubt."""
_MOST_COPIES: Final = 2_500
"""Pairs of files with one and the same content whose paths are compared."""

_CHARACTER: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD: Final = re.compile(rf"[{_CHARACTER}]|[^\W_{_CHARACTER}]+")
"""A word; in writing without spaces, a character."""
_DAY: Final = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?!\d)")

Runs = Counter[int]
"""How often each run of words stands in a text."""


class File(NamedTuple):
    """A file of a commit: its path, and git's name of its content."""

    path: str
    blob: str

    @property
    def folder(self) -> str:
        """The path of the folder that it lies in; empty for the topmost."""
        return self.path.rpartition("/")[0]

    @property
    def last(self) -> str:
        """Its name without folders."""
        return self.path.rpartition("/")[2]


@dataclass
class Renames:
    """What became of the files that a commit deleted."""

    sure: dict[str, str] = field(default_factory=dict)
    """Old path -> new path, one to one."""
    doubtful: dict[str, str] = field(default_factory=dict)
    """Old path -> the path of a file that is much like it, and may be another memory."""
    is_complete: bool = True
    """Whether every text that had to be compared could be read."""


@dataclass(frozen=True)
class Contents:
    """What a comparison may ask of a commit.

    Attributes
    ----------
    text_of : callable
        Returns the content of a file by git's name of it; None where it cannot be read.
    neighbours : callable
        Returns git's names of the files in a folder before the commit, and after it.
    titles : callable
        Returns what the index called each file before the commit, and what after it.
    """

    text_of: Callable[[str], bytes | None]
    neighbours: Callable[[str], tuple[Sequence[str], Sequence[str]]]
    titles: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]]


def find_renames(
    deleted: Sequence[File], added: Sequence[File], contents: Contents, *, empty: Iterable[str] = ()
) -> Renames:
    """Find which deleted files were renamed.

    A file was renamed where at least `ALIKE` of its own text is in the added file, and the other
    way round. Text that stands in most files of the folder is not its own. Each file is used once,
    the most alike first, then those with the same name in another folder. In doubt a file is a
    deletion, and `Renames.doubtful` says what it is like:

    - only the text of their template is alike,
    - both names hold a day, and not the same one, and the text was changed,
    - the index called it by another title than the added file, and the text was changed.

    Parameters
    ----------
    deleted, added : sequence of File
        The files of one commit.
    contents : Contents
        Where texts and indexes are read; only files that may be renamed are read.
    empty : iterable of str
        Git's names of contents without words, which say nothing.
    """
    found = Renames()
    comparison = _Comparison(contents, found)
    nothing = frozenset(empty)
    for old, new in _of_same_content(deleted, added, nothing):
        if old.last == new.last or comparison.has_own_text(old, new):
            found.sure[old.path] = new.path
        else:
            found.doubtful[old.path] = new.path

    taken = {*found.sure.values()}
    old_files = [file for file in deleted if file.path not in found.sure]
    new_files = [file for file in added if file.path not in taken]
    if not old_files or not new_files:
        return found
    scored = list(comparison.alike_by_own_text(old_files, new_files))
    before, after = contents.titles() if scored else ({}, {})
    certain = []
    for score, old, new in scored:
        if _are_of_other_days(old, new) or _have_other_titles(before, after, old, new):
            found.doubtful.setdefault(old.path, new.path)
        else:
            certain.append((score, old, new))
    for old, new in _one_to_one(certain):
        found.sure[old.path] = new.path
        found.doubtful.pop(old.path, None)

    taken = {*found.sure.values()}
    old_files = [file for file in old_files if file.path not in found.sure]
    new_files = [file for file in new_files if file.path not in taken]
    for old, new in comparison.alike_by_whole_text(old_files, new_files):
        found.doubtful.setdefault(old.path, new.path)
    return found


class _Comparison:
    """Compares files of one commit; each text is read and split once."""

    def __init__(self, contents: Contents, found: Renames) -> None:
        self._contents = contents
        self._found = found
        self._runs: dict[str, Runs] = {}
        self._shared_in: dict[str, frozenset[int]] = {}

    def has_own_text(self, old: File, new: File) -> bool:
        """Return whether a file has text that tells it from the others of its folder."""
        shared = self._shared_by(old) | self._shared_by(new)
        runs = self._runs_of(old.blob)
        return _total(runs, shared) >= min(_FEWEST, max(runs.total(), 1))

    def alike_by_own_text(
        self, old_files: Sequence[File], new_files: Sequence[File]
    ) -> Iterator[tuple[float, File, File]]:
        """Yield the pairs that share enough of their own text, each with the share."""
        every = [*old_files, *new_files]
        shared = frozenset[int]().union(*(self._shared_by(file) for file in every))
        holders = defaultdict(list)
        for number, file in enumerate(new_files):
            for run, times in self._runs_of(file.blob).items():
                if run not in shared:
                    holders[run].append((number, times))
        sizes = [_total(self._runs_of(file.blob), shared) for file in new_files]
        for old in old_files:
            runs = self._runs_of(old.blob)
            size = _total(runs, shared)
            common = Counter[int]()
            for run, times in runs.items():
                for number, there in holders.get(run, ()):
                    common[number] += min(times, there)
            for number, count in common.items():
                share = count / max(size, sizes[number], _FEWEST)
                if share >= ALIKE:
                    yield share, old, new_files[number]

    def alike_by_whole_text(
        self, old_files: Sequence[File], new_files: Sequence[File]
    ) -> Iterator[tuple[File, File]]:
        """Yield for a file the added one that it is most like, where a template counts too."""
        if len(old_files) * len(new_files) > _MOST_PAIRS:
            return
        for old in old_files:
            runs = self._runs_of(old.blob)
            best = 0.0
            match = None
            for new in new_files:
                others = self._runs_of(new.blob)
                common = (runs & others).total()
                share = common / max(runs.total(), others.total(), 1)
                if share > best:
                    best = share
                    match = new
            if match is not None and best >= ALIKE:
                yield old, match

    def _shared_by(self, file: File) -> frozenset[int]:
        """Return the runs that most files of a file's folder have, before the commit or after."""
        if file.folder not in self._shared_in:
            shared = set[int]()
            for blobs in self._contents.neighbours(file.folder):
                in_files = Counter(run for blob in blobs for run in self._runs_of(blob))
                limit = _MOST * len(blobs)
                if len(blobs) > 1:
                    shared.update(run for run, count in in_files.items() if count > limit)
            self._shared_in[file.folder] = frozenset(shared)
        return self._shared_in[file.folder]

    def _runs_of(self, blob: str) -> Runs:
        if blob not in self._runs:
            data = self._contents.text_of(blob)
            if data is None:
                self._found.is_complete = False
            self._runs[blob] = runs_in(data or b"")
        return self._runs[blob]


def runs_in(data: bytes) -> Runs:
    """Return how often each run of words stands in a text."""
    words = _WORD.findall(data.decode(errors="replace").casefold())
    if len(words) < _RUN:
        return Counter([hash(tuple(words))]) if words else Counter()
    return Counter(hash(run) for run in zip(words, words[1:], words[2:], strict=False))


def _total(runs: Runs, shared: frozenset[int]) -> int:
    return sum(times for run, times in runs.items() if run not in shared)


def _one_to_one(scored: Iterable[tuple[float, File, File]]) -> Iterator[tuple[File, File]]:
    """Yield pairs in which no file stands twice, the most alike first."""
    used = set[tuple[int, str]]()

    def closeness(pair: tuple[float, File, File]) -> tuple[float, int, float, str, str]:
        score, old, new = pair
        ratio = SequenceMatcher(None, old.path, new.path).ratio()
        return -score, -_common_end(old.path, new.path), -ratio, old.path, new.path

    for _, old, new in sorted(scored, key=closeness):
        if used.isdisjoint({(0, old.path), (1, new.path)}):
            used |= {(0, old.path), (1, new.path)}
            yield old, new


def _of_same_content(
    deleted: Sequence[File], added: Sequence[File], nothing: frozenset[str]
) -> Iterator[tuple[File, File]]:
    """Yield pairs of files with the same content, those first whose paths are the most alike."""
    by_blob = defaultdict[str, tuple[list[File], list[File]]](lambda: ([], []))
    for old in deleted:
        by_blob[old.blob][0].append(old)
    for new in added:
        by_blob[new.blob][1].append(new)
    for blob, (old_files, new_files) in by_blob.items():
        if blob in nothing or not old_files or not new_files:
            continue
        if len(old_files) * len(new_files) <= _MOST_COPIES:
            yield from _one_to_one([(1.0, old, new) for old in old_files for new in new_files])
        else:
            yield from zip(
                sorted(old_files, key=_from_end), sorted(new_files, key=_from_end), strict=False
            )


def _from_end(file: File) -> tuple[str, str]:
    return file.last, file.path


def _common_end(path: str, other: str) -> int:
    """Return how many parts two paths have in common, counted from the file's name."""
    count = 0
    for part, other_part in zip(
        reversed(PurePosixPath(path).parts), reversed(PurePosixPath(other).parts), strict=False
    ):
        if part != other_part:
            break
        count += 1
    return count


def _are_of_other_days(old: File, new: File) -> bool:
    """Return whether both names hold a day, and not the same."""
    day = _DAY.search(old.last)
    other = _DAY.search(new.last)
    return day is not None and other is not None and day.groups() != other.groups()


def _have_other_titles(
    before: Mapping[str, str], after: Mapping[str, str], old: File, new: File
) -> bool:
    """Return whether the index entry of a file was replaced by one with another title."""
    has_moved = old.path in before and old.path not in after and new.path in after
    if not has_moved or new.path in before:
        return False
    title = _title(before[old.path], old)
    other = _title(after[new.path], new)
    return title is not None and other is not None and title != other


def _title(label: str, file: File) -> str | None:
    """Return a title so that two can be compared; None where it is the file's name."""
    words = _WORD.findall(label.casefold())
    names = (file.last, PurePosixPath(file.last).stem)
    if any(words == _WORD.findall(name.casefold()) for name in names):
        return None
    return " ".join(words) or None
