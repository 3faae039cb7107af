"""Every chart of every kind of frame, compared with stored pictures.

matplotlib compares a small picture of each chart; its words are compared as text. To store new
pictures after an intended change, run ``MEMLAB_DRAW_PICTURES=1 pytest
tests/charts/test_every_chart.py``, and look at every picture that changed.
"""

import os
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import timedelta
from functools import cache, partial
from io import BytesIO
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.testing.compare import compare_images
from PIL import Image
from PIL.ImageOps import posterize

from memlab import charts as plots
from memlab import columns as c
from memlab import load, sizing, store_path
from memlab.charts.figure import DARK, LIGHT, NARROW, Chart
from memlab.evidence import age_or_use, find_references
from memlab.growth import boot_context, growth_curve
from memlab.policies import Activation, KeepRecent, TimeToLive, ValueCap
from memlab.replay import label_of, overlap, replay_each, summarise
from memlab.sizing import law_lines, survivors
from tests.charts.reading import assert_within_its_figure, drawn, note, title, written
from tests.support.frames import START, make_episodes, make_frame, row
from tests.support.properties import all_but

PICTURES = Path(__file__).parent / "pictures"
DOTS_PER_INCH = 40
TOLERANCE = 2.0
"""Largest root mean square difference of two pictures; one recoloured line exceeds it."""

CLOCKS = ("0001-01-01", "9999-12-31T23:59:59")
DECISION = {c.KIND: "semantic", c.TOKENS: 900}


def few_episodes(count: int) -> pd.DataFrame:
    """Return the first `count` of three episodes."""
    return make_episodes(3).iloc[:count]


def without_tokens() -> pd.DataFrame:
    return make_episodes(3, tokens=[0, 0, 0])


def with_a_decision() -> pd.DataFrame:
    return make_frame(row("d", **DECISION), row("e", **{c.EVIDENCE_REFS: ("d",)}), "f")


def few_prunable() -> pd.DataFrame:
    decisions = [row(f"d{number}", **DECISION) for number in range(99)]
    return make_frame(*decisions, "e")


def wrong_clocks() -> pd.DataFrame:
    rows = [row(clock, **{c.CREATED_AT: pd.Timestamp(clock, tz="UTC")}) for clock in CLOCKS]
    return make_frame(*rows, "e")


def looked_up() -> pd.DataFrame:
    episodes = [row(f"e{number}", **{c.EVIDENCE_REFS: ("d",)}) for number in range(40)]
    frame = make_frame("d", *episodes)
    frame.attrs[c.RECALLED] = True
    return frame


