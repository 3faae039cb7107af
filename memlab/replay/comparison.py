"""Policies side by side on one history, with the best and the worst that could be done."""

import os
import pickle
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from memlab import columns as col
from memlab.arguments import expect, refusal, whole_number
from memlab.evidence.references import find_references
from memlab.frame.needed import expect_memories, expect_references
from memlab.policies import KeepAll, Policy
from memlab.replay.bound import bound_of
from memlab.replay.labels import family_of, label_of
from memlab.replay.life import Flags, Ints, Life, life_of
from memlab.replay.tables import BOOT_MEMORIES, BOOT_TOKENS, KEPT, Replay
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
        Processes; as many as there are processors by default, none of its own for little work or
        where a policy does not pickle (one with a vectoriser of its own, say).
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
        workers = 1 if little or not _travels(given) else os.cpu_count() or 1
    workers = whole_number("workers", workers, least=1)
    with tqdm(
        total=len(given), desc="replays", unit="policy", disable=not progress, leave=False
    ) as bar:
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


def _travels(policies: list[Policy]) -> bool:
    """Whether policies can be handed to another process."""
    try:
        pickle.dumps(policies)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


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
    references: pd.DataFrame | None = None,
    policies: Iterable[Policy] = (),
    *,
    every: int = 1,
    workers: int | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Compare policies on one history.

    Parameters
    ----------
    frame, every, workers, progress
        As for :func:`replay_each`.
    references : DataFrame, optional
        As :func:`memlab.find_references` returns them; those of the store itself by default.
    policies : iterable of Policy
        One for each setting to try; without any, what keeping all costs.

    Returns
    -------
    DataFrame
        As :func:`summarise` returns it, with ``KeepAll`` as the last row.

    Raises
    ------
    ValueError
        If `every` or `workers` is below 1, or `references` lacks a column.
    """
    expect_memories(frame, call="memlab.compare")
    if references is None:
        references = find_references(frame)
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
        ``served``, ``lost``      share of references served, references whose target was gone
        ``oracle``                the share that could have been served with ``most_held`` slots
        ``boot_memories_mean``    over the moments of the history, as all that follow
        ``boot_tokens_mean``,     (the p95 is the smallest value that 95 % of them do not pass)
        ``boot_tokens_p95``
        ``most_held``             the most prunable rows held at once
        ``deleted``               rows that went
        ``only_here``             rows that went under this policy and no other of those compared
        ``lost_only_here``        references lost under this policy and no other
        ``floor_memories``,       the load-bearing rows active at the end, which no policy touches
        ``floor_tokens``
        ========================  =============================================================
    """
    life = life_of(frame, references)
    gone = _gone(replays)[1]
    alone = gone[gone.sum(axis=1) == 1].sum(axis=0)
    floor_memories, floor_tokens = (
        int(line[-1]) if len(life) else 0 for line in life.history.floor
    )
    missed = _missed(replays)
    bounds: dict[int, float] = {}
    rows = []
    for number, one in enumerate(replays):
        if one.most_held not in bounds:
            bounds[one.most_held] = bound_of(life, one.most_held).served
        rows.append(
            {
                "label": label_of(one.policy),
                "policy": one.policy.name,
                "family": family_of(one.policy),
                "served": one.served,
                "lost": one.lost,
                "oracle": bounds[one.most_held],
                "boot_memories_mean": float(one.boot[BOOT_MEMORIES].mean()),
                "boot_tokens_mean": float(one.boot[BOOT_TOKENS].mean()),
                "boot_tokens_p95": _p95(one.boot[BOOT_TOKENS]),
                "most_held": one.most_held,
                "deleted": len(one.deleted),
                "only_here": int(alone[number]),
                "lost_only_here": int((missed[:, number] & (missed.sum(axis=1) == 1)).sum()),
                "floor_memories": floor_memories,
                "floor_tokens": floor_tokens,
            }
        )
    table = pd.DataFrame(rows).set_index("label")
    table.attrs = {
        col.SOURCE: frame.attrs.get(col.SOURCE, ""),
        col.REFERENCES: len(life.references),
    }
    return table


def _p95(values: "pd.Series[Any]") -> float:
    return float(mean_p95_max(values.to_numpy())[1]) if len(values) else float("nan")


def overlap(
    replays: Sequence[Replay], *, of: Literal["deleted", "lost"] = "deleted", share: bool = False
) -> pd.DataFrame:
    """Say how many rows two policies both let go, or how many references both lost.

    Over a history much longer than the caps nearly every row goes under every policy in the end;
    what was referred to tells policies apart.

    Parameters
    ----------
    replays : sequence of Replay
        Of one history.
    of : {"deleted", "lost"}
        Rows that went, or references that were lost.
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
    if of not in {"deleted", "lost"}:
        raise ValueError(f"of={of!r} is neither 'deleted' nor 'lost'")
    gone = _gone(replays)[1] if of == "deleted" else _missed(replays)
    both: np.typing.NDArray[Any] = gone.T.astype(np.int64) @ gone.astype(np.int64)
    if share:
        own = np.diag(both).astype(np.float64)
        both = both / np.where(own > 0, own, np.nan)[:, None]
    labels = [label_of(one.policy) for one in replays]
    table = pd.DataFrame(both, index=labels, columns=labels)
    if replays:
        table.attrs = replays[0].told
    return table


def _gone(replays: Sequence[Replay]) -> tuple[Ints, Flags]:
    """Return the positions of rows that went, and which went under which policy, a line a row."""
    went = [one.deleted[col.POSITION].to_numpy() for one in replays]
    positions = np.unique(np.concatenate([np.empty(0, np.int64), *went]))
    gone = np.zeros((len(positions), len(replays)), dtype=bool)
    for line, one in zip(gone.T, replays, strict=True):
        line[_places(positions, one)] = True
    return positions, gone


def _places(positions: Ints, one: Replay) -> Ints:
    """Return where the rows that went under a policy stand among all that went."""
    return np.searchsorted(positions, one.deleted[col.POSITION].to_numpy())


def _missed(replays: Sequence[Replay]) -> Flags:
    """Return which reference was lost under which policy, shape (references, replays)."""
    if not replays:
        return np.empty((0, 0), dtype=bool)
    return ~np.column_stack([one.references[KEPT].to_numpy(dtype=bool) for one in replays])
