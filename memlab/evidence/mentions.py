"""Where the text of a memory names another one: shown beside the references, and not counted.

How often such a name means that the memory was needed has not been checked by hand on enough public
stores, so no number rests on it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

import pandas as pd

from memlab import columns as c
from memlab.evidence.past import Memories, resolve_history
from memlab.sources.base import Source, TextVersion
from memlab.sources.opening import open_source
from memlab.text import counted

FORMS: Final = {
    "link": "links",
    "wiki link": "wiki links",
    "file name": "file names",
    "backticks": "names in backticks",
    "word": "bare words",
}
"""How a text names a memory, the plainest first, with the words for several of them."""

MARKS: Final = {
    "forward": "of a memory that was not written yet",
    "index": "by or of an index",
    "same commit": "of a memory that came in the same commit",
    "hub": "by a list of memories",
    "mutual": "of each other",
}
"""Why a mention is a weak sign of a need, the strongest reason first."""

BY_ID: Final = "by_id"
FORM: Final = "form"
DATED: Final = "dated"
MARK: Final = "mark"
_COLUMNS: Final = (BY_ID, c.TARGET_ID, FORM, c.AT, DATED, MARK)

_SUFFIX: Final = ".md"
_INDEX: Final = "MEMORY.md"
_LINK: Final = re.compile(r"\[[^\[\]\n]*\]\(<?([^()<>\s]+)>?(?:\s+\"[^\"\n]*\")?\)")
_WIKI: Final = re.compile(r"\[\[([^\[\]\n|#]+)")
_FILE: Final = re.compile(r"[\w./-]*\w\.md(?![\w-])")
_TICKS: Final = re.compile(r"`([^`\n]+)`")
_TOKEN: Final = re.compile(r"\w+(?:[-.:/]\w+)*")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_NUMBER: Final = re.compile(r"[\dT:._/-]+")
_MOST_BODIES: Final = 0.05
"""A bare word that stands in this share of texts, or in more, is a word and no name."""
_HUB: Final = 10
"""Memories that a text names at least, to be a list of them."""


def find_mentions(memories: Memories) -> pd.DataFrame:
    """Find where the text of a memory names another one.

    A name is a link, a wiki link, a file's name with ``.md``, or the memory's id in backticks where
    it has a digit and a separator. A bare word is one where the id has both, is no date and no
    number, and stands in fewer than 5 % of the texts (or in one text alone). It is a whole word:
    ``ep-12`` does not name ``ep-1``. These mentions are shown, and no cap is sized by them.

    Parameters
    ----------
    memories : DataFrame, path, URL, SqliteMemoryStore or Source
        A store, or a frame with its texts, as ``memlab.load(store, with_body=True)`` returns it.

    Returns
    -------
    DataFrame
        One row for each memory and each other that it names: ``by_id``, ``target_id``; ``form``,
        one of `FORMS`; ``at`` and ``dated``: the ``commit`` that first holds the mention, else
        when the file was ``last changed``, else when the memory was ``written``; ``mark``, one of
        `MARKS` or empty. A mention in a store that is no folder is found in later texts alone.

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
    source = None if isinstance(memories, pd.DataFrame) else open_source(memories)
    call = "memlab.evidence.find_mentions"
    past = resolve_history(memories if source is None else source, call=call, with_body=True)
    if c.BODY not in past:
        raise ValueError("the frame has no texts; load it with with_body=True, or name the store")
    return mentions_of(past, source)


