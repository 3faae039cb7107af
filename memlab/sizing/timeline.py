"""Along a history: what an agent would have loaded under a cap, how far back references reached."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import pandas as pd

from memlab import arguments
from memlab.columns import (
    AT,
    CREATED_AT,
    MEMORIES,
    REFERENCES,
    SOURCE,
    TIME,
    TOKEN_RULE,
    TOKENS,
)
from memlab.evidence.elsewhere import CAP
from memlab.evidence.gaps import with_gaps
from memlab.evidence.law import DEFAULT_CONFIDENCE, FEWEST_AHEAD, MIDDLE, rank_at, reach_of
from memlab.frame.needed import expect_memories
from memlab.sizing.curve import KEEP_RECENT, Sizing, prepared
from memlab.sizing.history import Ints, history_of

WRITTEN: Final = "written"
"""Rows that had been written by a moment: a clock that no wrong time can disturb."""
AGE_RANK: Final = "age_rank"


def boot_over_time(
    frame: pd.DataFrame, caps: Iterable[int], *, moments: int = 1_000
) -> pd.DataFrame:
    """Return the boot context along the history under continuous compaction, and under none.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns, or a whole past: memories deleted without an archive count as
        sizing counts them.
    caps : iterable of int
        Each held from the first row on; no cap at all comes first whatever is asked.
    moments : int
        The most moments to report for each cap. A longer history is looked at in so many evenly
        spaced rows, the first and the last among them: a spike between two of them is not seen.

    Returns
    -------
    DataFrame
        Columns ``keep_recent`` (Int64, <NA> for no cap), ``written`` (rows written by then),
        ``at`` (UTC; the earliest time by which so many rows were dated, whatever order they were
        inserted in), ``memories`` and ``tokens``; sorted by cap as given, then by ``written``.

    Raises
    ------
    ValueError
        When a cap is negative, or `moments` is less than 2.
    """
    expect_memories(frame, call="memlab.sizing.boot_over_time")
    frame = with_gaps(frame)
    wanted = list(dict.fromkeys(arguments.whole_number("cap", cap) for cap in caps))
    moments = arguments.whole_number("moments", moments, least=2)
    n = len(frame)
    seen = np.unique(np.linspace(0, n - 1, min(n, moments)).round().astype(np.int64))
    when = frame[CREATED_AT].ffill().bfill().sort_values().iloc[seen].reset_index(drop=True)
    parts = [
        pd.DataFrame(
            {
                KEEP_RECENT: pd.array([cap] * len(seen), dtype="Int64"),
                WRITTEN: seen + 1,
                AT: when.astype(TIME),
                MEMORIES: memories,
                TOKENS: tokens,
            }
        )
        for cap, (memories, tokens) in _boots(frame, [None, *wanted], seen)
    ]
    timeline = pd.concat(parts, ignore_index=True)
    timeline.attrs = {name: frame.attrs.get(name, "") for name in (TOKEN_RULE, SOURCE)}
    return timeline


def age_ranks(frame: pd.DataFrame, references: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return how far back each reference reached.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given.

    Returns
    -------
    DataFrame
        One row per reference in the order in which they arose: ``written``, the rows written by
        then; ``age_rank``, the smallest cap that would have served it (1 for the newest row, 0 for
        a load-bearing one, which every cap serves). Of a reference to what was deleted without an
        archive it is the rank that sizing counts: what the law expects.

    Raises
    ------
    ValueError
        When `references` lacks a column.
    """
    return _ranks(prepared(frame, references, DEFAULT_CONFIDENCE, call="memlab.sizing.age_ranks"))


