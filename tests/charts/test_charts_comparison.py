"""Charts of comparisons show the numbers they are given, and stay charts without any."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes
from histories import simulate_history
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from memlab.charts.comparison import BEST, plot_comparison, plot_overlap, plot_regret
from memlab.evidence.references import find_references
from memlab.policies import KeepRecent, Policy, TimeToLive, ValueCap
from memlab.replay import Replay, compare, label_of, overlap, replay_each, summarise

POLICIES: list[Policy] = [
    *(KeepRecent(cap) for cap in (20, 80, 300)),
    *(TimeToLive(timedelta(hours=hours)) for hours in (20, 80, 300)),
    *(ValueCap(cap, half_life=timedelta(hours=20)) for cap in (20, 80)),
]


@pytest.fixture(scope="module")
def history() -> tuple[pd.DataFrame, pd.DataFrame]:
    return simulate_history(2, "steady", rows=1200).as_frames()


@pytest.fixture(scope="module")
def replays(history: tuple[pd.DataFrame, pd.DataFrame]) -> list[Replay]:
    return replay_each(*history, POLICIES)


def line(ax: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = [one for one in ax.lines if one.get_label() == label]
    return list(found.get_xdata()), list(found.get_ydata())


def drawn(ax: Axes) -> Axes:
    """The axes, after their figure has been rendered."""
    figure = ax.figure
    assert isinstance(figure, Figure)
    FigureCanvasAgg(figure).draw()
    return ax


def test_each_policy_is_one_line_of_its_settings(
    history: tuple[pd.DataFrame, pd.DataFrame], replays: list[Replay]
) -> None:
    table = summarise(*history, replays)
    ax = drawn(plot_comparison(table))
    for name, part in table.groupby("family"):
        across, up = line(ax, str(name))
        assert sorted(across) == across
        assert sorted(up) == sorted(part["served"])
    assert max(line(ax, BEST)[1]) == table["oracle"].max()
    assert len(ax.collections) == 1


def test_what_keeping_all_costs_is_marked(history: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table = compare(*history, [KeepRecent(50)])
    ax = plot_comparison(table)
    assert line(ax, "keep all")[0] == [table.loc["all", "boot_tokens_mean"]] * 2


def test_overlap_is_written_into_its_cells(replays: list[Replay]) -> None:
    shares = overlap(replays, of="lost", share=True)
    ax = drawn(plot_overlap(shares, of="lost"))
    assert ax.get_title(loc="left") == "Who loses what"
    np.testing.assert_array_equal(ax.images[0].get_array(), shares.to_numpy())
    assert [text.get_text() for text in ax.texts[: len(shares)]] == [
        f"{100 * value:.0f}" for value in shares.iloc[0]
    ]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(shares.index)


def test_regret_grows_to_what_was_lost(replays: list[Replay]) -> None:
    regrets = {label_of(one.policy): one.regret_over_time for one in replays[:3]}
    ax = drawn(plot_regret(regrets))
    for one in replays[:3]:
        assert line(ax, label_of(one.policy))[1][-1] == one.lost


def test_charts_without_references_say_so() -> None:
    frame = make_episodes(5)
    none = find_references(frame)
    replays = replay_each(frame, none, [KeepRecent(9)])
    charts = (
        plot_comparison(summarise(frame, none, replays)),
        plot_overlap(overlap(replays, share=True)),
        plot_regret({"recent": replays[0].regret_over_time}),
        plot_regret({}),
    )
    for ax in map(drawn, charts):
        assert any("No" in text.get_text() for text in ax.texts)


def test_a_given_axes_is_drawn_on(replays: list[Replay]) -> None:
    ax = Figure().add_subplot()
    assert plot_overlap(overlap(replays), ax=ax) is ax
