"""Find memories that another program deleted or emptied, and the requests for them since.

Searches match texts by BM25 (Robertson and Zaragoza 2009).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from math import log1p
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from memlab import columns as c
from memlab.arguments import wrong_argument_error
from memlab.clock import moment_or_now
from memlab.evidence.past import (
    BY_OTHERS,
    DeletedMemories,
    exclude_archived,
    interpretable_rows,
    load_deleted,
    past_of,
)
from memlab.evidence.reads import Log, reads_in
from memlab.evidence.references import find_references
from memlab.evidence.store_history import StoreHistory
from memlab.frame.fields import retired_rows
from memlab.frame.labelling import LoadOptions
from memlab.frame.loading import frame_of, load
from memlab.items import CHARS_PER_TOKEN
from memlab.sources.archived import open_archived
from memlab.sources.base import Source, has_kept_copies, read_consistent
from memlab.sources.capabilities import Loss, RecordedSearch, is_index_lost
from memlab.sources.opening import SourceLike, settings_of
from memlab.sources.readers import Reader
from memlab.store.archive import content_copies
from memlab.store.archive.content_copies import Content, KeptCopy
from memlab.store.archive.open_archive import OpenArchive
from memlab.text import DisplayMixin, Table, TextPage, command, counted

_CJK: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Ranges of Japanese, Chinese and Korean characters, for a character class of an expression."""
_WORD: Final = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
"""A word, or a single character of a script that is written without spaces."""
_MAX_SEARCH_CHARS: Final = 1_000
"""Number of characters of a search that are used."""
_MIN_NAME_CHARS: Final = 4
"""Shortest file name, in characters, by which a search may name a memory."""
_SATURATION: Final = 1.2
"""BM25's saturation of term frequency."""
_LENGTH_WEIGHT: Final = 0.75
"""BM25's normalization by text length."""
_MIN_COVERED: Final = 0.5
"""Minimum IDF-weighted share of a search's words that a match must contain."""


class _LostMemorySearch(NamedTuple):
    """A search for a lost memory: the id of the memory, and the time."""

    memory_id: str
    at: datetime


def searches_for_lost(
    searches: Sequence[RecordedSearch],
    present: pd.DataFrame,
    lost: pd.DataFrame,
    lost_at: Mapping[str, datetime],
) -> Iterator[_LostMemorySearch]:
    """Yield the searches for lost memories, at most one a day for each memory.

    A search is for a lost memory if it contains the memory's name, or if it matches the memory's
    text better than every present one.

    Parameters
    ----------
    searches : sequence of RecordedSearch
        The searches, in order of time.
    present, lost : DataFrame
        The present and the lost memories, with texts.
    lost_at : mapping of str to datetime
        The time of each loss, by id. Earlier searches do not count.
    """
    names = [str(name) for name in lost[c.MEMORY_ID]]
    # The lost memories come first, so that the number of a name is also that of its text.
    texts = [*_texts_of(lost), *_texts_of(present)]
    query_words: set[str] = set()
    for search in searches:
        query_words.update(_words_in(search.query))
    matcher = _Matcher(texts, query_words)
    stems = [PurePosixPath(name).stem.casefold() for name in names]
    counted_days = set()  # pairs of a memory and a day

    @cache
    def matches_of(query: str) -> set[int]:
        """Return the indices of the lost memories that a search query asks for."""
        folded = query.casefold()
        matches = set(matcher.better_than_the_rest(query, len(names)))
        for number, stem in enumerate(stems):
            if len(stem) >= _MIN_NAME_CHARS and stem in folded:
                matches.add(number)
        return matches

    for search in searches:
        for number in matches_of(search.query[:_MAX_SEARCH_CHARS]):
            name = names[number]
            name_and_day = (name, search.at.date())
            if name_and_day not in counted_days and search.at > lost_at[name]:
                counted_days.add(name_and_day)
                yield _LostMemorySearch(name, search.at)


def _texts_of(frame: pd.DataFrame) -> list[str]:
    """Return the title and the body of each memory as one text."""
    return list(frame[c.TITLE] + "\n" + frame[c.BODY])


