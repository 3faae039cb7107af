"""The browser of memories: a grid, a range of time and charts to select from, and a plan."""

import html
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import num2date

from memlab import charts
from memlab import columns as c
from memlab.arguments import texts
from memlab.charts.figure import NARROW, STYLE, Chart, as_svg
from memlab.clock import now_utc
from memlab.compaction.applier import apply
from memlab.compaction.plan_cost import cost_of
from memlab.compaction.planner import plan, reason_to_keep
from memlab.compaction.plans import Plan, Receipt
from memlab.compaction.restorer import restore
from memlab.compaction.wire import some_of
from memlab.errors import MemlabError
from memlab.evidence.past import HistoryLike, present_rows
from memlab.evidence.reads import Log
from memlab.evidence.store_history import StoreHistory
from memlab.evidence.usage import QUARTERS, TIMES, age_or_use, times_group
from memlab.frame.fields import Flags, arrays_of
from memlab.frame.loading import load
from memlab.growth import boot_context, growth_curve
from memlab.growth.context import part_names, parts_of
from memlab.lazy import import_extra
from memlab.sources.base import Source
from memlab.store.database import store_file
from memlab.text import DisplayMixin, Table, TextPage, as_html, as_text, counted, for_terminal
from memlab.views.bundled import folder_of
from memlab.views.memory_table import AGE_DAYS, LABEL, READS, rows_of, without_controls

LISTED: Final = 10
"""Number of memories in the table of a page without scripts."""
GRID: Final = 5_000
"""Maximum number of rows in the grid, which a browser can still sort quickly."""
BODIES: Final = 5
"""Maximum number of selected memories whose text is shown."""
STEPS: Final = 2_000
"""Maximum number of steps of the range of time; a longer history has steps of several days."""

_DAY: Final = np.timedelta64(1, "D")
_COLUMNS: Final = {
    c.TITLE: "title",
    LABEL: "label",
    AGE_DAYS: "days",
    c.TOKENS: "tokens",
    READS: "reads",
    c.REFERENCES: "references",
    c.CREATED_AT: "written",
    c.MEMORY_ID: "id",
}
"""Columns of the grid with their headings."""
_GRID_OPTIONS: Final[dict[str, Any]] = {
    "allow_html": False,
    "select": True,
    "showIndex": False,
    "maxBytes": 0,
    "classes": "display compact",
    "style": "table-layout:auto;width:100%;margin:0",
    "autoWidth": False,
    "columnDefs": [
        {"targets": [0], "width": "40%", "type": "string"},  # also if all titles are dates
        {"targets": [1, -2, -1], "className": "memlab-whole"},
    ],
    "columnControl": [
        {"target": 0, "content": ["order"]},
        {"target": 1, "content": ["search"]},
    ],
    "ordering": {"indicators": False, "handler": False},
}
"""Options of the grid: a box below each heading filters its column, and a button sorts by it."""


