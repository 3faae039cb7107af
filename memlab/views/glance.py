"""The overview of a store, as ``memlab show`` prints it.

A store without archived memories is shown without pandas, which takes long to import.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memlab.arguments import whole_number
from memlab.clock import moment_or_now
from memlab.columns import HAS_PAST, LOADED_AT_START
from memlab.errors import StoreError
from memlab.growth.alerts import Alert, AlertData, alerts_of, facts_of
from memlab.growth.context import FutureDates
from memlab.growth.summary import StoreSummary, past_arrays, summarize, summary_of
from memlab.sources.base import Source, note_on_unknown_losses
from memlab.sources.kinship import Kinship, kinships_of, merge_step, table_of
from memlab.sources.opening import is_store, open_source, possible_kinds, settings_of
from memlab.sources.result_cache import shared_results
from memlab.store import SqliteMemoryStore
from memlab.text import DisplayMixin, Table, TextPage, command

if TYPE_CHECKING:
    import pandas as pd

    from memlab.evidence.past import HistoryLike, LoadedHistory
    from memlab.evidence.reads import Log
    from memlab.frame.fields import Arrays
    from memlab.growth.inventory import Inventory
    from memlab.sizing.number_kinds import NumberKind


@dataclass(frozen=True, repr=False)
class Overview(DisplayMixin):
    """The summary of a store, its alerts and its settings.

    Attributes
    ----------
    store : str
        The store's name.
    summary : StoreSummary
        The main numbers of the store.
    alerts : sequence of Alert
        The alerts on cost and risk, the costliest first.
    more : Mapping
        Sentences or pages by name: the kind of store, the unknown part of its past, its cap, its
        settings, and the reads that are lost because an index is cut.
    saved_action : str
        The action of the policy in ``memlab.toml``: ``"delete"`` or ``"retire"``; empty if no
        policy is in force, for example because its cap or budget has expired.
    expired_number : NumberKind or None
        The kind of number that the policy in ``memlab.toml`` has, such as a cap, if that number has
        expired.
    log_option : sequence of str
        The command line options that name the access log.
    semantic : str
        Name of the store's semantic memories: ``"decisions"`` for a store in memlab's own format,
        else ``"facts"``.
    project : str
        The path of the project that the memories are about; empty if the path is not known.
    is_orphaned : bool
        Whether the path of the project does not exist.
    kinships : sequence of Kinship
        The folders of other projects that may belong to the same project, with the evidence.
    is_of_frame : bool
        Whether the memories were given as a frame. No command can read a frame.

    Examples
    --------
    >>> import memlab
    >>> overview = memlab.show(memlab.store_path("looked_up"))
    >>> overview.summary.rows.memories
    480
    """

    store: str
    summary: StoreSummary
    alerts: Sequence[Alert] = ()
    more: Mapping[str, str | DisplayMixin] = field(default_factory=dict)
    saved_action: str = ""
    expired_number: "NumberKind | None" = None
    log_option: Sequence[str] = ()
    semantic: str = "decisions"
    project: str = ""
    is_orphaned: bool = False
    kinships: Sequence[Kinship] = ()
    is_of_frame: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that ``--json`` prints."""
        fields: dict[str, Any] = {
            "store": self.store,
            "alerts": self.alerts,
            "summary": self.summary,
        }
        fields.update(self.more)
        if self.project or self.is_orphaned:
            fields["project"] = self.project
            fields["is_orphaned"] = self.is_orphaned
        if self.kinships:
            fields["kinships"] = self.kinships
        return fields

    def sheet(self) -> TextPage:
        """Return the overview as a page; alerts come first."""
        title, summary_facts, summary_tables = self.summary.sheet()
        facts = list(summary_facts)
        tables = [self._named(table) for table in summary_tables]
        for name, part in self.more.items():
            if isinstance(part, str):
                facts.append((name, part))
            else:
                page = part.sheet()
                tables.append(Table(page.title, (), page.facts))
                tables += page.tables
        if self.is_orphaned:
            project = self.project or "no folder matches its name"
            reason = f"its project is not there any more, or not on this machine: {project}"
            facts.append(("orphaned", reason))
        if self.kinships:
            tables.append(table_of(self.kinships))
        if self.alerts:
            summary_table = Table(title, (), facts, whole=True, has_paths=True)
            alert_facts = facts_of(self.alerts, self.summary)
            return TextPage(self.store, alert_facts, [summary_table, *tables])
        if self.store:
            title = f"{self.store}: {title}"
        return TextPage(title, facts, tables)

    def _named(self, table: Table) -> Table:
        """Return the table of a start's parts, with this store's name for semantic memories."""
        rows = []
        for part, *sizes in table.rows:
            name = f"  {self.semantic}" if part == "  decisions" else part
            rows.append((name, *sizes))
        return table._replace(rows=rows)

    def next_steps(self) -> list[str]:
        """Return the commands to run next, each with its purpose. A frame gets a function call."""
        if self.is_of_frame:
            return ["next: memlab.size of the same frame    which keep_recent, with evidence"]
        if self.expired_number is not None:
            options = (*self.expired_number.size_options, *self.log_option)
            size = command("size", self.store, *options, "--save")
            steps = [f"next: {size}    renews the saved number, which has expired"]
        else:
            size = command("size", self.store, *self.log_option)
            steps = [f"next: {size}    which keep_recent, with evidence"]
        if self.saved_action:
            effect = f"what the saved policy would {self.saved_action}"
            steps.append(f"      {command('compact', self.store)}    {effect}")
        if self.summary.boot.is_mostly_floor:
            floor = command("floor", self.store)
            steps.append(
                f"      {floor}    lists what no cap reduces, and what could be superseded"
            )
        if self.kinships:
            steps.append(f"      {merge_step(self.kinships[0])}")
        return steps


