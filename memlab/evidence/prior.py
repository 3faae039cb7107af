"""The law: how far back later needs reach in public histories, for each kind of evidence.

A need's *reach* is the power to which the number of memories written is raised to give the age rank
of its target: 0 the newest, 1 the oldest. docs/how/law.md has the figures;
``data/fit_law.py`` fitted ``laws/``.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = npt.ArrayLike

Evidence = Literal["references", "reads"]
"""How a later need shows: a later memory names the memory, or an agent that searched opened it."""

EVIDENCE: Final[tuple[Evidence, ...]] = get_args(Evidence)

STRETCH: Final = 2.0
"""A stretch of a history, in fits, lasts until this many times what there was has been written."""

DEFAULT_UNTIL: Final = 1.2
"""How many times what is written now a number speaks for: who sizes again and again, every night or
every week, need not look a doubling ahead."""

DEFAULT_TARGET: Final = 0.9
"""The share of references to serve where nobody has said one."""

DEFAULT_CONFIDENCE: Final = 0.9
"""Of each limit on its own."""

JUDGED: Final = 1.3
"""A number is judged by the references that come until this many times what there is is written, so
few that their share is noise too. Whatever the horizon: a longer one never asks for less."""

FEWEST_AHEAD: Final = 5.0
"""References that the next stretch is taken to bring at least: a share of fewer says little."""


class Project(NamedTuple):
    """What the needs of one project, or one store, took: a thin line in the chart of the law."""

    name: str
    memories: tuple[int, ...]
    reach: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Law:
    """The reach that serves a share of needs, and how projects differ from it."""

    shares: tuple[float, ...]
    reach: tuple[float, ...]
    between: tuple[float, ...]
    within: tuple[float, ...]
    noise: tuple[float, ...]
    worth: float
    pace: tuple[float, float]
    seen: tuple[int, int]
    projects: tuple[Project, ...] = ()
    source: str = ""

    def reach_at(self, levels: Floats) -> Floats:
        """Return the reach that serves each share; no reach serves none, 1 serves all."""
        found: Floats = np.interp(levels, (0, *self.shares, 1), (0, *self.reach, 1))
        return found

    def spread_at(self, levels: Floats, memories: float, *, weight: float = 0.0) -> Floats:
        """Return the spread of a project's next stretch, wider each doubling beyond the law's."""
        between, within = (
            np.interp(levels, (0, *self.shares, 1), (0, *spread, 0))
            for spread in (self.between, self.within)
        )
        beyond = self.doublings_beyond(memories)
        found: Floats = np.sqrt((1 - weight) * between**2 + (1 + beyond) * within**2)
        return found

    def doublings_beyond(self, memories: float) -> float:
        """Return how many doublings a store is away from those at which the law was seen."""
        fewest, most = self.seen
        return float(max(0.0, np.log2(fewest / max(memories, 1.0)), np.log2(memories / most or 1)))

    def weight_of(self, references: int) -> float:
        """Return how much a store's own references say of it, beside the law: from 0 to 1."""
        return references / (references + self.worth)

    def references_ahead(self, memories: float) -> float:
        """Return about how many references come while a number is judged."""
        scale, power = self.pace
        share = (JUDGED**power - 1) / (STRETCH**power - 1)
        return max(float(share * scale * memories**power), FEWEST_AHEAD)

    def joined(self, other: "Law", share: float) -> "Law":
        """Return the law of needs of which a `share` follow the other law, each by its kind."""
        if not 0 < share < 1:
            return other if share else self
        parts = (1 - share, share)
        levels = np.arange(1, 1000) / 1000
        reach = np.concatenate([law.reach_at(levels) for law in (self, other)])
        weights = np.repeat(parts, len(levels))
        together = np.quantile(reach, self.shares, method="inverted_cdf", weights=weights)
        between = dict[str, Any]()
        for name in ("between", "within", "noise", "worth", "pace"):
            pair = getattr(self, name), getattr(other, name)
            between[name] = _frozen(np.average(pair, axis=0, weights=parts).tolist())
        seen = np.exp(np.average(np.log([self.seen, other.seen]), axis=0, weights=parts))
        return replace(
            self,
            reach=tuple(together.tolist()),
            **between,
            seen=tuple(seen.round().astype(int).tolist()),
            projects=self.projects + other.projects,
            source=f"{self.source}; {other.source}",
        )

    @classmethod
    def from_json(cls, text: str) -> "Law":
        """Return the law that a file of ``laws/`` holds."""
        fields = {name: _frozen(value) for name, value in json.loads(text).items()}
        projects = (Project(**_frozen(project)) for project in fields.pop("projects"))
        return cls(**fields, projects=tuple(projects))


@cache
def fitted_law(evidence: Evidence = "references") -> Law:
    """Return the law as fitted on public histories of one kind of evidence."""
    if evidence not in EVIDENCE:
        raise ValueError(f"evidence must be one of {', '.join(EVIDENCE)}, not {evidence!r}")
    text = files("memlab.evidence").joinpath("laws", f"{evidence}.json").read_text("utf-8")
    return Law.from_json(text)


def law_of(reads: float) -> Law:
    """Return the law of needs of which a share are reads, the others references by name."""
    return fitted_law("references").joined(fitted_law("reads"), reads)


def reach_of(rank: Numbers, written: Numbers) -> Floats:
    """Return the power of the memories written that an age rank is: 0 for none, 1 for all."""
    found: Floats = np.log1p(rank) / np.maximum(np.log1p(written), np.log(2))
    return found


def middle_of(until: float) -> float:
    """Return the memories at the middle of a stretch, in logarithms, beside those at its start."""
    return float(np.exp(until * np.log(until) / (until - 1) - 1))


def rank_at(reach: Numbers, written: Numbers) -> Floats:
    """Return the age rank that a reach is among so many memories written."""
    found: Floats = np.expm1(np.asarray(reach) * np.log1p(written))
    return found


def limits_of(
    levels: Floats, reach: Floats, spread: Floats, *, quantile: float, references: float
) -> tuple[Floats, Floats]:
    """Return lower and upper limits of the reach that serves each share in a stretch to come.

    Projects differ by `spread`; a stretch's share at a fixed reach varies in its logit by
    ``1 / sqrt(n s (1 - s))``, which moves the reach along its own curve.
    """
    step = quantile / np.sqrt(references * levels * (1 - levels))
    logit = np.log(levels / (1 - levels))
    ends, curve = np.concatenate([[0], levels, [1]]), np.concatenate([[0], reach, [1]])
    less, more = (np.interp(1 / (1 + np.exp(-logit - s)), ends, curve) for s in (-step, step))
    lower = reach - np.hypot(quantile * spread, reach - less)
    upper = reach + np.hypot(quantile * spread, more - reach)
    return (
        np.clip(np.maximum.accumulate(lower), 0, 1),
        np.clip(np.minimum.accumulate(upper[::-1])[::-1], 0, 1),
    )


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(each) for name, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
