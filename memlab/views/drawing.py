"""The one table of charts that are drawn of a store: command, help and report read it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memlab import evidence, growth, policies, replay, sizing
from memlab.errors import MemlabError

if TYPE_CHECKING:
    from memlab.charts.figure import Chart
    from memlab.views.findings import Findings


class Drawing(NamedTuple):
    """What a chart of a store shows, how `memlab.charts` draws it, and where the report has it."""

    shows: str
    draw: "Callable[[Any, Findings], Any]"
    section: str = ""


def draw(name: str, findings: "Findings") -> "Chart":
    """Return one of the charts of :data:`CHARTS`."""
    from memlab import charts

    figure: Chart = CHARTS[name].draw(charts, findings).figure
    return figure


def draw_section(section: str, findings: "Findings") -> "Iterator[Chart]":
    """Yield the charts that a section of the report shows."""
    return (draw(name, findings) for name, one in CHARTS.items() if one.section == section)


def _growth(charts: Any, findings: "Findings", **how: Any) -> Any:
    return charts.plot_growth(growth.growth_curve(findings.evidence.past), **how)


def _before_after(charts: Any, findings: "Findings") -> Any:
    if findings.cap is None and findings.asked.token_budget is not None:
        raise MemlabError(
            "no cap fits the budget, so that there is no after; name one with --keep-recent"
        )
    return charts.plot_before_after(*map(growth.boot_context, (findings.present, findings.left)))


def _age_ranks(charts: Any, findings: "Findings") -> Any:
    found = findings.evidence.past, findings.evidence.references
    ranks = sizing.age_ranks(*found)
    quantiles = sizing.age_rank_quantiles(*found)
    marks = {"advice": findings.advice, "cap": findings.other_cap}
    return charts.plot_age_ranks(ranks, quantiles=quantiles, **marks)


def _of_caps(name: str) -> "Callable[[Any, Findings], Any]":
    return lambda charts, findings: getattr(charts, name)(
        findings.sizing.curve, advice=findings.advice, cap=findings.other_cap
    )


def _boot_over_time(charts: Any, findings: "Findings") -> Any:
    caps = findings.advice.likely, findings.advice.keep_recent, findings.cap
    known = sorted({cap for cap in caps if cap is not None})
    timeline = sizing.boot_over_time(findings.evidence.past, known)
    budget = findings.asked.token_budget
    return charts.plot_boot_over_time(timeline, budget=budget, advice=findings.advice)


def _law(charts: Any, findings: "Findings") -> Any:
    target = findings.asked.target
    until = findings.asked.until
    found = findings.evidence
    lines = evidence.law_lines(
        target, evidence="reads" if findings.sizing.reads > 0.5 else "references"
    )
    along = sizing.caps_along(found.past, found.references, share=target, until=until)
    return charts.plot_law(lines, store=along)


def _comparison(charts: Any, findings: "Findings") -> Any:
    found = findings.evidence.past, findings.evidence.references
    return charts.plot_comparison(replay.summarise(*found, _replays(findings)))


def _overlap(charts: Any, findings: "Findings") -> Any:
    return charts.plot_overlap(replay.overlap(_replays(findings), share=True))


def _regret(charts: Any, findings: "Findings") -> Any:
    replays = _replays(findings)
    return charts.plot_regret({replay.label_of(o.policy): o.regret_over_time for o in replays})


def _replays(findings: "Findings") -> "list[replay.Replay]":
    compared = (
        *map(policies.KeepRecent, (50, 200, 500)),
        *(policies.TimeToLive(timedelta(days=days)) for days in (30, 90, 180)),
        *map(policies.ValueCap, (50, 200, 500)),
    )
    return replay.replay_each(findings.evidence.past, findings.evidence.references, compared)


CHARTS: Final = {
    "boot-context": Drawing(
        "what an agent loads at every start",
        lambda charts, found: charts.plot_boot_context(growth.boot_context(found.present)),
        "loaded",
    ),
    "growth": Drawing("how prunable and load-bearing memories grew", _growth, "grown"),
    "growth-tokens": Drawing(
        "how their tokens did", lambda charts, found: _growth(charts, found, measure="tokens")
    ),
    "backlog": Drawing(
        "what lies beyond a cap", lambda charts, found: _growth(charts, found, cap=found.cap)
    ),
    "before-after": Drawing("what a cap would change today", _before_after, "effect"),
    "age-ranks": Drawing("how far back references reach", _age_ranks, "references"),
    "age-or-use": Drawing(
        "whether what was read often, or is new, is read next",
        lambda charts, found: charts.plot_age_or_use(found.usage),
        "usage",
    ),
    "reads-served": Drawing(
        "what share of reads the newest and the most used serve",
        lambda charts, found: charts.plot_reads_served(found.usage),
        "usage",
    ),
    "cap-curve": Drawing(
        "what share of references each cap serves", _of_caps("plot_cap_curve"), "served"
    ),
    "trade-off": Drawing(
        "that share against its cost in tokens", _of_caps("plot_trade_off"), "served"
    ),
    "boot-over-time": Drawing(
        "what would have been loaded under a few caps", _boot_over_time, "served"
    ),
    "backtest": Drawing(
        "caps chosen earlier, beside those that it took",
        lambda charts, found: charts.plot_backtest(found.backtest),
        "record",
    ),
    "law": Drawing("how the cap grows, in public projects and in this store", _law),
    "comparison": Drawing("what policies serve and cost", _comparison),
    "overlap": Drawing("how much of what one deletes another does too", _overlap),
    "regret": Drawing("what they lose as time goes by", _regret),
}
"""By name, in the order in which help lists them."""
