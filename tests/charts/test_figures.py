"""Charts as text, SVG and PNG; axes, labels, and colours on any background."""

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font

from memlab import columns as c
from memlab import growth_curve
from memlab.charts import figure, plot_growth
from memlab.charts.figure import DARK, HUES, LIGHT, NARROW, POLICY_STYLES, Chart, Palette, style_of
from memlab.charts.parts import Plot, spread
from memlab.policies.named import NAMED
from memlab.replay.candidates import rules_for
from tests.charts.reading import assert_within_its_figure, drawn, line_named, title
from tests.support.frames import make_episodes, make_frame, row

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def curve() -> pd.DataFrame:
    episodes = [f"e{number}" for number in range(30)]
    growth = growth_curve(make_frame(row("d", **{c.KIND: "semantic"}), *episodes))
    growth.attrs[c.CAVEAT] = "3 memories were deleted without an archive."
    return growth


@pytest.fixture(scope="module")
def chart(curve: pd.DataFrame) -> Chart:
    return plot_growth(curve).figure


@pytest.fixture(scope="module")
def svg(chart: Chart) -> str:
    return chart.svg()


def bare(width: float = 8.0) -> Axes:
    """Return the axes of an empty chart."""
    return Chart(lambda ax: ax, width=width).axes[0]


def texts(svg: str) -> list[str]:
    """List the texts of a picture."""
    elements = ElementTree.fromstring(svg).iter(f"{SVG}text")
    return ["".join(element.itertext()).strip() for element in elements]


def test_alt_text_states_the_drawn_numbers(chart: Chart) -> None:
    assert chart.title == "30 prunable beside 1 load-bearing memory"
    for description in (chart.alt, repr(chart)):
        assert "30 prunable; 1 load-bearing" in description
        assert "3 memories were deleted without an archive." in description
        assert "96.8% of that is prunable" in description


