"""A report as one HTML file: the answer, then the evidence section by section."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from memlab.charts.palette import DARK, LIGHT, roles
from memlab.clock import now_utc
from memlab.evidence.cut import CutLosses
from memlab.evidence.reads import describe_log
from memlab.evidence.references import counted_in_words, not_counted_in_words
from memlab.growth.alerts import facts_of
from memlab.lazy import import_extra
from memlab.sources.base import TODAY
from memlab.text import Table, for_terminal, numeric_columns
from memlab.views.answer import answer_of, sentence
from memlab.views.drawing import draw_section
from memlab.views.findings import Findings

Progress = Callable[[str], None]
"""Called with what is written now."""


@dataclass
class Section:
    """A part of the report."""

    anchor: str
    title: str
    words: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def page_of(findings: Findings, progress: Progress | None = None) -> str:
    """Return the report as one HTML page, which holds its charts and asks for nothing."""

    def drawn() -> Iterator[tuple[Section, Iterable[Any]]]:
        for section in sections_of(findings):
            if progress is not None:
                progress(section.title)
            yield section, draw_section(section.anchor, findings)

    return html_of(
        "page.html.jinja",
        drawn(),
        findings=findings,
        made=now_utc(),
        store=for_terminal(findings.store),
        answer=answer_of(findings),
    )


def html_of(template: str, sections: Iterable[tuple[Section, Iterable[Any]]], **values: Any) -> str:
    """Return a template of the package as one HTML page: sections with charts, and other values."""
    jinja2 = import_extra("jinja2", extra="report")
    package = Path(__file__).parent.parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([package / "views", package / "fleet"]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text: str = environment.get_template(template).render(
        sections=[(one, [each._repr_html_() for each in drawn]) for one, drawn in sections],
        numeric_columns=numeric_columns,
        version=version("memlab"),
        light=roles(LIGHT),
        dark=roles(DARK),
        **values,
    )
    return text


def sections_of(findings: Findings) -> Iterator[Section]:
    """Yield the sections in reading order; no table repeats a chart."""
    if findings.alerts:
        rows = facts_of(findings.alerts)
        table = Table("", (), rows, "Each with the command to run next.", whole=True)
        yield Section("alerts", "Look at this first", tables=[table])
    yield _loaded(findings)
    if findings.cut is not None:
        yield _cut(findings, findings.cut)
    yield _grown(findings)
    if findings.effect is not None and findings.effect.deleted.memories:
        sheet = findings.effect.sheet()
        facts = [Table("", (), sheet.facts)] if sheet.facts else []
        yield Section("effect", f"What {sheet.title} would do today", tables=facts)
    yield _references(findings)
    if findings.usage.reads:
        sheet = findings.usage.sheet()
        facts = [Table("", (), sheet.facts, whole=True)]
        yield Section("usage", "Age or use?", [sentence(sheet.title)], facts)
    yield _served(findings)
    yield _record(findings)


def _loaded(findings: Findings) -> Section:
    floor, tables = findings.advice.floor, []
    if floor.largest:
        costliest = [(row.memory_id, row.kind, row.tokens, row.title) for row in floor.largest]
        after = (
            f"{floor.memories:,} load-bearing memories take {floor.tokens:,} tokens. memlab floor "
            "shows those for which a newer one could stand."
        )
        header = ("memory", "kind", "tokens", "title")
        tables = [Table("The costliest load-bearing memories", header, costliest, after)]
    words = (
        "Decisions, skills and rejected paths are load-bearing: they are never deleted, and no cap "
        "goes below them. The other episodes are prunable."
    )
    title = findings.by_start("What an agent loads at every start", "What an agent recalls from")
    return Section("loaded", title, [words], tables)


def _cut(findings: Findings, cut: CutLosses) -> Section:
    sheet, words = cut.sheet(), []
    if not cut.reads:
        words.append(
            "Which memories are read, transcripts say: memlab harvest with this folder writes a "
            "log, and --log shows here what the cut loses."
        )
    if cut.below and findings.effect is not None:
        left, fits = cut.named - findings.effect.deleted.memories, cut.files[TODAY]
        words.append(
            f"keep_recent = {findings.effect.keep_recent:,} leaves {left:,} of them; "
            f"{'all fit' if left <= fits else f'{fits:,} fit'}."
        )
    facts = Table("", (), sheet.facts if cut.reads else sheet.facts[:1], whole=True)
    return Section("cut", sentence(sheet.title)[:-1], words, [facts, *sheet.tables])


def _grown(findings: Findings) -> Section:
    drawn = {"tokens", "prunable share"}
    facts = [fact for fact in findings.summary.sheet().facts if fact[1] and fact[0] not in drawn]
    words = "What was deleted with memlab is in the archive, and in this chart."
    return Section(
        "grown", "How it grew", [words], [Table("", (), facts, whole=True)] if facts else []
    )


def _references(findings: Findings) -> Section:
    evidence, tables = findings.evidence, []
    needs = (
        "A reference is a later need for an earlier memory. A store holds them without being "
        "asked; an access log adds what an agent read without writing it down."
    )
    words = [needs]
    if found := counted_in_words(evidence.counts):
        rows = [(name, meaning, count) for name, meaning, count in found]
        tables.append(Table("", ("reference", "how it shows", "how many"), rows, whole=True))
    else:
        words.append("This store holds none, so that the numbers below are other projects'.")
    if left_out := [*not_counted_in_words(evidence.counts)]:
        tables.append(Table("Not counted as a later need", ("mention", "how many"), left_out))
    if evidence.log is not None:
        words += [f"Reads come from {findings.log_name}.", *describe_log(evidence.log)]
    words.append(
        "The age rank of a memory is how many prunable memories, itself included, one had to keep "
        "to still have it: 1 is the newest. A cap serves a reference whose age rank it reaches."
    )
    return Section("references", "What was needed again", words, tables)


def _served(findings: Findings) -> Section:
    advice, sizing = findings.advice, findings.sizing
    marks = {sizing.most: "everything", findings.cap: "looked at"}
    marks |= {advice.likely: "likely", advice.keep_recent: "safe"}
    caps = sizing.at(sorted(cap for cap in marks if cap is not None))
    rows = [
        (cap, int(row["boot_memories"]), int(row["boot_tokens"]), f"{row['days']:,.0f}", marks[cap])
        for cap, row in zip(caps.index.tolist(), caps.to_dict("records"), strict=True)
    ]
    there = findings.by_start("at start", "left")
    header = ("keep_recent", f"memories {there}", f"tokens {there}", "days of memory", "")
    starts = findings.by_start("starts", "moments")
    words = (
        f"Estimated until {advice.until:,} memories are written, by this store's references and "
        f"other projects' together: {advice.evidence}. The charts of tokens speak of a cap held "
        f"from the first memory on: the first of what 95 in 100 {starts} do not pass, the second "
        "of every moment. The table is for today."
    )
    return Section("served", "What each cap serves and costs", [words], [Table("", header, rows)])


def _record(findings: Findings) -> Section:
    advice = findings.advice
    how = (
        "At each cut of the history a cap is chosen on what came before it, and measured on the "
        "fifth that follows. Needed is the smallest cap that would have met the target there, "
        "which is known only afterwards."
    )
    words = [*map(sentence, (advice.rule, *advice.would_change)), how]
    return Section("record", "How the number was found, and how such numbers did", words)
