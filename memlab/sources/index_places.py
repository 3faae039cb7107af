"""What an index says of a file, kept so that it can be said again in the same place.

Each block that names the file is kept as it stands, with the number of its first line, the lines
around it as digests, and the digest of the whole index. Where the index is as it was without the
files that come back, it becomes byte for byte what it was; where somebody has edited it since, a
block goes beside the nearest of the lines that stood around it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, overload

from memlab.sources.index_links import FileNames, mentions_in
from memlab.sources.load_rule import State
from memlab.sources.memory_index import EMPTY, Block, MemoryIndex, encoded, lines_of

SaidOf = Mapping[str, Sequence[Mapping[str, Any]]]
"""By file, what :func:`said_of` returned of it."""

_AROUND: Final = 100
"""Lines above a block, and below, that are remembered."""


class Said(NamedTuple):
    """A block that names files which come back.

    Attributes
    ----------
    line : int
        Where it began, from 0.
    text : str
        As it stood.
    entry : bool
        Whether it goes whole with its files.
    files : tuple of str
        All files that it named.
    above, below : tuple of str
        Digests of the lines around it that are not blank, the nearest first.
    whole : str
        Digest of the whole index.
    """

    line: int
    text: str
    entry: bool
    files: tuple[str, ...]
    above: tuple[str, ...]
    below: tuple[str, ...]
    whole: str


Form = tuple[Said, list[str] | None, list[str]]
"""A block, its lines before its files come back, None where there are none, and after."""


class SaidThere(Sequence[dict[str, Any]]):
    """What an index says of one file, as JSON values, each put together when it is looked at.

    The lines around every line of a long index would be two hundred times the index.
    """

    def __init__(self, whole: "_Whole", also: Mapping[str, str]) -> None:
        self._whole, self._also = whole, also
        self._blocks: list[tuple[Block, tuple[str, ...]]] = []

    def add(self, block: Block, files: tuple[str, ...]) -> None:
        """Take in a block that names the file, and others or not."""
        self._blocks.append((block, files))

    def __len__(self) -> int:
        return len(self._blocks)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        return {**self._whole.said(*self._blocks[at])._asdict(), **self._also}


class _Whole:
    """An index as it stood, with the digests of its lines."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def said(self, block: Block, files: tuple[str, ...]) -> Said:
        """Return a block with what stood around it."""
        digests, first = self._digests, block.number - 1
        end = first + len(lines_of(encoded(block.text)))
        above = tuple(d for d in reversed(digests[max(first - _AROUND, 0) : first]) if d)
        below = tuple(d for d in digests[end : end + _AROUND] if d)
        return Said(first, block.text, block.is_entry, files, above, below, self._digest)

    @cached_property
    def _digests(self) -> list[str]:
        return [_digest(line) if line.strip() else "" for line in lines_of(self._raw)]

    @cached_property
    def _digest(self) -> str:
        return _digest(self._raw)


def said_of(index: MemoryIndex, names: FileNames) -> dict[str, SaidThere]:
    """Return what an index says of each file it names, as JSON values."""
    aliases = {file: alias for alias, file in names.aliases.items()}
    whole = _Whole(index.raw)
    said: dict[str, SaidThere] = {}
    for block in index.blocks:
        files = tuple(block.files(names))
        for file in files:
            if file not in said:
                also = {"also": aliases[file]} if file in aliases else {}
                said[file] = SaidThere(whole, also)
            said[file].add(block, files)
    return said


def without_said(raw: bytes, gone: SaidOf, there: Collection[str], folder: Path) -> bytes:
    """Return an index with nothing in it that names `gone`.

    Parameters
    ----------
    raw : bytes
        The index as it is.
    gone : mapping of str to sequence
        By file, what :func:`said_of` returned of it.
    there : collection of str
        The files of the folder, those that go among them.
    folder : Path
        The folder.
    """
    return MemoryIndex(raw).without(gone, _names(gone, there, folder))


