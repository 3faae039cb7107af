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
    EMPTY_HEIGHT,
    GREEN,
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
    say_empty,
    share,
    short,
    token_note,
)
from memlab.sizing import Advice, Verdict

ESTIMATED: Final = BLUE
OBSERVED: Final = ORANGE
_LIMITS: Final = "#C9DEEC"
_FLOOR: Final = "#E6E6E6"
_PAPER: Final = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.5}
"""Behind a name that a line may run through."""
_FAR_RIGHT: Final = 0.92
_ROUND: Final = [step * 10**zeros for zeros in range(1, 8) for step in (1, 2, 5)]
"""Caps that are named along a line."""
_NO_NEEDS: Final = "No later need for an earlier memory is known:\nnothing to size a cap by"


def plot_cap_curve(
    curve: pd.DataFrame,
    *,
    advice: Advice | None = None,
    cap: int | None = None,
    bare: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw what share of the needs every cap serves: estimated, with its limits, and as seen.

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
        With lines ``estimated`` and ``observed``, and the limits as a shade where they are known.
    """
    unknown = curve["hit_ratio"].isna().all()
    ax = axes_for(ax, height=EMPTY_HEIGHT if unknown else 4.4)
    if unknown:
        heading(ax, "What each cap would have served")
        say_empty(ax, _NO_NEEDS)
        return ax
    caps = curve.index.to_numpy()
    key = [("estimated", ESTIMATED), ("observed", OBSERVED)]
    if curve["low"].notna().any():
        ax.fill_between(caps, curve["low"], curve["high"], step="post", color=_LIMITS, linewidth=0)
        key.insert(1, ("limits", _LIMITS))
    ax.step(caps, curve["hit_ratio"], "-", color=ESTIMATED, where="post", label="estimated")
    ax.step(caps, curve["hit_ratio_observed"], "--", color=OBSERVED, where="post", label="observed")
    _caps_across(ax, max(1, int(caps[-1]), cap or 0, (advice and advice.keep_recent) or 0))
    ax.set_ylim(0, 1.03)
    percent_axis(ax.yaxis, "share of needs served")
    heading(ax, _curve_title(curve, advice, cap), key=key)
    if not bare:
        mark_cap_curve(ax, curve, advice=advice, cap=cap)
        footnote(ax, _curve_note(curve, advice))
    return ax


def mark_cap_curve(
    ax: Axes, curve: pd.DataFrame, *, advice: Advice | None = None, cap: int | None = None
) -> None:
    """Mark on a cap curve what :func:`plot_cap_curve` marks: target, budget and caps.

    For a picture that is drawn once and marked again and again. What lies outside the axes is left
    out.
    """
    if curve["hit_ratio"].isna().all():
        return
    if advice is not None:
        mark_cap(ax, advice.target, f"target {_percent(advice.target)}")
        if advice.budget_cap is not None and advice.budget_cap < curve.index[-1]:
            ax.axvspan(advice.budget_cap, ax.get_xlim()[1], color=PURPLE, alpha=0.12, linewidth=0)
            _stand(ax, advice.budget_cap, f"budget allows {advice.budget_cap:,}", PURPLE, row=2)
        if advice.keep_recent is not None:
            _stand(ax, advice.keep_recent, f"recommended {advice.keep_recent:,}", GREEN, row=1)
    if cap is not None:
        _stand(ax, cap, f"keep_recent = {cap:,}", CAP_COLOUR)
        ax.plot(cap, _row(curve, cap)["hit_ratio"], "o", color=CAP_COLOUR, label="_chosen")


def plot_trade_off(
    curve: pd.DataFrame,
    *,
    advice: Advice | None = None,
    cap: int | None = None,
    bare: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of needs served against the boot tokens it costs: what people choose on.

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
    unknown = curve["hit_ratio"].isna().all()
    ax = axes_for(ax, height=EMPTY_HEIGHT if unknown else 4.4)
    if unknown:
        heading(ax, "What a share of needs costs at every start")
        say_empty(ax, _NO_NEEDS)
        return ax
    tokens = curve["boot_tokens_p95"]
    key = [("estimated", ESTIMATED)]
    if curve["low"].notna().any():
        key.append(("limits", _LIMITS))
        ax.fill_between(tokens, curve["low"], curve["high"], color=_LIMITS, linewidth=0)
    ax.plot(tokens, curve["hit_ratio"], color=ESTIMATED, linewidth=1.6, label="estimated")
    budget = None if advice is None else advice.token_budget
    ax.set_xlim(0, 1.02 * max(1.0, tokens.iloc[-1], budget or 0))
    ax.set_ylim(0, 1.03)
    if tokens.iloc[0]:
        key.append(("load-bearing", _FLOOR))
        ax.axvspan(0, float(tokens.iloc[0]), color=_FLOOR, linewidth=0, zorder=0)
    count_axis(ax.xaxis, "boot context, tokens (p95 over the history)")
    percent_axis(ax.yaxis, "share of needs served")
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
    if curve["hit_ratio"].isna().all():
        return
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
    place = (row["boot_tokens_p95"], row["hit_ratio"])
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
        place = (row["boot_tokens_p95"], row["hit_ratio"])
        ax.plot(*place, "o", color=ESTIMATED, markersize=4, label="_named")
        _below(ax, place, cap)


def _room_for(ax: Axes, row: "pd.Series[float]", cap: int) -> Bbox:
    """Return about what a dot and the name below it cover, in pixels."""
    x, y = ax.transData.transform((row["boot_tokens_p95"], row["hit_ratio"]))
    high = 1.4 * SMALL * ax.figure.get_figure(root=True).dpi / 72
    wide = 0.5 * high * (1 + len(f"{cap:,}"))
    left = wide if _across(ax, row["boot_tokens_p95"]) > _FAR_RIGHT else 0.0
    return Bbox.from_extents(x - left, y - 1.3 * high, x - left + wide, y)


def _curve_title(curve: pd.DataFrame, advice: Advice | None, cap: int | None) -> str:
    if cap is not None:
        row = _row(curve, cap)
        if pd.isna(row["low"]):
            seen = share(float(row["hit_ratio_observed"]))
            return f"keep_recent = {cap:,} would have served {seen} of the few needs seen"
        return (
            f"keep_recent = {cap:,} serves an estimated {share(float(row['hit_ratio']))} of needs"
        )
    if advice is None:
        return "What each cap would have served"
    target = _percent(advice.target)
    if advice.verdict is Verdict.OK:
        return (
            f"keep_recent = {advice.keep_recent:,} serves {target} of needs, "
            f"with {_percent(advice.confidence)} confidence"
        )
    return {
        Verdict.CAP_HAS_NO_EFFECT: f"{target} of needs take more rows than there are: keep all",
        Verdict.FLOOR_EXCEEDS_BUDGET: "Load-bearing rows alone pass the token budget",
        Verdict.TARGET_EXCEEDS_BUDGET: f"No cap meets {target} within the token budget",
        Verdict.TOO_FEW_REFERENCES: "Too few needs are known to recommend a cap",
        Verdict.HORIZON_TOO_SHORT: "Needs keep coming as far back as this history can show",
        Verdict.TARGET_BEYOND_HORIZON: f"{target} of needs reach farther than this history shows",
    }[advice.verdict]


def _curve_note(curve: pd.DataFrame, advice: Advice | None) -> str:
    """Say how to read the two lines and the shade."""
    seen = "Observed counts references as they are; estimated corrects for memories too young for "
    if curve["low"].isna().all():
        return f"{seen}long distances. Too few independent needs for limits."
    confidence = "" if advice is None else f" of {_percent(advice.confidence)}"
    return f"{seen}long distances. Limits{confidence} are for a stretch to come, a fifth as long."


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
            f"{_percent(advice.target)} of needs cost {short(meets.boot_tokens_p95)} tokens, "
            f"the budget is {short(advice.token_budget or 0)}"
        )
    if cap is None and advice is not None and advice.hit_ratio is not None:
        # The curve need not list the recommended cap itself.
        return _price(advice.hit_ratio, advice.boot_tokens_p95 or 0)
    if cap is None:
        return "What a share of needs costs at every start"
    row = _row(curve, cap)
    if pd.isna(row["low"]):
        return f"keep_recent = {cap:,} costs {_at_every_start(row['boot_tokens_p95'])}"
    return _price(float(row["hit_ratio"]), row["boot_tokens_p95"])


def _price(hit_ratio: float, tokens: float) -> str:
    return f"{share(hit_ratio)} of needs for {_at_every_start(tokens)}"


def _at_every_start(tokens: float) -> str:
    return f"{counted(tokens, 'tokens')} at every start"
