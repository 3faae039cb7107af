"""Replay of a policy over a history, and the optimal offline bound."""

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from memlab import columns as col
from memlab.arguments import whole_number
from memlab.clock import aware
from memlab.evidence.past import HistoryLike
from memlab.evidence.store_history import with_references
from memlab.frame.fields import Flags, Ints, as_instant, as_moment
from memlab.policies import Policy
from memlab.policies.base import steps_of
from memlab.replay.history import ReplayHistory, UsageState, prepare_history, runner_of
from memlab.replay.presorted import Application, Step, evict_in_order
from memlab.sizing.lifetimes import grouped
from memlab.text import DisplayMixin, TextPage, counted, percent

Reasons = npt.NDArray[np.object_]

KEPT: Final = "kept"
DELETED_AT: Final = "deleted_at_position"
STEP: Final = "step"
BOOT_MEMORIES: Final = "boot_memories"
BOOT_TOKENS: Final = "boot_tokens"
HELD: Final = "held"
"""Names of columns of a replay's tables."""

NO_END: Final = np.iinfo(np.int64).max
"""The moment of eviction of a row that is never evicted."""


@dataclass(frozen=True, repr=False)
class Replay(DisplayMixin):
    """The effect of one policy on one history.

    Attributes
    ----------
    policy : Policy
        The rule that was replayed.
    references : DataFrame
        Every reference: ``target_id``, ``target_position``, ``at_position``, ``at``, ``kind``, then
        ``kept`` (bool). A lost reference also has ``deleted_at_position`` (Int64), the position
        after whose writing its target was evicted, and ``step``, the reason. If memories are
        retired, a reference is lost if its target was not loaded.
    boot : DataFrame
        One row for each memory written, indexed by its position: ``at``, ``boot_memories`` and
        ``boot_tokens`` (number and tokens of the active memories at that moment), ``held`` (number
        of the prunable ones). If the policy was applied once more at the end, the last row is about
        this application; its position is that of the next memory.
    deleted : DataFrame
        One row for each memory that is deleted or retired at the end, in the order of eviction:
        ``memory_id``, ``position``, ``tokens``, ``deleted_at_position``, ``step``.
    retire : bool
        Whether memories were retired, and could return, instead of deleted.
    returned : int
        Number of times that a retired memory returned.

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> result = memlab.replay.replay(memlab.store_path("looked_up"), None, KeepRecent(50))
    >>> result.lost == int((~result.references["kept"]).sum())
    True
    """

    policy: Policy
    references: pd.DataFrame
    boot: pd.DataFrame
    deleted: pd.DataFrame
    retire: bool = False
    returned: int = 0

    @property
    def served(self) -> float:
        """Share of references whose target was present; NaN without references."""
        return float(self.references[KEPT].mean()) if len(self.references) else float("nan")

    @property
    def lost(self) -> int:
        """Number of references whose target was deleted, or not loaded."""
        return int((~self.references[KEPT]).sum())

    @property
    def most_held(self) -> int:
        """Largest number of prunable rows held at any moment."""
        return int(self.boot[HELD].max()) if len(self.boot) else 0

    @property
    def table_attrs(self) -> dict[Hashable, Any]:
        """Attributes (``attrs``) of tables made from this replay."""
        return {
            col.SOURCE: self.references.attrs.get(col.SOURCE, ""),
            col.REFERENCES: len(self.references),
        }

    @cached_property
    def regret(self) -> pd.DataFrame:
        """Evicted rows with later references, by ``memory_id``, most references first.

        The columns are ``lost``, the number of lost references; ``first_at_position`` and
        ``first_at`` of the first lost reference; and ``deleted_at_position`` and ``step`` of the
        eviction before this reference.
        """
        missed = self.references[~self.references[KEPT]]
        table = missed.groupby(col.TARGET_ID, sort=False).agg(
            lost=(col.AT_POSITION, "size"),
            first_at_position=(col.AT_POSITION, "first"),
            first_at=(col.AT, "first"),
            deleted_at_position=(DELETED_AT, "first"),
            step=(STEP, "first"),
        )
        table.index.name = col.MEMORY_ID
        return table.sort_values(["lost", "first_at_position"], ascending=[False, True])

    @cached_property
    def regret_over_time(self) -> pd.DataFrame:
        """Cumulative numbers of references and of lost references, one row for each reference.

        The index is ``at_position``, and the columns are ``at``, ``references`` and ``lost``.
        """
        references = self.references
        table = pd.DataFrame(
            {
                col.AT: references[col.AT].array,
                "references": np.arange(1, len(references) + 1),
                "lost": (~references[KEPT]).cumsum().to_numpy(dtype=np.int64),
            },
            index=pd.Index(references[col.AT_POSITION], name=col.AT_POSITION),
        )
        table.attrs = {**self.table_attrs, col.RANKS_BY: self.policy.ranks_by}
        return table

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        count = len(self.references)
        served = "no references"
        if count:
            served = f"{percent(self.served)} of {counted(count, 'references')}"
        removed = "not loaded" if self.retire else "deleted"
        facts = [
            ("served", served),
            (removed, counted(len(self.deleted), "memories")),
        ]
        if self.retire:
            facts.append(("came back", counted(self.returned, "times")))
        facts.append(("held", f"at most {counted(self.most_held, 'prunable memories')}"))
        return TextPage(f"replay of {self.policy}", facts)


