"""Shells complete commands, options and names with the line that the page of commands has."""

import os
import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import pexpect
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


START = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config"),
}
"""How each shell is started without what a user has set up."""

TYPED = {
    "bash": "{line}\nmemlab comp\t\t\t",
    "zsh": "autoload -Uz compinit && compinit -u\n{line}\nmemlab comp\t\t",
    "fish": "{line}\ncomplete -C 'memlab comp'\nexit\n",
}
"""What is typed: the line for the startup file, then the beginning of a command."""

ENDED = r"compact\b.*compare\b|compare\b.*compact\b"


@pytest.mark.parametrize("shell", START)
def test_a_real_shell_completes_with_the_line_of_the_page(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    command = tmp_path / "memlab"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m memlab "$@"\n')
    command.chmod(0o755)
    line = next(line for line in PAGE.splitlines() if f"{shell}_source" in line)
    own = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "vt100"}
    name, *words = START[shell]
    terminal = pexpect.spawn(
        name, words, env=os.environ | own, timeout=60, dimensions=(40, 120), encoding="utf-8"
    )
    terminal.send(TYPED[shell].format(line=line.partition("#")[0].strip()))
    terminal.expect(re.compile(ENDED, re.DOTALL))
    terminal.close(force=True)
