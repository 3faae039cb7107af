"""Commands that plan a change, carry it out, and take it back."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import memlab.compaction
from memlab.cli import options, output
from memlab.cli.policy import SettingsCommand, faults_of, policy_option
from memlab.clock import now_utc
from memlab.errors import MemlabError, PlanError
from memlab.files import check_writable, limit_like, read_whole, write_whole
from memlab.text import TextPage, command, counted, for_terminal
from memlab.views.bundled import store_path

if TYPE_CHECKING:
    from memlab.sources.base import Source

_END: Final = "\n}\n"
"""With what the JSON of a plan ends."""


def _change_options(command: options.Command) -> options.Command:
    """Add ``--save-plan``, ``--against``, ``--apply`` and ``--json`` to a command."""
    for option in (
        options.json_option,
        options.flag_option("--apply", "do_it", help="Carry the plan out. Without it, only show."),
        options.file_option(
            "--against",
            metavar="PLAN",
            help="Show what the plan does otherwise than a saved one; ends with 1 where it does.",
        ),
        options.save_plan_option,
    ):
        command = option(command)
    return command


@click.command(cls=SettingsCommand, short_help="Show what a cap would delete; with --apply, do it.")
@click.argument("store", type=options.STORE)
@policy_option()
@click.option(
    "--retire/--delete",
    default=None,
    help="Take what the policy does not keep out of what is loaded, and leave it in the store.  "
    "[default: what memlab.toml remembers; --delete]",
)
@options.flag_option("--save", help="Remember the policy in memlab.toml beside the store.")
@options.flag_option("--rows", "list_rows", help="List what would go, the costliest first.")
@options.log_option
@options.ALL
@_change_options
def compact(
    store: Path,
    policy: "memlab.Policy | None",
    retire: bool | None,
    save: bool,
    save_plan: Path | None,
    against: Path | None,
    do_it: bool,
    all_prunable: bool,
    list_rows: bool,
    log: Path | None,
) -> None:
    """Show what a cap would delete from STORE; with --apply, archive and delete it.

    Decisions, skills and rejected paths are never deleted. What is deleted goes to an archive
    beside the store first, and memlab restore puts it back byte for byte. With --retire nothing is
    deleted: what the policy does not keep stays in the store and is not loaded, until it is read or
    referred to again.

    \b
    memlab compact memory.db --keep-recent 200           show
    memlab compact memory.db --keep-recent 200 --apply   do it
    memlab compact memory.db --keep-recent 200 --save    remember it
    memlab compact memory.db --keep-recent 200 --retire  show what it would retire
    memlab compact memory.db                             go by what is remembered
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.policies.named import as_setting
    from memlab.sizing.in_force import remembered_policy
    from memlab.sources.opening import open_source, remember, settings_of

    source = open_source(store)
    if list_rows and (do_it or output.wants_json()):
        raise click.UsageError(
            "--rows is for the dry run: --json has every memory, and --apply deletes them"
        )
    if save and policy is None:
        raise click.UsageError("--save needs a policy to remember, such as --keep-recent N")
    if save_plan is not None:
        check_writable(save_plan, replace=False)
    policy, number = remembered_policy(source) if policy is None else (policy, "")
    retires = settings_of(source).retire if retire is None else retire
    watch = output.progress_callback("planning")
    with faults_of(policy):
        made = memlab.plan(source, policy, retire=retires, log=log, now=now_utc(), watch=watch)
    _save_plan(made, save_plan, source)
    if save:
        how: dict[str, Any] = {} if retire is None else {"retire": retire or None}
        how |= {"log": log} if log else {}
        file = remember(source, {"policy": as_setting(policy)} | how)
        click.echo(f"{for_terminal(f'remembered in {file}')}\n", err=True)
    told = _protected(source)
    if against is not None:
        _compare(against, made, do_it=do_it)
    elif do_it:
        _carry_out(made, told, all_prunable=all_prunable)
    elif output.wants_json():
        text = made.to_json()
        if not retires:
            cost = _cost(source, made, log)
            added = json.dumps(cost if isinstance(cost, str) else asdict(cost))
            # Spliced in: a memory stays one line, and a large plan is not built a second time.
            text = f'{text.removesuffix(_END)},\n"cost": {added}{_END}'
        output.print_text(text)
    else:
        costs = [_cost(source, made, log), ""] if made.memories else []
        by_settings = [f"by memlab.toml: {number}"] if number else []
        after = _after_planning(made, save_plan, "under this policy every memory stays")
        lists = list_rows and not made.is_empty
        listed = _costliest(source, policy, log) if lists else []
        doubts = made.warnings()
        if made.retires:
            back = "a memory refers to returns at the next plan, and what a log says was read"
            if not (log or settings_of(source).log):
                back += ': log = ["reads.log"] in memlab.toml names one'
            doubts = [f"what is retired stays in the store; what {back}", *doubts]
        output.print_lines(*told, made, "", *listed, *costs, *by_settings, *doubts, *after)


