"""Charts of policies side by side: what they serve and cost, what they delete, what they lose."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from memlab import columns as c
from memlab.charts._style import (
    EMPTY_HEIGHT,
    LONGEST_LABEL,
    SMALL,
    EndLabel,
    Names,
    about,
    axes_for,
    heading,
    label_ends,
    say_empty,
    share,
    short,
)
from memlab.charts.evidence import NO_REFERENCES
from memlab.charts.figure import on_its_own
from memlab.charts.palette import Palette, style_of
from memlab.charts.scales import count_axis, log_axis, percent_axis, time_axis
from memlab.text import for_terminal

BEST: Final = "the best that could be done"
ALL: Final = "all"
_MOST_ANNOTATED: Final = 16


@on_its_own
def plot_comparison(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of references served against the boot tokens it costs, one line a policy.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`memlab.compare` returns it.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With one line for each family of settings, labelled with its name, a line at what keeping
        all costs, and what no policy of the same size can reach as a shade.
    """
    title = "What each policy serves and costs"
    unknown = table["served"].isna().all()
    ax, paint = axes_for(ax, height=EMPTY_HEIGHT if unknown else 5.0)
    if unknown:
        heading(ax, title, about(table))
        say_empty(ax, f"{NO_REFERENCES}: only costs can be compared")
        return ax
    drawn = list(table[table["policy"] != ALL].groupby("family", sort=False))
    _set_limits(ax, table)
    _draw_bound(ax, table, paint)
    labels = []
    widths = np.linspace(1.5 + 1.1 * (len(drawn) - 1), 1.5, max(1, len(drawn)))
    for (name, lines), width in zip(drawn, widths, strict=False):
        style = style_of(str(name))
        path = lines.sort_values("boot_tokens_mean")
        ax.plot(
            path["boot_tokens_mean"],
            path["served"],
            marker=style.marker,
            markersize=4 + width,
            linewidth=width,
            markeredgecolor=paint.paper,
            markeredgewidth=0.6,
            color=style.of(paint),
            label=str(name),
        )
        text = f"{style.glyph} {name}"
        labels.append(EndLabel(float(path["served"].iloc[-1]), text, style.of(paint)))
    _name_settings(ax, drawn, paint)
    for cost in table.loc[table["policy"] == ALL, "boot_tokens_mean"]:
        ax.axvline(cost, color=paint.muted, linewidth=1, linestyle=":", label="keep all")
        _foot(ax, cost, f"keep all: {short(cost)}", paint)
    label_ends(ax, labels)
    heading(
        ax,
        title,
        about(table),
        "Up and to the left is better; one mark a setting. Grey: out of reach at that size",
    )
    return ax


def _set_limits(ax: Axes, table: pd.DataFrame) -> None:
    """Show every mark with room around it; a few marks do not pretend to a narrow range."""
    costs = table["boot_tokens_mean"]
    low, high = max(0.7, 0.8 * costs[costs > 0].min()), 1.25 * max(1.0, costs.max())
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    log_axis(ax.xaxis, "mean boot tokens over the history (log scale)")
    least = float(table["served"].min())
    bottom = 0.0 if len(table) < 4 else np.floor(10 * (least - 0.03)) / 10
    ax.set_ylim(max(0.0, min(0.8, bottom)), 1.02)
    percent_axis(ax.yaxis, "share of references served")


def _draw_bound(ax: Axes, table: pd.DataFrame, paint: Palette) -> None:
    """Draw what no policy of the same size can reach, as far to the right as the axes go."""
    bound = table[["boot_tokens_mean", "oracle"]].groupby("boot_tokens_mean")["oracle"].max()
    best = np.maximum.accumulate(bound.to_numpy())
    across = np.append(bound.index.to_numpy(), ax.get_xlim()[1])
    up = np.append(best, best[-1])
    ax.fill_between(across, up, 1.02, step="post", color=paint.grey, alpha=0.18, linewidth=0)
    ax.step(bound.index, best, where="post", color=paint.grey, linewidth=1, label=BEST)


def _name_settings(ax: Axes, drawn: Sequence[tuple[Any, pd.DataFrame]], paint: Palette) -> None:
    """Write the setting beside each mark that has room, the first and last of each line first."""
    names = Names(ax)
    points = []
    for family, lines in drawn:
        colour = style_of(str(family)).of(paint)
        path = lines.sort_values("boot_tokens_mean")
        for place, (label, row) in enumerate(path.iterrows()):
            names.keep_clear(row["boot_tokens_mean"], row["served"])
            outer = min(place, len(path) - 1 - place)
            points.append((outer, row, str(label).removeprefix(str(row["policy"])), colour))
    for _, row, setting, colour in sorted(points, key=lambda point: point[0]):
        if setting.strip() and len(setting) < 12:
            names.name(row["boot_tokens_mean"], row["served"], setting.strip(), colour)


