"""Charts of a history: how far back references reach, what caps would have cost, the record."""

from typing import Any, Final, get_args

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import AbstractPathEffect, withStroke

from memlab import columns as c
from memlab.charts._style import (
    EMPTY_HEIGHT,
    SMALL,
    EndLabel,
    about,
    axes_for,
    footnote,
    heading,
    label_ends,
    mark_cap,
    percent_of,
    say_empty,
    share,
    short,
    token_note,
)
from memlab.charts.figure import on_its_own
from memlab.charts.growth import NOTHING_YET, Measure
from memlab.charts.palette import palette_of
from memlab.charts.scales import count_axis, is_narrow, log_axis, time_axis
from memlab.text import counted

NO_REFERENCES: Final = "No later reference to an earlier memory is known"
MOST_DOTS: Final = 1_000
"""Dots that are drawn at most; of more, a sample."""
_DASHES: Final = ("-", (0, (6, 1.5)), (0, (3, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))


@on_its_own
def plot_age_ranks(
    ranks: pd.DataFrame,
    *,
    quantiles: pd.DataFrame | None = None,
    cap: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how far back each reference reached, along the history, on a logarithmic scale.

    Parameters
    ----------
    ranks : pandas.DataFrame
        As :func:`memlab.sizing.age_ranks` returns it. Of more than `MOST_DOTS` references a sample
        is drawn, the same every time, and the chart says so.
    quantiles : pandas.DataFrame, optional
        As :func:`memlab.sizing.age_rank_quantiles` returns it; of all references.
    cap : int, optional
        A cap to look at: the references above it would not have been served.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With a line ``references`` of dots, and for each part of the history its ``p50`` and
        ``p90``.
    """
    title = "How far back references reach"
    bound = ranks[ranks["age_rank"] > 0]
    ax, paint = axes_for(ax, height=EMPTY_HEIGHT if bound.empty else 4.6)
    if bound.empty:
        heading(ax, title, about(ranks))
        say_empty(
            ax, NO_REFERENCES if ranks.empty else "Every reference is to a load-bearing memory"
        )
        return ax
    dots = bound if len(bound) <= MOST_DOTS else bound.sample(MOST_DOTS, random_state=0)
    ax.plot(
        dots["written"],
        dots["age_rank"],
        ".",
        color=paint.blue,
        alpha=0.5,
        markeredgewidth=0,
        markersize=7 if len(dots) < MOST_DOTS else 5,
        label="references",
    )
    ends = _draw_quantiles(ax, quantiles) if quantiles is not None else []
    written = bound["written"].max()
    ax.set_xlim(0, written if quantiles is None else max(written, quantiles["last"].max()))
    ax.set_yscale("log")
    ax.set_ylim(0.8, 1.4 * max(bound["age_rank"].max(), cap or 0))
    log_axis(ax.yaxis, "age rank of the memory (1 = newest)")
    if cap is not None:
        mark_cap(ax, cap)
        ends.append(EndLabel(cap, f"keep_recent = {cap:,}", paint.cap))
    label_ends(ax, ends)
    count_axis(ax.xaxis, "memories written when the reference was made")
    heading(
        ax,
        title,
        about(ranks),
        "Each dot is a later reference to a prunable memory"
        + ("; bars: median and 90th percentile of each stretch" if quantiles is not None else ""),
    )
    free = len(ranks) - len(bound)
    footnote(
        ax,
        f"A sample of {len(dots):,} of {len(bound):,} references is drawn."
        if len(dots) < len(bound)
        else "",
        "A young history can only show short distances.",
        f"Not drawn: {counted(free, 'references')} to load-bearing memories." if free else "",
    )
    return ax


@on_its_own
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
    measure : {"memories", "tokens"}
        What to count.
    budget : int, optional
        A limit to draw, in the same measure.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With one line a cap, labelled such as ``keep 1,000``, and one labelled ``no cap``. Each
        says what it ends at and, where it was once more by a tenth, its most.

    Raises
    ------
    ValueError
        When `measure` is neither.
    """
    if measure not in get_args(Measure):
        raise ValueError(f"measure must be 'memories' or 'tokens', not {measure!r}")
    title = "What an agent would have loaded at every start"
    short_history = timeline[c.AT].nunique() < 2
    ax, paint = axes_for(ax, height=EMPTY_HEIGHT if short_history else 4.4)
    if short_history:
        heading(ax, title, about(timeline))
        say_empty(ax, NOTHING_YET if timeline.empty else "One moment only: no course to draw yet")
        return ax
    lines = list(timeline.groupby("keep_recent", sort=False, dropna=False))
    widths = np.linspace(1.4 + 0.7 * (len(lines) - 1), 1.4, len(lines))
    ends = []
    for number, (cap, held) in enumerate(lines):
        free = pd.isna(cap)
        name = "no cap" if free else f"keep {cap:,}"
        colour = paint.grey if free else paint.series[(number - 1) % len(paint.series)]
        when = pd.DatetimeIndex(held[c.AT]).tz_localize(None).to_numpy()
        ax.step(
            when,
            held[measure],
            where="post",
            color=colour,
            linewidth=widths[number],
            linestyle="-" if free else _DASHES[(number - 1) % len(_DASHES)],
            label=name,
        )
        ends.append(EndLabel(held[measure].iloc[-1], _ends_at(name, held[measure]), colour))
    if budget is not None:
        mark_cap(ax, budget)
        ends.append(EndLabel(budget, f"budget: {short(budget)}", paint.budget))
    ax.margins(x=0)
    ax.set_ylim(0, 1.04 * max(1.0, timeline[measure].max(), budget or 0))
    time_axis(ax, when)
    count_axis(ax.yaxis, measure)
    label_ends(ax, ends)
    heading(
        ax,
        title,
        about(timeline),
        "Each line: that keep_recent held from the first memory on. Named: the last value",
    )
    footnote(
        ax,
        str(timeline.attrs.get(c.CAVEAT, "")),
        token_note(timeline) if measure == "tokens" else "",
    )
    return ax


@on_its_own
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
        With a line ``chosen`` and a line ``needed`` of marks, one place a cut, each with its cap.
    """
    measured = backtest[backtest["needed"].notna()]
    height = EMPTY_HEIGHT if measured.empty else 0.62 * len(backtest) + 1.9
    ax, paint = axes_for(ax, height=height)
    if measured.empty:
        heading(ax, "No cut of the history could be measured", about(backtest))
        say_empty(ax, "No reference followed any cut")
        return ax
    places = np.arange(len(backtest))
    ax.set_yticks(
        places,
        [f"first {cut:.0%}".replace("%", " %") for cut in backtest["cut"]],
        color=paint.ink,
    )
    ax.set_ylim(len(backtest) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    both = measured[["keep_recent", "needed"]].to_numpy(dtype=float)
    ax.set_xscale("log")
    ax.set_xlim(*_with_room_for_caps(ax, max(1.0, both.min()), max(1.0, both.max())))
    log_axis(ax.xaxis, "keep_recent", most=4 if is_narrow(ax.xaxis) else 6)
    for place, row in zip(places, backtest.itertuples(), strict=True):
        _dumbbell(ax, float(place), row)
    reached = int(measured["reached"].sum())
    target = percent_of(measured["target"].iloc[0])
    heading(
        ax,
        f"The target of {target} was met at {reached} of {counted(len(measured), 'cuts')}",
        about(backtest),
        "Filled: the cap chosen before the cut (● met the target, ✖ missed it). "
        "Hollow: the cap it would have taken",
    )
    footnote(ax, "Chosen on the history before the cut, measured on the fifth that follows it.")
    return ax


def _ends_at(name: str, values: "pd.Series[Any]") -> str:
    """Name a line by what it ends at; where that is not its most, by that too."""
    last, most = values.iloc[-1], values.max()
    peak = f", at most {short(most)}" if most > 1.1 * last else ""
    return f"{name}: {short(last)}{peak}"


def _draw_quantiles(ax: Axes, quantiles: pd.DataFrame) -> list[EndLabel]:
    """Draw median and 90th percentile of each part on top; return labels for the last ones."""
    paint, ends = palette_of(ax), []
    around: list[AbstractPathEffect] = [withStroke(linewidth=6, foreground=paint.paper)]
    for name, words, colour, style in (
        ("p50", "median", paint.gold, "-"),
        ("p90", "90th percentile", paint.rust, (0, (4, 1))),
    ):
        level = quantiles[name].astype("float64")
        lines = ax.hlines(
            level,
            quantiles["first"],
            quantiles["last"],
            color=colour,
            linewidth=3,
            linestyle=style,
            label=name,
            zorder=3,
        )
        lines.set_path_effects(around)
        if level.notna().any():
            ends.append(EndLabel(float(level.dropna().iloc[-1]), words, colour))
    return ends


def _with_room_for_caps(ax: Axes, low: float, high: float) -> tuple[float, float]:
    """Return limits of a logarithmic axis that leave room for a number on both sides."""
    side = 0.3 if is_narrow(ax.xaxis) else 0.1
    beyond = max(2.3, (high / low) ** (side / (1 - 2 * side)))
    return max(0.7, low / beyond), high * beyond


def _dumbbell(ax: Axes, place: float, row: Any) -> None:
    """Draw one cut: the chosen cap, the needed one, and what the chosen one reached."""
    paint = palette_of(ax)
    if pd.isna(row.needed):
        text, colour = "no references followed", paint.muted
    else:
        colour = paint.green if row.reached else paint.rust
        text = f"{share(row.achieved)} of {counted(row.references, 'references')}"
        ends = [row.keep_recent, row.needed]
        ax.plot(ends, [place, place], color=paint.hairline, linewidth=3)
        hollow: dict[str, Any] = {"markerfacecolor": paint.paper, "label": "needed"}
        ax.plot(row.needed, place, "o", color=paint.muted, markersize=7, **hollow)
        mark = "o" if row.reached else "X"
        ax.plot(row.keep_recent, place, mark, color=colour, markersize=9, label="chosen")
        above = row.keep_recent >= row.needed
        _cap_beside(ax, place, row.keep_recent, colour, right=above)
        _cap_beside(ax, place, row.needed, paint.muted, right=not above)
    note = ax.annotate(
        text,
        (1, place),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        annotation_clip=False,
        parse_math=False,
    )
    note.set_color(paint.words(colour))


def _cap_beside(ax: Axes, place: float, cap: int, colour: str, *, right: bool) -> None:
    """Write a cap on the outer side of its mark."""
    ax.annotate(
        f"{cap:,}",
        (cap, place),
        xytext=(8 if right else -8, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center",
        color=palette_of(ax).words(colour),
        fontsize=SMALL,
    )
