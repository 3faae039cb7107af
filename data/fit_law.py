#!/usr/bin/env python3
"""Fit the laws of references and reads on public histories; write ``memlab/evidence/laws/``.

    python data/fit_law.py [FOLDER] [-o FOLDER]  FOLDER holds history-*-memories.csv.gz and
                                                 history-*-references.csv.gz, recalls-*-memories,
                                                 recalls-*-reads and recalls-groups.csv;
                                                 ../shared/data if none

What is fitted. A history is cut into stretches in which it doubles: references from 250 memories to
500, to 1,000 and so on, reads from 16. A need that arises when N memories have been written and
whose target has age rank r reaches ``log(1 + r) / log(1 + N)``. For each share s, the reach that
serves s of a stretch's needs is

    y[project, stretch] = reach + u[project] + e[project, stretch] + sample error

with u normal with standard deviation `between`, e with `within`, and the sample error with variance
`noise` / references of the stretch. `noise` is ``s (1 - s)`` over the squared density of the reach,
taken inside each project and averaged: the asymptotic variance of a quantile. The rest is fitted by
restricted maximum likelihood. References of one change count once: they arose in one sitting; so do
reads between two writes. Stores of one owner are one project. A read is a hit of a search on a note
that was there, as a harvest counts them: every hit, and one note once a day.

`worth`: before each stretch but its first, a project is forecast by the law of the other projects
and by its own earlier references, weighed n / (n + worth); the worth under which all forecasts are
most likely. A reference of its own counts as the memories written when it arose: what is recent
says more of what comes next.
`pace`: least squares of the logarithm of references on that of memories, over all stretches.
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
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize, minimize_scalar

from memlab import columns as c
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
    DEFAULT_CONFIDENCE,
    EVIDENCE,
    STRETCH,
    Evidence,
    Project,
    ReachPrior,
    log_rank_fraction,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

HERE: Final = Path(__file__).resolve().parent
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
WEIGHED: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares at which forecasts are compared to find the worth."""
DRAWN: Final = (0.5, 0.75, 0.9, 0.95, 0.99)
"""Shares for which each project's own line is kept."""
FEWEST: Final = {"references": 8, "reads": 5}
"""Needs without which a stretch has no quantile."""
SEEN: Final = {"references": (250, 16_000), "reads": (16, 256)}
"""Memories written at which each law is seen."""
SOURCE: Final = {
    "references": "references between merged pull requests of {}",
    "usage": "hits of searches in public workspaces of agents, kept in git: stores {}",
    "reads": "hits of searches in public workspaces of agents, kept in git: stores {}",
}
DIGITS: Final = 4


@dataclass(frozen=True)
class Stretch:
    """References of a part of a history: memories written when each arose, and how far it reached.

    Attributes
    ----------
    begun : int
        Memories written when the part began.
    at : array of int64
    reach : array of float64
        In increasing order; `at` goes with it.
    """

    begun: int
    at: Ints
    reach: Floats

    @cached_property
    def sittings(self) -> int:
        """How many changes the references were made in."""
        return len(np.unique(self.at))


@dataclass(frozen=True)
class History:
    """A project's needs: memories written when each arose, and its target's age rank."""

    name: str
    memories: int
    at: Ints
    rank: Ints
    evidence: Evidence = "references"
    owner: str = ""

    @property
    def project(self) -> str:
        """What it shares with others of its owner."""
        return self.owner or self.name

    def part(self, first: float, last: float) -> Stretch:
        """Return the references that arose from `first` up to and without `last` memories."""
        within = (self.at >= first) & (self.at < last)
        reach = log_rank_fraction(self.rank[within], self.at[within])
        order = np.argsort(reach, kind="stable")
        return Stretch(int(first), self.at[within][order], reach[order])

    @cached_property
    def seen(self) -> Stretch:
        """The references at which the law is seen."""
        return self.part(*SEEN[self.evidence])

    @cached_property
    def beginnings(self) -> list[int]:
        """Memories at which a stretch begins: each doubles what there is."""
        first, last = SEEN[self.evidence]
        doublings = range(int(np.log2(last / first)) + 1)
        return [first * 2**n for n in doublings if first * 2**n < self.memories]

    @cached_property
    def stretches(self) -> list[Stretch]:
        """The stretches that have references enough, in order."""
        found = (self.part(first, STRETCH * first) for first in self.beginnings)
        return [stretch for stretch in found if stretch.sittings >= FEWEST[self.evidence]]


