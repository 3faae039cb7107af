"""What an agent loads at start, and what one compaction would make of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memlab import columns as c
from memlab.text import Sheet, Shown, Table

Mask: TypeAlias = NDArray[np.bool_]

PARTS: Final = ("decisions", "skills", "rejected paths", "unreadable", "episodes")
"""The parts of a boot context. All but the episodes are load-bearing."""


@dataclass(frozen=True, slots=True)
class Amount:
    """So many items, holding so many tokens."""

    items: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot context and its noise.

    Attributes
    ----------
    items, tokens : int
        All active rows.
    load_bearing, prunable : Amount
        The two kinds of active rows.
    noise_by_items, noise_by_tokens : float or None
        Prunable over active, in [0, 1]; None where there is nothing to divide by.
    """

    items: int
    tokens: int
    load_bearing: Amount
    prunable: Amount
    noise_by_items: float | None
    noise_by_tokens: float | None


@dataclass(frozen=True, slots=True, repr=False)
class CapEffect(Shown):
    """What one compaction to `keep_recent` prunable rows would do to a boot context.

    Attributes
    ----------
    keep_recent : int
        The cap.
    before, after : Boot
        The boot context without and with it.
    pruned : Amount
        What would go.
    oldest_kept, newest_kept, newest_pruned : datetime or None
        When the first and the last prunable row to stay, and the last to go, were created, in
        order of position; None where there is no such row.
    """

    keep_recent: int
    before: Boot
    after: Boot
    pruned: Amount
    oldest_kept: datetime | None
    newest_kept: datetime | None
    newest_pruned: datetime | None

    def sheet(self) -> Sheet:
        """Return what is printed."""
        return _effect_sheet(self)


def boot_context(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what an agent loads at start, part by part.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` returns it.

    Returns
    -------
    pandas.DataFrame
        Indexed by ``part``, in the order of :data:`PARTS`; ``items`` and ``tokens`` (int64) of the
        active rows and whether the part is ``load_bearing``. ``unreadable`` (rows that are kept
        because they could not be interpreted) is there only when it is not empty. ``attrs`` carries
        the token rule.
    """
    active = frame.loc[frame[c.ACTIVE], [c.KIND, c.LOAD_BEARING, c.TOKENS]]
    kind = active[c.KIND].astype("object")
    choices = [
        ~active[c.LOAD_BEARING],
        kind == "semantic",
        kind == "procedural",
        kind == "episodic",
    ]
    names = ["episodes", "decisions", "skills", "rejected paths"]
    part = pd.Series(np.select(choices, names, default="unreadable"), index=active.index)
    if c.PROBLEM in frame:
        part = part.mask(frame[c.PROBLEM].notna(), "unreadable")
    counts = active.groupby(part)[c.TOKENS].agg(["size", "sum"]).reindex(list(PARTS), fill_value=0)
    result = counts.set_axis([c.ITEMS, c.TOKENS], axis="columns").astype("int64")
    result[c.LOAD_BEARING] = result.index != "episodes"
    result = result[(result.index != "unreadable") | (result[c.ITEMS] > 0)].rename_axis(c.PART)
    result.attrs = {c.TOKEN_RULE: frame.attrs.get(c.TOKEN_RULE, "")}
    return result


def cap_effect(frame: pd.DataFrame, keep_recent: int) -> CapEffect:
    """Return what one compaction would do, without doing it.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` returns it.
    keep_recent : int
        How many of the newest prunable rows stay, newest by position.

    Raises
    ------
    ValueError
        When `keep_recent` is negative or not an int.
    """
    stays = _stays(frame, keep_recent)
    kept = frame[c.POSITION].where(frame[c.PRUNABLE].to_numpy(bool) & stays)
    return CapEffect(
        keep_recent=keep_recent,
        before=boot_of(frame, np.ones(len(frame), dtype=bool)),
        after=boot_of(frame, stays),
        pruned=amount_of(frame, ~stays),
        oldest_kept=_created(frame, kept.min()),
        newest_kept=_created(frame, kept.max()),
        newest_pruned=_created(frame, frame[c.POSITION].mask(stays).max()),
    )


def survivors(frame: pd.DataFrame, keep_recent: int) -> pd.DataFrame:
    """Return the rows that one compaction to `keep_recent` would leave, as they stand in `frame`.

    Parameters
    ----------
    frame : pandas.DataFrame
        As :func:`memlab.load` returns it.
    keep_recent : int
        How many of the newest prunable rows stay, newest by position.

    Raises
    ------
    ValueError
        When `keep_recent` is negative or not an int.
    """
    return frame[_stays(frame, keep_recent)]


def boot_of(frame: pd.DataFrame, rows: Mask) -> Boot:
    """Return the boot context that `rows` of the frame make up."""
    active = rows & frame[c.ACTIVE].to_numpy(bool)
    prunable = rows & frame[c.PRUNABLE].to_numpy(bool)
    everything, noise = amount_of(frame, active), amount_of(frame, prunable)
    return Boot(
        items=everything.items,
        tokens=everything.tokens,
        load_bearing=amount_of(frame, active & ~prunable),
        prunable=noise,
        noise_by_items=noise.items / everything.items if everything.items else None,
        noise_by_tokens=noise.tokens / everything.tokens if everything.tokens else None,
    )


def amount_of(frame: pd.DataFrame, rows: Mask) -> Amount:
    """Return how many `rows` there are and what they hold."""
    return Amount(items=int(rows.sum()), tokens=int(frame[c.TOKENS].to_numpy()[rows].sum()))


def moment_of(value: Any) -> datetime | None:
    """Return a creation time as a plain datetime; None for a missing one."""
    return None if pd.isna(value) else pd.Timestamp(value).to_pydatetime()


def check_count(name: str, value: int) -> None:
    """Refuse what is not a count."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be an int of 0 or more, not {value!r}")


def _stays(frame: pd.DataFrame, keep_recent: int) -> Mask:
    """Mark the rows that one compaction leaves: all but the older prunable ones."""
    check_count("keep_recent", keep_recent)
    prunable = frame[c.PRUNABLE].to_numpy(bool)
    newest_first = frame[c.POSITION].where(prunable).rank(method="first", ascending=False)
    stays: Mask = ~prunable | (newest_first <= keep_recent).to_numpy(bool)
    return stays


def _effect_sheet(effect: CapEffect) -> Sheet:
    """Lay out what a cap would do."""
    facts = [
        (name, f"{moment:%Y-%m-%d}")
        for name, moment in (
            ("last episode to go", effect.newest_pruned),
            ("first episode to stay", effect.oldest_kept),
            ("last episode to stay", effect.newest_kept),
        )
        if moment
    ]
    rows = [
        (name, boot.items, boot.tokens, _per_cent(boot.noise_by_items))
        for name, boot in (("before", effect.before), ("after", effect.after))
    ]
    rows.append(("pruned", effect.pruned.items, effect.pruned.tokens, ""))
    title = f"keep_recent = {effect.keep_recent:,}"
    return Sheet(title, facts, [Table("", ("boot context", "items", "tokens", "noise"), rows)])


def _per_cent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _created(frame: pd.DataFrame, position: float) -> datetime | None:
    """Return when the row at `position` was created; None where there is no such row."""
    created = frame.loc[frame[c.POSITION] == position, c.CREATED_AT]
    return None if created.empty else moment_of(created.iloc[0])
