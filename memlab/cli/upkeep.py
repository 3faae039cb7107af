"""Commands that maintain a store: ``maintain``, ``archive``, ``init``, ``lost``, ``vacuum``."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import memlab.compaction
from memlab.cli import options, output
from memlab.clock import now_utc
from memlab.errors import StoreError
from memlab.text import Table, TextPage, command, counted, in_bytes

if TYPE_CHECKING:
    import pandas as pd

_DAY: Final = click.DateTime(formats=["%Y-%m-%d"])


@click.command(short_help="Compact, drop and vacuum as memlab.toml says.")
@click.argument("store", type=options.STORE)
@options.flag_option("--apply", "do_it", help="Do it. Without it, only show.")
@options.yes_option
@options.all_option
@options.json_option
def maintain(store: Path, do_it: bool, yes: bool, all_prunable: bool) -> None:
    """Run the steps that memlab.toml sets for STORE; suitable for cron.

    \b
    1. Check the store, and stop if a check fails.
    2. Harvest reads, if harvest names a source.
    3. Compact by the saved policy; with retire = true, retire instead.
    4. Erase what the archive has kept for archive_for.
    5. Rewrite the file if the share vacuum_free of it is free.

    Steps without a setting are left out. A run that would delete or retire more than max_per_run
    stops first. The exit code is 0 if all went well, 1 if a step failed, 2 without settings.
    """  # noqa: D301 - \b keeps the lines below it apart
    output.show_progress("looking after the store")
    maintenance = memlab.maintain(store, apply=do_it, yes=yes, all_prunable=all_prunable)
    output.print_result(maintenance)
    output.fail_if(maintenance.failed)


@click.command(short_help="List, search, export or erase archived memories.")
@click.argument("store", type=options.STORE)
@options.flag_option("--rows", help="List the archived memories instead of the plans.")
@options.digest_option(
    "--digest", help="Only memories that this plan deleted; the beginning of a digest is enough."
)
@click.option("--search", metavar="TEXT", help="Only memories with TEXT in id, title, body, tags.")
@options.file_option("--export", help="Write the memories to a .jsonl or .parquet file.")
@click.option(
    "--drop-before",
    type=_DAY,
    metavar="DAY",
    help="Erase memories that were archived before this day.",
)
@options.digest_option("--drop", metavar="DIGEST", help="Erase the copies of one plan.")
@options.flag_option("--copy", help="Copy new and changed memories of STORE to the archive.")
@options.flag_option("--upgrade", help="Convert the archive to the newest format.")
@options.flag_option("--facts-too", help="Erase the facts of the dropped memories, too.")
@options.flag_option("--apply", "do_it", help="Erase or convert. Without it, only show.")
@options.json_option
def archive(
    store: Path,
    rows: bool,
    digest: str | None,
    search: str | None,
    export: Path | None,
    drop_before: datetime | None,
    drop: str | None,
    copy: bool,
    upgrade: bool,
    facts_too: bool,
    do_it: bool,
) -> None:
    """List, search and export the memories that were deleted from STORE; with --apply, erase them.

    --copy deletes nothing. It copies the memories of STORE, so that memlab lost can show what
    others delete later. keep_copies = true in memlab.toml has memlab maintain do it.

    --drop and --drop-before erase the texts of memories, and keep facts that sizing needs: when
    each was written and deleted, its kind and size, and hashes of its names. --facts-too erases
    these as well.

    An archive keeps its format when memories are added. --upgrade shows the size in the newest
    format, and with --apply converts it; older versions of memlab cannot read it then.

    \b
    memlab archive memory.db --drop 3fa1c0de9b21            show
    memlab archive memory.db --drop 3fa1c0de9b21 --apply    do it
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.compaction.archive_views import archive_listing

    is_drop = drop is not None or drop_before is not None
    is_listing = bool(rows or digest or search)
    _check_archive_options(
        copy=copy,
        upgrade=upgrade,
        drop=is_drop,
        list_or_export=is_listing or export is not None,
        facts_too=facts_too,
        do_it=do_it,
    )
    if copy:
        output.show_progress("copying what is new")
        output.print_result(memlab.compaction.keep_copies(store, now=now_utc()))
    elif upgrade:
        _upgrade(store, do_it=do_it)
    elif is_drop:
        _drop(store, drop_before, drop, facts_too=facts_too, do_it=do_it)
    elif export is not None:
        _export(store, export, digest, search)
    elif is_listing:
        _print_archived(store, digest, search)
    else:
        output.print_result(archive_listing(store))


