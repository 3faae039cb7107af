"""``memlab floor``: what the load-bearing memories cost, and what a newer one could stand for."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlab.cli.options import FILE, STORE, json_option, store_or_bundled
from memlab.cli.output import print_json, print_lines, print_text
from memlab.sources.opening import open_source, start_words
from memlab.text import Sheet, Table, counted

if TYPE_CHECKING:
    import pandas as pd

    from memlab.sizing import Floor

LISTED = 10
"""How many calls are printed; a plan has them all."""


@click.command(short_help="Show what no cap can bring down, and what in it could be superseded.")
@click.argument("store", type=STORE, required=False)
@click.option("--id", "ids", multiple=True, help="Plan only this one; may be given several times.")
@click.option(
    "--supersede",
    "pairs",
    multiple=True,
    metavar="OLDER=NEWER",
    help="Plan this pair instead of those found; may be given several times.",
)
@click.option("--save-plan", type=FILE, help="Write a plan that supersedes to a new file.")
@click.option("--apply", "do_it", is_flag=True, help="Carry that plan out. Without it, only show.")
@json_option
def floor(
    store: Path | None,
    ids: tuple[str, ...],
    pairs: tuple[str, ...],
    save_plan: Path | None,
    do_it: bool,
    as_json: bool,
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
    if ids and pairs:
        raise click.UsageError("give either --id or --supersede")
    path = store_or_bundled(store)
    if save_plan is not None or do_it or ids or pairs:
        _plan(path, ids, pairs, save_plan, do_it=do_it, as_json=as_json)
    else:
        _show(path, as_json=as_json)


def _show(path: Path, *, as_json: bool) -> None:
    from memlab.frame.loading import load
    from memlab.policies.successors import supersedable
    from memlab.sizing.floor import floor_of

    frame = load(path, with_body=True)
    cost, found = floor_of(frame), supersedable(frame)
    if as_json:
        listed = found.to_dict(orient="records")
        print_json({"store": str(path), "floor": cost, "supersedable": listed})
        return
    boot = int(frame.loc[frame["active"], "tokens"].sum())
    print_lines(_sheet(path, cost, found, boot), "", *_next(path, found))


def _plan(
    path: Path,
    ids: tuple[str, ...],
    pairs: tuple[str, ...],
    save_plan: Path | None,
    *,
    do_it: bool,
    as_json: bool,
) -> None:
    from memlab.compaction.applying import apply
    from memlab.compaction.superseding import plan_supersession
    from memlab.files import limit_like, whole_file

    links = dict(map(_pair, pairs)) if pairs else None
    made = plan_supersession(path, links, only=ids or None, now=datetime.now(UTC))
    if save_plan is not None:
        with whole_file(
            save_plan, limit=limit_like(open_source(path).like), replace=False
        ) as draft:
            draft.write_text(made.to_json(), encoding="utf-8")
    if do_it:
        receipt = apply(made, now=datetime.now(UTC))
        print_text(receipt.to_json()) if as_json else print_lines(made, "", receipt)
        return
    if as_json:
        print_text(made.to_json())
        return
    after = "nothing was changed; add --apply to do it, or --save-plan FILE to have it reviewed"
    if made.is_empty:
        after = "nothing to do: no newer memory is found that could stand for another"
    elif save_plan is not None:
        after = f"nothing was changed; after review: memlab apply {shlex.quote(str(save_plan))}"
    print_lines(made, "", after)


def _pair(text: str) -> tuple[str, str]:
    older, between, newer = text.partition("=")
    if not (older and between and newer):
        raise click.UsageError(f"--supersede {text!r} is not OLDER=NEWER, two ids of the store")
    return older, newer


def _sheet(path: Path, cost: "Floor", found: "pd.DataFrame", boot: int) -> Sheet:
    tokens = int(found["tokens"].sum())
    facts = [
        ("load-bearing", f"{counted(cost.memories, 'memories')}, {counted(cost.tokens, 'tokens')}"),
        (start_words(str(path)), f"{boot:,} tokens, of which no cap can take those away"),
        ("supersedable", f"{counted(len(found), 'memories')}, {counted(tokens, 'tokens')}"),
    ]
    tables = [
        Table("By kind", ("kind", "memories", "tokens"), cost.by_kind),
        Table(
            "The costliest",
            ("memory_id", "kind", "tokens", "title"),
            [(row.memory_id, row.kind, row.tokens, row.title) for row in cost.largest],
        ),
    ]
    if len(found):
        columns = ("memory_id", "tokens", "superseded_by", "reason", "why", "title")
        rows = [
            tuple(int(row[name]) if name == "tokens" else str(row[name]) for name in columns)
            for row in found.to_dict(orient="records")
        ]
        header = ("memory_id", "tokens", "newer one", "reason", "why", "title")
        tables.append(Table("A newer one could stand for", header, rows))
    return Sheet(str(path), facts, tables)


def _next(path: Path, found: "pd.DataFrame") -> list[str]:
    from memlab.sources.abilities import Superseding
    from memlab.sources.opening import open_source

    name = shlex.quote(str(path))
    if found.empty:
        return [f"next: memlab size {name}    which keep_recent, with evidence"]
    if not isinstance(open_source(path), Superseding):
        return ["next: read both; where they live nothing can stand for another: shorten or delete"]
    ids = zip(found["memory_id"], found["superseded_by"], strict=True)
    calls = [f"      store.supersede({older!r}, by_memory_id={newer!r})" for older, newer in ids]
    more = [f"      # and {len(calls) - LISTED:,} more"] if len(calls) > LISTED else []
    return [
        "next: read both; let the newer one stand for the older, which stays in the store:",
        f"  with memlab.SqliteMemoryStore({str(path)!r}) as store:",
        *calls[:LISTED],
        *more,
        "or as a plan that can be reviewed, applied and taken back, all or with --id ID some:",
        f"  memlab floor {name} --save-plan floor.json",
    ]
