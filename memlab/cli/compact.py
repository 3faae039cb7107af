"""Commands that plan a change to a store, apply it, and undo it."""

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import memlab.compaction
from memlab.cli import options, output, plans
from memlab.cli.policy import SettingsCommand, faults_of, policy_option
from memlab.clock import now_utc
from memlab.compaction.index_plans import MARKER as INDEX_MARKER
from memlab.errors import MemlabError, PlanError
from memlab.files import check_writable, read_whole
from memlab.store.archive.schema import LATEST
from memlab.text import TextPage, command, for_terminal
from memlab.views.bundled import store_path

if TYPE_CHECKING:
    from memlab.compaction.undo import Restored
    from memlab.sources.base import Source

_IGNORED_APPLY = options.flag_option("--apply", hidden=True, expose_value=False)
"""``--apply`` for a command that always applies: people add it as for other commands."""
_MARKER_BYTES: Final = 100
"""Number of bytes at the beginning of a plan's file that name its kind."""
_END: Final = "\n}\n"
"""End of a plan's JSON."""


def _change_options(command: options.Command) -> options.Command:
    """Add ``--save-plan``, ``--against``, ``--apply`` and ``--json`` to a command."""
    for option in (
        options.json_option,
        options.flag_option("--apply", "do_it", help="Apply the plan. Without it, only show it."),
        options.file_option(
            "--against",
            metavar="PLAN",
            help="Compare the plan with a saved one; the exit code is 1 if they differ.",
        ),
        options.save_plan_option,
    ):
        command = option(command)
    return command


