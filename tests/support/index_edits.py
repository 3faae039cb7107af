"""Indexes of Claude Code's memory with lines of all kinds, and edits by a person."""

import re
from typing import NamedTuple

from hypothesis import strategies as st

FILES = ("a.md", "b.md", "c.md", "d.md", "my notes.md")
"""File names that the lines may name."""
LINES = (
    "- [A](a.md) - hook",
    "- [A](a.md), [B](b.md)",
    "* [[a]] by name",
    "- [B](b.md) `[[x]]`",
    "- [C](c.md) ![i](i.png) arr[i](cb)",
    "1. [C](c.md)",
    "2. [D](d.md) [gone](gone.md)",
    "",
    "  - [D](d.md) nested",
    "| [A](a.md) | [[c]] |",
    "## [B](b.md)",
    "Read [C](c.md) first.",
    "",
    "- [D](<d.md>)",
    "  goes on to [A](a.md)",
    "[ref]: a.md",
    '<a href="a.md">A</a>',
    "# Head",
    "- [N](<my notes.md>) and [N](my%20notes.md)",
    "- c.md: hook",
    "```",
    "---",
    "\udcff text",
    "- [T](a.md)",
    "- [T](b.md)",
    "[](c.md)",
    "see [T](d.md) and [T](a.md)",
    "<!-- [A](a.md)",
    "-->",
    "- [a.md](a.md) [c.md](c.md)",
    "- plain",
    "- [A](a.md) - hook",
)
"""Lines of an index."""
HANDS = (
    "{} by hand",
    "- {} by hand",
    "- [B](b.md) {} by hand, see [A](a.md)",
    "  {} by hand",
    "- [A](a.md) - {} by hand",
    "Prose {} by hand on [[c]].",
    "- [[d]] {} by hand",
    "# {} by hand",
)
"""Lines added by hand, each with its own number."""


class Edit(NamedTuple):
    """A change of an index by a person."""

    action: str
    place: int
    """Number of the line, modulo the number of lines."""
    choice: int
    """The new place of a moved line, or the kind of line ends."""
    text: str
    """An added line."""


EDITS = st.lists(
    st.builds(
        Edit,
        st.sampled_from(("add", "remove", "reword", "move", "line ends", "no end")),
        st.integers(0, 30),
        st.integers(0, 30),
        st.sampled_from(HANDS),
    ),
    max_size=4,
)


def index_of(lines: list[str], line_end: str, has_end: bool) -> bytes:
    """Return the bytes of an index; `has_end` says whether its last line ends."""
    if has_end:
        lines = [*lines, ""]
    return line_end.join(lines).encode("utf-8", "surrogateescape")


INDEXES = st.builds(
    index_of,
    st.lists(st.sampled_from(LINES), max_size=12),
    st.sampled_from(("\n", "\n", "\r\n")),
    st.booleans(),
)


def edited(raw: bytes, edits: list[Edit]) -> bytes:
    """Return an index after edits; each added line is marked as handwritten."""
    lines = raw.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    for number, edit in enumerate(edits):
        at = edit.place % (len(lines) + 1)
        if edit.action == "add":
            if at and not lines[at - 1].endswith("\n"):
                lines[at - 1] += "\n"
            lines.insert(at, f"{edit.text.format(number)}\n")
        if not lines:
            continue
        at = min(at, len(lines) - 1)
        if edit.action == "remove":
            del lines[at]
        elif edit.action == "reword" and lines[at].strip():
            lines[at] = f"{lines[at].rstrip()} {number} by hand\n"
        elif edit.action == "move":
            line = lines.pop(at)
            if not line.endswith("\n"):
                line += "\n"
            new_place = edit.choice % (len(lines) + 1)
            lines.insert(new_place, line)
        elif edit.action == "line ends":
            line_end = ("\n", "\r\n")[edit.choice % 2]
            lines = [re.sub(r"\r?\n", line_end, line) for line in lines]
        elif edit.action == "no end":
            lines[-1] = lines[-1].rstrip("\r\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def by_hand(raw: bytes) -> list[bytes]:
    """List the handwritten lines of an index, sorted."""
    return sorted(line.strip() for line in raw.splitlines() if b"by hand" in line)
