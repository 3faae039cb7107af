"""``memlab floor``: what the load-bearing memories cost, and which of them repeat another."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlab.cli.options import STORE, json_option, store_or_bundled
from memlab.cli.output import print_json, print_lines
from memlab.sources.opening import start_words
from memlab.text import Sheet, Table, as_text

if TYPE_CHECKING:
    import pandas as pd

    from memlab.sizing import Floor


@click.command(short_help="Show what no cap can bring down, and what in it repeats itself.")
@click.argument("store", type=STORE, required=False)
@json_option
def floor(store: Path | None, as_json: bool) -> None:
    """Show the load-bearing memories of STORE that cost most, and near-duplicates among them.

    No cap goes below them. One that a newer one repeats can be superseded by it, which is said here
    as a call and is for a person to decide. Without STORE, the bundled two years. The store is only
    read.
    """
    from memlab.frame.loading import load
    from memlab.policies.twins import load_bearing_twins
    from memlab.sizing.floor import floor_of

    path = store_or_bundled(store)
    frame = load(path, with_body=True)
    found, twins = floor_of(frame), load_bearing_twins(frame)
    if as_json:
        print_json({"store": str(path), "floor": found, "twins": twins.to_dict(orient="records")})
        return
    boot = int(frame.loc[frame["active"], "tokens"].sum())
    print_lines(*as_text(_sheet(path, found, twins, boot)).splitlines(), "", *_next(path, twins))


def _sheet(path: Path, found: "Floor", twins: "pd.DataFrame", boot: int) -> Sheet:
    facts = [
        ("load-bearing", f"{found.items:,} memories, {found.tokens:,} tokens"),
        (start_words(str(path)), f"{boot:,} tokens, of which no cap can take those away"),
        ("near-duplicates", f"{len(twins):,} memories, {int(twins['tokens'].sum()):,} tokens"),
    ]
    tables = [
        Table("By kind", ("kind", "memories", "tokens"), found.by_kind),
        Table(
            "The costliest",
            ("memory_id", "kind", "tokens", "title"),
            [(row.memory_id, row.kind, row.tokens, row.title) for row in found.largest],
        ),
    ]
    if len(twins):
        rows = [
            (
                str(row["memory_id"]),
                int(row["tokens"]),
                str(row["superseded_by"]),
                f"{row['similarity']:.2f}",
                str(row["title"]),
            )
            for row in twins.to_dict(orient="records")
        ]
        header = ("memory_id", "tokens", "repeated by", "similarity", "title")
        tables.append(Table("Repeated by a newer one", header, rows))
    return Sheet(str(path), facts, tables)


def _next(path: Path, twins: "pd.DataFrame") -> list[str]:
    if twins.empty:
        return [f"next: memlab size {shlex.quote(str(path))}    which keep_recent, with evidence"]
    older, newer = twins.loc[0, ["memory_id", "superseded_by"]]
    return [
        "next: read both, then let the newer one stand for the older, which stays in the store:",
        f"  with memlab.SqliteMemoryStore({str(path)!r}) as store:",
        f"      store.supersede({older!r}, by_memory_id={newer!r})",
    ]
