"""``memlab report``: what is in a store and what a cap would do, as one HTML file."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.asking import examined, question_options
from memlab.cli.options import FILE, STORE
from memlab.cli.output import print_lines
from memlab.cli.progress import doing
from memlab.files import Limit, check_writable, limit_like, write_whole

if TYPE_CHECKING:
    from memlab.report import Findings


@click.command(short_help="Write one HTML file with charts.")
@click.argument("store", type=STORE, required=False)
@click.option(
    "-o",
    "--output",
    type=FILE,
    default=Path("memlab-report.html"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--record",
    type=FILE,
    help="Also write a decision record in Markdown, and the plan to review beside it.",
)
@question_options
def report(store: Path | None, output: Path, record: Path | None, **asked: Any) -> None:
    """Write a report on STORE: one self-contained HTML file, the answer first.

    Without STORE, on the bundled two years. The store is only read.
    """
    from memlab.report.page import write_report
    from memlab.sources.opening import open_source

    for file in (output, record):
        if file is not None and not file.parent.is_dir():
            raise click.UsageError(f"there is no folder {file.parent} to write {file.name} into")
        if file is not None:
            check_writable(file)
    path, findings = examined(store, **asked)
    limit = limit_like(open_source(path).like)
    write_report(output, findings, limit=limit, progress=lambda title: doing(f"drawing: {title}"))
    print_lines(f"report: {output}", *_headline(replace(findings, store=str(path))))
    if record is not None:
        _write_record(record, path, findings, limit)


def _headline(findings: "Findings") -> list[str]:
    """Return the answer in a few lines."""
    from memlab.report.answer import answer_of

    answer = answer_of(findings)
    width = max(len(fact.name) for fact in answer.facts)
    facts = [f"  {fact.name:<{width}}  {fact.figure}  ({fact.remark})" for fact in answer.facts]
    steps = [f"next: {step.command}" for step in answer.steps[:1]]
    return [answer.headline, *facts, *steps]


def _write_record(record: Path, path: Path, findings: "Findings", limit: Limit) -> None:
    """Write the record, and beside it the plan unless a plan for this cap was applied already."""
    from memlab.compaction.contents import last_applied
    from memlab.compaction.planning import plan
    from memlab.policies import KeepRecent
    from memlab.report.record import decision_record

    if findings.cap is None:
        raise click.UsageError("there is no cap to record; name one with --cap")
    now: datetime = findings.now
    made, receipt, plan_file = plan(path, KeepRecent(findings.cap), now=now), None, None
    applied = last_applied(path)
    if not made.memories and applied is not None and applied[0].policy == made.policy:
        made, receipt = applied
    elif made.memories:
        plan_file = record.with_suffix(".plan.json")
        write_whole(plan_file, made.to_json(), limit=limit)
        print_lines(f"plan: {plan_file}")
    text = decision_record(findings.advice, made, now=now, plan_file=plan_file, receipt=receipt)
    write_whole(record, text, limit=limit)
    print_lines(f"record: {record}")
