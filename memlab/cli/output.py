"""Printing of commands' results, for a terminal, a pipe or a script, and progress on stderr."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.text import (
    Cell,
    DisplayMixin,
    Table,
    TextPage,
    as_text,
    fitted_line,
    for_terminal,
    json_values,
)

if TYPE_CHECKING:
    import pandas as pd

    from memlab.sources.base import Source

JSON_KEY: Final = "memlab.json"
"""Key in click's ``Context.meta`` that is true if ``--json`` was given."""
ARGUMENTS_KEY: Final = "memlab.arguments"
"""Key in click's ``Context.meta`` of the arguments of the command line."""
MIN_WIDTH: Final = 60
"""Smallest layout width in columns; a narrower terminal wraps the lines itself."""
PROGRESS_DELAY: Final = 1.0
"""Seconds before the progress line appears."""
PROGRESS_INTERVAL: Final = 0.5
"""Seconds between updates of the progress line."""

_LOOKS_LIKE_OPTION_OR_URL: Final = re.compile(r"-|[^\s/]*:[^\s]")
"""A relative path that would be parsed as an option, or as a scheme and a path."""
_COLOURS: Final = {">": "green", "~": "yellow", "WARN": "yellow", "FAIL": "red"}
"""Colours of rows by their first mark, as in charts; yellow is not bold, to be legible on white."""
_MARK: Final = re.compile(r" *([>~](?= \d)|(?:WARN|FAIL)\b)")
_CHECK: Final = re.compile(r" *(?:WARN|FAIL) \S+ +")
"""The beginning of a check of ``doctor``; further lines of its summary are indented as far."""
_ALERT: Final = re.compile(r" {2}[\d,]+(?: of [\d,]+)? tokens? [a-z][a-z, ]*? {2,}")
"""An alert of ``show`` up to its description."""
_DELETION: Final = re.compile(r"Deletes | {2}(?:deletes|deleted|would be deleted) {2,}")
_COMMAND: Final = re.compile(r"( *(?:(?:next|undo): )?|  undo +)(memlab .*?)((?: {4}.*)?)")
"""A line with a command: what stands before it, the command, and a remark after four spaces."""


def wants_json() -> bool:
    """Return True if ``--json`` was given."""
    return bool(click.get_current_context().meta.get(JSON_KEY))


def print_json(value: Any) -> None:
    """Print a result, a mapping or a list as JSON, with times in ISO 8601."""
    if isinstance(value, DisplayMixin):
        print_text(value.to_json())
    else:
        print_text(json.dumps(json_values(value), indent=2, allow_nan=False))


def print_text(text: str) -> None:
    """Print a text unchanged, such as JSON or CSV."""
    clear_progress()
    click.echo(text.removesuffix("\n"))


def print_records(table: "pd.DataFrame") -> None:
    """Print the rows of a table as JSON, with times in ISO 8601."""
    print_text(table.to_json(orient="records", date_format="iso", indent=1))


def print_lines(*parts: str | TextPage | DisplayMixin) -> None:
    """Print lines and pages, which may contain text from a store.

    Paths are shortened by :func:`shorten_paths`, except in the cells of tables.
    """
    clear_progress()
    width = terminal_width()
    for part in parts:
        if isinstance(part, str):
            _print_line(shorten_paths(part), width)
        else:
            page = part.sheet() if isinstance(part, DisplayMixin) else part
            text = as_text(_page_with_short_paths(page), width)
            click.echo(text if width is None else _styled(text))


def print_unchanged(lines: Iterable[str]) -> None:
    """Print lines of a file, whose paths must stay as the file has them."""
    clear_progress()
    width = terminal_width()
    for line in lines:
        _print_line(line, width)


def _print_line(line: str, width: int | None) -> None:
    """Print a line without control characters; on a terminal fit it to the width, in colour."""
    text = for_terminal(line)
    if width is not None:
        text = _styled("\n".join(fitted_line(text, width)), is_page=False)
    click.echo(text)


def shorten_paths(text: str) -> str:
    """Make absolute paths in a text relative to the working folder, as a person types them.

    Stores and results hold absolute paths, because a plan or an archive is opened from other
    folders too. The packages that build messages and pages do not know the command line, so the
    paths are replaced in the finished text. JSON, CSV, saved files and the cells of tables with
    text of memories keep their paths. A relative path is valid in the working folder, where the
    printed commands are typed next.

    Paths in a folder that the command line names in absolute form are unchanged.
    """
    context = click.get_current_context(silent=True)
    arguments = () if context is None else context.meta.get(ARGUMENTS_KEY, ())
    folder = str(Path.cwd())
    if not arguments or folder == os.sep:
        return text
    given_paths = map(Path, arguments)
    absolute_parents = [str(path.parent) for path in given_paths if path.is_absolute()]

    def relative(match: re.Match[str]) -> str:
        """Return the text that replaces the working folder at the beginning of a path."""
        if any(text.startswith(parent, match.start()) for parent in absolute_parents):
            return match[0]
        if not match[0].endswith("/"):
            return "."
        # a name that looks like a scheme or an option needs its folder
        return "./" if _LOOKS_LIKE_OPTION_OR_URL.match(text, match.end()) else ""

    return re.sub(rf"(?<![\w./-]){re.escape(folder)}(?:/|(?![\w./-]))", relative, text)


def _page_with_short_paths(page: TextPage) -> TextPage:
    """Return a page with shortened paths; cells are changed only in tables of paths."""
    return TextPage(
        shorten_paths(page.title),
        [(shorten_paths(name), shorten_paths(value)) for name, value in page.facts],
        [
            table._replace(
                heading=shorten_paths(table.heading),
                remark=shorten_paths(table.remark),
                rows=_rows_with_short_paths(table),
            )
            for table in page.tables
        ],
    )


