"""Pages and lines laid out for the width of a terminal."""

import re
from collections.abc import Iterator
from io import StringIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from memlab.text import Sheet, Table, as_text, for_terminal, reads_as_number

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

INDENT: Final = 2
"""Columns that facts and tables stand in from the edge."""
BETWEEN: Final = 2
"""Columns between two columns of a table."""
NARROWEST: Final = 14
"""Columns that words in a table are given at least, where they have more."""
LONGEST_WHOLE: Final = 20
"""Columns up to which a word in a table is not broken."""

_COMMAND: Final = re.compile(r"\s*(next: |undo: )?\s*(memlab|pip|log\s=|log\.)\b")
_NAMED: Final = re.compile(r"(\s*\S+(?: \S+)*\s{2,})\S")
"""A name, and what is said of it from the same column on."""


def fitted_line(line: str, width: int) -> list[str]:
    """Return a line in as many lines as it takes, the later ones standing in.

    A command is never broken, so that it can be copied; what is said of it goes on below.

    Examples
    --------
    >>> fitted_line("  rule  the smallest cap whose lower limit meets the target", 40)
    ['  rule  the smallest cap whose lower', '        limit meets the target']
    >>> fitted_line("next: memlab size memory.db    which keep_recent", 40)
    ['next: memlab size memory.db', '          which keep_recent']
    """
    if len(line) <= width:
        return [line]
    if _COMMAND.match(line):
        lead = len(line) - len(line.lstrip())
        command, _, remark = line[lead:].partition("    ")
        return [line[:lead] + command, *wrap(remark.strip(), width, **_standing_in(10))]
    named = _NAMED.match(line)
    indent = len(named[1]) if named else len(line) - len(line.lstrip()) + 2
    return wrap(line, width, subsequent_indent=" " * min(indent, width // 2), **_UNBROKEN)


def fitted_sheet(sheet: Sheet, width: int) -> str:
    """Return a page for a terminal of a width: as it is where it fits, else wrapped."""
    text = as_text(sheet)
    if max(map(len, text.splitlines()), default=0) <= width:
        return text
    console = _console(width)
    if sheet.title:
        console.print(for_terminal(sheet.title))
    names = max((len(for_terminal(name)) for name, _ in sheet.facts), default=0)
    for name, value in sheet.facts:
        lead = f"{'':{INDENT}}{for_terminal(name):<{names + BETWEEN}}"
        _say(console, lead, for_terminal(value), width)
    for number, table in enumerate(sheet.tables):
        if number or sheet.title or sheet.facts:
            console.print()
        for part in _rendered(table, width):
            console.print(part)
    return _text_of(console)


def _say(console: "Console", lead: str, value: str, width: int) -> None:
    """Write a fact in as many lines as it takes; a command is not broken, so it can be copied."""
    indent = " " * len(lead)
    whole = [value] if _COMMAND.match(value) else wrap(value, max(NARROWEST, width - len(indent)))
    for number, line in enumerate(whole or [""]):
        console.print(f"{indent if number else lead}{line}", soft_wrap=True)


def _rendered(table: Table, width: int) -> "Iterator[RenderableType]":
    """Yield a table's heading, the table in as many parts as the width takes, and its remark."""
    from rich.padding import Padding

    if table.heading:
        yield for_terminal(table.heading)
    for number, columns in enumerate(_parts(table, width - INDENT)):
        if number:
            yield ""
        yield Padding(_grid(table, columns, width - INDENT), (0, 0, 0, INDENT))
    if table.remark:
        yield Padding(for_terminal(table.remark), (0, 0, 0, INDENT))


def _grid(table: Table, columns: list[int], width: int) -> "RenderableType":
    from rich.table import Table as Grid

    grid = Grid(
        box=None,
        pad_edge=False,
        padding=(0, BETWEEN, 0, 0),
        show_header=bool(table.header),
        header_style="",
    )
    for column, room in zip(columns, _widths(table, columns, width), strict=True):
        grid.add_column(
            for_terminal(table.header[column]) if table.header else "",
            justify="right" if _is_numeric(table, column) else "left",
            width=room,
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*(_shown(row[column]) for column in columns))
    return grid


def _parts(table: Table, width: int) -> list[list[int]]:
    """Return the columns of each part of a table: the first one stands in every part."""
    count = len(table.rows[0]) if table.rows else len(table.header)
    rooms = [_room(table, column) for column in range(count)]
    parts: list[list[int]] = [[]]
    taken = 0
    for column, room in enumerate(rooms):
        if len(parts[-1]) > 1 and taken + room > width:
            parts.append([0])
            taken = rooms[0] + BETWEEN
        parts[-1].append(column)
        taken += room + BETWEEN
    return parts


def _widths(table: Table, columns: list[int], width: int) -> list[int]:
    """Return how wide each column of a part is: what is to spare goes to those that have more."""
    given = [_room(table, column) for column in columns]
    wanted = [_natural(table, column) for column in columns]
    spare = width - sum(given) - BETWEEN * (len(columns) - 1)
    while spare > 0 and given != wanted:
        for place, (has, wants) in enumerate(zip(given, wanted, strict=True)):
            if spare > 0 and has < wants:
                given[place] += 1
                spare -= 1
    return given


def _room(table: Table, column: int) -> int:
    """Return the columns that a column of a table takes at least.

    A number is never broken, nor a short word such as a date.
    """
    cells = [_shown(row[column]) for row in table.rows]
    words = [word for cell in cells for word in cell.split() if len(word) <= LONGEST_WHOLE]
    header = table.header[column].split() if table.header else []
    least = max(map(len, [*words, *header]), default=0)
    widest = max(map(len, cells), default=0)
    return max(least, widest if _is_numeric(table, column) else min(widest, NARROWEST))


def _natural(table: Table, column: int) -> int:
    """Return the columns that a column of a table takes where it is not broken."""
    cells = [_shown(row[column]) for row in table.rows]
    header = [for_terminal(table.header[column])] if table.header else []
    return max(map(len, [*cells, *header]), default=0)


def _is_numeric(table: Table, column: int) -> bool:
    return bool(table.rows) and all(reads_as_number(row[column]) for row in table.rows)


def _shown(cell: Any) -> str:
    return f"{cell:,}" if isinstance(cell, int) else for_terminal(str(cell))


def _console(width: int) -> "Console":
    """Return where a page is written before it is printed: nothing in it is markup."""
    from rich.console import Console

    return Console(
        file=StringIO(),
        width=width,
        color_system=None,
        force_terminal=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _text_of(console: "Console") -> str:
    written = console.file
    text = written.getvalue() if isinstance(written, StringIO) else ""
    return "\n".join(line.rstrip() for line in text.rstrip("\n").split("\n"))


_UNBROKEN: Final[dict[str, Any]] = {"break_long_words": False, "break_on_hyphens": False}


def _standing_in(columns: int) -> dict[str, Any]:
    indent = " " * columns
    return {"initial_indent": indent, "subsequent_indent": indent, **_UNBROKEN}