def show(
    frame: "HistoryLike",
    *,
    backlog: int | None = None,
    log: "Log" = None,
    now: datetime | None = None,
) -> "Overview | Inventory":
    """Return the overview of a store: the memories that an agent loads, and the prunable ones.

    Parameters
    ----------
    frame : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, or the result of ``memlab.load_past`` or ``memlab.load``.
    backlog : int, optional
        Number of prunable memories above which the overview warns; by default the cap of
        ``memlab.toml``.
    log : DataFrame, str or Path, optional
        An access log, to count unread memories and the reads that are lost because an index is cut.
    now : datetime, optional
        The current time, with a time zone; by default the time of the clock.

    Returns
    -------
    Overview or Inventory
        The overview. For a folder that is no store but contains some, it is the result of
        :func:`memlab.find`.

    Raises
    ------
    MemlabError
        If the store cannot be read.

    Examples
    --------
    >>> import memlab
    >>> show(memlab.store_path("two_years")).summary.loads_any
    True
    """
    now_or_clock = moment_or_now(now, call="memlab.show")
    if backlog is not None:
        backlog = whole_number("backlog", backlog)
    if not isinstance(frame, str | PathLike | SqliteMemoryStore | Source):
        # A history has its own moment, which is used if `now` is not given.
        return _show_history(frame, now=now, backlog=backlog, log=log)
    inventory = _stores_inside(frame)
    if inventory is not None:
        return inventory
    with shared_results():
        return _show_store(frame, backlog=backlog, log=log, now=now_or_clock)


def _show_store(
    store: str | PathLike[str] | SqliteMemoryStore | Source,
    *,
    backlog: int | None,
    log: "Log",
    now: datetime,
) -> Overview:
    """Return the overview of a store; see :func:`show`."""
    source = open_source(store)
    memories, problem = past_arrays(source)
    reads = None
    options_of_log: Sequence[str] = ()
    if log is not None:
        from memlab.evidence.reads import log_option, reads_in

        settings = settings_of(source)
        reads, log_file = reads_in(log, settings, call="memlab.show", source=source)
        options_of_log = log_option(reads, log_file, settings)
    name = str(store) if isinstance(store, str | PathLike) else source.name
    data = _StoreData(
        source=source,
        name=name,
        memories=memories,
        reads=reads,
        log_option=options_of_log,
        problem=problem,
    )
    return _overview_of(data, backlog=backlog, now=now)


class _StoreData(NamedTuple):
    """A store with its memories, and the reads of an access log if one was given."""

    source: Source
    name: str
    memories: "Arrays"
    reads: "pd.DataFrame | None"
    log_option: Sequence[str]
    problem: str = ""
    """The reason why the archive cannot be read; empty if it can."""
    rows: "pd.DataFrame | None" = None
    """The present memories, if they are loaded already."""


def _overview_of(store: _StoreData, *, backlog: int | None, now: datetime) -> Overview:
    """Return the overview of a store whose memories were read already."""
    source = store.source
    settings = settings_of(source)
    cap = settings.keep_recent
    cap_note = ""
    is_in_force = settings.policy is not None
    expired_number = None
    has_computed_number = settings.sized is not None or settings.is_auto
    # A number that memlab computed may have expired; one that a person set is always in force.
    if has_computed_number:
        from memlab.sizing.in_force import effective_policy

        effective = effective_policy(source)
        cap = effective.cap_or_saved(settings)
        cap_note = effective.note
        is_in_force = effective.policy is not None
        expired_number = effective.expired
    threshold = cap if backlog is None else backlog
    index_overhead = 0 if source.index is None else source.index.overhead_tokens()
    summary = summary_of(
        store.memories, now=now, threshold=threshold, index_overhead=index_overhead
    )
    saved_action = ""
    if is_in_force:
        saved_action = "retire" if settings.retire else "delete"
    project_path = ""
    is_orphaned = False
    project = source.find_project()
    if project is not None:
        project_path = project.path
        is_orphaned = project.is_missing
    data = AlertData(
        source=source,
        memories=store.memories,
        summary=summary,
        name=store.name,
        log=store.reads,
        log_option=store.log_option,
        rows=store.rows,
    )
    return Overview(
        store=store.name,
        summary=summary,
        alerts=alerts_of(data),
        more=_more_about(store, cap_note, now),
        saved_action=saved_action,
        expired_number=expired_number,
        log_option=store.log_option,
        semantic=semantic_name(source),
        project=project_path,
        is_orphaned=is_orphaned,
        kinships=kinships_of(source),
    )


