"""Interpretation of a store's texts (kinds, tags, moments, tokens), and memories as arrays."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memlab import columns as c
from memlab.clock import moment_and_zone
from memlab.items import (
    CHARS_PER_TOKEN,
    REJECTED_PATH_TAG,
    MemoryKind,
    is_load_bearing_stored,
    readable_strings_of,
)
from memlab.lazy import import_extra
from memlab.sources.readers import Fault
from memlab.sources.tables import MOMENT, as_numbers, of_numbers

if TYPE_CHECKING:
    import pandas as pd


T = TypeVar("T")
Parsed = TypeVar("Parsed")
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.datetime64]
Objects = npt.NDArray[np.object_]

KINDS: Final = tuple(kind.value for kind in MemoryKind)
_MISSING: Final = -1
_WITHOUT_ZONE: Final = pa.timestamp("us")
NAT: Final = np.int64(np.iinfo(np.int64).min)
"""The integer by which numpy stores NaT."""
_BATCH: Final = 4096
"""Number of distinct texts that are converted to Python strings and cached at a time."""
_is_load_bearing: Final = lru_cache(_BATCH)(is_load_bearing_stored)
"""Cached, because the stores of one agent have the same few pairs of kind and tags."""
_strings_of: Final = lru_cache(_BATCH)(readable_strings_of)
_FIRST_DAY: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
"""Midnight of the first day that a datetime can hold, in microseconds since 1970."""
_LAST_DAY: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000
"""Midnight of the last day that a datetime can hold, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A dictionary-encoded column of texts.

    Attributes
    ----------
    distinct : Arrow array
        The distinct texts.
    codes : array of int64, shape (rows,)
        For each row the place of its text in `distinct`; -1 for a missing text.
    """

    distinct: Any
    codes: Ints

    @classmethod
    def of(cls, column: Any) -> "Coded":
        """Convert an Arrow column of texts, which may be dictionary-encoded already."""
        encoded = pc.dictionary_encode(column).combine_chunks()
        codes = as_numbers(encoded.indices.cast(pa.int64()), np.int64(_MISSING))
        return cls(encoded.dictionary, codes)

    def texts(self) -> Iterator[str]:
        """Yield the distinct texts. A few thousand are converted to Python strings at a time."""
        for first in range(0, len(self.distinct), _BATCH):
            yield from self.distinct.slice(first, _BATCH).to_pylist()

    def texts_at(self, places: Ints) -> list[str]:
        """Return the distinct texts at several places."""
        texts: list[str] = self.distinct.take(of_numbers(places)).to_pylist()
        return texts


@dataclass(frozen=True, slots=True)
class Faults:
    """A collector of faults.

    Attributes
    ----------
    position : array of int64, shape (rows,)
        Position of each row in the store.
    faults : list of Fault
        The list to which faults are added.
    """

    position: Ints
    faults: list[Fault]

    def add(self, column: str, codes: Ints, errors: dict[int, str]) -> None:
        """Add a fault for each row whose code has an error."""
        if not errors:
            return
        for row in np.flatnonzero(np.isin(codes, list(errors))):
            fault = Fault(int(self.position[row]), column, errors[int(codes[row])])
            self.faults.append(fault)


def parse_all(
    parse: Callable[[T], Parsed], values: Iterable[T], default: Parsed
) -> tuple[list[Parsed], dict[int, str]]:
    """Parse values, and return the results and the errors by place.

    A value for which `parse` raises a ValueError has the result `default`.
    """
    results: list[Parsed] = []
    errors: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            results.append(parse(value))
        except ValueError as error:
            results.append(default)
            errors[place] = str(error)
    return results, errors


def kinds_of(kinds: Coded, faults: Faults) -> npt.NDArray[np.int8]:
    """Return the place of each kind in `KINDS`; -1 and a fault for an unknown one."""
    texts = list(kinds.texts())
    # The call is made for its errors. The tags are valid, so an error is about the kind.
    _, errors = parse_all(lambda kind: _is_load_bearing(kind, "[]"), texts, default=False)
    faults.add("kind", kinds.codes, errors)
    number_of = {kind: number for number, kind in enumerate(KINDS)}
    numbers = [number_of.get(text, _MISSING) for text in texts]
    numbers.append(_MISSING)  # for the code -1 of a missing text
    return np.array(numbers, np.int8)[kinds.codes]


def load_bearing_of(kinds: Coded, tags: Coded, protected: frozenset[str] = frozenset()) -> Flags:
    """Flag the load-bearing rows, which include rows with an unreadable kind or tags.

    Each distinct pair of kind and tags is classified once.
    """
    is_missing = (kinds.codes == _MISSING) | (tags.codes == _MISSING)
    # A pair of codes is one number, which divmod splits again below.
    tag_count = max(len(tags.distinct), 1)
    pairs = np.where(is_missing, _MISSING, kinds.codes * tag_count + tags.codes)
    encoded = of_numbers(pairs).dictionary_encode()
    codes: Ints = as_numbers(encoded.indices.cast(pa.int64()))
    distinct: Ints = as_numbers(encoded.dictionary)
    is_load_bearing = np.ones(len(distinct), dtype=bool)
    for first in range(0, len(distinct), _BATCH):
        complete = np.flatnonzero(distinct[first : first + _BATCH] != _MISSING) + first
        kind, tag = np.divmod(distinct[complete], tag_count)
        texts_of_pairs = zip(kinds.texts_at(kind), tags.texts_at(tag), strict=True)
        is_load_bearing[complete], _ = parse_all(
            lambda pair: _is_load_bearing(*pair, protected), texts_of_pairs, default=True
        )
    return is_load_bearing[codes]


def check_lists(column: str, lists: Coded, faults: Faults) -> None:
    """Add a fault for each text that is no JSON list of strings."""
    _, errors = parse_all(lambda text: bool(_strings_of(text)), lists.texts(), default=False)
    faults.add(column, lists.codes, {code: f"{column} {text}" for code, text in errors.items()})


def tuples_of(lists: Coded) -> Objects:
    """Return JSON lists as tuples of strings; () if a text is missing or no list.

    Equal texts share one tuple.
    """
    empty: tuple[str, ...] = ()
    tuples, _ = parse_all(_strings_of, lists.texts(), empty)
    tuples.append(empty)  # for the code -1 of a missing text
    return np.fromiter(tuples, object)[lists.codes]


def moments_of(column: str, texts: Any, faults: Faults) -> tuple[Times, int]:
    """Return Arrow texts as UTC moments in microseconds, and the number of moments without a zone.

    A missing text becomes NaT; a text that is no moment becomes NaT and adds a fault.
    """
    if texts.type == MOMENT:
        return as_numbers(texts, NAT), 0
    for arrow_type in (MOMENT, _WITHOUT_ZONE):
        moments = _parsed_by_arrow(texts, arrow_type)
        if moments is not None:
            without_zone = 0
            if arrow_type == _WITHOUT_ZONE:
                without_zone = len(moments) - moments.null_count
            return as_numbers(moments, NAT), without_zone
    coded = Coded.of(texts)
    # An unreadable text is not counted among the moments without a zone.
    unreadable_with_zone: tuple[datetime | None, bool] = (None, True)
    parsed, errors = parse_all(moment_and_zone, coded.texts(), unreadable_with_zone)
    faults.add(column, coded.codes, {code: f"{column} {text}" for code, text in errors.items()})
    distinct = [moment for moment, _ in parsed]
    place_of_missing = len(distinct)
    distinct.append(None)
    distinct_moments = pa.array(distinct, MOMENT)
    places = of_numbers(np.where(coded.codes == _MISSING, place_of_missing, coded.codes))
    zoneless = [code for code, (_, has_zone) in enumerate(parsed) if not has_zone]
    moments = pa.chunked_array([distinct_moments.take(places)])
    return as_numbers(moments, NAT), int(np.isin(coded.codes, zoneless).sum())


def _parsed_by_arrow(texts: Any, arrow_type: Any) -> Any | None:
    """Parse all moments by Arrow, which is fast. Return None if it cannot.

    Return None, too, if a moment may be outside the range of a datetime: Arrow accepts it, and
    :func:`memlab.clock.moment_of` does not.
    """
    try:
        moments = pc.cast(texts, arrow_type)
    except pa.ArrowInvalid:
        return None
    extremes = pc.min_max(moments.cast(pa.int64())).as_py()
    earliest = extremes["min"]
    latest = extremes["max"]
    if earliest is None or (earliest >= _FIRST_DAY and latest <= _LAST_DAY):
        return moments
    return None


CountTokens = Callable[[str], int]

ESTIMATE_RULE = f"estimate: characters / {CHARS_PER_TOKEN}, rounded up"


def token_counter(count_tokens: CountTokens | str) -> tuple[CountTokens, str]:
    """Return a function that counts the tokens of a text, and a description of its rule."""
    if callable(count_tokens):
        name = getattr(count_tokens, "__qualname__", type(count_tokens).__qualname__)
        return count_tokens, f"counted by {name}"
    openai = import_extra("rs_bpe", extra="tokens").bpe.openai
    names = [name for name in dir(openai) if name.endswith("_base")]
    if count_tokens not in names:
        raise ValueError(
            f"count_tokens must be a function or one of {', '.join(names)}, not {count_tokens!r}"
        )
    return getattr(openai, count_tokens)().count, f"exact: {count_tokens}"


LABELS: Final = (c.ACTIVE, c.LOAD_BEARING, c.PRUNABLE)
"""Boolean columns of a frame of memories."""


class Arrays(NamedTuple):
    """Memories as arrays with an element for each memory, in order of insertion."""

    kind: npt.NDArray[np.int8]
    tokens: Ints
    created_at: Times
    active: Flags
    load_bearing: Flags
    prunable: Flags
    unreadable: Flags
    memory_id: Any
    superseded_by: Any
    at_start: Flags | None = None
    deleted_at: Times | None = None
    namespace: Any | None = None
    without_zone: int = 0
    retired_at: Times | None = None
    position: Ints | None = None
    index_state: Any | None = None
    doubt: Any | None = None
    rejected: Flags | None = None
    """Memories that are tagged as rejected paths."""

    def in_state(self, state: str) -> Flags:
        """Flag the memories in a state, one of ``columns.INDEX_STATES``."""
        if self.index_state is None:
            return np.zeros(len(self.active), dtype=bool)
        return as_numbers(pc.fill_null(pc.equal(self.index_state, state), fill_value=False))

    @property
    def doubtful(self) -> Flags:
        """Flags of the memories that count as load-bearing until a person decides."""
        if self.doubt is None:
            return np.zeros(len(self.active), dtype=bool)
        return as_numbers(self.doubt.is_valid())

    @property
    def retired(self) -> Flags:
        """Flags of the retired memories."""
        if self.retired_at is None:
            return np.zeros(len(self.active), dtype=bool)
        return ~np.isnat(self.retired_at)

    @property
    def last_at(self) -> datetime | None:
        """Creation time of the newest memory; None if no time is known."""
        times = self.created_at[~np.isnat(self.created_at)]
        return as_moment(times.max()) if len(times) else None

    @property
    def replaced(self) -> Flags:
        """Flags of the memories with a successor: another memory that superseded them."""
        return as_numbers(self.superseded_by.is_valid())


def as_moment(instant: np.datetime64) -> datetime:
    """Return an instant of numpy as a datetime in UTC."""
    moment: datetime = instant.astype("datetime64[us]").item()
    return moment.replace(tzinfo=UTC)


def as_instant(moment: datetime) -> np.datetime64:
    """Return a moment with a time zone as an instant of numpy: UTC, in microseconds."""
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "us")


def inherited_attrs(frame: "pd.DataFrame") -> dict[Hashable, Any]:
    """Return those attributes of a frame that tables computed from the frame also have."""
    defaults = {c.TOKEN_RULE: "", c.SOURCE: "", c.RECALLED: False}
    return {name: frame.attrs.get(name, default) for name, default in defaults.items()}


def arrays_of(frame: "pd.DataFrame") -> Arrays:
    """Return the columns of a frame as arrays, without copies if possible."""
    kinds = frame[c.KIND].astype("category").cat
    places = [KINDS.index(kind) if kind in KINDS else -1 for kind in kinds.categories]

    def optional(name: str, dtype: str) -> Any:
        return frame[name].to_numpy(dtype) if name in frame else None

    def optional_texts(name: str) -> Any:
        return pa.array(frame[name]) if name in frame else None

    return Arrays(
        kind=np.array([*places, -1], dtype=np.int8)[kinds.codes.to_numpy()],
        tokens=frame[c.TOKENS].to_numpy(np.int64),
        created_at=frame[c.CREATED_AT].to_numpy("datetime64[us]"),
        active=frame[c.ACTIVE].to_numpy(bool),
        load_bearing=frame[c.LOAD_BEARING].to_numpy(bool),
        prunable=frame[c.PRUNABLE].to_numpy(bool),
        unreadable=_has_value(frame, c.PROBLEM),
        memory_id=pa.array(frame[c.MEMORY_ID]),
        superseded_by=pa.array(frame[c.SUPERSEDED_BY]),
        at_start=optional(c.LOADED_AT_START, "bool"),
        deleted_at=optional(c.DELETED_AT, "datetime64[us]"),
        namespace=optional_texts(c.NAMESPACE),
        without_zone=int(frame.attrs.get(c.WITHOUT_ZONE, 0)),
        retired_at=optional(c.RETIRED_AT, "datetime64[us]"),
        position=frame[c.POSITION].to_numpy(np.int64),
        index_state=optional_texts(c.INDEX_STATE),
        doubt=optional_texts(c.DOUBT),
        rejected=_rejected_in(frame),
    )


def _rejected_in(frame: "pd.DataFrame") -> Flags:
    """Flag the load-bearing memories that are tagged as rejected paths."""
    is_rejected = np.zeros(len(frame), dtype=bool)
    if c.TAGS in frame:
        rows = np.flatnonzero(frame[c.LOAD_BEARING].to_numpy(bool))
        tags = frame[c.TAGS].array.take(rows)
        is_rejected[rows] = [REJECTED_PATH_TAG in tags_of_row for tags_of_row in tags]
    return is_rejected


def retired_rows(frame: "pd.DataFrame") -> Flags:
    """Flag the retired memories of a frame."""
    return _has_value(frame, c.RETIRED_AT)


def labels_of(frame: "pd.DataFrame") -> "pd.Categorical":
    """Return the label of each memory of a frame, one of :data:`memlab.columns.LABELS`."""
    import pandas as pd

    # A later label replaces an earlier one.
    flags = {
        "load-bearing": frame[c.LOAD_BEARING].to_numpy(),
        "superseded": ~frame[c.ACTIVE].to_numpy(),
        "unlisted": rows_in_state(frame, c.UNLISTED),
        "reached": rows_in_state(frame, c.REACHED),
        "retired": retired_rows(frame),
        "deleted": _has_value(frame, c.DELETED_AT),
    }
    codes = np.full(len(frame), c.LABELS.index("prunable"), dtype=np.int8)
    for label, is_labelled in flags.items():
        codes[is_labelled] = c.LABELS.index(label)
    return pd.Categorical.from_codes(codes, dtype=_label_dtype())


@cache
def _label_dtype() -> "pd.CategoricalDtype":
    """Return the dtype of the column ``label``."""
    import pandas as pd

    return pd.CategoricalDtype(list(c.LABELS))


def rows_in_state(frame: "pd.DataFrame", state: str) -> Flags:
    """Flag the memories of a frame in a state, one of ``columns.INDEX_STATES``."""
    if c.INDEX_STATE not in frame:
        return np.zeros(len(frame), bool)
    return (frame[c.INDEX_STATE] == state).fillna(value=False).to_numpy(bool)


def _has_value(frame: "pd.DataFrame", name: str) -> Flags:
    """Flag the rows with a value in a column; all are False if there is no such column."""
    if name not in frame:
        return np.zeros(len(frame), bool)
    return frame[name].notna().to_numpy(bool)
