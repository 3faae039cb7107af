"""Lay out pages of facts and tables: as text for a terminal, and as HTML for a notebook.

All text is escaped, because anybody may have written the memories.
"""

import html
import json
import re
import shlex
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import partial
from itertools import zip_longest
from math import isnan
from pathlib import PurePath
from typing import Any, Final, NamedTuple

_CONTROL_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of the characters that could control a terminal."""

_JOINER: Final = re.compile(r"(?<=[^\x00-\x7f])([\u200c\u200d])(?=[^\x00-\x7f])")
"""Joiners between characters outside ASCII, as in emoji; beside ASCII they would be invisible."""

_FOLDER_AND_SPACE: Final = "the folder, its permissions and the room on the disk"
"""Advice on what to check if a file cannot be written."""

_NUMBER: Final = re.compile(r"[-–<>~]?\s?[\d.,%]*( to [\d.,%]+)?")
"""A number or a percentage, a range of two of them, a dash for none, or an empty text."""

_LOGIN: Final = re.compile(
    r"""
    (?P<before_password>[A-Za-z][\w+.-]*:/{1,2}(?P<name>[^\s/?#@:]*)):
    (?:
        [^\s/?#]*  # the password of a valid URL
        | (?!\d*(?:[\s/?#'"]|$))\S*  # that of a malformed URL: any text, except for a port
    )@
    """,
    re.VERBOSE,
)
"""The beginning of a URL with a password, up to the ``@`` after it."""
_PASSWORD_PARAMETER: Final = re.compile(r"(?P<mark>[?&])(?:ssl)?password=[^\s&#'\"]*(?P<more>&)?")
"""Password in the query of a URL."""

Cell = str | int
"""A cell of a table."""

_HYPHENATED_WORD: Final = re.compile(r"(?=.{1,16}$)[a-z\d]+(-[a-z\d]+)+")
"""A short word with hyphens, such as a date. A browser would wrap it at the hyphens."""
MAX_CELL_CHARS: Final = 72
"""Maximum number of characters that are shown of a cell."""
MAX_TITLE_CHARS: Final = 1_000
"""Maximum number of characters of a title in HTML. An answer takes a few sentences."""
MIN_TEXT_WIDTH: Final = 14
"""Minimum width of a column of longer texts."""
_COLUMN_GAP: Final = 2
"""Number of spaces between two columns."""
_COMMAND: Final = re.compile(r"\s*(next: |undo: )?\s*(memlab|pip|log\s=|log\.)\b")
"""The start of a line with a command or code to copy."""
_LABEL: Final = re.compile(r"(\s*\S+(?: \S+)*\s{2,})\S")
"""The name at the start of a line, up to the column of its value."""
_wrap: Final = partial(textwrap.wrap, break_on_hyphens=False)
"""Function that wraps text. It breaks a path or an id only if it is longer than a line."""


class Table(NamedTuple):
    """A table with a heading above and a remark below.

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
    has_paths : bool
        Whether cells are paths or messages with paths, and none is the text of a memory. The
        command line shows such paths as they were given.
    """

    heading: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    remark: str = ""
    whole: bool = False
    has_paths: bool = False

    def first(self, count: int, where: str = "") -> "Table":
        """Return a table of the first rows, with a remark on the number of the others.

        Parameters
        ----------
        count : int
            Maximum number of rows.
        where : str
            End of the remark, such as "; --json lists them all".
        """
        hidden = len(self.rows) - count
        remark = f"and {hidden:,} more{where}" if hidden > 0 else self.remark
        return self._replace(rows=self.rows[:count], remark=remark)


class TextPage(NamedTuple):
    """A page for a person.

    Attributes
    ----------
    title : str
        The title; empty for none.
    facts : sequence of tuple of (str, str)
        Names and values. A fact that continues the one above has an empty name.
    tables : sequence of Table
        The tables below the facts.
    """

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
        return _fields_by_name(self)

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


def _fields_by_name(record: Any) -> dict[str, Any]:
    """Return the values of the fields of a dataclass by name."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def json_values(value: Any) -> Any:
    """Return a result, or a part of one, as values that JSON can represent.

    An unknown number, NaN, is null.
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif is_dataclass(value) and not isinstance(value, type):
        value = _fields_by_name(value)
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
    parts = []
    for number, part in enumerate(_JOINER.split(text)):
        # The pattern has one group, so that every second part is a joiner.
        is_joiner = number % 2 == 1
        if is_joiner:
            parts.append(part)
        else:
            parts += map(_escaped_control, part)
    return "".join(parts)


def _escaped_control(char: str) -> str:
    """Return a character, or its escape if it could control a terminal."""
    if unicodedata.category(char) not in _CONTROL_CATEGORIES:
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
    """Return a word quoted for a POSIX shell, with control characters as escapes."""
    if for_terminal(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(map(_in_dollar_quotes, word)) + "'"


def _in_dollar_quotes(char: str) -> str:
    r"""Return a character as it is written within the quotes ``$'...'`` of a shell."""
    if char in "\\'":
        return f"\\{char}"
    if unicodedata.category(char) not in _CONTROL_CATEGORIES:
        return char
    if "\udc80" <= char <= "\udcff":
        # Python has read a byte that is not UTF-8 as this surrogate.
        byte = ord(char) & 0xFF
        return f"\\x{byte:x}"
    if char < "\x80":  # ASCII
        return char.encode("unicode_escape").decode()
    return f"\\U{ord(char):08x}"


def failure_message(failure: str, error: Exception, look_at: str = _FOLDER_AND_SPACE) -> str:
    """Return the message for a failed system call.

    Parameters
    ----------
    failure : str
        A clause about what failed, such as "notes.db cannot be read".
    error : Exception
        The error, which has the reason.
    look_at : str
        What to check.
    """
    reason = getattr(error, "strerror", None) or error
    return f"{failure} ({reason}); check {look_at}"


def without_passwords(text: str) -> str:
    """Return a text without the passwords of URLs in it.

    >>> without_passwords("redis://me:secret@host/0?name=n&password=other")
    'redis://me@host/0?name=n'
    """

    def without_login_password(match: re.Match[str]) -> str:
        beginning = match["before_password"]
        return f"{beginning}@" if match["name"] else beginning

    def without_parameter(match: re.Match[str]) -> str:
        # The mark before the password, "?" or "&", now comes before the next parameter.
        return match["mark"] if match["more"] else ""

    without_logins = _LOGIN.sub(without_login_password, text)
    return _PASSWORD_PARAMETER.sub(without_parameter, without_logins)


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
        remark_indent = 10
        indented_remark = f"{' ' * remark_indent}{remark.strip()}"
        return [
            line[:indent] + command,
            *_wrapped_whole_words(indented_remark, width, remark_indent),
        ]
    label = _LABEL.match(line)
    later_indent = len(label[1]) if label else indent + 2
    return _wrapped_whole_words(line, width, min(later_indent, width // 2))


def _wrapped_whole_words(line: str, width: int, indent: int) -> list[str]:
    """Return a line wrapped between words, with the later lines indented."""
    return _wrap(line, width, subsequent_indent=" " * indent, break_long_words=False)


def as_html(sheet: TextPage) -> str:
    """Return a page as HTML for a notebook, with all text escaped."""
    facts = "".join(
        f"<tr><th style='text-align:left'>{_escaped(name)}</th>"
        f"<td style='text-align:left'>{_escaped(value)}</td></tr>"
        for name, value in sheet.facts
    )
    title = _escaped(sheet.title, MAX_TITLE_CHARS)
    parts = [f"<p><strong>{title}</strong></p><table>{facts}</table>"]
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
    noun = _singular_of(plural) if count == 1 else plural
    return f"{count:,.0f} {noun}"


def _singular_of(plural: str) -> str:
    """Return the singular of a regular plural.

    >>> _singular_of("memories"), _singular_of("tokens")
    ('memory', 'token')
    """
    if plural.endswith("ies"):
        return plural.removesuffix("ies") + "y"
    return plural.removesuffix("s")


def all_of(count: int, plural: str) -> str:
    """Return a phrase for all things of a kind, with their number; the noun is in the plural.

    >>> all_of(1, "files"), all_of(1200, "files"), all_of(0, "files")
    ('the only file', 'all 1,200 files', 'all 0 files')
    """
    if count == 1:
        return f"the only {_singular_of(plural)}"
    return f"all {counted(count, plural)}"


def verb_for(count: int, plural: str) -> str:
    """Return the form of a verb for a count; the verb is given in the plural.

    >>> verb_for(1, "are"), verb_for(1, "have"), verb_for(1, "lead"), verb_for(2, "are")
    ('is', 'has', 'leads', 'are')
    """
    if count != 1:
        return plural
    return {"are": "is", "have": "has"}.get(plural, f"{plural}s")


def signed_percent(share: float) -> str:
    """Return a share in percentage points with its sign; zero has none.

    >>> signed_percent(0.29), signed_percent(-0.001)
    ('+29', '0')
    """
    points = round(100 * share)
    return f"{points:+}" if points else "0"


def zoneless_in_words(count: int) -> str:
    """Return a clause about the dates that have no time zone, with their number.

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


_SHARE_TOLERANCE: Final = 1e-9
"""Tolerance for rounding errors of a share that is 0 or 1."""


def percent(share: float, decimals: int = 1) -> str:
    """Return a share in percent. Only a share of 1 is 100%, and only a share of 0 is 0%.

    >>> [percent(share) for share in (0, 0.0001, 0.25, 0.9996, 1)]
    ['0.0%', '<0.1%', '25.0%', '99.9%', '100.0%']
    >>> percent(0.997, decimals=0), percent(0.005, decimals=0)
    ('99%', '<1%')
    """
    step = 10.0 ** -(decimals + 2)
    if share < 1 - _SHARE_TOLERANCE:
        share = min(share, 1 - step)
    text = f"{share:.{decimals}%}"
    if share > _SHARE_TOLERANCE and text == f"{0:.{decimals}%}":
        return f"<{step:.{decimals}%}"
    return text


def percent_as_given(share: float) -> str:
    """Return a target or a confidence in percent, with up to four digits; only all is 100%.

    >>> percent_as_given(0.9), percent_as_given(0.975), percent_as_given(0.99999)
    ('90%', '97.5%', '99.99%')
    """
    digits = f"{100 * share:.4g}"
    return percent(share, 2) if digits == "100" and share < 1 else f"{digits}%"


def or_dash(value: Any, form: Callable[[Any], str] = percent) -> str:
    """Format a value, by default as a share in percent; return a dash for None and NaN.

    >>> or_dash(0.25), or_dash(None), or_dash(float("nan")), or_dash(1200, "{:,}".format)
    ('25.0%', '–', '–', '1,200')
    """
    if value is None or value != value:  # noqa: PLR0124 - not a number
        return "–"
    return form(value)


def reads_as_number(cell: Cell) -> bool:
    """Return whether a cell is a number, a percentage or a range, and is aligned to the right.

    >>> [reads_as_number(cell) for cell in (12, "94.0%", "90.1% to 96.8%", "–", "2026-03-01")]
    [True, True, True, True, False]
    """
    return isinstance(cell, int) or _NUMBER.fullmatch(cell) is not None


def numeric_columns(table: Table) -> list[bool]:
    """Return a flag for each column: True if all its cells are numbers."""
    if not table.rows:
        return [False] * len(table.header)
    columns = zip(*table.rows, strict=True)
    return [all(map(reads_as_number, column)) for column in columns]


def _lines(sheet: TextPage, width: int | None) -> Iterator[str]:
    """Yield the lines of a page, which are not wrapped if `width` is None."""
    if sheet.title:
        yield from _labelled_lines("", sheet.title, width)
    name_width = max((len(for_terminal(name)) for name, _ in sheet.facts), default=0)
    for name, value in sheet.facts:
        yield from _labelled_lines(f"  {for_terminal(name):<{name_width}}  ", value, width)
    for number, table in enumerate(sheet.tables):
        is_blank = not (table.heading or table.rows or table.remark)
        has_lines_above = number > 0 or bool(sheet.title or sheet.facts)
        if has_lines_above and not is_blank:
            yield ""
        if table.heading:
            yield from _labelled_lines("", table.heading, width)
        yield from _aligned(table, width)
        if table.remark:
            yield from _labelled_lines("  ", table.remark, width)


def _labelled_lines(label: str, value: str, width: int | None) -> list[str]:
    """Return the lines of a text after its label, wrapped; a command is not wrapped."""
    text = for_terminal(value)
    if width is None or not text or _COMMAND.match(text):
        return [f"{label}{text}"]
    width = max(width, len(label) + MIN_TEXT_WIDTH)
    return _wrap(text, width, initial_indent=label, subsequent_indent=" " * len(label))


class _Column(NamedTuple):
    """The index of a column of a table, and the width in which it is printed."""

    at: int
    width: int


def _aligned(table: Table, width: int | None) -> Iterator[str]:
    """Yield the lines of a table with aligned columns.

    A table that is too wide is printed in parts, one below the other.
    """
    # With a width, long cells are wrapped instead of cut.
    is_cut = width is None and not table.whole
    limit = MAX_CELL_CHARS if is_cut else None
    rows_of_cells = [[_cell_text(cell, limit=limit) for cell in row] for row in table.rows]
    if not rows_of_cells:
        return
    rows = [list(table.header), *rows_of_cells] if table.header else rows_of_cells
    full_widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is None:
        parts = [list(map(_Column, range(len(full_widths)), full_widths))]
    else:
        parts = _parts(table, rows_of_cells, full_widths, width - _COLUMN_GAP)
    alignments = [">" if is_numeric else "<" for is_numeric in numeric_columns(table)]
    for number, columns in enumerate(parts):
        if number:
            yield ""
        for row in rows:
            yield from _row_lines(row, columns, alignments)


def _row_lines(
    row: Sequence[str], columns: Sequence[_Column], alignments: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of some columns of a row; a cell that is too wide is wrapped."""
    wrapped_cells = []
    for column in columns:
        cell = row[column.at]
        if len(cell) <= column.width:
            wrapped_cells.append([cell])
        else:
            wrapped_cells.append(_wrapped_cell(cell, column.width))
    for line in zip_longest(*wrapped_cells, fillvalue=""):
        padded_cells = [
            f"{cell:{alignments[column.at]}{column.width}}"
            for column, cell in zip(columns, line, strict=True)
        ]
        text = (" " * _COLUMN_GAP).join(padded_cells)
        yield f"  {text}".rstrip()


def _wrapped_cell(cell: str, width: int) -> list[str]:
    """Return the lines of a cell; a path is wrapped after its slashes.

    >>> _wrapped_cell("home/.claude/projects/work/memory", 16)
    ['home/.claude/', 'projects/work/', 'memory']
    """
    if "/" not in cell or " " in cell:
        return _wrap(cell, width)
    lines = [""]
    for name in re.findall("[^/]*/|[^/]+", cell):
        if len(lines[-1]) + len(name) <= width:
            lines[-1] += name
        else:
            lines += _wrap(name, width)
    return [line for line in lines if line]


def _parts(
    table: Table, rows: Sequence[Sequence[str]], full_widths: Sequence[int], width: int
) -> list[list[_Column]]:
    """Split a table that is too wide into parts that are printed one below the other.

    Return the columns of each part. Each part begins with the first column of the table.

    Parameters
    ----------
    table : Table
        The table.
    rows : sequence of sequence of str
        Its cells as text, without the header.
    full_widths : sequence of int
        The width of each column in which no cell is wrapped.
    width : int
        The width of the terminal without the indentation of the table.
    """
    min_widths = [_minimum_width(table, rows, at, width // 2) for at in range(len(full_widths))]
    parts: list[list[int]] = [[0]]
    for at in range(1, len(full_widths)):
        widened = [*parts[-1], at]
        needed = sum(min_widths[column] for column in widened) + _gaps(widened)
        has_more_than_first = len(parts[-1]) > 1
        if has_more_than_first and needed > width:
            parts.append([0])
        parts[-1].append(at)
    return [_fitted_columns(part, min_widths, full_widths, width) for part in parts]


def _gaps(columns: Sequence[int]) -> int:
    """Return the number of spaces between some columns."""
    return _COLUMN_GAP * (len(columns) - 1)


def _fitted_columns(
    part: list[int], min_widths: Sequence[int], full_widths: Sequence[int], width: int
) -> list[_Column]:
    """Return the columns of a part with their widths, which share the spare room evenly."""
    widths = {at: min_widths[at] for at in part}
    spare = width - sum(widths.values()) - _gaps(part)
    while spare > 0:
        too_narrow = [at for at in part if widths[at] < full_widths[at]]
        if not too_narrow:
            break
        for at in too_narrow[:spare]:
            widths[at] += 1
        spare -= len(too_narrow)
    return [_Column(at=at, width=column_width) for at, column_width in widths.items()]


def _minimum_width(table: Table, rows: Sequence[Sequence[str]], at: int, longest_word: int) -> int:
    """Return the minimum width of a column.

    Numbers are not wrapped. Longer texts are wrapped to at least `MIN_TEXT_WIDTH` characters. Words
    are wrapped only if they have more than `longest_word` characters.
    """
    column = [row[at] for row in rows]
    needed = max(map(len, column))
    if not numeric_columns(table)[at]:
        needed = min(needed, MIN_TEXT_WIDTH)
    words = []
    if table.header:
        words += table.header[at].split()
    for cell in column:
        words += [word for word in cell.split() if len(word) <= longest_word]
    longest = max(map(len, words), default=0)
    return max(needed, longest)


def _html_rows(table: Table) -> str:
    """Return the rows of a table as HTML with the alignment of each cell."""
    styles = [
        "text-align:right" if is_numeric else "text-align:left"
        for is_numeric in numeric_columns(table)
    ]
    rows = [_html_row("td", row, styles) for row in table.rows]
    if table.header:
        rows.insert(0, _html_row("th", table.header, styles))
    return "".join(rows)


def _html_row(tag: str, row: Sequence[Cell], styles: Sequence[str]) -> str:
    """Return a row of a table as HTML, each cell in the element `tag`."""
    cells = [_html_cell(tag, cell, style) for cell, style in zip(row, styles, strict=True)]
    return f"<tr>{''.join(cells)}</tr>"


def _html_cell(tag: str, cell: Cell, style: str) -> str:
    """Return a cell as HTML; one short word with hyphens, such as a date, is not wrapped."""
    if isinstance(cell, str) and _HYPHENATED_WORD.fullmatch(cell):
        style += ";white-space:nowrap"
    return f"<{tag} style='{style}'>{_escaped(cell)}</{tag}>"


def _cell_text(cell: Cell, *, limit: int | None) -> str:
    """Return a cell as text for a terminal, cut to `limit` characters; None for no limit."""
    if isinstance(cell, int):
        return f"{cell:,}"
    if limit is None:
        return for_terminal(cell)
    text = for_terminal(cell[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _escaped(cell: Cell, limit: int = MAX_CELL_CHARS * 4) -> str:
    """Return the text of a cell, cut and escaped for HTML, with its indentation."""
    text = _cell_text(cell, limit=limit)
    unindented = text.lstrip(" ")
    # An em space is about as wide as two spaces of a terminal.
    indentation = "&emsp;" * ((len(text) - len(unindented)) // 2)
    return f"{indentation}{html.escape(unindented)}"
