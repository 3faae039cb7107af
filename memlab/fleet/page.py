"""One page on many stores: what they load, where caps help, what to look at."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab.clock import moment_or_now
from memlab.errors import ArchiveError
from memlab.evidence.past import load_past
from memlab.extras import import_extra
from memlab.files import ALONE, write_whole
from memlab.fleet.capping import size
from memlab.fleet.cohort import Cohort, cohort_of
from memlab.fleet.names import Members, Sources, members_of
from memlab.fleet.running import Progress, Runner, outcomes_of
from memlab.fleet.surveying import survey
from memlab.frame.arrays import Arrays, arrays_of
from memlab.frame.labelling import read_memories
from memlab.sources.base import archive_at
from memlab.sources.opening import open_source
from memlab.store.archive_file import is_begun
from memlab.text import counted, for_terminal

KEPT_APART: Final = ("survey", "size")
"""Folders of the passes whose results are kept."""

LISTED: Final = 1_000
"""Stores that have a line of their own on the page: those that load most."""
SHOWN: Final = 10
"""Stores that a section names."""

Telling = Callable[[str], Progress | None]
"""Returns who is told how far a pass is, by what the pass is called."""


class Weeks(NamedTuple):
    """How a store grew.

    Attributes
    ----------
    counts : dict of int to (int, int)
        By the week's number since 1970: how many more memories, and how many more load-bearing
        ones, there were at its end than before it.
    """

    counts: dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Dating:
    """The work of counting memories by week, those among them that the archive keeps."""

    def __call__(self, where: str, given: Any = None) -> Weeks:  # noqa: ARG002 - needs none
        """Return the weeks of one store; memories without a time are left out."""
        past = _past_of(where)
        born = past.created_at
        ended = np.full_like(born, "NaT") if past.deleted_at is None else past.deleted_at
        dated, gone = ~np.isnat(born), ~np.isnat(ended)
        bearing = past.load_bearing & (past.active | gone)
        went = dated & gone
        moments = np.concatenate([born[dated], np.maximum(born, ended)[went]])
        signs = np.repeat([1, -1], [dated.sum(), went.sum()])
        bears = signs * np.concatenate([bearing[dated], bearing[went]])
        weeks = moments.astype("datetime64[D]").astype(np.int64) // 7
        numbers, place = np.unique(weeks, return_inverse=True)
        more, bearers = (
            np.bincount(place, each, minlength=len(numbers)).astype(int).tolist()
            for each in (signs, bears)
        )
        return Weeks(dict(zip(numbers.tolist(), zip(more, bearers, strict=True), strict=True)))


def _past_of(where: str) -> Arrays:
    """Return what a store holds and what its archive keeps, as far as that can be read."""
    source = open_source(where)
    with suppress(ArchiveError):
        if is_begun(archive_at(source)):
            return arrays_of(load_past(source, on_bad_row="keep"))
    return read_memories(source, on_bad_row="keep", with_words=False).arrays


@dataclass(frozen=True)
class FleetFindings:
    """What is on the page.

    Attributes
    ----------
    now : datetime
        When the stores were looked at.
    stores : DataFrame
        As :func:`memlab.fleet.survey` returns it.
    sizes : DataFrame
        As :func:`memlab.fleet.size` returns it.
    weeks : DataFrame
        As :func:`memlab.charts.plot_fleet_growth` takes it.
    cohort : Cohort
        What the stores share.
    repeated : int
        Names that meant a store that was named before.
    """

    now: datetime
    stores: pd.DataFrame
    sizes: pd.DataFrame
    weeks: pd.DataFrame
    cohort: Cohort
    repeated: int


def examine_fleet(
    sources: Sources,
    *,
    now: datetime | None = None,
    token_budget: int | None = None,
    runner: Runner | None = None,
    telling: Telling = lambda _: None,
    out: str | PathLike[str] | None = None,
) -> FleetFindings:
    """Look at every store for a report: several passes that read only.

    Parameters
    ----------
    sources, now, runner
        As for :func:`memlab.fleet.survey`.
    token_budget : int, optional
        As for :func:`memlab.fleet.size`.
    telling : callable
        Returns who is told how far each pass is.
    out : str or Path, optional
        A folder in which the results of the two long passes are kept as they come, in ``survey``
        and ``size`` below it; see :func:`memlab.fleet.survey`.

    Returns
    -------
    FleetFindings
        What :func:`write_fleet_report` takes. A store that cannot be read is a row of ``stores``
        and of ``sizes`` with its error, and counts nowhere else.

    Raises
    ------
    MemlabError
        When no store was named, `out` holds something else, or nobody is left to do the work.
    ValueError
        When `now` has no time zone, or the budget is out of its range.
    """
    kept = {name: None if out is None else Path(out) / name for name in KEPT_APART}
    moment = moment_or_now(now, call="memlab.fleet.examine_fleet")
    members = members_of(sources)
    stores = survey(
        members, now=moment, runner=runner, progress=telling("survey"), out=kept["survey"]
    )
    cohort = cohort_of(members, runner=runner, progress=telling("references"))
    sizes = size(
        members,
        token_budget=token_budget,
        cohort=cohort,
        runner=runner,
        progress=telling("size"),
        out=kept["size"],
    )
    weeks = _weeks(members, runner, telling("growth"))
    return FleetFindings(moment, stores, sizes, weeks, cohort, members.repeated)


def write_fleet_report(output: str | PathLike[str], findings: FleetFindings) -> Path:
    """Write what was found as one self-contained HTML file, readable by you alone.

    Parameters
    ----------
    output : str or Path
        The file to write; an existing one is replaced.
    findings : FleetFindings
        As :func:`memlab.fleet.examine_fleet` returns it.

    Raises
    ------
    MissingExtraError
        When the ``report`` extra is not installed.
    """
    return write_whole(Path(output), fleet_page(findings).encode(), limit=ALONE)


def fleet_page(findings: FleetFindings) -> str:
    """Return the report as one HTML page."""
    jinja2 = import_extra("jinja2", extra="report")
    from memlab.charts.palette import DARK, LIGHT, roles

    here = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([here, here.parent / "report"]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["counted"] = counted
    text: str = environment.get_template("fleet.html.jinja").render(
        findings=findings,
        facts=list(_facts(findings)),
        sections=list(_sections(findings)),
        lines=_lines(findings),
        left=max(0, int(findings.stores["error"].isna().sum()) - LISTED),
        refused=_refused(findings),
        version=version("memlab"),
        light=roles(LIGHT),
        dark=roles(DARK),
    )
    return text


def _weeks(members: Members, runner: Runner | None, progress: Progress | None) -> pd.DataFrame:
    together: dict[int, list[int]] = {}
    for outcome in outcomes_of(Dating(), members, runner=runner, progress=progress):
        for week, counts in (outcome.value.counts if outcome.value else {}).items():
            sums = together.setdefault(week, [0, 0])
            together[week] = [total + one for total, one in zip(sums, counts, strict=True)]
    for week in sorted(together)[1:]:
        together.setdefault(week - 1, [0, 0])  # so that a line stays level up to there
    numbers = sorted(together)
    days = np.array(numbers, dtype=np.int64) * 7
    columns = {"week": pd.to_datetime(days.astype("datetime64[D]")).tz_localize("UTC")}
    weeks = pd.DataFrame(columns)
    weeks["memories"] = np.array([together[week][0] for week in numbers], dtype=np.int64)
    weeks["load_bearing"] = np.array([together[week][1] for week in numbers], dtype=np.int64)
    return weeks


def _facts(findings: FleetFindings) -> Iterator[tuple[str, str, str]]:
    stores, sizes = findings.stores, findings.sizes
    boot, noise = int(stores["boot_tokens"].sum()), int(stores["prunable_tokens"].sum())
    saved = int((sizes["boot_now"] - sizes["boot_after"]).sum())
    bad = int(stores["error"].notna().sum())
    yield "stores", f"{len(stores):,}", f"{bad:,} could not be read" if bad else "all were read"
    share = f"{noise / boot:.0%} of it noise" if boot else "nothing is loaded"
    yield "tokens at start", f"{boot:,}", f"{share} (characters / 4, an estimate)"
    yield "caps would save", f"{saved:,}", "tokens at start, of all stores together"
    free = float(stores["free_bytes"].sum())
    back, now = (f"{size / 1e6:,.1f} MB" for size in (free + space_freed(findings), free))
    yield "space to give back", back, f"about, after the caps and a vacuum; {now} are free now"


def space_freed(findings: FleetFindings) -> float:
    """Return about how many bytes the caps would free: what goes, as a share of what is used."""
    both = findings.stores.merge(
        findings.sizes[["store", "deletes"]], on="store", validate="one_to_one"
    )
    share = both["deletes"] / both["memories"].where(both["memories"] > 0)
    return float(((both["bytes"] - both["free_bytes"]) * share).fillna(0).sum())


def _sections(findings: FleetFindings) -> Iterator[dict[str, Any]]:
    """Yield the sections: title, words, chart, and stores to look at."""
    from memlab.charts import plot_fleet_caps, plot_fleet_growth, plot_fleet_tokens

    stores, sizes = findings.stores, findings.sizes
    good = sizes[sizes["error"].isna()]
    saved = good.assign(saved=good["boot_now"] - good["boot_after"])
    most = saved[saved["saved"] > 0].sort_values("saved", ascending=False, kind="stable")
    floor = saved[saved["floor"] * 2 > saved["boot_now"]]
    floor = floor.sort_values("floor", ascending=False, kind="stable")
    silent = good[good["references"] == 0]
    yield _section(
        "tokens", "What each store loads", plot_fleet_tokens(stores).figure, (), findings
    )
    yield _section(
        "growth", "How the fleet grew", plot_fleet_growth(findings.weeks).figure, (), findings
    )
    yield _section(
        "caps",
        "Where caps help",
        plot_fleet_caps(sizes).figure,
        [
            (row["store"], f"keep_recent = {row['keep_recent']:,}: {row['saved']:,} tokens fewer")
            for row in most.head(SHOWN).to_dict("records")
        ],
        findings,
    )
    yield _section(
        "floor",
        "Where the floor is the problem",
        None,
        [
            (row["store"], f"{row['floor']:,} of {row['boot_now']:,} tokens are load-bearing")
            for row in floor.head(SHOWN).to_dict("records")
        ],
        findings,
        f"In {counted(len(floor), 'stores')} the floor is more than half of what is loaded; memlab "
        "floor STORE shows what takes it"
        if len(floor)
        else "In no store is the floor more than half of what is loaded",
    )
    yield _section(
        "evidence",
        "Stores without evidence",
        None,
        [
            (row["store"], f"{row['memories']:,} memories written, no reference")
            for row in silent.head(SHOWN).to_dict("records")
        ],
        findings,
        _evidence_in_words(findings.cohort, len(silent)),
    )


def _evidence_in_words(cohort: Cohort, silent: int) -> str:
    if not silent:
        return "Every store has references of its own"
    fleet = (
        f"{cohort.references:,} references of {cohort.stores:,} other stores of the fleet and by "
        if cohort.stores
        else ""
    )
    return (
        f"{counted(silent, 'stores')} without a reference of their own: sized by {fleet}other "
        "projects"
    )


def _section(
    anchor: str,
    title: str,
    chart: Any,
    named: Sequence[tuple[str, str]],
    findings: FleetFindings,
    words: str = "",
) -> dict[str, Any]:
    listed = _anchors(findings)
    return {
        "anchor": anchor,
        "title": title,
        "words": words,
        "chart": "" if chart is None else chart._repr_html_(),
        "stores": [(listed.get(name), for_terminal(name), said) for name, said in named],
    }


def _ordered(findings: FleetFindings) -> pd.DataFrame:
    good = findings.stores[findings.stores["error"].isna()]
    return good.sort_values("boot_tokens", ascending=False, kind="stable").head(LISTED)


def _anchors(findings: FleetFindings) -> dict[str, str]:
    return {name: f"s{number}" for number, name in enumerate(_ordered(findings)["store"], start=1)}


def _lines(findings: FleetFindings) -> list[tuple[str, tuple[str, ...]]]:
    """Return the stores that load most: an anchor and the cells of each."""
    sizes = findings.sizes.set_index("store")
    lines = []
    for number, row in enumerate(_ordered(findings).to_dict("records"), start=1):
        one = sizes.loc[row["store"]]
        numbers = [row[name] for name in ("memories", "boot_tokens", "floor_tokens")]
        numbers += [one["keep_recent"], one["boot_after"]]
        cells = ["–" if pd.isna(each) else f"{each:,}" for each in numbers]
        lines.append((f"s{number}", (for_terminal(row["store"]), *cells)))
    return lines


def _refused(findings: FleetFindings) -> list[tuple[str, str]]:
    """Return the stores with an error, of survey or size, each once."""
    both = pd.concat([findings.stores, findings.sizes])[["store", "error"]].dropna()
    each = both.drop_duplicates("store").itertuples(index=False)
    return [(for_terminal(store), for_terminal(error)) for store, error in each]
