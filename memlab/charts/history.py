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
from memlab.text import counted, percent_as_given

_LINE_STYLES: Final = ("-", (0, (6, 1.5)), (0, (3, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))
"""Line styles of caps."""


class _LawData(NamedTuple):
    """The name of the observed stores of a law, and the footnote on what counts as a reference."""

    store_name: str
    footnote: str


_LAWS: Final = {
    "references": _LawData("public projects", "Pull requests that a later one names"),
    "reads": _LawData("public stores", "Notes that agents found by searching"),
}
"""The data of the law for each kind of evidence."""


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
    to_prunable = ranks[ranks["age_rank"] > 0]  # it is 0 for a load-bearing memory
    plot = parts.Plot(ax, ranks, height=4.6)
    ax = plot.ax
    palette = plot.palette
    if to_prunable.empty:
        reason = (
            parts.NO_REFERENCES if ranks.empty else "Every reference is to a load-bearing memory"
        )
        return plot.draw_empty("How far back references reach", reason)
    if quantiles is not None:
        _draw_quantiles(plot, quantiles)
    caps = plot.caps_to_mark(advice, cap)
    for marked in caps:
        plot.draw_horizontal_line(marked.value, marked.name, marked.colour)
    last_written = to_prunable["written"].max()
    if quantiles is not None:
        last_written = max(last_written, quantiles["last"].max())
    ax.set_xlim(0, last_written)
    largest_values = [to_prunable["age_rank"].max()]
    largest_values += [marked.value for marked in caps]
    furthest = max(largest_values)
    plot.set_log_axis(ax.yaxis, "age rank of the memory (1 = newest)", (0.7, 1.4 * furthest))
    plot.set_count_axis(ax.xaxis, "memories written when the reference was made")
    dots = to_prunable[["written", "age_rank"]].to_numpy(dtype=float)
    largest_dot = plot.draw_merged_dots(
        dots, among=len(dots), color=palette.muted, marker="o", label="references"
    )
    median, ninetieth = np.quantile(ranks["age_rank"], [0.5, 0.9], method="inverted_cdf")
    meaning_of_dot = "A dot is a later reference to a prunable memory"
    if largest_dot > 1:
        meaning_of_dot += f", a larger one up to {largest_dot:,} that coincide"
    meaning_of_bars = ""
    if quantiles is not None:
        meaning_of_bars = "Bars: median and 90th percentile of each stretch"
    plot.draw_heading(
        f"Half of the references reach back at most {median:,.0f} memories, "
        f"nine in ten {ninetieth:,.0f}",
        meaning_of_dot,
        meaning_of_bars,
    )
    not_drawn = len(ranks) - len(to_prunable)
    note_on_others = ""
    if not_drawn:
        others = counted(not_drawn, "references")
        note_on_others = f"Not drawn: {others} to load-bearing memories (rank 0)."
    return plot.draw_footnote("A young history can only show short distances.", note_on_others)


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
    title = plot.loaded_or_recalled(
        "What an agent would have loaded at every start", "What an agent would have recalled from"
    )
    if timeline[c.AT].nunique() < 2:
        reason = parts.NOTHING_YET if timeline.empty else "One moment only: nothing to draw yet"
        return plot.draw_empty(title, reason)
    without_cap = timeline.loc[timeline["keep_recent"].isna(), measure].to_numpy()
    drawn_lines: list[_TimeLine] = []
    caps_that_never_delete: list[str] = []
    for line in _time_lines(plot, timeline, measure, advice):
        if line.has_cap and np.array_equal(line.numbers, without_cap):
            caps_that_never_delete.append(line.name)
        else:
            _draw_time_line(plot, line)
            drawn_lines.append(line)
    moments = max([line.times for line in drawn_lines], key=len)
    plot.add_hover_areas(moments, _values_formatter(moments, drawn_lines, measure))
    if budget is not None:
        plot.draw_horizontal_line(budget, f"budget: {parts.format_short(budget)}")
    ax.margins(x=0)
    ax.set_ylim(0, 1.04 * max(1.0, timeline[measure].max(), budget or 0))
    plot.set_time_axis()
    plot.set_count_axis(ax.yaxis, measure)
    plot.draw_heading(
        title, "Each line: that keep_recent held from the first memory on. Named: the last value"
    )
    notes = []
    if caps_that_never_delete:
        notes.append(f"The same as no cap: {', '.join(caps_that_never_delete)}.")
    notes.append(str(timeline.attrs.get(c.CAVEAT, "")))
    if measure == "tokens":
        notes.append(plot.token_note)
    return plot.draw_footnote(*notes)


class _TimeLine(NamedTuple):
    """A line along the history: its name, its times, a number at each of them, and its style."""

    name: str
    has_cap: bool
    times: npt.NDArray[np.datetime64]
    numbers: npt.NDArray[Any]
    style: dict[str, Any]


def _time_lines(
    plot: parts.Plot, timeline: pd.DataFrame, measure: str, advice: Advice | None
) -> list[_TimeLine]:
    """Return the line of each cap of a timeline, and the line without a cap."""
    palette = plot.palette
    marked_caps: dict[Any, parts.MarkedCap] = {}
    for marked in plot.caps_to_mark(advice, None):
        marked_caps[marked.value] = marked
    caps: list[tuple[Any, pd.DataFrame]] = list(
        timeline.groupby("keep_recent", sort=False, dropna=False)
    )
    # Lines may coincide, so an earlier one is wider than those drawn over it.
    widths = np.linspace(1.4 + 0.7 * (len(caps) - 1), 1.4, len(caps))
    lines = []
    for number, (cap, rows) in enumerate(caps):
        has_cap = not pd.isna(cap)
        line_style: Any = _LINE_STYLES[(number - 1) % len(_LINE_STYLES)]
        if not has_cap:
            name = "no cap"
            colour = palette.grey
            line_style = "-"
        elif cap in marked_caps:
            name = marked_caps[cap].name
            colour = marked_caps[cap].colour
        else:
            name = f"keep {cap:,}"
            colour = palette.ink
        times = parts.without_zone(rows[c.AT])
        style = {"color": colour, "linewidth": widths[number], "linestyle": line_style}
        lines.append(_TimeLine(name, has_cap, times, rows[measure].to_numpy(), style))
    return lines


def _draw_time_line(plot: parts.Plot, line: _TimeLine) -> None:
    """Draw a line along the history, and label it with its last value and with a larger peak."""
    plot.ax.step(line.times, line.numbers, where="post", label=line.name, **line.style)
    last_value = line.numbers[-1]
    peak_value = line.numbers.max()
    label = f"{line.name}: {parts.format_short(last_value)}"
    if peak_value > 1.1 * last_value:
        label += f", at most {parts.format_short(peak_value)}"
    plot.label_end(last_value, label, line.style["color"])


def _values_formatter(
    times: npt.NDArray[np.datetime64], lines: Sequence[_TimeLine], unit: str
) -> Callable[[int], str]:
    """Return a function that writes a time by its index, with the value of each line then."""
    format_moment = parts.moment_formatter(times)

    def text(index: int) -> str:
        values = []
        for line in lines:
            row = np.searchsorted(line.times, times[index], side="right") - 1
            if row >= 0:
                values.append(f"{line.name}: {counted(line.numbers[row], unit)}")
        return f"{format_moment(index)}; {'; '.join(values)}"

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
        return plot.draw_empty(title, "No reference followed any cut")
    places = np.arange(len(backtest))
    plot.name_rows(places.tolist(), [f"first {share:.0%}" for share in backtest["split"]])
    ax.set_ylim(len(backtest) - 0.4, -0.6)
    chosen = measured["keep_recent"].to_numpy(dtype=float)
    needed = measured["needed"].to_numpy(dtype=float)
    low = max(1.0, min(chosen.min(), needed.min()))
    high = max(1.0, chosen.max(), needed.max())
    # Leave room for a number on both sides: this share of the axis
    margin = 0.3 if plot.is_narrow else 0.1
    # and, on a short axis, at least this factor.
    min_factor = 10.0 if plot.is_narrow else 2.3
    factor = max(min_factor, (high / low) ** (margin / (1 - 2 * margin)))
    x_limits = (max(0.7, low / factor), high * factor)
    plot.set_log_axis(ax.xaxis, "keep_recent", x_limits, max_ticks=6)
    for place, row in zip(places, backtest.itertuples(), strict=True):
        _draw_split(plot, float(place), row)
    reached = int(measured["reached"].sum())
    target = percent_as_given(measured["target"].iloc[0])
    median_factor = np.median(chosen / np.maximum(needed, 1))
    plot.draw_heading(
        f"The target of {target} was met at {reached} of {counted(len(measured), 'moments')}, with "
        f"{median_factor:.1f} times the cap needed",
        "Filled: the safe cap chosen then (● met the target, ✖ missed it). "
        "Hollow: the cap needed afterwards. The factor is the median",
    )
    return plot.draw_footnote(
        "Chosen from the history before the moment, measured on the fifth of the history after it."
    )


@on_own_figure
def plot_law(
    lines: pd.DataFrame, *, store: pd.DataFrame | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the cap that serves a share of references against the size of a store.

    The line ``law`` has its limits as a shade. Each public project has a thin line with its name as
    label, and the store has the line ``this store``, whose label is the likely cap from now on.

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
    served = percent_as_given(law["share"].iloc[0])
    evidence = law["evidence"].iloc[0]
    ax.fill_between(
        law["memories"], law["low"], law["high"], zorder=0, **parts.shade(palette.likely)
    )
    projects = lines[lines["project"].notna()].groupby("project", sort=False)
    for name, project in projects:
        thin: dict[str, Any] = {"color": palette.grey, "linewidth": 0.8, "label": str(name)}
        ax.plot(project["memories"], project["cap"], **thin)
    ax.plot(law["memories"], law["cap"], color=palette.likely, linewidth=2.2, label="law")
    ax.plot(law["memories"], law["high"], color=palette.safe, linewidth=1.4, label="safe")
    sizes = lines["memories"]
    caps = pd.concat([lines["high"], lines["low"], lines["cap"]])
    if store is not None:
        sizes = pd.concat([sizes, store["memories"]])
        caps = pd.concat([caps, store["cap"]])
    x_limits = (0.9 * max(sizes.min(), 1), 1.02 * sizes.max())
    y_limits = (max(0.8 * caps.min(), 0.8), 1.25 * caps.max())  # a cap below one is drawn at one
    plot.set_log_axis(ax.xaxis, "memories written", x_limits)
    plot.set_log_axis(ax.yaxis, f"cap that serves {served} of {evidence}", y_limits, max_ticks=9)
    for name, label, colour in (
        ("high", "safe" if plot.is_narrow else "safe: the upper limit", palette.safe),
        ("cap", "likely", palette.likely),
        ("low", "lower limit", palette.muted),
    ):
        plot.label_end(float(law[name].iloc[-1]), label, colour)
    if store is not None and len(store):
        _draw_store_on_law(plot, store)
    plot.add_hover_areas(law["memories"], lambda index: _law_in_words(law.iloc[index], served))
    data = _LAWS[evidence]
    factor = _factor_of_doubling(law)
    plot.draw_heading(
        f"For {served}, a store twice as large takes a cap {factor:.2g} times as large",
        f"Thin: {counted(len(projects), data.store_name)}, each from stretch to stretch in which "
        "it doubled. Shade: limits for the next stretch of a store of which nothing is known.",
    )
    notes = [f"{data.footnote}; a small stretch has few, and jumps."]
    if evidence == "references":  # the names of stores mean nothing to a reader
        last_caps = projects["cap"].last().sort_values(ascending=False)
        names = ", ".join(str(name) for name in last_caps.index)
        notes.append(f"Projects by their last cap, the largest first: {names}.")
    return plot.draw_footnote(*notes)


def _draw_store_on_law(plot: parts.Plot, store: pd.DataFrame) -> None:
    """Draw the path of a store over the law, and label its last point."""
    ink = plot.palette.ink
    path = store[["memories", "cap"]].clip(lower=1).to_numpy(float)
    size, cap = path[-1]
    plot.ax.plot(path[:, 0], path[:, 1], color=ink, linewidth=1.6, label="this store")
    plot.ax.plot(size, cap, "o", color=ink, markersize=8, label="_now", clip_on=False)
    fraction_of_width, _ = plot.to_axes_fraction(size, cap)
    # To stay inside the axes, the label is aligned by the third that its point is in.
    alignment = ("left", "center", "right")[int(2.99 * fraction_of_width)]
    style: dict[str, Any] = {
        "ha": alignment,
        "colour": ink,
        "fontweight": "bold",
        "bbox": plot.label_box,
    }
    plot.write(f"this store: likely {store['cap'].iloc[-1]:,.0f}", (size, cap), (0, 8), **style)


def _factor_of_doubling(law: pd.DataFrame) -> float:
    """Return the factor of the cap for a doubling of the store, between the ends of a law."""
    first, last = law[["memories", "cap"]].iloc[[0, -1]].to_numpy(dtype=float)
    size_doublings, cap_doublings = np.log2(last) - np.log2(first)
    return float(2 ** (cap_doublings / size_doublings))


def _law_in_words(row: "pd.Series[float]", served: str) -> str:
    """Describe the caps of the law at one size of the store."""
    size = counted(row["memories"])
    return (
        f"{size}: {served} likely take a cap of {row['cap']:,.0f}, safely {row['high']:,.0f}; "
        f"lower limit {row['low']:,.0f}"
    )


def _draw_quantiles(plot: parts.Plot, quantiles: pd.DataFrame) -> None:
    """Draw the median and the 90th percentile of each part, and label the last ones."""
    for name, label, style in (("p50", "median", "-"), ("p90", "90th percentile", (0, (4, 1)))):
        level = quantiles[name].astype("float64")
        level = level.where(level > 0)  # rank 0, a load-bearing memory, is on no logarithmic axis
        options: dict[str, Any] = {"color": plot.palette.ink, "linewidth": 3, "linestyle": style}
        plot.ax.hlines(level, quantiles["first"], quantiles["last"], label=name, **options)
        if level.notna().any():
            plot.label_end(float(level.dropna().iloc[-1]), label, plot.palette.ink)
    middles = (quantiles["first"] + quantiles["last"]) / 2
    plot.add_hover_areas(middles, lambda index: _quantiles_in_words(quantiles.iloc[index]))


def _quantiles_in_words(part: "pd.Series[float]") -> str:
    """Describe the age ranks of the references in one part of the history."""
    stretch = f"memories {part['first']:,} to {part['last']:,} written"
    if pd.isna(part["p50"]):
        return f"{stretch}: no reference"
    return f"{stretch}: median age rank {part['p50']:,.0f}, 90th percentile {part['p90']:,.0f}"


def _draw_split(plot: parts.Plot, place: float, row: Any) -> None:
    """Draw one split of a backtest: the chosen cap, the needed one, and the share served."""
    palette = plot.palette
    text = "no references followed"
    text_colour = palette.muted
    if not pd.isna(row.needed):
        text = f"{parts.format_share(row.achieved)} of {counted(row.references, 'references')}"
        if not row.reached:
            text = f"missed: {text}"
            text_colour = palette.prunable
        _draw_chosen_and_needed(plot, place, row, text)
    options: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "annotation_clip": False,
        "va": "center",
        "colour": text_colour,
    }
    plot.write(text, (1, place), (6, 0), **options)


def _draw_chosen_and_needed(plot: parts.Plot, place: float, row: Any, text: str) -> None:
    """Draw the chosen cap and the needed one as two dots, with their numbers on the outer sides.

    The chosen dot shows `text` on hover.
    """
    ax = plot.ax
    palette = plot.palette
    chosen_mark = "o" if row.reached else "X"
    chosen_colour = palette.safe if row.reached else palette.prunable
    ax.plot([row.keep_recent, row.needed], [place, place], color=palette.hairline, linewidth=3)
    needed_style: dict[str, Any] = {
        "color": palette.ink,
        "markerfacecolor": palette.paper,
        "markersize": 7,
        "label": "needed",
    }
    (needed_dot,) = ax.plot(row.needed, place, "o", **needed_style)
    plot.add_hover_text(needed_dot, f"needed: {row.needed:,}")
    chosen_style: dict[str, Any] = {"color": chosen_colour, "markersize": 9, "label": "chosen"}
    (chosen_dot,) = ax.plot(row.keep_recent, place, chosen_mark, **chosen_style)
    plot.add_hover_text(chosen_dot, f"chosen: {row.keep_recent:,}, {text}")

    def write_number(cap: int, colour: str, *, on_right: bool) -> None:
        alignment = "left" if on_right else "right"
        offset = (8 if on_right else -8, 0)
        plot.write(f"{cap:,}", (cap, place), offset, colour=colour, ha=alignment, va="center")

    chosen_is_larger = row.keep_recent >= row.needed
    write_number(row.keep_recent, chosen_colour, on_right=chosen_is_larger)
    write_number(row.needed, palette.ink, on_right=not chosen_is_larger)
