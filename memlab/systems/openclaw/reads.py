"""OpenClaw's recall events, which its memory-core appends to a log in the workspace.

A read is a hit of a search on a note, one a note a day: schedules repeat a search all day long.
Searches that its own background sweeps make are left out. Nothing of a query is written down.
"""

from collections.abc import Iterator
from typing import Any, Final

from memlab.sources.reads import Asked, Found, LineReader, Read, mapping, moment, sequence, text
from memlab.systems.openclaw.source import NOTES, SKIPPED, SWEEP, OpenClaw, logs_of

NAME: Final = "an OpenClaw workspace"

_HOW: Final = {"memory.recall.recorded": "recall", SKIPPED: "skipped recall"}

SWEEPS: Final = "recalls by background sweeps"
NO_NOTE: Final = "hits on MEMORY.md, which every start loads, and on what is no note"
AGAIN: Final = "further hits on a note on the same day"
WITHOUT_TIME: Final = "recalls without a time"


def recognises(asked: Asked) -> bool:
    """Whether the source is a workspace, with such a log or before its first, or the log."""
    return bool(logs_of(asked.path)) or OpenClaw.recognise(asked.path, {}) is not None


def find(asked: Asked) -> Found:
    """Return what was recalled."""
    folders = [asked.path] if asked.path.is_dir() else []
    folders += [each.parent for each in asked.path.parents if each.name == NOTES]
    stores = (OpenClaw(each).name for each in folders if OpenClaw.recognise(each, {}))
    found = Found(store=next(stores, None))
    lines = LineReader(logs_of(asked.path), asked.progress, found)
    reads: dict[str, Read] = {}
    kinds = set()
    for file in lines.files:
        for event in lines.objects(file, lambda line: b"memory.recall." in line):
            kinds.add(text(event.get("type")))
            for read in _reads(event, found):
                found.left_out[AGAIN] += read.id in reads
                reads.setdefault(read.id, read)
    found.reads = sorted(reads.values(), key=lambda read: read.at)
    found.notes.append(
        "OpenClaw 2026.4.24 did not record searches by agents, and no version records memory_get: "
        "there were more reads than these"
    )
    if SKIPPED not in kinds:
        found.notes.append(
            f"there is no {SKIPPED}, so hits on notes without a date in their name are not "
            "recorded: memlab keeps those notes"
        )
    return found


def _reads(event: dict[str, Any], found: Found) -> Iterator[Read]:
    """Yield the notes that one event recalled."""
    how = _HOW.get(text(event.get("type")))
    if how is None:
        return
    if text(event.get("query")).startswith(SWEEP):
        found.left_out[SWEEPS] += 1
        return
    at = moment(event.get("timestamp"), found)
    if at is None:
        found.left_out[WITHOUT_TIME] += 1
        return
    paths = [text(mapping(result).get("path")) for result in sequence(event.get("results"))]
    for path in dict.fromkeys(each.replace("\\", "/").removeprefix("./") for each in paths):
        if OpenClaw.is_note(path):
            yield Read(path, at, f"openclaw:{at:%Y-%m-%d}:{path}", how)
        else:
            found.left_out[NO_NOTE] += 1