def read_histories(folder: Path, evidence: Evidence = "references") -> list[History]:
    """Return the histories of one kind of evidence in a folder, by name."""
    begins, read = {"references": ("history-", read_history), "reads": ("recalls-", read_recalls)}[
        evidence
    ]
    names = (path.name for path in sorted(folder.glob(f"{begins}*-memories.csv.gz")))
    return [read(folder, name.removesuffix("-memories.csv.gz")) for name in names]


def read_history(folder: Path, name: str) -> History:
    """Return a project's references: each earlier memory that a change names, once."""
    position = {
        int(row["number"]): int(row["position"])
        for row in rows_of(folder / f"{name}-memories.csv.gz")
    }
    named = {
        (position[int(float(row["by_number"]))], int(row["target_position"]))
        for row in rows_of(folder / f"{name}-references.csv.gz")
        if row["by_number"] and int(float(row["by_number"])) in position
    }
    pairs = np.array(sorted((at, target) for at, target in named if target < at))
    rank = pairs[:, 0] - pairs[:, 1]
    return History(name.removeprefix("history-"), len(position), pairs[:, 0], rank)


def read_recalls(folder: Path, name: str) -> History:
    """Return a store's reads as a harvest counts them: every hit, each note once a day."""
    born = [row["born"] for row in rows_of(folder / f"{name}-memories.csv.gz")]
    days = {
        (row["at"][:10], int(row["position"])): row["at"]
        for row in reversed(list(rows_of(folder / f"{name}-reads.csv.gz")))
    }
    written = sorted(born)  # of one form and in UTC: their order is that of time
    pairs = np.array(
        sorted(
            (bisect_right(written, at), place)
            for (_, place), at in days.items()
            if born[place] <= at
        )
    )
    with (folder / "recalls-groups.csv").open(newline="", encoding="utf-8") as file:
        owners = {row["store"]: row["group"] for row in csv.DictReader(file)}
    rank = np.maximum(pairs[:, 0] - pairs[:, 1], 1)
    return History(
        name.removeprefix("recalls-"), len(born), pairs[:, 0], rank, "reads", owners[name]
    )


