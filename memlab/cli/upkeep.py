"""Commands that look after a store: ``maintain``, ``archive``, ``lost`` and ``vacuum``."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

import memlab.compaction
from memlab.cli import options, output
from memlab.clock import now_utc
from memlab.errors import StoreError
from memlab.text import Table, TextPage, counted, in_bytes

DAY: Final = click.DateTime(formats=["%Y-%m-%d"])


@click.command(short_help="Compact, drop and vacuum by what is remembered.")
@click.argument("store", type=options.STORE)
@options.flag_option("--apply", "do_it", help="Do it. Without it, only show.")
@options.YES
@options.ALL
@options.json_option
def maintain(store: Path, do_it: bool, yes: bool, all_prunable: bool) -> None:
    """Look after STORE by what memlab.toml remembers of it: fit for cron.

    Looks at its health and stops where something fails; harvests reads, where harvest names a
    source; compacts it by the remembered policy, into the archive, or with retire = true retires
    what the policy does not keep and lets what was needed return; drops what the archive has kept
    for archive_for; rewrites the file where the share vacuum_free of it is free. What is not
    remembered is not done. A run that would delete or retire more than max_per_run stops before.

    Ends with 0 when all went well, 1 when a step failed, 2 when there is nothing to go by.
    """
    output.show_progress("looking after the store")
    found = memlab.maintain(store, apply=do_it, yes=yes, all_prunable=all_prunable)
    output.print_result(found)
    output.fail_if(found.failed)


@click.command(short_help="List, search, export or drop what was deleted.")
@click.argument("store", type=options.STORE)
@options.flag_option("--rows", help="List the archived memories instead of the plans.")
@options.digest_option(
    "--digest", help="Only what this plan took out; the beginning of a digest will do."
)
@click.option("--search", metavar="TEXT", help="Only memories with TEXT in id, title, body, tags.")
@options.file_option("--export", help="Write the memories to a .jsonl or .parquet file.")
@click.option(
    "--drop-before", type=DAY, metavar="DAY", help="Erase what was archived before this day."
)
@options.digest_option("--drop", metavar="DIGEST", help="Erase the copies of one plan.")
@options.flag_option("--copy", help="Copy what is new or changed in STORE into it.")
@options.flag_option("--upgrade", help="Convert it into the newest format.")
@options.flag_option("--facts-too", help="Forget too that the dropped memories were there.")
@options.flag_option("--apply", "do_it", help="Drop or convert it. Without it, only show.")
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
    """List what was taken out of STORE, search it, export it; with --apply, drop it for good.

    --copy deletes nothing: it keeps copies of what is in STORE, so that memlab lost knows what
    somebody else deletes. keep_copies = true in memlab.toml has memlab maintain do it.

    Dropping erases the words of memories and keeps the facts: when each was written and deleted,
    its kind and size, and hashes of the names it goes by. References to it count on. --facts-too
    erases these as well.

    An archive is read and added to in the format that it has. --upgrade shows what room the newest
    takes, and with --apply converts it; a memlab that knows older formats alone reads it no more.

    \b
    memlab archive memory.db --drop 3fa1c0de9b21            show
    memlab archive memory.db --drop 3fa1c0de9b21 --apply    do it
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.compaction.contents import archive_listing, undo_line

    chosen = (rows, digest, search, export, drop_before, drop, facts_too)
    if copy:
        if upgrade or do_it or any(chosen):
            raise click.UsageError("--copy stands alone: it does what it says")
        output.show_progress("copying what is new")
        output.print_result(memlab.compaction.keep_copies(store, now=now_utc()))
        return
    if upgrade:
        if any(chosen):
            raise click.UsageError("--upgrade stands alone, or with --apply")
        _upgrade(store, do_it=do_it)
        return
    if drop_before is not None or drop is not None:
        if rows or digest or search or export:
            raise click.UsageError(
                "a drop takes whole plans: leave out --rows, --digest, --search, --export"
            )
        _drop(store, drop_before, drop, facts_too=facts_too, do_it=do_it)
    elif facts_too or do_it:
        raise click.UsageError(
            "--apply belongs to --drop, --drop-before or --upgrade, --facts-too to a drop"
        )
    elif export is not None:
        _export(store, export, digest, search)
    elif rows or digest or search:
        listed = memlab.compaction.archived_rows(store, digest=digest, search=search)
        if output.wants_json():
            output.print_records(listed)
        else:
            back = listed["restored_at"].astype("str").str[:10]
            short = listed.assign(restored_at=back, digest=listed["digest"].str[:12])
            shown = short[["memory_id", "title", "reason", "restored_at", "digest", "namespace"]]
            shown = shown.dropna(axis=1, how="all").astype(object).fillna("–")
            table = Table("", tuple(shown.columns), list(shown.itertuples(index=False, name=None)))
            page = TextPage(f"{counted(len(listed))} in the archive", [], [table])
            gone = listed.loc[listed["restored_at"].isna(), "digest"]
            output.print_lines(
                page, *(["", undo_line(str(store), gone.iloc[-1])] if len(gone) else [])
            )
    else:
        output.print_result(archive_listing(store))


