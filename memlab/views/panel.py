"""The sizing panel: move a cap, a target or a token budget, and see what it serves and costs."""

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
from memlab.evidence.past import present_rows
from memlab.evidence.references import with_references
from memlab.evidence.usage import AgeOrUse, age_or_use
from memlab.lazy import import_extra
from memlab.settings import NOTHING, NUMBERS, SIZED, Sized
from memlab.sizing import Advice, Sizing, Verdict, advise, prepare_sizing
from memlab.sizing.goal import SizingGoal
from memlab.sources.opening import SourceLike, open_source, remember, settings_of
from memlab.text import command, counted, for_terminal

LISTED: Final = 20
"""Memories that are shown of those that would go: the costliest."""

ANY_STORE: Final = "STORE"
"""Stands in commands for a store whose file is not known."""

Mark = Callable[..., None]
Plot = Callable[..., Axes]


class Picture:
    """A chart drawn once, and a copy of it with the marks of the moment."""

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
        """Return the chart with these marks."""
        self._canvas.restore_region(self._drawn)  # type: ignore[no-untyped-call]
        before = set(self._axes.get_children())
        self._mark(self._axes, self._curve, advice=advice, cap=cap)
        marks = [artist for artist in self._axes.get_children() if artist not in before]
        for artist in sorted(marks, key=lambda artist: artist.get_zorder()):
            self._axes.draw_artist(artist)
            artist.remove()
        buffer = BytesIO()
        pixels = self._canvas.buffer_rgba()  # type: ignore[no-untyped-call]
        imsave(buffer, pixels, format="png")
        return buffer.getvalue()


