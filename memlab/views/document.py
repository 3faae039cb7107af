"""A report written to a file, with the answer that it begins with, and a decision's record."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path

from memlab.arguments import expect
from memlab.compaction.contents import last_applied
from memlab.compaction.planner import plan
from memlab.errors import MemlabError
from memlab.evidence.past import Memories
from memlab.evidence.reads import Log
from memlab.files import ANYBODY, check_writable, limit_like, write_whole
from memlab.policies import KeepRecent
from memlab.sources.base import Source
from memlab.text import Sheet, Shown
from memlab.views.answer import Answer, answer_of, decision_record
from memlab.views.findings import Findings, examine
from memlab.views.page import page_of


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """A report that was written, and its answer.

    Attributes
    ----------
    output : Path
    answer : Answer
    record, plan : Path or None
        The record of the decision, and the plan to review beside it, where they were written.
    """

    output: Path
    answer: Answer
    record: Path | None = None
    plan: Path | None = None

    def sheet(self) -> Sheet:
        """Return what is printed."""
        files = {"report": self.output, "plan": self.plan, "record": self.record}
        facts = [(fact.name, f"{fact.figure}  ({fact.remark})") for fact in self.answer.facts]
        facts += [(name, str(file)) for name, file in files.items() if file is not None]
        return Sheet(self.answer.headline, facts)

    def next_steps(self) -> list[str]:
        """Say what to run next."""
        return [f"next: {step.command}    {step.does}" for step in self.answer.steps[:1]]


def report(  # noqa: PLR0913 - what is asked of a store, and where it is written
    frame: Memories,
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
    """Write a report on a store: one self-contained HTML file, the answer first.

    What is not given is what ``memlab.toml`` remembers of the store, else the default.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, which is only read, or what ``memlab.load_past`` returns.
    output : str or Path
        The file to write.
    record : str or Path, optional
        Also write a decision record in Markdown, and the plan to review beside it.
    keep_recent : int, optional
        The cap to look at; by default the recommended one.
    target, token_budget, until
        As for :func:`memlab.recommend_cap`.
    log : DataFrame, str or Path, optional
        An access log, or what ``memlab.read_access_log`` returns.
    now : datetime, optional
        The moment, with a time zone; the current one by default.
    progress : callable, optional
        Called with the title of each section before it is drawn.

    Returns
    -------
    Report

    Raises
    ------
    MemlabError
        When the store or the log cannot be read, a file cannot be written, or there is no cap to
        record.
    MissingExtraError
        When the ``report`` extra is not installed.
    """
    call = "memlab.report"
    expect(output, str, PathLike, call=call, name="output")
    expect(record, str, PathLike, call=call, name="record", optional=True)
    output, record = Path(output), None if record is None else Path(record)
    for file in (output, *filter(None, [record])):
        check_writable(file)
    asked = {"keep_recent": keep_recent, "target": target, "token_budget": token_budget}
    findings = examine(frame, log=log, now=now, until=until, **asked)
    source = findings.evidence.source
    limit = ANYBODY if source is None else limit_like(source.like)
    write_whole(output, page_of(findings, progress).encode(), limit=limit)
    if source is not None and isinstance(frame, str | PathLike):
        findings = replace(findings, store=str(frame))
    plan_file = None
    if record is not None:
        if source is None:
            raise MemlabError("a frame has no plan to record: name the store itself")
        plan_file = _write_record(record, source, findings)
    return Report(output, answer_of(findings), record, plan_file)


def _write_record(record: Path, source: Source, findings: Findings) -> Path | None:
    """Write the record, and beside it the plan unless a plan for this cap was applied already."""
    if findings.cap is None:
        raise MemlabError("there is no cap to record; name one: keep_recent (--keep-recent)")
    limit, now = limit_like(source.like), findings.evidence.now
    made, receipt, plan_file = plan(source, KeepRecent(findings.cap), now=now), None, None
    applied = last_applied(source)
    if not made.memories and applied is not None and applied[0].policy == made.policy:
        made, receipt = applied
    elif made.memories:
        plan_file = record.with_suffix(".plan.json")
        write_whole(plan_file, made.to_json(), limit=limit)
    text = decision_record(findings.advice, made, now=now, plan_file=plan_file, receipt=receipt)
    write_whole(record, text, limit=limit)
    return plan_file
