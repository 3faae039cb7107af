"""The browser of memories: a grid, filters by date and by chart, and a plan to delete."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import num2date

from memlab import charts
from memlab import columns as c
from memlab.arguments import texts
from memlab.charts.figure import NARROW, STYLE_SHEET, Chart, as_svg
from memlab.clock import now_utc
from memlab.compaction.applier import apply
from memlab.compaction.plan_cost import cost_of
from memlab.compaction.planner import plan, reason_to_keep
from memlab.compaction.plans import Plan, Receipt
from memlab.compaction.restorer import restore
from memlab.compaction.wire import some_of
from memlab.errors import MemlabError
from memlab.evidence.past import HistoryLike, present_rows
from memlab.evidence.reads import NO_READ_OF_STORE, Log, is_other_stores_log
from memlab.evidence.store_history import StoreHistory
from memlab.evidence.usage import QUARTERS, USE_GROUPS, age_or_use, use_group
from memlab.frame.fields import Flags, Ints, arrays_of
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
"""Maximum number of memories in the table of a page without scripts."""
MAX_GRID_ROWS: Final = 5_000
"""Maximum number of rows in the grid; a browser can still sort them quickly."""
MAX_DETAILS: Final = 5
"""Maximum number of selected memories whose text, or reason to stay, is shown."""
MAX_STEPS: Final = 2_000
"""Maximum number of steps of the range of time; a longer history has steps of several days."""

_DAY: Final = np.timedelta64(1, "D")
_HEADINGS: Final = {
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
        # the title, sorted as text even if all titles are dates
        {"targets": [0], "width": "40%", "type": "string"},
        # the label, the date and the id are not wrapped
        {"targets": [1, -2, -1], "className": "memlab-whole"},
    ],
    # the rows of the header: first the headings with their buttons, then the boxes
    "columnControl": [
        {"target": 0, "content": ["order"]},
        {"target": 1, "content": ["search"]},
    ],
    "ordering": {"indicators": False, "handler": False},
    "layout": {
        "topStart": [
            "pageLength",
            {
                "buttons": [
                    {
                        "extend": "selectAll",
                        "text": "Select all shown",
                        # of all pages, and only what the boxes below the headings leave
                        "selectorModifier": {"search": "applied"},
                    },
                    {"extend": "selectNone", "text": "Select none"},
                ]
            },
        ]
    },
}
"""Options of the grid: a box below each heading filters its column, and a button sorts by it."""


class _GroupChart(NamedTuple):
    """A chart whose rows can be selected.

    Attributes
    ----------
    widget : Brush or None
        The chart; None if there is no data to draw.
    members : dict of str to array of bool
        For each row of the chart, by its name: whether each memory belongs to it.
    """

    widget: Any
    members: dict[str, Flags]


class _Deletion(NamedTuple):
    """A deletion of this browser that can be undone.

    Attributes
    ----------
    receipt : Receipt
        The receipt of the deletion.
    is_deleted : array of bool
        Whether each memory was deleted by it.
    """

    receipt: Receipt
    is_deleted: Flags


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
        The widgets with the charts of growth, of a start, and of age against use. They are
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
        listed = rows_of(history, by="age")
        listed = listed.sort_values(c.POSITION, ascending=False, kind="stable")
        self.memories: pd.DataFrame = pd.DataFrame(listed.reset_index(drop=True))
        # `present` has the same rows as `memories` in the same order, so flags apply to both.
        present = present_rows(history.past).sort_values(c.POSITION, ascending=False)
        present = present.reset_index(drop=True)
        self._is_prunable = present[c.PRUNABLE].to_numpy(dtype=bool)
        self._members_by_part = _members_by_part(present)
        self._members_by_age_and_use = _members_by_age_and_use(present, history.references)
        self._written_on = _days_of(self.memories[c.CREATED_AT])
        self._first_days = _first_days_of_steps(self._written_on)
        self._chosen_groups: set[str] = set()
        self._shown_rows = np.arange(len(self.memories))
        self._bodies: pd.Series[str] | None = None
        self._is_deleted = np.zeros(len(self.memories), dtype=bool)
        self._shown_plan: Plan | None = None
        self._deletions: list[_Deletion] = []
        self._make_widgets()
        self._filter()

    @property
    def shown(self) -> pd.DataFrame:
        """The memories within the range of time and the chosen groups.

        The grid lists at most the newest 5,000 of them.
        """
        return self.memories.iloc[self._shown_rows]

    @property
    def selected(self) -> pd.DataFrame:
        """The memories that are selected in the grid."""
        return self.memories.iloc[self._selected_rows]

    @property
    def ids(self) -> list[str]:
        """The ids of the selected memories that a plan may delete, for :func:`memlab.plan`."""
        prunable = self.selected[self._is_prunable[self._selected_rows]]
        return [str(memory_id) for memory_id in prunable[c.MEMORY_ID]]

    @property
    def _selected_rows(self) -> Ints:
        """The numbers of the selected rows of `memories`."""
        rows: Ints = self._shown_rows[list(self.grid.selected_rows)]
        return rows

    @property
    def _is_whole_period(self) -> bool:
        """Whether the range of time includes all memories."""
        return list(self.period.limits) == self._limits_of_all

    @property
    def _limits_of_all(self) -> list[int]:
        """The first and the last step of the range of time."""
        return [0, len(self._first_days) - 1]

    def show_period(self, first: str, last: str) -> None:
        """Show the memories that were written from one date to another, both included.

        Parameters
        ----------
        first, last : str
            Dates such as ``"2026-03-01"``, in UTC.
        """
        self.period.limits = [self._step_of(first), self._step_of(last)]

    def show_groups(self, *names: str) -> None:
        """Show the memories of some groups: parts of a start, or rows of age and use.

        Parameters
        ----------
        *names : str
            Names as the charts have them, such as ``"episodes"`` or ``"oldest quarter"``. A memory
            is shown if it is in one of the named parts, and in one of the named rows. Without
            names, all memories are shown.

        Raises
        ------
        ValueError
            If a name is unknown.
        """
        known_names = [*self._members_by_part, *self._members_by_age_and_use]
        for name in names:
            if name not in known_names:
                raise ValueError(f"no group {name!r}; there are {', '.join(known_names)}")
        chosen = set(names)
        # The selection of one chart filters before that of the next is set.
        for chart in self._group_charts:
            if chart.widget is not None:
                chart.widget.selected = [name for name in chart.members if name in chosen]
        self._chosen_groups = chosen
        self._filter()

    def show_all(self) -> None:
        """Show all memories again, with none of them selected."""
        self.grid.selected_rows = []
        self.period.limits = self._limits_of_all
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
        ids_in_grid = self.shown[c.MEMORY_ID].iloc[:MAX_GRID_ROWS]
        hidden = sorted(set(requested).difference(ids_in_grid))
        unknown = sorted(set(hidden).difference(self.memories[c.MEMORY_ID]))
        if unknown:
            raise MemlabError(
                f"{for_terminal(self._history.name)} has no memory {some_of(unknown)}; "
                'browser.memories["memory_id"] has the ids'
            )
        if hidden:
            raise MemlabError(
                f"not shown, so not selectable: {some_of(hidden)}; browser.show_all() shows the "
                f"newest {MAX_GRID_ROWS:,}, and browser.show_period(first, last) those of a period"
            )
        is_selected = ids_in_grid.isin(requested).to_numpy()
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
        return plan(source, ids=self.ids)

    def sheet(self) -> TextPage:
        """Return the present view as a page for a terminal, or for a notebook without scripts."""
        name = for_terminal(self._history.name)
        title = f"{name}: {counted(len(self.memories))}"
        facts = [("shown", self._shown_in_words()), ("selected", self._selected_in_words())]
        if self.shown.empty:
            return TextPage(title, facts, [])
        listed = _table_of(self.shown.iloc[:LISTED])
        cells = [tuple(map(str, row)) for row in listed.itertuples(index=False)]
        hidden = len(self.shown) - LISTED
        remark = f"and {hidden:,} more" if hidden > 0 else ""
        return TextPage(title, facts, [Table("", tuple(listed.columns), cells, remark)])

    def to_dict(self) -> dict[str, Any]:
        """Return the ids of the shown and of the selected memories."""
        return {
            "shown": self.shown[c.MEMORY_ID].astype(str).tolist(),
            "selected": self.selected[c.MEMORY_ID].astype(str).tolist(),
        }

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Return the widget, and a table and a chart for pages that cannot show widgets."""
        bundle: dict[str, Any] = self.widget._repr_mimebundle_(**options)
        bundle["text/plain"] = repr(self)
        bundle["text/html"] = as_html(self.sheet()) + self._growth_chart._repr_html_()
        return bundle

    def _make_widgets(self) -> None:
        """Create the widgets, arrange them, and connect them."""
        self._make_controls()
        self._make_charts()
        self._arrange_widgets()
        self._connect_widgets()

    def _make_charts(self) -> None:
        """Draw the charts, and make them widgets to select on."""
        past = self._past_with_deletions()
        self._growth_chart = _chart_of(charts.plot_growth(growth_curve(past)))
        self.curve = _brush_of(self._growth_chart, {})
        context_chart = _chart_of(charts.plot_boot_context(boot_context(present_rows(past))))
        drawn_parts = [
            name
            for name, is_member in self._members_by_part.items()
            if (is_member & ~self._is_deleted).any()
        ]
        places_of_parts = {name: place for place, name in enumerate(drawn_parts)}
        self.context = _brush_of(context_chart, places_of_parts)
        usage = age_or_use(past, self._history.references)
        usage_chart = _chart_of(charts.plot_age_or_use(usage))
        # From top to bottom: the groups by use, a free row, and the quarters by age.
        first_quarter = len(USE_GROUPS) + 1
        places_by_use = range(len(USE_GROUPS))
        places_by_age = range(first_quarter, first_quarter + len(QUARTERS))
        places = [*places_by_use, *places_by_age]
        self.usage = _brush_of(
            usage_chart, dict(zip(self._members_by_age_and_use, places, strict=True))
        )
        self._group_charts = [
            _GroupChart(self.context, self._members_by_part),
            _GroupChart(self.usage, self._members_by_age_and_use),
        ]

    def _past_with_deletions(self) -> pd.DataFrame:
        """Return the past in which the memories that were deleted here are deleted."""
        past = self._history.past
        if not self._is_deleted.any():
            return past
        past = past.copy()
        deleted_positions = self.memories.loc[self._is_deleted, c.POSITION]
        is_deleted = past[c.POSITION].isin(deleted_positions) & past[c.DELETED_AT].isna()
        past.loc[is_deleted, c.DELETED_AT] = pd.Timestamp(now_utc())
        return past

    def _redraw_charts(self) -> None:
        """Draw the charts again after a deletion or its undo; keep the selection, and filter."""
        self._make_charts()
        self._connect_charts()
        self._show_tabs()
        self.show_groups(*self._chosen_groups)
        if self.curve is not None:
            self.curve.span = self._span_of_period()

    def _make_controls(self) -> None:
        """Create the range of time, the grid, the buttons and the texts."""
        widgets = import_extra("ipywidgets", extra="lab")
        itables = import_extra("itables.widget", extra="lab")
        from memlab.views.controls import RangeSlider

        day_texts = [str(day) for day in self._first_days]
        self.period = RangeSlider(name="written", texts=day_texts, limits=self._limits_of_all)
        self.grid = itables.ITable(_table_of(self.memories.iloc[:0]), **_GRID_OPTIONS)
        self.all_button = widgets.Button(
            description="Show all", layout=widgets.Layout(width="auto")
        )
        self.plan_button = widgets.Button(
            description="Plan their deletion", layout=widgets.Layout(width="auto")
        )
        self.delete_button = widgets.Button(
            description="Delete them", button_style="danger", layout=widgets.Layout(width="auto")
        )
        self.undo_button = widgets.Button(
            description="Undo", layout=widgets.Layout(width="auto", display="none")
        )
        self.status = widgets.HTML()
        self.details = widgets.HTML()
        self.planned = widgets.HTML()

    def _arrange_widgets(self) -> None:
        """Put the widgets into one: the charts as tabs, the range, the grid and the plan."""
        widgets = import_extra("ipywidgets", extra="lab")
        self._tabs = widgets.Tab()
        self._show_tabs()
        row = widgets.Layout(flex_flow="row wrap", align_items="center")
        children = [
            widgets.HBox([self.period, self.all_button, self.status], layout=row),
            self.grid,
            self.details,
            widgets.HBox([self.plan_button, self.delete_button, self.undo_button]),
            self.planned,
        ]
        if self._tabs.children:
            children.insert(0, self._tabs)
        self.widget = widgets.VBox(children)
        self.widget.add_class("memlab-browser")

    def _show_tabs(self) -> None:
        """Show each chart that has something to draw in a tab of its own."""
        charts_by_title = {
            "when written": self.curve,
            "parts": self.context,
            "age or use": self.usage,
        }
        drawn = {title: chart for title, chart in charts_by_title.items() if chart is not None}
        self._tabs.children = list(drawn.values())
        self._tabs.titles = list(drawn)

    def _connect_charts(self) -> None:
        """Filter when a span or a row of a chart is selected."""
        if self.curve is not None:
            self.curve.observe(self._span_changed, names="span")
        for chart in self._group_charts:
            if chart.widget is not None:
                chart.widget.observe(self._marks_changed, names="selected")

    def _connect_widgets(self) -> None:
        """Call the methods of the browser when a widget changes or a button is pressed."""
        self.period.observe(self._period_changed, names="limits")
        self._connect_charts()
        self.grid.observe(self._selection_changed, names="selected_rows")
        self.all_button.on_click(lambda _: self.show_all())
        self.plan_button.on_click(self._plan_clicked)
        self.delete_button.on_click(self._deletion_clicked)
        self.undo_button.on_click(self._undo_clicked)

    def _period_changed(self, _: Any) -> None:
        """Show the range of time on the chart of growth, and filter the grid."""
        if self.curve is not None:
            self.curve.span = self._span_of_period()
        self._filter()

    def _span_changed(self, change: Any) -> None:
        """Set the range of time to the span that is selected on the chart of growth.

        The span is then extended to whole steps of the range.
        """
        span = change["new"]
        if not span:
            self.period.limits = self._limits_of_all
        elif span != self._span_of_period():
            start, end = span
            self.show_period(self._date_at(start), self._date_at(end))
            # If the steps stay the same, `_period_changed` is not called.
            self.curve.span = self._span_of_period()

    def _marks_changed(self, _: Any) -> None:
        """Show the groups that are selected on the charts."""
        marked = set()
        for chart in self._group_charts:
            if chart.widget is not None:
                marked.update(chart.widget.selected)
        if marked != self._chosen_groups:
            self._chosen_groups = marked
            self._filter()

    def _date_at(self, fraction: float) -> str:
        """Return the date at a fraction of the time axis of the chart of growth."""
        left, right = self._growth_chart.axes[0].get_xlim()
        moment = num2date(left + fraction * (right - left))  # type: ignore[no-untyped-call]
        return f"{moment:%Y-%m-%d}"

    def _span_of_period(self) -> list[float]:
        """Return the ends of the range of time as fractions of the time axis of the chart.

        The list is empty if the range includes all memories.
        """
        if self._is_whole_period:
            return []
        first_step, last_step = self.period.limits
        left, right = self._growth_chart.axes[0].get_xlim()
        ends = np.array([self._first_days[first_step], self._day_after(last_step)])
        days_since_1970 = (ends - np.datetime64(0, "D")) / _DAY  # the unit of the axis
        fractions = np.clip((days_since_1970 - left) / (right - left), 0, 1)
        return [round(float(fraction), 4) for fraction in fractions]

    def _step_of(self, date: str) -> int:
        """Return the number of the step that contains a date, or of the nearest step."""
        steps_begun = int(np.searchsorted(self._first_days, np.datetime64(date, "D"), side="right"))
        return max(steps_begun - 1, 0)

    def _day_after(self, step: int) -> np.datetime64:
        """Return the day after a step of the range of time."""
        if step + 1 < len(self._first_days):
            return np.datetime64(self._first_days[step + 1])
        return np.datetime64(self._first_days[step] + _DAY)

    def _filter(self) -> None:
        """Show the memories of the range of time and of the selected groups.

        Memories stay selected if they are still in the grid.
        """
        selected_rows = self._selected_rows
        is_shown = ~self._is_deleted
        if not self._is_whole_period:
            first_step, last_step = self.period.limits
            # A memory without a date is left out: NaT is neither before nor after a day.
            is_shown &= self._written_on >= self._first_days[first_step]
            if last_step + 1 < len(self._first_days):
                is_shown &= self._written_on < self._first_days[last_step + 1]
        for chart in self._group_charts:
            chosen = [
                is_member
                for name, is_member in chart.members.items()
                if name in self._chosen_groups
            ]
            if chosen:
                is_shown &= np.any(chosen, axis=0)
        self._shown_rows = np.flatnonzero(is_shown)
        table = _table_of(self.shown.iloc[:MAX_GRID_ROWS])
        is_selected = np.isin(self._shown_rows[:MAX_GRID_ROWS], selected_rows)
        # Options that are not given again would get their defaults.
        self.grid.update(table, selected_rows=np.flatnonzero(is_selected).tolist(), **_GRID_OPTIONS)
        self.status.value = f'<p role="status">{html.escape(self._shown_in_words())}</p>'
        self._show_selected()

    def _shown_in_words(self) -> str:
        """Return the number of memories in the grid, and how they were filtered."""
        tokens = counted(int(self.shown[c.TOKENS].sum()), "tokens")
        deleted = int(self._is_deleted.sum())
        present = counted(len(self.memories) - deleted)
        summary = f"{len(self._shown_rows):,} of {present}, {tokens}"
        if deleted:
            summary += f"; {deleted:,} deleted here"
        if not self._is_whole_period:
            first_step, last_step = self.period.limits
            first_day = self._first_days[first_step]
            last_day = self._day_after(last_step) - _DAY
            summary += f"; written {first_day} to {last_day}"
        if self._chosen_groups:
            summary += f"; {', '.join(sorted(self._chosen_groups))}"
        if len(self._shown_rows) > MAX_GRID_ROWS:
            summary += (
                f"; the table holds the newest {MAX_GRID_ROWS:,}: narrow the range to see others"
            )
        log = self._history.log
        if log is not None and is_other_stores_log(log, self._history.past[c.MEMORY_ID]):
            summary += f"; the log: {NO_READ_OF_STORE}"
        return summary

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
        """Show the text of the first selected memories, and remove an earlier plan."""
        selected = self.selected
        paragraphs = [f"<p>selected: {html.escape(self._selected_in_words())}</p>"]
        for _, memory in selected.iloc[:MAX_DETAILS].iterrows():
            title = html.escape(for_terminal(str(memory[c.TITLE])))
            memory_id = html.escape(for_terminal(str(memory[c.MEMORY_ID])))
            body = html.escape(self._body_of(str(memory[c.MEMORY_ID])))
            paragraphs.append(f"<h4>{title}</h4><p>{memory_id}</p><pre tabindex='0'>{body}</pre>")
        hidden = len(selected) - MAX_DETAILS
        if hidden > 0:
            paragraphs.append(f"<p>and {hidden:,} more</p>")
        self.details.value = "".join(paragraphs)
        self._show_message("")
        self.plan_button.disabled = selected.empty or self._history.source is None

    def _body_of(self, memory_id: str) -> str:
        """Return the text of a memory. All texts are read from the store at the first call."""
        if self._bodies is None:
            source = self._history.source
            if source is None:
                frame = present_rows(self._history.past)
            else:
                frame = load(source, with_body=True)
            if c.BODY not in frame:
                return "the text is not in this frame: load it with with_body=True"
            bodies = pd.Series(frame[c.BODY].to_numpy(), index=frame[c.MEMORY_ID].astype(str))
            self._bodies = bodies[~bodies.index.duplicated(keep="last")]
        text = str(self._bodies.get(memory_id, ""))
        return "\n".join(for_terminal(line) for line in text.splitlines())

    def _plan_clicked(self, _: Any) -> None:
        """Show the plan of the selected memories and its cost, and offer to apply it."""
        source = self._history.source
        if source is None:
            return
        refusals = self._refusals(source)
        if not self.ids:
            self._show_refusals(refusals)
            return
        try:
            new_plan = self.plan()
            cost = cost_of(new_plan, log=self._history.log)
        except MemlabError as error:
            self._show_refusals([str(error)])
            return
        if not new_plan.memories:
            self._show_refusals(refusals)
            return
        effect = as_text(TextPage(new_plan.effect, cost.facts()))
        decision = as_text(new_plan.sheet(self._history.name))
        if _is_bundled(source):
            text = "\n\n".join([effect, *refusals, _NEXT_STEP_OF_EXAMPLE, decision])
            self._show_message(text, plan=None)
        else:
            text = "\n\n".join([effect, *refusals, _NEXT_STEP, decision])
            self._show_message(text, plan=new_plan)

    def _refusals(self, source: Source) -> list[str]:
        """Return a reason for each selected memory that no plan deletes, and an alternative."""
        refused = self.selected[~self._is_prunable[self._selected_rows]]
        reasons = []
        for _, memory in refused.iloc[:MAX_DETAILS].iterrows():
            reason = reason_to_keep(
                str(memory[c.MEMORY_ID]),
                source=source,
                is_load_bearing=memory[LABEL] == "load-bearing",
            )
            reasons.append(reason)
        hidden = len(refused) - MAX_DETAILS
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
            receipt = apply(shown_plan, store=self._history.source)
        except MemlabError as error:
            self._show_refusals([str(error)])
            return
        ids = [memory.memory_id for memory in shown_plan.memories]
        has_deleted_id = self.memories[c.MEMORY_ID].isin(ids).to_numpy()
        # Two memories of a store can have the same id; a plan deletes only the prunable one.
        is_deleted_now = has_deleted_id & self._is_prunable
        self._deletions.append(_Deletion(receipt, is_deleted_now))
        self._is_deleted |= is_deleted_now
        self._redraw_charts()
        self._show_message(f"{receipt}\n\n{_NEXT_STEP_TO_UNDO}")

    def _undo_clicked(self, _: Any) -> None:
        """Restore the memories of this browser's last deletion."""
        if not self._deletions:
            return
        deletion = self._deletions[-1]
        try:
            restored = restore(deletion.receipt)
        except MemlabError as error:
            self._show_refusals([str(error)])
            return
        self._deletions.pop()
        self._is_deleted &= ~deletion.is_deleted
        self._redraw_charts()
        self._show_message(f"{counted(restored.memories)} restored, each at its place")

    def _show_refusals(self, reasons: Sequence[str]) -> None:
        """Show why nothing is deleted."""
        paragraphs = "".join(f"<p>{html.escape(for_terminal(reason))}</p>" for reason in reasons)
        self._show_message("")
        self.planned.value = f"<div role='alert'>{paragraphs}</div>"

    def _show_message(self, text: str, *, plan: Plan | None = None) -> None:
        """Show a text below the buttons, and the delete button if there is a plan to apply.

        An empty text removes the text that is shown.
        """
        self.planned.value = f"<pre tabindex='0'>{html.escape(text)}</pre>" if text else ""
        self._shown_plan = plan
        self.delete_button.disabled = plan is None
        self.delete_button.layout.display = "none" if plan is None else None
        self.undo_button.layout.display = None if self._deletions else "none"


