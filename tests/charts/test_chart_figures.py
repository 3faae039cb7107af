"""A chart shows itself: as text, as SVG that follows the theme, wide and narrow; as PNG."""

import re
from xml.etree import ElementTree

import pandas as pd
import pytest
from frames import make_episodes, make_frame, make_references, row
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from memlab import columns as c
from memlab import growth_curve
from memlab.charts import (
    plot_age_ranks,
    plot_boot_context,
    plot_cap_curve,
    plot_growth,
    plot_overlap,
)
from memlab.charts.figure import NARROW, WIDTH, Chart
from memlab.charts.palette import DARK, LIGHT, roles
from memlab.growth import boot_context
from memlab.sizing import age_rank_quantiles, age_ranks, cap_curve

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def curve() -> pd.DataFrame:
    made = growth_curve(make_frame(row("d", **{c.KIND: "semantic"}), *(f"e{n}" for n in range(30))))
    made.attrs[c.CAVEAT] = "3 memories were deleted without an archive."
    return made


@pytest.fixture
def chart(curve: pd.DataFrame) -> Chart:
    return chart_of(plot_growth(curve))


def chart_of(ax: Axes) -> Chart:
    assert isinstance(ax.figure, Chart)
    return ax.figure


def texts(svg: str) -> list[str]:
    return [
        "".join(text.itertext()).strip() for text in ElementTree.fromstring(svg).iter(f"{SVG}text")
    ]


def test_a_chart_says_what_is_seen(chart: Chart) -> None:
    assert chart.title == "30 prunable beside 1 load-bearing memories"
    for words in (chart.alt, repr(chart)):
        assert "30 prunable; 1 load-bearing" in words
        assert "3 memories were deleted without an archive." in words
        assert "96.8% of that is prunable" in words


def test_the_store_and_its_references_are_named() -> None:
    frame = make_episodes(40)
    frame.attrs[c.SOURCE] = "memory.db"
    references = make_references(frame, [10, 20, 30], [3, 4, 5])
    assert "memory.db. " in chart_of(plot_growth(growth_curve(frame))).alt
    for ax in (
        plot_age_ranks(age_ranks(frame, references)),
        plot_cap_curve(cap_curve(frame, references)),
    ):
        assert "memory.db, 3 references." in chart_of(ax).alt


def test_text_in_an_svg_is_text(chart: Chart) -> None:
    written = texts(chart.svg())
    assert chart.title in written
    assert "30 prunable" in written
    root = ElementTree.fromstring(chart.svg())
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == chart.title
    assert root.findtext(f"{SVG}desc") == chart.alt


def test_an_svg_is_the_same_every_time_and_fetches_nothing(curve: pd.DataFrame) -> None:
    first, second = (chart_of(plot_growth(curve)).svg() for _ in range(2))
    assert first == second
    addresses = re.findall(r"https?://[^\"'\s)]+", first)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in first


def test_every_colour_of_an_svg_follows_the_theme(chart: Chart) -> None:
    svg = chart.svg()
    body = svg[svg.index("</style>") :]
    plain = set(re.findall(r"(?<!,)#[0-9a-f]{6}\b", body))
    assert plain <= {"#000000"}  # what clips is black, and never seen
    assert f"var(--chart-prunable,{LIGHT.prunable})" in body
    for name, colour in roles(DARK).items():
        assert f"--chart-{name}:{colour}" in svg


def test_text_that_looks_like_a_colour_or_a_tag_stays_text() -> None:
    shares = pd.DataFrame([[1.0]], index=["#3188fc <b>&"], columns=["#3188fc <b>&"])
    svg = chart_of(plot_overlap(shares)).svg()
    assert any("#3188fc" in text for text in texts(svg))
    assert "<b>" not in svg


def test_control_characters_do_not_break_an_svg(curve: pd.DataFrame) -> None:
    named = curve.copy()
    named.attrs[c.SOURCE] = "a\x1b[31m\x00.db"
    ElementTree.fromstring(chart_of(plot_growth(named)).svg())


