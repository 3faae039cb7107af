"""The rules themselves: the newest, expiry, worth; who shares room, and what a memory is worth."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.clock import Age, as_age
from memlab.frame.fields import Floats, Ints, Times, as_instant
from memlab.policies import base

HALF_LIFE: Final = timedelta(days=7)
RECENCY_WEIGHT: Final = 0.25
IMPORTANCE_WEIGHT: Final = 0.15

_MOST_AHEAD: Final = -1000.0
"""Half-lives that a clock may be ahead: a power of two of that many still fits a float."""


def recency_decay(age: Any, half_life: Any) -> Any:
    """Return how much of a memory's recency is left: ``2 ** (-age / half_life)``.

    Age and half-life, which is above zero, are of one unit; the age is no less than -1000
    half-lives. Below zero, after a clock that was ahead, more than all is left. Source: BetterDB
    agent-memory, which sets no bound on either side.

    >>> recency_decay(timedelta(days=14), timedelta(days=7))
    0.25
    """
    lives = age / half_life
    bounded = lives * (lives > _MOST_AHEAD) + _MOST_AHEAD * (lives <= _MOST_AHEAD)
    return 2.0**-bounded


def value_score(
    age: Any,
    importance: Any,
    *,
    half_life: Any = HALF_LIFE,
    recency_weight: float = RECENCY_WEIGHT,
    importance_weight: float = IMPORTANCE_WEIGHT,
) -> Any:
    """Return what an eviction ranks by: what a recall does, without similarity, renormalised.

    Parameters
    ----------
    age : timedelta, float or array
        Since the last access, in the unit of `half_life`.
    importance : float or array
        In [0, 1].
    half_life : timedelta or float
        Above zero; seven days by default.
    recency_weight, importance_weight : float
        0 or more; with both 0 the score is 0 for all.

    Returns
    -------
    float or array
        In [0, 1] for an age of 0 or more. Source: BetterDB agent-memory.

    Examples
    --------
    >>> value_score(timedelta(days=7), 0.5)
    0.5
    """
    total = recency_weight + importance_weight
    if total == 0:
        return importance * 0.0
    with np.errstate(over="ignore"):  # what is too large is infinite, and the last to go
        worth = importance_weight * importance + recency_weight * recency_decay(age, half_life)
        return worth / total


@dataclass(frozen=True)
class KeepAll(base.DatedPolicy):
    """Nothing goes: the bound on what can be kept, and on what it costs."""

    name: ClassVar[str] = "all"
    origin: ClassVar[str] = "bound: nothing goes"
    runner: ClassVar[base.Runner] = "dated"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return for every row that its time never comes."""
        return np.full(len(rows), np.datetime64("NaT", "us"))


@dataclass(frozen=True)
class KeepRecent(base.CappedPolicy):
    """Keep the newest prunable rows, as ``SqliteMemoryStore.compact_episodic`` does.

    Load-bearing rows come on top: with D of them and M prunable rows, D + min(M, `keep`) stay.
    """

    keep: int = field(
        metadata={
            "help": "newest prunable memories to keep",
            "least": 0,
            "size": True,
            "option": "--keep-recent",
        }
    )
    by: Literal["position", "created_at"] = field(
        default="position",
        metadata={
            "help": "what newest means: insertion order, or the time a memory says it was made",
            "option": "--newest-by",
        },
    )

    name: ClassVar[str] = "recent"
    origin: ClassVar[str] = "forge-loop: the newest N by insertion order"
    reason: ClassVar[str] = "beyond-newest"
    counts_load_bearing: ClassVar[bool] = False
    runner: ClassVar[base.Runner] = "ranked"
    goes_by: ClassVar[base.GoesBy] = "age"

    @property
    def capacity(self) -> int:
        """How many prunable rows stay."""
        return self.keep

    def eviction_keys(self, rows: base.Rows, *, now: datetime) -> base.Keys:
        """Return the position, or the creation time where that is what newest means."""
        if self.by == col.POSITION:
            return super().eviction_keys(rows, now=now)
        # A time that is missing ranks as the oldest: nothing says the row is new.
        return (base.times(rows, col.CREATED_AT).astype("int64"),)


