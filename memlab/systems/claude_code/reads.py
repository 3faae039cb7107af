"""Claude Code's auto memory: a folder of Markdown files, read by tools that transcripts record.

A read is a call of ``Read``, a shell command that shows a file by name, or an attachment. It counts
where it succeeded and its session did not write the file. Of a shell command the files count that
it names, no patterns; a grammar takes it apart.
"""

import json
import os.path
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from memlab.errors import MemlabError
from memlab.sources.reads import Asked, Found, mapping, sequence, text
from memlab.sources.transcripts import Look, Seen, Touch, calls_in, named, uses_in
from memlab.systems.claude_code.index import INDEX, RETIRED
from memlab.systems.claude_code.view import PROJECTS, WRITERS, is_of_project

_RELEVANT: Final = "relevant_memories"
_HOME: Final = "~"

IS_INDEX: Final = f"uses of {INDEX}, which every start loads"
NO_MEMORY: Final = "files that are no memories"
SEARCHES: Final = "searches over several files"


def recognises(asked: Asked) -> bool:
    """Whether the source is a memory folder, or a folder with one such in it."""
    return bool(_memory_folders(asked.path))


def find(asked: Asked) -> Found:
    """Return the reads of the files in a memory folder."""
    folder = _the_one(asked.path)
    beside = folder.parent.parent if is_of_project(folder) else None
    uses = _Uses(folder)
    look = Look(uses.may_be_in, uses.of, _of_one_folder)
    return uses_in(asked, look, "claude-code", str(folder), beside=beside)


class _Uses:
    """Finds what calls do with the files of one memory folder, whatever a transcript calls it."""

    def __init__(self, folder: Path) -> None:
        called, home = {str(folder), str(folder.resolve())}, Path.home()
        self._called = dict.fromkeys(called, "")
        """By path: how touches of the folder are marked that call it so."""
        self._tail = None
        for path in called:
            if path.startswith(f"{home}/"):
                self._called[_HOME + path.removeprefix(str(home))] = _HOME
        if is_of_project(folder):
            self._tail = f"/{PROJECTS}/{folder.parent.name}/{folder.name}"
            self._called[f"{_HOME}/.claude{self._tail}"] = _HOME
        self._needles = [
            [*map(_forms_in_json, path.parts[-1 if path.parent == home else -2 :])]  # home may be ~
            for path in map(Path, called)
        ]
        """No path leads into the folder without these names, from a working folder or by itself."""

    def may_be_in(self, line: bytes) -> bool:
        return any(
            all(any(form in line for form in forms) for forms in names) for names in self._needles
        )

    def of(self, line: dict[str, Any]) -> Iterator[Touch]:
        cwd = text(line.get("cwd")) or None
        for call in calls_in(line):
            yield from self._of_call(*call, cwd)
        attachment = mapping(line.get("attachment"))
        if attachment:
            yield from self._of_attachment(attachment, line)

    def _of_call(
        self, call: str, tool: str, given: dict[str, Any], cwd: str | None
    ) -> Iterator[Touch]:
        if tool == "Read" or tool in WRITERS:
            path = _absolute(text(given.get("file_path")) or text(given.get("path")), cwd)
            yield from self._of_file(call, tool, path, writes=tool in WRITERS)
        elif tool == "Bash":
            for use in file_uses(text(given.get("command")), cwd):
                if use.verb != "search":
                    yield from self._of_file(call, tool, use.path, writes=use.verb == "write")
                elif self._holds(use.path):
                    yield Touch(call, "", tool, outcome=SEARCHES)
        elif tool in ("Grep", "Glob") and self._holds(_absolute(text(given.get("path")), cwd)):
            yield Touch(call, "", tool, outcome=SEARCHES)

    def _of_attachment(self, attachment: dict[str, Any], line: dict[str, Any]) -> Iterator[Touch]:
        call = named(line)
        if attachment.get("type") != _RELEVANT:
            why = "attachments that were loaded without being asked for"
            yield Touch(call, "", "", outcome=why)
            return
        for memory in map(mapping, sequence(attachment.get("memories"))):
            for touch in self._of_file(call, _RELEVANT, text(memory.get("path")), writes=False):
                yield touch._replace(outcome=touch.outcome or "")

    def _of_file(self, call: str, tool: str, path: str, *, writes: bool) -> Iterator[Touch]:
        place = self._place(path) if path else None
        if place is None:
            return
        folder, name = place
        if name not in (INDEX, RETIRED) and name.endswith(".md"):
            yield Touch(call, name, tool, writes, folder)
        elif not writes:
            why = IS_INDEX if name == INDEX else NO_MEMORY
            yield Touch(call, name, tool, place=folder, outcome=why)

    def _holds(self, path: str) -> bool:
        return self._place(f"{path}/x") is not None

    def _place(self, path: str) -> tuple[str, str] | None:
        """Return what a file's path calls the folder, and the file; None for one elsewhere."""
        above, _, name = re.sub(r"^/{2,}", "/", os.path.normpath(path)).rpartition("/")
        if above in self._called:
            return self._called[above], name
        is_namesake = self._tail is not None and above.endswith(self._tail)
        return (above, name) if is_namesake else None


