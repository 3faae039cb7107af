"""The style in which the lines of ``MEMORY.md`` are written, and new lines in that style."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple
from unicodedata import category
from urllib.parse import quote

from memlab.systems.claude_code import markdown
from memlab.systems.claude_code.index import Block, State, lines_of
from memlab.systems.claude_code.markdown import FileNames
from memlab.systems.claude_code.view import Note

_LONGEST_TITLE: Final = 80
_LONGEST_HOOK: Final = 160
"""Maximum number of characters of a title, and of the description behind it."""
_SEPARATOR: Final = " — "
_LEAD: Final = re.compile(
    r"(?P<indent>[ \t>]*)(?P<bullet>[-*+]|\d{1,9}[.)])(?P<space>[ \t]+)"
    r"(?:\[[ xX]\][ \t]+)?(?P<emphasis>[*_~]{0,3})\Z"
)
"""The text of an entry before its link."""
_TAIL: Final = re.compile(r"[*_~]{0,3}(?P<separator>[ \t]*(?:[—–:]|-{1,2})[ \t]+)?")
"""The text of an entry after its link, up to the description."""
_ORDERED: Final = re.compile(r"[ \t>]*\d{1,9}[.)]")
_PLAIN_NAME: Final = re.compile(r"[\w.,+@=~/-]+")
"""A file name that needs no angle brackets in a link."""
_LEADING_NAME: Final = re.compile(r"\w[\w.-]*\.md")
_LINK: Final = "link"
_WIKILINK: Final = "wikilink"
_NAME: Final = "name"
_ROW: Final = "table row"


def is_ordered(text: str) -> bool:
    """Return whether a line is an entry of a numbered list."""
    return _ORDERED.match(text) is not None


class LineStyle(NamedTuple):
    """How the entries of an index are written."""

    form: str = _LINK
    lead: str = "- "
    emphasis: str = ""
    separator: str = _SEPARATOR
    columns: tuple[int, int] = (0, 0)
    """For a table: the column of the link, and the number of columns."""

    def numbered(self, offset: int) -> "LineStyle":
        """Return the style of an entry a number of entries below; only numbered ones differ."""
        if not _ORDERED.match(self.lead):
            return self
        lead = re.sub(r"\d+", lambda number: str(int(number[0]) + offset), self.lead, count=1)
        return self._replace(lead=lead)

    def line(self, name: str, note: Note) -> str:
        """Return the line of a memory, without a line end."""
        title, hook = title_and_hook(name, note)
        if self.form == _ROW:
            return self._row(f"[{title}]({target(name)})", hook)
        mention = f"[{title}]({target(name)})"
        if self.form == _WIKILINK and not set("[]|#") & set(name):
            mention = f"[[{stem(name)}]]"
        elif self.form == _NAME and _LEADING_NAME.fullmatch(name):
            mention = name
        tail = f"{self.separator}{hook}" if self.separator and hook else ""
        return f"{self.lead}{self.emphasis}{mention}{self.emphasis[::-1]}{tail}"

    def _row(self, link: str, hook: str) -> str:
        """Return the row of a table."""
        link_column, column_count = self.columns
        cells = [""] * column_count
        cells[link_column] = link.replace("|", "/")
        for column in range(column_count):
            if column != link_column:
                cells[column] = hook.replace("|", "/")
                break
        return f"{self.lead}| {' | '.join(cells)} |"


def default_line(name: str, note: Note) -> str:
    """Return the line of a memory in an index without entries."""
    return LineStyle().line(name, note)


def style_of(blocks: Iterable[Block], names: FileNames, neighbour: Block | None) -> LineStyle:
    """Return the most frequent style of the entries about files, among those indented least.

    A numbered entry gets the number after that of the neighbour.
    """
    styles: list[LineStyle] = []
    for block in blocks:
        if block.is_item and block.state is not State.UNSEEN and block.files(names):
            style = _style_in(block)
            if style is not None:
                styles.append(style)
    if not styles:
        return LineStyle()
    least_indent = min(len(_indentation(style.lead)) for style in styles)
    outer = [style for style in styles if len(_indentation(style.lead)) == least_indent]
    common = Counter(style._replace(lead=_without_number(style.lead)) for style in outer)
    ((chosen, _),) = common.most_common(1)
    if chosen.lead.lstrip(" \t>").startswith("1"):
        return chosen._replace(lead=_next_number(chosen.lead, neighbour))
    return chosen


def _indentation(lead: str) -> str:
    """Return the white space and the block-quote markers (``>``) at the beginning of an entry."""
    return lead[: len(lead) - len(lead.lstrip(" \t>"))]


def _without_number(lead: str) -> str:
    """Return the beginning of an entry with the number 1 for any number."""
    return re.sub(r"\d+(?=[.)])", "1", lead)


def _next_number(lead: str, neighbour: Block | None) -> str:
    """Return the beginning of a numbered entry with the number after that of a block."""
    number = 0
    ordered = None if neighbour is None else _ORDERED.match(neighbour.text)
    if ordered:
        number = int(ordered[0].strip(" \t>.)"))
    return re.sub(r"\d+", str(number + 1), lead, count=1)


def _style_in(block: Block) -> LineStyle | None:
    """Return the style of an entry; None if there are words before its link."""
    line = lines_of(block.text)[0].rstrip("\r\n")
    mention = block.mentions[0]
    if line.lstrip(" \t").startswith("|"):
        cells = line.strip().strip("|").split("|")
        column = line[: mention.start].count("|") - 1
        if not 0 <= column < len(cells):
            return None
        return LineStyle(form=_ROW, lead=_indentation(line), columns=(column, len(cells)))
    lead = _LEAD.match(line[: mention.start])
    if lead is None:
        return None
    form = _LINK
    if markdown.is_wikilink(block.text, mention):
        form = _WIKILINK
    elif not block.text.startswith("[", mention.start):
        form = _NAME
    tail = _TAIL.match(line[mention.end :])
    separator = ""
    if tail is not None and tail["separator"]:
        separator = tail["separator"]
    return LineStyle(
        form=form,
        lead=lead["indent"] + lead["bullet"] + lead["space"],
        emphasis=lead["emphasis"],
        separator=separator,
    )


def title_and_hook(name: str, note: Note) -> tuple[str, str]:
    """Return the title of a memory's line and the words behind it, which may be empty.

    The title is the name in the front matter, else the first heading, else the file name.
    """
    title = note.head.fields.get("name", "").strip()
    own_name = stem(name).rpartition("/")[2]
    if not title or title in (name, stem(name), own_name):
        title = note.heading or own_name
    shown_title = _one_line(title, _LONGEST_TITLE).replace("`", "")
    hook = _one_line(note.head.fields.get("description", ""), _LONGEST_HOOK)
    return shown_title or own_name, hook


def _one_line(text: str, max_length: int) -> str:
    """Return a text as a part of a line: without links, comments and control characters."""
    line = "".join(" " if category(char)[0] == "C" else char for char in text)
    line = " ".join(line.split())
    line = line.translate({ord("["): "(", ord("]"): ")"}).replace("<!--", "").replace("-->", "")
    if len(line) <= max_length:
        return line.strip()
    beginning = line[: max_length - 1]
    if " " in beginning:  # do not cut a word
        beginning = beginning[: beginning.rfind(" ")]
    return f"{beginning}…"


def stem(name: str) -> str:
    """Return the path of a file without its suffix."""
    return name.removesuffix(".md")


def target(name: str) -> str:
    """Return the path of a file as the target of a link."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    if set("<>#?%") & set(name):
        return quote(name)
    return f"<{name}>"
