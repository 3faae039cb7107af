"""Charts that compare policies, and charts that compare age with use as predictors of reads."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from memlab import columns as c
from memlab.charts import parts
from memlab.charts.figure import HOLLOW_GLYPHS, Style, on_own_figure, style_of
from memlab.evidence.usage import SIZES, USE_GROUPS, AgeOrUse, other_stores
from memlab.text import counted, for_terminal, percent

BEST: Final = "the best that could be done"
"""Label of the optimal offline bound."""
ALL: Final = "all"
"""Name of the policy that keeps all memories."""
_MAX_ANNOTATED: Final = 16
"""Largest number of policies for which the cells of an overlap have their share as text."""


class _Family(NamedTuple):
    """The settings of one policy: its name, its rows in a comparison, and its style."""

    name: str
    rows: pd.DataFrame
    style: Style


class _SettingMark(NamedTuple):
    """A mark of a setting that may be labelled, with its distance from the ends of the line."""

    from_end: int
    x: float
    y: float
    setting: str
    style: Style


@on_own_figure
def plot_comparison(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of references that policies serve against the tokens at start.

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

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> policies = [KeepRecent(20), KeepRecent(50)]
    >>> comparison = memlab.compare(memlab.store_path("looked_up"), policies=policies)
    >>> ax = plot_comparison(comparison.table)
    >>> ax.get_ylabel()
    'share of references served'
    """
    title = "What each policy serves and costs"
    plot = parts.Plot(ax, table, height=5.0)
    if table["served"].isna().all():
        return plot.draw_empty(title, f"{parts.NO_REFERENCES}: only costs can be compared")
    ax = plot.ax
    palette = plot.palette
    families: pd.Series[str] = table["family"].astype("str")
    ranks_by = table.attrs.get(c.RANKS_BY, {})
    drawn_families = []
    for name, rows in table[table["policy"] != ALL].groupby(families, sort=False):
        style = style_of(name, ranks_by.get(name))
        drawn_families.append(_Family(name, rows.sort_values("boot_tokens_mean"), style))
    _set_limits(plot, table)
    _draw_bound(plot, table)
    widths = _line_widths(len(drawn_families))
    for family, width in zip(drawn_families, widths, strict=True):
        _draw_family(plot, family, width)
    for cost in table.loc[table["policy"] == ALL, "boot_tokens_mean"]:
        ax.axvline(cost, color=palette.muted, linewidth=1, linestyle=":", label="keep all")
        label_options: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": "right"}
        plot.write(f"keep all: {parts.format_short(cost)}", (cost, 0), (-4, 5), **label_options)
    colours = {family.style.ranks_by: family.style.colour(palette) for family in drawn_families}
    legend = []
    for criterion, colour in sorted(colours.items()):
        legend.append(Line2D([], [], color=colour, label=f"goes by {criterion or 'neither'}"))
    meaning_of_hollow = "Hollow: retired, not deleted" if table["retire"].any() else ""
    plot.draw_heading(
        title,
        "Up and to the left is better; one mark a setting. Grey: out of reach at that size",
        meaning_of_hollow,
        legend=legend,
    )
    plot.compute_layout()
    _label_settings(plot, drawn_families)
    return ax


def _draw_family(plot: parts.Plot, family: _Family, width: float) -> None:
    """Draw the line of a family, with its name at the end and a text on hover for each setting."""
    rows = family.rows
    options = family.style.line_options(plot.palette, width)
    glyph = family.style.glyph
    if rows["retire"].all():
        options["markerfacecolor"] = plot.palette.paper
        options["markeredgecolor"] = options["color"]
        glyph = HOLLOW_GLYPHS.get(glyph, glyph)
    plot.ax.plot(rows["boot_tokens_mean"], rows["served"], label=family.name, **options)
    plot.label_end(float(rows["served"].iloc[-1]), f"{glyph} {family.name}", options["color"])
    for setting, row in rows.iterrows():
        cost = counted(row["boot_tokens_mean"], "tokens")
        serves = f"serves {parts.format_share(row['served'])} of references"
        text = f"{setting}: {serves} for {cost} (mean)"
        plot.add_hover_dot(row["boot_tokens_mean"], row["served"], text)