class MemoryBrowser(DisplayMixin):
    """A grid of a store's memories, with charts and a range of time to filter it.

    The browser is displayed as the last expression of a cell. Everything can be done with the
    keyboard, and by the methods here. The store is only read, until *Delete them* applies the plan
    that is shown; *Undo* restores what it deleted.

    Attributes
    ----------
    memories : DataFrame
        The memories of the store, the newest first, with the columns of :func:`memlab.rows`.
    grid
        The widget with the table. Rows are selected in it by a click or by the space bar.
    period
        The widget with the range of time.
    curve, context, usage
        The widgets with the charts of growth, of the boot context, and of age against use. They are
        None if there is no data to draw.
    status, details, planned
        The widgets with the number of memories, the selected ones, and their plan.
    plan_button, delete_button, undo_button
        The buttons that show the plan, apply it, and undo it. The second and the third are shown
        once there is something to apply or to undo.
    widget
        The widget that contains all others.

    Examples
    --------
    >>> import memlab
    >>> browser = memlab.browse(memlab.store_path("three_hundred_issues"))
    >>> browser.show_groups("episodes")
    >>> len(browser.shown) < len(browser.memories)
    True
    """

    def __init__(self, history: StoreHistory) -> None:
        self._history = history
        self._opened_at = now_utc()
        listed = rows_of(history, by="age")
        listed = listed.sort_values(c.POSITION, ascending=False, kind="stable")
        self.memories: pd.DataFrame = pd.DataFrame(listed.reset_index(drop=True))
        present = present_rows(history.past).sort_values(c.POSITION, ascending=False)
        self._is_prunable = present[c.PRUNABLE].to_numpy(dtype=bool)
        self._groups = _groups_of(present.reset_index(drop=True), history)
        self._written = _days_of(self.memories[c.CREATED_AT])
        self._steps = _steps_between(self._written)
        self._chosen_groups: set[str] = set()
        self._shown = np.arange(len(self.memories))
        self._bodies: pd.Series[str] | None = None
        self._is_deleted = np.zeros(len(self.memories), dtype=bool)
        self._shown_plan: Plan | None = None
        self._deletions: list[tuple[Receipt, Flags]] = []
        self._make_widgets()
        self._filter()

    @property
    def shown(self) -> pd.DataFrame:
        """The memories that the grid shows, as far as the range and the charts limit them."""
        return self.memories.iloc[self._shown]

    @property
    def selected(self) -> pd.DataFrame:
        """The memories that are selected in the grid."""
        return self.shown.iloc[list(self.grid.selected_rows)]

    @property
    def ids(self) -> list[str]:
        """The ids of the selected memories that a plan may delete, for :func:`memlab.plan`."""
        rows = self._shown[list(self.grid.selected_rows)]
        chosen = self.memories.iloc[rows[self._is_prunable[rows]]]
        return [str(memory_id) for memory_id in chosen[c.MEMORY_ID]]

    @property
    def _now(self) -> datetime:
        """The moment of the history plus the time since it was opened.

        Two plans therefore never have the same moment.
        """
        return self._history.now + (now_utc() - self._opened_at)

    @property
    def _is_whole_period(self) -> bool:
        """Whether the range of time is that of all memories."""
        return tuple(self.period.limits) == (0, len(self._steps) - 1)

    def show_period(self, first: str, last: str) -> None:
        """Show the memories that were written from one date to another, both included.

        Parameters
        ----------
        first, last : str
            Dates such as ``"2026-03-01"``, in UTC.
        """
        low = int(np.searchsorted(self._steps, np.datetime64(first, "D"), side="right")) - 1
        high = int(np.searchsorted(self._steps, np.datetime64(last, "D"), side="right")) - 1
        self.period.limits = [max(low, 0), max(high, 0)]

    def show_groups(self, *names: str) -> None:
        """Show the memories of some groups: parts of the boot context, or rows of age and use.

        Parameters
        ----------
        *names : str
            Names as the charts have them, such as ``"episodes"`` or ``"oldest quarter"``; none
            shows all memories. Groups of one kind add up, those of different kinds narrow it down.

        Raises
        ------
        ValueError
            If a name is unknown.
        """
        group_names = [name for members in self._groups for name in members]
        for name in names:
            if name not in group_names:
                raise ValueError(f"no group {name!r}; there are {', '.join(group_names)}")
        self._chosen_groups = set(names)
        for chart, members in zip(self._group_charts, self._groups, strict=True):
            if chart is not None:
                chart.selected = [name for name in members if name in self._chosen_groups]
        self._filter()

    def show_all(self) -> None:
        """Show all memories again."""
        self.period.limits = [0, len(self._steps) - 1]
        self.show_groups()

    def select(self, memory_ids: Iterable[str]) -> None:
        """Select memories that are shown, as a click on their rows does.

        Parameters
        ----------
        memory_ids : iterable of str
            The ids of memories that are shown.

        Raises
        ------
        MemlabError
            If one of the ids is unknown, or its memory is not shown. The selection stays as it was.
        """
        requested = texts(memory_ids, call="MemoryBrowser.select", name="memory_ids")
        in_grid = self.shown[c.MEMORY_ID].iloc[:GRID]
        hidden = sorted(set(requested).difference(in_grid))
        unknown = sorted(set(hidden).difference(self.memories[c.MEMORY_ID]))
        if unknown:
            raise MemlabError(
                f"{for_terminal(self._history.name)} has no memory {some_of(unknown)}; "
                'browser.memories["memory_id"] has the ids'
            )
        if hidden:
            raise MemlabError(
                f"not shown, so not selectable: {some_of(hidden)}; browser.show_all() shows the "
                f"newest {GRID:,}, and browser.show_period(first, last) those of a period"
            )
        is_selected = in_grid.isin(requested).to_numpy()
        self.grid.selected_rows = np.flatnonzero(is_selected).tolist()

    def plan(self) -> Plan:
        """Return the plan that deletes the selected memories; load-bearing ones stay.

        Nothing is deleted before the plan is applied.

        Raises
        ------
        MemlabError
            If the browser was opened on a frame, if nothing is selected that a plan may delete, or
            if the store cannot be read.
        """
        source = self._history.source
        if source is None:
            raise MemlabError("a frame has nothing to delete: open the browser on the store itself")
        if self.selected.empty:
            raise MemlabError(
                "nothing is selected: click on rows of the grid, or call browser.select(ids)"
            )
        if not self.ids:
            raise MemlabError(
                f"{counted(len(self.selected))} selected, none of them prunable: no plan deletes "
                'them; browser.shown["label"] says which memories are'
            )
        return plan(source, ids=self.ids, now=self._now)

    def sheet(self) -> TextPage:
        """Return the present view as a page for a terminal, or for a notebook without scripts."""
        facts = [("shown", self._shown_in_words()), ("selected", self._selected_in_words())]
        table = _table_of(self.shown.iloc[:LISTED])
        hidden = len(self.shown) - LISTED
        remark = f"and {hidden:,} more" if hidden > 0 else ""
        name = for_terminal(self._history.name)
        cells = [tuple(map(str, row)) for row in table.itertuples(index=False)]
        listed = Table("", tuple(table.columns), cells, remark)
        return TextPage(f"{name}: {counted(len(self.memories))}", facts, [listed] if cells else [])

    def to_dict(self) -> dict[str, Any]:
        """Return the ids of the shown and of the selected memories."""
        return {
            "shown": self.shown[c.MEMORY_ID].astype(str).tolist(),
            "selected": self.selected[c.MEMORY_ID].astype(str).tolist(),
        }

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Return the widget, and a table and a chart for pages that cannot show widgets."""
        bundle: dict[str, Any] = self.widget._repr_mimebundle_(**options)
        chart = self._growth._repr_html_()
        return {**bundle, "text/plain": repr(self), "text/html": f"{as_html(self.sheet())}{chart}"}

    def _make_widgets(self) -> None:
        """Create the widgets, and connect them."""
        widgets = import_extra("ipywidgets", extra="lab")
        itables = import_extra("itables.widget", extra="lab")
        from memlab.views.controls import RangeSlider

        past = self._history.past
        self._growth = _chart_of(charts.plot_growth(growth_curve(past)))
        context = _chart_of(charts.plot_boot_context(boot_context(present_rows(past))))
        usage = age_or_use(past, self._history.references)
        age_and_use = _chart_of(charts.plot_age_or_use(usage))
        texts = [str(step) for step in self._steps]
        self.period = RangeSlider(name="written", texts=texts, limits=[0, len(texts) - 1])
        parts = list(self._groups[0])
        groups = list(self._groups[1])
        self.curve = _brush_of(self._growth)
        self.context = _brush_of(context, parts, range(len(parts)))
        # The rows of the chart: the groups by use, a free row, and the quarters by age.
        row_places = [*range(len(TIMES)), *range(len(TIMES) + 1, len(TIMES) + 1 + len(QUARTERS))]
        self.usage = _brush_of(age_and_use, groups, row_places)
        self._group_charts = [self.context, self.usage]
        self.grid = itables.ITable(_table_of(self.memories.iloc[:0]), **_GRID_OPTIONS)
        auto = widgets.Layout(width="auto")
        self.all_button = widgets.Button(description="Show all", layout=auto)
        self.plan_button = widgets.Button(description="Plan their deletion", layout=auto)
        self.delete_button = widgets.Button(
            description="Delete them", button_style="danger", layout=widgets.Layout(width="auto")
        )
        self.undo_button = widgets.Button(
            description="Undo", layout=widgets.Layout(width="auto", display="none")
        )
        self.status = widgets.HTML()
        self.details = widgets.HTML()
        self.planned = widgets.HTML()
        chart_by_title = {
            "when written": self.curve,
            "parts": self.context,
            "age or use": self.usage,
        }
        drawn_charts = {name: chart for name, chart in chart_by_title.items() if chart is not None}
        tabs = widgets.Tab(list(drawn_charts.values()), titles=list(drawn_charts))
        row = widgets.Layout(flex_flow="row wrap", align_items="center")
        self.widget = widgets.VBox(
            [
                *([tabs] if drawn_charts else []),
                widgets.HBox([self.period, self.all_button, self.status], layout=row),
                self.grid,
                self.details,
                widgets.HBox([self.plan_button, self.delete_button, self.undo_button]),
                self.planned,
            ]
        )
        self.widget.add_class("memlab-browser")
        self.period.observe(self._period_changed, names="limits")
        if self.curve is not None:
            self.curve.observe(self._span_changed, names="span")
        for chart in self._group_charts:
            if chart is not None:
                chart.observe(self._marks_changed, names="selected")
        self.grid.observe(self._selection_changed, names="selected_rows")
        self.all_button.on_click(lambda _: self.show_all())
        self.plan_button.on_click(self._plan_clicked)
        self.delete_button.on_click(self._deletion_clicked)
        self.undo_button.on_click(self._undo_clicked)

    def _period_changed(self, _: Any) -> None:
        """Draw the range of time on the curve, and filter the grid."""
        if self.curve is not None:
            self.curve.span = self._span_of_period()
        self._filter()

    def _span_changed(self, change: Any) -> None:
        """Set the range of time to a span of the curve, in fractions of its axis."""
        span = change["new"]
        if not span:
            self.period.limits = [0, len(self._steps) - 1]
        elif span != self._span_of_period():
            start, end = span
            self.show_period(self._date_at(start), self._date_at(end))
            self.curve.span = self._span_of_period()

    def _marks_changed(self, _: Any) -> None:
        """Show the groups that are selected on the charts."""
        marked = set()
        for chart in self._group_charts:
            if chart is not None:
                marked.update(chart.selected)
        if marked != self._chosen_groups:
            self._chosen_groups = marked
            self._filter()

    def _date_at(self, fraction: float) -> str:
        """Return the date at a fraction of the curve's axis."""
        left, right = self._growth.axes[0].get_xlim()
        moment = num2date(left + fraction * (right - left))  # type: ignore[no-untyped-call]
        return f"{moment:%Y-%m-%d}"

    def _span_of_period(self) -> list[float]:
        """Return the range of time in fractions of the curve's axis; empty for all of it."""
        if self._is_whole_period:
            return []
        low, high = self.period.limits
        left, right = self._growth.axes[0].get_xlim()
        ends = np.array([self._steps[low], self._end_of(high)]).astype("datetime64[s]")
        days = ends.astype(np.int64) / 86_400
        fractions = np.clip((days - left) / (right - left), 0, 1)
        return [round(float(fraction), 4) for fraction in fractions]

    def _end_of(self, step: int) -> np.datetime64:
        """Return the day after a step of the range of time."""
        if step + 1 < len(self._steps):
            return np.datetime64(self._steps[step + 1])
        return np.datetime64(self._steps[step] + _DAY)

    def _filter(self) -> None:
        """Show the memories of the range of time and of the selected groups."""
        is_shown = ~self._is_deleted
        if not self._is_whole_period:
            low, high = self.period.limits
            is_shown &= self._written >= self._steps[low]  # a memory without a date is left out
            if high + 1 < len(self._steps):
                is_shown &= self._written < self._steps[high + 1]
        for members in self._groups:
            chosen = [flags for name, flags in members.items() if name in self._chosen_groups]
            if chosen:
                is_shown &= np.any(chosen, axis=0)
        self._shown = np.flatnonzero(is_shown)
        table = _table_of(self.shown.iloc[:GRID])
        # An update takes the defaults for options that are not given again.
        self.grid.update(table, caption=self._caption(), selected_rows=[], **_GRID_OPTIONS)
        self.status.value = f'<p role="status">{html.escape(self._shown_in_words())}</p>'
        self._show_selected()

    def _caption(self) -> str:
        """Return the caption of a grid that does not hold all memories."""
        if len(self._shown) <= GRID:
            return ""
        return f"the newest {GRID:,} of {counted(len(self._shown))}: narrow the range to see others"

    def _shown_in_words(self) -> str:
        """Return the number of memories in the grid, and how they were filtered."""
        tokens = counted(int(self.shown[c.TOKENS].sum()), "tokens")
        deleted = int(self._is_deleted.sum())
        words = f"{len(self._shown):,} of {counted(len(self.memories) - deleted)}, {tokens}"
        if deleted:
            words += f"; {deleted:,} deleted here"
        if not self._is_whole_period:
            low, high = self.period.limits
            last_day = self._end_of(high) - _DAY
            words += f"; written {self._steps[low]} to {last_day}"
        if self._chosen_groups:
            words += f"; {', '.join(sorted(self._chosen_groups))}"
        return words

    def _selected_in_words(self) -> str:
        """Return the number of selected memories, and their tokens, reads and references."""
        selected = self.selected
        if selected.empty:
            return "none; select rows to see their text and to plan their deletion"
        facts = [counted(len(selected)), counted(int(selected[c.TOKENS].sum()), "tokens")]
        if selected[READS].notna().any():
            facts.append(counted(int(selected[READS].sum()), "reads"))
        facts.append(counted(int(selected[c.REFERENCES].sum()), "references"))
        load_bearing = int((selected[LABEL] == "load-bearing").sum())
        if load_bearing:
            facts.append(f"{load_bearing:,} load-bearing, which no plan deletes")
        return ", ".join(facts)

    def _selection_changed(self, _: Any) -> None:
        """Show the selected memories."""
        self._show_selected()

    def _show_selected(self) -> None:
        """Show the text of the first selected memories; a plan of other ones is removed."""
        selected = self.selected
        paragraphs = [f"<p>selected: {html.escape(self._selected_in_words())}</p>"]
        for _, row in selected.iloc[:BODIES].iterrows():
            title = html.escape(for_terminal(str(row[c.TITLE])))
            key = html.escape(for_terminal(str(row[c.MEMORY_ID])))
            body = html.escape(self._body_of(str(row[c.MEMORY_ID])))
            paragraphs.append(f"<h4>{title}</h4><p>{key}</p><pre tabindex='0'>{body}</pre>")
        hidden = len(selected) - BODIES
        if hidden > 0:
            paragraphs.append(f"<p>and {hidden:,} more</p>")
        self.details.value = "".join(paragraphs)
        self._show_plan("")
        self.plan_button.disabled = selected.empty or self._history.source is None

    def _body_of(self, memory_id: str) -> str:
        """Return the text of a memory. Texts are read from the store, as it is at the first use."""
        if self._bodies is None:
            source = self._history.source
            if source is None:
                frame = present_rows(self._history.past)
            else:
                frame = load(source, with_body=True)
            if c.BODY not in frame:
                return "the text is not in this frame: load it with with_body=True"
            self._bodies = pd.Series(frame[c.BODY].to_numpy(), index=frame[c.MEMORY_ID].astype(str))
            self._bodies = self._bodies[~self._bodies.index.duplicated(keep="last")]
        text = str(self._bodies.get(memory_id, ""))
        return "\n".join(for_terminal(line) for line in text.splitlines())

    def _plan_clicked(self, _: Any) -> None:
        """Show the plan of the selected memories and its cost, and offer to apply it."""
        source = self._history.source
        if source is None:
            return
        refusals = self._refusals(source)
        try:
            new_plan = self.plan() if self.ids else None
            cost = None if new_plan is None else cost_of(new_plan, log=self._history.log)
        except MemlabError as error:
            self._show_refusals([str(error)])
            return
        if new_plan is None or cost is None or not new_plan.memories:
            self._show_refusals(refusals)
            return
        effect = as_text(TextPage(new_plan.effect, cost.facts()))
        decision = as_text(new_plan.sheet(self._history.name))
        is_example = _is_bundled(source)
        next_step = _EXAMPLE if is_example else _NEXT
        self._show_plan(
            "\n\n".join([effect, *refusals, next_step, decision]),
            plan=None if is_example else new_plan,
        )

    def _refusals(self, source: Source) -> list[str]:
        """Return why selected memories stay, each with what can be done instead."""
        rows = self._shown[list(self.grid.selected_rows)]
        refused = self.memories.iloc[rows[~self._is_prunable[rows]]]
        reasons = []
        for _, memory in refused.iloc[:BODIES].iterrows():
            is_load_bearing = memory[LABEL] == "load-bearing"
            reasons.append(
                reason_to_keep(
                    str(memory[c.MEMORY_ID]), source=source, is_load_bearing=is_load_bearing
                )
            )
        hidden = len(refused) - BODIES
        if hidden > 0:
            reasons.append(f"and {hidden:,} more selected memories stay")
        return reasons

    def _deletion_clicked(self, _: Any) -> None:
        """Apply the plan that is shown, and offer to undo it."""
        shown_plan = self._shown_plan
        if shown_plan is None:
            return
        self.delete_button.disabled = True
        try:
            receipt = apply(shown_plan, store=self._history.source, now=self._now)
        except MemlabError as error:
            self._show_refusals([str(error)])
            return
        ids = [memory.memory_id for memory in shown_plan.memories]
        is_deleted_now = self.memories[c.MEMORY_ID].isin(ids).to_numpy() & self._is_prunable
        self._deletions.append((receipt, is_deleted_now))
        self._is_deleted |= is_deleted_now
        self._filter()
        self._show_plan(f"{receipt}\n\n{_DELETED}")

    def _undo_clicked(self, _: Any) -> None:
        """Restore what the last deletion of this browser took out."""
        if not self._deletions:
            return
        receipt, is_restored = self._deletions[-1]
        try:
            restored = restore(receipt, now=self._now)
        except MemlabError as error:
            self._show_refusals([str(error)])
            return
        self._deletions.pop()
        self._is_deleted &= ~is_restored
        self._filter()
        self._show_plan(f"{counted(restored.memories)} restored, each at its place")

    def _show_refusals(self, reasons: Sequence[str]) -> None:
        """Show why nothing is deleted."""
        paragraphs = "".join(f"<p>{html.escape(for_terminal(reason))}</p>" for reason in reasons)
        self._show_plan("")
        self.planned.value = f"<div role='alert'>{paragraphs}</div>"

    def _show_plan(self, text: str, *, plan: Plan | None = None) -> None:
        """Show a text below the buttons; only a plan with it can be applied by a click."""
        self.planned.value = f"<pre tabindex='0'>{html.escape(text)}</pre>" if text else ""
        self._shown_plan = plan
        self.delete_button.disabled = plan is None
        self.delete_button.layout.display = "none" if plan is None else None
        self.undo_button.layout.display = None if self._deletions else "none"