def _reference_table(history: ReplayHistory, lost_at: Ints, reason_of: Reasons) -> pd.DataFrame:
    """Return the table of references; a lost one has the time and the reason of the eviction."""
    is_lost = lost_at != NO_END
    at = pd.Series(history.positions[np.where(is_lost, lost_at, 0)], dtype="Int64").where(is_lost)
    reasons = pd.Series(reason_of, dtype="str")
    return history.references.assign(**{KEPT: ~is_lost, DELETED_AT: at, STEP: reasons})


def _eviction_table(history: ReplayHistory, evicted_at: Ints, reason_of: Reasons) -> pd.DataFrame:
    """Return the table of rows that are deleted or retired at the end, in order of eviction."""
    rows = np.flatnonzero(evicted_at != NO_END)
    rows = rows[np.argsort(evicted_at[rows], kind="stable")]
    return pd.DataFrame(
        {
            col.MEMORY_ID: history.frame[col.MEMORY_ID].iloc[rows].array,
            col.POSITION: history.positions[rows],
            col.TOKENS: history.lifetimes.tokens[rows],
            DELETED_AT: history.positions[evicted_at[rows]],
            STEP: pd.Series(reason_of[rows], dtype="str").array,
        }
    )


def _boot_table(walk: "_Walk", now: datetime | None) -> pd.DataFrame:
    """Return the table of a start after every moment; see :class:`Replay`."""
    history = walk.history
    moments = len(history)
    if now is not None:
        moments += 1
    # One column for each stay, with the fields of `_Stay` as rows: shape (3, stays).
    last_stays = np.stack([np.arange(len(history)), walk.loaded_at, walk.evicted_at])
    earlier_stays = np.array(walk.earlier_stays, dtype=np.int64).reshape(-1, 3).T
    row, start, evicted_at = np.concatenate([last_stays, earlier_stays], axis=1)
    superseded_at = history.lifetimes.end[row]
    end = np.minimum(np.minimum(evicted_at, superseded_at), moments)
    tokens = history.lifetimes.tokens[row]
    is_prunable = history.lifetimes.ever_prunable[row].astype(np.int64)

    def sum_of_present(amount: Ints) -> Ints:
        """Return the sum of an amount over the rows that are present after every moment."""
        change = np.zeros(moments + 1, dtype=np.int64)
        np.add.at(change, start, amount)
        np.add.at(change, end, -amount)
        return np.cumsum(change[:moments])

    clock = history.clock if now is None else np.append(history.clock, as_instant(now))
    return pd.DataFrame(
        {
            col.AT: pd.Series(clock).dt.tz_localize("UTC").astype(col.TIME).array,
            BOOT_MEMORIES: sum_of_present(np.ones_like(tokens)),
            BOOT_TOKENS: sum_of_present(tokens),
            HELD: sum_of_present(is_prunable),
        },
        index=pd.Index(history.positions[:moments], name=col.POSITION),
    )


