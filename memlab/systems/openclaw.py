"""OpenClaw: recall events, which its memory-core appends to a log in the workspace.

A read is a result of a recorded recall. A memory is a file of the workspace, such as
``memory/2026-04-05.md``. Recalls that its own background sweeps make are left out, and so are the
hits that it says it skipped.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from memlab.sources.reads import Asked, Found, LineReader, Read, mapping, moment, sequence, text

NAME: Final = "an OpenClaw workspace"

_LOGS: Final = ("memory/.dreams/events.jsonl", "memory/events/*/memory-host-events.jsonl")
_RECALL: Final = "memory.recall.recorded"
_SKIPPED: Final = "memory.recall.skipped"
_SWEEP: Final = "__dreaming_"

SWEEPS: Final = "recalls by background sweeps"
SKIPPED: Final = "hits that OpenClaw itself did not count, such as MEMORY.md"
WITHOUT_TIME: Final = "recalls without a time"
WITHOUT_PATH: Final = "results without a path"


def recognises(asked: Asked) -> bool:
    """Whether the source is a workspace with such a log, or the log."""
    return bool(_logs(asked.path))


def find(asked: Asked) -> Found:
    """Return what was recalled."""
    found = Found()
    lines = LineReader(_logs(asked.path), asked.progress, found)
    reads: dict[str, Read] = {}
    for file in lines.files:
        for event in lines.objects(file, lambda line: b"memory.recall." in line):
            for read in _reads(event, found):
                reads.setdefault(read.id, read)  # a newer log exports what an older one has
    found.reads = sorted(reads.values(), key=lambda read: read.at)
    found.notes.append(
        "OpenClaw 2026.4.24 did not record searches by agents, and no version records memory_get: "
        "there were more reads than these"
    )
    return found


def _reads(event: dict[str, Any], found: Found) -> Iterator[Read]:
    """Yield the memories that one event recalled, each once."""
    kind, query = event.get("type"), text(event.get("query"))
    if kind == _SKIPPED:
        found.left_out[SKIPPED] += 1
    if kind != _RECALL:
        return
    if query.startswith(_SWEEP):
        found.left_out[SWEEPS] += 1
        return
    at = moment(event.get("timestamp"), found)
    if at is None:
        found.left_out[WITHOUT_TIME] += 1
        return
    paths = [text(mapping(result).get("path")) for result in sequence(event.get("results"))]
    found.left_out[WITHOUT_PATH] += paths.count("")
    for path in dict.fromkeys(paths):
        if path:
            told = sha256(f"{at.isoformat()}\0{query}\0{path}".encode()).hexdigest()
            yield Read(path, at, f"openclaw:{told[:24]}", "recall")


def _logs(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(log for name in _LOGS for log in path.glob(name))
    is_log = path.name in {Path(name).name for name in _LOGS} and path.is_file()
    return [path] if is_log else []
