"""Find the files that a shell command reads, writes or searches.

A file name with wildcards counts as a search.
"""

import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, Literal, NamedTuple

Verb = Literal["read", "write", "search"]


class Use(NamedTuple):
    """A use of a file by a command.

    Attributes
    ----------
    path : str
        The path of the file; it begins with ``/`` or ``~``.
    verb : {"read", "write", "search"}
        How the command uses the file.
    """

    path: str
    verb: Verb


class _Word(NamedTuple):
    """A word of a command.

    Attributes
    ----------
    text : str
        The word without its quotes, with ``~`` for the home folder.
    is_exact : bool
        Whether the shell passes the word on as it is, without expanding wildcards or variables.
    """

    text: str
    is_exact: bool


_SEARCHERS: Final = {
    "grep": "efmABCdD",
    "egrep": "efmABCdD",
    "fgrep": "efmABCdD",
    "rg": "efgtTmABCjMrEd",
}
"""Commands that search files, with the letters of their short options that take a value."""
_PAGERS: Final = {"less": "bhjkoOpPtTxyz", "more": "n", "tac": "s", "nl": "bdfhilnsvw", "bat": "lr"}
"""Commands that print the whole file if the output is not a terminal.

Each has the letters of its short options that take a value.
"""
_READERS: Final = {"cat": "", "head": "nc", "tail": "ncs", "sed": "efl", **_PAGERS, **_SEARCHERS}
"""Commands that print files, with the letters of their short options that take a value."""
_PATTERN_OPTIONS: Final = {"-e", "-f", "--expression", "--file", "--regexp"}
"""Options that give the pattern or script. Without them, it is the first argument."""
_CHANGERS: Final = {"tee", "rm", "mv", "truncate", "unlink", "shred", "cp"}
"""Commands that write, move or delete files."""
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
"""Commands that run another command, which follows their own options and arguments."""
_LONG_OPTIONS_WITH_VALUE: Final = {
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
_KNOWN_COMMANDS: Final = {*_READERS, *_CHANGERS, *_SHELLS, "cd"}
_MAX_BYTES: Final = 2**14
"""Maximum size of a parsed command. The grammar takes quadratic time for unclosed lists."""
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
_COMMAND_NODES: Final = {*_GROUPS, "command", "list", "redirected_statement"}
"""Nodes of the grammar that contain a command."""
_OUTPUT_OPERATORS: Final = {">", ">>", ">|", ">&", "&>", "&>>", "<>"}
"""Operators that redirect the output of a command to a file."""
_TERMINALS: Final = {"/dev/stdout", "/dev/stderr", "/dev/tty"}
_ESCAPED: Final = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r"\\([\n\"\\$`])")
_WILDCARD: Final = re.compile(r"(?<!\\)[*?[{]")
"""A character that makes an unquoted word a pattern or several words."""
_EXPANDED: Final = "*?[{$`<"
"""Characters at which the shell expands a word."""


def file_uses(command: str, cwd: str | None) -> list[Use]:
    """Return the uses of files by a shell command, in order.

    Parameters
    ----------
    command : str
        The command line or script.
    cwd : str or None
        The working folder. Relative paths are left out if it is None.

    Returns
    -------
    list of Use
        The uses; empty for a command that is too long to be parsed.

    Examples
    --------
    >>> file_uses("cat notes/a.md > b.md", "/home/me")
    [Use(path='/home/me/b.md', verb='write')]
    """
    return _Script(command, cwd).uses