_NEXT_STEP: Final = """\
nothing was deleted yet. "Delete them" applies this plan. These lines in a cell do the same:
plan = browser.plan()          # the same plan
receipt = memlab.apply(plan)   # archive, delete, verify
memlab.restore(receipt)        # undo: every memory back at its place"""
_NEXT_STEP_OF_EXAMPLE: Final = """\
nothing was deleted: this store is an example. To delete from a copy of it:
copy = memlab.copy_store(store, "memory.db")
memlab.browse(copy)"""
_NEXT_STEP_TO_UNDO: Final = '"Undo" restores them, and so does the command above'


def _is_bundled(source: Source) -> bool:
    """Return whether a store is one of the examples that are installed with memlab."""
    if not source.is_native_format:
        return False
    return store_file(source.name).resolve().is_relative_to(folder_of("data").resolve())


def browse(store: HistoryLike, *, log: Log = None, now: datetime | None = None) -> MemoryBrowser:
    """Return the browser of a store's memories: a grid, a range of time, and charts to filter by.

    The text of selected memories is shown. A plan to delete them can be made, applied and undone.

    Parameters
    ----------
    store : DataFrame, path, URL, SqliteMemoryStore or Source
        The store, which only the buttons change, or what ``memlab.load_past`` returns.
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


def _members_by_part(present: pd.DataFrame) -> dict[str, Flags]:
    """Flag the members of each non-empty part of a start, by the name of the part.

    The flags of a part have one value for each row of `present`.
    """
    part_numbers, loaded = parts_of(arrays_of(present))
    members_by_name = {}
    for number, name in enumerate(part_names(present)):
        is_member = loaded & (part_numbers == number)
        if is_member.any():
            members_by_name[name] = is_member
    return members_by_name


def _members_by_age_and_use(present: pd.DataFrame, references: pd.DataFrame) -> dict[str, Flags]:
    """Flag the prunable memories of each group, by the name of the group.

    A memory is in one group by the number of days on which it was read, and in another by its
    quarter of age. The flags of a group have one value for each row of `present`, the newest first.
    """
    is_prunable = present[c.PRUNABLE].to_numpy(dtype=bool)
    reads = references[references[c.KIND] == "log"]
    read_days = pd.DataFrame({"id": reads[c.TARGET_ID], "day": reads[c.AT].dt.floor("D")})
    days_by_id = read_days.drop_duplicates()["id"].value_counts()
    days_read = present[c.MEMORY_ID].map(days_by_id).fillna(0).to_numpy()
    group_of_memory = use_group(days_read.astype(np.int64))
    members_by_name = {}
    for number, name in enumerate(USE_GROUPS):
        members_by_name[f"read {name}"] = is_prunable & (group_of_memory == number)
    prunable_newer = np.cumsum(is_prunable) - 1  # number of newer prunable memories
    quarter = len(QUARTERS) * prunable_newer // max(int(is_prunable.sum()), 1)
    for number, name in enumerate(QUARTERS):
        members_by_name[name] = is_prunable & (quarter == number)
    return members_by_name


def _days_of(times: "pd.Series[Any]") -> npt.NDArray[np.datetime64]:
    """Return the day of each time in UTC; a missing time is NaT."""
    naive = times.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(naive, dtype="datetime64[D]")


def _first_days_of_steps(days: npt.NDArray[np.datetime64]) -> npt.NDArray[np.datetime64]:
    """Divide the time from the earliest to the latest day into steps; return their first days."""
    dated = days[~np.isnat(days)]
    if not len(dated):
        return np.array(["1970-01-01"], dtype="datetime64[D]")
    first_day = dated.min()
    total_days = int((dated.max() - first_day) / _DAY) + 1
    days_per_step = math.ceil(total_days / MAX_STEPS)
    return np.arange(first_day, first_day + total_days * _DAY, days_per_step * _DAY)


def _table_of(memories: pd.DataFrame) -> pd.DataFrame:
    """Return memories as the table of the grid, with rounded numbers and short dates."""
    table = without_controls(memories[list(_HEADINGS)])
    table[LABEL] = memories[LABEL].astype(str)
    table[AGE_DAYS] = memories[AGE_DAYS].round().astype("Int64")
    table[c.CREATED_AT] = memories[c.CREATED_AT].dt.strftime("%Y-%m-%d").astype(object)
    if memories[READS].isna().all():
        table = table.drop(columns=READS)
    for name in table.columns:
        if table[name].isna().any():
            table[name] = table[name].astype(object).where(table[name].notna(), "–")
    return table.rename(columns=_HEADINGS).reset_index(drop=True)


def _chart_of(ax: Axes) -> Chart:
    """Return the chart that a plot function drew."""
    return cast("Chart", ax.figure)


def _brush_of(chart: Chart, row_places: Mapping[str, float]) -> Any:
    """Return a chart as a widget to select rows on, or a span of time.

    Parameters
    ----------
    chart : Chart
        The chart.
    row_places : mapping from str to float
        The name of each row that can be selected, and its place on the y axis. If it is empty, a
        span along the x axis can be selected.

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
    return Brush(
        html=f'<div class="memlab-chart"><style>{STYLE_SHEET}</style>{svg}</div>',
        title=chart.title,
        marks=list(row_places),
        layouts={"narrow": _boxes_of(narrow, row_places), "wide": _boxes_of(chart, row_places)},
    )


def _boxes_of(chart: Chart, row_places: Mapping[str, float]) -> dict[str, list[float]]:
    """Return the boxes of the axes and of rows by name; the box of the axes is named "axes".

    A box is a list of left, top, width and height, as fractions of the drawn figure from its upper
    left corner.
    """
    ax = chart.axes[0]
    position = ax.get_position()  # from the lower left corner
    boxes = {"axes": [position.x0, 1 - position.y1, position.width, position.height]}
    bottom, top = ax.get_ylim()
    height_per_unit = position.height / abs(top - bottom)
    row_height = _ROW_HEIGHT * height_per_unit
    for name, place in row_places.items():
        above_bottom = position.height * (place - bottom) / (top - bottom)
        middle = 1 - (position.y0 + above_bottom)
        boxes[name] = [position.x0, middle - row_height / 2, position.width, row_height]
    return {name: [round(float(number), 4) for number in box] for name, box in boxes.items()}


_ROW_HEIGHT: Final = 0.9
"""Height of the box of a row; rows have a distance of 1."""
