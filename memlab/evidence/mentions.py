"""Mentions: places where the text of a memory names another one. They are shown, not counted.

A check by hand of public stores (docs/reads.md) found that file names and names in backticks rarely
mean that the memory was needed, so no number depends on them. Links that Claude Code writes as
``[[name]]`` do; they are references and are counted as such.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pandas as pd

from memlab import columns as c
from memlab.evidence.past import HistoryLike, resolve_history, source_of
from memlab.sources.base import Source
from memlab.sources.capabilities import TextVersion
from memlab.text import counted

FORMS: Final = {
    "link": "links",
    "wiki link": "wiki links",
    "file name": "file names",
    "backticks": "names in backticks",
    "word": "bare words",
}
"""Forms of a mention, the most explicit first, each with its plural in words."""

MARKS: Final = {
    "forward": "of a memory that was not written yet",
    "index": "by or of an index",
    "same commit": "of a memory that came in the same commit",
    "hub": "by a list of memories",
    "mutual": "of each other",
}
"""Reasons why a mention is weak evidence of a need, the strongest first.

Each has words that follow a number of mentions, as in "3 of each other".
"""

BY_ID: Final = "by_id"
FORM: Final = "form"
DATED: Final = "dated"
MARK: Final = "mark"
_COLUMNS: Final = (BY_ID, c.TARGET_ID, FORM, c.AT, DATED, MARK)


class _Mention(NamedTuple):
    """A row of the result of :func:`find_mentions`, with the fields in the order of `_COLUMNS`."""

    by_id: str
    target_id: str
    form: str
    at: Any
    dated: str
    mark: str


_SUFFIX: Final = ".md"
_INDEX: Final = "MEMORY.md"
_LINK: Final = re.compile(r"\[[^\[\]\n]*\]\(<?([^()<>\s]+)>?(?:\s+\"[^\"\n]*\")?\)")
"""A Markdown link with its target as group: ``[text](target)`` or ``[text](<target> "title")``."""
_WIKI: Final = re.compile(r"\[\[([^\[\]\n|#]+)")
"""The beginning of a wiki link, with its target as group, up to a label or a heading."""
_FILE: Final = re.compile(r"[\w./-]*\w\.md(?![\w-])")
"""A path or file name that ends in ``.md``."""
_TICKS: Final = re.compile(r"`([^`\n]+)`")
"""A text in backticks, which is the group."""
_TOKEN: Final = re.compile(r"\w+(?:[-.:/]\w+)*")
"""A whole word, with separators inside it."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""The beginning of a URL; a link to one names no memory."""
_NUMBER: Final = re.compile(r"[\dT:._/-]+")
"""A number, a date or a time."""
_COMMON_SHARE: Final = 0.05
"""A bare word in at least this share of the texts counts as a common word, not a name."""
_MIN_COMMON_TEXTS: Final = 2.0
"""Minimum number of texts with a common word."""
_MIN_LIST_MENTIONS: Final = 10
"""A text with at least this many mentions counts as a list of memories."""


def find_mentions(memories: HistoryLike) -> pd.DataFrame:
    """Return the mentions of other memories in the texts of memories.

    A text mentions a memory by a link, a wiki link, a file name with ``.md``, or an id in backticks
    that has a digit and a separator. A bare word is a mention if it is such an id, is neither a
    date nor a number, and occurs in fewer than 5 % of the texts, or in one text only. Only whole
    words count: ``ep-12`` does not mention ``ep-1``. Mentions are shown, and no cap is sized by
    them.

    Parameters
    ----------
    memories : DataFrame, path, URL, SqliteMemoryStore or Source
        A store, or a frame with texts, as ``memlab.load(store, with_body=True)`` returns it.

    Returns
    -------
    DataFrame
        One row for each pair of memories, in order of time.

        =============  ===========================================================================
        ``by_id``      the memory whose text has the mention
        ``target_id``  the memory that it mentions
        ``form``       one of `FORMS`
        ``at``         time of the mention
        ``dated``      the source of the time: ``commit`` for the first commit with the mention,
                       ``last changed`` for the file's last change, or ``written`` for the time at
                       which the memory was written
        ``mark``       one of `MARKS`, or empty
        =============  ===========================================================================

        In a store that is not a folder, only texts later than the target are searched.

    Examples
    --------
    >>> from memlab import MemoryItem, MemoryKind, MemoryProvenance, SqliteMemoryStore
    >>> with SqliteMemoryStore(":memory:") as store:
    ...     for name, text in (("ep-1", "first"), ("ep-12", "no"), ("ep-13", "as in ep-1")):
    ...         whence = MemoryProvenance(None, "agent", "issue:1")
    ...         _ = store.put(MemoryItem(name, MemoryKind.EPISODIC, "t", text, whence, ()))
    ...     find_mentions(store)[["by_id", "target_id", "form"]].values.tolist()
    [['ep-13', 'ep-1', 'word']]
    """
    call = "memlab.evidence.find_mentions"
    source = source_of(memories)
    history = resolve_history(memories, call=call, with_body=True)
    if c.BODY not in history:
        raise ValueError("the frame has no texts; load it with with_body=True, or name the store")
    return mentions_of(history, source)