def _line_widths(count: int) -> parts.Numbers:
    """Return line widths in points that decrease, so that a line shows below a later one."""
    return np.linspace(min(4.8, 1.5 + 1.1 * (count - 1)), 1.5, count)


def _set_limits(plot: parts.Plot, table: pd.DataFrame) -> None:
    """Set the limits of the axes around the marks; with few marks, shares start at zero."""
    costs = table["boot_tokens_mean"]
    tokens = plot.loaded_or_recalled("tokens at start", "tokens to recall from")
    x_limits = (max(0.7, 0.8 * costs[costs > 0].min()), 1.25 * max(1.0, costs.max()))
    plot.set_log_axis(plot.ax.xaxis, f"mean {tokens} over the history (log scale)", x_limits)
    lowest = float(table["served"].min())
    bottom = 0.0
    if len(table) >= 4:
        bottom = np.floor(10 * (lowest - 0.03)) / 10  # the next tenth below
    y_limits = (max(0.0, min(0.8, bottom)), 1.06)
    plot.set_percent_axis(plot.ax.yaxis, "share of references served", y_limits)


def _draw_bound(plot: parts.Plot, table: pd.DataFrame) -> None:
    """Draw the optimal offline bound, and shade the area above it."""
    ax = plot.ax
    grey = plot.palette.grey
    bound = table.groupby("boot_tokens_mean")["offline_optimum"].max()
    best = np.maximum.accumulate(bound.to_numpy())
    x = np.append(bound.index.to_numpy(), ax.get_xlim()[1])
    y = np.append(best, best[-1])
    ax.fill_between(x, y, ax.get_ylim()[1], step="post", color=grey, alpha=0.18, linewidth=0)
    ax.step(bound.index, best, where="post", color=grey, linewidth=1, label=BEST)


def _label_settings(plot: parts.Plot, families: Sequence[_Family]) -> None:
    """Label marks with their setting if there is room, first those at the ends of lines."""
    labels = parts.PointLabels(plot)
    marks = []
    for _, rows, style in families:
        labels.reserve_line(rows["boot_tokens_mean"].to_numpy(), rows["served"].to_numpy())
        for index, (label, row) in enumerate(rows.iterrows()):
            x = row["boot_tokens_mean"]
            y = row["served"]
            labels.reserve(x, y)
            # A label begins with its family, or with the policy if the family has other settings.
            setting = str(label).removeprefix(str(row["family"])).strip()
            setting = setting.removeprefix(str(row["policy"])).strip()
            from_end = min(index, len(rows) - 1 - index)
            marks.append(_SettingMark(from_end, x, y, setting, style))
    for mark in sorted(marks, key=lambda mark: mark.from_end):
        if 0 < len(mark.setting) < 11:
            labels.write(mark.x, mark.y, mark.setting, mark.style.colour(plot.palette))


