"""Examples of these pages are run: Python in one namespace a page, console blocks as they stand.

A page works in a folder of its own with the bundled store of 300 issues in it as ``memory.db``; SQL
writes ``agent.db``. Each command must succeed and print what is shown. Where a shown output has a
line ``...``, any lines may stand; ``...`` within a line is any text. Commands in ``sh`` blocks need
a server, a cluster or a network: they are parsed, and not run.
"""

import doctest
import os
import re
import shlex
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.testing import CliRunner
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

import memlab
from memlab.cli import main
from memlab.settings import FILE, read_settings

collect_ignore = ["notebooks"]  # a link, so that the site shows them

Page = dict[str, Any]


def begin(page: Page) -> None:
    """Work in a new folder that holds the store."""
    page["_before"], page["_folder"] = Path.cwd(), TemporaryDirectory()
    os.chdir(page["_folder"].name)
    memlab.copy_store(memlab.store_path("three_hundred_issues"), "memory.db")


def end(page: Page) -> None:
    """Go back where the tests were."""
    os.chdir(page["_before"])
    page["_folder"].cleanup()


def run_commands(example: Example) -> str | None:
    """Run each command of a block; return what it said where it fails or shows anything else."""
    for block in ("\n" + example.parsed).split("\n$ ")[1:]:
        command, _, shown = block.partition("\n")
        name, *words = shlex.split(command, comments=True)
        assert name == "memlab", f"{command}: only memlab's own commands are run"
        assert any(line.replace(".", " ").strip() for line in shown.splitlines()), (
            f"{command}: show a line of what it prints; ... alone is the same as any output"
        )
        done = CliRunner().invoke(main, words, catch_exceptions=False)
        if done.exit_code or not same(shown, done.output):
            return f"$ {command}\nended with {done.exit_code} and printed\n{done.output}"
    return None


def run_statements(example: Example) -> None:
    """Write a store with a block of SQL."""
    with closing(sqlite3.connect("agent.db")) as connection:
        connection.executescript(example.parsed)


def parse_commands(example: Example) -> None:
    """Read memlab's commands in a block as the command line does, and do nothing."""
    for words in re.findall(r"(?:^|[ /])memlab (.*)", example.parsed, re.MULTILINE):
        parsed(main, shlex.split(words, comments=True))


def parsed(command: click.Command, words: list[str]) -> None:
    """Raise what is wrong with the words of a command."""
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            _, found, rest = command.resolve_command(context, words)
        assert found is not None
        parsed(found, rest)
    else:
        command.make_context(command.name, list(words))


def read_toml(example: Example) -> None:
    """Read a block of settings as a file of them; a block of ``pyproject.toml`` is parsed."""
    if example.parsed.startswith("[project"):
        assert tomllib.loads(example.parsed)["project"]
        return
    with TemporaryDirectory() as folder:
        Path(folder, FILE).write_text(example.parsed)
        assert read_settings(Path(folder), "memory.db").policy


def same(shown: str, printed: str) -> bool:
    """Whether an output is the one shown, an ellipsis standing for any text."""
    wanted, got = (
        "\n".join(map(str.rstrip, text.strip().splitlines())) for text in (shown, printed)
    )
    return doctest.OutputChecker().check_output(wanted + "\n", got + "\n", doctest.ELLIPSIS)


pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser("console", run_commands),
        CodeBlockParser("sql", run_statements),
        CodeBlockParser("sh", parse_commands),
        CodeBlockParser("toml", read_toml),
    ],
    patterns=["*.md", "**/*.md"],
    setup=begin,
    teardown=end,
).pytest()
