"""Policies that cap memories by age or importance, or let them expire; scopes that share a cap."""

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

_MIN_HALF_LIVES: Final = -1000.0
"""Lowest age in half-lives that counts; 2 to the power of 1000 still fits a float."""


def recency_decay(age: Any, half_life: Any) -> Any:
    """Return the recency of a memory after an age: ``2 ** (-age / half_life)``.

    Source: BetterDB agent-memory. As there, the result exceeds 1 for a negative age, which occurs
    if a clock was ahead.

    Parameters
    ----------
    age : timedelta, float or array
        Time since the last access; values below -1000 half-lives count as -1000.
    half_life : timedelta, float or array
        Above zero, in the unit of `age`.

    Examples
    --------
    >>> recency_decay(timedelta(days=14), timedelta(days=7))
    0.25
    """
    half_lives = age / half_life
    # This is np.maximum(half_lives, _MIN_HALF_LIVES), but gives a Python float for a single age.
    is_representable = half_lives > _MIN_HALF_LIVES
    bounded = half_lives * is_representable + _MIN_HALF_LIVES * (1 - is_representable)
    return 2.0**-bounded


def value_score(
    age: Any,
    importance: Any,
    *,
    half_life: Any = HALF_LIFE,
    recency_weight: float = RECENCY_WEIGHT,
    importance_weight: float = IMPORTANCE_WEIGHT,
) -> Any:
    """Return the score that BetterDB ranks memories by when it evicts.

    It is the weighted mean of recency and importance: the score of a search without its term for
    similarity. Source: BetterDB agent-memory.

    Parameters
    ----------
    age : timedelta, float or array
        Time since the last access, in the unit of `half_life`.
    importance : float or array
        In [0, 1].
    half_life : timedelta or float
        Above zero; seven days by default.
    recency_weight, importance_weight : float
        0 or more; if both are 0, all scores are 0.

    Returns
    -------
    float or array
        In [0, 1] for an age of 0 or more.

    Examples
    --------
    >>> value_score(timedelta(days=7), 0.5)
    0.5
    """
    total = recency_weight + importance_weight
    if total == 0:
        return importance * 0.0
    with np.errstate(over="ignore"):  # an overflow is infinite, and goes last
        weighted_sum = importance_weight * importance + recency_weight * recency_decay(
            age, half_life
        )
        return weighted_sum / total


@dataclass(frozen=True)
class KeepAll(base.DatedPolicy):
    """Keep everything: no policy serves more, and none costs more.

    Examples
    --------
    >>> KeepAll().name
    'all'
    """

    name: ClassVar[str] = "all"
    origin: ClassVar[str] = "upper bound: nothing is deleted"
    runner: ClassVar[base.RunnerName] = "dated"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return NaT for every row."""
        return np.full(len(rows), np.datetime64("NaT", "us"))


@dataclass(frozen=True)
class KeepRecent(base.CappedPolicy):
    """Keep the newest prunable rows, as ``SqliteMemoryStore.compact_episodic`` does.

    All load-bearing rows are kept, too. Of D load-bearing and M prunable rows, D + min(M, `keep`)
    are kept.

    Examples
    --------
    >>> import memlab
    >>> frame = memlab.load(memlab.store_path("looked_up"))
    >>> int(memlab.decide(frame, KeepRecent(50))["keep"].sum()) >= 50
    True
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
            "help": "which are the newest: by order of insertion, or by the memory's own date",
            "option": "--newest-by",
        },
    )

    name: ClassVar[str] = "recent"
    origin: ClassVar[str] = "forge-loop: the newest N by insertion order"
    reason: ClassVar[str] = "beyond-newest"
    counts_load_bearing: ClassVar[bool] = False
    runner: ClassVar[base.RunnerName] = "ranked"
    ranks_by: ClassVar[base.RanksBy] = "age"

    @property
    def capacity(self) -> int:
        """Number of prunable rows that stay."""
        return self.keep

    def eviction_keys(self, rows: base.Rows, *, now: datetime) -> base.Keys:
        """Return the position or the creation time, as `by` says."""
        if self.by == col.POSITION:
            return super().eviction_keys(rows, now=now)
        # A missing time ranks as the oldest.
        return (base.time_column(rows, col.CREATED_AT).astype("int64"),)


