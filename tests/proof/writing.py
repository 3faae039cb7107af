"""A process that puts, supersedes and compacts, with little rest. Standard library only."""

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memlab.items import REJECTED_PATH_TAG, MemoryItem, MemoryKind, MemoryProvenance
from memlab.store import SqliteMemoryStore

KEEP = 60
REST: Final = 0.02
"""Seconds between two puts, at most."""


@dataclass
class Written:
    """What one writer did, in its own words: items as put last, and what compactions deleted."""

    items: dict[str, MemoryItem] = field(default_factory=dict)
    superseded: set[str] = field(default_factory=set)
    deleted: int = 0


def write(store: Path, writer: int, puts: int) -> Written:
    """Put so many items; now and then supersede one of them, or compact the store."""
    rng = random.Random(writer)
    written = Written()
    with SqliteMemoryStore(store) as opened:
        for number in range(puts):
            item = _item(writer, number, rng)
            opened.put(item)
            written.items[item.memory_id] = item
            time.sleep(rng.uniform(0, REST))
            if number % 24 == 23:
                old = f"w{writer}-{number - rng.randrange(1, 24)}"
                try:
                    opened.supersede(old, by_memory_id=item.memory_id)
                except KeyError:  # compacted meanwhile
                    continue
                written.superseded.add(old)
            if number % 75 == 74:
                written.deleted += opened.compact_episodic(KEEP)
    return written


def _item(writer: int, number: int, rng: random.Random) -> MemoryItem:
    return MemoryItem(
        f"w{writer}-{number}",
        rng.choices(list(MemoryKind), weights=[1, 12, 1])[0],
        f"writer {writer}, number {number}",
        "body " * rng.randrange(200),
        MemoryProvenance(None, f"writer {writer}", source_task_ref=f"issue:#{number}"),
        tags=(REJECTED_PATH_TAG,) if rng.random() < 0.05 else (),
    )
