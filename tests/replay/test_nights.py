"""A replay that retires agrees with plans applied every night."""

import csv
import gzip
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path

import pandas as pd
import pytest

import memlab
from memlab import Activation
from memlab import columns as c
from memlab.replay import replay
from tests.support.stores import row, write_rows

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
STORES = ("recalls-r01", "recalls-r10", "recalls-r16", "recalls-r18", "recalls-r22")
DAY = timedelta(days=1)


def rows_of(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(DATA / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
        yield from csv.DictReader(file)


@pytest.fixture(scope="module", params=STORES)
def recorded(request: pytest.FixtureRequest) -> tuple[list[datetime], list[tuple[datetime, int]]]:
    """Return creation times and daily reads of the notes of a public store."""
    name = str(request.param)
    if not (DATA / f"{name}-memories.csv.gz").exists():
        pytest.skip(f"no recorded store {name} (shared/data) beside the checkout")
    born = [datetime.fromisoformat(note["born"]) for note in rows_of(f"{name}-memories")]
    reads: dict[tuple[str, int], datetime] = {}
    for hit in rows_of(f"{name}-reads"):
        at = datetime.fromisoformat(hit["at"])
        note = int(hit["position"])
        if hit["best"] == "1" and at > born[note]:
            reads.setdefault((hit["at"][:10], note), at)
    return born, sorted((at, note) for (_, note), at in reads.items())


def nights(
    folder: Path,
    born: list[datetime],
    reads: list[tuple[datetime, int]],
    policy: Activation,
    *,
    silent: bool,
) -> list[bool]:
    """Write the notes into a store compacted nightly; return whether each read was loaded."""
    store = write_rows(folder / "memory.db", [])
    log = folder / "reads.jsonl"
    log.touch()
    (folder / "memlab.toml").write_text('log = "reads.jsonl"\n')
    events = [(at, True, note) for note, at in enumerate(born)]
    events += [(at, False, note) for at, note in reads]
    active = []
    day = min(born).date()
    for at, is_written, note in sorted(events, key=itemgetter(0)):
        if at.date() > day:
            day = at.date()
            midnight = datetime.combine(day, datetime.min.time(), at.tzinfo)
            memlab.apply(memlab.plan(store, policy, retire=True, now=midnight), now=midnight)
        if is_written:
            write_rows(store, [row(f"m{note}", created_at=at.isoformat())])
            continue
        frame = memlab.load(store).set_index(c.MEMORY_ID)
        active.append(bool(frame[c.ACTIVE][f"m{note}"]))
        if not (silent and active[-1]):
            with log.open("a") as file:
                file.write(json.dumps({"memory_id": f"m{note}", "at": at.isoformat()}) + "\n")
    return active


@pytest.mark.long
@pytest.mark.parametrize(
    "silent", [False, True], ids=["every read is logged", "reads of loaded memories are silent"]
)
def test_replay_agrees_with_nightly_plans_on_a_store(
    tmp_path: Path,
    recorded: tuple[list[datetime], list[tuple[datetime, int]]],
    silent: bool,
) -> None:
    born, reads = recorded
    rows = [row(f"m{note}", created_at=at.isoformat()) for note, at in enumerate(born)]
    frame = memlab.load(write_rows(tmp_path / "whole.db", rows))
    log = pd.DataFrame(
        {
            c.MEMORY_ID: [f"m{note}" for _, note in reads],
            c.AT: pd.to_datetime([at for at, _ in reads], utc=True),
        }
    )
    references = memlab.find_references(frame, log, only_log=True)
    policy = Activation(round(0.25 * len(frame)))
    (tmp_path / "nights").mkdir()
    by_night = nights(tmp_path / "nights", born, reads, policy, silent=silent)
    replayed = replay(frame, references, policy, retire=True, silent=silent)
    assert len(replayed.references) == len(by_night)
    assert replayed.served == pytest.approx(sum(by_night) / len(by_night), abs=0.02)
