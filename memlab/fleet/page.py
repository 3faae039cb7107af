"""Examine many stores in several passes, and show the findings as one HTML page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Final

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
from memlab.text import Table, counted, for_terminal

KEPT_APART: Final = ("survey", "size")
"""Folders of the passes whose results are saved."""

LISTED: Final = 1_000
"""Maximum number of stores in the page's table: those that load the most tokens."""
_WHERE: Final = "; memlab fleet show --csv lists them all"
SHOWN: Final = 10
"""Maximum number of stores that a section names."""


@dataclass(frozen=True)
class FleetFindings:
    """The findings of all passes, as the page shows them.

    Attributes
    ----------
    now : datetime
        When the stores were examined, with a time zone.
    stores : DataFrame
        The rows of :func:`memlab.fleet.survey`.
    sizes : DataFrame
        The rows of :func:`memlab.fleet.size`.
    weeks : DataFrame
        The change of the number of memories in each week: ``week``, ``memories``, ``load_bearing``.
    cohort : Cohort
        The prior that the stores share.
    repeated : int
        Number of names that match a store named before.
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
        both = pd.concat([self.stores, self.sizes])
        return int(both.loc[both["error"].notna(), "store"].nunique())

    @cached_property
    def listed(self) -> pd.DataFrame:
        """The readable stores with their caps, most tokens at start first."""
        good = self.stores[self.stores["error"].isna()]
        most = good.sort_values("boot_tokens", ascending=False, kind="stable")
        caps = self.sizes[["store", "keep_recent", "likely", "boot_after"]]
        return most.merge(caps, on="store", how="left", validate="one_to_one")

    @property
    def space_freed(self) -> float:
        """Estimated bytes that the caps would free: used bytes times the share of deletions."""
        deletes = self.sizes[["store", "deletes"]]
        both = self.stores.merge(deletes, on="store", validate="one_to_one")
        share = both["deletes"] / both["memories"].where(both["memories"] > 0)
        return float(((both["bytes"] - both["free_bytes"]) * share).fillna(0).sum())


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
        A folder; results of the survey and of sizing are saved in its ``survey`` and ``size``.

    Returns
    -------
    FleetFindings
        The findings. A store that cannot be read is a row with an error.

    Raises
    ------
    MemlabError
        If no store was named, or `out` holds other files.
    """
    folders: list[Path | None] = [None, None]
    if out is not None:
        folders = [Path(out) / name for name in KEPT_APART]
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
    weeks = _weeks(members, runner=runner, progress=progress)
    return FleetFindings(
        now=moment,
        stores=stores,
        sizes=sizes,
        weeks=weeks,
        cohort=cohort,
        repeated=members.repeated,
    )


def _weeks_of(where: str) -> pd.DataFrame:
    """Return the change of the numbers of memories and load-bearing ones of a store, by week."""
    past, _ = past_arrays(open_source(where), on_bad_row="keep")
    born = past.created_at
    ended = np.full_like(born, "NaT") if past.deleted_at is None else past.deleted_at
    bearing = past.load_bearing & (past.active | ~np.isnat(ended))
    moments = np.concatenate([born, np.maximum(born, ended)])
    signs = np.repeat([1, -1], len(born))
    changes = pd.DataFrame({"memories": signs, "load_bearing": signs * np.tile(bearing, 2)})
    changes["week"] = moments.astype("datetime64[W]").astype(np.int64)
    weeks: pd.DataFrame = changes[~np.isnat(moments)].groupby("week").sum()
    return weeks


def _weeks(members: Members, **how: Any) -> pd.DataFrame:
    """Return the sum of all stores' changes by week; see :attr:`FleetFindings.weeks`."""
    outcomes = outcomes_of(FleetTask("growth", _weeks_of, pd.DataFrame), members, **how)
    nothing = pd.DataFrame({"week": [], "memories": [], "load_bearing": []}, dtype=np.int64)
    changes = [outcome.value for outcome in outcomes if outcome.value is not None]
    together = pd.concat([nothing.set_index("week"), *changes]).groupby("week").sum()
    # add a row without change before each week, so that a line stays level up to it
    every = together.index.union(together.index[1:] - 1)
    together = together.reindex(every, fill_value=0).reset_index(names="week")
    weeks = together["week"].to_numpy().astype("datetime64[W]").astype("datetime64[s]")
    return together.assign(week=pd.to_datetime(weeks).tz_localize("UTC"))


def write_fleet_report(output: str | PathLike[str], findings: FleetFindings) -> Path:
    """Write the findings as one self-contained HTML file, readable by its owner alone.

    Parameters
    ----------
    output : str or Path
        The file to write.
    findings : FleetFindings
        What :func:`examine_fleet` returned.

    Returns
    -------
    Path
        The file.
    """
    return write_whole(Path(output), fleet_page(findings).encode(), limit=OWNER_ONLY)