def replay(  # noqa: PLR0913 - the history, the rule, and how it is applied
    frame: HistoryLike,
    references: pd.DataFrame | None,
    policy: Policy,
    *,
    every: int = 1,
    now: datetime | None = None,
    retire: bool = False,
    silent: bool = False,
) -> Replay:
    """Replay a policy over a history, from the first memory to the last.

    Rows are written in order of position, each at its creation time (on a clock that never runs
    backward). Then the rows that it supersedes become superseded, and the policy is applied. A
    reference arises just before the row at its ``at_position`` is written, and is served if its
    target is present. A deleted row never returns. A retired row can still be found: every night
    the policy decides about all loaded and retired rows, as a plan does.

    A reference counts as an access. ``last_accessed_at`` and ``access_count`` (days) are computed
    from the references served so far, which include those that found a retired memory. The values
    in a frame are ignored, because they are from a later time. Other signals are used as they are.
    Superseded rows are present until the policy removes them. A policy that learns is fitted again
    at each moment, to all rows and references up to this moment.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The result of ``memlab.load_past``, or the store itself, for its whole past. If pruned
        memories are missing, the replay begins with those that are left.
    references : DataFrame or None
        The result of ``find_references``; None for the references of the frame, or of the store and
        the logs in its ``memlab.toml``.
    policy : Policy
        The rule.
    every : int
        Number of rows written from one application of the policy to the next. With `retire`, and
        if rows have times, the policy is applied at midnight in UTC instead, as nightly plans are:
        at every midnight before which at least `every` rows and references arose since the last
        application.
    now : datetime, optional
        Apply the policy once more at this time, after the last row.
    retire : bool
        Retire rows instead of deleting them: a start does not load them until they return.
        Superseded rows are not loaded, and so they are never retired.
    silent : bool
        Whether a read of a present memory leaves no trace. Such a read is served, but the policy
        does not see it. The same holds with and without `retire`, so that both have the same
        evidence. The policy always sees references by name.

    Returns
    -------
    Replay

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> result = memlab.replay.replay(memlab.store_path("looked_up"), None, KeepRecent(50))
    >>> result.most_held
    50
    """
    every = whole_number("every", every, least=1)
    if now is not None:
        aware(now, call="memlab.replay.replay")
    with_body = any(step.reads_bodies for step in policy.steps)
    frame, references = with_references(
        frame, references, call="memlab.replay.replay", with_body=with_body
    )
    history = prepare_history(frame, references, silent=silent)
    return walk_through(history, policy, every=every, now=now, retire=retire)


def walk_through(
    history: ReplayHistory,
    policy: Policy,
    *,
    every: int = 1,
    now: datetime | None = None,
    retire: bool = False,
) -> Replay:
    """Replay a history that has been prepared; see :func:`replay`."""
    walk = _Walk(history, policy, retire=retire)
    walk.run(every, now)
    return Replay(
        policy=policy,
        references=_reference_table(history, walk.lost_at, walk.loss_reason),
        boot=_boot_table(walk, now),
        deleted=_eviction_table(history, walk.evicted_at, walk.reason),
        retire=retire,
        returned=len(walk.earlier_stays),
    )


class _Stay(NamedTuple):
    """A period in which a row was loaded: the row, and the moments of loading and eviction."""

    row: int
    loaded_at: int
    evicted_at: int