@dataclass(frozen=True)
class TokenBudget(base.CappedPolicy):
    """Keep the newest prunable rows that fit, beside the load-bearing ones, into so many tokens.

    The boot context is never longer than that, unless the load-bearing rows alone are. Rows go
    oldest first until the rest fits, so a larger budget keeps all that a smaller one does.
    """

    max_tokens: int = field(
        metadata={"help": "tokens that the boot context may take", "least": 0, "size": "tokens"}
    )

    name: ClassVar[str] = "tokens"
    origin: ClassVar[str] = "memlab: the newest that fit into so many tokens at start"
    reason: ClassVar[str] = "beyond-budget"
    runner: ClassVar[base.Runner] = "ranked"
    goes_by: ClassVar[base.GoesBy] = "age"

    @property
    def capacity(self) -> int:
        """How many tokens there is room for."""
        return self.max_tokens

    def sizes(self, rows: pd.DataFrame) -> Ints:
        """Return the tokens of each row."""
        return rows[col.TOKENS].to_numpy(dtype=np.int64)


ALWAYS: Final = np.datetime64(-(2**62), "us")
"""A time before all others."""
LONGEST: Final = timedelta(days=2_000_000)
"""Some five thousand years: added to a date, it still fits 64 bits of microseconds."""


@dataclass(frozen=True)
class TimeToLive(base.DatedPolicy):
    """Drop what has expired.

    The age may be a text such as ``"30d"``. A row with ``expires_at`` goes by that alone, unless
    `own_expiry` is off, as for odek, which keeps none; any other goes by its age since
    ``created_at``. It goes after that moment, not at it. Being referred to extends neither. A row
    without either time is durable.
    """

    ttl: Age | None = field(
        default=None,
        metadata={
            "help": "age beyond which a memory goes; none or 0 keeps what has no expiry of its own",
            "size": True,
        },
    )
    own_expiry: bool = field(
        default=True, metadata={"help": "whether a memory's own expires_at counts"}
    )

    name: ClassVar[str] = "ttl"
    origin: ClassVar[str] = "odek, BetterDB: expiry by age"
    runner: ClassVar[base.Runner] = "dated"
    goes_by: ClassVar[base.GoesBy] = "age"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the UTC time after which each row goes, NaT for a durable one."""
        expires = base.times(rows, col.EXPIRES_AT)
        if not self.own_expiry:
            expires = np.full(len(expires), np.datetime64("NaT", "us"))
        if self.ttl is None or as_age(self.ttl) <= timedelta(0):
            return expires
        due = base.times(rows, col.CREATED_AT) + _span(self.ttl)
        return np.where(np.isnat(expires), due, expires)


@dataclass(frozen=True)
class PurgeSuperseded(base.DatedPolicy):
    """Drop superseded rows of an age, which no compaction ever reclaims.

    Load-bearing ones stay: a decision that was replaced is still a decision that was made.
    """

    older_than: Age = field(
        metadata={
            "help": "age since creation beyond which a superseded memory goes",
            "least": 0,
            "size": True,
        }
    )

    origin: ClassVar[str] = "memlab: superseded memories, which no compaction reclaims"
    population: ClassVar[base.Population] = "superseded"
    reason: ClassVar[str] = "superseded-long-ago"
    runner: ClassVar[base.Runner] = "dated"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the UTC time after which each row is old enough, NaT for one without a date."""
        return base.times(rows, col.CREATED_AT) + _span(self.older_than)


