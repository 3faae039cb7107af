"""Charts of a fleet of stores: tokens at start, growth, and the stores where a cap helps."""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from memlab.charts import parts
from memlab.charts.figure import on_own_figure
from memlab.sizing.answer import SMALL_SAVING
from memlab.text import counted

_MAX_DOTS: Final = 800
"""Maximum number of dots."""
_NO_STORE: Final = "No store could be read"


@on_own_figure
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

    Examples
    --------
    >>> import memlab.fleet
    >>> names = [memlab.store_path("two_years"), memlab.store_path("looked_up")]
    >>> stores = memlab.fleet.survey(names)
    >>> [line.get_label() for line in plot_fleet_tokens(stores).get_lines()]
    ['floor', 'tokens at start']
    """
    plot = parts.Plot(ax, height=4.2)
    readable = stores[stores["error"].isna() & stores["boot_tokens"].gt(0)]
    if readable.empty:
        return plot.draw_empty("Tokens at start, store by store", _NO_STORE)
    ax = plot.ax
    palette = plot.palette
    ordered = readable.sort_values("boot_tokens", ascending=False, kind="stable")
    tokens = ordered["boot_tokens"].to_numpy(float)
    count = min(len(ordered), _MAX_DOTS)
    indexes = np.linspace(0, len(ordered) - 1, count).round().astype(np.int64)
    drawn = ordered.iloc[indexes]
    size = float(np.clip(40 / np.sqrt(count), 4, 8))  # many dots are smaller
    dots: Any = {"linestyle": "none", "markersize": size, "alpha": 0.75, "markeredgewidth": 0}
    floors = np.maximum(drawn["floor_tokens"].to_numpy(float), 1.0)
    legend = ax.plot(indexes + 1, floors, "s", color=palette.load_bearing, label="floor", **dots)
    legend += ax.plot(
        indexes + 1,
        tokens[indexes],
        "o",
        color=palette.ink,
        label="tokens at start",
        **dots,
    )
    plot.set_log_axis(ax.yaxis, "tokens")
    plot.set_count_axis(ax.xaxis, "stores, largest first")
    if len(ordered) == 1:
        floor = int(ordered["floor_tokens"].iloc[0])
        title = f"One store loads {tokens[0]:,.0f} tokens at start, {floor:,} of them load-bearing"
    else:
        count_of_half = 1 + int(np.searchsorted(np.cumsum(tokens), tokens.sum() / 2))
        stores_in_words = counted(len(ordered), "stores")
        title = f"Half of all tokens at start are in {count_of_half:,} of {stores_in_words}"
    plot.draw_heading(title, legend=legend[::-1])
    notes = []
    if count < len(ordered):
        notes.append(f"{count:,} stores are drawn, evenly spread over the order.")
    if (drawn["floor_tokens"] == 0).any():
        notes.append("Zero is drawn as 1.")
    return plot.draw_footnote(*notes)


@on_own_figure
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

    Examples
    --------
    >>> weeks = pd.DataFrame(
    ...     {
    ...         "week": pd.date_range("2026-01-05", periods=3, freq="7D", tz="UTC"),
    ...         "memories": [5, 8, 2],
    ...         "load_bearing": [1, 0, 1],
    ...     }
    ... )
    >>> [line.get_label() for line in plot_fleet_growth(weeks).get_lines()]
    ['all', 'load-bearing']
    """
    plot = parts.Plot(ax, height=3.6)
    if len(weeks) < 2:
        return plot.draw_empty("Growth of the fleet", "All memories were written within a week")
    ax = plot.ax
    palette = plot.palette
    memories = weeks["memories"].cumsum().to_numpy(float)
    load_bearing = weeks["load_bearing"].cumsum().to_numpy(float)
    times = parts.without_zone(weeks["week"])
    ax.plot(times, memories, color=palette.ink, linewidth=2, label="all")
    ax.plot(times, load_bearing, color=palette.load_bearing, linewidth=2, label="load-bearing")
    ax.set_ylim(bottom=0)
    plot.set_count_axis(ax.yaxis, "memories")
    plot.set_time_axis()
    plot.add_hover_areas(
        times,
        lambda index: (
            f"week of {weeks['week'].iloc[index]:%Y-%m-%d}: {counted(memories[index])}, "
            f"{load_bearing[index]:,.0f} load-bearing"
        ),
    )
    plot.label_end(memories[-1], f"{memories[-1]:,.0f} memories", palette.ink)
    plot.label_end(load_bearing[-1], f"{load_bearing[-1]:,.0f} load-bearing", palette.load_bearing)
    plot.draw_heading(
        f"{memories[-1]:,.0f} memories by {weeks['week'].iloc[-1]:%Y-%m}, "
        f"{load_bearing[-1]:,.0f} of them load-bearing",
        "Memories at the end of each week, those since archived among them",
    )
    return ax


