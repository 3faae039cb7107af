"""Alerts: costs and risks of a store, which are shown before anything else."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple
from warnings import catch_warnings

import numpy as np

from memlab import columns as c
from memlab.errors import MemlabError
from memlab.frame.fields import Arrays, Ints
from memlab.growth.context import NO_ALERT_BELOW, loaded_at_start
from memlab.growth.summary import StoreSummary
from memlab.items import CHARS_PER_TOKEN
from memlab.sources.base import Source, has_past, knows_losses
from memlab.sources.opening import settings_of
from memlab.text import command, counted, percent

if TYPE_CHECKING:
    import pandas as pd

LARGE_SHARE: Final = 0.1
"""Share of a start from which one memory is reported as large."""
TOP_SHARE: Final = 0.5
"""Share of a start from which the ten largest memories are reported."""
TOP: Final = 10
"""Number of largest memories that are reported together."""
MIN_MEMORIES_FOR_TOP: Final = 4 * TOP
"""Number of loaded memories below which the ten largest are not reported."""
A_START: Final = "a start"
"""Basis of an alert whose tokens are a part of a start."""
_MAX_UNUSED_SHARE: Final = 0.1
"""Share of unused row numbers above which another program is assumed to delete rows."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A cost or a risk of a store.

    Attributes
    ----------
    name : str
        Name of the kind of alert.
    message : str
        Description of what was found.
    tokens : int
        Number of tokens that are at stake.
    basis : str
        What the tokens are, or the total of which they are a part, such as ``"a start"``.
    command : str
        The command to run next.

    Examples
    --------
    >>> import memlab
    >>> alert = memlab.show(memlab.store_path("two_years")).alerts[0]
    >>> alert.name, alert.basis
    ('never compacted', 'a start')
    >>> alert.command.split()[:2]
    ['memlab', 'size']
    """

    name: str
    message: str
    tokens: int
    basis: str
    command: str


class AlertData(NamedTuple):
    """The data from which the alerts of a store are computed.

    Attributes
    ----------
    source : Source or None
        The store; None if there is only a frame. Alerts that need the store are then left out.
    memories : Arrays
        The memories.
    summary : StoreSummary
        The main numbers of the store.
    name : str
        Name of the store in a command.
    log : DataFrame or None
        The access log; by default the logs in the store's settings.
    log_option : sequence of str
        Options that name the access log in a command.
    has_archive : bool
        Whether the store of a frame has an archive; used only without a `source`.
    rows : DataFrame or None
        The present memories, if they are loaded already.
    """

    source: Source | None
    memories: Arrays
    summary: StoreSummary
    name: str
    log: "pd.DataFrame | None" = None
    log_option: Sequence[str] = ()
    has_archive: bool = False
    rows: "pd.DataFrame | None" = None

    @property
    def loaded_tokens(self) -> Ints:
        """Tokens of each memory that a start loads; 0 for the others."""
        return self.memories.tokens * loaded_at_start(self.memories)


def alerts_of(data: AlertData) -> list[Alert]:
    """Return the alerts of a store that was just read, the costliest first."""
    alerts = []
    for name, kind in ALERTS.items():
        for finding in kind.find(data):
            verb, *arguments = finding.command
            alert = Alert(
                name=name,
                message=finding.description,
                tokens=finding.tokens,
                basis=kind.basis,
                command=command(verb, *arguments),
            )
            alerts.append(alert)
    return sorted(alerts, key=lambda alert: -alert.tokens)


def facts_of(alerts: Sequence[Alert], summary: StoreSummary) -> list[tuple[str, str]]:
    """Return alerts as facts of a page: the cost with the message, then the command.

    A cost that is a part of a start is listed with the tokens of the whole start.
    """
    has_one_start = len(summary.starts) <= 1
    facts = []
    for alert in alerts:
        cost = f"{counted(alert.tokens, 'tokens')} {alert.basis}"
        if alert.basis == A_START and has_one_start and alert.tokens < summary.start_tokens:
            start_tokens = counted(summary.start_tokens, "tokens")
            cost = f"{alert.tokens:,} of {start_tokens} {alert.basis}"
        facts.append((cost, f"{alert.name}: {alert.message}"))
        if alert.command:
            facts.append(("", alert.command))
    return facts


def is_uncapped(source: Source) -> bool:
    """Return whether neither the settings nor the agent's system limit the number of memories."""
    native = source.native_cap
    is_capped = native is not None and native.current() is not None
    return settings_of(source).policy is None and not is_capped


