#!/usr/bin/env python3
"""Fit the laws of references and reads on public histories; write ``memlab/evidence/laws/``.

    python data/fit_law.py [FOLDER] [-o FOLDER]

FOLDER (``../shared/data`` if not given) holds ``history-*-memories.csv.gz`` and
``history-*-references.csv.gz`` for references, ``recalls-*-memories.csv.gz``,
``recalls-*-reads.csv.gz`` and ``recalls-groups.csv`` for reads.

The model. A history is cut into stretches in which the number of memories doubles: for references
from 250 memories to 500, to 1,000 and so on, for reads from 16. A reference (or a read) that is
made when N memories have been written and whose target has age rank r reaches
``log(1 + r) / log(1 + N)``. For each share s, the quantile s of the reaches in a stretch is

    y[project, stretch] = reach + u[project] + e[project, stretch] + sampling error

where u is normal with standard deviation `between`, e is normal with standard deviation `within`,
and the sampling error has variance `noise` / (number of references in the stretch). `noise` is
``s (1 - s)`` divided by the squared density of the reach, estimated in each project and averaged:
the asymptotic variance of a quantile. The other parameters are fitted by restricted maximum
likelihood. All references of one change count once, and so do all reads between two writes,
because they depend on each other. The stores of one owner are one project. A read is a hit of a
search on a memory that was present; a memory is counted once a day, as by a harvest.

`worth`: before each stretch but the first, a project is forecast by the law of the other projects
and by its own earlier references, which have the weight n / (n + worth). `worth` is the value under
which all forecasts are most likely. A project's own reference counts as many times as memories had
been written when it was made, because recent references say more about the next ones.

`pace`: least squares of the logarithm of the number of references on the logarithm of the number of
memories, over all stretches.
"""

import argparse
import csv
import gzip
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize, minimize_scalar

