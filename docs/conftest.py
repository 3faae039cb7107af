"""Every example of these pages is run: Python in one namespace a page, commands as they stand.

A page works in a folder of its own with the bundled store of 300 issues in it as ``memory.db``.
Where a shown output has a line ``...``, any lines may stand; ``...`` within a line is any text.
"""

import doctest
import os
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
    """Run each command of a block; return what it printed where that is not what is shown."""
    for block in ("\n" + example.parsed).split("\n$ ")[1:]:
        command, _, shown = block.partition("\n")
        name, *words = shlex.split(command, comments=True)
        assert name == "memlab", f"{command}: only memlab's own commands are run"
        printed = CliRunner().invoke(main, words, catch_exceptions=False).output
        if not same(shown, printed):
            return f"$ {command}\nprinted\n{printed}"
    return None


def read_toml(example: Example) -> None:
    """Read a block of settings as a file of them."""
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
        CodeBlockParser("toml", read_toml),
    ],
    patterns=["*.md", "**/*.md"],
    setup=begin,
    teardown=end,
).pytest()
