"""Policies side by side on one history, which of them to follow, and which are tried."""

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from multiprocessing import active_children
from signal import SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGINT, pthread_sigmask
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from memlab import columns as col
from memlab.arguments import expect, refusal, whole_number
from memlab.evidence.past import Memories, load_past, names_a_store
from memlab.evidence.reads import Log
from memlab.evidence.references import collect_evidence, with_references
from memlab.frame.fields import Flags
from memlab.frame.loading import expect_references
from memlab.policies import KeepAll, KeepRecent, NearDuplicate, Policy, TokenBudget
from memlab.policies.base import steps_of
from memlab.policies.named import Named, family_of, label_of, options_of, policy_in
from memlab.policies.typed import REQUIRED, Setting
from memlab.replay.candidates import (
    EQUAL,
    ODEK,
    USE_RETIRED,
    Room,
    Rule,
    cost_of,
    missing_signals,
    replay_at_cost,
    rooms_of,
    rules_for,
)
from memlab.replay.life import ReplayHistory, life_of, reads_leave_no_trace
from memlab.replay.noise import difference_with_limits
from memlab.replay.walk import BOOT_MEMORIES, BOOT_TOKENS, KEPT, Replay, bound_of, walk_through
from memlab.sizing.history import mean_p95_max
from memlab.sizing.in_force import policy_in_force
from memlab.sources.base import Source
from memlab.sources.opening import harvestable, settings_of
from memlab.text import Cell, DisplayMixin, Table, TextPage, command, counted, in_shell, or_dash

SIZES: Final[Mapping[str, Sequence[str]]] = {
    "count": ("50", "100", "200", "500", "1000"),
    "age": ("7d", "30d", "90d", "180d", "365d"),
    "tokens": ("2000", "5000", "10000", "25000", "50000"),
}
"""Settings that are tried of a policy that is named without one: those people ask about."""


def with_remembered(policies: list[Policy], source: Source) -> list[Policy]:
    """Return policies and the one that is remembered of a store; its horizon is no matter here."""
    settings = settings_of(source)
    remembered = policy_in_force(source).policy if settings.is_auto else policy_in(settings)
    return [*policies, *([remembered] if remembered and remembered not in policies else [])]


def variants(
    tried: Iterable[Named],
    sizes: Mapping[str, Sequence[Any]],
    texts: Mapping[str, list[str]],
    *,
    both: bool,
) -> Iterator[tuple[Named, dict[str, str]]]:
    """Yield each policy at its sizes and settings; where `both`, by number and by tokens."""
    for named in tried:
        said = {key: values for key, values in texts.items() if key in named.settings}
        rooms = {key for key in said if named.settings[key].size not in {"", "age"}}
        for size in _varied(named, both=both and not rooms) or [None]:
            own = dict(said)
            if size is not None and (not rooms or size.name in rooms or size.size == "age"):
                tried_at = sizes.get(size.size) or SIZES[size.size]
                own.setdefault(size.name, [*map(str, tried_at)])
            for each in product(*own.values()):
                yield named, dict(zip(own, each, strict=True))


def _varied(named: Named, *, both: bool) -> list[Setting | None]:
    """Return the setting by which a policy is tried at several sizes: one it needs, if any."""
    sizes = [one for one in named.settings.values() if one.size]
    sizes.sort(key=lambda one: (one.default is not REQUIRED, one.size == "age"))
    return [*sizes[:1], *(one for one in sizes[1:] if both and one.size != "age")]


@dataclass(frozen=True)
class Try:
    """A replay to make: of a policy, or of a rule at the size that costs as much as a room."""

    policy: Policy | None = None
    retire: bool = False
    rule: Rule | None = None
    room: Room | None = None
    cost: float = 0.0

    @property
    def label(self) -> str:
        """What tries are told apart by where a rule has no name."""
        return "" if self.rule is None else self.rule.name


SMALL: Final = 100_000
"""Rows times policies below which starting processes takes longer than it saves."""


def replay_each(
    frame: Memories,
    references: pd.DataFrame | None,
    policies: Iterable[Policy],
    *,
    every: int = 1,
    workers: int | None = None,
    progress: bool = False,
) -> list[Replay]:
    """Replay one history under each of several policies, and return the replays in their order.

    Parameters
    ----------
    frame, references, every
        As for :func:`memlab.replay.replay`.
    policies : iterable of Policy
        One for each setting to try.
    workers, progress
        As for :func:`memlab.compare`.
    """
    given = _policies_of(policies)
    with_body = any(step.reads_bodies for policy in given for step in policy.steps)
    history = with_references(frame, references, call="memlab.compare", with_body=with_body)
    life = life_of(*history)
    asked = [Try(policy) for policy in given]
    found = _replays(life, asked, every=every, workers=workers, progress=progress)
    return [replay for replay in found if replay is not None]


