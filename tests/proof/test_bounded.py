"""How much memory a command takes at most, where a store is large in one way or another.

Each command runs in a process of its own, which says at its end how much it had at most: more than
the same command on a store of next to nothing.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from stores import episodes, row, write_rows

MB = 2**20
RUN = """
import resource, sys
from memlab.cli import main
try:
    main(sys.argv[1:], standalone_mode=False)
finally:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(most * (1 if sys.platform == "darwin" else 1024), file=sys.stderr)
"""
LOOKS = (
    ("show",),
    ("size",),
    ("compact", "--keep-recent", "5"),
    ("doctor",),
)


def most_of(store: Path, *words: str) -> int:
    """The most bytes that a command had."""
    command, *options = words
    done = subprocess.run(
        [sys.executable, "-c", RUN, command, str(store), *options],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stderr.split()[-1])


@cache
def most_of_next_to_nothing(*words: str) -> int:
    """What a command takes for itself."""
    with TemporaryDirectory() as folder:
        return most_of(write_rows(Path(folder) / "memory.db", episodes(20)), *words)


def more_than_for_nothing(store: Path, *words: str) -> int:
    return most_of(store, *words) - most_of_next_to_nothing(*words)


@pytest.mark.parametrize("words", LOOKS, ids=lambda words: str(words[0]))
def test_looking_at_a_large_memory_takes_less_room_than_the_memory(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    store = write_rows(tmp_path / "memory.db", [row("e0", body="é" * 32 * MB), *episodes(20)])
    assert more_than_for_nothing(store, *words) < 32 * MB
