"""The sizing panel: a widget that shows what a cap serves and costs."""

import html
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from io import BytesIO
from os import PathLike, fspath
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imsave

from memlab import arguments
from memlab import columns as c
from memlab.charts import mark_cap_curve, mark_trade_off, plot_cap_curve, plot_trade_off
from memlab.charts.figure import Chart
from memlab.clock import now_utc
from memlab.errors import MemlabError
from memlab.evidence.past import HistoryLike, present_rows, source_of
from memlab.evidence.store_history import with_references
from memlab.evidence.usage import AgeOrUse, age_or_use
from memlab.growth.context import CONTEXT_WINDOW
from memlab.lazy import import_extra
from memlab.settings import NO_SETTINGS, Sized
from memlab.sizing import Advice, Sizing, Verdict, advise, prepare_sizing
from memlab.sizing.goal import SizingGoal
from memlab.sizing.number_kinds import CAP
from memlab.sizing.saving import save_number
from memlab.sources.opening import open_source, save_store_settings, settings_of
from memlab.text import command, counted, for_terminal, percent, percent_as_given

LISTED: Final = 20
"""Maximum number of memories in the list of memories that a cap deletes."""

ANY_STORE: Final = "STORE"
"""Name of a store whose memories were given as a frame: no command can read them."""

Mark = Callable[..., None]
"""A function that draws marks on the axes of a chart."""
Plot = Callable[..., Axes]
"""A function that draws the chart of a curve, and returns its axes."""


class Picture:
    """A chart that is drawn once. Its pixels are reused whenever its marks change.

    Parameters
    ----------
    plot : callable
        Draws the chart of a curve without marks, if it is called with ``bare=True``.
    mark : callable
        Draws the marks on its axes.
    curve : DataFrame
        The curve from :func:`memlab.sizing.cap_curve`.
    """

    def __init__(self, plot: Plot, mark: Mark, curve: pd.DataFrame) -> None:
        figure = Chart(partial(plot, curve, bare=True), width=5.4)
        self._canvas = FigureCanvasAgg(figure)
        self._axes = figure.axes[0]
        self._mark = mark
        self._curve = curve
        self.title = figure.title
        self._canvas.draw()  # type: ignore[no-untyped-call]
        figure.set_layout_engine("none")
        self._pixels_without_marks = self._canvas.copy_from_bbox(figure.bbox)  # type: ignore[no-untyped-call]

    def png(self, *, advice: Advice, cap: int) -> bytes:
        """Return the chart with its marks as a PNG file."""
        self._canvas.restore_region(self._pixels_without_marks)  # type: ignore[no-untyped-call]
        artists_before = set(self._axes.get_children())
        self._mark(self._axes, self._curve, advice=advice, cap=cap)
        marks = [artist for artist in self._axes.get_children() if artist not in artists_before]
        marks.sort(key=lambda artist: artist.get_zorder())
        for artist in marks:
            self._axes.draw_artist(artist)
            artist.remove()
        buffer = BytesIO()
        pixels = self._canvas.buffer_rgba()  # type: ignore[no-untyped-call]
        imsave(buffer, pixels, format="png")
        return buffer.getvalue()