_NEXT: Final = """nothing was deleted. "Delete them" applies this plan; so does the next cell:
plan = browser.plan()          # the same plan
receipt = memlab.apply(plan)   # archive, delete, verify
memlab.restore(receipt)        # undo: every memory back at its place"""
_EXAMPLE: Final = """nothing was deleted: this store is an example. To delete from a copy of it:
copy = memlab.copy_store(store, "memory.db")
memlab.browse(copy)"""
_DELETED: Final = '"Undo" restores them, and so does the command above'


def _is_bundled(source: Source) -> bool:
    """Return whether a store is one of the examples that are installed with memlab."""
    if not source.is_native_format:
        return False
    return store_file(source.name).resolve().is_relative_to(folder_of("data").resolve())


def browse(store: HistoryLike, *, log: Log = None, now: datetime | None = None) -> MemoryBrowser:
    """Return the browser of a store's memories: a grid, a range of time, and charts to filter by.

    Selected rows show their text, and go on to a plan that deletes them, its cost and its undo.

    Parameters
    ----------
    store : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, which is only read, or what ``memlab.load_past`` returns.
    log : DataFrame, str or Path, optional
        An access log; by default the logs that ``memlab.toml`` names.
    now : datetime, optional
        The time at which ages are computed, with a time zone; by default the clock's.

    Returns
    -------
    MemoryBrowser
        The browser, which a notebook displays.

    Raises
    ------
    MemlabError
        If the store cannot be read, or the extra ``lab`` is not installed.

    Examples
    --------
    >>> import memlab
    >>> browser = memlab.browse(memlab.store_path("three_hundred_issues"))
    >>> browser.show_period("2026-03-01", "2026-03-07")
    >>> browser.select(browser.shown["memory_id"].head(2))
    >>> len(browser.shown), len(browser.plan().memories)
    (40, 2)
    """
    return MemoryBrowser(
        StoreHistory.of(store, log, call="memlab.browse", now=now).with_references()
    )


