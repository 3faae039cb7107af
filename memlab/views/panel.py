"""The sizing panel: a widget that shows what a cap serves and costs."""

import html
from base64 import b64encode
from collections.abc import Callable, Iterable
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
from memlab.lazy import import_extra
from memlab.settings import NO_SETTINGS, NUMBERS, SIZED, Sized
from memlab.sizing import Advice, Sizing, Verdict, advise, prepare_sizing
from memlab.sizing.goal import SizingGoal
from memlab.sources.opening import open_source, remember, settings_of
from memlab.text import command, counted, for_terminal

LISTED: Final = 20
"""Number of memories in the list of those that a cap deletes; the costliest come first."""

ANY_STORE: Final = "STORE"
"""Name of a store whose memories were given as a frame: no command can read them."""

Mark = Callable[..., None]
Plot = Callable[..., Axes]


class Picture:
    """A chart that is drawn once, and copied for each change of its marks.

    Parameters
    ----------
    plot : callable
        Draws the chart of a curve without its marks.
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
        self._drawn = self._canvas.copy_from_bbox(figure.bbox)  # type: ignore[no-untyped-call]

    def png(self, *, advice: Advice, cap: int) -> bytes:
        """Return the chart with its marks as a PNG file."""
        self._canvas.restore_region(self._drawn)  # type: ignore[no-untyped-call]
        earlier_artists = set(self._axes.get_children())
        self._mark(self._axes, self._curve, advice=advice, cap=cap)
        marks = [artist for artist in self._axes.get_children() if artist not in earlier_artists]
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
        A slider for the share of references to serve, and a box for the budget; None is none.
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

    def __init__(
        self,
        sizing: Sizing,
        past: pd.DataFrame,
        *,
        store: str,
        target: float,
        token_budget: int | None,
        usage: AgeOrUse | None = None,
    ) -> None:
        self._sizing = sizing
        self._store = store
        self._usage = usage
        present = present_rows(past)
        self._prunable = present[present[c.PRUNABLE]]
        self.advice = advise(sizing, target=target, token_budget=token_budget)
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
        lines = [f"{name}: {value}" for name, value in self._facts().items()]
        return "\n".join(
            [*lines, *self._advice_lines(), self.command_line or self.no_command_reason]
        )

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
        if self.advice.verdict in (Verdict.FLOOR_EXCEEDS_BUDGET, Verdict.HISTORY_INCOMPLETE):
            return f"no command: {self.advice.verdict.meaning}"
        if cap >= self._sizing.present.prunable:
            return "no command: that cap deletes nothing today"
        if budget is not None and cap > (self.advice.budget_cap or 0):
            moment = "" if self._sizing.present.recalled else " at start"
            return f"no command: that cap takes more than {counted(budget, 'tokens')}{moment}"
        if self._store == ANY_STORE:
            return "no command: these memories are a frame; memlab.explore of the store has one"
        return ""

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Return the widget, and its text and tables for pages that cannot show widgets."""
        bundle: dict[str, Any] = self.widget._repr_mimebundle_(**options)
        return {**bundle, "text/plain": self.text, "text/html": self._page()}

    def _page(self) -> str:
        """Return the content of the panel as HTML without scripts and pictures."""
        numbers = _table(self._facts().items())
        command_line = self._command_in_html()
        return f"<div>{numbers}{self._advice_in_html()}{command_line}{self._deleted_table()}</div>"

    def _command_in_html(self) -> str:
        """Return the command as HTML whose options are not broken, or why there is none."""
        if not self.command_line:
            return f"<p>{html.escape(self.no_command_reason)}</p>"
        words = html.escape(self.command_line).split(" ")
        spans = (f"<span>{word}</span>" if word.startswith("-") else word for word in words)
        return f"<pre>{' '.join(spans)}</pre>"

    def _advice_in_html(self) -> str:
        """Return the recommendation as HTML, a paragraph a line."""
        return "".join(f"<p>{html.escape(line)}</p>" for line in self._advice_lines())

    def _make_widgets(self, target: float, token_budget: int | None) -> None:
        """Create the controls and the widgets for the output."""
        widgets = import_extra("ipywidgets", extra="lab")
        import_extra("anywidget", extra="lab")
        from memlab.views.controls import CopyButton, NumberBox, Slider

        largest = max(1, self._sizing.present.prunable)
        cap = largest
        if self.advice.keep_recent is not None:
            cap = min(largest, self.advice.keep_recent)
        steps = sorted({*cap_steps(largest), cap})
        texts = [f"{step:,}" for step in steps]
        self.slider = Slider(name="keep_recent", values=steps, texts=texts, value=cap)
        self.keep_recent = NumberBox(name="exactly", maximum=largest, value=cap)
        targets = sorted({round(0.01 * percent, 2) for percent in range(50, 100)} | {target})
        texts = [f"{100 * share:.4g}%" for share in targets]
        self.target = Slider(name="target", values=targets, texts=texts, value=target)
        self.token_budget = NumberBox(
            name="token budget", nothing="no budget", minimum=1, value=token_budget
        )
        auto = widgets.Layout(width="auto")
        self.use_recommended = widgets.Button(description="Use the recommended cap", layout=auto)
        picture = widgets.Layout(width="540px", max_width="100%")
        self.curve_picture = widgets.HTML(layout=picture)
        self.trade_off_picture = widgets.HTML(layout=picture)
        self.numbers = widgets.HTML()
        self.recommendation = widgets.HTML()
        self.command = widgets.HTML()
        self.deleted_memories = widgets.HTML()
        self.saved = widgets.HTML()
        self.copy = CopyButton()
        self.save = widgets.Button(description="Save the choice", layout=auto)
        buttons = widgets.HBox([self.copy, self.save])
        words = widgets.VBox(
            [self.numbers, self.recommendation, self.command, buttons, self.saved],
            layout=widgets.Layout(flex="1 1 20em", min_width="0", padding="0 0 0 1em"),
        )
        row = widgets.Layout(flex_flow="row wrap", align_items="center")
        from_top = widgets.Layout(flex_flow="row wrap", align_items="flex-start")
        self.widget = widgets.VBox(
            [
                widgets.HBox([self.slider, self.keep_recent, self.use_recommended], layout=row),
                widgets.HBox([self.target, self.token_budget], layout=row),
                widgets.HBox([self.curve_picture, words, self.trade_off_picture], layout=from_top),
                self.deleted_memories,
            ]
        )
        self.widget.add_class("memlab-sizing")

    def _slider_moved(self, change: Any) -> None:
        """Copy the slider's cap into the box."""
        if self.cap != change["new"]:
            self.keep_recent.value = change["new"]

    def _cap_changed(self, change: Any) -> None:
        """Move the slider to the cap of the box, and show the cap; an empty box is reset."""
        if change["new"] is None:
            self.keep_recent.value = change["old"]
            return
        self.slider.select(change["new"])
        self._show()

    def _goal_changed(self, _: Any) -> None:
        """Compute the recommendation for the new target or budget, and show it."""
        self.advice = advise(
            self._sizing, target=self.target.value, token_budget=self.token_budget.value
        )
        self._show()

    def _recommended_clicked(self, _: Any) -> None:
        """Select the recommended cap."""
        if self.advice.keep_recent is not None:
            self.keep_recent.value = self.advice.keep_recent

    def _save_clicked(self, _: Any) -> None:
        """Save the cap, the target and the budget; a recommended cap with its horizon."""
        cap = self.cap
        advice = self.advice
        policy: dict[str, Any] = {"name": "recent", NUMBERS["recent"]: cap}
        if cap == advice.keep_recent:
            at = now_utc().replace(microsecond=0)
            policy[SIZED] = Sized(at, advice.memories, advice.until).to_setting()
        settings: dict[str, Any] = {"policy": policy}
        if advice.target is not None:
            settings["target"] = advice.target
        if advice.token_budget is not None:
            settings["token_budget"] = advice.token_budget
        try:
            file = remember(open_source(self._store), settings)
            message = f"keep_recent = {cap:,} is saved in {file}"
        except MemlabError as error:
            message = str(error)
        self.saved.value = f"<p>{html.escape(message)}</p>"

    def _show(self) -> None:
        """Update the output for the selected cap and the recommendation."""
        cap = self.cap
        widgets = (self.curve_picture, self.trade_off_picture)
        for widget, picture in zip(widgets, self._pictures, strict=True):
            png = b64encode(picture.png(advice=self.advice, cap=cap)).decode()
            alt = html.escape(self._alt(picture))
            widget.value = f'<img alt="{alt}" src="data:image/png;base64,{png}">'
        self.use_recommended.disabled = self.advice.keep_recent is None
        self.numbers.value = _table(self._facts().items())
        self.recommendation.value = self._advice_in_html()
        self.deleted_memories.value = self._deleted_table()
        self.saved.value = ""
        self.copy.text = self.command_line
        self.save.disabled = bool(self.no_command_reason)
        self.command.value = self._command_in_html()

    def _deleted_table(self) -> str:
        """Return an HTML table of the costliest memories that the cap deletes."""
        beyond_cap = self._prunable.iloc[: max(0, len(self._prunable) - self.cap)]
        if beyond_cap.empty:
            return ""
        costliest = beyond_cap.nlargest(LISTED, c.TOKENS)[[c.MEMORY_ID, c.TOKENS, c.TITLE]]
        rows = _table(
            (for_terminal(key), f"{tokens:,}", for_terminal(title))
            for key, tokens, title in costliest.itertuples(index=False)
        )
        title = f"{counted(len(beyond_cap), 'memories')} would go; the costliest, in tokens:"
        return f'<p>{title}</p><div class="deleted">{rows}</div>'

    def _alt(self, picture: Picture) -> str:
        """Return the text alternative of a picture."""
        facts = self._facts()
        phrases = [
            picture.title,
            f"keep_recent = {facts['keep_recent']} serves {facts['references served']}",
            f"over the history {facts['over the history']}",
            f"target {100 * self.advice.target:.4g}%",
            self.advice.numbers,
        ]
        return "; ".join(phrase for phrase in phrases if phrase)

    def _facts(self) -> dict[str, str]:
        """Return the figures of the selected cap by name."""
        present = self._sizing.present
        row = self._sizing.at([self.cap]).iloc[0]
        values = dict(row, tokens=present.tokens_loaded, prunable=present.prunable)
        has_own_references = not pd.isna(row["served_own"])
        facts = {"keep_recent": f"{self.cap:,}"}
        for name, form in (_FACTS_RECALLED if present.recalled else _FACTS).items():
            if has_own_references or name not in _OWN_FACTS:
                facts[name] = form.format(**values)
        return facts

    def _advice_lines(self) -> list[str]:
        """Return the recommendation, its evidence, and the first thing that would change it."""
        advice = self.advice
        verdict = f"{advice.verdict}: {advice.verdict.meaning}"
        lines = [advice.answer, f"verdict: {verdict}", f"evidence: {advice.evidence}"]
        if advice.track_record:
            lines.append(f"record: {advice.track_record}")
        lines.append(f"target: {advice.target_in_words}")
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
    """Return the sizing panel: sliders for the cap and the target, and a box for the token budget.

    Moving a control updates the charts, the numbers, the list of deleted memories and the command.
    The panel writes only if its button Save is pressed.

    Parameters
    ----------
    source : path, URL, SqliteMemoryStore, Source or DataFrame
        A store, or the frame that ``memlab.load`` or ``memlab.load_past`` returned.
    references : DataFrame, optional
        The result of ``find_references``; by default those in the store, and those in the access
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
        target = min(max(goal.target, 0.5), 0.99)  # the limits of the slider
    if not 0.5 <= arguments.share("target", target) <= 0.99:
        raise ValueError(f"target must lie between 0.5 and 0.99, not {target!r}")
    store = fspath(source) if isinstance(source, str | PathLike) else ANY_STORE
    past, references = with_references(source, references, call="memlab.explore")
    return SizingPanel(
        prepare_sizing(past, references, confidence=goal.confidence, until=goal.until),
        past,
        store=store,
        target=target,
        token_budget=goal.token_budget,
        usage=age_or_use(past, references, confidence=goal.confidence),
    )


def cap_steps(largest: int) -> list[int]:
    """Return round caps from 0 to `largest`: all up to 100, then those with two digits.

    >>> cap_steps(125)[-5:]
    [99, 100, 110, 120, 125]
    """
    caps = {digits * 10**zeros for zeros in range(10) for digits in range(10, 100)}
    return sorted(cap for cap in caps | set(range(10)) | {largest} if cap <= largest)


_FACTS: Final = {
    "references served": "{served:.1%} (limits {low:.1%} to {high:.1%})",
    "other projects alone": "{served_elsewhere:.1%}",
    "this store alone": "{served_own:.1%}",
    "in the past": "{served_observed:.1%}",
    "a start": (
        "{boot_memories:,.0f} memories, {boot_tokens:,.0f} tokens under that cap, {tokens:,} now"
    ),
    "over the history": "{boot_tokens_p95:,.0f} tokens in 95% of starts at most",
    "prunable share": "{prunable_share:.1%} of memories, {prunable_share_tokens:.1%} of tokens",
    "would go now": "{pruned:,.0f} of {prunable:,} prunable memories",
    "memory kept": "{days:,.1f} days",
}
"""The figures of a cap by name, as formats of the columns of a curve."""
_FACTS_RECALLED: Final = {
    name.replace("a start", "to recall from"): form.replace("starts", "moments")
    for name, form in _FACTS.items()
}
"""The same for a store that is only searched."""
_OWN_FACTS: Final = {"this store alone", "in the past"}
"""Figures that need references of the store itself."""


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as an HTML table."""
    lines = []
    for row in rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"
