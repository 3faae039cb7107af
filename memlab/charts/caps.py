"""Charts of caps: the share of references that each serves, and its cost in tokens."""

from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes

from memlab.charts.figure import on_own_figure
from memlab.charts.hover import ABOVE_AREAS
from memlab.charts.parts import (
    CapKind,
    Plot,
    PointLabels,
    format_share,
    format_short,
    shade,
)
from memlab.sizing import Advice, Verdict
from memlab.text import counted, percent, percent_as_given

_LABELLED_CAPS: Final = [step * 10**zeros for zeros in range(8) for step in (1, 2, 5)]
"""Caps that can be labelled along a line."""
_WIDE_RANGE: Final = 20
"""Ratio of the largest to the smallest cost from which the axis of tokens is logarithmic."""
_MIN_LOGARITHMIC: Final = 20
"""Smallest cap at the end of a logarithmic axis of caps; below, the axis is linear."""
_TITLE_SHARES: Final = (0.5, 0.9)
"""Shares of references in a title if no target is set."""
_VERDICTS_WITH_NUMBERS: Final = (Verdict.OK, Verdict.FROM_OTHER_PROJECTS)
"""Verdicts with numbers, which the title shows; for others it shows the meaning."""
_NO_PRUNABLE: Final = "No prunable memory yet: nothing that a cap could keep or delete"


