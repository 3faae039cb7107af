"""The chart of the law: the cap that serves a share of references, by what has been written."""

from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes

from memlab.charts._style import (
    SMALL,
    EndLabel,
    axes_for,
    footnote,
    heading,
    label_ends,
    on_paper,
    percent_of,
    spread,
)
from memlab.charts.figure import on_its_own
from memlab.charts.palette import palette_of
from memlab.charts.scales import log_axis
from memlab.text import counted

_TINY: Final = SMALL - 1.5
"""Points: the names of projects, of which there are many."""


@on_its_own
def plot_law(
    lines: pd.DataFrame, *, store: pd.DataFrame | None = None, ax: Axes | None = None
) -> Axes:
    """Draw how the cap that serves a share of references grows with a store.

    Parameters
    ----------
    lines : pandas.DataFrame
        As :func:`memlab.evidence.law_lines` returns it.
    store : pandas.DataFrame, optional
        A store beside them: columns ``memories`` and ``cap``, a row for each moment to draw; one
        row is a point.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With a line ``law``, its limits as a shade, a thin line for each project by its name, and a
        line ``this store`` where one is given.
    """
    ax, paint = axes_for(ax, height=5.0)
    law = lines[lines["project"].isna()]
    ax.set_xscale("log")
    ax.set_yscale("log")
    shade: dict[str, Any] = {"color": paint.blue, "alpha": 0.22, "linewidth": 0, "zorder": 0}
    ax.fill_between(law["memories"], law["low"], law["high"], **shade)
    projects = lines[lines["project"].notna()].groupby("project", sort=False)
    for name, course in projects:
        ax.plot(course["memories"], course["cap"], color=paint.grey, linewidth=0.8, label=str(name))
    ax.plot(law["memories"], law["cap"], color=paint.blue, linewidth=2.2, label="law")
    _limits_of_axes(ax, lines, store)
    _name_projects(ax, projects.last().reset_index())
    ends = [
        EndLabel(float(law[name].iloc[-1]), words, paint.blue)
        for name, words in (("high", "upper limit"), ("cap", "expected"), ("low", "lower limit"))
    ]
    if store is not None and len(store):
        _draw_store(ax, store)
    label_ends(ax, ends)
    share = percent_of(law["share"].iloc[0])
    log_axis(ax.xaxis, "memories written")
    log_axis(ax.yaxis, f"cap that serves {share} of references", most=9)
    heading(
        ax,
        f"How the cap that serves {share} of references grows with a store",
        f"Thin: {counted(len(projects), 'public projects')}, each from stretch to stretch in which "
        "it doubled. Shade: limits for the next stretch of a store of which nothing is known.",
    )
    footnote(ax, "Pull requests that a later one names; a small stretch has few, and jumps.")
    return ax


def _name_projects(ax: Axes, last: pd.DataFrame) -> None:
    """Name each project where its line ends, moved apart from the others that end there."""
    to_axes = ax.transData + ax.transAxes.inverted()
    for _, ending in last.groupby("memories"):
        places = to_axes.transform(ending[["memories", "cap"]].to_numpy(dtype=float))
        across = float(places[0, 0])
        apart = spread(places[:, 1], [_TINY / 200] * len(places)).tolist()
        for name, place in zip(ending["project"], apart, strict=True):
            ax.annotate(
                str(name),
                (across, place),
                xycoords="axes fraction",
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                color=palette_of(ax).muted,
                fontsize=_TINY,
                parse_math=False,
            )


def _limits_of_axes(ax: Axes, lines: pd.DataFrame, store: pd.DataFrame | None) -> None:
    """Let the axes hold the law and the store; a cap below one is drawn at one."""
    parts = [lines] if store is None else [lines, store]
    sizes = pd.concat([part["memories"] for part in parts])
    caps = pd.concat([lines["high"], lines["low"], *(part["cap"] for part in parts)])
    ax.set_xlim(0.9 * max(sizes.min(), 1), 1.02 * sizes.max())
    ax.set_ylim(max(0.8 * caps.min(), 0.8), 1.25 * caps.max())


def _draw_store(ax: Axes, store: pd.DataFrame) -> None:
    """Draw the store's own course, its last moment as a dot, and name it."""
    paint = palette_of(ax)
    ax.plot(store["memories"], store["cap"], color=paint.cap, linewidth=1.6, label="this store")
    last = store.iloc[-1]
    ax.plot(last["memories"], last["cap"], "o", color=paint.cap, markersize=8, label="_now")
    ax.annotate(
        f"this store: {last['cap']:,.0f}",
        (last["memories"], last["cap"]),
        xytext=(-6, 8),
        textcoords="offset points",
        ha="right",
        bbox=on_paper(paint),
        color=paint.cap,
        fontweight="bold",
        fontsize=SMALL,
        parse_math=False,
    )
