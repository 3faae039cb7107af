"""Charts of growth, boot context and what a compaction changes."""

from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from numpy.typing import NDArray

from memlab import columns as c
from memlab.charts._style import (
    EMPTY_HEIGHT,
    PERCENT,
    SMALL,
    EndLabel,
    about,
    axes_for,
    footnote,
    heading,
    label_ends,
    mark_cap,
    name_across,
    say_empty,
    share,
    token_note,
)
from memlab.charts.figure import on_its_own
from memlab.charts.palette import Palette, palette_of
from memlab.charts.scales import count_axis, time_axis
from memlab.text import counted

Measure = Literal["memories", "tokens"]

_LAST_DAY: Final = np.datetime64("9999-12-31T23:59:59")
"""The end of every axis of time."""
NOTHING_YET: Final = "No memories yet"
"""What a measure is called on a chart."""


@on_its_own
def plot_growth(
    curve: pd.DataFrame, *, measure: Measure = "memories", ax: Axes | None = None
) -> Axes:
    """Draw how prunable, load-bearing and superseded memories grew.

    Parameters
    ----------
    curve : pandas.DataFrame
        As :func:`memlab.growth.growth_curve` returns it.
    measure : {"memories", "tokens"}
        What to count.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With one line each for ``prunable``, ``load_bearing`` and, where there are any,
        ``superseded``; the lines are labelled with these names (``Line2D.get_label``).

    Raises
    ------
    ValueError
        When `measure` is neither.
    """
    columns = _columns_of(measure)
    last = _last(curve)
    at_once = _one_moment(curve, list(columns.values()))
    ax, paint = axes_for(ax, height=EMPTY_HEIGHT if curve.empty or at_once else 4.4)
    title = (
        f"{last[columns[c.PRUNABLE]]:,.0f} prunable beside "
        f"{last[columns[c.LOAD_BEARING]]:,.0f} load-bearing {measure}"
    )
    if curve.empty or at_once:
        heading(ax, "Growth of the memory" if curve.empty else title, about(curve))
        say_empty(ax, at_once or NOTHING_YET)
        return ax
    drawn = [
        (c.PRUNABLE, "prunable", paint.prunable),
        (c.LOAD_BEARING, "load-bearing", paint.load_bearing),
        (c.SUPERSEDED, "superseded", paint.superseded),
    ]
    if not curve[columns[c.SUPERSEDED]].any():
        del drawn[-1]
    for name, _, colour in drawn:
        _step(ax, curve[columns[name]], name, colour)
    _time_by_count(ax, curve, measure)
    label_ends(
        ax,
        [
            EndLabel(last[columns[name]], f"{last[columns[name]]:,.0f} {words}", colour)
            for name, words, colour in drawn
        ],
    )
    noise = last[c.NOISE_SHARE if measure == "memories" else c.NOISE_SHARE_TOKENS]
    heading(
        ax,
        title,
        about(curve),
        "An agent loads both at every start"
        if pd.isna(noise)
        else f"An agent loads both at every start; {share(noise)} of that is noise",
    )
    footnote(ax, *_caveats(curve, measure))
    return ax