def _foot(ax: Axes, x: float, text: str, paint: Palette) -> None:
    """Name an upright line at its foot, on the left of it."""
    ax.annotate(
        text,
        (x, 0),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 5),
        textcoords="offset points",
        ha="right",
        color=paint.muted,
        fontsize=SMALL,
    )


@on_its_own
def plot_overlap(
    shares: pd.DataFrame,
    *,
    of: Literal["deleted", "lost"] = "deleted",
    ax: Axes | None = None,
) -> Axes:
    """Draw how much of what one policy deletes, or loses, another does too.

    Parameters
    ----------
    shares : pandas.DataFrame
        As :func:`memlab.replay.overlap` returns it with ``share=True``.
    of : {"deleted", "lost"}
        What was counted there: memories that went, or references whose memory was gone.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With one cell a pair, as opaque as its share (``Patch.get_alpha``); up to sixteen policies
        have their shares written in.

    Raises
    ------
    ValueError
        When `shares` holds counts.
    """
    if shares.gt(1).any(axis=None):
        raise ValueError("shares holds counts; make it with memlab.replay.overlap(.., share=True)")
    empty = shares.empty or shares.isna().all(axis=None)
    height = EMPTY_HEIGHT if empty else 2.0 + 0.42 * min(len(shares), 14)
    ax, paint = axes_for(ax, height=height)
    title = "Who deletes what" if of == "deleted" else "Who loses what"
    if empty:
        heading(ax, title, about(shares))
        say_empty(ax, "Nothing is deleted" if of == "deleted" else "No reference is lost")
        return ax
    values = shares.to_numpy(dtype=float)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    for (line, column), value in np.ndenumerate(values):
        face: dict[str, Any] = {
            "facecolor": paint.blue,
            "alpha": 0.0 if np.isnan(value) else 0.6 * value,
        }
        cell = Rectangle((column - 0.48, line - 0.46), 0.96, 0.92, linewidth=0, **face)
        ax.add_patch(cell)
        if len(shares) <= _MOST_ANNOTATED:
            text = "–" if np.isnan(value) else f"{100 * value:.0f}"
            ax.text(column, line, text, ha="center", va="center", color=paint.ink, fontsize=SMALL)
    ax.set_xlim(-0.5, len(shares.columns) - 0.5)
    ax.set_ylim(len(shares) - 0.5, -0.5)
    ticks = np.arange(len(shares))
    names = [_numbered(number, str(name)) for number, name in enumerate(shares.index, start=1)]
    ax.set_yticks(ticks, labels=names, parse_math=False)
    ax.set_xticks(
        ticks,
        labels=[str(number) for number in ticks + 1],
    )
    ax.tick_params(length=0, labeltop=False)
    what = "memories deleted" if of == "deleted" else "references lost"
    heading(
        ax,
        title,
        about(shares),
        f"In percent: of the {what} under one policy (left), those that go under another (below)",
    )
    return ax


def _numbered(number: int, label: str) -> str:
    """Return a policy's label with its number and its mark, on lines of their own where long."""
    return fill(f"{number} {style_of(label).glyph} {for_terminal(label)}", LONGEST_LABEL)


@on_its_own
def plot_regret(regrets: Mapping[str, pd.DataFrame], *, ax: Axes | None = None) -> Axes:
    """Draw how many references found their memory gone as time went by, one line a policy.

    Parameters
    ----------
    regrets : mapping of str to pandas.DataFrame
        A label for each policy, and its ``regret_over_time``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With one line for each policy, labelled with its label.
    """
    title = "References whose memory was gone"
    known = {label: regret for label, regret in regrets.items() if len(regret)}
    ax, paint = axes_for(ax, height=4.2 if known else EMPTY_HEIGHT)
    if not known:
        heading(ax, title, about(*regrets.values()))
        say_empty(ax, NO_REFERENCES)
        return ax
    labels = []
    widths = np.linspace(1.5 + 0.9 * (len(known) - 1), 1.5, len(known))
    for (label, regret), width in zip(known.items(), widths, strict=True):
        style = style_of(label)
        colour = style.of(paint)
        when = pd.DatetimeIndex(regret[c.AT]).tz_localize(None).to_numpy()
        ax.step(
            when,
            regret["lost"],
            where="post",
            color=colour,
            linewidth=width,
            marker=style.marker,
            markevery=max(1, len(regret) // 8),
            markersize=4 + width,
            markeredgecolor=paint.paper,
            markeredgewidth=0.6,
            label=label,
        )
        lost = int(regret["lost"].iloc[-1])
        labels.append(EndLabel(lost, f"{style.glyph} {label}: {lost:,}", colour))
    ax.margins(x=0.01)
    time_axis(ax, when)
    ax.set_ylim(bottom=0)
    count_axis(ax.yaxis, "references lost so far")
    label_ends(ax, labels)
    rates = [regret["lost"].iloc[-1] / len(regret) for regret in known.values()]
    heading(
        ax,
        title,
        about(*known.values()),
        f"Between {share(min(rates))} and {share(max(rates))} of them were lost"
        if len(known) > 1
        else f"{share(rates[0])} of them were lost",
    )
    return ax
