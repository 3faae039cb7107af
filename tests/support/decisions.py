"""Small frames of memories, and what a policy does with them."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pandas as pd

from memlab.policies import Policy, decide
from tests.support.frames import make_frame

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Signal(NamedTuple):
    """A column of signals."""

    default: Any
    dtype: str


SIGNALS = {
    "importance": Signal(0.5, "float64"),
    "last_accessed_at": Signal(pd.NaT, "datetime64[us, UTC]"),
    "expires_at": Signal(pd.NaT, "datetime64[us, UTC]"),
    "agent_id": Signal(None, "str"),
    "thread_id": Signal(None, "str"),
    "namespace": Signal(None, "str"),
    "graduated": Signal(default=False, dtype="bool"),
    "trusted": Signal(default=True, dtype="bool"),
}


def memories(rows: list[dict[str, Any]], *, signals: bool = True) -> pd.DataFrame:
    """Return a frame with a row per dict; the defaults are those of an active, unused episode."""
    frame_rows = []
    for number, memory in enumerate(rows):
        defaults = {
            "memory_id": f"m{number}",
            "title": f"memory {number}",
            "kind": "semantic" if memory.get("load_bearing") else "episodic",
            "created_at": pd.Timestamp(NOW - (len(rows) - number) * DAY),
        }
        fields = {name: memory[name] for name in memory if name not in ("active", *SIGNALS)}
        frame_rows.append(defaults | fields)
    frame = make_frame(*frame_rows)
    frame.insert(4, "body", pd.Series([memory.get("body", "") for memory in rows], dtype="str"))
    frame["active"] = pd.Series([memory.get("active", True) for memory in rows], dtype="bool")
    frame["prunable"] = frame["active"] & ~frame["load_bearing"]
    if signals:
        for name, signal in SIGNALS.items():
            values = [memory.get(name, signal.default) for memory in rows]
            frame[name] = pd.Series(values, dtype=signal.dtype)
    return frame


def kept_ids(frame: pd.DataFrame, policy: Policy) -> list[str]:
    """List the ids that a policy keeps."""
    return frame.loc[decide(frame, policy, now=NOW)["keep"], "memory_id"].tolist()


def deleted_ids(frame: pd.DataFrame, policy: Policy) -> list[str]:
    """List the ids that a policy deletes."""
    return frame.loc[~decide(frame, policy, now=NOW)["keep"], "memory_id"].tolist()