class _Finding(NamedTuple):
    """A cost or a risk that becomes an alert.

    Attributes
    ----------
    description : str
        Description of what was found.
    tokens : int
        Number of tokens that are at stake.
    command : sequence of str
        The next command and its arguments.
    """

    description: str
    tokens: int
    command: Sequence[str]


def _never_compacted(data: AlertData) -> Iterator[_Finding]:
    """Find prunable memories of a store that has no cap and was never compacted."""
    prunable = data.summary.boot.prunable
    pace = data.summary.pace
    if not data.summary.loads_any or prunable.tokens < NO_ALERT_BELOW or _is_kept_small(data):
        return
    description = f"{data.summary.prunable_in_words()}, which a cap could delete"
    if pace and pace.per_day:
        description += f", {7 * pace.per_day:,.0f} more a week"
    if data.source is not None:
        description += ", and no cap is set"
    yield _Finding(description, prunable.tokens, ("size", data.name, *data.log_option))


def _is_kept_small(data: AlertData) -> bool:
    """Return whether a store has a cap or an archive, or another program deletes its rows."""
    source = data.source
    if source is None:
        return data.has_archive
    if not is_uncapped(source) or has_past(source):
        return True
    position = data.memories.position
    unused_share = 0.0
    if source.is_native_format and position is not None and len(position):
        unused_share = 1 - len(position) / max(int(position.max()), 1)
    return unused_share > _MAX_UNUSED_SHARE


def _one_large(data: AlertData) -> Iterator[_Finding]:
    """Find a memory that is a large share of a start."""
    tokens = data.loaded_tokens
    start_tokens = data.summary.start_tokens
    min_tokens = max(NO_ALERT_BELOW, LARGE_SHARE * start_tokens)
    if not data.summary.loads_any or tokens.max(initial=0) < min_tokens:
        return
    largest = int(tokens.argmax())
    label = "prunable" if data.memories.prunable[largest] else "load-bearing"
    share = percent(tokens[largest] / start_tokens, decimals=0)
    description = f"{data.memories.memory_id[largest]}, {label}, is {share} of a start"
    yield _Finding(description, int(tokens[largest]), ("rows", data.name, "--where", label))


def _ten_largest(data: AlertData) -> Iterator[_Finding]:
    """Find the ten largest memories if they are most of a start."""
    tokens = data.loaded_tokens
    largest = int(np.sort(tokens)[-TOP:].sum())
    loaded = int((tokens > 0).sum())
    start_tokens = data.summary.start_tokens
    if not data.summary.loads_any or loaded < MIN_MEMORIES_FOR_TOP:
        return
    if largest >= max(NO_ALERT_BELOW, TOP_SHARE * start_tokens):
        share = percent(largest / start_tokens, decimals=0)
        description = f"{TOP} of {counted(loaded)} are {share} of a start"
        yield _Finding(description, largest, ("rows", data.name, "--limit", str(TOP)))


