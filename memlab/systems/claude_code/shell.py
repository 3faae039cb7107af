"""Which files a shell command shows to the agent that runs it, and which it changes.

A command counts for a file that it names: patterns, variables and loops name none. What goes into
another file, into a variable or into another command's arguments is not shown. What somebody wrote
to an agent may stand in a script: what the grammar cannot make out is passed over.
"""

import os.path
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple

Verb = Literal["read", "write", "search"]


class Use(NamedTuple):
    """A file that a command names: shown, changed, or searched together with others."""

    path: str
    verb: Verb


class _Word(NamedTuple):
    """A word without its quotes, a home as ``~``; exact where the shell passes it on as it is."""

    text: str
    exact: bool


_GREP: Final = "efmABCdD"
_READERS: Final = {
    "cat": "",
    "head": "nc",
    "tail": "ncs",
    "sed": "efl",
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": "efgtTmABCjMrEd",
}
"""What shows files, with its short options that take a value."""
_SEARCHERS: Final = frozenset({"grep", "egrep", "fgrep", "rg"})
_PATTERNS: Final = frozenset({"-e", "-f", "--expression", "--file", "--regexp"})
"""Options that give the pattern or the script, which is the first argument otherwise."""
_WRITERS: Final = frozenset({"tee", "rm", "mv", "truncate", "unlink", "shred"})
_PREFIXES: Final = {
    **dict.fromkeys(("command", "builtin", "nohup"), ""),
    "sudo": "ugpCDhRTU",
    "env": "uC",
    "time": "fo",
    "exec": "a",
    "timeout": "ks",
    "nice": "n",
    "stdbuf": "ioe",
}
"""What runs the command after it, with its short options that take a value."""
_LONG_VALUED: Final = frozenset(
    {
        *("--expression", "--file", "--regexp", "--lines", "--bytes", "--pid", "--sleep-interval"),
        *("--line-length", "--max-count", "--after-context", "--before-context", "--context"),
        *("--glob", "--type", "--type-not", "--replace", "--user", "--group", "--chdir", "--unset"),
        *("--kill-after", "--signal", "--adjustment", "--input", "--output", "--error"),
    }
)
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_DEEPEST: Final = 50
_LONGEST: Final = 2**14
"""Bytes: the grammar takes the square of them for lists that are never closed."""
_GROUPS: Final = frozenset(
    {
        *("program", "subshell", "compound_statement", "do_group", "elif_clause", "else_clause"),
        *("if_statement", "while_statement", "for_statement", "c_style_for_statement"),
        *("case_statement", "case_item", "negated_command"),
    }
)
"""Nodes of the grammar whose commands run one after the other."""
_COMMANDS: Final = {*_GROUPS, "command", "pipeline", "list", "redirected_statement"}
_OUTPUTS: Final = frozenset({">", ">>", ">|", ">&", "&>", "&>>", "<>"})
_ESCAPED: Final = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r"\\([\n\"\\$`])")
_SPECIAL: Final = re.compile(r"(?<!\\)[*?[{]")
"""What makes a bare word a pattern, or several words."""


def file_uses(command: str, cwd: str | None) -> Iterator[Use]:
    """Yield the files that a command names, in the order of the command.

    `cwd` is the folder it starts in; relative paths are left out where it is not known. A path is
    absolute or begins with ``~``, and may stand several times.
    """
    yield from _Script(command, cwd, inside=False).uses


