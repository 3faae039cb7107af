"""Base classes of retention policies, and the decision, which never evicts load-bearing rows."""

import re
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, get_origin

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.arguments import expect, expect_frame
from memlab.clock import moment_or_now
from memlab.frame.fields import (
    Flags,
    Floats,
    Ints,
    Times,
    as_instant,
    retired_rows,
    rows_in_state,
)
from memlab.policies.typed import check_settings

if TYPE_CHECKING:
    _ProtocolType = ABCMeta
else:
    _ProtocolType = type(Protocol)

PINNED: Final = "pinned"
"""Column of flags of rows that no policy may evict; they use capacity all the same."""

KEEP_REASONS: Final = ("kept", "superseded", "load-bearing", "retired", col.REACHED, col.UNLISTED)
"""Reasons for keeping a memory."""

RunnerName = Literal["asked", "capped", "ranked", "dated", "activation", "duplicates", "steps"]
"""The algorithm that replays a policy; ``"asked"`` calls its :meth:`Policy.evict`."""
Population = Literal["active", "superseded", "retired", "all"]
"""The memories among which a policy chooses."""
RanksBy = Literal["age", "use", ""]
"""What a policy ranks memories by, for the colours of charts."""
Rows = Mapping[str, Any] | pd.DataFrame
"""Columns of a frame."""
Keys = tuple[npt.NDArray[Any], ...]
"""The keys that rows are ranked by, the most significant first."""


class Scope(NamedTuple):
    """Rows that share a capacity.

    Attributes
    ----------
    members : array of int
        The numbers of these rows, in order of position.
    owners : array of int
        The members that define the scope. If all of them are evicted, the scope is not capped.
    """

    members: Ints
    owners: Ints


def one_scope(rows: pd.DataFrame) -> list[Scope]:
    """Return one scope that holds all rows."""
    all_rows = np.arange(len(rows))
    return [Scope(members=all_rows, owners=all_rows)]


class _PolicyType(_ProtocolType):
    """Metaclass of policies: ``dir`` of a policy class leaves out its class variables.

    IPython completes the names of the class after an instance, too. The metaclass derives from that
    of Protocol, because a policy can implement a Protocol. ``isinstance`` works as for an ordinary
    abstract class.
    """

    __instancecheck__ = ABCMeta.__instancecheck__
    __subclasscheck__ = ABCMeta.__subclasscheck__

    def __dir__(self) -> list[str]:
        """Return the names to complete: those that a user calls."""
        hidden = _class_variables(self)
        return [name for name in super().__dir__() if name not in hidden]


def _class_variables(kind: type) -> set[str]:
    """Return the names of the class variables of a policy class, except ``name`` and ``origin``."""
    names = set()
    for base in kind.__mro__:
        for name, annotation in vars(base).get("__annotations__", {}).items():
            if get_origin(annotation) is ClassVar:
                names.add(name)
    return names - {"name", "origin"}


