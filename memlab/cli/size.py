"""Commands that find a number: ``size``, and ``harvest``, which gathers what it rests on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.arguments import confidence
from memlab.cli.options import (
    STORE,
    Share,
    json_option,
    reads_of,
    sizing_options,
    steps_after,
    store_or_bundled,
)
from memlab.cli.output import bar, doing, print_json, print_lines, print_result
from memlab.clock import now_utc
from memlab.text import Sheet, command, counted, for_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from memlab.evidence.usage import AgeOrUse
    from memlab.replay import BudgetByUse
    from memlab.sizing import Advice, BudgetAdvice
    from memlab.sizing.goal import Goal
    from memlab.sources.base import Source


@click.command(short_help="Recommend a keep_recent, with evidence.")
@click.argument("store", type=STORE, required=False)
@sizing_options
@click.option(
    "--confidence",
    type=Share(lambda _, value: confidence(value)),
    help="How sure the number should be to meet the target, such as 0.95.  [default: what "
    "memlab.toml remembers, else 0.9]",
)
@click.option(
    "--only-log", is_flag=True, help="Leave aside what the store itself says; the log is all."
)
@click.option(
    "--by",
    type=click.Choice(["number", "tokens"]),
    default="number",
    show_default=True,
    help="Recommend a number of memories, or a budget in tokens.",
)
@click.option(
    "--save", is_flag=True, help="Remember the number and what it rests on in memlab.toml."
)
@click.option("--explain", is_flag=True, help="Show all caps around it, its record, and why.")
@json_option
def size(
    store: Path | None,
    log_file: Path | None,
    only_log: bool,
    by: str,
    save: bool,
    explain: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Recommend a keep_recent for STORE from what was referred to later.

    A store with few references of its own is sized by those of other projects. Without STORE, the
    bundled two years. The store is only read; target, budget and log that memlab.toml beside it
    remembers are used where none are given.

    \b
    memlab size memory.db
    memlab size memory.db --target 0.95 --token-budget 20000 --save
    memlab size memory.db --log reads.csv
    memlab size memory.db --by tokens --save
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.evidence.past import load_past, present_rows
    from memlab.evidence.reads import reading_chances
    from memlab.evidence.references import references_and_counts
    from memlab.sizing import Advice
    from memlab.sizing.goal import Goal
    from memlab.sizing.timeline import backtest_in_words
    from memlab.sources.opening import open_source, settings_of

    if save and store is None:
        raise click.UsageError("--save needs a STORE to remember the number of")
    path = store_or_bundled(store)
    source = open_source(path)
    settings, now = settings_of(source), now_utc()
    if only_log and log_file is None and not settings.log:
        raise click.UsageError("--only-log needs --log FILE")
    goal, log = Goal.of(settings, **asked), reads_of(settings, log_file)
    doing("reading the store and its archive")
    past = load_past(source, log=log)
    references, counts = references_and_counts(
        past, log, only_log=only_log, now=None if log is None else now
    )
    chances = usage = by_use = None
    if log is not None:
        usage, by_use = _usage(source, path, past, references, goal)
        ours = log["memory_id"].isin(past["memory_id"]) & (log["at"] <= now)
        chances = reading_chances(present_rows(past), log[ours])
    doing("sizing")
    advice, rows, backtest = _advised(source, past, references, goal, by=by)
    if as_json:
        told = _as_object(path, advice, counts)
        told["budgets" if by == "tokens" else "caps"] = _records(rows.reset_index())
        told |= {} if backtest is None else {"backtest": _records(backtest)}
        told |= {} if chances is None else {"chances": chances.value_counts(sort=False).to_dict()}
        told |= _figures(age_or_use=usage, by_use=by_use)
        print_json(told)
    else:
        lines: list[Any] = [advice if explain else advice.brief(rows)]
        if explain and advice.verdict != "nothing-prunable":
            record = [] if backtest is None else backtest_in_words(backtest, advice.track_record)
            lines += ["", Sheet("", [], [advice.table(rows)]), "", *record]
        evidence = [*_evidence(source, past, log, counts, chances, usage)]
        if not explain:  # how many references there are stands in the page
            evidence[:1] = [""] * (len(evidence) > 1)
        steps = advice.next_steps(
            path, log=log_file or next(iter(settings.log), None), brief=not explain
        )
        opening, steps = _opening(source, usage, by_use, steps, explain=explain)
        print_lines(f"{path}:", *opening, *lines, *evidence, "", *steps_after("size", store, steps))
        if explain and isinstance(advice, Advice):
            print_lines("", f"how the number is found: {advice.rule}")
    if save:
        kept = asked | {"target": goal.target, "token_budget": goal.token_budget, "log": log_file}
        _save(source, advice, {k: v for k, v in kept.items() if v is not None})


def _usage(
    source: "Source",
    path: Path,
    past: "pd.DataFrame",
    references: "pd.DataFrame",
    goal: "Goal",
) -> "tuple[AgeOrUse, BudgetByUse | None]":
    """Return whether age or use decides, and where memories retire by use, to how many tokens."""
    from memlab.evidence.usage import age_or_use
    from memlab.replay import budget_by_use

    usage = age_or_use(past, references, confidence=goal.confidence)
    if usage.verdict != "use" or not source.retires:
        return usage, None
    doing("replaying budgets")
    sure, until = goal.confidence, goal.until
    found = budget_by_use(past, references, target=goal.target, confidence=sure, until=until)
    return usage, replace(found, store=str(path))


def _figures(**found: "AgeOrUse | BudgetByUse | None") -> dict[str, Any]:
    return {name: each.figures for name, each in found.items() if each is not None}


def _opening(
    source: "Source",
    usage: "AgeOrUse | None",
    by_use: "BudgetByUse | None",
    steps: list[str],
    *,
    explain: bool,
) -> tuple[list[Any], list[str]]:
    """Say first whether age or use decides what to load, and what to run where use does."""
    if by_use is None:
        by_age = usage is not None and usage.verdict == "age" and source.retires
        return [usage.answer, ""] if usage and by_age else [], steps
    if first := by_use.next_steps():
        steps = [*first, *(each.replace("next: ", "      ", 1) for each in steps)]
    return [by_use if explain else Sheet(by_use.answer, []), ""], steps


def _advised(
    source: "Source",
    past: "pd.DataFrame",
    references: "pd.DataFrame",
    goal: "Goal",
    *,
    by: str,
) -> "tuple[Advice | BudgetAdvice, pd.DataFrame, pd.DataFrame | None]":
    """Return the advice, lines of the curve around it, and of caps what earlier ones served."""
    from memlab import sizing
    from memlab.sizing.timeline import backtest_table

    target, limit = goal.target, goal.token_budget
    sure, until = goal.confidence, goal.until
    if by == "tokens":
        budgets = sizing.prepare_budget(
            past, references, confidence=goal.confidence, until=goal.until
        )
        budget = sizing.advise_budget(budgets, target=target, token_budget=limit)
        return budget, budgets.at(budgets.around(*budget.answers)), None
    caps = sizing.prepare_sizing(past, references, confidence=sure, until=until)
    cap = sizing.advise(caps, target=target, token_budget=limit)
    now = source.cap_now()
    around = caps.around(*cap.answers, None if now is None else min(now, caps.most))
    return cap, caps.at(around), backtest_table(caps.cuts, target)


def _records(table: "pd.DataFrame") -> Any:
    return json.loads(table.to_json(orient="records"))


def _as_object(
    path: Path, advice: "Advice | BudgetAdvice", counts: "pd.DataFrame"
) -> dict[str, Any]:
    """Return the advice's own fields for a script, its command, and what was not counted."""
    from memlab.sizing import Advice

    left_out = counts.drop(columns="counted").T.to_dict().items()
    return {
        **json.loads(advice.to_json()),
        "store": str(path),
        "command": advice.command(path) if advice.policy else None,
        "setting": advice.setting(path) if isinstance(advice, Advice) else None,
        "not_counted": {
            kind: {reason: count for reason, count in reasons.items() if count}
            for kind, reasons in left_out
            if any(reasons.values())
        },
    }