def test_a_notebook_gets_it_wide_and_narrow(chart: Chart) -> None:
    shown = chart._repr_html_()
    assert shown.count("<svg ") == 2
    assert 'class="narrow"' in shown
    assert 'class="wide"' in shown
    assert shown.index('class="narrow"') < shown.index('class="wide"')
    for host in ('data-jp-theme-light="false"', "vscode-dark", "prefers-color-scheme:dark"):
        assert host in shown


def test_drawn_anew_it_says_the_same_at_another_width_on_other_paper(chart: Chart) -> None:
    dark = chart.at(width=NARROW, palette=DARK)
    assert dark.get_figwidth() == NARROW
    assert dark.alt == chart.alt
    colours = [
        next(line.get_color() for line in each.axes[0].lines if line.get_label() == c.PRUNABLE)
        for each in (chart, dark)
    ]
    assert colours == [LIGHT.prunable, DARK.prunable]
    assert len(dark.at().svg()) == len(chart.svg())


@pytest.mark.parametrize("width", [NARROW, WIDTH])
def test_everything_lies_within_the_figure_at_every_width(
    curve: pd.DataFrame, width: float
) -> None:
    figure = chart_of(plot_growth(curve)).at(width=width)
    figure.canvas.draw()
    drawn, (wide, high) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(drawn.x0, drawn.y0) >= -0.02
    assert drawn.x1 <= wide + 0.02
    assert drawn.y1 <= high + 0.02


def test_given_axes_on_dark_paper_are_drawn_on_in_its_colours(curve: pd.DataFrame) -> None:
    ax = plot_growth(curve, ax=Figure(facecolor="#101010").add_subplot())
    assert DARK.prunable in {line.get_color() for line in ax.lines}


def test_a_png_is_a_png(chart: Chart) -> None:
    assert chart.png().startswith(b"\x89PNG")


def test_very_many_references_are_few_dots_below_the_levels_of_all() -> None:
    frame = make_episodes(100_000)
    at = range(1_000, 100_000)
    references = make_references(frame, at, (1 + n % 900 for n in at))
    ranks = age_ranks(frame, references)
    quantiles = age_rank_quantiles(frame, references)
    ax = plot_age_ranks(ranks, quantiles=quantiles)
    dots = [line for line in ax.lines if line.get_label() == "references"]
    assert 50 < sum(len(line.get_xdata()) for line in dots) <= 600
    drawn = {each.get_label(): each for each in ax.collections}
    assert [s[0][1] for s in drawn["p50"].get_segments()] == quantiles["p50"].tolist()
    assert all(level.get_zorder() > dots[0].get_zorder() for level in drawn.values())


def test_references_that_coincide_are_one_dot_as_large_as_they_are_many() -> None:
    ranks = pd.DataFrame({"written": [40] * 16 + [10], "age_rank": [4] * 16 + [1]})
    ax = plot_age_ranks(ranks)
    sizes = {tuple(line.get_xydata()[0].round()): line.get_markersize() for line in ax.lines}
    assert sizes[40, 4] == pytest.approx(4 * sizes[10, 1], rel=0.1)
    assert "16" in {text.get_text() for text in ax.texts}
    assert "a larger one up to 16 that coincide" in chart_of(ax).alt


def test_a_long_curve_is_a_small_svg() -> None:
    frame = make_episodes(100_000)
    assert len(chart_of(plot_growth(growth_curve(frame, freq="h"))).svg()) < 60_000


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_no_label_beside_a_bar_is_cut(width: float) -> None:
    decisions = (row(f"d{n}", **{c.KIND: "semantic", c.TOKENS: 1_240}) for n in range(542))
    episodes = (row(f"e{n}", **{c.TOKENS: 564}) for n in range(465))
    drawn = chart_of(plot_boot_context(boot_context(make_frame(*decisions, *episodes))))
    figure = drawn.at(width=width)
    figure.png()
    assert max(text.get_window_extent().x1 for text in figure.axes[0].texts) <= figure.bbox.x1