def fleet_page(findings: FleetFindings) -> str:
    """Return the report as one HTML page."""
    from memlab.charts import plot_fleet_caps, plot_fleet_growth, plot_fleet_tokens
    from memlab.views.page import Section, html_of

    charts = {
        "tokens": [plot_fleet_tokens(findings.stores).figure],
        "growth": [plot_fleet_growth(findings.weeks).figure],
        "caps": [plot_fleet_caps(findings.sizes).figure],
    }
    sections = []
    for anchor, title, words, tables in _sections(findings):
        section = Section(anchor=anchor, title=title, words=words, tables=tables)
        sections.append((section, charts.get(anchor, [])))
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
    good = findings.sizes[findings.sizes["error"].isna()]
    return answer_of_fleet(
        stores=len(good),
        sized=int(good["keep_recent"].notna().sum()),
        loaded=int(good["boot_now"].sum()),
        left=int(good["boot_after"].sum()),
        deleted=int(good["deletes"].sum()),
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
    share = f"{prunable / boot:.0%} of it prunable" if boot else "nothing is loaded"
    yield "tokens at start", f"{boot:,}", f"{share} (characters / 4, an estimate)"
    yield "caps would save", f"{saved:,}", "tokens at start, of all stores together"
    free = float(stores["free_bytes"].sum())
    after_caps = f"{(free + findings.space_freed) / 1e6:,.1f} MB"
    remark = f"about, after the caps and a vacuum; {free / 1e6:,.1f} MB are free now"
    yield "space to give back", after_caps, remark


def _sections(findings: FleetFindings) -> Iterator[tuple[str, str, list[str], list[Table]]]:
    """Yield the anchor, the title, the paragraphs and the tables of each section."""
    good = findings.sizes[findings.sizes["error"].isna()]
    saved = good.assign(saved=good["boot_now"] - good["boot_after"])
    heavy = saved[saved["floor"] * 2 > saved["boot_now"]]
    silent = good[good["references"] == 0]
    yield "tokens", "What each store loads", [], []
    yield "growth", "How the fleet grew", [], []
    helped = _named(saved[saved["saved"] > 0], "saved", _caps_in_words)
    yield "caps", "Where caps help", [], helped
    words = "In no store is the floor more than half of what is loaded."
    if len(heavy):
        words = (
            f"In {counted(len(heavy), 'stores')} the floor is more than half of what is loaded; "
            "memlab floor STORE shows what takes it."
        )
    floors = _named(
        heavy,
        "floor",
        lambda row: f"{row['floor']:,} of {row['boot_now']:,} tokens are load-bearing",
    )
    yield "floor", "Where the floor is the problem", [words], floors
    unheard = _named(silent, "", lambda row: f"{counted(row['memories'])} written, no reference")
    words = _evidence_in_words(findings.cohort, len(silent))
    yield "evidence", "Stores without evidence", [words], unheard
    refused = _left_out(findings)
    yield "refused", "Left out", [] if refused else ["Every store was read."], refused
    every = _every_store(findings)
    yield "stores", "The stores that load most" if every.remark else "Every store", [], [every]


def _named(sizes: pd.DataFrame, most: str, words: Callable[[dict[Any, Any]], str]) -> list[Table]:
    """Return a table of the first stores, with `words` of each; none if there are no stores.

    `most` is the column to sort by, largest first; empty to keep the order.
    """
    if most:
        sizes = sizes.sort_values(most, ascending=False, kind="stable")
    shown = sizes.head(SHOWN).to_dict("records")
    rows = [(for_terminal(row["store"]), words(row)) for row in shown]
    if not rows:
        return []
    return [Table("", (), rows)]


def _caps_in_words(row: dict[Any, Any]) -> str:
    """Return a sentence on the caps of a store, and on the tokens that the safe one saves."""
    numbers = f"keep_recent = {row['keep_recent']:,} is safe, {row['likely']:,} is likely"
    return f"{numbers}: {counted(row['saved'], 'tokens')} fewer under the safe one"


def _evidence_in_words(cohort: Cohort, silent: int) -> str:
    """Return a sentence on the evidence for stores without references of their own."""
    if not silent:
        return "Every store has references of its own."
    by = f"{counted(silent, 'stores')} without a reference of their own: sized by"
    if not cohort.stores:
        return f"{by} other projects."
    fleet = f"{cohort.references:,} references of {cohort.stores:,} other stores of the fleet"
    return f"{by} {fleet} and by other projects."


def _left_out(findings: FleetFindings) -> list[Table]:
    """Return a table of the stores with an error, each once; none if there is no error."""
    both = pd.concat([findings.stores, findings.sizes])[["store", "error"]].dropna()
    refused = both.drop_duplicates("store").to_numpy().tolist()
    rows = [tuple(map(for_terminal, row)) for row in refused]
    if not rows:
        return []
    return [Table("", (), rows).first(LISTED, _WHERE)]


def _every_store(findings: FleetFindings) -> Table:
    """Return the table of stores, most tokens at start first."""
    header = ("store", "memories", "tokens at start", "floor", "safe cap", "likely cap", "after")
    names = ["memories", "boot_tokens", "floor_tokens", "keep_recent", "likely", "boot_after"]
    rows: list[tuple[Any, ...]] = []
    for store, *numbers in findings.listed[["store", *names]].itertuples(index=False):
        cells = ["–" if pd.isna(number) else int(number) for number in numbers]
        rows.append((for_terminal(store), *cells))
    return Table("", header, rows).first(LISTED, _WHERE)
