"""An archive held against its store, plan by plan: what does not fit, and what to do."""

from collections.abc import Iterator
from typing import NamedTuple

from memlab.compaction.applying import is_carried_out
from memlab.compaction.locating import locate, some_of
from memlab.compaction.words import command
from memlab.sources.base import Key, Reader, Source
from memlab.store.archive import Archive
from memlab.store.archive_entries import Entry

Fault = tuple[str, str]
"""What does not fit, and what to do about it."""


class Comparison(NamedTuple):
    """What an archive and its store say of each other.

    Attributes
    ----------
    plans, memories : int
        How many the archive has.
    unfinished : int
        How many plans were cut short.
    faults : tuple of Fault
        What does not fit; none where all does.
    """

    plans: int
    memories: int
    unfinished: int
    faults: tuple[Fault, ...]


def compared(reader: Reader, source: Source, archive: Archive) -> Comparison:
    """Hold an archive against its store, at one moment of both. Reads only."""
    entries = archive.entries()
    last = _last_deleted(archive, entries)
    faults = list(_damaged(archive, entries))
    unfinished = 0
    for entry in entries:
        cut_short = _cut_short(reader, source, archive, entry)
        unfinished += cut_short is not None
        faults += [cut_short] if cut_short else _standing(reader, source, archive, entry, last)
    memories = sum(entry.left for entry in entries)
    return Comparison(len(entries), memories, unfinished, tuple(faults))


def _last_deleted(archive: Archive, entries: list[Entry]) -> dict[Key, int]:
    """Return, of each key, the last deletion that archived it."""
    return {copy.key: entry.apply for entry in entries for copy in archive.copies(entry)}


def _damaged(archive: Archive, entries: list[Entry]) -> Iterator[Fault]:
    if damaged := [f"position {key}" for entry in entries for key in archive.damaged(entry)]:
        yield (
            f"{len(damaged):,} copies are not what was archived ({some_of(damaged)})",
            "restore a backup of the archive; the other copies can be restored",
        )


def _cut_short(reader: Reader, source: Source, archive: Archive, entry: Entry) -> Fault | None:
    """Say what is unfinished about an apply, and the ways out; None where nothing is."""
    if entry.finished_at is not None or is_carried_out(reader, source, archive, entry):
        return None
    drop = command("archive", source.name, "--drop", entry.digest[:12], "--apply")
    finish = command("finish", source.name, entry.digest[:12])
    if not entry.memories:
        fault = f"plan {entry.digest[:12]} was cut short before it superseded anything"
        return fault, f"finish it with {finish}, or forget it with {drop}"
    located = locate(reader, source, archive, entry, archive.copies(entry))
    there = len(located.same) + len(located.changed)
    fault = (
        f"plan {entry.digest[:12]} was cut short: {entry.left:,} memories archived, {there:,} of "
        "them not deleted"
    )
    if len(located.same) < entry.left:
        restore = command("restore", source.name, entry.digest[:12])
        return fault, f"some went or changed meanwhile: bring them back with {restore}, or {drop}"
    if not entry.planned:
        return fault, f"the runtime's next compaction drops the copies, or {drop}"
    return fault, f"finish it with {finish}, or drop the copies with {drop}"


def _standing(
    reader: Reader, source: Source, archive: Archive, entry: Entry, last: dict[Key, int]
) -> list[Fault]:
    """Say where a deletion that is done and its store do not agree on what was restored."""
    copies = archive.copies(entry)
    if not copies:
        return []
    located = locate(reader, source, archive, entry, copies)
    back = [c for c in copies if c.restored_at is None and c.key in located.same]
    lost = [
        copy
        for copy in copies
        if copy.restored_at is not None
        and copy.key in located.absent | located.taken
        and last[copy.key] == entry.apply
    ]
    restore = command("restore", source.name, entry.digest[:12])
    faults = []
    if back:
        fault = f"{len(back):,} memories that plan {entry.digest[:12]} deleted are in the store"
        advice = f"if restored, {restore} records it; else the store is an older copy: compact it"
        faults.append((f"{fault} again", advice))
    if lost:
        fault = f"{len(lost):,} memories that plan {entry.digest[:12]} deleted are called restored"
        advice = f"{restore} brings them back, unless something else deleted them since"
        faults.append((f"{fault} and are not in the store", advice))
    return faults
