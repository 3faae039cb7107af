"""Compare the reads that `Activation` and the newest memories serve, on public stores of agents.

    python .ci/bench/bench_activation.py [FOLDER] [--between | --limits | --chosen]
                                         [--every-hit] [--silent]

FOLDER holds logs of searches, as for data/fit_law.py. Caps and budgets are 10, 25 and 50 % of what
a store holds at the end. Memories that are not kept are retired every night. The last two thirds of
the reads count, each memory once a day. Prints the share of the reads that each policy serves, the
points above the newest memories, and the worst tenth of the stores. `Activation` is measured twice:
with every read logged, and with no trace of the reads of loaded memories. Nothing is fitted, so no
store is left out. A read is the best hit of a search; with --every-hit it is every hit, as in a
harvest.

--between measures how much the share that a budget serves differs between stretches of a store, for
`memlab.evidence.usage.PERIOD_VARIANCE`. --limits tests the limits of a budget by use on the next
stretch of each store. With --silent, reads of loaded memories leave no trace in these two. --chosen
prints the shares for other values of the three numbers that were chosen on these stores.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pandas as pd
from recorded import SHARED

from memlab import columns as c
from memlab.evidence import use_times
from memlab.evidence.defaults import DEFAULT_CONFIDENCE, DEFAULT_UNTIL
from memlab.evidence.references import find_references
from memlab.evidence.usage import MIN_READS, share_with_limits
from memlab.frame.fields import Flags
from memlab.frame.loading import load
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.policies import Activation, KeepRecent, Policy, TokenBudget
from memlab.replay.by_use import BUDGET_SHARES, WARM_UP_SHARE
from memlab.replay.history import ReplayHistory, prepare_history
from memlab.replay.walk import walk_through
from memlab.store.sqlite_store import SqliteMemoryStore

SHARES: Final = (0.1, 0.25, 0.5)
BETWEEN_SHARES: Final = (0.2, 0.4, 0.6)
DEFAULT_CHARS: Final = 2_000
"""Length of the memories of a store that records none; else the median replaces missing lengths."""
MIN_LATE_READS: Final = 8
MIN_STRETCH_READS: Final = 12
CUTS: Final = (0.6, 0.7, 0.8, 0.9)
"""Shares of a history at which it is cut into a past and a future."""
TARGET: Final = 0.8
CHOSEN: Final = {
    "SHORTEST_DAYS": (0.1, 0.5, 1.0, 2.0),
    "LENGTH_POWER": (0.0, 0.2, 0.4, 0.6, 1.0),
    "LENGTH_OFFSET": (0.01, 10, 50),
}
"""Names in `memlab.evidence.use_times`, and the values to try."""

Floats = npt.NDArray[np.float64]
Days = npt.NDArray[np.datetime64]


class Comparison(NamedTuple):
    """Two policies of the same size."""

    size: str
    newest: Policy
    activation: Policy


class StretchReads(NamedTuple):
    """The reads in a stretch of a history: 1.0 for each that was served, and the day of each."""

    served: Floats
    day: Days


def load_histories(folder: Path, *, every_hit: bool) -> Iterator[tuple[str, ReplayHistory]]:
    """Yield the name of each store, and its memories with the best hit or every hit of searches."""
    for path in sorted(folder.glob("recalls-*-memories.csv.gz")):
        name = path.name.removesuffix("-memories.csv.gz")
        frame = load_memories(path)
        hits = pd.read_csv(folder / f"{name}-reads.csv.gz")
        if not every_hit:
            hits = hits[hits["best"] == 1]
        at = pd.to_datetime(hits["at"], utc=True)
        log = pd.DataFrame({c.MEMORY_ID: "m" + hits["position"].astype(str), c.AT: at})
        reads = find_references(frame, log, only_log=True)
        is_repeated = reads.assign(day=reads[c.AT].dt.floor("D")).duplicated([c.TARGET_ID, "day"])
        yield name, prepare_history(frame, reads[~is_repeated])


def load_memories(path: Path) -> pd.DataFrame:
    """Load the memories of a store, with bodies of the recorded lengths."""
    memories = pd.read_csv(path)
    lengths = memories["chars"]
    typical = int(lengths.median()) if lengths.notna().any() else DEFAULT_CHARS
    with SqliteMemoryStore(":memory:") as store:
        for position, born, chars in zip(
            memories["position"].tolist(),
            memories["born"].tolist(),
            lengths.fillna(typical).astype(int).tolist(),
            strict=True,
        ):
            provenance = MemoryProvenance(
                None, "-", f"note:{position}", created_at=datetime.fromisoformat(born)
            )
            body = "x" * chars
            store.put(MemoryItem(f"m{position}", MemoryKind.EPISODIC, "", body, provenance))
        return load(store)


def comparisons_for(history: ReplayHistory) -> Iterator[Comparison]:
    """Yield the policies to compare: by number, then by tokens."""
    for share in SHARES:
        cap = round(share * len(history))
        yield Comparison(f"# {share}", KeepRecent(cap), Activation(cap))
    for share in SHARES:
        budget = int(share * history.lifetimes.tokens.sum())
        yield Comparison(f"tokens {share}", TokenBudget(budget), Activation(max_tokens=budget))


def served_reads(
    history: ReplayHistory, policy: Policy, *, retire: bool = True, silent: bool = False
) -> Flags:
    """Find the reads whose memory was loaded."""
    walk = walk_through(replace(history, silent=silent), policy, retire=retire)
    return walk.references["kept"].to_numpy(dtype=bool)


def select_late(history: ReplayHistory) -> Flags:
    """Select the last two thirds of the reads."""
    count = len(history.at)
    return np.arange(count) >= count / 3


def measure(folder: Path, *, every_hit: bool) -> None:
    """Print the shares that are served, and the points above the newest memories."""
    rows = []
    for name, history in load_histories(folder, every_hit=every_hit):
        late = select_late(history)
        if late.sum() < MIN_LATE_READS:
            continue
        for size, newest, activation in comparisons_for(history):
            served = {
                "newest, at each write": served_reads(history, newest, retire=False),
                "newest, every night": served_reads(history, newest),
                "activation": served_reads(history, activation),
                "activation, loaded is silent": served_reads(history, activation, silent=True),
            }
            row: dict[str, object] = {"store": name, "size": size}
            for policy, flags in served.items():
                row[policy] = 100 * flags[late].mean()
            rows.append(row)
    table = pd.DataFrame(rows).set_index(["store", "size"])
    print(f"{table.index.get_level_values('store').nunique()} stores, % served")
    by_size = table.groupby("size", sort=False)
    print(by_size.mean().round(1).T.to_string())
    for newest_name in ("newest, at each write", "newest, every night"):
        for policy in ("activation", "activation, loaded is silent"):
            gain = (table[policy] - table[newest_name]).groupby("size", sort=False)
            summary = pd.DataFrame({"mean": gain.mean(), "worst tenth": gain.quantile(0.1)})
            print(f"\n{policy}, points above {newest_name}\n{summary.round(1).T.to_string()}")


def measure_chosen(folder: Path, *, every_hit: bool) -> None:
    """Print the shares that are served with other values of the chosen numbers."""
    histories = [history for _, history in load_histories(folder, every_hit=every_hit)]
    for name, values in CHOSEN.items():
        for value in values:
            with patch.object(use_times, name, value):
                shares = mean_shares(histories)
            print(name, value, (100 * shares).round(1), flush=True)


def mean_shares(histories: list[ReplayHistory]) -> Floats:
    """Measure the share that `Activation` serves for each size, averaged over the stores."""
    shares = []
    for history in histories:
        late = select_late(history)
        if late.sum() < MIN_LATE_READS:
            continue
        served = [
            served_reads(history, comparison.activation)[late].mean()
            for comparison in comparisons_for(history)
        ]
        shares.append(served)
    mean: Floats = np.array(shares).mean(axis=0)
    return mean


def reads_between(
    history: ReplayHistory, share: float, first: float, last: float, *, silent: bool
) -> StretchReads | None:
    """Find the reads between two positions that a share of the tokens served.

    Returns None if there are fewer than `MIN_STRETCH_READS`.
    """
    in_stretch = (history.at >= first) & (history.at < last)
    if in_stretch.sum() < MIN_STRETCH_READS:
        return None
    tokens_written = np.cumsum(history.lifetimes.tokens)
    tokens = tokens_written[np.take(history.at, np.flatnonzero(in_stretch)) - 1].mean()
    policy = Activation(max_tokens=int(share * tokens))
    served = served_reads(history, policy, silent=silent)[in_stretch]
    return StretchReads(served.astype(float), history.referred[in_stretch].astype("datetime64[D]"))


def share_and_noise(reads: StretchReads) -> tuple[float, float]:
    """Compute the share of the reads that was served, and the variance of its noise."""
    served = reads.served
    by_day = pd.Series(served - served.mean()).groupby(reads.day)
    noise = max((by_day.sum() ** 2).sum(), served.var() * len(served)) / len(served) ** 2
    return float(served.mean()), float(noise)


def measure_between(folder: Path, *, every_hit: bool, silent: bool) -> None:
    """Print by how much the share served differs between stretches, beyond their noise."""
    rows = []
    for name, history in load_histories(folder, every_hit=every_hit):
        for cut_share in CUTS:
            cut = cut_share * len(history)
            for share in BETWEEN_SHARES:
                before = reads_between(history, share, WARM_UP_SHARE * cut, cut, silent=silent)
                after = reads_between(history, share, cut, DEFAULT_UNTIL * cut, silent=silent)
                if before is None or after is None:
                    continue
                served, noise = share_and_noise(before)
                served_then, noise_then = share_and_noise(after)
                rows.append((name, served, noise, served_then, noise_then))
    names = ["store", "served", "noise", "served then", "noise then"]
    table = pd.DataFrame(rows, columns=names)
    difference = table["served then"] - table["served"]
    variance = (difference**2).mean() - table[["noise", "noise then"]].sum(axis=1).mean()
    variance_of_one_read = (table["served then"] * (1 - table["served then"])).mean()
    sd = max(variance, 0) ** 0.5
    print(f"{len(table)} pairs of stretches of {table['store'].nunique()} stores")
    print(f"{difference.mean():+.3f} on average, {sd:.3f} one standard deviation")
    print(f"PERIOD_VARIANCE = {variance / variance_of_one_read:.3f}")


def measure_limits(folder: Path, *, every_hit: bool, silent: bool) -> None:
    """Print how often the next stretch reaches the lower limit of the likely budget."""
    rows = []
    for name, history in load_histories(folder, every_hit=every_hit):
        for cut_share in CUTS:
            cut = cut_share * len(history)
            row = limits_at(history, cut, silent=silent)
            if row is not None:
                rows.append((name, *row))
    table = pd.DataFrame(rows, columns=["store", "served", "low", "served then"])
    reached = (table["served then"] >= table["low"]).mean()
    print(f"target {TARGET:.0%}: {len(table)} cuts of {table['store'].nunique()} stores")
    print(
        f"the likely budget served {table['served'].mean():.0%}, "
        f"then {table['served then'].mean():.0%}"
    )
    print(f"{reached:.0%} reached the lower limit at a confidence of {DEFAULT_CONFIDENCE:.0%}")


def limits_at(
    history: ReplayHistory, cut: float, *, silent: bool
) -> tuple[float, float, float] | None:
    """Measure the likely budget at a cut: share served before, its lower limit, share served after.

    The budget is chosen as `memlab.replay.budget_by_use` does: the smallest share of the ladder
    that served the target before the cut. Returns None if there is none, or too few reads.
    """
    for share in BUDGET_SHARES:
        before = reads_between(history, share, WARM_UP_SHARE * cut, cut, silent=silent)
        if before is None or len(before.served) < MIN_READS:
            return None
        if before.served.mean() < TARGET:
            continue
        after = reads_between(history, share, cut, DEFAULT_UNTIL * cut, silent=silent)
        if after is None:
            return None
        served, low, _ = share_with_limits(before.day, before.served, DEFAULT_CONFIDENCE)
        return served, low, float(after.served.mean())
    return None


def main() -> None:
    """Run the measurement that the options choose."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=SHARED / "data")
    parser.add_argument("--between", action="store_true")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--every-hit", action="store_true")
    options = parser.parse_args()
    if options.between:
        measure_between(options.folder, every_hit=options.every_hit, silent=options.silent)
    elif options.limits:
        measure_limits(options.folder, every_hit=options.every_hit, silent=options.silent)
    elif options.chosen:
        measure_chosen(options.folder, every_hit=options.every_hit)
    else:
        measure(options.folder, every_hit=options.every_hit)


if __name__ == "__main__":
    main()
