"""The one table of charts that are drawn of a store: the command, its help and the report read it.

Light to import, for a line of help: what draws is loaded when something is drawn.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memlab.errors import MemlabError

if TYPE_CHECKING:
    from memlab.charts.figure import Chart
    from memlab.replay import Replay
    from memlab.views.findings import Findings


class Drawing(NamedTuple):
    """A chart of a store: its name, what it shows, how `memlab.charts` draws it of findings."""

    name: str
    shows: str
    draw: "Callable[[Any, Findings], Any]"
    section: str = ""
    """Where the report has it."""


def draw(name: str, findings: "Findings") -> "Chart":
    """Return one of the charts of :data:`CHARTS`."""
    from memlab import charts

    figure: Chart = CHARTS[name].draw(charts, findings).figure
    return figure


def draw_section(section: str, findings: "Findings") -> "Iterator[Chart]":
    """Yield the charts that a section of the report shows."""
    return (draw(one.name, findings) for one in CHARTS.values() if one.section == section)


def _before_after(charts: Any, findings: "Findings") -> Any:
    if findings.cap is None and findings.asked.token_budget is not None:
        raise MemlabError(
            "no cap fits the budget, so that there is no after; name one with --keep-recent"
        )
    return charts.plot_before_after(findings.context, findings.context_after)


def _law(charts: Any, findings: "Findings") -> Any:
    from memlab.evidence.posterior import law_lines
    from memlab.evidence.prior import Evidence
    from memlab.sizing import caps_along

    target, until = findings.asked.target, findings.asked.until
    evidence: Evidence = "reads" if findings.sizing.reads > 0.5 else "references"
    found = findings.evidence
    along = caps_along(found.past, found.references, share=target, until=until)
    return charts.plot_law(law_lines(target, evidence=evidence), store=along)


def _comparison(charts: Any, findings: "Findings") -> Any:
    from memlab.replay import summarise

    found = findings.evidence
    return charts.plot_comparison(summarise(found.past, found.references, _replays(findings)))


def _overlap(charts: Any, findings: "Findings") -> Any:
    from memlab.replay import overlap

    return charts.plot_overlap(overlap(_replays(findings), share=True))


def _regret(charts: Any, findings: "Findings") -> Any:
    from memlab.replay import label_of

    regrets = {label_of(one.policy): one.regret_over_time for one in _replays(findings)}
    return charts.plot_regret(regrets)


def _replays(findings: "Findings") -> "list[Replay]":
    """Replay the policies of the charts that compare some."""
    from memlab.policies import KeepRecent, TimeToLive, ValueCap
    from memlab.replay import replay_each

    compared = (
        *map(KeepRecent, (50, 200, 500)),
        *(TimeToLive(timedelta(days=days)) for days in (30, 90, 180)),
        *map(ValueCap, (50, 200, 500)),
    )
    return replay_each(findings.evidence.past, findings.evidence.references, compared)


CHARTS: Final = {
    one.name: one
    for one in (
        Drawing(
            "boot-context",
            "what an agent loads at every start",
            lambda charts, found: charts.plot_boot_context(found.context),
            "loaded",
        ),
        Drawing(
            "growth",
            "how prunable and load-bearing memories grew",
            lambda charts, found: charts.plot_growth(found.growth),
            "grown",
        ),
        Drawing(
            "growth-tokens",
            "how their tokens did",
            lambda charts, found: charts.plot_growth(found.growth, measure="tokens"),
        ),
        Drawing(
            "backlog",
            "what lies beyond a cap",
            lambda charts, found: charts.plot_growth(found.growth, cap=found.cap),
        ),
        Drawing("before-after", "what a cap would change today", _before_after, "effect"),
        Drawing(
            "age-ranks",
            "how far back references reach",
            lambda charts, found: charts.plot_age_ranks(
                found.ranks, quantiles=found.quantiles, advice=found.advice, cap=found.other_cap
            ),
            "references",
        ),
        Drawing(
            "age-or-use",
            "whether what was read often, or is new, is read next",
            lambda charts, found: charts.plot_age_or_use(found.usage),
            "usage",
        ),
        Drawing(
            "reads-served",
            "what share of reads the newest and the most used serve",
            lambda charts, found: charts.plot_reads_served(found.usage),
            "usage",
        ),
        Drawing(
            "cap-curve",
            "what share of references each cap serves",
            lambda charts, found: charts.plot_cap_curve(
                found.sizing.curve, advice=found.advice, cap=found.other_cap
            ),
            "served",
        ),
        Drawing(
            "trade-off",
            "that share against its cost in tokens",
            lambda charts, found: charts.plot_trade_off(
                found.sizing.curve, advice=found.advice, cap=found.other_cap
            ),
            "served",
        ),
        Drawing(
            "boot-over-time",
            "what would have been loaded under a few caps",
            lambda charts, found: charts.plot_boot_over_time(
                found.timeline, budget=found.asked.token_budget, advice=found.advice
            ),
            "served",
        ),
        Drawing(
            "backtest",
            "caps chosen earlier, beside those that it took",
            lambda charts, found: charts.plot_backtest(found.backtest),
            "record",
        ),
        Drawing("law", "how the cap grows with a store, in public projects and in this one", _law),
        Drawing("comparison", "what policies serve and cost", _comparison),
        Drawing("overlap", "how much of what one deletes another does too", _overlap),
        Drawing("regret", "what they lose as time goes by", _regret),
    )
}
"""In the order in which help lists them."""
