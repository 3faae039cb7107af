"""What one compaction to a cap would make of a boot context, without a plan."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import whole_number
from memlab.frame.arrays import Mask, arrays_of
from memlab.growth.context import Boot, boot_of, size_of
from memlab.items import Size
from memlab.policies import KeepRecent, decide
from memlab.text import Sheet, Shown, Table

_AT_ANY_TIME: Final = datetime.fromtimestamp(0, UTC)
"""The newest stay whatever the clock says."""


@dataclass(frozen=True, slots=True, repr=False)
class CapEffect(Shown):
    """What one compaction to `keep_recent` prunable memories would do to a boot context.

    Attributes
    ----------
    keep_recent : int
        The cap.
    before, after : Boot
        The boot context without and with it.
    deleted : Size
        What would be deleted.
    oldest_kept, newest_kept, newest_deleted : datetime or None
        When the first and the last prunable memory to stay, and the last to be deleted, were
        created, in order of position; None where there is no such memory.
    """

    keep_recent: int
    before: Boot
    after: Boot
    deleted: Size
    oldest_kept: datetime | None
    newest_kept: datetime | None
    newest_deleted: datetime | None

    def sheet(self) -> Sheet:
        """Return what is printed."""
        return _effect_sheet(self)


def cap_effect(frame: pd.DataFrame, keep_recent: int) -> CapEffect:
    """Return what one compaction would do, without doing it.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` returns it.
    keep_recent : int
        How many of the newest prunable memories stay, newest by position.

    Raises
    ------
    ValueError
        When `keep_recent` is not a whole number of 0 or more.
    """
    keep_recent = whole_number("keep_recent", keep_recent)
    stays = _stays(frame, keep_recent)
    memories = arrays_of(frame)
    kept = frame[c.POSITION].where(frame[c.PRUNABLE].to_numpy(bool) & stays)
    return CapEffect(
        keep_recent=keep_recent,
        before=boot_of(memories, np.ones(len(frame), dtype=bool)),
        after=boot_of(memories, stays),
        deleted=size_of(memories, ~stays),
        oldest_kept=_created(frame, kept.min()),
        newest_kept=_created(frame, kept.max()),
        newest_deleted=_created(frame, frame[c.POSITION].mask(stays).max()),
    )


def survivors(frame: pd.DataFrame, keep_recent: int) -> pd.DataFrame:
    """Return the memories that one compaction to `keep_recent` would leave, as they stand.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` returns it.
    keep_recent : int
        How many of the newest prunable memories stay, newest by position.

    Raises
    ------
    ValueError
        When `keep_recent` is not a whole number of 0 or more.
    """
    return frame[_stays(frame, whole_number("keep_recent", keep_recent))]


def _stays(frame: pd.DataFrame, keep_recent: int) -> Mask:
    """Mark what the newest `keep_recent` leave."""
    decided = decide(frame, KeepRecent(keep_recent), now=_AT_ANY_TIME)
    return decided[c.KEEP].to_numpy(bool)


def _created(frame: pd.DataFrame, position: float) -> datetime | None:
    """Return when the memory at `position` was created; None where there is no such memory."""
    created = frame.loc[frame[c.POSITION] == position, c.CREATED_AT]
    found = None if created.empty else created.iloc[0]
    return None if pd.isna(found) else pd.Timestamp(found).to_pydatetime()


def _effect_sheet(effect: CapEffect) -> Sheet:
    """Lay out what a cap would do."""
    facts = [
        (name, f"{moment:%Y-%m-%d}")
        for name, moment in (
            ("last episode to be deleted", effect.newest_deleted),
            ("first episode to stay", effect.oldest_kept),
            ("last episode to stay", effect.newest_kept),
        )
        if moment
    ]
    rows = [
        (name, boot.memories, boot.tokens, _per_cent(boot.noise_by_memories))
        for name, boot in (("before", effect.before), ("after", effect.after))
    ]
    rows.append(("deleted", effect.deleted.memories, effect.deleted.tokens, ""))
    title = f"keep_recent = {effect.keep_recent:,}"
    return Sheet(title, facts, [Table("", ("boot context", "memories", "tokens", "noise"), rows)])


def _per_cent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
