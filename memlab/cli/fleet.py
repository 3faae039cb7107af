"""``memlab fleet``: many stores at once; what reads them, and one review before the change."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

import click

import memlab.fleet
from memlab.cli import options, output
from memlab.cli.policy import SettingsCommand, faults_of, policy_option
from memlab.clock import now_utc
from memlab.files import check_writable
from memlab.lazy import import_extra
from memlab.text import Cell, Table, TextPage, command, counted

if TYPE_CHECKING:
    import pandas as pd

Function = Callable[..., Any]
Columns = Mapping[str, str | Callable[[Any], str | None]]
"""By what a column is headed, the field that stands in it, or what makes its cell of a row."""

NAMES = click.argument("names", nargs=-1, required=True, metavar="NAMES...")
_KEPT: Final = (
    click.option(
        "--results",
        "out",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Keep results as they come; the same command again does what is missing.",
    ),
    options.flag_option("--fresh", help="Throw away what FOLDER holds, and begin anew."),
)
_WHO: Final = (
    click.option(
        "--processes",
        type=options.Number(1),
        help="Processes on this machine; by default one for each processor.",
    ),
    click.option(
        "--scheduler", metavar="ADDRESS", help="A Dask scheduler, such as tcp://HOST:8786."
    ),
    options.file_option("--scheduler-file", help="The file that dask scheduler wrote, instead."),
)
_PRINTED: Final = (
    options.number_option("--limit", default=20, help="Stores that the table lists."),
    options.flag_option("--csv", "as_csv", help="Print every store as CSV."),
    options.json_option,
)


@dataclass
class FleetOptions:
    """Who is to do the work of a command, where results are kept, and how they are printed."""

    processes: int | None
    scheduler: str | None
    scheduler_file: Path | None
    out: Path | None = None
    fresh: bool = False
    limit: int = 20
    as_csv: bool = False

    @contextmanager
    def runner(self) -> Iterator["memlab.fleet.Runner | None"]:
        """Hand out who does the work; None where nobody was asked for."""
        asked = ("processes", "scheduler", "scheduler_file")
        given = [f"--{n.replace('_', '-')}" for n in asked if getattr(self, n) is not None]
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(given)} exclude each other; give one")
        if self.processes is not None:
            alone = self.processes == 1
            yield memlab.fleet.Serial() if alone else memlab.fleet.Processes(self.processes)
        elif given:
            file = self.scheduler_file
            with memlab.fleet.cluster_at(self.scheduler, scheduler_file=file) as cluster:
                yield cluster
        else:
            yield None

    def work(self, what: str, call: Callable[..., Any], *given: Any, **settings: Any) -> Any:
        """Make a call by those who do the work, with a bar that has a name."""
        with self.runner() as runner, output.bar(what) as progress:
            return call(*given, runner=runner, progress=progress, **settings)

    def kept(self, *below: str, option: str = "--results FOLDER") -> Path | None:
        """Return the folder of results; where that was asked for it is emptied, or those in it."""
        if self.fresh and self.out is None:
            raise click.UsageError(f"--fresh needs {option}")
        if self.fresh and self.out is not None:
            from memlab.fleet.sweep import start_over

            for folder in [self.out / each for each in below] or [self.out]:
                start_over(folder)
        return self.out

    def show(
        self,
        title: str,
        table: "pd.DataFrame",
        columns: Columns,
        *steps: str,
        most: "pd.Series[int]",
        facts: Sequence[tuple[str, str]] = (),
        errors: "pd.Series[str] | None" = None,
        fails: bool = False,
    ) -> None:
        """Print a table whole for a script, else some columns, most first; exit 1 for errors."""
        if output.wants_json():
            output.print_records(table)
        elif self.as_csv:
            output.print_text(table.to_csv(index=False))
        else:
            below = common_folder(table["store"].tolist())
            names = table["store"].str.removeprefix(below)
            table = table.assign(store=names, error=table["error"] if errors is None else errors)
            ranked = table.loc[most.sort_values(ascending=False, kind="stable").index]
            good = ranked[ranked["error"].isna()]
            bad = ranked[ranked["error"].notna()]
            whole = good.astype(object).where(good.notna(), None)
            shown = (*columns.values(), "store")
            rows = [tuple(_cell(row, of) for of in shown) for row in whole.itertuples()]
            listed = Table("", (*columns, "store"), rows, whole=True)
            tables = [listed.first(self.limit, "; --limit, --csv or --json shows them")]
            if len(bad):
                wrong = list(zip(bad["store"], bad["error"], strict=True))
                tables.append(Table("left out", (), wrong, whole=True).first(self.limit))
            facts = [*([("below", below)] if below else []), *facts]
            output.print_lines(TextPage(title, facts, tables), *([""] if steps else []), *steps)
        output.fail_if(fails or bool(table["error"].notna().any()))


def _cell(row: Any, of: str | Callable[[Any], str | None]) -> Cell:
    """Return a cell of a row: numbers whole, and a dash for what is missing."""
    value = getattr(row, of) if isinstance(of, str) else of(row)
    if value is None:
        return "–"
    return value if isinstance(value, str) else int(value)


def job_options(*, keeps: bool = True, prints: bool = True) -> Callable[[Function], Function]:
    """Return what adds the options of a job to a command, which is given it as its ``job``."""
    added = [*(_KEPT if keeps else ()), *_WHO, *(_PRINTED if prints else ())]

    def add(function: Function) -> Function:
        @wraps(function)
        def with_job(**given: Any) -> Any:
            names = [each.name for each in fields(FleetOptions) if each.name in given]
            return function(job=FleetOptions(**{name: given.pop(name) for name in names}), **given)

        for option in reversed(added):
            with_job = option(with_job)
        return with_job

    return add


def common_folder(names: Sequence[str]) -> str:
    """Return the folder that all names begin with, its slash included; empty where there is none.

    >>> common_folder(["/srv/a/memory.db", "/srv/b/memory.db"])
    '/srv/'
    """
    if len(names) < 2 or not all(name.startswith("/") for name in names):
        return ""
    folder = os.path.commonpath([os.path.dirname(name) for name in names])  # noqa: PTH120 - text
    return "" if folder == "/" else f"{folder}/"


def _share(part: float, whole: float) -> str:
    """Return a part in per cent of the whole, a dash where there is no whole."""
    return f"{part / whole:.1%}" if whole else "–"


VERDICTS: Final = ("floor-exceeds-budget", "target-exceeds-budget")
"""Those that make the exit code 1: somebody has to choose."""


LOADED: Final[Columns] = {
    "at start": "boot_memories",
    "tokens": "boot_tokens",
    "floor": "floor_tokens",
    "prunable": "prunable",
    "share": lambda row: _share(row.prunable_tokens, row.boot_tokens),
    "written": lambda row: row.last_at and f"{row.last_at:%Y-%m-%d}",
}
FITS: Final = "fits (serves)"
"""The column that there is where there is a budget."""
CAPS: Final[Columns] = {
    "safe": "keep_recent",
    "likely": "likely",
    FITS: lambda row: None if row.fits is None else f"{row.fits:,} ({row.fits_served:.0%})",
    "own/fleet": lambda row: f"{row.own:.0%}/{row.fleet:.0%}",
    "refs": "references",
    "would go": "deletes",
    "tokens": "boot_now",
    "after": "boot_after",
}
APPLIED: Final[Columns] = {
    "deleted": "deleted",
    "at start": "boot_before",
    "after": "boot_after",
    "status": "status",
}
MAINTAINED: Final[Columns] = {
    "deletes": "deleted",
    "status": "status",
    "compact": lambda row: shorten(row.compact or "", 40, placeholder=" …"),
}


@click.group(short_help="Do with many stores what is done with one.")
def fleet() -> None:
    """Look at many stores, size them, and change them after one review.

    NAMES are paths, patterns such as '/srv/agents/**/memory.db', folders, URLs, and @FILE with a
    name on each line; a store that is named twice counts once. A store that cannot be read is a
    line with its error. The exit code is 1 where any store has one, or passes a threshold.
    """


@fleet.command("show", short_help="Show what agents load from each store.")
@NAMES
@options.number_option(
    "--backlog",
    help="Prunable memories that are still all right; more in any store makes the exit code 1.",
)
@job_options()
def show_fleet(names: tuple[str, ...], backlog: int | None, job: FleetOptions) -> None:
    """Show what agents load from each store at start, largest first, and how much is prunable.

    \b
    memlab fleet show '/srv/agents/*/memory.db'
    memlab fleet show @stores.txt --backlog 500 --csv
    """  # noqa: D301 - \b keeps the lines below it apart
    members = memlab.fleet.expand_names(names)
    folder = job.kept()
    table = job.work("survey", memlab.fleet.survey, members, now=now_utc(), out=folder)
    bad = int(table["error"].notna().sum())
    title = f"{counted(len(table), 'stores')}, {f'{bad:,} left out' if bad else 'all read'}"
    is_read = bad < len(table)
    facts = _loaded(table, members) if is_read else []
    over = 0 if backlog is None else int(table["prunable"].gt(backlog).sum())
    if is_read and backlog is not None:
        facts.append(("over the backlog", f"{over:,} of {counted(len(table), 'stores')}"))
    steps = [f"next: {command('fleet size', *names)}    a cap for each"] if is_read else []
    fails = over > 0 or table["unreadable"].gt(0).any()
    job.show(title, table, LOADED, *steps, most=table["boot_tokens"], facts=facts, fails=fails)


def _loaded(table: "pd.DataFrame", members: "memlab.fleet.Members") -> list[tuple[str, str]]:
    sums = table.sum(numeric_only=True).astype(int)
    share = _share(sums["prunable_tokens"], sums["boot_tokens"])
    disk = f"{sums['bytes'] / 1e6:,.1f} MB"
    if sums["free_bytes"] * 20 > sums["bytes"]:  # else a vacuum is not worth it
        disk += f", of which a vacuum gives back {sums['free_bytes'] / 1e6:,.1f} MB"
    facts = [
        (
            "loaded at start",
            f"{counted(sums['boot_memories'])}, {counted(sums['boot_tokens'], 'tokens')}",
        ),
        ("prunable share", f"{share}, {counted(sums['prunable_tokens'], 'tokens')}"),
        ("on the disk", disk),
    ]
    if sums["unreadable"]:
        where = counted(int(table["unreadable"].gt(0).sum()), "stores")
        facts.append(("not readable", f"{counted(sums['unreadable'], 'memories')} of {where}"))
    if members.repeated:
        facts.append(("named twice", f"{members.repeated:,}; a store counts once"))
    if members.others:
        databases = counted(len(members.others), "databases")
        facts.append(("no stores", f"{databases} of something else, such as {members.others[0]}"))
    return facts


@fleet.command("size", short_help="Recommend a keep_recent for each store.")
@NAMES
@options.target_option
@options.budget_option
@options.until_option
@job_options()
def size_fleet(
    names: tuple[str, ...], token_budget: int | None, job: FleetOptions, **asked: Any
) -> None:
    """Recommend a keep_recent for each store, by its own references and those of its fleet.

    What many stores of one kind of agent share says more of each than other projects do; the
    columns own and fleet say how much of a number rests on which. The stores are only read.

    \b
    memlab fleet size '/srv/agents/*/memory.db' --token-budget 20000
    """  # noqa: D301 - \b keeps the lines below it apart
    members = memlab.fleet.expand_names(names)
    folder = job.kept()
    cohort = job.work("references", memlab.fleet.cohort_of, members)
    asked |= {"token_budget": token_budget, "cohort": cohort}
    table = job.work("size", memlab.fleet.size, members, out=folder, **asked)
    good = table[table["error"].isna()]
    saved = table["boot_now"] - table["boot_after"]
    verdicts = good["verdict"].value_counts().items()
    deletes = counted(int(good["deletes"].sum()), "memories")
    facts = [
        ("verdicts", ", ".join(f"{count:,} {name}" for name, count in verdicts) or "none"),
        ("the fleet says", _shared(cohort)),
        ("would go", f"{deletes}, {counted(int(saved.sum()), 'tokens')} at start"),
    ]
    facts = facts if len(good) else []
    safe = good["keep_recent"].dropna()
    caps = f"{len(safe):,} of {counted(len(table), 'stores')}"
    without = {FITS} if good["fits"].isna().all() else set()
    columns = {name: cell for name, cell in CAPS.items() if name not in without}
    plan = command("fleet plan", *names)
    save = "--save-plan fleet-plan.json"
    steps = []
    if len(safe):
        steps.append(f"next: {plan} --keep-recent {safe.max()} {save}    the largest of these caps")
    if token_budget is not None and good["verdict"].eq("target-exceeds-budget").any():
        policy = f"--policy tokens --max-tokens {token_budget}"
        steps.append(f"next: {plan} {policy} {save}    for the budget")
    if above := int(good["verdict"].eq(VERDICTS[0]).sum()):
        each = f"for each of {counted(above, 'stores')} that no budget can help; leave these out"
        steps.append(f"{'      ' if steps else 'next: '}memlab floor STORE    {each}")
    fails = table["verdict"].isin(VERDICTS).any()
    job.show(f"a cap for {caps}", table, columns, *steps, most=saved, facts=facts, fails=fails)


def _shared(cohort: "memlab.fleet.Cohort") -> str:
    if not cohort.stores:
        return "nothing yet: too few stores have references; other projects stand in"
    return (
        f"{counted(cohort.references, 'references')} of {counted(cohort.stores, 'stores')}; "
        f"{cohort.weight_at(0.9):.0%} of what a store without its own is sized by"
    )


@fleet.command("report", short_help="Write one HTML page on all stores.")
@NAMES
@options.file_option(
    "-o", "--output", "page", default=Path("memlab-fleet.html"), help="The file to write."
)
@options.budget_option
@job_options(prints=False)
def report_fleet(
    names: tuple[str, ...], page: Path, token_budget: int | None, job: FleetOptions
) -> None:
    """Write one self-contained HTML page: what the stores load, where caps help, what to look at.

    The stores are only read.
    """
    from memlab.fleet.page import KEPT_APART

    check_writable(page)
    import_extra("jinja2", extra="report")
    import_extra("matplotlib", extra="report")
    members = memlab.fleet.expand_names(names)
    folder = job.kept(*KEPT_APART)
    asked = {"token_budget": token_budget, "now": now_utc(), "out": folder}
    found = job.work("report", memlab.fleet.examine_fleet, members, **asked)
    memlab.fleet.write_fleet_report(page, found)
    left_out = f", {found.failed:,} left out" if found.failed else ""
    output.print_lines(f"report: {page}", f"  {counted(len(found.stores), 'stores')}{left_out}")
    output.fail_if(found.failed > 0)


@fleet.command(
    "plan", cls=SettingsCommand, short_help="Show what a cap would delete from each store."
)
@NAMES
@policy_option()
@options.save_plan_option
@options.flag_option("--fresh", help="Begin anew where FILE is there, from every store.")
@options.json_option
@job_options(keeps=False, prints=False)
def plan_fleet(
    names: tuple[str, ...],
    policy: "memlab.Policy | None",
    save_plan: Path | None,
    job: FleetOptions,
) -> None:
    """Show what a policy would delete from each store. Nothing is deleted.

    Without a policy, that which memlab.toml beside each store remembers. Stopped half way, the same
    command with --save-plan goes on.

    \b
    memlab fleet plan '/srv/*/memory.db' --keep-recent 200 --save-plan p.json
    memlab fleet apply p.json
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.fleet.change import saved_beside

    job.out = None if save_plan is None else saved_beside(save_plan)
    job.kept(option="--save-plan FILE")
    with faults_of(policy):
        made = job.work("plan", memlab.fleet.plan, names, policy, now=now_utc(), save=save_plan)
    output.print_result(made)
    output.fail_if(bool(made.refused))


