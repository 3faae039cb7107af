"""Bad input and faults, one store at a time: the run of all goes on."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from claude_store import as_found, project_folder
from fleets import NOW, agent_store
from invariants import rows_of
from stores import episodes, row, write_rows

import memlab
from memlab.compaction.plans import Plan
from memlab.fleet import Serial, maintain, plan, plan_maintenance, survey
from memlab.fleet.carrying_out import CarryingOut, carried_out

CHECKOUT = Path(__file__).resolve().parents[2]
KEEP = memlab.KeepRecent(4)


@dataclass(frozen=True)
class NoRoom(CarryingOut):
    """Applies, with no room on the disk for one store's archive."""

    def apply(self, made: Plan, where: str) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        if "/1/" in where:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
        try:
            super().apply(made, where)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_for_one_archive_refuses_that_store_alone(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", 60) for n in range(3)]
    made = plan(names, KEEP, now=NOW)
    found = carried_out(made, now=NOW, runner=Serial(), work=NoRoom)
    assert [bool(each.error) for each in found] == [False, True, False]
    assert [len(rows_of(name)) for name in names] == [5, 61, 5]
    assert [bool(each.error) for each in carried_out(made, now=NOW)] == [False] * 3
    assert [len(rows_of(name)) for name in names] == [5, 5, 5]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run a process as somebody else")
def test_a_store_that_may_not_be_read_is_a_row_with_its_error(open_folder: Path) -> None:
    names = [agent_store(open_folder / f"{n}.db", 2) for n in range(3)]
    names[1].chmod(0o600)
    program = (
        "import os, sys; import memlab.fleet as fleet\n"
        "fleet.survey(sys.argv[1:], runner=fleet.Serial())  # imports what only root may read\n"
        "os.setuid(65534)\n"
        "found = fleet.survey(sys.argv[1:], runner=fleet.Serial())\n"
        "print(found['memories'].notna().tolist(), found['error'].dropna().tolist())"
    )
    words = [sys.executable, "-c", program, *map(str, names)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, cwd=open_folder)
    assert ran.stdout.startswith("[True, False, True]"), ran.stdout + ran.stderr
    assert "1.db" in ran.stdout


def test_a_folder_of_memories_is_a_store_like_any(tmp_path: Path) -> None:
    folder = as_found(project_folder(tmp_path), 1, files=5)
    store = agent_store(tmp_path / "memory.db", 2)
    found = survey([folder, store], now=NOW)
    assert found["scheme"].tolist() == ["claude", "file"]
    assert found["memories"].tolist() == [5, 3]


def test_what_is_written_is_for_its_owner_alone(tmp_path: Path) -> None:
    plan(agent_store(tmp_path / "memory.db", 9), KEEP, now=NOW, save=tmp_path / "plan.json")
    written = [tmp_path / "plan.json", *(tmp_path / "plan.json.plans").iterdir()]
    assert {path.stat().st_mode & 0o077 for path in written} == {0}


def test_each_store_is_maintained_by_what_it_remembers(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", 9) for n in range(3)]
    for n, keep in ((0, 2), (1, 20)):
        toml = f'policy = {{ name = "recent", keep = {keep} }}\n'
        (tmp_path / str(n) / "memlab.toml").write_text(toml)
    shown = plan_maintenance(names, now=NOW)
    assert shown["status"].tolist()[:2] == ["would", "nothing"]
    assert shown["deleted"].tolist()[:2] == [7, 0]
    assert [len(rows_of(name)) for name in names] == [10, 10, 10]
    done = maintain(names, now=NOW)
    assert done["status"].tolist()[:2] == ["done", "nothing"]
    assert "nothing is remembered" in done["error"][2]
    assert [len(rows_of(name)) for name in names] == [3, 10, 10]
    assert done["undo"][0].startswith("memlab restore ")


def test_maintenance_that_was_stopped_goes_on_and_says_all_that_was_done(tmp_path: Path) -> None:
    names = [agent_store(tmp_path / str(n) / "memory.db", 9) for n in range(4)]
    for n in range(4):
        toml = 'policy = { name = "recent", keep = 2 }\n'
        (tmp_path / str(n) / "memlab.toml").write_text(toml)

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    kept = tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        maintain(names, now=NOW, runner=Serial(), progress=stop, out=kept)
    assert [len(rows_of(name)) for name in names] == [3, 3, 10, 10]
    done = maintain(names, now=NOW, runner=Serial(), out=kept)
    assert done["status"].tolist() == ["done"] * 4
    assert done["deleted"].tolist() == [7] * 4
    assert done["undo"].str.startswith("memlab restore ").all()
    again = maintain(names, now=NOW, out=kept)
    assert again["status"].tolist() == ["nothing"] * 4


def test_a_store_whose_health_fails_is_not_maintained(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "memory.db", [row("odd", "hearsay"), *episodes(9)])
    (tmp_path / "memlab.toml").write_text('policy = { name = "recent", keep = 2 }\n')
    before = rows_of(path)
    found = maintain(path, now=NOW)
    assert found["status"].tolist() == ["FAILED"]
    assert rows_of(path) == before