def _drop(
    store: Path, before: datetime | None, digest: str | None, *, facts_too: bool, do_it: bool
) -> None:
    if before is not None and digest is not None:
        raise click.UsageError("give either --drop-before or --drop")
    until = before.replace(tzinfo=UTC) if before else None
    act = memlab.compaction.drop_archived if do_it else memlab.compaction.what_drops
    found = act(store, before=until, digest=digest, facts_too=facts_too)
    after = "nothing was dropped; add --apply to do it"
    after = "nothing to drop" if found.is_empty else after
    after = f"dropped {counted(found.memories)} for good" if do_it else after
    output.print_result(found, after, applied=do_it)


def _upgrade(store: Path, *, do_it: bool) -> None:
    if do_it:
        output.show_progress("converting the archive")
        found = memlab.compaction.upgrade_archive(store)
    else:
        found = memlab.compaction.what_upgrades(store)
    after = "nothing was converted; add --apply to do it"
    if found.is_empty:
        after = "nothing to do: the archive is in the newest format"
    elif do_it:
        after = f"converted into format {found.newest}"
    output.print_result(found, after, applied=do_it and not found.is_empty)


def _export(store: Path, file: Path, digest: str | None, search: str | None) -> None:
    if file.suffix not in {".jsonl", ".parquet"}:
        raise click.UsageError(f"--export must end in .jsonl or .parquet, not {file.name!r}")
    count = memlab.compaction.export_archived(store, file, digest=digest, search=search)
    if output.wants_json():
        output.print_json({"written": count, "file": str(file)})
    else:
        output.print_lines(f"{counted(count)} written to {file}")


@click.command(short_help="Show what somebody else deleted; with --restore, take it back.")
@click.argument("store", type=options.STORE)
@click.option(
    "--restore",
    "ids",
    multiple=True,
    metavar="ID",
    help="What to put back, an id or all; may be given several times.",
)
@options.flag_option("--apply", "do_it", help="Put it back. Without it, only show.")
@options.json_option
def lost(store: Path, ids: tuple[str, ...], do_it: bool) -> None:
    """Show what somebody else deleted from STORE or emptied, what was asked for since first.

    Git knows it of a folder that it tracks, and the archive of a store that is copied: keep_copies
    = true in memlab.toml, or memlab archive STORE --copy. What memlab deleted or retired is not
    lost; the last line counts it.

    \b
    memlab lost ~/.openclaw/workspace
    memlab lost ~/.openclaw/workspace --restore all            show
    memlab lost ~/.openclaw/workspace --restore all --apply    do it
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.evidence.losses import losses_of

    if do_it and not ids:
        raise click.UsageError("--apply belongs to --restore ID, or --restore all")
    output.show_progress("looking for what has gone")
    now = now_utc()
    if not ids:
        output.print_result(losses_of(store, now=now))
        return
    some = None if ids == ("all",) else ids
    if do_it:
        watch = output.progress_callback("restoring")
        found = memlab.compaction.recover(store, some, now=now, watch=watch)
    else:
        found = memlab.compaction.plan_recovery(store, some, now=now)
    output.print_result(found)


@click.command(short_help="Show where the bytes are; with --apply, give free ones back.")
@click.argument("store", type=options.STORE)
@options.flag_option("--apply", "do_it", help="Rewrite the store. Without it, only show.")
@options.json_option
def vacuum(store: Path, do_it: bool) -> None:
    """Show where the bytes of STORE are; with --apply, give those of deleted memories back.

    The store is rewritten, and bytes of deleted memories that were still in it are gone for good.
    The disk space that it takes meanwhile is checked first.
    """
    from memlab.compaction.reclaim import checked_for_vacuum

    if do_it:
        done = memlab.compaction.vacuum(store, watch=output.progress_callback("rewriting the file"))
        output.print_result(done, applied=True)
        return
    refused = None
    try:
        found = checked_for_vacuum(store)
        size = in_bytes(found.file + found.wal - found.after_vacuum)
        after = f"vacuum would give {size} back; nothing was changed: add --apply to do it"
    except StoreError as error:
        found = memlab.compaction.space(store)
        after = (refused := str(error))
    output.print_result(found, after, applied=False, refused=refused)
