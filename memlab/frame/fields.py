"""What a store's texts mean: kinds, tags, references, moments. Each distinct text is read once."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memlab.items import MemoryKind, is_load_bearing_stored, strings_of
from memlab.moments import moment_of
from memlab.sources.arrow import as_numbers, of_numbers
from memlab.sources.base import Fault
from memlab.sources.tables import MOMENT

T = TypeVar("T")
Meaning = TypeVar("Meaning")
Integers = npt.NDArray[np.int64]

KINDS: Final = tuple(kind.value for kind in MemoryKind)
_MISSING: Final = -1
_NAT: Final = np.int64(np.iinfo(np.int64).min)
"""What numpy keeps for no moment."""
_AT_ONCE: Final = 4096
_verdict: Final = lru_cache(_AT_ONCE)(is_load_bearing_stored)
"""Stores of one agent, or of a fleet, have the same few pairs of kind and tags."""
_strings: Final = lru_cache(_AT_ONCE)(strings_of)
_FIRST, _LAST = (
    int(datetime(year, month, day, tzinfo=UTC).timestamp()) * 1_000_000
    for year, month, day in ((1, 1, 1), (9999, 12, 31))
)


@dataclass(frozen=True, slots=True)
class Coded:
    """A column as its distinct texts and, for every row, the place of its text among them.

    Parameters
    ----------
    distinct : pyarrow.Array of text
        Without repetition.
    codes : array of int64
        One a row; -1 where the text is missing.
    """

    distinct: Any
    codes: Integers

    @classmethod
    def of(cls, column: Any) -> "Coded":
        """Encode an Arrow column of texts, or take one that is encoded apart."""
        encoded = pc.dictionary_encode(column).combine_chunks()
        codes = as_numbers(encoded.indices.cast(pa.int64()), np.int64(_MISSING))
        return cls(encoded.dictionary, codes)

    def texts(self) -> Iterator[str]:
        """Yield the distinct texts; some thousand at a time are strings of Python."""
        for first in range(0, len(self.distinct), _AT_ONCE):
            yield from self.distinct.slice(first, _AT_ONCE).to_pylist()

    def texts_at(self, places: Integers) -> list[str]:
        """Return the distinct texts at some places."""
        texts: list[str] = self.distinct.take(of_numbers(places)).to_pylist()
        return texts


@dataclass(frozen=True, slots=True)
class Faults:
    """Collects what is wrong with the rows at `position`."""

    position: Integers
    found: list[Fault]

    def add(self, column: str, codes: Integers, wrong: dict[int, str]) -> None:
        """Note every row whose code is `wrong`."""
        if wrong:
            for row in np.flatnonzero(np.isin(codes, list(wrong))):
                self.found.append((int(self.position[row]), column, wrong[int(codes[row])]))


def interpreted(
    parse: Callable[[T], Meaning], values: Iterable[T], otherwise: Meaning
) -> tuple[list[Meaning], dict[int, str]]:
    """Return what each value means, and by place why it means nothing.

    Parameters
    ----------
    parse : callable
        Raises ValueError where a value means nothing.
    values : iterable
        What to parse.
    otherwise : object
        Stands for a value that means nothing.
    """
    meanings: list[Meaning] = []
    wrong: dict[int, str] = {}
    for code, value in enumerate(values):
        try:
            meanings.append(parse(value))
        except ValueError as error:
            meanings.append(otherwise)
            wrong[code] = str(error)
    return meanings, wrong


def kinds_of(kinds: Coded, faults: Faults) -> npt.NDArray[np.int8]:
    """Return each kind's place among `KINDS`; -1 for an unknown one."""
    texts = list(kinds.texts())
    _, wrong = interpreted(lambda kind: _verdict(kind, "[]"), texts, otherwise=False)
    faults.add("kind", kinds.codes, wrong)
    places = {kind: place for place, kind in enumerate(KINDS)}
    codes = np.array([*(places.get(text, _MISSING) for text in texts), _MISSING], np.int8)
    return codes[kinds.codes]


def verdicts_of(
    kinds: Coded, tags: Coded, protected: frozenset[str] = frozenset()
) -> npt.NDArray[np.bool_]:
    """Return which rows are load-bearing; so is one whose kind or tags cannot be read.

    The predicate is asked once per distinct pair of kind and tags; `protected` are tags of a
    person's own.
    """
    unreadable = (kinds.codes == _MISSING) | (tags.codes == _MISSING)
    pairs = np.where(unreadable, _MISSING, kinds.codes * len(tags.distinct) + tags.codes)
    encoded = of_numbers(pairs).dictionary_encode()
    codes: Integers = as_numbers(encoded.indices.cast(pa.int64()))
    distinct: Integers = as_numbers(encoded.dictionary)
    verdicts = np.ones(len(distinct), dtype=bool)
    for first in range(0, len(distinct), _AT_ONCE):
        some = np.flatnonzero(distinct[first : first + _AT_ONCE] != _MISSING) + first
        kind, tag = np.divmod(distinct[some], max(len(tags.distinct), 1))
        both = zip(kinds.texts_at(kind), tags.texts_at(tag), strict=True)
        said, _ = interpreted(lambda pair: _verdict(*pair, protected), both, otherwise=True)
        verdicts[some] = said
    return verdicts[codes]


def check_lists(column: str, lists: Coded, faults: Faults) -> None:
    """Note what is no JSON list of strings; nothing of the others is kept."""
    wrong = {}
    for code, text in enumerate(lists.texts()):
        try:
            _strings(text)
        except ValueError as error:
            wrong[code] = f"{column} {error}"
    faults.add(column, lists.codes, wrong)


def tuples_of(lists: Coded) -> npt.NDArray[np.object_]:
    """Return JSON lists as tuples of strings, () for what is none; equal texts share one tuple."""
    meanings = np.empty(len(lists.distinct) + 1, dtype=object)
    meanings[_MISSING] = ()
    for code, text in enumerate(lists.texts()):
        try:
            meanings[code] = _strings(text)
        except ValueError:
            meanings[code] = ()
    return meanings[lists.codes]


def moments_of(column: str, texts: Any, faults: Faults) -> npt.NDArray[np.datetime64]:
    """Return Arrow texts as moments in UTC, in microseconds, NaT for what is none."""
    moments = texts if texts.type == MOMENT else _parsed_by_arrow(texts)
    if moments is None:
        coded = Coded.of(texts)
        distinct, wrong = interpreted(moment_of, coded.texts(), otherwise=None)
        faults.add(column, coded.codes, {code: f"{column} {text}" for code, text in wrong.items()})
        places = of_numbers(coded.codes % (len(distinct) + 1))
        moments = pa.chunked_array([pa.array([*distinct, None], MOMENT).take(places)])
    return as_numbers(moments, _NAT)


def _parsed_by_arrow(texts: Any) -> Any | None:
    """Return all as moments at once; None where Arrow and :func:`moment_of` may disagree."""
    try:
        moments = pc.cast(texts, MOMENT)
    except pa.ArrowInvalid:
        return None
    extremes = pc.min_max(moments.cast(pa.int64())).as_py()
    known = extremes["min"] is None or _FIRST <= extremes["min"] <= extremes["max"] <= _LAST
    return moments if known else None