def with_said(raw: bytes, said: SaidOf, there: Collection[str], folder: Path) -> bytes:
    """Return an index that says again of files what it said.

    Parameters
    ----------
    raw : bytes
        The index as it is.
    said : mapping of str to sequence
        By file, what :func:`said_of` returned of it. A file that the index names is left alone.
    there : collection of str
        The files of the folder, those that come back among them.
    folder : Path
        The folder.
    """
    names = _names(said, there, folder)
    every = _forms_of(said, set(said), names)
    if (whole := _as_it_stood(raw, every)) is not None:
        return whole
    named = MemoryIndex(raw).named(names)
    forms = _forms_of(said, {file for file in said if file not in named}, names)
    if (whole := _as_it_stood(raw, forms)) is not None:
        return whole
    lines = lines_of(raw)
    for block, old, new in forms:
        _near_where_it_stood(lines, block, old, new)
    return encoded("".join(lines))


def _kept(each: Mapping[str, Any]) -> Said:
    return Said(
        int(each["line"]),
        str(each["text"]),
        bool(each["entry"]),
        tuple(map(str, each["files"])),
        tuple(map(str, each["above"])),
        tuple(map(str, each["below"])),
        str(each["whole"]),
    )


def _names(said: SaidOf, there: Collection[str], folder: Path) -> FileNames:
    also = {str(each["also"]): file for file in said for each in said[file] if "also" in each}
    return FileNames(folder, {*there, *said}, also)


def _forms_of(said: SaidOf, back: Collection[str], names: FileNames) -> list[Form]:
    """Return the blocks that name files which come back, in order, as they were and will be."""
    blocks = sorted({_kept(each) for file in back for each in said[file]})
    return [(block, *_forms(block, back, names)) for block in blocks]


def _forms(
    block: Said, back: Collection[str], names: FileNames
) -> tuple[list[str] | None, list[str]]:
    """Return a block's lines before its files come back, None where there are none, and after."""
    missing = set(block.files) - set(names.names)
    known = replace(names, names={*names.names, *block.files})
    kept = Block(block.line, block.text, State.LOADED, block.entry, mentions_in(block.text))
    old, new = kept.without(missing | set(back), known), kept.without(missing, known)
    return (lines_of(encoded(old)) if old else None), lines_of(encoded(new or block.text))


def _as_it_stood(raw: bytes, forms: Sequence[Form]) -> bytes | None:
    """Return the index with each block where it stood, where that is what it was; else None."""
    if len({block.whole for block, _, _ in forms}) != 1:
        return None
    lines = lines_of(raw)
    for left in (lines, lines[1:]) if lines[:1] == [EMPTY] else (lines,):
        there = _where_it_stood(list(left), forms)
        whole = None if there is None else encoded("".join(there))
        if whole is not None and _digest(whole) == forms[0][0].whole:
            return whole
    return None


def _where_it_stood(lines: list[str], forms: Sequence[Form]) -> list[str] | None:
    """Return lines with each block where it stood; None where something else stands there."""
    for block, old, new in forms:
        length = len(old or ())
        if lines[block.line : block.line + length] != (old or []) or block.line > len(lines):
            return None
        lines[block.line : block.line + length] = new
    return lines


def _near_where_it_stood(
    lines: list[str], block: Said, old: list[str] | None, new: list[str]
) -> None:
    """Put a block in the place of what was left of it, else below what stood above it."""
    if old:
        places = [at for at in range(len(lines)) if lines[at : at + len(old)] == old]
        if places:
            at = min(places, key=lambda place: abs(place - block.line))
            lines[at : at + len(old)] = new
            return
    at = _between(lines, block)
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    if at < len(lines) and not new[-1].endswith("\n"):
        new = [*new[:-1], f"{new[-1]}\n"]
    lines[at:at] = new


def _between(lines: Sequence[str], block: Said) -> int:
    """Return where a block goes: below what stood above it, else above what stood below it."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, line in enumerate(lines):
        digest = _digest(line)
        first.setdefault(digest, number)
        last[digest] = number + 1
    places = [last[digest] for digest in block.above if digest in last]
    places += [first[digest] for digest in block.below if digest in first]
    return places[0] if places else len(lines)


def _digest(content: str | bytes) -> str:
    raw = encoded(content) if isinstance(content, str) else content
    return blake2b(raw, digest_size=5).hexdigest()
