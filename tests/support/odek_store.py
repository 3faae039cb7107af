"""Folders of odek's episodes, written as odek writes them."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DERIVED = ("episodes_vectors.gob", "episodes_embedder.gob", "episodes_index_meta.json")


def entry(session_id: str, summary: str, created_at: str, **provenance: Any) -> dict[str, Any]:
    """Return an entry of the index; the summary is cut by bytes, as odek does."""
    raw = summary.encode()
    if len(raw) > 120:
        summary = raw[:117].decode(errors="replace") + "..."
    return {
        "session_id": session_id,
        "turns": 4,
        "created_at": created_at,
        "summary": summary,
        "provenance": provenance,
    }


def nanoseconds(number: int) -> str:
    """Return a time in Go's format, the given seconds after the start."""
    moment = START + timedelta(seconds=number)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{123_456_789 + number:09d}Z"


def write_index(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Replace the index whole, indented as Go indents it."""
    draft = folder / ".index.json.tmp-0123456789abcdef"
    text = json.dumps(entries, indent=2, ensure_ascii=False)
    for char, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(char, escape)
    draft.write_text(text)
    draft.chmod(0o600)
    draft.rename(folder / "index.json")


def write_episode(folder: Path, session_id: str, summary: str) -> None:
    path = folder / f"{session_id}.md"
    path.write_text(summary)
    path.chmod(0o600)


def entries_of(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the index; none if it is missing."""
    index = folder / "index.json"
    if not index.exists():
        return []
    entries: list[dict[str, Any]] = json.loads(index.read_text())
    return entries


def write_odek(folder: Path, summaries: list[str], *, start: int = 0) -> Path:
    """Add episodes ``s0``, ``s1``, ..., with the files that odek derives from them."""
    folder.mkdir(mode=0o700, exist_ok=True)
    entries = entries_of(folder)
    for number, summary in enumerate(summaries, start):
        write_episode(folder, f"s{number}", summary)
        entries.append(entry(f"s{number}", summary, nanoseconds(number)))
    write_index(folder, entries)
    for name in DERIVED:
        (folder / name).write_bytes(b"vectors of " + os.urandom(8))
    return folder


def hold_lock_of_odek(folder: Path, reached: Path, go_on: Path) -> None:
    """Hold odek's lock until a file appears."""
    with (folder / "episodes.lock").open("a+") as lock:
        flock(lock, LOCK_EX)
        reached.touch()
        while not go_on.exists():
            time.sleep(0.01)
