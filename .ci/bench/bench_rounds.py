"""Size and compact a recorded history ten times while it grows, beside the same history untouched.

    python .ci/bench/bench_rounds.py [NAME...]

A round writes a tenth of the memories, in their order, and runs the nightly commands: ``memlab size
STORE --save``, then ``memlab maintain STORE --apply``. Prints for each round the cap that
``memlab.toml`` holds afterwards, the cap of the same history if nothing had been deleted, the
number of deleted memories, and how many references of the round were to deleted memories.
"""

import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pandas as pd
from click.testing import CliRunner
from recorded import build_store

import memlab
from memlab import columns as c
from memlab.cli import main as memlab_command
from memlab.evidence.past import load_past
from memlab.settings import read_settings

ROUNDS: Final = 10
NAMES: Final = ("history-uv", "history-bevy", "history-arrow-rs", "history-deno")


class Part(NamedTuple):
    """Rows of a history by ``rowid``, both ends included."""

    first: int
    last: int


class Round(NamedTuple):
    """The results of a round.

    Attributes
    ----------
    written : int
        Number of memories written so far.
    cap : int or None
        The cap that is saved afterwards.
    uncompacted : int or None
        The cap for the store from which nothing was deleted.
    verdict : str
    deleted : int
        Number of memories that the round deleted.
    references : int
        Number of references in the round's part of the history.
    missed : int
        Number of these whose memory was already deleted.
    """

    written: int
    cap: int | None
    uncompacted: int | None
    verdict: str
    deleted: int
    references: int
    missed: int


def run_rounds(history: Path, folder: Path) -> Iterator[Round]:
    """Write a history into two stores in parts, and compact one of them after each part."""
    compacted = folder / "compacted.db"
    uncompacted = folder / "uncompacted.db"
    for store in (compacted, uncompacted):
        shutil.copy(history, store)
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("DELETE FROM memory_items")
    written = 0
    for part in split(history):
        for store in (compacted, uncompacted):
            copy_rows(history, part, store)
        past = load_past(compacted)
        references = new_references(past, written)
        written += part.last - part.first + 1
        verdict = run_command("size", compacted, "--save", "--json")["verdict"]
        uncompacted_cap = run_command("size", uncompacted, "--json")["keep_recent"]
        cap = read_settings(folder, compacted.name).keep_recent
        count = len(memlab.load(compacted))
        run_command("maintain", compacted, "--apply", "--json")
        yield Round(
            written=written,
            cap=cap,
            uncompacted=uncompacted_cap,
            verdict=verdict,
            deleted=count - len(memlab.load(compacted)),
            references=len(references),
            missed=count_missed(references, past),
        )


def split(history: Path) -> Iterator[Part]:
    """Yield parts of about the same size, in order."""
    with closing(sqlite3.connect(history)) as connection:
        limits = connection.execute("SELECT min(rowid), max(rowid) FROM memory_items")
        first, last = limits.fetchone()
    count = last - first + 1
    starts = [first + count * number // ROUNDS for number in range(ROUNDS + 1)]
    for start, next_start in pairwise(starts):
        yield Part(start, next_start - 1)


def copy_rows(history: Path, part: Part, store: Path) -> None:
    """Copy a part of a history into a store."""
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("ATTACH ? AS history", (str(history),))
        table_info = connection.execute("PRAGMA table_info(memory_items)")
        columns = ", ".join(["rowid", *(name for _, name, *_ in table_info)])
        connection.execute(
            f"INSERT INTO main.memory_items ({columns}) SELECT {columns} "
            "FROM history.memory_items WHERE rowid BETWEEN ? AND ?",
            part,
        )


def run_command(*arguments: object) -> dict[str, Any]:
    """Run a command of memlab, and return the JSON that it prints."""
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(memlab_command, words, catch_exceptions=False)
    if result.exit_code:
        raise RuntimeError(f"memlab {' '.join(words)}: {result.output}")
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def new_references(past: pd.DataFrame, written: int) -> pd.DataFrame:
    """Find the references that memories after the first `written` ones make."""
    references = memlab.find_references(past)
    return references[references[c.AT_POSITION] > written]


def count_missed(references: pd.DataFrame, past: pd.DataFrame) -> int:
    """Count the references to deleted memories."""
    deleted = past.loc[past[c.DELETED_AT].notna(), c.POSITION]
    return int(references[c.TARGET_POSITION].isin(deleted).sum())


def main() -> None:
    """Print the rounds of each history."""
    for name in sys.argv[1:] or NAMES:
        with TemporaryDirectory() as folder:
            history = build_store(name, Path(folder) / "history.db")
            print(f"\n{name}\n{'written':>8} {'cap':>6} {'uncompacted':>12} {'deleted':>8} missed")
            for result in run_rounds(history, Path(folder)):
                print(
                    f"{result.written:>8,} {result.cap!s:>6} {result.uncompacted!s:>12} "
                    f"{result.deleted:>8,} {result.missed:,} of {result.references:,}  "
                    f"{result.verdict}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
