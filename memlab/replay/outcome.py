"""What a walk through a history found, as tables."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.evidence.places import positions_and_next
from memlab.policies import Policy
from memlab.policies.readings import moment as as_moment
from memlab.replay.life import Ints, Life
from memlab.text import Sheet, Shown

KEPT: Final = "kept"
EVICTED_AT: Final = "evicted_at_position"
STEP: Final = "step"
BOOT_ITEMS: Final = "boot_items"
BOOT_TOKENS: Final = "boot_tokens"
HELD: Final = "held"

NEVER: Final = np.iinfo(np.int64).max
"""The moment at which a row that stays is gone."""


@dataclass(frozen=True, repr=False)
class Replay(Shown):
    """What one policy would have done to one history.

    Attributes
    ----------
    policy : Policy
        The rule that was followed.
    references : DataFrame
        Every need: ``target_id``, ``target_position``, ``at_position``, ``at``, ``kind``, then
        ``kept`` (bool), and for a lost one ``evicted_at_position`` (Int64, the row after whose
        writing its target went) and ``step`` (which rule let it go).
    boot : DataFrame
        One row for each row written, indexed by its position: ``at``, ``boot_items`` and
        ``boot_tokens`` (active rows then), ``held`` (those of them that are prunable). A last row,
        one position on, if the policy was applied once more at the end.
    evicted : DataFrame
        One row for each row that went, in the order they went: ``memory_id``, ``position``,
        ``tokens``, ``evicted_at_position``, ``step``.
    """

    policy: Policy
    references: pd.DataFrame
    boot: pd.DataFrame
    evicted: pd.DataFrame

    @property
    def hit_ratio(self) -> float:
        """Share of needs whose target was still there; NaN without any."""
        return float(self.references[KEPT].mean()) if len(self.references) else float("nan")

    @property
    def lost(self) -> int:
        """Needs whose target was gone."""
        return int((~self.references[KEPT]).sum())

    @property
    def most_held(self) -> int:
        """The most prunable rows held at any moment."""
        return int(self.boot[HELD].max()) if len(self.boot) else 0

    @cached_property
    def regret(self) -> pd.DataFrame:
        """What was let go and needed later, the most needed first.

        Returns
        -------
        DataFrame
            Indexed by ``memory_id``: ``lost`` (needs), ``first_at_position`` and ``first_at`` of
            the first of them, ``evicted_at_position`` and ``step``.
        """
        missed = self.references[~self.references[KEPT]]
        table = missed.groupby(col.TARGET_ID, sort=False).agg(
            lost=(col.AT_POSITION, "size"),
            first_at_position=(col.AT_POSITION, "first"),
            first_at=(col.AT, "first"),
            evicted_at_position=(EVICTED_AT, "first"),
            step=(STEP, "first"),
        )
        table.index.name = col.MEMORY_ID
        return table.sort_values(["lost", "first_at_position"], ascending=[False, True])

    @cached_property
    def regret_over_time(self) -> pd.DataFrame:
        """Needs so far and those lost so far, one row a need, with the time it arose.

        Returns
        -------
        DataFrame
            Indexed by ``at_position``: ``at``, ``needs``, ``lost``.
        """
        needs = self.references
        return pd.DataFrame(
            {
                col.AT: needs[col.AT].array,
                "needs": np.arange(1, len(needs) + 1),
                "lost": (~needs[KEPT]).cumsum().to_numpy(dtype=np.int64),
            },
            index=pd.Index(needs[col.AT_POSITION], name=col.AT_POSITION),
        )

    def sheet(self) -> Sheet:
        """Return what is printed."""
        found = len(self.references)
        served = f"{self.hit_ratio:.1%} of {found:,} references" if found else "no references"
        facts = [
            ("served", served),
            ("deleted", f"{len(self.evicted):,} memories"),
            ("held", f"at most {self.most_held:,} prunable memories"),
        ]
        return Sheet(f"replay of {self.policy}", facts)


@dataclass(frozen=True)
class Outcome:
    """What became of every row and every need.

    Attributes
    ----------
    gone : array of int64, one per row
        The moment it is gone from, `NEVER` for one that stays.
    step : array of object, one per row
        Which rule let it go.
    served : array of bool, one per need
    held : array of int64, shape (2, moments), optional
        Prunable rows held and their tokens, where they are not simply those that stay.
    """

    gone: Ints
    step: npt.NDArray[np.object_]
    served: npt.NDArray[np.bool_]
    held: Ints | None = None


def report(life: Life, policy: Policy, outcome: Outcome, now: datetime | None) -> Replay:
    """Put the outcome of a walk into tables."""
    return Replay(policy, _needs(life, outcome), _boot(life, outcome, now), _evicted(life, outcome))


def _needs(life: Life, outcome: Outcome) -> pd.DataFrame:
    """Every need, and of a lost one what let its target go."""
    references = life.references.copy()
    references[KEPT] = outcome.served
    gone = outcome.gone[life.target]
    went = ~outcome.served & (gone != NEVER)
    at = pd.Series(pd.NA, index=references.index, dtype="Int64")
    at[went] = positions_and_next(life.frame)[gone[went]]
    step = pd.Series(None, index=references.index, dtype="str")
    step[went] = outcome.step[life.target[went]]
    references[EVICTED_AT], references[STEP] = at, step
    return references


def _evicted(life: Life, outcome: Outcome) -> pd.DataFrame:
    """Every row that went, in the order they went."""
    rows = np.flatnonzero(outcome.gone != NEVER)
    rows = rows[np.argsort(outcome.gone[rows], kind="stable")]
    positions = positions_and_next(life.frame)
    return pd.DataFrame(
        {
            col.MEMORY_ID: life.frame[col.MEMORY_ID].iloc[rows].array,
            col.POSITION: positions[rows],
            col.TOKENS: life.history.tokens[rows],
            EVICTED_AT: positions[outcome.gone[rows]],
            STEP: pd.Series(outcome.step[rows], dtype="str").array,
        }
    )


def _boot(life: Life, outcome: Outcome, now: datetime | None) -> pd.DataFrame:
    """Active rows after every moment: items, tokens, and how many are prunable."""
    moments = len(life) + (now is not None)
    left = np.minimum(np.minimum(outcome.gone, life.history.end), moments)
    tokens = life.history.tokens
    amounts = (np.ones_like(tokens), tokens, life.history.counted.astype(np.int64))
    change = np.zeros((3, moments + 1), dtype=np.int64)
    for line, amount in zip(change, amounts, strict=True):
        np.add.at(line, np.arange(len(life)), amount)
        np.add.at(line, left, -amount)
    items, total, prunable = np.cumsum(change[:, :moments], axis=1)
    if outcome.held is not None:
        (prunable, held_tokens), (floor_items, floor_tokens) = outcome.held, life.history.floor
        items, total = floor_items + prunable, floor_tokens + held_tokens
    clock = life.clock if now is None else np.append(life.clock, as_moment(now))
    return pd.DataFrame(
        {
            col.AT: pd.Series(clock).dt.tz_localize("UTC").astype(col.TIME).array,
            BOOT_ITEMS: items,
            BOOT_TOKENS: total,
            HELD: prunable,
        },
        index=pd.Index(positions_and_next(life.frame)[:moments], name=col.POSITION),
    )
