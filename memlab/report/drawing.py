"""Every chart by its name, drawn of a store."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, cast

from matplotlib.axes import Axes

from memlab import charts
from memlab.charts.figure import Chart
from memlab.errors import MemlabError
from memlab.evidence.elsewhere import law_lines
from memlab.policies import KeepRecent, Policy, TimeToLive, ValueCap
from memlab.replay import Replay, overlap, replay_each, summarise
from memlab.replay.labels import label_of
from memlab.report.findings import Findings
from memlab.sizing import caps_along

COMPARED: Final[tuple[Policy, ...]] = (
    *map(KeepRecent, (50, 200, 500)),
    *(TimeToLive(timedelta(days=days)) for days in (30, 90, 180)),
    *map(ValueCap, (50, 200, 500)),
)
"""Policies of the charts that compare some."""


def draw(name: str, findings: Findings) -> Chart:
    """Return one of the charts of :data:`CHARTS`.

    Parameters
    ----------
    name : str
        A key of :data:`CHARTS`.
    findings : Findings
        As :func:`memlab.report.examine` returns it.

    Raises
    ------
    MemlabError
        When there is no such chart, or it needs a cap and there is none.
    """
    if name not in CHARTS:
        raise MemlabError(f"there is no chart {name!r}; there are {', '.join(CHARTS)}")
    return cast("Chart", CHARTS[name](findings).figure)


def _before_after(findings: Findings) -> Axes:
    if findings.cap is None:
        raise MemlabError("no cap fits the budget, so that there is no after; name one with --cap")
    return charts.plot_before_after(findings.context, findings.context_after)


def _cap_curve(findings: Findings) -> Axes:
    asked = findings.asked.cap
    return charts.plot_cap_curve(findings.sizing.curve, advice=findings.advice, cap=asked)


def _trade_off(findings: Findings) -> Axes:
    asked = findings.asked.cap
    return charts.plot_trade_off(findings.sizing.curve, advice=findings.advice, cap=asked)


def _law(findings: Findings) -> Axes:
    target = findings.asked.target
    along = caps_along(findings.past, findings.references, share=target)
    return charts.plot_law(law_lines(target), store=along)


def _comparison(findings: Findings) -> Axes:
    return charts.plot_comparison(summarise(findings.past, findings.references, _replays(findings)))


def _overlap(findings: Findings) -> Axes:
    return charts.plot_overlap(overlap(_replays(findings), share=True))


def _regret(findings: Findings) -> Axes:
    return charts.plot_regret(
        {label_of(one.policy): one.regret_over_time for one in _replays(findings)}
    )


def _replays(findings: Findings) -> list[Replay]:
    return replay_each(findings.past, findings.references, COMPARED)


def _growth(findings: Findings, measure: str) -> Axes:
    return charts.plot_growth(
        findings.growth, measure="tokens" if measure == "tokens" else "memories"
    )


CHARTS: Final[Mapping[str, Callable[[Findings], Axes]]] = {
    "age-ranks": lambda found: charts.plot_age_ranks(
        found.ranks, quantiles=found.quantiles, cap=found.cap
    ),
    "backlog": lambda found: charts.plot_backlog(found.growth, cap=found.cap),
    "backtest": lambda found: charts.plot_backtest(found.backtest),
    "before-after": _before_after,
    "boot-context": lambda found: charts.plot_boot_context(found.context),
    "boot-over-time": lambda found: charts.plot_boot_over_time(
        found.timeline, budget=found.asked.token_budget
    ),
    "cap-curve": _cap_curve,
    "comparison": _comparison,
    "growth": partial(_growth, measure="memories"),
    "growth-tokens": partial(_growth, measure="tokens"),
    "law": _law,
    "overlap": _overlap,
    "regret": _regret,
    "trade-off": _trade_off,
}
"""What each chart is drawn of, by the name that the command takes."""