def _rows_with_short_paths(table: Table) -> Sequence[tuple[Cell, ...]]:
    """Return the rows of a table; shorten the paths in them if it is a table of paths."""
    if not table.has_paths:
        return table.rows
    return [tuple(map(_shorten_cell, row)) for row in table.rows]


def _shorten_cell(cell: Cell) -> Cell:
    """Return a cell with shortened paths if it is text."""
    return shorten_paths(cell) if isinstance(cell, str) else cell


def _styled(page: str, *, is_page: bool = True) -> str:
    """Return a page with a bold title, and with colour unless colour is off.

    Marked rows, warnings, alerts, deletions and commands are in colour. The further lines of a
    warning or an alert have its colour. Lines that are no page have no title.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return page
    styled_lines = []
    is_title = is_page
    continuation_indent = ""
    colour = ""
    for line in page.split("\n"):
        if line[:1] in {"", " "}:
            is_title = False
        continues_last_line = continuation_indent and line.startswith(continuation_indent)
        if not continues_last_line:
            colour = _colour_of(line)
            continuation_indent = _continuation_indent(line)
        styled_lines.append(_styled_line(line, colour, is_title=is_title))
    return "\n".join(styled_lines)


def _continuation_indent(line: str) -> str:
    """Return the indentation of further lines of a warning or an alert; empty for other lines."""
    start = _CHECK.match(line) or _ALERT.match(line)
    return " " * len(start[0]) if start else ""


def _styled_line(line: str, colour: str, *, is_title: bool) -> str:
    """Return a line in a colour, and in bold if it is a title.

    Of a line with a command, only the command is coloured.
    """
    command = _COMMAND.fullmatch(line)
    if command:
        before, command_text, remark = command.groups()
        return f"{before}{click.style(command_text, fg='cyan')}{remark}"
    if not colour and not is_title:
        return line
    is_bold = is_title or colour in {"green", "red"}
    # For bold=False click would write an escape code; for None it writes none.
    return click.style(line, fg=colour or None, bold=True if is_bold else None)


def _colour_of(line: str) -> str:
    """Return the colour of a line by its beginning; empty for none."""
    mark = _MARK.match(line)
    if mark:
        return _COLOURS[mark[1]]
    if _ALERT.match(line):
        return "yellow"
    if _DELETION.match(line):
        return "red"
    return ""


def write_picture(chart: Any, file: Path, source: "Source") -> None:
    """Write a chart to a file: as SVG if its name ends in ``.svg``, else as PNG.

    The file is at most as readable as the store.
    """
    from memlab.files import permissions_like, write_whole

    picture = chart.svg() if file.suffix == ".svg" else chart.png(dpi=144)
    write_whole(file, picture, permissions=permissions_like(source.local_path))


def print_result(result: Any, *lines: str, is_example: bool = False, **fields: Any) -> None:
    """Print the result of a command, more lines, and the next steps.

    `fields` are printed only with ``--json``, before those of the result. `is_example` replaces the
    lines and the next steps by a hint to name a store.
    """
    if wants_json():
        print_json({**fields, **result.to_dict()} if fields else result)
        return
    if is_example:
        name = click.get_current_context().info_name
        below = [f"this is the bundled example; next: memlab {name} STORE with a store of yours"]
    else:
        below = [*lines, *result.next_steps()]
    if below:
        print_lines(result, "", *below)
    else:
        print_lines(result)


def fail_if(is_finding: bool) -> None:
    """End the command with exit code 1 if it found something that fails a check."""
    if is_finding:
        click.get_current_context().exit(1)


def terminal_width() -> int | None:
    """Return the width in columns of the terminal on stdout; None if stdout is no terminal."""
    if not sys.stdout.isatty():
        return None
    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


class ProgressLine(Thread):
    """A thread that writes a progress line to stderr, and begins after `PROGRESS_DELAY`."""

    def __init__(self, text: str) -> None:
        super().__init__(daemon=True)
        self.text = text
        self.done = Event()

    def run(self) -> None:
        """Update the line until the work is done, then clear it."""
        began = time.monotonic()
        width = 0
        wait = PROGRESS_DELAY
        while not self.done.wait(wait):
            line = f"{self.text} … {time.monotonic() - began:.0f} s"
            sys.stderr.write(f"\r{line:<{width}}")
            sys.stderr.flush()
            width = max(width, len(line))
            wait = PROGRESS_INTERVAL
        if width:
            sys.stderr.write(f"\r{'':<{width}}\r")
        sys.stderr.flush()


_running: list[ProgressLine] = []
"""The running progress thread, if there is one."""


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a progress line while the block runs, if stderr is a terminal."""
    if sys.stderr.isatty():
        thread = ProgressLine(text)
        _running.append(thread)
        thread.start()
    try:
        yield
    finally:
        clear_progress()


def show_progress(text: str) -> None:
    """Change the text of the progress line."""
    for thread in _running:
        thread.text = text


def progress_callback(text: str) -> Callable[[str], None]:
    """Change the text of the progress line, and return a callback that adds a step to it."""
    show_progress(text)
    return lambda step: show_progress(f"{text}: {step}")


def clear_progress() -> None:
    """Stop the progress line before something is printed."""
    while _running:
        thread = _running.pop()
        thread.done.set()
        thread.join()


@contextmanager
def bar(
    label: str, unit: str = " stores", *, scale: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal, and yield the callback that updates it.

    The callback takes the finished and the total number of units.
    """
    from tqdm import tqdm

    clear_progress()
    with tqdm(desc=label, unit=unit, unit_scale=scale, leave=False, disable=None) as tqdm_bar:

        def update(done: int, total: int) -> None:
            tqdm_bar.total = total
            tqdm_bar.update(done - tqdm_bar.n)

        yield update
