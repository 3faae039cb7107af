"""Helpers that read the contents of a chart from its axes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D


def drawn(ax: Axes) -> Axes:
    """Render the figure of some axes and return the axes."""
    assert isinstance(ax.figure, Figure)
    FigureCanvasAgg(ax.figure).draw()
    return ax


def lines_named(ax: Axes, name: str) -> list[Line2D]:
    return [line for line in ax.get_lines() if line.get_label() == name]


def line_named(ax: Axes, name: str) -> Line2D:
    (line,) = lines_named(ax, name)
    return line


def points_of(ax: Axes, name: str) -> tuple[list[Any], list[Any]]:
    """Return the x and y values of a named line."""
    line = line_named(ax, name)
    return list(line.get_xdata()), list(line.get_ydata())


def title(ax: Axes) -> str:
    return " ".join(ax.get_title(loc="left").split())


def written(ax: Axes) -> list[str]:
    """Return every text on the axes except tick labels."""
    texts = [text.get_text() for text in ax.texts]
    if legend := ax.get_legend():
        texts += [text.get_text() for text in legend.get_texts()]
    return [title(ax)] + [text for text in texts if text]


def note(ax: Axes) -> str:
    """Return the note below a chart on one line."""
    return " ".join(written(ax)).replace("\n", " ")


def upright_lines(ax: Axes) -> list[float]:
    """Return the x positions of the vertical lines of the axes."""
    positions = []
    for line in ax.get_lines():
        if list(line.get_ydata()) == [0, 1]:
            start, end = line.get_xdata()
            if start == end:
                positions.append(float(start))
    return positions


def assert_within_its_figure(ax: Axes) -> None:
    figure = drawn(ax).figure
    inside = figure.get_tightbbox()
    width, height = figure.get_size_inches()  # type: ignore[union-attr]
    assert min(inside.x0, inside.y0) >= -0.02, title(ax)
    assert inside.x1 <= width + 0.02, title(ax)
    assert inside.y1 <= height + 0.02, title(ax)
    for line in ax.lines:
        if line.get_marker() != "None" and line.get_clip_on():
            room = line.get_markersize() / 144 * ax.figure.dpi
            x, y = ax.transData.transform(line.get_path().vertices).T
            edges = np.abs([x - ax.bbox.x0, x - ax.bbox.x1, y - ax.bbox.y0, y - ax.bbox.y1])
            assert (edges > room - 1).all(), f"{title(ax)}: a mark of {line.get_label()} is cut"
