"""How the commands on many stores print: a table that fits the terminal, JSON, or CSV."""

import os
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from memlab.cli.output import print_lines, print_text
from memlab.text import Cell, Sheet, Table, for_terminal

if TYPE_CHECKING:
    import pandas as pd

NARROWEST: Final = 16
"""Characters of a store's name that are shown however narrow the terminal is."""

Column = tuple[str, Callable[[Any], Cell]]
"""What a column is headed, and its cell for a row of the table."""


def print_table(table: "pd.DataFrame", *, as_json: bool, as_csv: bool) -> bool:
    """Print a table whole for a script, where that was asked for; whether it was."""
    if as_json:
        print_text(table.to_json(orient="records", date_format="iso", indent=1))
    elif as_csv:
        print_text(table.to_csv(index=False))
    return as_json or as_csv


def fleet_sheet(
    title: str,
    table: "pd.DataFrame",
    columns: Sequence[Column],
    *,
    facts: Sequence[tuple[str, str]] = (),
    limit: int = 20,
) -> Sheet:
    """Return the first stores of a table with these columns, and those that have an error.

    Parameters
    ----------
    title : str
        What stands above it all.
    table : DataFrame
        With ``store`` and ``error``; those without an error are listed in its order.
    columns : sequence of (str, callable)
        Heading and cell of each column but the store's name.
    facts : sequence of (str, str)
        What is true of all of them together.
    limit : int
        Stores that are listed.
    """
    below = common_folder(table["store"].tolist())
    good, bad = table[table["error"].isna()], table[table["error"].notna()]
    listed = good.head(limit)
    cells = [tuple(cell(row) for _, cell in columns) for row in listed.itertuples()]
    width = _room_for_names([name for name, _ in columns], cells)
    names = [in_width(name.removeprefix(below), width) for name in listed["store"]]
    rows = [(*each, name) for each, name in zip(cells, names, strict=True)]
    more = len(good) - len(listed)
    remark = f"{more:,} more; --limit, --csv or --json shows them" if more else ""
    tables = [Table("", (*(name for name, _ in columns), "store"), rows, remark, whole=True)]
    if len(bad):
        wrong = [
            (in_width(name.removeprefix(below), width), error)
            for name, error in bad[["store", "error"]].head(limit).itertuples(index=False)
        ]
        more = len(bad) - len(wrong)
        tables.append(Table("left out", (), wrong, f"{more:,} more" if more else "", whole=True))
    where = [("below", below)] if below else []
    return Sheet(title, [*where, *facts], tables)


def print_sheet(sheet: Sheet, *after: str) -> None:
    """Print a page, and lines below it."""
    print_lines(sheet, *after)


def common_folder(names: Sequence[str]) -> str:
    """Return the folder that all names begin with, its slash included; empty where there is none.

    Examples
    --------
    >>> common_folder(["/srv/a/memory.db", "/srv/b/memory.db"])
    '/srv/'
    """
    if len(names) < 2 or not all(name.startswith("/") for name in names):
        return ""
    folder = os.path.commonpath([os.path.dirname(name) for name in names])  # noqa: PTH120 - text
    return "" if folder == "/" else f"{folder}/"


def in_width(name: str, width: int) -> str:
    """Return a name cut in its middle, for both ends tell stores apart.

    Examples
    --------
    >>> in_width("tenants/00017/agents/a/memory.db", 20)
    'tenants/0…/memory.db'
    """
    name = for_terminal(name)
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[-(width - 1 - head) :]}"


def _room_for_names(headers: Sequence[str], cells: Sequence[tuple[Cell, ...]]) -> int:
    shown = [
        [header, *(f"{row[at]:,}" if isinstance(row[at], int) else str(row[at]) for row in cells)]
        for at, header in enumerate(headers)
    ]
    taken = sum(2 + max(map(len, column)) for column in shown)
    return max(NARROWEST, shutil.get_terminal_size().columns - taken - 4)
