"""What `Learned` serves beside the newest as many, on stores it was not fitted on.

    python .ci/bench/bench_learned.py [FOLDER] [--evidence reads references]

FOLDER is as for data/fit_law.py. What `Learned` starts from is fitted anew without all stores of
the owner that is measured; what it learns beside that is the store's own past. Reads: caps and
budgets are 10, 25 and 50 % of what the store holds in the end, what is not kept is retired, and the
last two thirds of the reads count, a memory once a day. References: caps of 50, 200 and 1,000 and
what these take in tokens, what is not kept is deleted, and the second half counts. Prints points
above `KeepRecent` and `TokenBudget` for each store, their mean, the worst tenth and the worst.

Of reads it prints beside them what the newest serve, and the most that any rule could add that
knows which memories were read before and will be again, and by age alone which will be for the
first time. A cap that is a share of the final number is a larger share of what was there before:
with --by-then it is a share of what had been written when each read came. --nights follows what
plans would do every night (what was needed returns and stays for a while, in half of the room),
beside replays that decide at each write. --between measures by how much what a budget serves
differs from one stretch of a store to the next, which `memlab.evidence.usage.BETWEEN` takes over.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "data"))

from fit_weights import Store, fit, read_stores

from memlab import columns as c
from memlab.compaction.planner import STAYS_FOR, STAYS_TIMES, holds
from memlab.evidence.prior import DEFAULT_UNTIL, EVIDENCE, Evidence
from memlab.policies import KeepRecent, Learned, Policy, TokenBudget
from memlab.policies.base import lowest_of
from memlab.policies.learned import Expectation, Moment, Space, Weights
from memlab.replay.by_use import GROWN
from memlab.replay.life import Flags, Life, life_of
from memlab.replay.walk import walk_through

CHECKOUT = Path(__file__).resolve().parents[2]
SHARES = (0.1, 0.25, 0.5)
NEWEST = (50, 200, 1_000)
FEWEST = 8
ENOUGH = 12


def pairs_for(life: Life, evidence: Evidence) -> Iterator[tuple[Policy, Policy]]:
    """The policies to compare: by number, then by tokens."""
    tokens = life.frame[c.TOKENS].sum()
    caps = NEWEST if evidence == "references" else [round(s * len(life)) for s in SHARES]
    for cap in caps:
        yield KeepRecent(cap), Learned(cap)
    for cap, share in zip(caps, SHARES, strict=True):
        budget = int(share * tokens)
        if evidence == "references":
            budget = int(walk_through(life, KeepRecent(cap)).boot["boot_tokens"].mean())
        yield TokenBudget(budget), Learned(max_tokens=budget)


def life_for(store: Store, weights: Weights, evidence: Evidence) -> Life:
    """A store's history, with an expectation that knows nothing of its owner's stores."""
    needs = store.references
    if evidence == "reads":
        day = needs[c.AT].dt.floor("D")
        needs = needs[~needs.assign(day=day).duplicated([c.TARGET_ID, "day"])]
    life = life_of(store.frame, needs)
    known = Expectation(life.expectation.experience, dict.fromkeys(EVIDENCE, weights))
    vars(life)["expectation"] = known
    return life


def gains_on(
    store: Store, weights: Weights, evidence: Evidence
) -> tuple[list[float], list[float], list[float]]:
    """Points that each pair of policies is apart on what counts; newest; the most there could be.

    None of a store in which fewer than eight count.
    """
    life = life_for(store, weights, evidence)
    last = np.arange(len(life.at)) >= len(life.at) / 3
    if evidence == "references":
        last = life.at > len(life) // 2
    gains, served, most = [], [], []
    for newest, learned in pairs_for(life, evidence) if last.sum() >= FEWEST else ():
        before, after = (_kept(life, each, evidence)[last].mean() for each in (newest, learned))
        gains.append(100 * float(after - before))
        served.append(100 * float(before))
        could = _foreseen(life, newest)[last].mean() if evidence == "reads" else np.nan
        most.append(100 * float(could - before))
    return gains, served, most


def _foreseen(life: Life, newest: Policy) -> Flags:
    """Which needs are served by who knows what is needed again, the soonest first, then by age."""
    of_tokens = isinstance(newest, TokenBudget)
    size = life.history.tokens if of_tokens else np.ones(len(life), dtype=np.int64)
    found = np.empty(len(life.at), dtype=bool)
    for need, (at, target) in enumerate(zip(life.at, life.target, strict=True)):
        before = life.referred[:need] < life.referred[need].astype("datetime64[D]")
        known = set(life.target[:need][before].tolist())
        again = [each for each in dict.fromkeys(life.target[need:].tolist()) if each in known]
        again = [each for each in again if each < at]
        others = np.setdiff1d(np.arange(at), again)[::-1]
        order = np.concatenate([np.array(again, dtype=np.int64), others])
        reach = np.cumsum(size[order])[np.flatnonzero(order == target)[0]]
        found[need] = reach <= newest.slots
    return found


def _kept(life: Life, policy: Policy, evidence: Evidence) -> Flags:
    return walk_through(life, policy, retire=evidence == "reads").references["kept"].to_numpy(bool)


def _by_then(life: Life, share: float, *, of_tokens: bool) -> tuple[Flags, Flags]:
    """Which needs fall on what is newest, or expected most, in a share of what was there."""
    past, sizes = life.expectation.experience, life.history.tokens
    sizes = sizes if of_tokens else np.ones_like(sizes)
    kept = np.zeros((2, len(past.at)), dtype=bool)
    for need, (written, target) in enumerate(zip(past.at, past.target, strict=True)):
        size, there = sizes[:written], np.arange(written)
        room = int(share * size.sum()) if of_tokens else round(share * written)
        moment = Moment(written, past.before[need], past.when[need])
        score = life.expectation.scores(there, moment, Space(room, of_tokens))
        lowest = lowest_of((score, there), size, int(size.sum()) - room, fill=of_tokens)
        kept[:, need] = size[target:].sum() <= room, target not in lowest
    return kept[0], kept[1]


def measure_by_then(stores: Sequence[Store]) -> None:
    """Print the points by which what is expected serves more than the newest as many."""
    sizes = list(product(("#", "tokens"), SHARES))
    rows, newest = [], []
    for store in stores:
        weights = fit([each for each in stores if each.owner != store.owner], "reads")
        life = life_for(store, weights, "reads")
        last = np.arange(len(life.at)) >= len(life.at) / 3
        if last.sum() >= FEWEST:
            both = [_by_then(life, share, of_tokens=unit == "tokens") for unit, share in sizes]
            served = np.array([[100 * each[last].mean() for each in pair] for pair in both])
            rows.append(served[:, 1] - served[:, 0])
            newest.append(served[:, 0])
    table = pd.DataFrame(rows, columns=[f"{unit} {share}" for unit, share in sizes])
    summary = {
        "mean": table.mean(),
        "worst tenth": table.quantile(0.1),
        "newest": pd.Series(np.mean(newest, axis=0), table.columns),
    }
    print(f"{len(table)} stores")
    print(pd.DataFrame(summary).T.round(1).to_string())


def night_by_night(life: Life, budget: int) -> tuple[Flags, float]:
    """Which needs find their memory loaded where a plan retires every night; mean load / budget."""
    past, tokens, count = life.expectation.experience, life.history.tokens, len(life)
    needed_on, written_on = np.floor(past.when), np.floor(past.born)
    loaded = np.zeros(count, dtype=bool)
    stays_until, times = np.full(count, -np.inf), np.zeros(count, dtype=np.int64)
    latest = np.zeros(count)
    found, loads = np.zeros(len(past.at), dtype=bool), []
    for day in np.arange(written_on[0], max(needed_on[-1], written_on[-1]) + 1):
        written = int(np.searchsorted(written_on, day, side="right"))
        loaded[written_on == day] = True
        today = past.target[needed_on == day]
        found[needed_on == day] = loaded[today]
        back = np.unique(today[~loaded[today]])
        held = STAYS_FOR.days * STAYS_TIMES ** np.clip(times - 1, 0, 6)
        again = np.intersect1d(today, np.flatnonzero(np.isfinite(stays_until)))
        stays_until[again] = np.maximum(stays_until[again], day + 1 + held[again])
        times[back] += 1
        stays_until[back] = day + 1 + STAYS_FOR.days * STAYS_TIMES ** np.clip(times[back] - 1, 0, 6)
        latest[today] = day
        stays = np.flatnonzero(stays_until > day + 1)
        stays = stays[np.argsort(latest[stays], kind="stable")[::-1]]
        stays = stays[holds(tokens[stays], budget)]
        there = np.setdiff1d(np.arange(written), stays)
        moment = Moment(written, int(np.searchsorted(needed_on, day, side="right")), day + 1)
        score = life.expectation.scores(there, moment, Space(budget, of_tokens=True))
        surplus = int(tokens[there].sum() + tokens[stays].sum()) - budget
        loaded[:written] = True
        if surplus > 0:
            loaded[there[lowest_of((score, there), tokens[there], surplus, fill=True)]] = False
        loads.append(tokens[loaded].sum() / budget)
    return found, float(np.mean(loads))


def measure_nights(stores: Sequence[Store]) -> None:
    """Print what nights serve and load of each budget, beside a replay that retires."""
    rows = []
    for store in stores:
        weights = fit([each for each in stores if each.owner != store.owner], "reads")
        life = life_for(store, weights, "reads")
        last = np.arange(len(life.at)) >= len(life.at) / 3
        row: list[float] = []
        for share in SHARES:
            budget = int(share * life.history.tokens.sum())
            found, load = night_by_night(life, budget)
            kept = _kept(life, Learned(max_tokens=budget), "reads")
            row += [100 * kept[last].mean(), 100 * found[last].mean(), 100 * load]
        rows.append(row)
    table = np.mean(rows, axis=0).reshape(len(SHARES), 3).round(1)
    names = ["replay serves", "nights serve", "load"]
    print(pd.DataFrame(table, index=SHARES, columns=names).to_string())


def _stretch(life: Life, share: float, first: float, last: float) -> tuple[float, float]:
    """What a share of the tokens served between two moments, and the variance of its noise."""
    counts = (life.at >= first) & (life.at < last)
    if counts.sum() < ENOUGH:
        return np.nan, np.nan
    there = np.cumsum(life.history.tokens)[np.take(life.at, np.flatnonzero(counts)) - 1].mean()
    kept = _kept(life, Learned(max_tokens=int(share * there)), "reads")[counts].astype(float)
    days = pd.Series(kept - kept.mean()).groupby(life.referred[counts].astype("datetime64[D]"))
    noise = max((days.sum() ** 2).sum(), kept.var() * len(kept)) / len(kept) ** 2
    return float(kept.mean()), float(noise)


def measure_between(stores: Sequence[Store]) -> None:
    """Print by how much what is served differs from one stretch to the next beyond their noise."""
    rows = []
    for store in stores:
        weights = fit([each for each in stores if each.owner != store.owner], "reads")
        life = life_for(store, weights, "reads")
        for cut in (share * len(life) for share in (0.6, 0.7, 0.8, 0.9)):
            for share in (0.2, 0.4, 0.6):
                before = _stretch(life, share, GROWN * cut, cut)
                rows.append((store.name, *before, *_stretch(life, share, cut, DEFAULT_UNTIL * cut)))
    names = ["store", "served", "noise", "then", "noise then"]
    table = pd.DataFrame(rows, columns=names).dropna()
    apart = table["then"] - table["served"]
    variance = (apart**2).mean() - table[["noise", "noise then"]].sum(axis=1).mean()
    of_one = (table["then"] * (1 - table["then"])).mean()
    print(f"{len(table)} pairs of stretches of {table['store'].nunique()} stores")
    print(f"{apart.mean():+.3f} on average, {variance**0.5:.3f} one standard deviation")
    print(f"BETWEEN = {variance / of_one:.3f}")


def measure(stores: Sequence[Store], evidence: Evidence) -> None:
    """Print a line for each store, then what all of them say."""
    owners = {store.owner for store in stores}
    weights = {
        owner: fit([each for each in stores if each.owner != owner], evidence) for owner in owners
    }
    sizes = NEWEST if evidence == "references" else SHARES
    names = [f"{unit} {size}" for unit in ("#", "tokens") for size in sizes]
    rows, newest, most = {}, {}, {}
    for store in stores:
        gains, served, could = gains_on(store, weights[store.owner], evidence)
        if gains:
            rows[store.name], newest[store.name], most[store.name] = gains, served, could
            print(f"{store.name:<18}", *(f"{gain:+6.1f}" for gain in gains), flush=True)
    table, served, could = (pd.DataFrame(each, index=names).T for each in (rows, newest, most))
    of_owner = table.groupby({store.name: store.owner for store in stores}).mean()
    summary = {
        "mean": table.mean(),
        "its error": of_owner.std() / np.sqrt(len(of_owner)),
        "worst tenth": table.quantile(0.1),
        "worst": table.min(),
        "newest": served.mean(),
        "at most": could.mean(),
    }
    print(pd.DataFrame(summary).T.round(1).to_string())
    for unit in ("#", "tokens"):
        gains = table.filter(like=unit).to_numpy()
        print(f"{unit}: {gains.mean():+.2f} on average, {gains.min():+.2f} at worst")


def main() -> None:
    """Measure each kind of evidence."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=CHECKOUT.parent / "shared" / "data")
    parser.add_argument("--evidence", nargs="*", choices=EVIDENCE, default=EVIDENCE)
    parser.add_argument("--nights", action="store_true")
    parser.add_argument("--between", action="store_true")
    parser.add_argument("--by-then", action="store_true")
    asked = parser.parse_args()
    if asked.by_then:
        measure_by_then(read_stores(asked.folder, "reads"))
        return
    if asked.nights:
        measure_nights(read_stores(asked.folder, "reads"))
        return
    if asked.between:
        measure_between(read_stores(asked.folder, "reads"))
        return
    for evidence in asked.evidence:
        print(f"by {evidence}")
        measure(read_stores(asked.folder, evidence), evidence)


if __name__ == "__main__":
    main()
