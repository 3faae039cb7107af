"""The commands of ``memlab fleet``, which survey, size, plan and change many stores."""

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
from memlab.cli.policy import SettingsCommand, explain_policy_errors, policy_option
from memlab.clock import now_utc
from memlab.files import check_writable
from memlab.lazy import import_extra
from memlab.text import Cell, Table, TextPage, command, counted, for_terminal, or_dash, percent

if TYPE_CHECKING:
    import pandas as pd

CommandFunction = Callable[..., Any]
Columns = Mapping[str, str | Callable[[Any], str | None]]
"""The columns of a table: by header, the field of a row, or a function from a row to its cell."""

names_argument = click.argument("names", nargs=-1, required=True, metavar="NAMES...")
_RESULT_OPTIONS: Final = (
    click.option(
        "--results",
        "out",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Save results here; the same command again computes only missing ones.",
    ),
    options.flag_option("--fresh", help="Delete the results in FOLDER, and start again."),
)
_RUNNER_OPTIONS: Final = (
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
_OUTPUT_OPTIONS: Final = (
    options.number_option("--limit", default=20, help="Stores that the table lists."),
    options.flag_option("--csv", "as_csv", help="Print every store as CSV."),
    options.json_option,
)


@dataclass
class FleetOptions:
    """The options of a fleet command: its runner, the folder of results, and the output."""

    processes: int | None
    scheduler: str | None
    scheduler_file: Path | None
    out: Path | None = None
    fresh: bool = False
    limit: int = 20
    as_csv: bool = False

    @contextmanager
    def runner(self) -> Iterator["memlab.fleet.Runner | None"]:
        """Yield the runner that the options name; None for the default one."""
        options_by_name = {
            "--processes": self.processes,
            "--scheduler": self.scheduler,
            "--scheduler-file": self.scheduler_file,
        }
        given_options = [name for name, value in options_by_name.items() if value is not None]
        if len(given_options) > 1:
            raise click.UsageError(f"{' and '.join(given_options)} exclude each other; give one")
        if self.processes == 1:
            yield memlab.fleet.Serial()
        elif self.processes is not None:
            yield memlab.fleet.Processes(self.processes)
        elif given_options:
            file = self.scheduler_file
            with memlab.fleet.cluster_at(self.scheduler, scheduler_file=file) as cluster:
                yield cluster
        else:
            yield None

    def work(self, label: str, call: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """Call a function of :mod:`memlab.fleet` with the runner, and show a progress bar."""
        with self.runner() as runner, output.bar(label) as progress:
            return call(*arguments, runner=runner, progress=progress, **settings)

    def results_folder(self, *subfolders: str, option: str = "--results FOLDER") -> Path | None:
        """Return the folder of results; with ``--fresh`` delete the results in it first.

        `subfolders` hold the results if the command has several kinds of them. `option` is the
        option that names the folder.
        """
        if not self.fresh:
            return self.out
        if self.out is None:
            raise click.UsageError(f"--fresh needs {option}")
        from memlab.fleet.sweep import start_over

        if subfolders:
            for name in subfolders:
                start_over(self.out / name)
        else:
            start_over(self.out)
        return self.out

    def show(
        self,
        title: str,
        table: "pd.DataFrame",
        columns: Columns,
        *steps: str,
        sort_by: "pd.Series[int]",
        facts: Sequence[tuple[str, str]] = (),
        errors: "pd.Series[str] | None" = None,
        fails: bool = False,
    ) -> None:
        """Print the result of a command, and exit with 1 if a store has an error.

        With ``--json`` and ``--csv`` the whole table is printed, else a page.

        Parameters
        ----------
        title : str
            Title of the page.
        table : DataFrame
            A row for each store.
        columns : Mapping
            Columns of the page's table.
        *steps : str
            Next steps below the page.
        sort_by : Series
            A number for each store, by which the page is sorted, largest first.
        facts : sequence
            Facts of the page.
        errors : Series, optional
            Messages that replace the errors of the table on the page.
        fails : bool
            Whether to exit with 1 in any case.
        """
        if output.wants_json():
            output.print_records(table)
        elif self.as_csv:
            output.print_text(table.to_csv(index=False))
        else:
            if errors is not None:
                table = table.assign(error=errors)
            largest_first = sort_by.sort_values(ascending=False, kind="stable").index
            page = self._page(title, table.loc[largest_first], columns, facts)
            output.print_lines(page)
            if steps:
                output.print_lines("", *steps)
        output.fail_if(fails or bool(table["error"].notna().any()))

    def _page(
        self,
        title: str,
        table: "pd.DataFrame",
        columns: Columns,
        facts: Sequence[tuple[str, str]],
    ) -> TextPage:
        """Return a page with the first stores of a table, then the stores with an error.

        A folder that contains all stores is named once, as a fact.
        """
        stores = table["store"].map(output.shorten_paths)
        parent = common_folder(stores.tolist())
        table = table.assign(store=stores.str.removeprefix(parent))
        without_error = table[table["error"].isna()]
        with_error = table[table["error"].notna()]
        values = without_error.astype(object).where(without_error.notna(), None)
        fields_of_columns = (*columns.values(), "store")

        def cells(store: Any) -> tuple[Cell, ...]:
            return tuple(_cell(store, field) for field in fields_of_columns)

        rows = [cells(store) for store in values.itertuples()]
        listed = Table("", (*columns, "store"), rows, whole=True)
        tables = [listed.first(self.limit, "; --limit, --csv or --json shows them")]
        if len(with_error):
            messages = list(zip(with_error["store"], with_error["error"], strict=True))
            tables.append(Table("left out", (), messages, whole=True).first(self.limit))
        if parent:
            facts = [("below", parent), *facts]
        return TextPage(title, facts, tables)


def _cell(row: Any, field: str | Callable[[Any], str | None]) -> Cell:
    """Return a cell of a row: text, a whole number, or a dash for a missing value."""
    value = getattr(row, field) if isinstance(field, str) else field(row)
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return int(value)


def job_options(
    *, saves_results: bool = True, prints_table: bool = True
) -> Callable[[CommandFunction], CommandFunction]:
    """Return a decorator that adds the fleet options to a command, which gets them as ``job``.

    `saves_results` adds the options on saved results, `prints_table` those on the output.
    """
    options_to_add = list(_RUNNER_OPTIONS)
    if saves_results:
        options_to_add = [*_RESULT_OPTIONS, *options_to_add]
    if prints_table:
        options_to_add = [*options_to_add, *_OUTPUT_OPTIONS]

    def add(function: CommandFunction) -> CommandFunction:
        @wraps(function)
        def with_job(**values: Any) -> Any:
            job_values = {}
            for field in fields(FleetOptions):
                if field.name in values:
                    job_values[field.name] = values.pop(field.name)
            job = FleetOptions(**job_values)
            return function(job=job, **values)

        for option in reversed(options_to_add):
            with_job = option(with_job)
        return with_job

    return add


def common_folder(names: Sequence[str]) -> str:
    """Return the folder that all names begin with, with its slash; empty if there is none.

    >>> common_folder(["/srv/a/memory.db", "/srv/b/memory.db"])
    '/srv/'
    """
    are_absolute = all(name.startswith("/") for name in names)
    if len(names) < 2 or not are_absolute:
        return ""
    folders = [os.path.dirname(name) for name in names]  # noqa: PTH120 - text
    folder = os.path.commonpath(folders)
    return "" if folder == "/" else f"{folder}/"


def _percent(part: float, whole: float) -> str:
    """Write a part in percent of the whole; a dash if the whole is 0."""
    return or_dash(part / whole if whole else None)


SHOW_COLUMNS: Final[Columns] = {
    "at start": "boot_memories",
    "prunable": "prunable",
    "tokens": "boot_tokens",
    "floor tokens": "floor_tokens",
    "prunable share": lambda row: _percent(row.prunable_tokens, row.boot_tokens),
    "written": lambda row: None if row.last_at is None else f"{row.last_at:%Y-%m-%d}",
}


def _fits_in_words(row: Any) -> str | None:
    """Return the largest cap in the token budget, and the share that it serves."""
    if row.fits is None:
        return None
    return f"{row.fits:,} ({percent(row.fits_served, decimals=0)})"


def _evidence_in_words(row: Any) -> str:
    """Return the shares of the evidence that are of the store and of its fleet."""
    return f"{percent(row.own, decimals=0)}/{percent(row.fleet, decimals=0)}"


FITS: Final = "fits (serves)"
"""Header of the column that is shown with a token budget."""
SIZE_COLUMNS: Final[Columns] = {
    "safe": "keep_recent",
    "likely": "likely",
    FITS: _fits_in_words,
    "own/fleet": _evidence_in_words,
    "refs": "references",
    "would go": "deletes",
    "tokens": "boot_now",
    "after": "boot_after",
}


def _status_in_words(row: Any) -> str:
    """Return the status of a plan, with the time if an earlier run applied it."""
    from memlab.compaction.wire import minute_in_words
    from memlab.fleet.change import AppliedStatus

    if row.status == AppliedStatus.APPLIED:
        return str(row.status)
    return f"{row.status}, on {minute_in_words(row.applied_at)}"


APPLY_COLUMNS: Final[Columns] = {
    "deleted": "deleted",
    "at start": "boot_before",
    "after": "boot_after",
    "status": _status_in_words,
}
MAINTAIN_COLUMNS: Final[Columns] = {
    "deletes": "deleted",
    "status": "status",
    "compact": lambda row: shorten(row.compact or "", 40, placeholder=" …"),
}


@click.group(short_help="Show, size, compact and maintain many stores.")
def fleet() -> None:
    """Look at many stores, size them, and change them after one review.

    NAMES are paths, patterns such as '/srv/agents/**/memory.db', folders, URLs, and @FILE with a
    name on each line. A store that is named twice counts once. A store that cannot be read is
    listed with its error. The exit code is 1 if a store has an error or passes a threshold.
    """


@fleet.command("show", short_help="Show what agents load from each store.")
@names_argument
@options.number_option(
    "--backlog",
    help="Exit with 1 if a store has more prunable memories than this.",
)
@job_options()
def show_fleet(names: tuple[str, ...], backlog: int | None, job: FleetOptions) -> None:
    """Show what agents load from each store at start, largest first, and how much is prunable.

    \b
    memlab fleet show '/srv/agents/*/memory.db'
    memlab fleet show @stores.txt --backlog 500 --csv
    """  # noqa: D301 - \b keeps the lines below it apart
    members = memlab.fleet.expand_names(names)
    folder = job.results_folder()
    table = job.work("survey", memlab.fleet.survey, members, now=now_utc(), out=folder)
    failed = int(table["error"].notna().sum())
    stores = counted(len(table), "stores")
    title = f"{stores}, {failed:,} left out" if failed else f"{stores}, all read"
    over_backlog = 0 if backlog is None else int(table["prunable"].gt(backlog).sum())
    facts: list[tuple[str, str]] = []
    steps = []
    if failed < len(table):
        facts = _survey_facts(table, members)
        if backlog is not None:
            facts.append(("over the backlog", f"{over_backlog:,} of {stores}"))
        steps.append(f"next: {command('fleet size', *names)}    a cap for each")
    fails = over_backlog > 0 or table["unreadable"].gt(0).any()
    job.show(
        title, table, SHOW_COLUMNS, *steps, sort_by=table["boot_tokens"], facts=facts, fails=fails
    )


def _survey_facts(table: "pd.DataFrame", members: "memlab.fleet.Members") -> list[tuple[str, str]]:
    """Return the facts of a survey: tokens, disk space, repeated names, and other databases."""
    sums = table.sum(numeric_only=True).astype(int)
    share = _percent(sums["prunable_tokens"], sums["boot_tokens"])
    loaded = f"{counted(sums['boot_memories'])}, {counted(sums['boot_tokens'], 'tokens')}"
    disk = f"{sums['bytes'] / 1e6:,.1f} MB"
    if sums["free_bytes"] > sums["bytes"] / 20:  # a vacuum is worth it
        disk += f", of which a vacuum gives back {sums['free_bytes'] / 1e6:,.1f} MB"
    facts = [
        ("loaded at start", loaded),
        ("prunable share", f"{share}, {counted(sums['prunable_tokens'], 'tokens')}"),
        ("on the disk", disk),
    ]
    if sums["unreadable"]:
        stores = counted(int(table["unreadable"].gt(0).sum()), "stores")
        facts.append(("not readable", f"{counted(sums['unreadable'], 'memories')} of {stores}"))
    if members.repeated:
        facts.append(("named twice", f"{members.repeated:,}; a store counts once"))
    if members.other_databases:
        databases = counted(len(members.other_databases), "databases")
        facts.append(
            ("no stores", f"{databases} of something else, such as {members.other_databases[0]}")
        )
    return facts


@fleet.command("size", short_help="Recommend a keep_recent for each store.")
@names_argument
@options.target_option
@options.budget_option
@options.until_option
@options.flag_option("--save", help="Save the cap of each store in its memlab.toml.")
@job_options()
def size_fleet(
    names: tuple[str, ...], save: bool, token_budget: int | None, job: FleetOptions, **goal: Any
) -> None:
    """Recommend a keep_recent for each store, by its own references and those of its fleet.

    Stores of one kind of agent tell more about each other than data from other projects. The
    columns own and fleet show how much of a number rests on which. Only --save writes: into the
    memlab.toml beside each store.

    \b
    memlab fleet size '/srv/agents/*/memory.db' --token-budget 20000
    memlab fleet size '/srv/agents/*/memory.db' --save
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.sizing.answer import answer_of_fleet
    from memlab.sizing.backtest import Verdict

    members = memlab.fleet.expand_names(names)
    folder = job.results_folder()
    cohort = job.work("references", memlab.fleet.cohort_of, members)
    table = job.work(
        "size",
        memlab.fleet.size,
        members,
        out=folder,
        token_budget=token_budget,
        cohort=cohort,
        **goal,
    )
    sized = table[table["error"].isna()]
    safe_caps = sized["keep_recent"].dropna()
    answer = answer_of_fleet(
        stores=len(sized),
        sized=len(safe_caps),
        loaded=int(sized["boot_now"].sum()),
        left=int(sized["boot_after"].sum()),
        deleted=int(sized["deletes"].sum()),
    )
    facts = [("caps", f"{len(safe_caps):,} of {counted(len(table), 'stores')}")]
    if len(sized):
        facts += _size_facts(sized, cohort)
    are_saved = save and _save_caps(table, {"token_budget": token_budget, **goal})
    needs_decision = [Verdict.FLOOR_EXCEEDS_BUDGET, Verdict.TARGET_EXCEEDS_BUDGET]
    columns = dict(SIZE_COLUMNS)
    if sized["fits"].isna().all():
        del columns[FITS]
    job.show(
        answer,
        table,
        columns,
        *_steps_after_sizing(sized, names, token_budget, are_saved=are_saved),
        sort_by=table["boot_now"] - table["boot_after"],
        facts=facts,
        fails=are_saved != save or table["verdict"].isin(needs_decision).any(),
    )


def _save_caps(table: "pd.DataFrame", goal: Mapping[str, Any]) -> bool:
    """Save the cap of each sized store, and print on stderr what was saved.

    Return whether all could be saved.
    """
    saved = memlab.fleet.save_caps(table, goal=goal, now=now_utc())
    errors = saved[saved["error"].notna()]
    stores = counted(len(saved) - len(errors), "stores")
    click.echo(f"saved the settings of {stores}, each in the memlab.toml beside it", err=True)
    for row in saved[saved["note"].notna()].itertuples():
        click.echo(for_terminal(output.shorten_paths(f"{row.store}: {row.note}")), err=True)
    for row in errors.itertuples():
        message = output.shorten_paths(f"not saved for {row.store}: {row.error}")
        click.echo(for_terminal(message), err=True)
    return errors.empty


def _size_facts(sized: "pd.DataFrame", cohort: "memlab.fleet.Cohort") -> list[tuple[str, str]]:
    """Return the facts of the sized stores: verdicts, evidence, and the effect of caps."""
    counts = sized["verdict"].value_counts().items()
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in counts)
    deletes = counted(int(sized["deletes"].sum()), "memories")
    saved_tokens = counted(int((sized["boot_now"] - sized["boot_after"]).sum()), "tokens")
    return [
        ("verdicts", verdicts or "none"),
        ("the fleet says", _cohort_in_words(cohort)),
        ("would go", f"{deletes}, {saved_tokens} at start"),
    ]


def _steps_after_sizing(
    sized: "pd.DataFrame", names: tuple[str, ...], token_budget: int | None, *, are_saved: bool
) -> list[str]:
    """Return the next steps for stores that were sized: plans for a cap, and for the budget."""
    from memlab.sizing.backtest import Verdict

    plan = command("fleet plan", *names)
    save = "--save-plan fleet-plan.json"
    steps = []
    if sized["deletes"].sum() > 0:
        if not are_saved:
            size = command("fleet size", *names, "--save")
            steps.append(f"next: {size}    saves each cap in the store's memlab.toml; then")
        margin = "      " if steps else "next: "
        steps.append(f"{margin}{plan} {save}    plans by the saved caps")
    if token_budget is not None and sized["verdict"].eq(Verdict.TARGET_EXCEEDS_BUDGET).any():
        policy = f"--policy tokens --max-tokens {token_budget}"
        margin = "      " if steps else "next: "
        steps.append(f"{margin}{plan} {policy} {save}    for the budget")
    too_large_floors = int(sized["verdict"].eq(Verdict.FLOOR_EXCEEDS_BUDGET).sum())
    if too_large_floors:
        margin = "      " if steps else "next: "
        stores = counted(too_large_floors, "stores")
        remark = f"for each of {stores} that no budget can help; leave these out"
        steps.append(f"{margin}memlab floor STORE    {remark}")
    return steps


def _cohort_in_words(cohort: "memlab.fleet.Cohort") -> str:
    """Describe the evidence that the stores of a fleet share."""
    if not cohort.stores:
        return "nothing yet: too few stores have references; other projects' data is used"
    return (
        f"{counted(cohort.references, 'references')} of {counted(cohort.stores, 'stores')}; "
        f"{percent(cohort.weight_at(0.9), decimals=0)} of the weight for a store without references"
    )


@fleet.command("report", short_help="Write one HTML page on all stores.")
@names_argument
@options.file_option(
    "-o", "--output", "page", default=Path("memlab-fleet.html"), help="The file to write."
)
@options.budget_option
@job_options(prints_table=False)
def report_fleet(
    names: tuple[str, ...], page: Path, token_budget: int | None, job: FleetOptions
) -> None:
    """Write one self-contained HTML page: what the stores load, where caps help, what to look at.

    The stores are only read.
    """
    from memlab.fleet.page import PASS_FOLDERS

    check_writable(page)
    import_extra("jinja2", extra="report")
    import_extra("matplotlib", extra="report")
    members = memlab.fleet.expand_names(names)
    folder = job.results_folder(*PASS_FOLDERS)
    findings = job.work(
        "report",
        memlab.fleet.examine_fleet,
        members,
        token_budget=token_budget,
        now=now_utc(),
        out=folder,
    )
    memlab.fleet.write_fleet_report(page, findings)
    left_out = f", {findings.failed:,} left out" if findings.failed else ""
    output.print_lines(f"report: {page}", f"  {counted(len(findings.stores), 'stores')}{left_out}")
    output.fail_if(findings.failed > 0)


@fleet.command(
    "plan", cls=SettingsCommand, short_help="Show what a cap would delete from each store."
)
@names_argument
@policy_option()
@options.save_plan_option
@options.flag_option("--fresh", help="Replace FILE, and plan every store again.")
@options.json_option
@job_options(saves_results=False, prints_table=False)
def plan_fleet(
    names: tuple[str, ...],
    policy: "memlab.Policy | None",
    save_plan: Path | None,
    job: FleetOptions,
) -> None:
    """Show what a policy would delete from each store. Nothing is deleted.

    Without a policy, each store's own memlab.toml decides. If it is interrupted, the same
    command with --save-plan goes on.

    \b
    memlab fleet plan '/srv/*/memory.db' --keep-recent 200 --save-plan p.json
    memlab fleet apply p.json
    """  # noqa: D301 - \b keeps the lines below it apart
    from memlab.fleet.change import saved_beside

    job.out = None if save_plan is None else saved_beside(save_plan)
    job.results_folder(option="--save-plan FILE")  # with --fresh it deletes the earlier plans
    with explain_policy_errors(policy):
        plan = job.work("plan", memlab.fleet.plan, names, policy, now=now_utc(), save=save_plan)
    output.print_result(plan)
    output.fail_if(bool(plan.refused))


@fleet.command("apply", short_help="Apply a saved and reviewed plan.")
@click.argument("plan_file", metavar="PLAN", type=options.FILE)
@options.all_option
@job_options(saves_results=False)
def apply_fleet(plan_file: Path, all_prunable: bool, job: FleetOptions) -> None:
    """Apply a reviewed plan of memlab fleet plan --save-plan, one store at a time.

    Memories are archived beside their store before they are deleted. A store that has changed
    since, or to which memories were restored, is left out. If it is interrupted, the same command
    finishes it; nothing is applied twice.
    """
    from memlab.fleet.change import AppliedStatus

    table = job.work(
        "apply", memlab.fleet.apply, plan_file, now=now_utc(), all_prunable=all_prunable
    )
    accepted = table[table["error"].isna()]
    applied = accepted[accepted["status"] == AppliedStatus.APPLIED]
    applied_before = len(accepted) - len(applied)
    refused = len(table) - len(accepted)
    facts = []
    if len(applied):
        before = int(applied["boot_before"].sum())
        after = int(applied["boot_after"].sum())
        deleted = counted(int(applied["deleted"].sum()))
        facts = [
            ("deleted", f"{deleted}, archived beside their stores"),
            ("at start", f"{before:,} -> {counted(after, 'tokens')}"),
        ]
    title = f"{len(applied):,} of {counted(len(table), 'stores')} applied"
    if applied_before:
        title += f", {applied_before:,} {AppliedStatus.APPLIED_BEFORE}"
        stores = counted(applied_before, "stores")
        facts.append((AppliedStatus.APPLIED_BEFORE, f"{stores}; nothing is applied twice"))
    title += f", {refused:,} refused"
    steps = []
    if len(accepted):
        undo = accepted["undo"].iloc[0]
        lists_all = f"{command('fleet apply', plan_file, '--csv')} lists the command for each"
        steps.append(f"undo: {undo}    for one store; {lists_all}")
    job.show(title, table, APPLY_COLUMNS, *steps, sort_by=table["deleted"], facts=facts)


@fleet.command(
    "maintain", short_help="Compact, drop and vacuum each store as its memlab.toml says."
)
@names_argument
@options.flag_option("--apply", "do_it", help="Do it. Without it, only show.")
@options.yes_option
@job_options()
def maintain_fleet(names: tuple[str, ...], do_it: bool, yes: bool, job: FleetOptions) -> None:
    """Run the steps that memlab.toml beside each store sets; suitable for cron.

    A store that fails a check is not changed. One without settings is left out.
    """
    folder = job.results_folder()
    table = job.work(
        "maintain", memlab.fleet.maintain, names, apply=do_it, yes=yes, now=now_utc(), out=folder
    )
    failed = table["status"].eq("FAILED").fillna(value=False)
    counts = table["status"].value_counts().items()
    results = ", ".join(f"{count:,} {name}" for name, count in counts) or "none"
    title = f"maintenance of {counted(len(table), 'stores')}: {results}"
    steps = [] if do_it else ["nothing was changed; add --apply to do it"]
    errors = table["error"].mask(failed, table["failed"])  # the step that failed, with its reason
    has_no_settings = table["error"].str.startswith("no settings for").fillna(value=False)
    if has_no_settings.any():
        steps.append("next: memlab size STORE --save    saves a cap for one that has none")
    job.show(
        title,
        table,
        MAINTAIN_COLUMNS,
        *steps,
        sort_by=table["deleted"],
        errors=errors.mask(has_no_settings, "no settings for it"),
        fails=failed.any(),
    )
