"""Commands that plan a change to a store, apply it, and undo it."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import memlab.compaction
from memlab.cli import options, output, plans
from memlab.cli.policy import SettingsCommand, explain_policy_errors, policy_option
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

_ignored_apply_option = options.flag_option("--apply", hidden=True, expose_value=False)
"""``--apply`` for a command that always applies: people add it as for other commands."""
_MARKER_BYTES: Final = 100
"""Number of bytes at the beginning of a plan's file that name its kind."""
_JSON_END: Final = "\n}\n"
"""End of a plan's JSON."""


def _change_options(command: options.Command) -> options.Command:
    """Add ``--save-plan``, ``--against``, ``--apply`` and ``--json`` to a command."""
    apply_option = options.flag_option(
        "--apply", "do_it", help="Apply the plan. Without it, only show it."
    )
    against_option = options.file_option(
        "--against",
        metavar="PLAN",
        help="Compare the plan with a saved one; the exit code is 1 if they differ.",
    )
    return options.save_plan_option(against_option(apply_option(options.json_option(command))))


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
@options.all_option
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
    from memlab.sizing.in_force import require_policy
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
    origin_of_cap = ""
    uses_settings = not ids and into is None
    if policy is None and uses_settings:
        policy, origin_of_cap = require_policy(source)
    retires = bool(retire)
    if retire is None and uses_settings:
        retires = settings_of(source).retire
    on_step = output.progress_callback("planning")
    with explain_policy_errors(policy):
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
    if against is not None:
        _compare(against, plan, do_it=do_it)
    elif do_it:
        # --id names the memories, so the last prunable one may be deleted without --all.
        _apply_plan(source, plan, log, name=str(store), all_prunable=all_prunable or bool(ids))
    elif output.wants_json():
        output.print_text(_json_with(plan, _added_fields(source, plan, log, retires=retires)))
    else:
        table_of_rows: list[TextPage | str] = []
        if list_rows and policy is not None and not plan.is_empty:
            table_of_rows = _costliest_not_kept(source, policy, log)
        reason_if_empty = _reason_if_empty(source, plan) if plan.is_empty else ""
        output.print_lines(
            *_settings_notes(source),
            *_effect_and_cost(source, plan, log),
            plan.sheet(
                str(store),
                below_effect=not plan.is_empty,
                with_digest=save_plan is not None,
            ),
            "",
            *table_of_rows,
            *_details(source, plan, log, origin_of_cap),
            *plans.after_planning(
                plan, save_plan, reason_if_empty=reason_if_empty, name=str(store)
            ),
        )


def _apply_plan(
    source: "Source", plan: "memlab.Plan", log: Path | None, *, name: str, all_prunable: bool
) -> None:
    """Apply a plan, and print its effect, its cost, the plan and the receipt.

    `name` is the store as a person named it.
    """
    notes: list[Any] = []
    page = None
    if not output.wants_json():
        # the cost is computed before the memories are deleted
        notes = [*_settings_notes(source), *_effect_and_cost(source, plan, log)]
        page = plan.sheet(name, below_effect=not plan.is_empty)
    plans.apply_and_print(plan, notes, all_prunable=all_prunable, name=name, page=page)


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


def _reason_if_empty(source: "Source", plan: "memlab.Plan") -> str:
    """Return the reason why a plan is empty."""
    if plan.merges:
        return f"no memory here can be merged into {plan.into}"
    if plan.total.memories:
        return "this policy keeps every memory"
    if source.index is not None and source.index.overhead_chars():
        show = command("show", source.name)
        return (
            "there is no memory here, and a start loads the text of the index itself, which "
            f"only a person shortens; {show} lists its sections"
        )
    return "there is no memory in this store"


def _save_settings(
    source: "Source", policy: "memlab.Policy", retire: bool | None, log: Path | None
) -> None:
    """Write a policy to the settings of a store, and the options given with it."""
    from memlab.policies.named import as_setting
    from memlab.sources.opening import save_store_settings

    settings: dict[str, Any] = {"policy": as_setting(policy)}
    if retire is not None:
        settings["retire"] = True if retire else None  # None removes the setting
    if log:
        settings["log"] = log
    file = save_store_settings(source, settings)
    click.echo(f"{for_terminal(output.shorten_paths(f'saved in {file}'))}\n", err=True)


