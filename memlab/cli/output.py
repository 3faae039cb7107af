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

JSON: Final = "memlab.json"
"""Key in click's ``Context.meta`` that is true if ``--json`` was given."""
ARGUMENTS: Final = "memlab.arguments"
"""Key in click's ``Context.meta`` of the words of the command line."""
NARROWEST: Final = 60
"""Smallest layout width in columns; a narrower terminal wraps the lines itself."""
PATIENCE: Final = 1.0
"""Seconds before the progress line appears."""
EVERY: Final = 0.5
"""Seconds between updates of the progress line."""

_NEEDS_FOLDER: Final = re.compile(r"-|[^\s/]*:[^\s]")
"""A relative path that would be read as an option, or as a scheme and a path."""
_COLOURS: Final = {">": "green", "~": "yellow", "WARN": "yellow", "FAIL": "red"}
"""Colours of rows by their first mark, as in charts; yellow is not bold, to be legible on white."""
_MARK: Final = re.compile(r" *([>~](?= \d)|(?:WARN|FAIL)\b)")
_CHECK: Final = re.compile(r" *(?:WARN|FAIL) \S+ +")
"""The beginning of a check of ``doctor``; further lines of its summary are indented as far."""
_ALERT: Final = re.compile(r" {2}[\d,]+ tokens? [a-z][a-z, ]*? {2,}")
"""An alert of ``show`` up to its description."""
_DELETION: Final = re.compile(r"Deletes | {2}(?:deletes|deleted|would be deleted) {2,}")
_COMMAND: Final = re.compile(r"( *(?:(?:next|undo): )?|  undo +)(memlab .*?)((?: {4}.*)?)")
"""A line with a command: what stands before it, the command, and a remark after four spaces."""


def wants_json() -> bool:
    """Return whether ``--json`` was given."""
    return bool(click.get_current_context().meta.get(JSON))


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

    Paths are printed as :func:`as_given` returns them, except in the cells of tables.
    """
    clear_progress()
    width = terminal_width()
    for part in parts:
        if isinstance(part, str):
            _print_line(as_given(part), width)
        else:
            page = part.sheet() if isinstance(part, DisplayMixin) else part
            text = as_text(_with_paths_as_given(page), width)
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


def as_given(text: str) -> str:
    """Return a text with paths below the working folder relative to it, as a person types them.

    Stores and results hold absolute paths, because a plan or an archive is opened from other
    folders too. The packages that build messages and pages do not know the command line, so the
    paths are replaced in the finished text. Only text for a person is changed, and not JSON, CSV,
    saved files and the cells of tables with text of memories. A relative path is valid in the
    working folder, where the printed commands are typed next.

    Paths in a folder that the command line names in absolute form are unchanged.
    """
    context = click.get_current_context(silent=True)
    arguments = () if context is None else context.meta.get(ARGUMENTS, ())
    folder = str(Path.cwd())
    if not arguments or folder == os.sep:
        return text
    absolute_parents = [str(Path(word).parent) for word in arguments if Path(word).is_absolute()]

    def relative(match: re.Match[str]) -> str:
        """Return the text that replaces the working folder at the beginning of a path."""
        if any(text.startswith(parent, match.start()) for parent in absolute_parents):
            return match[0]
        if not match[0].endswith("/"):
            return "."
        # a name that looks like a scheme or an option needs its folder
        return "./" if _NEEDS_FOLDER.match(text, match.end()) else ""

    return re.sub(rf"(?<![\w./-]){re.escape(folder)}(?:/|(?![\w./-]))", relative, text)


def _with_paths_as_given(page: TextPage) -> TextPage:
    """Return a page with paths as they were given; cells only in tables of paths."""
    return TextPage(
        as_given(page.title),
        [(as_given(name), as_given(value)) for name, value in page.facts],
        [
            table._replace(
                heading=as_given(table.heading),
                remark=as_given(table.remark),
                rows=_rows_as_given(table),
            )
            for table in page.tables
        ],
    )


def _rows_as_given(table: Table) -> Sequence[tuple[Cell, ...]]:
    """Return the rows of a table; in a table of paths, with the paths as they were given."""
    if not table.has_paths:
        return table.rows
    return [
        tuple(as_given(cell) if isinstance(cell, str) else cell for cell in row)
        for row in table.rows
    ]


def _styled(page: str, *, is_page: bool = True) -> str:
    """Return a page with colour, unless colour is off.

    The title is bold. Marked rows, warnings, alerts, deletions and commands are in colour; the
    further lines of a warning or an alert keep its colour.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return page
    lines = page.split("\n")
    is_title = is_page
    continued = ("", "")
    for number, line in enumerate(lines):
        if line[:1] in {"", " "}:
            is_title = False
        indent, colour = continued
        if not (indent and line.startswith(indent)):
            continued = ("", "")
            colour = _colour_of(line)
            start = _CHECK.match(line) or _ALERT.match(line)
            if start:
                continued = (" " * len(start[0]), colour)
        command = _COMMAND.fullmatch(line)
        if command:
            before, command_text, remark = command.groups()
            lines[number] = f"{before}{click.style(command_text, fg='cyan')}{remark}"
        elif colour or is_title:
            is_bold = is_title or colour in {"green", "red"}
            lines[number] = click.style(line, fg=colour or None, bold=is_bold or None)
    return "\n".join(lines)


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
    from memlab.files import limit_like, write_whole

    picture = chart.svg() if file.suffix == ".svg" else chart.png(dpi=144)
    write_whole(file, picture, limit=limit_like(source.permissions_template))


