"""Facts kept of dropped memories as frames, and frames as facts."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.store.dropped import hashed

UNKNOWN: Final = "dropped:"
"""Begins the name of a dropped memory that nothing that is still there names."""

_NAMES: Final = (c.MEMORY_ID, c.SOURCE_TASK_REF, c.SUPERSEDED_BY)
_LISTS: Final = (c.SUPERSEDES, c.EVIDENCE_REFS)
_PLAIN: Final = (c.POSITION, c.KIND, c.CHARS, c.TOKENS, c.LOAD_BEARING)


def facts_of(frame: pd.DataFrame, key: bytes) -> Iterator[str]:
    """Yield what is kept of memories once their words are erased, one JSON object each.

    Position, time, kind, label, size, and keyed hashes of the names that references go by. No
    title, text, tag, author or signal.

    Parameters
    ----------
    frame : DataFrame
        As ``memlab.load`` showed them while they were in the store.
    key : bytes
        For the hashes.
    """
    names = [name for name in (*_PLAIN, c.KEY, c.CREATED_AT, *_NAMES, *_LISTS) if name in frame]
    for values in frame[names].astype({c.KIND: "str"}).itertuples(index=False, name=None):
        yield json.dumps(_kept(dict(zip(names, values, strict=True)), key))


def frame_of_facts(facts: Iterable[str]) -> pd.DataFrame:
    """Return facts as a frame of memories without words, whose names are hashes."""
    rows = [json.loads(each) for each in facts]
    frame = pd.DataFrame(rows, columns=[*_PLAIN, c.KEY, c.CREATED_AT, *_NAMES, *_LISTS])
    if frame[c.KEY].isna().all():
        frame = frame.drop(columns=c.KEY)
    for name in _LISTS:
        frame[name] = [tuple(each) for each in frame[name]]
    frame[c.CREATED_AT] = pd.to_datetime(frame[c.CREATED_AT], format="ISO8601", utc=True)
    frame[c.TITLE] = frame[c.BODY] = frame[c.AUTHORED_BY] = ""
    frame[c.CONFIDENCE] = np.nan
    frame[c.TAGS] = [()] * len(frame)
    frame[c.ACTIVE] = frame[c.SUPERSEDED_BY].isna()
    frame[c.PRUNABLE] = frame[c.ACTIVE] & ~frame[c.LOAD_BEARING].astype(bool)
    return frame.astype({n: kind for n, kind in c.DTYPES.items() if n in frame and n != c.KIND})


def with_names(frame: pd.DataFrame, known: Mapping[str, str]) -> pd.DataFrame:
    """Return memories made of facts with the names that are known, by their hashes.

    A hash that nothing known gives becomes a name of its own, the same everywhere.
    """
    named = frame.copy(deep=False)

    def name(kept: str) -> str:
        return known.get(kept, UNKNOWN + kept)

    for column in _NAMES:
        named[column] = frame[column].map(name, na_action="ignore").astype(frame[column].dtype)
    for column in _LISTS:
        named[column] = [tuple(map(name, each)) for each in frame[column]]
    return named


def names_by_hash(
    frames: Iterable[pd.DataFrame], key: bytes, names: Iterable[str] = ()
) -> dict[str, str]:
    """Return every name that memories have or mention, by its hash."""
    found = set(names)
    for frame in frames:
        for column in _NAMES:
            found.update(frame[column].dropna())
        for column in _LISTS:
            found.update(name for each in frame[column] for name in each)
    return {hashed(name, key): name for name in found}


def _kept(memory: dict[str, Any], key: bytes) -> dict[str, Any]:
    def kept(name: str) -> str:
        return hashed(name, key)

    facts = {name: _json(memory[name]) for name in _PLAIN}
    created = memory[c.CREATED_AT]
    facts[c.CREATED_AT] = None if pd.isna(created) else created.isoformat()
    if c.KEY in memory:
        facts[c.KEY] = kept(str(memory[c.KEY]))
    facts |= {name: _unless_missing(memory[name], kept) for name in _NAMES}
    return facts | {name: [kept(each) for each in memory[name]] for name in _LISTS}


def _json(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _unless_missing(value: Any, kept: Callable[[str], str]) -> str | None:
    return None if pd.isna(value) else kept(str(value))
