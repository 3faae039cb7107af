"""What a walk through a history found, as tables."""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.frame.arrays import as_instant
from memlab.policies import Policy
from memlab.replay.life import Ints, Life
from memlab.text import Sheet, Shown, counted

KEPT: Final = "kept"
DELETED_AT: Final = "deleted_at_position"
STEP: Final = "step"
BOOT_MEMORIES: Final = "boot_memories"
BOOT_TOKENS: Final = "boot_tokens"
HELD: Final = "held"

STAYS: Final = np.iinfo(np.int64).max
"""The moment from which a row that stays is gone."""


@dataclass(frozen=True, repr=False)
class Replay(Shown):
    """What one policy would have done to one history.

    Attributes
    ----------
    policy : Policy
        The rule that was followed.
    references : DataFrame
        Every reference: ``target_id``, ``target_position``, ``at_position``, ``at``, ``kind``, then
        ``kept`` (bool), and for a lost one ``deleted_at_position`` (Int64, the row after whose
        writing its target went) and ``step`` (which rule let it go).
    boot : DataFrame
        One row for each row written, indexed by its position: ``at``, ``boot_memories`` and
        ``boot_tokens`` (active rows then), ``held`` (those of them that are prunable). A last row,
        one position on, if the policy was applied once more at the end.
    deleted : DataFrame
        One row for each row that went, in the order they went: ``memory_id``, ``position``,
        ``tokens``, ``deleted_at_position``, ``step``.
    """

    policy: Policy
    references: pd.DataFrame
    boot: pd.DataFrame
    deleted: pd.DataFrame

    @property
    def served(self) -> float:
        """Share of references whose target was still there; NaN without any."""
        return float(self.references[KEPT].mean()) if len(self.references) else float("nan")

    @property
    def lost(self) -> int:
        """References whose target was gone."""
        return int((~self.references[KEPT]).sum())

    @property
    def most_held(self) -> int:
        """The most prunable rows held at any moment."""
        return int(self.boot[HELD].max()) if len(self.boot) else 0

    @property
    def told(self) -> dict[Hashable, Any]:
        """What a table made of this carries in its ``attrs``: the source, how many references."""
        return {
            col.SOURCE: self.references.attrs.get(col.SOURCE, ""),
            col.REFERENCES: len(self.references),
        }

    @cached_property
    def regret(self) -> pd.DataFrame:
        """What was let go and referred to later, the most often first.

        Returns
        -------
        DataFrame
            Indexed by ``memory_id``: ``lost`` (references), ``first_at_position`` and
            ``first_at`` of the first of them, ``deleted_at_position`` and ``step``.
        """
        missed = self.references[~self.references[KEPT]]
        table = missed.groupby(col.TARGET_ID, sort=False).agg(
            lost=(col.AT_POSITION, "size"),
            first_at_position=(col.AT_POSITION, "first"),
            first_at=(col.AT, "first"),
            deleted_at_position=(DELETED_AT, "first"),
            step=(STEP, "first"),
        )
        table.index.name = col.MEMORY_ID
        return table.sort_values(["lost", "first_at_position"], ascending=[False, True])

    @cached_property
    def regret_over_time(self) -> pd.DataFrame:
        """References so far and those lost so far, one row a reference, with the time it arose.

        Returns
        -------
        DataFrame
            Indexed by ``at_position``: ``at``, ``references``, ``lost``.
        """
        every = self.references
        table = pd.DataFrame(
            {
                col.AT: every[col.AT].array,
                "references": np.arange(1, len(every) + 1),
                "lost": (~every[KEPT]).cumsum().to_numpy(dtype=np.int64),
            },
            index=pd.Index(every[col.AT_POSITION], name=col.AT_POSITION),
        )
        table.attrs = self.told
        return table

    def sheet(self) -> Sheet:
        """Return what is printed."""
        found = len(self.references)
        served = f"{self.served:.1%} of {found:,} references" if found else "no references"
        facts = [
            ("served", served),
            ("deleted", counted(len(self.deleted), "memories")),
            ("held", f"at most {counted(self.most_held, 'prunable memories')}"),
        ]
        return Sheet(f"replay of {self.policy}", facts)


@dataclass(frozen=True)
class Fates:
    """What became of every row.

    Attributes
    ----------
    gone : array of int64, one per row
        The moment it is gone from, `STAYS` for one that stays.
    step : array of object, one per row
        Which rule let it go.
    """

    gone: Ints
    step: npt.NDArray[np.object_]


def report(life: Life, policy: Policy, fates: Fates, now: datetime | None) -> Replay:
    """Put what a walk found into tables."""
    return Replay(
        policy, _references(life, fates), _boot(life, fates.gone, now), _deleted(life, fates)
    )


def _references(life: Life, fates: Fates) -> pd.DataFrame:
    """Every reference, and of a lost one what let its target go."""
    gone = fates.gone[life.target]
    lost = gone < life.at
    at = pd.Series(pd.NA, index=life.references.index, dtype="Int64")
    at[lost] = life.positions[gone[lost]]
    step = pd.Series(None, index=life.references.index, dtype="str")
    step[lost] = fates.step[life.target[lost]]
    references = life.references.copy()
    references[KEPT], references[DELETED_AT], references[STEP] = ~lost, at, step
    return references


def _deleted(life: Life, fates: Fates) -> pd.DataFrame:
    """Every row that went, in the order they went."""
    rows = np.flatnonzero(fates.gone != STAYS)
    rows = rows[np.argsort(fates.gone[rows], kind="stable")]
    return pd.DataFrame(
        {
            col.MEMORY_ID: life.frame[col.MEMORY_ID].iloc[rows].array,
            col.POSITION: life.positions[rows],
            col.TOKENS: life.history.tokens[rows],
            DELETED_AT: life.positions[fates.gone[rows]],
            STEP: pd.Series(fates.step[rows], dtype="str").array,
        }
    )


def _boot(life: Life, gone: Ints, now: datetime | None) -> pd.DataFrame:
    """Active rows after every moment: memories, tokens, and how many are prunable."""
    moments = len(life) + (now is not None)
    left = np.minimum(np.minimum(gone, life.history.end), moments)
    tokens = life.history.tokens
    amounts = (np.ones_like(tokens), tokens, life.history.counted.astype(np.int64))
    change = np.zeros((3, moments + 1), dtype=np.int64)
    for line, amount in zip(change, amounts, strict=True):
        np.add.at(line, np.arange(len(life)), amount)
        np.add.at(line, left, -amount)
    memories, total, prunable = np.cumsum(change[:, :moments], axis=1)
    clock = life.clock if now is None else np.append(life.clock, as_instant(now))
    return pd.DataFrame(
        {
            col.AT: pd.Series(clock).dt.tz_localize("UTC").astype(col.TIME).array,
            BOOT_MEMORIES: memories,
            BOOT_TOKENS: total,
            HELD: prunable,
        },
        index=pd.Index(life.positions[:moments], name=col.POSITION),
    )
