"""Long lists of named tuples, held as columns: a million of them take little more than their texts.

A plan lists every memory that it decides on. As tuples of Python's strings and numbers they take
some 500 bytes each, as columns some 150.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any, Final, Generic, TypeVar, overload

Row = TypeVar("Row", bound=tuple[Any, ...])
Column = Sequence[Any]
Chunk = Sequence[Column]
"""The columns of some rows."""

AT_ONCE: Final = 4096
"""Rows in a chunk; the last one may have fewer."""
_FEW: Final = 256
"""So many distinct values a byte tells apart."""


def in_chunks(rows: Iterable[Row]) -> Iterator[Chunk]:
    """Yield rows as chunks of columns; none where there is no row."""
    if isinstance(rows, Listed):
        yield from rows.chunks
        return
    remaining = iter(rows)
    while some := tuple(islice(remaining, AT_ONCE)):
        yield tuple(zip(*some, strict=True))


class Listed(Sequence[Row], Generic[Row]):
    """Named tuples of one kind, made when they are asked for.

    Parameters
    ----------
    kind : type
        Of the named tuple.
    chunks : iterable of sequence of sequence
        The columns of :data:`AT_ONCE` rows each, the last of fewer. Those of a whole chunk are
        packed: a short list takes little room as it is.

    Attributes
    ----------
    chunks : list of sequence of sequence
        The columns as they are held.
    """

    def __init__(self, kind: type[Row], chunks: Iterable[Chunk]) -> None:
        self._kind = kind
        self.chunks = [
            chunk if len(chunk[0]) < AT_ONCE else [*map(_packed, chunk)] for chunk in chunks
        ]
        self._count = sum(len(chunk[0]) for chunk in self.chunks)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        if isinstance(place, slice):
            return tuple(map(self.__getitem__, range(*place.indices(self._count))))
        chunk, at = divmod(range(self._count)[place], AT_ONCE)
        return self._kind(*(column[at] for column in self.chunks[chunk]))

    def __iter__(self) -> Iterator[Row]:
        for columns in self.chunks:
            yield from map(self._kind, *columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Listed | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(_same, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{self._count:,} of {self._kind.__name__}>"


def _same(one: object, other: object) -> bool:
    return one == other


def _packed(values: Column) -> Column:
    """Return values in as little room as their types allow."""
    types = set(map(type, values))
    if types == {int}:
        try:
            return array("q", values)
        except OverflowError:
            return values
    if types != {str}:
        return values
    distinct = dict.fromkeys(values)
    if len(distinct) <= _FEW:
        code = {text: number for number, text in enumerate(distinct)}
        return _Repeated(tuple(distinct), bytes(map(code.__getitem__, values)))
    return _Texts(values)


class _Repeated(Sequence[str]):
    """Texts of which few differ."""

    def __init__(self, distinct: Sequence[str], codes: bytes) -> None:
        self._distinct, self._codes = distinct, codes

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, place: Any) -> Any:
        return self._distinct[self._codes[place]]

    def __iter__(self) -> Iterator[str]:
        return map(self._distinct.__getitem__, self._codes)


class _Texts(Sequence[str]):
    """Texts, one behind the other."""

    def __init__(self, values: Sequence[str]) -> None:
        self._joined = "".join(values)
        self._ends = array("q", accumulate(map(len, values), initial=0))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: Any) -> Any:
        return self._joined[self._ends[place] : self._ends[place + 1]]

    def __iter__(self) -> Iterator[str]:
        joined = self._joined
        return (joined[start:end] for start, end in pairwise(self._ends))
