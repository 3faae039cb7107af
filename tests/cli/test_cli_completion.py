"""Shells complete commands, options and names with the line that the page of commands has."""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from archives import leave_unfinished
from click.shell_completion import BashComplete
from stores import episodes, write_rows

import memlab
from memlab.cli import main

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "reference" / "commands.md").read_text()
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def offered(*words: object, beginning: str = "") -> list[str]:
    shell = BashComplete(main, {}, "memlab", "_MEMLAB_COMPLETE")
    return [each.value for each in shell.get_completions(list(map(str, words)), beginning)]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("comp", "compare"),
        ("size --tar", "--target"),
        ("report --chart grow", "growth-tokens"),
        ("compact --policy va", "value"),
    ],
)
def test_commands_options_and_names_complete(typed: str, meant: str) -> None:
    *words, beginning = typed.split()
    assert meant in offered(*words, beginning=beginning)


def test_digests_complete_by_the_archive_of_the_store(tmp_path: Path) -> None:
    store = write_rows(tmp_path / "memory.db", episodes(9))
    assert offered("restore", store) == []
    first = memlab.apply(memlab.plan(store, memlab.KeepRecent(6), now=NOON)).digest[:12]
    last = memlab.plan(store, memlab.KeepRecent(3), now=NOON)
    leave_unfinished(store, last)
    assert offered("restore", store) == [last.digest[:12], first]
    assert offered("restore", store, beginning=first[:6]) == [first]
    assert offered("archive", store, "--drop") == offered("archive", store, "--digest")
    assert first in offered("archive", store, "--drop")
    assert offered("apply", store) == [last.digest[:12]], "what is to be finished"
    store.with_name("memory.db.archive.db").write_text("no archive")
    for words in (("restore", store), ("restore", "no://store"), ("archive", "--drop")):
        assert offered(*words) == []


KNOWN = {
    "bash": "{line}; complete -p memlab",
    "zsh": "autoload -Uz compinit && compinit -u; {line}; print $_comps[memlab]",
    "fish": "{line}; complete -c memlab",
}
"""How each shell takes the line for its startup file, and says what completes memlab."""


@pytest.mark.parametrize("shell", KNOWN)
def test_a_real_shell_takes_the_line_of_the_page(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    line = next(line for line in PAGE.splitlines() if f"{shell}_source" in line).partition("#")[0]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = os.environ | {"HOME": str(tmp_path), "PATH": path}
    asked = [shell, "-c", KNOWN[shell].format(line=line.strip())]
    told = subprocess.run(asked, env=own, capture_output=True, text=True, check=True).stdout
    assert "_memlab_completion" in told
