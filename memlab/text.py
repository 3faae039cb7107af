"""Text for people: a page of facts and tables, laid out once for a terminal and for a notebook.

Whatever stands in a cell may come from an agent, and somebody may have written to the agent: every
form makes it harmless.
"""

import html
import re
import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

_CONTROL: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_NUMBER: Final = re.compile(r"[-–<>]?\s?[\d.,%]*( to [\d.,%]+)?")

Cell = str | int

WIDEST: Final = 72
"""Characters of a cell that are shown."""


class Table(NamedTuple):
    """Rows under a heading, and a remark below them.

    Attributes
    ----------
    heading : str
        One line; may be empty.
    header : tuple of str
        Names of the columns; empty for none.
    rows : sequence of tuple of str or int
        Numbers are aligned to the right, integers with thousands separated.
    remark : str
        Such as how many rows are not listed.
    whole : bool
        Whether long cells are shown whole, such as paths that a person copies.
    """

    heading: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    remark: str = ""
    whole: bool = False


class Sheet(NamedTuple):
    """A title, which may be empty, facts by name, and tables."""

    title: str
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table] = ()


class Shown:
    """What shows itself as one page, whether echoed, printed or the last line of a cell.

    A dataclass that inherits from it says ``repr=False``, or it would write a ``repr`` of its own.
    """

    __slots__ = ()

    def sheet(self) -> Sheet:
        """Return the page."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(self.sheet())

    def _repr_html_(self) -> str:
        return as_html(self.sheet())


def for_terminal(text: str) -> str:
    r"""Return `text` with every character that could steer a terminal written as an escape.

    Control characters, ANSI sequences, marks that turn the direction of writing, line separators
    and lone surrogates become escapes such as ``\x1b``; everything a person reads stays.

    Examples
    --------
    >>> print(for_terminal("red \x1b[31m alert\u202e"))
    red \x1b[31m alert\u202e
    """
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _CONTROL else char
        for char in text
    )


def as_text(sheet: Sheet) -> str:
    """Return the sheet for a terminal: columns aligned, nothing in it can steer the terminal."""
    lines = [_shown(sheet.title, limit=None)] if sheet.title else []
    width = max((len(name) for name, _ in sheet.facts), default=0)
    lines += [f"  {name:<{width}}  {_shown(value, limit=None)}" for name, value in sheet.facts]
    for table in sheet.tables:
        heading = [_shown(table.heading, limit=None)] if table.heading else []
        lines += [*([""] if lines else []), *heading, *_aligned(table)]
        if table.remark:
            lines.append(f"  {_shown(table.remark, limit=None)}")
    return "\n".join(lines)


def as_html(sheet: Sheet) -> str:
    """Return the sheet for a notebook: every character that means something to HTML is escaped."""
    facts = "".join(
        f"<tr><th style='text-align:left'>{_escaped(name)}</th>"
        f"<td style='text-align:left'>{_escaped(value)}</td></tr>"
        for name, value in sheet.facts
    )
    parts = [f"<p><strong>{_escaped(sheet.title)}</strong></p><table>{facts}</table>"]
    for table in sheet.tables:
        heading = f"<p>{_escaped(table.heading)}</p>" if table.heading else ""
        parts.append(f"{heading}<table>{_html_rows(table)}</table>")
        if table.remark:
            parts.append(f"<p>{_escaped(table.remark)}</p>")
    return f"<div>{''.join(parts)}</div>"


def counted(count: float, things: str) -> str:
    """Write a count with its noun, given in the plural.

    Examples
    --------
    >>> counted(1, "tokens"), counted(1200, "tokens"), counted(1, "memories")
    ('1 token', '1,200 tokens', '1 memory')
    """
    one = f"{things[:-3]}y" if things.endswith("ies") else things.removesuffix("s")
    return f"{count:,.0f} {one if count == 1 else things}"


def reads_as_number(cell: Cell) -> bool:
    """Whether a cell is a number, a share or a range of them: what is aligned to the right.

    Examples
    --------
    >>> [reads_as_number(cell) for cell in (12, "94.0%", "90.1% to 96.8%", "–", "2026-03-01")]
    [True, True, True, True, False]
    """
    return isinstance(cell, int) or _NUMBER.fullmatch(cell) is not None


def _aligned(table: Table) -> list[str]:
    limit = None if table.whole else WIDEST
    cells = [[_shown(cell, limit=limit) for cell in row] for row in table.rows]
    header = [list(table.header)] if table.header else []
    widths = [max(map(len, column)) for column in zip(*header, *cells, strict=True)]
    numeric = [all(map(reads_as_number, column)) for column in zip(*table.rows)]  # noqa: B905 - no rows, no columns
    return [
        "  "
        + "  ".join(
            f"{cell:>{width}}" if right else f"{cell:<{width}}"
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in (header + cells if cells else [])
    ]


def _html_rows(table: Table) -> str:
    header = "".join(f"<th>{_escaped(name)}</th>" for name in table.header)
    rows = [f"<tr>{header}</tr>"] if header else []
    rows += [
        "<tr>" + "".join(f"<td>{_escaped(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    ]
    return "".join(rows)


def _shown(cell: Cell, *, limit: int | None = WIDEST) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    text = for_terminal(cell if limit is None else cell[: limit + 1])
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def _escaped(cell: Cell) -> str:
    return html.escape(_shown(cell, limit=None if isinstance(cell, int) else WIDEST * 4))
