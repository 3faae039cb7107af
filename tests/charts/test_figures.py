"""What charts are made of: axes with ticks that can be read, labels that keep apart, plain text."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from reading import drawn, title

from memlab.charts.figure import Chart
from memlab.charts.palette import LIGHT
from memlab.charts.parts import EndLabel, Plot, spread


def axes_over(first: str, last: str, *, width: float = 8.0) -> Axes:
    times = pd.DatetimeIndex([first, last]).to_numpy()
    ax = Chart(width=width).add_subplot()
    ax.plot(times, [0, 1])
    ax.margins(x=0)
    Plot(ax).time_axis(times)
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
    Plot(ax).log_axis(ax.xaxis)
    places = np.array(ax.get_xticks())
    assert 2 <= len(places) <= 9
    assert ((places >= low) & (places <= high)).all()
    assert ax.get_xscale() == "log"


def test_labels_at_line_ends_do_not_overlap() -> None:
    ax = Chart().add_subplot()
    ax.set(xlim=(0, 1), ylim=(0, 1000))
    notes = Plot(ax).label_ends([EndLabel(y, f"{y} things", LIGHT.ink) for y in (3, 0, 5, 1)])
    drawn(ax)
    boxes = sorted((note.get_window_extent().y0, note.get_window_extent().y1) for note in notes)
    assert all(top <= bottom for (_, top), (bottom, _) in pairwise(boxes))
    order = sorted(range(4), key=lambda n: notes[n].get_window_extent().y0)
    assert [notes[n].get_text() for n in order] == ["0 things", "1 things", "3 things", "5 things"]


@given(places=st.lists(st.floats(0, 1), max_size=8), gap=st.floats(0.001, 0.3))
def test_spread_keeps_order_gap_and_centre(places: list[float], gap: float) -> None:
    given_places = np.array(places)
    moved = spread(given_places, [gap] * len(places))
    order = np.argsort(given_places, kind="stable")
    assert (np.diff(moved[order]) >= gap - 1e-9).all()
    if places:
        assert moved.mean() == pytest.approx(given_places.mean())


@given(steps=st.lists(st.floats(0.1, 1), min_size=1, max_size=6))
def test_spread_leaves_alone_what_is_far_enough_apart(steps: list[float]) -> None:
    places = np.cumsum(steps)
    assert spread(places, [0.1 - 1e-9] * len(places)) == pytest.approx(places)


def test_spread_gives_a_label_of_two_lines_the_room_of_two() -> None:
    assert np.diff(spread(np.array([0.5, 0.5, 0.5]), [0.1, 0.2, 0.1])).tolist() == pytest.approx(
        [0.15, 0.15]
    )


@pytest.mark.parametrize(
    ("top", "labels"),
    [
        (9, {"0", "2", "4"}),
        (4_000, {"0", "1,000", "4,000"}),
        (40_000, {"0", "10 k", "40 k"}),
        (4_000_000, {"0", "1 M", "4 M"}),
    ],
)
def test_a_count_axis_reads_in_one_unit(top: int, labels: set[str]) -> None:
    ax = Chart().add_subplot()
    ax.set_ylim(0, top)
    Plot(ax).count_axis(ax.yaxis)
    drawn(ax)
    assert labels <= {label.get_text() for label in ax.get_yticklabels()}


def test_text_is_never_read_as_mathematics() -> None:
    ax = Chart().add_subplot()
    Plot(ax).heading("costs $x_{$ and $5", "from $1 to $y^{$")
    Plot(ax).footnote("$\\frac{$")
    Plot(ax).label_ends([EndLabel(0.5, "$z^{$", LIGHT.prunable)])
    drawn(ax)
    assert title(ax) == "costs $x_{$ and $5"
