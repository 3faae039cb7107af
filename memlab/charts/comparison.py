"""Charts that compare policies, and charts that compare age with use as predictors of reads."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from memlab import columns as c
from memlab.charts import parts
from memlab.charts.figure import Style, on_its_own, style_of
from memlab.evidence.usage import SIZES, TIMES, AgeOrUse, other_stores
from memlab.text import counted, for_terminal

BEST: Final = "the best that could be done"
"""Label of the optimal offline bound."""
ALL: Final = "all"
"""Name of the policy that keeps all memories."""
_MAX_ANNOTATED: Final = 16
"""Largest number of policies for which the cells of an overlap have their share as text."""

Families = Sequence[tuple[str, pd.DataFrame, Style]]


@on_its_own
def plot_comparison(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of references that policies serve against their boot tokens.

    Each family of settings is a line with its name as label. A dotted line marks the cost of
    keeping all memories. The grey area is above the optimal offline bound for that size.

    Parameters
    ----------
    table : DataFrame
        The result of :func:`memlab.compare`, one row a policy.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.
    """
    title = "What each policy serves and costs"
    plot = parts.Plot(ax, table, height=5.0)
    if table["served"].isna().all():
        return plot.empty(title, f"{parts.NO_REFERENCES}: only costs can be compared")
    ax = plot.ax
    paint = plot.paint
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
            look["markerfacecolor"] = paint.paper
            look["markeredgecolor"] = look["color"]
        ax.plot(path["boot_tokens_mean"], path["served"], label=name, **look)
        text = f"{style.glyph} {name}"
        plot.end(float(path["served"].iloc[-1]), text, look["color"])
        for setting, row in path.iterrows():
            cost = counted(row["boot_tokens_mean"], "tokens")
            serves = f"serves {parts.share(row['served'])} of references"
            plot.hover_dot(
                row["boot_tokens_mean"], row["served"], f"{setting}: {serves} for {cost} (mean)"
            )
    for cost in table.loc[table["policy"] == ALL, "boot_tokens_mean"]:
        ax.axvline(cost, color=paint.muted, linewidth=1, linestyle=":", label="keep all")
        foot: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": "right"}
        plot.write(f"keep all: {parts.short(cost)}", (cost, 0), (-4, 5), **foot)
    plot.heading(
        title,
        "Up and to the left is better; one mark a setting. Grey: out of reach at that size",
        "Hollow: retired, not deleted" if table["retire"].any() else "",
        key=[
            Line2D([], [], color=colour, label=f"goes by {by or 'neither'}")
            for by, colour in sorted({(style.goes_by, style.of(paint)) for *_, style in drawn})
        ],
    )
    plot.figure.draw_without_rendering()  # computes the layout, which the labels need
    _name_settings(plot, drawn)
    return ax


def _widths(count: int) -> parts.Numbers:
    """Return line widths in points, the first the widest, so that lines that coincide show."""
    return np.linspace(min(4.8, 1.5 + 1.1 * (count - 1)), 1.5, count)


def _set_limits(plot: parts.Plot, table: pd.DataFrame) -> None:
    """Set the limits of the axes around the marks; with few marks, shares start at zero."""
    costs = table["boot_tokens_mean"]
    tokens = plot.by_start("boot tokens", "tokens to recall from")
    across = max(0.7, 0.8 * costs[costs > 0].min()), 1.25 * max(1.0, costs.max())
    plot.log_axis(plot.ax.xaxis, f"mean {tokens} over the history (log scale)", across)
    least = float(table["served"].min())
    bottom = 0.0 if len(table) < 4 else np.floor(10 * (least - 0.03)) / 10
    up = max(0.0, min(0.8, bottom)), 1.06
    plot.percent_axis(plot.ax.yaxis, "share of references served", up)


def _draw_bound(plot: parts.Plot, table: pd.DataFrame) -> None:
    """Draw the optimal offline bound, and shade the area above it."""
    ax = plot.ax
    grey = plot.paint.grey
    bound = table[["boot_tokens_mean", "oracle"]].groupby("boot_tokens_mean")["oracle"].max()
    best = np.maximum.accumulate(bound.to_numpy())
    across = np.append(bound.index.to_numpy(), ax.get_xlim()[1])
    up = np.append(best, best[-1])
    ax.fill_between(across, up, ax.get_ylim()[1], step="post", color=grey, alpha=0.18, linewidth=0)
    ax.step(bound.index, best, where="post", color=grey, linewidth=1, label=BEST)


def _name_settings(plot: parts.Plot, drawn: Families) -> None:
    """Label marks with their setting if there is room, first those at the ends of lines."""
    names = parts.Names(plot)
    marks = []
    for _, path, style in drawn:
        for place, (label, row) in enumerate(path.iterrows()):
            x = row["boot_tokens_mean"]
            y = row["served"]
            names.keep_clear(x, y)
            setting = str(label).removeprefix(str(row["policy"])).strip()
            from_end = min(place, len(path) - 1 - place)
            marks.append((from_end, x, y, setting, style))
    for _, x, y, setting, style in sorted(marks, key=lambda mark: mark[0]):
        if 0 < len(setting) < 11:
            names.name(x, y, setting, style.of(plot.paint))


