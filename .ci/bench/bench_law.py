"""Whether a recommended cap holds: each project sized by the law of the others and its own past.

    python .ci/bench/bench_law.py [FOLDER] [--target 0.9] [--confidence 0.9]

FOLDER holds the recorded histories, ../shared/data if none. The law is fitted anew without the
project. At each cut the project's cap is chosen on what came before and measured on what came
after: until the store had doubled, or over the next fifth of its history. Prints, for each way of
choosing and each set of cuts, the share of cuts that reach the target and the median of cap over
the smallest cap that would have.
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

from memlab.evidence.prior import Law
from memlab.sizing.history import History, Ranked
from memlab.sizing.record import CUTS, cuts_of, posterior_of, widening

CHECKOUT = Path(__file__).resolve().parents[2]
EARLY = (250, 500, 1_000, 2_000)
LATE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
FEWEST = 5
"""References after a cut, to be measured."""


class Tried(NamedTuple):
    """A cap at a cut, and the one that it would have taken."""

    reached: bool
    ratio: float


def as_arrays(project: fit_law.History) -> tuple[History, Ranked]:
    """A project as the arrays that sizing works on: no row load-bearing, none superseded."""
    n = project.memories
    history = History(np.ones(n, bool), np.full(n, n), np.ones(n, np.int64))
    at = project.at
    return history, Ranked(project.rank, at, at, at, at, at, np.zeros(len(at), bool))


def cap_at(
    history: History, references: Ranked, law: Law, *, cut: int, target: float, confidence: float
) -> int:
    """The cap that would have been recommended when `cut` rows had been written."""
    before, seen = history.until(cut), references.between(0, cut)
    record = cuts_of(before, seen, law, confidence, CUTS)
    plain = posterior_of(before, seen, law, confidence)
    return replace(plain, widened=widening(record)).cap_for(target)[2]


def cuts_for(name: str, n: int) -> list[int]:
    """The moments at which a project of `n` rows is sized."""
    early = [cut for cut in EARLY if cut < 0.95 * n]
    late = [round(share * n) for share in LATE]
    return {"early": early, "late": late, "all": early + late}[name]


def tried(
    project: fit_law.History,
    law: Law,
    cuts: str,
    until: Callable[[int, int], float],
    asked: argparse.Namespace,
) -> Iterator[Tried]:
    """Size one project at its cuts and measure each cap."""
    history, references = as_arrays(project)
    nothing = references.between(0, 0)
    for cut in cuts_for(cuts, project.memories):
        after = references.between(cut, int(min(until(cut, project.memories), project.memories)))
        if len(after) < FEWEST:
            continue
        known = references if asked.own else nothing
        cap = cap_at(history, known, law, cut=cut, target=asked.target, confidence=asked.confidence)
        rank = np.sort(after.rank)
        needed = rank[int(np.ceil(asked.target * len(rank) - 1e-9)) - 1]
        yield Tried(bool(needed <= cap), cap / max(needed, 1))


def main() -> None:
    """Fit without each project in turn, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=CHECKOUT.parent / "shared" / "data")
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--confidence", type=float, default=0.9)
    asked = parser.parse_args()
    projects = fit_law.read_histories(asked.folder)
    laws = [fit_law.fit([p for p in projects if p is not one]) for one in projects]
    stretches = {
        "until doubled": lambda cut, _: 2 * cut,
        "next fifth": lambda cut, n: cut + 0.2 * n,
    }
    for asked.own in (True, False):
        print("with its own references" if asked.own else "without any of its own")
        for name, until in stretches.items():
            for cuts in ("early", "late", "all"):
                found = [
                    one
                    for project, law in zip(projects, laws, strict=True)
                    for one in tried(project, law, cuts, until, asked)
                ]
                reached, ratio = np.array(found).T
                print(
                    f"  {name:14} {cuts:6} {len(found):4} cuts: {reached.mean():.2f} reach the "
                    f"target, median cap / needed {np.median(ratio):.2f}"
                )


if __name__ == "__main__":
    main()
