"""What `Activation` serves beside the newest as many, on public stores of agents that search.

    python .ci/bench/bench_activation.py [FOLDER] [--between | --limits | --chosen]
                                         [--every-hit] [--silent]

FOLDER is as for data/fit_law.py. Caps and budgets are 10, 25 and 50 % of what a store holds in the
end, what is not kept is retired every night, and the last two thirds of the reads count, a memory
once a day. Prints the share that each serves, the points above the newest, and the worst tenth of
the stores; once with every read seen, once where a read of what is loaded leaves no trace. Nothing
is fitted, so no store is left out. A read is the best hit of a search, the stricter guess at what
was used; with --every-hit every hit is, as a harvest counts them.

--between measures by how much what a budget serves differs from one stretch of a store to the next,
which `memlab.evidence.usage.PERIOD_VARIANCE` takes over. --limits tests the limits of a budget by
use on the next stretch of each store. With --silent a read of what is loaded leaves no trace in
either. --chosen shows what is served with other values of
the three numbers that were chosen on these stores.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd

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

CHECKOUT = Path(__file__).resolve().parents[2]
SHARES = (0.1, 0.25, 0.5)
LONGEST = 2_000
"""Characters of notes where no length is known; of one alone, the median of its store."""
FEWEST = 8
ENOUGH = 12
CUTS = (0.6, 0.7, 0.8, 0.9)
"""Shares of a history at which it is cut into what was and what comes."""
TARGET = 0.8
CHOSEN = {
    "SHORTEST_DAYS": (0.1, 0.5, 1.0, 2.0),
    "LENGTH_POWER": (0.0, 0.2, 0.4, 0.6, 1.0),
    "LENGTH_OFFSET": (0.01, 10, 50),
}


def lives(folder: Path, *, every_hit: bool) -> Iterator[tuple[str, ReplayHistory]]:
    """Yield each store's name, and its notes with the best hit, or every hit, of each search."""
    for path in sorted(folder.glob("recalls-*-memories.csv.gz")):
        name = path.name.removesuffix("-memories.csv.gz")
        notes = pd.read_csv(path)
        usual = int(notes["chars"].median()) if notes["chars"].notna().any() else LONGEST
        with SqliteMemoryStore(":memory:") as store:
            for note in notes.itertuples():
                chars = usual if pd.isna(note.chars) else int(note.chars)
                born = datetime.fromisoformat(note.born)
                whence = MemoryProvenance(None, "-", f"note:{note.position}", created_at=born)
                body = "x" * chars
                item = MemoryItem(f"m{note.position}", MemoryKind.EPISODIC, "", body, whence)
                store.put(item)
            frame = load(store)
        reads = pd.read_csv(folder / f"{name}-reads.csv.gz")
        if not every_hit:
            reads = reads[reads["best"] == 1]
        at = pd.to_datetime(reads["at"], utc=True)
        log = pd.DataFrame({c.MEMORY_ID: "m" + reads["position"].astype(str), c.AT: at})
        needs = find_references(frame, log, only_log=True)
        again = needs.assign(day=needs[c.AT].dt.floor("D")).duplicated([c.TARGET_ID, "day"])
        yield name, prepare_history(frame, needs[~again])


def pairs_for(life: ReplayHistory) -> Iterator[tuple[str, Policy, Policy]]:
    """Yield the policies to compare: by number, then by tokens."""
    for share in SHARES:
        cap = round(share * len(life))
        yield f"# {share}", KeepRecent(cap), Activation(cap)
    for share in SHARES:
        budget = int(share * life.lifetimes.tokens.sum())
        yield f"tokens {share}", TokenBudget(budget), Activation(max_tokens=budget)


def kept(
    life: ReplayHistory, policy: Policy, *, retire: bool = True, silent: bool = False
) -> Flags:
    """Return which reads found their memory loaded."""
    done = walk_through(replace(life, silent=silent), policy, retire=retire)
    return done.references["kept"].to_numpy(dtype=bool)


def measure(folder: Path, *, every_hit: bool) -> None:
    """Print what is served, and the points above the newest."""
    rows = []
    for name, life in lives(folder, every_hit=every_hit):
        late = np.arange(len(life.at)) >= len(life.at) / 3
        if late.sum() < FEWEST:
            continue
        for size, newest, active in pairs_for(life):
            found = {
                "newest, at each write": kept(life, newest, retire=False),
                "newest, every night": kept(life, newest),
                "activation": kept(life, active),
                "activation, loaded is silent": kept(life, active, silent=True),
            }
            served = {rule: 100 * which[late].mean() for rule, which in found.items()}
            rows.append({"store": name, "size": size, **served})
    table = pd.DataFrame(rows).set_index(["store", "size"])
    print(f"{table.index.get_level_values('store').nunique()} stores, % served")
    by_size = table.groupby("size", sort=False)
    print(by_size.mean().round(1).T.to_string())
    for newest in ("newest, at each write", "newest, every night"):
        for rule in ("activation", "activation, loaded is silent"):
            gain = (table[rule] - table[newest]).groupby("size", sort=False)
            summary = pd.DataFrame({"mean": gain.mean(), "worst tenth": gain.quantile(0.1)})
            print(f"\n{rule}, points above {newest}\n{summary.round(1).T.to_string()}")