def _check_archive_options(
    *, copy: bool, upgrade: bool, drop: bool, list_or_export: bool, facts_too: bool, do_it: bool
) -> None:
    """Raise a UsageError if options of ``memlab archive`` do not go together."""
    has_other_option = drop or list_or_export or facts_too
    if copy and (upgrade or do_it or has_other_option):
        raise click.UsageError("--copy takes no other option of this command")
    if upgrade and has_other_option:
        raise click.UsageError("--upgrade stands alone, or with --apply")
    if drop and list_or_export:
        raise click.UsageError(
            "a drop takes whole plans: leave out --rows, --digest, --search, --export"
        )
    if (facts_too or do_it) and not (drop or upgrade):
        raise click.UsageError(
            "--apply goes with --drop, --drop-before or --upgrade, and --facts-too with a drop"
        )


def _print_archived(store: Path, digest: str | None, search: str | None) -> None:
    """Print the archived memories of a store, and how to undo the last deletion."""
    from memlab.compaction.archive_views import undo_line

    memories = memlab.compaction.archived_rows(store, digest=digest, search=search)
    if output.wants_json():
        output.print_records(memories)
        return
    short = memories.assign(
        restored_at=memories["restored_at"].astype("str").str[:10],  # the day
        digest=memories["digest"].str[:12],
    )
    columns = ["memory_id", "title", "reason", "restored_at", "digest", "namespace"]
    nonempty = short[columns].dropna(axis=1, how="all")
    cells = nonempty.astype(object).fillna("–")
    rows = list(cells.itertuples(index=False, name=None))
    table = Table("", tuple(nonempty.columns), rows)
    title = f"{_copies_in_words(memories)} in the archive"
    if search is not None and memories.empty:
        archived = memlab.compaction.archived_rows(store, digest=digest)
        title = f"no match among {_copies_in_words(archived)} in the archive"
    page = TextPage(title, [], [table])
    not_restored = memories.loc[memories["restored_at"].isna(), "digest"]
    if len(not_restored):
        output.print_lines(page, "", undo_line(str(store), not_restored.iloc[-1]))
    else:
        output.print_lines(page)


def _copies_in_words(archived: "pd.DataFrame") -> str:
    """Return the number of archived memories, and that of their copies if it is larger.

    A memory that was deleted, restored and deleted again has two copies.
    """
    distinct = archived.drop_duplicates(["memory_id", "namespace"])
    if len(distinct) == len(archived):
        return counted(len(archived))
    return f"{counted(len(archived), 'copies')} of {counted(len(distinct))}"


def _drop(
    store: Path, before: datetime | None, digest: str | None, *, facts_too: bool, do_it: bool
) -> None:
    """Erase the archived memories of one plan, or of all plans before a day.

    Without `do_it`, only print them.
    """
    if before is not None and digest is not None:
        raise click.UsageError("give either --drop-before or --drop")
    moment = before.replace(tzinfo=UTC) if before else None
    selection: dict[str, Any] = {"before": moment, "digest": digest, "facts_too": facts_too}
    if do_it:
        erasure = memlab.compaction.drop_archived(store, **selection)
        last_line = f"dropped {counted(erasure.memories)} for good"
    else:
        erasure = memlab.compaction.plan_erasure(store, **selection)
        last_line = "nothing was dropped; add --apply to do it"
        if erasure.is_empty:
            last_line = "nothing to drop"
    output.print_result(erasure, last_line, applied=do_it)


def _upgrade(store: Path, *, do_it: bool) -> None:
    """Convert the archive to the newest format; without `do_it` only print what would change."""
    if do_it:
        output.show_progress("converting the archive")
        upgrade = memlab.compaction.upgrade_archive(store)
    else:
        upgrade = memlab.compaction.plan_upgrade(store)
    if upgrade.is_empty:
        last_line = "nothing to do: the archive is in the newest format"
    elif do_it:
        last_line = f"converted into format {upgrade.newest_format}"
    else:
        last_line = "nothing was converted; add --apply to do it"
    output.print_result(upgrade, last_line, applied=do_it and not upgrade.is_empty)


def _export(store: Path, file: Path, digest: str | None, search: str | None) -> None:
    """Write archived memories to a file."""
    if file.suffix not in {".jsonl", ".parquet"}:
        raise click.UsageError(f"--export must end in .jsonl or .parquet, not {file.name!r}")
    count = memlab.compaction.export_archived(store, file, digest=digest, search=search)
    if output.wants_json():
        output.print_json({"written": count, "file": str(file)})
    else:
        output.print_lines(f"{counted(count)} written to {file}")


