"""The rules that a comparison tries by default: those of four systems, by age, and by use.

Each is tried at its system's default, and at sizes that cost as many tokens as the others.
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
"""Shares of the prunable memories to keep, if a start loads them."""
SEARCHED_SHARES: Final = (0.25, 0.5, 0.75)
"""The same if memories are searched; the question is then which can be deleted."""
COST_TOLERANCE: Final = 0.03
"""Costs that differ by at most this share count as equal."""
MAX_TRIES: Final = 6
"""Largest number of sizes tried to find one of equal cost."""
MAX_COMPARED: Final = 20_000
"""Largest store in which near-duplicates are searched by default."""


@dataclass(frozen=True)
class Rule:
    """A rule to try.

    Attributes
    ----------
    name : str
        Its name in a comparison.
    policy : callable
        Returns the policy of a size.
    size : callable
        Returns the first size to try for a :class:`Room`.
    default : Policy or None
        The default of its system; None if that evicts nothing, or if the rule has no system.
    off : str
        Name of its system, if that evicts nothing by default; else empty.
    retire : bool
        Whether memories are retired instead of deleted.
    """

    name: str
    policy: Callable[[int], Policy]
    size: "Callable[[Room], int]"
    default: Policy | None = None
    off: str = ""
    retire: bool = False

    @property
    def policy_name(self) -> str:
        """Short name of its policies, such as ``"recent"``."""
        policy = self.policy(1)
        if isinstance(policy, Pipeline) and policy.asked_for is not None:
            return policy.asked_for[0]
        return policy.name

    def label(self, policy: Policy) -> str:
        """Return the name with the settings of a policy that are not its default."""
        if self.size is _tokens:
            return f"{self.name} {getattr(policy, 'max_tokens', 0):,} tokens"
        settings = label_of(policy).removeprefix(self.policy_name)
        return f"{self.name} {settings.strip(' ,')}".strip()


class Room(NamedTuple):
    """The size and cost of a set of newest memories, at which other rules are compared."""

    share: float
    """Share of the prunable memories that are present now."""
    cap: int
    """Number of newest memories that are kept."""
    age: timedelta
    """Age of the oldest memory that is kept."""
    tokens: int
    """Tokens of the kept and the load-bearing memories now."""
    floor: int
    """Number of load-bearing memories now."""


def _cap(room: Room) -> int:
    return room.cap


def _cap_of_all(room: Room) -> int:
    return room.cap + room.floor  # these systems count load-bearing memories too


def _hours(room: Room) -> int:
    return max(1, round(room.age / timedelta(hours=1)))


def _tokens(room: Room) -> int:
    return room.tokens


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
    off="forge-loop (its doctor warns above 50 prunable memories)",
)
AGE: Final = Rule("age", policy=_by_age, size=_hours)
USE: Final = Rule("by use", policy=_by_use, size=_tokens)
USE_RETIRED: Final = Rule("by use", policy=_by_use, size=_tokens, retire=True)
BETTERDB: Final = Rule(
    "BetterDB",
    policy=_betterdb,
    size=_cap_of_all,
    off="BetterDB (a memory is deleted only by its own expiry)",
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
    """Return the rules to try on a store of so many memories."""
    odek = ODEK if finds_duplicates and memories <= MAX_COMPARED else ODEK_WITHOUT_DUPLICATES
    rules = [NEWEST, AGE, USE, BETTERDB, odek, MEMFORGE]
    if retires:
        rules.insert(rules.index(USE) + 1, USE_RETIRED)
    return rules


def missing_signals(past: pd.DataFrame) -> Iterator[str]:
    """Yield the signals that a store does not keep, and the effect on rules that use them."""
    if col.IMPORTANCE not in past or not np.isfinite(past[col.IMPORTANCE]).any():
        yield (
            "importance is not known here: BetterDB's rule is recency, MemForge's keeps the newest"
        )
    if col.TRUSTED not in past:
        yield "trust is not known here: odek's rule takes every memory as trusted"


def rooms_of(
    history: ReplayHistory, *, searched: bool, token_budget: int | None = None
) -> list[Room]:
    """Return the rooms in which rules are compared: shares of the prunable memories now.

    With a token budget, it is one room: the newest memories that fit, if some do not.
    """
    lifetimes = history.lifetimes
    is_left = lifetimes.end == len(history)
    prunable = np.flatnonzero(lifetimes.ever_prunable & is_left)
    newest_first = prunable[::-1]
    tokens = np.cumsum(lifetimes.tokens[newest_first])
    floor_memories = 0
    floor_tokens = 0
    if len(history):
        floor_memories = int(lifetimes.floor.memories[-1])
        floor_tokens = int(lifetimes.floor.tokens[-1])
    caps: dict[int, float] = {}
    if token_budget is not None:
        fitting = int(np.searchsorted(tokens, token_budget - floor_tokens, side="right"))
        caps[fitting] = fitting / max(1, len(prunable))
    else:
        for share in SEARCHED_SHARES if searched else LOADED_SHARES:
            caps.setdefault(round(share * len(prunable)), share)
    rooms = []
    for cap, share in sorted(caps.items()):
        if 0 < cap < len(prunable):
            oldest = history.clock[newest_first[cap - 1]]
            age = pd.Timedelta(history.clock[-1] - oldest).to_pytimedelta()
            cost = floor_tokens + int(tokens[cap - 1])
            rooms.append(Room(share, cap, age, cost, floor_memories))
    return rooms


def cost_of(replay: Replay) -> float:
    """Return the mean tokens of a boot context under a rule."""
    return float(replay.boot[BOOT_TOKENS].mean())


def replay_at_cost(
    history: ReplayHistory, rule: Rule, room: Room, cost: float, *, every: int
) -> Replay | None:
    """Replay a rule at the size whose mean cost is nearest to `cost`; None if no size costs that.

    A larger size keeps more, so sizes between a too cheap and a too expensive one are tried.
    """
    floor_tokens = history.lifetimes.floor.tokens
    floor = float(floor_tokens.mean())
    size = max(1, rule.size(room))
    low = 0
    """Largest size that was too cheap; 0 if there was none."""
    high = 0
    """Smallest size that was too expensive; 0 if there was none."""
    best: Replay | None = None
    for _ in range(MAX_TRIES):
        replay = walk_through(history, rule.policy(size), every=every, retire=rule.retire)
        mean_cost = cost_of(replay)
        if best is None or abs(mean_cost - cost) < abs(cost_of(best) - cost):
            best = replay
        # The search ends closer than the tolerance that is accepted at last.
        if abs(mean_cost - cost) <= COST_TOLERANCE * 2 / 3 * cost:
            break
        if mean_cost < cost:
            low = max(low, size)
        else:
            high = size if high == 0 else min(high, size)
        # The next size assumes that the cost above the floor is proportional to the size.
        scale = 2.0
        if mean_cost > floor and cost > floor:
            scale = (cost - floor) / (mean_cost - floor)
        size = max(1, round(size * min(4.0, max(0.25, scale))))
        if high and not low < size < high:
            size = (low + high) // 2
        elif size <= low:
            size = 2 * low
        no_size_between = high and high - low <= 1
        if size == low or no_size_between:
            break
    if best is None or abs(cost_of(best) - cost) > COST_TOLERANCE * cost:
        return None
    return best