from memlab import columns as c
from memlab.evidence.defaults import DEFAULT_CONFIDENCE
from memlab.evidence.usage import (
    SIZES,
    PredictedReads,
    gain_of,
    score_recency_vs_use,
    served_by,
    verdict_of,
)
from memlab.evidence.use_times import days_since_1970
from memlab.sizing.prior import (
    EVIDENCE,
    STRETCH,
    Evidence,
    Project,
    ReachPrior,
    log_rank_fraction,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DATA: Final = Path(__file__).resolve().parent
SHARES: Final = (
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.55,
    0.6,
    0.65,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.925,
    0.95,
    0.97,
    0.98,
    0.99,
)
"""The quantiles that are fitted."""
FORECAST_SHARES: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""The quantiles whose forecasts are compared to fit `worth`."""
PROJECT_SHARES: Final = (0.5, 0.75, 0.9, 0.95, 0.99)
"""The quantiles that the law's file holds for each project, for the chart of the law."""
MIN_CHANGES: Final = {"references": 8, "reads": 5}
"""Minimum number of changes with references in a stretch whose quantiles are used."""
OBSERVED_RANGE: Final = {"references": (250, 16_000), "reads": (16, 256)}
"""Numbers of memories between which each law is fitted."""
SOURCE: Final = {
    "references": "references between merged pull requests of {}",
    "usage": "hits of searches in public workspaces of agents, kept in git: stores {}",
    "reads": "hits of searches in public workspaces of agents, kept in git: stores {}",
}
DIGITS: Final = 4


@dataclass(frozen=True)
class Stretch:
    """The references of a part of a history.

    Attributes
    ----------
    first_memory : int
        Number of memories written when the part began.
    at : array of int64, shape (references,)
        Number of memories written when each reference was made.
    reach : array of float64, shape (references,)
        How far back each reference reaches, in increasing order.
    """

    first_memory: int
    at: Ints
    reach: Floats

    @cached_property
    def changes(self) -> int:
        """Number of changes that the references were made in."""
        return len(np.unique(self.at))


@dataclass(frozen=True)
class History:
    """The references (or reads) of one project.

    Attributes
    ----------
    name : str
    memories : int
        Number of memories that were written.
    at : array of int64, shape (references,)
        Number of memories written when each reference was made.
    rank : array of int64, shape (references,)
        Age rank of the memory that is referred to; 1 is the newest.
    evidence : {'references', 'reads'}
    owner : str
        Owner of the store; empty if unknown.
    """

    name: str
    memories: int
    at: Ints
    rank: Ints
    evidence: Evidence = "references"
    owner: str = ""

    @property
    def project(self) -> str:
        """The owner, whose stores are one project; the name if the owner is unknown."""
        return self.owner or self.name

    def stretch(self, first: int, end: float) -> Stretch:
        """Select the references made when `first` to `end` (excluded) memories had been written."""
        selected = (self.at >= first) & (self.at < end)
        reach = log_rank_fraction(self.rank[selected], self.at[selected])
        order = np.argsort(reach, kind="stable")
        return Stretch(first, self.at[selected][order], reach[order])

    @cached_property
    def observed(self) -> Stretch:
        """The references in the range that the law is fitted on."""
        first, last = OBSERVED_RANGE[self.evidence]
        return self.stretch(first, last)

    @cached_property
    def beginnings(self) -> list[int]:
        """Numbers of memories at which a stretch begins: each is twice the one before."""
        first, last = OBSERVED_RANGE[self.evidence]
        doublings = range(int(np.log2(last / first)) + 1)
        return [first * 2**n for n in doublings if first * 2**n < self.memories]

    @cached_property
    def stretches(self) -> list[Stretch]:
        """The stretches with enough references, in order."""
        candidates = [self.stretch(first, STRETCH * first) for first in self.beginnings]
        return [stretch for stretch in candidates if stretch.changes >= MIN_CHANGES[self.evidence]]


class Forecast(NamedTuple):
    """A quantile of a stretch, and what was known of it before the stretch began.

    `own` is the quantile of the project's earlier references, `actual` that of the stretch.
    `references_before` and `references_in_stretch` count changes. `reach`, `between`, `within` and
    `noise` are the parameters of the law of the other projects.
    """

    own: float
    actual: float
    references_before: int
    references_in_stretch: int
    reach: float
    between: float
    within: float
    noise: float


def read_histories(folder: Path, evidence: Evidence = "references") -> list[History]:
    """Read the histories of one kind of evidence in a folder, in order of their names."""
    if evidence == "references":
        return [read_references(folder, name) for name in _names_in(folder, "history-*")]
    return [read_recalls(folder, name) for name in _names_in(folder, "recalls-*")]


def read_references(folder: Path, name: str) -> History:
    """Read a project's references: each earlier memory that a change names, once a change."""
    position = {}
    for row in _read_rows(folder / f"{name}-memories.csv.gz"):
        position[int(row["number"])] = int(row["position"])
    pairs = set()
    for row in _read_rows(folder / f"{name}-references.csv.gz"):
        if not row["by_number"]:
            continue
        at = position.get(int(float(row["by_number"])))
        target = int(row["target_position"])
        if at is not None and target < at:
            pairs.add((at, target))
    at, target = np.array(sorted(pairs)).T
    return History(name.removeprefix("history-"), len(position), at, at - target)


def read_recalls(folder: Path, name: str) -> History:
    """Read a store's reads as a harvest counts them: every hit, each memory once a day."""
    created = [row["born"] for row in _read_rows(folder / f"{name}-memories.csv.gz")]
    first_read: dict[tuple[str, int], str] = {}  # by day and memory
    for row in _read_rows(folder / f"{name}-reads.csv.gz"):
        day = row["at"][:10]
        first_read.setdefault((day, int(row["position"])), row["at"])
    # All times have one form and are in UTC, so that texts are in the order of time.
    in_order = sorted(created)
    pairs = []
    for (_, position), at in first_read.items():
        if created[position] <= at:
            pairs.append((bisect_right(in_order, at), position))
    written, target = np.array(sorted(pairs)).T
    with (folder / "recalls-groups.csv").open(newline="", encoding="utf-8") as file:
        owners = {row["store"]: row["group"] for row in csv.DictReader(file)}
    return History(
        name.removeprefix("recalls-"),
        len(created),
        written,
        np.maximum(written - target, 1),
        "reads",
        owners[name],
    )


def measure_usage(folder: Path) -> dict[str, Any]:
    """Measure how all stores together were read, by use and by age; shares are means of stores."""
    names = _names_in(folder, "recalls-*")
    stores = [_predict_reads(folder, name) for name in names]
    observed = np.sum([store.observed.sum(axis=0) for store in stores], axis=0)
    expected = np.sum([store.expected.sum(axis=0) for store in stores], axis=0)
    read_again = {}  # share of the memories that were read on so many days
    for days in (1, 2, 3):
        read_again[days] = np.mean([(store.times >= days).mean() for store in stores])
    served = np.mean([served_by(store).loc[list(SIZES)] for store in stores], axis=0)
    return {
        "stores": len(stores),
        "reads": sum(len(store.day) for store in stores),
        "chance": (observed / expected).round(2).tolist(),
        "again": [round(float(share), 3) for share in read_again.values()],
        "served": {
            "memories": served[:, :2].round(3).tolist(),
            "tokens": served[:, 2:].round(3).tolist(),
        },
        "source": SOURCE["usage"].format(
            ", ".join(name.removeprefix("recalls-") for name in names)
        ),
    }


def print_verdicts(folder: Path) -> None:
    """Print how many stores get each verdict by their own reads, and what a quarter serves."""
    verdicts = []
    gains = []
    token_gains_by_use = []
    for name in _names_in(folder, "recalls-*"):
        store = _predict_reads(folder, name)
        gain = gain_of(store, DEFAULT_CONFIDENCE)
        verdict = verdict_of(len(store.day), len(np.unique(store.day)), gain)
        verdicts.append(verdict)
        gains.append(gain[0])
        if verdict == "use":
            served = served_by(store).loc[0.25]
            token_gains_by_use.append(served[c.TOKENS, "most active"] - served[c.TOKENS, "newest"])
    for verdict in sorted(set(verdicts)):
        print(f"{verdicts.count(verdict)} stores: {verdict}")
    worst = np.quantile(gains, 0.1)
    print(f"a quarter of the memories, worst tenth of the stores: {worst:+.3f}")
    losing = sum(gain < 0 for gain in token_gains_by_use)
    print(f"a quarter of the tokens serves less by use: {losing}")


def _predict_reads(folder: Path, name: str) -> PredictedReads:
    """Predict every hit of each search of a store from the reads before it."""
    memories = list(_read_rows(folder / f"{name}-memories.csv.gz"))
    hits = list(_read_rows(folder / f"{name}-reads.csv.gz"))
    chars = np.array([int(row["chars"] or 2_000) for row in memories])
    tokens = -(-chars // 4)  # rounded up
    removed = _days_of([row["deleted"] or "9999-12-31" for row in memories])
    return score_recency_vs_use(
        _days_of([row["born"] for row in memories]),
        np.floor(removed).astype(np.int64),
        tokens,
        _days_of([row["at"] for row in hits]),
        np.array([int(row["position"]) for row in hits]),
    )


def _days_of(times: Iterable[str]) -> Floats:
    """Convert times in UTC to days since 1970."""
    without_zone = [time.removesuffix("Z").removesuffix("+00:00") for time in times]
    return days_since_1970(np.array(without_zone, "datetime64[us]"))


def fit(histories: Sequence[History], *, worth: float | None = None) -> ReachPrior:
    """Fit the law; if `worth` is given, all other parameters."""
    law = _fit_without_worth(histories, SHARES)
    if worth is None:
        laws_of_others = {}
        for project in {history.project for history in histories}:
            others = [history for history in histories if history.project != project]
            laws_of_others[project] = _fit_without_worth(others, FORECAST_SHARES)
        worth = _fit_worth(histories, laws_of_others)
    return replace(law, worth=round(worth, 1))


def _fit_without_worth(histories: Sequence[History], shares: Sequence[float]) -> ReachPrior:
    """Fit all parameters but `worth`, which is 0."""
    stretches = []
    names = []
    for history in histories:
        stretches += history.stretches
        names += [history.project] * len(history.stretches)
    project = np.unique(names, return_inverse=True)[1]
    changes = np.array([stretch.changes for stretch in stretches])
    rows = []
    for share in shares:
        noise = _estimate_noise(histories, share)
        reach = np.array([quantile(stretch.reach, share) for stretch in stretches])
        mean, between, within = _restricted_likelihood(reach, project, noise / changes)
        rows.append((mean, between, within, noise))
    reach, between, within, noise = np.array(rows).T.round(DIGITS).tolist()
    evidence = histories[0].evidence
    return ReachPrior(
        tuple(shares),
        reach=tuple(reach),
        between=tuple(between),
        within=tuple(within),
        noise=tuple(noise),
        worth=0.0,
        pace=_fit_pace(histories),
        seen=OBSERVED_RANGE[evidence],
        projects=tuple(_project_of(history) for history in histories),
        source=SOURCE[evidence].format(", ".join(history.name for history in histories)),
    )


def quantile(values: Floats, share: float) -> float:
    """Find the smallest of the sorted values such that `share` of the values are not above it."""
    position = int(np.ceil(share * len(values) - 1e-9)) - 1
    return float(values[max(position, 0)])


def _restricted_likelihood(
    reach: Floats, project: Ints, sampling: Floats
) -> tuple[float, float, float]:
    """Estimate the mean and the standard deviations between and within projects.

    `sampling` is the variance of each stretch's sampling error. The covariance matrix of a project
    is a diagonal matrix plus a constant, so that its inverse has a closed form (Sherman and
    Morrison 1950).
    """

    def sum_by_project(values: Floats) -> Floats:
        return np.bincount(project, values).astype(np.float64)

    def mean_and_loss(log_sd: Floats) -> tuple[float, float]:
        between, within = np.exp(2 * np.asarray(log_sd))
        precision = 1 / (within + sampling)
        shrinkage = 1 / (1 + between * sum_by_project(precision))
        information = (sum_by_project(precision) * shrinkage).sum()
        mean = (sum_by_project(precision * reach) * shrinkage).sum() / information
        residual = reach - mean
        explained = between * (sum_by_project(precision * residual) ** 2 * shrinkage).sum()
        squares = (precision * residual**2).sum() - explained
        log_determinant = -np.log(precision).sum() - np.log(shrinkage).sum()
        return float(mean), float(log_determinant + np.log(information) + squares)

    solution = minimize(
        lambda log_sd: mean_and_loss(log_sd)[1],
        np.log([0.07, 0.04]),
        method="L-BFGS-B",
        bounds=[(np.log(0.005), np.log(0.5))] * 2,
        options={"ftol": 1e-13, "gtol": 1e-7},
    )
    mean, _ = mean_and_loss(solution.x)
    between, within = np.exp(solution.x)
    return mean, float(between), float(within)


def _estimate_noise(histories: Sequence[History], share: float) -> float:
    """Estimate the variance of a quantile of one reference, in each project."""
    half_width = min(0.05, (1 - share) / 2, share / 2)
    spacings = []
    for history in histories:
        reach = history.observed.reach
        spacings.append(quantile(reach, share + half_width) - quantile(reach, share - half_width))
    inverse_density = float(np.mean(spacings)) / (2 * half_width)
    return share * (1 - share) * inverse_density**2


def _fit_worth(histories: Sequence[History], laws_of_others: dict[str, ReachPrior]) -> float:
    """Fit the worth under which the forecasts of all projects are most likely."""
    forecasts: list[Forecast] = []
    for history in histories:
        forecasts += _forecasts_of(history, laws_of_others[history.project])
    column = dict(zip(Forecast._fields, np.array(forecasts).T, strict=True))

    def loss(log_worth: float) -> float:
        before = column["references_before"]
        weight = before / (before + np.exp(log_worth))
        variance = (
            (1 - weight) * column["between"] ** 2
            + column["within"] ** 2
            + column["noise"] / column["references_in_stretch"]
        )
        error = column["actual"] - weight * column["own"] - (1 - weight) * column["reach"]
        return float((np.log(variance) + error**2 / variance).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(0, 10), method="bounded").x))


