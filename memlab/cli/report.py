"""Commands that show a store in pictures: ``report``, and ``lab`` with the notebooks."""

import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.options import (
    FILE,
    STORE,
    moment_for,
    question_options,
    reads_of,
    steps_after,
    store_or_bundled,
)
from memlab.cli.output import doing, print_lines, quiet, write_picture
from memlab.clock import now_utc
from memlab.files import Limit, check_writable, limit_like, write_whole
from memlab.lazy import missing_extra
from memlab.store.database import store_file
from memlab.text import command
from memlab.views.bundled import store_path
from memlab.views.drawing import CHARTS, draw

if TYPE_CHECKING:
    from memlab.sources.base import Source
    from memlab.views import Findings

_CHARTS: Final = "\b\nNAME is one of\n" + "\n".join(
    f"  {one.name:<15} {one.shows}" for one in CHARTS.values()
)


@click.command(short_help="Write one HTML file with charts, or one chart.", epilog=_CHARTS)
@click.argument("store", type=STORE, required=False)
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="The file to write.  [default: memlab-report.html, or NAME.svg]",
)
@click.option(
    "--chart",
    "name",
    type=click.Choice(sorted(CHARTS)),
    metavar="NAME",
    help="Draw this chart alone: an SVG file that follows the reader's theme, or a PNG file.",
)
@click.option("--narrow", is_flag=True, help="Draw the chart for a narrow column.")
@click.option(
    "--record",
    type=FILE,
    help="Also write a decision record in Markdown, and the plan to review beside it.",
)
@question_options
def report(
    store: Path | None,
    output: Path | None,
    name: str | None,
    narrow: bool,
    record: Path | None,
    **asked: Any,
) -> None:
    """Write a report on STORE: one self-contained HTML file, the answer first; or one chart of it.

    Without STORE, on the bundled two years. The store is only read.
    """
    from memlab.sources.opening import open_source
    from memlab.views.answer import answer_of
    from memlab.views.page import write_report

    output = output or Path(f"{name}.svg" if name else "memlab-report.html")
    if name and output.suffix not in {".svg", ".png"}:
        raise click.UsageError(f"{output.name} must end in .svg or .png")
    if narrow and not name:
        raise click.UsageError("--narrow needs --chart NAME")
    for file in (output, *([record] if record else [])):
        check_writable(file)
    path, findings = examined(store, **asked)
    source = open_source(path)
    limit = limit_like(source.like)
    if name:
        _draw(name, findings, output, source, narrow=narrow)
    else:
        made: dict[str, Any] = {"limit": limit, "made": now_utc()}
        write_report(output, findings, **made, progress=lambda title: doing(f"drawing: {title}"))
        answer = answer_of(replace(findings, store=str(path)))
        steps = steps_after("report", store, [f"next: {step.command}" for step in answer.steps[:1]])
        print_lines(f"report: {output}", *answer.lines(), *steps)
    if record is not None:
        _write_record(record, path, findings, limit)


def _draw(name: str, findings: "Findings", file: Path, source: "Source", *, narrow: bool) -> None:
    from memlab.charts.figure import NARROW

    doing(f"drawing {name}")
    drawn = draw(name, findings)
    write_picture(drawn.at(width=NARROW) if narrow else drawn, file, source)
    print_lines(f"chart: {file}", f"  {drawn.title}")


def _write_record(record: Path, path: Path, findings: "Findings", limit: Limit) -> None:
    """Write the record, and beside it the plan unless a plan for this cap was applied already."""
    from memlab.compaction.contents import last_applied
    from memlab.compaction.planner import plan
    from memlab.policies import KeepRecent
    from memlab.views.answer import decision_record

    if findings.cap is None:
        raise click.UsageError("there is no cap to record; name one with --keep-recent")
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


