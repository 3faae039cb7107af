"""Commands that plan a change, carry it out, compare plans, and take a change back."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.options import FILE, STORE, json_option, save_plan_option
from memlab.cli.output import (
    APPLYING,
    PLANNING,
    RESTORING,
    doing,
    print_json,
    print_lines,
    print_result,
    print_text,
    telling,
)
from memlab.cli.policy import SettingsCommand, faults_of, policy_of, policy_option, set_option
from memlab.errors import MemlabError
from memlab.text import command, counted, for_terminal

if TYPE_CHECKING:
    from memlab.compaction.effects import Cost
    from memlab.compaction.plans import Plan
    from memlab.policies import Policy
    from memlab.sources.base import Source

_END: Final = "\n}\n"
"""With what the JSON of a plan ends."""


@click.command(cls=SettingsCommand, short_help="Show what a cap would delete; with --apply, do it.")
@click.argument("store", type=STORE)
@policy_option()
@set_option
@click.option("--save", is_flag=True, help="Remember the policy in memlab.toml beside the store.")
@save_plan_option
@click.option("--apply", "do_it", is_flag=True, help="Carry the plan out. Without it, only show.")
@json_option
def compact(
    store: Path,
    policy_name: str | None,
    given: tuple[str, ...],
    save: bool,
    save_plan: Path | None,
    do_it: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Show what a cap would delete from STORE; with --apply, archive and delete it.

    Decisions, skills and rejected paths are never deleted. What is deleted goes to an archive
    beside the store first, and memlab restore puts it back byte for byte.

    \b
    memlab compact memory.db --keep-recent 200            show
    memlab compact memory.db --keep-recent 200 --apply    do it
    memlab compact memory.db --keep-recent 200 --save     remember it
    memlab compact memory.db                              show, by what is remembered
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.compaction.applier import apply
    from memlab.compaction.planner import plan
    from memlab.files import check_writable, limit_like, whole_file
    from memlab.policies.named import as_setting
    from memlab.sources.opening import open_source, remember

    source = open_source(store)
    asked = policy_name or given or any(text is not None for text in settings.values())
    chosen = policy_of(policy_name or "recent", settings, given) if asked else None
    if save and chosen is None:
        raise click.UsageError("--save needs a policy to remember, such as --keep-recent N")
    if save_plan is not None:
        check_writable(save_plan, replace=False)
    policy, number = _remembered(source) if chosen is None else (chosen.policy, "")
    with faults_of([policy]):
        watch = telling("reading the store", PLANNING)
        made = plan(source, policy, now=datetime.now(UTC), watch=watch)
    if save_plan is not None:
        limit = limit_like(source.like)
        with (
            whole_file(save_plan, limit=limit, replace=False) as draft,
            draft.open("w", encoding="utf-8") as written,
        ):
            written.writelines(made.json_pieces())
    if save and chosen is not None:
        file = remember(source, {"policy": as_setting(chosen.name, chosen.settings)})
        click.echo(f"{for_terminal(f'remembered in {file}')}\n", err=True)
    told = _protected(source)
    if do_it:
        receipt = apply(made, now=datetime.now(UTC), watch=telling("waiting to write", APPLYING))
        print_text(receipt.to_json()) if as_json else print_lines(*told, made, "", receipt)
    elif as_json:
        cost = _cost(source, made)
        added = json.dumps({"cost": cost if isinstance(cost, str) else asdict(cost)})
        print_text(f"{made.to_json().removesuffix(_END)},\n{added[1:]}\n")
    else:
        costs = [_cost(source, made), ""] if made.memories else []
        by_settings = [f"by memlab.toml: {number}"] if number else []
        after = _after_planning(save_plan, nothing=not made.memories)
        print_lines(*told, made, "", *costs, *by_settings, *made.doubts(), *after)


def _cost(source: "Source", made: "Plan") -> "Cost | str":
    """Return what a plan costs in references, or why that is not known: it is no reason to fail."""
    from memlab.compaction.effects import cost_of

    doing("looking at what was referred to later")
    try:
        return cost_of(made, store=source)
    except MemlabError as error:
        return f"what that costs in later references is not known: {error}"


def _remembered(source: "Source") -> "tuple[Policy, str]":
    """Return the policy that is remembered of a store, and what there is to say of its number."""
    from memlab.compaction.in_force import policy_in_force
    from memlab.sources.opening import settings_of

    settings = settings_of(source)
    policy, words = policy_in_force(source)
    if policy is None:
        why = f" ({settings.not_obeyed})" if settings.not_obeyed else ""
        raise click.UsageError(
            f"no policy is remembered for {source.name}{why}: give a cap with --keep-recent N, or "
            f"let {command('size', source.name)} --save find one"
        )
    return policy, words


def _protected(source: "Source") -> list[str]:
    """Say which tags a person has made load-bearing, and whose settings do not count."""
    from memlab.sources.opening import settings_of

    said = [f"settings: {why}"] if (why := settings_of(source).not_obeyed) else []
    if not source.protected:
        return said
    tags = ", ".join(sorted(source.protected))
    return [*said, f"load-bearing by memlab.toml: what is tagged {tags}"]


def _after_planning(save_plan: Path | None, *, nothing: bool) -> list[str]:
    if nothing:
        return ["nothing to do: under this policy every memory stays"]
    if save_plan is not None:
        reviewed = f"nothing was deleted; the plan is in {save_plan}. After review:"
        return [reviewed, f"  {command('apply', save_plan)}"]
    return ["nothing was deleted; add --apply to do it, or --save-plan FILE to have it reviewed"]


@click.command("apply", short_help="Carry out a plan that was saved and reviewed.")
@click.argument("plan_file", metavar="PLAN", type=FILE)
@click.option("--store", type=STORE, help="The store, where it is not the one the plan names.")
@json_option
def apply_plan(plan_file: Path, store: Path | None, as_json: bool) -> None:
    """Carry out a reviewed PLAN, as memlab compact --save-plan wrote it.

    A plan is refused when a memory it decided on has changed since, and when it was applied before.
    """
    from memlab.compaction.applier import apply

    doing("reading the plan")
    made = _plan_in(plan_file)
    watch = telling("waiting to write", APPLYING)
    print_result(apply(made, store=store, now=datetime.now(UTC), watch=watch), as_json=as_json)


@click.command("finish")
@click.argument("store", type=STORE)
@click.argument("digest")
@json_option
def finish_plan(store: Path, digest: str, as_json: bool) -> None:
    """Finish the plan DIGEST that was cut short on STORE.

    memlab doctor STORE says whether there is one.
    """
    from memlab.compaction.applier import finish

    watch = telling("reading the plan", APPLYING)
    print_result(finish(store, digest, now=datetime.now(UTC), watch=watch), as_json=as_json)


@click.command("diff", short_help="Show what changed between two plans.")
@click.argument("before", metavar="PLAN", type=FILE)
@click.argument("after", metavar="PLAN", type=FILE)
@json_option
@click.pass_context
def diff_plans(ctx: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Show what the second PLAN does otherwise than the first, as memlab compact wrote them.

    Ends with 1 where they differ in what they delete or supersede, and with 0 where they do not.
    """
    from memlab.compaction.diff import difference_of

    found = difference_of(_plan_in(before), _plan_in(after))
    print_result(found, as_json=as_json)
    ctx.exit(1 if found.differs else 0)


