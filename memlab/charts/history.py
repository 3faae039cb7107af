"""Charts of a store's history: age ranks of references, past costs of caps, backtests, the law."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from memlab import columns as c
from memlab.charts import parts
from memlab.charts.figure import on_own_figure
from memlab.sizing import Advice
from memlab.text import counted

_DASHES: Final = ("-", (0, (6, 1.5)), (0, (3, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))
"""Line styles of caps."""

_LAWS: Final = {
    "references": ("public projects", "Pull requests that a later one names"),
    "reads": ("public stores", "Notes that agents found by searching"),
}
"""By kind of evidence: the name of the observed stores, and of their references."""


@on_own_figure
def plot_age_ranks(
    ranks: pd.DataFrame,
    *,
    quantiles: pd.DataFrame | None = None,
    advice: Advice | None = None,
    cap: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the age rank of each reference along the history, on a logarithmic scale.

    The area of a dot grows with its number of ``references``. Bars show the ``p50`` and ``p90`` of
    each part of the history. A cap serves the references below it.

    Parameters
    ----------
    ranks : DataFrame
        The result of :func:`memlab.sizing.age_ranks`.
    quantiles : DataFrame, optional
        The result of :func:`memlab.sizing.age_rank_quantiles`.
    advice : Advice, optional
        The recommendation, whose caps are marked.
    cap : int, optional
        Another cap to mark, in memories.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> ranks = memlab.sizing.age_ranks(memlab.store_path("two_years"))
    >>> plot_age_ranks(ranks).get_yscale()
    'log'
    """
    to_prunable = ranks[ranks["age_rank"] > 0]
    plot = parts.Plot(ax, ranks, height=4.6)
    ax = plot.ax
    palette = plot.palette
    if to_prunable.empty:
        reason = (
            parts.NO_REFERENCES if ranks.empty else "Every reference is to a load-bearing memory"
        )
        return plot.empty("How far back references reach", reason)
    if quantiles is not None:
        _draw_quantiles(plot, quantiles)
    caps = plot.caps_to_mark(advice, cap)
    for marked in caps:
        plot.draw_across(marked.value, marked.name, marked.colour)
    last_written = to_prunable["written"].max()
    if quantiles is not None:
        last_written = max(last_written, quantiles["last"].max())
    ax.set_xlim(0, last_written)
    furthest = max([to_prunable["age_rank"].max(), *(marked.value for marked in caps)])
    plot.log_axis(ax.yaxis, "age rank of the memory (1 = newest)", (0.7, 1.4 * furthest))
    plot.count_axis(ax.xaxis, "memories written when the reference was made")
    dots = to_prunable[["written", "age_rank"]].to_numpy(dtype=float)
    largest_dot = plot.draw_counted(
        dots, among=len(dots), color=palette.muted, marker="o", label="references"
    )
    median, ninetieth = np.quantile(dots[:, 1], [0.5, 0.9], method="inverted_cdf")
    meaning = "A dot is a later reference to a prunable memory"
    if largest_dot > 1:
        meaning += f", a larger one up to {largest_dot:,} that coincide"
    plot.heading(
        f"Half of the references reach back at most {median:,.0f} memories, "
        f"nine in ten {ninetieth:,.0f}",
        meaning,
        "Bars: median and 90th percentile of each stretch" if quantiles is not None else "",
    )
    not_drawn = len(ranks) - len(to_prunable)
    note_on_others = ""
    if not_drawn:
        note_on_others = f"Not drawn: {counted(not_drawn, 'references')} to load-bearing memories."
    return plot.footnote("A young history can only show short distances.", note_on_others)


