"""Cut a shell script into words and operators, as a POSIX shell or Bash does.

What somebody wrote to an agent may stand in a script: any text is read to its end, in Python, in a
time that grows with its length.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

WORD: Final = "word"
OPERATOR: Final = "operator"
REDIRECT: Final = "redirect"

_PLAIN: Final = re.compile(r"[^ \t\r\f\v\n'\"\\$`|&;()<>]+")
_SPACE: Final = re.compile(r"(?:[ \t\r\f\v]|\\\n)+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_REDIRECT: Final = re.compile(r"([0-9]*)(<<<|<<-|<<|<&|<>|<(?!\()|>>|>\||>&|>(?!\())|(&>>|&>)")
_OPERATOR: Final = re.compile(r"&&|\|\||\|&|;;&|;;|;&|[|&;()\n]")
_SINGLE: Final = re.compile(r"'[^']*'")
_DOCUMENT: Final = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|([A-Za-z_]\w*))")
_NAME: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_IN_QUOTES: Final = re.compile(r'[^"\\$`]+')
_HOME: Final = ("$HOME", "${HOME}")
_SPECIAL: Final = frozenset("*?[{")
"""What makes a bare word a pattern, or several words."""
_CLOSING: Final = {"(": ")", "{": "}"}


class UnfinishedError(ValueError):
    """A quote or a bracket is never closed; no shell would run the script."""


class Token(NamedTuple):
    """A word, an operator, or a redirection, of which the next word is the file.

    Attributes
    ----------
    kind : str
        `WORD`, `OPERATOR` or `REDIRECT`.
    text : str
        A word without its quotes; the operator. A home that is written out stands as ``~``.
    exact : bool
        Whether the shell passes the word on as it stands: no pattern, no variable.
    bare : bool
        Whether nothing in a word is quoted, so that it may be a keyword.
    descriptor : str
        The number before a redirection.
    """

    kind: str
    text: str
    exact: bool = True
    bare: bool = True
    descriptor: str = ""


def tokens_of(script: str) -> list[Token]:
    """Return the words and operators of a script; comments and here-documents are left out.

    Raises
    ------
    UnfinishedError
        When a quote or a bracket is never closed.
    """
    return list(_Cutter(script).tokens())


class _Cutter:
    """Goes through a script once."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._at = 0
        self._documents: list[tuple[str, bool]] = []
        """Here-documents that begin at the next line: how they end, and whether tabs go first."""

    def tokens(self) -> Iterator[Token]:
        script = self._script
        while self._at < len(script):
            if self._passed(_SPACE) or self._passed(_COMMENT):
                continue
            if match := _REDIRECT.match(script, self._at):
                self._at = match.end()
                operator = match[2] or match[3]
                if operator in {"<<", "<<-"}:
                    self._begin_document(strip=operator == "<<-")
                else:
                    yield Token(REDIRECT, operator, descriptor=match[1] or "")
            elif match := _OPERATOR.match(script, self._at):
                self._at = match.end()
                yield Token(OPERATOR, match[0])
                if match[0] == "\n":
                    self._skip_documents()
            else:
                yield self._word()

    def _passed(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self._script, self._at)
        if match:
            self._at = match.end()
        return match is not None

    def _word(self) -> Token:
        """Take everything up to the next white space or operator."""
        parts: list[str] = []
        exact = bare = True
        while self._at < len(self._script):
            begun = self._script[self._at]
            if begun == "'":
                parts.append(self._matched(_SINGLE)[1:-1])
                bare = False
            elif begun == '"':
                text, plain = self._in_quotes()
                parts.append(text)
                exact, bare = exact and plain, False
            elif begun == "\\":
                following = self._script[self._at + 1 : self._at + 2]
                parts.append("" if following == "\n" else following)
                self._at += 2
                bare = False
            elif begun in "$`<>":
                text, plain = self._expansion()
                parts.append(text)
                exact = exact and plain
                if not text:
                    break
            elif match := _PLAIN.match(self._script, self._at):
                self._at = match.end()
                parts.append(match[0])
                exact = exact and _SPECIAL.isdisjoint(match[0])
            else:
                break
        return Token(WORD, "".join(parts), exact or parts in (["{"], ["["], ["[["]), bare)

    def _in_quotes(self) -> tuple[str, bool]:
        """Take a text in double quotes; return it and whether nothing but a home is expanded."""
        parts: list[str] = []
        exact = True
        self._at += 1
        while self._at < len(self._script):
            begun = self._script[self._at]
            if begun == '"':
                self._at += 1
                return "".join(parts), exact
            if begun == "\\":
                following = self._script[self._at + 1 : self._at + 2]
                kept = following if following in '"\\$`' else "" if following == "\n" else None
                parts.append(f"\\{following}" if kept is None else kept)
                self._at += 2
            elif begun in "$`":
                text, plain = self._expansion()
                parts.append(text)
                exact = exact and plain
            else:
                parts.append(self._matched(_IN_QUOTES))
        raise UnfinishedError('"')

    def _expansion(self) -> tuple[str, bool]:
        """Take a variable or what a command prints; return its text and whether it is a home."""
        begun = self._at
        opening = self._script[begun + 1 : begun + 2]
        if self._script[begun] == "`":
            self._at = self._closed(begun + 1, "`")
        elif opening in _CLOSING:
            self._at = self._closed(begun + 2, _CLOSING[opening])
        elif not self._passed(_NAME):
            self._at += self._script[begun] == "$"  # a dollar by itself, or an operator
        text = self._script[begun : self._at]
        return ("~", True) if text in _HOME else (text, text == "$")

    def _closed(self, at: int, closing: str) -> int:
        """Return the place after the bracket or backquote that closes one opened before `at`."""
        open_ones = [closing]
        documents: list[tuple[str, bool]] = []
        script = self._script
        while at < len(script):
            found = script[at]
            if found == "\\":
                at += 2
                continue
            if found == "<" and open_ones[-1] == ")" and (match := _DOCUMENT.match(script, at)):
                documents.append((match[2] or match[3] or match[4], match[1] == "-"))
                at = match.end()
                continue
            if found == "\n" and documents:
                at = _after_documents(script, at + 1, documents)
                continue
            if found == open_ones[-1]:
                open_ones.pop()
                if not open_ones:
                    return at + 1
            elif found == "'" and open_ones[-1] != '"':
                match = _SINGLE.match(script, at)
                if match is None:
                    raise UnfinishedError("'")
                at = match.end()
                continue
            elif found == '"':
                open_ones.append('"')
            elif found in _CLOSING and (open_ones[-1] != '"' or script[at - 1] == "$"):
                open_ones.append(_CLOSING[found])
            at += 1
        raise UnfinishedError(closing)

    def _matched(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._script, self._at)
        if match is None:
            raise UnfinishedError(self._script[self._at])
        self._at = match.end()
        return match[0]

    def _begin_document(self, *, strip: bool) -> None:
        self._passed(_SPACE)
        self._documents.append((self._word().text, strip))

    def _skip_documents(self) -> None:
        """Pass over the here-documents that begin at this line."""
        if self._documents:
            self._at = _after_documents(self._script, self._at, self._documents)


def _after_documents(script: str, at: int, documents: list[tuple[str, bool]]) -> int:
    """Return the place after the here-documents that begin at `at`, and forget them."""
    for end, strip in documents:
        while at < len(script):
            stop = script.find("\n", at)
            stop = len(script) if stop < 0 else stop
            line = script[at:stop]
            at = stop + 1
            if (line.lstrip("\t") if strip else line) == end:
                break
    documents.clear()
    return min(at, len(script))
