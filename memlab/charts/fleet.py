"""Charts of many stores: what each loads, how all grew, where a cap helps."""

from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from memlab.charts._style import (
    EndLabel,
    axes_for,
    footnote,
    heading,
    label_ends,
    say_empty,
)
from memlab.charts.figure import on_its_own
from memlab.charts.scales import count_axis, log_axis, time_axis
from memlab.text import counted

DRAWN: Final = 800
"""Stores that are drawn as dots; of more, this many are, evenly spread over the order."""
Mark = Literal["o", "s", "D"]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
NO_STORE: Final = "No store could be read"


@on_its_own
def plot_fleet_tokens(stores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw what each store costs an agent at start, largest first, and its load-bearing part.

    Parameters
    ----------
    stores : pandas.DataFrame
        As :func:`memlab.fleet.survey` returns it; stores with an error are left out.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With the dots ``tokens at start`` and ``floor``.
    """
    ax, paint = axes_for(ax, height=4.2)
    title = "Tokens at start, store by store"
    there = stores[stores["error"].isna() & stores["boot_tokens"].gt(0)]
    if there.empty:
        heading(ax, title)
        say_empty(ax, NO_STORE)
        return ax
    ordered = there.sort_values("boot_tokens", ascending=False, kind="stable")
    tokens = ordered["boot_tokens"].to_numpy(float)
    place = _some(len(ordered))
    drawn = ordered.iloc[place]
    dots = _dots(len(place))
    floors = np.maximum(drawn["floor_tokens"].to_numpy(float), 1.0)
    ax.plot(place + 1, floors, "s", color=paint.load_bearing, label="floor", **dots)
    ax.plot(place + 1, tokens[place], "o", color=paint.prunable, label="tokens at start", **dots)
    log_axis(ax.yaxis, "tokens")
    count_axis(ax.xaxis, "stores, largest first")
    half = int(np.searchsorted(np.cumsum(tokens), tokens.sum() / 2)) + 1
    heading(
        ax,
        title,
        f"{counted(len(ordered), 'stores')}; half of all tokens are in the largest "
        + (f"{half:,}" if half > 1 else "one"),
        key=[("tokens at start", paint.prunable, "o"), ("floor", paint.load_bearing, "s")],
    )
    _say_drawn(ax, len(place), len(ordered), nothing=bool((drawn["floor_tokens"] == 0).any()))
    return ax


@on_its_own
def plot_fleet_growth(weeks: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw how many memories all stores together held at the end of each week.

    Parameters
    ----------
    weeks : pandas.DataFrame
        Columns ``week`` (UTC), ``memories`` and ``load_bearing``: how many more in each week.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With the lines ``all`` and ``load-bearing``.
    """
    ax, paint = axes_for(ax, height=3.6)
    title = "Growth of the fleet"
    if len(weeks) < 2:
        heading(ax, title)
        say_empty(ax, "All memories were written within a week")
        return ax
    whole = weeks["memories"].cumsum().to_numpy(float)
    bearing = weeks["load_bearing"].cumsum().to_numpy(float)
    times = weeks["week"].dt.tz_localize(None).to_numpy("datetime64[us]")
    ax.plot(times, whole, color=paint.prunable, linewidth=2, label="all")
    ax.plot(times, bearing, color=paint.load_bearing, linewidth=2, label="load-bearing")
    ax.set_ylim(bottom=0)
    count_axis(ax.yaxis, "memories")
    time_axis(ax, times)
    ends = [
        EndLabel(whole[-1], f"{whole[-1]:,.0f} memories", paint.prunable),
        EndLabel(bearing[-1], f"{bearing[-1]:,.0f} load-bearing", paint.load_bearing),
    ]
    label_ends(ax, ends)
    heading(ax, title, "Memories at the end of each week, those since archived among them")
    return ax


@on_its_own
def plot_fleet_caps(sizes: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw for each store the noise that a cap can cut beside the floor that none can.

    Parameters
    ----------
    sizes : pandas.DataFrame
        As :func:`memlab.fleet.size` returns it; stores with an error are left out.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With the dots ``a cap helps``, ``the floor is the problem``, where it is more than half of
        what is loaded, and ``no cap below what is there``, where the cap would delete nothing yet.
    """
    ax, paint = axes_for(ax, height=4.6)
    title = "Where a cap helps, and where the floor is the problem"
    there = sizes[sizes["error"].isna() & sizes["boot_now"].gt(0)]
    if there.empty:
        heading(ax, title)
        say_empty(ax, NO_STORE)
        return ax
    floor = there["floor"].to_numpy(float)
    noise = there["boot_now"].to_numpy(float) - floor
    below = floor > noise
    helps = ~below & (there["boot_after"] < there["boot_now"]).to_numpy(bool)
    place = _some(len(there))
    dots = _dots(len(place))
    kinds: tuple[tuple[Mask, Mark, str, str], ...] = (
        (~below & ~helps, "D", paint.grey, "no cap below what is there"),
        (below, "s", paint.load_bearing, "the floor is the problem"),
        (helps, "o", paint.green, "a cap helps"),
    )
    for chosen, mark, colour, name in kinds:
        these = place[chosen[place]]
        across, up = np.maximum(floor[these], 1.0), np.maximum(noise[these], 1.0)
        ax.plot(across, up, mark, color=colour, label=name, **dots)
    drawn = np.maximum(np.concatenate([floor[place], noise[place]]), 1.0)
    ends = float(drawn.min()) * 0.8, max(float(drawn.max()), 10.0) * 1.3
    ax.plot(ends, ends, color=paint.grey, linewidth=0.8, zorder=0)
    ax.set(xlim=ends, ylim=ends)
    log_axis(ax.xaxis, "floor: tokens of load-bearing memories")
    log_axis(ax.yaxis, "noise: tokens of prunable memories")
    heading(
        ax,
        title,
        f"A cap helps in {int(helps.sum()):,} of {counted(len(there), 'stores')}; in "
        f"{int(below.sum()) or 'none'} the floor is more than half of what is loaded",
        key=[(name, colour, mark) for _, mark, colour, name in kinds[::-1]],
    )
    _say_drawn(ax, len(place), len(there), nothing=bool((floor[place] * noise[place] == 0).any()))
    return ax


def _dots(count: int) -> dict[str, Any]:
    """Return how so many dots are drawn: smaller where there are more, seen through each other."""
    size = float(np.clip(40 / np.sqrt(count), 3.2, 8))
    return {"linestyle": "none", "markersize": size, "markeredgewidth": 0, "alpha": 0.75}


def _say_drawn(ax: Axes, drawn: int, stores: int, *, nothing: bool) -> None:
    """Say below a chart what of its stores is drawn otherwise than it is, where that is so."""
    some = f"{drawn:,} stores are drawn, evenly spread over the order." if drawn < stores else ""
    footnote(ax, some, "Zero is drawn as 1." if nothing else "")


def _some(count: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return the places of at most `DRAWN` of so many, evenly spread, both ends among them."""
    return np.unique(np.linspace(0, count - 1, min(count, DRAWN)).round().astype(np.int64))
