"""memlab as a person types it."""

from click.testing import CliRunner, Result

from memlab.cli import main


def run(*words: object) -> Result:
    """Run a command in this process; an error that is no word to a person is raised."""
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


def undo_in(receipt: str) -> str:
    """The digest in the line of a receipt that says how to take it back."""
    (line,) = [line for line in receipt.splitlines() if line.strip().startswith("undo")]
    return line.split()[-1]