def _groups_of(present: pd.DataFrame, history: StoreHistory) -> tuple[dict[str, Flags], ...]:
    """Return the members of the groups that charts show: parts of a start, and age and use.

    Each is an array of truth values, one for each memory of `present`, the newest first.
    """
    memories = arrays_of(present)
    part_numbers, loaded = parts_of(memories)
    parts = {}
    for number, name in enumerate(part_names(present)):
        members = loaded & (part_numbers == number)
        if members.any():
            parts[name] = members
    is_log = history.references[c.KIND] == "log"
    reads = history.references[is_log]
    day = reads[c.AT].dt.floor("D")
    days_read = pd.DataFrame({"id": reads[c.TARGET_ID], "day": day}).drop_duplicates()["id"]
    times = present[c.MEMORY_ID].map(days_read.value_counts()).fillna(0).to_numpy()
    group = times_group(times.astype(np.int64))
    prunable = np.asarray(memories.prunable)
    groups = {f"read {name}": prunable & (group == number) for number, name in enumerate(TIMES)}
    rank = np.cumsum(prunable) - 1
    quarter = len(QUARTERS) * rank // max(int(prunable.sum()), 1)
    for number, name in enumerate(QUARTERS):
        groups[name] = prunable & (quarter == number)
    return parts, groups


