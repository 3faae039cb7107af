"""What a store's texts mean: kinds, tags, references, moments. Each distinct text is read once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from memlab import columns as c
from memlab.items import MemoryKind, is_load_bearing_stored, strings_of
from memlab.moments import moment_of
from memlab.sources.base import Fault
from memlab.sources.tables import MOMENT, TEXT

T = TypeVar("T")
Meaning = TypeVar("Meaning")
Integers = npt.NDArray[np.int64]

KINDS: Final = tuple(kind.value for kind in MemoryKind)
STR: Final = pd.StringDtype("pyarrow", na_value=np.nan)
_KIND: Final = pd.CategoricalDtype(list(KINDS))
_MISSING: Final = -1
_verdict: Final = lru_cache(4096)(is_load_bearing_stored)
"""Stores of one agent, or of a fleet, have the same few pairs of kind and tags."""
_UNSET: Final = {c.GRADUATED: False, c.TRUSTED: True, c.LOADED_AT_START: True}
"""What a flag is where nobody has set it; any other signal is missing."""
_FIRST, _LAST = (
    pa.scalar(datetime(year, month, day, tzinfo=UTC), MOMENT).value
    for year, month, day in ((1, 1, 1), (9999, 12, 31))
)


@dataclass(frozen=True, slots=True)
class Coded:
    """A column as its distinct texts and, for every row, the place of its text among them.

    Parameters
    ----------
    texts : sequence of str
        Distinct.
    codes : array of int64
        One a row; -1 where the text is missing.
    """

    texts: Sequence[str]
    codes: Integers

    @classmethod
    def of(cls, column: Any) -> "Coded":
        """Encode an Arrow column of texts, or take one that is encoded apart."""
        encoded = pc.dictionary_encode(column).combine_chunks()
        codes = encoded.indices.cast(pa.int64()).fill_null(_MISSING).to_numpy(zero_copy_only=False)
        return cls(encoded.dictionary.to_pylist(), codes)


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
    parse: Callable[[T], Meaning], values: Sequence[T], otherwise: Meaning
) -> tuple[list[Meaning], dict[int, str]]:
    """Return what each value means, and by place why it means nothing.

    Parameters
    ----------
    parse : callable
        Raises ValueError where a value means nothing.
    values : sequence
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


def kinds_of(kinds: Coded, faults: Faults) -> pd.Categorical:
    """Return kinds as categories; an unknown one is missing."""
    _, wrong = interpreted(lambda kind: _verdict(kind, "[]"), kinds.texts, otherwise=False)
    faults.add("kind", kinds.codes, wrong)
    places = {kind: place for place, kind in enumerate(KINDS)}
    codes = np.array([*(places.get(text, _MISSING) for text in kinds.texts), _MISSING])
    return pd.Categorical.from_codes(codes[kinds.codes], dtype=_KIND)


def verdicts_of(kinds: Coded, tags: Coded) -> npt.NDArray[np.bool_]:
    """Return which rows are load-bearing; so is one whose kind or tags cannot be read.

    The predicate is asked once per distinct pair of kind and tags.
    """
    unreadable = (kinds.codes == _MISSING) | (tags.codes == _MISSING)
    pairs = np.where(unreadable, _MISSING, kinds.codes * len(tags.texts) + tags.codes)
    codes, distinct = pd.factorize(pairs)

    def is_load_bearing(pair: int) -> bool:
        if pair == _MISSING:
            return True
        kind, tag = divmod(pair, len(tags.texts))
        return _verdict(kinds.texts[kind], tags.texts[tag])

    verdicts, _ = interpreted(is_load_bearing, distinct.tolist(), otherwise=True)
    return np.array(verdicts, dtype=bool)[codes]


def lists_of(column: str, lists: Coded, faults: Faults) -> npt.NDArray[np.object_]:
    """Return JSON lists as tuples of strings, () for what is none; equal texts share one tuple."""
    nothing: tuple[str, ...] = ()
    tuples, wrong = interpreted(strings_of, lists.texts, nothing)
    faults.add(column, lists.codes, {code: f"{column} {text}" for code, text in wrong.items()})
    meanings = np.empty(len(tuples) + 1, dtype=object)
    meanings[:-1] = np.fromiter(tuples, dtype=object, count=len(tuples))
    meanings[_MISSING] = ()
    return meanings[lists.codes]


def moments_of(column: str, texts: Any, faults: Faults) -> pd.DatetimeIndex:
    """Return Arrow texts as moments in UTC, NaT for what is none."""
    moments = texts if texts.type == MOMENT else _parsed_by_arrow(texts)
    if moments is None:
        coded = Coded.of(texts)
        distinct, wrong = interpreted(moment_of, coded.texts, otherwise=None)
        faults.add(column, coded.codes, {code: f"{column} {text}" for code, text in wrong.items()})
        places = pa.array(coded.codes % (len(distinct) + 1))
        moments = pa.chunked_array([pa.array([*distinct, None], MOMENT).take(places)])
    return _in_utc(moments)


def texts_of(column: Any) -> Any:
    """Return an Arrow column of texts as the frame has it."""
    dtype: Any = STR
    return dtype.__from_arrow__(column)


def signal_of(name: str, column: Any) -> Any:
    """Return an Arrow column of signals as the frame has it."""
    if name in _UNSET:
        return np.array(column.fill_null(_UNSET[name]).to_numpy())
    if column.type == MOMENT:
        return _in_utc(column)
    if column.type == TEXT:
        return texts_of(column)
    if column.type == pa.int64():
        return pd.Series(column.to_pandas(integer_object_nulls=True), dtype="Int64")
    return np.array(column.to_numpy())


def _in_utc(moments: Any) -> pd.DatetimeIndex:
    naive = moments.cast(pa.timestamp("us")).to_numpy()
    return pd.DatetimeIndex(naive).tz_localize("UTC")


def _parsed_by_arrow(texts: Any) -> Any | None:
    """Return all as moments at once; None where Arrow and :func:`moment_of` may disagree."""
    try:
        moments = pc.cast(texts, MOMENT)
    except pa.ArrowInvalid:
        return None
    extremes = pc.min_max(moments.cast(pa.int64())).as_py()
    known = extremes["min"] is None or _FIRST <= extremes["min"] <= extremes["max"] <= _LAST
    return moments if known else None
