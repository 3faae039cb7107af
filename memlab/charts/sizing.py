"""Charts of caps: what each serves, and what it costs."""

from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.text import Annotation

from memlab.charts._style import (
    EMPTY_HEIGHT,
    SMALL,
    Names,
    about,
    axes_for,
    footnote,
    heading,
    mark_cap,
    name_across,
    on_paper,
    percent_of,
    say_empty,
    share,
    short,
    token_note,
)
from memlab.charts.figure import on_its_own
from memlab.charts.palette import palette_of
from memlab.charts.scales import count_axis, log_axis, percent_axis
from memlab.sizing import Advice, Verdict
from memlab.text import counted

_ROUND: Final = [step * 10**zeros for zeros in range(8) for step in (1, 2, 5)]
"""Caps that are named along a line."""
_WIDE_RANGE: Final = 20
"""From how many times its least the cost of a trade-off is drawn on a logarithmic axis."""
_NOTHING: Final = "No prunable memory yet: nothing that a cap could keep or delete"


@on_its_own
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
    nothing = len(curve) < 2
    ax, paint = axes_for(ax, height=EMPTY_HEIGHT if nothing else 4.5)
    if nothing:
        heading(ax, "What each cap serves", about(curve))
        say_empty(ax, _NOTHING)
        return ax
    caps = curve.index.to_numpy()
    shade: dict[str, Any] = {"color": paint.blue, "alpha": 0.22, "linewidth": 0}
    ax.fill_between(caps, curve["low"], curve["high"], step="post", **shade)
    _step(ax, curve["served_elsewhere"], paint.grey, label="other projects", linestyle=":")
    key: list[Any] = [("other projects alone", paint.grey, "dotted")]
    if curve["served_own"].notna().any():
        _step(ax, curve["served_own"], paint.gold, label="this store", linestyle=(0, (5, 3)))
        key.insert(0, ("this store alone", paint.gold, "dashed"))
    _step(ax, curve["served"], paint.blue, label="estimated", linestyle="-")
    limits = "limits" if advice is None else f"limits of {percent_of(advice.confidence)}"
    key = [("estimated", paint.blue, "line"), (limits, paint.blue, "shade"), *key]
    _caps_across(ax, max(1, int(caps[-1]), cap or 0, (advice and advice.keep_recent) or 0))
    ax.set_ylim(0, 1.03)
    percent_axis(ax.yaxis, "share of references served")
    heading(ax, _curve_title(curve, advice, cap), about(curve), key=key)
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
    if len(curve) < 2:
        return
    paint = palette_of(ax)
    if advice is not None:
        mark_cap(ax, advice.target, f"target {percent_of(advice.target)}")
        if advice.budget_cap is not None and advice.budget_cap < curve.index[-1]:
            beyond: dict[str, Any] = {"color": paint.budget, "alpha": 0.12, "linewidth": 0}
            ax.axvspan(advice.budget_cap, ax.get_xlim()[1], **beyond)
            allowed = f"budget allows {advice.budget_cap:,}"
            _stand(ax, advice.budget_cap, allowed, paint.budget, row=2)
        if advice.keep_recent is not None:
            recommended = f"recommended {advice.keep_recent:,}"
            _stand(ax, advice.keep_recent, recommended, paint.recommended, row=1)
    if cap is not None:
        _stand(ax, cap, f"keep_recent = {cap:,}", paint.cap)
        ax.plot(cap, _row(curve, cap)["served"], "o", color=paint.cap, label="_chosen")


