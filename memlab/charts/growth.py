"""Charts of growth, boot context and what a compaction changes."""

from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from memlab import columns as c
from memlab.charts._style import (
    CAP_COLOUR,
    INK,
    LOAD_BEARING_COLOUR,
    MUTED,
    PRUNABLE_COLOUR,
    SMALL,
    SUPERSEDED_COLOUR,
    EndLabel,
    axes_for,
    count_axis,
    counted,
    footnote,
    heading,
    label_ends,
    mark_cap,
    percent_axis,
    say_empty,
    share,
    time_axis,
    token_note,
)

Measure = Literal["items", "tokens"]

_NO_ROWS = "No rows yet"
_KEY = (("load-bearing", LOAD_BEARING_COLOUR), ("prunable", PRUNABLE_COLOUR))
_DARK, _LIGHT = MUTED, "#AFB1B3"  # a dark grey, and what half of it on white looks like


def plot_growth(curve: pd.DataFrame, *, measure: Measure = "items", ax: Axes | None = None) -> Axes:
    """Draw how prunable, load-bearing and superseded rows grew.

    Parameters
    ----------
    curve : pandas.DataFrame
        As :func:`memlab.growth.growth_curve` returns it.
    measure : {"items", "tokens"}
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
    ax = axes_for(ax, height=4.4)
    if curve.empty:
        heading(ax, "Growth of the memory")
        say_empty(ax, _NO_ROWS)
        return ax
    last = curve.iloc[-1]
    drawn = [
        (c.PRUNABLE, "prunable", PRUNABLE_COLOUR),
        (c.LOAD_BEARING, "load-bearing", LOAD_BEARING_COLOUR),
        (c.SUPERSEDED, "superseded", SUPERSEDED_COLOUR),
    ]
    for name, _, colour in drawn:
        if name == c.SUPERSEDED and not curve[columns[name]].any():
            continue
        _step(ax, curve[columns[name]], name, colour)
    _time_by_count(ax, measure)
    label_ends(
        ax,
        [
            EndLabel(last[columns[name]], f"{last[columns[name]]:,.0f} {words}", colour)
            for name, words, colour in drawn
            if name in {line.get_label() for line in ax.get_lines()}
        ],
    )
    noise = last[c.NOISE_SHARE if measure == "items" else c.NOISE_SHARE_TOKENS]
    heading(
        ax,
        f"{last[columns[c.PRUNABLE]]:,.0f} prunable beside "
        f"{last[columns[c.LOAD_BEARING]]:,.0f} load-bearing {measure}",
        "An agent loads both at every start."
        if pd.isna(noise)
        else f"An agent loads both at every start; {share(noise)} of it is noise.",
    )
    footnote(ax, _caveat(curve, measure))
    return ax


def plot_backlog(curve: pd.DataFrame, *, cap: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the backlog of prunable items over time, and what lies beyond a candidate cap.

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
    ax = axes_for(ax)
    if curve.empty:
        heading(ax, "Backlog of prunable items")
        say_empty(ax, _NO_ROWS)
        return ax
    backlog = curve[c.PRUNABLE]
    _step(ax, backlog, c.PRUNABLE, PRUNABLE_COLOUR)
    title = f"{counted(backlog.iloc[-1], 'prunable items')} now"
    labels = [EndLabel(backlog.iloc[-1], f"{backlog.iloc[-1]:,} prunable", PRUNABLE_COLOUR)]
    if cap is not None:
        x = _times(backlog)
        above = backlog.clip(lower=cap).to_numpy()
        ax.fill_between(x, cap, above, step="post", color=PRUNABLE_COLOUR, alpha=0.25, linewidth=0)
        mark_cap(ax, cap)
        labels.append(EndLabel(cap, f"keep_recent = {cap:,}", CAP_COLOUR))
        surplus = max(0, int(backlog.iloc[-1]) - cap)
        title = (
            f"keep_recent = {cap:,} would prune {surplus:,} of {counted(backlog.iloc[-1], 'items')}"
        )
    _time_by_count(ax, "items")
    ax.set_ylim(0, 1.06 * max(ax.get_ylim()[1], cap or 0))
    label_ends(ax, labels)
    heading(ax, title, "Backlog of prunable active items; load-bearing ones are not counted.")
    footnote(ax, _caveat(curve, "items"))
    return ax


def plot_boot_context(context: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw what an agent loads at start, part by part, as shares of items and of tokens.

    Parameters
    ----------
    context : pandas.DataFrame
        As :func:`memlab.growth.boot_context` returns it.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With two bars a part: its share of the items above its share of the tokens.
    """
    ax = axes_for(ax, height=0.75 * len(context) + 1.2)
    totals = context[[c.ITEMS, c.TOKENS]].sum()
    if not totals[c.ITEMS]:
        heading(ax, "Boot context")
        say_empty(ax, "No active rows: an agent would start with nothing")
        return ax
    for place, (_, row) in enumerate(context.iterrows()):
        colour = LOAD_BEARING_COLOUR if row[c.LOAD_BEARING] else PRUNABLE_COLOUR
        for measure, offset, alpha in ((c.ITEMS, -0.2, 1.0), (c.TOKENS, 0.2, 0.5)):
            part_share = row[measure] / totals[measure] if totals[measure] else 0.0
            ax.barh(place + offset, part_share, height=0.36, color=colour, alpha=alpha)
            _beside_bar(
                ax,
                place + offset,
                part_share,
                f"{counted(row[measure], measure)} · {share(part_share)}",
            )
    ax.set_yticks(range(len(context)), [str(part) for part in context.index], color=INK)
    ax.invert_yaxis()
    _share_across(ax, "share of the boot context")
    heading(
        ax,
        f"An agent starts with {counted(totals[c.ITEMS], c.ITEMS)} "
        f"and {counted(totals[c.TOKENS], c.TOKENS)}",
        key=[*_KEY, ("items", _DARK), ("tokens", _LIGHT)],
    )
    footnote(ax, token_note(context))
    return ax


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
        With four stacked bars, items then tokens, before then after: load-bearing first, then
        prunable, as shares of what there was before.
    """
    ax = axes_for(ax, height=3.3)
    totals = before[[c.ITEMS, c.TOKENS]].sum()
    if not totals[c.ITEMS]:
        heading(ax, "Before and after")
        say_empty(ax, "No active rows before: nothing to compact")
        return ax
    names: list[tuple[float, str]] = []
    for measure in (c.ITEMS, c.TOKENS):
        for moment, context in (("before", before), ("after", after)):
            place = len(names) + (0.35 if measure == c.TOKENS else 0.0)
            _stack(ax, place, context, measure, total=max(1, totals[measure]))
            names.append((place, f"{measure} {moment}"))
    ax.set_yticks([place for place, _ in names], [name for _, name in names], color=INK)
    ax.invert_yaxis()
    _share_across(ax, "share of the boot context before")
    now = after[[c.ITEMS, c.TOKENS]].sum()
    heading(
        ax,
        f"{totals[c.ITEMS]:,} → {counted(now[c.ITEMS], c.ITEMS)}, "
        f"{totals[c.TOKENS]:,} → {counted(now[c.TOKENS], c.TOKENS)}",
        key=_KEY,
    )
    footnote(ax, token_note(before))
    return ax


def _columns_of(measure: str) -> dict[str, str]:
    """Return which columns of a growth curve hold `measure`, by what they count."""
    if measure == "items":
        return {name: name for name in (c.PRUNABLE, c.LOAD_BEARING, c.SUPERSEDED)}
    if measure == "tokens":
        return {
            c.PRUNABLE: c.PRUNABLE_TOKENS,
            c.LOAD_BEARING: c.LOAD_BEARING_TOKENS,
            c.SUPERSEDED: c.SUPERSEDED_TOKENS,
        }
    raise ValueError(f"measure must be 'items' or 'tokens', not {measure!r}")


def _times(curve: "pd.Series[int]") -> NDArray[np.datetime64]:
    """Return the index as matplotlib wants it: UTC without saying so."""
    return pd.DatetimeIndex(curve.index).tz_localize(None).to_numpy()


def _step(ax: Axes, values: "pd.Series[int]", name: str, colour: str) -> None:
    """Draw a count that holds until it changes."""
    style = (0, (2, 1.5)) if name == c.SUPERSEDED else "-"
    ax.step(
        _times(values),
        values.to_numpy(),
        where="post",
        color=colour,
        linewidth=1.6,
        linestyle=style,
        label=name,
    )


def _time_by_count(ax: Axes, measure: str) -> None:
    """Set axes of time and of a count from zero."""
    ax.margins(x=0)
    ax.set_ylim(0, max(1.0, 1.04 * ax.dataLim.ymax))
    time_axis(ax)
    count_axis(ax.yaxis, measure)


def _share_across(ax: Axes, name: str) -> None:
    """Set a share from 0 to 1 across and names without ticks down."""
    ax.set_xlim(0, 1)
    percent_axis(ax.xaxis, name)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)


def _stack(ax: Axes, place: float, context: pd.DataFrame, measure: str, *, total: int) -> None:
    """Draw one bar of load-bearing and prunable, with its numbers."""
    protected = int(context.loc[context[c.LOAD_BEARING], measure].sum())
    prunable = int(context.loc[~context[c.LOAD_BEARING], measure].sum())
    ax.barh(place, protected / total, height=0.72, color=LOAD_BEARING_COLOUR)
    ax.barh(place, prunable / total, left=protected / total, height=0.72, color=PRUNABLE_COLOUR)
    _beside_bar(
        ax,
        place,
        (protected + prunable) / total,
        f"{protected:,} load-bearing\n{prunable:,} prunable",
    )


def _beside_bar(ax: Axes, place: float, end: float, text: str) -> None:
    """Write to the right of a horizontal bar, beyond the axes where it must."""
    ax.annotate(
        text,
        (end, place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=MUTED,
        fontsize=SMALL,
        annotation_clip=False,
    )


def _caveat(curve: pd.DataFrame, measure: str) -> str:
    """Return what a reader of a growth chart must know."""
    undated = curve.attrs.get(c.UNDATED, 0)
    sentences = [curve.attrs[c.CAVEAT]] if curve.attrs.get(c.CAVEAT) else []
    if undated:
        stand = "stands where it was" if undated == 1 else "stand where they were"
        sentences.append(f"{counted(undated, 'rows')} without a usable time {stand} inserted.")
    if measure == "tokens":
        sentences.append(token_note(curve))
    return " ".join(sentences)
