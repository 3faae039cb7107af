"""Commands that report on a store or find stores. Only harvest and size --save write files."""

import sys
from pathlib import Path
from typing import Any, Final

import click

import memlab.policies
from memlab.arguments import confidence
from memlab.cli import options, output
from memlab.cli.policy import (
    PolicyCommand,
    SettingsCommand,
    explain_policy_errors,
    policies_to_compare,
    policy_option,
)
from memlab.files import check_writable
from memlab.store.snapshot import copy_store
from memlab.text import TextPage, command, counted, for_terminal
from memlab.views.bundled import store_path


@click.command(short_help="Show what an agent loads at every start.")
@click.argument("store", type=options.STORE, required=False)
@options.flag_option(
    "--example",
    help="First copy an example of 300 issues to STORE, or to memory.db without STORE.",
)
@options.backlog_option
@options.log_option
@options.json_option
def show(store: Path | None, example: bool, **arguments: Any) -> None:
    """Show what an agent loads from STORE at every start, and how much of it is prunable.

    The kind of store is detected. If a folder holds several stores, they are listed. Without STORE,
    show the bundled store of two years.
    """
    if example:
        store = copy_store(store_path("three_hundred_issues"), store or Path("memory.db"))
    path, now = options.store_and_now(store)
    overview = memlab.show(path, now=now, **arguments)
    output.print_result(overview, is_example=store is None)


_SORT_KEYS: Final = ("tokens", "age", "reads", "references", "need")
_LABELS: Final = (
    "load-bearing",
    "prunable",
    "superseded",
    "retired",
    "reached",
    "unlisted",
    "deleted",
    "doubtful",
    "not-kept",
    "unread",
)


