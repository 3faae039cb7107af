"""What a policy is, and the one place where the load-bearing floor is enforced."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache, partial
from operator import itemgetter
from typing import Any, ClassVar, Final, Literal, NamedTuple

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

PINNED: Final = "held"
"""Column of a frame that marks what stays whatever a policy says, in the room that there is."""

KEEP_REASONS: Final = ("kept", "superseded", "load-bearing", "retired", col.REACHED, col.UNLISTED)
"""Reasons for which a memory stays."""

Runner = Literal["asked", "capped", "ranked", "dated", "activation", "duplicates", "steps"]
Population = Literal["active", "superseded", "retired", "all"]
GoesBy = Literal["age", "use", ""]
Rows = Mapping[str, Any] | pd.DataFrame
Keys = tuple[npt.NDArray[Any], ...]


class Scope(NamedTuple):
    """Rows that share room."""

    members: Ints
    owners: Ints


def one_scope(rows: pd.DataFrame) -> list[Scope]:
    """Return one scope that holds all rows."""
    every = np.arange(len(rows))
    return [Scope(every, every)]


@dataclass(frozen=True)
class Policy(ABC):
    """A rule that says which memories go.

    A rule of your own is a frozen dataclass with this base and an :meth:`evict`; it works wherever
    a policy is taken, on the command line as ``--policy package.module:Class``. Its fields are its
    settings, held to their types. ``field(metadata={"help": ...})`` says what one means,
    ``{"least": 0}`` the least it may be (of an age, in days), and ``{"size": True}`` marks the one,
    a count or an age, that a comparison varies (``{"size": "tokens"}`` where it counts tokens).

    A replay asks a policy about the memories that are there, at every moment. The policies of this
    package name a `runner` that finds the same sooner. A class below one of them that changes what
    it decides by is asked instead, unless it names the runner anew and so vouches for it.

    Attributes
    ----------
    name : str
        Short name, as on a command line; made of the class's name where it is not given.
    origin : str
        Whose rule it is; where the class is defined, where it is not given.
    population : {"active", "superseded", "retired", "all"}
        Which memories it chooses among, ``"all"`` being the active and the superseded ones. The
        others are never touched by it.
    reads_bodies : bool
        Whether it decides by texts, and wants a frame loaded with them.
    signals : frozenset of str
        Columns of a frame that it decides by and that a system may change after a memory is
        written, such as ``importance``; what reads and references say is not among them. A
        comparison says which of them a store does not keep as they were.
    learns : bool
        Whether it decides by what a store has lived through, and wants that with :meth:`after`.
    runner : str
        How a replay follows it.
    goes_by : {"age", "use", ""}
        What says which memories it keeps: how old they are, how they are used, or neither. Charts
        colour it by that.
    """

    name: ClassVar[str]
    origin: ClassVar[str]
    population: ClassVar[Population] = "active"
    reads_bodies: ClassVar[bool] = False
    signals: ClassVar[frozenset[str]] = frozenset()
    learns: ClassVar[bool] = False
    runner: ClassVar[Runner] = "asked"
    goes_by: ClassVar[GoesBy] = ""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<!^)(?=[A-Z][a-z])", "-", cls.__name__.strip("_")).lower()
        if "origin" not in vars(cls):
            cls.origin = f"{cls.__module__}:{cls.__qualname__}"

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def address(self) -> str:
        """What to ask for it by: its name, or ``package.module:Class`` for one of your own."""
        kind = type(self)
        ours = kind.__module__.partition(".")[0] == "memlab"
        return self.name if ours else f"{kind.__module__}:{kind.__qualname__}"

    @property
    def steps(self) -> "tuple[Policy, ...]":
        """The policies that run, in order: the policy itself, unless it is made of others."""
        return (self,)

    def after(self, past: pd.DataFrame, references: pd.DataFrame | None = None) -> "Policy":  # noqa: ARG002
        """Return the policy with a past to learn from: itself, unless it learns.

        Parameters
        ----------
        past : DataFrame
            Every row that was ever written, deleted ones among them, as :func:`memlab.load`
            returns.
        references : DataFrame, optional
            What ``find_references`` returns; found in `past` when not given.
        """
        return self

    @abstractmethod
    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the rows that go.

        Parameters
        ----------
        rows : DataFrame
            The rows of this policy's population in order of position, numbered from 0. Load-bearing
            rows, and where a plan retires those that came back and stay, are among them because
            they take up room.
        now : datetime
            The moment of the decision, with a time zone.

        Returns
        -------
        Series of str
            A reason for each row that goes, indexed by its label in `rows`. Rows in it that stay
            whatever a policy says are ignored.
        """


