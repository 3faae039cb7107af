"""In how many tokens memories chosen by use serve a target of the reads: replays at a ladder."""

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from memlab import arguments
from memlab import columns as col
from memlab.evidence.past import Memories
from memlab.evidence.prior import DEFAULT_CONFIDENCE, DEFAULT_UNTIL
from memlab.evidence.references import with_references
from memlab.evidence.usage import FEWEST, share_with_limits
from memlab.policies import Activation, TokenBudget
from memlab.replay.life import life_of, reads_leave_no_trace
from memlab.replay.walk import KEPT, walk_through
from memlab.text import DisplayMixin, Table, TextPage, command, counted

LADDER: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the prunable tokens, tried until the lower limit meets the target."""
_NO_PUBLIC_LOG: Final = (
    "a read of a loaded memory is taken to leave no trace; no public log shows how agents use "
    "memories that they have loaded, so these numbers are this store's alone"
)
GROWN: Final = 0.75
"""Reads count from when this share of the store was written: before, most of it fitted."""


@dataclass(frozen=True, repr=False)
class BudgetByUse(DisplayMixin):
    """Token budgets, and what would have been served, had memories been retired by use.

    Attributes
    ----------
    store, target : str, float
        Its name, and the share of reads to be served.
    reads : int
        The reads that count: those since three quarters of the store were written.
    table : DataFrame
        A row for each budget that was tried, indexed by ``tokens``, load-bearing ones among them:
        ``served``, the limits ``low`` and ``high`` of as many reads to come, and what the
        ``newest`` in as many served.
    token_budget : int or None
        What a start may take.
    log : tuple of str
        The option that names the log to a command, where ``memlab.toml`` does not.
    silent : bool
        Whether a read of a loaded memory was taken to leave no trace.
    """

    store: str
    target: float
    reads: int
    table: pd.DataFrame
    token_budget: int | None = None
    log: tuple[str, ...] = ()
    silent: bool = False

    @property
    def likely(self) -> int | None:
        """The least budget that served the target; None where none did."""
        return self._least("served")

    @property
    def safe(self) -> int | None:
        """The least budget whose lower limit meets it."""
        return self._least("low")

    def _least(self, name: str) -> int | None:
        enough = self.table.index[self.table[name].to_numpy() >= self.target].tolist()
        return int(enough[0]) if enough else None

    @property
    def budget(self) -> int | None:
        """The likely budget, or what a start may take where that is less; None where neither is."""
        asked = [self.token_budget] if self.token_budget in self.table.index else []
        return min(filter(None, [*asked, self.likely]), default=None)

    @property
    def answer(self) -> str:
        """What to do, in a line."""
        if self.reads < FEWEST[0]:
            few = f"{counted(self.reads, 'reads')} since three quarters of it were written"
            return f"too few reads to say to how many tokens this store could retire: {few}"
        if self.budget is None:
            return f"no part of the store serves {self.target:.0%} of reads by use: keep all"
        served, low, high, newest = map(float, self.table.loc[self.budget])
        if newest >= served:
            return f"age is enough here: the newest {self.budget:,} tokens serve {newest:.0%}"
        takes = "all there is" if self.likely is None else f"{self.likely:,}"
        return (
            f"retire by use to {self.budget:,} tokens: serves {served:.0%} of reads ({low:.0%} to "
            f"{high:.0%}); the newest in as many {newest:.0%}"
            + f"; {self.target:.0%} take {takes}"
            * (self.budget != self.likely)
        )

    @property
    def caveats(self) -> list[tuple[str, str]]:
        """What to say beside the numbers of a store whose memories are loaded at start."""
        return [("loaded at start", _NO_PUBLIC_LOG)] if self.silent else []

    def sheet(self) -> TextPage:
        """Return the answer and every budget that was tried."""
        rows = [
            (f"{tokens:,}", *map("{:.0%}".format, shares))
            for tokens, *shares in self.table.itertuples()
        ]
        header = ("tokens", "served", "low", "high", "newest")
        facts = [("reads", f"{self.reads:,}")]
        facts += self.caveats
        return TextPage(self.answer, facts, [Table("", header, rows)])

    @property
    def figures(self) -> dict[str, Any]:
        """All of it, for a script."""
        budgets = json.loads(self.table.reset_index().to_json(orient="records"))
        names = ("target", "reads", "likely", "safe", "silent")
        return {name: getattr(self, name) for name in names} | {"budgets": budgets}

    def next_steps(self) -> list[str]:
        """Return the command that retires to the budget, where that beats age."""
        if not self.answer.startswith("retire"):
            return []
        how = ("--policy", Activation.name, "--max-tokens", self.budget, "--retire", *self.log)
        return [f"next: {command('compact', self.store, *how)}    what is read comes back"]


def budget_by_use(
    frame: Memories,
    references: pd.DataFrame | None = None,
    *,
    target: float = 0.9,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
    token_budget: int | None = None,
) -> BudgetByUse:
    """Replay :class:`~memlab.Activation` with retiring at a ladder of token budgets.

    The ladder is shares of the prunable tokens, a tenth and on, up to the first whose lower limit
    meets the target. Replayed is that share of what there was at the reads that count, on average;
    `tokens` is that of what there will be until the horizon, likewise. Where a start loads the
    memories themselves, a read of one that is loaded is taken to leave no trace.

    Parameters
    ----------
    frame, references : DataFrame
        As for :func:`memlab.replay.replay`; of the references the reads of an access log count.
    target, confidence, until : float
        As for :func:`memlab.recommend_cap`.
    token_budget : int, optional
        What a start may take: replayed as well.
    """
    arguments.share("target", target)
    arguments.confidence("confidence", confidence)
    arguments.until("until", until)
    past, found = with_references(frame, references, call="memlab.replay.budget_by_use")
    life = life_of(past, found, silent=reads_leave_no_trace(past))
    history = life.history
    day = life.referred.astype("datetime64[D]")
    reads = pd.DataFrame({"target": life.target, "day": day})
    counts = (life.references[col.KIND] == "log").to_numpy() & ~reads.duplicated().to_numpy()
    counts &= (day > life.created[life.target]) & history.ever_prunable[life.target]
    counts &= np.arange(len(day)) >= np.searchsorted(life.at, GROWN * len(life))
    floor = history.floor[1]
    prunable = np.cumsum(history.tokens * (history.ever_prunable & (history.end == len(life))))
    then = np.take(life.at, np.flatnonzero(counts)) - 1
    till = prunable[-1:].sum() * (1 + until) / 2
    shares = {*LADDER, ((token_budget or 0) - floor[-1]) / till if till else 0}
    rows: dict[int, tuple[float, ...]] = {}
    for share in sorted(share for share in shares if 0 < share < 1) if len(then) else ():
        budget = round(floor[then].mean() + share * prunable[then].mean())
        replays = (
            walk_through(life, policy, retire=True).references[KEPT]
            for policy in (Activation(max_tokens=budget), TokenBudget(budget))
        )
        served, newest = (each.to_numpy(dtype=np.float64)[counts] for each in replays)
        limits = share_with_limits(day[counts], served, confidence)
        rows[round(floor[-1] + share * till)] = (*limits, newest.mean())
        if limits[1] >= target:
            break
    columns = ["served", "low", "high", "newest"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    store = str(past.attrs.get(col.SOURCE, ""))
    table.index.name = col.TOKENS
    return BudgetByUse(store, target, int(counts.sum()), table, token_budget, silent=life.silent)