class SizingPanel:
    """Controls, pictures and numbers for choosing a cap, and a button that remembers it.

    Shows itself as the last expression of a notebook's cell. Every control takes the keyboard, and
    setting its ``value`` is the same as moving it.

    Attributes
    ----------
    slider, keep_recent
        The cap: in steps that people ask for, and a box with the exact one.
    target, token_budget
        A slider with the share of references to serve, and a box; None is no budget.
    use_recommended, copy, save
        Buttons: the recommended cap, copy the command, write the choice into ``memlab.toml``.
    curve_picture, trade_off_picture, numbers, recommendation, command, going, saved
        What is shown.
    widget
        All of it together.
    advice : Advice
        What is recommended for the target and the budget.
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
        self.target.observe(self._question_changed, names="value")
        self.token_budget.observe(self._question_changed, names="value")
        self.use_recommended.on_click(self._recommended_asked)
        self.save.on_click(self._save_asked)

    @property
    def cap(self) -> int:
        """The cap that is looked at."""
        return int(self.keep_recent.value or 0)

    @property
    def text(self) -> str:
        """What the panel says, as plain text."""
        lines = [f"{name}: {value}" for name, value in self._facts().items()]
        return "\n".join([*lines, *self._advice_lines(), self.command_line or self.against])

    @property
    def command_line(self) -> str:
        """The command that shows what the cap would delete; empty where all speaks against it."""
        return "" if self.against else command("compact", self._store, "--keep-recent", self.cap)

    @property
    def against(self) -> str:
        """Say what speaks against carrying the cap out; empty where nothing does."""
        cap = self.cap
        budget = self.token_budget.value
        if self.advice.verdict in (Verdict.FLOOR_EXCEEDS_BUDGET, Verdict.HISTORY_INCOMPLETE):
            return f"no command: {self.advice.verdict.meaning}"
        if cap >= self._sizing.present.prunable:
            return "no command: that cap deletes nothing today"
        if budget is not None and cap > (self.advice.budget_cap or 0):
            when = "" if self._sizing.present.recalled else " at start"
            return f"no command: that cap takes more than {counted(budget, 'tokens')}{when}"
        return ""

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Show the widget; where there is none to see, the text."""
        bundle: dict[str, Any] = self.widget._repr_mimebundle_(**options)
        return bundle | {"text/plain": self.text}

    def _make_widgets(self, target: float, token_budget: int | None) -> None:
        widgets = import_extra("ipywidgets", extra="lab")
        import_extra("anywidget", extra="lab")
        from memlab.views.controls import CopyButton, NumberBox, Slider

        most = max(1, self._sizing.present.prunable)
        cap = min(most, most if self.advice.keep_recent is None else self.advice.keep_recent)
        steps = sorted({*cap_steps(most), cap})
        texts = [f"{step:,}" for step in steps]
        self.slider = Slider(name="keep_recent", values=steps, texts=texts, value=cap)
        self.keep_recent = NumberBox(name="exactly", most=most, value=cap)
        targets = sorted({round(0.01 * percent, 2) for percent in range(50, 100)} | {target})
        texts = [f"{100 * each:.4g}%" for each in targets]
        self.target = Slider(name="target", values=targets, texts=texts, value=target)
        budget: Any = {"nothing": "no budget", "least": 1, "value": token_budget}
        self.token_budget = NumberBox(name="token budget", **budget)
        auto = widgets.Layout(width="auto")
        self.use_recommended = widgets.Button(description="Use the recommended cap", layout=auto)
        picture = widgets.Layout(width="540px", max_width="100%")
        self.curve_picture, self.trade_off_picture = (widgets.HTML(layout=picture) for _ in "12")
        self.numbers, self.recommendation, self.command = (widgets.HTML() for _ in range(3))
        self.going = widgets.HTML()
        self.saved = widgets.HTML()
        self.copy = CopyButton()
        self.save = widgets.Button(description="Save the choice", layout=auto)
        buttons = widgets.HBox([self.copy, self.save])
        words = widgets.VBox(
            [self.numbers, self.recommendation, self.command, buttons, self.saved],
            layout=widgets.Layout(flex="1 1 20em", min_width="0", padding="0 0 0 1em"),
        )
        row = widgets.Layout(flex_flow="row wrap", align_items="center")
        self.widget = widgets.VBox(
            [
                widgets.HBox([self.slider, self.keep_recent, self.use_recommended], layout=row),
                widgets.HBox([self.target, self.token_budget], layout=row),
                widgets.HBox([self.curve_picture, words, self.trade_off_picture], layout=row),
                self.going,
            ]
        )
        self.widget.add_class("memlab-sizing")

    def _slider_moved(self, change: Any) -> None:
        if self.cap != change["new"]:
            self.keep_recent.value = change["new"]

    def _cap_changed(self, change: Any) -> None:
        if change["new"] is None:
            self.keep_recent.value = change["old"]
            return
        self.slider.stand_at(change["new"])
        self._show()

    def _question_changed(self, _: Any) -> None:
        self.advice = advise(
            self._sizing, target=self.target.value, token_budget=self.token_budget.value
        )
        self._show()

    def _recommended_asked(self, _: Any) -> None:
        if self.advice.keep_recent is not None:
            self.keep_recent.value = self.advice.keep_recent

    def _save_asked(self, _: Any) -> None:
        """Remember the cap, target and budget; a recommended cap with until when it speaks."""
        cap = self.cap
        advice = self.advice
        policy: dict[str, Any] = {"name": "recent", NUMBERS["recent"]: cap}
        if cap == advice.keep_recent:
            at = now_utc().replace(microsecond=0)
            policy[SIZED] = Sized(at, advice.memories, advice.until).to_setting()
        chosen = {"target": advice.target, "token_budget": advice.token_budget}
        kept = {name: value for name, value in chosen.items() if value is not None}
        try:
            file = remember(open_source(self._store), {"policy": policy, **kept})
            said = f"keep_recent = {cap:,} is remembered in {file}"
        except MemlabError as error:
            said = str(error)
        self.saved.value = f"<p>{html.escape(said)}</p>"

    def _show(self) -> None:
        cap = self.cap
        places = self.curve_picture, self.trade_off_picture
        for shown, picture in zip(places, self._pictures, strict=True):
            png = b64encode(picture.png(advice=self.advice, cap=cap)).decode()
            alt = html.escape(self._alt(picture))
            shown.value = f'<img alt="{alt}" src="data:image/png;base64,{png}">'
        self.use_recommended.disabled = self.advice.keep_recent is None
        self.numbers.value = _table(self._facts().items())
        self.recommendation.value = "".join(
            f"<p>{html.escape(line)}</p>" for line in self._advice_lines()
        )
        self.going.value = self._going()
        self.saved.value = ""
        self.copy.text = self.command_line
        self.save.disabled = bool(self.against) or self._store == ANY_STORE
        offered = html.escape(self.command_line)
        against = html.escape(self.against)
        self.command.value = f"<pre>{offered}</pre>" if offered else f"<p>{against}</p>"

    def _going(self) -> str:
        """Return a table of the costliest memories that the cap would let go."""
        going = self._prunable.iloc[: max(0, len(self._prunable) - self.cap)]
        if going.empty:
            return ""
        costliest = going.nlargest(LISTED, c.TOKENS)[[c.MEMORY_ID, c.TOKENS, c.TITLE]]
        rows = _table(
            (for_terminal(key), f"{tokens:,}", for_terminal(title))
            for key, tokens, title in costliest.itertuples(index=False)
        )
        title = f"{counted(len(going), 'memories')} would go; the costliest, in tokens:"
        return f'<p>{title}</p><div class="going">{rows}</div>'

    def _alt(self, picture: Picture) -> str:
        facts = self._facts()
        said = [
            picture.title,
            f"keep_recent = {facts['keep_recent']} serves {facts['references served']}",
            f"over the history {facts['over the history']}",
            f"target {100 * self.advice.target:.4g}%",
            self.advice.numbers,
        ]
        return "; ".join(part for part in said if part)

    def _facts(self) -> dict[str, str]:
        present = self._sizing.present
        row = self._sizing.at([self.cap]).iloc[0]
        known = dict(row, tokens=present.tokens, prunable=present.prunable)
        facts = {"keep_recent": f"{self.cap:,}"}
        for name, words in (_SAID_RECALLED if present.recalled else _SAID).items():
            if not pd.isna(row["served_own"]) or name not in {"this store alone", "in the past"}:
                facts[name] = words.format(**known)
        return facts

    def _advice_lines(self) -> list[str]:
        """Say what is recommended, and the first thing that would change it."""
        advice = self.advice
        usage = self._usage
        title = str(advice).partition("\n")[0]
        lines = [f"For a target of {100 * advice.target:.4g}%: {title}", advice.evidence]
        lines += filter(None, [advice.track_record])
        lines += [usage.answer] if usage is not None and usage.decided else []
        return [*lines, *advice.would_change[:1]]