def measure_chosen(folder: Path, *, every_hit: bool) -> None:
    """Print what is served with other values of the numbers that were chosen."""
    stores = [life for _, life in lives(folder, every_hit=every_hit)]
    for name, values in CHOSEN.items():
        for value in values:
            with patch.object(use_times, name, value):
                served = []
                for life in stores:
                    late = np.arange(len(life.at)) >= len(life.at) / 3
                    if late.sum() >= FEWEST:
                        served.append([kept(life, one)[late].mean() for *_, one in pairs_for(life)])
            print(name, value, (100 * np.mean(served, axis=0)).round(1), flush=True)


def reads_between(
    life: ReplayHistory, share: float, first: float, last: float, *, silent: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return which reads between two moments a share of the tokens served, and their days.

    Without enough reads it is None.
    """
    counts = (life.at >= first) & (life.at < last)
    if counts.sum() < ENOUGH:
        return None
    there = np.cumsum(life.lifetimes.tokens)[np.take(life.at, np.flatnonzero(counts)) - 1].mean()
    found = kept(life, Activation(max_tokens=int(share * there)), silent=silent)[counts]
    return found.astype(float), life.referred[counts].astype("datetime64[D]")


def share_and_noise(found: np.ndarray, day: np.ndarray) -> tuple[float, float]:
    """Return the share of reads that was served, and the variance of its noise."""
    days = pd.Series(found - found.mean()).groupby(day)
    noise = max((days.sum() ** 2).sum(), found.var() * len(found)) / len(found) ** 2
    return float(found.mean()), float(noise)


def measure_between(folder: Path, *, every_hit: bool, silent: bool) -> None:
    """Print by how much what is served differs from one stretch to the next beyond their noise."""
    rows = []
    for name, life in lives(folder, every_hit=every_hit):
        for cut in (share * len(life) for share in CUTS):
            for share in (0.2, 0.4, 0.6):
                before = reads_between(life, share, WARM_UP_SHARE * cut, cut, silent=silent)
                after = reads_between(life, share, cut, DEFAULT_UNTIL * cut, silent=silent)
                if before and after:
                    rows.append((name, *share_and_noise(*before), *share_and_noise(*after)))
    names = ["store", "served", "noise", "then", "noise then"]
    table = pd.DataFrame(rows, columns=names)
    apart = table["then"] - table["served"]
    variance = (apart**2).mean() - table[["noise", "noise then"]].sum(axis=1).mean()
    of_one = (table["then"] * (1 - table["then"])).mean()
    print(f"{len(table)} pairs of stretches of {table['store'].nunique()} stores")
    print(f"{apart.mean():+.3f} on average, {max(variance, 0) ** 0.5:.3f} one standard deviation")
    print(f"PERIOD_VARIANCE = {variance / of_one:.3f}")


def measure_limits(folder: Path, *, every_hit: bool, silent: bool) -> None:
    """Print how often the next stretch reaches the lower limit of the likely budget.

    The budget is chosen as `memlab.replay.budget_by_use` does: the smallest share of the ladder
    that served the target before the cut.
    """
    rows = []
    for name, life in lives(folder, every_hit=every_hit):
        for cut in (share * len(life) for share in CUTS):
            for share in BUDGET_SHARES:
                before = reads_between(life, share, WARM_UP_SHARE * cut, cut, silent=silent)
                if before is None or len(before[0]) < MIN_READS:
                    break
                found, day = before
                if found.mean() >= TARGET:
                    after = reads_between(life, share, cut, DEFAULT_UNTIL * cut, silent=silent)
                    if after:
                        served, low, _ = share_with_limits(day, found, DEFAULT_CONFIDENCE)
                        rows.append((name, served, low, after[0].mean()))
                    break
    table = pd.DataFrame(rows, columns=["store", "served", "low", "then"])
    reached = (table["then"] >= table["low"]).mean()
    print(f"target {TARGET:.0%}: {len(table)} cuts of {table['store'].nunique()} stores")
    print(f"the likely budget served {table['served'].mean():.0%}, then {table['then'].mean():.0%}")
    print(f"{reached:.0%} reached the lower limit at a confidence of {DEFAULT_CONFIDENCE:.0%}")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=CHECKOUT.parent / "shared" / "data")
    parser.add_argument("--between", action="store_true")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--every-hit", action="store_true")
    asked = parser.parse_args()
    if asked.between:
        measure_between(asked.folder, every_hit=asked.every_hit, silent=asked.silent)
    elif asked.limits:
        measure_limits(asked.folder, every_hit=asked.every_hit, silent=asked.silent)
    elif asked.chosen:
        measure_chosen(asked.folder, every_hit=asked.every_hit)
    else:
        measure(asked.folder, every_hit=asked.every_hit)


if __name__ == "__main__":
    main()