@dataclass(frozen=True)
class LongRetired(base.DatedPolicy):
    """Drop what was retired so long ago; whoever asks lets what was needed since return first."""

    age: Age

    population: ClassVar[base.Population] = "retired"
    reason: ClassVar[str] = "retired-long-ago"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the UTC time after which each row was retired for long enough."""
        return base.times(rows, col.RETIRED_AT) + _span(self.age)


ScopeField = Literal["agent_id", "thread_id", "namespace", "tags"]


@dataclass(frozen=True)
class ValueCap(base.CappedPolicy):
    """Cap a scope by importance and recency of use; the least valuable rows go.

    The score is :func:`memlab.policies.rules.value_score` of the age since the last access,
    which may lie ahead. Lowest goes first, ties toward the older last access, then toward the older
    row. A missing or non-finite importance counts as 0, a missing last access as the epoch.
    Load-bearing rows take up room in their scope and never go.

    A scope is what a row was written with: every field of `scope` that it has, and every tag. What
    matches all of them counts, so scopes overlap: that of a row with an agent alone holds all
    threads of the agent. Case makes no difference. A row without any of them is never capped. A
    frame with no column for an agent, thread or namespace keeps no scopes: the whole of it is one.
    A decision brings every scope that a row stands for within capacity, while BetterDB looks at the
    one that it writes to.
    """

    max_items: int = field(
        metadata={"help": "memories a scope may hold; below 0 counts as 0", "size": True}
    )
    half_life: Age = field(
        default=HALF_LIFE, metadata={"help": "age of last access at which recency halves"}
    )
    recency: float = field(
        default=RECENCY_WEIGHT, metadata={"help": "weight of recency", "least": 0}
    )
    importance: float = field(
        default=IMPORTANCE_WEIGHT, metadata={"help": "weight of importance", "least": 0}
    )
    scope: tuple[ScopeField, ...] = field(
        default=("agent_id", "thread_id", "namespace", "tags"),
        metadata={
            "help": "fields that make a scope: agent_id, thread_id, namespace, tags; none: all"
        },
    )

    name: ClassVar[str] = "value"
    origin: ClassVar[str] = "BetterDB agent-memory: importance and recency of use, per scope"
    reason: ClassVar[str] = "lowest-value"
    signals: ClassVar[frozenset[str]] = frozenset({col.IMPORTANCE})
    runner: ClassVar[base.Runner] = "capped"
    goes_by: ClassVar[base.GoesBy] = "use"

    def __post_init__(self) -> None:
        super().__post_init__()
        if as_age(self.half_life) <= timedelta(0):
            raise ValueError(f"half_life={self.half_life!r} is not above zero")

    @property
    def capacity(self) -> int:
        """How many rows a scope may hold."""
        return max(0, self.max_items)

    def scopes(self, rows: pd.DataFrame) -> list[base.Scope]:
        """Return the scopes that rows were written with; they may overlap."""
        return scopes_given(rows, self.scope)

    def eviction_keys(self, rows: base.Rows, *, now: datetime) -> base.Keys:
        """Return the score, then the last access in microseconds since the epoch."""
        accessed = base.times(rows, col.LAST_ACCESSED_AT)
        accessed = np.where(np.isnat(accessed), np.datetime64(0, "us"), accessed)
        importance = base.numbers(rows, col.IMPORTANCE)
        score = value_score(
            as_instant(now) - accessed,
            np.where(np.isfinite(importance), importance, 0.0),
            half_life=np.timedelta64(as_age(self.half_life)),
            recency_weight=self.recency,
            importance_weight=self.importance,
        )
        return score, accessed.astype(np.int64)


@dataclass(frozen=True)
class ImportanceBudget(base.CappedPolicy):
    """Hold a hard budget per agent; the least important rows go until the count equals the cap.

    The count goes across namespaces. Graduated rows are not exempt. Importance is compared in
    single precision, as it is kept there; what is no number goes last, ties oldest first.
    Load-bearing rows take up room and never go.
    """

    max_items: int | None = field(
        metadata={"help": "memories an agent may hold; 0 or none: off", "least": 0, "size": True}
    )
    scope: tuple[ScopeField, ...] = field(
        default=("agent_id",),
        metadata={"help": "fields that hold a budget of their own; none: one for the whole store"},
    )

    name: ClassVar[str] = "budget"
    origin: ClassVar[str] = "MemForge: hard budget per agent, least important first"
    reason: ClassVar[str] = "over-budget"
    signals: ClassVar[frozenset[str]] = frozenset({col.IMPORTANCE})
    runner: ClassVar[base.Runner] = "ranked"

    @property
    def capacity(self) -> int | None:
        """How many rows an agent may hold, None where the budget is off."""
        return self.max_items or None

    def scopes(self, rows: pd.DataFrame) -> list[base.Scope]:
        """Return the rows of each agent; rows without one share a budget."""
        return partition_by_scope(rows, self.scope)

    def eviction_keys(self, rows: base.Rows, *, now: datetime) -> base.Keys:  # noqa: ARG002
        """Return the importance, and whether it is NaN, which PostgreSQL sorts above infinity."""
        importance = single(base.numbers(rows, col.IMPORTANCE))
        is_nan = np.isnan(importance)
        return np.where(is_nan, np.float32("inf"), importance), is_nan.astype(np.int64)


@dataclass(frozen=True)
class ImportanceFloor(base.DatedPolicy):
    """Drop what is less important than a threshold, graduated rows excepted.

    Both are compared in single precision. A row whose importance is no number is not below it.
    """

    threshold: float = field(default=0.1, metadata={"help": "importance below which a memory goes"})

    name: ClassVar[str] = "floor"
    origin: ClassVar[str] = "MemForge: importance floor, graduated rows excepted"
    reason: ClassVar[str] = "below-floor"
    signals: ClassVar[frozenset[str]] = frozenset({col.IMPORTANCE, col.GRADUATED})
    runner: ClassVar[base.Runner] = "dated"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the beginning of time for the rows below the threshold, NaT for the others."""
        below = single(base.numbers(rows, col.IMPORTANCE)) < np.float32(self.threshold)
        if col.GRADUATED in rows:
            below &= ~rows[col.GRADUATED].fillna(value=False).to_numpy(dtype=bool)
        return np.where(below, ALWAYS, np.datetime64("NaT", "us"))