def _forecasts_of(history: History, law: ReachPrior) -> Iterator[Forecast]:
    """Yield the forecast of each stretch with earlier references, for each share of the law."""
    for stretch in history.stretches:
        before = history.stretch(0, stretch.first_memory)
        if len(before.at) == 0:
            continue
        for position, share in enumerate(law.shares):
            yield Forecast(
                own=_weighted_quantile(before, share),
                actual=quantile(stretch.reach, share),
                references_before=before.changes,
                references_in_stretch=stretch.changes,
                reach=law.reach[position],
                between=law.between[position],
                within=law.within[position],
                noise=law.noise[position],
            )


def _weighted_quantile(stretch: Stretch, share: float) -> float:
    """Find a quantile of references with the number of memories written as their weights."""
    weight = np.cumsum(stretch.at)
    position = np.searchsorted(weight, share * weight[-1] * (1 - 1e-12))
    return float(stretch.reach[position])


def _fit_pace(histories: Sequence[History]) -> tuple[float, float]:
    """Fit the scale and the power of the number of references in a stretch."""
    memories = []
    references = []
    for history in histories:
        for first in history.beginnings:
            last = min(STRETCH * first, history.memories)
            if last >= 1.5 * first:
                changes = history.stretch(first, last).changes
                memories.append(first)
                references.append((changes + 0.5) * first / (last - first))
    power, scale = np.polyfit(np.log(memories), np.log(references), 1)
    return round(float(np.exp(scale)), 8), round(float(power), DIGITS)


