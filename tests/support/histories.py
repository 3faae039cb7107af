"""Simulated histories that follow the law of real projects' references.

Most references go back some tens of memories, a part of them hundreds or thousands (bug
archaeology). They come in bursts, and distances drift as a project ages. There is between one
reference in a hundred memories and one in eight.
"""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as c
from memlab.evidence.references import find_references
from memlab.sizing import advise, prepare_sizing
from memlab.sizing.curve import in_tokens
from tests.support.frames import make_episodes, make_references
from tests.support.stores import Row, row

Floats = npt.NDArray[np.float64]

HistoryFrames = tuple[pd.DataFrame, pd.DataFrame]
"""Memories, and the references to them."""

DRIFTS = ("steady", "growing", "shrinking", "wandering")


def recommend_budget(memories: Any, *references: Any, target: float = 0.9, **terms: Any) -> Any:
    """Recommend a token budget, as `recommend_cap` recommends a number of memories."""
    return advise(in_tokens(prepare_sizing(memories, *references, **terms)), target=target)


def simulate_history(seed: int, drift: str, *, rows: int | None = None) -> HistoryFrames:
    """Draw episodes and references, determined by the seed."""
    rng = np.random.default_rng(seed)
    if rows is None:
        rows = int(np.exp(rng.uniform(np.log(2000), np.log(15000))))
    per_row = np.exp(rng.uniform(np.log(0.01), np.log(0.13)))
    scale = _scale(rng, rows, drift)
    counts = rng.poisson(per_row * _bursts(rng, rows))
    at = np.repeat(np.arange(rows), counts)
    near = rng.lognormal(np.log(rng.uniform(8, 60)), rng.uniform(1.2, 1.8), len(at))
    far = rng.lognormal(np.log(rng.uniform(500, 3000)), rng.uniform(0.8, 1.3), len(at))
    chance = rng.random(len(at))
    is_far = chance < rng.uniform(0.05, 0.35) * np.clip(scale[at], 0.3, 3)
    distance = np.ceil(np.where(is_far, far, near) * scale[at]).astype(np.int64)
    is_valid = (distance <= at) & (distance > 0)
    frame = make_episodes(rows)
    return frame, make_references(frame, at[is_valid], distance[is_valid])


def _scale(rng: np.random.Generator, rows: int, drift: str) -> Floats:
    """Return the factor by which distances exceed those at the middle of the history."""
    if drift == "wandering":
        return np.repeat(np.exp(rng.normal(0, 0.5, 10)), rows // 10 + 1)[:rows]
    rate = {"steady": 0.0, "growing": rng.uniform(0.3, 1.5), "shrinking": -rng.uniform(0.3, 1.2)}
    return np.exp(rate[drift] * np.linspace(-0.5, 0.5, rows))


def _bursts(rng: np.random.Generator, rows: int) -> Floats:
    """Return the activity of each of sixty stretches of the history, one on average."""
    pace = np.repeat(np.exp(rng.normal(0, 0.8, 60)), rows // 60 + 1)[:rows]
    return pace / pace.mean()


def work(rows: int = 1600, *, seed: int = 0) -> HistoryFrames:
    """Return a history in which only long texts tagged ``core`` are needed later."""
    rng = np.random.default_rng(seed)
    is_core = rng.random(rows) < 0.3
    distance = np.ceil(rng.lognormal(3, 1.2, rows)).astype(int)
    at = np.flatnonzero(rng.random(rows) < 0.9)
    target = at - np.minimum(distance[at], at)
    at = at[(distance[at] <= at) & is_core[target]]
    frame = make_episodes(rows)
    frame[c.CHARS] = np.where(is_core, 900, 60) + rng.integers(0, 50, rows)
    tags = np.empty(rows, dtype=object)
    tags[:] = [("shipped", "core") if core else ("shipped",) for core in is_core]
    frame[c.TAGS] = tags
    return frame, make_references(frame, at, distance[at])


def recorded() -> HistoryFrames:
    """Return the history of :func:`work` with its references written in the rows."""
    frame, references = work()
    targets_at: dict[int, list[str]] = {}
    for at, target in zip(references[c.AT_POSITION], references[c.TARGET_ID], strict=True):
        targets_at.setdefault(at, []).append(target)
    cells = np.empty(len(frame), dtype=object)
    cells[:] = [tuple(targets_at.get(position, ())) for position in frame[c.POSITION]]
    frame[c.EVIDENCE_REFS] = cells
    return frame, find_references(frame)


def recorded_rows(count: int | None = None) -> list[Row]:
    """Return the history of :func:`recorded` as rows of a store."""
    frame, _ = recorded()
    return [
        row(
            memory.memory_id,
            "episodic",
            *memory.tags,
            title="",
            body="x" * memory.chars,
            created_at=memory.created_at.isoformat(),
            evidence_refs_json=json.dumps(memory.evidence_refs),
        )
        for memory in frame.iloc[:count].itertuples()
    ]