def examined(
    store: Path | None, *, cap: int | None, log_file: Path | None, **asked: Any
) -> "tuple[Path, Findings]":
    """Return the store, the bundled one where none is named, and what is found in it."""
    from memlab.evidence.cut import cut_losses
    from memlab.evidence.past import load_past
    from memlab.frame.fields import arrays_of
    from memlab.frame.labelling import called
    from memlab.growth.alerts import Look, alerts_of
    from memlab.sizing.goal import Goal
    from memlab.sources.opening import is_harvestable, open_source, settings_of
    from memlab.views.findings import Question, examine

    path = store_or_bundled(store)
    source = open_source(path)
    settings = settings_of(source)
    goal = Goal.of(settings, **asked)
    log, log_file = reads_of(settings, log_file), log_file or next(iter(settings.log), None)
    cap = settings.keep_recent if cap is None else cap
    doing("reading the store")
    past = load_past(source, log=log)
    doing("sizing")
    arrays = arrays_of(past)
    findings = examine(
        past,
        now=moment_for(store, arrays.last_at),
        asked=Question(
            cap, goal.target, goal.token_budget, confidence=goal.confidence, until=goal.until
        ),
        log=log,
        log_name=log_file.name if log_file else "",
        store=called(str(path)),
    )
    if source.cuts_index:
        findings = replace(findings, cut=cut_losses(source, log))
    if log_file is None and is_harvestable(source.like or path):
        output = () if source.like else ("-o", "reads.jsonl")
        findings = replace(findings, harvest=command("harvest", findings.store, *output))
    look = Look(source, arrays, findings.summary, findings.store, log, findings.log_name)
    alerts, retires = alerts_of(look), source.retires
    return path, replace(findings, alerts=alerts, is_setting=not source.deletes, retires=retires)


@click.command(short_help="Open the notebooks in JupyterLab.")
@click.argument("store", type=STORE, required=False)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where to put the notebooks; by default a folder of the store's own in memlab-notebooks. "
    "A notebook that is there already is left as it is.",
)
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening it.")
@click.option("--allow-root", is_flag=True, help="Start even as root, as in a container.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port to listen on.")
def lab(
    store: Path | None, folder: Path | None, no_browser: bool, allow_root: bool, port: int | None
) -> None:
    """Open the notebooks in JupyterLab, filled in with STORE.

    The first says which of them answers which question. Without STORE they open on the bundled
    stores. The notebooks are copies, yours to change. The one that compacts a copy of a store is
    left out where STORE is no SQLite file; the one about Claude Code's memory looks at STORE where
    it is such a folder, and else at the bundled one.
    """
    from importlib.util import find_spec

    from memlab.sources.opening import open_source
    from memlab.views.bundled import START, copy_notebooks, folder_for

    if find_spec("jupyterlab") is None:
        raise missing_extra("jupyterlab", "lab")
    source = open_source(store_path("two_years") if store is None else store)
    name = str(store_file(source.name).resolve()) if source.agents_own else source.name
    parameters: dict[str, str] = {}
    if store is not None:
        parameters = {"store": name, "now": now_utc().isoformat(timespec="seconds")}
    if source.cuts_index and source.like is not None:
        parameters |= {"memory": str(source.like), "projects": str(source.like.parent.parent)}
    folder = folder or folder_for(name)
    for path in copy_notebooks(folder, parameters, rehearsing=source.agents_own):
        print_lines(f"wrote {path}")
    server = [sys.executable, "-m", "jupyterlab", str(folder)]
    server += [f"--LabApp.default_url=/lab/tree/{START}"]
    server += ["--no-browser"] * no_browser + ["--allow-root"] * allow_root
    server += [f"--port={port}"] if port else []
    quiet()
    raise SystemExit(_run_to_its_end(server))


def _run_to_its_end(command: list[str]) -> int:
    """Return the exit code of a server that hears Ctrl-C itself, and asks before it stops.

    It ends when this process is told to.
    """
    with subprocess.Popen(command) as server:

        def stop(*_: object) -> None:
            server.terminate()

        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, stop)
        while True:
            try:
                return server.wait()
            except KeyboardInterrupt:
                continue
