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

AREA: Final = 7.5
"""Smallest width in points of an area: some sixty of them lie across a wide chart."""
_GID: Final = "hover-areas"
"""The ``gid`` of the artist that the areas replace in the SVG."""
_ABOVE_LINES: Final = 3.5
"""Order of drawing of the areas: above the lines and the labels that may cross them."""
ABOVE_AREAS: Final = 4
"""Order of drawing of marks that show a value of their own on hover."""


class HoverValues(NamedTuple):
    """The values of a chart's lines, by their place along the x axis.

    Attributes
    ----------
    ax : Axes
        The axes of the lines.
    across : array
        The places on the x axis, in data units.
    text : callable
        Returns the text for a place by its number.
    """

    ax: Axes
    across: npt.NDArray[Any]
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

    Each area is as high as the axes, and shows the values of the nearest place along the x axis.
    Places that are nearer than `AREA` to each other share an area, with the values of the last.
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
    points = 72 / figure.dpi
    left, bottom, right, top = points * np.array(ax.get_window_extent().extents)
    in_units: Any = ax.xaxis.convert_units(values.across)  # type: ignore[no-untyped-call]
    across = np.asarray(in_units).astype(np.float64)
    on_axis = np.column_stack([across, np.full(len(across), ax.get_ylim()[0])])
    places = points * ax.transData.transform(on_axis)[:, 0]
    indexes = np.flatnonzero((left - 1 <= places) & (places <= right + 1))
    indexes = indexes[np.argsort(places[indexes], kind="stable")]
    if not len(indexes):
        return []
    cells_from_right = (places[indexes].max() - places[indexes]) // AREA
    is_last_of_cell = np.append(np.diff(cells_from_right) < 0, True)
    indexes = indexes[is_last_of_cell]
    centres = places[indexes]
    edges = np.concatenate([[left], (centres[1:] + centres[:-1]) / 2, [right]])
    y = figure.get_figheight() * 72 - top
    down = top - bottom
    areas = []
    for start, end, place in zip(edges, edges[1:], indexes, strict=False):
        width = end - start
        shape = f"M{start:.1f} {y:.1f}h{width:.1f}v{down:.1f}h-{width:.1f}z"
        title = escape(for_terminal(values.text(int(place))), quote=False)
        areas.append(f'<path d="{shape}"><title>{title}</title></path>')
    return areas
