"""How every chart looks: colours, headings, labels at the ends of lines, axes that tell the truth.

Nothing here touches ``rcParams`` or pyplot, so a chart looks the same wherever it is drawn and
leaves no trace in the reader's own figures. Text is never parsed as mathematics: a ``$`` in it is a
``$``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator

from memlab.columns import TOKEN_RULE

# Okabe and Ito (2008), "Color Universal Design": eight hues that stay apart for the common kinds of
# colour blindness. Their yellow is too pale for a line on white and is left out.
BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
GREEN: Final = "#009E73"
VERMILION: Final = "#D55E00"
SKY: Final = "#56B4E9"
PURPLE: Final = "#CC79A7"
BLACK: Final = "#1A1A1A"

INK: Final = "#262626"
MUTED: Final = "#5F6368"
GREY: Final = "#8A8D91"
HAIRLINE: Final = "#E3E5E8"

LOAD_BEARING_COLOUR: Final = BLUE
PRUNABLE_COLOUR: Final = VERMILION
SUPERSEDED_COLOUR: Final = GREY
CAP_COLOUR: Final = BLACK
"""A chosen or recommended cap, wherever it is drawn."""

SERIES: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""Colours for series without a meaning of their own, in the order to take them."""

WIDTH: Final = 8.0
"""Inches: the width of a notebook's output at 100 %."""
EMPTY_HEIGHT: Final = 1.6
"""Inches: a chart that has nothing to show says so in little room."""
SMALL: Final = 9.0
"""Points: tick labels, direct labels, notes."""
LARGE: Final = 12.0
"""Points: titles."""


@dataclass(frozen=True, slots=True)
class EndLabel:
    """A direct label for one line: the value it ends at, in data units, and what to write there."""

    y: float
    text: str
    colour: str


def axes_for(ax: Axes | None, *, height: float = 4.0) -> Axes:
    """Return `ax`, or axes on a new figure `height` inches high; frame and grid are toned down."""
    if ax is None:
        figure = Figure(figsize=(WIDTH, height), dpi=100, facecolor="white", layout="constrained")
        ax = figure.add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.grid(visible=True, axis="y", color=HAIRLINE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=MUTED, labelsize=SMALL, length=3)
    ax.xaxis.label.set(color=MUTED, size=SMALL)
    ax.yaxis.label.set(color=MUTED, size=SMALL)
    return ax


def heading(
    ax: Axes, title: str, subtitle: str = "", *, key: Sequence[tuple[str, str]] = ()
) -> None:
    """Say above the axes what is shown and, below that and smaller, how to read it.

    How to read it is a sentence, or a key of ``(name, colour)`` where labels do not fit the marks.
    """
    across = _characters_across(ax)
    lines = fill(subtitle, across) if subtitle else ""
    ax.set_title(
        fill(title, int(across * SMALL / LARGE), break_on_hyphens=False),
        loc="left",
        color=INK,
        fontsize=LARGE,
        fontweight="bold",
        pad=8 + 13 * max(len(lines.splitlines()), bool(key)),
        parse_math=False,
    )
    if lines:
        _beside_axes(ax, lines, (0, 1), offset=(0, 6)).set(va="bottom")
    if key:
        ax.legend(
            handles=[Patch(color=colour, label=name) for name, colour in key],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(key),
            frameon=False,
            fontsize=SMALL,
            labelcolor=MUTED,
            handlelength=1,
            handleheight=1,
            borderaxespad=0.1,
            borderpad=0.3,
        )


def footnote(ax: Axes, text: str) -> Annotation:
    """Write the caveat below the axes, wrapped to their width."""
    below = 40 if ax.get_xlabel() else 32
    note = _beside_axes(ax, fill(text, _characters_across(ax)), (0, 0), offset=(0, -below))
    note.set(va="top")
    return note


