"""``memlab fleet show``: what an agent loads from each store."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.fleet.options import (
    NAMES,
    bar,
    begun,
    out_options,
    runner_of,
    runner_options,
    table_options,
)
from memlab.cli.fleet.output import Column, fleet_sheet, print_sheet, print_table
from memlab.cli.output import share
from memlab.clock import now_utc
from memlab.text import counted

if TYPE_CHECKING:
    import pandas as pd


@click.command("show", short_help="Show what agents load from each store.")
@NAMES
@click.option(
    "--threshold",
    type=click.IntRange(min=0),
    metavar="N",
    help="Prunable memories that are still all right; more in any store makes the exit code 1.",
)
@out_options
@runner_options
@table_options
def show_fleet(
    names: tuple[str, ...],
    threshold: int | None,
    out: Path | None,
    fresh: bool,
    limit: int,
    as_json: bool,
    as_csv: bool,
    **who: Any,
) -> None:
    """Show what agents load from each store at start, largest first, and how much is noise.

    \b
    memlab fleet show '/srv/agents/*/memory.db'
    memlab fleet show @stores.txt --threshold 500 --csv
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.fleet import expand_names
    from memlab.fleet.surveying import survey

    members, folder = expand_names(names), begun(out, fresh=fresh)
    with runner_of(**who) as runner, bar("survey") as progress:
        table = survey(members, now=now_utc(), runner=runner, progress=progress, out=folder)
    over = table["prunable"].gt(threshold).fillna(value=False) if threshold is not None else None
    if not print_table(table, as_json=as_json, as_csv=as_csv):
        largest = table.sort_values("boot_tokens", ascending=False, kind="stable")
        facts = _facts(table, members.repeated)
        if over is not None:
            facts.append(("over the threshold", f"{int(over.sum()):,} of {len(table):,} stores"))
        bad = int(table["error"].notna().sum())
        title = f"{counted(len(table), 'stores')}, {f'{bad:,} left out' if bad else 'all read'}"
        print_sheet(
            fleet_sheet(title, largest, COLUMNS, facts=facts, limit=limit),
            "",
            f"next: memlab fleet size {' '.join(map(shlex.quote, names))}    a cap for each",
        )
    if (
        table["error"].notna().any()
        or table["unreadable"].gt(0).any()
        or (over is not None and over.any())
    ):
        click.get_current_context().exit(1)


def _noise(row: Any) -> str:
    return share(row.prunable_tokens, row.boot_tokens)


def _month(row: Any) -> str:
    return "–" if row.last_at is None or row.last_at != row.last_at else f"{row.last_at:%Y-%m-%d}"


COLUMNS: tuple[Column, ...] = (
    ("at start", lambda row: int(row.boot_memories)),
    ("tokens", lambda row: int(row.boot_tokens)),
    ("floor", lambda row: int(row.floor_tokens)),
    ("noise", _noise),
    ("prunable", lambda row: int(row.prunable)),
    ("written", _month),
)


def _room(size: int, free: int) -> str:
    """Say what room stores take, and what of it is free where that is worth a vacuum."""
    words = f"{size / 1e6:,.1f} MB"
    if free * 20 <= size:
        return words
    return f"{words}, of which a vacuum gives back {free / 1e6:,.1f} MB"


def _facts(table: "pd.DataFrame", repeated: int) -> list[tuple[str, str]]:
    memories = int(table["boot_memories"].sum())
    boot, noise = int(table["boot_tokens"].sum()), int(table["prunable_tokens"].sum())
    facts = [
        ("loaded at start", f"{counted(memories, 'memories')}, {counted(boot, 'tokens')}"),
        ("noise", f"{counted(noise, 'tokens')}, {share(noise, boot)}"),
        ("on the disk", _room(int(table["bytes"].sum()), int(table["free_bytes"].sum()))),
    ]
    unreadable = int(table["unreadable"].sum())
    if unreadable:
        where = int(table["unreadable"].gt(0).sum())
        facts.append(
            ("not readable", f"{counted(unreadable, 'memories')} of {counted(where, 'stores')}")
        )
    if repeated:
        facts.append(("named twice", f"{repeated:,}; a store counts once"))
    return facts
