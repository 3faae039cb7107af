"""Effect of a cap on a start, computed without changing the store."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import whole_number
from memlab.evidence.past import HistoryLike, present_rows, resolve_history
from memlab.frame.fields import Flags, arrays_of
from memlab.growth.context import Boot, boot_of, loaded_after, size_of
from memlab.items import Size
from memlab.policies import KeepRecent, decide
from memlab.text import Cell, DisplayMixin, Table, TextPage, or_dash

_AT_ANY_TIME: Final = datetime.fromtimestamp(0, UTC)
"""Time of evaluation for a policy that does not depend on the time."""


@dataclass(frozen=True, slots=True, repr=False)
class CapEffect(DisplayMixin):
    """Effect of a compaction to `keep_recent` prunable memories on a start.

    Attributes
    ----------
    keep_recent : int
        The cap, in memories.
    before, after : Boot
        A start before and after.
    deleted : Size
        The size of the deleted memories.
    oldest_kept, newest_kept : datetime or None
        The creation times of the first and the last prunable memory that is kept, by position.
    newest_deleted : datetime or None
        The creation time of the last memory that is deleted, by position.
    index_tokens : int
        Tokens of the index that a start loads and that belong to no memory, before and after.
    recalled : bool
        Whether a start loads no memory, and memories are looked up when they are needed.

    Examples
    --------
    >>> import memlab
    >>> effect = cap_effect(memlab.store_path("looked_up"), 50)
    >>> effect.before.memories, effect.after.memories, effect.deleted.memories
    (453, 69, 384)
    """

    keep_recent: int
    before: Boot
    after: Boot
    deleted: Size
    oldest_kept: datetime | None
    newest_kept: datetime | None
    newest_deleted: datetime | None
    index_tokens: int = 0
    recalled: bool = False

    def sheet(self) -> TextPage:
        """Return the printed page."""
        times = {
            "last episode to be deleted": self.newest_deleted,
            "first episode to stay": self.oldest_kept,
            "last episode to stay": self.newest_kept,
        }
        facts = [(name, f"{time:%Y-%m-%d}") for name, time in times.items() if time]
        rows: list[tuple[Cell, ...]] = []
        for name, boot in (("before", self.before), ("after", self.after)):
            prunable_share = or_dash(boot.prunable_by_memories)
            rows.append((name, boot.memories, boot.tokens + self.index_tokens, prunable_share))
        rows.append(("deleted", self.deleted.memories, self.deleted.tokens, ""))
        heading = "to recall from" if self.recalled else "a start"
        table = Table("", (heading, "memories", "tokens", "prunable"), rows)
        return TextPage(f"keep_recent = {self.keep_recent:,}", facts, [table])


def cap_effect(frame: HistoryLike, keep_recent: int) -> CapEffect:
    """Compute the effect of a compaction to a cap, without changing the store.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, or the result of ``memlab.load``. Deleted memories in a frame are ignored.
    keep_recent : int
        The number of prunable memories to keep, the newest by position.

    Returns
    -------
    CapEffect
        A start before and after, and the size of the deleted memories.

    Examples
    --------
    >>> import memlab
    >>> effect = cap_effect(memlab.store_path("looked_up"), 50)
    >>> effect.after.prunable.memories
    50
    """
    keep_recent = whole_number("keep_recent", keep_recent)
    frame = present_rows(resolve_history(frame, call="memlab.sizing.cap_effect"))
    is_kept = _is_kept(frame, keep_recent)
    memories = arrays_of(frame)
    is_prunable = frame[c.PRUNABLE].to_numpy(bool)
    kept_positions = frame.loc[is_prunable & is_kept, c.POSITION]
    deleted_positions = frame.loc[~is_kept, c.POSITION]
    # `loaded_after` flags what a start loads after the deletion. The flags of the present start,
    # `at_start`, are removed, because `boot_of` would leave out the entries that move up.
    memories_after = memories._replace(at_start=None)
    return CapEffect(
        keep_recent=keep_recent,
        before=boot_of(memories, np.ones(len(frame), dtype=bool)),
        after=boot_of(memories_after, loaded_after(frame, is_kept)),
        deleted=size_of(memories, ~is_kept),
        oldest_kept=_created(frame, kept_positions.min()),
        newest_kept=_created(frame, kept_positions.max()),
        newest_deleted=_created(frame, deleted_positions.max()),
        index_tokens=frame.attrs.get(c.INDEX_TOKENS, 0),
        recalled=frame.attrs.get(c.RECALLED, False),
    )


def survivors(frame: HistoryLike, keep_recent: int) -> pd.DataFrame:
    """Return the memories that the compaction of :func:`cap_effect` would leave.

    Only the column ``loaded_at_start`` may change: if a start loads only the first part of an
    index, the deletion of entries moves later ones into that part.

    Examples
    --------
    >>> import memlab
    >>> frame = memlab.load(memlab.store_path("looked_up"))
    >>> int(survivors(frame, 50)["prunable"].sum())
    50
    """
    frame = present_rows(resolve_history(frame, call="memlab.sizing.survivors"))
    is_kept = _is_kept(frame, whole_number("keep_recent", keep_recent))
    kept = frame[is_kept]
    if c.LOADED_AT_START not in frame or not frame[c.LOADED_AT_START].any():
        return kept
    return kept.assign(**{c.LOADED_AT_START: loaded_after(frame, is_kept)[is_kept]})


def _is_kept(frame: pd.DataFrame, keep_recent: int) -> Flags:
    """Flag the memories that a compaction to `keep_recent` memories keeps."""
    decided = decide(frame, KeepRecent(keep_recent), now=_AT_ANY_TIME)
    return decided[c.KEEP].to_numpy(bool)


def _created(frame: pd.DataFrame, position: float) -> datetime | None:
    """Return the creation time of the memory at a position, or None if it is unknown.

    The position is NaN if there is no memory to look for.
    """
    created = frame.loc[frame[c.POSITION] == position, c.CREATED_AT]
    if created.empty or pd.isna(created.iloc[0]):
        return None
    return pd.Timestamp(created.iloc[0]).to_pydatetime()