def _plan_in(file: Path) -> "Plan":
    from memlab.compaction.plans import Plan
    from memlab.files import read_whole

    return Plan.from_json(read_whole(file))


@click.command("restore", short_help="Put back what a plan deleted.")
@click.argument("store", type=STORE)
@click.argument("digest")
@click.option("--id", "ids", multiple=True, help="Only this memory; may be given several times.")
@click.option("--into", type=FILE, help="Put the memories into a new file instead.")
@json_option
def restore_plan(
    store: Path, digest: str, ids: tuple[str, ...], into: Path | None, as_json: bool
) -> None:
    """Put back into STORE what the plan DIGEST deleted: every byte, at the same position.

    The beginning of the digest will do; memlab archive STORE lists them.
    """
    from memlab.compaction.restorer import restore

    watch = telling("reading the archive", RESTORING)
    count = restore(digest, store=store, ids=ids or None, into=into, watch=watch)
    target = store if into is None else into
    if as_json:
        left = {"left_out": count.left_out, "rows_left_out": dict(count.rows_left_out)}
        print_json({"restored": count, **left, "into": str(target)})
        return
    lines = [f"{counted(count)} restored into {target}"]
    if not count and not count.left_out:
        lines.append("what that plan deleted is in the store already, each memory in its place")
    if count.left_out:
        left_out = counted(count.left_out)
        lines.append(f"{left_out} left in the archive, whose own time has passed since")
    lines += [
        f"{counted(rows, 'rows')} of {table} left in the archive, since something else referred to "
        "is not there"
        for table, rows in count.rows_left_out.items()
    ]
    print_lines(*lines)
