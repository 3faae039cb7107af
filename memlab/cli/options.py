"""What commands take: a store, the clock, ``--json``."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from memlab.arguments import share
from memlab.report.bundled import store_path

Command = TypeVar("Command", bound=Callable[..., Any])


class Store(click.Path):
    """A path, or the URL of a server, which is kept out of whatever takes paths apart."""

    name = "store"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path, or a source whose text is its name without a password."""
        if isinstance(value, str) and "://" in value and not value.startswith("file:"):
            from memlab.sources.opening import open_source

            return open_source(value)
        found = super().convert(value, param, ctx)
        if isinstance(found, Path) and _means_more(found) and found.exists():
            return found.absolute()  # what SQLite takes for more than a name is one here
        return found


def _means_more(path: Path) -> bool:
    """Whether SQLite would take a file's name for something else."""
    return str(path) == ":memory:" or str(path).startswith("file:")


class StoreFile(Store):
    """A path alone: what a command does is only done to a file."""

    takes_folders = False

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; a server or a folder is refused, with what to use instead."""
        found = super().convert(value, param, ctx)
        place = "a folder" if isinstance(found, Path) else "on a server"
        if not isinstance(found, Path) or (names_a_folder(found) and not self.takes_folders):
            self.fail(
                f"{found} is {place}, and this is done with one SQLite file: use memlab show, "
                "size, compare or doctor, or memlab lab",
                param,
                ctx,
            )
        return found


def names_a_folder(path: Path) -> bool:
    """Whether a path, with or without a scheme, names a store that is a folder."""
    if not path.is_dir() and ":" not in str(path):
        return False
    from memlab.sources.folder_source import FolderSource
    from memlab.sources.opening import open_source

    return isinstance(open_source(path), FolderSource)


class StoreOnDisk(StoreFile):
    """A path of a file or a folder."""

    takes_folders = True


STORE_ON_DISK = StoreOnDisk(path_type=Path, readable=False)
STORE_FILE = StoreFile(path_type=Path, readable=False)
STORE = Store(path_type=Path, readable=False)
"""Whether it can be read is for the reader to say, with what to do."""

FILE = click.Path(path_type=Path, dir_okay=False)
"""A file that a command writes, or reads."""


class Share(click.ParamType[float]):
    """A share between 0 and 1; a percentage is asked about."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share, or end the command with what is wrong with it."""
        try:
            return share((param and param.name) or "value", float(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


SHARE = Share()


def json_option(command: Command) -> Command:
    """Add ``--json`` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for a script.")(command)


def store_or_bundled(store: Path | None) -> Path:
    """Return the store named on the command line, or the bundled two years."""
    return store or store_path("two_years")


def moment_for(store: Path | None, last: datetime | None) -> datetime:
    """Return now; for the bundled store, which has an end, the moment it was last written."""
    return datetime.now(UTC) if store is not None or last is None else last