@on_own_figure
def plot_overlap(
    shares: pd.DataFrame, *, of: Literal["deleted", "lost"] = "deleted", ax: Axes | None = None
) -> Axes:
    """Draw as a matrix how far the deletions, or the losses, of policies overlap.

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

    Examples
    --------
    >>> shares = pd.DataFrame([[1.0, 0.5], [0.25, 1.0]], ["recent 20", "recent 50"])
    >>> len(plot_overlap(shares).patches)
    4
    """
    if shares.gt(1).any(axis=None):
        raise ValueError("shares holds counts; make it with memlab.replay.overlap(.., share=True)")
    plot = parts.Plot(ax, shares, height=2.0 + 0.42 * min(len(shares), 14))
    title = "Who deletes what" if of == "deleted" else "Who loses what"
    if shares.empty or shares.isna().all(axis=None):
        reason = "Nothing is deleted" if of == "deleted" else "No reference is lost"
        return plot.draw_empty(title, reason)
    ax = plot.ax
    palette = plot.palette
    values = shares.to_numpy(dtype=float)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        cell = Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, linewidth=0)
        cell.set(facecolor=palette.ink, alpha=0.0 if np.isnan(value) else 0.35 * value)
        ax.add_patch(cell)
        if len(shares) <= _MAX_ANNOTATED:
            text = "–" if np.isnan(value) else percent(value, decimals=0).removesuffix("%")
            ax.text(
                column,
                row,
                text,
                ha="center",
                va="center",
                color=palette.ink,
                fontsize=parts.SMALL_FONT,
            )
    ax.set_xlim(-0.5, len(shares.columns) - 0.5)
    ax.set_ylim(len(shares) - 0.5, -0.5)
    ticks = np.arange(len(shares))
    names = []
    for number, policy in enumerate(shares.index, start=1):
        name = f"{number} {style_of(str(policy)).glyph} {for_terminal(str(policy))}"
        names.append(fill(name, parts.MAX_LABEL_LINE, break_on_hyphens=False))
    ax.set_yticks(ticks, labels=names, parse_math=False)
    is_crowded = plot.is_narrow and len(shares) > _MAX_ANNOTATED
    x_ticks = ticks[::2] if is_crowded else ticks
    ax.set_xticks(x_ticks, labels=[str(number) for number in x_ticks + 1])
    ax.tick_params(length=0, labeltop=False)
    subject = "memories deleted" if of == "deleted" else "references lost"
    plot.draw_heading(
        title,
        f"In percent: of the {subject} under one policy (left), "
        "those that go under another (below)",
    )
    return ax


@on_own_figure
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

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> replay = memlab.replay.replay(memlab.store_path("looked_up"), None, KeepRecent(20))
    >>> ax = plot_regret({"recent 20": replay.regret_over_time})
    >>> ax.get_ylabel()
    'references lost so far'
    """
    with_references = {label: regret for label, regret in regrets.items() if len(regret)}
    frames = with_references or regrets
    plot = parts.Plot(ax, *frames.values(), height=4.2)
    if not with_references:
        return plot.draw_empty("References whose memory was gone", parts.NO_REFERENCES)
    ax = plot.ax
    palette = plot.palette
    for (label, regret), width in zip(
        with_references.items(), _line_widths(len(with_references)), strict=True
    ):
        style = style_of(label, regret.attrs.get(c.RANKS_BY))
        times = parts.without_zone(regret[c.AT])
        options = {**style.line_options(palette, width), "markevery": max(1, len(regret) // 8)}
        ax.step(times, regret["lost"], where="post", label=label, clip_on=False, **options)
        last_lost = int(regret["lost"].iloc[-1])
        plot.label_end(last_lost, f"{style.glyph} {label}: {last_lost:,}", options["color"])
    ax.margins(x=0.01)
    plot.set_time_axis()
    ax.set_ylim(bottom=0)
    plot.set_count_axis(ax.yaxis, "references lost so far")
    longest = max(with_references.values(), key=len)
    moments = parts.without_zone(longest[c.AT])
    plot.add_hover_areas(moments, _losses_formatter(moments, with_references))
    rates = {
        label: regret["lost"].iloc[-1] / len(regret) for label, regret in with_references.items()
    }
    highest = max(rates, key=rates.__getitem__)
    lowest = min(rates, key=rates.__getitem__)
    highest_rate = parts.format_share(rates[highest])
    finding = f"{for_terminal(highest)} lost {highest_rate} of what was referred to again"
    if rates[highest] > rates[lowest]:
        finding += f", {for_terminal(lowest)} {parts.format_share(rates[lowest])}"
    plot.draw_heading(finding, "References whose memory was gone, so far")
    return ax


def _losses_formatter(
    moments: npt.NDArray[np.datetime64], regrets: Mapping[str, pd.DataFrame]
) -> Callable[[int], str]:
    """Return a function that writes a moment by its index, with each policy's losses until then."""
    format_moment = parts.moment_formatter(moments)
    times = {label: parts.without_zone(regret[c.AT]) for label, regret in regrets.items()}

    def text(index: int) -> str:
        losses = []
        for label, regret in regrets.items():
            row = np.searchsorted(times[label], moments[index], side="right") - 1
            lost = int(regret["lost"].iloc[row]) if row >= 0 else 0
            losses.append(f"{label} {lost:,}")
        return f"references lost by {format_moment(index)}: {', '.join(losses)}"

    return text