def explore(
    source: SourceLike | pd.DataFrame,
    references: pd.DataFrame | None = None,
    *,
    target: float | None = None,
    token_budget: int | None = None,
    until: float | None = None,
) -> SizingPanel:
    """Open the sizing panel: sliders for the cap and the target, a box for the token budget.

    Moving one updates the pictures, the numbers, what would go and the command to run. Nothing is
    written before the choice is saved.

    Parameters
    ----------
    source : path, URL, SqliteMemoryStore, Source or DataFrame
        A store, or the frame that ``memlab.load`` or ``memlab.load_past`` returned.
    references : DataFrame, optional
        What ``find_references`` returns; found in the frame, and in the access logs that
        ``memlab.toml`` remembers, when not given.
    target : float, optional
        Share of references to serve at first, from 0.5 to 0.99; by default as remembered, else 0.9.
    token_budget, until
        As for :func:`memlab.recommend_cap`; by default the remembered ones.
    """
    settings = NOTHING
    if not isinstance(source, pd.DataFrame):
        settings = settings_of(open_source(source))
    asked = SizingGoal.of(settings, token_budget=token_budget, until=until)
    if target is None:
        target = min(max(asked.target, 0.5), 0.99)  # as far as the slider goes
    if not 0.5 <= arguments.share("target", target) <= 0.99:
        raise ValueError(f"target must lie between 0.5 and 0.99, not {target!r}")
    store = fspath(source) if isinstance(source, str | PathLike) else ANY_STORE
    past, references = with_references(source, references, call="memlab.explore")
    return SizingPanel(
        prepare_sizing(past, references, confidence=asked.confidence, until=asked.until),
        past,
        store=store,
        target=target,
        token_budget=asked.token_budget,
        usage=age_or_use(past, references, confidence=asked.confidence),
    )


def cap_steps(most: int) -> list[int]:
    """Return caps from 0 to `most` that people ask for: every one to 100, then two digits.

    >>> cap_steps(125)[-5:]
    [99, 100, 110, 120, 125]
    """
    caps = {digits * 10**zeros for zeros in range(10) for digits in range(10, 100)}
    return sorted(cap for cap in caps | set(range(10)) | {most} if cap <= most)


_SAID: Final = {
    "references served": "{served:.1%} (limits {low:.1%} to {high:.1%})",
    "other projects alone": "{served_elsewhere:.1%}",
    "this store alone": "{served_own:.1%}",
    "in the past": "{served_observed:.1%}",
    "boot context": (
        "{boot_memories:,.0f} memories, {boot_tokens:,.0f} tokens under that cap, {tokens:,} now"
    ),
    "over the history": "{boot_tokens_p95:,.0f} tokens in 95% of starts at most",
    "prunable share": "{prunable_share:.1%} of memories, {prunable_share_tokens:.1%} of tokens",
    "would go now": "{pruned:,.0f} of {prunable:,} prunable memories",
    "memory kept": "{days:,.1f} days",
}
"""What is said of a cap, by the columns of a curve."""
_SAID_RECALLED: Final = {
    name.replace("boot context", "to recall from"): words.replace("starts", "moments")
    for name, words in _SAID.items()
}


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
