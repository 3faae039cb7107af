"""The number of tokens in which memories kept by use serve a target share of the reads."""

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from memlab import arguments
from memlab import columns as col
from memlab.evidence.defaults import DEFAULT_CONFIDENCE, DEFAULT_UNTIL
from memlab.evidence.past import HistoryLike
from memlab.evidence.store_history import with_references
from memlab.evidence.usage import MIN_READS, share_with_limits
from memlab.frame.fields import Flags, Floats, Times
from memlab.policies import Activation, Policy, TokenBudget
from memlab.replay.history import ReplayHistory, prepare_history, reads_leave_no_trace
from memlab.replay.walk import KEPT, walk_through
from memlab.text import DisplayMixin, Table, TextPage, command, counted, percent, percent_as_given

BUDGET_SHARES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the prunable tokens to try, in order, until the lower limit meets the target."""
_LOADED_AT_START: Final = (
    "a read of a loaded memory is taken to leave no trace; no public log shows how agents use "
    "memories that they have loaded, so these numbers are this store's alone"
)
_SHARE_COLUMNS: Final = ["served", "low", "high", "newest"]
"""Columns of the table of budgets, all of them shares."""
WARM_UP_SHARE: Final = 0.75
"""Share of the store that is written before reads count.

Before that, most of the store fits into any budget, so that every policy serves the reads.
"""


@dataclass(frozen=True, repr=False)
class BudgetByUse(DisplayMixin):
    """Token budgets, and the share of reads that retiring by use would have served in each.

    Attributes
    ----------
    store : str
        Name of the store.
    target : float
        Share of reads to serve.
    reads : int
        Number of counted reads. Reads count after three quarters of the store were written.
    table : DataFrame
        One row for each budget that was tried. The index ``tokens`` is the budget, which includes
        the tokens of load-bearing memories. ``served`` is the share of reads served. ``low`` and
        ``high`` are the limits of this share for the same number of later reads. ``newest`` is the
        share that the newest memories in as many tokens served.
    token_budget : int or None
        Number of tokens that a start may take.
    log : tuple of str
        Options that name the log on the command line, if ``memlab.toml`` does not name it.
    silent : bool
        Whether reads of loaded memories were assumed to leave no trace.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {"served": [0.7, 0.95], "low": [0.6, 0.9], "high": [0.8, 0.98], "newest": [0.5, 0.8]},
    ...     index=pd.Index([2_000, 5_000], name="tokens"),
    ... )
    >>> budgets = BudgetByUse("memory.db", target=0.9, reads=400, table=table)
    >>> budgets.likely, budgets.is_better
    (5000, True)
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
        """The smallest budget that served the target; None if none did."""
        return self._smallest_budget("served")

    @property
    def safe(self) -> int | None:
        """The smallest budget whose lower limit meets the target; None if none does."""
        return self._smallest_budget("low")

    def _smallest_budget(self, column: str) -> int | None:
        """Return the smallest budget at which a column meets the target."""
        budgets = self.table.index[self.table[column].to_numpy() >= self.target].tolist()
        return int(budgets[0]) if budgets else None

    @property
    def budget(self) -> int | None:
        """The smaller of the likely budget and the number of tokens that a start may take."""
        budgets = []
        if self.likely is not None:
            budgets.append(self.likely)
        if self.token_budget is not None and self.token_budget in self.table.index:
            budgets.append(self.token_budget)
        return min(budgets, default=None)

    @property
    def is_better(self) -> bool:
        """Whether retirement by use is better: at the budget, use serves more reads than age."""
        if self.reads < MIN_READS or self.budget is None:
            return False
        row = self.table.loc[self.budget]
        return bool(row["newest"] < row["served"])

    @property
    def answer(self) -> str:
        """The recommendation in one line."""
        if self.reads < MIN_READS:
            reads = f"{counted(self.reads, 'reads')} since three quarters of it were written"
            return f"too few reads to say to how many tokens this store could retire: {reads}"
        target = percent_as_given(self.target)
        if self.budget is None:
            return f"no part of the store serves {target} of reads by use: keep all"
        row = self.table.loc[self.budget].to_dict()
        served, low, high, newest = (row[name] for name in _SHARE_COLUMNS)
        if newest >= served:
            return (
                f"age is enough here: the newest {self.budget:,} tokens serve {percent(newest, 0)}"
            )
        text = (
            f"retire by use to {self.budget:,} tokens: serves {percent(served, 0)} of reads "
            f"({percent(low, 0)} to {percent(high, 0)}); the newest in as many {percent(newest, 0)}"
        )
        if self.budget != self.likely:
            needed = "all there is" if self.likely is None else f"{self.likely:,}"
            text += f"; {target} take {needed}"
        return text

    @property
    def caveats(self) -> list[tuple[str, str]]:
        """Remarks on the numbers of a store whose memories are loaded at start."""
        if not self.silent:
            return []
        return [("loaded at start", _LOADED_AT_START)]

    def sheet(self) -> TextPage:
        """Return the page: the answer and every budget that was tried."""
        rows: list[tuple[str, ...]] = []
        for tokens, *shares in self.table.itertuples():
            percentages = [percent(share, decimals=0) for share in shares]
            rows.append((f"{tokens:,}", *percentages))
        header = (col.TOKENS, *_SHARE_COLUMNS)
        facts = [("reads", f"{self.reads:,}")]
        facts += self.caveats
        return TextPage(self.answer, facts, [Table("", header, rows)])

    @property
    def figures(self) -> dict[str, Any]:
        """All numbers as JSON values."""
        return {
            "target": self.target,
            "reads": self.reads,
            "likely": self.likely,
            "safe": self.safe,
            "silent": self.silent,
            "budgets": json.loads(self.table.reset_index().to_json(orient="records")),
        }

    def next_steps(self) -> list[str]:
        """Return the command that retires memories to the budget, if use serves more than age."""
        if not self.is_better:
            return []
        return [f"next: {self.command}    memories that are read come back"]

    @property
    def command(self) -> str:
        """The command that shows what retiring by use to the budget would retire."""
        options = ("--policy", Activation.name, "--max-tokens", self.budget, "--retire", *self.log)
        return command("compact", self.store, *options)