@on_its_own
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
        With a line ``estimated`` of the share against the 95th percentile of boot tokens, on a
        logarithmic axis where the costliest cap costs twenty times the cheapest.
    """
    nothing = len(curve) < 2
    ax, paint = axes_for(ax, height=EMPTY_HEIGHT if nothing else 4.6)
    if nothing:
        heading(ax, "What a share of references costs at every start", about(curve))
        say_empty(ax, _NOTHING)
        return ax
    tokens = curve["boot_tokens_p95"]
    key: list[Any] = [("estimated", paint.blue, "line"), ("its limits", paint.blue, "shade")]
    shade: dict[str, Any] = {"color": paint.blue, "alpha": 0.22, "linewidth": 0}
    ax.fill_between(tokens, curve["low"], curve["high"], **shade)
    ax.plot(tokens, curve["served"], color=paint.blue, linewidth=1.8, label="estimated")
    budget = None if advice is None else advice.token_budget
    name = "boot context in tokens (only 5 % of the moments had more)"
    _tokens_across(ax, tokens, budget, name)
    ax.set_ylim(0, 1.03)
    if tokens.iloc[0] > ax.get_xlim()[0]:
        key.append(("load-bearing: no cap goes below", paint.grey, "shade"))
        floor: dict[str, Any] = {"color": paint.grey, "alpha": 0.22, "linewidth": 0, "zorder": 0}
        ax.axvspan(ax.get_xlim()[0], float(tokens.iloc[0]), **floor)
    percent_axis(ax.yaxis, "share of references served")
    heading(ax, _trade_title(curve, advice, cap), about(curve), key=key)
    if not bare:
        mark_trade_off(ax, curve, advice=advice, cap=cap)
        footnote(ax, "Numbers along the line are caps.", token_note(curve))
    return ax


def mark_trade_off(
    ax: Axes, curve: pd.DataFrame, *, advice: Advice | None = None, cap: int | None = None
) -> None:
    """Mark on a trade-off what :func:`plot_trade_off` marks: target, budget, caps by name."""
    if len(curve) < 2:
        return
    paint, names = palette_of(ax), Names(ax)
    if advice is not None:
        mark_cap(ax, advice.target, f"target {percent_of(advice.target)}")
        if advice.token_budget is not None:
            budget = f"budget {short(advice.token_budget)}"
            _stand(ax, advice.token_budget, budget, paint.budget)
        if advice.keep_recent is not None:
            _dot(ax, names, curve, advice.keep_recent, paint.recommended)
    if cap is not None:
        _dot(ax, names, curve, cap, paint.cap)
    for round_cap in curve.index.intersection(_ROUND):
        place = _place(curve, int(round_cap))
        if names.name(*place, f"{round_cap:,}", paint.muted) is not None:
            ax.plot(*place, "o", color=paint.blue, markersize=4, label="_named")


def _step(ax: Axes, shares: "pd.Series[float]", colour: str, **style: Any) -> None:
    """Draw a share that holds from a cap to the next."""
    width = 2.4 if style["label"] == "estimated" else 1.4
    caps = shares.index.to_numpy()
    ax.step(caps, shares, where="post", color=colour, linewidth=width, **style)


def _row(curve: pd.DataFrame, cap: int) -> "pd.Series[float]":
    """Return the line of the curve that holds at `cap`: the nearest at or below it."""
    return curve.iloc[int(curve.index.searchsorted(cap, side="right")) - 1]


def _place(curve: pd.DataFrame, cap: int) -> tuple[float, float]:
    """Return where a cap lies on a trade-off."""
    row = _row(curve, cap)
    return float(row["boot_tokens_p95"]), float(row["served"])


def _caps_across(ax: Axes, most: int) -> None:
    """Set a logarithmic axis of caps that begins at 0."""
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(0, most)
    ticks = [0, *(10**zeros for zeros in range(9) if 10**zeros <= most)]
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.set_xticks([], minor=True)
    name_across(ax, "keep_recent: how many of the newest prunable memories stay")


def _tokens_across(ax: Axes, tokens: "pd.Series[float]", budget: int | None, name: str) -> None:
    """Set an axis of tokens from zero, or a logarithmic one where they range widely."""
    most = max(1.0, float(tokens.iloc[-1]), budget or 0)
    least = float(tokens[tokens > 0].min()) if (tokens > 0).any() else most
    if most < _WIDE_RANGE * least:
        room = 1.02 * most
        # Where the floor is most of it, the caps would be squeezed into what is left.
        ax.set_xlim(0 if least < most / 2 else least - 0.15 * (room - least), room)
        count_axis(ax.xaxis, name)
        return
    ax.set_xscale("log")
    ax.set_xlim(0.7 * min(least, budget or least), 1.25 * most)
    log_axis(ax.xaxis, f"{name}, log scale")


def _stand(ax: Axes, x: float, text: str, colour: str, *, row: int = 0) -> None:
    """Draw a line up from `x` and name it at its foot, on the side where there is room."""
    if not ax.get_xlim()[0] <= x <= ax.get_xlim()[1]:
        return
    paint = palette_of(ax)
    ax.axvline(x, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), label="_cap")
    left = _across(ax, x) > 0.6
    ax.annotate(
        text,
        (x, 0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if left else 4, 5 + 14 * row),
        textcoords="offset points",
        ha="right" if left else "left",
        color=paint.words(colour),
        fontsize=SMALL,
        bbox=on_paper(paint),
    )


def _across(ax: Axes, x: float) -> float:
    """Return where `x` lies between the left edge of the axes, 0, and the right one, 1."""
    return float((ax.transData + ax.transAxes.inverted()).transform((x, 0.5))[0])


def _dot(ax: Axes, names: Names, curve: pd.DataFrame, cap: int, colour: str) -> Annotation | None:
    """Mark a cap on the line of a trade-off, and name it."""
    place = _place(curve, cap)
    ax.plot(*place, "o", color=colour, markersize=7, label="_cap", zorder=3)
    note = names.name(*place, f"{cap:,}", colour)
    if note is not None:
        note.set_fontweight("bold")
    return note


def _curve_title(curve: pd.DataFrame, advice: Advice | None, cap: int | None) -> str:
    if cap is not None:
        served = share(float(_row(curve, cap)["served"]))
        return f"keep_recent = {cap:,} serves an estimated {served} of references"
    if advice is None:
        return "What each cap serves"
    target = percent_of(advice.target)
    if advice.verdict is Verdict.OK:
        return (
            f"keep_recent = {advice.keep_recent:,} serves {target} of references, "
            f"with {percent_of(advice.confidence)} confidence"
        )
    return {
        Verdict.FROM_OTHER_PROJECTS: (
            f"By other projects, keep_recent = {advice.keep_recent or 0:,} serves {target} of "
            "references"
        ),
        Verdict.CAP_HAS_NO_EFFECT: f"{target} of references take all there is: keep all for now",
        Verdict.FLOOR_EXCEEDS_BUDGET: "Load-bearing memories alone pass the token budget",
        Verdict.TARGET_EXCEEDS_BUDGET: f"No cap meets {target} within the token budget",
        Verdict.HORIZON_TOO_SHORT: "References reach as far back as this history can show",
        Verdict.TARGET_BEYOND_HORIZON: f"No evidence is fine enough for a target of {target}",
        Verdict.HISTORY_INCOMPLETE: "Memories were deleted that a number would rest on",
    }[advice.verdict]


def _curve_note(advice: Advice | None) -> str:
    """Say how to read the lines and the shade."""
    ahead = "Limits are for the next stretch, until the store has doubled."
    if advice is None:
        return ahead
    own = f"{advice.weight:.0%} from this store, {1 - advice.weight:.0%} from other projects"
    return f"Estimated: {own}. {ahead}".replace("%", " %")


def _trade_title(curve: pd.DataFrame, advice: Advice | None, cap: int | None) -> str:
    """Say what is bought and what it costs, as far as it is known."""
    if advice is not None and advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
        return (
            f"Load-bearing memories cost {short(advice.floor.tokens)} tokens, "
            f"the budget is {short(advice.token_budget or 0)}"
        )
    if advice is not None and advice.trade and cap is None:
        meets, _ = advice.trade
        return (
            f"{percent_of(advice.target)} of references cost {short(meets.boot_tokens_p95)} "
            f"tokens, the budget is {short(advice.token_budget or 0)}"
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
    return f"at most {counted(tokens, 'tokens')} at 95 % of starts"