class _Walk:
    """State of a replay: the present rows, and the runners of the policy's steps."""

    def __init__(self, history: ReplayHistory, policy: Policy, *, retire: bool) -> None:
        self.history = history
        self.retire = retire
        self.usage = UsageState(history, silent=history.silent)
        self.is_by_name = (history.references[col.KIND] != "log").to_numpy(dtype=bool)
        self.loaded_at = np.arange(len(history))
        self.evicted_at = np.full(len(history), NO_END)
        self.reason = np.full(len(history), None, dtype=object)
        self.earlier_stays: list[_Stay] = []
        """The stays of rows that returned afterwards."""
        self.lost_at = np.full(len(history.at), NO_END)
        """For each lost reference, the moment at which its target was evicted."""
        self.loss_reason = np.full(len(history.at), None, dtype=object)
        self.runners = [runner_of(step, history, self.usage) for step in steps_of(policy)]
        self._next_reference = 0
        self._references_before = np.searchsorted(history.at, np.arange(len(history) + 2))
        self._rows_by_end = grouped(history.lifetimes.end, len(history) + 1)

    def run(self, every: int, now: datetime | None) -> None:
        """Replay the whole history.

        No row is evicted between two applications of the policy, so references and rows in between
        are processed together.
        """
        if not self.retire:
            steps = [runner.presorted_step() for runner in self.runners]
            presorted_steps = [step for step in steps if step is not None]
            if len(presorted_steps) == len(steps):
                self._run_in_order(presorted_steps, every, now)
                return
        if self.retire and not np.isnat(self.history.created).all():
            self._run_by_night(every)
        else:
            self._run_by_rows(every)
        if now is not None:
            self._apply(len(self.history), now)

    def _run_in_order(self, steps: list[Step], every: int, now: datetime | None) -> None:
        """Replay the whole history under steps whose order is known in advance."""
        history = self.history
        moments = range(every - 1, len(history), every)
        clock = history.clock[moments.start :: every].astype("datetime64[us]").astype(np.int64)
        applications = [
            Application(last_row=moment, now=time)
            for moment, time in zip(moments, clock.tolist(), strict=True)
        ]
        if now is not None:
            applications.append(Application(len(history), int(as_instant(now).astype(np.int64))))
        self.evicted_at, self.reason = evict_in_order(
            steps, history.lifetimes.end, applications, never=NO_END
        )
        is_lost = self.evicted_at[history.target] < history.at
        self.lost_at[is_lost] = self.evicted_at[history.target[is_lost]]
        self.loss_reason[is_lost] = self.reason[history.target[is_lost]]

    def _run_by_night(self, every: int) -> None:
        """Apply the policy at the last midnight before each day with a row or a reference.

        Every application decides about all retired rows again, so other nights make no difference.
        A night is skipped if fewer than `every` rows and references arose since the last
        application.
        """
        history = self.history
        written = 0
        applied_after = 0
        for night in _nights_of(history):
            self._serve_up_to(night.references)
            self._write(written, night.rows)
            written = night.rows
            events = night.references + night.rows
            if written and events - applied_after >= every:
                self._apply(written - 1, as_moment(night.midnight))
                applied_after = events
        self._serve_up_to(len(history.at))
        self._write(written, len(history))

    def _run_by_rows(self, every: int) -> None:
        """Apply the policy after every so many rows."""
        last = len(self.history)
        for start in range(0, last, every):
            stop = min(start + every, last)
            self._serve_before(stop)
            self._write(start, stop)
            if stop - start == every:
                self._apply(stop - 1, as_moment(self.history.clock[stop - 1]))
        self._serve_before(last + 1)

    def _serve_before(self, moment: int) -> None:
        """Serve the references that arise before `moment` and have not been served yet."""
        self._serve_up_to(int(self._references_before[moment]))

    def _serve_up_to(self, stop: int) -> None:
        """Serve the references with numbers below `stop` that have not been served yet."""
        start = self._next_reference
        self._next_reference = stop
        if start == stop:
            return
        arising = np.arange(start, stop)
        target = self.history.target[start:stop]
        evicted_at = self.evicted_at[target]
        is_lost = evicted_at != NO_END
        if is_lost.any():
            lost = arising[is_lost]
            self.lost_at[lost] = evicted_at[is_lost]
            self.loss_reason[lost] = self.reason[target[is_lost]]
        is_seen = np.ones(len(arising), dtype=bool)
        if self.usage.silent:
            is_seen = is_lost | self.is_by_name[start:stop]
        self.usage.is_seen[arising[is_seen]] = True
        # A retired memory is found and so accessed; a deleted one is not.
        is_access = is_seen if self.retire else is_seen & ~is_lost
        self.usage.serve(arising[is_access])

    def _write(self, start: int, stop: int) -> None:
        """Record the rows written from one moment to another, and those that they supersede."""
        self.usage.write(start, stop)
        group_start, ending_rows = self._rows_by_end
        self.usage.is_active[ending_rows[group_start[start] : group_start[stop]]] = False

    def _apply(self, moment: int, now: datetime) -> None:
        """Apply every step of the policy at a moment."""
        if self.retire:
            self._apply_retiring(moment, now)
            return
        for rows, reason in self._iter_evictions(moment, now):
            self.evicted_at[rows] = moment
            self.reason[rows] = reason
        self.usage.end_application()

    def _apply_retiring(self, moment: int, now: datetime) -> None:
        """Apply every step to the loaded and the retired rows; a retired row that is kept returns.

        Superseded rows are not loaded and do not return.
        """
        is_active = self.history.lifetimes.end > moment
        is_back = (self.evicted_at != NO_END) & is_active
        self.usage.bring_back(is_back)
        for rows, reason in self._iter_evictions(moment, now):
            leaving = rows[~is_back[rows] & is_active[rows]]
            is_back[rows] = False
            self.evicted_at[leaving] = moment
            self.reason[leaving] = reason
        self.usage.end_application()
        for row in np.flatnonzero(is_back).tolist():
            loaded_at = int(self.loaded_at[row])
            evicted_at = int(self.evicted_at[row])
            self.earlier_stays.append(_Stay(row, loaded_at=loaded_at, evicted_at=evicted_at))
            self.loaded_at[row] = moment
            self.evicted_at[row] = NO_END
            self.reason[row] = None

    def _iter_evictions(self, moment: int, now: datetime) -> Iterator[tuple[Ints, str]]:
        """Yield the rows that each step removes at a moment, with the reason."""
        for number, runner in enumerate(self.runners, start=1):
            # All results are collected first, because the runner reads `is_present` as it goes on.
            for rows, reason in list(runner.evicted(moment, now)):
                self.usage.is_present[rows] = False
                if len(self.runners) > 1:
                    yield rows, f"step {number}: {reason}"
                else:
                    yield rows, reason


