"""The rules that a comparison tries by default: rules of four systems, by age, and by use.

Each rule is tried at the default of its system, and at sizes of equal cost in tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.policies import Activation, KeepRecent, Pipeline, Policy, TimeToLive
from memlab.policies.named import label_of
from memlab.replay.history import ReplayHistory
from memlab.replay.walk import BOOT_TOKENS, Replay, walk_through

BY_USE: Final = Activation
"""The policy that keeps used memories."""

LOADED_SHARES: Final = (0.1, 0.25, 0.5)
"""Shares of the prunable memories that are kept, for a store whose memories a start loads."""
SEARCHED_SHARES: Final = (0.25, 0.5, 0.75)
"""The same shares for a store whose memories are searched.

The shares are larger, because such a store is compared to find memories that can be deleted.
"""
COST_TOLERANCE: Final = 0.03
"""Costs that differ by at most this share count as equal."""
MAX_TRIES: Final = 6
"""Largest number of sizes that the search for a size of given cost tries."""
_SEARCH_TOLERANCE: Final = COST_TOLERANCE * 2 / 3
"""The search for a size of given cost ends when the cost differs by at most this share.

It is less than `COST_TOLERANCE`, so that sizes found at the same level are also near each other.
"""
_MAX_GROWTH: Final = 4.0
"""Largest factor between two successive sizes of the search; the smallest factor is its inverse."""
MAX_COMPARED: Final = 20_000
"""Number of memories of the largest store in which near-duplicates are searched by default."""


@dataclass(frozen=True)
class Rule:
    """A retention rule to try, whose policy depends on a size.

    Attributes
    ----------
    name : str
        Name of the rule in a comparison.
    policy : callable
        Returns the policy that has a size.
    size : callable
        Returns the first size to try at a :class:`CostLevel`.
    default : Policy or None
        The default policy of the system that has the rule; None if the system evicts nothing by
        default, or if no system has the rule.
    off_by_default : str
        Name of the system if it evicts nothing by default; else empty.
    retire : bool
        Whether memories are retired instead of deleted.
    """

    name: str
    policy: Callable[[int], Policy]
    size: "Callable[[CostLevel], int]"
    default: Policy | None = None
    off_by_default: str = ""
    retire: bool = False

    @property
    def policy_name(self) -> str:
        """Short name of the rule's policies, such as ``"recent"``."""
        policy = self.policy(1)
        if isinstance(policy, Pipeline) and policy.named_call is not None:
            return policy.named_call.name
        return policy.name

    def label(self, policy: Policy) -> str:
        """Return the name of the rule with those settings of a policy that are not defaults."""
        has_size_in_tokens = self.size is _tokens
        if has_size_in_tokens:
            return f"{self.name} {getattr(policy, 'max_tokens', 0):,} tokens"
        settings = label_of(policy).removeprefix(self.policy_name)
        return f"{self.name} {settings.strip(' ,')}".strip()


class CostLevel(NamedTuple):
    """A cost at which rules are compared: the cost of keeping a number of newest memories."""

    share: float
    """Share of the present prunable memories that is kept."""
    cap: int
    """Number of newest prunable memories that are kept."""
    age: timedelta
    """Age of the oldest memory that is kept."""
    tokens: int
    """Present tokens of the kept memories and the load-bearing ones."""
    floor: int
    """Present number of load-bearing memories."""


def _cap(level: CostLevel) -> int:
    return level.cap


def _cap_of_all(level: CostLevel) -> int:
    return level.cap + level.floor  # these systems count load-bearing memories too


def _hours(level: CostLevel) -> int:
    return max(1, round(level.age / timedelta(hours=1)))


def _tokens(level: CostLevel) -> int:
    return level.tokens


def _by_age(hours: int) -> Policy:
    return TimeToLive(timedelta(hours=hours))


def _by_use(tokens: int) -> Policy:
    return BY_USE(max_tokens=tokens)


def _betterdb(items: int) -> Policy:
    return Pipeline.betterdb(max_items=items)


def _odek(keep: int) -> Policy:
    return Pipeline.odek(keep=keep)


def _odek_without_duplicates(keep: int) -> Policy:
    return Pipeline.odek(threshold=0, keep=keep)


def _memforge(items: int) -> Policy:
    return Pipeline.memforge(max_items=items)


NEWEST: Final = Rule(
    "newest (forge-loop)",
    policy=KeepRecent,
    size=_cap,
    off_by_default="forge-loop (its doctor warns above 50 prunable memories)",
)
AGE: Final = Rule("age", policy=_by_age, size=_hours)
USE: Final = Rule("by use", policy=_by_use, size=_tokens)
USE_RETIRED: Final = Rule("by use", policy=_by_use, size=_tokens, retire=True)
BETTERDB: Final = Rule(
    "BetterDB",
    policy=_betterdb,
    size=_cap_of_all,
    off_by_default="BetterDB (a memory is deleted only by its own expiry)",
)
ODEK: Final = Rule("odek", policy=_odek, size=_cap, default=Pipeline.odek())
ODEK_WITHOUT_DUPLICATES: Final = Rule(
    "odek without near-duplicates",
    policy=_odek_without_duplicates,
    size=_cap,
    default=Pipeline.odek(threshold=0),
)
MEMFORGE: Final = Rule("MemForge", policy=_memforge, size=_cap_of_all, default=Pipeline.memforge())
RULES: Final = (
    NEWEST,
    AGE,
    USE,
    USE_RETIRED,
    BETTERDB,
    ODEK,
    ODEK_WITHOUT_DUPLICATES,
    MEMFORGE,
)
"""Every rule that a comparison may try."""