class SizingPanel:
    """Controls, charts and numbers for choosing a cap, and a button that saves the choice.

    The panel is displayed as the last expression of a cell. Every control can be used with the
    keyboard. Setting the ``value`` of a control has the same effect as moving it.

    Attributes
    ----------
    slider, keep_recent
        A slider over round caps, and a box for the exact cap.
    target, token_budget
        A slider for the share of references to serve, and a box for the token budget. The box has
        the value None if there is no budget.
    use_recommended, copy, save
        Buttons that select the recommended cap, copy the command, and write the choice into
        ``memlab.toml``.
    curve_picture, trade_off_picture, numbers, recommendation, command, deleted_memories, saved
        The widgets with the output.
    widget
        The widget that contains all others.
    advice : Advice
        The recommendation for the target and the budget.

    Examples
    --------
    >>> import memlab
    >>> panel = memlab.explore(memlab.store_path("two_years"), target=0.8)
    >>> panel.advice.target
    0.8
    """

    def __init__(  # noqa: PLR0913 - the parts of the goal are separate controls
        self,
        sizing: Sizing,
        past: pd.DataFrame,
        *,
        store: str,
        target: float,
        token_budget: int | None,
        context_window: int = CONTEXT_WINDOW,
        usage: AgeOrUse | None = None,
    ) -> None:
        self._sizing = sizing
        self._context_window = context_window
        self._store = store
        self._usage = usage
        present = present_rows(past)
        self._prunable = present[present[c.PRUNABLE]]
        self.advice = self._advice_for(target, token_budget)
        self._pictures = [
            Picture(plot_cap_curve, mark_cap_curve, sizing.curve),
            Picture(plot_trade_off, mark_trade_off, sizing.curve),
        ]
        self._make_widgets(target, token_budget)
        self._show()
        self.slider.observe(self._slider_moved, names="value")
        self.keep_recent.observe(self._cap_changed, names="value")
        self.target.observe(self._goal_changed, names="value")
        self.token_budget.observe(self._goal_changed, names="value")
        self.use_recommended.on_click(self._recommended_clicked)
        self.save.on_click(self._save_clicked)

    @property
    def cap(self) -> int:
        """The selected cap."""
        return int(self.keep_recent.value or 0)

    @property
    def text(self) -> str:
        """The content of the panel as plain text."""
        facts = [f"{name}: {value}" for name, value in self._facts().items()]
        last_line = self.command_line or self.no_command_reason
        return "\n".join([*facts, *self._advice_lines(), last_line])

    @property
    def command_line(self) -> str:
        """The command that shows what the cap would delete; empty if there is no such command."""
        if self.no_command_reason:
            return ""
        return command("compact", self._store, "--keep-recent", self.cap)

    @property
    def no_command_reason(self) -> str:
        """The reason why there is no command for the cap; empty if there is one."""
        cap = self.cap
        budget = self.token_budget.value
        present = self._sizing.present
        if self.advice.verdict in (Verdict.FLOOR_EXCEEDS_BUDGET, Verdict.HISTORY_INCOMPLETE):
            return f"no command: {self.advice.verdict.meaning}"
        if cap >= present.prunable:
            return "no command: that cap deletes nothing today"
        largest_in_budget = self.advice.budget_cap or 0
        if budget is not None and cap > largest_in_budget:
            return f"no command: {self._over_budget(cap, budget)}"
        if self._store == ANY_STORE:
            return "no command: these memories are a frame; memlab.explore(STORE) shows the command"
        return ""

    def _over_budget(self, cap: int, budget: int) -> str:
        """Say whether a cap exceeds the token budget today, or only at past starts."""
        tokens = counted(budget, "tokens")
        is_recalled = self._sizing.present.recalled
        if self._sizing.tokens_at(cap) > budget:
            at_start = "" if is_recalled else " at start"
            return f"that cap takes more than {tokens}{at_start}"
        moments = "moments" if is_recalled else "starts"
        return f"that cap fits today, but over 5% of past {moments} would have taken more"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Return the widget, and its text and tables for pages that cannot show widgets."""
        bundle: dict[str, Any] = self.widget._repr_mimebundle_(**options)
        bundle["text/plain"] = self.text
        bundle["text/html"] = self._page()
        return bundle

    def _page(self) -> str:
        """Return the content of the panel as HTML without scripts and pictures."""
        content = [
            _table_in_html(self._facts().items()),
            self._advice_in_html(),
            self._command_in_html(),
            self._deleted_in_html(),
        ]
        return f"<div>{''.join(content)}</div>"

    def _command_in_html(self) -> str:
        """Return the command as HTML, or the reason why there is none.

        An option is in a span, which the style sheet keeps on one line.
        """
        if not self.command_line:
            return f"<p>{html.escape(self.no_command_reason)}</p>"
        parts = html.escape(self.command_line).split(" ")
        spans = [f"<span>{word}</span>" if word.startswith("-") else word for word in parts]
        return f"<pre>{' '.join(spans)}</pre>"

    def _advice_in_html(self) -> str:
        """Return the recommendation as HTML, with a paragraph for each line."""
        return "".join(f"<p>{html.escape(line)}</p>" for line in self._advice_lines())

    def _make_widgets(self, target: float, token_budget: int | None) -> None:
        """Create the controls and the widgets for the output, and arrange them."""
        self._make_controls(target, token_budget)
        self._make_outputs()
        self._arrange_widgets()

    def _make_controls(self, target: float, token_budget: int | None) -> None:
        """Create the sliders, the boxes and the buttons."""
        widgets = import_extra("ipywidgets", extra="lab")
        import_extra("anywidget", extra="lab")
        from memlab.views.controls import CopyButton, NumberBox, Slider

        largest_cap = max(1, self._sizing.present.prunable)
        cap = largest_cap
        if self.advice.keep_recent is not None:
            cap = min(largest_cap, self.advice.keep_recent)
        caps = sorted({*cap_steps(largest_cap), cap})
        caps_in_words = [f"{number:,}" for number in caps]
        self.slider = Slider(name="keep_recent", values=caps, texts=caps_in_words, value=cap)
        self.keep_recent = NumberBox(name="exactly", maximum=largest_cap, value=cap)
        whole_percents = {round(0.01 * percent, 2) for percent in range(50, 100)}
        targets = sorted(whole_percents | {target})
        targets_in_words = [percent_as_given(share) for share in targets]
        self.target = Slider(name="target", values=targets, texts=targets_in_words, value=target)
        self.token_budget = NumberBox(
            name="token budget", nothing="no budget", minimum=1, value=token_budget
        )
        auto = widgets.Layout(width="auto")
        self.use_recommended = widgets.Button(description="Use the recommended cap", layout=auto)
        self.copy = CopyButton()
        self.save = widgets.Button(description="Save the choice", layout=auto)

    def _make_outputs(self) -> None:
        """Create the widgets for the charts, the numbers, the command and the list."""
        widgets = import_extra("ipywidgets", extra="lab")
        picture = widgets.Layout(width="540px", max_width="100%")
        self.curve_picture = widgets.HTML(layout=picture)
        self.trade_off_picture = widgets.HTML(layout=picture)
        self.numbers = widgets.HTML()
        self.recommendation = widgets.HTML()
        self.command = widgets.HTML()
        self.deleted_memories = widgets.HTML()
        self.saved = widgets.HTML()

    def _arrange_widgets(self) -> None:
        """Put all widgets into one: two rows of controls, a row of output, and the list."""
        widgets = import_extra("ipywidgets", extra="lab")
        buttons = widgets.HBox([self.copy, self.save])
        texts = widgets.VBox(
            [self.numbers, self.recommendation, self.command, buttons, self.saved],
            layout=widgets.Layout(flex="1 1 20em", min_width="0", padding="0 0 0 1em"),
        )
        row = widgets.Layout(flex_flow="row wrap", align_items="center")
        from_top = widgets.Layout(flex_flow="row wrap", align_items="flex-start")
        self.widget = widgets.VBox(
            [
                widgets.HBox([self.slider, self.keep_recent, self.use_recommended], layout=row),
                widgets.HBox([self.target, self.token_budget], layout=row),
                widgets.HBox([self.curve_picture, texts, self.trade_off_picture], layout=from_top),
                self.deleted_memories,
            ]
        )
        self.widget.add_class("memlab-sizing")

    def _slider_moved(self, change: Any) -> None:
        """Set the box to the slider's cap."""
        if self.cap != change["new"]:
            self.keep_recent.value = change["new"]

    def _cap_changed(self, change: Any) -> None:
        """Move the slider to the cap of the box, and show that cap.

        A box that was emptied gets its former cap back.
        """
        if change["new"] is None:
            self.keep_recent.value = change["old"]
            return
        self.slider.select(change["new"])
        self._show()

    def _goal_changed(self, _: Any) -> None:
        """Compute the recommendation for the new target or budget, and show it."""
        self.advice = self._advice_for(self.target.value, self.token_budget.value)
        self._show()

    def _advice_for(self, target: float, token_budget: int | None) -> Advice:
        """Return the recommendation for a goal, with the store's name for commands."""
        advice = advise(self._sizing, target=target, token_budget=token_budget)
        advice = replace(advice, context_window=self._context_window)
        return advice if self._store == ANY_STORE else replace(advice, store=self._store)

    def _recommended_clicked(self, _: Any) -> None:
        """Select the recommended cap."""
        if self.advice.keep_recent is not None:
            self.keep_recent.value = self.advice.keep_recent

    def _save_clicked(self, _: Any) -> None:
        """Save the cap, the target and the budget. A recommended cap is saved with its horizon."""
        cap = self.cap
        advice = self.advice
        policy = CAP.policy_with(cap)
        goal: dict[str, Any] = {"target": advice.target}
        if advice.token_budget is not None:
            goal["token_budget"] = advice.token_budget
        try:
            source = open_source(self._store)
            if cap == advice.keep_recent:
                sized = Sized(now_utc().replace(microsecond=0), advice.memories, advice.until)
                saved = save_number(source, policy, sized, goal)
                message = f"keep_recent = {cap:,} is saved in {saved.file} ({saved.validity})"
            else:
                file = save_store_settings(source, {"policy": policy, **goal})
                message = f"keep_recent = {cap:,} is saved in {file}"
        except MemlabError as error:
            message = str(error)
        self.saved.value = f"<p>{html.escape(message)}</p>"

    def _show(self) -> None:
        """Update the output for the selected cap and the recommendation."""
        curve_picture, trade_off_picture = self._pictures
        self.curve_picture.value = self._picture_in_html(curve_picture)
        self.trade_off_picture.value = self._picture_in_html(trade_off_picture)
        self.use_recommended.disabled = self.advice.keep_recent is None
        self.numbers.value = _table_in_html(self._facts().items())
        self.recommendation.value = self._advice_in_html()
        self.deleted_memories.value = self._deleted_in_html()
        self.saved.value = ""
        self.copy.text = self.command_line
        self.save.disabled = bool(self.no_command_reason)
        self.command.value = self._command_in_html()

    def _deleted_in_html(self) -> str:
        """Return an HTML table of the costliest memories that the cap deletes."""
        deleted = self._prunable.iloc[: max(0, len(self._prunable) - self.cap)]  # the oldest
        if deleted.empty:
            return ""
        costliest = deleted.nlargest(LISTED, c.TOKENS)[[c.MEMORY_ID, c.TOKENS, c.TITLE]]
        rows = [
            (for_terminal(memory_id), f"{tokens:,}", for_terminal(title))
            for memory_id, tokens, title in costliest.itertuples(index=False)
        ]
        caption = f"{counted(len(deleted), 'memories')} would go; the costliest, in tokens:"
        return f'<p>{caption}</p><div class="deleted">{_table_in_html(rows)}</div>'

    def _picture_in_html(self, picture: Picture) -> str:
        """Return a picture for the selected cap as an HTML image with a text alternative."""
        png = b64encode(picture.png(advice=self.advice, cap=self.cap)).decode()
        alt = html.escape(self._alt(picture))
        return f'<img alt="{alt}" src="data:image/png;base64,{png}">'

    def _alt(self, picture: Picture) -> str:
        """Return the text alternative of a picture."""
        facts = self._facts()
        phrases = [
            picture.title,
            f"keep_recent = {facts['keep_recent']} serves {facts['references served']}",
            f"over the history {facts['over the history']}",
            f"target {percent_as_given(self.advice.target)}",
            self.advice.numbers,
        ]
        return "; ".join(phrase for phrase in phrases if phrase)

    def _facts(self) -> dict[str, str]:
        """Return the figures of the selected cap by name."""
        present = self._sizing.present
        row = self._sizing.at([self.cap]).iloc[0]
        values = dict(row, tokens=present.tokens_loaded, prunable=present.prunable)
        for name in _SHARES:
            values[name] = percent(row[name])
        has_own_references = not pd.isna(row["served_own"])
        formats = _FORMATS_RECALLED if present.recalled else _FORMATS
        facts = {"keep_recent": f"{self.cap:,}"}
        for name, format_of_fact in formats.items():
            if has_own_references or name not in _OWN_FACTS:
                facts[name] = format_of_fact.format(**values)
        return facts

    def _advice_lines(self) -> list[str]:
        """Return the recommendation, its evidence, and the first thing that would change it."""
        advice = self.advice
        lines = [
            advice.answer,
            f"verdict: {advice.verdict_in_words}",
            f"evidence: {advice.evidence}",
        ]
        if advice.track_record:
            lines.append(f"record: {advice.track_record}")
        lines.append(f"target: {advice.target_in_words}")
        if advice.keep_recent is not None and self.cap != advice.keep_recent:
            recommended = f"these lines are about the recommended cap, {advice.keep_recent:,}"
            lines.append(f"{recommended}; the figures and the command, about {self.cap:,}")
        if self._usage is not None and self._usage.decided:
            lines.append(self._usage.answer)
        return [*lines, *advice.would_change[:1]]