def _never_read(data: AlertData) -> Iterator[_Finding]:
    """Find loaded memories that the access log has no read of."""
    log = data.log
    if log is None and data.source is not None:
        settings = settings_of(data.source)
        if settings.log:  # pandas is imported only if there is a log
            from memlab.evidence.reads import reads_by_settings

            with suppress(MemlabError):  # memlab size reports a broken log
                log = reads_by_settings(settings, data.source)
    if log is None or not data.summary.loads_any:
        return
    from memlab.evidence.reads import reading_chances
    from memlab.evidence.usage import MIN_DAYS, MIN_READS
    from memlab.frame import load

    frame = data.rows
    if frame is None:
        if data.source is None:
            return
        frame = load(data.source, on_bad_row="keep")
    chance_labels = reading_chances(frame, log)
    loaded = frame[c.ACTIVE] & frame.get(c.LOADED_AT_START, default=True)
    reads = log[log[c.MEMORY_ID].isin(frame.loc[loaded, c.MEMORY_ID])]
    if len(reads) < MIN_READS or reads[c.AT].dt.date.nunique() < MIN_DAYS:
        return
    unread = frame[loaded & frame[c.PRUNABLE] & (chance_labels == "unread")]
    tokens = int(unread[c.TOKENS].sum())
    if tokens >= NO_ALERT_BELOW:
        description = f"{counted(len(unread))}, by {counted(len(reads), 'reads')} of what is loaded"
        command_words = ("rows", data.name, "--where", "unread", *data.log_option)
        yield _Finding(description, tokens, command_words)


def _cut(data: AlertData) -> Iterator[_Finding]:
    """Find text that a start cuts off at a limit; ``memlab doctor`` warns of it too."""
    if data.source is None or not data.summary.start_tokens:
        return
    for diagnostic in data.source.diagnostics():
        if diagnostic.chars_cut:
            tokens = ceil(diagnostic.chars_cut / CHARS_PER_TOKEN)
            not_loaded = data.summary.not_loaded
            if data.source.index is not None and not_loaded.memories:
                tokens = not_loaded.tokens  # the number in the table of the page
            yield _Finding(diagnostic.summary, tokens, ("doctor", data.name))


def _not_read(data: AlertData) -> Iterator[_Finding]:
    """Find files that an index names, but that no memlab command reads.

    A start loads the lines of the index that name these files, but memlab reads no memory from
    these files.
    """
    if data.source is None or not data.summary.index_overhead:
        return
    for diagnostic in data.source.diagnostics():
        if diagnostic.name == "sub_folders" and diagnostic.occurrences:
            yield _Finding(diagnostic.summary, data.summary.index_overhead, ("doctor", data.name))


def _lost(data: AlertData) -> Iterator[_Finding]:
    """Find load-bearing or requested memories that another program deleted."""
    # An archive that cannot be read is reported by another command.
    with suppress(MemlabError), catch_warnings(action="ignore"):
        if data.source is None or not knows_losses(data.source):
            return
        from memlab.evidence.losses import ASKED, UNLISTED, losses_of

        # The memories that memlab itself deleted are left out.
        losses = losses_of(data.source, with_memlab_deletions=False)
        if losses.unlisted:
            tokens = int(losses.frame.loc[losses.frame[UNLISTED], c.TOKENS].sum())
            description = f"the index: {losses.title}"
            yield _Finding(description, tokens, ("lost", data.name, "--restore", "all"))
        lost = losses.frame[~losses.frame[UNLISTED]]
        missed = lost[lost[c.LOAD_BEARING] | (lost[ASKED] > 0)]
        if len(missed):
            reasons = "load-bearing or asked for since"
            description = (
                f"{counted(len(missed))}, {reasons}, that other programs deleted or emptied"
            )
            yield _Finding(description, int(missed[c.TOKENS].sum()), ("lost", data.name))


class _AlertKind(NamedTuple):
    """A kind of alert.

    Attributes
    ----------
    basis : str
        See :attr:`Alert.basis`.
    find : callable
        Yields the findings in the data of a store.
    """

    basis: str
    find: Callable[[AlertData], Iterator[_Finding]]


ALERTS: Final = {
    "never compacted": _AlertKind(A_START, _never_compacted),
    "never read": _AlertKind(A_START, _never_read),
    "the ten largest": _AlertKind(A_START, _ten_largest),
    "one large memory": _AlertKind(A_START, _one_large),
    "cut": _AlertKind("not loaded", _cut),
    "not read": _AlertKind("of the index, in a start", _not_read),
    "lost": _AlertKind("lost", _lost),
}
"""The kinds of alerts by name."""