class _Group(NamedTuple):
    """A group of stores in the chart of caps: its members, mark, colour and name."""

    members: npt.NDArray[np.bool_]
    marker: str
    colour: str
    name: str

    @property
    def style(self) -> dict[str, Any]:
        """The style of their dots, as keyword arguments of matplotlib."""
        return {"color": self.colour, "marker": self.marker, "label": self.name}


@on_own_figure
def plot_fleet_caps(sizes: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the prunable tokens of each store against its floor.

    The safe cap helps if it saves at least a tenth of the tokens of a start. The likely cap helps
    if it deletes a memory.

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

    Examples
    --------
    >>> import memlab.fleet
    >>> sizes = memlab.fleet.size(memlab.store_path("two_years"), target=0.5)
    >>> plot_fleet_caps(sizes).get_ylabel()
    'tokens of prunable memories'
    """
    plot = parts.Plot(ax, height=4.6)
    sized = sizes[sizes["error"].isna() & sizes["boot_now"].gt(0)]
    if sized.empty:
        return plot.draw_empty("Where a cap helps, and where the floor is the problem", _NO_STORE)
    ax = plot.ax
    palette = plot.palette
    floor = sized["floor"].to_numpy(float)
    prunable = sized["boot_now"].to_numpy(float) - floor
    is_mostly_floor = floor > prunable
    saved = sized["boot_now"] - sized["boot_after"]
    safe_saves = (saved >= SMALL_SAVING * sized["boot_now"]).to_numpy(bool)
    likely_saves = (sized["likely"] < sized["prunable"]).to_numpy(bool, na_value=False)
    safe_helps = ~is_mostly_floor & safe_saves
    likely_helps = ~is_mostly_floor & ~safe_helps & likely_saves
    no_cap_helps = ~is_mostly_floor & ~safe_helps & ~likely_helps
    groups = (
        _Group(safe_helps, "o", palette.safe, "the safe cap helps"),
        _Group(likely_helps, "^", palette.likely, "only the likely cap helps"),
        _Group(is_mostly_floor, "s", palette.load_bearing, "the floor is the problem"),
        _Group(no_cap_helps, "D", palette.grey, "no cap helps yet"),
    )
    points = np.maximum(np.column_stack([floor, prunable]), 1.0)
    limits = (float(points.min()) / 1.5, max(float(points.max()), 10.0) * 1.5)
    plot.set_log_axis(ax.xaxis, "floor: tokens of load-bearing memories", limits)
    plot.set_log_axis(ax.yaxis, "tokens of prunable memories", limits)
    ax.plot(limits, limits, color=palette.grey, linewidth=0.8, zorder=0)
    largest_dot = 1
    for group in reversed(groups):
        largest_of_group = plot.draw_merged_dots(
            points[group.members], among=len(points), max_dots=_MAX_DOTS // 8, **group.style
        )
        largest_dot = max(largest_dot, largest_of_group)
    nonempty = [group for group in groups if group.members.any()]
    legend = [Line2D([], [], linestyle="none", **group.style) for group in nonempty]
    meaning_of_size = ""
    if largest_dot > 1:
        meaning_of_size = f"A larger dot is up to {largest_dot:,} stores that coincide"
    plot.draw_heading(
        f"The safe cap helps in {int(safe_helps.sum()):,} of {counted(len(sized), 'stores')}, the "
        f"likely one in {int((safe_helps | likely_helps).sum()):,}",
        "Below the line the floor is more than half of what is loaded",
        meaning_of_size,
        legend=legend,
    )
    return plot.draw_footnote("Zero is drawn as 1." if (points == 1).any() else "")
