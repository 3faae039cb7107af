"""Find the files that a shell command reads, writes or searches; patterns count as searches."""

import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, Literal, NamedTuple

Verb = Literal["read", "write", "search"]


class Use(NamedTuple):
    """A file that a command names, and whether it is read, written or searched."""

    path: str
    verb: Verb


class _Word(NamedTuple):
    """A word without quotes, the home folder as ``~``; exact if the shell does not expand it."""

    text: str
    exact: bool


_SEARCHERS: Final = dict.fromkeys(("grep", "egrep", "fgrep"), "efmABCdD") | {"rg": "efgtTmABCjMrEd"}
_PAGERS: Final = {"less": "bhjkoOpPtTxyz", "more": "n", "tac": "s", "nl": "bdfhilnsvw", "bat": "lr"}
"""Pagers print the whole file if the output is not a terminal."""
_READERS: Final = {"cat": "", "head": "nc", "tail": "ncs", "sed": "efl", **_PAGERS, **_SEARCHERS}
"""Commands that print files, with their short options that take a value."""
_PATTERNS: Final = {"-e", "-f", "--expression", "--file", "--regexp"}
"""Options that give the pattern or script; without them it is the first argument."""
_CHANGERS: Final = {"tee", "rm", "mv", "truncate", "unlink", "shred", "cp"}
_PREFIXES: Final = {
    "command",
    "builtin",
    "nohup",
    "sudo",
    "env",
    "time",
    "exec",
    "timeout",
    "nice",
    "stdbuf",
}
"""Commands that run another command, named after their own options."""
_LONG_VALUED: Final = {
    "--expression",
    "--file",
    "--regexp",
    "--lines",
    "--bytes",
    "--pid",
    "--sleep-interval",
    "--line-length",
    "--max-count",
    "--after-context",
    "--before-context",
    "--context",
    "--glob",
    "--type",
    "--type-not",
    "--replace",
}
_SHELLS: Final = {"sh", "bash", "dash", "zsh", "ksh"}
_KNOWN: Final = {*_READERS, *_CHANGERS, *_SHELLS, "cd"}
_LONGEST: Final = 2**14
"""Maximum length in bytes: the grammar takes quadratic time for unclosed lists."""
_GROUPS: Final = {
    "program",
    "subshell",
    "compound_statement",
    "do_group",
    "elif_clause",
    "else_clause",
    "if_statement",
    "while_statement",
    "for_statement",
    "c_style_for_statement",
    "case_statement",
    "case_item",
    "negated_command",
    "pipeline",
}
"""Nodes of the grammar whose commands run in sequence."""
_COMMANDS: Final = {*_GROUPS, "command", "list", "redirected_statement"}
_OUTPUTS: Final = {">", ">>", ">|", ">&", "&>", "&>>", "<>"}
_TERMINALS: Final = {"/dev/stdout", "/dev/stderr", "/dev/tty"}
_ESCAPED: Final = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r"\\([\n\"\\$`])")
_SPECIAL: Final = re.compile(r"(?<!\\)[*?[{]")
"""Characters that make an unquoted word a pattern or several words."""


def file_uses(command: str, cwd: str | None) -> list[Use]:
    """Return the files that a shell command uses, in order.

    Parameters
    ----------
    command : str
        The command line or script.
    cwd : str or None
        The working folder. Relative paths are left out if it is None.

    Returns
    -------
    list of Use
        Path and use of each file; a path begins with ``/`` or ``~``.

    Examples
    --------
    >>> file_uses("cat notes/a.md > b.md", "/home/me")
    [Use(path='/home/me/b.md', verb='write')]
    """
    return _Script(command, cwd).uses


@cache
def _parser() -> Any:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Streams(NamedTuple):
    """The files of redirections, and the arguments that follow them."""

    inputs: list[_Word]
    outputs: list[_Word]
    arguments: list[_Word]