@click.command(
    cls=SettingsCommand, short_help="List the memories, and what a cap would do with each."
)
@click.argument("store", type=options.STORE)
@policy_option()
@click.option(
    "--where",
    type=click.Choice(_LABELS),
    metavar="LABEL",
    help=f"Only those with this label: {', '.join(_LABELS)}.  [default: all in the store]",
)
@click.option("--tag", help="Only those with this tag.")
@click.option("--author", help="Only those by this author.")
@click.option(
    "--by",
    "order",
    type=click.Choice(_SORT_KEYS),
    default="tokens",
    help="What to sort by, largest first.",
)
@options.number_option(
    "--limit",
    help=f"How many are listed; 0 for all.  [default: {options.DEFAULT_ROWS}, as CSV or JSON all]",
)
@options.log_option
@options.flag_option("--csv", "as_csv", help="Print CSV.")
@options.json_option
def rows(
    store: Path,
    policy: "memlab.Policy | None",
    order: str,
    limit: int | None,
    as_csv: bool,
    **arguments: Any,
) -> None:
    """List the memories of STORE: label, age, tokens, reads, references, and what a cap deletes.

    A label is load-bearing, prunable, superseded, retired, reached (named by a hub), unlisted
    (named by no index), or deleted (in the archive). --by need lists those first that were needed
    most per token in recent times.

    \b
    memlab rows memory.db                                 the costliest
    memlab rows memory.db --keep-recent 50 --where not-kept
    memlab rows memory.db --log reads.jsonl --where unread  never read
    memlab rows memory.db --log reads.jsonl --by need       most needed
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.views import memory_table

    output.show_progress("reading the store and its archive")
    with explain_policy_errors(policy):
        listed = memory_table.rows(store, policy, by=order, **arguments)
    if limit:
        count = limit
    elif limit == 0 or as_csv or output.wants_json():
        count = len(listed)
    else:
        count = options.DEFAULT_ROWS
    if output.wants_json():
        output.print_records(listed.head(count))
    elif as_csv:
        output.print_text(memory_table.without_controls(listed.head(count)).to_csv(index=False))
    else:
        width = output.terminal_width() or options.DEFAULT_WIDTH
        more = "; --limit 0 lists all, --csv and --json have every column"
        table = memory_table.table_of(listed, most=count, width=width, more=more, by=order)
        heading = f"{store}: {counted(len(listed))}, by {order}"
        output.print_lines(TextPage(heading, listed.attrs[memory_table.FACTS], [table]))
        if listed["label"].eq("deleted").any():
            list_plans = command("archive", store)
            output.print_lines(
                "", f"undo: {list_plans}    lists the plans, and how one is taken back"
            )


@click.command(short_help="Find the stores below a folder.")
@click.argument("folder", type=click.Path(), required=False)
@options.json_option
def find(folder: str | None) -> None:
    """Find the stores below FOLDER, and what each holds. Reads only; links are not followed.

    Folders of Claude Code's memory that may belong to one project are listed with the evidence, and
    so are those whose project does not exist any more.

    Without FOLDER, search where Claude Code, claude-mem, mcp-memory-service, odek and OpenClaw keep
    their stores.
    """
    output.print_result(memlab.find(folder))


@click.command(short_help="Check a store and its archive for faults.")
@click.argument("store", type=options.STORE)
@options.backlog_option
@options.flag_option("--strict", help="End with exit code 1 for a warning, too.")
@options.json_option
def doctor(store: Path, backlog: int | None, strict: bool) -> None:
    """Check STORE, its archive and its settings for faults. Nothing is written.

    The exit code is 1 if a check fails, and 0 if there are only warnings.
    """
    output.show_progress("looking at the store and its archive")
    health = memlab.doctor(store, backlog=backlog)
    output.print_result(health)
    failing = {"WARN", "FAIL"} if strict else {"FAIL"}
    output.fail_if(health.status in failing)


@click.command(short_help="Recommend a keep_recent, with evidence.")
@click.argument("store", type=options.STORE, required=False)
@options.sizing_options
@click.option(
    "--confidence",
    type=options.Share(confidence),
    help="Confidence with which the number meets the target, such as 0.95.  [default: from "
    "memlab.toml, else 0.9]",
)
@options.flag_option("--only-log", help="Use only the log, and ignore references in the store.")
@click.option(
    "--unit",
    type=click.Choice(["memories", "tokens"]),
    default="memories",
    help="Recommend a number of memories, or a budget in tokens.",
)
@options.flag_option("--save", help="Save the number and its evidence in memlab.toml.")
@options.flag_option(
    "--explain",
    help="Show the caps near the number, the backtest of the number, and the reasons.",
)
@options.json_option
def size(store: Path | None, save: bool, **arguments: Any) -> None:
    """Recommend a keep_recent for STORE, from how old memories were when they were needed again.

    With few references of its own, a store is sized by data from other projects. The store is only
    read. Target, budget and log are taken from memlab.toml beside the store if they are not given.
    Without STORE, size the bundled store of two years.

    \b
    memlab size memory.db
    memlab size memory.db --target 0.95 --token-budget 20000 --save
    memlab size memory.db --log reads.csv
    memlab size memory.db --unit tokens --save
    """  # noqa: D301 - \b keeps the lines below it apart
    if save and store is None:
        raise click.UsageError("--save needs a STORE")
    output.show_progress("reading the store and sizing it")
    recommendation = memlab.size(store or store_path("two_years"), **arguments)
    output.print_result(recommendation, is_example=store is None)
    if save:
        click.echo(f"\n{for_terminal(output.shorten_paths(recommendation.save()))}", err=True)
        # Without a policy nothing was saved.
        output.fail_if(recommendation.advice.policy is None)


@click.command(short_help="Write what an agent read to an access log.")
@click.argument("source")
@options.path_option(
    "-o",
    "--output",
    "log",
    metavar="LOG",
    help="The access log to append to.  [default: SOURCE.reads.jsonl]",
)
@options.path_option(
    "--transcripts",
    metavar="DIR",
    help="Folder of Claude Code's transcripts or Codex's sessions, if it is not the usual one.",
)
@options.json_option
def harvest(source: str, log: Path | None, transcripts: Path | None) -> None:
    """Append what agents read from SOURCE to an access log; the source is only read.

    SOURCE is a Claude Code memory folder, the database of claude-mem, mcp-memory-service or
    LangGraph, Codex's folder, an OpenClaw workspace, a project with Serena's memories, or a
    postgresql:// URL of MemForge or LangGraph. Reads that the log has are not added again. Sources
    delete old records, and the log keeps them: run this more often than the source deletes.

    \b
    memlab harvest ~/.claude/projects/-work-app/memory
    memlab harvest ~/.claude-mem/claude-mem.db -o reads.jsonl
    memlab size memory.db --log reads.jsonl
    """  # noqa: D301 - \b keeps the lines below it apart
    with output.bar("harvest", "B", scale=True) as progress:
        harvest = memlab.harvest(source, log, transcripts=transcripts, progress=progress)
    output.print_result(harvest)


_POLICY_OF_SIZE: Final = {"count": "recent", "age": "ttl", "tokens": "tokens"}
"""By size option: the policy that is meant if ``--policy`` is not given."""


@click.command(cls=PolicyCommand, short_help="Compare policies on the store's own past.")
@click.argument("store", type=options.STORE)
@policy_option(
    multiple=True,
    text="A policy to try: a name below, or your own package.module:Class; may be given several "
    "times.  [default: the rules of four systems, a limit on age, and one by use]",
)
@options.number_option(
    "--keep-recent",
    "count",
    multiple=True,
    help="A cap to compare, for each policy that keeps a number of memories.",
)
@click.option("--ttl", "age", metavar="AGE", multiple=True, help="An age to try, like 30d.")
@options.number_option("--max-tokens", "tokens", multiple=True, help="A budget to try.")
@options.number_option(
    "--token-budget", help="Show only policies that load at most so many tokens in 95% of starts."
)
@options.log_option
@options.file_option(
    "-o",
    "--output",
    "chart",
    help="Also draw references served against tokens at start, to an SVG or PNG file.",
)
@click.option(
    "--every",
    type=options.Number(1),
    help="Apply each policy after every N memories. The default is each memory; for a large store "
    "about 500 times in all, or 10,000 times if a policy is named.",
)
@options.flag_option(
    "--retire",
    help="Try retiring beside deleting: a retired memory is not loaded until it is read again.",
)
@options.json_option
def compare(
    store: Path,
    policy_names: tuple[str, ...],
    assignments: tuple[str, ...],
    chart: Path | None,
    retire: bool,
    **arguments: Any,
) -> None:
    """Compare policies on STORE's own past, and say which serves most at equal tokens.

    Each policy is replayed from the first memory to the last. A reference is served if its target
    was still there. The answer is the last sentence, with the next command below it.

    Without --policy, the rules of forge-loop, BetterDB, odek and MemForge are tried, each at its
    own default and at sizes that use equal tokens, beside a limit on age and one by use. The policy
    in memlab.toml is tried, too. A setting given twice with --set is tried with both values.
    """
    from memlab.replay.parameter_grid import with_policy_in_settings
    from memlab.sources.opening import open_source

    source = open_source(store)
    if chart is not None:
        check_writable(chart)
    sizes = {name: arguments.pop(name) for name in ("count", "age", "tokens")}
    sizes_given = [name for name, values in sizes.items() if values]
    policies = None
    if policy_names or assignments or sizes_given:
        names = policy_names or [_POLICY_OF_SIZE[name] for name in sizes_given] or ["recent"]
        policies = policies_to_compare(names, sizes, assignments, vary_both_sizes=retire)
        if not policy_names:
            policies = with_policy_in_settings(policies, source)
    output.clear_progress()
    with explain_policy_errors(*(policies or ())):
        comparison = memlab.compare(
            store, policies=policies, retire=retire, progress=sys.stderr.isatty(), **arguments
        )
    if chart is not None:
        from memlab.charts import plot_comparison

        output.write_picture(plot_comparison(comparison.table).figure, chart, source)
    output.print_result(comparison)