def test_svg_is_reproducible_and_self_contained(
    chart: Chart, svg: str, curve: pd.DataFrame
) -> None:
    assert {chart.title, "30 prunable"} <= set(texts(svg))
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == chart.title
    assert root.findtext(f"{SVG}desc") == chart.alt
    assert plot_growth(curve).figure.svg() == svg
    assert set(re.findall(r"https?://[^\"'\s)]+", svg)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in svg


def test_svg_colours_follow_the_theme(svg: str) -> None:
    body = svg[svg.index("</style>") :]
    plain = set(re.findall(r"(?<!,)#[0-9a-f]{6}\b", body))
    assert plain <= {"#000000"}  # clip paths are black and invisible
    assert f"var(--chart-prunable,{LIGHT.prunable})" in body
    for name, colour in figure.css_colours(DARK).items():
        assert f"--chart-{name}:{colour}" in svg


def test_store_name_is_escaped_in_svg(curve: pd.DataFrame) -> None:
    named = curve.copy()
    named.attrs[c.SOURCE] = "#3188fc <b>&a\x1b[31m\x00.db"
    html = plot_growth(named).figure.svg()
    assert any("#3188fc <b>&a" in text for text in texts(html))
    assert "<b>" not in html


def test_html_holds_wide_and_narrow_svg(chart: Chart) -> None:
    html = chart._repr_html_()
    assert html.count("<svg ") == 2
    assert 0 < html.index('class="narrow"') < html.index('class="wide"')
    for host in ('data-jp-theme-light="false"', "vscode-dark", "prefers-color-scheme:dark"):
        assert host in html


def test_redrawn_chart_keeps_its_content(chart: Chart, svg: str) -> None:
    dark = chart.at(width=NARROW, palette=DARK)
    assert dark.get_figwidth() == NARROW
    assert dark.alt == chart.alt
    for drawing, paint in ((chart, LIGHT), (dark, DARK)):
        assert line_named(drawing.axes[0], c.PRUNABLE).get_color() == paint.prunable
    assert len(dark.at().svg()) == len(svg)


class HoverArea(NamedTuple):
    """An area of a picture that shows a text under the pointer."""

    left: float
    right: float
    text: str


def areas_of(svg: str) -> list[HoverArea]:
    """List the hover areas of a picture."""
    areas = re.findall(r'<path d="M([\d.]+) [\d.]+h([\d.]+)v[^"]+"><title>([^<]+)', svg)
    return [HoverArea(float(left), float(left) + float(width), text) for left, width, text in areas]


def test_hover_areas_cover_the_axes_without_gaps(chart: Chart, svg: str) -> None:
    areas = areas_of(svg)
    box = chart.axes[0].get_window_extent()
    assert areas[0].left == pytest.approx(0.72 * box.x0, abs=0.1)
    assert areas[-1].right == pytest.approx(0.72 * box.x1, abs=0.1)
    for area, next_area in itertools.pairwise(areas):
        assert area.right == pytest.approx(next_area.left, abs=0.11)


def test_last_hover_area_shows_the_last_values(curve: pd.DataFrame, svg: str) -> None:
    moment = f"{curve.index[-1]:%Y-%m-%d %H:%M}"
    assert curve.iloc[-1][["prunable", "load_bearing"]].tolist() == [30, 1]
    assert areas_of(svg)[-1].text == f"{moment}: 30 prunable, 1 load-bearing memories"


def test_hover_areas_of_many_points_stay_wide_enough() -> None:
    wide = plot_growth(growth_curve(make_episodes(5_000))).figure
    assert isinstance(wide, Chart)
    for chart, most in ((wide, 70), (wide.at(width=NARROW), 35)):
        areas = areas_of(chart.svg())
        assert most / 2 < len(areas) <= most
        assert min(area.right - area.left for area in areas) > 3


def test_hover_text_is_escaped() -> None:
    plot = Plot(bare())
    plot.ax.set_xlim(0, 2)
    plot.add_hover_areas([0, 1], lambda place: f"<b>\x1b[31m&{place}")
    assert isinstance(plot.figure, Chart)
    assert "<title>&lt;b&gt;\\x1b[31m&amp;1</title>" in plot.figure.svg()


def test_long_curve_gives_a_small_svg() -> None:
    assert len(plot_growth(growth_curve(make_episodes(100_000), freq="h")).figure.svg()) < 60_000


@pytest.mark.parametrize("width", [4.0, 8.0])
@given(minutes=st.integers(0, 10**7), size=st.floats(-3, 6))
def test_time_axis_has_few_ticks_and_the_year(minutes: int, size: float, width: float) -> None:
    ax = bare(width)
    begins = datetime(2010, 1, 31, tzinfo=UTC) + timedelta(minutes=minutes)
    ax.plot([begins, begins + timedelta(hours=10**size)], [0, 1])
    ax.margins(x=0)
    Plot(ax).set_time_axis()
    drawn(ax)
    low, high = ax.get_xlim()
    ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    labels = [label.get_text() for place, label in ticks if low <= place <= high]
    assert 1 <= len(labels) <= 10
    offset = ax.xaxis.get_offset_text().get_text()
    assert re.search(r"\d{4}", " ".join([*labels, offset]))


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 2), (7, 9), (700_000, 950_000), (0.8, 12), (3, 40), (1, 10**6), (1, 10**9)],
)
def test_log_axis_has_ticks_for_any_range(low: float, high: float) -> None:
    ax = bare()
    ax.set_xlim(low, high)
    Plot(ax).set_log_axis(ax.xaxis)
    places = np.array(ax.get_xticks())
    assert 2 <= len(places) <= 9
    assert ((places >= low) & (places <= high)).all()
    assert ax.get_xscale() == "log"


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 0.3)), min_size=1, max_size=8))
def test_spread_keeps_order_and_minimal_distance(
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


def test_figure_grows_to_fit_end_labels() -> None:
    plot = Plot(bare())
    for number in range(40):
        plot.label_end(0, f"line {number}", LIGHT.ink)
    plot._draw_end_labels()
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
def test_count_axis_uses_one_unit(top: int, labels: set[str]) -> None:
    ax = bare()
    ax.set_ylim(0, top)
    Plot(ax).set_count_axis(ax.yaxis)
    drawn(ax)
    assert labels <= {label.get_text() for label in ax.get_yticklabels()}


def test_percent_axis_ends_at_one() -> None:
    ax = bare()
    Plot(ax).set_percent_axis(ax.yaxis, "share", (0.8, 1.06))
    assert max(ax.get_yticks()) == pytest.approx(1.0)


def test_text_is_not_parsed_as_mathtext() -> None:
    ax = bare()
    plot = Plot(ax)
    plot.draw_heading("costs $x_{$ and $5", "from $1 to $y^{$")
    plot.draw_footnote("$\\frac{$")
    plot.label_end(0.5, "$z^{$", LIGHT.prunable)
    plot._draw_end_labels()
    drawn(ax)
    assert title(ax) == "costs $x_{$ and $5"


# Colours

BOTH = pytest.mark.parametrize("paint", [LIGHT, DARK], ids=["light", "dark"])
Colour = npt.NDArray[np.float64]

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB; one colour vision a line
SIGHTS = """
1 0 0  0 1 0  0 0 1
0.152286 1.052583 -0.204868  0.114503 0.786281 0.099216  -0.003882 -0.048116 1.051998
0.367322 0.860646 -0.227968  0.280085 0.672501 0.047413  -0.011820 0.042940 0.968881
1.255528 -0.076749 -0.178779  -0.078411 0.930809 0.147602  0.004733 0.691367 0.303900
"""
# Ottosson (2020): from linear RGB to cone responses, and from their cube roots to Oklab
OKLAB = """
0.4122214708 0.5363325363 0.0514459929
0.2119034982 0.6806995451 0.1073969566
0.0883024619 0.2817188376 0.6299787005

0.2104542553 0.7936177850 -0.0040720468
1.9779984951 -2.4285922050 0.4505937099
0.0259040371 0.7827717662 -0.8086757660
"""


def matrices(text: str) -> Colour:
    return np.array(text.split(), dtype=float).reshape(-1, 3, 3)


def linear(colour: str) -> Colour:
    """Convert a colour, as #rrggbb, to linear RGB."""
    rgb = np.frombuffer(bytes.fromhex(colour.removeprefix("#")), dtype=np.uint8) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def oklab(rgb: Colour) -> Colour:
    """Convert a colour to Oklab, where distances follow perception."""
    to_cones, to_lab = matrices(OKLAB)
    return to_lab @ np.cbrt(to_cones @ np.clip(rgb, 0, 1))


def apart(first: str, second: str) -> float:
    """Return the smallest distance of two colours over all kinds of colour vision."""
    distances = []
    for sight in matrices(SIGHTS):
        difference = oklab(sight @ linear(first)) - oklab(sight @ linear(second))
        distances.append(float(np.linalg.norm(difference)))
    return min(distances)


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of WCAG 2.2, from 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@BOTH
def test_default_policy_colours_differ_for_all_colour_vision(paint: Palette) -> None:
    for policy, other in itertools.combinations(("recent", "ttl", "value", "activation"), 2):
        style = style_of(policy)
        other_style = style_of(other)
        if style.ranks_by == other_style.ranks_by:
            assert style.dashed != other_style.dashed
        else:
            assert apart(style.colour(paint), other_style.colour(paint)) > 0.15, (policy, other)


@BOTH
def test_hues_differ_for_all_colour_vision(paint: Palette) -> None:
    assert apart(paint.likely, paint.safe) > 0.12
    assert apart(paint.load_bearing, paint.prunable) > 0.15
    hues = [getattr(paint, hue) for hue in HUES]
    pairs_of_hues = itertools.combinations(hues, 2)
    hues_and_ink = itertools.product(hues, (paint.ink, paint.grey))
    for colour, other in (*pairs_of_hues, *hues_and_ink):
        assert apart(colour, other) > 0.08, (colour, other)


@BOTH
def test_marks_and_text_contrast_with_background(paint: Palette) -> None:
    for hue in HUES:
        colour = getattr(paint, hue)
        assert contrast(colour, paint.paper) >= 3, hue
        assert contrast(paint.text_colour(colour), paint.paper) >= 4.5, hue
    for colour in (paint.ink, paint.muted, paint.text_colour(paint.grey)):
        assert contrast(colour, paint.paper) >= 4.5


@BOTH
def test_palette_roles_have_distinct_colours(paint: Palette) -> None:
    assert len(set(figure.css_colours(paint).values())) == len(figure.css_colours(paint))


def test_every_policy_has_its_own_colour_and_marker() -> None:
    assert POLICY_STYLES.keys() == NAMED.keys()
    styles = POLICY_STYLES.values()
    assert len({(style.ranks_by, style.marker) for style in styles}) == len(styles)
    assert len({style.glyph for style in styles}) == len(styles)
    assert style_of("mine 3, tau=1 d") == style_of("mine 700")
    assert style_of("dedup 0.8 > ttl > recent 500, by=created_at") == style_of("odek 500")


def test_every_rule_of_a_comparison_has_its_own_marker() -> None:
    rules = rules_for(memories=100, retires=False, finds_duplicates=True)
    styles = [style_of(f"{rule.name} 1,000") for rule in rules]
    assert len({style.marker for style in styles}) == len(rules)
    assert style_of("newest (forge-loop)") == style_of("recent 50")
    assert style_of("by use, retired") == style_of("activation 900")
    assert style_of("aged well").marker != style_of("age 3 d").marker


def test_every_marker_glyph_is_in_the_chart_font() -> None:
    charmap = FT2Font(findfont("DejaVu Sans")).get_charmap()
    glyphs_of_font = {chr(code) for code in charmap}
    custom_names = [f"mine{number}" for number in range(100)]
    assert {style_of(name).glyph for name in (*POLICY_STYLES, *custom_names)} <= glyphs_of_font
    assert set(figure.HOLLOW_GLYPHS.values()) <= glyphs_of_font
    assert figure.HOLLOW_GLYPHS.keys() <= {style.glyph for style in POLICY_STYLES.values()}


def test_palette_follows_the_background() -> None:
    for face, paint in (("white", LIGHT), ("#eeeeee", LIGHT), ("black", DARK), ("#111111", DARK)):
        assert figure.palette_of(Figure(facecolor=face).add_subplot()) is paint
