"""Charts look as they looked when somebody last looked at them.

What is compared is a small picture of each, with matplotlib's own comparison. To draw them anew
after a change that was meant: ``MEMLAB_DRAW_PICTURES=1 pytest tests/charts/test_pictures.py``, then
look at every one that changed.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_frame, make_references, row
from histories import simulate_history
from matplotlib.axes import Axes
from matplotlib.testing.compare import compare_images
from PIL import Image
from PIL.ImageOps import posterize

import memlab
from memlab import charts, replay, sizing
from memlab import columns as c
from memlab.charts.figure import NARROW, Chart
from memlab.charts.palette import DARK
from memlab.compaction.preview import survivors
from memlab.growth import boot_context
from memlab.policies import KeepAll

PICTURES = Path(__file__).parent / "pictures"
DOTS_PER_INCH = 40
TOLERANCE = 3.0
"""Root mean square over all pixels: below what one line in another colour makes."""

Two = tuple[pd.DataFrame, pd.DataFrame]


@cache
def history() -> Two:
    frame, references = simulate_history(10, "growing", rows=3_000).as_frames()
    frame.attrs[c.SOURCE] = "memory.db"
    return frame, references


@cache
def long_history() -> Two:
    """100,000 memories, each referred to once, most of them soon."""
    frame = make_episodes(100_000)
    at = np.arange(1, 100_000)
    distance = 1 + (np.random.default_rng(0).pareto(0.7, len(at)) * 4).astype(np.int64)
    return frame, make_references(frame, at, np.minimum(distance, at))


@cache
def replays() -> list[replay.Replay]:
    days = [memlab.TimeToLive(timedelta(hours=hours)) for hours in (20, 80, 300)]
    counts = [
        *(memlab.KeepRecent(cap) for cap in (20, 80, 300)),
        *(memlab.ValueCap(cap, half_life=timedelta(hours=20)) for cap in (20, 80, 300)),
    ]
    return replay.replay_each(*history(), [*counts, *days, KeepAll()], workers=1)


def mixed(episodes: int) -> pd.DataFrame:
    decisions = [row(f"d{n}", **{c.KIND: "semantic", c.TOKENS: 40}) for n in range(episodes // 4)]
    return make_frame(*decisions, *(f"e{n}" for n in range(episodes)))


def growth(rows: int) -> Axes:
    frame = make_episodes(rows) if rows > 10 else mixed(rows)
    return charts.plot_growth(memlab.growth_curve(frame))


def age_ranks(two: Two, cap: int | None = None) -> Axes:
    ranks = sizing.age_ranks(*two)
    return charts.plot_age_ranks(ranks, quantiles=sizing.age_rank_quantiles(*two), cap=cap)


def cap_curve(two: Two) -> Axes:
    advice = memlab.recommend_cap(*two)
    return charts.plot_cap_curve(sizing.cap_curve(*two), advice=advice, cap=50)


def trade_off(two: Two) -> Axes:
    advice = memlab.recommend_cap(*two, token_budget=4_000)
    return charts.plot_trade_off(sizing.cap_curve(*two), advice=advice)


def before_after(rows: int) -> Axes:
    frame = mixed(rows)
    kept = boot_context(survivors(frame, 3))
    return charts.plot_before_after(boot_context(frame), kept)


def comparison() -> Axes:
    return charts.plot_comparison(replay.summarise(*history(), replays()))


def overlap() -> Axes:
    return charts.plot_overlap(replay.overlap(replays()[1:8:3], of="lost", share=True), of="lost")


def regret() -> Axes:
    some = replays()[1:8:3]
    return charts.plot_regret({replay.label_of(one.policy): one.regret_over_time for one in some})


def none() -> Two:
    frame = make_episodes(0)
    return frame, memlab.find_references(frame)


DRAWN: dict[str, Callable[[], Axes]] = {
    "growth-0": lambda: growth(0),
    "growth-1": lambda: growth(1),
    "growth-10": lambda: growth(10),
    "growth-100000": lambda: growth(100_000),
    "backlog": lambda: charts.plot_backlog(memlab.growth_curve(mixed(60)), cap=25),
    "boot-context": lambda: charts.plot_boot_context(boot_context(mixed(10))),
    "before-after": lambda: before_after(10),
    "age-ranks": lambda: age_ranks(history(), cap=300),
    "age-ranks-100000": lambda: age_ranks(long_history()),
    "boot-over-time": lambda: charts.plot_boot_over_time(
        sizing.boot_over_time(history()[0], [50, 200]), budget=4_000
    ),
    "track-record": lambda: charts.plot_backtest(sizing.backtest_cap(*history())),
    "cap-curve": lambda: cap_curve(history()),
    "cap-curve-0": lambda: cap_curve(none()),
    "trade-off": lambda: trade_off(history()),
    "trade-off-100000": lambda: trade_off(long_history()),
    "comparison": comparison,
    "overlap": overlap,
    "regret": regret,
}
DARK_TOO = ("growth-10", "age-ranks", "cap-curve", "trade-off", "comparison", "overlap")
NARROW_TOO = ("boot-context", "trade-off", "comparison", "track-record")


def chart_named(name: str) -> Chart:
    figure = DRAWN[name.removesuffix("-dark").removesuffix("-narrow")]().figure
    assert isinstance(figure, Chart)
    if name.endswith("-dark"):
        return figure.at(palette=DARK)
    return figure.at(width=NARROW) if name.endswith("-narrow") else figure


def draw(figure: Chart, path: Path) -> None:
    """Draw a picture, small, and in few shades so that it takes little room."""
    with Image.open(BytesIO(figure.png(dpi=DOTS_PER_INCH))) as image:
        posterize(image.convert("RGB"), 4).save(path, optimize=True)


@pytest.mark.parametrize(
    "name",
    [
        *DRAWN,
        *(f"{name}-dark" for name in DARK_TOO),
        *(f"{name}-narrow" for name in NARROW_TOO),
    ],
)
def test_a_chart_looks_as_it_did(name: str, tmp_path: Path) -> None:
    stored, drawn = PICTURES / f"{name}.png", tmp_path / f"{name}.png"
    draw(chart_named(name), drawn)
    if "MEMLAB_DRAW_PICTURES" in os.environ:
        PICTURES.mkdir(exist_ok=True)
        stored.write_bytes(drawn.read_bytes())
    found = compare_images(str(stored), str(drawn), tol=TOLERANCE)
    assert found is None, found


def test_another_colour_would_be_seen(tmp_path: Path) -> None:
    figure = chart_named("growth-10")
    for line in figure.axes[0].lines:
        line.set_color(DARK.gold)
    other = tmp_path / "growth-10.png"
    draw(figure, other)
    assert compare_images(str(PICTURES / "growth-10.png"), str(other), tol=TOLERANCE) is not None
