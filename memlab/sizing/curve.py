"""The cap curve: for every cap, what it serves and what it costs."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import arguments
from memlab.columns import DELETED_AT, REFERENCES, SOURCE, TOKEN_RULE
from memlab.evidence.ahead import Ahead
from memlab.evidence.gaps import Gaps, gaps_of, rows_of_gaps, with_gaps
from memlab.evidence.law import DEFAULT_CONFIDENCE, Law, fitted_law
from memlab.evidence.places import OnRows
from memlab.evidence.references import find_references
from memlab.frame.needed import expect_memories, expect_references
from memlab.sizing.history import (
    Flags,
    History,
    Ints,
    Present,
    Ranked,
    beyond_gaps,
    history_of,
    present_of,
    ranked,
)
from memlab.sizing.record import CUTS, Cut, ahead_of, cuts_of, widening

KEEP_RECENT: Final = "keep_recent"
"""Name of the curve's index."""

EXACT_AT: Final = "boot_history_exact_at"
"""Key of ``curve.attrs``: the caps at which the statistics over history were computed."""

EVERY_CAP: Final = 4096
"""Up to this many prunable rows, the curve has a line for every cap."""

ROUND_CAPS: Final = np.array([step * 10**zeros for zeros in range(9) for step in (1, 2, 5)])
"""Caps that people ask for: they have a line of their own in every curve that reaches them."""

MOMENTS: Final = 30_000_000
"""Moments that the statistics over history walk in one curve, about a second: caps times rows."""

FEWEST_EXACT: Final = 24
"""Caps at which those statistics are computed however long the history is: four per decade."""


