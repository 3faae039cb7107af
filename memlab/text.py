"""Pages of facts and tables as text for a terminal and HTML for a notebook, safely escaped."""

import html
import json
import re
import shlex
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import partial
from itertools import zip_longest
from math import isnan
from pathlib import PurePath
from typing import Any, Final, NamedTuple

_CONTROL: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_JOINER: Final = re.compile(r"(?<=[^\x00-\x7f])([\u200c\u200d])(?=[^\x00-\x7f])")
"""Joiners between characters outside ASCII, as in emoji; beside ASCII they would be invisible."""

_FOLDER_AND_SPACE: Final = "the folder, its permissions and the room on the disk"
"""What to check if a file cannot be written, in words."""

_NUMBER: Final = re.compile(r"[-–<>~]?\s?[\d.,%]*( to [\d.,%]+)?")

_LOGIN: Final = re.compile(
    r"(?P<user>[A-Za-z][\w+.-]*:/{1,2}(?P<name>[^\s/?#@:]*)):"
    r"(?:[^\s/?#]*|(?!\d*(?:[\s/?#'\"]|$))\S*)@"
)
"""User and password in a URL, or in a malformed one; a port does not match."""
_SECRET: Final = re.compile(r"(?P<mark>[?&])(?:ssl)?password=[^\s&#'\"]*(?P<more>&)?")

Cell = str | int

_UNWRAPPED: Final = re.compile(r"(?=.{1,16}$)[a-z\d]+(-[a-z\d]+)+")
"""A short word with hyphens, at which a browser would wrap."""
WIDEST: Final = 72
"""Maximum number of characters that are shown of a cell."""
LONGEST_TITLE: Final = 1_000
"""Characters of a title that HTML shows: an answer takes a few sentences."""
NARROWEST: Final = 14
"""Minimum width of a column of longer texts."""
_COMMAND: Final = re.compile(r"\s*(next: |undo: )?\s*(memlab|pip|log\s=|log\.)\b")
_LABEL: Final = re.compile(r"(\s*\S+(?: \S+)*\s{2,})\S")
"""The name at the start of a line, up to the column of its value."""
_wrap: Final = partial(textwrap.wrap, break_on_hyphens=False)
"""Function that wraps text and breaks a path or an id only if it is longer than a line."""


class Table(NamedTuple):
    """Rows with a heading above and a remark below.

    Attributes
    ----------
    heading : str
        Text above the table.
    header : tuple of str
        Names of the columns; empty for none.
    rows : sequence of tuple of (str or int)
        The cells.
    remark : str
        Text below the table.
    whole : bool
        Whether long cells are shown in full.
    """

    heading: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    remark: str = ""
    whole: bool = False

    def first(self, most: int, where: str = "") -> "Table":
        """Return the first rows, with a remark on how many more there are and where."""
        hidden = len(self.rows) - most
        remark = f"and {hidden:,} more{where}" if hidden > 0 else self.remark
        return self._replace(rows=self.rows[:most], remark=remark)


class TextPage(NamedTuple):
    """A page for a person: a title, which may be empty, named facts and tables."""

    title: str
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table] = ()


class DisplayMixin:
    """Mixin of results that display as a page, in a terminal and in a notebook.

    A dataclass with this mixin needs ``repr=False``.
    """

    __slots__ = ()

    def sheet(self) -> TextPage:
        """Return the page."""
        raise NotImplementedError

    def next_steps(self) -> list[str]:
        """Return the commands to run next, one a line."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return _by_name(self)

    def to_json(self) -> str:
        """Return the fields as JSON text, with times in ISO 8601."""
        return json.dumps(json_values(self.to_dict()), indent=2, allow_nan=False)

    def __dir__(self) -> list[str]:
        """Return the names that a user calls, for completion: no constants of the class."""
        return [name for name in super().__dir__() if not name.isupper()]

    def __repr__(self) -> str:
        return as_text(self.sheet())

    def _repr_html_(self) -> str:
        return as_html(self.sheet())


def _by_name(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def json_values(value: Any) -> Any:
    """Return a result, or a part of one, as values that JSON can represent.

    An unknown number, NaN, is null.
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif is_dataclass(value) and not isinstance(value, type):
        value = _by_name(value)
    if isinstance(value, dict):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, float) and isnan(value):
        return None
    return value