@dataclass(frozen=True)
class TokenBudget(base.CappedPolicy):
    """Keep the newest prunable rows that fit into a token budget beside the load-bearing ones.

    A start exceeds the budget only if the load-bearing rows alone do. The oldest rows are evicted
    until the others fit, so a larger budget keeps every row that a smaller one keeps.

    Examples
    --------
    >>> TokenBudget(20_000).capacity
    20000
    """

    max_tokens: int = field(
        metadata={"help": "tokens that a start may take", "least": 0, "size": "tokens"}
    )

    name: ClassVar[str] = "tokens"
    origin: ClassVar[str] = "memlab: the newest that fit into so many tokens at start"
    reason: ClassVar[str] = "beyond-budget"
    runner: ClassVar[base.RunnerName] = "ranked"
    ranks_by: ClassVar[base.RanksBy] = "age"

    @property
    def capacity(self) -> int:
        """Number of tokens that a start may have."""
        return self.max_tokens

    def sizes(self, rows: pd.DataFrame) -> Ints:
        """Return the tokens of each row."""
        return rows[col.TOKENS].to_numpy(dtype=np.int64)


BEFORE_ALL_TIMES: Final = np.datetime64(-(2**62), "us")
"""A time before all others."""
MAX_AGE: Final = timedelta(days=2_000_000)
"""Longest age that counts, about 5,500 years.

A date plus this age still fits 64 bits of microseconds.
"""


@dataclass(frozen=True)
class TimeToLive(base.DatedPolicy):
    """Drop expired rows.

    The deadline of a row is its ``expires_at``, or else its ``created_at`` plus `ttl`. The age
    may be a text such as ``"30d"``. Without `own_expiry`, ``expires_at`` is ignored; odek has no
    such time. A row is evicted after its deadline, not at it. References do not extend the
    deadline. A row without either time never expires.

    Examples
    --------
    >>> TimeToLive("30d") == TimeToLive(timedelta(days=30))
    True
    """

    ttl: Age | None = field(
        default=None,
        metadata={
            "help": (
                "age beyond which a memory is deleted; none or 0 deletes only by a memory's own "
                "expiry"
            ),
            "size": True,
        },
    )
    own_expiry: bool = field(
        default=True, metadata={"help": "whether a memory's own expires_at counts"}
    )

    name: ClassVar[str] = "ttl"
    origin: ClassVar[str] = "odek, BetterDB: expiry by age"
    runner: ClassVar[base.RunnerName] = "dated"
    ranks_by: ClassVar[base.RanksBy] = "age"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the deadline of each row in UTC; NaT if it never expires."""
        expires = base.time_column(rows, col.EXPIRES_AT)
        if not self.own_expiry:
            expires = np.full(len(expires), np.datetime64("NaT", "us"))
        if self.ttl is None or as_age(self.ttl) <= timedelta(0):
            return expires
        by_age = base.time_column(rows, col.CREATED_AT) + _as_timedelta64(self.ttl)
        return np.where(np.isnat(expires), by_age, expires)


@dataclass(frozen=True)
class PurgeSuperseded(base.DatedPolicy):
    """Drop superseded rows above an age; ``compact_episodic`` never removes superseded rows.

    Load-bearing rows stay: a decision that was replaced remains on record.

    Examples
    --------
    >>> policy = PurgeSuperseded("90d")
    >>> policy.population, policy.older_than.days
    ('superseded', 90)
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
    runner: ClassVar[base.RunnerName] = "dated"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the UTC time after which each row is old enough; NaT for one without a date."""
        return base.time_column(rows, col.CREATED_AT) + _as_timedelta64(self.older_than)


@dataclass(frozen=True)
class LongRetired(base.DatedPolicy):
    """Drop rows that were retired longer ago than an age.

    Before it runs, retired rows that are needed are returned to the active ones.
    """

    age: Age

    population: ClassVar[base.Population] = "retired"
    reason: ClassVar[str] = "retired-long-ago"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the UTC time from which each row has been retired for that age."""
        return base.time_column(rows, col.RETIRED_AT) + _as_timedelta64(self.age)


@dataclass(frozen=True)
class ByIds(base.Policy):
    """Drop the rows with some ids, and keep all others."""

    ids: tuple[str, ...]

    name: ClassVar[str] = "ids"
    origin: ClassVar[str] = "memlab: memories that a person named"

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":  # noqa: ARG002
        """Return the reason "by-id" for each row with one of the ids."""
        is_named = rows[col.MEMORY_ID].isin(self.ids)
        return pd.Series("by-id", index=rows.index[is_named], dtype="str")


ScopeField = Literal["agent_id", "thread_id", "namespace", "tags"]