def measure_usage(folder: Path) -> dict[str, Any]:
    """Return how all stores together were read, by use and by age; shares are means of stores."""
    names = [
        path.name.removesuffix("-memories.csv.gz") for path in sorted(folder.glob("recalls-*-m*"))
    ]
    stores = [_looked_back(folder, name) for name in names]
    seen, expected = (
        sum(getattr(one, each).sum(axis=0) for one in stores) for each in ("seen", "expected")
    )
    served = np.mean([served_by(one).loc[list(SIZES)] for one in stores], axis=0)
    return {
        "stores": len(stores),
        "reads": int(sum(len(one.day) for one in stores)),
        "chance": (seen / expected).round(2).tolist(),
        "again": [
            round(float(np.mean([(one.times >= days).mean() for one in stores])), 3)
            for days in (1, 2, 3)
        ],
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
    rows = []
    for path in sorted(folder.glob("recalls-*-m*")):
        store = _looked_back(folder, path.name.removesuffix("-memories.csv.gz"))
        gain = gain_of(store, DEFAULT_CONFIDENCE)
        served = served_by(store).loc[0.25]
        rows.append(
            (
                verdict_of(len(store.day), len(np.unique(store.day)), gain),
                gain[0],
                served[c.TOKENS, "most active"] - served[c.TOKENS, "newest"],
            )
        )
    verdicts, gains, gains_of_tokens = zip(*rows, strict=True)
    for verdict in sorted(set(verdicts)):
        print(f"{verdicts.count(verdict)} stores: {verdict}")
    by_tokens = [
        gain for gain, verdict in zip(gains_of_tokens, verdicts, strict=True) if verdict == "use"
    ]
    print(f"a quarter of the memories, worst tenth of the stores: {np.quantile(gains, 0.1):+.3f}")
    print(f"a quarter of the tokens serves less by use: {sum(gain < 0 for gain in by_tokens)}")


def _looked_back(folder: Path, name: str) -> PredictedReads:
    """Look at every hit of each search, as the law of reads and a harvest do."""
    memories = list(rows_of(folder / f"{name}-memories.csv.gz"))
    hits = list(rows_of(folder / f"{name}-reads.csv.gz"))
    chars = np.array([int(row["chars"] or 2_000) for row in memories])
    left = _moments(row["deleted"] or "9999-12-31" for row in memories)
    return score_recency_vs_use(
        _moments(row["born"] for row in memories),
        np.floor(left).astype(np.int64),
        -(-chars // 4),
        _moments(row["at"] for row in hits),
        np.array([int(row["position"]) for row in hits]),
    )


def _moments(times: Iterable[str]) -> Floats:
    """Return times in days since 1970."""
    moments = [time.removesuffix("Z").removesuffix("+00:00") for time in times]
    return days_since_1970(np.array(moments, "datetime64[us]"))


def fit(histories: Sequence[History], *, worth: float | None = None) -> ReachPrior:
    """Fit the law; with `worth` given, all but that."""
    law = _without_worth(histories)
    if worth is None:
        others = {
            project: _without_worth([one for one in histories if one.project != project], WEIGHED)
            for project in {each.project for each in histories}
        }
        worth = _most_likely_worth(histories, others)
    return replace(law, worth=round(worth, 1))


def _without_worth(histories: Sequence[History], shares: Sequence[float] = SHARES) -> ReachPrior:
    stretches = [stretch for history in histories for stretch in history.stretches]
    projects = [history.project for history in histories for _ in history.stretches]
    project = np.unique(projects, return_inverse=True)[1]
    count = np.array([stretch.sittings for stretch in stretches])
    columns = []
    for share in shares:
        noise = _noise(histories, share)
        reach = np.array([quantile(stretch.reach, share) for stretch in stretches])
        columns.append((*_restricted_likelihood(reach, project, noise / count), noise))
    fitted = [tuple(column.tolist()) for column in np.array(columns).T.round(DIGITS)]
    return ReachPrior(
        tuple(shares),
        reach=fitted[0],
        between=fitted[1],
        within=fitted[2],
        noise=fitted[3],
        worth=0.0,
        pace=_pace(histories),
        seen=SEEN[histories[0].evidence],
        projects=tuple(map(_line, histories)),
        source=SOURCE[histories[0].evidence].format(", ".join(each.name for each in histories)),
    )


def quantile(values: Floats, share: float) -> float:
    """Return the smallest of the sorted values that `share` of them do not pass."""
    return float(values[max(int(np.ceil(share * len(values) - 1e-9)) - 1, 0)])


def _restricted_likelihood(
    reach: Floats, project: Ints, sampling: Floats
) -> tuple[float, float, float]:
    """Return mean, and standard deviations between and within projects.

    Inside a project the covariance is a diagonal and a constant, so its inverse is known
    (Sherman and Morrison 1950).
    """

    def sums(values: Floats) -> Floats:
        return np.bincount(project, values).astype(np.float64)

    def mean_and_loss(log_sd: Floats) -> tuple[float, float]:
        between, within = np.exp(2 * np.asarray(log_sd))
        sure = 1 / (within + sampling)
        shrunk = 1 / (1 + between * sums(sure))
        information = (sums(sure) * shrunk).sum()
        mean = (sums(sure * reach) * shrunk).sum() / information
        rest = reach - mean
        square = (sure * rest**2).sum() - between * (sums(sure * rest) ** 2 * shrunk).sum()
        loss = -np.log(sure).sum() - np.log(shrunk).sum() + np.log(information) + square
        return float(mean), float(loss)

    found = minimize(
        lambda log_sd: mean_and_loss(log_sd)[1],
        np.log([0.07, 0.04]),
        method="L-BFGS-B",
        bounds=[(np.log(0.005), np.log(0.5))] * 2,
        options={"ftol": 1e-13, "gtol": 1e-7},
    )
    between, within = np.exp(found.x)
    return mean_and_loss(found.x)[0], float(between), float(within)


def _noise(histories: Sequence[History], share: float) -> float:
    """Return the variance of one reference's worth of a quantile, inside projects."""
    half = min(0.05, (1 - share) / 2, share / 2)
    spacing = [
        quantile(reach, share + half) - quantile(reach, share - half)
        for reach in (history.seen.reach for history in histories)
    ]
    return share * (1 - share) * (float(np.mean(spacing)) / (2 * half)) ** 2


def _most_likely_worth(histories: Sequence[History], others: dict[str, ReachPrior]) -> float:
    """Return the worth under which the projects' own pasts forecast them best."""
    cases = [each for one in histories for each in _forecasts(one, others[one.project])]
    own, next_one, references, ahead = np.array([case[:4] for case in cases]).T
    mean, between, within, noise = np.array([case[4:] for case in cases]).T

    def loss(log_worth: float) -> float:
        weight = references / (references + np.exp(log_worth))
        variance = (1 - weight) * between**2 + within**2 + noise / ahead
        error = next_one - weight * own - (1 - weight) * mean
        return float((np.log(variance) + error**2 / variance).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(0, 10), method="bounded").x))


