"""Small frames of memories, and what a policy does with them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from memlab.policies import Policy, decide
from tests.support.frames import make_frame

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SIGNALS: dict[str, tuple[Any, str]] = {
    "importance": (0.5, "float64"),
    "last_accessed_at": (pd.NaT, "datetime64[us, UTC]"),
    "expires_at": (pd.NaT, "datetime64[us, UTC]"),
    **dict.fromkeys(("agent_id", "thread_id", "namespace"), (None, "str")),
    "graduated": (False, "bool"),
    "trusted": (True, "bool"),
}
"""Default value and type of each signal."""


def memories(rows: list[dict[str, Any]], *, signals: bool = True) -> pd.DataFrame:
    """Return a frame with a row per dict; the defaults are those of an active, unused episode."""
    frame = make_frame(
        *(
            {
                "memory_id": f"m{number}",
                "title": f"memory {number}",
                "kind": "semantic" if memory.get("load_bearing") else "episodic",
                "created_at": pd.Timestamp(NOW - (len(rows) - number) * DAY),
                **{name: memory[name] for name in memory if name not in ("active", *SIGNALS)},
            }
            for number, memory in enumerate(rows)
        )
    )
    frame.insert(4, "body", pd.Series([memory.get("body", "") for memory in rows], dtype="str"))
    frame["active"] = pd.Series([memory.get("active", True) for memory in rows], dtype="bool")
    frame["prunable"] = frame["active"] & ~frame["load_bearing"]
    if signals:
        for name, (usual, dtype) in SIGNALS.items():
            frame[name] = pd.Series([memory.get(name, usual) for memory in rows], dtype=dtype)
    return frame


def kept_ids(frame: pd.DataFrame, policy: Policy) -> list[str]:
    return frame.loc[decide(frame, policy, now=NOW)["keep"], "memory_id"].tolist()


def deleted_ids(frame: pd.DataFrame, policy: Policy) -> list[str]:
    return frame.loc[~decide(frame, policy, now=NOW)["keep"], "memory_id"].tolist()