def say_empty(ax: Axes, text: str) -> None:
    """Say in the middle of an empty chart why it is empty; no tick pretends to be a measurement."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.text(
        0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=MUTED, fontsize=11
    )


def label_ends(ax: Axes, labels: Sequence[EndLabel]) -> list[Annotation]:
    """Name lines at the right edge, moved apart where they would overlap.

    Call it once the limits are final. The annotations come back in the order of `labels`.
    """
    across = ax.transData + ax.transAxes.inverted()
    x = ax.get_xlim()[1]
    heights = np.array([across.transform((x, label.y))[1] for label in labels])
    room = [1 + label.text.count("\n") for label in labels]
    places = spread(heights, gap=1.25 * SMALL * max(room, default=1) / _height_in_points(ax))
    notes = []
    for label, place in zip(labels, places, strict=True):
        note = _beside_axes(ax, label.text, (1, float(place)), offset=(6, 0))
        note.set(va="center", color=label.colour)
        notes.append(note)
    return notes


def spread(places: np.ndarray, *, gap: float) -> np.ndarray:
    """Move `places` as little as needed for neighbours to be at least `gap` apart, order kept.

    Least squares under ``y[i + 1] - y[i] >= gap``: with ``i * gap`` subtracted the answer is the
    non-decreasing sequence nearest to the places, found by pooling adjacent violators (Ayer et al.,
    1955).
    """
    order = np.argsort(places, kind="stable")
    blocks: list[tuple[float, int]] = []
    for rank, place in enumerate(places[order]):
        mean, size = float(place) - rank * gap, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (mean * size + before * count) / (size + count), size + count
        blocks.append((mean, size))
    level = np.repeat([mean for mean, _ in blocks], [size for _, size in blocks])
    result = np.empty(len(places))
    result[order] = level + gap * np.arange(len(places))
    return result


def mark_cap(ax: Axes, value: float, text: str = "", *, axis: Literal["x", "y"] = "y") -> None:
    """Draw a cap or a threshold as a dashed line across the axes, and name it where it begins.

    Where the data may run through the name, leave it out and use :func:`label_ends`.
    """
    line: dict[str, Any] = {
        "color": CAP_COLOUR,
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
    ax.annotate(
        text,
        place,
        xycoords=anchor,
        xytext=offset,
        textcoords="offset points",
        va="bottom" if axis == "y" else "top",
        color=CAP_COLOUR,
        fontsize=SMALL,
        parse_math=False,
    )


def count_axis(axis: Axis, name: str = "") -> None:
    """Label `axis` with whole numbers a person can read, in one unit: 1,200 or 45 k or 1.5 M."""

    def label(value: float, _: int) -> str:
        largest = max(abs(limit) for limit in axis.get_view_interval())
        if largest < 1e4 or not value:
            return f"{value:,.0f}"
        return f"{value / 1e6:,.4g} M" if largest >= 1e6 else f"{value / 1e3:,.4g} k"

    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10], integer=True))
    axis.set_major_formatter(FuncFormatter(label))
    axis.set_label_text(name)


def percent_axis(axis: Axis, name: str = "") -> None:
    """Label `axis`, which holds shares between 0 and 1, in percent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axis.set_label_text(name)


def time_axis(ax: Axes) -> None:
    """Give the x axis dates without repetition: months, with the year where it changes."""
    locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_formatter(formatter)
    ax.xaxis.get_offset_text().set(color=MUTED, fontsize=SMALL)


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


def counted(count: float, things: str) -> str:
    """Write a count with its noun, given in the plural.

    Examples
    --------
    >>> counted(1, "items"), counted(1200, "tokens")
    ('1 item', '1,200 tokens')
    """
    return f"{count:,.0f} {things.removesuffix('s') if count == 1 else things}"


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
    return f"Tokens ({frame.attrs.get(TOKEN_RULE) or 'counted by a rule that was not stated'})."


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
    note.set(color=MUTED, fontsize=SMALL, linespacing=1.25)
    return note


def _height_in_points(ax: Axes) -> float:
    """Return about how high the axes will be once there is a layout."""
    return float(
        ax.get_position().height * ax.figure.get_figure(root=True).get_size_inches()[1] * 72
    )


def _characters_across(ax: Axes) -> int:
    """Return about how many small characters fit across the axes; across the figure, if alone."""
    figure = ax.figure.get_figure(root=True)
    alone = len(figure.axes) == 1
    inches = (0.88 if alone else float(ax.get_position().width)) * figure.get_size_inches()[0]
    return max(30, int(inches * 72 / (0.54 * SMALL)))
