"""Charts of caps: what each serves, and what it costs."""

from collections.abc import Sequence
from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from memlab.charts._style import (
    BLUE,
    CAP_COLOUR,
    GREEN,
    GREY,
    MUTED,
    ORANGE,
    PURPLE,
    SMALL,
    axes_for,
    count_axis,
    counted,
    footnote,
    heading,
    mark_cap,
    percent_axis,
    share,
    short,
    token_note,
)
from memlab.sizing import Advice, Verdict

ESTIMATED: Final = BLUE
OWN: Final = ORANGE
ELSEWHERE: Final = GREY
_LIMITS: Final = "#C9DEEC"
_FLOOR: Final = "#E6E6E6"
_PAPER: Final = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.5}
"""Behind a name that a line may run through."""
_FAR_RIGHT: Final = 0.92
_ROUND: Final = [step * 10**zeros for zeros in range(1, 8) for step in (1, 2, 5)]
"""Caps that are named along a line."""


def plot_cap_curve(
    curve: pd.DataFrame,
    *,
    advice: Advice | None = None,
    cap: int | None = None,
    bare: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw what share of references every cap serves, with limits, and the two parts of it.

    Parameters
    ----------
    curve : pandas.DataFrame
        As :func:`memlab.sizing.cap_curve` returns it.
    advice : Advice, optional
        As :func:`memlab.recommend_cap` returns it: its target and its cap are drawn.
    cap : int, optional
        A cap to look at; the title then speaks of it.
    bare : bool
        Leave out what :func:`mark_cap_curve` marks, and the note below.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With lines ``estimated``, ``this store`` where it has references and ``other projects``, and
        the limits as a shade.
    """
    ax = axes_for(ax, height=4.4)
    caps = curve.index.to_numpy()
    key = [("estimated", ESTIMATED), ("limits", _LIMITS), ("other projects alone", ELSEWHERE)]
    ax.fill_between(caps, curve["low"], curve["high"], step="post", color=_LIMITS, linewidth=0)
    ax.step(
        caps, curve["served_elsewhere"], ":", color=ELSEWHERE, where="post", label="other projects"
    )
    if curve["served_own"].notna().any():
        ax.step(caps, curve["served_own"], "--", color=OWN, where="post", label="this store")
        key.insert(2, ("this store alone", OWN))
    ax.step(caps, curve["served"], "-", color=ESTIMATED, where="post", label="estimated")
    _caps_across(ax, max(1, int(caps[-1]), cap or 0, (advice and advice.keep_recent) or 0))
    ax.set_ylim(0, 1.03)
    percent_axis(ax.yaxis, "share of references served")
    heading(ax, _curve_title(curve, advice, cap), key=key)
    if not bare:
        mark_cap_curve(ax, curve, advice=advice, cap=cap)
        footnote(ax, _curve_note(advice))
    return ax


def mark_cap_curve(
    ax: Axes, curve: pd.DataFrame, *, advice: Advice | None = None, cap: int | None = None
) -> None:
    """Mark on a cap curve what :func:`plot_cap_curve` marks: target, budget and caps.

    For a picture that is drawn once and marked again and again. What lies outside the axes is left
    out.
    """
    if advice is not None:
        mark_cap(ax, advice.target, f"target {_percent(advice.target)}")
        if advice.budget_cap is not None and advice.budget_cap < curve.index[-1]:
            ax.axvspan(advice.budget_cap, ax.get_xlim()[1], color=PURPLE, alpha=0.12, linewidth=0)
            _stand(ax, advice.budget_cap, f"budget allows {advice.budget_cap:,}", PURPLE, row=2)
        if advice.keep_recent is not None:
            _stand(ax, advice.keep_recent, f"recommended {advice.keep_recent:,}", GREEN, row=1)
    if cap is not None:
        _stand(ax, cap, f"keep_recent = {cap:,}", CAP_COLOUR)
        ax.plot(cap, _row(curve, cap)["served"], "o", color=CAP_COLOUR, label="_chosen")


def plot_trade_off(
    curve: pd.DataFrame,
    *,
    advice: Advice | None = None,
    cap: int | None = None,
    bare: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of references served against the boot tokens it costs: what people choose on.

    Parameters
    ----------
    curve : pandas.DataFrame
        As :func:`memlab.sizing.cap_curve` returns it.
    advice : Advice, optional
        As :func:`memlab.recommend_cap` returns it: its target, budget and cap are drawn.
    cap : int, optional
        A cap to look at.
    bare : bool
        Leave out what :func:`mark_trade_off` marks, and the note below.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        With a line ``estimated`` of hit ratio against the 95th percentile of boot tokens.
    """
    ax = axes_for(ax, height=4.4)
    tokens = curve["boot_tokens_p95"]
    key = [("estimated", ESTIMATED), ("limits", _LIMITS)]
    ax.fill_between(tokens, curve["low"], curve["high"], color=_LIMITS, linewidth=0)
    ax.plot(tokens, curve["served"], color=ESTIMATED, linewidth=1.6, label="estimated")
    budget = None if advice is None else advice.token_budget
    ax.set_xlim(0, 1.02 * max(1.0, tokens.iloc[-1], budget or 0))
    ax.set_ylim(0, 1.03)
    if tokens.iloc[0]:
        key.append(("load-bearing", _FLOOR))
        ax.axvspan(0, float(tokens.iloc[0]), color=_FLOOR, linewidth=0, zorder=0)
    count_axis(ax.xaxis, "boot context, tokens (p95 over the history)")
    percent_axis(ax.yaxis, "share of references served")
    heading(ax, _trade_title(curve, advice, cap), key=key)
    if not bare:
        mark_trade_off(ax, curve, advice=advice, cap=cap)
        footnote(
            ax,
            "Numbers along the line are caps; none goes below the load-bearing rows. "
            f"{token_note(curve)}",
        )
    return ax


def mark_trade_off(
    ax: Axes, curve: pd.DataFrame, *, advice: Advice | None = None, cap: int | None = None
) -> None:
    """Mark on a trade-off what :func:`plot_trade_off` marks: target, budget, caps by name."""
    if advice is not None:
        mark_cap(ax, advice.target)
        ax.annotate(
            f"target {_percent(advice.target)}",
            (1, advice.target),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            color=CAP_COLOUR,
            fontsize=SMALL,
            bbox=_PAPER,
        )
        if advice.token_budget is not None:
            _stand(ax, advice.token_budget, f"budget {short(advice.token_budget)}", PURPLE)
        if advice.keep_recent is not None:
            _dot(ax, curve, advice.keep_recent, GREEN)
    if cap is not None:
        _dot(ax, curve, cap, CAP_COLOUR)
    _name_caps(ax, curve, beside=[None if advice is None else advice.keep_recent, cap])


def _row(curve: pd.DataFrame, cap: int) -> "pd.Series[float]":
    """Return the line of the curve that holds at `cap`: the nearest at or below it."""
    return curve.iloc[int(curve.index.searchsorted(cap, side="right")) - 1]


def _caps_across(ax: Axes, most: int) -> None:
    """Set a logarithmic axis of caps that begins at 0."""
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(0, most)
    ticks = [0, *(10**zeros for zeros in range(9) if 10**zeros <= most)]
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("keep_recent")


def _stand(ax: Axes, x: float, text: str, colour: str, *, row: int = 0) -> None:
    """Draw a line up from `x` and name it at its foot, on the side where there is room."""
    if not ax.get_xlim()[0] <= x <= ax.get_xlim()[1]:
        return
    ax.axvline(x, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), label="_cap")
    left = _across(ax, x) > 0.6
    ax.annotate(
        text,
        (x, 0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if left else 4, 5 + 13 * row),
        textcoords="offset points",
        ha="right" if left else "left",
        color=colour,
        fontsize=SMALL,
        bbox=_PAPER,
    )


