"""Charts of sizing draw the numbers they are given, and titles say what is so."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_frame, make_references, row
from matplotlib.axes import Axes
from matplotlib.dates import num2date
from reading import (
    assert_within_its_figure,
    drawn,
    lines_named,
    note,
    title,
    upright_lines,
    written,
)

from memlab import columns as c
from memlab.charts import (
    mark_cap_curve,
    mark_trade_off,
    plot_age_ranks,
    plot_backtest,
    plot_boot_over_time,
    plot_cap_curve,
    plot_trade_off,
)
from memlab.frame.loading import load
from memlab.report.bundled import store_path
from memlab.sizing import (
    Advice,
    Verdict,
    age_rank_quantiles,
    age_ranks,
    backtest_cap,
    boot_over_time,
    cap_curve,
    recommend_cap,
)


@pytest.fixture(scope="module")
def two_years() -> pd.DataFrame:
    return load(store_path("two_years"))


@pytest.fixture(scope="module")
def curve(two_years: pd.DataFrame) -> pd.DataFrame:
    return cap_curve(two_years)


@pytest.fixture(scope="module")
def advice(two_years: pd.DataFrame) -> Advice:
    return recommend_cap(two_years)


class TestCapCurve:
    def test_it_draws_the_estimate_and_its_two_parts(self, curve: pd.DataFrame) -> None:
        ax = plot_cap_curve(curve)
        for name, column in (
            ("estimated", "served"),
            ("lower limit", "low"),
            ("this store", "served_own"),
            ("other projects", "served_elsewhere"),
        ):
            (line,) = lines_named(ax, name)
            assert line.get_xdata().tolist() == curve.index.tolist()
            assert line.get_ydata().tolist() == curve[column].tolist()
            assert line.get_drawstyle() == "steps-post"

    def test_the_shade_is_between_the_limits(self, curve: pd.DataFrame) -> None:
        (shade,) = plot_cap_curve(curve).collections
        heights = set(np.round(shade.get_paths()[0].vertices[:, 1], 12))
        assert heights == set(np.round(curve[["low", "high"]].to_numpy().ravel(), 12))

    def test_the_target_the_likely_and_the_safe_cap_are_drawn_each_on_its_line(
        self, curve: pd.DataFrame, advice: Advice
    ) -> None:
        ax = plot_cap_curve(curve, advice=advice)
        likely, safe = advice.likely, advice.keep_recent
        assert set(upright_lines(ax)) == {likely, safe}
        assert [0.9, 0.9] in [list(line.get_ydata()) for line in lines_named(ax, "_cap")]
        assert {"target 90%", f"likely {likely}", f"safe {safe}"} <= set(written(ax))
        dots = {tuple(dot.get_xydata()[0]) for dot in lines_named(ax, "_chosen")}
        assert dots == {
            (likely, curve.loc[likely, "served"]),
            (safe, curve.loc[safe, "low"]),
        }
        assert title(ax) == (
            f"For 90% of references keep_recent = {safe} is safe, {likely} is likely"
        )

    def test_a_cap_to_look_at_is_in_the_title_with_its_estimate(self, curve: pd.DataFrame) -> None:
        ax = plot_cap_curve(curve, cap=250)
        served, low, high = 100 * curve.loc[250, ["served", "low", "high"]]
        assert title(ax) == (
            f"keep_recent = 250 serves an estimated {served:.0f}% of references "
            f"(limits {low:.0f} to {high:.0f}%)"
        )
        (dot,) = lines_named(ax, "_chosen")
        assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (250, curve.loc[250, "served"])

    def test_caps_beyond_the_budget_are_shaded(
        self, two_years: pd.DataFrame, curve: pd.DataFrame
    ) -> None:
        advice = recommend_cap(two_years, token_budget=20_000)
        ax = plot_cap_curve(curve, advice=advice)
        assert advice.budget_cap in upright_lines(ax)
        assert f"budget allows {advice.budget_cap}" in written(ax)
        assert ax.patches[0].get_extents().x0 == pytest.approx(
            ax.transData.transform((advice.budget_cap, 0))[0]
        )
        assert title(ax) == "No cap meets 90% within the token budget"

    def test_a_recommended_cap_beyond_the_rows_is_in_view(
        self, curve: pd.DataFrame, advice: Advice
    ) -> None:
        far = replace(advice, verdict=Verdict.CAP_HAS_NO_EFFECT, keep_recent=5_000)
        ax = plot_cap_curve(curve, advice=far)
        assert set(upright_lines(ax)) == {advice.likely, 5_000}
        assert [dot.get_xdata()[0] for dot in lines_named(ax, "_chosen")] == [advice.likely]
        assert ax.get_xlim()[1] >= 5_000
        assert title(ax) == "90% of references take all there is: keep all for now"

    def test_few_references_give_a_curve_that_says_whose_it_is(self) -> None:
        frame = make_episodes(1_000)
        references = make_references(frame, [10, 20], [3, 4])
        curve, advice = cap_curve(frame, references), recommend_cap(frame, references)
        ax = plot_cap_curve(curve, advice=advice)
        assert title(ax) == f"By other projects, for 90% of references {advice.numbers}"
        assert "Estimated: 2% from this store, 98% from other projects." in note(ax)

    def test_without_references_there_is_no_line_of_the_stores_own(self) -> None:
        ax = plot_cap_curve(cap_curve(make_episodes(40)))
        assert not lines_named(ax, "this store")
        assert lines_named(ax, "other projects")

    def test_every_verdict_has_a_title_of_its_own(
        self, curve: pd.DataFrame, advice: Advice
    ) -> None:
        said = {title(plot_cap_curve(curve, advice=replace(advice, verdict=v))) for v in Verdict}
        assert len(said) == len(Verdict)

    def test_a_target_is_written_as_it_was_set(self, two_years: pd.DataFrame) -> None:
        advice = recommend_cap(two_years, target=0.825)
        assert "target 82.5%" in written(plot_cap_curve(cap_curve(two_years), advice=advice))


class TestTradeOff:
    def test_it_draws_the_share_against_the_tokens(self, curve: pd.DataFrame) -> None:
        ax = plot_trade_off(curve)
        (line,) = lines_named(ax, "estimated")
        assert line.get_xdata().tolist() == curve["boot_tokens_p95"].tolist()
        assert line.get_ydata().tolist() == curve["served"].tolist()
        assert ax.get_xlim()[0] < curve["boot_tokens_p95"].min()
        assert ax.get_xlim()[1] >= curve["boot_tokens_p95"].max()

    def test_the_load_bearing_rows_are_a_floor(self, curve: pd.DataFrame) -> None:
        ax = plot_trade_off(curve)
        (floor,) = ax.patches
        assert floor.get_x() + floor.get_width() == curve.loc[0, "boot_tokens_p95"]
        assert "load-bearing: no cap goes below" in written(ax)

    def test_without_load_bearing_rows_there_is_no_floor(self) -> None:
        frame = make_episodes(40)
        ax = plot_trade_off(cap_curve(frame, make_references(frame, [10, 20], [3, 4])))
        assert not ax.patches
        assert not any("load-bearing" in text for text in written(ax))

    def test_named_caps_stand_where_they_are_and_apart(self, curve: pd.DataFrame) -> None:
        ax = plot_trade_off(curve, cap=90)
        drawn(ax)
        words = {text.get_text().removeprefix("keep_recent = "): text for text in ax.texts}
        named = {word: text for word, text in words.items() if word.isdigit()}
        assert {"10", "20", "90", "500"} <= set(named)
        for cap, text in named.items():
            assert text.xy == (
                curve.loc[int(cap), "boot_tokens_p95"],
                curve.loc[int(cap), "served"],
            )
        boxes = [text.get_window_extent() for text in named.values()]
        for number, one in enumerate(boxes):
            assert not any(one.overlaps(other) for other in boxes[number + 1 :])

    def test_the_title_says_what_the_likely_and_the_safe_cap_cost(
        self, curve: pd.DataFrame, advice: Advice
    ) -> None:
        likely, safe = (
            f"{round(tokens / 1e3)} k"
            for tokens in (curve.loc[advice.likely, "boot_tokens_p95"], advice.boot_tokens_p95 or 0)
        )
        assert title(plot_trade_off(curve, advice=advice)) == (
            f"90% of references cost {likely} tokens likely, {safe} to be safe"
        )

    def test_a_budget_in_conflict_is_in_the_title(
        self, two_years: pd.DataFrame, curve: pd.DataFrame
    ) -> None:
        advice = recommend_cap(two_years, token_budget=9_000)
        ax = plot_trade_off(curve, advice=advice)
        assert title(ax).startswith("90% of references cost ")
        assert title(ax).endswith("the budget is 9,000")
        assert 9_000 in upright_lines(ax)

    def test_a_floor_above_the_budget_is_in_the_title(
        self, two_years: pd.DataFrame, curve: pd.DataFrame
    ) -> None:
        advice = recommend_cap(two_years, token_budget=1_000)
        ax = plot_trade_off(curve, advice=advice, cap=50)
        assert title(ax) == "Load-bearing memories cost 6,491 tokens, the budget is 1,000"

    def test_it_says_how_tokens_were_counted(self, curve: pd.DataFrame) -> None:
        assert "Tokens: estimate: characters / 4, rounded up." in note(plot_trade_off(curve))


class TestMarks:
    @pytest.mark.parametrize(
        ("plot", "mark"), [(plot_cap_curve, mark_cap_curve), (plot_trade_off, mark_trade_off)]
    )
    def test_a_bare_chart_and_its_marks_are_the_chart(
        self,
        curve: pd.DataFrame,
        advice: Advice,
        plot: Callable[..., Axes],
        mark: Callable[..., None],
    ) -> None:
        bare = plot(curve, bare=True)
        assert not lines_named(bare, "_cap")
        mark(bare, curve, advice=advice, cap=80)
        whole = plot(curve, advice=advice, cap=80)
        assert len(bare.get_lines()) == len(whole.get_lines())
        marks = [text.get_text() for text in bare.texts if text.get_text()]
        assert set(marks) <= set(written(whole))

    def test_marks_outside_the_axes_are_left_out(
        self, curve: pd.DataFrame, two_years: pd.DataFrame
    ) -> None:
        far = recommend_cap(two_years, token_budget=10**8)
        ax = plot_trade_off(curve, bare=True)
        mark_trade_off(ax, curve, advice=far)
        assert not upright_lines(ax)
        assert not any("budget" in text for text in written(ax))


class TestBootOverTime:
    def test_it_draws_each_cap_and_none(self, two_years: pd.DataFrame) -> None:
        timeline = boot_over_time(two_years, [50, 1_000])
        ax = plot_boot_over_time(timeline)
        for name, cap in (("keep 50", 50), ("keep 1,000", 1_000)):
            (line,) = lines_named(ax, name)
            held = timeline[timeline["keep_recent"].eq(cap).fillna(value=False)]
            assert line.get_ydata().tolist() == held["tokens"].tolist()
        (free,) = lines_named(ax, "no cap")
        held = timeline[timeline["keep_recent"].isna()]
        assert free.get_ydata().tolist() == held["tokens"].tolist()
        first = num2date(free.get_xdata(orig=False)[0])
        assert abs(first - held["at"].iloc[0]) < pd.Timedelta(seconds=1)

    def test_line_ends_name_the_cap_and_what_it_costs_now(self, two_years: pd.DataFrame) -> None:
        texts = written(plot_boot_over_time(boot_over_time(two_years, [50]), measure="memories"))
        assert {"keep 50: 165", "no cap: 2,979"} <= set(texts)

    def test_a_budget_is_drawn_and_in_view(self, two_years: pd.DataFrame) -> None:
        ax = plot_boot_over_time(boot_over_time(two_years, [50]), budget=400_000)
        assert "budget: 400 k" in written(ax)
        assert ax.get_ylim()[1] > 400_000

    def test_one_moment_is_no_course(self) -> None:
        ax = plot_boot_over_time(boot_over_time(make_episodes(1), [5]))
        assert "One moment only: no course to draw yet" in written(ax)


class TestAgeRanks:
    def test_every_reference_to_a_prunable_memory_is_a_dot(self, two_years: pd.DataFrame) -> None:
        ranks = age_ranks(two_years)
        ax = plot_age_ranks(ranks)
        bound = ranks[ranks["age_rank"] > 0]
        dots = [line.get_xydata() for line in lines_named(ax, "references")]
        across, up = np.concatenate(dots).T
        assert across.min() == pytest.approx(bound["written"].min())
        assert up.max() == pytest.approx(bound["age_rank"].max())
        assert len(bound) / 2 < len(across) <= len(bound)
        assert ax.get_yscale() == "log"
        assert "Not drawn: 47 references to load-bearing memories." in note(ax)
        assert len(ranks) - len(bound) == 47

    def test_no_dot_is_out_of_view(self, two_years: pd.DataFrame) -> None:
        ranks = age_ranks(two_years)
        ax = plot_age_ranks(ranks, cap=5_000)
        assert ax.get_ylim()[0] < 1
        assert ax.get_ylim()[1] > 5_000
        assert ax.get_xlim()[1] >= ranks["written"].max()

    def test_quantiles_span_their_part(self, two_years: pd.DataFrame) -> None:
        ranks, quantiles = age_ranks(two_years), age_rank_quantiles(two_years)
        ax = plot_age_ranks(ranks, quantiles=quantiles)
        levels = {each.get_label(): each.get_segments() for each in ax.collections}
        for name in ("p50", "p90"):
            assert [segment[0][1] for segment in levels[name]] == quantiles[name].tolist()
            assert [segment[0][0] for segment in levels[name]] == quantiles["first"].tolist()
            assert [segment[1][0] for segment in levels[name]] == quantiles["last"].tolist()

    def test_references_to_load_bearing_memories_alone_are_said(self) -> None:
        frame = make_frame(
            row("d", **{c.KIND: "semantic"}), row("e", **{c.EVIDENCE_REFS: ("d",)}), "f"
        )
        assert "Every reference is to a load-bearing memory" in written(
            plot_age_ranks(age_ranks(frame))
        )


class TestBacktest:
    def test_each_cut_shows_what_was_chosen_and_what_was_needed(
        self, two_years: pd.DataFrame
    ) -> None:
        backtest = backtest_cap(two_years)
        ax = plot_backtest(backtest)
        for name, column in (("chosen", "keep_recent"), ("needed", "needed")):
            assert [line.get_xdata()[0] for line in lines_named(ax, name)] == (
                backtest[column].tolist()
            )
        times = (backtest["keep_recent"] / backtest["needed"]).median()
        assert title(ax) == (
            f"The target of 90% was met at {backtest['reached'].sum()} of 4 cuts, at {times:.1f} "
            "times the need"
        )
        assert ax.get_yticklabels()[0].get_text() == "first 50%"

    def test_a_missed_cut_looks_missed(self, two_years: pd.DataFrame) -> None:
        backtest = backtest_cap(two_years)
        backtest.loc[0, "reached"] = False
        ax = plot_backtest(backtest)
        marks = [line.get_marker() for line in lines_named(ax, "chosen")]
        assert marks == ["X", "o", "o", "o"]
        assert sum(text.startswith("missed: ") for text in written(ax)) == 1

    def test_a_cut_that_nothing_followed_is_said_beside_measured_ones(self) -> None:
        frame = make_episodes(100)
        backtest = backtest_cap(frame, make_references(frame, [85], [3]), cuts=(0.1, 0.8))
        ax = plot_backtest(backtest)
        assert "no references followed" in written(ax)
        assert "at 1 of 1 cut, " in title(ax)

    def test_nothing_measured_says_why(self) -> None:
        ax = plot_backtest(backtest_cap(make_episodes(30)))
        assert title(ax) == "No cut of the history could be measured"
        assert any("No reference followed any cut" in text for text in written(ax))


def test_a_store_of_another_shape_is_drawn_within_its_figure(
    real_store: Callable[[str], Path],
) -> None:
    frame = load(real_store("agent-store1"))
    curve, advice = cap_curve(frame), recommend_cap(frame, token_budget=50_000)
    timeline = boot_over_time(frame, [0, 2, advice.keep_recent or 5])
    for ax in (
        plot_cap_curve(curve, advice=advice, cap=1),
        plot_trade_off(curve, advice=advice, cap=1),
        plot_boot_over_time(timeline, measure="memories", budget=3),
        plot_age_ranks(age_ranks(frame), quantiles=age_rank_quantiles(frame), cap=3),
        plot_backtest(backtest_cap(frame)),
    ):
        assert_within_its_figure(ax)
