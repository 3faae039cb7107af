"""Examine many stores in several passes, and show the findings as one HTML page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from memlab.clock import moment_or_now
from memlab.files import OWNER_ONLY, write_whole
from memlab.fleet.cohort import Cohort, cohort_of, size
from memlab.fleet.names import Members, Sources, members_of
from memlab.fleet.sweep import outcomes_of, survey
from memlab.fleet.workers import FleetTask, Progress, Runner
from memlab.growth.summary import past_arrays
from memlab.sizing.answer import answer_of_fleet
from memlab.sources.opening import open_source
from memlab.text import Table, counted, for_terminal, percent

if TYPE_CHECKING:
    from memlab.views.page import Section

PASS_FOLDERS: Final = ("survey", "size")
"""Folders in which the results of the survey and of sizing are saved."""

MAX_ROWS: Final = 1_000
"""Maximum number of stores in the page's table. Those that load the most tokens come first."""
_LIST_COMMAND: Final = "; memlab fleet show --csv lists them all"
MAX_EXAMPLES: Final = 10
"""Maximum number of stores that a section names."""


@dataclass(frozen=True)
class FleetFindings:
    """The findings on a fleet: the data of its report.

    Attributes
    ----------
    now : datetime
        When the stores were examined, with a time zone.
    stores : DataFrame
        The rows of :func:`memlab.fleet.survey`.
    sizes : DataFrame
        The rows of :func:`memlab.fleet.size`.
    weeks : DataFrame
        A row for each ``week``, with the change in the number of ``memories`` and in the number of
        ``load_bearing`` memories.
    cohort : Cohort
        The prior that the stores share.
    repeated : int
        Number of names that match a store named before.

    Examples
    --------
    >>> import memlab.fleet
    >>> findings = memlab.fleet.examine_fleet(memlab.store_path("looked_up"))
    >>> int(findings.stores["memories"].sum())
    480
    """

    now: datetime
    stores: pd.DataFrame
    sizes: pd.DataFrame
    weeks: pd.DataFrame
    cohort: Cohort
    repeated: int

    @property
    def failed(self) -> int:
        """Number of stores that could not be read."""
        rows = pd.concat([self.stores, self.sizes])
        return int(rows.loc[rows["error"].notna(), "store"].nunique())

    @cached_property
    def listed(self) -> pd.DataFrame:
        """The readable stores with their caps, most tokens at start first."""
        readable = self.stores[self.stores["error"].isna()]
        ordered = readable.sort_values("boot_tokens", ascending=False, kind="stable")
        caps = self.sizes[["store", "keep_recent", "likely", "boot_after"]]
        return ordered.merge(caps, on="store", how="left", validate="one_to_one")

    @property
    def space_freed(self) -> float:
        """Estimated bytes that the caps would free.

        The estimate for a store is its used bytes times the share of its memories to delete.
        """
        deletes = self.sizes[["store", "deletes"]]
        table = self.stores.merge(deletes, on="store", validate="one_to_one")
        used = table["bytes"] - table["free_bytes"]
        share_deleted = table["deletes"] / table["memories"].where(table["memories"] > 0)
        return float((used * share_deleted).fillna(0).sum())


def examine_fleet(
    sources: Sources,
    *,
    now: datetime | None = None,
    token_budget: int | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    out: str | PathLike[str] | None = None,
) -> FleetFindings:
    """Examine every store for a report, in several passes. The stores are only read.

    Parameters
    ----------
    sources, now, runner, progress
        As for :func:`memlab.fleet.survey`.
    token_budget : int, optional
        As for :func:`memlab.fleet.size`.
    out : str or Path, optional
        A folder. The results of the survey and of sizing are saved in its subfolders ``survey``
        and ``size``.

    Returns
    -------
    FleetFindings
        The findings. A store that cannot be read is a row with an error.

    Raises
    ------
    MemlabError
        If no store was named, or `out` holds other files.

    Examples
    --------
    >>> import memlab.fleet
    >>> findings = memlab.fleet.examine_fleet(memlab.store_path("two_years"))
    >>> len(findings.stores), findings.failed
    (1, 0)
    """
    folders: list[Path | None] = [None, None]
    if out is not None:
        folders = [Path(out) / name for name in PASS_FOLDERS]
    survey_folder, size_folder = folders
    moment = moment_or_now(now, call="memlab.fleet.examine_fleet")
    members = members_of(sources)
    stores = survey(members, now=moment, runner=runner, progress=progress, out=survey_folder)
    cohort = cohort_of(members, runner=runner, progress=progress)
    sizes = size(
        members,
        token_budget=token_budget,
        cohort=cohort,
        runner=runner,
        progress=progress,
        out=size_folder,
    )
    weeks = _weekly_changes(members, runner=runner, progress=progress)
    return FleetFindings(
        now=moment,
        stores=stores,
        sizes=sizes,
        weeks=weeks,
        cohort=cohort,
        repeated=members.repeated,
    )