def _percent(value: float) -> str:
    """Write a target as it was set: 90 %, 97.5 %."""
    return f"{100 * value:.4g} %"


def _across(ax: Axes, x: float) -> float:
    """Return where `x` lies between the left edge of the axes, 0, and the right one, 1."""
    return float((ax.transData + ax.transAxes.inverted()).transform((x, 0.5))[0])


def _dot(ax: Axes, curve: pd.DataFrame, cap: int, colour: str) -> None:
    """Mark a cap on the line of a trade-off, and name it below: the line bends the other way."""
    row = _row(curve, cap)
    place = (row["boot_tokens_p95"], row["served"])
    ax.plot(*place, "o", color=colour, markersize=7, label="_cap", zorder=3)
    _below(ax, place, cap).set(color=colour, fontweight="bold")


def _below(ax: Axes, place: tuple[float, float], cap: int) -> Annotation:
    """Name a cap below the line and to the right, to the left at the right edge."""
    left = _across(ax, place[0]) > _FAR_RIGHT
    return ax.annotate(
        f"{cap:,}",
        place,
        xytext=(-6 if left else 6, -4),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        color=MUTED,
        fontsize=SMALL,
        bbox=_PAPER,
    )


def _name_caps(ax: Axes, curve: pd.DataFrame, *, beside: Sequence[int | None]) -> None:
    """Name round caps below the line of a trade-off, those that find room."""
    taken = [_room_for(ax, _row(curve, cap), cap) for cap in beside if cap is not None]
    for cap in curve.index.intersection(_ROUND):
        row = curve.loc[cap]
        room = _room_for(ax, row, cap)
        if any(room.overlaps(other) for other in taken):
            continue
        taken.append(room)
        place = (row["boot_tokens_p95"], row["served"])
        ax.plot(*place, "o", color=ESTIMATED, markersize=4, label="_named")
        _below(ax, place, cap)


