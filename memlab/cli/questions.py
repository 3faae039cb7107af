"""Commands that report on a store or find stores. Only harvest and size --save write files."""

import sys
from pathlib import Path
from typing import Any, Final

import click

import memlab.policies
from memlab.arguments import confidence
from memlab.cli import options, output
from memlab.cli.policy import PolicyCommand, SettingsCommand, faults_of, made_each, policy_option
from memlab.files import check_writable
from memlab.store.snapshot import copy_store
from memlab.text import TextPage, command, counted, for_terminal
from memlab.views.bundled import store_path


@click.command(short_help="Show what an agent loads at every start.")
@click.argument("store", type=options.STORE, required=False)
@options.flag_option("--example", help="Make STORE first, or memory.db: an example of 300 issues.")
@options.backlog_option
@options.log_option
@options.json_option
def show(store: Path | None, example: bool, **asked: Any) -> None:
    """Show what an agent loads from STORE at every start, and how much of it is prunable.

    The kind of store is detected; of a folder that holds several, they are listed. Without STORE,
    the bundled two years.
    """
    if example:
        store = copy_store(store_path("three_hundred_issues"), store or Path("memory.db"))
    path, now = options.store_and_moment(store)
    overview = memlab.show(path, now=now, **asked)
    output.print_result(overview, is_example=store is None)


_BY: Final = ("tokens", "age", "reads", "references", "need")
_WHERE: Final = (
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
    type=click.Choice(_WHERE),
    metavar="LABEL",
    help=f"Only those with this label: {', '.join(_WHERE)}.  [default: all in the store]",
)
@click.option("--tag", help="Only those with this tag.")
@click.option("--author", help="Only those this one wrote.")
@click.option(
    "--by", "order", type=click.Choice(_BY), default="tokens", help="The order, the most first."
)
@options.number_option(
    "--limit",
    help=f"How many are listed; 0 for all.  [default: {options.LISTED_ROWS}, as CSV or JSON all]",
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
    **asked: Any,
) -> None:
    """List the memories of STORE: label, age, tokens, reads, references, and who goes under a cap.

    A label is load-bearing, prunable, superseded, retired, reached (a hub names it), unlisted (no
    index does), or deleted (in the archive). By need comes first what would be worth loading at
    start: what was needed most of late for its length.

    \b
    memlab rows memory.db                                 the costliest
    memlab rows memory.db --keep-recent 50 --where not-kept
    memlab rows memory.db --log reads.jsonl --where unread  nobody needed
    memlab rows memory.db --log reads.jsonl --by need       worth loading
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.compaction import memory_table

    output.show_progress("reading the store and its archive")
    with faults_of(policy):
        listed = memory_table.rows(store, policy, by=order, **asked)
    is_whole = limit == 0 or as_csv or output.wants_json()
    most = limit or (len(listed) if is_whole else options.LISTED_ROWS)
    if output.wants_json():
        output.print_records(listed.head(most))
    elif as_csv:
        output.print_text(memory_table.without_controls(listed.head(most)).to_csv(index=False))
    else:
        width = output.terminal_width() or options.WIDTH
        more = "; --limit 0 lists all, --csv and --json have every column"
        table = memory_table.table_of(listed, most=most, width=width, more=more, by=order)
        heading = f"{store}: {counted(len(listed))}, by {order}"
        back = f"undo: {command('archive', store)}    lists the plans, and how one is taken back"
        end = ["", back] if listed["label"].eq("deleted").any() else []
        output.print_lines(TextPage(heading, listed.attrs[memory_table.FACTS], [table]), *end)


@click.command(short_help="Find the stores below a folder.")
@click.argument("folder", type=click.Path(), required=False)
@options.json_option
def find(folder: str | None) -> None:
    """Find the stores below FOLDER, and what each holds. Reads only; links are not followed.

    Folders of Claude Code's memory that may be one project are listed with the evidence, and those
    whose project is not there any more.

    Without FOLDER, where Claude Code, claude-mem, mcp-memory-service, odek and OpenClaw put theirs.
    """
    output.print_result(memlab.find(folder))


@click.command(short_help="Look at the health of a store and of its archive.")
@click.argument("store", type=options.STORE)
@options.backlog_option
@options.flag_option("--strict", help="End with 1 for a warning, too.")
@options.json_option
def doctor(store: Path, backlog: int | None, strict: bool) -> None:
    """Look at the health of STORE, of its archive and of its settings. Reads only.

    Ends with exit code 1 where something fails; a warning is worth a look and ends with 0.
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
    help="How sure the number should be to meet the target, such as 0.95.  [default: what "
    "memlab.toml remembers, else 0.9]",
)
@options.flag_option("--only-log", help="Leave aside what the store itself says; the log is all.")
@click.option(
    "--unit",
    type=click.Choice(["memories", "tokens"]),
    default="memories",
    help="Recommend a number of memories, or a budget in tokens.",
)
@options.flag_option("--save", help="Remember the number and what it rests on in memlab.toml.")
@options.flag_option("--explain", help="Show all caps around it, its record, and why.")
@options.json_option
def size(store: Path | None, save: bool, **asked: Any) -> None:
    """Recommend a keep_recent for STORE from what was referred to later.

    A store with few references of its own is sized by those of other projects. Without STORE, the
    bundled two years. The store is only read; target, budget and log that memlab.toml beside it
    remembers are used where none are given.

    \b
    memlab size memory.db
    memlab size memory.db --target 0.95 --token-budget 20000 --save
    memlab size memory.db --log reads.csv
    memlab size memory.db --unit tokens --save
    """  # noqa: D301 - \b keeps the lines below it apart
    if save and store is None:
        raise click.UsageError("--save needs a STORE to remember the number of")
    output.show_progress("reading the store and sizing it")
    recommendation = memlab.size(store or store_path("two_years"), **asked)
    output.print_result(recommendation, is_example=store is None)
    if save:
        click.echo(f"\n{for_terminal(output.as_given(recommendation.save()))}", err=True)
        output.fail_if(recommendation.advice.policy is None)