def searches_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a log of sixty days: on each, a read of any memory and one of the first nine."""
    rng = np.random.default_rng(7)
    ids = frame[c.MEMORY_ID]
    if len(ids) == 0:
        return pd.DataFrame({c.MEMORY_ID: ids.array, c.AT: pd.DatetimeIndex([], tz="UTC")})
    often_read = min(len(ids), 9)
    rows = rng.integers(0, np.tile([len(ids), often_read], 60))
    days = START + pd.to_timedelta(np.repeat(np.arange(600, 660), 2), unit="D")
    return pd.DataFrame({c.MEMORY_ID: ids.iloc[rows].array, c.AT: days})


FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "none": partial(few_episodes, 0),
    "one": partial(few_episodes, 1),
    "two": partial(few_episodes, 2),
    "without tokens": without_tokens,
    "with a decision": with_a_decision,
    "few prunable": few_prunable,
    "wrong clocks": wrong_clocks,
    "looked up": looked_up,
    "two years": partial(load, store_path("two_years")),
}
QUICK_FRAMES = ("looked up",)
"""Frames of which a default run checks that every chart has a title and fits its figure."""
POLICIES = (
    KeepRecent(50),
    KeepRecent(500),
    TimeToLive(timedelta(days=30)),
    TimeToLive(timedelta(days=180)),
    ValueCap(50),
    ValueCap(500),
    Activation(500),
)


@cache
def charts_of(name: str) -> dict[str, "partial[Axes]"]:
    """Return every chart of a kind of frame, as a partial call that draws it."""
    frame = FRAMES[name]()
    growth = growth_curve(frame)
    context = boot_context(frame)
    references = find_references(frame)
    ranks = sizing.age_ranks(frame)
    curve = sizing.cap_curve(frame)
    advice = sizing.recommend_cap(frame)
    tight = sizing.recommend_cap(frame, token_budget=20_000)
    timeline = sizing.boot_over_time(frame, [0, advice.likely or 2, advice.keep_recent or 5])
    replays = replay_each(frame, references, POLICIES, workers=1)
    regrets = {label_of(replay.policy): replay.regret_over_time for replay in replays}
    count = len(frame)
    store = pd.DataFrame({"memories": [1 + count // 9, count], "cap": count // 4})
    if count == 0:
        store = store.head(0)
    after = boot_context(survivors(frame, 5))
    usage = age_or_use(frame, find_references(frame, searches_of(frame), only_log=True))
    marks = {"quantiles": sizing.age_rank_quantiles(frame), "advice": advice, "cap": 3}
    return {
        "growth": partial(plots.plot_growth, growth),
        "tokens": partial(plots.plot_growth, growth, measure="tokens"),
        "backlog": partial(plots.plot_growth, growth, cap=20),
        "context": partial(plots.plot_boot_context, context),
        "before-after": partial(plots.plot_before_after, context, after),
        "curve": partial(plots.plot_cap_curve, curve),
        "curve-advised": partial(plots.plot_cap_curve, curve, advice=advice, cap=1),
        "curve-tight": partial(plots.plot_cap_curve, curve, advice=tight),
        "trade-off": partial(plots.plot_trade_off, curve, advice=advice),
        "trade-off-tight": partial(plots.plot_trade_off, curve, advice=tight, cap=1),
        "starts": partial(plots.plot_boot_over_time, timeline, advice=advice),
        "starts-counted": partial(
            plots.plot_boot_over_time, timeline, measure="memories", budget=3
        ),
        "ages": partial(plots.plot_age_ranks, ranks),
        "ages-parted": partial(plots.plot_age_ranks, ranks, **marks),
        "age-or-use": partial(plots.plot_age_or_use, usage),
        "reads-served": partial(plots.plot_reads_served, usage),
        "backtest": partial(plots.plot_backtest, sizing.backtest_cap(frame)),
        "law": partial(plots.plot_law, law_lines(0.9), store=store),
        "comparison": partial(plots.plot_comparison, summarise(frame, references, replays)),
        "overlap": partial(plots.plot_overlap, overlap(replays, share=True)),
        "regret": partial(plots.plot_regret, regrets),
    }


@cache
def axes_of(name: str) -> dict[str, Axes]:
    """Draw every chart of a kind of frame, once for all tests; check that drawing changes no frame.

    The tests do not change the charts.
    """
    axes = {}
    for chart, draw in charts_of(name).items():
        before = deepcopy(draw.args)
        axes[chart] = draw()
        for argument, argument_before in zip(draw.args, before, strict=True):
            if isinstance(argument, pd.DataFrame):
                pd.testing.assert_frame_equal(argument, argument_before)
    return axes


def fleet(count: int) -> pd.DataFrame:
    """Return the survey and sizes of a fleet, with some coinciding stores."""
    tokens = np.geomspace(200_000, 900, count).astype(np.int64)
    return pd.DataFrame(
        {
            "boot_tokens": tokens,
            "floor_tokens": tokens // 12,
            "error": None,
            "prunable": 90,
            "boot_now": np.resize([9_000, 1_900, 900, 4_000], count),
            "boot_after": np.resize([2_000, 1_900, 900, 3_900], count),
            "floor": np.resize([800, 300, 100, 3_000], count),
            "likely": np.resize([20, 20, 90, 20], count),
        }
    )


def draw_two_years(name: str) -> Axes:
    """Draw a chart of the store of two years."""
    return charts_of("two years")[name]()


WEEKS = pd.DataFrame({"week": pd.date_range("2025-01-05", periods=60, freq="W", tz="UTC")})
DRAWN: dict[str, Callable[[], Axes]] = {
    "growth-of-none": charts_of("none")["growth"],
    **{name: partial(draw_two_years, name) for name in charts_of("none")},
    "fleet-tokens": partial(plots.plot_fleet_tokens, fleet(4)),
    "fleet-tokens-5000": partial(plots.plot_fleet_tokens, fleet(5_000)),
    "fleet-caps": partial(plots.plot_fleet_caps, fleet(15)),
    "fleet-growth": partial(plots.plot_fleet_growth, WEEKS.assign(memories=50, load_bearing=4)),
}
DARK_TOO = ("growth", "ages-parted", "curve-advised", "trade-off", "comparison", "overlap")
NARROW_TOO = ("context", "trade-off", "comparison", "backtest")


@cache
def chart_named(name: str) -> Chart:
    """Draw the chart of a picture once for all tests; the tests do not change it."""
    chart, _, variant = name.partition("/")
    if variant == "dark":
        return chart_named(chart).at(palette=DARK)
    if variant == "narrow":
        return chart_named(chart).at(width=NARROW)
    figure = DRAWN[chart]().figure
    assert isinstance(figure, Chart)
    return figure


def test_every_plot_function_is_tested() -> None:
    tested = {chart.func.__name__ for chart in charts_of("none").values()}
    tested |= {chart.func.__name__ for chart in DRAWN.values() if isinstance(chart, partial)}
    assert {name for name in plots.__all__ if name.startswith("plot_")} <= tested


@pytest.mark.parametrize("frame", all_but(FRAMES, FRAMES.keys() - QUICK_FRAMES))
def test_chart_has_a_title_and_fits_its_figure(frame: str) -> None:
    for ax in axes_of(frame).values():
        assert title(ax)
        assert_within_its_figure(ax)


@pytest.mark.long
def test_narrow_chart_fits_its_figure() -> None:
    for name in DRAWN:
        assert_within_its_figure(chart_named(name).at(width=NARROW).axes[0])


def test_empty_chart_has_a_message_and_no_axis() -> None:
    for name, ax in axes_of("none").items():
        if name != "law":
            messages = [text for text in written(ax) if text.startswith(("No ", "Nothing "))]
            assert len(messages) > 0, name
            assert not ax.get_lines(), name
            assert len(ax.get_xticks()) == 0, name


@pytest.mark.parametrize(
    ("frame", "chart", "message"),
    [
        ("with a decision", "ages", "Every reference is to a load-bearing memory"),
        ("one", "starts", "One moment only: nothing to draw yet"),
        ("one", "backtest", "No reference followed any cut"),
    ],
)
def test_chart_without_data_gives_the_reason(frame: str, chart: str, message: str) -> None:
    assert message in written(charts_of(frame)[chart]())


def test_charts_of_searched_memories_do_not_mention_loading() -> None:
    for name, ax in axes_of("looked up").items():
        text = " ".join([note(ax), ax.get_xlabel(), ax.get_ylabel()])
        assert not re.search(r"boot|an agent loads|starts?\b", text), f"{name}: {text}"
        if name in {"trade-off", "comparison"}:
            assert "tokens to recall from" in text


def overlapping_texts(ax: Axes) -> list[tuple[str, str]]:
    """Return pairs of texts on the axes that cover each other."""
    texts = [text for text in drawn(ax).texts if text.get_text()]
    return [
        (text.get_text(), other.get_text())
        for text, other in combinations(texts, 2)
        if text.get_window_extent().overlaps(other.get_window_extent())
    ]


def steep_store() -> pd.DataFrame:
    """Return a store whose first caps serve nearly all, so that labels crowd at the left."""
    rows = [row(f"e{number}", **{c.EVIDENCE_REFS: (f"e{number - 1}",)}) for number in range(1, 180)]
    return make_frame(row("d", **DECISION), "e0", *rows)


@cache
def trade_off_of(frame: str) -> Chart:
    """Draw the trade-off of a kind of frame, or of the steep store, with its advice."""
    if frame == "steep":
        store = steep_store()
        advice = sizing.recommend_cap(store)
        chart = plots.plot_trade_off(sizing.cap_curve(store), advice=advice).figure
    else:
        chart = charts_of(frame)["trade-off"]().figure
    assert isinstance(chart, Chart)
    return chart


WIDTHS = [pytest.param(8.0, marks=pytest.mark.long), NARROW]
"""Widths at which labels must not overlap; a narrow chart has the least room for them."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("frame", ["steep", "two years", "looked up"])
def test_labels_of_a_trade_off_do_not_cover_each_other(frame: str, width: float) -> None:
    ax = trade_off_of(frame).at(width=width).axes[0]
    assert any("target" in text for text in written(ax))
    assert overlapping_texts(ax) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_of_a_comparison_do_not_cross_its_lines(width: float) -> None:
    ax = drawn(chart_named("comparison").at(width=width).axes[0])
    settings = [text for text in ax.texts if re.fullmatch(r"\d+(?: d)?", text.get_text())]
    assert len(settings) > 2
    lines = [line for line in ax.lines if line.get_marker() != "None" and len(line.get_xdata()) > 1]
    for line in lines:
        corners = ax.transData.transform(line.get_xydata())
        steps = np.linspace(0, 1, 50)[:, None]
        for start, end in pairwise(corners):
            places = start + steps * (end - start)
            for text in settings:
                assert not text.get_window_extent().count_contains(places), text.get_text()