def _costliest(source: "Source", policy: "memlab.Policy", log: Path | None) -> list[TextPage | str]:
    """List the costliest that a policy does not keep."""
    from memlab.compaction.effects import NOT_KEPT, table_of
    from memlab.policies.named import options_of

    listed = memlab.rows(source, policy, where=NOT_KEPT, log=log)
    table = table_of(
        listed, most=options.LISTED_ROWS, width=output.terminal_width() or options.WIDTH
    )
    words = [*shlex.split(options_of(policy)), *(("--log", str(log)) if log else ())]
    every = command("rows", source.name, *words, "--where", NOT_KEPT, "--limit", 0)
    table = table._replace(heading="the costliest that would go")
    one = f"{command('restore', source.name)} DIGEST --id ID"
    back = f"undo: {one}    puts one back, by the DIGEST that --apply ends with"
    return [TextPage("", [], [table]), f"next: {every}    all of them", back, ""]


def _save_plan(made: "memlab.Plan", file: Path | None, source: "Source") -> None:
    """Write a plan to a new file for review, where one is named."""
    if file is not None:
        write_whole(
            file, made.to_json(), limit=limit_like(source.permissions_template), replace=False
        )


def _applied(made: "memlab.Plan", store: Path | str, *, all_prunable: bool) -> "memlab.Receipt":
    """Apply a plan; after Ctrl-C, say where to see what was done."""
    watch = output.progress_callback("applying")
    try:
        return memlab.apply(
            made, store=store, now=now_utc(), watch=watch, all_prunable=all_prunable
        )
    except KeyboardInterrupt:
        said = f"{command('archive', store)}    says what plan {made.digest[:12]} did"
        output.print_lines(f"next: {said}, and how it goes on")
        raise


def _carry_out(made: "memlab.Plan", told: list[str], *, all_prunable: bool = False) -> None:
    receipt = _applied(made, made.store, all_prunable=all_prunable)
    output.print_text(receipt.to_json()) if output.wants_json() else output.print_lines(
        *told, made, "", receipt
    )


def _after_planning(made: "memlab.Plan", save_plan: Path | None, nothing: str) -> list[str]:
    """Say how a plan is carried out, or why there is none to be."""
    was = "changed" if made.links else "deleted"
    if made.is_empty:
        saved = f"; the plan is in {save_plan}" if save_plan else ""
        return [f"nothing to do: {nothing}{saved}"]
    if save_plan is not None:
        reviewed = f"nothing was {was}; the plan is in {save_plan}. After review:"
        return [reviewed, f"  {command('apply', save_plan)}"]
    return [f"nothing was {was}; add --apply to do it, or --save-plan FILE to have it reviewed"]


def _cost(
    source: "Source", made: "memlab.Plan", log: Path | None
) -> "memlab.compaction.Cost | str":
    """Return what a plan costs in references, or why that is not known: it is no reason to fail."""
    output.show_progress("looking at what was referred to later")
    try:
        return memlab.compaction.cost_of(made, store=source, log=log)
    except MemlabError as error:
        return f"what that costs in later references is not known: {error}"


def _protected(source: "Source") -> list[str]:
    """Say which tags a person has made load-bearing, and whose settings do not count."""
    from memlab.sources.opening import settings_of

    said = [f"settings: {why}"] if (why := settings_of(source).not_obeyed) else []
    if not source.protected:
        return said
    tags = ", ".join(sorted(source.protected))
    return [*said, f"load-bearing by memlab.toml: what is tagged {tags}"]


