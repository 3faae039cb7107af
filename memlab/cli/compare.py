"""``memlab compare``: policies side by side on a store's own past."""

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.options import FILE, NUMBER, STORE, Number, json_option, log_option, reads_of
from memlab.cli.output import print_lines, print_text, quiet, write_picture
from memlab.cli.policy import (
    PolicyCommand,
    faults_of,
    made,
    no_such_setting,
    policy_option,
    set_option,
    split_setting,
)
from memlab.clock import now_utc
from memlab.files import check_writable

if TYPE_CHECKING:
    from memlab.policies import Policy
    from memlab.policies.named import Named
    from memlab.policies.typed import Setting

SIZES: Final = {
    "count": (50, 100, 200, 500, 1000),
    "age": ("7d", "30d", "90d", "180d", "365d"),
    "tokens": (2000, 5000, 10000, 25000, 50000),
}
"""Settings that are tried where none are named: those people ask about."""

TRIED: Final = ("recent", "ttl", "value", "learned")

RETIRING: Final = (*TRIED, "tokens")
"""The same with --retire, by which room in tokens is what is saved."""

TIMES: Final = 10_000
"""About how often each policy is applied along a long history where nobody says."""


@click.command(cls=PolicyCommand, short_help="Compare policies on the store's own past.")
@click.argument("store", type=STORE)
@policy_option(
    multiple=True,
    help="A policy to try: a name below, or your own package.module:Class; may be given several "
    f"times.  [default: {', '.join(TRIED)}]",
)
@set_option
@click.option(
    "--keep-recent",
    "count",
    type=NUMBER,
    multiple=True,
    help="A cap to try, and as many slots of policies that count otherwise.",
)
@click.option("--ttl", "age", metavar="AGE", multiple=True, help="An age to try, like 30d.")
@click.option("--max-tokens", "tokens", type=NUMBER, multiple=True, help="A budget to try.")
@click.option(
    "--token-budget",
    type=NUMBER,
    help="Show only what keeps the boot context's p95 within so many tokens.",
)
@log_option
@click.option(
    "-o",
    "--output",
    "chart",
    type=FILE,
    help="Also draw references served against boot tokens into an SVG or PNG file.",
)
@click.option(
    "--every",
    type=Number(1),
    help="Apply each policy after every N memories; by default after each, of many memories about "
    f"{TIMES:,} times.",
)
@click.option(
    "--retire",
    is_flag=True,
    help="Show beside deleting what retiring would have served: what is not kept is not loaded, "
    "and comes back once it is read. By number and by tokens.",
)
@json_option
def compare(
    store: Path,
    policy_names: tuple[str, ...],
    given: tuple[str, ...],
    token_budget: int | None,
    log_file: Path | None,
    chart: Path | None,
    every: int | None,
    retire: bool,
    as_json: bool,
    **sizes: tuple[Any, ...],
) -> None:
    """Compare policies on STORE's own past: what each would have lost, and what that saved.

    Every policy is replayed from the first memory to the last; a reference is served if its target
    was still there. The oracle is the most that any policy with that many slots could have served.

    A setting given twice with --set is tried with both values. What memlab.toml remembers is tried
    too where no policy is named, and its logs are read.
    """
    from memlab.compaction.in_force import policy_in_force
    from memlab.evidence.past import load_past
    from memlab.evidence.references import find_references
    from memlab.policies import policy_named
    from memlab.policies.named import policy_in
    from memlab.replay import compare as compare_policies
    from memlab.replay.comparison import Comparison
    from memlab.sources.opening import open_source, settings_of

    tried = policy_names or (RETIRING if retire else TRIED)
    policies = _policies([policy_named(name) for name in tried], sizes, given, both=retire)
    if chart is not None:
        check_writable(chart)
    source = open_source(store)
    settings = settings_of(source)
    if not policy_names:  # the horizon of a number is no matter here
        remembered = policy_in_force(source).policy if settings.is_auto else policy_in(settings)
        policies += [remembered] if remembered and remembered not in policies else []
    log = reads_of(settings, log_file)
    frame = load_past(source, with_body=any(policy.reads_bodies for policy in policies), log=log)
    references = find_references(frame, log, now=None if log is None else now_utc())
    every = every or -(-len(frame) // TIMES) or 1
    quiet()
    with faults_of(policies):
        table = compare_policies(
            frame,
            references,
            policies,
            every=every,
            retire=retire,
            progress=sys.stderr.isatty(),
        )
    if chart is not None:
        from memlab.charts import plot_comparison

        write_picture(plot_comparison(table).figure, chart, source)
    found = Comparison(str(store), table, len(references), every, token_budget, source.retires)
    if as_json:
        print_text(found.fitting.reset_index().to_json(orient="records", indent=2))
    else:
        print_lines(*found.lines())


def _policies(
    tried: "list[Named]",
    sizes: Mapping[str, tuple[Any, ...]],
    given: tuple[str, ...],
    *,
    both: bool,
) -> "list[Policy]":
    """Return every policy at each of its sizes and of the settings that were given for it.

    Where `both`, one that is given room by number or by tokens is tried by either.
    """
    texts: dict[str, list[str]] = {}
    for name, text in map(split_setting, given):
        texts.setdefault(name, []).append(text)
    if foreign := sorted(texts.keys() - {key for named in tried for key in named.settings}):
        raise no_such_setting(foreign, tried)
    policies = []
    for named in tried:
        said = {key: values for key, values in texts.items() if key in named.settings}
        rooms = {key for key in said if named.settings[key].size not in {"", "age"}}
        for size in _varied(named, both=both and not rooms) or [None]:
            own = dict(said)
            if size is not None and (not rooms or size.name in rooms or size.size == "age"):
                own.setdefault(size.name, [str(n) for n in sizes[size.size] or SIZES[size.size]])
            chosen = (dict(zip(own, each, strict=True)) for each in product(*own.values()))
            policies += [made(named, each).policy for each in chosen]
    return policies


def _varied(named: "Named", *, both: bool) -> "list[Setting | None]":
    """Return the setting by which a policy is tried at several sizes: one it needs, if any.

    Where `both`, that is every room that it can be given.
    """
    from memlab.policies.typed import REQUIRED

    sizes = [one for one in named.settings.values() if one.size]
    sizes.sort(key=lambda one: (one.default is not REQUIRED, one.size == "age"))
    return [*sizes[:1], *(one for one in sizes[1:] if both and one.size != "age")]