class _Matcher:
    """An inverted index of texts for certain words, with BM25 scores."""

    def __init__(self, texts: Sequence[str], query_words: set[str]) -> None:
        self._postings: dict[str, dict[int, int]] = defaultdict(dict)
        """For each word, its frequency in the texts that have it, by number of the text."""
        lengths = np.zeros(len(texts))
        for number, text in enumerate(texts):
            word_counts = Counter(_words_in(text))
            lengths[number] = word_counts.total()
            for word in query_words & word_counts.keys():
                self._postings[word][number] = word_counts[word]
        mean_length = lengths.mean() if texts else 1.0
        relative_lengths = lengths / max(mean_length, 1)
        self._damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * relative_lengths)
        """The term that BM25 adds to the frequency of a word in each text, shape (texts,)."""

    def better_than_the_rest(self, query: str, count: int) -> list[int]:
        """Return the texts among the first `count` that match a search better than all others.

        They must contain enough of the words. Each is returned by its number.
        """
        total = len(self._damping)
        scores = np.zeros(total)
        covered_weights = np.zeros(total)
        total_weight = 0.0
        for word in set(_words_in(query)):
            postings = self._postings.get(word, {})
            document_count = max(len(postings), 1)  # a word in no text counts as in one text
            weight = log1p((total - document_count + 0.5) / (document_count + 0.5))
            total_weight += weight
            numbers = np.array(list(postings), int)
            frequencies = np.array(list(postings.values()), float)
            saturated = frequencies * (_SATURATION + 1) / (frequencies + self._damping[numbers])
            scores[numbers] += weight * saturated
            covered_weights[numbers] += weight
        best_other_score = scores[count:].max(initial=0.0)
        is_better = scores[:count] > best_other_score
        has_enough_words = covered_weights[:count] >= _MIN_COVERED * total_weight
        return np.flatnonzero(is_better & has_enough_words).tolist()


def _words_in(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.casefold())


EMPTIED: Final = "emptied"
UNLISTED: Final = "unlisted"
SEEN_AT: Final = "seen_at"
SIMILAR_FILE: Final = "perhaps"
"""Column with the added file of the same commit that resembles the deleted one, or empty."""
READS: Final = "reads"
SEARCHES: Final = "searches"
ASKED: Final = "asked"
LAST_ASKED: Final = "last_asked"
_COUNTS: Final = (READS, c.REFERENCES, SEARCHES)
_COLUMNS: Final = (
    c.MEMORY_ID,
    c.KIND,
    c.TITLE,
    c.TOKENS,
    c.LOAD_BEARING,
    c.CREATED_AT,
    SEEN_AT,
    c.DELETED_AT,
    EMPTIED,
    UNLISTED,
    c.COMMIT,
    SIMILAR_FILE,
    *_COUNTS,
    ASKED,
    LAST_ASKED,
)
_LOSS_COLUMNS: Final = {
    **dict.fromkeys((c.DELETED_AT, c.WRITTEN_AT, SEEN_AT), c.TIME),
    **dict.fromkeys((EMPTIED, UNLISTED), "bool"),
    c.COMMIT: "str",
    SIMILAR_FILE: "str",
}
_MAX_LISTED: Final = 20
"""Number of losses that a page lists."""
_MAX_MOVED_SHOWN: Final = 3
"""Number of moved memories that a page names."""


