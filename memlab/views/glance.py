"""A store at a glance, as ``memlab show`` prints it; what has lost no memory needs no pandas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.arguments import whole_number
from memlab.clock import moment_or_now
from memlab.columns import SOURCE
from memlab.errors import StoreError
from memlab.growth.alerts import Alert, Look, alerts_of, facts_of
from memlab.growth.summary import StoreSummary, past_arrays, summarize, summary_of
from memlab.sources.base import Source, losses_unknown
from memlab.sources.opening import could_be, is_store, open_source, settings_of
from memlab.store import SqliteMemoryStore
from memlab.text import DisplayMixin, Table, TextPage, command

if TYPE_CHECKING:
    from memlab.evidence.past import Memories
    from memlab.evidence.reads import Log
    from memlab.growth.inventory import Inventory


@dataclass(frozen=True, repr=False)
class Overview(DisplayMixin):
    """The headline numbers of a store, and what else there is to say of it.

    `alerts` say what costs much, or is at risk, the costliest first. `more` has words or a page of
    its own: what kind of store it is, what of its past is not known, its number, its settings, and
    what the cut of an index loses. `remembered` is "delete" or "retire", by ``memlab.toml``.
    """

    store: str
    summary: StoreSummary
    alerts: Sequence[Alert] = ()
    more: Mapping[str, str | DisplayMixin] = field(default_factory=dict)
    remembered: str = ""
    log_option: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what a script reads."""
        said = {"store": self.store, "alerts": self.alerts, "summary": self.summary}
        return said | {**self.more}

    def sheet(self) -> TextPage:
        """Return what is printed."""
        title, facts, tables = self.summary.sheet()
        facts = [*facts]
        tables = [*tables]
        for name, part in self.more.items():
            if isinstance(part, str):
                facts.append((name, part))
            else:
                heading, said, below = part.sheet()
                tables += [Table(heading, (), said), *below]
        if self.alerts:  # what costs most comes first
            summary = Table(title, (), facts, whole=True)
            return TextPage(self.store, facts_of(self.alerts), [summary, *tables])
        return TextPage(f"{self.store}: {title}" if self.store else title, facts, tables)

    def next_steps(self) -> list[str]:
        """Say what to run next."""
        size = command("size", self.store, *self.log_option)
        steps = [f"next: {size}    which keep_recent, with evidence"]
        if self.remembered:
            would = f"what the remembered policy would {self.remembered}"
            steps.append(f"      {command('compact', self.store)}    {would}")
        if self.summary.boot.is_mostly_floor:
            floor = command("floor", self.store)
            steps.append(f"      {floor}    what no cap brings down, and what could")
        return steps


def show(
    frame: "Memories", *, backlog: int | None = None, log: "Log" = None, now: datetime | None = None
) -> "Overview | Inventory":
    """Show what an agent loads from a store at every start, and how much of it is prunable.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, or what ``memlab.load_past`` or ``memlab.load`` returns. Of a folder that holds
        several stores it is what :func:`memlab.find` returns.
    backlog : int, optional
        How many prunable memories are still all right; by default the cap of ``memlab.toml``.
    log : DataFrame, str or Path, optional
        An access log, to say what nobody read, and what the cut of an index loses.
    now : datetime, optional
        The moment, with a time zone; the current one by default.
    """
    call = "memlab.show"
    now = moment_or_now(now, call=call)
    backlog = None if backlog is None else whole_number("backlog", backlog)
    if not isinstance(frame, str | PathLike | SqliteMemoryStore | Source):
        summary = summarize(frame, now=now, threshold=backlog)
        return Overview(str(frame.attrs.get(SOURCE, "")), summary)
    if (inside := _stores_inside(frame)) is not None:
        return inside
    source = open_source(frame)
    settings = settings_of(source)
    arrays, problem = past_arrays(source)
    keep = settings.keep_recent
    number = ""
    if settings.sized is not None or settings.is_auto:
        from memlab.sizing.in_force import effective_policy

        found = effective_policy(source)
        keep = found.keep(settings)
        number = found.words
    more = {"archive": f"left out: {problem}" if problem else "", "about": source.extra_report()}
    reads = None
    option = tuple[str, ...]()
    if log is not None:
        from memlab.evidence.reads import log_option, reads_in, reads_missed_by_index_cut

        reads, file = reads_in(log, settings, call=call, source=source)
        option = log_option(reads, file, settings)
        more["cut"] = reads_missed_by_index_cut(source, reads) if source.cuts_index else ""
    more |= {"lost": losses_unknown(source), "past": source.past_note()}
    more |= {"number": number, "settings": settings.not_obeyed}
    name = str(frame) if isinstance(frame, str | PathLike) else source.name
    summary = summary_of(
        arrays,
        now=now,
        threshold=keep if backlog is None else backlog,
        chars_apart=source.apart_at_start(),
    )
    look = Look(source, arrays, summary, name, reads, option)
    return Overview(
        name,
        summary,
        alerts_of(look),
        {key: part for key, part in more.items() if part},
        "" if settings.policy is None else "retire" if settings.retire else "delete",
        option,
    )


def _stores_inside(where: object) -> "Inventory | None":
    """Return the stores below a folder that is none itself; None for anything else."""
    if not isinstance(where, str | PathLike) or "://" in str(where):
        return None
    folder = Path(where)
    if not folder.is_dir() or is_store(folder):
        return None
    from memlab.growth.inventory import find

    found = find(folder)
    if not found.stores:
        if could_be(folder):
            return None  # opening it says which kinds of store it may be
        has_notes = any(folder.glob("*.md"))
        named = f"notes by their system, as claude:{folder}" if has_notes else "a store"
        raise StoreError(f"{folder} is a folder without a store in it; name {named}")
    return found
