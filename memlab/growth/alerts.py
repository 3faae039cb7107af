"""What of a store costs so much, or is so much at risk, that it is said before anything else."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from warnings import catch_warnings

import numpy as np

from memlab import columns as c
from memlab.errors import MemlabError
from memlab.frame.fields import CHARS_PER_TOKEN, Arrays, Ints
from memlab.growth.context import LEAST, largest_start, loaded_at_start
from memlab.growth.summary import StoreSummary
from memlab.sources.base import Source, has_past, knows_losses
from memlab.sources.opening import settings_of
from memlab.text import command, counted

if TYPE_CHECKING:
    import pandas as pd

LARGE: Final = 0.1
"""Share of a start from which on one memory is a large part of it."""
MOST_OF_IT: Final = 0.5
"""Share of a start from which on the ten largest are."""
TEN: Final = 10
MANY: Final = 4 * TEN
"""Memories of a start below which ten are many of them anyway."""
_FREE: Final = 0.1
"""Share of row numbers that are free from which on somebody else deletes from a store."""


@dataclass(frozen=True, slots=True)
class Alert:
    """Something to look at, what it costs in tokens, how, and the command to run next."""

    name: str
    what: str
    tokens: int
    how: str
    next: str


class Look(NamedTuple):
    """A store as it was just read, and an access log of it, and how a command is given both."""

    source: Source
    memories: Arrays
    summary: StoreSummary
    name: str
    log: "pd.DataFrame | None" = None
    log_option: Sequence[str] = ()

    @property
    def start(self) -> int:
        """Tokens of the largest start; 0 where none loads anything."""
        return largest_start(self.memories)

    @property
    def loaded(self) -> Ints:
        """Tokens of each memory that a start loads, 0 of the others."""
        return self.memories.tokens * loaded_at_start(self.memories)


def alerts_of(look: Look) -> list[Alert]:
    """Return the alerts of a store that was just read, the costliest first."""
    found = [
        Alert(name, what, tokens, how, command(verb, *arguments))
        for name, (how, find) in ALERTS.items()
        for what, tokens, (verb, *arguments) in find(look)
    ]
    return sorted(found, key=lambda alert: -alert.tokens)


def facts_of(alerts: Sequence[Alert]) -> list[tuple[str, str]]:
    """Return alerts as facts of a page."""
    facts = []
    for alert in alerts:
        cost = f"{counted(alert.tokens, 'tokens')} {alert.how}"
        facts += [(cost, f"{alert.name}: {alert.what}"), ("", alert.next)]
    return facts


def is_uncapped(source: Source) -> bool:
    """Whether nobody has said how many memories a store may hold."""
    return settings_of(source).policy is None and source.cap_now() is None


_Found = Iterator[tuple[str, int, Sequence[str]]]
"""What it is, in tokens, and a command with its arguments."""


def _never_compacted(look: Look) -> _Found:
    prunable = look.summary.boot.prunable
    pace = look.summary.pace
    if not look.start or prunable.tokens < LEAST or not is_uncapped(look.source):
        return
    position = look.memories.position
    free = 0.0  # of the row numbers of an agent's own store
    if look.source.is_native_format and position is not None and len(position):
        free = 1 - len(position) / max(int(position.max()), 1)
    if has_past(look.source) or free > _FREE:
        return
    more = f", {7 * pace.per_day:,.0f} more a week" if pace and pace.per_day else ""
    what = f"{counted(prunable.memories)} that a cap could take away{more}, and no cap is set"
    yield what, prunable.tokens, ("size", look.name, *look.log_option)


def _one_large(look: Look) -> _Found:
    tokens = look.loaded
    if not look.start or tokens.max() < max(LEAST, LARGE * look.start):
        return
    at = int(tokens.argmax())
    label = "prunable" if look.memories.prunable[at] else "load-bearing"
    what = f"{look.memories.memory_id[at]}, {label}, is {tokens[at] / look.start:.0%} of a start"
    yield what, int(tokens[at]), ("rows", look.name, "--where", label)


def _ten_largest(look: Look) -> _Found:
    tokens = look.loaded
    ten = int(np.sort(tokens)[-TEN:].sum())
    many = int((tokens > 0).sum())
    if look.start and many >= MANY and ten >= max(LEAST, MOST_OF_IT * look.start):
        what = f"{TEN} of {counted(many)} are {ten / look.start:.0%} of a start"
        yield what, ten, ("rows", look.name, "--limit", str(TEN))


def _never_read(look: Look) -> _Found:
    log = look.log
    if log is None:
        settings = settings_of(look.source)
        if settings.log:  # pandas is loaded for these alone
            from memlab.evidence.reads import remembered_reads

            with suppress(MemlabError):  # memlab size says what is wrong with one
                log = remembered_reads(settings, look.source)
    if log is None or not look.start:
        return
    from memlab.evidence.reads import reading_chances
    from memlab.evidence.usage import FEWEST
    from memlab.frame import load

    frame = load(look.source, on_bad_row="keep")
    chance = reading_chances(frame, log)
    loaded = frame[c.ACTIVE] & frame.get(c.LOADED_AT_START, default=True)
    reads = log[log[c.MEMORY_ID].isin(frame.loc[loaded, c.MEMORY_ID])]
    if len(reads) < FEWEST[0] or reads[c.AT].dt.date.nunique() < FEWEST[1]:
        return
    unread = frame[loaded & frame[c.PRUNABLE] & (chance == "unread")]
    if (tokens := int(unread[c.TOKENS].sum())) >= LEAST:
        what = f"{counted(len(unread))}, by {counted(len(reads), 'reads')} of what is loaded"
        yield what, tokens, ("rows", look.name, "--where", "unread", *look.log_option)


def _cut(look: Look) -> _Found:
    """Look for what a start would load and cuts, which ``memlab doctor`` warns of, too."""
    for trouble in look.source.diagnostics() if look.start or look.summary.apart else ():
        if trouble.chars_cut:
            yield trouble.summary, -(-trouble.chars_cut // CHARS_PER_TOKEN), ("doctor", look.name)


def _not_read(look: Look) -> _Found:
    """Look for files that a start leads to and that are read by no command."""
    for trouble in look.source.diagnostics() if look.summary.apart else ():
        if trouble.name == "sub_folders" and trouble.found:
            yield trouble.summary, look.summary.apart, ("doctor", look.name)


def _lost(look: Look) -> _Found:
    """Look for what somebody else deleted that should never have gone, or was asked for since."""
    source = look.source
    # What is wrong with an archive is said below; where nobody would know, no frame is loaded.
    with suppress(MemlabError), catch_warnings(action="ignore"):
        if knows_losses(source):
            from memlab.evidence.losses import ASKED, UNLISTED, losses_of

            found = losses_of(source, own=False)
            lost = found.frame[~found.frame[UNLISTED]]
            if found.unlisted:
                what = f"the index: {found.title}"
                tokens = int(found.frame.loc[found.frame[UNLISTED], c.TOKENS].sum())
                yield what, tokens, ("lost", look.name, "--restore", "all")
            missed = lost[lost[c.LOAD_BEARING] | (lost[ASKED] > 0)]
            if len(missed):
                which = "load-bearing or asked for since"
                what = f"{counted(len(missed))}, {which}, that somebody else deleted or emptied"
                yield what, int(missed[c.TOKENS].sum()), ("lost", look.name)


ALERTS: Final[dict[str, tuple[str, Callable[[Look], _Found]]]] = {
    "never compacted": ("a start", _never_compacted),
    "never read": ("a start", _never_read),
    "the ten largest": ("a start", _ten_largest),
    "one large memory": ("a start", _one_large),
    "cut": ("not loaded", _cut),
    "not read": ("of the index, in a start", _not_read),
    "lost": ("lost", _lost),
}
"""By name, what the tokens of an alert are, and who finds it."""
