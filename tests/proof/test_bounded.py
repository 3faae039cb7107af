"""Upper bounds on the memory that commands use on large stores.

Each command runs in a process of its own, which prints its peak memory at its end. It is compared
with the peak of the same command on a tiny store.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from memlab.store.database import CREATE_TABLE
from tests.support.stores import episodes, row, run_sql, write_rows

MB = 2**20
RUN = """
import resource, sys
from memlab.cli import main
try:
    main(sys.argv[1:], standalone_mode=False)
finally:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    print(peak * unit, file=sys.stderr)
"""
READING_COMMANDS = ("show", "size", "compact --keep-recent 5", "doctor")


def peak_memory(store: Path, *arguments: str) -> int:
    """Return the peak memory of a command on a store, in bytes."""
    command, *options = arguments
    program = [sys.executable, "-c", RUN, command, str(store), *options]
    result = subprocess.run(program, capture_output=True, text=True, check=True)
    return int(result.stderr.split()[-1])


@cache
def peak_memory_of_tiny_store(*arguments: str) -> int:
    """Return the peak memory of a command on a tiny store."""
    with TemporaryDirectory() as folder:
        return peak_memory(write_rows(Path(folder) / "memory.db", episodes(20)), *arguments)


@pytest.mark.parametrize("command", READING_COMMANDS)
def test_reading_a_large_memory_uses_less_than_its_size(tmp_path: Path, command: str) -> None:
    store = write_rows(tmp_path / "memory.db", [row("e0", body="é" * 32 * MB), *episodes(20)])
    arguments = command.split()
    more_memory = peak_memory(store, *arguments) - peak_memory_of_tiny_store(*arguments)
    assert more_memory < 32 * MB


MANY = 150_000


def store_of_many_episodes(path: Path, tags: str = "'[\"shared\"]'") -> Path:
    """Write a store of many episodes; `tags` is an SQL expression of their number n."""
    run_sql(
        path,
        CREATE_TABLE,
        f"""
        INSERT INTO memory_items
        WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT {MANY})
        SELECT 'memory-' || n, 'episodic', 'the title of memory ' || n, 'its body', {tags}, NULL, n,
            'issue:' || n, 'agent', 0.5, '2026-03-01T12:00:00+00:00', '[]', '[]', NULL FROM numbers
        """,
    )
    return path


def test_distinct_tags_are_not_held_in_memory_by_show(tmp_path: Path) -> None:
    same_tags = store_of_many_episodes(tmp_path / "same.db")
    distinct_tags = store_of_many_episodes(
        tmp_path / "distinct.db", """'["tag ' || n || '","area:' || n || '"]'"""
    )
    more_memory = peak_memory(distinct_tags, "show") - peak_memory(same_tags, "show")
    assert more_memory < 420 * MANY


@pytest.mark.parametrize(
    ("is_saved", "bytes_per_memory"), [(False, 900), (True, 1_100)], ids=["shown", "saved"]
)
def test_large_plan_uses_little_more_memory_than_its_text(
    tmp_path: Path, is_saved: bool, bytes_per_memory: int
) -> None:
    store = store_of_many_episodes(tmp_path / "memory.db")
    compact = ["compact", "--keep-recent", "50"]
    saving = ["--save-plan", str(tmp_path / "plan.json")] if is_saved else []
    more_memory = peak_memory(store, *compact, *saving) - peak_memory_of_tiny_store(*compact)
    assert more_memory < bytes_per_memory * MANY