@on_its_own
def plot_backlog(curve: pd.DataFrame, *, cap: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the backlog of prunable memories over time, and what lies beyond a candidate cap.

    Parameters
    ----------
    curve : pandas.DataFrame
        As :func:`memlab.growth.growth_curve` returns it.
    cap : int, optional
        A candidate for ``keep_recent``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With a line labelled ``prunable`` and, for a cap, a horizontal one.
    """
    at_once = _one_moment(curve, [c.PRUNABLE])
    now = int(_last(curve)[c.PRUNABLE])
    ax, paint = axes_for(ax, height=EMPTY_HEIGHT if curve.empty or at_once else 4.0)
    title = f"{counted(now, 'prunable memories')} now"
    if cap is not None:
        gone = max(0, now - cap)
        title = f"keep_recent = {cap:,} would delete {gone:,} of {counted(now, 'memories')}"
    if curve.empty or at_once:
        heading(ax, "Backlog of prunable memories" if curve.empty else title, about(curve))
        say_empty(ax, at_once or NOTHING_YET)
        return ax
    backlog = curve[c.PRUNABLE]
    _step(ax, backlog, c.PRUNABLE, paint.prunable)
    labels = [EndLabel(now, f"{now:,} prunable", paint.prunable)]
    if cap is not None:
        above = backlog.clip(lower=cap).to_numpy()
        shade: dict[str, Any] = {"color": paint.prunable, "alpha": 0.2, "linewidth": 0}
        ax.fill_between(_times(backlog), cap, above, step="post", **shade)
        mark_cap(ax, cap)
        labels.append(EndLabel(cap, f"keep_recent = {cap:,}", paint.cap))
    _time_by_count(ax, curve, "memories")
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.06 * (cap or 0)))
    label_ends(ax, labels)
    heading(ax, title, about(curve), "Load-bearing memories are not counted")
    footnote(ax, *_caveats(curve, "memories"))
    return ax


@on_its_own
def plot_boot_context(context: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw what an agent loads at start, part by part, as shares of memories and of tokens.

    Parameters
    ----------
    context : pandas.DataFrame
        As :func:`memlab.growth.boot_context` returns it.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With two bars a part that is not empty: its share of the memories above its share of the
        tokens.
    """
    totals = context[[c.MEMORIES, c.TOKENS]].sum()
    parts = context[context[c.MEMORIES] > 0]
    ax, paint = axes_for(ax, height=0.8 * len(parts) + 1.5 if len(parts) else EMPTY_HEIGHT)
    if parts.empty:
        heading(ax, "Boot context", about(context))
        say_empty(ax, "No active memories: an agent would start with nothing")
        return ax
    for place, (_, row) in enumerate(parts.iterrows()):
        colour = paint.load_bearing if row[c.LOAD_BEARING] else paint.prunable
        for measure, offset, alpha in ((c.MEMORIES, -0.2, 1.0), (c.TOKENS, 0.2, 0.5)):
            part = row[measure] / totals[measure] if totals[measure] else 0.0
            ax.barh(place + offset, part, height=0.36, color=colour, alpha=alpha)
            text = f"{counted(row[measure], measure)} · {share(part)}"
            _beside_bar(ax, place + offset, part, text)
    names = [
        f"{part}\n{'load-bearing' if row[c.LOAD_BEARING] else 'prunable'}"
        for part, row in parts.iterrows()
    ]
    ax.set_yticks(range(len(parts)), names, color=paint.ink)
    ax.invert_yaxis()
    _share_across(ax, "share of the boot context")
    heading(
        ax,
        f"An agent starts with {counted(totals[c.MEMORIES], 'memories')} "
        f"and {counted(totals[c.TOKENS], c.TOKENS)}",
        about(context),
        "Of each pair the upper bar counts memories, the lower one tokens",
    )
    absent = [str(part) for part in context.index if part not in parts.index]
    none = f"There are no {', no '.join(absent)}." if absent else ""
    footnote(ax, none, token_note(context))
    return ax


@on_its_own
def plot_before_after(before: pd.DataFrame, after: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the boot context before and after a compaction.

    Parameters
    ----------
    before, after : pandas.DataFrame
        As :func:`memlab.growth.boot_context` returns them, for a store and the same store
        compacted, or a preview of that (:func:`memlab.compaction.survivors`).
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With four stacked bars, memories then tokens, before then after: load-bearing first, then
        prunable, as shares of what there was before.
    """
    totals = before[[c.MEMORIES, c.TOKENS]].sum()
    ax, paint = axes_for(ax, height=3.4 if totals[c.MEMORIES] else EMPTY_HEIGHT)
    if not totals[c.MEMORIES]:
        heading(ax, "Before and after", about(before))
        say_empty(ax, "No active memories before: nothing to compact")
        return ax
    names: list[tuple[float, str]] = []
    for measure in (c.MEMORIES, c.TOKENS):
        for moment, context in (("before", before), ("after", after)):
            place = len(names) + (0.35 if measure == c.TOKENS else 0.0)
            _stack(ax, place, context, measure, total=max(1, totals[measure]))
            names.append((place, f"{measure} {moment}"))
    ax.set_yticks([place for place, _ in names], [name for _, name in names], color=paint.ink)
    ax.invert_yaxis()
    _share_across(ax, "share of the boot context before")
    now = after[[c.MEMORIES, c.TOKENS]].sum()
    heading(
        ax,
        f"{totals[c.MEMORIES]:,} → {counted(now[c.MEMORIES], 'memories')}, "
        f"{totals[c.TOKENS]:,} → {counted(now[c.TOKENS], c.TOKENS)}",
        about(before),
        "What an agent loads at every start",
    )
    footnote(ax, token_note(before))
    return ax


def _columns_of(measure: str) -> dict[str, str]:
    """Return which columns of a growth curve hold `measure`, by what they count."""
    if measure == "memories":
        return {name: name for name in (c.PRUNABLE, c.LOAD_BEARING, c.SUPERSEDED)}
    if measure == "tokens":
        return {
            c.PRUNABLE: c.PRUNABLE_TOKENS,
            c.LOAD_BEARING: c.LOAD_BEARING_TOKENS,
            c.SUPERSEDED: c.SUPERSEDED_TOKENS,
        }
    raise ValueError(f"measure must be 'memories' or 'tokens', not {measure!r}")


def _last(curve: pd.DataFrame) -> "pd.Series[Any]":
    """Return the last line of a curve, zeros where there is none."""
    if curve.empty:
        return pd.Series(0, index=curve.columns)
    return curve.iloc[-1]


def _one_moment(curve: pd.DataFrame, columns: list[str]) -> str:
    """Say when everything was written, if it was at one moment; nothing otherwise."""
    counts = curve[columns].to_numpy()
    if curve.empty or len(curve) > 2 or counts[:-1].any():
        return ""
    return f"All of it was written by {curve.index[-1]:%Y-%m-%d %H:%M} UTC: no course to draw yet"


def _times(curve: "pd.DataFrame | pd.Series[Any]") -> NDArray[np.datetime64]:
    """Return the index as matplotlib wants it: UTC without saying so."""
    return pd.DatetimeIndex(curve.index).tz_localize(None).to_numpy()


def _step(ax: Axes, values: "pd.Series[Any]", name: str, colour: str) -> None:
    """Draw a count that holds until it changes, with a dot where it stands now."""
    times = _times(values)
    ax.step(
        times,
        values.to_numpy(),
        where="post",
        color=colour,
        linewidth=1.6,
        linestyle=(0, (2, 1.5)) if name == c.SUPERSEDED else "-",
        label=name,
    )
    ax.plot(times[-1:], values.iloc[-1:], "o", color=colour, markersize=4, label="_now")


def _time_by_count(ax: Axes, curve: pd.DataFrame, name: str) -> None:
    """Set axes of time, which go on a little beyond now, and of a count from zero."""
    ax.margins(x=0.015)
    times = _times(curve)
    last = date2num(_LAST_DAY)  # type: ignore[no-untyped-call]
    ax.set_xlim(times[0], min(ax.get_xlim()[1], last))
    ax.set_ylim(0, max(1.0, 1.04 * ax.dataLim.ymax))
    time_axis(ax, times)
    count_axis(ax.yaxis, name)


def _share_across(ax: Axes, name: str) -> None:
    """Set a share across, and names without ticks down."""
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1])
    ax.xaxis.set_major_formatter(PERCENT)
    name_across(ax, name)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)


def _stack(ax: Axes, place: float, context: pd.DataFrame, measure: str, *, total: int) -> None:
    """Draw one bar of load-bearing and prunable, with its numbers."""
    paint = palette_of(ax)
    protected = int(context.loc[context[c.LOAD_BEARING], measure].sum())
    prunable = int(context.loc[~context[c.LOAD_BEARING], measure].sum())
    ax.barh(place, protected / total, height=0.72, color=paint.load_bearing)
    ax.barh(place, prunable / total, left=protected / total, height=0.72, color=paint.prunable)
    end = (protected + prunable) / total
    for words, colour, above in (
        (f"{protected:,} load-bearing", paint.load_bearing, True),
        (f"{prunable:,} prunable", paint.prunable, False),
    ):
        _beside_bar(ax, place, end, words, colour=colour, above=above)


def _beside_bar(
    ax: Axes,
    place: float,
    end: float,
    text: str,
    *,
    colour: str | None = None,
    above: bool | None = None,
) -> None:
    """Write to the right of a horizontal bar: at its middle, or above or below that."""
    paint: Palette = palette_of(ax)
    ax.annotate(
        text,
        (end, place),
        xytext=(5, 0 if above is None else 1 if above else -1),
        textcoords="offset points",
        va="center" if above is None else "bottom" if above else "top",
        color=paint.muted if colour is None else paint.words(colour),
        fontsize=SMALL,
        annotation_clip=False,
    )


def _caveats(curve: pd.DataFrame, measure: str) -> list[str]:
    """Return what a reader of a growth chart must know."""
    undated = curve.attrs.get(c.UNDATED, 0)
    sentences = [curve.attrs[c.CAVEAT]] if curve.attrs.get(c.CAVEAT) else []
    if undated:
        stand = "stands where it was" if undated == 1 else "stand where they were"
        sentences.append(f"{counted(undated, 'memories')} without a usable time {stand} inserted.")
    if measure == "tokens":
        sentences.append(token_note(curve))
    return sentences
