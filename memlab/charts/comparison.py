"""Charts of policies side by side: what they serve and cost, what they delete, what they lose."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from memlab import columns as c
from memlab.charts import parts
from memlab.charts.figure import on_its_own
from memlab.charts.palette import Style, style_of
from memlab.text import for_terminal

BEST: Final = "the best that could be done"
ALL: Final = "all"
_MOST_ANNOTATED: Final = 16

Families = Sequence[tuple[str, pd.DataFrame, Style]]


@on_its_own
def plot_comparison(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of references served against the boot tokens it costs, one line a policy.

    `table` is from :func:`memlab.compare`. One line for each family of settings, labelled with its
    name, a line at what keeping all costs, and a shade that no policy of the same size can reach.
    """
    title = "What each policy serves and costs"
    plot = parts.Plot(ax, table, height=5.0)
    if table["served"].isna().all():
        return plot.empty(title, f"{parts.NO_REFERENCES}: only costs can be compared")
    ax, paint = plot.ax, plot.paint
    families: pd.Series[str] = table["family"].astype("str")
    goes_by = table.attrs.get(c.GOES_BY, {})
    drawn = [
        (name, path.sort_values("boot_tokens_mean"), style_of(name, goes_by.get(name)))
        for name, path in table[table["policy"] != ALL].groupby(families, sort=False)
    ]
    _set_limits(plot, table)
    _draw_bound(plot, table)
    for (name, path, style), width in zip(drawn, _widths(len(drawn)), strict=True):
        look = style.drawn(paint, width)
        if path["retire"].all():
            look |= {"markerfacecolor": paint.paper, "markeredgecolor": look["color"]}
        ax.plot(path["boot_tokens_mean"], path["served"], label=name, **look)
        text = f"{style.glyph} {name}"
        plot.end(float(path["served"].iloc[-1]), text, look["color"])
    for cost in table.loc[table["policy"] == ALL, "boot_tokens_mean"]:
        ax.axvline(cost, color=paint.muted, linewidth=1, linestyle=":", label="keep all")
        foot: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": "right"}
        plot.write(f"keep all: {parts.short(cost)}", (cost, 0), (-4, 5), **foot)
    plot.label_ends()
    plot.heading(
        title,
        "Up and to the left is better; one mark a setting. Grey: out of reach at that size",
        "Hollow: retired, not deleted" if table["retire"].any() else "",
        key=[
            Line2D([], [], color=colour, label=f"goes by {by or 'neither'}")
            for by, colour in sorted({(style.goes_by, style.of(paint)) for *_, style in drawn})
        ],
    )
    plot.figure.draw_without_rendering()  # where all of this leaves room is known now
    _name_settings(plot, drawn)
    return ax


def _widths(count: int) -> parts.Numbers:
    return np.linspace(min(4.8, 1.5 + 1.1 * (count - 1)), 1.5, count)


def _set_limits(plot: parts.Plot, table: pd.DataFrame) -> None:
    """Show every mark with room around it; a few marks do not pretend to a narrow range."""
    ax, costs = plot.ax, table["boot_tokens_mean"]
    low, high = max(0.7, 0.8 * costs[costs > 0].min()), 1.25 * max(1.0, costs.max())
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    tokens = plot.by_start("boot tokens", "tokens to recall from")
    plot.log_axis(ax.xaxis, f"mean {tokens} over the history (log scale)")
    least = float(table["served"].min())
    bottom = 0.0 if len(table) < 4 else np.floor(10 * (least - 0.03)) / 10
    ax.set_ylim(max(0.0, min(0.8, bottom)), 1.06)
    plot.percent_axis("share of references served")


def _draw_bound(plot: parts.Plot, table: pd.DataFrame) -> None:
    """Draw what no policy of the same size can reach, as far to the right as the axes go."""
    ax, grey = plot.ax, plot.paint.grey
    bound = table[["boot_tokens_mean", "oracle"]].groupby("boot_tokens_mean")["oracle"].max()
    best = np.maximum.accumulate(bound.to_numpy())
    across = np.append(bound.index.to_numpy(), ax.get_xlim()[1])
    up = np.append(best, best[-1])
    ax.fill_between(across, up, ax.get_ylim()[1], step="post", color=grey, alpha=0.18, linewidth=0)
    ax.step(bound.index, best, where="post", color=grey, linewidth=1, label=BEST)


