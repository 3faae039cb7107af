"""Commands that look: ``show`` at a store, ``find`` for stores, ``doctor``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.options import (
    LISTED_ROWS,
    NUMBER,
    STORE,
    WIDTH,
    json_option,
    log_option,
    moment_for,
    names_a_folder,
    steps_after,
    store_or_bundled,
    threshold_option,
)
from memlab.cli.output import (
    doing,
    fail_if,
    print_json,
    print_lines,
    print_result,
    print_text,
    terminal_width,
)
from memlab.cli.policy import SettingsCommand, faults_of, policy_asked, policy_option, set_option
from memlab.errors import StoreError
from memlab.store.snapshot import copy_store
from memlab.text import Sheet, command, counted
from memlab.views.bundled import store_path

if TYPE_CHECKING:
    from memlab.growth import Inventory


@click.command(short_help="Show what an agent loads at every start.")
@click.argument("store", type=STORE, required=False)
@click.option(
    "--example", is_flag=True, help="Make STORE first, or memory.db: an example of 300 issues."
)
@threshold_option
@click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An access log: which memories nobody read, and what the cut of an index loses.",
)
@json_option
def show(
    store: Path | None,
    example: bool,
    threshold: int | None,
    log_file: Path | None,
    as_json: bool,
) -> None:
    """Show what an agent loads from STORE at every start, and how much of it is prunable.

    What STORE is is found out by looking; a folder that holds several lists them. Without STORE,
    the bundled two years.
    """
    from memlab.growth.alerts import Look, alerts_of, facts_of
    from memlab.growth.summary import past_arrays, summary_of
    from memlab.sources.opening import open_source, settings_of

    if example:
        store = copy_store(store_path("three_hundred_issues"), store or Path("memory.db"))
    path = store_or_bundled(store)
    if (inside := _stores_inside(path)) is not None:
        print_result(inside, as_json=as_json)
        return
    source = open_source(path)
    arrays, problem = past_arrays(source)
    settings = settings_of(source)
    keep, number = settings.keep_recent, ""
    if settings.sized is not None or settings.is_auto:
        from memlab.compaction.in_force import number_in_force

        keep, number, _ = number_in_force(source)
    summary = summary_of(
        arrays,
        now=moment_for(store, arrays.last_at),
        threshold=keep if threshold is None else threshold,
    )
    log, more = None, {"about": source.about()}
    if log_file is not None:
        from memlab.evidence.cut import cut_losses
        from memlab.evidence.reads import read_access_log

        log = read_access_log(log_file)
        if source.cuts_index:
            more["cut"] = cut_losses(source, log)
    alerts = alerts_of(Look(source, arrays, summary, str(path), log, str(log_file or "")))
    more |= {"past": source.past_note(), "number": number, "settings": settings.not_obeyed}
    more = {name: part for name, part in more.items() if part}
    if as_json:
        print_json({"store": str(path), "alerts": alerts, "summary": summary, **more})
        return
    below: list[Any] = [f"  archive left out: {problem}"] if problem else []
    for name, part in more.items():
        below += ["", f"{name}: {part}" if isinstance(part, str) else part]
    steps = [f"next: {command('size', path)}    which keep_recent, with evidence"]
    if settings.policy is not None:
        does = "retire" if settings.retire else "delete"
        steps.append(f"      {command('compact', path)}    what the remembered policy would {does}")
    if 2 * summary.boot.load_bearing.tokens > summary.boot.tokens:
        steps.append(f"      {command('floor', path)}    what no cap brings down, and what could")
    above: list[Any] = [Sheet("alerts, the costliest first", facts_of(alerts)), ""]
    print_lines(
        str(path), *above * bool(alerts), summary, *below, "", *steps_after("show", store, steps)
    )


def _stores_inside(path: object) -> "Inventory | None":
    """Return the stores below a folder that is none itself; None for anything else."""
    from memlab.sources.opening import recognise

    if not isinstance(path, Path) or not path.is_dir() or recognise(path) is not None:
        return None
    from memlab.growth import find

    found = find(path)
    if not found.stores:
        raise StoreError(f"{path} is a folder without a store in it; name a store, or its folder")
    return found


_BY: Final = ("tokens", "age", "reads", "references", "need")
_WHERE: Final = (
    *("load-bearing", "prunable", "superseded", "retired"),
    *("deleted", "not-kept", "unread"),
)


@click.command(
    "rows", cls=SettingsCommand, short_help="List the memories, and what a cap would do with each."
)
@click.argument("store", type=STORE)
@policy_option()
@set_option
@click.option("--where", type=click.Choice(_WHERE), help="Only these.  [default: all in the store]")
@click.option("--tag", help="Only those with this tag.")
@click.option("--author", help="Only those this one wrote.")
@click.option(
    "--by",
    type=click.Choice(_BY),
    default="tokens",
    show_default=True,
    help="The order, the most first.",
)
@click.option(
    "--limit",
    type=NUMBER,
    metavar="N",
    help=f"How many are listed; 0 for all.  [default: {LISTED_ROWS}, and all as CSV or JSON]",
)
@log_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
def show_rows(
    store: Path,
    policy_name: str | None,
    given: tuple[str, ...],
    where: str | None,
    tag: str | None,
    author: str | None,
    by: str,
    limit: int | None,
    log_file: Path | None,
    as_csv: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """List the memories of STORE: label, age, tokens, reads, references, and who goes under a cap.

    A label is load-bearing, prunable, superseded, retired, or deleted (in the archive). By need
    comes first what would be worth loading at start: what was needed most of late for its length.

    \b
    memlab rows memory.db                                 the costliest
    memlab rows memory.db --keep-recent 50 --where not-kept
    memlab rows memory.db --log reads.log --where unread  nobody needed
    memlab rows memory.db --log reads.log --by need       worth loading
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.compaction.listing import FACTS, rows, table_of, without_controls
    from memlab.evidence.reads import read_access_log

    chosen = policy_asked(policy_name, settings, given)
    policy = None if chosen is None else chosen.policy
    log = None if log_file is None else read_access_log(log_file)
    doing("reading the store and its archive")
    with faults_of([policy] if policy else []):
        listed = rows(store, policy, where=where, by=by, log=log)
    if tag is not None:
        listed = listed[listed["tags"].map(lambda tags: tag in tags).astype(bool)]
    if author is not None:
        listed = listed[listed["authored_by"] == author]
    most = limit or (LISTED_ROWS if limit is None and not (as_csv or as_json) else len(listed))
    if as_json:
        print_text(listed.head(most).to_json(orient="records", date_format="iso", indent=1))
    elif as_csv:
        print_text(without_controls(listed.head(most)).to_csv(index=False))
    else:
        width = terminal_width() or WIDTH
        more = "; --limit 0 lists all, --csv and --json have every column"
        table = table_of(listed, most=most, width=width, more=more, by=by)
        heading = f"{store}: {counted(len(listed))}, by {by}"
        back = f"undo: {command('archive', store)}    lists the plans, and how one is taken back"
        end = ["", back] if listed["label"].eq("deleted").any() else []
        print_lines(Sheet(heading, listed.attrs[FACTS], [table]), *end)


