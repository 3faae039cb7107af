"""The first published memlab and today's version working on one store."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

import memlab
from memlab.compaction import archived_plans, keep_copies, plan_upgrade, recover
from memlab.sources.opening import open_source, save_store_settings
from tests.support.claude_store import (
    at,
    index_lines,
    memory,
    project_folder,
    write_index,
    write_memory,
)
from tests.support.invariants import assert_nothing_lost, copies_of, is_prunable_row, rows_of
from tests.support.programs import Children, forked, run_program
from tests.support.shell import output_of, run
from tests.support.stores import row, write_rows

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
    """Check out the older package; skip if the git history is too short."""
    packing = subprocess.run(
        ["git", "-C", str(CHECKOUT), "archive", COMMIT, "memlab"], capture_output=True, check=False
    )
    if packing.returncode:
        pytest.skip(f"the history of this checkout lacks {COMMIT}")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=BytesIO(packing.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def older_package(older_tree: Path) -> Iterator[Children]:
    """Return children of a process that imported the older package."""
    needs = ("memlab.compaction", "memlab.sources", "memlab.frame", "memlab.upkeep")
    with forked(*needs, cwd=older_tree) as children:
        yield children


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
        """Write three memories, then compact; return the outcome."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        answer = ""
        for row_number in range(3):
            self.process.stdin.write(json.dumps(row(f"t{number:03}-{row_number}")) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        return answer

    def end(self) -> None:
        """End the process."""
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store of one decision and one episode."""
    return write_rows(tmp_path / "memory.db", [row("d1", "semantic"), row("e1")])


@pytest.fixture
def runtime(older_tree: Path, store: Path) -> Iterator[Runtime]:
    older_runtime = Runtime(older_tree, store)
    with older_runtime.process:  # which closes its pipes
        yield older_runtime
        older_runtime.process.kill()


def prunable_in(store: Path) -> int:
    return sum(map(is_prunable_row, rows_of(store).values()))


def take_turns(runtime: Runtime, store: Path, count: int) -> list[str]:
    """Let the runtime and the command line take turns, and check that nothing is lost."""
    rows = rows_of(store)
    answers = list[str]()
    for number in range(count):
        answer = runtime.turn(number)
        answers.append(answer)
        rows |= rows_of(store)
        if answer.startswith("deleted"):
            assert prunable_in(store) <= RUNTIME_KEEPS
        if number % 10 == 4:
            output_of("archive", store, "--copy")
        if number % 10 == 6:
            assert run("doctor", store).exit_code in (0, 1)
        if number % 10 == 8:
            last = archived_plans(store)[-1]
            output_of("restore", store, last.digest[:12])
        output_of("compact", store, "--keep-recent", COMMAND_KEEPS, "--apply")
        assert prunable_in(store) <= COMMAND_KEEPS
        assert_nothing_lost(rows, store)
    runtime.end()
    written = {
        f"t{number:03}-{row_number}".encode() for number in range(count) for row_number in range(3)
    }
    archived = {copied[1] for copies in copies_of(store).values() for copied in copies}
    assert written <= {stored[1] for stored in rows_of(store).values()} | archived
    return answers


@pytest.mark.long
def test_older_runtime_and_command_line_share_an_older_archive(
    runtime: Runtime, store: Path, older_tree: Path
) -> None:
    write_rows(store, [row(f"first{number}") for number in range(RUNTIME_KEEPS)])
    runtime.turn(998)  # so that the runtime begins the archive
    assert plan_upgrade(store).format == 2
    answers = take_turns(runtime, store, TURNS)
    assert all(answer.startswith("deleted") for answer in answers)
    assert plan_upgrade(store).format == 2
    last = archived_plans(store)[-1]
    command = [sys.executable, "-c", RESTORE, str(store), last.digest]
    result = subprocess.run(
        command,
        cwd=older_tree,
        capture_output=True,
        check=True,
        text=True,
    )
    assert result.stdout.split() == [str(len(archived_plans(store))), str(last.memories)]


def test_older_runtime_refuses_a_newer_archive_and_loses_nothing(
    runtime: Runtime, store: Path
) -> None:
    write_rows(store, [row(f"first{number}") for number in range(RUNTIME_KEEPS)])
    output_of("compact", store, "--keep-recent", COMMAND_KEEPS, "--apply")
    assert plan_upgrade(store).format == 3
    answers = take_turns(runtime, store, 10)
    assert [answer for answer in answers if not answer.startswith("refused")] == []
    assert plan_upgrade(store).format == 3


# A folder of Claude Code's memory


OLDER = """
import sys
import memlab
from memlab.compaction import archived_plans, keep_copies
does, store, *values = sys.argv[1:]
assert "older" in memlab.__file__
if does == "compact":
    receipt = memlab.apply(memlab.plan(store, memlab.KeepRecent(int(values[0]))))
    print(receipt.digest)
elif does == "copy":
    keep_copies(store)
elif does == "plans":
    print(*(plan.digest for plan in archived_plans(store)))
elif does == "restore":
    print(int(memlab.restore(values[0], store=store)))
elif does == "read":
    memlab.show(store)
    assert "damaged" not in str(memlab.doctor(store))
    print(len(memlab.rows(store)), len(memlab.load_past(store)))
"""


def older(package: Children, *arguments: object) -> list[str]:
    """Run the older package on a store; return the printed words."""
    result = run_program(OLDER, *arguments, children=package)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.split()


def files_in(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and permissions of every file of a folder."""
    return {path.name: (path.read_bytes(), path.stat().st_mode) for path in folder.iterdir()}


def write_states(folder: Path) -> None:
    """Write listed, reached, unlisted and doubtful memories."""
    for number in range(8):
        write_memory(folder, f"in_{number}.md", memory(f"in {number}"), at(10 * number))
    for number in range(3):
        write_memory(folder, f"r_{number}.md", memory(f"r {number}"), at(number + 0.5))
        write_memory(folder, f"un_{number}.md", memory(f"un {number}"), at(number + 0.7))
    hub = "# Deploys\n\n" + "\n".join(
        f"- [{name}]({name})" for name in ("r_0.md", "r_1.md", "in_7.md")
    )
    write_memory(folder, "hub.md", memory("hub", "reference", body=hub), at(500))
    entries = [f"- [In {number}](in_{number}.md) — a hook" for number in range(8)]
    write_index(folder, [*entries, "- [A hub](hub.md)"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = project_folder(tmp_path)
    write_states(new_folder)
    return new_folder


def test_older_memlab_undoes_plans_in_its_archive(folder: Path, older_package: Children) -> None:
    first = files_in(folder)
    older(older_package, "compact", folder, 7)
    before = files_in(folder)
    assert len(before) < len(first)
    deleted = memlab.apply(memlab.plan(folder, memlab.KeepRecent(4)))
    between = files_in(folder)
    retired = memlab.apply(memlab.plan(folder, memlab.KeepRecent(2), retire=True))
    assert retired.retired
    assert plan_upgrade(folder).format == 2
    plans = older(older_package, "plans", folder)
    assert plans[1:] == [deleted.digest, retired.digest]
    assert older(older_package, "read", folder)
    older(older_package, "restore", folder, plans[2])
    assert files_in(folder) == between
    older(older_package, "restore", folder, plans[1])
    assert files_in(folder) == before
    older(older_package, "restore", folder, plans[0])
    assert files_in(folder) == first


def test_older_memlab_reads_copies_and_recoveries_in_its_archive(
    folder: Path, older_package: Children
) -> None:
    older(older_package, "copy", folder)
    write_memory(folder, "un_9.md", memory("un 9"), at(3))
    write_memory(folder, "in_9.md", memory("in 9"), at(4))
    write_index(folder, [*index_lines(folder), "- [In 9](in_9.md)"])
    keep_copies(folder)
    before = files_in(folder)
    for name in ("un_9.md", "in_9.md", "r_0.md"):
        (folder / name).unlink()
    write_index(folder, [line for line in index_lines(folder) if "in_9" not in line])
    keep_copies(folder)
    without = files_in(folder)
    recovery = recover(folder)
    assert set(recovery.losses) == {"un_9.md", "in_9.md", "r_0.md"}
    assert files_in(folder) == before
    assert older(older_package, "read", folder)
    older(older_package, "copy", folder)
    older(older_package, "restore", folder, recovery.digest)
    assert files_in(folder) == without


def test_upgrade_of_a_shared_archive_keeps_every_memory(
    folder: Path, older_package: Children
) -> None:
    first = files_in(folder)
    older(older_package, "compact", folder, 7)
    before = files_in(folder)
    receipt = memlab.apply(memlab.plan(folder, memlab.KeepRecent(4)))
    output_of("archive", folder, "--upgrade", "--apply")
    assert memlab.restore(receipt).memories == receipt.deleted
    assert files_in(folder) == before
    output_of("restore", folder, archived_plans(folder)[0].digest[:12])
    assert files_in(folder) == first


READ_SETTINGS = """
import sys
from memlab.sources.opening import open_source, settings_of
print(settings_of(open_source(sys.argv[1])).target)
"""


@pytest.mark.parametrize(
    "place",
    [
        "memory.db",
        pytest.param(".claude/projects/-home-u-work/memory", marks=pytest.mark.long),
        pytest.param("p/.serena/memories", marks=pytest.mark.long),
        pytest.param(".odek/memory", marks=pytest.mark.long),
    ],
)
def test_older_memlab_reads_current_settings(
    tmp_path: Path, older_package: Children, place: str
) -> None:
    path = tmp_path / place
    if path.suffix:
        write_rows(path, [row("d1", "semantic")])
    else:
        path.mkdir(parents=True)
        (path / "index.json").write_text("[]")
        write_memory(path, "a.md", memory("a"))
        write_index(path, ["- [A](a.md)"])
        if ".odek" not in place:
            (path / "index.json").unlink()
    save_store_settings(open_source(path), {"target": 0.9})
    result = run_program(READ_SETTINGS, path, children=older_package)
    assert result.stdout.split() == ["0.9"]