@fleet.command("apply", short_help="Carry out a plan that was saved and reviewed.")
@click.argument("plan_file", metavar="PLAN", type=options.FILE)
@options.ALL
@job_options(keeps=False)
def apply_fleet(plan_file: Path, all_prunable: bool, job: FleetOptions) -> None:
    """Carry out a reviewed plan, each store for itself, as memlab fleet plan --save-plan wrote it.

    What is deleted goes to the store's own archive first. A store that has changed since is
    refused, alone. Stopped half way, the same command finishes it; nothing is applied twice.
    """
    asked = {"now": now_utc(), "all_prunable": all_prunable}
    table = job.work("apply", memlab.fleet.apply, plan_file, **asked)
    good = table[table["error"].isna()]
    done = good[good["status"] == "applied"]
    before, after = (int(good[moment].sum()) for moment in ("boot_before", "boot_after"))
    facts = [
        ("deleted", f"{counted(int(done['deleted'].sum()))}, archived beside their stores"),
        ("at start", f"{before:,} -> {counted(after, 'tokens')}"),
    ]
    if again := len(good) - len(done):
        facts.append(("applied before", f"{counted(again, 'stores')}; nothing is applied twice"))
    stores = counted(len(table), "stores")
    refused = len(table) - len(good)
    title = f"{len(good):,} of {stores} applied, {refused:,} refused"
    steps = [f"undo one: {undo}" for undo in good["undo"].head(1)]
    job.show(title, table, APPLIED, *steps, most=table["deleted"], facts=facts)