@dataclass(frozen=True, repr=False)
class Losses(DisplayMixin):
    """The memories that other programs deleted or emptied, with the records that restore them.

    Attributes
    ----------
    store : str
        The store's name.
    frame : DataFrame
        The frame of :func:`lost`.
    restorable : mapping of str to Loss
        The losses by id, with the records that git or the archive keeps.
    known_by : tuple of str
        The evidence of losses in words, such as "git"; empty if losses cannot be known.
    deleted_by_memlab : int
        Number of memories that memlab deleted or retired.
    deleted_by_memlab_asked : int
        Number of those that were asked for since.
    unknown : str
        Note on the part of the history that git lacks; empty for none.
    can_be_copied : bool
        Whether memlab can copy stores of this kind into the archive.
    moved : mapping of str to Loss
        By id, memories whose file was moved out of the store and still exists. They are not lost.
    """

    store: str
    frame: pd.DataFrame
    restorable: Mapping[str, Loss]
    known_by: tuple[str, ...]
    deleted_by_memlab: int = 0
    deleted_by_memlab_asked: int = 0
    unknown: str = ""
    can_be_copied: bool = True
    moved: Mapping[str, Loss] = field(default_factory=dict)

    @property
    def unlisted(self) -> int:
        """Number of present memories that a lost or overwritten index named."""
        return int(self.frame[UNLISTED].sum())

    @property
    def title(self) -> str:
        """Number of lost memories in words, or that losses cannot be known."""
        if not self.known_by and self.frame.empty:
            return "it is not known what other programs deleted or emptied"
        deleted = len(self.frame) - self.unlisted
        heading = f"{counted(deleted)} that other programs deleted or emptied"
        if self.unlisted:
            heading += f", and {self.unlisted:,} that a lost or overwritten index named"
        return heading

    @property
    def asked(self) -> int:
        """Number of lost memories that were asked for since."""
        return int((self.frame[ASKED] > 0).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        rows = self.frame.astype(object).where(self.frame.notna(), None)
        return {
            "store": self.store,
            "known_by": list(self.known_by),
            "unknown": self.unknown,
            "unlisted": self.unlisted,
            "lost": rows.to_dict("records"),
            "asked_since": self.asked,
            "moved": {name: loss.moved_to for name, loss in self.moved.items()},
            "own": self.deleted_by_memlab,
            "own_asked_since": self.deleted_by_memlab_asked,
        }

    def next_steps(self) -> list[str]:
        """Return the command that restores the losses, or that makes later losses known."""
        if len(self.frame):
            restore_command = command("lost", self.store, "--restore", "all")
            effect = "shows what would be restored; an id in place of all shows one"
            return [f"next: {restore_command}    {effect}"]
        if self.can_be_copied and not self.known_by:
            copied = command("archive", self.store, "--copy")
            return [f"next: {copied}    keeps copies, by which later losses are known"]
        return []

    def sheet(self) -> TextPage:
        """Return the page that is printed."""
        evidence = ", ".join(self.known_by)
        if not evidence:
            evidence = "nothing: the store is not in git, and memlab has no copies"
        facts = [("known by", evidence)]
        if self.unknown:
            facts.append(("not known", self.unknown))
        if len(self.frame):
            facts.append(("asked for since", f"{self.asked:,} of {len(self.frame):,}"))
        if self.moved:
            facts.append(("moved", self._moved_in_words()))
        title = f"{self.title}: {self.store}"
        may_be_renamed = self.frame[SIMILAR_FILE] != ""
        frames = (self.frame[~may_be_renamed], self.frame[may_be_renamed])
        tables = [_table(frame) for frame in frames if len(frame)]
        memlab_deletions = f"{counted(self.deleted_by_memlab)} that memlab deleted or retired"
        asked = f"{self.deleted_by_memlab_asked:,} asked for since"
        footer = Table("", (), [], f"{memlab_deletions}, {asked}")
        return TextPage(title, facts, [*tables, footer])

    def _moved_in_words(self) -> str:
        """Return the number of memories that were moved, with the new paths of the first ones."""
        moves = [f"{name} to {loss.moved_to}" for name, loss in self.moved.items()]
        shown = ", ".join(moves[:_MAX_MOVED_SHOWN])
        hidden_count = len(moves) - _MAX_MOVED_SHOWN
        more = f" and {hidden_count:,} more" if hidden_count > 0 else ""
        return f"{counted(len(moves))} out of the store, and still there: {shown}{more}"


def lost(source: SourceLike | StoreHistory, *, log: Log = None) -> pd.DataFrame:
    """Return the memories that another program deleted or emptied, the most requested ones first.

    Losses are known from git if the store is a folder that git tracks, and from the archive if
    copies of the store are kept (``keep_copies = true`` in ``memlab.toml``, or
    ``memlab archive STORE --copy``). Memories that memlab deleted or retired are not lost, even if
    git committed that; memories that were renamed or moved below the folder are not lost either.
    If a rename is in doubt, the memory counts as lost, and ``perhaps`` names its possible new file.
    Nothing is written.

    Three things ask for a memory: a read in an access log; a later memory that refers to it; and,
    if the source keeps the words of searches, a search that contains its name or matches it better
    than every present memory. At most one search a day counts for each memory.

    Parameters
    ----------
    source : path, URL, SqliteMemoryStore, Source or StoreHistory
        The store. Of a history, the store, the log and the moment are used.
    log : DataFrame, str or Path, optional
        An access log; the default is the logs in ``memlab.toml``.

    Returns
    -------
    DataFrame
        One row a memory: ``memory_id``, ``kind``, ``title``, ``tokens``, ``load_bearing``,
        ``created_at``; ``deleted_at``, and from git the ``commit`` of the deletion; from copies
        ``seen_at``, the time of the last copy that has it (and ``deleted_at`` is the time of the
        first copy that lacks it); ``emptied``, true if it is present without text; ``unlisted``,
        true if it is present and a lost index named it; ``perhaps``, its possible new name;
        ``reads``, ``references`` and ``searches`` since; ``asked``, their sum; and ``last_asked``.

    Raises
    ------
    MemlabError
        If the store, its archive or a log cannot be read.

    Examples
    --------
    >>> import memlab
    >>> memlab.lost(memlab.store_path("two_years")).empty  # nothing says what was deleted
    True
    """
    if not isinstance(source, StoreHistory):
        return losses_of(source, log=log).frame
    if source.source is None:
        raise wrong_argument_error(source, "store", call="memlab.lost", name="source")
    reads = source.log if log is None else log
    return losses_of(source.source, log=reads, now=source.now).frame


def losses_of(
    source: SourceLike,
    *,
    log: Log = None,
    now: datetime | None = None,
    with_memlab_deletions: bool = True,
) -> Losses:
    """Return the losses of a store, with their records and the requests for them since.

    Parameters
    ----------
    source, log
        As for :func:`lost`.
    now : datetime, optional
        The current time, with a time zone; by default the clock's.
    with_memlab_deletions : bool
        Whether to count memlab's own deletions too. If not, and nothing is lost, little is read.
    """
    opened = open_archived(source)
    moment = moment_or_now(now, call="memlab.lost")
    if opened.is_missing() and has_kept_copies(opened):
        opened.read_missing_as_empty()
    recorded = _recorded_losses(opened, moment)
    moved = recorded.moved
    frame = _frame_of(opened, recorded.losses)
    if frame.empty and not with_memlab_deletions:
        return Losses(
            store=opened.name,
            frame=_with_requests(frame, []),
            restorable={},
            known_by=recorded.known_by,
            moved=moved,
        )
    reads, _ = reads_in(log, settings_of(opened), call="memlab.lost", source=opened)
    search_log = opened.search_log
    searches = [] if search_log is None else list(search_log.searches())
    present = load(opened, with_body=bool(searches), on_bad_row="keep")
    _, deletions = load_deleted(opened, with_body=bool(searches))
    missing = frame[~frame[EMPTIED] & ~frame[UNLISTED]]
    if len(missing):
        deletions = [*deletions, DeletedMemories(missing[c.DELETED_AT], missing, BY_OTHERS)]
    past = past_of(present, deletions)
    in_store = past[past[c.DELETED_AT].isna()]
    present_lost_or_moved = {*in_store[c.MEMORY_ID], *frame[c.MEMORY_ID], *moved}
    deleted = past[~past[c.MEMORY_ID].isin(present_lost_or_moved)]
    by_memlab = pd.concat([deleted, in_store[retired_rows(in_store)]])
    lost_at = _times_of_loss(frame, by_memlab)

    requests = _requests_by_reference(find_references(past, reads, now=moment), lost_at)
    if searches:
        present_others = in_store[~in_store[c.MEMORY_ID].isin(frame[c.MEMORY_ID])]
        all_lost = pd.concat([frame, deleted])
        matching_searches = searches_for_lost(searches, present_others, all_lost, lost_at)
        requests += _requests_by_search(matching_searches, requests)
    ranked = _with_requests(frame, requests)

    is_lost_or_moved = past[c.MEMORY_ID].isin({*frame[c.MEMORY_ID], *moved})
    # `by_memlab` leaves out ids that are in the store. But a newer memory may have the id of a
    # deleted one, and then the deleted one counts, too.
    is_deleted_row = past[c.DELETED_AT].notna() & ~is_lost_or_moved
    names_deleted_by_memlab = {*by_memlab[c.MEMORY_ID], *past.loc[is_deleted_row, c.MEMORY_ID]}
    requested_names = {request.memory_id for request in requests}
    return Losses(
        store=opened.name,
        frame=ranked,
        restorable={name: recorded.losses[name] for name in ranked[c.MEMORY_ID]},
        known_by=recorded.known_by,
        deleted_by_memlab=len(names_deleted_by_memlab),
        deleted_by_memlab_asked=len(names_deleted_by_memlab & requested_names),
        unknown=opened.external_history.note(),
        can_be_copied=opened.is_copied,
        moved=moved,
    )


class _Request(NamedTuple):
    """A request for a lost memory: the memory's id, the time, and the column that counts it."""

    memory_id: str
    at: Any
    counted_as: str


def _requests_by_reference(references: pd.DataFrame, lost_at: Mapping[str, Any]) -> list[_Request]:
    """Return the references to memories that arose after the memory was lost, as requests."""
    loss_times = references[c.TARGET_ID].map(lost_at).astype(c.TIME)
    later = references[references[c.AT] > loss_times]
    requests = []
    for name, at, kind in zip(later[c.TARGET_ID], later[c.AT], later[c.KIND], strict=True):
        counted_as = READS if kind == "log" else c.REFERENCES
        requests.append(_Request(str(name), at, counted_as))
    return requests


def _requests_by_search(
    searches: Iterable[_LostMemorySearch], by_reference: Sequence[_Request]
) -> list[_Request]:
    """Return searches as requests.

    A search is left out if the memory was read on the same day: both are one request.
    """
    reads_by_day = set()
    for request in by_reference:
        if request.counted_as == READS:
            reads_by_day.add((request.memory_id, request.at.date()))
    return [
        _Request(search.memory_id, search.at, SEARCHES)
        for search in searches
        if (search.memory_id, search.at.date()) not in reads_by_day
    ]


class _RecordedLosses(NamedTuple):
    """Losses that git or copies of a store show.

    Attributes
    ----------
    losses, moved : dict of str to Loss
        Lost memories, and memories that were moved out of the store, by id.
    known_by : tuple of str
        The evidence, in words.
    """

    losses: dict[str, Loss]
    known_by: tuple[str, ...]
    moved: dict[str, Loss]


def _times_of_loss(frame: pd.DataFrame, by_memlab: pd.DataFrame) -> dict[str, Any]:
    """Return the time at which each memory was lost, or at which memlab deleted or retired it.

    A loss that is known from copies counts from the last time that the memory was seen.
    """
    deleted_at = by_memlab[c.DELETED_AT]
    deleted_at = deleted_at.fillna(by_memlab.get(c.RETIRED_AT, deleted_at))
    times = dict(zip(by_memlab[c.MEMORY_ID], deleted_at, strict=True))
    lost_at = frame[SEEN_AT].fillna(frame[c.DELETED_AT])
    times.update(zip(frame[c.MEMORY_ID], lost_at, strict=True))
    return times


def contents_of(source: Source, reader: Reader) -> Iterator[Content]:
    """Yield the contents of a store in the form of its copies; skip memories without an id."""
    keys: list[Any] = []
    for rows in reader.batches(with_body=False):
        key_column = c.KEY if c.KEY in rows.table.column_names else c.POSITION
        keys += rows.table[key_column].to_pylist()
    for key, record in reader.records(keys):
        name = source.facts_of(record).memory_id
        if not name:
            continue
        yield Content(
            memory_id=name,
            key=key,
            record=record,
            digest=content_copies.digest_of(source.content_for_digest(record)),
            is_empty=source.is_empty(record),
            is_unlisted=source.index is not None and source.index.is_unlisted(record),
        )


def _recorded_losses(source: Source, now: datetime) -> _RecordedLosses:
    """Return the losses that git or copies of the store show."""
    losses: dict[str, Loss] = {}
    known_by: tuple[str, ...] = ()
    moved: dict[str, Loss] = {}
    if has_kept_copies(source):
        # The archive may have copies of files that are no memories by the current rules. The source
        # for a restore reads those files, too, so that they do not seem to be lost.
        last_copy_at, losses = _losses_by_copies(source.for_restore(), now)
        if last_copy_at:
            known_by = (f"copies, last made {last_copy_at:%Y-%m-%d %H:%M} UTC",)
    history = source.external_history
    if history.is_tracked():
        known_by = ("git", *known_by)
        for loss in history.iter_lost():
            name = str(source.facts_of(loss.record).memory_id)
            if loss.moved_to:
                moved[name] = loss
                continue
            # If git has several losses of a name, the latest counts. Git knows the exact time, so
            # that its loss replaces one that was recorded by copies.
            recorded = losses.get(name)
            if recorded is not None and not _is_from_copies(recorded):
                is_later = (recorded.lost_at or now) < (loss.lost_at or now)
                if not is_later:
                    continue
            losses[name] = loss
        # A copy that was made before a rename has the former name. That memory is not lost.
        for former in history.former_names():
            recorded = losses.get(former.name)
            if recorded is not None and _is_from_copies(recorded) and former.is_free:
                del losses[former.name]
    losses = {name: loss for name, loss in losses.items() if name not in moved}
    return _RecordedLosses(losses=losses, known_by=known_by, moved=moved)


def _is_from_copies(loss: Loss) -> bool:
    """Return whether copies of the store show a loss, as opposed to git."""
    return loss.seen_at is not None


def _losses_by_copies(source: Source, now: datetime) -> tuple[datetime | None, dict[str, Loss]]:
    """Return the time of the last copy of a store, and the losses since by id.

    The store is read before the archive, so that a copy made meanwhile is no loss.
    """

    def read_store(reader: Reader) -> dict[str, Content]:
        """Return the contents by id.

        Only unlisted memories keep their record, which is needed to restore their lines.
        """
        contents = {}
        for memory in contents_of(source, reader):
            content = memory if memory.is_unlisted else memory._replace(record=b"")
            contents[memory.memory_id] = content
        return contents

    present = read_consistent(source, read_store)

    def read_archive(archive: OpenArchive) -> tuple[datetime | None, dict[str, Loss]]:
        last_copy_at = content_copies.last_copied(archive)
        newest: dict[str, KeptCopy] = {}
        for copy in content_copies.copies_in(archive):
            # An empty copy does not replace an earlier one with a text.
            if not copy.is_empty or copy.memory_id not in newest:
                newest[copy.memory_id] = copy
        # A lost memory whose content is present under a name without a copy was renamed.
        renamed_digests = {present[name].digest for name in present.keys() - newest.keys()}
        losses = _lines_lost(source, archive, present, newest)
        for name, copy in newest.items():
            is_emptied = False
            is_deleted = False
            if name in present:
                is_emptied = present[name].is_empty and not copy.is_empty
            else:
                is_deleted = copy.digest not in renamed_digests
            if not is_deleted and not is_emptied:
                continue
            copied = content_copies.copied_record(archive, copy)
            if copied is None:
                continue
            key, record = copied
            losses[name] = Loss(
                key=key,
                record=record,
                lost_at=copy.missed_at or now,
                written_at=copy.seen_at,  # a copy has no time of writing; it was not later
                seen_at=copy.seen_at,
                is_emptied=is_emptied,
            )
        return last_copy_at, losses

    return source.archive.read(read_archive)


def _lines_lost(
    source: Source,
    archive: OpenArchive,
    present: Mapping[str, Content],
    newest: Mapping[str, KeptCopy],
) -> dict[str, Loss]:
    """Return the present memories that the index no longer names, with their copied lines."""
    losses: dict[str, Loss] = {}
    if source.index is None:
        return losses
    for name, memory in present.items():
        copy = newest.get(name)
        may_have_lost_lines = memory.is_unlisted and not memory.is_empty
        if copy is None or not may_have_lost_lines:
            continue
        copied = content_copies.copied_record(archive, copy)
        if copied is None:
            continue
        _, older_record = copied
        record = source.index.relisted(memory.record, older_record)
        if record is not None:
            losses[name] = Loss(
                key=memory.key,
                record=record,
                lost_at=copy.seen_at,  # the file was never missed, so only this time is known
                written_at=copy.seen_at,
                seen_at=copy.seen_at,
                is_unlisted=True,
            )
    listed_count = sum(not memory.is_unlisted for memory in present.values())
    # If the index was not lost but edited line by line, a person removed these lines on purpose, so
    # that they are no losses.
    if not is_index_lost(len(losses), listed_count):
        return {}
    return losses


def _frame_of(source: Source, losses_by_id: Mapping[str, Loss]) -> pd.DataFrame:
    """Return the losses as a frame with texts; leave out memories that memlab deleted."""
    records = ((loss.key, loss.record) for loss in losses_by_id.values())
    rows = source.rows_of(records, with_body=True)
    options = LoadOptions(with_body=True, on_bad_row="keep")
    all_rows = frame_of(rows, name=source.name, protected=source.protected, **options)
    frame = interpretable_rows(all_rows)
    # In a store with an index, the tokens of a memory are those of its index line. A lost memory
    # has no line, so the tokens of its text count; the division rounds up.
    text_tokens = -(-frame[c.CHARS] // CHARS_PER_TOKEN)
    frame[c.TOKENS] = frame[c.TOKENS].where(frame[c.TOKENS] > 0, text_tokens)
    losses = [losses_by_id[name] for name in frame[c.MEMORY_ID]]
    columns = {
        c.DELETED_AT: [loss.lost_at for loss in losses],
        c.WRITTEN_AT: [loss.written_at for loss in losses],
        SEEN_AT: [loss.seen_at for loss in losses],
        EMPTIED: [loss.is_emptied for loss in losses],
        UNLISTED: [loss.is_unlisted for loss in losses],
        c.COMMIT: [loss.commit for loss in losses],
        SIMILAR_FILE: [loss.similar_file for loss in losses],
    }
    details = pd.DataFrame(columns, dtype=object).astype(_LOSS_COLUMNS)
    frame = pd.concat([frame, details], axis=1)
    if len(frame) and source.archive.exists:
        return source.archive.read(lambda archive: exclude_archived(frame, archive))
    return frame


def _with_requests(frame: pd.DataFrame, requests: list[_Request]) -> pd.DataFrame:
    """Return the losses with the numbers of requests for each, the most requested first."""
    rows = pd.DataFrame(requests, columns=[c.MEMORY_ID, c.AT, "counted_as"])
    for column in _COUNTS:
        counts = rows[rows["counted_as"] == column][c.MEMORY_ID].value_counts()
        frame[column] = frame[c.MEMORY_ID].map(counts).fillna(0).astype("int64")
    frame[ASKED] = frame[list(_COUNTS)].sum(axis=1)
    last_request = rows.groupby(c.MEMORY_ID)[c.AT].max()
    frame[LAST_ASKED] = frame[c.MEMORY_ID].map(last_request).astype(c.TIME)
    order = [ASKED, LAST_ASKED, c.DELETED_AT, c.MEMORY_ID]
    ranked = frame.sort_values(order, ascending=[False, False, False, True], ignore_index=True)
    return ranked[list(_COLUMNS)]


def _table(frame: pd.DataFrame) -> Table:
    """Return the table of losses that is printed."""
    emptied_suffix = np.where(frame[EMPTIED], " (emptied)", "")
    unlisted_suffix = np.where(frame[UNLISTED], " (index line)", "")
    times = zip(frame[SEEN_AT], frame[c.DELETED_AT], strict=True)
    columns = {
        "asked": frame[ASKED].tolist(),
        "last asked": frame[LAST_ASKED].dt.strftime("%Y-%m-%d").fillna("").tolist(),
        "deleted": [_deletion_time(seen_at, deleted_at) for seen_at, deleted_at in times],
        "commit": frame[c.COMMIT].str[:8].tolist(),
        "tokens": frame[c.TOKENS].tolist(),
        "id": (frame[c.MEMORY_ID] + emptied_suffix + unlisted_suffix).tolist(),
        "perhaps renamed to": frame[SIMILAR_FILE].tolist(),
    }
    if not frame[SIMILAR_FILE].any():
        del columns["perhaps renamed to"]
    if not frame[c.COMMIT].any():
        del columns["commit"]
    rows = list(zip(*columns.values(), strict=True))
    return Table("", tuple(columns), rows).first(_MAX_LISTED, ", all in --json")


def _deletion_time(seen_at: Any, deleted_at: Any) -> str:
    """Return the time of a deletion; from copies, the earliest and the latest possible time."""
    if pd.isna(seen_at):
        return f"{deleted_at:%Y-%m-%d %H:%M}"
    if seen_at.date() != deleted_at.date():
        return f"{seen_at:%Y-%m-%d} to {deleted_at:%Y-%m-%d}"
    is_same_minute = f"{seen_at:%H:%M}" == f"{deleted_at:%H:%M}"
    if is_same_minute:
        return f"{deleted_at:%Y-%m-%d %H:%M}"
    return f"{seen_at:%Y-%m-%d %H:%M} to {deleted_at:%H:%M}"
