"""Charts of sizing draw the numbers they are given, and titles say what is so."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from frames import make_episodes, make_references
from matplotlib.axes import Axes
from reading import (
    drawn,
    line_named,
    lines_named,
    note,
    points_of,
    title,
    upright_lines,
    written,
)

from memlab.charts import (
    mark_cap_curve,
    mark_trade_off,
    plot_age_or_use,
    plot_age_ranks,
    plot_backtest,
    plot_cap_curve,
    plot_reads_served,
    plot_trade_off,
)
from memlab.evidence import age_or_use, find_references, read_access_log
from memlab.evidence.usage import TIMES, AgeOrUse
from memlab.frame.loading import load
from memlab.sizing import (
    Advice,
    Sizing,
    Verdict,
    advise,
    age_rank_quantiles,
    age_ranks,
    backtest_cap,
    cap_curve,
    prepare_sizing,
    recommend_cap,
)
from memlab.views.bundled import store_path


@pytest.fixture(scope="module")
def two_years() -> pd.DataFrame:
    return load(store_path("two_years"))


@pytest.fixture(scope="module")
def sizing(two_years: pd.DataFrame) -> Sizing:
    return prepare_sizing(two_years)


@pytest.fixture(scope="module")
def curve(sizing: Sizing) -> pd.DataFrame:
    return sizing.curve


@pytest.fixture(scope="module")
def advice(sizing: Sizing) -> Advice:
    return advise(sizing)


@pytest.fixture(scope="module")
def searched() -> AgeOrUse:
    store = store_path("looked_up")
    past, log = load(store), read_access_log(store.with_suffix(".searches.jsonl"))
    return age_or_use(past, find_references(past, log))


class TestCapCurve:
    def test_it_draws_the_estimate_its_two_parts_and_its_limits(self, curve: pd.DataFrame) -> None:
        ax = plot_cap_curve(curve)
        for name, column in (
            ("estimated", "served"),
            ("lower limit", "low"),
            ("this store", "served_own"),
            ("other projects", "served_elsewhere"),
        ):
            assert points_of(ax, name) == (curve.index.tolist(), curve[column].tolist())
            assert line_named(ax, name).get_drawstyle() == "steps-post"
        (shade,) = ax.collections
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
        assert dots == {(likely, curve.loc[likely, "served"]), (safe, curve.loc[safe, "low"])}
        assert title(ax) == (
            f"The newest {likely} likely serve 90% of references, to be safe {safe}"
        )

    def test_a_cap_to_look_at_is_in_the_title_with_its_estimate(self, curve: pd.DataFrame) -> None:
        ax = plot_cap_curve(curve, cap=250)
        served, low, high = 100 * curve.loc[250, ["served", "low", "high"]]
        assert title(ax) == (
            f"keep_recent = 250 serves an estimated {served:.0f}% of references "
            f"(limits {low:.0f} to {high:.0f}%)"
        )
        assert points_of(ax, "_chosen") == ([250], [curve.loc[250, "served"]])

    def test_caps_beyond_the_budget_are_shaded(self, sizing: Sizing, curve: pd.DataFrame) -> None:
        advice = advise(sizing, token_budget=20_000)
        ax = plot_cap_curve(curve, advice=advice)
        assert advice.budget_cap in upright_lines(ax)
        safe = advise(sizing).keep_recent
        allows = f"budget allows {advice.budget_cap}"
        assert {allows, f"likely {advice.likely}", f"safe {safe}"} <= set(written(ax))
        left = ax.transData.transform((advice.budget_cap, 0))[0]
        assert ax.patches[0].get_extents().x0 == pytest.approx(left)
        assert title(ax) == "No cap meets 90% within the token budget"

    def test_a_recommended_cap_beyond_the_rows_is_in_view(
        self, curve: pd.DataFrame, advice: Advice
    ) -> None:
        far = replace(advice, verdict=Verdict.CAP_HAS_NO_EFFECT, keep_recent=5_000)
        ax = plot_cap_curve(curve, advice=far)
        assert set(upright_lines(ax)) == {advice.likely, 5_000}
        assert points_of(ax, "_chosen")[0] == [advice.likely]
        assert ax.get_xlim()[1] >= 5_000
        assert title(ax) == "90% of references take all there is: keep all for now"

    def test_few_references_give_a_curve_that_says_whose_it_is(self) -> None:
        frame = make_episodes(1_000)
        references = make_references(frame, [10, 20], [3, 4])
        advice = recommend_cap(frame, references)
        ax = plot_cap_curve(cap_curve(frame, references), advice=advice)
        assert title(ax) == (
            f"By other projects the newest {advice.likely} likely serve 90% of references, "
            f"to be safe {advice.keep_recent}"
        )
        assert "Estimated: 2% from this store, 98% from other projects." in note(ax)
        alone = plot_cap_curve(cap_curve(frame))
        assert not lines_named(alone, "this store")
        assert lines_named(alone, "other projects")

    def test_every_verdict_has_a_title_of_its_own(
        self, curve: pd.DataFrame, advice: Advice
    ) -> None:
        said = {title(plot_cap_curve(curve, advice=replace(advice, verdict=v))) for v in Verdict}
        assert len(said) == len(Verdict)


class TestTradeOff:
    def test_it_draws_the_share_against_the_tokens_above_a_floor(self, curve: pd.DataFrame) -> None:
        ax, tokens = plot_trade_off(curve), curve["boot_tokens_p95"]
        assert points_of(ax, "estimated") == (tokens.tolist(), curve["served"].tolist())
        assert ax.get_xlim()[0] < tokens.min()
        assert ax.get_xlim()[1] >= tokens.max()
        (floor,) = ax.patches
        assert floor.get_x() + floor.get_width() == tokens.loc[0]
        assert "load-bearing: no cap goes below" in written(ax)
        assert "Tokens: estimate: characters / 4, rounded up." in note(ax)

    def test_named_caps_stand_where_they_are_and_apart(self, curve: pd.DataFrame) -> None:
        ax = drawn(plot_trade_off(curve, cap=90))
        words = {text.get_text().removeprefix("keep_recent = "): text for text in ax.texts}
        named = {word: text for word, text in words.items() if word.isdigit()}
        assert {"10", "20", "90", "500"} <= set(named)
        for cap, text in named.items():
            assert text.xy == tuple(curve.loc[int(cap), ["boot_tokens_p95", "served"]])
        boxes = [text.get_window_extent() for text in named.values()]
        for number, one in enumerate(boxes):
            assert not any(one.overlaps(other) for other in boxes[number + 1 :])

    def test_the_title_says_what_the_likely_and_the_safe_cap_cost(
        self, curve: pd.DataFrame, advice: Advice
    ) -> None:
        costs = curve.loc[advice.likely, "boot_tokens_p95"], advice.boot_tokens_p95 or 0
        likely, safe = (f"{round(tokens / 1e3)} k" for tokens in costs)
        assert title(plot_trade_off(curve, advice=advice)) == (
            f"90% of references cost {likely} tokens likely, {safe} to be safe"
        )

    def test_a_budget_in_conflict_with_target_or_floor_is_in_the_title(
        self, sizing: Sizing, curve: pd.DataFrame
    ) -> None:
        ax = plot_trade_off(curve, advice=advise(sizing, token_budget=9_000))
        assert title(ax).startswith("90% of references cost ")
        assert title(ax).endswith("the budget is 9,000")
        assert 9_000 in upright_lines(ax)
        ax = plot_trade_off(curve, advice=advise(sizing, token_budget=1_000), cap=50)
        assert title(ax) == "Load-bearing memories cost 6,491 tokens, the budget is 1,000"


@pytest.mark.parametrize(
    ("plot", "mark"), [(plot_cap_curve, mark_cap_curve), (plot_trade_off, mark_trade_off)]
)
def test_a_bare_chart_and_its_marks_are_the_chart(
    curve: pd.DataFrame, advice: Advice, plot: Callable[..., Axes], mark: Callable[..., None]
) -> None:
    bare = plot(curve, bare=True)
    assert not lines_named(bare, "_cap")
    mark(bare, curve, advice=advice, cap=80)
    whole = plot(curve, advice=advice, cap=80)
    assert len(bare.get_lines()) == len(whole.get_lines())
    marks = [text.get_text() for text in bare.texts if text.get_text()]
    assert set(marks) <= set(written(whole))


def test_marks_outside_the_axes_are_left_out(curve: pd.DataFrame, sizing: Sizing) -> None:
    ax = plot_trade_off(curve, bare=True)
    mark_trade_off(ax, curve, advice=advise(sizing, token_budget=10**8))
    assert not upright_lines(ax)
    assert "budget" not in note(ax)


class TestAgeRanks:
    def test_every_reference_to_a_prunable_memory_is_a_dot(self, two_years: pd.DataFrame) -> None:
        ranks = age_ranks(two_years)
        ax = plot_age_ranks(ranks, cap=5_000)
        bound = ranks[ranks["age_rank"] > 0]
        across, up = np.concatenate([dot.get_xydata() for dot in lines_named(ax, "references")]).T
        assert across.min() == pytest.approx(bound["written"].min())
        assert up.max() == pytest.approx(bound["age_rank"].max())
        assert len(bound) / 2 < len(across) <= len(bound)
        assert "Not drawn: 47 references to load-bearing memories." in note(ax)
        assert len(ranks) - len(bound) == 47
        assert ax.get_yscale() == "log"
        assert ax.get_ylim()[0] < 1
        assert ax.get_ylim()[1] > 5_000
        assert ax.get_xlim()[1] >= ranks["written"].max()

    def test_quantiles_span_their_part(self, two_years: pd.DataFrame) -> None:
        quantiles = age_rank_quantiles(two_years)
        ax = plot_age_ranks(age_ranks(two_years), quantiles=quantiles)
        levels = {each.get_label(): np.array(each.get_segments()) for each in ax.collections}
        for name in ("p50", "p90"):
            assert levels[name][:, 0, 1].tolist() == quantiles[name].tolist()
            assert (
                levels[name][:, :, 0].tolist() == quantiles[["first", "last"]].to_numpy().tolist()
            )

    def test_references_that_coincide_are_one_dot_as_large_as_they_are_many(self) -> None:
        ranks = pd.DataFrame({"written": [40] * 16 + [10], "age_rank": [4] * 16 + [1]})
        ax = plot_age_ranks(ranks)
        sizes = {tuple(line.get_xydata()[0].round()): line.get_markersize() for line in ax.lines}
        assert sizes[40, 4] == pytest.approx(4 * sizes[10, 1], rel=0.1)
        assert "16" in written(ax)
        assert "a larger one up to 16 that coincide" in note(ax)


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
        missed = plot_backtest(backtest.assign(reached=[False, True, True, True]))
        assert [line.get_marker() for line in lines_named(missed, "chosen")] == ["X", *"ooo"]
        assert sum(text.startswith("missed: ") for text in written(missed)) == 1

    def test_a_cut_that_nothing_followed_is_said_beside_measured_ones(self) -> None:
        frame = make_episodes(100)
        backtest = backtest_cap(frame, make_references(frame, [85], [3]), cuts=(0.1, 0.8))
        ax = plot_backtest(backtest)
        assert "no references followed" in written(ax)
        assert "at 1 of 1 cut, " in title(ax)


class TestAgeOrUse:
    def test_every_chance_has_a_dot_with_its_limits_beside_other_stores(
        self, searched: AgeOrUse
    ) -> None:
        ax, table = plot_age_or_use(searched), searched.chances
        limits = np.concatenate([bars.get_segments() for bars in ax.collections])
        assert limits[:, :, 0].tolist() == table[["low", "high"]].to_numpy().tolist()
        for name, rows in ("by use", table[: len(TIMES)]), ("by age", table[len(TIMES) :]):
            assert points_of(ax, name)[0] == rows["chance"].tolist()
        others = [x for line in lines_named(ax, "other stores") for x in line.get_xdata()]
        assert others == table["other_stores"].tolist()
        assert {f"{reads} reads" for reads in table["reads"]} < set(written(ax))
        often = table["chance"]["five times or more"]
        assert title(ax).startswith(
            f"Memories read five times or more before are {often:.1f} times"
        )

    def test_what_was_never_read_has_a_limit_and_no_dot(self, searched: AgeOrUse) -> None:
        table = searched.chances.copy()
        table.loc["third quarter", ["chance", "low"]] = 0.0
        ax = plot_age_or_use(replace(searched, chances=table))
        limits = np.concatenate([bars.get_segments() for bars in ax.collections])
        assert limits[7][0][0] == ax.get_xlim()[0] > 0

    def test_too_few_reads_are_said_in_the_title(self, searched: AgeOrUse) -> None:
        ax = plot_age_or_use(replace(searched, verdict="too-few-reads"))
        assert title(ax) == "Too few reads to tell whether age or use says what is read next"

    def test_both_orders_are_drawn_and_named_at_three_sizes(self, searched: AgeOrUse) -> None:
        ax, served = plot_reads_served(searched), searched.served["tokens"]
        for name, column in ("by age", "newest"), ("by use", "most used"):
            assert points_of(ax, name) == (served.index.tolist(), served[column].tolist())
        used, newest = (f"{served[each][0.25]:.0%}" for each in ("most used", "newest"))
        assert {used, newest} < set(written(ax))
        assert f"the most used serve {used} of reads, the newest {newest}" in title(ax)
