"""Small frames of memories, and what a policy does with them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from memlab.policies import Policy, decide

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def memories(rows: list[dict[str, Any]], *, signals: bool = True) -> pd.DataFrame:
    """A frame with a row per dict; what a dict leaves out is an active, unused episode."""
    count = len(rows)
    frame = pd.DataFrame(
        {
            "position": pd.Series(range(1, count + 1), dtype="int64"),
            "memory_id": pd.Series([f"m{i}" for i in range(count)], dtype="str"),
            "title": pd.Series(
                [r.get("title", f"memory {i}") for i, r in enumerate(rows)], dtype="str"
            ),
            "body": pd.Series([r.get("body", "") for r in rows], dtype="str"),
            "tags": [r.get("tags", ()) for r in rows],
            "kind": pd.Categorical(
                ["semantic" if r.get("load_bearing") else "episodic" for r in rows]
            ),
            "chars": pd.Series([r.get("chars", 40) for r in rows], dtype="int64"),
            "tokens": pd.Series([r.get("tokens", 10) for r in rows], dtype="int64"),
            "source_task_ref": pd.Series([None] * count, dtype="str"),
            "authored_by": pd.Series(["agent"] * count, dtype="str"),
            "confidence": pd.Series([1.0] * count, dtype="float64"),
            "supersedes": pd.Series([()] * count, dtype="object"),
            "evidence_refs": pd.Series([()] * count, dtype="object"),
            "superseded_by": pd.Series([None] * count, dtype="str"),
            "created_at": times(
                r.get("created_at", NOW - (count - i) * DAY) for i, r in enumerate(rows)
            ),
            "active": pd.Series([r.get("active", True) for r in rows], dtype="bool"),
            "load_bearing": pd.Series([r.get("load_bearing", False) for r in rows], dtype="bool"),
        }
    )
    if signals:
        frame["importance"] = pd.Series([r.get("importance", 0.5) for r in rows], dtype="float64")
        frame["last_accessed_at"] = times(r.get("last_accessed_at") for r in rows)
        frame["expires_at"] = times(r.get("expires_at") for r in rows)
        for name in ("agent_id", "thread_id", "namespace"):
            frame[name] = pd.Series([r.get(name) for r in rows], dtype="str")
        frame["graduated"] = pd.Series([r.get("graduated", False) for r in rows], dtype="bool")
        frame["trusted"] = pd.Series([r.get("trusted", True) for r in rows], dtype="bool")
    frame["prunable"] = frame["active"] & ~frame["load_bearing"]
    return frame


def times(values: Any) -> "pd.Series[Any]":
    return pd.Series([pd.NaT if v is None else v for v in values], dtype="datetime64[us, UTC]")


def kept(frame: pd.DataFrame, policy: Policy, *, now: datetime = NOW) -> list[str]:
    return frame.loc[decide(frame, policy, now=now)["keep"], "memory_id"].tolist()


def went(frame: pd.DataFrame, policy: Policy, *, now: datetime = NOW) -> list[str]:
    return frame.loc[~decide(frame, policy, now=now)["keep"], "memory_id"].tolist()
