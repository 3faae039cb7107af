"""How much of ``MEMORY.md`` Claude Code loads at start.

Front matter and block comments are left out; of the rest the first 200 lines are loaded, and of
these 25,000 UTF-16 units, back to the end of a line. Blank lines at either end do not count.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from memlab.sources.front_matter import read_front_matter

HIDDEN: Final = "\0"
"""Stands for each character of a comment."""

_CODE: Final = re.compile(r" {0,3}(```|~~~)")
_COMMENT: Final = re.compile(r" {0,3}<!--")


@dataclass(frozen=True)
class LoadRule:
    """The limits of what is loaded.

    Parameters
    ----------
    lines : int
        The first so many lines.
    units : int
        Of these, so many UTF-16 units, back to the end of a line.
    """

    lines: int = 200
    units: int = 25_000


CLAUDE_CODE: Final = LoadRule()


class State(StrEnum):
    """What becomes of a line at start."""

    LOADED = "loaded"
    CUT = "cut"
    """It stands below the limits, in whole or in part."""
    UNSEEN = "unseen"
    """Front matter or a comment."""


def units_of(text: str) -> int:
    """Return the UTF-16 units of a text, in which the limit is counted."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def without_comments(lines: Sequence[str]) -> Iterator[str]:
    """Yield each line, as long as it was, with front matter and comments as `HIDDEN` characters."""
    head = read_front_matter("".join(lines)).text_at
    at, in_comment, in_code = 0, False, ""
    for line in lines:
        at += len(line)
        if at <= head:
            yield HIDDEN * len(line)
        elif not in_comment and (fence := _CODE.match(line)):
            in_code = "" if in_code == fence[1] else in_code or fence[1]
            yield line
        elif in_comment or (not in_code and _COMMENT.match(line)):
            masked, in_comment = _masked(line, in_comment=in_comment)
            yield masked if masked.replace(HIDDEN, "").strip() else HIDDEN * len(line)
        else:
            yield line


def loaded_part(masked: Sequence[str], rule: LoadRule) -> tuple[str, list[State]]:
    """Return the text that is loaded, and what becomes of each line.

    Parameters
    ----------
    masked : sequence of str
        What :func:`without_comments` yields.
    rule : LoadRule
        The limits.
    """
    seen = [line.replace(HIDDEN, "") for line in masked]
    whole = "".join(seen)
    text = whole.strip()
    kept = _within_units("\n".join(text.split("\n")[: rule.lines]), rule.units)
    end = len(whole) - len(whole.lstrip()) + len(kept)
    states, at = [], 0
    for line, shown in zip(masked, seen, strict=True):
        at += len(shown)
        if line and not shown:
            states.append(State.UNSEEN)
        else:
            inside = at - len(shown) + len(shown.rstrip()) <= end
            states.append(State.LOADED if inside or kept == text else State.CUT)
    return kept, states


def _masked(line: str, *, in_comment: bool) -> tuple[str, bool]:
    """Return a line with its comments hidden, and whether one goes on after it."""
    masked, rest = "", line
    while rest:
        here, mark, rest = rest.partition("-->" if in_comment else "<!--")
        masked += HIDDEN * len(here + mark) if in_comment else here + HIDDEN * len(mark)
        in_comment = in_comment != bool(mark)
    return masked, in_comment


def _within_units(text: str, limit: int) -> str:
    """Return as much of a text as the limit allows, back to the end of a line."""
    if units_of(text) <= limit:
        return text
    whole = text[: limit + 1].encode("utf-16-le", "surrogatepass")[: 2 * limit]
    at = len(whole.decode("utf-16-le", "ignore"))
    end = text.rfind("\n", 0, at + 1)
    return text[:end] if end > 0 else text[:at]