def mentions_of(history: pd.DataFrame, source: Source | None) -> pd.DataFrame:
    """Return the mentions in a history with texts. If the store is known, it dates them."""
    ids = [str(memory_id) for memory_id in history[c.MEMORY_ID]]
    texts = list(history[c.TITLE] + "\n" + history[c.BODY])
    names = _Names(ids)
    forms_by_text = _forms_by_text(ids, texts, names)
    row_of = {memory_id: number for number, memory_id in enumerate(ids)}
    written = dict(zip(ids, history[c.CREATED_AT], strict=True))
    is_folder = source is not None and source.is_folder
    versions: Mapping[str, Sequence[TextVersion]] = {}
    first_commits: Mapping[str, str] = {}
    if source is not None:
        versions = dict(source.external_history.text_versions(list(forms_by_text)))
        first_commits = source.external_history.births()
    rows: list[_Mention] = []
    for mentioning, targets in forms_by_text.items():
        first_mentions = _first_mentions(versions.get(mentioning, ()), targets, names)
        for target, form in targets.items():
            is_earlier = row_of[mentioning] < row_of[target]
            # A text that was written before its target cannot name it. Only a file may be edited.
            if is_earlier and not is_folder:
                continue
            at = written[mentioning]
            dated = "written"
            commit = ""
            if target in first_mentions:
                at = first_mentions[target].at
                commit = first_mentions[target].commit
                dated = "commit"
            elif is_folder and source is not None:
                at = source.external_history.last_changed(mentioning) or at
                dated = "last changed"
            is_index = _INDEX in {PurePosixPath(mentioning).name, PurePosixPath(target).name}
            applies_by_mark = {
                "forward": bool(at < written[target]),
                "index": is_index,
                "same commit": bool(commit) and first_commits.get(target) == commit,
                "hub": len(targets) >= _MIN_LIST_MENTIONS,
                "mutual": mentioning in forms_by_text.get(target, ()),
            }
            strongest_mark = next((mark for mark in MARKS if applies_by_mark[mark]), "")
            mention = _Mention(
                by_id=mentioning,
                target_id=target,
                form=form,
                at=at,
                dated=dated,
                mark=strongest_mark,
            )
            rows.append(mention)
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)
    frame[c.AT] = pd.to_datetime(frame[c.AT], utc=True).astype(c.TIME)
    frame[FORM] = pd.Categorical(frame[FORM], categories=list(FORMS))
    text_columns = dict.fromkeys((BY_ID, c.TARGET_ID, DATED, MARK), "str")
    return frame.astype(text_columns).sort_values(c.AT, kind="stable", ignore_index=True)


def _forms_by_text(
    ids: Sequence[str], texts: Sequence[str], names: "_Names"
) -> dict[str, dict[str, str]]:
    """Return the form in which each text names each memory: by the text's id, then the memory's.

    If a text names a memory in several forms, it is the most explicit one. A bare word that occurs
    in many texts is left out.
    """
    mentions = []
    for mentioning, text in zip(ids, texts, strict=True):
        for target, form in names.in_text(text):
            if target != mentioning:
                mentions.append((mentioning, target, form))
    pairs = {(mentioning, target) for mentioning, target, _ in mentions}
    text_count_of = Counter(target for _, target in pairs)
    common_count = max(_MIN_COMMON_TEXTS, _COMMON_SHARE * len(texts))
    forms_by_text: dict[str, dict[str, str]] = defaultdict(dict)
    for mentioning, target, form in mentions:
        is_common_word = form == "word" and text_count_of[target] >= common_count
        if not is_common_word:
            # The most explicit form comes first.
            forms_by_text[mentioning].setdefault(target, form)
    return forms_by_text


def uncounted_mentions(
    mentions: pd.DataFrame, history: pd.DataFrame, references: pd.DataFrame
) -> pd.DataFrame:
    """Select the mentions that are not references already, such as Claude Code's wiki links."""
    id_at_position = dict(zip(history[c.POSITION], history[c.MEMORY_ID], strict=True))
    mentioning = references[c.AT_POSITION].map(id_at_position)
    counted_pairs = set(zip(mentioning, references[c.TARGET_ID], strict=True))
    pairs = zip(mentions[BY_ID], mentions[c.TARGET_ID], strict=True)
    return mentions[[pair not in counted_pairs for pair in pairs]]