@dataclass(frozen=True)
class ValueCap(base.CappedPolicy):
    """Cap each scope by importance and recency of use; the lowest scores go first.

    The score is :func:`memlab.policies.rules.value_score` of the time since the last access, which
    is negative if the access lies in the future. Of rows with equal scores, the one with the older
    last access goes first, then the older row. A missing or non-finite importance counts as 0, and
    a missing last access as the epoch. Load-bearing rows use capacity and are never evicted.

    Each row defines a scope, by its values in the columns that `scope` names and by its tags. All
    rows with these values and tags belong to the scope, so scopes overlap: the scope of a row that
    has only an agent holds all threads of the agent. Case is ignored. A row without any of these
    values is never evicted. A frame without columns for agent, thread and namespace is one scope. A
    decision brings every scope within capacity; BetterDB does so only for the scope it writes to.

    Examples
    --------
    >>> ValueCap(30, half_life="8h").capacity
    30
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
    runner: ClassVar[base.RunnerName] = "capped"
    ranks_by: ClassVar[base.RanksBy] = "use"

    def __post_init__(self) -> None:
        super().__post_init__()
        if as_age(self.half_life) <= timedelta(0):
            raise ValueError(f"half_life={self.half_life!r} is not above zero")

    @property
    def capacity(self) -> int:
        """Number of rows that a scope may hold."""
        return max(0, self.max_items)

    def scopes(self, rows: pd.DataFrame) -> list[base.Scope]:
        """Return the scopes that rows were written with; they may overlap."""
        return overlapping_scopes(rows, self.scope)

    def eviction_keys(self, rows: base.Rows, *, now: datetime) -> base.Keys:
        """Return the score, then the last access in microseconds since the epoch."""
        accessed = base.time_column(rows, col.LAST_ACCESSED_AT)
        accessed = np.where(np.isnat(accessed), np.datetime64(0, "us"), accessed)
        importance = base.float_column(rows, col.IMPORTANCE)
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
    """Keep at most a number of rows per agent; evict the least important ones.

    The number covers all namespaces. Graduated rows are not exempt. Importance is compared in
    single precision, as MemForge stores it. Rows with NaN are evicted last, and of rows with equal
    importance the oldest first. Load-bearing rows use capacity and are never evicted.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"position": [1, 2, 3], "importance": [0.9, 0.2, 0.5]})
    >>> rows["agent_id"] = "a"
    >>> rows["load_bearing"] = False
    >>> ImportanceBudget(2).evict(rows, now=datetime(2026, 1, 1, tzinfo=UTC))
    1    over-budget
    dtype: str
    """

    max_items: int | None = field(
        metadata={"help": "memories an agent may hold; 0 or none: off", "least": 0, "size": True}
    )
    scope: tuple[ScopeField, ...] = field(
        default=("agent_id",),
        metadata={"help": "fields whose values each have a budget; none: one for the whole store"},
    )

    name: ClassVar[str] = "budget"
    origin: ClassVar[str] = "MemForge: hard budget per agent, least important first"
    reason: ClassVar[str] = "over-budget"
    signals: ClassVar[frozenset[str]] = frozenset({col.IMPORTANCE})
    runner: ClassVar[base.RunnerName] = "ranked"

    @property
    def capacity(self) -> int | None:
        """Number of rows that an agent may hold; None if the budget is off."""
        return None if self.max_items == 0 else self.max_items

    def scopes(self, rows: pd.DataFrame) -> list[base.Scope]:
        """Return the rows of each agent; rows without an agent share a budget."""
        return partition_by_scope(rows, self.scope)

    def eviction_keys(self, rows: base.Rows, *, now: datetime) -> base.Keys:  # noqa: ARG002
        """Return the importance, and whether it is NaN.

        PostgreSQL sorts NaN above infinity, so NaN ranks highest.
        """
        importance = single_precision(base.float_column(rows, col.IMPORTANCE))
        is_nan = np.isnan(importance)
        return np.where(is_nan, np.float32("inf"), importance), is_nan.astype(np.int64)


@dataclass(frozen=True)
class ImportanceFloor(base.DatedPolicy):
    """Drop rows below an importance threshold, except graduated ones.

    Importance and threshold are compared in single precision. NaN is not below the threshold.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"importance": [0.05, 0.05, 0.5], "graduated": [False, True, False]})
    >>> ImportanceFloor(0.1).evict(rows, now=datetime(2026, 1, 1, tzinfo=UTC))
    0    below-floor
    dtype: str
    """

    threshold: float = field(default=0.1, metadata={"help": "importance below which a memory goes"})

    name: ClassVar[str] = "floor"
    origin: ClassVar[str] = "MemForge: importance floor, graduated rows excepted"
    reason: ClassVar[str] = "below-floor"
    signals: ClassVar[frozenset[str]] = frozenset({col.IMPORTANCE, col.GRADUATED})
    runner: ClassVar[base.RunnerName] = "dated"

    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return a time before all others for rows below the threshold, and NaT for other rows."""
        is_below = single_precision(base.float_column(rows, col.IMPORTANCE)) < np.float32(
            self.threshold
        )
        if col.GRADUATED in rows:
            is_below &= ~rows[col.GRADUATED].fillna(value=False).to_numpy(dtype=bool)
        return np.where(is_below, BEFORE_ALL_TIMES, np.datetime64("NaT", "us"))