@cache
def _parser() -> Any:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Script:
    """Goes through the syntax tree of a script, from the folder that it starts in."""

    def __init__(self, command: str, cwd: str | None, *, inside: bool) -> None:
        self.uses: list[Use] = []
        self._text = command.encode(errors="replace")
        self._cwd = cwd
        self._inside = inside
        """Whether another script hands this one to a shell: one level of scripts is looked into."""
        if len(self._text) <= _LONGEST:
            known = re.sub(rb"[\x80-\xff]", b"x", self._text)  # beyond it, the grammar can crash
            self._visit(_parser().parse(known).root_node, [], 0)

    def _visit(self, node: Any, redirects: list[Any], depth: int) -> bool:
        """Take in what a node uses, and return whether its output is shown.

        Redirections outside of it are those of its last command.
        """
        if depth > _DEEPEST:
            return True
        if node.type in _GROUPS:
            return self._group(node, redirects, depth + 1)
        if node.type == "pipeline":
            return self._pipeline(node.named_children, redirects, depth + 1)
        if node.type == "list":  # joined by && or ||: of alternatives the first
            left, *_, right = node.named_children
            shown = self._visit(left, [], depth + 1)
            is_alternative = any(child.type == "||" for child in node.children)
            return shown if is_alternative else self._visit(right, redirects, depth + 1)
        if node.type == "redirected_statement":
            return self._redirected(node, redirects, depth + 1)
        return self._command(node, redirects) if node.type == "command" else True

    def _group(self, node: Any, redirects: list[Any], depth: int) -> bool:
        output = _Redirects(redirects, self._cwd, self._word)
        start, cwd = len(self.uses), self._cwd
        for child in node.named_children:
            self._visit(child, [], depth)
        self.uses += output.writes
        if node.type == "subshell":
            self._cwd = cwd
        return self._ended(start, shown=output.shown)

    def _pipeline(self, nodes: Sequence[Any], redirects: list[Any], depth: int) -> bool:
        """Visit commands that are joined: the last one's output is what is shown."""
        start, cwd, shown = len(self.uses), self._cwd, True
        for node in nodes:
            shown = self._visit(node, redirects if node == nodes[-1] else [], depth)
            self._cwd = cwd
        return self._ended(start, shown=shown)

    def _redirected(self, node: Any, redirects: list[Any], depth: int) -> bool:
        """Visit a statement with its redirections; a here-document holds what stands behind it."""
        documents = _children(node, "heredoc_redirect")
        own = [each for one in (node, *documents) for each in _children(one, "file_redirect")]
        body = node.child_by_field_name("body") or node.named_children[0]
        behind = [(child, one) for one in documents for child in _children(one, *_COMMANDS)]
        if not behind:
            return self._visit(body, own + redirects, depth)
        (following, document), *_ = behind
        if following.type == "pipeline" and document.child_by_field_name("right") != following:
            return self._pipeline([body, *following.named_children], own + redirects, depth)
        self._visit(body, own, depth)
        return self._visit(following, redirects, depth)

    def _command(self, node: Any, redirects: list[Any]) -> bool:
        start = len(self.uses)
        own = _children(node, "file_redirect")
        output = _Redirects(own + redirects, self._cwd, self._word)
        name = node.child_by_field_name("name")
        words = [self._word(each) for each in node.children_by_field_name("argument")]
        if name is not None and name.named_children:
            words.insert(0, self._word(name.named_children[0]))
        called, arguments = _name_and_words(words + output.words)
        self.uses += [*output.writes, *_of_command(called, arguments, self._cwd)]
        if called in _SHELLS and not self._inside and (script := _command_string(arguments)):
            self.uses += _Script(script, self._cwd, inside=True).uses
        if called in _READERS:
            self.uses += [Use(path, "read") for path in output.inputs]
        if called in {"cd", "pushd"}:
            folders = [word for word in arguments if not word.text.startswith("-")]
            self._cwd = _resolved(folders[0], self._cwd) if folders else "~"
        return self._ended(start, shown=output.shown)

    def _ended(self, start: int, *, shown: bool) -> bool:
        """Keep what is still seen of the uses from `start` on."""
        if not shown:
            self.uses[start:] = [use for use in self.uses[start:] if use.verb == "write"]
        return shown

    def _word(self, node: Any) -> _Word:
        """Return the word that a node of the grammar stands for."""
        raw = self._text[node.start_byte : node.end_byte].decode(errors="replace")
        if node.type in {"word", "number"}:
            return _Word(_ESCAPED.sub(_unescaped, raw), not _SPECIAL.search(raw))
        if node.type == "raw_string":
            return _Word(raw[1:-1], exact=True)
        if node.type in {"string", "concatenation"}:
            return self._joined(node)
        if raw in {"$HOME", "${HOME}"}:
            return _Word("~", exact=True)
        return _Word(raw, exact=node.type == "string_content")

    def _joined(self, node: Any) -> _Word:
        """Return a word of several parts; in a string there is text between expansions."""
        quoted = node.type == "string"
        at, exact = node.start_byte + quoted, True
        parts: list[str] = []
        for child in [each for each in node.named_children if each.type != "string_content"]:
            one = self._word(child)
            parts += _plain(self._text[at : child.start_byte]), one.text
            exact = exact and one.exact
            at = child.end_byte
        return _Word("".join([*parts, _plain(self._text[at : node.end_byte - quoted])]), exact)


