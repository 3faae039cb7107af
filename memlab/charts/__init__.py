"""Charts of computed frames: each takes ``ax=None``, draws, and returns the Axes.

A chart computes nothing, prints nothing and shows nothing. Without `ax` it draws on a figure of its
own, made without pyplot; ``ax.figure`` is the picture.
"""

from memlab.extras import import_extra

import_extra("matplotlib", extra="report")

from memlab.charts.comparison import (  # noqa: E402
    plot_comparison,
    plot_overlap,
    plot_regret,
)
from memlab.charts.evidence import (  # noqa: E402
    plot_age_ranks,
    plot_backtest,
    plot_boot_over_time,
)
from memlab.charts.fleet import (  # noqa: E402
    plot_fleet_caps,
    plot_fleet_growth,
    plot_fleet_tokens,
)
from memlab.charts.growth import (  # noqa: E402 - a missing matplotlib is explained first
    plot_backlog,
    plot_before_after,
    plot_boot_context,
    plot_growth,
)
from memlab.charts.law import plot_law  # noqa: E402
from memlab.charts.sizing import (  # noqa: E402
    mark_cap_curve,
    mark_trade_off,
    plot_cap_curve,
    plot_trade_off,
)

__all__ = [
    "mark_cap_curve",
    "mark_trade_off",
    "plot_age_ranks",
    "plot_backlog",
    "plot_backtest",
    "plot_before_after",
    "plot_boot_context",
    "plot_boot_over_time",
    "plot_cap_curve",
    "plot_comparison",
    "plot_fleet_caps",
    "plot_fleet_growth",
    "plot_fleet_tokens",
    "plot_growth",
    "plot_law",
    "plot_overlap",
    "plot_regret",
    "plot_trade_off",
]
