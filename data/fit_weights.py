#!/usr/bin/env python3
"""Fit what `Learned` starts from, by kind of evidence; write ``memlab/policies/weights.json``.

    python data/fit_weights.py [FOLDER] [-o FILE]    FOLDER is as for data/fit_law.py

Each owner's needs are a conditional logit (see ``memlab/policies/learned.py``) with weights of its
own, drawn from a normal distribution over owners. Its means and standard deviations are found in
rounds: fit every owner's weights with what is known of others', then take mean and spread over
owners, with the variance that each fit leaves (EM with Laplace's approximation; Tierney and Kadane
1986). A mean is an owner's, not a need's: a busy store counts no more than another. Notes of agents
that search have no tags, names or task numbers, so reads say nothing of those features: they start
from none, and a spread under which some tens of reads move them.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from fit_law import HERE, SOURCE, rows_of

from memlab.evidence.prior import EVIDENCE, Evidence
from memlab.evidence.references import find_references
from memlab.frame.fields import Floats
from memlab.frame.loading import load
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.policies.learned import LIVED, WRITTEN, Expectation, Weights, experience_of, fit_choice
from memlab.store.sqlite_store import SqliteMemoryStore

FEATURES: Final = (*WRITTEN, *LIVED)
SEEN: Final = {
    "references": FEATURES,
    "reads": ("size", "age", "needs", "days", "fading needs", "days since last"),
}
"""Features of which histories of each kind of evidence say something."""
UNSEEN: Final = 0.2
"""The spread of the others."""
LEAST, MOST = 0.03, 1.0
"""Bounds of a spread: few owners say no more."""
ROUNDS: Final = 20
LONGEST: Final = 2_000
"""Characters of what a change left, at most, and of notes where no length is known; of a note whose
length alone is not known, the median of the others in its store."""


@dataclass(frozen=True)
class Store:
    """A store's memories and the needs of them."""

    name: str
    owner: str
    frame: pd.DataFrame
    references: pd.DataFrame

    @cached_property
    def cases(self) -> tuple[Floats, Floats]:
        """What each need fell on and what it might have; see :meth:`Expectation.cases`."""
        past = experience_of(self.frame, self.references)
        return Expectation(past).cases(0, len(past.at))


def read_stores(folder: Path, evidence: Evidence) -> list[Store]:
    """Return the stores of one kind of evidence in a folder, by name."""
    begins, read = {"references": ("history-", _history), "reads": ("recalls-", _recalls)}[evidence]
    names = (path.name for path in sorted(folder.glob(f"{begins}*-memories.csv.gz")))
    return [read(folder, name.removesuffix("-memories.csv.gz")) for name in names]


def _history(folder: Path, name: str) -> Store:
    """Return a project's changes, and the earlier ones that each names."""
    changes = list(rows_of(folder / f"{name}-memories.csv.gz"))
    named = defaultdict(set)
    for row in rows_of(folder / f"{name}-references.csv.gz"):
        if row["by_number"]:
            target = changes[int(row["target_position"])]["number"]
            named[str(int(float(row["by_number"])))].add(f"issue:#{target}")
    frame = _frame(
        _item(
            row["number"],
            min(int(row["body_chars"]), LONGEST),
            row["merged_at"],
            named=tuple(sorted(named[row["number"]] - {f"issue:#{row['number']}"})),
            tags=("shipped", *(area for area in row["areas"].split("|")[:3] if area)),
        )
        for row in changes
    )
    return Store(name, name, frame, find_references(frame))


def _recalls(folder: Path, name: str) -> Store:
    """Return a store's notes, and the best hit of each search."""
    notes = list(rows_of(folder / f"{name}-memories.csv.gz"))
    usual = int(np.median([int(row["chars"]) for row in notes if row["chars"]] or [LONGEST]))
    frame = _frame(_item(row["position"], int(row["chars"] or usual), row["born"]) for row in notes)
    hits = (row for row in rows_of(folder / f"{name}-reads.csv.gz") if row["best"] == "1")
    log = pd.DataFrame(
        [(f"m{row['position']}", row["at"]) for row in hits], columns=["memory_id", "at"]
    )
    log["at"] = pd.to_datetime(log["at"], utc=True)
    with (folder / "recalls-groups.csv").open(newline="", encoding="utf-8") as file:
        owners = {row["store"]: row["group"] for row in csv.DictReader(file)}
    return Store(name, owners[name], frame, find_references(frame, log, only_log=True))


def _item(
    number: str, chars: int, at: str, *, named: tuple[str, ...] = (), tags: tuple[str, ...] = ()
) -> MemoryItem:
    """Return a memory of facts alone: its text is as long as the one they are of."""
    whence = MemoryProvenance(
        None, "-", f"issue:#{number}", created_at=datetime.fromisoformat(at), evidence_refs=named
    )
    return MemoryItem(f"m{number}", MemoryKind.EPISODIC, "", "x" * chars, whence, tags)


def _frame(items: Iterable[MemoryItem]) -> pd.DataFrame:
    with SqliteMemoryStore(":memory:") as store:
        for item in items:
            store.put(item)
        return load(store)


def fit(stores: Sequence[Store], evidence: Evidence) -> Weights:
    """Fit mean and spread of the weights over owners."""
    seen = [FEATURES.index(name) for name in SEEN[evidence]]
    of_owner = defaultdict(list)
    for store in stores:
        of_owner[store.owner].append(store.cases)
    owners = [
        (
            np.concatenate([cases[..., seen] for cases, _ in each]),
            np.concatenate([odds for _, odds in each]),
        )
        for each in of_owner.values()
    ]
    weights = Weights(np.zeros(len(seen)), np.full(len(seen), MOST))
    for _ in range(ROUNDS):
        weights = _over(owners, weights)
    mean, spread = np.zeros(len(FEATURES)), np.full(len(FEATURES), UNSEEN)
    mean[seen], spread[seen] = weights
    return Weights(mean, spread)


def _over(owners, weights: Weights) -> Weights:
    """Return mean and spread over owners, fitted with what was known of them."""
    found = [fit_choice(cases, odds, weights) for cases, odds in owners]
    fitted = np.array([each for each, _ in found])
    left = np.array([np.linalg.inv(curvature).diagonal() for _, curvature in found])
    mean = fitted.mean(axis=0)
    spread = np.sqrt(((fitted - mean) ** 2 + left).mean(axis=0))
    return Weights(mean, np.clip(spread, LEAST, MOST))


def main() -> None:
    """Fit, write, and show what was fitted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=HERE.parents[1] / "shared" / "data")
    parser.add_argument(
        "-o", "--output", type=Path, default=HERE.parent / "memlab" / "policies" / "weights.json"
    )
    asked = parser.parse_args()
    fitted = {}
    for evidence in EVIDENCE:
        stores = read_stores(asked.folder, evidence)
        if not stores:
            parser.error(f"{asked.folder} holds no histories of {evidence}")
        weights = np.column_stack(fit(stores, evidence)).round(3).tolist()
        names = ", ".join(store.name for store in stores)
        fitted[evidence] = {
            "source": SOURCE[evidence].format(names),
            "weights": dict(zip(FEATURES, weights, strict=True)),
        }
    lines = (f"  {json.dumps(kind)}: {json.dumps(each)}" for kind, each in fitted.items())
    asked.output.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(pd.DataFrame({kind: each["weights"] for kind, each in fitted.items()}).to_string())


if __name__ == "__main__":
    main()