def _children(node: Any, *kinds: str) -> list[Any]:
    return [child for child in node.named_children if child.type in kinds]


class _Redirects:
    """Where a command's input comes from and its output goes."""

    def __init__(self, nodes: Sequence[Any], cwd: str | None, word: Callable[[Any], _Word]) -> None:
        self.shown = True
        """Whether what it prints is shown."""
        self.inputs: list[str] = []
        self.writes: list[Use] = []
        self.words: list[_Word] = []
        """Arguments that stand behind a redirection."""
        for node in nodes:
            targets = [word(one) for one in node.children_by_field_name("destination")]
            descriptor = node.child_by_field_name("descriptor")
            number = descriptor.text.decode() if descriptor else ""
            operators = [child.type for child in node.children if not child.is_named]
            if targets and operators:
                self._take(operators[0], number, targets[0], cwd)
            self.words += targets[1:]

    def _take(self, operator: str, descriptor: str, target: _Word, cwd: str | None) -> None:
        path = _resolved(target, cwd)
        if operator == "<" and descriptor in {"", "0"} and target.exact:
            self.inputs += [] if path is None else [path]
        elif (
            operator in _OUTPUTS
            and descriptor in {"", "1"}
            and not (operator == ">&" and target.text.isdigit())
            and path not in ("/dev/stdout", "/dev/stderr", "/dev/tty")
        ):
            self.shown = False
            if path is not None and target.exact:
                self.writes.append(Use(path, "write"))


def _plain(text: bytes) -> str:
    return _ESCAPED_IN_QUOTES.sub(_unescaped, text.decode(errors="replace"))


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _of_command(name: str, words: Sequence[_Word], cwd: str | None) -> Iterator[Use]:
    if name in _READERS:
        files = _files(name, words)
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


def _files(name: str, words: Sequence[_Word]) -> list[_Word]:
    """Return the arguments that are files."""
    options, files = _options_and_others(_READERS[name], words)
    has_pattern_first = (name in _SEARCHERS or name == "sed") and not _PATTERNS & {*options}
    return files[1:] if has_pattern_first else files


def _options_and_others(valued: str, words: Sequence[_Word]) -> tuple[list[str], list[_Word]]:
    """Return options, of which some letters take a value, and the words that are neither."""
    options: list[str] = []
    others: list[_Word] = []
    rest = iter(words)
    for word in rest:
        if word.text == "--":
            others += rest
        elif not word.text.startswith("-") or word.text == "-":
            others.append(word)
        else:
            option, takes_next = _option(valued, word.text)
            options.append(option)
            if takes_next:
                next(rest, None)
    return options, others


def _option(valued: str, text: str) -> tuple[str, bool]:
    """Return the option that takes a value, if one does, and whether that is the next word."""
    if text.startswith("--"):
        name, has_value, _ = text.partition("=")
        return name, name in _LONG_VALUED and not has_value
    for place, letter in enumerate(text[1:], 1):
        if letter in valued:
            return f"-{letter}", place == len(text) - 1
    return text, False


def _command_string(words: Sequence[_Word]) -> str | None:
    """Return the script that ``-c`` hands to a shell, where it is known."""
    options, others = _options_and_others("o", words)  # -o pipefail
    is_script = any(re.fullmatch("-[a-z]*c[a-z]*", option) for option in options)
    return others[0].text if is_script and others and others[0].exact else None


def _name_and_words(words: list[_Word]) -> tuple[str, list[_Word]]:
    """Return a command's name without its folder, and its arguments."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):  # of the keyword time
        at += 1
    while at < len(words) and (valued := _PREFIXES.get(words[at].text)) is not None:
        limited = words[at].text == "timeout"
        at += 1
        while at < len(words) and (words[at].text.startswith("-") or "=" in words[at].text):
            at += 1 + _option(valued, words[at].text)[1]
        at += limited  # the time stands before the command
    if at >= len(words) or not words[at].exact:
        return "", []
    return words[at].text.rpartition("/")[2], words[at + 1 :]


def _resolved(word: _Word, cwd: str | None) -> str | None:
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