def for_terminal(text: str) -> str:
    r"""Return `text` with every character that could control a terminal written as an escape.

    Control characters, ANSI sequences, marks of writing direction, line separators and lone
    surrogates become escapes such as ``\x1b``. Visible text is unchanged, and so are joiners
    between the characters of an emoji or of a script.

    Examples
    --------
    >>> print(for_terminal("red \x1b[31m alert\u202e"))
    red \x1b[31m alert\u202e
    """
    escaped = []
    for number, part in enumerate(_JOINER.split(text)):
        is_joiner = number % 2 == 1
        escaped.append(part if is_joiner else "".join(map(_escaped_control, part)))
    return "".join(escaped)


def _escaped_control(char: str) -> str:
    """Return a character, or its escape if it could control a terminal."""
    if unicodedata.category(char) not in _CONTROL:
        return char
    return char.encode("unicode_escape").decode()


def shortened(text: str) -> str:
    """Return `text` in quotes, cut to 80 characters."""
    if len(text) > 80:
        text = f"{text[:77]}..."
    return repr(text)


def in_shell(*words: str) -> str:
    r"""Return words quoted for a POSIX shell, so that a person can copy them.

    >>> print(in_shell("memlab", "show", "my agent.db", "two\nlines.db"))
    memlab show 'my agent.db' $'two\nlines.db'
    """
    return " ".join(map(_in_shell, words))


def _in_shell(word: str) -> str:
    if for_terminal(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(map(_in_dollar_quotes, word)) + "'"


def _in_dollar_quotes(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if unicodedata.category(char) not in _CONTROL:
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) & 255:x}"
    return char.encode("unicode_escape").decode() if char < "\x80" else f"\\U{ord(char):08x}"


def refused(what: str, error: Exception, look_at: str = _FOLDER_AND_SPACE) -> str:
    """Return the message for a failed system call: what failed, why, and what to check."""
    reason = getattr(error, "strerror", None) or error
    return f"{what} ({reason}); check {look_at}"


def without_passwords(text: str) -> str:
    """Return a text without the passwords of URLs in it.

    >>> without_passwords("redis://me:secret@host/0?name=n&password=other")
    'redis://me@host/0?name=n'
    """

    def login(match: re.Match[str]) -> str:
        return f"{match['user']}@" if match["name"] else match["user"]

    def secret(match: re.Match[str]) -> str:
        return match["mark"] if match["more"] else ""

    return _SECRET.sub(secret, _LOGIN.sub(login, text))


def as_text(sheet: TextPage, width: int | None = None) -> str:
    """Return a page as text for a terminal, with aligned columns and escaped control characters.

    If the page does not fit into `width` columns, texts are wrapped, and a wide table is continued
    below with its first column repeated.
    """
    text = "\n".join(_lines(sheet, None))
    if width is None or max(map(len, text.splitlines()), default=0) <= width:
        return text
    return "\n".join(_lines(sheet, width))


