"""How every chart looks: headings, labels at the ends of lines, axes that tell the truth.

Nothing here touches ``rcParams`` or pyplot, so a chart looks the same wherever it is drawn and
leaves no trace in the reader's own figures. Text is never parsed as mathematics: a ``$`` in it is a
``$``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Final, Literal, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import Bbox

from memlab import columns as c
from memlab.charts.figure import FOOTNOTE, SUBTITLE, TITLE, figure_of, set_height
from memlab.charts.palette import Palette, palette_of
from memlab.text import counted, for_terminal

EMPTY_HEIGHT: Final = 1.7
"""Inches: a chart that has nothing to show says so in little room."""
SMALL: Final = 9.0
"""Points: tick labels, direct labels, notes."""
LARGE: Final = 12.0
"""Points: titles."""
LONGEST_LABEL: Final = 22
"""Characters of a direct label before it goes on in another line."""

Kind = Literal["line", "dashed", "dotted", "shade", "o", "s", "D"]


@dataclass(frozen=True, slots=True)
class EndLabel:
    """A direct label for one line: the value it ends at, in data units, and what to write there."""

    y: float
    text: str
    colour: str


def axes_for(ax: Axes | None, *, height: float = 4.0) -> tuple[Axes, Palette]:
    """Return `ax`, frame and grid toned down, and its colours; our own figure gets this height."""
    ax = cast("Axes", ax)  # `on_its_own` brings axes where none are given
    paint = palette_of(ax)
    set_height(ax, height)
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(paint.grey)
    ax.grid(visible=True, axis="y", color=paint.hairline, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(color=paint.grey, labelcolor=paint.muted, labelsize=SMALL, length=3)
    ax.xaxis.label.set(color=paint.muted, size=SMALL)
    ax.yaxis.label.set(color=paint.muted, size=SMALL)
    return ax, paint


def about(*frames: pd.DataFrame) -> str:
    """Say whose numbers these are and how many references stand behind them, as far as is known."""
    told = {key: value for frame in frames for key, value in frame.attrs.items()}
    parts = [for_terminal(str(told[c.SOURCE]))] if told.get(c.SOURCE) else []
    if c.REFERENCES in told:
        parts.append(counted(told[c.REFERENCES], "references"))
    return ", ".join(parts)


def heading(ax: Axes, title: str, *said: str, key: Sequence[tuple[str, str, Kind]] = ()) -> None:
    """Say above the axes what is shown and, below that and smaller, whose it is and how to read it.

    `said` are phrases, the empty ones left out, each ended with a full stop. The key of ``(name,
    colour, kind)`` is for what has no end to stand at.
    """
    paint, across = palette_of(ax), _characters_across(ax)
    text = " ".join(f"{phrase.rstrip('.')}." for phrase in said if phrase)
    lines = fill(text, across) if text else ""
    rooms = [len(name) + 8 for name, _, _ in key]
    columns = len(key) if sum(rooms) <= across else max(1, across // max(rooms))
    key_lines = -(-len(key) // columns) if key else 0
    ax.set_title(
        fill(title, int(across * SMALL / LARGE * 0.86), break_on_hyphens=False),
        loc="left",
        color=paint.ink,
        fontsize=LARGE,
        fontweight="bold",
        pad=8 + 13 * len(lines.splitlines()) + 16 * key_lines,
        parse_math=False,
        gid=TITLE,
    )
    if lines:
        note = _beside_axes(ax, lines, (0, 1), offset=(0, 6 + 16 * key_lines))
        note.set(va="bottom", gid=SUBTITLE)
    if key:
        ax.legend(
            handles=[_sample(name, colour, kind) for name, colour, kind in key],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            frameon=False,
            fontsize=SMALL,
            labelcolor=paint.muted,
            handlelength=1.6,
            handleheight=1,
            borderaxespad=0.1,
            borderpad=0.2,
            columnspacing=1.4,
        )


def footnote(ax: Axes, *said: str) -> Annotation | None:
    """Write the caveats below the axes, wrapped to their width."""
    text = " ".join(phrase for phrase in said if phrase)
    if not text:
        return None
    below = 42 if ax.get_xlabel() else 34
    note = _beside_axes(ax, fill(text, _characters_across(ax)), (0, 0), offset=(0, -below))
    note.set(va="top", gid=FOOTNOTE)
    return note


def name_across(ax: Axes, name: str) -> None:
    """Name the x axis, in as many lines as its width takes."""
    ax.set_xlabel(fill(name, max(30, int(0.7 * _characters_across(ax)))))


def say_empty(ax: Axes, text: str) -> None:
    """Say in the middle of an empty chart why it is empty; no tick pretends to be a measurement."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    words = fill(text, int(0.85 * _characters_across(ax)))
    muted = palette_of(ax).muted
    ax.text(0, 0.5, words, transform=ax.transAxes, va="center", color=muted, fontsize=10.5)