def _weekly_changes_of(location: str) -> pd.DataFrame:
    """Return the weekly change of a store's number of memories, and of load-bearing ones.

    The index is the number of the week since 1970. A deleted memory counts 1 in the week in which
    it was written, and -1 in the week in which it was deleted.
    """
    past, _ = past_arrays(open_source(location), on_bad_row="keep")
    written = past.created_at
    deleted = np.full_like(written, "NaT") if past.deleted_at is None else past.deleted_at
    load_bearing = past.load_bearing & (past.active | ~np.isnat(deleted))
    # The first half of each array holds the writes, and the second half the deletions.
    moments = np.concatenate([written, np.maximum(written, deleted)])
    signs = np.repeat([1, -1], len(written))
    changes = pd.DataFrame({"memories": signs, "load_bearing": signs * np.tile(load_bearing, 2)})
    changes["week"] = moments.astype("datetime64[W]").astype(np.int64)
    weeks: pd.DataFrame = changes[~np.isnat(moments)].groupby("week").sum()
    return weeks


def _weekly_changes(members: Members, **options: Any) -> pd.DataFrame:
    """Return the sum of all stores' changes by week; see :attr:`FleetFindings.weeks`."""
    task = FleetTask("growth", _weekly_changes_of, pd.DataFrame)
    outcomes = outcomes_of(task, members, **options)
    empty = pd.DataFrame({"week": [], "memories": [], "load_bearing": []}, dtype=np.int64)
    changes = [outcome.value for outcome in outcomes if outcome.value is not None]
    total = pd.concat([empty.set_index("week"), *changes]).groupby("week").sum()
    # a row without change before each week keeps the line of the chart level up to that week
    week_numbers = total.index.union(total.index[1:] - 1)
    total = total.reindex(week_numbers, fill_value=0).reset_index(names="week")
    weeks = total["week"].to_numpy().astype("datetime64[W]").astype("datetime64[s]")
    return total.assign(week=pd.to_datetime(weeks).tz_localize("UTC"))


def write_fleet_report(output: str | PathLike[str], findings: FleetFindings) -> Path:
    """Write the findings as one self-contained HTML file, which only its owner can read.

    Parameters
    ----------
    output : str or Path
        The file to write.
    findings : FleetFindings
        The result of :func:`examine_fleet`.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import memlab.fleet
    >>> findings = memlab.fleet.examine_fleet(memlab.store_path("two_years"))
    >>> page = memlab.fleet.write_fleet_report("fleet.html", findings)
    >>> page.name
    'fleet.html'
    """
    return write_whole(Path(output), fleet_page(findings).encode(), permissions=OWNER_ONLY)


def fleet_page(findings: FleetFindings) -> str:
    """Return the report as one HTML page."""
    from memlab.charts import plot_fleet_caps, plot_fleet_growth, plot_fleet_tokens
    from memlab.views.page import html_of

    charts = {
        "tokens": [plot_fleet_tokens(findings.stores).figure],
        "growth": [plot_fleet_growth(findings.weeks).figure],
        "caps": [plot_fleet_caps(findings.sizes).figure],
    }
    sections = [(section, charts.get(section.anchor, [])) for section in _sections(findings)]
    names = map(for_terminal, findings.listed["store"])
    return html_of(
        "fleet.html.jinja",
        sections,
        findings=findings,
        stores=counted(len(findings.stores), "stores"),
        repeated=counted(findings.repeated, "names"),
        facts=list(_facts(findings)),
        answer=_answer(findings),
        anchors={name: f"s{number}" for number, name in enumerate(names, start=1)},
    )


def _answer(findings: FleetFindings) -> str:
    """Return the answer for all stores in a sentence."""
    sized = findings.sizes[findings.sizes["error"].isna()]
    return answer_of_fleet(
        stores=len(sized),
        sized=int(sized["keep_recent"].notna().sum()),
        loaded=int(sized["boot_now"].sum()),
        left=int(sized["boot_after"].sum()),
        deleted=int(sized["deletes"].sum()),
    )


def _facts(findings: FleetFindings) -> Iterator[tuple[str, str, str]]:
    """Yield the headline figures: name, value and remark."""
    stores = findings.stores
    sizes = findings.sizes
    failed = findings.failed
    boot = int(stores["boot_tokens"].sum())
    prunable = int(stores["prunable_tokens"].sum())
    saved = int((sizes["boot_now"] - sizes["boot_after"]).sum())
    remark = f"{failed:,} could not be read" if failed else "all were read"
    yield "stores", f"{len(stores):,}", remark
    share = "nothing is loaded"
    if boot:
        share = f"{percent(prunable / boot, decimals=0)} of it prunable"
    yield "tokens at start", f"{boot:,}", f"{share} (characters / 4, an estimate)"
    yield "caps would save", f"{saved:,}", "tokens at start, of all stores together"
    free = float(stores["free_bytes"].sum())
    after_caps = f"{(free + findings.space_freed) / 1e6:,.1f} MB"
    remark = f"about, after the caps and a vacuum; {free / 1e6:,.1f} MB are free now"
    yield "space to give back", after_caps, remark