def explore(
    source: HistoryLike,
    references: pd.DataFrame | None = None,
    *,
    target: float | None = None,
    token_budget: int | None = None,
    until: float | None = None,
) -> SizingPanel:
    """Return the sizing panel, which shows what a cap serves, costs and deletes.

    The panel has sliders for the cap and the target, and a box for the token budget.

    Moving a control updates the charts, the numbers, the list of deleted memories and the command.
    The panel writes only if its button Save is pressed.

    Parameters
    ----------
    source : path, URL, SqliteMemoryStore, Source or DataFrame
        A store, or the frame that ``memlab.load`` or ``memlab.load_past`` returned.
    references : DataFrame, optional
        The result of ``find_references``; by default the references in the store and in the access
        logs that ``memlab.toml`` names.
    target : float, optional
        Initial share of references to serve, from 0.5 to 0.99; by default that of ``memlab.toml``,
        else 0.9.
    token_budget, until
        As for :func:`memlab.recommend_cap`; by default those of ``memlab.toml``.

    Returns
    -------
    SizingPanel
        The panel, which a notebook displays.

    Raises
    ------
    ValueError
        If the target is outside its limits.
    MemlabError
        If the store cannot be read, or the extra ``lab`` is not installed.

    Examples
    --------
    >>> import memlab
    >>> panel = memlab.explore(memlab.store_path("two_years"))
    >>> panel.keep_recent.value = 100
    >>> panel.cap
    100
    """
    settings = NO_SETTINGS
    opened = source_of(source)
    if opened is not None:
        settings = settings_of(opened)
    goal = SizingGoal.of(settings, token_budget=token_budget, until=until)
    if target is None:
        target = min(max(goal.target, _MIN_TARGET), _MAX_TARGET)
    if not _MIN_TARGET <= arguments.share("target", target) <= _MAX_TARGET:
        raise ValueError(f"target must lie between 0.5 and 0.99, not {target!r}")
    store = fspath(source) if isinstance(source, str | PathLike) else ANY_STORE
    past, references = with_references(source, references, call="memlab.explore")
    return SizingPanel(
        prepare_sizing(past, references, confidence=goal.confidence, until=goal.until),
        past,
        store=store,
        target=target,
        token_budget=goal.token_budget,
        context_window=goal.context_window,
        usage=age_or_use(past, references, confidence=goal.confidence),
    )


