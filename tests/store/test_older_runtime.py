"""A runtime of the first published state of formats beside the memlab of today, on one store."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from invariants import assert_nothing_lost, copies_of, is_prunable_row, rows_of
from shell import run, said
from stores import row, write_rows

from memlab.compaction import archived_plans, what_upgrades

CHECKOUT = Path(__file__).resolve().parents[2]
COMMIT = "34b9bf59"
TURNS = 100
RUNTIME_KEEPS = 16
COMMAND_KEEPS = 15

RUNTIME = """
import json, sys
from datetime import UTC, datetime
from memlab.errors import ArchiveError
from memlab.items import MemoryItem, MemoryKind, MemoryProvenance
from memlab.store import SqliteMemoryStore
with SqliteMemoryStore(sys.argv[1], archive=True) as store:
    for line in sys.stdin:
        columns = json.loads(line)
        store.connection.execute(
            f"INSERT INTO memory_items ({', '.join(columns)}) "
            f"VALUES ({', '.join('?' * len(columns))})", [*columns.values()]
        )
        if columns["memory_id"].endswith("-2"):
            try:
                print("deleted", int(store.compact_episodic(int(sys.argv[2]))), flush=True)
            except ArchiveError as error:
                print("refused", str(error)[:200], flush=True)
        else:
            print("written", flush=True)
"""

RESTORE = """
import sys
import memlab
from memlab.compaction import archived_plans
print(len(archived_plans(sys.argv[1])), int(memlab.restore(sys.argv[2], store=sys.argv[1])))
"""


@pytest.fixture(scope="module")
def older_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it was then; skips where the history does not go back so far."""
    found = subprocess.run(
        ["git", "-C", str(CHECKOUT), "archive", COMMIT, "memlab"], capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip(f"the history of this checkout lacks {COMMIT}")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return folder


class Runtime:
    """A process that writes memories to a store and compacts it, by the older package."""

    def __init__(self, tree: Path, store: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNTIME, str(store), str(RUNTIME_KEEPS)],
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self, number: int) -> str:
        """Write three memories, then compact; return what came of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        answer = ""
        for each in range(3):
            self.process.stdin.write(json.dumps(row(f"t{number:03}-{each}")) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        return answer

    def end(self) -> None:
        """Let it end."""
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of one decision and one episode."""
    return write_rows(tmp_path / "memory.db", [row("d1", "semantic"), row("e1")])


@pytest.fixture
def runtime(older_tree: Path, store: Path) -> Iterator[Runtime]:
    made = Runtime(older_tree, store)
    with made.process:  # which closes its pipes
        yield made
        made.process.kill()


def prunable_in(store: Path) -> int:
    return sum(map(is_prunable_row, rows_of(store).values()))


def take_turns(runtime: Runtime, store: Path, count: int) -> list[str]:
    """Let the runtime and the command line take turns; nothing may be lost at any of them."""
    seen = rows_of(store)
    answers = list[str]()
    for number in range(count):
        answer = runtime.turn(number)
        answers.append(answer)
        seen |= rows_of(store)
        if answer.startswith("deleted"):
            assert prunable_in(store) <= RUNTIME_KEEPS
        if number % 10 == 4:
            said("archive", store, "--copy")
        if number % 10 == 6:
            assert run("doctor", store).exit_code in (0, 1)
        if number % 10 == 8:
            last = archived_plans(store)[-1]
            said("restore", store, last.digest[:12])
        said("compact", store, "--keep-recent", COMMAND_KEEPS, "--apply")
        assert prunable_in(store) <= COMMAND_KEEPS
        assert_nothing_lost(seen, store)
    runtime.end()
    written = {f"t{number:03}-{each}".encode() for number in range(count) for each in range(3)}
    archived = {each[1] for copies in copies_of(store).values() for each in copies}
    assert written <= {each[1] for each in rows_of(store).values()} | archived
    return answers


@pytest.mark.long
def test_older_runtime_and_command_line_share_an_older_archive(
    runtime: Runtime, store: Path, older_tree: Path
) -> None:
    write_rows(store, [row(f"first{number}") for number in range(RUNTIME_KEEPS)])
    runtime.turn(998)  # so that the runtime begins the archive
    assert what_upgrades(store).format == 2
    answers = take_turns(runtime, store, TURNS)
    assert all(answer.startswith("deleted") for answer in answers)
    assert what_upgrades(store).format == 2
    last = archived_plans(store)[-1]
    command = [sys.executable, "-c", RESTORE, str(store), last.digest]
    done = subprocess.run(
        command,
        cwd=older_tree,
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.split() == [str(len(archived_plans(store))), str(last.memories)]


def test_older_runtime_refuses_a_newer_archive_and_loses_nothing(
    runtime: Runtime, store: Path
) -> None:
    write_rows(store, [row(f"first{number}") for number in range(RUNTIME_KEEPS)])
    said("compact", store, "--keep-recent", COMMAND_KEEPS, "--apply")
    assert what_upgrades(store).format == 3
    answers = take_turns(runtime, store, 10)
    assert [answer for answer in answers if not answer.startswith("refused")] == []
    assert what_upgrades(store).format == 3
