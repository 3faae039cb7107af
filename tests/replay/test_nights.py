"""A replay that retires agrees with plans applied every night."""

import csv
import gzip
import json
from collections.abc import Iterator
from datetime import date, datetime
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

import memlab
from memlab import Activation
from memlab import columns as c
from memlab.replay import replay
from tests.support.stores import row, write_rows

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
STORES = ("recalls-r01", "recalls-r10", "recalls-r16", "recalls-r18", "recalls-r22")


def rows_of(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(DATA / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
        yield from csv.DictReader(file)


class Read(NamedTuple):
    """A read of a note, which is named by its number."""

    at: datetime
    note: int


class History(NamedTuple):
    """Creation times of notes, and their reads in order, at most one of a note a day."""

    created: list[datetime]
    reads: list[Read]


@pytest.fixture(scope="module", params=STORES)
def recorded(request: pytest.FixtureRequest) -> History:
    """Return the history of the notes of a public store."""
    name = str(request.param)
    if not (DATA / f"{name}-memories.csv.gz").exists():
        pytest.skip(f"no recorded store {name} (shared/data) beside the checkout")
    created = [datetime.fromisoformat(note["born"]) for note in rows_of(f"{name}-memories")]
    first_reads: dict[tuple[date, int], Read] = {}
    for hit in rows_of(f"{name}-reads"):
        read = Read(datetime.fromisoformat(hit["at"]), int(hit["position"]))
        if hit["best"] == "1" and read.at > created[read.note]:
            first_reads.setdefault((read.at.date(), read.note), read)
    return History(created, sorted(first_reads.values()))


def replay_nights(
    folder: Path, history: History, policy: Activation, *, silent: bool
) -> list[bool]:
    """Write the notes into a store that is compacted nightly; return a flag for each read.

    The flag is true if the note was loaded when it was read.
    """
    store = write_rows(folder / "memory.db", [])
    log = folder / "reads.jsonl"
    log.touch()
    (folder / "memlab.toml").write_text('log = "reads.jsonl"\n')
    events = [(at, True, note) for note, at in enumerate(history.created)]
    events += [(read.at, False, read.note) for read in history.reads]
    was_loaded = []
    day = min(history.created).date()
    for at, is_written, note in sorted(events, key=itemgetter(0)):
        if at.date() > day:
            day = at.date()
            midnight = datetime.combine(day, datetime.min.time(), at.tzinfo)
            memlab.apply(memlab.plan(store, policy, retire=True, now=midnight), now=midnight)
        if is_written:
            write_rows(store, [row(f"m{note}", created_at=at.isoformat())])
            continue
        frame = memlab.load(store).set_index(c.MEMORY_ID)
        is_loaded = bool(frame[c.ACTIVE][f"m{note}"])
        was_loaded.append(is_loaded)
        if not (silent and is_loaded):
            with log.open("a") as file:
                file.write(json.dumps({"memory_id": f"m{note}", "at": at.isoformat()}) + "\n")
    return was_loaded


@pytest.mark.long
@pytest.mark.parametrize(
    "silent", [False, True], ids=["every read is logged", "reads of loaded memories are silent"]
)
def test_replay_agrees_with_nightly_plans_on_a_store(
    tmp_path: Path, recorded: History, silent: bool
) -> None:
    rows = [row(f"m{note}", created_at=at.isoformat()) for note, at in enumerate(recorded.created)]
    frame = memlab.load(write_rows(tmp_path / "whole.db", rows))
    log = pd.DataFrame(
        {
            c.MEMORY_ID: [f"m{read.note}" for read in recorded.reads],
            c.AT: pd.to_datetime([read.at for read in recorded.reads], utc=True),
        }
    )
    references = memlab.find_references(frame, log, only_log=True)
    policy = Activation(round(0.25 * len(frame)))
    (tmp_path / "nights").mkdir()
    was_loaded = replay_nights(tmp_path / "nights", recorded, policy, silent=silent)
    replayed = replay(frame, references, policy, retire=True, silent=silent)
    assert len(replayed.references) == len(was_loaded)
    assert replayed.served == pytest.approx(sum(was_loaded) / len(was_loaded), abs=0.02)