class _Night(NamedTuple):
    """A midnight, with the number of references and the number of rows before it."""

    midnight: np.datetime64
    references: int
    rows: int


def _nights_of(history: ReplayHistory) -> list[_Night]:
    """Return the last midnight before each day on which a reference or a row occurs."""
    # The events are the references and the rows, sorted so that a reference comes before the row
    # of its moment.
    is_row = np.append(np.zeros(len(history.at), dtype=bool), np.ones(len(history), dtype=bool))
    sort_key = np.append(2 * history.at, 2 * np.arange(len(history)) + 1)
    order = np.argsort(sort_key, kind="stable")
    times = np.append(history.referred, history.clock)[order]
    day = np.maximum.accumulate(times.astype("datetime64[D]").astype(np.int64))
    begins = np.flatnonzero(np.diff(day) > 0) + 1  # the first event of each later day
    rows_before_event = np.append(0, np.cumsum(is_row[order]))
    rows = rows_before_event[begins]
    midnights = day[begins].astype("datetime64[D]").astype("datetime64[us]")
    return [
        _Night(midnight=midnight, references=int(begin - written), rows=int(written))
        for midnight, begin, written in zip(midnights, begins, rows, strict=True)
    ]


@dataclass(frozen=True)
class OfflineOptimum:
    """The optimal offline bound: no policy with the same capacity serves more references.

    Attributes
    ----------
    capacity : int
        Prunable memories that may be held at a time.
    kept : array of bool, shape (references,)
        Whether each reference that fits the frame is served, in the order in which they arose.
    held : array of int, shape (rows,)
        Number of memories held for a later reference after each row was written.

    Examples
    --------
    >>> OfflineOptimum(capacity=1, kept=np.array([True, False]), held=np.array([1, 1])).served
    0.5
    """

    capacity: int
    kept: Flags
    held: Ints

    @property
    def served(self) -> float:
        """Share of references that are served; NaN without references."""
        return float(self.kept.mean()) if len(self.kept) else float("nan")


