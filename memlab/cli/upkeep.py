"""Commands that look after a store: ``archive``, ``space`` and ``vacuum``."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlab.cli.options import STORE, STORE_FILE, json_option
from memlab.cli.output import print_json, print_lines
from memlab.text import Sheet, Table, as_text

if TYPE_CHECKING:
    import pandas as pd

DAY = click.DateTime(formats=["%Y-%m-%d"])


@click.command(short_help="List, search, export or drop what was deleted.")
@click.argument("store", type=STORE)
@click.option("--rows", is_flag=True, help="List the archived memories instead of the plans.")
@click.option("--digest", help="Only what this plan took out; the beginning of a digest will do.")
@click.option("--search", metavar="TEXT", help="Only memories with TEXT in id, title, body, tags.")
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the memories to a .jsonl or .parquet file.",
)
@click.option("--drop-before", type=DAY, help="Delete copies archived before this day, for good.")
@click.option("--drop", metavar="DIGEST", help="Delete the copies of one plan, for good.")
@json_option
def archive(
    store: Path,
    rows: bool,
    digest: str | None,
    search: str | None,
    export: Path | None,
    drop_before: datetime | None,
    drop: str | None,
    as_json: bool,
) -> None:
    """List what was taken out of STORE, search it, export it, or drop it for good."""
    from memlab.compaction.contents import (
        archived_plans,
        archived_rows,
        drop_archived,
        export_archived,
    )

    if drop_before is not None or drop is not None:
        if drop_before is not None and drop is not None:
            raise click.UsageError("give either --drop-before or --drop")
        before = drop_before.replace(tzinfo=UTC) if drop_before else None
        entries = drop_archived(store, before=before, digest=drop)
        plans = f"{len(entries):,} plan{'s' * (len(entries) != 1)}"
        print_lines(f"dropped {sum(e.left for e in entries):,} memories of {plans}")
    elif export is not None:
        if export.suffix not in {".jsonl", ".parquet"}:
            raise click.UsageError(f"--export must end in .jsonl or .parquet, not {export.name!r}")
        count = export_archived(store, export, digest=digest, search=search)
        print_lines(f"{count:,} memories written to {export}")
    elif rows or digest or search:
        found = archived_rows(store, digest=digest, search=search)
        if as_json:
            click.echo(found.to_json(orient="records", date_format="iso", indent=2))
        else:
            click.echo(
                as_text(Sheet(f"{len(found):,} memories in the archive", [], [_table(found)]))
            )
    elif as_json:
        print_json([entry._asdict() for entry in archived_plans(store)])
    else:
        for entry in archived_plans(store):
            state = "applied" if entry.finished_at else "CUT SHORT"
            what = f"{entry.memories:,} memories, {entry.restored:,} restored"
            if not entry.memories:
                what = "superseded memories, deleted none"
            print_lines(f"{entry.digest[:12]}  {entry.archived_at:%Y-%m-%d %H:%M}  {state}  {what}")


def _table(found: "pd.DataFrame") -> Table:
    """List archived rows so that one line is one row, whatever stands in it."""
    shown = found.assign(digest=found["digest"].str[:12]).astype(object)
    if shown["namespace"].isna().all():
        shown = shown.drop(columns="namespace")
    rows = shown.where(shown.notna(), "").itertuples(index=False, name=None)
    cells = [tuple(c if isinstance(c, int) else str(c) for c in row) for row in rows]
    return Table("", tuple(shown.columns), cells)


@click.command("space", short_help="Show where the bytes are.")
@click.argument("store", type=STORE_FILE)
@json_option
def show_space(store: Path, as_json: bool) -> None:
    """Show where the bytes of STORE are, and how small vacuum would make it."""
    from memlab.compaction.reclaim import space

    found = space(store)
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(str(found))


@click.command("vacuum", short_help="Give the room of deleted memories back.")
@click.argument("store", type=STORE_FILE)
@json_option
def vacuum_store(store: Path, as_json: bool) -> None:
    """Give the room of deleted memories in STORE back to the disk.

    The room it takes meanwhile is checked first.
    """
    from memlab.compaction.reclaim import vacuum

    done = vacuum(store)
    if as_json:
        print_json(done.to_dict())
    else:
        click.echo(str(done))