def _as_timedelta64(age: Age) -> np.timedelta64:
    """Return an age as numpy's type; at most `MAX_AGE`, so that a date plus the age fits."""
    return np.timedelta64(min(as_age(age), MAX_AGE))


def single_precision(values: Floats) -> npt.NDArray[np.float32]:
    """Return numbers as a PostgreSQL ``real`` holds them; a number too large is infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def partition_by_scope(rows: pd.DataFrame, fields: Sequence[str]) -> list[base.Scope]:
    """Return a scope for each combination of values in the fields that the frame has."""
    known_fields = [name for name in fields if name in rows]
    if not known_fields:
        return base.one_scope(rows)
    labels = rows[known_fields].copy(deep=False)
    if col.TAGS in known_fields:
        labels[col.TAGS] = rows[col.TAGS].map(_tag_set_as_text).astype("str")
    rows_of_scopes = labels.groupby(known_fields, dropna=False, sort=False).indices
    scopes = []
    for rows_of_scope in rows_of_scopes.values():
        # Scopes do not overlap here, so each row of a scope also defines it.
        members = np.asarray(rows_of_scope)
        scopes.append(base.Scope(members=members, owners=members))
    return scopes


def _tag_set_as_text(tags: Sequence[str]) -> str | None:
    """Return a text that is equal for equal sets of tags; None, a missing value, for no tags."""
    text = ",".join(sorted(set(tags)))
    return text or None


def overlapping_scopes(rows: pd.DataFrame, fields: Sequence[str]) -> list[base.Scope]:
    """Return the scopes that rows were written with: each holds all rows that match its fields.

    A row matches the tags of a scope if it has all of them, ignoring case. The owners of a scope
    are the rows that were written with exactly its fields and tags. If the frame has no column of
    `fields`, all rows are one scope. Source: BetterDB agent-memory, which filters by each field and
    tag that was given with a write.
    """
    names = [name for name in fields if name != col.TAGS]
    known_fields = [name for name in names if name in rows]
    lacks_all_columns = bool(names) and not known_fields
    if not fields or lacks_all_columns:
        return base.one_scope(rows)
    with_tags = col.TAGS in fields
    rows_with: dict[tuple[str, str], set[int]] = {}
    rows_of_labels: dict[frozenset[tuple[str, str]], list[int]] = {}
    for row, labels in enumerate(_labels_of(rows, known_fields, with_tags=with_tags)):
        for label in labels:
            rows_with.setdefault(label, set()).add(row)
        if labels:
            rows_of_labels.setdefault(frozenset(labels), []).append(row)
    scopes = []
    for scope_labels, rows_of_scope in rows_of_labels.items():
        fewest_first = sorted((rows_with[label] for label in scope_labels), key=len)
        members = np.array(sorted(set.intersection(*fewest_first)))
        scopes.append(base.Scope(members=members, owners=np.array(rows_of_scope)))
    return scopes


def _labels_of(
    rows: pd.DataFrame, names: Sequence[str], *, with_tags: bool
) -> list[set[tuple[str, str]]]:
    """Return the fields and tags that each row was written with, as pairs of name and value.

    Values are in lower case.
    """
    labels: list[set[tuple[str, str]]] = [set() for _ in range(len(rows))]
    for name in names:
        values = rows[name].astype("str").str.lower()
        for labels_of_row, value in zip(labels, values, strict=True):
            if isinstance(value, str):
                labels_of_row.add((name, value))
    if with_tags:
        for labels_of_row, tags in zip(labels, rows[col.TAGS], strict=True):
            labels_of_row.update((col.TAGS, tag.strip().lower()) for tag in tags)
    return labels
