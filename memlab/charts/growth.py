"""Charts of the growth of a store, of its starts, and of the effect of a compaction."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import date2num

from memlab import columns as c
from memlab.charts import parts
from memlab.charts.figure import on_own_figure
from memlab.growth.context import INDEX_TEXT
from memlab.text import counted

_LAST_DAY: Final = np.datetime64("9999-12-31T23:59:59")
"""Latest time that an axis may show."""


@on_own_figure
def plot_growth(
    curve: pd.DataFrame,
    *,
    measure: parts.Measure = "memories",
    cap: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the growth of prunable, load-bearing, superseded and retired memories.

    The lines have the labels ``prunable``, ``load_bearing`` and, if there are any, ``superseded``
    and ``retired`` (``Line2D.get_label``).

    Parameters
    ----------
    curve : DataFrame
        The result of :func:`memlab.growth.growth_curve`.
    measure : {"memories", "tokens"}, optional
        The unit of the y axis.
    cap : int, optional
        A cap in memories, beyond which prunable memories are shaded.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Raises
    ------
    ValueError
        If `measure` is unknown, or "tokens" with a cap.

    Examples
    --------
    >>> import memlab
    >>> curve = memlab.growth_curve(memlab.store_path("looked_up"))
    >>> labels = [line.get_label() for line in plot_growth(curve).get_lines()]
    >>> {"prunable", "load_bearing"} <= set(labels)
    True
    """
    parts.check_measure(measure)
    if cap is not None and measure != "memories":
        raise ValueError("a cap counts memories: leave out measure, or cap")
    plot = parts.Plot(ax, curve, height=4.4)
    if curve.empty:
        return plot.draw_empty("Growth of the memory", parts.NOTHING_YET)
    ax = plot.ax
    palette = plot.palette
    suffix = "" if measure == "memories" else "_tokens"
    colours = {
        c.PRUNABLE: palette.prunable,
        c.LOAD_BEARING: palette.load_bearing,
        c.SUPERSEDED: palette.grey,
        c.RETIRED: palette.grey,
    }
    counts = curve[[f"{name}{suffix}" for name in colours]].set_axis(list(colours), axis=1)
    last = counts.iloc[-1]
    title = _growth_title(last, measure, cap)
    # A curve begins with a row of zeros, so that memories of one moment take two rows.
    has_one_moment = len(curve) <= 2 and not counts[:-1].any(axis=None)
    if has_one_moment:
        written = f"All of it was written by {curve.index[-1]:%Y-%m-%d %H:%M} UTC"
        return plot.draw_empty(title, f"{written}: there is no growth to draw yet")
    times = parts.without_zone(curve.index)
    for name, colour in colours.items():
        if counts[name].any() or name in {c.PRUNABLE, c.LOAD_BEARING}:
            dashes: Any = (0, (2, 1.5)) if name == c.SUPERSEDED else "-"
            options: dict[str, Any] = {"color": colour, "linewidth": 1.6, "linestyle": dashes}
            ax.step(times, counts[name], where="post", label=name, **options)
            ax.plot(times[-1], last[name], "o", ms=4, color=colour, label="_now", clip_on=False)
            plot.label_end(last[name], f"{last[name]:,.0f} {name.replace('_', '-')}", colour)
    plot.add_hover_areas(times, _counts_formatter(times, counts, measure))
    if cap is not None:
        above = counts[c.PRUNABLE].clip(lower=cap)
        shading = parts.shade(palette.prunable, 0.2)
        ax.fill_between(times, cap, above, step="post", **shading)
        plot.draw_horizontal_line(cap, f"keep_recent = {cap:,}")
    ax.margins(x=0.015)  # leaves room for the last point
    end_of_axes = date2num(_LAST_DAY)  # type: ignore[no-untyped-call]
    ax.set_xlim(times[0], min(ax.get_xlim()[1], end_of_axes))
    # room above the highest point, and above the cap for its label
    ax.set_ylim(0, max(1.0, 1.04 * ax.dataLim.ymax, 1.06 * (cap or 0)))
    plot.set_time_axis()
    plot.set_count_axis(ax.yaxis, measure)
    prunable_share = None
    if last[c.LOAD_BEARING]:
        prunable_share = curve[f"{c.PRUNABLE_SHARE}{suffix}"].iloc[-1]
    plot.draw_heading(title, _loaded_in_words(plot, prunable_share))
    undated_note = _undated_note(plot.attributes.get(c.UNDATED, 0))
    token_note = plot.token_note if measure == "tokens" else ""
    return plot.draw_footnote(plot.attributes.get(c.CAVEAT, ""), undated_note, token_note)