@dataclass(frozen=True)
class CappedPolicy(Policy):
    """A policy that keeps what there is room for and drops the lowest of a ranking.

    What differs between such policies is the ranking: what was written first goes first, unless a
    class says otherwise. A class whose keys, sizes and scopes say the same of a row whatever the
    other rows are may name the runner ``"capped"``, and ``"ranked"`` if neither the moment nor a
    reference changes its keys.
    """

    reason: ClassVar[str] = "over-capacity"
    counts_load_bearing: ClassVar[bool] = True
    fills: ClassVar[bool] = False
    """Whether what still fits stays, where a row ranked above it takes up too much."""

    @property
    @abstractmethod
    def capacity(self) -> int | None:
        """How much room a scope has, or None where the cap is off."""

    def eviction_keys(self, rows: Rows, *, now: datetime) -> Keys:  # noqa: ARG002
        """Return what rows are ranked by: the lowest goes first.

        `rows` are columns of a frame; those of signals may be missing. The most significant key
        is first, each of shape (len(rows),). Rows equal in all of them go oldest position first.
        """
        return (np.asarray(rows[col.POSITION]),)

    def sizes(self, rows: pd.DataFrame) -> Ints:
        """Return how much room each row takes: one, unless a policy says otherwise."""
        return np.ones(len(rows), dtype=np.int64)

    def scopes(self, rows: pd.DataFrame) -> list[Scope]:
        """Return which rows share room: all of them, unless a policy says otherwise.

        A row in none is never capped. They are looked at in the order of their newest owner.
        """
        return one_scope(rows)

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the lowest rows of each scope, as many as it has no room for."""
        beyond = self.beyond_room(rows, np.ones(len(rows), dtype=bool), now=now)
        return pd.Series(self.reason, index=beyond, dtype="str")

    def beyond_room(self, rows: pd.DataFrame, here: Flags, *, now: datetime) -> Ints:
        """Return the places of those that go, where but some of the rows are there."""
        if self.capacity is None or rows.empty:
            return np.empty(0, dtype=np.int64)
        left = here.copy()
        floor = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
        size = self.sizes(rows) * (~floor | self.counts_load_bearing)
        keys = cache(partial(self.eviction_keys, rows, now=now))

        def keys_of(some: Ints) -> Keys:
            return tuple(key[some] for key in keys())

        for lowest in iter_evictions(
            self, self.scopes(rows), size, left, ~is_exempt(rows), keys_of
        ):
            left[lowest] = False
        return np.flatnonzero(here & ~left)


@dataclass(frozen=True)
class DatedPolicy(Policy):
    """A policy under which each row has a time after which it goes, whatever the other rows are.

    A class that says no more than :meth:`deadlines`, the same for a row at any moment, may name the
    runner ``"dated"``.
    """

    reason: ClassVar[str] = "expired"

    @abstractmethod
    def deadlines(self, rows: pd.DataFrame) -> Times:
        """Return the UTC time after which each row goes, in microseconds; NaT for never."""

    def evict(self, rows: pd.DataFrame, *, now: datetime) -> "pd.Series[str]":
        """Name the rows whose time has passed."""
        due = np.flatnonzero(self.deadlines(rows) < as_instant(now))
        return pd.Series(self.reason, index=due, dtype="str")


def is_exempt(rows: pd.DataFrame) -> Flags:
    """Whether rows stay whatever a policy says: they are load-bearing, or held."""
    floor = rows[col.LOAD_BEARING].to_numpy(dtype=bool)
    return floor | rows[PINNED].to_numpy(dtype=bool) if PINNED in rows else floor


def iter_evictions(
    policy: CappedPolicy,
    scopes: Iterable[Scope],
    size: Ints,
    here: Flags,
    may_go: Flags,
    keys_of: Callable[[Ints], Keys],
) -> Iterator[Ints]:
    """Yield what goes from each scope without room; the caller takes it out of `here` first."""
    owned = [(scope.owners[here.take(scope.owners)], scope.members) for scope in scopes]
    newest = [(int(owners[-1]), members) for owners, members in owned if len(owners)]
    for _, members in sorted(newest, key=itemgetter(0)):
        there = members[here.take(members)]
        lowest = lowest_beyond(policy, there, size, may_go, keys_of)
        if len(lowest):
            yield lowest


def lowest_beyond(
    policy: CappedPolicy,
    there: Ints,
    size: Ints,
    may_go: Flags,
    keys_of: Callable[[Ints], Keys],
) -> Ints:
    """Return which rows of a scope go, of those that are there: the lowest beyond its room."""
    surplus = int(size[there].sum()) - (policy.capacity or 0)
    if surplus <= 0:
        return there[:0]
    candidates = there[may_go[there]]
    if not len(candidates):
        return candidates
    keys = keys_of(candidates)
    return candidates[select_victims(keys, size[candidates], surplus, fill=policy.fills)]


def select_victims(
    keys: Sequence[npt.NDArray[Any]], size: Ints, surplus: int, *, fill: bool = False
) -> Ints:
    """Return the places of the lowest that take up the surplus; `fill` spares what still fits."""
    keys = [_comparable(key) for key in keys]
    lowest = np.arange(len(size))
    for key in keys:
        among = key[lowest]
        lowest = lowest[among == among.min()]
        if len(lowest) == 1:
            break
    if size[lowest[0]] >= surplus:
        return lowest[:1]
    room = int(size.sum()) - surplus
    if surplus > room // MANY_STAY:
        is_lowest = np.ones(len(size), dtype=bool)
        is_lowest[_highest_within(keys, size, room)] = False
        lowest = np.flatnonzero(is_lowest)
    else:
        order = _lowest_beyond(keys, size, surplus)
        taken = np.cumsum(size[order])
        lowest = order[taken - size[order] < surplus]
    if not fill:
        return lowest
    room = int(size[lowest].sum()) - surplus
    is_spared = np.zeros(len(size), dtype=bool)
    fitting = np.sort(lowest[size[lowest] <= room])
    while len(fitting):
        highest = _highest_of(keys, fitting)
        is_spared[highest] = True
        room -= int(size[highest])
        fitting = fitting[(size[fitting] <= room) & (fitting != highest)]
    return lowest[~is_spared[lowest]]


def _highest_of(keys: Sequence[npt.NDArray[Any]], places: Ints) -> int:
    """Return which of some places is the last to go."""
    for key in keys:
        among = key[places]
        places = places[among == among.max()]
    return int(places[-1])


MANY_STAY: Final = 7
"""Times the room that goes in which what goes is found sooner than what stays."""
UNSORTED: Final = 32
"""The part of the rows, one in so many, by which a guess where they are cut may be wrong."""


def _highest_within(keys: Sequence[npt.NDArray[Any]], size: Ints, room: int) -> Ints:
    """Return the places of the highest that fit into a room, down to the first that does not.

    Only those near the cut are sorted: a night's plan of 100,000 retired memories takes a fifth of
    the time so, and `bench_compare.py` half of it.
    """
    kept = []
    unsure = np.arange(len(size))
    while True:
        values = keys[0][unsure]
        sizes = size[unsure]
        count = len(unsure)
        margin = max(UNSORTED, count // UNSORTED)
        if count <= 4 * margin:
            break
        guess = int(count * (1 - max(0, room) / max(1, int(sizes.sum()))))
        ranks = np.clip([guess - margin, guess + margin], 0, count - 1)
        lower, upper = np.partition(values, ranks)[ranks]
        is_above = values > upper
        is_beside = values >= lower
        if sizes[is_above].sum() > room:
            unsure = unsure[is_above]
        elif sizes[is_beside].sum() > room:
            room -= int(sizes[is_above].sum())
            kept.append(unsure[is_above])
            unsure = unsure[is_beside & ~is_above]
        else:
            room -= int(sizes[is_beside].sum())
            kept.append(unsure[is_beside])
            unsure = unsure[~is_beside]
        if len(unsure) > count // 2:
            break
    order = unsure[lowest_first([key[unsure] for key in keys])][::-1]
    kept.append(order[np.cumsum(size[order]) <= room])
    return np.concatenate(kept)


def lowest_first(keys: Sequence[npt.NDArray[Any]]) -> Ints:
    """Return the places of rows in the order in which they go."""
    return np.lexsort(tuple(_comparable(key) for key in reversed(keys)))


def _lowest_beyond(keys: Sequence[npt.NDArray[Any]], size: Ints, surplus: int) -> Ints:
    """Return places in order of the keys, as many as take up the surplus at least.

    Of many rows few go at a time, and to sort all of them takes twenty times as long as to find
    the few: `bench_compare.py` shows it in a comparison of 100,000 memories.
    """
    first = keys[0]
    count = 2 * surplus // max(1, int(size.sum()) // len(size)) + 8
    while count < len(first) // 2:
        bound = np.partition(first, count)[count]
        few = np.flatnonzero(first <= bound)
        if size[few].sum() >= surplus:
            return few[np.lexsort(tuple(key[few] for key in reversed(keys)))]
        count *= 4
    return np.lexsort(tuple(reversed(keys)))


def _comparable(key: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a key without values that compare as neither lower nor higher."""
    if key.dtype.kind == "f":
        return np.where(np.isnan(key), np.inf, key)
    return key.astype(np.int64) if key.dtype.kind == "M" else key