def test_few_caps_have_a_linear_axis() -> None:
    ax = plots.plot_cap_curve(sizing.cap_curve(make_episodes(5)))
    assert ax.get_xscale() == "linear"
    assert ax.get_xticks().tolist() == [0, 1, 2, 3, 4, 5]
    assert plots.plot_cap_curve(sizing.cap_curve(make_episodes(30))).get_xscale() == "symlog"


def test_caps_that_delete_nothing_share_the_line_without_a_cap() -> None:
    timeline = sizing.boot_over_time(make_episodes(9), [2, 9, 200])
    ax = plots.plot_boot_over_time(timeline)
    assert [line.get_label() for line in ax.get_lines()] == ["no cap", "keep 2"]
    assert "The same as no cap: keep 9, keep 200." in note(ax)


def test_one_store_of_a_fleet_is_named_as_one() -> None:
    ax = drawn(plots.plot_fleet_tokens(fleet(1)))
    assert title(ax) == "One store loads 200,000 tokens at start, 16,666 of them load-bearing"
    left, right = ax.get_xlim()
    assert [place for place in ax.get_xticks() if left <= place <= right] == [1]


def test_growth_without_load_bearing_memories_says_so() -> None:
    frame = make_episodes(30)
    chart = plots.plot_growth(growth_curve(frame))
    assert title(chart) == "30 prunable memories, none load-bearing"
    assert "An agent loads all of them at every start" in note(chart)
    frame.attrs[c.RECALLED] = True
    assert "None is loaded: an agent looks them up" in note(plots.plot_growth(growth_curve(frame)))


