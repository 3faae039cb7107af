"""The HTML report on a store with its sections, and the decision record in Markdown."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from memlab.arguments import expect
from memlab.charts.figure import DARK, LIGHT, css_colours
from memlab.clock import now_utc
from memlab.columns import MEMORY_ID, REFERENCES, TITLE, TOKENS
from memlab.compaction.archive_views import last_applied
from memlab.compaction.planner import plan
from memlab.compaction.wire import size_in_words
from memlab.errors import MemlabError
from memlab.evidence.past import HistoryLike
from memlab.evidence.reads import CutLosses, Log, describe_log
from memlab.evidence.references import counted_in_words, not_counted_in_words
from memlab.files import DEFAULT_MODE, check_writable, permissions_like, write_whole
from memlab.frame.fields import arrays_of
from memlab.frame.labelling import name_for_charts
from memlab.growth.alerts import facts_of
from memlab.growth.context import PARTS, part_names, parts_of
from memlab.lazy import import_extra
from memlab.policies import KeepRecent
from memlab.settings import NO_SETTINGS, Settings
from memlab.sizing import Advice
from memlab.sizing.answer import AnswerCase, case_of
from memlab.sources.base import Source
from memlab.sources.capabilities import CURRENT_ORDER
from memlab.sources.opening import start_label
from memlab.text import (
    Cell,
    DisplayMixin,
    Table,
    TextPage,
    command,
    counted,
    for_terminal,
    numeric_columns,
)
from memlab.views.drawing import draw, draw_section
from memlab.views.findings import Findings, examine
from memlab.views.memory_table import READS, rows_of

if TYPE_CHECKING:
    from memlab.compaction.plans import Plan, Receipt


def decision_record(
    advice: Advice,
    plan: "Plan",
    *,
    now: datetime,
    settings: Settings = NO_SETTINGS,
    plan_file: Path | None = None,
    receipt: "Receipt | None" = None,
) -> str:
    """Return a decision record in Markdown, for a pull request.

    Text from the store is in fenced blocks, so that it cannot act as Markdown.

    Parameters
    ----------
    advice : Advice
        The recommendation.
    plan : Plan
        The plan of the chosen cap.
    now : datetime
        The time of the decision.
    settings : Settings, optional
        The store's settings. They tell whether the cap is the saved one.
    plan_file : Path, optional
        The file with the plan, if one was written.
    receipt : Receipt, optional
        The receipt, if the plan was applied.
    """
    cap = plan.policy.get("keep")
    # If two of these caps are equal, the later name replaces the earlier.
    origins = {advice.budget_cap: "the largest within the token budget"}
    if settings.sized is not None:
        origins[settings.keep_recent] = f"found on {settings.sized.at:%Y-%m-%d} and saved"
    origins[advice.likely] = "the likely one"
    origins[advice.keep_recent] = "the safe one"
    origin = origins.get(cap, "chosen by hand")
    facts = {
        "store": f"`{_inline(name_for_charts(plan.store))}`",
        "date": f"{now:%Y-%m-%d}, by memlab {version('memlab')}",
        "cap": f"`keep_recent = {cap}`, {origin}",
        "by the evidence": advice.numbers or "no number",
        "track record": advice.track_record or "none",
        "verdict of the evidence": f"`{advice.verdict}`",
        "deletes": f"{plan.deletes.memories:,} of {counted(plan.total.memories, 'memories')}",
        start_label(
            plan.store
        ): f"{size_in_words(plan.boot_before)} → {size_in_words(plan.boot_after)}",
        **_start_fact(plan),
        "floor": f"{plan.floor_in_words}, all of which stay",
        "plan digest": f"`{plan.digest}`",
        "receipt": _receipt_in_words(receipt, plan_file),
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return (
        f"# Decision record: keep_recent = {cap}\n\n"
        f"| | |\n|---|---|\n{rows}\n\n"
        f"## Evidence\n\n{_fenced(str(advice))}\n\n"
        f"## Plan\n\n{_fenced(str(plan))}\n"
    )


def _start_fact(plan: "Plan") -> dict[str, str]:
    """Return the fact about a start before and after the plan; empty without an index."""
    if plan.start is None:
        return {}
    return {"a start": f"{size_in_words(plan.start.before)} → {size_in_words(plan.start.after)}"}


def _receipt_in_words(receipt: "Receipt | None", plan_file: Path | None) -> str:
    """Return as text whether the plan was applied, with the command to undo or apply it."""
    if receipt is not None:
        return (
            f"applied {receipt.applied_at:%Y-%m-%d %H:%M} UTC, "
            f"{counted(receipt.deleted, 'memories')} deleted and archived; "
            f"undo: `{_inline(receipt.undo)}`"
        )
    if plan_file is not None:
        return f"not applied; after review: `memlab apply {_inline(plan_file.name)}`"
    return "not applied: it deletes nothing"


def _inline(text: str) -> str:
    """Return text without marks that would end a code span or a table cell in Markdown."""
    return for_terminal(text).replace("`", "'").replace("|", "\\|")


def _fenced(text: str) -> str:
    """Return text in a fenced block. The fence is longer than any fence in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