def print_result(result: Any, *lines: str, is_example: bool = False, **fields: Any) -> None:
    """Print the result of a command, more lines, and the next steps.

    `fields` are printed only with ``--json``, before those of the result. `is_example` replaces the
    lines and the next steps by a hint to name a store.
    """
    if wants_json():
        print_json(fields | result.to_dict() if fields else result)
        return
    below = [*lines, *result.next_steps()]
    if is_example:
        name = click.get_current_context().info_name
        below = [f"this is the bundled example; next: memlab {name} STORE with a store of yours"]
    if below:
        below = ["", *below]
    print_lines(result, *below)


def fail_if(is_finding: bool) -> None:
    """End the command with exit code 1 if there is a finding."""
    if is_finding:
        click.get_current_context().exit(1)


def terminal_width() -> int | None:
    """Return the width in columns of the terminal on stdout; None if stdout is no terminal."""
    if not sys.stdout.isatty():
        return None
    return max(NARROWEST, shutil.get_terminal_size().columns)


class Working(Thread):
    """A thread that writes a progress line to stderr, after the first second."""

    def __init__(self, doing: str) -> None:
        super().__init__(daemon=True)
        self.doing = doing
        self.done = Event()

    def run(self) -> None:
        """Update the line until the work is done, then clear it."""
        began = time.monotonic()
        width = 0
        wait = PATIENCE
        while not self.done.wait(wait):
            line = f"{self.doing} … {time.monotonic() - began:.0f} s"
            sys.stderr.write(f"\r{line:<{width}}")
            sys.stderr.flush()
            width = max(width, len(line))
            wait = EVERY
        if width:
            sys.stderr.write(f"\r{'':<{width}}\r")
        sys.stderr.flush()


_running: list[Working] = []
"""The running progress thread, if there is one."""


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show a progress line while the block runs, if stderr is a terminal."""
    if sys.stderr.isatty():
        _running.append(Working(doing))
        _running[-1].start()
    try:
        yield
    finally:
        clear_progress()


def show_progress(text: str) -> None:
    """Change the text of the progress line."""
    for thread in _running:
        thread.doing = text


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

        def progress(done: int, total: int) -> None:
            tqdm_bar.total = total
            tqdm_bar.update(done - tqdm_bar.n)

        yield progress