@pytest.mark.long
def test_chart_draws_on_given_axes() -> None:
    for draw in charts_of("two").values():
        figure = Figure(figsize=(8, 9), layout="constrained")
        upper, _ = figure.subplots(2)
        assert draw(ax=upper) is upper
        drawn(upper)
        assert len(figure.axes) == 2
        assert figure.get_size_inches().tolist() == [8, 9]


def test_unknown_measure_is_rejected() -> None:
    for chart in ("growth", "starts"):
        with pytest.raises(ValueError, match="measure must be 'memories' or 'tokens', not 'bytes'"):
            charts_of("two")[chart](measure="bytes")
    with pytest.raises(ValueError, match="a cap counts memories"):
        charts_of("two")["backlog"](measure="tokens")


def save(figure: Chart, path: Path) -> None:
    """Save a small picture in few colours."""
    with Image.open(BytesIO(figure.png(dpi=DOTS_PER_INCH))) as image:
        posterize(image.convert("RGB"), 4).save(path, optimize=True)


DARK_NAMES = [f"{name}/dark" for name in DARK_TOO]
NARROW_NAMES = [f"{name}/narrow" for name in NARROW_TOO]
QUICK_PICTURES = (
    "growth",
    "context",
    "before-after",
    "curve-advised",
    "trade-off",
    "starts",
    "ages-parted",
    "age-or-use",
    "reads-served",
    "backtest",
    "law",
    "comparison",
    "overlap",
    "regret",
    "fleet-tokens",
    "fleet-caps",
    "fleet-growth",
    "growth/dark",
    "context/narrow",
)
"""Pictures that a default run compares: one of each plot function, one dark and one narrow."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK_PICTURES else pytest.mark.long)
        for name in [*DRAWN, *DARK_NAMES, *NARROW_NAMES]
    ],
)
def test_chart_equals_its_stored_picture(name: str, tmp_path: Path) -> None:
    file = f"{name.replace('/', '-')}.png"
    stored = PICTURES / file
    picture = tmp_path / file
    save(chart_named(name), picture)
    if "MEMLAB_DRAW_PICTURES" in os.environ:
        stored.write_bytes(picture.read_bytes())
    difference = compare_images(str(stored), str(picture), tol=TOLERANCE)
    assert difference is None, difference


def test_alt_texts_equal_the_stored_ones() -> None:
    stored = PICTURES / "words.txt"
    texts = "".join(f"{name}: {chart_named(name).alt}\n" for name in DRAWN)
    if "MEMLAB_DRAW_PICTURES" in os.environ:
        stored.write_text(texts)
    assert texts.splitlines() == stored.read_text().splitlines()


MEANINGS = {
    "load_bearing": "load.bearing|floor",
    "prunable": "prunable",
    "likely": "likely|estimated|limits|law|^[0-9,]+$",
    "safe": "safe|lower limit|chosen|^[0-9,]+$",
    "by_age": "age|recent|ttl|^[0-9,]+( d)?$",
    "by_use": "use|value|activation|^[0-9,]+$",
}


@pytest.mark.parametrize("name", DRAWN)
def test_colour_has_one_meaning_in_every_chart(name: str) -> None:
    for part in coloured_parts(chart_named(name).axes[0]):
        for role, meaning in MEANINGS.items():
            hues = {getattr(LIGHT, role), getattr(LIGHT, f"{role}_words")}
            if part.colour in hues and not part.label.startswith("_"):
                assert re.search(meaning, part.label), f"{part.label} is drawn as {role}"


class ColouredPart(NamedTuple):
    """A text, line or area of a chart, and its colour."""

    label: str
    colour: str


def coloured_parts(ax: Axes) -> Iterator[ColouredPart]:
    """Yield the coloured parts of the axes and of their legend."""
    for text in ax.texts:
        yield ColouredPart(text.get_text(), to_hex(text.get_color()))
    for line in ax.lines:
        yield ColouredPart(str(line.get_label()), to_hex(line.get_color()))
    for collection in ax.collections:
        for colour in collection.get_fc():
            yield ColouredPart(str(collection.get_label()), to_hex(colour))
    if legend := ax.get_legend():
        for text, key in zip(legend.get_texts(), legend.legend_handles, strict=True):
            if isinstance(key, Line2D):
                yield ColouredPart(text.get_text(), to_hex(key.get_color()))