@click.command(short_help="Show what no cap can bring down, and what in it could be superseded.")
@click.argument("store", type=options.STORE, required=False)
@click.option("--id", "ids", multiple=True, help="Plan only this one; may be given several times.")
@click.option(
    "--supersede",
    "pairs",
    multiple=True,
    metavar="OLDER=NEWER",
    help="Plan this pair instead of those found; may be given several times.",
)
@_change_options
def floor(
    store: Path | None,
    ids: tuple[str, ...],
    pairs: tuple[str, ...],
    save_plan: Path | None,
    against: Path | None,
    do_it: bool,
) -> None:
    """Show the load-bearing memories of STORE that cost most, and those a newer one repeats.

    No cap goes below them. One for which a newer one stands is not loaded any more and stays in the
    store; which those are is for a person to decide, so that it is a plan, carried out by memlab
    apply and taken back by memlab restore. Without STORE, the bundled two years.

    \b
    memlab floor memory.db                                  show
    memlab floor memory.db --save-plan floor.json           plan all that is found
    memlab floor memory.db --supersede d1=d9 --apply        supersede d1 by d9
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.sources.opening import open_source

    if ids and pairs:
        raise click.UsageError("give either --id or --supersede")
    path = store or store_path("two_years")
    if not (save_plan or against or do_it or ids or pairs):
        output.print_result(memlab.floor(path), is_example=store is None)
        return
    links = dict(map(_pair, pairs)) if pairs else None
    made = memlab.compaction.plan_supersession(path, links, only=ids or None, now=now_utc())
    _save_plan(made, save_plan, open_source(path))
    nothing = "no newer memory is found that could stand for another"
    if against is not None:
        _compare(against, made, do_it=do_it)
    elif do_it:
        _carry_out(made, [])
    else:
        output.print_result(made, *_after_planning(made, save_plan, nothing))


def _pair(text: str) -> tuple[str, str]:
    older, between, newer = text.partition("=")
    if not (older and between and newer):
        raise click.UsageError(f"--supersede {text!r} is not OLDER=NEWER, two ids of the store")
    return older, newer


@click.command(short_help="Carry out a reviewed plan, or finish one that was cut short.")
@click.argument("place", metavar="PLAN | STORE DIGEST", type=options.STORE)
@options.digest_argument(metavar="")
@click.option(
    "--store", type=options.STORE, help="The store, where it is not the one that PLAN names."
)
@options.ALL
@options.json_option
def apply(place: Path, digest: str | None, store: Path | None, all_prunable: bool) -> None:
    """Carry out a reviewed PLAN, as compact --save-plan wrote it, or finish DIGEST on STORE.

    A plan is refused when a memory it decided on has changed since, and when it was applied before.
    memlab archive STORE says whether one was cut short, and how it is finished.
    """
    output.show_progress("reading the plan")
    if digest is None:
        made = _plan_in(place)
        receipt = _applied(made, store or made.store, all_prunable=all_prunable)
    elif store is None:
        watch = output.progress_callback("applying")
        receipt = memlab.compaction.finish(place, digest, now=now_utc(), watch=watch)
    else:
        raise click.UsageError("--store belongs to a PLAN; a DIGEST comes after its own STORE")
    output.print_result(receipt)


def _compare(before: Path, made: "memlab.Plan", *, do_it: bool) -> None:
    """Show what a plan does otherwise than a saved one; ends with 1 where they differ."""
    from memlab.compaction.diff import difference_of

    if do_it:
        raise click.UsageError("--against only compares, and nothing was changed: leave one out")
    found = difference_of(_plan_in(before), made)
    was = "changed" if made.links else "deleted"
    does = "with --apply instead of --against the second is carried out, and ends with its undo"
    output.print_result(found, f"nothing was {was}; {does}")
    output.fail_if(found.differs)


def _plan_in(file: Path) -> "memlab.Plan":
    from memlab.sources.sqlite_rows import begins_as_sqlite

    if begins_as_sqlite(file):
        digests = command("archive", file)
        raise click.UsageError(f"{file} is a store: name a DIGEST too; {digests} lists them")
    try:
        return memlab.Plan.from_json(read_whole(file))
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from error


@click.command(short_help="Put back what a plan deleted.")
@click.argument("store", type=options.STORE)
@options.digest_argument(metavar="DIGEST")
@click.option("--id", "ids", multiple=True, help="Only this memory; may be given several times.")
@options.file_option("--into", help="Make a new file with memory_items of them instead.")
@options.json_option
def restore(store: Path, digest: str | None, ids: tuple[str, ...], into: Path | None) -> None:
    """Put back into STORE what the plan DIGEST deleted: every byte, at the same position.

    The beginning of the digest will do; memlab archive STORE lists them.
    """
    if digest is None:
        raise click.UsageError(f"which plan? {command('archive', store)} lists their digests")
    watch = output.progress_callback("restoring")
    count = memlab.restore(digest, store=store, ids=ids or None, into=into, watch=watch)
    target = store if into is None else into
    if output.wants_json():
        left = {"left_out": count.left_out, "rows_left_out": dict(count.rows_left_out)}
        left |= {} if count.stay is None else {"stay": count.stay}
        left |= {"entries_left": list(count.entries_left)} if count.entries_left else {}
        output.print_json({"restored": count, **left, "into": str(target)})
        return
    lines = [f"{counted(count)} restored into {target}"]
    if count.stay is not None:
        lines = [f"{counted(count)} taken out of {target} again, which memlab lost had put back"]
        if count.stay:
            lines.append(f"{counted(count.stay)} stay: memlab deletes nothing load-bearing")
    elif not count and not count.left_out:
        lines.append("what that plan took out is back already, each memory in its place")
    if count.index_note:
        lines.append(f"index: {count.index_note}")
    if count.left_out:
        left_out = counted(count.left_out)
        lines.append(f"{left_out} left in the archive, whose own time has passed since")
    lines += [
        f"{counted(rows, 'rows')} of {table} left in the archive, since something else referred to "
        "is not there"
        for table, rows in count.rows_left_out.items()
    ]
    output.print_lines(*lines)
