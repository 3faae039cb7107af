"""Contents of charts that no stored picture shows: odd frames, few memories, marks."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import date2num

from memlab import charts, recommend_cap
from memlab import columns as c
from memlab.charts.figure import LIGHT
from memlab.charts.parts import format_share
from memlab.evidence import AgeOrUse, age_or_use, find_references, read_access_log
from memlab.frame.loading import load
from memlab.growth import growth_curve
from memlab.policies import KeepRecent, Pipeline, TimeToLive, ValueCap
from memlab.replay import compare, family_of, label_of, overlap, replay, summarise
from memlab.sizing import (
    Advice,
    Sizing,
    Verdict,
    advise,
    backtest_cap,
    cap_curve,
    law_lines,
    prepare_sizing,
)
from memlab.views.bundled import store_path
from tests.charts.reading import (
    drawn,
    line_named,
    lines_named,
    note,
    points_of,
    title,
    upright_lines,
    written,
)
from tests.support.frames import START, make_episodes, make_references
from tests.support.histories import HistoryFrames, simulate_history


@pytest.fixture(scope="module")
def sizing() -> Sizing:
    return prepare_sizing(load(store_path("two_years")))


@pytest.fixture(scope="module")
def advice(sizing: Sizing) -> Advice:
    return advise(sizing)


@pytest.fixture(scope="module")
def searched() -> AgeOrUse:
    store = store_path("looked_up")
    past = load(store)
    log = read_access_log(store.with_suffix(".searches.jsonl"))
    return age_or_use(past, find_references(past, log))


@pytest.fixture(scope="module")
def history() -> HistoryFrames:
    return simulate_history(2, "steady", rows=1200)


# Growth, and the law


def test_growth_draws_only_what_exists() -> None:
    ax = charts.plot_growth(growth_curve(make_episodes(5)))
    assert {line.get_label() for line in ax.get_lines()} == {c.PRUNABLE, c.LOAD_BEARING, "_now"}
    assert "deleted earlier" not in note(ax)
    frame = make_episodes(5).drop(index=3)
    frame.loc[2, c.CREATED_AT] = pd.NaT
    caveat = note(charts.plot_growth(growth_curve(frame)))
    assert "was deleted earlier" in caveat
    assert "1 memory without a usable time stands where it was inserted" in caveat


def test_growth_of_a_store_without_an_index_mentions_none() -> None:
    frame = make_episodes(4).assign(**{c.LOADED_AT_START: [False, False, True, True]})
    words = note(charts.plot_growth(growth_curve(frame)))
    assert "An agent loads all but 2 of them at every start" in words
    assert "index" not in words


@pytest.mark.parametrize(("cap", "deletes"), [(0, 40), (15, 25), (500, 0)])
def test_growth_chart_shades_memories_beyond_the_cap(cap: int, deletes: int) -> None:
    ax = charts.plot_growth(growth_curve(make_episodes(40)), cap=cap)
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == cap
    assert heights.max() == cap + deletes
    assert title(ax) == f"keep_recent = {cap} would delete {deletes} of 40 prunable memories"
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylim()[1] >= max(40, cap)


def test_dates_are_drawn_in_utc() -> None:
    ax = charts.plot_growth(growth_curve(make_episodes(50), freq="h"))
    first = date2num((START - pd.Timedelta(hours=1)).to_pydatetime())
    assert ax.get_xlim()[0] == pytest.approx(first)


def test_law_chart_of_reads_names_no_project() -> None:
    ax = drawn(charts.plot_law(law_lines(0.9, evidence="reads")))
    assert ax.get_ylabel() == "cap that serves 90% of reads"
    assert "public stores" in note(ax)
    assert "Notes that agents found by searching" in note(ax)
    assert "largest first" not in note(ax)


# Caps


def test_a_recommended_cap_beyond_the_rows_is_in_view(sizing: Sizing, advice: Advice) -> None:
    far = replace(advice, verdict=Verdict.CAP_HAS_NO_EFFECT, keep_recent=5_000)
    ax = charts.plot_cap_curve(sizing.curve, advice=far)
    assert set(upright_lines(ax)) == {advice.likely, 5_000}
    assert points_of(ax, "_chosen")[0] == [advice.likely]
    assert ax.get_xlim()[1] >= 5_000


def test_title_of_a_trade_off_has_the_numbers_of_the_answer(sizing: Sizing, advice: Advice) -> None:
    ax = charts.plot_trade_off(sizing.curve, advice=advice)
    caps = f"a cap of {advice.keep_recent} (safe) or {advice.likely} (likely)"
    assert title(ax) == f"Serving 90% of references takes {caps}"


def test_curve_of_few_references_names_its_sources() -> None:
    frame = make_episodes(1_000)
    references = make_references(frame, [10, 20], [3, 4])
    advice = recommend_cap(frame, references)
    ax = charts.plot_cap_curve(cap_curve(frame, references), advice=advice)
    assert title(ax).startswith(f"The newest {advice.likely} likely serve 90%")
    assert title(ax).endswith("safely, by other projects")
    assert "Estimated: 2% from this store, 98% from other projects." in note(ax)
    assert not lines_named(charts.plot_cap_curve(cap_curve(frame)), "this store")


def test_every_verdict_has_its_own_title(sizing: Sizing, advice: Advice) -> None:
    titles = []
    for verdict in Verdict:
        ax = charts.plot_cap_curve(sizing.curve, advice=replace(advice, verdict=verdict))
        titles.append(title(ax))
    assert len(set(titles)) == len(titles)


def test_infeasible_budget_is_in_the_title(sizing: Sizing) -> None:
    ax = charts.plot_trade_off(sizing.curve, advice=advise(sizing, token_budget=9_000))
    assert title(ax) == "No cap meets both the target and the token budget: choose one"
    assert 9_000 in upright_lines(ax)
    ax = charts.plot_trade_off(sizing.curve, advice=advise(sizing, token_budget=1_000))
    assert title(ax).startswith("Load-bearing memories alone exceed the token budget")


@pytest.mark.parametrize("name", ["cap_curve", "trade_off"])
def test_bare_chart_with_marks_equals_the_full_chart(
    sizing: Sizing, advice: Advice, name: str
) -> None:
    plot = getattr(charts, f"plot_{name}")
    mark = getattr(charts, f"mark_{name}")
    bare = plot(sizing.curve, bare=True)
    assert not lines_named(bare, "_cap")
    mark(bare, sizing.curve, advice=advice, cap=80)
    full_chart = plot(sizing.curve, advice=advice, cap=80)
    assert len(bare.get_lines()) == len(full_chart.get_lines())
    marks = [text.get_text() for text in bare.texts if text.get_text()]
    assert set(marks) <= set(written(full_chart))


def test_marks_outside_the_axes_are_omitted(sizing: Sizing) -> None:
    ax = charts.plot_trade_off(sizing.curve, bare=True)
    charts.mark_trade_off(ax, sizing.curve, advice=advise(sizing, token_budget=10**8))
    assert not upright_lines(ax)
    assert "budget" not in note(ax)


@pytest.mark.parametrize("name", ["cap_curve", "trade_off"])
def test_cap_below_the_curve_uses_its_first_row(sizing: Sizing, name: str) -> None:
    part = sizing.curve.loc[20:]
    plot = getattr(charts, f"plot_{name}")
    assert format_share(part["served"].iloc[0]) in title(plot(part, cap=10))


# References, splits and reads


def test_coinciding_references_share_one_larger_dot() -> None:
    ranks = pd.DataFrame({"written": [40] * 16 + [10], "age_rank": [4] * 16 + [1]})
    ax = charts.plot_age_ranks(ranks, cap=5_000)
    sizes = {}
    for line in ax.lines:
        written, age_rank = line.get_xydata()[0].round()
        sizes[written, age_rank] = line.get_markersize()
    assert sizes[40, 4] == pytest.approx(4 * sizes[10, 1], rel=0.1)
    assert "a larger one up to 16 that coincide" in note(ax)
    assert ax.get_ylim()[1] > 5_000


def test_missed_and_unfollowed_backtest_splits_are_named() -> None:
    frame = make_episodes(100)
    backtest = backtest_cap(frame, make_references(frame, [85], [3]), splits=(0.1, 0.8))
    ax = charts.plot_backtest(backtest)
    assert "no references followed" in written(ax)
    assert "at 1 of 1 moment, " in title(ax)
    missed = charts.plot_backtest(backtest.assign(reached=False))
    assert [line.get_marker() for line in lines_named(missed, "chosen")] == ["X"]
    assert sum(text.startswith("missed: ") for text in written(missed)) == 1


def test_unread_group_has_a_limit_and_no_dot(searched: AgeOrUse) -> None:
    table = searched.chances.copy()
    table.loc["third quarter", ["chance", "low"]] = 0.0
    ax = charts.plot_age_or_use(replace(searched, chances=table))
    limits = np.concatenate([bars.get_segments() for bars in ax.collections])
    lower_limit = limits[7][0][0]
    axis_start = ax.get_xlim()[0]
    assert lower_limit == axis_start
    assert axis_start > 0
    few = charts.plot_age_or_use(replace(searched, reads=19))
    assert title(few) == "Too few reads to tell age from use"


# Policies


def test_a_comparison_of_few_references_starts_at_zero(history: HistoryFrames) -> None:
    table = compare(*history, [KeepRecent(50), ValueCap(50)]).table
    ax = charts.plot_comparison(table)
    assert ax.get_ylim()[0] == 0  # the axis starts at zero for few marks
    tokens, _ = points_of(ax, "keep all")
    assert tokens == [table.loc["all", "boot_tokens_mean"]] * 2
    assert "keep all: " in note(ax)


def test_retired_policies_have_explained_hollow_markers(history: HistoryFrames) -> None:
    ax = charts.plot_comparison(compare(*history, [ValueCap(50)], retire=True).table)
    assert line_named(ax, "value").get_markerfacecolor() == LIGHT.by_use
    assert line_named(ax, "value, retired").get_markerfacecolor() == LIGHT.paper
    assert "Hollow: retired" in note(ax)


class Chosen(KeepRecent):
    """A custom policy that ranks by use."""

    name = "chosen"
    ranks_by = "use"


def test_policy_has_one_colour_and_marker_in_every_chart(history: HistoryFrames) -> None:
    by_age = [KeepRecent(80), TimeToLive(timedelta(hours=20))]
    by_use = [ValueCap(80), Chosen(80), Pipeline(KeepRecent(90), ValueCap(80))]
    replays = [replay(*history, policy) for policy in (*by_age, *by_use)]
    with pytest.raises(ValueError, match="share=True"):
        charts.plot_overlap(overlap(replays))
    regrets = {label_of(replay.policy): replay.regret_over_time for replay in reversed(replays)}
    compared = charts.plot_comparison(summarise(*history, replays))
    regretted = charts.plot_regret(regrets)
    for colour, policies in ((LIGHT.by_age, by_age), (LIGHT.by_use, by_use)):
        for policy in policies:
            line = line_named(compared, family_of(policy))
            other = line_named(regretted, label_of(policy))
            assert line.get_color() == colour
            assert other.get_color() == colour
            assert line.get_marker() == other.get_marker()