@cache
def _parser() -> Any:
    """Return the parser of the grammar of Bash."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Streams(NamedTuple):
    """The redirections of a command.

    Attributes
    ----------
    inputs : list of _Word
        The files that standard input is read from.
    outputs : list of _Word
        The files that standard output is written to.
    arguments : list of _Word
        The words after a redirection, which are arguments of the command.
    """

    inputs: list[_Word]
    outputs: list[_Word]
    arguments: list[_Word]


class _Script:
    """Walks the syntax tree of a script and collects its file uses."""

    def __init__(self, command: str, cwd: str | None) -> None:
        self.uses: list[Use] = []
        self._text = command.encode(errors="replace")
        self._cwd = cwd
        if len(self._text) <= _MAX_BYTES:
            # Other bytes than ASCII can crash the grammar. The replaced text has the same length.
            ascii_text = re.sub(rb"[\x80-\xff]", b"x", self._text)
            with suppress(RecursionError):
                self._visit(_parser().parse(ascii_text).root_node, [])

    def _visit(self, node: Any, redirects: list[Any]) -> None:
        """Collect the file uses of a node.

        `redirects` apply to all commands of a group, but only to the last command of a list: in
        ``a && b > file``, the grammar attaches the redirection of ``b`` to the whole list.
        """
        first_use = len(self.uses)
        cwd = self._cwd
        if node.type == "command":
            self._command(node, redirects)
        elif node.type in _GROUPS:
            streams = self._streams(redirects)
            for child in node.named_children:
                self._visit(child, [])
                if node.type == "pipeline":  # each part runs in a subshell
                    self._cwd = cwd
            self._apply_outputs(streams, first_use, cwd)
            if node.type == "subshell":
                self._cwd = cwd
        elif node.type == "list":  # two commands joined by && or ||
            left, *_, right = node.named_children
            self._visit(left, [])
            # The command after || runs only if the other one fails. It is left out.
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
            for following in _children(document, *_COMMAND_NODES):
                # The output up to here is piped into this command, and so is not shown.
                self._keep_writes(first_use)
                self._visit(following, redirects)

    def _command(self, node: Any, redirects: list[Any]) -> None:
        """Collect the file uses of one simple command."""
        first_use = len(self.uses)
        cwd = self._cwd
        streams = self._streams(_children(node, "file_redirect") + redirects)
        name_nodes = node.children_by_field_name("name")
        argument_nodes = node.children_by_field_name("argument")
        words = [self._word(part) for part in (*name_nodes, *argument_nodes)]
        name, arguments = _name_and_arguments([*words, *streams.arguments])
        self.uses += _uses_by_command(name, arguments, cwd)
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
            elif operator in _OUTPUT_OPERATORS and descriptor in {"", "1"} and not stays_visible:
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
            return _Word(_ESCAPED.sub(_unescaped, raw), not _WILDCARD.search(raw))
        if node.type == "raw_string":
            return _Word(raw[1:-1], is_exact=True)
        if node.type in {"string", "concatenation", "command_name"}:
            return self._joined(node)
        if raw in {"$HOME", "${HOME}"}:
            return _Word("~", is_exact=True)
        return _Word(raw, is_exact=False)

    def _joined(self, node: Any) -> _Word:
        """Return the word of a node with several parts, such as a string with expansions."""
        quote_length = 1 if node.type == "string" else 0
        start = node.start_byte + quote_length
        is_exact = True
        parts: list[str] = []
        for child in node.named_children:
            if child.type == "string_content":
                continue
            word = self._word(child)
            parts.append(_plain(self._text[start : child.start_byte]))
            parts.append(word.text)
            is_exact = is_exact and word.is_exact
            start = child.end_byte
        parts.append(_plain(self._text[start : node.end_byte - quote_length]))
        return _Word("".join(parts), is_exact)


def _children(node: Any, *node_types: str) -> list[Any]:
    """Return the named children of a syntax node that have one of some types."""
    return [child for child in node.named_children if child.type in node_types]


def _plain(text: bytes) -> str:
    """Return text in double quotes without its escapes."""
    return _ESCAPED_IN_QUOTES.sub(_unescaped, text.decode(errors="replace"))


def _unescaped(match: re.Match[str]) -> str:
    """Return an escaped character; an escaped line end continues the line and is dropped."""
    return "" if match[1] == "\n" else match[1]


def _uses(words: Iterable[_Word], verb: Verb, cwd: str | None) -> Iterator[Use]:
    """Yield the uses of the files that words name.

    A word with wildcards counts as a search. If the files are written, it is left out.
    """
    for word in words:
        path = _resolved(word, cwd)
        if path is not None and (word.is_exact or verb != "write"):
            yield Use(path, verb if word.is_exact else "search")


def _uses_by_command(name: str, words: Sequence[_Word], cwd: str | None) -> Iterator[Use]:
    """Yield the file uses of a command by its name and arguments."""
    verb: Verb
    if name in _READERS:
        files = _files(name, words)
        if name == "sed" and any(_edits_in_place(word.text) for word in words):
            verb = "write"
        elif name in _SEARCHERS and len(files) != 1:
            verb = "search"  # the output shows only those of the files that match
        else:
            verb = "read"
    elif name in _CHANGERS:
        arguments = [word for word in words if not word.text.startswith("-")]
        files = arguments[-1:] if name == "cp" else arguments
        verb = "write"
    else:
        return
    yield from _uses(files, verb, cwd)


def _edits_in_place(text: str) -> bool:
    """Return whether an argument is the option of ``sed`` to edit files in place."""
    if text.startswith(("--in-place", "-i")):
        return True
    # Short options in one word, such as -ni. The letters after an e are a script.
    has_only_letters = text.startswith("-") and text[1:].isalpha()
    return has_only_letters and "i" in text and "e" not in text


def _files(name: str, words: Sequence[_Word]) -> list[_Word]:
    """Return the arguments that are files: not options, and not the pattern or script."""
    options, files = _options_and_others(_READERS[name], words)
    takes_pattern = name in _SEARCHERS or name == "sed"
    if takes_pattern and _PATTERN_OPTIONS.isdisjoint(options):
        return files[1:]
    return files


def _options_and_others(
    letters_with_value: str, words: Sequence[_Word]
) -> tuple[list[str], list[_Word]]:
    """Return the options and the other arguments of a command.

    Parameters
    ----------
    letters_with_value : str
        The letters of the short options that take a value.
    words : sequence of _Word
        The arguments of the command.
    """
    options: list[str] = []
    others: list[_Word] = []
    remaining = iter(words)
    for word in remaining:
        if word.text == "--":
            others += remaining
        elif not word.text.startswith("-") or word.text == "-":
            others.append(word)
        else:
            option, is_value_next = _option(letters_with_value, word.text)
            options.append(option)
            if is_value_next:
                next(remaining, None)  # skip the value, which a broken command may lack
    return options, others


def _option(letters_with_value: str, text: str) -> tuple[str, bool]:
    """Return the name of an option, and whether the next word is its value."""
    if text.startswith("--"):
        name, equals_sign, _ = text.partition("=")
        return name, name in _LONG_OPTIONS_WITH_VALUE and not equals_sign
    for position, letter in enumerate(text[1:], 1):
        if letter in letters_with_value:
            is_last_letter = position == len(text) - 1
            return f"-{letter}", is_last_letter
    return text, False


def _command_string(words: Sequence[_Word]) -> str | None:
    """Return the script that ``-c`` passes to a shell; None if it is unknown."""
    options, others = _options_and_others("o", words)  # as in -o pipefail
    has_script = any(re.fullmatch("-[a-z]*c[a-z]*", option) for option in options)
    if has_script and others and others[0].is_exact:
        return others[0].text
    return None


def _name_and_arguments(words: list[_Word]) -> tuple[str, list[_Word]]:
    """Return the name and the arguments of a command.

    A command such as ``sudo`` is skipped if it runs a known command.
    """
    if not words:
        return "", []
    names = [word.text.rpartition("/")[2] if word.is_exact else "" for word in words]
    position = 0
    # An option as the first word belongs to a command whose own name is not among the words.
    if names[0] in _PREFIXES or names[0].startswith("-"):
        positions = [number for number, name in enumerate(names) if name in _KNOWN_COMMANDS]
        position = min(positions, default=0)
    return names[position], words[position + 1 :]


def _resolved(word: _Word, cwd: str | None) -> str | None:
    """Return the path of a word, which begins with ``/`` or ``~``; None if it is unknown.

    The path of a word that the shell expands is the folder before the expanded part.
    """
    text = word.text
    if not word.is_exact:
        positions = [text.find(character) for character in _EXPANDED if character in text]
        literal = text[: min(positions, default=0)]
        text = literal.rpartition("/")[0]
        if not text:
            # The word begins with an expansion, or the first part of its absolute path has one.
            may_be_anywhere = word.text.startswith(("$", "`", "<", "/"))
            return None if may_be_anywhere else cwd
    if text.startswith(("/", "~")):
        return os.path.normpath(text)
    if cwd is None or not text:
        return None
    return os.path.normpath(f"{cwd}/{text}")