def _replays(
    life: ReplayHistory, asked: list[Try], *, every: int, workers: int | None, progress: bool
) -> list[Replay | None]:
    """Replay a history that has been prepared; see :func:`replay_each`."""
    every = whole_number("every", every, least=1)
    if workers is None:
        workers = 1
        if len(asked) > 1 and len(life) * len(asked) >= SMALL:
            with suppress(pickle.PicklingError, AttributeError, TypeError):
                pickle.dumps(asked)  # what does not travel is replayed here
                workers = os.cpu_count() or 1
    workers = whole_number("workers", workers, least=1)
    bar = partial(
        tqdm, total=len(asked), desc="replays", unit="policy", disable=not progress, leave=False
    )
    _find_duplicates(life, asked, progress=progress)
    if workers == 1:
        return [_replay_one(life, each, every) for each in bar(asked)]
    # A worker that Ctrl-C stops amid its work, or a second Ctrl-C while workers end, would leave
    # Python waiting for ever. They are started without it, and ended.
    others = active_children()
    pool = ProcessPoolExecutor(min(workers, len(asked)), initializer=_share, initargs=(life, every))
    with _ctrl_c(SIG_BLOCK), pool:
        found = [pool.submit(_replay_shared, each) for each in asked]
        try:
            with _ctrl_c(SIG_UNBLOCK):
                return [each.result() for each in bar(found)]
        except BaseException:
            for worker in {*active_children()}.difference(others):
                worker.terminate()
            raise


def _find_duplicates(life: ReplayHistory, asked: list[Try], *, progress: bool) -> None:
    """Look for the near-duplicates that policies ask for, once for all replays and processes."""
    policies = [each.policy for each in asked if each.policy is not None]
    policies += [each.rule.policy(1) for each in asked if each.rule is not None]
    steps = [step for policy in policies for step in steps_of(policy)]
    finders = {step for step in steps if isinstance(step, NearDuplicate)}
    for step in tqdm(finders, desc="near-duplicates", disable=not progress, leave=False):
        life.near_duplicates(step)


_shared: dict[str, Any] = {}
"""In a worker: the history that it replays, handed over once."""


def _share(life: ReplayHistory, every: int) -> None:
    _shared.update(life=life, every=every)


def _replay_shared(asked: Try) -> Replay | None:
    return _replay_one(_shared["life"], asked, _shared["every"])


@contextmanager
def _ctrl_c(how: int) -> Iterator[None]:
    """Hold Ctrl-C back from this thread and those who start from it, or let it through."""
    before = pthread_sigmask(how, {SIGINT})
    try:
        yield
    finally:
        pthread_sigmask(SIG_SETMASK, before)


def _policies_of(policies: object) -> list[Policy]:
    if not isinstance(policies, Iterable) or isinstance(policies, str | pd.DataFrame):
        raise refusal(policies, "policies", call="memlab.compare", name="policies")
    given = list(policies)
    for policy in given:
        expect(policy, Policy, call="memlab.compare", name="one of policies")
    return given


def _replay_one(life: ReplayHistory, asked: Try, every: int) -> Replay | None:
    if asked.policy is not None:
        return walk_through(life, asked.policy, every=every, retire=asked.retire)
    if asked.rule is None or asked.room is None:
        raise ValueError("a try needs a policy, or a rule and a room")
    return replay_at_cost(life, asked.rule, asked.room, asked.cost, every=every)