@click.command(short_help="Find the stores below a folder.")
@click.argument("folder", type=STORE, required=False)
@json_option
def find(folder: Path | None, as_json: bool) -> None:
    """Find the stores below FOLDER, and what each holds. Reads only; links are not followed.

    Without FOLDER, where Claude Code, claude-mem, mcp-memory-service, odek and OpenClaw put theirs.
    """
    from memlab.growth import find

    is_path = isinstance(folder, Path) and (folder.is_dir() or not names_a_folder(folder))
    if folder is not None and not is_path:
        raise click.UsageError(
            f"{folder} names one store, and this looks through folders; next: "
            f"{command('show', folder)}"
        )
    print_result(find(folder), as_json=as_json)


@click.command(short_help="Look at the health of a store and of its archive.")
@click.argument("store", type=STORE)
@threshold_option
@click.option("--strict", is_flag=True, help="End with 1 for a warning, too.")
@json_option
def doctor(store: Path, threshold: int | None, strict: bool, as_json: bool) -> None:
    """Look at the health of STORE, of its archive and of its settings. Reads only.

    Ends with exit code 1 where something fails; a warning is worth a look and ends with 0.
    """
    from memlab.upkeep.health import Status, doctor

    doing("looking at the store and its archive")
    found = doctor(store, threshold=threshold)
    print_result(found, as_json=as_json)
    fail_if(found.status in {Status.FAIL, *([Status.WARN] if strict else [])})
