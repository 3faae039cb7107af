"""Charts of a fleet of stores: tokens at start, growth, and the stores where a cap helps."""

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from memlab.charts import parts
from memlab.charts.figure import on_its_own
from memlab.text import counted

_DRAWN: Final = 800
"""Maximum number of dots."""
_NO_STORE: Final = "No store could be read"


@on_its_own
def plot_fleet_tokens(stores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the tokens at start of each store, largest first, and their load-bearing part.

    The dots have the labels ``tokens at start`` and ``floor``.

    Parameters
    ----------
    stores : DataFrame
        The result of :func:`memlab.fleet.survey`; stores with an error are left out.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.
    """
    plot = parts.Plot(ax, height=4.2)
    there = stores[stores["error"].isna() & stores["boot_tokens"].gt(0)]
    if there.empty:
        return plot.empty("Tokens at start, store by store", _NO_STORE)
    ax = plot.ax
    paint = plot.paint
    ordered = there.sort_values("boot_tokens", ascending=False, kind="stable")
    tokens = ordered["boot_tokens"].to_numpy(float)
    place = np.linspace(0, len(ordered) - 1, min(len(ordered), _DRAWN)).round().astype(np.int64)
    drawn = ordered.iloc[place]
    size = float(np.clip(40 / np.sqrt(len(place)), 4, 8))  # many dots are smaller
    dots: Any = {"linestyle": "none", "markersize": size, "alpha": 0.75, "markeredgewidth": 0}
    floors = np.maximum(drawn["floor_tokens"].to_numpy(float), 1.0)
    key = ax.plot(place + 1, floors, "s", color=paint.load_bearing, label="floor", **dots)
    key += ax.plot(place + 1, tokens[place], "o", color=paint.ink, label="tokens at start", **dots)
    plot.log_axis(ax.yaxis, "tokens")
    plot.count_axis(ax.xaxis, "stores, largest first")
    half = int(np.searchsorted(np.cumsum(tokens), tokens.sum() / 2)) + 1
    plot.heading(
        f"Half of all tokens at start are in {half:,} of {counted(len(ordered), 'stores')}",
        key=key[::-1],
    )
    notes = []
    if len(place) < len(ordered):
        notes.append(f"{len(place):,} stores are drawn, evenly spread over the order.")
    if (drawn["floor_tokens"] == 0).any():
        notes.append("Zero is drawn as 1.")
    return plot.footnote(*notes)


@on_its_own
def plot_fleet_growth(weeks: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the number of memories of all stores at the end of each week.

    The lines have the labels ``all`` and ``load-bearing``.

    Parameters
    ----------
    weeks : DataFrame
        Columns ``week`` (UTC), and ``memories`` and ``load_bearing``, the increase in each week.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.
    """
    plot = parts.Plot(ax, height=3.6)
    if len(weeks) < 2:
        return plot.empty("Growth of the fleet", "All memories were written within a week")
    ax = plot.ax
    paint = plot.paint
    whole = weeks["memories"].cumsum().to_numpy(float)
    bearing = weeks["load_bearing"].cumsum().to_numpy(float)
    times = parts.without_zone(weeks["week"])
    ax.plot(times, whole, color=paint.ink, linewidth=2, label="all")
    ax.plot(times, bearing, color=paint.load_bearing, linewidth=2, label="load-bearing")
    ax.set_ylim(bottom=0)
    plot.count_axis(ax.yaxis, "memories")
    plot.time_axis()
    plot.end(whole[-1], f"{whole[-1]:,.0f} memories", paint.ink)
    plot.end(bearing[-1], f"{bearing[-1]:,.0f} load-bearing", paint.load_bearing)
    plot.heading(
        f"{whole[-1]:,.0f} memories by {weeks['week'].iloc[-1]:%Y-%m}, {bearing[-1]:,.0f} of them "
        "load-bearing",
        "Memories at the end of each week, those since archived among them",
    )
    return ax


@on_its_own
def plot_fleet_caps(sizes: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the prunable tokens of each store against its floor.

    The dots have the labels ``the safe cap helps``, ``only the likely cap helps``, ``the floor is
    the problem`` (the floor is more than half of what is loaded) and ``no cap helps yet``. The area
    of a dot grows with its number of stores.

    Parameters
    ----------
    sizes : DataFrame
        The result of :func:`memlab.fleet.size`; stores with an error are left out.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.
    """
    plot = parts.Plot(ax, height=4.6)
    there = sizes[sizes["error"].isna() & sizes["boot_now"].gt(0)]
    if there.empty:
        return plot.empty("Where a cap helps, and where the floor is the problem", _NO_STORE)
    ax = plot.ax
    paint = plot.paint
    floor = there["floor"].to_numpy(float)
    rest = there["boot_now"].to_numpy(float) - floor
    below = floor > rest
    safe = ~below & (there["boot_after"] < there["boot_now"]).to_numpy(bool)
    less = (there["likely"] < there["prunable"]).to_numpy(bool, na_value=False)
    likely = ~below & ~safe & less
    kinds: tuple[tuple[Any, str, str, str], ...] = (
        (safe, "o", paint.safe, "the safe cap helps"),
        (likely, "^", paint.likely, "only the likely cap helps"),
        (below, "s", paint.load_bearing, "the floor is the problem"),
        (~below & ~safe & ~likely, "D", paint.grey, "no cap helps yet"),
    )
    points = np.maximum(np.column_stack([floor, rest]), 1.0)
    ends = (float(points.min()) / 1.5, max(float(points.max()), 10.0) * 1.5)
    plot.log_axis(ax.xaxis, "floor: tokens of load-bearing memories", ends)
    plot.log_axis(ax.yaxis, "tokens of prunable memories", ends)
    ax.plot(ends, ends, color=paint.grey, linewidth=0.8, zorder=0)
    most = 1
    for chosen, mark, colour, name in kinds[::-1]:
        dots: dict[str, Any] = {"color": colour, "marker": mark, "label": name, "most": _DRAWN // 8}
        most = max(most, plot.draw_counted(points[chosen], among=len(points), **dots))
    plot.heading(
        f"The safe cap helps in {int(safe.sum()):,} of {counted(len(there), 'stores')}, the likely "
        f"one in {int((safe | likely).sum()):,}",
        "Below the line the floor is more than half of what is loaded",
        f"A larger dot is up to {most:,} stores that coincide" if most > 1 else "",
        key=[
            Line2D([], [], linestyle="none", marker=mark, color=colour, label=name)
            for chosen, mark, colour, name in kinds
            if chosen.any()
        ],
    )
    return plot.footnote("Zero is drawn as 1." if (points == 1).any() else "")