def _growth_title(last: "pd.Series[float]", measure: str, cap: int | None) -> str:
    """Return the title of a growth: the effect of a cap, or else the last counts."""
    if cap is not None:
        prunable = int(last[c.PRUNABLE])
        deleted = f"{max(0, prunable - cap):,} of {counted(prunable, 'prunable memories')}"
        return f"keep_recent = {cap:,} would delete {deleted}"
    if last[c.LOAD_BEARING] == 0:
        return f"{counted(last[c.PRUNABLE], f'prunable {measure}')}, none load-bearing"
    floor = counted(last[c.LOAD_BEARING], f"load-bearing {measure}")
    return f"{last[c.PRUNABLE]:,.0f} prunable beside {floor}"


def _loaded_in_words(plot: parts.Plot, prunable_share: float | None) -> str:
    """Describe what a start loads; the share is None if all of it is prunable."""
    loaded = "all of them" if prunable_share is None else "both"
    below_cut = plot.attributes.get(c.BELOW_CUT, 0)
    if below_cut:
        reason = (
            ", which the index names below its cut," if c.INDEX_TOKENS in plot.attributes else ""
        )
        loaded = f"all but {below_cut:,} of them{reason}"
    phrase = plot.loaded_or_recalled(
        f"An agent loads {loaded} at every start", "None is loaded: an agent looks them up"
    )
    if prunable_share is None or pd.isna(prunable_share):
        return phrase
    subject = "of all" if below_cut else "of that"
    return f"{phrase}; {parts.format_share(prunable_share)} {subject} is prunable"


def _counts_formatter(
    times: npt.NDArray[np.datetime64], counts: pd.DataFrame, measure: str
) -> Callable[[int], str]:
    """Return a function that writes a time of the growth by its index, with the counts then.

    If all times are midnights, it writes the days that end there.
    """
    are_midnights = (times == times.astype("datetime64[D]")).all()
    if are_midnights:
        times = times - np.timedelta64(1, "us")
    format_moment = parts.moment_formatter(times)
    is_drawn = counts.any() | counts.columns.isin([c.PRUNABLE, c.LOAD_BEARING])
    drawn = counts.loc[:, is_drawn]

    def text(index: int) -> str:
        counts_then = [
            f"{count:,.0f} {str(name).replace('_', '-')}"
            for name, count in drawn.iloc[index].items()
        ]
        return f"{format_moment(index)}: {', '.join(counts_then)} {measure}"

    return text


def _undated_note(count: int) -> str:
    """Return a sentence on where memories without a time are drawn; empty if there are none."""
    if not count:
        return ""
    if count == 1:
        return "1 memory without a usable time stands where it was inserted."
    return f"{count:,} memories without a usable time stand where they were inserted."