@dataclass(frozen=True)
class Policy(metaclass=_PolicyType):
    """A retention rule: it decides which memories to evict.

    To write one, define a frozen dataclass with this base and an :meth:`evict`. It works wherever a
    policy is accepted, and on the command line as ``--policy package.module:Class``. Its fields are
    its settings and are checked against their types. ``field(metadata={"help": ...})`` documents a
    setting, and ``{"least": 0}`` is its minimum (of an age, in days). ``{"size": True}`` marks the
    size of the policy, which a comparison varies: a count or an age (``{"size": "tokens"}`` if it
    counts tokens).

    A replay calls :meth:`evict` with the present memories at every moment. The policies of this
    package name a `runner` that finds the same result faster. If a subclass changes the decision,
    its :meth:`evict` is called instead, unless it names the runner again and so confirms that the
    runner still applies.

    Attributes
    ----------
    name : str
        Short name, as on a command line; derived from the class name by default.
    origin : str
        The system that the rule comes from; the address of the class by default.
    population : {"active", "superseded", "retired", "all"}
        The memories that it chooses among; ``"all"`` is the active and the superseded ones. It
        never evicts any others.
    reads_bodies : bool
        Whether it decides by texts, and so needs a frame loaded with bodies.
    signals : frozenset of str
        Columns that it decides by and that a system may change after a memory is written, such as
        ``importance``. Reads and references are not among them. A comparison names those whose
        earlier values a store does not keep.
    learns : bool
        Whether it decides by the past of a store, which it receives through :meth:`with_past`.
    runner : str
        The name of the algorithm that replays it.
    ranks_by : {"age", "use", ""}
        Whether it keeps memories by age, by use, or by neither. Charts colour it by this.

    Examples
    --------
    A policy that drops every other memory:

    >>> from dataclasses import dataclass
    >>> from datetime import UTC, datetime
    >>> import pandas as pd
    >>> @dataclass(frozen=True)
    ... class EveryOther(Policy):
    ...     def evict(self, rows, *, now):
    ...         evicted = rows.index[rows["position"] % 2 == 1]
    ...         return pd.Series("every other", index=evicted)
    >>> policy = EveryOther()
    >>> policy.name
    'every-other'
    >>> rows = pd.DataFrame({"position": [1, 2, 3]})
    >>> policy.evict(rows, now=datetime(2026, 1, 1, tzinfo=UTC))
    0    every other
    2    every other
    dtype: str
    """

    name: ClassVar[str]
    origin: ClassVar[str]
    population: ClassVar[Population] = "active"
    reads_bodies: ClassVar[bool] = False
    signals: ClassVar[frozenset[str]] = frozenset()
    learns: ClassVar[bool] = False
    runner: ClassVar[RunnerName] = "asked"
    ranks_by: ClassVar[RanksBy] = ""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<!^)(?=[A-Z][a-z])", "-", cls.__name__.strip("_")).lower()
        if "origin" not in vars(cls):
            cls.origin = f"{cls.__module__}:{cls.__qualname__}"

    def __post_init__(self) -> None:
        check_settings(self)

    def __dir__(self) -> list[str]:
        """Return the names to complete: those that a user calls."""
        hidden = _class_variables(type(self))
        return [name for name in super().__dir__() if name not in hidden]

    @property
    def address(self) -> str:
        """Name of the policy on a command line; ``package.module:Class`` for one outside memlab."""
        kind = type(self)
        is_of_memlab = kind.__module__.partition(".")[0] == "memlab"
        return self.name if is_of_memlab else f"{kind.__module__}:{kind.__qualname__}"

    @property
    def steps(self) -> "tuple[Policy, ...]":
        """The policies that run, in order: the policy itself, or those of a pipeline."""
        return (self,)

    def with_past(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> "Policy":  # noqa: ARG002
        """Return the policy with a past to learn from; the policy itself unless it learns.

        Parameters
        ----------
        past : DataFrame
            Every row that was ever written, deleted ones included, as :func:`memlab.load` returns.
        references : DataFrame, optional
            The result of ``find_references``; by default, the references found in `past`.
        """
        return self

    @abstractmethod
    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Return the rows to evict, each with a reason.

        Parameters
        ----------
        rows : DataFrame
            The rows of this policy's population in order of position, numbered from 0. They include
            load-bearing rows and rows that a plan pins, because these use capacity too.
        now : datetime
            The moment of the decision, with a time zone.

        Returns
        -------
        Series of str
            A reason for each row to evict, indexed by its label in `rows`. Load-bearing and pinned
            rows in it are ignored.
        """


@dataclass(frozen=True)
class CappedPolicy(Policy):
    """A policy that ranks rows and evicts the lowest, as many as exceed its capacity.

    Policies of this kind differ in the ranking; by default the oldest position is evicted first. A
    class may name the runner ``"capped"`` if the keys, size and scopes of a row do not depend on
    the other rows. It may name ``"ranked"`` if the keys also depend on neither time nor references.

    Examples
    --------
    A policy that keeps the `most` longest titles:

    >>> from dataclasses import dataclass
    >>> from datetime import UTC, datetime
    >>> import pandas as pd
    >>> @dataclass(frozen=True)
    ... class LongTitles(CappedPolicy):
    ...     most: int
    ...
    ...     @property
    ...     def capacity(self):
    ...         return self.most
    ...
    ...     def eviction_keys(self, rows, *, now):
    ...         return (rows["title"].str.len().to_numpy(),)
    >>> rows = pd.DataFrame({"title": ["plan", "a longer one"], "load_bearing": False})
    >>> LongTitles(1).evict(rows, now=datetime(2026, 1, 1, tzinfo=UTC))
    0    over-capacity
    dtype: str
    """

    reason: ClassVar[str] = "over-capacity"
    counts_load_bearing: ClassVar[bool] = True
    fills_gaps: ClassVar[bool] = False
    """Whether a row that still fits into the capacity stays although a higher one did not fit."""

    @property
    @abstractmethod
    def capacity(self) -> int | None:
        """Capacity of each scope; None if the cap is off."""

    def eviction_keys(self, rows: Rows, *, now: datetime) -> Keys:  # noqa: ARG002
        """Return the keys that rows are ranked by; the lowest goes first.

        `rows` are columns of a frame; signals may be missing. The most significant key comes first,
        and each has shape (len(rows),). Of rows with equal keys, the oldest position goes first.
        """
        return (np.asarray(rows[col.POSITION]),)

    def sizes(self, rows: pd.DataFrame) -> Ints:
        """Return the part of the capacity that each row uses; one by default."""
        return np.ones(len(rows), dtype=np.int64)

    def scopes(self, rows: pd.DataFrame) -> list[Scope]:
        """Return the groups of rows that share a capacity; one group of all rows by default.

        A row in no scope is never evicted. Scopes are processed in order of the position of their
        newest owners.
        """
        return one_scope(rows)

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Return the lowest rows of each scope, as many as exceed its capacity."""
        evicted = self.over_capacity(rows, np.ones(len(rows), dtype=bool), now=now)
        return pd.Series(self.reason, index=evicted, dtype="str")

    def over_capacity(self, rows: pd.DataFrame, is_present: Flags, *, now: datetime) -> Ints:
        """Return the numbers of the rows to evict, if only the rows in `is_present` are present."""
        if self.capacity is None or rows.empty:
            return np.empty(0, dtype=np.int64)
        stays = is_present.copy()
        is_load_bearing = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
        size = self.sizes(rows)
        if not self.counts_load_bearing:
            size = np.where(is_load_bearing, 0, size)
        # The keys of all rows are computed once, and only if a scope exceeds its capacity.
        all_keys = cache(partial(self.eviction_keys, rows, now=now))

        def keys_of(row_numbers: Ints) -> Keys:
            return tuple(key[row_numbers] for key in all_keys())

        is_evictable = ~is_exempt(rows)
        for evicted in iter_evictions(self, self.scopes(rows), size, stays, is_evictable, keys_of):
            stays[evicted] = False
        return np.flatnonzero(is_present & ~stays)


@dataclass(frozen=True)
class DatedPolicy(Policy):
    """A policy that gives each row a deadline, independent of the other rows.

    A class that defines only :meth:`deadlines`, and the same deadline at any moment, may name the
    runner ``"dated"``.

    Examples
    --------
    A policy that drops memories a week after they were written:

    >>> from dataclasses import dataclass
    >>> from datetime import UTC, datetime
    >>> import numpy as np
    >>> import pandas as pd
    >>> @dataclass(frozen=True)
    ... class AWeek(DatedPolicy):
    ...     def deadlines(self, rows):
    ...         return rows["created_at"].to_numpy(dtype="M8[us]") + np.timedelta64(7, "D")
    >>> rows = pd.DataFrame({"created_at": pd.to_datetime(["2026-01-01", "2026-01-09"])})
    >>> AWeek().evict(rows, now=datetime(2026, 1, 10, tzinfo=UTC))
    0    expired
    dtype: str
    """

    reason: ClassVar[str] = "expired"

    @abstractmethod
    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the deadline of each row in UTC, in microseconds; NaT if it is never evicted."""

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Return the rows whose deadline has passed."""
        due = np.flatnonzero(self.deadlines(rows) < as_instant(now))
        return pd.Series(self.reason, index=due, dtype="str")


def is_exempt(rows: pd.DataFrame) -> Flags:
    """Return flags of the rows that no policy may evict: load-bearing and pinned ones."""
    exempt: Flags = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
    if PINNED in rows:
        exempt = exempt | rows[PINNED].to_numpy(dtype=bool)
    return exempt


def iter_evictions(
    policy: CappedPolicy,
    scopes: Iterable[Scope],
    size: Ints,
    is_present: Flags,
    is_evictable: Flags,
    keys_of: Callable[[Ints], Keys],
) -> Iterator[Ints]:
    """Yield the rows to evict from each scope that exceeds its capacity.

    Scopes may overlap. Therefore the caller sets the flags of yielded rows in `is_present` to False
    before it continues the iteration.

    Parameters
    ----------
    policy : CappedPolicy
        The policy, for its capacity.
    scopes : iterable of Scope
        The scopes.
    size : array of int, shape (rows,)
        The part of the capacity that each row uses.
    is_present : array of bool, shape (rows,)
        Whether each row is present.
    is_evictable : array of bool, shape (rows,)
        Whether each row may be evicted.
    keys_of : callable
        Returns the eviction keys of rows, given by their numbers.

    Yields
    ------
    array of int
        Row numbers.
    """
    by_newest_owner = []
    for scope in scopes:
        owners = scope.owners[is_present.take(scope.owners)]
        if len(owners):
            by_newest_owner.append((int(owners[-1]), scope.members))
    by_newest_owner.sort(key=itemgetter(0))
    for _, members in by_newest_owner:
        present = members[is_present.take(members)]
        evicted = surplus_of_scope(policy, present, size, is_evictable, keys_of)
        if len(evicted):
            yield evicted


def surplus_of_scope(
    policy: CappedPolicy,
    present: Ints,
    size: Ints,
    is_evictable: Flags,
    keys_of: Callable[[Ints], Keys],
) -> Ints:
    """Return the rows to evict from a scope: the lowest, as many as exceed its capacity.

    `present` has the numbers of the present rows of the scope. The other parameters are as for
    :func:`iter_evictions`.
    """
    surplus = int(size[present].sum()) - (policy.capacity or 0)
    candidates = present[is_evictable[present]]
    if surplus <= 0 or not len(candidates):
        return candidates[:0]
    keys = keys_of(candidates)
    return candidates[select_victims(keys, size[candidates], surplus, fill=policy.fills_gaps)]


def select_victims(
    keys: Sequence[npt.NDArray[Any]], size: Ints, surplus: int, *, fill: bool = False
) -> Ints:
    """Return the numbers of the lowest rows whose sizes add up to at least `surplus`.

    With `fill`, rows among them that still fit into the capacity are kept, the highest first.
    """
    keys = [_comparable(key) for key in keys]
    lowest = _lowest_of(keys)
    if size[lowest] >= surplus:
        return np.array([lowest])
    capacity = int(size.sum()) - surplus
    if surplus > capacity // _KEPT_PER_EVICTED:
        is_victim = np.ones(len(size), dtype=bool)
        is_victim[_highest_within(keys, size, capacity)] = False
        victims = np.flatnonzero(is_victim)
    else:
        order = _lowest_making_up(keys, size, surplus)
        # A row is evicted if the rows before it do not make up the surplus.
        size_before = np.cumsum(size[order]) - size[order]
        victims = order[size_before < surplus]
    if fill:
        free = int(size[victims].sum()) - surplus
        victims = _without_fitting(victims, keys, size, free)
    return victims


def _without_fitting(
    victims: Ints, keys: Sequence[npt.NDArray[Any]], size: Ints, free: int
) -> Ints:
    """Return the victims without those that fit into the free capacity, the highest first."""
    is_kept = np.zeros(len(size), dtype=bool)
    fitting = np.sort(victims[size[victims] <= free])
    while len(fitting):
        highest = _highest_of(keys, fitting)
        is_kept[highest] = True
        free -= int(size[highest])
        fitting = fitting[(size[fitting] <= free) & (fitting != highest)]
    return victims[~is_kept[victims]]


def _lowest_of(keys: Sequence[npt.NDArray[Any]]) -> int:
    """Return the number of the row with the lowest keys; the first if several rows have them."""
    row_numbers = np.arange(len(keys[0]))
    for key in keys:
        values = key[row_numbers]
        row_numbers = row_numbers[values == values.min()]
        if len(row_numbers) == 1:
            break
    return int(row_numbers[0])


def _highest_of(keys: Sequence[npt.NDArray[Any]], row_numbers: Ints) -> int:
    """Return the number of the row with the highest keys; of several such rows, the last."""
    for key in keys:
        values = key[row_numbers]
        row_numbers = row_numbers[values == values.max()]
    return int(row_numbers[-1])


_KEPT_PER_EVICTED: Final = 7
"""Largest ratio of the capacity to the surplus at which the rows that stay are searched.

Above it, the rows to evict are searched, which are then few.
"""
_MARGIN_DIVISOR: Final = 32
"""The margin of error of the guessed rank of the cut is the number of rows divided by this.

It is also the smallest margin.
"""


def _highest_within(keys: Sequence[npt.NDArray[Any]], size: Ints, capacity: int) -> Ints:
    """Return the numbers of the highest rows that fit into a capacity.

    Rows are taken from the highest on, and end before the first that does not fit: the cut. The
    rank of the cut is guessed from the mean size of a row, and the rows above and below the guess
    are separated without sorting. Only rows near the cut are sorted. This way a night's plan of
    100,000 retired memories takes a fifth of the time, and ``bench_compare.py`` half of it.
    """
    free = capacity
    kept = []
    undecided = np.arange(len(size))
    while True:
        values = keys[0][undecided]
        sizes = size[undecided]
        count = len(undecided)
        margin = max(_MARGIN_DIVISOR, count // _MARGIN_DIVISOR)
        if count <= 4 * margin:
            break
        share_that_stays = max(0, free) / max(1, int(sizes.sum()))
        guess = int(count * (1 - share_that_stays))  # the rank of the cut, from the lowest
        ranks = np.clip([guess - margin, guess + margin], 0, count - 1)
        lower, upper = np.partition(values, ranks)[ranks]
        is_above = values > upper
        is_above_or_near = values >= lower
        if sizes[is_above].sum() > free:
            undecided = undecided[is_above]
        elif sizes[is_above_or_near].sum() > free:
            free -= int(sizes[is_above].sum())
            kept.append(undecided[is_above])
            undecided = undecided[is_above_or_near & ~is_above]
        else:
            free -= int(sizes[is_above_or_near].sum())
            kept.append(undecided[is_above_or_near])
            undecided = undecided[~is_above_or_near]
        if len(undecided) > count // 2:
            break
    order = undecided[lowest_first([key[undecided] for key in keys])][::-1]
    kept.append(order[np.cumsum(size[order]) <= free])
    return np.concatenate(kept)


def lowest_first(keys: Sequence[npt.NDArray[Any]]) -> Ints:
    """Return the numbers of rows in eviction order."""
    # lexsort takes the primary key last
    return np.lexsort(tuple(_comparable(key) for key in reversed(keys)))


def _lowest_making_up(keys: Sequence[npt.NDArray[Any]], size: Ints, surplus: int) -> Ints:
    """Return the numbers of the lowest rows in order; their sizes add up to at least the surplus.

    Usually few of many rows are evicted at a time. Sorting all of them would take twenty times as
    long as finding those few: see ``bench_compare.py`` with 100,000 memories.
    """
    first = keys[0]
    mean_size = max(1, int(size.sum()) // len(size))
    # This is twice the expected number, and a few more, so that a second pass is rare.
    count = 2 * surplus // mean_size + 8
    while count < len(first) // 2:
        bound = np.partition(first, count)[count]
        candidates = np.flatnonzero(first <= bound)
        if size[candidates].sum() >= surplus:
            return candidates[np.lexsort(tuple(key[candidates] for key in reversed(keys)))]
        count *= 4
    return np.lexsort(tuple(reversed(keys)))


def _comparable(key: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a key that can be sorted: with NaN as infinity, and times as integers."""
    if key.dtype.kind == "f":
        return np.where(np.isnan(key), np.inf, key)
    is_time = key.dtype.kind == "M"
    return key.astype(np.int64) if is_time else key


def float_column(rows: Rows, name: str) -> Floats:
    """Return a column as floats, or all NaN if there is no such column."""
    return _column(rows, name, np.float64("nan"))


def time_column(rows: Rows, name: str) -> Times:
    """Return a column of times as UTC in microseconds, or all NaT if there is no such column."""
    return _column(rows, name, np.datetime64("NaT", "us"))


def _column(rows: Rows, name: str, missing: Any) -> npt.NDArray[Any]:
    """Return a column in the type of `missing`, which stands for missing values."""
    if name not in rows:
        return np.full(len(rows[col.POSITION]), missing)
    values = rows[name]
    if isinstance(values, np.ndarray) and values.dtype == missing.dtype:
        return values
    return np.asarray(pd.Series(values).to_numpy(dtype=missing.dtype, na_value=missing))


def runner_name_of(policy: Policy) -> RunnerName:
    """Return the name of a policy's runner; ``"asked"`` if a subclass changed the decision.

    A subclass changes the decision if it defines anything except settings and descriptive class
    attributes, and does not name the runner again.
    """
    lineage = type(policy).__mro__
    settings = {field.name for field in fields(policy)}
    for kind in lineage:
        class_attributes = vars(kind)  # without inherited ones
        if "runner" in class_attributes:
            runner: RunnerName = class_attributes["runner"]
            return runner
        names = {name for name in class_attributes if not name.startswith("__")}
        changes_lookup = "__getattribute__" in class_attributes or "__getattr__" in class_attributes
        if names - settings - _DESCRIPTIVE_ATTRIBUTES or changes_lookup:
            return "asked"
    raise TypeError(f"{type(policy).__qualname__} has no runner")


def steps_of(policy: Policy) -> tuple[Policy, ...]:
    """Return the policies that a replay runs one by one: the steps of a pipeline, or the policy."""
    return policy.steps if runner_name_of(policy) == "steps" else (policy,)


_DESCRIPTIVE_ATTRIBUTES: Final = {
    "name",
    "origin",
    "reason",
    "reads_bodies",
    "signals",
    "ranks_by",
    "_abc_impl",
}
"""Class attributes that do not change the decisions of a policy."""


def decide(frame: pd.DataFrame, policy: Policy, *, now: datetime | None = None) -> pd.DataFrame:
    """Return for every memory whether a policy keeps it, and the reason.

    Nothing is deleted, and `frame` is not changed. Every policy keeps load-bearing rows. It keeps
    superseded rows, too, unless they belong to its population. The order of rows in `frame` does
    not matter.

    Parameters
    ----------
    frame : DataFrame
        A frame as :func:`memlab.load` returns it.
    policy : Policy
        The rule.
    now : datetime, optional
        The moment of the decision, with a time zone; the current time by default.

    Returns
    -------
    DataFrame
        Columns ``keep`` (bool) and ``reason`` (category), with the index of `frame`. A policy of
        several steps numbers its reasons by step.

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> frame = memlab.load(memlab.store_path("looked_up"))
    >>> decision = memlab.decide(frame, KeepRecent(20))
    >>> int((decision["keep"] & frame["prunable"]).sum())
    20
    """
    expect_frame(frame, col.POSITION, col.ACTIVE, col.LOAD_BEARING, call="memlab.decide")
    expect(policy, Policy, call="memlab.decide", name="policy")
    now = moment_or_now(now, call="memlab.decide")
    decision = decision_of(frame, policy, now=now)
    reasons = pd.Categorical.from_codes(decision.reason, pd.Index(decision.reasons, dtype="str"))
    return pd.DataFrame({col.KEEP: decision.keep, col.REASON: reasons}, index=frame.index)


class Decision(NamedTuple):
    """The result of :func:`decide` as arrays; making a frame would take as long as deciding.

    Attributes
    ----------
    keep : array of bool, shape (rows,)
        Whether each row is kept.
    reason : array of int, shape (rows,)
        The number of each row's reason in `reasons`.
    reasons : list of str
        The reasons.
    """

    keep: Flags
    reason: Ints
    reasons: list[str]


def decision_of(frame: pd.DataFrame, policy: Policy, *, now: datetime) -> Decision:
    """Return for every memory whether a policy keeps it, as arrays; see :func:`decide`."""
    position = frame[col.POSITION].to_numpy()
    order = np.arange(len(frame))
    rows = frame
    if (position[1:] < position[:-1]).any():
        order = np.argsort(position, kind="stable")
        rows = frame.iloc[order]
    default_index = pd.RangeIndex(len(rows))
    if not rows.index.equals(default_index):
        rows = rows.set_axis(default_index, axis=0)
    row_numbers, reasons_of_evicted = evicted_by(policy, rows, now=now)
    evicted = order[row_numbers]
    keep = np.ones(len(frame), dtype=bool)
    keep[evicted] = False
    code = _keep_codes(frame)
    eviction_codes, eviction_reasons = pd.factorize(reasons_of_evicted, sort=True)
    code[evicted] = eviction_codes + len(KEEP_REASONS)
    all_reasons = [*KEEP_REASONS, *eviction_reasons]
    used_codes, reason = np.unique(code, return_inverse=True)
    reasons = [all_reasons[used_code] for used_code in used_codes]
    return Decision(keep=keep, reason=reason, reasons=reasons)


def _keep_codes(frame: pd.DataFrame) -> Ints:
    """Return the reason for keeping each row, as its number in `KEEP_REASONS`."""
    is_active = frame[col.ACTIVE].to_numpy(dtype=bool)
    is_load_bearing = frame[col.LOAD_BEARING].to_numpy(dtype=bool)
    code: Ints = np.where(is_active, KEEP_REASONS.index("kept"), KEEP_REASONS.index("superseded"))
    code[retired_rows(frame)] = KEEP_REASONS.index("retired")
    for state in (col.REACHED, col.UNLISTED):
        code[rows_in_state(frame, state)] = KEEP_REASONS.index(state)
    code[is_load_bearing] = KEEP_REASONS.index("load-bearing")
    return code


def evicted_by(
    policy: Policy, rows: pd.DataFrame, *, now: datetime
) -> tuple[Ints, npt.NDArray[np.object_]]:
    """Return the numbers of the rows that a policy evicts, and the reasons.

    The policy receives only the rows of its population. Exempt rows in its result are ignored.
    """
    in_population = _in_population(policy.population, rows)
    is_plain_cap = (
        isinstance(policy, CappedPolicy)
        and runner_name_of(policy) in {"capped", "ranked"}
        and type(policy).evict is CappedPolicy.evict
    )
    if isinstance(policy, CappedPolicy) and is_plain_cap:
        # Making a frame of the population alone would take longer than everything else.
        evicted = policy.over_capacity(rows, in_population, now=now)
        if len(evicted):
            _check_reasons(policy, [policy.reason])
        return evicted, np.full(len(evicted), policy.reason, dtype=object)
    row_numbers = np.flatnonzero(in_population)
    if len(row_numbers) < len(rows):
        population = rows.iloc[row_numbers].reset_index(drop=True)
    else:
        population = rows.copy(deep=False)
    reasons = policy.evict(population, now=now)
    _check_evicted(policy, reasons, len(row_numbers))
    evicted = row_numbers[reasons.index.to_numpy(dtype=np.int64)]
    is_evictable = ~is_exempt(rows)[evicted]
    return evicted[is_evictable], reasons.to_numpy(dtype=object)[is_evictable]


def _in_population(population: Population, rows: pd.DataFrame) -> Flags:
    """Return flags of the rows that belong to a population."""
    active = rows[col.ACTIVE].to_numpy(dtype=bool)
    retired = retired_rows(rows)
    if population == "active":
        return active
    if population == "retired":
        return retired
    out_of_reach = rows_in_state(rows, col.REACHED) | rows_in_state(rows, col.UNLISTED)
    superseded = ~active & ~retired & ~out_of_reach
    return superseded if population == "superseded" else active | superseded


_EXPECTED_RESULT: Final = "return a Series of reasons, indexed by the labels of the rows that go"


def _check_evicted(policy: Policy, reasons: Any, count: int) -> None:
    """Check the result of a policy's `evict`."""
    method = f"{type(policy).__qualname__}.evict"
    if not isinstance(reasons, pd.Series):
        raise ValueError(f"{method} returned {type(reasons).__name__}: {_EXPECTED_RESULT}")  # noqa: TRY004
    if reasons.empty:
        return
    if not pd.api.types.is_integer_dtype(reasons.index.dtype):
        raise ValueError(f"{method} named rows by {reasons.index.dtype}: {_EXPECTED_RESULT}")
    if reasons.index.min() < 0 or reasons.index.max() >= count:
        raise ValueError(f"{method} named missing rows: {_EXPECTED_RESULT}")
    if not reasons.index.is_unique:
        raise ValueError(f"{method} named one row twice: {_EXPECTED_RESULT}")
    _check_reasons(policy, reasons.unique() if reasons.dtype == "str" else reasons)


def _check_reasons(policy: Policy, reasons: Iterable[Any]) -> None:
    """Check that each reason is a text, and is not one of the reasons for keeping a row."""
    for reason in reasons:
        if not isinstance(reason, str) or reason in KEEP_REASONS:
            raise ValueError(
                f"{type(policy).__qualname__}.evict let rows go for {reason!r}, which is no reason "
                f"to: {_EXPECTED_RESULT}"
            )