def budget_by_use(
    frame: HistoryLike,
    references: pd.DataFrame | None = None,
    *,
    target: float = 0.9,
    confidence: float = DEFAULT_CONFIDENCE,
    until: float = DEFAULT_UNTIL,
    token_budget: int | None = None,
) -> BudgetByUse:
    """Replay :class:`~memlab.Activation` with retiring at several token budgets.

    The budgets are shares of the prunable tokens: 0.1, 0.2 and so on, up to the first whose lower
    limit meets the target. In the replay, the prunable tokens are the mean of those at the reads
    that count. In the result, they are the mean that is expected from now until the horizon:
    ``tokens`` is a share of it. The budget that is replayed and ``tokens`` also include the tokens
    of load-bearing memories. If a start loads the memories, a read of a loaded memory is assumed to
    leave no trace.

    The limits of each share are Wilson's score interval (Wilson 1927) for half the reads, widened
    because reads of one day are alike (Kish 1965) and periods of a store differ.

    Parameters
    ----------
    frame, references
        As for :func:`memlab.replay.replay`. Only references from an access log count.
    target, confidence, until : float
        As for :func:`memlab.recommend_cap`.
    token_budget : int, optional
        Number of tokens that a start may take; it is replayed too.

    Returns
    -------
    BudgetByUse
        The budgets, the share of reads that each served, and its limits.

    Raises
    ------
    ValueError
        If `target`, `confidence` or `until` is out of range.
    MemlabError
        If the store or a log cannot be read.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.store_path("looked_up")
    >>> past = memlab.load_past(store)
    >>> log = memlab.read_access_log(store.with_suffix(".reads.jsonl"))
    >>> budgets = budget_by_use(past, memlab.find_references(past, log), target=0.7)
    >>> budgets.table.index.name, budgets.likely in budgets.table.index
    ('tokens', True)
    """
    arguments.share("target", target)
    arguments.confidence("confidence", confidence)
    arguments.until("until", until)
    past, references = with_references(frame, references, call="memlab.replay.budget_by_use")
    history = prepare_history(past, references, silent=reads_leave_no_trace(past))
    lifetimes = history.lifetimes
    day = history.referred.astype("datetime64[D]")
    is_counted = _counted_reads(history, day)
    # A reference of moment m arises when m rows are written, the last of which is row m - 1.
    moments = np.take(history.at, np.flatnonzero(is_counted)) - 1
    floor_tokens = lifetimes.floor.tokens
    is_active_at_end = lifetimes.end == len(history)
    is_prunable_at_end = lifetimes.ever_prunable & is_active_at_end
    # At each moment: tokens of the memories written so far that are still prunable at the end.
    prunable_tokens = np.cumsum(np.where(is_prunable_at_end, lifetimes.tokens, 0))
    mean_tokens_until_horizon = 0.0
    if len(history):
        # Growth is taken as linear, from the present number to `until` times as many.
        mean_tokens_until_horizon = prunable_tokens[-1] * (1 + until) / 2
    shares = set(BUDGET_SHARES)
    if token_budget is not None and mean_tokens_until_horizon:
        tokens_for_prunable = token_budget - floor_tokens[-1]
        shares.add(tokens_for_prunable / mean_tokens_until_horizon)
    rows: dict[int, dict[str, float]] = {}
    for share in sorted(shares):
        if not 0 < share < 1 or not len(moments):
            continue
        budget = round(floor_tokens[moments].mean() + share * prunable_tokens[moments].mean())
        served = _served_by(history, Activation(max_tokens=budget))[is_counted]
        newest = _served_by(history, TokenBudget(budget))[is_counted]
        mean_served, low, high = share_with_limits(day[is_counted], served, confidence)
        tokens = round(floor_tokens[-1] + share * mean_tokens_until_horizon)
        rows[tokens] = {
            "served": mean_served,
            "low": low,
            "high": high,
            "newest": newest.mean(),
        }
        if low >= target:
            break
    table = pd.DataFrame.from_dict(rows, orient="index", columns=_SHARE_COLUMNS)
    table.index.name = col.TOKENS
    return BudgetByUse(
        store=str(past.attrs.get(col.SOURCE, "")),
        target=target,
        reads=int(is_counted.sum()),
        table=table,
        token_budget=token_budget,
        silent=history.silent,
    )


def _counted_reads(history: ReplayHistory, day: Times) -> Flags:
    """Flag the references that count: reads from a log, after most of the store was written.

    Only the first of several reads of one memory on one day counts. Reads on the day on which the
    memory was written do not count, nor do reads of load-bearing memories.
    """
    reads = pd.DataFrame({"target": history.target, "day": day})
    is_read = (history.references[col.KIND] == "log").to_numpy()
    is_first_of_day = ~reads.duplicated().to_numpy()
    is_later_day = day > history.created[history.target]
    is_prunable = history.lifetimes.ever_prunable[history.target]
    first_counted = np.searchsorted(history.at, WARM_UP_SHARE * len(history))
    is_late = np.arange(len(day)) >= first_counted
    is_counted: Flags = is_read & is_first_of_day & is_later_day & is_prunable & is_late
    return is_counted


def _served_by(history: ReplayHistory, policy: Policy) -> Floats:
    """Replay a policy that retires memories; return 1 for each reference served, 0 for others."""
    replay = walk_through(history, policy, retire=True)
    return replay.references[KEPT].to_numpy(dtype=np.float64)