@on_own_figure
def plot_boot_context(
    context: pd.DataFrame, *, links: Mapping[str, str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the parts of a start, as shares of its memories and of its tokens.

    Each part that is not empty has two bars: its share of the memories, and below it its share of
    the tokens. The text of an index belongs to no memory and has only the lower bar.

    Parameters
    ----------
    context : DataFrame
        The result of :func:`memlab.growth.boot_context`.
    links : Mapping, optional
        Addresses that the bars lead to in the chart as SVG, by the name of the part.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> context = memlab.growth.boot_context(memlab.store_path("looked_up"))
    >>> len(plot_boot_context(context).patches) == 2 * int((context["memories"] > 0).sum())
    True
    """
    totals = context[[c.MEMORIES, c.TOKENS]].sum()
    nonempty = context[(context[c.MEMORIES] > 0) | (context[c.TOKENS] > 0)]
    plot = parts.Plot(ax, context, height=0.8 * len(nonempty) + 1.5)
    ax = plot.ax
    palette = plot.palette
    if nonempty.empty:
        nothing = plot.loaded_or_recalled(
            "an agent would start with nothing", "there is nothing to recall"
        )
        return plot.draw_empty("A start", f"No active memories: {nothing}")
    for place, (name, row) in enumerate(nonempty.iterrows()):
        colour = palette.load_bearing if row[c.LOAD_BEARING] else palette.prunable
        for measure, offset, alpha in ((c.MEMORIES, -0.2, 1.0), (c.TOKENS, 0.2, 0.5)):
            if measure == c.MEMORIES and not row[c.MEMORIES]:
                continue
            portion = 0.0
            if totals[measure]:
                portion = row[measure] / totals[measure]
            y = place + offset
            (bar,) = ax.barh(y, portion, height=0.36, color=colour, alpha=alpha)
            text = f"{counted(row[measure], measure)} · {parts.format_share(portion)}"
            plot.add_hover_text(bar, f"{name}: {text}")
            if links is not None and str(name) in links:
                bar.set_url(links[str(name)])
            plot.write(text, (portion, y), (5, 0), va="center", annotation_clip=False)
    row_names = [_name_with_label(name, row) for name, row in nonempty.iterrows()]
    plot.name_rows(range(len(nonempty)), row_names)
    _set_share_axis(plot, plot.loaded_or_recalled("share of a start", "share of all of them"))
    verb = plot.loaded_or_recalled("starts with", "recalls from")
    memories = counted(totals[c.MEMORIES], "memories")
    plot.draw_heading(
        f"An agent {verb} {memories} and {counted(totals[c.TOKENS], c.TOKENS)}",
        "Of each pair the upper bar counts memories, the lower one tokens",
    )
    empty_parts = [str(name) for name in context.index if name not in nonempty.index]
    empty_note = f"There are no {', no '.join(empty_parts)}." if empty_parts else ""
    return plot.draw_footnote(empty_note, plot.token_note)


def _name_with_label(name: Hashable, part: "pd.Series[Any]") -> str:
    """Return the name of a part of a start, and below it whether a cap can remove it."""
    if not part[c.MEMORIES]:
        label = "not a memory"
    elif part[c.LOAD_BEARING]:
        label = "load-bearing"
    else:
        label = "prunable"
    return f"{name}\n{label}"


@on_own_figure
def plot_before_after(before: pd.DataFrame, after: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw a start before and after a compaction.

    Four stacked bars show the load-bearing and the prunable part, as shares of the context before:
    memories before and after, then tokens before and after.

    Parameters
    ----------
    before, after : DataFrame
        Results of :func:`memlab.growth.boot_context`, for a store and for the same store compacted,
        or :func:`memlab.sizing.survivors` of that store.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> frame = memlab.load(memlab.store_path("looked_up"))
    >>> before = memlab.growth.boot_context(frame)
    >>> after = memlab.growth.boot_context(frame.tail(100))
    >>> len(plot_before_after(before, after).patches)
    8
    """
    totals = before[[c.MEMORIES, c.TOKENS]].sum()
    plot = parts.Plot(ax, before, height=3.4)
    ax = plot.ax
    if not totals[c.MEMORIES]:
        return plot.draw_empty("Before and after", "No active memories before: nothing to compact")
    names: dict[float, str] = {}
    for measure in (c.MEMORIES, c.TOKENS):
        for moment, context in (("before", before), ("after", after)):
            place = float(len(names))
            if measure == c.TOKENS:
                place += 0.35  # a gap between the memories and the tokens
            _stack(plot, place, context, measure, total=max(1, totals[measure]))
            names[place] = f"{measure} {moment}"
    plot.name_rows(list(names), list(names.values()))
    _set_share_axis(plot, plot.loaded_or_recalled("share of a start before", "share of all before"))
    totals_after = after[[c.MEMORIES, c.TOKENS]].sum()
    plot.draw_heading(
        f"{totals[c.MEMORIES]:,} → {counted(totals_after[c.MEMORIES], 'memories')}, "
        f"{totals[c.TOKENS]:,} → {counted(totals_after[c.TOKENS], c.TOKENS)}",
        plot.loaded_or_recalled("What an agent loads at every start", "What an agent recalls from"),
    )
    index_note = ""
    index_tokens = before[c.TOKENS].get(INDEX_TEXT, 0)
    if index_tokens:
        text_tokens = counted(index_tokens, c.TOKENS)
        index_note = f"Load-bearing tokens include {text_tokens} of the index's own text."
    return plot.draw_footnote(index_note, plot.token_note)


def _set_share_axis(plot: parts.Plot, name: str) -> None:
    """Set the x axis for shares, and the y axis for rows from top to bottom."""
    ax = plot.ax
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1])
    ax.xaxis.set_major_formatter(parts.PERCENT_FORMATTER)
    plot.name_axis(ax.xaxis, name)


def _stack(
    plot: parts.Plot, place: float, context: pd.DataFrame, measure: str, *, total: int
) -> None:
    """Draw one stacked bar of the load-bearing and the prunable part, with labels."""
    ax = plot.ax
    palette = plot.palette
    load_bearing = int(context.loc[context[c.LOAD_BEARING], measure].sum())
    prunable = int(context.loc[~context[c.LOAD_BEARING], measure].sum())
    height = 0.72
    load_bearing_share = load_bearing / total
    (bar,) = ax.barh(place, load_bearing_share, height=height, color=palette.load_bearing)
    plot.add_hover_text(bar, f"{load_bearing:,} {measure} load-bearing")
    (bar,) = ax.barh(
        place, prunable / total, left=load_bearing_share, height=height, color=palette.prunable
    )
    plot.add_hover_text(bar, f"{prunable:,} {measure} prunable")
    end = ((load_bearing + prunable) / total, place)
    upper: dict[str, Any] = {"colour": palette.load_bearing, "va": "bottom"}
    plot.write(f"{load_bearing:,} load-bearing", end, (5, 1), annotation_clip=False, **upper)
    lower: dict[str, Any] = {"colour": palette.prunable, "va": "top"}
    plot.write(f"{prunable:,} prunable", end, (5, -1), annotation_clip=False, **lower)