def numbers(rows: Rows, name: str) -> Floats:
    """Return a column as floats, NaN throughout where there is no such column."""
    return _column(rows, name, np.float64("nan"))


def times(rows: Rows, name: str) -> Times:
    """Return a column of times as UTC in microseconds, NaT throughout where there is none."""
    return _column(rows, name, np.datetime64("NaT", "us"))


def _column(rows: Rows, name: str, missing: Any) -> npt.NDArray[Any]:
    if name not in rows:
        return np.full(len(rows[col.POSITION]), missing)
    values = rows[name]
    if isinstance(values, np.ndarray) and values.dtype == missing.dtype:
        return values
    return np.asarray(pd.Series(values).to_numpy(dtype=missing.dtype, na_value=missing))


def runner_for(policy: Policy) -> Runner:
    """Return the runner that a policy names, ``"asked"`` where it changed what that stands for."""
    lineage = type(policy).__mro__
    named_by = next(place for place, one in enumerate(lineage) if "runner" in vars(one))
    settings = {field.name for field in fields(policy)}
    for one in lineage[:named_by]:
        changed = {name for name in vars(one) if not name.startswith("__")} - settings - _WORDS
        if changed or vars(one).keys() & {"__getattribute__", "__getattr__"}:
            return "asked"
    return lineage[named_by].runner  # type: ignore[attr-defined,no-any-return]


