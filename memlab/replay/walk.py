"""Walk a history forward: what a policy still had when it was referred to, and could at best."""

from bisect import bisect_right
from collections.abc import Hashable
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
from memlab.evidence.past import Memories
from memlab.evidence.references import with_references
from memlab.frame.fields import Flags, Ints, as_instant, as_moment
from memlab.policies import Policy
from memlab.policies.base import steps_of
from memlab.replay.life import ReplayHistory, UsageState, life_of, runner_of
from memlab.replay.presorted import Moment, Step, gone_in_order
from memlab.sizing.history import grouped
from memlab.text import DisplayMixin, TextPage, counted

Steps = npt.NDArray[np.object_]

KEPT: Final = "kept"
DELETED_AT: Final = "deleted_at_position"
STEP: Final = "step"
BOOT_MEMORIES: Final = "boot_memories"
BOOT_TOKENS: Final = "boot_tokens"
HELD: Final = "held"

NO_END: Final = np.iinfo(np.int64).max
"""The moment from which a row that stays is gone."""


@dataclass(frozen=True, repr=False)
class Replay(DisplayMixin):
    """What one policy would have done to one history.

    Attributes
    ----------
    policy : Policy
        The rule that was followed.
    references : DataFrame
        Every reference: ``target_id``, ``target_position``, ``at_position``, ``at``, ``kind``, then
        ``kept`` (bool), and for a lost one ``deleted_at_position`` (Int64, the row after whose
        writing its target went) and ``step`` (which rule let it go). Where memories are retired,
        a lost one is one whose target was not loaded.
    boot : DataFrame
        One row for each row written, indexed by its position: ``at``, ``boot_memories`` and
        ``boot_tokens`` (active rows then), ``held`` (those of them that are prunable). A last row,
        one position on, if the policy was applied once more at the end.
    deleted : DataFrame
        One row for each row that went and has not come back, in the order they went:
        ``memory_id``, ``position``, ``tokens``, ``deleted_at_position``, ``step``.
    retire : bool
        Whether rows that went could come back.
    returned : int
        How often one did.
    """

    policy: Policy
    references: pd.DataFrame
    boot: pd.DataFrame
    deleted: pd.DataFrame
    retire: bool = False
    returned: int = 0

    @property
    def served(self) -> float:
        """Share of references whose target was still there; NaN without any."""
        return float(self.references[KEPT].mean()) if len(self.references) else float("nan")

    @property
    def lost(self) -> int:
        """References whose target was gone, or not loaded."""
        return int((~self.references[KEPT]).sum())

    @property
    def most_held(self) -> int:
        """The most prunable rows held at any moment."""
        return int(self.boot[HELD].max()) if len(self.boot) else 0

    @property
    def told(self) -> dict[Hashable, Any]:
        """What a table made of this carries in its ``attrs``: the source, how many references."""
        return {
            col.SOURCE: self.references.attrs.get(col.SOURCE, ""),
            col.REFERENCES: len(self.references),
        }

    @cached_property
    def regret(self) -> pd.DataFrame:
        """What was let go and referred to later, the most often first, indexed by ``memory_id``.

        ``lost`` references, ``first_at_position`` and ``first_at`` of the first of them,
        `deleted_at_position` and `step`.
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
        """References so far and those lost so far, one row a reference, with the time it arose.

        Indexed by ``at_position``: ``at``, ``references``, ``lost``.
        """
        every = self.references
        table = pd.DataFrame(
            {
                col.AT: every[col.AT].array,
                "references": np.arange(1, len(every) + 1),
                "lost": (~every[KEPT]).cumsum().to_numpy(dtype=np.int64),
            },
            index=pd.Index(every[col.AT_POSITION], name=col.AT_POSITION),
        )
        table.attrs = {**self.told, col.GOES_BY: self.policy.goes_by}
        return table

    def sheet(self) -> TextPage:
        """Return what is printed."""
        found = len(self.references)
        served = (
            f"{self.served:.1%} of {counted(found, 'references')}" if found else "no references"
        )
        went = counted(len(self.deleted), "memories")
        facts = [
            ("served", served),
            ("not loaded" if self.retire else "deleted", went),
            *([("came back", counted(self.returned, "times"))] if self.retire else []),
            ("held", f"at most {counted(self.most_held, 'prunable memories')}"),
        ]
        return TextPage(f"replay of {self.policy}", facts)


def _references(life: ReplayHistory, gone: Ints, step: Steps) -> pd.DataFrame:
    """Every reference, and of a lost one what had let its target go, and when."""
    lost = gone != NO_END
    at = pd.Series(life.positions[np.where(lost, gone, 0)], dtype="Int64").where(lost)
    why = pd.Series(step, dtype="str")
    return life.references.assign(**{KEPT: ~lost, DELETED_AT: at, STEP: why})


def _deleted(life: ReplayHistory, gone: Ints, step: Steps) -> pd.DataFrame:
    rows = np.flatnonzero(gone != NO_END)
    rows = rows[np.argsort(gone[rows], kind="stable")]
    return pd.DataFrame(
        {
            col.MEMORY_ID: life.frame[col.MEMORY_ID].iloc[rows].array,
            col.POSITION: life.positions[rows],
            col.TOKENS: life.history.tokens[rows],
            DELETED_AT: life.positions[gone[rows]],
            STEP: pd.Series(step[rows], dtype="str").array,
        }
    )


def _boot(walk: "_Walk", now: datetime | None) -> pd.DataFrame:
    """Active rows after every moment, of every stay of a row: memories, tokens, prunable."""
    life = walk.life
    moments = len(life) + (now is not None)
    stays: list[Any] = [(np.arange(len(life)), walk.come, walk.gone)]
    stays += [np.array(walk.earlier, dtype=np.int64).reshape(-1, 3).T]
    row, come, gone = np.concatenate(stays, axis=1)
    left = np.minimum(np.minimum(gone, life.history.end[row]), moments)
    tokens = life.history.tokens[row]
    amounts = (np.ones_like(tokens), tokens, life.history.ever_prunable[row].astype(np.int64))
    change = np.zeros((3, moments + 1), dtype=np.int64)
    for line, amount in zip(change, amounts, strict=True):
        np.add.at(line, come, amount)
        np.add.at(line, left, -amount)
    memories, total, prunable = np.cumsum(change[:, :moments], axis=1)
    clock = life.clock if now is None else np.append(life.clock, as_instant(now))
    return pd.DataFrame(
        {
            col.AT: pd.Series(clock).dt.tz_localize("UTC").astype(col.TIME).array,
            BOOT_MEMORIES: memories,
            BOOT_TOKENS: total,
            HELD: prunable,
        },
        index=pd.Index(life.positions[:moments], name=col.POSITION),
    )


def replay(  # noqa: PLR0913 - the history, the rule, and how it is applied
    frame: Memories,
    references: pd.DataFrame | None,
    policy: Policy,
    *,
    every: int = 1,
    now: datetime | None = None,
    retire: bool = False,
    silent: bool = False,
) -> Replay:
    """Walk a history forward under a policy.

    Rows are written in order of position, each at the time it says it was made (a clock that never
    runs backward); a row that replaces others supersedes them then; after that the policy is
    applied. A reference arises just before the row at its ``at_position`` is written, and is served
    if its target is there. What goes never comes back, unless it is retired: it is then still to be
    found, and every night the policy decides about all rows, loaded and retired, as a plan does.

    A reference counts as an access: ``last_accessed_at`` and ``access_count`` (days) are of the
    references served so far, or found where memories are retired, from the time of writing,
    whatever a frame says of later. Other signals are taken as they stand. Superseded rows are as
    present as their policy leaves them. A policy that learns learns at each moment from all that
    was written and referred to by then.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        What ``memlab.load_past`` returns, or the store itself, for its whole past. With what was
        pruned left out, the replay begins with what is left.
    references : DataFrame or None
        What ``find_references`` returns; None for those of the frame, or of the store and the logs
        that ``memlab.toml`` remembers.
    policy : Policy
        The rule.
    every : int
        Rows written from one application of the policy to the next. With `retire` it is applied
        every midnight in UTC instead, as plans of every night are, unless no row has a time.
    now : datetime, optional
        Apply the policy once more at this time, after the last row.
    retire : bool
        Take what the policy does not keep out of the boot context, and let it come back, rather
        than delete it. What is superseded is not loaded: there is nothing to retire.
    silent : bool
        Where memories are retired, whether a read of one that is loaded leaves no trace. It is
        served all the same, and the policy does not know of it.
    """
    every = whole_number("every", every, least=1)
    if now is not None:
        aware(now, call="memlab.replay.replay")
    with_body = any(step.reads_bodies for step in policy.steps)
    frame, references = with_references(
        frame, references, call="memlab.replay.replay", with_body=with_body
    )
    life = life_of(frame, references, silent=silent)
    return walk_through(life, policy, every=every, now=now, retire=retire)


def walk_through(
    life: ReplayHistory,
    policy: Policy,
    *,
    every: int = 1,
    now: datetime | None = None,
    retire: bool = False,
) -> Replay:
    """Replay a history that has been prepared; see :func:`replay`."""
    walk = _Walk(life, policy, retire=retire)
    walk.run(every, now)
    return Replay(
        policy,
        _references(life, walk.lost, walk.why),
        _boot(walk, now),
        _deleted(life, walk.gone, walk.step),
        retire=retire,
        returned=len(walk.earlier),
    )


class _Walk:
    """The rows that are there, and the runners of the policy's steps."""

    def __init__(self, life: ReplayHistory, policy: Policy, *, retire: bool) -> None:
        self.life = life
        self.retire = retire
        self.signals = UsageState(life, silent=retire and life.silent)
        self.is_by_name = (life.references[col.KIND] != "log").to_numpy(dtype=bool)
        self.come = np.arange(len(life))
        self.gone = np.full(len(life), NO_END)
        self.step = np.full(len(life), None, dtype=object)
        self.earlier: list[tuple[int, int, int]] = []
        """Rows that came back, with the moments of their stay before."""
        self.lost = np.full(len(life.at), NO_END)
        """The moment from which the target of each reference was gone then."""
        self.why = np.full(len(life.at), None, dtype=object)
        self.runners = [runner_of(step, life, self.signals) for step in steps_of(policy)]
        self._next_reference = 0
        self._references_before = np.searchsorted(life.at, np.arange(len(life) + 2))
        self._ends = grouped(life.history.end, len(life) + 1)

    def run(self, every: int, now: datetime | None) -> None:
        """Walk to the end, from one application of the policy to the next.

        Nothing goes in between, so what arises and is written there is taken in together.
        """
        steps = [] if self.retire else [runner.presorted() for runner in self.runners]
        known = [step for step in steps if step is not None]
        if not self.retire and len(known) == len(self.runners):
            self._run_in_order(known, every, now)
            return
        if self.retire and not np.isnat(self.life.created).all():
            self._run_by_night()
        else:
            self._run_by_rows(every)
        if now is not None:
            self._apply(len(self.life), now)

    def _run_in_order(self, steps: list[Step], every: int, now: datetime | None) -> None:
        """Walk to the end under steps whose order nothing changes."""
        life = self.life
        moments = range(every - 1, len(life), every)
        clock = life.clock[moments.start :: every].astype("datetime64[us]").astype(np.int64)
        applications = [*map(Moment, moments, clock.tolist())]
        if now is not None:
            applications.append(Moment(len(life), int(as_instant(now).astype(np.int64))))
        self.gone, self.step = gone_in_order(steps, life.history.end, applications, never=NO_END)
        is_lost = self.gone[life.target] < life.at
        self.lost[is_lost] = self.gone[life.target[is_lost]]
        self.why[is_lost] = self.step[life.target[is_lost]]

    def _run_by_night(self) -> None:
        """Apply the policy at the last midnight before each day on which something happens.

        All that is retired is decided about anew, so the nights before make no difference.
        """
        life = self.life
        count = len(life)
        written = 0
        for night in _nights_of(life):
            self._serve_first(night.references)
            self._write(written, night.rows)
            written = night.rows
            if written:
                self._apply(written - 1, as_moment(night.midnight))
        self._serve_first(len(life.at))
        self._write(written, count)

    def _run_by_rows(self, every: int) -> None:
        last = len(self.life)
        for start in range(0, last, every):
            stop = min(start + every, last)
            self._serve_until(stop)
            self._write(start, stop)
            if stop - start == every:
                self._apply(stop - 1, as_moment(self.life.clock[stop - 1]))
        self._serve_until(last + 1)

    def _serve_until(self, moment: int) -> None:
        """Serve the references that arise before `moment` and were not looked at yet."""
        self._serve_first(int(self._references_before[moment]))

    def _serve_first(self, stop: int) -> None:
        """Serve the first references, as many as are given, that were not looked at yet."""
        start = self._next_reference
        self._next_reference = stop
        if start == stop:
            return
        arising = np.arange(start, stop)
        target = self.life.target[start:stop]
        gone = self.gone[target]
        is_lost = gone != NO_END
        if is_lost.any():
            lost = arising[is_lost]
            self.lost[lost] = gone[is_lost]
            self.why[lost] = self.step[target[is_lost]]
        is_seen = np.ones(len(arising), dtype=bool)
        if self.signals.silent:
            is_seen = is_lost | self.is_by_name[start:stop]
        self.signals.seen[arising[is_seen]] = True
        self.signals.serve(arising[is_seen] if self.retire else arising[~is_lost])

    def _write(self, start: int, stop: int) -> None:
        """Note the rows written from one moment to another, and which they supersede."""
        self.signals.write(start, stop)
        first, ending = self._ends
        self.signals.active[ending[first[start] : first[stop]]] = False

    def _apply(self, moment: int, now: datetime) -> None:
        is_active = self.life.history.end > moment
        back = np.zeros(len(self.life), dtype=bool)
        if self.retire:  # all that is retired is decided about anew
            back = (self.gone != NO_END) & is_active
            self.signals.enter_again(back)
        for number, runner in enumerate(self.runners, start=1):
            for rows, reason in list(runner.gone(moment, now)):
                self.signals.here[rows] = False
                step = f"step {number}: {reason}" if len(self.runners) > 1 else reason
                leave = rows
                if self.retire:
                    leave = rows[~back[rows] & is_active[rows]]
                back[rows] = False
                self.gone[leave] = moment
                self.step[leave] = step
        self.signals.applied()
        for row in np.flatnonzero(back).tolist():
            self.earlier.append((row, int(self.come[row]), int(self.gone[row])))
            self.come[row] = moment
            self.gone[row] = NO_END
            self.step[row] = None


