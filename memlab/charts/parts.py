"""Axes, labels, scales and marks that all charts share. ``rcParams`` and pyplot are not used."""

from collections.abc import Callable, Sequence
from enum import Enum
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
from matplotlib.transforms import Bbox, Transform, blended_transform_factory

from memlab import columns as c
from memlab.charts.figure import FOOTNOTE, LAYOUT_MARGINS, PAD, SUBTITLE, Chart, palette_of
from memlab.charts.hover import ABOVE_AREAS, HoverValues, reserve_areas
from memlab.sizing import Advice
from memlab.text import counted, for_terminal, percent, percent_as_given

EMPTY_HEIGHT: Final = 1.7
"""Height in inches of a chart that has no data to draw."""
SMALL_FONT: Final = 9.0
"""Font size in points of tick labels, direct labels and notes."""
TITLE_FONT: Final = 12.0
"""Font size in points of titles."""
MAX_LABEL_LINE: Final = 22
"""Maximum number of characters in a line of a direct label."""
DOT_DIAMETERS: Final = (3.6, 8.0)
"""Smallest and largest diameter in points of a dot for one point; the more dots, the smaller."""
MAX_DOT_DIAMETER: Final = 22.0
"""Maximum diameter in points of a dot for several points; the others scale with it."""
MIN_WIDE: Final = 5.0
"""Width in inches from which six tick labels fit side by side below a chart."""
DASHES: Final = (0, (4, 3))
"""Line style of caps, targets and budgets."""
TICK_STEPS: Final = [1, 2, 2.5, 5, 10]
"""Distances between ticks, as multiples of a power of ten."""
NOTHING_YET: Final = "No memories yet"
NO_REFERENCES: Final = "No later reference to an earlier memory is known"

Numbers = npt.NDArray[np.float64]
Measure = Literal["memories", "tokens"]


class CapKind(Enum):
    """Why a chart marks a cap."""

    LIKELY = "likely"
    """The likely cap of a recommendation."""
    SAFE = "safe"
    """The safe cap of a recommendation."""
    CHOSEN = "keep_recent ="
    """A cap that the caller chose."""


class MarkedCap(NamedTuple):
    """A cap that a chart marks, with its label and its colour."""

    value: int
    kind: CapKind
    name: str
    colour: str