@click.command(cls=SettingsCommand, short_help="Show what a cap would delete; with --apply, do it.")
@click.argument("store", type=options.STORE)
@policy_option()
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="Only this memory, without a policy; may be given several times. memlab rows STORE --json "
    "lists the ids.",
)
@options.path_option(
    "--into",
    "into",
    metavar="OTHER",
    help="Merge this folder of Claude Code's memory into another one of the same project.",
)
@click.option(
    "--retire/--delete",
    default=None,
    help="Retire what the policy does not keep: it is not loaded, but stays in the store.  "
    "[default: from memlab.toml; --delete]",
)
@options.flag_option("--save", help="Save the policy in memlab.toml beside the store.")
@options.flag_option(
    "--rows", "list_rows", help="List the memories that would be deleted, the largest first."
)
@options.log_option
@options.ALL
@_change_options
def compact(
    store: Path,
    policy: "memlab.Policy | None",
    ids: tuple[str, ...],
    into: Path | None,
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

    Decisions, skills and rejected paths are never deleted. Memories are copied to an archive beside
    the store before they are deleted, and memlab restore brings them back byte for byte. With
    --retire nothing is deleted: the memories stay in the store, and are not loaded until they are
    read or referred to again.

    With --into, memories that OTHER lacks are copied there byte for byte, with their lines in the
    index. Then the memories that both have are archived and deleted here, load-bearing ones too. A
    memory stays here if OTHER has a different one of the same name. One memlab restore takes both
    back.

    \b
    memlab compact memory.db --keep-recent 200           show
    memlab compact memory.db --keep-recent 200 --apply   do it
    memlab compact memory.db --keep-recent 200 --save    save it
    memlab compact memory.db --keep-recent 200 --retire  show what it would retire
    memlab compact memory.db --id episodic-12 --apply    delete one memory
    memlab compact FOLDER --into OTHER                   merge two folders
    memlab compact memory.db                             use memlab.toml
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.sizing.in_force import remembered_policy
    from memlab.sources.opening import open_source, settings_of

    source = open_source(store)
    if list_rows and (do_it or ids or output.wants_json()):
        raise click.UsageError(
            "--rows is for the dry run of a policy: --json has every memory, --apply deletes them, "
            "and --id names them"
        )
    _check_policy_options(policy, ids, save=save)
    if into is not None:
        _check_merge_options(policy, ids, retire, log, list_rows=list_rows)
    if save_plan is not None:
        check_writable(save_plan, replace=False)
    saved_number = ""
    goes_by_settings = not ids and into is None
    if policy is None and goes_by_settings:
        policy, saved_number = remembered_policy(source)
    retires = bool(retire)
    if retire is None and goes_by_settings:
        retires = settings_of(source).retire
    on_step = output.progress_callback("planning")
    with faults_of(policy):
        plan = memlab.plan(
            source,
            policy,
            ids=ids or None,
            retire=retires,
            into=into,
            log=log,
            now=now_utc(),
            on_step=on_step,
        )
    plans.save_plan(plan, save_plan, source)
    if save and policy is not None:
        _save_settings(source, policy, retire, log)
    notes: list[Any] = _settings_notes(source)
    if against is not None:
        _compare(against, plan, do_it=do_it)
    elif do_it:
        page = None
        if not output.wants_json():
            notes += _effect_and_cost(source, plan, log)
            page = plan.sheet(str(store), below_effect=not plan.is_empty)
        # With --id the memories are named, so the last prunable one may be among them.
        plans.apply_and_print(
            plan, notes, all_prunable=all_prunable or bool(ids), name=str(store), page=page
        )
    elif output.wants_json():
        output.print_text(_json_with(plan, _added_fields(source, plan, log, retires=retires)))
    else:
        costliest = []
        if list_rows and policy is not None and not plan.is_empty:
            costliest = _costliest_not_kept(source, policy, log)
        notes += _effect_and_cost(source, plan, log)
        details = _details(source, plan, log, saved_number)
        after = plans.after_planning(
            plan, save_plan, nothing=_nothing_in_words(source, plan), name=str(store)
        )
        page = plan.sheet(str(store), below_effect=not plan.is_empty)
        output.print_lines(*notes, page, "", *costliest, *details, *after)


def _check_policy_options(
    policy: "memlab.Policy | None", ids: tuple[str, ...], *, save: bool
) -> None:
    """Raise a UsageError if ``--id``, ``--save`` and a policy do not go together."""
    if ids and (policy is not None or save):
        raise click.UsageError("--id names the memories: leave out the policy and --save")
    if save and policy is None:
        raise click.UsageError("--save needs a policy, such as --keep-recent N")


def _check_merge_options(
    policy: "memlab.Policy | None",
    ids: tuple[str, ...],
    retire: bool | None,
    log: Path | None,
    *,
    list_rows: bool,
) -> None:
    """Raise a UsageError if ``--into`` is given together with an option that chooses memories."""
    if policy is not None or ids or retire is not None or log is not None or list_rows:
        raise click.UsageError(
            "--into merges all memories of two folders: leave out the policy, --id, --retire, "
            "--rows and --log"
        )


def _nothing_in_words(source: "Source", plan: "memlab.Plan") -> str:
    """Return why a plan changes nothing."""
    if plan.merges:
        return f"no memory here can be merged into {plan.into}"
    if not plan.total.memories:
        if source.index is not None and source.index.chars_of_no_memory():
            shows = command("show", source.name)
            return (
                "there is no memory here, and a start loads the text of the index itself, which "
                f"only a person shortens; {shows} lists its sections"
            )
        return "there is no memory in this store"
    return "this policy keeps every memory"


def _save_settings(
    source: "Source", policy: "memlab.Policy", retire: bool | None, log: Path | None
) -> None:
    """Write the policy, and what was given with it, to the settings of a store."""
    from memlab.policies.named import as_setting
    from memlab.sources.opening import remember

    settings: dict[str, Any] = {"policy": as_setting(policy)}
    if retire is not None:
        settings["retire"] = True if retire else None  # None removes the setting
    if log:
        settings["log"] = log
    file = remember(source, settings)
    click.echo(f"{for_terminal(output.as_given(f'saved in {file}'))}\n", err=True)


def _effect_and_cost(source: "Source", plan: "memlab.Plan", log: Path | None) -> list[Any]:
    """Return the first page of a plan: its effect, and its cost in past references."""
    if plan.is_empty:
        return []
    if not plan.memories or plan.merges:
        return [TextPage(plan.effect, []), ""]
    cost = _cost(source, plan, log)
    if isinstance(cost, str):
        return [TextPage(plan.effect, []), cost, ""]
    return [TextPage(plan.effect, cost.facts()), ""]


def _details(source: "Source", plan: "memlab.Plan", log: Path | None, number: str) -> list[Any]:
    """Return the lines below a plan: the number in the settings, and the warnings."""
    from memlab.growth.context import cut_in_words
    from memlab.sources.opening import settings_of

    lines: list[Any] = []
    if source.index is not None:
        cut = cut_in_words(memlab.load(source))
        if cut:
            lines.append(f"the index {cut}")
    if number:
        lines.append(f"by memlab.toml: {number}")
    if plan.retires:
        lines.append(_retirement_note(has_log=bool(log or settings_of(source).log)))
    if plan.policy.get("policy") == "ids":  # the warnings are about what a policy decides
        return lines
    return [*lines, *plan.warnings()]


def _added_fields(
    source: "Source", plan: "memlab.Plan", log: Path | None, *, retires: bool
) -> dict[str, Any]:
    """Return the fields that ``--json`` adds to a plan: its cost, or the other folder's start."""
    if plan.start_there is not None:
        return {"start_there": plan.start_there._asdict()}
    added: dict[str, Any] = {}
    if plan.start is not None:
        start = {"before": plan.start.before, "after": plan.start.after, "floor": plan.start.floor}
        added["start"] = {name: size._asdict() for name, size in start.items()}
    if plan.merges or retires:
        return added
    cost = _cost(source, plan, log)
    return {**added, "cost": cost if isinstance(cost, str) else asdict(cost)}


def _json_with(plan: "memlab.Plan", added: Mapping[str, Any]) -> str:
    """Return a plan as JSON, with some more fields at its end."""
    text = plan.to_json()
    # The fields are inserted into the text: each memory keeps its line, and a large plan is not
    # serialized again.
    for key, value in added.items():
        text = f"{text.removesuffix(_END)},\n{json.dumps(key)}: {json.dumps(value)}{_END}"
    return text


def _retirement_note(*, has_log: bool) -> str:
    """Return a sentence on when retired memories return; without an access log, how to name one."""
    note = (
        "retired memories stay in the store. The next plan returns those that another memory has "
        "referred to since, and those that were read according to an access log"
    )
    if not has_log:
        note += '. To name a log, set log = ["reads.jsonl"] in memlab.toml'
    return note


def _costliest_not_kept(
    source: "Source", policy: "memlab.Policy", log: Path | None
) -> list[TextPage | str]:
    """Return a table of the costliest memories that a policy does not keep, and next steps."""
    from memlab.policies.named import options_of
    from memlab.views.memory_table import NOT_KEPT, table_of

    not_kept = memlab.rows(source, policy, where=NOT_KEPT, log=log)
    width = output.terminal_width() or options.WIDTH
    table = table_of(not_kept, most=options.LISTED_ROWS, width=width)
    table = table._replace(heading="the costliest that would go")
    policy_options = shlex.split(options_of(policy))
    if log:
        policy_options += ["--log", str(log)]
    list_all = command("rows", source.name, *policy_options, "--where", NOT_KEPT, "--limit", 0)
    restore_one = f"{command('restore', source.name)} DIGEST --id ID"
    return [
        TextPage("", [], [table]),
        f"next: {list_all}    all of them",
        f"undo: {restore_one}    puts one back, by the DIGEST that --apply ends with",
        "",
    ]


def _cost(
    source: "Source", plan: "memlab.Plan", log: Path | None
) -> "memlab.compaction.Cost | str":
    """Return the cost of a plan in later references, or a sentence on why it is unknown."""
    output.show_progress("reading the later references")
    try:
        return memlab.compaction.cost_of(plan, store=source, log=log)
    except MemlabError as error:
        return f"the cost in later needs is not known: {error}"


def _settings_notes(source: "Source") -> list[str]:
    """Return lines on settings that are ignored, and on tags that are load-bearing by settings."""
    from memlab.sources.opening import settings_of

    notes = []
    reason = settings_of(source).not_obeyed
    if reason:
        notes.append(f"settings: {reason}")
    if source.protected:
        tags = ", ".join(sorted(source.protected))
        notes.append(f"load-bearing by memlab.toml: memories tagged {tags}")
    return notes


@click.command(short_help="Show the load-bearing memories, and which could be superseded.")
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
    """Show the largest load-bearing memories of STORE, and which of them a newer one repeats.

    No cap deletes them. A memory that is superseded by a newer one stays in the store and is not
    loaded. You decide which: --save-plan writes a plan, memlab apply applies it, and memlab restore
    undoes it. Without STORE, show the bundled store of two years.

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
    plan = memlab.compaction.plan_supersession(path, links, only=ids or None, now=now_utc())
    plans.save_plan(plan, save_plan, open_source(path))
    nothing = "no newer memory repeats an older one"
    if against is not None:
        _compare(against, plan, do_it=do_it)
    elif do_it:
        plans.apply_and_print(plan)
    else:
        after = plans.after_planning(plan, save_plan, nothing=nothing, name=str(path))
        output.print_result(plan, *after)


def _pair(text: str) -> tuple[str, str]:
    """Return the older and the newer id of a ``--supersede`` option."""
    older, equals, newer = text.partition("=")
    if not (older and equals and newer):
        raise click.UsageError(f"--supersede {text!r} is not OLDER=NEWER, two ids of the store")
    return older, newer


@click.command(short_help="Apply a reviewed plan, or finish an interrupted one.")
@click.argument("place", metavar="PLAN | STORE DIGEST", type=options.STORE)
@options.digest_argument(metavar="")
@click.option(
    "--store", type=options.STORE, help="The store, if it is not the one that PLAN names."
)
@options.ALL
@_IGNORED_APPLY
@options.json_option
def apply(place: Path, digest: str | None, store: Path | None, all_prunable: bool) -> None:
    """Apply a reviewed PLAN of compact --save-plan, or finish the plan DIGEST of STORE.

    A plan is refused if one of its memories has changed since, or if it was applied already. A plan
    of memlab index is refused if the index has changed since. memlab archive STORE shows whether a
    plan was interrupted, and how to finish it.
    """
    output.show_progress("reading the plan")
    if digest is not None and _is_plan_file(digest):
        raise click.UsageError(f"{digest} is a plan file: {command('apply', digest)}")
    if digest is None:
        plan = _reviewed_plan(place)
        receipt = plans.apply_plan(plan, store or plan.store, all_prunable=all_prunable)
    elif store is None:
        on_step = output.progress_callback("applying")
        receipt = memlab.compaction.finish(place, digest, now=now_utc(), on_step=on_step)
    else:
        raise click.UsageError("--store belongs to a PLAN; a DIGEST comes after its own STORE")
    output.print_result(receipt)


def _is_plan_file(name: str) -> bool:
    """Return whether an argument in place of a digest is the path of a plan file."""
    return Path(name).is_file() and not re.fullmatch("[0-9a-f]+", name)


def _compare(saved: Path, plan: "memlab.Plan", *, do_it: bool) -> None:
    """Print the difference between a saved plan and a new one; exit with 1 if there is any."""
    from memlab.compaction.diff import difference_of

    if do_it:
        raise click.UsageError("--against only compares, and nothing was changed: leave one out")
    difference = difference_of(_plan_in(saved), plan)
    participle = plans.participle_of(plan)
    output.print_result(
        difference,
        f"nothing was {participle}; --apply instead of --against applies the second plan, and "
        "prints the command that undoes it",
    )
    output.fail_if(difference.differs)


def _plan_in(file: Path) -> "memlab.Plan":
    """Load a plan from a file; raise a UsageError if the file is a store."""
    text = _text_of_plan(file)
    try:
        return memlab.Plan.from_json(text)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from error


def _reviewed_plan(file: Path) -> "memlab.Plan | memlab.IndexPlan":
    """Load a plan of memories or of an index from a file."""
    text = _text_of_plan(file)
    if INDEX_MARKER.encode() not in text[:_MARKER_BYTES]:
        return _plan_in(file)
    try:
        return memlab.IndexPlan.from_json(text)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from error


def _text_of_plan(file: Path) -> bytes:
    """Return the content of a plan's file; raise a UsageError if it is a store."""
    from memlab.sources.sqlite_rows import begins_as_sqlite

    if begins_as_sqlite(file):
        digests = command("archive", file)
        raise click.UsageError(f"{file} is a store: name a DIGEST too; {digests} lists them")
    return read_whole(file)


@click.command(short_help="Put back what a plan deleted.")
@click.argument("store", type=options.STORE)
@options.digest_argument(metavar="[DIGEST]")
@click.option("--id", "ids", multiple=True, help="Only this memory; may be given several times.")
@options.file_option("--into", help="Write the memories to a new SQLite file instead of STORE.")
@_IGNORED_APPLY
@options.json_option
def restore(store: Path, digest: str | None, ids: tuple[str, ...], into: Path | None) -> None:
    """Put back into STORE what the plan DIGEST deleted: every byte, at the same position.

    The undo of memlab index puts the index back as it was; an edit that somebody made since stays.

    DIGEST may be the beginning of a digest, or "latest" for the last plan that is not undone yet.
    It may be left out if there is only one such plan; memlab archive STORE lists all plans.

    \b
    memlab restore memory.db latest
    memlab restore memory.db 3fa1c0de9b21 --id episodic-12
    """  # noqa: D301 - \b keeps the lines below it apart
    if digest is None and str(store) == LATEST and not store.exists():
        raise click.UsageError(f"name the store, too: memlab restore STORE {LATEST}")
    if digest is not None and _is_plan_file(digest):
        own_digest = _reviewed_plan(Path(digest)).digest[:12]
        undo = command("restore", store, own_digest)
        raise click.UsageError(f"{digest} is a plan file, and its digest is what undoes it: {undo}")
    if digest is None or digest == LATEST:
        digest = _undoable(store, only_one=digest is None)
    on_step = output.progress_callback("restoring")
    restored = memlab.restore(digest, store=store, ids=ids or None, into=into, on_step=on_step)
    target = restored.origin or str(store if into is None else into)
    if restored.index is not None:
        _print_restored_index(restored.index, digest)
    elif output.wants_json():
        output.print_json(_restored_fields(restored, target))
    else:
        note = [] if into is not None else _policy_note(store, restored)
        output.print_lines(*restored.in_words(target), *note)


def _policy_note(store: Path, restored: "Restored") -> list[str]:
    """Return a line on a saved policy, by which restored memories may be removed again."""
    from memlab.sources.opening import open_source, settings_of

    if not restored.memories:
        return []
    with suppress(MemlabError):  # an undo also works where the kind of the store is not clear now
        if settings_of(open_source(store)).policy is not None:
            nightly = command("maintain", store, "--apply")
            return [f"memlab.toml still has a policy, by which {nightly} may remove them again"]
    return []


def _restored_fields(restored: "Restored", target: str) -> dict[str, Any]:
    """Return the fields of an undo that ``--json`` prints."""
    fields: dict[str, Any] = {
        "restored": restored.memories,
        "left_out": restored.left_out,
        "rows_left_out": dict(restored.rows_left_out),
    }
    if restored.load_bearing is not None:
        fields["stay"] = restored.load_bearing
    if restored.entries_left:
        fields["entries_left"] = list(restored.entries_left)
    if restored.other:
        fields["taken_out"] = {
            "folder": restored.other,
            "memories": restored.copies_removed,
            "stay": list(restored.copies_left),
        }
    fields["into"] = target
    return fields


def _print_restored_index(restored: "memlab.compaction.IndexRestored", digest: str) -> None:
    """Print what became of an index whose change was undone."""
    if output.wants_json():
        output.print_json(asdict(restored))
        return
    output.print_lines(restored.in_words(f"plan {digest[:12]}"))
    output.print_unchanged(f"stays: {line}" for line in restored.stays)


def _undoable(store: Path, *, only_one: bool) -> str:
    """Return the digest of the last plan that is not undone yet.

    Raise an ArchiveError if there is none, and a UsageError if `only_one` is set and there are
    several.
    """
    from memlab.compaction.archive_views import archive_listing

    listing = archive_listing(store)
    last = listing.last_undoable()
    undoable = listing.undoable
    if only_one and len(undoable) > 1:
        listed = "; ".join(
            f"{plan.digest[:12]} of {plan.archived_at:%Y-%m-%d %H:%M}" for plan in undoable[-5:]
        )
        latest = command("restore", store, LATEST)
        lists = f"{command('archive', store)} lists all plans"
        raise click.UsageError(f"which plan? {listed}. {latest} takes the last one; {lists}")
    return last.digest
