"""Whether a recommended cap holds: each project sized by the law of the others and its own past.

    python .ci/bench/bench_law.py [FOLDER] [--evidence reads] [--until 1.2] [--target 0.9]

FOLDER holds the recorded histories, ../shared/data if none. The law is fitted anew without the
project, of reads without all stores of one owner. At each cut the project's caps are chosen on what
came before and measured on what came after: until their horizon, or over the next fifth of its
history. Prints, for each way of choosing and each set of cuts, the share of cuts that reach the
target, the median of cap over the smallest cap that would have, and its worst tenth; of the safe
cap, of the likely one, and of keeping all that there is at the end. A cap that always says so is no
help: the last figure is at how many of the cuts whose need is below 70 % of all it says less.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "data"))

import fit_law

from memlab.evidence.defaults import DEFAULT_UNTIL
from memlab.sizing.backtest import (
    DEFAULT_SPLITS,
    backtest_splits,
    interval_inflation_of,
    posterior_of,
)
from memlab.sizing.lifetimes import Lifetimes, Ranked
from memlab.sizing.prior import EVIDENCE, PosteriorSettings, ReachPrior

CHECKOUT = Path(__file__).resolve().parents[2]
EARLY = {"references": (250, 500, 1_000, 2_000), "reads": (16, 32, 64, 128)}
LATE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
FEWEST = 5
"""References after a cut, to be measured."""
SMALL_NEED = 0.7
"""Share of all there is, below which a need leaves room for less than all."""


class Tried(NamedTuple):
    """The two caps at a cut, and all that there is at the end, over the one it would have taken."""

    safe: float
    likely: float
    all: float


def as_arrays(project: fit_law.History) -> tuple[Lifetimes, Ranked]:
    """A project as the arrays that sizing works on: no row load-bearing, none superseded."""
    n = project.memories
    history = Lifetimes(np.ones(n, bool), np.full(n, n), np.ones(n, np.int64))
    at = project.at
    return history, Ranked(project.rank, at, at, at, at, at, np.zeros(len(at), bool))


def caps_at(
    history: Lifetimes, references: Ranked, settings: PosteriorSettings, *, cut: int, target: float
) -> tuple[int, int]:
    """The safe and the likely cap that would have been found when `cut` rows had been written."""
    before = history.until(cut)
    seen = references.between(0, cut)
    record = backtest_splits(before, seen, settings, DEFAULT_SPLITS)
    plain = posterior_of(before, seen, settings)
    likely, _, safe = replace(plain, interval_inflation=interval_inflation_of(record)).cap_for(
        target
    )
    return safe, likely


def cuts_for(name: str, project: fit_law.History) -> list[int]:
    """The moments at which a project is sized."""
    n = project.memories
    early = [cut for cut in EARLY[project.evidence] if cut < 0.95 * n]
    late = [round(share * n) for share in LATE]
    return {"early": early, "late": late, "all": early + late}[name]


def tried(
    project: fit_law.History,
    law: ReachPrior,
    cuts: str,
    until: Callable[[int, int], float],
    asked: argparse.Namespace,
) -> Iterator[Tried]:
    """Size one project at its cuts and measure each cap."""
    history, references = as_arrays(project)
    nothing = references.between(0, 0)
    for cut in cuts_for(cuts, project):
        end = int(min(until(cut, project.memories), project.memories))
        after = references.between(cut, end)
        if len(after) < FEWEST:
            continue
        known = references if asked.own else nothing
        settings = PosteriorSettings(asked.confidence, asked.until, law)
        safe, likely = caps_at(history, known, settings, cut=cut, target=asked.target)
        rank = np.sort(after.rank)
        needed = rank[int(np.ceil(asked.target * len(rank) - 1e-9)) - 1]
        needed = max(needed, 1)
        yield Tried(min(safe, end) / needed, min(likely, end) / needed, end / needed)


def main() -> None:
    """Fit without each project in turn, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=CHECKOUT.parent / "shared" / "data")
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--until", type=float, default=DEFAULT_UNTIL)
    parser.add_argument("--evidence", choices=EVIDENCE, default="references")
    asked = parser.parse_args()
    histories = fit_law.read_histories(asked.folder, asked.evidence)
    laws = {
        left_out: fit_law.fit([each for each in histories if each.project != left_out])
        for left_out in {each.project for each in histories}
    }
    stretches = {
        "until its end": lambda cut, _: asked.until * cut,
        "next fifth": lambda cut, n: cut + 0.2 * n,
    }
    for asked.own in (True, False):
        print(f"with its own {asked.evidence}" if asked.own else "without any of its own")
        for name, until in stretches.items():
            for cuts in ("early", "late", "all"):
                found = [
                    one
                    for history in histories
                    for one in tried(history, laws[history.project], cuts, until, asked)
                ]
                ratios = np.array(found).reshape(-1, len(Tried._fields)).T
                for kind, ratio in zip(Tried._fields, ratios, strict=True):
                    if len(ratio):
                        print(
                            f"  {name:14} {cuts:6} {len(ratio):4} cuts, {kind:6}: "
                            f"{(ratio >= 1).mean():.2f} reach the target, cap / needed "
                            f"{np.median(ratio):.2f}, worst tenth {np.quantile(ratio, 0.9):.1f}"
                        )
                if found:
                    safe, _, everything = ratios
                    small = everything * SMALL_NEED > 1
                    less = (safe < everything)[small].mean() if small.any() else np.nan
                    print(
                        f"  {name:14} {cuts:6} safe says less than all at {less:.2f} of the "
                        f"{small.sum()} cuts whose need is below {SMALL_NEED:.0%} of all"
                    )


if __name__ == "__main__":
    main()
