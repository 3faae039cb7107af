"""Invisible areas of a chart as SVG, which show the values of its lines on hover."""

import re
from collections.abc import Callable
from html import escape
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from memlab.text import for_terminal

MIN_AREA_WIDTH: Final = 7.5
"""Smallest width in points of an area; a wide chart has about sixty."""
_GID: Final = "hover-areas"
"""The ``gid`` of the artist that the areas replace in the SVG."""
_ABOVE_LINES: Final = 3.5
"""The ``zorder`` of the areas: above the lines, and above the labels that may cross them."""
ABOVE_AREAS: Final = 4
"""The ``zorder`` of marks that show a value of their own on hover."""


class HoverValues(NamedTuple):
    """The values of a chart's lines at points of the x axis.

    Attributes
    ----------
    ax : Axes
        The axes of the lines.
    x : array
        The points on the x axis, in data units.
    text : callable
        Returns the text of a point, whose index in `x` is the argument.
    """

    ax: Axes
    x: npt.NDArray[Any]
    text: Callable[[int], str]


def reserve_areas(ax: Axes) -> None:
    """Add an invisible artist to `ax`, which the areas replace in the SVG."""
    placeholder = Rectangle(
        (0, 0), 1, 1, transform=ax.transAxes, facecolor="none", edgecolor="none"
    )
    placeholder.set(gid=_GID, zorder=_ABOVE_LINES, in_layout=False, label="_hover")
    ax.add_artist(placeholder)


def with_areas(svg: str, values: HoverValues | None) -> str:
    """Return the SVG of a figure that was just drawn, with the areas of its values.

    Each area is as high as the axes, and shows the values of the nearest point of the x axis.
    Points that are nearer than `MIN_AREA_WIDTH` to each other share an area, which shows the values
    of the last one.
    """
    if values is None:
        return svg
    areas = "".join(_areas(values))
    group = f'<g fill="none" pointer-events="all">{areas}</g>'
    return re.sub(rf'<g id="{_GID}">.*?</g>', lambda _: group, svg, flags=re.DOTALL)


def _areas(values: HoverValues) -> list[str]:
    """Return the areas as SVG, in points from the upper left corner of the figure."""
    ax = values.ax
    figure = ax.figure.get_figure(root=True)
    points_per_pixel = 72 / figure.dpi
    left, bottom, right, top = points_per_pixel * np.array(ax.get_window_extent().extents)
    x = points_per_pixel * _pixels_across(values)
    indexes = _separate_points(x, left, right)
    if not len(indexes):
        return []
    centres = x[indexes]
    boundaries = (centres[1:] + centres[:-1]) / 2
    edges = np.concatenate([[left], boundaries, [right]])
    y = figure.get_figheight() * 72 - top
    height = top - bottom
    areas = []
    for start, end, index in zip(edges[:-1], edges[1:], indexes, strict=True):
        width = end - start
        shape = f"M{start:.1f} {y:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
        title = escape(for_terminal(values.text(int(index))), quote=False)
        areas.append(f'<path d="{shape}"><title>{title}</title></path>')
    return areas


def _pixels_across(values: HoverValues) -> npt.NDArray[np.float64]:
    """Return the points of the x axis in pixels from the left edge of the figure."""
    ax = values.ax
    numbers: Any = ax.xaxis.convert_units(values.x)  # type: ignore[no-untyped-call]
    x = np.asarray(numbers).astype(np.float64)
    y = np.full(len(x), ax.get_ylim()[0])
    pixels: npt.NDArray[np.float64] = ax.transData.transform(np.column_stack([x, y]))
    return pixels[:, 0]


def _separate_points(
    x: npt.NDArray[np.float64], left: float, right: float
) -> npt.NDArray[np.int64]:
    """Return the indexes of the points that have an area, from left to right.

    They lie on the axes, from `left` to `right`. The axes are divided into cells as wide as the
    smallest area, and each cell has the last of its points.
    """
    indexes = np.flatnonzero((left - 1 <= x) & (x <= right + 1))
    indexes = indexes[np.argsort(x[indexes], kind="stable")]
    if not len(indexes):
        return indexes
    cells_from_right = (x[indexes].max() - x[indexes]) // MIN_AREA_WIDTH
    is_last_of_cell = np.append(np.diff(cells_from_right) < 0, True)
    separate: npt.NDArray[np.int64] = indexes[is_last_of_cell]
    return separate