class EndLabel(NamedTuple):
    """A label at the right end of a line, at the height `y` in data units."""

    y: float
    text: str
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
        """The attributes of all frames, merged."""
        for frame in frames:
            self.attributes.update(frame.attrs)
        self.figure = self.ax.figure.get_figure(root=True)
        self._owns_figure = isinstance(self.figure, Chart)
        self._left_edge = 0.0
        self._x_transform = self.ax.transAxes
        if self._owns_figure:  # text begins at the left edge of the figure
            self._left_edge = PAD
            self._x_transform = self.figure.dpi_scale_trans
        self._end_labels: list[EndLabel] = []
        if height is not None:
            self._set_height(height)
            self._style_axes()

    def _style_axes(self) -> None:
        """Style the axes: without a box, with grey spines and only horizontal grid lines."""
        ax = self.ax
        palette = self.palette
        ax.set_facecolor("none")
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(palette.grey)
        ax.grid(visible=True, axis="y", color=palette.hairline, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.tick_params(color=palette.grey, labelcolor=palette.muted, labelsize=SMALL_FONT, length=3)
        for axis in (ax.xaxis, ax.yaxis):
            axis.label.set(color=palette.muted, size=SMALL_FONT)

    def _set_height(self, inches: float) -> None:
        """Set the height of the chart's own figure; a figure of the caller stays as it is."""
        if self._owns_figure:
            self.figure.set_figheight(inches)

    def _grow(self, points: float) -> None:
        """Increase the height by a number of points, to make room for text."""
        self._set_height(float(self.figure.get_figheight()) + points / 72)

    @property
    def token_note(self) -> str:
        """A sentence on how the tokens were counted."""
        rule = self.attributes.get(c.TOKEN_RULE) or "counted by a rule that was not stated"
        return f"Tokens: {rule}."

    def loaded_or_recalled(self, loaded: str, recalled: str) -> str:
        """Return `recalled` if memories are only searched, else `loaded`."""
        return recalled if self.attributes.get(c.RECALLED) else loaded

    def draw_empty(self, title: str, reason: str) -> Axes:
        """Draw a low chart without ticks: a title, and a sentence on why there is no data."""
        ax = self.ax
        if isinstance(self.figure, Chart):
            self.figure.nothing_to_show = f"{title}: {reason[:1].lower()}{reason[1:].rstrip('.')}."
        self._set_height(EMPTY_HEIGHT)
        self.draw_heading(title)
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

    def draw_heading(self, title: str, *subtitle: str, legend: Sequence[Artist] = ()) -> None:
        """Write the title above the axes, and below it the subtitle and the legend.

        Call it when the limits of the axes are final, because it also labels the ends of lines. The
        subtitle begins with the source and the number of references, if they are known.

        Parameters
        ----------
        title : str
            The title.
        *subtitle : str
            Sentences of the subtitle; empty ones are skipped.
        legend : sequence of Artist
            The artists in the legend.
        """
        self._draw_end_labels()
        characters = self.characters_across
        title_text = fill(
            title.replace(" = ", "\u00a0=\u00a0"),
            int(characters * SMALL_FONT / TITLE_FONT * 0.86),
            break_on_hyphens=False,
        )
        subtitle_text = fill(self._with_source(subtitle), characters)
        columns = _legend_columns(legend, characters)
        legend_lines = ceil(len(legend) / columns) if legend else 0
        legend_height = 2 + 14 * legend_lines if legend else 0
        self._grow(
            17 * title_text.count("\n")
            + 13 * subtitle_text.count("\n")
            + 14 * max(0, legend_lines - 1)
        )
        height_below_title = 13 * len(subtitle_text.splitlines()) + legend_height
        self._write_title(title_text, pad=8 + height_below_title)
        if subtitle_text:
            self._write_subtitle(subtitle_text, offset=6 + legend_height)
        if legend:
            self._draw_legend(legend, columns)

    def _with_source(self, subtitle: Sequence[str]) -> str:
        """Join the sentences of a subtitle, after the source and the number of references."""
        source_and_references = []
        if self.attributes.get(c.SOURCE):
            source_and_references.append(for_terminal(str(self.attributes[c.SOURCE])))
        if c.REFERENCES in self.attributes:
            source_and_references.append(counted(self.attributes[c.REFERENCES], "references"))
        sentences = [", ".join(source_and_references), *subtitle]
        return " ".join(f"{sentence.rstrip('.')}." for sentence in sentences if sentence)

    def _write_title(self, text: str, *, pad: float) -> None:
        """Write the title at the left edge, `pad` points above the axes."""
        title = self.ax.set_title(text, loc="left", pad=pad, parse_math=False)
        title.set(color=self.palette.ink, fontsize=TITLE_FONT, fontweight="bold")
        transform = blended_transform_factory(self._x_transform, title.get_transform())
        title.set(x=self._left_edge, transform=transform)

    def _write_subtitle(self, text: str, *, offset: float) -> None:
        """Write the subtitle at the left edge, `offset` points above the axes."""
        style: dict[str, Any] = {
            "xycoords": self._above_axes,
            "in_layout": not self._owns_figure,
            "va": "bottom",
            "gid": SUBTITLE,
        }
        self._write_outside(text, (self._left_edge, 1), (0, offset), **style)

    def _draw_legend(self, artists: Sequence[Artist], columns: int) -> None:
        """Draw the legend at the left edge, directly above the axes."""
        legend = self.ax.legend(
            handles=artists,
            loc="lower left",
            bbox_to_anchor=(self._left_edge, 1),
            bbox_transform=self._above_axes,
            ncols=columns,
            frameon=False,
            fontsize=SMALL_FONT,
            labelcolor=self.palette.muted,
            handlelength=1.6,
            handleheight=1,
            borderaxespad=0.1,
            borderpad=0.2,
            columnspacing=1.4,
        )
        legend.set_in_layout(not self._owns_figure)

    @property
    def _above_axes(self) -> Transform:
        """Coordinates of text above the axes: x like `_left_edge`, y as a fraction of the axes."""
        return blended_transform_factory(self._x_transform, self.ax.transAxes)

    def draw_footnote(self, *sentences: str) -> Axes:
        """Write sentences below the axes, wrapped to their width, and return the axes.

        Empty sentences are skipped.
        """
        text = " ".join(sentence for sentence in sentences if sentence)
        if not text:
            return self.ax
        wrapped = fill(text, self.characters_across)
        self._grow(13 * wrapped.count("\n"))
        if self._owns_figure:
            self._write_at_bottom(wrapped)
        else:
            below = 42 if self.ax.get_xlabel() else 34
            self._write_outside(wrapped, (0, 0), (0, -below), va="top", gid=FOOTNOTE)
        return self.ax

    def _write_at_bottom(self, text: str) -> None:
        """Write a footnote at the bottom of the chart's own figure, and move the axes above it."""
        points = 5 + 13 * len(text.splitlines())
        share_of_height = points / 72 / self.figure.get_figheight()
        rect = (0, share_of_height, 1, 1 - share_of_height)
        self.figure.set_layout_engine("constrained", rect=rect, **LAYOUT_MARGINS)
        style = {"xycoords": self.figure.dpi_scale_trans, "in_layout": False, "gid": FOOTNOTE}
        self._write_outside(text, (PAD, PAD), (0, 0), **style)

    def write(
        self, text: str, at: tuple[float, float], offset: tuple[float, float] = (0, 0), **style: Any
    ) -> Annotation:
        """Write small text beside a point in data units, at an offset in points.

        `style` has keyword arguments of matplotlib. Its `colour` is the colour of a mark; the text
        has the legible variant of that colour.
        """
        mark_colour = style.pop("colour", self.palette.muted)
        return self.ax.annotate(
            text,
            at,
            xytext=offset,
            textcoords="offset points",
            color=self.palette.text_colour(mark_colour),
            **{"fontsize": SMALL_FONT, "parse_math": False, **style},
        )

    def _write_outside(
        self, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
    ) -> Annotation:
        """Write small text outside the axes, at a point in fractions of them."""
        defaults = {"xycoords": "axes fraction", "annotation_clip": False, "linespacing": 1.25}
        return self.write(text, at, offset, **{**defaults, **style})

    @property
    def label_box(self) -> dict[str, Any]:
        """Style of the box behind a label, which keeps it legible where a line crosses it."""
        return {"facecolor": self.palette.paper, "alpha": 0.8, "linewidth": 0, "pad": 0.5}

    def label_end(self, y: float, text: str, colour: str) -> None:
        """Register a label for the right end of a line, whose last value is `y`.

        :meth:`draw_heading` writes all registered labels.
        """
        self._end_labels.append(EndLabel(y, text, colour))

    def _draw_end_labels(self) -> None:
        """Write the registered labels at the right edge, moved apart so that none overlap."""
        right = self.ax.get_xlim()[1]
        wanted_places = []
        texts = []
        for label in self._end_labels:
            _, fraction_of_height = self.to_axes_fraction(right, label.y)
            wanted_places.append(fraction_of_height)
            texts.append(fill(for_terminal(label.text), MAX_LABEL_LINE, break_on_hyphens=False))
        line_counts = np.array([1 + text.count("\n") for text in texts])
        label_heights = 1.25 * SMALL_FONT * line_counts
        self._grow(1.5 * max(0.0, label_heights.sum() - self._estimated_axes_height))
        places = spread(np.array(wanted_places), label_heights / self._estimated_axes_height)
        for label, text, place in zip(self._end_labels, texts, places, strict=True):
            self._write_outside(text, (1, float(place)), (7, 0), va="center", colour=label.colour)

    @property
    def _estimated_axes_height(self) -> float:
        """Height of the axes in points; an estimate, because the layout is not computed yet."""
        share_of_figure = 0.66 if self._owns_figure else float(self.ax.get_position().height)
        return 72 * share_of_figure * float(self.figure.get_figheight())

    def caps_to_mark(self, advice: Advice | None, cap: int | None) -> list[MarkedCap]:
        """Return the likely cap, the safe cap and the chosen one, without those that are None."""
        caps: dict[CapKind, int | None] = {}
        if advice is not None:
            safe = advice.trade[0].keep_recent if advice.trade else advice.keep_recent
            caps[CapKind.LIKELY] = advice.likely
            caps[CapKind.SAFE] = safe
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

    def add_hover_text(self, artist: Artist, text: str) -> None:
        """Add a text that a mark shows on hover, in the chart as SVG."""
        if isinstance(self.figure, Chart):
            gid = f"mark-{len(self.figure.hover_titles) + 1}"
            artist.set_gid(gid)
            self.figure.hover_titles[gid] = for_terminal(text)

    def add_hover_dot(self, x: float, y: float, text: str) -> None:
        """Add an invisible dot at a point in data units, which shows a text on hover."""
        options: dict[str, Any] = {
            "markersize": 7,
            "alpha": 0.01,
            "label": "_value",
            "zorder": ABOVE_AREAS,
        }
        (dot,) = self.ax.plot(x, y, "o", color=self.palette.ink, **options)
        self.add_hover_text(dot, text)

    def add_hover_areas(self, x: Any, text: Callable[[int], str]) -> None:
        """Add areas along the lines, which show their values on hover, in the chart as SVG.

        Parameters
        ----------
        x : array
            The points on the x axis, in data units.
        text : callable
            Returns the text of a point, whose index in `x` is the argument. It is called only for
            points that are far enough from each other to be pointed at.
        """
        if isinstance(self.figure, Chart):
            self.figure.hover_values = HoverValues(self.ax, np.asarray(x), text)
            reserve_areas(self.ax)

    def draw_horizontal_line(self, value: float, text: str, colour: str = "") -> None:
        """Draw a cap or a threshold as a dashed horizontal line with a label at its end."""
        colour = colour or self.palette.ink
        self.ax.axhline(value, color=colour, linewidth=1.2, linestyle=DASHES, label="_cap")
        self.label_end(value, text, colour)

    def draw_target(self, share: float) -> Annotation:
        """Draw the target as a dashed horizontal line, and return the label at its start."""
        self.ax.axhline(
            share, color=self.palette.ink, linewidth=1.2, linestyle=DASHES, label="_cap"
        )
        style: dict[str, Any] = {
            "xycoords": ("axes fraction", "data"),
            "va": "bottom",
            "colour": self.palette.ink,
            "bbox": self.label_box,
        }
        return self.write(f"target {percent_as_given(share)}", (0, share), (4, 3), **style)

    def draw_vertical_line(self, x: float, text: str, colour: str, *, row: int = 0) -> None:
        """Draw a dashed vertical line at `x`, with a label at its foot on the side with room.

        `row` stacks the labels of several lines. A line outside the axes is not drawn.
        """
        left, right = self.ax.get_xlim()
        if not left <= x <= right:
            return
        self.ax.axvline(x, color=colour, linewidth=1.2, linestyle=DASHES, label="_cap")
        fraction_of_width, _ = self.to_axes_fraction(x, 0)
        is_at_right = fraction_of_width > 0.6
        style: dict[str, Any] = {
            "xycoords": ("data", "axes fraction"),
            "ha": "right" if is_at_right else "left",
            "colour": colour,
            "bbox": self.label_box,
        }
        offset = (-4 if is_at_right else 4, 5 + 14 * row)
        self.write(text, (x, 0), offset, **style)

    def draw_merged_dots(
        self, points: Numbers, *, among: int, max_dots: int = 600, **style: Any
    ) -> int:
        """Draw points as dots, and merge near ones so that there are at most `max_dots` dots.

        The area of a dot is proportional to the number of its points.

        Parameters
        ----------
        points : array of float64, shape (n, 2)
            The points, in data units.
        among : int
            Number of points in all calls for one chart, which determines the size of a dot.
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
        diameter = float(np.clip(40 / np.sqrt(among), *DOT_DIAMETERS))  # of a dot for one point
        pixels_per_point = self.figure.dpi / 72
        places = ax.transData.transform(points.reshape(-1, 2)) / pixels_per_point
        merged = _merge_points(places, cell_size=diameter, max_dots=max_dots)
        largest_count = merged.counts.max(initial=1)
        max_diameter = MAX_DOT_DIAMETER
        if merged.cell_size > diameter:  # neighbouring cells have dots, which must not overlap
            max_diameter = merged.cell_size
        diameter_of_one = min(diameter, max_diameter / np.sqrt(largest_count))
        diameters = diameter_of_one * np.sqrt(merged.counts)
        # to half points, because an SVG defines the mark of each size once
        diameters = np.maximum(np.round(2 * diameters) / 2, 1.5)
        x, y = ax.transData.inverted().transform(merged.centres * pixels_per_point).T
        for size in np.unique(diameters):
            has_size = diameters == size
            dots: dict[str, Any] = {
                "linestyle": "none",
                "markersize": size,
                "markeredgewidth": 0,
                "clip_on": False,
                "alpha": 0.6,
                "zorder": 2.5,
            }
            ax.plot(x[has_size], y[has_size], **dots, **style)
        return int(merged.counts.max(initial=0))

    def to_axes_fraction(self, x: float, y: float) -> Any:
        """Return a point in data units as fractions of the axes, from the lower left corner."""
        return (self.ax.transData + self.ax.transAxes.inverted()).transform((x, y))

    @property
    def characters_across(self) -> int:
        """Estimated number of small characters that fit across the axes, or the chart's figure."""
        share_of_figure = 0.96 if self._owns_figure else float(self.ax.get_position().width)
        points = 72 * share_of_figure * self.figure.get_size_inches()[0]
        character_width = 0.56 * SMALL_FONT
        return max(24, int(points / character_width))

    @property
    def is_narrow(self) -> bool:
        """True if the figure is too narrow for six tick labels side by side."""
        return bool(self.figure.get_size_inches()[0] < MIN_WIDE)

    def name_axis(self, axis: Axis, name: str) -> None:
        """Label an axis; the label of the x axis wraps at its width."""
        if axis is self.ax.xaxis:
            name = fill(name, max(30, int(0.7 * self.characters_across)))
        axis.set_label_text(name)

    def set_count_axis(self, axis: Axis, name: str = "") -> None:
        """Set whole numbers as ticks of `axis`, all in one unit: 1,200 or 45 k or 1.5 M."""

        def label(value: float, _: int) -> str:
            largest = max(abs(limit) for limit in axis.get_view_interval())
            if largest < 1e4 or value == 0:
                return f"{value:,.0f}"
            if largest < 1e6:
                return f"{value / 1e3:,.4g} k"
            return f"{value / 1e6:,.4g} M"

        max_ticks = 3 if axis is self.ax.xaxis and self.is_narrow else 6
        axis.set_major_locator(
            MaxNLocator(nbins=max_ticks, steps=TICK_STEPS, integer=True, min_n_ticks=1)
        )
        axis.set_major_formatter(FuncFormatter(label))
        self.name_axis(axis, name)

    def set_percent_axis(
        self, axis: Axis, name: str, limits: tuple[float, float] = (0, 1.03)
    ) -> None:
        """Set ticks in percent for `axis`, which holds shares between 0 and 1."""
        if axis is self.ax.xaxis:
            self.ax.set_xlim(limits)
        else:
            self.ax.set_ylim(limits)
        axis.set_major_locator(_ShareLocator(nbins=6, steps=TICK_STEPS))
        axis.set_major_formatter(PERCENT_FORMATTER)
        self.name_axis(axis, name)

    def set_log_axis(
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
            if self.is_narrow:
                max_ticks = 3
        else:
            self.ax.set(yscale="log", ylim=limits)
        low, high = sorted(axis.get_view_interval())
        axis.set_major_locator(FixedLocator(_round_numbers(low, high, max_ticks)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_short(value)))
        self.name_axis(axis, name)

    def set_time_axis(self) -> None:
        """Set dates as ticks of the x axis, in the shortest format that is unambiguous."""
        min_ticks, max_ticks = (2, 5) if self.is_narrow else (4, 9)
        locator = AutoDateLocator(minticks=min_ticks, maxticks=max_ticks)  # type: ignore[no-untyped-call]
        locator.intervald[MONTHLY] = [1, 2, 3, 6, 12]
        self.ax.xaxis.set_major_locator(locator)
        self.ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        self.ax.xaxis.get_offset_text().set(color=self.palette.muted, fontsize=SMALL_FONT)

    def name_rows(self, places: Sequence[float], names: Sequence[str]) -> None:
        """Label rows on the y axis, without ticks and grid lines."""
        self.ax.set_yticks(places, names, color=self.palette.ink)
        self.ax.grid(visible=False, axis="y")
        self.ax.tick_params(axis="y", length=0)


def check_measure(measure: str) -> None:
    """Raise a ValueError if `measure` is neither "memories" nor "tokens"."""
    if measure not in get_args(Measure):
        raise ValueError(f"measure must be 'memories' or 'tokens', not {measure!r}")


def _legend_columns(artists: Sequence[Artist], characters: int) -> int:
    """Return the number of columns of a legend that is at most so many `characters` wide."""
    widths = [len(str(artist.get_label())) + 8 for artist in artists]
    if sum(widths) <= characters:
        return len(artists)
    return max(1, characters // max(widths))


class MergedPoints(NamedTuple):
    """Points that were merged by the cells of a grid.

    Attributes
    ----------
    centres : array of float64, shape (cells, 2)
        The mean of the points in each cell that has some.
    counts : array of int64, shape (cells,)
        Their number.
    cell_size : float
        Width and height of a cell.
    """

    centres: Numbers
    counts: npt.NDArray[np.int64]
    cell_size: float


def _merge_points(places: Numbers, *, cell_size: float, max_dots: int) -> MergedPoints:
    """Merge the points in each cell of a grid; enlarge the cells to at most `max_dots` in use."""
    while True:
        cells = np.floor(places / cell_size).astype(np.int64)
        _, cell, counts = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
        if len(counts) <= max_dots:
            break
        cell_size *= 1.2
    centres = np.column_stack([np.bincount(cell, places[:, axis]) / counts for axis in (0, 1)])
    return MergedPoints(centres, counts, cell_size)


def shade(colour: str, alpha: float = 0.22) -> dict[str, Any]:
    """Return the style of a shaded area, as keyword arguments of matplotlib."""
    return {"color": colour, "alpha": alpha, "linewidth": 0}


def spread(places: Numbers, sizes: Numbers) -> Numbers:
    """Return `places` moved apart so that labels of these sizes do not overlap.

    Places and sizes are fractions of the axes. The order is kept. `stacked` are the places of
    labels that are stacked from zero without a gap. Labels do not overlap if their offsets from
    these places do not decrease, which an isotonic regression ensures: each offset becomes the mean
    of the largest one up to it and the smallest one from it on. The labels are moved into the range
    from 0 to 1.
    """
    order = np.argsort(places, kind="stable")
    sorted_sizes = sizes[order]
    stacked = np.cumsum(sorted_sizes) - sorted_sizes / 2
    offsets = places[order] - stacked
    largest_until = np.maximum.accumulate(offsets)
    smallest_from = np.minimum.accumulate(offsets[::-1])[::-1]
    regression = (largest_until + smallest_from) / 2
    inside = np.clip(regression, -stacked[:1], 1 - stacked[-1:])
    result = np.empty(len(places))
    result[order] = inside + stacked
    return result


class _Side(NamedTuple):
    """The side of a point on which a label is written."""

    across: int
    """1 for right, -1 for left."""
    up: int
    """1 for above, -1 for below."""


_SIDES: Final = (_Side(1, -1), _Side(-1, 1), _Side(1, 1), _Side(-1, -1))
"""All sides, in the order in which they are tried."""
_LEFT_SIDES: Final = (_Side(-1, -1), _Side(-1, 1))


class PointLabels:
    """Labels beside points, each written only if there is room; write the important ones first."""

    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        self._reserved: list[Bbox] = []

    def reserve(self, x: float, y: float) -> None:
        """Reserve the place of a point, so that no label covers it."""
        place = self._plot.ax.transData.transform((x, y))
        self._reserved.append(Bbox([place, place]).padded(3))

    def reserve_line(self, x: Numbers, y: Numbers) -> None:
        """Reserve the straight lines between points, so that no label crosses them."""
        corners = self._plot.ax.transData.transform(np.column_stack([x, y]))
        for start, end in pairwise(corners):
            length = np.hypot(*(end - start))
            steps = 1 + int(length / 4)
            for place in np.linspace(start, end, steps + 1):
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

        With `above`, the sides above the point are tried first.
        """
        is_at_right_edge = self._plot.to_axes_fraction(x, y)[0] > 0.9
        sides = list(_LEFT_SIDES if is_at_right_edge else _SIDES)
        if above:
            sides.sort(key=lambda side: side.up, reverse=True)
        for side in sides:
            style: dict[str, Any] = {
                "ha": "left" if side.across > 0 else "right",
                "va": "bottom" if side.up > 0 else "top",
                "bbox": self._plot.label_box,
                "fontweight": weight,
                "colour": colour,
            }
            note = self._plot.write(text, (x, y), (5 * side.across, 4 * side.up), **style)
            extent = note.get_window_extent()
            if self._has_room(extent):
                self._reserved.append(extent.padded(2))
                return note
            note.remove()
        return None

    def _has_room(self, extent: Bbox) -> bool:
        """Return True if a label lies inside the axes and covers no reserved place."""
        axes = self._plot.ax.get_window_extent()
        fits_across = axes.x0 <= extent.x0 and extent.x1 <= axes.x1
        fits_up = axes.y0 <= extent.y0 and extent.y1 <= axes.y1 + 2
        return bool(fits_across and fits_up and not extent.count_overlaps(self._reserved))


def format_short(value: float) -> str:
    """Write a number with at most four digits and a unit.

    >>> [format_short(v) for v in (0, 8, 592, 9_995, 45_200, 1_250_000)]
    ['0', '8', '592', '9,995', '45 k', '1.2 M']
    """
    size = abs(value)
    if size < 9_999.5:
        is_shown_whole = float(value).is_integer() or size >= 100
        return f"{value:,.0f}" if is_shown_whole else f"{value:.3g}"
    if size < 999_500:
        return f"{value / 1e3:.0f} k"
    return f"{value / 1e6:.1f} M"


def format_share(value: float) -> str:
    """Write a share in percent, with a decimal if it is small or large.

    >>> [format_share(v) for v in (0, 0.0004, 0.5, 0.987, 0.9996, 1)]
    ['0%', '<0.1%', '50%', '98.7%', '99.9%', '100%']
    """
    has_decimal = 0 < value < 0.1 or 0.9 < value < 1
    return percent(value, decimals=1 if has_decimal else 0)


class _ShareLocator(MaxNLocator):
    """A locator of round shares that places no tick above 1, even if the axis is longer."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        return super().tick_values(vmin, min(vmax, 1.0))


PERCENT_FORMATTER: Final = FuncFormatter(lambda value, _: percent_as_given(value))


_LAST_MOMENT: Final = np.datetime64("9999-12-31T00:00:00")
"""Latest time that matplotlib can draw: it counts days as floats, which are rounded up."""


def without_zone(times: Any) -> npt.NDArray[np.datetime64]:
    """Return times in UTC without a time zone; limit them to the last day matplotlib can draw."""
    naive = pd.DatetimeIndex(times).tz_localize(None).to_numpy()
    return np.minimum(naive, _LAST_MOMENT.astype(naive.dtype))


def moment_formatter(times: npt.NDArray[np.datetime64]) -> Callable[[int], str]:
    """Return a function that writes a time by its index: the day, or the minute on a short axis.

    >>> days = np.array(["2026-03-01T10:30", "2026-05-01T12:00"], dtype="datetime64[s]")
    >>> moment_formatter(days)(0), moment_formatter(days[:1])(0)
    ('2026-03-01', '2026-03-01 10:30')
    """
    is_long = times.max() - times.min() > np.timedelta64(7, "D")
    time_format = "%Y-%m-%d" if is_long else "%Y-%m-%d %H:%M"
    return lambda index: f"{pd.Timestamp(times[index]):{time_format}}"


def _round_numbers(low: float, high: float, max_count: int) -> Any:
    """Return at most about `max_count` round numbers between two limits, for a logarithmic axis.

    They are powers of ten times 1, 2 and 5; if these are too many, times 1 and 3, or powers alone.
    If fewer than two lie between the limits, the numbers are evenly spaced instead.
    """
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        multiples = np.outer(powers, digits).ravel()
        ticks = multiples[(low <= multiples) & (multiples <= high)]
        if len(ticks) <= max_count:
            break
    if len(ticks) < 2:
        locator = MaxNLocator(nbins=max(3, max_count - 2), steps=TICK_STEPS)
        evenly_spaced: Any = locator.tick_values(low, high)
        return evenly_spaced[(low <= evenly_spaced) & (evenly_spaced <= high)]
    every = ceil(len(ticks) / max_count)  # powers of ten are too many: leave out some of them
    return ticks[::every]