def steps_of(policy: Policy) -> tuple[Policy, ...]:
    """Return what a replay follows one by one: the policy alone, where it decides as a whole."""
    return policy.steps if runner_for(policy) == "steps" else (policy,)


_WORDS: Final = {"name", "origin", "reason", "reads_bodies", "signals", "goes_by", "_abc_impl"}


def decide(frame: pd.DataFrame, policy: Policy, *, now: datetime | None = None) -> pd.DataFrame:
    """Say for every memory whether a policy keeps it, and why.

    Nothing is deleted and `frame` is left as it was. Load-bearing rows are kept under every
    policy. Superseded rows are kept under every policy that does not choose among them by name.
    The order of rows in `frame` does not matter.

    Parameters
    ----------
    frame : DataFrame
        A frame as :func:`memlab.load` returns it.
    policy : Policy
        The rule.
    now : datetime, optional
        The moment of the decision, with a time zone; the current one by default.

    Returns
    -------
    DataFrame
        Same index as `frame`; ``keep`` (bool) and ``reason`` (category). A policy of several steps
        numbers its reasons by step.
    """
    expect_frame(frame, col.POSITION, col.ACTIVE, col.LOAD_BEARING, call="memlab.decide")
    expect(policy, Policy, call="memlab.decide", name="policy")
    now = moment_or_now(now, call="memlab.decide")
    decision = decision_of(frame, policy, now=now)
    why = pd.Categorical.from_codes(decision.reason, pd.Index(decision.reasons, dtype="str"))
    return pd.DataFrame({col.KEEP: decision.keep, col.REASON: why}, index=frame.index)