def _span(age: Age) -> np.timedelta64:
    return np.timedelta64(min(as_age(age), LONGEST))


def single(values: Floats) -> npt.NDArray[np.float32]:
    """Return numbers as a PostgreSQL ``real`` holds them; too large a one is infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def partition_by_scope(rows: pd.DataFrame, fields: Sequence[str]) -> list[base.Scope]:
    """Return a scope for each combination of values in the fields that the frame has."""
    present = [name for name in fields if name in rows]
    if not present:
        return base.one_scope(rows)
    labels = rows[present].copy(deep=False)
    if col.TAGS in present:  # as a set, and none as missing
        tags = rows[col.TAGS].map(lambda tags: ",".join(sorted(set(tags))) or None)
        labels[col.TAGS] = tags.astype("str")
    places = labels.groupby(present, dropna=False, sort=False).indices
    return [base.Scope(np.asarray(one), np.asarray(one)) for one in places.values()]


def scopes_given(rows: pd.DataFrame, fields: Sequence[str]) -> list[base.Scope]:
    """Return the scopes that rows were written with: all that match what each was given.

    Tags match where all of its own are there, case aside. Without a column of `fields`, all are one
    scope. Source: BetterDB agent-memory, which filters by each field and tag given with a write.
    """
    named = [name for name in fields if name != col.TAGS]
    present = [name for name in named if name in rows]
    if (named and not present) or not fields:
        return base.one_scope(rows)
    given: list[set[tuple[str, str]]] = [set() for _ in range(len(rows))]
    for name in present:
        for own, value in zip(given, rows[name].astype("str").str.lower(), strict=True):
            if isinstance(value, str):
                own.add((name, value))
    if col.TAGS in fields:
        for own, tags in zip(given, rows[col.TAGS], strict=True):
            own.update((col.TAGS, tag.strip().lower()) for tag in tags)
    matching: dict[tuple[str, str], set[int]] = {}
    owners: dict[frozenset[tuple[str, str]], list[int]] = {}
    for row, own in enumerate(given):
        for each in own:
            matching.setdefault(each, set()).add(row)
        if own:
            owners.setdefault(frozenset(own), []).append(row)
    scopes = []
    for wanted, rows_of in owners.items():
        fewest_first = sorted((matching[each] for each in wanted), key=len)
        members = np.array(sorted(set.intersection(*fewest_first)))
        scopes.append(base.Scope(members, np.array(rows_of)))
    return scopes
