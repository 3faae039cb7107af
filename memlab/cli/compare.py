"""``memlab compare``: policies side by side on a store's own past."""

import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from memlab.cli.asking import log_option, reads_of
from memlab.cli.options import STORE, json_option
from memlab.cli.output import print_lines
from memlab.cli.policy import (
    PolicyCommand,
    faults_of,
    made,
    no_such_setting,
    parsed,
    policy_option,
    set_option,
    split_setting,
)
from memlab.clock import now_utc
from memlab.files import Limit, check_writable, limit_like, write_whole

if TYPE_CHECKING:
    import pandas as pd

    from memlab.policies import Policy
    from memlab.policies.named import Named
    from memlab.policies.typed import Setting

CAPS: Final = ("50", "100", "200", "500", "1000")
AGES: Final = ("7d", "30d", "90d", "180d", "365d")
BUDGETS: Final = ("2000", "5000", "10000", "25000", "50000")
"""Settings that are tried where none are named: those people ask about."""

TRIED: Final = ("recent", "ttl", "value", "learned")

SHOWN: Final = {
    "served": "served",
    "oracle": "oracle",
    "boot_tokens_mean": "mean tokens",
    "boot_tokens_p95": "p95 tokens",
    "deleted": "deleted",
    "only_here": "only here",
}

_LEGEND: Final = (
    "served     references in this past that found their memory, as they were; memlab size",
    "           estimates those to come, which reach further back",
    "oracle     the most that any policy with as many slots could have served",
    "only here  memories that this line alone would have deleted",
    "A count is of prunable memories for recent, learned and odek; the others count load-bearing",
    "ones too, which never go.",
)


@click.command(cls=PolicyCommand, short_help="Compare policies on the store's own past.")
@click.argument("store", type=STORE)
@policy_option(
    multiple=True,
    help="A policy to try: a name below, or your own package.module:Class; may be given several "
    f"times.  [default: {', '.join(TRIED)}]",
)
@set_option
@click.option("--cap", "caps", type=click.IntRange(min=0), multiple=True, help="A count to try.")
@click.option("--ttl", "ages", metavar="AGE", multiple=True, help="An age to try, like 30d.")
@click.option(
    "--tokens", type=click.IntRange(min=0), multiple=True, help="A budget of tokens to try."
)
@click.option(
    "--token-budget",
    type=click.IntRange(min=0),
    help="Show only what keeps the boot context's p95 within so many tokens.",
)
@log_option
@click.option(
    "--chart",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw references served against boot tokens into an SVG or PNG file.",
)
@json_option
def compare(
    store: Path,
    policy_names: tuple[str, ...],
    given: tuple[str, ...],
    caps: tuple[int, ...],
    ages: tuple[str, ...],
    tokens: tuple[int, ...],
    token_budget: int | None,
    log_file: Path | None,
    chart: Path | None,
    as_json: bool,
) -> None:
    """Compare policies on STORE's own past: what each would have lost, and what that saved.

    Every policy is replayed from the first memory to the last; a reference is served if its target
    was still there. The oracle is the most that any policy with that many slots could have served.

    A setting given twice with --set is tried with both values. What memlab.toml remembers is tried
    too where no policy is named, and its logs are read.
    """
    from memlab.evidence.past import load_past
    from memlab.evidence.references import find_references
    from memlab.policies import policy_named
    from memlab.policies.remembered import policy_in
    from memlab.replay import compare as compare_policies
    from memlab.sources.opening import open_source, settings_of

    sizes: dict[str, tuple[str, ...]] = {
        "count": tuple(map(str, caps)) or CAPS,
        "age": ages or AGES,
        "tokens": tuple(map(str, tokens)) or BUDGETS,
    }
    policies = _policies([policy_named(name) for name in policy_names or TRIED], sizes, given)
    if chart is not None:
        check_writable(chart)
    source = open_source(store)
    settings = settings_of(source)
    remembered = None if policy_names else policy_in(settings)
    if remembered is not None and remembered not in policies:
        policies.append(remembered)
    log = reads_of(settings, log_file)
    frame = load_past(source, with_body=any(policy.reads_bodies for policy in policies), log=log)
    references = find_references(frame, log, now=None if log is None else now_utc())
    with faults_of(policies):
        table = compare_policies(frame, references, policies, progress=sys.stderr.isatty())
    if chart is not None:
        _draw(table, chart, limit_like(source.like))
    fitting = table if token_budget is None else table[table["boot_tokens_p95"] <= token_budget]
    if as_json:
        click.echo(fitting.reset_index().to_json(orient="records", indent=2))
        return
    print_lines(*_table_lines(fitting, len(references), token_budget, table))


def _policies(
    tried: "list[Named]", sizes: dict[str, tuple[str, ...]], given: tuple[str, ...]
) -> "list[Policy]":
    """Return every policy at each of its sizes and of the settings that were given for it."""
    texts: dict[str, list[str]] = {}
    for name, text in map(split_setting, given):
        texts.setdefault(name, []).append(text)
    if foreign := sorted(texts.keys() - {key for named in tried for key in named.settings}):
        raise no_such_setting(foreign, tried)
    policies = []
    for named in tried:
        own = {key: values for key, values in texts.items() if key in named.settings}
        size = _varied(named)
        rooms = {key for key in own if named.settings[key].size not in {"", "age"}}
        if size is not None and (not rooms or size.name in rooms or size.size == "age"):
            own.setdefault(size.name, list(sizes[size.size]))
        values = [[parsed(named.settings[key], text) for text in own[key]] for key in own]
        policies += [made(named, dict(zip(own, each, strict=True))) for each in product(*values)]
    return policies


def _varied(named: "Named") -> "Setting | None":
    """Return the setting by which a policy is tried at several sizes: one it needs, if any."""
    from memlab.policies.typed import REQUIRED

    sizes = [one for one in named.settings.values() if one.size]
    return min(
        sizes, key=lambda one: (one.default is not REQUIRED, one.size == "age"), default=None
    )


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
        "served": "{:.3f}".format,
        "oracle": "{:.3f}".format,
        "mean tokens": "{:,.0f}".format,
        "p95 tokens": "{:,.0f}".format,
        "deleted": "{:,}".format,
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
        notes.append("no reference is known, so no share served: only costs can be compared")
    return [*lines, *notes]


def _draw(table: "pd.DataFrame", chart: Path, limit: Limit) -> None:
    from memlab.charts import plot_comparison
    from memlab.charts.figure import Chart

    drawn = cast("Chart", plot_comparison(table).figure)
    picture = drawn.svg().encode() if chart.suffix == ".svg" else drawn.png(dpi=144)
    write_whole(chart, picture, limit=limit)
