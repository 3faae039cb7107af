"""``memlab size``: which keep_recent, with evidence."""

import json
import math
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.options import STORE, json_option, store_or_bundled
from memlab.cli.output import print_json, print_lines

if TYPE_CHECKING:
    import pandas as pd

    from memlab.sizing import Advice

AROUND: Final = (0, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
"""Caps that the table shows beside those of the answer."""


@click.command(short_help="Recommend a keep_recent, with evidence.")
@click.argument("store", type=STORE, required=False)
@click.option(
    "--target",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="The share of later needs that should find their memory.",
)
@click.option(
    "--token-budget",
    type=click.IntRange(min=0),
    metavar="N",
    help="Tokens that the memories loaded at start may take.",
)
@click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An access log: CSV or JSON lines with memory_id and at.",
)
@click.option(
    "--only-log", is_flag=True, help="Leave aside what the store itself says; the log is all."
)
@json_option
def size(
    store: Path | None,
    target: float,
    token_budget: int | None,
    log_file: Path | None,
    only_log: bool,
    as_json: bool,
) -> None:
    """Recommend a keep_recent for STORE from what was needed later, or say why there is none.

    Without STORE, the bundled two years. The store is only read.

    \b
    memlab size memory.db
    memlab size memory.db --target 0.95 --token-budget 20000
    memlab size memory.db --log reads.csv
    """  # noqa: D301 - \b keeps the lines below it apart
    if only_log and log_file is None:
        raise click.UsageError("--only-log needs --log FILE")
    from memlab.evidence.reads import read_access_log
    from memlab.evidence.references import find_references
    from memlab.frame.loading import load
    from memlab.sizing import advise, backtest_cap, prepare_sizing

    path = store_or_bundled(store)
    frame = load(path)
    log = read_access_log(log_file) if log_file else None
    references = find_references(
        frame, log, only_log=only_log, now=None if log is None else datetime.now(UTC)
    )
    sizing = prepare_sizing(frame, references)
    advice = advise(sizing, target=target, token_budget=token_budget)
    caps = sizing.at(caps_around(advice))
    backtest = backtest_cap(frame, references, target=target)
    if as_json:
        print_json(as_object(path, advice, references, caps, backtest))
        return
    print_lines(
        f"{path}:",
        *str(advice).splitlines(),
        "",
        *cap_lines(caps, advice),
        "",
        *track_record(backtest),
        reference_counts(references),
        *log_lines(log, references),
        "",
        *next_lines(path, advice),
    )


def as_object(path: Path, advice: "Advice", *frames: "pd.DataFrame") -> dict[str, Any]:
    """Return everything for a script: the advice's own fields, and what stands around it."""
    from memlab.evidence.references import NOT_COUNTED

    references, caps, backtest = frames
    tables = {"caps": caps.reset_index(), "backtest": backtest}
    return {
        "store": str(path),
        **json.loads(advice.to_json()),
        "command": command_for(path, advice),
        "not_counted": references.attrs[NOT_COUNTED],
        **{name: json.loads(table.to_json(orient="records")) for name, table in tables.items()},
    }


def caps_around(advice: "Advice") -> list[int]:
    """Return the caps of the answer, and round ones up to the rows there are."""
    answers = {advice.keep_recent, advice.budget_cap, advice.prunable}
    answers |= {end.keep_recent for end in advice.trade}
    round_caps = {cap for cap in AROUND if cap < advice.prunable}
    return sorted(round_caps | {cap for cap in answers if cap is not None})


def cap_lines(caps: "pd.DataFrame", advice: "Advice") -> list[str]:
    """Return a table of caps; the recommended one is marked."""
    head = f"  {'keep_recent':>11}  {'served':>7}  {'limits':<17}  {'items':>9}  {'tokens':>11}"
    lines = [f"{head}  {'p95':>11}  {'would go':>9}  {'days':>6}"]
    for cap, row in caps.iterrows():
        mark = ">" if cap == advice.keep_recent else " "
        known = not math.isnan(row["low"])
        limits = f"{_share(row['low'])} to {_share(row['high'])}" if known else "–"
        lines.append(
            f"{mark} {cap:>11,}  {_share(row['hit_ratio']):>7}  {limits:<17}"
            f"  {row['boot_items']:>9,.0f}  {row['boot_tokens']:>11,.0f}"
            f"  {row['boot_tokens_p95']:>11,.0f}  {row['pruned']:>9,.0f}  {row['days']:>6,.0f}"
        )
    return lines


def track_record(backtest: "pd.DataFrame") -> list[str]:
    """Say how caps chosen on the past would have done afterwards."""
    measured = backtest[backtest["reached"].notna()]
    if measured.empty:
        verdicts = ", ".join(dict.fromkeys(backtest["verdict"].astype("str")))
        return [f"track record: none; the verdict at earlier cuts was {verdicts}"]
    met = f"{measured['reached'].sum()} of {len(measured)} met the target in the fifth after it"
    return [
        f"track record: a cap chosen on the history up to a cut; {met}",
        *(
            f"  at {row['cut']:.0%}: chose {row['keep_recent']:,}, needed {row['needed']:,}, "
            f"served {row['achieved']:.1%} of {row['references']:,}"
            for _, row in measured.iterrows()
        ),
    ]


def reference_counts(references: "pd.DataFrame") -> str:
    """Say where references were found, and what was not counted as one."""
    from memlab.evidence.references import NOT_COUNTED

    counts = references["kind"].astype("str").value_counts(sort=False)
    found = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    left_out = ", ".join(
        f"{count:,} {reason} ({kind})"
        for kind, reasons in references.attrs[NOT_COUNTED].items()
        for reason, count in reasons.items()
    )
    return f"references: {found or 'none'}" + (f"; not counted: {left_out}" if left_out else "")


def log_lines(log: "pd.DataFrame | None", references: "pd.DataFrame") -> list[str]:
    """Say what an access log held that is no read of this store."""
    from memlab.evidence.reads import describe_log
    from memlab.evidence.references import NOT_COUNTED

    if log is None:
        return []
    unknown = references.attrs[NOT_COUNTED].get("log", {}).get("dangling", 0)
    if unknown and unknown == len(log):
        return ["the log: not one line names a memory of this store; is it another store's log?"]
    return describe_log(log)


def command_for(path: Path, advice: "Advice") -> str | None:
    """Return the command that applies the recommended cap; None where there is none to apply."""
    if advice.keep_recent is None or advice.keep_recent >= advice.prunable:
        return None
    return compact_command(path, advice.keep_recent)


def compact_command(path: Path, cap: int) -> str:
    """Return the command that compacts a store to a cap."""
    return f"memlab compact {shlex.quote(str(path))} --keep-recent {cap} --apply"


def preview_of(command: str) -> str:
    """Return the same command without what makes it delete."""
    return command.removesuffix(" --apply")


def next_lines(path: Path, advice: "Advice") -> list[str]:
    """Say what to run next; nothing where nothing is recommended."""
    command = command_for(path, advice)
    if command is not None:
        return [
            f"next: {preview_of(command)}    shows what would go",
            f"      {command}    does it",
        ]
    if advice.trade:
        meets, fits = (compact_command(path, end.keep_recent) for end in advice.trade)
        return [f"next: {meets}    for the target", f"      {fits}    for the budget"]
    if advice.keep_recent is not None:
        return ["next: nothing yet; that cap would delete nothing"]
    return ["next: nothing; no cap is recommended on this evidence"]


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"