@on_its_own
def plot_overlap(
    shares: pd.DataFrame, *, of: Literal["deleted", "lost"] = "deleted", ax: Axes | None = None
) -> Axes:
    """Draw the overlap of what policies delete, or lose, as a matrix.

    The opacity of a cell (``Patch.get_alpha``) grows with its share. For up to sixteen policies the
    share is written into the cell.

    Parameters
    ----------
    shares : DataFrame
        The result of :func:`memlab.replay.overlap` with ``share=True``, square, from 0 to 1.
    of : {"deleted", "lost"}, optional
        The same as for :func:`memlab.replay.overlap`.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Raises
    ------
    ValueError
        If `shares` holds counts.
    """
    if shares.gt(1).any(axis=None):
        raise ValueError("shares holds counts; make it with memlab.replay.overlap(.., share=True)")
    plot = parts.Plot(ax, shares, height=2.0 + 0.42 * min(len(shares), 14))
    title = "Who deletes what" if of == "deleted" else "Who loses what"
    if shares.empty or shares.isna().all(axis=None):
        why = "Nothing is deleted" if of == "deleted" else "No reference is lost"
        return plot.empty(title, why)
    ax = plot.ax
    paint = plot.paint
    values = shares.to_numpy(dtype=float)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    for (line, column), value in np.ndenumerate(values):
        cell = Rectangle((column - 0.48, line - 0.46), 0.96, 0.92, linewidth=0)
        cell.set(facecolor=paint.ink, alpha=0.0 if np.isnan(value) else 0.35 * value)
        ax.add_patch(cell)
        if len(shares) <= _MAX_ANNOTATED:
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
    is_crowded = plot.is_narrow and len(shares) > _MAX_ANNOTATED
    labelled = ticks[::2] if is_crowded else ticks
    ax.set_xticks(labelled, labels=[str(number) for number in labelled + 1])
    ax.tick_params(length=0, labeltop=False)
    what = "memories deleted" if of == "deleted" else "references lost"
    plot.heading(
        title,
        f"In percent: of the {what} under one policy (left), those that go under another (below)",
    )
    return ax


@on_its_own
def plot_regret(regrets: Mapping[str, pd.DataFrame], *, ax: Axes | None = None) -> Axes:
    """Draw the number of references to deleted memories over time, one line a policy.

    Parameters
    ----------
    regrets : Mapping
        The ``regret_over_time`` of each replay, by the label of its line.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.
    """
    known = {label: regret for label, regret in regrets.items() if len(regret)}
    plot = parts.Plot(ax, *(known or regrets).values(), height=4.2)
    if not known:
        return plot.empty("References whose memory was gone", parts.NO_REFERENCES)
    ax = plot.ax
    paint = plot.paint
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
    longest = max(known.values(), key=len)
    moments = parts.without_zone(longest[c.AT])
    plot.hover_along(moments, _losses_in_words(moments, known))
    rates = {label: regret["lost"].iloc[-1] / len(regret) for label, regret in known.items()}
    most = max(rates, key=rates.__getitem__)
    least = min(rates, key=rates.__getitem__)
    finding = f"{for_terminal(most)} lost {parts.share(rates[most])} of what was referred to again"
    if rates[most] > rates[least]:
        finding += f", {for_terminal(least)} {parts.share(rates[least])}"
    plot.heading(finding, "References whose memory was gone, so far")
    return ax


def _losses_in_words(
    moments: npt.NDArray[np.datetime64], regrets: Mapping[str, pd.DataFrame]
) -> Callable[[int], str]:
    """Return a function that names a moment, with the losses of each policy until then."""
    moment = parts.moments_in_words(moments)
    times = {label: parts.without_zone(regret[c.AT]) for label, regret in regrets.items()}

    def text(place: int) -> str:
        named = []
        for label, regret in regrets.items():
            row = np.searchsorted(times[label], moments[place], side="right") - 1
            lost = int(regret["lost"].iloc[row]) if row >= 0 else 0
            named.append(f"{label} {lost:,}")
        return f"references lost by {moment(place)}: {', '.join(named)}"

    return text


def _served_in_words(served: Any, place: int) -> str:
    """Return the shares of reads that a share of the tokens serves, in words."""
    newest, used = (parts.share(served[column].iloc[place]) for column in ("newest", "most active"))
    loaded = parts.share(served.index[place])
    return f"{loaded} of the tokens loaded: by age serves {newest} of reads, by use {used}"


_NO_READS: Final = "No read of a memory of an earlier day is known"
_MIN_CHANCE: Final = 0.05
"""Smallest chance on an axis. A chance of zero has limits, and no dot."""


