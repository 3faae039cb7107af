"""The evidence of a report, section by section: words, charts and tables for people."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from memlab import charts
from memlab.compaction.preview import CapEffect
from memlab.evidence.cut import CutLosses
from memlab.evidence.reads import describe_log
from memlab.evidence.wording import counted_in_words, not_counted_in_words
from memlab.report.findings import Findings
from memlab.sources.index_orders import TODAY
from memlab.text import Table

AROUND = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)
"""Caps that the table of caps shows beside those of the answer."""


@dataclass
class Section:
    """A part of the report.

    Attributes
    ----------
    anchor, title : str
    words : list of str
        Paragraphs before what is shown.
    charts : list of Axes
    tables : list of Table
    """

    anchor: str
    title: str
    words: list[str] = field(default_factory=list)
    charts: list[Axes] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def sections_of(findings: Findings) -> Iterator[Section]:
    """Yield the sections in reading order."""
    yield _loaded(findings)
    if findings.cut is not None:
        yield _cut(findings, findings.cut)
    yield _grown(findings)
    if findings.effect is not None:
        yield _effect(findings, findings.effect)
    yield _references(findings)
    yield _served(findings)
    yield _record(findings)
    yield _costs(findings)
    yield _found(findings)


def _loaded(findings: Findings) -> Section:
    context = findings.context
    rows: list[tuple[str | int, ...]] = [
        (
            str(part),
            "load-bearing" if row["load_bearing"] else "prunable",
            int(row["memories"]),
            int(row["tokens"]),
        )
        for part, row in context.iterrows()
    ]
    boot, tokens = findings.summary.boot, f"Tokens: {findings.summary.token_rule}."
    rows.append(("all of it", "", boot.memories, boot.tokens))
    return Section(
        "loaded",
        "What an agent loads at every start",
        [
            (
                "Decisions, skills and rejected paths are load-bearing: they are never deleted, "
                "and no cap goes below them. The other episodes are prunable."
            )
        ],
        [charts.plot_boot_context(context)],
        [Table("", ("part", "kind", "memories", "tokens"), rows, tokens), *_floor(findings)],
    )


def _floor(findings: Findings) -> Iterator[Table]:
    """Yield the load-bearing memories that cost most, where there are any."""
    floor = findings.advice.floor
    if floor.largest:
        costliest = [(row.memory_id, row.kind, row.tokens, row.title) for row in floor.largest]
        after = (
            f"{floor.memories:,} load-bearing memories take {floor.tokens:,} tokens. memlab floor "
            "shows those for which a newer one could stand."
        )
        header = ("memory", "kind", "tokens", "title")
        yield Table("The costliest load-bearing memories", header, costliest, after)


def _cut(findings: Findings, cut: CutLosses) -> Section:
    today = f"The lines of {cut.below:,} of the {cut.named:,} files that the index names are cut: "
    words = [f"{today}they are not loaded at start." if cut.below else "Every line is loaded."]
    if cut.reads:
        words.append(
            f"{cut.lost:,} of {cut.reads:,} reads were of a memory whose line was cut at that "
            f"moment, {cut.unnamed:,} of a file that no line names."
        )
    else:
        words.append(
            "Which memories are read, transcripts say: memlab harvest with this folder writes a "
            "log, and --log shows here what the cut loses."
        )
    if cut.below and findings.effect is not None:
        left = cut.named - findings.effect.deleted.memories
        fits = cut.files[TODAY]
        words.append(
            f"keep_recent = {findings.effect.keep_recent:,} leaves {left:,} of them; "
            f"{'all fit' if left <= fits else f'{fits:,} fit'}."
        )
    return Section("cut", "What the cut of the index loses", words, [], [cut.table()])


def _grown(findings: Findings) -> Section:
    facts = [(name, value) for name, value in findings.summary.sheet().facts if name != "tokens"]
    return Section(
        "grown",
        "How it grew",
        ["What was deleted with memlab is in the archive, and in these charts."],
        [
            charts.plot_growth(findings.growth),
            charts.plot_growth(findings.growth, measure="tokens"),
        ],
        [Table("", (), [(name, value) for name, value in facts if value], whole=True)],
    )


def _effect(findings: Findings, effect: CapEffect) -> Section:
    after = findings.context_after
    rows: list[tuple[str | int, ...]] = [
        (name, boot.memories, boot.tokens, _share(boot.noise_by_memories))
        for name, boot in (("before", effect.before), ("after", effect.after))
    ]
    rows.append(("deleted", effect.deleted.memories, effect.deleted.tokens, ""))
    dates = [
        f"{name} {moment:%Y-%m-%d}"
        for name, moment in (
            ("The last episode to go is of", effect.newest_deleted),
            ("the first to stay of", effect.oldest_kept),
        )
        if moment
    ]
    header = ("loaded at start", "memories", "tokens", "noise share")
    return Section(
        "effect",
        f"What keep_recent = {effect.keep_recent:,} would do today",
        [f"{', '.join(dates)}."] if dates else [],
        [charts.plot_before_after(findings.context, after)],
        [Table("", header, rows, "Noise share: prunable memories among all that are loaded.")],
    )


def _references(findings: Findings) -> Section:
    found = counted_in_words(findings.counts)
    left_out = [(f"{why}", count) for why, count in not_counted_in_words(findings.counts)]
    tables = []
    if found:
        rows = [(name, meaning, count) for name, meaning, count in found]
        tables.append(Table("", ("reference", "how it shows", "how many"), rows, whole=True))
    if left_out:
        tables.append(Table("Not counted as a later need", ("mention", "how many"), left_out))
    words = [
        (
            "A reference is a later need for an earlier memory. A store holds them without being "
            "asked; an access log adds what an agent read without writing it down."
        )
    ]
    if not found:
        words.append("This store holds none, so that the numbers below are other projects'.")
    if findings.log is not None:
        words += [f"Reads come from {findings.log_name}.", *describe_log(findings.log)]
    words.append(
        "The age rank of a memory is how many prunable memories, itself included, one had to keep "
        "to still have it: 1 is the newest. A cap serves a reference whose age rank it reaches."
    )
    drawn = charts.plot_age_ranks(findings.ranks, quantiles=findings.quantiles, cap=findings.cap)
    return Section("references", "What was needed again", words, [drawn], tables)


def _served(findings: Findings) -> Section:
    advice, sizing = findings.advice, findings.sizing
    asked = {advice.keep_recent, findings.cap, *(end.keep_recent for end in advice.trade)}
    caps = sorted(
        {cap for cap in AROUND if cap < advice.prunable}
        | {cap for cap in (*asked, advice.prunable) if cap is not None}
    )
    rows = [_cap_row(int(cap), row, findings) for cap, row in _rows(sizing.at(caps))]
    header = (
        *("keep_recent", "served", "limits", "this store alone", "other projects alone"),
        *("memories at start", "tokens at start", "days of memory", ""),
    )
    return Section(
        "served",
        "What each cap serves",
        [
            (
                "Estimated for what comes, until the store has doubled, by this store's "
                f"references and other projects' together: {advice.evidence}."
            )
        ],
        [charts.plot_cap_curve(sizing.curve, advice=advice, cap=_chosen(findings))],
        [Table("", header, rows, "At start: were the store compacted to that cap today.")],
    )


def _cap_row(cap: int, row: "pd.Series[Any]", findings: Findings) -> tuple[str | int, ...]:
    marks = {findings.cap: "looked at", findings.advice.keep_recent: "recommended"}
    return (
        cap,
        _share(row["served"]),
        f"{_share(row['low'])} to {_share(row['high'])}",
        _share(row["served_own"]),
        _share(row["served_elsewhere"]),
        int(row["boot_memories"]),
        int(row["boot_tokens"]),
        f"{row['days']:,.0f}",
        marks.get(cap, "everything" if cap == findings.advice.prunable else ""),
    )


def _record(findings: Findings) -> Section:
    backtest = findings.backtest
    rows = [
        (
            f"first {row['cut']:.0%}",
            _number(row["keep_recent"]),
            _number(row["needed"]),
            _share(row["achieved"]),
            int(row["references"]),
            "–" if pd.isna(row["reached"]) else "yes" if row["reached"] else "no",
        )
        for _, row in _rows(backtest)
    ]
    header = ("history", "chosen", "needed", "served", "references", "target met")
    return Section(
        "record",
        "Would it have been right before?",
        [
            (
                "At each cut of the history a cap is chosen on what came before it, and measured "
                "on the fifth that follows. Needed is the smallest cap that would have met the "
                "target there, which is known only afterwards."
            )
        ],
        [charts.plot_backtest(backtest)],
        [Table("", header, rows)],
    )


def _costs(findings: Findings) -> Section:
    advice, sizing = findings.advice, findings.sizing
    return Section(
        "costs",
        "What it costs",
        [
            (
                "What a start costs changes over the history. These charts speak of a cap held "
                "from the first memory on: the first of what 95 in 100 starts do not pass, the "
                "second of every moment. The figures above are for today."
            )
        ],
        [
            charts.plot_trade_off(sizing.curve, advice=advice, cap=_chosen(findings)),
            charts.plot_boot_over_time(findings.timeline, budget=findings.asked.token_budget),
        ],
    )


def _found(findings: Findings) -> Section:
    advice = findings.advice
    return Section(
        "found",
        "How the number was found",
        [_sentence(advice.rule), *(_sentence(text) for text in advice.would_change)],
    )


def _chosen(findings: Findings) -> int | None:
    """Return the cap to mark beside the recommended one: another one that was asked for."""
    return None if findings.cap == findings.advice.keep_recent else findings.cap


def _rows(frame: pd.DataFrame) -> "Iterator[tuple[Any, pd.Series[Any]]]":
    yield from frame.astype(object).iterrows()


def _share(value: Any) -> str:
    return "–" if value is None or pd.isna(value) or math.isnan(value) else f"{value:.1%}"


def _number(value: Any) -> int | str:
    return "–" if pd.isna(value) else int(value)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