def _served_in_words(served: Any, index: int) -> str:
    """Describe the shares of reads that a share of the tokens serves."""
    newest = parts.format_share(served["newest"].iloc[index])
    used = parts.format_share(served["most active"].iloc[index])
    loaded = parts.format_share(served.index[index])
    return f"{loaded} of the tokens loaded: by age serves {newest} of reads, by use {used}"


_NO_READS: Final = "No read of a memory of an earlier day is known"
_MIN_CHANCE: Final = 0.05
"""Smallest chance on an axis. A chance of zero has limits, and no dot."""


@on_own_figure
def plot_age_or_use(result: AgeOrUse, *, ax: Axes | None = None) -> Axes:
    """Draw the chance that a memory is read next, by the number of its reads and by its age.

    Each row of ``chances`` has a dot, ``by use`` or ``by age``, with its limits as a bar. The lines
    ``other stores`` are for comparison.

    Parameters
    ----------
    result : AgeOrUse
        The result of :func:`memlab.evidence.age_or_use`.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.store_path("looked_up")
    >>> log = memlab.read_access_log(store.with_suffix(".reads.jsonl"))
    >>> history = memlab.StoreHistory(store, log)
    >>> ax = plot_age_or_use(memlab.evidence.age_or_use(history))
    >>> {"by use", "by age"} <= {line.get_label() for line in ax.get_lines()}
    True
    """
    plot = parts.Plot(ax, result.chances, height=4.6)
    if not result.reads:
        return plot.draw_empty("Whether age or use says what is read next", _NO_READS)
    ax = plot.ax
    palette = plot.palette
    rows = np.arange(len(result.chances))
    is_age_group = rows >= len(USE_GROUPS)
    places = np.where(is_age_group, rows + 1, rows)  # leaves a free row between use and age
    table = result.chances.assign(row=places)
    drawn_chances = table[["chance", "other_stores"]].to_numpy()
    smallest = 0.7 * max(drawn_chances[drawn_chances > 0].min(), _MIN_CHANCE)
    x_limits = (smallest, 1.6 * np.nanmax(drawn_chances))
    plot.set_log_axis(ax.xaxis, "chance to be read next (1 = the mean of all memories)", x_limits)
    use = table.iloc[: len(USE_GROUPS)]
    age = table.iloc[len(USE_GROUPS) :]
    legend: list[Any] = []
    for group, name, colour in (
        (use, "by use", palette.by_use),
        (age, "by age", palette.by_age),
    ):
        options: dict[str, Any] = {
            "color": palette.grey,
            "label": "other stores",
            "marker": "|",
            "markersize": 9,
            "markeredgewidth": 1.6,
        }
        ax.plot(group["other_stores"], group["row"], **options)
        # A group without memories has no expected reads.
        with_memories = group[group["expected"] > 0]
        limit_options: dict[str, Any] = {"color": colour, "linewidth": 4, "alpha": 0.4}
        ax.hlines(
            with_memories["row"],
            with_memories["low"].clip(lower=smallest),
            with_memories["high"],
            label=f"_limits {name}",
            **limit_options,
        )
        legend += ax.plot(
            with_memories["chance"],
            with_memories["row"],
            "o",
            color=colour,
            markersize=7,
            label=name,
        )
        for group_name, row in with_memories.iterrows():
            limits_in_words = f"{row['low']:.2g} to {row['high']:.2g}"
            text = f"{group_name}: {row['chance']:.2g} times the mean ({limits_in_words})"
            plot.add_hover_dot(row["chance"], row["row"], text)
    row_names = ["never read" if name == "never" else f"read {name}" for name in use.index]
    row_names += [str(name) for name in age.index]
    plot.name_rows(places.tolist(), row_names)
    ax.set_ylim(places[-1] + 0.6, -0.6)
    ax.axvline(1, color=palette.ink, linewidth=1, linestyle=":", label="_mean")
    plot.write("mean", (1, len(USE_GROUPS)), va="center", ha="center", bbox=plot.label_box)
    for reads, row in zip(table["reads"], places, strict=True):
        label_options: dict[str, Any] = {
            "xycoords": ("axes fraction", "data"),
            "annotation_clip": False,
        }
        plot.write(counted(reads, "reads"), (1, row), (6, 0), va="center", **label_options)
    stores = counted(other_stores()["stores"], "other stores")
    plot.draw_heading(
        result.answer.partition(":")[0].capitalize(),
        f"{counted(result.reads, 'reads')} on {counted(result.days, 'days')}",
        f"Bars: limits. Grey: {stores}",
        legend=legend,
    )
    return plot.draw_footnote("A memory counts once a day, by what was known when the day began.")