def _days_of(times: "pd.Series[Any]") -> npt.NDArray[np.datetime64]:
    """Return times in UTC as days, NaT for none."""
    naive = times.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(naive, dtype="datetime64[D]")


def _steps_between(days: npt.NDArray[np.datetime64]) -> npt.NDArray[np.datetime64]:
    """Return the first days of the steps from the earliest day to the latest."""
    dated = days[~np.isnat(days)]
    if not len(dated):
        return np.array(["1970-01-01"], dtype="datetime64[D]")
    first_day = dated.min()
    count = int((dated.max() - first_day) / _DAY) + 1
    width = -(-count // STEPS)  # rounded up
    return np.arange(first_day, first_day + count * _DAY, width * _DAY)


def _table_of(memories: pd.DataFrame) -> pd.DataFrame:
    """Return memories as the table of the grid, with rounded numbers and short dates."""
    table = without_controls(memories[list(_COLUMNS)])
    table[LABEL] = memories[LABEL].astype(str)
    table[AGE_DAYS] = memories[AGE_DAYS].round().astype("Int64")
    table[c.CREATED_AT] = memories[c.CREATED_AT].dt.strftime("%Y-%m-%d").astype(object)
    if memories[READS].isna().all():
        table = table.drop(columns=READS)
    for name in table.columns:
        if table[name].isna().any():
            table[name] = table[name].astype(object).where(table[name].notna(), "–")
    return table.rename(columns=_COLUMNS).reset_index(drop=True)


def _chart_of(ax: Axes) -> Chart:
    """Return the chart that a plot function drew."""
    return cast("Chart", ax.figure)


def _brush_of(chart: Chart, names: Sequence[str] = (), places: Iterable[float] = ()) -> Any:
    """Return a chart as a widget to select a span of time on, or rows by name.

    Parameters
    ----------
    chart : Chart
        The chart.
    names : sequence of str, optional
        The names of its rows; without them a span along the x axis can be selected.
    places : iterable of float, optional
        The place of each row on the y axis.

    Returns
    -------
    Brush or None
        The widget; None if the chart has no data to draw.
    """
    if chart.nothing_to_show:
        return None
    from memlab.views.controls import Brush

    narrow = chart.at(width=NARROW)
    svg = as_svg(narrow, "narrow") + as_svg(chart, "wide")
    rows = dict(zip(names, places, strict=True))
    return Brush(
        html=f'<div class="memlab-chart"><style>{STYLE}</style>{svg}</div>',
        title=chart.title,
        marks=list(names),
        layouts={"narrow": _layout_of(narrow, rows), "wide": _layout_of(chart, rows)},
    )


def _layout_of(chart: Chart, rows: dict[str, float]) -> dict[str, list[float]]:
    """Return the boxes of the axes and of rows as left, top, width and height.

    All are fractions of the drawn figure, from its upper left corner. The box of the axes has the
    key "axes".
    """
    ax = chart.axes[0]
    axes = ax.get_position()
    boxes = {"axes": [axes.x0, 1 - axes.y1, axes.width, axes.height]}
    low, high = ax.get_ylim()
    height = axes.height / abs(high - low)
    for name, place in rows.items():
        middle = 1 - (axes.y0 + axes.height * (place - low) / (high - low))
        boxes[name] = [axes.x0, middle - 0.45 * height, axes.width, 0.9 * height]
    return {name: [round(float(edge), 4) for edge in box] for name, box in boxes.items()}
