"""Policies side by side on one history, with the best and the worst that could be done."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from memlab import columns as col
from memlab.arguments import expect, refusal, whole_number
from memlab.frame.needed import expect_memories, expect_references
from memlab.policies import KeepAll, Oracle, Pipeline, Policy
from memlab.replay.life import Ints, Life, life_of
from memlab.replay.oracle import serve_most
from memlab.replay.outcome import BOOT_ITEMS, BOOT_TOKENS, KEPT, Replay
from memlab.replay.walk import walk_through
from memlab.sizing.history import mean_p95_max

SMALL: Final = 100_000
"""Rows times policies below which starting processes takes longer than it saves."""


def replay_each(
    frame: pd.DataFrame,
    references: pd.DataFrame,
    policies: Iterable[Policy],
    *,
    every: int = 1,
    workers: int | None = None,
    progress: bool = False,
) -> list[Replay]:
    """Replay one history under each of several policies.

    Parameters
    ----------
    frame, references, every
        As for :func:`memlab.replay.replay`.
    policies : iterable of Policy
        One for each setting to try.
    workers : int, optional
        Processes; as many as there are processors by default, none of its own for little work. A
        policy that does not pickle (one with a vectoriser of its own, say) needs ``workers=1``.
    progress : bool
        Show a progress bar.

    Returns
    -------
    list of Replay
        In the order of `policies`.

    Raises
    ------
    ValueError
        If `every` or `workers` is below 1, or `references` lacks a column.
    """
    expect_memories(frame, call="memlab.compare")
    expect_references(references, call="memlab.compare")
    every = whole_number("every", every, least=1)
    given = _policies_of(policies)
    life = life_of(frame, references)
    if workers is None:
        little = len(given) < 2 or len(life) * len(given) < SMALL
        workers = 1 if little else os.cpu_count() or 1
    workers = whole_number("workers", workers, least=1)
    with tqdm(total=len(given), desc="replays", unit="policy", disable=not progress) as bar:
        if workers == 1:
            return [_advance(bar, walk_through(life, policy, every=every)) for policy in given]
        return _in_processes(life, given, every, min(workers, len(given)), bar)


def _policies_of(policies: object) -> list[Policy]:
    """Return policies as a list; one alone is no several."""
    if not isinstance(policies, Iterable) or isinstance(policies, str | pd.DataFrame):
        raise refusal(policies, "policies", call="memlab.compare", name="policies")
    given = list(policies)
    for policy in given:
        expect(policy, Policy, call="memlab.compare", name="one of policies")
    return given


def _advance(bar: Any, done: Replay) -> Replay:
    bar.update()
    return done


def _in_processes(
    life: Life, policies: list[Policy], every: int, workers: int, bar: Any
) -> list[Replay]:
    done: dict[int, Replay] = {}
    with ProcessPoolExecutor(workers, initializer=_Worker.start, initargs=(life,)) as pool:
        tasks = {
            pool.submit(_Worker.run, policy, every): number
            for number, policy in enumerate(policies)
        }
        for task in as_completed(tasks):
            done[tasks[task]] = _advance(bar, task.result())
    return [done[number] for number in range(len(policies))]


class _Worker:
    """A process's own copy of the history, so that it crosses once."""

    life: Life

    @classmethod
    def start(cls, life: Life) -> None:
        cls.life = life

    @classmethod
    def run(cls, policy: Policy, every: int) -> Replay:
        return walk_through(cls.life, policy, every=every)