@on_its_own
def plot_age_or_use(found: AgeOrUse, *, ax: Axes | None = None) -> Axes:
    """Draw the chance that a memory is read next, by the number of its reads and by its age.

    Each row of ``chances`` has a dot, ``by use`` or ``by age``, with its limits as a bar. The lines
    ``other stores`` are for comparison.

    Parameters
    ----------
    found : AgeOrUse
        The result of :func:`memlab.evidence.age_or_use`.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.
    """
    plot = parts.Plot(ax, found.chances, height=4.6)
    if not found.reads:
        return plot.empty("Whether age or use says what is read next", _NO_READS)
    ax = plot.ax
    paint = plot.paint
    rows = np.arange(len(found.chances))
    places = rows + (rows >= len(TIMES))  # a free row between use and age
    table = found.chances.assign(row=places)
    shown = table[["chance", "other_stores"]].to_numpy()
    least = 0.7 * max(shown[shown > 0].min(), _MIN_CHANCE)
    across = least, 1.6 * np.nanmax(shown)
    plot.log_axis(ax.xaxis, "chance to be read next, in times the mean of what is there", across)
    use = table.iloc[: len(TIMES)]
    age = table.iloc[len(TIMES) :]
    key: list[Any] = []
    for group, name, colour in (use, "by use", paint.by_use), (age, "by age", paint.by_age):
        beside: dict[str, Any] = {"marker": "|", "markersize": 9, "markeredgewidth": 1.6}
        look: dict[str, Any] = {"color": paint.grey, "label": "other stores", **beside}
        ax.plot(group["other_stores"], group["row"], **look)
        known = group[group["expected"] > 0]
        limits = known["row"], known["low"].clip(lower=least), known["high"]
        ax.hlines(*limits, color=colour, linewidth=4, alpha=0.4, label=f"_limits {name}")
        key += ax.plot(known["chance"], known["row"], "o", color=colour, markersize=7, label=name)
        for group_name, row in known.iterrows():
            limits_in_words = f"{row['low']:.2g} to {row['high']:.2g}"
            text = f"{group_name}: {row['chance']:.2g} times the mean ({limits_in_words})"
            plot.hover_dot(row["chance"], row["row"], text)
    names = [f"read {name}" if name != "never" else "never read" for name in use.index]
    plot.name_rows(places.tolist(), [*names, *map(str, age.index)])
    ax.set_ylim(places[-1] + 0.6, -0.6)
    ax.axvline(1, color=paint.ink, linewidth=1, linestyle=":", label="_mean")
    plot.write("mean", (1, len(TIMES)), va="center", ha="center", bbox=plot.on_paper)
    for reads, row in zip(table["reads"], places, strict=True):
        end: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
        plot.write(counted(reads, "reads"), (1, row), (6, 0), va="center", **end)
    stores = counted(other_stores()["stores"], "other stores")
    plot.heading(
        found.answer.partition(":")[0].capitalize(),
        f"{counted(found.reads, 'reads')} on {counted(found.days, 'days')}",
        f"Bars: limits. Grey: {stores}",
        key=key,
    )
    return plot.footnote("A memory counts once a day, by what was known when the day began.")


@on_its_own
def plot_reads_served(found: AgeOrUse, *, ax: Axes | None = None) -> Axes:
    """Draw the share of reads that are served against the share of the tokens that is loaded.

    The lines are ``by age``, ``by use`` and, for comparison, ``by chance``.

    Parameters
    ----------
    found : AgeOrUse
        The result of :func:`memlab.evidence.age_or_use`.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.
    """
    plot = parts.Plot(ax, found.served, height=4.6)
    if not found.reads:
        return plot.empty("What loading by age or by use serves", _NO_READS)
    ax = plot.ax
    paint = plot.paint
    served = found.served[c.TOKENS]
    key: list[Any] = ax.plot([0, 1], [0, 1], ":", color=paint.grey, linewidth=1, label="by chance")
    plot.percent_axis(ax.xaxis, "share of the prunable tokens that is loaded", (0, 1))
    plot.percent_axis(ax.yaxis, "share of reads that find their memory there")
    names = parts.Names(plot)
    for name, column, colour in (
        ("by age", "newest", paint.by_age),
        ("by use", "most active", paint.by_use),
    ):
        line = served[column]
        key += ax.step(line.index, line, where="post", color=colour, linewidth=2, label=name)
        for size, part in line.items():
            names.keep_clear(size, part)
        for size, part in line.loc[[*SIZES]].items():
            ax.plot(size, part, "o", color=colour, markersize=6, label="_size", clip_on=False)
            is_best = part == served.loc[size].max()
            names.name(size, part, parts.share(part), paint.muted, above=is_best)
    plot.hover_along(served.index, lambda place: _served_in_words(served, place))
    newest, used = (parts.share(served[column].loc[0.25]) for column in ("newest", "most active"))
    plot.heading(
        f"In a quarter of the tokens the most active serve {used} of reads, the newest {newest}",
        f"{counted(found.reads, 'reads')} on {counted(found.days, 'days')}",
        "By age: the newest first. By use: the most active per length first",
        key=key[::-1],
    )
    return plot.footnote(
        "Chosen before each day by base-level activation from the reads until then.",
        plot.token_note,
    )
