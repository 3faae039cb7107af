"""How commands print: as wide as a terminal, plain for a pipe; and what they are at meanwhile."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.text import DisplayMixin, TextPage, as_text, fitted_line, for_terminal, json_values

if TYPE_CHECKING:
    import pandas as pd

    from memlab.sources.base import Source

JSON: Final = "memlab.json"
"""By what a context knows that ``--json`` was given."""
NARROWEST: Final = 60
"""Columns down to which output is laid out; what is narrower breaks its lines itself."""
PATIENCE: Final = 1.0
"""Seconds before it is said what a command is at."""
EVERY: Final = 0.5

_COLOURS: Final = {">": "green", "~": "yellow", "WARN": "yellow", "FAIL": "red"}
"""Of rows, by the mark that they begin with, as in charts; bold yellow cannot be read on white."""
_MARK: Final = re.compile(r" *([>~](?= \d)|(?:WARN|FAIL)\b)")


def wants_json() -> bool:
    """Return whether it is a script that the command answers."""
    return bool(click.get_current_context().meta.get(JSON))


def print_json(value: Any) -> None:
    """Print a result, a mapping or a list as JSON; times in ISO 8601."""
    if isinstance(value, DisplayMixin):
        print_text(value.to_json())
    else:
        print_text(json.dumps(json_values(value), indent=2, allow_nan=False))


def print_text(text: str) -> None:
    """Print a text as it is, such as JSON or CSV."""
    clear_progress()
    click.echo(text.removesuffix("\n"))


def print_records(table: "pd.DataFrame") -> None:
    """Print the rows of a table as JSON; times in ISO 8601."""
    print_text(table.to_json(orient="records", date_format="iso", indent=1))


def print_lines(*parts: str | TextPage | DisplayMixin) -> None:
    """Print lines and pages that may hold a store's own text."""
    clear_progress()
    width = terminal_width()
    for part in parts:
        if isinstance(part, str):
            line = for_terminal(part)
            click.echo(line if width is None else "\n".join(fitted_line(line, width)))
        else:
            text = as_text(part.sheet() if isinstance(part, DisplayMixin) else part, width)
            click.echo(text if width is None else _with_weight(text))


def _with_weight(page: str) -> str:
    """Return a page with its title and its marked rows standing out, where that is wanted."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return page
    lines = page.split("\n")
    is_title = True
    for number, line in enumerate(lines):
        mark = _MARK.match(line)
        is_title = is_title and line[:1] not in {"", " "}
        if mark or is_title:
            colour = _COLOURS[mark[1]] if mark else None
            lines[number] = click.style(line, fg=colour, bold=colour != "yellow" or None)
    return "\n".join(lines)


def write_picture(drawn: Any, file: Path, source: "Source") -> None:
    """Write a chart of a store as SVG where its file ends so, else as PNG."""
    from memlab.files import limit_like, write_whole

    picture = drawn.svg() if file.suffix == ".svg" else drawn.png(dpi=144)
    write_whole(file, picture, limit=limit_like(source.permissions_template))


def print_result(found: Any, *also: str, is_example: bool = False, **more: Any) -> None:
    """Print what a command found, what to say besides, what to run next; `more` is for a script."""
    if wants_json():
        print_json(more | found.to_dict() if more else found)
        return
    below = [*also, *found.next_steps()]
    if is_example:
        name = click.get_current_context().info_name
        below = [f"this is the bundled example; next: memlab {name} STORE with a store of yours"]
    print_lines(found, *([""] if below else []), *below)


def fail_if(found: bool) -> None:
    """End the command with the exit code of a finding, where there is one."""
    if found:
        click.get_current_context().exit(1)


def terminal_width() -> int | None:
    """Return the columns of the terminal that is printed on; None where it is none."""
    if not sys.stdout.isatty():
        return None
    return max(NARROWEST, shutil.get_terminal_size().columns)


class Working(Thread):
    """A line that says what is being done, once that takes long."""

    def __init__(self, doing: str) -> None:
        super().__init__(daemon=True)
        self.doing = doing
        self.done = Event()

    def run(self) -> None:
        """Write the line again and again."""
        began = time.monotonic()
        width = 0
        wait = PATIENCE
        while not self.done.wait(wait):
            line = f"{self.doing} … {time.monotonic() - began:.0f} s"
            sys.stderr.write(f"\r{line:<{width}}")
            sys.stderr.flush()
            width = max(width, len(line))
            wait = EVERY
        sys.stderr.write(f"\r{'':<{width}}\r" if width else "")
        sys.stderr.flush()


_running: list[Working] = []
"""What works now: one, or none."""


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Say what is being done while the block takes long; nothing where nobody watches."""
    if sys.stderr.isatty():
        _running.append(Working(doing))
        _running[-1].start()
    try:
        yield
    finally:
        clear_progress()


def show_progress(what: str) -> None:
    """Change what is said."""
    for one in _running:
        one.doing = what


def progress_callback(what: str) -> Callable[[str], None]:
    """Say what is done, and return what says after each step how far that is."""
    show_progress(what)
    return lambda step: show_progress(f"{what}: {step}")


def clear_progress() -> None:
    """Take the line away, because something is printed now."""
    while _running:
        one = _running.pop()
        one.done.set()
        one.join()


@contextmanager
def bar(
    what: str, unit: str = " stores", *, scale: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show how much is done and how much a second, on a terminal alone."""
    from tqdm import tqdm

    clear_progress()
    with tqdm(desc=what, unit=unit, unit_scale=scale, leave=False, disable=None) as shown:

        def progress(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield progress