def cap_steps(largest: int) -> list[int]:
    """Return round caps from 0 to `largest`.

    These are all numbers up to 100, larger ones with two digits before the zeros, and `largest`.

    >>> cap_steps(125)[-5:]
    [99, 100, 110, 120, 125]
    """
    caps = {largest, *range(10)}
    for zeros in range(10):
        caps.update(digits * 10**zeros for digits in range(10, 100))
    return sorted(cap for cap in caps if cap <= largest)


_MIN_TARGET: Final = 0.5
"""Lower limit of the slider for the target."""
_MAX_TARGET: Final = 0.99
"""Upper limit of the slider for the target."""
_SHARES: Final = (
    "served",
    "low",
    "high",
    "served_elsewhere",
    "served_own",
    "served_observed",
    "prunable_share",
    "prunable_share_tokens",
)
"""Columns of a curve that are printed in percent."""
_FORMATS: Final = {
    "references served": "{served} (limits {low} to {high})",
    "other projects alone": "{served_elsewhere}",
    "this store alone": "{served_own}",
    "in the past": "{served_observed}",
    "a start": (
        "{boot_memories:,.0f} memories, {boot_tokens:,.0f} tokens under that cap, {tokens:,} now"
    ),
    "over the history": "{boot_tokens_p95:,.0f} tokens in 95% of starts at most",
    "prunable share": "{prunable_share} of memories, {prunable_share_tokens} of tokens",
    "would go now": "{pruned:,.0f} of {prunable:,} prunable memories",
    "memory kept": "{days:,.1f} days",
}
"""Formats of the figures of a cap, by their names. The fields are the columns of a curve."""
_FORMATS_RECALLED: Final = {
    name.replace("a start", "to recall from"): format_of_fact.replace("starts", "moments")
    for name, format_of_fact in _FORMATS.items()
}
"""Formats for a store whose memories are searched, not loaded."""
_OWN_FACTS: Final = {"this store alone", "in the past"}
"""Figures that need references of the store itself."""


def _table_in_html(rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as an HTML table."""
    lines = []
    for row in rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"