@click.command(short_help="Gather what an agent read into an access log.")
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
    help="Where Claude Code's transcripts or Codex's sessions lie, if not where they usually do.",
)
@options.json_option
def harvest(source: str, log: Path | None, transcripts: Path | None) -> None:
    """Append what agents read from SOURCE to an access log; the source is only read.

    SOURCE is a Claude Code memory folder, the database of claude-mem, mcp-memory-service or
    LangGraph, Codex's folder, an OpenClaw workspace, a project with Serena's memories, or a
    postgresql:// URL of MemForge or LangGraph. What the log has is not added again and stays when
    its source has swept it away, so run this as often as the source forgets.

    \b
    memlab harvest ~/.claude/projects/-work-app/memory
    memlab harvest ~/.claude-mem/claude-mem.db -o reads.jsonl
    memlab size memory.db --log reads.jsonl
    """  # noqa: D301 - \b keeps the lines below it apart
    with output.bar("harvest", "B", scale=True) as progress:
        harvest = memlab.harvest(source, log, transcripts=transcripts, progress=progress)
    output.print_result(harvest)


_OF_SIZE: Final = {"count": "recent", "age": "ttl", "tokens": "tokens"}
"""The policy of each size option that is given without ``--policy``."""


@click.command(cls=PolicyCommand, short_help="Compare policies on the store's own past.")
@click.argument("store", type=options.STORE)
@policy_option(
    multiple=True,
    text="A policy to try: a name below, or your own package.module:Class; may be given several "
    "times.  [default: the four systems' rules, an age, and what goes by use]",
)
@options.number_option(
    "--keep-recent",
    "count",
    multiple=True,
    help="A cap to try, and as many slots of policies that count otherwise.",
)
@click.option("--ttl", "age", metavar="AGE", multiple=True, help="An age to try, like 30d.")
@options.number_option("--max-tokens", "tokens", multiple=True, help="A budget to try.")
@options.number_option(
    "--token-budget", help="Show only what keeps the boot context's p95 within so many tokens."
)
@options.log_option
@options.file_option(
    "-o",
    "--output",
    "chart",
    help="Also draw references served against boot tokens into an SVG or PNG file.",
)
@click.option(
    "--every",
    type=options.Number(1),
    help="Apply each policy after every N memories; by default after each, of many memories about "
    "500 times, or 10,000 where a policy is named.",
)
@options.flag_option(
    "--retire",
    help="Show beside deleting what retiring would have served: what is not kept is not loaded, "
    "and comes back once it is read. By number and by tokens.",
)
@options.json_option
def compare(
    store: Path,
    policy_names: tuple[str, ...],
    given: tuple[str, ...],
    chart: Path | None,
    retire: bool,
    **asked: Any,
) -> None:
    """Compare policies on STORE's own past, and say which serves most at equal tokens.

    Without --policy the rules of forge-loop, BetterDB, odek and MemForge are tried by name, each at
    its own default and at sizes that cost as many tokens as the others, beside an age and what goes
    by use. The answer is the last sentence; below it stands the command that follows it.

    Every policy is replayed from the first memory to the last; a reference is served if its target
    was still there. The oracle is the most that any policy with that many slots could have served.

    A setting given twice with --set is tried with both values. What memlab.toml remembers is tried
    too where no policy is named, and its logs are read.
    """
    from memlab.replay.parameter_grid import with_remembered
    from memlab.sources.opening import open_source

    source = open_source(store)
    if chart is not None:
        check_writable(chart)
    sizes = {name: asked.pop(name) for name in ("count", "age", "tokens")}
    policies = None
    if policy_names or given or any(sizes.values()):
        names = policy_names or tuple(_OF_SIZE[name] for name, values in sizes.items() if values)
        policies = made_each(names or ("recent",), sizes, given, both=retire)
        if not policy_names:
            policies = with_remembered(policies, source)
    output.clear_progress()
    with faults_of(*(policies or ())):
        comparison = memlab.compare(
            store, policies=policies, retire=retire, progress=sys.stderr.isatty(), **asked
        )
    if chart is not None:
        from memlab.charts import plot_comparison

        output.write_picture(plot_comparison(comparison.table).figure, chart, source)
    output.print_result(comparison)