@dataclass(frozen=True)
class Sizing:
    """A store prepared for sizing: after this, a look-up at any cap or target is cheap.

    Attributes
    ----------
    history, present, references
        The store as arrays.
    misfits : int
        References that did not fit the frame: no such target, or one written later.
    confidence : float
        Of each limit on its own.
    law : Law
        What other projects' references say.
    source : str
        What the store is called.
    gaps : Gaps
        Memories that were deleted without an archive.
    lost : int
        References to these.
    """

    history: History
    present: Present
    references: Ranked
    misfits: int = 0
    confidence: float = DEFAULT_CONFIDENCE
    law: Law = field(default_factory=fitted_law)
    source: str = ""
    gaps: Gaps = field(default_factory=Gaps)
    lost: int = 0

    @cached_property
    def cuts(self) -> list[Cut]:
        """The store as it was at earlier moments, and what was referred to afterwards."""
        return cuts_of(self.history, self.references, self.law, self.confidence, CUTS)

    @cached_property
    def ahead(self) -> Ahead:
        """The cap for each share in the next stretch, with limits that its record widens."""
        plain = ahead_of(self.history, self.references, self.law, self.confidence)
        return replace(plain, widened=widening(self.cuts))

    @cached_property
    def curve(self) -> pd.DataFrame:
        """The cap curve, as `cap_curve` returns it."""
        every = np.arange(self.history.prunable + 1)
        exact = every
        if len(every) > EVERY_CAP or len(every) * len(self.history) > MOMENTS:
            exact = _spread(every[-1], max(MOMENTS // len(self.history), FEWEST_EXACT))
        caps = every if len(every) <= EVERY_CAP else np.union1d(exact, self._changes())
        over_history = self.history.boot_at(exact)
        columns = self._now(caps)
        columns |= {name: np.interp(caps, exact, known) for name, known in over_history.items()}
        curve = _lines(caps, columns)
        # a range where it can be: pandas copies attrs at every step
        exact_at = range(len(every)) if exact is every else exact.tolist()
        curve.attrs = {
            EXACT_AT: exact_at,
            TOKEN_RULE: self.present.token_rule,
            SOURCE: self.source,
            REFERENCES: len(self.references),
        }
        return curve

    def at(self, caps: Iterable[int]) -> pd.DataFrame:
        """Return the curve at these caps, each computed exactly.

        Raises
        ------
        ValueError
            When a cap is no whole number of 0 or more.
        """
        wanted = np.array([arguments.whole_number("cap", cap) for cap in caps], dtype=np.int64)
        return _lines(wanted, self.columns_at(wanted))

    def columns_at(self, caps: Ints) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the curve at these caps, each computed exactly."""
        once, place = np.unique(caps, return_inverse=True)
        over_history = self.history.boot_at(once)
        return self._now(caps) | {name: known[place] for name, known in over_history.items()}

    def largest_within(self, token_budget: int) -> int | None:
        """Return the largest cap that :meth:`fits` a budget; None when not even 0 does.

        No more than the prunable rows there would be now, had none been deleted: beyond that
        nothing changes.
        """
        fits, fails = -1, self.history.prunable + 1
        while fails - fits > 1:
            cap = (fits + fails) // 2
            fits, fails = (cap, fails) if self.fits(cap, token_budget) else (fits, cap)
        return None if fits < 0 else fits

    def fits(self, cap: int, token_budget: int) -> bool:
        """Whether a boot context stays within a budget, now and in 95% of starts over the history.

        Where memories have grown longer, what a cap keeps now may be more than it ever kept.
        """
        present = self.present
        now = present.floor.tokens + int(present.tokens_newest[min(cap, present.prunable)])
        (p95,) = self.history.boot_at(np.array([cap]))["boot_tokens_p95"]
        return max(now, int(p95)) <= token_budget

    def _changes(self) -> Ints:
        """Caps at which the share seen changes, and a spread of others."""
        most = self.history.prunable
        changes = np.flatnonzero(np.bincount(self.references.rank, minlength=1))
        wanted = np.concatenate([_spread(most, EVERY_CAP // 8), ROUND_CAPS, changes])
        return np.unique(wanted[wanted <= most])

    def _now(self, caps: Ints) -> dict[str, npt.NDArray[Any]]:
        """Shares served, and what the caps would leave of the store as it is now."""
        low, high = self.ahead.limits_at(caps)
        kept = np.minimum(caps, self.present.prunable)
        memories = self.present.floor.memories + kept
        tokens = self.present.floor.tokens + self.present.tokens_newest[kept]
        return {
            "served": self.ahead.share_at(caps),
            "low": low,
            "high": high,
            "served_own": self.ahead.own_share_at(caps),
            "served_elsewhere": self.ahead.law_share_at(caps),
            "served_observed": self.references.share_at(caps),
            "boot_memories": memories,
            "boot_tokens": tokens,
            "noise_share": kept / np.maximum(memories, 1),
            "noise_share_tokens": self.present.tokens_newest[kept] / np.maximum(tokens, 1),
            "pruned": self.present.prunable - kept,
            "days": self.present.days_newest[kept],
        }


_COLUMNS: Final = [
    "served",
    "low",
    "high",
    "served_own",
    "served_elsewhere",
    "served_observed",
    "boot_memories",
    "boot_tokens",
    *(f"boot_{of}_{what}" for of in ("memories", "tokens") for what in ("mean", "p95", "max")),
    "noise_share",
    "noise_share_tokens",
    "pruned",
    "days",
]


def prepare_sizing(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    law: Law | None = None,
) -> Sizing:
    """Prepare a frame for look-ups at many caps and targets.

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns. Where it has a column ``deleted_at``, memories with a time in
        it are those that were deleted since: they count as in the past, and not as in the store.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given.
    confidence : float
        Of each limit on its own, above 0.5 and below 1.
    law : Law, optional
        What other projects' references say; the one fitted on nine of them when not given.

    Returns
    -------
    Sizing
        With ``curve``, ``at(caps)``, ``largest_within(token_budget)`` and ``ahead``.

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    WrongArgumentError
        When `frame` is no frame, or not one of a store.
    """
    return prepared(frame, references, confidence, law, call="memlab.prepare_sizing")


def prepared(
    frame: pd.DataFrame,
    references: pd.DataFrame | None,
    confidence: float,
    law: Law | None = None,
    *,
    call: str,
) -> Sizing:
    """Prepare a frame on behalf of a public call."""
    return prepared_on_rows(frame, references, confidence, law, call=call)[0]


def prepared_on_rows(
    frame: pd.DataFrame,
    references: pd.DataFrame | None,
    confidence: float,
    law: Law | None = None,
    *,
    call: str,
) -> tuple[Sizing, OnRows, Flags]:
    """Prepare a frame; return also the rows that its references name, and which of them are lost.

    A reference is lost where it names what was deleted without an archive.
    """
    expect_memories(frame, call=call)
    expect_references(references, call=call, optional=True)
    confidence = arguments.confidence(confidence)
    gaps = gaps_of(frame) if DELETED_AT in frame else Gaps()
    frame = with_gaps(frame)
    if references is None:
        references = find_references(frame)
    history = history_of(frame)
    fitting, on_rows = ranked(frame, history, references)
    law = fitted_law() if law is None else law
    lost = rows_of_gaps(frame)[on_rows.target]
    sizing = Sizing(
        history,
        present_of(frame),
        beyond_gaps(fitting, lost, law),
        len(references) - len(on_rows.place),
        confidence,
        law,
        source=str(frame.attrs.get(SOURCE, "")),
        gaps=gaps,
        lost=int(lost.sum()),
    )
    return sizing, on_rows, lost


def cap_curve(
    frame: pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
) -> pd.DataFrame:
    """Compute what every cap serves, and what it costs.

    What a cap would have served in the past is exact, under supersession too: a reference counts as
    served iff its target would still be in a store that was compacted to that cap after every row
    written and whatever it replaced. What it will serve until the store has doubled is estimated
    from those references and from other projects', weighed by how many there are (see `Ahead`).

    Parameters
    ----------
    frame : DataFrame
        What ``memlab.load`` returns.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame when not given.
    confidence : float
        Of each limit on its own.

    Returns
    -------
    DataFrame
        Indexed by ``keep_recent`` from 0 to the prunable rows there would be now, had none been
        deleted; every cap up to
        `EVERY_CAP` rows, beyond that those where the share seen changes and a spread of others.

        ==========================  ==========================================================
        ``served``                  estimated share of references served in the next stretch
        ``low``, ``high``           its limits
        ``served_own``              the same by the store's own references alone
        ``served_elsewhere``        the same by other projects' references alone
        ``served_observed``         plain share of the store's references so far
        ``boot_memories``,          the active rows if the store were compacted to this cap now,
        ``boot_tokens``             and their tokens
        ``boot_*_mean, _p95, _max`` the same over the history under continuous compaction, one
                                    value for each row written; caps at which they were computed
                                    are in ``attrs``, between those they are interpolated
        ``noise_share``,            prunable share of the boot context now, by number and by tokens
        ``noise_share_tokens``
        ``pruned``                  rows that would go now
        ``days``                    from the newest row back to the oldest prunable one kept
        ==========================  ==========================================================

        ``served_own`` and ``served_observed`` are NaN without a reference.

    Raises
    ------
    ValueError
        When an argument is out of its range, or `references` lacks a column.
    WrongArgumentError
        When `frame` is no frame, or not one of a store.
    """
    return prepared(frame, references, confidence, call="memlab.sizing.cap_curve").curve


def _lines(caps: Ints, columns: dict[str, npt.NDArray[Any]]) -> pd.DataFrame:
    """Return a line of the curve for each cap."""
    index = pd.Index(caps, name=KEEP_RECENT)
    return pd.DataFrame({name: columns[name] for name in _COLUMNS}, index=index)


def _spread(most: int, count: int) -> Ints:
    """Return about `count` caps from 0 to `most`, evenly spaced by ratio."""
    return np.unique(np.append(np.geomspace(1, most + 1, count).astype(np.int64) - 1, most))