def _name_settings(plot: parts.Plot, drawn: Families) -> None:
    """Write the setting beside each mark that has room, the first and last of each line first."""
    names, marks = parts.Names(plot), []
    for _, path, style in drawn:
        for place, (label, row) in enumerate(path.iterrows()):
            at = row["boot_tokens_mean"], row["served"]
            names.keep_clear(*at)
            setting = str(label).removeprefix(str(row["policy"])).strip()
            marks.append((min(place, len(path) - 1 - place), *at, setting, style))
    for _, x, y, setting, style in sorted(marks, key=lambda mark: mark[0]):
        if 0 < len(setting) < 11:
            names.name(x, y, setting, style.of(plot.paint))


@on_its_own
def plot_overlap(
    shares: pd.DataFrame, *, of: Literal["deleted", "lost"] = "deleted", ax: Axes | None = None
) -> Axes:
    """Draw how much of what one policy deletes, or loses, another does too.

    `shares` are from :func:`memlab.replay.overlap` with ``share=True``, of the same `of`;
    ValueError of counts. One cell a pair, as opaque as its share (``Patch.get_alpha``); up to
    sixteen policies have their shares written in.
    """
    if shares.gt(1).any(axis=None):
        raise ValueError("shares holds counts; make it with memlab.replay.overlap(.., share=True)")
    plot = parts.Plot(ax, shares, height=2.0 + 0.42 * min(len(shares), 14))
    title = "Who deletes what" if of == "deleted" else "Who loses what"
    if shares.empty or shares.isna().all(axis=None):
        why = "Nothing is deleted" if of == "deleted" else "No reference is lost"
        return plot.empty(title, why)
    ax, paint = plot.ax, plot.paint
    values = shares.to_numpy(dtype=float)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    for (line, column), value in np.ndenumerate(values):
        cell = Rectangle((column - 0.48, line - 0.46), 0.96, 0.92, linewidth=0)
        cell.set(facecolor=paint.ink, alpha=0.0 if np.isnan(value) else 0.35 * value)
        ax.add_patch(cell)
        if len(shares) <= _MOST_ANNOTATED:
            text = "–" if np.isnan(value) else f"{100 * value:.0f}"
            ax.text(
                column, line, text, ha="center", va="center", color=paint.ink, fontsize=parts.SMALL
            )
    ax.set_xlim(-0.5, len(shares.columns) - 0.5)
    ax.set_ylim(len(shares) - 0.5, -0.5)
    ticks = np.arange(len(shares))
    names = [
        fill(f"{number} {style_of(name).glyph} {for_terminal(name)}", parts.LONGEST_LABEL)
        for number, name in enumerate(map(str, shares.index), start=1)
    ]
    ax.set_yticks(ticks, labels=names, parse_math=False)
    some = ticks[:: 1 + (plot.is_narrow and len(shares) > _MOST_ANNOTATED)]
    ax.set_xticks(some, labels=[str(number) for number in some + 1])
    ax.tick_params(length=0, labeltop=False)
    what = "memories deleted" if of == "deleted" else "references lost"
    plot.heading(
        title,
        f"In percent: of the {what} under one policy (left), those that go under another (below)",
    )
    return ax


@on_its_own
def plot_regret(regrets: Mapping[str, pd.DataFrame], *, ax: Axes | None = None) -> Axes:
    """Draw how many references found their memory gone as time went by, one line a policy.

    `regrets` has a label for each policy, which its line gets, and its ``regret_over_time``.
    """
    known = {label: regret for label, regret in regrets.items() if len(regret)}
    plot = parts.Plot(ax, *(known or regrets).values(), height=4.2)
    if not known:
        return plot.empty("References whose memory was gone", parts.NO_REFERENCES)
    ax, paint = plot.ax, plot.paint
    for (label, regret), width in zip(known.items(), _widths(len(known)), strict=True):
        style = style_of(label, regret.attrs.get(c.GOES_BY))
        when = parts.without_zone(regret[c.AT])
        look = {**style.drawn(paint, width), "markevery": max(1, len(regret) // 8)}
        ax.step(when, regret["lost"], where="post", label=label, clip_on=False, **look)
        lost = int(regret["lost"].iloc[-1])
        plot.end(lost, f"{style.glyph} {label}: {lost:,}", look["color"])
    ax.margins(x=0.01)
    plot.time_axis()
    ax.set_ylim(bottom=0)
    plot.count_axis(ax.yaxis, "references lost so far")
    plot.label_ends()
    rates = {label: regret["lost"].iloc[-1] / len(regret) for label, regret in known.items()}
    most, least = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
    finding = f"{for_terminal(most)} lost {parts.share(rates[most])} of what was referred to again"
    if rates[most] > rates[least]:
        finding += f", {for_terminal(least)} {parts.share(rates[least])}"
    plot.heading(finding, "References whose memory was gone, so far")
    return ax