class _Night(NamedTuple):
    """A midnight, and how many references and rows there were before it."""

    midnight: np.datetime64
    references: int
    rows: int


def _nights_of(life: ReplayHistory) -> list[_Night]:
    """Return the midnights between which something happens; time never runs backward."""
    is_row = np.append(np.zeros(len(life.at), dtype=bool), np.ones(len(life), dtype=bool))
    place = np.append(2 * life.at, 2 * np.arange(len(life)) + 1)  # a reference before its row
    order = np.argsort(place, kind="stable")
    times = np.append(life.referred, life.clock)[order]
    day = np.maximum.accumulate(times.astype("datetime64[D]").astype(np.int64))
    begins = np.flatnonzero(np.diff(day) > 0) + 1
    rows = np.append(0, np.cumsum(is_row[order]))[begins]
    midnights = day[begins].astype("datetime64[D]").astype("datetime64[us]")
    return [
        _Night(midnight=midnight, references=int(begin - written), rows=int(written))
        for midnight, begin, written in zip(midnights, begins, rows, strict=True)
    ]


@dataclass(frozen=True)
class Bound:
    """What no policy can do better that holds so many prunable memories at a time, its `slots`.

    `kept` says which references are served, of those that fit the frame, in the order they arose;
    `held` how many memories were held for a reference to come, after each row was written.
    """

    slots: int
    kept: Flags
    held: Ints

    @property
    def served(self) -> float:
        """Share of references that are served; NaN without any."""
        return float(self.kept.mean()) if len(self.kept) else float("nan")