def label_ends(ax: Axes, labels: Sequence[EndLabel]) -> list[Annotation]:
    """Name lines at the right edge, moved apart where they would overlap.

    Call it once the limits are final. The annotations come back in the order of `labels`.
    """
    paint = palette_of(ax)
    across = ax.transData + ax.transAxes.inverted()
    x = ax.get_xlim()[1]
    heights = np.array([across.transform((x, label.y))[1] for label in labels])
    texts = [
        fill(for_terminal(label.text), LONGEST_LABEL, break_on_hyphens=False) for label in labels
    ]
    line = 1.25 * SMALL / _height_in_points(ax)
    places = spread(heights, [line * (1 + text.count("\n")) for text in texts])
    notes = []
    for label, text, place in zip(labels, texts, places, strict=True):
        note = _beside_axes(ax, text, (1, float(place)), offset=(7, 0))
        note.set(va="center", color=paint.words(label.colour))
        notes.append(note)
    return notes


def spread(places: np.ndarray, sizes: Sequence[float]) -> np.ndarray:
    """Move `places` as little as needed for things of these sizes to lie apart, order kept.

    Least squares under ``y[i + 1] - y[i] >= (size[i] + size[i + 1]) / 2``: with those gaps
    subtracted the answer is the non-decreasing sequence nearest to the places, found by pooling
    adjacent violators (Ayer et al., 1955).
    """
    if not len(places):
        return places
    order = np.argsort(places, kind="stable")
    half = np.asarray(sizes, dtype=float)[order] / 2
    gaps = np.concatenate([[0.0], np.cumsum(half[:-1] + half[1:])])
    blocks: list[tuple[float, int]] = []
    for place, gap in zip(places[order], gaps, strict=True):
        mean, size = float(place) - gap, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (mean * size + before * count) / (size + count), size + count
        blocks.append((mean, size))
    level = np.repeat([mean for mean, _ in blocks], [size for _, size in blocks])
    result = np.empty(len(places))
    result[order] = level + gaps
    return result


class Names:
    """Names beside points, each written only where there is room for it.

    Call :meth:`name` with the most telling points first, once the limits are final.
    """

    def __init__(self, ax: Axes) -> None:
        self._ax = ax
        self._taken: list[Bbox] = []

    def keep_clear(self, x: float, y: float) -> None:
        """Let no name cover a point."""
        across, up = self._ax.transData.transform((x, y))
        self._taken.append(Bbox.from_extents(across - 3, up - 3, across + 3, up + 3))

    def name(self, x: float, y: float, text: str, colour: str) -> Annotation | None:
        """Write `text` beside a point: below right, or wherever else it fits; None where nowhere.

        In the last tenth of the axes it stands to the left.
        """
        paint = palette_of(self._ax)
        far = (self._ax.transData + self._ax.transAxes.inverted()).transform((x, y))[0] > 0.9
        sides = [(-1, -1), (-1, 1)] if far else [(1, -1), (-1, 1), (1, 1), (-1, -1)]
        for across, up in sides:
            room = self._room(x, y, text, across, up)
            if self._fits(room):
                self._taken.append(room)
                return self._ax.annotate(
                    text,
                    (x, y),
                    xytext=(5 * across, 4 * up),
                    textcoords="offset points",
                    ha="left" if across > 0 else "right",
                    va="bottom" if up > 0 else "top",
                    color=paint.words(colour),
                    fontsize=SMALL,
                    parse_math=False,
                    bbox=on_paper(paint),
                )
        return None

    def _fits(self, room: Bbox) -> bool:
        """Whether a name would lie within the axes and cover no other."""
        inside = self._ax.get_window_extent()
        within = inside.y0 <= room.y0 and room.x0 >= inside.x0 and room.y1 <= inside.y1 + 12
        return within and not any(room.overlaps(other) for other in self._taken)

    def _room(self, x: float, y: float, text: str, across: int, up: int) -> Bbox:
        """Return about what a name covers, in pixels."""
        left, low = self._ax.transData.transform((x, y))
        point = figure_of(self._ax).dpi / 72
        wide, high = 0.62 * SMALL * len(text) * point, 1.25 * SMALL * point
        left += 5 * across * point - (wide if across < 0 else 0)
        low += 4 * up * point - (high if up < 0 else 0)
        return Bbox.from_extents(left, low, left + wide, low + high)


def on_paper(paint: Palette) -> dict[str, Any]:
    """Return the box behind a name that a line may run through."""
    return {"facecolor": paint.paper, "alpha": 0.8, "linewidth": 0, "pad": 0.5}


