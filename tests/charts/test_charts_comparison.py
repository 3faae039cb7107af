"""Charts of comparisons show the numbers they are given, and stay charts without any."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from histories import simulate_history
from matplotlib.axes import Axes
from reading import drawn

from memlab.charts.comparison import BEST, plot_comparison, plot_overlap, plot_regret
from memlab.charts.palette import LIGHT
from memlab.policies import KeepRecent, Pipeline, Policy, TimeToLive, ValueCap
from memlab.replay import (
    Replay,
    compare,
    family_of,
    label_of,
    overlap,
    replay,
    replay_each,
    summarise,
)

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
    assert len(ax.collections) == 1  # the shade


def test_what_keeping_all_costs_is_marked(history: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table = compare(*history, [KeepRecent(50)])
    ax = plot_comparison(table)
    assert line(ax, "keep all")[0] == [table.loc["all", "boot_tokens_mean"]] * 2


def test_overlap_is_written_into_its_cells(replays: list[Replay]) -> None:
    shares = overlap(replays, of="lost", share=True)
    ax = drawn(plot_overlap(shares, of="lost"))
    cells = np.array([patch.get_alpha() for patch in ax.patches]).reshape(shares.shape)
    np.testing.assert_allclose(cells / cells.max(), shares.fillna(0) / np.max(shares))
    assert [text.get_text() for text in ax.texts[: len(shares)]] == [
        f"{100 * value:.0f}" for value in shares.iloc[0]
    ]
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert [name.replace("\n", " ").split(" ", 2)[2] for name in names] == list(shares.index)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [
        name.split(" ")[0] for name in names
    ]


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([[1, 0.5, 1], [0.4, 1, 1], [0.3, 0.7, 1]], "a and b share 50% of the fewer losses"),
        ([[1, 1, 0.2], [0.1, 1, 0.2], [1, 1, 1]], "fewer losses are among the more"),
        ([[1, np.nan], [np.nan, np.nan]], "Who loses what"),
    ],
)
def test_the_title_of_an_overlap_names_the_two_that_are_least_alike(
    shares: list[list[float]], said: str
) -> None:
    names = list("abc"[: len(shares)])
    ax = plot_overlap(pd.DataFrame(shares, index=names, columns=names), of="lost")
    assert said in ax.get_title(loc="left")


def test_regret_grows_to_what_was_lost(replays: list[Replay]) -> None:
    regrets = {label_of(one.policy): one.regret_over_time for one in replays[:3]}
    ax = drawn(plot_regret(regrets))
    for one in replays[:3]:
        assert line(ax, label_of(one.policy))[1][-1] == one.lost


def test_counts_are_no_shares(replays: list[Replay]) -> None:
    with pytest.raises(ValueError, match="share=True"):
        plot_overlap(overlap(replays))


def test_a_policy_looks_the_same_in_every_chart(
    history: tuple[pd.DataFrame, pd.DataFrame], replays: list[Replay]
) -> None:
    compared = plot_comparison(summarise(*history, replays))
    regrets = {label_of(one.policy): one.regret_over_time for one in reversed(replays)}
    regretted = plot_regret(regrets)
    for name in ("recent", "ttl", "value"):
        looks = {
            (line.get_color(), line.get_marker())
            for ax in (compared, regretted)
            for line in ax.lines
            if str(line.get_label()).split(" ")[0] == name
        }
        assert len(looks) == 1, name


def test_labels_carry_the_mark_of_their_line(
    history: tuple[pd.DataFrame, pd.DataFrame], replays: list[Replay]
) -> None:
    texts = [text.get_text() for text in plot_comparison(summarise(*history, replays)).texts]
    assert {"● recent", "■ ttl", "▲ value, half_life"} <= set(texts)


def test_marks_carry_their_setting(history: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table = compare(*history, [KeepRecent(cap) for cap in (20, 300)])
    texts = {text.get_text(): text.xy for text in plot_comparison(table).texts}  # type: ignore[attr-defined]
    for cap in (20, 300):
        line = table.loc[f"recent {cap}"]
        assert texts[str(cap)] == (line["boot_tokens_mean"], line["served"])


def test_one_mark_stands_on_an_axis_of_all_shares(
    history: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    ax = plot_comparison(compare(*history, [KeepRecent(300)]))
    assert ax.get_ylim()[0] == 0
    assert "300" in [text.get_text() for text in ax.texts]


def test_policies_on_one_line_are_all_to_be_seen(
    history: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    table = compare(*history, [KeepRecent(50), ValueCap(50)])
    table.loc["value 50", ["boot_tokens_mean", "served"]] = table.loc[
        "recent 50", ["boot_tokens_mean", "served"]
    ]
    under, over = (
        line
        for line in plot_comparison(table).lines
        if str(line.get_label()) in {"recent", "value"}
    )
    assert under.get_linewidth() > over.get_linewidth() + 1
    assert under.get_markersize() > over.get_markersize()


@dataclass(frozen=True)
class Chosen(KeepRecent):
    """A policy of one's own that says what it goes by."""

    name = "chosen"

    goes_by = "use"


def test_a_policy_of_ones_own_has_the_colour_of_what_it_goes_by(
    history: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    policies = [KeepRecent(80), Chosen(80), Pipeline(TimeToLive(), ValueCap(80))]
    policies.append(Pipeline(KeepRecent(90), ValueCap(80)))
    colours = [LIGHT.by_age, LIGHT.by_use, LIGHT.by_use, LIGHT.by_use]
    replays = [replay(*history, policy) for policy in policies]
    compared = plot_comparison(summarise(*history, replays))
    lost = plot_regret({label_of(one.policy): one.regret_over_time for one in replays})
    for ax, name_of in ((compared, family_of), (lost, label_of)):
        drawn = {line.get_label(): line.get_color() for line in ax.lines}
        assert [drawn[name_of(one)] for one in policies] == colours
