"""memlab's commands, run as in a terminal."""

from pathlib import Path

from click.testing import CliRunner, Result

from memlab.cli import main

LOOKING = {
    "show": "show {}",
    "rows": "rows {}",
    "size": "size {}",
    "size by tokens": "size {} --unit tokens",
    "compact": "compact {} --keep-recent 5",
    "compare": "compare {} --policy recent --keep-recent 5",
    "doctor": "doctor {}",
    "archive": "archive {}",
    "init": "init {}",
    "floor": "floor {}",
    "lost": "lost {}",
    "vacuum": "vacuum {}",
    "maintain": "maintain {}",
    "report": "report {} -o {out}/page.html",
    "report --chart": "report {} --chart growth -o {out}/chart.svg",
}
"""Commands that leave a store as it is."""


def run(*words: object) -> Result:
    """Run a command in this process; unexpected errors are raised."""
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


def output_of(*arguments: object, code: int = 0) -> str:
    """Return the output of a command, which must end with the exit code `code`."""
    result = run(*arguments)
    assert result.exit_code == code, (arguments, result.output)
    return result.output


def undo_in(receipt: str) -> str:
    """Return the digest in the undo line of a receipt."""
    (line,) = [line for line in receipt.splitlines() if line.strip().startswith("undo")]
    return line.split()[-1]


def typed(arguments: str, store: Path, out: Path) -> list[str]:
    """Return the words of a command on a store; `out` is the folder for its output."""
    return [word.format(store, out=out) for word in arguments.split()]
