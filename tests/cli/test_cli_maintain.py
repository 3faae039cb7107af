"""``memlab maintain`` as cron and systemd run it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shell import run, said
from stores import episodes, run_sql, write_rows

import memlab
from memlab.settings import FILE

CHECKOUT = Path(__file__).parents[2]
GUIDE = (CHECKOUT / "docs" / "guides" / "nightly.md").read_text(encoding="utf-8")
MEMLAB = Path(sys.executable).with_name("memlab")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text('policy = { name = "recent", keep = 5 }\n')
    return write_rows(tmp_path / "memory.db", episodes(12))


def block_of(page: str, language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[number]


def test_its_exit_codes_are_fit_for_cron(store: Path) -> None:
    assert run("maintain", store.with_name("absent.db"), "--apply").exit_code == 2
    run_sql(store, "UPDATE memory_items SET kind = 'other' WHERE memory_id = 'e3'")
    assert json.loads(said("maintain", store, "--apply", "--json", code=1))["failed"]
    (store.parent / FILE).unlink()
    assert "nothing is remembered of" in said("maintain", store, "--apply", code=2)


def test_the_cron_line_of_the_readme_runs(store: Path) -> None:
    *_, command = block_of(GUIDE, "cron").strip().split(maxsplit=5)
    command = command.replace("/srv/memlab/.venv/bin/memlab", str(MEMLAB))
    command = command.replace("/srv/agent", str(store.parent))
    assert "/srv" not in command
    quiet = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert len(memlab.load(store)) == 5
    assert "deleted and archived 7 memories" in (store.parent / "maintain.log").read_text()
    (store.parent / FILE).write_text("keep = 5\n")
    mail = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout
    assert "line 1: there is no setting 'keep'" in mail


def test_the_units_of_the_guide_are_sound(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here to verify the units with")
    service = block_of(GUIDE, "ini", 0).replace("/srv/memlab/.venv/bin/memlab", str(MEMLAB))
    service = service.replace("User=agent", "User=root")
    (tmp_path / "memlab.service").write_text(service)
    (tmp_path / "memlab.timer").write_text(block_of(GUIDE, "ini", 1))
    units = [tmp_path / "memlab.service", tmp_path / "memlab.timer"]
    found = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert [line for line in found.stderr.splitlines() if "memlab" in line] == []
    assert found.returncode == 0, found.stderr