class Decision(NamedTuple):
    """What :func:`decide` says, as arrays: a frame of it takes as long to make as to decide."""

    keep: Flags
    reason: Ints
    reasons: list[str]


def decision_of(frame: pd.DataFrame, policy: Policy, *, now: datetime) -> Decision:
    """Say for every memory whether a policy keeps it, and why; for whom see :func:`decide`."""
    position = frame[col.POSITION].to_numpy()
    order = np.arange(len(frame))
    rows = frame
    if (position[1:] < position[:-1]).any():
        order = np.argsort(position, kind="stable")
        rows = frame.iloc[order]
    numbered = pd.RangeIndex(len(rows))
    if not rows.index.equals(numbered):  # to set what is so already takes time
        rows = rows.set_axis(numbered, axis=0)
    gone, why = named_by(policy, rows, now=now)
    gone = order[gone]
    code: Ints = np.where(frame[col.ACTIVE].to_numpy(dtype=bool), 0, 1)
    code[retired_rows(frame)] = 3
    for state in (col.REACHED, col.UNLISTED):
        code[rows_in_state(frame, state)] = KEEP_REASONS.index(state)
    code[frame[col.LOAD_BEARING].to_numpy(dtype=bool)] = 2
    numbers, reasons = pd.factorize(why, sort=True)
    code[gone] = numbers + len(KEEP_REASONS)
    used, code = np.unique(code, return_inverse=True)
    named_so = [*KEEP_REASONS, *reasons]
    keep = np.ones(len(frame), dtype=bool)
    keep[gone] = False
    return Decision(keep, code, [named_so[place] for place in used.tolist()])


def named_by(
    policy: Policy, rows: pd.DataFrame, *, now: datetime
) -> tuple[Ints, npt.NDArray[np.object_]]:
    """Return which rows of its population go, by place, and why: none that is load-bearing."""
    active = rows[col.ACTIVE].to_numpy(dtype=bool)
    retired = retired_rows(rows)
    out_of_reach = rows_in_state(rows, col.REACHED) | rows_in_state(rows, col.UNLISTED)
    superseded = ~active & ~retired & ~out_of_reach
    among = {"active": active, "superseded": superseded, "retired": retired}
    here = among.get(policy.population, active | superseded)
    capped = runner_for(policy) in ("capped", "ranked")
    if isinstance(policy, CappedPolicy) and capped and type(policy).evict is CappedPolicy.evict:
        # A frame of these rows alone takes longer to make than all else.
        gone = policy.beyond_room(rows, here, now=now)
        _check_reasons(policy, {policy.reason} if len(gone) else ())
        return gone, np.full(len(gone), policy.reason, dtype=object)
    where = np.flatnonzero(here)
    if len(where) < len(rows):
        part = rows.iloc[where].reset_index(drop=True)
    else:
        part = rows.copy(deep=False)
    named = policy.evict(part, now=now)
    _check_named(policy, named, len(where))
    gone = where[named.index.to_numpy(dtype=np.int64)]
    may_go = ~is_exempt(rows)[gone]
    return gone[may_go], named.to_numpy(dtype=object)[may_go]


_WANTED: Final = "return a Series of reasons, indexed by the labels of the rows that go"


def _check_named(policy: Policy, named: Any, count: int) -> None:
    """Refuse what says nothing about single rows, or would be taken for what it is not."""
    who = f"{type(policy).__qualname__}.evict"
    if not isinstance(named, pd.Series):
        raise ValueError(f"{who} returned {type(named).__name__}: {_WANTED}")  # noqa: TRY004
    if named.empty:
        return
    if not pd.api.types.is_integer_dtype(named.index.dtype):
        raise ValueError(f"{who} named rows by {named.index.dtype}: {_WANTED}")
    if named.index.min() < 0 or named.index.max() >= count or not named.index.is_unique:
        raise ValueError(f"{who} named rows that are not there, or one twice: {_WANTED}")
    _check_reasons(policy, named.unique() if named.dtype == "str" else named)


def _check_reasons(policy: Policy, reasons: Iterable[Any]) -> None:
    for reason in reasons:
        if not isinstance(reason, str) or reason in KEEP_REASONS:
            raise ValueError(
                f"{type(policy).__qualname__}.evict let rows go for {reason!r}, which is no reason "
                f"to: {_WANTED}"
            )
