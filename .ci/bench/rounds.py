"""A real history written in parts, sized and compacted after each, beside one that is not."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd
from click.testing import CliRunner

import memlab
from memlab import columns as c
from memlab.cli import main
from memlab.evidence.past import load_past
from memlab.settings import read_settings

ROUNDS: Final = 10


class Round(NamedTuple):
    """What a round of sizing and compacting chose, and what it cost."""

    written: int
    cap: int | None
    uncompacted: int | None
    """Recommended for a store that nothing was deleted from."""
    verdict: str
    deleted: int
    references: int
    """Since the round before."""
    missed: int
    """Those whose memory had been deleted by then."""


def rounds_of(whole: Path, folder: Path, *, rounds: int = ROUNDS) -> Iterator[Round]:
    """Write a history in parts into a store that is compacted after each, and one that is not."""
    compacted = folder / "compacted.db"
    uncompacted = folder / "uncompacted.db"
    for store in (compacted, uncompacted):
        shutil.copy(whole, store)
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("DELETE FROM memory_items")
    written = 0
    for part in _parts(whole, rounds):
        for store in (compacted, uncompacted):
            _write(store, whole, part)
        past = load_past(compacted)
        references, missed = _missed(past, written)
        written += part[1] - part[0] + 1
        verdict = _answer("size", compacted, "--save", "--json")["verdict"]
        beside = _answer("size", uncompacted, "--json")["keep_recent"]
        cap = read_settings(folder, compacted.name).keep_recent
        before = len(memlab.load(compacted))
        _answer("maintain", compacted, "--apply", "--json")
        deleted = before - len(memlab.load(compacted))
        yield Round(written, cap, beside, verdict, deleted, references, missed)


def _answer(*words: object) -> dict[str, Any]:
    """Return what a command prints as JSON; it must end well."""
    ran = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    if ran.exit_code:
        raise RuntimeError(f"memlab {' '.join(map(str, words))}: {ran.output}")
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def _parts(whole: Path, rounds: int) -> Iterator[tuple[int, int]]:
    with closing(sqlite3.connect(whole)) as connection:
        first, last = connection.execute(
            "SELECT min(rowid), max(rowid) FROM memory_items"
        ).fetchone()
    edges = [first + (last + 1 - first) * part // rounds for part in range(rounds + 1)]
    yield from ((low, high - 1) for low, high in pairwise(edges))


def _write(store: Path, whole: Path, part: tuple[int, int]) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("ATTACH ? AS whole", (str(whole),))
        names = [name for _, name, *_ in connection.execute("PRAGMA table_info(memory_items)")]
        listed = ", ".join(["rowid", *names])
        connection.execute(
            f"INSERT INTO main.memory_items ({listed}) SELECT {listed} FROM whole.memory_items "
            "WHERE rowid BETWEEN ? AND ?",
            part,
        )


def _missed(past: pd.DataFrame, written: int) -> tuple[int, int]:
    """Return how many references the newest part makes, and how many are to what is gone."""
    found = memlab.find_references(past)
    new = found[found[c.AT_POSITION] > written]
    gone = past.loc[past[c.DELETED_AT].notna(), c.POSITION]
    return len(new), int(new[c.TARGET_POSITION].isin(gone).sum())