def _more_about(store: _StoreData, cap_note: str, now: datetime) -> dict[str, Any]:
    """Return sentences and pages on a store by name, without empty ones."""
    source = store.source
    parts: dict[str, Any] = {}
    parts["archive"] = f"left out: {store.problem}" if store.problem else ""
    parts["about"] = source.extra_report()
    if store.reads is not None:
        from memlab.evidence import reads as reading

        if reading.is_other_stores_log(store.reads, store.memories.memory_id.to_pylist()):
            parts["log"] = reading.NO_READ_OF_STORE
        elif source.index is not None:
            parts["cut"] = reading.reads_missed_by_index_cut(source, store.reads)
    parts["lost"] = note_on_unknown_losses(source)
    parts["past"] = source.external_history.note()
    parts["number"] = cap_note
    parts["settings"] = settings_of(source).ignored_reason
    parts["future"] = _future_in_words(store.memories, store.name, now)
    return {name: part for name, part in parts.items() if part}


def semantic_name(source: Source) -> str:
    """Return the name of a store's semantic memories.

    They are called decisions in a store of memlab's own format, and facts in others.
    """
    return "decisions" if source.is_native_format else "facts"


def _show_history(
    memories: "pd.DataFrame | LoadedHistory",
    *,
    now: datetime | None,
    backlog: int | None,
    log: "Log",
) -> Overview:
    """Return the overview of a frame or a history.

    The overview of a store's history is that of the store, with the log and the moment of the
    history. The overview of a frame has only the alerts that need nothing but memories and the log.
    """
    from memlab.evidence.past import present_rows
    from memlab.evidence.store_history import StoreHistory
    from memlab.frame.fields import arrays_of

    history = StoreHistory.of(memories, log, now=now, call="memlab.show")
    frame = history.past
    source = history.source
    if source is not None and not history.is_of_frame:
        store = _StoreData(
            source,
            history.name,
            arrays_of(frame),
            history.log,
            history.log_option,
            rows=history.rows,
        )
        return _overview_of(store, backlog=backlog, now=history.now)
    summary = summarize(frame, now=history.now, threshold=backlog)
    rows = present_rows(frame)
    data = AlertData(
        source=None,
        memories=arrays_of(rows),
        summary=summary,
        name="",  # the name in commands, which are removed below
        log=history.log,
        log_option=history.log_option,
        has_archive=bool(frame.attrs.get(HAS_PAST)),
        rows=rows,
    )
    # Only a store in memlab's own format has a frame without this column, and only there semantic
    # memories are called decisions.
    semantic = "facts" if LOADED_AT_START in frame else "decisions"
    return Overview(
        history.name,
        summary,
        [replace(alert, command="") for alert in alerts_of(data)],
        log_option=history.log_option,
        semantic=semantic,
        is_of_frame=True,
    )


def _future_in_words(memories: "Arrays", store: str, now: datetime) -> str:
    """Return a sentence about the memories that are dated in the future; empty for none."""
    present_rows = np.arange(len(memories.created_at))
    if memories.deleted_at is not None:
        present_rows = np.flatnonzero(np.isnat(memories.deleted_at))
    dates = FutureDates.of(memories.created_at[present_rows], now)
    if not dates.ahead.any():
        return ""
    ids = [str(memories.memory_id[row]) for row in present_rows]
    return f"{dates.in_words(ids)}; {command('doctor', store)} says what to do"


def _stores_inside(location: object) -> "Inventory | None":
    """Return the stores below a folder that is not itself a store; None for anything else."""
    if not isinstance(location, str | PathLike) or "://" in str(location):
        return None
    folder = Path(location)
    if not folder.is_dir() or is_store(folder):
        return None
    from memlab.growth.inventory import find

    inventory = find(folder)
    if inventory.stores:
        return inventory
    if possible_kinds(folder):
        return None  # opening the folder raises an error with the possible kinds of store
    has_notes = any(folder.glob("*.md"))
    advice = f"name its notes with their system: claude:{folder}" if has_notes else "name a store"
    raise StoreError(f"{folder} is a folder without a store in it; {advice}")