def _evidence(
    source: "Source",
    past: "pd.DataFrame",
    log: "pd.DataFrame | None",
    counts: "pd.DataFrame",
    chances: "pd.Series | None",
    usage: "AgeOrUse | None",
) -> "Iterator[str]":
    """Say what a number rests on: references, times without a zone, a log, a cut index, use."""
    from memlab.columns import ACTIVE, LOADED_AT_START, WITHOUT_ZONE
    from memlab.evidence.past import present_rows
    from memlab.evidence.reads import describe_chances, describe_log
    from memlab.evidence.references import counted_in_words, not_counted_in_words

    found = ", ".join(f"{count:,} {name}" for name, _, count in counted_in_words(counts))
    left_out = ", ".join(f"{count:,} {why}" for why, count in not_counted_in_words(counts))
    no_later_need = f"; no later need, so not counted: {left_out}" if left_out else ""
    yield f"references: {found or 'none'}{no_later_need}"
    if zoneless := past.attrs[WITHOUT_ZONE]:
        yield f"the store: {counted(zoneless, 'times')} without a zone, taken as UTC"
    if log is not None and chances is not None:
        unknown = counts["dangling"]["log"]
        if unknown and unknown == len(log):
            yield "the log: not one line names a memory of this store; is it another store's log?"
        else:
            yield f"by the log: {describe_chances(chances)}"
            yield from describe_log(log)
    present = present_rows(past)
    if source.cuts_index and LOADED_AT_START in present:
        named = int(present[ACTIVE].sum())
        fits = int((present[ACTIVE] & present[LOADED_AT_START]).sum())
        if fits < named:
            loads = f"a start loads {fits:,} of the {named:,} files that it names"
            more = f"a cap that leaves more than {fits:,} memories loads no more"
            yield f"by the index: {loads}; {more}"
    if usage is not None and usage.decided:
        yield f"age or use: {usage.answer}"


