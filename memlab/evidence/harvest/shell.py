"""Which files a shell command shows to the agent that runs it, and which it changes.

A command counts for a file that it names: patterns, variables and loops name none. What goes into
another file, into a variable or into another command's arguments is not shown.
"""

import os.path
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from memlab.evidence.harvest.shell_words import (
    OPERATOR,
    REDIRECT,
    WORD,
    Token,
    UnfinishedError,
    tokens_of,
)

Verb = Literal["read", "write", "search"]


class Use(NamedTuple):
    """A file that a command names: shown, changed, or searched together with others."""

    path: str
    verb: Verb


@dataclass(frozen=True)
class _Options:
    """What a command's options take, and whether its first argument is no file."""

    valued: str = ""
    """Short options that take a value."""
    long_valued: tuple[str, ...] = ()
    instead_of_pattern: tuple[str, ...] = ()
    """Options that give the pattern or the script, which is the first argument otherwise."""
    has_pattern: bool = False


_GREP: Final = _Options(
    "efmABCdD",
    ("--regexp", "--file", "--max-count", "--after-context", "--before-context", "--context"),
    ("-e", "-f", "--regexp", "--file"),
    has_pattern=True,
)
_READERS: Final = {
    "cat": _Options(),
    "head": _Options("nc", ("--lines", "--bytes")),
    "tail": _Options("ncs", ("--lines", "--bytes", "--pid", "--sleep-interval")),
    "sed": _Options(
        "efl",
        ("--expression", "--file", "--line-length"),
        ("-e", "-f", "--expression", "--file"),
        has_pattern=True,
    ),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": replace(
        _GREP,
        valued="efgtTmABCjMrEd",
        long_valued=(*_GREP.long_valued, "--glob", "--type", "--type-not", "--replace"),
    ),
}
_SEARCHERS: Final = frozenset({"grep", "egrep", "fgrep", "rg"})
_WRITERS: Final = frozenset({"tee", "rm", "mv", "truncate", "unlink", "shred"})
_PREFIXES: Final = {
    "sudo": _Options("ugpCDhRTU", ("--user", "--group", "--chdir")),
    "command": _Options(),
    "builtin": _Options(),
    "env": _Options("uC", ("--unset", "--chdir")),
    "time": _Options("fo"),
    "nohup": _Options(),
    "exec": _Options("a"),
    "timeout": _Options("ks", ("--kill-after", "--signal"), has_pattern=True),
    "nice": _Options("n", ("--adjustment",)),
    "stdbuf": _Options("ioe", ("--input", "--output", "--error")),
}
"""Commands that run the command after them; of `timeout` a first argument stands before it."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_COMMAND_STRING: Final = re.compile(r"-[a-z]*c[a-z]*")
_DEEPEST: Final = 50
_LONGEST: Final = 2**16
_SEEN: Final = frozenset({"/dev/stdout", "/dev/stderr", "/dev/tty"})
_ENDS: Final = {
    "if": "fi",
    "while": "done",
    "until": "done",
    "for": "done",
    "select": "done",
    "case": "esac",
    "{": "}",
}
"""Keywords that open a group of commands, and what closes it."""
_BETWEEN: Final = frozenset({"then", "elif", "else", "do", "in", "!", "time"})
"""Keywords after which a command begins."""
_SEPARATORS: Final = frozenset({";", "&", "\n", ";;", ";&", ";;&", "&&"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_NOTHING: Final = Token(OPERATOR, "")


def file_uses(command: str, cwd: str | None) -> Iterator[Use]:
    """Yield the files that a command names, in the order of the command.

    Parameters
    ----------
    command : str
        A script for a POSIX shell or Bash.
    cwd : str or None
        The folder it starts in; relative paths are left out where it is not known.

    Yields
    ------
    Use
        With an absolute path, or one that begins with ``~``. A path may stand several times.
    """
    yield from _uses(command, cwd, inside=False)


def _uses(command: str, cwd: str | None, *, inside: bool) -> Iterator[Use]:
    """Yield the files that a script names; of what it hands to a shell, one level of scripts."""
    if len(command) <= _LONGEST:
        with suppress(UnfinishedError, _TooDeepError):
            uses, _ = _Script(tokens_of(command), inside=inside).sequence(cwd, frozenset())
            yield from uses


class _TooDeepError(ValueError):
    """Groups lie in groups deeper than anybody writes."""


class _Script:
    """Reads a script's commands from its words; what is wrong with it is passed over."""

    def __init__(self, tokens: list[Token], *, inside: bool) -> None:
        self._tokens = tokens
        self._inside = inside
        """Whether another script hands this one to a shell."""
        self._at = 0
        self._depth = 0

    def sequence(self, cwd: str | None, ends: frozenset[str]) -> tuple[list[Use], str | None]:
        """Read commands up to a token that closes them; return what they use, and where they end.

        Of alternatives the first counts alone: whether another ran is not known.
        """
        uses: list[Use] = []
        alternative = False
        while (token := self._next()) is not _NOTHING and not self._is_one_of(token, ends):
            if token.kind == OPERATOR and token.text in {*_SEPARATORS, "||", ")", "|", "|&"}:
                self._at += 1
                alternative = token.text == "||" or (alternative and token.text == "\n")
                continue
            if self._is_one_of(token, _BETWEEN):
                self._at += 1
                continue
            before = self._at
            found, cwd = self._pipeline(cwd)
            self._at += self._at == before  # whatever it was, it is no command
            uses += [] if alternative else found
            alternative = False
        return uses, cwd

    def _pipeline(self, cwd: str | None) -> tuple[list[Use], str | None]:
        """Read commands joined by pipes: the last one's output is what is shown."""
        uses, shown, after = self._element(cwd)
        joined = False
        while self._next().text in {"|", "|&"} and self._next().kind == OPERATOR:
            self._at += 1
            while self._next().text == "\n":
                self._at += 1
            joined = True
            found, shown, _ = self._element(cwd)
            uses += found
        kept = [use for use in uses if shown or use.verb == "write"]
        return kept, cwd if joined else after

    def _element(self, cwd: str | None) -> tuple[list[Use], bool, str | None]:
        """Read a command or a group; return its uses, whether it is shown, and where it ends."""
        token = self._next()
        if token.text == "(" and token.kind == OPERATOR:
            self._at += 1
            return self._group(cwd, frozenset({")"}), stays=True)
        if token.kind == WORD and token.bare and token.text in _ENDS:
            self._at += 1
            self._skip_head(token.text)
            return self._group(cwd, frozenset({_ENDS[token.text]}), stays=False)
        if token.kind == WORD and token.bare and token.text == "[[":
            while self._next() is not _NOTHING and self._take().text != "]]":
                pass
            return [], True, cwd
        return self._command(cwd)

    def _skip_head(self, keyword: str) -> None:
        """Pass over what stands between a keyword and the commands of its group."""
        stop = {"for": "do", "select": "do", "case": "in"}.get(keyword)
        while stop and self._next() is not _NOTHING and self._take().text != stop:
            pass

    def _group(
        self, cwd: str | None, ends: frozenset[str], *, stays: bool
    ) -> tuple[list[Use], bool, str | None]:
        self._deeper()
        uses, after = self.sequence(cwd, ends)
        self._depth -= 1
        self._at += 1
        redirects = _Redirects(cwd)
        while self._next().kind == REDIRECT:
            redirects.take(self._take(), self._take())
        kept = uses if redirects.shown else [use for use in uses if use.verb == "write"]
        return [*kept, *redirects.writes], redirects.shown, cwd if stays else after

    def _command(self, cwd: str | None) -> tuple[list[Use], bool, str | None]:
        words: list[Token] = []
        redirects = _Redirects(cwd)
        while (token := self._next()).kind != OPERATOR:
            self._at += 1
            if token.kind == REDIRECT:
                redirects.take(token, self._take())
            else:
                words.append(token)
        if token.text == "(" and len(words) == 1:  # a function: it is not run here
            self._at += 2
            return self._unseen(cwd)
        if words and words[0].bare and words[0].text == "function":
            return self._unseen(cwd)
        name, arguments = _name_and_words(words)
        uses = [*redirects.writes, *_of_command(name, arguments, cwd)]
        if name in _SHELLS and not self._inside and (script := _command_string(arguments)):
            uses += _uses(script, cwd, inside=True)
        if name in _READERS:
            uses += [Use(path, "read") for path in redirects.inputs]
        kept = [use for use in uses if redirects.shown or use.verb == "write"]
        return kept, redirects.shown, _after(name, arguments, cwd)

    def _unseen(self, cwd: str | None) -> tuple[list[Use], bool, str | None]:
        """Pass over the body of a function."""
        self._deeper()
        self._element(cwd)
        self._depth -= 1
        return [], True, cwd

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _TooDeepError

    def _next(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _NOTHING

    def _take(self) -> Token:
        token = self._next()
        self._at += 1
        return token

    @staticmethod
    def _is_one_of(token: Token, words: frozenset[str]) -> bool:
        return token.text in words and token.bare


class _Redirects:
    """Where a command's input comes from and its output goes."""

    def __init__(self, cwd: str | None) -> None:
        self._cwd = cwd
        self.shown = True
        """Whether what it prints is shown."""
        self.inputs: list[str] = []
        self.writes: list[Use] = []

    def take(self, redirect: Token, target: Token) -> None:
        """Take in one redirection and the word after it."""
        path = _resolved(target, self._cwd)
        is_file = target.kind == WORD and not (redirect.text == ">&" and target.text.isdigit())
        if redirect.text == "<" and redirect.descriptor in {"", "0"} and target.exact:
            self.inputs += [] if path is None else [path]
        elif (
            redirect.text in {">", ">>", ">|", ">&", "&>", "&>>", "<>"}
            and redirect.descriptor in {"", "1"}
            and is_file
            and path not in _SEEN
        ):
            self.shown = False
            if path is not None and target.exact:
                self.writes.append(Use(path, "write"))


def _after(name: str, words: Sequence[Token], cwd: str | None) -> str | None:
    """Return the folder in which the next command stands."""
    if name not in {"cd", "pushd"}:
        return cwd
    folders = [word for word in words if not word.text.startswith("-")]
    return _resolved(folders[0], cwd) if folders else "~"


def _of_command(name: str, words: Sequence[Token], cwd: str | None) -> Iterator[Use]:
    if name in _READERS:
        files = _files(_READERS[name], words)
        changes = name == "sed" and any(_edits_in_place(word.text) for word in words)
        alone = name not in _SEARCHERS or len(files) == 1
        for file in files:
            path = _resolved(file, cwd)
            if path is not None:
                verb: Verb = "write" if changes else "read" if alone else "search"
                yield Use(path, verb if file.exact else "search")
    elif name in _WRITERS or name == "cp":
        files = [word for word in words if not word.text.startswith("-")]
        for file in files[-1:] if name == "cp" else files:
            path = _resolved(file, cwd)
            if path is not None and file.exact:
                yield Use(path, "write")


def _edits_in_place(text: str) -> bool:
    return text.startswith(("--in-place", "-i")) or (
        text.startswith("-") and text[1:].isalpha() and "i" in text and "e" not in text
    )


def _files(options: _Options, words: Sequence[Token]) -> list[Token]:
    """Return the arguments that are files."""
    files: list[Token] = []
    pattern_given = not options.has_pattern
    rest = iter(words)
    for word in rest:
        if word.text == "--":
            files += rest
        elif not word.text.startswith("-") or word.text == "-":
            files.append(word)
        else:
            option, takes_next = _option(options, word.text)
            pattern_given = pattern_given or option in options.instead_of_pattern
            if takes_next:
                next(rest, None)
    return files if pattern_given else files[1:]


def _option(options: _Options, text: str) -> tuple[str, bool]:
    """Return the option that takes a value, if one does, and whether that is the next word."""
    if text.startswith("--"):
        name, has_value, _ = text.partition("=")
        return name, name in options.long_valued and not has_value
    for place, letter in enumerate(text[1:], 1):
        if letter in options.valued:
            return f"-{letter}", place == len(text) - 1
    return text, False


def _command_string(words: Sequence[Token]) -> str | None:
    """Return the script that ``-c`` hands to a shell, where it is known."""
    rest = iter(words)
    for word in rest:
        if not word.text.startswith("-"):
            break
        if _COMMAND_STRING.fullmatch(word.text):
            script = next(rest, None)
            return script.text if script is not None and script.exact else None
        if word.text.endswith("o"):  # -o pipefail
            next(rest, None)
    return None


def _name_and_words(words: list[Token]) -> tuple[str, list[Token]]:
    """Return a command's name without its folder, and its arguments."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):  # of the keyword time
        at += 1
    while at < len(words) and _ASSIGNMENT.match(words[at].text):
        at += 1
    while at < len(words) and (options := _PREFIXES.get(words[at].text)) is not None:
        at += 1
        while at < len(words) and (words[at].text.startswith("-") or "=" in words[at].text):
            at += 1 + _option(options, words[at].text)[1]
        at += options.has_pattern
    if at >= len(words) or not words[at].exact:
        return "", []
    return words[at].text.rpartition("/")[2], words[at + 1 :]


def _resolved(word: Token, cwd: str | None) -> str | None:
    """Return an absolute path, or one that begins at home; None where it cannot be known.

    Of a pattern it is the folder in which the pattern looks.
    """
    text = word.text
    if not word.exact:
        known = text[: min((text.find(c) for c in "*?[{$`<" if c in text), default=0)]
        text = known.rpartition("/")[0]
        if not text:
            return None if word.text.startswith(("$", "`", "<", "/")) else cwd
    if text.startswith(("/", "~")):
        return os.path.normpath(text)
    return None if cwd is None or not text else os.path.normpath(f"{cwd}/{text}")
