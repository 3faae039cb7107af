"""Charts of comparisons show the numbers they are given, each policy as everywhere."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from histories import simulate_history
from reading import drawn, note, points_of, title, written

from memlab.charts import plot_comparison, plot_overlap, plot_regret
from memlab.charts.comparison import BEST
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
History = tuple[pd.DataFrame, pd.DataFrame]


@pytest.fixture(scope="module")
def history() -> History:
    return simulate_history(2, "steady", rows=1200).as_frames()


@pytest.fixture(scope="module")
def replays(history: History) -> list[Replay]:
    return replay_each(*history, POLICIES)


@pytest.fixture(scope="module")
def table(history: History, replays: list[Replay]) -> pd.DataFrame:
    return summarise(*history, replays)


def test_each_policy_is_one_line_of_its_settings_with_its_mark(table: pd.DataFrame) -> None:
    ax = drawn(plot_comparison(table))
    for name, part in table.groupby("family"):
        across, up = points_of(ax, str(name))
        assert sorted(across) == across
        assert sorted(up) == sorted(part["served"])
    assert max(points_of(ax, BEST)[1]) == table["oracle"].max()
    assert len(ax.collections) == 1  # the shade
    assert {"● recent", "■ ttl", "▲ value, half_life"} <= set(written(ax))


def test_marks_carry_their_setting_and_what_keeping_all_costs_is_marked(history: History) -> None:
    table = compare(*history, [KeepRecent(cap) for cap in (20, 300)]).table
    ax = plot_comparison(table)
    at = {text.get_text(): text.xy for text in ax.texts}  # type: ignore[attr-defined]
    for cap in (20, 300):
        assert at[str(cap)] == tuple(table.loc[f"recent {cap}", ["boot_tokens_mean", "served"]])
    assert points_of(ax, "keep all")[0] == [table.loc["all", "boot_tokens_mean"]] * 2
    assert ax.get_ylim()[0] == 0  # a few marks do not pretend to a narrow range


@pytest.mark.parametrize(("nearer", "said"), [(1.0, 2), (1.5, 0)])
def test_marks_that_coincide_are_counted_and_named_together(
    history: History, nearer: float, said: int
) -> None:
    table = compare(*history, [KeepRecent(50), ValueCap(50)]).table
    table.loc["value 50", "served"] = table.loc["recent 50", "served"]
    table.loc["value 50", "boot_tokens_mean"] = table.loc["recent 50", "boot_tokens_mean"] * nearer
    ax = plot_comparison(table)
    assert ("● 50 = ▲ 50" in written(ax)) == bool(said)
    assert (f"{said} marks coincide" in note(ax)) == bool(said)


def test_the_name_of_many_marks_that_coincide_covers_no_name_of_a_line(history: History) -> None:
    policies = [KeepRecent(cap) for cap in (700, *range(2_000, 7_000, 1_000))]
    ax = drawn(plot_comparison(compare(*history, policies).table))
    (name,) = (text for text in ax.texts if " = ● 3000 = " in text.get_text())
    (line,) = (text for text in ax.texts if text.get_text() == "● recent")
    assert not name.get_window_extent().overlaps(line.get_window_extent())


def test_overlap_is_written_into_its_cells(replays: list[Replay]) -> None:
    shares = overlap(replays, of="lost", share=True)
    ax = drawn(plot_overlap(shares, of="lost"))
    cells = np.array([patch.get_alpha() for patch in ax.patches]).reshape(shares.shape)
    np.testing.assert_allclose(cells / cells.max(), shares.fillna(0) / np.max(shares))
    assert [text.get_text() for text in ax.texts[: len(shares)]] == [
        f"{100 * value:.0f}" for value in shares.iloc[0]
    ]
    names = [tick.get_text().replace("\n", " ").split(" ", 2) for tick in ax.get_yticklabels()]
    assert [name for _, _, name in names] == list(shares.index)
    assert [number for number, *_ in names] == [tick.get_text() for tick in ax.get_xticklabels()]
    with pytest.raises(ValueError, match="share=True"):
        plot_overlap(overlap(replays))


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        (
            [[1, 0.5, 1], [0.4, 1, 1], [0.3, 0.7, 1]],
            "The least alike, a and b, share 50% of the fewer losses",
        ),
        (
            [[1, 1, 0.2], [0.1, 1, 0.2], [1, 1, 1]],
            "nearly all losses of the one with fewer",
        ),
        ([[1, np.nan], [np.nan, np.nan]], "Who loses what"),
    ],
)
def test_the_title_of_an_overlap_names_the_two_that_are_least_alike(
    shares: list[list[float]], said: str
) -> None:
    names = list("abc"[: len(shares)])
    assert said in title(plot_overlap(pd.DataFrame(shares, names, names), of="lost"))


@dataclass(frozen=True)
class Chosen(KeepRecent):
    """A policy of one's own that says what it goes by."""

    name = "chosen"
    goes_by = "use"


def test_a_policy_looks_the_same_in_every_chart_and_has_the_colour_of_what_it_goes_by(
    history: History,
) -> None:
    by_colour: dict[str, list[Policy]] = {
        LIGHT.by_age: [KeepRecent(80), TimeToLive(timedelta(hours=20))],
        LIGHT.by_use: [
            *(ValueCap(80), Chosen(80), Pipeline(TimeToLive(), ValueCap(80))),
            Pipeline(KeepRecent(90), ValueCap(80)),
        ],
    }
    replays = [replay(*history, policy) for some in by_colour.values() for policy in some]
    regrets = {label_of(one.policy): one.regret_over_time for one in reversed(replays)}
    compared = {
        line.get_label(): line for line in plot_comparison(summarise(*history, replays)).lines
    }
    regretted = {line.get_label(): line for line in plot_regret(regrets).lines}
    for colour, policies in by_colour.items():
        for policy in policies:
            looks = compared[family_of(policy)], regretted[label_of(policy)]
            assert [line.get_color() for line in looks] == [colour] * 2
            assert looks[0].get_marker() == looks[1].get_marker()
    for one in replays:
        assert regretted[label_of(one.policy)].get_ydata()[-1] == one.lost