def oracle(frame: Memories, references: pd.DataFrame | None, slots: int) -> Bound:
    """Return the most that any policy with so many slots could have served.

    It knows what will be referred to, so it bounds a replay and cannot decide about a store.

    Parameters
    ----------
    frame, references : DataFrame
        As for :func:`memlab.replay.replay`.
    slots : int
        Prunable memories that may be held at a time.
    """
    slots = whole_number("slots", slots)
    past, found = with_references(frame, references, call="memlab.replay.oracle")
    return bound_of(life_of(past, found), slots)


def bound_of(life: ReplayHistory, slots: int) -> Bound:
    """Return the bound of a history that has been prepared; see :func:`oracle`.

    To serve a reference is to hold its target since the one before, or its writing: the most such
    intervals that fit, taken as they end, each in the slot that became free last before it begins
    (Carlisle and Lloyd, 1995). Load-bearing rows and superseded ones take no slot.
    """
    start, stop = _intervals(life)
    kept = stop <= start
    waiting = np.flatnonzero(~kept)
    free = [0] * min(slots, len(waiting))
    for reference in waiting[np.argsort(stop[waiting], kind="stable")].tolist():
        if place := bisect_right(free, start[reference]):
            del free[place - 1]
            free.append(stop[reference])
            kept[reference] = True
    taken = waiting[kept[waiting]]
    change = np.zeros(len(life) + 1, dtype=np.int64)
    np.add.at(change, start[taken], 1)
    np.add.at(change, stop[taken], -1)
    return Bound(slots, kept, np.cumsum(change)[:-1])


def _intervals(life: ReplayHistory) -> tuple[Ints, Ints]:
    """First moment after which each reference's target must be held, and the first it need not."""
    order = np.lexsort((life.at, life.target))
    target = life.target[order]
    at = np.take(life.at, order)
    start = np.empty_like(at)
    stop = np.empty_like(at)
    again = np.zeros(len(at), dtype=bool)
    again[1:] = target[1:] == target[:-1]
    start[order] = np.where(again, np.append(0, at[:-1])[: len(at)], target)
    stop[order] = np.minimum(at, life.history.end[target])
    free = ~life.history.ever_prunable[life.target]
    stop[free] = start[free]
    return start, stop