def _sections(findings: FleetFindings) -> "Iterator[Section]":
    """Yield the sections of the report, without their charts."""
    from memlab.views.page import Section

    sizes = findings.sizes[findings.sizes["error"].isna()]
    sizes = sizes.assign(saved=sizes["boot_now"] - sizes["boot_after"])
    yield Section("tokens", "What each store loads")
    yield Section("growth", "How the fleet grew")
    examples = _examples(sizes[sizes["saved"] > 0], _caps_line, by="saved")
    yield Section("caps", "Where caps help", tables=examples)

    mostly_floor = sizes[sizes["floor"] * 2 > sizes["boot_now"]]
    sentence = _floor_sentence(len(mostly_floor))
    examples = _examples(mostly_floor, _floor_line, by="floor")
    yield Section("floor", "Where the floor is the problem", [sentence], examples)

    without_references = sizes[sizes["references"] == 0]
    sentence = _evidence_sentence(findings.cohort, len(without_references))
    examples = _examples(without_references, _no_reference_line)
    yield Section("evidence", "Stores without evidence", [sentence], examples)

    failed = _failed_stores(findings)
    if failed:
        yield Section("refused", "Left out", tables=failed)
    else:
        yield Section("refused", "Left out", ["Every store was read."])

    table = _store_table(findings)
    title = "The stores that load most" if table.remark else "Every store"
    yield Section("stores", title, tables=[table])


def _examples(
    sizes: pd.DataFrame, line_of: Callable[[dict[Any, Any]], str], *, by: str = ""
) -> list[Table]:
    """Return a table with a line on each of the first stores; an empty list if there is no store.

    Parameters
    ----------
    sizes : DataFrame
        Rows of :attr:`FleetFindings.sizes`.
    line_of : callable
        Returns the line from the fields of a row.
    by : str, optional
        The column to sort by, largest first; by default the order is kept.
    """
    if sizes.empty:
        return []
    if by:
        sizes = sizes.sort_values(by, ascending=False, kind="stable")
    records = sizes.head(MAX_EXAMPLES).to_dict("records")
    return [Table("", (), [(for_terminal(row["store"]), line_of(row)) for row in records])]


def _floor_line(row: dict[Any, Any]) -> str:
    """Return a line on a store's load-bearing tokens."""
    return f"{row['floor']:,} of {row['boot_now']:,} tokens are load-bearing"


def _no_reference_line(row: dict[Any, Any]) -> str:
    """Return a line on a store without references."""
    return f"{counted(row['memories'])} written, no reference"


def _floor_sentence(stores: int) -> str:
    """Return a sentence on the number of stores with more load-bearing than prunable tokens."""
    if not stores:
        return "In no store is the floor more than half of what is loaded."
    return (
        f"In {counted(stores, 'stores')} the floor is more than half of what is loaded; "
        "memlab floor STORE shows what takes it."
    )


def _caps_line(row: dict[Any, Any]) -> str:
    """Return a line on a store's caps, and on the tokens that the safe cap saves."""
    numbers = f"keep_recent = {row['keep_recent']:,} is safe, {row['likely']:,} is likely"
    return f"{numbers}: {counted(row['saved'], 'tokens')} fewer under the safe one"


def _evidence_sentence(cohort: Cohort, stores: int) -> str:
    """Return a sentence on the evidence for the stores without references of their own."""
    if not stores:
        return "Every store has references of its own."
    unreferenced = f"{counted(stores, 'stores')} without a reference of their own"
    if not cohort.stores:
        return f"{unreferenced}: sized by other projects."
    return (
        f"{unreferenced}: sized by {cohort.references:,} references of {cohort.stores:,} other "
        "stores of the fleet and by other projects."
    )


def _failed_stores(findings: FleetFindings) -> list[Table]:
    """Return a table of the stores with an error, each once; an empty list if there is none."""
    errors = pd.concat([findings.stores, findings.sizes])[["store", "error"]].dropna()
    failed = errors.drop_duplicates("store").to_numpy().tolist()
    rows = [(for_terminal(store), for_terminal(error)) for store, error in failed]
    if not rows:
        return []
    return [Table("", (), rows).first(MAX_ROWS, _LIST_COMMAND)]


def _store_table(findings: FleetFindings) -> Table:
    """Return the table of stores, most tokens at start first."""
    header = ("store", "memories", "tokens at start", "floor", "safe cap", "likely cap", "after")
    names = ["memories", "boot_tokens", "floor_tokens", "keep_recent", "likely", "boot_after"]
    rows: list[tuple[Any, ...]] = []
    for store, *numbers in findings.listed[["store", *names]].itertuples(index=False):
        cells = ["–" if pd.isna(number) else int(number) for number in numbers]
        rows.append((for_terminal(store), *cells))
    return Table("", header, rows).first(MAX_ROWS, _LIST_COMMAND)