def _forms_in_json(name: str) -> set[bytes]:
    """Return a name as JSON has it, written in ASCII or not."""
    forms = (json.dumps(name, ensure_ascii=ascii_only) for ascii_only in (True, False))
    return {form[1:-1].encode(errors="surrogateescape") for form in forms}


def _absolute(path: str, cwd: str | None) -> str:
    if path.startswith(("/", "~")) or cwd is None:
        return path
    return f"{cwd}/{path}" if path else cwd


def _of_one_folder(seen: list[Seen], found: Found) -> list[Seen]:
    """Keep the touches of the folder itself; where there is none, of its namesake elsewhere."""
    places = Counter(one.touch.place for one in seen if one.touch.place != _HOME)
    kept = "" if "" in places or not places else min(places, key=lambda p: (-places[p], p))
    if kept:
        found.notes.append(f"the transcripts call this folder {kept}")
    ours = [one for one in seen if one.touch.place in {kept, _HOME}]
    others = sum(not one.touch.writes for one in seen) - sum(not o.touch.writes for o in ours)
    found.left_out["reads of a folder of the same name in another place"] += others
    return ours


def _memory_folders(path: Path) -> list[Path]:
    """Return the memory folders that a path may mean: itself, its project's, its projects'."""
    if path.is_dir() and ((path / INDEX).is_file() or path.match(f"{PROJECTS}/*/memory")):
        return [path]
    below = "*/memory" if path.name == PROJECTS else f"{PROJECTS}/*/memory"
    found = path.glob("memory" if path.parent.name == PROJECTS else below)
    return sorted(each for each in found if each.is_dir())


def _the_one(path: Path) -> Path:
    folders = _memory_folders(path)
    if len(folders) == 1:
        return folders[0]
    names = ", ".join(str(each) for each in folders[:5])
    more = f" and {len(folders) - 5:,} more" if len(folders) > 5 else ""
    raise MemlabError(f"{path} has several memory folders; name one: {names}{more}")


Verb = Literal["read", "write", "search"]


class Use(NamedTuple):
    """A file that a command names: shown, changed, or searched together with others."""

    path: str
    verb: Verb


class _Word(NamedTuple):
    """A word without its quotes, a home as ``~``; exact where the shell passes it on as it is."""

    text: str
    exact: bool