def mentions_of(past: pd.DataFrame, source: Source | None) -> pd.DataFrame:
    """Return the mentions in a past with texts; `source` dates them, where it is known."""
    ids = [*map(str, past[c.MEMORY_ID])]
    texts = [*(past[c.TITLE] + "\n" + past[c.BODY])]
    names = _Names(ids)
    found = []
    for by, text in zip(ids, texts, strict=True):
        found += [(by, target, form) for target, form in names.in_text(text) if target != by]
    in_texts = Counter({(by, target): target for by, target, _ in found}.values())
    limit = max(2.0, _MOST_BODIES * len(texts))
    found = [each for each in found if each[2] != "word" or in_texts[each[1]] < limit]
    by_text: dict[str, dict[str, str]] = defaultdict(dict)
    for by, target, form in found:
        by_text[by].setdefault(target, form)

    place = {name: number for number, name in enumerate(ids)}
    written = dict(zip(ids, past[c.CREATED_AT], strict=True))
    is_folder = source is not None and source.is_folder
    versions: Mapping[str, Sequence[TextVersion]] = {}
    births: Mapping[str, str] = {}
    if source is not None:
        versions = dict(source.text_versions([*by_text]))
        births = source.births()
    rows = []
    for by, targets in by_text.items():
        held = _first_held(versions.get(by, ()), targets, names)
        for target, form in targets.items():
            at, commit = held.get(target, (None, ""))
            dated = "commit"
            if at is None:
                at = written[by]
                dated = "written"
                if is_folder and source is not None:
                    at = source.last_changed(by) or at
                    dated = "last changed"
            is_forward = bool(at < written[target])
            if not is_folder and place[by] < place[target]:
                continue
            is_same = bool(commit) and births.get(target) == commit
            marks = {
                "forward": is_forward,
                "index": _INDEX in (PurePosixPath(by).name, PurePosixPath(target).name),
                "same commit": is_same,
                "hub": len(targets) >= _HUB,
                "mutual": by in by_text.get(target, ()),
            }
            mark = next((name for name, holds in marks.items() if holds), "")
            rows.append((by, target, form, at, dated, mark))
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)
    kinds = dict.fromkeys((BY_ID, c.TARGET_ID, DATED, MARK), "str")
    frame[c.AT] = pd.to_datetime(frame[c.AT], utc=True).astype(c.TIME)
    frame[FORM] = pd.Categorical(frame[FORM], categories=list(FORMS))
    return frame.astype(kinds).sort_values(c.AT, kind="stable", ignore_index=True)


def mentions_in_words(mentions: pd.DataFrame) -> str:
    """Say how many mentions there are, by form and by mark; empty for none."""
    if mentions.empty:
        return ""
    forms = mentions[FORM].value_counts()
    parts = [f"{forms[form]:,} {words}" for form, words in FORMS.items() if forms.get(form)]
    marks = mentions[MARK].value_counts()
    weak = [f"{marks[mark]:,} {words}" for mark, words in MARKS.items() if marks.get(mark)]
    said = f"{counted(len(mentions), 'mentions')}, not counted: {', '.join(parts)}"
    dated = (mentions[DATED] == "last changed").sum()
    if dated:
        weak.append(f"{dated:,} dated by the file's last change")
    return f"{said}; of these {', '.join(weak)}" if weak else said


class _Names:
    """The names by which texts may call memories; one that several share is nobody's."""

    def __init__(self, ids: Sequence[str]) -> None:
        full: dict[str, str | None] = {}
        short: dict[str, str | None] = {}
        for name in dict.fromkeys(ids):
            path = PurePosixPath(name)
            is_file = name.endswith(_SUFFIX)
            full[name] = name
            if is_file:
                for each in {path.name, name.removesuffix(_SUFFIX), path.stem}:
                    table = full if each.endswith(_SUFFIX) else short
                    table[each] = None if each in table and table[each] != name else name
            else:
                short[name] = name
        self._full = full
        self._short = short

    def in_text(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield each memory that a text names, and how, the plainest form first."""
        for match in _LINK.finditer(text):
            if not _SCHEME.match(match[1]):
                yield from self._found(unquote(match[1].split("#")[0]), "link")
        for match in _WIKI.finditer(text):
            yield from self._found(match[1].strip(), "wiki link")
        for match in _FILE.finditer(text):
            yield from self._found(match[0], "file name")
        for match in _TICKS.finditer(text):
            name = match[1].strip()
            if _is_telling(name):
                yield from self._found(name, "backticks")
        for match in _TOKEN.finditer(text):
            name = match[0]
            if _is_telling(name) and not _NUMBER.fullmatch(name) and name in self._short:
                yield from self._found(name, "word")

    def _found(self, name: str, form: str) -> Iterator[tuple[str, str]]:
        path = name.removeprefix("./")
        while path.startswith("../"):
            path = path.removeprefix("../")
        for known in (self._full, self._short):
            memory = known.get(path)
            if memory is not None:
                yield memory, form
                return
        if path.endswith(_SUFFIX):
            memory = self._full.get(PurePosixPath(path).name)
            if memory is not None and memory.endswith(f"/{path}"):
                yield memory, form


def _is_telling(name: str) -> bool:
    """Whether a name has a digit and a separator, as few words have."""
    return any(char.isdigit() for char in name) and any(char in "-_." for char in name)


def _first_held(
    versions: Sequence[TextVersion], targets: Mapping[str, str], names: _Names
) -> dict[str, tuple[datetime, str]]:
    """Return when a file first named each target, and the commit; versions are oldest first."""
    held: dict[str, tuple[datetime, str]] = {}
    for version in versions:
        for target, _ in names.in_text(version.text):
            if target in targets:
                held.setdefault(target, (version.at, version.commit))
        if len(held) == len(targets):
            break
    return held
