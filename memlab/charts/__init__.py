"""Charts of computed frames: each takes ``ax=None``, draws, and returns the Axes.

A chart computes nothing, prints nothing and shows nothing. Without `ax` it draws on a figure of its
own, made without pyplot; ``ax.figure`` is the picture. A `cap` is one to look at, `advice` what
:func:`memlab.recommend_cap` returns, whose target, budget and caps are drawn.
"""

from memlab.lazy import import_extra

import_extra("matplotlib", extra="report")

from memlab.charts import caps, comparison, fleet, growth, history  # noqa: E402
from memlab.charts.caps import *  # noqa: E402, F403 - a chart is named where it is written alone
from memlab.charts.comparison import *  # noqa: E402, F403
from memlab.charts.fleet import *  # noqa: E402, F403
from memlab.charts.growth import *  # noqa: E402, F403
from memlab.charts.history import *  # noqa: E402, F403

__all__ = [
    name
    for module in (caps, comparison, fleet, growth, history)
    for name in vars(module)
    if name.startswith(("plot_", "mark_"))
]
