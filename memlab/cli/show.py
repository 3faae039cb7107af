"""Commands that look: ``show`` at a store, ``find`` for stores, ``doctor``, ``floor``."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlab.cli.options import (
    FILE,
    STORE,
    json_option,
    moment_for,
    names_a_folder,
    store_or_bundled,
    threshold_option,
)
from memlab.cli.output import doing, print_json, print_lines, print_result, print_text
from memlab.errors import MissingExtraError, StoreError
from memlab.text import Cell, Sheet, Table, command, counted

if TYPE_CHECKING:
    import pandas as pd

    from memlab.growth import Inventory
    from memlab.settings import Settings
    from memlab.sizing import Floor

LISTED = 10
"""How many calls that supersede are printed; a plan has them all."""


@click.command(short_help="Show what an agent loads at every start.")
@click.argument("store", type=STORE, required=False)
@threshold_option
@click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of a folder with an index: what its cut loses, by the reads of an access log.",
)
@json_option
def show(store: Path | None, threshold: int | None, log_file: Path | None, as_json: bool) -> None:
    """Show what an agent loads from STORE at every start, and how much of it is prunable.

    What STORE is is found out by looking; a folder that holds several lists them. Without STORE,
    the bundled two years.
    """
    from memlab.growth.summary import past_arrays, summary_of
    from memlab.sources.opening import open_source, settings_of

    path = store_or_bundled(store)
    if (inside := _stores_inside(path)) is not None:
        print_result(inside, as_json=as_json)
        return
    source = open_source(path)
    arrays, problem = past_arrays(source)
    about = source.about()
    settings, losses = settings_of(source), None
    keep, number = settings.keep_recent, ""
    if settings.sized is not None or settings.is_auto:
        from memlab.compaction.in_force import number_in_force

        keep, number, _ = number_in_force(source)
    summary = summary_of(
        arrays,
        now=moment_for(store, arrays.last_at),
        threshold=keep if threshold is None else threshold,
    )
    if log_file is not None:
        from memlab.evidence.cut import cut_losses
        from memlab.evidence.reads import read_access_log

        losses = cut_losses(source, read_access_log(log_file))
    notes = {"number": number, "settings": settings.not_obeyed}
    pages: dict[str, Any] = {"about": about, "cut": losses}
    pages = {name: page for name, page in pages.items() if page is not None}
    notes = {name: words for name, words in notes.items() if words}
    if as_json:
        print_json({"store": str(path), "summary": summary, **pages, **notes})
        return
    below: list[Any] = [f"  archive left out: {problem}"] if problem else []
    for part in (*pages.values(), *(f"{name}: {words}" for name, words in notes.items())):
        below += ["", part]
    heavy = 2 * summary.boot.load_bearing.tokens > summary.boot.tokens
    print_lines(str(path), summary, *below, "", *_after_showing(store, settings, heavy=heavy))


def _stores_inside(path: object) -> "Inventory | None":
    """Return the stores below a folder that is none itself; None for anything else."""
    from memlab.sources.opening import recognise

    if not isinstance(path, Path) or not path.is_dir() or recognise(path) is not None:
        return None
    from memlab.growth import find_stores

    found = find_stores(path)
    if not found.stores:
        raise StoreError(f"{path} is a folder without a store in it; name a store, or its folder")
    return found


def _after_showing(store: Path | None, settings: "Settings", *, heavy: bool) -> list[str]:
    """Say what to run next; of a floor that weighs more than half, how it could come down."""
    if store is None:
        return ["this is the bundled example; next: memlab show STORE with a store of yours"]
    lines = [f"next: {command('size', store)}    which keep_recent, with evidence"]
    if settings.policy is not None:
        lines.append(
            f"      {command('compact', store)}    what the remembered policy would delete"
        )
    if heavy:
        lines.append(f"      {command('floor', store)}    what no cap brings down, and what could")
    return lines


@click.command(short_help="Find the stores below a folder.")
@click.argument("folder", type=STORE, required=False)
@json_option
def find(folder: Path | None, as_json: bool) -> None:
    """Find the stores below FOLDER, and what each holds. Reads only; links are not followed.

    Without FOLDER, where Claude Code, claude-mem, mcp-memory-service and odek put theirs.
    """
    from memlab.growth import find_stores

    is_path = isinstance(folder, Path) and (folder.is_dir() or not names_a_folder(folder))
    if folder is not None and not is_path:
        raise click.UsageError(
            f"{folder} names one store, and this looks through folders; next: "
            f"{command('show', folder)}"
        )
    print_result(find_stores(folder), as_json=as_json)


@click.command(short_help="Look at the health of a store and of its archive.")
@click.argument("store", type=STORE)
@threshold_option
@click.option("--strict", is_flag=True, help="End with 1 for a warning, too.")
@json_option
@click.pass_context
def doctor(
    ctx: click.Context, store: Path, threshold: int | None, strict: bool, as_json: bool
) -> None:
    """Look at the health of STORE, of its archive and of its settings. Reads only.

    Ends with exit code 1 where something fails; a warning is worth a look and ends with 0.
    """
    from memlab.doctor import Status, diagnose

    doing("looking at the store and its archive")
    found = diagnose(store, threshold=threshold)
    print_result(found, as_json=as_json)
    bad = {Status.FAIL, Status.WARN} if strict else {Status.FAIL}
    ctx.exit(1 if found.status in bad else 0)


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
    from memlab.compaction.applier import apply
    from memlab.compaction.supersession import plan_supersession
    from memlab.files import limit_like, write_whole
    from memlab.sources.opening import open_source

    if ids and pairs:
        raise click.UsageError("give either --id or --supersede")
    path = store_or_bundled(store)
    if save_plan is None and not (do_it or ids or pairs):
        _show_floor(path, as_json=as_json)
        return
    now, links = datetime.now(UTC), dict(map(_pair, pairs)) if pairs else None
    made = plan_supersession(path, links, only=ids or None, now=now)
    if save_plan is not None:
        limit = limit_like(open_source(path).like)
        write_whole(save_plan, made.to_json(), limit=limit, replace=False)
    if do_it:
        receipt = apply(made, now=datetime.now(UTC))
        print_text(receipt.to_json()) if as_json else print_lines(made, "", receipt)
        return
    after = "nothing was changed; add --apply to do it, or --save-plan FILE to have it reviewed"
    if made.is_empty:
        after = "nothing to do: no newer memory is found that could stand for another"
    elif save_plan is not None:
        after = f"nothing was changed; after review: {command('apply', save_plan)}"
    print_result(made, after, as_json=as_json)


def _pair(text: str) -> tuple[str, str]:
    older, between, newer = text.partition("=")
    if not (older and between and newer):
        raise click.UsageError(f"--supersede {text!r} is not OLDER=NEWER, two ids of the store")
    return older, newer


def _show_floor(path: Path, *, as_json: bool) -> None:
    from memlab.frame.loading import load
    from memlab.policies.successors import supersedable
    from memlab.sizing.history import floor_of

    frame = load(path, with_body=True)
    cost, unseen = floor_of(frame), []
    try:
        found = supersedable(frame)
    except MissingExtraError as error:
        found = supersedable(frame, by_likeness=False)
        unseen = [f"near-duplicates were not looked for: {error}", ""]
    if as_json:
        listed = found.to_dict(orient="records")
        print_json({"store": str(path), "floor": cost, "supersedable": listed})
        return
    boot = int(frame.loc[frame["active"], "tokens"].sum())
    print_lines(_floor_sheet(path, cost, found, boot), "", *unseen, *_after_floor(path, found))


def _floor_sheet(path: Path, cost: "Floor", found: "pd.DataFrame", boot: int) -> Sheet:
    from memlab.sources.opening import open_source, start_words

    def size(memories: int, tokens: int) -> str:
        return f"{counted(memories)}, {counted(tokens, 'tokens')}"

    facts = [
        ("load-bearing", size(cost.memories, cost.tokens)),
        (
            start_words(open_source(path).name),
            f"{counted(boot, 'tokens')}, of which no cap can take those away",
        ),
        ("supersedable", size(len(found), int(found["tokens"].sum()))),
    ]
    largest = [(row.memory_id, row.kind, row.tokens, row.title) for row in cost.largest]
    tables = [
        Table("By kind", ("kind", "memories", "tokens"), cost.by_kind),
        Table("The costliest", ("memory_id", "kind", "tokens", "title"), largest),
    ]
    if len(found):
        columns = ["memory_id", "tokens", "superseded_by", "reason", "why", "title"]
        rows: list[tuple[Cell, ...]] = [
            (str(name), int(tokens), *map(str, rest))
            for name, tokens, *rest in found[columns].itertuples(index=False)
        ]
        header = ("memory_id", "tokens", "newer one", "reason", "why", "title")
        tables.append(Table("A newer one could stand for", header, rows))
    return Sheet(str(path), facts, tables)


def _after_floor(path: Path, found: "pd.DataFrame") -> list[str]:
    from memlab.sources.opening import open_source

    if found.empty:
        return [f"next: {command('size', path)}    which keep_recent, with evidence"]
    if not open_source(path).supersedes:
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
        f"  {command('floor', path)} --save-plan floor.json",
    ]