def _effect_and_cost(
    source: "Source", plan: "memlab.Plan", log: Path | None
) -> list[TextPage | str]:
    """Return the first page of a plan: its effect, and its cost in past references."""
    if plan.is_empty:
        return []
    if not plan.memories or plan.merges:
        return [TextPage(plan.effect, []), ""]
    try:
        cost = _cost(source, plan, log)
    except MemlabError as error:
        return [TextPage(plan.effect, []), _unknown_cost(error), ""]
    return [TextPage(plan.effect, cost.facts()), ""]


def _cost(source: "Source", plan: "memlab.Plan", log: Path | None) -> "memlab.compaction.Cost":
    """Compute the cost of a plan in later references."""
    output.show_progress("reading the later references")
    return memlab.compaction.cost_of(plan, store=source, log=log)


def _unknown_cost(error: MemlabError) -> str:
    """Return the sentence in place of a cost that could not be computed."""
    return f"the cost in later needs is not known: {error}"


def _details(
    source: "Source", plan: "memlab.Plan", log: Path | None, origin_of_cap: str
) -> list[TextPage | str]:
    """Return the lines below a plan: the cut of the index, the cap's origin, and the warnings."""
    from memlab.growth.context import cut_in_words
    from memlab.sources.opening import settings_of

    lines: list[TextPage | str] = []
    if source.index is not None:
        cut = cut_in_words(memlab.load(source))
        if cut:
            lines.append(f"the index {cut}")
    if origin_of_cap:
        lines.append(f"by memlab.toml: {origin_of_cap}")
    if plan.retires:
        lines.append(_retirement_note(has_log=bool(log or settings_of(source).log)))
    if plan.policy.get("policy") == "ids":  # the warnings are about what a policy decides
        return lines
    return [*lines, *plan.warnings()]


def _added_fields(
    source: "Source", plan: "memlab.Plan", log: Path | None, *, retires: bool
) -> dict[str, Any]:
    """Return the fields that ``--json`` adds to a plan.

    They are its cost and a start before and after; for a merge, the start of the other folder.
    """
    if plan.start_there is not None:
        return {"start_there": plan.start_there._asdict()}
    added: dict[str, Any] = {}
    if plan.start is not None:
        added["start"] = {
            "before": plan.start.before._asdict(),
            "after": plan.start.after._asdict(),
            "floor": plan.start.floor._asdict(),
        }
    if plan.merges or retires:
        return added
    try:
        added["cost"] = asdict(_cost(source, plan, log))
    except MemlabError as error:
        added["cost"] = _unknown_cost(error)
    return added


def _json_with(plan: "memlab.Plan", added: Mapping[str, Any]) -> str:
    """Return a plan as JSON, with fields added at its end."""
    text = plan.to_json()
    # The fields are inserted into the text: each memory keeps its line, and a large plan is not
    # serialized again.
    for key, value in added.items():
        text = f"{text.removesuffix(_JSON_END)},\n{json.dumps(key)}: {json.dumps(value)}{_JSON_END}"
    return text


def _retirement_note(*, has_log: bool) -> str:
    """Explain when retired memories return; without an access log, add how to name one."""
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
    width = output.terminal_width() or options.DEFAULT_WIDTH
    table = table_of(not_kept, most=options.DEFAULT_ROWS, width=width)
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


def _settings_notes(source: "Source") -> list[str]:
    """Return lines on settings that are ignored, and on tags that are load-bearing by settings."""
    from memlab.sources.opening import settings_of

    notes = []
    reason = settings_of(source).ignored_reason
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
    wants_plan = save_plan or against or do_it or ids or pairs
    if not wants_plan:
        output.print_result(memlab.floor(path), is_example=store is None)
        return
    links = dict(_parse_pair(pair) for pair in pairs)
    plan = memlab.compaction.plan_supersession(path, links or None, only=ids or None, now=now_utc())
    plans.save_plan(plan, save_plan, open_source(path))
    if against is not None:
        _compare(against, plan, do_it=do_it)
    elif do_it:
        plans.apply_and_print(plan)
    else:
        reason = "no newer memory repeats an older one"
        after = plans.after_planning(plan, save_plan, reason_if_empty=reason, name=str(path))
        output.print_result(plan, *after)


def _parse_pair(text: str) -> tuple[str, str]:
    """Split the OLDER=NEWER of a ``--supersede`` option into the two ids."""
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
@options.all_option
@_ignored_apply_option
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
    if digest is not None and store is not None:
        raise click.UsageError(
            "--store goes with a PLAN; with a DIGEST, write memlab apply STORE DIGEST"
        )
    if digest is None:
        plan = _load_plan(place)
        receipt = plans.apply_plan(plan, store or plan.store, all_prunable=all_prunable)
    else:
        on_step = output.progress_callback("applying")
        receipt = memlab.compaction.finish(place, digest, now=now_utc(), on_step=on_step)
    output.print_result(receipt)


