"""What the commands on many stores take, who does the work, and how they print."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memlab.cli.options import FILE, NUMBER, Number, json_option
from memlab.cli.output import bar, fail_if, print_lines, print_text
from memlab.text import Cell, Sheet, Table, as_text, for_terminal

if TYPE_CHECKING:
    import pandas as pd

    from memlab.fleet.task import Runner

Command = Callable[..., Any]
Columns = Mapping[str, str | Callable[[Any], str | None]]
"""By what a column is headed, the field that stands in it, or what makes its cell of a row."""

Page = Callable[[], Sequence[str | Sheet]]

NARROWEST: Final = 16
"""Characters of a store's name that are shown however narrow the terminal is."""

NAMES = click.argument("names", nargs=-1, required=True, metavar="NAMES...")
_KEPT: Final = (
    click.option(
        "--results",
        "out",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Keep results as they come; the same command again does what is missing.",
    ),
    click.option("--fresh", is_flag=True, help="Throw away what FOLDER holds, and begin anew."),
)
_WHO: Final = (
    click.option(
        "--processes",
        type=Number(1),
        help="Processes on this machine; by default one for each processor.",
    ),
    click.option(
        "--scheduler", metavar="ADDRESS", help="A Dask scheduler, such as tcp://HOST:8786."
    ),
    click.option(
        "--scheduler-file", type=FILE, help="The file that dask scheduler wrote, instead."
    ),
)
_PRINTED: Final = (
    click.option(
        "--limit",
        type=NUMBER,
        default=20,
        show_default=True,
        help="Stores that the table lists.",
    ),
    click.option("--csv", "as_csv", is_flag=True, help="Print every store as CSV."),
    json_option,
)


@dataclass
class Job:
    """Who is to do the work of a command, where results are kept, and how they are printed."""

    processes: int | None
    scheduler: str | None
    scheduler_file: Path | None
    out: Path | None = None
    fresh: bool = False
    limit: int = 20
    as_csv: bool = False
    as_json: bool = False

    @contextmanager
    def runner(self) -> Iterator["Runner | None"]:
        """Hand out who does the work; None where nobody was asked for."""
        from memlab.fleet import Processes, Serial, cluster_at

        asked = ("processes", "scheduler", "scheduler_file")
        given = [f"--{n.replace('_', '-')}" for n in asked if getattr(self, n) is not None]
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(given)} exclude each other; give one")
        if self.processes is not None:
            yield Serial() if self.processes == 1 else Processes(self.processes)
        elif given:
            with cluster_at(self.scheduler, scheduler_file=self.scheduler_file) as cluster:
                yield cluster
        else:
            yield None

    @contextmanager
    def working(self) -> Iterator[Callable[..., Any]]:
        """Hand out what makes a call: by those who do the work, with a bar that has a name."""
        with self.runner() as runner:

            def work(what: str, call: Callable[..., Any], *given: Any, **settings: Any) -> Any:
                with bar(what) as progress:
                    return call(*given, runner=runner, progress=progress, **settings)

            yield work

    def kept(self, *below: str, option: str = "--results FOLDER") -> Path | None:
        """Return the folder of results; where that was asked for it is emptied, or those in it."""
        if self.fresh and self.out is None:
            raise click.UsageError(f"--fresh needs {option}")
        if self.fresh and self.out is not None:
            from memlab.fleet.sweep import start_over

            for folder in [self.out / each for each in below] or [self.out]:
                start_over(folder)
        return self.out

    def show(self, table: "pd.DataFrame", page: Page, *, fails: bool = False) -> None:
        """Print a table whole for a script, where that was asked for, else as a page of lines.

        The command ends with 1 for an error of a store, and where something else fails.
        """
        if self.as_json:
            print_text(table.to_json(orient="records", date_format="iso", indent=1))
        elif self.as_csv:
            print_text(table.to_csv(index=False))
        else:
            print_lines(*page())
        fail_if(fails or bool(table["error"].notna().any()))

    def sheet(
        self,
        title: str,
        table: "pd.DataFrame",
        columns: Columns,
        *,
        most: str,
        facts: Sequence[tuple[str, str]] = (),
    ) -> Sheet:
        """Return the stores that have most of something, and those that have an error."""
        below = common_folder(table["store"].tolist())
        table = table.sort_values(most, ascending=False, kind="stable")
        good, bad = table[table["error"].isna()], table[table["error"].notna()]
        listed, left_out = good.head(self.limit), bad.head(self.limit)
        whole = listed.astype(object).where(listed.notna(), None)
        cells = [tuple(_cell(row, of) for of in columns.values()) for row in whole.itertuples()]
        beside = as_text(Sheet("", (), [Table("", tuple(columns), cells)])).splitlines()
        taken = max(map(len, beside), default=0)
        width = max(NARROWEST, shutil.get_terminal_size().columns - taken - 2)
        named, unread = (
            [in_width(name.removeprefix(below), width) for name in each["store"]]
            for each in (listed, left_out)
        )
        more = len(good) - len(listed)
        remark = f"{more:,} more; --limit, --csv or --json shows them" if more else ""
        rows = [(*each, name) for each, name in zip(cells, named, strict=True)]
        tables = [Table("", (*columns, "store"), rows, remark, whole=True)]
        if len(bad):
            more = len(bad) - len(left_out)
            wrong = list(zip(unread, left_out["error"], strict=True))
            tables.append(
                Table("left out", (), wrong, f"{more:,} more" if more else "", whole=True)
            )
        where = [("below", below)] if below else []
        return Sheet(title, [*where, *facts], tables)


def _cell(row: Any, of: str | Callable[[Any], str | None]) -> Cell:
    """Return a cell of a row: numbers whole, and a dash for what is missing."""
    value = getattr(row, of) if isinstance(of, str) else of(row)
    if value is None:
        return "–"
    return value if isinstance(value, str) else int(value)


def job_options(*, keeps: bool = True, prints: bool = True) -> Callable[[Command], Command]:
    """Return what adds the options of a job to a command, which is given it as its ``job``."""
    options = [*(_KEPT if keeps else ()), *_WHO, *(_PRINTED if prints else ())]

    def add(command: Command) -> Command:
        @wraps(command)
        def with_job(**given: Any) -> Any:
            names = [each.name for each in fields(Job) if each.name in given]
            return command(job=Job(**{name: given.pop(name) for name in names}), **given)

        for option in reversed(options):
            with_job = option(with_job)
        return with_job

    return add


def common_folder(names: Sequence[str]) -> str:
    """Return the folder that all names begin with, its slash included; empty where there is none.

    Examples
    --------
    >>> common_folder(["/srv/a/memory.db", "/srv/b/memory.db"])
    '/srv/'
    """
    if len(names) < 2 or not all(name.startswith("/") for name in names):
        return ""
    folder = os.path.commonpath([os.path.dirname(name) for name in names])  # noqa: PTH120 - text
    return "" if folder == "/" else f"{folder}/"


def in_width(name: str, width: int) -> str:
    """Return a name cut in its middle, for both ends tell stores apart.

    Examples
    --------
    >>> in_width("tenants/00017/agents/a/memory.db", 20)
    'tenants/0…/memory.db'
    """
    name = for_terminal(name)
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[-(width - 1 - head) :]}"