@fleet.command("maintain", short_help="Compact, drop and vacuum each store as it remembers.")
@NAMES
@options.flag_option("--apply", "do_it", help="Do it. Without it, only show.")
@options.YES
@job_options()
def maintain_fleet(names: tuple[str, ...], do_it: bool, yes: bool, job: FleetOptions) -> None:
    """Look after each store by what memlab.toml beside it remembers: fit for cron.

    A store whose health fails is not changed; one of which nothing is remembered is left out.
    """
    how = {"apply": do_it, "yes": yes, "now": now_utc(), "out": job.kept()}
    table = job.work("maintain", memlab.fleet.maintain, names, **how)
    failed = table["status"].eq("FAILED").fillna(value=False)
    counts = table["status"].value_counts().items()
    told = ", ".join(f"{count:,} {name}" for name, count in counts) or "none"
    title = f"maintenance of {counted(len(table), 'stores')}: {told}"
    steps = [] if do_it else ["nothing was changed; add --apply to do it"]
    why = table["error"].mask(failed, table["failed"])
    silent = table["error"].str.startswith("nothing is remembered of").fillna(value=False)
    if silent.any():
        steps.append("next: memlab size STORE --save    remembers a cap of one that has none")
    job.show(
        title,
        table,
        MAINTAINED,
        *steps,
        most=table["deleted"],
        errors=why.mask(silent, "nothing is remembered of it"),
        fails=failed.any(),
    )
