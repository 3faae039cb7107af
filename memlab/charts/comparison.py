"""Charts of policies side by side: what they serve and cost, what they delete, what they lose."""

from collections.abc import Mapping
from typing import Final, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from memlab import columns as c
from memlab.charts._style import (
    GREY,
    HAIRLINE,
    INK,
    MUTED,
    SERIES,
    SMALL,
    EndLabel,
    axes_for,
    count_axis,
    counted,
    footnote,
    heading,
    label_ends,
    percent_axis,
    say_empty,
    short,
    time_axis,
)

BEST: Final = "the best that could be done"
ALL: Final = "all"
_OUT_OF_REACH: Final = HAIRLINE
_MOST_ANNOTATED: Final = 16
_MARKS: Final = "osD^vPX"
_NO_REFERENCES: Final = "No later need for an earlier memory is known"


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
    ax = axes_for(ax, height=4.8)
    if table["served"].isna().all():
        heading(ax, "What each policy serves and costs")
        say_empty(ax, _NO_REFERENCES)
        return ax
    bound = table[["boot_tokens_mean", "oracle"]].groupby("boot_tokens_mean")["oracle"].max()
    best = np.maximum.accumulate(bound.to_numpy())
    ax.fill_between(bound.index, best, 1.0, step="post", color=_OUT_OF_REACH, linewidth=0)
    ax.step(bound.index, best, where="post", color=GREY, linewidth=1, label=BEST)
    labels = []
    drawn = table[table["policy"] != ALL].groupby("family", sort=False)
    for place, (name, lines) in enumerate(drawn):
        path = lines.sort_values("boot_tokens_mean")
        colour = SERIES[place % len(SERIES)]
        ax.plot(
            path["boot_tokens_mean"],
            path["served"],
            marker=_MARKS[place % len(_MARKS)],
            markersize=4,
            color=colour,
            label=str(name),
        )
        labels.append(EndLabel(float(path["served"].iloc[-1]), str(name), colour))
    for cost in table.loc[table["policy"] == ALL, "boot_tokens_mean"]:
        ax.axvline(cost, color=MUTED, linewidth=1, linestyle=":", label="keep all")
    ax.set_xscale("log")
    ax.set_xlabel("mean boot tokens over the history (log scale)")
    ax.xaxis.set_major_formatter(lambda value, _: short(value))
    ax.xaxis.set_minor_formatter(lambda value, _: short(value) if _leads(value) else "")
    ax.tick_params(which="minor", colors=MUTED, labelsize=SMALL)
    percent_axis(ax.yaxis, "share of references served")
    ax.set_ylim(min(0.9, float(table["served"].min())) - 0.03, 1.01)
    label_ends(ax, labels)
    heading(
        ax,
        "What each policy serves and costs",
        "One mark a setting. Grey: out of reach at that size. Dotted: keeping all.",
    )
    return ax


def _leads(value: float) -> bool:
    """Whether a number begins with 2 or 5, the minor ticks worth a label."""
    return f"{value:e}"[0] in "25"


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
        What was counted there: rows that went, or references that were lost.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With one image; up to sixteen policies have their shares written in.
    """
    ax = axes_for(ax, height=1.8 + 0.42 * min(len(shares), 14))
    title = "Who deletes what" if of == "deleted" else "Who loses what"
    if shares.empty or shares.isna().all(axis=None):
        heading(ax, title)
        say_empty(ax, "Nothing is deleted" if of == "deleted" else "Nothing is lost")
        return ax
    values = shares.to_numpy(dtype=float)
    ax.grid(visible=False)
    ax.imshow(values, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    ticks = np.arange(len(shares))
    ax.set_yticks(ticks, labels=list(shares.index), parse_math=False)
    ax.set_xticks(ticks, labels=list(shares.columns), rotation=35, ha="right", parse_math=False)
    if len(shares) <= _MOST_ANNOTATED:
        for (line, column), value in np.ndenumerate(values):
            text = "–" if np.isnan(value) else f"{100 * value:.0f}"
            ink = "white" if value > 0.9 else INK
            ax.text(column, line, text, ha="center", va="center", color=ink, fontsize=SMALL)
    what = "rows deleted" if of == "deleted" else "references lost"
    heading(ax, title, f"Percent of the {what} under the policy on the left that go below as well.")
    return ax


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
    ax = axes_for(ax, height=4.2)
    title = "References that found their memory gone"
    known = {label: regret for label, regret in regrets.items() if len(regret)}
    if not known:
        heading(ax, title)
        say_empty(ax, _NO_REFERENCES)
        return ax
    labels = []
    for place, (label, regret) in enumerate(known.items()):
        colour = SERIES[place % len(SERIES)]
        ax.step(regret[c.AT], regret["lost"], where="post", color=colour, label=label)
        lost = int(regret["lost"].iloc[-1])
        labels.append(EndLabel(lost, f"{label}: {lost:,}", colour))
    time_axis(ax)
    ax.set_ylim(bottom=0)
    count_axis(ax.yaxis, "references lost so far")
    label_ends(ax, labels)
    heading(ax, title)
    every = max(int(regret["references"].iloc[-1]) for regret in known.values())
    footnote(ax, f"Of {counted(every, 'references')} in all.")
    return ax
