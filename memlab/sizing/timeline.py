"""Time series along a history: starts under a cap, age ranks, caps, and the backtest."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pandas as pd

from memlab import arguments
from memlab import columns as c
from memlab.evidence.defaults import DEFAULT_CONFIDENCE, DEFAULT_TARGET, DEFAULT_UNTIL
from memlab.evidence.past import HistoryLike, fill_missing_rows, resolve_history, rows_in_reach
from memlab.frame.fields import inherited_attrs
from memlab.sizing import prior
from memlab.sizing.backtest import DEFAULT_SPLITS, BacktestSplit, backtest_splits, choose_cap
from memlab.sizing.curve import KEEP_RECENT, Sizing, prepared
from memlab.sizing.lifetimes import Lifetimes
from memlab.text import Table, percent

WRITTEN: Final = "written"
"""Column with the number of rows written so far: a clock that does not depend on timestamps."""
AGE_RANK: Final = "age_rank"
"""Column with the age rank of a reference."""


def boot_over_time(
    frame: HistoryLike, caps: Iterable[int], *, moments: int = 1_000
) -> pd.DataFrame:
    """Return a start along the history without a cap, and under caps held at every row.

    Parameters
    ----------
    frame : DataFrame
        A frame from ``memlab.load`` or ``memlab.load_past``. Memories deleted without an archive
        count as in sizing.
    caps : iterable of int
        Caps, each held from the first row on. The result always begins with no cap.
    moments : int
        Largest number of moments for each cap. A longer history is sampled at evenly spaced rows,
        with the first and the last; a peak between two of them is not shown.

    Returns
    -------
    DataFrame
        Sorted by cap in the order given, then by ``written``.

        ===============  =====================================================================
        ``keep_recent``  the cap; <NA> for no cap
        ``written``      number of rows written so far
        ``at``           time by which that many rows were created, in UTC
        ``memories``     number of memories of a start
        ``tokens``       tokens of a start
        ===============  =====================================================================

    Raises
    ------
    ValueError
        If a cap is negative, or `moments` is below 2.

    Examples
    --------
    >>> import memlab
    >>> frame = memlab.load(memlab.store_path("two_years"))
    >>> timeline = memlab.sizing.boot_over_time(frame, [100], moments=10)
    >>> len(timeline), timeline["keep_recent"].dropna().unique().tolist()
    (20, [100])
    """
    history = resolve_history(frame, call="memlab.sizing.boot_over_time")
    frame = fill_missing_rows(rows_in_reach(history))
    whole_caps = [arguments.whole_number("cap", cap) for cap in caps]
    distinct_caps = list(dict.fromkeys(whole_caps))  # in the order given
    moments = arguments.whole_number("moments", moments, least=2)
    row_count = len(frame)
    evenly_spaced = np.linspace(0, row_count - 1, min(row_count, moments))
    sampled = np.unique(evenly_spaced.round().astype(np.int64))
    times = frame[c.CREATED_AT].ffill().bfill().sort_values()
    sampled_times = times.iloc[sampled].reset_index(drop=True)
    lifetimes = Lifetimes.of(frame)
    floor_memories, floor_tokens = lifetimes.floor
    caps_held = [None, *distinct_caps]
    if row_count:
        # a cap of all rows deletes none: it stands for no cap
        kept_by_cap = lifetimes.kept_over_time([row_count, *distinct_caps])
    else:
        no_moments = np.empty(0, np.int64)
        kept_by_cap = iter([(no_moments, no_moments)] * len(caps_held))
    tables = []
    for cap, (kept_memories, kept_tokens) in zip(caps_held, kept_by_cap, strict=True):
        columns = {
            KEEP_RECENT: pd.array([cap] * len(sampled), dtype="Int64"),
            WRITTEN: sampled + 1,
            c.AT: sampled_times.astype(c.TIME),
            c.MEMORIES: (kept_memories + floor_memories)[sampled],
            c.TOKENS: (kept_tokens + floor_tokens)[sampled],
        }
        tables.append(pd.DataFrame(columns))
    timeline = pd.concat(tables, ignore_index=True)
    timeline.attrs = inherited_attrs(frame)
    return timeline


def age_ranks(frame: HistoryLike, references: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the age rank (stack distance, Mattson et al. 1970) of each reference.

    The arguments are those of :func:`memlab.recommend_cap`.

    Returns
    -------
    DataFrame
        One row per reference, in the order in which they arose. ``written`` is the number of rows
        written before it. ``age_rank`` is the smallest cap that would have served it: 1 for the
        newest row, and 0 for a load-bearing row, which every cap serves. For a target that was
        deleted without an archive it is the rank expected under the prior, as in sizing.

    Examples
    --------
    >>> import memlab
    >>> ranks = memlab.sizing.age_ranks(memlab.store_path("two_years"))
    >>> ranks.columns.tolist(), bool((ranks["age_rank"] <= ranks["written"]).all())
    (['written', 'age_rank'], True)
    """
    return _ranks(prepared(frame, references, call="memlab.sizing.age_ranks"))


