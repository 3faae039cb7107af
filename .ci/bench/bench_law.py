"""Test recommended caps: size each project by the law of the other projects and its own past.

    python .ci/bench/bench_law.py [FOLDER] [--evidence reads] [--until 1.2] [--target 0.9]

FOLDER holds the recorded histories; the default is ../shared/data. The law is fitted anew without
the project; a law of reads, without all stores of the project's owner. At each cut, two caps are
chosen from the history before it, the safe one and the likely one. They are tested on the
references after it: until the horizon of the recommendation, or over the next fifth of the history.

The needed cap is the smallest one that would have reached the target. For the safe cap, the likely
one, and all memories at the end, the script prints the share of the cuts at which they reach the
target, and the median and the 90 % quantile of cap / needed cap. A cap of all memories always
reaches the target and is of no use. So the last line prints, for the cuts at which the needed cap
is below 70 % of all memories, how often the safe cap is smaller than all.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "data"))

import fit_law
from recorded import SHARED

from memlab.evidence.defaults import DEFAULT_UNTIL
from memlab.sizing.backtest import (
    DEFAULT_SPLITS,
    backtest_splits,
    interval_inflation_of,
    posterior_of,
)
from memlab.sizing.lifetimes import Lifetimes, Ranked
from memlab.sizing.prior import EVIDENCE, PosteriorSettings, ReachPrior

EARLY_CUTS: Final = {"references": (250, 500, 1_000, 2_000), "reads": (16, 32, 64, 128)}
"""Numbers of memories written."""
LATE_CUTS: Final = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of the history."""
MIN_REFERENCES: Final = 5
"""Minimum number of references after a cut."""
SMALL_NEED: Final = 0.7
"""A needed cap below this share of all memories is small."""


@dataclass(frozen=True)
class Trial:
    """Settings of the caps that are tested.

    Attributes
    ----------
    target, confidence, until : float
    uses_own_past : bool
        Size a project by its own references as well.
    """

    target: float
    confidence: float
    until: float
    uses_own_past: bool


@dataclass(frozen=True)
class CutSet:
    """Cuts to test, and where each test ends.

    Attributes
    ----------
    stretch : str
        Name of the rule that gives the end.
    cuts : {'early', 'late', 'all'}
    end_of : callable
        Returns the end of the test from the cut and the number of memories.
    """

    stretch: str
    cuts: str
    end_of: Callable[[int, int], float]


class Ratios(NamedTuple):
    """The safe cap, the likely cap and all memories at the end, each over the needed cap."""

    safe: float
    likely: float
    all: float


def as_arrays(project: fit_law.History) -> tuple[Lifetimes, Ranked]:
    """Convert a project to the arrays that sizing uses; all its memories are prunable."""
    count = project.memories
    lifetimes = Lifetimes(
        np.ones(count, bool), np.full(count, count), np.ones(count, dtype=np.int64)
    )
    at = project.at
    return lifetimes, Ranked(project.rank, at, at, at, at, at, np.zeros(len(at), bool))


def caps_at(
    cut: int, lifetimes: Lifetimes, references: Ranked, law: ReachPrior, trial: Trial
) -> tuple[int, int]:
    """Choose the safe and the likely cap from the history before a cut."""
    settings = PosteriorSettings(trial.confidence, trial.until, law)
    lifetimes_before = lifetimes.until(cut)
    references_before = references.between(0, cut)
    record = backtest_splits(lifetimes_before, references_before, settings, DEFAULT_SPLITS)
    posterior = posterior_of(lifetimes_before, references_before, settings)
    inflated = replace(posterior, interval_inflation=interval_inflation_of(record))
    likely, _, safe = inflated.cap_for(trial.target)
    return safe, likely


def cuts_of(project: fit_law.History, cuts: str) -> list[int]:
    """List the numbers of memories at which a project is sized."""
    count = project.memories
    early = [cut for cut in EARLY_CUTS[project.evidence] if cut < 0.95 * count]
    late = [round(share * count) for share in LATE_CUTS]
    return {"early": early, "late": late, "all": early + late}[cuts]


def measure_caps(
    project: fit_law.History, law: ReachPrior, cut_set: CutSet, trial: Trial
) -> Iterator[Ratios]:
    """Yield the ratios at each cut of a project with enough references after it."""
    lifetimes, references = as_arrays(project)
    known_references = references if trial.uses_own_past else references.between(0, 0)
    for cut in cuts_of(project, cut_set.cuts):
        end = int(min(cut_set.end_of(cut, project.memories), project.memories))
        references_after = references.between(cut, end)
        if len(references_after) < MIN_REFERENCES:
            continue
        safe, likely = caps_at(cut, lifetimes, known_references, law, trial)
        ranks = np.sort(references_after.rank).astype(np.float64)
        needed = max(fit_law.quantile(ranks, trial.target), 1)
        yield Ratios(min(safe, end) / needed, min(likely, end) / needed, end / needed)


def print_results(cut_set: CutSet, ratios: Sequence[Ratios]) -> None:
    """Print how often the caps at some cuts reach the target, and how much larger they are."""
    if not ratios:
        return
    title = f"  {cut_set.stretch:14} {cut_set.cuts:6}"
    columns = dict(zip(Ratios._fields, np.array(ratios).T, strict=True))
    for kind, ratio in columns.items():
        print(
            f"{title} {len(ratio):4} cuts, {kind:6}: "
            f"{(ratio >= 1).mean():.2f} reach the target, cap / needed "
            f"{np.median(ratio):.2f}, worst tenth {np.quantile(ratio, 0.9):.1f}"
        )
    is_small = columns["all"] * SMALL_NEED > 1
    is_less = columns["safe"] < columns["all"]
    share = is_less[is_small].mean() if is_small.any() else np.nan
    print(
        f"{title} safe says less than all at {share:.2f} of the "
        f"{is_small.sum()} cuts whose need is below {SMALL_NEED:.0%} of all"
    )


def main() -> None:
    """Fit the law without each project in turn, and test the caps of that project."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=SHARED / "data")
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--until", type=float, default=DEFAULT_UNTIL)
    parser.add_argument("--evidence", choices=EVIDENCE, default="references")
    options = parser.parse_args()
    histories = fit_law.read_histories(options.folder, options.evidence)
    laws = {}
    for project in {history.project for history in histories}:
        others = [history for history in histories if history.project != project]
        laws[project] = fit_law.fit(others)
    stretches: dict[str, Callable[[int, int], float]] = {
        "until its end": lambda cut, _: options.until * cut,
        "next fifth": lambda cut, memories: cut + 0.2 * memories,
    }
    for uses_own_past in (True, False):
        trial = Trial(options.target, options.confidence, options.until, uses_own_past)
        if uses_own_past:
            print(f"with its own {options.evidence}")
        else:
            print("without any of its own")
        for stretch, end_of in stretches.items():
            for cuts in ("early", "late", "all"):
                cut_set = CutSet(stretch, cuts, end_of)
                ratios: list[Ratios] = []
                for history in histories:
                    ratios += measure_caps(history, laws[history.project], cut_set, trial)
                print_results(cut_set, ratios)


if __name__ == "__main__":
    main()