def rules_for(*, memories: int, retires: bool, finds_duplicates: bool) -> list[Rule]:
    """Return the rules to try by default.

    Parameters
    ----------
    memories : int
        Number of memories of the store.
    retires : bool
        Whether the store can retire memories.
    finds_duplicates : bool
        Whether near-duplicates can be searched; this needs SciPy.
    """
    odek = ODEK if finds_duplicates and memories <= MAX_COMPARED else ODEK_WITHOUT_DUPLICATES
    rules = [NEWEST, AGE, USE, BETTERDB, odek, MEMFORGE]
    if retires:
        rules.insert(rules.index(USE) + 1, USE_RETIRED)
    return rules


def missing_signals(past: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each signal that a store does not keep, with its effect on rules."""
    has_importance = col.IMPORTANCE in past and np.isfinite(past[col.IMPORTANCE]).any()
    if not has_importance:
        yield (
            "importance is not known here: BetterDB's rule is recency, MemForge's keeps the newest"
        )
    if col.TRUSTED not in past:
        yield "trust is not known here: odek's rule takes every memory as trusted"


def cost_levels_of(
    history: ReplayHistory, *, searched: bool, token_budget: int | None = None
) -> list[CostLevel]:
    """Return the costs at which rules are compared, in ascending order.

    Each is the cost of keeping a share of the present prunable memories. Shares that keep no memory
    or all memories are left out. With a token budget, the only cost is that of the newest memories
    that fit into the budget.
    """
    lifetimes = history.lifetimes
    is_active_at_end = lifetimes.end == len(history)
    prunable = np.flatnonzero(lifetimes.ever_prunable & is_active_at_end)
    newest_first = prunable[::-1]
    tokens_of_newest = np.cumsum(lifetimes.tokens[newest_first])
    floor_memories = 0
    floor_tokens = 0
    if len(history):
        floor_memories = int(lifetimes.floor.memories[-1])
        floor_tokens = int(lifetimes.floor.tokens[-1])
    share_of_cap: dict[int, float] = {}
    if token_budget is not None:
        budget_for_prunable = token_budget - floor_tokens
        cap = int(np.searchsorted(tokens_of_newest, budget_for_prunable, side="right"))
        share_of_cap[cap] = cap / max(1, len(prunable))
    else:
        for share in SEARCHED_SHARES if searched else LOADED_SHARES:
            cap = round(share * len(prunable))
            share_of_cap.setdefault(cap, share)
    levels = []
    for cap, share in sorted(share_of_cap.items()):
        if 0 < cap < len(prunable):
            oldest = history.clock[newest_first[cap - 1]]
            age = pd.Timedelta(history.clock[-1] - oldest).to_pytimedelta()
            tokens = floor_tokens + int(tokens_of_newest[cap - 1])
            levels.append(
                CostLevel(share=share, cap=cap, age=age, tokens=tokens, floor=floor_memories)
            )
    return levels


def cost_of(replay: Replay) -> float:
    """Return the mean tokens of a start under a rule."""
    return float(replay.boot[BOOT_TOKENS].mean())


def replay_at_cost(
    history: ReplayHistory, rule: Rule, level: CostLevel, cost: float, *, every: int
) -> Replay | None:
    """Replay a rule at the size whose mean cost is nearest to `cost`.

    A larger size keeps more memories. Therefore the search tries sizes between the largest size
    that is too cheap and the smallest size that is too expensive.

    Returns
    -------
    Replay or None
        None if no size that was tried has that cost, within a relative `COST_TOLERANCE`.
    """
    floor = float(history.lifetimes.floor.tokens.mean())
    size = max(1, rule.size(level))
    too_cheap = 0  # the largest such size; 0 if there is none yet
    too_expensive = 0  # the smallest such size; 0 if there is none yet
    best: Replay | None = None
    for _ in range(MAX_TRIES):
        replay = walk_through(history, rule.policy(size), every=every, retire=rule.retire)
        mean_cost = cost_of(replay)
        if best is None or abs(mean_cost - cost) < abs(cost_of(best) - cost):
            best = replay
        if abs(mean_cost - cost) <= _SEARCH_TOLERANCE * cost:
            break
        if mean_cost < cost:
            too_cheap = max(too_cheap, size)
        elif too_expensive == 0:
            too_expensive = size
        else:
            too_expensive = min(too_expensive, size)
        size = _estimated_size(size, mean_cost, cost=cost, floor=floor)
        if too_expensive and not too_cheap < size < too_expensive:
            size = (too_cheap + too_expensive) // 2
        elif size <= too_cheap:
            size = 2 * too_cheap
        is_any_left = too_expensive == 0 or too_expensive - too_cheap > 1
        if size == too_cheap or not is_any_left:
            break
    if best is None or abs(cost_of(best) - cost) > COST_TOLERANCE * cost:
        return None
    return best


def _estimated_size(size: int, mean_cost: float, *, cost: float, floor: float) -> int:
    """Estimate the size that has a given cost from the mean cost of another size.

    `floor` is the cost of the load-bearing memories. The cost above it is assumed to be
    proportional to the size.
    """
    factor = 2.0
    if mean_cost > floor and cost > floor:
        factor = (cost - floor) / (mean_cost - floor)
    factor = min(_MAX_GROWTH, max(1 / _MAX_GROWTH, factor))
    return max(1, round(size * factor))