def offline_optimum(
    frame: HistoryLike, references: pd.DataFrame | None, capacity: int
) -> OfflineOptimum:
    """Return the optimal offline bound: the most references that any policy could serve.

    The bound holds for all policies with the given capacity. It uses later references, which no
    policy can know, so it is only for comparisons. It is the offline optimum of caching with bypass
    (Belady 1966): a memory without a later reference need not be held. It is computed as a maximum
    k-colorable set of intervals (Carlisle and Lloyd 1995).

    Parameters
    ----------
    frame, references : DataFrame
        As for :func:`memlab.replay.replay`.
    capacity : int
        Prunable memories that may be held at a time.

    Returns
    -------
    OfflineOptimum

    References
    ----------
    Belady (1966), A study of replacement algorithms for a virtual-storage computer. IBM Systems
    Journal 5.
    Carlisle and Lloyd (1995), On the k-coloring of intervals. Discrete Applied Mathematics 59.

    Examples
    --------
    >>> import memlab
    >>> store = memlab.store_path("looked_up")
    >>> best = memlab.replay.offline_optimum(store, None, capacity=50)
    >>> best.served >= memlab.replay.replay(store, None, memlab.policies.KeepRecent(50)).served
    True
    """
    capacity = whole_number("capacity", capacity)
    past, past_references = with_references(frame, references, call="memlab.replay.offline_optimum")
    return bound_of(prepare_history(past, past_references), capacity)


def bound_of(history: ReplayHistory, capacity: int) -> OfflineOptimum:
    """Return the optimal offline bound of a prepared history; see :func:`offline_optimum`.

    To serve a reference, a policy must hold the target since the previous reference to the target,
    or since the target was written. This interval takes one of `capacity` slots. The largest set of
    intervals that fits into the slots is found greedily: intervals are taken in order of their
    ends, and each is put into the slot that became free last before the start of the interval
    (Carlisle and Lloyd 1995). Load-bearing and superseded rows need no slot.
    """
    start, stop = _intervals(history)
    kept = stop <= start
    needing_slot = np.flatnonzero(~kept)
    # The moments from which slots are free. They are in ascending order, as intervals are taken by
    # their ends.
    free_from = [0] * min(capacity, len(needing_slot))
    for reference in needing_slot[np.argsort(stop[needing_slot], kind="stable")].tolist():
        free_slots = bisect_right(free_from, start[reference])
        if free_slots:
            del free_from[free_slots - 1]
            free_from.append(stop[reference])
            kept[reference] = True
    served = needing_slot[kept[needing_slot]]
    change = np.zeros(len(history) + 1, dtype=np.int64)
    np.add.at(change, start[served], 1)
    np.add.at(change, stop[served], -1)
    return OfflineOptimum(capacity, kept, np.cumsum(change)[:-1])


def _intervals(history: ReplayHistory) -> tuple[Ints, Ints]:
    """Return the start and end of the interval in which each reference's target must be held."""
    order = np.lexsort((history.at, history.target))
    target = history.target[order]
    at = np.take(history.at, order)
    previous = np.append(0, at[:-1])[: len(at)]
    is_repeated = np.zeros(len(at), dtype=bool)
    is_repeated[1:] = target[1:] == target[:-1]
    start = np.empty_like(at)
    stop = np.empty_like(at)
    start[order] = np.where(is_repeated, previous, target)
    stop[order] = np.minimum(at, history.lifetimes.end[target])
    needs_no_slot = ~history.lifetimes.ever_prunable[history.target]
    stop[needs_no_slot] = start[needs_no_slot]
    return start, stop