def age_rank_quantiles(
    frame: HistoryLike, references: pd.DataFrame | None = None, *, parts: int = 5
) -> pd.DataFrame:
    """Return the median and the 90th percentile of age ranks in each part of the history.

    If they rise from part to part, references reach farther back as the history grows.

    Parameters
    ----------
    frame, references
        As for :func:`memlab.recommend_cap`. References to load-bearing rows count as rank 0,
        because every cap serves them.
    parts : int
        Parts of equal length in rows written.

    Returns
    -------
    DataFrame
        One row per part.

        =====================  ===============================================================
        ``first``, ``last``    number of rows written when it begins, and when it ends
        ``references``         number of references in it
        ``p50``, ``p90``       smallest rank that is not below half, or nine in ten, of the ranks;
                               <NA> for a part without references
        =====================  ===============================================================

    Raises
    ------
    ValueError
        If `parts` is less than 1.

    Examples
    --------
    >>> import memlab
    >>> table = memlab.sizing.age_rank_quantiles(memlab.store_path("two_years"), parts=4)
    >>> len(table), bool((table["p50"] <= table["p90"]).all())
    (4, True)
    """
    parts = arguments.whole_number("parts", parts, least=1)
    call = "memlab.sizing.age_rank_quantiles"
    sizing = prepared(frame, references, call=call)
    ranks = _ranks(sizing)
    edges = np.linspace(0, len(sizing.lifetimes), parts + 1).round().astype(np.int64)
    part = np.searchsorted(edges, ranks[WRITTEN], side="left") - 1
    part_of_reference = np.clip(part, 0, parts - 1)
    by_part = ranks[AGE_RANK].groupby(part_of_reference)
    table = pd.DataFrame({"first": edges[:-1], "last": edges[1:]})
    table["references"] = by_part.size().reindex(table.index, fill_value=0)
    for name, share in (("p50", 0.5), ("p90", 0.9)):
        quantile = by_part.agg(np.quantile, q=share, method="inverted_cdf")
        table[name] = quantile.reindex(table.index).astype("Int64")
    return table


def caps_along(
    frame: HistoryLike,
    references: pd.DataFrame | None = None,
    *,
    share: float = DEFAULT_TARGET,
    until: float = DEFAULT_UNTIL,
) -> pd.DataFrame:
    """Return the cap that served a share of references in each stretch, and the cap from now on.

    `memlab.charts.plot_law` draws it beside the prior. A stretch is a part of the history in which
    the store doubled; the last one ends now.

    Parameters
    ----------
    frame, references, until
        As for :func:`memlab.recommend_cap`.
    share : float
        Share of references, above 0 and below 1.

    Returns
    -------
    DataFrame
        One row for each stretch with at least `MIN_REFERENCES_AHEAD` references to prunable rows,
        and a last row for the stretch that begins now, from the posterior. ``memories`` is the
        number of prunable memories written before the stretch, and ``cap`` the cap that serves the
        share of all references; every cap serves those to load-bearing rows.

    Raises
    ------
    ValueError
        If `share` or `until` is out of range.

    Examples
    --------
    >>> import memlab
    >>> caps = memlab.sizing.caps_along(memlab.store_path("two_years"), share=0.9)
    >>> caps.columns.tolist(), bool(caps["memories"].is_monotonic_increasing)
    (['memories', 'cap'], True)
    """
    share = arguments.share("share", share)
    call = "memlab.sizing.caps_along"
    sizing = prepared(frame, references, until=until, call=call)
    ranked = sizing.references
    written_now = sizing.posterior.memories
    rows = []
    doublings_so_far = int(np.log2(max(written_now, 1)))
    for doublings_ago in range(doublings_so_far, 0, -1):
        start = written_now / 2**doublings_ago
        end = 2 * start
        in_stretch = (ranked.written >= start) & (ranked.written < end)
        if (in_stretch & ranked.losable).sum() >= prior.MIN_REFERENCES_AHEAD:
            reaches = prior.log_rank_fraction(ranked.rank[in_stretch], ranked.written[in_stretch])
            reach = np.quantile(reaches, share, method="inverted_cdf")
            middle_size = prior.geometric_mean_growth(prior.STRETCH) * start
            cap = prior.rank_at(reach, middle_size)
            rows.append((int(start), float(cap)))
    likely_cap = sizing.posterior.cap_for(share).cap
    rows.append((written_now, float(likely_cap)))
    return pd.DataFrame(rows, columns=[c.MEMORIES, prior.CAP])