def _save(source: "Source", advice: "Advice | BudgetAdvice", kept: dict[str, Any]) -> None:
    """Remember the safe number, until when it speaks and what it rests on."""
    from memlab.settings import SIZED, Sized
    from memlab.sources.opening import remember, settings_of

    policy = advice.policy
    if policy is None:
        click.echo("nothing was remembered: there is no number to remember", err=True)
        raise click.exceptions.Exit(1)
    sized = Sized(now_utc().replace(microsecond=0), advice.memories, advice.until)
    settings = settings_of(source)
    if settings.is_auto and (settings.policy or {})["name"] == policy["name"]:
        policy, until = dict(settings.policy or {}), 'its number stays "auto", found each time'
    else:
        policy[SIZED] = sized._asdict()
        until = f"until {sized.until:,} memories have been written; {sized.memories:,} have"
    file = remember(source, {"policy": policy, **kept})
    by_it = " and ".join(command(name, source.name) for name in ("compact", "maintain"))
    click.echo(f"\n{for_terminal(f'remembered in {file}; {by_it} go by it, {until}')}", err=True)


@click.command(short_help="Gather what an agent read into an access log.")
@click.argument("source")
@click.option(
    "-o",
    "--output",
    "log",
    type=click.Path(path_type=Path),
    metavar="LOG",
    help="The access log to append to.  [default: SOURCE.reads.log]",
)
@click.option(
    "--transcripts",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where Claude Code's transcripts or Codex's sessions lie, if not where they usually do.",
)
@json_option
def harvest(source: str, log: Path | None, transcripts: Path | None, as_json: bool) -> None:
    """Append what agents read from SOURCE to an access log; the source is only read.

    SOURCE is a Claude Code memory folder, the database of claude-mem, mcp-memory-service or
    LangGraph, Codex's folder, an OpenClaw workspace, a project with Serena's memories, or a
    postgresql:// URL of MemForge or LangGraph. What the log has is not added again and stays when
    its source has swept it away, so run this as often as the source forgets.

    \b
    memlab harvest ~/.claude/projects/-work-app/memory
    memlab harvest ~/.claude-mem/claude-mem.db -o reads.log
    memlab size memory.db --log reads.log
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.evidence.ingestion import harvest

    with bar("harvest", "B", scale=True) as progress:
        gathered = harvest(source, log, transcripts=transcripts, progress=progress)
    print_result(gathered, as_json=as_json)
