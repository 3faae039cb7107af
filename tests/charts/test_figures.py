"""A chart shows itself as text, as SVG in either theme and as PNG; its parts can be read."""

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_frame, row
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from reading import assert_within_its_figure, drawn, line_named, title

from memlab import columns as c
from memlab import growth_curve
from memlab.charts import plot_growth
from memlab.charts.figure import NARROW, Chart
from memlab.charts.palette import DARK, LIGHT, roles
from memlab.charts.parts import Plot, spread

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def curve() -> pd.DataFrame:
    made = growth_curve(make_frame(row("d", **{c.KIND: "semantic"}), *(f"e{n}" for n in range(30))))
    made.attrs[c.CAVEAT] = "3 memories were deleted without an archive."
    return made


@pytest.fixture(scope="module")
def chart(curve: pd.DataFrame) -> Chart:
    return chart_of(plot_growth(curve))


@pytest.fixture(scope="module")
def svg(chart: Chart) -> str:
    return chart.svg()


def chart_of(ax: Axes) -> Chart:
    assert isinstance(ax.figure, Chart)
    return ax.figure


def bare(width: float = 8.0) -> Axes:
    """Axes of a chart that has drawn nothing yet."""
    return Chart(lambda ax: ax, width=width).axes[0]


def texts(svg: str) -> list[str]:
    return [
        "".join(text.itertext()).strip() for text in ElementTree.fromstring(svg).iter(f"{SVG}text")
    ]


def test_a_chart_says_what_is_seen(chart: Chart) -> None:
    assert chart.title == "30 prunable beside 1 load-bearing memory"
    for words in (chart.alt, repr(chart)):
        assert "30 prunable; 1 load-bearing" in words
        assert "3 memories were deleted without an archive." in words
        assert "96.8% of that is prunable" in words


def test_an_svg_is_text_and_the_same_every_time_and_fetches_nothing(
    chart: Chart, svg: str, curve: pd.DataFrame
) -> None:
    assert {chart.title, "30 prunable"} <= set(texts(svg))
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == chart.title
    assert root.findtext(f"{SVG}desc") == chart.alt
    assert chart_of(plot_growth(curve)).svg() == svg
    assert set(re.findall(r"https?://[^\"'\s)]+", svg)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in svg


def test_every_colour_of_an_svg_follows_the_theme(svg: str) -> None:
    body = svg[svg.index("</style>") :]
    plain = set(re.findall(r"(?<!,)#[0-9a-f]{6}\b", body))
    assert plain <= {"#000000"}  # what clips is black, and never seen
    assert f"var(--chart-prunable,{LIGHT.prunable})" in body
    for name, colour in roles(DARK).items():
        assert f"--chart-{name}:{colour}" in svg


def test_whatever_a_store_is_called_stays_text(curve: pd.DataFrame) -> None:
    named = curve.copy()
    named.attrs[c.SOURCE] = "#3188fc <b>&a\x1b[31m\x00.db"
    shown = chart_of(plot_growth(named)).svg()
    assert any("#3188fc <b>&a" in text for text in texts(shown))
    assert "<b>" not in shown


def test_a_notebook_gets_it_wide_and_narrow(chart: Chart) -> None:
    shown = chart._repr_html_()
    assert shown.count("<svg ") == 2
    assert 0 < shown.index('class="narrow"') < shown.index('class="wide"')
    for host in ('data-jp-theme-light="false"', "vscode-dark", "prefers-color-scheme:dark"):
        assert host in shown


def test_drawn_anew_it_says_the_same_at_another_width_on_other_paper(
    chart: Chart, svg: str
) -> None:
    dark = chart.at(width=NARROW, palette=DARK)
    assert dark.get_figwidth() == NARROW
    assert dark.alt == chart.alt
    for each, paint in ((chart, LIGHT), (dark, DARK)):
        assert line_named(each.axes[0], c.PRUNABLE).get_color() == paint.prunable
    assert len(dark.at().svg()) == len(svg)


def test_a_long_curve_is_a_small_svg() -> None:
    frame = make_episodes(100_000)
    assert len(chart_of(plot_growth(growth_curve(frame, freq="h"))).svg()) < 60_000


@pytest.mark.parametrize("width", [4.0, 8.0])
@given(minutes=st.integers(0, 10**7), size=st.floats(-3, 6))
def test_an_axis_of_time_has_ticks_none_too_many_and_says_the_year(
    minutes: int, size: float, width: float
) -> None:
    ax = bare(width)
    begins = datetime(2010, 1, 31, tzinfo=UTC) + timedelta(minutes=minutes)
    ax.plot([begins, begins + timedelta(hours=10**size)], [0, 1])
    ax.margins(x=0)
    Plot(ax).time_axis()
    drawn(ax)
    (low, high), ticks = ax.get_xlim(), zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    shown = [label.get_text() for place, label in ticks if low <= place <= high]
    assert 1 <= len(shown) <= 10
    assert re.search(r"\d{4}", " ".join([*shown, ax.xaxis.get_offset_text().get_text()]))


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 2), (7, 9), (700_000, 950_000), (0.8, 12), (3, 40), (1, 10**6), (1, 10**9)],
)
def test_a_logarithmic_axis_has_ticks_whatever_it_spans(low: float, high: float) -> None:
    ax = bare()
    ax.set_xlim(low, high)
    Plot(ax).log_axis(ax.xaxis)
    places = np.array(ax.get_xticks())
    assert 2 <= len(places) <= 9
    assert ((places >= low) & (places <= high)).all()
    assert ax.get_xscale() == "log"


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 0.3)), min_size=1, max_size=8))
def test_spread_keeps_order_and_room_and_moves_nothing_in_vain(
    labels: list[tuple[float, float]],
) -> None:
    places, sizes = np.array(labels).T
    moved = spread(places, sizes)
    order = np.argsort(places, kind="stable")
    room = (sizes[order][1:] + sizes[order][:-1]) / 2
    assert (np.diff(moved[order]) >= room - 1e-9).all()
    if (np.diff(places[order]) >= room).all():
        assert moved == pytest.approx(places)
    if sizes.sum() <= 1:
        assert ((moved >= -1e-9) & (moved <= 1 + 1e-9)).all()


def test_a_figure_grows_until_every_name_at_its_edge_has_room() -> None:
    plot = Plot(bare())
    for number in range(40):
        plot.end(0, f"line {number}", LIGHT.ink)
    plot.label_ends()
    assert_within_its_figure(plot.ax)


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
    ax = bare()
    ax.set_ylim(0, top)
    Plot(ax).count_axis(ax.yaxis)
    drawn(ax)
    assert labels <= {label.get_text() for label in ax.get_yticklabels()}


def test_text_is_never_read_as_mathematics() -> None:
    ax = bare()
    plot = Plot(ax)
    plot.heading("costs $x_{$ and $5", "from $1 to $y^{$")
    plot.footnote("$\\frac{$")
    plot.end(0.5, "$z^{$", LIGHT.prunable)
    plot.label_ends()
    drawn(ax)
    assert title(ax) == "costs $x_{$ and $5"