def compare(
    frame: pd.DataFrame,
    references: pd.DataFrame,
    policies: Iterable[Policy],
    *,
    every: int = 1,
    workers: int | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Compare policies on one history.

    Parameters
    ----------
    frame, references, policies, every, workers, progress
        As for :func:`replay_each`.

    Returns
    -------
    DataFrame
        As :func:`summarise` returns it, with ``KeepAll`` as the last row.

    Raises
    ------
    ValueError
        If `every` or `workers` is below 1, or `references` lacks a column.
    """
    given = [one for one in _policies_of(policies) if not isinstance(one, KeepAll)]
    replays = replay_each(
        frame, references, [*given, KeepAll()], every=every, workers=workers, progress=progress
    )
    return summarise(frame, references, replays)


def summarise(
    frame: pd.DataFrame, references: pd.DataFrame, replays: Sequence[Replay]
) -> pd.DataFrame:
    """Put replays of one history side by side.

    Parameters
    ----------
    frame, references
        What was replayed.
    replays : sequence of Replay
        As :func:`replay_each` returns them.

    Returns
    -------
    DataFrame
        One row for each replay, indexed by ``label``:

        ========================  =============================================================
        ``policy``                its short name
        ``family``                that, and which settings beside its size are not the defaults
        ``hit_ratio``, ``lost``   share of needs served, needs whose target was gone
        ``oracle``                the share that could have been served with ``most_held`` slots
        ``boot_items_mean``       over the moments of the history, as all that follow
        ``boot_tokens_mean``,     (the p95 is the smallest value that 95 % of them do not pass)
        ``boot_tokens_p95``
        ``most_held``             the most prunable rows held at once
        ``evicted``               rows that went
        ``only_here``             rows that went under this policy and no other of those compared
        ``lost_only_here``        needs lost under this policy and no other
        ``floor_items``,          the load-bearing rows active at the end, which no policy touches
        ``floor_tokens``
        ========================  =============================================================
    """
    life = life_of(frame, references)
    gone = _gone(replays)[1]
    alone = gone[gone.sum(axis=1) == 1].sum(axis=0)
    floor_items, floor_tokens = (int(line[-1]) if len(life) else 0 for line in life.history.floor)
    missed = _missed(replays)
    bounds: dict[int, float] = {}
    rows = []
    for number, one in enumerate(replays):
        if one.most_held not in bounds:
            bounds[one.most_held] = _bound(life, one.most_held)
        rows.append(
            {
                "label": label_of(one.policy),
                "policy": one.policy.name,
                "family": family_of(one.policy),
                "hit_ratio": one.hit_ratio,
                "lost": one.lost,
                "oracle": one.hit_ratio
                if isinstance(one.policy, Oracle)
                else bounds[one.most_held],
                "boot_items_mean": float(one.boot[BOOT_ITEMS].mean()),
                "boot_tokens_mean": float(one.boot[BOOT_TOKENS].mean()),
                "boot_tokens_p95": _p95(one.boot[BOOT_TOKENS]),
                "most_held": one.most_held,
                "evicted": len(one.evicted),
                "only_here": int(alone[number]),
                "lost_only_here": int((missed[:, number] & (missed.sum(axis=1) == 1)).sum()),
                "floor_items": floor_items,
                "floor_tokens": floor_tokens,
            }
        )
    return pd.DataFrame(rows).set_index("label")


def _p95(values: "pd.Series[Any]") -> float:
    return float(mean_p95_max(values.to_numpy())[1]) if len(values) else float("nan")


def _bound(life: Life, slots: int) -> float:
    served, _ = serve_most(life, slots)
    return float(served.mean()) if len(served) else float("nan")


def overlap(
    replays: Sequence[Replay], *, of: Literal["evicted", "lost"] = "evicted", share: bool = False
) -> pd.DataFrame:
    """Say how many rows two policies both let go, or how many needs both lost.

    Over a history much longer than the caps nearly every row goes under every policy in the end;
    what was needed tells policies apart.

    Parameters
    ----------
    replays : sequence of Replay
        Of one history.
    of : {"evicted", "lost"}
        Rows that went, or needs that were lost.
    share : bool
        Divide each line by its own policy's (NaN where that is nothing).

    Returns
    -------
    DataFrame
        Square, by label; the diagonal is each policy's own.

    Raises
    ------
    ValueError
        If `of` is neither.
    """
    if of not in {"evicted", "lost"}:
        raise ValueError(f"of={of!r} is neither 'evicted' nor 'lost'")
    gone = _gone(replays)[1] if of == "evicted" else _missed(replays)
    both = gone.T.astype(np.int64) @ gone.astype(np.int64)
    if share:
        own = np.diag(both).astype(np.float64)
        both = both / np.where(own > 0, own, np.nan)[:, None]
    labels = [label_of(one.policy) for one in replays]
    return pd.DataFrame(both, index=labels, columns=labels)


def evicted_only_by(replays: Sequence[Replay]) -> pd.DataFrame:
    """Return the rows that only one of several policies let go.

    Returns
    -------
    DataFrame
        ``memory_id``, ``position``, ``tokens``, ``evicted_at_position``, ``step``, ``label`` of the
        policy, in the order of `replays`.
    """
    positions, gone = _gone(replays)
    alone = gone.sum(axis=1) == 1
    parts: list[pd.DataFrame] = [
        one.evicted[alone[_places(positions, one)]].assign(label=label_of(one.policy))
        for one in replays
    ]
    if not parts:
        return pd.DataFrame(columns=[col.MEMORY_ID, col.POSITION, "label"])
    return pd.concat(parts, ignore_index=True)


def _gone(replays: Sequence[Replay]) -> "tuple[Ints, np.ndarray[Any, np.dtype[np.bool_]]]":
    """Return the positions of rows that went, and which went under which policy, a line a row."""
    went = [one.evicted[col.POSITION].to_numpy() for one in replays]
    positions = np.unique(np.concatenate([np.empty(0, np.int64), *went]))
    gone = np.zeros((len(positions), len(replays)), dtype=bool)
    for line, one in zip(gone.T, replays, strict=True):
        line[_places(positions, one)] = True
    return positions, gone


def _places(positions: Ints, one: Replay) -> Ints:
    """Return where the rows that went under a policy stand among all that went."""
    return np.searchsorted(positions, one.evicted[col.POSITION].to_numpy())


def _missed(replays: Sequence[Replay]) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return which need was lost under which policy, shape (needs, replays)."""
    if not replays:
        return np.empty((0, 0), dtype=bool)
    return ~np.column_stack([one.references[KEPT].to_numpy(dtype=bool) for one in replays])


def family_of(policy: Policy) -> str:
    """Name a policy with those of its settings, its size aside, that are not the defaults.

    Examples
    --------
    >>> from memlab.policies import KeepRecent, ValueCap
    >>> family_of(KeepRecent(50)), family_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent', 'value, half_life')
    """
    if isinstance(policy, Pipeline):
        return " > ".join(family_of(step) for step in policy.steps)
    set_apart = [one.name for one in _settings(policy) if one.default is not MISSING]
    return ", ".join([policy.name, *(name for name in set_apart if name != "ttl")])


def label_of(policy: Policy) -> str:
    """Name a policy with the settings that are not its defaults.

    Examples
    --------
    >>> from memlab.policies import KeepRecent, ValueCap
    >>> label_of(KeepRecent(50)), label_of(ValueCap(200, half_life=timedelta(days=1)))
    ('recent 50', 'value 200, half_life=1 d')
    """
    if isinstance(policy, Pipeline):
        return " > ".join(label_of(step) for step in policy.steps)
    words = []
    for one in _settings(policy):
        value = getattr(policy, one.name)
        named = one.default is not MISSING and one.name != "ttl"
        words.append(f"{one.name}={_short(value)}" if named else _short(value))
    return f"{policy.name} {', '.join(words)}".strip()


def _settings(policy: Policy) -> "list[Field[Any]]":
    """Fields of a policy that are not at their defaults."""
    return [
        one
        for one in fields(policy)
        if one.init and (one.default is MISSING or getattr(policy, one.name) != one.default)
    ]


def _short(value: Any) -> str:
    if isinstance(value, timedelta):
        days = value / timedelta(days=1)
        return f"{days:.3g} d" if days >= 1 else f"{24 * days:.3g} h"
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return getattr(value, "__name__", str(value))