def mark_cap(ax: Axes, value: float, text: str = "", *, axis: Literal["x", "y"] = "y") -> None:
    """Draw a cap or a threshold as a dashed line across the axes, and name it where it begins.

    Where the data may run through the name, leave it out and use :func:`label_ends`.
    """
    paint = palette_of(ax)
    line: dict[str, Any] = {
        "color": paint.cap,
        "linewidth": 1.2,
        "linestyle": (0, (4, 3)),
        "label": "_cap",
    }
    if axis == "y":
        ax.axhline(value, **line)
        place, offset, anchor = (0.0, value), (4, 3), ("axes fraction", "data")
    else:
        ax.axvline(value, **line)
        place, offset, anchor = (value, 1.0), (4, -4), ("data", "axes fraction")
    if text:
        ax.annotate(
            text,
            place,
            xycoords=anchor,
            xytext=offset,
            textcoords="offset points",
            va="bottom" if axis == "y" else "top",
            color=paint.cap,
            fontsize=SMALL,
            parse_math=False,
            bbox=on_paper(paint),
        )


def short(value: float) -> str:
    """Write a number in at most three or four characters and a unit.

    Examples
    --------
    >>> [short(v) for v in (0, 8, 592, 9_995, 45_200, 1_250_000)]
    ['0', '8', '592', '9,995', '45 k', '1.2 M']
    """
    size = abs(value)
    if size < 9_999.5:
        return f"{value:,.0f}" if float(value).is_integer() or size >= 100 else f"{value:.3g}"
    if size < 999_500:
        return f"{value / 1e3:.0f} k"
    return f"{value / 1e6:.1f} M"


def share(value: float) -> str:
    """Write a share as a percentage that never rounds to a whole it is not.

    Examples
    --------
    >>> [share(v) for v in (0, 0.004, 0.5, 0.987, 0.9996, 1)]
    ['0 %', '0.4 %', '50 %', '98.7 %', '>99.9 %', '100 %']
    """
    if value in {0, 1}:
        return f"{value:.0%}".replace("%", " %")
    if 0 < value < 0.001:
        return "<0.1 %"
    if 0.999 < value < 1:
        return ">99.9 %"
    digits = 1 if value < 0.1 or value > 0.9 else 0
    return f"{100 * value:.{digits}f} %"


def token_note(frame: pd.DataFrame) -> str:
    """Return in a sentence how the tokens of a computed frame were counted."""
    return f"Tokens: {frame.attrs.get(c.TOKEN_RULE) or 'counted by a rule that was not stated'}."


def _sample(name: str, colour: str, kind: Kind) -> Patch | Line2D:
    """Return what stands in a key for a line, a shade or a mark."""
    if kind == "shade":
        return Patch(facecolor=colour, alpha=0.3, linewidth=0, label=name)
    if kind in {"o", "s", "D"}:
        return Line2D([], [], color=colour, linestyle="none", marker=kind, label=name)
    lines: dict[str, Any] = {"dashed": "--", "dotted": ":"}
    return Line2D([], [], color=colour, linestyle=lines.get(kind, "-"), label=name)


def _beside_axes(
    ax: Axes, text: str, at: tuple[float, float], *, offset: tuple[float, float]
) -> Annotation:
    """Annotate outside the axes: `at` in axes fraction, `offset` in points."""
    note = ax.annotate(
        text,
        at,
        xycoords="axes fraction",
        xytext=offset,
        textcoords="offset points",
        annotation_clip=False,
        parse_math=False,
    )
    note.set(color=palette_of(ax).muted, fontsize=SMALL, linespacing=1.25)
    return note


def _height_in_points(ax: Axes) -> float:
    """Return about how high the axes will be once there is a layout."""
    figure = figure_of(ax)
    share_left = 0.66 if len(figure.axes) == 1 else float(ax.get_position().height)
    return share_left * float(figure.get_size_inches()[1]) * 72


def _characters_across(ax: Axes) -> int:
    """Return about how many small characters fit across the axes; across the figure, if alone."""
    figure = figure_of(ax)
    alone = len(figure.axes) == 1
    inches = (0.96 if alone else float(ax.get_position().width)) * figure.get_size_inches()[0]
    return max(24, int(inches * 72 / (0.56 * SMALL)))


def bold(text: Text) -> Text:
    """Return a text set in bold."""
    text.set_fontweight("bold")
    return text


def percent_of(value: float) -> str:
    """Write a target as it was set: 90 %, 97.5 %."""
    return f"{100 * value:.4g} %"


def whole_percent(value: float, _: int) -> str:
    """Write a tick of an axis of shares."""
    return f"{100 * value:.4g} %"


PERCENT: Final = FuncFormatter(whole_percent)
