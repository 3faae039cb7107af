"""OpenClaw workspaces with a known past, written as OpenClaw writes them."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.claude_store import write_memory

RECORDED = "memory.recall.recorded"
SKIPPED = "memory.recall.skipped"


def recall(at: datetime, *paths: str, kind: str = RECORDED, **changed: Any) -> dict[str, Any]:
    """Return the event of a search and the files that it hit."""
    results = [{"path": path, "startLine": 1, "endLine": 4, "score": 0.9} for path in paths]
    event = {"type": kind, "timestamp": f"{at:%Y-%m-%dT%H:%M:%S}.000Z", "query": "where is it"}
    return event | {"resultCount": len(results), "results": results, **changed}


def write_events(path: Path, *events: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(event, separators=(",", ":")) for event in events]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def days_before(day: date, count: int) -> list[date]:
    """Return consecutive days, the oldest first, ending with `day`."""
    return [day - timedelta(days=days) for days in reversed(range(count))]


def noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def write_workspace(
    workspace: Path, days: Sequence[date], *, undated: Iterable[str] = (), skipped: bool = False
) -> Path:
    """Write a note a day, recalled one and five days later, and some undated notes.

    With `skipped`, there are also events of hits on the undated notes, which OpenClaw skips.
    """
    for day in days:
        write_memory(workspace, f"memory/{day}.md", f"# {day}\n\n- did it 北京\n", noon(day))
    undated_files = [f"memory/{name}.md" for name in undated]
    for name in undated_files:
        write_memory(workspace, name, f"what is known of {name}\n", noon(days[0]))
    write_memory(workspace, "MEMORY.md", "# Long term\n" + "x" * 24_988, noon(days[-1]))
    write_memory(workspace, "AGENTS.md", "Search first.", noon(days[0]))
    write_memory(workspace, "memory/dreaming/light/report.md", "a dream", noon(days[0]))
    events = []
    for number, day in enumerate(days):
        hits = [f"memory/{days[number - distance]}.md" for distance in (1, 5) if number >= distance]
        if hits:
            events += [recall(noon(day), *hits), recall(noon(day), *hits, query="again")]
        events.append(recall(noon(day), f"memory/{days[0]}.md", query="__dreaming_light__"))
        if skipped and undated_files:
            hit = undated_files[number % len(undated_files)]
            events.append(recall(noon(day), "MEMORY.md", hit, kind=SKIPPED))
    write_events(workspace / "memory" / ".dreams" / "events.jsonl", *events)
    return workspace
