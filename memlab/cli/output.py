"""How commands print."""

import dataclasses
import json
from datetime import datetime
from pathlib import PurePath
from typing import Any

import click

from memlab.cli.progress import quiet
from memlab.items import Size
from memlab.text import for_terminal


def print_json(value: Any) -> None:
    """Print a dataclass, a mapping or a list as JSON; times in ISO 8601."""
    quiet()
    click.echo(json.dumps(_plain(value), indent=2, allow_nan=False))


def print_lines(*lines: str) -> None:
    """Print lines that may hold a store's own text."""
    quiet()
    for line in lines:
        click.echo(for_terminal(line))


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