@on_own_figure
def plot_cap_curve(
    curve: pd.DataFrame,
    *,
    advice: Advice | None = None,
    cap: int | None = None,
    bare: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of references that every cap serves, with its limits.

    The lines are ``estimated``, ``lower limit``, ``other projects`` and, if the store has
    references, ``this store``. A shade shows the limits.

    Parameters
    ----------
    curve : DataFrame
        The curve from :func:`memlab.sizing.cap_curve`: one row a cap, shares from 0 to 1.
    advice : Advice, optional
        The recommendation, whose target, budget and caps are marked.
    cap : int, optional
        Another cap to mark, in memories.
    bare : bool, optional
        Whether to leave out the marks of :func:`mark_cap_curve` and the note below.
    ax : Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> curve = memlab.sizing.cap_curve(memlab.store_path("two_years"))
    >>> [line.get_label() for line in plot_cap_curve(curve, bare=True).get_lines()]
    ['other projects', 'this store', 'lower limit', 'estimated']
    """
    plot = Plot(ax, curve, height=4.5)
    if len(curve) < 2:
        return plot.draw_empty("What each cap serves", _NO_PRUNABLE)
    ax = plot.ax
    palette = plot.palette
    caps = curve.index.to_numpy()
    name_of_limits = "limits"
    if advice is not None:
        name_of_limits = f"limits of {percent_as_given(advice.confidence)}"
    shaded = {**shade(palette.likely), "step": "post", "label": name_of_limits}
    # The artists of the legend, in the order in which they are drawn.
    legend: list[Any] = [ax.fill_between(caps, curve["low"], curve["high"], **shaded)]
    for column, name, colour, width, dashes in (
        ("served_elsewhere", "other projects", palette.grey, 1.4, ":"),
        ("served_own", "this store", palette.ink, 1.4, (0, (5, 3))),
        ("low", "lower limit", palette.safe, 1.4, "-"),
        ("served", "estimated", palette.likely, 2.4, "-"),
    ):
        if curve[column].notna().any():
            options: dict[str, Any] = {"color": colour, "linewidth": width, "linestyle": dashes}
            legend += ax.step(caps, curve[column], where="post", label=name, **options)
    plot.add_hover_areas(caps, lambda index: _row_in_words(curve, index))
    largest = max(1, int(caps[-1]))
    if cap is not None:
        largest = max(largest, cap)
    if advice is not None and advice.keep_recent is not None:
        largest = max(largest, advice.keep_recent)
    axis_name = "keep_recent: how many of the newest prunable memories stay"
    ax.set_xlim(0, largest)
    if largest < _MIN_LOGARITHMIC:
        plot.set_count_axis(ax.xaxis, axis_name)
    else:
        powers_of_ten = [10**zeros for zeros in range(9)]
        ticks = [0, *[power for power in powers_of_ten if power <= largest]]
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        ax.set_xticks([], minor=True)
        plot.name_axis(ax.xaxis, axis_name)
    plot.set_percent_axis(ax.yaxis, "share of references served")
    # The main line is drawn last, over the others, and is first in the legend.
    plot.draw_heading(_curve_title(curve, advice, cap), legend=legend[::-1])
    if not bare:
        mark_cap_curve(ax, curve, advice=advice, cap=cap)
        plot.draw_footnote(_curve_note(advice))
    return ax


def mark_cap_curve(
    ax: Axes, curve: pd.DataFrame, *, advice: Advice | None = None, cap: int | None = None
) -> None:
    """Mark the target, the budget and the caps on axes with a curve.

    The sizing panel draws the curve once and its marks after every change.

    Parameters
    ----------
    ax : Axes
        The axes that :func:`plot_cap_curve` returned.
    curve : DataFrame
        The same curve.
    advice, cap
        As for :func:`plot_cap_curve`.

    Examples
    --------
    >>> import memlab
    >>> curve = memlab.sizing.cap_curve(memlab.store_path("two_years"))
    >>> ax = plot_cap_curve(curve, bare=True)
    >>> lines = len(ax.get_lines())
    >>> mark_cap_curve(ax, curve, cap=100)
    >>> len(ax.get_lines()) > lines
    True
    """
    if len(curve) < 2:
        return
    plot = Plot(ax)
    palette = plot.palette
    if advice is not None:
        plot.draw_target(advice.target)
        budget_cap = advice.budget_cap
        if budget_cap is not None and budget_cap < curve.index[-1]:
            ax.axvspan(budget_cap, ax.get_xlim()[1], **shade(palette.ink, 0.08))
            plot.draw_vertical_line(budget_cap, f"budget allows {budget_cap:,}", palette.ink, row=3)
    # The labels are written in rows one below the other, so that they do not overlap.
    marked_caps = plot.caps_to_mark(advice, cap)
    for row_of_label, marked in enumerate(reversed(marked_caps)):
        plot.draw_vertical_line(marked.value, marked.name, marked.colour, row=row_of_label)
        if marked.value > curve.index[-1]:
            continue  # the curve ends before a cap that is meant for later growth
        served = _marked_share(_row_of_cap(curve, marked.value), marked.kind)
        options: dict[str, Any] = {"label": "_chosen", "zorder": ABOVE_AREAS, "clip_on": False}
        (mark,) = ax.plot(marked.value, served, "o", color=marked.colour, **options)
        plot.add_hover_text(mark, f"{marked.name}: serves {format_share(served)} of references")


@on_own_figure
def plot_trade_off(
    curve: pd.DataFrame,
    *,
    advice: Advice | None = None,
    cap: int | None = None,
    bare: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of references that caps serve against their cost in tokens.

    The lines ``estimated`` and ``lower limit`` are over the 95th percentile of the tokens at start.
    The axis of tokens is logarithmic if the largest cost is twenty times the smallest.

    Parameters
    ----------
    curve : DataFrame
        The curve from :func:`memlab.sizing.cap_curve`.
    advice, cap, ax
        As for :func:`plot_cap_curve`.
    bare : bool, optional
        Whether to leave out the marks of :func:`mark_trade_off` and the note below.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import memlab
    >>> curve = memlab.sizing.cap_curve(memlab.store_path("two_years"))
    >>> [line.get_label() for line in plot_trade_off(curve, bare=True).get_lines()]
    ['estimated', 'lower limit']
    """
    plot = Plot(ax, curve, height=4.6)
    if len(curve) < 2:
        return plot.draw_empty("What references cost", _NO_PRUNABLE)
    ax = plot.ax
    palette = plot.palette
    tokens = curve["boot_tokens_p95"]
    legend: list[Any] = [
        *ax.plot(tokens, curve["served"], color=palette.likely, linewidth=1.8, label="estimated"),
        ax.fill_between(
            tokens, curve["low"], curve["high"], label="limits", **shade(palette.likely)
        ),
        *ax.plot(tokens, curve["low"], color=palette.safe, linewidth=1.4, label="lower limit"),
    ]
    plot.add_hover_areas(tokens, lambda index: _cost_in_words(curve, index))
    budget = None if advice is None else advice.token_budget
    axis_name = plot.loaded_or_recalled("tokens at start", "tokens to recall from")
    moments = plot.loaded_or_recalled("starts", "moments")
    _set_token_axis(plot, tokens, budget, f"{axis_name} (95% of past {moments} had no more)")
    left_edge = ax.get_xlim()[0]
    floor = float(tokens.iloc[0])
    if floor > left_edge:
        area = ax.axvspan(left_edge, floor, zorder=0, **shade(palette.load_bearing))
        area.set_label("load-bearing: no cap goes below")
        legend.append(area)
    plot.set_percent_axis(ax.yaxis, "share of references served")
    plot.draw_heading(_trade_title(plot, curve, advice, cap), legend=legend)
    if not bare:
        plot.draw_footnote("Numbers along the line are caps.", plot.token_note)
        plot.compute_layout()
        mark_trade_off(ax, curve, advice=advice, cap=cap)
    return ax


def mark_trade_off(
    ax: Axes, curve: pd.DataFrame, *, advice: Advice | None = None, cap: int | None = None
) -> None:
    """Mark the target, the budget and the caps on axes of :func:`plot_trade_off`.

    The parameters are those of :func:`mark_cap_curve`.

    Examples
    --------
    >>> import memlab
    >>> curve = memlab.sizing.cap_curve(memlab.store_path("two_years"))
    >>> ax = plot_trade_off(curve, bare=True)
    >>> mark_trade_off(ax, curve, cap=100)
    >>> "_cap" in [line.get_label() for line in ax.get_lines()]
    True
    """
    if len(curve) < 2:
        return
    plot = Plot(ax)
    palette = plot.palette
    labels = PointLabels(plot)
    # A cost of zero is drawn at the edge of a logarithmic axis.
    tokens = curve["boot_tokens_p95"].clip(lower=ax.get_xlim()[0])
    curve = curve.assign(boot_tokens_p95=tokens)
    if advice is not None:
        labels.reserve_text(plot.draw_target(advice.target))
        if advice.token_budget is not None:
            plot.draw_vertical_line(
                advice.token_budget, f"budget {format_short(advice.token_budget)}", palette.ink
            )
    for marked in plot.caps_to_mark(advice, cap):
        if marked.value > curve.index[-1]:
            continue
        row = _row_of_cap(curve, marked.value)
        x = float(row["boot_tokens_p95"])
        y = _marked_share(row, marked.kind)
        options: dict[str, Any] = {
            "markersize": 7,
            "label": "_cap",
            "zorder": ABOVE_AREAS,
            "clip_on": False,
        }
        (mark,) = ax.plot(x, y, "o", color=marked.colour, **options)
        plot.add_hover_text(
            mark, f"{marked.name}: serves {format_share(y)} for {format_short(x)} tokens"
        )
        labels.reserve(x, y)
        above = marked.kind is CapKind.LIKELY
        labels.write(x, y, marked.name, marked.colour, above=above, weight="bold")
    # A narrow chart has room for the powers of ten only.
    named_caps = _LABELLED_CAPS[::3] if plot.is_narrow else _LABELLED_CAPS
    for round_cap in curve.index.intersection(named_caps):
        row = _row_of_cap(curve, int(round_cap))
        x = float(row["boot_tokens_p95"])
        y = float(row["served"])
        has_room = labels.write(x, y, f"{round_cap:,}", palette.muted) is not None
        if has_room:
            options_of_dot: dict[str, Any] = {
                "markersize": 4,
                "label": "_named",
                "zorder": ABOVE_AREAS,
                "clip_on": False,
            }
            (mark,) = ax.plot(x, y, "o", color=palette.likely, **options_of_dot)
            plot.add_hover_text(
                mark, f"{round_cap:,}: serves {format_share(y)} for {format_short(x)} tokens"
            )


def _row_in_words(curve: pd.DataFrame, index: int) -> str:
    """Describe the share of references that a cap serves, with limits and by kind of evidence."""
    row = curve.iloc[index]
    low = format_share(float(row["low"]))
    served = format_share(float(row["served"]))
    high = format_share(float(row["high"]))
    text = f"keep_recent = {curve.index[index]:,} serves {served} of references ({low} to {high})"
    for column, name in (("served_own", "this store"), ("served_elsewhere", "other projects")):
        if pd.notna(row[column]):
            text += f", by {name} {format_share(float(row[column]))}"
    return text


def _cost_in_words(curve: pd.DataFrame, index: int) -> str:
    """Describe the share of references that a cap serves, and its cost."""
    row = curve.iloc[index]
    cost = counted(row["boot_tokens_p95"], "tokens")
    serves = f"serves {format_share(float(row['served']))} of references"
    return f"keep_recent = {curve.index[index]:,} {serves} for {cost}"


def _row_of_cap(curve: pd.DataFrame, cap: int) -> "pd.Series[float]":
    """Return the row of a curve for a cap: the nearest at or below it, else the first."""
    return curve.loc[: max(cap, curve.index[0])].iloc[-1]


def _cost(curve: pd.DataFrame, cap: int) -> float:
    """Return the cost of a cap in tokens."""
    return float(_row_of_cap(curve, cap)["boot_tokens_p95"])


def _marked_share(row: "pd.Series[float]", kind: CapKind) -> float:
    """Return the share at which a cap is marked: the lower limit for the safe cap."""
    column = "low" if kind is CapKind.SAFE else "served"
    return float(row[column])


def _set_token_axis(plot: Plot, tokens: "pd.Series[float]", budget: int | None, name: str) -> None:
    """Set the x axis for tokens; it is logarithmic if they range widely."""
    ax = plot.ax
    largest = max(1.0, float(tokens.iloc[-1]), budget or 0)
    smallest = float(tokens[tokens > 0].min())  # NaN if all are zero
    is_logarithmic = largest >= _WIDE_RANGE * smallest
    if is_logarithmic:
        left_edge = 0.7 * min(smallest, budget or smallest)
        plot.set_log_axis(ax.xaxis, f"{name}, log scale", (left_edge, 1.25 * largest))
        return
    right_edge = 1.02 * largest
    left_edge = 0.0
    if smallest > largest / 2:  # a large floor: an axis from zero would leave the caps little room
        left_edge = smallest - 0.15 * (right_edge - smallest)
    ax.set_xlim(left_edge, right_edge)
    plot.set_count_axis(ax.xaxis, name)


def _curve_title(curve: pd.DataFrame, advice: Advice | None, cap: int | None) -> str:
    """Return the title of a curve: its finding on the cap, or on the recommended ones."""
    if cap is not None:
        row = _row_of_cap(curve, cap)
        low = percent(row["low"], decimals=0).removesuffix("%")
        limits = f"limits {low} to {percent(row['high'], decimals=0)}"
        served = f"{format_share(float(row['served']))} of references ({limits})"
        return f"keep_recent = {cap:,} serves an estimated {served}"
    if advice is None:
        half, nine_tenths = _TITLE_SHARES
        newest = f"The newest {_cap_serving(curve, half):,} serve half of the references"
        return f"{newest}, the newest {_cap_serving(curve, nine_tenths):,} nine in ten"
    if advice.verdict not in _VERDICTS_WITH_NUMBERS:
        return _meaning(advice)
    serve = f"likely serve {percent_as_given(advice.target)} of references"
    title = f"The newest {advice.likely or 0:,} {serve}, {advice.keep_recent or 0:,} safely"
    if advice.verdict is Verdict.FROM_OTHER_PROJECTS:
        title += ", by other projects"
    return title


def _curve_note(advice: Advice | None) -> str:
    """Return the note on how to read the lines and the shade."""
    if advice is None:
        return "A cap is for the growing store: the limits are for its next stretch."
    validity = f"The caps are valid until {advice.until:,} episodes are written."
    own_share = percent(advice.weight, decimals=0)
    prior_share = percent(1 - advice.weight, decimals=0)
    weights = f"{own_share} from this store, {prior_share} from other projects"
    return f"Estimated: {weights}. {validity}"


def _cap_serving(curve: pd.DataFrame, wanted_share: float) -> int:
    """Return the smallest cap that is expected to serve a share; the largest if none does."""
    count_of_smaller = int((curve["served"] < wanted_share).sum())
    last = len(curve) - 1
    return int(curve.index[min(count_of_smaller, last)])


def _trade_title(plot: Plot, curve: pd.DataFrame, advice: Advice | None, cap: int | None) -> str:
    """Return the title of a trade-off: the share that is served, and its cost."""
    moments = plot.loaded_or_recalled("starts", "moments")
    if cap is not None:
        row = _row_of_cap(curve, cap)
        at_most = f"at most {counted(row['boot_tokens_p95'], 'tokens')}"
        price = f"{at_most} at 95% of past {moments}"
        return f"{format_share(float(row['served']))} of references for {price}"
    if advice is None:
        half, nine_tenths = _TITLE_SHARES
        cost_of_half = format_short(_cost(curve, _cap_serving(curve, half)))
        cost_of_nine_tenths = format_short(_cost(curve, _cap_serving(curve, nine_tenths)))
        return (
            f"Serving half of the references takes {cost_of_half} tokens at most, "
            f"nine in ten {cost_of_nine_tenths}: at 95% of past {moments}"
        )
    if advice.verdict not in _VERDICTS_WITH_NUMBERS:
        return _meaning(advice)
    # The tokens of the answer are those of a start today, those of the chart are of past starts.
    # So the title names caps instead.
    caps = f"a cap of {advice.keep_recent or 0:,} (safe) or {advice.likely or 0:,} (likely)"
    return f"Serving {percent_as_given(advice.target)} of references takes {caps}"


def _meaning(advice: Advice) -> str:
    """Return the meaning of a verdict without numbers, as a title."""
    meaning = advice.verdict.meaning
    return meaning[0].upper() + meaning[1:]