@on_own_figure
def plot_boot_over_time(
    timeline: pd.DataFrame,
    *,
    measure: parts.Measure = "tokens",
    budget: int | None = None,
    advice: Advice | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a start along the history under several caps, and without one.

    Each cap has a line with a label such as ``keep 1,000`` or ``likely 445``; the line without a
    cap is ``no cap``. A label has the last value, and the maximum if it is a tenth larger. A cap
    that never deletes anything has no line; the note below the chart names it.

    Parameters
    ----------
    timeline : DataFrame
        The result of :func:`memlab.sizing.boot_over_time`.
    measure : {"memories", "tokens"}, optional
        The unit of the y axis.
    budget : int, optional
        A token budget to draw.
    advice : Advice, optional
        The recommendation, which names its caps.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> timeline = memlab.sizing.boot_over_time(memlab.load(memlab.store_path("two_years")), [100])
    >>> [line.get_label() for line in plot_boot_over_time(timeline).get_lines()]
    ['no cap', 'keep 100']
    """
    parts.check_measure(measure)
    plot = parts.Plot(ax, timeline, height=4.4)
    ax = plot.ax
    palette = plot.palette
    title = plot.loaded_or_recalled(
        "What an agent would have loaded at every start", "What an agent would have recalled from"
    )
    if timeline[c.AT].nunique() < 2:
        reason = parts.NOTHING_YET if timeline.empty else "One moment only: nothing to draw yet"
        return plot.empty(title, reason)
    by_cap = timeline.groupby("keep_recent", sort=False, dropna=False)
    lines: list[tuple[Any, pd.DataFrame]] = list(by_cap)
    marked_caps: dict[Any, parts.MarkedCap] = {}
    for marked in plot.caps_to_mark(advice, None):
        marked_caps[marked.value] = marked
    # Lines may coincide, so an earlier one is wider than those drawn over it.
    widths = np.linspace(1.4 + 0.7 * (len(lines) - 1), 1.4, len(lines))
    courses: list[_Course] = []
    without_cap = timeline.loc[timeline["keep_recent"].isna(), measure].to_numpy()
    idle: list[str] = []
    """Names of caps that never delete anything."""
    for number, (cap, rows) in enumerate(lines):
        dashes: Any = _DASHES[(number - 1) % len(_DASHES)]
        if pd.isna(cap):
            name = "no cap"
            colour = palette.grey
            dashes = "-"
        elif cap in marked_caps:
            name = marked_caps[cap].name
            colour = marked_caps[cap].colour
        else:
            name = f"keep {cap:,}"
            colour = palette.ink
        if not pd.isna(cap) and np.array_equal(rows[measure].to_numpy(), without_cap):
            idle.append(name)
            continue
        times = parts.without_zone(rows[c.AT])
        options: dict[str, Any] = {
            "color": colour,
            "linewidth": widths[number],
            "linestyle": dashes,
        }
        ax.step(times, rows[measure], where="post", label=name, **options)
        last_value = rows[measure].iloc[-1]
        peak_value = rows[measure].max()
        peak_note = f", at most {parts.short(peak_value)}" if peak_value > 1.1 * last_value else ""
        plot.label_end(last_value, f"{name}: {parts.short(last_value)}{peak_note}", colour)
        courses.append(_Course(name, times, rows[measure].to_numpy()))
    moments = max((course.times for course in courses), key=len)
    plot.hover_along(moments, _courses_in_words(moments, courses, measure))
    if budget is not None:
        plot.draw_across(budget, f"budget: {parts.short(budget)}")
    ax.margins(x=0)
    ax.set_ylim(0, 1.04 * max(1.0, timeline[measure].max(), budget or 0))
    plot.time_axis()
    plot.count_axis(ax.yaxis, measure)
    plot.heading(
        title, "Each line: that keep_recent held from the first memory on. Named: the last value"
    )
    return plot.footnote(
        f"The same as no cap: {', '.join(idle)}." if idle else "",
        str(timeline.attrs.get(c.CAVEAT, "")),
        plot.token_note if measure == "tokens" else "",
    )


class _Course(NamedTuple):
    """A line along the history: its name, its times and its numbers."""

    name: str
    times: npt.NDArray[np.datetime64]
    numbers: npt.NDArray[Any]


def _courses_in_words(
    times: npt.NDArray[np.datetime64], courses: Sequence[_Course], unit: str
) -> Callable[[int], str]:
    """Return a function that names a moment, with the value of each line at that moment."""
    moment = parts.moments_in_words(times)

    def text(place: int) -> str:
        named = []
        for course in courses:
            row = np.searchsorted(course.times, times[place], side="right") - 1
            if row >= 0:
                named.append(f"{course.name}: {counted(course.numbers[row], unit)}")
        return f"{moment(place)}; {'; '.join(named)}"

    return text


@on_own_figure
def plot_backtest(backtest: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw a backtest: the caps chosen at splits of the history, beside the caps needed after them.

    Each split is a row with a mark ``chosen`` and a mark ``needed``.

    Parameters
    ----------
    backtest : DataFrame
        The result of :func:`memlab.sizing.backtest_cap`.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> table = memlab.sizing.backtest_cap(memlab.store_path("two_years"), splits=[0.5, 0.7])
    >>> labels = {line.get_label() for line in plot_backtest(table).get_lines()}
    >>> {"chosen", "needed"} <= labels
    True
    """
    measured = backtest[backtest["needed"].notna()]
    plot = parts.Plot(ax, backtest, height=0.62 * len(backtest) + 1.9)
    ax = plot.ax
    if measured.empty:
        title = "No cut of the history could be measured"
        return plot.empty(title, "No reference followed any cut")
    places = np.arange(len(backtest))
    plot.name_rows(places.tolist(), [f"first {share:.0%}" for share in backtest["split"]])
    ax.set_ylim(len(backtest) - 0.4, -0.6)
    chosen_and_needed = measured[["keep_recent", "needed"]].to_numpy(dtype=float)
    low = max(1.0, chosen_and_needed.min())
    high = max(1.0, chosen_and_needed.max())
    # leave room for a number on both sides, as a share of the axis
    margin = 0.3 if plot.is_narrow else 0.1
    factor = max(2.3, (high / low) ** (margin / (1 - 2 * margin)))
    plot.log_axis(ax.xaxis, "keep_recent", (max(0.7, low / factor), high * factor), max_ticks=6)
    for place, row in zip(places, backtest.itertuples(), strict=True):
        _dumbbell(plot, float(place), row)
    reached = int(measured["reached"].sum())
    target = parts.percent_of(measured["target"].iloc[0])
    waste = np.median(chosen_and_needed[:, 0] / np.maximum(chosen_and_needed[:, 1], 1))
    plot.heading(
        f"The target of {target} was met at {reached} of {counted(len(measured), 'moments')}, with "
        f"{waste:.1f} times the cap needed",
        "Filled: the safe cap chosen then (● met the target, ✖ missed it). "
        "Hollow: the cap needed afterwards. The factor is the median",
    )
    return plot.footnote(
        "Chosen from the history before the moment, measured on the fifth of the history after it."
    )


@on_own_figure
def plot_law(
    lines: pd.DataFrame, *, store: pd.DataFrame | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the cap that serves a share of references against the size of a store.

    The line ``law`` has its limits as a shade. Each public project has a thin line with its name as
    label, and the store has the line ``this store``.

    Parameters
    ----------
    lines : DataFrame
        The result of :func:`memlab.sizing.law_lines`.
    store : DataFrame, optional
        Columns ``memories`` and ``cap``, one row a moment; a single row is drawn as a point.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> ax = plot_law(memlab.sizing.law_lines(0.9))
    >>> {"law", "safe"} <= {line.get_label() for line in ax.get_lines()}
    True
    """
    plot = parts.Plot(ax, height=5.0)
    ax = plot.ax
    palette = plot.palette
    law = lines[lines["project"].isna()]
    served = parts.percent_of(law["share"].iloc[0])
    evidence = law["evidence"].iloc[0]
    ax.fill_between(
        law["memories"], law["low"], law["high"], zorder=0, **parts.shade(palette.likely)
    )
    projects = lines[lines["project"].notna()].groupby("project", sort=False)
    for name, project_path in projects:
        ax.plot(
            project_path["memories"],
            project_path["cap"],
            color=palette.grey,
            linewidth=0.8,
            label=str(name),
        )
    ax.plot(law["memories"], law["cap"], color=palette.likely, linewidth=2.2, label="law")
    ax.plot(law["memories"], law["high"], color=palette.safe, linewidth=1.4, label="safe")
    drawn = [lines] if store is None else [lines, store]
    sizes = pd.concat([frame["memories"] for frame in drawn])
    caps = pd.concat([lines["high"], lines["low"], *(frame["cap"] for frame in drawn)])
    x_limits = (0.9 * max(sizes.min(), 1), 1.02 * sizes.max())
    y_limits = (max(0.8 * caps.min(), 0.8), 1.25 * caps.max())  # a cap below one is drawn at one
    plot.log_axis(ax.xaxis, "memories written", x_limits)
    plot.log_axis(ax.yaxis, f"cap that serves {served} of {evidence}", y_limits, max_ticks=9)
    for name, label, colour in (
        ("high", "safe: the upper limit", palette.safe),
        ("cap", "likely", palette.likely),
        ("low", "lower limit", palette.muted),
    ):
        plot.label_end(float(law[name].iloc[-1]), label, colour)
    if store is not None and len(store):
        path = store[["memories", "cap"]].clip(lower=1).to_numpy(float)
        ax.plot(*path.T, color=palette.ink, linewidth=1.6, label="this store")
        ax.plot(*path[-1], "o", color=palette.ink, markersize=8, label="_now", clip_on=False)
        # The label is aligned by the third of the x axis that its point is in, to stay inside.
        third = int(2.99 * plot.in_axes(*path[-1])[0])
        side = ("left", "center", "right")[third]
        bold: dict[str, Any] = {"colour": palette.ink, "fontweight": "bold", "bbox": plot.on_paper}
        name = f"this store: {store['cap'].iloc[-1]:,.0f}"
        plot.write(name, tuple(path[-1]), (0, 8), ha=side, **bold)
    plot.hover_along(law["memories"], lambda place: _law_in_words(law.iloc[place], served))
    ends_of_law = law[["memories", "cap"]].iloc[[0, -1]].to_numpy(dtype=float)
    doublings = np.diff(np.log2(ends_of_law), axis=0)
    factor = 2 ** (doublings[0, 1] / doublings[0, 0])  # of the cap, for a doubling of the store
    observed, footnote = _LAWS[evidence]
    plot.heading(
        f"For {served}, a store twice as large takes a cap {factor:.2g} times as large",
        f"Thin: {counted(len(projects), observed)}, each from stretch to stretch in which "
        "it doubled. Shade: limits for the next stretch of a store of which nothing is known.",
    )
    ends = projects["cap"].last().sort_values(ascending=False)
    names_note = (
        f"Projects by their last cap, the largest first: {', '.join(map(str, ends.index))}."
    )
    return plot.footnote(
        f"{footnote}; a small stretch has few, and jumps.",
        names_note if evidence == "references" else "",  # the names of stores say nothing
    )


def _law_in_words(row: "pd.Series[float]", served: str) -> str:
    """Return the caps of the law at a size of the store, in words."""
    size = counted(row["memories"])
    return (
        f"{size}: {served} likely take a cap of {row['cap']:,.0f}, safely {row['high']:,.0f}; "
        f"lower limit {row['low']:,.0f}"
    )


def _draw_quantiles(plot: parts.Plot, quantiles: pd.DataFrame) -> None:
    """Draw the median and the 90th percentile of each part, and label the last ones."""
    for name, label, style in (("p50", "median", "-"), ("p90", "90th percentile", (0, (4, 1)))):
        level = quantiles[name].astype("float64")
        part_of_history = quantiles["first"], quantiles["last"]
        options: dict[str, Any] = {"color": plot.palette.ink, "linewidth": 3, "linestyle": style}
        plot.ax.hlines(level, *part_of_history, label=name, **options)
        if level.notna().any():
            plot.label_end(float(level.dropna().iloc[-1]), label, plot.palette.ink)
    middles = (quantiles["first"] + quantiles["last"]) / 2
    plot.hover_along(middles, lambda place: _quantiles_in_words(quantiles.iloc[place]))


def _quantiles_in_words(part: "pd.Series[float]") -> str:
    """Return the age ranks of a part of the history, in words."""
    stretch = f"memories {part['first']:,} to {part['last']:,} written"
    if pd.isna(part["p50"]):
        return f"{stretch}: no reference to a prunable memory"
    return f"{stretch}: median age rank {part['p50']:,.0f}, 90th percentile {part['p90']:,.0f}"


def _dumbbell(plot: parts.Plot, place: float, row: Any) -> None:
    """Draw one split of a backtest: the chosen cap, the needed one, and the share served."""
    ax = plot.ax
    palette = plot.palette
    text = "no references followed"
    if not pd.isna(row.needed):
        served = f"{parts.share(row.achieved)} of {counted(row.references, 'references')}"
        text = served if row.reached else f"missed: {served}"
        ax.plot([row.keep_recent, row.needed], [place, place], color=palette.hairline, linewidth=3)
        hollow: dict[str, Any] = {"markerfacecolor": palette.paper, "label": "needed"}
        (dot,) = ax.plot(row.needed, place, "o", color=palette.ink, markersize=7, **hollow)
        plot.hover(dot, f"needed: {row.needed:,}")
        mark = "o" if row.reached else "X"
        colour = palette.safe if row.reached else palette.prunable
        (dot,) = ax.plot(row.keep_recent, place, mark, color=colour, markersize=9, label="chosen")
        plot.hover(dot, f"chosen: {row.keep_recent:,}, {text}")
        outer = 1 if row.keep_recent >= row.needed else -1
        for cap, side, ink in (
            (row.keep_recent, outer, colour),
            (row.needed, -outer, palette.ink),
        ):
            text_options: dict[str, Any] = {"ha": "left" if side > 0 else "right", "va": "center"}
            plot.write(f"{cap:,}", (cap, place), (8 * side, 0), colour=ink, **text_options)
    note_options: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
    missed = not pd.isna(row.needed) and not row.reached
    colour = palette.prunable if missed else palette.muted
    plot.write(text, (1, place), (6, 0), va="center", colour=colour, **note_options)
