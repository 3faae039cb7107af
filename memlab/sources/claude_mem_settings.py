"""What claude-mem loads at a start: its settings, as its environment and its file have them."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

SETTING: Final = "CLAUDE_MEM_CONTEXT_OBSERVATIONS"
FILE: Final = "settings.json"
NEWEST: Final = 50

_MODE: Final = "CLAUDE_MEM_MODE"
_TYPES: Final = "CLAUDE_MEM_CONTEXT_OBSERVATION_TYPES"
_CONCEPTS: Final = "CLAUDE_MEM_CONTEXT_OBSERVATION_CONCEPTS"
_OF_CODE: Final[dict[str, tuple[str, ...]]] = {
    _TYPES: (
        *("bugfix", "feature", "refactor", "change", "discovery", "decision"),
        *("security_alert", "security_note", "sensitive"),
    ),
    _CONCEPTS: (
        *("how-it-works", "why-it-exists", "what-changed", "problem-solution"),
        *("gotcha", "pattern", "trade-off"),
    ),
}
"""Types and concepts of the mode ``code`` and its translations, in claude-mem 13."""


class Start(NamedTuple):
    """What a start loads.

    Attributes
    ----------
    newest : int
        How many observations of a project at most.
    said : str
        Where that number is from.
    file : Path
        The file of settings, there or not.
    mode : str
        claude-mem's mode.
    types, concepts : collection of str or None
        What an observation must be of; None where the mode is one whose lists are not known.
    """

    newest: int
    said: str
    file: Path
    mode: str
    types: Collection[str] | None
    concepts: Collection[str] | None

    def condition(self, columns: Collection[str]) -> tuple[str, dict[str, str]]:
        """Return the condition in SQL that an observation meets which may be loaded."""
        if self.types is None or self.concepts is None or "concepts" not in columns:
            return "1", {}
        rule = (
            "type IN (SELECT value FROM json_each(:types)) AND EXISTS (SELECT 1 FROM "
            "json_each(CASE WHEN json_valid(concepts) THEN concepts ELSE '[]' END) "
            "WHERE value IN (SELECT value FROM json_each(:concepts)))"
        )
        lists = {"types": list(self.types), "concepts": list(self.concepts)}
        return rule, {name: json.dumps(values) for name, values in lists.items()}


def start_of(folder: Path, environment: Mapping[str, str] | None = None) -> Start:
    """Return what a start loads by the settings in a folder; the environment comes first.

    Parameters
    ----------
    folder : Path
        Where the database lies.
    environment : mapping, optional
        Variables; those of this process by default.
    """
    variables = os.environ if environment is None else environment
    file = folder / FILE
    written = _written(file)
    newest, said = NEWEST, "its default"
    for values, where in ((written, f"in {FILE}"), (variables, "in the environment")):
        number = str(values.get(SETTING, "")).strip()
        if number.isdecimal():
            newest, said = int(number), where
    mode = str(variables.get(_MODE) or written.get(_MODE) or "code")
    is_code = mode.partition("--")[0] == "code"
    lists = [
        _listed(str(variables.get(name) or written.get(name) or ""), known) if is_code else None
        for name, known in _OF_CODE.items()
    ]
    return Start(newest, said, file, mode, *lists)


def _written(file: Path) -> dict[str, Any]:
    """Return the settings of a file; those of older versions lie under ``env``."""
    try:
        found = json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    older = found.get("env")
    return {**(older if isinstance(older, dict) else {}), **found}


def _listed(text: str, known: Collection[str]) -> Collection[str]:
    """Return those of a list that the mode knows; all of the mode's where it names none of them."""
    return [each for each in map(str.strip, text.split(",")) if each in known] or known