def age_rank_quantiles(
    frame: pd.DataFrame, references: pd.DataFrame | None = None, *, parts: int = 5
) -> pd.DataFrame:
    """Return the median and the 90th percentile of age ranks in each part of the history.

    Where they rise from part to part, references reach farther as the history grows.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given. Those to load-bearing
        rows (rank 0) are left out.
    parts : int
        Parts of equal length in rows written.

    Returns
    -------
    DataFrame
        One row per part: ``first`` and ``last``, the rows written where it begins and ends;
        ``references``; ``p50`` and ``p90`` (Int64, the smallest rank that so many do not pass;
        <NA> for a part without references).

    Raises
    ------
    ValueError
        When `parts` is less than 1, or `references` lacks a column.
    """
    parts = arguments.whole_number("parts", parts, least=1)
    call = "memlab.sizing.age_rank_quantiles"
    sizing = prepared(frame, references, DEFAULT_CONFIDENCE, call=call)
    ranks = _ranks(sizing)
    edges = np.linspace(0, len(sizing.history), parts + 1).round().astype(np.int64)
    bound = ranks[ranks[AGE_RANK] > 0]
    part = np.clip(np.searchsorted(edges, bound[WRITTEN], side="left") - 1, 0, parts - 1)
    by_part = bound[AGE_RANK].groupby(part)
    table = pd.DataFrame({"first": edges[:-1], "last": edges[1:]})
    table["references"] = by_part.size().reindex(table.index, fill_value=0)
    for name, share in (("p50", 0.5), ("p90", 0.9)):
        quantile = by_part.agg(np.quantile, q=share, method="inverted_cdf")
        table[name] = quantile.reindex(table.index).astype("Int64")
    return table


def caps_along(
    frame: pd.DataFrame, references: pd.DataFrame | None = None, *, share: float = 0.9
) -> pd.DataFrame:
    """Return the caps that serve a share of references as a store grew, and the one from now on.

    What `memlab.charts.plot_law` draws of a store beside the law. A stretch is a part of the
    history in which the store doubled; the last one ends now.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given.
    share : float
        Of references, above 0 and below 1.

    Returns
    -------
    DataFrame
        One row per stretch with at least `FEWEST_AHEAD` references to prunable rows, and one from
        now on, by the store's own references and other projects' together: ``memories``, prunable
        ones written by its beginning; ``cap``.

    Raises
    ------
    ValueError
        When the share is out of its range, or `references` lacks a column.
    """
    share = arguments.share("share", share)
    sizing = prepared(frame, references, DEFAULT_CONFIDENCE, call="memlab.sizing.caps_along")
    found, now = sizing.references, sizing.ahead.memories
    doublings = range(int(np.log2(max(now, 1))), 0, -1)
    rows = []
    for first, last in ((now / 2**n, now / 2 ** (n - 1)) for n in doublings):
        inside = found.losable & (found.written >= first) & (found.written < last)
        if inside.sum() >= FEWEST_AHEAD:
            reach = reach_of(found.rank[inside], found.written[inside])
            middle = np.quantile(reach, share, method="inverted_cdf")
            rows.append((int(first), float(rank_at(middle, MIDDLE * first))))
    rows.append((now, float(sizing.ahead.cap_for(share)[0])))
    return pd.DataFrame(rows, columns=[MEMORIES, CAP]).astype({MEMORIES: "int64", CAP: "float64"})


def _ranks(sizing: Sizing) -> pd.DataFrame:
    """Return what `age_ranks` returns."""
    found = sizing.references
    ranks = pd.DataFrame({WRITTEN: found.at, AGE_RANK: found.rank})
    ranks.attrs = {SOURCE: sizing.source, REFERENCES: len(ranks)}
    return ranks


def _boots(
    frame: pd.DataFrame, caps: list[int | None], seen: Ints
) -> list[tuple[int | None, tuple[Ints, Ints]]]:
    """Walk the history once for each cap; return memories and tokens at the moments `seen`."""
    history = history_of(frame)
    n = len(history)
    if not n:
        return [(cap, (seen, seen)) for cap in caps]
    limits = [n if cap is None else cap for cap in caps]
    boots: list[tuple[int | None, tuple[Ints, Ints]]] = []
    for cap, kept in zip(caps, history.kept_over_time(limits), strict=True):
        memories, tokens = (
            part[seen] + floor[seen] for part, floor in zip(kept, history.floor, strict=True)
        )
        boots.append((cap, (memories, tokens)))
    return boots