@on_own_figure
def plot_reads_served(result: AgeOrUse, *, ax: Axes | None = None) -> Axes:
    """Draw the share of reads that are served against the share of the tokens that is loaded.

    The lines are ``by age``, ``by use`` and, for comparison, ``by chance``.

    Parameters
    ----------
    result : AgeOrUse
        The result of :func:`memlab.evidence.age_or_use`.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.store_path("looked_up")
    >>> log = memlab.read_access_log(store.with_suffix(".reads.jsonl"))
    >>> history = memlab.StoreHistory(store, log)
    >>> ax = plot_reads_served(memlab.evidence.age_or_use(history))
    >>> {"by chance", "by use", "by age"} <= {line.get_label() for line in ax.get_lines()}
    True
    """
    plot = parts.Plot(ax, result.served, height=4.6)
    if not result.reads:
        return plot.draw_empty("What loading by age or by use serves", _NO_READS)
    ax = plot.ax
    palette = plot.palette
    served = result.served[c.TOKENS]
    legend: list[Any] = ax.plot(
        [0, 1], [0, 1], ":", color=palette.grey, linewidth=1, label="by chance"
    )
    plot.set_percent_axis(ax.xaxis, "share of the prunable tokens that is loaded", (0, 1))
    plot.set_percent_axis(ax.yaxis, "share of reads that find their memory there")
    labels = parts.PointLabels(plot)
    for name, column, colour in (
        ("by age", "newest", palette.by_age),
        ("by use", "most active", palette.by_use),
    ):
        line = served[column]
        legend += ax.step(line.index, line, where="post", color=colour, linewidth=2, label=name)
        for size, served_share in line.items():
            labels.reserve(size, served_share)
        dot: dict[str, Any] = {"color": colour, "markersize": 6, "label": "_size"}
        for size, served_share in line.loc[list(SIZES)].items():
            ax.plot(size, served_share, "o", clip_on=False, **dot)
            is_best = served_share == served.loc[size].max()
            text = parts.format_share(served_share)
            labels.write(size, served_share, text, palette.muted, above=is_best)
    plot.add_hover_areas(served.index, lambda index: _served_in_words(served, index))
    newest = parts.format_share(served["newest"].loc[0.25])
    most_active = parts.format_share(served["most active"].loc[0.25])
    plot.draw_heading(
        f"In a quarter of the tokens the most active serve {most_active} of reads, "
        f"the newest {newest}",
        f"{counted(result.reads, 'reads')} on {counted(result.days, 'days')}",
        "By age: the newest first. By use: the most active per length first",
        legend=legend[::-1],
    )
    return plot.draw_footnote(
        "Chosen before each day by base-level activation from the reads until then.",
        plot.token_note,
    )