def fitted_line(line: str, width: int) -> list[str]:
    """Return a line wrapped to a width, with the later lines indented.

    A command is never wrapped, so that it can be copied. Its remark is put on the next lines.

    >>> fitted_line("  rule  the smallest cap whose lower limit meets the target", 40)
    ['  rule  the smallest cap whose lower', '        limit meets the target']
    >>> fitted_line("next: memlab size memory.db    which keep_recent", 40)
    ['next: memlab size memory.db', '          which keep_recent']
    """
    if len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip())
    if _COMMAND.match(line):
        command, _, remark = line[indent:].partition("    ")
        return [
            line[:indent] + command,
            *_wrapped_whole_words(f"{'':10}{remark.strip()}", width, 10),
        ]
    label = _LABEL.match(line)
    later_indent = len(label[1]) if label else indent + 2
    return _wrapped_whole_words(line, width, min(later_indent, width // 2))


def _wrapped_whole_words(line: str, width: int, indent: int) -> list[str]:
    return _wrap(line, width, subsequent_indent=" " * indent, break_long_words=False)


def as_html(sheet: TextPage) -> str:
    """Return a page as HTML for a notebook, with all text escaped."""
    facts = "".join(
        f"<tr><th style='text-align:left'>{_escaped(name)}</th>"
        f"<td style='text-align:left'>{_escaped(value)}</td></tr>"
        for name, value in sheet.facts
    )
    parts = [
        f"<p><strong>{_escaped(sheet.title, LONGEST_TITLE)}</strong></p><table>{facts}</table>"
    ]
    for table in sheet.tables:
        heading = f"<p>{_escaped(table.heading)}</p>" if table.heading else ""
        parts.append(f"{heading}<table>{_html_rows(table)}</table>")
        if table.remark:
            parts.append(f"<p>{_escaped(table.remark)}</p>")
    return f"<div>{''.join(parts)}</div>"


def command(name: str, *arguments: object) -> str:
    """Return a memlab command for a person to copy, without passwords in URLs."""
    words = [without_passwords(str(argument)) for argument in arguments]
    return f"memlab {name} {in_shell(*words)}"


def counted(count: float, plural: str = "memories") -> str:
    """Return a count with its noun, which is given in the plural.

    >>> counted(1, "tokens"), counted(1200, "tokens"), counted(1, "memories")
    ('1 token', '1,200 tokens', '1 memory')
    """
    noun = plural
    if count == 1:
        noun = f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")
    return f"{count:,.0f} {noun}"


def all_of(count: int, plural: str) -> str:
    """Return the noun with its number for all things of a kind, which is given in the plural.

    >>> all_of(1, "files"), all_of(1200, "files"), all_of(0, "files")
    ('the only file', 'all 1,200 files', 'all 0 files')
    """
    if count == 1:
        return f"the only {counted(1, plural).removeprefix('1 ')}"
    return f"all {counted(count, plural)}"


def verb_for(count: int, plural: str) -> str:
    """Return the form of a verb for a count; the verb is given in the plural.

    >>> verb_for(1, "are"), verb_for(1, "have"), verb_for(1, "lead"), verb_for(2, "are")
    ('is', 'has', 'leads', 'are')
    """
    if count != 1:
        return plural
    return {"are": "is", "have": "has"}.get(plural, f"{plural}s")


def zoneless_in_words(count: int) -> str:
    """Return how many dates have no time zone, in words.

    >>> zoneless_in_words(1), zoneless_in_words(300)
    ('1 date has no time zone; read as UTC', '300 dates have no time zone; read as UTC')
    """
    return f"{counted(count, 'dates')} {verb_for(count, 'have')} no time zone; read as UTC"


def in_bytes(size: int) -> str:
    """Return a size in bytes with its unit, in powers of 1,000.

    >>> in_bytes(3_040_000), in_bytes(-5000), in_bytes(999)
    ('3.0 MB', '-5.0 kB', '999 bytes')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if abs(size) >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} bytes"


def or_dash(value: Any, form: str = "{:.1%}") -> str:
    """Return a formatted value, or a dash for None and NaN.

    >>> or_dash(0.25), or_dash(None), or_dash(float("nan"))
    ('25.0%', '–', '–')
    """
    is_missing = value is None or value != value  # noqa: PLR0124 - not a number
    return "–" if is_missing else form.format(value)


def reads_as_number(cell: Cell) -> bool:
    """Return whether a cell is a number, a percentage or a range, and is aligned to the right.

    >>> [reads_as_number(cell) for cell in (12, "94.0%", "90.1% to 96.8%", "–", "2026-03-01")]
    [True, True, True, True, False]
    """
    return isinstance(cell, int) or _NUMBER.fullmatch(cell) is not None


def numeric_columns(table: Table) -> list[bool]:
    """Return for each column whether all its cells are numbers."""
    columns = zip(*table.rows, strict=True)
    return [all(map(reads_as_number, column)) for column in columns] or [False] * len(table.header)


def _lines(sheet: TextPage, width: int | None) -> Iterator[str]:
    if sheet.title:
        yield from _labelled_lines("", sheet.title, width)
    names = max((len(for_terminal(name)) for name, _ in sheet.facts), default=0)
    for name, value in sheet.facts:
        yield from _labelled_lines(f"  {for_terminal(name):<{names}}  ", value, width)
    for number, table in enumerate(sheet.tables):
        is_blank = not (table.heading or table.rows or table.remark)
        if (number or sheet.title or sheet.facts) and not is_blank:
            yield ""
        if table.heading:
            yield from _labelled_lines("", table.heading, width)
        yield from _aligned(table, width)
        if table.remark:
            yield from _labelled_lines("  ", table.remark, width)


def _labelled_lines(lead: str, value: str, width: int | None) -> list[str]:
    """Return the lines of a text after its label, wrapped; a command is not wrapped."""
    words = for_terminal(value)
    if width is None or not words or _COMMAND.match(words):
        return [f"{lead}{words}"]
    width = max(width, len(lead) + NARROWEST)
    return _wrap(words, width, initial_indent=lead, subsequent_indent=" " * len(lead))


def _aligned(table: Table, width: int | None) -> Iterator[str]:
    limit = None if table.whole or width is not None else WIDEST
    cells = [[_shown(cell, limit=limit) for cell in row] for row in table.rows]
    if not cells:
        return
    lines = [*([list(table.header)] if table.header else []), *cells]
    sides = [">" if right else "<" for right in numeric_columns(table)]
    full_widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    column_groups = [list(enumerate(full_widths))]
    if width is not None:
        column_groups = _parts(table, cells, full_widths, width - 2)
    for number, group in enumerate(column_groups):
        if number:
            yield ""
        for line in lines:
            wrapped_cells = []
            for at, room in group:
                fits = len(line[at]) <= room
                wrapped_cells.append([line[at]] if fits else _wrapped_cell(line[at], room))
            for line_of_cells in zip_longest(*wrapped_cells, fillvalue=""):
                shown = zip(group, line_of_cells, strict=True)
                text = "  ".join(f"{cell:{sides[at]}{room}}" for (at, room), cell in shown)
                yield f"  {text}".rstrip()


def _wrapped_cell(cell: str, room: int) -> list[str]:
    """Return the lines of a cell; a path is wrapped after its slashes.

    >>> _wrapped_cell("home/.claude/projects/work/memory", 16)
    ['home/.claude/', 'projects/work/', 'memory']
    """
    if "/" not in cell or " " in cell:
        return _wrap(cell, room)
    lines = [""]
    for name in re.findall("[^/]*/|[^/]+", cell):
        if len(lines[-1]) + len(name) <= room:
            lines[-1] += name
        else:
            lines += _wrap(name, room)
    return [line for line in lines if line]


def _parts(
    table: Table, cells: Sequence[Sequence[str]], full_widths: Sequence[int], width: int
) -> list[list[tuple[int, int]]]:
    """Split a table that is too wide into parts that are printed one below the other.

    Return for each part its columns with their widths. Each part begins with the first column.
    `full_widths` has the width at which no cell of a column is wrapped.
    """
    minimum = [_minimum_width(table, cells, at, width // 2) for at in range(len(full_widths))]
    groups: list[list[int]] = [[0]]
    for at in range(1, len(full_widths)):
        columns = [*groups[-1], at]
        narrowest = sum(minimum[column] for column in columns) + 2 * (len(columns) - 1)
        if len(groups[-1]) > 1 and narrowest > width:
            groups.append([0])
        groups[-1].append(at)
    return [_fitted_widths(part, minimum, full_widths, width) for part in groups]


def _fitted_widths(
    group: list[int], minimum: Sequence[int], full_widths: Sequence[int], width: int
) -> list[tuple[int, int]]:
    """Return the columns of a part with their widths, which share the spare room evenly."""
    widths = {at: minimum[at] for at in group}
    spare = width - sum(widths.values()) - 2 * (len(group) - 1)
    while spare > 0:
        wrapped = [at for at in group if widths[at] < full_widths[at]][:spare]
        if not wrapped:
            break
        for at in wrapped:
            widths[at] += 1
        spare -= len(wrapped)
    return list(widths.items())


def _minimum_width(table: Table, cells: Sequence[Sequence[str]], at: int, longest_word: int) -> int:
    """Return the minimum width of a column: that of its numbers, and of words that fit.

    Words of more than `longest_word` characters are wrapped.
    """
    column = [row[at] for row in cells]
    words = [word for cell in column for word in cell.split() if len(word) <= longest_word]
    header = table.header[at].split() if table.header else []
    widest = max(map(len, column))
    if not numeric_columns(table)[at]:
        widest = min(widest, NARROWEST)
    return max([widest, *map(len, [*words, *header])])


def _html_rows(table: Table) -> str:
    """Return the rows of a table as HTML with the alignment of each cell."""
    styles = [f"text-align:{'right' if right else 'left'}" for right in numeric_columns(table)]
    rows: list[tuple[str, Sequence[Cell]]] = [("th", table.header)] if table.header else []
    rows += [("td", row) for row in table.rows]
    lines = []
    for tag, row in rows:
        cells = zip(row, styles, strict=True)
        lines.append([_html_cell(tag, cell, style) for cell, style in cells])
    return "".join(f"<tr>{''.join(line)}</tr>" for line in lines)


def _html_cell(tag: str, cell: Cell, style: str) -> str:
    """Return a cell as HTML; one short word with hyphens, such as a date, is not wrapped."""
    if isinstance(cell, str) and _UNWRAPPED.fullmatch(cell):
        style += ";white-space:nowrap"
    return f"<{tag} style='{style}'>{_escaped(cell)}</{tag}>"


def _shown(cell: Cell, *, limit: int | None = WIDEST) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    text = for_terminal(cell if limit is None else cell[: limit + 1])
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def _escaped(cell: Cell, limit: int = WIDEST * 4) -> str:
    """Return the text of a cell, cut and escaped for HTML, with its indentation."""
    text = _shown(cell, limit=None if isinstance(cell, int) else limit)
    words = text.lstrip(" ")
    indentation = "&emsp;" * ((len(text) - len(words)) // 2)
    return f"{indentation}{html.escape(words)}"
