"""Every chart of every kind of frame is a chart, whatever there is to show."""

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial

import pandas as pd
import pytest
from frames import make_episodes, make_frame, row
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from reading import assert_within_its_figure, drawn, title, written

from memlab import charts as plots
from memlab import columns as c
from memlab import load, store_path
from memlab.compaction.effects import survivors
from memlab.evidence.posterior import law_lines
from memlab.evidence.references import find_references
from memlab.growth import boot_context, growth_curve
from memlab.policies import KeepRecent
from memlab.replay import label_of, overlap, replay_each, summarise
from memlab.sizing import (
    age_rank_quantiles,
    age_ranks,
    backtest_cap,
    boot_over_time,
    cap_curve,
    recommend_cap,
)

CLOCKS = ("0001-01-01", "9999-12-31T23:59:59")

FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "none": lambda: make_episodes(3).iloc[:0],
    "one": lambda: make_episodes(3).iloc[:1],
    "two": lambda: make_episodes(3).iloc[:2],
    "without tokens": lambda: make_episodes(3, tokens=[0, 0, 0]),
    "a decision beside": lambda: make_frame(row("d", **{c.KIND: "semantic"}), "e", "f"),
    "clocks far off": lambda: make_frame(
        *(row(clock, **{c.CREATED_AT: pd.Timestamp(clock, tz="UTC")}) for clock in CLOCKS), "e"
    ),
    "two years": lambda: load(store_path("two_years")),
}


@cache
def charts_of(name: str) -> dict[str, "partial[Axes]"]:
    """Every chart of a frame, ready to be drawn: what is called, and what it is given."""
    frame = FRAMES[name]()
    growth, context = growth_curve(frame), boot_context(frame)
    curve, ranks, references = cap_curve(frame), age_ranks(frame), find_references(frame)
    advice = recommend_cap(frame, token_budget=20_000)
    timeline = boot_over_time(frame, [0, 2, advice.keep_recent or 5])
    replays = replay_each(frame, references, [KeepRecent(9), KeepRecent(90)], workers=1)
    regrets = {label_of(one.policy): one.regret_over_time for one in replays}
    store = pd.DataFrame({"memories": [max(1, len(frame))], "cap": [len(frame) // 4]})
    quantiles = age_rank_quantiles(frame)
    return {
        "growth": partial(plots.plot_growth, growth),
        "tokens": partial(plots.plot_growth, growth, measure="tokens"),
        "backlog": partial(plots.plot_backlog, growth),
        "backlog of a cap": partial(plots.plot_backlog, growth, cap=20),
        "boot context": partial(plots.plot_boot_context, context),
        "before": partial(plots.plot_before_after, context, boot_context(survivors(frame, 5))),
        "curve": partial(plots.plot_cap_curve, curve),
        "curve, advised": partial(plots.plot_cap_curve, curve, advice=advice, cap=1),
        "trade-off": partial(plots.plot_trade_off, curve),
        "trade-off, advised": partial(plots.plot_trade_off, curve, advice=advice, cap=1),
        "starts": partial(plots.plot_boot_over_time, timeline),
        "starts, counted": partial(
            plots.plot_boot_over_time, timeline, measure="memories", budget=3
        ),
        "ages": partial(plots.plot_age_ranks, ranks),
        "ages, parted": partial(plots.plot_age_ranks, ranks, quantiles=quantiles, cap=3),
        "backtest": partial(plots.plot_backtest, backtest_cap(frame)),
        "law": partial(plots.plot_law, law_lines(0.9), store=store if len(frame) else store[:0]),
        "comparison": partial(plots.plot_comparison, summarise(frame, references, replays)),
        "overlap": partial(plots.plot_overlap, overlap(replays, share=True)),
        "regret": partial(plots.plot_regret, regrets),
    }


def test_every_chart_of_memories_is_here() -> None:
    here = {draw.func.__name__ for draw in charts_of("none").values()}
    there = {name for name in plots.__all__ if name.startswith("plot_")}
    assert {name for name in there - here if not name.startswith("plot_fleet")} == set()


@pytest.mark.parametrize("frame", FRAMES)
def test_a_chart_has_a_title_lies_within_its_figure_and_leaves_its_frame_alone(frame: str) -> None:
    for draw in charts_of(frame).values():
        before = deepcopy(draw.args)
        ax = draw()
        assert title(ax)
        assert_within_its_figure(ax)
        for one, other in zip(draw.args, before, strict=True):
            if isinstance(one, pd.DataFrame):
                pd.testing.assert_frame_equal(one, other)


def test_an_empty_chart_says_that_it_is_empty_and_shows_no_numbers() -> None:
    for name, draw in charts_of("none").items():
        if name != "law":
            ax = draw()
            assert any(text.startswith(("No ", "Nothing ")) for text in written(ax)), name
            assert not ax.get_lines(), name
            assert len(ax.get_xticks()) == 0, name


def test_a_chart_draws_on_the_axes_it_is_given() -> None:
    for draw in charts_of("two years").values():
        figure = Figure(figsize=(8, 9), layout="constrained")
        upper, _ = figure.subplots(2)
        assert draw(ax=upper) is upper
        drawn(upper)
        assert len(figure.axes) == 2
        assert figure.get_size_inches().tolist() == [8, 9]


@pytest.mark.parametrize("chart", ["growth", "starts"])
def test_another_measure_is_refused(chart: str) -> None:
    with pytest.raises(ValueError, match="measure must be 'memories' or 'tokens', not 'bytes'"):
        charts_of("two")[chart](measure="bytes")


def test_charts_use_no_pyplot() -> None:
    program = "import sys, memlab.charts; print('matplotlib.pyplot' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert run.stdout.strip() == "False"