def _project_of(history: History) -> Project:
    """Make the numbers from which the chart of the law draws a project's line."""
    reach = {}
    for share in PROJECT_SHARES:
        quantiles = [quantile(stretch.reach, share) for stretch in history.stretches]
        reach[str(share)] = tuple(round(value, 3) for value in quantiles)
    first_memories = tuple(stretch.first_memory for stretch in history.stretches)
    return Project(history.name, first_memories, reach)


def _names_in(folder: Path, pattern: str) -> list[str]:
    """List the histories in a folder that match a pattern, in order of their names."""
    suffix = "-memories.csv.gz"
    return [path.name.removesuffix(suffix) for path in sorted(folder.glob(pattern + suffix))]


def _read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Read the rows of a compressed CSV file, as texts by column."""
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _to_json(fields: dict[str, Any]) -> str:
    """Write fields as JSON, one a line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Fit the laws, write them to their files, and print their parameters."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    shared = DATA.parents[1] / "shared" / "data"
    laws = DATA.parent / "memlab" / "evidence" / "laws"
    parser.add_argument("folder", type=Path, nargs="?", default=shared)
    parser.add_argument("-o", "--output", type=Path, default=laws)
    arguments = parser.parse_args()
    for evidence in EVIDENCE:
        histories = read_histories(arguments.folder, evidence)
        if not histories:
            parser.error(f"{arguments.folder} holds no histories of {evidence}")
        law = fit(histories)
        fields = vars(law) | {"projects": [project._asdict() for project in law.projects]}
        (arguments.output / f"{evidence}.json").write_text(_to_json(fields), encoding="utf-8")
        print(f"{evidence}\nshare   reach  between  within   noise")
        for line in zip(law.shares, law.reach, law.between, law.within, law.noise, strict=True):
            print("{:5.3f}  {:6.4f}   {:6.4f}  {:6.4f}  {:6.4f}".format(*line))
        print(f"worth {law.worth}, pace {law.pace}")
    usage = measure_usage(arguments.folder)
    (arguments.output / "usage.json").write_text(_to_json(usage), encoding="utf-8")
    print(_to_json(usage))
    print_verdicts(arguments.folder)


if __name__ == "__main__":
    main()