def _forecasts(history: History, law: ReachPrior) -> Iterator[tuple[float, ...]]:
    """Yield what was known before each stretch, and what came, for each share of the law."""
    for stretch in history.stretches:
        before = history.part(0, stretch.begun)
        if not len(before.at):
            continue
        for place, share in enumerate(law.shares):
            yield (
                _weighted_quantile(before, share),
                quantile(stretch.reach, share),
                before.sittings,
                stretch.sittings,
                *(each[place] for each in (law.reach, law.between, law.within, law.noise)),
            )


def _weighted_quantile(part: Stretch, share: float) -> float:
    """Return the same of references that count as the memories written when they arose."""
    upto = np.cumsum(part.at)
    return float(part.reach[np.searchsorted(upto, share * upto[-1] * (1 - 1e-12))])


def _pace(histories: Sequence[History]) -> tuple[float, float]:
    """Return the scale and the power of the references that a stretch brings."""
    begun = []
    came = []
    for history in histories:
        for first in history.beginnings:
            last = min(STRETCH * first, history.memories)
            if last >= 1.5 * first:
                begun.append(first)
                came.append((history.part(first, last).sittings + 0.5) * first / (last - first))
    power, scale = np.polyfit(np.log(begun), np.log(came), 1)
    return round(float(np.exp(scale)), 8), round(float(power), DIGITS)


def _line(history: History) -> Project:
    """Return the few numbers that a project's thin line is drawn from."""
    reach = {
        str(share): tuple(round(quantile(each.reach, share), 3) for each in history.stretches)
        for share in DRAWN
    }
    return Project(history.name, tuple(each.begun for each in history.stretches), reach)


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """Return the rows of a file."""
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def in_lines(fields: dict[str, Any]) -> str:
    """Return fields as JSON, one a line."""
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Fit, write, and show what was fitted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=HERE.parents[1] / "shared" / "data")
    parser.add_argument(
        "-o", "--output", type=Path, default=HERE.parent / "memlab" / "evidence" / "laws"
    )
    asked = parser.parse_args()
    for evidence in EVIDENCE:
        histories = read_histories(asked.folder, evidence)
        if not histories:
            parser.error(f"{asked.folder} holds no histories of {evidence}")
        law = fit(histories)
        fields = vars(law) | {"projects": [each._asdict() for each in law.projects]}
        (asked.output / f"{evidence}.json").write_text(in_lines(fields), encoding="utf-8")
        print(f"{evidence}\nshare   reach  between  within   noise")
        for line in zip(law.shares, law.reach, law.between, law.within, law.noise, strict=True):
            print("{:5.3f}  {:6.4f}   {:6.4f}  {:6.4f}  {:6.4f}".format(*line))
        print(f"worth {law.worth}, pace {law.pace}")
    usage = measure_usage(asked.folder)
    (asked.output / "usage.json").write_text(in_lines(usage), encoding="utf-8")
    print(in_lines(usage))
    print_verdicts(asked.folder)


if __name__ == "__main__":
    main()