def _ranks(sizing: Sizing) -> pd.DataFrame:
    """Return the table of `age_ranks`."""
    references = sizing.references
    ranks = pd.DataFrame({WRITTEN: references.at, AGE_RANK: references.rank})
    ranks.attrs = {c.SOURCE: sizing.source, c.REFERENCES: len(ranks)}
    return ranks


_BACKTEST_DTYPES: Final = {
    "split": "float64",
    "verdict": "str",
    KEEP_RECENT: "Int64",
    "target": "float64",
    "achieved": "Float64",
    "reached": "boolean",
    "references": "int64",
    "needed": "Int64",
}


def backtest_cap(
    frame: HistoryLike,
    references: pd.DataFrame | None = None,
    *,
    target: float = DEFAULT_TARGET,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
    splits: Sequence[float] = DEFAULT_SPLITS,
) -> pd.DataFrame:
    """Backtest: choose a cap on the history before each split, and measure it on the next fifth.

    Parameters
    ----------
    frame, references, target, confidence, until
        As for :func:`memlab.recommend_cap`.
    splits : sequence of float
        Shares of the rows written, each above 0 and below 1.

    Returns
    -------
    DataFrame
        One row per split.

        ===============  =====================================================================
        ``split``        share of the rows written before it
        ``verdict``      verdict on the evidence before it
        ``keep_recent``  the safe cap by that evidence alone
        ``target``       the target
        ``achieved``     share of the references in the next fifth that this cap would have served
        ``reached``      whether that meets the target
        ``references``   number of references in the next fifth
        ``needed``       smallest cap that would have met the target there
        ===============  =====================================================================

    Raises
    ------
    ValueError
        If `target`, `confidence`, `until` or a split is out of range.

    Examples
    --------
    >>> import memlab
    >>> table = memlab.sizing.backtest_cap(memlab.store_path("two_years"), splits=[0.5, 0.7])
    >>> table["split"].tolist(), table["target"].tolist()
    ([0.5, 0.7], [0.9, 0.9])
    """
    target = arguments.share("target", target)
    shares = [arguments.share("split", split) for split in splits]
    sizing = prepared(frame, references, confidence, until, call="memlab.sizing.backtest_cap")
    history_splits = backtest_splits(sizing.lifetimes, sizing.references, sizing.settings, shares)
    return backtest_of(sizing, history_splits, target)


def backtest_of(sizing: Sizing, splits: Sequence[BacktestSplit], target: float) -> pd.DataFrame:
    """Return the table of `backtest_cap` from the splits of a history."""
    rows = []
    for split in splits:
        choice = choose_cap(
            split.posterior,
            target=target,
            prunable=split.prunable,
            far_share=split.references.far_share,
        )
        achieved = None
        reached = None
        needed = None
        if len(split.test_ranks):
            achieved = split.achieved(choice.keep_recent)
            reached = achieved >= target - 1e-9  # allow for rounding errors
            needed = split.needed(target)
        row = {
            "split": split.share,
            "verdict": str(choice.verdict),
            KEEP_RECENT: choice.keep_recent,
            "target": target,
            "achieved": achieved,
            "reached": reached,
            "references": len(split.test_ranks),
            "needed": needed,
        }
        rows.append(row)
    table = pd.DataFrame(rows, columns=list(_BACKTEST_DTYPES)).astype(_BACKTEST_DTYPES)
    table.attrs = {c.SOURCE: sizing.source, c.REFERENCES: len(sizing.references)}
    return table


def table_of_backtest(backtest: pd.DataFrame) -> Table:
    """Return the printed table of a backtest: one row per split with test references."""
    header = ("first part of its history", "chose", "needed", "served", "references")
    measured = backtest[backtest["reached"].notna()]
    rows = [
        (
            f"{row['split']:.0%}",
            int(row["keep_recent"]),
            int(row["needed"]),
            percent(row["achieved"]),
            int(row["references"]),
        )
        for _, row in measured.iterrows()
    ]
    title = "" if rows else "no reference followed an earlier part of its history"
    return Table(title, header, rows)