def mentions_in_words(mentions: pd.DataFrame) -> str:
    """Return the number of mentions by form and by mark, in words; empty for none."""
    if mentions.empty:
        return ""
    forms = mentions[FORM].value_counts()
    by_form = []
    for form, plural in FORMS.items():
        if forms.get(form):
            by_form.append(_counted_form(int(forms[form]), plural))
    marks = mentions[MARK].value_counts()
    weak = [f"{marks[mark]:,} {words}" for mark, words in MARKS.items() if marks.get(mark)]
    dated_by_file = (mentions[DATED] == "last changed").sum()
    if dated_by_file:
        weak.append(f"{dated_by_file:,} dated by the file's last change")
    total = f"{counted(len(mentions), 'mentions')}, not counted: {', '.join(by_form)}"
    if not weak:
        return total
    return f"{total}; of these {', '.join(weak)}"


def _counted_form(count: int, plural: str) -> str:
    """Return a number of mentions of a form, in words.

    >>> _counted_form(1, "links"), _counted_form(1, "names in backticks")
    ('1 link', '1 name in backticks')
    """
    noun, preposition, object_ = plural.partition(" in ")
    return f"{counted(count, noun)}{preposition}{object_}"


class _Names:
    """Finds memories by their names in texts; a name that several memories share is ignored."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._full: dict[str, str | None] = {}
        """Memory of each path or file name with ``.md``; None if several memories share it."""
        self._short: dict[str, str | None] = {}
        """Memory of each name without ``.md``; None if several memories share it."""
        for memory_id in dict.fromkeys(ids):
            self._full[memory_id] = memory_id
            if memory_id.endswith(_SUFFIX):
                path = PurePosixPath(memory_id)
                for name in {path.name, memory_id.removesuffix(_SUFFIX), path.stem}:
                    self._add(name, memory_id)
            else:
                self._short[memory_id] = memory_id

    def _add(self, name: str, memory_id: str) -> None:
        """Add another name of a memory that is a file."""
        memory_by_name = self._full if name.endswith(_SUFFIX) else self._short
        is_shared = name in memory_by_name and memory_by_name[name] != memory_id
        memory_by_name[name] = None if is_shared else memory_id

    def in_text(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield each memory that a text names and the form, the most explicit form first."""
        for match in _LINK.finditer(text):
            if not _SCHEME.match(match[1]):
                path, _, _ = match[1].partition("#")
                yield from self._memories_named(unquote(path), "link")
        for match in _WIKI.finditer(text):
            yield from self._memories_named(match[1].strip(), "wiki link")
        for match in _FILE.finditer(text):
            yield from self._memories_named(match[0], "file name")
        for match in _TICKS.finditer(text):
            name = match[1].strip()
            if _looks_like_id(name):
                yield from self._memories_named(name, "backticks")
        for match in _TOKEN.finditer(text):
            name = match[0]
            is_number = _NUMBER.fullmatch(name) is not None
            if name in self._short and _looks_like_id(name) and not is_number:
                yield from self._memories_named(name, "word")

    def _memories_named(self, name: str, form: str) -> Iterator[tuple[str, str]]:
        """Yield the memory of a name, if there is one."""
        path = name.removeprefix("./")
        while path.startswith("../"):
            path = path.removeprefix("../")
        for memory_by_name in (self._full, self._short):
            memory = memory_by_name.get(path)
            if memory is not None:
                yield memory, form
                return
        # The path may leave out the first folders of the memory's path.
        if path.endswith(_SUFFIX):
            memory = self._full.get(PurePosixPath(path).name)
            if memory is not None and memory.endswith(f"/{path}"):
                yield memory, form


def _looks_like_id(name: str) -> bool:
    """Return whether a name has a digit and a separator, which few words have."""
    has_digit = any(char.isdigit() for char in name)
    has_separator = any(char in "-_." for char in name)
    return has_digit and has_separator


def _first_mentions(
    versions: Sequence[TextVersion], targets: Mapping[str, str], names: _Names
) -> dict[str, TextVersion]:
    """Return the first version of a file that names each target, by target.

    `versions` are in order of time.
    """
    first_mentions: dict[str, TextVersion] = {}
    for version in versions:
        for target, _ in names.in_text(version.text):
            if target in targets:
                first_mentions.setdefault(target, version)
        if len(first_mentions) == len(targets):
            break
    return first_mentions