def _room_for(ax: Axes, row: "pd.Series[float]", cap: int) -> Bbox:
    """Return about what a dot and the name below it cover, in pixels."""
    x, y = ax.transData.transform((row["boot_tokens_p95"], row["served"]))
    high = 1.4 * SMALL * ax.figure.get_figure(root=True).dpi / 72
    wide = 0.5 * high * (1 + len(f"{cap:,}"))
    left = wide if _across(ax, row["boot_tokens_p95"]) > _FAR_RIGHT else 0.0
    return Bbox.from_extents(x - left, y - 1.3 * high, x - left + wide, y)


def _curve_title(curve: pd.DataFrame, advice: Advice | None, cap: int | None) -> str:
    if cap is not None:
        served = share(float(_row(curve, cap)["served"]))
        return f"keep_recent = {cap:,} serves an estimated {served} of references"
    if advice is None:
        return "What each cap serves"
    target = _percent(advice.target)
    if advice.verdict is Verdict.OK:
        return (
            f"keep_recent = {advice.keep_recent:,} serves {target} of references, "
            f"with {_percent(advice.confidence)} confidence"
        )
    return {
        Verdict.FROM_OTHER_PROJECTS: (
            f"By other projects, keep_recent = {advice.keep_recent or 0:,} serves {target} of "
            "references"
        ),
        Verdict.CAP_HAS_NO_EFFECT: f"{target} of references take more rows than there are",
        Verdict.FLOOR_EXCEEDS_BUDGET: "Load-bearing rows alone pass the token budget",
        Verdict.TARGET_EXCEEDS_BUDGET: f"No cap meets {target} within the token budget",
        Verdict.HORIZON_TOO_SHORT: "References reach as far back as this history can show",
        Verdict.TARGET_BEYOND_HORIZON: f"No evidence is fine enough for a target of {target}",
        Verdict.HISTORY_INCOMPLETE: "Memories were deleted that a number would rest on",
    }[advice.verdict]


def _curve_note(advice: Advice | None) -> str:
    """Say how to read the lines and the shade."""
    if advice is None:
        return "Limits are for the next stretch, until the store has doubled."
    return (
        f"Estimated: {advice.weight:.0%} from this store, {1 - advice.weight:.0%} from other "
        f"projects. Limits of {_percent(advice.confidence)} are for the next stretch, until the "
        "store has doubled."
    )


def _trade_title(curve: pd.DataFrame, advice: Advice | None, cap: int | None) -> str:
    """Say what is bought and what it costs, as far as it is known."""
    if advice is not None and advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
        return (
            f"Load-bearing rows cost {short(advice.floor.tokens)} tokens, "
            f"the budget is {short(advice.token_budget or 0)}"
        )
    if advice is not None and advice.trade and cap is None:
        meets, _ = advice.trade
        return (
            f"{_percent(advice.target)} of references cost {short(meets.boot_tokens_p95)} tokens, "
            f"the budget is {short(advice.token_budget or 0)}"
        )
    if cap is None and advice is not None and advice.served is not None:
        # The curve need not list the recommended cap itself.
        return _price(advice.served, advice.boot_tokens_p95 or 0)
    if cap is None:
        return "What a share of references costs at every start"
    row = _row(curve, cap)
    return _price(float(row["served"]), row["boot_tokens_p95"])


def _price(served: float, tokens: float) -> str:
    return f"{share(served)} of references for {_at_every_start(tokens)}"


def _at_every_start(tokens: float) -> str:
    return f"{counted(tokens, 'tokens')} at every start"
