"""The charts of a store by name, for the command ``report``, its help and the report."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memlab import growth, policies, replay, sizing
from memlab.errors import MemlabError

if TYPE_CHECKING:
    from memlab.charts.figure import Chart
    from memlab.views.findings import Findings


class Drawing(NamedTuple):
    """A chart of a store."""

    shows: str
    """Content of the chart in a few words, for the help."""
    draw: "Callable[[Any, Findings], Any]"
    """Takes :mod:`memlab.charts` and the findings, and returns the axes."""
    section: str = ""
    """Anchor of the report's section with the chart; empty if the report leaves it out."""


def draw(name: str, findings: "Findings") -> "Chart":
    """Return a chart by its name in :data:`CHARTS`."""
    from memlab import charts

    figure: Chart = CHARTS[name].draw(charts, findings).figure
    return figure


def draw_section(section: str, findings: "Findings") -> "Iterator[Chart]":
    """Yield the charts of a section of the report."""
    for name, drawing in CHARTS.items():
        if drawing.section == section:
            yield draw(name, findings)


def _growth(charts: Any, findings: "Findings", **options: Any) -> Any:
    """Draw the growth of the store."""
    return charts.plot_growth(growth.growth_curve(findings.evidence.past), **options)


def _before_after(charts: Any, findings: "Findings") -> Any:
    """Draw a start before and after the cap; raise a MemlabError if no cap fits the budget."""
    if findings.cap is None and findings.goal.token_budget is not None:
        raise MemlabError(
            "no cap fits the budget, so there is nothing to draw; name a cap with --keep-recent"
        )
    before = growth.boot_context(findings.present)
    after = growth.boot_context(findings.kept_memories)
    return charts.plot_before_after(before, after)


def _age_ranks(charts: Any, findings: "Findings") -> Any:
    """Draw the age ranks of references."""
    past = findings.evidence.past
    references = findings.evidence.references
    return charts.plot_age_ranks(
        sizing.age_ranks(past, references),
        quantiles=sizing.age_rank_quantiles(past, references),
        advice=findings.advice,
        cap=findings.other_cap,
    )


def _of_caps(name: str) -> "Callable[[Any, Findings], Any]":
    """Return a function that draws the curve of caps with the named plot function."""
    return lambda charts, findings: getattr(charts, name)(
        findings.sizing.curve, advice=findings.advice, cap=findings.other_cap
    )


def _boot_over_time(charts: Any, findings: "Findings") -> Any:
    """Draw what starts would have loaded over the history under the recommended caps."""
    advice = findings.advice
    caps = (advice.likely, advice.keep_recent, findings.cap)
    distinct_caps = sorted({cap for cap in caps if cap is not None})
    timeline = sizing.boot_over_time(findings.evidence.past, distinct_caps)
    budget = findings.goal.token_budget
    return charts.plot_boot_over_time(timeline, budget=budget, advice=advice)


def _law(charts: Any, findings: "Findings") -> Any:
    """Draw the law of public projects, and the caps of the store over its history."""
    target = findings.goal.target
    history = findings.evidence
    are_mostly_reads = findings.sizing.reads > 0.5  # the share of reads among the references
    lines = sizing.law_lines(target, evidence="reads" if are_mostly_reads else "references")
    caps = sizing.caps_along(
        history.past, history.references, share=target, until=findings.goal.until
    )
    return charts.plot_law(lines, store=caps)


def _comparison(charts: Any, findings: "Findings") -> Any:
    """Draw the share of references that policies serve, against their cost."""
    past = findings.evidence.past
    references = findings.evidence.references
    return charts.plot_comparison(replay.summarise(past, references, _replays(findings)))


def _overlap(charts: Any, findings: "Findings") -> Any:
    """Draw, for each pair of policies, the share of deletions that they have in common."""
    return charts.plot_overlap(replay.overlap(_replays(findings), share=True))


def _regret(charts: Any, findings: "Findings") -> Any:
    """Draw the references that policies lose over time."""
    regrets = {replay.label_of(run.policy): run.regret_over_time for run in _replays(findings)}
    return charts.plot_regret(regrets)


def _replays(findings: "Findings") -> "list[replay.Replay]":
    """Replay the policies that charts compare on the store's history."""
    compared_policies = (
        *map(policies.KeepRecent, (50, 200, 500)),
        *(policies.TimeToLive(timedelta(days=days)) for days in (30, 90, 180)),
        *map(policies.ValueCap, (50, 200, 500)),
    )
    return replay.replay_each(
        findings.evidence.past, findings.evidence.references, compared_policies
    )


CHARTS: Final = {
    "boot-context": Drawing(
        "what an agent loads at every start",
        lambda charts, findings: charts.plot_boot_context(
            growth.boot_context(findings.present), links=findings.lists
        ),
        "loaded",
    ),
    "growth": Drawing("how prunable and load-bearing memories grew", _growth, "grown"),
    "growth-tokens": Drawing(
        "how their tokens did", lambda charts, findings: _growth(charts, findings, measure="tokens")
    ),
    "backlog": Drawing(
        "what lies beyond a cap",
        lambda charts, findings: _growth(charts, findings, cap=findings.cap),
    ),
    "before-after": Drawing("what a cap would change today", _before_after, "effect"),
    "age-ranks": Drawing("how far back references reach", _age_ranks, "references"),
    "age-or-use": Drawing(
        "whether age or use predicts the next reads",
        lambda charts, findings: charts.plot_age_or_use(findings.usage),
        "usage",
    ),
    "reads-served": Drawing(
        "what share of reads the newest and the most active serve",
        lambda charts, findings: charts.plot_reads_served(findings.usage),
        "usage",
    ),
    "cap-curve": Drawing(
        "what share of references each cap serves", _of_caps("plot_cap_curve"), "served"
    ),
    "trade-off": Drawing("that share against its cost in tokens", _of_caps("plot_trade_off")),
    "boot-over-time": Drawing(
        "what would have been loaded under a few caps", _boot_over_time, "served"
    ),
    "backtest": Drawing(
        "caps chosen at earlier moments, and caps that were needed",
        lambda charts, findings: charts.plot_backtest(findings.backtest),
        "record",
    ),
    "law": Drawing("how the cap grows, in public projects and in this store", _law),
    "comparison": Drawing(
        "the share of references that policies serve, and their cost", _comparison
    ),
    "overlap": Drawing("how far the deletions of two policies overlap", _overlap),
    "regret": Drawing("how many references policies lose over time", _regret),
}
"""The charts by name, in the order of the help."""
