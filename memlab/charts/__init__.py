"""Charts of computed frames: each takes ``ax=None``, draws, and returns the Axes.

A chart computes nothing, prints nothing and shows nothing. Without `ax` it draws on a figure of its
own, made without pyplot; ``ax.figure`` is the picture.
"""

from memlab.extras import import_extra

import_extra("matplotlib", extra="report")

from memlab.charts.growth import (  # noqa: E402 - a missing matplotlib is explained first
    plot_backlog,
    plot_before_after,
    plot_boot_context,
    plot_growth,
)

__all__ = ["plot_backlog", "plot_before_after", "plot_boot_context", "plot_growth"]
