"""``memlab size``: which keep_recent, with evidence."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.asking import asked_of, sizing_options
from memlab.cli.options import STORE, json_option, store_or_bundled
from memlab.cli.output import print_json, print_lines
from memlab.cli.progress import doing
from memlab.cli.sized import (
    cap_sheet,
    command_for,
    index_lines,
    log_lines,
    next_lines,
    reference_counts,
    setting_for,
    setting_only,
    track_record,
)
from memlab.clock import now_utc
from memlab.text import for_terminal

if TYPE_CHECKING:
    import pandas as pd

    from memlab.sizing import Advice
    from memlab.sources.base import Source

AROUND: Final = (0, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
"""Caps that the table shows beside those of the answer."""


@click.command(short_help="Recommend a keep_recent, with evidence.")
@click.argument("store", type=STORE, required=False)
@sizing_options
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
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
@click.option("--explain", is_flag=True, help="Say in full how the number is found.")
@json_option
@click.pass_context
def size(
    ctx: click.Context,
    store: Path | None,
    target: float | None,
    token_budget: int | None,
    log_file: Path | None,
    confidence: float | None,
    only_log: bool,
    by: str,
    save: bool,
    explain: bool,
    as_json: bool,
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
    from memlab.evidence.chances import reading_chances
    from memlab.evidence.law import DEFAULT_CONFIDENCE
    from memlab.evidence.past import load_past, present_rows
    from memlab.evidence.references import references_and_counts
    from memlab.sizing import advise, prepare_sizing
    from memlab.sizing.backtest import backtest_table
    from memlab.sources.opening import open_source, settings_of

    if save and store is None:
        raise click.UsageError("--save needs a STORE to remember the number of")
    path = store_or_bundled(store)
    source = open_source(path)
    settings = settings_of(source)
    if only_log and log_file is None and not settings.log:
        raise click.UsageError("--only-log needs --log FILE")
    asked = asked_of(settings, target, token_budget, log_file)
    doing("reading the store and its archive")
    frame = load_past(source, log=asked.log)
    references, counts = references_and_counts(
        frame, asked.log, only_log=only_log, now=None if asked.log is None else now_utc()
    )
    log, chances = asked.log, None
    if log is not None:
        ours = log[log["memory_id"].isin(frame["memory_id"]) & (log["at"] <= now_utc())]
        chances = reading_chances(present_rows(frame), ours)
    limit = confidence or settings.confidence or DEFAULT_CONFIDENCE
    given = {"log": log_file, "confidence": confidence}
    kept = {"target": asked.target, **{key: each for key, each in given.items() if each}}
    if asked.token_budget is not None:
        kept["token_budget"] = asked.token_budget
    if by == "tokens":
        from memlab.cli.budgeted import budget_found, say_budget

        budget = budget_found(frame, references, asked, confidence=limit)
        say_budget(path, budget, log_lines(log, counts, chances), as_json=as_json)
        if save:
            ctx.exit(_save(source, budget.policy, kept))
        return
    doing("sizing")
    sizing = prepare_sizing(frame, references, confidence=limit)
    advice = advise(sizing, target=asked.target, token_budget=asked.token_budget)
    caps = sizing.at(caps_around(advice, now=cap_now(path)))
    backtest = backtest_table(sizing.cuts, asked.target)
    if as_json:
        told = {} if chances is None else {"chances": chances.value_counts(sort=False).to_dict()}
        print_json(as_object(path, advice, counts, caps, backtest) | told)
    else:
        by_log = [
            *log_lines(log, counts, chances),
            *index_lines(source, present_rows(frame)),
        ]
        _print_all(path, advice, counts, caps, backtest, by_log=by_log, log_file=asked.log_file)
        if explain:
            print_lines("", f"how the number is found: {advice.rule}")
    if save:
        cap = advice.keep_recent
        ctx.exit(_save(source, None if cap is None else {"name": "recent", "keep": cap}, kept))


def _print_all(
    path: Path,
    advice: "Advice",
    counts: "pd.DataFrame",
    caps: "pd.DataFrame",
    backtest: "pd.DataFrame",
    *,
    by_log: list[str],
    log_file: Path | None,
) -> None:
    print_lines(
        f"{path}:",
        advice,
        "",
        cap_sheet(caps, advice),
        "",
        *track_record(backtest),
        reference_counts(counts),
        *by_log,
        "",
        *next_lines(path, advice, log_file),
    )


def _save(source: "Source", policy: dict[str, Any] | None, kept: dict[str, Any]) -> int:
    """Remember a recommended policy and what it rests on; return the exit code."""
    from memlab.remembering import remember

    name = shlex.quote(source.name)
    if policy is None:
        click.echo("nothing was remembered: there is no number to remember", err=True)
        return 1
    file = remember(source, {"policy": policy, **kept})
    words = f"remembered in {file}; memlab compact {name} and memlab maintain {name} go by it"
    click.echo(f"\n{for_terminal(words)}", err=True)
    return 0


def as_object(path: Path, advice: "Advice", *frames: "pd.DataFrame") -> dict[str, Any]:
    """Return everything for a script: the advice's own fields, and what stands around it."""
    counts, caps, backtest = frames
    tables = {"caps": caps.reset_index(), "backtest": backtest}
    left_out = counts.drop(columns="counted").T
    return {
        **json.loads(advice.to_json()),
        "store": str(path),
        "command": command_for(path, advice),
        "setting": setting_for(path, advice),
        "not_counted": {
            kind: {reason: count for reason, count in reasons.items() if count}
            for kind, reasons in left_out.to_dict().items()
            if any(reasons.values())
        },
        **{name: json.loads(table.to_json(orient="records")) for name, table in tables.items()},
    }


def cap_now(path: Path) -> int | None:
    """Return the cap that a system has set today, where it has one; None elsewhere."""
    source = setting_only(path)
    return None if source is None else source.cap_now()


def caps_around(advice: "Advice", *, now: int | None = None) -> list[int]:
    """Return the caps of the answer, today's, and round ones up to the rows there are."""
    answers = {advice.keep_recent, advice.budget_cap, advice.prunable}
    answers |= {None if now is None else min(now, advice.prunable)}
    answers |= {end.keep_recent for end in advice.trade}
    round_caps = {cap for cap in AROUND if cap < advice.prunable}
    return sorted(round_caps | {cap for cap in answers if cap is not None})
