"""Axes, labels, scales and marks that all charts share. ``rcParams`` and pyplot are not used."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import pairwise
from math import ceil
from textwrap import fill
from typing import Any, Final, Literal, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import MONTHLY, AutoDateLocator, ConciseDateFormatter
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox, blended_transform_factory

from memlab import columns as c
from memlab.charts.figure import FOOTNOTE, LAYOUT_MARGINS, PAD, SUBTITLE, Chart, palette_of
from memlab.charts.hover import ABOVE_AREAS, HoverValues, reserve_areas
from memlab.sizing import Advice
from memlab.text import counted, for_terminal

EMPTY_HEIGHT: Final = 1.7
"""Height in inches of a chart that has no data to draw."""
SMALL: Final = 9.0
"""Font size in points of tick labels, direct labels and notes."""
LARGE: Final = 12.0
"""Font size in points of titles."""
LONGEST_LABEL: Final = 22
"""Characters in a line of a direct label, before it wraps."""
DOT: Final = (3.6, 8.0)
"""Smallest and largest diameter in points of a dot for one datum; many dots are smaller."""
LARGEST_DOT: Final = 22.0
"""Maximum diameter in points of a dot; the others scale with it."""
SIDE_BY_SIDE: Final = 5.0
"""Width in inches from which six tick labels fit side by side below a chart."""
DASHES: Final = (0, (4, 3))
"""Line style of caps, targets and budgets."""
STEPS: Final = [1, 2, 2.5, 5, 10]
"""Multiples of a power of ten between ticks."""
NOTHING_YET: Final = "No memories yet"
NO_REFERENCES: Final = "No later reference to an earlier memory is known"

Numbers = npt.NDArray[np.float64]
Measure = Literal["memories", "tokens"]


class CapKind(Enum):
    """Why a chart marks a cap."""

    LIKELY = "likely"
    """It is the likely cap of a recommendation."""
    SAFE = "safe"
    """It is the safe cap of a recommendation."""
    CHOSEN = "keep_recent ="
    """The caller chose it."""


class MarkedCap(NamedTuple):
    """A cap that a chart marks, with its label and its colour."""

    value: int
    kind: CapKind
    name: str
    colour: str


class Plot:
    """The axes of a chart, its palette, and the attributes of the frames that it draws.

    Parameters
    ----------
    ax : Axes or None
        The axes; :func:`on_own_figure` replaces None.
    *frames : DataFrame
        The data, whose ``attrs`` name the source, the token rule and the number of references.
    height : float, optional
        Height of the figure in inches. Without it the axes stay as they are.
    """

    def __init__(self, ax: Axes | None, *frames: pd.DataFrame, height: float | None = None) -> None:
        self.ax = cast("Axes", ax)  # `on_own_figure` replaces None
        self.palette = palette_of(self.ax)
        self.attributes: dict[Any, Any] = {}
        """Attributes of all frames together."""
        for frame in frames:
            self.attributes.update(frame.attrs)
        self.figure = self.ax.figure.get_figure(root=True)
        self._owns_figure = isinstance(self.figure, Chart)
        self._left_edge = 0.0
        self._x_transform = self.ax.transAxes
        if self._owns_figure:  # text begins at the left edge of the figure
            self._left_edge = PAD
            self._x_transform = self.figure.dpi_scale_trans
        self._end_labels: list[tuple[float, str, str]] = []
        if height is not None:
            self._set_height(height)
            self._tone_down()

    def _tone_down(self) -> None:
        """Style the axes: no box, grey spines, and horizontal grid lines only."""
        ax = self.ax
        palette = self.palette
        ax.set_facecolor("none")
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(palette.grey)
        ax.grid(visible=True, axis="y", color=palette.hairline, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.tick_params(color=palette.grey, labelcolor=palette.muted, labelsize=SMALL, length=3)
        for axis in (ax.xaxis, ax.yaxis):
            axis.label.set(color=palette.muted, size=SMALL)

    def _set_height(self, inches: float) -> None:
        """Set the height of the chart's own figure; a figure of the caller stays as it is."""
        if self._owns_figure:
            self.figure.set_figheight(inches)

    def _grow(self, points: float) -> None:
        """Increase the height by a number of points, for text of several lines."""
        self._set_height(float(self.figure.get_figheight()) + points / 72)

    @property
    def token_note(self) -> str:
        """A sentence on how the tokens were counted."""
        rule = self.attributes.get(c.TOKEN_RULE) or "counted by a rule that was not stated"
        return f"Tokens: {rule}."

    def loaded_or_recalled(self, loaded: str, recalled: str) -> str:
        """Return `recalled` if memories are only searched, else `loaded`."""
        return recalled if self.attributes.get(c.RECALLED) else loaded

    def empty(self, title: str, reason: str) -> Axes:
        """Draw a low chart with a title and a sentence on why there is no data, without ticks."""
        ax = self.ax
        if isinstance(self.figure, Chart):
            self.figure.nothing_to_show = f"{title}: {reason[:1].lower()}{reason[1:].rstrip('.')}."
        self._set_height(EMPTY_HEIGHT)
        self.heading(title)
        ax.grid(visible=False)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        wrapped = fill(reason, int(0.85 * self.characters_across))
        style: dict[str, Any] = {"color": self.palette.muted, "fontsize": 10.5, "va": "center"}
        ax.text(0, 0.5, wrapped, transform=ax.transAxes, **style)
        return ax

    def compute_layout(self) -> None:
        """Place the axes in the figure, before labels are placed beside marks."""
        layout_engine = self.figure.get_layout_engine()
        if layout_engine is not None:
            layout_engine.execute(self.figure)

    def heading(self, title: str, *subtitle: str, key: Sequence[Artist] = ()) -> None:
        """Write the title above the axes, and below it the subtitle and the legend.

        Call it when the limits of the axes are final, because it labels the ends of lines too. The
        subtitle begins with the source and the number of references, if they are known.

        Parameters
        ----------
        title : str
            The title.
        *subtitle : str
            Sentences of the subtitle; empty ones are skipped.
        key : sequence of Artist
            The artists in the legend.
        """
        self.draw_end_labels()
        across = self.characters_across
        title = title.replace(" = ", "\u00a0=\u00a0")
        source_and_references = []
        if self.attributes.get(c.SOURCE):
            source_and_references.append(for_terminal(str(self.attributes[c.SOURCE])))
        if c.REFERENCES in self.attributes:
            source_and_references.append(counted(self.attributes[c.REFERENCES], "references"))
        sentences = [text for text in (", ".join(source_and_references), *subtitle) if text]
        subtitle_text = fill(" ".join(f"{text.rstrip('.')}." for text in sentences), across)
        title_text = fill(title, int(across * SMALL / LARGE * 0.86), break_on_hyphens=False)
        columns = _legend_columns(key, across)
        key_lines = ceil(len(key) / columns) if key else 0
        key_height = 2 + 14 * key_lines if key else 0
        self._grow(
            17 * title_text.count("\n")
            + 13 * subtitle_text.count("\n")
            + 14 * max(0, key_lines - 1)
        )
        pad = 8 + 13 * len(subtitle_text.splitlines()) + key_height
        title_artist = self.ax.set_title(title_text, loc="left", pad=pad, parse_math=False)
        title_artist.set(color=self.palette.ink, fontsize=LARGE, fontweight="bold")
        with_x_of_figure = partial(blended_transform_factory, self._x_transform)
        title_artist.set(
            x=self._left_edge, transform=with_x_of_figure(title_artist.get_transform())
        )
        above_axes = with_x_of_figure(self.ax.transAxes)
        if subtitle_text:
            style: dict[str, Any] = {"xycoords": above_axes, "in_layout": not self._owns_figure}
            position = (self._left_edge, 1)
            offset = (0, 6 + key_height)
            self._write_outside(subtitle_text, position, offset, va="bottom", gid=SUBTITLE, **style)
        if key:
            self.ax.legend(
                handles=key,
                loc="lower left",
                bbox_to_anchor=(self._left_edge, 1),
                bbox_transform=above_axes,
                ncols=columns,
                frameon=False,
                fontsize=SMALL,
                labelcolor=self.palette.muted,
                handlelength=1.6,
                handleheight=1,
                borderaxespad=0.1,
                borderpad=0.2,
                columnspacing=1.4,
            ).set_in_layout(not self._owns_figure)

    def footnote(self, *sentences: str) -> Axes:
        """Write sentences below the axes, wrapped to their width, and return the axes.

        Empty sentences are skipped.
        """
        text = " ".join(sentence for sentence in sentences if sentence)
        if not text:
            return self.ax
        lines = fill(text, self.characters_across)
        self._grow(13 * lines.count("\n"))
        if not self._owns_figure:
            below = 42 if self.ax.get_xlabel() else 34
            self._write_outside(lines, (0, 0), (0, -below), va="top", gid=FOOTNOTE)
            return self.ax
        share_of_height = (5 + 13 * len(lines.splitlines())) / 72 / self.figure.get_figheight()
        self.figure.set_layout_engine(
            "constrained", rect=(0, share_of_height, 1, 1 - share_of_height), **LAYOUT_MARGINS
        )
        style = {"xycoords": self.figure.dpi_scale_trans, "in_layout": False, "gid": FOOTNOTE}
        self._write_outside(lines, (PAD, PAD), (0, 0), **style)
        return self.ax

    def write(
        self, text: str, at: tuple[float, float], offset: tuple[float, float] = (0, 0), **style: Any
    ) -> Annotation:
        """Write small text beside a point in data units, at an offset in points.

        `colour` in `style` is a colour of marks; the text has its darker variant.
        """
        style["color"] = self.palette.text_colour(style.pop("colour", self.palette.muted))
        style = {"fontsize": SMALL, "parse_math": False, **style}
        return self.ax.annotate(text, at, xytext=offset, textcoords="offset points", **style)

    def _write_outside(
        self, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
    ) -> Annotation:
        """Write small text outside the axes, at a point in fractions of them."""
        outside = {"xycoords": "axes fraction", "annotation_clip": False, "linespacing": 1.25}
        return self.write(text, at, offset, **outside | style)

    @property
    def on_paper(self) -> dict[str, Any]:
        """Style of the box behind a label that a line may cross."""
        return {"facecolor": self.palette.paper, "alpha": 0.8, "linewidth": 0, "pad": 0.5}

    def label_end(self, y: float, text: str, colour: str) -> None:
        """Register a label for :meth:`draw_end_labels`, at the last value `y` of a line."""
        self._end_labels.append((y, text, colour))

    def draw_end_labels(self) -> None:
        """Write the registered labels at the right edge, moved apart so that none overlap."""
        right = self.ax.get_xlim()[1]
        heights = np.array(
            [self.in_axes(right, y)[1] for y, _, _ in self._end_labels]
        )  # as fractions
        texts = [
            fill(for_terminal(text), LONGEST_LABEL, break_on_hyphens=False)
            for _, text, _ in self._end_labels
        ]
        label_points = 1.25 * SMALL * np.array([1 + text.count("\n") for text in texts])
        # the layout is not computed yet: estimate the points of the axes per inch of the figure
        points_per_inch = 72 * (0.66 if self._owns_figure else float(self.ax.get_position().height))
        axes_points = points_per_inch * self.figure.get_figheight()
        self._grow(1.5 * max(0.0, label_points.sum() - axes_points))
        places = spread(heights, label_points / (points_per_inch * self.figure.get_figheight()))
        for text, place, (*_, colour) in zip(texts, places, self._end_labels, strict=True):
            self._write_outside(text, (1, float(place)), (7, 0), va="center", colour=colour)

    def caps_to_mark(self, advice: Advice | None, cap: int | None) -> list[MarkedCap]:
        """Return the likely cap, the safe cap and the chosen one, without those that are None."""
        caps: dict[CapKind, int | None] = {}
        if advice is not None:
            safe = advice.trade[0].keep_recent if advice.trade else advice.keep_recent
            caps = {CapKind.LIKELY: advice.likely, CapKind.SAFE: safe}
        if cap not in caps.values():
            caps[CapKind.CHOSEN] = cap
        colours = {
            CapKind.LIKELY: self.palette.likely,
            CapKind.SAFE: self.palette.safe,
            CapKind.CHOSEN: self.palette.ink,
        }
        return [
            MarkedCap(value=value, kind=kind, name=f"{kind.value} {value:,}", colour=colours[kind])
            for kind, value in caps.items()
            if value is not None
        ]

    def hover(self, artist: Artist, text: str) -> None:
        """Let a mark show a text on hover, in the chart as SVG."""
        if isinstance(self.figure, Chart):
            gid = f"mark-{len(self.figure.hover_titles) + 1}"
            artist.set_gid(gid)
            self.figure.hover_titles[gid] = for_terminal(text)

    def hover_dot(self, x: float, y: float, text: str) -> None:
        """Let a point in data units show a text on hover, by an invisible dot over it."""
        options: dict[str, Any] = {
            "markersize": 7,
            "alpha": 0.01,
            "label": "_value",
            "zorder": ABOVE_AREAS,
        }
        (dot,) = self.ax.plot(x, y, "o", color=self.palette.ink, **options)
        self.hover(dot, text)

    def hover_along(self, across: Any, text: Callable[[int], str]) -> None:
        """Let the places along the lines show their values on hover, in the chart as SVG.

        Parameters
        ----------
        across : array
            The places on the x axis, in data units.
        text : callable
            Returns the text for a place by its number. It is called only for the places that are
            far enough from each other to be pointed at.
        """
        if isinstance(self.figure, Chart):
            self.figure.hover_values = HoverValues(self.ax, np.asarray(across), text)
            reserve_areas(self.ax)

    def draw_across(self, value: float, text: str, colour: str = "") -> None:
        """Draw a cap or a threshold as a dashed horizontal line with a label at its end."""
        colour = colour or self.palette.ink
        self.ax.axhline(value, color=colour, linewidth=1.2, linestyle=DASHES, label="_cap")
        self.label_end(value, text, colour)

    def draw_target(self, share: float) -> Annotation:
        """Draw the target as a dashed horizontal line with a label at its start; return it."""
        self.ax.axhline(
            share, color=self.palette.ink, linewidth=1.2, linestyle=DASHES, label="_cap"
        )
        side: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "bottom"}
        text = f"target {percent_of(share)}"
        colour = self.palette.ink
        return self.write(text, (0, share), (4, 3), colour=colour, bbox=self.on_paper, **side)

    def draw_upright(self, x: float, text: str, colour: str, *, row: int = 0) -> None:
        """Draw a dashed vertical line at `x` with a label at its foot, on the side with room."""
        if not self.ax.get_xlim()[0] <= x <= self.ax.get_xlim()[1]:
            return
        self.ax.axvline(x, color=colour, linewidth=1.2, linestyle=DASHES, label="_cap")
        across, align = (-4, "right") if self.in_axes(x, 0)[0] > 0.6 else (4, "left")
        side: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": align}
        self.write(text, (x, 0), (across, 5 + 14 * row), colour=colour, bbox=self.on_paper, **side)

    def draw_counted(
        self, points: Numbers, *, among: int, max_dots: int = 600, **style: Any
    ) -> int:
        """Draw points as dots, and merge near ones so that there are at most `max_dots` dots.

        The area of a dot is proportional to the number of its points.

        Parameters
        ----------
        points : array of float64, shape (n, 2)
            The points, in data units.
        among : int
            Number of points in all calls for one chart, which decides the size of a dot.
        max_dots : int
            Maximum number of dots.
        **style
            Keyword arguments of matplotlib.

        Returns
        -------
        int
            The largest number of points in a dot.
        """
        ax = self.ax
        diameter = float(np.clip(40 / np.sqrt(among), *DOT))  # of a dot for one point
        pixels_per_point = self.figure.dpi / 72
        places = ax.transData.transform(points.reshape(-1, 2)) / pixels_per_point
        centres, counts, cell_size = _merged(places, cell_size=diameter, max_dots=max_dots)
        largest = LARGEST_DOT if cell_size == diameter else cell_size
        sizes = min(diameter, largest / np.sqrt(counts.max(initial=1))) * np.sqrt(counts)
        sizes = np.maximum(np.round(2 * sizes) / 2, 1.5)
        x, y = ax.transData.inverted().transform(centres * pixels_per_point).T
        for size in np.unique(sizes):  # an SVG defines the mark of each size once
            of_size = sizes == size
            dots: dict[str, Any] = {"ls": "none", "ms": size, "mew": 0, "clip_on": False}
            ax.plot(x[of_size], y[of_size], alpha=0.6, zorder=2.5, **dots, **style)
        return int(counts.max(initial=0))

    def in_axes(self, x: float, y: float) -> Any:
        """Return a point in data units as fractions of the axes, from the lower left corner."""
        return (self.ax.transData + self.ax.transAxes.inverted()).transform((x, y))

    @property
    def characters_across(self) -> int:
        """Estimated number of small characters that fit across the axes, or the chart's figure."""
        share_left = 0.96 if self._owns_figure else float(self.ax.get_position().width)
        inches = share_left * self.figure.get_size_inches()[0]
        return max(24, int(inches * 72 / (0.56 * SMALL)))

    @property
    def is_narrow(self) -> bool:
        """Whether the figure is too narrow for six tick labels side by side."""
        return bool(self.figure.get_size_inches()[0] < SIDE_BY_SIDE)

    def name_axis(self, axis: Axis, name: str) -> None:
        """Label an axis; the label of the x axis wraps at its width."""
        if axis is self.ax.xaxis:
            name = fill(name, max(30, int(0.7 * self.characters_across)))
        axis.set_label_text(name)

    def count_axis(self, axis: Axis, name: str = "") -> None:
        """Give `axis` whole numbers as ticks, all in one unit: 1,200 or 45 k or 1.5 M."""

        def label(value: float, _: int) -> str:
            largest = max(abs(limit) for limit in axis.get_view_interval())
            if largest < 1e4 or not value:
                return f"{value:,.0f}"
            return f"{value / 1e6:,.4g} M" if largest >= 1e6 else f"{value / 1e3:,.4g} k"

        max_ticks = 3 if axis is self.ax.xaxis and self.is_narrow else 6
        axis.set_major_locator(
            MaxNLocator(nbins=max_ticks, steps=STEPS, integer=True, min_n_ticks=1)
        )
        axis.set_major_formatter(FuncFormatter(label))
        self.name_axis(axis, name)

    def percent_axis(self, axis: Axis, name: str, limits: tuple[float, float] = (0, 1.03)) -> None:
        """Give `axis`, which holds shares between 0 and 1, ticks in percent."""
        if axis is self.ax.xaxis:
            self.ax.set_xlim(limits)
        else:
            self.ax.set_ylim(limits)
        axis.set_major_locator(_Shares(nbins=6, steps=STEPS))
        axis.set_major_formatter(PERCENT)
        self.name_axis(axis, name)

    def log_axis(
        self,
        axis: Axis,
        name: str = "",
        limits: tuple[float | None, float | None] = (None, None),
        *,
        max_ticks: int = 7,
    ) -> None:
        """Make `axis` logarithmic, with at most `max_ticks` round ticks."""
        if axis is self.ax.xaxis:
            self.ax.set(xscale="log", xlim=limits)
            max_ticks = 3 if self.is_narrow else max_ticks
        else:
            self.ax.set(yscale="log", ylim=limits)
        low, high = sorted(axis.get_view_interval())
        axis.set_major_locator(FixedLocator(_round_numbers(low, high, max_ticks)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        self.name_axis(axis, name)

    def time_axis(self) -> None:
        """Give the x axis dates as ticks, in the shortest format that is unambiguous."""
        min_ticks, max_ticks = (2, 5) if self.is_narrow else (4, 9)
        locator = AutoDateLocator(minticks=min_ticks, maxticks=max_ticks)  # type: ignore[no-untyped-call]
        locator.intervald[MONTHLY] = [1, 2, 3, 6, 12]
        self.ax.xaxis.set_major_locator(locator)
        self.ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        self.ax.xaxis.get_offset_text().set(color=self.palette.muted, fontsize=SMALL)

    def name_rows(self, places: Sequence[float], names: Sequence[str]) -> None:
        """Label rows on the y axis, without ticks and grid lines."""
        self.ax.set_yticks(places, names, color=self.palette.ink)
        self.ax.grid(visible=False, axis="y")
        self.ax.tick_params(axis="y", length=0)


def check_measure(measure: str) -> None:
    """Raise a ValueError if `measure` is neither "memories" nor "tokens"."""
    if measure not in get_args(Measure):
        raise ValueError(f"measure must be 'memories' or 'tokens', not {measure!r}")


def _legend_columns(key: Sequence[Artist], across: int) -> int:
    """Return the number of columns of a legend that is at most `across` characters wide."""
    widths = [len(str(artist.get_label())) + 8 for artist in key]
    if sum(widths) <= across:
        return len(key)
    return max(1, across // max(widths))


def _merged(places: Any, *, cell_size: float, max_dots: int) -> tuple[Any, Any, float]:
    """Merge the points in each cell of a grid. Cells grow until at most `max_dots` contain points.

    Return the centre of the points of each cell, their number, and the size of the cells.
    """
    while True:
        cells = np.floor(places / cell_size).astype(np.int64)
        _, cell, counts = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
        if len(counts) <= max_dots:
            break
        cell_size *= 1.2
    centres = np.column_stack([np.bincount(cell, places[:, axis]) / counts for axis in (0, 1)])
    return centres, counts, cell_size


def shade(colour: str, alpha: float = 0.22) -> dict[str, Any]:
    """Return the style of a shaded area, as keyword arguments of matplotlib."""
    return {"color": colour, "alpha": alpha, "linewidth": 0}


def spread(places: Numbers, sizes: Numbers) -> Numbers:
    """Return `places` moved apart so that labels of these sizes do not overlap.

    Places and sizes are fractions of the axes. The order is kept. Labels stacked from zero without
    a gap would have the places `stacked`. What a place has beyond that must not decrease, which is
    an isotonic regression: each value becomes the mean of the highest one before it and the lowest
    one after it. The results are moved into the range 0 to 1.
    """
    order = np.argsort(places, kind="stable")
    sorted_sizes = sizes[order]
    stacked = np.cumsum(sorted_sizes) - sorted_sizes / 2
    offset = places[order] - stacked
    highest_before = np.maximum.accumulate(offset)
    lowest_after = np.minimum.accumulate(offset[::-1])[::-1]
    regression = (highest_before + lowest_after) / 2
    result = np.empty(len(places))
    result[order] = np.clip(regression, -stacked[:1], 1 - stacked[-1:]) + stacked
    return result


class PointLabels:
    """Labels beside points, each written only if there is room; write the important ones first."""

    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        self._reserved: list[Bbox] = []

    def reserve(self, x: float, y: float) -> None:
        """Reserve the place of a point, so that no label covers it."""
        self._reserved.append(Bbox([self._plot.ax.transData.transform((x, y))] * 2).padded(3))

    def reserve_line(self, x: Numbers, y: Numbers) -> None:
        """Reserve the straight lines between points, so that no label crosses them."""
        corners = self._plot.ax.transData.transform(np.column_stack([x, y]))
        for start, end in pairwise(corners):
            count = 1 + int(np.hypot(*(end - start)) / 4)
            for place in np.linspace(start, end, count + 1):
                self._reserved.append(Bbox([place, place]).padded(1))

    def reserve_text(self, note: Annotation) -> None:
        """Reserve the place of a text, so that no label covers it."""
        self._reserved.append(note.get_window_extent())

    def write(
        self,
        x: float,
        y: float,
        text: str,
        colour: str,
        *,
        above: bool = False,
        weight: str = "normal",
    ) -> Annotation | None:
        """Write a label on the first side of a point that has room; return None if no side has.

        Sides are pairs: 1 for right or above, -1 for left or below. The first is below right.
        """
        axes_extent = self._plot.ax.get_window_extent()
        is_at_right_edge = self._plot.in_axes(x, y)[0] > 0.9
        sides = [(1, -1), (-1, 1), (1, 1), (-1, -1)]
        if is_at_right_edge:
            sides = [(-1, -1), (-1, 1)]
        if above:
            sides.sort(key=lambda side: -side[1])
        for across, up in sides:
            side: dict[str, Any] = {
                "ha": "left" if across > 0 else "right",
                "va": "bottom" if up > 0 else "top",
                "bbox": self._plot.on_paper,
                "fontweight": weight,
            }
            note = self._plot.write(text, (x, y), (5 * across, 4 * up), colour=colour, **side)
            extent = note.get_window_extent()
            fits_across = axes_extent.x0 <= extent.x0 and extent.x1 <= axes_extent.x1
            fits_up = axes_extent.y0 <= extent.y0 and extent.y1 <= axes_extent.y1 + 2
            if fits_across and fits_up and not extent.count_overlaps(self._reserved):
                self._reserved.append(extent.padded(2))
                return note
            note.remove()
        return None


def short(value: float) -> str:
    """Return a number as text of at most four digits and a unit.

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
    """Return a share in percent; only exact shares become 0% and 100%.

    >>> [share(v) for v in (0, 0.004, 0.5, 0.987, 0.9996, 1)]
    ['0%', '0.4%', '50%', '98.7%', '>99.9%', '100%']
    """
    if value in {0, 1}:
        return f"{value:.0%}"
    if 0 < value < 0.001:
        return "<0.1%"
    if 0.999 < value < 1:
        return ">99.9%"
    digits = 1 if value < 0.1 or value > 0.9 else 0
    return f"{100 * value:.{digits}f}%"


def percent_of(value: float) -> str:
    """Return a target in percent, with as many digits as it was set with.

    >>> percent_of(0.975)
    '97.5%'
    """
    return f"{100 * value:.4g}%"


class _Shares(MaxNLocator):
    """A locator of round shares that places no tick above 1, even if the axis is longer."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        return super().tick_values(vmin, min(vmax, 1.0))


PERCENT: Final = FuncFormatter(lambda value, _: percent_of(value))


_LAST_MOMENT: Final = np.datetime64("9999-12-31T00:00:00")
"""Latest time that matplotlib can draw: it counts days as floats, which are rounded up."""


def without_zone(times: Any) -> npt.NDArray[np.datetime64]:
    """Return times in UTC without a time zone, none after the last day that matplotlib draws."""
    naive = pd.DatetimeIndex(times).tz_localize(None).to_numpy()
    return np.minimum(naive, _LAST_MOMENT.astype(naive.dtype))


def moments_in_words(times: npt.NDArray[np.datetime64]) -> Callable[[int], str]:
    """Return a function that names the moments of a time axis: days, or minutes on a short one.

    >>> days = np.array(["2026-03-01T10:30", "2026-05-01T12:00"], dtype="datetime64[s]")
    >>> moments_in_words(days)(0), moments_in_words(days[:1])(0)
    ('2026-03-01', '2026-03-01 10:30')
    """
    is_long = times.max() - times.min() > np.timedelta64(7, "D")
    form = "%Y-%m-%d" if is_long else "%Y-%m-%d %H:%M"
    return lambda place: f"{pd.Timestamp(times[place]):{form}}"


def _round_numbers(low: float, high: float, max_count: int) -> Any:
    """Return at most about `max_count` round numbers between two limits, for a logarithmic axis.

    They are 1, 2 and 5 times powers of ten; 1 and 3 times, or only powers, if these are too many.
    If fewer than two lie between the limits, the numbers are evenly spaced instead.
    """
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        multiples = np.outer(powers, digits).ravel()
        ticks = multiples[(low <= multiples) & (multiples <= high)]
        if len(ticks) <= max_count:
            break
    if len(ticks) < 2:
        locator = MaxNLocator(nbins=max(3, max_count - 2), steps=STEPS)
        evenly_spaced: Any = locator.tick_values(low, high)
        return evenly_spaced[(low <= evenly_spaced) & (evenly_spaced <= high)]
    every = ceil(len(ticks) / max_count)  # powers of ten are too many: leave out some of them
    return ticks[::every]
