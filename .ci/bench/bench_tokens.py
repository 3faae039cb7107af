"""Learned by tokens against the newest that fit, on recorded histories.

    python .ci/bench/bench_tokens.py FOLDER [--history NAME ...] [--newest 50 200 1000]

FOLDER holds stores made of the histories (``history-*.db``). The budget is what the newest so many
take on average; counted are the references of the second half. What `Learned` acts on it learns
from the history itself, from what came before. Prints points above ``TokenBudget``, and of
``Learned`` by number above the newest as many.
"""

import argparse
from pathlib import Path

import numpy as np

import memlab
from memlab.columns import AT_POSITION
from memlab.policies import KeepRecent, Learned, Policy, TokenBudget
from memlab.replay.life import Life, life_of
from memlab.replay.walk import walk_through


def served(life: Life, policy: Policy) -> float:
    """Return the share of the second half's references that a policy serves, in percent."""
    found = walk_through(life, policy).references
    late = found[AT_POSITION] > life.positions[len(life) // 2]
    return 100 * float(found.loc[late, "kept"].mean())


def main() -> None:
    """Print a line for each history, then the mean and the least."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--history", nargs="*")
    parser.add_argument("--newest", nargs="*", type=int, default=[50, 200, 1_000])
    asked = parser.parse_args()
    by_tokens, by_number = [], []
    for path in sorted(asked.folder.glob("history-*.db")):
        if asked.history and path.stem.removeprefix("history-") not in asked.history:
            continue
        frame = memlab.load(path)
        life = life_of(frame, memlab.find_references(frame))
        line = []
        for newest in asked.newest:
            boot = life.history.boot_over_history(np.array([newest]))
            budget = int(boot["boot_tokens_mean"].iloc[0])
            by_tokens.append(
                served(life, Learned(max_tokens=budget)) - served(life, TokenBudget(budget))
            )
            by_number.append(served(life, Learned(newest)) - served(life, KeepRecent(newest)))
            line.append(f"{by_tokens[-1]:+.1f} ({by_number[-1]:+.1f})")
        print(f"{path.stem:<20}", *line, flush=True)
    for name, gains in (("by tokens", by_tokens), ("by number", by_number)):
        print(f"{name}: {np.mean(gains):+.2f} points on average, {min(gains):+.2f} at the least")


if __name__ == "__main__":
    main()
