"""Commands that delete and take back: ``compact``, ``apply``, ``finish`` and ``restore``."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.options import STORE, json_option
from memlab.cli.output import print_json, print_lines
from memlab.cli.policy import origins_epilog, policy_of, policy_options

if TYPE_CHECKING:
    from memlab.compaction.plans import Plan

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    epilog=origins_epilog(), short_help="Show what a cap would delete; with --apply, do it."
)
@click.argument("store", type=STORE)
@policy_options
@click.option("--save-plan", type=FILE, help="Write the plan to a file for review.")
@click.option("--apply", "do_it", is_flag=True, help="Carry the plan out. Without it, only show.")
@json_option
def compact(
    store: Path,
    policy_name: str,
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
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.compaction.applying import apply
    from memlab.compaction.planning import plan
    from memlab.files import write_whole

    made = plan(store, policy_of(policy_name, settings), now=datetime.now(UTC))
    if save_plan is not None:
        write_whole(save_plan, made.to_json())
    if do_it:
        receipt = apply(made, now=datetime.now(UTC))
        click.echo(receipt.to_json() if as_json else f"{made}\n\n{receipt}", nl=not as_json)
        return
    click.echo(made.to_json() if as_json else str(made), nl=not as_json)
    if not as_json:
        click.echo()
        print_lines(*_warnings(made), *_next_steps(save_plan, nothing=not made.memories))


@click.command("apply", short_help="Carry out a plan that was saved and reviewed.")
@click.argument("plan_file", metavar="PLAN", type=FILE)
@click.option("--store", type=STORE, help="The store, where it is not the one the plan names.")
@json_option
def apply_plan(plan_file: Path, store: Path | None, as_json: bool) -> None:
    """Carry out a reviewed PLAN, as memlab compact --save-plan wrote it.

    A plan is refused when a memory it decided on has changed since, and when it was applied before.
    """
    from memlab.compaction.applying import apply
    from memlab.compaction.plans import Plan
    from memlab.files import read_whole

    made = Plan.from_json(read_whole(plan_file))
    receipt = apply(made, store=store, now=datetime.now(UTC))
    click.echo(receipt.to_json() if as_json else str(receipt), nl=not as_json)


@click.command("finish")
@click.argument("store", type=STORE)
@click.argument("digest")
@json_option
def finish_plan(store: Path, digest: str, as_json: bool) -> None:
    """Finish the plan DIGEST that was cut short on STORE.

    memlab doctor STORE says whether there is one.
    """
    from memlab.compaction.applying import finish

    receipt = finish(store, digest, now=datetime.now(UTC))
    click.echo(receipt.to_json() if as_json else str(receipt), nl=not as_json)


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
    from memlab.compaction.restoring import restore

    count = restore(digest, store=store, ids=ids or None, into=into)
    target = store if into is None else into
    if as_json:
        print_json({"restored": count, "left_out": count.left_out, "into": str(target)})
    else:
        print_lines(f"{count:,} memories restored into {target}")
        if count.left_out:
            print_lines(f"{count.left_out:,} stay in the archive: their own time has passed since")


def _warnings(made: "Plan") -> list[str]:
    """Say so when a policy that counts load-bearing memories leaves nothing else."""
    if made.memories and not made.kept and made.policy.get("max_items"):
        return [
            f"every prunable memory would be deleted: {made.floor.memories:,} load-bearing ones",
            "take up room under this policy and stay; a larger --max-items keeps more",
        ]
    return []


def _next_steps(save_plan: Path | None, *, nothing: bool) -> list[str]:
    if nothing:
        return ["nothing to do: under this policy every memory stays"]
    if save_plan is not None:
        return [
            f"nothing was deleted; the plan is in {save_plan}. After review:",
            f"  memlab apply {shlex.quote(str(save_plan))}",
        ]
    return ["nothing was deleted; add --apply to do it, or --save-plan FILE to have it reviewed"]
