"""Axes say which day it is, and have ticks whatever they span."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from memlab.charts.figure import Chart
from memlab.charts.scales import log_axis, time_axis


def axes_over(first: str, last: str, *, width: float = 8.0) -> Axes:
    times = pd.DatetimeIndex([first, last]).to_numpy()
    ax = Chart(width=width).add_subplot()
    ax.plot(times, [0, 1])
    ax.margins(x=0)
    time_axis(ax, times)
    ax.figure.canvas.draw()
    return ax


def ticks(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_xticklabels()]


@pytest.mark.parametrize(
    ("first", "last", "start", "others"),
    [
        ("2025-03-01 09:00:00", "2025-03-01 09:01:30", "09:00:00\n1 Mar 2025", "09:01:00"),
        ("2025-03-01 09:00", "2025-03-01 17:00", "09:00\n1 Mar 2025", "12:00"),
        ("2025-03-01 20:00", "2025-03-02 20:00", "21:00\n1 Mar 2025", "00:00\n2 Mar 2025"),
        ("2025-03-01", "2025-03-20", "1 Mar\n2025", "9 Mar"),
        ("2024-07-01", "2026-07-01", "Jul\n2024", "Oct"),
        ("2010-01-01", "2026-01-01", "2010", "2012"),
    ],
)
def test_the_first_tick_says_the_day_and_the_year(
    first: str, last: str, start: str, others: str
) -> None:
    labels = ticks(axes_over(first, last))
    assert labels[0] == start
    assert others in labels


@pytest.mark.parametrize("width", [4.0, 8.0])
@pytest.mark.parametrize("hours", [0.001, 0.1, 1, 5, 24, 47, 100, 700, 1_500, 9_000, 20_000, 9e5])
def test_every_span_has_ticks_and_none_too_many(hours: float, width: float) -> None:
    last = pd.Timestamp("2025-01-31 13:37") + pd.Timedelta(hours=hours)
    assert 2 <= len(ticks(axes_over("2025-01-31 13:37", str(last), width=width))) <= 10


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 2), (7, 9), (700_000, 950_000), (0.8, 12), (3, 40), (1, 10**6), (1, 10**9)],
)
def test_a_logarithmic_axis_has_ticks_whatever_it_spans(low: float, high: float) -> None:
    ax = Chart().add_subplot()
    ax.set_xlim(low, high)
    log_axis(ax.xaxis)
    places = np.array(ax.get_xticks())
    assert 2 <= len(places) <= 9
    assert ((places >= low) & (places <= high)).all()
    assert ax.get_xscale() == "log"