class _Script:
    """Walks the syntax tree of a script and collects its file uses."""

    def __init__(self, command: str, cwd: str | None) -> None:
        self.uses: list[Use] = []
        self._text = command.encode(errors="replace")
        self._cwd = cwd
        if len(self._text) <= _LONGEST:
            known = re.sub(rb"[\x80-\xff]", b"x", self._text)  # other bytes can crash the grammar
            with suppress(RecursionError):
                self._visit(_parser().parse(known).root_node, [])

    def _visit(self, node: Any, redirects: list[Any]) -> None:
        """Collect the file uses of a node; `redirects` apply to its last command."""
        first_use = len(self.uses)
        cwd = self._cwd
        if node.type == "command":
            self._command(node, redirects)
        elif node.type in _GROUPS:
            streams = self._streams(redirects)
            for child in node.named_children:
                self._visit(child, [])
                if node.type == "pipeline":
                    self._cwd = cwd
            self._apply_outputs(streams, first_use, cwd)
            if node.type == "subshell":
                self._cwd = cwd
        elif node.type == "list":  # joined by && or ||; after || only the first counts
            left, *_, right = node.named_children
            self._visit(left, [])
            if all(child.type != "||" for child in node.children):
                self._visit(right, redirects)
        elif node.type == "redirected_statement":
            self._visit_redirected(node, redirects)

    def _visit_redirected(self, node: Any, redirects: list[Any]) -> None:
        """Collect the file uses of a command with redirections and here-documents."""
        first_use = len(self.uses)
        documents = _children(node, "heredoc_redirect")
        own_redirects = _children(node, "file_redirect")
        for document in documents:
            own_redirects += _children(document, "file_redirect")
        body = node.child_by_field_name("body") or node.named_children[0]
        self._visit(body, own_redirects + redirects)
        for document in documents:
            for following in _children(document, *_COMMANDS):
                self._keep_writes(first_use)  # a here-document is piped into the next command
                self._visit(following, redirects)

    def _command(self, node: Any, redirects: list[Any]) -> None:
        """Collect the file uses of one simple command."""
        first_use = len(self.uses)
        cwd = self._cwd
        streams = self._streams(_children(node, "file_redirect") + redirects)
        parts = (*node.children_by_field_name("name"), *node.children_by_field_name("argument"))
        name, arguments = _name_and_words([*map(self._word, parts), *streams.arguments])
        self.uses += _of_command(name, arguments, cwd)
        if name in _READERS:
            self.uses += _uses(streams.inputs, "read", cwd)
        script = _command_string(arguments) if name in _SHELLS else None
        if script:
            self.uses += file_uses(script, cwd)
        if name in {"cd", "pushd"}:
            folders = [word for word in arguments if not word.text.startswith("-")]
            self._cwd = _resolved(folders[0], cwd) if folders else "~"
        self._apply_outputs(streams, first_use, cwd)

    def _streams(self, redirects: Sequence[Any]) -> _Streams:
        """Return the files of redirections of standard input and output."""
        streams = _Streams([], [], [])
        for node in redirects:
            destinations = node.children_by_field_name("destination")
            words = [self._word(destination) for destination in destinations]
            operators = [child.type for child in node.children if not child.is_named]
            if not (words and operators):
                continue
            target = words[0]
            operator = operators[0]
            descriptor_node = node.child_by_field_name("descriptor")
            descriptor = descriptor_node.text.decode() if descriptor_node else ""
            is_descriptor = operator == ">&" and target.text.isdigit()
            stays_visible = is_descriptor or target.text in _TERMINALS
            if operator == "<" and descriptor in {"", "0"}:
                streams.inputs.append(target)
            elif operator in _OUTPUTS and descriptor in {"", "1"} and not stays_visible:
                streams.outputs.append(target)
            streams.arguments.extend(words[1:])
        return streams

    def _apply_outputs(self, streams: _Streams, first_use: int, cwd: str | None) -> None:
        """Turn the reads since `first_use` into writes of the output files, if there are any."""
        if streams.outputs:
            self._keep_writes(first_use)
            self.uses += _uses(streams.outputs, "write", cwd)

    def _keep_writes(self, first_use: int) -> None:
        """Drop the reads and searches since `first_use`: their output is not shown."""
        recent_uses = self.uses[first_use:]
        self.uses[first_use:] = [use for use in recent_uses if use.verb == "write"]

    def _word(self, node: Any) -> _Word:
        """Return the word of a syntax node without its quotes."""
        raw = self._text[node.start_byte : node.end_byte].decode(errors="replace")
        if node.type in {"word", "number"}:
            return _Word(_ESCAPED.sub(_unescaped, raw), not _SPECIAL.search(raw))
        if node.type == "raw_string":
            return _Word(raw[1:-1], exact=True)
        if node.type in {"string", "concatenation", "command_name"}:
            return self._joined(node)
        return _Word("~", exact=True) if raw in {"$HOME", "${HOME}"} else _Word(raw, exact=False)

    def _joined(self, node: Any) -> _Word:
        """Return a word of several parts, with the text between the expansions of a string."""
        quote_length = 1 if node.type == "string" else 0
        start = node.start_byte + quote_length
        exact = True
        parts: list[str] = []
        for child in node.named_children:
            if child.type == "string_content":
                continue
            word = self._word(child)
            parts.append(_plain(self._text[start : child.start_byte]))
            parts.append(word.text)
            exact = exact and word.exact
            start = child.end_byte
        parts.append(_plain(self._text[start : node.end_byte - quote_length]))
        return _Word("".join(parts), exact)