_SEARCHERS: Final = dict.fromkeys(("grep", "egrep", "fgrep"), "efmABCdD") | {"rg": "efgtTmABCjMrEd"}
_READERS: Final = {"cat": "", "head": "nc", "tail": "ncs", "sed": "efl", **_SEARCHERS}
"""What shows files, with its short options that take a value."""
_PATTERNS: Final = {"-e", "-f", "--expression", "--file", "--regexp"}
"""Options that give the pattern or the script, which is the first argument otherwise."""
_CHANGERS: Final = {"tee", "rm", "mv", "truncate", "unlink", "shred", "cp"}
_PREFIXES: Final = {
    *("command", "builtin", "nohup", "sudo", "env"),
    *("time", "exec", "timeout", "nice", "stdbuf"),
}
"""What runs the command after it and after options of its own."""
_LONG_VALUED: Final = {
    *("--expression", "--file", "--regexp", "--lines", "--bytes", "--pid", "--sleep-interval"),
    *("--line-length", "--max-count", "--after-context", "--before-context", "--context"),
    *("--glob", "--type", "--type-not", "--replace"),
}
_SHELLS: Final = {"sh", "bash", "dash", "zsh", "ksh"}
_KNOWN: Final = {*_READERS, *_CHANGERS, *_SHELLS, "cd"}
_LONGEST: Final = 2**14
"""Bytes: the grammar takes the square of them for lists that are never closed."""
_GROUPS: Final = {
    *("program", "subshell", "compound_statement", "do_group", "elif_clause", "else_clause"),
    *("if_statement", "while_statement", "for_statement", "c_style_for_statement"),
    *("case_statement", "case_item", "negated_command", "pipeline"),
}
"""Nodes of the grammar whose commands run one after the other."""
_COMMANDS: Final = {*_GROUPS, "command", "list", "redirected_statement"}
_OUTPUTS: Final = {">", ">>", ">|", ">&", "&>", "&>>", "<>"}
_TERMINALS: Final = {"/dev/stdout", "/dev/stderr", "/dev/tty"}
_ESCAPED: Final = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r"\\([\n\"\\$`])")
_SPECIAL: Final = re.compile(r"(?<!\\)[*?[{]")
"""What makes a bare word a pattern, or several words."""


def file_uses(command: str, cwd: str | None) -> list[Use]:
    """Return the files that a command names, in order; no relative ones where `cwd` is unknown."""
    return _Script(command, cwd).uses


@cache
def _parser() -> Any:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Streams(NamedTuple):
    """What redirections name: other inputs and outputs, and arguments that stand behind them."""

    inputs: list[_Word]
    outputs: list[_Word]
    arguments: list[_Word]


class _Script:
    """Goes through the syntax tree of a script, from the folder that it starts in."""

    def __init__(self, command: str, cwd: str | None) -> None:
        self.uses: list[Use] = []
        self._text = command.encode(errors="replace")
        self._cwd = cwd
        if len(self._text) <= _LONGEST:
            known = re.sub(rb"[\x80-\xff]", b"x", self._text)  # beyond it, the grammar can crash
            with suppress(RecursionError):
                self._visit(_parser().parse(known).root_node, [])

    def _visit(self, node: Any, redirects: list[Any]) -> None:
        """Take in what a node uses; redirections outside of it are those of its last command."""
        start, cwd = len(self.uses), self._cwd
        if node.type == "command":
            self._command(node, redirects)
        elif node.type in _GROUPS:
            streams = self._streams(redirects)
            for child in node.named_children:
                self._visit(child, [])
                if node.type == "pipeline":
                    self._cwd = cwd
            self._put_out(streams, start, cwd)
            if node.type == "subshell":
                self._cwd = cwd
        elif node.type == "list":  # joined by && or ||: of alternatives the first
            left, *_, right = node.named_children
            self._visit(left, [])
            if all(child.type != "||" for child in node.children):
                self._visit(right, redirects)
        elif node.type == "redirected_statement":
            documents = _children(node, "heredoc_redirect")
            own = [each for one in (node, *documents) for each in _children(one, "file_redirect")]
            self._visit(node.child_by_field_name("body") or node.named_children[0], own + redirects)
            for following in (child for one in documents for child in _children(one, *_COMMANDS)):
                self._keep_writes(start)  # what is read with a here-document goes on to a pipe
                self._visit(following, redirects)

    def _command(self, node: Any, redirects: list[Any]) -> None:
        start, cwd = len(self.uses), self._cwd
        streams = self._streams(_children(node, "file_redirect") + redirects)
        parts = (*node.children_by_field_name("name"), *node.children_by_field_name("argument"))
        called, arguments = _name_and_words([*map(self._word, parts), *streams.arguments])
        self.uses += _of_command(called, arguments, cwd)
        if called in _READERS:
            self.uses += _uses(streams.inputs, "read", cwd)
        if called in _SHELLS and (script := _command_string(arguments)):
            self.uses += file_uses(script, cwd)
        if called in {"cd", "pushd"}:
            folders = [word for word in arguments if not word.text.startswith("-")]
            self._cwd = _resolved(folders[0], cwd) if folders else "~"
        self._put_out(streams, start, cwd)

    def _streams(self, redirects: Sequence[Any]) -> _Streams:
        streams = _Streams([], [], [])
        for node in redirects:
            words = [self._word(each) for each in node.children_by_field_name("destination")]
            operators = [child.type for child in node.children if not child.is_named]
            if not (words and operators):
                continue
            target, operator = words[0], operators[0]
            given = node.child_by_field_name("descriptor")
            descriptor = given.text.decode() if given else ""
            stays = target.text in _TERMINALS or (operator == ">&" and target.text.isdigit())
            if operator == "<" and descriptor in {"", "0"}:
                streams.inputs.append(target)
            elif operator in _OUTPUTS and descriptor in {"", "1"} and not stays:
                streams.outputs.append(target)
            streams.arguments.extend(words[1:])
        return streams

    def _put_out(self, streams: _Streams, start: int, cwd: str | None) -> None:
        """Let the output of what was used since `start` go where it does."""
        if streams.outputs:
            self._keep_writes(start)
            self.uses += _uses(streams.outputs, "write", cwd)

    def _keep_writes(self, start: int) -> None:
        self.uses[start:] = [use for use in self.uses[start:] if use.verb == "write"]

    def _word(self, node: Any) -> _Word:
        raw = self._text[node.start_byte : node.end_byte].decode(errors="replace")
        if node.type in {"word", "number"}:
            return _Word(_ESCAPED.sub(_unescaped, raw), not _SPECIAL.search(raw))
        if node.type == "raw_string":
            return _Word(raw[1:-1], exact=True)
        if node.type in {"string", "concatenation", "command_name"}:
            return self._joined(node)
        return _Word("~", exact=True) if raw in {"$HOME", "${HOME}"} else _Word(raw, exact=False)

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


