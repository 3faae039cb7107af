"""``memlab show``: the headline numbers of a store."""

import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlab.cli.options import STORE, json_option, moment_for, store_or_bundled
from memlab.cli.output import print_json, print_lines, share

if TYPE_CHECKING:
    from memlab.growth import Amount, Boot, StoreSummary


@click.command()
@click.argument("store", type=STORE, required=False)
@click.option(
    "--threshold",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="The backlog of prunable memories that is still all right.",
)
@json_option
def show(store: Path | None, threshold: int, as_json: bool) -> None:
    """Show what an agent loads from STORE at every start, and how much of it is noise.

    Without STORE, the bundled two years.
    """
    from memlab.frame import load
    from memlab.growth import summarize

    path = store_or_bundled(store)
    frame = load(path)
    summary = summarize(frame, now=moment_for(store, frame), threshold=threshold)
    if as_json:
        print_json({"store": str(path), "summary": summary})
    else:
        print_lines(*summary_lines(path, summary))


def summary_lines(path: Path, summary: "StoreSummary") -> list[str]:
    """Return the headline numbers as a person reads them."""
    boot = summary.boot
    if not summary.rows.items:
        return [f"{path}: no memories yet"]
    name = shlex.quote(str(path))
    return [
        f"{path}: {summary.rows.items:,} memories{_span(summary)}",
        "",
        _row("loaded at every start", boot.items, boot.tokens),
        *(_row(f"  {part}", each.items, each.tokens) for part, each in summary.parts.items()),
        _row("superseded, loaded never", summary.superseded.items, summary.superseded.tokens),
        "",
        f"  noise share   {_shares(boot.prunable, boot)}: what a cap could take away",
        f"  floor         {_shares(boot.load_bearing, boot)}: load-bearing, no cap goes below",
        *_pace_lines(summary),
        *_oddity_lines(summary),
        f"  tokens        {summary.token_rule}",
        "",
        f"next: memlab size {name}                        which keep_recent, with evidence",
        f"      memlab compact {name} --keep-recent 50    what a cap would do; deletes nothing",
    ]


def _row(label: str, items: int, tokens: int) -> str:
    return f"  {label:26}{items:>9,} items {tokens:>12,} tokens"


def _shares(part: "Amount", boot: "Boot") -> str:
    items, tokens = share(part.items, boot.items), share(part.tokens, boot.tokens)
    return f"{items} of items, {tokens} of tokens"


def _span(summary: "StoreSummary") -> str:
    if summary.first_at is None or summary.last_at is None:
        return ""
    return f", {_day(summary.first_at)} to {_day(summary.last_at)}"


def _pace_lines(summary: "StoreSummary") -> list[str]:
    lines = []
    if pace := summary.pace:
        window = f"{pace.windows} windows of {pace.window_days:.0f} days"
        lines.append(
            f"  pace          {pace.median:.1f} episodes a day "
            f"({pace.low:.1f} to {pace.high:.1f} in the last {window})"
        )
    forecast = summary.forecast
    if forecast.passed_at:
        lines.append(f"  backlog       passed {forecast.threshold} on {_day(forecast.passed_at)}")
    elif forecast.expected:
        lines.append(f"  backlog       passes {forecast.threshold} about {_day(forecast.expected)}")
    return lines


def _oddity_lines(summary: "StoreSummary") -> list[str]:
    oddities = {
        "created before a memory that was inserted earlier": summary.out_of_order,
        "superseded by a memory that is not there": summary.dangling,
        "without a usable time": summary.undated,
    }
    return [f"  odd           {count:,} {what}" for what, count in oddities.items() if count]


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"