@click.command(short_help="Show what others deleted; with --restore, restore it.")
@click.argument("store", type=options.STORE)
@click.option(
    "--restore",
    "ids",
    multiple=True,
    metavar="ID",
    help="The id of a memory to restore, or all; may be given several times.",
)
@options.flag_option("--apply", "do_it", help="Restore. Without it, only show.")
@options.json_option
def lost(store: Path, ids: tuple[str, ...], do_it: bool) -> None:
    """Show memories of STORE that other programs deleted or emptied; those needed since come first.

    They are found in git, if it tracks the folder, or in copies of the store: keep_copies = true in
    memlab.toml, or memlab archive STORE --copy. Memories that memlab deleted or retired are not
    lost; the last line counts them.

    \b
    memlab lost ~/.openclaw/workspace
    memlab lost ~/.openclaw/workspace --restore all            show
    memlab lost ~/.openclaw/workspace --restore all --apply    do it
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.evidence.losses import losses_of

    if do_it and not ids:
        raise click.UsageError("--apply goes with --restore ID, or --restore all")
    output.show_progress("looking for what has gone")
    now = now_utc()
    if not ids:
        output.print_result(losses_of(store, now=now))
        return
    chosen = None if ids == ("all",) else ids  # None means all that are lost
    if do_it:
        on_step = output.progress_callback("restoring")
        recovery = memlab.compaction.recover(store, chosen, now=now, on_step=on_step)
    else:
        recovery = memlab.compaction.plan_recovery(store, chosen, now=now)
    output.print_result(recovery)


@click.command(short_help="Show the disk space; with --apply, shrink the file.")
@click.argument("store", type=options.STORE)
@options.flag_option("--apply", "do_it", help="Rewrite the store. Without it, only show.")
@options.json_option
def vacuum(store: Path, do_it: bool) -> None:
    """Show the disk space of STORE; with --apply, return that of deleted memories to the disk.

    The file is rewritten, and the bytes of deleted memories in it are gone for good. Whether the
    disk has room for that is checked first.
    """
    from memlab.compaction.reclaim import checked_for_vacuum

    if do_it:
        on_step = output.progress_callback("rewriting the file")
        output.print_result(memlab.compaction.vacuum(store, on_step=on_step), applied=True)
        return
    try:
        space = checked_for_vacuum(store)
    except StoreError as error:
        reason = str(error)
        output.print_result(memlab.compaction.space(store), reason, applied=False, refused=reason)
        return
    freed = in_bytes(space.file + space.wal - space.after_vacuum)
    last_line = f"vacuum would give {freed} back; nothing was changed: add --apply to do it"
    output.print_result(space, last_line, applied=False, refused=None)


@click.command(short_help="Write a memlab.toml that explains its settings.")
@click.argument("store", type=options.STORE)
@options.flag_option("--apply", "do_it", help="Write the file. Without it, only show.")
@options.json_option
def init(store: Path, do_it: bool) -> None:
    """Write memlab.toml beside STORE, with each setting that applies to it as a comment.

    Each line explains its setting. Remove the "#" before a line to set it. Settings that the file
    has already stay. Without --apply the file is only printed. Settings that have no effect on a
    store of this kind are left out, and listed with the reason.

    \b
    memlab init memory.db            show
    memlab init memory.db --apply    write it
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.sources.opening import open_source, settings_template

    source = open_source(store)
    file, text, left_out = settings_template(source, write=do_it)
    if output.wants_json():
        content = {"file": file, "text": text, "left_out": left_out, "written": do_it}
        output.print_json(content)
        return
    # The file is named as the store was given, if it is beside the store.
    file_beside_store = store.parent / file.name
    if file_beside_store.absolute() == file:
        file = file_beside_store
    output.print_lines(f"settings: {file}", "")
    output.print_unchanged(text.splitlines())
    tables = []
    if left_out:
        heading = "left out: they have no effect on this store"
        tables.append(Table(heading, (), list(left_out.items()), whole=True))
    if do_it:
        size = command("size", store, "--save")
        last_line = f"written; next: {size}    sets a cap in it"
    else:
        last_line = "nothing was written; add --apply to write it"
    output.print_lines("", TextPage("", [], tables), "", last_line)