def _children(node: Any, *kinds: str) -> list[Any]:
    return [child for child in node.named_children if child.type in kinds]


def _plain(text: bytes) -> str:
    return _ESCAPED_IN_QUOTES.sub(_unescaped, text.decode(errors="replace"))


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _uses(words: Iterable[_Word], verb: Verb, cwd: str | None) -> Iterator[Use]:
    """Yield the files that words name; a pattern is a search, and is left out for a write."""
    for word in words:
        path = _resolved(word, cwd)
        if path is not None and (word.exact or verb != "write"):
            yield Use(path, verb if word.exact else "search")


def _of_command(name: str, words: Sequence[_Word], cwd: str | None) -> Iterator[Use]:
    """Yield the file uses of a command by its name and arguments."""
    verb: Verb
    if name in _READERS:
        files = _files(name, words)
        if name == "sed" and any(_edits_in_place(word.text) for word in words):
            verb = "write"
        elif name in _SEARCHERS and len(files) != 1:
            verb = "search"
        else:
            verb = "read"
    elif name in _CHANGERS:
        named = [word for word in words if not word.text.startswith("-")]
        files = named[-1:] if name == "cp" else named
        verb = "write"
    else:
        return
    yield from _uses(files, verb, cwd)


def _edits_in_place(text: str) -> bool:
    """Return whether an argument is the option of ``sed`` to edit files in place."""
    if text.startswith(("--in-place", "-i")):
        return True
    is_letters = text.startswith("-") and text[1:].isalpha()
    return is_letters and "i" in text and "e" not in text


def _files(name: str, words: Sequence[_Word]) -> list[_Word]:
    """Return the arguments that are files: not options, and not the pattern or script."""
    options, files = _options_and_others(_READERS[name], words)
    has_pattern_first = (name in _SEARCHERS or name == "sed") and not _PATTERNS & {*options}
    return files[1:] if has_pattern_first else files


def _options_and_others(valued: str, words: Sequence[_Word]) -> tuple[list[str], list[_Word]]:
    """Return the options and the other words; the letters in `valued` take a value."""
    options: list[str] = []
    others: list[_Word] = []
    remaining = iter(words)
    for word in remaining:
        if word.text == "--":
            others += remaining
        elif not word.text.startswith("-") or word.text == "-":
            others.append(word)
        else:
            option, takes_next = _option(valued, word.text)
            options.append(option)
            if takes_next:
                next(remaining, None)
    return options, others


def _option(valued: str, text: str) -> tuple[str, bool]:
    """Return an option, and whether the next word is its value."""
    if text.startswith("--"):
        name, has_value, _ = text.partition("=")
        return name, name in _LONG_VALUED and not has_value
    for position, letter in enumerate(text[1:], 1):
        if letter in valued:
            return f"-{letter}", position == len(text) - 1
    return text, False


def _command_string(words: Sequence[_Word]) -> str | None:
    """Return the script that ``-c`` passes to a shell; None if it is unknown."""
    options, others = _options_and_others("o", words)  # -o pipefail
    is_script = any(re.fullmatch("-[a-z]*c[a-z]*", option) for option in options)
    return others[0].text if is_script and others and others[0].exact else None


def _name_and_words(words: list[_Word]) -> tuple[str, list[_Word]]:
    """Return the name and arguments of a command; after a prefix, of the first known command."""
    names = [word.text.rpartition("/")[2] if word.exact else "" for word in words] or [""]
    position = 0
    if names[0] in _PREFIXES or names[0].startswith("-"):  # such as options of the keyword time
        position = next((position for position, name in enumerate(names) if name in _KNOWN), 0)
    return names[position], words[position + 1 :]


def _resolved(word: _Word, cwd: str | None) -> str | None:
    """Return the absolute or ``~`` path of a word; None if it is unknown.

    The path of a pattern is the folder before its first special character.
    """
    text = word.text
    if not word.exact:
        positions = [text.find(character) for character in "*?[{$`<" if character in text]
        literal = text[: min(positions, default=0)]
        text = literal.rpartition("/")[0]
        if not text:
            return None if word.text.startswith(("$", "`", "<", "/")) else cwd
    if text.startswith(("/", "~")):
        return os.path.normpath(text)
    return None if cwd is None or not text else os.path.normpath(f"{cwd}/{text}")