def _plain(text: bytes) -> str:
    return _ESCAPED_IN_QUOTES.sub(_unescaped, text.decode(errors="replace"))


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _uses(words: Iterable[_Word], verb: Verb, cwd: str | None) -> Iterator[Use]:
    """Yield the files that words name; a pattern is a search, and changes nothing that is known."""
    for word in words:
        path = _resolved(word, cwd)
        if path is not None and (word.exact or verb != "write"):
            yield Use(path, verb if word.exact else "search")


def _of_command(name: str, words: Sequence[_Word], cwd: str | None) -> Iterator[Use]:
    verb: Verb
    if name in _READERS:
        files = _files(name, words)
        changes = name == "sed" and any(_edits_in_place(word.text) for word in words)
        together = name in _SEARCHERS and len(files) != 1
        verb = "write" if changes else "search" if together else "read"
    elif name in _CHANGERS:
        named = [word for word in words if not word.text.startswith("-")]
        files, verb = named[-1:] if name == "cp" else named, "write"
    else:
        return
    yield from _uses(files, verb, cwd)


def _edits_in_place(text: str) -> bool:
    return text.startswith(("--in-place", "-i")) or (
        text.startswith("-") and text[1:].isalpha() and "i" in text and "e" not in text
    )


def _files(name: str, words: Sequence[_Word]) -> list[_Word]:
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
    """Return a command's name and its arguments; what a prefix runs is the first that is known."""
    names = [word.text.rpartition("/")[2] if word.exact else "" for word in words] or [""]
    at = 0
    if names[0] in _PREFIXES or names[0].startswith("-"):  # as of the keyword time
        at = next((at for at, name in enumerate(names) if name in _KNOWN), 0)
    return names[at], words[at + 1 :]


def _resolved(word: _Word, cwd: str | None) -> str | None:
    """Return an absolute path, or one that begins at home; None where it cannot be known."""
    text = word.text
    if not word.exact:
        known = text[: min((text.find(c) for c in "*?[{$`<" if c in text), default=0)]
        text = known.rpartition("/")[0]
        if not text:
            return None if word.text.startswith(("$", "`", "<", "/")) else cwd
    if text.startswith(("/", "~")):
        return os.path.normpath(text)
    return None if cwd is None or not text else os.path.normpath(f"{cwd}/{text}")
