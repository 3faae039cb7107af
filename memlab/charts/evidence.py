"""Charts of a history: how far needs reach, what caps would have cost, the track record."""

from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from memlab import columns as c
from memlab.charts._style import (
    BLUE,
    CAP_COLOUR,
    EMPTY_HEIGHT,
    GREEN,
    GREY,
    HAIRLINE,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    SMALL,
    VERMILION,
    EndLabel,
    axes_for,
    count_axis,
    counted,
    footnote,
    heading,
    label_ends,
    mark_cap,
    say_empty,
    share,
    short,
    time_axis,
    token_note,
)

Measure = Literal["items", "tokens"]


def plot_age_ranks(
    ranks: pd.DataFrame,
    *,
    quantiles: pd.DataFrame | None = None,
    cap: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how far back each need reached, along the history, on a logarithmic scale.

    Parameters
    ----------
    ranks : pandas.DataFrame
        As :func:`memlab.sizing.age_ranks` returns it.
    quantiles : pandas.DataFrame, optional
        As :func:`memlab.sizing.age_rank_quantiles` returns it.
    cap : int, optional
        A cap to look at: the needs above it would not have been served.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With a line ``needs`` of dots, and for each part of the history its ``p50`` and ``p90``.
    """
    title = "How far back needs reach"
    bound = ranks[ranks["age_rank"] > 0]
    ax = axes_for(ax, height=EMPTY_HEIGHT if bound.empty else 4.4)
    if bound.empty:
        heading(ax, title)
        say_empty(
            ax,
            "No later need for an earlier memory is known"
            if ranks.empty
            else "Every need is of a load-bearing row",
        )
        return ax
    ends = _draw_quantiles(ax, quantiles) if quantiles is not None else []
    ax.plot(
        bound["written"],
        bound["age_rank"],
        ".",
        color=BLUE,
        alpha=0.5,
        markeredgewidth=0,
        markersize=7,
        label="needs",
    )
    ax.set_yscale("log")
    ax.set_ylim(0.8, 1.4 * max(bound["age_rank"].max(), cap or 0))
    written = bound["written"].max()
    ax.set_xlim(0, written if quantiles is None else max(written, quantiles["last"].max()))
    _plain_log(ax.yaxis)
    if cap is not None:
        mark_cap(ax, cap)
        ends.append(EndLabel(cap, f"keep_recent\n= {cap:,}", CAP_COLOUR))
    label_ends(ax, ends)
    count_axis(ax.xaxis, "memories written when the need arose")
    ax.set_ylabel("age rank of the memory needed")
    heading(
        ax,
        title,
        f"Each dot is a need of a prunable row; age rank 1 is the newest. "
        f"{counted(len(bound), 'references')}."
        + (" Bars: median and 90th percentile of each stretch." if quantiles is not None else ""),
    )
    free = len(ranks) - len(bound)
    young = "A young history can only show short distances."
    footnote(
        ax,
        f"{young} Not drawn: {counted(free, 'references')} to load-bearing rows."
        if free
        else young,
    )
    return ax


def plot_boot_over_time(
    timeline: pd.DataFrame,
    *,
    measure: Measure = "tokens",
    budget: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the boot context along the history, had each cap been held, and with none.

    Parameters
    ----------
    timeline : pandas.DataFrame
        As :func:`memlab.sizing.boot_over_time` returns it.
    measure : {"items", "tokens"}
        What to count.
    budget : int, optional
        A limit to draw, in the same measure.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With one line a cap, labelled such as ``keep 1,000``, and one labelled ``no cap``.

    Raises
    ------
    ValueError
        When `measure` is neither.
    """
    if measure not in {"items", "tokens"}:
        raise ValueError(f"measure must be 'items' or 'tokens', not {measure!r}")
    title = "What an agent would have loaded at every start"
    short_history = timeline[c.AT].nunique() < 2
    ax = axes_for(ax, height=EMPTY_HEIGHT if short_history else 4.4)
    if short_history:
        heading(ax, title)
        say_empty(ax, "No rows yet" if timeline.empty else "One moment only: no course to draw")
        return ax
    colours = iter((BLUE, GREEN, ORANGE, PURPLE, VERMILION))
    ends = []
    for cap, held in timeline.groupby("keep_recent", sort=False, dropna=False):
        free = pd.isna(cap)
        name = "no cap" if free else f"keep {cap:,}"
        colour = GREY if free else next(colours, MUTED)
        when = pd.DatetimeIndex(held[c.AT]).tz_localize(None).to_numpy()
        ax.step(when, held[measure], where="post", color=colour, linewidth=1.6, label=name)
        last = held[measure].iloc[-1]
        ends.append(EndLabel(last, f"{name}: {short(last)}", colour))
    if budget is not None:
        mark_cap(ax, budget)
        ends.append(EndLabel(budget, f"budget: {short(budget)}", CAP_COLOUR))
    ax.margins(x=0)
    ax.set_ylim(0, 1.04 * max(1.0, timeline[measure].max(), budget or 0))
    time_axis(ax)
    count_axis(ax.yaxis, measure)
    label_ends(ax, ends)
    heading(ax, title, "Each line: that keep_recent held from the first row on.")
    note = f" {token_note(timeline)}" if measure == "tokens" else ""
    footnote(ax, f"{timeline.attrs.get(c.CAVEAT, '')}{note}".strip())
    return ax


def plot_backtest(backtest: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw caps chosen at cuts of the history beside the caps that the next fifth took.

    Parameters
    ----------
    backtest : pandas.DataFrame
        As :func:`memlab.sizing.backtest_cap` returns it.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With a line ``chosen`` and a line ``needed`` of dots, one place a cut.
    """
    measured = backtest[backtest["needed"].notna()]
    ax = axes_for(ax, height=EMPTY_HEIGHT if measured.empty else 0.62 * len(backtest) + 1.7)
    places = np.arange(len(backtest))
    ax.set_yticks(
        places, [f"first {cut:.0%}".replace("%", " %") for cut in backtest["cut"]], color=INK
    )
    ax.set_ylim(len(backtest) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    if measured.empty:
        heading(ax, "No cut could be measured")
        say_empty(ax, "No reference followed any cut")
        return ax
    ax.set_xscale("log")
    both = measured[["keep_recent", "needed"]].to_numpy(dtype=float)
    ax.set_xlim(max(0.7, 0.5 * both.min()), 2 * both.max())
    _plain_log(ax.xaxis)
    for place, row in zip(places, backtest.itertuples(), strict=True):
        _dumbbell(ax, float(place), row)
    ax.set_xlabel("keep_recent")
    reached = int(measured["reached"].sum())
    target = f"{100 * measured['target'].iloc[0]:.4g} %"
    heading(
        ax,
        f"The target of {target} was met at {reached} of {counted(len(measured), 'cuts')}",
        key=(
            ("chosen, target met", GREEN),
            ("chosen, missed", VERMILION),
            ("needed afterwards", MUTED),
        ),
    )
    footnote(ax, "Chosen on the history before the cut, measured on the fifth that follows it.")
    return ax


def _draw_quantiles(ax: Axes, quantiles: pd.DataFrame) -> list[EndLabel]:
    """Draw median and 90th percentile of each part; return labels for the last ones."""
    ends = []
    for name, words, colour in (("p50", "median", ORANGE), ("p90", "90th percentile", VERMILION)):
        level = quantiles[name].astype("float64")
        ax.hlines(
            level, quantiles["first"], quantiles["last"], color=colour, linewidth=3, label=name
        )
        if level.notna().any():
            ends.append(EndLabel(float(level.dropna().iloc[-1]), words, colour))
    return ends


def _plain_log(axis: Axis) -> None:
    """Make a logarithmic axis read in plain numbers, more of them where it is short."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1,) if high / low > 300 else (1, 2, 5), numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _dumbbell(ax: Axes, place: float, row: Any) -> None:
    """Draw one cut: the chosen cap, the needed one, and what the chosen one reached."""
    if pd.isna(row.needed):
        text, colour = "no references followed", MUTED
    else:
        colour = GREEN if row.reached else VERMILION
        text = f"{share(row.achieved)} of {counted(row.references, 'references')}"
        ax.plot([row.keep_recent, row.needed], [place, place], color=HAIRLINE, linewidth=3)
        ax.plot(row.needed, place, "o", color=MUTED, markerfacecolor="white", label="needed")
        ax.plot(row.keep_recent, place, "o", color=colour, markersize=9, label="chosen")
    ax.annotate(
        text,
        (1, place),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=SMALL,
        annotation_clip=False,
        parse_math=False,
    )
