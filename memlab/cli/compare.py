"""``memlab compare``: policies side by side on a store's own past."""

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from memlab.cli.options import STORE, json_option
from memlab.cli.output import print_lines
from memlab.cli.policy import Age, origins_epilog

if TYPE_CHECKING:
    import pandas as pd

    from memlab.policies import Policy

CAPS: Final = (50, 100, 200, 500, 1000)
AGES: Final = tuple(timedelta(days=days) for days in (7, 30, 90, 180, 365))
"""Settings that are tried where none are named: those people ask about."""

COUNTED: Final = ("recent", "value", "budget", "learned", "odek", "betterdb")
TRIED: Final = ("recent", "ttl", "value", "learned")
COMPARED: Final = tuple(sorted({*COUNTED, "ttl", "dedup"}))

SHOWN: Final = {
    "hit_ratio": "hit ratio",
    "oracle": "oracle",
    "boot_tokens_mean": "mean tokens",
    "boot_tokens_p95": "p95 tokens",
    "evicted": "evicted",
    "only_here": "only here",
}

_LEGEND: Final = (
    "hit ratio  needs in this past that found their memory, as they were; memlab size estimates",
    "           those to come, which reach further back",
    "oracle     the most that any policy with as many slots could have served",
    "only here  memories that this line alone would have deleted",
    "A count is of prunable memories for recent, learned and odek; the others count load-bearing",
    "ones too, which never go.",
)


@click.command(
    epilog=origins_epilog(COMPARED), short_help="Compare policies on the store's own past."
)
@click.argument("store", type=STORE)
@click.option(
    "--policy",
    "names",
    type=click.Choice(COMPARED),
    multiple=True,
    help=f"A policy to try; may be given several times.  [default: {', '.join(TRIED)}]",
)
@click.option("--cap", "caps", type=click.IntRange(min=0), multiple=True, help="A count to try.")
@click.option("--ttl", "ages", type=Age(), multiple=True, help="An age to try, like 30d.")
@click.option(
    "--token-budget",
    type=click.IntRange(min=0),
    help="Show only what keeps the boot context's p95 within so many tokens.",
)
@click.option(
    "--chart",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw hit ratio against boot tokens into a PNG file.",
)
@json_option
def compare(
    store: Path,
    names: tuple[str, ...],
    caps: tuple[int, ...],
    ages: tuple[timedelta, ...],
    token_budget: int | None,
    chart: Path | None,
    as_json: bool,
) -> None:
    """Compare policies on STORE's own past: what each would have lost, and what that saved.

    Every policy is replayed from the first memory to the last; a need is served if its target was
    still there. The oracle is the most that any policy with that many slots could have served.
    """
    from memlab.evidence.past import load_past
    from memlab.evidence.references import find_references
    from memlab.replay import compare as compare_policies

    frame = load_past(store, with_body="dedup" in names or "odek" in names)
    references = find_references(frame)
    policies = list(_policies(names or TRIED, caps or CAPS, ages or AGES))
    table = compare_policies(frame, references, policies, progress=sys.stderr.isatty())
    if chart is not None:
        _draw(table, chart)
    fitting = table if token_budget is None else table[table["boot_tokens_p95"] <= token_budget]
    if as_json:
        click.echo(fitting.reset_index().to_json(orient="records", indent=2))
        return
    print_lines(*_table_lines(fitting, len(references), token_budget, table))


def _policies(
    names: tuple[str, ...], caps: tuple[int, ...], ages: tuple[timedelta, ...]
) -> "Iterator[Policy]":
    from memlab.policies import (
        ImportanceBudget,
        KeepRecent,
        NearDuplicate,
        Pipeline,
        TimeToLive,
        ValueCap,
    )
    from memlab.policies.learned import Learned

    counted: dict[str, Callable[[int], Policy]] = {
        "recent": KeepRecent,
        "value": ValueCap,
        "budget": ImportanceBudget,
        "learned": Learned,
        "odek": lambda cap: Pipeline.odek(keep=cap),
        "betterdb": lambda cap: Pipeline.betterdb(max_items=cap),
    }
    for name in names:
        if name == "ttl":
            yield from (TimeToLive(age) for age in ages)
        elif name == "dedup":
            yield NearDuplicate()
        else:
            yield from (counted[name](cap) for cap in caps)


def _table_lines(
    table: "pd.DataFrame", references: int, budget: int | None, everything: "pd.DataFrame"
) -> list[str]:
    if table.empty:
        least, floor = everything["boot_tokens_p95"].min(), everything["floor_tokens"].iloc[0]
        return [
            f"nothing that was tried stays within {budget:,} tokens: the least is {least:,.0f}",
            f"load-bearing memories alone take {floor:,} now",
        ]
    shown = table[list(SHOWN)].rename(columns=SHOWN).rename_axis(None)
    formats = {
        "hit ratio": "{:.3f}".format,
        "oracle": "{:.3f}".format,
        "mean tokens": "{:,.0f}".format,
        "p95 tokens": "{:,.0f}".format,
        "evicted": "{:,}".format,
        "only here": "{:,}".format,
    }
    lines = shown.to_string(formatters=formats, na_rep="–").splitlines()
    items, tokens = table["floor_items"].iloc[0], table["floor_tokens"].iloc[0]
    notes = [
        "",
        f"{references:,} references; load-bearing floor {items:,} memories, {tokens:,} tokens",
    ]
    if references:
        notes += ["", *_LEGEND]
    else:
        notes.append("no reference is known, so no hit ratio: only costs can be compared")
    return [*lines, *notes]


def _draw(table: "pd.DataFrame", chart: Path) -> None:
    from io import BytesIO

    from memlab.charts import plot_comparison
    from memlab.files import write_whole

    drawn = BytesIO()
    plot_comparison(table).figure.canvas.print_figure(drawn, format="png", dpi=120)
    write_whole(chart, drawn.getvalue())
