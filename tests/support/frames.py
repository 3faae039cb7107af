"""Frames to the contract of ``memlab.load``, built by hand where a store would be in the way."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from memlab import columns as c
from memlab.items import MemoryKind

START = pd.Timestamp("2025-01-01", tz="UTC")


def row(memory_id: str, **fields: Any) -> dict[str, Any]:
    """Return one row, by default an episode of 10 tokens; keywords are column names."""
    return {c.MEMORY_ID: memory_id, **fields}


USUAL: dict[str, Any] = {
    c.KIND: "episodic",
    c.TITLE: "a title",
    c.CHARS: 40,
    c.TOKENS: 10,
    c.TAGS: (),
    c.SOURCE_TASK_REF: None,
    c.AUTHORED_BY: "agent",
    c.CONFIDENCE: 1.0,
    c.SUPERSEDES: (),
    c.EVIDENCE_REFS: (),
    c.SUPERSEDED_BY: None,
    c.ACTIVE: True,
    c.LOAD_BEARING: False,
    c.PRUNABLE: True,
}
"""Default values of a row."""


def make_frame(*rows: dict[str, Any] | str, minutes: float = 60.0) -> pd.DataFrame:
    """Return a frame of `rows`, one every `minutes`; a string is the id of an episode."""
    items = []
    for place, row_or_id in enumerate(rows):
        fields = row(row_or_id) if isinstance(row_or_id, str) else row_or_id
        created = START + pd.Timedelta(minutes=minutes * place)
        item = USUAL | {c.POSITION: place + 1, c.CREATED_AT: created} | fields
        item[c.CHARS] = fields.get(c.CHARS, 4 * item[c.TOKENS])
        item[c.ACTIVE] = item[c.SUPERSEDED_BY] is None
        item[c.LOAD_BEARING] = item[c.KIND] != "episodic" or "rejected-path" in item[c.TAGS]
        item[c.PRUNABLE] = item[c.ACTIVE] and not item[c.LOAD_BEARING]
        items.append(item)
    return _typed({name: [item[name] for item in items] for name in c.DTYPES})


def make_episodes(count: int, *, tokens: Iterable[int] | None = None) -> pd.DataFrame:
    """Return a frame of `count` episodes ``m1``, ``m2``, ..., one an hour, without references."""
    positions = np.arange(1, count + 1)
    columns: dict[str, Any] = {}
    for name, value in USUAL.items():
        is_number = isinstance(value, int | float)
        columns[name] = np.full(count, value) if is_number else [value] * count
    columns[c.POSITION] = positions
    columns[c.MEMORY_ID] = [f"m{position}" for position in positions]
    columns[c.CREATED_AT] = START + pd.to_timedelta(positions - 1, unit="h")
    if tokens is not None:
        columns[c.TOKENS] = list(tokens)
    return _typed(columns)


def make_references(
    frame: pd.DataFrame, at: Iterable[int], distance: Iterable[int]
) -> pd.DataFrame:
    """Return references made just before row `at` (from 0) to the row `distance` before it."""
    later = np.asarray(list(at), dtype=np.int64)
    target = later - np.asarray(list(distance), dtype=np.int64)
    positions = frame[c.POSITION].to_numpy()
    references = pd.DataFrame(
        {
            c.TARGET_ID: frame[c.MEMORY_ID].to_numpy()[target],
            c.TARGET_POSITION: positions[target],
            c.AT_POSITION: positions[later],
            c.AT: frame[c.CREATED_AT].iloc[later].reset_index(drop=True),
            c.KIND: "evidence",
        }
    )
    return references.astype(c.REFERENCE_DTYPES)


def make_log(*reads: tuple[Any, ...]) -> pd.DataFrame:
    """Return an access log; a read is (memory, hours after the first row[, session])."""
    with_session = [read if len(read) == 3 else (*read, None) for read in reads]
    log = pd.DataFrame(with_session, columns=[c.MEMORY_ID, c.AT, c.SESSION])
    log[c.AT] = START + pd.to_timedelta(log[c.AT].astype(float), unit="h")
    return log.astype({c.MEMORY_ID: "str", c.AT: c.TIME, c.SESSION: "str"})


ROWS_OF_ANY_KIND = st.lists(
    st.fixed_dictionaries(
        {
            c.KIND: st.sampled_from([kind.value for kind in MemoryKind]),
            c.TAGS: st.sampled_from([(), ("merged",), ("rejected-path",)]),
            c.TOKENS: st.integers(0, 500),
            c.CREATED_AT: st.integers(0, 200).map(lambda hours: START + pd.Timedelta(hours=hours)),
            c.SUPERSEDED_BY: st.one_of(st.none(), st.integers(0, 30).map("m{}".format)),
        }
    ),
    max_size=25,
)


@st.composite
def lives(draw: st.DrawFn, *, superseded: bool = True) -> pd.DataFrame:
    """Draw a frame of one memory a day with load-bearing, superseded and referring rows."""
    count = draw(st.integers(1, 13))
    rows = []
    for number in range(count):
        later = [f"m{successor}" for successor in range(number + 1, count)] if superseded else []
        targets = draw(st.sets(st.integers(0, max(number - 1, 0)), max_size=2))
        rows.append(
            row(
                f"m{number}",
                kind=draw(st.sampled_from(["episodic", "episodic", "semantic"])),
                tokens=draw(st.integers(0, 12)),
                superseded_by=draw(st.none() | st.sampled_from([None, *later])),
                evidence_refs=tuple(f"m{target}" for target in targets),
            )
        )
    return make_frame(*rows, minutes=24 * 60)


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a frame of drawn rows; a successor out of range is dangling."""
    named_rows = [row(f"m{number}", **fields) for number, fields in enumerate(rows)]
    return make_frame(*named_rows)


def mixed_frame() -> pd.DataFrame:
    """Return one row of every part with 1, 2, 4, 8 and 16 tokens; the last is superseded."""
    return make_frame(
        row("decision", **{c.KIND: "semantic", c.TOKENS: 1}),
        row("skill", **{c.KIND: "procedural", c.TOKENS: 2}),
        row("path", **{c.TAGS: ("rejected-path",), c.TOKENS: 4}),
        row("episode", **{c.TOKENS: 8}),
        row("failure", **{c.SUPERSEDED_BY: "episode", c.TOKENS: 16}),
    )


def _typed(values: dict[str, Any]) -> pd.DataFrame:
    series = {}
    for name, dtype in c.DTYPES.items():
        if dtype == "object":
            cells = np.empty(len(values[name]), dtype=object)
            cells[:] = [tuple(cell) for cell in values[name]]
            series[name] = pd.Series(cells, dtype=object)
        else:
            series[name] = pd.Series(values[name]).astype(dtype)
    frame = pd.DataFrame(series)
    frame.attrs[c.TOKEN_RULE] = "characters / 4, an estimate"
    return frame
