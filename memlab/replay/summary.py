"""Replays of one history side by side: a table of them, and how much any two agree."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from memlab import columns as col
from memlab.frame.fields import Flags
from memlab.policies.named import family_of, label_of, options_of
from memlab.replay.life import life_of
from memlab.replay.walk import BOOT_MEMORIES, BOOT_TOKENS, KEPT, Replay, bound_of
from memlab.sizing.lifetimes import mean_p95_max

RETIRED: Final = ", retired"
"""Ending of a label: the memories that go can come back."""


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
        ``retire``                whether memories that went could come back
        ``served``, ``lost``      share of references served; number of lost references
        ``oracle``                share that the optimal offline bound serves in ``most_held``
                                  slots
        ``boot_memories_mean``    mean over the moments of the history
        ``boot_tokens_mean``,     mean and 95th percentile over the moments of the history
        ``boot_tokens_p95``
        ``most_held``             largest number of prunable rows held at once
        ``deleted``               rows that went and have not come back
        ``only_here``             of these, rows that no other policy let go, of those that
                                  delete or that retire like it
        ``lost_only_here``        references that no other such policy lost
        ``floor_memories``,       load-bearing rows active at the end, which no policy touches
        ``floor_tokens``
        ========================  =============================================================
    """
    life = life_of(frame, references)
    deleted = deleted_rows(replays)
    lost = lost_references(replays)
    retire = np.array([replay.retire for replay in replays], dtype=bool)
    floor_memories = 0
    floor_tokens = 0
    if len(life):
        floor_memories = int(life.lifetimes.floor[0][-1])
        floor_tokens = int(life.lifetimes.floor[1][-1])
    bounds: dict[int, float] = {}
    rows = []
    for number, replay in enumerate(replays):
        if replay.most_held not in bounds:
            bounds[replay.most_held] = bound_of(life, replay.most_held).served
        tokens = replay.boot[BOOT_TOKENS].to_numpy()
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
                "oracle": bounds[replay.most_held],
                "boot_memories_mean": float(replay.boot[BOOT_MEMORIES].mean()),
                "boot_tokens_mean": float(replay.boot[BOOT_TOKENS].mean()),
                "boot_tokens_p95": float(mean_p95_max(tokens)[1]) if len(tokens) else np.nan,
                "most_held": replay.most_held,
                "deleted": len(replay.deleted),
                "only_here": _alone(deleted, number, retire),
                "lost_only_here": _alone(lost, number, retire),
                "floor_memories": floor_memories,
                "floor_tokens": floor_tokens,
            }
        )
    table = pd.DataFrame(rows).set_index("label")
    goes_by = {}
    for family, replay in zip(table["family"].tolist(), replays, strict=True):
        goes_by[family] = replay.policy.goes_by
    table.attrs = {
        col.SOURCE: frame.attrs.get(col.SOURCE, ""),
        col.RECALLED: bool(frame.attrs.get(col.RECALLED)),
        col.REFERENCES: len(life.references),
        col.GOES_BY: goes_by,
    }
    return table


def _alone(is_lost: Flags, number: int, retire: Flags) -> int:
    """Count the rows or references that one replay lost and no other of its kind."""
    of_kind = is_lost[:, retire == retire[number]]
    is_lost_once = of_kind.sum(axis=1) == 1
    return int((is_lost[:, number] & is_lost_once).sum())


def overlap(
    replays: Sequence[Replay], *, of: Literal["deleted", "lost"] = "deleted", share: bool = False
) -> pd.DataFrame:
    """Return how many rows two policies both let go, or how many references both lost.

    Over a history much longer than the caps, nearly every row goes under every policy in the end;
    lost references distinguish policies better.

    Parameters
    ----------
    replays : sequence of Replay
        Replays of one history.
    of : {"deleted", "lost"}
        Rows that went, or references that were lost.
    share : bool
        Divide each row by the policy's own number (NaN if that is 0).

    Returns
    -------
    DataFrame, shape (policies, policies)
        The diagonal holds each policy's own number.
    """
    if of not in {"deleted", "lost"}:
        raise ValueError(f"of={of!r} is neither 'deleted' nor 'lost'")
    is_lost = deleted_rows(replays) if of == "deleted" else lost_references(replays)
    both: np.typing.NDArray[Any] = is_lost.T.astype(np.int64) @ is_lost.astype(np.int64)
    if share:
        own = np.diag(both).astype(np.float64)
        both = both / np.where(own > 0, own, np.nan)[:, None]
    labels = [label_of(replay.policy) for replay in replays]
    table = pd.DataFrame(both, index=labels, columns=labels)
    if replays:
        table.attrs = replays[0].told
    return table


def deleted_rows(replays: Sequence[Replay]) -> Flags:
    """Return which rows went under which policy, for rows that went under any."""
    positions_of = [replay.deleted[col.POSITION].to_numpy() for replay in replays]
    positions = np.unique(np.concatenate([np.empty(0, np.int64), *positions_of]))
    is_deleted = np.zeros((len(positions), len(replays)), dtype=bool)
    for number, own in enumerate(positions_of):
        is_deleted[np.searchsorted(positions, own), number] = True
    return is_deleted


def lost_references(replays: Sequence[Replay]) -> Flags:
    """Return which references were lost under which policy, shape (references, replays)."""
    if not replays:
        return np.empty((0, 0), dtype=bool)
    kept = [replay.references[KEPT].to_numpy(dtype=bool) for replay in replays]
    return ~np.column_stack(kept)