@dataclass(frozen=True, repr=False)
class Report(DisplayMixin):
    """A written report and its findings.

    Attributes
    ----------
    output : Path
        The HTML file.
    findings : Findings
        The findings in the report.
    record : Path or None
        The decision record, if one was written.
    plan : Path or None
        The plan beside the record, if one was written.

    Examples
    --------
    >>> import memlab
    >>> findings = memlab.views.examine(memlab.store_path("looked_up"))
    >>> report = Report(output=Path("report.html"), findings=findings)
    >>> report.record is None, report.findings.summary.rows.memories
    (True, 480)
    """

    output: Path
    findings: Findings
    record: Path | None = None
    plan: Path | None = None

    def sheet(self) -> TextPage:
        """Return the recommendation and the written files as a page."""
        files = {"report": self.output, "plan": self.plan, "record": self.record}
        written = [(name, str(file)) for name, file in files.items() if file is not None]
        recommendation = self.findings.sheet()
        return TextPage(recommendation.title, [*recommendation.facts, *written])

    def next_steps(self) -> list[str]:
        """Return the first next step of the recommendation."""
        return self.findings.next_steps()[:1]


def report(  # noqa: PLR0913 - each parameter is a separate option
    frame: HistoryLike,
    output: str | PathLike[str] = "memlab-report.html",
    *,
    record: str | PathLike[str] | None = None,
    keep_recent: int | None = None,
    target: float | None = None,
    token_budget: int | None = None,
    until: float | None = None,
    log: Log = None,
    now: datetime | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Write a report on a store as one self-contained HTML file.

    Arguments that are not given are taken from the store's ``memlab.toml``, or have defaults.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, which is only read, or the result of ``memlab.load_past``.
    output : str or Path
        The file to write.
    record : str or Path, optional
        A file for a decision record in Markdown; the plan is written beside it.
    keep_recent : int, optional
        The cap of the report; by default the recommended one.
    target, token_budget, until
        As for :func:`memlab.recommend_cap`.
    log : DataFrame, str or Path, optional
        An access log, or the result of ``memlab.read_access_log``.
    now : datetime, optional
        The current time, with a time zone; by default the time of the clock.
    progress : callable, optional
        Called with the title of each section before it is drawn.

    Returns
    -------
    Report
        The findings, and the files that were written.

    Raises
    ------
    MemlabError
        If the store or the file cannot be accessed, or `record` is set without a cap.

    Examples
    --------
    >>> import memlab
    >>> report = memlab.report(memlab.store_path("looked_up"), "report.html")
    >>> report.output.stat().st_size > 0
    True
    """
    call = "memlab.report"
    expect(output, str, PathLike, call=call, name="output")
    expect(record, str, PathLike, call=call, name="record", optional=True)
    output = Path(output)
    record = None if record is None else Path(record)
    check_writable(output)
    if record is not None:
        check_writable(record)
    findings = examine(
        frame,
        log=log,
        now=now,
        keep_recent=keep_recent,
        target=target,
        token_budget=token_budget,
        until=until,
    )
    source = findings.evidence.source
    permissions = DEFAULT_MODE if source is None else permissions_like(source.local_path)
    page = page_of(findings, progress, folder=output.absolute().parent)
    write_whole(output, page.encode(), permissions=permissions)
    plan_file = None
    if record is not None:
        if source is None:
            raise MemlabError("a frame has no plan to record: name the store itself")
        plan_file = _write_record(record, source, findings)
    return Report(output=output, findings=findings, record=record, plan=plan_file)


def _write_record(record: Path, source: Source, findings: Findings) -> Path | None:
    """Write the decision record, and the plan beside it; return the file of the plan.

    If a plan for this cap was applied already, no plan is written, and the record has the receipt.
    """
    if findings.cap is None:
        raise MemlabError("there is no cap to record; name one: keep_recent (--keep-recent)")
    permissions = permissions_like(source.local_path)
    now = findings.evidence.now
    cap_plan = plan(source, KeepRecent(findings.cap), now=now)
    receipt = None
    plan_file = None
    applied = last_applied(source)
    if cap_plan.memories:
        plan_file = record.with_suffix(".plan.json")
        write_whole(plan_file, cap_plan.to_json(), permissions=permissions)
    elif applied is not None:
        applied_plan, applied_receipt = applied
        if applied_plan.policy == cap_plan.policy:
            cap_plan = applied_plan
            receipt = applied_receipt
    text = decision_record(
        findings.advice,
        cap_plan,
        now=now,
        settings=findings.evidence.settings,
        plan_file=plan_file,
        receipt=receipt,
    )
    write_whole(record, text, permissions=permissions)
    return plan_file


@dataclass
class Section:
    """A section of the report.

    Attributes
    ----------
    anchor, title
        The ``id`` of the section on the page, and its heading.
    words : list of str
        The paragraphs above the charts.
    tables : list of Table
        The tables below the charts.
    lists : list of (str, Table)
        Long tables, each with its ``id`` on the page. They are folded until a reader opens them.
    is_folded : bool
        Whether all charts but the first are folded.
    """

    anchor: str
    title: str
    paragraphs: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    lists: list[tuple[str, Table]] = field(default_factory=list)
    is_folded: bool = False


def page_of(
    findings: Findings,
    progress: Callable[[str], None] | None = None,
    *,
    folder: Path | None = None,
) -> str:
    """Return the report as one HTML page, with its charts and without external resources.

    Parameters
    ----------
    findings : Findings
        The findings.
    progress : callable, optional
        Called with the title of each section before it is drawn.
    folder : Path, optional
        The folder of the page, in which its commands run; by default that of the store.
    """
    evidence = findings.evidence
    commands_run_here = folder is not None and not evidence.is_far_from(folder)
    findings = replace(findings, evidence=evidence.by_folder(folder), lists=_list_links())
    answer = findings.sheet()
    first_sentence, other_sentences = _split_first_sentence(answer.title)
    return html_of(
        "page.html.jinja",
        _sections_with_charts(findings, progress),
        findings=findings,
        made=now_utc(),
        store=for_terminal(findings.evidence.name),
        answer=answer,
        first_sentence=first_sentence,
        other_sentences=other_sentences,
        main_chart=draw(_main_chart_of(findings), findings)._repr_html_(),
        note_on_tokens=_note_on_tokens_of(findings),
        commands_run_here=commands_run_here,
        steps=[_split_command(line) for line in findings.next_steps() if line],
    )


def _sections_with_charts(
    findings: Findings, progress: Callable[[str], None] | None
) -> Iterator[tuple[Section, Iterable[Any]]]:
    """Yield each section with its charts. The chart at the top of the page is left out."""
    main_chart = _main_chart_of(findings)
    for section in sections_of(findings):
        if progress is not None:
            progress(section.title)
        if section.anchor == "loaded" and main_chart == "boot-context":
            yield section, ()
        else:
            yield section, draw_section(section.anchor, findings)


def _split_first_sentence(text: str) -> tuple[str, str]:
    """Return the first sentence of a text, and the rest of the text, which may be empty."""
    parts = re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)
    rest = parts[1] if len(parts) > 1 else ""
    return parts[0], rest


def _split_command(line: str) -> tuple[str, str]:
    """Return the command in a line of next steps, and the explanation after it."""
    command, _, explanation = line.removeprefix("next:").strip().partition("    ")
    return command, explanation


def html_of(template: str, sections: Iterable[tuple[Section, Iterable[Any]]], **values: Any) -> str:
    """Render a template of the package as one HTML page, with sections and their charts."""
    jinja2 = import_extra("jinja2", extra="report")
    package = Path(__file__).parent.parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([package / "views", package / "fleet"]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections_with_html = []
    for section, charts in sections:
        titles_and_charts: list[tuple[str, str]] = []
        for chart in charts:
            is_in_fold = section.is_folded and bool(titles_and_charts)
            if is_in_fold and chart.nothing_to_show:
                continue
            titles_and_charts.append((chart.title, chart._repr_html_()))
        sections_with_html.append((section, titles_and_charts))
    page: str = environment.get_template(template).render(
        sections=sections_with_html,
        numeric_columns=numeric_columns,
        version=version("memlab"),
        light=css_colours(LIGHT),
        dark=css_colours(DARK),
        **values,
    )
    return page


def _main_chart_of(findings: Findings) -> str:
    """Return the name of the chart that shows the reason for the answer; it is drawn below it."""
    if findings.by_use is not None and findings.by_use.is_better:
        return "reads-served"
    has_curve = findings.effect is not None and len(findings.sizing.curve) >= _MIN_CAPS
    if not has_curve or case_of(findings.advice) is AnswerCase.TOO_SMALL:
        return "boot-context"
    return "trade-off"


def _note_on_tokens_of(findings: Findings) -> str:
    """Explain why the tokens of the main chart and of the answer differ; empty if they do not."""
    if _main_chart_of(findings) != "trade-off":
        return ""
    start = findings.loaded_or_recalled("a start", "the store")
    starts = findings.loaded_or_recalled("starts", "moments")
    return (
        f"The answer counts the tokens of {start} today. The chart counts the tokens that 95 of "
        f"100 {starts} did not exceed, if the cap had been applied from the first memory on."
    )


_MIN_CAPS: Final = 2
"""Minimum number of caps for the chart of references served against tokens."""


def _list_links() -> dict[str, str]:
    """Return the link to the list of memories of each part of a start, by the name of the part."""
    return {part: f"#{_list_id(part)}" for part in ("facts", *PARTS)}


def _list_id(part: str) -> str:
    """Return the ``id`` of the list of memories of a part of a start."""
    return f"list-{part.replace(' ', '-')}"


def sections_of(findings: Findings) -> Iterator[Section]:
    """Yield the sections in the order in which a reader asks.

    The order is: alerts, the effect of the cap, the results and costs of caps, the backtest, the
    references, the contents of a start, the growth, and the memories. A table leaves out figures
    that a chart of the same section shows.
    """
    if findings.alerts:
        yield _alerts(findings)
    if findings.cut is not None and (findings.cut.below or findings.cut.reads):
        yield _index_cut(findings, findings.cut)
    if findings.effect is not None and findings.effect.deleted.memories:
        yield _effect(findings.effect.sheet())
    yield _served(findings)
    yield _track_record(findings)
    yield _references(findings)
    if findings.usage.reads:
        yield _usage(findings)
    yield _loaded(findings)
    yield _growth(findings)
    if len(findings.present):
        yield _memories(findings)


def _alerts(findings: Findings) -> Section:
    """Return the section with the alerts."""
    rows = facts_of(findings.alerts, findings.summary)
    table = Table("", (), rows, "Each with the command to run next.", whole=True)
    return Section("alerts", "Look at this first", tables=[table])


def _effect(effect: TextPage) -> Section:
    """Return the section with the effect of the cap today."""
    tables = [Table("", (), effect.facts)] if effect.facts else []
    return Section("effect", f"What {effect.title} would do today", tables=tables)


def _track_record(findings: Findings) -> Section:
    """Return the section on how the number was found, with the backtest."""
    advice = findings.advice
    sentences = [sentence(rule) for rule in (advice.rule, *advice.would_change)]
    if findings.backtest is not None and findings.backtest["needed"].notna().any():
        sentences.append(
            "At each of these moments a cap is chosen from the history before it, and measured on "
            "the next fifth of the history. The needed cap is the smallest that would have met the "
            "target there; it is known only afterwards."
        )
    return Section("record", "How the number was found, and how such numbers did", sentences)


def _usage(findings: Findings) -> Section:
    """Return the section that compares age with use as predictors of reads."""
    usage = findings.usage.sheet()
    facts = Table("", (), usage.facts, whole=True)
    return Section("usage", "Age or use?", [sentence(usage.title)], [facts], is_folded=True)


def _growth(findings: Findings) -> Section:
    """Return the section on the growth of the store."""
    names_in_chart = {"tokens", "prunable share"}
    facts = []
    for name, value in findings.summary.sheet().facts:
        if value and name not in names_in_chart:
            facts.append((name, value))
    tables = [Table("", (), facts, whole=True)] if facts else []
    sentences = []
    if len(findings.evidence.past) > len(findings.present):
        sentences.append(
            "The chart includes the memories that memlab deleted: the archive holds them."
        )
    return Section("grown", "How it grew", sentences, tables)


def _memories(findings: Findings) -> Section:
    """Return the section with the costliest memories of each part of a start."""
    present = findings.present.reset_index(drop=True)
    costliest_first = rows_of(findings.evidence)
    part_numbers, loaded = parts_of(arrays_of(present))
    lists = []
    for number, part in enumerate(part_names(present)):
        ids = present.loc[loaded & (part_numbers == number), MEMORY_ID]
        if len(ids):
            members = costliest_first[costliest_first[MEMORY_ID].isin(ids)]
            table = _list_of_part(part, members, len(ids), store=findings.evidence.name)
            lists.append((_list_id(part), table))
    title = findings.loaded_or_recalled(
        "The memories that a start loads", "The memories to recall from"
    )
    explanation = "One list for each part. The bars of the chart above link to the lists."
    return Section("memories", title, [explanation], lists=lists)


def _list_of_part(part: str, members: pd.DataFrame, total: int, *, store: str) -> Table:
    """Return the table of the first memories of a part, with the command that lists all."""
    listed = members.head(LISTED)
    columns = _LISTED_COLUMNS if listed[READS].notna().any() else _LISTED_WITHOUT_READS
    values = listed[list(columns)].itertuples(index=False)
    cells = [tuple(map(_cell_of, row)) for row in values]
    hidden = total - len(listed)
    remark = ""
    if hidden > 0:
        label = "prunable" if part == "episodes" else "load-bearing"
        list_all = command("rows", store, "--where", label, "--limit", 0)
        remark = f"and {hidden:,} more: {list_all}"
    title = f"{part}: {counted(total)}, the costliest first"
    return Table(title, tuple(columns.values()), cells, remark, whole=True)


LISTED: Final = 50
"""Maximum number of memories in a list of the report."""

_LISTED_COLUMNS: Final = {
    TITLE: "title",
    TOKENS: "tokens",
    "age_days": "days",
    READS: "reads",
    REFERENCES: "references",
    MEMORY_ID: "id",
}
"""Columns of a list of memories with their headings."""
_LISTED_WITHOUT_READS: Final = {
    name: heading for name, heading in _LISTED_COLUMNS.items() if name != READS
}


def _cell_of(value: Any) -> Cell:
    """Return a value of a list of memories: a whole number, a text, or a dash if it is missing."""
    if isinstance(value, str):
        return for_terminal(value)
    return "–" if pd.isna(value) else round(value)


def sentence(text: str) -> str:
    """Return words as a sentence, with a capital letter and a full stop.

    >>> sentence("no cap fits")
    'No cap fits.'
    """
    return f"{_capitalised(text.rstrip('.'))}."


def _capitalised(text: str) -> str:
    """Return a text with a capital letter at its start; the other letters stay as they are."""
    return text[:1].upper() + text[1:]


def _loaded(findings: Findings) -> Section:
    """Return the section on the memories that an agent loads at start."""
    floor = findings.advice.floor
    tables = []
    if floor.largest:
        remark = (
            f"Load-bearing: {counted(floor.memories)}, {counted(floor.tokens, 'tokens')}. "
            "memlab floor shows those that a newer one repeats."
        )
        _, costliest = floor.tables("")
        title = "The costliest load-bearing memories"
        header = ("memory", *costliest.header[1:])
        tables = [costliest._replace(heading=title, header=header, remark=remark)]
    explanation = (
        "Decisions, skills and rejected paths are load-bearing: they are never deleted, and no cap "
        "goes below them. The other episodes are prunable."
    )
    title = findings.loaded_or_recalled(
        "What an agent loads at every start", "What an agent recalls from"
    )
    return Section("loaded", title, [explanation], tables)


def _index_cut(findings: Findings, cut: CutLosses) -> Section:
    """Return the section on the memories whose lines of the index are not loaded."""
    sheet = cut.sheet()
    sentences = []
    if not cut.reads:
        sentences.append(
            "Transcripts record which memories are read. memlab harvest with this folder writes a "
            "log of them, and --log LOG shows here what the cut loses."
        )
    if cut.below and findings.effect is not None:
        remaining = cut.named - findings.effect.deleted.memories
        lines_loaded = cut.files[CURRENT_ORDER]
        fitting = "all" if remaining <= lines_loaded else f"{lines_loaded:,}"
        sentences.append(
            f"keep_recent = {findings.effect.keep_recent:,} leaves {remaining:,} of them; "
            f"{fitting} fit."
        )
    # Without reads, only the first fact says something.
    rows = sheet.facts if cut.reads else sheet.facts[:1]
    facts = Table("", (), rows, whole=True)
    title = _capitalised(sheet.title.rstrip("."))
    return Section("cut", title, sentences, [facts, *sheet.tables])


def _references(findings: Findings) -> Section:
    """Return the section on the references."""
    evidence = findings.evidence
    tables = []
    definition = (
        "A reference is a later need for an earlier memory. The store contains references; an "
        "access log adds reads."
    )
    sentences = [definition]
    counts = list(counted_in_words(evidence.counts))
    if counts:
        tables.append(Table("", ("reference", "how it shows", "how many"), counts, whole=True))
    else:
        sentences.append("This store contains none, so the numbers below are from other projects.")
    not_counted = list(not_counted_in_words(evidence.counts))
    if not_counted:
        tables.append(Table("Not counted as a later need", ("mention", "how many"), not_counted))
    if evidence.log is not None:
        sentences.append(f"Reads come from {findings.log_name}.")
        sentences += describe_log(evidence.log, evidence.past)
    if counts:
        sentences.append(
            "The age rank of a memory is the number of prunable memories that a cap must keep to "
            "keep this one: the newest has rank 1. A cap serves references up to its own age rank."
        )
    return Section("references", "What was needed again", sentences, tables)


def _served(findings: Findings) -> Section:
    """Return the section on what each cap serves and costs."""
    advice = findings.advice
    starts = findings.loaded_or_recalled("starts", "moments")
    assumption = "The chart of tokens assumes that the cap was applied from the first memory on."
    if _main_chart_of(findings) == "trade-off":
        assumption = (
            "The charts of tokens assume that the cap was applied from the first memory on: one "
            f"shows the tokens that 95 of 100 {starts} did not exceed, the other the tokens over "
            "time."
        )
    explanation = (
        f"The estimates are valid until {advice.until:,} episodes are written. "
        f"{sentence(advice.evidence)} {assumption} The table is about {starts} today."
    )
    tables = [*findings.sheet().tables]
    title = "What each cap serves and costs"
    return Section("served", title, [explanation], tables, is_folded=True)
