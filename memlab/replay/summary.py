"""A table of several replays of one history, and a table of the evictions that they share."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.frame.fields import Flags
from memlab.policies.named import family_of, label_of, options_of
from memlab.replay.history import prepare_history
from memlab.replay.walk import BOOT_MEMORIES, BOOT_TOKENS, KEPT, Replay, bound_of
from memlab.sizing.lifetimes import mean_p95_max

RETIRED: Final = ", retired"
"""Ending of the label of a replay in which memories are retired."""


def summarise(
    frame: pd.DataFrame, references: pd.DataFrame, replays: Sequence[Replay]
) -> pd.DataFrame:
    """Return a table of replays of one history: one row for each, indexed by ``label``.

    Parameters
    ----------
    frame, references : DataFrame
        The history that was replayed.
    replays : sequence of Replay
        The result of :func:`replay_each`.

    Returns
    -------
    DataFrame
        ========================  =============================================================
        ``policy``                short name
        ``family``                the name with its changed settings, without its size
        ``options``               command-line options; empty for a policy without a name
        ``retire``                whether memories are retired instead of deleted
        ``served``, ``lost``      share of references served; number of lost references
        ``offline_optimum``       largest share that any policy could serve if it never holds
                                  more than ``most_held`` prunable rows; see
                                  :func:`offline_optimum`
        ``boot_memories_mean``    mean over the moments of the history
        ``boot_tokens_mean``,     mean and 95th percentile over the moments of the history
        ``boot_tokens_p95``
        ``most_held``             largest number of prunable rows held at once
        ``deleted``               rows that are deleted or retired at the end
        ``only_here``             number of them that no other replay with the same ``retire``
                                  evicts
        ``lost_only_here``        lost references that no other replay with the same ``retire``
                                  loses
        ``floor_memories``,       load-bearing rows active at the end, which no policy touches
        ``floor_tokens``
        ========================  =============================================================

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> store = memlab.store_path("looked_up")
    >>> past = memlab.load_past(store)
    >>> references = memlab.find_references(past)
    >>> replays = memlab.replay.replay_each(past, references, [KeepRecent(20), KeepRecent(50)])
    >>> table = memlab.replay.summarise(past, references, replays)
    >>> table["most_held"].to_dict()
    {'recent 20': 20, 'recent 50': 50}
    """
    history = prepare_history(frame, references)
    deleted = deleted_rows(replays)
    lost = lost_references(replays)
    retires = np.array([replay.retire for replay in replays], dtype=bool)
    floor_memories = 0
    floor_tokens = 0
    if len(history):
        memories_over_time, tokens_over_time = history.lifetimes.floor
        floor_memories = int(memories_over_time[-1])
        floor_tokens = int(tokens_over_time[-1])
    optimum_of_capacity: dict[int, float] = {}
    rows = []
    for number, replay in enumerate(replays):
        if replay.most_held not in optimum_of_capacity:
            optimum_of_capacity[replay.most_held] = bound_of(history, replay.most_held).served
        tokens = replay.boot[BOOT_TOKENS].to_numpy()
        boot_tokens_p95 = np.nan
        if len(tokens):
            boot_tokens_p95 = mean_p95_max(tokens).p95
        ending = RETIRED if replay.retire else ""
        rows.append(
            {
                "label": label_of(replay.policy) + ending,
                "policy": replay.policy.name,
                "family": family_of(replay.policy) + ending,
                "options": options_of(replay.policy),
                "retire": replay.retire,
                "served": replay.served,
                "lost": replay.lost,
                "offline_optimum": optimum_of_capacity[replay.most_held],
                "boot_memories_mean": float(replay.boot[BOOT_MEMORIES].mean()),
                "boot_tokens_mean": float(replay.boot[BOOT_TOKENS].mean()),
                "boot_tokens_p95": float(boot_tokens_p95),
                "most_held": replay.most_held,
                "deleted": len(replay.deleted),
                "only_here": _count_only_here(deleted, number, retires),
                "lost_only_here": _count_only_here(lost, number, retires),
                "floor_memories": floor_memories,
                "floor_tokens": floor_tokens,
            }
        )
    table = pd.DataFrame(rows).set_index("label")
    # Whether each family of policies ranks memories by age or by use.
    ranks_by = {}
    for family, replay in zip(table["family"], replays, strict=True):
        ranks_by[family] = replay.policy.ranks_by
    table.attrs = {
        col.SOURCE: frame.attrs.get(col.SOURCE, ""),
        col.RECALLED: bool(frame.attrs.get(col.RECALLED)),
        col.REFERENCES: len(history.references),
        col.RANKS_BY: ranks_by,
    }
    return table


def _count_only_here(is_lost: Flags, number: int, retires: Flags) -> int:
    """Count the rows, or references, that one replay lost and no comparable replay did.

    Parameters
    ----------
    is_lost : array of bool, shape (rows or references, replays)
        Whether each row or reference was lost in each replay.
    number : int
        The number of the replay.
    retires : array of bool, shape (replays,)
        Whether each replay retires memories. Replays with equal values are comparable.
    """
    is_comparable = retires == retires[number]
    replays_that_lost = is_lost[:, is_comparable].sum(axis=1)
    return int((is_lost[:, number] & (replays_that_lost == 1)).sum())


def overlap(
    replays: Sequence[Replay], *, of: Literal["deleted", "lost"] = "deleted", share: bool = False
) -> pd.DataFrame:
    """Count the rows that each pair of policies both evicted, or the references that both lost.

    Over a history much longer than the caps, nearly every row is evicted by every policy in the
    end; lost references distinguish policies better.

    Parameters
    ----------
    replays : sequence of Replay
        Replays of one history.
    of : {"deleted", "lost"}
        Whether to count evicted rows or lost references.
    share : bool
        Divide each row by the policy's own number (NaN if that is 0).

    Returns
    -------
    DataFrame, shape (policies, policies)
        The diagonal holds each policy's own number.

    Raises
    ------
    ValueError
        If `of` is something else.

    Examples
    --------
    >>> import memlab
    >>> from memlab.policies import KeepRecent
    >>> store = memlab.store_path("looked_up")
    >>> replays = memlab.replay.replay_each(store, None, [KeepRecent(20), KeepRecent(50)])
    >>> shared = memlab.replay.overlap(replays, of="lost")
    >>> bool(shared.loc["recent 20", "recent 50"] == shared.loc["recent 50", "recent 50"])
    True
    """
    if of not in {"deleted", "lost"}:
        raise ValueError(f"of={of!r} is neither 'deleted' nor 'lost'")
    is_lost = deleted_rows(replays) if of == "deleted" else lost_references(replays)
    shared: np.typing.NDArray[Any] = is_lost.T.astype(np.int64) @ is_lost.astype(np.int64)
    if share:
        own_count = np.diag(shared).astype(np.float64)
        shared = shared / np.where(own_count > 0, own_count, np.nan)[:, None]
    labels = [label_of(replay.policy) for replay in replays]
    table = pd.DataFrame(shared, index=labels, columns=labels)
    if replays:
        table.attrs = replays[0].table_attrs
    return table


def deleted_rows(replays: Sequence[Replay]) -> Flags:
    """Flag the rows that each replay evicted, among those that at least one replay evicted.

    The shape is (rows, replays), with rows in order of position.
    """
    positions_by_replay = [replay.deleted[col.POSITION].to_numpy() for replay in replays]
    positions = np.unique(np.concatenate([np.empty(0, np.int64), *positions_by_replay]))
    is_deleted = np.zeros((len(positions), len(replays)), dtype=bool)
    for number, positions_of_replay in enumerate(positions_by_replay):
        is_deleted[np.searchsorted(positions, positions_of_replay), number] = True
    return is_deleted


def lost_references(replays: Sequence[Replay]) -> Flags:
    """Flag the references that each replay lost, shape (references, replays)."""
    if not replays:
        return np.empty((0, 0), dtype=bool)
    is_kept = [replay.references[KEPT].to_numpy(dtype=bool) for replay in replays]
    return ~np.column_stack(is_kept)