def _is_plan_file(name: str) -> bool:
    """Return True if an argument in place of a digest is the path of a plan file."""
    return Path(name).is_file() and not re.fullmatch("[0-9a-f]+", name)


def _compare(saved_plan: Path, plan: "memlab.Plan", *, do_it: bool) -> None:
    """Print the difference between a saved plan and a new one; exit with 1 if there is any."""
    from memlab.compaction.diff import difference_of

    if do_it:
        raise click.UsageError(
            "--against only compares, so leave out --apply or --against; nothing was changed"
        )
    difference = difference_of(_load_memory_plan(saved_plan), plan)
    participle = plans.participle_of(plan)
    output.print_result(
        difference,
        f"nothing was {participle}; --apply instead of --against applies the second plan, and "
        "prints the command that undoes it",
    )
    output.fail_if(difference.differs)


def _load_memory_plan(file: Path) -> "memlab.Plan":
    """Load a plan of memories from a file."""
    content = _read_plan_file(file)
    try:
        return memlab.Plan.from_json(content)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from error


def _load_plan(file: Path) -> "memlab.Plan | memlab.IndexPlan":
    """Load a plan of memories or of an index from a file."""
    content = _read_plan_file(file)
    if INDEX_MARKER.encode() not in content[:_MARKER_BYTES]:
        return _load_memory_plan(file)
    try:
        return memlab.IndexPlan.from_json(content)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from error


def _read_plan_file(file: Path) -> bytes:
    """Read the file of a plan; raise a UsageError if it is a store."""
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
@_ignored_apply_option
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
    from memlab.compaction.archive_views import archive_listing

    if digest is None and str(store) == LATEST and not store.exists():
        raise click.UsageError(f"name the store, too: memlab restore STORE {LATEST}")
    if digest is not None and _is_plan_file(digest):
        own_digest = _load_plan(Path(digest)).digest[:12]
        undo = command("restore", store, own_digest)
        raise click.UsageError(f"{digest} is a plan file, and its digest is what undoes it: {undo}")
    if digest is None:
        digest = _digest_of_only_plan(store)
    elif digest == LATEST:
        digest = archive_listing(store).last_undoable().digest
    on_step = output.progress_callback("restoring")
    restored = memlab.restore(digest, store=store, ids=ids or None, into=into, on_step=on_step)
    target = restored.origin or str(store if into is None else into)
    if restored.index is not None:
        _print_restored_index(restored.index, digest)
    elif output.wants_json():
        output.print_json(_restored_fields(restored, target))
    else:
        output.print_lines(*restored.in_words(target))
        if into is None:
            output.print_lines(*_policy_note(store, restored))


def _policy_note(store: Path, restored: "Restored") -> list[str]:
    """Warn of a saved policy that may remove restored memories again; empty without one."""
    from memlab.sources.opening import open_source, settings_of

    if not restored.memories:
        return []
    try:
        settings = settings_of(open_source(store))
    except MemlabError:  # an undo also works if the kind of the store is not clear now
        return []
    if settings.policy is None:
        return []
    maintain = command("maintain", store, "--apply")
    return [f"memlab.toml still has a policy, by which {maintain} may remove them again"]


def _restored_fields(restored: "Restored", target: str) -> dict[str, Any]:
    """Return the result of an undo as the fields that ``--json`` prints."""
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
    """Print the result of an undo that restored an index."""
    if output.wants_json():
        output.print_json(asdict(restored))
        return
    output.print_lines(restored.in_words(f"plan {digest[:12]}"))
    output.print_unchanged(f"stays: {line}" for line in restored.stays)


def _digest_of_only_plan(store: Path) -> str:
    """Return the digest of the only plan that is not undone yet.

    Raise an ArchiveError if there is none, and a UsageError if there are several.
    """
    from memlab.compaction.archive_views import archive_listing

    listing = archive_listing(store)
    last = listing.last_undoable()
    if len(listing.undoable) > 1:
        newest = [
            f"{plan.digest[:12]} of {plan.archived_at:%Y-%m-%d %H:%M}"
            for plan in listing.undoable[-5:]
        ]
        restore_latest = command("restore", store, LATEST)
        list_plans = command("archive", store)
        raise click.UsageError(
            f"which plan? {'; '.join(newest)}. {restore_latest} takes the last one; "
            f"{list_plans} lists all plans"
        )
    return last.digest
