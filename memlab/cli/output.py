"""How commands print: for the width of a terminal, and plain for a pipe."""

import dataclasses
import json
import shutil
import sys
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final

import click

from memlab.cli.progress import quiet
from memlab.items import Size
from memlab.text import Sheet, Shown, as_text, for_terminal

NARROWEST: Final = 60
"""Columns down to which output is laid out; what is narrower breaks its lines itself."""


def print_json(value: Any) -> None:
    """Print a dataclass, a mapping or a list as JSON; times in ISO 8601."""
    print_text(json.dumps(_plain(value), indent=2, allow_nan=False))


def print_text(text: str) -> None:
    """Print a text as it is, such as JSON or CSV."""
    quiet()
    click.echo(text.removesuffix("\n"))


def print_lines(*parts: str | Sheet | Shown) -> None:
    """Print lines and pages that may hold a store's own text."""
    quiet()
    width = terminal_width()
    for part in parts:
        if not isinstance(part, str):
            from memlab.cli.layout import fitted_sheet

            sheet = part.sheet() if isinstance(part, Shown) else part
            click.echo(as_text(sheet) if width is None else fitted_sheet(sheet, width))
            continue
        line = for_terminal(part)
        if width is None or len(line) <= width:
            click.echo(line)
            continue
        from memlab.cli.layout import fitted_line

        click.echo("\n".join(fitted_line(line, width)))


def terminal_width() -> int | None:
    """Return the columns of the terminal that is printed on; None where it is none."""
    if not sys.stdout.isatty():
        return None
    return max(NARROWEST, shutil.get_terminal_size().columns)


def share(part: float, whole: float) -> str:
    """Return a part in per cent of the whole, a dash where there is no whole."""
    return f"{part / whole:.1%}" if whole else "–"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Size):
        return value._asdict()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, PurePath) else value
