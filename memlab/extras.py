"""Optional dependencies, imported when they are needed."""

from importlib import import_module
from typing import Any

from memlab.errors import MissingExtraError


def import_extra(module: str, *, extra: str) -> Any:
    """Return an optional `module`.

    Raises
    ------
    MissingExtraError
        When it is not installed, with the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtraError(
            f"this needs {error.name}, which is not installed; run: pip install 'memlab[{extra}]'"
        ) from error
