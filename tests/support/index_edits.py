"""Indexes of Claude Code's memory with all that is found in them, and what a hand does to them."""

import re

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
EDITS = st.lists(
    st.tuples(
        st.sampled_from(("add", "remove", "reword", "move", "line ends", "no end")),
        st.integers(0, 30),
        st.integers(0, 30),
        st.sampled_from(HANDS),
    ),
    max_size=4,
)
INDEXES = st.builds(
    lambda lines, end, has_end: end.join([*lines, ""] if has_end else lines).encode(
        "utf-8", "surrogateescape"
    ),
    st.lists(st.sampled_from(LINES), max_size=12),
    st.sampled_from(("\n", "\n", "\r\n")),
    st.booleans(),
)


def edited(raw: bytes, edits: list[tuple[str, int, int, str]]) -> bytes:
    """Return an index after edits; each added line is marked as handwritten."""
    lines = raw.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    for number, (edit, first, second, text) in enumerate(edits):
        at = first % (len(lines) + 1)
        if edit == "add":
            if at and not lines[at - 1].endswith("\n"):
                lines[at - 1] += "\n"
            lines.insert(at, f"{text.format(number)}\n")
        if not lines:
            continue
        at = min(at, len(lines) - 1)
        if edit == "remove":
            del lines[at]
        elif edit == "reword" and lines[at].strip():
            lines[at] = f"{lines[at].rstrip()} {number} by hand\n"
        elif edit == "move":
            line = lines.pop(at)
            lines.insert(second % (len(lines) + 1), line if line.endswith("\n") else f"{line}\n")
        elif edit == "line ends":
            lines = [re.sub(r"\r?\n", ("\n", "\r\n")[second % 2], line) for line in lines]
        elif edit == "no end":
            lines[-1] = lines[-1].rstrip("\r\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def by_hand(raw: bytes) -> list[bytes]:
    return sorted(line.strip() for line in raw.splitlines() if b"by hand" in line)