def compare(  # noqa: PLR0913 - what is compared, how, and by how many
    frame: Memories,
    references: pd.DataFrame | None = None,
    policies: Iterable[Policy] | None = None,
    *,
    every: int | None = None,
    retire: bool = False,
    token_budget: int | None = None,
    log: Log = None,
    workers: int | None = None,
    progress: bool = False,
) -> "Comparison":
    """Compare policies on one history: what each would have lost, and what that saved.

    Every policy is replayed from the first memory to the last; a reference is served if its target
    was still there. The oracle is the most that any policy with that many slots could have served.

    Parameters
    ----------
    frame, references
        As for :func:`memlab.recommend_cap`.
    policies : iterable of Policy, optional
        One for each setting to try. By default the rules of forge-loop, BetterDB, odek and
        MemForge, each at its own default and at sizes that cost as many tokens as the newest 10, 25
        and 50% of the prunable memories (25, 50 and 75% where memories are searched), beside an
        age and what goes by use; of a store itself also what ``memlab.toml`` remembers.
    every : int, optional
        Apply each policy after every so many memories. By default after each; of many memories
        about 10,000 times, and about 500 times where no policies are given.
    retire : bool
        Replay each policy twice: what it does not keep is deleted, or retired and can come back.
    token_budget : int, optional
        Show only what keeps the boot context's p95 within so many tokens.
    log : DataFrame, str or Path, optional
        An access log; of a store itself the logs that ``memlab.toml`` remembers by default.
    workers : int, optional
        Processes; as many as there are processors by default, none of its own for little work or
        where a policy does not pickle (one with a vectoriser of its own, say).
    progress : bool
        Show a progress bar.

    Returns
    -------
    Comparison
        ``answer`` says which rule serves most at equal tokens; ``table`` is what
        :func:`memlab.replay.summarise` returns, with ``KeepAll`` as the last row, and columns that
        say which rows are compared.
    """
    call = "memlab.compare"
    expect(retire, bool, call=call, name="retire")
    if token_budget is not None:
        whole_number("token_budget", token_budget)
    expect_references(references, call=call, optional=True)
    given = None if policies is None else _policies_of(policies)
    with_body = any(step.reads_bodies for policy in given or () for step in policy.steps)
    found = collect_evidence(frame, log, call=call, with_body=with_body)
    past = found.past
    references = found.references if references is None else references
    searched = bool(past.attrs.get(col.RECALLED))
    retires = (found.source is None or found.source.retires) and not searched
    times = TIMES
    if given is None:
        times = TIMES_BY_DEFAULT
        finds_duplicates = find_spec("scipy") is not None
        rules = rules_for(memories=len(past), retires=retires, finds_duplicates=finds_duplicates)
        if ODEK in rules and names_a_store(frame) and col.BODY not in past:
            past = load_past(frame, with_body=True, log=found.log)
    every = -(-len(past) // times) or 1 if every is None else whole_number("every", every, least=1)
    life = life_of(past, references, silent=reads_leave_no_trace(past))
    run = partial(_replays, life, every=every, workers=workers, progress=progress)
    if given is None:
        remembered = [] if found.source is None else with_remembered([], found.source)
        rooms = rooms_of(life, searched=searched, token_budget=token_budget)
        tries = _tries(life, rules, rooms, every, retire=retire)
        tries += [Try(policy) for policy in remembered]
    else:
        both = (False, True) if retire else (False,)
        tries = [Try(policy, again) for policy in given for again in both if policy != KeepAll()]
    tries.append(Try(KeepAll()))
    replays = run(tries)
    told = [(each, replay) for each, replay in zip(tries, replays, strict=True) if replay]
    missing = [each for each, replay in zip(tries, replays, strict=True) if replay is None]
    table = summarise(past, references, [replay for _, replay in told])
    table = _with_verdicts(table, told, life, _revised(found.source, past))
    return Comparison(
        store=found.name,
        table=table,
        references=len(references),
        every=every,
        token_budget=token_budget,
        retires=retires,
        log=found.log_option,
        deletes=found.source is None or found.source.deletes,
        not_known=tuple(missing_signals(past)) if given is None else (),
        off=tuple(each.off for each in rules if each.off) if given is None else (),
        not_compared=tuple(f"{each.label} in {each.cost:,.0f} tokens" for each in missing),
        harvests=found.source is not None and can_harvest(found.source.scheme),
    )


def can_harvest(scheme: str) -> bool:
    """Return whether agents that use such a store write down what they read."""
    return any(scheme in system.schemes for system in harvestable())


def _tries(
    life: ReplayHistory, rules: list[Rule], rooms: list[Room], every: int, *, retire: bool
) -> list[Try]:
    """Return what is replayed by default: defaults, then each rule in as many tokens as others."""
    tries = [Try(rule.default, rule=rule) for rule in rules if rule.default is not None]
    for room in rooms:
        cost = cost_of(walk_through(life, KeepRecent(room.cap), every=every))
        for rule in rules:
            tries.append(Try(rule=rule, room=room, cost=cost))
            if retire and not rule.retire and rule.name != USE_RETIRED.name:
                tries.append(Try(rule=replace(rule, retire=True), room=room, cost=cost))
    return tries


def _revised(source: Source | None, past: pd.DataFrame) -> frozenset[str]:
    """Return the signals of which a store knows the present value alone."""
    revised = past.attrs.get(col.REVISED, ()) if source is None else source.revised
    return frozenset(name for name in revised if name in past and past[name].notna().any())


def _with_verdicts(
    table: pd.DataFrame,
    told: list[tuple[Try, Replay]],
    life: ReplayHistory,
    revised: frozenset[str],
) -> pd.DataFrame:
    """Add to a table which rows are compared at equal tokens, and what tells them apart.

    ``rule`` is the name of a rule that was tried by default, ``room`` numbers the sets of rows that
    cost as many tokens, ``hindsight`` says whether a rule knew what was not known then. ``gain`` is
    what a row serves more than the newest of its room, ``behind`` what it serves less than the
    best, each with limits.
    """
    replays = [replay for _, replay in told]
    rooms = _rooms_in(table, told)
    hindsight = [
        bool(revised & frozenset().union(*(step.signals for step in replay.policy.steps)))
        for replay in replays
    ]
    is_newest = np.array([_is_newest(replay.policy) and not replay.retire for replay in replays])
    table = table.assign(
        rule=[each.label for each, _ in told],
        room=pd.array(rooms, dtype="Int64"),
        hindsight=hindsight,
        newest=is_newest,
    )
    names = ("gain", "gain_low", "gain_high", "behind", "behind_low")
    limits = {name: np.full(len(table), np.nan) for name in names}
    kept = ~_missed(replays)
    day = life.referred.astype("datetime64[D]").astype(np.int64)
    for room in sorted({room for room in rooms if room is not None}):
        rows = np.array([place for place, each in enumerate(rooms) if each == room])
        judged = rows[~table["hindsight"].to_numpy()[rows]]
        if not len(judged) or not len(day):
            continue
        best = judged[np.argmax(table["served"].to_numpy()[judged])]
        newest = rows[is_newest[rows]]
        for row in rows:
            if len(newest):
                gain = kept[:, row].astype(float) - kept[:, newest[0]]
                found = difference_with_limits(day, gain, pairs=len(rows) - 1)
                limits["gain"][row], limits["gain_low"][row], limits["gain_high"][row] = found
            behind = kept[:, best].astype(float) - kept[:, row]
            found = difference_with_limits(day, behind, pairs=len(rows) - 1)
            limits["behind"][row] = found.mean
            limits["behind_low"][row] = found.low
    table = table.assign(**limits)
    if any(each.rule is not None for each, _ in told):
        table = _named_by_rule(table, told)
    return table


def _is_newest(policy: Policy) -> bool:
    return type(policy) in {KeepRecent, TokenBudget}


def _rooms_in(table: pd.DataFrame, told: list[tuple[Try, Replay]]) -> list[int | None]:
    """Return for each row which others cost as many tokens, by number; None where none does."""
    known = [each.room for each, _ in told]
    if any(room is not None for room in known):
        caps = sorted({room.cap for room in known if room is not None})
        return [None if room is None else caps.index(room.cap) for room in known]
    cost = table["boot_tokens_mean"].to_numpy()
    rooms: list[int | None] = [None] * len(table)
    number = -1
    least = -np.inf
    for row in np.argsort(cost, kind="stable").tolist():
        if table["policy"].iloc[row] == KeepAll.name or not table["deleted"].iloc[row]:
            continue
        if cost[row] > least * (1 + EQUAL) or number < 0:
            number += 1
            least = cost[row]
        rooms[row] = number
    shared = {room for room in rooms if room is not None and rooms.count(room) > 1}
    order = sorted(shared)
    return [order.index(room) if room in shared else None for room in rooms]


def _named_by_rule(table: pd.DataFrame, told: list[tuple[Try, Replay]]) -> pd.DataFrame:
    """Name rows by their rules rather than by their policies."""
    labels = []
    families = []
    for (each, replay), label, family in zip(told, table.index, table["family"], strict=True):
        if each.rule is None:
            labels.append(str(label))
            families.append(str(family))
            continue
        ending = RETIRED if replay.retire else ""
        name = (
            f"{each.rule.name}, by default" if each.room is None else each.rule.label(replay.policy)
        )
        labels.append(name + ending)
        families.append(each.rule.name + ending)
    goes_by = dict(zip(families, (replay.policy.goes_by for _, replay in told), strict=True))
    table = table.assign(family=families).set_axis(pd.Index(labels, name="label"), axis="index")
    table.attrs[col.GOES_BY] = goes_by
    return table


def summarise(
    frame: pd.DataFrame, references: pd.DataFrame, replays: Sequence[Replay]
) -> pd.DataFrame:
    """Put replays of one history side by side: one row for each, indexed by ``label``.

    `frame` and `references` are what was replayed, `replays` what :func:`replay_each` returned.

    ========================  =============================================================
    ``policy``                its short name
    ``family``                that, and which settings beside its size are not the defaults
    ``options``               what the command line takes for it; empty where it has no name
    ``retire``                whether what went could come back; its label and family say so
    ``served``, ``lost``      share of references served, references whose target was gone
    ``oracle``                the share that could have been served with ``most_held`` slots
    ``boot_memories_mean``    over the moments of the history, as all that follow
    ``boot_tokens_mean``,     (the p95 is the smallest value that 95% of them do not pass)
    ``boot_tokens_p95``
    ``most_held``             the most prunable rows held at once
    ``deleted``               rows that went and have not come back
    ``only_here``             of these, those that no other policy of those compared let go, of
                              those that delete, or that retire, as it does
    ``lost_only_here``        references lost under this policy and no other likewise
    ``floor_memories``,       the load-bearing rows active at the end, which no policy touches
    ``floor_tokens``
    ========================  =============================================================
    """
    life = life_of(frame, references)
    gone = _gone(replays)
    missed = _missed(replays)
    retire = np.array([one.retire for one in replays], dtype=bool)
    floor_memories, floor_tokens = (
        int(line[-1]) if len(life) else 0 for line in life.history.floor
    )
    bounds: dict[int, float] = {}
    rows = []
    for number, one in enumerate(replays):
        if one.most_held not in bounds:
            bounds[one.most_held] = bound_of(life, one.most_held).served
        tokens = one.boot[BOOT_TOKENS].to_numpy()
        rows.append(
            {
                "label": label_of(one.policy) + RETIRED * one.retire,
                "policy": one.policy.name,
                "family": family_of(one.policy) + RETIRED * one.retire,
                "options": options_of(one.policy),
                "retire": one.retire,
                "served": one.served,
                "lost": one.lost,
                "oracle": bounds[one.most_held],
                "boot_memories_mean": float(one.boot[BOOT_MEMORIES].mean()),
                "boot_tokens_mean": float(one.boot[BOOT_TOKENS].mean()),
                "boot_tokens_p95": float(mean_p95_max(tokens)[1]) if len(tokens) else np.nan,
                "most_held": one.most_held,
                "deleted": len(one.deleted),
                "only_here": _alone(gone, number, retire),
                "lost_only_here": _alone(missed, number, retire),
                "floor_memories": floor_memories,
                "floor_tokens": floor_tokens,
            }
        )
    table = pd.DataFrame(rows).set_index("label")
    table.attrs = {
        col.SOURCE: frame.attrs.get(col.SOURCE, ""),
        col.RECALLED: bool(frame.attrs.get(col.RECALLED)),
        col.REFERENCES: len(life.references),
        col.GOES_BY: {
            family: one.policy.goes_by
            for family, one in zip(table["family"].tolist(), replays, strict=True)
        },
    }
    return table


def _alone(gone: Flags, number: int, retire: Flags) -> int:
    """Count what went under one replay and no other that retires as it does."""
    alike = gone[:, retire == retire[number]]
    return int((gone[:, number] & (alike.sum(axis=1) == 1)).sum())


def overlap(
    replays: Sequence[Replay], *, of: Literal["deleted", "lost"] = "deleted", share: bool = False
) -> pd.DataFrame:
    """Say how many rows two policies both let go, or how many references both lost: a square frame.

    Over a history much longer than the caps nearly every row goes under every policy in the end;
    what was referred to tells policies apart. The diagonal is each policy's own.

    Parameters
    ----------
    replays : sequence of Replay
        Of one history.
    of : {"deleted", "lost"}
        Rows that went, or references that were lost.
    share : bool
        Divide each line by its own policy's (NaN where that is nothing).
    """
    if of not in {"deleted", "lost"}:
        raise ValueError(f"of={of!r} is neither 'deleted' nor 'lost'")
    gone = _gone(replays) if of == "deleted" else _missed(replays)
    both: np.typing.NDArray[Any] = gone.T.astype(np.int64) @ gone.astype(np.int64)
    if share:
        own = np.diag(both).astype(np.float64)
        both = both / np.where(own > 0, own, np.nan)[:, None]
    labels = [label_of(one.policy) for one in replays]
    table = pd.DataFrame(both, index=labels, columns=labels)
    if replays:
        table.attrs = replays[0].told
    return table


def _gone(replays: Sequence[Replay]) -> Flags:
    """Return which row went under which policy, a line for each row that went under any."""
    went = [one.deleted[col.POSITION].to_numpy() for one in replays]
    positions = np.unique(np.concatenate([np.empty(0, np.int64), *went]))
    gone = np.zeros((len(positions), len(replays)), dtype=bool)
    for line, own in zip(gone.T, went, strict=True):
        line[np.searchsorted(positions, own)] = True
    return gone


def _missed(replays: Sequence[Replay]) -> Flags:
    """Return which reference was lost under which policy, shape (references, replays)."""
    if not replays:
        return np.empty((0, 0), dtype=bool)
    return ~np.column_stack([one.references[KEPT].to_numpy(dtype=bool) for one in replays])


RETIRED: Final = ", retired"
"""In a label: what the policy does not keep can come back."""
TIMES: Final = 10_000
"""About how often each policy is applied along a long history where nobody says."""
TIMES_BY_DEFAULT: Final = 500
"""The same where no policies are named: what they keep then is large beside what one step adds."""
FEW: Final = 30
"""References below which shares of them tell no two policies apart."""
GOOD: Final = 0.9
"""The share of references that a rule to follow serves, where one does."""
NO_LOSS: Final = 0.01
"""The share of references that may be lost where a deletion is called one without loss."""

_LEGEND: Final = {
    "served": (
        "references in this past that found their memory, as they were; memlab size estimates "
        "those to come, which reach further back"
    ),
    "at best": "the most that any policy with as many slots could have served",
    "tokens": "{}: the mean of this past, and what 95% of {} did not pass",
    "only here": "memories that this line alone would have deleted",
    "over newest": (
        "points more than the newest in as many tokens, with limits of 90% for all lines together"
    ),
    "retired": "not loaded, still to be found, and back once it is read; nothing is deleted",
    "with hindsight": (
        "it goes by {} of today, which the store does not keep as they were: no advice rests on it"
    ),
}
HINDSIGHT: Final = ", with hindsight"


@dataclass(frozen=True, repr=False)
class Comparison(DisplayMixin):
    """What :func:`compare` returned for a store, as people read it.

    Each policy was applied after `every` so many memories; `log` names its log to a command.
    """

    store: str
    table: pd.DataFrame
    references: int
    every: int = 1
    token_budget: int | None = None
    retires: bool = True
    log: tuple[str, ...] = ()
    deletes: bool = True
    not_known: tuple[str, ...] = ()
    """What the store does not keep, and what a rule that reads it comes down to."""
    off: tuple[str, ...] = ()
    """Systems whose rule is off by default."""
    not_compared: tuple[str, ...] = ()
    """Rules of which no size costs as much as the others."""
    harvests: bool = False
    """Whether its agents write down what they read."""

    @property
    def fitting(self) -> pd.DataFrame:
        """What stays within the budget."""
        if self.token_budget is None:
            return self.table
        return self.table[self.table["boot_tokens_p95"] <= self.token_budget]

    @property
    def searched(self) -> bool:
        """Whether nothing of the store is loaded at start."""
        return bool(self.table.attrs.get(col.RECALLED))

    @property
    def judged(self) -> pd.DataFrame:
        """What is compared: rows that cost as many tokens as others, without hindsight."""
        lines = self.fitting
        return lines[lines["room"].notna() & ~lines["hindsight"]]

    @property
    def advised(self) -> pd.Series | None:
        """The row that advice rests on: None where nothing can be said, or all should be kept.

        Where a start loads memories, of the rows at equal tokens the one that serves most, at the
        least cost that serves nine in ten; the newest, where nothing serves more beyond noise.
        Where memories are searched, the row that deletes most without loss.
        """
        if self.references < FEW:
            return None
        if self.searched:
            return self._without_loss
        if self.judged.empty:
            return self._cheapest_good
        return self._better(self._room_of_answer)

    @property
    def _cheapest_good(self) -> pd.Series | None:
        """Where nothing is compared at equal tokens: what serves nine in ten at the least cost."""
        lines = self.fitting[~self.fitting["hindsight"] & (self.fitting["deleted"] > 0)]
        lines = lines[(lines["served"] >= GOOD) & (lines["options"] != "")]
        if lines.empty:
            return None
        return lines.sort_values(["boot_tokens_mean", "retire"], ascending=[True, False]).iloc[0]

    @property
    def _without_loss(self) -> pd.Series | None:
        lines = self.fitting[~self.fitting["hindsight"] & (self.fitting["deleted"] > 0)]
        lines = lines[lines["lost"] <= NO_LOSS * self.references]
        return None if lines.empty else lines.iloc[int(np.argmax(lines["deleted"].to_numpy()))]

    @property
    def _best_retired(self) -> pd.Series | None:
        """What retires and serves most, where that was asked for: an undo is a read away."""
        lines = self.fitting[self.fitting["retire"] & (self.fitting["options"] != "")]
        lines = lines[~lines["hindsight"] & (lines["rule"] == "")]
        if lines.empty or not self.references:
            return None
        return lines.iloc[int(np.argmax(lines["served"].to_numpy()))]

    @property
    def _room_of_answer(self) -> pd.DataFrame:
        """The cheapest rows at equal tokens of which one serves nine in ten; else the middle."""
        rooms = [lines for _, lines in self.judged.groupby("room")]
        for lines in rooms:
            if self._better(lines)["served"] >= GOOD:
                return lines
        return rooms[len(rooms) // 2]

    @staticmethod
    def _better(lines: pd.DataFrame) -> pd.Series:
        """Return what serves most at equal tokens; the newest where that is no more than noise."""
        best = lines.sort_values(["served", "retire"], ascending=False, kind="stable").iloc[0]
        newest = lines[lines["newest"]]
        if len(newest) and not best["gain_low"] > 0:
            return newest.iloc[0]
        return best

    @property
    def answer(self) -> str:
        """Which rule serves most in how many tokens, and whether that is more than noise."""
        if not self.references:
            return "Nothing says what was needed of this store: rules differ by their cost alone."
        known = counted(self.references, "references")
        if self.references < FEW:
            return f"Too few references to tell rules apart by what they serve: {known}."
        if self.judged.empty:
            return f"No two rules were tried at equal tokens, so {known} say nothing of them."
        return self._answer_searched(known) if self.searched else self._answer_loaded(known)

    def _answer_loaded(self, known: str) -> str:
        lines = self._room_of_answer
        chosen = self._better(lines)
        tokens = f"{chosen['boot_tokens_mean']:,.0f} tokens at start"
        name = str(chosen.name)
        served = f"{self._share(chosen['served'])} of {known}"
        says = f"{name[0].upper()}{name[1:]} serves {served} in {tokens}"
        others = lines[lines.index != chosen.name].sort_values("served", ascending=False)
        if others.empty:
            return f"{says}; nothing else was tried at that cost."
        if not chosen["newest"] and chosen["gain_low"] > 0:
            alike = others[~(others["behind_low"] > 0) & (others["rule"] != chosen["rule"])]
            more = f"; {alike.index[0]} is no more than noise behind" if len(alike) else ""
            return f"{says}, {_points(chosen, 'gain')} more than the newest: more than noise{more}."
        other = others.iloc[0]
        if other["served"] > chosen["served"]:
            says = f"{says}, and no rule serves more beyond noise"
            return f"{says}: {other.name} serves {_points(other, 'gain')} more."
        far = "more than noise" if other["behind_low"] > 0 else "no more than noise"
        return f"{says}, the most; {other.name} serves {self._share(other['served'])}, {far} less."

    def _answer_searched(self, known: str) -> str:
        start = "Nothing of this store is loaded at start"
        safe = self._without_loss
        if safe is not None:
            went = counted(safe["deleted"])
            return f"{start}; {safe.name} deletes {went} and loses {safe['lost']:,} of {known}."
        lines = self.judged[self.judged["room"] == self.judged["room"].max()]
        best = lines.iloc[int(np.argmax(lines["served"].to_numpy()))]
        lost = f"{best.name} loses {self._share(1 - best['served'])} of {known}"
        newest = lines[lines["newest"]]
        if len(newest) and newest.index[0] != best.name:
            lost += f", {newest.index[0]} {self._share(1 - newest.iloc[0]['served'])}"
        kept = f"in {best['boot_tokens_mean']:,.0f} tokens"
        return f"{start}, and no rule deletes without loss: {kept} {lost}. Keep all."

    def to_json(self) -> str:
        """Return a JSON object for each policy."""
        return self.fitting.reset_index().to_json(orient="records", indent=2)

    def sheet(self) -> TextPage:
        """Return policies side by side, what to doubt, and how to read it."""
        memories, tokens = (self.table[f"floor_{each}"].iloc[0] for each in ("memories", "tokens"))
        floor = f"{counted(memories)}, {counted(tokens, 'tokens')}, are load-bearing"
        if self.fitting.empty:
            least = f"the least is {self.table['boot_tokens_p95'].min():,.0f}"
            title = f"nothing that was tried stays within {self.token_budget:,} tokens: {least}"
            return TextPage(title, [("floor", floor)])
        known = f"{self.references:,}" if self.references else "none"
        if self.references < FEW:
            known += (
                ": too few to tell policies apart by what they serve, so compare what they cost; "
                "memlab harvest adds what the agent read"
            )
        facts = [("references", known), ("floor", floor)]
        if self.every > 1:
            some = f"each policy after every {self.every:,} memories, to save time"
            facts.append(("applied", f"{some}; --every 1 applies it after each"))
        if self.off:
            facts.append(("off by default", ", ".join(self.off)))
        if self.not_compared:
            names = ", ".join(self.not_compared)
            facts.append(("not compared", f"{names}: no size of it costs as many tokens"))
        facts += [("not known", words) for words in self.not_known]
        return TextPage(f"policies on the past of {self.store}", facts, self._tables())

    def _tables(self) -> list[Table]:
        """Return the policies, shares as exact as the references allow, and how to read them."""
        lines = self.fitting
        went = "not loaded" if lines["retire"].any() else "deleted"
        by_rule = bool((lines["rule"] != "").any())
        last = "over newest" if by_rule else "only here"
        header = ("policy", "served", "at best", "tokens", "95%", went, last)
        some = lines
        if not by_rule:
            some = lines[(lines["deleted"] > 0) | (lines["policy"] == KeepAll.name)]
        shows = ["served"]  # what is retired goes at night, so it costs a little more in any case
        if by_rule:
            shows += ["oracle", "boot_tokens_mean", "boot_tokens_p95", "deleted"]
        label = some.index.str.removesuffix(RETIRED)
        shown = some[~some.assign(label=label).duplicated(["label", *shows])]
        left_out = {
            "with nothing to delete": len(lines) - len(some),
            "with nothing gained by retiring": len(some) - len(shown),
        }
        parts = [f"{counted(count, 'lines')} {why}" for why, count in left_out.items() if count]
        remark = f"left out: {', '.join(parts)}" if parts else ""
        if by_rule:
            tables = self._by_room(header, shown)
        else:
            rows = [self._row(label, line, by_rule=False) for label, line in shown.iterrows()]
            tables = [Table("", header, rows, remark, whole=True)]
        of = ("there to be found", "moments") if self.searched else ("loaded at start", "starts")
        told = {"retired"} if went != "deleted" else set()
        told |= {"with hindsight"} if lines["hindsight"].any() else set()
        if self.references:
            told |= {"served", "at best", "tokens", header[-1]}
        words = {**_LEGEND, "tokens": _LEGEND["tokens"].format(*of)}
        words["with hindsight"] = words["with hindsight"].format("importance and graduation")
        legend = [(name, text) for name, text in words.items() if name in told]
        return [*tables, Table("", (), legend, whole=True)] if legend else tables

    def _by_room(self, header: tuple[str, ...], shown: pd.DataFrame) -> list[Table]:
        """Return a table for each set of rows that cost as many tokens, and one for the others."""
        tables = []
        for _, lines in shown[shown["room"].notna()].groupby("room"):
            cost = f"{lines['boot_tokens_mean'].iloc[0]:,.0f} tokens"
            rows = [self._row(label, line, by_rule=True) for label, line in lines.iterrows()]
            where = "of memories to search" if self.searched else "at start"
            tables.append(Table(f"In {cost} {where}", header, rows, whole=True))
        others = shown[shown["room"].isna()]
        rows = [self._row(label, line, by_rule=True) for label, line in others.iterrows()]
        tables.append(Table("By default, and without any rule", header, rows, whole=True))
        return tables

    def _row(self, label: Any, line: pd.Series, *, by_rule: bool) -> tuple[Cell, ...]:
        name = str(label)
        if not by_rule:
            name = name.removesuffix(RETIRED)
        if line["hindsight"]:
            name += HINDSIGHT
        last: Cell = int(line["only_here"])
        if by_rule:
            is_told = not np.isnan(line["gain"]) and not line["newest"] and self.references >= FEW
            last = _points(line, "gain", unit=False) if is_told else ""
        return (
            name,
            self._share(line["served"]),
            self._share(line["oracle"]),
            or_dash(line["boot_tokens_mean"], "{:,.0f}"),
            or_dash(line["boot_tokens_p95"], "{:,.0f}"),
            int(line["deleted"]),
            last,
        )

    @property
    def command(self) -> str:
        """The command that follows the answer."""
        return self._steps()[0].partition("    ")[0]

    def next_steps(self) -> list[str]:
        """Return the answer, and what to run: what follows it first."""
        first, *others = self._steps()
        return [self.answer, "", f"next: {first}", *(f"      {each}" for each in others)]

    def _steps(self) -> list[str]:
        steps = []
        advised = self.advised
        if advised is None and not self.searched:
            advised = self._best_retired
        if self.references < FEW:
            steps.append(self._more_references())
        if self.searched:
            need = command("rows", self.store, "--by", "need", *self.log)
            steps.append(f"{need}    what would be worth loading at start")
        if advised is not None and advised["options"]:
            retire = ("--retire",) if advised["retire"] and self.retires else ()
            more = in_shell(*retire, *self.log)
            does = f"{command('compact', self.store)} {advised['options']} {more}".rstrip()
            what = "would retire; what is read comes back" if retire else "would delete"
            steps.append(f"{does}    shows what it {what}")
        if not self.searched:
            steps.append(f"{command('size', self.store, *self.log)}    which cap, with evidence")
        return steps

    def _more_references(self) -> str:
        if self.harvests:
            return f"{command('harvest', self.store)}    reads in what agents already write"
        words = "says how to log what is read"
        return f"{command('size', self.store, *self.log)}    {words}"

    def _share(self, share: Any) -> str:
        """Write a share as exactly as so many references allow: as a count of few."""
        if not self.references:
            return "–"
        if self.references < FEW:
            return f"{round(share * self.references)} of {self.references}"
        return f"{share:.1%}" if self.references >= 10 * FEW else f"{share:.0%}"


def _points(line: pd.Series, name: str, *, unit: bool = True) -> str:
    """Write a difference in points, with its limits.

    >>> line = pd.Series({"gain": 0.29, "gain_low": 0.2, "gain_high": 0.38})
    >>> _points(line, "gain"), _points(line, "gain", unit=False)
    ('29 points (+20 to +38)', '+29 (+20 to +38)')
    """
    mean = 100 * line[name]
    points = "point" if f"{mean:.0f}" in {"1", "-1"} else "points"
    limits = f"({100 * line[name + '_low']:+.0f} to {100 * line[name + '_high']:+.0f})"
    return f"{mean:.0f} {points} {limits}" if unit else f"{mean:+.0f} {limits}"
